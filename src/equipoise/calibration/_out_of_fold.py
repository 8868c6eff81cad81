"""Scores that a classifier gives to rows it was not fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, check_cv
from sklearn.utils.parallel import Parallel, delayed

from equipoise._inputs import counted, recode
from equipoise.calibration._scores import scores_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Fold = tuple[NDArray[Any], NDArray[Any]]
"""Rows to fit on, and rows to score."""


# --- scores ----------------------------------------------------------------------------------


SCORES = ("decision_function", "predict_proba")
"""The methods that give scores; the first that an estimator has is used, as in scikit-learn."""


def check_scores(estimator: Any) -> None:
    """Raise if an estimator has no scores; some have the methods only after `fit`."""
    if not any(hasattr(estimator, name) or hasattr(type(estimator), name) for name in SCORES):
        raise TypeError(
            f"{type(estimator).__name__} has neither decision_function nor predict_proba; "
            "decisions alone cannot be calibrated: wrap the classifier whose scores they are "
            "made from"
        )


def class_scores(
    fitted: Any, X: Any, classes: NDArray[Any], params: Mapping[str, Mapping[str, Any]]
) -> Floats:
    """Return the scores of a fitted classifier as logits (n, K), in the order of `classes`.

    `params` is what to pass, by the name of the method.
    """
    method = next((name for name in SCORES if hasattr(fitted, name)), None)
    if method is None:
        raise TypeError(f"{fitted!r} has no decision_function and no predict_proba once fitted")
    raw = np.asarray(getattr(fitted, method)(X, **params[method]))
    name, count = f"{type(fitted).__name__}.{method}", len(classes)
    if method == "decision_function" and count == 2 and raw.size == len(raw):
        odds = raw.reshape(-1)
        raw = np.stack([np.zeros_like(odds), odds], axis=1)
    if raw.ndim != 2 or raw.shape[1] != count or (count > 2 and _one_vs_one(fitted)):
        raise ValueError(
            f"{name} must give a score for each of {count} classes, got the shape {raw.shape}; "
            "an SVC needs decision_function_shape='ovr'"
        )
    if method == "predict_proba":
        raw = scores_of(raw)
    scores = np.ascontiguousarray(raw, dtype=np.float64)
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"{name}, row {row}: {scores[row].tolist()} is not finite")
    own, wanted = np.asarray(getattr(fitted, "classes_", classes)).tolist(), classes.tolist()
    place = recode(np.arange(count), wanted, own)
    if (place < 0).any():
        raise ValueError(
            f"{type(fitted).__name__} was fitted with the class {wanted[np.argmin(place)]!r}, but "
            f"its classes_ are {own!r}"
        )
    return np.ascontiguousarray(scores[:, place])


def _one_vs_one(fitted: Any) -> bool:
    # its columns are pairs of classes, and for three classes there are three of both
    params = fitted.get_params() if hasattr(fitted, "get_params") else {}
    return any(k.endswith("decision_function_shape") and v == "ovo" for k, v in params.items())


# --- folds -----------------------------------------------------------------------------------


def stratified_folds(codes: Ints, members: Ints, n_folds: int) -> list[Fold]:
    """Divide rows into folds of nearly equal composition.

    Between folds, the number of rows of a label differs by at most one, and so does that of a
    label in a group.

    Examples
    --------
    >>> folds = stratified_folds(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0]), 2)
    >>> [test.tolist() for _, test in folds]
    [[0, 1, 3], [2, 4]]
    """
    n = len(codes)
    order = np.lexsort((members, codes))
    cell = codes[order] * (int(members.max()) + 1) + members[order]
    # rows sorted by label and group are dealt like cards; then neighbours within a cell, often
    # near-duplicates, are put into the same fold
    dealt = np.arange(n) % n_folds
    fold = np.empty(n, np.int64)
    fold[order] = dealt[np.lexsort((dealt, cell))]
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


def _take(values: Any, rows: NDArray[Any]) -> Any:
    """Return some rows of an array, sparse matrix, list, frame or series."""
    frame = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(frame, nw.DataFrame | nw.Series):
        return frame[rows].to_native()
    return values[rows] if hasattr(values, "shape") else [values[i] for i in rows]


def _fold_scores(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    fold: Fold,
    classes: NDArray[Any],
    params: Mapping[str, Mapping[str, Any]],
) -> Floats:
    def part(method: str, rows: NDArray[Any]) -> dict[str, Any]:
        return {name: _take(value, rows) for name, value in params[method].items()}

    train, test = fold
    fitted = clone(estimator).fit(_take(X, train), y[train], **part("fit", train))
    own = {method: part(method, test) for method in SCORES}
    return class_scores(fitted, _take(X, test), classes, own)


def out_of_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    folds: Sequence[Fold],
    classes: NDArray[Any],
    params: Mapping[str, Mapping[str, Any]],
    n_jobs: int | None,
) -> Floats:
    """Return logits (n, K) of each row from a clone that was fitted on the other folds.

    `params` holds what to pass to each method of the estimator, a value per row.
    """
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_fold_scores)(estimator, X, y, fold, classes, params) for fold in folds
    )
    scores = np.empty((len(y), len(classes)))
    for (_, test), part in zip(folds, parts, strict=True):
        scores[test] = part
    return scores
