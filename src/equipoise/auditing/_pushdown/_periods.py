"""Dates and timestamps cut to periods: by "ts:month", the column ts splits the rows by month.

The engine groups by a number such as 202403, or by the beginning of a text such as 2024-03; these
become the names of periods here.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import narwhals as nw

from equipoise._files import Opened
from equipoise._inputs import check_column

UNITS = {"year": 4, "quarter": 7, "month": 7, "week": 10, "day": 10, "hour": 13}
"""Periods, and the characters of 2024-03-05T12:00 that tell them."""

TEXTS = (nw.String, nw.Categorical, nw.Enum)

KNOWN = "year, quarter, month, week, day or hour"

ISO = (
    r"^\s*\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"(?:[ T](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:[Zz]|[+-]\d{2}(?::?\d{2})?)?)?\s*$"
)
"""An ISO date, alone or with a time; what follows the hour does not matter."""


def split_period(name: str, names: Sequence[str]) -> tuple[str, str | None]:
    """Return the column and the unit of "ts:month"; no unit where a column has this very name."""
    column, colon, unit = name.rpartition(":")
    if name in names or not colon or (column not in names and unit not in UNITS):
        return name, None
    check_column(column, names)
    if unit not in UNITS:
        raise ValueError(
            f"{name!r}: {unit!r} is no period that column {column!r} can be cut to; use {KNOWN}, "
            f"such as {column}:month"
        )
    return column, unit


def cut(column: nw.Expr, name: str, unit: str, kind: Any, source: Opened) -> nw.Expr:
    """Return what rows are grouped by: the first characters of a text, or a float of digits."""
    if kind in TEXTS:
        text = column.cast(nw.String).str.strip_chars()
        # another text stays whole, and is refused once it is found
        return nw.when(text.str.contains(ISO)).then(text.str.slice(0, UNITS[unit])).otherwise(text)
    if kind == nw.Object and _holds_dates(source, name):
        column = column.cast(nw.Datetime)
    elif kind != nw.Date and kind != nw.Datetime:
        raise TypeError(
            f"column {name!r} holds {kind}, not dates, so it cannot be cut to {unit}s; name a "
            "column of dates, of timestamps, or of ISO text such as 2024-03-05"
        )
    if kind == nw.Date and unit == "hour":
        raise TypeError(f"column {name!r} holds dates without a time; cut it with {name}:day")
    if kind == nw.Datetime and kind.time_zone and source.is_file and _keeps_zones(source):
        # every engine that reads files sees the same hours
        column = column.dt.convert_time_zone("UTC")
    digits = column.dt.year().cast(nw.Float64)
    parts = {"month": column.dt.month(), "day": column.dt.day(), "hour": column.dt.hour()}
    for length, part in zip((7, 10, 13), parts, strict=True):
        if UNITS[unit] >= length:
            digits = digits * 100.0 + parts[part].cast(nw.Float64)
    return digits


def _keeps_zones(source: Opened) -> bool:
    engine = source.frame.implementation
    return not (engine.is_duckdb() or engine.is_pyspark())


def in_utc(frame: Any, name: str, kind: Any, *, is_file: bool) -> Any:
    """Return a frame of DuckDB or Spark, which store no zone, with a column's times in UTC.

    Its columns are plainly named.
    """
    if kind != nw.Datetime or not kind.time_zone:
        return frame
    if frame.implementation.is_duckdb():
        query = f"* REPLACE (timezone('UTC', {name}) AS {name})"
        return nw.from_native(frame.to_native().project(query))
    if frame.implementation.is_pyspark() and is_file:
        native = frame.to_native()
        others = [n for n in native.columns if n != name]
        own = f"to_utc_timestamp({name}, current_timezone()) AS {name}"
        return nw.from_native(native.selectExpr(*others, own))
    return frame


def _holds_dates(source: Opened, name: str) -> bool:
    own = next(n for n in source.frame.columns if str(n) == name)
    first = source.frame.select(own).drop_nulls().head(1)
    values = first[own].to_list() if isinstance(first, nw.DataFrame) else []
    return bool(values) and isinstance(values[0], datetime.date)


def period_of(value: Any, name: str, unit: str) -> str:
    """Return the name of the period that a key of the engine is in."""
    digits = re.sub(r"\D", "", value) if isinstance(value, str) else str(int(value))
    begins = isinstance(value, str) and re.fullmatch(r"\d{4}(-\d\d(-\d\d([ T]\d\d)?)?)?", value)
    try:
        if isinstance(value, str) and not begins:
            raise ValueError
        year, month, day, hour = (
            int(digits[a:b] or 0) for a, b in ((0, 4), (4, 6), (6, 8), (8, 10))
        )
        start = datetime.date(year, month or 1, day or 1)
    except ValueError:
        raise ValueError(
            f"column {name.rpartition(':')[0]!r} holds {value!r}, which is no ISO date such as "
            f"2024-03-05 or 2024-03-05 12:00:00, so it cannot be cut to {unit}s; repair the "
            "column, or name another"
        ) from None
    week = start.isocalendar()
    return {
        "year": f"{year:04}",
        "quarter": f"{year:04}-Q{(start.month + 2) // 3}",
        "month": f"{year:04}-{start.month:02}",
        "week": f"{week.year:04}-W{week.week:02}",
        "day": start.isoformat(),
        "hour": f"{start.isoformat()} {hour:02}h",
    }[unit]
