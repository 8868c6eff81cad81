"""Searches that are stopped: killed, interrupted, terminated, shared by two processes, on Ray."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from equipoise import FrontierSearch
from equipoise.cli import main
from equipoise.cli._search import FILES
from equipoise.search import StoppedEarly
from test_cli_search import COLUMNS, QUICK, contents, parts, people
from test_sweep_kill import LATER, OURS, PROCESSES, kill, log_keys, start, wait_for
from test_sweep_ray import processes, ray_folder  # noqa: F401

pytestmark = pytest.mark.slow

# imported once, in a process that all others are copies of
PROCESSES.set_forkserver_preload(
    [*OURS, *LATER, "equipoise.cli", "equipoise.search._search", "matplotlib.figure", __name__]
)

# in stages: after each, half of the configurations are dropped
MANY = (*QUICK, "--n-seeds", "25", "--max-epochs", "8")
SOME = (*QUICK, "--n-seeds", "15", "--max-epochs", "8")
FEW = (*QUICK, "--n-seeds", "4")
SOME_RUNS = 3 * 6 + 5 * 4 + 7 * 2
WHOLE = {*FILES, "runs"}

cluster = pytest.mark.cluster


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "people.csv"
    people(240).to_csv(path, index=False)
    return path


# --- processes --------------------------------------------------------------------------------


def command(arguments, out, pipe, half_of=None, endless_model=False):
    """Run the command; what it says goes to a file beside OUT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with out.with_suffix(".txt").open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    FrontierSearch.plot = lambda _: Figure((1, 1))
    if half_of is not None:
        Path.write_bytes = die_writing(half_of)
    if endless_model:
        FrontierSearch.select = lambda _: time.sleep(600)
    pipe.send("ready")
    pipe.recv()
    main(["search", *map(str, arguments), "--out", str(out)])


def die_writing(name):
    write = Path.write_bytes

    def half(path, content):
        if not path.name.startswith(name):
            return write(path, content)
        write(path, content[: len(content) // 2])
        return os.kill(os.getpid(), signal.SIGKILL)

    return half


def begin(arguments, out, **options):
    process, pipe = start(arguments, out, target=command, **options)
    pipe.send("go")
    return process


def code_of(process):
    process.join()
    code = process.exitcode
    process.close()
    return code


def said(out):
    return out.with_suffix(".txt").read_text("utf-8")


def finish(arguments, out):
    """Run to the end, and check that no finished part is made again or touched."""
    before = parts(out)
    assert code_of(begin(arguments, out)) == 0, said(out)
    assert before.items() <= parts(out).items()
    keys = log_keys(out / "runs")
    assert len(set(keys)) == len(keys)


def runs_in(out):
    """Return the number of finished runs, of four calibrations each."""
    return sum(len(pd.read_parquet(path)) // 4 for path in (out / "runs").glob("*.parquet"))


def wait_until(there, process):
    while not there():
        assert process.is_alive()
        time.sleep(0.005)


def undisturbed(table, folder, options):
    """Return arguments, what they give when nothing happens, and the seconds taken."""
    arguments, begun = (table, *COLUMNS, *options), time.monotonic()
    finish(arguments, folder / "out")
    return arguments, contents(folder / "out"), time.monotonic() - begun


@pytest.fixture(scope="module")
def many(table, tmp_path_factory):
    return undisturbed(table, tmp_path_factory.mktemp("many"), MANY)


@pytest.fixture(scope="module")
def some(table, tmp_path_factory):
    return undisturbed(table, tmp_path_factory.mktemp("some"), SOME)


@pytest.fixture(scope="module")
def few(table, tmp_path_factory):
    return undisturbed(table, tmp_path_factory.mktemp("few"), FEW)[:2]


@cluster
def test_ten_kills_lose_nothing(many, tmp_path):
    arguments, expected, seconds = many
    out, rng = tmp_path / "out", np.random.default_rng(0)
    before, cut_short, grown = {}, 0, 0
    # so many parts later, and within the making of another
    for more, delay in zip(
        rng.permutation([0, 0, 0, 1, 1, 1, 1, 2, 2, 2]), rng.random(10), strict=True
    ):
        process = begin(arguments, out)
        wait_for(len(before) + more, out / "runs", process)
        time.sleep(delay * seconds / 40)
        kill(process)
        now = parts(out) if out.exists() else {}
        assert before.items() <= now.items()
        assert {name: content for name, (content, _) in now.items()}.items() <= expected[0].items()
        locks = {p.stem for p in out.rglob("*.lock")} - {"search"}
        cut_short += any(f"{key}.parquet" not in now for key in locks)
        grown += len(now) > len(before)
        before = now
    assert cut_short >= 3
    assert grown >= 5
    finish(arguments, out)
    assert contents(out) == expected
    assert {p.name for p in out.iterdir()} == WHOLE
    known = {".parquet", ".checksum", ".json", ".log", ".lock"}
    assert {p.suffix for p in (out / "runs").iterdir()} <= known


@cluster
def test_kills_in_the_middle_of_every_file(few, tmp_path):
    arguments, expected = few
    out = tmp_path / "out"
    for i, name in enumerate(("search.json", *FILES)):
        before = parts(out) if i else {}
        process = begin(arguments, out, half_of=name)
        process.join()
        assert process.exitcode == -signal.SIGKILL, (name, said(out))
        process.close()
        now = parts(out)
        assert before.items() <= now.items()
        assert len(now) == (len(expected[0]) - 3 if i else 0)  # beside three files of results
        kept = {p.name for p in out.iterdir() if p.suffix != ".tmp"}
        assert kept == {"runs", *FILES[: max(0, i - 1)]}
        for file in kept & expected[0].keys():
            assert (out / file).read_bytes() == expected[0][file]
    finish(arguments, out)
    assert contents(out) == expected


def signalled(arguments, out, wanted, number):
    """Send a signal in the middle of training, with some parts finished; return the exit code."""
    process = begin(arguments, out)
    # a part is claimed, so training has begun
    wait_until(lambda: {p.stem for p in out.rglob("*.lock")} - {"search"}, process)
    wait_for(wanted, out / "runs", process)
    time.sleep(0.05 * np.random.default_rng(wanted).random())
    os.kill(process.pid, number)
    return code_of(process)


@cluster
@pytest.mark.parametrize("wanted", [0, 1, 5])
def test_ctrl_c(wanted, some, tmp_path):
    arguments, expected, _ = some
    out = tmp_path / "out"
    code = signalled(arguments, out, wanted, signal.SIGINT)
    # a part that came to its end meanwhile counts
    done, text = runs_in(out), said(out)
    total = SOME_RUNS
    assert not list(out.rglob("*.lock"))
    assert not list(out.rglob("*.tmp"))
    if code == 0:
        assert f"the search was stopped: {done} of {total} runs are finished" in text
        assert {p.name for p in out.iterdir()} == WHOLE
        assert len(pd.read_parquet(out / "results.parquet")) == 4 * done
        assert json.loads((out / "summary.json").read_text())["stopped"] is True
        assert "nan" not in text
    else:
        assert code == 2
        stopped = f"stopped when {done} of {total} runs were finished, too few to choose from"
        assert f"Error: the search was {stopped}; repeat the search to go on" in text
        assert {p.name for p in out.iterdir()} == {"runs"}
    assert code == 0 or wanted < 5
    finish(arguments, out)
    assert contents(out) == expected
    assert json.loads((out / "summary.json").read_text())["stopped"] is False


@cluster
@pytest.mark.parametrize("wanted", [0, 5])
def test_sigterm(wanted, some, tmp_path):
    arguments, expected, _ = some
    out = tmp_path / "out"
    assert signalled(arguments, out, wanted, signal.SIGTERM) == 143, said(out)
    assert "Stopped by SIGTERM" in said(out)
    assert "repeat the command to go on" in said(out)
    assert "Traceback" not in said(out)
    kept = {p.name for p in out.iterdir()}
    assert kept in ({"runs"}, {"runs", *FILES[:3]})
    if wanted:
        assert len(kept) == 4
    assert not list(out.rglob("*.lock"))
    finish(arguments, out)
    assert contents(out) == expected


@cluster
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_while_the_model_trains(number, code, few, tmp_path):
    arguments, expected = few
    out = tmp_path / "out"
    process = begin(arguments, out, endless_model=True)
    wait_until((out / "summary.json").exists, process)
    time.sleep(0.2)
    os.kill(process.pid, number)
    assert code_of(process) == code
    assert "Traceback" not in said(out)
    assert {p.name for p in out.iterdir()} == {*FILES[:3], "runs"}
    for name in FILES[:3]:
        assert (out / name).read_bytes() == expected[0][name]
    finish(arguments, out)
    assert contents(out) == expected


@cluster
def test_sigterm_at_any_moment(few, tmp_path):
    arguments, expected = few
    out, rng = tmp_path / "out", np.random.default_rng(1)
    for delay in rng.random(5):
        process = begin(arguments, out)
        time.sleep(delay)
        if process.is_alive():
            os.kill(process.pid, signal.SIGTERM)
        # before the command has begun to search, the system ends it
        assert code_of(process) in (143, -signal.SIGTERM, 0), said(out)
        assert "Traceback" not in said(out)
    finish(arguments, out)
    assert contents(out) == expected


@cluster
def test_a_time_limit_in_the_middle(some, tmp_path):
    arguments, expected, seconds = some
    out = tmp_path / "out"
    limit = ("--time-limit", f"{seconds / 6:.3f}")
    code = code_of(begin((*arguments, *limit), out))
    done = runs_in(out)
    assert code in (0, 2), said(out)
    assert f"{done} of {SOME_RUNS} runs" in said(out)
    assert done < SOME_RUNS
    finish(arguments, out)
    assert contents(out) == expected


@cluster
def test_two_processes_share_a_search(few, tmp_path):
    arguments, expected = few
    pair = [tmp_path / "out", tmp_path / "link"]
    pair[0].mkdir()
    pair[1].symlink_to(pair[0])  # so that each says its own
    both = [begin((*arguments, "--workers", "1"), out) for out in pair]
    assert [code_of(process) for process in both] == [0, 0], [said(out) for out in pair]
    keys = log_keys(pair[0] / "runs")
    assert sorted(f"{key}.parquet" for key in keys) == sorted(parts(pair[0]))
    assert contents(pair[0]) == expected
    for out in pair:
        assert "Model, frontier and results" in said(out)


# --- progress ---------------------------------------------------------------------------------


def rows(n=240):
    frame = people(n)
    return frame[["x"]].to_numpy(), frame["paid"].to_numpy(), frame["sex"].to_numpy()


def finder(folder, **more):
    given = {"lam": (1.0,), "n_seeds": 6, "max_epochs": 3, "random_state": 0, "refit": False}
    return FrontierSearch(("ce", "mmce"), folder=folder, **given | more)


def fitted(search):
    X, y, a = rows()
    return search.fit(X, y, sensitive_features=a)


def logged(folder):
    """Return the number of runs in the log of finished parts."""
    log = Path(folder) / "parts.log"
    return sum(map(int, re.findall(r"(\d+) runs", log.read_text()))) if log.exists() else 0


def written_at(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


@pytest.fixture(scope="module")
def plain():
    return fitted(finder(None)).results_


def test_progress_counts_finished_runs(plain, tmp_path):
    told = []
    found = fitted(finder(tmp_path, progress=lambda *both: told.append((*both, logged(tmp_path)))))
    pd.testing.assert_frame_equal(found.results_, plain)
    done, total, finished = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert all(a <= b for a, b in zip(done, finished, strict=True))
    assert set(total) == {logged(tmp_path)}
    assert done[-1] == total[0]
    # part by part, not stage by stage
    assert len(set(done) - {0}) >= 5


def test_progress_goes_on_from_what_is_finished(plain, tmp_path, monkeypatch):
    def stop(done, _):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match=r"the search was stopped: \d+ of \d+ runs are finished"):
        fitted(finder(tmp_path, progress=stop))
    before, told, first = logged(tmp_path), [], []
    module = sys.modules["equipoise.search._part"]
    train = module.train_to_best

    def watched(*given, **options):
        first.append(told[-1][0])
        return train(*given, **options)

    monkeypatch.setattr(module, "train_to_best", watched)
    found = fitted(finder(tmp_path, progress=lambda *both: told.append(both)))
    pd.testing.assert_frame_equal(found.results_, plain)
    assert first[0] == before
    assert told == sorted(told)
    assert told[-1] == (logged(tmp_path),) * 2


@pytest.mark.parametrize("moment", [1, 3, 5, 8, 13])
def test_interrupted_at_a_call_and_repeated(moment, plain, tmp_path):
    calls = iter(range(10**6))

    def stop(*_):
        if next(calls) >= moment:
            raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted(finder(tmp_path, progress=stop))
        except StoppedEarly as error:
            message = str(error)
        else:
            message = str(caught[0].message)
    assert re.search(rf"\b{logged(tmp_path)} of 20 runs", message)
    assert message.endswith("; repeat the search to go on")
    kept = written_at(tmp_path)
    assert not list(tmp_path.glob("*.lock"))
    again = fitted(finder(tmp_path))
    pd.testing.assert_frame_equal(again.results_, plain)
    assert not again.stopped_
    assert kept.items() <= written_at(tmp_path).items()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(workers, plain):
    pd.testing.assert_frame_equal(fitted(finder(None, workers=workers)).results_, plain)


# --- Ray --------------------------------------------------------------------------------------

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@cluster
@needs_ray
def test_ray_gives_the_same_though_a_worker_is_killed(request, few, tmp_path):
    """In a process of its own: Ray changes the one that it was started in."""
    folder = request.getfixturevalue("ray_folder")
    arguments, expected = few
    out, killed = tmp_path / "out", []
    program = Path(sys.executable).with_name("equipoise")
    more = ("--engine", "ray", "--workers", "2", "--out", out)
    with subprocess.Popen([program, "search", *map(str, (*arguments, *more))]) as process:
        while not killed and process.poll() is None:
            for pid in processes(folder):
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_text()
                except OSError:
                    continue
                if "ray::compute" in line and not killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.01)
        assert process.wait() == 0
    assert killed
    assert contents(out) == expected
    assert {p.name for p in out.iterdir()} == WHOLE
