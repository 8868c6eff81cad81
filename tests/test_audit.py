"""The audit: the figures of the plain functions, the evidence for them, parts, tables, JSON."""

import dataclasses
import functools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning

import equipoise
from equipoise import metrics
from equipoise.auditing import AuditReport, audit, report_of
from equipoise.metrics import AuditTable

FUNCTIONS = {
    "accuracy": metrics.accuracy,
    "ece": metrics.expected_calibration_error,
    "classwise_ece": metrics.classwise_calibration_error,
    "debiased_squared_ece": metrics.debiased_squared_calibration_error,
    "mce": metrics.maximum_calibration_error,
    "brier": metrics.brier_score,
    "log_loss": metrics.log_loss,
}
BINNED = FUNCTIONS.keys() - {"accuracy", "brier", "log_loss"}


@functools.cache
def sample(classes=3, n=240):
    rng = np.random.default_rng(classes)
    y, prob = rng.integers(0, classes, n), rng.dirichlet(np.ones(classes), n)
    return y, prob, rng.choice(["x", "y", "z"], n), rng.integers(1, 5, n)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_bins", [15, 4])
def test_figures_are_those_of_the_plain_functions(classes, weighted, n_bins):
    y, prob, groups, weight = sample(classes)
    decisions = np.random.default_rng(1).integers(0, classes, len(y))
    train = np.random.default_rng(2).permutation(y)
    rates = metrics.group_base_rates(train, sensitive_features=groups)
    weight = weight if weighted else None
    report = audit(
        y,
        prob,
        sensitive_features=groups,
        sample_weight=weight,
        n_bins=n_bins,
        y_pred=decisions,
        base_rates=rates,
        reference_group="y",
    )
    assert report.overall.keys() == FUNCTIONS.keys()
    assert list(report.groups) == ["x", "y", "z"]

    def measure(name, rows):
        options = {"n_bins": n_bins} if name in BINNED else {}
        options |= {"y_pred": decisions[rows]} if name == "accuracy" else {}
        w = None if weight is None else weight[rows]
        return FUNCTIONS[name](y[rows], prob[rows], sample_weight=w, **options)

    everyone = np.ones(len(y), bool)
    for name in FUNCTIONS:
        assert report.overall[name] == pytest.approx(measure(name, everyone), rel=1e-12)
        for g, values in report.groups.items():
            assert values[name] == pytest.approx(measure(name, groups == g), rel=1e-12, abs=1e-15)
    for kind in ("stochastic", "deterministic"):
        assert report.proportional_equality[kind] == metrics.proportional_equality(
            y,
            prob,
            sensitive_features=groups,
            kind=kind,
            sample_weight=weight,
            y_pred=decisions,
            base_rates=rates,
            reference_group="y",
        )
    assert report.table == AuditTable.from_arrays(
        y, prob, sensitive_features=groups, sample_weight=weight, n_bins=n_bins, y_pred=decisions
    )


def test_labels_say_what_the_columns_stand_for():
    y, prob, groups, _ = sample()
    names = np.array(["p", "q", "r"])[y]
    backwards = audit(names, prob[:, ::-1], sensitive_features=groups, labels=["r", "q", "p"])
    plain = audit(y, prob, sensitive_features=groups)
    assert backwards.overall == plain.overall
    assert backwards.groups == plain.groups
    assert backwards.table.labels == ("r", "q", "p")


@pytest.mark.parametrize("pairs", [False, True], ids=["one column", "two columns"])
@pytest.mark.parametrize("intervals", [False, True])
def test_frame(pairs, intervals):
    y, prob, groups, _ = sample()
    if pairs:
        groups = pd.DataFrame({"g": groups, "old": np.arange(len(y)) % 2 == 0})
    report = audit(y, prob, sensitive_features=groups, intervals=intervals)
    frame = report.to_frame()
    assert frame.index.name == "group"
    assert frame.index.tolist() == ["overall", *report.groups]
    ends = ("", "_low", "_high") if intervals else ("",)
    assert frame.columns.tolist() == ["rows", *(f + e for f in FUNCTIONS for e in ends)]
    counts = report.table["rows"].tolist()
    assert frame["rows"].tolist() == [len(y), *counts]
    for (_, row), values in zip(
        frame.iterrows(), [report.overall, *report.groups.values()], strict=True
    ):
        assert row[list(FUNCTIONS)].to_dict() == values
    if intervals:
        for g, own in report.intervals.groups.items():
            row = frame.iloc[1 + list(report.groups).index(g)]
            assert (row["ece_low"], row["brier_high"]) == (own["ece"].low, own["brier"].high)


# --- what is added to the figures ------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_rates_are_plain_means(weighted):
    y, prob, groups, weight = sample()
    weight = weight if weighted else np.ones(len(y))
    report = audit(y, prob, sensitive_features=groups, sample_weight=weight if weighted else None)
    decided = np.eye(3)[prob.argmax(1)]
    for g in "xyz":
        own = groups == g
        for kind, values in (
            ("labels", np.eye(3)[y]), ("stochastic", prob), ("deterministic", decided)
        ):  # fmt: skip
            expected = np.average(values[own], axis=0, weights=weight[own])
            assert list(report.rates[g][kind]) == [0, 1, 2]
            assert list(report.rates[g][kind].values()) == pytest.approx(expected.tolist())


def test_evidence_belongs_to_the_figures():
    y, prob, groups, _ = sample(2, 1200)
    report = audit(y, prob, sensitive_features=groups)
    assert report.intervals.level == report.level == 0.95
    low, high = report.intervals.overall["accuracy"]
    assert low < report.overall["accuracy"] < high
    assert report.gaps.keys() == FUNCTIONS.keys()
    accuracies = [values["accuracy"] for values in report.groups.values()]
    assert report.gaps["accuracy"] == pytest.approx(max(accuracies) - min(accuracies))
    assert report.verdict.rows == 1200
    # labels and probabilities have nothing to do with each other
    assert (report.verdict.word, report.verdict.direction) == ("miscalibrated", "over-confident")
    assert list(report.verdicts) == list(report.groups)
    # y has the most rows
    assert report.reference_group == "y"
    assert [(c.group, c.other) for c in report.comparisons] == [("x", "y"), ("z", "y")]
    for kind, found in report.amplification.items():
        assert list(found) == ["x", "z"]
        for g, own in found.items():
            assert list(own) == [0, 1]
            for k, a in own.items():
                assert (a.group, a.reference, a.label) == (g, "y", k)
                assert a.low <= a.value <= a.high
                model, data = (
                    report.rates[g][of][k] / report.rates["y"][of][k] for of in (kind, "labels")
                )
                assert (a.model_ratio, a.data_ratio) == pytest.approx((model, data))
                assert a.value == pytest.approx(math.log(model / data))
    for kind, verdict in report.pe_verdicts.items():
        assert verdict.value == report.proportional_equality[kind]
        assert verdict.interval == report.intervals.proportional_equality[kind]
    narrow = audit(y, prob, sensitive_features=groups, level=0.5, tolerance=0.9)
    assert (narrow.level, narrow.tolerance) == (0.5, 0.9)
    assert narrow.verdict.word == "calibrated"
    inner, outer = (r.intervals.overall["brier"] for r in (narrow, report))
    assert outer.low < inner.low < inner.high < outer.high


def test_the_reference_is_the_largest_group():
    y, prob = [0, 1] * 6, [0.3, 0.6] * 6
    groups = list("aabbbbccccdd")
    report = audit(y, prob, sensitive_features=groups, intervals=False)
    # of two that are equally large, the first
    assert report.reference_group == "b"
    assert {c.other for c in report.comparisons} == {"b"}
    assert report.pe_verdicts["stochastic"].reference == "b"
    assert "12 rows, 4 groups (reference: b), 2 classes" in str(report)
    given = audit(y, prob, sensitive_features=groups, intervals=False, reference_group="d")
    assert given.reference_group == "d"
    assert list(given.amplification["stochastic"]) == ["a", "b", "c"]
    assert "4 groups (reference: d)" in str(given)
    # parts are compared with the largest group of all rows, though it may not be theirs
    split = audit(y, prob, sensitive_features=groups, by=[0] * 6 + [1] * 6, intervals=False)
    assert split.by[0,].reference_group == "b"
    assert split.by[1,].reference_group == "b"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_every_pair_is_compared():
    y, prob, groups, _ = sample(2)
    report = audit(y, prob, sensitive_features=groups, reference_group="all")
    assert report.reference_group == "all"
    assert "(reference: every other)" in str(report)
    pairs = [(g, r) for g in "xyz" for r in "xyz" if g != r]
    for found in report.amplification.values():
        assert sorted(found) == pairs
        for (g, r), own in found.items():
            for k, a in own.items():
                assert (a.group, a.reference, a.label) == (g, r, k)
                back = found[r, g][k]
                assert (a.value, a.low, a.high) == pytest.approx(
                    (-back.value, -back.high, -back.low)
                )
    assert [(c.group, c.other) for c in report.comparisons] == [("y", "x"), ("z", "x"), ("z", "y")]
    # a group may have this name
    named = np.where(groups == "x", "all", groups)
    report = audit(y, prob, sensitive_features=named, reference_group="all")
    assert list(report.amplification["stochastic"]) == ["y", "z"]
    assert "(reference: all)" in str(report)


def test_intervals_are_repeatable_or_left_out():
    y, prob, groups, _ = sample(2)
    one, two = (audit(y, prob, sensitive_features=groups, seed=0) for _ in range(2))
    assert one.intervals == two.intervals
    none = audit(y, prob, sensitive_features=groups, intervals=False)
    assert none.intervals is None
    assert none.pe_verdicts["stochastic"].interval is None
    assert none.verdicts == one.verdicts


def test_a_report_of_added_tables_is_that_of_all_rows():
    y, prob, groups, _ = sample(2)
    tables = [
        AuditTable.from_arrays(y[rows], prob[rows], sensitive_features=groups[rows])
        for rows in (slice(0, 100), slice(100, None))
    ]
    rates = metrics.group_base_rates(y, sensitive_features=groups)
    found = report_of(tables[0] + tables[1], base_rates=rates, reference_group="z", dropped=3)
    whole = audit(y, prob, sensitive_features=groups, base_rates=rates, reference_group="z")
    assert found.table == whole.table
    assert found.dropped == 3
    for name in ("overall", "groups", "proportional_equality", "gaps", "rates", "verdict",
                 "verdicts", "comparisons", "pe_verdicts", "amplification", "reference_group",
                 "intervals", "share"):  # fmt: skip
        assert getattr(found, name) == getattr(whole, name)
    assert not found.own_rates
    assert report_of(whole.table, intervals=False).intervals is None


def test_a_table_with_some_parts_only_is_refused():
    table = AuditTable.from_arrays([0, 1], [0.2, 0.7], blocks=("bins",))
    with pytest.raises(ValueError, match=r"lacks the blocks \['classwise', .*all blocks"):
        report_of(table)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"level": 95}, "level must be within 0..1, such as 0.95, got 95"),
        ({"level": 1.0}, "level must be"),
        ({"tolerance": -0.01}, "tolerance must be an ECE within 0..1"),
        ({"tolerance": 1}, "tolerance must be an ECE within 0..1"),
        ({"tolerance": float("nan")}, "tolerance"),
    ],
)
def test_levels_are_checked_first(change, match):
    with pytest.raises(ValueError, match=match):
        audit(None, None, sensitive_features=None, **change)
    with pytest.raises(ValueError, match=match):
        report_of(AuditTable.from_arrays([0, 1], [0.2, 0.7]), **change)


# --- parts of the rows -----------------------------------------------------------------------


def test_parts_are_reports_of_their_own_rows():
    y, prob, groups, weight = sample()
    month = np.arange(len(y)) % 4
    rates = metrics.group_base_rates(y, sensitive_features=groups)
    options = {"base_rates": rates, "reference_group": "y", "n_bins": 7}
    report = audit(y, prob, sensitive_features=groups, by=month, **options)
    plain = audit(y, prob, sensitive_features=groups, **options)
    assert (report.overall, report.groups) == (plain.overall, plain.groups)
    assert report.proportional_equality == plain.proportional_equality
    # all rows and the parts share the error rate
    assert report.share + sum(part.share for part in report.by.values()) == pytest.approx(1.0)
    assert plain.share == 1.0
    assert_wider(report, plain)
    assert list(report.by) == [(0,), (1,), (2,), (3,)]
    for (i,), part in report.by.items():
        own = month == i
        alone = audit(y[own], prob[own], sensitive_features=groups[own], labels=[0, 1, 2],
                      **options)  # fmt: skip
        assert part.table == alone.table
        assert part.groups == alone.groups
        assert part.proportional_equality == alone.proportional_equality
        assert_wider(part, alone)
        shared = report_of(part.table, base_rates=rates, reference_group="y", share=part.share)
        assert part.intervals == shared.intervals
        assert part.verdicts == shared.verdicts
        assert not part.by
    frame = pd.DataFrame({"m": month, "old": month > 1})
    several = audit(y, prob, sensitive_features=frame, sample_weight=weight, by=frame)
    assert list(several.by) == [(0, False), (1, False), (2, True), (3, True)]
    assert list(several.by[2, True].groups) == [(2, True)]


def assert_wider(report, alone):
    """Check that each interval holds that of the same rows alone, and some are wider."""
    assert report.intervals.comparisons == alone.intervals.comparisons
    for g, own in report.intervals.groups.items():
        for name, (low, high) in own.items():
            inner = alone.intervals.groups[g][name]
            assert low <= inner.low <= inner.high <= high
        accuracy = alone.intervals.groups[g]["accuracy"]
        assert own["accuracy"].low < accuracy.low < accuracy.high < own["accuracy"].high
        verdict, other = report.verdicts[g], alone.verdicts[g]
        assert verdict.interval.low <= other.interval.low
        assert verdict.interval.high >= other.interval.high
        if verdict.word != "not enough evidence":
            assert verdict.word == other.word
    for kind, found in report.amplification.items():
        for g, own in found.items():
            for k, a in own.items():
                inner = alone.amplification[kind][g][k]
                assert a.value == inner.value
                assert a.low < inner.low < inner.high < a.high


def test_more_parts_are_wider():
    y, prob, groups, _ = sample(2, 1200)
    months = [
        audit(y, prob, sensitive_features=groups, by=np.where(np.arange(1200) < 300, 0, part))
        for part in (np.ones(1200), 1 + np.arange(1200) % 9)
    ]
    few, many = (report.by[0,] for report in months)
    assert few.table == many.table
    assert few.share > many.share
    assert_wider(many, few)


def test_training_rates_have_an_error_of_their_own():
    y, prob, groups, _ = sample(2, 1200)
    train, of = np.random.default_rng(3).integers(0, 2, 60), np.array(list("xyz") * 20)
    rates = metrics.group_base_rates(train, sensitive_features=of, labels=[0, 1])
    assert {g: sum(own.values()) for g, own in rates.counts.items()} == dict.fromkeys("xyz", 20)
    counted, exact = (
        audit(y, prob, sensitive_features=groups, base_rates=r) for r in (rates, rates.rates)
    )
    assert counted.proportional_equality == exact.proportional_equality
    for kind, found in counted.amplification.items():
        for g, own in found.items():
            for k, a in own.items():
                inner = exact.amplification[kind][g][k]
                assert a.value == inner.value
                assert a.low < inner.low < inner.high < a.high
        wide, narrow = (r.intervals.proportional_equality[kind] for r in (counted, exact))
        assert wide.high > narrow.high


def test_parts_without_the_reference_group_have_no_proportional_equality():
    y, prob, groups, _ = sample()
    part = np.where((groups != "x") & (np.arange(len(y)) % 2 == 0), "without", "with")
    report = audit(y, prob, sensitive_features=groups, by=part, reference_group="x")
    assert not math.isnan(report.by["with",].proportional_equality["stochastic"])
    without = report.by["without",]
    assert list(without.groups) == ["y", "z"]
    assert all(math.isnan(v) for v in without.proportional_equality.values())
    assert without.pe_verdicts["stochastic"].word == "undefined"
    assert "group x, which the others are compared with, has no rows" in str(without)
    assert without.comparisons == ()
    assert without.reference_group == "x"
    assert without.amplification == {"stochastic": {}, "deterministic": {}}
    assert without.to_dict()["amplification"] == {"stochastic": [], "deterministic": []}
    json.dumps(without.to_dict(), allow_nan=False)
    every = audit(y, prob, sensitive_features=groups, by=part, reference_group="all")
    assert not math.isnan(every.by["without",].proportional_equality["stochastic"])


def test_parts_whose_figures_are_undefined_do_not_warn():
    # in the second part no row of group a is of class 1
    y, group = [0, 1, 0, 1, 0, 0, 0, 1], list("aabbaabb")
    prob = [0.2, 0.6, 0.4, 0.8, 0.1, 0.2, 0.3, 0.7]
    report = audit(y, prob, sensitive_features=group, by=[1, 1, 1, 1, 2, 2, 2, 2])
    assert report.by[2,].proportional_equality["stochastic"] == math.inf


def test_missing_values_are_left_out_and_counted():
    y, prob, groups, weight = sample(2)
    y, prob, groups = y.astype(object), prob.copy(), groups.astype(object)
    part = (np.arange(len(y)) % 2).astype(object)
    y[3], prob[5, 0], groups[7], groups[3], part[11] = None, np.nan, None, None, None
    with pytest.raises(ValueError, match="missing value"):
        audit(y, prob, sensitive_features=groups)
    keep = np.setdiff1d(np.arange(len(y)), [3, 5, 7, 11])
    options = {"sample_weight": weight, "y_pred": y}
    report = audit(y, prob, sensitive_features=groups, by=part, drop_missing=True, **options)
    assert report.dropped == 4
    whole = audit(y[keep], prob[keep], sensitive_features=groups[keep],
                  sample_weight=weight[keep], y_pred=y[keep])  # fmt: skip
    assert report.table.groups == whole.table.groups
    for name, sums in whole.table.sums.items():  # weights are added up part by part
        np.testing.assert_allclose(report.table.sums[name].astype(float), sums.astype(float))
    assert list(report.by) == [(0,), (1,)]
    assert "4 rows left out" in str(report)
    assert report.to_dict()["dropped"] == 4
    with pytest.raises(ValueError, match="each of the 2 rows has a missing value"):
        audit([None, 1], [0.5, None], sensitive_features=["a", "b"], drop_missing=True)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"by": [1, 2]}, "by, column 0 has 2 rows, but y_prob has 240"),
        ({"by": [None] + [1] * 239}, "by, column 0 has 1 missing value"),
        ({"by": np.ones(240), "sensitive_features": [1, 2]}, "column 0 has 2 rows, but y_prob"),
    ],
)
def test_mistakes_in_parts_are_named(change, match):
    y, prob, groups, _ = sample(2)
    with pytest.raises(ValueError, match=match):
        audit(**{"y_true": y, "y_prob": prob, "sensitive_features": groups, **change})


# --- tables of their own ---------------------------------------------------------------------


def columns_of(y, prob, groups):
    return pd.DataFrame({"label": y, **{f"p{k}": prob[:, k] for k in range(prob.shape[1])},
                         "who": groups, "age": np.arange(len(y)) % 2})  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
def test_a_frame_has_the_figures_of_its_columns(classes):
    y, prob, groups, _ = sample(classes)
    frame = columns_of(y, prob, groups)
    names = [f"p{k}" for k in range(classes)]
    found = audit("label", names, sensitive_features="who", data=frame)
    plain = audit(y, prob, sensitive_features=groups)
    assert found.table == plain.table
    assert found.overall == plain.overall
    assert found.verdicts == plain.verdicts
    assert not found.by
    split = audit("label", names, sensitive_features=["who", "age"], by="age", data=frame)
    assert list(split.by) == [(0,), (1,)]
    other = audit(y, prob, sensitive_features=frame[["who", "age"]], by=frame["age"])
    assert split.table == other.table
    assert split.by[1,].groups == other.by[1,].groups


def test_a_file_has_the_figures_of_its_columns(tmp_path):
    y, prob, groups, _ = sample(2)
    frame = columns_of(y, prob, groups)
    frame["decision"] = 1 - frame["label"]
    frame.to_parquet(tmp_path / "p.parquet")
    for source in (tmp_path / "p.parquet", str(tmp_path / "*.parquet"), tmp_path):
        found = audit(
            "label", "p1", sensitive_features="who", y_pred="decision", data=source,
            intervals=False, labels=[0, 1],
        )  # fmt: skip
        plain = audit(y, prob[:, 1], sensitive_features=groups, y_pred=1 - y)
        assert found.table == plain.table
        assert found.intervals is None
        assert found.overall["accuracy"] == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"y_true": [0, 1]}, "with data=, y_true is the name of a column, got list"),
        ({"y_prob": np.ones(3)}, "y_prob is the name of a column or a list of names, got ndarray"),
        ({"sensitive_features": None}, "sensitive_features is the name of"),
        ({"by": 3}, "by is the name of a column or a list of names, got int"),
        ({"y_pred": ["a"]}, "y_pred is the name of a column, got list"),
        ({"sample_weight": [1]}, "with data=, sample_weight is the name of a column, got list"),
        ({"clusters": [1]}, "with data=, clusters is the name of a column, got list"),
        ({"data": None}, "'label' is the name of a column; pass data= with its table too"),
    ],
)
def test_mistakes_with_tables_are_named(change, match):
    frame = columns_of(*sample(2)[:3])
    arguments = {"y_true": "label", "y_prob": "p1", "sensitive_features": "who", "data": frame}
    with pytest.raises((TypeError, ValueError), match=re.escape(match)):
        audit(**{**arguments, **change})


# --- figures that are not there --------------------------------------------------------------


def test_one_group_has_no_proportional_equality():
    y, prob, _, _ = sample()
    report = audit(y, prob, sensitive_features=["only"] * len(y))
    assert report.proportional_equality.keys() == {"stochastic", "deterministic"}
    assert all(math.isnan(v) for v in report.proportional_equality.values())
    assert report.groups["only"] == report.overall
    assert report.gaps == {}
    assert report.comparisons == ()
    assert {v.word for v in report.pe_verdicts.values()} == {"undefined"}
    assert report.verdicts["only"].word == report.verdict.word


def test_infinite_proportional_equality_warns_and_is_shown():
    with pytest.warns(UndefinedMetricWarning, match="class 1 of group 'b' against 'a'") as caught:
        report = audit([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.7], sensitive_features=list("aabb"))
    assert report.proportional_equality["deterministic"] == math.inf
    assert "inf deterministic" in str(report)
    assert [w.filename for w in caught] == [__file__]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_one_row_or_a_few_have_a_report(n):
    report = audit([1, 0, 1][:n], [0.9, 0.3, 1.0][:n], sensitive_features=list("aab")[:n],
                   labels=[0, 1])  # fmt: skip
    assert report.verdict.word == "not enough evidence"
    assert report.verdict.rows == n
    json.dumps(report.to_dict(), allow_nan=False)
    assert "nan" not in str(report)


def test_the_names_are_there_from_the_package():
    assert equipoise.AuditTable is AuditTable
    assert equipoise.AuditReport is AuditReport


# --- as plain values -------------------------------------------------------------------------


def finite(values):
    """Return whether there is neither nan nor infinity anywhere in plain values."""
    if isinstance(values, dict):
        return all(isinstance(k, str) and finite(v) for k, v in values.items())
    if isinstance(values, list):
        return all(map(finite, values))
    return values is None or isinstance(values, bool | int | str) or math.isfinite(values)


def plain_change(found):
    plain = dataclasses.asdict(found)
    return plain | {"group": list(found.group), "reference": list(found.reference)}


def test_plain_values_are_strict_json():
    y, prob, groups, _ = sample()
    pairs = pd.DataFrame({"g": groups, "old": np.arange(len(y)) % 2 == 0})
    report = audit(y, prob, sensitive_features=pairs, by=np.arange(len(y)) % 2)
    found = report.to_dict()
    assert finite(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["format"] == "equipoise.AuditReport/1"
    assert AuditTable.from_dict(found["table"]) == report.table
    assert (found["rows"], found["level"], found["tolerance"]) == (240, 0.95, 0.05)
    assert found["overall"]["ece"]["value"] == report.overall["ece"]
    for own in found["groups"]:
        g = tuple(own["group"])
        assert own["metrics"]["brier"]["interval"] == list(report.intervals.groups[g]["brier"])
        assert own["verdict"]["word"] == report.verdicts[g].word
        assert own["rates"]["labels"][1]["label"] == 1
        assert own["rates"]["labels"][1]["value"] == report.rates[g]["labels"][1]
    assert found["gaps"]["accuracy"]["interval"] == list(report.intervals.gaps["accuracy"])
    assert (
        found["proportional_equality"]["stochastic"]["value"]
        == (report.proportional_equality["stochastic"])
    )
    ends = [(c["label"], c["difference"], c["low"], c["high"]) for c in found["comparisons"]]
    assert ends == [(c.label, c.difference, c.low, c.high) for c in report.comparisons]
    for verdict, plain in (
        (report.verdict, found["verdict"]),
        *((report.verdicts[tuple(own["group"])], own["verdict"]) for own in found["groups"]),
    ):
        assert plain == {**dataclasses.asdict(verdict), "interval": list(verdict.interval)}
    assert found["reference_group"] == list(report.reference_group)
    for kind, verdict in report.pe_verdicts.items():
        plain = found["proportional_equality"][kind]
        assert plain["amplification"] == plain_change(verdict.amplification)
        assert plain["not_amplified"] is verdict.not_amplified
        changes = [a for own in report.amplification[kind].values() for a in own.values()]
        assert len(changes) == 5 * 3
        assert found["amplification"][kind] == [plain_change(a) for a in changes]
    assert [part["key"] for part in found["by"]] == [[0], [1]]
    assert AuditTable.from_dict(found["by"][0]["report"]["table"]) == report.by[0,].table


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_plain_values_of_undefined_and_infinite_figures():
    report = audit([0, 1, 0, 1], [0.1, 0.0, 0.3, 0.7], sensitive_features=list("aabb"))
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["groups"][0]["metrics"]["log_loss"]["value"] == "inf"
    assert found["proportional_equality"]["deterministic"]["value"] == "inf"
    # no row of a is decided to be 1, though one is labelled 1
    (no, yes) = found["amplification"]["deterministic"]
    assert (no["group"], no["reference"], no["label"], yes["label"]) == ("b", "a", 0, 1)
    assert (yes["value"], yes["high"], yes["model_ratio"]) == ("inf", "inf", "inf")
    alone = audit([0, 1], [0.1, 0.7], sensitive_features=list("aa"), intervals=False)
    found = json.loads(json.dumps(alone.to_dict(), allow_nan=False))
    assert found["proportional_equality"]["stochastic"]["value"] is None
    assert found["overall"]["ece"]["interval"] is None
