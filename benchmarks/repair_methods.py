"""The methods that `repair.py` compares: each takes the same out-of-fold scores.

A method is a function of a `Cell` that returns the probabilities of its test rows. Models are
fitted once, before; methods that are estimators of their own look their scores up (`Lookup`).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV

from equipoise import GroupCalibratedClassifier, GroupCalibrator

Floats = NDArray[np.float64]
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]

ENSEMBLE = ", ensemble"
"""How the names of methods end that average the models of the folds."""

_PLAIN = GroupCalibratedClassifier(None)
DEFAULT = f"equipoise {_PLAIN.method}{ENSEMBLE * _PLAIN.ensemble}"
"""Our default, which the others are compared with."""

NOTHING = "nothing"
ALL_FEATURES = "MCGrad, all features"
MCGRAD = "MCGrad, group"


@dataclasses.dataclass(frozen=True)
class Cell:
    """What a method is given: one model's scores on one split of one data set.

    `odds` are log-odds of the second class, (fold + 1, row), rows of training before those of the
    test: by the models that were fitted without each fold, and last by the one that was fitted on
    all training rows. Probabilities are of the second class too.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    group: NDArray[np.int64]
    n_train: int
    folds: list[Fold]
    odds: Floats
    decides: bool  # whether the model has a decision function, which calibrators prefer

    @functools.cached_property
    def train_odds(self) -> Floats:
        """Log-odds of each training row by the model that has not seen it."""
        found = np.empty(self.n_train)
        for odds, (_, test) in zip(self.odds, self.folds, strict=False):
            found[test] = odds[test]
        return found

    @functools.cached_property
    def test_odds(self) -> Floats:
        """Log-odds of each test row by the model fitted on all training rows."""
        return self.odds[-1, self.n_train :]

    @functools.cached_property
    def train_p(self) -> Floats:
        """Out-of-fold probability of each training row."""
        return expit(self.train_odds)

    @functools.cached_property
    def test_p(self) -> Floats:
        """Probability of each test row."""
        return expit(self.test_odds)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels of the training rows."""
        return self.y[: self.n_train]

    @property
    def groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Groups of the training and of the test rows."""
        return self.group[: self.n_train], self.group[self.n_train :]


Method = Callable[[Cell], Floats]


def two_columns(p: Floats) -> Floats:
    """Return the probabilities of both classes, (row, 2)."""
    return np.column_stack([1.0 - p, p])


# --- estimators whose model is already fitted ------------------------------------------------


class Lookup(ClassifierMixin, BaseEstimator):
    """A classifier of row numbers: `fit` finds which rows it got, the scores are those kept."""

    def __init__(self, cell: Cell | None = None) -> None:
        self.cell = cell

    def __sklearn_clone__(self) -> Lookup:
        return type(self)(self.cell)

    def fit(self, X: NDArray[Any], y: Any) -> Lookup:  # noqa: ARG002
        """Find the model that was fitted on these rows."""
        assert self.cell is not None
        rows = X[:, 0]
        trains = [train for train, _ in self.cell.folds] + [np.arange(self.cell.n_train)]
        self.slot_ = next(i for i, train in enumerate(trains) if np.array_equal(train, rows))
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: NDArray[Any]) -> Floats:
        """Return the kept probabilities."""
        assert self.cell is not None
        return two_columns(expit(self.cell.odds[self.slot_, X[:, 0]]))

    def predict(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Return the more probable class."""
        return self.predict_proba(X).argmax(axis=1)


class DecidingLookup(Lookup):
    """The same of a model with a decision function, which calibrators prefer."""

    def decision_function(self, X: NDArray[Any]) -> Floats:
        """Return the kept log-odds."""
        assert self.cell is not None
        return self.cell.odds[self.slot_, X[:, 0]]


def _looked_up(cell: Cell) -> tuple[Lookup, NDArray[np.int64], NDArray[np.int64]]:
    rows = np.arange(len(cell.y))[:, None]
    model = (DecidingLookup if cell.decides else Lookup)(cell)
    return model, rows[: cell.n_train], rows[cell.n_train :]


def ours(method: str) -> Method:
    """Return our calibrator per group."""

    def run(cell: Cell) -> Floats:
        train, test = cell.groups
        fitted_to, applied_to = cell.train_p, cell.test_p
        if cell.decides:
            fitted_to, applied_to = cell.train_odds, cell.test_odds
        calibrator = GroupCalibrator(
            method=method, from_proba=not cell.decides, unseen_group="global"
        )
        calibrator.fit(fitted_to, cell.labels, sensitive_features=train)
        return calibrator.predict_proba(applied_to, sensitive_features=test)[:, 1]

    return run


def our_ensemble(method: str) -> Method:
    """Return our classifier that keeps each fold's model."""

    def run(cell: Cell) -> Floats:
        model, train, test = _looked_up(cell)
        groups = cell.groups
        fitted = GroupCalibratedClassifier(
            model, method=method, cv=cell.folds, ensemble=True, unseen_group="global"
        ).fit(train, cell.labels, sensitive_features=groups[0])
        return fitted.predict_proba(test, sensitive_features=groups[1])[:, 1]

    return run


def scikit_learn(method: str, *, ensemble: bool = False) -> Method:
    """Return scikit-learn's `CalibratedClassifierCV`."""

    def run(cell: Cell) -> Floats:
        model, train, test = _looked_up(cell)
        fitted = CalibratedClassifierCV(model, method=method, cv=cell.folds, ensemble=ensemble)
        return np.asarray(fitted.fit(train, cell.labels).predict_proba(test)[:, 1])

    return run


# --- calibrators of scores -------------------------------------------------------------------


def netcal(name: str) -> Method:
    """Return a calibrator of netcal."""
    from netcal import binning, scaling

    made = getattr(binning if name == "IsotonicRegression" else scaling, name)

    def run(cell: Cell) -> Floats:
        calibrator = made()
        # it writes a log for TensorBoard unless told not to
        quiet = {} if name == "IsotonicRegression" else {"tensorboard": False}
        calibrator.fit(cell.train_p, cell.labels, **quiet)
        return np.ravel(calibrator.transform(cell.test_p)).astype(np.float64)

    return run


def probmetrics(name: str, *, per_group: bool = False) -> Method:
    """Return a calibrator of probmetrics, or one for each group that has both classes."""
    from probmetrics.calibrators import get_calibrator

    def run(cell: Cell) -> Floats:
        p, y, (train, test) = cell.train_p, cell.labels, cell.groups

        def fitted(rows: Any) -> Any:
            calibrator = get_calibrator(name)
            calibrator.fit(two_columns(p[rows]), y[rows])
            return calibrator

        found = fitted(slice(None)).predict_proba(two_columns(cell.test_p))[:, 1]
        for group in np.unique(train) if per_group else ():
            if len(np.unique(y[train == group])) == 2 and (test == group).any():
                own = fitted(train == group)
                found[test == group] = own.predict_proba(two_columns(cell.test_p[test == group]))[
                    :, 1
                ]
        return np.asarray(found, np.float64)

    return run


def mcgrad(*, features: bool = False) -> Method:
    """Return MCGrad with the group as a segment, or with every feature of the model as well."""
    from mcgrad import methods

    logging.getLogger("mcgrad").setLevel(logging.ERROR)

    def run(cell: Cell) -> Floats:
        names = [f"x{j}" for j in range(cell.X.shape[1])] if features else []
        frame = pd.DataFrame(cell.X, columns=[f"x{j}" for j in range(cell.X.shape[1])])[names]
        score = np.concatenate([cell.train_p, cell.test_p])
        frame = frame.assign(group=cell.group.astype(str), score=score, label=cell.y)
        segments = {
            "categorical_feature_column_names": ["group"],
            "numerical_feature_column_names": names,
        }
        model = methods.MCGrad()
        model.fit(frame[: cell.n_train], "score", "label", **segments)
        return np.asarray(model.predict(frame[cell.n_train :], "score", **segments), np.float64)

    return run


OURS: dict[str, Callable[[], Method]] = {
    "equipoise auto": lambda: ours("auto"),
    "equipoise bcts": lambda: ours("bcts"),
    "equipoise beta": lambda: ours("beta"),
    "equipoise isotonic": lambda: ours("isotonic"),
    "equipoise temperature": lambda: ours("temperature"),
    "equipoise common": lambda: ours("common"),
    f"equipoise auto{ENSEMBLE}": lambda: our_ensemble("auto"),
    f"equipoise bcts{ENSEMBLE}": lambda: our_ensemble("bcts"),
}
"""Name to what makes the method."""

PEERS: dict[str, Callable[[], Method]] = {
    NOTHING: lambda: lambda cell: cell.test_p,
    "scikit-learn sigmoid": lambda: scikit_learn("sigmoid"),
    "scikit-learn isotonic": lambda: scikit_learn("isotonic"),
    "scikit-learn temperature": lambda: scikit_learn("temperature"),
    f"scikit-learn sigmoid{ENSEMBLE}": lambda: scikit_learn("sigmoid", ensemble=True),
    f"scikit-learn isotonic{ENSEMBLE}": lambda: scikit_learn("isotonic", ensemble=True),
    f"scikit-learn temperature{ENSEMBLE}": lambda: scikit_learn("temperature", ensemble=True),
    "netcal temperature": lambda: netcal("TemperatureScaling"),
    "netcal logistic": lambda: netcal("LogisticCalibration"),
    "netcal beta": lambda: netcal("BetaCalibration"),
    "netcal isotonic": lambda: netcal("IsotonicRegression"),
    "probmetrics logistic": lambda: probmetrics("logistic"),
    "probmetrics logistic, per group": lambda: probmetrics("logistic", per_group=True),
    "probmetrics temperature": lambda: probmetrics("ts-mix"),
    MCGRAD: mcgrad,
    ALL_FEATURES: lambda: mcgrad(features=True),
}
"""The same; a peer is imported when its method is made."""


def warm_up(named: dict[str, Method]) -> None:
    """Run every method on few rows, so that no import is timed."""
    rng = np.random.default_rng(0)
    n, n_train = 1000, 800
    p = rng.uniform(0.05, 0.95, n)
    y = (rng.random(n) < p).astype(np.int64)
    rows = np.arange(n_train)
    folds = [(rows[rows % 2 != k], rows[rows % 2 == k]) for k in range(2)]
    X = rng.normal(size=(n, 2)).astype(np.float32)
    cell = Cell(
        X, y, rng.integers(0, 2, n), n_train, folds, np.tile(logit(p), (3, 1)), decides=False
    )
    for run in named.values():
        run(cell)
