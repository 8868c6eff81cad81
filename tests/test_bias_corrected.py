"""Bias-corrected temperatures against SciPy, scikit-learn and the equations of the optimum."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from equipoise.calibration import (
    BoundWarning,
    ConvergenceWarning,
    GroupCalibrator,
    SmallGroupWarning,
    fit_bias_corrected,
)
from equipoise.calibration._affine_solver import AffineProblem, Penalty, minimise
from equipoise.metrics import proportional_equality

WIDE = (1e-3, 1e3)


def sample(n, classes, seed=0, spread=2.0):
    """Return logits that are twice too large and biased, and classes drawn from the true ones."""
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=spread, size=(n, classes))
    true = z / 2.0 + 0.4 * np.arange(classes)
    return z, (true + rng.gumbel(size=z.shape)).argmax(axis=1)


def nll(beta, bias, z, y, weight=None):
    """Return the cross entropy of softmax(beta z + bias)."""
    log_prob = log_softmax(beta * z + bias, axis=1)[np.arange(len(y)), y]
    return -(log_prob if weight is None else weight * log_prob).sum()


def optimum(z, y, weight=None, fixed=None):
    """Return 1 / T and b by SciPy's BFGS on the formula; 1 / T can be fixed."""
    classes = z.shape[1]
    share = (1.0 if weight is None else weight[:, None]) * np.ones((len(y), 1))
    share = share / share.sum()

    def parts(x):
        beta, bias = (fixed, x) if fixed is not None else (x[0], x[1:])
        return beta, np.concatenate([[0.0], bias])

    def loss(x):
        return nll(*parts(x), z, y, share[:, 0])

    def slope(x):
        beta, bias = parts(x)
        gap = (softmax(beta * z + bias, axis=1) - np.eye(classes)[y]) * share
        own = [] if fixed is not None else [(gap * z).sum()]
        return np.concatenate([own, gap.sum(axis=0)[1:]])

    start = np.r_[[] if fixed is not None else 1.0, np.zeros(classes - 1)]
    found = minimize(loss, start, jac=slope, method="BFGS", options={"gtol": 1e-10})
    assert np.abs(slope(found.x)).max() < 1e-8
    beta, bias = parts(found.x)
    return beta, bias - bias.mean()


def weights(kind, n, seed=5):
    rng = np.random.default_rng(seed)
    return {"none": None, "weighted": rng.uniform(0.0, 3.0, n)}[kind]


# --- the optimum -----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("weighted", ["none", "weighted"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_optimum_of_the_formula(classes, weighted, kind):
    z, y = sample(400, classes)
    group, weight = np.arange(400) % 3, weights(weighted, 400)
    given = (z[None], y, group)
    given = tuple(map(torch.from_numpy, given)) if kind == "torch" else given
    temperature, bias = fit_bias_corrected(*given, sample_weight=weight)
    assert type(temperature) is type(bias) is type(given[0])
    assert temperature.shape == (1, 3)
    assert bias.shape == (1, 3, classes)
    np.testing.assert_allclose(bias.sum(-1), 0.0, atol=1e-12)
    for g in range(3):
        own = group == g
        beta, b = optimum(z[own], y[own], None if weight is None else weight[own])
        assert float(temperature[0, g]) == pytest.approx(1.0 / beta, rel=1e-6)
        np.testing.assert_allclose(bias[0, g], b, atol=1e-6)


def test_two_classes_are_a_logistic_regression_on_the_log_odds():
    z, y = sample(500, 2)
    odds = (z[:, 1] - z[:, 0])[:, None]
    temperature, bias = fit_bias_corrected(z[None], y)
    model = LogisticRegression(C=1e12, tol=1e-12, max_iter=1000).fit(odds, y)
    assert 1.0 / temperature[0, 0] == pytest.approx(model.coef_[0, 0], rel=1e-6)
    assert bias[0, 0, 1] - bias[0, 0, 0] == pytest.approx(model.intercept_[0], rel=1e-6)


@pytest.mark.parametrize("weighted", ["none", "weighted"])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_every_door_finds_the_same(classes, weighted):
    z, y = sample(400, classes)
    group, weight = np.array(["b", "a", "c"])[np.arange(400) % 3], weights(weighted, 400)
    temperature, bias = fit_bias_corrected(z[None], y, np.arange(400) % 3, sample_weight=weight)
    fitted = GroupCalibrator(method="bcts", shrinkage=0)
    fitted.fit(z, y, sensitive_features=group, sample_weight=weight)
    for g, name in enumerate("bac"):
        found = fitted.calibrators_[name]
        assert found.temperature == pytest.approx(temperature[0, g], rel=1e-9)
        np.testing.assert_allclose(found.bias, bias[0, g], atol=1e-9)
    beta, b = optimum(z, y, weight)
    assert fitted.calibrator_.temperature == pytest.approx(1.0 / beta, rel=1e-6)
    np.testing.assert_allclose(fitted.calibrator_.bias, b, atol=1e-6)
    expected = softmax(z / temperature[0, 0] + bias[0, 0], axis=1)[group == "b"]
    prob = fitted.predict_proba(z, sensitive_features=group)
    np.testing.assert_allclose(prob[group == "b"], expected, rtol=1e-8)
    assert fitted.trust_ == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert fitted.converged_
    assert 0 < fitted.n_iter_ < 30


@pytest.mark.parametrize("classes", [2, 4])
def test_a_stack_equals_the_loop_and_groups_in_one_pass_those_alone(classes):
    rng = np.random.default_rng(3)
    _, y = sample(300, classes)
    group, weight = rng.integers(0, 3, 300), rng.uniform(0.5, 2.0, 300)
    stack = rng.normal(size=(4, 300, classes)) * rng.uniform(0.5, 6.0, (4, 1, 1))
    stack += 2.0 * np.eye(classes)[y]
    temperature, bias = fit_bias_corrected(stack, y, group, sample_weight=weight)
    for c, z in enumerate(stack):
        one = fit_bias_corrected(z[None], y, group, sample_weight=weight)
        np.testing.assert_allclose(temperature[c], one[0][0], rtol=1e-8)
        np.testing.assert_allclose(bias[c], one[1][0], atol=1e-8)
        for g in range(3):
            own = group == g
            alone = fit_bias_corrected(z[None, own], y[own], sample_weight=weight[own])
            assert temperature[c, g] == pytest.approx(alone[0][0, 0], rel=1e-8)
            np.testing.assert_allclose(bias[c, g], alone[1][0, 0], atol=1e-8)


def test_integer_weights_are_repeated_rows_and_their_unit_does_not_matter():
    z, y = sample(300, 3)
    weight = np.random.default_rng(2).integers(0, 4, 300)
    expected = fit_bias_corrected(z.repeat(weight, axis=0)[None], y.repeat(weight))
    for factor in (1.0, 1e-6, 1e9):
        found = fit_bias_corrected(z[None], y, sample_weight=factor * weight)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7)


@pytest.mark.parametrize("factor", [1e-6, 0.3, 5.0, 1e6])
def test_a_factor_of_the_logits_is_one_of_the_temperature(factor):
    z, y = sample(300, 3)
    group = np.array(["a", "b"])[np.arange(300) % 2]
    fitted = [
        GroupCalibrator(method="bcts", shrinkage=0).fit(scores, y, sensitive_features=group)
        for scores in (z, factor * z)
    ]
    for g in "ab":
        plain, scaled = (each.calibrators_[g] for each in fitted)
        assert scaled.temperature == pytest.approx(factor * plain.temperature, rel=1e-7)
        np.testing.assert_allclose(scaled.bias, plain.bias, atol=1e-7)


def test_offsets_of_rows_do_not_matter_and_those_of_classes_go_to_the_bias():
    z, y = sample(300, 3)
    shift = np.random.default_rng(1).normal(scale=50.0, size=(300, 1))
    temperature, bias = fit_bias_corrected(z[None], y)
    shifted = fit_bias_corrected((z + shift)[None], y)
    assert shifted[0] == pytest.approx(temperature, rel=1e-8)
    np.testing.assert_allclose(shifted[1], bias, atol=1e-8)
    offset = np.array([3.0, -1.0, -2.0])
    moved = fit_bias_corrected((z + offset)[None], y)
    assert moved[0] == pytest.approx(temperature, rel=1e-8)
    np.testing.assert_allclose(moved[1], bias - offset / temperature[0], atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("bounds", [(0.5, 1.25), (0.9, 100.0)])
def test_at_a_bound_the_biases_are_still_optimal(classes, bounds):
    z, y = sample(400, classes)  # T is about 2
    z = z if bounds[1] < 2 else z / 5.0
    temperature, bias = fit_bias_corrected(z[None], y, bounds=bounds)
    expected = bounds[1] if bounds[1] < 2 else bounds[0]
    assert temperature[0, 0] == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(bias[0, 0], optimum(z, y, fixed=1 / expected)[1], atol=1e-7)
    # within the bounds the cross entropy is larger, and beyond them smaller
    inwards = 0.99 if expected == bounds[1] else 1.01
    here, within, beyond = (
        nll(1 / t, optimum(z, y, fixed=1 / t)[1], z, y)
        for t in (expected, expected * inwards, expected / inwards)
    )
    assert beyond < here < within


# --- the equations of the optimum ------------------------------------------------------------


@given(
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(20, 120),
    st.floats(0.1, 8.0),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_mean_probabilities_are_the_rates_of_each_group(classes, groups, n, spread, heavy, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=spread, size=(n, classes))
    y = (z / spread + rng.gumbel(size=z.shape)).argmax(axis=1)
    group = rng.integers(0, groups, n)
    weight = rng.integers(1, 5, n).astype(float) if heavy else None
    present = np.bincount(group * classes + y, minlength=groups * classes)
    assume(present.all())
    temperature, bias = fit_bias_corrected(z[None], y, group, sample_weight=weight, bounds=WIDE)
    assume(((temperature > WIDE[0]) & (temperature < WIDE[1])).all())
    prob = softmax(z / temperature[0, group][:, None] + bias[0, group], axis=1)
    for g in range(groups):
        own = group == g
        w = None if weight is None else weight[own]
        rates = np.average(np.eye(classes)[y[own]], axis=0, weights=w)
        np.testing.assert_allclose(np.average(prob[own], axis=0, weights=w), rates, atol=1e-8)
    if weight is None and groups > 1:
        pe = proportional_equality(y, prob, sensitive_features=group, labels=range(classes))
        assert pe == pytest.approx(0.0, abs=1e-6)


def test_proportional_equality_is_zero_on_the_rows_of_the_fit():
    z, y = sample(2000, 3)
    group = np.random.default_rng(0).choice(["a", "b", "c"], 2000, p=[0.7, 0.2, 0.1])
    z[group == "b"] += [1.0, 0.0, -0.5]
    fitted = GroupCalibrator(method="bcts", shrinkage=0).fit(z, y, sensitive_features=group)
    prob = fitted.predict_proba(z, sensitive_features=group)
    pe = {
        name: proportional_equality(y, p, sensitive_features=group, kind="stochastic")
        for name, p in (("before", softmax(z, axis=1)), ("after", prob))
    }
    assert pe["before"] > 0.2
    assert pe["after"] < 1e-8


@pytest.mark.parametrize("classes", [2, 4])
def test_derivatives_are_those_of_finite_differences(classes):
    z, y = sample(60, classes)
    cell, weight = np.arange(60) % 2, np.linspace(0.1, 2.0, 60)
    problem = AffineProblem.of(z[None], y, weight).divided(cell, 2)
    theta = np.random.default_rng(0).normal(size=(2, classes)) + np.eye(classes)[0]
    sums = problem.sums(theta)
    for g in range(2):
        own = cell == g
        temperature, bias = problem.original(theta)
        expected = nll(1.0 / temperature[g], bias[g], z[own], y[own], weight[own])
        assert sums.loss[g] == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(problem.standard(*problem.original(theta)), theta, rtol=1e-10)
    h = 1e-5
    for k in range(classes):
        step = h * np.eye(classes)[k]
        up, down = problem.sums(theta + step), problem.sums(theta - step)
        np.testing.assert_allclose(sums.slope[:, k], (up.loss - down.loss) / (2 * h), rtol=1e-6)
        np.testing.assert_allclose(
            sums.bend[:, k], (up.slope - down.slope) / (2 * h), rtol=1e-5, atol=1e-6
        )


def test_a_penalised_minimum_is_scipys():
    z, y = sample(80, 3)
    cell = np.arange(80) % 2
    problem = AffineProblem.of(z[None], y).divided(cell, 2)
    # scores minus the first class's, standardised
    u = z[:, 1:] - z[:, :1]
    u = (u - u.mean(axis=0)) / np.sqrt(((u - u.mean(axis=0)) ** 2).mean())
    u = np.column_stack([np.zeros(80), u])
    factor = np.array([[0.3, 0.0, 0.0], [0.1, 0.8, 0.0], [0.0, -0.2, 0.5]])
    centre = np.array([0.6, 0.1, -0.4])
    found = minimise(problem, (0.01, 100.0), centre, Penalty(centre, factor, 2.0))
    inverse = np.linalg.inv(factor @ factor.T)
    for g in range(2):

        def loss(x, own=cell == g):
            value = nll(x[0], np.array([0.0, *x[1:]]), u[own], y[own])
            return value + (x - centre) @ inverse @ (x - centre)  # 2 |eta|^2 / 2

        best = minimize(loss, centre, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
        np.testing.assert_allclose(found.theta[g], best.x, atol=1e-6)
        assert found.value[g] == pytest.approx(best.fun, rel=1e-9)


# --- groups that lack a class ----------------------------------------------------------------


def test_a_group_without_every_class_gets_the_common_parameters():
    z, y = sample(300, 3)
    group = np.array(["a", "b", "c"])[np.arange(300) % 3]
    y[group == "c"] %= 2
    fitted = GroupCalibrator(method="bcts", shrinkage=0)
    with pytest.warns(
        SmallGroupWarning, match=r"common calibrator is used for group 'c' \(100 rows, none of"
    ) as caught:
        fitted.fit(z, y, sensitive_features=group)
    assert list(caught[0].message.reasons) == ["c"]
    assert fitted.calibrators_["c"] == fitted.calibrator_
    assert fitted.calibrators_["a"] != fitted.calibrator_
    assert fitted.trust_ == {"a": 1.0, "b": 1.0, "c": 0.0}
    temperature, bias = fit_bias_corrected(z[None], y, np.arange(300) % 3, n_groups=4)
    for slot in (2, 3):  # the last has no rows at all
        assert temperature[0, slot] == pytest.approx(fitted.calibrator_.temperature, rel=1e-9)
        np.testing.assert_allclose(bias[0, slot], fitted.calibrator_.bias, atol=1e-9)


def test_a_class_without_rows_is_an_error():
    z, y = sample(100, 3)
    with pytest.raises(ValueError, match="class 2 has no rows, so its bias is undefined"):
        fit_bias_corrected(z[None], y % 2)
    with pytest.raises(ValueError, match=r"class 2 has no rows.* use 'temperature'"):
        GroupCalibrator(method="bcts").fit(z, y % 2, sensitive_features=y % 2)
    with pytest.raises(ValueError, match="class 2 has no rows"):
        fit_bias_corrected(z[None], y, sample_weight=(y < 2).astype(float))


# --- extremes --------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("size", [300.0, 1e4])
@pytest.mark.parametrize("noise", [0.05, 0.4])
def test_extreme_logits_converge_to_the_optimum(classes, size, noise):
    rng = np.random.default_rng(int(size))
    z = size * rng.normal(size=(300, classes))
    y = np.where(rng.random(300) < noise, rng.integers(0, classes, 300), z.argmax(axis=1))
    fitted = GroupCalibrator(method="bcts", shrinkage=0)
    fitted.fit(z, y, sensitive_features=np.arange(300) % 2)  # no warning: it converges
    assert fitted.converged_
    for g, found in fitted.calibrators_.items():
        own = np.arange(300) % 2 == g
        beta, bias = optimum(z[own] / size, y[own])
        assert found.temperature == pytest.approx(size / beta, rel=1e-5)
        np.testing.assert_allclose(found.bias, bias, atol=1e-5)


def test_one_huge_score_converges_or_warns():
    for seed in range(20):
        z, y = sample(60, 2, seed)
        z[0] = 0.0, 1e4  # confidently wrong
        y[0] = 0
        fitted = GroupCalibrator(method="bcts", shrinkage=0, bounds=WIDE)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted.fit(z, y, sensitive_features=["a"] * 60)
        said = any(isinstance(w.message, ConvergenceWarning) for w in caught)
        assert said != fitted.converged_
        beta, bias = 1.0 / fitted.calibrator_.temperature, np.array(fitted.calibrator_.bias)
        if fitted.converged_ and beta > 1.0 / WIDE[1]:
            gap = softmax(beta * z + bias, axis=1) - np.eye(2)[y]
            np.testing.assert_allclose(gap.mean(axis=0), 0.0, atol=1e-8)
            assert abs((gap * z).mean()) < 1e-4


def test_a_search_that_is_cut_short_says_so(monkeypatch):
    monkeypatch.setattr("equipoise.calibration._affine_solver.MOST_PASSES", 2)
    z, y = sample(200, 2)
    fitted = GroupCalibrator(method="bcts", shrinkage=0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 4 passes"):
        fitted.fit(z, y, sensitive_features=np.arange(200) % 2)
    assert not fitted.converged_


@pytest.mark.parametrize("classes", [2, 3])
def test_separable_groups_reach_the_bound(classes):
    z, y = sample(300, classes)
    group = np.array(["a", "b"])[np.arange(300) % 2]
    y[group == "b"] = z[group == "b"].argmax(axis=1)
    fitted = GroupCalibrator(method="bcts", shrinkage=0)
    with pytest.warns(BoundWarning, match=r"group 'b' \(T = .*: all of its 150 pred") as caught:
        fitted.fit(z, y, sensitive_features=group)
    assert list(caught[0].message.temperatures) == ["b"]
    assert "are correct once shifted by the bias, least confidently in rows" in str(
        caught[0].message
    )
    rows = np.flatnonzero(group == "b")
    prob = fitted.predict_proba(z[rows], sensitive_features=group[rows])
    # the rows whose cross entropy falls fastest with 1 / T
    pull = (prob * z[rows]).sum(axis=1) - z[rows, y[rows]]
    assert caught[0].message.rows["b"] == rows[np.argsort(pull)[:3]].tolist()
    own = z[group == "b"]
    size = np.sqrt(((own - own.mean(axis=1, keepdims=True)) ** 2).mean())
    assert fitted.calibrators_["b"].temperature == pytest.approx(size / 20.0, rel=1e-9)


def test_a_bound_names_the_rows_that_drive_it():
    z, y = sample(300, 2)
    group = np.array(["a", "b"])[np.arange(300) % 2]
    own = np.flatnonzero(group == "b")
    y[own] = z[own].argmin(axis=1)  # always wrong
    fitted = GroupCalibrator(method="bcts", shrinkage=0)
    with pytest.warns(BoundWarning, match=r"150 of 150 predictions are wrong, most") as caught:
        fitted.fit(z, y, sensitive_features=group)
    # the rows whose cross entropy rises fastest with 1 / T
    prob = fitted.predict_proba(z[own], sensitive_features=group[own])
    pull = (prob * z[own]).sum(axis=1) - z[own, y[own]]
    worst = own[np.argsort(-pull)[:3]]
    assert caught[0].message.rows["b"] == worst.tolist()
    assert f"rows {', '.join(map(str, worst))}, counted from 0" in str(caught[0].message)
