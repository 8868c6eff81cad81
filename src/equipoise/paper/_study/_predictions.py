"""Out-of-fold predictions of a study, read from its parts and calibrated in every way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.datasets import Dataset
from equipoise.paper._study._calibrations import calibrated
from equipoise.paper._study._design import Study, registered
from equipoise.sweep import PartFolder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Out-of-fold predictions of a study.

    Attributes
    ----------
    prob
        Calibration to (repeat, arm, row): the probability of class 1.
    half
        (repeat, row): whether the row's fold is one of the second half.
    y, group
        (row,).
    epoch, n_epochs
        (split, arm): the epoch chosen, and the epochs trained.
    dead
        (split, arm): share of test rows with a logit of exactly 0.
    """

    prob: dict[str, Floats]
    half: NDArray[np.bool_]
    y: Ints
    group: Ints
    epoch: Ints
    n_epochs: Ints
    dead: Floats


def predictions(
    study: Study,
    store: PartFolder,
    keys: Sequence[str],
    data: Dataset,
    advance: Callable[[int], None] = lambda _: None,
) -> Predictions:
    """Read all parts of a study, and calibrate each in every way."""
    ways = registered()["design"]["calibrations"]
    rows = study.chosen_rows(data)
    shape = (study.repeats, len(study.arms), len(rows))
    prob = {way: np.full(shape, np.nan) for way in ways}
    half = np.zeros((study.repeats, len(rows)), bool)
    size = (study.splits, len(study.arms))
    epoch, n_epochs = np.zeros(size, np.int64), np.zeros(size, np.int64)
    dead = np.zeros(size)
    for split, key in enumerate(keys):
        repeat, fold = divmod(split, study.folds)
        table = store.table(key)
        arms = len(study.arms)
        values = {
            name: table[name].to_numpy(zero_copy_only=False).reshape(arms, -1)
            for name in table.column_names
        }
        if not (values["arm"] == np.arange(arms)[:, None]).all():
            raise ValueError(f"{store.path(key)} is not in order; remove it, and run it again")
        test = values["test"][0]
        logit = np.nan_to_num(values["logit"].astype(np.float64))
        own, held_out = values["row"][0][~test], values["row"][0][test]
        found = calibrated(
            ways,
            logit[:, ~test],
            data.y[own],
            data.group[own],
            logit[:, test],
            data.group[held_out],
        )
        place = np.searchsorted(rows, held_out)
        for way, p in found.items():
            prob[way][repeat, :, place] = p.T
        half[repeat, place] = fold >= study.folds // 2
        epoch[split], n_epochs[split] = values["epoch"][:, 0], values["n_epochs"][:, 0]
        dead[split] = (logit[:, test] == 0.0).mean(axis=1)
        advance(1)
    if any(np.isnan(p).any() for p in prob.values()):
        raise ValueError(f"the parts in {store.folder} do not cover all rows; run the study again")
    return Predictions(prob, half, data.y[rows], data.group[rows], epoch, n_epochs, dead)
