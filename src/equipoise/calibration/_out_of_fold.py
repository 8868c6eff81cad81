"""Scores that a classifier gives to rows it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from equipoise._inputs import recode
from equipoise.calibration._folds import Fold
from equipoise.calibration._scores import scores_of

Floats = NDArray[np.float64]


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


def score_method(fitted: Any) -> str:
    """Return the name of the method that gives the scores of a fitted classifier."""
    method = next((name for name in SCORES if hasattr(fitted, name)), None)
    if method is None:
        raise TypeError(f"{fitted!r} has no decision_function and no predict_proba once fitted")
    return method


def class_scores(
    fitted: Any, X: Any, classes: NDArray[Any], params: Mapping[str, Mapping[str, Any]]
) -> Floats:
    """Return the scores of a fitted classifier as logits (n, K), in the order of `classes`.

    `params` is what to pass, by the name of the method.
    """
    method = score_method(fitted)
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


# --- out of fold -----------------------------------------------------------------------------


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
) -> tuple[Floats, Any]:
    def part(method: str, rows: NDArray[Any]) -> dict[str, Any]:
        return {name: _take(value, rows) for name, value in params[method].items()}

    train, test = fold
    fitted = clone(estimator).fit(_take(X, train), y[train], **part("fit", train))
    own = {method: part(method, test) for method in SCORES}
    return class_scores(fitted, _take(X, test), classes, own), fitted


def out_of_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    folds: Sequence[Fold],
    classes: NDArray[Any],
    params: Mapping[str, Mapping[str, Any]],
    n_jobs: int | None,
) -> tuple[Floats, list[Any]]:
    """Return logits (n, K) of each row from a clone fitted on the other folds, and the clones.

    `params` holds what to pass to each method of the estimator, a value per row.
    """
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_fold_scores)(estimator, X, y, fold, classes, params) for fold in folds
    )
    scores = np.empty((len(y), len(classes)))
    for (_, test), (part, _) in zip(folds, parts, strict=True):
        scores[test] = part
    return scores, [fitted for _, fitted in parts]
