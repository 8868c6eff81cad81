"""`equipoise calibrate`: fit temperatures to a file of predictions, or apply them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
)

if TYPE_CHECKING:
    from equipoise.calibration import FileCalibration

MOST_ROWS = 50
"""Most groups that the table shows."""


@click.command()
@click.argument("predictions")
@click.option("--label", help="Column with the label; not needed with --apply.")
@prob_option
@group_option
@labels_option
@positive_option
@click.option(
    "--shrinkage",
    type=click.FloatRange(min=0),
    help="Shrinkage strength in pseudo-rows: a group's own weight is n / (n + shrinkage). By "
    "default 0, none.",
)
@click.option(
    "--cluster",
    metavar="COLUMN",
    help="Column with an id, such as a person, that keeps rows together: the calibration error "
    "after is cross-fitted, each row calibrated with temperatures of other ids.",
)
@reference_option
@click.option(
    "--apply",
    "temperatures",
    type=INPUT_FILE,
    help="Calibrate with the temperatures in this file instead of fitting.",
)
@click.option(
    "--unseen-group",
    type=click.Choice(("error", "global", "mixture")),
    help="What --apply does with a group that is new or missing: refuse it (error, the default), "
    "use the common temperature (global), or average the groups' calibrated probabilities "
    "(mixture). When fitting, the choice is saved with the temperatures.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="With --apply: replace the --prob columns instead of adding calibrated ones.",
)
@click.option(
    "--out",
    required=True,
    type=OUTPUT_FILE,
    help="File to write: the temperatures, .json; with --apply the calibrated predictions, .csv "
    "or .parquet.",
)
@click.option("--force", is_flag=True, help="Overwrite it.")
def calibrate(
    predictions: str,
    label: str | None,
    prob: tuple[str, ...],
    group: tuple[str, ...],
    labels: list[str] | None,
    positive: str | None,
    shrinkage: float | None,
    cluster: str | None,
    reference: str | None,
    temperatures: Path | None,
    unseen_group: str | None,
    replace: bool,
    out: Path,
    force: bool,
) -> None:
    """Calibrate PREDICTIONS with a temperature for each group.

    \b
    equipoise calibrate held_out.csv --label y --prob p --group sex --out temperatures.json
    equipoise calibrate new.parquet --apply temperatures.json --out calibrated.parquet

    The first command fits the temperatures, and shows the calibration error before and after on the
    same rows, or with --cluster out of fold. The second writes all columns of PREDICTIONS, and
    calibrated_P for each --prob P. The file of temperatures names the columns; --prob and --group
    name others.

    PREDICTIONS is CSV or Parquet: a file, a folder, a pattern in quotes, or - for standard input.
    CSV may be compressed (.gz, .zst).
    """  # noqa: D301 - the backslash is click's sign for lines that stay as they are
    check_out(out, force=force, inputs=(predictions, *filter(None, [temperatures])))
    named = [*prob, *group, *filter(None, [label, cluster])]
    if twice := [name for name in named if named.count(name) > 1]:
        raise click.UsageError(f"column {twice[0]!r} is named twice")
    if temperatures is not None:
        fitting = {
            "--label": label,
            "--labels": labels,
            "--positive": positive,
            "--shrinkage": shrinkage,
            "--cluster": cluster,
            "--reference": reference,
        }
        if wrong := [name for name, value in fitting.items() if value is not None]:
            raise click.UsageError(f"{wrong[0]} is for fitting, not for --apply")
        options = {"prob": prob, "group": group, "unseen_group": unseen_group, "replace": replace}
        _apply(predictions, temperatures, out, **options)
        return
    required = {"--label": label, "--prob": prob, "--group": group}
    if lacking := [name for name, value in required.items() if not value]:
        raise click.UsageError(
            f"fitting needs {' and '.join(lacking)}; to apply temperatures, pass --apply FILE"
        )
    if replace:
        raise click.UsageError("--replace is for --apply")
    if out.suffix.lower() != ".json":
        raise click.BadParameter(f"{out} does not end in .json", param_hint="'--out'")
    _fit(
        predictions,
        out,
        reference,
        label=label,
        prob=prob,
        group=group,
        labels=labels,
        positive=positive,
        unseen_group=unseen_group or "error",
        shrinkage=shrinkage or 0.0,
        cluster=cluster,
    )


def _fit(predictions: str, out: Path, reference: str | None, **options: Any) -> None:
    from equipoise.calibration import FileCalibration
    from equipoise.metrics import proportional_equality_of

    with notes():
        fitted = FileCalibration.fit(predictions, **options)
        tables = [t for t in (fitted.before, fitted.after) if t is not None]
        groups = tables[0].groups
        largest = groups[int(tables[0]["rows"].argmax())]
        against = largest if reference is None else find_reference(reference, groups)
        compared = tables if len(groups) > 1 else []
        pe = [proportional_equality_of(t, reference_group=against) for t in compared]
    fitted.save(out)
    _show(fitted, pe, against, Path(predictions).name, out)


def _show(
    fitted: FileCalibration, pe: Sequence[float], against: Hashable, name: str, out: Path
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from equipoise._inputs import shown
    from equipoise.metrics import by_group, overall

    scaling, tables = fitted.scaling, [t for t in (fitted.before, fitted.after) if t is not None]
    before, after = (by_group(t, "ece") for t in tables)
    rows = dict(zip(tables[0].groups, tables[0]["rows"].astype(int).tolist(), strict=True))
    largest = sorted(rows, key=rows.__getitem__, reverse=True)[:MOST_ROWS]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("group")
    for heading in ("rows", "temperature", "ECE before", "ECE after"):
        table.add_column(heading, justify="right")
    total = (f"{overall(t, 'ece'):.4f}" for t in tables)
    table.add_row("all", f"{sum(rows.values()):,}", "", *total, end_section=True)
    for group in (g for g in rows if g in largest):
        cells = f"{rows[group]:,}", f"{scaling.temperatures_[group]:.4f}"
        table.add_row(Text(shown(group)), *cells, f"{before[group]:.4f}", f"{after[group]:.4f}")
    lines = []
    if len(largest) < len(rows):
        lines.append(("groups", f"{len(rows) - len(largest):,} smaller ones are not shown"))
    if pe:
        how = f"stochastic, compared with group {shown(against)}"
        lines.append(("PE", f"{pe[0]:.4f} before, {pe[1]:.4f} after ({how})"))
    lines += [
        ("common", f"{scaling.temperature_:.4f}, the temperature of --unseen-group global"),
        ("file", str(out)),
    ]
    screen = console()
    measured = "measured on the same rows"
    if fitted.cluster is not None:
        measured = f"measured out of fold, each {shown(fitted.cluster)} in one fold"
    heading = f"Fitted to the {sum(rows.values()):,} rows of {name}, and {measured}"
    screen.print(Text(heading, "bold"), soft_wrap=True)
    screen.print(table)
    for what, value in lines:
        screen.print(Text.assemble((f"{what:8}", "dim"), value), soft_wrap=True)


def _apply(predictions: str, temperatures: Path, out: Path, **options: Any) -> None:
    from equipoise.calibration import FileCalibration

    saved = FileCalibration.load(temperatures)
    done = saved.apply(predictions, out, **options)
    if done.unseen:
        policy = options["unseen_group"] or saved.scaling.unseen_group
        note(
            f"{done.unseen:,} rows belong to a group without a temperature in {temperatures.name}; "
            f"they are calibrated by the policy {policy!r}"
        )
    click.echo(f"{done.rows:,} calibrated rows in {out}")
