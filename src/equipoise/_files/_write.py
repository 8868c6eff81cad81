"""Tables written as CSV or Parquet, by the file's ending, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from equipoise._files._atomic import replacing
from equipoise._files._paths import check_ending, is_parquet

ROW_GROUP = 1 << 16
"""Rows of a Parquet file that are written together."""
ROW_GROUP_BYTES = 1 << 24
"""Bytes of them that are enough."""

# PyArrow joins text of one type only; with the large one a batch may pass 2 GB
_COMMA, _QUOTE, _APOSTROPHE, _LINE_END, _NOTHING = (
    pa.scalar(t, pa.large_string()) for t in (",", '"', "'", "\n", "")
)


# a spreadsheet takes a cell that begins so for a formula, unless it is a number
_FORMULA = "^[=+@\t\r-]"
_NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"


def write_batches(
    out: str | os.PathLike[str],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    safe_csv: bool = False,
) -> None:
    """Write batches as they come.

    With `safe_csv`, an apostrophe goes before names and cells of text that begin with =, +, -, @, a
    tab or a carriage return, which a spreadsheet would run; numbers stay as they are.
    """
    check_ending(out, safe_csv=safe_csv)
    with replacing(Path(out)) as temporary:
        if is_parquet(out):
            # opened here, since Arrow takes no name that is not UTF-8
            with temporary.open("wb") as file, pq.ParquetWriter(file, schema) as writer:
                for table in _gathered(batches):
                    writer.write_table(table)
        else:
            with temporary.open("wb") as file:
                names = [pa.array([name], pa.string()) for name in schema.names]
                file.write(_lines(names, safe_csv=safe_csv))
                for batch in batches:
                    file.write(_lines(batch.columns, safe_csv=safe_csv))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put small batches together: each table becomes a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= ROW_GROUP or sum(b.nbytes for b in held) >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _lines(columns: Sequence[pa.Array], *, safe_csv: bool) -> pa.Buffer:
    """Return rows of CSV."""
    texts = (_safe(_text(c)) if safe_csv and _is_text(c) else _text(c) for c in columns)
    *cells, last = map(_quoted, texts)
    last = pc.binary_join_element_wise(pc.fill_null(last, ""), _LINE_END, _NOTHING)
    lines = pc.binary_join_element_wise(
        *cells, last, _COMMA, null_handling="replace", null_replacement=""
    )
    # an array of text keeps all its characters in one buffer
    size = pc.sum(pc.binary_length(lines)).as_py()
    return lines.buffers()[2].slice(0, size)


def _text(column: pa.Array) -> pa.Array:
    """Return values as text that is read back as the same values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # lists, structures, bytes that are no text
        values = (None if v is None else str(v) for v in column.to_pylist())
        return pa.array(values, pa.large_string())


def _is_text(column: pa.Array) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def safe_cell(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would run it.

    >>> safe_cell("=1+1"), safe_cell("-1.5"), safe_cell("a")
    ("'=1+1", '-1.5', 'a')
    """
    return str(_safe(pa.array([text], pa.large_string()))[0])


def _safe(column: pa.Array) -> pa.Array:
    formula = pc.match_substring_regex(column, _FORMULA)
    formula = pc.and_(formula, pc.invert(pc.match_substring_regex(column, _NUMBER)))
    return pc.if_else(formula, pc.binary_join_element_wise(_NOTHING, column, _APOSTROPHE), column)


def _quoted(column: pa.Array) -> pa.Array:
    """Put quotes where a cell needs them."""
    # most columns have no such cell, and to search all their text at once takes no time
    characters = _characters(column)
    if not any(sign in characters for sign in (b'"', b",", b"\r", b"\n")):
        return column
    special = pc.match_substring_regex(column, '[",\r\n]')
    doubled = pc.replace_substring(column, '"', '""')
    quoted = pc.binary_join_element_wise(_QUOTE, doubled, _QUOTE, _NOTHING)
    return pc.if_else(special, quoted, column)


def _characters(column: pa.Array) -> bytes:
    """Return all characters of a column of text."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return b""
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return bytes(data[int(ends[0]) : int(ends[-1])])
