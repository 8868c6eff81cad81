"""Intervals: coverage of a known truth, closed forms, agreement with a bootstrap, odd tables."""

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit, softmax

import oracle_metrics as oracle
from equipoise.auditing import Interval, intervals_from_table, report_of
from equipoise.auditing._intervals import Family, amplifications, changes_of, gap_values
from equipoise.auditing._intervals._errors import debiased, without_bias
from equipoise.auditing._intervals._figures import intervals_of, norm_bounds
from equipoise.auditing._intervals._gaps import gap_interval, range_quantile
from equipoise.auditing._intervals._ratios import ratio_interval
from equipoise.auditing._intervals._spread import from_cells
from equipoise.metrics import (
    METRICS,
    AuditTable,
    GroupRates,
    by_group,
    proportional_equality_of,
)

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


def single(spread):
    """Return the intervals of each metric of each group, not corrected for their number."""
    found = intervals_of(spread, 0.95, norm_bounds(spread, 0.025, 0.025, single=True))
    return {name: [own[name] for own in found] for name in METRICS}


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
    found = single(from_cells(world.tables(n, 3000, np.random.default_rng(n))))
    truth = world.truth()
    # the variance of a loss is at least that of a calibrated model, so few rows of sure
    # predictions, which show too little of it, are covered more often
    most = {"accuracy": 0.97, "brier": 0.97, "log_loss": 0.985 if n == 200 else 0.97}
    for name in MEANS:
        assert 0.93 <= covered(found[name], truth[name]) <= most[name], name


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
        # three lower bounds share one tail and two upper bounds the other, so it is above 95%;
        # 2,000 samples know a share of 99.5% to 0.3% (two standard errors)
        assert 0.95 <= covered(single(from_cells(table))["ece"], truth) <= 0.995 + 0.003, n


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 1_000, 5_000, 20_000])
@pytest.mark.parametrize("scale", [1.0, 0.98, 0.95, 0.9, 0.85, 0.7])
def test_ece_near_0_is_covered(scale, n):
    world = binary(scale)
    table = world.tables(n, 1500, np.random.default_rng(n))
    found, truth = single(from_cells(table)), world.truth()
    for name in ("ece", "classwise_ece", "debiased_squared_ece", "mce"):
        assert covered(found[name], truth[name]) >= 0.93, name


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
        found = single(from_cells(world.tables(n, 1000, np.random.default_rng(n))))
        for name in ("ece", "classwise_ece", "debiased_squared_ece", "mce"):
            assert covered(found[name], truth[name]) >= 0.93, (name, n)


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
    # rates that are given as such are exact
    counts = None if base_rates is None else np.full(groups, np.inf)
    pairs = [(g, 0) for g in range(1, groups)]
    found, values = {name: [] for name in (*metrics, *KINDS)}, []
    for i in range(samples):
        one = spread_of(spread, slice(i * groups, (i + 1) * groups))
        for name in metrics:
            found[name].append(gap_interval(one, name, Z))
        for kind in KINDS:
            found[kind].append(ratio_interval(one, kind, data, counts, pairs, Z, rng, 500))
        table = dataclasses.replace(one.table, groups=tuple(range(groups)))
        values.append(proportional_equality_of(table, base_rates=base_rates))
    return found, np.array(values)


def spread_of(spread, rows):
    """Return the spread of some of the groups."""

    def cut(value):
        if isinstance(value, dict):
            return {k: cut(v) for k, v in value.items()}
        if isinstance(value, AuditTable):
            return value.only(rows)
        if dataclasses.is_dataclass(value):
            return type(value)(*(cut(getattr(value, f.name)) for f in dataclasses.fields(value)))
        return value[rows]

    return cut(spread)


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
    compared = {"base_rates": rates, "reference_group": "a"}
    first, again, other = (intervals_from_table(table, **compared, seed=s) for s in (5, 5, 6))
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
                # with Student's quantile: as many standard errors hold this share of a normal
                level = 2 * stats.norm.cdf(stats.t.ppf(0.975, n - 1)) - 1
                wilson = stats.binomtest(int(hits), n).proportion_ci(level, method="wilson")
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
    error = np.sqrt(0.6 * 0.4 / n)
    # below, the mean gap has 0.8 of the tail, for either sign; above, the estimate has half of it
    below, above = stats.norm.isf([0.8 * 0.025 / 2, 0.025 / 2])
    rows = above**2 / 2 / n  # a score bound: rows that happen to be right could be wrong
    ends = 0.3 - below * error, 0.3 + rows + np.hypot(above * error, rows)
    assert found == pytest.approx(ends, abs=0.01 * error)


def test_one_ratio_has_fiellers_interval():
    # rates are given, and those of class 0 differ by far more than those of class 1
    data = rows(2_000, groups="ab")
    rates = {"a": {0: 0.2, 1: 0.8}, "b": {0: 0.6, 1: 0.4}}
    table = AuditTable.from_arrays(**data)
    found = intervals_from_table(table, base_rates=rates).proportional_equality["stochastic"]
    a, b = (data["y_prob"][data["sensitive_features"] == g, 0] for g in "ab")
    # x is kept where the data do not reject "the mean of b is 3 - x times that of a"
    times = 3 - np.linspace(1.5, 2.5, 100_001)
    # each variance counts with Student's quantile of its own group
    far_a, far_b = (stats.t.ppf(0.975, len(x) - 1) * x.std() / np.sqrt(len(x)) for x in (a, b))
    kept = 3 - times[np.abs(b.mean() - times * a.mean()) <= np.hypot(far_b, times * far_a)]
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
    clean = (
        debiased(from_cells(small))[0][:, 0].mean() - debiased(from_cells(large))[0][:, 0].mean()
    )
    assert raw > 0.05
    assert abs(clean) < 0.02


def test_gaps_are_differences_of_the_metrics():
    table = AuditTable.from_arrays(**rows(2_000))
    found = gap_values(from_cells(table))
    assert found.keys() == METRICS.keys()
    for name in ("accuracy", "brier", "log_loss", "debiased_squared_ece"):
        values = by_group(table, name).values()
        assert found[name] == max(values) - min(values)
    ece = np.maximum(debiased(from_cells(table))[0][:, 0], 0.0)
    assert found["ece"] == pytest.approx(ece.max() - ece.min())
    assert gap_values(from_cells(table.pooled())) == {}


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
            # one row shows no variance, but a calibrated model with its probability has some
            assert found.groups["b"]["log_loss"].low < 1e-3
            assert found.groups["b"]["log_loss"].high > 100
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
        # up to t^2 rows of 40 could be wrong: 4.1 of a mean, 5.4 where two bounds share one tail
        most = {"ece": 0.15, "classwise_ece": 0.16, "mce": 0.1, "brier": 0.105}
        for name, limit in most.items():
            assert found.overall[name].low == 0
            assert 0.01 < found.overall[name].high < limit, name
        assert found.overall["log_loss"] == (0, np.inf)
        assert found.proportional_equality["stochastic"].low == 0


def test_a_ratio_that_may_have_no_denominator_has_no_upper_end():
    data = rows(400, groups="ab")
    groups = list(data["sensitive_features"])
    reference = max("ab", key=groups.count)
    data["y_true"][data["sensitive_features"] == reference] = 0
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


# --- moments of rows and clusters ------------------------------------------------------------


def units_of(data, weight, cluster, group):
    """Return the weight and the totals of each unit of a group, by a plain loop over rows."""
    units = {}
    classes = data["y_prob"].shape[1]
    for i, (y, p) in enumerate(zip(data["y_true"].tolist(), data["y_prob"].tolist(), strict=True)):
        if data["sensitive_features"][i] != group:
            continue
        w, top = float(weight[i]), oracle.top(p)
        error = sum((p[k] - (k == y)) ** 2 for k in range(classes))
        row = {
            "n": 1.0,
            "hit": float(top == y),
            "top": (top == y) - p[top],
            "brier": error / (2 if classes == 2 else 1),
            "loss": -math.log(p[y]),
            **{("label", k): float(y == k) for k in range(classes)},
            **{("prob", k): p[k] for k in range(classes)},
            **{("pred", k): float(top == k) for k in range(classes)},
        }
        unit = units.setdefault(cluster[i], dict.fromkeys(row, 0.0))
        for name, value in row.items():
            unit[name] += w * value
    return list(units.values())


def plain_covariance(units, a, b):
    """Return the covariance of two weighted means: the sum of residuals' products over weight^2."""
    total = sum(u["n"] for u in units)
    mean_a, mean_b = (sum(u[name] for u in units) / total for name in (a, b))
    return sum((u[a] - mean_a * u["n"]) * (u[b] - mean_b * u["n"]) for u in units) / total**2


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("clustered", [False, True], ids=["rows", "clusters"])
def test_moments_are_those_of_a_plain_loop(classes, weighted, clustered):
    n = 90
    data, rng = rows(n, classes, groups="ab"), np.random.default_rng(3)
    weight = rng.lognormal(0, 1, n) if weighted else np.ones(n)
    cluster = rng.integers(0, 25, n) if clustered else np.arange(n)
    table = AuditTable.from_arrays(
        **data,
        sample_weight=weight if weighted else None,
        clusters=cluster if clustered else None,
    )
    moments = from_cells(table).moments
    for i, group in enumerate("ab"):
        units = units_of(data, weight, cluster.tolist(), group)
        total = sum(u["n"] for u in units)
        square, fourth = (sum(u["n"] ** power for u in units) for power in (2, 4))
        assert moments.rows[i] == pytest.approx(total**2 / square)
        assert moments.freedom[i] == pytest.approx(max(square**2 / fourth - 1, 1))
        for name in ("hit", "top", "brier", "loss"):
            expected = plain_covariance(units, name, name)
            # sums of rows are in fixed point
            assert moments.variance(name)[i] == pytest.approx(expected, rel=1e-6, abs=1e-9), name
        for k in range(classes):
            for name in ("label", "prob", "pred"):
                own, label = (name, k), ("label", k)
                mean = sum(u[own] for u in units) / total
                assert moments.mean[name][i, k] == pytest.approx(mean, rel=1e-6)
                for found, expected in (
                    (moments.variance(name), plain_covariance(units, own, own)),
                    (moments.covariance(name), plain_covariance(units, own, label)),
                ):
                    assert found[i, k] == pytest.approx(expected, rel=1e-6, abs=1e-9), own
            for u in units:
                u["gap"] = u["label", k] - u["prob", k]
            expected = plain_covariance(units, "gap", "gap")
            assert moments.gap_variance()[i, k] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_variance_of_a_weighted_gap_is_that_of_a_plain_loop():
    # sum of w^2 (x - m)^2 over weight^2, where x is outcome minus probability in one bin, else 0;
    # at least w^2 times the variance that the bin's probability has, or its outcomes and one more
    n = 60
    data, rng = rows(n, 3, groups="a"), np.random.default_rng(4)
    weight = rng.pareto(1.5, n) + 0.1
    spread = from_cells(AuditTable.from_arrays(**data, sample_weight=weight))
    for view in range(4):
        inside = {}
        for i, p in enumerate(data["y_prob"].tolist()):
            label = oracle.top(p) if view == 0 else view - 1
            gap = (data["y_true"][i] == label) - p[label]
            inside.setdefault(oracle.bin_of(p[label], 15), {})[i] = gap
        for b in range(15):
            x = [inside.get(b, {}).get(i, 0.0) for i in range(n)]
            mean = sum(w * v for w, v in zip(weight, x, strict=True)) / sum(weight)
            square = sum((w * (v - mean)) ** 2 for w, v in zip(weight, x, strict=True))
            assert spread.gap[0, view, b] == pytest.approx(mean, abs=1e-9)
            w = np.array([weight[i] for i in inside.get(b, {})])
            least = 0.0
            if len(w):
                own = [data["y_prob"][i].tolist() for i in inside[b]]
                sure = [p[oracle.top(p) if view == 0 else view - 1] for p in own]
                hits = [g + s for g, s in zip(inside[b].values(), sure, strict=True)]
                sure, hit = np.average(sure, weights=w), np.average(hits, weights=w)
                alike = w.sum() ** 2 / (w**2).sum()
                often = (hit * alike + 0.5) / (alike + 1)
                least = (w**2).sum() * max(sure * (1 - sure), often * (1 - often))
            expected = max(square, least) / sum(weight) ** 2
            assert spread.variance[0, view, b] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (spread.variance >= 0).all()


def test_copies_of_rows_in_a_cluster_are_no_evidence():
    data = rows(400)
    copied = {k: np.repeat(v, 5, axis=0) for k, v in data.items() if k != "labels"}
    alone = intervals_from_table(AuditTable.from_arrays(**data))
    again = intervals_from_table(
        AuditTable.from_arrays(**copied, labels=[0, 1], clusters=np.repeat(np.arange(400), 5))
    )
    for name in ("accuracy", "brier", "log_loss"):
        for g in "abc":
            expected = alone.groups[g][name]
            assert again.groups[g][name] == pytest.approx(expected, rel=1e-4), name
    for g in "abc":
        found, expected = again.groups[g]["ece"], alone.groups[g]["ece"]
        assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.1)


# --- many statements together ----------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_shares_of_a_family_add_up_to_its_error(groups, classes):
    family = Family(0.05, groups, classes)
    lines = groups + (groups > 1)  # one group is all rows
    assert family.lines == lines
    assert family.line * lines <= 0.05 + 1e-12
    # lower bounds of both the top label and the classes; of two classes one
    views = 2 if classes == 2 else 1 + classes
    places = [family.bounds(pooled=False)] * groups
    places += [family.bounds(pooled=True)] * (groups > 1)
    assert views * sum(low for low, _ in places) == pytest.approx(0.05)
    assert views * sum(high for _, high in places) < 0.05
    for pairs in (1, groups * (groups - 1) // 2 or 1):
        # both ends of both kinds for each pair and class
        assert 2 * 2 * pairs * classes * family.ratio(pairs) == pytest.approx(0.05)
    alone = Family(0.05, groups, classes, single=True)
    assert (alone.line, *alone.bounds(pooled=False)) == (0.05, 0.025, 0.025)
    assert alone.ratio(3) == 0.025


def together(table, share=1.0, **options):
    return report_of(table, share=share, **options).intervals


def test_intervals_of_a_report_hold_together_and_are_wider():
    table = AuditTable.from_arrays(**rows(2_000))
    alone, both, half = intervals_from_table(table), together(table), together(table, 0.5)
    assert (alone.comparisons, both.comparisons) == (1, 4)
    # the debiased squared ECE is cut at 0, and both ends of one that may be 0 move little
    for one, two, three in zip(every(alone), every(both), every(half), strict=True):
        where = one[0]
        if where[0] == "pe":
            continue  # its interval also agrees with the verdict
        for inner, outer in ((one[1], two[1]), (two[1], three[1])):
            assert outer.low <= inner.low + 1e-12, where
            assert inner.high <= outer.high + 1e-12, where
    for g in "abc":
        narrow, wide = (found.groups[g]["accuracy"] for found in (alone, both))
        n = int(table["rows"][table.groups.index(g)])
        value = by_group(table, "accuracy")[g]
        for interval, tail in ((narrow, 0.025), (wide, 0.025 / 4)):
            t = stats.t.isf(tail, n - 1)
            level = 2 * stats.norm.cdf(t) - 1
            wilson = stats.binomtest(round(value * n), n).proportion_ci(level, method="wilson")
            assert interval == pytest.approx((wilson.low, wilson.high))


def test_one_group_is_one_comparison():
    found = together(AuditTable.from_arrays(**rows(300, groups="a")))
    assert found.comparisons == 1


def test_figures_are_within_their_own_intervals():
    for seed in range(60):
        n = 5 + 7 * seed
        data = rows(n, 2 + seed % 3, groups="abcd"[: 1 + seed % 4], scale=1.5, seed=seed)
        report = report_of(AuditTable.from_arrays(**data))
        lines = [(report.overall, report.intervals.overall)]
        lines += [(report.groups[g], report.intervals.groups[g]) for g in report.groups]
        for values, ends in lines:
            for name in ("ece", "classwise_ece", "accuracy", "brier", "log_loss"):
                low, high = ends[name]
                assert low - 1e-12 <= values[name] <= high + 1e-12, (seed, name)


@pytest.mark.slow
def test_groups_of_a_calibrated_model_are_covered_together():
    # 5 groups of different sizes: no lower end of an ECE is above 0 in 95% of reports
    world, rng, samples = binary(), np.random.default_rng(9), 400
    sizes = (30, 100, 300, 1_000, 4_000)
    tables = [world.tables(n, samples, rng) for n in sizes]
    sums = {k: np.stack([t.sums[k] for t in tables], axis=1) for k in tables[0].sums}
    family, wrong = Family(0.05, len(sizes), 2), 0
    for i in range(samples):
        own = AuditTable(tuple("abcde"), (0, 1), 15, False, {k: v[i] for k, v in sums.items()})
        ends = norm_bounds(from_cells(own), *family.bounds(pooled=False), single=False)
        pooled = norm_bounds(from_cells(own.pooled()), *family.bounds(pooled=True), single=False)
        lows = [low.max() for found in (ends, pooled) for low, _ in found.values()]
        wrong += max(lows) > 1e-12
    assert wrong / samples <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / samples)


# --- log amplification -----------------------------------------------------------------------


def change_of(table, base_rates=None, reference_group="a"):
    """Return the single log amplification of each kind, group and label."""
    family = Family(0.05, len(table.groups), len(table.labels), single=True)
    compared = {"base_rates": base_rates, "reference_group": reference_group}
    changes = changes_of(from_cells(table), family, **compared)
    found = amplifications(table, changes, **compared)
    return {(kind, a.group, a.label): a for kind, own in found.items() for a in own}


def delta_method(data, group, kind, k, base=None):
    """Return the log amplification and its standard error, from the rows' influence on it."""
    value, variance = 0.0, 0.0
    for sign, g in ((1, group), (-1, "a")):
        own = data["sensitive_features"] == g
        y, p = (data["y_true"][own] == k).astype(float), data["y_prob"][own]
        q = p[:, k] if kind == "stochastic" else (p.argmax(1) == k).astype(float)
        influence = q / q.mean()
        value += sign * math.log(q.mean())
        if base is None:
            value -= sign * math.log(y.mean())
            influence = influence - y / y.mean()
        else:
            rate, rows_of = base[g]
            value -= sign * math.log(rate[k])
            variance += (1 - rate[k]) / rate[k] / rows_of
        variance += influence.var() / len(y)
    return value, math.sqrt(variance)


@pytest.mark.parametrize("classes", [2, 3])
def test_log_amplification_of_many_rows_has_the_normal_interval(classes):
    data = rows(60_000, classes)
    table = AuditTable.from_arrays(**data)
    found = change_of(table)
    assert len(found) == 2 * 2 * classes
    for (kind, group, k), a in found.items():
        value, error = delta_method(data, group, kind, k)
        assert (a.reference, a.group, a.label) == ("a", group, k)
        assert a.value == pytest.approx(value, abs=1e-6)
        assert a.value == pytest.approx(math.log(a.model_ratio / a.data_ratio))
        for end, sign in ((a.low, -1), (a.high, 1)):
            # exact intervals of counts are a little wider than normal ones
            assert sign * (end - value) == pytest.approx(Z * error, rel=0.05), (kind, group, k)


def test_the_error_of_training_rates_counts():
    data = rows(20_000, groups="ab")
    table = AuditTable.from_arrays(**data)
    counts = {"a": {0: 300, 1: 500}, "b": {0: 250, 1: 150}}
    base = {
        g: ([n / sum(c.values()) for n in c.values()], sum(c.values())) for g, c in counts.items()
    }
    given = GroupRates.of_counts(counts)
    exact = GroupRates(given.rates)
    for (kind, group, k), a in change_of(table, given).items():
        value, error = delta_method(data, group, kind, k, base)
        assert a.value == pytest.approx(value, abs=1e-6)
        assert a.high - a.low == pytest.approx(2 * Z * error, rel=0.08), (kind, k)
        alone = change_of(table, exact)[kind, group, k]
        assert alone.value == pytest.approx(value, abs=1e-6)
        assert alone.high - alone.low < 0.4 * (a.high - a.low)
        many = GroupRates.of_counts(
            {g: {label: 10_000_000 * n for label, n in own.items()} for g, own in counts.items()}
        )
        same = change_of(table, many)[kind, group, k]
        assert (same.low, same.high) == pytest.approx((alone.low, alone.high), abs=1e-3)


def test_the_error_of_training_rates_counts_in_proportional_equality():
    table = AuditTable.from_arrays(**rows(20_000, groups="ab"))
    given = GroupRates.of_counts({"a": {0: 300, 1: 500}, "b": {0: 250, 1: 150}})
    wide, narrow, plain = (
        intervals_from_table(table, base_rates=r).proportional_equality["stochastic"]
        for r in (given, GroupRates(given.rates), given.rates)
    )
    assert narrow == plain
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("lacking", ["model", "labels", "reference"])
def test_a_label_that_is_absent_has_infinite_ends(lacking):
    data = rows(300, groups="ab")
    own = data["sensitive_features"] == ("a" if lacking == "reference" else "b")
    if lacking == "model":  # nobody is decided to be 1, though some are
        data["y_prob"][own] = [0.9, 0.1]
    else:
        data["y_true"][own] = 0
    a = change_of(AuditTable.from_arrays(**data))["deterministic", "b", 1]
    # a rate of 0 could be as small as one likes: its logarithm has no lower end; it is not large,
    # so the other end of 150 rows is finite and clear
    if lacking == "labels":
        assert a.value == a.high == np.inf
        assert 0 < a.low < np.inf
    else:
        assert a.value == a.low == -np.inf
        assert -np.inf < a.high < 0


def test_a_label_that_is_absent_everywhere_says_nothing():
    data = rows(300, 3, groups="ab")
    data["y_true"] %= 2
    data["y_prob"] = np.pad(rows(300, 2)["y_prob"], ((0, 0), (0, 1)))
    a = change_of(AuditTable.from_arrays(**data))["deterministic", "b", 2]
    assert math.isnan(a.value)
    assert (a.low, a.high) == (-np.inf, np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 60, 400])
def test_log_amplification_is_covered(n):
    # 4% of labels: in 20 rows there is often none
    worlds = [binary(a=0.3, b=4.0), binary(a=0.3, b=4.0, shift=0.4)]
    rng, samples = np.random.default_rng(n), 500
    tables = [w.tables(m, samples, rng) for w, m in zip(worlds, (5 * n, n), strict=True)]
    sums = {k: np.stack([t.sums[k] for t in tables], axis=1) for k in tables[0].sums}
    rates = [w.rates() for w in worlds]
    ends = {}
    for i in range(samples):
        own = AuditTable(("a", "b"), (0, 1), 15, False, {k: v[i] for k, v in sums.items()})
        for (kind, _, k), a in change_of(own).items():
            ends.setdefault((kind, k), []).append((a.low, a.high))
    for (kind, k), found in ends.items():
        truth = math.log(rates[1][kind][k] / rates[0][kind][k])
        truth -= math.log(rates[1]["labels"][k] / rates[0]["labels"][k])
        assert covered(found, truth) >= 0.93 - error(found), (kind, k)
