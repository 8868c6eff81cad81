"""What plot_tradeoffs draws, against frontiers found by comparing every pair."""

import itertools
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from equipoise.plots import plot_frontier, plot_tradeoffs
from equipoise.plots._style import COLOURS, GREY
from test_plots import front, pixels

MEASURES = ("pe", "ece", "accuracy")
PANELS = (("pe", "ece"), ("pe", "accuracy"), ("ece", "accuracy"))
LINE = 0.78


def search(calibrations=("none", "common", "group", "bcts"), seed=0):
    """Made-up results of a search: 63 configurations, each calibrated in several ways."""
    rng = np.random.default_rng(seed)
    losses = ("ce", "ls", "fl", "dca", "mdca", "mmce", "mmce-w")
    rows = list(itertools.product(losses, range(3), range(3), calibrations))
    return {
        "calibrate": np.array([row[3] for row in rows]),
        "loss": np.array([row[0] for row in rows]),
        "pe": rng.uniform(0.05, 0.4, len(rows)),
        "ece": rng.uniform(0.01, 0.06, len(rows)),
        "accuracy": rng.uniform(0.76, 0.80, len(rows)),
    }


def with_values(table, measure, values):
    """The table with some values of a measure replaced, by position."""
    changed = table[measure].copy()
    changed[list(values)] = list(values.values())
    return table | {measure: changed}


def frontier(points, y):
    """The frontier, lower being better, but for accuracy."""
    way = np.array([1.0, -1.0 if y == "accuracy" else 1.0])
    return np.array(front(points * way)).reshape(-1, 2) * way


def lines(ax, n):
    return [np.transpose(line.get_data()) for line in ax.lines[:n]]


def single(ax, marker):
    """Where a mark of one point stands."""
    (found,) = (
        line
        for line in ax.lines
        if line.get_marker() == marker
        and len(line.get_xdata()) == 1
        and (marker != "o" or line.get_markerfacecolor() == "none")
    )
    return np.ravel(found.get_data()).tolist()


def names(figure):
    return [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]


@pytest.mark.parametrize("given", ["slack_line", "within", "neither"])
def test_lines_are_the_frontiers_within_the_slack(given):
    table = search()
    within = table["accuracy"] > LINE
    if given == "slack_line":
        figure = plot_tradeoffs(table, slack_line=LINE)
    elif given == "within":
        within = np.arange(len(within)) % 3 > 0
        figure = plot_tradeoffs(table | {"within": within})
    else:
        within = np.ones(len(within), bool)
        figure = plot_tradeoffs(table)
    assert len(figure.axes) == 3
    for ax, (x, y) in zip(figure.axes, PANELS, strict=True):
        points = np.column_stack([table[x], table[y]])
        for i, name in enumerate(("none", "common", "group", "bcts")):
            own = table["calibrate"] == name
            np.testing.assert_allclose(lines(ax, 4)[i], frontier(points[own & within], y))
            # every point is drawn: first those within the slack, then, fainter, the others
            inside, outside = ax.collections[2 * i : 2 * i + 2]
            np.testing.assert_array_equal(inside.get_offsets(), points[own & within])
            np.testing.assert_array_equal(outside.get_offsets(), points[own & ~within])
            assert outside.get_alpha() < inside.get_alpha()
            assert outside.get_sizes()[0] < inside.get_sizes()[0]
    said = list(itertools.chain(*names(figure)))
    assert ("not within the slack" in said) == (given != "neither")


def test_colours_and_marks_are_shared_by_the_panels():
    figure = plot_tradeoffs(search())
    for ax in figure.axes:
        assert [line.get_color() for line in ax.lines] == list(COLOURS[:4])
        assert len({line.get_marker() for line in ax.lines}) == 4
        scattered = [to_hex(c.get_facecolor()[0]) for c in ax.collections[::2]]
        assert scattered == list(COLOURS[:4])
    assert names(figure) == [["none", "common", "group", "bcts"]]
    assert figure.legends[0].get_title().get_text() == "calibration"
    first, second, third = figure.axes
    assert (first.get_xlabel(), first.get_ylabel()) == (
        "PE, lower is better",
        "ECE, lower is better",
    )
    assert second.get_ylabel() == "accuracy, higher is better"
    assert third.get_xlabel() == "ECE, lower is better"
    assert second.get_ylim() == third.get_ylim()


def test_marks_and_slack():
    table = search()
    figure = plot_tradeoffs(table, chosen=17, reference=(0.3, 0.05, 0.77), slack_line=LINE)
    for ax, (x, y) in zip(figure.axes, PANELS, strict=True):
        assert single(ax, "o") == [table[x][17], table[y][17]]
        reference = dict(zip(MEASURES, (0.3, 0.05, 0.77), strict=True))
        assert single(ax, "+") == [reference[x], reference[y]]
        flat = [line.get_ydata() for line in ax.lines if line.get_linestyle() == ":"]
        assert [list(y) for y in flat] == [[LINE, LINE]] * (y == "accuracy")
    loss, calibrate = table["loss"][17], table["calibrate"][17]
    assert names(figure)[1] == [
        "not within the slack",
        "plain cross-entropy",
        f"chosen: {loss}, {calibrate}",
        "slack: accuracy above 0.780",
    ]
    numbers = plot_tradeoffs(table, chosen=[table[m][17] for m in MEASURES])
    assert [single(ax, "o") for ax in numbers.axes] == [single(ax, "o") for ax in figure.axes]
    assert names(numbers)[1] == ["chosen"]


def test_slack_line_in_the_picture_unless_far_below():
    table = search()
    near = plot_tradeoffs(table, slack_line=0.75)
    assert near.axes[1].get_ylim()[0] < 0.75
    assert names(near)[1] == ["slack: accuracy above 0.750"]
    far = plot_tradeoffs(table, slack_line=0.5)
    assert far.axes[1].get_ylim()[0] > 0.75
    assert names(far)[1] == ["slack: accuracy above 0.500, below the picture"]


def test_far_points_are_beyond_the_axes_and_counted():
    table = with_values(search(), "pe", {3: 50.0, 70: 8.0, 9: np.inf})
    table = with_values(table, "ece", {4: 0.9})
    figure = plot_tradeoffs(table)
    pe_ece, pe_accuracy, ece_accuracy = figure.axes
    assert pe_ece.get_title("right") == "3 points beyond the axes\n1 point not finite"
    assert pe_accuracy.get_title("right") == "2 points beyond the axes\n1 point not finite"
    assert ece_accuracy.get_title("right") == "1 point beyond the axes"
    assert 0.4 < pe_ece.get_xlim()[1] < 0.45
    assert 0.06 < pe_ece.get_ylim()[1] < 0.065
    assert all(ax.get_title("right") == "" for ax in plot_tradeoffs(search()).axes)
    # the chosen and the reference are never beyond them
    marked = plot_tradeoffs(table, chosen=70, reference=4)
    assert marked.axes[0].get_xlim()[1] > 8.0
    assert marked.axes[0].get_ylim()[1] > 0.9
    assert marked.axes[0].get_title("right") == "1 point beyond the axes\n1 point not finite"


def test_a_quarter_of_the_points_is_never_beyond_the_axes():
    """Calibration lowers the ECE of three in four points; the others must stay in the picture."""
    table = search()
    table["ece"] = np.where(table["calibrate"] == "none", 0.3, 0.01) + table["ece"] / 50
    assert all(ax.get_title("right") == "" for ax in plot_tradeoffs(table).axes)


def test_axes_are_fitted_to_what_is_within_the_slack():
    table = search()
    below = np.arange(len(table["pe"])) % 2 == 0
    table["accuracy"] = np.where(below, 0.3, table["accuracy"])
    table["pe"] = np.where(below, table["pe"] + 5.0, table["pe"])
    figure = plot_tradeoffs(table | {"within": ~below})
    assert figure.axes[0].get_xlim()[1] < 0.5
    assert figure.axes[1].get_ylim()[0] > 0.7
    assert figure.axes[1].get_title("right") == f"{below.sum()} points beyond the axes"
    # of too few within, to all
    few = plot_tradeoffs(table | {"within": np.arange(len(below)) == 1})
    assert few.axes[0].get_xlim()[1] > 5.0


def test_without_groups_accuracy_against_ece():
    table = search() | {"pe": [float("nan")] * 252}
    figure = plot_tradeoffs(table, chosen=5, reference=0, slack_line=LINE)
    (ax,) = figure.axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "ECE, lower is better",
        "accuracy, higher is better",
    )
    assert ax.get_title("right") == ""
    assert single(ax, "o") == [table["ece"][5], table["accuracy"][5]]
    points = np.column_stack([table["ece"], table["accuracy"]])
    own = (table["calibrate"] == "none") & (table["accuracy"] > LINE)
    np.testing.assert_allclose(lines(ax, 1)[0], frontier(points[own], "accuracy"))


def test_a_chosen_point_without_pe_is_ringed_where_it_can_be():
    table = with_values(search(), "pe", {6: np.inf})
    figure = plot_tradeoffs(table, chosen=6)
    figure.draw_without_rendering()
    assert single(figure.axes[2], "o") == [table["ece"][6], table["accuracy"][6]]


def test_more_calibrations_than_colours():
    table = search([f"c{i:02}" for i in range(11)])
    figure = plot_tradeoffs(table)
    assert names(figure) == [[f"c{i:02}" for i in range(8)] + ["3 others"]]
    for ax, (x, y) in zip(figure.axes, PANELS, strict=True):
        assert len(ax.lines) == 9
        looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}
        assert len(looks) == 9
        assert len({line.get_color() for line in ax.lines}) == 8
        rest = table["calibrate"] >= "c08"
        points = np.column_stack([table[x], table[y]])
        np.testing.assert_allclose(lines(ax, 9)[8], frontier(points[rest], y))


def test_names_are_shown_as_they_are():
    calibrations = ["$x^2$", "_hidden", r"a\$b$", "n" * 80]
    table = search(calibrations) | {"loss": ["$l$"] * 252}
    figure = plot_tradeoffs(table, chosen=0, title="$a$ against $b$")
    texts = figure.legends[0].get_texts() + figure.legends[1].get_texts()
    wanted = [*calibrations[:3], "n" * 39 + "…", "chosen: $l$, $x^2$"]
    for text, name in zip(texts, wanted, strict=True):
        assert pixels(text.get_text()) == pixels(name, parse_math=False)
    assert figure.get_suptitle() == "$a$ against $b$"
    (title,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    assert not title.get_parse_math()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_of_every_kind(make):
    table = search()
    table["within"] = table["accuracy"] > LINE
    expected = plot_tradeoffs(table, chosen=2)
    figure = plot_tradeoffs(make(table), chosen=2)
    assert names(figure) == names(expected)
    for ax, other in zip(figure.axes, expected.axes, strict=True):
        for line, again in zip(ax.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_data(), again.get_data())


def test_one_point_and_equal_points():
    one = {"calibrate": ["none"], "pe": [0.0], "ece": [0.0], "accuracy": [1.0]}
    for table in (one, {name: values * 3 for name, values in one.items()}):
        figure = plot_tradeoffs(table, chosen=0)
        assert [lines(ax, 1)[0].tolist() for ax in figure.axes] == [[[0, 0]], [[0, 1]], [[0, 1]]]
        figure.draw_without_rendering()
    nothing = plot_tradeoffs(one | {"within": [False]})
    assert all(len(ax.lines[0].get_xdata()) == 0 for ax in nothing.axes)


@pytest.mark.parametrize("size", [(11, 4.2), (8, 5)])
def test_nothing_overlaps(size):
    figure = Figure(figsize=size, dpi=120)
    table = with_values(search(), "pe", {3: 50.0, 9: np.nan})
    drawn = plot_tradeoffs(
        table, chosen=5, reference=0, slack_line=LINE, title="on validation", figure=figure
    )
    assert drawn is figure
    assert figure.get_size_inches().tolist() == list(size)
    figure.draw_without_rendering()
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    boxes += [text.get_window_extent() for text in figure.texts]
    for one, two in itertools.combinations(boxes, 2):
        assert not one.overlaps(two)
    for ax in figure.axes:
        labels = [t.get_window_extent() for t in ax.get_xticklabels() if t.get_text()]
        inside = [b for b in labels if ax.bbox.x0 <= (b.x0 + b.x1) / 2 <= ax.bbox.x1]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(inside))


def test_no_window_and_no_pyplot(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert isinstance(plot_tradeoffs(search()), Figure)


ROW = {"calibrate": ["none"], "pe": [0.1], "ece": [0.1], "accuracy": [0.8]}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"arms": [[1, 2, 3]]}, TypeError, "a mapping of names to columns, got list"),
        ({"arms": {"calibrate": ["none"]}}, ValueError, "no column 'pe'; they need calibrate"),
        ({"arms": ROW | {"pe": [1, 2]}}, ValueError, "one length, got {'pe': 2"),
        ({"arms": ROW | {"pe": ["a"]}}, TypeError, "pe must hold numbers"),
        ({"arms": ROW | {"ece": [np.nan]}}, ValueError, "nothing to draw"),
        ({"arms": ROW | {"within": ["no"]}}, TypeError, "True or False"),
        ({"chosen": 1}, ValueError, "a position among the 1 points"),
        ({"chosen": (1, 2)}, ValueError, "PE, ECE and accuracy, got (1, 2)"),
        ({"reference": "ce"}, ValueError, "reference must be a position"),
        ({"slack_line": np.nan}, ValueError, "slack_line must be an accuracy"),
        ({"figure": 1}, TypeError, "matplotlib Figure, got int"),
    ],
)
def test_mistakes(arguments, error, words):
    with pytest.raises(error) as caught:
        plot_tradeoffs(**{"arms": ROW} | arguments)
    assert words in str(caught.value)
    assert not plt.get_fignums()


def test_a_figure_must_be_empty():
    figure = plot_tradeoffs(ROW)
    with pytest.raises(ValueError, match="has axes already; pass an empty one"):
        plot_tradeoffs(ROW, figure=figure)


def test_same_style_as_plot_frontier():
    points = np.array([[0.1, 0.2], [0.2, 0.1]])
    ax = plot_frontier(points, chosen=0, reference=(0.3, 0.3), ax=Figure().subplots())
    table = {"calibrate": ["none"] * 2, "pe": points[:, 0], "ece": points[:, 1]}
    table["accuracy"] = [0.8, 0.8]
    other = plot_tradeoffs(table, chosen=0, reference=(0.3, 0.3, 0.8)).axes[0]
    for line, again in zip(ax.lines, other.lines, strict=True):
        for part in ("color", "marker", "markersize", "linewidth", "linestyle"):
            assert plt.getp(line, part) == plt.getp(again, part)
    assert ax.lines[1].get_color() == GREY
