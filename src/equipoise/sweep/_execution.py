"""Running the missing parts of sweeps or of a search, on this machine or on a Ray cluster."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from equipoise._inputs import counted, need
from equipoise.datasets import Dataset
from equipoise.sweep._folder import PartFolder
from equipoise.sweep._grid import Sweep, fingerprint
from equipoise.sweep._part_file import current_versions, encode, version_text
from equipoise.sweep._store import Store
from equipoise.training import LOSSES, Bar, Loss, run_in_threads, torch_threads

if TYPE_CHECKING:
    import pyarrow as pa

POLL = 1.0
"""Seconds between checks of a part that another process has claimed."""

ANSWER = 5.0
"""Seconds in which a Ray cluster has to answer."""

RETRIES = 5
"""Restarts by Ray of a part whose worker or node died."""


Step: TypeAlias = Callable[[int, int], None]
"""Called with the steps done and in all; raises to cancel the part."""


class AnyPart(Protocol):
    """Some runs that share a split: the unit of work, and one file of a folder."""

    @property
    def key(self) -> str:
        """A hash of all that the numbers depend on."""

    @property
    def data(self) -> str:
        """The fingerprint of the data."""

    @property
    def runs(self) -> int:
        """Number of runs."""

    @property
    def steps(self) -> int:
        """Number of steps that progress counts."""

    @property
    def title(self) -> str:
        """The part in a few words, for the log."""

    def table(self, data: Any, losses: Mapping[str, Loss], step: Step | Literal[False]) -> pa.Table:
        """Train and measure the runs on one core."""


@dataclasses.dataclass(frozen=True)
class Work:
    """A part, the data it runs on, and the folder that its file goes to."""

    store: PartFolder
    part: AnyPart
    data: Any

    @property
    def steps(self) -> int:
        """Number of steps that progress counts."""
        return self.part.steps

    def done(self) -> bool:
        """Return whether the file is there."""
        return self.store.has(self.part.key)

    def keep(self, content: bytes, seconds: float) -> None:
        """Write the file."""
        note = f"{self.part.title}: {self.part.runs} runs in {seconds:.0f} s"
        self.store.write(self.part.key, content, note)


Make: TypeAlias = Callable[[Work, Step], tuple[bytes, float]]
"""Returns the file of a part, and the seconds taken."""


def plan(
    sweep: Sweep, folder: Any, data: Dataset, losses: Mapping[str, Loss] = LOSSES
) -> tuple[Store, list[Work]]:
    """Open the store of a sweep, and return all its parts."""
    parts = sweep.parts(data, losses)
    store = Store(folder, sweep, fingerprint(data), losses)
    return store, [Work(store, part, data) for part in parts]


def run(
    work: Sequence[Work],
    *,
    losses: Mapping[str, Loss] = LOSSES,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool = True,
) -> None:
    """Run the parts that are missing, in their order.

    Parts that cannot be read back are set aside and run again, with a warning. Other processes may
    work on the same stores at the same time; no part is done twice.

    Parameters
    ----------
    work
        From `plan`, of one or more sweeps.
    losses
        The loss that each name stands for.
    engine
        "local": this machine's cores. "ray": a Ray cluster (extra `ray`).
    address
        Address of the Ray cluster; by default the one that this process is connected to, or else
        one that is started on this machine and ends with the sweep.
    workers
        Parts at a time, each on one core; by default as many as torch has threads, or as the Ray
        cluster has cores.
    progress
        True draws a bar on stderr; a function is called with the runs x epochs done and in all.
    """
    check_engine(engine, address, workers)
    missing = _missing(work)
    if not missing:
        return
    label = " ".join(dict.fromkeys(w.part.title.split(",")[0] for w in missing))
    bar = Bar(progress, sum(w.steps for w in missing), sum(w.part.runs for w in missing), label)
    try:
        run_stages([missing], bar, losses=losses, engine=engine, address=address, workers=workers)
    except KeyboardInterrupt as stopped:
        left = sum(not w.done() for w in work)
        stopped.add_note(
            f"{len(work) - left} of {len(work)} parts are finished and safe; "
            "run the same command again to go on"
        )
        raise


def run_stages(
    stages: Iterable[Sequence[Work]],
    bar: Bar,
    *,
    losses: Mapping[str, Loss] = LOSSES,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    until: float | None = None,
) -> bool:
    """Run each stage to its end before the next is asked for; return whether all were run.

    The engine stays up from stage to stage. `until` is the time of `time.monotonic` at which the
    parts that run are given up, and False is returned.
    """
    with _ENGINES[engine](losses, address, workers) as (make, at_once), bar as advance:
        for stage in stages:
            missing = _missing(stage)
            total = sum(w.steps for w in missing)
            if len(missing) < len(stage):
                advance(sum(w.steps for w in stage) - total)  # finished before
            done = bar.done
            while missing:
                try:
                    make_all(missing, make, at_once, advance, until)
                except TimeUp:
                    return False
                missing = [w for w in missing if not w.done()]
                # parts that another process has finished count too
                advance(total - sum(w.steps for w in missing) - (bar.done - done))
                if missing:
                    time.sleep(POLL)
    return True


def check_engine(engine: str, address: str | None, workers: int | None) -> None:
    """Raise if the engine or its options are wrong."""
    if engine not in _ENGINES:
        raise ValueError(f"unknown engine {engine!r}; there are {', '.join(_ENGINES)}")
    if address is not None and engine != "ray":
        raise ValueError("an address is for engine='ray'")
    if address and address not in ("auto", "local") and _host_and_port(address) is None:
        raise ValueError(
            f"{address!r} is no address of a Ray cluster; it is host:port, ray://host:port or auto"
        )
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number from 1 on, got {workers!r}")


def _missing(work: Sequence[Work]) -> list[Work]:
    """Return the parts that are not done; files that are damaged are set aside."""
    for store in {id(w.store): w.store for w in work}.values():
        own = [w for w in work if w.store is store]
        for path, problem in store.set_aside_damaged(w.part.key for w in own).items():
            warnings.warn(
                f"a damaged part was set aside as {path}, and is run again: {problem}", stacklevel=4
            )
        _warn_of_versions(store, own)
    return [w for w in work if not w.done()]


def _warn_of_versions(store: PartFolder, work: Sequence[Work]) -> None:
    """Warn where parts were made with several versions, those counted that are yet to be made."""
    done = [w.part.key for w in work if w.done()]
    made = store.versions(done)
    if len(done) < len(work):
        now = version_text(current_versions())
        made[now] = made.get(now, 0) + len(work) - len(done)
    if len(made) > 1:
        each = "; ".join(f"{counted(n, 'part')} with {versions}" for versions, n in made.items())
        warnings.warn(
            f"{store.folder} mixes versions, whose numbers may differ in their last digits "
            f"({each}); to have one version, remove the folder and run all again",
            stacklevel=5,
        )


def compute(
    part: AnyPart, data: Any, losses: Mapping[str, Loss], step: Step | Literal[False] = False
) -> tuple[bytes, float]:
    """Train and measure the runs of a part on one core; return its file, and the seconds taken."""
    started = time.monotonic()
    with torch_threads(1):  # the numbers do not depend on the machine's cores
        table = part.table(data, losses, step)
    return encode(table, part.key), time.monotonic() - started


class _Stopped(Exception):
    """Cancels a part."""


class TimeUp(_Stopped):
    """Cancels all parts."""


def make_all(
    work: list[Work],
    make: Make,
    at_once: int,
    advance: Callable[[int], None],
    until: float | None = None,
) -> None:
    """Make and keep each part, except those that another process holds."""
    stop = threading.Event()
    end = float("inf") if until is None else until

    def one(item: Work) -> None:
        seen = 0

        def step(done: int, _: int) -> None:
            nonlocal seen
            if stop.is_set():
                raise _Stopped
            if time.monotonic() >= end:
                raise TimeUp
            advance(done - seen)
            seen = done

        if time.monotonic() >= end:
            raise TimeUp
        with item.store.claim(item.part.key) as mine:
            if item.done():
                step(item.steps, item.steps)
            elif mine and not stop.is_set():
                item.keep(*make(item, step))
                if seen < item.steps:  # counted when its file is there
                    advance(item.steps - seen)
                    seen = item.steps

    run_in_threads(one, work, at_once, stop)


@contextmanager
def _local(
    losses: Mapping[str, Loss],
    address: str | None,  # noqa: ARG001
    workers: int | None,
) -> Iterator[tuple[Make, int]]:
    import torch

    def make(item: Work, step: Step) -> tuple[bytes, float]:
        return compute(item.part, item.data, losses, step)

    yield make, workers or torch.get_num_threads()


@contextmanager
def _ray(
    losses: Mapping[str, Loss], address: str | None, workers: int | None
) -> Iterator[tuple[Make, int]]:
    ray = need("ray", "ray", what="the engine 'ray'")
    started = not ray.is_initialized()
    if started:
        _knock(address or "")
        # "local" is a cluster of our own, even where another one runs on this machine
        own: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
        ray.init(
            address or "local",
            log_to_driver=False,
            logging_level=logging.WARNING,
            **({} if address else own),
        )
    try:
        table = dict(losses)
        shared: dict[str, Any] = {}
        lock = threading.Lock()
        # a part whose worker or node died is started elsewhere
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(compute)

        def make(item: Work, step: Step) -> tuple[bytes, float]:
            with lock:  # once for all parts
                if item.part.data not in shared:
                    shared[item.part.data] = ray.put(item.data)
            task = remote.remote(item.part, shared[item.part.data], table)
            try:
                while not ray.wait([task], timeout=POLL)[0]:
                    step(0, item.steps)
                made: tuple[bytes, float] = ray.get(task)
            except _Stopped:
                ray.cancel(task, force=True)
                raise
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise ConnectionError(
                    f"the Ray cluster gave up on a part ({str(error).splitlines()[0]}); parts that "
                    "were finished are safe, run the same command again to go on"
                ) from error
            return made

        # twice the cores: none waits for the driver to write a file
        cores = ray.cluster_resources().get("CPU", 1)
        yield make, workers or 2 * max(1, int(cores))
    finally:
        if started:
            ray.shutdown()


_ENGINES = {"local": _local, "ray": _ray}


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    is_port = port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16
    return (host.strip("[]"), int(port)) if host and is_port else None


def _knock(address: str) -> None:
    """Raise unless a gRPC server listens at host:port, as Ray's do; Ray would try for minutes.

    Such a server speaks HTTP/2 and so answers its greeting with its settings.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
    place = _host_and_port(address)
    if place is None:
        return
    remedy = "give the port of the head node (6379 unless it was started with another)"
    end = time.monotonic() + ANSWER
    try:
        with socket.create_connection(place, timeout=ANSWER) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
                return  # it would wait for a handshake
            connection.sendall(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
            )
            answer = b""
            while len(answer) < 4 and (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                if not (more := connection.recv(9)):
                    break
                answer += more
    except TimeoutError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address} within {ANSWER:.0f} s ({error}); {remedy}"
        ) from None
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address} ({error}); start one with: ray start --head, "
            "or leave the address out"
        ) from None
    if answer[3:4] != b"\x04":  # the type of a frame of settings
        raise ConnectionError(f"something else than a Ray cluster listens at {address}; {remedy}")
