"""One calibrator per group: the same scores give the same result by every door, and by file."""

import pickle
import subprocess
import sys
import warnings

import click.testing
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB

from equipoise import GroupCalibratedClassifier, GroupCalibrator, GroupTemperatureScaling
from equipoise.calibration import (
    METHODS,
    ClippedWarning,
    NoGroupsWarning,
    Problem,
    SmallGroupWarning,
    UnseenGroupError,
    fit_temperatures,
    paper_temperatures,
    solve,
)
from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._rows import Rows
from equipoise.calibration._scores import scores_of
from equipoise.cli import main
from repair_data import sample
from table_data import forge

# --- three doors -----------------------------------------------------------------------------


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose probabilities are its input."""

    def __init__(self, classes):
        self.classes = classes
        self.classes_ = np.array(classes)

    def fit(self, X, y):  # noqa: ARG002
        raise AssertionError("a frozen estimator is not fitted")

    def predict_proba(self, X):
        return np.asarray(X)

    def predict(self, X):
        return self.classes_[np.asarray(X).argmax(axis=1)]

    def __sklearn_is_fitted__(self):
        return True


def predictions(classes, n=600):
    """Return probabilities with exact zeros and ones, labels, groups (one of two rows), weights."""
    rng = np.random.default_rng(classes)
    group = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]).astype(object)
    z = rng.normal(scale=2.0, size=(n, classes))
    codes = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    z *= np.where(group == "a", 1.5, 3.0)[:, None]
    prob = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    certain = rng.random(n) < 0.1
    prob[certain] = np.eye(classes)[prob[certain].argmax(axis=1)]
    # none of these is the optimum's end: some certain rows are wrong, and "few" has both classes
    assert (prob[certain, codes[certain]] == 0.0).any()
    group[:3] = "few"
    prob[:3, :2], codes[:3] = [[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1]
    prob[:3, 2:] = 0.0
    return prob, np.array(["no", "perhaps", "yes"])[codes], group, rng.integers(1, 4, n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shrinkage", [0.0, 30.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_three_doors_give_the_same_temperatures_and_probabilities(
    tmp_path, classes, shrinkage, weighted
):
    prob, y, group, weight = predictions(classes)
    labels = sorted(set(y))
    rows = {"sensitive_features": group, "sample_weight": weight if weighted else None}
    scaling = GroupTemperatureScaling(from_proba=True, shrinkage=shrinkage)
    fit_with_warnings(scaling, shrinkage, prob, y, **rows)
    # weights count by their ratios: these rows are as good as n of equal weight
    n = weight[:3].sum() ** 2 / (weight[:3] ** 2).sum() if weighted else 3
    assert scaling.trust_["few"] == pytest.approx(n / (n + shrinkage))
    calibrated = scaling.predict_proba(prob, sensitive_features=group)

    model = GroupCalibratedClassifier(
        FrozenEstimator(Given(labels)), method="temperature", shrinkage=shrinkage
    )
    fit_with_warnings(model, shrinkage, prob, y, **rows)
    assert model.temperatures_ == scaling.temperatures_
    assert model.calibrator_.temperature == scaling.temperature_
    assert (model.trust_, model.shares_) == (scaling.trust_, scaling.shares_)
    np.testing.assert_array_equal(model.predict_proba(prob, sensitive_features=group), calibrated)

    # the command takes no weights: each row is there as often as its weight
    names = [f"prob_{label}" for label in labels]
    frame = pd.DataFrame(prob, columns=names).assign(y=y, sex=group)
    times = weight if weighted else np.ones(len(y), int)
    frame.loc[frame.index.repeat(times)].to_csv(tmp_path / "held_out.csv", index=False)
    frame.to_parquet(tmp_path / "new.parquet")
    columns = [part for name in names for part in ("--prob", name)]
    run(
        "calibrate", tmp_path / "held_out.csv", "--label", "y", "--group", "sex", *columns,
        "--method", "temperature", "--shrinkage", shrinkage, "--out", tmp_path / "t.json",
    )  # fmt: skip
    run(
        "calibrate", tmp_path / "new.parquet", "--apply", tmp_path / "t.json",
        "--out", tmp_path / "c.parquet",
    )  # fmt: skip
    by_command = GroupCalibrator.load(tmp_path / "t.json")
    repeated = GroupTemperatureScaling(from_proba=True, shrinkage=shrinkage)
    fit_with_warnings(
        repeated, shrinkage, prob.repeat(times, axis=0), y.repeat(times),
        sensitive_features=group.repeat(times),
    )  # fmt: skip
    if not (weighted and shrinkage):  # under shrinkage, three rows are more than one of weight 3
        assert repeated.temperatures_ == pytest.approx(scaling.temperatures_, rel=1e-9)
    assert by_command.temperatures_ == pytest.approx(repeated.temperatures_, rel=1e-9)
    written = pd.read_parquet(tmp_path / "c.parquet")[[f"calibrated_{name}" for name in names]]
    expected = repeated.predict_proba(prob, sensitive_features=group)
    np.testing.assert_allclose(written, expected, rtol=1e-9)


def fit_with_warnings(estimator, shrinkage, prob, y, **rows):
    """Fit to rows of which some are certain, and a group is small."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(prob, y, **rows)
    said = {type(w.message): w.message for w in caught}
    assert len(said) == len(caught) == 1 + (shrinkage == 0.0)
    assert said[ClippedWarning].rows == (prob < 1e-6).any(axis=1).sum()
    if shrinkage == 0.0:
        few = (rows["sensitive_features"] == "few").sum()
        assert (said[SmallGroupWarning].few["few"], said[SmallGroupWarning].reasons) == (few, {})


def run(*arguments):
    result = click.testing.CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output


def test_three_doors_treat_groups_alike():
    prob, y, group, _ = predictions(2)
    y[group == "c"] = "no"
    group[5:10] = "c"
    y[5:10] = "no"
    scaling = GroupTemperatureScaling(from_proba=True)
    model = GroupCalibratedClassifier(
        FrozenEstimator(Given(["no", "perhaps"])), method="temperature", shrinkage=0.0
    )
    for each in (scaling, model):
        with (
            pytest.warns(ClippedWarning),
            pytest.warns(SmallGroupWarning, match=r"group 'c' \(\d+ rows, none of class 'perhaps'"),
        ):
            each.fit(prob, y, sensitive_features=group)
        with pytest.raises(
            UnseenGroupError,
            match=r"^2 rows belong to group 'x', which has no fitted calibrator "
            r"\(known: a, b, c, few\); correct the group, or pass unseen_group='global'",
        ) as caught:
            each.predict_proba(prob[:4], sensitive_features=["x", "a", "x", "z"])
        # as between the processes of a cross-validation
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.rows) == (str(caught.value), 2)
    for policy in ("global", "mixture"):
        found = [
            each.set_params(unseen_group=policy).predict_proba(
                prob[:4], sensitive_features=["x", "a", None, "z"]
            )
            for each in (scaling, model)
        ]
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", ["f4", "f8", "column"])
def test_probabilities_become_scores_that_are_clipped_once(kind):
    prob = np.array([[0.0, 1.0], [1e-7, 1 - 1e-7], [0.25, 0.75]])
    expected = np.log(np.maximum(prob, 1e-6))
    given = prob[:, 1] if kind == "column" else prob.astype(kind)
    np.testing.assert_allclose(scores_of(given), expected, rtol=1e-6, atol=1e-7)


# --- files -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_a_saved_classifier_predicts_the_same_to_the_last_bit(tmp_path, method, classes):
    X, y, group = sample(600, classes, groups=("f", "m", "x"))
    model = GroupCalibratedClassifier(GaussianNB(), method=method, unseen_group="mixture", cv=3)
    model.fit(X, y, sensitive_features=group, sample_weight=np.linspace(0.5, 2, 600))
    model.save(tmp_path / "m.json", estimator=False)
    loaded = GroupCalibratedClassifier.load(tmp_path / "m.json", estimator=model.estimator_)
    fresh, _, member = sample(300, classes, groups=("f", "m", "new"), seed=1)
    np.testing.assert_array_equal(
        loaded.predict_proba(fresh, sensitive_features=member),
        model.predict_proba(fresh, sensitive_features=member),
    )
    with pytest.warns(NoGroupsWarning, match="the policy 'mixture'"):
        without = [each.predict_proba(fresh) for each in (loaded, model)]
    np.testing.assert_array_equal(*without)
    assert (
        loaded.predict(fresh, sensitive_features=member).tolist()
        == model.predict(fresh, sensitive_features=member).tolist()
    )
    for name in (
        "groups_", "trust_", "shares_", "calibrator_", "calibrators_", "n_features_in_", "method_",
        "selection_",
    ):  # fmt: skip
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.method_ == (method if method != "auto" else loaded.selection_.method)
    params = {k: v for k, v in model.get_params(deep=False).items() if k != "estimator"}
    assert {k: loaded.get_params()[k] for k in params} == params
    loaded.save(tmp_path / "again.json", estimator=False)
    assert (tmp_path / "again.json").read_text() == (tmp_path / "m.json").read_text()


def test_columns_and_labels_of_a_saved_classifier(tmp_path):
    X, y, group = sample(300)
    codes = (y == "bee").astype(int)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group == "f", age=codes)
    inner = FrozenEstimator(OnlyNumbers().fit(frame, codes))
    model = GroupCalibratedClassifier(inner, sensitive_columns=["sex"], cv=StratifiedKFold(3))
    model.fit(frame, codes)
    model.save(tmp_path / "m.json", estimator=False)
    loaded = GroupCalibratedClassifier.load(tmp_path / "m.json", estimator=inner)
    assert loaded.sensitive_columns == ("sex",)
    assert loaded.groups_ == [False, True]
    assert loaded.predict(frame).tolist() == model.predict(frame).tolist()
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))


class OnlyNumbers(LogisticRegression):
    def fit(self, X, y):
        return super().fit(X[list("abcd")], y)

    def predict(self, X):
        return super().predict(X[list("abcd")])

    def decision_function(self, X):
        return super().decision_function(X[list("abcd")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["sets"][0].pop("curves"),
        lambda d: d["sets"][0].update(curves=[]),
        lambda d: d["sets"][0]["curves"][0].update(slope=None),
        lambda d: d["sets"][0]["curves"][0].update(slope=float("nan")),
        lambda d: d["sets"][0]["curves"][0].update(surprise=1.0),
        lambda d: d["sets"][0]["curves"].extend(2 * d["sets"][0]["curves"]),
        lambda d: d["sets"][0]["groups"][0].pop("trust"),
        lambda d: d["sets"][0]["groups"][0].update(share=1.5),
        lambda d: d["sets"][0]["groups"][0].update(weights=[0.5, 0.4]),
        lambda d: d["sets"][0]["groups"][0]["calibrators"][0].update(curves=[{"temperature": 1.0}]),
        lambda d: d["sets"][0].update(groups=3),
        lambda d: d.update(sets=[]),
        lambda d: d.update(classes=["ay"]),
        lambda d: d["params"].update(surprise=1),
        lambda d: d["params"].update(method="guess"),
        lambda d: d.update(format="equipoise.GroupTemperatureScaling/1"),
    ],
)
def test_a_damaged_file_of_a_classifier_is_refused_by_its_name(tmp_path, damage):
    X, y, group = sample(300)
    path = tmp_path / "m.json"
    model = GroupCalibratedClassifier(GaussianNB(), method="platt", shrinkage=20)
    model.fit(X, y, sensitive_features=group).save(path, estimator=False)
    forge(path, damage)
    with pytest.raises(
        ValueError, match=r"m\.json is not a saved GroupCalibratedClassifier: (?!.*digest)"
    ):
        GroupCalibratedClassifier.load(path, estimator=model.estimator_)
    for other in (b"{", b'{"a": ' + b"[" * 100_000, b"{}", b"\xff\xfe", b"[1]", b""):
        path.write_bytes(other)
        with pytest.raises(
            ValueError, match=r"m\.json is not a saved (GroupCalibratedClassifier|model): "
        ):
            GroupCalibratedClassifier.load(path, estimator=model.estimator_)


def test_the_estimator_of_a_saved_classifier_has_to_be_the_right_one(tmp_path):
    X, y, group = sample(300)
    path = tmp_path / "m.json"
    model = GroupCalibratedClassifier(GaussianNB()).fit(X, y, sensitive_features=group)
    model.save(path, estimator=False)
    with pytest.raises(
        ValueError, match=r"m\.json does not contain the estimator; pass the fitted"
    ):
        GroupCalibratedClassifier.load(path)
    with pytest.raises(
        ValueError, match=r"m\.json .*classes \['ay', 'bee'\], but .* knows \[False, True\]"
    ):
        GroupCalibratedClassifier.load(path, estimator=GaussianNB().fit(X, y == "bee"))
    with pytest.raises(ValueError, match=r"m\.json .* not fitted yet"):
        GroupCalibratedClassifier.load(path, estimator=GaussianNB())
    with pytest.raises(ValueError, match="not fitted yet, so there is nothing to save"):
        GroupCalibratedClassifier(GaussianNB()).save(path)


# --- NumPy and torch -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 150_000])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_numpy_and_torch_find_the_same(classes, weighted, n):
    rng = np.random.default_rng(0)
    z = rng.normal(scale=2.0, size=(2, n, classes))
    y = (z[0] / 2 + rng.gumbel(size=(n, classes))).argmax(axis=1)
    group, weight = rng.integers(0, 3, n), rng.uniform(0, 2, n) if weighted else None
    as_tensors = [None if a is None else torch.from_numpy(a) for a in (z, y, group, weight)]
    found = fit_temperatures(z, y, group, n_groups=4, sample_weight=weight)
    tensors = fit_temperatures(
        *as_tensors[:3], n_groups=4, sample_weight=None if weight is None else as_tensors[3]
    )
    assert isinstance(found, np.ndarray)
    assert isinstance(tensors, torch.Tensor)
    np.testing.assert_allclose(found, tensors.numpy(), rtol=1e-9)
    problems = [
        Problem.of(a, b, c, 20.0).divided(g, 3)
        for a, b, g, c in ((z, y, group, weight), as_tensors)
    ]
    beta = np.linspace(0.2, 2.0, 6)
    pairs = zip(
        problems[0].derivatives(beta), problems[1].derivatives(torch.from_numpy(beta)), strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-9)
    assert [solve(p, (0.05, 20.0)).n_iter for p in problems].count(0) == 0
    if n == 300:

        def ece(t):
            return -t.sum(axis=1)  # falls as temperatures rise, so that some go all the way

        numbers, tensors = (paper_temperatures(p, ece, n, 2) for p in problems)
        np.testing.assert_allclose(numbers[0], tensors[0], rtol=1e-9)


def test_bounds_of_each_cell():
    z = np.random.default_rng(0).normal(size=(1, 200, 3))
    y = np.random.default_rng(1).integers(0, 3, 200)
    group = np.arange(200) % 2
    problem = Problem.of(z, y, None, 20.0).divided(group, 2)
    found = solve(problem, (np.array([0.1, 0.5]), np.array([3.0, 0.75])))
    assert found.temperature.tolist() == [3.0, 0.75]


@pytest.mark.slow
def test_calibration_runs_without_torch():
    # a process that cannot import torch, as after "pip install equipoise"
    code = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np
from sklearn.naive_bayes import GaussianNB
from equipoise import GroupCalibratedClassifier, GroupTemperatureScaling, TemperatureScaling
from equipoise.calibration import METHODS, fit_temperatures
rng = np.random.default_rng(0)
z, group = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
y = (z + rng.gumbel(size=z.shape)).argmax(1)
for solver in ("exact", "paper"):
    TemperatureScaling(solver=solver).fit_predict_proba(z, y)
    GroupTemperatureScaling(solver=solver).fit_predict_proba(z, y, sensitive_features=group)
for method in METHODS:
    model = GroupCalibratedClassifier(GaussianNB(), method=method)
    model.fit(z, y, sensitive_features=group).predict_proba(z, sensitive_features=group)
print(fit_temperatures(z[None], y, group).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(1, 2)", done.stderr


@pytest.mark.parametrize("scale", [1e-80, 1e80])
def test_scores_of_extreme_sizes(scale):
    rng = np.random.default_rng(0)
    z, members = rng.normal(size=(200, 3)), np.arange(200) % 2
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    expected = CalibratorSet.fit(Rows(z, y, members, "ab", range(3)), "temperature")
    found = CalibratorSet.fit(Rows(z * scale, y, members, "ab", range(3)), "temperature")
    for group in "ab":
        ratio = found.own[group].temperature / scale / expected.own[group].temperature
        assert ratio == pytest.approx(1.0, rel=1e-6)
