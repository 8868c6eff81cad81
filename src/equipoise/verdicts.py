"""What the figures are evidence for: verdicts on calibration, comparisons of groups, and PE.

All of it follows from the table's sums, in closed form, and is corrected for the number of groups
that are looked at.
"""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Hashable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaincc, ndtr, ndtri

from equipoise.intervals import Interval, Intervals, debiased_ece
from equipoise.intervals.spread import from_cells
from equipoise.rates import GroupRates, data_rates, pairs_of, rate_ratios, ratio
from equipoise.table import AuditTable

Floats = NDArray[np.float64]

KINDS = ("stochastic", "deterministic")

LEAST_VARIANCE = 3.0
"""Neighbouring bins are tested together until the variance of their wrong rows is this."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the confidence in a group's rows is what it says.

    Attributes
    ----------
    word
        "calibrated": the ECE is within the tolerance, at the corrected level. "miscalibrated":
        confidence is not accuracy, and the ECE may be beyond the tolerance. Otherwise "not enough
        evidence".
    direction
        Of a miscalibrated group; "mixed" where the mean gap may be 0.
    p_value
        Of a test that confidence equals accuracy in every bin, corrected for the number of groups.
    ece_bound
        What the true ECE is below, at the level corrected for the number of groups.
    rows
        Behind the verdict.
    rows_needed
        About how many would be enough evidence, where there is not; None also without any rows.
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


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Whether one group is as calibrated as another, by the debiased squared ECE.

    Attributes
    ----------
    group, other
        The groups compared.
    difference
        Of their debiased squared ECEs; above 0 where `group` is the worse calibrated.
    low, high
        Interval of the difference, at the level corrected for the number of comparisons.
    p_value
        Of a test that both are equal, corrected for the number of comparisons.
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


@dataclasses.dataclass(frozen=True)
class PeVerdict:
    """What the model does to the ratio of the groups' rates.

    Attributes
    ----------
    value, interval
        Of proportional equality.
    oracle
        What the labels themselves score as decisions; 0 where the rates are their own.
    group, reference, label
        What drives it: the pair of groups and the class with the largest gap.
    data_ratio, model_ratio
        The rate of the class in `group` divided by that in `reference`, in data and model.
    p_value
        Of a test that data and model have the same ratio, corrected for the number of pairs and
        classes; of the largest gap that is clear, or if none is, of the largest.
    word
        Of the same gap. "amplifies": the model's ratio is farther from 1; "dampens": nearer;
        "reverses": on the other side of 1.
    text
        The finding in a sentence.
    """

    value: float
    interval: Interval | None
    oracle: float
    group: Hashable
    reference: Hashable
    label: Hashable
    data_ratio: float
    model_ratio: float
    p_value: float
    word: Literal["amplifies", "dampens", "reverses", "no evidence", "undefined"]
    text: str


# --- words -----------------------------------------------------------------------------------


def group_name(group: Hashable) -> str:
    """Return how a group is shown: its value, or its values joined."""
    return ", ".join(str(v) for v in group) if isinstance(group, tuple) else str(group)


def shown(group: Hashable) -> str:
    """Return a group's name on one line: what would move the cursor or hide text is escaped."""
    name = group_name(group)
    if name.isprintable():
        return name
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c)[0] in "CZ" and c != " "
        else c
        for c in name
    )


def p_text(p: float) -> str:
    """Return a p-value as it stands in a sentence."""
    if p < 1e-4:
        return "p < 0.0001"
    return f"p = {p:.1g}" if p < 1e-3 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


# --- calibration -----------------------------------------------------------------------------


def verdicts_of(
    table: AuditTable, *, level: float = 0.95, tolerance: float = 0.05
) -> dict[Hashable, Verdict]:
    """Return the verdict on each group of a table."""
    rows = table["rows"].astype(np.int64)
    raw, direction = _calibration_tests(table)
    p = holm(raw)
    bound = _ece_bounds(table, (1.0 - level) / len(table.groups))
    mean_gap = ratio(
        table["bin_confidence"].sum(-1) - table["bin_correct"].sum(-1), table["weight"]
    )
    return {
        g: _verdict(
            "All rows together" if g is None else shown(g),
            int(rows[i]),
            float(p[i]),
            float(bound[i]),
            float(mean_gap[i]),
            clear=bool(direction[i] < 1.0 - level),
            level=level,
            tolerance=tolerance,
        )
        for i, g in enumerate(table.groups)
    }


def _verdict(
    name: str,
    rows: int,
    p: float,
    bound: float,
    mean_gap: float,
    *,
    clear: bool,
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
    text += f"; about {needed:,} rows would suffice." if needed else ": no row has weight."
    return Verdict("not enough evidence", "", p, limit, rows, needed, text)


def _about(value: float) -> int:
    """Round up to two digits."""
    step: int = 10 ** max(0, len(str(int(value))) - 2)
    return math.ceil(value / step) * step


def holm(p: Floats) -> Floats:
    """Correct p-values for their number: none is wrong below alpha but with chance alpha."""
    order = np.argsort(p, kind="stable")
    factor = np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factor * p[order]))
    return corrected


def _calibration_tests(table: AuditTable) -> tuple[Floats, Floats]:
    """Return the p-value of each group's calibration, and that of its mean gap alone.

    Given the confidences of a calibrated model, the number of wrong rows in a bin is nearly
    binomial. Each bin's number becomes a normal score by that distribution, so that few rows
    claim no more than they can; the sum of their squares finds gaps of any shape, the number of
    all wrong rows finds a common direction, and the better of the two counts, at twice its p.
    """
    n, share = _effective(table)
    sure = np.nan_to_num(ratio(table["bin_confidence"], table["bin_count"]), nan=1.0)
    wrong = n - share * table["bin_correct"]
    expected = n - share * table["bin_confidence"]
    # confidences within a bin are nearly equal; the variance of unequal ones is a little less
    variance = np.maximum(n * sure * (1.0 - sure), 0.0)
    # sums are rounded: what is left of n - n is not a row
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
    shape = gammaincc(slots / 2.0, (score**2).sum(-1) / 2.0)
    both = np.minimum(1.0, 2.0 * np.minimum(shape, direction))
    return np.where(slots > 1, both, direction), direction


def _effective(table: AuditTable) -> tuple[Floats, Floats]:
    """Return as many equal rows per bin as its weighted ones are worth, and what one weighs."""
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
    # what is left over at the end joins the last that is full
    slots = np.maximum(at, 1)
    return np.minimum(slot, slots[:, None] - 1), slots


def _tails(wrong: Floats, expected: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return the chance of so few wrong rows, and of so many, each with half of the equal case.

    By the binomial distribution of the same mean and variance: size * rate is the mean, 1 - rate
    the variance for each expected.
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
    """Return what each group's true ECE is below, but with chance alpha; inf without rows.

    With the true signs of the gaps, the sum of the signed gaps differs from n times the true ECE
    by noise whose variance is at most that of all rows; and the sum of the absolute gaps is no
    less. So the ECE that was found, plus a one-sided bound of the noise, is a bound for any truth.
    """
    weight = table["weight"]
    # a score bound: rows that happen to be right could have been wrong, up to z**2 of them
    per_row = ratio(table["bin_count2"].sum(-1), weight**2)

    def bound(value: Floats, variance: Floats, alpha: float) -> Floats:
        z2 = float(ndtri(alpha)) ** 2
        extra = z2 / 2.0 * per_row
        return np.asarray(value + extra + np.sqrt(z2 * variance + extra**2))

    gap = np.abs(table["bin_correct"] - table["bin_confidence"]).sum(-1)
    plain = bound(ratio(gap, weight), ratio(table["bin_gap2"].sum(-1), weight**2), alpha)
    # without the bias of the ECE it is lower where gaps are small, but holds at half of alpha only
    value, error = debiased_ece(from_cells(table))
    debiased = bound(np.maximum(value, 0.0), error**2, alpha / 2.0)
    return np.where(weight > 0, np.fmin(plain, debiased), np.inf)


# --- one group beside another ----------------------------------------------------------------


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
    # equal groups share a square, so its own noise is judged by both: the smaller group's estimate
    # alone would often be low, and its variance with it
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
    """Return each group's debiased squared ECE, and its variance in parts.

    The variance that a calibrated group has too; that which comes with the square itself; and how
    much of that there is for each unit of the square.
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


# --- proportional equality -------------------------------------------------------------------


def pe_verdicts_of(
    table: AuditTable,
    *,
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    reference_group: Any = None,
    intervals: Intervals | None = None,
    level: float = 0.95,
) -> dict[str, PeVerdict]:
    """Return what drives proportional equality, by kind."""
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    pairs = pairs_of(table.groups, reference_group)
    ends = {} if intervals is None else intervals.proportional_equality
    if not pairs:
        text = "Proportional equality compares groups, and there is only one."
        nan, none = float("nan"), None
        nothing = PeVerdict(nan, None, nan, none, none, none, nan, nan, nan, "undefined", text)
        return dict.fromkeys(KINDS, nothing)
    data = data_rates(table, rates)
    oracle = 0.0 if rates is None else _label_score(table, data, pairs)
    return {
        kind: _pe_verdict(
            table, data, pairs, kind, ends.get(kind), oracle, fixed=rates is not None, level=level
        )
        for kind in KINDS
    }


def _label_score(table: AuditTable, data: Floats, pairs: list[tuple[int, int]]) -> float:
    """Return the proportional equality of decisions that are always right."""
    right = dataclasses.replace(table, sums={**table.sums, "predictions": table.sums["labels"]})
    gap = _gaps(*rate_ratios(right, data, pairs, "deterministic", "group-ratio"))
    return float(np.fmax.reduce(gap, axis=None))


def _gaps(first: Floats, second: Floats) -> Floats:
    # inf - inf and 0/0 are nan: such a class is left out, as in the metric
    with np.errstate(invalid="ignore"):
        return np.abs(first - second)


def _pe_verdict(
    table: AuditTable,
    data: Floats,
    pairs: list[tuple[int, int]],
    kind: str,
    interval: Interval | None,
    oracle: float,
    *,
    fixed: bool,
    level: float,
) -> PeVerdict:
    first, second = rate_ratios(table, data, pairs, kind, "group-ratio")
    gap = _gaps(first, second)
    at = int(np.argmax(np.where(np.isnan(gap), -1.0, gap)))
    (pair, k), value = divmod(at, len(table.labels)), float(gap.flat[at])
    names = table.groups[pairs[pair][0]], table.groups[pairs[pair][1]], table.labels[k]
    ratios = float(first[pair, k]), float(second[pair, k])
    driver = f"Driven by {_where(table, pairs[pair], k)}: "
    if not np.isfinite(value):
        text = (
            "No class has rates in two groups that can be compared."
            if np.isnan(value)
            else f"{driver}a ratio with 0 in it."
        )
        p = float("nan")
        return PeVerdict(value, interval, oracle, *names, *ratios, p, "undefined", text)
    p_values = _ratio_tests(table, data, first, second, pairs, kind, fixed=fixed)
    driver += f"ratio {ratios[0]:.3f} in the data, {ratios[1]:.3f} in the model; "
    clear = np.where(p_values < 1.0 - level, gap, -1.0)
    if clear.max() < 0:
        p = float(p_values[pair, k])
        text = f"{driver}no evidence that the model changes it ({p_text(p)})."
        return PeVerdict(value, interval, oracle, *names, *ratios, p, "no evidence", text)
    judged, c = divmod(int(np.argmax(clear)), len(table.labels))
    a, b, p = (float(v[judged, c]) for v in (first, second, p_values))
    word = _change(table, data, kind, pairs[judged], c, a, b, level)
    what = f"the model {word} the difference ({p_text(p)})."
    if (judged, c) == (pair, k):
        text = driver + what
    else:
        where = _where(table, pairs[judged], c)
        text = f"{driver}not clear. Clear is {where}: {a:.3f} and {b:.3f}; {what}"
    return PeVerdict(value, interval, oracle, *names, *ratios, p, word, text)


def _where(table: AuditTable, pair: tuple[int, int], k: int) -> str:
    group, reference = (shown(table.groups[i]) for i in pair)
    return f"class {shown(table.labels[k])} of {group} against {reference}"


def _ratio_tests(
    table: AuditTable,
    data: Floats,
    first: Floats,
    second: Floats,
    pairs: list[tuple[int, int]],
    kind: str,
    *,
    fixed: bool,
) -> Floats:
    """Return the corrected p-value of each pair and class: data and model have the same ratio."""
    own, ref = (list(side) for side in zip(*pairs, strict=True))
    variance = _log_variance(table, data, kind, fixed=fixed)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (np.log(second) - np.log(first)) / np.sqrt(variance[own] + variance[ref])
    # a pair counts once, whichever of the two is the reference
    looks = len({frozenset(pair) for pair in pairs}) * len(table.labels)
    p = np.minimum(1.0, looks * 2.0 * ndtr(-np.abs(z)))
    return np.where(np.isnan(z), 1.0, p)


def _change(
    table: AuditTable,
    data: Floats,
    kind: str,
    pair: tuple[int, int],
    k: int,
    before: float,
    after: float,
    level: float,
) -> Literal["amplifies", "dampens", "reverses"]:
    """Return what the model does to a ratio that it changes."""
    with np.errstate(divide="ignore"):
        a, b = np.log(before), np.log(after)
    if a * b < 0:
        # only a ratio that is clearly beyond 1 is on the other side of it
        error = np.sqrt(_log_variance(table, data, kind, fixed=True)[list(pair), k].sum())
        if 2.0 * ndtr(-ratio(np.abs(b), error)) < 1.0 - level:
            return "reverses"
    return "amplifies" if abs(b) > abs(a) else "dampens"


def _log_variance(table: AuditTable, data: Floats, kind: str, *, fixed: bool) -> Floats:
    """Return the variance of log(model's rate), or without fixed rates of log(model's / data's).

    To first order the latter is the mean of p / q - y / r over rows, whose mean is 0.
    """
    weight = table["weight"][:, None]
    n = ratio(weight**2, table["bin_count2"].sum(-1)[:, None])
    model = ratio(table["probability" if kind == "stochastic" else "predictions"], weight)
    square, both = model, np.full_like(model, np.nan)
    if kind == "deterministic":
        both = ratio(table["hits"], weight)
    elif "own_probability" in table.sums:
        own = table["own_probability"]
        square = ratio(table["squared_error"] + 2.0 * own - table["labels"], weight)
        both = ratio(own, weight)
    else:
        # older tables: p**2 <= p, and labels that have nothing to do with p vary the most
        both = model * data
    spread = ratio(square, model**2) - 1.0
    if not fixed:
        spread = spread + 1.0 - 2.0 * ratio(both, model * data) + ratio(np.ones_like(data), data)
    return ratio(np.maximum(spread, 0.0), n)
