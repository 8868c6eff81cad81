"""Training each run up to the epoch that validation chooses, without measuring it on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.datasets import Split
from equipoise.training._engine import (
    CHUNK,
    Config,
    StackTrainer,
    check_runs,
    chunks_of,
    classes_of,
)
from equipoise.training._epoch_metrics import RowTensors, logits_of
from equipoise.training._losses import LOSSES, Loss
from equipoise.training._network import Layer, StackedMLP

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class BestRuns:
    """Runs at the epoch that validation chose.

    Attributes
    ----------
    epoch
        (config,): the chosen epoch, from 1 on; 0 where a run diverged in its first epoch.
    n_epochs
        (config,): the epochs trained.
    val_log_loss
        (config,): validation log-loss at the chosen epoch, not smoothed; nan where epoch is 0.
    logits
        "val" and "test" to (config, row, class) at the chosen epoch; nan where epoch is 0.
    layers
        The layers of each configuration at the chosen epoch; none where epoch is 0.
    """

    epoch: Ints
    n_epochs: Ints
    val_log_loss: Floats
    logits: dict[str, Floats]
    layers: list[list[Layer]]


def best_epoch(log_losses: Any) -> int:
    """Return the position of the least log-loss, each averaged with its two neighbours.

    The first and the last epoch have one neighbour. A value that is nan is never chosen and enters
    no average; of equals the first is chosen. Returns -1 if there is no value.

    >>> best_epoch([0.9, 0.3, 0.8, 0.5, 0.5, 0.5])  # 0.3 is a lucky epoch
    4
    """
    values = np.asarray(log_losses, np.float64)
    if values.ndim != 1:
        raise ValueError(f"log_losses must be (epoch,), got {values.shape}")
    return int(_best(_smoothed(values[None]))[0])


def train_to_best(
    split: Split,
    configs: Sequence[Config],
    *,
    max_epochs: int = 200,
    patience: int = 10,
    batch_size: int = 256,
    hidden_layer_sizes: Sequence[int] = (128, 64),
    output_relu: bool = False,
    split_seed: int = 0,
    losses: Mapping[str, Loss] = LOSSES,
    n_classes: int | None = None,
    chunk: int = CHUNK,
    step: Callable[[], None] | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> BestRuns:
    """Train each run until its validation log-loss stalls; return it at its best epoch.

    The best epoch is that of `best_epoch`. A run that has stopped leaves the stack, so that the
    others go on faster; a run that diverges keeps the best epoch before. Everything runs on the
    calling thread, one chunk after another.

    Parameters
    ----------
    split
        Training, validation and test parts, from `Dataset.split`.
    configs
        The runs; losses, weights, seeds and learning rates may be mixed.
    max_epochs
        Largest number of epochs.
    patience
        Epochs that a run goes on after its best epoch.
    batch_size, hidden_layer_sizes, output_relu, split_seed, losses, chunk, device, dtype
        As in `train_stack`.
    n_classes
        Number of classes; by default that of the split.
    step
        Called after each epoch of each chunk; it may raise, to cancel.
    """
    configs = tuple(configs)
    check_runs(split, configs, max_epochs, batch_size, (), losses, 0)
    if patience < 1:
        raise ValueError(f"patience must be at least 1, got {patience}")
    n_classes = n_classes or classes_of(split)
    rows = {name: RowTensors(getattr(split, name), device, dtype) for name in ("val", "test")}
    epoch = np.zeros(len(configs), np.int64)
    n_epochs, val_log_loss = np.zeros_like(epoch), np.full(len(configs), np.nan)
    logits = {
        name: np.full((len(configs), len(part.y), n_classes), np.nan) for name, part in rows.items()
    }
    layers: list[list[Layer]] = [[] for _ in configs]
    for part in chunks_of(configs, chunk):
        trainer = StackTrainer(
            split.train,
            [configs[i] for i in part],
            n_classes=n_classes,
            batch_size=batch_size,
            hidden_layer_sizes=hidden_layer_sizes,
            output_relu=output_relu,
            split_seed=split_seed,
            device=device,
            dtype=dtype,
            losses=losses,
        )
        history, network = _train_chunk(trainer, rows["val"], max_epochs, patience, step)
        best = _best(_smoothed(history))
        found = np.flatnonzero(best >= 0)
        own = np.asarray(part)[found]
        n_epochs[part] = (~np.isnan(history)).sum(1)
        epoch[own], val_log_loss[own] = best[found] + 1, history[found, best[found]]
        with trainer.threads():
            for name, z in logits.items():
                z[own] = logits_of(network, rows[name].X, batch_size).cpu().numpy()[found]
        for c, i in zip(found.tolist(), own.tolist(), strict=True):
            layers[i] = network.layers(c)
    return BestRuns(epoch, n_epochs, val_log_loss, logits, layers)


def _train_chunk(
    trainer: StackTrainer,
    val: RowTensors,
    max_epochs: int,
    patience: int,
    step: Callable[[], None] | None,
) -> tuple[Floats, StackedMLP]:
    """Return the log-losses, (config, epoch), and the networks at their best epochs.

    A log-loss is infinite in the epoch in which a run diverged, and nan once a run has ended.
    """
    chosen = trainer.network.copy()
    history = np.full((len(chosen), max_epochs), np.nan)
    running = np.arange(len(chosen))
    for now in range(max_epochs):
        before = trainer.network.copy()
        with trainer.threads():
            total = trainer.epoch()
            loss = _log_loss(trainer.network, val, trainer.batch_size)
        history[running, now] = torch.where(torch.isfinite(total), loss, torch.inf).cpu().numpy()
        smooth = _smoothed(history[running, : now + 1])
        # the average of an epoch is final one epoch later, so the weights before are needed still
        final, best = _best(smooth[:, :now]), _best(smooth)
        chosen.put(running, before, (final == now - 1) & (final >= 0))
        ended = (now - best >= patience) | np.isinf(history[running, now])
        ended |= now + 1 == max_epochs
        chosen.put(running, trainer.network, ended & (best == now))
        if step is not None:
            step()
        if ended.all():
            break
        if ended.any():
            trainer.keep(torch.from_numpy(~ended).to(val.y.device))
            running = running[~ended]
    return history, chosen


def _log_loss(network: StackedMLP, rows: RowTensors, batch_size: int) -> Tensor:
    """Return the mean log-loss of each configuration; infinite where logits are not finite."""
    z = logits_of(network, rows.X, batch_size)
    own = z.gather(-1, rows.y.expand(len(z), -1).unsqueeze(-1)).squeeze(-1)
    value = z.logsumexp(-1) - own
    weight = torch.ones_like(value[0]) if rows.weight is None else rows.weight.double()
    finite = torch.isfinite(z).all(-1).all(-1)
    return torch.where(finite, value @ weight / weight.sum(), torch.inf)


def _smoothed(values: Floats) -> Floats:
    """Average each value of (config, epoch) with its neighbours that are finite, in a window of 3.

    What is not finite itself stays out, as infinity.
    """
    there = np.isfinite(values)
    known = np.where(there, values, 0.0)
    total, count = known.copy(), there.astype(np.float64)
    for array, sums in ((known, total), (there, count)):
        sums[:, 1:] += array[:, :-1]
        sums[:, :-1] += array[:, 1:]
    return np.where(there, total / np.maximum(count, 1.0), np.inf)


def _best(smooth: Floats) -> Ints:
    """Return the position of each least value, or -1 where none is finite."""
    if not smooth.shape[1]:
        return np.full(len(smooth), -1)
    return np.where(np.isfinite(smooth).any(1), smooth.argmin(1), -1)
