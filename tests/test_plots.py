"""The drawn numbers against plain loops and scipy's intervals; the look against saved pictures.

After a change that is meant to be seen, `python tests/test_plots.py` draws the pictures anew: look
at them before they are committed.
"""

import io
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure
from packaging.version import Version
from scipy.ndimage import gaussian_filter
from scipy.stats import binomtest
from sklearn.exceptions import UndefinedMetricWarning

import oracle_metrics as oracle
from equipoise.metrics import group_base_rates
from equipoise.plots import plot_frontier, plot_group_rates, plot_reliability, plot_tradeoffs
from equipoise.plots._style import COLOURS

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(autouse=True)
def _plain():
    before = mpl.get_backend()
    mpl.use("Agg")
    with mpl.rc_context(mpl.rcParamsDefault | {"backend": "Agg", "font.family": "DejaVu Sans"}):
        yield
    plt.close("all")
    mpl.use(before)


@pytest.fixture
def blank():
    """Axes that pyplot does not know of."""
    return Figure().subplots()


def binary(groups, n=1200, seed=0):
    """Labels, probabilities of the second and groups; sharper from group to group."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    log_odds = rng.normal(0.3 * a - 0.4, 1.2, n)
    y = rng.random(n) < 1 / (1 + np.exp(-log_odds * np.linspace(0.6, 1.8, groups)[a]))
    return (
        y.astype(int),
        1 / (1 + np.exp(-log_odds)),
        np.array(list("abcdefghijklmnopqrstuvwxyz"))[a],
    )


def several(groups, classes, n=900, seed=1):
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.ones(classes), n)
    y = (rng.random(n)[:, None] > (0.7 * prob + 0.3 / classes).cumsum(1)).sum(1)
    return y, prob, rng.integers(0, groups, n)


def cloud(losses, n=150, seed=2):
    rng = np.random.default_rng(seed)
    t = rng.integers(0, losses, n)
    points = np.stack(
        [rng.gamma(3, 0.05, n) + 0.02 * t, rng.gamma(3, 0.01, n) + 0.003 * (5 - t)], 1
    )
    return points, np.array(["ce", "ls", "fl", "dca", "mdca", "mmce"])[t]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars(container):
    """The ends of the error bars, (mark, end, coordinate)."""
    return np.array(container.lines[2][0].get_segments())


def wilson(hits, n):
    found = binomtest(hits, n).proportion_ci(0.95, "wilson")
    return found.low, found.high


# --- reliability -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_bins", [15, 7])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("classes", [2, 4])
def test_reliability_marks_intervals_and_strip(blank, groups, classes, n_bins):
    y, prob, a = binary(groups) if classes == 2 else several(groups, classes)
    ax = plot_reliability(y, prob, sensitive_features=a, n_bins=n_bins, ax=blank)
    assert ax is blank
    names = sorted(set(a.tolist()))
    assert len(ax.containers) == len(names) == groups
    (strip,) = ax.child_axes
    outlines = [p for p in strip.patches if not p.get_fill()]
    for name, container, outline in zip(names, ax.containers, outlines, strict=True):
        own = a == name
        rows = oracle.reliability_curve(y[own].tolist(), prob[own].tolist(), n_bins=n_bins)
        held = [row for row in rows if row[2]]
        np.testing.assert_allclose(
            np.transpose(container.lines[0].get_data()), [(r[4], r[3]) for r in held], atol=1e-9
        )
        ends = [wilson(round(r[2] * r[3]), int(r[2])) for r in held]
        np.testing.assert_allclose(bars(container)[:, :, 1], ends, atol=1e-9)
        np.testing.assert_allclose(bars(container)[:, 0, 0], [r[4] for r in held], atol=1e-9)
        shares, edges, _ = outline.get_data()
        np.testing.assert_allclose(shares, [r[2] / own.sum() for r in rows])
        np.testing.assert_allclose(edges, np.arange(n_bins + 1) / n_bins)
        ece = sum(r[2] * abs(r[3] - r[4]) for r in held) / own.sum()
        assert f"{name}: ECE {ece:.3f}, {own.sum():,} rows" in legend(ax)
    assert legend(ax)[-1] == "accuracy = confidence"
    # the diagonal is where the two are equal, and everything is within the limits
    x, diagonal = ax.lines[0].get_data()
    np.testing.assert_array_equal(x, diagonal)
    low, high = ax.get_ylim()
    top_of_strip = low + 0.15 * (high - low)
    assert top_of_strip < min(bars(c)[:, 0, 1].min() for c in ax.containers)
    assert max(bars(c)[:, 1, 1].max() for c in ax.containers) <= high
    assert ax.get_xlim()[0] < min(c.lines[0].get_xdata().min() for c in ax.containers)
    assert strip.get_ylim()[1] > max(o.get_data()[0].max() for o in outlines)
    assert strip.get_xlim() == ax.get_xlim()


def test_reliability_of_all_rows(blank):
    y, prob, _ = binary(2)
    ax = plot_reliability(y, prob, ax=blank)
    rows = oracle.reliability_curve(y.tolist(), prob.tolist())
    ece = sum(r[2] * abs(r[3] - r[4]) for r in rows if r[2]) / len(y)
    assert legend(ax) == [f"ECE {ece:.3f}, 1,200 rows", "accuracy = confidence"]


def test_one_row_and_certain_ones(blank):
    ax = plot_reliability(["n", "y", "y"], [0.0, 1.0, 1.0], ax=blank, n_bins=3)
    np.testing.assert_allclose(bars(ax.containers[0])[0, :, 1], wilson(3, 3))
    ax = plot_reliability([1], [0.0], labels=[0, 1], ax=Figure().subplots())
    np.testing.assert_allclose(bars(ax.containers[0])[0, :, 1], wilson(0, 1))
    assert legend(ax)[0] == "ECE 1.000, 1 row"


def test_groups_differ_in_more_than_colour(blank):
    y, prob, a = binary(14, n=700)
    ax = plot_reliability(y, prob, sensitive_features=a, ax=blank)
    looks = set()
    for container in ax.containers:
        line = container.lines[0]
        filled = line.get_markerfacecolor() == line.get_color()
        looks.add((line.get_color(), line.get_marker(), filled, line.get_linestyle()))
    assert len(looks) == 14
    assert len({look[1:] for look in looks}) == 14
    assert {look[0] for look in looks} == set(COLOURS)


def test_colours_survive_colour_blindness():
    """Seven colours, each pair far enough apart (CIELAB) for normal and for colour-blind eyes."""
    rgb = np.array([mpl.colors.to_rgb(c) for c in COLOURS])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    # Machado, Oliveira and Fernandes 2009, severity 1
    eyes = {
        "normal": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                   [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
    }  # fmt: skip
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    for name, seen in eyes.items():
        xyz = np.clip(linear @ np.transpose(seen), 0, 1) @ to_xyz.T / [0.9505, 1.0, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        lab = np.stack(
            [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1
        )
        apart = np.sqrt(((lab[:, None] - lab) ** 2).sum(-1))[np.triu_indices(len(lab), 1)]
        assert apart.min() > 10, name


def test_more_groups_than_can_be_told_apart(blank):
    n = 17
    a = np.concatenate([np.full(10 + 3 * ((5 * g) % n), f"{g:02}") for g in range(n)])
    y = np.arange(len(a)) % 2
    ax = plot_reliability(y, np.full(len(a), 0.7), sensitive_features=a, ax=blank)
    rows = {g: int((a == g).sum()) for g in np.unique(a)}
    smallest = sorted(rows, key=rows.get)[:3]
    drawn = [text.split(":")[0] for text in legend(ax)[:-1]]
    assert drawn == sorted(set(rows) - set(smallest))
    missing = sum(rows[g] for g in smallest)
    assert ax.get_legend().get_title().get_text() == f"3 smaller groups not drawn, {missing} rows"


# --- rates -----------------------------------------------------------------------------------


def rate_marks(ax):
    """{(class, group): (rate of the data, of the model)} by the labels of the axis."""
    names = [t.get_text() for t in ax.get_yticklabels()]
    place = dict(zip(ax.get_yticks(), names, strict=True))
    data, model = (line for line in (ax.containers[0].lines[0], ax.lines[-1]))
    found, blocks = {}, sorted(set(place) - set(data.get_ydata()))
    for x, q, y in zip(data.get_xdata(), model.get_xdata(), data.get_ydata(), strict=True):
        assert y in model.get_ydata()
        found[place[max(b for b in blocks if b < y)], place[y]] = (x, q)
    return found


@pytest.mark.parametrize(("groups", "classes"), [(2, 2), (6, 2), (3, 4)])
def test_rates(blank, groups, classes):
    y, prob, a = binary(groups) if classes == 2 else several(groups, classes)
    ax = plot_group_rates(y, prob, sensitive_features=a, ax=blank)
    assert ax is blank
    data = oracle.group_rates(y.tolist(), a.tolist(), classes)
    model = oracle.model_rates(prob.tolist(), a.tolist())
    marks = rate_marks(ax)
    assert len(marks) == groups * classes
    for (k, g), (x, q) in marks.items():
        own = g if isinstance(next(iter(data)), str) else int(g)
        assert (x, q) == pytest.approx((data[own][int(k)], model[own][int(k)]), abs=1e-9)
    largest = max(sorted(data), key=a.tolist().count)
    pe = oracle.proportional_equality(data, model, reference=largest)
    assert ax.get_title() == f"rates of data and model; PE {pe:.3f}, compared with {largest}"
    assert legend(ax) == ["data, 95% interval", "model's mean probability"]
    for ends, centre in zip(
        bars(ax.containers[0]), np.transpose(ax.containers[0].lines[0].get_data()), strict=True
    ):
        assert (ends[:, 1] == centre[1]).all()
        n = [(a == g).sum() for g in sorted(data)]
        matching = [wilson(round(centre[0] * m), int(m)) for m in n]
        assert any(ends[:, 0] == pytest.approx(w, abs=1e-9) for w in matching)


def test_rates_against_those_of_the_training_labels(blank):
    y, prob, a = binary(3)
    rates = group_base_rates(y[:600], sensitive_features=a[:600])
    ax = plot_group_rates(None, prob[600:], sensitive_features=a[600:], base_rates=rates, ax=blank)
    data = oracle.group_rates(y[:600].tolist(), a[:600].tolist(), 2)
    model = oracle.model_rates(prob[600:].tolist(), a[600:].tolist())
    for (k, g), found in rate_marks(ax).items():
        assert found == pytest.approx((data[g][int(k)], model[g][int(k)]), abs=1e-9)
    largest = max(sorted(data), key=a[600:].tolist().count)
    pe = oracle.proportional_equality(data, model, reference=largest)
    assert f"PE {pe:.3f}, compared with {largest}" in ax.get_title()
    assert legend(ax)[0] == "base rates"
    assert not ax.containers[0].has_xerr
    again = plot_group_rates(
        y[600:], prob[600:], sensitive_features=a[600:], base_rates=rates.rates,
        reference_group="c", ax=Figure().subplots(),
    )  # fmt: skip
    assert rate_marks(again) == rate_marks(ax)
    pe = oracle.proportional_equality(data, model, reference="c")
    assert f"PE {pe:.3f}, compared with c" in again.get_title()


def test_rates_of_one_group_have_no_pe(blank):
    ax = plot_group_rates([0, 1], [0.2, 0.7], sensitive_features=["a", "a"], ax=blank)
    assert ax.get_title() == "rates of data and model"
    assert rate_marks(ax) == {
        ("0", "a"): pytest.approx((0.5, 0.55)),
        ("1", "a"): pytest.approx((0.5, 0.45)),
    }


def test_rates_of_many_groups(blank):
    a = np.arange(600) % 130
    y = np.arange(600) // 130 % 2
    ax = plot_group_rates(y, np.full(600, 0.5), sensitive_features=a, ax=blank)
    assert len(rate_marks(ax)) == 200
    assert ax.get_xlabel() == "rate (30 smaller groups not drawn, 120 rows)"


def test_infinite_pe_warns(blank):
    with pytest.warns(UndefinedMetricWarning, match="infinite"):
        ax = plot_group_rates(
            [0, 0, 0, 1], [0.1, 0.2, 0.3, 0.9], sensitive_features=list("aabb"), ax=blank
        )
    assert ax.get_title().endswith("PE inf, compared with a")


# --- frontier --------------------------------------------------------------------------------


def front(points):
    """The frontier by comparing every pair."""
    kept = {
        tuple(p)
        for p in points
        if not any((q <= p).all() and (q < p).any() for q in points)
    }  # fmt: skip
    return sorted(kept)


@pytest.mark.slow
@pytest.mark.parametrize("losses", [1, 2, 6])
def test_frontier_curves(blank, losses):
    points, names = cloud(losses)
    ax = plot_frontier(points, loss=names, ax=blank)
    assert ax is blank
    shown = list(dict.fromkeys(names.tolist()))
    assert legend(ax) == shown
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("PE", "ECE")
    for name, line, rest in zip(shown, ax.lines, ax.collections, strict=True):
        own = points[names == name]
        np.testing.assert_allclose(np.transpose(line.get_data()), front(own))
        behind = sorted(tuple(p) for p in own if tuple(p) not in front(own))
        np.testing.assert_allclose(sorted(map(tuple, rest.get_offsets())), behind)


def test_frontier_of_a_table(blank):
    points, names = cloud(3)
    runs = {"val_pe": points[:, 0], "val_ece15": points[:, 1], "loss": names.tolist()}
    expected = [line.get_data() for line in plot_frontier(points, loss=names, ax=blank).lines]
    for table in (runs, pd.DataFrame(runs), pl.DataFrame(runs)):
        ax = plot_frontier(table, ax=Figure().subplots())
        assert legend(ax) == list(dict.fromkeys(names.tolist()))
        for line, data in zip(ax.lines, expected, strict=True):
            np.testing.assert_array_equal(line.get_data(), data)
    ax = plot_frontier(
        {"a": [1, 2], "b": [2, 1]}, columns=("b", "a"), xlabel="b", ylabel="a",
        ax=Figure().subplots(),
    )  # fmt: skip
    assert np.transpose(ax.lines[0].get_data()).tolist() == [[1, 2], [2, 1]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("b", "a")
    assert ax.get_legend() is None


def test_frontier_marks(blank):
    points, _ = cloud(1)
    points[3] = np.nan, 0.0
    ax = plot_frontier(points, chosen=7, reference=(0.9, 0.2), ax=blank)
    assert legend(ax) == ["reference", "chosen"]
    assert ax.get_legend().get_title().get_text() == "1 point not finite, not drawn"
    reference, chosen = ax.lines[1:]
    assert np.ravel(reference.get_data()).tolist() == [0.9, 0.2]
    np.testing.assert_array_equal(np.ravel(chosen.get_data()), points[7])
    # shaded: from the corner of the axes to the reference, which is within them
    (shade,) = (c for c in ax.collections if c.get_alpha() == 0.1)
    corners = shade.get_paths()[0].vertices
    assert corners.max(0).tolist() == [0.9, 0.2]
    assert corners.min(0).tolist() == [ax.get_xlim()[0], ax.get_ylim()[0]]
    assert ax.get_xlim()[1] >= 0.9
    pair = plot_frontier(points, chosen=points[7], ax=Figure().subplots())
    np.testing.assert_array_equal(np.ravel(pair.lines[-1].get_data()), points[7])


def test_frontier_frequency(blank):
    points, names = cloud(2)
    often = np.linspace(0, 1, len(points))
    ax = plot_frontier(points, loss=names, frequency=often, ax=blank)
    assert legend(ax)[-2:] == [
        "on the frontier in 10% of draws",
        "on the frontier in 100% of draws",
    ]
    for name, marks in zip(legend(ax)[:2], ax.collections, strict=False):
        own = names == name
        np.testing.assert_array_equal(marks.get_offsets(), points[own])
        for shown in (marks.get_sizes(), marks.get_alpha()):
            assert (np.diff(shown) > 0).all()  # as the frequencies do
    lines = [line for line in ax.lines if len(line.get_xdata())]
    for name, line in zip(legend(ax)[:2], lines, strict=True):
        np.testing.assert_allclose(np.transpose(line.get_data()), front(points[names == name]))


# --- names, axes, mistakes -------------------------------------------------------------------


def pixels(text, **options):
    figure = Figure(figsize=(6, 0.5), dpi=50)
    figure.text(0.01, 0.3, text, **options)
    out = io.BytesIO()
    figure.savefig(out, format="rgba")
    return out.getvalue()


def test_names_are_shown_as_they_are(blank):
    names = ["$x^2$ and $y$", "_hidden", "n" * 80, r"a\$b$", "per cent %s {}"]
    number = np.arange(50) % 5
    a = np.array(names, dtype=object)[number]

    def check(texts, wanted):
        for text, name in zip(texts, wanted, strict=True):
            short = name if len(name) <= 40 else name[:39] + "…"
            start = text.get_text().split(": ECE")[0]
            assert pixels(start) == pixels(short, parse_math=False)

    ax = plot_reliability(np.arange(50) % 2, np.full(50, 0.6), sensitive_features=a, ax=blank)
    check(ax.get_legend().get_texts()[:-1], sorted(names))
    y = np.array(names, dtype=object)[(number + np.arange(50) // 5) % 5]
    prob = np.full((50, 5), 0.2)
    ax = plot_group_rates(y, prob, sensitive_features=a, ax=Figure().subplots())
    check(ax.get_yticklabels(), sorted(names) * 6)
    ax = plot_frontier(np.ones((5, 2)), loss=names, ax=Figure().subplots())
    check(ax.get_legend().get_texts(), names)


def test_intersections_are_named_by_their_values(blank):
    y, prob, a = binary(2)
    other = np.arange(len(y)) % 2
    ax = plot_reliability(y, prob, sensitive_features=pd.DataFrame({"a": a, "b": other}), ax=blank)
    assert [t.split(":")[0] for t in legend(ax)[:-1]] == ["a, 0", "a, 1", "b, 0", "b, 1"]


def draw_all(ax):
    y, prob, a = binary(2, n=60)
    yield plot_reliability(y, prob, sensitive_features=a, ax=ax)
    yield plot_group_rates(y, prob, sensitive_features=a, ax=ax)
    yield plot_frontier([[1, 2], [2, 1]], ax=ax)


def test_axes_given_do_without_pyplot(monkeypatch, blank):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert list(draw_all(blank)) == [blank] * 3


def test_new_figure_without_axes():
    drawn = list(draw_all(None))
    assert [plt.figure(i).axes[0] for i in plt.get_fignums()] == drawn


def test_without_matplotlib(monkeypatch):
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    y, prob, a = binary(2, n=60)
    for draw in (
        lambda: plot_reliability(y, prob),
        lambda: plot_group_rates(y, prob, sensitive_features=a),
        lambda: plot_frontier([[1, 2]]),
        lambda: plot_tradeoffs({"calibrate": ["none"], "pe": [1], "ece": [1], "accuracy": [1]}),
    ):
        with pytest.raises(ImportError, match=r"pip install 'equipoise\[plot\]'"):
            draw()


def test_import_needs_no_matplotlib():
    code = "import sys, equipoise.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


HALF = {0: {"n": 0.5, "y": 0.5}}


@pytest.mark.parametrize(
    ("draw", "error", "words"),
    [
        (lambda: plot_reliability([0, 1], [0.5, 1.5]), ValueError, "not within 0..1"),
        (lambda: plot_reliability([0, 1], [0.5, 0.5], n_bins=0), ValueError, "n_bins"),
        (lambda: plot_reliability([0, 1], [0.5, 0.5], ax=[1]), TypeError, "Axes, got list"),
        (lambda: plot_group_rates(None, [0.5], sensitive_features=[0]), ValueError, "base_rates="),
        (lambda: plot_group_rates(None, [0.5, 0.5], sensitive_features=[0, 1], base_rates=HALF),
         ValueError, "without base rates: [1]"),
        (lambda: plot_group_rates(None, [0.5], sensitive_features=[1], base_rates=HALF),
         ValueError, "base_rates lack 1"),
        (lambda: plot_frontier([1, 2, 3]), ValueError, "(point, 2)"),
        (lambda: plot_frontier(np.empty((0, 2))), ValueError, "at least one"),
        (lambda: plot_frontier([[np.inf, 1]]), ValueError, "none is finite"),
        (lambda: plot_frontier({"val_pe": [1]}), ValueError, "no column 'val_ece15'; pass columns"),
        (lambda: plot_frontier([[1, 2]], loss=["a", "b"]), ValueError, "has 2 names"),
        (lambda: plot_frontier([[1, 2]] * 15, loss=range(15)), ValueError, "at most 14"),
        (lambda: plot_frontier([[1, 2]], frequency=[2]), ValueError, "with 2 to 2"),
        (lambda: plot_frontier([[1, 2]], frequency=[1, 1]), ValueError, "got shape (2,)"),
        (lambda: plot_frontier([[1, 2]], chosen=1), ValueError, "a position among the 1 points"),
        (lambda: plot_frontier([[1, 2]], chosen="best"), ValueError, "a position among"),
        (lambda: plot_frontier([[1, 2]], reference=(1, np.nan)), ValueError, "reference must be"),
    ],
)  # fmt: skip
def test_mistakes_leave_no_figure(draw, error, words):
    with pytest.raises(error) as caught:
        draw()
    assert words in str(caught.value)
    assert not plt.get_fignums()


# --- pictures --------------------------------------------------------------------------------


def frontier_with_frequency():
    points, names = cloud(2, n=60)
    often = np.clip(1.3 - points[:, 0] / 0.2 - points[:, 1] / 0.1, 0.0, 1.0)
    return plot_frontier(points, loss=names, frequency=often)


def frontier(losses):
    points, names = cloud(losses)
    chosen = int(np.argmin(points @ [1, 5]))
    return plot_frontier(points, loss=names, chosen=chosen, reference=(0.2, 0.03))


def reliability(groups):
    y, prob, a = binary(groups)
    return plot_reliability(y, prob, sensitive_features=a if groups > 1 else None)


def rates(groups):
    y, prob, a = binary(groups)
    return plot_group_rates(np.array(["no", "yes"])[y], prob, sensitive_features=a)


PICTURES = {
    **{f"reliability_{g}": lambda g=g: reliability(g) for g in (1, 2, 6)},
    **{f"rates_{g}": lambda g=g: rates(g) for g in (1, 2, 6)},
    **{f"frontier_{t}": lambda t=t: frontier(t) for t in (1, 2, 6)},
    "frontier_frequency": frontier_with_frequency,
}


def render(draw):
    out = io.BytesIO()
    draw().figure.savefig(out, format="png", dpi=50, metadata={"Software": None})
    return out.getvalue()


def distance(one, two):
    """Root mean square of the difference, blurred so that a shift by a pixel counts little."""
    images = [255.0 * plt.imread(io.BytesIO(png))[..., :3] for png in (one, two)]
    if images[0].shape != images[1].shape:
        return np.inf
    return float(np.sqrt((gaussian_filter(images[0] - images[1], (2, 2, 0)) ** 2).mean()))


TOLERANCE = 4.0  # a shift by one pixel is 2 to 3, another colour or other data 9


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_picture(name):
    if Version(mpl.__version__) < Version("3.10"):
        pytest.skip("the snapshots are of matplotlib 3.10")
    saved = (SNAPSHOTS / f"{name}.png").read_bytes()
    assert len(saved) < 40_000
    assert distance(saved, render(PICTURES[name])) < TOLERANCE


def test_a_changed_picture_is_noticed(monkeypatch):
    saved = (SNAPSHOTS / "reliability_2.png").read_bytes()
    y, prob, a = binary(2)
    other = np.where(a == "a", "b", "a")
    assert (
        distance(saved, render(lambda: plot_reliability(y, prob, sensitive_features=other)))
        > TOLERANCE
    )
    monkeypatch.setattr("equipoise.plots._style.COLOURS", COLOURS[1:])
    assert distance(saved, render(PICTURES["reliability_2"])) > TOLERANCE


if __name__ == "__main__":
    mpl.use("Agg")
    SNAPSHOTS.mkdir(exist_ok=True)
    with mpl.rc_context(mpl.rcParamsDefault | {"backend": "Agg", "font.family": "DejaVu Sans"}):
        for picture, draw in PICTURES.items():
            (SNAPSHOTS / f"{picture}.png").write_bytes(render(draw))
