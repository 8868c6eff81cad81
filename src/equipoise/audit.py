"""Audit predictions: every metric with its evidence, and what the model does to the rates."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from equipoise.inputs import column, columns, encode, encode_groups, matrix, same_length
from equipoise.metrics import METRICS, GroupRates, by_group, overall, proportional_equality_of
from equipoise.rates import ratio
from equipoise.sums import SUMS
from equipoise.table import AuditTable
from equipoise.verdicts import (
    Comparison,
    PeVerdict,
    Verdict,
    comparisons_of,
    group_name,
    pe_verdicts_of,
    shown,
    verdicts_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from equipoise.intervals import Interval, Intervals
    from equipoise.pushdown import Filled

__all__ = [
    "AuditReport",
    "AuditTable",
    "Comparison",
    "PeVerdict",
    "Verdict",
    "audit",
    "group_name",
    "report_of",
]

MOST_ROWS = 200_000
"""Rows up to which intervals come from resampled rows; beyond, the table's cells say the same."""

KINDS = ("stochastic", "deterministic")


@dataclasses.dataclass(frozen=True, repr=False)
class AuditReport:
    """What `audit` found.

    Attributes
    ----------
    overall
        Metric to value, of all rows.
    groups
        Group to metric to value.
    proportional_equality
        "stochastic" and "deterministic" to value.
    table
        The sums behind the figures.
    gaps
        Metric to the largest difference between two groups; of calibration errors, which grow as
        rows get fewer, the difference without that bias.
    rates
        Group to "labels", "stochastic" and "deterministic" to label to the share of it.
    intervals
        Confidence intervals of all of these, or None where they were not asked for.
    verdict, verdicts
        Whether confidence is what it says: of all rows, and by group.
    comparisons
        Whether groups are as calibrated as each other.
    pe_verdicts
        By kind of proportional equality, what drives it and what the labels themselves score.
    dropped
        Rows left out because a value was missing.
    by
        Reports of the parts of the rows, by the values of `by`; empty without.
    level, tolerance
        Of the intervals and verdicts.
    own_rates
        Whether proportional equality was measured against the rates of these rows' own labels.
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
    dropped: int = 0
    by: Mapping[tuple[Any, ...], AuditReport] = dataclasses.field(default_factory=dict)
    level: float = 0.95
    tolerance: float = 0.05
    own_rates: bool = True

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
        from equipoise.summary import as_plain

        return as_plain(self)

    def __rich__(self) -> RenderableType:
        """Return the report as rich prints it."""
        from equipoise.summary import Rendered

        return Rendered(self)

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        from equipoise.summary import as_html

        return as_html(self)

    def __str__(self) -> str:
        """Return the report as plain text, with those of its parts in a table."""
        from equipoise.summary import plain

        return plain(self)

    __repr__ = __str__


def _with_ends(values: Mapping[str, float], ends: Mapping[str, Interval]) -> dict[str, float]:
    found = {}
    for name, value in values.items():
        found[name] = value
        if name in ends:
            found[f"{name}_low"], found[f"{name}_high"] = ends[name]
    return found


# --- from predictions ------------------------------------------------------------------------


def audit(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    data: Any = None,
    by: Any = None,
    sample_weight: Any = None,
    n_bins: int = 15,
    labels: Any = None,
    y_pred: Any = None,
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    reference_group: Any = None,
    intervals: bool = True,
    level: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
    drop_missing: bool = False,
    engine: str = "duckdb",
) -> AuditReport:
    """Measure predictions overall and per group, and say what the figures are evidence for.

    Parameters
    ----------
    y_true
        Labels, of any coding. With `data`, the name of their column.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem. With `data`, the
        names of their K columns, or of one.
    sensitive_features
        One column, or several whose intersection is meant. With `data`, their names.
    data
        A frame or table that narwhals takes (pandas, polars, PyArrow, DuckDB, PySpark, Ibis), or
        the path of CSV or Parquet files: a file, a folder, a pattern, or a list of them. The sums
        are made where the data is.
    by
        One or several columns (with `data`, their names), such as a month, whose values split the
        rows into parts that are reported one by one as well.
    sample_weight
        Weight of each row; not with `data`.
    n_bins
        Number of confidence bins.
    labels
        Label of each column of `y_prob`.
    y_pred
        Decisions made elsewhere, for accuracy and deterministic proportional equality. With
        `data`, the name of their column.
    base_rates
        Rates of the training labels, from `group_base_rates`; by default those of `y_true`.
    reference_group
        The group the others are compared with, as in `proportional_equality`.
    intervals
        Whether to give confidence intervals: from resampled rows for arrays of up to 200,000
        rows, from the table's cells for more and with `data`.
    level
        Of the intervals and verdicts.
    tolerance
        The ECE up to which a group counts as calibrated.
    seed
        Of the resampling.
    drop_missing
        Leave out rows with a missing value, and count them, rather than refuse them.
    engine
        What reads files: "duckdb", "polars" or "spark".

    Examples
    --------
    >>> report = audit([0, 1, 1, 0], [0.2, 0.9, 0.6, 0.3], sensitive_features=list("abab"))
    >>> report.overall["accuracy"], round(report.groups["a"]["ece"], 3)
    (1.0, 0.3)
    >>> report.verdict.word
    'not enough evidence'
    """
    check_evidence(level, tolerance)
    if data is not None:
        filled = _filled(
            data,
            y_true=y_true,
            y_prob=y_prob,
            sensitive_features=sensitive_features,
            y_pred=y_pred,
            by=by,
            sample_weight=sample_weight,
            labels=labels,
            n_bins=n_bins,
            drop_missing=drop_missing,
            engine=engine,
        )
        first, *more = filled.tables.values()
        whole, dropped = sum(more, first), filled.dropped
        parts: dict[tuple[Any, ...], tuple[AuditTable, _Rows | None]] = {
            key: (table, None) for key, table in filled.tables.items()
        }
        rows: _Rows | None = None
    else:
        rows, dropped, keys = _rows_of(
            _Rows(y_true, y_prob, sensitive_features, sample_weight, y_pred),
            by,
            drop_missing=drop_missing,
        )
        whole = rows.table(n_bins, labels)
        parts = {}
        for key, at in keys.items():
            some = rows.at(at)
            parts[key] = (some.table(n_bins, whole.labels), some)

    def report(table: AuditTable, rows: _Rows | None, reference: Any, dropped: int) -> AuditReport:
        rates = base_rates if table is whole else _rates_for(table, base_rates)
        found: Literal["cells"] | Intervals | None = "cells" if intervals else None
        if intervals and rows is not None and table["rows"].sum() <= MOST_ROWS:
            from equipoise.intervals import intervals_from_rows

            found = intervals_from_rows(
                **rows.arguments(),
                n_bins=n_bins,
                labels=whole.labels,
                base_rates=rates,
                reference_group=reference,
                level=level,
                seed=seed,
            )
        return report_of(
            table,
            base_rates=rates,
            reference_group=reference,
            intervals=found,
            level=level,
            tolerance=tolerance,
            seed=seed,
            dropped=dropped,
        )

    total = report(whole, rows, reference_group, dropped)
    if by is None:
        return total
    # the first group of a part may be another than the first of all
    wanted = whole.groups[0] if reference_group is None else reference_group
    split = {}
    for key, (table, own) in parts.items():
        here = wanted in table.groups or (wanted == "all" and "all" not in whole.groups)
        with warnings.catch_warnings():
            # the whole was warned of; a part shows its nan or inf
            warnings.simplefilter("ignore")
            found = report(table, own, wanted if here else None, 0)
        split[key] = found if here else without_reference(found, wanted)
    return dataclasses.replace(total, by=split)


def check_evidence(level: float, tolerance: float) -> None:
    """Raise unless level and tolerance are what they must be."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be within 0..1, such as 0.95, got {level!r}")
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"tolerance must be an ECE within 0..1, such as 0.05, got {tolerance!r}")


def _filled(
    data: Any,
    *,
    y_true: Any,
    y_prob: Any,
    sensitive_features: Any,
    y_pred: Any,
    by: Any,
    sample_weight: Any,
    **options: Any,
) -> Filled:
    """Sum up the columns of a table where it is."""
    from equipoise.pushdown import Columns, fill

    if sample_weight is not None:
        raise ValueError("sample_weight does not go with data=; pass the columns as arrays instead")
    for name, value, several in (
        ("y_true", y_true, False),
        ("y_prob", y_prob, True),
        ("sensitive_features", sensitive_features, True),
        ("y_pred", y_pred, False),
        ("by", by, True),
    ):
        optional = name in ("y_pred", "by") and value is None
        names = (
            several and isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
        )
        if not (optional or names or isinstance(value, str)):
            raise TypeError(
                f"with data=, {name} is the name of a column{' or a list of names' * several}, "
                f"got {type(value).__name__}"
            )
    columns = Columns(y_true, y_prob, sensitive_features, y_pred, () if by is None else by)
    return fill(data, columns, **options)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The arrays of predictions that are measured."""

    y_true: Any
    y_prob: Any
    sensitive_features: Any
    sample_weight: Any
    y_pred: Any

    def arguments(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def table(self, n_bins: int, labels: Any) -> AuditTable:
        return AuditTable.from_arrays(**self.arguments(), n_bins=n_bins, labels=labels)

    def as_arrays(self) -> _Rows:
        """Return the same with columns that can be indexed by row."""
        prob = matrix(self.y_prob, "y_prob")
        groups = dict(enumerate(columns(self.sensitive_features, "sensitive_features")))
        found = {
            name: None if value is None else column(value, name)
            for name, value in self.arguments().items()
            if name not in ("y_prob", "sensitive_features")
        }
        more = {f"sensitive_features, column {j}": col for j, col in groups.items()}
        same_length(len(prob), **found, **more)
        return _Rows(y_prob=prob, sensitive_features=groups, **found)

    def at(self, rows: Any) -> _Rows:
        """Return some of the rows."""
        groups = {j: col[rows] for j, col in self.sensitive_features.items()}
        found = {
            name: None if value is None else value[rows]
            for name, value in self.arguments().items()
            if name != "sensitive_features"
        }
        return _Rows(sensitive_features=groups, **found)


def _rows_of(
    rows: _Rows, by: Any, *, drop_missing: bool
) -> tuple[_Rows, int, dict[tuple[Any, ...], Any]]:
    """Return the rows to measure, how many were left out, and the rows of each part."""
    named = [v for v in (rows.y_true, rows.y_prob, rows.sensitive_features) if isinstance(v, str)]
    if named:
        raise TypeError(f"{named[0]!r} is the name of a column; pass data= with its table too")
    if by is None and not drop_missing:
        return rows, 0, {}
    rows = rows.as_arrays()
    n, dropped = len(rows.y_prob), 0
    split = {} if by is None else dict(enumerate(columns(by, "by")))
    same_length(n, **{f"by, column {j}": col for j, col in split.items()})
    if drop_missing:
        keep = ~np.isnan(rows.y_prob).reshape(n, -1).any(1)
        for col in (rows.y_true, rows.y_pred, *rows.sensitive_features.values(), *split.values()):
            if col is not None:
                keep &= encode(col, "a column")[0] >= 0
        dropped = int(n - keep.sum())
        if dropped == n:
            raise ValueError(f"each of the {n:,} rows has a missing value, so nothing is left")
        rows, split = rows.at(keep), {j: col[keep] for j, col in split.items()}
    if by is None:
        return rows, dropped, {}
    codes, keys = _encoded(split)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(keys)))[:-1]
    return rows, dropped, dict(zip(keys, np.split(order, ends), strict=True))


def _encoded(split: Mapping[int, Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    try:
        codes, keys = encode_groups(split)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("sensitive_features", "by")) from None
    return codes, [key if isinstance(key, tuple) else (key,) for key in keys]


def _rates_for(
    table: AuditTable, base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None
) -> Mapping[Hashable, Mapping[Hashable, float]] | None:
    """Return the rates of the groups that a part of the rows has."""
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    return rates and {g: own for g, own in rates.items() if g in table.groups}


# --- from a table ----------------------------------------------------------------------------


def report_of(
    table: AuditTable,
    *,
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    reference_group: Any = None,
    intervals: Literal["cells"] | Intervals | None = "cells",
    level: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
    dropped: int = 0,
) -> AuditReport:
    """Return the report that follows from the sums of a table.

    Parameters
    ----------
    table
        Filled with all parts.
    base_rates, reference_group, level, tolerance, seed
        As in `audit`.
    intervals
        "cells": from the table; or those that were found already; or None.
    dropped
        Number of rows that were left out.

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
    lacking = sorted({part for m in METRICS.values() for part in m.parts} - table_parts(table))
    if lacking:
        raise ValueError(f"the table lacks the parts {lacking}; fill it with all parts")
    from equipoise.intervals import gaps_of, intervals_from_table

    if intervals == "cells":
        intervals = intervals_from_table(
            table, base_rates=base_rates, reference_group=reference_group, level=level, seed=seed
        )
    per_group = {name: by_group(table, name) for name in METRICS}
    # one group has nothing to be compared with, and its other figures still stand
    pe = {
        kind: float("nan")
        if len(table.groups) < 2
        else proportional_equality_of(
            table, kind=kind, base_rates=base_rates, reference_group=reference_group
        )
        for kind in KINDS
    }
    return AuditReport(
        overall={name: overall(table, name) for name in METRICS},
        groups={g: {name: per_group[name][g] for name in METRICS} for g in table.groups},
        proportional_equality=pe,
        table=table,
        gaps=gaps_of(table),
        rates=_rates(table),
        intervals=intervals,
        verdict=verdicts_of(table.pooled(), level=level, tolerance=tolerance)[None],
        verdicts=verdicts_of(table, level=level, tolerance=tolerance),
        comparisons=comparisons_of(table, reference_group=reference_group, level=level),
        pe_verdicts=pe_verdicts_of(
            table,
            base_rates=base_rates,
            reference_group=reference_group,
            intervals=intervals,
            level=level,
        ),
        dropped=dropped,
        level=level,
        tolerance=tolerance,
        own_rates=base_rates is None,
    )


def table_parts(table: AuditTable) -> set[str]:
    """Return the parts that a table was filled with."""
    return {SUMS[name].part for name in table.sums}


def _rates(table: AuditTable) -> dict[Hashable, dict[str, dict[Hashable, float]]]:
    shares = {
        kind: ratio(table[name], table["weight"][:, None]).tolist()
        for kind, name in (
            ("labels", "labels"),
            ("stochastic", "probability"),
            ("deterministic", "predictions"),
        )
    }
    return {
        g: {kind: dict(zip(table.labels, v[i], strict=True)) for kind, v in shares.items()}
        for i, g in enumerate(table.groups)
    }


def without_reference(report: AuditReport, reference: Hashable) -> AuditReport:
    """Take out what compares groups with a reference group that has no rows."""
    nan = float("nan")
    text = f"Undefined: group {shown(reference)}, which the others are compared with, has no rows."
    nothing = PeVerdict(nan, None, nan, None, reference, None, nan, nan, nan, "undefined", text)
    sure = report.intervals
    if sure is not None:
        sure = dataclasses.replace(sure, proportional_equality={})
    return dataclasses.replace(
        report,
        proportional_equality=dict.fromkeys(KINDS, nan),
        intervals=sure,
        comparisons=(),
        pe_verdicts=dict.fromkeys(KINDS, nothing),
    )
