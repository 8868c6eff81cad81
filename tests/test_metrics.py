"""One contract for every metric: its function, and its row of `METRICS`, against plain loops."""

import functools

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from packaging.version import Version
from sklearn import metrics as sklearn_metrics
from sklearn.exceptions import UndefinedMetricWarning

import oracle_metrics as oracle
from equipoise import metrics
from equipoise.metrics import METRICS, AuditTable, by_group, overall, reliability_of
from equipoise.metrics._sums import bin_of

# unweighted probabilities are kept to 2**-33, and at most five classes are added up
CLOSE = {"rtol": 1e-12, "atol": 1e-9}

EXAMPLES = settings(deadline=None, derandomize=True, database=None, max_examples=40)

ORACLES = {
    "accuracy": oracle.accuracy,
    "ece": oracle.ece,
    "classwise_ece": oracle.classwise_ece,
    "debiased_squared_ece": oracle.debiased_squared_ece,
    "mce": oracle.mce,
    "brier": oracle.brier,
    "log_loss": oracle.log_loss,
    "equal_mass_ece": oracle.equal_mass_ece,
    "reliability": oracle.reliability_curve,
}


def curve(y_true, y_prob, **kwargs):
    return as_rows(metrics.reliability_curve(y_true, y_prob, **kwargs))


def as_rows(c):
    return np.stack([c.lower, c.upper, c.count, c.accuracy, c.confidence], axis=1)


FUNCTIONS = {
    "accuracy": metrics.accuracy,
    "ece": metrics.expected_calibration_error,
    "classwise_ece": metrics.classwise_calibration_error,
    "debiased_squared_ece": metrics.debiased_squared_calibration_error,
    "mce": metrics.maximum_calibration_error,
    "brier": metrics.brier_score,
    "log_loss": metrics.log_loss,
    "equal_mass_ece": metrics.equal_mass_calibration_error,
    "reliability": curve,
}
UNBINNED = {"accuracy", "brier", "log_loss"}
BINNED = sorted(FUNCTIONS.keys() - UNBINNED)


class Case:
    """A metric under test, called the same way whatever it is."""

    def __init__(self, name, *, from_table):
        self.name, self.from_table = name, from_table
        self.options = {} if name in UNBINNED else {"n_bins": 15}

    def __repr__(self):
        return f"METRICS[{self.name}]" if self.from_table else self.name

    def __call__(self, y, prob, weight=None, **kwargs):
        kwargs = {**self.options, **kwargs}
        if self.from_table:
            table = AuditTable.from_arrays(y, prob, sample_weight=weight, **kwargs)
            return overall(table, self.name)
        return FUNCTIONS[self.name](y, prob, sample_weight=weight, **kwargs)

    def expected(self, y, prob, weight=None, **kwargs):
        return ORACLES[self.name](y, prob, weight, **{**self.options, **kwargs})


CASES = [Case(name, from_table=False) for name in FUNCTIONS]
CASES += [Case(name, from_table=True) for name in METRICS]

each_case = pytest.mark.parametrize("case", CASES, ids=repr)
each_shape = pytest.mark.parametrize("classes", [1, 2, 3, 5, 40], ids=lambda k: f"columns={k}")


@functools.cache
def sample(classes, n=300):
    """Labels, probabilities and integer weights; one column is (n,). Read-only: nothing may write.

    Probabilities are multiples of 1/60, so that many rows stand on the edge of a bin or tie.
    """
    rng = np.random.default_rng(classes)
    k = max(classes, 2)
    counts = rng.multinomial(60, rng.dirichlet(np.ones(k), n))
    y = rng.integers(0, k, n)
    counts[np.arange(n), y] += counts[np.arange(n), y] == 0  # no label of probability zero
    prob = counts / counts.sum(axis=1, keepdims=True)
    prob = prob[:, 1] if classes == 1 else prob
    arrays_ = y, prob, rng.integers(0, 4, n)
    for array in arrays_:
        array.setflags(write=False)
    return arrays_


@st.composite
def problems(draw):
    k = draw(st.sampled_from([2, 3, 5]))
    n = draw(st.integers(1, 25))
    counts = draw(arrays(np.int64, (n, k), elements=st.integers(0, 12)))
    counts[:, 0] += counts.sum(axis=1) == 0
    prob = counts / counts.sum(axis=1, keepdims=True)
    if k == 2 and draw(st.booleans()):
        prob = prob[:, 1]
    y = draw(arrays(np.int64, n, elements=st.integers(0, k - 1)))
    weight = draw(st.none() | arrays(np.int64, n, elements=st.integers(0, 8)).filter(np.any))
    # quarters, so that the shares of equal-mass bins are met exactly
    return y, prob, None if weight is None else weight / 4, draw(st.integers(1, 20))


# --- the contract ----------------------------------------------------------------------------


@pytest.mark.slow
@each_case
@given(problem=problems())
@EXAMPLES
@pytest.mark.filterwarnings("ignore:log-loss is infinite")
def test_equals_the_oracle(case, problem):
    y, prob, weight, n_bins = problem
    options = {"n_bins": n_bins} if case.options else {}
    np.testing.assert_allclose(
        case(y, prob, weight, **options), case.expected(y, prob, weight, **options), **CLOSE
    )


@pytest.mark.slow
@each_case
@each_shape
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_oracle_on_many_rows(case, classes, weighted):
    y, prob, weight = sample(classes)
    weight = weight if weighted else None
    np.testing.assert_allclose(
        case(y, prob, weight),
        case.expected(y, prob, weight),
        rtol=1e-12,
        atol=1e-8 if classes > 5 else 1e-9,
    )


@each_case
@each_shape
def test_order_of_rows_changes_nothing(case, classes):
    y, prob, weight = sample(classes)
    order = np.random.default_rng(0).permutation(len(y))
    for w in (None, weight):
        shuffled = case(y[order], prob[order], None if w is None else w[order])
        np.testing.assert_allclose(shuffled, case(y, prob, w), rtol=1e-13, atol=1e-13)


@each_case
@each_shape
@pytest.mark.parametrize("unit", [1, 0.1, 3], ids=lambda u: f"weight={u}")
def test_equal_weights_are_no_weights(case, classes, unit):
    y, prob, _ = sample(classes)
    one, none = case(y, prob, np.full(len(y), unit)), case(y, prob)
    if case.name == "reliability":
        none[:, 2] *= unit  # the weight in each bin
    np.testing.assert_allclose(one, none, rtol=1e-12, atol=1e-8)


# the debiased form is made of pairs of different rows: two copies of a row are one, and a row of
# weight 2 is not
@pytest.mark.parametrize("case", [c for c in CASES if c.name != "debiased_squared_ece"], ids=repr)
@each_shape
def test_integer_weights_are_repeated_rows(case, classes):
    y, prob, weight = sample(classes)
    repeated = case(np.repeat(y, weight), np.repeat(prob, weight, axis=0), labels=range_of(prob))
    np.testing.assert_allclose(case(y, prob, weight), repeated, rtol=1e-12, atol=1e-8)


def range_of(prob):
    return tuple(range(2 if prob.ndim == 1 else prob.shape[1]))


@each_case
@each_shape
def test_inputs_are_left_alone(case, classes):
    given_arrays = sample(classes)  # read-only: writing would raise
    copies = [a.copy() for a in given_arrays]
    before = [a.copy() for a in given_arrays]
    case(*given_arrays)
    case(*copies)
    for copy, was in zip(copies, before, strict=True):
        np.testing.assert_array_equal(copy, was)


@pytest.mark.slow
@each_case
@each_shape
def test_float32_is_taken_at_its_exact_value_but_on_the_edges_of_bins(case, classes):
    y, prob, _ = sample(classes)
    single = prob.astype(np.float32)
    wide = single.astype(float)
    # bins of equal mass have no edges of their own
    for edge in range(0 if case.name == "equal_mass_ece" else 16):
        wide[single == np.float32(edge / 15)] = edge / 15
    np.testing.assert_allclose(case(y, single), case.expected(y, wide), rtol=1e-12, atol=1e-7)


@each_shape
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["accuracy", "brier", "log_loss"])
def test_equals_scikit_learn(name, classes, weighted):
    if name == "brier" and Version(sklearn.__version__) < Version("1.7"):
        pytest.skip("scikit-learn has the Brier score of several classes from 1.7 on")
    y, prob, weight = sample(classes)
    weight = weight if weighted else None
    both = np.stack([1 - prob, prob], axis=1) if prob.ndim == 1 else prob
    expected = {
        "accuracy": lambda: sklearn_metrics.accuracy_score(
            y, both.argmax(axis=1), sample_weight=weight
        ),
        "brier": lambda: sklearn_metrics.brier_score_loss(
            y, both, labels=range_of(both), sample_weight=weight
        ),
        "log_loss": lambda: sklearn_metrics.log_loss(
            y, both, labels=range_of(both), sample_weight=weight
        ),
    }[name]()
    found = FUNCTIONS[name](y, prob, sample_weight=weight)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-8)


# equal-mass bins need all rows at once, so they are not of the table
@pytest.mark.parametrize("case", [c for c in CASES if c.name != "equal_mass_ece"], ids=repr)
def test_each_group_is_measured_on_its_own_rows(case):
    y, prob, weight = sample(3)
    groups = np.random.default_rng(1).choice([0, 2, 7], len(y))  # values, not positions
    for w in (None, weight):
        table = AuditTable.from_arrays(y, prob, sensitive_features=groups, sample_weight=w)
        if case.name == "reliability":
            found = {g: as_rows(c) for g, c in reliability_of(table).items()}
        else:
            found = by_group(table, case.name)
        assert list(found) == [0, 2, 7]
        for g in found:
            own = groups == g
            alone = case(y[own], prob[own], None if w is None else w[own], labels=(0, 1, 2))
            np.testing.assert_allclose(found[g], alone, rtol=1e-12, atol=1e-12)


def test_groupwise_calibration_error_is_the_ece_of_each_group():
    y, prob, weight = sample(5)
    groups = np.random.default_rng(1).choice(["b", "a"], len(y))
    found = metrics.groupwise_calibration_error(
        y, prob, sensitive_features=groups, n_bins=7, sample_weight=weight
    )
    assert list(found) == ["a", "b"]
    for g in found:
        own = groups == g
        expected = oracle.ece(y[own], prob[own], weight[own], n_bins=7)
        assert found[g] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", BINNED)
@pytest.mark.parametrize("n_bins", [0, -1, 2.5, "15", None, 1001, 10**7])
def test_impossible_numbers_of_bins_are_refused(name, n_bins):
    with pytest.raises(ValueError, match=r"n_bins must be (a positive integer|at most 1,000)"):
        FUNCTIONS[name]([0, 1], [0.1, 0.9], n_bins=n_bins)


# --- bins ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bins", range(2, 201))
def test_bin_edges_are_exact(n_bins):
    edges = np.arange(n_bins + 1) / n_bins
    p = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    expected = np.maximum(np.searchsorted(edges, p, side="left") - 1, 0)
    np.testing.assert_array_equal(bin_of(p, n_bins), expected)

    table = AuditTable.from_arrays(
        np.arange(len(p)) % 2, p, n_bins=n_bins, blocks=("classwise", "bins")
    )
    counts = np.bincount(expected, minlength=n_bins)
    np.testing.assert_array_equal(table["class_count"][0, 1], counts)
    sums = np.bincount(expected, np.floor(p * 2**32 + 0.5), n_bins) / 2**32
    np.testing.assert_array_equal(table["class_probability"][0, 1], sums)
    confidence = np.maximum(p, 1 - p)
    top = np.maximum(np.searchsorted(edges, confidence, side="left") - 1, 0)
    np.testing.assert_array_equal(table["bin_count"][0], np.bincount(top, minlength=n_bins))


def test_confidence_zero_is_in_the_first_bin():
    table = AuditTable.from_arrays([0, 1, 1], [0.0, 0.0, 0.0], n_bins=4)
    assert table["class_count"][0, 1].tolist() == [3, 0, 0, 0]
    assert metrics.classwise_calibration_error([0, 1, 1], [0.0, 0.0, 0.0]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_confidence_one_is_in_the_last_bin(kind):
    y, p = [1, 1, 1, 0], np.ones(4, kind)
    c = metrics.reliability_curve(y, p, n_bins=10)
    assert c.count.tolist() == [0] * 9 + [4]
    assert (c.accuracy[-1], c.confidence[-1]) == (0.75, 1.0)
    assert metrics.expected_calibration_error(y, p) == 0.25
    assert metrics.maximum_calibration_error(y, p) == 0.25


@pytest.mark.parametrize(
    ("row", "first"),
    [
        (0.5, 0),
        ([0.5, 0.5], 0),
        ([0.4, 0.4, 0.2], 0),
        ([0.2, 0.4, 0.4], 1),
        *(([1 / k] * k, 0) for k in (40, 127, 128, 300)),
        *(([0.0] * k + [0.5, 0.0, 0.5], k) for k in (37, 124, 125, 126, 297)),
    ],
)
def test_ties_go_to_the_first_class(row, first):
    classes = 2 if np.isscalar(row) else len(row)
    table = AuditTable.from_arrays([0], [row], labels=range(classes))
    assert np.flatnonzero(table["predictions"][0]).tolist() == [first]
    for label in {first, 0, classes - 1}:
        assert metrics.accuracy([label], [row]) == (label == first)


# --- what the figures mean -------------------------------------------------------------------


def calibrated(rng, n):
    # log-odds of standard deviation 2 give the figures
    p = 1 / (1 + np.exp(-rng.normal(0, 2, n)))
    return (rng.random(n) < p).astype(int), p


@pytest.mark.parametrize(
    ("n", "repeats", "raw", "tolerance"), [(100, 900, 0.085, 0.002), (5000, 150, 0.012, 0.0006)]
)
def test_raw_ece_is_biased_by_size_and_the_debiased_form_is_not(n, repeats, raw, tolerance):
    rng = np.random.default_rng(n)
    draws = [calibrated(rng, n) for _ in range(repeats)]
    found = np.mean([metrics.expected_calibration_error(y, p) for y, p in draws])
    assert found == pytest.approx(raw, abs=tolerance)
    debiased = np.array([metrics.debiased_squared_calibration_error(y, p) for y, p in draws])
    assert abs(debiased.mean()) < 3 * debiased.std(ddof=1) / repeats**0.5
    assert debiased.min() < 0
    assert np.mean([squared_ece(y, p) for y, p in draws[:50]]) > 5 * abs(debiased.mean())


def squared_ece(y, p):
    """The plain, biased squared ECE."""
    c = curve(y, p)[:, 2:]
    c = c[c[:, 0] > 0]
    return float((c[:, 0] / len(y) * (c[:, 1] - c[:, 2]) ** 2).sum())


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 20, 100])
def test_debiased_form_finds_the_true_squared_gap_at_any_size(n):
    rng = np.random.default_rng(n)
    found = np.array(
        [
            metrics.debiased_squared_calibration_error(rng.random(n) < 0.7, np.full(n, 0.9))
            for _ in range(1000)
        ]
    )
    assert abs(found.mean() - 0.2**2) < 3 * found.std(ddof=1) / 1000**0.5


def test_log_loss_is_infinite_with_a_warning():
    with pytest.warns(UndefinedMetricWarning, match="log-loss is infinite") as caught:
        assert metrics.log_loss([0, 1, 1], [0.2, 0.9, 0.0]) == np.inf
    assert [w.filename for w in caught] == [__file__]


def test_log_loss_ignores_rows_that_weigh_nothing():
    found = metrics.log_loss([0, 1, 1], [0.2, 0.9, 0.0], sample_weight=[1, 1, 0])
    assert found == pytest.approx(-np.log([0.8, 0.9]).mean())


def test_accuracy_of_decisions_made_elsewhere():
    y, prob = ["n", "p", "p", "n"], [0.1, 0.4, 0.45, 0.3]
    assert metrics.accuracy(y, prob) == 0.5
    assert metrics.accuracy(y, prob, y_pred=["n", "p", "p", "p"]) == 0.75
    with pytest.raises(ValueError, match="y_pred contains 'x'"):
        metrics.accuracy(y, prob, y_pred=["n", "p", "p", "x"])


@pytest.mark.parametrize("weighted", [False, True])
def test_groupwise_is_the_metric_on_the_groups_own_rows(weighted):
    rng = np.random.default_rng(0)
    prob = rng.dirichlet(np.ones(3), 200)
    y = np.array(["x", "y", "z"])[rng.integers(0, 3, 200)]
    group = rng.choice(["f", "m"], 200)
    y[(group == "f") & (y == "z")] = "x"  # a group with two of the three labels
    weight = rng.uniform(0, 2, 200) if weighted else None
    found = metrics.groupwise(
        metrics.equal_mass_calibration_error,
        y,
        prob,
        sensitive_features=group,
        sample_weight=weight,
        n_bins=7,
    )
    assert list(found) == ["f", "m"]
    for name, value in found.items():
        own = group == name
        assert value == metrics.equal_mass_calibration_error(
            y[own],
            prob[own],
            labels=("x", "y", "z"),
            n_bins=7,
            sample_weight=None if weight is None else weight[own],
        )
    with pytest.raises(TypeError, match="n_bin"):
        metrics.groupwise(metrics.accuracy, y, prob, sensitive_features=group, n_bin=3)


def test_groupwise_decisions():
    found = metrics.groupwise(
        metrics.accuracy,
        [0, 1, 1],
        [0.2, 0.4, 0.4],
        sensitive_features=list("aab"),
        y_pred=[0, 1, 0],
    )
    assert found == {"a": 1.0, "b": 0.0}


def test_rates_of_a_group_without_weight():
    with pytest.raises(ValueError, match="every row of group 'b' has weight 0"):
        metrics.group_base_rates([0, 1], sensitive_features=["a", "b"], sample_weight=[1, 0])
