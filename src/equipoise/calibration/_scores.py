"""Scores: logits (n, K) of any offset and scale. A constant added to a row changes nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from equipoise._inputs import probability_slice, warn_caller
from equipoise.calibration._temperature_solver import SLICE
from equipoise.calibration._warnings import ClippedWarning

Floats = NDArray[np.float64]

SMALLEST = 1e-6
"""Smallest probability: a smaller one counts as this, so that an exact 0 has a logarithm.

Forests, nearest neighbours and float32 saturate at 0 and 1. With a bound as small as 1e-12, the few
such rows that are wrong would determine the temperature."""

STEEPEST = 20.0
"""Largest slope and smallest inverse slope, in units of one over the root mean square of the
scores. It keeps a fit on rows that are all correct, or mostly wrong, from diverging."""


def scores_of(y_prob: NDArray[Any]) -> Floats:
    """Return the logarithms (n, K) of checked probabilities, at least 1e-6; (n,) is [1 - p, p]."""
    prob = probability_slice(y_prob, slice(0, len(y_prob)))
    return np.ascontiguousarray(np.log(np.maximum(prob, SMALLEST)).T)


def warn_clipped(scores: Floats) -> None:
    """Warn if logarithms of probabilities are at the smallest."""
    rows = int((scores <= math.log(SMALLEST)).any(axis=1).sum())
    if rows:
        warn_caller(ClippedWarning.of(rows, len(scores), SMALLEST))


def softmax(scores: NDArray[Any], temperature: float | Floats = 1.0, axis: int = -1) -> Floats:
    """Return softmax(scores / temperature) along an axis, in float64.

    Examples
    --------
    >>> softmax(np.log([1.0, 3.0])), softmax(np.log([1.0, 9.0]), temperature=2.0)
    (array([0.25, 0.75]), array([0.25, 0.75]))
    """
    out = scores.astype(np.float64)
    out -= out.max(axis=axis, keepdims=True)
    out /= temperature
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def centred(scores: Floats) -> Floats:
    """Return the scores with a mean of zero in each row."""
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def log_odds(scores: Floats) -> Floats:
    """Return the log-odds of each class against the rest under softmax(scores).

    Examples
    --------
    >>> log_odds(np.log([[0.5, 0.25, 0.25]])).round(3)  # log(.5 / .5), log(.25 / .75) twice
    array([[ 0.   , -1.099, -1.099]])
    """
    if scores.shape[1] == 2:
        odds = scores[:, 1] - scores[:, 0]
        return np.stack([-odds, odds], axis=1)
    z = scores - scores.max(axis=1, keepdims=True)
    each, rows, top = np.exp(z), np.arange(len(z)), z.argmax(axis=1)
    rest = each.sum(axis=1, keepdims=True) - each
    rest[rows, top] = 1.0  # there the difference cancels
    rest = np.log(rest)
    others = z.copy()
    others[rows, top] = -np.inf
    rest[rows, top] = logsumexp(others, axis=1)
    return np.asarray(z - rest)


def score_sizes(
    scores: NDArray[Any],
    weight: Floats | None,
    members: NDArray[Any] | None = None,
    n_groups: int = 0,
) -> Floats:
    """Return the root mean square of the centred scores, of all rows and then of each group.

    It is 1 where there are no rows, or all scores of each are equal.
    """
    n, classes = scores.shape
    square, share = np.empty(n), np.full(classes, 1.0 / classes)
    step = max(256, SLICE // classes)
    for start in range(0, n, step):
        part = slice(start, start + step)
        z = scores[part].astype(np.float64, copy=False)
        if classes == 2:  # each is half of the difference away from their mean
            square[part] = (0.5 * (z[:, 1] - z[:, 0])) ** 2
        else:
            z = z - (z @ share)[:, None]
            z *= z
            square[part] = z @ share
    mean = np.zeros(1 + n_groups)
    mean[0] = np.average(square, weights=weight)
    if members is not None:
        weighted = square if weight is None else square * weight
        rows = np.bincount(members, weight, n_groups)
        np.divide(np.bincount(members, weighted, n_groups), rows, out=mean[1:], where=rows > 0)
    return np.sqrt(np.where(mean > 0.0, mean, 1.0))
