"""The words and lines of an audit that every rendering shares."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from equipoise._inputs import counted, shown
from equipoise.auditing._intervals import NO_INTERVALS

MOST_GROUPS = 100
"""Most groups shown; of more, those with the largest gaps."""

MOST_LINES = 40
"""Most lines shown of rates and of comparisons."""

STYLES = {"calibrated": "green", "miscalibrated": "red", "not enough evidence": "yellow"}


def note(report: Any) -> str:
    """Return the explanation of the intervals, if there are any."""
    if report.intervals is None:
        return ""
    said = f"Below each figure: its {100 * report.level:.4g}% interval"
    if report.intervals.comparisons > 1 or report.share < 1:
        groups = counted(len(report.groups), "group")
        said += f", widened so that those of all rows and of the {groups} hold together"
        said += ", in every part too" * (report.share < 1)
    said += ". Gaps are corrected for the bias that makes the ECE of few rows look larger."
    return said


def metrics_of(report: Any) -> list[str]:
    """Return the metrics in the order of the table: of two classes, the class ECE first."""
    names = list(report.overall)
    if len(report.table.labels) == 2:
        names.sort(key=lambda name: name != "classwise_ece")
    return names


def number(value: float) -> str:
    """Return a figure to four digits; a dash where there is none."""
    # adding 0 takes the sign off a zero
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


def heading(report: Any) -> str:
    """Return the numbers of rows, groups, classes and bins."""
    table = report.table
    parts = [
        counted(int(table["rows"].sum()), "row"),
        counted(len(table.groups), "group")
        + (f" (reference: {_reference(report)})" if len(table.groups) > 1 else ""),
        f"{len(table.labels)} classes",
        counted(table.n_bins, "bin"),
    ]
    if report.dropped:
        parts.append(f"{counted(report.dropped, 'row')} left out (a value is missing)")
    return ", ".join(parts)


def _reference(report: Any) -> str:
    every = report.reference_group == "all" and "all" not in report.table.groups
    return "every other" if every else shown(report.reference_group)


def chosen_groups(report: Any) -> list[Hashable]:
    """Return the groups to show."""
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
    return said if hidden else ""


def figures(report: Any) -> list[tuple[str, str, Mapping[str, float], Mapping[str, Any]]]:
    """Return name, rows, values and intervals of each line of the table of metrics."""
    counts = dict(zip(report.table.groups, report.table["rows"].tolist(), strict=True))
    sure = report.intervals or NO_INTERVALS
    lines = [("overall", f"{int(sum(counts.values())):,}", report.overall, sure.overall)]
    lines += [
        (shown(g), f"{int(counts[g]):,}", report.groups[g], sure.groups.get(g, {}))
        for g in chosen_groups(report)
    ]
    if report.gaps:
        lines.append(("largest gap", "", report.gaps, sure.gaps))
    return lines


def sentences(report: Any) -> list[tuple[str, str]]:
    """Return the verdicts and comparisons, each with the style of its word."""
    verdicts = [report.verdict]
    if len(report.groups) > 1:
        verdicts += [report.verdicts[g] for g in chosen_groups(report)]
    found = [(verdict.text, STYLES[verdict.word]) for verdict in verdicts]
    clear = [c for c in report.comparisons if c.clear]
    found += [(c.text, "red") for c in clear[:MOST_LINES]]
    rest = len(report.comparisons) - len(clear)
    if rest:
        two = len(report.comparisons) == 1
        pairs = "the two groups" if two else f"{counted(rest, 'pair')} of groups"
        found.append((f"For {pairs}: no evidence that one is better calibrated.", ""))
    return found


def pe_figures(report: Any) -> str:
    """Return the values of proportional equality with their intervals."""
    found = []
    intervals = (report.intervals or NO_INTERVALS).proportional_equality
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
    """Return the lines of the table of rates, and the number of those left out."""
    labels = report.table.labels
    # of two classes the second says it all
    labels = labels[1:] if len(labels) == 2 else labels
    lines = [
        (shown(k), shown(g), *(number(report.rates[g][kind][k]) for kind in report.rates[g]))
        for k in labels
        for g in chosen_groups(report)
    ]
    lines = lines[:MOST_LINES]
    return lines, len(report.groups) * len(labels) - len(lines)


RATES = ("class", "group", "labels", "model", "decisions")
"""Columns of the table of rates."""


def change_lines(report: Any) -> tuple[list[tuple[str, ...]], int]:
    """Return the lines of the table of log amplifications, and the number of those left out."""
    kinds = [
        [a for own in found.values() for a in own.values()]
        for found in report.amplification.values()
    ]
    named = set(chosen_groups(report))
    pairs = [own for own in zip(*kinds, strict=True) if own[0].group in named]
    every = report.reference_group == "all" and "all" not in report.table.groups
    lines = [
        (
            shown(own[0].label),
            shown(own[0].group) + (f" / {shown(own[0].reference)}" if every else ""),
            *map(_change, own),
        )
        for own in sorted(pairs, key=lambda own: report.table.labels.index(own[0].label))
    ]
    return lines[:MOST_LINES], len(kinds[0]) - len(lines[:MOST_LINES])


def _change(found: Any) -> str:
    value = "-" if math.isnan(found.value) else f"{found.value + 0.0:+.3f}"
    return f"{value} ({found.low:+.3f} to {found.high:+.3f})"


CHANGES = ("class", "group", "of the model", "of the decisions")
"""Columns of the table of log amplifications."""

CHANGES_NOTE = (
    "The log of a group's rate over that of the reference, in the model less in the labels: 0 if "
    "the model keeps the ratio, +0.69 if it doubles it, -0.69 if it halves it."
)


def failing(report: Any) -> str:
    """Return the names of the groups whose verdict is miscalibrated."""
    names = [shown(g) for g, v in report.verdicts.items() if v.word == "miscalibrated"]
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more or "none"
