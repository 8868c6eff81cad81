"""Partial pooling: parameters of groups, pulled towards the common ones as far as data warrant.

The groups' parameters are taken as normal around a mean, with a standard deviation for the slopes
and one for the biases. Restricted maximum likelihood estimates both (empirical Bayes): each group's
cross entropy is replaced by its quadratic approximation at the group's current parameters, whose
integral is known, and this is repeated until the deviations are stable. A deviation may be 0, where
groups do not differ by more than chance.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._affine_solver import (
    AffineProblem,
    AffineSolution,
    Penalty,
    Sums,
    minimise,
)

Floats = NDArray[np.float64]
Shrinkage = float | Literal["auto"]

ROUNDS = 8
"""Most rounds of estimating the deviations; two digits are stable after three or four."""

LARGEST = 3.0
"""Largest standard deviation between groups, of a bias, and of a slope relative to the common."""

TYPICAL = 0.25
"""Scale of the half-Cauchy prior of a standard deviation: where two or three groups are all that
there is, it keeps chance differences from being taken for real ones."""


@dataclasses.dataclass(frozen=True)
class Pooled:
    """Parameters of the groups (group, K) and the share of each that its own rows decide."""

    theta: Floats
    trust: Floats
    at_bound: NDArray[np.bool_]
    n_iter: int
    converged: bool


def pooled(
    problem: AffineProblem,
    common: Floats,
    bounds: tuple[Floats, Floats],
    shrinkage: Shrinkage,
    rows: Floats,
    *,
    slope_only: bool,
) -> Pooled:
    """Fit a cell per group, shrunk towards the common parameters.

    The weights of a group's rows add up to its effective number of rows, `rows`. A number of
    pseudo-rows as shrinkage is a prior as strong as that many average rows.
    """
    if shrinkage == "auto":
        found, penalty, passes = _empirical(problem, common, bounds, slope_only=slope_only)
    else:
        sums = problem.sums(np.broadcast_to(common, (problem.size, len(common))))
        precision = sums.bend.sum(axis=0) / rows.sum() * shrinkage
        penalty = Penalty(common, _factor(precision, 1 if slope_only else len(common)))
        found = minimise(problem, bounds, common, penalty, slope_only=slope_only)
        passes = found.n_iter
    own = _own_share(found.sums, penalty, slope_only=slope_only)
    trust = own if shrinkage == "auto" else rows / (rows + float(shrinkage))
    done = bool(found.converged.all())
    return Pooled(found.theta, trust, found.at_bound, passes, done)


def _factor(precision: Floats, free: int) -> Floats:
    """Return the lower triangular root of the inverse of a precision.

    Only the first `free` parameters vary; the rows and columns of the others are 0.
    """
    factor, some = np.zeros_like(precision), precision[:free, :free]
    size = np.sqrt(np.maximum(np.diagonal(some), 1e-300))
    scaled = some / np.outer(size, size) + 1e-9 * np.eye(free)
    factor[:free, :free] = np.linalg.cholesky(np.linalg.inv(scaled)) / size[:, None]
    return factor


def _own_share(sums: Sums, penalty: Penalty, *, slope_only: bool) -> Floats:
    """Return the share (cell,) of the information on the free parameters that is the cell's own."""
    free = slice(0, 1) if slope_only else slice(None)
    factor = penalty.factor[free, free]
    own = factor.T @ sums.bend[:, free, free] @ factor
    ratio = np.linalg.solve(own + np.eye(len(factor)), own)
    return np.asarray(np.einsum("cii->c", ratio) / len(factor))


# --- empirical Bayes -------------------------------------------------------------------------


def _empirical(
    problem: AffineProblem, common: Floats, bounds: tuple[Floats, Floats], *, slope_only: bool
) -> tuple[AffineSolution, Penalty, int]:
    size = len(common)
    base = np.eye(size)
    if size > 1:
        # biases b that are independent and of equal variance, as differences to the first
        base[1:, 1:] = np.linalg.cholesky(0.5 * (np.eye(size - 1) + 1.0))
    base[0, 0] = common[0]
    deviation = np.array([0.25, 0.0 if slope_only else 0.5])
    centre, start, passes, best = common, common, 0, None
    for _ in range(ROUNDS):
        penalty = Penalty(centre, base * np.repeat(deviation, [1, size - 1]))
        found = minimise(problem, bounds, start, penalty, slope_only=slope_only)
        passes += found.n_iter
        value = _likelihood(found, penalty, deviation, common, base, slope_only=slope_only)
        if best is None or value > best[0]:
            best = value, deviation, found, penalty
            before, (deviation, centre) = (
                deviation,
                _deviations(found, common, base, slope_only=slope_only),
            )
            if np.all(np.abs(deviation - before) <= 0.02 * before + 1e-3):
                break
        else:  # the approximation reached too far: a row that is confidently wrong, say
            deviation = 0.5 * (deviation + best[1])
            centre = 0.5 * (centre + best[3].centre)
        start = best[2].theta
    assert best is not None
    return best[2], best[3], passes


def _likelihood(
    found: AffineSolution,
    penalty: Penalty,
    deviation: Floats,
    common: Floats,
    base: Floats,
    *,
    slope_only: bool,
) -> float:
    """Return twice the logarithm of the restricted likelihood, by Laplace, and of the prior."""
    size = 1 if slope_only else len(common)
    factor, bend = penalty.factor[:size, :size], found.sums.bend[:, :size, :size]
    inner, _, mass = _information(factor, bend, _weak(base[:size, :size]))
    away = (penalty.centre - common)[:size]
    value = -2.0 * found.value.sum() - np.linalg.slogdet(inner)[1].sum()
    value -= np.linalg.slogdet(mass)[1] + away @ _weak(base[:size, :size]) @ away
    return float(value + _prior(deviation))


def _weak(root: Floats) -> Floats:
    """Return the precision of the mean before any rows; few rows may leave the mean open."""
    return np.asarray(np.linalg.inv(LARGEST**2 * root @ root.T))


def _information(factor: Floats, bend: Floats, weak: Floats) -> tuple[Floats, Floats, Floats]:
    """Return for factors (..., K, K) and Hessians (cell, K, K) what the likelihood is made of.

    These are 1 + F' H F (..., cell, K, K), the parameters' variance V given the rows and the mean
    (..., cell, K, K), and the precision of the mean, the sum of H - H V H (..., K, K).
    """
    across = np.swapaxes(factor, -1, -2)[..., None, :, :]
    inner = np.eye(factor.shape[-1]) + across @ bend @ factor[..., None, :, :]
    left = np.linalg.solve(inner, np.broadcast_to(across, inner.shape))
    variance = factor[..., None, :, :] @ left
    mass = weak + (bend - bend @ variance @ bend).sum(axis=-3)
    return inner, variance, mass


def _prior(deviation: Floats) -> Floats:
    return np.asarray(-2.0 * np.log1p((deviation / TYPICAL) ** 2).sum(axis=-1))


def _deviations(
    found: AffineSolution, common: Floats, base: Floats, *, slope_only: bool
) -> tuple[Floats, Floats]:
    """Return the standard deviations of slopes and biases, and the mean of the parameters.

    They maximise the restricted likelihood times the prior, over finer and finer grids.
    """
    size = 1 if slope_only else len(common)
    bend = found.sums.bend[:, :size, :size]
    at = found.theta[:, :size] - common[:size]
    # minus the slope of the quadratic approximation at the common parameters
    pull = np.einsum("cij,cj->ci", bend, at) - found.sums.slope[:, :size]
    root = base[:size, :size]
    weak = _weak(root)

    def judged(points: Floats) -> tuple[Floats, Floats]:
        """Return the value (point,) and the mean (point, parameter) of deviations (point, 2)."""
        factor = root * np.repeat(points, [1, size - 1], axis=1)[:, None, :]
        inner, variance, mass = _information(factor, bend, weak)
        lean = (pull[..., None] - bend @ variance @ pull[..., None]).sum(axis=1)
        mean = np.linalg.solve(mass, lean)
        value = -np.linalg.slogdet(inner)[1].sum(axis=1) - np.linalg.slogdet(mass)[1]
        value += np.einsum("ci,pcij,cj->p", pull, variance, pull) + (lean * mean).sum(axis=(1, 2))
        return value + _prior(points), mean[..., 0]

    grids = [np.r_[0.0, np.geomspace(0.01, LARGEST, 12)]] * min(size, 2)
    many = max(1, (1 << 20) // (len(bend) * size * size))
    for _ in range(3):
        points = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, len(grids))
        points = np.pad(points, ((0, 0), (0, 2 - len(grids))))
        parts = [judged(points[i : i + many])[0] for i in range(0, len(points), many)]
        best = points[int(np.argmax(np.concatenate(parts)))]
        grids = [_around(grid, value) for grid, value in zip(grids, best, strict=False)]
    mean = common.copy()
    if best.any():  # else the common parameters are the mean, without approximation
        mean[:size] += judged(best[None])[1][0]
    return best, mean


def _around(grid: Floats, value: float) -> Floats:
    """Return a finer grid between the neighbours of a value."""
    at = int(np.searchsorted(grid, value))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    return np.unique(np.r_[value, np.linspace(low, high, 7)])
