"""The words and lines of an audit that every rendering shares."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from equipoise._inputs import counted, shown

MOST_GROUPS = 100
"""Groups shown; of more, those with the largest gaps."""

MOST_LINES = 40
"""Lines of rates shown."""

STYLES = {"calibrated": "green", "miscalibrated": "red", "not enough evidence": "yellow"}


def note(report: Any) -> str:
    """Return what the intervals mean."""
    return (
        f"Below each figure: the {100 * report.level:.4g}% interval of its true value. ECE and MCE "
        "grow as rows get fewer, so a figure may lie above its own interval: then it is mostly "
        "noise. Gaps are without that bias."
    )


def number(value: float) -> str:
    """Return a figure to four digits; a dash where there is none."""
    # adding 0 takes the sign off a zero
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


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
