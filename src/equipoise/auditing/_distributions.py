"""Distribution functions of scipy.special, and by NumPy alone where that must start fast.

Importing scipy.special takes longer than a small audit. After `spare_scipy`, which the command
calls, these functions do without it until it is worth its import; a test holds both to 1e-9.
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BUDGET = 5_000
"""Values worked out here before scipy.special is worth its import; a small audit has some 1,500."""

LARGE = 2e4
"""Sum of the parameters of a beta distribution from which on scipy.special is worth its import."""

TINY = 1e-300
_NORMAL = statistics.NormalDist()
_erfc = np.frompyfunc(math.erfc, 1, 1)
_lgamma = np.frompyfunc(math.lgamma, 1, 1)


_spare = False
_spent = 0


def spare_scipy() -> None:
    """Do without scipy.special from now on, where it is not imported and not worth its import."""
    global _spare  # noqa: PLW0603 - of the whole process, as imports are
    _spare = True


def by_scipy(name: str, *values: Any, large: bool = False) -> Floats | None:
    """Return what scipy.special says, None while that is not worth its import."""
    global _spent  # noqa: PLW0603 - a count of what this process has asked
    _spent += max(map(np.size, values))
    if _spare and not large and _spent <= BUDGET and "scipy.special" not in sys.modules:
        return None
    from scipy import special

    return np.asarray(getattr(special, name)(*values))


def ndtr(x: Any) -> Floats:
    """Return the distribution function of the normal distribution."""
    if (found := by_scipy("ndtr", x)) is not None:
        return found
    return np.asarray(0.5 * np.asarray(_erfc(np.asarray(x) / -math.sqrt(2.0)), np.float64))


def ndtri(p: Any) -> Floats:
    """Return the quantile of the normal distribution."""
    if (found := by_scipy("ndtri", p)) is not None:
        return found
    ends = {0.0: -math.inf, 1.0: math.inf}
    quantiles = [
        ends[v] if v in ends else _NORMAL.inv_cdf(v) if 0.0 < v < 1.0 else math.nan
        for v in np.asarray(p, np.float64).ravel().tolist()
    ]
    return np.array(quantiles).reshape(np.shape(p))


def chi2_tail(freedom: NDArray[np.int64], x: Floats) -> Floats:
    """Return the chance that a chi-square variable with whole degrees of freedom exceeds x."""
    half = np.minimum(x / 2.0, 1e5)  # the tail is 0 long before; 0 * inf would be nan
    odd = freedom % 2 == 1
    tail = np.where(odd, np.asarray(_erfc(np.sqrt(half)), np.float64), 0.0)
    # the terms are half^j exp(-half) / gamma(j + 1), for j = 0, 1, .. or 1/2, 3/2, ..
    log_half = np.log(np.maximum(half, TINY))
    for i in range(int(freedom.max(initial=0) + 1) // 2):
        j = np.where(odd, i + 0.5, float(i))
        log_term = j * log_half - half - np.asarray(_lgamma(j + 1.0), np.float64)
        tail += np.where(2.0 * j + 2.0 <= freedom, np.exp(log_term), 0.0)
    return np.minimum(tail, 1.0)


def betainc(a: Any, b: Any, x: Any) -> Floats:
    """Return the distribution function of the beta distribution."""
    a, b, x = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, x)))
    large = (a + b).max(initial=0.0) > LARGE
    if (found := by_scipy("betainc", a, b, x, large=large)) is not None:
        return found
    return _betainc(a, b, x)


def _betainc(a: Floats, b: Floats, x: Floats) -> Floats:
    # the fraction converges fast on this side of the mean; the other side is its mirror image
    left = x < (a + 1.0) / (a + b + 2.0)
    p, q, y = np.where(left, a, b), np.where(left, b, a), np.where(left, x, 1.0 - x)
    tail = np.exp(_log_beta_density(p, q, y)) * _fraction(p, q, y) / p
    return np.asarray(np.where(left, tail, 1.0 - tail))


def _log_beta_density(a: Floats, b: Floats, x: Floats) -> Floats:
    """Return log(x^a (1 - x)^b / B(a, b)); -inf at 0 and 1."""
    scale = np.asarray(_lgamma(a + b) - _lgamma(a) - _lgamma(b), np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(scale + a * np.log(x) + b * np.log1p(-x))


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """Return the continued fraction of the incomplete beta function (Lentz's method)."""
    c = np.ones_like(x)
    d = _away(1.0 - (a + b) * x / (a + 1.0))
    d = 1.0 / d
    value = d
    for m in range(1, 1_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            value = value * d * c
        if np.abs(d * c - 1.0).max(initial=0.0) < 1e-14:
            break
    return value


def _away(values: Floats) -> Floats:
    return np.where(np.abs(values) < TINY, TINY, values)


def betaincinv(a: Any, b: Any, p: Any) -> Floats:
    """Return the quantile of the beta distribution."""
    a, b, p = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, p)))
    large = (a + b).max(initial=0.0) > LARGE
    if (found := by_scipy("betaincinv", a, b, p, large=large)) is not None:
        return found
    flip = p > 0.5
    a, b, p = np.where(flip, b, a), np.where(flip, a, b), np.where(flip, 1.0 - p, p)
    # Newton's method for the log-odds of the quantile, from the normal approximation; the
    # logarithm of the distribution function is concave in them, so the steps do not go to and fro
    x = a / (a + b)
    x = np.clip(x + ndtri(p) * np.sqrt(x * (1.0 - x) / (a + b + 1.0)), 0.1 * x, x)
    odds = np.log(x / (1.0 - x))
    for _ in range(200):
        below = np.maximum(_betainc(a, b, x), TINY)
        slope = np.exp(np.maximum(_log_beta_density(a, b, x), -690.0)) / below
        step = np.log(below / p) / slope
        odds = np.clip(odds - step, -600.0, 600.0)
        x = 1.0 / (1.0 + np.exp(-odds))
        if np.abs(step).max(initial=0.0) <= 1e-7:  # the next would be about its square
            break
    return np.asarray(np.where(flip, 1.0 - x, x))


def stdtrit(freedom: Any, p: Any) -> Floats:
    """Return the quantile of Student's distribution."""
    freedom, p = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (freedom, p)))
    if (found := by_scipy("stdtrit", freedom, p)) is not None:
        return found
    z = ndtri(p)
    few = np.minimum(freedom, LARGE / 2)
    x = betaincinv(few / 2.0, 0.5, 2.0 * np.minimum(p, 1.0 - p))
    exact = np.sign(z) * np.sqrt(few * (1.0 - x) / x)
    # an expansion in 1 / freedom, whose next term is far below rounding there
    wide = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return np.asarray(np.where(freedom > few, wide, exact))
