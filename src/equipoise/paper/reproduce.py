"""Run what is missing of a grid, and make its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from equipoise.datasets import Dataset, load
from equipoise.paper.digest import Digest, digest
from equipoise.paper.grids import grid
from equipoise.paper.scaling import recipe_file
from equipoise.paper.snippet import TECHNIQUES
from equipoise.sweep import Sweep, plan, run


def chosen_sweeps(name: str, datasets: Sequence[str]) -> dict[str, Sweep]:
    """Return the sweeps of a grid, of some datasets or of all."""
    sweeps = grid(name)
    unknown = [d for d in datasets if d not in sweeps]
    if unknown:
        raise ValueError(
            f"the grid {name!r} has no dataset {unknown[0]!r}; it has {', '.join(sweeps)}"
        )
    return {d: s for d, s in sweeps.items() if d in datasets or not datasets}


def reproduce_dataset(
    sweep: Sweep,
    data: Dataset,
    runs: str | os.PathLike[str],
    *,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Digest:
    """Run what is missing of one sweep, and return its digest.

    Parameters
    ----------
    sweep, data
        A sweep of a grid, and its dataset.
    runs
        The folder of its store.
    engine, address, workers, progress
        As in `equipoise.sweep.run`.
    say
        Called with a line about what is done next.
    """
    store, work = plan(sweep, runs, data, TECHNIQUES)
    run(
        work,
        losses=TECHNIQUES,
        engine=engine,
        address=address,
        workers=workers,
        progress=progress,
    )
    say(f"{sweep.dataset}: temperatures by the paper's recipe")
    recipes = [recipe_file(runs, data, sweep, seed) for seed in sweep.seeds]
    say(f"{sweep.dataset}: reading {sum(w.steps for w in work):,} rows")
    return digest(store, [w.part for w in work], recipes, data)


def load_all(
    sweeps: dict[str, Sweep], data_dir: str | os.PathLike[str] | None
) -> dict[str, Dataset]:
    """Load the data of all sweeps, before any of them runs."""
    return {name: load(name, data_dir=data_dir) for name in sweeps}


def saved_digests(folder: Path, name: str) -> list[Digest]:
    """Return the digests of a grid that a folder holds, in the order of the grid."""
    found = [folder / d for d in grid(name) if (folder / d / "facts.json").exists()]
    digests = [Digest.load(path) for path in found]
    for path, d in zip(found, digests, strict=True):
        if d.facts["sweep"] != grid(name)[d.dataset].to_dict():
            raise ValueError(
                f"{path} holds results of another grid; choose another folder with --out"
            )
    return digests
