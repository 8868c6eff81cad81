"""One value of a label or group: as text in a common form, and as JSON.

Groups and labels are matched by this text, so that 1, 1.0 and "1" are the same in CSV and Parquet
files, and so are True, "True" and "true"; "01" is a name of its own.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"})
"""Texts that stand for a missing value in a CSV file."""

# 18 digits fit in 64 bits; more digits, or a leading zero, make a name
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")

_NUMBER = re.compile(r"[+-]?((0|[1-9]\d{0,17})(\.\d*)?|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)


def text_of(value: Any) -> str | None:
    """Return the common text of a group or label; None if it is missing.

    >>> [text_of(v) for v in (1, 1.0, " 1.00", "01", True, "TRUE", 0.5, "Ann ", None)]
    ['1', '1', '1', '01', 'true', 'true', '0.5', 'Ann', None]
    """
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("true", "false"):
            return text.lower()
        if not _NUMBER.fullmatch(text):
            return text
        value = int(text) if _INTEGER.fullmatch(text) else float(text)
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, float) and abs(value) < 1e18 and value.is_integer():
        value = int(value)
    if isinstance(value, int | float):
        return str(value)
    what = "dates" if isinstance(value, datetime.date) else type(value).__name__
    raise TypeError(f"holds {what}; groups and labels are text, numbers or truth values")


def typed(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of a column of texts: numbers or truth values if all are, or the texts."""
    known = list(texts)
    if all(_NUMBER.fullmatch(t) for t in known):
        return {t: int(t) if _INTEGER.fullmatch(t) else float(t) for t in known}
    if set(known) <= {"true", "false"}:
        return {t: t == "true" for t in known}
    return {t: t for t in known}


def match(labels: Iterable[Any], present: Iterable[Any]) -> tuple[Any, ...]:
    """Return labels as the values of a column that holds `present`, matched by value or text.

    >>> match(["0", "1", "2"], [1, 2]), match(["no", "yes"], ["yes"])
    ((0, 1, 2), ('no', 'yes'))
    """
    own = list(present)
    by_text = {text_of(value): value for value in own}
    words = any(isinstance(value, str) for value in own)
    matched = []
    for label in labels:
        text = text_of(label)
        if label in own or text is None:
            matched.append(label)
        elif text in by_text:
            matched.append(by_text[text])
        else:
            # a label that no row has gets the type of the others
            matched.append(typed([text])[text] if own and not words else label)
    return tuple(matched)


def to_plain(value: Any) -> Any:
    """Turn a group or label into what JSON holds; tuples become lists."""
    if isinstance(value, tuple | list | np.ndarray):
        return [to_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{value!r} ({type(value).__name__}) cannot be written as JSON; "
        "use numbers, strings or booleans as groups and labels"
    )


def from_plain(value: Any) -> Any:
    """Undo `to_plain`: lists become tuples again."""
    return tuple(from_plain(v) for v in value) if isinstance(value, list) else value
