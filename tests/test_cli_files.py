"""Files are read alike by every command: the same names, the same rows, the same refusals."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from equipoise.calibration import Applied, FileCalibration
from equipoise.cli import main

pytest.importorskip("torch")  # train and predict are among the commands

COMMANDS = ("audit", "fit", "apply", "train", "predict")
COLUMNS = ("--label", "y", "--prob", "p", "--group", "sex")


def people(n=80, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, n).round(3)
    return pd.DataFrame(
        {
            "p": p,
            "note": rng.choice(["plain", "comma, here", "two\nlines"], n),
            "sex": rng.choice(["f", "m"], n),
            "y": np.where(rng.random(n) < p, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a table, temperatures and a model fitted to it."""
    folder = tmp_path_factory.mktemp("prepared")
    people().to_csv(folder / "d.csv", index=False)
    people().drop(columns="note").to_csv(folder / "plain.csv", index=False)
    for name, data, out in (("fit", "d.csv", "t.json"), ("train", "plain.csv", "m")):
        result = run(name, folder / data, folder, folder / out)
        assert result.exit_code == 0, result.output
    return folder


def run(command, data, prepared, out, **options):
    """Run a command on a table."""
    arguments = {
        "audit": ["audit", data, *COLUMNS],
        "fit": ["calibrate", data, *COLUMNS, "--out", out],
        "apply": ["calibrate", data, "--apply", prepared / "t.json", "--out", out],
        "train": ["train", data, "--label", "y", "--group", "sex", "--max-epochs", 1, "--out", out],
        "predict": ["predict", prepared / "m", data, "--out", out],
    }[command]
    return CliRunner().invoke(main, [str(a) for a in arguments], **options)


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def out_of(command):
    return {"fit": "out.json", "train": "model"}.get(command, "out.csv")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'p,sex,y\n.5,"f\nx",no\n.5,m\n', "bad.csv, line 4: 2 values for 3 columns; put text"),
        (b"p,sex,y\n.5,f,no\n.5,m,yes,no\n", "bad.csv, line 3: 4 values for 3 columns; put text"),
        (b"p,sex,y\n.5,f,no\n.5,m,yes,\n", "bad.csv, line 3: 4 values for 3 columns; put text"),
        (b'p,sex,y\n.5,f,no\n.5,"m,yes\n.5,f,no\n', "bad.csv, line 3: a quote is not closed"),
        (b"p,sex,y,z\n.5,f,no,\xe9\n.5,m,yes,a\n", "bad.csv, line 2: byte 0xe9 is not UTF-8"),
        (b"p,sex,y,p\n.5,f,no,1\n", "bad.csv has several columns named 'p'; rename all but one"),
        (b"", "bad.csv is empty; a CSV file begins with the names of its columns"),
        (b"p,sex,y\n", "bad.csv has no rows"),
        (b"q,sx,y\n.5,f,no\n.5,m,yes\n", "there is no column '"),
        (None, "there is no file or folder bad.csv"),
    ],
)
def test_every_command_refuses_alike(prepared, command, content, message):
    if content is not None:
        Path("bad.csv").write_bytes(content)
    result = run(command, "bad.csv", prepared, out_of(command))
    assert result.exit_code == 2, result.output
    assert f"Error: {message}" in result.output
    assert [p.name for p in Path().iterdir()] == ["bad.csv"] * (content is not None)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_the_same_rows_from_any_source(prepared, command):
    frame = people(60, seed=1)
    frame.to_csv("b[1].csv", index=False)
    people(40, seed=2).to_csv("b1.csv", index=False)
    content = Path("b[1].csv").read_bytes()
    Path("packed.csv.gz").write_bytes(gzip.compress(content))
    Path("folder").mkdir()
    frame[:25].to_csv("folder/1.csv", index=False)
    frame[25:].to_csv("folder/2*.csv", index=False)
    frame.to_parquet("table.parquet")
    given = {"-": content, "- packed": gzip.compress(content)}
    given["- parquet"] = Path("table.parquet").read_bytes()
    found = {}
    sources = ("b[1].csv", "packed.csv.gz", "folder", "folder/[12]*.csv", "table.parquet", *given)
    for i, source in enumerate(sources):
        out = Path(f"{i}{out_of(command)}")
        data = source.split()[0]
        result = run(command, data, prepared, out, input=given.get(source))
        assert result.exit_code == 0, result.output
        assert "60" in result.output  # how many rows were read
        if command == "fit":
            found[source] = json.loads(out.read_text())["groups"]
        elif command in ("apply", "predict"):
            table = pd.read_csv(out)
            assert table["note"].tolist() == frame["note"].tolist()
            found[source] = table.select_dtypes("number").to_numpy().tolist()
        elif command == "audit":
            found[source] = result.output.split()[-60:]
        else:
            found[source] = [line for line in result.output.splitlines() if "f  " in line]
    for source in sources[1:]:
        assert found[source] == found[sources[0]], source


def test_files_are_calibrated_in_python_as_by_the_command(prepared):
    people(60, seed=1).to_csv("new.csv", index=False)
    fitted = FileCalibration.fit(prepared / "d.csv", label="y", prob="p", group="sex")
    fitted.save("own.json")
    assert Path("own.json").read_bytes() == (prepared / "t.json").read_bytes()
    loaded = FileCalibration.load("own.json")
    assert (loaded.label, loaded.prob, loaded.group) == ("y", ("p",), ("sex",))
    assert loaded.apply("new.csv", "own.csv") == Applied(rows=60, unseen=0)
    assert run("apply", "new.csv", prepared, "out.csv").exit_code == 0
    assert Path("own.csv").read_bytes() == Path("out.csv").read_bytes()
    people(5).assign(sex="x").to_csv("x.csv", index=False)
    with pytest.raises(ValueError, match=r"group .*'x'.*unseen_group='global' or 'mixture'"):
        loaded.apply("x.csv", "other.csv")
    assert loaded.apply("x.csv", "other.csv", unseen_group="global") == Applied(5, 5)
    assert loaded.calibrator.unseen_group == "error"


def test_columns_are_matched_to_labels_by_name(prepared):
    frame = people().assign(prob_no=lambda d: 1 - d["p"], prob_yes=lambda d: d["p"])
    frame.to_csv("d.csv", index=False)
    names = ("--label", "y", "--group", "sex", "--prob", "prob_yes", "--prob", "prob_no")
    how = ("--method", "bcts")
    result = CliRunner().invoke(main, ["calibrate", "d.csv", *names, *how, "--out", "t.json"])
    assert "Note: the names of the probability columns, not their order, decide" in result.output
    assert "pass --labels to override this" in result.output
    found = FileCalibration.load("t.json").calibrator
    assert found.classes_.tolist() == ["yes", "no"]
    rows = (prepared / "d.csv", "y", "p", "sex")
    names = dict(zip(("data", "label", "prob", "group"), rows, strict=True))
    want = FileCalibration.fit(**names, method="bcts").calibrator
    for group, own in want.calibrators_.items():
        assert found.calibrators_[group].temperature == pytest.approx(own.temperature, rel=1e-6)
        assert found.calibrators_[group].bias[::-1] == pytest.approx(own.bias, rel=1e-5)
