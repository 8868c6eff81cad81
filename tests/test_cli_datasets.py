"""The command lists and shows the datasets, fast and without fetching anything."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import equipoise
from equipoise.cli import main
from equipoise.datasets import _registry as registry


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("EQUIPOISE_DATA", raising=False)
    monkeypatch.setattr(registry, "cache_dir", lambda: tmp_path / "cache")
    for downloads in ("pooch.retrieve", "equipoise.datasets._archives._downloaded"):
        monkeypatch.setattr(downloads, lambda *_: pytest.fail("nothing may be downloaded"))


def run(*arguments, code=0):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_list():
    shown = run("datasets")
    assert "…" not in shown
    rows = {line.split()[0]: line for line in shown.splitlines() if line.split()}
    for name, entry in registry.ENTRIES.items():
        numbers = [
            float(v) for v in re.findall(r"(?<!\S)[\d.,]+(?!\S)", rows[name].replace(",", ""))
        ]
        facts = entry.statistics
        assert numbers == [facts.rows, facts.columns, facts.share, *facts.rates]
        paper = [float(v) for v in re.findall(r"\(([\d.]+)\)", rows[name])]
        theirs = entry.paper
        assert paper == ([theirs.columns, theirs.share, *theirs.rates] if theirs else [])
        carried = name in ("adult-full", "compas", "german")
        assert rows[name].rstrip().endswith("carried" if carried else "to be fetched")


def test_list_says_where_the_data_is(monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path))
    (tmp_path / "drug_consumption.data").write_text("not this")
    rows = {line.split()[0]: line for line in run("datasets").splitlines() if line.split()}
    assert rows["drug"].rstrip().endswith("corrupt")
    assert rows["adult"].rstrip().endswith("missing")
    assert rows["german"].rstrip().endswith("carried")


@pytest.mark.parametrize("name", registry.ENTRIES)
def test_show(name):
    shown = run("datasets", name)
    entry = registry.ENTRIES[name]
    assert entry.title in shown
    for text in (*entry.classes, *(n for names in entry.groups.values() for n in names)):
        assert text in shown
    for file in (registry.FILES[f] for f in entry.files):
        for text in (file.name, file.origin, file.sha256, file.licence, file.citation):
            assert text in shown
    if name in ("adult-full", "compas", "german"):
        assert "carried" in shown
    else:
        assert "listed once the data is here (--fetch)" in shown


def test_show_features():
    shown = run("datasets", "german")
    assert "status (4 values), months, history (5 values)" in shown
    assert 'load("german", group="gender")' in shown


def test_fetch(monkeypatch, tmp_path):
    def fail(address, *_):
        raise OSError(address)

    monkeypatch.setattr("pooch.retrieve", fail)
    shown = run("datasets", "drug", "--fetch", code=2)
    file = registry.FILES["drug_consumption.data"]
    for text in ("Error: ", file.name, file.address, file.sha256, str(tmp_path / "cache")):
        assert text in shown
    assert "Traceback" not in shown


def test_groups_of_several_values():
    shown = run("datasets", "census-income")
    assert "race; A=0: White; A=1: Black; A=2: Asian or Pacific Islander; A=3: Amer" in shown
    assert 'load("census-income", group="race")' in shown


def test_mistakes():
    assert "did you mean 'german'?" in run("datasets", "germn", code=2)
    assert "--fetch needs the NAME" in run("datasets", "--fetch", code=2)
    assert "No such command" in run("dataset", code=2)


def test_version_and_help():
    assert run("--version") == f"equipoise, version {equipoise.__version__}\n"
    assert "datasets" in run("--help")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from equipoise.cli import main; main(['--help'], standalone_mode=False);"
        "sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'rich', 'pooch', 'narwhals')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_listing_does_not_import_torch():
    code = (
        "import sys; from equipoise.cli import main; main(['datasets'], standalone_mode=False);"
        "sys.exit(any(m in sys.modules for m in ('torch', 'sklearn', 'pandas')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
