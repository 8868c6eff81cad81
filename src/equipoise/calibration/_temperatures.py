"""The common temperature and that of each group, by the exact solver or by the paper's recipe."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._paper_temperatures import paper_temperatures
from equipoise.calibration._scores import STEEPEST, score_sizes, softmax
from equipoise.calibration._temperature_solver import Problem, solve
from equipoise.metrics import expected_calibration_error

Floats = NDArray[np.float64]

NO_GROUPS = np.zeros(0, bool)


@dataclasses.dataclass(frozen=True)
class Temperatures:
    """The common temperature and then that of each group, and whether each is at a bound."""

    values: Floats
    at_bound: NDArray[np.bool_]
    n_iter: int  # passes over the data
    converged: bool


def group_temperatures(
    scores: NDArray[Any],
    codes: NDArray[Any],
    weight: Floats | None,
    members: NDArray[Any] | None = None,
    lacking: NDArray[np.bool_] = NO_GROUPS,
    bounds: tuple[float, float] | None = None,
    solver: Literal["exact", "paper"] = "exact",
) -> Temperatures:
    """Find the temperatures that minimise the cross entropy.

    `lacking` says for each group whether it gets the common temperature. The default bounds are
    1/20 and 20 times the root mean square of the centred scores, of the group or of all rows.
    """
    n_groups = len(lacking)
    if n_groups == 1:
        same = group_temperatures(scores, codes, weight, bounds=bounds, solver=solver)
        return dataclasses.replace(
            same, values=same.values.repeat(2), at_bound=same.at_bound.repeat(2)
        )
    if bounds is None:
        start = score_sizes(scores, weight, members, n_groups)
        low, high = start / STEEPEST, start * STEEPEST
    else:
        start, low, high = (np.full(1 + n_groups, value) for value in (1.0, *bounds))
    problem = Problem.of(scores[None], codes, weight, 1.0 / float(low.min()))

    def solved(part: slice, start: float, own: NDArray[Any] | None) -> tuple[Floats, int, bool]:
        cells = problem if own is None else problem.divided(own, n_groups)
        if solver == "paper":
            return _by_recipe(cells, scores, codes, weight, own)
        found = solve(cells, (low[part], high[part]), start)
        return found.temperature, found.n_iter, found.converged

    values, n_iter, converged = solved(slice(0, 1), float(start[0]), None)
    if n_groups:
        # equal bounds fix the temperature of a group that gets the common one
        low[1:][lacking] = high[1:][lacking] = values
        own, more, done = solved(slice(1, None), float(values[0]), members)
        values = np.append(values, np.where(lacking, values, own))
        n_iter, converged = n_iter + more, converged and done
    return Temperatures(values, (values == low) | (values == high), n_iter, converged)


def _by_recipe(
    problem: Problem,
    scores: NDArray[Any],
    codes: NDArray[Any],
    weight: Floats | None,
    members: NDArray[Any] | None,
) -> tuple[Floats, int, bool]:
    own = np.zeros(len(scores), np.int64) if members is None else members
    labels = tuple(range(scores.shape[1]))

    def ece(t: Floats) -> Floats:
        prob = softmax(scores, t[0, own][:, None])
        value = expected_calibration_error(codes, prob, sample_weight=weight, labels=labels)
        return np.array([value])

    total = len(scores) if weight is None else float(weight.sum())
    found, steps, stopped = paper_temperatures(problem, ece, total)
    return found[0], steps, stopped
