"""Ways to turn a classifier's scores into calibrated probabilities, behind one table.

A fit takes scores (n, K), class codes 0..K-1 and weights, and gives a calibrator.

What is made for two classes (Platt, isotonic, beta) is fitted for each class against the rest, on
the log-odds of the class under softmax(scores), and the results are divided by their sum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax
from sklearn.isotonic import IsotonicRegression

from equipoise.calibration._calibrators import (
    Beta,
    Curve,
    OneVsRest,
    Sigmoid,
    Steps,
    Temperature,
    Vector,
)
from equipoise.calibration._scores import STEEPEST, centred, log_odds, score_sizes
from equipoise.calibration._temperatures import group_temperatures

Floats = NDArray[np.float64]
Codes = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of `METHODS`.

    `least_rows`, below which a group is not fitted on its own, is ten for each parameter of two
    classes, and 100 where there can be as many parameters as rows.
    """

    fit: Callable[[Floats, Codes, Floats], Temperature | OneVsRest | Vector]
    least_rows: int = 0
    every_class: bool = True  # whether a group needs rows of every class, or of any two
    keeps_predictions: bool = False  # whether the largest score gets the largest probability


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
    scores: Floats,
    codes: Codes,
    weight: Floats,
) -> OneVsRest:
    s = log_odds(scores)
    classes = [1] if s.shape[1] == 2 else range(s.shape[1])
    return OneVsRest(tuple(fit(s[:, k], codes == k, weight) for k in classes))


def _logistic(
    columns: list[Floats], target: Floats, weight: Floats, bounds: list[tuple[Any, Any]]
) -> Floats:
    """Return the coefficients of the columns, and the intercept, that minimise the log-loss."""
    sizes = np.array([_size(column, weight) for column in columns] + [1.0])
    features = np.column_stack([*columns, np.ones(len(target))]) / sizes
    total = weight.sum()

    def loss(coefficients: Floats) -> tuple[float, Floats]:
        f = features @ coefficients
        value = weight @ (np.logaddexp(0.0, f) - target * f) / total
        return float(value), np.asarray(features.T @ (weight * (expit(f) - target)) / total)

    scaled = [
        tuple(None if v is None else v * size for v in pair)
        for pair, size in zip([*bounds, (None, None)], sizes, strict=True)
    ]
    share = float(weight @ target / total)
    start = np.zeros(len(sizes))
    start[-1] = np.log(share / (1.0 - share))  # both classes are there
    return np.asarray(_minimise(loss, start, scaled) / sizes)


def fit_platt(s: Floats, positive: NDArray[np.bool_], weight: Floats) -> Sigmoid:
    """Fit a sigmoid with Platt's smoothed targets [1]_, as scikit-learn does.

    References
    ----------
    .. [1] Platt, Probabilistic outputs for support vector machines, 1999.
    """
    yes, no = weight[positive].sum(), weight[~positive].sum()
    target = np.where(positive, (yes + 1.0) / (yes + 2.0), 1.0 / (no + 2.0))
    slope, intercept = _logistic([s], target, weight, [(None, None)])
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
    """Fit scikit-learn's isotonic regression."""
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(s, positive.astype(float), weight)
    return Steps(tuple(fitted.X_thresholds_.tolist()), tuple(fitted.y_thresholds_.tolist()))


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


def fit_temperature(scores: Floats, codes: Codes, weight: Floats) -> Temperature:
    """Find the temperature that minimises the cross entropy [1]_.

    Where every row has equal scores, no temperature is better than another, and it is 1.

    References
    ----------
    .. [1] Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    return Temperature(float(group_temperatures(scores, codes, weight).values[0]))


METHODS: dict[str, Method] = {
    "temperature": Method(fit_temperature, every_class=False, keeps_predictions=True),
    "platt": Method(functools.partial(_one_vs_rest, fit_platt), 20),
    "isotonic": Method(functools.partial(_one_vs_rest, fit_isotonic), 100),
    "beta": Method(functools.partial(_one_vs_rest, fit_beta), 30),
    "vector": Method(fit_vector, 40),
}
"""Name to method."""
