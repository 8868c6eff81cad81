"""A small sweep on made-up data, and what its folder holds."""

import importlib
from pathlib import Path

import numpy as np

from equipoise.datasets import Dataset
from equipoise.sweep import Sweep

# modules whose constants tests make small
PLAN, RUN, STORE = (
    importlib.import_module(f"equipoise.sweep.{m}") for m in ("_grid", "_execution", "_folder")
)


def make_data(groups=2, rows=96, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4)).astype(np.float32)
    group = np.arange(rows) % groups
    y = (X[:, 0] + 0.5 * group + rng.normal(size=rows) > 0.3).astype(np.int64)
    return Dataset(
        X=X,
        feature_names=("a", "b", "c", "d"),
        y=y,
        group=group,
        class_names=(0, 1),
        group_names=tuple(range(groups)),
        title="made up",
        source="",
        licence="",
    )


DATA = make_data()
SWEEP = Sweep(
    "made-up",
    loss=("ce", "ls", "mmce"),
    rho=(0.4, 0.6),
    lam=(1.0, 5.0),
    seeds=(0, 1, 2),
    controls=2,
    max_epochs=3,
    batch_size=32,
    hidden_layer_sizes=(4,),
)


def finished(folder):
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.parquet")}


def others(folder):
    """Return the names of all files but parts, their checksums, the description and the log."""
    known, endings = {"sweep.json", "parts.log"}, {".parquet", ".checksum"}
    return sorted(
        p.name for p in Path(folder).iterdir() if p.suffix not in endings and p.name not in known
    )
