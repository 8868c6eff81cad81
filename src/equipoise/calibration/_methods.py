"""Ways to turn a classifier's scores into calibrated probabilities, behind one table.

Scores are logits (n, K) of any offset and scale: a constant added to a row changes nothing. A fit
takes them with class codes 0..K-1 and weights, and gives a calibrator, whose `apply` returns
probabilities (n, K).

What is made for two classes (Platt, isotonic, beta) is fitted for each class against the rest, on
the log-odds of the class under softmax(scores), and the results are divided by their sum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax
from sklearn.isotonic import IsotonicRegression

__all__ = ["METHODS", "Calibrator", "Method", "log_odds", "shrunk"]

Floats = NDArray[np.float64]
Codes = NDArray[Any]

STEEPEST = 20.0
"""Largest slope and smallest inverse slope, in units of one over the root mean square of the
scores: what stops a fit on rows that are all right, or mostly wrong, from running to infinity."""


class Calibrator(Protocol):
    """A fitted map from scores to probabilities."""

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of `METHODS`.

    Attributes
    ----------
    fit
        ``fit(scores, codes, weight) -> Calibrator``, weight being (n,).
    least_rows
        Rows below which a group is not fitted on its own: ten for each parameter of two classes,
        and 100 where there can be as many parameters as rows.
    every_class
        Whether rows of every class are needed; two classes otherwise.
    keeps_predictions
        Whether the largest score always gets the largest probability.
    """

    fit: Callable[[Floats, Codes, Floats], Calibrator]
    least_rows: int
    every_class: bool = True
    keeps_predictions: bool = False


# --- scores ----------------------------------------------------------------------------------


def log_odds(scores: Floats) -> Floats:
    """Return the log-odds of each class against the rest under softmax(scores).

    Examples
    --------
    >>> log_odds(np.log([[0.5, 0.25, 0.25]])).round(3)  # log(.5 / .5), log(.25 / .75) twice
    array([[ 0.   , -1.099, -1.099]])
    """
    z = scores - scores.max(axis=1, keepdims=True)
    each, rows, top = np.exp(z), np.arange(len(z)), z.argmax(axis=1)
    rest = each.sum(axis=1, keepdims=True) - each
    rest[rows, top] = 1.0  # there the difference cancels
    rest = np.log(rest)
    others = z.copy()
    others[rows, top] = -np.inf
    rest[rows, top] = logsumexp(others, axis=1)
    return np.asarray(z - rest)


def _centred(scores: Floats) -> Floats:
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def _size(values: Floats, weight: Floats) -> float:
    """Return the root mean square, or 1 where all values are zero."""
    largest = float(np.abs(values[weight > 0]).max())
    if largest == 0.0:
        return 1.0
    square = (values / largest) ** 2
    return largest * float(np.sqrt(np.average(square.reshape(len(weight), -1).mean(1), 0, weight)))


def _minimise(loss: Callable[[Floats], Any], start: Floats, bounds: Any) -> Floats:
    """Minimise a convex function that also returns its gradient."""
    options = {"maxiter": 1000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


# --- temperature -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Temperature:
    """softmax(scores / temperature); `at_bound` where the optimum lies beyond the bounds."""

    temperature: float
    at_bound: bool = False

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        z = scores - scores.max(axis=1, keepdims=True)
        return np.asarray(softmax(z / self.temperature, axis=1))


def fit_temperature(scores: Floats, codes: Codes, weight: Floats) -> Temperature:
    """Find the temperature that minimises the cross entropy [1]_.

    Its bounds are 1/20 and 20 times the root mean square of the centred scores. Where every row
    has equal scores, no temperature is better than another, and it is 1.

    References
    ----------
    .. [1] Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    import torch

    from equipoise.calibration._temperature_solver import Problem, solve

    z = _centred(scores)
    size = _size(z, weight)
    problem = Problem.of(
        torch.from_numpy(z / size)[None],
        torch.tensor(codes, dtype=torch.int64),
        torch.tensor(weight),
        STEEPEST,
    )
    bounds = (1.0 / STEEPEST, STEEPEST)
    found = float(solve(problem, bounds).temperature[0])
    return Temperature(size * found, at_bound=found in bounds)


# --- one class against the rest --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sigmoid:
    """Platt: p = 1 / (1 + exp(-(slope s + intercept)))."""

    slope: float
    intercept: float

    def __call__(self, s: Floats) -> Floats:
        return np.asarray(expit(self.slope * s + self.intercept))


@dataclasses.dataclass(frozen=True)
class Beta:
    """Beta calibration: p = 1 / (1 + exp(-(a log q - b log(1 - q) + c))), q the probability."""

    a: float
    b: float
    c: float

    def __call__(self, s: Floats) -> Floats:
        return np.asarray(expit(self.a * log_expit(s) - self.b * log_expit(-s) + self.c))


@dataclasses.dataclass(frozen=True)
class Steps:
    """Isotonic regression by scikit-learn, constant beyond the scores it was fitted on."""

    regression: IsotonicRegression

    def __call__(self, s: Floats) -> Floats:
        return np.asarray(self.regression.predict(s))


Curve = Sigmoid | Beta | Steps


@dataclasses.dataclass(frozen=True)
class OneVsRest:
    """A curve per class, divided by their sum; for two classes one curve, of the second class."""

    curves: tuple[Curve, ...]

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K); uniform where every curve gives 0."""
        s = log_odds(scores)
        if len(self.curves) == 1:
            p = self.curves[0](s[:, 1])
            return np.stack([1.0 - p, p], axis=1)
        prob = np.stack([curve(s[:, k]) for k, curve in enumerate(self.curves)], axis=1)
        total = prob.sum(axis=1, keepdims=True)
        uniform = np.full_like(prob, 1.0 / len(self.curves))
        return np.asarray(np.divide(prob, total, out=uniform, where=total > 0.0))


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
    regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    return Steps(regression.fit(s, positive.astype(float), weight))


# --- vector ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Vector:
    """softmax(scale * z + bias), with a scale and a bias per class and z the centred scores."""

    scale: tuple[float, ...]
    bias: tuple[float, ...]

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        return np.asarray(softmax(_centred(scores) * self.scale + self.bias, axis=1))


def fit_vector(scores: Floats, codes: Codes, weight: Floats) -> Vector:
    """Fit vector scaling [1]_, a scale >= 0 and a bias per class.

    Each row's scores are centred first, since logits are equal up to a constant.

    References
    ----------
    .. [1] Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    z = _centred(scores)
    size, total, classes = _size(z, weight), weight.sum(), z.shape[1]
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
    "temperature": Method(fit_temperature, 10, every_class=False, keeps_predictions=True),
    "platt": Method(functools.partial(_one_vs_rest, fit_platt), 20),
    "isotonic": Method(functools.partial(_one_vs_rest, fit_isotonic), 100),
    "beta": Method(functools.partial(_one_vs_rest, fit_beta), 30),
    "vector": Method(fit_vector, 40),
}
"""Name to method."""


@dataclasses.dataclass(frozen=True)
class Blend:
    """The average of two calibrators' probabilities, with `trust` as the weight of the first."""

    own: Calibrator
    common: Calibrator
    trust: float

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        own, common = self.own.apply(scores), self.common.apply(scores)
        return np.asarray(self.trust * own + (1.0 - self.trust) * common)


def shrunk(own: Calibrator, common: Calibrator, trust: float) -> Calibrator:
    """Return a calibrator between a group's own and the common one.

    Temperatures are averaged by their logarithm, which keeps predictions; of other methods the
    probabilities are averaged.
    """
    if trust in (0.0, 1.0):
        return own if trust else common
    if isinstance(own, Temperature) and isinstance(common, Temperature):
        mean = trust * np.log(own.temperature) + (1.0 - trust) * np.log(common.temperature)
        return Temperature(float(np.exp(mean)), own.at_bound)
    return Blend(own, common, trust)
