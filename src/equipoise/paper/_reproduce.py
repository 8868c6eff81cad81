"""Running the missing parts of a grid, and reading its results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal

from equipoise._files import writing_to
from equipoise.datasets import Dataset
from equipoise.paper._digest import Digest, digest
from equipoise.paper._grids import grid
from equipoise.paper._scaling import recipe_files
from equipoise.paper._snippet import TECHNIQUES
from equipoise.sweep import Sweep, plan, run

SAFE = "Finished runs are safe: give the same command again to go on"


def check_folder(folder: Path) -> None:
    """Make a folder, and raise unless files can be written there."""
    with writing_to(folder, "Nothing was run yet"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def chosen_sweeps(name: str, datasets: Sequence[str]) -> dict[str, Sweep]:
    """Return the sweeps of a grid, of some datasets or of all."""
    sweeps = grid(name)
    unknown = [d for d in datasets if d not in sweeps]
    if unknown:
        raise ValueError(
            f"the grid {name!r} has no dataset {unknown[0]!r}; it has {', '.join(sweeps)}"
            + (", and --grid paper has it" if unknown[0] in grid("paper") else "")
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
    """Run the missing parts of one sweep, and return its digest.

    `runs` is the folder of its store; `say` is called with a line about the next step. The other
    options are those of `equipoise.sweep.run`.
    """
    store, work = plan(sweep, runs, data, TECHNIQUES)
    run(work, losses=TECHNIQUES, engine=engine, address=address, workers=workers, progress=progress)
    say(f"{sweep.dataset}: temperatures by the paper's recipe")
    with writing_to(Path(runs), SAFE):
        recipes = recipe_files(runs, data, sweep, progress)
    say(f"{sweep.dataset}: reading {sum(w.steps for w in work):,} rows")
    return digest(store, sweep.parts(data, TECHNIQUES), recipes, data)


def saved_digests(folder: Path, name: str, but: Collection[str] = ()) -> list[Digest]:
    """Return the digests of a grid that a folder holds, in the order of the grid.

    Damaged ones of the datasets `but` are left out: they are made anew.
    """
    digests = []
    for dataset, sweep in grid(name).items():
        path = folder / dataset
        if not (path / "facts.json").exists():
            continue
        try:
            found = Digest.load(path)
        except ValueError:
            if dataset in but:
                continue
            raise
        if found.facts["sweep"] != sweep.to_dict():
            raise ValueError(
                f"{path} holds results of another grid; choose another folder with --out"
            )
        digests.append(found)
    return digests
