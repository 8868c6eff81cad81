"""`equipoise reproduce --grid decisive`: a small design run, stopped, damaged and refused."""

import copy
import importlib
import shutil

import pytest
from click.testing import CliRunner

from equipoise.cli import main
from equipoise.paper._published import read_toml
from equipoise.training import Bar

DESIGN = importlib.import_module("equipoise.paper._study._design")
REPRODUCE = importlib.import_module("equipoise.paper._study._reproduce")

pytestmark = pytest.mark.slow


def small():
    """Return the registered file with two datasets, four folds and two epochs."""
    found = copy.deepcopy(read_toml("decisive.toml"))
    design = found["design"]
    design |= {"folds": 4, "resamples": 20, "hidden_layer_sizes": [8]}
    for way in ("common", "recipe", "group-shrunk", "bcts"):  # no claim needs them
        del design["calibrations"][way]
    shared = {"repeats": 1, "max_epochs": 2, "patience": 2, "learning_rate": 1e-2}
    design["networks"] = [
        {"network": network, "datasets": ["german", "compas"], "rows": 400, **shared}
        for network in ("linear", "relu")
    ]
    return found


@pytest.fixture(autouse=True, scope="module")
def _small():
    found = small()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DESIGN, "read_toml", lambda _: found)
        patch.setenv("COLUMNS", "100")
        yield


def reproduce(*arguments):
    return CliRunner().invoke(main, ["reproduce", "--grid", "decisive", *map(str, arguments)])


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Return the folder of a finished study, not to be changed, and what was said."""
    folder = tmp_path_factory.mktemp("study")
    result = reproduce("--runs", folder)
    assert result.exit_code == 0, result.output
    return folder / "decisive", result


def test_verdicts_are_printed_and_the_page_is_written(first):
    folder, result = first
    assert "The registered claims, over 2 datasets" in result.stdout
    assert result.stdout.count("undecided") + result.stdout.count("equivalent") >= 5
    out = folder / "results"
    page = (out / "README.md").read_text("utf-8")
    assert page.startswith("# What of the paper holds\n")
    assert "Not run yet" not in page
    assert "With the paper's network" in page
    for name in ("METHODS.md", "claims.svg"):
        assert (out / name).stat().st_size > 500
    for name in ("german-linear", "compas-relu"):
        assert {p.name for p in (out / "decisive" / name).iterdir()} == {
            "outcomes.parquet",
            "effects.parquet",
            "facts.json",
        }


def test_what_is_finished_is_not_run_again(first, tmp_path):
    shutil.copytree(first[0] / "results", tmp_path / "decisive" / "results")
    again = reproduce("--runs", tmp_path)
    assert again.exit_code == 0, again.output
    assert not (tmp_path / "decisive" / "german-linear").exists()
    assert (
        again.stdout.replace("\n", "").split("The page")[0]
        == (first[1].stdout.replace("\n", "").split("The page")[0])
    )


def test_one_study_alone_says_what_is_missing(tmp_path):
    result = reproduce("german-linear", "--runs", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Verdicts need two datasets" in result.stdout
    page = (tmp_path / "decisive" / "results" / "README.md").read_text("utf-8")
    assert "Not run yet: compas-linear, german-relu, compas-relu" in page


def test_ctrl_c_keeps_what_is_finished(tmp_path, monkeypatch):
    class Stopping(Bar):
        def advance(self, steps):
            super().advance(steps)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(REPRODUCE, "Bar", Stopping)  # while measuring: all runs are finished
        stopped = reproduce("german-linear", "--runs", tmp_path)
    assert stopped.exit_code == 130
    assert "Finished runs are safe" in stopped.stderr
    parts = sorted((tmp_path / "decisive" / "german-linear").glob("*.parquet"))
    times = [p.stat().st_mtime_ns for p in parts]
    assert len(parts) == 4
    again = reproduce("german-linear", "--runs", tmp_path)
    assert again.exit_code == 0, again.output
    assert [p.stat().st_mtime_ns for p in parts] == times


def test_bad_input_is_named_before_any_work(first, tmp_path):
    result = reproduce("germany", "--runs", tmp_path)
    assert result.exit_code == 2
    assert "has no dataset 'germany'; it has german, compas" in result.stderr
    other = tmp_path / "other"
    shutil.copytree(first[0] / "results", other)
    facts = other / "decisive" / "german-relu" / "facts.json"
    facts.write_text(facts.read_text().replace('"max_epochs": 2', '"max_epochs": 3'))
    result = reproduce("--runs", tmp_path, "--out", other)
    assert result.exit_code == 2
    assert "holds results of another design; choose another folder" in result.stderr
    facts.write_text("{")
    result = reproduce("--runs", tmp_path, "--out", other)
    assert result.exit_code == 2
    assert "are damaged" in result.stderr
    assert not (tmp_path / "decisive").exists()
