"""The columns of a file of predictions: groups and labels in a common form, and probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from equipoise._inputs import MISSING, ROW_SUM_TOLERANCE, text_of

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]
Texts = tuple[str | None, ...]


# --- values ----------------------------------------------------------------------------------


def distinct(
    batch: pa.RecordBatch, names: Sequence[str], *, is_text: bool
) -> tuple[Codes, list[Texts]]:
    """Return for each row the position of its values in a list of distinct ones, in text form."""
    codes = np.zeros(len(batch), np.int64)
    columns: list[list[str | None]] = []
    for name in names:
        try:
            coded = batch.column(name).dictionary_encode()
            texts = [text_of(v) for v in coded.dictionary.to_pylist()]
        except (TypeError, pa.ArrowNotImplementedError) as error:
            reason = str(error) if type(error) is TypeError else f"holds {batch.column(name).type}"
            raise TypeError(f"column {name!r} {reason}") from None
        if is_text:
            texts = [None if t in MISSING else t for t in texts]
        columns.append([*texts, None])
        own = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        codes = codes * len(columns[-1]) + own
    present, codes = np.unique(codes, return_inverse=True)
    rows: list[Texts] = []
    for code in present.tolist():
        row: list[str | None] = []
        for texts in reversed(columns):
            code, at = divmod(code, len(texts))  # noqa: PLW2901
            row.append(texts[at])
        rows.append(tuple(reversed(row)))
    return codes, rows


# --- probabilities ---------------------------------------------------------------------------


class Faults:
    """Counts what is wrong with rows, so that the message can say how often and where."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, str, list[int]]] = {}
        self._count: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._count)

    def add(self, kind: str, bad: NDArray[np.bool_], start: int, what: str, remedy: str) -> None:
        """Note rows; `what` is said of the first of its kind."""
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        _, _, first = self._found.setdefault(kind, (what, remedy, []))
        first += (start + rows[: 3 - len(first)]).tolist()
        self._count[kind] = self._count.get(kind, 0) + len(rows)

    def check(self) -> None:
        """Raise if there are any."""
        for kind, (what, remedy, rows) in self._found.items():
            count = self._count[kind]
            more = ", ..." if count > len(rows) else ""
            where = f"row{'s' * (count > 1)} {', '.join(map(str, rows))}{more}"
            raise ValueError(
                f"{what} in {count:,} row{'s' * (count > 1)} ({where}, counted from 0); {remedy}"
            )


def probabilities(
    batch: pa.RecordBatch, names: Sequence[str], start: int, faults: Faults
) -> Floats:
    """Return the checked probabilities (n,) of one column, or (n, K) of several."""
    columns = [_numbers(batch.column(name), name, start) for name in names]
    fine = np.ones(len(batch), bool)
    for name, values in zip(names, columns, strict=True):
        missing = np.isnan(values)
        faults.add(
            f"missing {name}",
            missing,
            start,
            f"column {name!r} has no probability (missing or NaN)",
            "drop those rows or repair the model's output",
        )
        outside = ~missing & ~((values >= 0.0) & (values <= 1.0))
        shown = f"{values[np.argmax(outside)]:.6g}"
        faults.add(
            f"outside {name}",
            outside,
            start,
            f"column {name!r} has values outside 0..1, the first {shown},",
            "pass probabilities (apply softmax to logits)",
        )
        fine &= ~missing & ~outside
    if len(columns) == 1:
        return columns[0]
    prob = np.stack(columns, axis=1)
    total = prob.sum(axis=1, dtype=np.float64)
    off = fine & ~(np.abs(total - 1.0) <= ROW_SUM_TOLERANCE)
    first = f"the first to {total[np.argmax(off)]:.6g},"
    faults.add(
        "sum",
        off,
        start,
        f"the columns {', '.join(names)} do not sum to 1, {first}",
        "pass one --prob per class, and only those",
    )
    return prob


def _numbers(column: pa.Array, name: str, start: int) -> Floats:
    """Return a column as floats, NaN where it is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _parsed(column, name, start)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not pa.types.is_floating(kind):
        raise TypeError(f"column {name!r} holds {kind}, not probabilities")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _parsed(column: pa.Array, name: str, start: int) -> Floats:
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    given = pc.is_in(text, pa.array(sorted(MISSING)))
    text = pc.if_else(given, pa.scalar(None, pa.string()), text)
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
