"""`equipoise audit`: whether predictions are calibrated for every group and amplify bias."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import (
    OUTPUT_FILE,
    check_out,
    console,
    group_option,
    listed,
    note,
    note_all,
    prob_option,
)

if TYPE_CHECKING:
    from equipoise.auditing import AuditReport, Gate, Outcome
    from equipoise.cli._audits import Audits

MOST_LINES = 20
"""Failures of a gate that are listed."""


class BadInput(click.ClickException):
    """A mistake in the input: 1 is the exit code of a gate that fails."""

    exit_code = 2


def _gates(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> list[Gate]:
    if not texts:
        return []
    from equipoise.auditing import Gate

    try:
        return [Gate.parse(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command(context_settings={"show_default": True})
@click.argument("predictions", nargs=-1, required=True)
@click.option("--label", help="Column with the label.")
@prob_option
@group_option
@click.option(
    "--pred", help="Column with decisions made elsewhere, for accuracy and deterministic PE."
)
@click.option(
    "--classes",
    multiple=True,
    callback=listed,
    metavar="A,B,...",
    help="The label of each --prob, in the same order; with one --prob it is that of the second.",
)
@click.option(
    "--train",
    metavar="FILE",
    help="Training labels, whose rates PE compares with; by default the labels of PREDICTIONS.",
)
@click.option("--train-label", help="Column with the label there; by default that of --label.")
@click.option("--by", multiple=True, help="Column to split by, such as a month: metrics over time.")
@click.option("--model", help="Column with the name of the model that made the prediction.")
@click.option(
    "--reference",
    metavar="GROUP",
    help="The group that others are compared with; by default the first, 'all': every pair.",
)
@click.option("--bins", type=click.IntRange(1, 1000), default=15, help="Number of confidence bins.")
@click.option("--level", type=_SHARE, default=0.95, help="Level of the intervals.")
@click.option("--tolerance", type=_SHARE, default=0.05, help="ECE up to which calibrated is said.")
@click.option(
    "--engine",
    type=click.Choice(("duckdb", "polars", "spark")),
    default="duckdb",
    help="What reads the files and adds up.",
)
@click.option("--drop-missing", is_flag=True, help="Leave out rows with a missing value.")
@click.option(
    "--fail-if",
    "gates",
    multiple=True,
    callback=_gates,
    metavar="CONDITION",
    help="Exit with 1 if this is so: 'ece > 0.05', 'ece[Female] > 0.05', 'ece[*] > 0.05', "
    "'ece.gap > 0.02', 'pe > 0.2', 'rows < 1000', 'miscalibrated', 'amplifies'. May be repeated.",
)
@click.option(
    "--on-interval",
    type=click.Choice(("strict", "lenient")),
    help="Let the interval decide: strict fails if any part of it meets the condition, lenient if "
    "all of it does. By default the figure decides.",
)
@click.option("--json", "out", type=OUTPUT_FILE, help="Write figures and tables to this file.")
@click.option("--force", is_flag=True, help="Overwrite it.")
@click.option("--merge", is_flag=True, help="PREDICTIONS are files of --json, which are added up.")
def audit(
    predictions: tuple[str, ...],
    gates: list[Gate],
    out: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Measure calibration and fairness of PREDICTIONS, CSV or Parquet files.

    \b
    equipoise audit predictions.parquet --label y --prob p --group sex
    equipoise audit a.csv b.csv --label y --prob p --group sex --fail-if "ece[*] > 0.05"
    equipoise audit "parts/*.parquet" --label y --prob p --group sex --by month --json audit.json
    equipoise audit --merge worker1.json worker2.json

    Several PREDICTIONS are several models; a folder, or a pattern in quotes, is one model in many
    files. Exit code: 0 if all gates hold, 1 if one fails, 2 if the input is wrong.
    """  # noqa: D301 - the backslash is click's sign for lines that stay as they are
    try:
        if out is not None:
            _check_json(out, force=force, inputs=predictions)
        found, by, outcomes = _run(predictions, gates, out, **options)
    except BrokenPipeError:
        raise
    except (OSError, TypeError, ValueError, ImportError) as error:
        raise BadInput(_as_options(str(error))) from error
    try:
        _show(found, by)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich would exit with 1
        # who reads the first lines only still gets the exit code of the gates
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _show_gates(gates, outcomes)
    click.get_current_context().exit(0 if all(o.holds for _, _, o in outcomes) else 1)


def _check_json(out: Path, *, force: bool, inputs: Sequence[str]) -> None:
    try:
        check_out(out, force=force, inputs=[Path(p) for p in inputs])
    except click.BadParameter as error:
        error.param_hint = "'--json'"
        raise


def _run(
    predictions: Sequence[str],
    gates: Sequence[Gate],
    out: Path | None,
    *,
    merge: bool,
    train: str | None,
    train_label: str | None,
    engine: str,
    reference: str | None,
    level: float,
    tolerance: float,
    on_interval: Any,
    **options: Any,
) -> tuple[dict[str | None, AuditReport], tuple[str, ...], list[tuple[Gate, str | None, Outcome]]]:
    from equipoise.cli import _audits as audits
    from equipoise.cli._merge import merged, save

    _check_options(predictions, merge=merge, train=train, train_label=train_label, **options)
    if merge:
        tables = merged(predictions, keep_rates=train is None)
    else:
        tables = _read(predictions, engine=engine, **options)
    if tables.unnamed:
        note(f"{tables.unnamed:,} of the rows left out belong to none of the models shown")
    if train is not None:
        label = train_label or tables.columns.get("label")
        if label is None or "group" not in tables.columns:
            raise ValueError("these tables do not name their columns, so --train cannot be read")
        tables.rates = audits.training_rates(tables, train, label, engine)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = audits.reports(tables, reference=reference, level=level, tolerance=tolerance)
    note_all([str(w.message) for w in caught])
    outcomes = audits.check(gates, found, on_interval)
    if out is not None:
        save(out, tables, found, outcomes)
    return found, tables.by, outcomes


def _check_options(
    predictions: Sequence[str],
    *,
    merge: bool,
    train: str | None,
    train_label: str | None,
    label: str | None,
    prob: Sequence[str],
    group: Sequence[str],
    pred: str | None,
    by: Sequence[str],
    model: str | None,
    classes: Sequence[str] | None,
    **_others: Any,
) -> None:
    if train_label is not None and train is None:
        raise click.UsageError("--train-label is for --train")
    if merge:
        given: dict[str, Any] = {
            "--label": label,
            "--prob": prob,
            "--group": group,
            "--pred": pred,
            "--by": by,
            "--model": model,
            "--classes": classes,
        }
        context = click.get_current_context()
        default = click.core.ParameterSource.DEFAULT
        given |= {
            f"--{name.replace('_', '-')}": context.get_parameter_source(name) != default
            for name in ("bins", "drop_missing")
        }
        if wrong := [name for name, value in given.items() if value]:
            raise click.UsageError(
                f"{wrong[0]} is for predictions; with --merge the files know their columns"
            )
        return
    required = {"--label": label, "--prob": prob, "--group": group}
    if lacking := [name for name, value in required.items() if not value]:
        raise click.UsageError(
            f"an audit needs {' and '.join(lacking)}; to add up files of --json, pass --merge"
        )
    named = [*prob, *group, *by, *(name for name in (label, pred, model) if name is not None)]
    if twice := [name for name in named if named.count(name) > 1]:
        raise click.UsageError(f"column {twice[0]!r} is named twice")
    if model is not None and len(predictions) > 1:
        raise click.UsageError(
            "several files are several models, so --model is for one; to read many files as one "
            "table, name their folder or put the pattern in quotes"
        )


def _read(
    predictions: Sequence[str],
    *,
    label: str,
    prob: tuple[str, ...],
    group: tuple[str, ...],
    pred: str | None,
    by: tuple[str, ...],
    model: str | None,
    classes: Sequence[str] | None,
    bins: int,
    engine: str,
    drop_missing: bool,
) -> Audits:
    from equipoise.auditing import Columns
    from equipoise.cli import _audits as audits

    return audits.read(
        predictions,
        Columns(label, prob, group, pred, by),
        model=model,
        labels=classes,
        n_bins=bins,
        drop_missing=drop_missing,
        engine=engine,
    )


def _as_options(text: str) -> str:
    """Return a message with its remedies as options; they are named as in Python, some as both."""
    text = re.sub(r"drop_missing=True( \(--drop-missing\))?", "--drop-missing", text)
    text = re.sub(
        r"^labels must name the (\d+) columns of y_prob", r"--classes must name \1 labels", text
    )
    text = re.sub(r"labels=( \(--classes\))?(?=\S)", "--classes ", text)
    return re.sub(r"labels=( \(--classes\))?", "--classes", text)


# --- what is printed -------------------------------------------------------------------------


def _show(found: Mapping[str | None, AuditReport], by: Sequence[str]) -> None:
    from rich.text import Text

    from equipoise._inputs import shown
    from equipoise.auditing import side_by_side

    screen = console()
    for i, (model, report) in enumerate(found.items()):
        if model is not None:
            screen.print(Text("\n" * (i > 0)).append(shown(model), "bold reverse"))
        screen.print(report)
        if report.by:
            screen.print(Text(f"\nBy {', '.join(by)}", "bold"))
            screen.print(side_by_side(", ".join(by), report.by))
    if len(found) > 1:
        screen.print(Text("\nAll models", "bold"))
        screen.print(side_by_side("model", found))


def _show_gates(
    gates: Sequence[Gate], outcomes: Sequence[tuple[Gate, str | None, Outcome]]
) -> None:
    from equipoise._inputs import shown

    for gate in gates:
        own = [(model, outcome) for g, model, outcome in outcomes if g is gate]
        failed = [(model, outcome) for model, outcome in own if not outcome.holds]
        if not failed:
            places = "" if len(own) == 1 else f" in all {len(own)} places"
            said = own[0][1].text if len(own) == 1 else f"{gate.text} passes{places}"
            click.echo(f"Gate: {said}")
        for model, outcome in failed[:MOST_LINES]:
            of = "" if model is None else f"{shown(model)}: "
            click.echo(f"Gate: {of}{outcome.text}", err=True)
        if len(failed) > MOST_LINES:
            click.echo(
                f"Gate: {gate.text} fails in {len(failed) - MOST_LINES:,} more places", err=True
            )
