"""An audit as HTML, as notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from equipoise._inputs import shown
from equipoise.auditing._render._lines import (
    RATES,
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
