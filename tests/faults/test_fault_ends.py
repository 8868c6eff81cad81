"""Ends of a process: exit codes, readers that leave, a full or closed standard output, signals."""

import os
import signal
import subprocess
import sys
import time

import pytest
from fault_harness import COLUMNS, SECONDS, people, run_here, run_process

pytestmark = pytest.mark.slow

AUDIT = ["audit", "d.csv", *COLUMNS]
FAILS = [*AUDIT, "--fail-if", "ece > 0"]


@pytest.fixture
def folder(without_model):
    return without_model


def shell(command, folder):
    """Run a line of bash; `E` is equipoise."""
    line = f"set -o pipefail; E() {{ '{sys.executable}' -m equipoise \"$@\"; }}; {command}"
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, timeout=SECONDS, check=False
    )


QUOTED = "--label y --prob p --group sex"


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (f"E audit d.csv {QUOTED} | head -n 1", 0, ""),
        (f"E audit d.csv {QUOTED} --fail-if 'ece > 0' | head -n 1", 1, "Gate: ece > 0 fails"),
        (f"E audit d.csv {QUOTED} --fail-if 'ece > 1' | true", 0, ""),
        (f"E audit d.csv {QUOTED} --fail-if 'ece > 0' | true", 1, "Gate: ece > 0 fails"),
        ("E datasets | true", 0, ""),
        ("E --help | true", 0, ""),
        (f"E audit d.csv {QUOTED} >&-", 2, "standard output is closed"),
        (f"E audit d.csv {QUOTED} > /dev/full", 2, "standard output cannot be written to"),
        (f"E audit d.csv {QUOTED} --fail-if 'ece > 0' > /dev/full", 2, "cannot be written to"),
        ("E --version > /dev/full", 2, "standard output cannot be written to"),
        ("E --help > /dev/full", 2, "standard output cannot be written to"),
        (f"E audit d.csv {QUOTED} 2>&-", 0, ""),
        (f"E audit d.csv {QUOTED} <&-", 0, ""),
        (f"E audit - {QUOTED} < /dev/null", 2, "standard input is empty"),
        (f"E audit - {QUOTED} <&-", 2, "standard input is"),
        (f"PYTHONIOENCODING=ascii E audit d.csv {QUOTED}", 0, ""),
    ],
)
def test_standard_streams(command, code, says, folder):
    result = shell(command, folder)
    said = result.stderr.decode()
    assert result.returncode == code, said
    assert says in said
    assert "Traceback" not in said
    assert "Broken pipe" not in said
    assert "Exception ignored" not in said


def test_a_reader_that_leaves_does_not_stop_the_work(tmp_path):
    people(400).to_csv(tmp_path / "d.csv", index=False)
    known = "--label y --group sex --max-epochs 2"
    result = shell(f"E train d.csv {known} --out m | head -n 1", tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "m").exists()


def test_what_is_no_gate_never_exits_with_1(folder, monkeypatch):
    """Whatever is raised, the exit code is 2, with a sentence."""
    import equipoise.auditing

    for error in (
        ValueError("a value"), TypeError("a type"), KeyError("a key"), RecursionError("deep"),
        MemoryError(), ZeroDivisionError("zero"), AssertionError(), RuntimeError("odd"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), OSError(5, "odd", "a\x1bfile"),
        NotImplementedError("later"), StopIteration(), EOFError(),
    ):  # fmt: skip

        def fail(*_args, error=error, **_options):
            raise error

        monkeypatch.setattr(equipoise.auditing, "audit_models", fail)
        code, said = run_here(AUDIT, folder)
        assert code == 2, (error, said)
        assert said.startswith("Error: ")
        assert "\x1b" not in said
        known = isinstance(error, (OSError, TypeError, ValueError, MemoryError))
        assert ("a fault of equipoise" in said) == (not known)


def test_gates_only_exit_with_1(folder):
    assert run_here(FAILS, folder)[0] == 1
    assert run_here(AUDIT, folder)[0] == 0
    assert run_here([*AUDIT, "--fail-if", "nonsense"], folder)[0] == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_waiting_for_input(number, folder):
    """A pipe that never ends is waited for; a signal ends that with its own code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "equipoise", "audit", "-", *COLUMNS],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509
    )
    process.stdin.write(b"p,sex,y\n.5,f,1\n")
    process.stdin.flush()
    time.sleep(3)  # until it has started; before that the system ends it
    process.send_signal(number)
    said = process.communicate(timeout=SECONDS)[1].decode()
    assert process.returncode in (128 + number, -number), said
    assert "Traceback" not in said


def test_debugging_shows_the_traceback(folder):
    here = {**os.environ, "EQUIPOISE_DEBUG": "1"}
    result = run_process(["audit", "no.csv", *COLUMNS], folder, env=here)
    assert b"Traceback" in result.stderr
    assert b"Traceback" not in run_process(["audit", "no.csv", *COLUMNS], folder).stderr
