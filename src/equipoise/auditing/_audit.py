"""Audits of arrays, of a table where it is, of several models, and of saved audits added up."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise._files import check_data
from equipoise.auditing._merged import merged_files
from equipoise.auditing._model_reports import AuditReports, report_models
from equipoise.auditing._model_tables import ModelTables, tables_of_arrays, tables_of_data
from equipoise.auditing._pushdown import Columns
from equipoise.auditing._report import AuditReport, check_evidence
from equipoise.metrics import GroupRates, Rates


def audit(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    data: Any = None,
    by: Any = None,
    sample_weight: Any = None,
    clusters: Any = None,
    n_bins: int = 15,
    labels: Any = None,
    positive: Any = None,
    y_pred: Any = None,
    base_rates: Rates | None = None,
    train: Any = None,
    train_label: str | None = None,
    reference_group: Any = None,
    intervals: bool = True,
    level: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
    drop_missing: bool = False,
    engine: str = "duckdb",
    remote: bool = False,
) -> AuditReport:
    """Measure predictions overall and per group, with intervals and statistical verdicts.

    Parameters
    ----------
    y_true
        Labels, of any coding. With `data`, the name of their column.
    y_prob
        Probabilities (n, K), or (n,) for one label of a binary problem, by default the second in
        sorted order. With `data`, the names of their K columns, or of one.
    sensitive_features
        One column, or several whose intersection is meant. With `data`, their names.
    data
        A frame or table that narwhals takes (pandas, polars, PyArrow, DuckDB, PySpark, Ibis), or
        the path of CSV or Parquet files: a file, a folder, a pattern, or a list of them. Only sums
        leave the place where the data is.
    by
        One or several columns (with `data`, their names), such as a month, whose values split the
        rows into parts that are reported one by one as well. With `data`, "ts:month" cuts the
        dates, timestamps or ISO texts of column ts to a year, quarter, month, week, day or hour.
        Times with a zone are taken in UTC in files and DuckDB, elsewhere in their own zone.
    sample_weight
        Weight of each row, finite and not negative. With `data`, the name of its column.
    clusters
        Id of what each row belongs to, such as a person with several rows. Rows of a cluster do
        not count as independent in intervals and verdicts. With `data`, the name of its column.
    n_bins
        Number of confidence bins.
    labels
        Label of each column of `y_prob`. By default the labels that the columns' names match one
        to one (a name is a label, or ends in it), else the sorted labels.
    positive
        The label whose probability a single column holds, if not the second in sorted order.
    y_pred
        Decisions made elsewhere, for accuracy and deterministic proportional equality. With
        `data`, the name of their column.
    base_rates
        Rates of the training labels, from `group_base_rates`, whose sampling error then counts; by
        default those of `y_true`. Rates given as plain numbers are taken as exact.
    train, train_label
        With `data`: the training labels, as a table or files like `data`, and the name of their
        column if it is not that of `y_true`. Their rates replace `base_rates`.
    reference_group
        The group the others are compared with; by default the largest. "all" takes every pair.
    intervals
        Whether to give confidence intervals.
    level
        Level at which all intervals of a column hold together, and so all verdicts: over groups,
        labels and parts.
    tolerance
        Largest ECE that still counts as calibrated; 0 asks for any error at all.
    seed
        Seed of the draws behind the interval of proportional equality.
    drop_missing
        Leave out rows with a missing value, and report how many; by default they are an error.
    engine
        Library that reads files: "duckdb", "polars" or "spark".
    remote
        Whether `data` and `train` may be addresses of Parquet files, such as "s3://..", which the
        engine then fetches. DuckDB needs its extension httpfs for that, and never installs it.

    Examples
    --------
    >>> report = audit([0, 1, 1, 0], [0.2, 0.9, 0.6, 0.3], sensitive_features=list("abab"))
    >>> report.overall["accuracy"], round(report.groups["a"]["ece"], 3)
    (1.0, 0.3)
    >>> report.verdict.word
    'not enough evidence'
    """
    check_evidence(level, tolerance)
    check_data(train, remote=remote)
    if data is None and train is not None:
        raise ValueError(
            "train goes with data=; for arrays pass base_rates=group_base_rates(y_train, ...)"
        )
    given = (y_true, y_prob, sensitive_features, y_pred, by, sample_weight, clusters)
    options = {"labels": labels, "positive": positive, "n_bins": n_bins}
    options["drop_missing"] = drop_missing
    if data is None:
        tables = tables_of_arrays(*given, **options)
    else:
        options |= {"engine": engine, "remote": remote}
        tables = tables_of_data({None: data}, _columns(*given), **options)
    tables = _with_rates(tables, base_rates, train, train_label, engine=engine, remote=remote)
    evidence = {"level": level, "tolerance": tolerance, "seed": seed, "intervals": intervals}
    return report_models(tables, reference_group, **evidence)[None]


def audit_models(
    y_true: str,
    y_prob: str | Sequence[str],
    *,
    sensitive_features: str | Sequence[str],
    data: Any,
    model: str | None = None,
    by: str | Sequence[str] | None = None,
    sample_weight: str | None = None,
    clusters: str | None = None,
    n_bins: int = 15,
    labels: Any = None,
    positive: Any = None,
    y_pred: str | None = None,
    base_rates: Rates | None = None,
    train: Any = None,
    train_label: str | None = None,
    reference_group: Any = None,
    level: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
    drop_missing: bool = False,
    engine: str = "duckdb",
    remote: bool = False,
) -> AuditReports:
    """Audit the predictions of several models, each as `audit` does.

    Parameters
    ----------
    data
        A dictionary from each model's name to its table or files; or one table or files, with
        the column `model`.
    model
        The column with the name of the model that made the prediction.
    y_true, y_prob, sensitive_features, by, sample_weight, clusters, y_pred
        Names of columns, see `audit`.
    n_bins, labels, positive, base_rates, train, train_label, reference_group, level, tolerance
        As in `audit`.
    seed, drop_missing, engine, remote
        As in `audit`.
    """
    check_evidence(level, tolerance)
    sources = data if isinstance(data, Mapping) else {None: data}
    for source in (*sources.values(), train):
        check_data(source, remote=remote)
    if model is not None and len(sources) > 1:
        raise ValueError(
            "each of several tables is a model, so model= goes with one table; leave it out"
        )
    tables = tables_of_data(
        sources,
        _columns(y_true, y_prob, sensitive_features, y_pred, by, sample_weight, clusters),
        model=model,
        labels=labels,
        positive=positive,
        n_bins=n_bins,
        drop_missing=drop_missing,
        engine=engine,
        remote=remote,
    )
    tables = _with_rates(tables, base_rates, train, train_label, engine=engine, remote=remote)
    return report_models(tables, reference_group, level=level, tolerance=tolerance, seed=seed)


def merge_audits(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    train: Any = None,
    train_label: str | None = None,
    reference_group: Any = None,
    level: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
    engine: str = "duckdb",
    remote: bool = False,
    disjoint_clusters: bool = False,
) -> AuditReports:
    """Add up saved audits of different rows, and report on all rows together.

    Parameters
    ----------
    sources
        Files, folders or patterns of JSON files that hold what `AuditReports.save` (`equipoise
        audit --json`) or `AuditTable.to_dict` wrote.
    train, train_label, reference_group, level, tolerance, seed, engine, remote
        As in `audit`.
    disjoint_clusters
        Promise that no cluster has rows in two of the files. Audits with clusters are added up
        only then, since rows of a cluster in different files would count as independent.
    """
    check_evidence(level, tolerance)
    check_data(train, remote=remote)
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    tables = merged_files(given, keep_rates=train is None, disjoint_clusters=disjoint_clusters)
    tables = _with_rates(tables, None, train, train_label, engine=engine, remote=remote)
    return report_models(tables, reference_group, level=level, tolerance=tolerance, seed=seed)


# --- columns and rates ------------------------------------------------------------------------


def _columns(
    y_true: Any,
    y_prob: Any,
    sensitive_features: Any,
    y_pred: Any,
    by: Any,
    sample_weight: Any,
    clusters: Any,
) -> Columns:
    """Check that the columns of a table are named."""
    lists = {"y_prob": y_prob, "sensitive_features": sensitive_features, "by": by}
    optional = {"y_pred": y_pred, "sample_weight": sample_weight, "clusters": clusters}
    for name, value in ({"y_true": y_true} | optional | lists).items():
        several = name in lists
        listed = several and isinstance(value, list | tuple)
        named = all(isinstance(v, str) for v in (value if listed else [value]))
        if not named and (value is not None or name not in (*optional, "by")):
            raise TypeError(
                f"with data=, {name} is the name of a column{' or a list of names' * several}, "
                f"got {type(value).__name__}"
            )
    return Columns(
        y_true,
        y_prob,
        sensitive_features,
        y_pred,
        () if by is None else by,
        sample_weight,
        clusters,
    )


def _with_rates(
    tables: ModelTables, base_rates: Rates | None, train: Any, label: str | None, **options: Any
) -> ModelTables:
    if train is None:
        if label is not None:
            raise ValueError("train_label names a column of train=; pass both")
        if base_rates is None:
            return tables
        given = base_rates if isinstance(base_rates, GroupRates) else GroupRates(base_rates)
        return dataclasses.replace(tables, base_rates=given)
    if base_rates is not None:
        raise ValueError("base_rates and train both give the rates of the labels; pass one of them")
    return tables.with_training_rates(train, label, **options)
