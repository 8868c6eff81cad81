"""The benchmark of repairs: its measures against plain loops, and its page against its figures."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import repair_measures as measuring
import repair_page as page
from repair_methods import OURS, Cell, our_ensemble, ours, scikit_learn, warm_up

from equipoise import GroupCalibrator
from equipoise.metrics import brier_score, debiased_squared_calibration_error, log_loss

RNG = np.random.default_rng(0)
N = 3000
GROUP = RNG.choice(4, N, p=[0.6, 0.25, 0.13, 0.02])
P = np.round(RNG.beta(1, 2, N), 3)
Y = (RNG.random(N) < P ** np.where(GROUP == 1, 2, 1)).astype(int)


def measured(y, p, group):
    return {
        name: float(value[0])
        for name, value in measuring.measures(measuring.Sums.of(y, p, group)).items()
    }


# --- measures --------------------------------------------------------------------------------


def loop_ece(y, p):
    """Mean product of the gaps of two different rows of a bin (low, high], over bins."""
    total = 0.0
    for b in range(15):
        low, high = (b / 15 if b else -1), (b + 1) / 15
        gaps = [p[i] - y[i] for i in range(len(y)) if low < p[i] <= high]
        n = len(gaps)
        if n > 1:
            products = sum(gaps[i] * gaps[j] for i in range(n) for j in range(n) if i != j)
            total += n / len(y) * products / (n * (n - 1))
    return math.sqrt(max(total, 0))


def loop_amplification(y, p, group, members, reference):
    values = []
    for g in members:
        for label in (0, 1):
            q, r = {}, {}
            for which in (g, reference):
                rows = group == which
                q[which] = np.mean(p[rows] if label else 1 - p[rows])
                r[which] = np.mean(y[rows] == label)
            values.append(abs(math.log(q[g] / q[reference]) - math.log(r[g] / r[reference])))
    return sum(values) / len(values)


def test_measures_are_those_of_plain_loops():
    p = np.clip(P, measuring.CLIP, 1 - measuring.CLIP)
    found = measured(Y, P, GROUP)
    assert found["log_loss"] == pytest.approx(
        sum(-math.log(q if y else 1 - q) for y, q in zip(Y, p, strict=True)) / N
    )
    assert found["brier"] == pytest.approx(sum((q - y) ** 2 for y, q in zip(Y, p, strict=True)) / N)
    # group 3 has fewer than 100 rows
    assert (GROUP == 3).sum() < measuring.LEAST < (GROUP == 2).sum()
    assert found["worst_ece"] == pytest.approx(
        max(loop_ece(Y[rows], p[rows]) for rows in (GROUP == 0, GROUP == 1, GROUP == 2))
    )
    assert found["amplification"] == pytest.approx(loop_amplification(Y, p, GROUP, (1, 2), 0))


def test_measures_are_those_of_the_library():
    one = np.zeros(N, int)
    found = measured(Y, P, one)
    assert found["log_loss"] == pytest.approx(log_loss(Y, P), abs=1e-7)
    assert found["brier"] == pytest.approx(brier_score(Y, P), abs=1e-6)
    # of a model that is sure of one class, the top label is that class
    high = 0.51 + 0.48 * P
    ece = measured(Y, high, one)["worst_ece"]
    assert ece**2 == pytest.approx(debiased_squared_calibration_error(Y, high), abs=1e-6)


def test_the_two_largest_groups_always_count():
    few = np.repeat([0, 1, 2], [60, 40, 10])
    y = np.tile([0, 1], 55)
    p = np.where(few == 1, 0.9, 0.5)
    assert measured(y, p, few)["amplification"] == pytest.approx(
        (math.log(0.9 / 0.5) - math.log(0.1 / 0.5)) / 2
    )


def test_certain_probabilities_cost_a_finite_loss():
    assert measured(np.array([1, 0]), np.array([0.0, 0.0]), np.array([0, 0]))[
        "log_loss"
    ] == pytest.approx(-math.log(1e-6) / 2)


def test_blocks_left_out():
    block = RNG.integers(0, 5, N)
    sums = measuring.Sums.of(Y, P, GROUP, block)
    left_out = measuring.measures(sums.left_out(), like=sums.total())
    for b in range(5):
        rest = block != b
        assert left_out["log_loss"][b] == pytest.approx(
            measured(Y[rest], P[rest], GROUP[rest])["log_loss"]
        )
    whole = measuring.measures(sums.total())
    for name, value in measured(Y, P, GROUP).items():
        assert whole[name][0] == pytest.approx(value)


# --- comparisons -----------------------------------------------------------------------------


def test_interval_over_splits():
    values = [0.1, 0.3, 0.2, 0.4]
    gap = measuring.over_splits(values, 0.25)
    mean = sum(values) / 4
    variance = sum((v - mean) ** 2 for v in values) / 3
    reach = student.ppf(0.975, 3) * math.sqrt((1 / 4 + 1 / 3) * variance)
    assert (gap.mean, gap.low, gap.high) == pytest.approx((mean, mean - reach, mean + reach))
    assert not measuring.over_splits([0.1], 0.25).clear
    assert measuring.over_splits([0.1, 0.1], 0.25).clear


def test_interval_over_blocks_of_a_mean_is_the_normal_one():
    values = RNG.normal(1, 2, 400)
    mean, error = values.mean(), values.std(ddof=1) / 20
    gap = measuring.over_blocks(mean, [np.delete(values, i).mean() for i in range(400)])
    assert (gap.low, gap.high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error))


# --- methods ---------------------------------------------------------------------------------


def cell(*, decides=False):
    truth = RNG.normal(size=400)
    odds = 2 * truth + RNG.normal(scale=0.1, size=(3, 400))
    y = (RNG.random(400) < 1 / (1 + np.exp(-truth))).astype(int)
    rows = np.arange(300)
    folds = [(rows[rows % 2 == 0], rows[rows % 2 == 1]), (rows[rows % 2 == 1], rows[rows % 2 == 0])]
    X = np.zeros((400, 1), np.float32)
    return Cell(X, y, np.arange(400) // 2 % 2, 300, folds, odds, decides=decides)


def test_scores_are_those_of_models_that_have_not_seen_the_row():
    one = cell()
    for row in range(300):
        # fold 0 is tested on odd rows
        assert one.train_odds[row] == one.odds[0 if row % 2 else 1, row]
    np.testing.assert_array_equal(one.test_odds, one.odds[2, 300:])


@pytest.mark.parametrize("decides", [False, True])
def test_our_method_is_the_calibrator(decides):
    one = cell(decides=decides)
    expected = GroupCalibrator(method="bcts").fit(
        one.train_odds, one.y[:300], sensitive_features=one.group[:300]
    )
    np.testing.assert_allclose(
        ours("bcts")(one),
        expected.predict_proba(one.test_odds, sensitive_features=one.group[300:])[:, 1],
        atol=1e-6,
    )


def test_an_ensemble_is_the_mean_over_folds():
    one = cell(decides=True)
    parts = []
    for odds, (_, test) in zip(one.odds, one.folds, strict=False):
        fitted = GroupCalibrator(method="common").fit(
            odds[test], one.y[test], sensitive_features=one.group[test]
        )
        parts.append(fitted.predict_proba(odds[300:], sensitive_features=one.group[300:])[:, 1])
    found = our_ensemble("common")(one)
    np.testing.assert_allclose(found, np.mean(parts, axis=0), atol=1e-9)


def test_an_ensemble_of_scikit_learn_gets_the_same_scores():
    one = cell(decides=True)
    for ensemble in (True, False):
        found = scikit_learn("sigmoid", ensemble=ensemble)(one)
        assert np.corrcoef(found, one.test_p)[0, 1] > 0.95


@pytest.mark.slow
def test_all_of_ours_run():
    warm_up({name: make() for name, make in OURS.items()})


# --- the page --------------------------------------------------------------------------------

NAMES = page.Names("equipoise auto", "nothing", "MCGrad", "MCGrad, all",
                   ("equipoise auto", "equipoise bcts", "equipoise auto, ensemble"))  # fmt: skip
METHODS = (*NAMES.ours, "nothing", "MCGrad", "MCGrad, all")


def results(*, losses=None, seconds=None, amplification=None, temporal=False):
    """Make results of two cases; each method's figures differ by the split's only."""
    losses, seconds = losses or {}, seconds or {}
    amplification = amplification or {}

    def row(method, split):
        noise = 0.001 * split
        figures = {
            "log_loss": losses.get(method, 0.5) + noise,
            "brier": 0.2 + noise,
            "worst_ece": 0.02 + noise,
            "amplification": amplification.get(method, 0.3) + noise,
        }
        if temporal:
            left_out = {k: [v, v + 1e-9] for k, v in figures.items()}
            return figures | {"seconds": seconds.get(method, 1.0), "left_out": left_out}
        return figures | {"seconds": seconds.get(method, 1.0)}

    def cells():
        return [
            {
                "available": 1000,
                "rows": [750, 250],
                "groups": "2 (age)",
                "fit_year": 2015 if temporal else None,
                "methods": {m: row(m, split) for m in METHODS},
            }
            for split in range(1 if temporal else 3)
        ]

    return {("german", "LightGBM"): cells(), ("compas", "logistic regression"): cells()}


def text_of(**figures):
    return page.as_page(results(**figures), NAMES, {"Python": "3"})


def test_goals_that_hold():
    text = text_of(
        losses={"equipoise auto": 0.4},
        seconds={"equipoise auto": 0.05},
        amplification={"equipoise auto": 0.1},
    )
    assert text.count("this holds in every one of the 2 cases") == 4
    assert "The default has the least in every one of the 2 cases, so the goal holds." in text
    assert "does not hold" not in text
    assert "| **0.4010** |" in text


def test_goals_that_do_not_hold():
    text = text_of(
        losses={"nothing": 0.3, "MCGrad, all": 0.2},
        seconds={"equipoise auto": 0.5, "MCGrad, all": 10},
        amplification={"nothing": 0.1},
    )
    assert text.count("this holds in none of the 2 cases. It does not hold on German credit") == 2
    assert "nothing is better by +0.2000 (+0.2000 to +0.2000)" in text
    assert "MCGrad, all is better by +0.3000" in text
    assert "The default has the least in none of the 2 cases, so the goal does not hold" in text
    assert "Clearly more: German credit, LightGBM: nothing has less by +0.2000" in text
    assert "Beside MCGrad, this holds in none of the 2 cases. The largest ratio is 0.50" in text
    assert "Beside MCGrad, all, this holds in every one of the 2 cases" in text


def test_what_is_not_distinguishable_is_marked():
    made = results()
    for split, one in enumerate(made["german", "LightGBM"]):
        one["methods"]["nothing"]["log_loss"] += (-1) ** split * 0.02
        one["methods"]["MCGrad"]["log_loss"] += 0.02
    lines = page.as_page(made, NAMES, {}).split("## Log-loss")[1].splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines if " | " in line}
    cells = made["german", "LightGBM"]
    assert page.best_of(cells, "log_loss", METHODS) == "equipoise auto"
    assert page.ties(cells, "log_loss", "equipoise auto", METHODS) == set(METHODS) - {"MCGrad"}
    assert "Difference from the default" in "".join(lines)
    assert rows["nothing"].count("≈") <= 2


def test_one_split_has_the_interval_of_its_blocks():
    made = results(losses={"nothing": 0.4}, temporal=True)
    gap = page.difference(made["german", "LightGBM"], "nothing", "equipoise auto", "log_loss")
    assert gap.mean == pytest.approx(-0.1)
    assert gap.clear
    text = page.as_page(made, NAMES, {})
    assert "fitted on 2015, tested on later years" in text


def test_the_choice_among_ours():
    made = results(losses={"equipoise bcts": 0.45, "equipoise auto, ensemble": 0.4})
    assert page.our_best(made, NAMES) == (
        "Of our methods, equipoise auto, ensemble has the least log-loss in the mean over all "
        "cases; of those that keep one model, equipoise bcts. An ensemble is not the default: it "
        "keeps five models instead of one, cannot be exported, and its predictions are no model's "
        "own. The default is equipoise auto."
    )
    _, lines = page.our_choice(made, NAMES)
    assert [line[:4] for line in lines] == [
        ["equipoise auto", "+0.00", "0", "2"],
        ["equipoise bcts", "-50.00", "0", "2"],
        ["equipoise auto, ensemble", "-100.00", "2", "0"],
    ]
    assert "Of our methods" in page.summary(made, NAMES)
