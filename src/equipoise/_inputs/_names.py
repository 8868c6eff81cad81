"""Names that come from data, as messages and tables print them."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Hashable, Sequence


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
