"""Train and predict from the command line, on tables that nothing was prepared for."""

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

import oracle_metrics as oracle
from equipoise.auditing import audit
from equipoise.calibration import NoGroupsWarning
from equipoise.cli import _train as train
from equipoise.cli import main
from equipoise.datasets import Dataset, FrameEncoder
from equipoise.metrics import GroupRates
from equipoise.training import LOSS_NAMES, STOPPING, GroupwiseMLPClassifier

QUICK = ("--max-epochs", "20", "--learning-rate", "0.01", "--hidden-layer-sizes", "8")
HEADER = ["id", "age", "job, now", "member", "sex", "race", "income"]
JOBS = ["cook", 'a "quoted" one', "comma, here", "two\nlines", "a\rb", "", "007"]


def rows_of(n, seed, *, jobs=JOBS):
    """Return rows of text: a wide number, gaps, truth values, quotes and line ends."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        sex, race, age = rng.choice(["f", "m"]), rng.choice(["x", "y", "z"]), rng.integers(18, 80)
        score = age / 20 + (sex == "m") + rng.normal()
        income = "high" if score > 4 else "middle" if score > 2.5 else "low"
        shown = rng.choice([f"{age}", f"{age}.50", "NA"], p=[0.8, 0.1, 0.1])
        member = rng.choice(["true", "false", "?"])
        rows.append([f"{10**18 + i}7", shown, rng.choice(jobs), member, sex, race, income])
    return rows


def write_csv(path, rows, header=HEADER):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def fit(data, out, *more, label="income", group="sex"):
    return run("train", data, "--label", label, "--group", group, "--out", out, *QUICK, *more)


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data, new rows and models of it."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_csv(folder / "people.csv", rows_of(240, 0))
    write_csv(folder / "new.csv", rows_of(30, 1, jobs=[*JOBS, "astronaut"]))
    fit(data, folder / "sex.model", "--drop", "id")
    unseen = ("--unseen-group", "global", "--shrinkage", "0")
    fit(data, folder / "global.model", "--drop", "id", *unseen)
    fit(data, folder / "common.model", "--drop", "id", "--calibrate", "common")
    fit(data, folder / "both.model", "--drop", "id", "--group", "race")
    return folder


# --- both, end to end ------------------------------------------------------------------------


@pytest.mark.slow
def test_end_to_end(tmp_path):
    data = write_csv(tmp_path / "people.csv", rows_of(400, 2))
    new = write_csv(tmp_path / "new.csv", rows_of(60, 3, jobs=["astronaut"]))
    command = Path(sys.executable).with_name("equipoise")

    def shell(*arguments):
        return subprocess.run(
            [command, *arguments], check=True, capture_output=True, text=True, cwd=tmp_path
        ).stdout

    options = ("--drop", "id", "--loss", "dca", *QUICK)
    shown = shell(
        "train", "people.csv", "--label", "income", "--group", "sex", "--out", "model", *options
    )
    assert "Held out: 50 of the 400 rows of people.csv" in shown
    assert "60 predictions in p.csv" in shell("predict", "model", "new.csv", "--out", "p.csv")
    run("predict", "model", "new.csv", "--out", "p.parquet")
    assert {p.name for p in tmp_path.iterdir()} == {
        "people.csv", "new.csv", "model", "p.csv", "p.parquet"
    }  # fmt: skip

    # the same in Python, from the table itself
    model = GroupwiseMLPClassifier.load(tmp_path / "model")
    assert (model.loss, model.hidden_layer_sizes, model.random_state) == ("dca", (8,), 0)
    frame = Dataset.from_frame(data, label="income", group="sex", drop=["id"])
    own = read_csv(new)[1:]
    sex, income = ([row[HEADER.index(name)] for row in own] for name in ("sex", "income"))
    X = frame.encoder.transform(new)
    expected = model.predict_proba(X, sensitive_features=sex)

    header, *written = read_csv(tmp_path / "p.csv")
    added = ["prob_high", "prob_low", "prob_middle", "prediction"]
    assert header == [*HEADER, *added]
    assert [row[: len(HEADER)] for row in written] == own
    prob = np.array([row[-4:-1] for row in written], float)
    np.testing.assert_array_equal(prob, expected)
    assert [row[-1] for row in written] == model.predict(X).tolist()

    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == [*HEADER, *added]
    np.testing.assert_array_equal(np.stack([table[c] for c in added[:3]], 1), expected)
    assert table["prediction"].to_pylist() == model.predict(X).tolist()
    assert table["sex"].to_pylist() == sex
    reports = [
        audit(table["income"], prob, sensitive_features=table["sex"], reference_group="f"),
        audit(income, expected, sensitive_features=sex, reference_group="f"),
    ]
    assert reports[0].overall == reports[1].overall
    assert reports[0].groups == reports[1].groups


def test_readme_commands(tmp_path):
    text = (Path(__file__).parents[1] / "README.md").read_text()
    block = re.search(r"## Command line.*?```sh\n(.*?)```", text, re.DOTALL)[1]
    write_csv(tmp_path / "people.csv", rows_of(120, 0))
    write_csv(tmp_path / "new.csv", rows_of(9, 1))
    rng = np.random.default_rng(0)
    held_out = pd.DataFrame({"p": rng.random(200), "sex": rng.choice(["f", "m"], 200)})
    held_out["y"] = (rng.random(200) < held_out["p"]).astype(int)
    held_out.to_csv(tmp_path / "held_out.csv", index=False)
    held_out.drop(columns="y").to_parquet(tmp_path / "new.parquet")
    quick = {"train": QUICK, "search": ["--max-epochs", 2, "--n-seeds", 1, "--loss", "ce"]}
    for line in block.splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert name == "equipoise"
        run(*arguments, *quick.get(arguments[0], ()))
    assert len(read_csv(tmp_path / "predictions.csv")) == 10
    assert (tmp_path / "found" / "model.safetensors").exists()
    assert len(pd.read_parquet(tmp_path / "calibrated.parquet")) == 200


# --- train -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_summary_is_of_the_rows_held_out(trained, tmp_path):
    data = trained / "people.csv"
    shown = fit(data, tmp_path / "model", "--drop", "id")
    model = GroupwiseMLPClassifier.load(tmp_path / "model")
    frame = Dataset.from_frame(data, label="income", group="sex", drop=["id"])
    assert FrameEncoder.from_dict(model.extra_["encoder"]) == frame.encoder
    test = frame.split(0, stratify=True).test.rows
    rest = np.setdiff1d(np.arange(240), test)
    y, a = np.array(frame.class_names)[frame.y], np.array(frame.group_names)[frame.group]
    again = GroupwiseMLPClassifier(
        max_epochs=20, learning_rate=0.01, hidden_layer_sizes=(8,), random_state=0
    )
    again.fit(frame.X[rest], y[rest], sensitive_features=a[rest])
    prob = model.predict_proba(frame.X[test], sensitive_features=a[test])
    np.testing.assert_array_equal(
        again.predict_proba(frame.X[test], sensitive_features=a[test]), prob
    )

    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line.split()}
    right = model.classes_[prob.argmax(1)] == y[test]
    loss = -np.log(prob[np.arange(30), frame.y[test]])
    for name, own in (("overall", a[test] != ""), ("f", a[test] == "f"), ("m", a[test] == "m")):
        cells = lines[name]
        assert cells[1:3] == [f"{own.sum()}", f"{right[own].mean():.4f}"]
        assert cells[-1] == f"{loss[own].mean():.4f}"
    # the label's rates are those of the training rows
    rates = [[(y[rest][a[rest] == g] == k).mean() for k in frame.class_names] for g in "fm"]
    counts = np.array(model.extra_["label_counts"])
    np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), rates)
    assert counts.sum() == len(rest)
    f, m = (prob[a[test] == g].mean(axis=0) for g in "fm")
    pe = oracle.proportional_equality(
        dict(zip("fm", rates, strict=True)), {"f": f, "m": m}, reference=model.reference_group_
    )
    assert f"Proportional equality: {pe:.4f} stochastic" in shown
    own = model.temperatures_
    assert f"f: {own['f']:.3f}; m: {own['m']:.3f}; common: {model.temperature_:.3f}" in shown
    assert f"{model.n_iter_} run, the weights of epoch {model.best_epoch_} kept" in shown


def test_two_group_columns(trained):
    model = GroupwiseMLPClassifier.load(trained / "both.model")
    assert model.groups_ == [(s, r) for s in "fm" for r in "xyz"]
    run("predict", trained / "both.model", trained / "new.csv", "--out", "p.csv")
    rows = read_csv(Path("p.csv"))[1:]
    frame = FrameEncoder.from_dict(model.extra_["encoder"])
    groups = {"sex": [r[4] for r in rows], "race": [r[5] for r in rows]}
    X = frame.transform(trained / "new.csv")
    expected = model.predict_proba(X, sensitive_features=groups)
    np.testing.assert_array_equal(np.array([r[-4:-1] for r in rows], float), expected)


class Stop(Exception):
    """Raised instead of training."""


@pytest.fixture
def parameters(monkeypatch):
    """The parameters that an estimator was made with; it is not trained."""
    seen = {}

    def stop(self, *_, **__):
        seen.update(self.get_params())
        raise Stop

    monkeypatch.setattr(GroupwiseMLPClassifier, "fit", stop)
    return seen


def start(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments], env={"EQUIPOISE_DEBUG": "1"})
    assert isinstance(result.exception, Stop), result.output


def test_defaults_are_the_estimators(trained, parameters):
    data = trained / "people.csv"
    start("train", data, "--label", "income", "--group", "sex", "--out", "m")
    assert parameters == GroupwiseMLPClassifier(random_state=0).get_params()
    choices = {p.name: getattr(p.type, "choices", ()) for p in main.commands["train"].params}
    assert tuple(choices["loss"]) == LOSS_NAMES
    assert tuple(choices["early_stopping"]) == (*STOPPING, "none")


def test_options(trained, parameters):
    options = (
        "--loss fl --rho 0.25 --lam 3 --hidden-layer-sizes 7,5,3 --learning-rate 0.01 "
        "--max-epochs 9 --batch-size 32 --early-stopping none --patience 4 "
        "--validation-fraction 0.2 --calibrate none --shrinkage 1 --unseen-group mixture "
        "--seed 5 --test-fraction 0.25"
    )
    data = trained / "people.csv"
    start("train", data, "--label", "income", "--group", "sex", "--out", "m", *options.split())
    assert (
        parameters
        == GroupwiseMLPClassifier(
            "fl",
            0.25,
            3.0,
            hidden_layer_sizes=(7, 5, 3),
            learning_rate=0.01,
            max_epochs=9,
            batch_size=32,
            early_stopping=None,
            patience=4,
            validation_fraction=0.2,
            calibrate=None,
            shrinkage=1.0,
            unseen_group="mixture",
            random_state=5,
        ).get_params()
    )
    for text, value in (("share", "share"), ("none", None), ("1", 1.0)):
        start("train", data, "--label", "income", "--group", "sex", "--out", "m", "--rho", text)
        assert parameters["rho"] == value


def test_include_group_and_kinds(trained):
    more = ("--drop", "id", "--include-group", "--as", "category:age", "--test-fraction", "0.5")
    shown = fit(trained / "people.csv", "m", *more)
    assert "Held out: 120 of the 240 rows" in shown
    encoder = FrameEncoder.from_dict(GroupwiseMLPClassifier.load("m").extra_["encoder"])
    kinds = {column.name: column.kind for column in encoder.columns}
    assert kinds["sex"] == "category"
    assert kinds["age"] == "category"
    assert kinds["id"] == "drop"


def test_integer_and_truth_labels(tmp_path):
    rows = [[i % 7, i % 2, "ab"[i % 3 == 0], bool(i % 5 > 1), i % 3] for i in range(60)]
    write_csv(tmp_path / "d.csv", rows, ["x", "a", "g", "truth", "number"])
    for label, classes in (("truth", [False, True]), ("number", [0, 1, 2])):
        fit(tmp_path / "d.csv", label, "--rho", "0.5", label=label, group="a")
        assert GroupwiseMLPClassifier.load(label).classes_.tolist() == classes
        run("predict", label, tmp_path / "d.csv", "--out", f"{label}.csv")
        header, *written = read_csv(tmp_path / f"{label}.csv")
        names = [f"prob_{k}" for k in classes]
        assert header[5:] == [*names, "prediction"]
        best = [classes[int(np.argmax(np.array(row[5:-1], float)))] for row in written]
        assert [row[-1] for row in written] == [str(k).lower() for k in best]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none.csv"], 2, "there is no file or folder none.csv"),
        (["empty.csv"], 2, "empty.csv is empty"),
        (["header.csv"], 2, "header.csv has no rows"),
        (["people.xlsx"], 2, "neither .csv"),
        (["torn.csv"], 2, "torn.csv, line 2: 2 values for 7 columns"),
        (["--label", "incme"], 2, "no column 'incme'; did you mean 'income'?"),
        (["--group", "sx"], 2, "no column 'sx'; did you mean 'sex'?"),
        (["--drop", "idd"], 2, "no column 'idd'; did you mean 'id'?"),
        (["--group", "income"], 2, "both label and group"),
        (["one.csv"], 2, "label 'income' has only one value, 'low'"),
        (["one.csv", "--label", "race"], 2, "group 'sex' has only one value, 'f'"),
        (["--out", "nowhere/model"], 2, "no folder nowhere"),
        (["--out", "."], 2, "is a directory"),
        (["--out", "people.csv", "--force"], 2, "is read by this command"),
        (["--rho", "2"], 2, "'2' is neither equal, share, none nor a number"),
        (["--rho", "0.5", "--group", "race"], 2, "for two groups, but there are 3"),
        (["--hidden-layer-sizes", "8,x"], 2, "'8,x' is no list of layer sizes"),
        (["--hidden-layer-sizes", "0"], 2, "'0' is no list of layer sizes"),
        (["--loss", "mse"], 2, "'mse' is not one of"),
        (["--reference", "x"], 2, "--reference: there is no group 'x'; there are f; m"),
        (["--test-fraction", "1"], 2, "0<x<1"),
        (["--test-fraction", "0.999"], 2, "lower --test-fraction"),
    ],
)
def test_mistakes_come_before_training(tmp_path, trained, parameters, arguments, code, words):
    (tmp_path / "people.csv").write_bytes((trained / "people.csv").read_bytes())
    (tmp_path / "people.xlsx").touch()
    (tmp_path / "empty.csv").touch()
    write_csv(tmp_path / "header.csv", [])
    write_csv(tmp_path / "torn.csv", [["1", "2"]])
    write_csv(tmp_path / "one.csv", [["1", "2", "a", "true", "f", r, "low"] for r in "xyx"])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    data = () if arguments[0].endswith(("csv", "xlsx")) else ("people.csv",)
    wanted = {"--label": "income", "--group": "sex", "--out": "m"}
    chosen = [word for pair in wanted.items() if pair[0] not in arguments for word in pair]
    shown = run("train", *data, *chosen, *arguments, code=code)
    assert words in " ".join(shown.split())
    assert not parameters
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_model_is_overwritten_only_by_force(trained, parameters):
    Path("m").write_text("precious")
    common = ("train", trained / "people.csv", "--label", "income", "--group", "sex", "--out", "m")
    assert "m exists; choose another name, or pass --force" in run(*common, code=2)
    start(*common, "--force")
    assert parameters
    assert Path("m").read_text() == "precious"


@pytest.mark.parametrize("where", ["fit", "predict_proba", "save"])
def test_nothing_is_written_when_training_fails(trained, monkeypatch, where):
    def fail(*_, **__):
        raise ValueError("it failed")

    monkeypatch.setattr(GroupwiseMLPClassifier, where, fail)
    Path("m").write_text("precious")
    shown = run(
        "train", trained / "people.csv", "--label", "income", "--group", "sex", "--drop", "id",
        "--out", "m", "--force", *QUICK, code=2,
    )  # fmt: skip
    assert shown.endswith("Error: it failed\n")
    assert [p.name for p in Path.cwd().iterdir()] == ["m"]
    assert Path("m").read_text() == "precious"


def test_training_is_shown_on_a_terminal(trained, monkeypatch):
    def terminal(*, stderr=False):
        return Console(stderr=stderr, force_terminal=True)

    arguments = (
        "train", trained / "people.csv", "--label", "income", "--group", "sex", "--drop", "id",
        "--out", "m", "--force", *QUICK,
    )  # fmt: skip
    assert "Training on" not in run(*arguments)
    monkeypatch.setattr(train, "console", terminal)
    assert "Training on 210 rows ..." in run(*arguments)


# --- predict ---------------------------------------------------------------------------------


def test_table_where_the_label_is_known(trained):
    shown = run("predict", trained / "sex.model", trained / "new.csv", "--out", "p.csv")
    model = GroupwiseMLPClassifier.load(trained / "sex.model")
    rows = read_csv(Path("p.csv"))[1:]
    counts = {
        group: dict(zip(model.classes_.tolist(), own, strict=True))
        for group, own in zip("fm", model.extra_["label_counts"], strict=True)
    }
    report = audit(
        [r[6] for r in rows],
        np.array([r[-4:-1] for r in rows], float),
        sensitive_features=[r[4] for r in rows],
        base_rates=GroupRates.of_counts(counts),
        reference_group=model.reference_group_,
    )
    for name, values in (("overall", report.overall), *report.groups.items()):
        cells = next(line.split() for line in shown.splitlines() if line.split()[:1] == [name])
        assert cells[2:] == [f"{value:.4f}" for value in values.values()]
    assert f"{report.proportional_equality['stochastic']:.4f} stochastic" in shown


def test_the_reference_group(trained):
    groups = [r[4] for r in read_csv(trained / "people.csv")[1:]]
    model = GroupwiseMLPClassifier.load(trained / "sex.model")
    assert model.reference_group_ == max("fm", key=groups.count)
    other = min("fm", key=groups.count)
    new = ("predict", trained / "sex.model", trained / "new.csv", "--out", "p.csv")
    run(*new, "--reference", other)
    shown = {g: run(*new, "--force", "--reference", g) for g in "fm"}
    rows = read_csv(Path("p.csv"))[1:]
    sexes, prob = [r[4] for r in rows], np.array([r[-4:-1] for r in rows], float)
    counts = zip("fm", model.extra_["label_counts"], strict=True)
    data = {group: [n / sum(own) for n in own] for group, own in counts}
    for g, text in shown.items():
        pe = oracle.proportional_equality(data, oracle.model_rates(prob, sexes), reference=g)
        assert f"Proportional equality: {pe:.4f} stochastic" in text
    # a model that was trained with another one keeps it
    fit(trained / "people.csv", "other.model", "--drop", "id", "--reference", other)
    again = GroupwiseMLPClassifier.load("other.model")
    assert again.reference_group == again.reference_group_ == other
    kept = run("predict", "other.model", trained / "new.csv", "--out", "q.csv")
    named = run(
        "predict", "other.model", trained / "new.csv", "--out", "q.csv", "--force", "--reference",
        other,
    )  # fmt: skip
    assert kept == named
    both = run(
        "predict", trained / "both.model", trained / "new.csv", "--out", "q.csv", "--force",
        "--reference", "m, x",
    )  # fmt: skip
    assert "Proportional equality" in both
    write_csv(
        Path("some.csv"), [[*r[:4], "f" if i % 2 else "m", "x", r[6]] for i, r in enumerate(rows)]
    )
    said = run(
        "predict", trained / "both.model", "some.csv", "--out", "q.csv", "--force",
        "--reference", "m, y",
    )  # fmt: skip
    assert "Note: no row belongs to m, y; PE compares with f, x" in said


def predicted(model, rows, header=HEADER, **keywords):
    """Return what predict showed, and the probabilities it wrote."""
    write_csv(Path("d.csv"), rows, header)
    shown = run("predict", model, "d.csv", "--out", "p.csv", "--force", **keywords)
    return shown, np.array([r[-4:-1] for r in read_csv(Path("p.csv"))[1:]], float)


def test_neither_label_nor_left_out_columns_are_needed(trained):
    rows = rows_of(5, 4)
    shown, prob = predicted(trained / "sex.model", [r[1:6] for r in rows], HEADER[1:6])
    assert shown == "5 predictions in p.csv\n"
    np.testing.assert_array_equal(prob, predicted(trained / "sex.model", rows)[1])


def test_labels_partly_missing_or_new(trained):
    rows = rows_of(20, 4)
    prob = predicted(trained / "sex.model", rows)[1]
    for row, label in zip(rows, ["", "NA", "unheard of"], strict=False):
        row[-1] = label
    shown, same = predicted(trained / "sex.model", rows)
    np.testing.assert_array_equal(prob, same)
    assert "Note: 3 rows are not measured" in shown
    assert re.search(r"overall +17 ", shown)
    shown, _ = predicted(trained / "sex.model", [[*r[:-1], ""] for r in rows])
    assert "Note: 20 rows are not measured" in shown
    assert "overall" not in shown


def test_a_group_never_seen(trained):
    rows = rows_of(12, 5)
    prob = predicted(trained / "global.model", rows)[1]
    rows[3][4], rows[7][4] = "other", ""
    write_csv(Path("d.csv"), rows)
    shown = run("predict", trained / "sex.model", "d.csv", "--out", "q.csv", code=2)
    assert (
        "row 3 belongs to group 'other', which was not in the training data (known: f; m)" in shown
    )
    assert "--unseen-group global or mixture" in shown
    assert not Path("q.csv").exists()

    shown, other = predicted(trained / "global.model", rows)
    assert "Note: 2 rows belong to a group that was not in the training data" in shown
    assert "'global'" in shown
    assert re.search(r"overall +10 ", shown)
    changed = (prob != other).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [3, 7]
    model = GroupwiseMLPClassifier.load(trained / "global.model")
    X = FrameEncoder.from_dict(model.extra_["encoder"]).transform("d.csv")
    with pytest.warns(NoGroupsWarning, match="the policy 'global'"):
        without = model.predict_proba(X)
    np.testing.assert_array_equal(other[[3, 7]], without[[3, 7]])


def test_without_the_group_column(trained):
    header = [name for name in HEADER if name != "sex"]
    rows = [r[:4] + r[5:] for r in rows_of(6, 5)]
    write_csv(Path("d.csv"), rows, header)
    shown = run("predict", trained / "sex.model", "d.csv", "--out", "q.csv", code=2)
    assert "no column 'sex'" in shown
    assert "--unseen-group global" in shown
    assert "6 rows belong to a group" in predicted(trained / "global.model", rows, header)[0]
    assert "belong to a group" not in predicted(trained / "common.model", rows, header)[0]


def test_groups_of_numbers_beside_a_word(tmp_path):
    rows = [[i % 7, 1 + i % 2, "ny"[i % 3 > 0]] for i in range(60)]
    write_csv(tmp_path / "d.csv", rows, ["x", "g", "y"])
    fit(tmp_path / "d.csv", "m", "--unseen-group", "global", label="y", group="g")
    run("predict", "m", "d.csv", "--out", "p.csv")
    write_csv(tmp_path / "d.csv", [*rows, [3, "other", "n"], [3, "", "n"]], ["x", "g", "y"])
    shown = run("predict", "m", "d.csv", "--out", "q.csv")
    assert "Note: 2 rows belong to a group" in shown
    assert read_csv(tmp_path / "q.csv")[:61] == read_csv(tmp_path / "p.csv")


def mixed_frame(rows):
    """Return a PyArrow table of types that CSV has not got."""
    columns = dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))
    columns["id"] = pa.array([None if i == 1 else 2**62 + i for i in range(len(rows))])
    columns["age"] = pa.array([None if v == "NA" else float(v) for v in columns["age"]])
    columns["member"] = pa.array([{"true": True, "false": False}.get(v) for v in columns["member"]])
    columns["sex"] = pa.array(columns["sex"]).dictionary_encode()
    columns["tags"] = pa.array([["a", "b"]] * len(rows))
    return pa.table(columns)


def test_parquet(trained, tmp_path):
    rows = [[v if v else None for v in row] for row in rows_of(25, 6)]
    frame = mixed_frame(rows)
    pq.write_table(frame, tmp_path / "d.parquet")
    expected = predicted(trained / "sex.model", rows)[1]
    for out in ("out.PARQUET", "out.pq", "out.csv"):
        run("predict", trained / "sex.model", "d.parquet", "--out", out)
    for out in ("out.PARQUET", "out.pq"):
        written = pl.read_parquet(tmp_path / out)
        assert written.select(frame.column_names).equals(pl.from_arrow(frame))
        np.testing.assert_array_equal(written.select("^prob_.*$").to_numpy(), expected)
    header, *cells = read_csv(tmp_path / "out.csv")
    assert header[:8] == frame.column_names
    assert [c[0] for c in cells[:3]] == [str(2**62), "", str(2**62 + 2)]
    assert [c[2] or None for c in cells] == [r[2] for r in rows]
    np.testing.assert_array_equal(np.array([c[-4:-1] for c in cells], float), expected)

    run("predict", trained / "sex.model", trained / "new.csv", "--out", "new.parquet")
    written = pl.read_parquet(tmp_path / "new.parquet")
    original = read_csv(trained / "new.csv")
    assert written["job, now"].to_list() == [r[2] or None for r in original[1:]]
    ages = [None if r[1] == "NA" else float(r[1]) for r in original[1:]]
    assert written["age"].to_list() == ages
    truth = {"true": True, "false": False, "?": None}
    assert written["member"].to_list() == [truth[r[3]] for r in original[1:]]


def test_other_separators(trained, tmp_path):
    rows = [r for r in rows_of(8, 7) if "," not in r[2]]
    expected = predicted(trained / "sex.model", rows)[1]
    with (tmp_path / "d.tsv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter="\t").writerows([HEADER, *rows])
    run("predict", trained / "sex.model", "d.tsv", "--out", "q.csv")
    header, *written = read_csv(tmp_path / "q.csv")
    assert header[:7] == HEADER
    assert [row[:7] for row in written] == rows
    np.testing.assert_array_equal(np.array([r[-4:-1] for r in written], float), expected)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["m", "none.csv"], 2, "there is no file or folder none.csv"),
        (["none", "new.csv"], 2, "'none' does not exist"),
        (["new.csv", "new.csv"], 2, "new.csv is not a saved model"),
        (["tampered", "new.csv"], 2, "damaged or was edited"),
        (["bare", "new.csv"], 2, "not written by `equipoise train`"),
        (["m", "header.csv"], 2, "header.csv has no rows"),
        (["m", "new.xlsx"], 2, "neither .csv"),
        (["m", "renamed.csv"], 2, "no column 'age'; did you mean 'ages'?"),
        (["m", "taken.csv"], 2, "already has a column 'prob_low'; rename or drop it"),
        (["m", "new.csv", "--reference", "x"], 2, "there is no group 'x'; there are f; m"),
        (["m", "words.csv"], 2, "column 'age' is of numbers, but row 0 has 'old'"),
        (["m", "new.csv", "--out", "p.json"], 2, "neither .csv nor .parquet"),
        (["m", "new.csv", "--out", "nowhere/p.csv"], 2, "no folder nowhere"),
        (["m", "new.csv", "--out", "new.csv", "--force"], 2, "is read by this command"),
        (["m", "new.csv", "--out", "header.csv"], 2, "pass --force"),
    ],
)
def test_predict_mistakes(tmp_path, trained, arguments, code, words):
    content = (trained / "sex.model").read_bytes()
    (tmp_path / "m").write_bytes(content)
    (tmp_path / "tampered").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    GroupwiseMLPClassifier.load("m").save("bare")
    rows = rows_of(5, 8)
    write_csv(tmp_path / "new.csv", rows)
    (tmp_path / "new.xlsx").touch()
    write_csv(tmp_path / "header.csv", [])
    write_csv(tmp_path / "renamed.csv", rows, ["id", "ages", *HEADER[2:]])
    write_csv(tmp_path / "taken.csv", rows, ["prob_low", *HEADER[1:]])
    write_csv(tmp_path / "words.csv", [[r[0], "old", *r[2:]] for r in rows])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    out = () if "--out" in arguments else ("--out", "p.csv")
    shown = run("predict", *arguments, *out, code=code)
    assert words in " ".join(shown.split())
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("command", ["train", "predict"])
def test_help_is_fast(command):
    code = (
        f"import sys; from equipoise.cli import main; main([{command!r}, '--help'], "
        "standalone_mode=False); sys.exit(any(m in sys.modules for m in ('numpy', 'torch')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
