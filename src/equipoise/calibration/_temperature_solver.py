"""The cross entropy as a function of one inverse temperature per cell, and its exact minimum.

A cell is a group of one configuration. The cross entropy sum_i [log sum_k exp(b z_ik) - b z_iy] is
convex in b = 1 / T; its two derivatives are the mean and variance of z under softmax(b z).

One source serves NumPy arrays and torch tensors: a function takes the library of the arrays that
come in, and uses only names that both libraries have. torch is imported only for tensors.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

Array = Any
"""A NumPy array or a torch tensor; all arrays of a problem are of one kind, on one device."""

TOLERANCE = {2: 3e-5, 3: 1e-3}
"""Relative size of the last step by the number of derivatives in use: the error after it is of the
order of its square (Newton) or cube (Halley), 1e-9, where the cross entropy does not change."""

MOST_PASSES = 200
PATIENT = 10  # passes after which every second step halves the bracket
SLICE = 1 << 17  # numbers per slice: fewer cost more calls, more fall out of the cache
FEW = 1 << 15  # rows for a first guess


# --- the two libraries -----------------------------------------------------------------------


def library(array: Array) -> Any:
    """Return the module whose functions take this array: numpy or torch."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def like(values: Any, array: Array) -> Array:
    """Return values as an array of the same library, and on the same device, as another."""
    if isinstance(array, np.ndarray):
        return np.asarray(values)
    return library(array).as_tensor(values, device=array.device)


def host(array: Array) -> Any:
    """Return an array as a NumPy array."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def cast(array: Array, dtype: Any) -> Array:
    """Return the array with another type, itself if it has that already."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype, copy=False)
    return array.to(dtype)


def _take(array: Array, index: Array) -> Array:
    """Return elements of an array of one axis; torch.take would take twice the time."""
    return array.take(index) if isinstance(array, np.ndarray) else array.index_select(0, index)


def _cell_sums(values: Array, cell: Array | None, size: int) -> Array:
    xp = library(values)
    if cell is None:
        return xp.sum(values, dtype=xp.float64).reshape(1)
    if xp is np:
        return np.bincount(cell, values, size)
    total = xp.zeros(size, dtype=xp.float64, device=values.device)
    return total.scatter_add_(0, cell, values.double())


# --- the problem -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Problem:
    """The cross entropy of the rows of all cells."""

    scores: Array  # (row, column): the logits; of two classes only the smaller minus the larger
    rest: float  # added to the sum of exponentials: 1 = exp(0) for the larger of two, else 0
    label: Array  # (row,): the score of the label
    cell: Array | None  # (row,): None if there is only one cell
    weight: Array | None  # (row,)
    size: int  # number of cells

    @classmethod
    def of(cls, logits: Array, y: Array, weight: Array | None, largest: float) -> Problem:
        """Make a cell of each configuration of logits (config, n, K), classes y and weights (n,).

        `largest` is the largest inverse temperature that will be tried.
        """
        xp = library(logits)
        configs, n, classes = logits.shape
        every = None
        if weight is not None:
            every = xp.broadcast_to(cast(weight, xp.float64), (configs, n)).reshape(-1)
        if classes == 2:
            scores, label = _binary(logits, y)
            return cls(scores, 1.0, label, None, every, configs).divided(None, 1)
        scores, label, furthest = _label_scores(logits, y)
        if furthest * largest > 700.0:
            # subtract each row's largest, so that exp does not overflow
            whole = cast(logits, xp.float64)
            scores, label, _ = _label_scores(whole - xp.amax(whole, axis=-1, keepdims=True), y)
        return cls(scores, 0.0, label, None, every, configs).divided(None, 1)

    def divided(self, groups: Array | None, n_groups: int) -> Problem:
        """Return the problem with a cell per configuration and group, groups being (n,)."""
        configs, cell, xp = self.size, None, library(self.label)
        if configs * n_groups > 1:
            n = len(self.label) // configs
            cell = like(np.arange(configs), self.label)[:, None] * n_groups
            cell = cell if groups is None else cell + groups
            cell = xp.broadcast_to(cell, (configs, n)).reshape(-1)
        return dataclasses.replace(self, cell=cell, size=configs * n_groups)

    def every(self, stride: int) -> Problem:
        """Return the problem of every `stride`-th row."""
        # copies, because a pass over rows that are not contiguous is slow
        fields = ("scores", "label", "cell", "weight")
        given = {name: getattr(self, name) for name in fields}
        rows = {k: v[::stride] + 0 for k, v in given.items() if v is not None}
        return dataclasses.replace(self, **rows)

    def constant(self) -> Array:
        """Return for each cell whether the scores of every row are equal; True without rows."""
        xp = library(self.scores)
        least = 0.0 if self.rest else xp.amin(self.scores, axis=-1)
        spread = xp.amax(self.scores, axis=-1) - least
        if self.weight is not None:
            spread = spread * self.weight
        return _cell_sums(spread, self.cell, self.size) == 0.0

    def derivatives(self, beta: Array, order: int = 3, *, single: bool = False) -> list[Array]:
        """Return the first two or three derivatives of the cross entropy in beta, per cell.

        They are the first cumulants of the scores under softmax(beta scores), the first of them
        less the label's score. `single` computes in float32.
        """
        xp = library(self.scores)
        dtype = xp.float32 if single else xp.float64
        rows, columns = self.scores.shape
        total = [xp.zeros_like(beta) for _ in range(order)]
        factor = cast(beta, dtype)
        ones = xp.ones_like(self.scores[0], dtype=dtype)
        step = max(256, SLICE // columns)
        for start in range(0, rows, step):
            part = slice(start, start + step)
            z = cast(self.scores[part], dtype)
            cell = None if self.cell is None else self.cell[part]
            each = z * (factor if cell is None else _take(factor, cell)[:, None])
            xp.exp(each, out=each)
            mass = (each[:, 0] if columns == 1 else each @ ones) + self.rest
            moments = []
            for _ in range(order):
                each *= z
                moments.append((each[:, 0] if columns == 1 else each @ ones) / mass)
            mean, square = moments[:2]
            cumulants = [mean - self.label[part], square - mean * mean]
            if order == 3:
                cumulants.append(moments[2] - mean * (3.0 * square - 2.0 * mean * mean))
            for i, values in enumerate(cumulants):
                weighted = values if self.weight is None else values * self.weight[part]
                total[i] += _cell_sums(weighted, cell, self.size)
        return total


def _label_scores(logits: Array, y: Array) -> tuple[Array, Array, float]:
    """Return the logits (row, class), those of the labels (row,), and the largest |logit|."""
    xp = library(logits)
    configs, n, classes = logits.shape
    scores = logits.reshape(-1, classes)
    own = xp.broadcast_to(cast(y, xp.int64), (configs, n)).reshape(-1)
    label = xp.empty_like(scores[:, 0], dtype=xp.float64)
    furthest = 0.0
    step = max(256, SLICE // classes)
    first = like(np.arange(step), logits) * classes
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        z = scores[part]
        furthest = max(furthest, float(xp.amax(z)), -float(xp.amin(z)))
        label[part] = _take(z.reshape(-1), first[: len(z)] + own[part])
    return scores, label, furthest


def _binary(logits: Array, y: Array) -> tuple[Array, Array]:
    """Return the smaller logit minus the larger (row, 1), and that of the label (row,)."""
    xp = library(logits)
    configs, n, _ = logits.shape
    scores = xp.empty_like(logits[:, :, 0], dtype=xp.float64)
    label = xp.empty_like(scores)
    step = max(256, SLICE // configs)
    for start in range(0, n, step):
        part = slice(start, start + step)
        margin = cast(logits[:, part, 1], xp.float64) - logits[:, part, 0]
        scores[:, part] = -xp.abs(margin)
        toward = margin * (2 * cast(y[part], xp.int64) - 1)
        # the label is the smaller of the two where the margin points away from it
        label[:, part] = xp.clip(toward, None, 0.0)
    return scores.reshape(-1, 1), label.reshape(-1)


# --- its minimum -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Solution:
    """Temperatures (cell,), full passes over the data, and whether all cells converged."""

    temperature: Array
    n_iter: int
    converged: bool


@np.errstate(all="ignore")
def solve(
    problem: Problem, bounds: tuple[float | Array, float | Array], start: float | Array = 1.0
) -> Solution:
    """Minimise by Newton's method with Halley's correction, in a bracket, all cells in one pass.

    Large problems get their start from a part of the rows and one pass in float32 (profile at a
    million rows and ten classes: exp is half of a pass, and float32 takes two thirds of the time);
    the result comes from passes in float64. Bounds and start are numbers, or arrays (cell,).
    """
    xp = library(problem.label)
    beta = xp.broadcast_to(xp.ones_like(problem.label[:1]), (problem.size,)) / start
    low, high = (xp.zeros_like(beta) + 1.0 / bound for bound in bounds[::-1])
    stride = len(problem.scores) // max(FEW, 1024 * problem.size)
    if stride > 3:
        beta, _, _ = _newton(problem.every(stride), low, high, beta, 1e-2)
        moved = beta - _step(*problem.derivatives(beta, 3, single=True))
        beta = xp.where((moved > low) & (moved < high), moved, beta)
    # from such a start two derivatives suffice; of many cells some may still be far away
    order = 2 if stride > 3 and problem.size == 1 else 3
    beta, passes, converged = _newton(problem, low, high, beta, TOLERANCE[order], order)
    temperature = xp.where(beta == low, bounds[1], 1.0 / beta)
    temperature = xp.where(beta == high, bounds[0], temperature)
    return Solution(temperature, passes, converged)


def _step(slope: Array, bend: Array, twist: Array | None = None) -> Array:
    """Return Newton's step with Halley's correction, where that does not more than double it."""
    newton = slope / bend
    if twist is None:
        return newton
    correction = 1.0 - 0.5 * newton * twist / bend
    return newton / library(slope).where(correction > 0.5, correction, 1.0)


def _newton(
    problem: Problem, low: Array, high: Array, start: Array, tolerance: float, order: int = 3
) -> tuple[Array, int, bool]:
    xp = library(start)
    beta, floor, ceiling = xp.clip(start, low, high), low, high
    floor_seen = ceiling_seen = done = beta < low  # nowhere
    passes = 0
    while passes < MOST_PASSES and not bool(done.all()):
        slope, bend, *twist = problem.derivatives(beta, order)
        passes += 1
        if passes == 1 and bool((bend <= 1e-9 * len(problem.scores)).any()):
            # where all logits are equal, no temperature is better than 1
            done = problem.constant()
            beta = xp.where(done, 1.0, beta)
        falling = slope <= 0
        floor, floor_seen = xp.where(falling, beta, floor), floor_seen | falling
        ceiling, ceiling_seen = xp.where(falling, ceiling, beta), ceiling_seen | ~falling
        wanted = xp.nan_to_num(beta - _step(slope, bend, *twist), nan=0.0)
        near = xp.abs(wanted - beta) <= tolerance * beta
        middle = xp.sqrt(floor * ceiling)
        far = xp.where(ceiling_seen, middle, ceiling)
        back = xp.where(floor_seen, middle, floor)
        moved = xp.where(wanted >= ceiling, far, xp.where(wanted <= floor, back, wanted))
        if passes >= PATIENT and passes % 2 == 0:
            # steps crawl where one row decides and the others are saturated: halve the bracket
            moved = xp.where(falling, far, back)
        moved = xp.where(near, xp.clip(wanted, low, high), moved)
        # done at a bound that the slope points beyond, and at a stationary point
        stuck = (falling & (beta == ceiling)) | (~falling & (beta == floor)) | (slope == 0)
        moved = xp.where(stuck | done, beta, moved)
        done = done | stuck | near
        beta = moved
    return beta, passes, bool(done.all())
