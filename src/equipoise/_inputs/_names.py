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


def shown(name: Hashable) -> str:
    r"""Return a name from data as it is printed, on one line: the values of a tuple joined.

    What would move the cursor, hide text or turn its direction is escaped.

    >>> shown(("a", 1)), shown("red\x1b[31m")
    ('a, 1', 'red\\x1b[31m')
    """
    text = ", ".join(str(v) for v in name) if isinstance(name, tuple) else str(name)
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c)[0] in "CZ" and c != " "
        else c
        for c in text
    )


def counted(count: int, what: str) -> str:
    """Return a number of things, in the plural unless it is one."""
    return f"{count:,} {what}{'s' * (count != 1)}"
