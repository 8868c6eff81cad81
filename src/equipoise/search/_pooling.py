"""Small groups: pooled for the search, and by their own names in the model."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import InputError, counted
from equipoise.calibration import GroupCalibrator, GroupTemperatureScaling
from equipoise.training import FitRows, GroupwiseMLPClassifier

Ints = NDArray[np.int64]

POOLED = "(small groups)"
"""Name of the group that small groups are pooled into."""


def pooled_groups(
    rows: FitRows, least: int, policy: str
) -> tuple[Ints, list[Hashable], dict[Hashable, int]]:
    """Pool groups of fewer than `least` rows, by the policy "pool", "keep" or "error".

    Returns each row's group (n,), the groups, and the number of rows of each pooled group.
    """
    members, groups = rows.group, rows.groups
    count = np.bincount(members, minlength=len(groups))
    small = [g for g, n in enumerate(count) if groups and n < least]
    if not small or policy == "keep":
        return members, list(groups), {}
    listed = ", ".join(f"{groups[g]!r} ({counted(int(count[g]), 'row')})" for g in small)
    problem = f"groups of fewer than {least} rows: {listed}"
    if policy == "error":
        raise InputError(
            problem,
            "merge them, or pass small_groups='pool' or 'keep', or a smaller min_group_size",
            "merge them, or pass --small-groups pool or keep, or a smaller --min-group-size",
        )
    pooled = len(small) > 1
    alone = len(small) == len(groups)
    warnings.warn(
        f"{problem}; they are pooled into one"
        + (", the only one: PE is not measured, and the ECE decides" if alone else "")
        if pooled
        else f"{problem}; its figures rest on few rows, and its temperature is shrunk towards the "
        "common one",
        UserWarning,
        stacklevel=4,
    )
    if not pooled:
        return members, list(groups), {}
    kept = [g for g in range(len(groups)) if g not in small]
    place = np.full(len(groups), len(kept))
    place[kept] = np.arange(len(kept))
    names = [*(groups[g] for g in kept), POOLED]
    return place[members], names, {groups[g]: int(count[g]) for g in small}


def unpool(
    model: GroupwiseMLPClassifier, groups: list[Hashable], pooled: dict[Hashable, int]
) -> None:
    """Name the groups of a model, which was fitted to their positions in `groups`.

    Each pooled group gets the calibrator of the pool, under its own name.
    """
    place: Any = model.reference_group_
    model.groups_, model.reference_group_ = list(groups), groups[place]
    model.reference_group = model.reference_group_
    if isinstance(model.rho, dict):
        model.rho = {groups[g]: weight for g, weight in model.rho.items()}
    scaling, total = model.scaling_, sum(pooled.values())
    if not isinstance(scaling, GroupTemperatureScaling | GroupCalibrator):
        return
    name = "temperatures_" if isinstance(scaling, GroupTemperatureScaling) else "calibrators_"
    for attribute in (name, "shares_", "trust_"):
        values: dict[Hashable, Any] = {groups[g]: v for g, v in getattr(scaling, attribute).items()}
        pool = values.pop(POOLED)
        for group, rows in pooled.items():
            values[group] = pool * rows / total if attribute == "shares_" else pool
        setattr(scaling, attribute, values)
    if isinstance(scaling, GroupCalibrator):
        scaling.groups_ = list(scaling.calibrators_)
    model._set_scaling(scaling)
