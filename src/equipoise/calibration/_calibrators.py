"""Calibrators: fitted maps from scores (n, K) to probabilities (n, K).

A calibrator holds numbers and other calibrators only, so `dataclasses.asdict` makes any of them
JSON, and `calibrator_of` takes it back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from equipoise.calibration._scores import centred, log_odds, softmax

Floats = NDArray[np.float64]


# --- one scale for all classes ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Temperature:
    """softmax(scores / temperature)."""

    temperature: float

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(f"{self.temperature!r} is not a positive number")

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        return softmax(scores, self.temperature)


@dataclasses.dataclass(frozen=True)
class BiasCorrected:
    """softmax(scores / temperature + bias), with a bias per class; they sum to 0."""

    temperature: float
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        Temperature(self.temperature)

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        return softmax(scores / self.temperature + self.bias)


def temperatures_of(calibrators: Mapping[Hashable, Any]) -> dict[Hashable, float]:
    """Return the temperature of each group whose calibrator is one."""
    return {g: c.temperature for g, c in calibrators.items() if isinstance(c, Temperature)}


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
    """Isotonic regression: values between thresholds are interpolated, beyond them constant."""

    thresholds: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        ends, values = np.array(self.thresholds), np.array(self.values)
        if not len(ends) or ends.shape != values.shape or (np.diff(ends) < 0.0).any():
            raise ValueError("a curve needs a value for each threshold, and these in order")
        if not ((values >= 0.0) & (values <= 1.0)).all():
            raise ValueError("a value of a curve is not within 0..1")

    def __call__(self, s: Floats) -> Floats:
        return np.asarray(np.interp(s, self.thresholds, self.values))


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


# --- a scale per class -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Vector:
    """softmax(scale * z + bias), with a scale and a bias per class and z the centred scores."""

    scale: tuple[float, ...]
    bias: tuple[float, ...]

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        return softmax(centred(scores) * self.scale + self.bias)


# --- averages --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The average of the probabilities of several calibrators, with weights that sum to 1."""

    weights: tuple[float, ...]
    calibrators: tuple[Calibrator, ...]

    def __post_init__(self) -> None:
        if min(self.weights, default=-1.0) < 0.0 or abs(sum(self.weights) - 1.0) > 1e-6:
            raise ValueError(f"the weights {self.weights!r} do not add up to 1")

    def apply(self, scores: Floats) -> Floats:
        """Return probabilities (n, K) of scores (n, K)."""
        parts = zip(self.weights, self.calibrators, strict=True)
        total = sum(weight * calibrator.apply(scores) for weight, calibrator in parts)
        return np.minimum(total, 1.0)  # rounding may exceed it


Calibrator = Temperature | BiasCorrected | OneVsRest | Vector | Mixture


def shrunk(own: Calibrator, common: Calibrator, trust: float) -> Calibrator:
    """Average the probabilities of a group's own calibrator, of weight `trust`, and another's.

    Nothing is averaged where one of them has all the weight.
    """
    if trust in (0.0, 1.0):
        return own if trust else common
    return Mixture((float(trust), 1.0 - float(trust)), (own, common))


# --- files -----------------------------------------------------------------------------------


def _by_fields(*kinds: type) -> dict[frozenset[str], Any]:
    return {frozenset(f.name for f in dataclasses.fields(kind)): kind for kind in kinds}


CALIBRATORS = _by_fields(Temperature, BiasCorrected, OneVsRest, Vector, Mixture)
CURVES = _by_fields(Sigmoid, Beta, Steps)


def calibrator_of(plain: dict[str, Any], n_classes: int) -> Any:
    """Undo `dataclasses.asdict` of a calibrator; other keys of the dict are ignored.

    Raises ValueError unless it is a calibrator of `n_classes`.
    """
    names = frozenset().union(*CALIBRATORS)
    calibrator = _rebuilt({name: value for name, value in plain.items() if name in names})
    prob = calibrator.apply(np.zeros((1, n_classes)))
    if prob.shape != (1, n_classes) or not abs(prob.sum() - 1.0) < 1e-6:
        raise ValueError(f"its calibrators give no probabilities of {n_classes} classes")
    return calibrator


def _rebuilt(plain: Any) -> Any:
    if isinstance(plain, dict):
        kind = (CALIBRATORS | CURVES).get(frozenset(plain))
        if kind is None:
            raise ValueError(f"no calibrator has the fields {', '.join(plain) or '(none)'}")
        return kind(**{name: _rebuilt(value) for name, value in plain.items()})
    if isinstance(plain, list | tuple):
        return tuple(map(_rebuilt, plain))
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not np.isfinite(plain):
        raise ValueError(f"{plain!r} is not a finite number")
    return float(plain)
