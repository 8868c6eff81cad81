"""Running the missing parts of one or more sweeps, on this machine or on a Ray cluster."""

from __future__ import annotations

import dataclasses
import logging
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from equipoise._inputs import need
from equipoise.datasets import Dataset
from equipoise.sweep._grid import RunPart, Sweep, fingerprint
from equipoise.sweep._store import Store, encode, to_table
from equipoise.training import LOSSES, Bar, Loss, run_in_threads, torch_threads, train_stack

POLL = 1.0
"""Seconds between checks of a part that another process has claimed."""

RETRIES = 5
"""Restarts by Ray of a part whose worker or node died."""


Step: TypeAlias = Callable[[int, int], None]
"""Called with the runs x epochs done and in all; raises to cancel the part."""


@dataclasses.dataclass(frozen=True)
class Work:
    """A part, the data it runs on, and where its file goes."""

    store: Store
    part: RunPart
    data: Dataset

    @property
    def steps(self) -> int:
        """Runs x epochs."""
        return len(self.part.configs) * self.part.sweep.max_epochs

    def done(self) -> bool:
        """Return whether the file is there."""
        return self.store.has(self.part.key)

    def keep(self, content: bytes, seconds: float) -> None:
        """Write the file."""
        names = list(dict.fromkeys(c.loss for c in self.part.configs))
        self.store.write(
            self.part.key,
            content,
            f"{self.part.sweep.dataset}, seed {self.part.seed}, {' '.join(names)}: "
            f"{len(self.part.configs)} runs in {seconds:.0f} s",
        )


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
    engines = {"local": _local, "ray": _ray}
    if engine not in engines:
        raise ValueError(f"unknown engine {engine!r}; there are {', '.join(engines)}")
    if address is not None and engine != "ray":
        raise ValueError("an address is for engine='ray'")
    if address and address not in ("auto", "local") and _host_and_port(address) is None:
        raise ValueError(
            f"{address!r} is no address of a Ray cluster; it is host:port, ray://host:port or auto"
        )
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number from 1 on, got {workers!r}")
    try:
        for store in {id(w.store): w.store for w in work}.values():
            for path in store.set_aside_damaged(w.part.key for w in work if w.store is store):
                warnings.warn(
                    f"a damaged part was set aside as {path}, and is run again", stacklevel=2
                )
        missing = [w for w in work if not w.done()]
        if not missing:
            return
        total, runs = sum(w.steps for w in missing), sum(len(w.part.configs) for w in missing)
        label = " ".join(dict.fromkeys(w.part.sweep.dataset for w in missing))
        bar = Bar(progress, total, runs, label)
        with engines[engine](missing, losses, address, workers) as (make, at_once), bar as advance:
            while missing:
                make_all(missing, make, at_once, advance)
                missing = [w for w in missing if not w.done()]
                # parts that another process has finished count too
                advance(total - sum(w.steps for w in missing) - bar.done)
                if missing:
                    time.sleep(POLL)
    except KeyboardInterrupt as stopped:
        left = sum(not w.done() for w in work)
        stopped.add_note(
            f"{len(work) - left} of {len(work)} parts are finished and safe; "
            "run the same command again to go on"
        )
        raise


def compute(
    part: RunPart,
    data: Dataset,
    losses: Mapping[str, Loss],
    progress: Callable[[int, int], None] | bool = False,
) -> tuple[bytes, float]:
    """Train and measure the runs of a part on one core; return its file, and the seconds taken."""
    started, sweep = time.monotonic(), part.sweep
    with torch_threads(1):  # the numbers do not depend on the machine's cores
        result = train_stack(
            data.split(part.seed, stratify=sweep.stratify),
            part.configs,
            max_epochs=sweep.max_epochs,
            batch_size=sweep.batch_size,
            hidden_layer_sizes=sweep.hidden_layer_sizes,
            output_relu=sweep.output_relu,
            split_seed=part.seed,
            workers=1,
            losses=losses,
            progress=progress,
        )
    content = encode(to_table(result, sweep, part.seed, losses), part.key)
    return content, time.monotonic() - started


class _Stopped(Exception):
    """Cancels a part."""


def make_all(work: list[Work], make: Make, at_once: int, advance: Callable[[int], None]) -> None:
    """Make and keep each part, except those that another process holds."""
    stop = threading.Event()

    def one(item: Work) -> None:
        seen = 0

        def step(done: int, _: int) -> None:
            nonlocal seen
            if stop.is_set():
                raise _Stopped
            advance(done - seen)
            seen = done

        with item.store.claim(item.part.key) as mine:
            if item.done():
                step(item.steps, item.steps)
            elif mine and not stop.is_set():
                item.keep(*make(item, step))

    run_in_threads(one, work, at_once, stop)


@contextmanager
def _local(
    work: list[Work],  # noqa: ARG001
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
    work: list[Work], losses: Mapping[str, Loss], address: str | None, workers: int | None
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
        shared = {mark: ray.put(data) for mark, data in {w.part.data: w.data for w in work}.items()}
        # a part whose worker or node died is started elsewhere
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(compute)

        def make(item: Work, step: Step) -> tuple[bytes, float]:
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
            step(item.steps, item.steps)
            return made

        # twice the cores: none waits for the driver to write a file
        cores = ray.cluster_resources().get("CPU", 1)
        yield make, workers or 2 * max(1, int(cores))
    finally:
        if started:
            ray.shutdown()


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


def _knock(address: str) -> None:
    """Raise where nothing listens at host:port; Ray would try for minutes."""
    place = _host_and_port(address)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address} ({error}); start one with: ray start --head, "
            "or leave the address out"
        ) from None
