"""`equipoise reproduce`: a small grid trained, found again, stopped, damaged and refused."""

import json
import re
import shutil
import sys

import pytest
from click.testing import CliRunner

from equipoise.cli import main
from equipoise.paper import _grids as grids
from equipoise.paper import _results as results
from equipoise.training import Bar

GRID = {
    "loss": ["ce", "ls", "fl", "flsd", "dca", "mdca", "mmce", "mmce-w", "mmce-w*"],
    "lam": [1.0, 30.0],
    "seeds": [0, 1],
    "controls": "equal",
    "max_epochs": 3,
    "batch_size": 256,
    "hidden_layer_sizes": [8],
    "output_relu": True,
    "learning_rate": 1e-2,
    "rho": {"german": [0.4, 0.8], "compas": [0.5]},
}
SMALL = {"quick": GRID, "paper": GRID | {"max_epochs": 2}}


@pytest.fixture(autouse=True, scope="module")
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "all_grids", lambda: SMALL)
        # figures have their own tests; drawing them takes longer than all else here
        patch.setattr(results, "pareto_figure", len)
        patch.setattr(results, "rendered", lambda figure, kind: f"{figure} {kind}".encode())
        patch.setenv("COLUMNS", "80")
        yield


def reproduce(*arguments):
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)])


def interrupt(*_):
    raise KeyboardInterrupt


def contents(folder):
    """Return the files of a folder; the page has the command in it, and so the folder's name."""
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {p: re.sub(rb"--(runs|out) \S+", b"", v) for p, v in found.items()}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Return the folder of a finished run, not to be changed, and what was said."""
    folder = tmp_path_factory.mktemp("runs")
    result = reproduce("german", "--runs", folder)
    assert result.exit_code == 0, result.output
    return folder, result


@pytest.fixture
def runs(first, tmp_path):
    """Return a copy of the finished run."""
    return shutil.copytree(first[0], tmp_path / "runs")


@pytest.mark.slow
def test_tables_figures_and_page(first):
    folder, result = first
    for number in range(2, 9):
        assert f"Table {number}" in result.stdout
    for text in ("as published", "validated", "Claims, both readings", "german"):
        assert text in result.stdout
    assert "temperatures by the paper's recipe" in result.stderr
    assert "Tables, figures and a page with all of them" in result.stdout
    store, out = folder / "quick" / "german", folder / "quick" / "results"
    assert len(list(store.glob("*.parquet"))) == len(list(store.glob("recipe/*.parquet"))) == 2
    assert {p.name for p in (out / "german").iterdir()} == {
        "choices.parquet",
        "facts.json",
        "frontiers.parquet",
        "recipe.parquet",
    }
    page = (out / "REPLICA.md").read_text()
    assert f"    equipoise reproduce --grid quick --runs {folder}\n" in page
    assert "These runs are not the paper's grid but a thinned one" in page
    assert "These runs are not the paper's grid" in re.sub(r"\s+", " ", result.stdout)
    assert "**Not there yet: compas.**" in page
    assert "60 runs, 3 epochs each" in page  # 4 + 3 x 2 + 5 x 4, of each of two seeds
    # a note is said once, however many tables it is for
    assert re.sub(r"\s+", " ", result.stdout).count("MMCE-W* is MMCE-W as the paper's code") == 1
    assert not [p for p in folder.rglob("*") if p.suffix in (".tmp", ".lock")]


def test_a_second_time_nothing_is_trained(runs, monkeypatch):
    before = contents(runs)
    monkeypatch.setattr("equipoise.sweep._execution.compute", None)  # not to be called
    monkeypatch.setattr("equipoise.paper._scaling.epochs_of", None)
    result = reproduce("german", "--runs", runs)
    assert result.exit_code == 0, result.output
    assert contents(runs) == before


def test_another_folder_and_baseline(runs, tmp_path):
    out = tmp_path / "deep" / "results"
    result = reproduce("german", "--runs", runs, "--out", out, "--baseline", "point")
    assert result.exit_code == 0, result.output
    page = (out / "REPLICA.md").read_text()
    command = f"equipoise reproduce --grid quick --runs {runs} --out {out} --baseline point"
    assert f"    {command}\n" in page
    assert "all three against cross-entropy at its own best epoch" in page
    old = contents(runs / "quick" / "results")
    new = contents(out)
    assert set(old) == set(new)
    assert {p for p in old if p.parent.name == "german"} <= {p for p in old if old[p] == new[p]}
    different = {p.name for p in old if old[p] != new[p]}
    assert {"REPLICA.md", "table5.csv", "table5-all.csv"} <= different
    assert not any("validated" in name for name in different)


def test_a_damaged_part_is_set_aside_and_run_again(runs):
    store = runs / "quick" / "german"
    before = contents(runs)
    part = sorted(store.glob("*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-200])
    next((store / "recipe").glob("*.parquet")).write_bytes(b"")  # made again without a word
    result = reproduce("german", "--runs", runs)
    assert result.exit_code == 0, result.output
    assert "Note: a damaged part was set aside as" in result.stderr
    assert "UserWarning" not in result.stderr
    part.with_suffix(".damaged").unlink()
    log = store.relative_to(runs) / "parts.log"
    after = contents(runs)
    assert {p: v for p, v in after.items() if p != log} == {
        p: v for p, v in before.items() if p != log
    }


def test_a_missing_part_is_run(runs):
    before = contents(runs / "quick" / "results")
    sorted((runs / "quick" / "german").glob("*.parquet"))[1].unlink()
    shutil.rmtree(runs / "quick" / "german" / "recipe")
    assert reproduce("german", "--runs", runs).exit_code == 0
    assert contents(runs / "quick" / "results") == before


def test_stopped_and_resumed(tmp_path, first, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Bar, "advance", interrupt)
        result = reproduce("german", "--runs", tmp_path)
    assert result.exit_code == 130
    assert "0 of 2 parts are finished and safe; run the same command again" in result.stderr
    assert "Traceback" not in result.output
    assert not list((tmp_path / "quick" / "results").iterdir())
    assert reproduce("german", "--runs", tmp_path).exit_code == 0
    expected = first[0] / "quick" / "results"
    assert contents(tmp_path / "quick" / "results") == contents(expected)


def test_stopped_later(runs, monkeypatch):
    monkeypatch.setattr("equipoise.paper._reproduce.digest", interrupt)
    result = reproduce("german", "--runs", runs)
    assert result.exit_code == 130
    assert "Note: stopped. Finished runs are safe: give the same command again" in result.stderr


def test_results_of_another_grid_are_kept(runs):
    """The folder of the quick results is refused for the paper's grid before anything is done."""
    out = runs / "quick" / "results"
    before = contents(out)
    result = reproduce("german", "--grid", "paper", "--runs", runs, "--out", out)
    assert result.exit_code == 2
    assert "holds results of another grid; choose another folder with --out" in result.stderr
    assert contents(out) == before
    assert not (runs / "paper").exists()


def test_results_of_several_datasets_stand_together(runs):
    """A dataset whose results are there already is shown on the page beside the new one."""
    out = runs / "quick" / "results"
    facts = json.loads((out / "german" / "facts.json").read_text())
    facts["dataset"], facts["sweep"] = "compas", grids.grid("quick")["compas"].to_dict()
    shutil.copytree(out / "german", out / "compas")
    (out / "compas" / "facts.json").write_text(json.dumps(facts))
    result = reproduce("german", "--runs", runs)
    assert result.exit_code == 0, result.output
    page = (out / "REPLICA.md").read_text()
    assert "2 datasets (german, compas)" in page
    assert "Not there yet" not in page
    assert "(frontiers.svg)" in page
    assert "compas" not in result.stdout, "only what was asked for is printed"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["adult"], 2, "the grid 'quick' has no dataset 'adult'; it has german, compas\n"),
        (["german", "--out", "/proc/x"], 2, "/proc/x cannot be written to (No such file"),
        (["--grid", "full"], 2, "'full' is not one of 'quick', 'paper'"),
        (["--address", "auto"], 2, "--address is for --engine ray"),
        (["--workers", "0"], 2, "0 is not in the range"),
        (["--baseline", "best"], 2, "'best' is not one of"),
        (["--data", "nowhere"], 2, "does not exist"),
    ],
)
def test_refused_before_any_work(tmp_path, arguments, code, message):
    result = reproduce(*arguments, "--runs", tmp_path / "runs")
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


def test_no_address(tmp_path):
    result = reproduce("german", "--runs", tmp_path, "--engine", "ray", "--address", "x")
    assert result.exit_code == 2
    assert "'x' is no address of a Ray cluster; it is host:port" in result.stderr


def test_matplotlib_is_missed_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = reproduce("german", "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    assert "drawing needs matplotlib: pip install 'equipoise[plot]'" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_data_that_cannot_be_read_is_missed_before_any_work(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "german.data").write_text("not it")
    result = reproduce("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    assert result.exit_code == 2
    assert "german.data" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [("facts.json", b"{"), ("facts.json", b"{}"), ("choices.parquet", b"PAR1"), ("recipe", None)],
)
def test_damaged_results_are_made_again(runs, name, content):
    out = runs / "quick" / "results"
    before = contents(out)
    if content is None:
        (out / "german" / "recipe.parquet").unlink()
    else:
        (out / "german" / name).write_bytes(content)
    result = reproduce("german", "--runs", runs)
    assert result.exit_code == 0, result.output
    assert contents(out) == before


@pytest.mark.parametrize("content", [b"{", b"{}"])
def test_damaged_results_of_another_dataset_are_named_before_any_work(runs, content, monkeypatch):
    out = runs / "quick" / "results"
    shutil.copytree(out / "german", out / "compas")
    (out / "compas" / "facts.json").write_bytes(content)
    monkeypatch.setattr("equipoise.paper._reproduce.run", None)  # not to be called
    result = reproduce("german", "--runs", runs)
    assert result.exit_code == 2
    assert f"the results in {out / 'compas'} are damaged" in result.stderr
    assert "remove that folder" in result.stderr
