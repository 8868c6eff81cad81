"""The report that follows from the sums of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from equipoise._inputs import shown
from equipoise.auditing._intervals import (
    KINDS,
    RATES,
    Amplification,
    Family,
    Interval,
    Intervals,
    Spread,
    amplifications,
    changes_of,
    from_cells,
    gap_values,
    intervals_together,
)
from equipoise.auditing._verdicts import (
    Calibration,
    Comparison,
    PeVerdict,
    Verdict,
    comparisons_of,
    pe_verdicts_of,
    verdicts_of,
)
from equipoise.metrics import (
    BLOCKS,
    METRICS,
    SUMS,
    AuditTable,
    Rates,
    by_group,
    largest_group,
    overall,
    pairs_of,
    proportional_equality_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType


@dataclasses.dataclass(frozen=True, repr=False)
class AuditReport:
    """What `audit` found.

    Attributes
    ----------
    overall
        ``overall[metric]`` of all rows.
    groups
        ``groups[group][metric]``.
    proportional_equality
        Its value for the kinds "stochastic" and "deterministic".
    table
        The sums behind the figures.
    gaps
        ``gaps[metric]``: the largest difference between two groups, without the bias that makes the
        calibration error of a small group look larger.
    rates
        ``rates[group][kind][label]``; kind is "labels", "stochastic" or "deterministic".
    intervals
        Confidence intervals of all of these, which hold together for all lines of a column; None
        if they were not asked for.
    verdict, verdicts
        Statistical verdict on calibration: of all rows, and of each group.
    comparisons
        Differences in calibration between groups.
    pe_verdicts
        For each kind of proportional equality, the largest gap and whether it is significant.
    amplification
        ``amplification[kind][group][label]``: signed log amplification with its interval. With the
        reference "all", the keys are (group, reference).
    reference_group
        The group that the others are compared with.
    dropped
        Number of rows left out because a value was missing.
    by
        Report of each part of the rows, by the values of `by`; empty without.
    level, tolerance
        Of the intervals and verdicts.
    own_rates
        Whether proportional equality compares with the rates of these rows' own labels.
    share
        Share of the error rate 1 - level that this report has; a report and its parts share it.
    """

    overall: Mapping[str, float]
    groups: Mapping[Hashable, Mapping[str, float]]
    proportional_equality: Mapping[str, float]
    table: AuditTable
    gaps: Mapping[str, float]
    rates: Mapping[Hashable, Mapping[str, Mapping[Hashable, float]]]
    intervals: Intervals | None
    verdict: Verdict
    verdicts: Mapping[Hashable, Verdict]
    comparisons: tuple[Comparison, ...]
    pe_verdicts: Mapping[str, PeVerdict]
    amplification: Mapping[str, Mapping[Hashable, Mapping[Hashable, Amplification]]]
    reference_group: Hashable
    dropped: int = 0
    by: Mapping[tuple[Any, ...], AuditReport] = dataclasses.field(default_factory=dict)
    level: float = 0.95
    tolerance: float = 0.05
    own_rates: bool = True
    share: float = 1.0

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: a row "overall" and one per group, the metrics as columns.

        Beside each metric stand the ends of its interval, such as `ece_low` and `ece_high`.
        """
        import pandas as pd

        rows = self.table["rows"]
        figures = [self.overall, *self.groups.values()]
        ends: list[Mapping[str, Interval]] = [{}] * len(figures)
        if self.intervals is not None:
            ends = [self.intervals.overall, *(self.intervals.groups[g] for g in self.groups)]
        frame = pd.DataFrame([_with_ends(v, e) for v, e in zip(figures, ends, strict=True)])
        frame.insert(0, "rows", [int(rows.sum()), *rows.astype(int)])
        frame.index = pd.Index(["overall", *self.groups], name="group", tupleize_cols=False)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return figures, intervals, verdicts and sums as plain values, ready for strict JSON.

        A figure that is not defined is None, an infinite one "inf".
        """
        from equipoise.auditing._render import as_plain

        return as_plain(self)

    def __rich__(self) -> RenderableType:
        """Return the report as rich prints it, its parts in a table."""
        from equipoise.auditing._render import with_parts

        return with_parts(self)

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        from equipoise.auditing._render import as_html

        return as_html(self)

    def __str__(self) -> str:
        """Return the report as plain text."""
        from equipoise.auditing._render import as_text

        return as_text(self)

    __repr__ = __str__


def _with_ends(values: Mapping[str, float], ends: Mapping[str, Interval]) -> dict[str, float]:
    found = {}
    for name, value in values.items():
        found[name] = value
        if name in ends:
            found[f"{name}_low"], found[f"{name}_high"] = ends[name]
    return found


def check_evidence(level: float, tolerance: float) -> None:
    """Raise unless the level lies between 0 and 1, and the tolerance is one of 0..1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be within 0..1, such as 0.95, got {level!r}")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance must be an ECE within 0..1, such as 0.05, got {tolerance!r}")


def report_of(
    table: AuditTable,
    *,
    base_rates: Rates | None = None,
    reference_group: Any = None,
    intervals: bool = True,
    level: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
    dropped: int = 0,
    share: float = 1.0,
) -> AuditReport:
    """Return the report that follows from the sums of a table.

    Parameters
    ----------
    table
        Filled with all blocks.
    base_rates, reference_group, intervals, level, tolerance, seed
        As in `audit`.
    dropped
        Number of rows that were left out.
    share
        Share of the error rate, 1 - level, that this report may use; parts of a split report have
        to share it.

    Examples
    --------
    >>> y, group = [0, 0, 1, 1] * 100, ["a", "b"] * 200
    >>> tables = [
    ...     AuditTable.from_arrays(y, [0.2, 0.2, p, p] * 100, sensitive_features=group)
    ...     for p in (0.8, 0.9)
    ... ]
    >>> report_of(tables[0] + tables[1]).verdicts["b"].direction
    'under-confident'
    """
    check_evidence(level, tolerance)
    lacking = sorted(BLOCKS - {SUMS[name].block for name in table.sums})
    if lacking:
        raise ValueError(f"the table lacks the blocks {lacking}; fill it with all blocks")
    if reference_group is None:
        reference_group = largest_group(table)
    compared = {"base_rates": base_rates, "reference_group": reference_group}
    pairs = pairs_of(table.groups, reference_group)
    spread, pooled = from_cells(table), from_cells(table.pooled())
    family = Family((1.0 - level) * share, len(table.groups), len(table.labels))
    changes = changes_of(spread, family, **compared)
    sure = None
    if intervals:
        sure = intervals_together(
            spread, pooled, family, **compared, level=level, changes=changes, seed=seed
        )
    found = Calibration.of(spread, family)
    ratios = amplifications(table, changes, **compared)
    per_group = {name: by_group(table, name) for name in METRICS}
    pe = dict.fromkeys(KINDS, float("nan"))  # of one group, whose other figures still stand
    if len(table.groups) > 1:
        pe = {kind: proportional_equality_of(table, kind=kind, **compared) for kind in KINDS}
    return AuditReport(
        overall={name: overall(table, name) for name in METRICS},
        groups={g: {name: per_group[name][g] for name in METRICS} for g in table.groups},
        proportional_equality=pe,
        table=table,
        gaps=gap_values(spread),
        rates=_rates(spread),
        intervals=sure,
        verdict=verdicts_of(Calibration.of(pooled, family, pooled=True), tolerance)[None],
        verdicts=verdicts_of(found, tolerance),
        comparisons=comparisons_of(found, family, reference_group),
        pe_verdicts=pe_verdicts_of(table, ratios, pairs, base_rates=base_rates, intervals=sure),
        amplification=_keyed(ratios, every=reference_group == "all" and "all" not in table.groups),
        reference_group=reference_group,
        dropped=dropped,
        level=level,
        tolerance=tolerance,
        own_rates=base_rates is None,
        share=share,
    )


def _keyed(
    changes: Mapping[str, list[Amplification]], *, every: bool
) -> dict[str, dict[Hashable, dict[Hashable, Amplification]]]:
    found: dict[str, dict[Hashable, dict[Hashable, Amplification]]] = {}
    for kind, values in changes.items():
        own: dict[Hashable, dict[Hashable, Amplification]] = found.setdefault(kind, {})
        for a in values:
            own.setdefault((a.group, a.reference) if every else a.group, {})[a.label] = a
    return found


def _rates(spread: Spread) -> dict[Hashable, dict[str, dict[Hashable, float]]]:
    table = spread.table
    shares = {kind: spread.moments.mean[name].tolist() for kind, name in RATES.items()}
    return {
        g: {kind: dict(zip(table.labels, v[i], strict=True)) for kind, v in shares.items()}
        for i, g in enumerate(table.groups)
    }


def without_reference(report: AuditReport, reference: Hashable) -> AuditReport:
    """Remove all comparisons with a reference group that has no rows."""
    text = f"Undefined: group {shown(reference)}, which the others are compared with, has no rows."
    sure = report.intervals
    if sure is not None:
        sure = dataclasses.replace(sure, proportional_equality={})
    return dataclasses.replace(
        report,
        proportional_equality=dict.fromkeys(KINDS, float("nan")),
        intervals=sure,
        comparisons=(),
        pe_verdicts=dict.fromkeys(KINDS, PeVerdict.undefined(text, reference)),
        amplification={kind: {} for kind in KINDS},
        reference_group=reference,
    )
