"""`equipoise search`: what it writes and prints, on good tables, bad input and full disks."""

import errno
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from equipoise import FrontierSearch
from equipoise._files import read_model
from equipoise.cli import main
from equipoise.cli._search import FILES
from equipoise.training import LOSS_NAMES, GroupwiseMLPClassifier

pytestmark = pytest.mark.slow

COLUMNS = ("--label", "paid", "--group", "sex")
QUICK = ("--loss", "ce", "--loss", "mmce", "--lam", "1", "--n-seeds", "2", "--max-epochs", "3")
RUNS = 4 * 1 + 2 * 3  # mmce with three weights and as many of ce, of which two each go on


def people(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    x, z, noise = rng.normal(size=(3, rows))
    sex = rng.choice(["f", "m"], rows, p=[0.4, 0.6])
    return pd.DataFrame(
        {
            "x": x,
            "job": np.where(z > 0, "cook", "smith"),
            "sex": sex,
            "paid": np.where(x + 0.5 * (sex == "f") + noise > 0, "yes", "no"),
        }
    )


def search(*arguments, code=0, env=None):
    """Run the command; it never fails with a traceback, and never shows a nan."""
    result = CliRunner().invoke(main, ["search", *map(str, arguments)], env=env)
    assert result.exit_code == code, (result.output, result.exc_info)
    assert "Traceback" not in result.output
    assert "nan" in arguments or not re.search(r"\bnan\b", result.output, re.IGNORECASE)
    return result


def words(text):
    """Return a text without the line breaks of tables and errors."""
    return " ".join(text.split())


def parts(out):
    """Return the files of finished runs, with their bytes and times."""
    return {
        p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in (out / "runs").glob("*.parquet")
    }


def model_of(out):
    """Return what the model's file says, and its arrays as bytes."""
    about, arrays = read_model(out / "model.safetensors")
    return about, {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}


def contents(out):
    """Return the bytes of all results; pictures hold the date."""
    kept = {name: (out / name).read_bytes() for name in FILES[:3]}
    kept |= {name: content for name, (content, _) in parts(out).items()}
    return kept, model_of(out)


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    """Save the half second of a picture, but for `found` and the tests that are slow anyway."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr(FrontierSearch, "plot", lambda _: Figure((1, 1)))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "people.csv"
    people().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def found(table, tmp_path_factory):
    """Return the folder of a search that nothing disturbed, and what was printed."""
    out = tmp_path_factory.mktemp("found") / "out"
    return out, search(table, *COLUMNS, *QUICK, "--out", out)


@pytest.fixture
def copy(found, tmp_path):
    return shutil.copytree(found[0], tmp_path / "copy")


def forbid_training(patch):
    """Fail where a run is trained."""
    patch.setattr(
        "equipoise.search._part.train_to_best", lambda *_, **__: pytest.fail("a run was trained")
    )


@pytest.fixture
def no_training(monkeypatch):
    forbid_training(monkeypatch)


# --- what is written and printed --------------------------------------------------------------


def test_everything_is_written_the_pictures_last(found):
    out, result = found
    assert {p.name for p in out.iterdir()} == {*FILES, "runs"}
    assert sorted(FILES, key=lambda name: (out / name).stat().st_mtime_ns) == list(FILES)
    endings = {".parquet", ".checksum", ".json", ".log"}
    assert {p.suffix for p in (out / "runs").iterdir()} == endings
    assert f"{RUNS} of {RUNS} runs" in result.stderr
    assert f"Model, frontier and results: {out}" in result.stdout
    results = pd.read_parquet(out / "results.parquet")
    # four calibrations each, and both losses on both splits
    assert len(results) == 4 * RUNS
    assert len(results.groupby(["split", "loss"])) == 4


def test_summary_and_model_agree_with_what_is_printed(found):
    out, result = found

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    summary = json.loads((out / "summary.json").read_text("utf-8"), parse_constant=refuse)
    assert summary["verdict"] in words(result.stdout)
    assert summary["stopped"] is False
    assert "PE compares with group 'm'." in summary["verdict"]
    choice = summary["choice"]
    assert f"Chosen: {choice['loss']}" in result.stdout
    assert f"calibrate {choice['calibrate']}." in result.stdout
    model = GroupwiseMLPClassifier.load(out / "model.safetensors")
    assert model.loss == choice["loss"]
    assert (model.calibrate or "none") == choice["calibrate"]
    saved = model.extra_["choice"]
    assert {k: saved[k] for k in ("loss", "weights", "lam")} == {
        k: choice[k] for k in ("loss", "weights", "lam")
    }
    frontier = pd.read_csv(out / "frontier.csv")
    assert set(frontier["reference_group"]) == {"m"}


def predict(out, table, to, sep=","):
    """Return the predictions of the model for its own table, with all its rows and labels."""
    arguments = [str(out / "model.safetensors"), str(table), "--out", str(to)]
    result = CliRunner().invoke(main, ["predict", *arguments])
    assert result.exit_code == 0, result.output
    assert not re.search(r"\bnan\b", result.output, re.IGNORECASE)
    given, found = pd.read_csv(table, sep=sep), pd.read_csv(to)
    labels = sorted(given["paid"].unique())
    prob = found[[f"prob_{label}" for label in labels]].astype(float)
    assert len(found) == len(given)
    np.testing.assert_allclose(prob.sum(axis=1), 1.0, atol=1e-9)
    assert prob.ge(0).all(axis=None)
    assert set(found["prediction"]) <= set(labels)


def test_the_model_predicts(found, table, tmp_path):
    predict(found[0], table, tmp_path / "p.csv")


def shown_rows(stdout):
    """Return the cells of the frontier as printed, each row on its own line."""
    lines = stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.split()[:1] == ["loss"])
    rows = []
    for line in lines[heading + 2 :]:
        if not line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


def check_frontier(out, stdout):
    """Check that the printed frontier has whole names and its own rows."""
    assert "…" not in stdout
    frontier = pd.read_csv(out / "frontier.csv", keep_default_na=False)
    if frontier["frequency"].astype(bool).any():
        often = pd.to_numeric(frontier["frequency"]) > 0
        frontier = frontier[often] if often.any() else frontier
    rows = shown_rows(stdout)
    expected = frontier[["loss", "weights", "lam", "calibrate"]].values.tolist()
    added = ("dca", "mdca", "mmce", "mmce-w")  # the others have no strength
    assert [row[:4] for row in rows] == [
        [a, b, f"{lam:g}" if a in added else "-", c] for a, b, lam, c in expected
    ]
    figure = re.compile(r"\d\.\d{3}( \[\d\.\d{3}, \d+\.\d{3}\])?|not known")
    assert all(figure.fullmatch(cell) for row in rows for cell in row[4:])
    share = re.compile(r"[01]\.\d{3}( \[[01]\.\d{3}, [01]\.\d{3}\])?|not known")
    assert all(share.fullmatch(cell) for row in rows for cell in row[-2:])


def test_nothing_is_cut_when_piped(found):
    check_frontier(found[0], found[1].stdout)


@pytest.mark.parametrize("columns", [40, 80])
def test_nothing_is_cut_in_a_terminal(copy, table, columns):
    env = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(columns)}
    result = search(table, *COLUMNS, *QUICK, "--out", copy, env=env)
    assert "…" not in result.output
    frontier = pd.read_csv(copy / "frontier.csv", keep_default_na=False)
    for name in ("loss", "weights", "calibrate"):
        shown = set(re.findall(r"[\w-]+", result.stdout))
        assert shown & set(frontier[name])


def test_one_seed(table, tmp_path):
    out = tmp_path / "out"
    result = search(table, *COLUMNS, *QUICK, "--n-seeds", "1", "--out", out)
    assert {p.name for p in out.iterdir()} == {*FILES, "runs"}
    check_frontier(out, result.stdout)
    # the fold is halved, so there are two parts to compare
    assert set(pd.read_parquet(out / "results.parquet")["split"]) == {0, 1}


@pytest.mark.parametrize(
    "more",
    [
        ("--objective", "pe", "--calibrate", "none"),
        ("--objective", "ece", "--rho", "0.3", "--rho", "equal", "--no-halving"),
        # the most accurate candidate need not be the one with the least log-loss
        ("--slack", "1e-9", "--log-loss-slack", "0"),
    ],
)
def test_other_options(table, tmp_path, more):
    out = tmp_path / "out"
    result = search(table, *COLUMNS, *QUICK, *more, "--out", out)
    check_frontier(out, result.stdout)
    results = pd.read_parquet(out / "results.parquet")
    if "0.3" in more:
        assert set(results["weights"]) == {"none", "0.7 0.3", "equal"}
    if "none" in more:
        assert set(results["calibrate"]) == {"none"}


def test_cross_entropy_alone(table, tmp_path):
    result = search(table, *COLUMNS, *QUICK[6:], "--loss", "ce", "--out", tmp_path / "out")
    assert "Chosen: ce, calibrate" in result.stdout


def test_another_reference(table, tmp_path):
    out = tmp_path / "out"
    result = search(table, *COLUMNS, *QUICK, "--reference", "f", "--out", out)
    assert words(result.stdout).count("PE compares with group 'f'.") == 2
    assert set(pd.read_csv(out / "frontier.csv")["reference_group"]) == {"f"}
    assert GroupwiseMLPClassifier.load(out / "model.safetensors").reference_group_ == "f"


def test_two_sensitive_columns(tmp_path):
    frame = people()
    frame["race"] = np.random.default_rng(1).choice(["[x]", "y"], len(frame))
    frame.to_csv(tmp_path / "people.csv", index=False)
    out = tmp_path / "out"
    result = search(tmp_path / "people.csv", *COLUMNS, "--group", "race", *QUICK, "--out", out)
    check_frontier(out, result.stdout)
    assert words(result.stdout).count("PE compares with group 'm, [x]'.") == 2


@pytest.mark.parametrize("kind", ["text", "numbers", "two columns"])
def test_small_groups_are_pooled(kind, tmp_path):
    frame, more = people(), ()
    group = np.random.default_rng(1).choice(["3", "4"], len(frame))
    group[:14], group[14:30] = "1", "2"
    if kind == "two columns":
        frame["race"], more = group, ("--group", "race")
    else:
        frame["sex"] = group if kind == "numbers" else np.char.add("g", group)
    frame.to_csv(tmp_path / "people.csv", index=False)
    out = tmp_path / "out"
    result = search(tmp_path / "people.csv", *COLUMNS, *more, *QUICK, "--out", out)
    check_frontier(out, result.stdout)
    assert "they are pooled into one" in result.stderr
    predict(out, tmp_path / "people.csv", tmp_path / "p.csv")


# --- four tables, by defaults alone -----------------------------------------------------------


def plain():
    return people(), {}


def three_of_each():
    """Three groups, three labels, missing values."""
    frame, rng = people(400, 1), np.random.default_rng(2)
    frame["sex"] = rng.choice(["f", "m", "x"], len(frame), p=[0.4, 0.4, 0.2])
    frame["paid"] = np.array(["high", "low", "middle"])[np.digitize(frame["x"], [-0.5, 0.5])]
    frame["x"] += rng.normal(size=len(frame))
    for name in ("x", "job"):
        frame.loc[rng.random(len(frame)) < 0.2, name] = None
    return frame, {}


def as_people_write_them():
    """Ids, dates, thousands separators and long texts."""
    frame, rng = people(250, 3), np.random.default_rng(4)
    frame.insert(0, "id", [f"K-{i:06d}" for i in range(len(frame))])
    days = pd.Timestamp("2020-01-31") + pd.to_timedelta(rng.integers(0, 900, len(frame)), "D")
    frame["since"] = days.strftime("%d.%m.%Y")
    frame["income"] = [f"{1000 * v:,.2f}" for v in rng.lognormal(3, 1, len(frame))]
    some = ["late payment", "new customer", "moved house", "called twice, was rude"]
    frame["remark"] = [
        "; ".join(rng.choice(some, 12)) + f" ({i})" for i in rng.integers(0, 10**6, len(frame))
    ]
    return frame, {}


def numbers_with_semicolons():
    """Labels and groups are numbers, a column is constant, and decimals have commas."""
    frame = people(200, 5)
    frame["paid"], frame["sex"] = (frame["paid"] == "yes").astype(int), frame["sex"].eq("f") + 1
    frame["country"] = 1
    return frame, {"sep": ";", "decimal": ","}


@pytest.mark.parametrize(
    "make", [plain, three_of_each, as_people_write_them, numbers_with_semicolons]
)
def test_defaults_on_tables_of_any_kind(make, tmp_path):
    frame, options = make()
    path, out = tmp_path / "table.csv", tmp_path / "out"
    frame.to_csv(path, index=False, **options)
    result = search(path, *COLUMNS, "--max-epochs", "2", "--out", out)
    assert {p.name for p in out.iterdir()} == {*FILES, "runs"}
    assert all((out / name).stat().st_size for name in FILES)
    assert "438 of 438 runs" in result.stderr
    check_frontier(out, result.stdout)
    results = pd.read_parquet(out / "results.parquet")
    assert set(results["loss"]) == set(LOSS_NAMES)
    assert set(results["weights"]) == {"none", "equal", "share"}
    assert results[["accuracy", "pe", "ece", "log_loss"]].notna().all(axis=None)
    predict(out, path, tmp_path / "p.csv", options.get("sep", ","))


# --- order of writing, full disks -------------------------------------------------------------


def test_a_picture_that_cannot_be_drawn_is_a_note(table, tmp_path, monkeypatch, found):
    def broken(*_):
        raise RuntimeError("no fonts")

    monkeypatch.setattr(FrontierSearch, "plot", broken)
    out = tmp_path / "out"
    result = search(table, *COLUMNS, *QUICK, "--out", out)
    assert "Note: The picture could not be drawn (no fonts); everything else is" in result.stderr
    assert {p.name for p in out.iterdir()} == {*FILES[:4], "runs"}
    assert contents(out) == contents(found[0])


def test_matplotlib_is_missing(copy, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = search(table, *COLUMNS, *QUICK, "--out", copy)
    assert "The picture could not be drawn" in result.stderr
    assert "matplotlib" in result.stderr


def test_results_are_there_when_the_model_fails(table, tmp_path, monkeypatch, found):
    def broken(*_, **__):
        raise ValueError("training diverged in the first epoch")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(GroupwiseMLPClassifier, "fit", broken)
        result = search(table, *COLUMNS, *QUICK, "--out", out, code=2)
    assert "training diverged in the first epoch" in result.stderr
    assert {p.name for p in out.iterdir()} == {*FILES[:3], "runs"}
    forbid_training(monkeypatch)
    search(table, *COLUMNS, *QUICK, "--out", out)
    assert contents(out) == contents(found[0])


def fill_disk(patch, full):
    """Let the disk be full for the files that `full` says yes to."""
    write = Path.write_bytes

    def refuse(path, content):
        if not full(path):
            return write(path, content)
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(Path, "write_bytes", refuse)


@pytest.mark.parametrize("number", [0, 1])
def test_a_disk_is_full_at_a_part(number, table, tmp_path, monkeypatch, found):
    out = tmp_path / "out"
    written = set()

    def full(path):
        if ".parquet." not in path.name or path.parent.name != "runs":
            return False
        written.add(path.name)
        return len(written) > number

    with monkeypatch.context() as patch:
        fill_disk(patch, full)
        result = search(table, *COLUMNS, *QUICK, "--out", out, code=2)
    said = words(result.stderr)
    assert "cannot be written to (No space left on device); free some space." in said
    assert "Parts that were finished are safe, and are not run again" in said
    before = parts(out)
    assert len(before) == number
    assert {p.name for p in out.iterdir()} == {"runs"}
    assert not list(out.rglob("*.tmp"))
    search(table, *COLUMNS, *QUICK, "--out", out)
    assert before.items() <= parts(out).items()
    assert contents(out) == contents(found[0])


@pytest.mark.parametrize("name", FILES)
def test_a_disk_is_full_at_the_end(name, table, copy, monkeypatch, found):
    for file in FILES:
        (copy / file).unlink()
    forbid_training(monkeypatch)
    with monkeypatch.context() as patch:
        fill_disk(patch, lambda path: path.name.startswith(name))
        picture = name in FILES[4:]
        result = search(table, *COLUMNS, *QUICK, "--out", copy, code=0 if picture else 2)
    assert "No space left on device" in words(result.stderr)
    assert "free some space. Every finished run is safe" in words(result.stderr) or picture
    kept = FILES[: FILES.index(name)]
    assert {p.name for p in copy.iterdir()} == {*kept, "runs"}
    search(table, *COLUMNS, *QUICK, "--out", copy)
    assert contents(copy) == contents(found[0])


# --- stopped and repeated ---------------------------------------------------------------------


@pytest.mark.usefixtures("no_training")
def test_repeated_nothing_is_trained_again(table, copy, found):
    before = parts(copy)
    for more in ((), ("--force",)):
        result = search(table, *COLUMNS, *QUICK, "--out", copy, *more)
        assert f"{RUNS} of {RUNS} runs" in result.stderr
        assert parts(copy) == before
        assert contents(copy) == contents(found[0])


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("more", [("--objective", "ece"), ("--objective", "pe")])
def test_another_choice_needs_no_training(table, copy, more):
    before = parts(copy)
    search(table, *COLUMNS, *QUICK, "--out", copy, *more)
    assert parts(copy) == before


def test_a_time_limit_that_is_too_short(table, tmp_path, found):
    out = tmp_path / "out"
    result = search(table, *COLUMNS, *QUICK, "--time-limit", "0.001", "--out", out, code=2)
    assert f"stopped when 0 of {RUNS} runs were finished, too few to choose from" in result.stderr
    assert "repeat the search to go on" in result.stderr
    assert {p.name for p in out.rglob("*")} == {"runs", "search.json"}
    search(table, *COLUMNS, *QUICK, "--out", out)
    assert contents(out) == contents(found[0])


@pytest.mark.parametrize(
    ("kept", "runs"),
    [
        ("first split", 6),
        ("controls", 3),
        ("candidates", 3),
        ("last split", 4),
    ],
)
def test_a_time_limit_keeps_what_is_finished(kept, runs, table, copy, found, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(copy / "runs", out / "runs")
    trials = json.loads((out / "runs" / "search.json").read_text())["search"]["trials"]
    for path in (out / "runs").glob("*.parquet"):
        part = pd.read_parquet(path)
        first = set(part["split"]) == {0}
        controls = {trials[i]["control"] is not None for i in part["trial"]}
        wanted = {
            "first split": first,
            "controls": first and controls == {True},
            "candidates": first and controls == {False},
            "last split": not first,
        }
        if not wanted[kept]:
            path.unlink()
    before = parts(out)
    assert before
    # candidates cannot be compared without controls, nor the last split without the first
    code = 0 if kept in ("first split", "controls") else 2
    result = search(table, *COLUMNS, *QUICK, "--time-limit", "0.001", "--out", out, code=code)
    assert parts(out) == before
    assert "repeat the search to go on" in result.stderr
    if code:
        count = 0 if kept == "last split" else runs
        assert f"stopped when {count} of {RUNS} runs were finished, too few" in result.stderr
        assert {p.name for p in out.iterdir()} == {"runs"}
    else:
        assert f"the search was stopped: {runs} of {RUNS} runs are finished" in result.stderr
        assert json.loads((out / "summary.json").read_text())["stopped"] is True
        assert len(pd.read_parquet(out / "results.parquet")) == 4 * runs
        assert {p.name for p in out.iterdir()} == {*FILES, "runs"}
    search(table, *COLUMNS, *QUICK, "--out", out)
    assert before.items() <= parts(out).items()
    assert contents(out) == contents(found[0])


def test_a_damaged_part_is_made_again(table, copy, found):
    damaged = sorted((copy / "runs").glob("*.parquet"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    result = search(table, *COLUMNS, *QUICK, "--out", copy)
    assert "a damaged part was set aside" in result.stderr
    assert contents(copy) == contents(found[0])


# --- folders ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("more", "different"),
    [
        (("--max-epochs", "4"), "max_epochs"),
        (("--learning-rate", "0.01"), "learning_rate"),
        (("--seed", "1"), "seed"),
        (("--log-loss-slack", "1"), "log_loss_slack"),
        (("--n-seeds", "3"), "splits"),
        (("--lam", "2"), "trials"),
        (("--drop", "job"), "other data"),
        (("--reference", "f"), "reference"),
    ],
)
def test_the_folder_of_another_search_is_refused(table, copy, found, more, different):
    result = search(table, *COLUMNS, *QUICK, "--out", copy, *more, code=2)
    said = words(result.stderr)
    assert f"{copy} holds " in said
    assert different in said
    assert "choose another folder, or pass --force to replace it" in said
    assert contents(copy) == contents(found[0])


def test_force_replaces_another_search(table, copy, tmp_path):
    more = ("--seed", "1")
    (copy / "runs" / "mine.txt").write_text("kept")
    # where it is stopped, nothing of the other search stays beside it
    short = ("--time-limit", "0.001")
    search(table, *COLUMNS, *QUICK, "--out", copy, "--force", *more, *short, code=2)
    assert {p.name for p in copy.rglob("*")} == {"runs", "search.json", "mine.txt"}
    search(table, *COLUMNS, *QUICK, "--out", copy, *more)
    fresh = tmp_path / "fresh"
    search(table, *COLUMNS, *QUICK, "--out", fresh, *more)
    assert contents(copy) == contents(fresh)
    assert (copy / "runs" / "mine.txt").read_text() == "kept"


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", FILES)
def test_files_of_the_same_name_are_not_overwritten(table, tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = search(table, *COLUMNS, *QUICK, "--out", tmp_path, code=2)
    assert f"{name} exists, and is not of a search that can go on" in words(result.stderr)
    assert "pass --force" in result.stderr
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / "runs").exists()


def test_force_overwrites_files_of_the_same_name(table, tmp_path):
    (tmp_path / "frontier.csv").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine too")
    search(table, *COLUMNS, *QUICK, "--out", tmp_path, "--force")
    assert (tmp_path / "frontier.csv").read_text().startswith("loss,weights,")
    assert (tmp_path / "notes.txt").read_text() == "mine too"


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("where", ["a file", "below a file", "a folder", "runs is a file"])
def test_what_is_in_the_way(table, tmp_path, where):
    out = tmp_path / "out"
    if where == "a file":
        out.write_text("mine")
        said = "is a file"
    elif where == "below a file":
        out = table / "out"
        said = "is no folder that can be written to"
    elif where == "a folder":
        (out / "summary.json").mkdir(parents=True)
        said = "summary.json is a folder, where a file is to be written"
    else:
        out.mkdir()
        (out / "runs").write_text("mine")
        said = "cannot be written to"
    result = search(table, *COLUMNS, *QUICK, "--out", out, "--force", code=2)
    assert said in words(result.stderr)
    assert "mine" in (out.read_text() if where == "a file" else "mine")


@pytest.mark.usefixtures("no_training")
def test_a_folder_that_can_only_be_read(table, tmp_path, monkeypatch):
    # the tests may run as root, who may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and mode)
    result = search(table, *COLUMNS, *QUICK, "--out", tmp_path / "out", code=2)
    assert f"{tmp_path} is no folder that can be written to" in words(result.stderr)


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--time-limit", "0"), "Invalid value for '--time-limit': 0.0 is not in the range x>0"),
        (("--time-limit", "nan"), "time_limit must be positive seconds, got nan"),
        (("--slack", "nan"), "slack must be positive and finite, got nan"),
        (("--lam", "nan"), "lam must be finite and not negative, got nan"),
        (("--address", "localhost:1"), "--address is for --engine ray"),
        (("--engine", "ray", "--address", "here"), "'here' is no address of a Ray cluster"),
        (("--rho", "2"), "'2' is neither none, equal, share nor a number from 0 to 1"),
        (("--rho", "nan"), "'nan' is neither none, equal, share nor a number"),
        (("--reference", "nobody"), "--reference: there is no group 'nobody'; there are f; m"),
        (("--loss", "svm"), "'svm' is not one of"),
        (("--label", "pay"), "paid"),
        (("--n-seeds", "0"), "'--n-seeds'"),
        (("--small-groups", "error", "--min-group-size", "150"), "--small-groups pool"),
    ],
)
def test_bad_options(table, tmp_path, more, said):
    result = search(table, *COLUMNS, *QUICK, "--out", tmp_path / "out", *more, code=2)
    assert said in words(result.stderr)
    assert not (tmp_path / "out").exists()


def one_label(frame):
    return frame.assign(paid="yes")


def one_row(frame):
    return frame.assign(sex=["x", *frame["sex"][1:]])


def a_label_is_missing(frame):
    """The largest group, which PE compares with, has no row of a label."""
    return frame.assign(paid=frame["paid"].where(frame["sex"] == "f", "yes"))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (one_label, "label 'paid' has only one value, 'yes'; two or more are needed"),
        (one_row, "merge it with another group"),
        (a_label_is_missing, "which PE compares with, has too few rows of label 'no'"),
        (lambda frame: frame[:0], "no rows"),
    ],
)
def test_bad_tables_are_refused_before_training(tmp_path, spoil, said):
    spoil(people()).to_csv(tmp_path / "people.csv", index=False)
    out = tmp_path / "out"
    result = search(tmp_path / "people.csv", *COLUMNS, *QUICK, "--out", out, code=2)
    assert said in words(result.stderr)
    assert not out.exists()


def test_where_pe_is_infinite_ece_still_chooses(tmp_path):
    a_label_is_missing(people()).to_csv(tmp_path / "people.csv", index=False)
    out = tmp_path / "out"
    more = ("--objective", "ece", "--out", out)
    result = search(tmp_path / "people.csv", *COLUMNS, *QUICK, *more)
    assert "Chosen: " in result.stdout
    assert not re.search(r"\binf\b", result.output, re.IGNORECASE)
    assert {p.name for p in out.iterdir()} == {*FILES, "runs"}
