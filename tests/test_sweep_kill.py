"""Sweeps in real processes: killed, interrupted, and two at once on one store."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from equipoise.sweep import Store, plan, run
from sweep_data import DATA, RUN, SWEEP, finished, others

pytestmark = pytest.mark.cluster

MANY = dataclasses.replace(SWEEP, loss=("ce", "mmce"), seeds=tuple(range(36)), max_epochs=16)
FEW = dataclasses.replace(MANY, seeds=tuple(range(8)))

PROCESSES = multiprocessing.get_context("forkserver")
# imported once, in a process that all others are copies of
OURS = ("equipoise.paper._snippet", "equipoise.sweep", "pytest")
LATER = ("torch._dynamo", "duckdb", "filelock", "pyarrow.parquet")  # at the first part, otherwise
PROCESSES.set_forkserver_preload([*OURS, *LATER])


def work_on(sweep, folder, pipe, half_a_file=False):
    """Run a sweep; say when it begins, and then how many parts were made."""
    made, compute = [], RUN.compute

    def counted(part, *rest):
        made.append(part.key)
        return compute(part, *rest)

    def die_writing(path, content):
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    RUN.compute = counted
    work = plan(sweep, folder, DATA)[1]
    if half_a_file:
        Path.write_bytes = die_writing
    pipe.send("ready")
    pipe.recv()
    run(work, workers=2, progress=False)
    pipe.send(len(made))


def start(sweep, folder, target=work_on, **options):
    """Return a process that is about to begin, and the pipe to it."""
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=target, args=(sweep, folder, there), kwargs=options)
    process.start()
    there.close()
    assert here.recv() == "ready"
    return process, here


def end(process, pipe):
    """Wait for a process; return what it says of its work."""
    answer = pipe.recv()
    process.join()
    assert process.exitcode == 0
    process.close()
    return answer


def wait_for(parts, folder, process):
    while len(list(folder.glob("*.parquet"))) < parts:
        assert process.is_alive()
        time.sleep(0.01)


def kill(process):
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process.close()


def log_keys(folder):
    return [line.split()[1] for line in (folder / "parts.log").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the parts of MANY when nothing happens, and the seconds that one takes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    process, pipe = start(MANY, folder)
    begun = time.monotonic()
    pipe.send("go")
    assert end(process, pipe) == 36
    assert others(folder) == []
    return finished(folder), 2 * (time.monotonic() - begun) / 36


@pytest.fixture(scope="module")
def few(undisturbed):
    """Return the parts of FEW."""
    names = {f"{part.key}.parquet" for part in FEW.parts(DATA)}
    return {name: content for name, content in undisturbed[0].items() if name in names}


def test_ten_kills_lose_nothing(undisturbed, tmp_path):
    expected, seconds = undisturbed
    rng = np.random.default_rng(0)
    before, cut_short, grown = {}, 0, 0
    # so many parts later, and within the making of another
    for more, delay in zip(
        rng.permutation([0, 0, 0, 1, 1, 1, 1, 2, 2, 2]), rng.random(10), strict=True
    ):
        process, pipe = start(MANY, tmp_path)
        pipe.send("go")
        wait_for(len(before) + more, tmp_path, process)
        time.sleep(delay * seconds)
        kill(process)
        now = finished(tmp_path)
        assert before.items() <= now.items()
        assert now.items() <= expected.items()
        for path in tmp_path.glob("*.parquet"):
            assert len(parquet.read_table(path)) == 6 * MANY.max_epochs
        # a claim without its part: it was being made
        cut_short += any(f"{path.stem}.parquet" not in now for path in tmp_path.glob("*.lock"))
        grown += len(now) > len(before)
        before = now
    assert cut_short >= 5
    assert grown >= 7
    process, pipe = start(MANY, tmp_path)
    pipe.send("go")
    assert end(process, pipe) == 36 - len(before)
    assert finished(tmp_path) == expected
    assert not list(tmp_path.glob("*.tmp"))
    # nothing was done twice; a kill between file and line may have cost the line
    keys = log_keys(tmp_path)
    assert len(set(keys)) == len(keys) >= 36 - 10


def test_a_kill_in_the_middle_of_a_file(few, tmp_path):
    for _ in range(2):
        process, pipe = start(FEW, tmp_path, half_a_file=True)
        pipe.send("go")
        process.join()
        assert process.exitcode == -signal.SIGKILL
        process.close()
        assert finished(tmp_path) == {}
        # those of the first kill are gone
        assert 1 <= len(list(tmp_path.glob("*.tmp"))) <= 2
    process, pipe = start(FEW, tmp_path)
    pipe.send("go")
    assert end(process, pipe) == 8
    assert finished(tmp_path) == few
    assert others(tmp_path) == []


def test_two_processes_share_a_store(few, tmp_path):
    pair = [start(FEW, tmp_path), start(FEW, tmp_path)]
    for _, pipe in pair:
        pipe.send("go")
    made = [end(*both) for both in pair]
    assert min(made) > 0
    assert sum(made) == 8
    assert finished(tmp_path) == few
    assert sorted(log_keys(tmp_path)) == sorted(name.split(".")[0] for name in few)
    assert others(tmp_path) == []


def test_one_of_two_is_killed(few, tmp_path):
    pair = [start(FEW, tmp_path), start(FEW, tmp_path)]
    for _, pipe in pair:
        pipe.send("go")
    wait_for(1, tmp_path, pair[0][0])
    kill(pair[0][0])
    assert end(*pair[1]) > 0
    assert finished(tmp_path) == few
    assert not list(tmp_path.glob("*.tmp"))


def begin(sweep, folder, pipe):
    pipe.send("ready")
    pipe.recv()
    try:
        plan(sweep, folder, DATA)
    except ValueError as error:
        pipe.send(str(error))
    else:
        pipe.send("")


def test_two_processes_begin_two_sweeps_in_one_folder(tmp_path):
    pair = [
        start(sweep, tmp_path / "new", target=begin)
        for sweep in (FEW, dataclasses.replace(FEW, max_epochs=1))
    ]
    for _, pipe in pair:
        pipe.send("go")
    answers = sorted(end(*both) for both in pair)
    assert answers[0] == ""
    assert "holds another sweep (its max_epochs differ)" in answers[1]


def test_ctrl_c(few, tmp_path):
    # with its own group of processes, all of which a terminal would interrupt
    process = subprocess.Popen(
        [sys.executable, __file__, tmp_path],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        while len(list(tmp_path.glob("*.parquet"))) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        shown = process.communicate()[1]
    assert process.returncode != 0
    before = finished(tmp_path)
    # how many more came to an end before the signal did depends on the machine
    assert len(before) >= 2
    assert before.items() <= few.items()
    assert shown.rstrip().endswith(
        f"KeyboardInterrupt\n{len(before)} of 8 parts are finished and safe; "
        "run the same command again to go on"
    )
    assert "of 48 runs" in shown
    assert others(tmp_path) == []
    process, pipe = start(FEW, tmp_path)
    pipe.send("go")
    assert end(process, pipe) == 8 - len(before)
    assert finished(tmp_path) == few
    assert len(Store(tmp_path).query("from runs")) == 8 * 6 * FEW.max_epochs


if __name__ == "__main__":
    run(plan(FEW, sys.argv[1], DATA)[1])
