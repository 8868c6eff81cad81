"""Second moments over units, from which variances of weighted or clustered rows follow.

A unit is a row, or all rows of a cluster that are in one group. Its total N is the weight of its
rows, and its total X of a feature x is the sum of weight * x over its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROWS = 1 << 14
"""Rows of clusters added up at a time."""

FEATURES: Mapping[str, str] = {
    "hit": "",  # 1[decision = y]
    "top": "",  # 1[argmax = y] - confidence
    "brier": "",  # sum_k (p_k - 1[y = k])**2
    "loss": "",  # -log p_y where p_y > 0
    "label": "k",  # 1[y = k]
    "prob": "k",  # p_k
    "pred": "k",  # 1[decision = k]
}
"""What is added up within a unit, and its axes; beside these "n" is the weight."""

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "unit_count": (),
    "unit_n2": ("n", "n"),
    "unit_n4": ("n", "n", "n", "n"),
    **dict(chain(*(((f"unit_{x}2", (x, x)), (f"unit_{x}_n", (x, "n"))) for x in FEATURES))),
    "unit_prob_label": ("prob", "label"),
    "unit_pred_label": ("pred", "label"),
}
"""The sums over units by name: each adds up the product of these totals of the units."""


def axes_of(name: str) -> str:
    """Return the axes of a sum over units, after the group."""
    return max((FEATURES.get(factor, "") for factor in PRODUCTS[name]), default="")


def features(
    prob: NDArray[np.float64], y: Array, decision: Array, top: Array, weight: Array | None
) -> dict[str, Array]:
    """Return weight * x of each row and feature; probabilities are (class, row)."""
    rows, classes = np.arange(len(y)), np.arange(len(prob))[:, None]
    own, error = prob[y, rows], prob.copy()
    error[y, rows] -= 1.0
    found: dict[str, Array] = {
        "n": np.ones(len(y)),
        "hit": decision == y,
        "top": (top == y) - prob[top, rows],
        "brier": (error * error).sum(axis=0),
        "loss": -np.log(np.where(own > 0.0, own, 1.0)),
        "label": classes == y,
        "prob": prob,
        "pred": classes == decision,
    }
    return {name: x * (1.0 if weight is None else weight) for name, x in found.items()}


def products(totals: Mapping[str, Array], group: Array, groups: int) -> dict[str, Array]:
    """Add up the products of units' totals per group, each (group, [class])."""
    found = {}
    for name, factors in PRODUCTS.items():
        value = np.ones(len(group))
        for factor in factors:
            value = value * totals[factor]
        each = [np.bincount(group, v, groups) for v in np.atleast_2d(value)]
        found[name] = np.stack(each, axis=-1) if axes_of(name) else each[0]
    return found


def over_clusters(
    read: Callable[[Array], Mapping[str, Array]], cluster: Array, group: Array | None, groups: int
) -> dict[str, Array]:
    """Return the sums over clusters; `read` gives the `features` of some of the rows."""
    unit = cluster.astype(np.int64) * groups
    if group is not None:
        unit += group
    # the rows of a unit one after another, so that scratch space stays small
    order = np.argsort(unit, kind="stable")
    sums: dict[str, Array] = {}

    def add(units: Array, totals: Mapping[str, Array]) -> None:
        for name, value in products(totals, units % groups, groups).items():
            sums[name] = sums.get(name, 0.0) + value

    last: tuple[Array, Mapping[str, Array]] | None = None
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        units, values = unit[rows], read(rows)
        if last is not None:  # the last unit of the slice before may go on
            units = np.concatenate([last[0], units])
            values = {n: np.concatenate([last[1][n], v], axis=-1) for n, v in values.items()}
        starts = np.flatnonzero(np.concatenate([[True], units[1:] != units[:-1]]))
        totals = {n: np.add.reduceat(v, starts, axis=-1) for n, v in values.items()}
        units = units[starts]
        add(units[:-1], {n: v[..., :-1] for n, v in totals.items()})
        last = units[-1:], {n: v[..., -1:] for n, v in totals.items()}
    assert last is not None
    add(*last)
    return sums


def of_single_rows(sums: Mapping[str, Array]) -> dict[str, Array]:
    """Return the sums over rows with weights of 1, which follow from a table's other sums."""
    one, hit, gap = (
        sums["weight"],
        sums["hits"].sum(-1),
        sums["bin_correct"] - sums["bin_confidence"],
    )
    label, pred, own = sums["labels"], sums["predictions"], sums["own_probability"]
    return {
        "unit_count": one,
        "unit_n2": one,
        "unit_n4": one,
        "unit_hit2": hit,
        "unit_hit_n": hit,
        "unit_top2": sums["bin_gap2"].sum(-1),
        "unit_top_n": gap.sum(-1),
        "unit_brier2": sums["brier2"],
        "unit_brier_n": sums["squared_error"].sum(-1),
        "unit_loss2": sums["log_loss2"],
        "unit_loss_n": sums["log_loss"],
        "unit_label2": label,
        "unit_label_n": label,
        # sum (p - y)**2 = sum p**2 - 2 sum p y + sum y
        "unit_prob2": np.maximum(sums["squared_error"] + 2.0 * own - label, 0.0),
        "unit_prob_n": sums["probability"],
        "unit_pred2": pred,
        "unit_pred_n": pred,
        "unit_prob_label": own,
        "unit_pred_label": sums["hits"],
    }
