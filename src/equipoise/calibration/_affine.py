"""Temperatures and biases: the common ones and those of each group, with or without shrinkage."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._affine_solver import AffineProblem, minimise
from equipoise.calibration._calibrators import BiasCorrected, Temperature
from equipoise.calibration._pooling import Pooled, Shrinkage, pooled
from equipoise.calibration._scores import STEEPEST, score_sizes
from equipoise.calibration._temperature_solver import host
from equipoise.calibration._temperatures import NO_GROUPS, group_temperatures

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Affine:
    """The common parameters and then those of each group."""

    temperature: Floats  # (1 + group,)
    bias: Floats | None  # (1 + group, K)
    trust: Floats  # (group,): the share that the group's own rows decide
    at_bound: NDArray[np.bool_]  # (1 + group,)
    n_iter: int  # passes over the rows
    converged: bool

    def calibrators(self) -> list[Temperature | BiasCorrected]:
        """Return the common calibrator and then that of each group."""
        if self.bias is None:
            return [Temperature(t) for t in self.temperature.tolist()]
        pairs = zip(self.temperature.tolist(), self.bias.tolist(), strict=True)
        return [BiasCorrected(t, tuple(b)) for t, b in pairs]


def group_affine(
    scores: NDArray[Any],
    codes: NDArray[Any],
    weight: Floats | None,
    members: NDArray[Any] | None = None,
    lacking: NDArray[np.bool_] = NO_GROUPS,
    *,
    biased: bool,
    shrinkage: Shrinkage = 0.0,
    bounds: tuple[float, float] | None = None,
    solver: Literal["exact", "paper"] = "exact",
    repeats: Floats | None = None,
) -> Affine:
    """Find the parameters that minimise the cross entropy, those of groups with a penalty.

    `lacking` says for each group whether it gets the common parameters. The default bounds are 1/20
    and 20 times the root mean square of the centred scores, of the group or of all rows. `repeats`
    is the number of rows that each row stands for; by default one, whatever its weight.
    """
    count = len(lacking)
    if not biased:
        alone = shrinkage == 0.0 or count < 2
        found = group_temperatures(
            scores,
            codes,
            weight,
            members if alone else None,
            lacking if alone else NO_GROUPS,
            bounds,
            solver,
        )
        if alone:
            trust = np.where(lacking, 0.0, 1.0)
            values = found.values
            return Affine(values, None, trust, found.at_bound, found.n_iter, found.converged)
    sizes = score_sizes(scores, weight, members, count) if bounds is None else np.ones(1 + count)
    lowest, highest = (1.0 / STEEPEST, STEEPEST) if bounds is None else bounds
    problem = AffineProblem.of(scores[None], codes, weight, centred=biased)
    scale = float(problem.scale[0])
    low, high = scale / (sizes * highest), scale / (sizes * lowest)
    if biased:
        start = np.zeros((1, scores.shape[1]))
        start[0, 0] = 1.0
        whole = minimise(problem, (low[:1], high[:1]), start)
        common, at_bound = whole.theta[0], whole.at_bound
        passes, converged = whole.n_iter, bool(whole.converged.all())
    else:
        common = np.zeros(scores.shape[1])
        common[0] = scale / found.values[0]
        at_bound, passes, converged = found.at_bound, found.n_iter, found.converged
    temperature, bias = problem.original(common[None])
    if count:
        limits = low[1:], high[1:]
        if shrinkage != 0.0:  # a group with scores of another size may get the common parameters
            limits = np.full(count, low.min()), np.full(count, high.max())
        own = _groups(
            problem, common, limits, members, lacking, weight, repeats, shrinkage, biased=biased
        )
        cells = problem.divided(members, count)
        more, theirs = cells.original(own.theta)
        temperature, bias = np.append(temperature, more), np.concatenate([bias, theirs])
        at_bound = np.append(at_bound, own.at_bound)
        passes, converged = passes + own.n_iter, converged and own.converged
    trust = own.trust if count else np.zeros(0)
    kept = bias if biased else None
    return Affine(temperature, kept, trust, at_bound, passes, converged)


def _groups(
    problem: AffineProblem,
    common: Floats,
    bounds: tuple[Floats, Floats],
    members: NDArray[Any] | None,
    lacking: NDArray[np.bool_],
    weight: Floats | None,
    repeats: Floats | None,
    shrinkage: Shrinkage,
    *,
    biased: bool,
) -> Pooled:
    count = len(lacking)
    if count == 1:
        none = np.zeros(1, bool)
        return Pooled(common[None], np.ones(1), none, 0, converged=True)
    if shrinkage == 0.0:
        cells = problem.divided(members, count)
        found = minimise(cells, bounds, common, fixed=lacking, slope_only=not biased)
        trust = np.where(lacking, 0.0, 1.0)
        done = bool(found.converged.all())
        return Pooled(found.theta, trust, found.at_bound, found.n_iter, done)
    assert members is not None
    even, rows = _effective(weight, repeats, members, count)
    cells = problem.divided(members, count, even)
    own = pooled(cells, common, bounds, shrinkage, rows, slope_only=not biased)
    theta = np.where(lacking[:, None], common, own.theta)
    return dataclasses.replace(own, theta=theta, trust=np.where(lacking, 0.0, own.trust))


def _effective(
    weight: Floats | None, repeats: Floats | None, members: NDArray[Any], count: int
) -> tuple[Floats | None, Floats]:
    """Return weights that add up to each group's effective number of rows, and these numbers.

    Kish's number (sum w)^2 / sum w^2 does not depend on the scale of the weights.
    """
    if weight is None:
        return None, np.bincount(members, minlength=count).astype(np.float64)
    total = np.bincount(members, weight, count)
    square = weight**2 if repeats is None else weight**2 / repeats
    squares = np.bincount(members, square, count)
    rows = np.divide(total**2, squares, out=np.zeros(count), where=squares > 0.0)
    factor = np.divide(rows, total, out=np.zeros(count), where=total > 0.0)
    return weight * factor[members], rows


# --- stacked ---------------------------------------------------------------------------------


def stacked_affine(
    logits: Any, y: Any, groups: Any, n_groups: int, weight: Any, bounds: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return temperatures (config, group) and biases (config, group, K), without shrinkage.

    Logits are (config, n, K), arrays or tensors. A group without rows of every class gets the
    parameters of all rows of its configuration.
    """
    configs, _, classes = logits.shape
    problem = AffineProblem.of(logits, y, weight)
    low, high = (problem.scale / bound for bound in reversed(bounds))
    start = np.zeros((configs, classes))
    start[:, 0] = 1.0
    common = minimise(problem, (low, high), start).theta
    cells = problem.divided(groups, n_groups)
    if n_groups > 1:
        common = common.repeat(n_groups, axis=0)
        limits = low.repeat(n_groups), high.repeat(n_groups)
        places = host(groups) * classes + host(y)
        used = None if weight is None else host(weight) > 0.0
        seen = np.bincount(places, used, n_groups * classes).reshape(n_groups, classes)
        lacking = np.tile((seen == 0).any(axis=1), configs)
        common = minimise(cells, limits, common, fixed=lacking).theta
    temperature, bias = cells.original(common)
    return temperature.reshape(configs, n_groups), bias.reshape(configs, n_groups, classes)
