"""A table, from memory or from files, as NumPy columns by name.

The type of a column of a CSV file follows from its values alone: numbers if all are, else true and
false, else text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise._files import is_path
from equipoise._inputs import check_column

if TYPE_CHECKING:
    import pyarrow as pa

# a leading zero makes it a code, not a number: 01234 is not 1234
_NUMBER = r"(?i)^[+-]?(((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf(inity)?)$"
# an integer too long for 64 bits is a name: as a number it would lose its last digits
_LONG = r"^[+-]?\d{19,}$"
_INTEGER = r"^[+-]?\d{1,18}$"


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
    """

    def __init__(
        self, names: Sequence[str], rows: int, read: Callable[[str], NDArray[Any]], title: str = ""
    ) -> None:
        self.names = list(names)
        self.rows = rows
        self.title = title
        self._read = read
        self._columns: dict[str, NDArray[Any]] = {}
        self._file: tuple[pa.Table, bool] | None = None

    def check(self, name: str) -> None:
        """Raise if there is no such column, and name the nearest."""
        check_column(name, self.names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self.check(name)
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

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
        is_text, title = files.is_text, files.name
        # these hold the row names of pandas
        names = [n for n in files.names if is_text or not n.startswith("__index_level_")]

        def read(name: str) -> NDArray[Any]:
            column = table.column(name)
            return (
                _typed(column) if is_text else _converted(nw.from_native(column, series_only=True))
            )

        source = cls(names, table.num_rows, read, title)
        source._file = table, is_text
        return source

    def arrow(self, *, typed: bool) -> pa.Table:
        """Return all columns of the files: those of CSV as text, or with the types found."""
        import pyarrow as pa

        assert self._file is not None
        table, is_text = self._file
        if typed and is_text:
            for i, name in enumerate(table.column_names):
                if name:
                    # NaN is what NumPy has where a number is missing
                    own = pa.array(self[name], from_pandas=True)
                    table = table.set_column(i, name, own)
        return table


def _converted(series: nw.Series[Any]) -> NDArray[Any]:
    if series.dtype == nw.Categorical and series.implementation.is_pyarrow():
        # PyArrow turns a missing value of a dictionary column into some other value
        series = series.cast(nw.String)
    elif series.dtype == nw.Decimal:
        series = series.cast(nw.Float64)
    return series.to_numpy()


def _typed(column: pa.ChunkedArray) -> NDArray[Any]:
    """Turn text into integers, floats (NaN where missing), truth values, or text and None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from equipoise._files import texts

    text = texts(column)
    missing = text.null_count > 0

    def all_match(pattern: str) -> bool:
        return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False

    if all_match(_NUMBER) and not pc.any(pc.match_substring_regex(text, _LONG)).as_py():
        plain = pc.replace_substring_regex(text, r"^\+", "")
        whole = len(text) and not missing and all_match(_INTEGER)
        numbers = plain.cast(pa.int64() if whole else pa.float64())
        return np.asarray(numbers.to_numpy())
    if all_match(r"(?i)^(true|false)$"):
        text = pc.equal(pc.utf8_lower(text), "true")
    return np.asarray(text.to_numpy())
