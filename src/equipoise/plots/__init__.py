"""Plots with matplotlib: reliability per group, rates of data and model, frontiers.

Each function draws on the axes given, by default those of a new figure, and returns them;
`plot_tradeoffs`, which has several panels, does so with a figure. The numbers are those of
`equipoise.metrics` and `equipoise.auditing`. Colours are those of Okabe and Ito, and series differ
in more than colour.
"""

from equipoise.plots._frontier import plot_frontier
from equipoise.plots._rates import plot_group_rates
from equipoise.plots._reliability import plot_reliability
from equipoise.plots._style import blank_figure
from equipoise.plots._tradeoffs import plot_tradeoffs

__all__ = [
    "blank_figure",
    "plot_frontier",
    "plot_group_rates",
    "plot_reliability",
    "plot_tradeoffs",
]
