"""One cell of `repair.py`: a data set, a model and a split, on which every method is measured."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from repair_measures import TEST_SHARE, Sums, measures
from repair_methods import Cell, Method
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from equipoise.datasets import load, shuffled

FOLDS = 5
BLOCKS = 50
"""Blocks of test rows that the jackknife leaves out in turn, where there is one split."""

MODELS = ("LightGBM", "logistic regression")


@dataclasses.dataclass(frozen=True)
class Case:
    """A data set, its groups and its splits."""

    dataset: str
    splits: int
    groups: str  # what the groups are, in words
    crossed: str | None = None  # feature that is crossed with the data set's group
    rows: int | None = None  # number of rows drawn for each split; None: all
    fit_year: int | None = None  # rows of this year are fitted on, later ones are the test


CASES = {
    case.dataset: case
    for case in (
        Case("german", 10, "age"),
        Case("compas", 10, "race × sex", crossed="sex"),
        Case("adult-full", 10, "sex × race", crossed="race"),
        Case("mortgages", 5, "race", rows=100_000),
        Case("census-income", 3, "sex × race", crossed="race", rows=100_000),
        Case("acs-massachusetts", 1, "sex × race", crossed="RAC1P", fit_year=2015),
    )
}
"""The smallest first."""


# --- data ------------------------------------------------------------------------------------


@functools.lru_cache(1)
def data_of(case: Case) -> tuple[Any, NDArray[np.int64]]:
    """Return the data set, and each row's group."""
    data = load(case.dataset)
    if case.crossed is None:
        return data, data.group
    start = f"{case.crossed}="
    columns = [j for j, name in enumerate(data.feature_names) if name.startswith(start)]
    crossed = data.X[:, columns] @ (np.arange(len(columns)) + 1)
    _, group = np.unique(data.group * (len(columns) + 1) + crossed, return_inverse=True)
    return data, group


def split_of(case: Case, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the training and the test rows."""
    data, _ = data_of(case)
    if case.fit_year is not None:
        year = data.X[:, data.feature_names.index("year")]
        return np.flatnonzero(year == case.fit_year), np.flatnonzero(year > case.fit_year)
    # not by group: the groups' rates of training and test rows would be equal by construction
    order = shuffled(len(data.y), split, data.y)[: case.rows]
    n_test = round(TEST_SHARE * len(order))
    return np.sort(order[n_test:]), np.sort(order[:n_test])


def features_of(case: Case) -> NDArray[np.float32]:
    """Return the features, without the year where that decides the split."""
    data, _ = data_of(case)
    if case.fit_year is None:
        return data.X
    return np.delete(data.X, data.feature_names.index("year"), axis=1)


def model_of(name: str) -> Any:
    """Return a model that is not fitted."""
    if name == "LightGBM":
        return LGBMClassifier(n_jobs=1, verbose=-1, random_state=0)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


# --- one cell --------------------------------------------------------------------------------


def cell_of(case: Case, model: str, split: int) -> Cell:
    """Fit the model on the training rows, and without each fold of them."""
    data, group = data_of(case)
    train, test = split_of(case, split)
    rows = np.concatenate([train, test])
    X, y, a = features_of(case)[rows], data.y[rows], group[rows]
    n, estimator = len(train), model_of(model)
    fold = np.empty(n, np.int64)
    fold[shuffled(n, split, a[:n] * 2 + y[:n])] = np.arange(n) * FOLDS // n
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]
    fitted = [clone(estimator).fit(X[part], y[part]) for part, _ in folds]
    fitted.append(clone(estimator).fit(X[:n], y[:n]))
    decides = hasattr(fitted[-1], "decision_function")
    odds = [m.decision_function(X) if decides else m.predict(X, raw_score=True) for m in fitted]
    return Cell(X, y, a, n, folds, np.array(odds, np.float64), decides=decides)


def run_cell(case: Case, model: str, split: int, named: dict[str, Method]) -> dict[str, Any]:
    """Run methods on one split, and measure what they give."""
    cell = cell_of(case, model, split)
    y, group = cell.y[cell.n_train :], cell.groups[1]
    block = None
    if case.fit_year is not None:
        block = np.random.default_rng(0).integers(0, BLOCKS, len(y))
    found = {}
    for name, run in named.items():
        start = time.process_time()
        p = run(cell)
        seconds = time.process_time() - start
        sums = Sums.of(y, p, group, block)
        total = sums.total()
        found[name] = {k: float(v[0]) for k, v in measures(total).items()} | {"seconds": seconds}
        if block is not None:
            left_out = measures(sums.left_out(), like=total)
            found[name] |= {"left_out": {k: v.tolist() for k, v in left_out.items()}}
    return {
        "available": len(data_of(case)[0].y),
        "rows": [cell.n_train, len(y)],
        "groups": f"{len(np.unique(cell.group))} ({case.groups})",
        "fit_year": case.fit_year,
        "methods": found,
    }
