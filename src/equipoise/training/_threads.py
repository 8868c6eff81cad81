"""The number of torch's threads, and work spread over several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")

PER_THREAD = 1 << 24
"""Multiplications (about 0.4 ms) that another thread needs: with fewer, threads on a busy machine
wait for each other longer than they work."""


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Set the number of torch's threads within the block, for this thread.

    OpenMP keeps the number per thread, so each worker of a pool sets its own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(multiplications: int) -> int:
    """Return the number of threads to use for a product of this size."""
    return min(torch.get_num_threads(), 1 + multiplications // PER_THREAD)


def run_in_threads(
    work: Callable[[Item], None],
    items: Sequence[Item],
    at_once: int,
    stop: threading.Event,
    threads: int = 1,
) -> None:
    """Work on the items in order, `at_once` at a time, with `threads` of torch's threads each.

    An error or Ctrl-C sets `stop`, so that running items end, and waiting items never start.
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
