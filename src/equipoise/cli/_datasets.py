"""`equipoise datasets`: list the datasets, or show one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from equipoise.cli._shared import console

if TYPE_CHECKING:
    from rich.table import Table

    from equipoise.datasets import Entry


@click.command()
@click.argument("name", required=False)
@click.option("--fetch", is_flag=True, help="With NAME: download its files if need be.")
def datasets(name: str | None, fetch: bool) -> None:
    """List the datasets, or show the one called NAME."""
    if name is not None:
        _show_dataset(name, fetch=fetch)
    elif fetch:
        raise click.UsageError("--fetch needs the NAME of a dataset")
    else:
        _list_datasets()


def _rate(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _list_datasets() -> None:
    from rich.text import Text

    from equipoise.datasets import ENTRIES, ENVIRONMENT, cache_dir

    out = console()
    # in one table the longer names of the others would not leave room for the paper's figures
    for of_paper in (True, False):
        out.print(_table({n: e for n, e in ENTRIES.items() if bool(e.paper) == of_paper}))
    out.print(
        Text(
            " A: the sensitive group. In brackets: the paper's Table 2, whose sizes are the same.\n"
            f" Cache: {cache_dir()}. A local folder instead: {ENVIRONMENT}."
        ),
        soft_wrap=True,
    )


def _table(entries: dict[str, Entry]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from equipoise.datasets import state

    # 77 characters wide: fits a terminal of 80
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    headings = ("\nPr[A=1]", "Pr[Y=1\n|A=0]", "Pr[Y=1\n|A=1]")
    for heading in ("\ndataset", "\nrows", "\ncolumns", *headings, "\ndata"):
        left = heading in ("\ndataset", "\ndata")
        table.add_column(Text(heading), justify="left" if left else "right", no_wrap=True)
    for name, entry in entries.items():
        ours, paper = entry.statistics, entry.paper
        cells = [f"{ours.columns}", *map(_rate, (ours.share, *ours.rates))]
        theirs = [""] * 4
        if paper:
            rates = (f" ({r:.2f})".replace("0.", ".") for r in (paper.share, *paper.rates))
            theirs = [f" ({paper.columns})", *rates]
        beside = (Text.assemble(a, (b, "dim")) for a, b in zip(cells, theirs, strict=True))
        table.add_row(Text(name, "bold"), f"{ours.rows:,}", *beside, state(name))
    return table


def _show_dataset(name: str, *, fetch: bool) -> None:
    from rich.text import Text

    from equipoise.datasets import FILES, entry_of, load, state

    entry = entry_of(name)
    features = "listed once the data is here (--fetch)"
    if fetch or state(name) in ("local folder", "cached", "carried"):
        features = _summary(load(name).feature_names)
    ours = entry.statistics
    lines = [
        ("rows", f"{ours.rows:,}"),
        ("columns", f"{ours.columns}"),
        ("features", features),
        *_meanings(name, entry),
        ("note", entry.note),
        ("data", state(name)),
    ]
    for file in (FILES[f] for f in entry.files):
        lines += [
            ("", ""),
            ("file", file.name),
            ("source", file.citation),
            ("licence", file.licence),
            ("address", file.origin),
            ("SHA-256", file.sha256),
        ]
    out = console()
    out.print(Text(f"{entry.title} ({name})", "bold"))
    for label, value in lines:
        # not wrapped: addresses and checksums are there to be copied
        out.print(Text.assemble((f"{label:9}", "dim"), value), soft_wrap=True)


def _meanings(name: str, entry: Entry) -> list[tuple[str, str]]:
    ours = entry.statistics
    lines = [("classes", f"Y=0: {entry.classes[0]}; Y=1: {entry.classes[1]}")]
    for i, (group, names) in enumerate(entry.groups.items()):
        line = "; ".join([group, *(f"A={a}: {name}" for a, name in enumerate(names))])
        if i == 0:
            rates = f"Pr[Y=1|A=0] = {_rate(ours.rates[0])}, Pr[Y=1|A=1] = {_rate(ours.rates[1])}"
            line += f"; Pr[A=1] = {_rate(ours.share)}, {rates}"
        else:
            line += f'; load("{name}", group="{group}")'
        lines.append(("group", line))
    return lines


def _summary(names: tuple[str, ...]) -> str:
    """Name the features; one-hot columns once, with their number."""
    counts = Counter(name.split("=")[0] for name in names)
    return ", ".join(f"{f} ({k} values)" if k > 1 else f for f, k in counts.items())
