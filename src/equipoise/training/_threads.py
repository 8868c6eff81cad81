"""Threads: how many torch computes with, and work that is spread over some."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")

PER_THREAD = 1 << 24
"""Multiplications of a product, about 0.4 ms, from which another thread pays: below, threads wait
for each other longer than they work as soon as the machine has anything else to do."""


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch compute with so many threads in this thread, and with as many as before after it.

    OpenMP keeps the number per thread, so each worker of a pool sets its own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(multiplications: int) -> int:
    """Return how many of torch's threads a product of this size is worth."""
    return min(torch.get_num_threads(), 1 + multiplications // PER_THREAD)


def run_in_threads(
    work: Callable[[Item], None],
    items: Sequence[Item],
    at_once: int,
    stop: threading.Event,
    threads: int = 1,
) -> None:
    """Do the work on each item in their order, `at_once` at a time with `threads` of torch each.

    An error (Ctrl-C too) sets `stop`, which ends what runs; what waits never starts.
    """
    with (
        torch_threads(threads),
        ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(threads,)) as pool,
    ):
        try:
            futures = [pool.submit(work, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done():
                    future.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
