"""What the benchmarks share: times beside each other, targets, and both as JSON."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def race(
    contestants: dict[str, Callable[[], Any]], rounds: int, repeats: int = 1
) -> dict[str, tuple[float, Any]]:
    """Run all in turn, several times; return the fastest time and the result of each.

    `repeats` runs of one follow each other, so that short ones are not timed on the caches that a
    long one left.
    """
    best: dict[str, tuple[float, Any]] = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            for _ in range(repeats):
                start = time.perf_counter()
                result = run()
                seconds = time.perf_counter() - start
                if name not in best or seconds < best[name][0]:
                    best[name] = (seconds, result)
    return best


class Report:
    """Collects rows, prints them and writes them as JSON.

    Parameters
    ----------
    results
        The file that is written.
    packages
        Those whose versions it names.
    """

    def __init__(self, results: Path, packages: Sequence[str]) -> None:
        self.results, self.packages = results, packages
        self.console = Console(width=110)
        self.rows: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []

    def section(
        self, title: str, times: dict[str, float], notes: dict[str, str], ours: str = "equipoise"
    ) -> None:
        """Add the times of one comparison."""
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("", min_width=44)
        for name in ("seconds", "times ours"):
            table.add_column(name, justify="right")
        table.add_column("")
        for name, seconds in times.items():
            ratio = seconds / times[ours]
            table.add_row(name, f"{seconds:.4f}", f"{ratio:.2f}", notes.get(name, ""))
            self.rows.append({"part": title, "name": name, "seconds": seconds, "ratio": ratio,
                              "note": notes.get(name, "")})  # fmt: skip
        self.console.print(table)

    def check(self, what: str, value: float, target: float, *, most: bool = False) -> None:
        """Compare a figure with its target: at least, or at most."""
        held = bool(value <= target if most else value >= target)
        self.checks.append({"what": what, "value": value, "target": target, "held": held})

    def finish(self) -> None:
        """Print the targets and write everything."""
        table = Table(title="Targets", title_justify="left", box=box.SIMPLE_HEAD)
        for name in ("", "measured", "target", ""):
            table.add_column(name, justify="right" if name else "left")
        for row in self.checks:
            mark = "[green]held[/]" if row["held"] else "[red]missed[/]"
            table.add_row(row["what"], f"{row['value']:.2f}", f"{row['target']:g}", mark)
        self.console.print(table)
        self.results.parent.mkdir(exist_ok=True)
        self.results.write_text(
            json.dumps(
                {
                    "machine": platform.processor() or platform.machine(),
                    "python": platform.python_version(),
                    "versions": {name: version(name) for name in self.packages},
                    "rows": self.rows,
                    "targets": self.checks,
                },
                indent=2,
            )
        )
        self.console.print(f"Written to benchmarks/{self.results.parent.name}/{self.results.name}")
