"""Cells of CSV files: the type of a column, and the values that its texts stand for.

The type follows from the values alone: numbers if all are, else true and false, else text. Texts
are without spaces around them, and null where a value is missing, as `equipoise._files.texts` has
them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.datasets._written import plain_pattern

if TYPE_CHECKING:
    import pyarrow as pa

# a leading zero makes it a code, not a number: 01234 is not 1234
_NUMBER = r"(?i)^[+-]?(((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf(inity)?)$"
# an integer too long for 64 bits is a name: as a number it would lose its last digits
_LONG = r"^[+-]?\d{19,}$"
_INTEGER = r"^[+-]?\d{1,18}$"
_TRUTH = r"(?i)^(true|false)$"
_DAY = 24 * 60 * 60 * 1e6  # microseconds


def _all_match(text: pa.ChunkedArray, pattern: str) -> bool:
    import pyarrow.compute as pc

    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False


def _are_numbers(text: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return _all_match(text, _NUMBER) and not pc.any(pc.match_substring_regex(text, _LONG)).as_py()


def numbers_of(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the numbers that texts stand for, null where missing; None if some text is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        found = text.cast(pa.float64())
    except pa.ArrowInvalid:
        if not _are_numbers(text):
            return None
        # some versions of PyArrow refuse +1
        found = pc.replace_substring_regex(text, r"^\+", "").cast(pa.float64())
    # PyArrow is ten times as fast as a pattern, but takes 01, +01 and NAN too: where that may be,
    # the pattern decides
    odd = pc.or_(pc.is_nan(found), pc.greater_equal(pc.binary_length(text), 19))
    for start in ("0", "-0", "+"):
        odd = pc.or_(odd, pc.starts_with(text, start))
    doubtful = text.filter(odd)
    return found if not len(doubtful) or _are_numbers(doubtful) else None


def written_numbers(text: pa.ChunkedArray, form: str) -> NDArray[np.float64] | None:
    """Return numbers of a form such as $1,234.5, NaN if missing.

    None if some text is written in another way, even if it is such a number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not form:
        plain = numbers_of(text)
        return None if plain is None else np.asarray(plain.to_numpy())
    pattern, removed, decimal = plain_pattern(form)
    if not pattern or not _all_match(text, pattern):
        return None
    for sign in removed:
        text = pc.replace_substring(text, sign, "")
    return np.asarray(pc.replace_substring(text, decimal, ".").cast(pa.float64()).to_numpy())


def iso_days(text: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Return the days from 1970 to dates such as 2024-12-31 or 2024-12-31 23:59:59, NaN if missing.

    None if some text is written in another way, even if it is a date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.is_in(pc.binary_length(text), pa.array([10, 16, 19], pa.int32()))
    if pc.any(pc.and_(pc.invert(lengths), text.is_valid())).as_py():
        return None
    try:
        found = text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    first = pc.min(pc.year(found)).as_py()
    # Python's dates begin with the year 1
    return None if first is not None and first < 1 else found.cast(pa.int64()).to_numpy() / _DAY


@dataclasses.dataclass
class TypeOfColumn:
    """The type that the texts of a CSV column share, from as many batches as there are."""

    rows: int = 0
    missing: bool = False
    numbers: bool = True
    whole: bool = True
    truth: bool = True

    def add(self, text: pa.ChunkedArray) -> None:
        """Take more texts into account."""
        self.rows += len(text)
        self.missing = self.missing or text.null_count > 0
        self.numbers = self.numbers and numbers_of(text) is not None
        self.whole = self.whole and self.numbers and not self.missing and _all_match(text, _INTEGER)
        self.truth = self.truth and _all_match(text, _TRUTH)

    @property
    def is_text(self) -> bool:
        """Whether no more texts can change the type."""
        return not (self.numbers or self.truth)

    @property
    def arrow(self) -> pa.DataType:
        """The type as PyArrow has it; without missing values, whole numbers are integers."""
        import pyarrow as pa

        if self.numbers:
            return pa.int64() if self.whole and self.rows else pa.float64()
        return pa.bool_() if self.truth else pa.string()


def as_type(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return texts as values of the type that `TypeOfColumn` found for them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == pa.bool_():
        return pc.equal(pc.utf8_lower(text), "true")
    if kind == pa.int64():
        return pc.replace_substring_regex(text, r"^\+", "").cast(kind)
    return numbers_of(text) if kind == pa.float64() else text


def typed(text: pa.ChunkedArray) -> NDArray[Any]:
    """Turn text into integers, floats (NaN where missing), truth values, or text and None."""
    column = TypeOfColumn()
    column.add(text)
    return np.asarray(as_type(text, column.arrow).to_numpy())


def coded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """Return each text's place in a list of distinct ones, -1 where it is missing, and the list."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    parts = column.unify_dictionaries().chunks
    if not parts:
        return np.zeros(0, np.int64), []
    codes = [p.indices.cast(pa.int64()).fill_null(-1).to_numpy() for p in parts]
    return np.concatenate(codes), parts[0].dictionary.to_pylist()


def places(texts: Iterable[str], known: Sequence[str]) -> list[int]:
    """Return the place of each text of a CSV file among known values; -1 if it is not there.

    A text counts as itself, else as the number or truth value that it may be: whether a column was
    read as text or as numbers depends on its other rows, and a prediction must not.

    >>> places(["1.0", "x", "TRUE"], ["1", "x", "True"]), places(["1.0"], ["1", "1.0"])
    ([0, 1, 2], [1])
    """
    index = {value: i for i, value in enumerate(known)}
    return [index[t] if t in index else index.get(_retyped(t), -1) for t in texts]


def _retyped(text: str) -> str:
    if not _is(_NUMBER, text) or _is(_LONG, text):
        return text.capitalize() if _is(_TRUTH, text) else text
    return as_text(int(text) if _is(_INTEGER, text) else float(text))


def _is(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.ASCII) is not None


def as_text(value: Any) -> str:
    """Return the text of a category: 1 and 1.0 are the same, as a missing value makes floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
