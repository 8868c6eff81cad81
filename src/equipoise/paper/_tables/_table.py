"""The type of a table, and the headings and notes that tables share."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under a header; numbers stay numbers until they are shown.

    `narrow` is the form for a terminal: headings, and what stands below them, where ``{2}`` is the
    value of column 2.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[list[Any]]
    notes: tuple[str, ...] = ()
    narrow: tuple[tuple[str, str], ...] = ()


SPAN = "95% interval"
"""Last words of an interval's heading; its column follows that of the value."""

INTERVAL = (
    "Change in percent of cross-entropy's mean; the paired 95% interval over splits is that of the "
    "difference, in percent of the same mean, and so may pass 100. Splits share rows, so it is "
    "Nadeau and Bengio's: the variance of the mean is (1 / splits + 1 / 6) times that of a split, "
    "1 / 6 being test rows over training rows."
)

FLOOR = (
    "PE floor: what a model with a PE of 0 in the population scores on such test sets (Table 2)."
)


def compared(name: str, before: str = "before", after: str = "after") -> list[str]:
    """Return the headings of what `paired` returns."""
    return [f"{name} {before}", f"{name} {after}", f"{name} change %", f"{name} {SPAN}"]
