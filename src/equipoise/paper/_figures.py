"""The frontiers of PE and ECE, a panel for each dataset."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import pareto_front
from equipoise.paper._digest import Digest
from equipoise.paper._published import paper_name
from equipoise.paper._tables._numbers import split_interval
from equipoise.plots import blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

LOOKS = {
    "ce": ("#000000", "D"),
    "ls": ("#8c6d31", "v"),
    "fl": ("#aaaaaa", "X"),
    "flsd": ("#777777", "P"),
    "dca": ("#e69f00", "s"),
    "mdca": ("#d55e00", "^"),
    "mmce": ("#0072b2", "o"),
    "mmce-w": ("#56b4e9", "<"),
    "mmce-w*": ("#009e73", ">"),
}
"""Colour and mark of each technique."""

FLOOR = "PE floor"
FEWEST = 3
"""Splits that an interval is drawn for: of two it says nothing."""

CAPTION = (
    "A panel for each dataset; PE on a square-root scale; nearer to the origin is better. Lines, "
    "as published: the Pareto-optimal points of all configurations, epochs and seeds within 5 "
    "points of the best test accuracy, cross-entropy with one run per seed. Marks, validated: the "
    "balanced choice on validation, read on the test set, mean over the splits on which the "
    "technique has something within the slack; cross-entropy has as many runs as the technique "
    "with most. The cross is the 95% interval of cross-entropy's mark over splits (Nadeau and "
    "Bengio's); the tables have the paired differences. Dotted: what a model with a PE of 0 in the "
    "population scores on such test sets (Table 2). The distance from lines to marks is what "
    "choosing on the test set gives. Hybrids are in the table of frontiers."
)


def pareto_figure(digests: Sequence[Digest]) -> Figure:
    """Draw the frontiers of every dataset; `CAPTION` says what is drawn."""
    wide = min(4, len(digests) + 1)
    high = math.ceil((len(digests) + 1) / wide)
    figure = blank_figure(figsize=(0.6 + 2.9 * wide, 0.4 + 2.65 * high), layout="constrained")
    panels = list(figure.subplots(high, wide, squeeze=False).flat)
    drawn: dict[str, Any] = {}
    for i, (axes, digest) in enumerate(zip(panels, digests, strict=False)):
        _panel(axes, digest)
        if i % wide == 0:
            axes.set_ylabel("ECE, 15 bins")
        if i + wide >= len(digests):
            axes.set_xlabel("stochastic PE")
        drawn |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in panels[len(digests) :]:
        axes.axis("off")
    order = [*(paper_name(t) for t in LOOKS), FLOOR]
    names = sorted(drawn, key=lambda name: order.index(name) if name in order else len(order))
    panels[len(digests)].legend(
        [drawn[name] for name in names],
        names,
        loc="center",
        frameon=False,
        fontsize=9,
        title="line: as published\nmark: validated",
        title_fontsize=9,
    )
    return figure


def chosen_points(digest: Digest, technique: str) -> Floats:
    """Return the (PE, ECE) of the balanced choice on each split that has one, (split, 2)."""
    most = max(digest.budget(t) for t in digest.facts["sweep"]["loss"])
    rows = digest.best(technique, "validated", "balanced", controls=most)
    points = [[row["test_pe"], row["test_ece15"]] for row in rows if row]
    return np.array(points, np.float64).reshape(-1, 2)


def _panel(axes: Axes, digest: Digest) -> None:
    marks = {t: chosen_points(digest, t) for t in digest.facts["sweep"]["loss"]}
    for technique, points in marks.items():
        colour, mark = LOOKS.get(technique, ("#cc79a7", "o"))
        front = pareto_front(digest.frontier(technique, "published"))
        first = technique == "ce"
        # a line of the legend has the mark too, though the line on the axes has none
        if len(front) or len(points):
            mean = points.mean(0) if len(points) else (np.nan, np.nan)
            axes.plot(
                *mean, marker=mark, color=colour, markersize=7 if first else 6.5, linewidth=1.3,
                markeredgecolor="white", markeredgewidth=0.4, zorder=4 if first else 3,
                label=paper_name(technique),
            )  # fmt: skip
        if len(front):
            axes.plot(*front.T, color=colour, linewidth=2.0 if first else 1.1, alpha=0.85)
        if first and len(points) >= FEWEST:
            _cross(axes, points)
    floor = digest.floors["model"]
    if floor is not None:
        axes.axvline(floor, color="#444444", linestyle=":", linewidth=1.2, label=FLOOR)
    axes.set_title(digest.dataset, fontsize=10)
    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0.0)), np.square))
    right, top = _limits(marks, floor or 0.0)
    axes.set_xlim(0.0, right)
    axes.set_ylim(0.0, top)
    ticks = _root_ticks(right)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)


def _cross(axes: Axes, points: Floats) -> None:
    spans = [split_interval(column) for column in points.T]
    mean = points.mean(0)
    for i, span in enumerate(spans):
        if span is not None:
            ends = np.array([mean, mean])
            ends[:, i] = np.maximum(span, 0.0)
            axes.plot(*ends.T, color="#000000", linewidth=0.9, alpha=0.35, zorder=2)


def _limits(marks: dict[str, Floats], floor: float) -> tuple[float, float]:
    """Return the ends of the axes: the marks are inside, lines may leave."""
    means = np.array([points.mean(0) for points in marks.values() if len(points)])
    finite = means[np.isfinite(means).all(1)] if len(means) else np.zeros((0, 2))
    pe, ece = finite.max(0) if len(finite) else (0.0, 0.0)
    return 1.25 * max(pe, floor) or 1.0, 1.25 * ece or 1.0


def _root_ticks(right: float) -> list[float]:
    """Return round numbers up to `right` that stand apart on a square-root scale.

    >>> _root_ticks(2.0)
    [0.0, 0.1, 0.5, 1.0, 2.0]
    """
    found = [0.0]
    for tick in (float(f"{digit}e{power}") for power in range(-6, 6) for digit in (1, 2, 5)):
        if tick <= right and math.sqrt(tick) - math.sqrt(found[-1]) >= 0.2 * math.sqrt(right):
            found.append(tick)
    return found


def rendered(figure: Figure, kind: str = "svg") -> bytes:
    """Return a figure as an svg or png file; the same figure gives the same bytes."""
    import matplotlib as mpl

    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "equipoise", "svg.fonttype": "none"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, dpi=110, metadata=metadata)
    return out.getvalue()
