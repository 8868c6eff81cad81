"""`equipoise reproduce`: the paper's tables and figures, each value beside the published one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from equipoise.cli._shared import console, engine_options, note

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.argument("datasets", nargs=-1, metavar="[DATASET]...")
@click.option(
    "--grid",
    "grid_name",
    type=click.Choice(["quick", "paper", "decisive"]),
    default="quick",
    help="quick: two datasets, a thinned grid, about two minutes. paper: the complete grid of all "
    "seven, some hours. decisive: the study that judges the paper's claims, eleven datasets, some "
    "hours.",
)
@click.option(
    "--runs",
    type=FOLDER,
    default=Path("runs"),
    help="Folder of finished runs, which are not run again.",
)
@click.option(
    "--out", type=FOLDER, help="Folder for tables and figures; by default RUNS/GRID/results."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with the raw files of the datasets, used instead of downloads; the larger "
    "datasets of decisive are fetched where it lacks them.",
)
@engine_options
@click.option(
    "--baseline",
    type=click.Choice(["mixed", "point", "minimum"]),
    default="mixed",
    help="Baseline of the percentages of the published reading; each table names it.",
)
def reproduce(
    datasets: tuple[str, ...],
    grid_name: str,
    runs: Path,
    out: Path | None,
    data: Path | None,
    engine: str,
    address: str | None,
    workers: int | None,
    baseline: str,
) -> None:
    """Run the paper's experiments and print its tables beside the published ones.

    DATASET is one or more of the grid's datasets, by default all; in decisive also one with its
    network, as in german-linear. Runs that are finished are kept and never run again: stop with
    Ctrl-C at any time, and give the same command to go on.
    """
    from equipoise.plots import blank_figure

    blank_figure()  # without matplotlib this fails now, not in some hours
    if address and engine != "ray":
        raise click.UsageError("--address is for --engine ray")
    folder = runs / grid_name
    out = folder / "results" if out is None else out
    options = {"engine": engine, "address": address, "workers": workers}
    if grid_name == "decisive":
        _decisive(datasets, folder, out, data, options)
    else:
        _replica(grid_name, datasets, folder, out, data, baseline, options)


def _replica(
    grid_name: str,
    datasets: tuple[str, ...],
    folder: Path,
    out: Path,
    data: Path | None,
    baseline: Any,
    options: dict[str, Any],
) -> None:
    """Run a grid of the paper, and print its tables."""
    from equipoise._files import writing_to
    from equipoise.datasets import load
    from equipoise.paper import (
        SAFE,
        check_folder,
        chosen_sweeps,
        heading,
        main_tables,
        reproduce_dataset,
        rich_table,
        saved_digests,
        write_results,
    )

    sweeps = chosen_sweeps(grid_name, datasets)
    loaded = {name: load(name, data_dir=data) for name in sweeps}
    saved_digests(out, grid_name, but=sweeps)  # results of another grid are refused now too
    check_folder(out)
    err = console(stderr=True)
    fresh = []
    with _kept(SAFE):
        for name, sweep in sweeps.items():
            found = reproduce_dataset(sweep, loaded[name], folder / name, say=err.print, **options)
            with writing_to(out, SAFE):
                found.save(out / name)
            fresh.append(found)
        saved = saved_digests(out, grid_name)
        done = {d.dataset for d in saved}
        absent = [name for name in chosen_sweeps(grid_name, ()) if name not in done]
        with writing_to(out, SAFE):
            write_results(out, saved, _command(), absent, baseline)
    screen = console()
    said: set[str] = set()
    for reading, table in main_tables(fresh, baseline):
        title = f"{heading(table.name, reading)}: {table.title}"
        new = [n for n in table.notes if n not in said]
        screen.print(rich_table(table, title, new, screen.width))
        screen.print()
        said |= set(table.notes)
    screen.print(f"Tables, figures and a page with all of them: {out / 'REPLICA.md'}")


def _decisive(
    names: tuple[str, ...],
    folder: Path,
    out: Path,
    data: Path | None,
    options: dict[str, Any],
) -> None:
    """Run the decisive study, and print its verdicts."""
    from equipoise._files import writing_to
    from equipoise.datasets import load, state
    from equipoise.paper import (
        SAFE,
        check_folder,
        chosen_studies,
        claim_table,
        reproduce_study,
        rich_table,
        saved_studies,
        study_folder,
        write_page,
    )

    chosen = chosen_studies(names)
    results = study_folder(out)
    saved_studies(results)  # results of another design are refused now, not in some hours
    check_folder(results)
    places = {}
    for dataset in dict.fromkeys(study.dataset for study in chosen.values()):
        places[dataset] = None if data and state(dataset, data) == "missing" else data
        if state(dataset, places[dataset]) in ("to be fetched", "corrupt"):
            load(dataset, data_dir=places[dataset])
    err = console(stderr=True)
    with _kept(SAFE):
        for name, study in chosen.items():
            reproduce_study(
                study,
                load(study.dataset, data_dir=places[study.dataset]),
                folder / name,
                results,
                say=err.print,
                **options,
            )
        saved = saved_studies(results)
        with writing_to(out, SAFE):
            write_page(out, saved, _command())
    screen = console()
    table = claim_table(saved)
    screen.print(rich_table(table, table.title, table.notes, screen.width))
    screen.print(f"The page: {out / 'README.md'}")


@contextmanager
def _kept(safe: str) -> Iterator[None]:
    """Show warnings as notes, and end on Ctrl-C with a word on what is finished."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_args, **_options: note(str(message))
            yield
    except KeyboardInterrupt as stopped:
        note("; ".join(getattr(stopped, "__notes__", [f"stopped. {safe}"])))
        raise SystemExit(130) from None


def _command() -> list[str]:
    """Return the command that makes the folder of results: its datasets are those of the grid."""
    context = click.get_current_context()
    given = click.core.ParameterSource.COMMANDLINE
    found = ["equipoise", "reproduce", "--grid", context.params["grid_name"]]
    for name in ("runs", "out", "data", "baseline"):
        if context.get_parameter_source(name) == given:
            found += [f"--{name}", str(context.params[name])]
    return found
