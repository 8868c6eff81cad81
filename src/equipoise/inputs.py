"""What callers pass in, turned into codes and probabilities: the checks on values live here.

Columns come as lists, NumPy arrays, or anything narwhals takes (pandas, polars, PyArrow); they
leave as small integer codes beside the tuple of distinct values that the codes stand for.
Everything is done in slices, so that ten million rows need a few bytes each beyond the input.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

SLICE = 1 << 18
"""Rows encoded at a time."""

MOST_BINS = 1_000
"""Confidence bins at most: finer ones hold no rows to speak of, and cost memory and time."""

ROW_SUM_TOLERANCE = 1e-3
"""How far a row of probabilities may be from 1; rows are checked, never rescaled."""


def _slices(n: int, step: int = SLICE) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


# --- columns ---------------------------------------------------------------------------------


def columns(values: Any, name: str) -> list[NDArray[Any]]:
    """Split an array-like or a frame into one-dimensional arrays, each with its own type."""
    if isinstance(values, dict):
        return [column(v, f"{name}[{k!r}]") for k, v in values.items()]
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.Series):
        return [_values(native)]
    if isinstance(native, nw.DataFrame):
        return [_values(native[c]) for c in native.columns]
    array = np.asarray(values)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name} must be one column or a table of columns, got an array of shape {array.shape}"
        )
    if array.dtype.kind in "US" and isinstance(values, list | tuple):
        # asarray turns ["a", 1] into ["a", "1"]: keep what the caller wrote
        array = np.array(values, dtype=object)
    if array.ndim == 1:
        return [array]
    return [_narrowed(array[:, j]) for j in range(array.shape[1])]


def _values(series: nw.Series[Any]) -> NDArray[Any]:
    # the array of a PyArrow dictionary with nulls gives those rows another row's value
    if series.implementation.is_pyarrow() and series.dtype == nw.Categorical:
        series = series.cast(nw.String)
    return series.to_numpy()


def _narrowed(array: NDArray[Any]) -> NDArray[Any]:
    """Give an object column of one plain type its own dtype back."""
    if array.dtype == object and len({type(v) for v in array.tolist()}) == 1:
        return np.asarray(array.tolist())
    return array


def column(values: Any, name: str) -> NDArray[Any]:
    """Return the single column that `values` must be."""
    cols = columns(values, name)
    if len(cols) != 1:
        raise ValueError(f"{name} must be a single column, got {len(cols)} columns")
    return cols[0]


def same_length(n: int, **named: NDArray[Any] | None) -> None:
    """Raise unless every array given has `n` rows."""
    for name, array in named.items():
        if array is not None and len(array) != n:
            raise ValueError(f"{name} has {len(array)} rows, but y_prob has {n}")


# --- categories ------------------------------------------------------------------------------


_DATES = "{name} holds dates or durations; bin them first, for example by year as integers"


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _code_type(n_categories: int) -> type[np.signedinteger[Any]]:
    # the rows of a column often outnumber its categories a million to one
    return np.int8 if n_categories < 2**7 else np.int16 if n_categories < 2**15 else np.int32


def _sorted(found: set[Any], name: str) -> list[Any]:
    try:
        return sorted(found)
    except TypeError:
        types = sorted({type(v).__name__ for v in found})
        raise TypeError(
            f"{name} mixes values that cannot be ordered ({', '.join(types)}); "
            "convert the column to one type, for example with astype(str)"
        ) from None


def encode(array: NDArray[Any], name: str) -> tuple[NDArray[np.signedinteger[Any]], list[Any]]:
    """Replace each value by its index among the sorted distinct values; -1 where it is missing."""
    kind = array.dtype.kind
    if kind in "mM":
        raise TypeError(_DATES.format(name=name))
    if kind == "c":
        raise TypeError(f"{name} holds complex numbers; labels and groups are plain values")
    if kind == "b" or kind in "iu":
        return _encode_integers(array)
    if kind == "f":
        return _encode_floats(array)
    return _encode_objects(array, name)


def _encode_integers(
    array: NDArray[Any],
) -> tuple[NDArray[np.signedinteger[Any]], list[Any]]:
    as_bool = array.dtype.kind == "b"
    if as_bool:
        array = array.view(np.uint8) if array.flags.c_contiguous else array.astype(np.uint8)
    if not len(array):
        return np.zeros(0, np.int8), []
    low, high = int(array.min()), int(array.max())
    if high - low < 1 << 16:
        # a small range: the codes are a look-up, no sorting needed
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
    return part - part.dtype.type(low) if low else part


def _distinct(array: NDArray[Any]) -> NDArray[Any]:
    found = np.empty(0, array.dtype)
    for part in _slices(len(array)):
        found = np.union1d(found, array[part])
    return found


def _encode_floats(
    array: NDArray[Any],
) -> tuple[NDArray[np.signedinteger[Any]], list[Any]]:
    values = _distinct(array)
    values = values[~np.isnan(values)]
    codes = np.empty(len(array), _code_type(len(values)))
    for part in _slices(len(array)):
        chunk = array[part]
        codes[part] = np.where(np.isnan(chunk), -1, np.searchsorted(values, chunk))
    return codes, values.tolist()


def _encode_objects(
    array: NDArray[Any], name: str
) -> tuple[NDArray[np.signedinteger[Any]], list[Any]]:
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
    # np.float64 and friends inside an object column become Python's own numbers
    plain = {v.item() if isinstance(v, np.generic) else v for v in found - missing}
    values = _sorted(plain, name)
    index = {v: i for i, v in enumerate(values)}
    codes = np.empty(len(array), _code_type(len(values)))
    for part in _slices(len(array)):
        chunk = array[part].tolist()
        codes[part] = [index.get(v, -1) for v in chunk]
    return codes, values


def refuse_missing(codes: NDArray[Any], name: str) -> None:
    """Raise if any value of an encoded column is missing."""
    if len(codes) and codes.min() < 0:
        first, count = int(np.argmax(codes < 0)), int((codes < 0).sum())
        raise ValueError(
            f"{name} has {count} missing value{'s' * (count > 1)}, the first in row {first}; "
            "drop those rows, or give them a name of their own such as 'unknown'"
        )


def recode(
    codes: NDArray[Any], values: Sequence[Any], target: Sequence[Any]
) -> NDArray[np.signedinteger[Any]]:
    """Point codes at `target` instead of `values`; -1 for what it does not contain."""
    if list(values) == list(target):
        return codes
    index = {v: i for i, v in enumerate(target)}
    table = np.array([index.get(v, -1) for v in values] + [-1], _code_type(len(target)))
    pointed: NDArray[np.signedinteger[Any]] = table[codes]
    return pointed


def encode_groups(
    sensitive_features: Any, *, allow_missing: bool = False
) -> tuple[NDArray[np.signedinteger[Any]], list[Hashable]]:
    """Encode one or several sensitive columns; several become tuples, their intersection."""
    encoded: list[tuple[NDArray[np.signedinteger[Any]], list[Any]]] = []
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
        rows = [divmod(pair, len(values)) for pair in present]
        groups = [(*_as_tuple(groups[i]), values[j]) for i, j in rows]
    return codes, groups


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def to_plain(value: Any) -> Any:
    """Turn a group or label into what JSON holds; tuples become lists."""
    if isinstance(value, tuple | list | np.ndarray):
        return [to_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{value!r} ({type(value).__name__}) cannot be written as JSON; "
        "use numbers, strings or booleans as groups and labels"
    )


def from_plain(value: Any) -> Any:
    """Undo `to_plain`: lists become tuples again."""
    return tuple(from_plain(v) for v in value) if isinstance(value, list) else value


# --- labels ----------------------------------------------------------------------------------


def class_labels(
    present: Sequence[Any], n_classes: int, labels: Any, name: str = "y_true"
) -> tuple[Hashable, ...]:
    """Say which label each of the `n_classes` columns stands for."""
    if labels is not None:
        given = tuple(v.item() if isinstance(v, np.generic) else v for v in labels)
        if len(given) != n_classes or len(set(given)) != n_classes:
            raise ValueError(
                f"labels must name the {n_classes} columns of y_prob, each once, got {given!r}"
            )
        unknown = [v for v in present if v not in given]
        if unknown:
            raise ValueError(f"{name} contains {unknown[0]!r}, which is not in labels={given!r}")
        return given
    if len(present) == n_classes:
        return tuple(present)
    integers = all(isinstance(v, int | np.integer) for v in present)
    if integers and present and present[0] >= 0 and present[-1] < n_classes:
        as_bool = all(isinstance(v, bool) for v in present)
        return (False, True) if as_bool and n_classes == 2 else tuple(range(n_classes))
    shown = ", ".join(repr(v) for v in present[:5]) + (", ..." if len(present) > 5 else "")
    raise ValueError(
        f"{name} has {len(present)} distinct labels ({shown}) for {n_classes} columns of "
        f"probabilities; pass labels= with the label of each column, in order"
    )


def encode_labels(
    y: Any, n_classes: int, labels: Any, name: str = "y_true"
) -> tuple[NDArray[np.signedinteger[Any]], tuple[Hashable, ...]]:
    """Encode labels as column numbers of the probabilities, and say what the columns stand for."""
    codes, present = encode(column(y, name), name)
    refuse_missing(codes, name)
    resolved = class_labels(present, n_classes, labels, name)
    return recode(codes, present, resolved), resolved


# --- numbers ---------------------------------------------------------------------------------


def matrix(values: Any, name: str) -> NDArray[Any]:
    """Return probabilities or logits as a numeric array of one or two axes, uncopied if it is."""
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    array = native.to_numpy() if native is not values else np.asarray(values)
    if array.dtype == object:
        try:
            array = np.array(array.tolist(), dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must hold numbers only") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must be (n,) or (n, classes), got shape {array.shape}")
    if array.ndim == 2 and array.shape[1] < 2:
        raise ValueError(
            f"{name} has {array.shape[1]} column(s); pass two or more, or a one-dimensional array "
            "for the positive class of a binary problem"
        )
    if not len(array):
        raise ValueError(f"{name} is empty")
    return array


def check_bins(n_bins: Any) -> None:
    """Raise unless the number of bins is one that leaves rows in them."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}")
    if n_bins > MOST_BINS:
        raise ValueError(f"n_bins must be at most {MOST_BINS:,}, got {n_bins!r}")


def class_count(array: NDArray[Any]) -> int:
    """Return the number of classes K: two where only the positive class was passed."""
    return 2 if array.ndim == 1 else int(array.shape[1])


def probability_slice(y_prob: NDArray[Any], rows: slice) -> NDArray[np.float64]:
    """Return the checked probabilities of some rows as float64, laid out (class, row)."""
    part = y_prob[rows]
    out = np.empty((class_count(y_prob), len(part)))
    if part.ndim == 1:
        out[1] = part
        np.subtract(1.0, out[1], out=out[0])
    else:
        np.copyto(out, part.T)
    # one comparison each that NaN fails too
    valid = out.min() >= 0.0 and out.max() <= 1.0
    if not valid or not (np.abs(out.sum(axis=0) - 1.0).max() <= ROW_SUM_TOLERANCE):
        _refuse_probabilities(part, out, rows.start)
    return out


def _refuse_probabilities(part: NDArray[Any], out: NDArray[np.float64], start: int) -> None:
    total = out.sum(axis=0)
    bad = ~((out >= 0) & (out <= 1)).all(axis=0) | ~(np.abs(total - 1) <= ROW_SUM_TOLERANCE)
    first = int(np.argmax(bad))
    row = np.atleast_1d(part[first]).astype(np.float64)
    where = f"y_prob, row {start + first}: {[float(f'{v:.6g}') for v in row[:6]]}"
    if np.isnan(row).any():
        raise ValueError(f"{where} contains NaN; drop the row or repair the model's output")
    if (row < 0).any() or (row > 1).any():
        raise ValueError(
            f"{where} is not within 0..1; y_prob takes probabilities (apply softmax to logits)"
        )
    raise ValueError(
        f"{where} sums to {total[first]:.6g}, not 1; pass one column per class, and only those"
    )


def check_weights(sample_weight: Any, n: int) -> NDArray[np.float64] | None:
    """Return the weights as float64, or None; they must be finite, not negative, not all zero."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(column(sample_weight, "sample_weight"), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight must be one column of numbers: {error}") from None
    same_length(n, sample_weight=weight)
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight, row {first}: {weight[first]}; weights are finite and not negative"
        )
    if not weight.any():
        raise ValueError("sample_weight is zero in every row")
    return weight
