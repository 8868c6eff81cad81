"""Pictures with matplotlib: reliability per group, rates of data and model, frontiers.

Each function draws on the axes it is given, or on a new figure of pyplot's where it is given none,
and returns the axes. Nothing is computed here: the numbers are those of `equipoise.metrics`
and `equipoise.auditing`. Colours are those of Okabe and Ito, and no two
series differ in colour alone.
"""

from equipoise.plots._frontier import plot_frontier
from equipoise.plots._rates import plot_group_rates
from equipoise.plots._reliability import plot_reliability
from equipoise.plots._style import blank_figure

__all__ = ["blank_figure", "plot_frontier", "plot_group_rates", "plot_reliability"]
