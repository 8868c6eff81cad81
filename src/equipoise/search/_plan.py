"""The plan of a search: configurations, splits of the rows, and stages."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from equipoise._inputs import shown
from equipoise.datasets import shuffled
from equipoise.training import LOSSES, FitRows, resolve_rho

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FOLDS = 5
"""Random splits are the folds of divisions of the rows into this many."""

VALIDATION = 8
"""One of this many rows outside the held-out fold is for validation."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A configuration of a search.

    `weights` names `rho`: "none", "equal", "share" or the numbers. `control` counts the runs of
    cross-entropy, each from its own initial weights; None for all other losses.
    """

    loss: str
    rho: tuple[float, ...] | None
    weights: str
    lam: float
    control: int | None = None


@dataclasses.dataclass(frozen=True)
class Cut:
    """One split of the rows: training, validation, and one or two held-out parts."""

    train: Ints
    val: Ints
    held_out: tuple[Ints, ...]


# --- configurations --------------------------------------------------------------------------


def trials_of(
    names: Sequence[str],
    rho: Any,
    lam: Sequence[float],
    groups: Sequence[Hashable],
    share: Floats,
    *,
    control: bool,
) -> list[Trial]:
    """Return all configurations: candidates in random order, and a control before each."""
    rhos = _rhos(rho, groups, share)
    found = []
    for name in names:
        if name != "ce":
            lams = [float(v) for v in lam] if LOSSES[name].added else [1.0]
            found += [
                Trial(name, weights, label, v)
                for (weights, label), v in itertools.product(rhos, lams)
            ]
    order = np.random.default_rng(0).permutation(len(found))
    candidates = [found[i] for i in order]
    number = max(1, len(found)) if control else int("ce" in names)
    controls = [Trial("ce", None, "none", 1.0, j) for j in range(number)]
    pairs = itertools.zip_longest(controls, candidates)
    return [trial for pair in pairs for trial in pair if trial is not None]


def _rhos(
    rho: Any, groups: Sequence[Hashable], share: Floats
) -> list[tuple[tuple[float, ...] | None, str]]:
    """Return the weights of the groups, and the name of each."""
    if len(share) < 2:
        return [(None, "none")]
    if isinstance(rho, str) and rho == "auto":
        rho = [None, "equal", "share"]
    given = rho if isinstance(rho, list | tuple) else [rho]
    found: dict[tuple[float, ...] | None, str] = {}
    for each in given:
        weights = resolve_rho(each, groups, share)
        name = "none" if each is None else each if isinstance(each, str) else ""
        if not name and weights is not None:
            name = " ".join(f"{w:.3g}" for w in weights)
        found.setdefault(weights and tuple(round(float(w), 12) for w in weights), name)
    return list(found.items())


# --- splits ----------------------------------------------------------------------------------


def cuts_of(rows: FitRows, group: Ints, cv: Any, n_seeds: int, seed: int) -> list[Cut]:
    """Return the splits: folds of divisions of the rows into five, or the folds of `cv`.

    An eighth of the rows outside the fold is for validation. Where most folds overlap with all
    others, or there is one, each fold is halved: choices for one half are made on the other.
    """
    y, n_classes = rows.codes, len(rows.classes)
    cells = group * n_classes + y
    folds: list[tuple[Ints, Ints]] = []
    if cv is None:
        for division in range(-(-n_seeds // FOLDS) if len(y) >= 2 * FOLDS else 0):
            order = shuffled(len(y), seed + division, cells)
            parts = [np.sort(fold) for fold in np.array_split(order, FOLDS)]
            folds += [(np.setdiff1d(order, fold), fold) for fold in parts]
        folds = folds[:n_seeds]
    else:
        folds = list(check_cv(cv, y, classifier=True).split(rows.X, y))
    cuts = []
    for s, (rest, fold) in enumerate(folds):
        order = rest[shuffled(len(rest), seed + s, cells[rest])]
        val, train = np.split(order, [max(1, len(rest) // VALIDATION)])
        cuts.append(Cut(np.sort(train), np.sort(val), (np.sort(fold),)))
    if not cuts or any(len(np.unique(y[cut.train])) < n_classes for cut in cuts):
        warnings.warn(
            f"{len(y)} rows are too few to hold any out: choices are made on the training rows",
            UserWarning,
            stacklevel=4,
        )
        every = np.arange(len(y))
        return [Cut(every, every, (every,))]
    if 2 * sum(map(bool, disjoint_parts(cuts))) < len(cuts):
        cuts = [
            dataclasses.replace(cut, held_out=_halves(cut.held_out[0], cells, seed + s))
            for s, cut in enumerate(cuts)
        ]
    return cuts


def _halves(fold: Ints, cells: Ints, seed: int) -> tuple[Ints, ...]:
    order = fold[shuffled(len(fold), seed, cells[fold])]
    return tuple(np.sort(half) for half in np.array_split(order, 2))


def disjoint_parts(cuts: Sequence[Cut]) -> list[list[int]]:
    """Return for each held-out part the parts that share no row with it."""
    parts = [set(part.tolist()) for cut in cuts for part in cut.held_out]
    return [[t for t, other in enumerate(parts) if not own & other] for own in parts]


def check_cuts(
    cuts: Sequence[Cut],
    rows: FitRows,
    group: Ints,
    groups: Sequence[Hashable],
    reference: int,
    *,
    needs_pe: bool,
) -> None:
    """Raise, before any training, if a group is too small for these splits."""
    if not groups:
        return
    count = np.bincount(group, minlength=len(groups))
    for cut in cuts:
        for own, what in ((cut.train, "training"), *((part, "held-out") for part in cut.held_out)):
            absent = np.setdiff1d(np.arange(len(groups)), group[own])
            if len(absent):
                raise ValueError(
                    f"group {groups[absent[0]]!r} ({count[absent[0]]:,} of {len(group):,} rows) "
                    f"has no row in a {what} part of a split; merge it with another group, or "
                    "leave its rows out"
                )
        labels = rows.codes[cut.train[group[cut.train] == reference]]
        lacking = np.setdiff1d(np.arange(len(rows.classes)), labels)
        if needs_pe and len(groups) > 1 and len(lacking):
            raise ValueError(
                f"group {groups[reference]!r}, which PE compares with, has too few rows of label "
                f"{shown(rows.classes[lacking[0]])!r} to have one in every training part, so PE is "
                "infinite; name another reference_group, merge labels, or pass objective='ece'"
            )


# --- stages ----------------------------------------------------------------------------------


def stages_of(cuts: int, *, halving: bool) -> list[list[int]]:
    """Return the splits of each stage: after a stage, half of the configurations are dropped.

    About a fifth of the splits are run with all configurations, three tenths with half of them, and
    the rest with a quarter.

    >>> stages_of(10, halving=True)
    [[0, 1], [2, 3, 4], [5, 6, 7, 8, 9]]
    >>> stages_of(3, halving=True)
    [[0], [1], [2]]
    """
    every = list(range(cuts))
    if not halving or cuts == 1:
        return [every]
    first = max(1, round(0.2 * cuts))
    second = max(first + 1, round(0.5 * cuts))
    return [part for part in (every[:first], every[first:second], every[second:]) if part]


def half(number: int) -> int:
    """Return how many of a number of configurations stay after a stage."""
    return -(-number // 2)
