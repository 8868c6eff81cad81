"""What `equipoise calibrate` prints of a repair: each group before and after, and verdicts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from equipoise._inputs import shown
from equipoise.auditing import AuditReport, Interval
from equipoise.calibration import METHODS, FileCalibration, GroupCalibrator

MOST_GROUPS = 20
"""Most groups that the table shows."""


def print_repair(
    screen: Console,
    name: str,
    fitted: FileCalibration,
    reports: Sequence[AuditReport],
    out: Path,
) -> None:
    """Print a repair of the file `name` that was written to `out`; reports before and after."""
    before, after = reports
    assert fitted.measured is not None
    screen.print(Text(f"Repair of {name}, measured {fitted.measured.how}", "bold"), soft_wrap=True)
    screen.print(_table(fitted, before, after))
    for what, value in _lines(fitted, before, after, out):
        screen.print(Text.assemble((f"{what:8}", "dim"), value), soft_wrap=True)


def _table(fitted: FileCalibration, before: AuditReport, after: AuditReport) -> Table:
    """Return class ECE and log-loss with intervals, before and after, of all rows and groups."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("group", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("")
    for heading in ("class ECE", "log-loss"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = dict(zip(before.table.groups, before.table["rows"].astype(int).tolist(), strict=True))
    largest = sorted(rows, key=rows.__getitem__, reverse=True)[:MOST_GROUPS]
    assert fitted.measured is not None
    gains = fitted.measured.gains
    for group in (None, *(g for g in rows if g in largest)):
        name, count = shown(group), rows[group] if group in rows else sum(rows.values())
        name = "all rows" if group is None else name
        figures = [_figures(report, group) for report in (before, after)]
        table.add_row(Text(name), f"{count:,}", "before", *map(_cell, figures[0]))
        table.add_row("", "", "after", *map(_cell, figures[1]))
        gain = gains[group]
        change = -gain.mean, Interval(-gain.high, -gain.low)
        moved = figures[1][0][0] - figures[0][0][0]
        table.add_row("", "", "change", _number(moved, "+"), _cell(change, "+"), end_section=True)
    return table


def _figures(report: AuditReport, group: Hashable) -> list[tuple[float, Interval]]:
    """Return class ECE and log-loss, each with its interval."""
    assert report.intervals is not None
    values = report.overall if group is None else report.groups[group]
    ends = report.intervals.overall if group is None else report.intervals.groups[group]
    return [(values[name], ends[name]) for name in ("classwise_ece", "log_loss")]


def _cell(figure: tuple[float, Interval], sign: str = "") -> str:
    value, *ends = (_number(v, sign) for v in (figure[0], figure[1].low, figure[1].high))
    return f"{value} ({', '.join(ends)})"


def _number(value: float, sign: str) -> str:
    text = f"{value:{sign}.4f}"
    return text if float(text) else text.lstrip("+-")  # no sign before a zero


def _lines(
    fitted: FileCalibration, before: AuditReport, after: AuditReport, out: Path
) -> list[tuple[str, str]]:
    measured, calibrator = fitted.measured, fitted.calibrator
    assert measured is not None
    assert isinstance(calibrator, GroupCalibrator)
    lines = []
    measured_on = int(before.table["rows"].sum())
    if fitted.rows != measured_on:
        lines.append(("rows", f"fitted to {fitted.rows:,}, measured on {measured_on:,}"))
    if len(before.groups) > MOST_GROUPS:
        lines.append(("groups", f"{len(before.groups) - MOST_GROUPS:,} smaller ones are not shown"))
    if calibrator.selection_ is not None:
        lines.append(("method", calibrator.selection_.text))
    else:
        lines.append(("method", f"{METHODS[calibrator.method_].text}"))
    if calibrator.method_ != "none":
        lines.append(("verdict", measured.text))
    for when, report in (("before", before), ("after", after)):
        lines.append((when, _calibrated(report)))
    if len(before.groups) > 1:
        pe = [r.proportional_equality["stochastic"] for r in (before, after)]
        how = f"stochastic, compared with group {shown(before.reference_group)}"
        lines.append(("PE", f"{pe[0]:.4f} before, {pe[1]:.4f} after ({how})"))
        for when, report in (("before", before), ("after", after)):
            lines.append(("", _amplification(report, when)))
    if fitted.note:
        lines.append(("note", fitted.note))
    lines.append(("file", str(out)))
    return lines


def _calibrated(report: AuditReport) -> str:
    """Return which groups are calibrated, in words."""
    words = {group: verdict.word for group, verdict in report.verdicts.items()}
    said = [
        f"{word}: {_some([repr(shown(g)) for g, w in words.items() if w == word])}"
        for word in dict.fromkeys(words.values())
    ]
    return f"{'; '.join(said)} (within {report.tolerance:g}, every class)"


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + rest


def _amplification(report: AuditReport, when: str) -> str:
    """Return the largest log amplification in words."""
    found = [
        (a, group, label)
        for group, own in report.amplification["stochastic"].items()
        for label, a in own.items()
    ]
    a, group, label = max(found, key=lambda item: abs(item[0].value))
    return (
        f"largest log amplification {when}: {a.value:+.3f} ({a.low:+.3f}, {a.high:+.3f}), label "
        f"{shown(label)} in group {shown(group)}"
    )
