"""The harness of the table of faults: each row is a fault and the outcome that is promised.

A row runs in a folder of its own, which holds what `prepared` made: predictions (`d.csv`,
`d.parquet`), their audit (`audit.json`), a calibrator (`cal.json`) and, with `needs_model`, a model
(`model`). Whatever the fault, there is no traceback, no control character reaches the screen, no
file is lost or changed, and no temporary file stays.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

COLUMNS = ("--label", "y", "--prob", "p", "--group", "sex")
SECONDS = 60
"""Most seconds that a command in a process of its own may take."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault, and what happens.

    Attributes
    ----------
    name
        The fault in a few words.
    run
        Arguments of `equipoise`, names being relative to the folder; or a function of the folder,
        which must raise ValueError, TypeError or OSError where `code` is 2, and nothing where it
        is 0.
    says
        A pattern in what is printed, or in the error.
    arrange
        Makes the fault in the folder.
    code
        Exit code.
    makes
        Files, relative to the folder, that may be new or changed afterwards.
    check
        Further checks of the folder and the output.
    process
        Whether it needs a process of its own, with a real standard output.
    """

    name: str
    run: Sequence[str] | Callable[[Path], object]
    says: str
    arrange: Callable[[Path], object] = lambda _: None
    code: int = 2
    makes: Sequence[str] = ()
    check: Callable[[Path, str], object] = lambda *_: None
    process: bool = False
    needs_model: bool = False
    marks: Sequence[pytest.MarkDecorator] = ()

    def __str__(self) -> str:
        return self.name


def rows(faults: Sequence[Fault]) -> pytest.MarkDecorator:
    """Return the table as parameters of a test."""
    names = [fault.name for fault in faults]
    assert len(set(names)) == len(names), "two rows have the same name"
    return pytest.mark.parametrize(
        "fault", [pytest.param(f, id=f.name.replace(" ", "-"), marks=f.marks) for f in faults]
    )


def people(n: int = 80, seed: int = 0) -> pd.DataFrame:
    """Return predictions for two groups, with a feature."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, n).round(3)
    return pd.DataFrame(
        {
            "p": p,
            "age": rng.integers(20, 60, n),
            "sex": rng.choice(["f", "m"], n),
            "y": np.where(rng.random(n) < p, "yes", "no"),
        }
    )


def prepare(folder: Path, *, model: bool) -> None:
    """Make the files that every row finds."""
    people().to_csv(folder / "d.csv", index=False)
    people().to_parquet(folder / "d.parquet")
    commands = [
        ["audit", "d.csv", *COLUMNS, "--json", "audit.json"],
        ["calibrate", "d.csv", *COLUMNS, "--out", "cal.json"],
    ]
    if model:
        known = ("--label", "y", "--group", "sex", "--drop", "p")
        commands.append(["train", "d.csv", *known, "--max-epochs", "1", "--out", "model"])
    for command in commands:
        code, said = run_here(command, folder)
        assert code == 0, said


def run_here(arguments: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a command in this process; return its exit code and all that it printed."""
    from equipoise.cli import main

    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(main, list(arguments))
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def run_process(
    arguments: Sequence[str], folder: Path, **options: object
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "equipoise", *arguments],
        cwd=folder,
        timeout=SECONDS,
        check=False,
        **({"capture_output": True} | options),
    )


def contents(folder: Path) -> dict[str, str]:
    """Return the hash of each file in a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def check_fault(fault: Fault, folder: Path, prepared: Path) -> None:
    """Run a row of the table, and check what it promises."""
    shutil.copytree(prepared, folder, dirs_exist_ok=True)
    fault.arrange(folder)
    before = contents(folder)
    if callable(fault.run):
        said = _called(fault, folder)
    else:
        if fault.process:
            result = run_process(fault.run, folder)
            code, said = result.returncode, (result.stdout + result.stderr).decode()
        else:
            code, said = run_here(fault.run, folder)
        assert code == fault.code, said
    assert re.search(fault.says, " ".join(said.split())), said
    check_said(said)
    after = contents(folder)
    allowed = set(fault.makes)
    different = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
    assert different <= allowed, f"changed: {sorted(different - allowed)}"
    fault.check(folder, said)


def check_said(said: str) -> None:
    """Refuse tracebacks, and characters that a terminal would act on."""
    assert "Traceback" not in said, said
    hostile = {c for c in said if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n"}
    assert not hostile, f"{hostile} reached the screen: {said!r}"


def _called(fault: Fault, folder: Path) -> str:
    assert callable(fault.run)
    before = Path.cwd()
    os.chdir(folder)
    try:
        if fault.code == 0:
            fault.run(folder)
            return ""
        with pytest.raises((ValueError, TypeError, OSError)) as caught:
            fault.run(folder)
        return str(caught.value)
    finally:
        os.chdir(before)
