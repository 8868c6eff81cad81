"""The picture of the claims: each pooled effect with its interval."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.paper._study._inference import Judgement
from equipoise.paper._study._summary import percent
from equipoise.plots import blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "shown": "#009e73",
    "equivalent": "#0072b2",
    "refuted": "#d55e00",
    "undecided": "#767676",
}
LIMIT = 105.0
"""Largest change that is drawn, in percent; larger ones get an arrow."""


def claim_figure(
    found: Sequence[Judgement],
    level: Mapping[str, float],
    published: Mapping[str, float],
    control: Mapping[str, float],
) -> Figure:
    """Draw the claims, one below the other.

    `level` are cross-entropy's own outcomes; `published` and `control` are the paper's change and
    that of cross-entropy re-run as often, in percent, by claim.
    """
    figure = blank_figure(figsize=(10, 0.62 * len(found) + 1.6), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color="#333333", linewidth=0.8)
    for place, one in enumerate(reversed(found)):
        outcome, own = one.claim.outcome, one.first
        low, mean, high, reach = (
            percent(outcome, v, level[outcome])
            for v in (own.low, own.mean, own.high, own.detectable)
        )
        axes.barh(place, 2 * reach, 0.62, -reach, color="#eeeeee", zorder=0)
        axes.plot([low, high], [place, place], color=COLOURS[one.verdict], linewidth=2.4)
        axes.plot(mean, place, "o", color=COLOURS[one.verdict], markersize=7)
        for values, mark, colour, shift in (
            (published, "D", "#000000", 0.18),
            (control, "s", "#cc79a7", -0.18),
        ):
            if one.claim.name not in values:
                continue
            value = values[one.claim.name]
            if abs(value) <= LIMIT:
                axes.plot(value, place + shift, mark, color=colour, markersize=6, mfc="none")
            else:
                side = 1 if value > 0 else -1
                axes.annotate(
                    f"{value:+.0f}%",
                    (side * LIMIT, place + shift),
                    (side * (LIMIT - 22), place + shift),
                    color=colour,
                    va="center",
                    fontsize=8,
                    arrowprops={"arrowstyle": "->", "color": colour},
                )
        axes.text(LIMIT + 3, place, one.verdict, va="center", color=COLOURS[one.verdict])
    measured = {"amplification": "unfairness", "ece": "ECE"}
    axes.set_yticks(
        range(len(found)),
        [f"{wrapped(j.claim.text)}\n({measured[j.claim.outcome]})" for j in reversed(found)],
        fontsize=8,
    )
    axes.set_xlim(-LIMIT, LIMIT)
    axes.set_xlabel("change against the control, % (left of 0 is fairer or better calibrated)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    legend: dict[str, dict[str, Any]] = {
        "pooled effect, 95% interval": {"marker": "o", "color": "#555555"},
        "the paper's value": {"marker": "D", "color": "#000000", "ls": "", "mfc": "none"},
        "cross-entropy re-run as often": {
            "marker": "s",
            "color": "#cc79a7",
            "ls": "",
            "mfc": "none",
        },
        "below the smallest detectable effect": {"color": "#dddddd", "linewidth": 8},
    }
    for label, options in legend.items():
        axes.plot([], [], label=label, **options)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def wrapped(text: str, width: int = 52) -> str:
    """Break a text into lines."""
    return "\n".join(textwrap.wrap(text, width))
