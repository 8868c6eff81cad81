"""Intervals of each metric and each rate of each group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from equipoise.auditing._distributions import betaincinv, ndtr, ndtri, stdtrit
from equipoise.auditing._intervals._spread import RATES, Floats, Spread
from equipoise.metrics import METRICS, ratio

Ends = tuple[Floats, Floats]


class Interval(NamedTuple):
    """Both ends of an interval; nan where undefined, inf where the data give no bound."""

    low: float
    high: float


# --- norms of gaps ---------------------------------------------------------------------------

BIAS = 0.18
"""Allowance for the bias that `without_bias` leaves, in standard errors of a bin."""


def without_bias(gap: Floats, var: Floats) -> tuple[Floats, Floats, Floats]:
    """Estimate each |gap| nearly without bias; its variance; the bias that may be left.

    With z = gap / sigma, |z| overestimates by up to 0.8. Subtracting (1.13 - 0.6 z^2) exp(-z^2 / 2)
    leaves about 0.2, one way or the other, at the price of 38% more variance where the gap may be
    0. No estimate of |theta| from theta + noise is unbiased; these numbers make the squared bias
    of 30 bins together and the variance small.
    """
    sigma = np.sqrt(var)
    z = np.nan_to_num(ratio(np.abs(gap), sigma), posinf=99.0)
    size = np.abs(gap) - sigma * (1.13 - 0.6 * z**2) * np.exp(-(z**2) / 2)
    doubt = ndtr(1.35 * (2.75 - z))
    return size, var * (1 + 0.38 * doubt), BIAS * sigma * doubt


def debiased_ece(spread: Spread) -> tuple[Floats, Floats]:
    """Return the ECE without its bias, which may be negative, and its standard error."""
    size, var, bias = without_bias(spread.gap, spread.gap_var)
    total = np.maximum(var.sum(-1) + spread.gap_cross, 0.0) + bias.sum(-1) ** 2
    return size.sum(-1), np.sqrt(total)


def _classwise_ece(spread: Spread) -> tuple[Floats, Floats]:
    size, var, bias = without_bias(spread.class_gap, spread.class_var)
    noise = var.sum((-2, -1)) * spread.class_factor + spread.class_cross
    total = np.maximum(noise, 0.0) + bias.sum((-2, -1)) ** 2
    k = spread.class_gap.shape[-2]
    return size.sum((-2, -1)) / k, np.sqrt(total) / k


def _squared_ece(spread: Spread, z: float) -> tuple[Floats, Ends]:
    """Return the debiased squared ECE, and its interval."""
    table = spread.table
    value = METRICS["debiased_squared_ece"].of(table)
    share = ratio(table["bin_count"], table["weight"][:, None])
    gap, var = spread.gap, spread.gap_var
    clean = np.sign(gap) * np.sqrt(np.maximum(gap**2 - var, 0.0))
    mean = np.nan_to_num(ratio(clean, share))
    second = var * spread.rows[:, None] + clean**2
    square = (mean * clean).sum(-1)
    row = (4 * mean**2 * second - 4 * mean**3 * clean + mean**4 * share).sum(-1) - square**2
    # a score interval: the variance is that of noise alone plus a part that grows with the value
    noise = np.nan_to_num(ratio(2 * var**2, share**2)).sum(-1)
    grows = np.where(square > 0, ratio(np.maximum(row, 0.0), square), 4 * second.sum(-1))
    grows = ratio(grows, spread.rows)
    middle = value + z**2 * grows / 2
    half = z * np.sqrt(noise + grows * np.maximum(value, 0.0) + z**2 * grows**2 / 4)
    return value, (middle - half, middle + half)


def _mce(spread: Spread, z: float) -> tuple[Floats, Ends]:
    """Return the MCE without bias, and an interval that is valid whichever bin is the worst."""
    table = spread.table
    count = table["bin_count"]
    filled = count > 0
    n = np.where(filled, ratio(count**2, table["bin_count2"]), 1.0)
    hit, sure = ratio(table["bin_correct"], count), ratio(table["bin_confidence"], count)
    hit, sure = np.where(filled, hit, 0.5), np.where(filled, sure, 0.5)
    low, high = _exact(hit, n, ndtr(-z))
    far = np.where(filled, np.maximum(sure - low, high - sure), 0.0)
    near = np.where(filled, _distance(sure, low, high), 0.0)
    # simultaneous intervals of all bins that may be the worst
    contend = filled & (far >= near.max(-1, keepdims=True))
    several = np.maximum(contend.sum(-1, keepdims=True), 1)
    low, high = _exact(hit, n, ndtr(-z) / several)
    near = np.where(contend, _distance(sure, low, high), 0.0)
    sigma = np.sqrt(np.maximum(sure * (1 - sure), hit * (1 - hit)) / n)
    half = ndtri(0.5 + 0.5 * 0.5 ** (1 / np.maximum(filled.sum(-1, keepdims=True), 1)))
    value = np.where(filled, np.maximum(np.abs(hit - sure) - half * sigma, 0.0), 0.0)
    empty = ~filled.any(-1)
    value, near, far = (np.where(empty, np.nan, x.max(-1)) for x in (value, near, far))
    return value, (near, far)


def _exact(mean: Floats, n: Floats, tail: Any) -> Ends:
    """Return the Clopper-Pearson interval of proportions, with this probability in each tail."""
    hits, misses = mean * n, n - mean * n
    tail = np.broadcast_to(tail, mean.shape)
    some, more = np.where(hits > 0, hits, 1.0), np.where(misses > 0, misses, 1.0)
    low = np.where(hits > 0, betaincinv(some, misses + 1, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, more, 1 - tail), 1.0)
    return low, high


def _distance(x: Floats, low: Floats, high: Floats) -> Floats:
    """Return the distance of x from the interval, 0 inside."""
    return np.maximum(np.maximum(low - x, x - high), 0.0)


NORMS: Mapping[str, Callable[[Spread], tuple[Floats, Floats]]] = {
    "ece": debiased_ece,
    "classwise_ece": _classwise_ece,
}


# --- intervals of one table ------------------------------------------------------------------


def wilson(mean: Floats, scatter: Floats, z: Any) -> Ends:
    """Return the score interval of means within 0..1.

    `scatter` is its variance over mean * (1 - mean): 1 / n for a proportion.
    """
    a = z**2 * np.minimum(scatter, 1e100)
    middle = (mean + a / 2) / (1 + a)
    half = np.sqrt(np.maximum(a * mean * (1 - mean) + a**2 / 4, 0.0)) / (1 + a)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def ends_of(spread: Spread, name: str, z: float) -> tuple[Floats, Ends]:
    """Return a metric's estimate without bias and the ends of its interval, not cut at 0."""
    table = spread.table
    if name == "mce":
        return _mce(spread, z)
    if name == "debiased_squared_ece":
        return _squared_ece(spread, z)
    if name in NORMS:
        value, error = NORMS[name](spread)
        return value, (value - z * error, value + z * error)
    if name == "accuracy":
        value = METRICS["accuracy"].of(table)
        return value, wilson(value, ratio(np.ones_like(value), spread.rows), z)
    value, var = spread.scores[name]
    relative = np.where(value > 0, ratio(np.sqrt(var), value), 0.0)
    # where few rows make up most of a mean, its variance has as few degrees of freedom
    t = _student(ratio(np.ones_like(value), relative**2), z)
    if name == "brier":
        most = 1.0 if len(table.labels) == 2 else 2.0
        share = value / most
        # rows that are all perfect differ as proportions do
        scatter = ratio(var / most**2, share * (1 - share))
        low, high = wilson(share, np.where(share > 0, scatter, ratio(value + 1, spread.rows)), t)
        return value, (low * most, high * most)
    # losses are skewed; 1 / sqrt(mean) is nearly symmetric
    arm = t * relative / 2
    endless = (table["impossible"] > 0) | (value == 0)  # a mean of 0 gives no bound
    high = np.where(arm < 1, ratio(value, np.maximum(1 - arm, 0.0) ** 2), np.inf)
    return (
        np.where(table["impossible"] > 0, np.inf, value),
        (value / (1 + arm) ** 2, np.where(endless, np.inf, high)),
    )


def _student(freedom: Floats, z: float) -> Floats:
    """Return Student's quantile at the normal's z."""
    return np.asarray(stdtrit(np.clip(np.nan_to_num(freedom, nan=1e9), 1.0, 1e9), ndtr(z)))


def intervals_of(spread: Spread, name: str, z: float) -> list[Interval]:
    """Return the interval of a metric of each group."""
    value, (low, high) = ends_of(spread, name, z)
    if name in NORMS or name == "debiased_squared_ece":
        # the true value is at least 0; the upper end is at least the 90% bound of an estimate of 0
        low, high = np.maximum(low, 0.0), np.maximum(high, 0.65 * (high - value))
        high = np.minimum(high, 1.0)
    missing = np.isnan(low) | np.isnan(high) | (spread.table["weight"] <= 0)
    ends = (np.where(missing, np.nan, end).tolist() for end in (low, high))
    return [Interval(a, b) for a, b in zip(*ends, strict=True)]


def rate_intervals(spread: Spread, z: float) -> dict[Hashable, dict[str, dict[Hashable, Interval]]]:
    """Return the intervals of the rates: group to kind to label."""
    table = spread.table
    found: dict[Hashable, dict[str, dict[Hashable, Interval]]] = {g: {} for g in table.groups}
    for kind in RATES:
        mean, var, _ = spread.rates[kind]
        scatter = np.broadcast_to(ratio(np.ones(1), spread.rows)[:, None], mean.shape)
        if kind == "stochastic":
            scatter = np.where(var > 0, ratio(var, mean * (1 - mean)), var)
        low, high = wilson(mean, scatter, z)
        for i, g in enumerate(table.groups):
            ends = zip(table.labels, low[i].tolist(), high[i].tolist(), strict=True)
            found[g][kind] = {label: Interval(a, b) for label, a, b in ends}
    return found
