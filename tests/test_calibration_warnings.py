"""What is said of bad, extreme and missing input, and by every door."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from equipoise import GroupCalibratedClassifier, GroupTemperatureScaling, TemperatureScaling
from equipoise.calibration import (
    BoundWarning,
    ClippedWarning,
    ConvergenceWarning,
    FileCalibration,
    GroupCalibrator,
    NoGroupsWarning,
    SmallGroupWarning,
    UnseenGroupError,
)


def sample(n=240, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=2.0, size=(n, classes))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, y, np.array(["a", "b"])[np.arange(n) % 2]


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier that has probabilities only: its input."""

    classes_ = np.array([0, 1])

    def fit(self, X, y):  # noqa: ARG002
        return self

    def predict_proba(self, X):
        return np.asarray(X)

    def predict(self, X):
        return np.asarray(X).argmax(axis=1)

    def __sklearn_is_fitted__(self):
        return True


# --- exact zeros and ones --------------------------------------------------------------------


def doors(method, shrinkage, tmp_path):
    """Return ways to fit to probabilities and then apply, each a function of p, y and groups."""

    def calibrator(p, y, group):
        model = GroupCalibrator(method=method, shrinkage=shrinkage, from_proba=True)
        return model.fit(p, y, sensitive_features=group).predict_proba(p, sensitive_features=group)

    def scaling(p, y, group):
        model = GroupTemperatureScaling(shrinkage=shrinkage, from_proba=True)
        return model.fit(p, y, sensitive_features=group).predict_proba(p, sensitive_features=group)

    def classifier(p, y, group):
        model = GroupCalibratedClassifier(
            FrozenEstimator(Given()), method=method, shrinkage=shrinkage
        )
        return model.fit(p, y, sensitive_features=group).predict_proba(p, sensitive_features=group)

    def file(p, y, group):
        path = tmp_path / "rows.csv"
        pd.DataFrame({"y": y, "p": p[:, 1], "g": group}).to_csv(path, index=False)
        fitted = FileCalibration.fit(
            path, label="y", prob="p", group="g", method=method, shrinkage=shrinkage, holdout=0.1
        )
        fitted.apply(path, tmp_path / "out.csv")
        return fitted

    return {"calibrator": calibrator, "scaling": scaling, "classifier": classifier, "file": file}


def extreme():
    z, y, group = sample()
    odds = 3.0 * (z[:, 1] - z[:, 0])
    p = 1 / (1 + np.exp(-odds))
    p[::10] = np.round(p[::10])  # some are wrong
    return np.stack([1.0 - p, p], axis=1), y, group


@pytest.mark.parametrize("door", ["calibrator", "scaling", "classifier", "file"])
def test_exact_zeros_are_said_once_by_every_door(door, tmp_path):
    p, y, group = extreme()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        doors("temperature", 0, tmp_path)[door](p, y, group)
    said = [w.message for w in caught if isinstance(w.message, ClippedWarning)]
    assert len(said) == 1
    assert "have a probability below 1e-06, such as an exact 0; it counts as 1e-06" in str(said[0])
    if door != "file":  # which holds a tenth of the rows out
        assert said[0].rows == (p.min(axis=1) < 1e-6).sum()


def test_every_door_clips_at_the_same_probability(tmp_path):
    p, y, group = extreme()
    clipped = np.clip(p, 1e-6, 1.0)
    found = {}
    for name, door in doors("temperature", 0, tmp_path).items():
        if name == "file":
            continue
        with pytest.warns(ClippedWarning):
            found[name] = door(p, y, group)
    logs = GroupTemperatureScaling().fit(np.log(clipped), y, sensitive_features=group)
    expected = logs.predict_proba(np.log(clipped), sensitive_features=group)
    for prob in found.values():
        np.testing.assert_allclose(prob, expected, rtol=1e-9)


def test_one_row_of_exact_zero():
    p, y, group = extreme()
    p = np.clip(p, 1e-3, 1 - 1e-3)
    p[7] = 0.0, 1.0
    with pytest.warns(ClippedWarning, match="^1 of 240 rows has a probability below 1e-06"):
        GroupTemperatureScaling(from_proba=True).fit(p, y, sensitive_features=group)
    p[7] = 1e-6, 1 - 1e-6  # the smallest that is not clipped
    p[8] = 1e-5, 1 - 1e-5
    GroupTemperatureScaling(from_proba=True).fit(p[8:], y[8:], sensitive_features=group[8:])


# --- convergence and bounds ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["temperature", "bcts"])
@pytest.mark.parametrize("shrinkage", [0, "auto", 20])
@pytest.mark.parametrize("size", [300.0, 3e4])
def test_margins_of_hundreds_converge_or_are_named(method, shrinkage, size):
    for seed in range(5):
        z, y, group = sample(seed=seed)
        z[::7] *= size
        model = GroupCalibrator(method=method, shrinkage=shrinkage)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(z, y, sensitive_features=group)
        said = any(isinstance(w.message, ConvergenceWarning) for w in caught)
        assert said != model.converged_
        assert model.converged_
        assert model.n_iter_ < 100


def test_a_temperature_solver_that_is_cut_short_says_so(monkeypatch):
    monkeypatch.setattr("equipoise.calibration._temperature_solver.MOST_PASSES", 1)
    z, y, group = sample()
    with pytest.warns(ConvergenceWarning, match="look for extreme scores"):
        scaling = GroupTemperatureScaling().fit(z, y, sensitive_features=group)
    assert not scaling.converged_
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 pass over"):
        TemperatureScaling().fit(z, y)


@pytest.mark.parametrize("method", ["temperature", "bcts"])
def test_a_bound_names_the_rows_that_drive_it(method):
    z, y, group = sample()
    own = np.flatnonzero(group == "b")
    y[own] = z[own].argmin(axis=1)
    model = GroupCalibrator(method=method, shrinkage=0)
    with pytest.warns(BoundWarning, match="most confidently in rows") as caught:
        model.fit(z, y, sensitive_features=group)
    message = caught[0].message
    # the rows whose cross entropy rises fastest with 1 / T: confident, and wrong
    prob = model.predict_proba(z[own], sensitive_features=group[own])
    pull = (prob * z[own]).sum(axis=1) - z[own, y[own]]
    worst = own[np.argsort(-pull)[:3]].tolist()
    assert message.rows["b"] == worst
    assert f"rows {worst[0]}, {worst[1]}, {worst[2]}, counted from 0" in str(message)
    assert message.temperatures["b"] == pytest.approx(model.calibrators_["b"].temperature)


def test_weights_decide_which_rows_drive_a_bound():
    z, y, group = sample()
    own = np.flatnonzero(group == "b")
    y[own] = z[own].argmin(axis=1)
    weight = np.ones(240)
    weight[own[5]] = 1e4
    with pytest.warns(BoundWarning) as caught:
        GroupTemperatureScaling().fit(z, y, sensitive_features=group, sample_weight=weight)
    assert caught[0].message.rows["b"][0] == own[5]


# --- groups that were not passed -------------------------------------------------------------


def test_fitting_without_groups_is_said():
    z, y, _ = sample()
    with pytest.warns(NoGroupsWarning, match="not passed, so one common calibrator is fitted"):
        model = GroupCalibrator(method="bcts").fit(z, y)
    assert model.groups_ == []
    model.predict_proba(z)  # nothing to say: it has no groups
    with pytest.raises(ValueError, match="sensitive_features must be one column or several"):
        GroupTemperatureScaling().fit(z, y, sensitive_features=None)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    with pytest.warns(NoGroupsWarning):
        GroupCalibratedClassifier(FrozenEstimator(Given()), method="temperature").fit(p, y)


@pytest.mark.parametrize("kind", ["calibrator", "scaling", "classifier"])
def test_forgetting_the_groups_is_an_error_or_a_warning(kind):
    z, y, group = sample()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    made = {
        "calibrator": lambda policy: GroupCalibrator(
            method="temperature", unseen_group=policy, from_proba=True
        ),
        "scaling": lambda policy: GroupTemperatureScaling(unseen_group=policy, from_proba=True),
        "classifier": lambda policy: GroupCalibratedClassifier(
            FrozenEstimator(Given()), method="temperature", unseen_group=policy
        ),
    }[kind]
    model = made("error").fit(p, y, sensitive_features=group)
    with pytest.raises(ValueError, match=r"were not passed, .*pass them, or unseen_group='global'"):
        model.predict_proba(p)
    for policy in ("global", "mixture"):
        model = made(policy).fit(p, y, sensitive_features=group)
        with pytest.warns(NoGroupsWarning, match=f"calibrated by the policy '{policy}'"):
            without = model.predict_proba(p)
        missing = model.predict_proba(p, sensitive_features=[None] * 240)
        np.testing.assert_array_equal(without, missing)
    with pytest.raises(UnseenGroupError, match="group 'z', which has no fitted calibrator"):
        made("error").fit(p, y, sensitive_features=group).predict_proba(
            p, sensitive_features=["z"] * 240
        )


# --- small groups ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [49, 50])
def test_few_rows_without_shrinkage_are_named(rows):
    z, y, group = sample()
    group[:] = "a"
    group[:rows] = "c"
    models = (GroupTemperatureScaling(), GroupCalibrator(method="bcts", shrinkage=0))
    for model in models:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(z, y, sensitive_features=group)
        small = [w.message for w in caught if isinstance(w.message, SmallGroupWarning)]
        assert [each.few for each in small] == ([{"c": 49}] if rows == 49 else [])
        if small:
            assert "few rows decide the calibrator of group 'c' (49 rows)" in str(small[0])
            assert "shrinkage='auto'" in str(small[0])
    GroupTemperatureScaling(shrinkage="auto").fit(z, y, sensitive_features=group)  # no warning


@pytest.mark.parametrize("lack", ["one class", "one row", "no weight"])
@pytest.mark.parametrize("method", ["temperature", "bcts", "beta", "isotonic"])
def test_a_group_that_lacks_a_class_is_named_with_the_remedy(method, lack):
    z, y, group = sample()
    weight = np.ones(240)
    few = {"one class": 60, "one row": 1, "no weight": 60}[lack]
    group[:few] = "c"
    if lack == "one class":
        y[:few] = 0
    if lack == "no weight":
        weight[:few] = 0.0
    model = GroupCalibrator(method=method, shrinkage=0)
    with pytest.warns(SmallGroupWarning, match=r"common calibrator is used for .*'c'") as caught:
        model.fit(z, y, sensitive_features=group, sample_weight=weight)
    assert "merge small groups, pass more rows or shrinkage='auto'" in str(caught[0].message)
    assert "c" in caught[0].message.reasons
    assert model.calibrators_["c"] == model.calibrator_
    assert model.trust_["c"] == 0.0


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [GroupCalibrator(), GroupTemperatureScaling()], ids=repr)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": (3, np.nan)}, r"logits, row 3: .*nan.* is not finite"),
        ({"logits": (5, np.inf)}, r"logits, row 5: .*inf.* is not finite"),
        ({"weight": (2, np.nan)}, r"(?i)weight.*(nan|finite|missing)"),
        ({"weight": (2, -1.0)}, r"(?i)weight.*negative|negative.*weight"),
        ({"weights": ["one"] * 240}, r"(?i)sample_weight.*numbers?"),
        ({"weights": np.ones(239)}, r"(?i)sample_weight.*239"),
        ({"weights": np.zeros(240)}, r"(?i)weight.*(zero|positive|0)"),
        ({"group": (4, None)}, r"(?i)sensitive_features.*missing"),
        ({"groups": ["a"] * 239}, r"sensitive_features has 239 rows, but there are 240"),
        ({"labels": np.arange(239) % 2}, r"y has 239 rows, but the scores have 240"),
        ({"label": (0, np.nan)}, r"(?i)y.*(missing|nan)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_by_name(model, change, message):
    z, y, group = sample()
    weight, group, y = np.ones(240), group.astype(object), y.astype(float)
    for name, array in (("logits", z), ("weight", weight), ("group", group), ("label", y)):
        if name in change:
            row, value = change[name]
            array[row] = value
    weight, group, y = (
        change.get(name, array)
        for name, array in (("weights", weight), ("groups", group), ("labels", y))
    )
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(z, y, sensitive_features=group, sample_weight=weight)


@pytest.mark.parametrize("method", ["auto", "temperature", "bcts", "beta", "common", "none"])
def test_one_class_in_all_rows(method):
    z, _, group = sample()
    model = GroupCalibrator(method=method)
    how = {"sensitive_features": group, "labels": [0, 1]}
    with pytest.raises(ValueError, match="y has only one class, '0'; calibrators need rows of"):
        model.fit(z, np.zeros(240, int), **how)
