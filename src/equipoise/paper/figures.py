"""The Pareto figures: what each technique can reach in PE and ECE within the accuracy slack."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.frontier import pareto_front
from equipoise.paper.digest import SLACK, Digest
from equipoise.paper.published import published, shown
from equipoise.paper.tables import interval, techniques

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


def pareto_figure(digest: Digest, *, hybrid: bool) -> Figure:
    """Draw the frontiers of one dataset, as published on the left and as it should be on the right.

    Left: the points of all configurations, epochs and seeds within the slack of the best test
    accuracy; a line through those that are Pareto-optimal. Right: the balanced choice on
    validation, read on the test set: mean over the splits on which there is something within the
    slack, with its 95% interval. Cross-entropy has as many runs as the technique with most.
    """
    figure = blank(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _published(left, digest, hybrid)
    _validated(right, digest, hybrid)
    for axes in (left, right):
        axes.set_xlabel("stochastic PE (lower is fairer)")
        axes.set_ylabel("ECE, 15 bins (lower is better calibrated)")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    seen: dict[str, Any] = {}
    for axes in (left, right):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            seen.setdefault(label, handle)
    figure.legend(
        list(seen.values()), list(seen), loc="outside right center", frameon=False, fontsize=9
    )
    return figure


def blank(**options: Any) -> Figure:
    """Return a figure with nothing in it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'equipoise[plot]'"
        ) from None
    return Figure(**options)


def _curves(digest: Digest, hybrid: bool) -> list[tuple[str, str]]:
    calibrations = ["none", "group"] if hybrid else ["none"]
    return [(t, c) for t in ("ce", *techniques(digest)) for c in calibrations]


def _style(technique: str, calibration: str) -> dict[str, Any]:
    return {
        "color": COLOURS.get(technique, "#cc79a7"),
        "linestyle": "--" if calibration == "group" else "-",
        "linewidth": 2.2 if technique == "ce" else 1.4,
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
                label=shown(technique, calibration),
                **_style(technique, calibration),
            )


def _validated(axes: Axes, digest: Digest, hybrid: bool) -> None:
    axes.set_title(
        f"{digest.dataset}, as it should be\nbalanced choice on validation, read on test",
        fontsize=10,
    )
    most = max(digest.budget(t) for t in digest.facts["sweep"]["techniques"])
    for technique, calibration in _curves(digest, hybrid):
        chosen = digest.best(technique, "validated", "balanced", calibration, controls=most)
        there = [row for row in chosen if row]
        if not there:
            continue
        points = np.array([[row["test_pe"], row["test_ece15"]] for row in there])
        spans = [interval(column) for column in points.T]
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
            marker="D" if technique == "ce" else "o",
            markersize=6 if technique == "ce" else 5,
            markerfacecolor="white" if calibration == "group" else style["color"],
            elinewidth=0.8,
            alpha=0.9,
            label=shown(technique, calibration),
        )
    oracle = np.mean([s["label_oracle_pe"] for s in digest.facts["splits"].values()])
    axes.axvline(oracle, color="#888888", linestyle=":", linewidth=1.0, label="PE of the labels")
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
