"""Sampling variances of the means of a table's rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._distributions import ndtr
from equipoise.metrics import AuditTable, ratio

Floats = NDArray[np.float64]

RATES = {"labels": "labels", "stochastic": "probability", "deterministic": "predictions"}
"""Rates, and the sums they are the means of."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Sampling variances of the means of a table's rows; each (group, ...).

    `gap` and `class_gap` are the signed gaps, (group, bin) and (group, class, bin), as shares of
    all rows. `gap_cross` and `class_cross` are what their covariances add to the variance of the
    sum of absolute gaps, each weighted by how clear its sign is.
    """

    table: AuditTable
    rows: Floats  # effective sample size: (sum of weights)**2 / sum of squared weights
    gap: Floats
    gap_var: Floats
    gap_cross: Floats
    class_gap: Floats
    class_var: Floats
    class_cross: Floats
    class_factor: float  # variance of all classes together over that of independent ones
    scores: Mapping[str, tuple[Floats, Floats]]  # "brier", "log_loss": mean and variance
    rates: Mapping[str, tuple[Floats, Floats, Floats]]  # mean, variance, covariance with labels


def from_cells(table: AuditTable) -> Spread:
    """Return the spread that follows from the table alone."""
    k, weight = len(table.labels), table["weight"]
    n = ratio(weight**2, table["bin_count2"].sum(-1))
    per_bin, per_cell = weight[:, None], weight[:, None, None]
    gap = ratio(table["bin_correct"] - table["bin_confidence"], per_bin)
    gap_var = ratio(table["bin_gap2"], per_bin**2) - ratio(gap**2, n[:, None])
    alike = ratio(n, weight)[:, None]  # rows per weight
    null = _null(*(table[f"bin_{x}"] * alike for x in ("count", "correct", "confidence")))
    gap_null = ratio(table["bin_count2"] * null, per_bin**2)
    gap_var = _at_least(gap_var, gap, gap_null)

    # the table has squared errors of a class, but not by bin; bins are narrow, so the bin's mean
    # probability stands in for the rows' own, and all are scaled to add up to the class's
    count, hit = table["class_count"], table["class_correct"]
    p = np.nan_to_num(ratio(table["class_probability"], count))
    square = hit * (1 - p) ** 2 + (count - hit) * p**2
    scale = np.nan_to_num(ratio(table["squared_error"], square.sum(-1)), posinf=1.0)
    class_gap = ratio(hit - table["class_probability"], per_cell)
    many = n[:, None, None]
    class_var = ratio(ratio(square * scale[..., None], per_cell) - class_gap**2, many)
    null = _null(*(x * alike[..., None] for x in (count, hit, table["class_probability"])))
    class_null = ratio(ratio(count * null, per_cell), many)
    class_var = _at_least(class_var, class_gap, class_null)

    # the errors of a row's classes add up to 0: two mirror each other, so the variance of the sum
    # is twice that of independent classes; with more their correlation is about -1 / (K - 1), and
    # its square counts, once for each of the K - 1 others
    together = 1 + 1 / (k - 1)
    return Spread(
        table=table,
        rows=n,
        gap=gap,
        gap_var=gap_var,
        gap_cross=_cross(gap, gap_var, n),
        class_gap=class_gap,
        class_var=class_var,
        class_cross=_cross(class_gap, class_var, n[:, None]).sum(-1) * together,
        class_factor=together,
        scores=_scores(table, n),
        rates=_rates(table, n),
    )


def _scores(table: AuditTable, n: Floats) -> dict[str, tuple[Floats, Floats]]:
    found, weight = {}, table["weight"]
    half = 2.0 if len(table.labels) == 2 else 1.0
    for name, total, second, unit in (
        ("brier", table["squared_error"].sum(-1), "brier2", half),
        ("log_loss", table["log_loss"], "log_loss2", 1.0),
    ):
        mean = ratio(total, weight * unit)
        square = ratio(table[second], (weight * unit) ** 2)
        # one row says nothing about how much rows vary
        var = np.where(n > 1, ratio((square - ratio(mean**2, n)) * n, n - 1), np.inf)
        found[name] = (mean, np.maximum(var, 0.0))
    return found


def _rates(table: AuditTable, n: Floats) -> dict[str, tuple[Floats, Floats, Floats]]:
    weight, n = table["weight"][:, None], n[:, None]
    rate = {kind: ratio(table[name], weight) for kind, name in RATES.items()}
    both = {"labels": rate["labels"], "deterministic": ratio(table["hits"], weight)}
    # a label that no row has may still be rare: one more row with it and one without
    near = {kind: (rate[kind] * n + 1) / (n + 2) for kind in both}
    var = {kind: ratio(near[kind] * (1 - near[kind]), n) for kind in both}
    both["stochastic"] = ratio(table["own_probability"], weight)
    # (p - y)**2 = p**2 - 2 p y + y
    square = table["squared_error"] + 2 * table["own_probability"] - table["labels"]
    p = rate["stochastic"]
    # one row shows no variance; p - p**2 is the largest possible
    var["stochastic"] = np.where(n > 1, ratio(ratio(square, weight) - p**2, n), p - p**2)
    return {
        kind: (
            rate[kind],
            np.maximum(var[kind], 0.0),
            ratio(both[kind] - rate[kind] * rate["labels"], n),
        )
        for kind in RATES
    }


def _null(count: Floats, hit: Floats, confidence: Floats) -> Floats:
    """Return the variance of a row of a calibrated model, or that of its bin if it is larger.

    The bin counts one more row, half right: even a confidence of 1 may err.
    """
    sure = ratio(confidence, count)
    often = (hit + 0.5) / (count + 1)
    return np.nan_to_num(np.maximum(sure * (1 - sure), often * (1 - often)))


def _at_least(var: Floats, gap: Floats, null: Floats) -> Floats:
    """Raise variances of gaps to those of a calibrated model, where the model may be calibrated.

    Thirty rows of confidence .99 that are all right show almost no variance, but have some.
    """
    var = np.nan_to_num(np.maximum(var, 0.0))
    larger = np.maximum(var, null)
    return np.where(gap**2 <= 4 * larger, larger, var)


def _clear(gap: Floats, var: Floats) -> Floats:
    """Return the sign of each gap, shrunk to 0 where it is unclear."""
    z = ratio(np.abs(gap), np.sqrt(var))
    return np.asarray(np.sign(gap) * (2 * ndtr(np.nan_to_num(z, posinf=9.0)) - 1))


def _cross(gap: Floats, var: Floats, n: Floats) -> Floats:
    # a row is in one bin only, so the covariance of two bins is -v_b v_c / n
    signed = _clear(gap, var) * gap
    return ratio((signed**2).sum(-1) - signed.sum(-1) ** 2, n)
