"""Push-down on every engine against the arrays of NumPy: the same sums, to the last bit."""

from __future__ import annotations

import datetime
from decimal import Decimal

import duckdb
import ibis
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise._inputs import MOST_GROUPS, ROW_SUM_TOLERANCE
from equipoise.auditing._pushdown import Columns, fill, rates_of
from equipoise.auditing._pushdown._cells import Cells, Filling
from equipoise.auditing._pushdown._query import HALF, rounded_off
from equipoise.auditing._pushdown._tables import Filled
from equipoise.metrics import BLOCKS, SUMS, AuditTable, group_base_rates, overall
from equipoise.metrics._sums import bin_of

LOGARITHMS = ("log_loss", "log_loss2")


MAKE = {
    "pandas": pd.DataFrame,
    "pandas, nullable": lambda d: pd.DataFrame(d).convert_dtypes(),
    "polars": pl.DataFrame,
    "polars, lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": lambda d: duckdb.connect().from_arrow(pa.table(d)),
    "ibis": lambda d: ibis.memtable(pa.table(d)),
}
IN_MEMORY = tuple(name for name in MAKE if name != "ibis")


@pytest.fixture(params=MAKE)
def make(request):
    return MAKE[request.param]


@pytest.fixture(params=IN_MEMORY)
def make_quick(request):
    """Engines but for Ibis, which runs on DuckDB and is slow to begin."""
    return MAKE[request.param]


def assert_equal(got: AuditTable, want: AuditTable) -> None:
    assert (got.groups, got.labels, got.n_bins) == (want.groups, want.labels, want.n_bins)
    assert [type(g) for g in got.groups] == [type(g) for g in want.groups]
    assert got.sums.keys() == want.sums.keys()
    for name, sums in want.sums.items():
        assert got.sums[name].dtype == object
        if name in LOGARITHMS:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-9)
        else:
            assert got.sums[name].tolist() == sums.tolist(), name


def predictions(n=400, classes=2, seed=0):
    """Rows with probabilities on and beside the edges of bins, of 0 and of 1."""
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.full(classes, 0.6), n)
    prob[:5] = np.eye(classes)[rng.integers(0, classes, 5)]
    edge = rng.integers(0, 16, 40) / 15
    edge[::3] = np.nextafter(edge[::3], 0.5)
    prob[5:45, 0], prob[5:45, 1] = edge, 1 - edge
    prob[5:45, 2:] = 0
    return {
        "y": rng.integers(0, classes, n),
        "g": np.array(["b", "a", "c, d"])[rng.integers(0, 3, n)],
        "month": rng.integers(1, 4, n),
        **{f"p{k}": prob[:, k] for k in range(classes)},
    }


def matrix(data):
    return np.stack([data[name] for name in data if name.startswith("p")], axis=1)


PROB = {k: tuple(f"p{j}" for j in range(k)) for k in (2, 3, 4, 40)}


# --- the same sums ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n_bins", [15, 7])
def test_one_column_of_probabilities(make, n_bins):
    data = predictions()
    got = fill(make(data), Columns("y", ("p1",), ("g",)), n_bins=n_bins)
    want = AuditTable.from_arrays(
        data["y"], data["p1"], sensitive_features=data["g"], n_bins=n_bins
    )
    assert got.dropped == 0
    assert list(got.tables) == [()]
    assert_equal(got.tables[()], want)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_column_for_each_class(make, classes):
    data = predictions(classes=classes, seed=classes)
    got = fill(make(data), Columns("y", PROB[classes], ("g",)))
    want = AuditTable.from_arrays(data["y"], matrix(data), sensitive_features=data["g"])
    assert_equal(got.tables[()], want)


@pytest.mark.parametrize("classes", [2, 3])
def test_decisions_made_elsewhere(make_quick, classes):
    data = predictions(classes=classes)
    data["d"] = np.random.default_rng(1).integers(0, classes, len(data["y"]))
    got = fill(make_quick(data), Columns("y", PROB[classes], ("g",), pred="d"))
    want = AuditTable.from_arrays(
        data["y"], matrix(data), sensitive_features=data["g"], y_pred=data["d"]
    )
    assert_equal(got.tables[()], want)


@pytest.mark.parametrize("name", ["polars, lazy", "pyarrow"])
def test_many_classes(name):
    data = predictions(classes=40)
    got = fill(MAKE[name](data), Columns("y", PROB[40], ("g",)), n_bins=10)
    want = AuditTable.from_arrays(data["y"], matrix(data), sensitive_features=data["g"], n_bins=10)
    assert_equal(got.tables[()], want)


@pytest.mark.parametrize("classes", [2, 3])
def test_split_by_columns(make_quick, classes):
    data = predictions(classes=classes)
    data["model"] = np.array(["new", "old"])[data["month"] % 2]
    columns = Columns("y", PROB[classes], ("g", "month"), by=("model", "month"))
    got = fill(make_quick(data), columns)
    assert list(got.tables) == [("new", 2), ("old", 1), ("old", 3)]
    for (_, month), table in got.tables.items():
        at = data["month"] == month
        want = AuditTable.from_arrays(
            data["y"][at],
            matrix(data)[at],
            sensitive_features={"g": data["g"][at], "month": data["month"][at]},
        )
        assert_equal(table, want)


def test_tables_of_parts_have_the_same_labels_and_their_own_groups():
    data = {"y": ["u", "v", "v"], "p": [0.2, 0.9, 0.4], "g": [1, 1, 2], "m": ["x", "x", "z"]}
    got = fill(pa.table(data), Columns("y", "p", "g", by="m"))
    assert {by: (t.groups, t.labels) for by, t in got.tables.items()} == {
        ("x",): ((1,), ("u", "v")),
        ("z",): ((2,), ("u", "v")),
    }


def test_without_groups(make_quick):
    data = predictions()
    got = fill(make_quick(data), Columns("y", ("p1",), ()))
    assert_equal(got.tables[()], AuditTable.from_arrays(data["y"], data["p1"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("y", "labels"),
    [
        (np.array([5, 6, 6, 5]), None),
        (np.array([2, 7, 7, 2]), None),
        (np.array([True, False, False, False]), None),
        (np.array([0.0, 1.0, 0.0, 1.0]), None),
        (np.array([-0.5, 1.0, -0.5, 1.0]), None),
        (["no", "yes", "no", "no"], None),
        (["no", "no", "no", "no"], ["yes", "no"]),
        (np.array([1, 1, 1, 1]), [1, 0]),
        (np.array([1, 1, 1, 1]), None),
        (np.array([1, 3, 1, 3], np.uint8), [3, 1]),
    ],
)
def test_labels_of_any_coding(make_quick, y, labels):
    data = {"y": y, "p": [0.2, 0.9, 0.5, 0.0], "g": [True, False, True, True]}
    got = fill(make_quick(data), Columns("y", "p", "g"), labels=labels).tables[()]
    want = AuditTable.from_arrays(y, data["p"], sensitive_features=data["g"], labels=labels)
    assert_equal(got, want)


@pytest.mark.parametrize("labels", [["0", "1"], ["0.0", 1.0]])
def test_labels_are_matched_by_their_text(labels):
    data = {"y": [0, 1, 1], "p": [0.2, 0.9, 0.4], "g": [1, 2, 2]}
    assert fill(pa.table(data), Columns("y", "p", "g"), labels=labels).tables[()].labels == (0, 1)


@pytest.mark.parametrize(
    "g",
    [
        ["<script>alert(1)</script>", 'say "so", please', "line\nbreak", "it's"],
        [0.5, -0.0, 1e300, -3.0],
        [-(2**62), 2**62, 0, 1],
        [True, False, True, False],
        ["", " ", "  ", "NA"],
    ],
)
def test_groups_of_any_kind(make_quick, g):
    data = {"y": [0, 1, 1, 0], "p": [0.2, 0.9, 0.5, 0.4], "g": g}
    got = fill(make_quick(data), Columns("y", "p", "g")).tables[()]
    assert_equal(got, AuditTable.from_arrays(data["y"], data["p"], sensitive_features=np.array(g)))


def test_categories():
    data = {"y": ["a", "b", "b"], "p": [0.2, 0.9, 0.4], "g": ["x", "x", "w"]}
    want = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=data["g"])
    columns = Columns("y", "p", "g")
    as_category = {"y": "category", "g": "category"}
    arrow = pa.table({n: pa.array(v) for n, v in data.items()})
    dictionaries = [arrow[n].dictionary_encode() if n != "p" else arrow[n] for n in data]
    for frame in (
        pd.DataFrame(data).astype(as_category),
        pl.DataFrame(data, schema_overrides={"g": pl.Categorical, "y": pl.Enum(["b", "a"])}),
        pa.table(dictionaries, names=list(data)),
    ):
        assert_equal(fill(frame, columns).tables[()], want)
    numbers = pd.DataFrame({**data, "g": [3, 3, 1]}).astype(as_category)
    assert fill(numbers, columns).tables[()].groups == (1, 3)


def test_columns_of_pandas_named_by_numbers():
    frame = pd.DataFrame({0: [0, 1, 1], 1: [0.2, 0.9, 0.4], 2: ["x", "x", "w"]})
    assert fill(frame, Columns("0", ("1",), ("2",))).tables[()].groups == ("w", "x")


@pytest.mark.parametrize(
    "kind", [pa.float32(), pa.float16(), pa.decimal128(5, 4), pa.int8(), pa.bool_()]
)
def test_probabilities_of_any_type(kind):
    values = [False, True, True, False] if kind == pa.bool_() else [0, 1, 1, 0]
    if pa.types.is_floating(kind):
        values = np.array([0.1, 0.3, 0.7, 1.0], kind.to_pandas_dtype())
    elif pa.types.is_decimal(kind):
        values = [Decimal("0.1234"), Decimal("0.9"), Decimal("1"), Decimal("0")]
    data = {"y": [0, 1, 1, 0], "p": pa.array(values, kind), "g": [1, 2, 1, 2]}
    numbers = values if pa.types.is_floating(kind) else [float(v) for v in values]
    want = AuditTable.from_arrays(data["y"], numbers, sensitive_features=data["g"])
    assert_equal(fill(pa.table(data), Columns("y", "p", "g")).tables[()], want)
    if kind != pa.float16():  # which DuckDB does not have
        assert_equal(fill(MAKE["duckdb"](data), Columns("y", "p", "g")).tables[()], want)


@pytest.mark.parametrize("n_bins", [10, 15])
@pytest.mark.parametrize("steps", [15, 20])
def test_float32_on_edges_is_in_the_bin_of_the_number_it_stands_for(
    make_quick, n_bins, steps, tmp_path
):
    rng = np.random.default_rng(0)
    whole = rng.integers(0, steps + 1, 300)
    data = {"y": rng.integers(0, 2, 300), "g": rng.integers(0, 2, 300)}
    wide = {"p0": (steps - whole) / steps, "p1": whole / steps}
    short = data | {name: p.astype(np.float32) for name, p in wide.items()}
    pd.DataFrame(short).to_parquet(tmp_path / "short.parquet")
    for prob in ("p1", ("p0", "p1")):
        of = wide["p1"] if prob == "p1" else np.stack(list(wide.values()), axis=1)
        want = AuditTable.from_arrays(data["y"], of, sensitive_features=data["g"], n_bins=n_bins)
        for source in (make_quick(short), tmp_path / "short.parquet"):
            got = fill(source, Columns("y", prob, "g"), n_bins=n_bins).tables[()]
            for metric in ("ece", "classwise_ece"):
                assert overall(got, metric) == pytest.approx(overall(want, metric), abs=1e-6)


def test_a_column_may_have_several_roles():
    data = {"y": [0, 1, 1], "p": [0.2, 0.9, 0.4]}
    got = fill(pl.LazyFrame(data), Columns("y", "p", "y", pred="y", by="y"))
    assert {by: t.groups for by, t in got.tables.items()} == {(0,): (0,), (1,): (1,)}


def test_rows_in_memory_are_added_up_in_slices(monkeypatch):
    data = predictions(classes=3)
    want = AuditTable.from_arrays(data["y"], matrix(data), sensitive_features=data["g"])
    monkeypatch.setattr("equipoise.auditing._pushdown._tables.SLICE", 150)
    for name in ("pandas", "polars", "pyarrow"):
        assert_equal(fill(MAKE[name](data), Columns("y", PROB[3], ("g",))).tables[()], want)


@pytest.mark.parametrize("name", ["pandas", "polars, lazy", "duckdb"])
def test_labels_that_the_first_rows_do_not_have(name, monkeypatch):
    monkeypatch.setattr("equipoise.auditing._pushdown._tables.SAMPLE", 10)
    rng = np.random.default_rng(0)
    for y in (["a"] * 20 + ["b"] * 20, [1] * 20 + [2] * 20, [1] * 10 + [0] * 30, [0, 1] * 20):
        data = {"y": y, "p": rng.random(40), "g": [1] * 20 + [2] * 20, "d": y[::-1]}
        got = fill(MAKE[name](data), Columns("y", "p", "g", pred="d")).tables[()]
        want = AuditTable.from_arrays(y, data["p"], sensitive_features=data["g"], y_pred=data["d"])
        assert_equal(got, want)


def test_log_of_a_denormal_probability():
    data = {"y": [1, 1, 0], "p": [5e-324, 0.0, 0.5], "g": [1, 1, 1]}
    want = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=data["g"])
    for make in MAKE.values():
        assert_equal(fill(make(data), Columns("y", "p", "g")).tables[()], want)


edges = st.builds(
    lambda k, m, to: float(np.clip(np.nextafter(k / m, to) if to >= 0 else k / m, 0, 1)),
    st.integers(0, 20),
    st.just(20),
    st.sampled_from([-1.0, 0.0, 1.0]),
)
numbers = st.floats(0, 1) | edges | st.floats(0, 1, width=32) | st.sampled_from([0.0, 1.0, 0.5])


@st.composite
def tables(draw):
    n = draw(st.integers(1, 12))
    k = draw(st.integers(1, 4))
    if k == 1:
        prob = [np.array(draw(st.lists(numbers, min_size=n, max_size=n)))]
    else:
        rows = [draw(st.lists(numbers, min_size=k, max_size=k)) for _ in range(n)]
        rows = [r if sum(r) > 0 else [1.0, *[0.0] * (k - 1)] for r in rows]
        prob = list(np.array([np.array(r) / sum(r) for r in rows]).T)
    classes = max(2, k)
    word = st.sampled_from(
        [["a", "b", "c", "d"], [0, 1, 2, 3], [-1, 3, 5, 7], [0.5, 1.0, 2.5, 9.0]]
    )
    labels = draw(word)[:classes]
    pick = st.lists(st.sampled_from(labels), min_size=n, max_size=n)
    group = st.lists(st.sampled_from(["x", "y, z", ""]), min_size=n, max_size=n)
    data = {
        "y": draw(pick),
        "g": draw(group),
        "h": draw(st.lists(st.booleans(), min_size=n, max_size=n)),
    }
    if draw(st.booleans()):
        data["d"] = draw(pick)
    return data | {f"p{j}": p for j, p in enumerate(prob)}, labels


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.sampled_from(["duckdb", "polars", "polars, lazy", "pandas", "pyarrow"]),
       st.sampled_from([1, 10, 15, 20, 49]))  # fmt: skip
def test_any_valid_table(found, engine, n_bins):
    data, labels = found
    prob = tuple(name for name in data if name.startswith("p"))
    pred = "d" if "d" in data else None
    columns = Columns("y", prob, ("g", "h"), pred=pred)
    got = fill(MAKE[engine](data), columns, labels=labels, n_bins=n_bins).tables[()]
    values = data["p0"] if len(prob) == 1 else matrix(data)
    want = AuditTable.from_arrays(
        data["y"],
        values,
        sensitive_features={"g": data["g"], "h": data["h"]},
        labels=labels,
        n_bins=n_bins,
        y_pred=data.get("d"),
    )
    assert_equal(got, want)


def test_sums_by_a_plain_loop():
    data = predictions(n=100)
    got = fill(MAKE["duckdb"](data), Columns("y", ("p1",), ("g",))).tables[()]
    unit = 2**32
    for i, g in enumerate(got.groups):
        rows = [
            (int(y), float(p))
            for y, p, own in zip(data["y"], data["p1"], data["g"], strict=True)
            if own == g
        ]
        assert got.sums["rows"][i] == len(rows)
        for k in (0, 1):
            p_k = [p if k else 1 - p for _, p in rows]
            assert got.sums["probability"][i, k] == sum(int(p * unit + 0.5) for p in p_k)
            assert got.sums["own_probability"][i, k] == sum(
                int(p * unit + 0.5) for (y, _), p in zip(rows, p_k, strict=True) if y == k
            )
        brier = [((1 - p) - (y == 0)) ** 2 + (p - (y == 1)) ** 2 for y, p in rows]
        assert got.sums["brier2"][i] == sum(int(b * b * unit + 0.5) for b in brier)


# --- size ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bins", range(1, 121))
def test_bins_are_those_of_the_arrays(n_bins):
    edge = np.arange(n_bins + 1) / n_bins
    near = [edge]
    for to in (-1.0, 2.0):
        step = edge
        for _ in range(4):
            step = np.nextafter(step, to)
            near.append(step)
    p = np.unique(np.concatenate(near))
    p = p[(p >= 0) & (p <= 1)]
    c = np.ceil(p * n_bins)
    for off, values in rounded_off(n_bins).items():
        c -= off * np.isin(p, values)
    assert (np.maximum(c - 1, 0) == bin_of(p, n_bins)).all()
    assert ((c == 0) == (p == 0)).all()


def test_halves_hold_a_trillion_rows():
    # what an engine would bring back of 10**12 rows: sums of halves, each within 64 bits
    rows, p = 10**12, 2**32 - 1
    answer = pl.DataFrame(
        {"g0": ["a"], "cell": [0], "rows": [rows], "p": [rows * (p % HALF)],
         "p_high": [rows * (p // HALF)]}
    )  # fmt: skip
    cells = Cells.of([nw.from_native(answer)] * 3, ["g0"])
    into = Filling(1, 2, 15)
    into.put("rows", cells.sums["rows"], cells.key)
    into.put("log_loss", cells.sums["p"], cells.key)
    sums = into.finished()
    assert sums["rows"].tolist() == cells.count.sum(keepdims=True).tolist() == [3 * rows]
    assert sums["log_loss"].tolist() == [3 * rows * p]


def test_sums_do_not_overflow_in_the_engine():
    # DuckDB's 128 bits and the halves of the others: 2**21 rows of a log-loss of 744
    n = 1 << 21
    data = {"y": np.ones(n, np.int8), "p": np.full(n, 5e-324), "g": np.zeros(n, np.int8)}
    for name in ("duckdb", "polars, lazy"):
        table = fill(MAKE[name](data), Columns("y", "p", "g"), labels=[0, 1]).tables[()]
        assert table["log_loss"][0] == pytest.approx(n * 744.4400719213812, rel=1e-9)
        many = table
        for _ in range(19):  # 2**40 rows
            many = many + many
        assert many.sums["rows"][0] == 2**40
        assert many.sums["log_loss"][0] == 2**19 * table.sums["log_loss"][0]


def test_too_many_groups(make_quick):
    n = 10 * MOST_GROUPS
    rng = np.random.default_rng(0)
    data = {"y": rng.integers(0, 2, n), "p": rng.random(n), "g": np.arange(n)}
    with pytest.raises(ValueError, match="'g' has more than 10,000 distinct values"):
        fill(make_quick(data), Columns("y", "p", "g"))


@pytest.mark.parametrize("name", ["duckdb", "polars, lazy", "pandas"])
def test_too_many_groups_after_the_first_rows(name, monkeypatch):
    monkeypatch.setattr("equipoise.auditing._pushdown._tables.SAMPLE", 10)
    monkeypatch.setattr("equipoise.auditing._pushdown._tables.MOST_GROUPS", 20)
    monkeypatch.setattr("equipoise.auditing._pushdown._tables.MOST_CELLS", 25)
    y, p = [0, 1] * 30, [0.5] * 60
    for groups, fine in (([1] * 20 + list(range(40)), False), ([1] * 41 + list(range(19)), True)):
        frame = MAKE[name]({"y": y, "p": p, "g": groups})
        if fine:
            assert len(fill(frame, Columns("y", "p", "g")).tables[()].groups) == 19
        else:
            with pytest.raises(ValueError, match="'g' has more than 20 distinct values"):
                fill(frame, Columns("y", "p", "g"))


@pytest.mark.slow
def test_ten_thousand_groups():
    n = 3 * MOST_GROUPS
    rng = np.random.default_rng(0)
    data = {"y": rng.integers(0, 2, n), "p": rng.random(n), "g": np.arange(n) % MOST_GROUPS}
    got = fill(MAKE["duckdb"](data), Columns("y", "p", "g")).tables[()]
    want = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=data["g"])
    assert_equal(got, want)


# --- faults ----------------------------------------------------------------------------------


def faulty(**changes):
    """Eight rows with some values replaced: column=(row, value)."""
    data = {
        "y": [0, 1, 0, 1, 0, 1, 0, 1],
        "p": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        "q": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2],
        "g": ["a", "b"] * 4,
        "m": [1, 1, 1, 1, 2, 2, 2, 2],
        "d": [0, 1, 0, 1, 0, 1, 0, 1],
    }
    for name, (row, value) in changes.items():
        data[name][row] = value
    return data


ALL = Columns("y", "p", "g", pred="d", by="m")


@pytest.mark.slow
@pytest.mark.parametrize("column", ["y", "p", "g", "m", "d"])
def test_a_missing_value(make, column):
    frame = make(faulty(**{column: (3, None)}))
    with pytest.raises(
        ValueError, match=rf"column '{column}' has no value in 1 row of the table \(.*drop_missing"
    ):
        fill(frame, ALL)
    got = fill(frame, ALL, drop_missing=True)
    assert got.dropped == 1
    data = {k: [v for i, v in enumerate(values) if i != 3] for k, values in faulty().items()}
    want = fill(pa.table(data), ALL)
    assert_filled_equal(got, want)


def assert_filled_equal(got: Filled, want: Filled) -> None:
    assert list(got.tables) == list(want.tables)
    for by, table in want.tables.items():
        assert_equal(got.tables[by], table)


@pytest.mark.parametrize("name", ["pandas", "polars", "polars, lazy", "pyarrow", "duckdb"])
def test_nan_is_missing(name):
    data = faulty(p=(2, float("nan")))
    data["g"] = [1.0, 2.0, 1.0, float("nan"), 1.0, 2.0, 1.0, 2.0]
    frame = MAKE[name](data)
    with pytest.raises(ValueError, match="column 'g' has no value in 1 row"):
        fill(frame, Columns("y", "p", "g"))
    got = fill(frame, Columns("y", "p", "g"), drop_missing=True)
    assert (got.dropped, got.tables[()].groups) == (2, (1.0, 2.0))


@pytest.mark.slow
@pytest.mark.parametrize("value", [1.5, -1e-300, float("inf"), -float("inf"), 1 + 2**-52])
def test_a_value_that_is_no_probability(make_quick, value):
    for columns in (Columns("y", "p", "g"), Columns("y", ("p", "q"), "g")):
        with pytest.raises(ValueError, match=r"column 'p' is not within 0\.\.1 in 1 row .*softmax"):
            fill(make_quick(faulty(p=(3, value))), columns, drop_missing=True)


def test_first_faulty_rows_are_shown():
    data = faulty()
    data["p"] = [0.1, 5.0, 0.3, 6.0, 7.0, 8.0, 0.7, 0.8]
    with pytest.raises(ValueError, match=r"in 4 rows .*p 5.0; .*p 6.0; .*p 7.0") as error:
        fill(pa.table(data), Columns("y", "p", "g"))
    assert "8.0" not in str(error.value)


@pytest.mark.parametrize("off", [2 * ROW_SUM_TOLERANCE, -2 * ROW_SUM_TOLERANCE])
def test_probabilities_that_do_not_sum_to_one(make_quick, off):
    frame = make_quick(faulty(p=(3, 0.4 + off)))
    with pytest.raises(ValueError, match=r"the columns p, q do not sum to 1 in 1 row .*p 0.[34]"):
        fill(frame, Columns("y", ("p", "q"), "g"))


def test_a_label_outside_the_labels(make_quick):
    for column, columns in (("y", Columns("y", "p", "g")), ("d", ALL)):
        with pytest.raises(ValueError, match=f"column '{column}' is none of the labels 0, 1 in 1 "):
            fill(make_quick(faulty(**{column: (3, 7)})), columns, labels=[0, 1])


@pytest.mark.parametrize(
    ("y", "labels", "message"),
    [
        (["a", "b", "c"], None, r"3 distinct labels \('a', 'b', 'c'\) for 2 columns"),
        (["a", "a", "a"], None, "1 distinct labels .* pass labels="),
        ([0, 1, 2], None, "3 distinct labels"),
        ([0, 1, 1], [0, 1, 2], "labels must name the 2 columns"),
        ([0, 1, 1], [1, 1], "labels must name the 2 columns"),
    ],
)
def test_labels_that_do_not_match_the_columns(y, labels, message):
    data = {"y": y, "p": [0.1, 0.2, 0.3], "g": [1, 1, 2]}
    for name in ("pyarrow", "duckdb"):
        with pytest.raises(ValueError, match=message):
            fill(MAKE[name](data), Columns("y", "p", "g"), labels=labels)


def test_no_rows(make):
    empty = {"y": np.array([], int), "p": np.array([], float), "g": np.array([], float)}
    with pytest.raises(ValueError, match="the table has no rows"):
        fill(make(empty), Columns("y", "p", "g"))


def test_no_rows_left():
    data = {"y": [0, 1], "p": [None, None], "g": [1, 2]}
    frame = pa.table(data, schema=pa.schema([("y", "int8"), ("p", "double"), ("g", "int8")]))
    with pytest.raises(ValueError, match="no rows without a missing value"):
        fill(frame, Columns("y", "p", "g"), drop_missing=True)


def test_a_column_that_is_not_there(make):
    with pytest.raises(ValueError, match=r"there is no column 'pp'; did you mean 'p'?"):
        fill(make(faulty()), Columns("y", "pp", "g"))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("g", [datetime.date(2020, 1, 1)] * 8, "column 'g' holds dates"),
        ("y", [datetime.datetime(2020, 1, 1)] * 8, "column 'y' holds dates"),
        ("g", [datetime.timedelta(1)] * 8, "column 'g' holds dates"),
        ("g", [[1]] * 8, "lists|List"),
        ("p", ["0.5"] * 8, "column 'p' holds .*, not probabilities"),
        ("p", [datetime.date(2020, 1, 1)] * 8, "column 'p' holds .*, not probabilities"),
        ("g", [b"a"] * 8, "Binary|cannot be read|bytes"),
    ],
)
@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow", "duckdb"])
def test_columns_of_a_wrong_type(name, column, values, message):
    data = faulty() | {column: values}
    with pytest.raises((TypeError, ValueError), match=message):
        fill(MAKE[name](data), Columns("y", "p", "g"))


def test_columns_with_the_same_name():
    frame = pd.DataFrame([[0, 0.5, 1, 1], [1, 0.5, 2, 2]], columns=["y", "p", "g", "g"])
    with pytest.raises(ValueError, match="g"):
        fill(frame, Columns("y", "p", "g"))


def test_values_that_cannot_be_ordered():
    frame = pd.DataFrame({"y": [0, 1], "p": [0.1, 0.2], "g": pd.Series(["a", 1], dtype=object)})
    with pytest.raises(TypeError, match="column 'g' mixes values"):
        fill(frame, Columns("y", "p", "g"))


def test_what_is_no_table():
    for data in (3, None, {"y": [1]}, [1, 2], np.zeros((3, 3))):
        with pytest.raises(TypeError, match="pass a table"):
            fill(data, Columns("y", "p", "g"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_bins": 0}, "n_bins must be a positive integer"),
        ({"engine": "sqlite"}, "engine must be one of duckdb, polars, spark"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        fill(pa.table(faulty()), Columns("y", "p", "g"), **arguments)


def test_wrong_columns():
    with pytest.raises(ValueError, match="given twice as group"):
        Columns("y", "p", ("g", "g"))
    with pytest.raises(ValueError, match="prob names no column"):
        Columns("y", (), ("g",))


def test_data_is_not_changed():
    data = faulty()
    frame = pd.DataFrame(data)
    fill(frame, ALL)
    pd.testing.assert_frame_equal(frame, pd.DataFrame(faulty()))


# --- rates -----------------------------------------------------------------------------------


def test_rates(make):
    data = predictions()
    for labels in (None, [1, 0], [0, 1, 2]):
        got = rates_of(make(data), "y", "g", labels=labels).rates
        want = group_base_rates(data["y"], sensitive_features=data["g"], labels=labels).rates
        assert got == want
        assert list(got) == list(want)
    got = rates_of(make(data), "y", ["g", "month"]).rates
    pair = {"g": data["g"], "month": data["month"]}
    assert got == group_base_rates(data["y"], sensitive_features=pair).rates


def test_rates_of_faulty_tables():
    with pytest.raises(ValueError, match="column 'g' of the table has no value in 1 row;"):
        rates_of(pa.table(faulty(g=(1, None))), "y", "g")
    with pytest.raises(ValueError, match=r"contains 1, which is not in labels=\[0, 5\]"):
        rates_of(pa.table(faulty()), "y", "g", labels=[0, 5])
    with pytest.raises(ValueError, match="no column 'h'"):
        rates_of(pa.table(faulty()), "y", "h")
    with pytest.raises(ValueError, match="has no rows"):
        rates_of(pd.DataFrame({"y": [], "g": []}), "y", "g")


def test_every_sum_is_filled():
    table = fill(pa.table(faulty()), Columns("y", "p", "g")).tables[()]
    assert table.sums.keys() == {name for name, spec in SUMS.items() if spec.block in BLOCKS}


def test_names_that_differ_in_their_case_only():
    data = faulty() | {"P": [0.9] * 8}
    plain = fill(pd.DataFrame(faulty()), Columns("y", "p", "g")).tables
    for name in ("pandas", "polars", "pyarrow"):
        assert fill(MAKE[name](data), Columns("y", "p", "g")).tables == plain
    with pytest.raises(ValueError, match="columns 'p' and 'P', which databases take for one"):
        fill(MAKE["ibis"](data), Columns("y", "p", "g"))


def test_decisions_are_labels_by_value():
    y, d = [True, False, True, False] * 2, [1, 0, 1, 1] * 2
    data = faulty() | {"y": y, "d": d}
    for name in ("pandas", "polars", "pyarrow", "duckdb"):
        table = fill(MAKE[name](data), Columns("y", "p", "g", pred="d")).tables[()]
        assert table["hits"].sum() == 6
        assert table["predictions"].sum(0).tolist() == [2, 6]


def test_dates_split_as_they_are_written():
    days = [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)] * 4
    for name in ("polars", "pyarrow", "duckdb"):
        found = fill(MAKE[name](faulty() | {"day": days}), Columns("y", "p", "g", by="day"))
        assert list(found.tables) == [("2026-01-31",), ("2026-02-01",)]


def test_intervals_as_groups_are_refused():
    frame = pd.DataFrame(faulty() | {"g": pd.cut(range(8), [-1, 3, 8])})
    with pytest.raises(TypeError, match=r"column 'g': Interval.*cannot be written as JSON"):
        fill(frame, Columns("y", "p", "g"))


def test_rows_left_out_are_counted_by_part():
    data = faulty() | {"m": ["a", "a", "a", "b", "b", "b", "c", None]}
    data["p"] = [0.1, None, None, 0.2, None, 0.3, 0.4, 0.5]
    for name in ("polars", "pyarrow", "duckdb"):
        frame, columns = MAKE[name](data), Columns("y", "p", "g", by="m")
        found = fill(frame, columns, drop_missing=True)
        assert found.dropped == 4
        assert found.dropped_by == {("a",): 2, ("b",): 1}
        with pytest.raises(ValueError, match=r"'m' has no value in 1 row .*in all 4 rows lack"):
            fill(frame, columns)


# --- periods ---------------------------------------------------------------------------------

TIMES = [
    "2023-12-31 23:30:00",
    "2024-01-01 00:00:00",
    "2024-02-29 12:15:00",
    "2024-03-05 12:00:00",
    "2024-03-05 12:59:59",
    "2024-12-30 08:00:00",
]

PERIODS = {
    "year": ["2023", "2024"],
    "quarter": ["2023-Q4", "2024-Q1", "2024-Q4"],
    "month": ["2023-12", "2024-01", "2024-02", "2024-03", "2024-12"],
    "week": ["2023-W52", "2024-W01", "2024-W09", "2024-W10", "2025-W01"],
    "day": ["2023-12-31", "2024-01-01", "2024-02-29", "2024-03-05", "2024-12-30"],
    "hour": [
        "2023-12-31 23h",
        "2024-01-01 00h",
        "2024-02-29 12h",
        "2024-03-05 12h",
        "2024-12-30 08h",
    ],
}


def timed(times, n=60):
    """Rows at some times, one after another, of four persons."""
    rng = np.random.default_rng(0)
    return {
        "y": rng.integers(0, 2, n),
        "p": rng.random(n),
        "g": rng.integers(0, 2, n),
        "person": rng.integers(0, 4, n),
        "ts": [times[i % len(times)] for i in range(n)],
    }


def as_times(data, kind=datetime.datetime):
    return {**data, "ts": [kind.fromisoformat(t) for t in data["ts"]]}


@pytest.mark.parametrize("unit", PERIODS)
def test_timestamps_are_cut_to_periods(make_quick, unit):
    data = timed(TIMES)
    got = fill(make_quick(as_times(data)), Columns("y", "p", "g", by=f"ts:{unit}"))
    assert list(got.tables) == [(name,) for name in PERIODS[unit]]
    as_text = fill(make_quick(data), Columns("y", "p", "g", by=f"ts:{unit}"))
    assert as_text.tables == got.tables
    with_t = {**data, "ts": [t.replace(" ", "T") if i % 2 else t for i, t in enumerate(data["ts"])]}
    mixed = fill(make_quick(with_t), Columns("y", "p", "g", by=f"ts:{unit}"))
    assert mixed.tables == got.tables


@pytest.mark.parametrize("unit", PERIODS)
def test_dates_are_cut_to_periods(make_quick, unit):
    data = timed([t[:10] for t in TIMES])
    source = make_quick(as_times(data, datetime.date))
    columns = Columns("y", "p", "g", by=f"ts:{unit}")
    if unit == "hour":
        if "pandas" not in type(source).__module__:  # which holds dates as objects
            with pytest.raises(TypeError, match="dates without a time; cut it with ts:day"):
                fill(source, columns)
        return
    got = fill(source, columns)
    assert list(got.tables) == [(name,) for name in PERIODS[unit]]
    assert fill(make_quick(data), columns).tables == got.tables


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_times_in_files(tmp_path, monkeypatch, engine, kind, zone):
    monkeypatch.setenv("TZ", "America/New_York")
    data = pd.DataFrame(as_times(timed(TIMES)))
    if zone is not None:
        data["ts"] = data.ts.dt.tz_localize("UTC").dt.tz_convert(
            zone if kind == "parquet" else "UTC"
        )
    path = tmp_path / f"rows.{kind}"
    data.to_csv(path, index=False) if kind == "csv" else data.to_parquet(path)
    for unit, names in PERIODS.items():
        got = fill(path, Columns("y", "p", "g", by=f"ts:{unit}"), engine=engine)
        assert list(got.tables) == [(name,) for name in names]


def test_a_cluster_in_two_months_of_a_quarter_counts_once(make_quick):
    data = timed(TIMES)
    columns = Columns("y", "p", "g", by="ts:quarter", cluster="person")
    got = fill(make_quick(as_times(data)), columns)
    for (quarter,), table in got.tables.items():
        own = [t[:4] + f"-Q{(int(t[5:7]) + 2) // 3}" == quarter for t in data["ts"]]
        want = AuditTable.from_arrays(
            data["y"][own],
            data["p"][own],
            sensitive_features=data["g"][own],
            clusters=data["person"][own],
            labels=[0, 1],
        )
        for name in want.sums:
            np.testing.assert_allclose(table[name], want[name], rtol=1e-9, atol=1e-12)
        for name, values in want.pooled_units.items():
            np.testing.assert_allclose(table.pooled_units[name], values, rtol=1e-9, atol=1e-12)


def test_missing_times(make_quick, tmp_path):
    for times in (timed(TIMES), as_times(timed(TIMES))):
        times["ts"][3] = None
        with pytest.raises(ValueError, match="column 'ts:month' has no value in 1 row"):
            fill(make_quick(times), Columns("y", "p", "g", by="ts:month"))
        got = fill(make_quick(times), Columns("y", "p", "g", by="ts:month"), drop_missing=True)
        assert got.dropped == 1
    pd.DataFrame(timed(["2024-03-05", "NA"])).to_csv(tmp_path / "rows.csv", index=False)
    columns = Columns("y", "p", "g", by="ts:month")
    assert fill(tmp_path / "rows.csv", columns, drop_missing=True).dropped == 30


def test_a_column_of_that_very_name_is_taken_as_it_is():
    data = timed(TIMES)
    data["ts:month"] = data.pop("g")
    got = fill(pl.DataFrame(data), Columns("y", "p", (), by="ts:month"))
    assert list(got.tables) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("times", "by", "match"),
    [
        (TIMES, "ts:decade", "'decade' is no period .* use year, quarter, month, week, day or"),
        (TIMES, "nowhere:month", "there is no column 'nowhere'"),
        (
            ["2024-03-05", "5.3.2024"],
            "ts:month",
            r"column 'ts' holds '5\.3\.2024', which is no ISO",
        ),
        (["2024-02-31"], "ts:day", "'2024-02-31', which is no ISO date"),
        (["2024-13-01"], "ts:year", "'2024-13-01', which is no ISO date"),
        ([1, 2], "ts:month", r"column 'ts' holds Int64, not dates, so it cannot be cut to months"),
        ([datetime.datetime(2024, 3, 5)], "ts", r"holds timestamps .*by='ts:month'"),
    ],
)
@pytest.mark.parametrize("name", ["pandas", "polars, lazy", "duckdb"])
def test_times_that_cannot_be_cut(name, times, by, match):
    with pytest.raises((TypeError, ValueError), match=match):
        fill(MAKE[name](timed(times)), Columns("y", "p", "g", by=by))
