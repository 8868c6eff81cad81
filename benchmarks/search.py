"""FrontierSearch at the size that its users have: 300 runs of 50 epochs on 5,000 rows x 50 columns.

    python benchmarks/search.py

The result goes to the terminal and to benchmarks/results/search.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from equipoise import FrontierSearch

RESULTS = Path(__file__).parent / "results"


def people(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make up rows of two groups with different rates."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(rows, columns)), rng.choice(["f", "m"], rows, p=[0.3, 0.7])
    score = X[:, :5].sum(1) + 0.8 * (group == "m") + rng.logistic(scale=2.0, size=rows)
    return X, (score > 0).astype(int), group


def main() -> None:
    """Time one search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=50)
    options = parser.parse_args()
    X, y, group = people(options.rows, options.columns)
    # 3 weights x 6 strengths x 4 losses + 3 x 3 + 18 controls = 99 on each of 3 splits
    search = FrontierSearch(
        lam=(0.2, 0.5, 1.0, 2.0, 5.0, 10.0), max_epochs=options.epochs, refit=False, random_state=0
    )
    started = time.perf_counter()
    search.fit(X, y, sensitive_features=group)
    seconds = time.perf_counter() - started
    runs = len(search.results_) // options.epochs
    found = {
        "rows": options.rows,
        "columns": options.columns,
        "runs": runs,
        "epochs": options.epochs,
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
        "ms_per_run_and_epoch": round(1000 * seconds / runs / options.epochs, 2),
    }
    print(json.dumps(found, indent=1))
    print(search.verdict_)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "search.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
