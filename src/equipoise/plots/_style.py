"""Colours, marks and legends of the plots, and which groups are drawn."""

from __future__ import annotations

import statistics
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import need, shown
from equipoise.auditing import wilson
from equipoise.metrics import AuditTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# Okabe and Ito's, without their yellow, which is hard to see on white
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#595959"

MOST_SERIES = 2 * len(COLOURS)
"""Series that can be told apart: every colour with full marks and lines, then with hollow ones."""

LONGEST = 40
"""Characters of a name that are shown."""

OUTSIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
"""Place of a legend with many entries: beside the axes."""


def axes_of(ax: Any, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure."""
    Axes = need("matplotlib.axes", "plot", what="drawing").Axes
    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be one matplotlib Axes, got {type(ax).__name__}")
    return ax  # type: ignore[no-any-return]


def blank_figure(**options: Any) -> Figure:
    """Return an empty figure, which no window shows."""
    figure: Figure = need("matplotlib.figure", "plot", what="drawing").Figure(**options)
    return figure


def empty_figure(figure: Any, size: tuple[float, float]) -> Figure:
    """Return the figure given, which must be empty, or a new one."""
    if figure is None:
        return blank_figure(figsize=size, layout="constrained")
    Figure = need("matplotlib.figure", "plot", what="drawing").Figure
    if not isinstance(figure, Figure):
        raise TypeError(f"figure must be a matplotlib Figure, got {type(figure).__name__}")
    if figure.axes:
        raise ValueError("figure has axes already; pass an empty one, or none for a new one")
    figure.set_layout_engine("constrained")  # makes room for a legend beside the axes
    return figure  # type: ignore[no-any-return]


def look(i: int) -> dict[str, Any]:
    """Return colour, mark and line of the i-th series."""
    hollow = i >= len(COLOURS)
    colour = COLOURS[i % len(COLOURS)]
    return {
        "color": colour,
        "marker": MARKERS[i % len(MARKERS)],
        "markerfacecolor": "white" if hollow else colour,
        "linestyle": "--" if hollow else "-",
    }


def short_name(name: Hashable) -> str:
    """Return a name as matplotlib shows it: short, and never read as a formula."""
    text = shown(name)
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text.replace("$", r"\$")


def legend(
    ax: Axes | Figure, handles: list[Any], names: list[str], title: str | None, **place: Any
) -> None:
    """Draw a legend, under a title such as what was left out."""
    # named afterwards: matplotlib leaves out a name that begins with an underscore
    numbers = [str(i) for i in range(len(handles))]
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "frameon": False}
    legend = ax.legend(handles, numbers, title=title, **small, **place)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)


def largest(table: AuditTable, most: int) -> tuple[list[Hashable], str | None]:
    """Return the groups to draw, in their own order, and a note about the others."""
    if len(table.groups) <= most:
        return list(table.groups), None
    rows = table["rows"]
    kept = np.sort(np.argsort(-rows, kind="stable")[:most])
    lost = len(table.groups) - most
    missed = int(rows.sum() - rows[kept].sum())
    said = f"{lost} smaller group{'s' * (lost > 1)} not drawn, {missed:,} rows"
    return [table.groups[i] for i in kept], said


def arms(share: Floats, n: Floats) -> Floats:
    """Return the distances from binomial shares to the ends of their 95% score intervals."""
    low, high = wilson(share, 1.0 / n, statistics.NormalDist().inv_cdf(0.975))
    return np.maximum([share - low, high - share], 0.0)  # at 0 and 1 rounding is negative
