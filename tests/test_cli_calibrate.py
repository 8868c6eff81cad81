"""Temperatures from the command line, of files alone: fitted, shown, and applied as a stream."""

import csv
import datetime
import decimal
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import t as student

import oracle_metrics as oracle
from equipoise import GroupCalibrator, GroupTemperatureScaling
from equipoise._files import Reader, reader, write_batches
from equipoise._inputs import text_of, typed
from equipoise.calibration import ClippedWarning
from equipoise.calibration._folds import clustered_folds, stratified_folds
from equipoise.cli import main
from table_data import forge

NOTES = ["plain", 'a "quoted" one', "comma, here", "two\nlines", "a\rb", "", "007", " spaced "]


def table_of(n=400, seed=0, groups=("f", "m")):
    """Predictions that are too sure of themselves in one group and not enough in the other."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, len(groups), n)
    log_odds = rng.normal(0.4 * a, 1.5, n)
    slope = np.linspace(0.5, 1.6, len(groups))[a]
    y = rng.random(n) < 1 / (1 + np.exp(-slope * log_odds))
    p = 1 / (1 + np.exp(-log_odds))
    return pd.DataFrame(
        {
            "id": [f"{i:05}" for i in range(n)],
            "note": [NOTES[i % len(NOTES)] for i in range(n)],
            "race": rng.choice(["x", "y"], n),
            "sex": np.array(groups, dtype=object)[a],
            "y": np.array(["no", "yes"])[y.astype(int)],
            "p": p,
            "prob_no": 1 - p,
            "prob_yes": p,
        }
    )


def several(n=500, seed=3):
    """Predictions of three classes."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (n, 3))
    prob = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    true = np.exp(z / 2) / np.exp(z / 2).sum(1, keepdims=True)
    y = (rng.random(n)[:, None] > true.cumsum(1)).sum(1)
    frame = pd.DataFrame(prob, columns=["low", "middle", "high"])
    frame["level"] = frame.columns.to_numpy()[y]
    frame["sex"] = rng.choice(["f", "m"], n)
    return frame


def save(frame, path):
    path = Path(path)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            whole = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
            csv.writer(file).writerows([frame.columns, *whole])
    else:
        frame.to_parquet(path, index=False)
    return path


def read_csv(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def column(path, name):
    """A column of a CSV or Parquet file as numbers."""
    if Path(path).suffix == ".csv":
        header, *rows = read_csv(path)
        return np.array([float(row[header.index(name)]) for row in rows])
    return pq.read_table(path)[name].to_numpy()


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def fit(data, out="t.json", *more, label="y", prob=("p",), group=("sex",), **keywords):
    names = [word for name in prob for word in ("--prob", name)]
    names += [word for name in group for word in ("--group", name)]
    given = {"--method": "temperature", "--shrinkage": "0"}
    how = [word for pair in given.items() if pair[0] not in more for word in pair]
    return run("calibrate", data, "--label", label, *names, "--out", out, *how, *more, **keywords)


def apply(data, out, *more, by="t.json", **keywords):
    return run("calibrate", data, "--apply", by, "--out", out, *more, **keywords)


def scaled(p, temperature):
    """p**(1/T) / (p**(1/T) + (1 - p)**(1/T)), the formula."""
    a, b = p ** (1 / temperature), (1 - p) ** (1 / temperature)
    return a / (a + b)


def best_temperature(prob, codes):
    """The temperature of least cross entropy, by scipy."""
    rows = np.arange(len(codes))

    def loss(log_t):
        z = np.log(prob) / np.exp(log_t)
        return np.mean(np.log(np.exp(z).sum(1)) - z[rows, codes])

    return np.exp(minimize_scalar(loss, bounds=(-3, 3), options={"xatol": 1e-10}).x)


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(monkeypatch):
    """Batches of a few rows."""
    monkeypatch.setattr("equipoise._files._batches.BATCH", 37)
    monkeypatch.setattr("equipoise._files._write.ROW_GROUP", 37)


# --- fit and apply ---------------------------------------------------------------------------


@pytest.mark.slow
def test_end_to_end(tmp_path):
    frame, new = table_of(), table_of(90, seed=1)
    save(frame, "held_out.csv")
    save(new.drop(columns="y"), "new.parquet")
    command = Path(sys.executable).with_name("equipoise")

    def shell(*arguments):
        return subprocess.run(
            [command, "calibrate", *arguments], check=True, capture_output=True, text=True
        ).stdout

    shell("held_out.csv", "--label", "y", "--prob", "p", "--group", "sex", "--out", "t.json",
          "--method", "temperature", "--shrinkage", "0")  # fmt: skip
    assert "90 calibrated rows in c.csv" in shell(
        "new.parquet", "--apply", "t.json", "--out", "c.csv"
    )
    assert {p.name for p in tmp_path.iterdir()} == {
        "held_out.csv", "new.parquet", "t.json", "c.csv"
    }  # fmt: skip
    p, y = frame["p"].to_numpy(), (frame["y"] == "yes").to_numpy().astype(int)
    expected = np.empty(len(new))
    for sex in "fm":
        own = (frame["sex"] == sex).to_numpy()
        t = best_temperature(np.stack([1 - p, p], 1)[own], y[own])
        mine = (new["sex"] == sex).to_numpy()
        expected[mine] = scaled(new["p"].to_numpy()[mine], t)
    np.testing.assert_allclose(column("c.csv", "calibrated_p"), expected, rtol=1e-6)


def out_of_fold(frame, folds):
    """Probabilities by a temperature per group that scipy fits to the other folds."""
    p, y = frame["p"].to_numpy(), (frame["y"] == "yes").to_numpy().astype(int)
    sex, after = frame["sex"].to_numpy(), np.full(len(p), np.nan)
    for train, test in folds:
        for g in np.unique(sex):
            fitting, own = train[sex[train] == g], test[sex[test] == g]
            t = best_temperature(np.stack([1 - p, p], 1)[fitting], y[fitting])
            after[own] = scaled(p[own], t)
    return after


def figures(shown):
    """Class ECE and log-loss that a repair shows, by group and by before, after and change."""
    found, group = {}, None
    for line in shown.splitlines():
        words = line.replace("all rows", "all").split()
        if not {"before", "after", "change"} & set(words[:3]) or "(" not in line:
            continue
        numbers = [float(w) for w in words if re.fullmatch(r"[-+]?\d\.\d{4}", w)]
        if words[0] not in ("after", "change"):
            group = words[0]
        found[group, next(w for w in words if w in ("before", "after", "change"))] = numbers
    return found


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_fitting_shows_and_saves(ending):
    frame = table_of()
    shown = fit(save(frame, f"d.{ending}"))
    saved = json.loads(Path("t.json").read_text())
    assert saved["columns"] == {"label": "y", "prob": ["p"], "group": ["sex"]}
    scaling = GroupCalibrator.load("t.json")
    assert scaling.classes_.tolist() == ["no", "yes"]
    assert scaling.from_proba
    p, y = frame["p"].to_numpy(), (frame["y"] == "yes").to_numpy().astype(int)
    sex = frame["sex"].to_numpy()
    for g in "fm":
        own = sex == g
        t = best_temperature(np.stack([1 - p, p], 1)[own], y[own])
        assert scaling.temperatures_[g] == pytest.approx(t, rel=1e-6)
    assert f"Repair of d.{ending}, measured out of fold (5 folds)" in shown
    after = out_of_fold(frame, stratified_folds(y, (sex == "m").astype(int), 5))
    table = figures(shown)
    for group, own in {"all": sex != "", "f": sex == "f", "m": sex == "m"}.items():
        losses = []
        for when, q in (("before", p), ("after", after)):
            class_ece = np.mean([
                oracle_class_ece((y[own] == k), q[own] if k else 1 - q[own]) for k in (0, 1)
            ])  # fmt: skip
            loss = -np.log(np.where(y[own], q[own], 1 - q[own]))
            assert table[group, when] == pytest.approx([class_ece, loss.mean()], abs=1.01e-4 / 2)
            losses.append(loss)
        assert table[group, "change"][-1] == pytest.approx(
            np.mean(losses[1] - losses[0]), abs=1.01e-4 / 2
        )
    gain = losses_of(y, p) - losses_of(y, after)
    error = student.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    ends = f"({gain.mean() - error:.4f} to {gain.mean() + error:.4f})"
    assert f"The repair lowers the log-loss by {gain.mean():.4f} {ends}." in shown
    sexes = sex.tolist()
    data = oracle.group_rates(y.tolist(), sexes, 2)
    before, now = (
        oracle.proportional_equality(data, oracle.model_rates(q.tolist(), sexes), reference="m")
        for q in (p, after)
    )
    assert sexes.count("m") > sexes.count("f")
    said = f"PE {before:.4f} before, {now:.4f} after (stochastic, compared with group m)"
    assert said in " ".join(shown.split())


def losses_of(y, p):
    return -np.log(np.where(y, p, 1 - p))


def oracle_class_ece(y, p):
    """ECE of one class with 15 bins (lo, hi], by a plain loop."""
    total = 0.0
    for i in range(15):
        own = (p > i / 15) & (p <= (i + 1) / 15) if i else p <= 1 / 15
        if own.any():
            total += own.sum() * abs(p[own].mean() - y[own].mean())
    return total / len(p)


def ece(y, p):
    curve = oracle.reliability_curve(y, p)
    return sum(row[2] * abs(row[3] - row[4]) for row in curve if row[2]) / len(y)


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.parametrize("target", ["csv", "parquet", "pq"])
@pytest.mark.parametrize("replace", [False, True])
def test_columns_written(source, target, replace):
    frame = table_of(120)
    data = save(frame, f"d.{source}")
    fit(data, prob=("prob_no", "prob_yes"))
    out = Path(f"c.{target}")
    assert apply(data, out, *["--replace"] * replace) == f"120 calibrated rows in {out}\n"
    names = ["prob_no", "prob_yes"] if replace else ["calibrated_prob_no", "calibrated_prob_yes"]
    expected = [*frame.columns, *([] if replace else names)]
    scaling = GroupCalibrator.load("t.json")
    t = frame["sex"].map(scaling.temperatures_).to_numpy()
    p = frame["prob_yes"].to_numpy()
    if target == "csv":
        header, *rows = read_csv(out)
    else:
        table = pq.read_table(out)
        header, rows = table.column_names, list(zip(*table.to_pydict().values(), strict=True))
    assert header == expected
    for name, wanted in zip(names, (scaled(1 - p, t), scaled(p, t)), strict=True):
        found = np.array([row[header.index(name)] for row in rows], float)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    kept = [name for name in frame.columns if name not in names]
    for name in kept:
        found = [row[header.index(name)] for row in rows]
        if name in ("p", "prob_no", "prob_yes"):
            assert [float(v) for v in found] == frame[name].tolist()
        else:
            assert found == frame[name].tolist()


def test_cells_of_a_csv_stay_as_they_are():
    frame = table_of(40)
    with Path("d.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\r\n")
        writer.writerow(["", "a\nb", "é", "sex", "y", " p "])
        for i, row in frame.iterrows():
            writer.writerow([i, row["note"], "+01.50", row["sex"], row["y"], f" {row['p']!r} "])
        file.write("\r\n")
    fit("d.csv")
    apply("d.csv", "c.csv")
    header, *rows = read_csv("c.csv")
    assert header == ["", "a\nb", "é", "sex", "y", "p", "calibrated_p"]
    assert [row[:3] for row in rows] == [
        [str(i), note, "+01.50"] for i, note in enumerate(frame["note"])
    ]
    assert [row[5] for row in rows] == [f" {p!r} " for p in frame["p"]]
    assert b"\r\n" not in Path("c.csv").read_bytes()


def test_types_of_a_parquet_file_stay_as_they_are():
    frame = table_of(30)
    table = pa.table(
        {
            "big": pa.array([None, *(2**62 + i for i in range(29))]),
            "tags": pa.array([["a", "b"]] * 29 + [None]),
            "when": pa.array([datetime.datetime(2020, 1, 1, 12)] * 30),
            "bytes": pa.array([b"\xff\x00"] * 30),
            "truth": pa.array([True, False, None] * 10),
            "exact": pa.array([decimal.Decimal("1.10")] * 30),
            "sex": pa.array(frame["sex"].tolist()).dictionary_encode(),
            "y": frame["y"].tolist(),
            "p": frame["p"].to_numpy(),
        },
        metadata={"made": "here"},
    )
    pq.write_table(table, "d.parquet")
    fit("d.parquet")
    apply("d.parquet", "c.parquet")
    apply("d.parquet", "c.csv")
    written = pq.read_table("c.parquet")
    assert written.drop(["calibrated_p"]).equals(table)
    assert written.schema.metadata[b"made"] == b"here"
    header, first, *rows = read_csv("c.csv")
    assert first[:3] == ["", "['a', 'b']", "2020-01-01 12:00:00.000000"]
    assert rows[0][0] == str(2**62)
    assert rows[-1][1] == ""
    assert [first[header.index(n)] for n in ("truth", "exact", "sex")] == [
        "true", "1.10", frame["sex"][0]
    ]  # fmt: skip


# --- classes ---------------------------------------------------------------------------------


def test_several_classes():
    frame = several()
    names = ("low", "middle", "high")
    prob = frame[list(names)].to_numpy()
    codes = np.array([names.index(v) for v in frame["level"]])
    save(frame, "d.csv")
    save(frame.rename(columns={n: f"prob_{n}" for n in names}), "prefixed.parquet")
    save(frame.rename(columns=dict(zip(names, "abc", strict=True))), "other.csv")
    fit("d.csv", "one.json", label="level", prob=names)
    fit("prefixed.parquet", "two.json", label="level", prob=[f"prob_{n}" for n in names])
    fit("other.csv", "three.json", "--labels", 'low, "middle",high', label="level", prob="abc")
    fit("d.csv", "four.json", label="level", prob=("high", "low", "middle"))
    scalings = [GroupCalibrator.load(f"{n}.json") for n in ("one", "two", "three", "four")]
    for scaling in scalings:
        assert set(scaling.classes_) == set(names)
        for sex in "fm":
            own = (frame["sex"] == sex).to_numpy()
            expected = best_temperature(prob[own], codes[own])
            assert scaling.temperatures_[sex] == pytest.approx(expected, rel=1e-6)
    assert scalings[3].classes_.tolist() == ["high", "low", "middle"]
    apply("d.csv", "c.parquet", by="four.json")
    t = frame["sex"].map(scalings[0].temperatures_).to_numpy()[:, None]
    powers = prob ** (1 / t)
    found = np.stack([column("c.parquet", f"calibrated_{n}") for n in names], 1)
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        ([], [0, 1]),
        (["--positive", "0"], [1, 0]),
        ([], [-1, 10]),
        (["--positive", "2.0"], [10, 2]),
        ([], [False, True]),
        (["--positive", "False"], [True, False]),
        ([], ["no", "yes"]),
        (["--labels", "yes,no"], ["yes", "no"]),
        ([], ["10b", "9"]),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_one_column_is_of_the_second_label(options, classes, ending):
    frame = table_of()
    right = (frame["y"] == "yes").to_numpy()
    frame["y"] = [classes[int(r)] for r in right]
    fit(save(frame, f"d.{ending}"), "t.json", *options)
    scaling = GroupCalibrator.load("t.json")
    assert scaling.classes_.tolist() == classes
    assert [type(v) for v in scaling.classes_.tolist()] == [type(v) for v in classes]
    p = np.stack([frame["prob_no"], frame["prob_yes"]], 1)
    own = (frame["sex"] == "f").to_numpy()
    y = np.array([classes.index(v) for v in frame["y"]])
    assert scaling.temperatures_["f"] == pytest.approx(best_temperature(p[own], y[own]), rel=1e-6)


# --- groups ----------------------------------------------------------------------------------


GROUPS = {
    "csv": lambda a: ("csv", a),
    "csv, decimals": lambda a: ("csv", a.astype(float)),
    "int8": lambda a: ("parquet", a.astype("int8")),
    "float": lambda a: ("parquet", a.astype(float)),
    "decimal": lambda a: ("parquet", pd.Series([decimal.Decimal(f"{v}.0") for v in a])),
    "text": lambda a: ("parquet", a.astype(str)),
    "category": lambda a: ("parquet", a.astype(str).astype("category")),
}


@pytest.mark.slow
@pytest.mark.parametrize("fitted", GROUPS)
def test_a_group_of_numbers_is_the_same_in_any_file(fitted):
    frame = table_of(groups=(1, 2))
    number = frame["sex"].astype(int)
    ending, values = GROUPS[fitted](number)
    fit(save(frame.assign(sex=values), f"d.{ending}"))
    scaling = GroupCalibrator.load("t.json")
    assert list(scaling.temperatures_) == [1, 2]
    t = number.map(scaling.temperatures_).to_numpy()
    for name, convert in GROUPS.items():
        ending, values = convert(number)
        data = save(frame.assign(sex=values), f"new.{ending}")
        apply(data, "c.parquet", "--force")
        found = column("c.parquet", "calibrated_p")
        np.testing.assert_allclose(found, scaled(frame["p"], t), rtol=1e-12, err_msg=name)


def test_a_group_of_truth_values_is_the_same_in_any_file():
    frame = table_of(groups=(False, True))
    truth = frame["sex"].astype(bool)
    fit(save(frame.assign(sex=truth), "d.parquet"))
    assert list(GroupCalibrator.load("t.json").temperatures_) == [False, True]
    apply("d.parquet", "c.parquet")
    for spelling in (str, lambda v: str(v).lower(), lambda v: str(v).upper()):
        apply(save(frame.assign(sex=truth.map(spelling)), "e.csv"), "e.parquet", "--force")
        np.testing.assert_array_equal(
            column("c.parquet", "calibrated_p"), column("e.parquet", "calibrated_p")
        )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 1.0, "1", " 1.0 ", "+1", "1e0", decimal.Decimal("1.00"), np.float64(1)], "1"),
        ([0.5, "0.5", ".5", "5e-1", decimal.Decimal("0.5")], "0.5"),
        ([0, -0.0, "-0", "0.0"], "0"),
        ([True, "True", "TRUE", "true "], "true"),
        (["01", " 01"], "01"),
        ([10**20, f"{10**20}"], f"{10**20}"),
        (["inf"], "inf"),
        (["a b ", "a b"], "a b"),
        ([None, float("nan")], None),
        ([""], ""),
    ],
)
def test_text_of_values(values, text):
    assert [text_of(v) for v in values] == [text] * len(values)


def test_values_of_texts():
    assert typed(["1", "0.5", "-2"]) == {"1": 1, "0.5": 0.5, "-2": -2}
    assert typed(["true", "false"]) == {"true": True, "false": False}
    assert typed(["1", "b"]) == {"1": "1", "b": "b"}
    assert typed(["01", "1"]) == {"01": "01", "1": "1"}
    assert typed([f"{10**20}"]) == {f"{10**20}": f"{10**20}"}


def test_codes_with_leading_zeros_are_not_numbers():
    frame = table_of(groups=("1", "01"))
    fit(save(frame, "d.csv"))
    assert list(GroupCalibrator.load("t.json").temperatures_) == ["01", "1"]


@pytest.mark.usefixtures("small")
def test_several_group_columns_mean_their_intersection():
    frame = table_of(600)
    frame["old"] = np.arange(600) % 3
    fit(save(frame, "d.csv"), group=("sex", "old", "race"))
    scaling = GroupCalibrator.load("t.json")
    cells = list(zip(frame["sex"], frame["old"], frame["race"], strict=True))
    assert list(scaling.temperatures_) == sorted(set(cells))
    for ending in ("csv", "parquet"):
        apply(save(frame, f"e.{ending}"), "c.parquet", "--force")
        t = np.array([scaling.temperatures_[cell] for cell in cells])
        found = column("c.parquet", "calibrated_p")
        np.testing.assert_allclose(found, scaled(frame["p"], t), rtol=1e-12)


def with_strangers(ending):
    frame = table_of(60, seed=5)
    frame.loc[[7, 20, 21, 40, 59], "sex"] = ["other", None, "other", "?", "new"]
    return frame, save(frame, f"new.{ending}")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_group_without_a_temperature(tmp_path, ending):
    frame, new = with_strangers(ending)
    fit(save(table_of(), "d.csv"))
    shown = apply(new, "c.csv", code=2)
    assert (
        "2 rows belong to group 'other', which has no fitted calibrator (known: f, m); correct the "
        "group, or pass --unseen-group global or mixture"
    ) in " ".join(shown.split())
    assert {p.name for p in tmp_path.iterdir()} == {"d.csv", "t.json", new.name}

    scaling = GroupCalibrator.load("t.json")
    t = frame["sex"].map(scaling.temperatures_)
    strange = t.isna().to_numpy()
    assert strange.sum() == 5
    p = frame["p"].to_numpy()
    known = scaled(p, t.to_numpy())
    mixture = sum(scaling.shares_[g] * scaled(p, scaling.temperatures_[g]) for g in "fm")
    for policy, rest in (
        ("global", scaled(p, scaling.calibrator_.temperature)),
        ("mixture", mixture),
    ):
        shown = apply(new, "c.csv", "--unseen-group", policy, "--force")
        assert (
            "Note: 5 rows belong to a group without a calibrator in t.json; calibrated by the "
            f"policy '{policy}'" in shown
        )
        expected = np.where(strange, rest, known)
        np.testing.assert_allclose(column("c.csv", "calibrated_p"), expected, rtol=1e-12)
    # the policy can be kept with the temperatures, and overruled
    fit("d.csv", "t.json", "--unseen-group", "mixture", "--force")
    apply(new, "c.csv", "--force")
    np.testing.assert_allclose(column("c.csv", "calibrated_p"), expected, rtol=1e-12)
    assert "which has no fitted calibrator" in apply(
        new, "e.csv", "--unseen-group", "error", code=2
    )


def test_without_the_group_column():
    frame = table_of(50)
    fit(save(frame, "d.csv"))
    save(frame.drop(columns="sex"), "new.csv")
    assert "no column 'sex'" in apply("new.csv", "c.csv", code=2)
    assert "50 rows belong to a group without" in apply(
        "new.csv", "c.csv", "--unseen-group", "global"
    )
    t = GroupCalibrator.load("t.json").calibrator_.temperature
    np.testing.assert_allclose(column("c.csv", "calibrated_p"), scaled(frame["p"], t))
    # one that is named has to be there
    shown = apply("new.csv", "e.csv", "--unseen-group", "global", "--group", "sex", code=2)
    assert "no column 'sex'" in shown


def test_a_group_called_na_is_one_if_it_has_a_temperature():
    frame = table_of(groups=("NA", "SA"))
    fit(save(frame, "d.parquet"))
    save(frame, "d.csv")
    apply("d.csv", "c.csv")
    apply("d.parquet", "c.parquet")
    np.testing.assert_array_equal(
        column("c.csv", "calibrated_p"), column("c.parquet", "calibrated_p")
    )
    shown = fit("d.csv", "e.json", code=2)
    count = (frame["sex"] == "NA").sum()
    assert f"column sex has no group in {count} rows" in " ".join(shown.split())


def test_columns_of_other_names():
    frame = table_of(50)
    fit(save(frame, "d.csv"))
    save(frame.rename(columns={"p": "score", "sex": "gender"}), "new.csv")
    assert "no column 'p'" in apply("new.csv", "c.csv", code=2)
    apply("new.csv", "c.csv", "--prob", "score", "--group", "gender")
    apply("d.csv", "e.csv")
    np.testing.assert_array_equal(
        column("c.csv", "calibrated_score"), column("e.csv", "calibrated_p")
    )


def test_temperatures_saved_in_python():
    frame = table_of()
    log_odds = np.log(frame["prob_yes"] / frame["prob_no"])
    scaling = GroupTemperatureScaling().fit(log_odds, frame["y"], sensitive_features=frame["sex"])
    scaling.save("t.json")
    save(frame, "d.csv")
    assert "pass --prob and --group" in apply("d.csv", "c.csv", code=2)
    shown = apply("d.csv", "c.csv", "--prob", "p", code=2)
    assert "without the names of the group columns" in " ".join(shown.split())
    apply("d.csv", "c.csv", "--prob", "p", "--group", "sex")
    expected = scaling.predict_proba(log_odds, sensitive_features=frame["sex"])[:, 1]
    np.testing.assert_allclose(column("c.csv", "calibrated_p"), expected, rtol=1e-9)
    apply("d.csv", "e.csv", "--prob", "p", "--unseen-group", "global")


# --- CSV -------------------------------------------------------------------------------------


CELL = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5
) | st.sampled_from(NOTES)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=6))
def test_cells_survive_reading_and_writing(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("cells") / "d.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "b", "c"], *rows])
    with reader(path) as files:
        batches = list(files.batches())
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert found == rows
    write_batches(path.with_name("e.csv"), files.schema, batches)
    assert [tuple(row) for row in read_csv(path.with_name("e.csv"))[1:]] == rows


# --- streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.parametrize("target", ["csv", "parquet"])
def test_batches_give_what_one_batch_gives(monkeypatch, source, target):
    frame = table_of(1000)
    data = save(frame, f"d.{source}")
    fit(data)
    apply(data, f"one.{target}")
    with monkeypatch.context() as patch:
        patch.setattr("equipoise._files._batches.BATCH", 64)
        patch.setattr("equipoise._files._write.ROW_GROUP", 64)
        with reader(data) as files:
            assert len(list(files.batches())) > 9
        fit(data, "again.json")
        apply(data, f"many.{target}")
    assert Path("again.json").read_text() == Path("t.json").read_text()
    if target == "csv":
        assert Path("many.csv").read_bytes() == Path("one.csv").read_bytes()
    else:
        assert pq.read_table("many.parquet").equals(pq.read_table("one.parquet"))
        assert pq.ParquetFile("many.parquet").num_row_groups > 9
        assert pq.ParquetFile("one.parquet").num_row_groups == 1


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "target"), [(1, "parquet"), (40, "csv")])
def test_memory_does_not_grow_with_the_file(monkeypatch, groups, target):
    n = 1_000_000
    rng = np.random.default_rng(0)
    table = pa.table(
        {"a": rng.random(n), "b": rng.random(n), "p": rng.random(n), "sex": rng.integers(0, 2, n)}
    )
    pq.write_table(table, "d.parquet", row_group_size=-(-n // groups))
    del rng
    size = table.nbytes
    fit(save(table_of(groups=(0, 1)), "fit.csv"))
    monkeypatch.setattr("equipoise._files._batches.BATCH", 8192)
    monkeypatch.setattr("equipoise._files._write.ROW_GROUP", 8192)
    before, most = pa.total_allocated_bytes(), []
    plain = Reader.batches

    def watched(self, columns=None):
        for batch in plain(self, columns):
            most.append(pa.total_allocated_bytes() - before)
            yield batch

    monkeypatch.setattr(Reader, "batches", watched)
    apply("d.parquet", f"c.{target}")
    assert len(most) >= n // 8192
    assert max(most) < size / 2


def test_single_precision():
    frame = table_of().astype({"p": "float32"})
    frame.loc[0, ["p", "y"]] = [0.0, "yes"]
    save(frame, "d.parquet")
    assert fit("d.parquet").count("1 of 400 rows has a probability below 1e-06") == 1
    apply("d.parquet", "c.parquet")
    scaling = GroupTemperatureScaling(from_proba=True)
    p = frame["p"].to_numpy()
    assert p.dtype == np.float32
    with pytest.warns(ClippedWarning, match="1 of 400 rows has a probability below 1e-06"):
        expected = scaling.fit_predict_proba(p, frame["y"], sensitive_features=frame["sex"])
    assert GroupCalibrator.load("t.json").temperatures_ == scaling.temperatures_
    np.testing.assert_array_equal(column("c.parquet", "calibrated_p"), expected[:, 1])
    assert pq.read_schema("c.parquet").field("p").type == pa.float32()


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["+0.25", " .5 ", "1e-2", "0"]),
        pa.array(["0.25", "0.5", "0.01", "0"]).dictionary_encode(),
        pa.array(["0.25", "0.5", "0.01", "0"], pa.large_string()),
        pa.array([decimal.Decimal(v) for v in ("0.25", "0.50", "0.01", "0.00")]),
        pa.array([0.25, 0.5, 0.01, 0.0]).dictionary_encode(),
    ],
)
def test_probabilities_of_any_type(values):
    fit(save(table_of(), "d.csv"))
    pq.write_table(pa.table({"p": values, "sex": ["f", "m", "f", "m"]}), "new.parquet")
    apply("new.parquet", "c.parquet")
    t = GroupCalibrator.load("t.json").temperatures_
    # 0 counts as 1e-6 beside the other column's 1
    expected = scaled(
        np.array([0.25, 0.5, 0.01, 1e-6 / (1 + 1e-6)]), np.array([t[g] for g in "fmfm"])
    )
    np.testing.assert_allclose(column("c.parquet", "calibrated_p"), expected, atol=1e-12)


def test_certain_integers_and_nothing_at_all():
    fit(save(table_of(), "d.csv"))
    pq.write_table(pa.table({"p": [0, 1], "sex": ["f", "m"]}), "new.parquet")
    apply("new.parquet", "c.parquet")
    t = GroupCalibrator.load("t.json").temperatures_
    certain = scaled(np.array([1e-6, 1.0]) / (1 + 1e-6), np.array([t["f"], t["m"]]))
    np.testing.assert_allclose(column("c.parquet", "calibrated_p"), certain, rtol=1e-9)
    pq.write_table(pa.table({"p": pa.nulls(2), "sex": ["f", "m"]}), "null.parquet")
    assert "(missing or NaN) in 2 rows" in apply("null.parquet", "e.csv", code=2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_nothing_is_left_when_a_late_row_is_wrong(tmp_path, ending):
    frame = table_of(300)
    fit(save(frame, "d.csv"))
    frame.loc[[290, 291, 295, 299], "p"] = np.nan
    data = save(frame, f"new.{ending}")
    Path("c.csv").write_text("precious")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    shown = apply(data, "c.csv", "--force", code=2)
    assert (
        "column 'p' has no probability (missing or NaN) in 4 rows (rows 290, 291, 295, ..., "
        "counted from 0); drop those rows"
    ) in " ".join(shown.split())
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_nothing_is_left_when_writing_fails(monkeypatch, tmp_path):
    fit(save(table_of(), "d.csv"))

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr("equipoise._files._write._lines", full)
    assert "no space left" in apply("d.csv", "c.csv", code=2)
    assert {p.name for p in tmp_path.iterdir()} == {"d.csv", "t.json"}


# --- small groups ----------------------------------------------------------------------------


def test_shrinkage_and_bounds():
    frame = table_of()
    frame.loc[:3, "sex"] = "rare"
    frame.loc[:3, "y"] = np.where(frame["p"][:4] > 0.5, "yes", "no")  # all right: T goes to 0
    shown = " ".join(fit(save(frame, "d.csv")).split())
    assert "Note: the temperature reached its bound for group 'rare' (T = " in shown
    assert "all of its 4 predictions are correct" in shown
    assert "Note: few rows decide the calibrator of group 'rare' (4 rows)" in shown
    assert "bounds=" not in shown
    for strength in ("20", "auto"):
        assert "Note" not in fit("d.csv", f"{strength}.json", "--shrinkage", strength)
    own = (frame["sex"] == "rare").to_numpy()
    shrunk = GroupCalibrator.load("20.json")
    p, y = frame["p"].to_numpy()[own], (frame["y"] == "yes").to_numpy()[own]
    z = np.log(frame["p"] / (1 - frame["p"])).to_numpy()
    beta = 1 / shrunk.calibrator_.temperature
    q = 1 / (1 + np.exp(-beta * z))
    strength = 20 * np.mean(z**2 * q * (1 - q))  # the information in 20 average rows

    def loss(slope):
        q = scaled(p, 1 / slope)
        return -np.log(np.where(y, q, 1 - q)).sum() + 0.5 * strength * (slope - beta) ** 2

    best = minimize_scalar(loss, bounds=(0.1, 5), options={"xatol": 1e-10}).x
    assert shrunk.temperatures_["rare"] == pytest.approx(1 / best, rel=1e-6)


def test_an_infinite_pe_is_said():
    frame = table_of()
    frame.loc[(frame["sex"] == "f") & (frame["y"] == "yes"), "sex"] = "m"
    shown = fit(save(frame, "d.csv"), "t.json", "--reference", "f")
    assert "Note: proportional equality: class 'yes' of group 'm' against 'f' is x/0" in shown
    assert "PE inf before, inf after" in " ".join(shown.split())


def test_one_group_has_no_pe():
    shown = fit(save(table_of(groups=("f",)), "d.csv"))
    assert "PE" not in shown
    assert re.search(r"f +400 ", shown)


def test_many_groups_are_not_all_shown():
    frame = table_of(600)
    frame["sex"] = [f"g{i % 70:02}" for i in range(600)]
    shown = fit(save(frame, "d.csv"), "t.json", "--shrinkage", "50")
    assert len(re.findall(r"^ g\d\d ", shown, re.MULTILINE)) == 20
    assert "50 smaller ones are not shown" in shown
    assert len(GroupCalibrator.load("t.json").temperatures_) == 70
    notes = fit("d.csv", "u.json").splitlines()
    bounds = [line for line in notes if "reached its bound" in line]
    assert len(bounds) == 1
    assert re.search(r"for (group 'g\d\d' \(T = [^)]+\),? ){5}and \d+ more;", bounds[0])


def test_the_reference_group():
    frame = table_of()
    save(frame.assign(sex=frame["sex"].map({"f": 1, "m": 2})), "d.csv")
    others = fit("d.csv", "t.json", "--reference", "1.0")
    p, y, sexes = frame["p"].tolist(), (frame["y"] == "yes").astype(int), frame["sex"].tolist()
    data, model = oracle.group_rates(y.tolist(), sexes, 2), oracle.model_rates(p, sexes)
    expected = oracle.proportional_equality(data, model, reference="f")
    assert f"{expected:.4f} before" in others
    assert "compared with group 1)" in others
    shown = fit("d.csv", "u.json", "--reference", "2, x", group=("sex", "race"))
    assert "compared with group 2, x)" in shown


# --- clusters --------------------------------------------------------------------------------


def clustered(persons=60, each=6, seed=0):
    """Rows of some persons, whose answers agree more than their probabilities say."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(persons), each)
    log_odds = rng.normal(0, 1.5, persons)
    y = (rng.random(persons) < 1 / (1 + np.exp(-0.6 * log_odds)))[person]
    p = 1 / (1 + np.exp(-log_odds[person] - rng.normal(0, 0.1, len(person))))
    return pd.DataFrame(
        {
            "person": [f"id{i:03}" for i in person],
            "sex": np.where(person % 2, "f", "m"),
            "y": np.where(y, "yes", "no"),
            "p": p,
        }
    ).sample(frac=1, random_state=0)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.usefixtures("small")
def test_clusters_are_cross_fitted(ending, monkeypatch):
    folds = []

    def spy(*arguments):
        folds.extend(clustered_folds(*arguments))
        return folds

    monkeypatch.setattr("equipoise.calibration._file_gathered.clustered_folds", spy)
    frame = clustered(300).reset_index(drop=True)
    shown = fit(save(frame, f"d.{ending}"), "t.json", "--cluster", "person")
    plain = fit(f"d.{ending}", "u.json")
    assert f"d.{ending}, measured out of fold (5 folds, each person in one)" in shown
    assert Path("t.json").read_text() == Path("u.json").read_text()
    p, y = frame["p"].to_numpy(), (frame["y"] == "yes").to_numpy().astype(int)
    person = frame["person"].to_numpy()
    assert len(folds) == 5
    for train, test in folds:
        assert not set(person[train]) & set(person[test])
    after = out_of_fold(frame, folds)
    found = [figures(s)["all", "after"] for s in (shown, plain)]
    assert found[0][1] == pytest.approx(losses_of(y, after).mean(), abs=1.01e-4 / 2)
    assert found[0] != found[1]
    # the interval of the gain is that of totals of persons
    gain = losses_of(y, p) - losses_of(y, after)
    totals = np.bincount(np.unique(person, return_inverse=True)[1], gain - gain.mean())
    n = len(totals)
    error = student.ppf(0.975, n - 1) * np.sqrt((totals**2).sum() * n / (n - 1)) / len(gain)
    assert "This repair does not help" in shown
    assert f"({-gain.mean() - error:+.4f} to {-gain.mean() + error:+.4f}), which may be" in shown


def test_a_group_of_one_cluster_is_measured_with_the_common_temperature():
    frame = clustered()
    frame.loc[frame["person"] == "id007", "sex"] = "x"
    shown = fit(save(frame, "d.csv"), "t.json", "--cluster", "person", "--shrinkage", "5")
    assert re.search(r"^ x +6 ", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        ({}, ["--cluster", "persn"], "no column 'persn'; did you mean 'person'?"),
        ({}, ["--cluster", "sex"], "column 'sex' is named twice"),
        ({2: None, 5: None}, [], "column 'person' has no id in 2 rows (rows 2, 5, counted from 0); "
         "drop those rows, or give each an id of its own"),
        ({2: "NA"}, [], "column 'person' has no id in 1 row (row 2, counted from 0)"),
        (dict.fromkeys(range(360), "same"), [], "column 'person' has 1 distinct id, too few for 5 "
         "folds; leave --cluster out"),
        ({i: i % 4 for i in range(360)}, [], "column 'person' has 4 distinct ids, too few"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["csv", "folder", "stdin"])
def test_mistakes_in_clusters(change, arguments, words, how):
    frame = clustered().reset_index(drop=True)
    frame["person"] = frame["person"].astype(object)
    for row, value in change.items():
        frame.loc[row, "person"] = value
    Path("parts").mkdir()
    save(frame[:200], "parts/a.csv")
    save(frame[200:], "parts/b.csv")
    source = {"csv": str(save(frame, "d.csv")), "folder": "parts", "stdin": "-"}[how]
    options = arguments or ["--cluster", "person"]
    columns = ["--label", "y", "--prob", "p", "--group", "sex", "--out", "t.json"]
    result = CliRunner().invoke(
        main, ["calibrate", source, *columns, *options], input=Path("d.csv").read_bytes()
    )
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not Path("t.json").exists()


def test_ids_that_are_lists_are_refused():
    frame = clustered()
    pq.write_table(pa.table({**frame, "person": [[i] for i in range(360)]}), "d.parquet")
    assert "column 'person' holds list<" in fit(
        "d.parquet", "t.json", "--cluster", "person", code=2
    )


# --- mistakes --------------------------------------------------------------------------------


def changed(name, at, **values):
    """Write a table with some rows changed."""
    frame = table_of(40).astype(object)
    for key, value in values.items():
        frame.loc[at, key] = value
    save(frame, name)


def wrong_files():
    frame = table_of(40)
    save(frame, "d.csv")
    save(frame, "d.parquet")
    save(frame.drop(columns="y"), "unlabelled.csv")
    save(frame[:0], "header.csv")
    save(frame[:0], "norows.parquet")
    Path("empty.csv").touch()
    Path("d.xlsx").touch()
    Path("truncated.parquet").write_bytes(Path("d.parquet").read_bytes()[:900])
    Path("text.parquet").write_text("sex,y,p\n")
    Path("torn.csv").write_text("sex,y,p\nf,no,0.5\nf,no\n")
    Path("twice.csv").write_text("sex,y,p,p\nf,no,0.5,0.5\n")
    Path("latin.csv").write_bytes("sex,y,p\nfé,no,0.5\n".encode("latin-1"))
    Path("late.csv").write_bytes(b"sex,y,p\n" + b"f,no,0.5\n" * 3000 + b"\xe9,no,0.5\n")
    changed("nan.csv", [3, 5, 8, 9], p="NaN")
    changed("gap.csv", 4, p="")
    changed("word.csv", 4, p="high")
    changed("above.csv", [2, 4], p=1.5)
    changed("sums.csv", [1, 2], prob_yes=0.9, prob_no=0.2)
    changed("nolabel.csv", [6], y="")
    changed("nogroup.csv", [6, 7], sex="NA")
    changed("maybe.csv", [30], y="maybe")
    changed("one.csv", list(range(40)), y="no")
    changed("taken.csv", 0, calibrated_p=0.5)
    pq.write_table(
        pa.table({"p": [0.1, 0.9], "y": ["n", "y"], "sex": [["a"], ["b"]]}), "list.parquet"
    )
    day = datetime.date(2020, 1, 1)
    pq.write_table(pa.table({"p": [0.1, 0.9], "y": ["n", "y"], "sex": [day] * 2}), "day.parquet")
    pq.write_table(
        pa.table({"p": [True, False], "y": ["n", "y"], "sex": ["f", "m"]}), "truth.parquet"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none.csv"], 2, "there is no file or folder none.csv"),
        (["empty.csv"], 2, "empty.csv is empty; a CSV file begins with the names"),
        (["header.csv"], 2, "header.csv has no rows"),
        (["norows.parquet"], 2, "norows.parquet has no rows"),
        (["d.xlsx"], 2, "neither .csv"),
        (["truncated.parquet"], 2, "truncated.parquet cannot be read as Parquet, it is damaged"),
        (["text.parquet"], 2, "text.parquet cannot be read as Parquet, it is damaged"),
        (["torn.csv"], 2, "torn.csv, line 3: 2 values for 3 columns"),
        (["twice.csv"], 2, "several columns named 'p'"),
        (["latin.csv"], 2, "latin.csv, line 2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (["late.csv"], 2, "late.csv, line 3002: byte 0xe9 is not UTF-8"),
        (["d.csv", "--label", "yy"], 2, "no column 'yy'; did you mean 'y'?"),
        (["d.csv", "--prob", "prob_n"], 2, "no column 'prob_n'; did you mean 'prob_no'?"),
        (["d.csv", "--group", "sexe"], 2, "no column 'sexe'; did you mean 'sex'?"),
        (["nan.csv"], 2, "no probability (missing or NaN) in 4 rows (rows 3, 5, 8, ..., counted"),
        (["gap.csv"], 2, "no probability (missing or NaN) in 1 row (row 4, counted from 0)"),
        (["word.csv"], 2, "column 'p', row 4 (counted from 0): 'high' is not a number"),
        (["above.csv"], 2,
         "is not within 0..1 (the first: 1.5) in 2 rows (rows 2, 4, counted from 0); "),
        (["sums.csv", "--prob", "prob_no", "--prob", "prob_yes"], 2,
         "columns prob_no, prob_yes do not sum to 1 (the first sum: 1.1) in 2 rows (rows 1, 2,"),
        (["nolabel.csv"], 2, "column 'y' has no label in 1 row (row 6,"),
        (["nogroup.csv"], 2, "column sex has no group in 2 rows (rows 6, 7,"),
        (["maybe.csv"], 2, "column 'y' has 3 distinct labels ('maybe', 'no', 'yes')"),
        (["maybe.csv", "--prob", "prob_no", "--prob", "prob_yes"], 2, "pass --labels"),
        (["maybe.csv", "--labels", "no,yes"], 2,
         "column 'y' contains 'maybe', which is not in labels=('no', 'yes'); name every label"),
        (["one.csv"], 2, "column 'y' has only one value, 'no'"),
        (["one.csv", "--prob", "prob_no", "--prob", "prob_yes"], 2, "only one value, 'no'"),
        (["d.csv", "--labels", "no,no"], 2, "--labels must name 2 labels, each once"),
        (["d.csv", "--labels", "no,yes,maybe"], 2, "--labels must name 2 labels, each once"),
        (["d.csv", "--positive", "oui"], 2,
         "'oui' cannot be the positive label: column 'y' has 2 distinct labels (no, yes)"),
        (["d.csv", "--positive", "no", "--labels", "yes,no"], 2, "pass --labels or --positive"),
        (["list.parquet"], 2, "column 'sex' holds list<"),
        (["day.parquet"], 2, "column 'sex' holds dates; groups and labels are text"),
        (["truth.parquet"], 2, "column 'p' holds bool, not probabilities"),
        (["d.csv", "--group", "p"], 2, "column 'p' is named twice"),
        (["d.csv", "--label", "sex"], 2, "column 'sex' is named twice"),
        (["d.csv", "--out", "t.csv"], 2, "t.csv does not end in .json"),
        (["d.csv", "--out", "nowhere/t.json"], 2, "no folder nowhere"),
        (["d.csv", "--out", "old.json"], 2, "pass --force"),
        (["d.csv", "--out", "d.csv", "--force"], 2, "is read by this command"),
        (["d.csv", "--replace"], 2, "--replace is for --apply"),
        (["d.csv", "--shrinkage", "-1"], 2, "'-1' is neither auto nor a number of rows"),
        (["d.csv", "--reference", "w"], 2, "--reference: there is no group 'w'; there are f; m"),
    ],
)  # fmt: skip
def test_mistakes_when_fitting(tmp_path, arguments, code, words):
    wrong_files()
    Path("old.json").write_text("precious")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    wanted = {"--label": "y", "--prob": "p", "--group": "sex", "--out": "t.json"}
    chosen = [word for pair in wanted.items() if pair[0] not in arguments for word in pair]
    shown = run("calibrate", *arguments, *chosen, code=code)
    assert words in " ".join(shown.split())
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("lacking", ["--label", "--prob", "--group"])
def test_fitting_needs(lacking):
    save(table_of(40), "d.csv")
    wanted = {"--label": "y", "--prob": "p", "--group": "sex"}
    chosen = [word for pair in wanted.items() if pair[0] != lacking for word in pair]
    shown = run("calibrate", "d.csv", *chosen, "--out", "t.json", code=2)
    assert f"fitting needs {lacking}; to apply calibrators, pass --apply FILE" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none.csv"], 2, "there is no file or folder none.csv"),
        (["empty.csv"], 2, "empty.csv is empty; a CSV file begins with the names"),
        (["header.csv"], 2, "header.csv has no rows"),
        (["norows.parquet"], 2, "norows.parquet has no rows"),
        (["d.xlsx"], 2, "neither .csv"),
        (["truncated.parquet"], 2, "truncated.parquet cannot be read as Parquet, it is damaged"),
        (["torn.csv"], 2, "torn.csv, line 3: 2 values for 3 columns"),
        (["above.csv"], 2, "is not within 0..1 (the first: 1.5) in 2 rows"),
        (["word.csv"], 2, "row 4 (counted from 0): 'high' is not a number"),
        (["taken.csv"], 2, "already has a column 'calibrated_p'; rename or drop it"),
        (["d.csv", "--prob", "pp"], 2, "no column 'pp'; did you mean 'p'?"),
        (["d.csv", "--group", "sxe"], 2, "no column 'sxe'; did you mean 'sex'?"),
        (["d.csv", "--group", "sex", "--group", "race"], 2,
         "the calibrators were fitted with 1 group column, but 2 are named: sex, race"),
        (["d.csv", "--prob", "p", "--prob", "prob_no", "--prob", "prob_yes"], 2,
         "for 2 classes (no, yes), but there are 3 columns of probabilities"),
        (["d.csv", "--apply", "none.json"], 2, "'none.json' does not exist"),
        (["d.csv", "--apply", "d.csv"], 2, "d.csv is not a file of calibrators, or is damaged"),
        (["d.csv", "--apply", "cut.json"], 2, "cut.json is not a file of calibrators"),
        (["d.csv", "--apply", "bytes.json"], 2, "is not a file of calibrators, or is damaged"),
        (["d.csv", "--apply", "list.json"], 2, "is not a file of calibrators, or is damaged"),
        (["d.csv", "--apply", "edited.json"], 2, "its digest does not match, so it was changed"),
        (["d.csv", "--apply", "negative.json"], 2, "-1.0 is not a positive number"),
        (["d.csv", "--apply", "shares.json"], 2, "the shares of its groups do not add up to 1"),
        (["d.csv", "--apply", "names.json"], 2, "'p' is not a list of column names"),
        (["d.csv", "--apply", "same.json"], 2, "two groups with the same text"),
        (["d.csv", "--apply", "class.json"], 2, "fewer than two classes"),
        (["d.csv", "--label", "y"], 2, "--label is for fitting, not for --apply"),
        (["d.csv", "--positive", "yes"], 2, "--positive is for fitting"),
        (["d.csv", "--labels", "no,yes"], 2, "--labels is for fitting"),
        (["d.csv", "--labels", ""], 2, "it is empty; give values separated by commas"),
        (["d.csv", "--shrinkage", "0"], 2, "--shrinkage is for fitting"),
        (["d.csv", "--cluster", "id"], 2, "--cluster is for fitting"),
        (["d.csv", "--reference", "f"], 2, "--reference is for fitting"),
        (["d.csv", "--out", "c.json"], 2, "neither .csv nor .parquet"),
        (["d.csv", "--out", "nowhere/c.csv"], 2, "no folder nowhere"),
        (["d.csv", "--out", "d.csv", "--force"], 2, "is read by this command"),
        (["d.csv", "--out", "t.json", "--force"], 2, "is read by this command"),
        (["d.csv", "--out", "nan.csv"], 2, "pass --force"),
    ],
)  # fmt: skip
def test_mistakes_when_applying(tmp_path, arguments, code, words):
    wrong_files()
    fit("d.csv")

    def damaged(name, change):
        forge("t.json", change, to=name)

    edited = Path("t.json").read_text().replace('"trust": 1.0', '"trust": 0.5')
    Path("edited.json").write_text(edited)
    Path("cut.json").write_text(Path("t.json").read_text()[:200])
    Path("bytes.json").write_bytes(b"\xff\xfe{}")
    Path("list.json").write_text("[1, 2]")
    damaged("negative.json", lambda d: d["groups"][0].update(temperature=-1.0))
    damaged("shares.json", lambda d: d["groups"][0].update(share=0.0))
    damaged("names.json", lambda d: d["columns"].update(prob="p"))
    damaged("class.json", lambda d: d.update(classes=["no"]))
    damaged(
        "same.json",
        lambda d: [g.update(group=v) for g, v in zip(d["groups"], (1, "1"), strict=True)],
    )
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    wanted = {"--apply": "t.json", "--out": "c.csv"}
    chosen = [word for pair in wanted.items() if pair[0] not in arguments for word in pair]
    shown = run("calibrate", *arguments, *chosen, code=code)
    assert words in " ".join(shown.split())
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_the_label_is_not_needed_when_applying():
    wrong_files()
    fit("d.csv")
    apply("unlabelled.csv", "c.csv")
    apply("d.csv", "e.csv")
    np.testing.assert_array_equal(column("c.csv", "calibrated_p"), column("e.csv", "calibrated_p"))


def test_help_waits_for_nothing():
    code = (
        "import sys; from equipoise.cli import main; "
        "main(['calibrate', '-h'], standalone_mode=False); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'pyarrow', 'sklearn', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.PIPE)
    assert (b"--unseen-group" in done.stdout, done.returncode) == (True, 0)
