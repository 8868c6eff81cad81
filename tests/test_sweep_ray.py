"""Sweeps on Ray: a cluster of two nodes of which one dies, and an embedded one."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from equipoise.paper._snippet import TECHNIQUES
from equipoise.sweep import plan, run
from equipoise.training import LOSSES, Loss
from sweep_data import DATA, RUN, SWEEP, finished, others

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]

NAMES = ("ce", "mmce-w*")
MANY = dataclasses.replace(SWEEP, loss=NAMES, seeds=tuple(range(16)), max_epochs=24)


def processes(folder):
    """Return the processes that were started from a folder, or write to it."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            texts = [(path / "cmdline").read_text(errors="replace")]
            texts += [str(link.readlink()) for link in (path / "fd").iterdir()]
        except OSError:  # it has ended
            continue
        if any(folder in text for text in texts):
            found.add(int(path.name))
    return found - {os.getpid()}


def children(pid):
    """Return the command lines of the child processes of a process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found[int(path.parent.name)] = path.with_name("cmdline").read_text()
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def ray_folder():
    """Let Ray live in a folder of its own, with a short name; nothing of it may stay."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets allow 107 characters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        yield folder
    deadline = time.monotonic() + 60
    while processes(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cluster(ray_folder):  # noqa: ARG001
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what the local engine makes."""
    folder = tmp_path_factory.mktemp("local")
    run(plan(MANY, folder, DATA, TECHNIQUES)[1], losses=TECHNIQUES, progress=False)
    return finished(folder)


def test_a_node_dies(ray_folder, cluster, expected, tmp_path):
    import ray

    node = cluster.add_node(num_cpus=1)
    raylet = node.all_processes["raylet"][0].process.pid
    killed = []

    def kill():
        busy = {}
        while not busy or len(finished(tmp_path)) < 2:
            time.sleep(0.01)
            busy = {p: line for p, line in children(raylet).items() if "ray::compute" in line}
        killed.extend(busy)
        for pid in [*children(raylet), raylet]:
            os.kill(pid, signal.SIGKILL)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    told = []
    run(
        plan(MANY, tmp_path, DATA, TECHNIQUES)[1],
        losses=TECHNIQUES,
        engine="ray",
        address=cluster.address,
        progress=lambda *both: told.append(both),
    )
    thread.join()
    assert killed  # in the middle of a part
    assert processes(ray_folder)
    assert finished(tmp_path) == expected
    assert others(tmp_path) == []
    assert len((tmp_path / "parts.log").read_text().splitlines()) == 16
    assert told == sorted(told)
    assert told[-1] == (16 * 6 * 24, 16 * 6 * 24)
    assert not ray.is_initialized()


def test_an_error_in_a_task_surfaces(cluster, tmp_path):
    def broken(*_):
        raise ValueError("a loss that does not work")

    losses = {**LOSSES, "mmce": Loss(broken, "pair-wise", added=True)}
    work = plan(SWEEP, tmp_path, DATA, losses)[1]
    with pytest.raises(ValueError, match=r"\Aa loss that does not work\Z") as caught:
        run(work, losses=losses, engine="ray", address=cluster.address, progress=False)
    assert type(caught.value) is ValueError
    assert others(tmp_path) == []


def test_a_worker_that_always_dies(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(RUN, "RETRIES", 0)
    losses = {**LOSSES, "mmce": Loss(lambda *_: os._exit(1), "pair-wise", added=True)}
    work = plan(SWEEP, tmp_path, DATA, losses)[1]
    with pytest.raises(
        ConnectionError, match=r"the Ray cluster gave up on a part \(.*; parts that"
    ):
        run(work, losses=losses, engine="ray", address=cluster.address, progress=False)
    assert others(tmp_path) == []


def test_an_open_connection_is_used_and_kept(cluster, expected, tmp_path):
    import ray

    few = dataclasses.replace(MANY, seeds=(0, 1))
    ray.init(cluster.address, log_to_driver=False)
    try:
        work = plan(few, tmp_path, DATA, TECHNIQUES)[1]
        run(work, losses=TECHNIQUES, engine="ray", workers=1, progress=False)
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert len(finished(tmp_path)) == 2
    assert finished(tmp_path).items() <= expected.items()


def test_nobody_answers(tmp_path):
    work = plan(SWEEP, tmp_path, DATA)[1]
    with pytest.raises(ConnectionError, match=r"no Ray cluster answers at localhost:9 .*ray start"):
        run(work, engine="ray", address="localhost:9")


def test_ray_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs ray: pip install"):
        run(plan(SWEEP, tmp_path, DATA)[1], engine="ray")


@pytest.mark.usefixtures("ray_folder")
def test_embedded_and_interrupted(expected, tmp_path):
    command = [sys.executable, __file__, tmp_path]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        while not finished(tmp_path):
            assert process.poll() is None
            time.sleep(0.02)
        # as a terminal does: all processes of the group
        os.killpg(process.pid, signal.SIGINT)
        shown = process.communicate()[1]
    before = finished(tmp_path)
    assert process.returncode != 0
    assert 1 <= len(before) < 16
    assert f"{len(before)} of 16 parts are finished and safe; run the same command again" in shown
    assert others(tmp_path) == []
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    assert finished(tmp_path) == expected
    assert before.items() <= expected.items()


if __name__ == "__main__":
    run(plan(MANY, sys.argv[1], DATA, TECHNIQUES)[1], losses=TECHNIQUES, engine="ray", workers=2)
