"""PE, ECE and accuracy of many candidates, two at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import column, counted, matrix, named_columns, shown
from equipoise.plots._frontier import REFERENCE, RING, front_line, point_at
from equipoise.plots._style import GREY, empty_figure, legend, look, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Entries = list[tuple[Any, str]]  # handles and names of a legend

MEASURES = ("pe", "ece", "accuracy")
PE, ECE, ACCURACY = range(3)
LABELS = ("PE, lower is better", "ECE, lower is better", "accuracy, higher is better")

MOST_CALIBRATIONS = 8
"""Calibrations with a colour and mark of their own; the others are grey."""

FEWEST = 8
"""Candidates within the slack that an axis is fitted to; of fewer, it is fitted to all."""

WITHIN: dict[str, Any] = {"s": 18, "alpha": 0.45, "linewidths": 0, "zorder": 2.2}
BELOW: dict[str, Any] = {"s": 9, "alpha": 0.28, "linewidths": 0, "zorder": 2.0}
SLACK: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1.0, "zorder": 1.5}
OTHER: dict[str, Any] = {"color": "#a6a6a6", "marker": ".", "linestyle": ":"}
MARKS = {"reference": REFERENCE, "chosen": RING}


@dataclasses.dataclass(frozen=True)
class _Candidates:
    values: Floats  # (candidate, measure)
    within: Mask  # (candidate,) accurate enough
    series: list[tuple[str, dict[str, Any], Mask]]  # name, look and members of each calibration


def plot_tradeoffs(
    arms: Any,
    *,
    chosen: Any = None,
    reference: Any = None,
    slack_line: float | None = None,
    title: str | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Draw PE against ECE, and accuracy against each, with the Pareto line of each calibration.

    A calibration has one colour and mark in all panels. Its line is the frontier of its candidates
    within the slack; the others are faint. If no candidate has a PE, only ECE against accuracy is
    drawn.

    Parameters
    ----------
    arms
        A row for each candidate: pandas, polars, PyArrow, or a mapping of names to columns.
        Columns: "calibrate" (a name), "pe", "ece", "accuracy", and if you like "loss" (a name,
        shown for the chosen candidate) and "within" (True where accurate enough; by default where
        accuracy is above `slack_line`). Others are not read.
    chosen
        The candidate to ring: its position, or its PE, ECE and accuracy.
    reference
        Plain cross-entropy: its position, or its PE, ECE and accuracy.
    slack_line
        The accuracy that candidates within the slack are above, drawn as a line.
    title
        A line above the panels, shown as it is.
    figure
        An empty figure to draw on, such as ``plt.figure()``; by default a new one, which no window
        shows.

    Notes
    -----
    An axis ends at the last candidate that is not far from the middle 80% of those within the
    slack: no further from them than they are wide. The chosen candidate and the reference are
    always inside; so is `slack_line`, unless it would take more than half of the axis. Above each
    panel stands the number of candidates that are outside it or not finite. Calibrations after the
    eighth are grey.

    Examples
    --------
    >>> arms = {
    ...     "calibrate": ["none", "none", "group"],
    ...     "loss": ["ce", "mmce", "mmce"],
    ...     "pe": [0.30, 0.10, 0.12],
    ...     "ece": [0.05, 0.03, 0.01],
    ...     "accuracy": [0.80, 0.79, 0.79],
    ... }
    >>> figure = plot_tradeoffs(arms, chosen=2, reference=0, slack_line=0.75)
    >>> figure.savefig("tradeoffs.png")  # doctest: +SKIP
    """
    columns = named_columns(arms)
    if columns is None:
        raise TypeError(
            f"arms must be a data frame or a mapping of names to columns, got {type(arms).__name__}"
        )
    if slack_line is not None and not math.isfinite(slack_line):
        raise ValueError(f"slack_line must be an accuracy, got {slack_line!r}")
    found = _candidates(columns, slack_line)
    marks = {
        name: _mark(given, found.values, name)
        for name, given in (("reference", reference), ("chosen", chosen))
        if given is not None
    }
    limits = [_limits(found, m, list(marks.values()), slack_line) for m in range(len(MEASURES))]
    grouped = bool(np.isfinite(found.values[:, PE]).any())
    new = figure is None
    figure = empty_figure(figure, (11.0, 4.2) if grouped else (6.4, 4.8))
    if title is not None:
        figure.suptitle(shown(title), fontsize="medium", parse_math=False)
    for ax, x, y in _panels(figure, grouped):
        series, others = _draw(ax, found, x, y)
        for name, mark in marks.items():
            (handle,) = ax.plot(*mark[[x, y]], **MARKS[name])
            others.append((handle, _said(name, chosen, columns)))
        if slack_line is not None and y == ACCURACY:
            away = ", below the picture" if slack_line < limits[ACCURACY][0] else ""
            said = f"slack: accuracy above {slack_line:.3f}{away}"
            others.append((ax.axhline(slack_line, **SLACK), said))
        _finish(ax, found.values[:, [x, y]], limits[x], limits[y])
    rows = max(
        _beneath(figure, series, "calibration", "left"), _beneath(figure, others, None, "right")
    )
    if new:
        figure.set_figheight(figure.get_figheight() + 0.2 * max(0, rows - 2))
    return figure


def _candidates(columns: dict[Any, Any], slack_line: float | None) -> _Candidates:
    """Read the table."""
    lacking = [name for name in ("calibrate", *MEASURES) if name not in columns]
    if lacking:
        raise ValueError(
            f"arms have no column {lacking[0]!r}; they need calibrate, pe, ece and accuracy"
        )
    named = {name: matrix(columns[name], name) for name in MEASURES}
    named["calibrate"] = column(columns["calibrate"], "calibrate")
    if "within" in columns:
        named["within"] = column(columns["within"], "within")
    lengths = {name: len(values) for name, values in named.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of arms must have one length, got {lengths}")
    values = np.stack([named[name] for name in MEASURES], 1).astype(np.float64)
    drawable = np.isfinite(values[:, [ECE, ACCURACY]]).all(1)
    if not drawable.any():
        raise ValueError("arms: none has a finite ECE and accuracy, so there is nothing to draw")
    if "within" in named:
        flags = named["within"].tolist()
        if not all(isinstance(flag, bool) for flag in flags):
            raise TypeError("within must hold True or False only")
        within = np.array(flags)
    else:
        within = values[:, ACCURACY] > (-np.inf if slack_line is None else slack_line)
    return _Candidates(values, within, _series(named["calibrate"].tolist()))


def _series(names: list[Hashable]) -> list[tuple[str, dict[str, Any], Mask]]:
    distinct = list(dict.fromkeys(names))
    own, others = distinct[:MOST_CALIBRATIONS], distinct[MOST_CALIBRATIONS:]
    found = [(short_name(n), look(i), np.array([m == n for m in names])) for i, n in enumerate(own)]
    if others:
        rest = np.array([m in others for m in names])
        found.append((f"{len(others):,} other{'s' * (len(others) > 1)}", OTHER, rest))
    return found


def _mark(given: Any, values: Floats, name: str) -> Floats:
    array = np.asarray(point_at(given, values, name), dtype=np.float64)
    if array.shape != (len(MEASURES),):
        raise ValueError(f"{name} must be a position, or PE, ECE and accuracy, got {given!r}")
    return array


def _said(name: str, chosen: Any, columns: dict[Any, Any]) -> str:
    """Return the legend of a mark; that of the chosen candidate names its loss."""
    if name == "reference":
        return "plain cross-entropy"
    if "loss" not in columns or np.ndim(chosen):
        return "chosen"
    both = (column(columns[key], key)[chosen] for key in ("loss", "calibrate"))
    return f"chosen: {short_name(tuple(both))}"


def _limits(
    found: _Candidates, measure: int, marks: list[Floats], slack_line: float | None
) -> tuple[float, float]:
    """Return the ends of a measure's axis, without candidates far from those within the slack."""
    values = found.values[:, measure]
    finite = np.isfinite(values)
    core = values[finite & found.within]
    values = values[finite]
    if not len(values):
        return 0.0, 1.0  # without groups there is no PE, and no panel of it
    low, high = np.quantile(core if len(core) >= FEWEST else values, [0.1, 0.9])
    reach = high - low if high > low else np.inf
    near = values[(values >= low - reach) & (values <= high + reach)]
    own = [mark[measure] for mark in marks if np.isfinite(mark[measure])]
    low, high = min([*near, *own]), max([*near, *own])
    # the line is in the picture unless it would take more than half of it
    if measure == ACCURACY and slack_line is not None and low - slack_line <= high - low:
        low, high = min(low, slack_line), max(high, slack_line)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return float(low - margin), float(high + margin)


def _panels(figure: Figure, grouped: bool) -> list[tuple[Axes, int, int]]:
    """Return the panels with their labels, each with the measures of its axes."""
    if grouped:
        axes = figure.subplots(1, 3, width_ratios=(1.25, 1.0, 1.0))
        panels = list(zip(axes, (PE, PE, ECE), (ECE, ACCURACY, ACCURACY), strict=True))
    else:
        panels = [(figure.subplots(), ECE, ACCURACY)]
    for ax, x, y in panels:
        ax.set_xlabel(LABELS[x])
        ax.set_ylabel(LABELS[y])
    if grouped:  # the last has the accuracy of the one beside it
        axes[2].set_ylabel("")
        axes[2].tick_params(labelleft=False)
    return panels


def _draw(ax: Axes, found: _Candidates, x: int, y: int) -> tuple[Entries, Entries]:
    """Draw the candidates and the line of each calibration; return entries of the two legends."""
    points = found.values[:, [x, y]]
    finite = np.isfinite(points).all(1)
    series, others = [], []
    for name, style, own in found.series:
        for kept, size in ((found.within, WITHIN), (~found.within, BELOW)):
            part = points[own & kept & finite]
            ax.scatter(*part.T, color=style["color"], marker=style["marker"], **size)
        line = front_line(ax, points[own & found.within & finite], style, up=y == ACCURACY)
        series.append((line, name))
    if not found.within.all():
        others.append((ax.scatter([], [], color=GREY, **BELOW), "not within the slack"))
    return series, others


def _finish(ax: Axes, points: Floats, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    """Set the limits, and say how many candidates are not in the picture."""
    ax.set_xlim(xlim)
    ax.set_ylim(ylim)
    ends = np.transpose([xlim, ylim])
    finite = np.isfinite(points).all(1)
    outside = int((finite & ~((points >= ends[0]) & (points <= ends[1])).all(1)).sum())
    lost = int((~finite).sum())
    notes = [f"{counted(outside, 'point')} beyond the axes"] * (outside > 0)
    notes += [f"{counted(lost, 'point')} not finite"] * (lost > 0)
    if notes:
        ax.set_title("\n".join(notes), loc="right", fontsize="small", color=GREY)
    ax.locator_params(nbins=5)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def _beneath(figure: Figure, entries: Entries, title: str | None, side: str) -> int:
    """Draw a legend under one half of the panels; return its number of rows."""
    if not entries:
        return 0
    handles, names = map(list, zip(*entries, strict=True))
    width = 0.55 + 0.075 * max(map(len, names))  # inches, of small type
    fitting = max(1, int(0.5 * figure.get_figwidth() / width))
    rows = -(-len(names) // fitting)
    place = {"loc": f"outside lower {side}", "ncols": -(-len(names) // rows), "alignment": "left"}
    legend(figure, handles, names, title, **place, labelspacing=0.7)
    return rows + (title is not None)
