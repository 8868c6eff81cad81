"""The interval of a mean over splits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean_interval(
    values: Floats, ratio: float = 0.0, number: int | None = None
) -> tuple[float, float] | None:
    """Return the 95% interval of a mean by Student's t; None of fewer than two finite values.

    `number` is that of the splits that the mean is taken over, by default all.

    `ratio` is the number of held-out rows over that of training rows. Splits share their training
    rows, so their values are correlated, and the plain interval (0) is too narrow; Nadeau and
    Bengio (2003) take the variance of the mean as (1 / splits + ratio) times that of a value.

    Examples
    --------
    >>> [round(v, 3) for v in mean_interval(np.array([1.0, 2.0, 3.0]))]
    [-0.484, 4.484]
    >>> [round(v, 3) for v in mean_interval(np.array([1.0, 2.0, 3.0]), ratio=0.25)]
    [-1.286, 5.286]
    """
    from scipy.special import stdtrit

    error = mean_error(values, ratio, number)
    if error is None:
        return None
    half = stdtrit(len(values) - 1, 0.975) * error
    return float(values.mean() - half), float(values.mean() + half)


def mean_error(values: Floats, ratio: float = 0.0, number: int | None = None) -> float | None:
    """Return the standard error of a mean over splits, as `mean_interval` has it."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    return float(values.std(ddof=1) * math.sqrt(1.0 / (number or len(values)) + ratio))


def confidence(values: Floats, ratio: float = 0.0) -> float | None:
    """Return the probability, by the same t distribution, that the mean is above 0.

    Examples
    --------
    >>> round(confidence(np.array([0.1, 0.2, 0.15]), ratio=0.25), 3)
    0.97
    """
    from scipy.special import stdtr

    error = mean_error(values, ratio)
    if error is None:
        return None
    if error == 0.0:
        return 0.5 * (1.0 + float(np.sign(values.mean())))
    return float(stdtr(len(values) - 1, values.mean() / error))
