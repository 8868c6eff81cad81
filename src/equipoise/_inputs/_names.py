"""Names that come from data, as messages and tables print them."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Hashable, Sequence


def alternatives(name: str, known: Sequence[str], between: str = ", ") -> str:
    """Return the known names for a message about an unknown one, the most similar first.

    >>> alternatives("Sex", ["SEX", "age"]), alternatives("x", ["age"])
    ("did you mean 'SEX'? there are SEX, age", 'there are age')
    """
    by_case = {own.casefold(): own for own in known}
    listed = [shown(own) for own in known[:20]]
    near = difflib.get_close_matches(name.casefold(), by_case, n=1)
    hint = f"did you mean {by_case[near[0]]!r}? " if near else ""
    return f"{hint}there are {between.join([*listed, *['...'] * (len(known) > 20)])}"


def check_column(name: str, names: Sequence[str]) -> None:
    """Raise if there is no such column, and name the nearest."""
    if name not in names:
        raise ValueError(f"there is no column {name!r}; {alternatives(name, names)}")


def shown(name: Hashable) -> str:
    r"""Return a name from data as it is printed, on one line; the values of a tuple are joined.

    Characters that move the cursor, hide text or change its direction are escaped.

    >>> shown(("a", 1)), shown("red\x1b[31m")
    ('a, 1', 'red\\x1b[31m')
    """
    text = ", ".join(str(v) for v in name) if isinstance(name, tuple) else str(name)
    return printable(text, lines=False)


def printable(text: str, *, lines: bool = True) -> str:
    r"""Return text with the characters that a terminal acts on escaped; with `lines` as lines.

    >>> printable("one\ntwo\x1b[2J"), printable("one\ntwo", lines=False)
    ('one\ntwo\\x1b[2J', 'one\\ntwo')
    """
    if text.isprintable():
        return text
    kept = " \n" if lines else " "
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c)[0] in "CZ" and c not in kept
        else c
        for c in text
    )


def counted(count: int, what: str) -> str:
    """Return a number of things, in the plural unless it is one."""
    return f"{count:,} {what}{'s' * (count != 1)}"
