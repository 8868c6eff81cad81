"""Progress of long work: a bar on stderr, calls of a function, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Bar:
    """Draw progress as a bar, report it to a function, or do neither.

    Progress is counted in runs x epochs, `total` in all; given `runs`, the bar shows those.
    """

    def __init__(
        self,
        progress: Callable[[int, int], None] | bool,
        total: int,
        runs: int = 0,
        label: str = "training",
    ) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.runs, self.label = runs, label
        self.lock = threading.Lock()
        self.bar: Any = None

    def __enter__(self) -> Callable[[int], None]:
        if self.progress is True:
            from rich import progress as rich
            from rich.console import Console

            self.bar = rich.Progress(
                rich.TextColumn(self.label, markup=False),
                rich.BarColumn(),
                rich.TextColumn("{task.fields[runs]}"),
                rich.TextColumn("{task.fields[speed]}"),
                rich.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total, speed="", runs=self.shown())
        return self.advance

    def shown(self) -> str:
        """Return the progress as text."""
        if self.runs:
            return f"{self.runs * self.done // max(self.total, 1):,} of {self.runs:,} runs"
        return f"{self.done:,} of {self.total:,} runs × epochs"

    def advance(self, steps: int) -> None:
        """Add to the steps done."""
        with self.lock:
            self.done += steps
            if self.bar is not None:
                speed = self.bar.tasks[0].speed
                what = " runs" if self.runs == self.total else " runs × epochs" * bool(self.runs)
                self.bar.update(
                    self.task,
                    advance=steps,
                    runs=self.shown(),
                    speed=f"{speed:,.{0 if speed > 10 else 1}f}{what} per second" if speed else "",
                )
            elif callable(self.progress):
                self.progress(self.done, self.total)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
