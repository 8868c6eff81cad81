"""Faults of files that are written: inputs in the way, bad names, full disks, ends in between."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from fault_harness import COLUMNS, Fault, check_fault, people, rows, run_here, run_process

pytestmark = pytest.mark.slow

READ = "(is|would be) read by this command; choose another name"
TRAIN = ("--label", "y", "--group", "sex", "--max-epochs", "1")


def commands(data, out):
    """Return each command that writes a file, by the name of its option."""
    return {
        "audit --json": ["audit", data, *COLUMNS, "--json", out],
        "calibrate --out": ["calibrate", data, *COLUMNS, "--out", out],
        "calibrate --apply": ["calibrate", data, "--apply", "cal.json", "--out", out],
        "train --out": ["train", data, *TRAIN, "--out", out],
        "predict --out": ["predict", "model", data, "--out", out],
    }


def linked(kind):
    """Make an output that is a link to the input."""

    def arrange(folder):
        (folder / "o.csv").unlink(missing_ok=True)
        if kind == "soft":
            (folder / "o.csv").symlink_to(folder / "d.csv")
        else:
            os.link(folder / "d.csv", folder / "o.csv")

    return arrange


def parts(folder):
    """Make a folder of two parts."""
    (folder / "parts").mkdir()
    for i in range(2):
        people(seed=i).to_csv(folder / "parts" / f"{i}.csv", index=False)


def deep(folder):
    """Make a folder within it too."""
    parts(folder)
    (folder / "parts" / "deep").mkdir()


def audits(folder):
    """Make a folder of audits, with the total that the command would write again."""
    (folder / "jsons").mkdir()
    for i in range(2):
        people(seed=i).to_csv(folder / f"{i}.csv", index=False)
        code, said = run_here(["audit", f"{i}.csv", *COLUMNS, "--json", f"jsons/{i}.json"], folder)
        assert code == 0, said


def with_model(name):
    return name.startswith("predict")


OVER_INPUT = [
    Fault(
        f"{name} over its input by {how}{', forced' * force}",
        [*command, *["--force"] * force],
        READ,
        arrange,
        needs_model=with_model(name),
    )
    for how, data, out, arrange in (
        ("name", "d.csv", "d.csv", lambda _: None),
        ("another spelling", "d.csv", "./x/../d.csv", lambda f: (f / "x").mkdir()),
        ("a soft link", "d.csv", "o.csv", linked("soft")),
        ("a hard link", "d.csv", "o.csv", linked("hard")),
        ("a folder", "parts", "parts/1.csv", parts),
        ("a new file of the folder", "parts", "parts/new.csv", parts),
        ("a pattern", "parts/*.csv", "parts/1.csv", parts),
        ("a new file of the pattern", "parts/*.csv", "parts/new.csv", parts),
        ("a deep pattern", "**/*.csv", "parts/deep/new.csv", deep),
    )
    for name, command in commands(data, out).items()
    for force in (False, True)
]  # fmt: skip

OTHERS = [
    Fault(
        "audit --json over --train",
        ["audit", "d.csv", *COLUMNS, "--train", "t.csv", "--json", "t.csv", "--force"],
        READ,
        lambda f: people().to_csv(f / "t.csv", index=False),
    ),
    Fault(
        "calibrate over its --holdout",
        ["calibrate", "d.csv", *COLUMNS, "--holdout", "h.json", "--out", "h.json", "--force"],
        READ,
        lambda f: (f / "h.json").write_text("{}"),
    ),
    Fault(
        "calibrate --apply over the calibrators",
        ["calibrate", "d.csv", "--apply", "cal.json", "--out", "cal.json", "--force"],
        READ,
    ),
    Fault(
        "predict over the model",
        ["predict", "model", "d.csv", "--out", "model", "--force"],
        READ,
        needs_model=True,
    ),
    *(
        Fault(
            f"--merge into its own {what}{', forced' * force}",
            ["audit", "--merge", data, "--json", "jsons/total.json", *["--force"] * force],
            READ,
            audits,
        )
        for what, data in (("folder", "jsons"), ("pattern", "jsons/*.json"))
        for force in (False, True)
    ),
    Fault(
        "search into a folder with its input",
        ["search", "out/frontier.csv", "--label", "y", "--group", "sex", "--out", "out", "--force"],
        READ,
        lambda f: ((f / "out").mkdir(), people().to_csv(f / "out" / "frontier.csv", index=False)),
    ),
]

NAMES = [
    Fault(f"{name}, {what}", [*command, *force], says, arrange, needs_model=with_model(name))
    for what, out, says, arrange, force in (
        ("a name of 300 bytes", "x" * 300 + ".json", "is no possible name of a file", None, ()),
        ("a folder in the way", "there", "there. is a directory|there is a folder", "there", ()),
        ("no such folder", "no/o.json", "there is no folder no; make it first", None, ()),
        ("a device", "/dev/null", "/dev/null is no ordinary file", None, ("--force",)),
        ("a file that exists", "old.json", "old.json exists; choose .* --force", "old", ()),
    )
    for arrange in [{
        None: lambda _: None,
        "there": lambda f: (f / "there").mkdir(),
        "old": lambda f: (f / "old.json").write_text("old"),
    }[arrange]]
    for name, command in commands("d.csv", out).items()
]  # fmt: skip


@rows([*OVER_INPUT, *OTHERS, *NAMES])
def test_fault(fault, tmp_path, prepared):
    check_fault(fault, tmp_path, prepared)


def test_a_name_of_255_bytes_is_written(tmp_path, without_model):
    """The temporary name must not be longer than the name itself may be."""
    name = "é" * 125 + ".json"
    assert len(name.encode()) == 255
    data = without_model / "d.csv"
    code, said = run_here(["audit", str(data), *COLUMNS, "--json", name], tmp_path)
    assert code == 0, said
    assert [p.name for p in tmp_path.iterdir()] == [name]


# --- full disks ------------------------------------------------------------------------------


def limited(size):
    """Return what keeps a process from writing files of more bytes: the stand-in for a quota."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def big(folder, n=40_000):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, n)
    frame = {"p": p, "age": p, "sex": rng.choice(["f", "m"], n), "y": rng.choice(["no", "yes"], n)}
    pd.DataFrame(frame).to_csv(folder / "big.csv", index=False)


@pytest.mark.parametrize("room", [1000, 200_000])
@pytest.mark.parametrize("name", ["calibrate --apply", "predict --out"])
def test_a_disk_that_is_full(name, room, tmp_path, with_model):
    """Without any room nothing is begun; where it runs out, what was there stays as it was."""
    big(tmp_path)
    for file in ("cal.json", "model"):
        (tmp_path / file).write_bytes((with_model / file).read_bytes())
    (tmp_path / "o.csv").write_text("old")
    command = [*commands("big.csv", "o.csv")[name], "--force"]
    result = run_process(command, tmp_path, preexec_fn=limited(room))
    assert result.returncode == 2, result.stderr
    said = result.stderr.decode()
    assert "File too large" in said
    assert "o.csv" in said
    assert ("cannot be written" in said) == (room == 1000)
    assert (tmp_path / "o.csv").read_text() == "old"
    assert not list(tmp_path.glob("*.tmp"))


# --- ends in between -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_a_file_is_written(number, tmp_path, without_model):
    """What is half written is removed, and the exit code is the signal's."""
    big(tmp_path, 1_500_000)
    (tmp_path / "o.csv").write_text("old")
    command = [*commands("big.csv", "o.csv")["calibrate --apply"], "--force"]
    command[command.index("cal.json")] = str(without_model / "cal.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "equipoise", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # nohup, or a shell in the background, would have it ignored
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509
    )
    until = time.monotonic() + 60
    while not any(p.stat().st_size > 1 << 20 for p in tmp_path.glob("o.csv.*.tmp")):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert {p.name for p in tmp_path.iterdir()} == {"big.csv", "o.csv"}
    assert (tmp_path / "o.csv").read_text() == "old"
