"""Weights and clusters: the sums over units against plain loops, and what is refused."""

import json
import math

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import oracle_metrics as oracle
from equipoise.auditing import audit, audit_models, merge_audits
from equipoise.auditing._pushdown import Columns, fill
from equipoise.metrics import (
    SUMS,
    AuditTable,
    classwise_calibration_error,
    expected_calibration_error,
)
from table_data import seal

UNITS = [name for name, spec in SUMS.items() if spec.block == "units"]


def rows(n=300, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.ones(classes), n)
    prob[:4] = np.eye(classes)[0]
    return {
        "y_true": rng.integers(0, classes, n),
        "y_prob": prob,
        "sensitive_features": rng.choice(["a", "b", "c"], n),
        "labels": range(classes),
    }


def ids(n=300, clusters=40, seed=1):
    return np.random.default_rng(seed).integers(0, clusters, n)


def weights(n=300, seed=2):
    return np.random.default_rng(seed).random(n)


def part(data, which):
    return {name: v if name == "labels" else v[which] for name, v in data.items()}


def loop_units(data, decisions=None, weight=None, clusters=None, *, pooled=False):
    """The sums over units by name, {group: number or list over the classes}."""
    units, k = {}, data["y_prob"].shape[1]
    for i, (y, p, g) in enumerate(zip(*list(data.values())[:3], strict=True)):
        w = 1.0 if weight is None else weight[i]
        key = (None if pooled else g, i if clusters is None else clusters[i])
        top = oracle.top(p)
        d = top if decisions is None else decisions[i]
        one = {
            "n": [1.0],
            "hit": [float(d == y)],
            "top": [(top == y) - p[top]],
            "brier": [sum((p[j] - (y == j)) ** 2 for j in range(k))],
            "loss": [-math.log(p[y]) if p[y] > 0 else 0.0],
            "label": [float(y == j) for j in range(k)],
            "prob": list(p),
            "pred": [float(d == j) for j in range(k)],
        }
        own = units.setdefault(key, {name: [0.0] * len(x) for name, x in one.items()})
        for name, x in one.items():
            own[name] = [a + w * b for a, b in zip(own[name], x, strict=True)]
    found = {}
    for g in sorted({g for g, _ in units}, key=str):
        for (other, _), own in units.items():
            if other != g:
                continue
            n = own["n"][0]
            terms = {"unit_count": [1.0], "unit_n2": [n * n], "unit_n4": [n**4]}
            for name in ("hit", "top", "brier", "loss", "label", "prob", "pred"):
                terms[f"unit_{name}2"] = [x * x for x in own[name]]
                terms[f"unit_{name}_n"] = [x * n for x in own[name]]
            for name in ("prob", "pred"):
                both = zip(own[name], own["label"], strict=True)
                terms[f"unit_{name}_label"] = [x * y for x, y in both]
            for name, x in terms.items():
                into = found.setdefault(name, {}).setdefault(g, np.zeros(len(x)))
                into += x
    return {name: np.squeeze(np.array(list(own.values()))) for name, own in found.items()}


def assert_same(found, expected, rtol=1e-10):
    for name, value in expected.items():
        np.testing.assert_allclose(
            np.squeeze(found[name]), np.squeeze(value), rtol=rtol, atol=1e-9, err_msg=name
        )


# --- sums ------------------------------------------------------------------------------------


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_sums_over_units_are_those_of_plain_loops(classes, weighted, clustered, decided):
    data = rows(classes=classes)
    given = {
        "weight": weights() if weighted else None,
        "clusters": ids() if clustered else None,
        "decisions": np.random.default_rng(5).integers(0, classes, 300) if decided else None,
    }
    table = AuditTable.from_arrays(
        **data,
        sample_weight=given["weight"],
        clusters=given["clusters"],
        y_pred=given["decisions"],
    )
    assert (table.weighted, table.clustered) == (weighted, clustered)
    if not weighted and not clustered:
        assert not table.sums.keys() & set(UNITS)
        table = table.as_weighted()
    expected = loop_units(data, **given)
    assert expected.keys() == set(UNITS)
    # closed forms of sums in fixed point are off by its unit
    rtol = 1e-10 if weighted or clustered else 1e-6
    assert_same(table, expected, rtol)
    assert_same(table.pooled(), loop_units(data, **given, pooled=True), rtol)


def test_clusters_leave_all_other_sums_as_they_are():
    data = rows()
    plain, own = (AuditTable.from_arrays(**data, clusters=c) for c in (None, ids()))
    assert own.sums.keys() - plain.sums.keys() == set(UNITS)
    for name, value in plain.sums.items():
        assert own.sums[name].tolist() == value.tolist()
        assert own.sums[name].dtype == object


@pytest.mark.parametrize("weighted", [False, True])
def test_clusters_of_one_row_each_are_no_clusters(weighted):
    data, weight = rows(), weights() if weighted else None
    plain = AuditTable.from_arrays(**data, sample_weight=weight).as_weighted()
    own = AuditTable.from_arrays(**data, sample_weight=weight, clusters=np.arange(300)[::-1])
    rtol = 1e-10 if weighted else 1e-6
    assert_same(own, {name: plain[name] for name in UNITS}, rtol)
    assert_same(own.pooled(), {name: plain.pooled()[name] for name in UNITS}, rtol)


def test_the_order_of_rows_and_the_kind_of_ids_do_not_matter():
    data, weight, own = rows(), weights(), ids()
    order = np.random.default_rng(3).permutation(300)
    table = AuditTable.from_arrays(**data, sample_weight=weight, clusters=own)
    for other in (own[order], own[order] / 7, own[order].astype(str), list(map(str, own[order]))):
        moved = AuditTable.from_arrays(
            **part(data, order), sample_weight=weight[order], clusters=other
        )
        assert_same(moved, {name: table[name] for name in table.sums})
        assert_same(moved.pooled(), {name: table.pooled()[name] for name in table.sums})


def test_a_cluster_may_be_longer_than_a_slice(monkeypatch):
    data, own = rows(), np.sort(ids(clusters=3))
    whole = AuditTable.from_arrays(**data, clusters=own)
    monkeypatch.setattr("equipoise.metrics._units.ROWS", 7)
    sliced = AuditTable.from_arrays(**data, clusters=own)
    assert_same(sliced, {name: whole[name] for name in UNITS})
    assert_same(sliced.pooled(), {name: whole.pooled()[name] for name in UNITS})


def test_only_tables_of_everything_have_units():
    data = rows()
    some = AuditTable.from_arrays(**data, sample_weight=weights(), blocks=("bins", "spread"))
    assert {"bin_gap1", "class_gap1", "class_gap2"} < some.sums.keys()
    assert not some.sums.keys() & set(UNITS)
    few = AuditTable.from_arrays(**data, clusters=ids(), blocks=("bins",))
    assert few.clustered
    assert (
        few.pooled().sums.keys()
        == few.sums.keys()
        == {"rows", "weight"} | {f"bin_{name}" for name in ("count", "correct", "confidence")}
    )


def test_stacked_tables_have_the_sums_of_each_table():
    data, weight = rows(), weights()
    codes = np.searchsorted(["a", "b", "c"], data["sensitive_features"])
    prob = np.stack([data["y_prob"].T, data["y_prob"][:, ::-1].T], axis=1)
    stack = AuditTable.from_stack(
        prob,
        data["y_true"],
        codes,
        groups=("a", "b", "c"),
        labels=(0, 1, 2),
        sample_weight=weight,
    )
    for i, own in enumerate((data["y_prob"], data["y_prob"][:, ::-1])):
        one = AuditTable.from_arrays(**{**data, "y_prob": own}, sample_weight=weight)
        assert_same({name: stack[name][i] for name in stack.sums}, {n: one[n] for n in one.sums})
        pooled = stack.pooled()
        assert_same({n: pooled[n][i] for n in UNITS}, {n: one.pooled()[n] for n in UNITS})


# --- adding, parts, JSON ---------------------------------------------------------------------


@pytest.mark.parametrize("weighted", ["both", "first", "none"])
def test_tables_of_different_clusters_add_up(weighted):
    data, weight, own = rows(), weights(), ids()
    first = own < 15
    if weighted == "first":
        weight[~first] = 1.0
    use = {"both": (weight, weight), "first": (weight, None), "none": (None, None)}[weighted]
    a, b = (
        AuditTable.from_arrays(
            **part(data, m), sample_weight=None if w is None else w[m], clusters=own[m]
        )
        for m, w in zip((first, ~first), use, strict=True)
    )
    whole = AuditTable.from_arrays(
        **data, sample_weight=None if weighted == "none" else weight, clusters=own
    )
    found = a.add(b, disjoint_clusters=True)
    assert found.sums.keys() == whole.sums.keys()
    assert_same(found, {name: whole[name] for name in UNITS})
    assert_same(found.pooled(), {name: whole.pooled()[name] for name in UNITS})
    with pytest.raises(ValueError, match=r"a cluster may have rows in both.*disjoint_clusters"):
        _ = a + b


def test_tables_with_and_without_clusters_are_not_added():
    data = rows()
    a, b = (AuditTable.from_arrays(**data, clusters=c) for c in (ids(), None))
    for one, other in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="one without cannot be added; fill both with"):
            one.add(other, disjoint_clusters=True)
    assert a != b


def test_some_groups_of_a_clustered_table_cannot_be_pooled():
    table = AuditTable.from_arrays(**rows(), clusters=ids())
    assert table.only(slice(0, 3)) == table
    assert table.only(slice(1, 2)).pooled()["unit_n2"] == table["unit_n2"][1]
    with pytest.raises(ValueError, match="pool the whole table"):
        table.only(slice(0, 2)).pooled()
    assert table.pooled().pooled() == table.pooled()


@pytest.mark.parametrize("weighted", [False, True])
def test_json_carries_weights_and_clusters(weighted):
    table = AuditTable.from_arrays(
        **rows(), clusters=ids(), sample_weight=weights() if weighted else None
    )
    data = json.loads(json.dumps(table.to_dict()))
    assert AuditTable.from_dict(data) == table
    assert "clustered" in repr(table)
    damages = {
        "pooled_units": {**data["pooled_units"], "more": [1]},
        "sums": {name: v for name, v in data["sums"].items() if name != "unit_count"},
        "clustered": False,
    }
    for name, value in damages.items():
        with pytest.raises(ValueError, match="damaged audit table"):
            AuditTable.from_dict(seal({**data, name: value}))
    for bad in ([-1.0], [math.nan], [[1.0]], ["1"]):
        units = {**data["pooled_units"], "unit_n2": bad}
        with pytest.raises(ValueError, match="damaged audit table: unit_n2"):
            AuditTable.from_dict(seal({**data, "pooled_units": units}))


def test_only_signed_sums_may_be_negative():
    signed = [name for name, spec in SUMS.items() if spec.signed]
    assert signed == ["bin_gap1", "class_gap1", "unit_top_n"]
    data = AuditTable.from_arrays([0, 1], [0.9, 0.8], sample_weight=[1, 2]).to_dict()
    assert data["sums"]["unit_top_n"][0] < 0
    AuditTable.from_dict(data)


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"clusters": ["x", None, None, "y"]}, "2 missing values, the first in row 1; drop"),
        ({"clusters": [1.0, 2.0, np.nan, 3.0]}, "1 missing value, the first in row 2; drop"),
        ({"clusters": [1, 2, 3]}, "clusters has 3 rows, but y_prob has 4"),
        ({"clusters": [[1, 2], [1, 2], [1, 2], [1, 2]]}, "clusters must be a single column"),
        ({"sample_weight": [1, 2, 3]}, "sample_weight has 3 rows, but y_prob has 4"),
        ({"sample_weight": [1, None, 1, 1]}, r"row 1: nan \(missing, in 1 row\)"),
        ({"sample_weight": [1, -1, -2, 1]}, r"row 1: -1\.0 \(negative, in 2 rows\)"),
        ({"sample_weight": [1, 1, np.inf, 1]}, r"row 2: inf \(infinite, in 1 row\)"),
        ({"sample_weight": [0, 0, 0, 0]}, "zero in every row"),
    ],
)
def test_bad_weights_and_clusters_are_named(bad, match):
    with pytest.raises(ValueError, match=match):
        AuditTable.from_arrays([0, 1, 1, 0], [0.2, 0.9, 0.6, 0.3], **bad)


# --- numbers of shorter types ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("n_bins", [10, 15])
@pytest.mark.parametrize("steps", [15, 20])
def test_short_numbers_on_edges_are_in_the_bins_of_the_numbers_they_stand_for(kind, n_bins, steps):
    rng = np.random.default_rng(0)
    whole = rng.integers(0, steps + 1, 500)
    p, rest = whole / steps, (steps - whole) / steps
    y = rng.integers(0, 2, 500)
    tolerance = 1e-6 if kind is np.float32 else 1e-3
    for of in (expected_calibration_error, classwise_calibration_error):
        for prob in (p, np.stack([rest, p], axis=1)):
            found = of(y, prob.astype(kind), n_bins=n_bins)
            assert found == pytest.approx(of(y, prob, n_bins=n_bins), abs=tolerance)


# --- push-down -------------------------------------------------------------------------------

MAKE = {
    "pandas": pd.DataFrame,
    "pandas, nullable": lambda d: pd.DataFrame(d).convert_dtypes(),
    "polars": pl.DataFrame,
    "polars, lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": lambda d: duckdb.connect().from_arrow(pa.table(d)),
    "ibis": lambda d: ibis.memtable(pa.table(d)),
}

PROB = {2: ("p0", "p1"), 3: ("p0", "p1", "p2")}


SLOW = {"ibis": pytest.mark.slow, "pandas, nullable": pytest.mark.slow}


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in MAKE])
def make(request):
    return MAKE[request.param]


def table_of(classes=2, n=300):
    """Columns of a table: clusters have rows in several groups and months."""
    data = rows(n, classes)
    return {
        "y": data["y_true"],
        "g": data["sensitive_features"],
        "h": np.random.default_rng(8).choice(["u", "v"], n),
        "month": np.random.default_rng(7).integers(1, 4, n),
        "w": np.where(np.arange(n) % 11 == 3, 0.0, weights(n)),
        "person": np.array([f"id {i}" for i in ids(n)]),
        "d": np.random.default_rng(6).integers(0, classes, n),
        **{f"p{k}": data["y_prob"][:, k] for k in range(classes)},
    }


def arrays_of(data, which=slice(None), prob=PROB[2], **names):
    own = {role: data[name][which] for role, name in names.items()}
    p = [data[name][which] for name in prob]
    return AuditTable.from_arrays(
        data["y"][which],
        p[0] if len(p) == 1 else np.stack(p, axis=1),
        sensitive_features=data["g"][which],
        labels=range(max(2, len(p))),
        **own,
    )


def assert_tables(got, want, rtol=1e-9):
    assert (got.groups, got.labels, got.n_bins) == (want.groups, want.labels, want.n_bins)
    assert (got.weighted, got.clustered) == (want.weighted, want.clustered)
    assert got.sums.keys() == want.sums.keys()
    pairs = [(got.sums, want.sums)]
    if want.pooled_units is not None:
        pairs.append((got.pooled_units, want.pooled_units))
    for own, other in pairs:
        for name in other:
            assert own[name].dtype == other[name].dtype, name
            np.testing.assert_allclose(
                own[name].astype(float),
                other[name].astype(float),
                rtol=rtol,
                atol=1e-12,
                err_msg=name,
            )
    AuditTable.from_dict(json.loads(json.dumps(got.to_dict())))


USES = {
    "weights": ({"weight": "w"}, {"sample_weight": "w"}),
    "clusters": ({"cluster": "person"}, {"clusters": "person"}),
    "both": ({"weight": "w", "cluster": "person"}, {"sample_weight": "w", "clusters": "person"}),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("prob", [("p1",), PROB[2], PROB[3]], ids=len)
def test_push_down_gives_the_sums_of_arrays(make, prob, use):
    columns, names = USES[use]
    data = table_of(max(2, len(prob)))
    got = fill(make(data), Columns("y", prob, "g", **columns)).tables[()]
    assert_tables(got, arrays_of(data, prob=prob, **names))
    got = fill(make(data), Columns("y", prob, "g", pred="d", **columns)).tables[()]
    assert_tables(got, arrays_of(data, prob=prob, **names, y_pred="d"))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["pandas", "polars, lazy", "duckdb"])
def test_push_down_by_parts(name, use):
    columns, names = USES[use]
    data = table_of()
    got = fill(MAKE[name](data), Columns("y", PROB[2], "g", by="month", **columns))
    for month in (1, 2, 3):
        assert_tables(got.tables[month,], arrays_of(data, data["month"] == month, **names))
    if use == "weights":
        assert not got.wholes
        first, second, third = got.tables.values()
        assert_tables(first + second + third, arrays_of(data, **names))
    else:
        assert_tables(got.wholes[()], arrays_of(data, **names))


def test_push_down_by_files(tmp_path):
    data = table_of(3)
    frame = pd.DataFrame(data)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    columns = Columns("y", PROB[3], "g", weight="w", cluster="person", by="month")
    for kind in ("csv", "parquet"):
        for engine in ("duckdb", "polars"):
            got = fill(tmp_path / f"rows.{kind}", columns, engine=engine)
            names = {"sample_weight": "w", "clusters": "person"}
            assert_tables(got.wholes[()], arrays_of(data, prob=PROB[3], **names))


def test_slices_of_a_frame_do_not_cut_clusters(monkeypatch):
    monkeypatch.setattr("equipoise.auditing._pushdown._tables.SLICE", 50)
    data = table_of()
    for use, (columns, names) in USES.items():
        got = fill(pl.DataFrame(data), Columns("y", PROB[2], "g", **columns)).tables[()]
        assert_tables(got, arrays_of(data, **names)), use


def test_groups_that_differ_in_their_spaces_only_share_clusters(tmp_path):
    data = table_of()
    frame = pd.DataFrame(data)
    frame.loc[::2, "g"] += " "
    frame.to_csv(tmp_path / "rows.csv", index=False)
    got = fill(tmp_path / "rows.csv", Columns("y", PROB[2], "g", cluster="person")).tables[()]
    assert_tables(got, arrays_of(data, clusters="person"))


def test_several_columns_of_groups_and_none():
    data = table_of()
    got = fill(pl.LazyFrame(data), Columns("y", "p1", ("g", "h"), cluster="person")).tables[()]
    want = AuditTable.from_arrays(
        data["y"],
        data["p1"],
        sensitive_features={"g": data["g"], "h": data["h"]},
        clusters=data["person"],
    )
    assert_tables(got, want)
    got = fill(pl.LazyFrame(data), Columns("y", "p1", (), cluster="person")).tables[()]
    assert_tables(got, AuditTable.from_arrays(data["y"], data["p1"], clusters=data["person"]))


@pytest.mark.parametrize("column", ["w", "person", "g", "month", "p1", "y"])
def test_rows_with_missing_values_are_left_out(make, column):
    data = table_of()
    if column in ("y", "month"):
        data[column] = data[column].astype(float)
    kept = np.arange(300) % 7 != 0
    holes = {
        **data,
        column: [v if k else None for v, k in zip(data[column].tolist(), kept, strict=True)],
    }
    columns = Columns("y", "p1", "g", weight="w", cluster="person", by="month")
    source = make(holes)
    with pytest.raises(ValueError, match=f"column '{column}' has no value in 43 rows .*the first"):
        fill(source, columns)
    got = fill(make(holes), columns, drop_missing=True)
    assert got.dropped == 43
    want = arrays_of(data, kept, ("p1",), sample_weight="w", clusters="person")
    assert_tables(got.wholes[()], want)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (-1.0, "column 'w' is negative in 1 row of"),
        (math.inf, "column 'w' is infinite in 1 row of"),
        (math.nan, "column 'w' has no value in 1 row of"),
    ],
)
def test_bad_weights_of_a_table(make, bad, match):
    data = table_of()
    data["w"][5] = bad
    with pytest.raises(ValueError, match=match):
        fill(make(data), Columns("y", "p1", "g", weight="w"))


def test_other_bad_columns_of_a_table(tmp_path):
    data = table_of()
    with pytest.raises(TypeError, match="column 'g' holds String, not weights; pass a column of"):
        fill(pl.DataFrame(data), Columns("y", "p1", "g", weight="g"))
    with pytest.raises(ValueError, match="column 'w' of the table is zero in every row"):
        fill(pl.DataFrame({**data, "w": 0 * data["w"]}), Columns("y", "p1", "g", weight="w"))
    with pytest.raises(ValueError, match="there is no column 'nobody'"):
        fill(pl.DataFrame(data), Columns("y", "p1", "g", cluster="nobody"))
    frame = pd.DataFrame(data).astype({"w": object})
    frame.loc[3, "w"] = "much"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match=r"column 'w' is not a number in 1 row .*w 'much'"):
        fill(tmp_path / "rows.csv", Columns("y", "p1", "g", weight="w"))


# --- audits ----------------------------------------------------------------------------------


def test_audits_of_arrays_and_of_a_table_are_the_same():
    data = table_of()
    of_table = audit(
        "y",
        "p1",
        sensitive_features="g",
        data=pl.DataFrame(data),
        by="month",
        sample_weight="w",
        clusters="person",
    )
    of_arrays = audit(
        data["y"],
        data["p1"],
        sensitive_features=data["g"],
        by=data["month"],
        sample_weight=data["w"],
        clusters=data["person"],
    )
    assert_tables(of_table.table, of_arrays.table)
    for key, report in of_arrays.by.items():
        assert_tables(of_table.by[key].table, report.table)


@pytest.mark.parametrize("column", ["w", "person", "g"])
def test_arrays_with_missing_values(column):
    data = table_of()
    kept = np.arange(300) % 7 != 0
    holes = {**data, column: np.where(kept, data[column].astype(object), None)}
    given = {"clusters": holes["person"], "sample_weight": holes["w"]}
    report = audit(data["y"], data["p1"], sensitive_features=holes["g"], drop_missing=True, **given)
    assert report.dropped == 43
    want = arrays_of(data, kept, ("p1",), sample_weight="w", clusters="person")
    assert_tables(report.table, want)
    with pytest.raises(ValueError, match="missing"):
        audit(data["y"], data["p1"], sensitive_features=holes["g"], **given)


def test_names_are_needed_with_data():
    data = table_of()
    for name in ("sample_weight", "clusters"):
        with pytest.raises(TypeError, match=f"with data=, {name} is the name of a column, got"):
            audit("y", "p1", sensitive_features="g", data=pl.DataFrame(data), **{name: data["w"]})


def test_models_and_parts_with_clusters_add_up_where_clusters_differ(tmp_path):
    data = table_of()
    frame = pd.DataFrame(data)
    frame["m"] = np.where(np.arange(300) % 2 == 0, "new", "old")
    options = {
        "sensitive_features": "g",
        "model": "m",
        "by": "month",
        "sample_weight": "w",
        "clusters": "person",
    }
    whole = audit_models("y", "p1", data=frame, **options)
    halves = [frame[frame.person < "id 2"], frame[frame.person >= "id 2"]]
    for i, half in enumerate(halves):
        audit_models("y", "p1", data=half, **options).save(tmp_path / f"{i}.json")
    with pytest.raises(ValueError, match=r"0\.json was made with clusters.*disjoint_clusters=True"):
        merge_audits(tmp_path)
    merged = merge_audits(tmp_path, disjoint_clusters=True)
    assert merge_audits(tmp_path / "0.json")["new"].table.clustered
    for model in ("new", "old"):
        chosen = (frame.m == model).to_numpy()
        want = arrays_of(data, chosen, ("p1",), sample_weight="w", clusters="person")
        assert_tables(whole[model].table, want)
        assert_tables(merged[model].table, want)
        for key, report in whole[model].by.items():
            assert_tables(merged[model].by[key].table, report.table)
    options["clusters"] = "d"
    audit_models("y", "p1", data=halves[1], **options).save(tmp_path / "1.json")
    with pytest.raises(ValueError, match="cluster is d, in others person"):
        merge_audits(tmp_path, disjoint_clusters=True)
