"""What `train` and `search` share: options, the table they read, and what a model is saved with."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import GROUP_HELP, console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.datasets import Dataset, Explained

POSITIVE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)

KINDS = ("number", "category", "text", "date", "drop")
MOST_ROWS = 20
"""Columns up to which each has its own line; of more, the plain ones of a kind share one."""
MANY_MISSING = 0.2
"""Share of missing values from which on a column has its own line."""


def _kinds(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the kind of each column that `--as KIND:COLUMN` names."""
    found: dict[str, str] = {}
    for text in texts:
        kind, colon, name = text.partition(":")
        if not colon or not name:
            raise click.BadParameter(f"{text!r} is not KIND:COLUMN, such as number:income")
        if kind not in KINDS:
            from equipoise._inputs import alternatives

            raise click.BadParameter(f"there is no kind {kind!r}; {alternatives(kind, KINDS)}")
        if found.setdefault(name, kind) != kind:
            raise click.BadParameter(f"column {name!r} is to be both {found[name]} and {kind}")
    return found


COLUMNS = (
    click.option("--label", required=True, help="Column with the label."),
    click.option("--group", required=True, multiple=True, help=GROUP_HELP),
    click.option(
        "--include-group", is_flag=True, help="Use the sensitive columns as features too."
    ),
    click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out."),
    click.option(
        "--as",
        "kinds",
        multiple=True,
        callback=_kinds,
        metavar="KIND:COLUMN",
        help="How to read a column, such as number:income: number, category, text (its words are "
        "hashed), date or drop. By default as its values say, which a table shows.",
    ),
)

learning_rate_option = click.option(
    "--learning-rate", type=POSITIVE, default=1e-3, help="Learning rate of Adam."
)
unseen_group_option = click.option(
    "--unseen-group",
    type=click.Choice(("error", "global", "mixture")),
    default="error",
    help="What predict does with a group that is new, missing or not given.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    help="Seed of the rows held out, the initial weights and the batches.",
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the columns of a table, given to the command as `columns`."""

    @functools.wraps(command)
    def collected(**given: Any) -> Any:
        names = ("label", "group", "include_group", "drop", "kinds")
        return command(columns={name: given.pop(name) for name in names}, **given)

    for option in reversed(COLUMNS):
        collected = option(collected)
    return collected


def own_values(dataset: Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the label and the group of each row, by their own values."""
    from equipoise._inputs import decode

    labels = decode(dataset.y, dataset.class_names)
    return labels, decode(dataset.group, dataset.group_names)


def saved_with(dataset: Dataset, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, Any]:
    """Return what `predict` needs beside a model that was trained on some rows of a table."""
    from equipoise.metrics import group_base_rates

    labels, groups = own_values(dataset)
    counts = group_base_rates(labels[rows], sensitive_features=groups[rows]).counts
    assert counts is not None
    label_counts = [[counts[g][k] for k in dataset.class_names] for g in dataset.group_names]
    assert dataset.encoder is not None  # it was read from a table
    return {"encoder": dataset.encoder.to_dict(), "label_counts": label_counts}


def show_columns(dataset: Dataset) -> None:
    """Print how each column of a table was read, on stderr, beside the result."""
    from rich import box
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from equipoise._inputs import shown

    assert dataset.encoder is not None  # it was read from a table
    rows = len(dataset.y)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for heading in ("column", "read as", "missing"):
        right = heading == "missing"
        table.add_column(heading, no_wrap=True, justify="right" if right else "left")
    table.add_column("", min_width=24, overflow="fold")
    for cells in _lines(dataset.encoder.explained(), rows):
        table.add_row(*map(Text, cells))
    screen = console(stderr=True)
    # a name is never cut or broken: it is there to be copied into an option
    needed = Measurement.get(screen, screen.options.update(width=10_000), table).minimum
    screen.width = max(screen.width, needed)
    screen.print(Text(f"{rows:,} rows of {shown(dataset.title)}, read as", "bold"), soft_wrap=True)
    screen.print(table)
    hint = "To read one in another way: --as KIND:COLUMN; to leave it out: --drop COLUMN."
    screen.print(Text(hint, "dim"), soft_wrap=True)
    screen.print()


def _lines(columns: list[Explained], rows: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each line; of many columns, the plain ones of a kind share one."""
    from equipoise._inputs import counted, shown

    def line(own: Explained) -> tuple[str, str, str, str]:
        option = "--drop " if own.advice == "drop" else f"--as {own.advice}:"
        advice = f"{option}{shown(own.column)}" if own.advice else ""
        detail = "; ".join(filter(None, (own.detail, advice)))
        return shown(own.column), own.read_as, _share(own.missing, rows), detail

    alike: defaultdict[str, list[Explained]] = defaultdict(list)
    alone = []
    for own in columns:
        plain = not own.notable and own.missing < MANY_MISSING * rows
        if own.read_as in ("label", "group"):
            yield line(own)
        elif plain and len(columns) > MOST_ROWS:
            alike[own.read_as].append(own)
        else:
            alone.append(own)
    for kind, found in alike.items():
        missing = _share(max(own.missing for own in found), rows)
        names = ", ".join(shown(own.column) for own in found[:3])
        more = f" and {len(found) - 3:,} more" * (len(found) > 3)
        yield counted(len(found), "column"), kind, missing and f"up to {missing}", names + more
    yield from map(line, alone)


def _share(missing: int, rows: int) -> str:
    if not missing:
        return ""
    share = f"{missing / rows:.0%}" if missing >= 0.01 * rows else "<1%"
    return f"{missing:,} ({share})"
