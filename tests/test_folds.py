"""Out-of-fold scores: which rows, which columns, and what is refused."""

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from equipoise.calibration._folds import stratified_folds
from equipoise.calibration._out_of_fold import out_of_fold
from repair_data import Temperatures, agree, sample

# these tests are about folds and scores, not about groups
pytestmark = pytest.mark.filterwarnings(
    "ignore::equipoise.calibration.NoGroupsWarning",
    "ignore::equipoise.calibration.ClippedWarning",
)


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
        Temperatures(GaussianNB(), cv=cv).fit(X, y, sensitive_features=group).temperatures_
        for cv in kinds
    ]
    assert found[0] == found[1] == found[2]
    for cv in (None, 5, np.int64(5)):
        model = Temperatures(GaussianNB(), cv=cv)
        assert model.fit(X, y, sensitive_features=group).temperatures_["f"] > 0


def test_folds_in_parallel_are_the_same():
    X, y, group = sample(200)
    expected = Temperatures(GaussianNB()).fit(X, y, sensitive_features=group)
    with joblib.parallel_backend("threading"):
        model = Temperatures(GaussianNB(), n_jobs=2)
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
        Temperatures(GaussianNB(), cv=cv).fit(X, y)


def test_a_class_of_one_or_two_rows():
    X, y, _ = sample(100)
    y = y.astype(object)
    y[3] = "only"
    with pytest.raises(ValueError, match="class 'only' has no row outside test fold"):
        Temperatures(LogisticRegression()).fit(X, y)
    y[70] = "only"
    model = Temperatures(LogisticRegression()).fit(X, y)
    assert model.predict_proba(X).shape == (100, 3)


# --- clusters -------------------------------------------------------------------------------


def persons(n=120, each=4, seed=0):
    """Near-duplicate rows of some persons, whose label the features say little about."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 2 * rng.logistic(size=n) > 0, "yes", "no")
    group = np.array(["f", "m"])[rng.integers(0, 2, n)]
    who = rng.permutation(np.repeat(np.arange(n), each))
    return X[who] + 1e-6 * rng.normal(size=(n * each, 3)), y[who], group[who], who


def folds_used(monkeypatch, model, X, y, **rows):
    """Fit, and return the folds and scores that the calibrators were fitted with."""
    seen = {}

    def spy(estimator, X, y, folds, *more):
        seen["folds"] = folds
        seen["scores"], fitted = out_of_fold(estimator, X, y, folds, *more)
        return seen["scores"], fitted

    monkeypatch.setattr("equipoise.calibration._classifier.out_of_fold", spy)
    model.fit(X, y, **rows)
    return seen["folds"], seen["scores"]


@pytest.mark.parametrize(
    ("cv", "count"),
    [
        (None, 5),
        (3, 3),
        (np.int64(4), 4),
        (GroupKFold(4), 4),
        (StratifiedGroupKFold(3, shuffle=True, random_state=0), 3),
        (LeaveOneGroupOut(), 24),
    ],
)
@pytest.mark.parametrize("ids", [str, int, float])
@pytest.mark.filterwarnings("ignore::equipoise.calibration.BoundWarning")
def test_no_cluster_is_in_two_folds(monkeypatch, cv, count, ids):
    X, y, group, who = persons(24, 9)
    clusters = [ids(w) for w in who]
    model = Temperatures(GaussianNB(), cv=cv)
    folds, _ = folds_used(monkeypatch, model, X, y, sensitive_features=group, clusters=clusters)
    assert len(folds) == count
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(len(y)))
    for train, test in folds:
        assert len(test)
        assert not set(who[train]) & set(who[test])
        assert len(train) + len(test) == len(y)


def test_folds_of_clusters_are_stratified_by_label_and_group(monkeypatch):
    X, y, group, who = persons(400)
    model = Temperatures(GaussianNB())
    folds, _ = folds_used(monkeypatch, model, X, y, sensitive_features=group, clusters=who)
    for label in ("no", "yes"):
        for g in ("f", "m"):
            share = [((y == label) & (group == g))[test].mean() for _, test in folds]
            assert max(share) - min(share) < 0.02


@pytest.mark.filterwarnings("ignore::equipoise.calibration.BoundWarning")
def test_out_of_fold_scores_of_a_memorising_model_are_honest_with_clusters_only(monkeypatch):
    X, y, group, who = persons()
    model = Temperatures(KNeighborsClassifier(1), cv=StratifiedKFold(5))
    _, leaking = folds_used(monkeypatch, model, X, y, sensitive_features=group)
    model.set_params(cv=5)
    _, honest = folds_used(monkeypatch, model, X, y, sensitive_features=group, clusters=who)
    right = [(model.classes_[scores.argmax(axis=1)] == y).mean() for scores in (leaking, honest)]
    fresh_X, fresh_y, *_ = persons(2000, 1, seed=1)
    truth = KNeighborsClassifier(1).fit(X, y).score(fresh_X, fresh_y)
    assert right[0] > 0.95
    assert right[1] == pytest.approx(truth, abs=0.1)
    assert truth < 0.65
    # what leaks makes the model look as sure as it is wrong
    for method in ("temperature", "platt"):
        model.set_params(method=method, cv=5).fit(X, y, sensitive_features=group, clusters=who)
        fresh_group = np.resize(["f", "m"], len(fresh_y))
        prob = model.predict_proba(fresh_X, sensitive_features=fresh_group)
        assert log_loss(fresh_y, prob, labels=["no", "yes"]) < 0.75


@pytest.mark.parametrize(
    ("clusters", "cv", "message"),
    [
        (lambda w: w[:-1], 5, "clusters has 479 rows, but y has 480"),
        (lambda w: np.where(w == w[3], np.nan, w), 5,
         "clusters has 4 missing values, the first in row .*give each an id of its own"),
        (lambda w: [None, *map(str, w[1:])], 5, "clusters has 1 missing value, the first in row 0"),
        (lambda w: np.stack([w, w], 1), 5, "clusters must be a single column, got 2 columns"),
        (lambda w: w % 3, 5, "clusters has 3 distinct ids, too few for 5 folds; use 3 folds"),
        (lambda w: w % 3, GroupKFold(4), "3 distinct ids, too few for 4 folds; use 3 folds"),
        (lambda w: w * 0, 2, "clusters has 1 distinct id, too few for 2 folds; .* at least 2"),
        (lambda w: w * 0, LeaveOneGroupOut(), "clusters has 1 distinct id, too few for 2 folds"),
        (lambda w: w, KFold(3), r"cv \(KFold\) has rows of one cluster on both sides of fold 0; "
         "pass a number, or a splitter .* GroupKFold"),
        (lambda w: w, StratifiedKFold(3), r"cv \(StratifiedKFold\) .* GroupKFold"),
        (lambda w: w, list(KFold(2).split(np.zeros(480))), r"cv \(list\) .* GroupKFold"),
    ],
)  # fmt: skip
def test_clusters_that_cannot_be_used(clusters, cv, message):
    X, y, group, who = persons()
    model = Temperatures(Unused(), cv=cv)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sensitive_features=group, clusters=clusters(who))


class Unused(GaussianNB):
    """A classifier that must not be fitted."""

    def fit(self, *_, **__):
        raise AssertionError


@pytest.mark.filterwarnings("ignore::equipoise.calibration.BoundWarning")
def test_folds_by_hand_may_keep_clusters_together():
    X, y, group, who = persons()
    folds = list(GroupKFold(3).split(X, y, who))
    by_hand, split = (
        Temperatures(GaussianNB(), cv=cv)
        .fit(X, y, sensitive_features=group, clusters=who)
        .temperatures_
        for cv in (folds, GroupKFold(3))
    )
    assert by_hand == split


def test_folds_of_clusters_need_clusters():
    X, y, _ = sample(40)
    model = Temperatures(GaussianNB(), cv=GroupKFold(4))
    with pytest.raises(ValueError, match="GroupKFold divides clusters; pass clusters="):
        model.fit(X, y)


@pytest.mark.filterwarnings("ignore::equipoise.calibration.BoundWarning")
def test_clusters_of_few_rows():
    X, y, _ = sample(8)
    y[:4], y[4:] = "ay", "bee"
    model = Temperatures(GaussianNB(), cv=5)
    model.fit(X, y, clusters=np.arange(8))
    frozen = Temperatures(FrozenEstimator(model.estimator_), cv=5)
    frozen.fit(X, y, clusters=np.zeros(8))  # nothing is divided
    with pytest.raises(ValueError, match="clusters has 7 rows, but y has 8"):
        frozen.fit(X, y, clusters=np.zeros(7))


# --- scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: make_pipeline(StandardScaler(), e)])
def test_scores_of_pairs_of_classes_are_refused(wrap):
    X, y, group = sample(150, 3)
    pairs = wrap(SVC(decision_function_shape="ovo"))
    with pytest.raises(ValueError, match=r"score for each of 3 classes.*='ovr'"):
        Temperatures(pairs).fit(X, y, sensitive_features=group)
    X, y, group = sample(150, 2)  # of two classes there is one pair
    Temperatures(pairs).fit(X, y, sensitive_features=group)


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
        Temperatures(Odd(kind), cv=2).fit(X, y)


def test_the_order_of_an_estimators_classes_does_not_matter():
    X, y, group = sample(200)
    models = [
        Temperatures(Odd(kind)).fit(X, y, sensitive_features=group)
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
        Temperatures(Infinite()).fit(X, y)


def test_a_sorted_file_is_spread_over_the_folds():
    """Neighbours in one fold would pair positives and negatives of different stretches."""
    rng = np.random.default_rng(0)
    score = np.sort(rng.normal(size=4000))
    codes = (rng.random(4000) < 1 / (1 + np.exp(-score))).astype(int)
    members = rng.integers(0, 2, 4000)
    for _, test in stratified_folds(codes, members, 5):
        for label in (0, 1):
            own, everyone = score[test][codes[test] == label], score[codes == label]
            error = everyone.std() / len(own) ** 0.5
            assert abs(own.mean() - everyone.mean()) < 4 * error
