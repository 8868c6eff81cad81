"""`equipoise search`: trade-offs of PE, ECE and accuracy, and the model at the chosen point."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import console, find_reference, note, notes, reference_option
from equipoise.cli._training_table import (
    COUNT,
    POSITIVE,
    learning_rate_option,
    own_values,
    saved_with,
    seed_option,
    table_options,
    unseen_group_option,
)
from equipoise.training import LOSS_NAMES

if TYPE_CHECKING:
    from equipoise.search import FrontierSearch
    from equipoise.training import GroupwiseMLPClassifier

FILES = ("model.safetensors", "frontier.csv", "frontier.svg", "frontier.png", "results.parquet")


@click.command(context_settings={"show_default": True})
@click.argument("data")
@table_options
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the model, the frontier and all results.",
)
@click.option("--force", is_flag=True, help="Overwrite the results of an earlier search.")
@click.option(
    "--objective",
    type=click.Choice(("balanced", "pe", "ece")),
    default="balanced",
    help="Objective to minimise: PE, ECE, or their sum in units of cross-entropy's medians.",
)
@click.option("--slack", type=POSITIVE, default=0.05, help="Largest loss of accuracy accepted.")
@click.option(
    "--time-limit",
    type=POSITIVE,
    help="Seconds after which the search stops, keeping finished configurations.",
)
@click.option(
    "--loss",
    type=click.Choice(LOSS_NAMES),
    multiple=True,
    default=LOSS_NAMES,
    help="Loss to try; may be repeated.",
)
@click.option(
    "--lam",
    type=click.FloatRange(min=0),
    multiple=True,
    default=(0.5, 2.0, 10.0),
    help="Strength of the added term; may be repeated.",
)
@click.option("--n-seeds", type=COUNT, default=3, help="Number of splits.")
@click.option("--max-epochs", type=COUNT, default=50, help="Epochs of each run.")
@learning_rate_option
@click.option("--min-group-size", type=COUNT, default=30, help="Groups with fewer rows are small.")
@click.option(
    "--small-groups",
    type=click.Choice(("pool", "keep", "error")),
    default="pool",
    help="What to do with small groups.",
)
@unseen_group_option
@reference_option
@seed_option
def search(
    data: str,
    columns: dict[str, Any],
    out: Path,
    force: bool,
    reference: str | None,
    seed: int,
    **parameters: Any,
) -> None:
    """Find the trade-offs of PE, ECE and accuracy on DATA.

    DATA is CSV or Parquet files, or - for standard input.

    A grid of configurations is trained on several splits. OUT gets the model that was chosen on
    validation (for `equipoise predict`), the frontier as a table and a picture, and all results.
    Ctrl-C stops the search and keeps the finished configurations.
    """
    _check_folder(out, force)

    from equipoise.datasets import Dataset
    from equipoise.plots import blank_figure
    from equipoise.search import FrontierSearch

    blank_figure()  # without matplotlib this fails now, not after the search
    dataset = Dataset.from_frame(data, **columns)
    note(f"{len(dataset.y):,} rows of {dataset.title} were read")
    if reference is not None:
        parameters["reference_group"] = find_reference(reference, dataset.group_names)
    labels, groups = own_values(dataset)
    finder = FrontierSearch(**parameters, random_state=seed, refit=False, progress=True)
    with notes():
        finder.fit(dataset.X, labels.tolist(), sensitive_features=groups)
        model = finder.select()
    out.mkdir(parents=True, exist_ok=True)
    extra = saved_with(dataset) | {"choice": model.choice_}
    model.save(out / "model.safetensors", extra=extra)
    _write(finder, out)
    _show(finder, model, out)


def _check_folder(out: Path, force: bool) -> None:
    """Refuse a folder that could not or should not be written to, before any work."""
    problem = None
    above = next(p for p in (out, *out.absolute().parents) if p.exists())
    there = [name for name in FILES if (out / name).exists()]
    if not above.is_dir() or not os.access(above, os.W_OK):
        problem = f"{above} is no folder that can be written to"
    elif there and not force:
        problem = f"{out / there[0]} exists; choose another folder, or pass --force"
    if problem:
        raise click.BadParameter(problem, param_hint="'--out'")


def _write(finder: FrontierSearch, out: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from equipoise._files import replace_file
    from equipoise.plots import blank_figure

    replace_file(out / "frontier.csv", finder.frontier_.to_csv(index=False).encode())
    frame = finder.results_
    columns = {name: frame[name].tolist() for name in frame.columns[:4]}
    columns |= {name: frame[name].to_numpy() for name in frame.columns[4:]}
    content = io.BytesIO()
    parquet.write_table(pa.table(columns), content, compression="zstd")
    replace_file(out / "results.parquet", content.getvalue())
    figure = blank_figure(figsize=(8, 5), layout="constrained")
    finder.plot(figure.subplots())
    for kind in ("svg", "png"):
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, dpi=120)
        replace_file(out / f"frontier.{kind}", picture.getvalue())


def _show(finder: FrontierSearch, model: GroupwiseMLPClassifier, out: Path) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from equipoise._inputs import shown

    frame = finder.frontier_
    table = Table(
        title=f"Frontier on validation, within {finder.slack:g} of the best accuracy",
        caption="PE, ECE and accuracy on the test parts, with 95% intervals over the splits. "
        f"PE compares with group {escape(repr(shown(finder.reference_group_)))}.",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for name in ("loss", "lam", "calibrate", "epoch", "on frontier"):
        table.add_column(name)
    for name in ("PE", "ECE", "accuracy"):
        table.add_column(name, justify="right")
    for row in frame.to_dict("records"):
        cells = [row["loss"], f"{row['lam']:g}", row["calibrate"], str(row["epoch"])]
        cells.append(f"{row['frequency']:.0%}")
        for metric in ("pe", "ece", "accuracy"):
            low, high = row[f"test_{metric}_low"], row[f"test_{metric}_high"]
            cells.append(f"{row[f'test_{metric}']:.3f} [{low:.3f}, {high:.3f}]")
        table.add_row(*(escape(c) for c in cells))
    screen = console()
    screen.print(table)
    choice = model.choice_
    screen.print(
        f"Chosen: {choice['loss']}, lam {choice['lam']:g}, calibrate {choice['calibrate']}, "
        f"epoch {choice['epoch']}.",
        markup=False,
    )
    screen.print(finder.verdict_, markup=False)
    screen.print(f"Model, frontier and results: {out}", markup=False)
