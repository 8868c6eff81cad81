"""An audit as HTML, as notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from equipoise._inputs import shown
from equipoise.auditing._render import _lines
from equipoise.metrics import METRICS


def as_html(report: Any) -> str:
    """Return the report as tables and lists of HTML; every name is escaped."""
    metrics = _lines.metrics_of(report)
    head = ["group", "rows", *(METRICS[m].title for m in metrics)]
    rows = []
    for name, count, values, ends in _lines.figures(report):
        cells = [html.escape(name), count]
        for metric in metrics:
            cell = _lines.number(values[metric])
            if metric in ends:
                low, high = (_lines.number(v) for v in ends[metric])
                cell += f"<br><small>{low} to {high}</small>"
            cells.append(cell)
        rows.append(cells)
    lines, hidden = _lines.rate_lines(report)
    shares = [[html.escape(cell) for cell in line] for line in lines]
    notes = [note for note in (_lines.note(report), _lines.left_out(report)) if note]
    parts = [
        f"<p><b>{html.escape(_lines.heading(report))}</b></p>",
        _html_table(head, rows),
        *(f"<p><small>{html.escape(note)}</small></p>" for note in notes),
        "<p><b>Calibration</b></p>",
        _html_list(text for text, _ in _lines.sentences(report)),
        f"<p><b>Proportional equality</b>: {html.escape(_lines.pe_figures(report))}</p>",
        _html_list(_lines.pe_sentences(report)),
        "<p><b>Share of each class</b></p>",
        _html_table(_lines.RATES, shares),
    ]
    if hidden:
        parts.append(f"<p><small>and {hidden:,} more</small></p>")
    lines, hidden = _lines.change_lines(report)
    if lines:
        changes = [[html.escape(cell) for cell in line] for line in lines]
        parts += ["<p><b>Log amplification</b></p>", _html_table(_lines.CHANGES, changes)]
        more = f" And {hidden:,} more." if hidden else ""
        parts.append(f"<p><small>{_lines.CHANGES_NOTE}{more}</small></p>")
    if report.by:
        rows = []
        for key, part in report.by.items():
            figures = [part.overall[m] for m in metrics]
            figures.append(part.proportional_equality["stochastic"])
            cells = [html.escape(shown(key)), f"{int(part.table['rows'].sum()):,}"]
            cells += [*map(_lines.number, figures), html.escape(_lines.failing(part))]
            rows.append(cells)
        top = ["part", *head[1:], "PE", "miscalibrated"]
        parts += ["<p><b>By part</b></p>", _html_table(top, rows)]
    return "<div>" + "\n".join(parts) + "</div>"


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are HTML already, the heads are not."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _html_list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"
