"""`equipoise calibrate`: fit calibrators to a file of predictions, or apply them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from equipoise.cli._shared import (
    INPUT_FILE,
    OUTPUT_FILE,
    check_out,
    console,
    find_reference,
    group_option,
    labels_option,
    note,
    notes,
    positive_option,
    prob_option,
    reference_option,
    safe_csv_option,
    say,
    shrinkage_option,
)

METHOD_NAMES = (
    "auto",
    "none",
    "common",
    "temperature",
    "bcts",
    "platt",
    "beta",
    "isotonic",
    "vector",
)
"""Those of `equipoise.calibration.METHODS`, which would have to be imported."""


DIALECT_NAMES = ("duckdb", "postgres", "bigquery", "snowflake", "spark")
"""Those of `equipoise.calibration`, likewise."""


@click.command()
@click.argument("predictions", required=False)
@click.option("--label", help="Column with the label; not needed with --apply.")
@prob_option
@group_option
@labels_option
@positive_option
@click.option(
    "--method",
    type=click.Choice(METHOD_NAMES),
    help="How scores become probabilities. auto (the default): the simplest whose out-of-fold "
    "log-loss is within one standard error of the least, among none, common (one temperature), "
    "temperature (one per group), bcts (a temperature and a bias per group), beta and isotonic. "
    "Only none, common and temperature keep every prediction.",
)
@shrinkage_option
@click.option(
    "--cluster",
    metavar="COLUMN",
    help="Column with an id, such as a person, that keeps rows together in one fold.",
)
@click.option(
    "--holdout",
    metavar="SHARE|FILE",
    help="Rows to measure the repair on: a share of the rows, such as 0.3, which are then not "
    "fitted to, or another file. By default the repair is measured out of fold.",
)
@reference_option
@click.option(
    "--apply",
    "calibrators",
    type=INPUT_FILE,
    help="Calibrate with the calibrators in this file instead of fitting.",
)
@click.option(
    "--unseen-group",
    type=click.Choice(("error", "global", "mixture")),
    help="What --apply does with a group that is new or missing: refuse it (error, the default), "
    "use the common calibrator (global), or average the groups' calibrated probabilities "
    "(mixture). When fitting, the choice is saved with the calibrators.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="With --apply: replace the --prob columns instead of adding calibrated ones.",
)
@safe_csv_option
@click.option(
    "--export",
    type=click.Choice(("sql", "onnx")),
    help="Write the calibrators also as a SQL query or an ONNX model, beside the .json; with "
    "--apply and without PREDICTIONS, only that. Nothing is written unless DuckDB or onnxruntime "
    "gives the numbers of Python.",
)
@click.option(
    "--dialect",
    type=click.Choice(DIALECT_NAMES),
    help="Dialect of --export sql: duckdb (the default), which is run, or another, which is only "
    "written.",
)
@click.option(
    "--out",
    required=True,
    type=OUTPUT_FILE,
    help="File to write: the calibrators, .json; with --apply the calibrated predictions, .csv "
    "or .parquet, or the --export, .sql or .onnx.",
)
@click.option("--force", is_flag=True, help="Overwrite it.")
def calibrate(
    predictions: str | None,
    label: str | None,
    prob: tuple[str, ...],
    group: tuple[str, ...],
    labels: list[str] | None,
    positive: str | None,
    method: str | None,
    shrinkage: float | Literal["auto"],
    cluster: str | None,
    holdout: str | None,
    reference: str | None,
    calibrators: Path | None,
    unseen_group: str | None,
    replace: bool,
    safe_csv: bool,
    export: str | None,
    dialect: str | None,
    out: Path,
    force: bool,
) -> None:
    """Repair PREDICTIONS with a calibrator for each group.

    \b
    equipoise calibrate held_out.csv --label y --prob p --group sex --out repair.json
    equipoise calibrate new.parquet --apply repair.json --out calibrated.parquet
    equipoise calibrate --apply repair.json --export sql --out repair.sql

    The first command fits the calibrators, and shows class ECE and log-loss of each group before
    and after, on rows that were not fitted to. The second writes all columns of PREDICTIONS, and
    calibrated_P for each --prob P. The file of calibrators names the columns; --prob and --group
    name others. The third writes a query that gives the same numbers in a database.

    PREDICTIONS is CSV or Parquet: a file, a folder, a pattern in quotes, or - for standard input.
    CSV may be compressed (.gz, .zst).
    """  # noqa: D301 - the backslash is click's sign for lines that stay as they are
    read = (predictions, calibrators, holdout)
    check_out(out, force=force, inputs=read)
    if dialect is not None and export != "sql":
        raise click.UsageError("--dialect is for --export sql")
    named = [*prob, *group, *filter(None, [label, cluster])]
    if twice := [name for name in named if named.count(name) > 1]:
        raise click.UsageError(f"column {twice[0]!r} is named twice")
    if calibrators is not None:
        fitting = {
            "--label": label,
            "--labels": labels,
            "--positive": positive,
            "--method": method,
            "--cluster": cluster,
            "--holdout": holdout,
            "--reference": reference,
        }
        wrong = [name for name, value in fitting.items() if value is not None]
        if wrong or shrinkage != "auto":
            wrong = wrong or ["--shrinkage"]
            raise click.UsageError(f"{wrong[0]} is for fitting, not for --apply")
        if export is not None:
            own = {"--replace": replace, "--safe-csv": safe_csv}
            _check_export_alone(export, out, predictions, prob, own)
            names = {"prob": prob, "group": group, "unseen_group": unseen_group}
            _export(calibrators, out, export, dialect, **names)
            return
        if predictions is None:
            raise click.UsageError("--apply needs PREDICTIONS, or --export")
        options = {"prob": prob, "group": group, "unseen_group": unseen_group, "replace": replace}
        _apply(predictions, calibrators, out, safe_csv=safe_csv, **options)
        return
    required = {
        "PREDICTIONS": predictions,
        "--label": label,
        "--prob": prob,
        "--group": group,
    }
    if lacking := [name for name, value in required.items() if not value]:
        raise click.UsageError(
            f"fitting needs {' and '.join(lacking)}; to apply calibrators, pass --apply FILE"
        )
    if replace or safe_csv:
        raise click.UsageError(f"{'--replace' if replace else '--safe-csv'} is for --apply")
    if out.suffix.lower() != ".json":
        raise click.BadParameter(f"{out} does not end in .json", param_hint="'--out'")
    assert predictions is not None
    beside = None if export is None else out.with_suffix(f".{export}")
    if beside is not None:
        check_out(beside, force=force, inputs=read, option="--export")
    _fit(
        predictions,
        out,
        reference,
        beside,
        dialect,
        label=label,
        prob=prob,
        group=group,
        labels=labels,
        positive=positive,
        method=method or "auto",
        shrinkage=shrinkage,
        unseen_group=unseen_group or "error",
        cluster=cluster,
        holdout=_share_or_file(holdout),
    )


def _share_or_file(holdout: str | None) -> float | str | None:
    if holdout is None or Path(holdout).exists():
        return holdout
    try:
        return float(holdout)
    except ValueError:
        return holdout


def _check_export_alone(
    export: str,
    out: Path,
    predictions: str | None,
    prob: tuple[str, ...],
    of_apply: dict[str, bool],
) -> None:
    if predictions is not None:
        raise click.UsageError("--export with --apply takes no PREDICTIONS; leave them out")
    if wrong := [option for option, given in of_apply.items() if given]:
        raise click.UsageError(f"{wrong[0]} is for --apply without --export")
    if prob and export == "onnx":
        raise click.UsageError("--prob is for --export sql; an ONNX model takes scores")
    if out.suffix.lower() != f".{export}":
        raise click.BadParameter(f"{out} does not end in .{export}", param_hint="'--out'")


def _fit(
    predictions: str,
    out: Path,
    reference: str | None,
    beside: Path | None,
    dialect: str | None,
    **options: Any,
) -> None:
    from rich.text import Text

    from equipoise.auditing import report_of
    from equipoise.calibration import FileCalibration, check_export
    from equipoise.cli._repair_table import print_repair

    if beside is not None:
        check_export(beside.suffix[1:])
    name = Path(predictions).name
    with notes(), console(stderr=True).status(Text(f"Fitting calibrators to {name} ...")):
        fitted = FileCalibration.fit(predictions, **options)
        measured = fitted.measured
        assert measured is not None
        groups = measured.before.groups
        largest = groups[int(measured.before["rows"].argmax())]
        against = largest if reference is None else find_reference(reference, groups)
        reports = [
            report_of(table, reference_group=against) for table in (measured.before, measured.after)
        ]
    written = None if beside is None else _written(fitted, beside, dialect)
    fitted.save(out)
    print_repair(console(), name, fitted, reports, out)
    if written is not None:
        say(written)


def _export(calibrators: Path, out: Path, export: str, dialect: str | None, **options: Any) -> None:
    from equipoise.calibration import FileCalibration, check_export

    check_export(export)
    if export == "onnx":
        del options["prob"]
    say(_written(FileCalibration.load(calibrators), out, dialect, **options))


def _written(fitted: Any, out: Path, dialect: str | None, **options: Any) -> str:
    """Write an export, and return what is to be said of it."""
    if out.suffix.lower() == ".onnx":
        fitted.to_onnx(out, **options)
        return f"ONNX model in {out}, verified in onnxruntime"
    exported = fitted.to_sql(dialect or "duckdb", **options)
    exported.save(out)
    return f"SQL in {out}. {exported.notes[1]}"


def _apply(predictions: str, calibrators: Path, out: Path, **options: Any) -> None:
    from equipoise.calibration import FileCalibration

    saved = FileCalibration.load(calibrators)
    done = saved.apply(predictions, out, **options)
    if done.unseen:
        policy = options["unseen_group"] or saved.calibrator.unseen_group
        one = done.unseen == 1
        note(
            f"{done.unseen:,} row{'s' * (not one)} belong{'s' * one} to a group without a "
            f"calibrator in {calibrators.name}; calibrated by the policy {policy!r}"
        )
    say(f"{done.rows:,} calibrated rows in {out}")
