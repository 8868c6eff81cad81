"""Audit tables of one or several models, whole or in parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from equipoise._files import Stamp
from equipoise._inputs import (
    MOST_GROUPS,
    check_numbers,
    class_count,
    column,
    column_names,
    columns,
    encode,
    encode_clusters,
    encode_labels,
    from_plain,
    matrix,
    refuse_missing,
    same_length,
    shown,
    text_of,
    to_plain,
    too_many_groups,
)
from equipoise.auditing._pushdown import Columns, fill, rates_of
from equipoise.metrics import PRODUCTS, TABLE_FORMAT, AuditTable, GroupRates, check_sources

Key = tuple[Any, ...]
Nested = dict[Hashable, dict[Hashable, float]]


@dataclasses.dataclass
class ModelTables:
    """The sums behind the reports of an audit.

    Attributes
    ----------
    tables
        ``tables[model][values of the columns by]``. A model without a name is None; without `by`
        there is one table, with the key ().
    by
        Names of the columns that split the rows.
    dropped
        For each model, the number of rows left out because a value is missing.
    columns
        The columns that were read: "label", "prob", "group", "pred", "weight" and "cluster"; empty
        for arrays.
    base_rates
        Rates of the training labels, if proportional equality compares with these.
    unnamed
        Number of rows left out that belong to none of the models.
    wholes
        With clusters and `by`: the table of all rows of each model. It is not the sum of its parts,
        since a cluster may be in several of them.
    files
        For each model, the local files that were read.
    sources
        For each model whose sums were read from saved audits, the fingerprints in these.
    """

    tables: dict[str | None, dict[Key, AuditTable]]
    by: tuple[str, ...] = ()
    dropped: dict[str | None, int] = dataclasses.field(default_factory=dict)
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base_rates: GroupRates | None = None
    unnamed: int = 0
    wholes: dict[str | None, AuditTable] = dataclasses.field(default_factory=dict)
    files: dict[str | None, tuple[Stamp, ...]] = dataclasses.field(default_factory=dict)
    sources: dict[str | None, frozenset[str]] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """Label of each class."""
        return next(iter(next(iter(self.tables.values())).values())).labels

    def whole(self, model: str | None) -> AuditTable:
        """Return the table of all rows of a model."""
        if model in self.wholes:
            return self.wholes[model]
        return AuditTable.total(list(self.tables[model].values()))

    def fingerprints(self) -> dict[str | None, list[str]]:
        """Return for each model what its rows were read from, each a SHA-256 and a name.

        Local files are hashed now. Where there are none, or one was changed since, the sums are.
        """
        hashed = cache(Stamp.fingerprint)
        found = {}
        for model in self.tables:
            own = [hashed(file) for file in self.files.get(model, ())]
            known = [text for text in own if text is not None]
            if model in self.sources:
                known = list(self.sources[model])
            elif not own or len(known) < len(own):
                known = [self.whole(model).fingerprint]
            found[model] = sorted(set(known))
        return found

    def with_training_rates(self, train: Any, label: str | None, **options: Any) -> ModelTables:
        """Return these tables with the rates of training labels; `options` as in `rates_of`."""
        label = label or self.columns.get("label")
        if label is None or "group" not in self.columns:
            raise ValueError(
                "these tables do not name their columns, so the columns of train are unknown"
            )
        group = tuple(self.columns["group"])
        rates = rates_of(train, label, group, labels=self.labels, **options)
        return dataclasses.replace(self, base_rates=rates)

    def rates_for(self, table: AuditTable) -> GroupRates | None:
        """Return the training rates of a table's groups and labels, matched by their text."""
        if self.base_rates is None:
            return None
        rates, counts = self.base_rates.rates, self.base_rates.counts
        place = {_texts(g): g for g in rates}
        lacking = [g for g in table.groups if _texts(g) not in place]
        if lacking:
            known = "; ".join(shown(g) for g in list(rates)[:20])
            raise ValueError(
                f"the training labels have no rows of group {shown(lacking[0])!r}; "
                f"their groups are {known}"
            )

        def of_table(values: Mapping[Hashable, Mapping[Hashable, float]]) -> Nested:
            found: Nested = {}
            for group in table.groups:
                own = {_texts(k): v for k, v in values[place[_texts(group)]].items()}
                found[group] = {k: own.get(_texts(k), 0.0) for k in table.labels}
            return found

        return GroupRates(of_table(rates), None if counts is None else of_table(counts))

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads beside the reports: columns and training rates."""
        rates = None
        if self.base_rates is not None:
            counts = self.base_rates.counts
            rates = [
                {
                    "group": to_plain(g),
                    "rates": _listed(own),
                    "counts": None if counts is None else _listed(counts[g]),
                }
                for g, own in self.base_rates.rates.items()
            ]
        return {"columns": {**self.columns, "by": list(self.by)}, "base_rates": rates}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelTables:
        """Read the tables of an audit that was written, or a table of `AuditTable.to_dict`."""
        if data.get("format") == TABLE_FORMAT:
            _limit_groups([data])
            table = AuditTable.from_dict(data)
            return cls({None: {(): table}}, dropped={None: 0}, sources={None: table.sources})
        names = dict(data["columns"])
        by = tuple(names.pop("by"))
        found = cls({}, by, columns=names)
        for own in data["models"]:
            if not isinstance(own, dict):
                raise ValueError("a model is not a table of figures")
            model = own["model"]
            if model in found.tables or not isinstance(model, str | None):
                raise ValueError("a model is there twice, or its name is not text")
            parts = [(p["key"], p["report"]) for p in own["by"]] if by else [([], own)]
            _limit_groups([part["table"] for _, part in parts])
            found.tables[model] = {from_plain(key): _read(part["table"]) for key, part in parts}
            if len(found.tables[model]) < max(1, len(parts)) or any(
                not isinstance(key, tuple) or len(key) != len(by) for key in found.tables[model]
            ):
                raise ValueError("a part is there twice, has another key, or there is none")
            found.dropped[model] = _count(own["dropped"])
            found.sources[model] = check_sources(own["sources"])
            if by and next(iter(found.tables[model].values())).clustered:
                whole = found.wholes[model] = _read(own["table"])
                parts_rows = sum(int(t.sums["rows"].sum()) for t in found.tables[model].values())
                if parts_rows != int(whole.sums["rows"].sum()):
                    raise ValueError("its parts do not add up to all rows")
        if not found.tables:
            raise ValueError("it holds no tables")
        if data["base_rates"] is not None:
            known = all(r["counts"] is not None for r in data["base_rates"])
            rates, counts = (
                {
                    from_plain(r["group"]): {from_plain(k): float(v) for k, v in r[what]}
                    for r in data["base_rates"]
                    if r[what] is not None
                }
                for what in ("rates", "counts")
            )
            found.base_rates = GroupRates(rates, counts if known else None)
        return found


def _limit_groups(tables: Iterable[Mapping[str, Any]]) -> None:
    """Refuse too many groups, before their sums are read."""
    count = sum(len(table["groups"]) for table in tables)
    if count > MOST_GROUPS:
        raise too_many_groups("the group", MOST_GROUPS, count)


def _read(data: Mapping[str, Any]) -> AuditTable:
    # the model has sources of its own
    return dataclasses.replace(AuditTable.from_dict(data), sources=frozenset())


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of rows is not a whole number")
    return value


def _listed(values: Mapping[Hashable, float]) -> list[list[Any]]:
    return [[to_plain(k), v] for k, v in values.items()]


def _texts(value: Any) -> tuple[str | None, ...]:
    return tuple(map(text_of, value)) if isinstance(value, tuple) else (text_of(value),)


# --- filled ----------------------------------------------------------------------------------


def tables_of_arrays(
    y_true: Any,
    y_prob: Any,
    sensitive_features: Any,
    y_pred: Any,
    by: Any,
    sample_weight: Any,
    clusters: Any,
    *,
    drop_missing: bool,
    **options: Any,
) -> ModelTables:
    """Sum up arrays, as `audit` takes them; `options` are those of `AuditTable.from_arrays`."""
    for value in (y_true, y_prob, sensitive_features, sample_weight, clusters, by):
        if isinstance(value, str):
            raise TypeError(f"{value!r} is the name of a column; pass data= with its table too")
    arrays = {
        "y_true": y_true,
        "y_pred": y_pred,
        "sample_weight": sample_weight,
        "clusters": clusters,
    }
    options["most_groups"] = MOST_GROUPS
    if by is None and not drop_missing:
        table = AuditTable.from_arrays(
            y_prob=y_prob, sensitive_features=sensitive_features, **arrays, **options
        )
        return ModelTables({None: {(): table}}, dropped={None: 0})
    prob = matrix(y_prob, "y_prob")
    keys = {} if by is None else _named_columns(by, "by")
    members = _named_columns(sensitive_features, "sensitive_features")
    arrays = {name: None if v is None else column(v, name) for name, v in arrays.items()}
    kept = _sound_rows(prob, arrays, keys | members, drop_missing=drop_missing)
    arrays = {name: None if v is None else v[kept] for name, v in arrays.items()}
    groups = {name: values[kept] for name, values in (keys | members).items()}
    _, options["labels"] = encode_labels(
        arrays["y_true"],
        class_count(prob),
        options["labels"],
        columns=column_names(y_prob),
        positive=options.pop("positive"),
    )

    def table_of(names: Iterable[str]) -> AuditTable:
        own = {name: groups[name] for name in names}
        return AuditTable.from_arrays(
            y_prob=prob[kept], sensitive_features=own, **arrays, **options
        )

    # parts are groups at first, so that one pass sums up all of them
    table = table_of(groups)
    found = ModelTables({None: {(): table}}, dropped={None: int((~kept).sum())})
    if by is not None:
        found.by = tuple(keys)
        parts = _parts(table, len(keys), len(members))
        if table.clustered:
            # a cluster may be in several groups and parts, so its rows are added up for each
            pooled = table_of(keys)
            for i, key in enumerate(pooled.groups):
                own = key if isinstance(key, tuple) else (key,)
                units = {name: pooled.sums[name][[i]] for name in PRODUCTS}
                parts[own] = dataclasses.replace(parts[own], pooled_units=units)
            found.wholes[None] = table_of(members)
        found.tables[None] = parts
    return found


def _named_columns(values: Any, name: str) -> dict[str, Any]:
    return {f"{name}, column {j}": col for j, col in enumerate(columns(values, name))}


def _sound_rows(
    prob: Any, arrays: Mapping[str, Any], groups: Mapping[str, Any], *, drop_missing: bool
) -> Any:
    """Return which rows lack no value; without `drop_missing`, raise where a group is missing.

    `AuditTable.from_arrays` raises for other missing values.
    """
    n = len(prob)
    same_length(n, **arrays, **groups)
    kept = np.ones(n, bool)
    for name, values in groups.items():
        codes, _ = encode(values, name)
        if not drop_missing:
            refuse_missing(codes, name)
        kept &= codes >= 0
    if drop_missing:
        kept &= ~np.isnan(prob).reshape(n, -1).any(1)
        for name in ("y_true", "y_pred"):
            if arrays[name] is not None:
                kept &= encode(arrays[name], name)[0] >= 0
        if arrays["clusters"] is not None:
            kept &= encode_clusters(arrays["clusters"]) >= 0
        if arrays["sample_weight"] is not None:
            kept &= ~np.isnan(check_numbers(arrays["sample_weight"], "sample_weight"))
        if not kept.any():
            raise ValueError(f"each of the {n:,} rows has a missing value; none is left to audit")
    return kept


def _parts(table: AuditTable, n_by: int, n_members: int) -> dict[Key, AuditTable]:
    """Split a table whose groups are tuples: the values of `by`, then those of the group."""
    places: dict[Key, list[int]] = {}
    for i, group in enumerate(table.groups):
        assert isinstance(group, tuple)
        places.setdefault(group[:n_by], []).append(i)
    found = {}
    for key, at in places.items():
        rest = [table.groups[i][n_by:] for i in at]  # type: ignore[index]
        groups = tuple(g if n_members > 1 else g[0] for g in rest)
        sums = {name: array[at] for name, array in table.sums.items()}
        found[key] = dataclasses.replace(table, groups=groups, sums=sums, pooled_units=None)
    return found


def tables_of_data(
    sources: Mapping[str | None, Any], columns: Columns, *, model: str | None = None, **options: Any
) -> ModelTables:
    """Sum up a source for each model, or one with a column of models; `options` as in `fill`."""
    about = {
        "label": columns.label,
        "prob": list(columns.prob),
        "group": list(columns.group),
        "pred": columns.pred,
        "weight": columns.weight,
        "cluster": columns.cluster,
    }
    found = ModelTables({}, columns.by, columns=about)
    if model is not None:
        columns = dataclasses.replace(columns, by=(model, *columns.by))
    for name, source in sources.items():
        filled = fill(source, columns, apart=int(model is not None), **options)
        for key, table in filled.wholes.items():
            found.wholes[name if model is None else shown(key[0])] = table
        for key, table in filled.tables.items():
            own, rest = (name, key) if model is None else (shown(key[0]), key[1:])
            found.tables.setdefault(own, {})[rest] = table
            found.dropped[own] = filled.dropped
            found.files[own] = filled.files
        if model is not None:
            for own in found.dropped:
                lost = filled.dropped_by.items()
                found.dropped[own] = sum(n for key, n in lost if shown(key[0]) == own)
            found.unnamed = filled.dropped - sum(found.dropped.values())
    return found
