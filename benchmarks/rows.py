"""Rows of a group with which its verdict is clear 4 times in 5: the table of docs/audit.md.

    python benchmarks/rows.py [GROUPS]

Scores are spread evenly over 0 to 1 or over .2 to .8. The group is calibrated, or every risk is too
high, or every confidence, by twice the tolerance.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._intervals import Family, from_cells
from equipoise.auditing._verdicts import Calibration, verdicts_of
from equipoise.metrics import AuditTable

Floats = NDArray[np.float64]

KINDS, SAMPLES, POWER = 400, 1000, 0.8


class World:
    """Scores of finitely many kinds, and how often label 1 follows each of them."""

    def __init__(self, p: Floats, rate: Floats) -> None:
        self.chance = np.column_stack([1 - rate, rate]).ravel() / len(p)
        labels = np.tile([0, 1], len(p))
        table = AuditTable.from_arrays(
            labels, np.repeat(p, 2), sensitive_features=np.arange(len(labels)), labels=[0, 1]
        )
        self.sums = {name: v.astype(float) for name, v in table.sums.items()}

    def decided(self, rows: int, word: str, family: Family, tolerance: float) -> float:
        """Return how often the verdict on so many rows is this word."""
        counts = np.random.default_rng(rows).multinomial(rows, self.chance, SAMPLES).astype(float)
        sums = {name: np.tensordot(counts, v, 1) for name, v in self.sums.items()}
        samples = AuditTable(tuple(range(SAMPLES)), (0, 1), 15, False, sums)
        found = verdicts_of(Calibration.of(from_cells(samples), family), tolerance)
        return sum(v.word == word for v in found.values()) / SAMPLES

    def rows(self, word: str, family: Family, tolerance: float) -> int:
        """Return the fewest rows that decide often enough, to within 4%."""
        low, high = 50.0, 200_000.0
        while high / low > 1.04:
            middle = (low * high) ** 0.5
            if self.decided(int(middle), word, family, tolerance) >= POWER:
                high = middle
            else:
                low = middle
        return int(round(high, -1))


def main() -> None:
    """Print the table."""
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    family = Family(0.05, groups, 2)
    u = (np.arange(KINDS) + 0.5) / KINDS
    print(f"{groups} groups; tolerance: calibrated (0 to 1, .2 to .8), too high, over-confident")
    for tolerance in (0.02, 0.03, 0.05, 0.1):
        error = 2 * tolerance
        high = error + (1 - error) * u
        sure = np.where(u > 0.5, 0.5 + error + (0.5 - error) * (2 * u - 1), 0.0)
        sure = np.where(u > 0.5, sure, 0.5 - error - (0.5 - error) * (1 - 2 * u))
        fine = [World(p, p).rows("calibrated", family, tolerance) for p in (u, 0.2 + 0.6 * u)]
        wrong = [
            World(high, high - error).rows("miscalibrated", family, tolerance),
            World(sure, sure - error * np.sign(u - 0.5)).rows("miscalibrated", family, tolerance),
        ]
        print(f"{tolerance:g}: {fine[0]:,}, {fine[1]:,}; {wrong[0]:,}, {wrong[1]:,}", flush=True)


if __name__ == "__main__":
    main()
