"""Statistical verdicts on the calibration of each group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import shown
from equipoise.auditing._distributions import betainc, chi2_tail, ndtri
from equipoise.auditing._intervals._figures import debiased_ece
from equipoise.auditing._intervals._spread import from_cells
from equipoise.auditing._verdicts._words import holm, p_text
from equipoise.metrics import AuditTable, ratio

Floats = NDArray[np.float64]

LEAST_VARIANCE = 3.0
"""Neighbouring bins are merged until the variance of their number of wrong rows is this."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Statistical verdict on the calibration of a group.

    Attributes
    ----------
    word
        "calibrated": the ECE is within the tolerance, at the corrected level. "miscalibrated":
        confidence differs from accuracy, and the ECE may exceed the tolerance. Otherwise "not
        enough evidence".
    direction
        Direction of the mean gap of a miscalibrated group; "mixed" where it may be 0.
    p_value
        Of the test that confidence is accuracy in every bin, corrected for the number of groups.
    ece_bound
        Upper confidence bound of the true ECE, at the level corrected for the number of groups.
    rows
        Number of rows of the group.
    rows_needed
        Approximate number of rows that would be enough evidence, where there is not enough.
    text
        The verdict in a sentence.
    """

    word: Literal["calibrated", "miscalibrated", "not enough evidence"]
    direction: Literal["over-confident", "under-confident", "mixed", ""]
    p_value: float
    ece_bound: float
    rows: int
    rows_needed: int | None
    text: str


def verdicts_of(
    table: AuditTable, *, level: float = 0.95, tolerance: float = 0.05
) -> dict[Hashable, Verdict]:
    """Return the verdict on each group of a table."""
    rows, names = table["rows"].astype(np.int64).tolist(), map(_name, table.groups)
    raw, direction = _calibration_tests(table)
    clear = direction < 1.0 - level
    bound = _ece_bounds(table, (1.0 - level) / len(table.groups))
    gap = table["bin_confidence"].sum(-1) - table["bin_correct"].sum(-1)
    evidence = (holm(raw), bound, ratio(gap, table["weight"]), clear)
    found = zip(names, rows, *(values.tolist() for values in evidence), strict=True)
    verdicts = (_verdict(*own, level=level, tolerance=tolerance) for own in found)
    return dict(zip(table.groups, verdicts, strict=True))


def _name(group: Hashable) -> str:
    return "All rows together" if group is None else shown(group)


def _verdict(
    name: str,
    rows: int,
    p: float,
    bound: float,
    mean_gap: float,
    clear: bool,
    *,
    level: float,
    tolerance: float,
) -> Verdict:
    limit = min(bound, 1.0)
    if bound <= tolerance:
        text = f"{name}: calibrated. The ECE is at most {limit:.3f} (tolerance {tolerance:g})"
        text += f", though not 0 ({p_text(p)})." if p < 1.0 - level else "."
        return Verdict("calibrated", "", p, limit, rows, None, text)
    if p < 1.0 - level:
        direction: Literal["over-confident", "under-confident", "mixed"] = (
            "mixed" if not clear else "over-confident" if mean_gap > 0 else "under-confident"
        )
        how = (
            f"{direction} by {abs(mean_gap):.3f} on average"
            if clear
            else "over-confident in some bins, under-confident in others"
        )
        text = f"{name}: miscalibrated, {how} ({p_text(p)}). The ECE is at most {limit:.3f}."
        return Verdict("miscalibrated", direction, p, limit, rows, None, text)
    # the bound shrinks with the square root of the rows
    needed = _about(rows * (bound / tolerance) ** 2) if np.isfinite(bound) else None
    text = f"{name}: not enough evidence. The ECE may be anything up to {limit:.3f}"
    text += f"; about {needed:,} rows would be enough." if needed else ": all weights are 0."
    return Verdict("not enough evidence", "", p, limit, rows, needed, text)


def _about(value: float) -> int:
    """Round up to two digits."""
    step: int = 10 ** max(0, len(str(int(value))) - 2)
    return math.ceil(value / step) * step


def _calibration_tests(table: AuditTable) -> tuple[Floats, Floats]:
    """Return the p-value of each group's calibration, and that of its mean gap alone.

    In a calibrated model the number of wrong rows in a bin is nearly binomial. Each bin's number is
    turned into a normal score by that distribution, so that a bin of few rows is not overrated. The
    sum of squared scores detects gaps of any shape, the total number of wrong rows a common
    direction. The smaller of the two p-values counts, doubled.
    """
    n, share = _effective(table)
    sure = np.nan_to_num(ratio(table["bin_confidence"], table["bin_count"]), nan=1.0)
    wrong = n - share * table["bin_correct"]
    expected = n - share * table["bin_confidence"]
    # confidences within a bin are nearly equal; the variance of unequal ones is a little less
    variance = np.maximum(n * sure * (1.0 - sure), 0.0)
    # sums are rounded, so n - n may not be 0
    wrong, expected = (np.where(x < 1e-6 * n, 0.0, x) for x in (wrong, expected))
    low, high = _tails(wrong.sum(-1), expected.sum(-1), variance.sum(-1))
    direction = np.minimum(1.0, 2.0 * np.minimum(low, high))
    slot, slots = _slots(variance)
    merged = []
    for values in (wrong, expected, variance):
        into = np.zeros_like(values)
        np.add.at(into, (np.arange(len(values))[:, None], slot), values)
        merged.append(into)
    low, high = _tails(*merged)
    score = np.where(merged[2] > 0, ndtri(np.minimum(np.minimum(low, high), 0.5)), 0.0)
    shape = chi2_tail(slots, (score**2).sum(-1))
    both = np.minimum(1.0, 2.0 * np.minimum(shape, direction))
    return np.where(slots > 1, both, direction), direction


def _effective(table: AuditTable) -> tuple[Floats, Floats]:
    """Return the effective sample size of each bin, and its ratio to the bin's weight."""
    count, count2 = table["bin_count"], table["bin_count2"]
    return np.nan_to_num(ratio(count**2, count2)), np.nan_to_num(ratio(count, count2))


def _slots(variance: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give neighbouring bins (group, bin) of little variance the same number."""
    slot = np.zeros(variance.shape, np.int64)
    filled, at = np.zeros(len(variance)), np.zeros(len(variance), np.int64)
    for b in range(variance.shape[1]):
        slot[:, b] = at
        filled += variance[:, b]
        full = filled >= LEAST_VARIANCE
        at, filled = at + full, np.where(full, 0.0, filled)
    # bins left over at the end join the last full slot
    slots = np.maximum(at, 1)
    return np.minimum(slot, slots[:, None] - 1), slots


def _tails(wrong: Floats, expected: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return the mid-p-values of so few wrong rows, and of so many.

    They are those of the binomial distribution with this mean and variance: the mean is
    size * rate, and the variance divided by the mean is 1 - rate.
    """
    rate = np.clip(1.0 - ratio(variance, np.where(expected > 0, expected, 1.0)), 1e-9, 1.0)
    size = expected / rate
    wrong = np.where(expected > 0, np.minimum(wrong, size), wrong)

    def at_least(x: Floats) -> Floats:
        inside = (x > 0) & (x <= size)
        a, b = np.where(inside, x, 1.0), np.where(inside, size - x + 1.0, 1.0)
        return np.where(inside, betainc(a, b, rate), x <= 0)

    def at_most(x: Floats) -> Floats:
        inside = (x >= 0) & (x < size)
        a, b = np.where(inside, size - x, 1.0), np.where(inside, x + 1.0, 1.0)
        return np.where(inside, betainc(a, b, 1.0 - rate), x >= size)

    low = 0.5 * (at_most(wrong) + at_most(wrong - 1.0))
    high = 0.5 * (at_least(wrong) + at_least(wrong + 1.0))
    return low, high


def _ece_bounds(table: AuditTable, alpha: float) -> Floats:
    """Return an upper bound of each group's true ECE, with error alpha; inf without rows.

    The sum of the gaps, each times its true sign, differs from n times the true ECE by noise whose
    variance is at most that of all rows. The sum of absolute gaps is no smaller. So the observed
    ECE plus a one-sided bound of the noise bounds the true ECE.
    """
    weight = table["weight"]
    # a score bound: up to z**2 rows that happen to be right could have been wrong
    per_row = ratio(table["bin_count2"].sum(-1), weight**2)

    def bound(value: Floats, variance: Floats, alpha: float) -> Floats:
        z2 = float(ndtri(alpha)) ** 2
        extra = z2 / 2.0 * per_row
        return np.asarray(value + extra + np.sqrt(z2 * variance + extra**2))

    gap = np.abs(table["bin_correct"] - table["bin_confidence"]).sum(-1)
    plain = bound(ratio(gap, weight), ratio(table["bin_gap2"].sum(-1), weight**2), alpha)
    # the debiased ECE gives a lower bound where gaps are small, but needs alpha / 2
    value, error = debiased_ece(from_cells(table))
    debiased = bound(np.maximum(value, 0.0), error**2, alpha / 2.0)
    return np.where(weight > 0, np.fmin(plain, debiased), np.inf)
