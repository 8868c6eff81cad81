"""Tables of any size, a batch of rows at a time: CSV or Parquet in, either out.

Cells of a CSV file stay the text that they are. What is written is put in place when it is whole.
"""

from __future__ import annotations

import contextlib
import csv
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from equipoise.cli._tables import PARQUET
from equipoise.datasets import Source

BATCH = 1 << 16
"""Rows of a Parquet file that are read at a time, and written."""

BLOCK = 1 << 20
"""Bytes of a CSV file that are read at a time; PyArrow reads some thirty ahead."""

TEXT = (".csv", ".tsv", ".txt")

# PyArrow joins text of one type only; with the large one a batch may pass 2 GB
_COMMA, _QUOTE, _LINE_END, _NOTHING = (
    pa.scalar(t, pa.large_string()) for t in (",", '"', "\n", "")
)


class Reader:
    """A file's columns, and its rows in batches; opened anew for each pass."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_text = path.suffix.lower() in TEXT
        if self.is_text:
            self._separator, names = _header(path)
            self.schema = pa.schema([(name, pa.string()) for name in names])
        elif path.suffix.lower() in PARQUET:
            with _readable(path):
                self.schema = pq.ParquetFile(path).schema_arrow
        else:
            raise ValueError(f"{path} is neither .csv (.tsv, .txt) nor .parquet")
        self.names: list[str] = self.schema.names
        twice = [name for i, name in enumerate(self.names) if name and name in self.names[:i]]
        if twice:
            raise ValueError(f"{path} has several columns named {twice[0]!r}; rename all but one")

    def check(self, name: str) -> None:
        """Raise if there is no such column, and name the nearest."""
        Source(self.names, 0, lambda _: NotImplemented).check(name)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the columns, by default all; no batch is empty."""
        torn: list[str] = []
        with contextlib.ExitStack() as stack:
            with _readable(self.path, torn):
                if self.is_text:
                    stream = iter(stack.enter_context(self._open_csv(columns, torn)))
                else:
                    # pages as they are needed: by default the bytes of the whole file are kept
                    file = pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20)
                    stack.enter_context(file)
                    stream = file.iter_batches(BATCH, columns=columns)
            while True:
                with _readable(self.path, torn):
                    batch = next(stream, None)
                if batch is None:
                    return
                if len(batch):
                    yield batch

    def _open_csv(self, columns: Sequence[str] | None, torn: list[str]) -> Any:
        def tell(row: Any) -> str:
            # raising here would not reach the caller; the header is row 1
            torn.append(
                f"{self.path}, row {row.number - 2} (counted from 0): {row.actual_columns} values "
                f"for {row.expected_columns} columns; put text that contains the separator in "
                "quotes, without a space before them"
            )
            return "error"

        chosen = None if columns is None else list(columns)
        return pa.csv.open_csv(
            self.path,
            # one thread: only then are rows numbered
            pa.csv.ReadOptions(
                column_names=self.names,
                skip_rows_after_names=1,
                block_size=BLOCK,
                use_threads=False,
            ),
            pa.csv.ParseOptions(
                delimiter=self._separator, newlines_in_values=True, invalid_row_handler=tell
            ),
            pa.csv.ConvertOptions(
                column_types=self.schema, strings_can_be_null=False, include_columns=chosen
            ),
        )


@contextlib.contextmanager
def _readable(path: Path, torn: Sequence[str] = ()) -> Iterator[None]:
    """Name the file in what PyArrow says of it, in one line, or say what is known better."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(torn[0] if torn else f"{path} cannot be read: {reason}") from None


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the separator, the one that the header has most of, and the names of the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = max(",;\t", key=file.readline().count)
            file.seek(0)
            names = next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    if not names:
        raise ValueError(f"{path} has no rows")
    return separator, [name.strip() for name in names]


def write_batches(out: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches as they come, to CSV or Parquet by the ending, whole or not at all."""
    temporary = out.with_name(f"{out.name}.{uuid.uuid4().hex}.tmp")
    try:
        if out.suffix.lower() in PARQUET:
            with pq.ParquetWriter(temporary, schema) as writer:
                for table in _gathered(batches):
                    writer.write_table(table)
        else:
            with temporary.open("wb") as file:
                file.write(_lines([pa.array([name], pa.string()) for name in schema.names]))
                for batch in batches:
                    file.write(_lines(batch.columns))
        temporary.replace(out)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put small batches together: each table becomes a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= BATCH:
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
    # the characters of an array of text stand one after the other
    size = pc.sum(pc.binary_length(lines)).as_py()
    return lines.buffers()[2].slice(0, size)


def _text(column: pa.Array) -> pa.Array:
    """Return values as text that reads back as they were."""
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
