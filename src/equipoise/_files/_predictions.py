"""Columns of a file of predictions: labels and groups in a common form, and probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from equipoise._inputs import MISSING, InputError, counted, probability_faults, text_of

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]
Texts = tuple[str | None, ...]


class Faults:
    """The first kind of mistake found in rows, and the number of rows that have it."""

    def __init__(self) -> None:
        self._kind = self._problem = self._remedy = ""
        self._rows: list[int] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count)

    def add(
        self, bad: NDArray[np.bool_], start: int, kind: str, first: str = "", remedy: str = ""
    ) -> None:
        """Count rows with a mistake; `first` describes the first of its kind."""
        rows = np.flatnonzero(bad)
        if not len(rows) or (self._count and kind != self._kind):
            return
        if not self._count:
            self._kind, self._problem, self._remedy = kind, f"{kind}{first}", remedy
        self._rows += (start + rows[: 3 - len(self._rows)]).tolist()
        self._count += len(rows)

    def check(self) -> None:
        """Raise if rows have a mistake."""
        if self._count:
            more = ", ..." if self._count > len(self._rows) else ""
            where = f"row{'s' * (self._count > 1)} {', '.join(map(str, self._rows))}{more}"
            raise InputError(
                f"{self._problem} in {counted(self._count, 'row')} ({where}, counted from 0)",
                self._remedy,
            )


def texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return text without spaces around it, null where a CSV file lacks a value."""
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    lacking = pc.is_in(text, pa.array(sorted(MISSING)))
    return pc.if_else(lacking, pa.scalar(None, pa.string()), text)


def distinct(
    batch: pa.RecordBatch, names: Sequence[str], *, is_text: bool
) -> tuple[Codes, list[Texts]]:
    """Return each row's place in a list of distinct values, and that list, as text."""
    codes = np.zeros(len(batch), np.int64)
    columns: list[list[str | None]] = []
    for name in names:
        try:
            coded = batch.column(name).dictionary_encode()
            found = [text_of(v) for v in coded.dictionary.to_pylist()]
        except (TypeError, pa.ArrowNotImplementedError) as error:
            reason = str(error) if type(error) is TypeError else f"holds {batch.column(name).type}"
            raise TypeError(f"column {name!r} {reason}") from None
        if is_text:
            found = [None if t in MISSING else t for t in found]
        columns.append([*found, None])
        own = coded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        codes = codes * len(columns[-1]) + own
    present, codes = np.unique(codes, return_inverse=True)
    rows: list[Texts] = []
    for code in present.tolist():
        row: list[str | None] = []
        for known in reversed(columns):
            code, at = divmod(code, len(known))  # noqa: PLW2901
            row.append(known[at])
        rows.append(tuple(reversed(row)))
    return codes, rows


def probabilities(
    batch: pa.RecordBatch, names: Sequence[str], start: int, faults: Faults
) -> Floats:
    """Return the probabilities (n,) of one column, or (n, K) of several; count faulty rows."""
    columns = [_numbers(batch.column(name), name, start) for name in names]
    for bad, kind, first, remedy in probability_faults(columns, names):
        faults.add(bad, start, kind, first, remedy)
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _numbers(column: pa.Array, name: str, start: int) -> Floats:
    """Return a column as floats, NaN where it is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _parsed(texts(column), name, start)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not pa.types.is_floating(kind):
        raise TypeError(f"column {name!r} holds {kind}, not probabilities")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _parsed(text: pa.Array, name: str, start: int) -> Floats:
    try:
        return np.asarray(text.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        pass
    values = np.full(len(text), np.nan)
    for i, value in enumerate(text.to_pylist()):
        try:
            values[i] = math.nan if value is None else float(value)
        except ValueError:
            raise ValueError(
                f"column {name!r}, row {start + i} (counted from 0): {value!r} is not a number"
            ) from None
    return values
