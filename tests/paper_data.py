"""A small sweep of the paper's kind, and its digest."""

import importlib

import pytest

from equipoise.datasets import load
from equipoise.paper import reproduce_dataset
from equipoise.paper._snippet import TECHNIQUES
from equipoise.sweep import Sweep

# of 1000 rows, so that networks die, classes are never predicted, and techniques are missing
SWEEP = Sweep(
    "german",
    loss=tuple(TECHNIQUES),
    rho=(0.4, 0.8),
    lam=(1.0, 30.0),
    seeds=(0, 1, 2),
    controls=4,
    max_epochs=6,
    hidden_layer_sizes=(16,),
    output_relu=True,
    learning_rate=1e-2,
)

PLAN = importlib.import_module("equipoise.sweep._grid")


def finish(folder):
    """Run the sweep, cut into three parts per split, and return its digest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PLAN, "RUNS", 12)
        return reproduce_dataset(SWEEP, load("german"), folder, progress=False)
