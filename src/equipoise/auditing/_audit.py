"""Audit predictions: every metric with its evidence, and what the model does to the rates."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from equipoise.auditing._report import AuditReport, check_evidence, report_of, without_reference
from equipoise.auditing._rows import Rows, rows_of
from equipoise.auditing._verdicts._calibration import Verdict
from equipoise.auditing._verdicts._comparisons import Comparison
from equipoise.auditing._verdicts._proportional import PeVerdict
from equipoise.metrics import AuditTable, GroupRates

if TYPE_CHECKING:
    from equipoise.auditing._intervals import Intervals
    from equipoise.auditing._pushdown._tables import Filled

__all__ = [
    "AuditReport",
    "AuditTable",
    "Comparison",
    "PeVerdict",
    "Verdict",
    "audit",
    "report_of",
    "without_reference",
]

MOST_ROWS = 200_000
"""Rows up to which intervals come from resampled rows; beyond, the table's cells say the same."""


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
        parts: dict[tuple[Any, ...], tuple[AuditTable, Rows | None]] = {
            key: (table, None) for key, table in filled.tables.items()
        }
        rows: Rows | None = None
    else:
        rows, dropped, keys = rows_of(
            Rows(y_true, y_prob, sensitive_features, sample_weight, y_pred),
            by,
            drop_missing=drop_missing,
        )
        whole = rows.table(n_bins, labels)
        parts = {}
        for key, at in keys.items():
            some = rows.at(at)
            parts[key] = (some.table(n_bins, whole.labels), some)

    def report(table: AuditTable, rows: Rows | None, reference: Any, dropped: int) -> AuditReport:
        rates = base_rates if table is whole else _rates_for(table, base_rates)
        found: Literal["cells"] | Intervals | None = "cells" if intervals else None
        if intervals and rows is not None and table["rows"].sum() <= MOST_ROWS:
            from equipoise.auditing._intervals import intervals_from_rows

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
    from equipoise.auditing._pushdown._survey import Columns
    from equipoise.auditing._pushdown._tables import fill

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


def _rates_for(
    table: AuditTable, base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None
) -> Mapping[Hashable, Mapping[Hashable, float]] | None:
    """Return the rates of the groups that a part of the rows has."""
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    return rates and {g: own for g, own in rates.items() if g in table.groups}
