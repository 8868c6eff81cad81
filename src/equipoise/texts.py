"""Groups and labels as text in one common form, so that files of any kind can be compared.

A group or label is matched by its text in one common form, so that 1, 1.0 and "1" are the same
whether a file is CSV or Parquet, and True, "True" and "true" are; "01" is a name of its own.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"})
"""What a CSV file has where a value is missing."""

# 18 digits are surely a number of 64 bits; more, or a leading zero, are a name
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d{0,17})(\.\d*)?|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)


def text_of(value: Any) -> str | None:
    """Return a group's or label's text in the form that all files have in common; None: missing.

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
    """Return the value of each text of a column: numbers if all are, truth values, or the text."""
    known = list(texts)
    if all(_NUMBER.fullmatch(t) for t in known):
        return {t: int(t) if _INTEGER.fullmatch(t) else float(t) for t in known}
    if set(known) <= {"true", "false"}:
        return {t: t == "true" for t in known}
    return {t: t for t in known}


def match(labels: Iterable[Any], present: Iterable[Any]) -> tuple[Any, ...]:
    """Return labels as the column that holds `present` has them, matched by value, else by text.

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
            # a label that no row has is of the type that the others are
            matched.append(typed([text])[text] if own and not words else label)
    return tuple(matched)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is most like this one, whatever its case.

    >>> nearest("Sex", ["SEX", "age"]), nearest("rcae", ["Race"]), nearest("x", ["age"])
    ('SEX', 'Race', None)
    """
    by_case = {own.casefold(): own for own in known}
    near = difflib.get_close_matches(name.casefold(), by_case, n=1)
    return by_case[near[0]] if near else None


def check_column(name: str, names: Sequence[str]) -> None:
    """Raise if there is no such column, and name the nearest."""
    if name not in names:
        near = nearest(name, names)
        hint = f"did you mean {near!r}? " if near else ""
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"there is no column {name!r}; {hint}there are {shown}")


def group_name(group: Hashable) -> str:
    """Return how a group is shown: its value, or its values joined."""
    return ", ".join(str(v) for v in group) if isinstance(group, tuple) else str(group)


def shown(group: Hashable) -> str:
    """Return a group's name on one line: what would move the cursor or hide text is escaped."""
    name = group_name(group)
    if name.isprintable():
        return name
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c)[0] in "CZ" and c != " "
        else c
        for c in name
    )


def counted(count: int, what: str) -> str:
    """Return a number of things, in the plural unless it is one."""
    return f"{count:,} {what}{'s' * (count != 1)}"
