"""Training and measuring hundreds of configurations at once.

Configurations that share a split train as one tensor program with a leading `config` axis, a chunk
of them per core. After every epoch the stacked audit table and the exact temperatures measure them.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.datasets import Part, Split
from equipoise.training._chunk_losses import ChunkLosses, kind_of
from equipoise.training._epoch_metrics import Measure, RowTensors
from equipoise.training._losses import LOSSES, GroupwiseLoss, Loss
from equipoise.training._network import Adam, Layer, StackedMLP
from equipoise.training._progress import Bar
from equipoise.training._threads import run_in_threads, threads_for, torch_threads

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

CHUNK = 32
"""Configurations per chunk: fewer cost more calls, more fall out of the last cache (at Adult's
shape a configuration has 0.7 MB of weights, moments and activations, and two chunks train at once).
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """One run.

    Attributes
    ----------
    loss
        One of `equipoise.training.LOSSES`, or of the table of losses that is trained with.
    rho
        Weight of group 1, one weight per group, or None for the ungrouped loss.
    lam
        Strength of the calibration term.
    seed
        Seed of the initial weights.
    learning_rate
        Learning rate.
    """

    loss: str = "ce"
    rho: float | tuple[float, ...] | None = None
    lam: float = 1.0
    seed: int = 0
    learning_rate: float = 1e-4


@dataclasses.dataclass(frozen=True)
class Epoch:
    """A chunk after one epoch: the epoch's number from 1 on, columns (config,), the networks."""

    number: int
    columns: dict[str, Floats]
    network: StackedMLP


@dataclasses.dataclass(frozen=True)
class StackResult:
    """A row per configuration and epoch.

    Attributes
    ----------
    configs
        The configurations, in the order they were given.
    columns
        Name to (config, epoch) values; nan from the epoch on in which a configuration diverged.
    layers
        Epoch to the layers of each configuration, for the epochs that were asked for.
    """

    configs: tuple[Config, ...]
    columns: dict[str, Floats]
    layers: dict[int, list[list[Layer]]]

    @property
    def diverged(self) -> tuple[Config, ...]:
        """The configurations that did not reach the last epoch."""
        last = self.columns["diverged"][:, -1]
        return tuple(c for c, bad in zip(self.configs, last, strict=True) if bad)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with a row per configuration and epoch."""
        return long_frame(self.configs, self.columns, ("epoch",))


def long_frame(
    configs: Sequence[Any], columns: Mapping[str, Floats], axes: Sequence[str]
) -> pd.DataFrame:
    """Return a row per configuration and position along `axes`, the last being the epoch."""
    import pandas as pd

    which, *places = (index.ravel() for index in np.indices(columns["diverged"].shape))
    frame = pd.DataFrame([dataclasses.asdict(c) for c in configs]).iloc[which]
    frame = frame.assign(**dict(zip(axes, places, strict=True))).reset_index(drop=True)
    frame["epoch"] += 1
    values = pd.DataFrame({name: array.ravel() for name, array in columns.items()})
    return pd.concat([frame, values], axis=1)


def train_stack(
    split: Split,
    configs: Sequence[Config],
    *,
    max_epochs: int = 500,
    batch_size: int = 256,
    hidden_layer_sizes: Sequence[int] = (128, 64),
    output_relu: bool = False,
    split_seed: int = 0,
    keep_epochs: Sequence[int] = (),
    chunk: int = CHUNK,
    workers: int | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    losses: Mapping[str, Loss] = LOSSES,
    reference: int = 0,
    progress: Callable[[int, int], None] | bool = False,
) -> StackResult:
    """Train all configurations and measure each after every epoch.

    Columns of the result are named ``{part}{calibration}_{metric}``: part val or test; calibration
    nothing, ``_common`` or ``_group``, the temperatures that were applied; metric ece15, ece10,
    log_loss or pe over all rows, ece15_0, ece15_1, ... of each group. Beside these: accuracy,
    pe_deterministic and dead (the share of rows whose logits are all 0) of each part, temperature
    and temperature_0, ... of each group, train_loss and diverged. PE is against the training rates.

    Parameters
    ----------
    split
        Training, validation and test parts, from `Dataset.split`.
    configs
        The runs; losses, weights, seeds and learning rates may be mixed.
    max_epochs, batch_size, hidden_layer_sizes, output_relu
        The paper's values are 500, 256, (128, 64) and True; the last partial batch is kept.
    split_seed
        Fixes the order of the batches, which all configurations share.
    keep_epochs
        Epochs (from 1 on) whose weights are returned.
    chunk
        Configurations that train together; bounds the memory.
    workers
        Chunks at a time, each on one core; by default as many as torch has threads.
    device
        "cpu" or any other torch device (then one chunk at a time).
    dtype
        Precision of weights and activations. Metrics are always float64.
    losses
        The loss that each name stands for.
    reference
        The group that PE compares the others with; the paper's is 0.
    progress
        True draws a bar on stderr; a function is called with the runs x epochs done and in all.
    """
    configs = tuple(configs)
    check_runs(split, configs, max_epochs, batch_size, keep_epochs, losses, reference)
    n_classes = classes_of(split)
    parts = chunks_of(configs, chunk)
    columns: dict[str, Floats] = {}
    layers: dict[int, list[list[Layer]]] = {e: [[] for _ in configs] for e in keep_epochs}
    stop, lock = threading.Event(), threading.Lock()

    def train(part: list[int]) -> None:
        for epoch in epochs_of(
            split,
            [configs[i] for i in part],
            n_classes=n_classes,
            batch_size=batch_size,
            hidden_layer_sizes=hidden_layer_sizes,
            output_relu=output_relu,
            split_seed=split_seed,
            device=device,
            dtype=dtype,
            losses=losses,
            reference=reference,
        ):
            with lock:
                for name, values in epoch.columns.items():
                    if name not in columns:
                        columns[name] = np.full((len(configs), max_epochs), np.nan)
                    columns[name][part, epoch.number - 1] = values
            if epoch.number in layers:
                for c, i in enumerate(part):
                    layers[epoch.number][i] = epoch.network.layers(c)
            advance(len(part))
            if epoch.number == max_epochs or stop.is_set():
                return

    threads = torch.get_num_threads()
    at_once = 1 if device != "cpu" else min(workers or threads, len(parts))
    with Bar(progress, len(configs) * max_epochs) as advance:
        run_in_threads(train, parts, at_once, stop, max(1, threads // at_once))
    return StackResult(configs, columns, layers)


def epochs_of(
    split: Split,
    configs: Sequence[Config],
    *,
    n_classes: int | None = None,
    batch_size: int = 256,
    hidden_layer_sizes: Sequence[int] = (128, 64),
    output_relu: bool = False,
    split_seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    measured: Sequence[str] = ("val", "test"),
    losses: Mapping[str, Loss] = LOSSES,
    reference: int = 0,
) -> Iterator[Epoch]:
    """Train one chunk of configurations, which share a learning rate; yield after every epoch.

    A configuration whose logits are no longer finite is stopped and flagged; the others go on.
    `measured` names the parts of the split that are measured; temperatures are fitted on "val".
    `reference` is the group that PE compares the others with.
    """
    n_classes = n_classes or classes_of(split)
    trainer = StackTrainer(
        split.train,
        configs,
        n_classes=n_classes,
        batch_size=batch_size,
        hidden_layer_sizes=hidden_layer_sizes,
        output_relu=output_relu,
        split_seed=split_seed,
        device=device,
        dtype=dtype,
        losses=losses,
        fast=False,
    )
    measure = Measure(split, n_classes, device, dtype, measured, batch_size, reference)
    alive = torch.ones(len(configs), dtype=torch.bool, device=device)
    for number in itertools.count(1):
        with trainer.threads():
            total = trainer.epoch()
            columns, finite = measure(trainer.network)
        alive &= finite & torch.isfinite(total)
        dead = ~alive
        if bool(dead.any()):
            trainer.silence(dead)
        stopped = dead.cpu().numpy()
        columns |= {"train_loss": total.cpu().numpy()}
        columns = {name: np.where(stopped, np.nan, v) for name, v in columns.items()}
        columns["diverged"] = stopped.astype(np.float64)
        yield Epoch(number, columns, trainer.network)


class StackTrainer:
    """A chunk of configurations in training; they share a learning rate.

    `network` holds their weights. All see the same batches, whose order `split_seed` fixes. `fast`
    is that of `ChunkLosses`.
    """

    def __init__(
        self,
        part: Part,
        configs: Sequence[Config],
        *,
        n_classes: int,
        batch_size: int = 256,
        hidden_layer_sizes: Sequence[int] = (128, 64),
        output_relu: bool = False,
        split_seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        losses: Mapping[str, Loss] = LOSSES,
        fast: bool = True,
    ) -> None:
        self.rows, self.batch_size = RowTensors(part, device, dtype), batch_size
        sizes = (self.rows.X.shape[1], *hidden_layer_sizes, n_classes)
        seeds = [int(c.seed) for c in configs]
        self.network = StackedMLP(sizes, seeds, output_relu=output_relu, dtype=dtype, device=device)
        self._adam = Adam(self.network.parameters(), configs[0].learning_rate)
        self._configs = list(configs)
        self._losses = partial(ChunkLosses, device=device, dtype=dtype, losses=losses, fast=fast)
        self._loss = self._losses(self._configs)
        self._shuffle = torch.Generator().manual_seed(int(split_seed))
        self._product = max(a * b for a, b in itertools.pairwise(sizes)) * batch_size

    def threads(self) -> AbstractContextManager[None]:
        """Set as many of torch's threads as the products of this chunk are worth."""
        return torch_threads(threads_for(self._product * len(self._configs)))

    def epoch(self) -> Tensor:
        """Train for one epoch; return the mean losses (config,) of its batches."""
        # Profile of a step with cross entropy, 24 configurations of Adult's (COMPAS's) shape on one
        # thread: products 86% (84%); ReLU, its gradient and the sums for biases 5% (7%); Adam 5%
        # (4%); losses 3% (4%); rows 1%. A small call costs three times as much here as in a loop of
        # its own, because the products push its code out of the cache: fewer calls save time.
        # Tried without gain: one product for the first layer of all configurations, the bias as a
        # column of ones, blocks of configurations that fit the second cache, huge pages.
        rows, whole = self.rows, self.rows.size
        order = torch.randperm(len(rows.y), generator=self._shuffle).to(rows.y.device)
        total = torch.zeros(len(self._configs), dtype=torch.float64, device=rows.y.device)
        for batch in rows.batches(order, self.batch_size):

            def slope(logits: Tensor, batch: RowTensors = batch) -> Tensor:
                value, gradient = self._loss.slope(logits, batch)
                total.add_(value, alpha=batch.size / whole)
                return gradient

            self.network.backward(batch.X, slope)
            self._adam.step()
        return total

    def keep(self, configs: Tensor) -> None:
        """Drop all configurations but some, (config,) booleans; the others train as before."""
        self.network.keep(configs)
        self._adam.keep(configs, self.network.parameters())
        self._configs = list(itertools.compress(self._configs, configs.tolist()))
        self._loss = self._losses(self._configs)

    def silence(self, configs: Tensor) -> None:
        """Stop some configurations, (config,) booleans, and leave them in their places."""
        # zero weights, no gradient and no memory of one: it stays where it is
        for parameter in self.network.parameters():
            parameter[configs] = 0.0
        self._adam.forget(configs)
        self._loss.silent = configs


def chunks_of(configs: Sequence[Config], size: int) -> list[list[int]]:
    """Return the positions of configurations that train together, `size` of them at most."""
    # a chunk shares its learning rate, and losses stand together, so that each is one call
    order = sorted(
        range(len(configs)), key=lambda i: (configs[i].learning_rate, kind_of(configs[i]))
    )
    by_rate = itertools.groupby(order, lambda i: configs[i].learning_rate)
    return [
        own[start : start + size]
        for own in (list(same) for _, same in by_rate)
        for start in range(0, len(own), size)
    ]


def check_runs(
    split: Split,
    configs: tuple[Config, ...],
    max_epochs: int,
    batch: int,
    keep: Sequence[int],
    losses: Mapping[str, Loss],
    reference: int,
) -> None:
    """Raise if the split, the configurations or the options cannot be trained with."""
    if not configs:
        raise ValueError("configs is empty; pass at least one Config")
    for config in configs:
        if config.loss not in losses:
            raise ValueError(f"unknown loss {config.loss!r}; there are {', '.join(losses)}")
        if not 0.0 < config.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be positive, got {config}")
        GroupwiseLoss(losses[config.loss], config.rho, config.lam)  # checks rho and lam
    if max_epochs < 1 or batch < 1:
        raise ValueError(
            f"max_epochs and batch_size must be positive, got {max_epochs} and {batch}"
        )
    outside = [e for e in keep if not 1 <= e <= max_epochs]
    if outside:
        raise ValueError(f"keep_epochs must be within 1..{max_epochs}, got {outside}")
    parts = {"train": split.train, "val": split.val, "test": split.test}
    n_groups = 1 + max(int(part.group.max(initial=0)) for part in parts.values())
    if not 0 <= reference < n_groups:
        raise ValueError(f"reference must be a group within 0..{n_groups - 1}, got {reference!r}")
    for config in configs:
        if isinstance(config.rho, tuple) and len(config.rho) < n_groups:
            raise ValueError(f"the data has {n_groups} groups, but {config} has fewer weights")
        if isinstance(config.rho, float | int) and n_groups > 2:
            raise ValueError(f"the data has {n_groups} groups: {config} needs a weight for each")
    for name, part in parts.items():
        if not len(part.y):
            raise ValueError(f"the {name} part of the split has no rows")
        if not np.isfinite(part.X).all():
            raise ValueError(f"the {name} part of the split has values that are not finite")
        if min(part.y.min(), part.group.min()) < 0:
            raise ValueError(f"the {name} part of the split has negative classes or groups")
    absent = sorted(set(range(classes_of(split))) - set(split.train.y.tolist()))
    if absent:
        raise ValueError(
            f"class {absent[0]} has no training row; split with stratify=True, "
            "or merge rare classes"
        )


def classes_of(split: Split) -> int:
    """Return the number of classes of all parts of a split."""
    return 1 + max(int(part.y.max(initial=0)) for part in (split.train, split.val, split.test))
