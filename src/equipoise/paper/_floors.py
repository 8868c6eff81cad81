"""The PE that sampling alone gives: of a model whose PE is 0 in the population, and of the labels.

A test set is small, and its rows differ from the population by chance. A model with a lower PE than
these values on one test set is lucky, not fairer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.datasets import Dataset, Preprocessor, shuffled

Floats = NDArray[np.float64]

SPLITS = 2000
FOLDS = 8
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
DIGITS = 6
"""Digits that are kept: later ones may differ between processors."""


def pe_floors(data: Dataset, splits: int = SPLITS, seed: int = 0) -> dict[str, Any]:
    """Return the mean PE, over random splits, of two predictions that nothing can improve.

    "model" is that of `population_fair`; "labels" that of the true labels of the test set, and so
    of a perfect classifier. Both are scored as in the paper: against the rates of the training
    rows, on a test set of an eighth of all rows. Infinite values are left out; "infinite" is their
    share for the labels (a class is absent from a group of the test set).
    """
    prob = population_fair(data, seed)
    values = split_pe(np.stack([prob, data.y.astype(np.float64)]), data, splits, seed)
    finite = np.isfinite(values)
    model, labels = (
        round(float(v[there].mean()), DIGITS) for v, there in zip(values, finite, strict=True)
    )
    infinite = round(float((~finite[1]).mean()), DIGITS)
    return {"model": model, "labels": labels, "infinite": infinite, "splits": splits}


def population_fair(data: Dataset, seed: int = 0) -> Floats:
    """Return probabilities (row,) of class 1 whose mean in each group is the group's rate.

    They come from a logistic regression that was not fitted to the row, with a bias for each group.
    Over all rows of the dataset, which stand for the population, their PE is 0.
    """
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    rows, logits = np.arange(len(data.y)), np.empty(len(data.y))
    for held_out in np.array_split(shuffled(len(data.y), seed), FOLDS):
        train = np.setdiff1d(rows, held_out)
        scaled = Preprocessor.fit(data.X[train], data.feature_names)
        # an overconfident model would overstate the floor, so the penalty is chosen by log-loss
        model = GridSearchCV(
            LogisticRegression(max_iter=1000), {"C": PENALTIES}, scoring="neg_log_loss", cv=4
        )
        model.fit(scaled.transform(data.X[train]), data.y[train])
        logits[held_out] = model.decision_function(scaled.transform(data.X[held_out]))
    for group in np.unique(data.group):
        own = data.group == group
        logits[own] += _bias(logits[own], float(data.y[own].mean()))
    prob: Floats = expit(logits)
    return prob


def _bias(logits: Floats, rate: float) -> float:
    """Return what must be added to logits for a mean probability of `rate`."""
    from scipy.optimize import brentq
    from scipy.special import expit

    return float(brentq(lambda bias: expit(logits + bias).mean() - rate, -50.0, 50.0))


def split_pe(prob: Floats, data: Dataset, splits: int, seed: int) -> Floats:
    """Return the PE (model, split) of probabilities (model, row) of class 1 on random test sets.

    It is infinite where a ratio is x/0 or undefined.
    """
    n, rng = len(data.y), np.random.default_rng(seed)
    n_test, n_val = -(-n // 8), n // 8
    group = [(data.group == g).astype(np.float64) for g in (0, 1)]
    ones = [members * (data.y == 1) for members in group]
    soft = [prob * members for members in group]
    found = np.empty((len(prob), splits))
    for split in range(splits):
        order = rng.permutation(n)
        test, train = order[:n_test], order[n_test + n_val :]
        with np.errstate(divide="ignore", invalid="ignore"):
            r0, r1 = (ones[g][train].sum() / group[g][train].sum() for g in (0, 1))
            q0, q1 = (soft[g][:, test].sum(1) / group[g][test].sum() for g in (0, 1))
            gaps = [np.abs(r1 / r0 - q1 / q0), np.abs((1 - r1) / (1 - r0) - (1 - q1) / (1 - q0))]
        found[:, split] = np.nan_to_num(np.maximum(*gaps), nan=np.inf, posinf=np.inf)
    return found
