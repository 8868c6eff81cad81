"""Points of two measures, and the Pareto curve of each loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import column, matrix, named_columns
from equipoise.metrics import pareto_front, pareto_mask
from equipoise.plots._style import (
    COLOURS,
    GREY,
    MOST_SERIES,
    OUTSIDE,
    axes_of,
    legend,
    look,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

# how single points are marked
REFERENCE: dict[str, Any] = {
    "color": GREY,
    "marker": "+",
    "markersize": 11.0,
    "markeredgewidth": 1.8,
    "linestyle": "none",
}
RING: dict[str, Any] = {
    "color": COLOURS[-1],
    "marker": "o",
    "markerfacecolor": "none",
    "markersize": 13.0,
    "markeredgewidth": 1.8,
    "linestyle": "none",
    "zorder": 5.0,
}


def plot_frontier(
    points: Any,
    *,
    loss: Any = None,
    frequency: Any = None,
    chosen: Any = None,
    reference: Any = None,
    columns: tuple[str, str] = ("val_pe", "val_ece15"),
    xlabel: str = "PE",
    ylabel: str = "ECE",
    ax: Axes | None = None,
) -> Axes:
    """Draw points of two measures, lower being better, and the Pareto curve of each loss.

    Parameters
    ----------
    points
        (point, 2), or a table as `equipoise.search.select` takes: pandas, polars, PyArrow, or a
        mapping of names to columns. Points that are not finite are left out. To leave out rows that
        are not accurate enough, use `equipoise.search.within_slack`.
    loss
        (point,) names: a colour and a curve for each. By default a table's column "loss",
        and one curve for an array.
    frequency
        (point,) numbers from 0 to 1, from `equipoise.metrics.frontier_frequency`: the size and
        opacity of a point.
    chosen
        The point to mark: its position, as `equipoise.search.choose` returns it, or its pair.
    reference
        A pair to compare with, such as the model before; what is better in both is shaded.
    columns
        The table's columns to draw.
    xlabel, ylabel
        Labels of the axes.
    ax
        Axes to draw on; by default those of a new figure.
    """
    array, names = _points(points, loss, columns)
    finite = np.isfinite(array).all(1)
    if not finite.any():
        raise ValueError("points: none is finite, so there is nothing to draw")
    series = list(dict.fromkeys(names[finite].tolist()))
    if len(series) > MOST_SERIES:
        raise ValueError(
            f"{len(series)} losses cannot be told apart in one picture; "
            f"draw at most {MOST_SERIES} at a time"
        )
    often = None if frequency is None else _frequency(frequency, len(array))
    mark = None if chosen is None else _pair(point_at(chosen, array, "chosen"), "chosen")
    pair = None if reference is None else _pair(reference, "reference")
    outside = len(series) > 4
    ax = axes_of(ax, (7.6 if outside else 6.4, 4.8))
    handles: list[Any] = []
    for i, name in enumerate(series):
        own = finite & (names == name)
        handles.append(_curve(ax, array[own], None if often is None else often[own], look(i)))
    labels = [] if series == [None] else [short_name(s) for s in series]
    handles = handles[: len(labels)]
    if pair is not None:
        _shade(ax, pair)
        handles.append(ax.plot(*pair, **REFERENCE)[0])
        labels.append("reference")
    if mark is not None:
        handles.append(ax.plot(*mark, **RING)[0])
        labels.append("chosen")
    if often is not None:
        for share in (0.1, 1.0):
            size, alpha = _weight(np.array([share]))
            handles.append(ax.scatter([], [], s=size, color=GREY, alpha=alpha[0], linewidths=0))
            labels.append(f"on the frontier in {share:.0%} of draws")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    lost = int((~finite).sum())
    left_out = f"{lost:,} point{'s' * (lost > 1)} not finite, not drawn" if lost else None
    if labels or left_out:
        legend(ax, handles, labels, left_out, **(OUTSIDE if outside else {"loc": "best"}))
    return ax


def _curve(ax: Axes, own: Floats, often: Floats | None, style: dict[str, Any]) -> Any:
    """Draw one loss: its points, and a line through those on its frontier."""
    colour = style["color"]
    if often is None:
        x, y = own[~pareto_mask(own)].T
        ax.scatter(x, y, s=9, color=colour, alpha=0.25, linewidths=0, zorder=2.0)
        return front_line(ax, own, style)
    x, y = own.T
    size, alpha = _weight(often)
    marker = style["marker"]
    ax.scatter(x, y, s=size, color=colour, alpha=alpha, marker=marker, linewidths=0, zorder=3.0)
    ax.plot(
        *pareto_front(own).T, color=colour, linestyle=style["linestyle"], linewidth=1.4, zorder=2.5
    )
    return ax.plot([], [], **style, markersize=5, linewidth=1.4)[0]


def front_line(ax: Axes, own: Floats, style: dict[str, Any], up: bool = False) -> Any:
    """Draw a line through the frontier of points (n, 2); `up`: higher is better in the second."""
    way = np.array([1.0, -1.0 if up else 1.0])
    x, y = (pareto_front(own * way) * way).T
    return ax.plot(x, y, **style, markersize=5, linewidth=1.4, zorder=3.0)[0]


def _weight(frequency: Floats) -> tuple[Floats, Any]:
    """Return size and opacity of points by how often they are on the frontier."""
    return 8.0 + 50.0 * frequency, 0.15 + 0.75 * frequency


def _shade(ax: Axes, pair: Floats) -> None:
    """Shade what is better than the pair in both measures, without moving the limits."""
    limits = ax.get_xlim(), ax.get_ylim()
    ax.set_xlim(min(limits[0][0], pair[0]), max(limits[0][1], pair[0]))
    ax.set_ylim(min(limits[1][0], pair[1]), max(limits[1][1], pair[1]))
    corner = ax.get_xlim()[0], ax.get_ylim()[0]
    ax.fill_between([corner[0], pair[0]], corner[1], pair[1], color=GREY, alpha=0.1, linewidth=0)


def _points(points: Any, loss: Any, wanted: tuple[str, str]) -> tuple[Floats, NDArray[np.object_]]:
    """Return the points (n, 2) and the name of each point's loss, or None."""
    frame = named_columns(points)
    if frame is None:
        array = np.asarray(points, dtype=np.float64)
    else:
        lacking = [name for name in wanted if name not in frame]
        if lacking:
            raise ValueError(
                f"the table has no column {lacking[0]!r}; pass columns= with two of "
                f"{', '.join(map(str, frame))}"
            )
        array = np.stack([matrix(frame[name], name) for name in wanted], 1).astype(np.float64)
        loss = frame.get("loss") if loss is None else loss
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"points must be (point, 2), at least one, got shape {array.shape}")
    names = np.full(len(array), None, dtype=object)
    if loss is not None:
        given = column(loss, "loss")
        if len(given) != len(array):
            raise ValueError(f"loss has {len(given)} names, but there are {len(array)} points")
        names[:] = given.tolist()
    return array, names


def _frequency(values: Any, n: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n,) or not ((array >= 0.0) & (array <= 1.0)).all():
        raise ValueError(
            f"frequency must be (point={n},) numbers from 0 to 1, got shape {array.shape}"
            + (f" with {array.min():g} to {array.max():g}" if array.shape == (n,) else "")
        )
    return array


def point_at(given: Any, points: Floats, name: str) -> Any:
    """Return the point at a position among `points` (n, k), or what was given if it is not one."""
    if np.ndim(given):
        return given
    try:
        return points[given]
    except IndexError:
        raise ValueError(
            f"{name} must be a position among the {len(points)} points, or "
            f"{points.shape[1]} numbers, got {given!r}"
        ) from None


def _pair(values: Any, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (2,) or not np.isfinite(array).all():
        raise ValueError(f"{name} must be two finite numbers, got {values!r}")
    return array
