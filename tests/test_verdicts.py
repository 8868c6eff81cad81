"""Verdicts: their level and power on synthetic truth, and what they say.

`benchmarks/statements.py` judges the same in many more worlds.
"""

import dataclasses
import math
import warnings

import numpy as np
import pytest

from equipoise._inputs import shown
from equipoise.auditing import audit, report_of
from equipoise.auditing._intervals import Family, from_cells
from equipoise.auditing._verdicts import Calibration, verdicts_of
from equipoise.metrics import AuditTable, group_base_rates, proportional_equality

CONFIDENCES = {
    "wide": lambda rng, n: rng.beta(2, 2, n),
    "sharp": lambda rng, n: rng.beta(0.3, 0.3, n),
    "extreme": lambda rng, n: rng.beta(0.05, 0.3, n),  # most rows nearly certain
}


def table_of(kind, rows, groups, truth=lambda p: p, seed=0, extra=None):
    """Return a table of many groups, each a sample of its own, and their true errors.

    `truth` gives the chance of label 1 for the probability of label 1. The true error is the larger
    of the ECE of the predicted label and that of label 1.
    """
    rng = np.random.default_rng(seed)
    p = CONFIDENCES[kind](rng, rows * groups)
    q = np.clip(truth(p), 0.0, 1.0)
    y = rng.random(len(p)) < q
    group = np.repeat(np.arange(groups), rows)
    table = AuditTable.from_arrays(y.astype(int), p, sensitive_features=group, **(extra or {}))
    # of the world, not of the sample: the scores of all samples together stand for it
    top = p > 0.5
    gaps = np.where(top, q, 1 - q) - np.where(top, p, 1 - p), q - p
    scores = np.maximum(p, 1 - p), p
    cells = (np.clip(np.ceil(s * 15) - 1, 0, 14).astype(int) for s in scores)
    errors = [np.abs(np.bincount(c, g, 15)).sum() for c, g in zip(cells, gaps, strict=True)]
    return table, max(errors) / len(p)


def pulled(by):
    """Return a truth less extreme than the probabilities, by so much confidence: over-confident."""
    return lambda p: p - by * np.sign(p - 0.5)


def waves(by):
    """Return a truth that is above the confidence in every other bin and below in the rest."""

    def truth(p):
        sign = np.where(np.floor(15 * np.maximum(p, 1 - p)) % 2 == 0, 1, -1)
        return p + by * sign * np.sign(p - 0.5)

    return truth


def shifted(by):
    return lambda p: p - by


def intervals(table, alpha=0.05):
    """Return the interval of each group's error, as if each were the only group."""
    found = Calibration.of(from_cells(table), Family(alpha, 1, 2)).bounds
    return found.low.max(-1), found.high.max(-1)


# --- calibration: level, power, coverage -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIDENCES)
@pytest.mark.parametrize(("rows", "groups"), [(50, 8000), (300, 3000), (20_000, 60)])
def test_calibrated_groups_are_seldom_rejected(kind, rows, groups):
    table, _ = table_of(kind, rows, groups, seed=1)
    for alpha in (0.05, 0.01, 0.001):
        low, _ = intervals(table, alpha)
        # three standard errors of the simulation above alpha
        assert (low > 0).mean() < alpha + 3 * math.sqrt(alpha / groups)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "truth", "power"),
    [
        ("wide", 1000, pulled(0.05), 0.8),
        ("wide", 1000, pulled(-0.05), 0.8),
        ("wide", 2500, shifted(0.03), 0.75),
        ("wide", 1500, waves(0.07), 0.85),
        ("sharp", 1000, pulled(0.05), 0.98),
        ("extreme", 1000, pulled(0.03), 0.85),
        ("wide", 200, pulled(0.15), 0.9),
    ],
)
def test_clear_miscalibration_is_found(kind, rows, truth, power):
    table, _ = table_of(kind, rows, 500, truth)
    low, _ = intervals(table)
    assert (low > 0).mean() > power


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "truth"),
    [
        ("wide", 100, pulled(0.1)),
        ("wide", 1000, pulled(0.03)),
        ("wide", 1000, pulled(0.1)),
        ("wide", 1000, shifted(0.05)),
        ("wide", 1000, waves(0.05)),
        ("wide", 5000, waves(0.03)),
        ("sharp", 1000, pulled(0.05)),
        ("sharp", 5000, waves(0.03)),
        ("extreme", 50, pulled(0.2)),
        ("extreme", 1000, pulled(0.02)),
        ("extreme", 1000, pulled(0.2)),
    ],
)
def test_intervals_cover_the_true_error(kind, rows, truth):
    table, error = table_of(kind, rows, 800_000 // max(rows, 1000), truth)
    for alpha in (0.05, 0.005):
        low, high = intervals(table, alpha)
        held = ((low <= error) & (error <= high)).mean()
        assert held >= 1 - alpha - 3 * math.sqrt(alpha / len(low))


@pytest.mark.slow
def test_more_rows_decide_more():
    for truth, right in ((lambda p: p, "calibrated"), (pulled(0.1), "miscalibrated")):
        found = []
        for rows in (300, 1000, 4000, 16_000):
            table, _ = table_of("wide", rows, 100, truth, seed=rows)
            verdicts = verdicts_of(Calibration.of(from_cells(table), Family(0.05, 2, 2)), 0.05)
            found.append(sum(v.word == right for v in verdicts.values()))
        assert found == sorted(found)
        assert found[-1] == 100


def test_weights_that_are_all_equal_change_nothing():
    plain, _ = table_of("wide", 300, 20, pulled(0.05))
    weighted, _ = table_of("wide", 300, 20, pulled(0.05), extra={"sample_weight": [2.5] * 6000})
    one, other = report_of(plain), report_of(weighted)
    for a, b in zip(one.verdicts.values(), other.verdicts.values(), strict=True):
        assert (a.word, a.direction, a.label) == (b.word, b.direction, b.label)
        assert a.interval == pytest.approx(b.interval, rel=1e-6, abs=1e-9)
    for a, b in zip(one.comparisons, other.comparisons, strict=True):
        assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-6, abs=1e-9)
    for kind, a in one.pe_verdicts.items():
        b = other.pe_verdicts[kind]
        assert (a.word, a.group, a.label) == (b.word, b.group, b.label)
        assert a.amplification.low == pytest.approx(b.amplification.low, rel=1e-6)


@pytest.mark.parametrize("confidence", [0.999, 1.0])
@pytest.mark.parametrize("n", [1, 3, 20, 50])
def test_few_rows_that_are_all_right_are_no_evidence(confidence, n):
    verdict = audit(
        [1] * n, [confidence] * n, sensitive_features=["g"] * n, labels=[0, 1]
    ).verdicts["g"]
    assert verdict.word == "not enough evidence"
    # Clopper and Pearson: so many could be wrong, and still all of these be right
    assert verdict.interval.high > 1 - 0.05 ** (1 / n) - (1 - confidence) - 0.02
    assert verdict.rows_needed > n


def test_one_row_that_is_sure_and_wrong_is_no_proof():
    rng = np.random.default_rng(0)
    p = rng.random(300)
    y = (rng.random(300) < p).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the ratios
        report = audit([*y, 0], [*p, 1.0], sensitive_features=["a"] * 300 + ["z"])
    assert report.verdicts["z"].word == "not enough evidence"
    assert not report.comparisons[0].clear
    # two hundred are, though not beyond all doubt
    found = audit([1, 0] * 100, [0.0, 1.0] * 100, sensitive_features=["a"] * 200).verdict
    assert (found.word, found.direction) == ("miscalibrated", "over-confident")
    assert 0.95 < found.interval.low < 1 == found.interval.high


# --- calibration: words ----------------------------------------------------------------------


def test_every_risk_overstated_is_miscalibrated():
    rng = np.random.default_rng(0)
    n = 20_000
    group = np.repeat(["A", "B"], n // 2)
    p = rng.uniform(0.2, 0.8, n)
    y = (rng.random(n) < p - 0.15 * (group == "B")).astype(int)
    report = audit(np.where(y, "yes", "no"), p, sensitive_features=group)
    found = report.verdicts["B"]
    assert (found.word, found.direction, found.label) == ("miscalibrated", "too high", "yes")
    assert found.interval.low < 0.15 < found.interval.high
    assert found.text == (
        "B: miscalibrated. The probability of 'yes' is 15.3 points too high on average (ECE of "
        f"'yes' 0.153, {found.interval.low:.3f} to {found.interval.high:.3f}). The confidence in "
        "the predicted label looks right (ECE 0.009) because the errors cancel."
    )
    assert report.verdicts["A"].word == "calibrated"
    (comparison,) = report.comparisons
    assert (comparison.group, comparison.other, comparison.label) == ("B", "A", "yes")
    assert comparison.low < 0.15 < comparison.high
    assert comparison.text.startswith("B is worse calibrated than A: ECE of 'yes' 0.153 against")


def test_words_and_directions():
    rng = np.random.default_rng(0)
    n = 6000
    truths = {
        "over": pulled(0.1),
        "under": pulled(-0.1),
        "high": shifted(0.1),
        "low": shifted(-0.1),
        "waves": waves(0.1),
        "tiny gap": pulled(0.01),
    }
    names = ["good", *truths, "few"]
    p = rng.uniform(0.15, 0.85, len(names) * n)
    group = np.repeat(names, n)
    q = p.copy()
    for name, truth in truths.items():
        q[group == name] = truth(p[group == name])
    keep = (group != "few") | (rng.random(len(p)) < 0.02)
    y = (rng.random(len(p)) < q).astype(int)
    table = AuditTable.from_arrays(y[keep], p[keep], sensitive_features=group[keep])
    found = report_of(table).verdicts
    assert {g: (v.word, v.direction) for g, v in found.items()} == {
        "good": ("calibrated", ""),
        "over": ("miscalibrated", "over-confident"),
        "under": ("miscalibrated", "under-confident"),
        "high": ("miscalibrated", "too high"),
        "low": ("miscalibrated", "too low"),
        "waves": ("miscalibrated", "mixed"),
        "few": ("not enough evidence", ""),
        "tiny gap": ("calibrated", ""),
    }
    rows = dict(zip(table.groups, table["rows"].astype(int).tolist(), strict=True))
    for g, verdict in found.items():
        assert verdict.rows == rows[g]
        assert verdict.text.startswith(f"{g}: {verdict.word}")
        assert f"{verdict.error:.3f}, " in verdict.text
        assert (verdict.rows_needed is not None) == (g == "few")
    assert "Over-confident: the confidence is 10." in found["over"].text
    assert "Under-confident: the confidence is" in found["under"].text
    assert "Over-confident for some rows, under-confident for others" in found["waves"].text
    assert f"about {found['few'].rows_needed:,} rows in this group" in found["few"].text
    assert "an error of this size would be decided 4 times in 5" in found["few"].text
    assert "leaning to" in found["few"].text
    assert report_of(table, tolerance=0.005).verdicts["tiny gap"].word != "calibrated"
    assert report_of(table, tolerance=0.2).verdicts["over"].word == "calibrated"
    # nothing is calibrated to a tolerance of 0, and what is shown to be wrong still is
    exact = report_of(table, tolerance=0.0).verdicts
    assert {v.word for v in exact.values()} == {"miscalibrated", "not enough evidence"}
    assert exact["over"].word == "miscalibrated"


def test_of_more_classes_the_worst_is_named():
    rng = np.random.default_rng(0)
    prob = rng.dirichlet([2, 2, 2], 30_000)
    true = prob + np.array([0.0, 0.08, -0.08]) * np.minimum(prob[:, 2:], 0.08) / 0.08
    y = (true.cumsum(1) < rng.random((len(prob), 1))).sum(1).clip(0, 2)
    names = np.array(["a", "b", "c"])
    found = audit(names[y], prob, sensitive_features=["g"] * len(y), tolerance=0.02).verdicts["g"]
    assert (found.word, found.label in "bc") == ("miscalibrated", True)
    assert found.direction == {"b": "too low", "c": "too high"}[found.label]


def test_the_middle_bin_does_not_hide_an_error():
    # .48 and .52 share a bin of label 1, in which their errors cancel; the confidence shows them
    rng = np.random.default_rng(0)
    p = np.repeat([0.48, 0.52], 20_000)
    y = (rng.random(len(p)) < np.where(p > 0.5, 0.6, 0.4)).astype(int)
    found = audit(y, p, sensitive_features=["g"] * len(p)).verdicts["g"]
    assert (found.word, found.direction, found.label) == ("miscalibrated", "under-confident", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "rows"), [(lambda p: p, 300), (pulled(0.1), 200), (shifted(0.02), 700)]
)
def test_as_many_rows_as_are_said_to_be_needed_decide(truth, rows):
    table, _ = table_of("wide", rows, 300, truth)
    family = Family(0.05, 1, 2)
    decided = []
    for i, verdict in enumerate(
        verdicts_of(Calibration.of(from_cells(table), family), 0.05).values()
    ):
        if verdict.rows_needed and verdict.rows_needed < 200_000:
            fresh, _ = table_of("wide", verdict.rows_needed, 1, truth, seed=i + 1)
            (again,) = verdicts_of(Calibration.of(from_cells(fresh), family), 0.05).values()
            decided.append(again.word != "not enough evidence")
    assert len(decided) > 100
    assert np.mean(decided) > 0.8 - 3 * math.sqrt(0.16 / len(decided))


@pytest.mark.slow
def test_groups_are_corrected_for_their_number():
    table, _ = table_of("sharp", 100, 4000)
    wrong = [
        any(
            v.word == "miscalibrated"
            for v in report_of(table.only(slice(i, i + 40)), tolerance=0.0).verdicts.values()
        )
        for i in range(0, 4000, 40)
    ]
    assert np.mean(wrong) <= 0.1
    one = report_of(table.only(slice(0, 1))).verdicts[0]
    many = report_of(table.only(slice(0, 40))).verdicts[0]
    assert many.interval.high > one.interval.high


def test_groups_without_weight():
    table = AuditTable.from_arrays(
        [0, 1, 1], [0.2, 0.3, 0.4], sensitive_features=list("ggh"), sample_weight=[1, 2, 0]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the ratios
        report = report_of(table)
    verdict = report.verdicts["h"]
    assert (verdict.word, verdict.rows_needed) == ("not enough evidence", None)
    assert verdict.interval == (0, 1)
    assert "all weights are 0" in verdict.text
    (comparison,) = report.comparisons
    assert not comparison.clear
    assert {v.word for v in report.pe_verdicts.values()} == {"undefined"}


@pytest.mark.slow
def test_many_groups_and_classes():
    rng = np.random.default_rng(0)
    prob = rng.dirichlet(np.ones(4), 20_000)
    y = (prob.cumsum(1) < rng.random((20_000, 1))).sum(1)
    table = AuditTable.from_arrays(y, prob, sensitive_features=rng.integers(0, 5000, 20_000))
    report = report_of(table)
    assert {v.word for v in report.verdicts.values()} == {"not enough evidence"}
    assert not any(c.clear for c in report.comparisons)


# --- one group beside another ----------------------------------------------------------------


def pairs_of(small, large, truth, other_truth, kind="wide", pairs=400):
    """Return the reports of many independent pairs of groups of two sizes."""
    rng = np.random.default_rng(5)
    sizes = np.tile([small, large], pairs)
    p = CONFIDENCES[kind](rng, sizes.sum())
    group = np.repeat(np.arange(2 * pairs), sizes)
    q = np.clip(np.where(group % 2 == 0, truth(p), other_truth(p)), 0, 1)
    y = (rng.random(len(p)) < q).astype(int)
    table = AuditTable.from_arrays(y, p, sensitive_features=group)
    return [
        report_of(table.only(slice(i, i + 2)), reference_group=i, intervals=False)
        for i in range(0, 2 * pairs, 2)
    ]


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
    assert np.mean([r.comparisons[0].clear for r in found]) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "large", "truth", "error", "power"),
    [
        (1000, 1000, pulled(0.1), 0.1, 0.9),
        (800, 800, pulled(0.05), 0.05, 0.3),
        (200, 3000, pulled(0.15), 0.15, 0.9),
        (2000, 2000, shifted(0.1), 0.1, 0.95),
    ],
)
def test_a_group_that_is_worse_is_found(small, large, truth, error, power):
    found = [r.comparisons[0] for r in pairs_of(small, large, lambda p: p, truth, pairs=200)]
    clear = [c for c in found if c.clear]
    assert len(clear) > 200 * power
    assert all(c.difference > 0 and c.low > 0 for c in clear)
    texts = {"ece": "is worse calibrated than", "mean": "are off by different amounts"}
    assert all(texts[c.measure] in c.text for c in clear)
    # both errors are those of the one group, in one direction; the other group has none
    assert np.mean([c.low <= error <= c.high for c in found]) >= 0.94


def test_who_is_compared_with_whom():
    table, _ = table_of("wide", 100, 4)
    found = report_of(table).comparisons
    assert [(c.group, c.other) for c in found] == [(1, 0), (2, 0), (3, 0)]
    found = report_of(table, reference_group=2).comparisons
    assert [(c.group, c.other) for c in found] == [(0, 2), (1, 2), (3, 2)]
    found = report_of(table, reference_group="all").comparisons
    assert {(c.group, c.other) for c in found} == {(g, h) for g in range(4) for h in range(g)}
    assert report_of(table.only(slice(0, 1))).comparisons == ()
    with pytest.raises(ValueError, match="reference_group 9 is not one of"):
        report_of(table, reference_group=9)


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
    report = report_of(table, base_rates=rates, reference_group=reference)
    data = (rates or group_base_rates(y, sensitive_features=group)).rates
    decisions = np.eye(classes)[prob.argmax(1)]
    for kind, model in (("stochastic", prob), ("deterministic", decisions)):
        mean = {g: model[group == g].mean(0) for g in "abc"}
        best = (-1.0,)
        for g in "abc":
            # "a" has the most rows
            for ref in "abc" if reference == "all" else reference or "a":
                for k in range(classes):
                    if g != ref:
                        ratios = data[g][k] / data[ref][k], mean[g][k] / mean[ref][k]
                        best = max(best, (abs(ratios[0] - ratios[1]), g, ref, k, *ratios))
                        key = (g, ref) if reference == "all" else g
                        found = report.amplification[kind][key][k]
                        assert found.value == pytest.approx(math.log(ratios[1] / ratios[0]))
                        assert found.low < found.value < found.high
        v = report.pe_verdicts[kind]
        assert (v.group, v.reference, v.label) == best[1:4]
        assert (v.value, v.data_ratio, v.model_ratio) == pytest.approx((best[0], *best[4:]))
        assert v.value == pytest.approx(
            proportional_equality(
                y, prob, sensitive_features=group, kind=kind, base_rates=rates,
                reference_group=reference,
            )
        )  # fmt: skip
        assert v.interval == report.intervals.proportional_equality[kind]
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
        found.append(report_of(table, base_rates=rates, intervals=False).pe_verdicts[kind].word)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize("base", [None, (0.6, 0.3)], ids=["own rates", "given rates"])
def test_a_model_that_keeps_the_ratio_is_seldom_accused(rows, base):
    tables = ratio_tables(rows, 500, lambda p, _: p)
    assert words(tables, base=base).count("no evidence") >= 500 * 0.95
    # decisions of a model that knows nothing but the rates themselves
    rng = np.random.default_rng(9)

    def chance(p, group):
        decided = rng.random(len(p)) < np.array([0.6, 0.3])[group]
        return np.where(decided, 0.9, 0.1)

    found = words(ratio_tables(rows, 500, chance), "deterministic", base)
    assert found.count("no evidence") >= 500 * 0.95


@pytest.mark.slow
def test_the_sampling_error_of_training_rates_counts():
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b"], 5000)
    wrong = {True: 0, False: 0}
    for _ in range(100):
        y = rng.random(10_000) < np.where(group == "a", 0.3, 0.5)
        train = np.repeat(["a", "b"], 500)
        rates = group_base_rates(
            (rng.random(1000) < np.where(train == "a", 0.3, 0.5)).astype(int),
            sensitive_features=train,
        )
        table = AuditTable.from_arrays(y.astype(int), y.astype(float), sensitive_features=group)
        for counted in (True, False):
            own = rates if counted else dataclasses.replace(rates, counts=None)
            found = report_of(table, base_rates=own, intervals=False).pe_verdicts.values()
            wrong[counted] += any(v.word != "no evidence" for v in found)
    assert wrong[True] <= 10  # 5 are allowed on average; more than 10 have a chance of 1%
    assert wrong[False] > 40  # as exact numbers they would accuse a perfect model


@pytest.mark.slow
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
    verdict = report_of(ratio_tables(1000, 1, change)[0]).pe_verdicts["stochastic"]
    assert f"the model {word} the difference (log amplification" in verdict.text
    assert not verdict.amplification.low <= 0 <= verdict.amplification.high
    assert verdict.interval.low > 0
    assert not (verdict.not_amplified and word == "amplifies")


def test_a_ratio_that_is_kept_is_said_to_be():
    (table,) = ratio_tables(50_000, 1, lambda p, _: p)
    verdict = report_of(table).pe_verdicts["stochastic"]
    assert verdict.word == "no evidence"
    assert verdict.not_amplified
    assert "the model keeps it within a factor of 1.25" in verdict.text
    assert verdict.interval.low == 0


def test_a_clear_gap_counts_though_a_few_rows_have_a_larger_one():
    rng = np.random.default_rng(1)
    group = np.repeat(["a", "b", "few"], [4001, 4000, 12])
    base = np.where(group == "b", 0.4, 0.5)
    y = (rng.random(len(group)) < base).astype(int)
    y[group == "few"] = np.arange(12) % 2
    p = np.where(group == "b", 0.3, np.where(group == "few", 0.7, 0.5))
    table = AuditTable.from_arrays(y, p, sensitive_features=group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no decision is for label 1
        found = report_of(table).pe_verdicts["stochastic"]
    assert found.group == "few"
    assert found.word == "amplifies"
    assert found.amplification.group == "b"
    assert "not significant. Clearest for label '1' in group 'b', compared with 'a'" in found.text


def test_infinite_and_undefined():
    table = AuditTable.from_arrays(
        [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.7], sensitive_features=list("aabb")
    )
    with pytest.warns(match="x/0"):
        report = report_of(table)
    found = report.pe_verdicts["deterministic"]
    assert (found.value, found.word) == (math.inf, "undefined")
    assert "label '1' in group 'b', compared with 'a': a ratio has a rate of 0" in found.text
    assert report.amplification["deterministic"]["b"][1].high == math.inf
    alone = report_of(table.pooled()).pe_verdicts
    assert {v.word for v in alone.values()} == {"undefined"}
    assert all(math.isnan(v.value) for v in alone.values())
    assert "only one" in alone["stochastic"].text


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
