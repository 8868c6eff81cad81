"""Faults that reviews of the repair found, each as a test."""

import duckdb
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from equipoise import GroupCalibratedClassifier, GroupCalibrator, GroupTemperatureScaling
from equipoise.calibration import CalibrationWarning, FileCalibration, UnseenGroupError
from equipoise.cli import main

COLUMNS = {"label": "y", "prob": "p", "group": "g"}


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def world(n, seed=0, shift=0.6, names=("a", "b")):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    z = rng.normal(0.0, 1.2, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-z - shift * (2 * a - 1)))).astype(int)
    return pd.DataFrame({"y": y, "p": 1 / (1 + np.exp(-z)), "g": np.array(names, object)[a]})


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


# --- large files -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("method", ["auto", "isotonic"])
def test_merged_rows_of_rounded_probabilities(monkeypatch, method, digits):
    """One merged row stands for many rows: it must not be a unit of its own in the folds."""
    frame = world(20_000, shift=0.3).assign(p=lambda d: d["p"].round(digits).clip(0.01, 0.99))
    frame.to_parquet("d.parquet")
    whole = FileCalibration.fit("d.parquet", **COLUMNS, method=method)
    monkeypatch.setattr("equipoise.calibration._file_gathered.KEPT", 1000)
    merged = FileCalibration.fit("d.parquet", **COLUMNS, method=method)
    gains = [each.measured.gains[None].mean for each in (whole, merged)]
    assert gains[1] == pytest.approx(gains[0], abs=1e-3)
    if method == "auto":
        found, want = merged.calibrator.selection_, whole.calibrator.selection_
        assert found.method != "none"
        assert found.gain == pytest.approx(want.gain, abs=1e-3)
        assert found.high - found.low == pytest.approx(want.high - want.low, rel=0.1)


def test_a_batch_that_is_wholly_held_out(monkeypatch):
    monkeypatch.setattr("equipoise.calibration._file_gathered.KEPT", 300)
    monkeypatch.setattr("equipoise._files._batches.BATCH", 2)
    rng = np.random.default_rng(0)
    prob = rng.dirichlet(np.ones(3), 400)
    y = (prob.cumsum(axis=1) < rng.random((400, 1))).sum(axis=1)
    frame = pd.DataFrame(prob, columns=["p0", "p1", "p2"]).assign(
        y=y, g=rng.choice(["a", "b"], 400)
    )
    frame.to_csv("d.csv", index=False)
    columns = COLUMNS | {"prob": ["p0", "p1", "p2"]}
    found = FileCalibration.fit("d.csv", **columns, method="bcts", holdout=0.5)
    assert 150 < found.measured.before["rows"].sum() < 250


# --- another file to measure on --------------------------------------------------------------


def test_one_new_group_does_not_rename_the_others():
    world(600, names=(1, 2)).to_csv("d.csv", index=False)
    other = world(600, seed=1, names=(1, 2))
    other.to_csv("o.csv", index=False)
    want = FileCalibration.fit("d.csv", **COLUMNS, method="bcts", holdout="o.csv").measured
    more = pd.concat([other, other[:3].assign(g="x")])
    more.to_csv("m.csv", index=False)
    with pytest.raises(UnseenGroupError, match=r"3 rows belong to group 'x'.* \(known: 1, 2\)"):
        FileCalibration.fit("d.csv", **COLUMNS, method="bcts", holdout="m.csv")
    options = {"method": "bcts", "holdout": "m.csv", "unseen_group": "global"}
    found = FileCalibration.fit("d.csv", **COLUMNS, **options).measured
    assert list(found.gains) == [None, 1, 2, "x"]
    assert found.gains[1] == want.gains[1]
    assert found.gains[2] == want.gains[2]


def test_a_new_label_is_refused():
    world(600).to_csv("d.csv", index=False)
    world(60).assign(y=lambda d: d["y"] + 1).to_csv("o.csv", index=False)
    with pytest.raises(ValueError, match="column 'y' contains '2', and the calibrators are fitted"):
        FileCalibration.fit("d.csv", **COLUMNS, holdout="o.csv")


def test_the_file_that_is_fitted_to_is_no_holdout():
    world(60).to_csv("d.csv", index=False)
    names = ("--label", "y", "--prob", "p", "--group", "g", "--out", "t.json")
    assert "holdout is the file that is fitted to" in run(
        "calibrate", "d.csv", *names, "--holdout", "./d.csv", code=2
    )


def test_one_row_has_no_interval():
    world(300).to_csv("d.csv", index=False)
    world(300, seed=1)[:1].to_csv("o.csv", index=False)
    found = FileCalibration.fit("d.csv", **COLUMNS, method="bcts", holdout="o.csv").measured
    assert (found.gains[None].low, found.gains[None].high) == (-np.inf, np.inf)
    assert "which may be chance" in found.text


# --- figures that agree ----------------------------------------------------------------------


def test_an_exact_zero_counts_alike_before_and_after():
    frame = pd.concat([world(400), pd.DataFrame({"y": [1], "p": [0.0], "g": ["a"]})])
    frame.to_csv("d.csv", index=False)
    with pytest.warns(CalibrationWarning, match="1 of 401 rows has a probability below"):
        found = FileCalibration.fit("d.csv", **COLUMNS, method="none").measured
    assert not found.helps
    assert (found.gains[None].mean, found.gains[None].low) == (0.0, 0.0)
    assert found.before["log_loss"].sum() == pytest.approx(found.after["log_loss"].sum())
    assert np.isfinite(found.before["log_loss"]).all()


def test_rows_that_do_not_sum_to_one_are_not_repaired_by_nothing():
    frame = world(400).assign(p_0=lambda d: (1 - d["p"]) * 1.0009, p_1=lambda d: d["p"] * 1.0009)
    frame.to_csv("d.csv", index=False)
    columns = COLUMNS | {"prob": ["p_0", "p_1"]}
    assert not FileCalibration.fit("d.csv", **columns, method="none").measured.helps


def test_spaces_around_a_group_in_sql():
    pytest.importorskip("sqlglot")
    frame = world(600, names=("A", "A "))
    frame = pd.concat([frame, world(300, seed=1, names=("B", " B"))])
    frame.to_parquet("d.parquet")
    fitted = FileCalibration.fit("d.parquet", **COLUMNS, method="bcts", unseen_group="global")
    fitted.apply("d.parquet", "c.parquet")
    want = pd.read_parquet("c.parquet")["calibrated_p"]
    query = fitted.to_sql().query("predictions")
    predictions = frame
    assert len(predictions) == 900
    found = duckdb.sql(query).df()["calibrated_p"]
    assert list(fitted.calibrator.calibrators_) == ["A", "B"]
    assert np.abs(found.to_numpy() - want.to_numpy()).max() < 1e-12


def test_a_total_beside_a_group_called_all():
    world(300, names=("all", "b")).to_csv("d.csv", index=False)
    shown = run(
        "calibrate", "d.csv", "--label", "y", "--prob", "p", "--group", "g", "--out", "t.json"
    )
    assert "all rows 300 before" in shown
    assert "'all'" in shown


# --- groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", ["auto", 1e9])
@pytest.mark.parametrize("method", ["temperature", "bcts"])
def test_a_group_with_tiny_scores_gets_the_common_calibrator(method, shrinkage):
    """Its own bounds, in units of its scores, do not apply to parameters that are not its own."""
    rng = np.random.default_rng(0)
    group = np.repeat(["wide", "other", "narrow"], [1000, 1000, 60])
    z = rng.normal(0.0, np.where(group == "narrow", 0.02, 1.5))
    y = rng.random(2060) < 1 / (1 + np.exp(-z))
    fitted = GroupCalibrator(method=method, shrinkage=shrinkage).fit(z, y, sensitive_features=group)
    common, own = fitted.calibrator_.temperature, fitted.calibrators_["narrow"].temperature
    assert own == pytest.approx(common, rel=0.05)


def test_few_clusters_and_few_rows():
    frame = world(400)
    fitted = GroupCalibrator(method="beta", from_proba=True)
    given = {"sensitive_features": frame["g"]}
    fitted.fit(frame["p"], frame["y"], **given, clusters=np.arange(400) // 100)
    assert 0.0 < fitted.trust_["a"] < 1.0
    fitted.fit(frame["p"], frame["y"], **given, clusters=np.zeros(400, int))
    assert fitted.trust_["a"] < 1e-6
    auto = GroupCalibrator(from_proba=True)
    with pytest.raises(ValueError, match="folds, which need at least two rows, and two clusters"):
        auto.fit(frame["p"], frame["y"], **given, clusters=np.zeros(400, int))


def test_a_fold_of_an_ensemble_without_a_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.repeat([0, 1, 2], [150, 143, 7])
    X[:, 0] += y
    group = rng.choice(["a", "b"], 300)
    model = GroupCalibratedClassifier(LogisticRegression(), method="bcts", cv=10, ensemble=True)
    with pytest.warns(CalibrationWarning, match="a fold has no rows of class 2, so its calib"):
        model.fit(X, y, sensitive_features=group)
    prob = model.predict_proba(X, sensitive_features=group)
    np.testing.assert_allclose(prob.sum(axis=1), 1.0)
    model.save("m.json", estimator=False)
    again = GroupCalibratedClassifier.load("m.json", estimator=model.estimators_)
    np.testing.assert_array_equal(again.predict_proba(X, sensitive_features=group), prob)


def test_single_precision_is_saved_to_the_last_bit():
    frame = world(600)
    z = np.log(frame["p"] / (1 - frame["p"])).to_numpy(np.float32)
    for method in ("platt", "beta", "isotonic"):
        fitted = GroupCalibrator(method=method, shrinkage=20)
        fitted.fit(z, frame["y"], sensitive_features=frame["g"]).save("t.json")
        found = [
            each.predict_proba(z, sensitive_features=frame["g"])
            for each in (fitted, GroupCalibrator.load("t.json"))
        ]
        np.testing.assert_array_equal(*found)
        np.testing.assert_allclose(found[0].sum(axis=1), 1.0, rtol=1e-15)


# --- forged values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        (
            "isotonic",
            lambda d: d["curves"][0].update(values=[5.0] * 40),
            "value for each threshold",
        ),
        ("isotonic", lambda d: d["curves"][0]["values"].__setitem__(0, 5.0), "not within 0..1"),
        ("isotonic", lambda d: d["curves"][0]["thresholds"].reverse(), "in order"),
        ("bcts", lambda d: d["groups"][0].update(share=1.0), "do not add up to 1"),
        ("bcts", lambda d: d["groups"].append(d["groups"][0]), "a group is there twice"),
        ("bcts", lambda d: d.update(method="temperature"), "not those of method='temperature'"),
        ("auto", lambda d: d["selection"]["log_loss"].update(none=float("nan")), "not finite"),
    ],
)
def test_values_that_are_no_calibrator(method, change, words):
    frame = world(600)
    fitted = GroupCalibrator(method=method, from_proba=True, shrinkage=0)
    data = fitted.fit(frame["p"], frame["y"], sensitive_features=frame["g"]).to_dict()
    data = {**data, "groups": [dict(g) for g in data["groups"]]}
    if "curves" in data:
        data["curves"] = [{k: list(v) for k, v in c.items()} for c in data["curves"]]
    GroupCalibrator.from_dict(data)
    change(data)
    with pytest.raises(ValueError, match=words):
        GroupCalibrator.from_dict(data)


def test_a_bias_is_no_temperature():
    frame = world(600)
    fitted = GroupTemperatureScaling(from_proba=True)
    data = fitted.fit(frame["p"], frame["y"], sensitive_features=frame["g"]).to_dict()
    data["groups"][0]["bias"] = [0.5, -0.5]
    with pytest.raises(ValueError, match="a calibrator of it is no temperature"):
        GroupTemperatureScaling.from_dict(data)
