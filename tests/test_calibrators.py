"""Calibration methods against scikit-learn, plain loops that SciPy minimises, and known truths."""

import math
import pickle

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit
from scipy.special import softmax as scipy_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV

from equipoise.calibration import (
    METHODS,
    BoundWarning,
    GroupCalibrator,
    SmallGroupWarning,
    softmax,
)
from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._calibrators import OneVsRest, Steps
from equipoise.calibration._rows import Rows
from equipoise.calibration._scores import log_odds

CLASSES = [2, 3]


def sample(n, classes, seed=0):
    """Return logits that are twice too large and biased, and classes drawn from the true ones."""
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=2.0, size=(n, classes))
    true = z / 2.0 + 0.3 * np.arange(classes)
    return z, (true + rng.gumbel(size=z.shape)).argmax(axis=1)


def fitted(method, z, y, weight=None):
    """Fit the common calibrator, weights being numbers of rows."""
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    if METHODS[method].fit is None:
        rows = Rows(z, y, None, (), range(z.shape[1]), weight)
        return CalibratorSet.fit(rows, method, warn=False).common
    return METHODS[method].fit(z, y, weight)


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose scores are X itself."""

    def fit(self, X, y, sample_weight=None):  # noqa: ARG002
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


def scikit_learns(method, z, y, weight=None):
    """Return CalibratedClassifierCV's probabilities of what each class is fitted on here."""
    scores = (z[:, 1] - z[:, 0])[:, None] if z.shape[1] == 2 else z
    if method != "temperature" and z.shape[1] > 2:
        prob = scipy_softmax(z, axis=1)
        scores = np.log(prob) - np.log1p(-prob)
    model = CalibratedClassifierCV(Given(), method=method, ensemble=False)
    return model.fit(scores, y, sample_weight=weight).predict_proba(scores)


# --- the contract ----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("method", METHODS)
class TestContract:
    def test_probabilities(self, method, classes):
        z, y = sample(300, classes)
        prob = fitted(method, z, y).apply(z)
        assert prob.shape == z.shape
        assert (prob >= 0).all()
        assert (prob <= 1).all()
        np.testing.assert_allclose(prob.sum(axis=1), 1.0, rtol=1e-12)

    def test_calibration_lowers_the_log_loss_and_meets_the_rates(self, method, classes):
        z, y = sample(3000, classes)
        rows = np.arange(len(y))
        prob = fitted(method, z, y).apply(z)
        raw = -np.log(scipy_softmax(z, axis=1)[rows, y]).mean()
        if method == "none":
            np.testing.assert_allclose(prob, scipy_softmax(z, axis=1), rtol=1e-12)
            return
        assert -np.log(prob[rows, y]).mean() < raw - 0.02
        if METHODS[method].biased:
            shares = np.bincount(y) / len(y)
            np.testing.assert_allclose(prob.mean(axis=0), shares, atol=0.01)

    @pytest.mark.parametrize("scale", [1e4, 1e-4, 0.0])
    def test_any_size_of_scores(self, method, classes, scale):
        z, y = sample(200, classes)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            calibrator = fitted(method, z * scale, y)
            for new in (z * scale, np.full((2, classes), 1e4), np.eye(classes) * -2e4):
                prob = calibrator.apply(new)
                assert np.isfinite(prob).all()
                np.testing.assert_allclose(prob.sum(axis=1), 1.0)

    def test_a_constant_in_a_row_changes_nothing(self, method, classes):
        z, y = sample(200, classes)
        shift = np.random.default_rng(1).normal(scale=5.0, size=(len(z), 1))
        prob = fitted(method, z, y).apply(z)
        np.testing.assert_allclose(fitted(method, z + shift, y).apply(z + shift), prob, atol=1e-6)

    def test_permuted_rows(self, method, classes):
        z, y = sample(200, classes)
        order = np.random.default_rng(1).permutation(len(y))
        prob = fitted(method, z[order], y[order]).apply(z)
        np.testing.assert_allclose(prob, fitted(method, z, y).apply(z), atol=1e-6)

    def test_integer_weights_are_repeated_rows(self, method, classes):
        z, y = sample(200, classes)
        weight = np.random.default_rng(2).integers(0, 4, len(y))
        repeated = fitted(method, z.repeat(weight, axis=0), y.repeat(weight)).apply(z)
        np.testing.assert_allclose(fitted(method, z, y, weight).apply(z), repeated, atol=1e-6)

    def test_inputs_stay_and_a_row_is_calibrated_alone(self, method, classes):
        z, y = sample(200, classes)
        kept = z.copy(), y.copy()
        for array in (z, y):
            array.flags.writeable = False
        calibrator = fitted(method, z, y)
        prob = calibrator.apply(z)
        np.testing.assert_array_equal(z, kept[0])
        np.testing.assert_array_equal(y, kept[1])
        np.testing.assert_allclose(calibrator.apply(z[7:8]), prob[7:8], rtol=1e-12)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(calibrator)).apply(z), prob)

    def test_perfect_predictions_stay_finite(self, method, classes):
        z, _ = sample(200, classes)
        y = z.argmax(axis=1)
        prob = fitted(method, z, y).apply(z)
        assert np.isfinite(prob).all()
        # a smoothed curve is one half midway between the mean scores of its two blocks
        least = 0.95 if method == "isotonic" else 0.98
        assert (prob.argmax(axis=1) == y).mean() > least

    def test_whether_predictions_are_kept(self, method, classes):
        z, y = sample(1000, classes)
        same = fitted(method, z, y).apply(z).argmax(axis=1) == z.argmax(axis=1)
        assert same.all() == METHODS[method].keeps_predictions


# --- other implementations -------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize(
    ("method", "name"),
    [("temperature", "temperature"), ("platt", "sigmoid")],
)
def test_scikit_learn_agrees(method, name, classes, weighted):
    if name == "temperature" and Version(sklearn.__version__) < Version("1.8"):
        pytest.skip("scikit-learn has temperatures from 1.8 on")
    z, y = sample(300, classes)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(y)) if weighted else None
    expected = scikit_learns(name, z, y, weight)
    # its search for a temperature stops at 1e-5
    atol = 1e-4 if method == "temperature" else 1e-5
    np.testing.assert_allclose(fitted(method, z, y, weight).apply(z), expected, atol=atol)


def log_loss_by_hand(log_probabilities, y, weight):
    total = 0.0
    for row, label, w in zip(log_probabilities, y, weight, strict=True):
        total -= w * row[label]
    return total


def log_softmax_by_hand(row):
    top = max(row)
    log_sum = top + math.log(sum(math.exp(v - top) for v in row))
    return [v - log_sum for v in row]


def brute(loss, start, bounds):
    """Minimise without gradients, from several starts."""
    rng = np.random.default_rng(0)
    best = None
    for k in range(4):
        at = np.clip(start + k * 0.3 * rng.normal(size=len(start)), *np.array(bounds, float).T)
        found = minimize(
            loss, at, method="Nelder-Mead", bounds=bounds,
            options={"xatol": 1e-8, "fatol": 1e-11, "maxiter": 20_000, "maxfev": 20_000},
        )  # fmt: skip
        best = found if best is None or found.fun < best.fun else best
    return best


@pytest.mark.parametrize("classes", CLASSES)
def test_the_temperature_that_a_plain_loop_finds(classes):
    z, y = sample(60, classes)
    weight = np.random.default_rng(3).uniform(0.2, 2, len(y))

    def loss(parameters):
        rows = [log_softmax_by_hand([v / parameters[0] for v in row]) for row in z]
        return log_loss_by_hand(rows, y, weight)

    found = brute(loss, np.array([1.0]), [(0.1, 40.0)])
    assert fitted("temperature", z, y, weight).temperature == pytest.approx(found.x[0], rel=1e-5)


def test_the_beta_map_that_a_plain_loop_finds():
    z, y = sample(60, 2)
    weight = np.random.default_rng(3).uniform(0.2, 2, len(y))
    q = 1 / (1 + np.exp(z[:, 0] - z[:, 1]))

    def loss(parameters):
        a, b, c = parameters
        total = 0.0
        for p, label, w in zip(q, y, weight, strict=True):
            odds = math.exp(c) * p**a / (1 - p) ** b
            total -= w * math.log(odds / (1 + odds) if label else 1 / (1 + odds))
        return total

    curve = fitted("beta", z, y, weight).curves[0]
    found = brute(loss, np.array([1.0, 1.0, 0.0]), [(0, 20), (0, 20), (-20, 20)])
    assert loss((curve.a, curve.b, curve.c)) == pytest.approx(found.fun, rel=1e-7)
    np.testing.assert_allclose([curve.a, curve.b, curve.c], found.x, atol=1e-3)


def test_a_negative_coefficient_of_the_beta_map_is_zero_and_the_rest_fitted_without_it():
    # the paper's rule: refit on the other feature alone
    rng = np.random.default_rng(5)
    s = rng.normal(scale=2.0, size=400)
    q = expit(s)
    y = (rng.random(400) < expit(1.5 * np.log(q) + 0.8 * np.log1p(-q) + 1.0)).astype(int)
    z = np.stack([np.zeros(400), s], axis=1)
    curve = fitted("beta", z, y).curves[0]
    assert curve.b == 0.0

    def loss(parameters):
        f = parameters[0] * np.log(q) + parameters[1]
        return float((np.logaddexp(0, f) - y * f).sum())

    found = brute(loss, np.array([1.0, 0.0]), [(-20, 20), (-20, 20)])
    np.testing.assert_allclose([curve.a, curve.c], found.x, atol=1e-3)


def test_the_beta_map_of_several_classes_is_one_against_the_rest():
    z, y = sample(300, 3)
    q = scipy_softmax(z, axis=1)
    each = []
    for k in range(3):
        odds = np.log(q[:, k] / (1 - q[:, k]))
        binary = fitted("beta", np.stack([np.zeros(300), odds], axis=1), (y == k).astype(int))
        each.append(binary.apply(np.stack([np.zeros(300), odds], axis=1))[:, 1])
    expected = np.stack(each, axis=1) / np.sum(each, axis=0)[:, None]
    np.testing.assert_allclose(fitted("beta", z, y).apply(z), expected, atol=1e-6)


def isotonic_by_hand(s, positive, weight, new):
    """Pool adjacent violators, then join the blocks' mean scores by lines; return it at `new`.

    A row with the mean rate is added at the smallest and at the largest score.
    """
    rate = sum(w * hit for w, hit in zip(weight, positive, strict=True)) / sum(weight)
    rows = [*zip(s, weight, positive, strict=True), (min(s), 1.0, rate), (max(s), 1.0, rate)]
    points = {}  # score to weight and weighted hits
    for score, w, hit in rows:
        before = points.get(score, (0.0, 0.0))
        points[score] = (before[0] + w, before[1] + w * hit)
    blocks = []  # weight, weighted score, weighted hits
    for score, (w, hits) in sorted(points.items()):
        blocks.append((w, w * score, hits))
        while len(blocks) > 1 and blocks[-2][2] / blocks[-2][0] >= blocks[-1][2] / blocks[-1][0]:
            last = blocks.pop()
            blocks[-1] = tuple(a + b for a, b in zip(blocks[-1], last, strict=True))
    return np.interp(new, [x / w for w, x, _ in blocks], [h / w for w, _, h in blocks])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", CLASSES)
def test_the_isotonic_curve_that_a_plain_loop_finds(classes, weighted, tied):
    z, y = sample(300, classes)
    z = z.round(0) if tied else z
    weight = np.random.default_rng(1).uniform(0.2, 3, len(y)) if weighted else np.ones(len(y))
    new = np.concatenate([z, 1e3 * np.eye(classes)])  # beyond the first and last point, constant
    q = scipy_softmax(z, axis=1)
    odds = log_odds(np.concatenate([z, new]))
    if not tied:
        np.testing.assert_allclose(odds[:300], np.log(q) - np.log1p(-q), rtol=1e-9)
    each = [isotonic_by_hand(s[:300], y == k, weight, s[300:]) for k, s in enumerate(odds.T)]
    if classes == 2:
        each[0] = 1.0 - each[1]
    expected = np.stack(each, axis=1) / np.sum(each, axis=0)[:, None]
    found = fitted("isotonic", z, y, weight).apply(new)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.min() > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("classes", CLASSES)
def test_the_vector_that_a_plain_loop_finds(classes):
    z, y = sample(80, classes)
    weight = np.random.default_rng(3).uniform(0.2, 2, len(y))
    centred = [[v - sum(row) / classes for v in row] for row in z]

    def loss(parameters):
        scale, bias = parameters[:classes], parameters[classes:]
        rows = [
            log_softmax_by_hand([s * v + b for s, v, b in zip(scale, row, bias, strict=True)])
            for row in centred
        ]
        return log_loss_by_hand(rows, y, weight)

    found = brute(loss, np.repeat([1.0, 0.0], classes), [(0, 10)] * classes + [(-10, 10)] * classes)
    vector = fitted("vector", z, y, weight)
    here = loss([*vector.scale, *vector.bias])
    assert here <= found.fun * (1 + 1e-7)
    assert here == pytest.approx(found.fun, rel=1e-5)


# --- known truths ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "distort"),
    [
        ("temperature", lambda z: z * 2.5),
        ("platt", lambda z: z * 2.5 + [1.0, -0.5]),
        ("beta", lambda z: z * 2.5 + [1.0, -0.5]),
        ("vector", lambda z: z * 2.5 + [1.0, -0.5]),
        ("isotonic", np.sinh),
    ],
)
def test_a_known_distortion_is_undone(method, distort):
    rng = np.random.default_rng(0)
    s = rng.normal(scale=1.5, size=(20_000, 1))
    z = np.concatenate([-s, s], axis=1)
    true = scipy_softmax(z, axis=1)
    y = (rng.random(20_000) < true[:, 1]).astype(int)
    prob = fitted(method, distort(z), y).apply(distort(z))
    assert np.abs(prob - true).mean() < 0.015


def test_the_beta_map_of_beta_distributed_scores_is_recovered():
    # scores ~ Beta(4, 2) where y = 1 and Beta(2, 3) where y = 0: a = 2, b = 1, from the paper
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 40_000)
    q = np.where(y == 1, rng.beta(4, 2, 40_000), rng.beta(2, 3, 40_000))
    curve = fitted("beta", np.stack([np.zeros(40_000), logit(q)], axis=1), y).curves[0]
    assert (curve.a, curve.b) == pytest.approx((2.0, 1.0), abs=0.06)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("method", ["temperature", "platt", "vector"])
def test_the_unit_of_the_scores_does_not_matter(method, factor):
    z, y = sample(200, 2)
    prob = fitted(method, z * factor, y).apply(z * factor)
    np.testing.assert_allclose(prob, fitted(method, z, y).apply(z), atol=1e-6)


def test_a_temperature_at_its_bound_says_so():
    z, y = sample(100, 2)
    size = math.sqrt(sum(v * v for v in (z - z.mean(axis=1, keepdims=True)).ravel()) / z.size)
    for labels, bound in ((z.argmax(1), size / 20), (z.argmin(1), size * 20)):
        with pytest.warns(BoundWarning, match="all rows") as caught:
            found = CalibratorSet.fit(Rows(z, labels, None, (), (0, 1)), "temperature")
        assert found.common.temperature == pytest.approx(bound, rel=1e-9)
        assert caught[0].message.temperatures == {None: found.common.temperature}
    CalibratorSet.fit(Rows(z, y, None, (), (0, 1)), "temperature")  # warnings are errors here


def test_equal_scores_keep_the_temperature_one():
    assert fitted("temperature", np.full((4, 3), 2.5), np.array([0, 1, 2, 0])).temperature == 1.0


def test_where_every_class_gets_zero_the_row_is_uniform():
    # all give 0 at log-odds of log(1/2)
    calibrator = OneVsRest((Steps((-0.5, 0.4), (0.0, 1.0)),) * 3)
    prob = calibrator.apply(np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]]))
    np.testing.assert_allclose(prob, [[1 / 3] * 3, [1.0, 0.0, 0.0]])


def test_log_odds_against_the_rest():
    z = np.array([[0.0, 1.0, -2.0], [30.0, -900.0, -901.0], [1e4, 0.0, -1e4]])
    for row, got in zip(z, log_odds(z), strict=True):
        for k, value in enumerate(got):
            others = np.delete(row, k)
            rest = others.max() + math.log(sum(math.exp(v - others.max()) for v in others))
            assert value == pytest.approx(row[k] - rest, rel=1e-12)


@pytest.mark.parametrize("kind", ["f4", "f8", "i8"])
def test_softmax_is_scipys_and_leaves_its_input(kind):
    z = (10 * np.random.default_rng(0).normal(size=(5, 4, 3))).astype(kind)
    kept = z.copy()
    t = np.arange(1.0, 5.0)[:, None]
    for axis in (-1, 0):
        expected = scipy_softmax(z.astype("f8") / t, axis=axis)
        found = softmax(z, t, axis) if axis else softmax(z / t, axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-12 if kind != "f4" else 1e-5)
    np.testing.assert_array_equal(z, kept)
    np.testing.assert_array_equal(softmax(np.array([[1e4, -1e4]])), [[1.0, 0.0]])


# --- shrinkage -------------------------------------------------------------------------------


def grouped(method, z, y, shrinkage, weight=None):
    """Fit with the first 150 rows as the group "f", and the others as "m"."""
    members = (np.arange(len(y)) >= 150).astype(int)
    rows = Rows(z, y, members, ("f", "m"), range(z.shape[1]), weight)
    return CalibratorSet.fit(rows, method, shrinkage)


@pytest.mark.parametrize("weighted", [False, True])
def test_temperatures_are_shrunk_by_a_penalty_as_strong_as_that_many_average_rows(weighted):
    z, y = sample(400, 3)
    z[:150] *= 3
    weight = np.random.default_rng(4).uniform(0, 2, 400) if weighted else np.ones(400)
    free, found = (grouped("temperature", z, y, s, weight) for s in (0.0, 60.0))
    assert free.trust == {"f": 1.0, "m": 1.0}
    common = free.common.temperature
    assert found.common.temperature == pytest.approx(common, rel=1e-6)
    # weights of a group add up to its effective number of rows
    halves = [weight[:150], weight[150:]]
    weight = np.concatenate([w * w.sum() / (w @ w) for w in halves])
    n = weight[:150].sum()
    assert found.trust["f"] == pytest.approx(n / (n + 60))

    def curvature(row):
        p = scipy_softmax(row / common)
        return p @ row**2 - (p @ row) ** 2

    information = np.average([curvature(row) for row in z], weights=weight)

    def loss(beta):
        rows = [log_softmax_by_hand(beta * row) for row in z[:150]]
        penalty = 0.5 * 60 * information * (beta - 1 / common) ** 2
        return log_loss_by_hand(rows, y[:150], weight[:150]) + penalty

    best = minimize_scalar(loss, bounds=(0.01, 10), method="bounded", options={"xatol": 1e-9}).x
    assert found.own["f"].temperature == pytest.approx(1 / best, rel=1e-6)
    assert free.own["f"].temperature > 1.03 * found.own["f"].temperature > 1.2 * common


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].fit])
def test_curves_are_shrunk_by_their_probabilities(method):
    z, y = sample(400, 3)
    own, common = fitted(method, z[:150], y[:150]).apply(z), fitted(method, z, y).apply(z)
    found = grouped(method, z, y, shrinkage=350.0)
    np.testing.assert_allclose(found.own["f"].apply(z), 0.3 * own + 0.7 * common)
    np.testing.assert_array_equal(grouped(method, z, y, 0.0).own["f"].apply(z), own)


@pytest.mark.parametrize("method", ["none", "common"])
def test_no_repair_and_the_common_temperature_are_the_same_for_every_group(method):
    z, y = sample(400, 3)
    z[:150] *= 3
    found = grouped(method, z, y, "auto")
    assert found.own == {"f": found.common, "m": found.common}
    assert found.trust == {"f": 0.0, "m": 0.0}
    expected = {"none": 1.0, "common": grouped("temperature", z, y, 0.0).common.temperature}
    assert found.common.temperature == expected[method]


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].fit])
def test_a_class_of_one_row_is_not_chosen_by_folds(method):
    rng = np.random.default_rng(0)
    z = rng.normal(size=400)
    y = np.arange(400) == 7
    group = np.arange(400) % 2
    fitted = GroupCalibrator(method=method)
    with pytest.warns(SmallGroupWarning, match="none of class True"):
        fitted.fit(z, y, sensitive_features=group)
    prob = fitted.predict_proba(z, sensitive_features=group)
    common = fitted.calibrator_.apply(np.stack([np.zeros(400), z], axis=1))
    np.testing.assert_allclose(prob, common, atol=1e-6)
