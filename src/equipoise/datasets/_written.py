"""Numbers and dates written as text, and the form that all values of a column share.

A form is named by how it writes 1234.5, such as `$1,234.5` or `1.234,5%`, or by a date's pattern.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

EPOCH = datetime.datetime(1970, 1, 1)
DATE_FORMS = ("YYYY-MM-DD", "DD/MM/YYYY", "MM/DD/YYYY")
# thousands separator and decimal mark, the English ones first
_MARKS = ((",", "."), (".", ","), (" ", "."), (" ", ","), ("'", "."))
_SIGNS = str.maketrans({"\xa0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-"})
_CURRENCY = r"[$£¥\u20a0-\u20cf]"
_SHELL = re.compile(
    rf"(?P<sign>[+-])?(?P<a>{_CURRENCY})? ?(?P<open>\()?(?P<b>{_CURRENCY})? ?(?P<inner>[+-])?"
    rf"(?P<body>[\d.,][\d., ']*?) ?(?P<c>{_CURRENCY})?(?P<percent> ?%)?(?P<close>\))?"
)
_BARE = re.compile(r"[\d.,][\d., ']*")
# a leading zero makes a code, and so do 19 digits: as a number it would lose some
_PLAIN = re.compile(r"[+-]?((0|[1-9]\d{0,17})(\.\d*)?|\.\d+|[1-9]\d*\.\d*)(e[+-]?\d+)?", re.I)
_ORDERS = {
    "YYYY-MM-DD": r"(?P<y>\d{4})(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})",
    "DD/MM/YYYY": r"(?P<d>\d{1,2})(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<y>\d{4})",
    "MM/DD/YYYY": r"(?P<m>\d{1,2})(?P<s>[-/.])(?P<d>\d{1,2})(?P=s)(?P<y>\d{4})",
}
_TIME = (
    r"(?:(?:T| +)(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d+))?)?"
    r" ?(?P<half>[ap]m)?(?: ?(?P<zone>Z|UTC|[+-]\d\d(?::?\d\d)?))?)?"
)
_DATES = {form: re.compile(order + _TIME, re.IGNORECASE) for form, order in _ORDERS.items()}


@dataclasses.dataclass(frozen=True)
class Guess:
    """The form that most values of a column have."""

    form: str
    misfits: tuple[str, ...] = ()  # values that are not written so
    remark: str = ""  # how a value was taken that has two readings
    doubt: str = ""  # why the form is no more than a guess


# --- numbers ---------------------------------------------------------------------------------


TRUTH = "true/false"
"""The form of numbers that are truth values."""
NUMBER_FORM = re.compile(rf"(?P<currency>{_CURRENCY})?1(?P<t>[,. '])234(?P<d>[.,])5(?P<percent>%)?")


class _Shell(NamedTuple):
    """A number's digits and separators, and what is around them."""

    body: str
    negative: bool
    currency: str
    percent: bool


class _Form(NamedTuple):
    thousands: str
    decimal: str
    currency: str
    percent: bool

    def __str__(self) -> str:
        return f"{self.currency}1{self.thousands}234{self.decimal}5{'%' * self.percent}"


@functools.cache
def _form(name: str) -> _Form:
    found = NUMBER_FORM.fullmatch(name)
    assert found is not None
    return _Form(found["t"], found["d"], found["currency"] or "", found["percent"] is not None)


@functools.cache
def _body(thousands: str, decimal: str) -> re.Pattern[str]:
    t, d = f"[{thousands}]", f"[{decimal}]"
    whole = rf"(?:0|[1-9]\d{{0,17}}|[1-9]\d{{0,2}}(?:{t}\d{{3}})+)"
    return re.compile(rf"(?:{whole}(?:{d}\d*)?|{d}\d+)")


def _shell(text: str) -> _Shell | None:
    text = text.strip()
    if not text.isascii():
        text = text.translate(_SIGNS)
    if _BARE.fullmatch(text):  # the usual case, and quick
        return _Shell(text, False, "", False)
    found = _SHELL.fullmatch(text)
    if found is None:
        return None
    sign, a, opening, b, inner, body, c, percent, closing = found.groups()
    signs = [s for s in (sign, inner, opening) if s]
    symbols = [s for s in (a, b, c) if s]
    if len(signs) > 1 or len(symbols) > 1 or (opening is None) != (closing is None):
        return None
    return _Shell(body, signs[:1] in (["-"], ["("]), "".join(symbols), percent is not None)


def _value(shell: _Shell | None, form: _Form) -> float | None:
    if shell is None or shell.percent != form.percent:
        return None
    if shell.currency and shell.currency != form.currency:
        return None
    if not _body(form.thousands, form.decimal).fullmatch(shell.body):
        return None
    size = float(shell.body.replace(form.thousands, "").replace(form.decimal, "."))
    return -size if shell.negative else size


def number_of(text: str, form: str) -> float | None:
    """Return the number that a text of this form stands for; None if it has another form.

    >>> number_of("(34,800.77)", "1,234.5"), number_of("12,5", "1,234.5"), number_of("12,5", "")
    (-34800.77, None, None)
    """
    if form == TRUTH and text.strip().lower() in ("true", "false"):
        return float(text.strip().lower() == "true")
    if form not in ("", TRUTH):
        return _value(_shell(text), _form(form))
    text = text.strip()
    return float(text) if _PLAIN.fullmatch(text) else None


def plain_pattern(form: str) -> tuple[str, str, str]:
    """Return a pattern of most texts of a form, the signs that are no digits, and the decimal mark.

    The pattern is one that PyArrow takes too. A text that it does not match may still be a number,
    such as (1,234.5).
    """
    if form == TRUTH:
        return "", "", ""
    own = _form(form)
    body = _body(own.thousands, own.decimal).pattern
    currency = f"[{own.currency}]?" * bool(own.currency)
    signs = own.thousands + own.currency + "%" * own.percent
    return rf"^-?{currency}{body}{'%' * own.percent}$", signs, own.decimal


def guess_numbers(texts: Sequence[str]) -> Guess | None:
    """Return the form in which distinct texts write numbers; None if none of them does."""
    if all(number_of(t, "") is not None for t in texts):
        return Guess("")
    shells = [_shell(t) for t in texts]
    found = [s for s in shells if s is not None]
    currencies = Counter(s.currency for s in found if s.currency).most_common(1)
    currency = currencies[0][0] if currencies else ""
    percent = 2 * sum(s.percent for s in found) > len(found)
    forms = [_Form(*marks, currency, percent) for marks in _MARKS]
    fit = [form for form in forms if all(_value(s, form) is not None for s in shells)]
    if fit:
        best, *others = ([_value(s, form) for s in shells] for form in fit)
        if all(own == best for own in others):
            return Guess(str(fit[0]))
        return _settled(str(fit[0]), [s.body for s in found])
    misfits = {
        f: tuple(t for t, s in zip(texts, shells, strict=True) if _value(s, f) is None)
        for f in forms
    }
    form = min(forms, key=lambda f: len(misfits[f]))
    return Guess(str(form), misfits[form]) if len(misfits[form]) < len(texts) else None


def _settled(form: str, bodies: Sequence[str]) -> Guess:
    """Choose the English reading of 1,234 or 1.234 unless another value speaks against it.

    Where every value has the mark, the two readings differ by a factor of 1000, which
    standardising removes.
    """
    mark = "," if any("," in body for body in bodies) else "."
    example = next(body for body in bodies if mark in body)
    without = [body for body in bodies if mark not in body]
    if mark == "," and all(len(body) < 5 for body in without):
        return Guess(form, remark=f"the comma in {example} taken as thousands")
    if mark == "." and not without:
        return Guess(form, remark=f"the point in {example} taken as decimal")
    return Guess(form, doubt=f"{example} has two readings")


# --- dates -----------------------------------------------------------------------------------


def day_of(text: str, form: str) -> float | None:
    """Return the days from 1970-01-01 to a date written in this form; None if it is no such.

    >>> day_of("1970-01-02 12:00", "YYYY-MM-DD"), day_of("3/13/1970", "DD/MM/YYYY")
    (1.5, None)
    """
    found = _DATES[form].fullmatch(text.strip())
    if found is None:
        return None
    hour = int(found["hour"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (found["half"].lower() == "pm")
    part = int((found["part"] or "0")[:6].ljust(6, "0"))
    year, month, day = (int(found[k]) for k in "ymd")
    minute, second = (int(found[k] or 0) for k in ("minute", "second"))
    try:
        when = datetime.datetime(year, month, day, hour, minute, second, part)
        return (when - EPOCH - _offset(found["zone"])) / datetime.timedelta(days=1)
    except (OverflowError, ValueError):
        return None


def _offset(zone: str | None) -> datetime.timedelta:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return datetime.timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    ahead = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -ahead if zone[0] == "-" else ahead


def guess_dates(texts: Sequence[str]) -> Guess | None:
    """Return the form in which distinct texts write dates; None if none of them does."""
    fit = [form for form in DATE_FORMS if all(day_of(t, form) is not None for t in texts)]
    if len(fit) == 1:
        return Guess(fit[0])
    if fit:
        # where the separator is a point, the day comes first
        points = all("." in t.split()[0] for t in texts)
        return Guess(fit[0], doubt="" if points else "day and month cannot be told apart")
    misfits = {f: tuple(t for t in texts if day_of(t, f) is None) for f in DATE_FORMS}
    form = min(DATE_FORMS, key=lambda f: len(misfits[f]))
    return Guess(form, misfits[form]) if len(misfits[form]) < len(texts) else None


PARSERS: dict[str, Callable[[str, str], float | None]] = {"number": number_of, "date": day_of}
