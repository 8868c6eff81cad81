"""GroupCalibratedClassifier(ensemble=True): a model and its calibrators for each fold, averaged."""

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB

from equipoise import GroupCalibratedClassifier, GroupCalibrator
from equipoise.calibration import METHODS, NoGroupsWarning, SmallGroupWarning
from equipoise.metrics import log_loss
from repair_data import sample

FOLDS = StratifiedKFold(3)


@pytest.mark.parametrize(
    ("method", "name", "estimator"),
    [
        ("temperature", "temperature", LogisticRegression()),
        ("temperature", "temperature", GaussianNB()),
        ("platt", "sigmoid", LogisticRegression()),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_without_groups_it_is_scikit_learns(method, name, estimator):
    if name == "temperature" and Version(sklearn.__version__) < Version("1.8"):
        pytest.skip("scikit-learn has temperatures from 1.8 on")
    X, y, _ = sample(600)
    codes = (y == "bee").astype(int)  # its temperature is wrong for other labels
    reference = CalibratedClassifierCV(estimator, method=name, cv=FOLDS, ensemble=True)
    model = GroupCalibratedClassifier(estimator, method=method, cv=FOLDS, ensemble=True)
    with pytest.warns(NoGroupsWarning):
        model.fit(X, codes)
    fresh, *_ = sample(200, seed=1)
    expected = reference.fit(X, codes).predict_proba(fresh)
    np.testing.assert_allclose(model.predict_proba(fresh), expected, atol=2e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["temperature", "bcts", "beta"])
def test_the_mean_over_folds_by_hand(method, classes):
    X, y, group = sample(600, classes)
    fresh, _, member = sample(100, classes, seed=1)
    model = GroupCalibratedClassifier(GaussianNB(), method=method, cv=FOLDS, ensemble=True)
    model.fit(X, y, sensitive_features=group)
    total = 0.0
    for train, test in FOLDS.split(X, y):
        own = GaussianNB().fit(X[train], y[train])
        calibrator = GroupCalibrator(method=method, from_proba=True)
        calibrator.fit(own.predict_proba(X[test]), y[test], sensitive_features=group[test])
        total += calibrator.predict_proba(own.predict_proba(fresh), sensitive_features=member)
    prob = model.predict_proba(fresh, sensitive_features=member)
    np.testing.assert_allclose(prob, total / 3, atol=1e-9)
    # votes of several models are no model's own, so even temperatures need the group
    decided = model.predict(fresh, sensitive_features=member)
    assert decided.tolist() == model.classes_[prob.argmax(axis=1)].tolist()
    with pytest.raises(ValueError, match="sensitive_features were not passed"):
        model.predict(fresh)
    assert len(model.estimators_) == len(model.calibrator_sets_) == 3
    assert model.groups_ == ["f", "m"]
    for name in ("estimator_", "calibrator_", "calibrators_", "trust_", "temperatures_"):
        with pytest.raises(AttributeError, match="calibrator_sets_"):
            getattr(model, name)


def test_auto_chooses_one_method_for_all_folds():
    X, y, group = sample(900)
    model = GroupCalibratedClassifier(GaussianNB(), method="auto", ensemble=True)
    alone = GroupCalibratedClassifier(GaussianNB(), method="auto")
    for each in (model, alone):
        each.fit(X, y, sensitive_features=group)
    assert model.method_ == alone.method_
    assert model.selection_ == alone.selection_


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::equipoise.calibration.ClippedWarning")
def test_it_wins_where_models_vary():
    """Five forests of few trees are better than one, whatever calibrates them."""
    gains = []
    for seed in range(5):
        X, y, group = sample(600, seed=seed)
        fresh, labels, member = sample(4000, seed=100 + seed)
        losses = []
        for ensemble in (False, True):
            forest = RandomForestClassifier(5, min_samples_leaf=20, random_state=0)
            model = GroupCalibratedClassifier(forest, method="bcts", ensemble=ensemble)
            model.fit(X, y, sensitive_features=group)
            prob = model.predict_proba(fresh, sensitive_features=member)
            losses.append(log_loss(labels, prob))
        gains.append(losses[0] - losses[1])
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / 5**0.5


def test_a_group_that_a_fold_has_no_rows_of():
    X, y, group = sample(300)
    group[:2] = "x"
    model = GroupCalibratedClassifier(
        LogisticRegression(), method="bcts", cv=4, ensemble=True, shrinkage=0
    )
    with pytest.warns(SmallGroupWarning, match="the common calibrator is used for group 'x'"):
        model.fit(X, y, sensitive_features=group)
    assert np.isfinite(model.predict_proba(X, sensitive_features=group)).all()


def test_a_fitted_model_has_no_ensemble():
    X, y, group = sample(300)
    fitted = FrozenEstimator(LogisticRegression().fit(X, y))
    models = [
        GroupCalibratedClassifier(fitted, method="bcts", ensemble=e).fit(
            X, y, sensitive_features=group
        )
        for e in (False, True)
    ]
    assert models[0].calibrators_ == models[1].calibrators_


@pytest.mark.parametrize("method", ["bcts", "temperature"])
def test_an_ensemble_is_saved(tmp_path, method):
    pytest.importorskip("skops")
    X, y, group = sample(300)
    model = GroupCalibratedClassifier(LogisticRegression(), method=method, cv=3, ensemble=True)
    model.fit(X, y, sensitive_features=group).save(tmp_path / "m.safetensors")
    loaded = GroupCalibratedClassifier.load(tmp_path / "m.safetensors")
    model.save(tmp_path / "m.json", estimator=False)
    given = GroupCalibratedClassifier.load(tmp_path / "m.json", estimator=model.estimators_)
    for each in (loaded, given):
        np.testing.assert_array_equal(
            each.predict_proba(X, sensitive_features=group),
            model.predict_proba(X, sensitive_features=group),
        )
    with pytest.raises(ValueError, match="calibrators for 3 estimators"):
        GroupCalibratedClassifier.load(tmp_path / "m.json", estimator=model.estimators_[0])


def test_every_method_is_an_ensemble():
    X, y, group = sample(600)
    for method in METHODS:
        model = GroupCalibratedClassifier(LogisticRegression(), method=method, cv=2, ensemble=True)
        prob = model.fit(X, y, sensitive_features=group).predict_proba(X, sensitive_features=group)
        np.testing.assert_allclose(prob.sum(axis=1), 1.0)
