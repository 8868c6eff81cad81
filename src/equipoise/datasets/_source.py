"""A table, from memory or from a file, as NumPy columns by name.

CSV is read here, with no other library, so that the types of its columns never depend on what is
installed: a column is numbers if all its values are, else true and false, else text.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import MISSING, check_column

# a leading zero makes it a code, not a number: 01234 is not 1234
_NUMBER = re.compile(
    r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE
)
_LONG = re.compile(r"[+-]?\d{19,}")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_DATE = re.compile(
    r"(\d{4}(?P<a>[-/.])\d{1,2}(?P=a)\d{1,2}|\d{1,2}(?P<b>[-/.])\d{1,2}(?P=b)\d{4})([T ].*)?"
)


class Source:
    """Columns of a table, converted when first asked for."""

    def __init__(self, names: Sequence[str], rows: int, read: Callable[[str], NDArray[Any]]):
        self.names = list(names)
        self.rows = rows
        self._read = read
        self._columns: dict[str, NDArray[Any]] = {}

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
        """Open a pandas, polars or PyArrow table, or the path of a CSV or Parquet file."""
        if isinstance(data, Source):
            return data
        if isinstance(data, str | os.PathLike):
            path = Path(data)
            kind = path.suffix.lower()
            if kind in (".csv", ".tsv", ".txt"):
                return _csv(path)
            if kind not in (".parquet", ".pq"):
                raise ValueError(f"{path} is neither .csv (.tsv, .txt) nor .parquet")
            data = _parquet(path)
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


def _converted(series: nw.Series[Any]) -> NDArray[Any]:
    if series.dtype == nw.Categorical and series.implementation.is_pyarrow():
        # PyArrow turns a missing value of a dictionary column into some other value
        series = series.cast(nw.String)
    elif series.dtype == nw.Decimal:
        series = series.cast(nw.Float64)
    return series.to_numpy()


def _parquet(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if find_spec("pyarrow"):
        table = import_module("pyarrow.parquet").read_table(path, partitioning=None)
        # where pandas keeps its row names
        return table.drop([c for c in table.column_names if c.startswith("__index_level_")])
    if find_spec("polars"):
        return import_module("polars").read_parquet(path)
    raise ModuleNotFoundError("reading Parquet needs pyarrow or polars: pip install pyarrow")


def _csv(path: Path) -> Source:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            # the separator is the one that the header has most of
            header = file.readline()
            file.seek(0)
            separator = max(",;\t", key=header.count)
            reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
            names = [name.strip() for name in next(reader, [])]
            rows = [
                _checked(row, names, f"{path}, line {reader.line_num}") for row in reader if row
            ]
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    # a column without a name is that of the row numbers, as pandas writes them
    position = {name: j for j, name in enumerate(names) if name}
    twice = [name for j, name in enumerate(names) if position.get(name, j) != j]
    if twice:
        raise ValueError(f"{path} has several columns named {twice[0]!r}; rename all but one")
    return Source(
        list(position), len(rows), lambda name: _typed([row[position[name]] for row in rows])
    )


def _checked(row: list[str], names: list[str], where: str) -> list[str]:
    if len(row) != len(names):
        raise ValueError(
            f"{where}: {len(row)} values for {len(names)} columns; put text that contains the "
            "separator in quotes"
        )
    return row


def _typed(values: list[str]) -> NDArray[Any]:
    """Turn text into integers, floats (NaN where missing), truth values, or text and None."""
    values = [v.strip() for v in values]
    distinct = set(values)
    present = distinct - MISSING
    missing = len(present) < len(distinct)
    # an integer too long for 64 bits is a name: as a number it would lose its last digits
    if all(_NUMBER.fullmatch(v) and not _LONG.fullmatch(v) for v in present):
        if present and not missing and all(_INTEGER.fullmatch(v) for v in present):
            return np.array([int(v) for v in values], np.int64)
        number = {v: float(v) if v in present else np.nan for v in distinct}
        return np.array([number[v] for v in values], np.float64)
    meaning: dict[str, Any] = dict.fromkeys(distinct & MISSING) | {v: v for v in present}
    if {v.lower() for v in present} <= {"true", "false"}:
        meaning |= {v: v.lower() == "true" for v in present}
    return np.array([meaning[v] for v in values], dtype=object)


def looks_like_dates(values: Sequence[Any]) -> bool:
    """Say whether distinct values, none missing, are all dates written as text."""
    return bool(values) and all(isinstance(v, str) and _DATE.fullmatch(v) for v in values)
