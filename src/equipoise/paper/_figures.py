"""The Pareto figures: what each technique can reach in PE and ECE within the accuracy slack.

Left, as published: all configurations, epochs and seeds within the slack of the best test accuracy,
and a line through those that are Pareto-optimal. Right, validated: the balanced choice on
validation, read on the test set.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.metrics import pareto_front
from equipoise.paper._digest import SLACK, Digest
from equipoise.paper._published import paper_name, published
from equipoise.plots import blank_figure
from equipoise.search import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "ce": "#000000",
    "ls": "#8c6d31",
    "fl": "#c7a252",
    "flsd": "#999999",
    "dca": "#e69f00",
    "mdca": "#d55e00",
    "mmce": "#0072b2",
    "mmce-w": "#56b4e9",
    "mmce-w*": "#009e73",
}


LABELS = "PE of the labels"

# FL is often the same as FLSD, and shows beneath it
WIDTHS = {"ce": 2.2, "fl": 3.6}
MARKS = {"ce": 7, "fl": 9}

FEWEST = 3
"""Splits that an interval is drawn for: of two it says nothing."""

CAPTION = (
    "Left, as published: the Pareto-optimal points of all configurations, epochs and seeds within "
    "5 points of the best test accuracy (PE on a square-root scale). Right, validated: the "
    "balanced choice on validation, read on the test set; mean over the splits on which the "
    "technique has something within the slack (the legend says where these are not all), with the "
    f"95% interval of each mean where there are {FEWEST} splits or more. Cross-entropy has as many "
    "runs there as the technique with most. The intervals are not those of differences: the "
    "tables have these, paired and with equal numbers of runs. A hybrid (_ts) is hollow or dashed."
)


def pareto_figure(digest: Digest, *, hybrid: bool) -> Figure:
    """Draw the frontiers of one dataset, as published on the left and validated on the right.

    `CAPTION` says what is drawn.
    """
    figure = blank_figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    most = max(digest.budget(t) for t in digest.facts["sweep"]["loss"])
    _published(left, digest, hybrid)
    _validated(right, digest, hybrid, most)
    for axes in (left, right):
        axes.set_xlabel("stochastic PE (lower is fairer)" + ", square-root scale" * (axes is left))
        axes.set_ylabel("ECE, 15 bins (lower is better calibrated)")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    drawn: dict[str, Any] = {}
    for axes in (right, left):
        drawn |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = _names(digest, hybrid, most)
    handles = [drawn[name] for name in names if name in drawn]
    labels = [names[name] for name in names if name in drawn]
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _curves(digest: Digest, hybrid: bool) -> list[tuple[str, str]]:
    calibrations = ["none", "group"] if hybrid else ["none"]
    return [(t, c) for t in ("ce", *digest.techniques) for c in calibrations]


def _names(digest: Digest, hybrid: bool, most: int) -> dict[str, str]:
    """Return the legend of each curve: its name, and its splits where these are not all."""
    found = {}
    for technique, calibration in _curves(digest, hybrid):
        name = paper_name(technique, calibration)
        n = sum(map(bool, _chosen(digest, technique, calibration, most)))
        few = "" if n == len(digest.seeds) else f" (right: {n} of {len(digest.seeds)} splits)"
        found[name] = name + few
    return {**found, LABELS: LABELS}


def _style(technique: str, calibration: str) -> dict[str, Any]:
    return {
        "color": COLOURS.get(technique, "#cc79a7"),
        "linestyle": "--" if calibration == "group" else "-",
        "linewidth": WIDTHS.get(technique, 1.4),
    }


def _published(axes: Axes, digest: Digest, hybrid: bool) -> None:
    best = 100.0 * digest.facts["best_test_accuracy"]
    paper = published()["best_accuracy"].get(digest.dataset)
    said = f"; paper ({paper - 100 * SLACK:.2f}%, {paper:.2f}%)" if paper else ""
    within = f"accuracy in ({best - 100 * SLACK:.2f}%, {best:.2f}%){said}"
    axes.set_title(f"{digest.dataset}, as published\n{within}", fontsize=10)
    for technique, calibration in _curves(digest, hybrid):
        front = pareto_front(digest.frontier(technique, "published", calibration))
        if len(front):
            axes.plot(
                front[:, 0],
                front[:, 1],
                marker=".",
                markersize=4,
                label=paper_name(technique, calibration),
                **_style(technique, calibration),
            )
    # points near 0 stand apart, and 0 itself can be drawn
    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0.0)), np.square))
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
    ticks = _root_ticks(axes.get_xlim()[1])
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def _root_ticks(right: float) -> list[float]:
    """Return round numbers up to `right` that stand apart on a square-root scale.

    >>> _root_ticks(2.0)
    [0.0, 0.02, 0.1, 0.2, 0.5, 1.0, 2.0]
    """
    found = [0.0]
    for tick in (float(f"{digit}e{power}") for power in range(-6, 6) for digit in (1, 2, 5)):
        if tick <= right and math.sqrt(tick) - math.sqrt(found[-1]) >= 0.09 * math.sqrt(right):
            found.append(tick)
    return found


def _chosen(
    digest: Digest, technique: str, calibration: str, controls: int
) -> list[dict[str, Any]]:
    return digest.best(technique, "validated", "balanced", calibration, controls=controls)


def _validated(axes: Axes, digest: Digest, hybrid: bool, most: int) -> None:
    axes.set_title(
        f"{digest.dataset}, validated\nbalanced choice on validation, read on test", fontsize=10
    )
    for technique, calibration in _curves(digest, hybrid):
        there = [row for row in _chosen(digest, technique, calibration, most) if row]
        if not there:
            continue
        points = np.array([[row["test_pe"], row["test_ece15"]] for row in there])
        enough = len(there) >= FEWEST
        spans = [mean_interval(column) if enough else None for column in points.T]
        mean = points.mean(0)
        errors = [
            None if span is None else [[m - span[0]], [span[1] - m]]
            for m, span in zip(mean, spans, strict=True)
        ]
        style = _style(technique, calibration)
        axes.errorbar(
            mean[0],
            mean[1],
            xerr=errors[0],
            yerr=errors[1],
            color=style["color"],
            ecolor=(style["color"], 0.35),  # many cross, and the marks matter
            marker="D" if technique == "ce" else "o",
            markersize=MARKS.get(technique, 6),
            markerfacecolor="white" if calibration == "group" else style["color"],
            linestyle="none",
            elinewidth=1.0,
            label=paper_name(technique, calibration),
        )
    axes.axvline(digest.mean_oracle, color="#888888", linestyle=":", linewidth=1.0, label=LABELS)
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)


def rendered(figure: Figure, kind: str) -> bytes:
    """Return a figure as an svg or png file; the same figure gives the same bytes."""
    import matplotlib as mpl

    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "equipoise", "svg.fonttype": "none"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, dpi=110, metadata=metadata)
    return out.getvalue()
