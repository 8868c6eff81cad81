"""Confidence bounds of calibration errors: of the predicted label and of every class.

A calibration error is a sum of absolute gaps, and noise makes every absolute gap larger. The lower
bound is the best of three that are each right without that bias, the upper bound of two; each has
its share of the error rate:

- the mean gap: no error is smaller than the absolute mean of outcome minus probability;
- the null: an observed error is larger than the true one by at most the sum of the absolute noise;
- the estimate without bias, minus and plus its error;
- the signs: with the true signs the gaps add up to the true error, and the observed error is no
  smaller than that sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._distributions import ndtr
from equipoise.auditing._intervals._spread import Floats, Spread, clear_sign
from equipoise.metrics import ratio

BIAS = 0.18
"""Allowance for the bias that `without_bias` leaves, in standard errors of a bin."""

MEAN_SHARE = 0.8
"""Share of the lower bound's error rate that the mean gap gets; it is the most powerful."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Calibration errors (group, view): the figure, an estimate without bias, and its bounds.

    `mean` is the mean gap, `mean_error` its standard error, and `mean_clear` says whether it alone
    shows an error. `reach` is how far the lower bound is below the estimate before it is cut at 0.
    """

    figure: Floats
    estimate: Floats
    low: Floats
    high: Floats
    reach: Floats
    mean: Floats
    mean_error: Floats
    mean_clear: NDArray[np.bool_]

    def of(self, views: Sequence[int]) -> Bounds:
        """Return those of some views."""
        found = {f.name: getattr(self, f.name)[:, views] for f in dataclasses.fields(self)}
        return Bounds(**found)


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


def debiased(spread: Spread) -> tuple[Floats, Floats, Floats]:
    """Return each error without its bias, which may be negative; its variance; the bias left."""
    gap, var = spread.gap, spread.variance
    size, noise, bias = without_bias(gap, var)
    # a row is in one bin only, so the covariance of two bins is -gap_b gap_c / n
    signed = clear_sign(gap, var) * gap
    cross = ratio((signed**2).sum(-1) - signed.sum(-1) ** 2, spread.moments.rows[:, None])
    return size.sum(-1), np.maximum(noise.sum(-1) + cross, 0.0), bias.sum(-1)


def bounds_of(spread: Spread, low: float, high: float) -> Bounds:
    """Return the bounds of every group and view.

    Each lower bound is above the true error with a chance of at most `low`, each upper bound below
    it with at most `high`.
    """
    moments = spread.moments
    figure = np.abs(spread.gap).sum(-1)
    estimate, noise, bias = debiased(spread)
    error = np.sqrt(noise + bias**2)
    mean_error = np.sqrt(spread.mean_variance)
    by_mean = np.abs(spread.mean) - moments.student(MEAN_SHARE * low / 2)[:, None] * mean_error
    rest = moments.student((1.0 - MEAN_SHARE) * low / 2)[:, None]
    floor = np.maximum(by_mean, estimate - rest * error)
    floor = np.maximum(floor, figure - _largest_noise(spread.variance, rest))

    z = moments.student(high / 2)[:, None]
    # a score bound: up to z^2 rows that happen to be right could have been wrong
    extra = z**2 / 2.0 * ratio(np.ones(1), moments.rows)[:, None]
    by_sign = figure + extra + np.sqrt(z**2 * spread.variance.sum(-1) + extra**2)
    by_estimate = np.maximum(estimate, 0.0) + extra + np.sqrt((z * error) ** 2 + extra**2)
    # the figure is shown beside its bounds, so it is one of the values that they allow
    ceiling = np.maximum(np.minimum(np.fmin(by_sign, by_estimate), 1.0), figure)
    low = np.clip(floor, 0.0, figure)
    empty = ~(spread.table["weight"] > 0)[:, None]
    estimate = np.clip(estimate, low, ceiling)
    return Bounds(
        figure=figure,
        estimate=estimate,
        low=np.where(empty, 0.0, low),
        high=np.where(empty, 1.0, ceiling),
        reach=estimate - floor,
        mean=spread.mean,
        mean_error=mean_error,
        mean_clear=by_mean > 0,
    )


def _largest_noise(var: Floats, z: Floats) -> Floats:
    """Return the quantile at z of the sum of absolute normal noise of these variances."""
    total = var.sum(-1)
    # mean, standard deviation and skewness of |N(0, 1)|; Cornish and Fisher's correction for skew
    skew = 0.9953 * np.nan_to_num(ratio((var**1.5).sum(-1), total**1.5))
    noise = z + (z**2 - 1.0) * skew / 6.0
    return np.asarray(0.7979 * np.sqrt(var).sum(-1) + 0.6028 * np.sqrt(total) * noise)
