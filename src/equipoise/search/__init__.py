"""Choosing: Pareto sets, selection within an accuracy slack, and the search on one's own data."""

from equipoise.metrics import curve, frontier_frequency, hypervolume, pareto_front, pareto_mask
from equipoise.search._choice import balanced_score, choose, within_slack
from equipoise.search._results import interval
from equipoise.search._search import POOLED, FrontierSearch
from equipoise.search._selection import select

__all__ = [
    "POOLED",
    "FrontierSearch",
    "balanced_score",
    "choose",
    "curve",
    "frontier_frequency",
    "hypervolume",
    "interval",
    "pareto_front",
    "pareto_mask",
    "select",
    "within_slack",
]
