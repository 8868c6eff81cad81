"""Training and measuring hundreds of configurations at once.

Configurations that share a split train as one tensor program with a leading `config` axis, a chunk
of them per core. After every epoch the stacked audit table and the exact temperatures measure them.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.datasets import Split
from equipoise.training._epoch_metrics import Measure, RowTensors
from equipoise.training._losses import LOSSES, Batch, GroupwiseLoss, Loss, group_weights, membership
from equipoise.training._network import Adam, Layer, StackedMLP
from equipoise.training._progress import Bar
from equipoise.training._threads import run_in_threads, threads_for, torch_threads

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

CHUNK = 32
"""Configurations per chunk: fewer cost more calls, more fall out of the last cache."""


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
    _check(split, configs, max_epochs, batch_size, keep_epochs, losses, reference)
    n_classes = _n_classes(split)
    # a chunk shares its learning rate, and losses stand together, so that each is one call
    order = sorted(range(len(configs)), key=lambda i: (configs[i].learning_rate, _kind(configs[i])))
    by_rate = itertools.groupby(order, lambda i: configs[i].learning_rate)
    parts = [
        own[start : start + chunk]
        for own in (list(same) for _, same in by_rate)
        for start in range(0, len(own), chunk)
    ]
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
    n_classes = n_classes or _n_classes(split)
    train = RowTensors(split.train, device, dtype)
    whole, sizes = train.size, (train.X.shape[1], *hidden_layer_sizes, n_classes)
    seeds = [int(c.seed) for c in configs]
    network = StackedMLP(sizes, seeds, output_relu=output_relu, dtype=dtype, device=device)
    adam = Adam(network.parameters(), configs[0].learning_rate)
    loss = _Losses(configs, device, dtype, losses)
    measure = Measure(split, n_classes, device, dtype, measured, batch_size, reference)
    shuffle = torch.Generator().manual_seed(int(split_seed))
    alive = torch.ones(len(configs), dtype=torch.bool, device=device)
    product = max(a * b for a, b in itertools.pairwise(sizes)) * batch_size * len(configs)

    def epoch() -> tuple[dict[str, Floats], Tensor]:
        """Train for one epoch; return the columns, and which configurations are finite."""
        order = torch.randperm(len(train.y), generator=shuffle).to(device)
        total = torch.zeros(len(configs), dtype=torch.float64, device=device)
        for rows in torch.split(order, batch_size):
            batch = train.take(rows)

            def slope(logits: Tensor, batch: RowTensors = batch) -> Tensor:
                value, gradient = loss.slope(logits, batch)
                total.add_(value, alpha=batch.size / whole)
                return gradient

            network.backward(batch.X, slope)
            adam.step()
        columns, finite = measure(network)
        finite &= torch.isfinite(total)
        return columns | {"train_loss": total.cpu().numpy()}, finite

    for number in itertools.count(1):
        with torch_threads(threads_for(product)):
            columns, finite = epoch()
        alive &= finite
        dead = ~alive
        if bool(dead.any()):
            # zero weights, no gradient and no memory of one: it stays where it is
            for parameter in network.parameters():
                parameter[dead] = 0.0
            adam.forget(dead)
            loss.silent = dead
        stopped = dead.cpu().numpy()
        columns = {name: np.where(stopped, np.nan, v) for name, v in columns.items()}
        columns["diverged"] = stopped.astype(np.float64)
        yield Epoch(number, columns, network)


def _kind(config: Config) -> tuple[str, int]:
    """Return what configurations share if one call computes their loss: its name, rho's axes."""
    rho = config.rho
    return config.loss, 0 if rho is None else 1 + (len(rho) if isinstance(rho, tuple) else 0)


class _Losses:
    """The losses of a chunk: one call for each run of configurations of the same kind."""

    def __init__(
        self, configs: Sequence[Config], device: str, dtype: torch.dtype, losses: Mapping[str, Loss]
    ) -> None:
        self.runs: list[tuple[slice, GroupwiseLoss, Tensor]] = []
        self.silent: Tensor | None = None  # configurations (config,) that get no gradient
        start = 0
        for (name, weighted), same in itertools.groupby(configs, _kind):
            some = list(same)
            rho, weight = None, torch.ones(1, device=device, dtype=dtype)
            if weighted and losses[name].grouped:
                rho = torch.tensor([c.rho for c in some], device=device, dtype=dtype)
                weight = group_weights(rho, rho.new_empty(len(some), 1, 2))
            lam = torch.tensor([c.lam for c in some], device=device, dtype=dtype)
            loss = GroupwiseLoss(losses[name], rho, lam)
            self.runs.append((slice(start, start + len(some)), loss, weight))
            start += len(some)

    def slope(self, logits: Tensor, rows: RowTensors) -> tuple[Tensor, Tensor]:
        """Return the losses (config,), and their gradients (config, n, class) in the logits."""
        leaf = logits.detach().requires_grad_()
        log_prob = leaf.log_softmax(-1)
        # membership for each number of weights; all rows are one group where groups are ignored
        member = {
            n: membership(rows.group, n, leaf.dtype) if n > 1 else leaf.new_ones(len(rows.y), 1)
            for n in {weight.shape[-1] for _, _, weight in self.runs}
        }
        s = rows.weight
        if s is not None:
            member = {n: m * s.unsqueeze(-1) for n, m in member.items()}
        values = torch.cat(
            [
                loss.of(
                    Batch(log_prob[part], leaf[part], rows.y, member[weight.shape[-1]], weight, s)
                )
                for part, loss, weight in self.runs
            ]
        )
        (gradient,) = torch.autograd.grad(values.sum(), leaf)
        if self.silent is not None:
            gradient = gradient.masked_fill(self.silent[:, None, None], 0.0)
        return values.detach().double(), gradient


def _check(
    split: Split,
    configs: tuple[Config, ...],
    max_epochs: int,
    batch: int,
    keep: Sequence[int],
    losses: Mapping[str, Loss],
    reference: int,
) -> None:
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
    absent = sorted(set(range(_n_classes(split))) - set(split.train.y.tolist()))
    if absent:
        raise ValueError(
            f"class {absent[0]} has no training row; split with stratify=True, "
            "or merge rare classes"
        )


def _n_classes(split: Split) -> int:
    return 1 + max(int(part.y.max(initial=0)) for part in (split.train, split.val, split.test))
