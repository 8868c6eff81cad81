"""The cross entropy as a function of one inverse temperature per cell, and its exact minimum.

A cell is a group of one configuration. The cross entropy sum_i [log sum_k exp(b z_ik) - b z_iy] is
convex in b = 1 / T; its two derivatives are the mean and variance of z under softmax(b z).
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

TOLERANCE = {2: 3e-5, 3: 1e-3}
"""Relative size of the last step by the number of derivatives in use: the error after it is of the
order of its square (Newton) or cube (Halley), 1e-9, where the cross entropy does not change."""

MOST_PASSES = 200
SLICE = 1 << 17  # numbers per slice: fewer cost more calls, more fall out of the cache
FEW = 1 << 15  # rows for a first guess


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows of all cells.

    Attributes
    ----------
    scores
        (row, column): the logits; with two classes only the smaller minus the larger, and
        `rest` = 1 stands for exp(0) of the larger.
    rest
        What to add to the sum of exponentials.
    label
        (row,): the label's score.
    cell
        (row,): the cell of each row; None where there is only one.
    weight
        (row,) or None.
    size
        Number of cells.
    """

    scores: Tensor
    rest: float
    label: Tensor
    cell: Tensor | None
    weight: Tensor | None
    size: int

    @classmethod
    def of(cls, logits: Tensor, y: Tensor, weight: Tensor | None, largest: float) -> Problem:
        """Lay out logits (config, n, K) with classes y and weights (n,), one cell each.

        `largest` is the largest inverse temperature that will be asked for.
        """
        configs, n, classes = logits.shape
        every = None if weight is None else weight.double().expand(configs, n).reshape(-1)
        if classes == 2:
            scores, label = _binary(logits, y)
            return cls(scores, 1.0, label, None, every, configs).divided(None, 1)
        scores, label, furthest = _label_scores(logits, y)
        if furthest * largest > 700.0:
            # exp must not overflow, so these are measured from the row's largest
            centred = logits.double() - logits.double().amax(-1, keepdim=True)
            scores, label, _ = _label_scores(centred, y)
        return cls(scores, 0.0, label, None, every, configs).divided(None, 1)

    def divided(self, groups: Tensor | None, n_groups: int) -> Problem:
        """Return the problem with a cell per configuration and group, groups being (n,)."""
        configs, cell = self.size, None
        if configs * n_groups > 1:
            n = len(self.label) // configs
            offset = torch.arange(configs, device=self.label.device).unsqueeze(1) * n_groups
            cell = (offset if groups is None else offset + groups).expand(configs, n).reshape(-1)
        return dataclasses.replace(self, cell=cell, size=configs * n_groups)

    def every(self, stride: int) -> Problem:
        """Return the problem of every `stride`-th row."""
        return dataclasses.replace(
            self,
            scores=self.scores[::stride].contiguous(),
            label=self.label[::stride],
            cell=None if self.cell is None else self.cell[::stride].contiguous(),
            weight=None if self.weight is None else self.weight[::stride].contiguous(),
        )

    def constant(self) -> Tensor:
        """Say for each cell whether every row has equal scores, or there is no row."""
        spread = self.scores.amax(-1) - (0.0 if self.rest else self.scores.amin(-1))
        if self.weight is not None:
            spread = spread * self.weight
        return _cell_sums(spread, self.cell, self.size) == 0.0

    def derivatives(
        self, beta: Tensor, order: int = 3, dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        """Return the first two or three derivatives of the cross entropy in beta, per cell.

        They are the first cumulants of the scores under softmax(beta scores), the first of them
        less the label's score.
        """
        rows, columns = self.scores.shape
        total = [beta.new_zeros(self.size) for _ in range(order)]
        factor = beta.to(dtype)
        ones = torch.ones(columns, dtype=dtype, device=beta.device)
        step = max(256, SLICE // columns)
        for start in range(0, rows, step):
            part = slice(start, start + step)
            z = self.scores[part].to(dtype)
            cell = None if self.cell is None else self.cell[part]
            each = z * (factor if cell is None else factor.index_select(0, cell).unsqueeze(-1))
            each.exp_()
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


def _label_scores(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the logits (row, class), those of the labels (row,), and the largest |logit|."""
    configs, n, classes = logits.shape
    scores = logits.reshape(-1, classes)
    own = y.long().expand(configs, n).reshape(-1, 1)
    label = torch.empty(len(scores), dtype=torch.float64, device=logits.device)
    furthest = 0.0
    step = max(256, SLICE // classes)
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        least, most = torch.aminmax(scores[part])
        furthest = max(furthest, float(most), -float(least))
        label[part] = scores[part].gather(-1, own[part])[:, 0]
    return scores, label, furthest


def _binary(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smaller logit minus the larger (row, 1), and that of the label (row,)."""
    configs, n, _ = logits.shape
    scores = torch.empty(configs, n, dtype=torch.float64, device=logits.device)
    label = torch.empty_like(scores)
    step = max(256, SLICE // configs)
    for start in range(0, n, step):
        part = slice(start, start + step)
        margin = logits[:, part, 1].double() - logits[:, part, 0]
        scores[:, part] = margin.abs().neg_()
        toward = margin * (2 * y[part].long() - 1)
        # the label is the smaller of the two where the margin points away from it
        label[:, part] = toward.clamp_(max=0.0)
    return scores.reshape(-1, 1), label.reshape(-1)


def _cell_sums(values: Tensor, cell: Tensor | None, size: int) -> Tensor:
    if cell is None:
        return values.sum(dtype=torch.float64).reshape(1)
    total = torch.zeros(size, dtype=torch.float64, device=values.device)
    return total.scatter_add_(0, cell, values.double())


@dataclasses.dataclass(frozen=True)
class Solution:
    """Temperatures (cell,), full passes over the data, and whether all cells converged."""

    temperature: Tensor
    n_iter: int
    converged: bool


def solve(problem: Problem, bounds: tuple[float, float], start: float | Tensor = 1.0) -> Solution:
    """Minimise by Newton's method with Halley's correction, in a bracket, all cells in one pass.

    Large problems get their start from a part of the rows and one pass in float32 (profile at a
    million rows and ten classes: exp is half of a pass, and float32 takes two thirds of the time);
    what decides are passes in float64.
    """
    low, high = 1.0 / bounds[1], 1.0 / bounds[0]
    beta = torch.ones_like(problem.label[:1]).expand(problem.size) / start
    stride = len(problem.scores) // max(FEW, 1024 * problem.size)
    if stride > 3:
        beta, _, _ = _newton(problem.every(stride), low, high, beta, 1e-2)
        moved = beta - _step(*problem.derivatives(beta, 3, torch.float32))
        beta = torch.where((moved > low) & (moved < high), moved, beta)
    # from such a start two derivatives do; of many cells some still have a way to go
    order = 2 if stride > 3 and problem.size == 1 else 3
    beta, passes, converged = _newton(problem, low, high, beta, TOLERANCE[order], order)
    temperature = torch.where(beta == low, bounds[1], 1.0 / beta)
    temperature = torch.where(beta == high, bounds[0], temperature)
    return Solution(temperature, passes, converged)


def _step(slope: Tensor, bend: Tensor, twist: Tensor | None = None) -> Tensor:
    """Return Newton's step with Halley's correction, where that does not more than double it."""
    newton = slope / bend
    if twist is None:
        return newton
    correction = 1.0 - 0.5 * newton * twist / bend
    return newton / torch.where(correction > 0.5, correction, 1.0)


def _newton(
    problem: Problem, low: float, high: float, start: Tensor, tolerance: float, order: int = 3
) -> tuple[Tensor, int, bool]:
    beta = start.clamp(low, high)
    floor, ceiling = torch.full_like(beta, low), torch.full_like(beta, high)
    floor_seen = torch.zeros_like(beta, dtype=torch.bool)
    ceiling_seen = floor_seen.clone()
    done = floor_seen.clone()
    passes = 0
    while passes < MOST_PASSES and not bool(done.all()):
        slope, bend, *twist = problem.derivatives(beta, order)
        passes += 1
        if passes == 1 and bool((bend <= 1e-9 * len(problem.scores)).any()):
            # no temperature is better than another where all logits are equal: leave them alone
            done = problem.constant()
            beta = torch.where(done, 1.0, beta)
        falling = slope <= 0
        floor, floor_seen = torch.where(falling, beta, floor), floor_seen | falling
        ceiling, ceiling_seen = torch.where(falling, ceiling, beta), ceiling_seen | ~falling
        moved = torch.nan_to_num(beta - _step(slope, bend, *twist), nan=0.0)
        above, under = moved >= ceiling, moved <= floor
        middle = (floor * ceiling).sqrt()
        moved = torch.where(above, torch.where(ceiling_seen, middle, ceiling), moved)
        moved = torch.where(under, torch.where(floor_seen, middle, floor), moved)
        # at a bound that the slope points beyond, or at a stationary point, there is no way on
        stuck = (falling & (beta == ceiling)) | (~falling & (beta == floor)) | (slope == 0)
        moved = torch.where(stuck | done, beta, moved)
        done = done | stuck | ((moved - beta).abs() <= tolerance * beta)
        beta = moved
    return beta, passes, bool(done.all())
