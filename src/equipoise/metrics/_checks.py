"""What holds for the sums of any rows; a table that breaks it is of no rows at all.

A rule is a phrase that completes "group x has", and an array (group, ..) that is True where the
group does not have it. Sums are compared in their natural unit as float64, with room for the
rounding of fixed point and, where rows have weights, of adding up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import ROW_SUM_TOLERANCE, shown
from equipoise.metrics._sums import SUMS
from equipoise.metrics._units import FEATURES, Array

if TYPE_CHECKING:
    from equipoise.metrics._table import AuditTable

Rule = tuple[str, NDArray[np.bool_]]

FIXED = 2.0**-31
"""Room for rounding to fixed point, relative to the weight of the rows; each is off by 2**-33."""

FIXED_LOSS = 2.0**-16
"""The same for squares of the log-loss, whose unit is 2**-16."""

ADDED = 2e-15
"""Room for adding up floats, relative to their sum and per row: twenty times the worst case."""

LARGEST = {"brier": 2.01, "loss": 745.0}
"""Largest value of a row; other features are within 0..1, or -1..1."""


def refuse_impossible(table: AuditTable) -> None:
    """Raise ValueError if no rows have these sums, and name the first contradiction."""
    with np.errstate(all="ignore"):  # what overflows is not within any bound
        for phrase, holds in _rules(table):
            if not holds.all():
                at = int(np.argmin(holds.reshape(len(holds), -1).all(axis=1)))
                group = table.groups[at]
                who = "it" if group is None else f"group {shown(group)!r}"
                raise ValueError(f"damaged audit table: {who} has {phrase}")


def _rules(table: AuditTable) -> Iterator[Rule]:
    sums = _Sums(table)
    blocks = {SUMS[name].block for name in table.sums}
    yield from _of_rows(sums)
    for block, rules in (
        ({"labels"}, _of_labels),
        ({"rates"}, _of_rates),
        ({"decisions"}, _of_decisions),
        ({"hits", "labels", "decisions"}, _of_hits),
        ({"bins"}, _of_bins),
        ({"bins", "rates"}, _of_confidence),
        ({"classwise"}, _of_classes),
        ({"classwise", "labels", "rates"}, _of_class_totals),
        ({"spread"}, _of_spread),
        ({"scores"}, _of_scores),
        ({"scores", "spread"}, _of_squares),
        ({"scores", "moments", "labels", "rates"}, _of_moments),
        ({"units"}, _of_units),
    ):
        if block <= blocks:
            yield from rules(sums)
    if "units" in blocks and not table.clustered:
        yield from _of_single_rows(sums)
    if table.pooled_units is not None:
        yield from _of_pooled(sums)


class _Sums:
    """The sums of a table, and comparisons with room for rounding."""

    def __init__(self, table: AuditTable) -> None:
        self.table = table
        self.rows, self.weight = table["rows"], table["weight"]
        self.classes, self.bins = len(table.labels), table.n_bins
        self.low = np.arange(self.bins) / self.bins
        self.high = np.arange(1, self.bins + 1) / self.bins

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.table[name]

    def least(
        self, small: Array, large: Array, scale: Array, fixed: float = FIXED
    ) -> NDArray[np.bool_]:
        """Tell where one is at most the other, but for rounding; NaN is not."""
        small, large, scale = np.broadcast_arrays(small, large, scale)
        adding = self._of_groups(1e-12 + ADDED * self.rows, scale.ndim)
        room = fixed * scale + adding * (np.abs(small) + np.abs(large) + scale)
        return np.asarray(small <= large + room + 1e-290)  # squares of tiny weights vanish

    def same(
        self, one: Array, other: Array, scale: Array, fixed: float = FIXED
    ) -> NDArray[np.bool_]:
        """Tell where both are the same, but for rounding."""
        return self.least(one, other, scale, fixed) & self.least(other, one, scale, fixed)

    def same_count(self, one: Array, other: Array) -> NDArray[np.bool_]:
        """Tell where numbers of rows are the same: exactly, or as weights but for rounding."""
        return self.same(one, other, other, 0.0) if self.table.weighted else one == other

    def count_within(self, small: Array, large: Array) -> NDArray[np.bool_]:
        """Tell where a number of rows is at most another."""
        return self.least(small, large, large, 0.0) if self.table.weighted else small <= large

    def cauchy(
        self, mean: Array, count: Array, squares: Array, scale: Array, fixed: float = FIXED
    ) -> NDArray[np.bool_]:
        """Tell where (sum of x)**2 <= (number of x) * (sum of x**2)."""
        return self.least(mean * mean, count * squares, scale, 4.0 * fixed)

    def _of_groups(self, values: Array, axes: int) -> Array:
        return values.reshape(-1, *(1,) * (axes - 1))


def _of_rows(s: _Sums) -> Iterator[Rule]:
    yield "more rows than can be counted", s.rows < 2.0**53
    if s.table.weighted:
        yield "a weight without rows", (s.rows > 0) | (s.weight == 0)
    else:
        yield "a weight that is not its number of rows", s.weight == s.rows


def _of_labels(s: _Sums) -> Iterator[Rule]:
    total = s["labels"].sum(-1)
    yield "labels that do not add up to its rows", s.same_count(total, s.weight)


def _of_rates(s: _Sums) -> Iterator[Rule]:
    each, weight = s["probability"], s.weight[:, None]
    yield "a mean probability above 1", s.least(each, weight, weight)
    apart = np.abs(each.sum(-1) - s.weight)
    most = ROW_SUM_TOLERANCE * s.weight
    yield "probabilities that do not sum to 1", s.least(apart, most, s.classes * s.weight)


def _of_decisions(s: _Sums) -> Iterator[Rule]:
    total = s["predictions"].sum(-1)
    yield "predictions that do not add up to its rows", s.same_count(total, s.weight)


def _of_hits(s: _Sums) -> Iterator[Rule]:
    hits, labels, decisions, weight = s["hits"], s["labels"], s["predictions"], s.weight[:, None]
    yield "more hits than labels", s.count_within(hits, labels)
    yield "more hits than predictions", s.count_within(hits, decisions)
    # rows with this label or this prediction
    yield "too few hits for its rows", s.count_within(labels + decisions - hits, weight)


def _of_bins(s: _Sums) -> Iterator[Rule]:
    count, correct, confidence = s["bin_count"], s["bin_correct"], s["bin_confidence"]
    yield "bins that do not add up to its rows", s.same_count(count.sum(-1), s.weight)
    yield "more correct rows in a bin than rows", s.count_within(correct, count)
    # the largest of K probabilities is at least their mean
    low = np.maximum(s.low, (1.0 - ROW_SUM_TOLERANCE) / s.classes)
    yield "a confidence above that of its bin", s.least(confidence, count * s.high, count)
    yield "a confidence below that of its bin", s.least(count * low, confidence, count)


def _of_confidence(s: _Sums) -> Iterator[Rule]:
    confidence, each = s["bin_confidence"].sum(-1), s["probability"]
    weight = s.classes * s.weight
    least = s.least(each, confidence[:, None], weight[:, None])
    yield "a confidence below a class's probability", least
    yield "a confidence above all probabilities", s.least(confidence, each.sum(-1), weight)


def _of_classes(s: _Sums) -> Iterator[Rule]:
    count, correct, p = s["class_count"], s["class_correct"], s["class_probability"]
    total = s.same_count(count.sum(-1), np.broadcast_to(s.weight[:, None], count.shape[:-1]))
    yield "bins of a class that do not add up to its rows", total
    yield "more rows of a class in a bin than rows", s.count_within(correct, count)
    yield "a class's probability above that of its bin", s.least(p, count * s.high, count)
    yield "a class's probability below that of its bin", s.least(count * s.low, p, count)


def _of_class_totals(s: _Sums) -> Iterator[Rule]:
    labels, weight = s["class_correct"].sum(-1), s.weight[:, None]
    yield "bins of a class that do not add up to its labels", s.same_count(labels, s["labels"])
    p = s.same(s["class_probability"].sum(-1), s["probability"], weight)
    yield "bins of a class that do not add up to its probability", p


def _of_spread(s: _Sums) -> Iterator[Rule]:
    weighted = s.table.weighted
    count, square = s["bin_count"], s["bin_count2"]
    if weighted:
        rows = s.rows[:, None]
        yield "squared weights above those of its bins", s.least(square, count**2, square)
        yield "squared weights below those of its bins", s.cauchy(count, rows, square, square)
        each = s["class_count2"]
        yield (
            "squared weights that differ between classes",
            s.same(each.sum(-1), square.sum(-1)[:, None], square.sum(-1)[:, None]),
        )
        classes = (s["class_gap1"], each, s["class_gap2"])
        bins = (s["bin_gap1"], square, s["bin_gap2"])
    else:
        yield "squared weights that are not its rows", square == count
        gap = s["class_correct"] - s["class_probability"]
        classes = (gap, s["class_count"], s["class_gap2"])
        bins = (s["bin_correct"] - s["bin_confidence"], count, s["bin_gap2"])
    for what, (gap, n, gap2) in {"its bins": bins, "a class's bins": classes}.items():
        yield f"gaps above 1 in {what}", s.least(np.abs(gap), n, n) & s.least(gap2, n, n)
        yield f"squared gaps below the gaps of {what}", s.cauchy(gap, n, gap2, n * n)


def _of_scores(s: _Sums) -> Iterator[Rule]:
    impossible, loss = s["impossible"], s["log_loss"]
    weight = s.weight[:, None]
    yield "squared errors above 1", s.least(s["squared_error"], weight, weight)
    yield "more labels of probability 0 than rows", s.count_within(impossible, s.weight)
    most = LARGEST["loss"] * np.maximum(s.weight - impossible, 0.0)
    yield "a log-loss beyond that of any row", s.least(loss, most, s.weight)


def _of_squares(s: _Sums) -> Iterator[Rule]:
    if not s.table.weighted:
        found = s["class_gap2"].sum(-1)
        same = s.same(s["squared_error"], found, s.weight[:, None])
        yield "squared errors that its bins do not add up to", same


def _of_moments(s: _Sums) -> Iterator[Rule]:
    own, labels, p, error = (
        s[name] for name in ("own_probability", "labels", "probability", "squared_error")
    )
    each, total = s.weight[:, None], s.classes * s.weight
    yield "a label's probability above 1", s.least(own, labels, each)
    yield "a label's probability above its class's", s.least(own, p, each)
    yield "a label's probability that is too small", s.least(labels + p - own, each, each)
    # sum (p - y)**2 = sum p**2 - 2 sum p y + sum y
    square = error + 2.0 * own - labels
    yield "squared errors above those of its probabilities", s.least(square, p, 4.0 * each)
    least = s.cauchy(p, each, square, 4.0 * each * each)
    yield "squared errors below those of its probabilities", least
    possible = s.weight - s["impossible"]
    loss = s["log_loss"]
    # -log p >= 1 - p
    yield "a log-loss below that of its probabilities", s.least(possible - own.sum(-1), loss, total)
    yield "labels of probability 0 with a probability", s.least(own.sum(-1), possible, total)
    brier, scale = error.sum(-1), total * total
    yield "squared Brier scores above its Brier score", s.least(s["brier2"], brier**2, 4.0 * scale)
    if not s.table.weighted:
        within = s.least(s["brier2"], LARGEST["brier"] * brier, 4.0 * total)
        yield "squared Brier scores above any row's", within
    yield (
        "squared Brier scores below its Brier score",
        s.cauchy(brier, s.rows, s["brier2"], 4.0 * scale + s.rows * s.weight),
    )
    losses, scale = s["log_loss2"], s.weight * np.maximum(s.rows, s.weight)
    yield "squared log-losses above its log-loss", s.least(losses, loss**2, scale, FIXED_LOSS)
    least = s.cauchy(loss, s.rows, losses, scale, FIXED_LOSS)
    yield "squared log-losses below its log-loss", least


def _totals(s: _Sums) -> dict[str, Array]:
    """Return the sum of each feature over all units."""
    return {
        "hit": s["hits"].sum(-1),
        "top": (s["bin_correct"] - s["bin_confidence"]).sum(-1),
        "brier": s["squared_error"].sum(-1),
        "loss": s["log_loss"],
        "label": s["labels"],
        "prob": s["probability"],
        "pred": s["predictions"],
    }


def _of_units(s: _Sums) -> Iterator[Rule]:
    count, n2, n4 = s["unit_count"], s["unit_n2"], s["unit_n4"]
    whole = (count == np.rint(count)) & (count <= s.rows) & ((count > 0) | (s.rows == 0))
    yield "a number of units that is not one of its rows", whole
    yield "squared totals above its weight", s.least(n2, s.weight**2, n2)
    yield "squared totals below its weight", s.cauchy(s.weight, count, n2, n2)
    yield "fourth powers above its squared totals", s.least(n4, n2**2, n4)
    yield "fourth powers below its squared totals", s.cauchy(n2, count, n4, n4)
    for name, total in _totals(s).items():
        square, cross = s[f"unit_{name}2"], s[f"unit_{name}_n"]
        fixed = FIXED_LOSS if name == "loss" else FIXED
        units, own = (n2[:, None], count[:, None]) if FEATURES[name] else (n2, count)
        most, scale = LARGEST.get(name, 1.0), 4.0 * s.classes * units
        within = s.least(np.abs(cross), most * units, scale, fixed)
        yield f"products of {name} above any row's", within
        within = s.least(square, most * (units if name == "top" else cross), scale, fixed)
        yield f"squares of {name} above any row's", within
        least = s.cauchy(cross, units, square, most * scale * units, fixed)
        yield f"squares of {name} below its products", least
        least = s.cauchy(total, own, square, most * scale * own, fixed)
        yield f"squares of {name} below its sum", least
    for name in ("label", "pred", "prob"):
        apart = np.abs(s[f"unit_{name}_n"].sum(-1) - n2)
        most_apart = (ROW_SUM_TOLERANCE if name == "prob" else 0.0) * n2
        yield f"products of {name} that miss its totals", s.least(apart, most_apart, s.classes * n2)
    for name in ("prob", "pred"):
        both = s[f"unit_{name}_label"]
        most_both = np.minimum(s[f"unit_{name}_n"], s["unit_label_n"])
        yield f"products of {name} and label above any row's", s.least(both, most_both, n2[:, None])


def _of_single_rows(s: _Sums) -> Iterator[Rule]:
    """Check units that are rows: their squares are among the other sums."""
    yield "a number of units that is not its rows", s["unit_count"] == s.rows
    n2 = s["unit_n2"]
    known = {
        "unit_n2": s["bin_count2"].sum(-1),
        "unit_top2": s["bin_gap2"].sum(-1),
        "unit_top_n": s["bin_gap1"].sum(-1),
        "unit_brier2": s["brier2"],
        "unit_loss2": s["log_loss2"],
    }
    for name, value in known.items():
        yield f"{name} that is not the sum of its rows", s.same(s[name], value, n2, FIXED_LOSS)
    for name in ("hit", "label", "pred"):  # 0 or 1 in each row
        square, cross = s[f"unit_{name}2"], s[f"unit_{name}_n"]
        yield f"squares of {name} that are not its products", s.same(square, cross, cross)


def _of_pooled(s: _Sums) -> Iterator[Rule]:
    """Check the units of all groups together: a cluster's total is at least that in a group."""
    pooled = dataclasses.replace(s.table.pooled(), pooled_units=None)
    for phrase, holds in _rules(pooled):
        yield f"{phrase} where all groups are one", np.broadcast_to(holds.all(), s.rows.shape)
    count = s["unit_count"]
    own = float(pooled["unit_count"][0])
    within = np.asarray(count.max() <= own <= count.sum())
    yield "more or fewer clusters than its groups", np.broadcast_to(within, s.rows.shape)
    n2 = pooled["unit_n2"]
    least = _Sums(pooled).least(s["unit_n2"].sum(0, keepdims=True), n2, n2)
    yield "squared totals of clusters below those of groups", np.broadcast_to(least, s.rows.shape)
