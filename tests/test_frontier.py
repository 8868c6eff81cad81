"""The frontier against its definition by double loops, and the choice of a run by a plain loop."""

import math
import statistics
import subprocess
import sys
import time
from fractions import Fraction

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.metrics import curve, frontier_frequency, hypervolume, pareto_front, pareto_mask
from equipoise.search import balanced_score, choose, select, within_slack

EXAMPLES = settings(deadline=None, derandomize=True, database=None, max_examples=300)
INF, NAN = math.inf, math.nan

# few values, so that ties, duplicates and points that are not finite are common
coordinate = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, INF, -INF, NAN])
some_points = st.lists(st.tuples(coordinate, coordinate), max_size=12)
any_float = st.floats(allow_nan=True, allow_infinity=True)
any_points = st.lists(st.tuples(any_float, any_float), max_size=12)


def finite(point):
    return all(math.isfinite(v) for v in point)


def loop_mask(points):
    def excludes(q, p):
        return finite(q) and q[0] <= p[0] and q[1] <= p[1] and (q[0] < p[0] or q[1] < p[1])

    return [finite(p) and not any(excludes(q, p) for q in points) for p in points]


def loop_area(points, reference):
    """Add up the cells of the grid of all coordinates whose lower corner some point dominates."""
    inside = [p for p in points if finite(p) and p[0] < reference[0] and p[1] < reference[1]]
    axes = [sorted({Fraction(p[d]) for p in inside} | {Fraction(reference[d])}) for d in (0, 1)]
    total = Fraction(0)
    for left, right in zip(axes[0], axes[0][1:], strict=False):
        for low, high in zip(axes[1], axes[1][1:], strict=False):
            if any(p[0] <= left and p[1] <= low for p in inside):
                total += (right - left) * (high - low)
    return total


# --- the frontier ----------------------------------------------------------------------------


@EXAMPLES
@given(some_points | any_points)
def test_the_mask_is_the_definition(points):
    assert pareto_mask(points).tolist() == loop_mask(points)


def test_the_mask_of_many_points_and_of_each_layout():
    points = np.random.default_rng(0).integers(0, 30, (300, 2)).astype(float)
    points[::7, 0], points[::11, 1] = NAN, -INF
    kept = points.copy()
    expected = loop_mask(points.tolist())
    assert sum(expected) > 2
    for layout in (points, np.asfortranarray(points), points.astype(np.float32), points.tolist()):
        assert pareto_mask(layout).tolist() == expected
    assert pareto_mask(points).dtype == bool
    np.testing.assert_array_equal(points, kept)


def test_no_points_and_only_points_that_are_not_finite():
    assert pareto_mask([]).shape == (0,)
    assert pareto_mask(np.zeros((0, 2))).shape == (0,)
    assert not pareto_mask([[NAN, 0], [-INF, 0], [0, INF]]).any()


def test_a_million_points_take_a_moment():
    points = np.random.default_rng(0).random((1_000_000, 2))
    start = time.perf_counter()
    mask = pareto_mask(points)
    assert time.perf_counter() - start < 10  # a tenth of this when the machine is idle
    assert 1 < mask.sum() < 100


@pytest.mark.parametrize("function", [pareto_mask, pareto_front])
@pytest.mark.parametrize("shape", [(2,), (3, 3), (2, 3, 2), (3, 1)])
def test_points_are_pairs(function, shape):
    with pytest.raises(ValueError, match=r"points must be \(point, 2\), got shape"):
        function(np.zeros(shape))


@EXAMPLES
@given(some_points | any_points)
def test_the_front_is_the_distinct_points_of_the_frontier_in_order(points):
    distinct = {p for p, on in zip(points, loop_mask(points), strict=True) if on}
    front = pareto_front(points)
    assert front.shape == (len(distinct), 2)
    assert [tuple(p) for p in front.tolist()] == sorted(distinct)
    assert (np.diff(front[:, 1]) < 0).all()


@pytest.mark.slow
@EXAMPLES
@given(some_points, st.lists(st.integers(-8, 16).map(lambda v: v / 4), min_size=1))
def test_the_curve_joins_the_front_by_straight_lines(points, at):
    front = sorted({p for p, on in zip(points, loop_mask(points), strict=True) if on})
    found = curve(points, at)
    assert found.shape == (len(at),)
    for x, y in zip(at, found, strict=True):
        if not front or not front[0][0] <= x <= front[-1][0]:
            assert math.isnan(y)
            continue
        left = max(p for p in front if p[0] <= x)
        right = min(p for p in front if p[0] >= x)
        share = 0 if left == right else (x - left[0]) / (right[0] - left[0])
        assert y == pytest.approx(left[1] + share * (right[1] - left[1]), abs=1e-12)


def test_the_curve_keeps_the_shape_of_where_it_is_asked():
    points = [[0, 1], [1, 0]]
    assert curve(points, 0.25).shape == ()
    assert curve(points, 0.25) == 0.75
    assert curve(points, [[0, 1], [NAN, INF]]).shape == (2, 2)
    assert np.isnan(curve(points, [NAN, INF, -INF])).all()
    assert np.isnan(curve([], [[0.0]])).all()


@EXAMPLES
@given(some_points, st.tuples(*[st.sampled_from([-1.0, 0.0, 1.0, 2.5, 4.0])] * 2))
def test_the_hypervolume_is_the_union_of_rectangles(points, reference):
    assert hypervolume(points, reference) == float(loop_area(points, reference))


@pytest.mark.parametrize("seed", range(5))
def test_the_hypervolume_of_random_points(seed):
    points = np.random.default_rng(seed).random((40, 2))
    area = hypervolume(points, (0.9, 0.8))
    assert area == pytest.approx(float(loop_area(points.tolist(), (0.9, 0.8))), rel=1e-12)
    assert isinstance(area, float)


def test_hypervolumes_in_closed_form():
    assert hypervolume([], (1, 1)) == 0
    assert hypervolume([[0.25, 0.5]], (1, 1)) == 0.375
    assert hypervolume([[1, 0], [0, 1], [NAN, 0], [0, -INF]], (1, 1)) == 0
    n = 100
    steps = [[i / n, 1 - (i + 1) / n] for i in range(n)]
    assert hypervolume(steps, (1, 1)) == pytest.approx((n + 1) / (2 * n))


@pytest.mark.parametrize("reference", [(1, INF), (NAN, 1), 1.0, (1, 2, 3), ()])
def test_the_reference_is_two_finite_numbers(reference):
    with pytest.raises(ValueError, match="reference must be two finite numbers"):
        hypervolume([[0, 0]], reference)


# --- replicates ------------------------------------------------------------------------------


def loop_frequency(points, n_bootstrap, seed):
    """Integer points: sums decide as averages do, and are exact."""
    n = len(points)
    on = [0] * len(points[0])
    for draw in np.random.default_rng(seed).integers(0, n, (n_bootstrap, n)).tolist():
        sums = [[sum(float(points[r][i][d]) for r in draw) for d in (0, 1)] for i in range(len(on))]
        # with inf in one and -inf in another replicate the sum is nan, not finite either
        on = [count + now for count, now in zip(on, loop_mask(sums), strict=True)]
    return [count / n_bootstrap for count in on]


@pytest.mark.parametrize("replicates", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", [0, 5])
def test_the_frequency_is_that_of_a_plain_loop(replicates, seed):
    rng = np.random.default_rng(replicates)
    points = rng.integers(0, 9, (replicates, 11, 2)).astype(float)
    points[:, 3] = points[:, 8]
    points[0, 0, 0], points[-1, 1, 1], points[0, 2, 0], points[-1, 2, 0] = NAN, -INF, INF, -INF
    kept = points.copy()
    found = frontier_frequency(points, n_bootstrap=83, seed=seed)
    assert found.tolist() == loop_frequency(points.tolist(), 83, seed)
    np.testing.assert_array_equal(points, kept)


def test_frequencies_in_closed_form():
    # on the frontier against (1, 1): always; unless only the first replicate is drawn; only if
    # both are; only if the second alone is; never; only if the first is not drawn
    two = [
        [[1, 1], [2, 2], [0, 4], [3, 3], [2, 2], [NAN, 0]],
        [[1, 1], [2, -2], [4, 0], [0, 0.75], [2, 2], [0.25, 0.25]],
    ]
    n = 4000

    def alone(i):
        return frontier_frequency(np.array(two)[:, [0, i]], n_bootstrap=n)[1]

    for point, expected in [(1, 3 / 4), (3, 1 / 4), (4, 0), (5, 1 / 4)]:
        spread = math.sqrt(expected * (1 - expected) / n)
        assert abs(alone(point) - expected) <= 4 * spread
    # (0, 4) and (4, 0) average to (2, 2), so only a draw of one replicate twice is on it
    assert abs(alone(2) - 1 / 2) <= 4 * math.sqrt(1 / 4 / n)
    assert frontier_frequency(np.array(two)[:, [0]], n_bootstrap=7).tolist() == [1.0]


def test_the_frequency_depends_on_the_seed_alone():
    points = np.random.default_rng(0).random((5, 40, 2))
    first = frontier_frequency(points)
    np.testing.assert_array_equal(first, frontier_frequency(points, n_bootstrap=1000, seed=0))
    assert (first != frontier_frequency(points, seed=1)).any()
    np.testing.assert_array_equal(first[::-1], frontier_frequency(points[:, ::-1]))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 37])
def test_equal_points_are_not_parted_by_rounding(n):
    # a frontier of one point, n times over, in an awkward number of awkward values
    one = np.random.default_rng(n).random((11, 1, 2))
    assert frontier_frequency(np.repeat(one, n, axis=1), n_bootstrap=50).tolist() == [1.0] * n
    other = np.concatenate([np.repeat(one, n, axis=1), one + 1, one], axis=1)
    assert frontier_frequency(other, n_bootstrap=50).tolist() == [1.0] * n + [0.0, 1.0]


def test_replicates_without_points():
    assert frontier_frequency(np.zeros((3, 0, 2))).shape == (0,)


@pytest.mark.parametrize("shape", [(4, 2), (0, 4, 2), (2, 4, 3), (2, 3, 4, 2)])
def test_replicates_are_the_leading_axis(shape):
    with pytest.raises(ValueError, match=r"points must be \(replicate, point, 2\).*got shape"):
        frontier_frequency(np.zeros(shape))


@pytest.mark.parametrize("n_bootstrap", [0, -1, 2.5, True])
def test_the_number_of_draws_is_positive(n_bootstrap):
    with pytest.raises(ValueError, match="n_bootstrap must be a positive integer"):
        frontier_frequency(np.zeros((1, 1, 2)), n_bootstrap=n_bootstrap)


# --- the slack -------------------------------------------------------------------------------


@EXAMPLES
@given(st.integers(1, 5000), st.data())
def test_the_slack_is_strict_in_fractions(n, data):
    correct = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=20))
    slack = data.draw(st.integers(1, n))
    best = Fraction(max(correct), n)
    expected = [Fraction(c, n) > best - Fraction(slack, n) for c in correct]
    assert within_slack([c / n for c in correct], slack / n).tolist() == expected


def test_a_difference_equal_to_the_slack_is_not_within_whatever_the_rounding():
    for best in range(33, 661):
        counts = (best - 33, best - 32)
        found = within_slack([c / 660 for c in counts], best=best / 660)
        assert found.tolist() == [False, True]
    for cents in range(5, 101):
        assert within_slack([cents / 100, (cents - 5) / 100]).tolist() == [True, False]


def test_the_tolerance_is_a_billionth():
    assert within_slack([0.7 + 2e-9, 0.7 + 0.5e-9, 0.7 - 2e-9], best=0.75).tolist() == [
        True,
        False,
        False,
    ]


def test_the_best_is_the_largest_finite_accuracy_unless_given():
    accuracy = [0.5, NAN, 0.46, INF, 0.45, -INF]
    assert within_slack(accuracy).tolist() == [True, False, True, False, False, False]
    assert within_slack(accuracy, best=0.49).tolist() == [True, False, True, False, True, False]
    assert within_slack(accuracy, 0.01).tolist() == [True] + [False] * 5
    assert not within_slack(accuracy, best=0.6).any()
    assert not within_slack([NAN, NAN]).any()
    assert within_slack([]).shape == (0,)
    assert within_slack([[0.5, 0.4]]).tolist() == [[True, False]]


@pytest.mark.parametrize("slack", [1e-8, 1e-9, 1e-12, 1e-300, 5e-324 * 4])
def test_a_tiny_slack_keeps_the_best(slack):
    assert within_slack([0.7, 0.8, 0.8], slack).tolist() == [False, True, True]


@pytest.mark.parametrize("slack", [0, -0.05, NAN, INF])
def test_the_slack_is_positive_and_finite(slack):
    with pytest.raises(ValueError, match="slack must be positive and finite, got"):
        within_slack([0.5], slack)


@pytest.mark.parametrize("best", [NAN, INF, -INF])
def test_the_best_is_finite(best):
    with pytest.raises(ValueError, match="best must be finite, got"):
        within_slack([0.5], best=best)


# --- the choice ------------------------------------------------------------------------------

TECHNIQUES = ["ce", "fl", "mmce"]
INPUTS = {
    "pandas": pd.DataFrame,
    "pandas, an index from 100 on": lambda t: pd.DataFrame(t, index=range(100, 100 + len_of(t))),
    "pandas, categories": lambda t: pd.DataFrame(t).astype({"loss": "category"}),
    "pandas, its own types": lambda t: pd.DataFrame(t).convert_dtypes(),
    "polars": pl.DataFrame,
    "polars, categories": lambda t: pl.DataFrame(t).cast({"loss": pl.Categorical}),
    "pyarrow": pa.table,
    "pyarrow, dictionaries": lambda t: pa.table(
        {n: pa.array(v).dictionary_encode() if n == "loss" else v for n, v in t.items()}
    ),
    "narwhals": lambda t: nw.from_native(pl.DataFrame(t)),
    "duckdb, converted": lambda t: arrow_of_duckdb(pa.table(t)),
    "arrays": lambda t: {n: np.asarray(v) for n, v in t.items()},
    "objects": lambda t: {n: np.array(v, dtype=object) for n, v in t.items()},
    "scalars of numpy": lambda t: {n: [np.asarray(x)[()] for x in v] for n, v in t.items()},
    "lists": dict,
    "tuples": lambda t: {n: tuple(v) for n, v in t.items()},
    "series": lambda t: {n: pd.Series(v, index=range(7, 7 + len(v))) for n, v in t.items()},
}


def len_of(table):
    return len(table["loss"])


def arrow_of_duckdb(table):
    with duckdb.connect() as connection:
        return connection.from_arrow(table).to_arrow_table()


def table_of(seed, n=60, ends=True):
    """Columns as lists; ties, and with `ends` values that are not finite, are common."""
    rng = np.random.default_rng(seed)
    table = {
        "run": list(range(n)),
        "loss": rng.choice(TECHNIQUES, n).tolist(),
        "val_accuracy": (rng.integers(580, 661, n) / 660).tolist(),
        "test_accuracy": rng.random(n).tolist(),
    }
    for part in ("val", "test"):
        for calibration in ("", "_common", "_group"):
            for metric in ("pe", "ece10", "ece15"):
                values = rng.integers(1, 12, n) / 16
                values[rng.random(n) < 0.1 * ends] = rng.choice([INF, NAN])
                table[f"{part}{calibration}_{metric}"] = values.tolist()
    if ends:
        table["val_accuracy"][3] = NAN
    return table


def qualifying(table, slack):
    """Rows as dictionaries, in order, by exact fractions of 660."""
    counts = [None if a != a else Fraction(round(a * 660), 660) for a in table["val_accuracy"]]
    best = max(c for c in counts if c is not None)
    rows = [{name: values[i] for name, values in table.items()} for i in range(len(counts))]
    return [row for row, c in zip(rows, counts, strict=True) if c is not None and c > best - slack]


def loop_select(table, slack, objective, calibration=None, n_bins=15, loss=None):
    rows = qualifying(table, slack)
    stem = f"val_{calibration}" if calibration else "val"
    pe, ece = f"{stem}_pe", f"{stem}_ece{n_bins}"
    rows = [r for r in rows if math.isfinite(r[pe]) and math.isfinite(r[ece])]
    ce = [r for r in rows if r["loss"] == "ce"]
    chosen, least = None, INF
    for row in rows:
        if loss is not None and row["loss"] != loss:
            continue
        if objective == "pe":
            score = row[pe]
        elif objective == "ece":
            score = row[ece]
        else:
            score = row[pe] / statistics.median(r[pe] for r in ce)
            score += row[ece] / statistics.median(r[ece] for r in ce)
        if score < least:
            chosen, least = row, score
    return chosen


def same(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        missing = found[name] is None or found[name] is pd.NA
        if isinstance(value, float) and math.isnan(value):
            assert missing or math.isnan(found[name])
        else:
            assert type(found[name]) is type(value)
            assert found[name] == value


@pytest.mark.slow
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
def test_every_table_gives_the_row_of_the_plain_loop(kind, objective):
    for seed in range(6):
        table = table_of(seed)
        # nan and not null, so that every kind can hold it
        runs = INPUTS[kind](table)
        same(select(runs, objective=objective), loop_select(table, Fraction(1, 20), objective))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
@pytest.mark.parametrize("calibration", [None, "common", "group"])
@pytest.mark.parametrize("n_bins", [10, 15])
@pytest.mark.parametrize("loss", [None, "ce", "mmce"])
def test_every_option_gives_the_row_of_the_plain_loop(objective, calibration, n_bins, loss):
    options = {"calibration": calibration, "n_bins": n_bins, "loss": loss}
    for seed in range(10, 30):
        table = table_of(seed)
        for slack in (Fraction(1, 20), Fraction(1, 30)):
            expected = loop_select(table, slack, objective, **options)
            same(select(table, float(slack), objective, **options), expected)


def test_balanced_and_a_slack_of_five_points_are_the_defaults():
    for seed in range(30, 50):
        table = table_of(seed)
        expected = loop_select(table, Fraction(1, 20), "balanced", "", 15, None)
        same(select(table), expected)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "arrays", "lists"])
def test_a_function_sees_the_rows_within_the_slack_and_no_other(kind):
    table = table_of(3)
    seen = []

    def objective(row):
        seen.append(dict(row))
        run = row["run"]
        row.clear()  # harms nothing
        return (run - 40) ** 2

    rows = qualifying(table, Fraction(1, 20))
    found = select(INPUTS[kind](table), objective=objective)
    assert [row["run"] for row in seen] == [row["run"] for row in rows]
    for one, row in zip(seen, rows, strict=True):
        same(one, row)
    same(found, min(rows, key=lambda row: (row["run"] - 40) ** 2))

    seen.clear()
    found = select(INPUTS[kind](table), objective=objective, loss="fl")
    rows = [row for row in rows if row["loss"] == "fl"]
    assert [row["run"] for row in seen] == [row["run"] for row in rows]
    same(found, min(rows, key=lambda row: (row["run"] - 40) ** 2))


def test_a_function_over_more_rows_than_a_slice():
    n = 10_000
    runs = {"val_accuracy": np.full(n, 0.5), "x": np.arange(n)}
    assert select(runs, objective=lambda row: abs(row["x"] - 9_000))["x"] == 9_000


def test_what_a_function_may_return():
    runs = {"val_accuracy": [0.5, 0.5, 0.5, 0.5], "x": [NAN, INF, 2, 2], "i": [0, 1, 2, 3]}
    assert select(runs, objective=lambda row: row["x"])["i"] == 2
    assert select(runs, objective=lambda row: np.float32(-row["i"]))["i"] == 3
    assert select(runs, objective=lambda row: Fraction(row["i"], 3))["i"] == 0
    assert select(runs, objective=lambda row: INF if row["i"] else NAN)["i"] == 1
    assert select(runs, objective=lambda row: np.int64(row["i"]))["i"] == 0
    with pytest.raises(ValueError, match="nothing to choose: the objective is nan for every row"):
        select(runs, objective=lambda _: NAN)
    for value in (None, "1", True, np.True_, [1.0], 1j):
        with pytest.raises(TypeError, match=r"for row 0; it must return a number, lower being"):
            select(runs, objective=lambda _, value=value: value)


@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
def test_the_first_of_equals_is_chosen(objective):
    table = {
        "loss": ["ce", "fl", "fl", "fl"],
        "val_accuracy": [0.8, 0.79, 0.8, 0.78],
        "val_pe": [2.0, 1.0, 1.0, 1.0],
        "val_ece15": [2.0, 1.0, 1.0, 1.0],
        "run": [0, 1, 2, 3],
    }
    assert select(table, objective=objective)["run"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
@pytest.mark.parametrize("loss", [None, "fl"])
def test_no_test_column_has_a_say(objective, loss):
    rng = np.random.default_rng(0)
    for seed in range(10):
        table = table_of(seed)
        chosen = select(table, objective=objective, loss=loss)["run"]
        for name in [n for n in table if n.startswith("test_")]:
            for values in (rng.random(60), -rng.random(60), np.full(60, NAN), ["?"] * 60):
                changed = select({**table, name: values}, objective=objective, loss=loss)
                assert changed["run"] == chosen
        bare = {n: v for n, v in table.items() if not n.startswith("test_")}
        assert select(bare, objective=objective, loss=loss)["run"] == chosen


def test_the_slack_is_that_of_all_losses():
    table = {
        "loss": ["ce", "fl", "fl"],
        "val_accuracy": [0.80, 0.76, 0.74],
        "val_pe": [0.3, 0.2, 0.1],
        "val_ece15": [0.1, 0.1, 0.1],
    }
    assert select(table, objective="pe", loss="fl")["val_pe"] == 0.2
    assert select(table, 0.07, "pe", loss="fl")["val_pe"] == 0.1
    with pytest.raises(
        ValueError, match=r"loss 'fl' has no row within 0.03 of .* 0.8; widen the slack"
    ):
        select(table, 0.03, "pe", loss="fl")
    with pytest.raises(ValueError, match="no row of loss 'FL'; its losses are ce, fl"):
        select(table, loss="FL")


def test_the_unit_is_the_median_of_cross_entropy_within_the_slack():
    table = {
        "loss": ["ce"] * 5 + ["fl", "fl"],
        "val_accuracy": [0.8, 0.8, 0.8, 0.8, 0.7, 0.8, 0.8],
        # of the rows within the slack whose PE is finite the median is 4, of ECE it is 1
        "val_pe": [4.0, 4.0, 4.0, INF, 0.1, 1.0, 2.0],
        "val_ece15": [1.0, 1.0, 1.0, 90.0, 90.0, 0.5, 0.3],
    }
    # 1/4 + 0.5 = 0.75 against 2/4 + 0.3 = 0.8; a smaller unit of PE only favours the first more
    assert select(table)["val_pe"] == 1.0
    table["val_pe"][:3] = [8.0] * 3
    assert select(table)["val_pe"] == 2.0


def test_nulls_are_neither_chosen_nor_in_a_median():
    values = {
        "loss": ["ce", None, "fl", "fl", "ce"],
        "val_accuracy": [0.8, 0.8, 0.8, None, 0.8],
        "val_pe": [0.5, None, 0.4, 0.1, None],
        "val_ece15": [0.5, 0.1, 0.4, 0.1, 0.1],
        "rho": [None, 0.1, 0.2, 0.3, 0.4],
    }
    for make in (
        pd.DataFrame,
        lambda v: pd.DataFrame(v).convert_dtypes(),
        pl.DataFrame,
        pa.table,
        dict,
    ):
        for objective in ("balanced", "pe", "ece"):
            assert select(make(values), objective=objective)["rho"] == 0.2
    assert select(pl.DataFrame(values), loss="ce")["rho"] is None


def test_a_column_may_hold_tuples():
    table = {"val_accuracy": [0.5, 0.4], "rho": [(0.2, 0.3, 0.5), None]}
    for runs in (table, pd.DataFrame(table)):
        assert select(runs, objective=lambda _: 0) == {"val_accuracy": 0.5, "rho": (0.2, 0.3, 0.5)}


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["loss", "val_accuracy", "val_group_pe", "val_group_ece10"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "lists"])
def test_a_missing_column_is_named(name, kind):
    runs = INPUTS[kind]({n: v for n, v in table_of(0).items() if n != name})
    with pytest.raises(ValueError, match=rf"runs has no column '{name}'; its columns are run, "):
        select(runs, calibration="group", n_bins=10)


def test_a_table_without_rows():
    empty = {"loss": [], "val_accuracy": [], "val_pe": [], "val_ece15": []}
    for runs in (empty, pd.DataFrame(empty), pl.DataFrame(empty), pa.table(empty), {}):
        with pytest.raises(ValueError, match="runs has no rows; pass at least one run"):
            select(runs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "fairest"}, "unknown objective 'fairest'; use one of balanced, pe, ece, or"),
        ({"objective": None}, "unknown objective None"),
        ({"calibration": "_group"}, "unknown calibration '_group'; use None, 'common' or"),
        ({"n_bins": 20}, "runs has no column 'val_ece20'"),
        ({"slack": 0}, "slack must be positive and finite, got 0"),
        ({"loss": "dca"}, "runs has no row of loss 'dca'; its losses are ce, fl, m"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        select(table_of(0), **options)


def test_what_is_not_a_table():
    lazy, relation = pl.LazyFrame({"a": [1]}), duckdb.sql("select 1 as a")
    for runs in ([1, 2], np.zeros((3, 3)), "runs.parquet", None, lazy, relation):
        with pytest.raises(TypeError, match=r"runs must be a pandas, .* got \w+; collect a lazy"):
            select(runs)
    with pytest.raises(ValueError, match=r"differ in length: {'val_accuracy': 2, 'val_pe': 1}"):
        select({"val_accuracy": [0.5, 0.5], "val_pe": [1.0]})
    with pytest.raises(ValueError, match=r"column 'val_pe' .* got shape \(2, 2\); .* ravel\(\)"):
        select({"val_accuracy": [0.5, 0.5], "val_pe": np.zeros((2, 2))})
    with pytest.raises(TypeError, match="val_accuracy must hold numbers"):
        select({"val_accuracy": ["high", "low"]})


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_no_accuracy_is_finite(value):
    with pytest.raises(ValueError, match="val_accuracy is not finite in any row; drop the runs"):
        select({**table_of(0), "val_accuracy": [value] * 60})


@pytest.mark.parametrize("objective", ["pe", "ece"])
@pytest.mark.parametrize("name", ["val_pe", "val_ece15"])
def test_no_row_is_finite(objective, name):
    with pytest.raises(ValueError, match=r"nothing to choose: no row .* finite PE and ECE .* 0.05"):
        select({**table_of(0), name: [INF] * 60}, objective=objective)


def test_balanced_needs_cross_entropy_and_a_unit():
    table = table_of(0, ends=False)
    others = ["fl" if t == "ce" else t for t in table["loss"]]
    with pytest.raises(ValueError, match=r"no row of cross-entropy \('ce'\) .* add such runs"):
        select({**table, "loss": others})
    assert select({**table, "loss": others}, objective="pe")
    poor = [
        a - 0.5 * (t == "ce") for a, t in zip(table["val_accuracy"], table["loss"], strict=True)
    ]
    with pytest.raises(ValueError, match=r"no row of cross-entropy .* within 0.05 of the best"):
        select({**table, "val_accuracy": poor})
    infinite = [INF if t == "ce" else 1.0 for t in table["loss"]]
    with pytest.raises(ValueError, match=r"no row of cross-entropy .* with a finite PE and ECE"):
        select({**table, "val_pe": infinite})
    for name, shown in (("val_pe", "PE"), ("val_ece15", "ECE")):
        with pytest.raises(ValueError, match=rf"median {shown} of cross-entropy is 0.0, .*='pe'"):
            select({**table, name: [0.0] * 60})


# --- arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
@pytest.mark.parametrize("loss", [None, "fl"])
def test_arrays_give_the_position_of_the_plain_loop(objective, loss):
    for seed in range(20):
        table = table_of(seed)
        names = np.array(table["loss"])
        found = choose(
            *(table[name] for name in ("val_accuracy", "val_pe", "val_ece10")),
            slack=1 / 30,
            objective=objective,
            baseline=names == "ce" if objective == "balanced" else None,
            among=None if loss is None else names == loss,
        )
        expected = loop_select(table, Fraction(1, 30), objective, None, 10, loss)
        assert type(found) is int
        assert found == expected["run"]


def test_the_best_may_come_from_elsewhere():
    arrays = [0.7, 0.5], [2.0, 1.0], [1.0, 1.0]
    assert choose(*arrays, objective="pe") == 0
    assert choose(*arrays, objective="pe", best=0.54) == 1
    with pytest.raises(ValueError, match="nothing to choose"):
        choose(*arrays, objective="pe", best=0.9)
    with pytest.raises(ValueError, match="nothing to choose"):
        choose(*arrays, objective="pe", among=np.array([False, False]))


def test_mistakes_with_arrays():
    arrays = [0.7, 0.5], [2.0, 1.0], [1.0, 1.0]
    with pytest.raises(ValueError, match="objective 'balanced' needs baseline="):
        choose(*arrays)
    with pytest.raises(ValueError, match="unknown objective"):
        choose(*arrays, objective=len)
    with pytest.raises(ValueError, match=r"must all be \(row,\), got shapes \[\(1,\), \(2,\)\]"):
        choose(*arrays, objective="pe", among=[True])
    with pytest.raises(ValueError, match=r"must all be \(row,\)"):
        choose([[0.5]], [[0.5]], [[0.5]], objective="pe")
    for name in ("among", "baseline"):
        with pytest.raises(TypeError, match=f"{name} must be booleans, .* got dtype int"):
            choose(*arrays, objective="pe", **{name: [0, 1]})


def test_the_balanced_score():
    assert balanced_score(3.0, 1.0, 2.0, 4.0) == 1.75
    assert balanced_score([1, INF], [1, 1], 1, 2).tolist() == [1.5, INF]
    for units in ((0.0, 1.0), (1.0, 0.0), (NAN, 1.0), (1.0, INF), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="the balanced score divides by it; choose with"):
            balanced_score([1.0], [1.0], *units)


def test_the_module_needs_no_torch():
    code = "import sys, equipoise.search; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
