"""An audit in words and tables, for the terminal and for notebooks.

The reports come from the layer above, so their class is not named here.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.inputs import to_plain
from equipoise.metrics import METRICS
from equipoise.verdicts import shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from equipoise.intervals import Interval

MOST_GROUPS = 100
"""Groups shown; of more, those with the largest gaps."""

MOST_LINES = 40
"""Lines of rates shown."""

NAME_WIDTH = 8
"""Characters that the name of a group has at least before its table gives up metrics for room."""

FIRST_TO_GO = ("debiased_squared_ece", "mce", "classwise_ece", "brier")
"""Metrics that a narrow terminal does without, in this order; files and HTML have them all."""

STYLES = {"calibrated": "green", "miscalibrated": "red", "not enough evidence": "yellow"}


def note(report: Any) -> str:
    """Return what the intervals mean."""
    return (
        f"low and high: {100 * report.level:.4g}% intervals of the true value. ECE and MCE grow as "
        "rows get fewer, so a figure may lie above its own interval: then it is mostly noise. Gaps "
        "are without that bias."
    )


def number(value: float) -> str:
    """Return a figure to four digits; a dash where there is none."""
    # adding 0 takes the sign off a zero
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


def counted(count: int, what: str) -> str:
    """Return a number of things, in the plural where it is one."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def heading(report: Any) -> str:
    """Return what was measured."""
    table = report.table
    parts = [
        counted(int(table["rows"].sum()), "row"),
        counted(len(table.groups), "group"),
        f"{len(table.labels)} classes",
        counted(table.n_bins, "bin"),
    ]
    if report.dropped:
        parts.append(f"{counted(report.dropped, 'row')} left out, a value being missing")
    return ", ".join(parts)


def chosen_groups(report: Any) -> list[Hashable]:
    """Return the groups to show: all, or of very many those with the largest gaps."""
    groups = list(report.groups)
    if len(groups) <= MOST_GROUPS:
        return groups
    square = np.array([report.groups[g]["debiased_squared_ece"] for g in groups])
    worst = np.argsort(-np.nan_to_num(square, nan=-1.0), kind="stable")[:MOST_GROUPS]
    return [groups[i] for i in sorted(worst.tolist())]


def left_out(report: Any) -> str:
    """Return how many groups are not shown, if any."""
    hidden = len(report.groups) - len(chosen_groups(report))
    said = f"{hidden:,} groups with smaller gaps are not shown; to_frame() and --json have all."
    return said * bool(hidden)


def figures(report: Any) -> list[tuple[str, str, Mapping[str, float], Mapping[str, Any]]]:
    """Return name, rows, values and intervals of each line of the table of metrics."""
    counts = dict(zip(report.table.groups, report.table["rows"].tolist(), strict=True))
    intervals = report.intervals
    total = f"{int(sum(counts.values())):,}"
    lines = [("overall", total, report.overall, {} if intervals is None else intervals.overall)]
    for g in chosen_groups(report):
        ends = {} if intervals is None else intervals.groups[g]
        lines.append((shown(g), f"{int(counts[g]):,}", report.groups[g], ends))
    if report.gaps:
        ends = {} if intervals is None else intervals.gaps
        lines.append(("largest gap", "", report.gaps, ends))
    return lines


def sentences(report: Any) -> list[tuple[str, str]]:
    """Return the verdicts and comparisons, each with the style of its word."""
    found = [(report.verdict.text, STYLES[report.verdict.word])]
    if len(report.groups) > 1:
        found += [
            (report.verdicts[g].text, STYLES[report.verdicts[g].word])
            for g in chosen_groups(report)
        ]
    clear = [c for c in report.comparisons if c.p_value < 1.0 - report.level]
    found += [(c.text, "red") for c in clear[:MOST_LINES]]
    rest = len(report.comparisons) - len(clear)
    if rest:
        pairs = "the two groups" if len(report.comparisons) == 1 else counted(rest, "pair")
        of = "" if len(report.comparisons) == 1 else " of groups"
        found.append((f"For {pairs}{of}: no evidence that one is better calibrated.", ""))
    return found


def pe_figures(report: Any) -> str:
    """Return the values of proportional equality with their intervals."""
    found = []
    intervals = {} if report.intervals is None else report.intervals.proportional_equality
    for kind, value in report.proportional_equality.items():
        text = f"{kind} undefined" if math.isnan(value) else f"{number(value)} {kind}"
        if kind in intervals and not math.isnan(value + intervals[kind].low):
            low, high = (number(v) for v in intervals[kind])
            text += f" ({low} to {high})"
        found.append(text)
    return ", ".join(found)


def pe_sentences(report: Any) -> list[str]:
    """Return the findings on proportional equality."""
    found: dict[str, list[str]] = {}
    for kind, verdict in report.pe_verdicts.items():
        text = verdict.text[0].lower() + verdict.text[1:]
        found[text] = [*found.get(text, []), kind]
    lines = [f"{', '.join(kinds)}: {text}" for text, kinds in found.items()]
    oracle = next((v.oracle for v in report.pe_verdicts.values()), math.nan)
    if not math.isnan(oracle):
        own = "the rates are those of these labels"
        given = f"against the given rates the labels themselves score {number(oracle)}"
        lines.append(f"0 is best; {own if report.own_rates else given}.")
    return lines


def rate_lines(report: Any) -> tuple[list[tuple[str, ...]], int]:
    """Return the lines of the table of rates, and how many there are beyond them."""
    labels = report.table.labels
    # of two classes the second says it all
    labels = labels[1:] if len(labels) == 2 else labels
    lines = [
        (shown(k), shown(g), *(number(report.rates[g][kind][k]) for kind in report.rates[g]))
        for k in labels
        for g in chosen_groups(report)
    ]
    everything = len(report.groups) * len(labels)
    lines = lines[:MOST_LINES]
    return lines, everything - len(lines)


RATES = ("class", "group", "labels", "model", "decisions")
"""Columns of the table of rates."""


# --- the terminal ----------------------------------------------------------------------------


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


def by_table(report: Any) -> Table:
    """Return the metrics of each part of the rows as one table."""
    from rich.text import Text

    table = _table(
        [
            ("part", False),
            *((name, True) for name in ("rows", "accuracy", "ECE", "ECE gap", "Brier", "PE")),
            ("verdict", False),
        ]
    )
    for key, part in report.by.items():
        table.add_row(
            Text(shown(key)),
            f"{int(part.table['rows'].sum()):,}",
            *(number(part.overall[m]) for m in ("accuracy", "ece")),
            number(part.gaps.get("ece", float("nan"))),
            number(part.overall["brier"]),
            number(part.proportional_equality["stochastic"]),
            Text(part.verdict.word, STYLES[part.verdict.word]),
        )
    return table


def plain(report: Any) -> str:
    """Return the report as text."""
    import io

    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=120, color_system=None)
    console.print(Rendered(report))
    if report.by:
        console.print("\n", by_table(report), sep="")
    return out.getvalue()


# --- notebooks -------------------------------------------------------------------------------


def as_html(report: Any) -> str:
    """Return the report as tables and lists of HTML; every name is escaped."""
    head = ["group", "rows", *(METRICS[m].title for m in report.overall)]
    rows = []
    for name, count, values, ends in figures(report):
        cells = [html.escape(name), count]
        for metric, value in values.items():
            cell = number(value)
            if metric in ends:
                low, high = (number(v) for v in ends[metric])
                cell += f"<br><small>{low} to {high}</small>"
            cells.append(cell)
        rows.append(cells)
    lines, hidden = rate_lines(report)
    shares = [[html.escape(cell) for cell in line] for line in lines]
    parts = [
        f"<p><b>{html.escape(heading(report))}</b></p>",
        _html_table(head, rows),
        f"<p><small>{html.escape(note(report))}</small></p>"
        if report.intervals is not None
        else "",
        f"<p><small>{left_out(report)}</small></p>" if left_out(report) else "",
        "<p><b>Calibration</b></p>",
        _html_list(text for text, _ in sentences(report)),
        f"<p><b>Proportional equality</b>: {html.escape(pe_figures(report))}</p>",
        _html_list(pe_sentences(report)),
        "<p><b>Share of each class</b></p>",
        _html_table(RATES, shares),
        f"<p><small>and {hidden:,} more</small></p>" if hidden else "",
    ]
    if report.by:
        parts.append("<p><b>By part</b></p>")
        parts.append(
            _html_table(
                ["part", "rows", *(METRICS[m].title for m in report.overall), "PE"],
                [
                    [
                        html.escape(shown(key)),
                        f"{int(part.table['rows'].sum()):,}",
                        *(number(v) for v in part.overall.values()),
                        number(part.proportional_equality["stochastic"]),
                    ]
                    for key, part in report.by.items()
                ],
            )
        )
    return "<div>" + "\n".join(part for part in parts if part) + "</div>"


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are HTML already, the heads are not."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _html_list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"


# --- files -----------------------------------------------------------------------------------


def as_plain(report: Any) -> dict[str, Any]:
    """Return figures, intervals, verdicts and sums as plain values, ready for strict JSON."""
    sure = report.intervals
    rows = dict(zip(report.table.groups, report.table["rows"].astype(int).tolist(), strict=True))
    return {
        "format": "equipoise.AuditReport/1",
        "rows": sum(rows.values()),
        "dropped": report.dropped,
        "level": report.level,
        "tolerance": report.tolerance,
        "intervals": None if sure is None else sure.source,
        "overall": _figures(report.overall, None if sure is None else sure.overall),
        "verdict": _plain(dataclasses.asdict(report.verdict)),
        "groups": [
            {
                "group": to_plain(g),
                "rows": rows[g],
                "metrics": _figures(values, None if sure is None else sure.groups[g]),
                "rates": {
                    kind: [
                        {
                            "label": to_plain(k),
                            **_figure(v, None if sure is None else sure.rates[g][kind][k]),
                        }
                        for k, v in shares.items()
                    ]
                    for kind, shares in report.rates[g].items()
                },
                "verdict": _plain(dataclasses.asdict(report.verdicts[g])),
            }
            for g, values in report.groups.items()
        ],
        "gaps": _figures(report.gaps, None if sure is None else sure.gaps),
        "comparisons": [_plain(dataclasses.asdict(c)) for c in report.comparisons],
        "proportional_equality": {
            kind: _plain(dataclasses.asdict(report.pe_verdicts[kind]))
            if kind in report.pe_verdicts
            else {"value": _plain(value)}
            for kind, value in report.proportional_equality.items()
        },
        "own_rates": report.own_rates,
        "table": report.table.to_dict(),
        "by": [{"key": to_plain(key), "report": as_plain(r)} for key, r in report.by.items()],
    }


def _plain(value: Any) -> Any:
    """Turn a figure, or what holds figures, into what strict JSON holds."""
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return to_plain(value)


def _figure(value: float, ends: Interval | None) -> dict[str, Any]:
    return {"value": _plain(value), "interval": None if ends is None else _plain(tuple(ends))}


def _figures(
    values: Mapping[str, float], ends: Mapping[str, Interval] | None
) -> dict[str, dict[str, Any]]:
    return {
        name: _figure(v, None if ends is None else ends.get(name)) for name, v in values.items()
    }
