"""Choosing among runs: the Pareto frontier of two measures, and one run within an accuracy slack.

A point is a pair, usually (PE, ECE), and lower is better in both. Nothing here trains or measures
a model: arrays and tables in, masks, curves and one row out.
"""

from equipoise.frontier.choice import balanced_score, choose, within_slack
from equipoise.frontier.pareto import (
    curve,
    frontier_frequency,
    hypervolume,
    pareto_front,
    pareto_mask,
)
from equipoise.frontier.selection import select

__all__ = [
    "balanced_score",
    "choose",
    "curve",
    "frontier_frequency",
    "hypervolume",
    "pareto_front",
    "pareto_mask",
    "select",
    "within_slack",
]
