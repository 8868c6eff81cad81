"""Intervals: coverage of a known truth, closed forms, agreement with a bootstrap, odd tables."""

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit, softmax

import oracle_metrics as oracle
from equipoise.auditing import Interval, intervals_from_table
from equipoise.auditing._intervals import gaps_of
from equipoise.auditing._intervals._figures import debiased_ece, intervals_of, without_bias
from equipoise.auditing._intervals._gaps import gap_interval, range_quantile
from equipoise.auditing._intervals._ratios import ratio_interval
from equipoise.auditing._intervals._spread import from_cells
from equipoise.metrics import METRICS, AuditTable, by_group, proportional_equality_of

Z = stats.norm.ppf(0.975)


class World:
    """Predictions of finitely many kinds, and how often each label truly follows each of them.

    A sample is how often each kind and label occur, so its table is that many times theirs.
    """

    def __init__(self, prob, true):
        self.prob, self.true = prob, true
        kinds, self.classes = prob.shape
        self.chance = (true / kinds).ravel()
        labels = np.tile(np.arange(self.classes), kinds)
        self.sums = AuditTable.from_arrays(
            labels,
            np.repeat(prob, self.classes, axis=0),
            sensitive_features=np.arange(len(labels)),
            labels=range(self.classes),
        ).sums

    def tables(self, n, samples, rng):
        """Return the table whose groups are as many samples of n rows."""
        counts = rng.multinomial(n, self.chance, size=samples).astype(float)
        sums = {k: np.tensordot(counts, v.astype(float), 1) for k, v in self.sums.items()}
        return AuditTable(tuple(range(samples)), tuple(range(self.classes)), 15, False, sums)

    def truth(self):
        """Return the metrics of infinitely many rows, by plain loops."""
        gaps, class_gaps = {}, {}
        found = dict.fromkeys(("accuracy", "brier", "log_loss"), 0.0)
        each = 1 / len(self.prob)
        for p, t in zip(self.prob.tolist(), self.true.tolist(), strict=True):
            top = oracle.top(p)
            b = oracle.bin_of(p[top], 15)
            gap, mass = gaps.get(b, (0.0, 0.0))
            gaps[b] = (gap + each * (t[top] - p[top]), mass + each)
            found["accuracy"] += each * t[top]
            for k in range(self.classes):
                cell = (k, oracle.bin_of(p[k], 15))
                class_gaps[cell] = class_gaps.get(cell, 0.0) + each * (t[k] - p[k])
                found["log_loss"] -= each * t[k] * math.log(p[k])
                error = sum((p[j] - (j == k)) ** 2 for j in range(self.classes))
                found["brier"] += each * t[k] * error / (2 if self.classes == 2 else 1)
        found["ece"] = sum(abs(gap) for gap, _ in gaps.values())
        found["mce"] = max(abs(gap) / mass for gap, mass in gaps.values())
        found["debiased_squared_ece"] = sum(gap**2 / mass for gap, mass in gaps.values())
        found["classwise_ece"] = sum(map(abs, class_gaps.values())) / self.classes
        return found

    def rates(self):
        """Return the true rates of the labels, of the probabilities and of the decisions."""
        decided = np.eye(self.classes)[self.prob.argmax(1)]
        return {
            "labels": self.true.mean(0),
            "stochastic": self.prob.mean(0),
            "deterministic": decided.mean(0),
        }


def binary(scale=1.0, shift=0.0, a=1.5, b=2.0):
    """Probabilities from a beta distribution; the true ones have other logits."""
    p = stats.beta.ppf((np.arange(150) + 0.5) / 150, a, b)
    t = expit(scale * logit(p) + shift)
    return World(np.stack([1 - p, p], axis=1), np.stack([1 - t, t], axis=1))


def several(scale=1.0, classes=3):
    logits = np.random.default_rng(1).normal(0, 1.5, (200, classes))
    return World(softmax(logits, axis=1), softmax(scale * logits, axis=1))


def covered(found, truth):
    low, high = np.array(found).T
    return ((low <= truth + 1e-12) & (truth <= high)).mean()


# --- coverage --------------------------------------------------------------------------------

KINDS = ("stochastic", "deterministic")
MEANS = ("accuracy", "brier", "log_loss")


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 2_000, 20_000])
@pytest.mark.parametrize(
    "world",
    [binary(), binary(0.6), binary(a=0.2), several(), several(0.6)],
    ids=["calibrated", "overconfident", "sure", "three classes", "three, overconfident"],
)
def test_means_and_rates_are_covered(world, n):
    spread = from_cells(world.tables(n, 3000, np.random.default_rng(n)))
    truth = world.truth()
    for name in MEANS:
        assert 0.93 <= covered(intervals_of(spread, name, Z), truth[name]) <= 0.97, name


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 5_000])
@pytest.mark.parametrize("world", [binary(a=0.5), several(0.6)], ids=["two", "three"])
def test_rates_are_covered(world, n):
    table = world.tables(n, 1000, np.random.default_rng(n))
    rates = intervals_from_table(table).rates
    for kind, truth in world.rates().items():
        for k in range(world.classes):
            found = [rates[g][kind][k] for g in table.groups]
            assert 0.93 <= covered(found, truth[k]) <= 0.97, (kind, k)


FAR = {
    "overconfident": (binary(0.6), (1_000, 5_000, 20_000)),
    "overconfident, sure": (binary(0.6, a=0.5), (200, 1_000, 5_000, 20_000)),
    "underconfident": (binary(1.6), (200, 1_000, 20_000)),
    "shifted": (binary(shift=0.5), (5_000, 20_000)),
    "slightly": (binary(0.85), (5_000, 20_000)),
    "three classes": (several(0.6), (200, 1_000, 20_000)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAR)
def test_ece_far_from_0_is_covered(name):
    world, sizes = FAR[name]
    truth = world.truth()["ece"]
    for n in sizes:
        table = world.tables(n, 2000, np.random.default_rng(n))
        assert truth > 3 * METRICS["ece"].of(table).std(), n
        assert 0.93 <= covered(intervals_of(from_cells(table), "ece", Z), truth) <= 0.97, n


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 1_000, 5_000, 20_000])
@pytest.mark.parametrize("scale", [1.0, 0.98, 0.95, 0.9, 0.85, 0.7])
def test_ece_near_0_is_covered(scale, n):
    world = binary(scale)
    table = world.tables(n, 1500, np.random.default_rng(n))
    found, truth = from_cells(table), world.truth()
    for name in ("ece", "classwise_ece", "debiased_squared_ece", "mce"):
        assert covered(intervals_of(found, name, Z), truth[name]) >= 0.93, name


def test_the_truths_near_0_are_half_one_and_two_standard_errors_from_it():
    errors = []
    for world in (binary(scale) for scale in (0.98, 0.95, 0.9, 0.85, 0.7)):
        for n in (200, 1_000, 5_000):
            table = world.tables(n, 200, np.random.default_rng(0))
            errors.append(world.truth()["ece"] / METRICS["ece"].of(table).std())
    for wanted in (0.5, 1.0, 2.0, 3.0):
        assert np.abs(np.array(errors) - wanted).min() < 0.25 * wanted


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.parametrize("scale", [1.0, 0.85, 0.6])
def test_norms_of_more_classes_are_covered(classes, scale):
    world = several(scale, classes)
    truth = world.truth()
    for n in (200, 5_000):
        found = from_cells(world.tables(n, 1000, np.random.default_rng(n)))
        for name in ("ece", "classwise_ece", "debiased_squared_ece", "mce"):
            assert covered(intervals_of(found, name, Z), truth[name]) >= 0.93, (name, n)


def true_pe(worlds, kind):
    data = {g: w.rates()["labels"].tolist() for g, w in enumerate(worlds)}
    model = {g: w.rates()[kind].tolist() for g, w in enumerate(worlds)}
    return oracle.proportional_equality(data, model)


def error(found):
    """Two standard errors of a share of 93 or 97% that was found in a few hundred samples."""
    return 2 * math.sqrt(0.95 * 0.05 / len(found))


def simulated(worlds, sizes, metrics, samples=400, seed=3, base_rates=None):
    """Return the intervals of PE and of the gaps in many samples, and the samples' own PE."""
    rng, groups = np.random.default_rng(seed), len(worlds)
    each = [w.tables(n, samples, rng) for w, n in zip(worlds, sizes, strict=True)]
    sums = {k: np.stack([t.sums[k] for t in each], axis=1) for k in each[0].sums}
    flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in sums.items()}
    spread = from_cells(AuditTable(tuple(range(groups * samples)), each[0].labels, 15, False, flat))
    data = None if base_rates is None else np.array([[*r.values()] for r in base_rates.values()])
    pairs = [(g, 0) for g in range(1, groups)]
    found, values = {name: [] for name in (*metrics, *KINDS)}, []
    for i in range(samples):
        one = spread_of(spread, slice(i * groups, (i + 1) * groups))
        for name in metrics:
            found[name].append(gap_interval(one, name, Z))
        for kind in KINDS:
            found[kind].append(ratio_interval(one, kind, data, pairs, Z, rng, 500))
        table = dataclasses.replace(one.table, groups=tuple(range(groups)))
        values.append(proportional_equality_of(table, base_rates=base_rates))
    return found, np.array(values)


def spread_of(spread, rows):
    """Return the spread of some of the groups."""

    def cut(value):
        if isinstance(value, dict):
            return {k: cut(v) for k, v in value.items()}
        if isinstance(value, tuple):
            return tuple(cut(v) for v in value)
        if isinstance(value, AuditTable):
            return value.only(rows)
        return value[rows] if isinstance(value, np.ndarray) else value

    fields = {f.name: cut(getattr(spread, f.name)) for f in dataclasses.fields(spread)}
    return dataclasses.replace(spread, **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    "world", [binary(), binary(0.6), several(0.6)], ids=["calibrated", "overconfident", "three"]
)
def test_groups_that_are_equally_calibrated_have_no_gap(world):
    found, _ = simulated([world, world], (200, 20_000), METRICS)
    # nor does the model change the rates' ratio
    for name, intervals in found.items():
        assert covered(intervals, 0.0) >= 0.93 - error(intervals), name


def test_six_equal_groups_have_no_gap():
    sizes = (200, 500, 1_000, 2_000, 5_000, 20_000)
    found, _ = simulated([binary()] * 6, sizes, METRICS, samples=100)
    for name, intervals in found.items():
        assert covered(intervals, 0.0) >= 0.93 - error(intervals), name


UNEQUAL = {
    # worlds, rows, the true PE in standard errors
    "half an error": ([binary(), binary(shift=0.04)], (2_000, 1_500), (0.2, 1)),
    "one": ([binary(), binary(shift=0.08)], (2_000, 1_500), (0.7, 1.6)),
    "two": ([binary(), binary(shift=0.15)], (2_000, 1_500), (1.6, 3)),
    "small groups": ([binary(), binary(shift=1.2)], (200, 300), (3, 9)),
    "far": ([binary(), binary(shift=0.5, a=1.0, b=3.0)], (5_000, 2_000), (3, 20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNEQUAL)
def test_pe_is_covered(name):
    worlds, sizes, expected = UNEQUAL[name]
    found, values = simulated(worlds, sizes, ("accuracy",))
    truth = true_pe(worlds, "stochastic")
    errors = truth / values.std()
    assert expected[0] <= errors <= expected[1]
    share = covered(found["stochastic"], truth)
    allowed = error(found["stochastic"])
    assert share >= 0.93 - allowed
    assert errors < 3 or share <= 0.97 + allowed
    assert covered(found["deterministic"], true_pe(worlds, "deterministic")) >= 0.93 - allowed
    # the gap of a mean, too
    accuracy = [w.truth()["accuracy"] for w in worlds]
    assert covered(found["accuracy"], abs(accuracy[0] - accuracy[1])) >= 0.93 - allowed


def test_pe_is_covered_where_the_base_rates_are_given():
    worlds = [binary(), binary(a=1.0, b=3.0)]
    rates = {0: {0: 0.5, 1: 0.5}, 1: {0: 0.8, 1: 0.2}}
    found, values = simulated(worlds, (500, 2_000), (), base_rates=rates)
    model = {g: w.rates()["stochastic"].tolist() for g, w in enumerate(worlds)}
    truth = oracle.proportional_equality({g: list(r.values()) for g, r in rates.items()}, model)
    assert truth > 3 * values.std()
    share, allowed = covered(found["stochastic"], truth), error(found["stochastic"])
    assert 0.93 - allowed <= share <= 0.97 + allowed


def rows(n=5_000, classes=2, groups="abc", scale=0.7, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, classes))
    true = softmax(scale * logits, axis=1)
    y = (rng.random((n, 1)) > true.cumsum(1)).sum(1).clip(max=classes - 1)
    return {
        "y_true": y,
        "y_prob": softmax(logits, axis=1),
        "sensitive_features": rng.choice(list(groups), n),
        "labels": range(classes),
    }


@pytest.mark.parametrize("classes", [2, 3])
def test_samples_cover_the_truth_of_a_calibrated_model(classes):
    data = rows(150_000, classes, scale=1.0)
    data["sensitive_features"] = np.repeat(np.arange(500), 300)
    found = intervals_from_table(AuditTable.from_arrays(**data)).groups.values()
    for name in ("ece", "classwise_ece", "mce", "debiased_squared_ece"):
        assert covered([metrics[name] for metrics in found], 0.0) >= 0.93, name
    # the true loss of a calibrated model is its expected loss
    p = data["y_prob"]
    expected = {
        "accuracy": p.max(1).mean(),
        "brier": (1 - (p * p).sum(1)).mean() / (2 if classes == 2 else 1),
        "log_loss": -(p * np.log(p)).sum(1).mean(),
    }
    for name, truth in expected.items():
        share = covered([metrics[name] for metrics in found], truth)
        assert 0.93 - error(found) <= share <= 0.97 + error(found), name


# --- beside a plain bootstrap ----------------------------------------------------------------


def every(intervals):
    """Yield every interval by name."""
    for name, found in intervals.overall.items():
        yield ("overall", name), found
    for g, metrics in intervals.groups.items():
        for name, found in metrics.items():
            yield (g, name), found
    for name, found in intervals.gaps.items():
        yield ("gap", name), found
    for name, found in intervals.proportional_equality.items():
        yield ("pe", name), found
    for g, kinds in intervals.rates.items():
        for kind, labels in kinds.items():
            for label, found in labels.items():
                yield (g, kind, label), found


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_means_vary_as_in_a_bootstrap(classes, weighted):
    """Every row counts a Poisson number of times: the interval is the spread of the samples."""
    n, samples = 2_000, 400
    data = rows(n, classes, groups="ab")
    rng = np.random.default_rng(1)
    weight = rng.gamma(2.0, 0.5, n) if weighted else np.ones(n)
    table = AuditTable.from_arrays(**data, sample_weight=weight if weighted else None)
    found = intervals_from_table(table)
    drawn = []
    for _ in range(samples):
        again = AuditTable.from_arrays(**data, sample_weight=weight * rng.poisson(1.0, n))
        drawn.append(
            [by_group(again, name)[g] for name in ("accuracy", "brier", "log_loss") for g in "ab"]
            + (again["probability"] / again["weight"][:, None])[:, 1].tolist()
        )
    spread = Z * np.std(drawn, axis=0)
    ends = [found.groups[g][name] for name in ("accuracy", "brier", "log_loss") for g in "ab"]
    ends += [found.rates[g]["stochastic"][1] for g in "ab"]
    half = np.array([(end.high - end.low) / 2 for end in ends])
    # a standard deviation of 400 samples is known to 3.5%
    np.testing.assert_allclose(half, spread, rtol=0.14)


def test_the_seed_decides():
    # two ratios may be the largest here, and their joint noise is simulated
    table = AuditTable.from_arrays(**rows(3_000, 6))
    share = np.random.default_rng(1).dirichlet(np.full(6, 3.0), 3)
    rates = {g: dict(enumerate(share[i])) for i, g in enumerate("abc")}
    first, again, other = (intervals_from_table(table, base_rates=rates, seed=s) for s in (5, 5, 6))
    assert first == again
    assert first.proportional_equality != other.proportional_equality
    assert first.overall == other.overall


def test_a_lower_level_is_narrower():
    table = AuditTable.from_arrays(**rows(500))
    wide, narrow = (dict(every(intervals_from_table(table, level=x))) for x in (0.95, 0.5))
    for where, found in wide.items():
        inner = narrow[where]
        assert found.low <= inner.low + 1e-12, where
        assert inner.high <= found.high + 1e-12, where


def test_equal_weights_are_no_weights():
    data = rows(800, 3)
    plain = dict(every(intervals_from_table(AuditTable.from_arrays(**data))))
    weight = np.full(800, 2.5)
    for where, found in every(
        intervals_from_table(AuditTable.from_arrays(**data, sample_weight=weight))
    ):
        assert tuple(found) == pytest.approx(tuple(plain[where]), rel=1e-3, abs=1e-5), where


# --- closed forms ----------------------------------------------------------------------------


def test_proportions_have_wilsons_interval():
    data = rows(300)
    table = AuditTable.from_arrays(**data)
    for found in (intervals_from_table(table),):
        for i, g in enumerate(table.groups):
            n = int(table["rows"][i])
            for interval, hits in (
                (found.groups[g]["accuracy"], table["hits"][i].sum()),
                (found.rates[g]["labels"][1], table["labels"][i, 1]),
                (found.rates[g]["deterministic"][1], table["predictions"][i, 1]),
            ):
                wilson = stats.binomtest(int(hits), n).proportion_ci(method="wilson")
                assert interval == pytest.approx((wilson.low, wilson.high))


def test_a_mean_of_many_rows_has_the_normal_interval():
    data = rows(100_000, groups="a")
    found = intervals_from_table(AuditTable.from_arrays(**data)).overall
    p, y = data["y_prob"], data["y_true"]
    rows_of = {
        "brier": (p[:, 1] - y) ** 2,
        "log_loss": -np.log(p[np.arange(len(y)), y]),
    }
    for name, values in rows_of.items():
        half = Z * values.std(ddof=1) / np.sqrt(len(y))
        assert found[name].low == pytest.approx(values.mean() - half, abs=0.02 * half), name
        assert found[name].high == pytest.approx(values.mean() + half, abs=0.02 * half), name


def test_a_clear_gap_has_the_normal_interval():
    # all rows in one bin, far from their confidence: the ECE is |mean of correct - confidence|
    n = 10_000
    y = (np.arange(n) % 10 < 6).astype(int)
    found = intervals_from_table(AuditTable.from_arrays(y, np.full(n, 0.9))).overall["ece"]
    half = Z * np.sqrt(0.6 * 0.4 / n)
    assert found == pytest.approx((0.3 - half, 0.3 + half), abs=0.01 * half)


def test_one_ratio_has_fiellers_interval():
    # rates are given, and those of class 0 differ by far more than those of class 1
    data = rows(2_000, groups="ab")
    rates = {"a": {0: 0.2, 1: 0.8}, "b": {0: 0.6, 1: 0.4}}
    table = AuditTable.from_arrays(**data)
    found = intervals_from_table(table, base_rates=rates).proportional_equality["stochastic"]
    a, b = (data["y_prob"][data["sensitive_features"] == g, 0] for g in "ab")
    # x is kept where the data do not reject "the mean of b is 3 - x times that of a"
    times = 3 - np.linspace(1.5, 2.5, 100_001)
    noise = b.var() / len(b) + times**2 * a.var() / len(a)
    kept = 3 - times[np.abs(b.mean() - times * a.mean()) <= Z * np.sqrt(noise)]
    assert found == pytest.approx((kept.min(), kept.max()), abs=2e-5)


@pytest.mark.parametrize("groups", [2, 3, 6, 30])
def test_equal_groups_are_compared_by_the_studentised_range(groups):
    expected = stats.studentized_range.ppf(0.95, groups, np.inf) / np.sqrt(2)
    assert range_quantile(groups, Z) == pytest.approx(expected, rel=1e-4)


def test_the_size_of_a_gap_is_estimated_nearly_without_bias():
    noise = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    for true in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0):
        size, _, left = without_bias(true + noise, np.ones(100_000))
        assert abs(size.mean() - true) < 0.23
        # what is left is allowed for together with the noise
        half = Z * np.sqrt(size.var() + left.mean() ** 2)
        assert (np.abs(size - true) <= half).mean() > 0.93
    assert np.abs(noise).mean() > 0.79


def test_the_debiased_ece_does_not_depend_on_the_number_of_rows():
    world = binary()
    small, large = (world.tables(n, 1000, np.random.default_rng(1)) for n in (200, 20_000))
    raw = METRICS["ece"].of(small).mean() - METRICS["ece"].of(large).mean()
    debiased = debiased_ece(from_cells(small))[0].mean() - debiased_ece(from_cells(large))[0].mean()
    assert raw > 0.05
    assert abs(debiased) < 0.02


def test_gaps_are_differences_of_the_metrics():
    table = AuditTable.from_arrays(**rows(2_000))
    found = gaps_of(table)
    assert found.keys() == METRICS.keys()
    for name in ("accuracy", "brier", "log_loss", "debiased_squared_ece"):
        values = by_group(table, name).values()
        assert found[name] == max(values) - min(values)
    ece = np.maximum(debiased_ece(from_cells(table))[0], 0.0)
    assert found["ece"] == pytest.approx(ece.max() - ece.min())
    assert gaps_of(table.pooled()) == {}


# --- odd tables ------------------------------------------------------------------------------


def both(**data):
    weighted = {"sample_weight": np.ones(len(data["y_true"]))} | data
    return tuple(intervals_from_table(AuditTable.from_arrays(**d)) for d in (data, weighted))


def undefined(interval):
    return math.isnan(interval.low) and math.isnan(interval.high)


def test_one_group_has_no_gaps():
    for found in both(**rows(100, groups="a")):
        assert found.gaps == found.proportional_equality == {}
        assert found.overall == found.groups["a"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_handful_of_rows_bounds_little(n):
    data = {
        "y_true": [0, 1, 1, 0, 1][: n + 2],
        "y_prob": [0.3, 0.8, 0.9, 0.2, 0.6][: n + 2],
        "sensitive_features": ["a", "a", *"bbb"[:n]],
    }
    for found in both(**data):
        for where, interval in every(found):
            assert interval.low <= interval.high, where
            assert interval.low >= 0, where
        assert found.groups["b"]["accuracy"].low < 0.5
        assert found.groups["b"]["brier"].high - found.groups["b"]["brier"].low > 0.01
        assert found.proportional_equality["stochastic"].high > 1
        if n == 1:
            assert found.groups["b"]["log_loss"] == (0.0, np.inf)
            assert found.rates["b"]["stochastic"][1].high > 0.9


def test_an_infinite_log_loss_has_a_finite_lower_end():
    y, p = [0, 1, 1, 0, 1, 0] * 20, [0.2, 0.0, 0.4, 0.3, 0.7, 0.1] * 20
    for found in both(y_true=y, y_prob=p, sensitive_features=list("aaabbb") * 20):
        assert 0 < found.groups["a"]["log_loss"].low < found.groups["a"]["log_loss"].high == np.inf
        assert found.overall["log_loss"].high == found.gaps["log_loss"].high == np.inf
        assert found.groups["b"]["log_loss"].high < 1
    for found in both(y_true=y, y_prob=p, sensitive_features=list("aaaaaabbbbbb") * 10):
        assert undefined(found.gaps["log_loss"])  # of two infinite values


def test_perfect_rows_are_no_proof():
    data = {
        "y_true": [0, 1] * 20,
        "y_prob": [0.0, 1.0] * 20,
        "sensitive_features": list("aabb") * 10,
    }
    for found in both(**data):
        for name in ("ece", "classwise_ece", "mce", "brier"):
            assert found.overall[name].low == 0
            assert 0.01 < found.overall[name].high < 0.1, name
        assert found.overall["log_loss"] == (0, np.inf)
        assert found.proportional_equality["stochastic"].low == 0


def test_a_ratio_that_may_have_no_denominator_has_no_upper_end():
    data = rows(400, groups="ab")
    data["y_true"][data["sensitive_features"] == "a"] = 0
    for found in both(**data):
        assert found.proportional_equality["stochastic"].high == np.inf
        assert found.proportional_equality["stochastic"].low >= 0
        # and none where no class is left
    data["y_true"][:] = 0
    data["y_prob"] = np.tile([1.0, 0.0], (400, 1))
    for found in both(**data):
        assert found.proportional_equality["stochastic"].low == 0


def test_a_group_without_weight_has_no_interval():
    data = rows(300)
    data["sample_weight"] = (data["sensitive_features"] != "c").astype(float)
    for found in both(**data):
        assert all(undefined(interval) for interval in found.groups["c"].values())
        assert undefined(found.rates["c"]["labels"][0])
        assert not any(undefined(interval) for interval in found.groups["a"].values())
        assert not any(undefined(interval) for interval in found.gaps.values())
        assert not undefined(found.proportional_equality["deterministic"])


def test_other_bins_and_labels_work():
    data = rows(300, 3)
    data["labels"] = ["x", "y", "z"]
    data["y_true"] = np.array(["x", "y", "z"])[data["y_true"]]
    for bins in (1, 40):
        for found in both(**data, n_bins=bins):
            assert set(found.rates["a"]["labels"]) == {"x", "y", "z"}
            assert not any(undefined(interval) for _, interval in every(found))


def test_a_thousand_groups():
    data = rows(50_000)
    data["sensitive_features"] = np.arange(50_000) % 1_000
    table = AuditTable.from_arrays(**data)
    tracemalloc.start()
    found = intervals_from_table(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.groups) == len(found.rates) == 1_000
    assert peak < 200e6


@pytest.mark.parametrize("options", [{"level": 95}, {"level": 0.0}, {"replicates": 5}])
def test_options_are_checked(options):
    data = rows(100)
    with pytest.raises(ValueError, match="must be"):
        intervals_from_table(AuditTable.from_arrays(**data), **options)


def test_base_rates_and_the_reference_are_checked():
    table = AuditTable.from_arrays(**rows(100))
    with pytest.raises(ValueError, match="different groups"):
        intervals_from_table(table, base_rates={"a": {0: 0.5, 1: 0.5}})
    with pytest.raises(ValueError, match="not one of the groups"):
        intervals_from_table(table, reference_group="q")
    every_pair = intervals_from_table(table, reference_group="all").proportional_equality
    one = intervals_from_table(table).proportional_equality
    assert isinstance(one["stochastic"], Interval)
    assert every_pair["stochastic"].high >= one["stochastic"].high
