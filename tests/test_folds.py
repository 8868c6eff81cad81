"""Out-of-fold scores: which rows, which columns, and what is refused."""

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from equipoise import GroupCalibratedClassifier
from equipoise.calibration._out_of_fold import stratified_folds
from repair_data import agree, sample


@pytest.mark.parametrize("folds", [2, 5, 7])
def test_folds_are_stratified_by_label_and_by_group(folds):
    rng = np.random.default_rng(0)
    codes, members = rng.choice(3, 211, p=[0.7, 0.27, 0.03]), rng.integers(0, 4, 211)
    parts = stratified_folds(codes, members, folds)
    assert sorted(np.concatenate([test for _, test in parts]).tolist()) == list(range(211))
    for what in (codes, codes * 4 + members, np.zeros(211, int)):
        counts = np.array([np.bincount(what[test], minlength=12) for _, test in parts])
        assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 1
    for train, test in parts:
        assert not set(train) & set(test)
        assert len(train) + len(test) == 211


def test_kinds_of_cv():
    X, y, group = sample(150)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    kinds = (folds, list(folds.split(X, y)), iter(list(folds.split(X, y))))
    found = [
        GroupCalibratedClassifier(GaussianNB(), cv=cv)
        .fit(X, y, sensitive_features=group)
        .temperatures_
        for cv in kinds
    ]
    assert found[0] == found[1] == found[2]
    for cv in (None, 5, np.int64(5)):
        model = GroupCalibratedClassifier(GaussianNB(), cv=cv)
        assert model.fit(X, y, sensitive_features=group).temperatures_["f"] > 0


def test_folds_in_parallel_are_the_same():
    X, y, group = sample(200)
    expected = GroupCalibratedClassifier(GaussianNB()).fit(X, y, sensitive_features=group)
    with joblib.parallel_backend("threading"):
        model = GroupCalibratedClassifier(GaussianNB(), n_jobs=2)
        model.fit(X, y, sensitive_features=group)
    assert model.temperatures_ == expected.temperatures_


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (1, "cv must be at least 2 folds, got 1"),
        (ShuffleSplit(2, random_state=0), r"cv has row \d+ in \d test folds"),
        ([(np.arange(50), np.arange(50, 100))], "cv has row 0 in 0 test folds"),
        (KFold(2), "class 'ay' has no row outside test fold 0.*stratified by class"),
    ],
)
def test_folds_that_cannot_be_used(cv, message):
    X, y, _ = sample(100)
    if isinstance(cv, KFold):
        y = np.sort(y)
        y[50:] = "bee"
    with pytest.raises(ValueError, match=message):
        GroupCalibratedClassifier(GaussianNB(), cv=cv).fit(X, y)


def test_a_class_of_one_or_two_rows():
    X, y, _ = sample(100)
    y = y.astype(object)
    y[3] = "only"
    with pytest.raises(ValueError, match="class 'only' has no row outside test fold"):
        GroupCalibratedClassifier(LogisticRegression()).fit(X, y)
    y[70] = "only"
    model = GroupCalibratedClassifier(LogisticRegression()).fit(X, y)
    assert model.predict_proba(X).shape == (100, 3)


# --- scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: make_pipeline(StandardScaler(), e)])
def test_scores_of_pairs_of_classes_are_refused(wrap):
    X, y, group = sample(150, 3)
    pairs = wrap(SVC(decision_function_shape="ovo"))
    with pytest.raises(ValueError, match=r"score for each of 3 classes.*='ovr'"):
        GroupCalibratedClassifier(pairs).fit(X, y, sensitive_features=group)
    X, y, group = sample(150, 2)  # of two classes there is one pair
    GroupCalibratedClassifier(pairs).fit(X, y, sensitive_features=group)


class Odd(ClassifierMixin, BaseEstimator):
    """A classifier whose scores, or order of classes, are not as usual."""

    def __init__(self, kind):
        self.kind = kind

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        if self.kind == "reversed":
            self.classes_ = self.classes_[::-1]
        if self.kind == "renamed":
            self.classes_ = np.array(["x", "y"])
        return self

    def predict_proba(self, X):
        prob = self.inner_.predict_proba(X)
        changed = {
            "reversed": prob[:, ::-1],
            "nan": np.full_like(prob, np.nan),
            "unscaled": prob * 2,
            "one column": prob[:, 1],
        }
        return changed.get(self.kind, prob)

    def predict(self, X):
        return self.inner_.predict(X)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nan", "contains NaN"),
        ("unscaled", "not within 0..1"),
        ("one column", r"Odd.predict_proba must give a score for each of 2 classes, got .*\(40,\)"),
        ("renamed", r"fitted with the class 'ay', but its classes_ are \['x', 'y'\]"),
    ],
)
def test_unusable_scores_are_named(kind, message):
    X, y, _ = sample(80)
    with pytest.raises(ValueError, match=message):
        GroupCalibratedClassifier(Odd(kind), cv=2).fit(X, y)


def test_the_order_of_an_estimators_classes_does_not_matter():
    X, y, group = sample(200)
    models = [
        GroupCalibratedClassifier(Odd(kind)).fit(X, y, sensitive_features=group)
        for kind in ("usual", "reversed")
    ]
    probs = [m.predict_proba(X, sensitive_features=group) for m in models]
    np.testing.assert_allclose(probs[0], probs[1])
    agree(models[1], X, group)


def test_scores_that_are_not_finite():
    X, y, _ = sample(80)

    class Infinite(LogisticRegression):
        def decision_function(self, X):
            return np.full(len(X), np.inf)

    with pytest.raises(ValueError, match=r"Infinite.decision_function, row 0: .* is not finite"):
        GroupCalibratedClassifier(Infinite()).fit(X, y)
