"""Folds of rows: spread over label and group, or made of whole clusters."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, check_cv

from equipoise._inputs import counted

Ints = NDArray[np.int64]
Fold = tuple[NDArray[Any], NDArray[Any]]
"""Rows to fit on, and rows to score."""


def stratified_folds(codes: Ints, members: Ints, n_folds: int) -> list[Fold]:
    """Divide rows into folds of nearly equal composition.

    Between folds, the number of rows of a label differs by at most one, and so does that of a
    label in a group. Which rows of a cell are in which fold is random, with a fixed seed: in the
    order of a sorted file, the positives and the negatives of a fold would be of other kinds.

    Examples
    --------
    >>> codes, members = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 0, 1])
    >>> [codes[test].tolist() for _, test in stratified_folds(codes, members, 3)]
    [[0, 1], [0, 1], [0, 1]]
    """
    n = len(codes)
    order = np.lexsort((np.random.default_rng(0).permutation(n), members, codes))
    fold = np.empty(n, np.int64)
    fold[order] = np.arange(n) % n_folds  # rows sorted by label and group are dealt like cards
    rows = np.arange(n)
    return [(rows[fold != k], rows[fold == k]) for k in range(min(n, n_folds))]


def clustered_folds(codes: Ints, members: Ints, clusters: Ints, n_folds: int) -> list[Fold]:
    """Divide whole clusters into folds of similar composition by label and group.

    Examples
    --------
    >>> codes, clusters = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 1, 2, 2])
    >>> folds = clustered_folds(codes, np.zeros(6, int), clusters, 3)
    >>> [test.tolist() for _, test in folds]
    [[0, 1], [2, 3], [4, 5]]
    """
    cell = codes * (int(members.max()) + 1) + members
    if np.bincount(cell).max() < n_folds:  # scikit-learn needs one that reaches every fold
        cell = np.zeros_like(cell)
    with warnings.catch_warnings():
        # labels that are rare in a group cannot be in every fold
        warnings.simplefilter("ignore", UserWarning)
        folds = list(StratifiedGroupKFold(n_folds).split(cell, cell, clusters))
    return [fold for fold in folds if len(fold[1])]


def _clustered(
    cv: Any, X: Any, y: NDArray[Any], codes: Ints, members: Ints, clusters: Ints
) -> list[Fold]:
    """Return folds that split no cluster."""
    wanted = int(cv) if isinstance(cv, Integral) else getattr(cv, "n_splits", 2)
    count = len(np.unique(clusters))
    if count < max(2, wanted):
        raise ValueError(
            f"clusters has {counted(count, 'distinct id')}, too few for {max(2, wanted)} folds; "
            + (f"use {count} folds" if count > 1 else "folds need at least 2 clusters")
        )
    if isinstance(cv, Integral):
        return clustered_folds(codes, members, clusters, wanted)
    splitter = check_cv(cv, y, classifier=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The groups parameter is ignored")  # refused below
        folds = [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y, clusters)]
    for number, (train, test) in enumerate(folds):
        if np.isin(clusters[test], clusters[train]).any():
            raise ValueError(
                f"cv ({type(cv).__name__}) has rows of one cluster on both sides of fold {number}; "
                "pass a number, or a splitter that keeps clusters together, such as GroupKFold or "
                "StratifiedGroupKFold"
            )
    return folds


def folds_of(
    cv: Any,
    X: Any,
    y: NDArray[Any],
    codes: Ints,
    members: Ints,
    classes: NDArray[Any],
    clusters: Ints | None = None,
) -> list[Fold]:
    """Return the folds, each row in one test fold and every class in every training part.

    `codes`, `members` and `clusters` are each row's class, group and cluster as numbers; the rows
    of a cluster are in one fold.
    """
    cv = 5 if cv is None else cv
    if isinstance(cv, Integral) and cv < 2:
        raise ValueError(f"cv must be at least 2 folds, got {cv!r}")
    if clusters is not None:
        folds = _clustered(cv, X, y, codes, members, clusters)
    elif isinstance(cv, Integral):
        folds = stratified_folds(codes, members, int(cv))
    else:
        try:
            split = list(check_cv(cv, y, classifier=True).split(X, y))
        except ValueError as error:
            if "groups" not in str(error):
                raise
            raise ValueError(
                f"{type(cv).__name__} divides clusters; pass clusters= with each row's id"
            ) from None
        folds = [(np.asarray(train), np.asarray(test)) for train, test in split]
    tested = np.zeros(len(codes), np.int64)
    for number, (train, test) in enumerate(folds):
        np.add.at(tested, test, 1)
        absent = np.bincount(codes[train], minlength=len(classes)) == 0
        if absent.any():
            label = classes.tolist()[int(np.argmax(absent))]
            raise ValueError(
                f"class {label!r} has no row outside test fold {number}, so the estimator cannot "
                "learn it there; use folds stratified by class, drop or merge classes of a single "
                "row, or pass a fitted model as FrozenEstimator"
            )
    if (tested != 1).any():
        row = int(np.argmax(tested != 1))
        raise ValueError(
            f"cv has row {row} in {tested[row]} test folds; every row has to be in one"
        )
    return folds
