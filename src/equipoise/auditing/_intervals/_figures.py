"""Intervals of each metric and each rate of each group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from equipoise.auditing._distributions import betaincinv, ndtr, ndtri
from equipoise.auditing._intervals._errors import bounds_of, debiased
from equipoise.auditing._intervals._spread import Floats, Spread
from equipoise.metrics import METRICS, ratio

Ends = tuple[Floats, Floats]

RATES = {"labels": "label", "stochastic": "prob", "deterministic": "pred"}
"""Rates, and the features whose means they are."""


class Interval(NamedTuple):
    """Both ends of an interval; nan where undefined, inf where the data give no bound."""

    low: float
    high: float


# --- norms of gaps ---------------------------------------------------------------------------


def _ece(spread: Spread) -> tuple[Floats, Floats]:
    """Return the ECE without its bias, and its standard error."""
    size, noise, bias = (part[:, 0] for part in debiased(spread))
    return size, np.sqrt(noise + bias**2)


def _classwise_parts(spread: Spread) -> tuple[Floats, Floats, Floats]:
    """Return the class-wise ECE without its bias; its variance; the bias left."""
    size, noise, bias = (part[:, 1:] for part in debiased(spread))
    k = size.shape[-1]
    # the errors of a row's classes add up to 0: two mirror each other, so the variance of the sum
    # is twice that of independent classes; with more their correlation is about -1 / (K - 1), and
    # its square counts, once for each of the K - 1 others
    return size.mean(-1), noise.sum(-1) * (1 + 1 / (k - 1)) / k**2, bias.mean(-1)


def _classwise_ece(spread: Spread) -> tuple[Floats, Floats]:
    value, noise, bias = _classwise_parts(spread)
    return value, np.sqrt(noise + bias**2)


NORMS = {"ece": _ece, "classwise_ece": _classwise_ece}


def norm_bounds(spread: Spread, low: float, high: float, *, single: bool) -> dict[str, Ends]:
    """Return the bounds of ECE and class-wise ECE, with at most these chances to be wrong.

    With `single` they are the chances of the class-wise ECE, else those of each class.
    """
    found = bounds_of(spread, low, high)
    k = spread.gap.shape[1] - 1
    # two classes mirror each other, so both bounds are wrong at once
    classes = bounds_of(spread, low / k, high / k) if single and k > 2 else found
    lows, highs = classes.low[:, 1:].mean(-1), classes.high[:, 1:].mean(-1)
    if k > 2:
        # the errors of many classes are not at their bounds all at once
        value, noise, bias = _classwise_parts(spread)
        for t, sign, ends in ((low, -1, lows), (high, 1, highs)):
            reach = spread.moments.student(t / 2) * np.sqrt(noise) + 1.2 * bias
            better = np.maximum if sign < 0 else np.minimum
            better(ends, np.maximum(value, 0.0) + sign * reach, out=ends)
    figure = found.figure[:, 1:].mean(-1)
    return {
        "ece": (found.low[:, 0], found.high[:, 0]),
        "classwise_ece": (np.minimum(lows, figure), np.maximum(highs, figure)),
    }


def _squared_ece(spread: Spread, z: Floats) -> tuple[Floats, Ends]:
    """Return the debiased squared ECE, and its interval."""
    table = spread.table
    value = METRICS["debiased_squared_ece"].of(table)
    share = ratio(table["bin_count"], table["weight"][:, None])
    gap, var = spread.gap[:, 0], spread.variance[:, 0]
    clean = np.sign(gap) * np.sqrt(np.maximum(gap**2 - var, 0.0))
    mean = np.nan_to_num(ratio(clean, share))
    second = var * spread.moments.rows[:, None] + clean**2
    square = (mean * clean).sum(-1)
    row = (4 * mean**2 * second - 4 * mean**3 * clean + mean**4 * share).sum(-1) - square**2
    # a score interval: the variance is that of noise alone plus a part that grows with the value
    noise = np.nan_to_num(ratio(2 * var**2, share**2)).sum(-1)
    grows = np.where(square > 0, ratio(np.maximum(row, 0.0), square), 4 * second.sum(-1))
    grows = ratio(grows, spread.moments.rows)
    middle = value + z**2 * grows / 2
    half = z * np.sqrt(noise + grows * np.maximum(value, 0.0) + z**2 * grows**2 / 4)
    return value, (middle - half, middle + half)


def _mce(spread: Spread, z: float) -> tuple[Floats, Ends]:
    """Return the MCE without bias, and an interval that is valid whichever bin is the worst."""
    table = spread.table
    count = table["bin_count"]
    filled = count > 0
    n = ratio(count**2, table["bin_count2"] * spread.design[:, None])
    n = np.where(filled, n, 1.0)
    hit, sure = ratio(table["bin_correct"], count), ratio(table["bin_confidence"], count)
    hit, sure = np.where(filled, hit, 0.5), np.where(filled, sure, 0.5)
    low, high = exact(hit, n, ndtr(-z))
    far = np.where(filled, np.maximum(sure - low, high - sure), 0.0)
    near = np.where(filled, _distance(sure, low, high), 0.0)
    # simultaneous intervals of all bins that may be the worst
    contend = filled & (far >= near.max(-1, keepdims=True))
    several = np.maximum(contend.sum(-1, keepdims=True), 1)
    low, high = exact(hit, n, ndtr(-z) / several)
    near = np.where(contend, _distance(sure, low, high), 0.0)
    sigma = np.sqrt(np.maximum(sure * (1 - sure), hit * (1 - hit)) / n)
    half = ndtri(0.5 + 0.5 * 0.5 ** (1 / np.maximum(filled.sum(-1, keepdims=True), 1)))
    value = np.where(filled, np.maximum(np.abs(hit - sure) - half * sigma, 0.0), 0.0)
    empty = ~filled.any(-1)
    value, near, far = (np.where(empty, np.nan, x.max(-1)) for x in (value, near, far))
    return value, (near, far)


def exact(mean: Floats, n: Floats, tail: Any) -> Ends:
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


# --- means of losses -------------------------------------------------------------------------


def _loss(spread: Spread, name: str, t: Floats) -> tuple[Floats, Ends]:
    """Return Brier score or log-loss, and its score interval.

    A few rows with large losses make up most of a mean, so its variance grows with it. The factor
    is that of the rows or, if it is larger, that of a calibrated model: a group in which a rare
    label has not occurred shows almost no variance.
    """
    table, moments = spread.table, spread.moments
    feature = {"brier": "brier", "log_loss": "loss"}[name]
    value, rows = moments.mean[feature], moments.rows
    var = ratio(moments.variance(feature) * rows, np.maximum(rows - 1.0, 1e-3))
    grows = np.where(value > 0, ratio(var, value), 0.0)
    grows = np.maximum(grows, _implied_growth(spread, name))
    if name == "brier":
        # less than one row that is wholly wrong: there may be one
        one = ratio(np.ones_like(value), rows)
        grows = np.where(value * rows < 1.0, np.maximum(grows, one), grows)
    middle, half = (
        value + t**2 * grows / 2,
        t * np.sqrt(grows * value + (t * grows) ** 2 / 4),
    )
    high = middle + half
    # the other root is middle - half, which loses digits where the value is small
    low = np.where(value > 0, ratio(value, high / np.where(value > 0, value, 1.0)), 0.0)
    if name == "brier":
        return value, (low, np.minimum(high, 1.0 if len(table.labels) == 2 else 2.0))
    impossible = table["impossible"] > 0
    endless = impossible | (value == 0)  # a mean of 0 gives no bound
    return np.where(impossible, np.inf, value), (low, np.where(endless, np.inf, high))


def _implied_growth(spread: Spread, name: str) -> Floats:
    """Return variance over mean of the mean loss of a calibrated model with these probabilities.

    Bins are narrow, so the mean probability of a bin stands in for those of its rows.
    """
    table = spread.table
    count, k = table["class_count"], len(table.labels)
    p = np.clip(np.nan_to_num(ratio(table["class_probability"], count)), 0.0, 1.0)
    if name == "log_loss":
        size = -np.log(np.where(p > 0, p, 1.0))
    else:  # the other classes share what is left
        size = (1.0 - p) ** 2 * (1.0 if k == 2 else k / (k - 1))
    weight = table["weight"]
    mean = ratio((count * p * size).sum((-2, -1)), weight)
    second = ratio((count * p * size**2).sum((-2, -1)), weight)
    per_row = ratio(table["bin_count2"].sum(-1), weight**2)
    return np.where(mean > 0, ratio(second - mean**2, mean) * per_row, 0.0)


# --- intervals of one table ------------------------------------------------------------------


def wilson(mean: Floats, scatter: Floats, z: Any) -> Ends:
    """Return the score interval of means within 0..1.

    `scatter` is its variance over mean * (1 - mean): 1 / n for a proportion.
    """
    a = z**2 * np.minimum(scatter, 1e100)
    middle = (mean + a / 2) / (1 + a)
    half = np.sqrt(np.maximum(a * mean * (1 - mean) + a**2 / 4, 0.0)) / (1 + a)
    # rounding must not put the mean outside
    low, high = np.minimum(middle - half, mean), np.maximum(middle + half, mean)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


def prob_variance(spread: Spread) -> Floats:
    """Return the variance of the mean probability; one more row varies as much as any can."""
    moments = spread.moments
    mean, rows = moments.mean["prob"], moments.rows[:, None]
    return (moments.variance("prob") * rows + ratio(mean * (1.0 - mean), rows)) / (rows + 1.0)


def scatter_of(spread: Spread, name: str) -> Floats:
    """Return the variance of a mean within 0..1 over mean * (1 - mean)."""
    moments = spread.moments
    if name == "prob":
        spare = moments.mean["prob"] * (1.0 - moments.mean["prob"])
        scatter = ratio(prob_variance(spread), np.where(spare > 0, spare, 1.0))
        return np.where(spare > 0, scatter, ratio(np.ones(1), moments.rows)[:, None])
    mean, var = moments.mean[name], moments.variance(name)
    least = ratio(spread.table["bin_count2"].sum(-1), moments.weight**2)
    rows = moments.rows
    if mean.ndim > 1:
        least, rows = least[:, None], rows[:, None]
    some = mean * (1 - mean) > 1e-12
    scatter = np.maximum(ratio(var, np.where(some, mean * (1 - mean), 1.0)), least)
    if spread.table.clustered:
        # few clusters say little about how much they vary: one more may be all alike
        scatter = (scatter * rows + ratio(np.ones(1), rows)) / (rows + 1.0)
    return np.where(some, scatter, ratio(np.ones(1), rows))


def ends_of(spread: Spread, name: str, z: float) -> tuple[Floats, Ends]:
    """Return a metric's estimate without bias and the ends of its interval, not cut at 0."""
    if name == "mce":
        return _mce(spread, z)
    t = spread.moments.student(float(ndtr(-z)))
    if name == "debiased_squared_ece":
        return _squared_ece(spread, t)
    if name in NORMS:
        value, error = NORMS[name](spread)
        return value, (value - t * error, value + t * error)
    if name == "accuracy":
        value = spread.moments.mean["hit"]
        return value, wilson(value, scatter_of(spread, "hit"), t)
    return _loss(spread, name, t)


def intervals_of(spread: Spread, level: float, norms: dict[str, Ends]) -> list[dict[str, Interval]]:
    """Return the intervals of every metric of each group; `norms` has those of the ECEs."""
    z = float(ndtri(0.5 + level / 2))
    columns = {}
    for name in METRICS:
        low, high = norms[name] if name in norms else ends_of(spread, name, z)[1]
        if name == "debiased_squared_ece":
            # the true value is at least 0; the upper end is at least half the width above it
            low, high = np.maximum(low, 0.0), np.clip(high, 0.33 * (high - low), 1.0)
        missing = np.isnan(low) | np.isnan(high) | (spread.table["weight"] <= 0)
        columns[name] = [np.where(missing, np.nan, end).tolist() for end in (low, high)]
    return [
        {name: Interval(low[i], high[i]) for name, (low, high) in columns.items()}
        for i in range(len(spread.table.groups))
    ]


def rate_intervals(
    spread: Spread, level: float
) -> dict[Hashable, dict[str, dict[Hashable, Interval]]]:
    """Return the intervals of the rates: group to kind to label."""
    table, moments = spread.table, spread.moments
    found: dict[Hashable, dict[str, dict[Hashable, Interval]]] = {g: {} for g in table.groups}
    t = moments.student((1.0 - level) / 2)[:, None]
    for kind, name in RATES.items():
        mean = moments.mean[name]
        low, high = wilson(mean, scatter_of(spread, name), t)
        for i, g in enumerate(table.groups):
            ends = zip(table.labels, low[i].tolist(), high[i].tolist(), strict=True)
            found[g][kind] = {label: Interval(a, b) for label, a, b in ends}
    return found
