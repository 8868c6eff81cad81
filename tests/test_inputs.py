"""Any coding, any container, the same result; and every mistake is named."""

import datetime
import functools
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.exceptions import UndefinedMetricWarning

from equipoise._inputs import encode_groups
from equipoise.auditing import audit
from equipoise.metrics import (
    METRICS,
    AuditTable,
    accuracy,
    equal_mass_calibration_error,
    expected_calibration_error,
    group_base_rates,
    groupwise_calibration_error,
    overall,
    proportional_equality,
)


@functools.cache
def sample(classes, n=60):
    rng = np.random.default_rng(classes)
    y, prob = rng.integers(0, classes, n), rng.dirichlet(np.ones(classes), n)
    return y, prob, rng.integers(0, 3, n), rng.integers(1, 5, n)


def shuffled(values):
    """A pandas column whose index says nothing about the order of its rows."""
    return pd.Series(values, index=np.random.default_rng(0).permutation(len(values)))


def same_sums(table, other):
    assert table.sums.keys() == other.sums.keys()
    for name in other.sums:
        np.testing.assert_array_equal(table.sums[name], other.sums[name], err_msg=name)


# --- codings ---------------------------------------------------------------------------------

CODINGS = [
    ("no", "yes"),
    (1, 2),
    (-1, 1),
    (False, True),
    (0.0, 1.0),
    (-(10**12), 10**12),
    ("a", "b", "c"),
    (-1, 0, 1),
    (10, 20, 30),
    (0.5, 1.5, 2.5),
]


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_labels_of_any_coding(coding):
    y, prob, groups, _ = sample(len(coding))
    coded = np.array(coding)[y]
    plain = AuditTable.from_arrays(y, prob, sensitive_features=groups)
    table = AuditTable.from_arrays(coded, prob, sensitive_features=groups)
    assert table.labels == coding
    assert [type(v) for v in table.labels] == [type(v) for v in coding]
    same_sums(table, plain)
    rates = group_base_rates(coded, sensitive_features=groups)
    assert all(tuple(r) == coding for r in rates.rates.values())
    if len(coding) == 2:
        same_sums(AuditTable.from_arrays(coded, prob[:, 1], sensitive_features=groups), table)


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_groups_of_any_coding(coding):
    y, prob, groups, _ = sample(3)
    groups = groups % len(coding)
    plain = AuditTable.from_arrays(y, prob, sensitive_features=groups)
    table = AuditTable.from_arrays(y, prob, sensitive_features=np.array(coding)[groups])
    assert table.groups == coding
    assert [type(v) for v in table.groups] == [type(v) for v in coding]
    same_sums(table, plain)


@pytest.mark.parametrize("coding", CODINGS, ids=str)
@pytest.mark.parametrize("as_", [tuple, list, np.array, pd.Index])
def test_labels_name_the_columns_in_any_order(coding, as_):
    y, prob, groups, _ = sample(len(coding))
    backwards = AuditTable.from_arrays(
        np.array(coding)[y], prob[:, ::-1], sensitive_features=groups, labels=as_(coding[::-1])
    )
    assert backwards.labels == coding[::-1]
    plain = AuditTable.from_arrays(y, prob, sensitive_features=groups)
    for name in METRICS:
        assert overall(backwards, name) == overall(plain, name)


@pytest.mark.parametrize(
    "values",
    [
        np.array([-128, 0, 100], np.int8),
        np.array([0, 2**15, 2**16 - 1], np.uint16),
        np.array([-(2**63), 0, 2**63 - 1]),
        np.array([0, 2**63, 2**64 - 1], np.uint64),
        np.array([2**64 - 3, 2**64 - 2, 2**64 - 1], np.uint64),
    ],
    ids=str,
)
def test_integers_of_any_width_do_not_wrap_around(values):
    y, prob, groups, _ = sample(3)
    table = AuditTable.from_arrays(y, prob, sensitive_features=values[groups])
    assert table.groups == tuple(values.tolist())
    same_sums(table, AuditTable.from_arrays(y, prob, sensitive_features=groups))


@pytest.mark.parametrize(
    ("present", "classes", "expected"),
    [
        (["b", "a"], 2, ("a", "b")),  # K distinct labels: sorted
        ([7, 5, 9], 3, (5, 7, 9)),
        ([True, False], 2, (False, True)),
        ([1, 2], 2, (1, 2)),
        ([0, 2], 3, (0, 1, 2)),  # fewer, but integers within 0..K-1: themselves
        ([1, 1], 2, (0, 1)),
        ([0], 4, (0, 1, 2, 3)),
        ([True], 2, (False, True)),
        ([False], 2, (False, True)),
    ],
)
def test_which_label_a_column_stands_for(present, classes, expected):
    prob = np.full((len(present), classes), 1 / classes)
    table = AuditTable.from_arrays(present, prob)
    assert repr(table.labels) == repr(expected)
    assert table["labels"][0].tolist() == [present.count(v) for v in expected]


@pytest.mark.parametrize(
    ("present", "classes"),
    [(["a", "b"], 3), (["a"], 2), ([1, 3], 3), ([-1, -1], 2), ([2, 2], 2), ([0, 1, 2], 2)],
)
def test_labels_that_do_not_say_their_column_are_refused(present, classes):
    prob = np.full((len(present), classes), 1 / classes)
    message = f"{len(set(present))} distinct labels .* for {classes} columns .*pass labels="
    for metric in (expected_calibration_error, equal_mass_calibration_error):
        with pytest.raises(ValueError, match=message):
            metric(present, prob)


def test_a_group_with_only_two_of_three_labels():
    labels = ["hi", "lo", "mid"]
    y, prob, _, _ = sample(3)
    groups = np.where(y == 2, "b", np.where(np.arange(60) % 2, "a", "b"))
    named = np.array(labels)[y]
    assert set(named[groups == "a"]) == {"hi", "lo"}
    table = AuditTable.from_arrays(named, prob, sensitive_features=groups)
    assert table["labels"][0, 2] == 0
    own = groups == "a"
    alone = expected_calibration_error(named[own], prob[own], labels=labels)
    found = groupwise_calibration_error(named, prob, sensitive_features=groups)
    assert found["a"] == alone
    # the class that the reference group lacks is x/0 in the data
    with pytest.warns(UndefinedMetricWarning, match="class 'mid' of group 'b' against 'a'"):
        assert proportional_equality(named, prob, sensitive_features=groups) == np.inf


# --- containers ------------------------------------------------------------------------------

COLUMNS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "numpy, objects": lambda v: np.array(v, dtype=object),
    "numpy, (n, 1)": lambda v: np.array(v)[:, None],
    "numpy, every second": lambda v: np.repeat(np.array(v), 2)[::2],
    "pandas": shuffled,
    "pandas, categorical": lambda v: shuffled(v).astype("category"),
    "pandas, other categories": lambda v: shuffled(
        pd.Categorical(v, categories=[*sorted(set(v))[::-1], type(v[0])(99)])
    ),
    "pandas, frame": lambda v: shuffled(v).to_frame("column"),
    "polars": pl.Series,
    "polars, frame": lambda v: pl.DataFrame({"column": v}),
    "pyarrow": pa.array,
    "pyarrow, chunks": lambda v: pa.chunked_array([v[:7], v[7:]]),
}
OF_NUMBERS = {
    "pandas, Int64": lambda v: shuffled(v).astype("Int64"),
    "pandas, int64[pyarrow]": lambda v: shuffled(v).astype("int64[pyarrow]"),
    "numpy, int8": lambda v: np.array(v, np.int8),
    "polars, UInt8": lambda v: pl.Series(v, dtype=pl.UInt8),
}
OF_STRINGS = {
    "pandas, string": lambda v: shuffled(v).astype("string"),
    "pandas, object": lambda v: shuffled(v).astype(object),
    "polars, categorical": lambda v: pl.Series(v, dtype=pl.Categorical),
    "polars, enum": lambda v: pl.Series(v, dtype=pl.Enum(["c", "b", "a"])),
    "pyarrow, dictionary": lambda v: pa.array(v).dictionary_encode(),
}


def names(values):
    return np.array(["a", "b", "c"])[values].tolist()


@pytest.mark.parametrize("convert", (COLUMNS | OF_NUMBERS).values(), ids=COLUMNS | OF_NUMBERS)
def test_columns_of_numbers(convert):
    y, prob, groups, weight = sample(3)
    plain = AuditTable.from_arrays(y, prob, sensitive_features=groups, sample_weight=weight)
    table = AuditTable.from_arrays(
        convert(y.tolist()),
        prob,
        sensitive_features=convert(groups.tolist()),
        sample_weight=convert(weight.tolist()),
        y_pred=convert(prob.argmax(axis=1).tolist()),
    )
    assert table == plain
    assert group_base_rates(
        convert(y.tolist()), sensitive_features=convert(groups.tolist())
    ) == group_base_rates(y, sensitive_features=groups)


def test_a_frame_whose_columns_are_numbered():
    rows = [("f", 1), ("m", 2), ("f", 2)]
    codes, groups = encode_groups(pd.DataFrame(rows))
    assert groups == sorted(set(rows))
    assert [groups[c] for c in codes] == rows
    assert group_base_rates([0, 1, 1], sensitive_features=pd.DataFrame([(3, 1), (3, 1), (4, 2)]))


@pytest.mark.parametrize("convert", (COLUMNS | OF_STRINGS).values(), ids=COLUMNS | OF_STRINGS)
def test_columns_of_strings(convert):
    y, prob, groups, _ = sample(3)
    plain = AuditTable.from_arrays(y, prob, sensitive_features=groups)
    table = AuditTable.from_arrays(
        convert(names(y)), prob, sensitive_features=convert(names(groups))
    )
    assert table.groups == table.labels == ("a", "b", "c")
    same_sums(table, plain)


PROBABILITIES = {
    "lists": lambda p: p.tolist(),
    "list of rows": list,
    "Fortran order": np.asfortranarray,
    "objects": lambda p: p.astype(object),
    "rows backwards": lambda p: p[::-1].copy()[::-1],
    "pandas": lambda p: pd.DataFrame(p, index=np.random.default_rng(0).permutation(len(p))),
    "pandas, Float64": lambda p: pd.DataFrame(p).astype("Float64"),
    "polars": pl.DataFrame,
    "pyarrow": lambda p: pa.table({str(k): p[:, k] for k in range(p.shape[1])}),
}
POSITIVE = {
    "list": lambda p: p.tolist(),
    "pandas": shuffled,
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow, chunks": lambda p: pa.chunked_array([p]),
}


@pytest.mark.parametrize("convert", PROBABILITIES.values(), ids=PROBABILITIES)
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_in_any_container(convert, classes):
    y, prob, _, _ = sample(classes)
    assert AuditTable.from_arrays(y, convert(prob)) == AuditTable.from_arrays(y, prob)
    found = equal_mass_calibration_error(y, convert(prob))
    assert found == equal_mass_calibration_error(y, prob)


@pytest.mark.parametrize("convert", POSITIVE.values(), ids=POSITIVE)
def test_probabilities_of_the_positive_class_in_any_container(convert):
    y, prob, _, _ = sample(2)
    positive = prob[:, 1]
    both = np.stack([1 - positive, positive], axis=1)
    assert AuditTable.from_arrays(y, convert(positive)) == AuditTable.from_arrays(y, both)


def test_integers_and_booleans_are_probabilities_of_zero_and_one():
    for kind in (int, bool, np.float16):
        assert accuracy([0, 1, 1], np.array([0, 1, 0], kind)) == pytest.approx(2 / 3)


SEVERAL = {
    "pandas": lambda a, b: pd.DataFrame({"x": a, "y": b}, index=np.arange(len(a))[::-1]),
    "polars": lambda a, b: pl.DataFrame({"x": a, "y": b}),
    "pyarrow": lambda a, b: pa.table({"x": a, "y": b}),
    "tuples": lambda a, b: list(zip(a, b, strict=True)),
    "lists": lambda a, b: [list(pair) for pair in zip(a, b, strict=True)],
    "numpy, objects": lambda a, b: np.array([a, b], dtype=object).T,
    "dict": lambda a, b: {"x": a, "y": b},
    "dict of columns": lambda a, b: {"x": pd.Series(a), "y": np.array(b)},
}


@pytest.mark.parametrize("convert", SEVERAL.values(), ids=SEVERAL)
@pytest.mark.parametrize("second", [[3, 5], ["u", "v"], [False, True]], ids=str)
def test_several_sensitive_columns(convert, second):
    y, prob, groups, _ = sample(3)
    a, b = names(groups), [second[i % 2] for i in range(60)]
    table = AuditTable.from_arrays(y, prob, sensitive_features=convert(a, b))
    expected = tuple((x, s) for x in "abc" for s in second)
    assert repr(table.groups) == repr(expected)
    same_sums(
        table, AuditTable.from_arrays(y, prob, sensitive_features=groups * 2 + np.arange(60) % 2)
    )


def test_three_columns_of_numbers():
    y, prob, groups, _ = sample(3)
    stacked = np.stack([groups, np.arange(60) % 2, np.arange(60) // 30], axis=1)
    table = AuditTable.from_arrays(y, prob, sensitive_features=stacked)
    assert table.groups == tuple(sorted({tuple(row) for row in stacked.tolist()}))
    code = stacked @ [4, 2, 1]
    same_sums(table, AuditTable.from_arrays(y, prob, sensitive_features=code))


def test_only_the_intersections_that_occur_are_groups():
    table = AuditTable.from_arrays([0, 1], [0.2, 0.7], sensitive_features=[("x", 1), ("y", 2)])
    assert table.groups == (("x", 1), ("y", 2))


# --- mistakes --------------------------------------------------------------------------------

GOOD = {
    "y_true": [0, 1, 2, 0],
    "y_prob": [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [1.0, 0.0, 0.0]],
    "sensitive_features": ["a", "a", "b", "b"],
    "sample_weight": [1.0, 2.0, 0.0, 1.0],
}


def row_2(row):
    return [*GOOD["y_prob"][:2], row, GOOD["y_prob"][3]]


DATES = [datetime.date(2020, 1, d) for d in (1, 2, 3, 4)]

MISTAKES = {
    # probabilities
    "nan": ({"y_prob": row_2([0.5, np.nan, 0.5])}, "y_prob, row 2: .* contains NaN"),
    "None": ({"y_prob": row_2([0.5, None, 0.5])}, "y_prob, row 2: .* contains NaN"),
    "negative": ({"y_prob": row_2([0.6, -0.1, 0.5])}, r"y_prob, row 2: .* not within 0\.\.1"),
    "barely negative": ({"y_prob": row_2([0.5, -1e-12, 0.5])}, r"row 2: .* not within 0\.\.1"),
    "above one": ({"y_prob": row_2([1.1, 0.0, 0.0])}, r"y_prob, row 2: .* not within 0\.\.1"),
    "infinite": ({"y_prob": row_2([np.inf, 0.0, 0.0])}, r"y_prob, row 2: .* not within 0\.\.1"),
    "sum": ({"y_prob": row_2([0.5, 0.3, 0.1])}, r"y_prob, row 2: .* sums to 0\.9, not 1"),
    "zeros": ({"y_prob": row_2([0.0, 0.0, 0.0])}, "y_prob, row 2: .* sums to 0, not 1"),
    "percent": ({"y_prob": (100 * np.array(GOOD["y_prob"]))}, "y_prob, row 0: .* not within"),
    "logits": (
        {"y_prob": np.log(np.array(GOOD["y_prob"]) + 0.1)},
        r"y_prob, row 0: .* pass probabilities \(apply softmax to logits\)",
    ),
    "positive logits": ({"y_prob": row_2([2.0, 1.0, 3.0])}, r"row 2: .* softmax to logits"),
    "words": ({"y_prob": [["x", "y", "z"]] * 4}, "y_prob must hold numbers"),
    "complex": ({"y_prob": np.full((4, 3), 1j)}, "y_prob must hold numbers, got dtype complex"),
    "empty": ({"y_prob": np.zeros((0, 3)), "y_true": []}, "y_prob is empty"),
    "three axes": ({"y_prob": np.ones((4, 3, 1))}, r"y_prob must be .* got shape \(4, 3, 1\)"),
    "no axis": ({"y_prob": 0.5}, r"y_prob must be .* got shape \(\)"),
    "one column": ({"y_prob": np.ones((4, 1))}, r"y_prob has 1 column.*one-dimensional array"),
    # labels
    "short labels": ({"y_true": [0, 1, 2]}, "y_true has 3 rows, but y_prob has 4"),
    "label None": ({"y_true": ["u", None, "v", "w"]}, "y_true has 1 missing value, .* row 1"),
    "label nan": ({"y_true": [0, 1, np.nan, np.nan]}, "y_true has 2 missing values, .* row 2"),
    "label pd.NA": (
        {"y_true": pd.Series([0, 1, 2, None], dtype="Int64")},
        "y_true has 1 missing value, .* row 3",
    ),
    "label null": ({"y_true": pl.Series([0, None, 2, 1])}, "y_true has 1 missing value, .* row 1"),
    "mixed labels": ({"y_true": [0, "1", 2, 0]}, r"y_true mixes values .*\(int, str\)"),
    "two columns of labels": ({"y_true": np.ones((4, 2))}, "y_true must be a single column, got 2"),
    "lists as labels": (
        {"y_true": pd.Series([[0], [1], [2], [0]])},
        "y_true holds values that are not plain",
    ),
    "dates as labels": ({"y_true": np.array(DATES, "M8[D]")}, "y_true holds dates"),
    "complex labels": ({"y_true": np.array([0, 1j, 2, 0])}, "y_true holds complex numbers"),
    # labels=
    "unknown label": ({"labels": (0, 1, 3)}, r"y_true contains 2, .* not in labels=\(0, 1, 3\)"),
    "few labels": ({"labels": (0, 1)}, r"2 labels \(0, 1\) .* labels must name the 3 columns"),
    "many labels": ({"labels": [0, 1, 2, 3]}, "labels must name the 3 columns"),
    "double label": ({"labels": (0, 1, 1)}, "labels must name the 3 columns of y_prob, each once"),
    # weights
    "negative weight": ({"sample_weight": [1, -1, 1, 1]}, r"sample_weight, row 1: -1\.0"),
    "weight nan": ({"sample_weight": [1, 1, 1, np.nan]}, "sample_weight, row 3: nan"),
    "weight inf": ({"sample_weight": [np.inf, 1, 1, 1]}, "sample_weight, row 0: inf"),
    "zero weights": ({"sample_weight": np.zeros(4)}, "sample_weight is zero in every row"),
    "short weights": ({"sample_weight": [1, 2]}, "sample_weight has 2 rows, but y_prob has 4"),
    "word as weight": ({"sample_weight": list("abcd")}, "sample_weight"),
}
GROUP_MISTAKES = {
    "short groups": ({"sensitive_features": ["a"]}, "sensitive_features has 1 rows"),
    "group None": ({"sensitive_features": ["a", None, "b", "b"]}, "missing value, .* row 1"),
    "group nan": ({"sensitive_features": [0, 1, np.nan, 1]}, "missing value, .* row 2"),
    "group nan in text": ({"sensitive_features": ["a", "b", np.nan, "a"]}, "missing .* row 2"),
    "group pd.NA": (
        {"sensitive_features": ["a", pd.NA, "b", pd.NA]},
        "sensitive_features has 2 missing values, the first in row 1",
    ),
    "group NaT": (
        {"sensitive_features": np.array(["a", "b", pd.NaT, "b"], dtype=object)},
        "missing value, .* row 2",
    ),
    "group null": (
        {"sensitive_features": pl.Series([None, True, False, True])},
        "missing .* row 0",
    ),
    "group null in pyarrow": ({"sensitive_features": pa.array(["a", "b", None, "a"])}, "row 2"),
    "null in the second column": (
        {"sensitive_features": {"x": [0, 1, 0, 1], "y": ["a", "b", "a", None]}},
        "sensitive_features, column 1 has 1 missing value, the first in row 3",
    ),
    "columns of different length": (
        {"sensitive_features": {"x": [0, 1, 0, 1], "y": ["a", "b"]}},
        "column 1 has 2 rows, but the first column has 4",
    ),
    "no columns": ({"sensitive_features": {}}, "sensitive_features has no columns"),
    "mixed groups": ({"sensitive_features": ["a", 1, "b", 2]}, r"mixes values .*\(int, str\)"),
    "three axes of groups": ({"sensitive_features": np.ones((4, 2, 2))}, r"shape \(4, 2, 2\)"),
    "dates as groups": ({"sensitive_features": pd.Series(pd.to_datetime(DATES))}, "holds dates"),
    "polars dates": ({"sensitive_features": pl.Series(DATES)}, "holds dates"),
    "Python dates": ({"sensitive_features": DATES}, "holds dates"),
    "durations": ({"sensitive_features": np.arange(4).astype("m8[s]")}, "dates or durations"),
}


def run(function, arguments):
    accepted = {
        audit: GOOD.keys() | {"labels"},
        equal_mass_calibration_error: {"y_true", "y_prob", "sample_weight", "labels"},
        expected_calibration_error: {"y_true", "y_prob", "sample_weight", "labels"},
        proportional_equality: GOOD.keys() | {"labels"},
    }[function]
    return function(**{name: v for name, v in arguments.items() if name in accepted})


@pytest.mark.parametrize(("change", "match"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize(
    "function", [audit, equal_mass_calibration_error, expected_calibration_error]
)
def test_mistakes_are_named(function, change, match):
    with pytest.raises((ValueError, TypeError), match=match):
        run(function, {**GOOD, **change})


@pytest.mark.parametrize(("change", "match"), GROUP_MISTAKES.values(), ids=GROUP_MISTAKES)
@pytest.mark.parametrize("function", [audit, proportional_equality])
def test_mistakes_in_groups_are_named(function, change, match):
    with pytest.raises((ValueError, TypeError), match=match):
        run(function, {**GOOD, **change})
    with pytest.raises((ValueError, TypeError), match=re.escape("sensitive_features")):
        group_base_rates(GOOD["y_true"], **change)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize(
    "function",
    [audit, equal_mass_calibration_error, expected_calibration_error, proportional_equality],
)
def test_the_good_arguments_are_good(function):
    assert run(function, GOOD) is not None


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
@pytest.mark.parametrize("metric", [expected_calibration_error, equal_mass_calibration_error])
def test_the_first_bad_row_is_named_wherever_it_is(bad, metric):
    prob = np.full(200_000, 0.3)
    prob[[170_001, 190_000]] = bad
    y = np.arange(200_000) % 2
    with pytest.raises(ValueError, match=r"y_prob, row 170001: "):
        metric(y, prob)


@pytest.mark.parametrize("off", [-9e-4, 9e-4])
def test_rows_that_nearly_sum_to_one_are_taken_and_never_rescaled(off):
    prob = [[0.3, 0.7 + off], [0.25, 0.75]]
    table = AuditTable.from_arrays([1, 1], prob)
    assert table["probability"][0] == pytest.approx([0.55, 1.45 + off], abs=1e-9)
    found = expected_calibration_error([1, 1], prob, n_bins=1)
    assert found == pytest.approx(1 - (1.45 + off) / 2, abs=1e-9)


@pytest.mark.parametrize("off", [-1.1e-3, 1.1e-3])
def test_rows_that_do_not_sum_to_one_are_refused(off):
    with pytest.raises(ValueError, match=r"y_prob, row 1: .* sums to"):
        expected_calibration_error([1, 1], [[0.3, 0.7], [0.25, 0.75 + off]])


def test_a_misspelt_argument_raises():
    with pytest.raises(TypeError, match="sensitive_feature"):
        audit([0, 1], [0.1, 0.9], sensitive_feature=["a", "b"])
    with pytest.raises(TypeError, match="positional"):
        proportional_equality([0, 1], [0.1, 0.9], ["a", "b"])


def test_a_pyarrow_dictionary_with_nulls_keeps_its_rows():
    import pyarrow as pa

    column = pa.array(["x", None, "y"]).dictionary_encode()
    with pytest.raises(ValueError, match="1 missing value, the first in row 1"):
        audit([0, 1, 1], [0.1, 0.6, 0.7], sensitive_features=pa.chunked_array([column]))
