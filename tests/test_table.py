"""The audit table: its sums against plain loops, exact addition, size, and JSON."""

import json
import math
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import oracle_metrics as oracle
from equipoise import metrics
from equipoise.metrics import (
    BLOCKS,
    METRICS,
    SUMS,
    AuditTable,
    by_group,
    expected_calibration_error,
    overall,
)
from table_data import seal

PLAIN = {name: spec for name, spec in SUMS.items() if spec.block in BLOCKS}
"""The sums of a table without weights and clusters."""

EXAMPLES = settings(deadline=None, derandomize=True, database=None, max_examples=60)


def rows(n=200, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "y_true": rng.integers(0, classes, n),
        "y_prob": rng.dirichlet(np.ones(classes), n),
        "sensitive_features": rng.choice(["a", "b", "c"], n),
        "labels": range(classes),
    }


def part(data, which):
    return {name: v if name == "labels" else v[which] for name, v in data.items()}


def fixed(value, unit=2**32):
    return math.floor(value * unit + 0.5)


def loop_sums(y, prob, groups, n_bins, decisions=None, weight=None):
    """Every sum of the table, as nested lists, by plain loops over the rows; units aside.

    Without weights as exact integers, probabilities in units of 2**-32; with them as floats.
    """
    order = sorted(set(groups))
    classes = len(prob[0])
    zero = 0 if weight is None else 0.0
    unit = fixed if weight is None else float
    sums = {}
    for name, spec in SUMS.items():
        if spec.block not in BLOCKS | ({"weights"} if weight is not None else set()):
            continue
        shape = [len(order), *({"k": classes, "b": n_bins}[axis] for axis in spec.axes)]
        sums[name] = np.full(shape, 0 if name == "rows" else zero, dtype=object)
    for i, (label, p, group) in enumerate(zip(y, oracle.as_rows(prob), groups, strict=True)):
        g, w = order.index(group), 1 if weight is None else float(weight[i])
        top = oracle.top(p)
        decision = top if decisions is None else decisions[i]
        b = oracle.bin_of(p[top], n_bins)
        gap = (top == label) - p[top]
        sums["rows"][g] += 1
        sums["weight"][g] += w
        sums["labels"][g, label] += w
        sums["predictions"][g, decision] += w
        sums["hits"][g, label] += w * (decision == label)
        sums["bin_count"][g, b] += w
        sums["bin_correct"][g, b] += w * (top == label)
        sums["bin_confidence"][g, b] += w * unit(p[top])
        sums["bin_count2"][g, b] += w * w
        sums["bin_gap2"][g, b] += w * w * unit(gap * gap)
        if weight is not None:
            sums["bin_gap1"][g, b] += w * w * gap
        sums["own_probability"][g, label] += w * unit(p[label])
        squares = 0.0
        for k, v in enumerate(p):
            c, error = oracle.bin_of(v, n_bins), v - (label == k)
            sums["probability"][g, k] += w * unit(v)
            sums["class_count"][g, k, c] += w
            sums["class_correct"][g, k, c] += w * (label == k)
            sums["class_probability"][g, k, c] += w * unit(v)
            sums["class_gap2"][g, k, c] += w * w * unit(error * error)
            if weight is not None:
                sums["class_count2"][g, k, c] += w * w
                sums["class_gap1"][g, k, c] -= w * w * error
            sums["squared_error"][g, k] += w * unit(error * error)
            squares += error * error
        sums["brier2"][g] += w * w * unit(squares * squares)
        if p[label] > 0:
            sums["log_loss"][g] += w * unit(-math.log(p[label]))
            square = math.log(p[label]) ** 2
            sums["log_loss2"][g] += w * w * (fixed(square, 2**16) if weight is None else square)
        else:
            sums["impossible"][g] += w
    return {name: array.tolist() for name, array in sums.items()}


@pytest.mark.parametrize("classes", [2, 3, 40, 200])
@pytest.mark.parametrize("decided", [False, True])
def test_sums_are_those_of_plain_loops(classes, decided):
    data = rows(classes=classes)
    data["y_prob"][:4] = np.eye(classes)[0]  # confidence 1, and labels of probability 0
    decisions = np.random.default_rng(1).integers(0, classes, 200) if decided else None
    table = AuditTable.from_arrays(**data, n_bins=10, y_pred=decisions)
    expected = loop_sums(
        data["y_true"], data["y_prob"], data["sensitive_features"].tolist(), 10, decisions
    )
    assert table.sums.keys() == expected.keys()
    # two libraries' logarithms may differ in the last bit, which may move a row by one unit
    for name in ("log_loss", "log_loss2"):
        found, wanted = table.sums[name].tolist(), expected.pop(name)
        assert np.abs(np.subtract(found, wanted)).max() <= 2
    for name, values in expected.items():
        assert table.sums[name].tolist() == values, name
        assert all(type(v) is int for v in table.sums[name].ravel()), name


def test_weighted_sums_are_those_of_plain_loops():
    data = rows()
    weight = np.random.default_rng(1).random(200)
    table = AuditTable.from_arrays(**data, n_bins=10, sample_weight=weight)
    expected = loop_sums(
        data["y_true"], data["y_prob"], data["sensitive_features"].tolist(), 10, weight=weight
    )
    assert table.weighted
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], np.array(values, float), rtol=1e-12, atol=1e-15)


def test_items_are_in_their_natural_unit():
    table = AuditTable.from_arrays([0, 1], [0.25, 0.75], sensitive_features=["a", "b"])
    assert table["probability"].tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert table["bin_confidence"].sum() == 1.5
    assert table["rows"].tolist() == [1, 1]


# --- addition --------------------------------------------------------------------------------


@st.composite
def split_rows(draw):
    n = draw(st.integers(3, 30))
    counts = draw(arrays(np.int64, (n, 3), elements=st.integers(0, 9)))
    counts[:, 0] += counts.sum(axis=1) == 0
    data = {
        "y_true": draw(arrays(np.int64, n, elements=st.integers(0, 2))),
        "y_prob": counts / counts.sum(axis=1, keepdims=True),
        "sensitive_features": draw(arrays(np.int64, n, elements=st.integers(0, 4))),
        "labels": range(3),
    }
    cuts = sorted(draw(st.lists(st.integers(1, n - 1), min_size=2, max_size=2, unique=True)))
    return data, [slice(0, cuts[0]), slice(*cuts), slice(cuts[1], n)]


@given(split_rows())
@EXAMPLES
def test_sum_of_tables_is_the_table_of_all_rows(drawn):
    data, slices = drawn
    a, b, c = (AuditTable.from_arrays(**part(data, s)) for s in slices)
    whole = AuditTable.from_arrays(**data)
    assert (a + b) + c == whole
    assert a + (b + c) == whole
    assert c + b + a == whole
    assert whole.pooled() == a.pooled() + b.pooled() + c.pooled()


def test_a_group_absent_from_one_table_keeps_its_place():
    data = rows()
    is_b = data["sensitive_features"] == "b"
    only, others = (AuditTable.from_arrays(**part(data, m)) for m in (is_b, ~is_b))
    assert (only.groups, others.groups) == (("b",), ("a", "c"))
    assert only + others == others + only == AuditTable.from_arrays(**data)


def test_order_of_rows_does_not_matter():
    data = rows()
    order = np.random.default_rng(3).permutation(200)
    assert AuditTable.from_arrays(**part(data, order)) == AuditTable.from_arrays(**data)


@pytest.mark.parametrize("weighted", ["both", "first", "second"])
def test_weighted_tables_add_up(weighted):
    data, weight = rows(), np.random.default_rng(1).random(200)
    first, second = slice(0, 80), slice(80, 200)
    if weighted == "first":
        weight[second] = 1
    if weighted == "second":
        weight[first] = 1
    a = AuditTable.from_arrays(
        **part(data, first), sample_weight=None if weighted == "second" else weight[first]
    )
    b = AuditTable.from_arrays(
        **part(data, second), sample_weight=None if weighted == "first" else weight[second]
    )
    whole = AuditTable.from_arrays(**data, sample_weight=weight)
    found = a + b
    assert found.weighted
    assert found.sums.keys() == whole.sums.keys() == SUMS.keys()
    for name, spec in SUMS.items():
        unit = SUMS["log_loss2"].unit if name == "unit_loss2" else spec.unit
        rounding = 100 / unit if unit > 1 else 1e-6
        np.testing.assert_allclose(
            found[name], whole[name], rtol=1e-12, atol=rounding, err_msg=name
        )


@pytest.mark.parametrize(
    ("one", "other", "match"),
    [
        ({}, {"n_bins": 10}, "different n_bins cannot be added: 15 and 10"),
        ({"labels": (0, 1)}, {"labels": (1, 0)}, "different labels cannot be added"),
        ({}, {"blocks": ("bins",)}, "different blocks"),
        ({}, {"sensitive_features": None}, "different kinds"),
        ({}, {"sensitive_features": [1, 2]}, "different kinds"),
    ],
)
def test_tables_that_do_not_fit_are_not_added(one, other, match):
    base = {"y_true": [0, 1], "y_prob": [0.2, 0.7], "sensitive_features": ["a", "b"]}
    a, b = (AuditTable.from_arrays(**{**base, **change}) for change in (one, other))
    with pytest.raises(ValueError, match=match):
        _ = a + b
    assert a != b


def test_only_tables_are_added_and_equal():
    table = AuditTable.from_arrays([0, 1], [0.2, 0.7])
    with pytest.raises(TypeError):
        _ = table + 1
    assert table != 1
    assert table == AuditTable.from_arrays([0, 1], [0.2, 0.7])
    with pytest.raises(TypeError, match="unhashable"):
        hash(table)


@pytest.mark.parametrize(
    "change",
    [
        {"y_true": [1, 1]},
        {"y_prob": [0.2, 0.7 + 1e-9]},
        {"sensitive_features": ["a", "c"]},
        {"labels": ("0", "1"), "y_true": ["0", "1"]},
        {"n_bins": 14},
        {"sample_weight": [1, 1]},
        {"blocks": ("bins", "rates")},
        {"y_pred": [1, 1]},
    ],
)
def test_equality_sees_every_difference(change):
    base = {"y_true": [0, 1], "y_prob": [0.2, 0.7], "sensitive_features": ["a", "b"]}
    assert AuditTable.from_arrays(**base) != AuditTable.from_arrays(**{**base, **change})


def test_the_total_of_many_tables_is_their_sum():
    tables = [AuditTable.from_arrays(**rows(30, seed=i)) for i in range(5)]
    assert AuditTable.total(tables) == sum(tables[1:], tables[0])
    assert AuditTable.total(tables[:1]) is tables[0]


def test_groups_add_up_in_linear_time():
    """Ten times the groups take about ten times as long, not a hundred times."""

    def seconds(groups):
        one, other = (
            AuditTable.from_arrays(
                [0, 1] * groups,
                [0.1, 0.7] * groups,
                sensitive_features=np.arange(2 * groups) % groups + shift,
                blocks=["labels"],
            )
            for shift in (0, groups // 2)
        )
        start = time.perf_counter()
        total = one + other
        assert len(total.groups) == groups + groups // 2
        return time.perf_counter() - start

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.002)


# --- slices, size ----------------------------------------------------------------------------


@pytest.mark.parametrize("constants", [{"ROWS": 7, "FLUSH": 2}, {"CELLS": 1}, {"FLUSH": 1}])
@pytest.mark.parametrize("weighted", [False, True])
def test_slices_do_not_matter(monkeypatch, constants, weighted):
    data = rows(1000)
    weight = np.random.default_rng(1).integers(1, 9, 1000) if weighted else None
    arguments = (data["y_true"], data["y_prob"])
    whole = AuditTable.from_arrays(**data, sample_weight=weight)
    equal_mass = metrics.equal_mass_calibration_error(*arguments, sample_weight=weight)
    for name, value in constants.items():
        monkeypatch.setattr(f"equipoise.metrics._table.{name}", value)
        monkeypatch.setattr(f"equipoise.metrics._sums.{name}", value)
    monkeypatch.setattr("equipoise.metrics._metrics.ROWS", 7)
    monkeypatch.setattr("equipoise._inputs._categories.SLICE", 13)
    sliced = AuditTable.from_arrays(**data, sample_weight=weight)
    for name in whole.sums:
        np.testing.assert_allclose(sliced[name], whole[name], rtol=1e-12, atol=1e-12)
    assert weighted or sliced == whole
    assert metrics.equal_mass_calibration_error(*arguments, sample_weight=weight) == equal_mass


def test_parts_are_checked_and_bring_what_they_rest_on():
    spread = AuditTable.from_arrays([0, 1], [0.2, 0.7], blocks=["spread"])
    assert spread["bin_gap2"].sum() == pytest.approx(0.2**2 + 0.3**2)
    for wrong in ("bins", ["binz"]):
        with pytest.raises(ValueError, match="blocks must be some of"):
            AuditTable.from_arrays([0, 1], [0.2, 0.7], blocks=wrong)


def test_a_trillion_rows_do_not_overflow():
    data = rows(25)
    once = table = AuditTable.from_arrays(**data)
    for _ in range(40):
        table = table + table
    for name in PLAIN:
        assert table.sums[name].tolist() == (once.sums[name] * 2**40).tolist()
    assert int(table.sums["rows"].sum()) == 25 * 2**40 > 10**12
    for name in METRICS.keys() - {"debiased_squared_ece"}:
        assert overall(table, name) == pytest.approx(overall(once, name), rel=1e-12)
        assert by_group(table, name) == pytest.approx(by_group(once, name), rel=1e-12)
    assert overall(table, "debiased_squared_ece") == pytest.approx(
        debiased_of_copies(data["y_true"], data["y_prob"], 2**40), rel=1e-8
    )
    assert AuditTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table


def debiased_of_copies(y, prob, copies):
    """The debiased squared ECE of every row standing there many times, in closed form."""
    bins = {}
    for label, p in zip(y, oracle.as_rows(prob), strict=True):
        k = oracle.top(p)
        bins.setdefault(oracle.bin_of(p[k], 15), []).append((k == label) - Fraction(p[k]))
    total = Fraction(0)
    for gaps in bins.values():
        n_b = len(gaps) * copies
        cross = (copies * sum(gaps)) ** 2 - copies * sum(d * d for d in gaps)
        total += Fraction(n_b, len(y) * copies) * cross / (n_b * (n_b - 1))
    return float(total)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_twenty_million_identical_rows(kind):
    n = 20_000_000
    p = kind(0.9)
    y = np.ones(n, np.int8)
    y[: n * 3 // 100] = 0
    found = expected_calibration_error(y, np.broadcast_to(p, n))
    assert found == pytest.approx(0.97 - float(p), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("groups", ["numbers", "strings", None])
def test_memory_does_not_grow_with_the_rows(groups):
    def peak(n):
        rng = np.random.default_rng(0)
        prob = np.full((n, 10), 0.1, np.float32)
        y = rng.integers(0, 10, n)
        a = None if groups is None else rng.integers(0, 5, n)
        a = np.array(list("abcde"))[a] if groups == "strings" else a
        tracemalloc.start()
        AuditTable.from_arrays(y, prob, sensitive_features=a)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    small, large = peak(500_000), peak(2_000_000)
    per_row = (large - small) / 1_500_000
    assert per_row < 2.1  # one byte for the label, one for the group
    assert large + 8_000_000 * per_row < 50e6  # ten million rows


# --- parts -----------------------------------------------------------------------------------


def test_only_what_was_asked_for_is_summed():
    for asked in BLOCKS:
        needs = {"spread": {"bins", "classwise"}}.get(asked, set())
        data = rows(50)
        table = AuditTable.from_arrays(**data, blocks={asked} | needs)
        full = AuditTable.from_arrays(**data)
        for name, spec in PLAIN.items():
            if spec.block in {"rows", asked} | needs:
                np.testing.assert_array_equal(table[name], full[name])
            else:
                with pytest.raises(KeyError, match=f"'{name}' was not summed"):
                    table[name]


@pytest.mark.parametrize("name", METRICS)
def test_the_parts_of_a_metric_suffice(name):
    data = rows(50)
    table = AuditTable.from_arrays(**data, blocks=METRICS[name].blocks)
    assert by_group(table, name) == by_group(AuditTable.from_arrays(**data), name)
    with pytest.raises(KeyError, match="was not summed"):
        overall(AuditTable.from_arrays(**data, blocks=()), name)


def test_labels_are_needed_unless_only_rates_are_asked_for():
    prob, groups = [[0.25, 0.75], [0.5, 0.5]], ["a", "b"]
    table = AuditTable.from_arrays(
        None, prob, sensitive_features=groups, labels=("n", "p"), blocks=("rates", "decisions")
    )
    assert table["probability"].tolist() == prob
    assert table["predictions"].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="y_true is None"):
        AuditTable.from_arrays(None, prob, sensitive_features=groups, labels=("n", "p"))


# --- JSON ------------------------------------------------------------------------------------


def tuples(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


PAIR = tuples([("u", 1), ("v", 2)])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labels", [[0, 1], ["n", "p"], [False, True], [0.5, 1.5], PAIR], ids=str)
@pytest.mark.parametrize(
    ("groups", "values"),
    [
        (None, (None,)),
        ([3, 7], (3, 7)),
        (["1", "x"], ("1", "x")),
        ([False, True], (False, True)),
        ([("x", 1), ("y", 0)], (("x", 1), ("y", 0))),
        ([("x", True, "z"), ("y", False, "z")], (("x", True, "z"), ("y", False, "z"))),
    ],
    ids=str,
)
def test_json_round_trip(groups, values, labels, weighted):
    table = AuditTable.from_arrays(
        labels, [0.1, 0.7], sensitive_features=groups, sample_weight=[0.1, 1] if weighted else None
    )
    again = AuditTable.from_dict(json.loads(json.dumps(table.to_dict())))
    assert again == table
    assert again.groups == values
    assert again.labels == tuple(labels)
    # True == 1, so the types are compared as well
    assert repr((again.groups, again.labels)) == repr((values, tuple(labels)))
    assert (again + again)["rows"].sum() == 4


def test_labels_given_as_numpy_scalars_are_written_too():
    y = np.array([0, 1])
    table = AuditTable.from_arrays(y, [0.1, 0.7], labels=tuple(np.unique(y)))
    assert AuditTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table


def test_a_partial_table_survives():
    table = AuditTable.from_arrays([0, 1], [0.1, 0.7], blocks=("bins",))
    assert AuditTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table


def test_a_table_saved_before_there_were_moments_is_read():
    table = AuditTable.from_arrays([0, 1], [0.1, 0.7])
    data = table.to_dict()
    for name in ("own_probability", "brier2", "log_loss2"):
        del data["sums"][name]
    older = AuditTable.from_dict(json.loads(json.dumps(seal(data))))
    assert {name: overall(older, name) for name in METRICS} == {
        name: overall(table, name) for name in METRICS
    }


def test_a_group_that_json_cannot_hold_is_refused():
    groups = np.array([b"x", b"y"])
    table = AuditTable.from_arrays([0, 1], [0.1, 0.7], sensitive_features=groups)
    with pytest.raises(TypeError, match=r"b'x' \(bytes\) cannot be written as JSON"):
        table.to_dict()


DAMAGES = {
    "empty": lambda d: d.clear(),
    "another format": lambda d: d.update(format="equipoise.AuditTable/3"),
    "an earlier format": lambda d: d.update(format="equipoise.AuditTable/1"),
    "no groups": lambda d: d.pop("groups"),
    "no sums": lambda d: d.pop("sums"),
    "sums not a table": lambda d: d.update(sums=3),
    "an unknown sum": lambda d: d["sums"].update(more=[0, 0]),
    "a sum of a part missing": lambda d: d["sums"].pop("bin_correct"),
    "no rows": lambda d: d["sums"].pop("rows"),
    "a group too many": lambda d: d["groups"].append("c"),
    "a group twice": lambda d: d.update(groups=["a", "a"]),
    "a label too many": lambda d: d["labels"].append(2),
    "a label twice": lambda d: d.update(labels=[0, 0]),
    "other bins": lambda d: d.update(n_bins=14),
    "no bins": lambda d: d.update(n_bins=None),
    "weighted neither true nor false": lambda d: d.update(weighted="no"),
    "a sum of the wrong shape": lambda d: d["sums"].update(rows=[[1], [1]]),
    "a negative count": lambda d: d["sums"].update(rows=[-1, 3]),
    "a fraction of a row": lambda d: d["sums"].update(rows=[0.5, 1]),
    "nan": lambda d: d["sums"].update(log_loss=[math.nan, 1]),
    "no word on clusters": lambda d: d.pop("clustered"),
    "clustered neither true nor false": lambda d: d.update(clustered=1),
    "clustered without units": lambda d: d.update(clustered=True),
    "weighted without units": lambda d: d.update(weighted=True),
    "units of no clusters": lambda d: d.update(pooled_units={}),
    "no sources": lambda d: d.pop("sources"),
    "sources of another kind": lambda d: d.update(sources=["d.csv"]),
    "no digest": lambda d: d.pop("sha256"),
    "lists of different lengths": lambda d: d["sums"].update(labels=[[1, 0], [1]]),
    "a number of 400 digits": lambda d: d["sums"].update(rows=[10**400, 1]),
    "text": lambda d: d["sums"].update(rows=["1", "1"]),
    "true": lambda d: d["sums"].update(rows=[True, 1]),
}


@pytest.mark.parametrize("forged", [False, True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_tables_are_refused(damage, forged):
    table = AuditTable.from_arrays([0, 1], [0.1, 0.7], sensitive_features=["a", "b"])
    data = json.loads(json.dumps(table.to_dict()))
    AuditTable.from_dict(data)
    damage(data)
    with pytest.raises(ValueError, match="audit table"):
        AuditTable.from_dict(seal(data) if forged else data)


def test_something_else_than_a_table_is_refused():
    with pytest.raises(ValueError, match="not an audit table"):
        AuditTable.from_dict([1, 2])
