"""Audit a stream: each batch of predictions is added to a small table, and then forgotten.

A model is calibrated for everyone until, halfway, it becomes too sure of itself in one group. The
sum of all tables is the audit of the stream; the sum of the last few shows what has changed. The
same tables, saved as JSON by many workers, are added by `equipoise audit --merge`.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from equipoise.auditing import AuditReport, Gate, report_of
from equipoise.metrics import AuditTable

BATCHES, ROWS = 80, 500
WINDOW = 20
"""Batches in the sliding window."""

GROUPS = np.array(["north", "south"])
GATE = Gate.parse("miscalibrated")


def batches(seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield labels, probabilities of the positive label, and groups."""
    rng = np.random.default_rng(seed)
    for i in range(BATCHES):
        group = rng.integers(0, 2, ROWS)
        log_odds = rng.normal(0.0, 1.5, ROWS)
        y = rng.random(ROWS) < 1 / (1 + np.exp(-log_odds))
        # from then on the model says twice the log-odds in the south
        stretch = np.where((group == 1) & (i >= BATCHES // 2), 2.0, 1.0)
        yield y.astype(int), 1 / (1 + np.exp(-stretch * log_odds)), GROUPS[group]


def summed(tables: deque[AuditTable]) -> AuditTable:
    """Add tables up."""
    total, *more = tables
    for table in more:
        total = total + table
    return total


def main() -> tuple[AuditReport, AuditReport]:
    """Consume the stream; print what the window shows, and at last the audit of all of it."""
    console = Console(highlight=False)
    lines = Table("batch", "rows", *GROUPS, box=box.SIMPLE_HEAD, title_justify="left")
    lines.title = f"The last {WINDOW} batches"
    total: AuditTable | None = None
    window: deque[AuditTable] = deque(maxlen=WINDOW)
    failed = ""
    for i, (y, p, group) in enumerate(batches(), start=1):
        table = AuditTable.from_arrays(y, p, sensitive_features=group, labels=[0, 1])
        total = table if total is None else total + table
        window.append(table)
        if i % 10 == 0:
            recent = report_of(summed(window))
            rows = f"{int(recent.table['rows'].sum()):,}"
            cells = (
                f"{recent.groups[g]['ece']:.3f} {recent.verdicts[g].word}" for g in recent.groups
            )
            lines.add_row(str(i), rows, *cells)
            wrong = [o.text for o in GATE.check(recent) if not o.holds]
            failed = failed or (f"Batch {i}: {wrong[0]}" if wrong else "")
    assert total is not None
    whole = report_of(total)
    console.print(lines)
    console.print(failed, style="bold", markup=False)
    console.print("\nAll of the stream")
    console.print(whole)
    return recent, whole


if __name__ == "__main__":
    main()
