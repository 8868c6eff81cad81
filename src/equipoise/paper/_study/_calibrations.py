"""What is done to the logits of a split after training, fitted to its validation rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration import Problem, paper_temperatures, softmax
from equipoise.datasets import Part
from equipoise.metrics import METRICS, AuditTable
from equipoise.training import fit_scaling, quiet_calibration, scaled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUPS = (0, 1)


def calibrated(
    ways: Mapping[str, Mapping[str, Any]],
    val: Floats,
    y: Ints,
    val_group: Ints,
    test: Floats,
    test_group: Ints,
) -> dict[str, Floats]:
    """Return the probabilities of class 1, (arm, test row), after each way of calibration.

    `val` and `test` are logits of class 1, (arm, row); `y` are the labels of the validation rows.
    """
    part = Part(np.empty((len(y), 0), np.float32), y, val_group, np.arange(len(y)))
    found = {}
    with quiet_calibration():
        for name, way in ways.items():
            if way.get("how") == "recipe":
                t = recipe_temperatures(val, y, val_group)
                found[name] = softmax(_pair(test), t[:, test_group, None])[..., 1]
                continue
            each = np.empty_like(test)
            for arm, (own, other) in enumerate(zip(_pair(val), _pair(test), strict=True)):
                scaling = fit_scaling(
                    way.get("how"),
                    own,
                    part,
                    n_classes=2,
                    groups=GROUPS,
                    shrinkage=way.get("shrinkage", 0.0),
                )
                each[arm] = scaled(scaling, other, test_group)[:, 1]
            found[name] = each
    return found


def recipe_temperatures(logits: Floats, y: Ints, group: Ints) -> Floats:
    """Return the temperatures (arm, group) of the paper's recipe, of logits (arm, row)."""
    both = _pair(logits)
    problem = Problem.of(both, y, None, 1.0).divided(group, len(GROUPS))

    def ece(t: Floats) -> Floats:
        table = AuditTable.from_stack(
            np.moveaxis(softmax(both, t[:, group, None]), -1, 0),
            y,
            group,
            groups=GROUPS,
            labels=(0, 1),
            n_bins=15,
            blocks=["bins"],
        )
        return METRICS["ece"].of(table.pooled())[:, 0]

    return paper_temperatures(problem, ece, len(y), len(logits))[0]


def _pair(logits: Floats) -> Floats:
    """Return (..., row, 2): class 0 has the logit 0."""
    return np.stack([np.zeros_like(logits), logits], axis=-1)
