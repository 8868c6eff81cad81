"""A calibrator per group around any classifier."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
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

from equipoise._files import read_model, write_model
from equipoise._inputs import (
    InputError,
    check_clusters,
    check_weights,
    counted,
    encode,
    recode,
    refuse_missing,
    split_columns,
    warn_caller,
)
from equipoise.calibration._calibrator_set import CalibratorSet, check_policy, encode_members
from equipoise.calibration._calibrators import Calibrator, Temperature, temperatures_of
from equipoise.calibration._estimator_file import read_estimator, write_estimator
from equipoise.calibration._export import Exportable
from equipoise.calibration._exporting import Exported
from equipoise.calibration._folds import folds_of
from equipoise.calibration._group_calibrator import (
    check_kind,
    check_method,
    method_of,
    method_to_dict,
)
from equipoise.calibration._methods import METHODS
from equipoise.calibration._out_of_fold import (
    SCORES,
    check_scores,
    class_scores,
    out_of_fold,
    score_method,
)
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._rows import Rows
from equipoise.calibration._saving import SavedAsJson, is_json
from equipoise.calibration._scores import warn_clipped
from equipoise.calibration._selection import select
from equipoise.calibration._warnings import CalibrationWarning, NoGroupsWarning

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class GroupCalibratedClassifier(
    SavedAsJson, Exported, ClassifierMixin, MetaEstimatorMixin, BaseEstimator
):
    """Repair the probabilities of a classifier with a calibrator per group.

    The calibrators are fitted on out-of-fold scores; the estimator itself is then fitted on all
    rows. Scores are the estimator's `decision_function` where it has one, as in scikit-learn's
    `CalibratedClassifierCV`, else the logarithms of its `predict_proba`, where a probability below
    1e-6 counts as 1e-6.

    Temperatures keep predictions: `predict` is then the estimator's own, and the largest
    probability is that of its largest score; the two differ where an estimator does not predict its
    largest score (a tuned threshold, the votes of an `SVC` for several classes). The other methods
    can change predictions: `predict` is then the most probable class, and needs the group.

    Parameters
    ----------
    estimator
        A classifier or pipeline with `decision_function` or `predict_proba`. One in scikit-learn's
        `FrozenEstimator` is not fitted again; pass rows that it has not seen.
    method
        "auto": the simplest of no repair, a common temperature, a temperature per group, and bcts,
        beta and isotonic per group whose out-of-fold log-loss is within one standard error of the
        least. "bcts": a
        temperature and a bias per class, so that each group's mean probabilities are its rates.
        "temperature", for those who must not change a prediction: scores are divided by a number.
        `GroupCalibrator` describes these and the others: platt, beta, isotonic, vector, common,
        none.
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
        How far a group's calibrator is pulled towards that of all rows, as in `GroupCalibrator`:
        "auto", as far as the data warrant, or a number of rows. A group that is too small for a
        curve of its own gets the common one, and a `SmallGroupWarning` names it: one without rows
        of every class, or with fewer than 20 (platt), 30 (beta), 40 (vector) or 100 (isotonic).
    ensemble
        False: the calibrators are fitted on all out-of-fold scores, and the estimator on all rows.
        True: each fold's estimator is kept, with calibrators fitted on the rows that it has not
        seen, and their probabilities are averaged, as in scikit-learn. No effect on a
        `FrozenEstimator`.
    n_jobs
        Number of folds fitted in parallel, as in joblib.

    Attributes
    ----------
    classes_ : the labels, sorted, or those of the `FrozenEstimator`
    groups_ : the groups' own values, sorted; empty if fitted without
    method_ : the method that was used
    selection_ : a `Selection` where `method="auto"`, else None; `selection_.text` says it in words
    estimators_, calibrator_sets_ : the fitted estimators and their calibrators, one pair unless
        `ensemble=True`
    estimator_ : the fitted estimator, where there is one
    calibrator_ : the common calibrator, where there is one estimator
    calibrators_ : dict from group to calibrator, likewise
    trust_ : dict from group to the share that its own rows decide; 0: the common calibrator
    shares_ : dict from group to its share of the (weighted) fitting data
    temperatures_ : dict from group to temperature, where these are all
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
    >>> model = GroupCalibratedClassifier(GaussianNB(), method="temperature")
    >>> model = model.fit(X, y, sensitive_features=a)
    >>> {g: round(t) for g, t in model.temperatures_.items()}  # it counts one feature three times
    {'f': 3, 'm': 3}
    >>> model.predict_proba(X[:2], sensitive_features=a[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str = "auto",
        cv: Any = 5,
        sensitive_columns: str | Sequence[str] | None = None,
        unseen_group: Literal["error", "global", "mixture"] = "error",
        shrinkage: Shrinkage = "auto",
        ensemble: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.sensitive_columns = sensitive_columns
        self.unseen_group = unseen_group
        self.shrinkage = shrinkage
        self.ensemble = ensemble
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
        if columns is None:
            warn_caller(NoGroupsWarning.when_fitting())
        parts: list[Any]
        if frozen:
            estimators, parts = [self.estimator], [slice(None)]
            scores = class_scores(self.estimator, X, self.classes_, passed)
        else:
            places = np.zeros_like(codes) if members is None else members
            folds = folds_of(self.cv, X, y, codes, places, self.classes_, together)
            scores, estimators = out_of_fold(
                self.estimator, X, y, folds, self.classes_, passed, self.n_jobs
            )
            parts = [test for _, test in folds]
            if not self.ensemble:
                estimators, parts = [clone(self.estimator).fit(X, y, **passed.fit)], [slice(None)]
        if score_method(estimators[0]) == "predict_proba":
            warn_clipped(scores)
        rows = Rows(scores, codes, members, groups, self.classes_.tolist(), weight)
        self.selection_ = None
        self.method_ = self.method
        if self.method == "auto":
            self.selection_ = select(rows, self.shrinkage, together)
            self.method_ = self.selection_.method
        self._keep(estimators, [self._fit_part(rows, part, together) for part in parts])
        return self

    def _fit_part(self, rows: Rows, part: Any, clusters: Ints | None) -> CalibratorSet:
        """Fit calibrators to some rows: temperatures, if the method needs classes they lack."""
        own, method = rows.take(part), self.method_
        lacking = own.counts().sum(axis=0) == 0
        if METHODS[method].every_class and self.ensemble and lacking.any():
            label = self.classes_.tolist()[int(np.argmax(lacking))]
            warn_caller(
                CalibrationWarning(
                    f"a fold has no rows of class {label!r}, so its calibrators are temperatures",
                    "use fewer folds, or ensemble=False",
                )
            )
            method = "temperature"
        together = None if clusters is None else clusters[part]
        return CalibratorSet.fit(own, method, self.shrinkage, clusters=together)

    def _keep(self, estimators: list[Any], sets: list[CalibratorSet]) -> None:
        """Set the fitted attributes."""
        self.estimators_, self.calibrator_sets_ = estimators, sets
        self.groups_ = list(sets[0].own)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(estimators[0], name):
                setattr(self, name, getattr(estimators[0], name))

    def _calibrator(self) -> CalibratorSet:
        """Return the calibrators, of one estimator."""
        check_is_fitted(self, "calibrator_sets_")
        if len(self.calibrator_sets_) > 1:
            raise AttributeError(
                "an ensemble has calibrators for each of its estimators, see calibrator_sets_"
            )
        return self.calibrator_sets_[0]

    @property
    def estimator_(self) -> Any:
        """The fitted estimator."""
        self._calibrator()
        return self.estimators_[0]

    @property
    def calibrator_(self) -> Calibrator:
        """The common calibrator."""
        return self._calibrator().common

    @property
    def calibrators_(self) -> Mapping[Hashable, Calibrator]:
        """Calibrator of each group."""
        return self._calibrator().own

    @property
    def trust_(self) -> dict[Hashable, float]:
        """Share of each group's calibrator that its own rows decide."""
        return self._calibrator().trust

    @property
    def shares_(self) -> dict[Hashable, float]:
        """Share of each group in the (weighted) fitting data."""
        return self._calibrator().shares

    def _check_params(self) -> None:
        check_method(self.method)
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
        if not isinstance(self.calibrator_, Temperature):
            raise AttributeError(f"method={self.method_!r} has no temperatures")
        return temperatures_of(self.calibrators_)

    # --- predict ---

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return calibrated probabilities (n, classes)."""
        passed = self._routed("predict_proba", sensitive_features=sensitive_features)
        return self._probabilities(X, sensitive_features, passed)

    def _probabilities(self, X: Any, sensitive_features: Any, passed: Any) -> Floats:
        check_is_fitted(self, "calibrator_sets_")
        needed = self.unseen_group == "error"
        _, columns = split_columns(X, self.sensitive_columns, sensitive_features, needed=needed)
        total: Any = 0.0
        for i, (estimator, calibrators) in enumerate(
            zip(self.estimators_, self.calibrator_sets_, strict=True)
        ):
            scores = class_scores(estimator, X, self.classes_, passed)
            if i == 0:  # the groups are the same in all
                slots = calibrators.slots(columns, len(scores), self.unseen_group)
            total = total + calibrators.apply(scores, slots, self.unseen_group)
        return np.asarray(total / len(self.estimators_))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the labels: the estimator's own under temperatures, else the most probable.

        The group has no effect under temperatures, unless `ensemble=True`.
        """
        passed = self._routed("predict", sensitive_features=sensitive_features)
        return self._labels(X, sensitive_features, passed)

    def _labels(self, X: Any, sensitive_features: Any, passed: Any) -> NDArray[Any]:
        check_is_fitted(self, "calibrator_sets_")
        if METHODS[self.method_].keeps_predictions and len(self.estimators_) == 1:
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

    def save(self, path: str | os.PathLike[str], *, estimator: bool = True) -> None:
        """Write one file with the calibrators and the fitted estimator, without pickle.

        scikit-learn's estimators are saved by skops, `LGBMClassifier` and `XGBClassifier`, also as
        the last step of a pipeline, in their own formats. A warning names types that `load` will
        not build unless told to trust them, such as scikit-learn's trees.

        Parameters
        ----------
        path
            The file: safetensors with JSON in its header, or JSON alone without the estimator.
        estimator
            Whether the file contains the estimator. If not, `load` needs it.
        """
        if not estimator:
            return super().save(path)
        about, arrays = self.to_dict(), dict[str, Any]()
        about["estimators"] = []
        for i, one in enumerate(self.estimators_):
            saved, own = write_estimator(one, f"estimator{i}")
            about["estimators"].append(saved)
            arrays |= own
        return write_model(path, about, arrays, extra="export")

    @classmethod
    def load(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        *,
        estimator: Any = None,
        trusted: str | Sequence[str] = (),
    ) -> Self:
        """Read what `save` wrote; no code of the file is run, and a changed file is refused.

        Parameters
        ----------
        path
            The file.
        estimator
            The fitted classifier, with the saved classes, for a file without one; it takes the
            place of one in the file. Of an ensemble, the list of them.
        trusted
            Names of types that may be built beside those that skops trusts by itself; an error
            names those that are missing. Name a type only if you trust the origin of the file.
        """
        source = os.fspath(path)
        if is_json(path):
            if estimator is None:
                raise InputError(
                    f"{source} does not contain the estimator",
                    "pass the fitted estimator as estimator=",
                )
            return super().load(path, estimator=estimator)
        about, arrays = read_model(path, extra="export")
        if estimator is None and about.get("format") == cls._format():
            saved = about.get("estimators")
            if not isinstance(saved, list):
                raise ValueError(f"the estimator in {source} cannot be read: there is none")
            estimator = [read_estimator(one, arrays, trusted, source) for one in saved]
        return cls._read(f"{source} is", lambda: about, {"estimator": estimator})

    def _exportable(self) -> Exportable:
        """Return the calibrators, which take the scores of the estimator."""
        check_is_fitted(self, "calibrator_sets_")
        if len(self.calibrator_sets_) > 1:
            raise InputError(
                "an ensemble has calibrators for each of its estimators, so they are no single "
                "function of the scores",
                "fit with ensemble=False to export them",
            )
        probabilities = score_method(self.estimators_[0]) == "predict_proba"
        classes = tuple(self.classes_.tolist())
        return Exportable(self.calibrator_sets_[0], classes, probabilities, self.unseen_group)

    def _plain_params(self) -> dict[str, Any]:
        params = super()._plain_params()
        del params["estimator"]
        if not isinstance(self.cv, Integral | None):
            del params["cv"]  # a splitter cannot be written as JSON, and matters only to `fit`
        return params

    def _restore(self, data: dict[str, Any]) -> None:
        self._check_params()
        estimators = self.estimator if isinstance(self.estimator, list) else [self.estimator]
        sets = [CalibratorSet.from_dict(one, len(self.classes_)) for one in data["sets"]]
        self.method_, self.selection_ = method_of(data)
        for one in sets:
            check_kind(one, self.method_)
        if len(estimators) != len(sets):
            raise ValueError(f"it has calibrators for {counted(len(sets), 'estimator')}")
        for estimator in estimators:
            check_is_fitted(estimator)
            known = np.asarray(getattr(estimator, "classes_", self.classes_)).tolist()
            if set(known) != set(self.classes_.tolist()):
                raise ValueError(
                    f"it is for the classes {self.classes_.tolist()!r}, but the estimator knows "
                    f"{known!r}"
                )
        self.estimator = estimators[0]
        self._keep(estimators, sets)

    def _fitted(self) -> dict[str, Any]:
        sets = [calibrators.to_dict() for calibrators in self.calibrator_sets_]
        return {"sets": sets, **method_to_dict(self)}
