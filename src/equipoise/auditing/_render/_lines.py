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
    return (
        f"Below each figure: the {100 * report.level:.4g}% interval of its true value. ECE and MCE "
        "grow as rows get fewer; a figure above its own interval is mostly noise. Gaps are "
        "corrected for this bias."
    )


def number(value: float) -> str:
    """Return a figure to four digits; a dash where there is none."""
    # adding 0 takes the sign off a zero
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


def heading(report: Any) -> str:
    """Return the numbers of rows, groups, classes and bins."""
    table = report.table
    parts = [
        counted(int(table["rows"].sum()), "row"),
        counted(len(table.groups), "group"),
        f"{len(table.labels)} classes",
        counted(table.n_bins, "bin"),
    ]
    if report.dropped:
        parts.append(f"{counted(report.dropped, 'row')} left out (a value is missing)")
    return ", ".join(parts)


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
    clear = [c for c in report.comparisons if c.p_value < 1.0 - report.level]
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
