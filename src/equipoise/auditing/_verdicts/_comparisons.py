"""Differences in calibration between groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import shown
from equipoise.auditing._distributions import ndtr, ndtri
from equipoise.auditing._verdicts._words import holm, p_text
from equipoise.metrics import AuditTable, pairs_of, ratio

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Difference in calibration between two groups, by the debiased squared ECE.

    Attributes
    ----------
    group, other
        The groups compared.
    difference
        Difference of their debiased squared ECEs; positive where `group` is worse calibrated.
    low, high
        Interval of the difference, at the level corrected for the number of comparisons.
    p_value
        Of the test that both are equal, corrected for the number of comparisons.
    text
        The finding in a sentence.
    """

    group: Hashable
    other: Hashable
    difference: float
    low: float
    high: float
    p_value: float
    text: str


def comparisons_of(
    table: AuditTable, *, reference_group: Any = None, level: float = 0.95
) -> tuple[Comparison, ...]:
    """Compare each group with the reference; with "all", each pair once."""
    pairs = [
        (g, ref)
        for g, ref in pairs_of(table.groups, reference_group)
        if g > ref or reference_group != "all" or "all" in table.groups
    ]
    if not pairs:
        return ()
    own, ref = (np.array(side) for side in zip(*pairs, strict=True))
    value, noise, signal, per_square = _squared_gaps(table)
    # under the null both groups have the same square, so both estimate its variance: the smaller
    # group's estimate alone is often too low
    precision = ratio(np.ones_like(noise), noise + signal)
    with np.errstate(invalid="ignore"):
        common = ratio(
            (precision * value)[own] + (precision * value)[ref], precision[own] + precision[ref]
        )
    common = np.nan_to_num(np.maximum(common, 0.0), nan=0.0, posinf=0.0)
    variance = sum(
        noise[side] + np.maximum(signal[side], per_square[side] * common) for side in (own, ref)
    )
    difference, error = value[own] - value[ref], np.sqrt(variance)
    known = np.isfinite(difference) & (error > 0)
    z = np.where(known, difference / np.where(known, error, 1.0), 0.0)
    p = holm(2.0 * ndtr(-np.abs(z)))
    half = np.where(known, -ndtri((1.0 - level) / (2 * len(pairs))) * error, np.nan)
    return tuple(
        Comparison(
            table.groups[g],
            table.groups[r],
            float(difference[i]),
            float(difference[i] - half[i]),
            float(difference[i] + half[i]),
            float(p[i]),
            _compared(shown(table.groups[g]), shown(table.groups[r]), z[i], p[i], 1.0 - level),
        )
        for i, (g, r) in enumerate(pairs)
    )


def _compared(group: str, other: str, z: float, p: float, alpha: float) -> str:
    if p >= alpha:
        return f"{group} and {other}: no evidence that one is better calibrated ({p_text(p)})."
    return f"{group} is {'worse' if z > 0 else 'better'} calibrated than {other} ({p_text(p)})."


def _squared_gaps(table: AuditTable) -> tuple[Floats, Floats, Floats, Floats]:
    """Return each group's debiased squared ECE and the parts of its variance.

    These are the variance of a calibrated group, the part that the square itself adds, and that
    part per unit of the square.
    """
    count, gap2 = table["bin_count"], table["bin_gap2"]
    pairs = count**2 - table["bin_count2"]
    several = pairs > 1e-12 * count**2
    pairs = np.where(several, pairs, 1.0)
    share = ratio(count, table["weight"][:, None])
    gap = table["bin_correct"] - table["bin_confidence"]
    square = np.where(several, (gap**2 - gap2) / pairs, 0.0)
    value = np.where(several.any(-1), (share * square).sum(-1), np.nan)
    noise = np.where(several, 2.0 * (share * gap2 / pairs) ** 2, 0.0).sum(-1)
    each = 4.0 * share**2 * np.nan_to_num(ratio(gap2, count**2)) * several
    signal = (each * np.maximum(square, 0.0)).sum(-1)
    return value, noise, signal, each.sum(-1)
