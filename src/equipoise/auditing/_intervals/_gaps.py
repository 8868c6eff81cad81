"""Intervals of the largest difference between two groups."""

from __future__ import annotations

import functools

import numpy as np

from equipoise.auditing._distributions import ndtr, ndtri
from equipoise.auditing._intervals._figures import Interval, ends_of
from equipoise.auditing._intervals._spread import Floats, Spread
from equipoise.metrics import METRICS


def gap_values(spread: Spread) -> dict[str, float]:
    """Return the largest difference between two groups of each metric; nothing for one group."""
    if len(spread.table.groups) < 2:
        return {}
    found = {}
    for name, metric in METRICS.items():
        if name in ("ece", "classwise_ece", "mce"):
            values = np.maximum(ends_of(spread, name, 1.0)[0], 0.0)
        else:
            values = metric.of(spread.table)
        values = values[~np.isnan(values)]
        with np.errstate(invalid="ignore"):
            found[name] = float(values.max() - values.min()) if len(values) > 1 else float("nan")
    return found


def gap_interval(spread: Spread, name: str, z: float) -> Interval:
    """Return the interval of the largest difference between two groups."""
    value, (low, high) = ends_of(spread, name, z)
    known = ~np.isnan(value) & ~np.isnan(low)
    m = int(known.sum())
    if m < 2 or np.isinf(value[known]).all():
        return Interval(float("nan"), float("nan"))
    if name == "mce" or np.isinf(value[known]).any():
        # simultaneous intervals of all groups
        _, (low, high) = ends_of(spread, name, float(-ndtri(ndtr(-z) / m)))
        low, high = low[known], high[known]
        return Interval(max(float(low.max() - high.min()), 0.0), float(high.max() - low.min()))
    contend = known & ((high >= low[known].max()) | (low <= high[known].min()))
    _, (far_low, far_high) = ends_of(spread, name, range_quantile(int(contend.sum()), z))
    value, low, high = value[known], low[known], high[known]
    # the arms of two intervals add up like standard errors
    least = _largest(value, value - far_low[known], far_high[known] - value, -1)
    most = _largest(value, high - value, value - low, 1)
    limit = {"brier": 1.0 if len(spread.table.labels) == 2 else 2.0, "log_loss": np.inf}
    return Interval(max(least, 0.0), min(most, limit.get(name, 1.0)))


def _largest(value: Floats, own: Floats, other: Floats, sign: int) -> float:
    """Return the largest value_g - value_h + sign * sqrt(own_g^2 + other_h^2) over pairs."""
    best = -np.inf
    step = max(1, 1_000_000 // len(value))
    for start in range(0, len(value), step):
        g = slice(start, start + step)
        arm = np.sqrt(own[g, None] ** 2 + other**2)
        best = max(best, float((value[g, None] - value + sign * arm).max()))
    return best


@functools.cache
def range_quantile(m: int, z: float) -> float:
    """Return the bound of the largest difference of m equal groups, in standard errors.

    For two groups that is z; for more it is the quantile of the studentised range (Tukey's test).
    """
    if m <= 2:
        return z
    from scipy.stats import studentized_range  # half a second, so only when it is needed

    return float(studentized_range.ppf(2 * ndtr(z) - 1, m, np.inf)) / 2**0.5
