"""The README's Python blocks and the examples run as written, and the site builds."""

import importlib
import re
import runpy
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from equipoise.cli import main

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_readme_blocks(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a block keeps its runs in the current folder
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 11
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    shown = capsys.readouterr().out
    assert "Proportional equality" in shown
    assert scope["report"].overall["accuracy"] > 0.6
    assert scope["again"].verdicts[1].text in shown
    assert scope["loaded"].calibrators_ == scope["repair"].calibrators_
    assert scope["repair"].method_ != "none"
    assert set(scope["scaling"].temperatures_) == {0, 1}
    assert scope["repaired"].shape == (1278, 2)
    assert set(scope["net"].temperatures_) == {0, 1}
    assert all(p.grad is not None for p in scope["layers"].parameters())
    assert len(scope["runs"]) == 8 * 5
    assert len(scope["parts"].test.y) == 10
    assert {name for name, _ in scope["best"]} == {"ce", "mmce"}
    assert scope["chosen"]["val_accuracy"] > 0.5
    before, after = scope["before"], scope["after"]
    assert after.overall["log_loss"] < 0.95 * before.overall["log_loss"]
    pe = [r.proportional_equality["stochastic"] for r in (before, after)]
    assert pe[1] < pe[0]
    assert len(scope["search"].frontier_) > 0


def test_sweep_of_the_guide(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "sweeps.md").read_text()
    (described,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "sweep.toml").write_text(described)
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(block, "sweeps.md", "exec"), scope)
    assert "mmce" in capsys.readouterr().out
    # 2 seeds x (4 cross-entropy, and 2 losses x 2 rho x 2 lam), 3 epochs
    rows = scope["store"].query("select * from runs").to_arrow_table()
    assert len(rows) == 2 * (4 + 8) * 3
    said = set(re.findall(r"`((?:val|loss|rho|lam|split|seed|epoch|div)[a-z0-9_]*)`", text))
    assert said - {"val"} <= set(rows.column_names), "columns that the guide names"
    assert {"sweep.json", "parts.log"} <= {p.name for p in (tmp_path / "runs/german").iterdir()}


def test_repair_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = (ROOT / "docs" / "calibrate.md").read_text()
    first, *python = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(first, "calibrate.md", "exec"), scope)
    commands = re.findall(r"```sh\nequipoise (.*?)\n```", text)
    shown = [CliRunner().invoke(main, shlex.split(command)) for command in commands]
    assert [result.exit_code for result in shown] == [0, 0]
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert [line.rstrip() for line in shown[0].output.splitlines()] == printed.splitlines()
    assert shown[1].output == "1,278 calibrated rows in calibrated.csv\n"
    for block in python:
        exec(compile(block, "calibrate.md", "exec"), scope)
    assert set(scope["calibrator"].calibrators_) == {"African-American", "Caucasian"}


def test_demo(capsys):
    demo = runpy.run_path(str(ROOT / "examples" / "repair.py"))
    demo["main"]()
    shown = capsys.readouterr().out
    for word in ("German credit", "under 25", "COMPAS", "African-American", "→"):
        assert word in shown


def test_stream(capsys):
    recent, whole = runpy.run_path(str(ROOT / "examples" / "audit_stream.py"))["main"]()
    shown = capsys.readouterr().out
    # the last batches show what the whole stream hides less clearly
    assert recent.verdicts["south"].word == "miscalibrated"
    assert recent.verdicts["south"].direction == "over-confident"
    assert recent.verdicts["north"].word == "calibrated"
    assert recent.groups["south"]["ece"] > whole.groups["south"]["ece"] > 0.04
    assert whole.table["rows"].sum() == 40_000
    assert "Batch 60: miscalibrated[south] fails" in shown


@pytest.mark.slow
def test_site(tmp_path):
    """Every page is there, every link leads somewhere, and the reference has the public names."""
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", "docs", ".", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "index.html").read_bytes() == (tmp_path / "README.html").read_bytes()
    reference = (tmp_path / "docs" / "reference.html").read_text("utf-8")
    modules = re.findall("automodule:: (.*)", (ROOT / "docs" / "reference.md").read_text())
    public = [(m, name) for m in modules for name in importlib.import_module(m).__all__]
    # by the thing itself: some are offered by two rooms, and described once
    names: dict[int, list[str]] = {}
    for m, name in public:
        found = getattr(sys.modules[m], name)
        if isinstance(found, type | types.FunctionType):
            names.setdefault(id(found), []).append(f"{m}.{name}")
    assert len(names) > 50
    missing = [own for own in names.values() if not any(f'id="{n}"' in reference for n in own)]
    assert missing == []
    results = (tmp_path / "paper" / "results" / "README.html").read_text("utf-8")
    assert "What of the paper holds" in results
    replica = (tmp_path / "paper" / "results" / "REPLICA.html").read_text("utf-8")
    assert "Claims, both readings" in replica


@pytest.mark.parametrize("module", ["torch", "sklearn", "pandas", "rich", "plotly", "duckdb"])
def test_import_stays_light(module):
    code = f"import sys, equipoise; dir(equipoise); sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names():
    pytest.importorskip("torch")
    import equipoise

    for name in equipoise.__all__:
        assert getattr(equipoise, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Equipoise'"):
        _ = equipoise.Equipoise


@pytest.mark.slow
def test_the_page_of_faults_counts_the_rows_that_there_are():
    tool = runpy.run_path(str(ROOT / "tools" / "faults.py"))
    page = (ROOT / "docs" / "faults.md").read_text("utf-8")
    assert page == tool["page"](), "run python tools/faults.py"
