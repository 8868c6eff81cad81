"""FrontierSearch at the size that its users have: 306 trainings on 5,000 rows x 50 columns.

    python benchmarks/search.py

The full search trains 51 candidates and 51 controls on three splits; with halving, those farthest
from the frontier are dropped after each split. Both run in turn, with the same seeds, and their
frontiers are compared by the area that they dominate, up to plain cross-entropy's PE and ECE times
1.5. The risk of halving is measured over several seeds: how often the full search's choice was
dropped. The result goes to the terminal and to benchmarks/results/search.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from equipoise import FrontierSearch
from equipoise.search import hypervolume, within_slack

RESULTS = Path(__file__).parent / "results"
LOSSES = ("ce", "fl", "dca", "mdca", "mmce", "mmce-w")
TARGET = 45.0  # seconds with halving
NAMES = ["loss", "weights", "lam", "calibrate"]
KEYS = [*NAMES, "control"]


def people(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make up rows of two groups with different rates."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(rows, columns)), rng.choice(["f", "m"], rows, p=[0.3, 0.7])
    score = X[:, :5].sum(1) + 0.8 * (group == "m") + rng.logistic(scale=2.0, size=rows)
    return X, (score > 0).astype(int), group


def searched(
    seed: int, options: argparse.Namespace, *, halving: bool
) -> tuple[FrontierSearch, float]:
    """Return a search, and its seconds."""
    X, y, group = people(options.rows, options.columns, seed)
    search = FrontierSearch(
        LOSSES,
        lam=(0.5, 1.0, 2.0, 10.0),
        n_seeds=3,
        max_epochs=50,
        halving=halving,
        refit=False,
        random_state=seed,
    )
    started = time.perf_counter()
    search.fit(X, y, sensitive_features=group)
    return search, time.perf_counter() - started


def volume(search: FrontierSearch, best: float, corner: tuple[float, float]) -> float:
    """Return the area that the frontier dominates, of plain means within the slack of `best`."""
    frame = search.results_
    key = frame[KEYS].apply(lambda row: " ".join(map(str, row)), axis=1)
    last = set(key[frame["split"] == frame["split"].max()])  # those in the race to its end
    kept = key.isin(last)
    means = frame[kept].groupby(key[kept])[["pe", "ece", "accuracy"]].mean()
    within = within_slack(means["accuracy"], search.slack, best)
    return hypervolume(means[within][["pe", "ece"]].to_numpy(), corner)


def main() -> None:
    """Time both searches, and compare what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3, help="searches of each kind")
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        full, slow = searched(seed, options, halving=False)
        fast, quick = searched(seed, options, halving=True)
        plain = full.results_.query("loss == 'ce' and calibrate == 'none'")
        corner = tuple(1.5 * plain[["pe", "ece"]].mean())
        best = full.results_.groupby(KEYS, dropna=False)["accuracy"].mean().max()
        areas = [volume(each, best, corner) for each in (fast, full)]
        wanted = tuple(full.choice_[name] for name in NAMES)
        left = {tuple(r) for r in fast.candidates_[NAMES].to_numpy()}
        rows.append(
            {
                "full_seconds": round(slow, 1),
                "halving_seconds": round(quick, 1),
                "full_trainings": len(full.results_) // 4,
                "halving_trainings": len(fast.results_) // 4,
                "epochs": round(float(full.results_["n_epochs"].mean()), 1),
                "hypervolume_ratio": round(areas[0] / areas[1], 4),
                "choice_kept": wanted in left,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    seconds = [row["halving_seconds"] for row in rows]
    ratios = [row["hypervolume_ratio"] for row in rows]
    found = {
        "rows": options.rows,
        "columns": options.columns,
        "threads": torch.get_num_threads(),
        "searches": rows,
        "halving_seconds": min(seconds),
        "target_seconds": TARGET,
        "held": min(seconds) < TARGET,
        "mean_hypervolume_ratio": round(float(np.mean(ratios)), 4),
        "hypervolume_held": float(np.mean(ratios)) > 0.98,
        "choice_kept": f"{sum(row['choice_kept'] for row in rows)} of {len(rows)}",
    }
    print(json.dumps(found, indent=1))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "search.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
