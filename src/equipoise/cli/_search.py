"""`equipoise search`: trade-offs of PE, ECE and accuracy, and the model at the chosen point."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._search_table import show
from equipoise.cli._shared import (
    check_out,
    engine_options,
    find_reference,
    note,
    notes,
    reference_option,
    safe_csv_option,
    shrinkage_option,
)
from equipoise.cli._training_table import (
    COUNT,
    POSITIVE,
    learning_rate_option,
    own_values,
    saved_with,
    seed_option,
    show_columns,
    table_options,
    unseen_group_option,
)
from equipoise.training import LOSS_NAMES

if TYPE_CHECKING:
    from equipoise.search import FrontierSearch

MODEL, RESULTS, FRONTIER, SUMMARY = (
    "model.safetensors", "results.parquet", "frontier.csv", "summary.json",
)  # fmt: skip
PICTURES = ("frontier.svg", "frontier.png")
FILES = (RESULTS, FRONTIER, SUMMARY, MODEL, *PICTURES)
RUNS = "runs"
"""Folder of finished runs inside OUT."""


def _weights(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> str | list[str | float | None]:
    found: list[str | float | None] = []
    for text in texts:
        if text in ("equal", "share", "none"):
            found.append(None if text == "none" else text)
            continue
        with suppress(ValueError):
            if 0.0 <= float(text) <= 1.0:
                found.append(float(text))
                continue
        raise click.BadParameter(f"{text!r} is neither none, equal, share nor a number from 0 to 1")
    return found or "auto"


def _ways(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> tuple[str | None, ...]:
    return tuple(None if text == "none" else text for text in texts)


@click.command(context_settings={"show_default": True})
@click.argument("data")
@table_options
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the model, the frontier and all results.",
)
@click.option("--force", is_flag=True, help="Replace the results of another search.")
@click.option(
    "--objective",
    type=click.Choice(("balanced", "pe", "ece")),
    default="balanced",
    help="Objective to minimise: PE, ECE, or their sum in units of plain cross-entropy's.",
)
@click.option(
    "--slack",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.05,
    help="Largest loss of accuracy accepted; 0.05 is five points.",
)
@click.option(
    "--log-loss-slack",
    type=click.FloatRange(min=0),
    default=0.002,
    help="Largest increase of log-loss accepted.",
)
@click.option(
    "--time-limit",
    type=POSITIVE,
    help="Seconds after which the search stops, keeping finished runs.",
)
@click.option(
    "--loss",
    type=click.Choice(LOSS_NAMES),
    multiple=True,
    default=LOSS_NAMES,
    help="Loss to try; may be repeated.",
)
@click.option(
    "--rho",
    multiple=True,
    callback=_weights,
    metavar="WEIGHT",
    help="Weights of the groups in the loss; may be repeated: none, the ungrouped loss; equal; "
    "share, of the rows; or a number, for the second of two groups. By default none, equal, share.",
)
@click.option(
    "--lam",
    type=click.FloatRange(min=0),
    multiple=True,
    default=(0.5, 2.0, 10.0),
    help="Strength of the added term; may be repeated.",
)
@click.option(
    "--calibrate",
    type=click.Choice(("none", "common", "group", "bcts")),
    multiple=True,
    default=("none", "common", "group", "bcts"),
    callback=_ways,
    help="Calibration to try after training, as in train; may be repeated.",
)
@click.option("--n-seeds", type=COUNT, default=10, help="Number of splits.")
@click.option(
    "--halving/--no-halving",
    default=True,
    help="Drop half of the configurations after a fifth and after half of the splits.",
)
@click.option("--max-epochs", type=COUNT, default=200, help="Largest number of epochs of a run.")
@click.option(
    "--patience", type=COUNT, default=10, help="Epochs without a better log-loss that end a run."
)
@learning_rate_option
@click.option("--min-group-size", type=COUNT, default=30, help="Groups with fewer rows are small.")
@click.option(
    "--small-groups",
    type=click.Choice(("pool", "keep", "error")),
    default="pool",
    help="What to do with small groups.",
)
@shrinkage_option
@unseen_group_option
@reference_option
@engine_options
@safe_csv_option
@seed_option
def search(
    data: str,
    columns: dict[str, Any],
    out: Path,
    force: bool,
    reference: str | None,
    safe_csv: bool,
    seed: int,
    **parameters: Any,
) -> None:
    """Find the trade-offs of PE, ECE and accuracy on DATA.

    DATA is CSV or Parquet files, or - for standard input.

    A grid of configurations is trained on several splits, and compared on held-out rows. OUT gets
    all results, the frontier as a table and a picture, and the model that was chosen (for
    `equipoise predict`). Every finished run is kept in OUT/runs: a search that was stopped by
    Ctrl-C, a time limit or a kill goes on from there when the same command is given again.
    """
    _check_folder(out, data, force)
    if parameters["address"] and parameters["engine"] != "ray":
        raise click.UsageError("--address is for --engine ray")

    from equipoise.datasets import Dataset
    from equipoise.search import FrontierSearch
    from equipoise.sweep import OtherFolder

    dataset = Dataset.from_frame(data, **columns)
    show_columns(dataset)
    if reference is not None:
        parameters["reference_group"] = find_reference(reference, dataset.group_names)
    labels, groups = own_values(dataset)
    finder = FrontierSearch(
        **parameters, folder=out / RUNS, random_state=seed, refit=False, progress=True
    )
    with _terminated(out) as term:
        with notes():
            try:
                finder.fit(dataset.X, labels.tolist(), sensitive_features=groups)
            except OtherFolder as other:
                if not force:
                    raise _other(out, other) from None
                _remove(out)
                finder.fit(dataset.X, labels.tolist(), sensitive_features=groups)
        for name in (MODEL, *PICTURES):  # of an earlier choice
            (out / name).unlink(missing_ok=True)
        _write(finder, out, safe_csv=safe_csv)
        if term:
            raise KeyboardInterrupt
        with notes():
            model = finder.select()
        with _kept(out):
            model.save(out / MODEL, extra=saved_with(dataset) | {"choice": model.choice_})
        show(finder, out)
        _draw(finder, out)


@contextmanager
def _terminated(out: Path) -> Iterator[list[int]]:
    """Make SIGTERM stop the search as Ctrl-C does, with its own exit code.

    Returns a list that is then not empty.
    """
    received: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield received
        return
    try:
        yield received
    except (KeyboardInterrupt, ValueError):  # ValueError: too little is finished
        if not received:
            raise
        note(
            "Stopped by SIGTERM before the end. Every finished run is safe in "
            f"{out / RUNS}; repeat the command to go on."
        )
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_folder(out: Path, data: str, force: bool) -> None:
    """Refuse a folder that could not or should not be written to, before any work."""
    problem = None
    above = next(p for p in (out, *out.absolute().parents) if p.exists())
    there = [name for name in FILES if (out / name).exists()]
    blocked = [name for name in FILES if (out / name).is_dir()]
    if not above.is_dir() or not os.access(above, os.W_OK):
        problem = f"{above} is no folder that can be written to"
    elif blocked:
        problem = f"{out / blocked[0]} is a folder, where a file is to be written"
    elif there and not force and not (out / RUNS / "search.json").exists():
        problem = (
            f"{out / there[0]} exists, and is not of a search that can go on; choose another "
            "folder, or pass --force"
        )
    if problem:
        raise click.BadParameter(problem, param_hint="'--out'")
    for name in FILES if out.is_dir() else (f"{out.name}.tmp",):
        check_out((out if out.is_dir() else above) / name, force=True, inputs=[data])


def _other(out: Path, problem: Exception) -> click.BadParameter:
    reason = str(problem).partition("; choose")[0].replace(f"{out / RUNS} ", "")
    return click.BadParameter(
        f"{out} {reason}; choose another folder, or pass --force to replace it",
        param_hint="'--out'",
    )


def _remove(out: Path) -> None:
    """Remove the results and runs of another search, and nothing else.

    Its model must not stay beside the results of this search, which may be stopped.
    """
    from equipoise._files import writing_to

    endings = (".parquet", ".checksum", ".damaged", ".lock", ".tmp")
    with writing_to(out, "Remove by hand what is in the way"):
        for name in FILES:
            (out / name).unlink(missing_ok=True)
        for path in list((out / RUNS).glob("*")):
            if path.suffix in endings or path.name in ("parts.log", "search.json"):
                path.unlink()


def _kept(out: Path) -> AbstractContextManager[None]:
    """Explain errors of writing to OUT, and say that no run is lost."""
    from equipoise._files import writing_to

    return writing_to(out, f"Every finished run is safe in {out / RUNS}")


def _write(finder: FrontierSearch, out: Path, *, safe_csv: bool) -> None:
    """Write all results, the frontier and the verdict."""
    import io

    import pyarrow as pa
    from pyarrow import parquet

    from equipoise._files import replace_file, safe_cell

    frontier = finder.frontier_
    if safe_csv:
        frontier = frontier.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
    frame = finder.results_
    columns = {
        name: frame[name].tolist() if frame[name].dtype == object else frame[name].to_numpy()
        for name in frame.columns
    }
    content = io.BytesIO()
    parquet.write_table(pa.table(columns), content, compression="zstd")
    summary = {
        "verdict": finder.verdict_,
        "choice": finder.choice_,
        "comparison": finder.comparison_,
        "stopped": finder.stopped_,
    }
    with _kept(out):
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / RESULTS, content.getvalue())
        replace_file(out / FRONTIER, frontier.to_csv(index=False).encode())
        replace_file(out / SUMMARY, json.dumps(_plain(summary), indent=1).encode())


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it; null for numbers that are not finite."""
    from equipoise._inputs import shown

    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else shown(value)


def _draw(finder: FrontierSearch, out: Path) -> None:
    """Draw the picture; where that fails, say so."""
    import io

    from equipoise._files import replace_file

    try:
        figure = finder.plot()
        for name in PICTURES:
            picture = io.BytesIO()
            figure.savefig(picture, format=name.rpartition(".")[2], dpi=120)
            replace_file(out / name, picture.getvalue())
    except Exception as error:  # results and model are written
        note(f"The picture could not be drawn ({error}); everything else is in {out}.")
