"""Accuracy against confidence, for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.metrics import AuditTable, by_group, reliability_of
from equipoise.plots._style import (
    GREY,
    MOST_SERIES,
    OUTSIDE,
    arms,
    axes_of,
    largest,
    legend,
    look,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ABOVE_STRIP: dict[str, Any] = {"loc": "best", "bbox_to_anchor": (0.0, 0.2, 1.0, 0.8)}


def plot_reliability(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any = None,
    n_bins: int = 15,
    labels: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence, one line per group, over a histogram of the confidence.

    A mark is a bin of top-label confidence: its rows' mean confidence and accuracy, with the 95%
    interval (Wilson's) of the accuracy. On the diagonal the two are equal; below it the model is
    overconfident. The strip at the bottom shows the share of each group's rows in each bin.

    Parameters
    ----------
    y_true
        Labels, of any coding.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem.
    sensitive_features
        The groups: one column, or several for their intersections. None: one line for all rows.
    n_bins
        Number of confidence bins of equal width.
    labels
        Label of each column of `y_prob`.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    The axes. The strip is the only one of their ``child_axes``.

    Notes
    -----
    Of more than 14 groups the 14 largest are drawn, and the legend names the number left out.
    """
    table = AuditTable.from_arrays(
        y_true,
        y_prob,
        sensitive_features=sensitive_features,
        n_bins=n_bins,
        labels=labels,
        blocks=("bins",),
    )
    drawn, left_out = largest(table, MOST_SERIES)
    outside = len(drawn) > 4
    ax = axes_of(ax, (8.8 if outside else 6.4, 4.8))
    curves, ece = reliability_of(table), by_group(table, "ece")
    rows = dict(zip(table.groups, table["rows"].astype(int).tolist(), strict=True))
    # top-label confidence is at least 1 / K
    start = np.floor(n_bins / len(table.labels)) / n_bins
    (diagonal,) = ax.plot([start, 1.0], [start, 1.0], color=GREY, linestyle=":", linewidth=1.2)
    strip = ax.inset_axes((0.0, 0.0, 1.0, 0.15), sharex=ax)
    handles: list[Any] = []
    names = []
    lowest, highest = start, 0.0
    for i, group in enumerate(drawn):
        curve = curves[group]
        held = curve.count > 0
        hit, sure = curve.accuracy[held], curve.confidence[held]
        error = arms(hit, curve.count[held])
        style = look(i)
        handles.append(
            ax.errorbar(
                sure,
                hit,
                yerr=error,
                ecolor=(style["color"], 0.9 if len(drawn) <= 2 else 0.5),
                **style,
                markersize=5.0,
                linewidth=1.4,
                elinewidth=1.0,
                capsize=2.0,
                zorder=3.0,
            )
        )
        share = curve.count / curve.count.sum()
        edges = np.append(curve.lower, 1.0)
        strip.stairs(
            share, edges, color=style["color"], linestyle=style["linestyle"], linewidth=1.2
        )
        if len(drawn) <= 2:
            strip.stairs(share, edges, color=style["color"], fill=True, alpha=0.2)
        about = f"ECE {ece[group]:.3f}, {rows[group]:,} row{'s' * (rows[group] != 1)}"
        names.append(about if group is None else f"{short_name(group)}: {about}")
        lowest, highest = (
            min(lowest, float((hit - error[0]).min())),
            max(highest, float(share.max())),
        )
    _finish_reliability(ax, strip, start, np.floor(lowest * 10.0 + 1e-9) / 10.0, highest)
    handles, names = [*handles, diagonal], [*names, "accuracy = confidence"]
    legend(ax, handles, names, left_out, **(OUTSIDE if outside else ABOVE_STRIP))
    return ax


def _finish_reliability(ax: Axes, strip: Axes, start: float, bottom: float, highest: float) -> None:
    """Set limits and ticks: the strip has the lowest 15% of the axes to itself."""
    height = 1.02 - bottom
    margin = 0.02 * (1.0 - start)
    ax.set_xlim(start - margin, 1.0 + margin)
    ax.set_ylim(bottom - 0.2 / 0.8 * height, 1.02)
    step = 0.2 if bottom < 0.4 else 0.1
    # counted down from 1, so that 1 is always one of them
    ticks = 1.0 - step * np.arange(int((1.0 - bottom) / step + 1e-9) + 1)
    ax.set_yticks(ticks[::-1])
    ax.set_xlabel("confidence")
    ax.set_ylabel("accuracy", y=0.6)
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    strip.patch.set_alpha(0.0)
    strip.set_ylim(0.0, highest * 1.05)
    strip.tick_params(axis="x", bottom=False, labelbottom=False)  # the axes' own are beneath
    strip.set_yticks([highest], [f"{highest:.0%}"])
    strip.tick_params(axis="y", labelsize="small", colors=GREY)
    strip.spines[["top", "right", "left"]].set_visible(False)
    strip.text(0.01, 1.04, "share of rows", transform=strip.transAxes, size="small", color=GREY)
