"""Exact bias-corrected temperatures: softmax(z / T + b), for all cells in each pass over the rows.

A cell is a group of one configuration. With u_k = z_k - z_0 the parameters of a cell are
theta = (1 / T, b_1 - b_0, ..., b_(K-1) - b_0), and its cross entropy is convex in theta. Newton's
method minimises it, or its sum with a quadratic penalty: theta = centre + factor @ eta, and
ridge |eta|^2 / 2 is added. The factor is lower triangular, so a bound on 1 / T is one on eta_0.

NumPy arrays and torch tensors are both taken; sums per cell come back as NumPy arrays.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Self

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._temperature_solver import SLICE, Array, cast, host, library, like

Floats = NDArray[np.float64]

MOST_PASSES = 100
TOLERANCE = 1e-20
"""Decrease of the cross entropy per unit of weight that a further step promises, at the end. Mean
probabilities then equal rates to about 1e-10."""

SUFFICIENT = 1e-4  # share of the decrease that its slope promises which a step has to bring
ROUNDING = 1e-13  # error of a cross entropy, relative to itself and to the weight of the rows
LEAST_DAMPING = 1e-13
"""Share of the largest curvature that is always added: where all rows are saturated, the curvature
vanishes and a step would have no end."""


@dataclasses.dataclass(frozen=True)
class Sums:
    """Cross entropy (cell,), its gradient (cell, K) and Hessian (cell, K, K) in theta."""

    loss: Floats
    slope: Floats
    bend: Floats


@dataclasses.dataclass(frozen=True)
class AffineProblem:
    """The rows of all cells, their scores standardised to u = (z_k - z_0 - mean_k) / scale."""

    scores: Array  # (row, K - 1), the rows of one configuration after those of the other
    label: Array  # (row,): class 0..K-1
    cell: Array | None  # (row,): None if there is only one cell
    weight: Array | None  # (row,)
    size: int  # number of cells, the same for every configuration
    mean: Floats  # (config, K - 1)
    scale: Floats  # (config,)

    @classmethod
    def of(
        cls, logits: Array, y: Array, weight: Array | None = None, *, centred: bool = True
    ) -> AffineProblem:
        """Make a cell of each configuration of logits (config, n, K), classes and weights (n,).

        The standard scores of a configuration have the mean 0, unless `centred` is False, and the
        root mean square 1.
        """
        xp = library(logits)
        configs, n, classes = logits.shape
        z = cast(logits, xp.float64)
        u = z[:, :, 1:] - z[:, :, :1]
        w = xp.ones_like(u[0, :, 0]) if weight is None else cast(weight, xp.float64)
        share = w / w.sum()
        mean = (u * share[:, None]).sum(1)
        mean = mean if centred else 0.0 * mean
        u = u - mean[:, None]
        scale = np.sqrt(host((u * u).mean(-1) @ share))
        scale = np.where(scale > 0.0, scale, 1.0)
        u = (u / like(scale, u)[:, None, None]).reshape(-1, classes - 1)
        label = xp.broadcast_to(cast(y, xp.int64), (configs, n)).reshape(-1)
        every = None if weight is None else xp.broadcast_to(w, (configs, n)).reshape(-1)
        whole = cls(u, label, None, every, configs, host(mean), scale)
        return whole.divided(None, 1)

    def divided(self, groups: Array | None, n_groups: int, weight: Array | None = None) -> Self:
        """Return the problem with a cell per configuration and group, groups being (n,).

        `weight` (n,) replaces the weights.
        """
        configs, cell, xp = len(self.scale), None, library(self.label)
        n = len(self.label) // configs
        if configs * n_groups > 1:
            cell = like(np.arange(configs), self.label)[:, None] * n_groups
            cell = cell if groups is None else cell + groups
            cell = xp.broadcast_to(cell, (configs, n)).reshape(-1)
        every = self.weight
        if weight is not None:
            every = xp.broadcast_to(weight, (configs, n)).reshape(-1)
        return dataclasses.replace(self, cell=cell, size=configs * n_groups, weight=every)

    def _of_cells(self) -> tuple[Floats, Floats]:
        """Return mean (cell, K - 1) and scale (cell, 1)."""
        repeats = self.size // len(self.scale)
        return self.mean.repeat(repeats, axis=0), self.scale.repeat(repeats)[:, None]

    def standard(self, temperature: Floats, bias: Floats) -> Floats:
        """Return theta (cell, K) for temperatures (cell,) and biases (cell, K)."""
        mean, scale = self._of_cells()
        beta = 1.0 / temperature[:, None]
        return np.concatenate([beta * scale, bias[:, 1:] - bias[:, :1] + beta * mean], axis=1)

    def original(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return temperatures (cell,) and biases (cell, K), which sum to 0."""
        mean, scale = self._of_cells()
        beta = theta[:, :1] / scale
        bias = np.concatenate([np.zeros_like(beta), theta[:, 1:] - beta * mean], axis=1)
        return 1.0 / beta[:, 0], bias - bias.mean(axis=1, keepdims=True)

    @functools.cached_property
    def _even(self) -> Sums:
        """The sums where all classes are equally probable."""
        return self.sums(np.zeros((self.size, self.scores.shape[1] + 1)))

    @property
    def mass(self) -> Floats:
        """The weight of the rows of each cell, (cell,)."""
        mass = self._even.loss / np.log(self.scores.shape[1] + 1.0)
        return np.asarray(np.maximum(mass, 1e-300))

    @property
    def steepest(self) -> Floats:
        """A bound of the Hessian for any theta, (cell, K, K).

        The covariance of classes is at most (1 - 1 / K) / 2 (Boehning, 1992), which is K / 2 times
        that of equal probabilities.
        """
        return np.asarray(0.5 * (self.scores.shape[1] + 1) * self._even.bend)

    def sums(self, theta: Floats) -> Sums:
        """Return the cross entropy of the cells and its derivatives at theta (cell, K)."""
        xp = library(self.scores)
        rows, columns = self.scores.shape
        size = columns + 1
        upper = [(i, j) for i in range(size) for j in range(i, size)]
        total = np.zeros((self.size, 1 + size + len(upper)))
        parameters = like(theta, self.scores)
        classes = like(np.arange(1, size), self.scores)
        step = max(256, SLICE // (2 * size))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            u, cell = self.scores[part], None if self.cell is None else self.cell[part]
            own = parameters if cell is None else parameters[cell]
            z = u * own[:, :1] + own[:, 1:]
            # the first class has the score 0
            top = xp.clip(xp.amax(z, axis=-1), 0.0, None)
            p = xp.exp(z - top[:, None])
            mass = p.sum(-1) + xp.exp(-top)
            p = p / mass[:, None]
            hit = self.label[part][:, None] == classes
            value = top + xp.log(mass) - xp.where(hit, z, 0.0).sum(-1)
            gap = p - cast(hit, xp.float64)
            mean = (p * u).sum(-1)
            lean = p * (u - mean[:, None])  # of class k: the covariance of its column and the score
            sums = [value, (gap * u).sum(-1), *(gap[:, k] for k in range(columns))]
            sums += [(lean * u).sum(-1), *(lean[:, k] for k in range(columns))]
            for j in range(columns):
                sums += [p[:, j] * (1.0 - p[:, j])]
                sums += [-p[:, j] * p[:, k] for k in range(j + 1, columns)]
            weight = None if self.weight is None else self.weight[part]
            total += _cell_totals(sums, cell, weight, self.size)
        bend = np.empty((self.size, size, size))
        for at, (i, j) in enumerate(upper, start=1 + size):
            bend[:, i, j] = bend[:, j, i] = total[:, at]
        return Sums(total[:, 0], total[:, 1 : 1 + size], bend)


def _cell_totals(
    columns: list[Array], cell: Array | None, weight: Array | None, size: int
) -> Floats:
    """Return the (weighted) sums (cell, column) of columns (row,)."""
    if isinstance(columns[0], np.ndarray):
        if cell is None:
            weigh = np.sum if weight is None else weight.dot
            return np.array([[weigh(column) for column in columns]])
        parts = [column if weight is None else column * weight for column in columns]
        return np.stack([np.bincount(cell, part, size) for part in parts], axis=1)
    torch = library(columns[0])
    values = torch.stack(columns, dim=1)
    values = values if weight is None else values * weight[:, None]
    if cell is None:
        return np.asarray(host(values.sum(0, keepdim=True)))
    total = torch.zeros((size, values.shape[1]), dtype=torch.float64, device=values.device)
    return np.asarray(host(total.index_add_(0, cell, values)))


# --- its minimum -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class AffineSolution:
    """Parameters theta (cell, K), the sums there, and how they were found."""

    theta: Floats
    sums: Sums
    value: Floats  # (cell,): the cross entropy with the penalty
    at_bound: NDArray[np.bool_]  # (cell,)
    n_iter: int  # passes over the rows
    converged: NDArray[np.bool_]  # (cell,)


@dataclasses.dataclass(frozen=True)
class Penalty:
    """theta = centre + factor @ eta, and ridge |eta|^2 / 2 is added to the cross entropy."""

    centre: Floats  # (K,) or (cell, K)
    factor: Floats  # (K, K), lower triangular
    ridge: float = 1.0


def minimise(
    problem: AffineProblem,
    bounds: tuple[float | Floats, float | Floats],
    start: Floats,
    penalty: Penalty | None = None,
    *,
    fixed: NDArray[np.bool_] | None = None,
    slope_only: bool = False,
) -> AffineSolution:
    """Minimise the cross entropy, or its sum with a penalty, by Newton's method in every cell.

    Where a step does not bring enough, a share of the largest curvature is added to the Hessian;
    with the whole of it, every step goes down. In one pass each cell takes its own step.

    Bounds are those of theta_0, numbers or arrays (cell,); `start` is theta, (K,) or (cell, K).
    `fixed` cells stay at their start; with `slope_only`, so do all biases.
    """
    count = problem.scores.shape[1] + 1
    penalty = penalty or Penalty(np.zeros(count), np.eye(count), 0.0)
    factor, ridge = penalty.factor, penalty.ridge
    centre = np.broadcast_to(penalty.centre, (problem.size, count))
    low, high = (np.broadcast_to(np.asarray(b, float), problem.size) for b in bounds)
    kept = np.array(np.broadcast_to(start, (problem.size, count)))
    held = np.zeros(problem.size, bool) if fixed is None else fixed
    free = np.diagonal(factor) > 0.0
    if slope_only:
        free[1:] = False
    with np.errstate(divide="ignore", invalid="ignore"):  # a slope that is not free has no bounds
        floor, ceiling = ((b - centre[:, 0]) / factor[0, 0] for b in (low, high))

    def at(eta: Floats) -> _Point:
        theta = centre + eta @ factor.T
        theta[:, 0] = np.clip(theta[:, 0], low, high)  # rounding may cross a bound
        if slope_only:
            theta[:, 1:] = kept[:, 1:]
        theta[held] = kept[held]
        sums = problem.sums(theta)
        return _Point(eta, theta, sums, sums.loss + 0.5 * ridge * (eta**2).sum(axis=1))

    here = kept.copy()
    here[:, 0] = np.clip(here[:, 0], low, high)
    point = at((here - centre) @ np.linalg.pinv(factor).T)
    done, passes = held.copy(), 1
    bound = np.zeros(problem.size, bool)
    limit = factor.T @ problem.steepest @ factor + ridge * np.eye(count)
    damping = np.full(problem.size, LEAST_DAMPING)
    while passes < MOST_PASSES and not done.all():
        slope = point.sums.slope @ factor + ridge * point.eta
        bend = factor.T @ point.sums.bend @ factor + ridge * np.eye(count)
        bend += damping[:, None, None] * limit
        box = point.eta[:, 0], floor, ceiling, free
        move, bound = _box_step(slope, bend, *box)
        promise, sure = (-(slope * m).sum(axis=1) for m in (move, _box_step(slope, limit, *box)[0]))
        done |= (damping == LEAST_DAMPING) & (promise <= TOLERANCE * problem.mass)
        done |= sure <= ROUNDING**2 * problem.mass
        if done.all():
            break
        tried = at(point.eta + np.where(done, 0.0, 1.0)[:, None] * move)
        passes += 1
        slack = ROUNDING * (np.abs(point.value) + problem.mass)
        taken = ~done & (tried.value <= point.value - SUFFICIENT * promise + slack)
        good = taken & (tried.value <= point.value - 0.3 * promise + slack)
        point = tried.where(taken, point)
        done |= ~taken & (damping == 1.0)  # rounding is all that is left
        # the curvature along the step, relative to the largest
        ratio = _curvature(bend, move) / np.maximum(_curvature(limit, move), 1e-300)
        raised = np.clip(8.0 * ratio, damping, 1.0)
        eased = np.where(damping > 1e-9, 0.03 * damping, LEAST_DAMPING)
        damping = np.where(good, eased, np.where(taken, damping, raised))
    return AffineSolution(point.theta, point.sums, point.value, bound & ~held, passes, done)


@dataclasses.dataclass(frozen=True)
class _Point:
    """Where the search is: parameters, sums, and the penalised cross entropy (cell,)."""

    eta: Floats
    theta: Floats
    sums: Sums
    value: Floats

    def where(self, chosen: NDArray[np.bool_], other: _Point) -> _Point:
        """Return this point in the chosen cells, and another in the rest."""
        one, two = chosen[:, None], chosen[:, None, None]
        sums = Sums(
            np.where(chosen, self.sums.loss, other.sums.loss),
            np.where(one, self.sums.slope, other.sums.slope),
            np.where(two, self.sums.bend, other.sums.bend),
        )
        return _Point(
            np.where(one, self.eta, other.eta),
            np.where(one, self.theta, other.theta),
            sums,
            np.where(chosen, self.value, other.value),
        )


def _box_step(
    slope: Floats, bend: Floats, first: Floats, low: Floats, high: Floats, free: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the step to the minimum of each cell's quadratic, and whether a bound holds it.

    Only the first parameter has bounds: where the minimum is beyond one, the minimum within the
    bounds has the first parameter there, since the quadratic is convex.
    """
    slope = np.where(free, slope, 0.0)
    bend = np.where(free[:, None] & free, bend, np.eye(len(free)))
    # parameters without information (bend 0) are not moved
    diagonal = np.einsum("cii->ci", bend)
    bend = bend + np.eye(len(free)) * np.maximum(1e-12 * diagonal, 1e-300)[:, None, :]
    move = -_solved(bend, slope)
    if not free[0]:
        return move, np.zeros(len(move), bool)
    end = first + move[:, 0]
    beyond = (end < low) | (end > high)
    if beyond.any():
        jump = np.clip(end[beyond], low[beyond], high[beyond]) - first[beyond]
        move[beyond, 0] = jump
        if len(free) > 1:
            rest = slope[beyond, 1:] + bend[beyond, 1:, 0] * jump[:, None]
            move[beyond, 1:] = -_solved(bend[beyond, 1:, 1:], rest)
    return move, beyond


def _curvature(bend: Floats, move: Floats) -> Floats:
    return np.asarray(np.einsum("ci,cij,cj->c", move, bend, move))


def _solved(bend: Floats, slope: Floats) -> Floats:
    """Solve the cells' linear systems, each scaled to a diagonal of ones."""
    size = np.sqrt(np.maximum(np.einsum("cii->ci", bend), 1e-300))
    scaled = bend / size[:, :, None] / size[:, None, :]
    scaled += 1e-13 * np.eye(bend.shape[1])
    right = slope / size
    try:
        found = np.linalg.solve(scaled, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        found = np.einsum("cij,cj->ci", np.linalg.pinv(scaled, hermitian=True), right)
    return np.asarray(found / size)
