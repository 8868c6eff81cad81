"""A calibrator per group around any classifier."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
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
    check_weights,
    encode,
    encode_groups,
    recode,
    refuse_missing,
    split_columns,
)
from equipoise.calibration._methods import METHODS, Calibrator, Temperature, shrunk
from equipoise.calibration._out_of_fold import SCORES, check_scores, class_scores, out_of_fold

__all__ = ["GroupCalibratedClassifier"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class GroupCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Repair the probabilities of a classifier with a calibrator per group.

    The calibrators are fitted on out-of-fold scores; the estimator itself is then fitted on all
    rows. Scores are the estimator's `decision_function` where it has one, as in scikit-learn's
    `CalibratedClassifierCV`, else the logarithms of its `predict_proba`, less than 1e-6 counting
    as 1e-6.

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
        rows. Every row has to be in one test fold. No effect on a `FrozenEstimator`.
    sensitive_columns
        Name or names of columns of X that hold the group. This is what makes it safe inside
        cross-validation. The estimator gets X as it is: let a pipeline drop or encode the column.
        Otherwise pass `sensitive_features`.
    unseen_group
        What `predict_proba` does with a row whose group was not in the fitting data, is missing,
        or is not passed at all: "error"; "global" takes the common calibrator; "mixture" averages
        the probabilities of all groups by their share in the fitting data.
    shrinkage
        Rows' worth of trust in the common calibrator: a group's weight is n / (n + shrinkage), n
        being its rows or the sum of their weights. Of temperatures the logarithms are averaged,
        else the probabilities. Groups too small to be fitted get the common calibrator, with a
        warning: below 10 rows (temperature), 20 (platt), 30 (beta), 40 (vector), 100 (isotonic), or
        without rows of every class (temperature: of two classes).
    n_jobs
        Folds fitted at a time, as in joblib.

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
    routing if it asks for it; `sensitive_features` only if it asks for it.

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

    # --- scikit-learn's contract ---

    def __sklearn_tags__(self) -> Any:
        """Take what the estimator takes."""
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = own.input_tags
        if own.classifier_tags is not None:
            tags.classifier_tags.multi_class = own.classifier_tags.multi_class
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Say who asks for what: this classifier, and the estimator in it."""
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
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
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
            Weight of each row.
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
        members, self.groups_ = np.zeros(len(y), np.int64), list[Hashable]()
        if columns is not None:
            members, self.groups_ = encode_groups(columns)
        if len(members) != len(y):
            raise ValueError(f"sensitive_features has {len(members)} rows, but X has {len(y)}")
        weight = None
        if sample_weight is not None:
            weight = check_weights(column_or_1d(sample_weight), len(y))
        passed = self._routed("fit", sensitive_features=sensitive_features, sample_weight=weight)
        if frozen:
            self.estimator_ = self.estimator
            scores = class_scores(self.estimator_, X, self.classes_, passed)
        else:
            scores = out_of_fold(
                self.estimator,
                X,
                y,
                classes=self.classes_,
                codes=codes,
                members=members,
                cv=self.cv,
                params=passed,
                n_jobs=self.n_jobs,
            )
            self.estimator_ = clone(self.estimator).fit(X, y, **passed.fit)
        self._calibrate(scores, codes, members, np.ones(len(y)) if weight is None else weight)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _check_params(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.unseen_group not in ("error", "global", "mixture"):
            raise ValueError(
                f"unseen_group must be 'error', 'global' or 'mixture', got {self.unseen_group!r}"
            )
        if not 0.0 <= self.shrinkage < float("inf"):
            raise ValueError(f"shrinkage must be finite and not negative, got {self.shrinkage!r}")

    def _encoded(self, y: NDArray[Any], *, frozen: bool) -> tuple[NDArray[Any], Ints]:
        classes, codes = np.unique(y, return_inverse=True)
        if frozen:
            check_is_fitted(self.estimator)
            known = np.asarray(self.estimator.classes_)
            place = {label: k for k, label in enumerate(known.tolist())}
            unknown = [label for label in classes.tolist() if label not in place]
            if unknown:
                raise ValueError(
                    f"y contains the class {unknown[0]!r}, which the estimator does not know; "
                    f"it knows {known.tolist()!r}"
                )
            codes = np.array([place[label] for label in classes.tolist()])[codes]
            classes = known
        if len(classes) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {classes!r}")
        return classes, codes.astype(np.int64)

    def _calibrate(self, scores: Floats, codes: Ints, members: Ints, weight: Floats) -> None:
        method = METHODS[self.method]
        absent = self._absent(codes, weight)
        if method.every_class and absent:
            raise ValueError(
                f"class {absent[0]!r} has no rows, and method={self.method!r} needs every class; "
                "pass rows of it, or use 'temperature'"
            )
        self.calibrator_ = method.fit(scores, codes, weight)
        fitted: dict[Hashable, Calibrator] = {}
        self.calibrators_: dict[Hashable, Calibrator] = {}
        self.trust_: dict[Hashable, float] = {}
        self.shares_: dict[Hashable, float] = {}
        lacking: list[str] = []
        for g, group in enumerate(self.groups_):
            own = members == g
            rows = float(weight[own].sum())
            self.shares_[group] = rows / float(weight.sum())
            lack = self._lack(codes[own], weight[own])
            if lack:
                lacking.append(f"group {group!r} ({lack})")
                self.trust_[group], self.calibrators_[group] = 0.0, self.calibrator_
                continue
            self.trust_[group] = trust = rows / (rows + self.shrinkage)
            fitted[group] = method.fit(scores[own], codes[own], weight[own])
            self.calibrators_[group] = shrunk(fitted[group], self.calibrator_, trust)
        bound = [
            f"group {group!r} (T = {calibrator.temperature:.3g})"
            for group, calibrator in fitted.items()
            if isinstance(calibrator, Temperature) and calibrator.at_bound
        ]
        if isinstance(self.calibrator_, Temperature) and self.calibrator_.at_bound:
            bound.append(f"all rows (T = {self.calibrator_.temperature:.3g})")
        _warn("the common calibrator is used for", lacking)
        _warn(
            "predictions are all right, or no better than chance: "
            "the temperature is at its bound for",
            bound,
        )

    def _absent(self, codes: Ints, weight: Floats) -> list[Any]:
        counts = np.bincount(codes[weight > 0], minlength=len(self.classes_))
        return [label for label, n in zip(self.classes_.tolist(), counts, strict=True) if not n]

    def _lack(self, codes: Ints, weight: Floats) -> str:
        """Say why a group cannot have a calibrator of its own; "" where it can."""
        method = METHODS[self.method]
        rows, absent = int((weight > 0).sum()), self._absent(codes, weight)
        if rows < method.least_rows:
            return f"{rows} rows of the {method.least_rows} needed"
        most = 0 if method.every_class else len(self.classes_) - 2
        return f"{rows} rows, but none of class {absent[0]!r}" if len(absent) > most else ""

    @property
    def temperatures_(self) -> dict[Hashable, float]:
        """Temperature of each group."""
        check_is_fitted(self, "calibrator_")
        if not isinstance(self.calibrator_, Temperature):
            raise AttributeError(f"method={self.method!r} has no temperatures")
        return {
            group: calibrator.temperature
            for group, calibrator in self.calibrators_.items()
            if isinstance(calibrator, Temperature)
        }

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
        slots = group_slots(columns, self.groups_, len(scores), self.unseen_group)
        prob = np.empty_like(scores)
        for slot, group in enumerate(self.groups_):
            own = slots == slot
            if own.any():
                prob[own] = self.calibrators_[group].apply(scores[own])
        unseen = slots < 0
        if unseen.any():
            prob[unseen] = self._unseen(scores[unseen])
        return np.minimum(prob, 1.0)  # an average may exceed it by a rounding

    def _unseen(self, scores: Floats) -> Floats:
        if self.unseen_group == "mixture" and self.groups_:
            parts = (
                share * self.calibrators_[group].apply(scores)
                for group, share in self.shares_.items()
            )
            return np.asarray(sum(parts))
        return self.calibrator_.apply(scores)

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


def _warn(what: str, where: list[str], most: int = 5) -> None:
    if where:
        rest = f" and {len(where) - most} more" if len(where) > most else ""
        warnings.warn(
            f"{what} {', '.join(where[:most])}{rest}; merge small groups or pass more rows",
            UserWarning,
            stacklevel=4,
        )


def group_slots(
    sensitive_features: Any, known: list[Hashable], n: int, unseen_group: str
) -> NDArray[Any]:
    """Return each row's place among the known groups, -1 where it has none.

    Raises where `unseen_group` is "error" and a row has none, unless there are no groups at all.
    """
    slots: NDArray[Any] = np.full(n, -1)
    values: list[Any] = []
    if sensitive_features is not None:
        codes, values = encode_groups(sensitive_features, allow_missing=True)
        if len(codes) != n:
            raise ValueError(f"sensitive_features has {len(codes)} rows, but X has {n}")
        slots = recode(codes, values, known)
    elif not known:
        return slots
    if unseen_group == "error" and (slots < 0).any():
        row = int(np.argmax(slots < 0))
        what = "sensitive_features were not passed"
        if sensitive_features is not None:
            group = values[codes[row]] if codes[row] >= 0 else None
            what = f"row {row} is of group {group!r}, not in the fitting data ({known!r})"
        raise ValueError(f"{what}; pass unseen_group='global' or 'mixture' to allow that")
    return slots
