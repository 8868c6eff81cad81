"""Pareto sets, selection within an accuracy slack, and the search on your own data.

Selection needs no torch; the search is loaded where it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from equipoise._door import opened_late
from equipoise.metrics import (
    curve,
    frontier_frequency,
    hypervolume,
    pareto_front,
    pareto_mask,
)
from equipoise.search._choice import balanced_score, baseline_medians, choose, within_slack
from equipoise.search._interval import mean_interval
from equipoise.search._selection import select

if TYPE_CHECKING:
    from equipoise.search._pooling import POOLED
    from equipoise.search._search import FrontierSearch, StoppedEarly

__all__ = [
    "POOLED",
    "FrontierSearch",
    "StoppedEarly",
    "balanced_score",
    "baseline_medians",
    "choose",
    "curve",
    "frontier_frequency",
    "hypervolume",
    "mean_interval",
    "pareto_front",
    "pareto_mask",
    "select",
    "within_slack",
]

__getattr__, __dir__ = opened_late(__name__, __file__, extra="train")
