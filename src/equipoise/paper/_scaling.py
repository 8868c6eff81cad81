"""Dual temperature scaling of cross-entropy by the paper's own recipe, at every epoch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.calibration import Problem, paper_temperatures, softmax
from equipoise.datasets import Dataset, Part, Split
from equipoise.metrics import METRICS, AuditTable, stacked_proportional_equality
from equipoise.sweep import RunPart, Sweep, damage, encode, fingerprint, write_part
from equipoise.training import Bar, Config, epochs_of, run_column, torch_threads

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]


def recipe_files(
    folder: str | os.PathLike[str],
    data: Dataset,
    sweep: Sweep,
    progress: Callable[[int, int], None] | bool = False,
) -> list[Path]:
    """Return a file with the recipe's outcome for each seed, made where it cannot be read."""
    mark, files = fingerprint(data), {}
    for seed in sweep.seeds:
        key = RunPart(sweep, seed, (_config(sweep, seed),), mark).key
        files[seed] = Path(folder) / "recipe" / f"{key}.parquet"
    missing = [s for s, path in files.items() if not path.exists() or damage(path)]
    if missing:
        with Bar(progress, sweep.max_epochs * len(missing), len(missing), "recipe") as advance:
            for seed in missing:
                path = files[seed]
                path.parent.mkdir(exist_ok=True)
                write_part(path, encode(by_recipe(data, sweep, seed), path.stem))
                advance(sweep.max_epochs)
    return list(files.values())


@torch_threads(1)  # one small network gains nothing from more
def by_recipe(data: Dataset, sweep: Sweep, seed: int) -> pa.Table:
    """Train with cross-entropy and scale by the recipe: a row per epoch.

    Columns are test_pe, test_ece15 and test_ece10 before, the same with ``test_recipe_`` after, and
    the temperatures of the groups. The run is the usual one of the sweep, but trained alone: it
    rounds differently, which shows after some hundred epochs.
    """
    import pyarrow as pa

    split = data.split(seed, stratify=sweep.stratify)
    X = {name: torch.from_numpy(getattr(split, name).X) for name in ("val", "test")}
    logits: dict[str, list[torch.Tensor]] = {name: [] for name in X}
    for epoch in epochs_of(
        split,
        [_config(sweep, seed)],
        batch_size=sweep.batch_size,
        hidden_layer_sizes=sweep.hidden_layer_sizes,
        output_relu=sweep.output_relu,
        split_seed=seed,
    ):
        for name, rows in X.items():
            logits[name].append(epoch.network.forward(rows)[0].double())
        if epoch.number == sweep.max_epochs:
            break
    # the epochs are a stack of configurations here: all are scaled at once
    z = {name: torch.stack(values) for name, values in logits.items()}
    val, test, n_groups = split.val, split.test, len(data.group_names)
    problem = Problem.of(z["val"], torch.from_numpy(val.y), None, 1.0)
    problem = problem.divided(torch.from_numpy(val.group), n_groups)

    def ece(t: Floats) -> Floats:
        table = _table(_scaled(z["val"].numpy(), t, val), val, n_groups, 15, ["bins"])
        return METRICS["ece"].of(table.pooled())[:, 0]

    found, _, _ = paper_temperatures(problem, ece, len(val.y), sweep.max_epochs)
    before = _figures(z["test"].numpy(), np.ones_like(found), test, split)
    after = _figures(z["test"].numpy(), found, test, split)
    columns = {
        "split_seed": np.full(sweep.max_epochs, seed),
        "epoch": 1 + np.arange(sweep.max_epochs),
    }
    for how, figures in ((None, before), ("recipe", after)):
        columns |= {run_column("test", name, how): values for name, values in figures.items()}
    columns |= {f"temperature_{g}": found[:, g] for g in range(n_groups)}
    return pa.table(columns)


def _config(sweep: Sweep, seed: int) -> Config:
    return Config("ce", None, 1.0, seed, sweep.learning_rate)


def _scaled(z: Floats, t: Floats, part: Part) -> Floats:
    """Return probabilities (class, config, n) of logits (config, n, class) over temperatures."""
    return softmax(np.moveaxis(z, -1, 0), t[:, part.group], axis=0)


def _table(prob: Floats, part: Part, n_groups: int, bins: int, sums: list[str]) -> AuditTable:
    return AuditTable.from_stack(
        prob,
        part.y,
        part.group,
        groups=tuple(range(n_groups)),
        labels=tuple(range(len(prob))),
        n_bins=bins,
        blocks=sums,
    )


def _figures(z: Floats, t: Floats, part: Part, split: Split) -> dict[str, Floats]:
    """Measure logits (config, n, class) divided by temperatures (config, group)."""
    prob, n_groups = _scaled(z, t, part), t.shape[1]
    count = np.zeros((n_groups, len(prob)))
    np.add.at(count, (split.train.group, split.train.y), 1.0)
    fifteen = _table(prob, part, n_groups, 15, ["bins", "rates"])
    ten = _table(prob, part, n_groups, 10, ["bins"])
    return {
        "pe": stacked_proportional_equality(
            fifteen, count / count.sum(1, keepdims=True), "stochastic"
        ),
        "ece15": METRICS["ece"].of(fifteen.pooled())[:, 0],
        "ece10": METRICS["ece"].of(ten.pooled())[:, 0],
    }
