"""How far probabilities of groups' own calibrators are mixed with the common one's, by folds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._calibrators import Calibrator
from equipoise.calibration._folds import Fold, clustered_folds, stratified_folds
from equipoise.calibration._methods import METHODS
from equipoise.calibration._rows import Rows

Floats = NDArray[np.float64]

STRENGTHS = (20.0, 80.0, 320.0, 1280.0, 5120.0, 1e12)
"""Shrinkage in pseudo-rows to choose from; the last is the common calibrator for every group.

One strength serves all groups and large ones decide it, so none is so small that a group of thirty
rows, whose curve may be a step, would be left to itself."""

FOLDS = 5

MOST = 50_000
"""Rows that a choice by folds looks at, about; of more, a random sample."""

ALL_OF = 200
"""Rows of a label in a group up to which all of them are in the sample."""


def thinned(rows: Rows, clusters: NDArray[Any] | None) -> tuple[Rows, NDArray[Any] | None]:
    """Return a random sample of rows with a fixed seed, and their clusters.

    Rows of small groups and rare labels are sampled more, and weigh less. With clusters, whole
    clusters are sampled.
    """
    n, rng = len(rows), np.random.default_rng(0)
    if n <= MOST:
        return rows, clusters
    if clusters is not None:
        ids, place = np.unique(clusters, return_inverse=True)
        kept = (rng.random(len(ids)) < MOST / n)[place]
        return rows.take(kept), clusters[kept]
    cell = rows.codes.astype(np.int64)
    if rows.members is not None:
        cell = cell * len(rows.groups) + rows.members
    share = np.minimum(np.maximum(MOST / n, ALL_OF / np.maximum(np.bincount(cell), 1)), 1.0)[cell]
    weight = (1.0 if rows.weight is None else rows.weight) / share
    return dataclasses.replace(rows, weight=weight).take(rng.random(n) < share), None


def inner_folds(rows: Rows, clusters: NDArray[Any] | None) -> list[Fold]:
    """Return folds of the rows, spread over label and group, without splitting a cluster.

    There are none if there are fewer than two rows, or clusters.
    """
    if rows.fold is not None:
        return [(np.flatnonzero(rows.fold != k), np.flatnonzero(rows.fold == k))
                for k in np.unique(rows.fold).tolist()]  # fmt: skip
    count = min(FOLDS, len(rows) if clusters is None else len(np.unique(clusters)))
    if count < 2:
        return []
    members = np.zeros(len(rows), np.int64) if rows.members is None else rows.members
    codes = rows.codes.astype(np.int64)
    if clusters is not None:
        return clustered_folds(codes, members, clusters, count)
    return stratified_folds(codes, members, count)


def every_class(rows: Rows, folds: list[Fold]) -> bool:
    """Return whether every class has rows outside of every fold, and there are folds."""
    seen = [rows.take(train).counts().sum(axis=0) for train, _ in folds]
    return bool(folds) and all(bool((count > 0).all()) for count in seen)


def fit_each(rows: Rows, method: str, lacking: NDArray[np.bool_]) -> list[Calibrator]:
    """Fit the common calibrator and one for each group, the common one where a group lacks rows."""
    fit = METHODS[method].fit
    assert fit is not None

    def of(some: Rows) -> Calibrator:
        return fit(some.scores.astype(np.float64, copy=False), some.codes, some.even_weight())

    common = of(rows)
    own = [common] * len(rows.groups)
    for g in np.flatnonzero(~lacking):
        own[g] = of(rows.take(rows.members == g))
    return [common, *own]


def mixed_losses(
    rows: Rows, method: str, lacking: NDArray[np.bool_], folds: list[Fold]
) -> tuple[Floats, Floats]:
    """Return -log p of each row, out of fold, of its label and on average of all labels.

    Both are (strength, row).
    """
    losses, averages = np.zeros((2, len(STRENGTHS), len(rows)))
    for train, test in folds:
        part = rows.take(train)
        table = part.counts()
        common, *own = fit_each(part, method, lacking | (table == 0).any(axis=1))
        held = rows.take(test)
        base = common.apply(held.scores)
        ours = base.copy()
        for g, calibrator in enumerate(own):
            if calibrator is not common:
                mine = np.flatnonzero(held.members == g)
                ours[mine] = calibrator.apply(held.scores[mine])
        size = np.zeros(len(test))
        if held.members is not None:
            size = table.sum(axis=1)[held.members]
        for i, strength in enumerate(STRENGTHS):
            trust = np.divide(size, size + strength, out=np.zeros(len(size)), where=size > 0)
            prob = trust[:, None] * ours + (1.0 - trust[:, None]) * base
            losses[i, test], averages[i, test] = label_losses(prob, held.codes)
    return losses, averages


def label_losses(prob: Floats, codes: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return -log p of each row, of its label and on average of all labels."""
    each = -np.log(np.maximum(prob, 1e-300))
    return each[np.arange(len(each)), codes], each.mean(axis=1)


def standard_error(
    difference: Floats, rows: Rows, weight: Floats, clusters: NDArray[Any] | None
) -> float:
    """Return the standard error of a weighted sum over rows, those of a cluster being dependent."""
    apart = weight * (difference - weight @ difference / weight.sum())
    if clusters is not None:
        apart = np.bincount(clusters.astype(np.int64), apart)
    elif rows.repeats is not None:
        apart = apart / np.sqrt(rows.repeats)  # of that many independent rows
    return math.sqrt(float(apart @ apart))


def best_strength(losses: Floats, rows: Rows, clusters: NDArray[Any] | None) -> int:
    """Return which of `STRENGTHS` has the least of the losses (strength, row).

    A larger one is preferred if its loss is within half a standard error: where groups do not
    differ, the least of several noisy values is often not that of the common calibrator.
    """
    weight = rows.even_weight()
    best = int(np.argmin(losses @ weight))
    for i in range(len(losses) - 1, best, -1):
        worse = losses[i] - losses[best]
        if weight @ worse <= 0.5 * standard_error(worse, rows, weight, clusters):
            return i
    return best


def mixing_strength(
    rows: Rows, method: str, lacking: NDArray[np.bool_], clusters: NDArray[Any] | None
) -> float:
    """Return the shrinkage with the least out-of-fold log-loss."""
    if len(rows.groups) < 2 or lacking.all():
        return 0.0
    rows, clusters = thinned(rows, clusters)
    folds = inner_folds(rows, clusters)
    if not every_class(rows, folds):  # nothing is known of what its rows would cost
        return STRENGTHS[-1]
    losses, _ = mixed_losses(rows, method, lacking, folds)
    return STRENGTHS[best_strength(losses, rows, clusters)]
