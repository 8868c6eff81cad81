"""Columns as NumPy arrays, from lists, arrays, or any frame that narwhals takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray


def columns(values: Any, name: str) -> list[NDArray[Any]]:
    """Split an array-like or a frame into one-dimensional arrays, each with its own type."""
    if isinstance(values, dict):
        return [column(v, f"{name}[{k!r}]") for k, v in values.items()]
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.Series):
        return [_values(native)]
    if isinstance(native, nw.DataFrame):
        return [_values(native.get_column(c)) for c in native.columns]
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
    # PyArrow gives a missing value of a dictionary column another row's value
    if series.implementation.is_pyarrow() and series.dtype == nw.Categorical:
        series = series.cast(nw.String)
    return series.to_numpy()


def _narrowed(array: NDArray[Any]) -> NDArray[Any]:
    """Give an object column of one plain type its own dtype back."""
    if array.dtype == object and len({type(v) for v in array.tolist()}) == 1:
        return np.asarray(array.tolist())
    return array


def column_names(values: Any) -> list[str] | None:
    """Return the names of the columns of a frame, None for anything else."""
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    return [str(name) for name in native.columns] if isinstance(native, nw.DataFrame) else None


def named_columns(table: Any) -> dict[Any, Any] | None:
    """Return the columns of a mapping or a data frame by name; None for anything else."""
    if isinstance(table, Mapping):
        return dict(table)
    native = nw.from_native(table, eager_only=True, pass_through=True)
    is_frame = isinstance(native, nw.DataFrame)
    return {name: native.get_column(name) for name in native.columns} if is_frame else None


def column(values: Any, name: str) -> NDArray[Any]:
    """Return the only column of `values`; raise if there are several."""
    cols = columns(values, name)
    if len(cols) != 1:
        raise ValueError(f"{name} must be a single column, got {len(cols)} columns")
    return cols[0]


def same_length(n: int, **named: NDArray[Any] | None) -> None:
    """Raise unless every array given has `n` rows."""
    for name, array in named.items():
        if array is not None and len(array) != n:
            raise ValueError(f"{name} has {len(array)} rows, but y_prob has {n}")
