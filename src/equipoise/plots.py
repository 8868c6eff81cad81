"""Pictures with matplotlib: reliability per group, rates of data and model, frontiers.

Each function draws on the axes it is given, or on a new figure of pyplot's where it is given none,
and returns the axes. Nothing is computed here but intervals: the numbers are those of
`equipoise.metrics` and `equipoise.frontier`. Colours are those of Okabe and Ito, and no two series
differ in colour alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise.frontier import pareto_front, pareto_mask
from equipoise.inputs import class_count, column, matrix
from equipoise.metrics import GroupRates, by_group, proportional_equality_of, reliability_of
from equipoise.table import AuditTable
from equipoise.texts import group_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_frontier", "plot_group_rates", "plot_reliability"]

Floats = NDArray[np.float64]

# Okabe and Ito's, without their yellow, which is hard to see on white
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#595959"

MOST_SERIES = 2 * len(COLOURS)
"""Series that can be told apart: every colour with full marks and lines, then with hollow ones."""

MOST_ROWS = 200
"""Pairs of group and class that one picture of rates has room for."""

LONGEST = 40
"""Characters of a name that are shown."""

# where a legend stands
OUTSIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
ABOVE_STRIP: dict[str, Any] = {"loc": "best", "bbox_to_anchor": (0.0, 0.2, 1.0, 0.8)}
UNDER_TITLE: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0.0, 1.0),
    "ncols": 2,
    "borderaxespad": 0.2,
}

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
    too sure of itself. The strip at the bottom shows the share of each group's rows in each bin.

    Parameters
    ----------
    y_true
        Labels, of any coding.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem.
    sensitive_features
        One column, or several whose intersection is meant. None: one line for all rows.
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
    Of more than 14 groups the 14 with most rows are drawn, and the legend says how many are not.
    """
    table = AuditTable.from_arrays(
        y_true,
        y_prob,
        sensitive_features=sensitive_features,
        n_bins=n_bins,
        labels=labels,
        parts=("bins",),
    )
    shown, left_out = _largest(table, MOST_SERIES)
    outside = len(shown) > 4
    ax = _axes(ax, (8.8 if outside else 6.4, 4.8))
    curves, ece = reliability_of(table), by_group(table, "ece")
    rows = dict(zip(table.groups, table["rows"].astype(int).tolist(), strict=True))
    # top-label confidence is at least 1 / K
    start = np.floor(n_bins / len(table.labels)) / n_bins
    (diagonal,) = ax.plot([start, 1.0], [start, 1.0], color=GREY, linestyle=":", linewidth=1.2)
    strip = ax.inset_axes((0.0, 0.0, 1.0, 0.15), sharex=ax)
    handles: list[Any] = []
    names = []
    lowest, highest = start, 0.0
    for i, group in enumerate(shown):
        curve = curves[group]
        held = curve.count > 0
        hit, sure = curve.accuracy[held], curve.confidence[held]
        low, high = _wilson(hit, curve.count[held])
        style = _style(i)
        handles.append(
            ax.errorbar(
                sure,
                hit,
                yerr=np.maximum([hit - low, high - hit], 0.0),  # at 0 and 1 rounding is negative
                ecolor=(style["color"], 0.9 if len(shown) <= 2 else 0.5),
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
        if len(shown) <= 2:
            strip.stairs(share, edges, color=style["color"], fill=True, alpha=0.2)
        about = f"ECE {ece[group]:.3f}, {rows[group]:,} row{'s' * (rows[group] != 1)}"
        names.append(about if group is None else f"{_shown(group)}: {about}")
        lowest, highest = min(lowest, float(low.min())), max(highest, float(share.max()))
    _finish_reliability(ax, strip, start, np.floor(lowest * 10.0 + 1e-9) / 10.0, highest)
    handles, names = [*handles, diagonal], [*names, "accuracy = confidence"]
    _legend(ax, handles, names, left_out, **(OUTSIDE if outside else ABOVE_STRIP))
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


def plot_group_rates(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    labels: Any = None,
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the rate of each class in each group: in the data, and as the model gives it.

    The data's rate is the share of the label, with its 95% interval (Wilson's); the model's is
    its mean probability. The title has their stochastic proportional equality.

    Parameters
    ----------
    y_true
        Labels; None where `base_rates` are given.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem.
    sensitive_features
        One column, or several whose intersection is meant.
    labels
        Label of each column of `y_prob`.
    base_rates
        Rates of the training labels, from `group_base_rates`, drawn without intervals instead of
        those of `y_true`.
    ax
        Axes to draw on; by default those of a new figure, high enough for all groups.

    Notes
    -----
    Of groups that make more than 200 rows of the picture, those with most rows of data are drawn,
    and the axis says how many are not.
    """
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    prob = matrix(y_prob, "y_prob")
    if y_true is None and rates is None:
        raise ValueError("y_true is None: pass base_rates=group_base_rates(y_train, ...) instead")
    if labels is None and rates is not None:
        known = sorted({k for row in rates.values() for k in row})  # type: ignore[type-var]
        labels = known if len(known) == class_count(prob) else None
    table = AuditTable.from_arrays(
        y_true,
        prob,
        sensitive_features=sensitive_features,
        labels=labels,
        parts={"rates"} | ({"labels"} if rates is None else set()),
    )
    title = "rates of data and model"
    if len(table.groups) > 1:
        pe = proportional_equality_of(table, base_rates=rates)
        title += f"; PE {pe:.3f}"
    weight = table["weight"][:, None]
    model = table["probability"] / weight
    data = table["labels"] / weight if rates is None else _given(rates, table)
    n_classes = len(table.labels)
    groups, left_out = _largest(table, max(1, MOST_ROWS // n_classes))
    order = [table.groups.index(g) for g in groups]

    ax = _axes(ax, (6.4, 1.5 + 0.27 * (len(groups) + 1) * n_classes))
    # a block per class, a line per group: what PE compares stands together
    place = np.arange(n_classes)[:, None] * (len(groups) + 1) + np.arange(len(groups)) + 1.0
    y, x_data, x_model = place.ravel(), data[order].T.ravel(), model[order].T.ravel()
    ax.hlines(y, x_data, x_model, color=COLOURS[0], linewidth=2.5, alpha=0.35, zorder=2.0)
    error = None
    if rates is None:
        low, high = _wilson(x_data, np.tile(weight[order, 0], n_classes))
        error = np.maximum([x_data - low, high - x_data], 0.0)
    in_data = ax.errorbar(
        x_data,
        y,
        xerr=error,
        color=COLOURS[-1],
        marker="s",
        markerfacecolor="white",
        markersize=7.5,
        linestyle="none",
        elinewidth=0.9,
        capsize=2.0,
        zorder=3.0,
    )
    (by_model,) = ax.plot(
        x_model, y, color=COLOURS[0], marker="o", markersize=5.0, linestyle="none", zorder=4.0
    )
    blocks = place[:, 0] - 1.0
    ax.set_yticks(
        [*blocks, *y],
        [*(_shown(k) for k in table.labels), *[_shown(g) for g in groups] * n_classes],
    )
    for tick in ax.yaxis.get_major_ticks()[:n_classes]:
        tick.tick1line.set_visible(False)
        tick.label1.set_fontweight("bold")
    ax.set_ylim(place.max() + 0.7, -0.7)
    right = ax.get_xlim()[1]
    ax.set_xlim(-0.02 * right, right)
    ax.set_xlabel("rate" + (f" ({left_out})" if left_out else ""))
    ax.set_title(title, pad=24.0)
    ax.grid(axis="x", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    said = "data, 95% interval" if rates is None else "base rates"
    _legend(ax, [in_data, by_model], [said, "model's mean probability"], None, **UNDER_TITLE)
    return ax


def plot_frontier(
    points: Any,
    *,
    technique: Any = None,
    frequency: Any = None,
    chosen: Any = None,
    reference: Any = None,
    columns: tuple[str, str] = ("val_pe", "val_ece15"),
    xlabel: str = "PE",
    ylabel: str = "ECE",
    ax: Axes | None = None,
) -> Axes:
    """Draw points of two measures, lower being better, and the Pareto curve of each technique.

    Parameters
    ----------
    points
        (point, 2), or a table as `equipoise.frontier.select` takes: pandas, polars, PyArrow, or a
        mapping of names to columns. Points that are not finite are left out. Rows that are not
        accurate enough are for the caller to leave out, see `equipoise.frontier.within_slack`.
    technique
        (point,) names: a colour and a curve for each. By default a table's column "technique",
        and one curve for an array.
    frequency
        (point,) numbers from 0 to 1, from `equipoise.frontier.frontier_frequency`: how large and
        dark a point is.
    chosen
        The point to mark: its position, as `equipoise.frontier.choose` returns it, or its pair.
    reference
        A pair to compare with, such as the model as it was; what is better in both is shaded.
    columns
        The table's columns to draw.
    xlabel, ylabel
        What the axes are.
    ax
        Axes to draw on; by default those of a new figure.
    """
    array, names = _points(points, technique, columns)
    finite = np.isfinite(array).all(1)
    if not finite.any():
        raise ValueError("points: none is finite, so there is nothing to draw")
    series = list(dict.fromkeys(names[finite].tolist()))
    if len(series) > MOST_SERIES:
        raise ValueError(
            f"{len(series)} techniques cannot be told apart in one picture; "
            f"draw at most {MOST_SERIES} at a time"
        )
    often = None if frequency is None else _frequency(frequency, len(array))
    mark = None if chosen is None else _chosen(chosen, array)
    pair = None if reference is None else _pair(reference, "reference")
    outside = len(series) > 4
    ax = _axes(ax, (7.6 if outside else 6.4, 4.8))
    handles: list[Any] = []
    for i, name in enumerate(series):
        own = finite & (names == name)
        handles.append(_curve(ax, array[own], None if often is None else often[own], _style(i)))
    labels = [] if series == [None] else [_shown(s) for s in series]
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
        _legend(ax, handles, labels, left_out, **(OUTSIDE if outside else {"loc": "best"}))
    return ax


def _curve(ax: Axes, own: Floats, often: Floats | None, style: dict[str, Any]) -> Any:
    """Draw one technique: its points, and a line through those on its frontier."""
    colour = style["color"]
    if often is None:
        x, y = own[~pareto_mask(own)].T
        ax.scatter(x, y, s=9, color=colour, alpha=0.25, linewidths=0, zorder=2.0)
        return ax.plot(*pareto_front(own).T, **style, markersize=5, linewidth=1.4, zorder=3.0)[0]
    x, y = own.T
    size, alpha = _weight(often)
    marker = style["marker"]
    ax.scatter(x, y, s=size, color=colour, alpha=alpha, marker=marker, linewidths=0, zorder=3.0)
    ax.plot(
        *pareto_front(own).T, color=colour, linestyle=style["linestyle"], linewidth=1.4, zorder=2.5
    )
    return ax.plot([], [], **style, markersize=5, linewidth=1.4)[0]


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


# --- what is drawn ---------------------------------------------------------------------------


def _wilson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Return the 95% score interval of a binomial share."""
    z = statistics.NormalDist().inv_cdf(0.975)
    middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z * np.sqrt(share * (1.0 - share) / n + (z / (2.0 * n)) ** 2) / (1.0 + z * z / n)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def _given(rates: Mapping[Hashable, Mapping[Hashable, float]], table: AuditTable) -> Floats:
    try:
        return np.array([[rates[g][k] for k in table.labels] for g in table.groups], np.float64)
    except KeyError as error:
        raise ValueError(
            f"base_rates lack {error.args[0]!r}; pass those of every group and label"
        ) from None


def _largest(table: AuditTable, most: int) -> tuple[list[Hashable], str | None]:
    """Return the groups to draw, in their own order, and what to say of the others."""
    if len(table.groups) <= most:
        return list(table.groups), None
    rows = table["rows"]
    kept = np.sort(np.argsort(-rows, kind="stable")[:most])
    lost = len(table.groups) - most
    missed = int(rows.sum() - rows[kept].sum())
    said = f"{lost} smaller group{'s' * (lost > 1)} not drawn, {missed:,} rows"
    return [table.groups[i] for i in kept], said


def _points(
    points: Any, technique: Any, wanted: tuple[str, str]
) -> tuple[Floats, NDArray[np.object_]]:
    """Return the points (n, 2) and the name of each point's technique, or None."""
    frame: Any = None
    if isinstance(points, Mapping):
        frame = points
    else:
        native = nw.from_native(points, eager_only=True, pass_through=True)
        if isinstance(native, nw.DataFrame):
            frame = {name: native[name] for name in native.columns}
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
        technique = frame.get("technique") if technique is None else technique
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"points must be (point, 2), at least one, got shape {array.shape}")
    names = np.full(len(array), None, dtype=object)
    if technique is not None:
        given = column(technique, "technique")
        if len(given) != len(array):
            raise ValueError(f"technique has {len(given)} names, but there are {len(array)} points")
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


def _chosen(chosen: Any, array: Floats) -> Floats:
    if np.ndim(chosen) == 0:
        try:
            chosen = array[chosen]
        except IndexError:
            raise ValueError(
                f"chosen must be a position among the {len(array)} points, or a pair, "
                f"got {chosen!r}"
            ) from None
    return _pair(chosen, "chosen")


def _pair(values: Any, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (2,) or not np.isfinite(array).all():
        raise ValueError(f"{name} must be two finite numbers, got {values!r}")
    return array


# --- how it is drawn -------------------------------------------------------------------------


def _axes(ax: Any, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure."""
    try:
        from matplotlib.axes import Axes
    except ImportError:
        raise ImportError(
            "plots need matplotlib; install it with: pip install 'equipoise[plot]'"
        ) from None
    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be one matplotlib Axes, got {type(ax).__name__}")
    return ax


def _style(i: int) -> dict[str, Any]:
    hollow = i >= len(COLOURS)
    colour = COLOURS[i % len(COLOURS)]
    return {
        "color": colour,
        "marker": MARKERS[i % len(MARKERS)],
        "markerfacecolor": "white" if hollow else colour,
        "linestyle": "--" if hollow else "-",
    }


def _shown(name: Hashable) -> str:
    """Return a name as matplotlib shows it: short, and never read as a formula."""
    text = group_name(name)
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text.replace("$", r"\$")


def _legend(
    ax: Axes, handles: list[Any], names: list[str], left_out: str | None, **place: Any
) -> None:
    # named afterwards: matplotlib leaves out a name that begins with an underscore
    numbers = [str(i) for i in range(len(handles))]
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "frameon": False}
    legend = ax.legend(handles, numbers, title=left_out, **small, **place)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)
