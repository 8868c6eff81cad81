"""Verdicts: their level and power on synthetic truth, exact tails, and what they say."""

import math

import numpy as np
import pytest
from scipy import stats

from equipoise._inputs import shown
from equipoise.auditing._verdicts import _calibration as calibration
from equipoise.auditing._verdicts._calibration import verdicts_of
from equipoise.auditing._verdicts._comparisons import comparisons_of
from equipoise.auditing._verdicts._proportional import pe_verdicts_of
from equipoise.auditing._verdicts._words import holm
from equipoise.metrics import METRICS, AuditTable, group_base_rates, proportional_equality

CONFIDENCES = {
    "wide": lambda rng, n: rng.beta(2, 2, n),
    "sharp": lambda rng, n: rng.beta(0.3, 0.3, n),
    "extreme": lambda rng, n: rng.beta(0.05, 0.3, n),  # most rows nearly certain
}


def table_of(kind, rows, groups, truth=lambda p: p, seed=0, extra=None):
    """Return a table of many groups, each a sample of its own, and their true ECEs.

    `truth` gives the chance of label 1 for the probability of label 1.
    """
    rng = np.random.default_rng(seed)
    p = CONFIDENCES[kind](rng, rows * groups)
    q = np.clip(truth(p), 0.0, 1.0)
    y = rng.random(len(p)) < q
    group = np.repeat(np.arange(groups), rows)
    table = AuditTable.from_arrays(y.astype(int), p, sensitive_features=group, **(extra or {}))
    top = p > 0.5
    gap = np.where(top, q, 1 - q) - np.where(top, p, 1 - p)
    cell = np.clip(np.ceil(np.maximum(p, 1 - p) * 15) - 1, 0, 14).astype(int) + 15 * group
    return table, np.abs(np.bincount(cell, gap, 15 * groups)).reshape(groups, 15).sum(1) / rows


def pulled(by):
    """Return a truth less extreme than the probabilities, by so much confidence: over-confident."""
    return lambda p: p - by * np.sign(p - 0.5)


def waves(by):
    """Return a truth that is above the confidence in every other bin and below in the rest."""

    def truth(p):
        sign = np.where(np.floor(15 * np.maximum(p, 1 - p)) % 2 == 0, 1, -1)
        return p + by * sign * np.sign(p - 0.5)

    return truth


# --- calibration: level, power, exactness ----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIDENCES)
@pytest.mark.parametrize(("rows", "groups"), [(50, 8000), (300, 3000), (20_000, 60)])
def test_calibrated_groups_are_seldom_rejected(kind, rows, groups):
    table, _ = table_of(kind, rows, groups, seed=1)
    p, direction = calibration._calibration_tests(table)
    for alpha in (0.05, 0.01, 0.001):
        # three standard errors of the simulation above 1.1 alpha
        limit = 1.1 * alpha + 3 * math.sqrt(alpha / groups)
        assert (p < alpha).mean() < limit
        assert (direction < alpha).mean() < limit
    assert rows < 300 or (p < 0.2).mean() > 0.1  # no more timid than it has to be


@pytest.mark.parametrize(
    ("kind", "rows", "truth", "power"),
    [
        ("wide", 1000, pulled(0.05), 0.85),
        ("wide", 1000, pulled(-0.05), 0.85),
        ("wide", 1000, waves(0.07), 0.85),
        ("sharp", 1000, pulled(0.05), 0.98),
        ("extreme", 1000, pulled(0.03), 0.95),
        ("wide", 200, pulled(0.15), 0.95),
        ("extreme", 50, pulled(0.15), 0.8),
    ],
)
def test_clear_miscalibration_is_found(kind, rows, truth, power):
    table, _ = table_of(kind, rows, 500, truth)
    assert (calibration._calibration_tests(table)[0] < 0.05).mean() > power


@pytest.mark.parametrize("confidence", [0.52, 0.7, 0.98, 0.9999])
@pytest.mark.parametrize("wrong", [0, 1, 3, 12, 40])
def test_one_bin_is_tested_by_the_binomial_distribution(confidence, wrong):
    n = 40
    y = [1] * (n - wrong) + [0] * wrong
    table = AuditTable.from_arrays(y, [confidence] * n, sensitive_features=["g"] * n, labels=[0, 1])
    binomial = stats.binom(n, 1 - confidence)
    equal = binomial.pmf(wrong) / 2
    expected = 2 * min(binomial.cdf(wrong) - equal, binomial.sf(wrong) + equal)
    found = verdicts_of(table)["g"].p_value
    assert found == pytest.approx(min(1, expected), rel=1e-3, abs=1e-12)


def test_weights_that_are_all_equal_change_nothing():
    plain, _ = table_of("wide", 300, 20, pulled(0.05))
    weighted, _ = table_of("wide", 300, 20, pulled(0.05), extra={"sample_weight": [2.5] * 6000})
    for a, b in zip(verdicts_of(plain).values(), verdicts_of(weighted).values(), strict=True):
        assert (a.word, a.direction) == (b.word, b.direction)
        assert a.p_value == pytest.approx(b.p_value, rel=1e-6)
        assert a.ece_bound == pytest.approx(b.ece_bound, rel=0.02)
    for a, b in zip(comparisons_of(plain), comparisons_of(weighted), strict=True):
        assert a.p_value == pytest.approx(b.p_value, rel=1e-6)
    for a, b in zip(pe_verdicts_of(plain).values(), pe_verdicts_of(weighted).values(), strict=True):
        assert (a.word, a.group, a.label) == (b.word, b.group, b.label)
        assert a.p_value == pytest.approx(b.p_value, rel=1e-6)


def test_unequal_weights_keep_the_level():
    rng = np.random.default_rng(3)
    weight = rng.gamma(0.5, 1.0, 200 * 2000)
    table, _ = table_of("wide", 200, 2000, extra={"sample_weight": weight})
    p, _ = calibration._calibration_tests(table)
    assert (p < 0.05).mean() < 0.065
    assert (calibration._ece_bounds(table, 0.05) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "truth"),
    [
        ("wide", 100, pulled(0.1)),
        ("wide", 1000, pulled(0.03)),
        ("wide", 1000, pulled(0.1)),
        ("wide", 1000, waves(0.05)),
        ("wide", 5000, waves(0.03)),
        ("sharp", 1000, pulled(0.05)),
        ("sharp", 5000, waves(0.03)),
        ("extreme", 50, pulled(0.2)),
        ("extreme", 1000, pulled(0.02)),
        ("extreme", 1000, pulled(0.2)),
    ],
)
def test_the_bound_of_the_ece_holds(kind, rows, truth):
    table, ece = table_of(kind, rows, 800_000 // max(rows, 1000), truth)
    for alpha in (0.05, 0.005):
        held = (calibration._ece_bounds(table, alpha) >= ece).mean()
        assert held >= 1 - 1.2 * alpha - 3 * math.sqrt(alpha / len(ece))


@pytest.mark.parametrize("confidence", [0.999, 1.0])
@pytest.mark.parametrize("n", [1, 3, 20, 50])
def test_few_rows_that_are_all_right_are_no_evidence(confidence, n):
    table = AuditTable.from_arrays(
        [1] * n, [confidence] * n, sensitive_features=["g"] * n, labels=[0, 1]
    )
    verdict = verdicts_of(table)["g"]
    assert verdict.word == "not enough evidence"
    # Clopper and Pearson: so many could be wrong, and still all of these be right
    assert verdict.ece_bound > 1 - 0.05 ** (1 / n) - (1 - confidence) - 0.02
    assert verdict.rows_needed > n


# --- calibration: words ----------------------------------------------------------------------


def test_words_and_directions():
    rng = np.random.default_rng(0)
    n = 4000
    p = rng.random(6 * n)
    group = np.repeat(["good", "over", "under", "waves", "few", "tiny gap"], n)
    q = p.copy()
    for name, truth in (
        ("over", pulled(0.1)),
        ("under", pulled(-0.1)),
        ("waves", waves(0.1)),
        ("tiny gap", pulled(0.02)),
    ):
        q[group == name] = truth(p[group == name])
    keep = (group != "few") | (rng.random(len(p)) < 0.02)
    y = (rng.random(len(p)) < q).astype(int)
    table = AuditTable.from_arrays(y[keep], p[keep], sensitive_features=group[keep])
    found = verdicts_of(table)
    assert {g: (v.word, v.direction) for g, v in found.items()} == {
        "good": ("calibrated", ""),
        "over": ("miscalibrated", "over-confident"),
        "under": ("miscalibrated", "under-confident"),
        "waves": ("miscalibrated", "mixed"),
        "few": ("not enough evidence", ""),
        "tiny gap": ("calibrated", ""),
    }
    rows = dict(zip(table.groups, table["rows"].astype(int).tolist(), strict=True))
    for g, verdict in found.items():
        assert verdict.rows == rows[g]
        assert verdict.text.startswith(f"{g}: {verdict.word}")
        assert f"{verdict.ece_bound:.3f}" in verdict.text
        assert (verdict.rows_needed is not None) == (g == "few")
    assert "over-confident by 0.1" in found["over"].text
    assert f"{found['few'].rows_needed:,} rows" in found["few"].text
    strict = verdicts_of(table, tolerance=0.01)
    assert strict["tiny gap"].word != "calibrated"
    loose = verdicts_of(table, tolerance=0.2)
    assert loose["over"].word == "calibrated"
    assert "though not 0 (p < 0.0001)" in loose["over"].text


def test_as_many_rows_as_are_said_to_suffice_do():
    table, _ = table_of("wide", 200, 60)
    found = []
    for i in range(60):
        (verdict,) = verdicts_of(table.only(slice(i, i + 1))).values()
        if verdict.rows_needed:
            enough, _ = table_of("wide", verdict.rows_needed, 1, seed=i + 1)
            found.append(verdicts_of(enough)[0].word)
    assert len(found) > 50
    assert found.count("calibrated") > 0.6 * len(found)
    assert found.count("miscalibrated") < 5


def test_groups_are_corrected_for_their_number():
    table, _ = table_of("sharp", 100, 4000)
    wrong = [
        any(v.word == "miscalibrated" for v in verdicts_of(table.only(slice(i, i + 40))).values())
        for i in range(0, 4000, 40)
    ]
    assert np.mean(wrong) <= 0.1
    one = verdicts_of(table.only(slice(0, 1)))[0]
    many = verdicts_of(table)[0]
    assert many.ece_bound > one.ece_bound
    assert many.p_value >= one.p_value


def test_holm_is_the_plain_loop():
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 30):
        p = rng.random(n) ** 4
        expected, largest = [0.0] * n, 0.0
        for step, i in enumerate(sorted(range(n), key=lambda i: p[i])):
            largest = max(largest, min(1.0, (n - step) * p[i]))
            expected[i] = largest
        np.testing.assert_allclose(holm(p), expected)


def test_groups_without_weight():
    table = AuditTable.from_arrays(
        [0, 1, 1], [0.2, 0.3, 0.4], sensitive_features=list("ggh"), sample_weight=[1, 2, 0]
    )
    verdict = verdicts_of(table)["h"]
    assert (verdict.word, verdict.p_value, verdict.rows_needed) == ("not enough evidence", 1, None)
    assert verdict.ece_bound == 1
    (comparison,) = comparisons_of(table)
    assert math.isnan(comparison.difference)
    assert comparison.p_value == 1
    assert {v.word for v in pe_verdicts_of(table).values()} == {"undefined"}


def test_confidence_one_and_wrong_is_proof():
    table = AuditTable.from_arrays(
        [0] + [1] * 99, [1.0] * 100, sensitive_features=[0] * 100, labels=[0, 1]
    )
    assert verdicts_of(table)[0].p_value == 0


def test_many_groups_and_classes_take_no_time():
    rng = np.random.default_rng(0)
    prob = rng.dirichlet(np.ones(4), 20_000)
    y = (prob.cumsum(1) < rng.random((20_000, 1))).sum(1)
    table = AuditTable.from_arrays(y, prob, sensitive_features=rng.integers(0, 5000, 20_000))
    words = {v.word for v in verdicts_of(table).values()}
    assert words <= {"not enough evidence"}
    assert min(c.p_value for c in comparisons_of(table)) > 0.01


# --- one group beside another ----------------------------------------------------------------


def pairs_of(small, large, truth, other_truth, kind="wide", pairs=400):
    """Return the comparisons of many independent pairs of groups of two sizes."""
    rng = np.random.default_rng(5)
    sizes = np.tile([small, large], pairs)
    p = CONFIDENCES[kind](rng, sizes.sum())
    group = np.repeat(np.arange(2 * pairs), sizes)
    q = np.clip(np.where(group % 2 == 0, truth(p), other_truth(p)), 0, 1)
    y = (rng.random(len(p)) < q).astype(int)
    table = AuditTable.from_arrays(y, p, sensitive_features=group)
    return [comparisons_of(table.only(slice(i, i + 2)))[0] for i in range(0, 2 * pairs, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "truth"),
    [
        ("wide", lambda p: p),
        ("extreme", lambda p: p),
        ("wide", pulled(0.15)),
        ("sharp", waves(0.1)),
    ],
)
@pytest.mark.parametrize(("small", "large"), [(200, 200), (200, 5000)])
def test_groups_that_are_as_calibrated_as_each_other(kind, truth, small, large):
    found = pairs_of(small, large, truth, truth, kind)
    assert np.mean([c.p_value < 0.05 for c in found]) <= 0.06
    assert np.mean([c.low <= 0 <= c.high for c in found]) >= 0.93


@pytest.mark.parametrize(
    ("small", "large", "by", "power"), [(1000, 1000, 0.1, 0.85), (200, 3000, 0.15, 0.6)]
)
def test_a_group_that_is_worse_is_found(small, large, by, power):
    found = pairs_of(small, large, lambda p: p, pulled(by), pairs=200)
    clear = [c for c in found if c.p_value < 0.05]
    assert len(clear) > 200 * power
    assert all(c.difference > 0 and c.low > 0 for c in clear)
    assert all("is worse calibrated than" in c.text for c in clear)
    # the interval is that of the true difference: the squared gap of one, none of the other
    assert np.mean([c.low <= by**2 <= c.high for c in found]) >= 0.9


def test_who_is_compared_with_whom():
    table, _ = table_of("wide", 100, 4)
    square = METRICS["debiased_squared_ece"].of(table)
    found = comparisons_of(table)
    assert [(c.group, c.other) for c in found] == [(1, 0), (2, 0), (3, 0)]
    assert [c.difference for c in found] == pytest.approx((square[1:] - square[0]).tolist())
    assert [(c.group, c.other) for c in comparisons_of(table, reference_group=2)] == [
        (0, 2), (1, 2), (3, 2)
    ]  # fmt: skip
    found = comparisons_of(table, reference_group="all")
    assert {(c.group, c.other) for c in found} == {(g, h) for g in range(4) for h in range(g)}
    assert comparisons_of(table.only(slice(0, 1))) == ()
    with pytest.raises(ValueError, match="reference_group 9 is not one of"):
        comparisons_of(table, reference_group=9)


# --- proportional equality -------------------------------------------------------------------


def people(n, seed=0, classes=3):
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.arange(1, classes + 1), n)
    y = (prob.cumsum(1) < rng.random((n, 1))).sum(1)
    return y, prob, rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])


@pytest.mark.parametrize("reference", [None, "b", "all"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fixed", [False, True])
def test_the_driver_is_the_largest_gap_of_plain_loops(reference, classes, fixed):
    y, prob, group = people(400, classes=classes)
    rates = None
    if fixed:
        train, _, other = people(300, seed=1, classes=classes)
        rates = group_base_rates(train, sensitive_features=other)
    table = AuditTable.from_arrays(y, prob, sensitive_features=group)
    found = pe_verdicts_of(table, base_rates=rates, reference_group=reference)
    data = (rates or group_base_rates(y, sensitive_features=group)).rates
    decisions = np.eye(classes)[prob.argmax(1)]
    for kind, model in (("stochastic", prob), ("deterministic", decisions)):
        mean = {g: model[group == g].mean(0) for g in "abc"}
        best = (-1.0,)
        for g in "abc":
            for ref in "abc" if reference == "all" else reference or "a":
                for k in range(classes):
                    if g != ref:
                        ratios = data[g][k] / data[ref][k], mean[g][k] / mean[ref][k]
                        gap = abs(ratios[0] - ratios[1])
                        best = max(best, (gap, g, ref, k, *ratios))
        v = found[kind]
        assert (v.group, v.reference, v.label) == best[1:4]
        assert (v.value, v.data_ratio, v.model_ratio) == pytest.approx((best[0], *best[4:]))
        assert v.value == pytest.approx(
            proportional_equality(
                y, prob, sensitive_features=group, kind=kind, base_rates=rates,
                reference_group=reference,
            )
        )  # fmt: skip
        assert v.interval is None
        assert f"label '{v.label}' in group '{v.group}', compared with '{v.reference}'" in v.text
        expected = 0.0
        if fixed:
            expected = proportional_equality(
                y, prob, sensitive_features=group, kind="deterministic", base_rates=rates,
                reference_group=reference, y_pred=y,
            )  # fmt: skip
        assert v.oracle == pytest.approx(expected)


def ratio_tables(rows, repeats, model_of, seed=0, base=(0.6, 0.3)):
    """Return tables of two groups whose labels have these rates; `model_of` distorts them."""
    rng = np.random.default_rng(seed)
    group = np.tile(np.repeat([0, 1], rows), repeats)
    base = np.array(base)[group]
    p = np.clip(base + rng.uniform(-0.25, 0.25, len(base)), 0.01, 0.99)
    y = (rng.random(len(p)) < p).astype(int)
    sample = 2 * np.repeat(np.arange(repeats), 2 * rows) + group
    table = AuditTable.from_arrays(y, model_of(p, group), sensitive_features=sample)
    return [table.only(slice(i, i + 2)) for i in range(0, 2 * repeats, 2)]


def words(tables, kind="stochastic", base=None):
    found = []
    for table in tables:
        g, h = table.groups
        rates = base and {g: {0: 1 - base[0], 1: base[0]}, h: {0: 1 - base[1], 1: base[1]}}
        found.append(pe_verdicts_of(table, base_rates=rates)[kind].word)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize("base", [None, (0.6, 0.3)], ids=["own rates", "given rates"])
def test_a_model_that_keeps_the_ratio_is_seldom_accused(rows, base):
    tables = ratio_tables(rows, 500, lambda p, _: p)
    assert words(tables, base=base).count("no evidence") >= 500 * 0.93
    # decisions of a model that knows nothing but the rates themselves
    rng = np.random.default_rng(9)

    def chance(p, group):
        decided = rng.random(len(p)) < np.array([0.6, 0.3])[group]
        return np.where(decided, 0.9, 0.1)

    found = words(ratio_tables(rows, 500, chance), "deterministic", base)
    assert found.count("no evidence") >= 500 * 0.93


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda p, g: np.clip(p + np.where(g == 0, 0.1, -0.1), 0, 1), "amplifies"),
        (lambda p, g: np.clip(p + np.where(g == 0, -0.1, 0.1), 0, 1), "dampens"),
        (lambda p, g: np.clip(p + np.where(g == 0, -0.3, 0.3), 0, 1), "reverses"),
    ],
)
@pytest.mark.parametrize("base", [None, (0.6, 0.3)], ids=["own rates", "given rates"])
def test_what_the_model_does_to_the_ratio(change, word, base):
    found = words(ratio_tables(1000, 60, change), base=base)
    assert found.count(word) >= 57
    verdict = pe_verdicts_of(ratio_tables(1000, 1, change)[0])["stochastic"]
    assert f"the model {word} the difference (p < 0.0001)" in verdict.text


def test_a_clear_gap_counts_though_a_few_rows_have_a_larger_one():
    rng = np.random.default_rng(1)
    group = np.repeat(["a", "b", "few"], [4000, 4000, 12])
    base = np.where(group == "b", 0.4, 0.5)
    y = (rng.random(len(group)) < base).astype(int)
    y[group == "few"] = np.arange(12) % 2
    p = np.where(group == "b", 0.3, np.where(group == "few", 0.7, 0.5))
    table = AuditTable.from_arrays(y, p, sensitive_features=group)
    found = pe_verdicts_of(table)["stochastic"]
    assert found.group == "few"
    assert found.word == "amplifies"
    assert "Significant for label '1' in group 'b', compared with 'a'" in found.text


def test_infinite_and_undefined():
    table = AuditTable.from_arrays(
        [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.7], sensitive_features=list("aabb")
    )
    found = pe_verdicts_of(table)["deterministic"]
    assert (found.value, found.word) == (math.inf, "undefined")
    assert "label '1' in group 'b', compared with 'a': a ratio has a rate of 0" in found.text
    alone = pe_verdicts_of(table.pooled())
    assert {v.word for v in alone.values()} == {"undefined"}
    assert all(math.isnan(v.value) for v in alone.values())
    assert "only one" in alone["stochastic"].text


def verdicts_part(name):
    from equipoise.metrics import SUMS

    return SUMS[name].block


# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("Female", "Female"),
        (("Female", "Black"), "Female, Black"),
        ((1, True), "1, True"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eevil", "\\u202eevil"),
        ("é 漢字", "é 漢字"),
        ("no\xa0break", "no\\xa0break"),
        ("[red]", "[red]"),
        ("", ""),
    ],
)
def test_names_are_shown_on_one_line(group, expected):
    assert shown(group) == expected
