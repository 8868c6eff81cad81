"""The columns of a source: their roles, types and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import mul
from typing import Any

import narwhals as nw
import numpy as np

from equipoise._files import Opened, identifier, number
from equipoise._inputs import (
    MISSING,
    InputError,
    check_column,
    column_labels,
    encode,
    match,
    text_of,
    to_plain,
    typed,
)
from equipoise.auditing._pushdown._cells import Answer, plain
from equipoise.auditing._pushdown._periods import KNOWN, TEXTS, cut, in_utc, period_of, split_period
from equipoise.auditing._pushdown._query import Coding, Frame, is_nan, on_edges

MOST_LABELS = 10_000
"""Most distinct values of a column of labels."""

NUMBERS = {"p": "probabilities", "w": "weights"}
"""Roles of columns of numbers, by their first letter."""

SAMPLE = 10_000
"""First rows that the labels are learnt from; the query shows if other rows have more."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of the columns of a table by their roles."""

    label: str
    prob: tuple[str, ...]  # one, of the second label, or one for each of K labels
    group: tuple[str, ...]  # of several, their intersection is meant, and a group is a tuple
    pred: str | None = None  # decisions made elsewhere, which replace the most probable class
    by: tuple[str, ...] = ()  # each combination of their values has a table of its own
    weight: str | None = None
    cluster: str | None = None  # ids of what rows belong to, such as persons

    def __post_init__(self) -> None:
        for name in ("prob", "group", "by"):
            value = getattr(self, name)
            value = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, name, value)
            if twice := [v for i, v in enumerate(value) if v in value[:i]]:
                raise ValueError(f"column {twice[0]!r} is given twice as {name}")
        if not self.prob:
            raise ValueError("prob names no column; pass the column(s) of the probabilities")

    @property
    def roles(self) -> dict[str, str]:
        """The names that queries use, and the columns they stand for."""
        single = len(self.prob) == 1
        roles = {f"b{i}": name for i, name in enumerate(self.by)}
        roles |= {f"g{i}": name for i, name in enumerate(self.group)}
        roles |= {"l": self.label} | ({} if self.pred is None else {"d": self.pred})
        roles |= {f"p{k + single}": name for k, name in enumerate(self.prob)}
        others = {"w": self.weight, "c": self.cluster}
        return roles | {role: name for role, name in others.items() if name is not None}

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that queries group by."""
        return tuple(role for role in self.roles if role[0] in "bg")


def prepared(
    source: Opened, roles: Mapping[str, str], n_bins: int = 1
) -> tuple[Frame, dict[str, Any]]:
    """Return the columns named by their roles, and their types.

    Probabilities and weights are float64; a CSV file's cells of these are the columns tp0, .. too.
    """
    schema = source.frame.collect_schema()
    names = [str(name) for name in schema.names()]
    kinds = dict(zip(names, schema.dtypes(), strict=True))
    engine = source.frame.implementation
    hidden = [number(name) for name in roles.values()] if source.is_text else []
    units = periods_of(source, roles)
    frame, own = plainly_named(source.frame)

    def col(name: str) -> nw.Expr:
        return nw.col(own[name])

    chosen, types = [], {}
    for role, given in roles.items():
        name, unit = split_period(given, names) if role in units else (given, None)
        check_column(name, [n for n in names if n not in hidden])
        twins = [n for n in names if n.casefold() == name.casefold()]
        if len(twins) > 1 and isinstance(source.frame, nw.LazyFrame) and not engine.is_polars():
            raise ValueError(
                f"there are columns {' and '.join(map(repr, twins))}, which databases take for "
                "one; rename one of them"
            )
        kind = types[role] = kinds[name]
        column = col(name)
        if role[0] in NUMBERS:
            if source.is_text:
                column = col(number(name))
            elif not (kind.is_numeric() or kind == nw.Boolean):
                raise TypeError(
                    f"column {name!r} holds {kind}, not {NUMBERS[role[0]]}; pass a column of "
                    "numbers"
                )
            short = role[0] == "p" and kind.is_float() and kind != nw.Float64
            column = on_edges(column, kind, n_bins) if short else column.cast(nw.Float64)
        elif unit is not None:
            frame = in_utc(frame, own[name], kind, is_file=source.is_file)
            column = cut(column, name, unit, kind, source)
            types[role] = nw.String() if kind in TEXTS else nw.Float64()
        elif kind == nw.Date and role[0] == "b":
            column = column.cast(nw.String)  # as a CSV file has it
        elif kind == nw.Datetime and role[0] == "b":
            raise InputError(
                f"column {name!r} holds timestamps ({kind}), too many to split the rows by",
                f"cut them to periods with by='{name}:month' ({KNOWN})",
                f"cut them to periods with --by {name}:month ({KNOWN})",
            )
        elif kind.is_temporal():
            raise TypeError(
                f"column {name!r} holds dates or times ({kind}); make groups of them first, for "
                "example the year as a number or the month as text"
            )
        elif kind.is_nested() or kind == nw.Binary:
            raise TypeError(
                f"column {name!r} holds {kind}; groups and labels are text, numbers or truth values"
            )
        elif kind in (nw.Categorical, nw.Enum) and not engine.is_pandas_like():
            # PyArrow gives a missing value of a dictionary column another row's value
            column = column.cast(nw.String)
        chosen.append(column.alias(role))
        if source.is_text and role[0] in NUMBERS:
            chosen.append(col(name).alias(f"t{role}"))
    return frame.select(*chosen), types


def plainly_named(frame: Frame) -> tuple[Frame, dict[str, Any]]:
    """Return the columns under names that no engine interprets, by the names they had.

    DuckDB, Spark and polars take names such as `*`, `a.b` or `^x$` for more than a name.
    """
    native, engine = frame.to_native(), frame.implementation
    names = frame.collect_schema().names()
    plain = [f"column{i}" for i in range(len(names))]
    if engine.is_pyspark():
        frame = nw.from_native(native.toDF(*plain))
    elif engine.is_duckdb():
        pairs = zip(map(identifier, names), plain, strict=True)
        frame = nw.from_native(native.project(", ".join(f"{n} AS {p}" for n, p in pairs)))
    elif engine.is_polars():
        frame = frame.select(*(nw.nth(i).alias(p) for i, p in enumerate(plain)))
    else:
        plain = names
    return frame, dict(zip(map(str, names), plain, strict=True))


def periods_of(source: Opened, roles: Mapping[str, str]) -> dict[str, str]:
    """Return the unit of each column that splits the rows and is cut to periods."""
    hidden = [number(name) for name in roles.values()] if source.is_text else []
    names = [str(name) for name in source.frame.collect_schema().names()]
    names = [name for name in names if name not in hidden]
    found = {role: split_period(n, names)[1] for role, n in roles.items() if role[0] == "b"}
    return {role: unit for role, unit in found.items() if unit is not None}


def missing(role: str, types: Mapping[str, Any], source: Opened) -> nw.Expr:
    """Tell whether a column has no value."""
    column = nw.col(role)
    flag = column.is_null()
    if source.is_text:
        text = nw.col(f"t{role}") if role[0] in NUMBERS else column
        return text.is_null() | text.str.strip_chars().is_in(sorted(MISSING))
    if role[0] in NUMBERS or types[role].is_float():
        flag = flag | is_nan(column)
    return flag


def with_checks(
    frame: Frame, roles: Mapping[str, str], types: Mapping[str, Any], source: Opened
) -> Frame:
    """Add `ok`, 1 where weight and cluster are sound, and make weights that are not 0."""
    flags = []
    if "w" in roles:
        w = nw.col("w")
        flags.append(nw.when(w.is_finite() & (w >= 0.0)).then(1.0).otherwise(0.0))
    if "c" in roles:
        flags.append(nw.when(missing("c", types, source)).then(0.0).otherwise(1.0))
    frame = frame.with_columns(ok=reduce(mul, flags))
    if "w" in roles:
        frame = frame.with_columns(w=nw.when(nw.col("ok") > 0.0).then(nw.col("w")).otherwise(0.0))
    return frame


def collected(frame: Frame) -> Any:
    """Run a query: a narwhals frame, or an `Answer`."""
    if isinstance(frame, nw.DataFrame):
        return frame
    if frame.implementation.is_duckdb():
        return Answer(frame.to_native())
    options = {"engine": "streaming"} if frame.implementation.is_polars() else {}
    return frame.collect(**options)


class Values:
    """The values of one column: `value` maps those of the engine to their final form."""

    def __init__(self, raw: Iterable[Any], name: str, *, is_file: bool, is_text: bool) -> None:
        try:
            raws = list(dict.fromkeys(plain(v) for v in raw))
        except TypeError:
            raise TypeError(
                f"column {name!r} holds values that are not plain; groups and labels are text, "
                "numbers or truth values"
            ) from None
        self.value: dict[Any, Any]
        if is_file:
            try:
                texts = {v: text_of(v) for v in raws}
            except TypeError as error:
                raise TypeError(f"column {name!r} {error}") from None
            if is_text:
                for v in raws:
                    # one engine would read the quotes as such, another as part of the name
                    if v and v.lstrip() != v and v.lstrip().startswith('"'):
                        raise ValueError(
                            f"column {name!r} has the cell {v!r}: quotes stand at the beginning of "
                            "a cell, without a space before them"
                        )
                texts = {v: None if t in MISSING else t for v, t in texts.items()}
            final = typed(sorted({t for t in texts.values() if t is not None}))
            self.value = {v: None if t is None else final[t] for v, t in texts.items()}
        else:
            array = np.empty(len(raws), dtype=object)
            array[:] = raws
            codes, values = encode(array, f"column {name!r}")
            self.value = {v: None if c < 0 else values[c] for v, c in zip(raws, codes, strict=True)}
            for v in values:
                try:
                    to_plain(v)
                except TypeError as error:
                    raise TypeError(f"column {name!r}: {error}") from None
        self.sorted: list[Any] = sorted({v for v in self.value.values() if v is not None})


class Periods(Values):
    """The values of a column that was cut to periods."""

    def __init__(self, raw: Iterable[Any], name: str, unit: str, *, is_text: bool) -> None:
        self.value = {}
        for value in dict.fromkeys(plain(v) for v in raw):
            lacks = value is None or (is_text and value.strip() in MISSING)
            self.value[value] = None if lacks else period_of(value, name, unit)
        self.sorted = sorted({v for v in self.value.values() if v is not None})


def coding_of(values: Values, columns: Columns, kind: Any, *, labels: Any, positive: Any) -> Coding:
    """Return the class of each value of the column of labels."""
    present = values.sorted
    if labels is not None:
        labels = match(labels, present)
        # other labels are reported with their number, once rows are counted
        present = [v for v in present if v in labels]
    labels = column_labels(
        present,
        max(2, len(columns.prob)),
        columns=columns.prob,
        labels=labels,
        positive=positive,
        name=f"column {columns.label!r}",
    )
    # in an order of their own, so that equal values make equal codings
    known = sorted(values.value.items(), key=repr)
    raw = tuple(tuple(r for r, v in known if v is not None and v == label) for label in labels)
    return Coding(labels, raw, _first(labels) if kind.is_integer() else None)


def _first(labels: tuple[Any, ...]) -> int | None:
    """Return the first of consecutive integers, None for other labels."""
    if any(isinstance(v, bool) or not isinstance(v, int) for v in labels):
        return None
    return labels[0] if labels == tuple(range(labels[0], labels[0] + len(labels))) else None


def coding_like(coding: Coding, values: Values, kind: Any) -> Coding:
    """Return the class of each value of a column of decisions, matched by text."""
    place = {text_of(label): k for k, label in enumerate(coding.labels)}
    raw: list[list[Any]] = [[] for _ in coding.labels]
    for own, value in sorted(values.value.items(), key=repr):
        # by value too, since 1 is True
        same = value in coding.labels
        at = coding.labels.index(value) if same else place.get(text_of(value))
        if value is not None and at is not None:
            raw[at].append(own)
    first = coding.first if kind.is_integer() else None
    return Coding(coding.labels, tuple(map(tuple, raw)), first)
