"""Partial pooling: worlds with a known truth, SciPy's penalised optimum, and plain integrals."""

import warnings
from collections import defaultdict

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax

from calibration_worlds import SIZES, expected_loss, world
from equipoise import GroupTemperatureScaling
from equipoise.calibration import CalibrationWarning, GroupCalibrator, SmallGroupWarning
from equipoise.calibration._affine import group_affine
from equipoise.calibration._affine_solver import AffineProblem
from equipoise.calibration._pooling import LARGEST, TYPICAL, pooled

ALL = ("bcts", "temperature", "beta", "isotonic")


def fitted(world, method, shrinkage="auto", weight=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return GroupCalibrator(method=method, shrinkage=shrinkage).fit(
            world.z,
            world.y,
            sensitive_features=world.group,
            sample_weight=world.weight if weight is None else weight,
        )


def excess(seeds, methods, rows):
    """Return by method, size class and whether groups differ: pooled minus common loss by world."""
    found = defaultdict(list)
    for seed in seeds:
        here = world(seed)
        models = {method: fitted(here, method) for method in methods}
        each = defaultdict(list)
        for g, size in enumerate(here.sizes):
            z, truth = here.held_out(g, rows)
            for method, model in models.items():
                own = expected_loss(model.calibrators_[g].apply(z), truth)
                common = expected_loss(model.calibrator_.apply(z), truth)
                each[method, size].append(own - common)
        for (method, size), values in each.items():
            found[method, size, here.differ > 0.3].append(np.mean(values))
    return found


# --- the rule --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("methods", [ALL[:2], ALL[2:3], ALL[3:]], ids="-".join)
def test_no_size_class_loses_and_groups_that_differ_gain(methods):
    found = excess(range(200), methods, 20_000)
    for method in methods:
        for size in SIZES:
            alike, apart = (np.array(found[method, size, differ]) for differ in (False, True))
            every = np.concatenate([alike, apart])
            error = every.std(ddof=1) / np.sqrt(len(every))
            print(f"{method} {size}: {every.mean():+.5f} ({error:.5f}), {len(every)} worlds, "
                  f"alike {alike.mean():+.5f}, apart {apart.mean():+.5f}")  # fmt: skip
            assert every.mean() <= 0.002
            assert alike.mean() <= 0.002
            if size in ("101-500", "501-5000"):
                noise = apart.std(ddof=1) / np.sqrt(len(apart))
                assert apart.mean() < -3.0 * noise
                assert apart.mean() < -0.004


def test_twenty_worlds_lose_nothing():
    found = excess(range(1000, 1020), ("bcts", "temperature"), 2000)
    for method in ("bcts", "temperature"):
        each = [v for (name, _, _), values in found.items() if name == method for v in values]
        assert np.mean(each) < 0.0
        small = [v for (name, size, _), v in found.items() if (name, size) == (method, "2-5")]
        assert np.mean(np.concatenate(small)) <= 0.004


@pytest.mark.parametrize("method", ["bcts", "temperature"])
def test_five_rows_do_not_decide(method):
    # the five rows alone gave a temperature of .306, and the log-loss went from .51 to .95
    rng = np.random.default_rng(11)
    alone, shrunk = [], []
    while len(alone) < 40:
        odds = rng.normal(scale=1.5, size=305)
        z = np.stack([np.zeros(305), odds], axis=1)
        y = (rng.random(305) < expit(odds)).astype(int)
        group = np.repeat([0, 1], [300, 5])
        if len(set(y[300:])) < 2:
            continue
        new = rng.normal(scale=1.5, size=4000)
        new = np.stack([np.zeros(4000), new], axis=1)
        truth, losses = softmax(new, axis=1), []
        for shrinkage in (0, "auto"):
            model = GroupCalibrator(method=method, shrinkage=shrinkage)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                model.fit(z, y, sensitive_features=group)
            own, common = (c.apply(new) for c in (model.calibrators_[1], model.calibrator_))
            losses.append(expected_loss(own, truth) - expected_loss(common, truth))
        alone.append(losses[0])
        shrunk.append(losses[1])
    assert np.mean(alone) > 0.2
    assert max(shrunk) < 0.05
    assert np.mean(shrunk) < 0.002


# --- limits ----------------------------------------------------------------------------------


def binary(rng, n, slope, shift=0.0):
    odds = rng.normal(scale=1.5, size=n)
    y = (rng.random(n) < expit(slope * odds + shift)).astype(int)
    return np.stack([np.zeros(n), odds], axis=1), y


def two_groups(n, slopes, shifts=(0.0, 0.0), seed=0):
    rng = np.random.default_rng(seed)
    parts = [binary(rng, n, *each) for each in zip(slopes, shifts, strict=True)]
    z, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    return z, y, np.repeat(["a", "b"], n)


@pytest.mark.parametrize("method", ["bcts", "temperature"])
def test_with_many_rows_nothing_is_shrunk(method):
    far = []
    for n in (100, 1000, 30_000):
        z, y, group = two_groups(n, (0.5, 1.2), (0.0, 0.5) if method == "bcts" else (0.0, 0.0))
        auto, own = (
            GroupCalibrator(method=method, shrinkage=s).fit(z, y, sensitive_features=group)
            for s in ("auto", 0)
        )
        inverse = [1.0 / model.calibrators_["b"].temperature for model in (auto, own)]
        whole = abs(inverse[1] - 1.0 / own.calibrator_.temperature)
        far.append(abs(inverse[0] - inverse[1]) / whole)
    assert far[2] < 0.01
    assert far[2] < far[1] < far[0]
    assert auto.trust_["b"] > 0.99


@pytest.mark.parametrize("method", ["bcts", "temperature"])
def test_groups_that_do_not_differ_get_nearly_the_common_parameters(method):
    own, auto = [], []
    for seed in range(30):
        z, y, group = two_groups(300, (0.7, 0.7), seed=seed)
        for found, shrinkage in ((own, 0), (auto, "auto")):
            model = GroupCalibrator(method=method, shrinkage=shrinkage)
            model.fit(z, y, sensitive_features=group)
            common, mine = model.calibrator_, model.calibrators_["a"]
            found.append((np.log(mine.temperature / common.temperature)) ** 2)
    assert np.mean(auto) < 0.25 * np.mean(own)
    assert np.median(auto) < 1e-6  # in most worlds exactly: the deviation is 0


@pytest.mark.parametrize("method", ["bcts", "temperature", "beta"])
@pytest.mark.parametrize("shrinkage", ["auto", 25.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_unit_of_the_weights_does_not_matter(method, shrinkage, weighted):
    z, y, group = two_groups(120, (0.5, 1.3), (0.0, 0.6))
    group[:30] = "c"
    weight = np.random.default_rng(1).gamma(2.0, size=len(y)) if weighted else np.ones(len(y))
    found = []
    for factor in (1.0, 1e-3, 1e6):
        model = GroupCalibrator(method=method, shrinkage=shrinkage)
        model.fit(z, y, sensitive_features=group, sample_weight=factor * weight)
        found.append(model.predict_proba(z, sensitive_features=group))
        assert all(0.0 < trust < 1.0 for trust in model.trust_.values())
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-6)
    if not weighted:
        model = GroupCalibrator(method=method, shrinkage=shrinkage)
        plain = model.fit(z, y, sensitive_features=group)
        prob = plain.predict_proba(z, sensitive_features=group)
        np.testing.assert_allclose(prob, found[0], rtol=1e-6)


def test_uneven_weights_count_as_fewer_rows():
    z, y, group = two_groups(150, (0.5, 1.2))
    even, uneven = np.ones(300), np.where(np.arange(300) % 10, 0.01, 10.0)
    trust = [
        GroupCalibrator(method="bcts", shrinkage=50.0)
        .fit(z, y, sensitive_features=group, sample_weight=weight)
        .trust_["a"]
        for weight in (even, uneven)
    ]
    assert trust[0] == pytest.approx(150 / 200)
    kish = uneven[:150].sum() ** 2 / (uneven[:150] ** 2).sum()  # about 15
    assert trust[1] == pytest.approx(kish / (kish + 50))


# --- a number --------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_number_is_a_penalty_as_strong_as_that_many_average_rows(classes, weighted):
    rng = np.random.default_rng(classes)
    z = rng.normal(scale=2.0, size=(240, classes))
    y = (z / 2 + 0.3 * np.arange(classes) + rng.gumbel(size=z.shape)).argmax(axis=1)
    group = np.repeat([0, 1, 2], [150, 70, 20])
    weight = rng.gamma(3.0, size=240) if weighted else None
    # weights that add up to each group's effective number of rows
    each = np.ones(240) if weight is None else weight
    even = each.copy()
    for g in range(3):
        own = group == g
        even[own] *= each[own].sum() / (each[own] ** 2).sum()

    def terms(x):
        """Return log p (row, class) for 1 / T and the biases after the first class."""
        return log_softmax(x[0] * z + np.array([0.0, *x[1:]]), axis=1)

    def loss(x, w):
        return -(w * terms(x)[np.arange(240), y]).sum()

    def minimum(f, start):
        found = minimize(f, start, method="BFGS", options={"gtol": 1e-9})
        again = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 10_000}
        return minimize(f, found.x, method="Nelder-Mead", options=again).x

    common = minimum(lambda x: loss(x, each), np.eye(classes)[0])
    # the average Hessian of a row, at the common parameters
    prob = np.exp(terms(common))
    bend = np.zeros((classes, classes))
    for i in range(240):
        x = np.column_stack([z[i], np.eye(classes)[:, 1:]])
        cov = np.diag(prob[i]) - np.outer(prob[i], prob[i])
        bend += even[i] * x.T @ cov @ x
    bend /= even.sum()
    model = GroupCalibrator(method="bcts", shrinkage=40)
    model.fit(z, y, sensitive_features=group, sample_weight=weight)
    for g in range(3):

        def penalised(x, own=group == g):
            away = x - common
            return loss(x, even * own) + 0.5 * 40.0 * away @ bend @ away

        expected, found = minimum(penalised, common), model.calibrators_[g]
        assert 1.0 / found.temperature == pytest.approx(expected[0], rel=1e-4)
        np.testing.assert_allclose(np.diff(found.bias, prepend=found.bias[0])[1:].cumsum(),
                                   expected[1:], atol=1e-4)  # fmt: skip


def test_more_pseudo_rows_pull_further():
    z, y, group = two_groups(80, (0.4, 1.5))
    far = []
    for shrinkage in (0, 10, 100, 1e4, 1e8):
        model = GroupCalibrator(method="bcts", shrinkage=shrinkage)
        model.fit(z, y, sensitive_features=group)
        far.append(abs(model.calibrators_["b"].temperature - model.calibrator_.temperature))
        assert model.trust_["b"] == pytest.approx(80 / (80 + shrinkage))
    assert far == sorted(far, reverse=True)
    assert far[-1] < 1e-5 * far[0]


# --- the deviations --------------------------------------------------------------------------


def integrated(odds, y, group, common):
    """Return deviations and the logarithm of their posterior, by integrals over grids.

    A group's slope is normal around a mean with the deviation d * common, d has a half-Cauchy
    prior, and the mean a wide normal one.
    """
    signed = np.where(y == 1, odds, -odds)
    slopes, means = common * np.linspace(-2.0, 6.0, 401), common * np.linspace(-1.0, 4.0, 41)
    rows = [log_expit(slopes[:, None] * signed[group == g]).sum(axis=1) for g in np.unique(group)]
    prior = -0.5 * ((means / common - 1.0) / LARGEST) ** 2
    deviations, values = np.geomspace(0.02, LARGEST, 40), []
    for d in deviations:
        normal = -0.5 * ((slopes - means[:, None]) / (d * common)) ** 2
        normal -= logsumexp(normal, axis=1, keepdims=True)
        total = prior + sum(logsumexp(normal + own, axis=1) for own in rows)
        values.append(logsumexp(total) - np.log1p((d / TYPICAL) ** 2))
    return deviations, np.array(values)


@pytest.mark.parametrize("seed", range(6))
def test_deviations_are_the_most_probable_by_integration(seed, monkeypatch):
    rng = np.random.default_rng([5, seed])
    count, true = [3, 8][seed % 2], [0.0, 0.3, 0.7][seed % 3]
    rows = rng.integers(20, 250, count)
    group = np.repeat(np.arange(count), rows)
    slope = np.exp(true * rng.normal(size=count))[group]
    odds = rng.normal(scale=1.5, size=len(group))
    y = (rng.random(len(group)) < expit(slope * odds)).astype(int)
    z = np.stack([np.zeros(len(odds)), odds], axis=1)
    penalties = []
    seen = pooled.__globals__["_own_share"]
    monkeypatch.setitem(
        pooled.__globals__,
        "_own_share",
        lambda sums, penalty, **how: penalties.append(penalty) or seen(sums, penalty, **how),
    )
    found = group_affine(z, y, None, group, np.zeros(count, bool), biased=False, shrinkage="auto")
    scale = AffineProblem.of(z[None], y, centred=False).scale[0]
    common = 1.0 / found.temperature[0]
    ours = penalties[0].factor[0, 0] / (common * scale)
    deviations, values = integrated(odds, y, group, common)
    best = deviations[values.argmax()]
    assert ours == pytest.approx(best, rel=0.12) or max(ours, best) <= 0.05
    assert values.max() - np.interp(ours, deviations, values) < 0.05


# --- many groups, and few rows ---------------------------------------------------------------


def test_a_thousand_groups_of_five_rows():
    # 0.6 s on one core of a laptop
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(1000), 5)
    shift = 0.8 * rng.normal(size=1000)[group]
    z, _ = binary(rng, 5000, 1.0)
    y = (rng.random(5000) < expit(z[:, 1] + shift)).astype(int)
    model = GroupCalibrator(method="bcts").fit(z, y, sensitive_features=group)
    assert model.converged_
    bias = np.array([model.calibrators_[g].bias[1] for g in range(1000)])
    assert 0.5 < np.corrcoef(bias, shift[::5])[0, 1] < 0.95
    prob = model.predict_proba(z, sensitive_features=group)[:, 1]
    common = model.calibrator_.apply(z)[:, 1]
    true = expit(z[:, 1] + shift)
    assert np.mean((prob - true) ** 2) < 0.75 * np.mean((common - true) ** 2)


@pytest.mark.parametrize("method", ["bcts", "temperature"])
def test_groups_of_one_class_or_one_row_are_pulled_not_refused(method):
    z, y, group = two_groups(200, (0.3, 1.8), (0.0, 1.0))
    group[:4], y[:4] = "c", 1
    group[4] = "d"
    model = GroupCalibrator(method=method).fit(z, y, sensitive_features=group)
    assert set(model.calibrators_) == set("abcd")
    assert model.trust_["d"] < model.trust_["c"] < model.trust_["a"]
    assert np.isfinite(model.predict_proba(z, sensitive_features=group)).all()


@pytest.mark.parametrize("method", ["bcts", "temperature"])
@pytest.mark.parametrize("shrinkage", ["auto", 20])
def test_a_group_without_weight_gets_the_common_calibrator(method, shrinkage):
    z, y, group = two_groups(200, (0.3, 1.8), (0.0, 1.0))
    group[:30] = "c"
    weight = np.where(group == "c", 0.0, 1.0)
    model = GroupCalibrator(method=method, shrinkage=shrinkage)
    with pytest.warns(SmallGroupWarning, match="common calibrator is used for group 'c'"):
        model.fit(z, y, sensitive_features=group, sample_weight=weight)
    assert model.calibrators_["c"] == model.calibrator_
    assert model.trust_["c"] == 0.0
    some = group != "c"
    without = GroupCalibrator(method=method, shrinkage=shrinkage)
    without.fit(z[some], y[some], sensitive_features=group[some])
    for g in "ab":
        theirs = without.calibrators_[g].temperature
        assert model.calibrators_[g].temperature == pytest.approx(theirs, rel=1e-6)


def test_the_papers_scaler_is_not_shrunk_unless_asked():
    z, y, group = two_groups(200, (0.6, 1.2))
    group[:20] = "c"
    with pytest.warns(SmallGroupWarning, match=r"few rows decide .* group 'c' \(20 rows\)"):
        plain = GroupTemperatureScaling().fit(z, y, sensitive_features=group)
    assert plain.trust_ == {"a": 1.0, "b": 1.0, "c": 1.0}
    auto = GroupTemperatureScaling(shrinkage="auto").fit(z, y, sensitive_features=group)
    same = GroupCalibrator(method="temperature").fit(z, y, sensitive_features=group)
    for g in "abc":
        assert auto.temperatures_[g] == same.calibrators_[g].temperature
    distance = [abs(np.log(s.temperatures_["c"] / s.temperature_)) for s in (auto, plain)]
    assert distance[0] < distance[1]
