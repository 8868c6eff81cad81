"""One column of a table, and how its values become columns of X."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import hashlib
import itertools
import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import MISSING, encode
from equipoise.datasets._cells import as_text, iso_days, written_numbers
from equipoise.datasets._written import DATE_FORMS, EPOCH, NUMBER_FORM, PARSERS, TRUTH

if TYPE_CHECKING:
    from equipoise.datasets._source import Source

KINDS = ("number", "category", "text", "date", "drop")
MAX_WIDTH = 1 << 20
"""Columns of hashed text at most; a file could ask for any number."""
_DAY = np.timedelta64(1, "D")


@dataclasses.dataclass(frozen=True)
class Column:
    """How one column of a table becomes columns of X."""

    name: str
    kind: str  # one of KINDS: "category" has a column per value, "text" is hashed, "drop" has none
    categories: tuple[str, ...] = ()  # the values of a "category", as text
    width: int = 0  # number of columns of a "text"
    written: str = ""  # form of a "date", and of a "number" that is text, such as 1,234.5
    missing: int = 0  # missing values in the fitted table
    note: str = ""  # why it is read like this, where that is not plain
    advice: str = ""  # the kind to try if the reading is wrong

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""
        if self.kind in ("number", "date"):
            return [self.name]
        if self.kind == "drop":
            return []
        names = [f"{self.name}={c}" for c in self.categories]
        names += [f"{self.name}#{j}" for j in range(self.width)]
        return names + [f"{self.name} missing"] * (self.missing > 0)

    def check(self) -> None:
        """Raise if the fields do not fit together; they may come from a file."""
        own, plain = dataclasses.astuple(self), dataclasses.astuple(Column("", ""))
        good = all(
            isinstance(value, type(wanted)) for value, wanted in zip(own, plain, strict=True)
        )
        good &= all(isinstance(category, str) for category in self.categories)
        if not good or self.width > MAX_WIDTH:
            raise ValueError(f"a column is described by {own!r:.200}")
        good = self.kind in KINDS and (self.kind != "text" or self.width > 0)
        if self.kind == "date":
            good &= self.written in DATE_FORMS
        elif self.written:
            known = self.written == TRUTH or NUMBER_FORM.fullmatch(self.written) is not None
            good &= self.kind == "number" and known
        if not good:
            raise ValueError(f"column {self.name!r} has no kind, or one without what it needs")

    def transform(self, table: Source) -> NDArray[np.float32]:
        """Return the columns of X, (row, column)."""
        if self.kind in ("number", "date"):
            return self._numbers(table)[:, None]
        codes, values = table.coded(self.name)
        # one row for each distinct value; the last is that of a missing one, whose code is -1
        rows = np.zeros((len(values) + 1, len(self.feature_names)), np.float32)
        if self.missing:
            rows[-1, -1] = 1
        if self.kind == "text":
            hashed = [_remembered(_hashed, as_text(value), self.width) for value in values]
            at = np.repeat(np.arange(len(values)), np.array([*map(len, hashed)], np.int64))
            place = np.fromiter(itertools.chain.from_iterable(hashed), np.int64)
            np.add.at(rows, (at, place), 1)
        else:
            found = np.array(table.places(values, self.categories), np.int64)
            known = np.flatnonzero(found >= 0)
            rows[known, found[known]] = 1
        return np.asarray(rows[codes])

    def _numbers(self, table: Source) -> NDArray[np.float32]:
        own, row = self._parsed(table)
        if row is not None:
            what = f"{self.kind}s{f' written as {self.written}' * bool(self.written)}"
            raise ValueError(
                f"column {self.name!r} is of {what}, but row {table.start + row} has "
                f"{table.value(self.name, row)!r}; "
                "correct it, or leave it empty if it is missing"
            )
        with np.errstate(over="ignore"):
            result = own.astype(np.float32)
        if np.isinf(result).any():
            row = int(np.argmax(np.isinf(result)))
            raise ValueError(
                f"column {self.name!r}, row {table.start + row}: {own[row]} is infinite or too "
                "large; replace it, or leave it empty if it is missing"
            )
        return result

    def _parsed(self, table: Source) -> tuple[NDArray[Any], int | None]:
        """Return the numbers, and the first row that has none."""
        text = table.text(self.name)
        if text is None:
            return parsed(plain_dates(table[self.name], self.name), self)
        own = None
        if self.kind == "number":
            own = written_numbers(text, self.written)
        elif self.written == DATE_FORMS[0]:
            own = iso_days(text)
        if own is not None:
            return own, None
        return _parsed_values(*table.coded(self.name), self)


def parsed(array: NDArray[Any], column: Column) -> tuple[NDArray[Any], int | None]:
    """Return the numbers of a column of numbers or dates, and the first row that has none."""
    kind = array.dtype.kind
    if kind == ("M" if column.kind == "date" else "m"):
        since = array - np.datetime64(EPOCH) if kind == "M" else array
        return since / _DAY, None
    percent = column.written.endswith("%")
    if kind in "iufb" and column.kind == "number" and not percent:
        return array, None
    return _parsed_values(*encode(as_texts(array), f"column {column.name!r}"), column)


def _parsed_values(
    codes: NDArray[Any], values: Sequence[Any], column: Column
) -> tuple[NDArray[Any], int | None]:
    percent = column.written.endswith("%")
    found = np.full(len(values) + 1, np.nan)
    wrong = []
    for i, value in enumerate(values):
        own = None
        if isinstance(value, str):
            own = _remembered(PARSERS[column.kind], value, column.written)
            own = np.nan if own is None and value.strip() in MISSING else own
        elif column.kind == "number" and not percent and is_number(value):
            own = float(value)
        if own is None:
            wrong.append(i)
        else:
            found[i] = own
    return found[codes], int(np.argmax(np.isin(codes, wrong))) if wrong else None


_cached = functools.lru_cache(1 << 15)(lambda function, text, how: function(text, how))


def _remembered(function: Callable[[str, Any], Any], text: str, how: Any) -> Any:
    """Return a function of a text; that of a short one is kept, as the next batch may have it."""
    return _cached(function, text, how) if len(text) < 100 else function(text, how)


def is_number(value: Any) -> bool:
    """Say whether a value is a number or a truth value, and no text."""
    return isinstance(value, numbers.Real | decimal.Decimal)


def as_texts(array: NDArray[Any]) -> NDArray[Any]:
    """Return dates as ISO texts, without the time where it is midnight; None if missing."""
    if array.dtype.kind != "M":
        return array
    whole = np.asarray(array, "M8[us]").tolist()
    texts = [None if v is None else v.isoformat(" ").removesuffix(" 00:00:00") for v in whole]
    return np.fromiter(texts, dtype=object, count=len(texts))


def plain_dates(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return an array of date or duration objects as NumPy's own, in UTC; others as they are."""
    if array.dtype.kind != "O" or not any(map(_is_time, set(map(type, array.tolist())))):
        return array
    values = [None if _is_missing(v) else v for v in array.tolist()]
    types = {type(v) for v in values if v is not None}
    for kind, unit in ((datetime.date, "M8[us]"), (datetime.timedelta, "m8[us]")):
        if all(issubclass(t, kind) for t in types):
            return np.array([_in_utc(v) for v in values], unit)
    found = ", ".join(sorted(t.__name__ for t in types))
    raise TypeError(
        f"column {name!r} holds values of type {found}; "
        "convert them to dates, numbers or text, or leave the column out with drop"
    )


def _is_time(kind: type) -> bool:
    times = datetime.date, datetime.time, datetime.timedelta
    return issubclass(kind, times) or kind.__name__ in ("Period", "Interval")


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


def _hashed(text: str, width: int) -> tuple[int, ...]:
    """Return the column of each word of a text."""
    return tuple(_hash(word) % width for word in text.casefold().split())


def _hash(word: str) -> int:
    # unlike hash(), the same in every process
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
