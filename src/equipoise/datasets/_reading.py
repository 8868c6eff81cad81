"""Which kind a column is: as asked for, or as its values say."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import MISSING, InputError, encode, shown
from equipoise.datasets._cells import as_text
from equipoise.datasets._column import Column, as_texts, is_number, parsed, plain_dates
from equipoise.datasets._written import DATE_FORMS, TRUTH, Guess, guess_dates, guess_numbers

ID_ROWS = 20
"""Values that all differ are taken for ids if there are more of them than this."""
NEARLY_ALL = 0.9
"""Share of distinct values above which hashed text is said to be a possible id."""
MAX_CATEGORIES = 1000
"""Largest number of values of a column that is a category by request."""
_TYPED = "biufmM"  # kinds of NumPy arrays that are not of text or objects
_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "idx", "rowid", "rownum"}
_ID_NAMES = {"index", "key", "row"}


def read_column(
    array: NDArray[Any], name: str, asked: str | None, max_categories: int, hash_columns: int
) -> Column:
    """Decide how to read a column; `asked` overrules what its values say."""
    array = plain_dates(array, name)
    if asked in ("number", "date"):
        return _as_asked(array, name, asked)
    if asked is None and array.dtype.kind in "iufmM":
        return _typed(array, name)
    codes, values = encode(as_texts(array), f"column {name!r}")
    column = Column(name, "category", missing=int((codes < 0).sum()))
    if asked is None:
        column = _by_values(array, column, values)
        if column.kind != "category":
            return column
    if asked == "text" or (asked is None and len(values) > max_categories):
        present = len(array) - column.missing
        doubtful = asked is None and len(values) > NEARLY_ALL * present
        return _hashed(column, len(values), hash_columns, doubtful)
    if len(values) > max(MAX_CATEGORIES, max_categories):
        raise _refused(name, "category", f"it has {len(values):,} different values", "", "text")
    return dataclasses.replace(column, categories=tuple(dict.fromkeys(map(as_text, values))))


def _hashed(column: Column, distinct: int, width: int, doubtful: bool) -> Column:
    doubt = "nearly all values differ" * doubtful
    notes = f"{distinct:,} values hashed to {width} columns", column.note, doubt
    advice = column.advice or "drop" * doubtful
    note = "; ".join(filter(None, notes))
    return dataclasses.replace(column, kind="text", width=width, note=note, advice=advice)


def _left_out(name: str, why: str, missing: int = 0, advice: str = "") -> Column:
    return Column(name, "drop", missing=missing, note=why, advice=advice)


def _refused(name: str, kind: str, why: str, remedy: str, other: str) -> InputError:
    remedy = f"{remedy}, or pass " if remedy else "pass "
    return InputError(
        f"column {name!r} cannot be read as {kind}: {why}",
        f"{remedy}kinds={{{name!r}: {other!r}}}",
        f"{remedy}--as {other}:{shown(name)}",
    )


# --- numbers and dates -----------------------------------------------------------------------


def _typed(array: NDArray[Any], name: str) -> Column:
    """Read a column whose type says what it is: numbers, dates or durations."""
    if array.dtype.kind == "M":
        column = Column(name, "date", written=DATE_FORMS[0], note="days since 1970-01-01")
    else:
        spans = array.dtype.kind == "m"
        column = Column(name, "number", note="durations in days" * spans)
    return _finished(parsed(array, column)[0], column)


def _finished(own: NDArray[Any], column: Column) -> Column:
    """Count what is missing, and leave out what is constant, an id or a row number."""
    present = own[~np.isnan(own)]
    missing = len(own) - len(present)
    if not len(present):
        return _left_out(column.name, "no values", missing)
    if not missing and present.min() == present.max():
        return _left_out(column.name, f"one value, {as_text(present[0].item())}")
    why = _identity(own, present, column.name) if column.kind == "number" else ""
    if why:
        return _left_out(column.name, why, missing)
    return dataclasses.replace(column, missing=missing)


def _identity(own: NDArray[Any], present: NDArray[Any], name: str) -> str:
    """Say why whole numbers are no measurement: they count the rows, or are distinct ids."""
    n, low, high = len(present), present.min(), present.max()
    whole = np.isfinite([low, high]).all() and (present == np.floor(present)).all()
    if n <= ID_ROWS or not whole:
        return ""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    like_id = not _ID_WORDS.isdisjoint(w.lower() for w in words)
    like_id |= name.casefold() in _ID_NAMES or name.casefold().startswith("unnamed:")
    counts = high - low == len(own) - 1 and (low in (0, 1) or bool((np.diff(own) == 1).all()))
    if not (like_id or counts) or len(np.unique(present)) < n:
        return ""
    return "row number" if counts else f"id, all {n:,} values differ"


def _as_asked(array: NDArray[Any], name: str, kind: str) -> Column:
    """Read a column as numbers or dates; a value that is none is an error."""
    guess = None
    if array.dtype.kind not in _TYPED:
        guess = _guess(kind, _texts(encode(array, f"column {name!r}")[1]))
    if kind == "date" and guess is not None and guess.doubt:
        raise _refused(name, kind, guess.doubt, "write dates as YYYY-MM-DD", "category")
    truth = TRUTH if array.dtype.kind == "b" else ""
    guess = guess or Guess(DATE_FORMS[0] if kind == "date" else truth)
    column = Column(name, kind, written=guess.form, note=_how(array, kind, guess))
    own, row = parsed(array, column)
    if row is not None:
        value = as_texts(array[row : row + 1]).tolist()[0]
        other = "date" if array.dtype.kind == "M" else "category"
        remedy = "correct it, leave it empty if it is missing"
        raise _refused(name, kind, f"row {row} has {value!r}", remedy, other)
    return dataclasses.replace(column, missing=int(np.isnan(own).sum()))


def _how(array: NDArray[Any], kind: str, guess: Guess) -> str:
    """Say how values became numbers, where they were none."""
    if kind == "date":
        form = f", text in the form {guess.form}" * (guess.form != DATE_FORMS[0])
        return f"days since 1970-01-01{form}"
    if array.dtype.kind in _TYPED:
        return "durations in days" * (array.dtype.kind == "m")
    how = f"text in the form {guess.form}" if guess.form else "numbers written as text"
    return "; ".join(filter(None, (how, guess.remark)))


# --- text ------------------------------------------------------------------------------------


def _texts(values: Sequence[Any]) -> list[str]:
    return [v for v in values if isinstance(v, str) and v.strip() not in MISSING]


def _guess(kind: str, texts: Sequence[str]) -> Guess | None:
    if not texts:
        return None
    return guess_dates(texts) if kind == "date" else guess_numbers(texts)


def _by_values(array: NDArray[Any], column: Column, values: Sequence[Any]) -> Column:
    """Read a column of objects; one of kind "category" is still to be finished."""
    name, present = column.name, len(array) - column.missing
    if all(is_number(v) and not isinstance(v, bool) for v in values):
        number = Column(name, "number")
        return _finished(parsed(array, number)[0], number)
    texts = _texts(values)
    if not texts and isinstance(values[0], str):
        return _left_out(name, "no values", len(array))
    if len(values) == 1 and not column.missing:
        return _left_out(name, f"one value, {shown(as_text(values[0]))}")
    if texts:
        for kind in ("date", "number"):
            guess = _guess(kind, texts)
            if guess is None:
                continue
            if not guess.misfits and not guess.doubt:
                written = Column(name, kind, written=guess.form, note=_how(array, kind, guess))
                return _finished(parsed(array, written)[0], written)
            note, advice = _flag(kind, guess, len(texts))
            column = dataclasses.replace(column, note=note, advice=advice)
            if note:
                break
    if len(values) == present > ID_ROWS:
        why = "; ".join(filter(None, (f"all {present:,} values differ", column.note)))
        return _left_out(name, why, column.missing, column.advice)
    return column


def _flag(kind: str, guess: Guess, n: int) -> tuple[str, str]:
    """Return a note on what may be numbers or dates, and the kind to ask for."""
    if guess.doubt:
        return f"{kind}s? {guess.doubt}", "number" * (kind == "number")
    # digits that are no number, such as 01234, make it a column of codes
    if 2 * len(guess.misfits) > n or any(v.strip().isdigit() for v in guess.misfits):
        return "", ""
    more = f" and {len(guess.misfits) - 1:,} more" * (len(guess.misfits) > 1)
    return f"no {kind}s because of {shown(guess.misfits[0])!r}{more}", ""
