"""The results of a search as JSON and arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import from_plain, to_plain
from equipoise.search._part import COLUMNS
from equipoise.search._plan import Trial
from equipoise.search._results import Tradeoffs
from equipoise.training import SCALINGS


def results_to_file(found: Tradeoffs) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Return what JSON holds of the results, and their arrays."""
    about = {
        "columns": list(found.columns),
        "trials": [to_plain(dataclasses.astuple(t)) for t in found.trials],
        "calibrations": list(found.calibrate),
        "splits": found.splits,
        "apart": found.apart,
        "trainings": found.trainings,
        "ratio": found.ratio,
    }
    return about, {f"results.{name}": values for name, values in found.columns.items()}


def results_from_file(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Tradeoffs:
    """Return what `results_to_file` was given."""
    trials = [Trial(*from_plain(t)) for t in about["trials"]]
    columns = {name: arrays[f"results.{name}"] for name in about["columns"]}
    calibrate = tuple(about["calibrations"])
    splits, apart, trainings = about["splits"], about["apart"], about["trainings"]
    shape, numbers = (len(apart), len(trials), len(calibrate)), set(range(len(apart)))
    if (
        any(values.shape != shape or values.dtype.kind != "f" for values in columns.values())
        or not {*COLUMNS} <= columns.keys()
        or not set(calibrate) <= set(SCALINGS)
        or not all(isinstance(t.lam, float | int) for t in trials)
    ):
        raise ValueError("its results do not fit its configurations")
    if not all(set(own) <= numbers for own in (splits, *apart)) or len(trainings) != len(apart):
        raise ValueError("its splits do not fit its results")
    return Tradeoffs(trials, columns, calibrate, splits, apart, trainings, float(about["ratio"]))


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers by name, some of them dictionaries themselves, as JSON holds them."""
    return {k: flat(v) if isinstance(v, dict) else to_plain(v) for k, v in values.items()}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `flat` made plain."""
    return {k: nested(v) if isinstance(v, dict) else from_plain(v) for k, v in values.items()}
