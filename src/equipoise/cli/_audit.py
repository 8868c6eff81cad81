"""`equipoise audit`: calibration and fairness of predictions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import (
    OUTPUT_FILE,
    check_out,
    console,
    group_option,
    labels_option,
    note,
    notes,
    positive_option,
    prob_option,
    say,
)

if TYPE_CHECKING:
    from equipoise.auditing import AuditReports, Gate, OnInterval, Outcome

MOST_LINES = 20
"""Most failures of a gate that are listed."""

MOST_MODELS = 20
"""Most files that are taken for one model each; more are probably parts of one model."""

OF_PREDICTIONS = {
    "label": "--label",
    "prob": "--prob",
    "group": "--group",
    "y_pred": "--pred",
    "by": "--by",
    "sample_weight": "--weight",
    "clusters": "--cluster",
    "model": "--model",
    "labels": "--labels",
    "positive": "--positive",
    "n_bins": "--bins",
    "drop_missing": "--drop-missing",
}
"""Options that --merge does not take, by their parameter."""


def _start_fast() -> None:
    # an audit multiplies no matrices, and NumPy's threads for that take .07 s of CPU to start
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _gates(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> list[Gate]:
    if not texts:
        return []
    _start_fast()
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
    "--pred",
    "y_pred",
    help="Column with decisions made elsewhere, for accuracy and deterministic PE.",
)
@labels_option
@positive_option
@click.option(
    "--train",
    metavar="FILE",
    help="Training labels, for the rates that PE compares with; by default those of PREDICTIONS.",
)
@click.option("--train-label", help="Column with the label in --train; by default that of --label.")
@click.option(
    "--by",
    multiple=True,
    help="Column that splits the rows into parts, such as a month. 'ts:month' cuts the dates, "
    "timestamps or ISO texts of column ts to a year, quarter, month, week, day or hour.",
)
@click.option("--weight", "sample_weight", metavar="COLUMN", help="Column with the rows' weights.")
@click.option(
    "--cluster",
    "clusters",
    metavar="COLUMN",
    help="Column with the id of what rows belong to, such as a person with several rows. Rows of "
    "a cluster do not count as independent.",
)
@click.option("--model", help="Column with the name of the model that made the prediction.")
@click.option(
    "--reference",
    "reference_group",
    metavar="GROUP",
    help="Group that the others are compared with, by default the largest; 'all' takes every pair.",
)
@click.option(
    "--bins",
    "n_bins",
    type=click.IntRange(1, 1000),
    default=15,
    help="Number of confidence bins.",
)
@click.option(
    "--level",
    type=_SHARE,
    default=0.95,
    help="Level at which the intervals of all groups, labels and parts hold together.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.05,
    help="Largest ECE that still counts as calibrated; 0 asks for any error at all.",
)
@click.option(
    "--engine",
    type=click.Choice(("duckdb", "polars", "spark")),
    default="duckdb",
    help="Library that reads the files.",
)
@click.option(
    "--remote",
    is_flag=True,
    help="Let the engine fetch Parquet files from addresses such as s3://bucket/a.parquet.",
)
@click.option("--drop-missing", is_flag=True, help="Leave out rows with a missing value.")
@click.option(
    "--fail-if",
    "gates",
    multiple=True,
    callback=_gates,
    metavar="CONDITION",
    help="Exit with 1 if this is met: 'ece > 0.05', 'ece[Female] > 0.05', 'ece[*] > 0.05', "
    "'ece.gap > 0.02', 'pe > 0.2', 'rows < 1000', 'miscalibrated', 'amplifies'. May be repeated.",
)
@click.option(
    "--on-interval",
    type=click.Choice(("strict", "lenient")),
    help="Decide by the interval: strict fails if any part of it meets the condition, lenient only "
    "if all of it does. By default the figure decides.",
)
@click.option("--json", "out", type=OUTPUT_FILE, help="Write figures and tables to this file.")
@click.option("--force", is_flag=True, help="Overwrite the file of --json.")
@click.option("--merge", is_flag=True, help="Add up PREDICTIONS, which are files of --json.")
@click.option(
    "--disjoint-clusters",
    is_flag=True,
    help="With --merge: no cluster has rows in two of the files, so audits with clusters add up.",
)
def audit(
    predictions: tuple[str, ...],
    gates: list[Gate],
    on_interval: OnInterval | None,
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

    Each of several PREDICTIONS is a model; a folder, or a pattern in quotes, is one model in many
    files. Exit code: 0 if all gates pass, 1 if one fails, 2 if the input is wrong.
    """  # noqa: D301 - the backslash is click's sign for lines that stay as they are
    if out is not None:
        check_out(
            out,
            force=force,
            inputs=[*predictions, options["train"]],
            option="--json",
            endings=(".json",) if options["merge"] else None,
        )
    _start_fast()
    found = _run(predictions, **options)
    if found.tables.unnamed:
        note(f"{found.tables.unnamed:,} of the rows left out belong to no model")
    outcomes = found.check(gates, on_interval)
    if out is not None:
        found.save(out, outcomes)
    console().print(found)
    _show_gates(gates, outcomes)
    click.get_current_context().exit(0 if all(o.holds for _, _, o in outcomes) else 1)


def _run(
    predictions: Sequence[str],
    *,
    merge: bool,
    disjoint_clusters: bool,
    label: str,
    prob: tuple[str, ...],
    group: tuple[str, ...],
    **options: Any,
) -> AuditReports:
    from equipoise.auditing import audit_models, merge_audits, spare_scipy

    spare_scipy()

    if options["train_label"] is not None and options["train"] is None:
        raise click.UsageError("--train-label is for --train")
    if merge:
        source = click.get_current_context().get_parameter_source
        for name, option in OF_PREDICTIONS.items():
            if source(name) != click.core.ParameterSource.DEFAULT:
                raise click.UsageError(
                    f"{option} is for predictions; with --merge it is read from the files"
                )
        with notes():
            kept = {name: v for name, v in options.items() if name not in OF_PREDICTIONS}
            return merge_audits(predictions, disjoint_clusters=disjoint_clusters, **kept)
    if disjoint_clusters:
        raise click.UsageError("--disjoint-clusters is for --merge")
    columns = {"--label": label, "--prob": prob, "--group": group}
    if lacking := [name for name, value in columns.items() if not value]:
        raise click.UsageError(
            f"an audit needs {' and '.join(lacking)}; to add up files of --json, pass --merge"
        )
    others = [options[name] for name in ("y_pred", "model", "sample_weight", "clusters")]
    named = [*prob, *group, *options["by"], label, *others]
    if twice := [name for name in named if name is not None and named.count(name) > 1]:
        raise click.UsageError(f"column {twice[0]!r} is named twice")
    if options["model"] is not None and len(predictions) > 1:
        raise click.UsageError(
            "each of several files is a model, so --model goes with one; to read many files as one "
            "table, name their folder or put the pattern in quotes"
        )
    with notes():
        return audit_models(
            label, prob, sensitive_features=group, data=_named(predictions), **options
        )


def _named(sources: Sequence[str]) -> dict[str | None, str]:
    """Name models by their files: by the stem, or by the whole path where stems are the same."""
    if len(sources) == 1:
        return {None: sources[0]}
    if len(sources) > MOST_MODELS:
        raise ValueError(
            f"{len(sources)} files are {len(sources)} models, more than {MOST_MODELS}; if they "
            "are parts of one model's predictions, name their folder or put the pattern in quotes"
        )
    stems = [Path(s).stem for s in sources]
    names = [stem if stems.count(stem) == 1 else s for s, stem in zip(sources, stems, strict=True)]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{twice} is given twice; each file is a model of its own")
    return dict(zip(names, sources, strict=True))


def _show_gates(
    gates: Sequence[Gate], outcomes: Sequence[tuple[Gate, str | None, Outcome]]
) -> None:
    from equipoise._inputs import shown

    for gate in gates:
        own = [(model, outcome) for g, model, outcome in outcomes if g is gate]
        failed = [(model, outcome) for model, outcome in own if not outcome.holds]
        if not failed:
            many = f"{gate.text} passes in all {len(own)} places"
            say(f"Gate: {own[0][1].text if len(own) == 1 else many}")
        for model, outcome in failed[:MOST_LINES]:
            of = "" if model is None else f"{shown(model)}: "
            say(f"Gate: {of}{outcome.text}", err=True)
        if len(failed) > MOST_LINES:
            say(f"Gate: {gate.text} fails in {len(failed) - MOST_LINES:,} more places", err=True)
