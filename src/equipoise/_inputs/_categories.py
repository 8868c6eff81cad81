"""Labels and groups as small integer codes, beside the distinct values that they stand for.

Columns are encoded in slices, so that a row needs only a few bytes beyond the input.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs._columns import columns
from equipoise._inputs._names import counted

SLICE = 1 << 18
"""Rows encoded at a time."""

_DATES = "{name} holds dates or durations; bin them first, for example by year as integers"

MOST_GROUPS = 10_000
"""Most groups of an audit, or combinations of groups and values of `by`."""

Codes = NDArray[np.signedinteger[Any]]


def _slices(n: int) -> Iterator[slice]:
    for start in range(0, n, SLICE):
        yield slice(start, start + SLICE)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _code_type(n_categories: int) -> type[np.signedinteger[Any]]:
    return np.int8 if n_categories < 2**7 else np.int16 if n_categories < 2**15 else np.int32


def encode(array: NDArray[Any], name: str) -> tuple[Codes, list[Any]]:
    """Replace each value by its index among the sorted distinct values; -1 where it is missing."""
    kind = array.dtype.kind
    if kind in "mM":
        raise TypeError(_DATES.format(name=name))
    if kind == "c":
        raise TypeError(f"{name} holds complex numbers; labels and groups are plain values")
    if kind in "biu":
        return _encode_integers(array)
    if kind == "f":
        return _encode_floats(array)
    return _encode_objects(array, name)


def _encode_integers(array: NDArray[Any]) -> tuple[Codes, list[Any]]:
    as_bool = array.dtype.kind == "b"
    if as_bool:
        array = array.view(np.uint8) if array.flags.c_contiguous else array.astype(np.uint8)
    if not len(array):
        return np.zeros(0, np.int8), []
    low, high = int(array.min()), int(array.max())
    if high - low < 1 << 16:
        # a small range needs no sorting: the codes are looked up
        seen = np.zeros(high - low + 1, dtype=bool)
        for part in _slices(len(array)):
            seen[_offset(array[part], low)] = True
        found = [int(v) + low for v in np.flatnonzero(seen)]
        codes = np.empty(len(array), _code_type(len(found)))
        table = (np.cumsum(seen) - 1).astype(codes.dtype)
        for part in _slices(len(array)):
            np.take(table, _offset(array[part], low), out=codes[part])
    else:
        values = _distinct(array)
        found = values.tolist()
        codes = np.empty(len(array), _code_type(len(found)))
        for part in _slices(len(array)):
            codes[part] = np.searchsorted(values, array[part])
    return codes, [bool(v) for v in found] if as_bool else found


def _offset(part: NDArray[Any], low: int) -> NDArray[Any]:
    # in a wide type, so that int8 values from -128 to 127 do not wrap around
    if part.dtype.kind == "i":
        part = part.astype(np.int64)
    part = part - part.dtype.type(low) if low else part
    return part.astype(np.int64) if part.dtype == np.uint64 else part


def _distinct(array: NDArray[Any]) -> NDArray[Any]:
    found = np.empty(0, array.dtype)
    for part in _slices(len(array)):
        found = np.union1d(found, array[part])
    return found


def _encode_floats(array: NDArray[Any]) -> tuple[Codes, list[Any]]:
    values = _distinct(array)
    values = values[~np.isnan(values)]
    codes = np.empty(len(array), _code_type(len(values)))
    for part in _slices(len(array)):
        chunk = array[part]
        codes[part] = np.where(np.isnan(chunk), -1, np.searchsorted(values, chunk))
    return codes, values.tolist()


def _encode_objects(array: NDArray[Any], name: str) -> tuple[Codes, list[Any]]:
    found: set[Any] = set()
    try:
        for part in _slices(len(array)):
            found.update(array[part].tolist())
    except TypeError:
        raise TypeError(
            f"{name} holds values that are not plain (lists or arrays); "
            "pass one column of numbers, strings or booleans"
        ) from None
    missing = {v for v in found if _is_missing(v)}
    if any(isinstance(v, datetime.date | datetime.timedelta) for v in found - missing):
        raise TypeError(_DATES.format(name=name))
    # NumPy's numbers inside an object column become Python's own
    plain = {v.item() if isinstance(v, np.generic) else v for v in found - missing}
    try:
        values = sorted(plain)
    except TypeError:
        types = sorted({type(v).__name__ for v in plain})
        raise TypeError(
            f"{name} mixes values that cannot be ordered ({', '.join(types)}); "
            "convert the column to one type, for example with astype(str)"
        ) from None
    index = {v: i for i, v in enumerate(values)}
    codes = np.empty(len(array), _code_type(len(values)))
    for part in _slices(len(array)):
        codes[part] = [index.get(v, -1) for v in array[part].tolist()]
    return codes, values


def refuse_missing(codes: NDArray[Any], name: str) -> None:
    """Raise if any value of an encoded column is missing."""
    if len(codes) and codes.min() < 0:
        first, count = int(np.argmax(codes < 0)), int((codes < 0).sum())
        raise ValueError(
            f"{name} has {counted(count, 'missing value')}, the first in row {first}; "
            "drop those rows, or give them a name of their own such as 'unknown'"
        )


def recode(codes: Codes, values: Sequence[Any], target: Sequence[Any]) -> Codes:
    """Turn codes of `values` into codes of `target`; -1 for a value that it does not contain."""
    if list(values) == list(target):
        return codes
    index = {v: i for i, v in enumerate(target)}
    table = np.array([index.get(v, -1) for v in values] + [-1], _code_type(len(target)))
    return np.asarray(table[codes])


def decode(codes: NDArray[Any], values: Sequence[Any]) -> NDArray[Any]:
    """Return the values that codes stand for; None for -1."""
    decoded: NDArray[Any] = np.fromiter((*values, None), dtype=object)[codes]
    return decoded


def too_many_groups(what: str, most: int, count: int | None = None) -> ValueError:
    """Return the error about a column, or something else, with more groups than an audit takes."""
    number = "" if count is None else f" ({count:,})"
    return ValueError(
        f"{what} has more than {most:,} distinct values{number}, the most that an audit takes; "
        "name a column of groups, or merge values first (an age into ranges, a postcode into "
        "regions)"
    )


def encode_groups(
    sensitive_features: Any, *, allow_missing: bool = False
) -> tuple[Codes, list[Hashable]]:
    """Encode one or several sensitive columns; a group of several is a tuple."""
    encoded: list[tuple[Codes, list[Any]]] = []
    for j, col in enumerate(columns(sensitive_features, "sensitive_features")):
        name = "sensitive_features" if j == 0 else f"sensitive_features, column {j}"
        codes, values = encode(col, name)
        if not allow_missing:
            refuse_missing(codes, name)
        if encoded and len(codes) != len(encoded[0][0]):
            raise ValueError(
                f"{name} has {len(codes)} rows, but the first column has {len(encoded[0][0])}"
            )
        encoded.append((codes, values))
    if not encoded:
        raise ValueError("sensitive_features has no columns")
    codes, groups = encoded[0]
    for more, values in encoded[1:]:
        pairs = codes.astype(np.int64) * len(values) + more
        pairs[(codes < 0) | (more < 0)] = -1
        codes, present = _encode_integers(pairs)
        if present and present[0] == -1:
            codes, present = codes - 1, present[1:]
        groups = [g if isinstance(g, tuple) else (g,) for g in groups]
        rows = [divmod(pair, len(values)) for pair in present]
        groups = [(*groups[i], values[j]) for i, j in rows]
    return codes, groups
