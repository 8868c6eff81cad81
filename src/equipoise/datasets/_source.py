"""A table, from memory or from files, as columns by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise._files import is_path
from equipoise._inputs import check_column, encode
from equipoise.datasets._cells import as_text, coded, places, typed
from equipoise.datasets._column import as_texts, plain_dates

if TYPE_CHECKING:
    import pyarrow as pa

    from equipoise._files import Reader


class Source:
    """Columns of a table, converted when first asked for.

    Attributes
    ----------
    names
        Names of the columns that have one.
    rows
        Number of rows.
    title
        What messages call the files; empty for a table in memory.
    start
        Number of the first row, where these are some of the rows of files.
    """

    def __init__(
        self, names: Sequence[str], rows: int, read: Callable[[str], NDArray[Any]], title: str = ""
    ) -> None:
        self.names = list(names)
        self.rows = rows
        self.title = title
        self.start = 0
        self._read = read
        self._columns: dict[str, NDArray[Any]] = {}
        self._files: pa.Table | None = None
        self._is_csv = False

    def check(self, name: str) -> None:
        """Raise if there is no such column, and name the nearest."""
        check_column(name, self.names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self.check(name)
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def text(self, name: str) -> pa.ChunkedArray | None:
        """Return the texts of a column of files, null where missing; None if it is no text."""
        from equipoise._files import texts

        column = self._strings(name)
        return None if column is None else texts(column)

    def coded(self, name: str) -> tuple[NDArray[Any], list[Any]]:
        """Return each row's place in a list of distinct values, -1 if missing, and that list."""
        column = self.text(name) if self._is_csv else self._strings(name)
        if column is None:
            array = as_texts(plain_dates(self[name], name))
            return encode(array, f"column {name!r}")
        return coded(column)

    def places(self, values: Sequence[Any], known: Sequence[str]) -> list[int]:
        """Return the place of each value of a column among known texts; -1 if it is not there."""
        if self._is_csv:
            return places(values, known)
        index = {text: i for i, text in enumerate(known)}
        return [index.get(as_text(value), -1) for value in values]

    def value(self, name: str, row: int) -> Any:
        """Return one value, for messages."""
        text = self.text(name)
        value = self[name][row] if text is None else text[row].as_py()
        return value.item() if isinstance(value, np.generic) else value

    def _strings(self, name: str) -> pa.ChunkedArray | None:
        import pyarrow as pa

        self.check(name)
        if self._files is None:
            return None
        column = self._files.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return None
        return column.cast(kind)

    @classmethod
    def of(cls, data: Any) -> Source:
        """Open a pandas, polars or PyArrow table, or CSV or Parquet files."""
        if isinstance(data, Source):
            return data
        if is_path(data):
            return cls._of_files(data)
        frame = nw.from_native(data, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise TypeError(
                "pass a pandas, polars or PyArrow table, or the path of a CSV or Parquet file, "
                f"not {type(data).__name__} (a lazy frame: call its collect() first)"
            )
        # pandas columns may be named by numbers
        by_name = {str(c): c for c in frame.columns}
        return cls(
            list(by_name), len(frame), lambda name: _converted(frame.get_column(by_name[name]))
        )

    @classmethod
    def _of_files(cls, data: Any) -> Source:
        import pyarrow as pa

        from equipoise._files import reader

        with reader(data) as files:
            table = pa.Table.from_batches(files.batches(), files.schema)
        return cls.of_rows(table, files)

    @classmethod
    def of_rows(cls, table: pa.Table, files: Reader, start: int = 0) -> Source:
        """Take rows that were read from files; `start` is the number of the first."""
        from equipoise._files import texts

        is_csv = files.is_text

        def read(name: str) -> NDArray[Any]:
            column = table.column(name)
            if is_csv:
                return typed(texts(column))
            return _converted(nw.from_native(column, series_only=True))

        # these hold the row names of pandas
        names = [n for n in files.names if is_csv or not n.startswith("__index_level_")]
        source = cls(names, table.num_rows, read, files.name)
        source._files, source._is_csv, source.start = table, is_csv, start
        return source


def _converted(series: nw.Series[Any]) -> NDArray[Any]:
    if series.dtype == nw.Categorical and series.implementation.is_pyarrow():
        # PyArrow turns a missing value of a dictionary column into some other value
        series = series.cast(nw.String)
    elif series.dtype == nw.Decimal:
        series = series.cast(nw.Float64)
    return series.to_numpy()
