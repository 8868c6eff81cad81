"""Pictures with matplotlib: reliability per group, rates of data and model, frontiers.

Each function draws on the axes it is given, or on a new figure of pyplot's where it is given none,
and returns the axes. Nothing is computed here: the numbers are those of `equipoise.metrics`,
`equipoise.intervals` and `equipoise.frontier`. Colours are those of Okabe and Ito, and no two
series differ in colour alone.
"""

from equipoise.plots.frontier import plot_frontier
from equipoise.plots.rates import plot_group_rates
from equipoise.plots.reliability import plot_reliability

__all__ = ["plot_frontier", "plot_group_rates", "plot_reliability"]
