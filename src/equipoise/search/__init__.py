"""Choosing: selection within an accuracy slack, and the search on one's own data.

Choosing among runs needs no torch; the search is loaded where it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from equipoise.search._choice import (
    balanced_score,
    baseline_medians,
    choose,
    within_slack,
)
from equipoise.search._interval import mean_interval
from equipoise.search._selection import select

if TYPE_CHECKING:
    from equipoise.search._plan import POOLED
    from equipoise.search._results import Tradeoffs, Trial
    from equipoise.search._search import FrontierSearch

__all__ = [
    "POOLED",
    "FrontierSearch",
    "Tradeoffs",
    "Trial",
    "balanced_score",
    "baseline_medians",
    "choose",
    "mean_interval",
    "select",
    "within_slack",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'equipoise.search' has no attribute {name!r}")
    from equipoise.search import _search

    return getattr(_search, name)
