"""Tables as Markdown, CSV and rich text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equipoise.paper._tables._table import SPAN, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def shown_value(value: Any, digits: int = 3) -> str:
    """Return a value as text, rounded; a dash where there is none.

    Examples
    --------
    >>> shown_value(0.14159), shown_value(1234), shown_value((1.0, -2.5), 2), shown_value(None)
    ('0.142', '1234', '[1.00, -2.50]', '-')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, tuple):
        return f"[{', '.join(shown_value(v, digits) for v in value)}]"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def shown_rows(table: Table) -> list[list[str]]:
    """Return the rows as text: percentages and their intervals with two digits, others three."""
    digits: list[int] = []
    for name in table.header:
        percent = name.startswith("%") or name.endswith("%")
        # an interval has the digits of the value before it
        digits.append(digits[-1] if name.endswith(SPAN) else 2 if percent else 3)
    return [[shown_value(v, d) for v, d in zip(row, digits, strict=True)] for row in table.rows]


def markdown(table: Table) -> str:
    """Return the table in Markdown, under its title and above its notes."""
    rows = shown_rows(table)
    lines = ["| " + " | ".join(escaped(v) for v in row) + " |" for row in (table.header, *rows)]
    lines.insert(1, "|" + "---|" * len(table.header))
    notes = [line for note in table.notes for line in ("", escaped(note))]
    return "\n".join([f"### {table.title}", "", *lines, *notes]) + "\n"


def as_csv(table: Table) -> str:
    """Return the table as CSV, with all digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.header)
    for row in table.rows:
        writer.writerow([_plain(v) for v in row])
    return out.getvalue()


def rich_table(table: Table, title: str, notes: Sequence[str], width: int) -> RichTable:
    """Return the table for a terminal of some width, above some of its notes.

    It is printed by a console without markup.
    """
    from rich import box
    from rich.table import Table as RichTable

    found = RichTable(
        title=title,
        caption=" ".join(notes) or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        caption_style="dim",
        padding=(0, 1, 0, 0),
    )
    narrow = table.narrow or [(h, f"{{{i}}}") for i, h in enumerate(table.header)]
    rows = [[form.format(*row) for _, form in narrow] for row in shown_rows(table)]
    longest = [
        max(len(word) for text in column for word in text.split())
        for column in zip([name for name, _ in narrow], *rows, strict=True)
    ]
    # words stay whole where there is room for that; no digit is ever cut off
    room = sum(longest) + 2 * len(longest) <= width
    for (name, _), least in zip(narrow, longest, strict=True):
        found.add_column(name, overflow="fold", min_width=least if room else None)
    for row in rows:
        found.add_row(*row)
    return found


def escaped(text: str) -> str:
    """Escape Markdown's special characters."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(str(_plain(v)) for v in value)
    return repr(float(value)) if isinstance(value, float) else value
