"""An audit in the terminal, in the width that there is, and as plain text."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise._inputs import shown
from equipoise.auditing._render._lines import (
    RATES,
    STYLES,
    figures,
    heading,
    left_out,
    note,
    number,
    pe_figures,
    pe_sentences,
    rate_lines,
    sentences,
)
from equipoise.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from equipoise.auditing._intervals._figures import Interval

NAME_WIDTH = 8
"""Characters that the name of a group has at least before its table gives up metrics for room."""

FIRST_TO_GO = ("debiased_squared_ece", "mce", "classwise_ece", "brier")
"""Metrics that a narrow terminal does without, in this order; files and HTML have them all."""


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A report as rich prints it, in the width that there is."""

    report: Any

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _parts(self.report, options.max_width)


def _parts(report: Any, width: int) -> list[RenderableType]:
    from rich.text import Text

    metrics = _fitting(report, width)
    parts: list[RenderableType] = [Text(heading(report), "bold"), _metrics(report, metrics)]
    if report.intervals is not None:
        parts.append(Text(note(report), "dim"))
    hidden = [METRICS[m].title for m in report.overall if m not in metrics]
    if hidden:
        parts.append(Text(f"Not shown for want of room: {', '.join(hidden)}", "dim"))
    if left_out(report):
        parts.append(Text(left_out(report), "dim"))
    parts += [Text(""), Text("Calibration", "bold"), _list(_styled(*s) for s in sentences(report))]
    title = ("Proportional equality", "bold")
    parts += [Text(""), Text.assemble(title, f": {pe_figures(report)}")]
    parts.append(_list(Text(s) for s in pe_sentences(report)))
    parts += [Text(""), Text("Share of each class", "bold"), _rates(report)]
    return parts


def _fitting(report: Any, width: int) -> list[str]:
    """Return the metrics whose columns fit beside the group's name and rows."""
    metrics = list(report.overall)
    rows = max(len(line[1]) for line in figures(report))
    for gone in (None, *FIRST_TO_GO):
        metrics = [m for m in metrics if m != gone]
        # two spaces between columns; figures have six characters, infinite log-loss less
        columns = [NAME_WIDTH, rows, *(max(6, len(METRICS[m].title)) for m in metrics)]
        if sum(columns) + 2 * (len(columns) - 1) <= width:
            break
    return metrics


def _table(columns: Sequence[tuple[str, bool]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for name, right in columns:
        if right:
            table.add_column(Text(name), justify="right", no_wrap=True)
        else:
            table.add_column(Text(name), overflow="fold", min_width=8)
    return table


def _metrics(report: Any, metrics: Sequence[str]) -> Table:
    from rich.text import Text

    table = _table([("group", False), ("rows", True), *((METRICS[m].title, True) for m in metrics)])
    lines = figures(report)
    for i, (name, rows, values, ends) in enumerate(lines):
        known = any(m in ends for m in values)
        cells = [Text.assemble(rows, ("\nlow\nhigh" if known else "", "dim"))]
        for metric in metrics:
            cell = Text(number(values[metric]))
            if known:
                cell.append("".join(f"\n{number(v)}" for v in ends[metric]), "dim")
            cells.append(cell)
        last = i == 0 or (bool(report.gaps) and i == len(lines) - 2)
        table.add_row(Text(name), *cells, end_section=last)
    return table


def _styled(text: str, style: str) -> Text:
    from rich.text import Text

    line = Text(text)
    for word in STYLES:
        at = text.find(f": {word}")
        if at >= 0:
            line.stylize(style, at + 2, at + 2 + len(word))
            break
    return line


def _list(lines: Iterable[Text]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", line)
    return grid


def _rates(report: Any) -> Table:
    from rich.text import Text

    lines, hidden = rate_lines(report)
    table = _table([(name, name not in ("class", "group")) for name in RATES])
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    if hidden:
        table.caption = Text(f"and {hidden:,} more; `rates` and --json have all")
        table.caption_justify = "left"
    return table


def side_by_side(heading: str, found: Mapping[Any, Any]) -> Table:
    """Return a table with a line for each report, and intervals of what is judged."""
    from rich.text import Text

    titles = ("rows", "accuracy", "ECE", "ECE gap", "PE", "miscal.")
    table = _table([(heading, False), *((title, True) for title in titles)])
    for key, report in found.items():
        sure = report.intervals
        known = sure is not None
        pe = report.proportional_equality["stochastic"]
        wrong = sum(v.word == "miscalibrated" for v in report.verdicts.values())
        table.add_row(
            Text(shown(key)),
            f"{int(report.table['rows'].sum()):,}",
            number(report.overall["accuracy"]),
            _judged(report.overall["ece"], sure.overall["ece"] if known else None),
            _judged(report.gaps.get("ece", math.nan), sure.gaps.get("ece") if known else None),
            _judged(pe, sure.proportional_equality.get("stochastic") if known else None),
            f"{wrong} of {len(report.verdicts)}",
        )
    return table


def _judged(value: float, ends: Interval | None) -> Text:
    from rich.text import Text

    text = Text(number(value))
    if ends is not None and not math.isnan(ends.low):
        text.append(f"\n{ends.low:.3f}-{ends.high:.3f}", "dim")
    return text


def with_parts(report: Any, heading: str = "part") -> RenderableType:
    """Return a report, and a table of its parts."""
    from rich.console import Group
    from rich.text import Text

    if not report.by:
        return Rendered(report)
    table = side_by_side(heading, report.by)
    return Group(Rendered(report), Text(f"\nBy {heading}", "bold"), table)


def all_models(reports: Mapping[str | None, Any], by: Sequence[str]) -> RenderableType:
    """Return the reports of several models below each other, each with its parts, and a summary."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = []
    for i, (model, report) in enumerate(reports.items()):
        if model is not None:
            lines.append(Text("\n" * (i > 0)).append(shown(model), "bold reverse"))
        lines.append(with_parts(report, ", ".join(map(shown, by))))
    if len(reports) > 1:
        lines += [Text("\nAll models", "bold"), side_by_side("model", reports)]
    return Group(*lines)


def as_text(report: RenderableType) -> str:
    """Return what rich prints, as text."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(report)
    return out.getvalue()
