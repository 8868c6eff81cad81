"""The rate of each class in each group, in data and model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import AuditTable, GroupRates, proportional_equality_of, rates_table
from equipoise.plots._style import COLOURS, arms, axes_of, largest, legend, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

MOST_ROWS = 200
"""Largest number of lines, one per group and class, in one plot."""

UNDER_TITLE: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0.0, 1.0),
    "ncols": 2,
    "borderaxespad": 0.2,
}


def plot_group_rates(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    labels: Any = None,
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    reference_group: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the rate of each class in each group, in the data and by the model.

    The data's rate is the share of the label, with its 95% interval (Wilson's); the model's is
    its mean probability. The title has their stochastic proportional equality, and the group that
    it compares with.

    Parameters
    ----------
    y_true
        Labels; None where `base_rates` are given.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem.
    sensitive_features
        The groups: one column, or several for their intersections.
    labels
        Label of each column of `y_prob`.
    base_rates
        Rates of the training labels, from `group_base_rates`, drawn without intervals instead of
        those of `y_true`.
    reference_group
        The group that PE compares the others with; by default the one with most rows.
    ax
        Axes to draw on; by default those of a new figure, high enough for all groups.

    Notes
    -----
    At most 200 lines, one per group and class, are drawn: those of the largest groups. The axis
    names the number of groups left out.
    """
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    table = rates_table(
        y_true, y_prob, rates, "rates", labels=labels, sensitive_features=sensitive_features
    )
    title = "rates of data and model"
    if len(table.groups) > 1:
        if reference_group is None:
            reference_group = table.groups[int(table["rows"].argmax())]
        pe = proportional_equality_of(table, base_rates=rates, reference_group=reference_group)
        title += f"; PE {pe:.3f}, compared with {short_name(reference_group)}"
    weight = table["weight"][:, None]
    model = table["probability"] / weight
    data = table["labels"] / weight if rates is None else _given(rates, table)
    n_classes = len(table.labels)
    groups, left_out = largest(table, max(1, MOST_ROWS // n_classes))
    order = [table.groups.index(g) for g in groups]

    ax = axes_of(ax, (6.4, 1.5 + 0.27 * (len(groups) + 1) * n_classes))
    # a block per class, a line per group: what PE compares stands together
    place = np.arange(n_classes)[:, None] * (len(groups) + 1) + np.arange(len(groups)) + 1.0
    y, x_data, x_model = place.ravel(), data[order].T.ravel(), model[order].T.ravel()
    ax.hlines(y, x_data, x_model, color=COLOURS[0], linewidth=2.5, alpha=0.35, zorder=2.0)
    error = None
    if rates is None:
        error = arms(x_data, np.tile(weight[order, 0], n_classes))
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
        [*(short_name(k) for k in table.labels), *[short_name(g) for g in groups] * n_classes],
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
    legend(ax, [in_data, by_model], [said, "model's mean probability"], None, **UNDER_TITLE)
    return ax


def _given(rates: Mapping[Hashable, Mapping[Hashable, float]], table: AuditTable) -> Floats:
    try:
        return np.array([[rates[g][k] for k in table.labels] for g in table.groups], np.float64)
    except KeyError as error:
        raise ValueError(
            f"base_rates lack {error.args[0]!r}; pass those of every group and label"
        ) from None
