"""The plan of a search: groups after pooling, configurations, and splits of the rows."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from equipoise.datasets import Split, shuffled, split_rows
from equipoise.search._results import Trial
from equipoise.training import LOSSES, FitRows, prepared, resolve_rho

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POOLED = "(small groups)"
"""Name of the group that small groups are pooled into."""

WEIGHTS = (0.0, 0.5, 1.0)
"""The steps t of `rho="auto"`, from equal weights to the groups' shares."""


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
    listed = ", ".join(f"{groups[g]!r} ({count[g]} rows)" for g in small)
    problem = f"groups below min_group_size={least}: {listed}"
    if policy == "error":
        raise ValueError(f"{problem}; merge them, or pass small_groups='pool' or 'keep'")
    pooled = len(small) > 1
    warnings.warn(
        f"{problem}; they are pooled into one"
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


def trials_of(
    names: Sequence[str],
    rho: Any,
    lam: Sequence[float],
    groups: Sequence[Hashable],
    share: Floats,
    *,
    control: bool,
) -> list[Trial]:
    """Return all configurations, cross-entropy first and the others in random order."""
    rhos = _rhos(rho, groups, share)
    found = []
    for name in names:
        if name != "ce":
            lams = [float(v) for v in lam] if LOSSES[name].added else [1.0]
            found += [Trial(name, weights, v) for weights, v in itertools.product(rhos, lams)]
    # in random order, so that a search that is stopped has tried some of every loss
    order = np.random.default_rng(0).permutation(len(found))
    budget = max((sum(t.loss == name for t in found) for name in names), default=1)
    controls = max(1, budget) if control else int("ce" in names)
    return [*(Trial("ce", None, 1.0, j) for j in range(controls)), *(found[i] for i in order)]


def _rhos(rho: Any, groups: Sequence[Hashable], share: Floats) -> list[tuple[float, ...] | None]:
    if len(share) < 2:
        return [None]
    if isinstance(rho, str) and rho == "auto":
        steps = [tuple((1 - t) / len(share) + t * share) for t in WEIGHTS]
        return list(dict.fromkeys(tuple(round(float(w), 12) for w in s) for s in steps))
    given = rho if isinstance(rho, list | tuple) else [rho]
    return [resolve_rho(each, groups, share) for each in given]


def splits_of(rows: FitRows, group: Ints, cv: Any, n_seeds: int, seed: int) -> list[Split]:
    """Return random splits 6:1:1, or the folds of `cv` with an eighth of the rest as validation."""
    y, n_classes = rows.codes, len(rows.classes)
    cells, cuts = group * n_classes + y, []
    if cv is None:
        cuts = [split_rows(len(y), seed + s, cells) for s in range(n_seeds if len(y) >= 8 else 0)]
    else:
        for s, (rest, test) in enumerate(check_cv(cv, y, classifier=True).split(rows.X, y)):
            order = rest[shuffled(len(rest), seed + s, cells[rest])]
            val, train = np.split(order, [max(1, len(rest) // 8)])
            cuts.append((np.sort(train), np.sort(val), np.sort(test)))
    if not cuts or any(len(np.unique(y[train])) < n_classes for train, _, _ in cuts):
        warnings.warn(
            f"{len(y)} rows are too few to hold any out: choices are made on the training rows",
            UserWarning,
            stacklevel=4,
        )
        every = np.arange(len(y))
        cuts = [(every, every, every)]
    return [prepared(rows, group, cut) for cut in cuts]
