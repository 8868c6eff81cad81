"""Ways to turn a classifier's scores into calibrated probabilities, behind one table.

A fit takes scores (n, K), class codes 0..K-1 and weights, and gives a calibrator.

What is made for two classes (Platt, isotonic, beta) is fitted for each class against the rest, on
the log-odds of the class under softmax(scores), and the results are divided by their sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax
from sklearn.isotonic import isotonic_regression

from equipoise.calibration._calibrators import (
    Beta,
    Curve,
    OneVsRest,
    Sigmoid,
    Steps,
    Vector,
)
from equipoise.calibration._scores import STEEPEST, centred, log_odds, score_sizes

Floats = NDArray[np.float64]
Codes = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of `METHODS`.

    `fit` takes scores, codes and weights that add up to the number of rows; it is None where all
    groups are fitted at once (`group_affine`). `least_rows`, below which a group is not fitted on
    its own, is ten for each parameter of two classes, and 100 where there can be as many parameters
    as rows.
    """

    text: str
    fit: Callable[[Floats, Codes, Floats], OneVsRest | Vector] | None = None
    biased: bool = True  # whether the groups' rates can change
    least_rows: int = 0
    every_class: bool = True  # whether a group needs rows of every class, or of any two

    @property
    def keeps_predictions(self) -> bool:
        """Whether the largest score gets the largest probability."""
        return not self.biased


def _size(values: Floats, weight: Floats) -> float:
    """Return the root mean square, or 1 where all values are zero."""
    return float(np.sqrt(np.average(values**2, weights=weight))) or 1.0


def _minimise(loss: Callable[[Floats], Any], start: Floats, bounds: Any) -> Floats:
    """Minimise a convex function that also returns its gradient."""
    options = {"maxiter": 1000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


# --- one class against the rest --------------------------------------------------------------


def _one_vs_rest(
    fit: Callable[[Floats, NDArray[np.bool_], Floats], Curve],
) -> Callable[[Floats, Codes, Floats], OneVsRest]:
    def fitted(scores: Floats, codes: Codes, weight: Floats) -> OneVsRest:
        s = log_odds(scores)
        classes = [1] if s.shape[1] == 2 else range(s.shape[1])
        return OneVsRest(tuple(fit(s[:, k], codes == k, weight) for k in classes))

    return fitted


def _logistic(
    columns: list[Floats], target: Floats, weight: Floats, bounds: list[tuple[float, float]]
) -> Floats:
    """Return the coefficients of the columns, and the intercept, that minimise the log-loss.

    By Newton's method on the coefficients that no bound holds. (Profile of "auto" on 20,000 rows:
    L-BFGS, which took fifty passes instead of eight, was nine tenths of the time.)
    """
    sizes = np.array([_size(column, weight) for column in columns] + [1.0])
    features = np.column_stack([*columns, np.ones(len(target))]) / sizes
    low, high = (np.array([*ends, limit]) * sizes for ends, limit in _ends(bounds))
    weight = weight / weight.sum()
    share = float(weight @ target)
    x = np.zeros(len(sizes))
    x[-1] = np.log(share / (1.0 - share))  # both classes are there
    x = np.clip(x, low, high)

    def judged(at: Floats) -> tuple[float, Floats]:
        """Return the log-loss and the probabilities."""
        f = features @ at
        small = np.exp(-np.abs(f))  # of both signs by one exponential: logaddexp takes five times
        p = np.where(f >= 0.0, 1.0, small) / (1.0 + small)
        return float(weight @ (np.maximum(f, 0.0) + np.log1p(small) - target * f)), p

    value, p = judged(x)
    for _ in range(100):
        slope = features.T @ (weight * (p - target))
        bend = (features * (weight * p * (1.0 - p))[:, None]).T @ features
        free = ~(((x <= low) & (slope > 0.0)) | ((x >= high) & (slope < 0.0)))
        ridge = 1e-12 * np.maximum(np.diagonal(bend), 1e-300)
        move = np.zeros(len(x))
        move[free] = np.linalg.solve((bend + np.diag(ridge))[np.ix_(free, free)], slope[free])
        if slope @ move <= 1e-16:
            break
        step = 1.0
        while step > 1e-9:
            tried = np.clip(x - step * move, low, high)
            after, q = judged(tried)
            if after <= value + 1e-4 * float(slope @ (tried - x)) + 1e-16:
                break
            step *= 0.5
        else:
            break  # rounding is all that is left
        x, value, p = tried, after, q
    return np.asarray(x / sizes)


def _ends(bounds: list[tuple[float, float]]) -> Any:
    """Return the lower and the upper bounds, and those of the intercept."""
    low, high = zip(*bounds, strict=True)
    return (low, -np.inf), (high, np.inf)


def fit_platt(s: Floats, positive: NDArray[np.bool_], weight: Floats) -> Sigmoid:
    """Fit a sigmoid with Platt's smoothed targets [1]_, as scikit-learn does.

    References
    ----------
    .. [1] Platt, Probabilistic outputs for support vector machines, 1999.
    """
    yes, no = weight[positive].sum(), weight[~positive].sum()
    target = np.where(positive, (yes + 1.0) / (yes + 2.0), 1.0 / (no + 2.0))
    slope, intercept = _logistic([s], target, weight, [(-np.inf, np.inf)])
    return Sigmoid(float(slope), float(intercept))


def fit_beta(s: Floats, positive: NDArray[np.bool_], weight: Floats) -> Beta:
    """Fit beta calibration [1]_ with a, b >= 0 by a bounded search.

    References
    ----------
    .. [1] Kull, Silva Filho and Flach, Beta calibration, AISTATS 2017.
    """
    most = STEEPEST / min(_size(s, weight), 1.0)
    bounds = [(0.0, most), (0.0, most)]
    a, b, c = _logistic([log_expit(s), -log_expit(-s)], positive.astype(float), weight, bounds)
    return Beta(float(a), float(b), float(c))


def fit_isotonic(s: Floats, positive: NDArray[np.bool_], weight: Floats) -> Steps:
    """Fit isotonic regression, smoothed.

    Each block of equal values becomes one point, at the mean score of its rows, and values between
    points are interpolated (centred isotonic regression [1]_). A row with the mean rate is added at
    each end, so that no probability is exactly 0 or 1.

    References
    ----------
    .. [1] Oron and Flournoy, Centered isotonic regression, Stat. Biopharm. Res. 2017.
    """
    rate = float(weight @ positive / weight.sum())
    x = np.concatenate([s, [s.min(), s.max()]])
    w = np.concatenate([weight, [1.0, 1.0]])
    x, place = np.unique(x, return_inverse=True)
    mass = np.bincount(place, w)
    hits = np.bincount(place, w * np.concatenate([positive, [rate, rate]]))
    used = mass > 0.0
    x, mass, hits = x[used], mass[used], hits[used]
    fitted = isotonic_regression(hits / mass, sample_weight=mass)
    block = np.concatenate([[0], np.cumsum(np.diff(fitted) > 0.0)])
    centre = np.bincount(block, mass * x) / np.bincount(block, mass)
    value = np.bincount(block, hits) / np.bincount(block, mass)
    # rounding may put blocks of nearly equal scores out of order
    centre, value = np.maximum.accumulate(centre), np.clip(value, 0.0, 1.0)
    return Steps(tuple(centre.tolist()), tuple(value.tolist()))


# --- vector ----------------------------------------------------------------------------------


def fit_vector(scores: Floats, codes: Codes, weight: Floats) -> Vector:
    """Fit vector scaling [1]_, a scale >= 0 and a bias per class.

    Each row's scores are centred first, since logits are equal up to a constant.

    References
    ----------
    .. [1] Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    z = centred(scores)
    size, total, classes = float(score_sizes(z, weight)[0]), weight.sum(), z.shape[1]
    z, rows = z / size, np.arange(len(z))

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scale, bias = parameters.reshape(2, classes)
        log_prob = log_softmax(z * scale + bias, axis=1)
        slope = np.exp(log_prob)
        slope[rows, codes] -= 1.0
        slope *= weight[:, None] / total
        value = -(weight @ log_prob[rows, codes]) / total
        return float(value), np.concatenate([(slope * z).sum(axis=0), slope.sum(axis=0)])

    start = np.repeat([1.0, 0.0], classes)
    bounds = [(0.0, STEEPEST)] * classes + [(None, None)] * classes
    scale, bias = _minimise(loss, start, bounds).reshape(2, classes)
    return Vector(tuple((scale / size).tolist()), tuple(bias.tolist()))


# --- the table -------------------------------------------------------------------------------


METHODS: dict[str, Method] = {
    "none": Method("no repair", biased=False, every_class=False),
    "common": Method("one temperature for all rows", biased=False, every_class=False),
    "temperature": Method("a temperature per group", biased=False, every_class=False),
    "bcts": Method("a temperature and a bias per group"),
    "platt": Method("Platt's sigmoid per group", _one_vs_rest(fit_platt), least_rows=20),
    "beta": Method("beta calibration per group", _one_vs_rest(fit_beta), least_rows=30),
    "isotonic": Method(
        "smoothed isotonic regression per group", _one_vs_rest(fit_isotonic), least_rows=100
    ),
    "vector": Method("a scale and a bias per class and group", fit_vector, least_rows=40),
}
"""Name to method."""
