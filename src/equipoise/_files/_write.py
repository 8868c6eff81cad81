"""Tables written as CSV or Parquet, by the file's ending, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from equipoise._files._atomic import replacing
from equipoise._files._paths import check_ending, is_parquet

ROW_GROUP = 1 << 16
"""Rows of a Parquet file that are written together, at least."""

# PyArrow joins text of one type only; with the large one a batch may pass 2 GB
_COMMA, _QUOTE, _LINE_END, _NOTHING = (
    pa.scalar(t, pa.large_string()) for t in (",", '"', "\n", "")
)


def write_batches(
    out: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Write batches as they come."""
    check_ending(out)
    with replacing(Path(out)) as temporary:
        if is_parquet(out):
            with pq.ParquetWriter(temporary, schema) as writer:
                for table in _gathered(batches):
                    writer.write_table(table)
        else:
            with temporary.open("wb") as file:
                file.write(_lines([pa.array([name], pa.string()) for name in schema.names]))
                for batch in batches:
                    file.write(_lines(batch.columns))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put small batches together: each table becomes a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= ROW_GROUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _lines(columns: Sequence[pa.Array]) -> pa.Buffer:
    """Return rows of CSV."""
    *cells, last = (_quoted(_text(column)) for column in columns)
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


def _quoted(column: pa.Array) -> pa.Array:
    """Put quotes where a cell needs them."""
    special = pc.match_substring_regex(column, '[",\r\n]')
    if not pc.any(special).as_py():
        return column
    doubled = pc.replace_substring(column, '"', '""')
    quoted = pc.binary_join_element_wise(_QUOTE, doubled, _QUOTE, _NOTHING)
    return pc.if_else(special, quoted, column)
