"""The paper's recipe for temperatures: small steps of Adam, until the ECE rises.

With a rate of 1e-4 and at most 500 steps, a temperature stays between 0.95 and 1.05, whatever its
optimum. Kept for comparison.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._temperature_solver import Problem, like

Floats = NDArray[np.float64]

RATE, STEPS, EPSILON = 1e-4, 500, 1e-7


def paper_temperatures(
    problem: Problem, ece: Callable[[Floats], Floats], total: float, configs: int = 1
) -> tuple[Floats, int, bool]:
    """Return the temperatures (config, group), the steps taken, and whether all have stopped.

    The problem has a cell per configuration and group. `ece` takes temperatures (config, group) and
    returns the ECE (config,); `total` is the number (or weight) of a configuration's rows.
    """
    t = np.ones((configs, problem.size // configs))
    first, second = np.zeros_like(t), np.zeros_like(t)
    before, going = ece(t), np.ones(configs, bool)
    for step in range(1, STEPS + 1):
        beta = like(1.0 / t.ravel(), problem.label)
        slope = np.asarray(problem.derivatives(beta, order=2)[0]).reshape(t.shape)
        grad = -slope / t**2 / total  # d/dT of the mean cross entropy, beta being 1 / T
        first = 0.9 * first + 0.1 * grad
        second = 0.999 * second + 0.001 * grad**2
        rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        moved = t - rate * first / (np.sqrt(second) + EPSILON)
        after = ece(moved)
        going &= ~(after > before)
        t = np.where(going[:, None], moved, t)
        before = np.where(going, after, before)
        if not going.any():
            return t, step, True
    return t, STEPS, False
