"""Progress of long work: a bar on stderr, a function that is called, or neither."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Bar:
    """Draw progress, or pass it on, or neither."""

    def __init__(self, progress: Callable[[int, int], None] | bool, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.lock = threading.Lock()
        self.bar: Any = None

    def __enter__(self) -> Callable[[int], None]:
        if self.progress is True:
            from rich import progress as rich
            from rich.console import Console

            self.bar = rich.Progress(
                rich.TextColumn("training"),
                rich.BarColumn(),
                rich.TextColumn("{task.completed:,.0f} of {task.total:,.0f} runs × epochs"),
                rich.TextColumn("{task.fields[speed]}"),
                rich.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total, speed="")
        return self.advance

    def advance(self, steps: int) -> None:
        """Say that so much more is done."""
        with self.lock:
            self.done += steps
            if self.bar is not None:
                speed = self.bar.tasks[0].speed
                self.bar.update(
                    self.task, advance=steps, speed=f"{speed:,.0f} per second" if speed else ""
                )
            elif callable(self.progress):
                self.progress(self.done, self.total)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
