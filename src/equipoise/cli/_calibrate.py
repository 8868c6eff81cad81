"""`equipoise calibrate`: temperatures from a file of predictions, and their application."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import (
    INPUT_FILE,
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
    from equipoise.calibration import GroupTemperatureScaling
    from equipoise.metrics import AuditTable

MOST_ROWS = 50
"""Groups of the table that is shown."""


@click.command()
@click.argument("predictions", type=INPUT_FILE)
@click.option("--label", help="Column with the label; not needed with --apply.")
@prob_option
@group_option
@click.option(
    "--classes",
    multiple=True,
    callback=listed,
    metavar="A,B,...",
    help="The label of each --prob, in the same order. By default each --prob is named by its "
    "label, with or without prob_ before it.",
)
@click.option("--positive", help="The label whose probability is in the only --prob.")
@click.option(
    "--shrinkage",
    type=click.FloatRange(min=0),
    help="Rows' worth of trust in the common temperature, for small groups; by default none.",
)
@click.option(
    "--apply",
    "temperatures",
    type=INPUT_FILE,
    help="Calibrate with the temperatures in this file instead of fitting.",
)
@click.option(
    "--unseen-group",
    type=click.Choice(("error", "global", "mixture")),
    help="What --apply does with a group that is new, missing or not given: refuse it (the "
    "default), take the common temperature, or average over the groups' calibrated "
    "probabilities. Given when fitting, it is kept in the file.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="With --apply: write in the place of the --prob columns, not beside them.",
)
@click.option(
    "--out",
    required=True,
    type=OUTPUT_FILE,
    help="The temperatures' file, .json; with --apply the calibrated predictions, .csv or "
    ".parquet.",
)
@click.option("--force", is_flag=True, help="Overwrite it.")
def calibrate(
    predictions: Path,
    label: str | None,
    prob: tuple[str, ...],
    group: tuple[str, ...],
    classes: list[str] | None,
    positive: str | None,
    shrinkage: float | None,
    temperatures: Path | None,
    unseen_group: str | None,
    replace: bool,
    out: Path,
    force: bool,
) -> None:
    """Calibrate PREDICTIONS, a CSV or Parquet file, with a temperature for each group.

    \b
    equipoise calibrate held_out.csv --label y --prob p --group sex --out temperatures.json
    equipoise calibrate new.parquet --apply temperatures.json --out calibrated.parquet

    The first fits the temperatures and shows what they do to the rows that they were fitted to. The
    second writes all columns of PREDICTIONS, then calibrated_P for each --prob P, to a file of any
    size; the temperatures' file knows the columns, and --prob and --group name others.
    """  # noqa: D301 - the backslash is click's sign for lines that stay as they are
    check_out(out, force=force, inputs=(predictions, *([temperatures] if temperatures else [])))
    named = [*prob, *group, *([] if label is None else [label])]
    if twice := [name for name in named if named.count(name) > 1]:
        raise click.UsageError(f"column {twice[0]!r} is named twice")
    if temperatures is not None:
        given = {
            "--label": label,
            "--classes": classes,
            "--positive": positive,
            "--shrinkage": shrinkage,
        }
        if wrong := [name for name, value in given.items() if value is not None]:
            raise click.UsageError(f"{wrong[0]} is for fitting, not for --apply")
        _apply(predictions, temperatures, prob, group, unseen_group, replace=replace, out=out)
        return
    required = {"--label": label, "--prob": prob, "--group": group}
    if lacking := [name for name, value in required.items() if not value]:
        raise click.UsageError(
            f"fitting needs {' and '.join(lacking)}; to apply temperatures, pass --apply FILE"
        )
    if replace:
        raise click.UsageError("--replace is for --apply")
    if positive is not None and (len(prob) > 1 or classes is not None):
        raise click.UsageError("--positive is for one --prob, without --classes")
    if out.suffix.lower() != ".json":
        raise click.BadParameter(f"{out} does not end in .json", param_hint="'--out'")
    assert label is not None
    _fit(predictions, label, prob, group, classes, positive, shrinkage, unseen_group, out)


def _fit(
    path: Path,
    label: str,
    prob: Sequence[str],
    group: Sequence[str],
    classes: Sequence[str] | None,
    positive: str | None,
    shrinkage: float | None,
    unseen_group: str | None,
    out: Path,
) -> None:
    from equipoise.cli._stream import Reader
    from equipoise.cli._temperatures import fit, read_predictions, save
    from equipoise.metrics import AuditTable, proportional_equality_of

    reader = Reader(path)
    for name in (label, *prob, *group):
        reader.check(name)
    rows = read_predictions(
        reader, label=label, prob=prob, group=group, classes=classes, positive=positive
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scaling, y, members = fit(
            rows, unseen_group=unseen_group or "error", shrinkage=shrinkage or 0.0
        )
        after = scaling.predict_proba(rows.prob, sensitive_features=members)
        tables = [
            AuditTable.from_arrays(
                y,
                p,
                sensitive_features=members,
                labels=rows.classes,
                parts=("bins", "rates", "labels"),
            )
            for p in (rows.prob, after)
        ]
        pe = [proportional_equality_of(t) for t in tables] if len(rows.groups) > 1 else []
    # those on options say what they are called in Python
    messages = [
        str(w.message).replace("shrinkage=,", "--shrinkage,").replace(", or widen bounds=", "")
        for w in caught
    ]
    note_all(messages)
    save(out, scaling, {"label": label, "prob": list(prob), "group": list(group)})
    _show(scaling, tables, pe, path, out)


def _show(
    scaling: GroupTemperatureScaling,
    tables: Sequence[AuditTable],
    pe: Sequence[float],
    path: Path,
    out: Path,
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from equipoise._inputs import group_name
    from equipoise.metrics import by_group, overall

    before, after = (by_group(t, "ece") for t in tables)
    rows = dict(zip(tables[0].groups, tables[0]["rows"].astype(int).tolist(), strict=True))
    shown = sorted(rows, key=rows.__getitem__, reverse=True)[:MOST_ROWS]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("group")
    for heading in ("rows", "temperature", "ECE before", "ECE after"):
        table.add_column(heading, justify="right")
    total = (f"{overall(t, 'ece'):.4f}" for t in tables)
    table.add_row("all", f"{sum(rows.values()):,}", "", *total, end_section=True)
    for group in (g for g in rows if g in shown):
        cells = f"{rows[group]:,}", f"{scaling.temperatures_[group]:.4f}"
        name = Text(group_name(group))
        table.add_row(name, *cells, f"{before[group]:.4f}", f"{after[group]:.4f}")
    lines = []
    if len(shown) < len(rows):
        lines.append(("groups", f"{len(rows) - len(shown):,} smaller ones are not shown"))
    if pe:
        lines.append(("PE", f"{pe[0]:.4f} before, {pe[1]:.4f} after (stochastic)"))
    lines += [
        ("common", f"{scaling.temperature_:.4f}, the temperature of --unseen-group global"),
        ("file", str(out)),
    ]
    screen = console()
    heading = f"Fitted to the {sum(rows.values()):,} rows of {path.name}, and measured on the same"
    screen.print(Text(heading, "bold"), soft_wrap=True)
    screen.print(table)
    for what, value in lines:
        screen.print(Text.assemble((f"{what:8}", "dim"), value), soft_wrap=True)


def _apply(
    path: Path,
    temperatures: Path,
    prob: Sequence[str],
    group: Sequence[str],
    unseen_group: Any,
    *,
    replace: bool,
    out: Path,
) -> None:
    from equipoise.cli._stream import Reader, write_batches
    from equipoise.cli._tables import check_ending
    from equipoise.cli._temperatures import Calibration, load

    check_ending(out)
    saved = load(temperatures)
    scaling = saved.scaling
    if unseen_group is not None:
        scaling.unseen_group = unseen_group
    own = prob or saved.prob
    if not own:
        raise click.UsageError(f"{temperatures} does not name the columns; pass --prob and --group")
    size = len(scaling.classes_)
    if len(own) != size and (len(own), size) != (1, 2):
        raise ValueError(
            f"{temperatures} is of {size} classes ({', '.join(map(str, scaling.classes_))}), but "
            f"there are {len(own)} columns of probabilities: {', '.join(own)}"
        )
    reader = Reader(path)
    members = group or saved.group
    if not group and scaling.unseen_group != "error":
        # as for a group that is missing in a row
        members = members if set(members) <= set(reader.names) else ()
    elif not members:
        raise click.UsageError(
            f"{temperatures} does not name the group's columns; pass --group, or --unseen-group "
            "global or mixture"
        )
    calibration = Calibration(reader, scaling, own, members, replace=replace)
    write_batches(out, calibration.schema, calibration.batches())
    if calibration.unseen:
        note(
            f"{calibration.unseen:,} rows are of no group in {temperatures.name}; they are "
            f"calibrated by the policy {scaling.unseen_group!r}"
        )
    click.echo(f"{calibration.rows:,} calibrated rows in {out}")
