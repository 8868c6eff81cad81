"""Encoding of a table of any types as a matrix of numbers, and of new rows in the same way."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    InputError,
    alternatives,
    counted,
    encode,
    encode_groups,
    from_plain,
    refuse_missing,
    shown,
    to_plain,
)
from equipoise.datasets._cells import as_text
from equipoise.datasets._column import KINDS, Column
from equipoise.datasets._reading import read_column
from equipoise.datasets._source import Source

MAX_CLASSES = 100
_FORMAT = "equipoise.FrameEncoder/2"
_WORDS = {"text": "hashed text", "drop": "left out"}


class Explained(NamedTuple):
    """How one column was read."""

    column: str
    read_as: str  # "number", "category", "hashed text", "date", "left out", "label" or "group"
    detail: str
    missing: int  # number of missing values
    advice: str  # the kind to ask for if the reading is in doubt
    notable: bool  # whether there is more to say than the kind


def _positions(
    table: Source, columns: Sequence[str], known: Sequence[Hashable]
) -> NDArray[np.int64]:
    """Return each row's position among the known values; -1 if it is missing or not there."""
    # compared as text: one stray word turns a whole column of numbers into text
    keys = [tuple(map(as_text, v if isinstance(v, tuple) else (v,))) for v in known]
    codes = np.zeros(table.rows, np.int64)
    found: dict[tuple[str, ...], int] = {(): 0}
    for j, name in enumerate(columns):
        texts = {key[j]: None for key in keys}
        local, values = table.coded(name)
        own = np.array([*table.places(values, [*texts]), -1], np.int64)[local]
        at = {text: i for i, text in enumerate(texts)}
        # by the place of the columns before, then that of the text; -1 is the last
        longer = {key[: j + 1]: None for key in keys}
        lookup = np.full((len(found) + 1, len(texts) + 1), -1, np.int64)
        for i, key in enumerate(longer):
            lookup[found[key[:j]], at[key[j]]] = i
        codes, found = lookup[codes, own], {key: i for i, key in enumerate(longer)}
    return codes


@dataclasses.dataclass(frozen=True)
class FrameEncoder:
    """Encodes rows of a table in the same way as the rows it was fitted on.

    Attributes
    ----------
    columns
        The columns that are neither label nor group, in order, also those left out.
    label, class_names
        The label's column, and the labels that 0, 1, ... stand for.
    group, group_names
        The sensitive columns, and the groups that 0, 1, ... stand for: values of the one column,
        tuples of several.
    """

    columns: tuple[Column, ...]
    label: str
    class_names: tuple[Hashable, ...]
    group: tuple[str, ...]
    group_names: tuple[Hashable, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns that `transform` gives."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def transform(self, data: Any) -> NDArray[np.float32]:
        """Return X of a table or file, (row, feature), raw.

        Only the feature columns are needed. A category that was not in the fitted table gives
        zeros; text that is no number or date in a column of such is an error.
        """
        table = Source.of(data)
        X = np.empty((table.rows, len(self.feature_names)), np.float32)
        start = 0
        for column in self.columns:
            if column.kind == "drop":
                continue
            stop = start + len(column.feature_names)
            X[:, start:stop] = column.transform(table)
            start = stop
        return X

    def explained(self) -> list[Explained]:
        """Return how each column was read: the label, the groups, then the others in order.

        Examples
        --------
        >>> from equipoise.datasets import Dataset
        >>> frame = {"id": range(21), "pay": ["1,200", "900", "1,050"] * 7, "sex": [0, 1, 1] * 7,
        ...          "paid": [0, 1, 1] * 7}
        >>> import polars as pl
        >>> encoder = Dataset.from_frame(pl.DataFrame(frame), label="paid", group="sex").encoder
        >>> for row in encoder.explained():
        ...     print(row.column, row.read_as, row.detail, sep=" | ")
        paid | label | 2 classes: 0, 1
        sex | group | 2 groups: 0, 1
        id | left out | row number
        pay | number | text in the form 1,234.5; the comma in 1,050 taken as thousands
        """
        rows = [Explained(self.label, "label", _named(self.class_names, "class"), 0, "", False)]
        groups = _named(self.group_names, "group")
        rows += [Explained(name, "group", groups, 0, "", False) for name in self.group]
        for c in self.columns:
            values = counted(len(c.categories), "value") if c.kind == "category" else ""
            detail = "; ".join(filter(None, (values, c.note)))
            read_as = _WORDS.get(c.kind, c.kind)
            rows.append(Explained(c.name, read_as, detail, c.missing, c.advice, bool(c.note)))
        return rows

    def labels(self, data: Any) -> NDArray[np.int64]:
        """Return the label of each row as a position in `class_names`; -1 if it is not there."""
        return _positions(Source.of(data), (self.label,), self.class_names)

    def groups(self, data: Any) -> NDArray[np.int64]:
        """Return the group of each row as a position in `group_names`; -1 if it is not there."""
        return _positions(Source.of(data), self.group, self.group_names)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as plain numbers, strings and lists, ready for JSON."""
        return {
            "format": _FORMAT,
            "columns": [
                dataclasses.asdict(c) | {"categories": list(c.categories)} for c in self.columns
            ],
            "label": self.label,
            "class_names": [to_plain(v) for v in self.class_names],
            "group": list(self.group),
            "group_names": [to_plain(v) for v in self.group_names],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FrameEncoder:
        """Read what `to_dict` wrote; anything else is refused."""
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise ValueError(f"not an encoder: expected 'format': {_FORMAT!r}")
        try:
            columns = tuple(
                Column(**{**column, "categories": tuple(column["categories"])})
                for column in data["columns"]
            )
            for column in columns:
                column.check()
            classes, group, groups = (
                tuple(map(from_plain, data[k])) for k in ("class_names", "group", "group_names")
            )
            if not all(isinstance(name, str) for name in (data["label"], *group)):
                raise TypeError("the label and the groups must be names of columns")
            return cls(columns, data["label"], classes, group, groups)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"damaged encoder: {error!r}") from None


def _named(names: Sequence[Hashable], what: str) -> str:
    plural = f"{what}{'es' if what.endswith('s') else 's'}"
    more = ", ..." * (len(names) > 6)
    return f"{len(names)} {plural}: {', '.join(shown(v) for v in names[:6])}{more}"


# --- fitting ---------------------------------------------------------------------------------


def fit_encoder(
    table: Source,
    *,
    label: str,
    group: tuple[str, ...],
    include_group: bool = False,
    drop: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    max_categories: int = 64,
    hash_columns: int = 32,
) -> FrameEncoder:
    """Learn from a table how to encode it; `Dataset.from_frame` describes the arguments."""
    if isinstance(drop, str):
        raise TypeError("drop is a list of columns, not one name")
    kinds = dict(kinds or {})
    if max_categories < 1 or hash_columns < 1:
        raise ValueError("max_categories and hash_columns are at least 1")
    if not table.rows:
        raise ValueError(f"{table.title or 'the table'} has no rows")
    if not group:
        raise ValueError("group names no column")
    for name in (label, *group, *drop, *kinds):
        table.check(name)
    if label in group:
        raise ValueError(f"column {label!r} cannot be both label and group")
    for name in drop:
        if name in (label, *group):
            what = "label" if name == label else "group"
            raise ValueError(f"column {name!r} is the {what}, so it cannot be left out")

    for name in group:
        what = f"group {name!r}"
        refuse_missing(encode(table[name], what)[0], what)
    classes = _several(*encode(table[label], f"label {label!r}"), f"label {label!r}")
    what = "group " + " and ".join(repr(name) for name in group)
    groups = _several(*encode_groups({name: table[name] for name in group}), what)
    if len(classes) > MAX_CLASSES:
        raise ValueError(
            f"label {label!r} has {len(classes):,} distinct values, more than {MAX_CLASSES}; "
            "name a column of classes, or bin the numbers first"
        )

    features = [
        name for name in table.names if name != label and (include_group or name not in group)
    ]
    _check_kinds(kinds, features, drop)
    kinds |= dict.fromkeys(drop, "drop")
    columns = tuple(
        Column(name, "drop", note="by request")  # not converted: it may hold anything
        if kinds.get(name) == "drop"
        else read_column(table[name], name, kinds.get(name), max_categories, hash_columns)
        for name in features
    )
    if all(column.kind == "drop" for column in columns):
        why = "; ".join(f"{shown(c.name)} ({c.note})" for c in columns[:5])
        raise InputError(
            f"no column is left as a feature{f', left out are {why}' * bool(why)}",
            "keep one with kinds={column: kind}",
            "keep one with --as KIND:COLUMN",
        )
    return FrameEncoder(columns, label, classes, group, groups)


def _check_kinds(kinds: Mapping[str, str], features: Sequence[str], drop: Sequence[str]) -> None:
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise ValueError(f"there is no kind {kind!r} of column; {alternatives(kind, KINDS)}")
        if name not in features:
            raise InputError(
                f"column {name!r} is the label or a group and no feature, so it has no kind",
                "leave it out of kinds, or pass include_group=True if it is a group",
                "leave out its --as, or pass --include-group if it is a group",
            )
        if name in drop and kind != "drop":
            raise ValueError(f"column {name!r} cannot be both dropped and read as {kind}")


def _several(codes: NDArray[Any], values: Sequence[Any], what: str) -> tuple[Hashable, ...]:
    refuse_missing(codes, what)
    if len(values) < 2:
        raise ValueError(f"{what} has only one value, {values[0]!r}; two or more are needed")
    return tuple(values)
