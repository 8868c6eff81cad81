"""GroupCalibratedClassifier: any classifier, any way to pass groups, scikit-learn's contract."""

import pickle
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from equipoise import (
    GroupCalibratedClassifier,
    GroupTemperatureScaling,
)
from equipoise.calibration import (
    METHODS,
    BoundWarning,
    ClippedWarning,
    NoGroupsWarning,
    SmallGroupWarning,
)
from equipoise.metrics import log_loss
from repair_data import Temperatures, agree, sample

CURVES = [method for method in METHODS if METHODS[method].fit]
"""Methods whose probabilities are averaged under shrinkage."""


# --- any classifier --------------------------------------------------------------------------


ESTIMATORS = [
    LogisticRegression(),
    SVC(),
    SGDClassifier(random_state=0),
    RidgeClassifier(),
    GaussianNB(),
    KNeighborsClassifier(5),
    DecisionTreeClassifier(random_state=0),
    LinearDiscriminantAnalysis(),
    RandomForestClassifier(10, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    make_pipeline(StandardScaler(), LogisticRegression()),
    GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    StackingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], cv=2),
    VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], voting="soft"),
]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore::equipoise.calibration.ClippedWarning")
def test_temperatures_keep_the_predictions_of(estimator, classes):
    X, y, group = sample(300, classes)
    model = Temperatures(estimator, cv=3).fit(X, y, sensitive_features=group)
    assert set(model.temperatures_) == {"f", "m"}
    assert all(t > 0 for t in model.temperatures_.values())
    prob = model.predict_proba(X, sensitive_features=group)
    own = model.estimator_.predict(X)
    assert model.predict(X).tolist() == own.tolist()
    same = model.classes_[prob.argmax(axis=1)] == own
    # a support vector machine with several classes predicts by votes
    assert same.all() or (isinstance(estimator, SVC) and classes == 3 and same.mean() > 0.95)
    assert log_loss(y, prob, labels=model.classes_) < np.log(classes)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_lightgbm(method, classes):
    import lightgbm

    X, y, group = sample(400, classes)
    booster = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, min_child_samples=5)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GroupCalibratedClassifier(booster, method=method, cv=2)
    model.fit(frame, y, sensitive_features=group, sample_weight=np.ones(len(y)))
    assert model.score(frame, y, sensitive_features=group) > 0.6
    if method == "temperature":
        agree(model, frame, group)
        fitted = Temperatures(FrozenEstimator(model.estimator_))
        agree(fitted.fit(frame, y, sensitive_features=group), frame, group)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_xgboost(method, classes):
    import xgboost

    X, y, group = sample(400, classes)
    codes = np.unique(y, return_inverse=True)[1]  # all that XGBoost takes
    booster = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1)
    model = GroupCalibratedClassifier(booster, method=method, cv=2)
    model.fit(X, codes, sensitive_features=group, sample_weight=np.ones(len(y)))
    assert model.score(X, codes, sensitive_features=group) > 0.6
    if method == "temperature":
        agree(model, X, group)
        fitted = Temperatures(FrozenEstimator(model.estimator_))
        agree(fitted.fit(X, codes, sensitive_features=group), X, group)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_pytorch_module_through_skorch(classes):
    import skorch
    import torch

    X, y, group = sample(300, classes)
    X, codes = X.astype(np.float32), np.unique(y, return_inverse=True)[1]
    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=4,
        module__out_features=classes,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=10,
        lr=0.5,
        verbose=0,
        train_split=None,
    )
    model = Temperatures(net, cv=2).fit(X, codes, sensitive_features=group)
    agree(model, X, group)
    assert model.score(X, codes) > 0.6
    fitted = Temperatures(FrozenEstimator(model.estimator_))
    agree(fitted.fit(X, codes, sensitive_features=group), X, group)


def test_a_classifier_that_says_little_about_itself():
    class Plain(BaseEstimator):  # no classes_, no tags of a classifier
        def fit(self, X, y):
            self.inner_ = GaussianNB().fit(X, y)
            return self

        def predict(self, X):
            return self.inner_.predict(X)

        def predict_proba(self, X):
            return self.inner_.predict_proba(X)

    X, y, group = sample(200)
    model = Temperatures(Plain()).fit(X, y, sensitive_features=group)
    expected = Temperatures(GaussianNB()).fit(X, y, sensitive_features=group)
    assert model.temperatures_ == expected.temperatures_
    assert is_classifier(model)
    assert not hasattr(model, "n_features_in_")


def test_decisions_at_a_threshold_stay():
    X, y, group = sample(300)
    strict = FixedThresholdClassifier(GaussianNB(), threshold=0.8, pos_label="bee")
    model = Temperatures(strict).fit(X, y, sensitive_features=group)
    assert model.predict(X).tolist() == model.estimator_.predict(X).tolist()
    prob = model.predict_proba(X, sensitive_features=group)
    assert (model.classes_[prob.argmax(axis=1)] == "bee").sum() > (model.predict(X) == "bee").sum()


def test_sparse_rows_and_lists():
    X, y, group = sample(200)
    dense = GroupCalibratedClassifier(LogisticRegression(), cv=3).fit(
        X, y, sensitive_features=group
    )
    expected = dense.predict_proba(X, sensitive_features=group)
    for other in (csr_matrix(X), X.tolist()):
        model = clone(dense).fit(other, y.tolist(), sensitive_features=group.tolist())
        prob = model.predict_proba(other, sensitive_features=group.tolist())
        np.testing.assert_allclose(prob, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "labels", [(1, 2), (-1, 1), (False, True), ("no", "yes"), (0.0, 1.0)], ids=str
)
@pytest.mark.parametrize("estimator", [LogisticRegression(), GaussianNB()], ids=["odds", "proba"])
def test_labels_of_any_coding(estimator, labels):
    X, y, group = sample(200)
    codes = (y == "bee").astype(int)
    expected = Temperatures(estimator).fit(X, codes, sensitive_features=group)
    coded = np.array(labels)[codes]
    model = Temperatures(estimator).fit(X, coded, sensitive_features=group)
    assert model.temperatures_ == pytest.approx(expected.temperatures_)
    assert model.predict(X).tolist() == [labels[k] for k in expected.predict(X)]


def test_probabilities_of_exactly_zero_and_one():
    X, y, group = sample(400)
    forest = RandomForestClassifier(3, random_state=0)
    for method in METHODS:
        model = GroupCalibratedClassifier(forest, method=method, cv=3)
        with pytest.warns(ClippedWarning, match=r"\d+ of 400 rows have a probability below 1e-06"):
            model.fit(X, y, sensitive_features=group)
        raw = model.estimator_.predict_proba(X)
        assert ((raw == 0) | (raw == 1)).any()
        prob = model.predict_proba(X, sensitive_features=group)
        assert np.isfinite(prob).all()
        if method == "temperature":
            assert all(t > 1 for t in model.temperatures_.values())
            agree(model, X, group)


# --- oracles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("method", "name", "estimator"),
    [
        ("temperature", "temperature", LogisticRegression()),
        ("temperature", "temperature", GaussianNB()),
        ("platt", "sigmoid", LogisticRegression()),
        ("platt", "sigmoid", SVC()),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_without_groups_it_is_scikit_learns(method, name, estimator, weighted):
    X, y, _ = sample(300)
    codes = (y == "bee").astype(int)  # its temperature is wrong for other labels
    weight = None
    if weighted:
        weight = np.random.default_rng(1).uniform(0.3, 3, len(y))
        # its weights count as numbers of rows, here they do by their ratios
        weight *= weight.sum() / (weight**2).sum()
    folds = StratifiedKFold(3)
    reference = CalibratedClassifierCV(estimator, method=name, cv=folds, ensemble=False)
    expected = reference.fit(X, codes, sample_weight=weight).predict_proba(X)
    model = GroupCalibratedClassifier(estimator, method=method, cv=folds)
    with pytest.warns(NoGroupsWarning, match="so one common calibrator is fitted; pass sensitive"):
        model.fit(X, codes, sample_weight=weight)
    assert model.groups_ == []
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=2e-4)


@pytest.mark.parametrize("shrinkage", [0.0, 20.0, "auto"])
@pytest.mark.parametrize("classes", [2, 3])
def test_temperatures_are_those_of_out_of_fold_scores(classes, shrinkage):
    X, y, group = sample(300, classes)
    folds = StratifiedKFold(4)
    scores = cross_val_predict(LogisticRegression(), X, y, cv=folds, method="decision_function")
    expected = GroupTemperatureScaling(shrinkage=shrinkage)
    expected.fit(scores, y, sensitive_features=group)
    model = Temperatures(LogisticRegression(), cv=folds, shrinkage=shrinkage)
    model.fit(X, y, sensitive_features=group)
    assert model.temperatures_ == pytest.approx(expected.temperatures_, rel=1e-6)
    assert model.calibrator_.temperature == pytest.approx(expected.temperature_, rel=1e-6)
    assert model.shares_ == pytest.approx(expected.shares_)
    full = LogisticRegression().fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X, sensitive_features=group),
        expected.predict_proba(full.decision_function(X), sensitive_features=group),
        rtol=1e-6,
    )


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("none", "common")])
@pytest.mark.filterwarnings("ignore::equipoise.calibration.NoGroupsWarning")
def test_each_group_is_calibrated_as_if_alone(method):
    X, y, _ = sample(500, 3)
    fitted = FrozenEstimator(LogisticRegression().fit(X, y))
    fresh, labels, member = sample(800, 3, seed=1)
    together = GroupCalibratedClassifier(fitted, method=method, shrinkage=0.0)
    prob = together.fit(fresh, labels, sensitive_features=member).predict_proba(
        fresh, sensitive_features=member
    )
    assert together.trust_ == {"f": 1.0, "m": 1.0}
    for name in ("f", "m"):
        own = member == name
        alone = GroupCalibratedClassifier(fitted, method=method).fit(fresh[own], labels[own])
        np.testing.assert_allclose(alone.predict_proba(fresh[own]), prob[own], atol=1e-6)


@pytest.mark.parametrize("method", CURVES)
def test_shrinkage_averages_with_the_common_calibrator(method):
    X, y, group = sample(600)
    fitted = FrozenEstimator(GaussianNB().fit(X[:200], y[:200]))
    X, y, group = X[200:], y[200:], group[200:]
    n = (group == "f").sum()

    def prob(**params):
        model = GroupCalibratedClassifier(fitted, method=method, **params)
        model.fit(X, y, sensitive_features=group)
        return model, model.predict_proba(X[group == "f"], sensitive_features=group[group == "f"])

    _, own = prob(shrinkage=0.0)
    model, between = prob(shrinkage=100.0)
    common = model.calibrator_.apply(
        np.log(np.maximum(fitted.predict_proba(X[group == "f"]), 1e-6))
    )
    trust = n / (n + 100)
    assert model.trust_["f"] == pytest.approx(trust)
    np.testing.assert_allclose(between, trust * own + (1 - trust) * common, atol=1e-9)


def test_a_known_distortion_of_one_group_is_found():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(scale=1.5, size=8000)
    group = rng.choice(["fair", "far"], 8000)
    y = rng.random(8000) < 1 / (1 + np.exp(-log_odds))
    X = (log_odds * np.where(group == "far", 3.0, 1.0))[:, None]

    class Same(ClassifierMixin, BaseEstimator):
        classes_ = np.array([False, True])

        def fit(self, X, y):  # noqa: ARG002
            raise AssertionError("a frozen estimator is never fitted")

        def decision_function(self, X):
            return X[:, 0]

        def __sklearn_is_fitted__(self):
            return True

        def predict(self, X):
            return X[:, 0] > 0

    model = Temperatures(FrozenEstimator(Same()), shrinkage=0.0)
    model.fit(X, y, sensitive_features=group)
    assert model.temperatures_ == pytest.approx({"fair": 1.0, "far": 3.0}, rel=0.1)
    prob = model.predict_proba(X, sensitive_features=group)[:, 1]
    assert np.abs(prob - 1 / (1 + np.exp(-log_odds))).mean() < 0.02


def test_scores_are_out_of_fold():
    # a grown tree is sure of every row it has seen, so only other rows show how wrong it is
    X, y, group = sample(400)
    tree = DecisionTreeClassifier(random_state=0)
    with pytest.warns(ClippedWarning, match="400 of 400 rows"):
        model = Temperatures(tree).fit(X, y, sensitive_features=group)
    prob = model.predict_proba(X, sensitive_features=group).max(axis=1)
    assert model.score(X, y) == 1.0
    right = (cross_val_predict(tree, X, y) == y).mean()
    assert prob.mean() == pytest.approx(right, abs=0.05)


# --- fitted models ---------------------------------------------------------------------------


def test_a_fitted_model_is_not_fitted_again():
    X, y, group = sample(600)
    inner = GaussianNB().fit(X[:300], y[:300])
    kept = inner.theta_.copy()
    model = Temperatures(FrozenEstimator(inner), cv="not used", shrinkage=20.0)
    model.fit(X[300:], y[300:], sensitive_features=group[300:], sample_weight=np.ones(300))
    np.testing.assert_array_equal(inner.theta_, kept)
    assert model.estimator_.estimator is inner
    expected = GroupTemperatureScaling(shrinkage=20.0, from_proba=True)
    expected.fit(inner.predict_proba(X[300:]), y[300:], sensitive_features=group[300:])
    assert model.temperatures_ == pytest.approx(expected.temperatures_, rel=1e-4)
    agree(model, X, group)


def test_a_fitted_model_may_know_more_classes_than_the_rows_have():
    X, y, group = sample(600, 3)
    inner = FrozenEstimator(LogisticRegression().fit(X, y))
    some = y != "bee"
    rows = {"sensitive_features": group[some]}
    model = Temperatures(inner).fit(X[some], y[some], **rows)
    assert model.classes_.tolist() == ["ay", "bee", "sea"]
    assert model.predict_proba(X, sensitive_features=group).shape == (600, 3)
    agree(model, X, group)
    chosen = GroupCalibratedClassifier(inner).fit(X[some], y[some], **rows)
    assert set(chosen.selection_.log_loss) == {"none", "common", "temperature"}
    for method in METHODS:
        if METHODS[method].biased:
            with pytest.raises(ValueError, match="class 'bee' has no rows"):
                GroupCalibratedClassifier(inner, method=method).fit(X[some], y[some], **rows)
    two = FrozenEstimator(LogisticRegression().fit(X[some], y[some]))
    with pytest.raises(ValueError, match=r"class 'bee', which the estimator does not know"):
        GroupCalibratedClassifier(two).fit(X, y)
    with pytest.raises(NotFittedError):
        GroupCalibratedClassifier(FrozenEstimator(LogisticRegression())).fit(X, y)


# --- small groups ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", CURVES)
def test_a_small_group_gets_the_common_calibrator_and_the_fit_says_so(method):
    X, y, group = sample(600)
    least = METHODS[method].least_rows
    group[:] = "m"
    group[: least - 1] = "few"
    model = GroupCalibratedClassifier(GaussianNB(), method=method, shrinkage=20.0)
    with pytest.warns(
        SmallGroupWarning,
        match=rf"common calibrator is used for group 'few' \({least - 1} rows of the {least} needed"
        r"\); merge small groups",
    ):
        model.fit(X, y, sensitive_features=group)
    assert model.trust_ == pytest.approx({"few": 0.0, "m": (601 - least) / (621 - least)})
    assert model.calibrators_["few"] is model.calibrator_
    prob = model.predict_proba(X[:5], sensitive_features=["few"] * 5)
    model.set_params(unseen_group="global")
    np.testing.assert_array_equal(prob, model.predict_proba(X[:5], sensitive_features=[None] * 5))


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("none", "common")])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_group_without_rows_of_a_class(method, classes):
    X, y, group = sample(900, classes)
    group[(group == "f") & (y == "ay")] = "m"
    model = GroupCalibratedClassifier(LogisticRegression(), method=method, shrinkage=0.0)
    if method == "temperature" and classes == 3:  # two classes are enough
        model.fit(X, y, sensitive_features=group)
        assert model.trust_["f"] == 1.0
        return
    with pytest.warns(SmallGroupWarning, match=r"group 'f' \(\d+ rows, none of class 'ay'\)"):
        model.fit(X, y, sensitive_features=group)
    assert model.trust_["f"] == 0.0
    assert model.calibrators_["f"] == model.calibrator_


def test_a_penalty_makes_do_without_rows_of_a_class():
    X, y, group = sample(900)
    group[(group == "f") & (y == "ay")] = "m"
    new = {"sensitive_features": ["f"] * 900}
    for method in ("temperature", "bcts"):
        model = GroupCalibratedClassifier(LogisticRegression(), method=method)
        model.fit(X, y, sensitive_features=group)
        assert 0.0 <= model.trust_["f"] <= 1.0
        prob = model.predict_proba(X, **new)
        common = model.calibrator_.apply(class_scores_of(model, X))
        assert prob.min() > 0.0
        if method == "bcts":  # rarer than elsewhere, but not impossible
            assert prob[:, 0].mean() < 0.5 * common[:, 0].mean()


def class_scores_of(model, X):
    odds = model.estimator_.decision_function(X)
    return np.stack([np.zeros_like(odds), odds], axis=1)


def test_many_small_groups_are_one_warning():
    X, y, _ = sample(60)
    group = np.arange(60) // 6
    model = GroupCalibratedClassifier(GaussianNB(), method="platt", shrinkage=20.0)
    with pytest.warns(
        SmallGroupWarning, match=r"group '4' \(6 rows of the 20 needed\) and 5 more; merge"
    ) as caught:
        model.fit(X, y, sensitive_features=group)
    assert list(caught[0].message.reasons) == list(range(10))


def test_a_temperature_at_its_bound_is_said():
    X, y, group = sample(400)
    odd = group == "m"
    inner = FrozenEstimator(LogisticRegression().fit(X, y))
    y = np.where(odd, inner.predict(X), y)
    with pytest.warns(
        BoundWarning,
        match=r"bound for group 'm' \(T = 0\.\d+: all of its \d+ predictions are correct",
    ):
        Temperatures(inner, shrinkage=0.0).fit(X, y, sensitive_features=group)
    with (
        pytest.warns(NoGroupsWarning),
        pytest.warns(BoundWarning, match=r"all rows \(T = .*: all of its 400 predictions"),
    ):
        Temperatures(inner).fit(X, inner.predict(X))


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "sigmoid"}, "method must be one of auto, none, .* got 'sigmoid'"),
        ({"unseen_group": "guess"}, "unseen_group must be"),
        ({"shrinkage": -1.0}, "shrinkage must be"),
        ({"shrinkage": float("nan")}, "shrinkage must be"),
    ],
)
def test_bad_parameters(params, message):
    X, y, group = sample(60)
    model = GroupCalibratedClassifier(GaussianNB(), **params)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sensitive_features=group)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sensitive_features": ["a"] * 59},
            "sensitive_features has 59 rows, but there are 60 to calibrate",
        ),
        ({"sensitive_features": ["a"] * 59 + [None]}, "sensitive_features has 1 missing value"),
        ({"sample_weight": [1.0] * 59 + [-1.0]}, r"sample_weight, row 59: -1\.0"),
        ({"sample_weight": [1.0]}, "sample_weight has 1 rows"),
        ({"y": ["a"] * 60}, "only one class is present"),
        ({"y": ["a", None] * 30}, "y has 30 missing values, the first in row 1"),
        ({"y": ["a", "b"]}, "inconsistent numbers of samples"),
        ({"y": None}, "requires y to be passed"),
    ],
)
def test_bad_input(change, message):
    X, y, group = sample(60)
    arguments = {"y": y, "sensitive_features": group, **change}
    with pytest.raises(ValueError, match=message):
        GroupCalibratedClassifier(GaussianNB()).fit(X, **arguments)


def test_what_cannot_be_calibrated():
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    X, y, group = sample(60)
    mitigator = ExponentiatedGradient(LogisticRegression(), DemographicParity())
    with pytest.raises(TypeError, match="neither decision_function nor predict_proba"):
        GroupCalibratedClassifier(mitigator).fit(X, y, sensitive_features=group)
    votes = VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())])
    with pytest.raises(TypeError, match="no predict_proba once fitted"):
        GroupCalibratedClassifier(votes).fit(X, y, sensitive_features=group)
    model = GroupCalibratedClassifier(GaussianNB()).fit(X, y, sensitive_features=group)
    with pytest.raises(
        ValueError, match="sensitive_features has 3 rows, but there are 60 to calibrate"
    ):
        model.predict_proba(X, sensitive_features=group[:3])


# --- the object ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_clone_parameters_and_pickle(method):
    X, y, group = sample(300)
    model = GroupCalibratedClassifier(GaussianNB(), method=method, shrinkage=7.0)
    model.set_params(estimator__var_smoothing=1e-6).fit(X, y, sensitive_features=group)
    assert clone(model).get_params()["estimator__var_smoothing"] == 1e-6
    assert not hasattr(clone(model), "calibrators_")
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        loaded.predict_proba(X, sensitive_features=group),
        model.predict_proba(X, sensitive_features=group),
    )


def test_a_second_fit_leaves_nothing_of_the_first():
    X, y, group = sample(300)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GroupCalibratedClassifier(GaussianNB()).fit(frame, y, sensitive_features=group)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.selection_ is not None
    with pytest.warns(NoGroupsWarning):
        model.set_params(method="platt").fit(X[:, :3], y)
    assert (model.method_, model.selection_) == ("platt", None)
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "temperatures_")
    assert model.n_features_in_ == 3
    assert model.calibrators_ == model.trust_ == model.shares_ == {}


def test_not_fitted():
    model = GroupCalibratedClassifier(GaussianNB())
    for call in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            call([[0.0]])
    assert not hasattr(model, "temperatures_")


# --- the example -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::equipoise.calibration.ClippedWarning")
def test_the_example_of_mitigation_tools(capsys):
    example = Path(__file__).parents[1] / "examples" / "mitigation.py"
    reports = runpy.run_path(str(example))["main"]()
    shown = capsys.readouterr().out
    for name, (before, after) in reports.items():
        assert name in shown
        assert after.overall["accuracy"] == before.overall["accuracy"]
        for group in before.groups:
            assert after.groups[group]["ece"] < before.groups[group]["ece"] / 2
        pe = [report.proportional_equality["stochastic"] for report in (before, after)]
        assert pe[1] < pe[0] / 2
    base, mitigated = reports["naive Bayes"], reports["ThresholdOptimizer"]
    assert mitigated[0].overall["ece"] > 2 * base[0].overall["ece"]
    assert base[1].overall["brier"] < mitigated[1].overall["brier"]
