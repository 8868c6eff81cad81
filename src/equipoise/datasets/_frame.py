"""Encoding of a table of any types as a matrix of numbers, and of new rows in the same way."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import hashlib
import numbers
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import encode, encode_groups, from_plain, recode, refuse_missing, to_plain
from equipoise.datasets._source import Source, looks_like_dates

KINDS = ("number", "category", "hash")
MAX_CLASSES = 100
_FORMAT = "equipoise.FrameEncoder/1"


@dataclasses.dataclass(frozen=True)
class Column:
    """How one column of a table becomes columns of X."""

    name: str
    kind: str  # "number", "category" (a column per value) or "hash" (of the words)
    categories: tuple[str, ...] = ()  # the values of a "category", as text
    width: int = 0  # number of columns of a "hash"
    missing: bool = False  # whether a missing value has its own column; a missing number is NaN

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""
        if self.kind == "number":
            return [self.name]
        names = [f"{self.name}={c}" for c in self.categories]
        names += [f"{self.name}#{j}" for j in range(self.width)]
        return names + [f"{self.name} missing"] * self.missing

    def transform(self, array: NDArray[Any]) -> NDArray[np.float32]:
        """Return the columns of X, (row, column)."""
        if self.kind == "number":
            return _numbers(array, self.name)[:, None]
        codes, values = encode(array, f"column {self.name!r}")
        # one row for each distinct value; the last is that of a missing one, whose code is -1
        rows = np.zeros((len(values) + 1, len(self.feature_names)), np.float32)
        if self.missing:
            rows[-1, -1] = 1
        place = {category: j for j, category in enumerate(self.categories)}
        for row, value in zip(rows, map(_as_text, values), strict=False):
            if self.kind == "hash":
                for word in value.casefold().split():
                    row[_hash(word) % self.width] += 1
            elif value in place:
                row[place[value]] = 1
        return np.asarray(rows[codes])


def _as_text(value: Any) -> str:
    # 1 and 1.0 are the same category: a column of integers becomes floats when a value is missing
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _positions(
    table: Source, columns: Sequence[str], known: Sequence[Hashable]
) -> NDArray[np.int64]:
    """Return each row's position among the known values; -1 if it is missing or not there."""
    codes, values = encode_groups({name: table[name] for name in columns}, allow_missing=True)
    # compared as text: one stray word turns a whole column of numbers into text
    return recode(codes, [*map(_key, values)], [*map(_key, known)]).astype(np.int64)


def _key(value: Any) -> Any:
    return tuple(_as_text(v) for v in value) if isinstance(value, tuple) else _as_text(value)


def _hash(word: str) -> int:
    # unlike hash(), the same in every process
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _numbers(array: NDArray[Any], name: str) -> NDArray[np.float32]:
    if array.dtype.kind not in "iufb":
        codes, values = encode(array, f"column {name!r}")
        numbers = np.full(len(values) + 1, np.nan)
        for i, value in enumerate(values):
            try:
                numbers[i] = float(value)
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {name!r} is of numbers, but row {int(np.argmax(codes == i))} has "
                    f"{value!r}; correct it, or leave it empty if it is missing"
                ) from None
        array = numbers[codes]
    with np.errstate(over="ignore"):
        result = array.astype(np.float32)
    if np.isinf(result).any():
        row = int(np.argmax(np.isinf(result)))
        raise ValueError(
            f"column {name!r}, row {row}: {array[row]} is infinite or too large; "
            "replace it, or leave it empty if it is missing"
        )
    return result


@dataclasses.dataclass(frozen=True)
class FrameEncoder:
    """Encodes rows of a table in the same way as the rows it was fitted on.

    Attributes
    ----------
    columns
        The feature columns, in order.
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
        zeros.
        """
        table = Source.of(data)
        X = np.empty((table.rows, len(self.feature_names)), np.float32)
        start = 0
        for column in self.columns:
            stop = start + len(column.feature_names)
            X[:, start:stop] = column.transform(table[column.name])
            start = stop
        return X

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
            if any(c.kind not in KINDS or (c.kind == "hash" and c.width < 1) for c in columns):
                raise ValueError("a column has no kind, or no width to hash it to")
            classes, group, groups = (
                tuple(map(from_plain, data[k])) for k in ("class_names", "group", "group_names")
            )
            return cls(columns, data["label"], classes, group, groups)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"damaged encoder: {error!r}") from None


# --- fitting ---------------------------------------------------------------------------------


def fit_encoder(
    table: Source,
    *,
    label: str,
    group: tuple[str, ...],
    include_group: bool = False,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    max_categories: int = 64,
    hash_columns: int = 32,
) -> FrameEncoder:
    """Learn from a table how to encode it; `Dataset.from_frame` describes the arguments."""
    if isinstance(drop, str) or isinstance(categorical, str):
        raise TypeError("drop and categorical are lists of columns, not one name")
    if max_categories < 1 or hash_columns < 1:
        raise ValueError("max_categories and hash_columns are at least 1")
    if not table.rows:
        raise ValueError(f"{table.title or 'the table'} has no rows")
    if not group:
        raise ValueError("group names no column")
    for name in (label, *group, *drop, *categorical):
        table.check(name)
    if label in group:
        raise ValueError(f"column {label!r} cannot be both label and group")

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

    left_out = {label, *drop, *(() if include_group else group)}
    features = [name for name in table.names if name not in left_out]
    if not features:
        raise ValueError("no column is left as a feature")
    columns = [
        _fit_column(table[name], name, name in categorical, max_categories, hash_columns)
        for name in features
    ]
    return FrameEncoder(tuple(columns), label, classes, group, groups)


def _several(codes: NDArray[Any], values: Sequence[Any], what: str) -> tuple[Hashable, ...]:
    refuse_missing(codes, what)
    if len(values) < 2:
        raise ValueError(f"{what} has only one value, {values[0]!r}; two or more are needed")
    return tuple(values)


def _fit_column(
    array: NDArray[Any], name: str, categorical: bool, max_categories: int, hash_columns: int
) -> Column:
    if array.dtype.kind in "iuf" and not categorical:
        return Column(name, "number")
    if array.dtype.kind in "mM" or any(_is_date(v) for v in array.tolist()):
        raise _dates(name)
    codes, values = encode(array, f"column {name!r}")
    if not categorical:
        if all(_is_number(v) for v in values):
            return Column(name, "number")
        if looks_like_dates(values):
            raise _dates(name)
    missing = bool((codes < 0).any())
    if len(values) > max_categories:
        return Column(name, "hash", width=hash_columns, missing=missing)
    return Column(name, "category", tuple(_as_text(v) for v in values), missing=missing)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)


def _is_date(value: Any) -> bool:
    kinds = datetime.date | datetime.time | datetime.timedelta
    return isinstance(value, kinds) or type(value).__name__ in ("Period", "Interval")


def _dates(name: str) -> TypeError:
    return TypeError(
        f"column {name!r} holds dates; replace it by numbers, such as the year or the days since "
        f"a fixed day, or leave it out with drop=[{name!r}]"
    )
