"""Outcomes of the decisive study on pooled out-of-fold rows, for many resamples of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OUTCOMES = (
    "amplification",
    "amplification_0",
    "amplification_1",
    "ece",
    "class_ece",
    "ece2",
    "class_ece2",
    "log_loss",
    "brier",
    "accuracy",
)
"""amplification_k is signed: log(q1/q0) - log(r1/r0) of class k."""

LEAST = float(np.finfo(np.float64).eps)
"""Least probability of a label in the log-loss: a bias without shrinkage can give it 0."""

LOGGED = ("ece", "class_ece")
"""Outcomes whose logarithm is compared."""


def outcomes(
    prob: Floats, y: Ints, group: Ints, weight: Floats, bins: int = 15, *, squared: bool = True
) -> dict[str, Floats]:
    """Return each outcome, (resample, model).

    Parameters
    ----------
    prob
        (model, row): probabilities of class 1. A tie of the classes goes to class 0.
    y, group
        (row,): 0 or 1.
    weight
        (resample, row): how often each row was drawn; ones for the rows themselves.
    bins
        Number of bins, closed on the right.
    squared
        Whether the squared errors without bias are wanted too.
    """
    total = weight.sum(axis=1, keepdims=True)
    found = _amplification(prob, y, group, weight)
    predicted = (prob > 0.5).astype(np.int64)
    right = (predicted == y).astype(np.float64)
    of_label = np.where(y == 1, prob, 1.0 - prob)
    losses = {"log_loss": -np.log(np.maximum(of_label, LEAST)), "brier": (1.0 - of_label) ** 2}
    for name, values in {**losses, "accuracy": right}.items():
        found[name] = weight @ values.T / total
    top = np.maximum(prob, 1.0 - prob)
    truth = np.broadcast_to(y, prob.shape).astype(np.float64)
    first, second = _errors(top, right, weight, bins, squared)
    found["ece"], found["ece2"] = first, second
    ones = _errors(prob, truth, weight, bins, squared)
    zeros = _errors(1.0 - prob, 1.0 - truth, weight, bins, squared)
    found["class_ece"], found["class_ece2"] = (
        (a + b) / 2.0 for a, b in zip(ones, zeros, strict=True)
    )
    return {name: found[name] for name in OUTCOMES}


def _amplification(prob: Floats, y: Ints, group: Ints, weight: Floats) -> dict[str, Floats]:
    mean, rate = [], []
    for g in (0, 1):
        own = weight[:, group == g]
        size = own.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean.append(own @ prob[:, group == g].T / size)
            rate.append(own @ y[group == g][:, None] / size)
    with np.errstate(invalid="ignore", divide="ignore"):
        one = np.log(mean[1] / mean[0]) - np.log(rate[1] / rate[0])
        zero = np.log((1.0 - mean[1]) / (1.0 - mean[0])) - np.log((1.0 - rate[1]) / (1.0 - rate[0]))
    return {
        "amplification": (np.abs(zero) + np.abs(one)) / 2.0,
        "amplification_0": zero,
        "amplification_1": one,
    }


def _errors(
    prob: Floats, hit: Floats, weight: Floats, bins: int, squared: bool
) -> tuple[Floats, Floats]:
    """Return the ECE, and the squared error without bias, both (resample, model).

    The latter is sum_b n_b/n (gap_b^2 - a_b (1 - a_b) / (n_b - 1)): what a bin's hits vary by
    chance is taken off. It can be below 0.
    """
    from scipy import sparse

    models, rows = prob.shape
    # (lo, hi]: the place among the upper edges
    place = np.searchsorted(np.arange(1, bins) / bins, prob, side="left")
    cell = (np.arange(models)[:, None] * bins + place).ravel()
    column = np.tile(np.arange(rows), models)

    def sums(values: Any) -> Floats:
        matrix = sparse.csr_matrix((values.ravel(), (cell, column)), (models * bins, rows))
        return np.asarray(matrix @ weight.T).reshape(models, bins, -1)

    total = weight.sum(axis=1)
    gap = sums(hit - prob)
    ece = np.abs(gap).sum(axis=1) / total
    if not squared:
        return ece.T, np.full_like(ece.T, np.nan)
    n, share = sums(np.ones_like(prob)), sums(hit)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = share / n
        square = n * ((gap / n) ** 2 - share * (1.0 - share) / (n - 1.0))
    return ece.T, (np.where(n > 1, square, 0.0).sum(axis=1) / total).T
