"""An audit as rich prints it in a terminal, and as plain text."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from equipoise._inputs import shown
from equipoise.auditing._intervals import NO_INTERVALS, Interval
from equipoise.auditing._render import _lines
from equipoise.metrics import METRICS

NAME_WIDTH = 8
"""Fewest characters for the name of a group; a narrower table leaves out metrics."""

FIRST_TO_GO = ("debiased_squared_ece", "mce", "brier")
"""Metrics that a narrow terminal leaves out, in this order; files and HTML have them all."""


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A report as rich prints it, in the width of the terminal."""

    report: Any

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _parts(self.report, options.max_width)


def _parts(report: Any, width: int) -> list[RenderableType]:
    metrics = _fitting(report, width)
    parts: list[RenderableType] = [Text(_lines.heading(report), "bold"), _metrics(report, metrics)]
    hidden = ", ".join(METRICS[m].title for m in report.overall if m not in metrics)
    narrow = f"Not shown, the terminal is too narrow: {hidden}" if hidden else ""
    notes = (_lines.note(report), narrow, _lines.left_out(report))
    parts += [Text(note, "dim") for note in notes if note]
    parts += [
        Text(""),
        Text("Calibration", "bold"),
        _list(_styled(*s) for s in _lines.sentences(report)),
    ]
    title = ("Proportional equality", "bold")
    parts += [Text(""), Text.assemble(title, f": {_lines.pe_figures(report)}")]
    parts.append(_list(Text(s) for s in _lines.pe_sentences(report)))
    parts += [Text(""), Text("Share of each class", "bold")]
    parts.append(_listed(_lines.RATES, *_lines.rate_lines(report)))
    if len(report.groups) > 1:
        parts += [Text(""), Text("Log amplification", "bold")]
        parts.append(_listed(_lines.CHANGES, *_lines.change_lines(report)))
        parts.append(Text(_lines.CHANGES_NOTE, "dim"))
    return parts


def _fitting(report: Any, width: int) -> list[str]:
    """Return the metrics whose columns fit beside the group's name and rows."""
    metrics = _lines.metrics_of(report)
    last = "classwise_ece" if len(report.table.labels) > 2 else "ece"
    rows = max(len(line[1]) for line in _lines.figures(report))
    for gone in (None, *FIRST_TO_GO, last):
        metrics = [m for m in metrics if m != gone]
        # two spaces between columns; figures have six characters, infinite log-loss less
        columns = [NAME_WIDTH, rows, *(max(6, len(METRICS[m].title)) for m in metrics)]
        if sum(columns) + 2 * (len(columns) - 1) <= width:
            break
    return metrics


def _table(columns: Sequence[tuple[str, bool]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for name, right in columns:
        if right:
            table.add_column(Text(name), justify="right", no_wrap=True)
        else:
            table.add_column(Text(name), overflow="fold", min_width=8)
    return table


def _metrics(report: Any, metrics: Sequence[str]) -> Table:
    titles = [(METRICS[m].title, True) for m in metrics]
    table = _table([("group", False), ("rows", True), *titles])
    lines = _lines.figures(report)
    for i, (name, rows, values, ends) in enumerate(lines):
        known = any(m in ends for m in values)
        cells = [Text.assemble(rows, ("\nlow\nhigh" if known else "", "dim"))]
        for metric in metrics:
            cell = Text(_lines.number(values[metric]))
            if known:
                cell.append("".join(f"\n{_lines.number(v)}" for v in ends[metric]), "dim")
            cells.append(cell)
        last = i == 0 or (bool(report.gaps) and i == len(lines) - 2)
        table.add_row(Text(name), *cells, end_section=last)
    return table


def _styled(text: str, style: str) -> Text:
    line = Text(text)
    for word in _lines.STYLES:
        at = text.find(f": {word}")
        if at >= 0:
            line.stylize(style, at + 2, at + 2 + len(word))
            break
    return line


def _list(lines: Iterable[Text]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", line)
    return grid


def _listed(columns: Sequence[str], lines: Iterable[Sequence[str]], hidden: int) -> Table:
    table = _table([(name, name not in ("class", "group")) for name in columns])
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    if hidden:
        table.caption = Text(f"and {hidden:,} more; --json has all")
        table.caption_justify = "left"
    return table


def _side_by_side(heading: str, found: Mapping[Any, Any]) -> Table:
    """Return a table with one line for each report."""
    first = next(iter(found.values()))
    calibration = _lines.metrics_of(first)[0] if len(first.table.labels) == 2 else "ece"
    title = METRICS[calibration].title
    titles = ("rows", "accuracy", title, f"{title} gap", "PE")
    columns = [(heading, False), *((name, True) for name in titles), ("miscal.", False)]
    table = _table(columns)
    for key, report in found.items():
        sure = report.intervals or NO_INTERVALS
        pe = report.proportional_equality["stochastic"]
        table.add_row(
            Text(shown(key)),
            f"{int(report.table['rows'].sum()):,}",
            _lines.number(report.overall["accuracy"]),
            _judged(report.overall[calibration], sure.overall.get(calibration)),
            _judged(report.gaps.get(calibration, math.nan), sure.gaps.get(calibration)),
            _judged(pe, sure.proportional_equality.get("stochastic")),
            Text(_lines.failing(report)),
        )
    return table


def _judged(value: float, ends: Interval | None) -> Text:
    text = Text(_lines.number(value))
    if ends is not None and not math.isnan(ends.low):
        text.append(f"\n{ends.low:.3f}-{ends.high:.3f}", "dim")
    return text


def with_parts(report: Any, heading: str = "part") -> RenderableType:
    """Return a report, and a table of its parts."""
    if not report.by:
        return Rendered(report)
    table = _side_by_side(heading, report.by)
    return Group(Rendered(report), Text(f"\nBy {heading}", "bold"), table)


def all_models(reports: Mapping[str | None, Any], by: Sequence[str]) -> RenderableType:
    """Return the reports of several models, each with its parts, and a summary."""
    lines: list[RenderableType] = []
    for i, (model, report) in enumerate(reports.items()):
        if model is not None:
            lines.append(Text("\n" * (i > 0)).append(shown(model), "bold reverse"))
        lines.append(with_parts(report, ", ".join(map(shown, by))))
    if len(reports) > 1:
        lines += [Text("\nAll models", "bold"), _side_by_side("model", reports)]
    return Group(*lines)


def as_text(report: RenderableType) -> str:
    """Return what rich prints, as text."""
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(report)
    return out.getvalue()
