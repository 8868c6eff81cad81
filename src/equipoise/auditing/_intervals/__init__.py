"""Confidence intervals of every metric, from the sums of an audit table alone.

Means have score intervals (Wilson). ECE, class-wise ECE, MCE and proportional equality are norms of
signed gaps, and noise makes a norm larger: a percentile bootstrap would not cover true values near
0. Their intervals are therefore built from estimates without that bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from equipoise.auditing._distributions import ndtri
from equipoise.auditing._intervals._amplification import Amplification, Changes
from equipoise.auditing._intervals._family import Family
from equipoise.auditing._intervals._figures import (
    RATES,
    Interval,
    intervals_of,
    norm_bounds,
    rate_intervals,
    wilson,
)
from equipoise.auditing._intervals._gaps import gap_interval, gap_values
from equipoise.auditing._intervals._ratios import ratio_interval
from equipoise.auditing._intervals._spread import Spread, from_cells
from equipoise.metrics import (
    METRICS,
    AuditTable,
    Rates,
    data_counts,
    data_rates,
    largest_group,
    pairs_of,
    rate_ratios,
)

__all__ = [
    "KINDS",
    "NO_INTERVALS",
    "RATES",
    "Amplification",
    "Family",
    "Interval",
    "Intervals",
    "Spread",
    "amplifications",
    "changes_of",
    "from_cells",
    "gap_values",
    "intervals_from_table",
    "intervals_together",
    "wilson",
]

KINDS = ("stochastic", "deterministic")
"""Kinds of proportional equality: of the probabilities, and of the decisions."""


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Confidence intervals of the true values behind the figures of an audit.

    The fields are those of `AuditReport`; `gaps` and `proportional_equality` are empty with one
    group. `comparisons` is the number of lines of each column that hold together at the level: 1 if
    each interval holds for itself.

    Notes
    -----
    Where a row gives its own label probability 0, the log-loss is infinite; its interval then
    starts at that of the other rows and ends at inf. A ratio whose denominator may be 0 has the
    upper end inf.
    """

    level: float
    overall: Mapping[str, Interval]
    groups: Mapping[Hashable, Mapping[str, Interval]]
    gaps: Mapping[str, Interval]
    proportional_equality: Mapping[str, Interval]
    rates: Mapping[Hashable, Mapping[str, Mapping[Hashable, Interval]]]
    comparisons: int = 1


NO_INTERVALS = Intervals(float("nan"), {}, {}, {}, {}, {})


def intervals_from_table(
    table: AuditTable,
    *,
    base_rates: Rates | None = None,
    reference_group: Any = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Return single intervals that follow from a table's sums, not corrected for their number.

    Parameters
    ----------
    table
        Filled with all blocks.
    base_rates
        Rates of the training labels; by default those of the labels. The sampling error of rates
        from `group_base_rates` counts, other rates are taken as exact.
    reference_group
        The group the others are compared with; by default the largest.
    level
        Coverage of each interval.
    replicates
        Draws of the joint noise of gaps that may be the largest in proportional equality.
    seed
        Seed of the draws.

    Examples
    --------
    >>> table = AuditTable.from_arrays([0, 1] * 50, [0.1, 0.9] * 50)
    >>> found = intervals_from_table(table).overall["accuracy"]
    >>> round(found.low, 3), found.high
    (0.962, 1.0)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be within 0..1, such as 0.95, got {level!r}")
    if replicates < 100:
        raise ValueError(f"replicates must be at least 100, got {replicates!r}")
    if reference_group is None:
        reference_group = largest_group(table)
    spreads = from_cells(table), from_cells(table.pooled())
    compared = {"base_rates": base_rates, "reference_group": reference_group}
    family = Family(1.0 - level, len(table.groups), len(table.labels), single=True)
    return intervals_together(
        *spreads, family, **compared, level=level, replicates=replicates, seed=seed
    )


def intervals_together(
    spread: Spread,
    pooled: Spread,
    family: Family,
    *,
    base_rates: Rates | None,
    reference_group: Any,
    level: float,
    changes: Mapping[str, Changes] | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Return the intervals of a report, which share the error rate of `family`.

    With `changes`, the interval of proportional equality starts above 0 just where one is shown.
    """
    table = spread.table
    whole = norm_bounds(pooled, *family.bounds(pooled=True), single=family.single)
    columns = intervals_of(
        spread,
        1.0 - family.line,
        norm_bounds(spread, *family.bounds(pooled=False), single=family.single),
    )
    gaps, pe = {}, {}
    if len(table.groups) > 1:
        z = float(ndtri(1.0 - family.error / 2))
        pairs = pairs_of(table.groups, reference_group)
        rng = np.random.default_rng(seed)
        data = None if base_rates is None else data_rates(table, base_rates)
        counts = data_counts(table, base_rates)
        gaps = {name: gap_interval(spread, name, z) for name in METRICS}
        for kind in KINDS:
            ends = ratio_interval(spread, kind, data, counts, pairs, z, rng, replicates)
            if changes is not None:
                found = changes[kind]
                least = np.maximum(np.maximum(found.change.low, -found.change.high), 0.0)
                # a change of the ratio R by the factor exp(+-x) is one of R (1 - exp(-x)) at least
                shown = np.exp(found.data.low) * -np.expm1(-least)
                low = float(np.nanmax(np.where(least > 0, shown, 0.0)))
                ends = Interval(max(low, ends.low) if low > 0 else 0.0, ends.high)
            pe[kind] = ends
    return Intervals(
        level=level,
        overall=intervals_of(pooled, 1.0 - family.line, whole)[0],
        groups=dict(zip(table.groups, columns, strict=True)),
        gaps=gaps,
        proportional_equality=pe,
        rates=rate_intervals(spread, 1.0 - family.line),
        comparisons=1 if family.single else family.lines,
    )


def _different(pairs: list[tuple[int, int]]) -> int:
    # a pair counts once, whichever of the two is the reference
    return len({frozenset(pair) for pair in pairs})


def changes_of(
    spread: Spread, family: Family, *, base_rates: Rates | None, reference_group: Any
) -> dict[str, Changes]:
    """Return how each kind of the model's rates changes the ratios of groups; {} for one group."""
    table = spread.table
    pairs = pairs_of(table.groups, reference_group)
    if not pairs:
        return {}
    data = None if base_rates is None else data_rates(table, base_rates)
    counts, tail = data_counts(table, base_rates), family.ratio(_different(pairs))
    return {kind: Changes.of(spread, kind, data, counts, pairs, tail) for kind in KINDS}


def amplifications(
    table: AuditTable,
    changes: Mapping[str, Changes],
    *,
    base_rates: Rates | None,
    reference_group: Any,
) -> dict[str, list[Amplification]]:
    """Return the log amplification of every pair of groups and every label, for each kind."""
    pairs = pairs_of(table.groups, reference_group)
    if not pairs:
        return {kind: [] for kind in KINDS}
    data, made = data_rates(table, base_rates), {}
    for kind, found in changes.items():
        first, second = rate_ratios(table, data, pairs, kind, "group-ratio")
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.log(second) - np.log(first)
        made[kind] = [
            Amplification(
                table.groups[g],
                table.groups[ref],
                label,
                float(value[i, k]),
                float(found.change.low[i, k]),
                float(found.change.high[i, k]),
                float(first[i, k]),
                float(second[i, k]),
                found.words[i, k].item(),
                float(found.farther[i, k]),
            )
            for i, (g, ref) in enumerate(pairs)
            for k, label in enumerate(table.labels)
        ]
    return made
