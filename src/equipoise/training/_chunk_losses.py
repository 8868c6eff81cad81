"""The losses of configurations that train together, and their gradients in the logits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from equipoise.training._epoch_metrics import RowTensors
from equipoise.training._losses import (
    Batch,
    GroupwiseLoss,
    Loss,
    cross_entropy,
    group_weights,
    membership,
)

if TYPE_CHECKING:
    from equipoise.training._engine import Config


def kind_of(config: Config) -> tuple[str, int]:
    """Return what configurations share if one call computes their loss: its name, rho's axes."""
    rho = config.rho
    return config.loss, 0 if rho is None else 1 + (len(rho) if isinstance(rho, tuple) else 0)


class ChunkLosses:
    """The losses of a chunk: one call for each run of configurations of the same kind.

    The gradient of the cross entropy is written out; autograd differentiates the others. With
    `fast=False` autograd differentiates all, in the order of sums that the committed runs of the
    paper were made with: after hundreds of epochs other rounding is another run.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        device: str,
        dtype: torch.dtype,
        losses: Mapping[str, Loss],
        *,
        fast: bool = True,
    ) -> None:
        self._fast = fast
        self.silent: Tensor | None = None  # configurations (config,) that get no gradient
        self._plain: list[slice] = []
        self._others: list[tuple[slice, GroupwiseLoss, Tensor]] = []
        start = 0
        for (name, weighted), same in itertools.groupby(configs, kind_of):
            some = list(same)
            part, start = slice(start, start + len(some)), start + len(some)
            if fast and losses[name].term is cross_entropy and not losses[name].grouped:
                self._plain.append(part)
                continue
            rho, weight = None, torch.ones(1, device=device, dtype=dtype)
            if weighted and losses[name].grouped:
                rho = torch.tensor([c.rho for c in some], device=device, dtype=dtype)
                weight = group_weights(rho, rho.new_empty(len(some), 1, 2))
            lam = torch.tensor([c.lam for c in some], device=device, dtype=dtype)
            self._others.append((part, GroupwiseLoss(losses[name], rho, lam), weight))
        self._places = torch.tensor(
            [i for part, _, _ in self._others for i in range(part.start, part.stop)], device=device
        )

    def slope(self, logits: Tensor, rows: RowTensors) -> tuple[Tensor, Tensor]:
        """Return the losses (config,), and their gradients (config, n, class) in the logits."""
        if not self._fast:
            values, gradient = self._by_autograd(logits.detach(), rows)
            if self.silent is not None:
                gradient = gradient.masked_fill(self.silent[:, None, None], 0.0)
            return values.double(), gradient
        # the classes before the rows: softmax over a last axis of two takes ten times as long
        z = logits.detach().mT.contiguous()
        if self._others:
            values, gradient = self._by_autograd(z, rows)
            for part in self._plain:
                values[part], gradient[part] = cross_entropy_slope(z[part], rows)
        else:
            values, gradient = cross_entropy_slope(z, rows)
        if self.silent is not None:
            gradient.masked_fill_(self.silent[:, None, None], 0.0)
        return values, gradient.mT

    def _by_autograd(self, z: Tensor, rows: RowTensors) -> tuple[Tensor, Tensor]:
        """Return losses and gradients of z (config, class, n); 0 for what is written out.

        Without `fast`, z is (config, n, class).
        """
        leaf = z.detach().requires_grad_()
        if self._fast:
            logits, log_prob = leaf.mT, leaf.log_softmax(1).mT
        else:
            logits, log_prob = leaf, leaf.log_softmax(-1)
        # membership for each number of weights; all rows are one group where groups are ignored
        member = {
            n: membership(rows.group, n, z.dtype) if n > 1 else z.new_ones(len(rows.y), 1)
            for n in {weight.shape[-1] for _, _, weight in self._others}
        }
        s = rows.weight
        if s is not None:
            member = {n: m * s.unsqueeze(-1) for n, m in member.items()}
        found = [
            loss.of(Batch(log_prob[c], logits[c], rows.y, member[weight.shape[-1]], weight, s))
            for c, loss, weight in self._others
        ]
        together = torch.cat(found)
        (gradient,) = torch.autograd.grad(together.sum(), leaf)
        values = z.new_zeros(len(z))
        values[self._places] = together.detach()
        return values, gradient


def cross_entropy_slope(z: Tensor, rows: RowTensors) -> tuple[Tensor, Tensor]:
    """Return the mean cross entropies (config,), and their gradients in z (config, class, n).

    With the weights s of the rows the gradient is s_i (p_ik - [y_i = k]) / sum(s).
    """
    share: float | Tensor = 1.0 / len(rows.y)
    if rows.weight is not None:
        total = rows.weight.sum()
        share = rows.weight / torch.where(total > 0, total, 1.0)
    target = z.new_zeros(z.shape[1:]).scatter_(0, rows.y.unsqueeze(0), 1.0).mul_(share)
    log_prob = z.log_softmax(1)
    values = (log_prob * target).sum((1, 2)).neg_()
    return values, log_prob.exp_().mul_(share).sub_(target)
