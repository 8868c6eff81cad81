"""Proportional equality: the paper's example, its lemmas, plain loops, and undefined ratios."""

import functools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.exceptions import UndefinedMetricWarning

import oracle_metrics as oracle
from equipoise.metrics import (
    AuditTable,
    GroupRates,
    classwise_calibration_error,
    expected_calibration_error,
    group_base_rates,
    groupwise_calibration_error,
    proportional_equality,
    proportional_equality_of,
)

KINDS = ("stochastic", "deterministic")
FORMS = ("group-ratio", "amplification")
each_kind = pytest.mark.parametrize("kind", KINDS)
each_form = pytest.mark.parametrize("form", FORMS)


# --- the paper's Table 1 ---------------------------------------------------------------------

DATA = {"Man": {"Doc": 0.7, "Nurse": 0.3}, "Woman": {"Doc": 0.2, "Nurse": 0.8}}
MODELS = {1: {"Man": 0.7, "Woman": 0.2}, 2: {"Man": 0.8, "Woman": 0.15}}


@pytest.mark.parametrize("wrap", [GroupRates, dict])
@pytest.mark.parametrize(
    ("model", "form", "reference", "expected"),
    [
        (1, "group-ratio", "Woman", 0),
        (1, "amplification", "Woman", 0),
        (2, "group-ratio", "Woman", abs(0.7 / 0.2 - 0.8 / 0.15)),  # 1.833
        (2, "group-ratio", "Man", abs(0.8 / 0.3 - 0.85 / 0.2)),
        (2, "amplification", "Woman", 0.85 / 0.8 - 0.2 / 0.3),  # 0.396
    ],
)
def test_table_1(model, form, reference, expected, wrap):
    p = MODELS[model]
    found = proportional_equality(
        None,
        [[p["Man"], 1 - p["Man"]], [p["Woman"], 1 - p["Woman"]]] * 10,
        sensitive_features=["Man", "Woman"] * 10,
        base_rates=wrap(DATA),
        reference_group=reference,
        form=form,
    )
    assert found == pytest.approx(expected, abs=1e-8)
    printed = {(2, "group-ratio", "Woman"): 1.833, (2, "amplification", "Woman"): 0.396}
    assert round(found, 3) == printed.get((model, form, reference), round(expected, 3))


@each_kind
@each_form
def test_table_1_from_rows(kind, form):
    """One row per person: twenty men and twenty women of the data, and the decisions of Model 2."""
    sex = ["Man"] * 20 + ["Woman"] * 20
    y = ["Doc"] * 14 + ["Nurse"] * 6 + ["Doc"] * 4 + ["Nurse"] * 16
    decided = ["Doc"] * 16 + ["Nurse"] * 4 + ["Doc"] * 3 + ["Nurse"] * 17
    prob = [[float(d == "Doc"), float(d == "Nurse")] for d in decided]
    found = proportional_equality(
        y, prob, sensitive_features=sex, kind=kind, form=form, reference_group="Woman"
    )
    assert round(found, 3) == {"group-ratio": 1.833, "amplification": 0.396}[form]


# --- plain loops -----------------------------------------------------------------------------


@st.composite
def problems(draw):
    k, n_groups = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    n = draw(st.integers(n_groups, 30))
    counts = draw(arrays(np.int64, (n, k), elements=st.integers(0, 6)))
    counts[:, 0] += counts.sum(axis=1) == 0
    groups = draw(arrays(np.int64, n, elements=st.integers(0, n_groups - 1)))
    groups[:n_groups] = np.arange(n_groups)  # none is absent
    return {
        "y": draw(arrays(np.int64, n, elements=st.integers(0, k - 1))),
        "prob": counts / counts.sum(axis=1, keepdims=True),
        "groups": groups * 10,
        "weight": draw(st.none() | arrays(np.int64, n, elements=st.integers(1, 8))),
        "decisions": draw(st.none() | arrays(np.int64, n, elements=st.integers(0, k - 1))),
        "reference": draw(st.none() | st.just("all") | st.integers(0, n_groups - 1).map(int)),
    }


@pytest.mark.slow
@each_kind
@each_form
@given(problem=problems())
@settings(deadline=None, derandomize=True, database=None, max_examples=120)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_equals_the_oracle(kind, form, problem):
    y, prob, groups, weight = (problem[name] for name in ("y", "prob", "groups", "weight"))
    k = prob.shape[1]
    reference = problem["reference"]
    reference = reference * 10 if isinstance(reference, int) else reference
    expected = oracle.proportional_equality(
        oracle.group_rates(y, groups.tolist(), k, weight),
        oracle.model_rates(prob, groups.tolist(), weight, kind, problem["decisions"]),
        form,
        reference,
    )
    found = proportional_equality(
        y,
        prob,
        sensitive_features=groups,
        kind=kind,
        form=form,
        reference_group=reference,
        y_pred=problem["decisions"],
        labels=range(k),
        sample_weight=weight,
    )
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6, nan_ok=True)


@functools.cache
def sample():
    rng = np.random.default_rng(5)
    n = 400
    y, groups = rng.integers(0, 3, n), rng.choice(["a", "b", "c", "d"], n)
    return y, rng.dirichlet([3, 2, 1], n), groups


@each_kind
def test_reference_group(kind):
    y, prob, groups = sample()
    pe = functools.partial(proportional_equality, y, prob, sensitive_features=groups, kind=kind)
    named = {g: pe(reference_group=g) for g in "abcd"}
    assert len(set(named.values())) == 4
    assert pe() == named["a"]  # the first in sorted order
    assert pe(reference_group="all") == max(named.values())
    with pytest.raises(ValueError, match=r"reference_group 'e' is not one of the groups .*'a'"):
        pe(reference_group="e")


def test_the_first_group_is_the_default_whatever_comes_first_in_the_rows():
    y, prob, groups = sample()
    backwards = proportional_equality(y[::-1], prob[::-1], sensitive_features=groups[::-1])
    assert backwards == proportional_equality(y, prob, sensitive_features=groups)


def test_groups_0_and_1_are_the_paper_s_denominator_and_numerator():
    # Pr[Y = 1 | A]: .5 and 1; Pr[Yhat = 1 | A]: .25 and .5; class 0: 0/.5 against .5/.75
    y, prob = [0, 1, 1, 1], [0.25, 0.25, 0.5, 0.5]
    found = proportional_equality(y, prob, sensitive_features=[0, 0, 1, 1])
    assert found == pytest.approx(2 / 3)


@each_kind
def test_decisions_made_elsewhere_replace_the_argmax_of_the_deterministic_kind_only(kind):
    y, prob, groups = sample()
    decided = np.random.default_rng(9).integers(0, 3, len(y))
    found = proportional_equality(y, prob, sensitive_features=groups, kind=kind, y_pred=decided)
    hard = np.eye(3)[decided]
    expected = proportional_equality(
        y, hard if kind == "deterministic" else prob, sensitive_features=groups
    )
    assert found == pytest.approx(expected, rel=1e-12)


def test_of_a_table_is_the_same():
    y, prob, groups = sample()
    table = AuditTable.from_arrays(y, prob, sensitive_features=groups)
    for kind in KINDS:
        for form in FORMS:
            assert proportional_equality_of(
                table, kind=kind, form=form, reference_group="b"
            ) == proportional_equality(
                y, prob, sensitive_features=groups, kind=kind, form=form, reference_group="b"
            )


def test_several_sensitive_columns_are_their_intersection():
    y, prob, groups = sample()
    frame = pd.DataFrame({"sex": groups, "old": np.arange(len(y)) % 2 == 0})
    joined = [f"{s}{int(o)}" for s, o in zip(frame["sex"], frame["old"], strict=True)]
    found = proportional_equality(
        y, prob, sensitive_features=frame, reference_group=("c", True), kind="stochastic"
    )
    assert found == proportional_equality(
        y, prob, sensitive_features=joined, reference_group="c1", kind="stochastic"
    )


# --- base rates ------------------------------------------------------------------------------


def test_base_rates_are_the_oracle_s():
    y, _, groups = sample()
    weight = np.random.default_rng(2).integers(1, 5, len(y))
    names = np.array(["x", "y", "z"])
    for w in (None, weight):
        found = group_base_rates(names[y], sensitive_features=groups, sample_weight=w).rates
        expected = oracle.group_rates(y, groups.tolist(), 3, w)
        assert [(g, *r) for g, r in found.items()] == [(g, "x", "y", "z") for g in "abcd"]
        for g, rates in expected.items():
            assert list(found[g].values()) == pytest.approx(rates, rel=1e-12)


def test_base_rates_know_labels_that_no_row_has():
    rates = group_base_rates([0, 1], sensitive_features=["a", "b"], labels=[0, 1, 2]).rates
    assert rates == {"a": {0: 1, 1: 0, 2: 0}, "b": {0: 0, 1: 1, 2: 0}}
    with pytest.raises(ValueError, match=r"y contains 5, which is not in labels=\[0, 1\]"):
        group_base_rates([0, 5], sensitive_features=["a", "b"], labels=[0, 1])


@pytest.mark.parametrize(
    ("y", "groups", "match"),
    [
        ([], [], "y is empty"),
        ([0, 1], ["a"], "sensitive_features has 1 rows, but y has 2"),
        ([0, None], ["a", "b"], "y has 1 missing value, the first in row 1"),
        ([0, 1], [None, "b"], "sensitive_features has 1 missing value, the first in row 0"),
    ],
)
def test_base_rates_of_bad_input(y, groups, match):
    with pytest.raises(ValueError, match=match):
        group_base_rates(y, sensitive_features=groups)


@each_kind
@each_form
def test_training_rates_replace_those_of_the_test_labels(kind, form):
    y, prob, groups = sample()
    train = np.random.default_rng(3).permutation(y)
    rates = group_base_rates(train, sensitive_features=groups)
    expected = oracle.proportional_equality(
        oracle.group_rates(train, groups.tolist(), 3),
        oracle.model_rates(prob, groups.tolist(), kind=kind),
        form,
    )
    for labels in (y, None):
        found = proportional_equality(
            labels, prob, sensitive_features=groups, base_rates=rates, kind=kind, form=form
        )
        assert found == pytest.approx(expected, rel=1e-6)
    own = group_base_rates(y, sensitive_features=groups)
    found = proportional_equality(None, prob, sensitive_features=groups, base_rates=own, kind=kind)
    assert found == pytest.approx(
        proportional_equality(y, prob, sensitive_features=groups, kind=kind), rel=1e-12
    )


@pytest.mark.parametrize("y_true", [["Doc", "Nurse"], None])
def test_order_of_labels_within_base_rates_does_not_matter(y_true):
    """Columns stand for the sorted labels unless `labels=` says otherwise."""
    backwards = {g: dict(reversed(r.items())) for g, r in DATA.items()}
    found = proportional_equality(
        y_true,
        [[0.8, 0.2], [0.15, 0.85]],
        sensitive_features=["Man", "Woman"],
        base_rates=backwards,
        reference_group="Woman",
    )
    assert round(found, 3) == 1.833


GOOD = {
    "y_true": [0, 1, 0, 1],
    "y_prob": [0.2, 0.8, 0.4, 0.6],
    "sensitive_features": ["a", "a", "b", "b"],
}
HALF = {0: 0.5, 1: 0.5}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"base_rates": {"a": HALF}}, r"without base rates: \['b'\]"),
        ({"base_rates": {"a": HALF, "b": HALF, "c": HALF}}, r"only in base_rates: \['c'\]"),
        ({"base_rates": {"a": HALF, "b": {0: 1.0}}}, "base_rates lack the label 1"),
        ({"base_rates": {"a": HALF, "b": {0: 1.5, 1: -0.5}}}, r"base_rates must be within 0\.\.1"),
        ({"base_rates": {"a": HALF, "b": {0: math.nan, 1: 0}}}, r"must be within 0\.\.1"),
        ({"base_rates": {"a": HALF, "b": {0: 0.5, 1: 0.4}}}, r"group 'b' sum to 0\.9, not 1"),
        ({"y_true": None}, r"y_true is None: pass base_rates=group_base_rates"),
        (
            {
                "y_true": None,
                "y_prob": [[0.2, 0.3, 0.5]] * 4,
                "base_rates": {"a": HALF, "b": HALF},
            },
            "base_rates",
        ),
        ({"sensitive_features": ["a"] * 4}, "compares groups, but the only one here is 'a'"),
        ({"sensitive_features": None}, "compares groups, but the only one here is None"),
        ({"kind": "soft"}, "kind must be 'stochastic' or 'deterministic', got 'soft'"),
        ({"form": "ratio"}, "form must be 'group-ratio' or 'amplification', got 'ratio'"),
    ],
)
def test_mistakes_are_named(change, match):
    with pytest.raises(ValueError, match=match):
        proportional_equality(**{**GOOD, **change})


# --- undefined ratios ------------------------------------------------------------------------

# Label rates and model rates by group, and what is expected: the value, and for each warning
# what it must name. Classes are x, y(, z); the reference is group a.
UNDEFINED = {
    "0/0 in the data drops the class": (
        "group-ratio",
        {"a": [0, 0.5, 0.5], "b": [0, 0.25, 0.75]},
        {"a": [0.5, 0.25, 0.25], "b": [0.25, 0.25, 0.5]},
        0.5,
        [("'b'", "'x'", "0/0")],
    ),
    "0/0 in the model drops the class": (
        "group-ratio",
        {"a": [0.5, 0.25, 0.25], "b": [0.25, 0.25, 0.5]},
        {"a": [0.5, 0.5, 0], "b": [0.75, 0.25, 0]},
        1.0,
        [("'b'", "'z'", "0/0")],
    ),
    "0/0 on one side drops the class though the other is infinite": (
        "group-ratio",
        {"a": [0, 1], "b": [0, 1]},
        {"a": [0, 1], "b": [0.5, 0.5]},
        0.5,
        [("'b'", "'x'", "0/0")],
    ),
    "two infinite ratios drop the class": (
        "group-ratio",
        {"a": [0, 1], "b": [0.5, 0.5]},
        {"a": [0, 1], "b": [0.25, 0.75]},
        0.25,
        [("'b'", "'x'", "infinite")],
    ),
    "one infinite ratio, of the model": (
        "group-ratio",
        {"a": [0.5, 0.5], "b": [0.5, 0.5]},
        {"a": [1, 0], "b": [0.5, 0.5]},
        math.inf,
        [("'b'", "'y'", "infinite")],
    ),
    "one infinite ratio, of the data": (
        "group-ratio",
        {"a": [0, 1], "b": [0.5, 0.5]},
        {"a": [0.5, 0.5], "b": [0.5, 0.5]},
        math.inf,
        [("'b'", "'x'", "infinite")],
    ),
    "nothing left": (
        "group-ratio",
        {"a": [0, 1], "b": [0, 1]},
        {"a": [1, 0], "b": [1, 0]},
        math.nan,
        [("'b'", "'x'", "0/0"), ("'b'", "'y'", "0/0"), ("undefined",)],
    ),
    "a zero numerator is a plain zero": (
        "group-ratio",
        {"a": [0.5, 0.5], "b": [0, 1]},
        {"a": [0.5, 0.5], "b": [0.25, 0.75]},
        0.5,
        [],
    ),
    "only the group concerned is named": (
        "group-ratio",
        {"a": [0, 0.5, 0.5], "b": [0, 0.25, 0.75], "c": [0.5, 0.25, 0.25]},
        {"a": [0, 0.5, 0.5], "b": [0.5, 0.25, 0.25], "c": [0.5, 0.25, 0.25]},
        1.0,
        [("'b'", "'x'", "0/0"), ("'c'", "'x'", "infinite")],
    ),
    "amplification, 0/0": (
        "amplification",
        {"a": [0.5, 0.5], "b": [0, 1]},
        {"a": [0.5, 0.5], "b": [0, 1]},
        0.0,
        [("'b'", "'x'", "0/0")],
    ),
    "amplification, one infinite ratio": (
        "amplification",
        {"a": [0.5, 0.5], "b": [0, 1]},
        {"a": [0.5, 0.5], "b": [0.5, 0.5]},
        math.inf,
        [("'b'", "'x'", "infinite")],
    ),
    "amplification, two infinite ratios": (
        "amplification",
        {"a": [0, 1], "b": [0, 1]},
        {"a": [0.5, 0.5], "b": [0.25, 0.75]},
        0.25,
        [("'b'", "'x'", "infinite")],
    ),
}


@pytest.mark.parametrize(
    ("form", "data", "model", "expected", "named"), UNDEFINED.values(), ids=UNDEFINED
)
def test_undefined_ratios(form, data, model, expected, named):
    names = ["x", "y", "z"][: len(data["a"])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = proportional_equality(
            None,
            list(model.values()),
            sensitive_features=list(model),
            base_rates={g: dict(zip(names, r, strict=True)) for g, r in data.items()},
            form=form,
        )
    assert found == pytest.approx(expected, abs=1e-8, nan_ok=True)
    assert found == pytest.approx(
        oracle.proportional_equality(data, model, form), abs=1e-8, nan_ok=True
    )
    assert len(caught) == len(named)
    for warning, words in zip(caught, named, strict=True):
        assert warning.category is UndefinedMetricWarning
        assert warning.filename == __file__
        for word in words:
            assert word in str(warning.message)
        others = {repr(g) for g in data} - {"'a'", *words}
        assert not any(other in str(warning.message) for other in others)


def test_a_class_never_predicted_for_the_reference_group_is_infinite():
    y, prob, groups = [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.7], list("aabb")
    with pytest.warns(UndefinedMetricWarning, match="class 1 of group 'b'.*infinite"):
        found = proportional_equality(y, prob, sensitive_features=groups, kind="deterministic")
    assert found == math.inf


# --- the paper's lemmas ----------------------------------------------------------------------


def world(rng, n):
    """(X, A, Y) with the known Pr[Y | X, A]: three classes, X and A independent."""
    x, a = rng.random(n), (rng.random(n) < 0.3).astype(int)
    given_a = [softmax(np.stack([2 * x - 1, s * x, 1 - x], axis=1)) for s in (1.0, 3.0)]
    true = np.where(a[:, None] == 0, *given_a)
    y = (rng.random(n)[:, None] > true.cumsum(axis=1)).sum(axis=1).clip(max=2)
    pooled = 0.7 * given_a[0] + 0.3 * given_a[1]  # Pr[Y | X]: calibrated, but not group-wise
    return y, a, true, pooled


def softmax(z):
    e = np.exp(z)
    return e / e.sum(axis=1, keepdims=True)


SIZES = {1_000: 100, 10_000: 30, 100_000: 10, 1_000_000: 3}


@functools.cache
def figures(model):
    """PE, ECE, class-wise ECE and the worst group's ECE, each by n, averaged over draws.

    As in the paper, the base rates come from training data, here another draw of n rows.
    """
    means = []
    for n, repeats in SIZES.items():
        rng = np.random.default_rng(n)
        rows = []
        for _ in range(repeats):
            y, a, *_ = world(rng, n)
            rates = group_base_rates(y, sensitive_features=a)
            y, a, true, pooled = world(rng, n)
            prob = true if model == "group-wise" else pooled
            rows.append(
                [
                    proportional_equality(y, prob, sensitive_features=a, base_rates=rates),
                    expected_calibration_error(y, prob),
                    classwise_calibration_error(y, prob),
                    max(groupwise_calibration_error(y, prob, sensitive_features=a).values()),
                ]
            )
        means.append(np.mean(rows, axis=0))
    return np.transpose(means)


def assert_vanishes(by_n):
    # each step has ten times the rows, so noise alone shrinks by about 3.2
    assert (by_n[1:] < by_n[:-1] / 2).all()
    assert by_n[-1] < 0.01


@pytest.mark.slow
def test_group_wise_calibrated_implies_calibrated():
    _, *errors = figures("group-wise")
    for ece in errors:
        assert_vanishes(ece)


def test_group_wise_calibrated_implies_fair():
    pe, *_ = figures("group-wise")
    assert_vanishes(pe)


@pytest.mark.slow
def test_calibrated_is_not_enough_to_be_fair():
    pe, ece, classwise, worst_group = figures("pooled")
    assert_vanishes(ece)
    assert_vanishes(classwise)
    assert (worst_group > 0.05).all()
    # what is left in the limit: Pr[Y | X] has the same rates in both groups, the labels have not
    x = (np.arange(100_000) + 0.5) / 100_000
    rate = [softmax(np.stack([2 * x - 1, s * x, 1 - x], axis=1)).mean(axis=0) for s in (1.0, 3.0)]
    limit = np.abs(rate[1] / rate[0] - 1).max()
    assert limit > 0.5
    assert pe[-1] == pytest.approx(limit, abs=0.01)


@each_kind
@each_form
def test_a_perfect_classifier_is_perfectly_fair(kind, form):
    y, _, groups = sample()
    found = proportional_equality(
        y, np.eye(3)[y], sensitive_features=groups, kind=kind, form=form, reference_group="all"
    )
    assert found == 0
