"""The calibrator of a network's logits, fitted on its validation rows."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import decode
from equipoise.calibration import (
    CalibrationWarning,
    GroupCalibrator,
    GroupTemperatureScaling,
    Shrinkage,
    TemperatureScaling,
    softmax,
)
from equipoise.datasets import Part

Floats = NDArray[np.float64]
Scaling = TemperatureScaling | GroupCalibrator

BOUNDS = (0.05, 20.0)
"""Least and largest temperature."""
SCALINGS = (None, "common", "group", "bcts")
"""No calibration; a temperature for all; one per group; a temperature and biases per group."""


def fit_scaling(
    how: str | None,
    logits: Floats,
    val: Part,
    *,
    n_classes: int,
    groups: Sequence[Hashable],
    shrinkage: Shrinkage = "auto",
    unseen_group: str = "error",
) -> Scaling | None:
    """Fit one of `SCALINGS` to logits (n, class) of the validation rows; None where it is None.

    Without groups, "group" is "common". "bcts" is "group" where a class has no rows. Groups without
    rows get the common calibrator.
    """
    if how is None:
        return None
    known: dict[str, Any] = {"sample_weight": val.weight, "labels": tuple(range(n_classes))}
    policy: dict[str, Any] = {"unseen_group": unseen_group, "shrinkage": shrinkage}
    scaling: Scaling = TemperatureScaling(bounds=BOUNDS)
    if how == "bcts" and len(np.unique(val.y)) == n_classes:
        scaling = GroupCalibrator(method="bcts", bounds=BOUNDS, **policy)
    elif how != "common" and groups:
        scaling = GroupTemperatureScaling(bounds=BOUNDS, **policy)
    if groups and type(scaling) is not TemperatureScaling:
        known["sensitive_features"] = decode(val.group, groups)
    scaling.fit(logits, val.y, **known)
    if hasattr(scaling, "add_groups"):
        scaling.add_groups(groups)  # some may have no held-out rows
    return scaling


@contextmanager
def quiet_calibration() -> Iterator[None]:
    """Ignore warnings about few held-out rows: the fitted parameters show the outcome.

    Python's filters are the process's own, so this goes around threads, not into them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        yield


def scaled(scaling: Scaling | None, logits: Floats, group: Any) -> Floats:
    """Return the probabilities of logits (n, class); `group` are the rows' groups, or None."""
    if scaling is None:
        return softmax(logits)
    if isinstance(scaling, GroupTemperatureScaling | GroupCalibrator):
        return scaling.predict_proba(logits, sensitive_features=group)
    return scaling.predict_proba(logits)
