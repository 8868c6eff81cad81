"""Confidence intervals of every metric, from the sums of an audit table alone.

Means have score intervals (Wilson). ECE, class-wise ECE, MCE and proportional equality are norms of
signed gaps, and noise makes a norm larger: a percentile bootstrap would not cover true values near
0. Their intervals are therefore built from estimates without that bias. A figure that lies above
its own interval is mostly noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from equipoise.auditing._distributions import ndtri
from equipoise.auditing._intervals._figures import (
    Interval,
    debiased_ece,
    intervals_of,
    rate_intervals,
    wilson,
)
from equipoise.auditing._intervals._gaps import gap_interval, gap_values
from equipoise.auditing._intervals._ratios import ratio_interval
from equipoise.auditing._intervals._spread import from_cells
from equipoise.metrics import METRICS, AuditTable, Rates, data_rates, pairs_of

__all__ = [
    "NO_INTERVALS",
    "Interval",
    "Intervals",
    "debiased_ece",
    "gaps_of",
    "intervals_from_table",
    "wilson",
]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Confidence intervals of the true values behind the figures of an audit.

    The fields are those of `AuditReport`; `gaps` and `proportional_equality` are empty with one
    group.

    Notes
    -----
    The level is that of each single interval, without correction for their number. Where a row
    gives its own label probability 0, the log-loss is infinite; its interval then starts at that of
    the other rows and ends at inf. A ratio whose denominator may be 0 has the upper end inf.
    """

    level: float
    overall: Mapping[str, Interval]
    groups: Mapping[Hashable, Mapping[str, Interval]]
    gaps: Mapping[str, Interval]
    proportional_equality: Mapping[str, Interval]
    rates: Mapping[Hashable, Mapping[str, Mapping[Hashable, Interval]]]


NO_INTERVALS = Intervals(float("nan"), {}, {}, {}, {}, {})


def gaps_of(table: AuditTable) -> dict[str, float]:
    """Return each metric's largest difference between two groups; nothing for one group.

    ECE, class-wise ECE and MCE enter without the bias that makes small groups look worse.
    """
    return gap_values(from_cells(table))


def intervals_from_table(
    table: AuditTable,
    *,
    base_rates: Rates | None = None,
    reference_group: Any = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Return the intervals that follow from a table's sums, without its rows.

    Parameters
    ----------
    table
        Filled with all blocks.
    base_rates
        Rates of the training labels, taken as fixed numbers; by default those of the labels.
    reference_group
        As in `proportional_equality`.
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
    (0.963, 1.0)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be within 0..1, such as 0.95, got {level!r}")
    if replicates < 100:
        raise ValueError(f"replicates must be at least 100, got {replicates!r}")
    spread, pooled = from_cells(table), from_cells(table.pooled())
    z = float(ndtri(0.5 + level / 2))
    columns = {name: intervals_of(spread, name, z) for name in METRICS}
    gaps, pe = {}, {}
    if len(table.groups) > 1:
        data = None if base_rates is None else data_rates(table, base_rates)
        pairs = pairs_of(table.groups, reference_group)
        rng = np.random.default_rng(seed)
        gaps = {name: gap_interval(spread, name, z) for name in METRICS}
        pe = {
            kind: ratio_interval(spread, kind, data, pairs, z, rng, replicates)
            for kind in ("stochastic", "deterministic")
        }
    return Intervals(
        level=level,
        overall={name: intervals_of(pooled, name, z)[0] for name in METRICS},
        groups={g: {n: columns[n][i] for n in METRICS} for i, g in enumerate(table.groups)},
        gaps=gaps,
        proportional_equality=pe,
        rates=rate_intervals(spread, z),
    )
