"""What the calibrators of given scores share: checked input, and files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from equipoise._inputs import check_weights, class_count, column_names, encode_labels, matrix
from equipoise.calibration._calibrator_set import encode_members
from equipoise.calibration._export import Exportable
from equipoise.calibration._exporting import Exported
from equipoise.calibration._rows import Rows
from equipoise.calibration._saving import SavedAsJson
from equipoise.calibration._scores import scores_of, warn_clipped

Floats = NDArray[np.float64]
Bounds = tuple[float, float]


def check_bounds(bounds: Any) -> None:
    """Raise unless bounds of temperatures have a meaning."""
    low, high = bounds
    if not 0.0 < low < 1.0 < high < float("inf"):
        raise ValueError(f"bounds must be (low, high) with low < 1 < high, got {bounds!r}")


class ScoreEstimator(SavedAsJson, Exported, BaseEstimator):
    """Base of estimators whose X is logits, or probabilities with `from_proba=True`."""

    from_proba: bool
    fit: Any
    predict_proba: Any

    def predict(self, logits: Any) -> NDArray[Any]:
        """Return the labels of the largest logits; temperatures never change them."""
        decided: NDArray[Any] = self.classes_[self._logits(logits, fitted=True).argmax(axis=1)]
        return decided

    def fit_predict_proba(
        self, logits: Any, y: Any, *, sample_weight: Any = None, labels: Any = None, **groups: Any
    ) -> Floats:
        """Fit, and calibrate the same rows; takes what `fit` takes."""
        fitted = self.fit(logits, y, sample_weight=sample_weight, labels=labels, **groups)
        return np.asarray(fitted.predict_proba(logits, **groups))

    def _check_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; call fit first")

    def _exportable(self) -> Exportable:
        self._check_fitted()
        policy = getattr(self, "unseen_group", "global")  # one temperature needs no groups
        classes = tuple(self.classes_.tolist())
        return Exportable(self._calibrator(), classes, self.from_proba, policy)

    def _logits(self, values: Any, *, fitted: bool) -> NDArray[Any]:
        if fitted:
            self._check_fitted()
        name = "y_prob" if self.from_proba else "logits"
        z = matrix(values, name)
        if fitted and class_count(z) != len(self.classes_):
            raise ValueError(
                f"{name} has {class_count(z)} classes, but was fitted with {len(self.classes_)}"
            )
        if self.from_proba:
            return scores_of(z)
        if z.dtype not in (np.float32, np.float64):
            z = z.astype(np.float64)
        # NaN and infinities show in the sum, and most logits have none
        with np.errstate(all="ignore"):
            suspect = not np.isfinite(z.sum(dtype=np.float64))
        if suspect and not (finite := np.isfinite(z)).all():
            row = int(np.argmin(finite.reshape(len(z), -1).all(axis=1)))
            raise ValueError(f"logits, row {row}: {np.atleast_1d(z[row]).tolist()} is not finite")
        return np.stack([np.zeros_like(z), z], axis=1) if z.ndim == 1 else z

    def _rows(
        self, logits: Any, y: Any, sensitive_features: Any, sample_weight: Any, labels: Any
    ) -> Rows:
        """Check what `fit` was given, and set `classes_`."""
        z = self._logits(logits, fitted=False)
        names = column_names(logits)
        codes, resolved = encode_labels(y, z.shape[1], labels, "y", columns=names)
        if len(codes) != len(z):
            raise ValueError(f"y has {len(codes)} rows, but the scores have {len(z)}")
        weight = check_weights(sample_weight, len(z))
        members, groups = encode_members(sensitive_features, len(z))
        if self.from_proba:
            warn_clipped(z)
        self.classes_ = np.array(resolved)
        return Rows(z, codes, members, groups, resolved, weight)
