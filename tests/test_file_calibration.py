"""Repairs of files: methods, rows to measure on, and files that do not fit into memory."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import t

from equipoise import GroupCalibrator
from equipoise.calibration import METHODS, FileCalibration, UnseenGroupError
from equipoise.cli import main
from equipoise.cli._calibrate import METHOD_NAMES

pytestmark = pytest.mark.slow  # files, engines and libraries at work

COLUMNS = {"label": "y", "prob": "p", "group": "sex"}


def table_of(n, seed=0, bias=0.8, slope=(0.5, 1.0)):
    """Predictions whose log-odds are too steep in one group, and too low in the other."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    z = rng.normal(0.0, 1.5, n)
    y = rng.random(n) < 1 / (1 + np.exp(-np.array(slope)[a] * z - bias * a))
    return pd.DataFrame(
        {"y": y.astype(int), "p": 1 / (1 + np.exp(-z)), "sex": np.array(["f", "m"])[a]}
    )


def several(n, seed=0):
    rng = np.random.default_rng(seed)
    a, z = rng.integers(0, 2, n), rng.normal(0.0, 1.5, (n, 3))
    true = np.where(a, 0.5, 1.0)[:, None] * z + a[:, None] * [0.0, 0.3, -0.3]
    y = (true + rng.gumbel(size=z.shape)).argmax(axis=1)
    prob = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    frame = pd.DataFrame(prob, columns=["p_0", "p_1", "p_2"])
    return frame.assign(y=y, sex=np.array(["f", "m"])[a])


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(monkeypatch):
    """Files of more than 500 rows do not fit into memory, and batches have 100."""
    monkeypatch.setattr("equipoise.calibration._file_gathered.KEPT", 500)
    monkeypatch.setattr("equipoise._files._batches.BATCH", 100)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def command(data, *more, code=0):
    names = ("--label", "y", "--prob", "p", "--group", "sex")
    return run("calibrate", data, *names, "--out", "t.json", *more, code=code)


def losses(frame, p):
    return -np.log(np.where(frame["y"] == 1, p, 1 - p))


# --- methods ---------------------------------------------------------------------------------


def test_the_command_knows_the_methods():
    assert set(METHOD_NAMES) == {"auto", *METHODS}


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_method_gives_what_it_gives_in_python(method):
    frame = table_of(600)
    frame.to_csv("d.csv", index=False)
    command("d.csv", "--method", method)
    run("calibrate", "d.csv", "--apply", "t.json", "--out", "c.csv")
    fitted = GroupCalibrator(method=method, from_proba=True)
    fitted.fit(frame["p"], frame["y"], sensitive_features=frame["sex"])
    expected = fitted.predict_proba(frame["p"], sensitive_features=frame["sex"])[:, 1]
    np.testing.assert_allclose(pd.read_csv("c.csv")["calibrated_p"], expected, rtol=1e-9)
    assert json.loads(Path("t.json").read_text())["method"] == fitted.method_


def test_a_repair_that_does_not_help_says_so():
    table_of(300, bias=0.0, slope=(1.0, 1.0)).to_csv("d.csv", index=False)
    shown = command("d.csv", "--method", "isotonic")
    assert "verdict This repair does not help" in shown
    shown = command("d.csv", "--method", "auto", "--force")
    assert "method Nothing to repair" in shown
    assert "verdict" not in shown
    run("calibrate", "d.csv", "--apply", "t.json", "--out", "c.csv")
    found = pd.read_csv("c.csv")
    np.testing.assert_allclose(found["calibrated_p"], found["p"], rtol=1e-12)


# --- rows to measure on ----------------------------------------------------------------------


def test_a_share_of_the_rows_is_held_out():
    frame = table_of(4000)
    frame.to_csv("d.csv", index=False)
    fitted = FileCalibration.fit("d.csv", **COLUMNS, method="bcts", holdout=0.25)
    rows = int(fitted.measured.before["rows"].sum())
    assert 900 < rows < 1100
    shown = command("d.csv", "--method", "bcts", "--holdout", "0.25")
    assert "Repair of d.csv, measured on held-out rows (a share of 0.25)" in shown
    again = GroupCalibrator.load("t.json")
    assert again.calibrators_ == fitted.calibrator.calibrators_
    whole = FileCalibration.fit("d.csv", **COLUMNS, method="bcts").calibrator
    assert whole.calibrators_ != fitted.calibrator.calibrators_
    assert fitted.measured.helps


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_another_file_is_measured_on(ending):
    frame, other = table_of(800), table_of(1500, seed=2)
    frame.to_csv("d.csv", index=False)
    other.to_csv("o.csv", index=False) if ending == "csv" else other.to_parquet("o.parquet")
    shown = command("d.csv", "--method", "bcts", "--holdout", f"o.{ending}")
    assert f"Repair of d.csv, measured on o.{ending}" in shown
    fitted = GroupCalibrator(method="bcts", from_proba=True)
    fitted.fit(frame["p"], frame["y"], sensitive_features=frame["sex"])
    after = fitted.predict_proba(other["p"], sensitive_features=other["sex"])[:, 1]
    gain = losses(other, other["p"]) - losses(other, after)
    error = t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    assert (
        f"The repair lowers the log-loss by {gain.mean():.4f} "
        f"({gain.mean() - error:.4f} to {gain.mean() + error:.4f})."
    ) in shown
    measured = FileCalibration.fit("d.csv", **COLUMNS, method="bcts", holdout=f"o.{ending}")
    assert measured.measured.gains[None].mean == pytest.approx(gain.mean())
    for sex in "fm":
        own = (other["sex"] == sex).to_numpy()
        assert measured.measured.gains[sex].mean == pytest.approx(gain[own].mean())


def test_groups_that_only_the_other_file_has():
    frame, other = table_of(800), table_of(500, seed=1)
    other.loc[:9, "sex"] = "x"
    frame.to_csv("d.csv", index=False)
    other.to_csv("o.csv", index=False)
    with pytest.raises(UnseenGroupError, match="group 'x', which has no fitted calibrator"):
        FileCalibration.fit("d.csv", **COLUMNS, holdout="o.csv")
    found = FileCalibration.fit("d.csv", **COLUMNS, holdout="o.csv", unseen_group="global")
    assert list(found.calibrator.calibrators_) == ["f", "m"]
    assert list(found.measured.gains) == [None, "f", "m", "x"]


@pytest.mark.parametrize(
    ("holdout", "words"),
    [
        ("1.5", "holdout must be a share between 0 and 1, or a file, got 1.5"),
        ("0", "holdout must be a share between 0 and 1"),
        ("none.csv", "there is no file or folder none.csv"),
        ("0.999999", "leaves no row to fit to; use a smaller share"),
        ("0.000001", "no row was held out to measure the repair on; use a larger share"),
        ("other.csv", "no column 'sex'"),
    ],
)
def test_mistakes_in_the_rows_to_measure_on(tmp_path, holdout, words):
    table_of(60).to_csv("d.csv", index=False)
    table_of(60).drop(columns="sex").to_csv("other.csv", index=False)
    assert words in command("d.csv", "--holdout", holdout, code=2)
    assert {p.name for p in tmp_path.iterdir()} == {"d.csv", "other.csv"}


def test_a_class_that_is_too_rare_to_cross_fit(tmp_path):
    frame = table_of(60)
    frame["y"] = 0
    frame.loc[3, "y"] = 1
    frame.to_csv("d.csv", index=False)
    shown = command("d.csv", code=2)
    assert "label 1 has too few rows to measure the repair out of fold" in shown.replace("'", "")
    assert "pass --holdout FILE to measure on" in shown
    assert {p.name for p in tmp_path.iterdir()} == {"d.csv"}


# --- files that do not fit into memory -------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", ["temperature", "bcts", "beta", "isotonic"])
def test_merged_rows_give_nearly_what_all_rows_give(method, monkeypatch):
    frame = table_of(20_000)
    frame.to_parquet("d.parquet")
    merged = FileCalibration.fit("d.parquet", **COLUMNS, method=method)
    monkeypatch.setattr("equipoise.calibration._file_gathered.KEPT", 1 << 20)
    whole = FileCalibration.fit("d.parquet", **COLUMNS, method=method)
    assert (merged.note, whole.note) == ("", "")
    rows = {"sensitive_features": frame["sex"]}
    found, want = (
        each.calibrator.predict_proba(frame["p"], **rows)[:, 1] for each in (merged, whole)
    )
    if method == "isotonic":  # which rows form a block may change: its own error is .016
        assert np.sqrt(np.mean((found - want) ** 2)) < 0.008
    else:
        np.testing.assert_allclose(found, want, atol=2e-5 if method != "beta" else 0.005)
    # each row is measured, with calibrators of the other folds
    assert merged.measured.before == whole.measured.before
    gains = [each.measured.gains[None] for each in (merged, whole)]
    assert gains[0].mean == pytest.approx(gains[1].mean, abs=6e-4)
    assert gains[0].low == pytest.approx(gains[1].low, abs=6e-4)


@pytest.mark.usefixtures("small")
def test_a_method_is_chosen_for_merged_rows():
    table_of(3000).to_parquet("d.parquet")
    selection = FileCalibration.fit("d.parquet", **COLUMNS, method="auto").calibrator.selection_
    want = FileCalibration.fit("d.parquet", **COLUMNS, method="bcts").measured
    assert selection.method != "none"
    # by paired rows, not by merged ones
    assert selection.gain == pytest.approx(want.gains[None].mean, abs=2e-3)
    width = want.gains[None].high - want.gains[None].low
    assert selection.high - selection.low == pytest.approx(width, rel=0.1)


@pytest.mark.usefixtures("small")
def test_of_several_classes_a_sample_is_fitted_to():
    frame = several(3000)
    frame.loc[frame.index[:100], "sex"] = "rare"
    frame.to_parquet("d.parquet")
    columns = COLUMNS | {"prob": ["p_0", "p_1", "p_2"]}
    found = FileCalibration.fit("d.parquet", **columns, method="bcts")
    count = int(found.note.removeprefix("fitted to a random sample of ").removesuffix(" rows"))
    assert 80 < count <= 500 // 3
    assert found.measured.before["rows"].sum() == 3000
    # rows of the smaller groups are kept first, and the shares are those of all rows
    assert found.calibrator.shares_["rare"] == pytest.approx(100 / 3000, rel=0.2)
    names = [word for name in columns["prob"] for word in ("--prob", name)]
    shown = run(
        "calibrate", "d.parquet", "--label", "y", *names, "--group", "sex", "--method", "bcts",
        "--out", "t.json",
    )  # fmt: skip
    assert f"note fitted to a random sample of {count} rows" in shown


@pytest.mark.usefixtures("small")
def test_a_share_is_held_out_of_a_large_file():
    table_of(4000).to_parquet("d.parquet")
    found = FileCalibration.fit("d.parquet", **COLUMNS, method="bcts", holdout=0.25)
    assert 900 < found.measured.before["rows"].sum() < 1100
    assert found.measured.helps


@pytest.mark.usefixtures("small")
def test_rows_of_clusters_are_all_kept():
    frame = table_of(1200).assign(person=np.arange(1200) // 3)
    frame.to_parquet("d.parquet")
    found = FileCalibration.fit("d.parquet", **COLUMNS, method="bcts", cluster="person")
    plain = GroupCalibrator(method="bcts", from_proba=True)
    plain.fit(frame["p"], frame["y"], sensitive_features=frame["sex"])
    for group, own in plain.calibrators_.items():
        assert found.calibrator.calibrators_[group].temperature == pytest.approx(own.temperature)
    assert found.measured.how == "out of fold (5 folds, each person in one)"


@pytest.mark.parametrize("holdout", ["0.4", "o.csv"])
def test_clusters_in_several_parts_of_the_rows_held_out(monkeypatch, holdout):
    """Rows of one person far apart in the file count as one person."""
    frame = pd.concat([table_of(300), table_of(300)]).assign(person=np.tile(np.arange(300), 2))
    frame.to_csv("d.csv", index=False)
    frame.to_csv("o.csv", index=False)
    options = {"method": "bcts", "cluster": "person"}
    options["holdout"] = holdout if holdout.endswith("csv") else float(holdout)
    whole = FileCalibration.fit("d.csv", **COLUMNS, **options).measured
    monkeypatch.setattr("equipoise._files._batches.BATCH", 50)
    parts = FileCalibration.fit("d.csv", **COLUMNS, **options).measured
    assert parts.gains == whole.gains
    assert parts.before == whole.before
    del options["cluster"]
    apart = FileCalibration.fit("d.csv", **COLUMNS, **options).measured
    if holdout == "o.csv":  # each person is there twice, so the interval is wider by root 2
        widths = [m.gains[None].high - m.gains[None].low for m in (whole, apart)]
        student = t.ppf(0.975, 299) / t.ppf(0.975, 599) * (300 / 299 * 599 / 600) ** 0.5
        assert widths[0] == pytest.approx(2**0.5 * widths[1] * student, rel=1e-6)
