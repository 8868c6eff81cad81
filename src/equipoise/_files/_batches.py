"""Rows of files of any size, a batch at a time and in their order.

The cells of a CSV file stay the text that they are; the columns of a Parquet file keep their types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from equipoise._files._csv import LONGEST, layout_of, refuse_surplus, scan
from equipoise._files._duckdb import connected, identifier
from equipoise._files._open_tables import parquet_rows, reading
from equipoise._files._paths import Files, found
from equipoise._inputs import check_column

BATCH = 1 << 16
"""Rows that are read at a time, at most."""
CELLS = 1 << 20
"""Cells that are read at a time, about: fewer rows of a table with many columns."""

THREADS = 2
"""Threads of DuckDB: each takes 30 MB, and more wait for whoever takes the batches."""


class Reader:
    """The columns of files, and their rows in batches; read anew for each pass.

    `name` is for messages, `is_text` says whether the files are CSV, and the `schema` has all
    columns, also those with an empty name.
    """

    def __init__(self, files: Files) -> None:
        self._files, self.name, self.is_text = files, files.name, files.is_text
        self._layout = layout_of(files.each) if files.is_text else None
        if self._layout is not None:
            with reading(self.name, files, self._layout):
                refuse_surplus(files.each, self._layout)
            self.schema = pa.schema([(name, pa.string()) for name in self._layout.headings])
        else:
            parquet_rows(files.each)
            self.schema = pq.read_schema(files.each[0].path)

    @property
    def names(self) -> list[str]:
        """Names of the columns that have one."""
        return [name for name in self.schema.names if name]

    def check(self, *names: str) -> None:
        """Raise if there is no such column, and name the nearest."""
        for name in names:
            check_column(name, self.names)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give the rows of the columns, by default of all; no batch is empty."""
        schema = self.schema
        if columns is not None:
            schema = pa.schema([self.schema.field(name) for name in columns])
        rows = min(BATCH, max(1, CELLS // max(1, len(schema))))
        with contextlib.ExitStack() as stack:
            stream = (
                self._csv(columns, rows, stack)
                if self.is_text
                else self._parquet(schema.names, rows)
            )
            while True:
                with reading(self.name, self._files, self._layout):
                    batch = next(stream, None)
                if batch is None:
                    return
                if len(batch):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _csv(
        self, columns: Sequence[str] | None, rows: int, stack: contextlib.ExitStack
    ) -> Iterator[pa.RecordBatch]:
        assert self._layout is not None
        names = map(identifier, self._layout.names if columns is None else columns)
        cells = ", ".join(f"coalesce({name}, '') AS {name}" for name in names)
        connection = stack.enter_context(connected())
        connection.execute(f"SET threads = {THREADS}")
        buffers = f"buffer_size = {4 * LONGEST}"  # a quarter of what is usual, as fast
        rows_of = scan(self._files.each, self._layout, buffers)
        found = connection.sql(f"SELECT {cells} FROM {rows_of}")
        # its name before DuckDB 1.4
        read = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
        yield from read(rows)

    def _parquet(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for one in self._files.each:
            # read pages as needed: by default the bytes of the whole file are kept
            with pq.ParquetFile(one.path, pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in file.iter_batches(rows, columns=columns):
                    yield batch.select(columns)


@contextlib.contextmanager
def reader(data: Any) -> Iterator[Reader]:
    """Open a path, a folder, a pattern, a list of them, or `-` for standard input."""
    with found(data) as files:
        yield Reader(files)
