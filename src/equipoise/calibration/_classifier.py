"""A calibrator per group around any classifier."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.utils import Bunch, assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from equipoise._inputs import (
    check_clusters,
    check_weights,
    encode,
    recode,
    refuse_missing,
    split_columns,
)
from equipoise.calibration._calibrators import Temperature, temperatures_of
from equipoise.calibration._group_calibrator import GroupCalibrator, check_policy, encode_members
from equipoise.calibration._methods import METHODS
from equipoise.calibration._out_of_fold import (
    SCORES,
    check_scores,
    class_scores,
    folds_of,
    out_of_fold,
)
from equipoise.calibration._saving import SavedAsJson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class GroupCalibratedClassifier(SavedAsJson, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Repair the probabilities of a classifier with a calibrator per group.

    The calibrators are fitted on out-of-fold scores; the estimator itself is then fitted on all
    rows. Scores are the estimator's `decision_function` where it has one, as in scikit-learn's
    `CalibratedClassifierCV`, else the logarithms of its `predict_proba`, where a probability below
    1e-6 counts as 1e-6.

    Under "temperature", `predict` is the estimator's own, and the largest probability is that of
    its largest score; the two differ where an estimator does not predict its largest score (a
    tuned threshold, the votes of an `SVC` for several classes). The other methods can change
    predictions: `predict` is then the most probable class, and needs the group.

    Parameters
    ----------
    estimator
        A classifier or pipeline with `decision_function` or `predict_proba`. One in scikit-learn's
        `FrozenEstimator` is not fitted again; pass rows that it has not seen.
    method
        "temperature": scores are divided by a number. "platt": a sigmoid with Platt's smoothed
        targets. "isotonic": monotone steps, which need many rows and give exact zeros. "beta": a
        sigmoid that can bend differently at both ends. "vector": a scale and a bias per class.
        Of several classes, platt, isotonic and beta take each against the rest.
    cv
        Number of folds, spread over label and group; a splitter; or an iterable of (train, test)
        rows. Every row has to be in one test fold, and with `clusters` every cluster. No effect on
        a `FrozenEstimator`.
    sensitive_columns
        Name or names of the columns of X that hold the group, instead of `sensitive_features`. Use
        it inside cross-validation, where each fold needs the groups of its own rows. The estimator
        also gets these columns: let a pipeline drop or encode them.
    unseen_group
        What `predict_proba` does with a row whose group was not in the fitting data, is missing,
        or is not passed at all: "error"; "global" takes the common calibrator; "mixture" averages
        the probabilities of all groups by their share in the fitting data.
    shrinkage
        Shrinkage strength in pseudo-rows: a group's own weight is n / (n + shrinkage), n being the
        sum of its rows' weights. Of temperatures the logarithms are averaged, else the
        probabilities. A group that is too small gets the common calibrator, and a
        `SmallGroupWarning` names it: one without rows of two classes ("temperature"); one without
        rows of every class, or with fewer than 20 (platt), 30 (beta), 40 (vector) or 100
        (isotonic) rows.
    n_jobs
        Number of folds fitted in parallel, as in joblib.

    Attributes
    ----------
    classes_ : the labels, sorted, or those of the `FrozenEstimator`
    groups_ : the groups' own values, sorted; empty if fitted without
    estimator_ : the fitted estimator
    calibrator_ : the common calibrator
    calibrators_ : dict from group to calibrator, shrunk
    trust_ : dict from group to the weight of its own rows; 0 where it has the common calibrator
    shares_ : dict from group to its share of the (weighted) fitting data
    temperatures_ : dict from group to temperature, where `method="temperature"`
    n_features_in_, feature_names_in_ : the estimator's, where it has them

    Notes
    -----
    `sample_weight` is passed to the estimator if its `fit` takes it, with scikit-learn's metadata
    routing if it asks for it; `sensitive_features` and `clusters` only if it asks for them.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(600, 1)).repeat(3, axis=1), rng.choice(["f", "m"], 600)
    >>> y = np.where(X[:, 0] + rng.logistic(size=600) > 0, "yes", "no")
    >>> model = GroupCalibratedClassifier(GaussianNB()).fit(X, y, sensitive_features=a)
    >>> {g: round(t) for g, t in model.temperatures_.items()}  # it counts one feature three times
    {'f': 3, 'm': 3}
    >>> model.predict_proba(X[:2], sensitive_features=a[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: Literal["temperature", "platt", "isotonic", "beta", "vector"] = "temperature",
        cv: Any = 5,
        sensitive_columns: str | Sequence[str] | None = None,
        unseen_group: Literal["error", "global", "mixture"] = "error",
        shrinkage: float = 20.0,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.sensitive_columns = sensitive_columns
        self.unseen_group = unseen_group
        self.shrinkage = shrinkage
        self.n_jobs = n_jobs

    # --- the scikit-learn interface ---

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator's input."""
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = own.input_tags
        if own.classifier_tags is not None:
            tags.classifier_tags.multi_class = own.classifier_tags.multi_class
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata requests of this classifier and of the estimator in it."""
        calls = {"fit": ["fit"], "predict": ["predict"], "predict_proba": [], "score": ["predict"]}
        mapping = MethodMapping()
        for caller, callees in calls.items():
            for callee in (*callees, *SCORES):
                mapping.add(caller=caller, callee=callee)
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def _routed(self, caller: str, **given: Any) -> Any:
        """Return what to pass to the methods of the estimator."""
        given = {name: value for name, value in given.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, caller, **given).estimator
        passed = Bunch(fit={}, predict={}, predict_proba={}, decision_function={})
        if "sample_weight" in given and not isinstance(self.estimator, FrozenEstimator):
            if has_fit_parameter(self.estimator, "sample_weight"):
                passed.fit["sample_weight"] = given["sample_weight"]
            else:
                warnings.warn(
                    f"{type(self.estimator).__name__}.fit takes no sample_weight, so the weights "
                    "count in the calibration only; a pipeline passes them on if "
                    "sklearn.set_config(enable_metadata_routing=True) and its steps ask for them",
                    UserWarning,
                    stacklevel=3,
                )
        return passed

    # --- fit ---

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        clusters: Any = None,
    ) -> Self:
        """Fit the estimator and the calibrators.

        Parameters
        ----------
        X
            What the estimator takes.
        y
            Labels, of any coding that the estimator takes.
        sensitive_features
            One column, or several whose intersection is meant. None: one common calibrator.
        sample_weight
            Weight of each row, in the estimator (if it takes weights) and in the calibration.
        clusters
            Id of each row's cluster, such as the person it is about: rows of one cluster are in one
            fold. A splitter `cv` gets them as its `groups`. No effect on a `FrozenEstimator`.
        """
        self._check_params()
        check_scores(self.estimator)
        frozen = isinstance(self.estimator, FrozenEstimator)
        if y is None:
            raise ValueError("this classifier requires y to be passed, but the target y is None")
        _, columns = split_columns(X, self.sensitive_columns, sensitive_features)
        X, y = indexable(X, column_or_1d(y, warn=True))
        assert_all_finite(y, input_name="y")
        refuse_missing(encode(y, "y")[0], "y")
        check_classification_targets(y)
        self.classes_, codes = self._encoded(y, frozen=frozen)
        members, groups = encode_members(columns, len(y))
        # scikit-learn's contract wants a ValueError for weights of two columns
        weight = None if sample_weight is None else column_or_1d(sample_weight)
        weight = check_weights(weight, len(y))
        together = check_clusters(clusters, len(y), "y")
        passed = self._routed(
            "fit",
            sensitive_features=sensitive_features,
            sample_weight=weight,
            clusters=clusters,
        )
        if frozen:
            self.estimator_ = self.estimator
            scores = class_scores(self.estimator_, X, self.classes_, passed)
        else:
            places = np.zeros_like(codes) if members is None else members
            folds = folds_of(self.cv, X, y, codes, places, self.classes_, together)
            scores = out_of_fold(self.estimator, X, y, folds, self.classes_, passed, self.n_jobs)
            self.estimator_ = clone(self.estimator).fit(X, y, **passed.fit)
        fitted = GroupCalibrator.fit(
            scores,
            codes,
            members,
            groups,
            weight,
            classes=self.classes_.tolist(),
            method=self.method,
            shrinkage=self.shrinkage,
        )
        self._keep(fitted)
        return self

    def _keep(self, fitted: GroupCalibrator) -> None:
        """Set the fitted attributes."""
        self.groups_ = list(fitted.own)
        self.calibrator_, self.calibrators_ = fitted.common, fitted.own
        self.trust_, self.shares_ = fitted.trust, fitted.shares
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))

    def _calibrator(self) -> GroupCalibrator:
        """Return the calibrator that the fitted attributes describe."""
        return GroupCalibrator(self.calibrator_, self.calibrators_, self.trust_, self.shares_)

    def _check_params(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        check_policy(self.unseen_group, self.shrinkage)

    def _encoded(self, y: NDArray[Any], *, frozen: bool) -> tuple[NDArray[Any], Ints]:
        classes, codes = np.unique(y, return_inverse=True)
        if frozen:
            check_is_fitted(self.estimator)
            known = np.asarray(self.estimator.classes_)
            codes = recode(codes, classes.tolist(), known.tolist())
            if (codes < 0).any():
                raise ValueError(
                    f"y contains the class {y.tolist()[np.argmin(codes)]!r}, which the estimator "
                    f"does not know; it knows {known.tolist()!r}"
                )
            classes = known
        if len(classes) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {classes!r}")
        return classes, codes.astype(np.int64)

    @property
    def temperatures_(self) -> dict[Hashable, float]:
        """Temperature of each group."""
        check_is_fitted(self, "calibrator_")
        if not isinstance(self.calibrator_, Temperature):
            raise AttributeError(f"method={self.method!r} has no temperatures")
        return temperatures_of(self.calibrators_)

    # --- predict ---

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return calibrated probabilities (n, classes)."""
        passed = self._routed("predict_proba", sensitive_features=sensitive_features)
        return self._probabilities(X, sensitive_features, passed)

    def _probabilities(self, X: Any, sensitive_features: Any, passed: Any) -> Floats:
        check_is_fitted(self, "calibrator_")
        needed = self.unseen_group == "error"
        _, columns = split_columns(X, self.sensitive_columns, sensitive_features, needed=needed)
        scores = class_scores(self.estimator_, X, self.classes_, passed)
        calibrator = self._calibrator()
        slots = calibrator.slots(columns, len(scores), self.unseen_group)
        return calibrator.apply(scores, slots, self.unseen_group)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the labels: the estimator's own under "temperature", else the most probable.

        The group has no effect under "temperature".
        """
        passed = self._routed("predict", sensitive_features=sensitive_features)
        return self._labels(X, sensitive_features, passed)

    def _labels(self, X: Any, sensitive_features: Any, passed: Any) -> NDArray[Any]:
        check_is_fitted(self, "calibrator_")
        if METHODS[self.method].keeps_predictions:
            return np.asarray(self.estimator_.predict(X, **passed.predict))
        best = self._probabilities(X, sensitive_features, passed).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """Return the accuracy of `predict`."""
        passed = self._routed("score", sensitive_features=sensitive_features)
        labels = self._labels(X, sensitive_features, passed)
        return float(accuracy_score(y, labels, sample_weight=sample_weight))

    # --- files ---

    @classmethod
    def load(  # type: ignore[override]
        cls, path: str | os.PathLike[str], *, estimator: Any
    ) -> Self:
        """Read what `save` wrote, around the fitted estimator that it was saved with.

        Parameters
        ----------
        path
            The file.
        estimator
            The fitted classifier, with the saved classes; the file does not contain it.
        """
        return super().load(path, estimator=estimator)

    def _plain_params(self) -> dict[str, Any]:
        params = super()._plain_params()
        del params["estimator"]
        if not isinstance(self.cv, Integral | None):
            del params["cv"]  # a splitter cannot be written as JSON, and matters only to `fit`
        return params

    def _restore(self, data: dict[str, Any]) -> None:
        self._check_params()
        check_is_fitted(self.estimator)
        known = np.asarray(getattr(self.estimator, "classes_", self.classes_)).tolist()
        if set(known) != set(self.classes_.tolist()):
            raise ValueError(
                f"it is for the classes {self.classes_.tolist()!r}, but the estimator knows "
                f"{known!r}"
            )
        self.estimator_ = self.estimator
        self._keep(GroupCalibrator.from_dict(data, len(self.classes_)))
