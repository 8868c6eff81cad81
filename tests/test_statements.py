"""The statements of an audit hold their error rates: benchmarks/statements.py, thinned.

Also the judge itself: the truths of its worlds against plain sums of labels, and its checks against
reports that are right in everything, or wrong in one thing.
"""

import copy
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import judge
import statements
import truth
import worlds

from equipoise.auditing import Interval

CHANCE = 1e-4


# --- the worlds ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", worlds.WORLDS)
def test_truth_is_that_of_the_labels(name):
    world = worlds.WORLDS[name]
    true = truth.truth_of(world, 200_000)
    each = 40_000 if len(world.sizes) < 5 else 20_000
    rows = worlds.draw(world, worlds.generator(world, 99), dict.fromkeys(world.sizes, each))
    inflation = 1 + 30 * worlds.CORRELATION if world.clusters else 1
    for code, group in enumerate(world.sizes):
        here = rows.group == code
        p, y, w = rows.p[here], rows.y[here], rows.expected_weight[here]
        top = np.argmax(p, 1)
        noise = 5 * math.sqrt(inflation / each)
        pairs = [(p[np.arange(each), top], top == y)]
        pairs += [(p[:, k], y == k) for k in range(p.shape[1])]
        for row, (score, happened) in enumerate(pairs):
            for b in range(15):
                # float32 scores stand for the decimal numbers, which lie on edges
                low, high = b / 15 + 1e-6 * (b > 0), (b + 1) / 15 + 1e-6
                inside = (score > low) & (score <= high) if b else score <= high
                gap = (w * inside * (happened - score.astype(float))).sum() / w.sum()
                allowed = 0.5 * noise * math.sqrt(inside.mean() + 1 / each) * (w.max() / w.mean())
                assert abs(gap - true.gaps[None, group][row, b]) < allowed + 1e-3
        own = np.average(top == y, weights=w)
        assert own == pytest.approx(true.values[None, group]["accuracy"], abs=noise)
        brier = np.average(((p - np.eye(p.shape[1])[y]) ** 2).sum(1), weights=w)
        brier /= 2 if p.shape[1] == 2 else 1
        assert brier == pytest.approx(true.values[None, group]["brier"], abs=noise)
        rate = np.average(y == 1, weights=w)
        assert rate == pytest.approx(true.rates["labels"][None][group][1], abs=noise)


def test_truths_in_closed_form():
    true = truth.truth_of(worlds.WORLDS["shifted by 15 points"], 20_000)
    assert true.error(None, "A") == 0
    assert true.error(None, "B") == pytest.approx(0.15)
    assert true.too_high(None, "B", 1) == pytest.approx(0.15)
    assert true.too_high(None, "B", 0) == pytest.approx(-0.15)
    assert true.error(None, None) == pytest.approx(0.15 * 1800 / 4800, rel=0.02)
    true = truth.truth_of(worlds.WORLDS["over-confident by 5 points"], 20_000)
    assert true.ece(None, "B", None) == pytest.approx(0.05)
    true = truth.truth_of(worlds.WORLDS["24 parts x 4 groups, one part wrong"], 100_000)
    assert true.error(3, "B") == pytest.approx(0.3)
    assert true.error(2, "B") == true.error(3, "A") == 0
    true = truth.truth_of(worlds.WORLDS["perfect model, 1,000 training rows"], 20_000)
    assert true.amplification("deterministic", None, "B", "A", 1) == 0


def test_labels_of_a_person_are_correlated():
    world = worlds.WORLDS["clusters, shared scores"]
    rows = worlds.draw(world, np.random.default_rng(0), {"A": 200_000, "B": 10})
    rest = ((rows.y - rows.p[:, 1]) / np.sqrt(rows.p[:, 0] * rows.p[:, 1]))[:200_000]
    one, other = rest.reshape(-1, 10)[:, :2].T
    kept = rows.p[:200_000:10].min(1) > 0.1  # near 0 and 1 the residuals are wild
    assert np.mean((one * other)[kept]) == pytest.approx(0.6, abs=0.02)


def test_weights_have_the_mean_that_is_expected():
    world = worlds.WORLDS["lognormal weights by score, over-confident"]
    rows = worlds.draw(world, np.random.default_rng(0), {"A": 100_000, "B": 100_000})
    ratio = rows.weight / rows.expected_weight
    for part in (rows.group == 0, rows.group == 1, rows.p[:, 1] > 0.5):
        assert ratio[part].mean() == pytest.approx(1, abs=0.02)


# --- the judge -------------------------------------------------------------------------------

WORLD = worlds.WORLDS["shifted by 15 points"]


@pytest.fixture(scope="module")
def true():
    return truth.truth_of(WORLD, 20_000)


def _around(value, half):
    return Interval(value - half, value + half)


def _verdict(error, tolerance):
    low, high = max(error - 0.02, 0.0), error + 0.02
    word = "calibrated" if high <= tolerance else "not enough evidence"
    word = "miscalibrated" if low > tolerance else word
    direction = "too high" if error else ""
    return SimpleNamespace(
        word=word, error=error, interval=(low, high), direction=direction, label=1, rows_needed=9
    )


def _right_report(true, tolerance):
    """Make a report that knows the truth."""
    metrics = {g: true.values[None, g] for g in "AB"}
    ends = {g: {m: _around(v, 0.01) for m, v in metrics[g].items()} for g in "AB"}
    amplification, pe, pe_ends, pe_verdicts = {}, {}, {}, {}
    for kind in judge.KINDS:
        values = {k: true.amplification(kind, None, "B", "A", k) for k in (0, 1)}
        amplification[kind] = {
            "B": {
                k: SimpleNamespace(value=v, low=v - 0.01, high=v + 0.01) for k, v in values.items()
            }
        }
        pe[kind] = true.proportional_equality(kind, None, "A")
        pe_ends[kind] = _around(pe[kind], 0.01)
        pe_verdicts[kind] = SimpleNamespace(word=_true_word(true, kind))
    gaps = {m: _around(abs(metrics["A"][m] - metrics["B"][m]), 0.01) for m in metrics["A"]}
    return SimpleNamespace(
        overall=metrics["A"],
        groups=metrics,
        intervals=SimpleNamespace(
            overall=ends["A"], groups=ends, gaps=gaps, proportional_equality=pe_ends
        ),
        verdict=_verdict(true.error(None, None), tolerance),
        verdicts={g: _verdict(true.error(None, g), tolerance) for g in "AB"},
        comparisons=(
            SimpleNamespace(
                group="B", other="A", measure="ece", label=1, difference=0.15, low=0.13, high=0.17
            ),
        ),
        amplification=amplification,
        proportional_equality=pe,
        pe_verdicts=pe_verdicts,
        by={},
        table=None,
    )


def _true_word(true, kind):
    found = true.words(kind, None, "B", "A", 1)
    return min(found) if found else "no evidence"


def _right_gate(report, gate, on_interval):
    if gate == "miscalibrated":
        words = {v.word for v in report.verdicts.values()}
        strict = on_interval == "strict" and "not enough evidence" in words
        return "miscalibrated" in words or strict
    if gate.startswith("amplifies"):
        kind = judge.KINDS[gate != "amplifies"]
        return report.pe_verdicts[kind].word in ("amplifies", "reverses")
    metric = gate.split("[")[0]
    end = 1 if on_interval == "strict" else 0
    return any(report.intervals.groups[g][metric][end] > 0.05 for g in "AB")


def _judged(true, monkeypatch, change=None, gate=_right_gate):
    """Return the bad events: those that should never happen, and coverage that did not."""
    reports = {t: _right_report(true, t) for t in judge.TOLERANCES}
    if change is not None:
        for report in reports.values():
            change(report)
    monkeypatch.setattr(judge, "fails", gate)
    monkeypatch.setattr(judge, "unadjusted", lambda case: case.report().intervals)
    case = judge.Case(WORLD, true, reports, None)
    return {
        (column, about)
        for _, check in judge.CHECKS
        for column, about, happened in check(case)
        if happened != (statements.COLUMNS[column].low > 0)
    }


def test_the_judge_finds_nothing_in_a_report_that_knows_the_truth(true, monkeypatch):
    assert _judged(true, monkeypatch) == set()


def _say_calibrated(report):
    report.verdicts["B"].word = "calibrated"


def _say_miscalibrated(report):
    report.verdicts["A"].word = "miscalibrated"


def _say_too_low(report):
    report.verdicts["B"].direction = "too low"


def _move_verdict(report):
    report.verdicts["B"].interval, report.verdicts["B"].error = (0.2, 0.3), 0.25


def _move_error(report):
    report.verdict.error = 0.9


def _move_comparison(report):
    report.comparisons[0].low, report.comparisons[0].difference = 0.16, 0.165


def _doubt_comparison(report):
    report.comparisons[0].low = -0.01


def _turn_comparison(report):
    c = report.comparisons[0]
    c.low, c.high, c.difference = -0.17, -0.13, -0.15


def _doubt_pe(report):
    report.pe_verdicts["stochastic"].word = "no evidence"


def _false_pe(report):
    report.pe_verdicts["stochastic"].word = "dampens"


def _move_amplification(report):
    found = report.amplification["stochastic"]["B"][1]
    found.value, found.low, found.high = 5.0, 4.0, 6.0


def _move_figure(report):
    report.groups = copy.deepcopy(report.groups)
    report.groups["B"]["brier"] = 0.9


def _move_interval(report):
    report.intervals.groups["B"]["log_loss"] = Interval(5.0, 6.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_say_calibrated, ("verdict 0.05", "")),
        (_say_calibrated, ("verdict 0", "")),
        (_say_calibrated, ("contradiction", "verdict and its interval")),
        (_say_miscalibrated, ("verdict 0.05", "")),
        (_say_too_low, ("direction", "tolerance 0")),
        (_move_verdict, ("covered", "")),
        (_move_error, ("contradiction", "error and its interval")),
        (_move_comparison, ("comparison", "")),
        (_doubt_comparison, ("contradiction", "comparison and verdicts")),
        (_turn_comparison, ("contradiction", "comparison and verdicts")),
        (_doubt_pe, ("contradiction", "PE verdict and amplifications")),
        (_doubt_pe, ("contradiction", "PE verdict and interval of PE")),
        (_false_pe, ("pe word", "stochastic")),
        (_move_amplification, ("pe covered", "stochastic")),
        (_move_figure, ("contradiction", "brier and its interval")),
        (_move_interval, ("log_loss", "B")),
        (_move_interval, ("intervals", "log_loss")),
    ],
)
def test_the_judge_finds_what_is_wrong(change, expected, true, monkeypatch):
    assert expected in _judged(true, monkeypatch, change)


@pytest.mark.parametrize(
    ("name", "always", "expected"),
    [
        ("shifted by 15 points", False, "classwise_ece > 0.05, strict"),
        ("calibrated", True, "miscalibrated, tolerance 0.05, lenient"),
        ("calibrated", True, "amplifies, default"),
    ],
)
def test_the_judge_finds_gates_that_do_not_look(name, always, expected, monkeypatch):
    true = truth.truth_of(worlds.WORLDS[name], 20_000)
    found = _judged(true, monkeypatch, gate=lambda *_: always)
    assert ("gate", expected) in found
    assert any(about.startswith("gate ") for column, about in found if column == "contradiction")


def test_the_judge_finds_a_false_pe_verdict(monkeypatch):
    calibrated = truth.truth_of(worlds.WORLDS["calibrated"], 20_000)
    found = _judged(calibrated, monkeypatch, _false_pe)
    assert ("pe false", "stochastic") in found
    assert ("pe word", "stochastic") not in found


def test_rates_are_held_against_their_targets():
    tally = statements.Tally("calibrated")
    for i in range(400):
        tally.add("verdict 0", "", i < 28)  # 7.0%: within two errors of 5%
        tally.add("verdict 0.05", "", i < 29)
        tally.add("covered", "", i >= 29)
        tally.add("contradiction", "any", i == 0)
    held = {c: statements.rate_of(tally, c).holds for c in tally.counts}
    assert held == {
        "verdict 0": True,
        "verdict 0.05": False,
        "covered": False,
        "contradiction": False,
    }


def test_what_is_missing_is_said(monkeypatch):
    def lacking(*_):
        return SimpleNamespace()

    monkeypatch.setattr(statements, "run", lacking)
    tally = statements.tally_of("calibrated", 1, truth_rows=1000)
    assert set(tally.missing) >= {"verdict 0", "covered", "contradiction", *judge.SINGLE}
    assert "missing" in statements.cells_of(tally, ["covered"])
    assert any("has no attribute" in miss for miss in statements.misses_of([tally], []))


def test_the_page_says_what_does_not_hold():
    tally = statements.Tally("calibrated")
    for i in range(50):
        tally.add("comparison", "", i % 2 == 0)
        tally.add("brier", "B", True)
    needed = statements.Needed("calibrated", 300, 0.05, 9, 1, 2, 6, 1, [100, 900])
    page = statements.as_page([tally], [needed], 50, 1)
    assert "| 50.0 ± 7.1 ✗ |" in page
    end = page.partition("## What does not hold")[2]
    assert "calibrated: false comparison: 50.0% of 50, target at most 5%" in end
    assert "rows needed suffice: 16.7% of 6, target at least 80%" in end
    assert "Brier" not in end


def test_uneven_clusters_are_of_one_group():
    world = worlds.WORLDS["clusters of 1 to 30 rows"]
    rows = worlds.draw(world, np.random.default_rng(0))
    sizes = np.bincount(rows.cluster)
    assert set(sizes) == {1, 3, 6, 10, 30}
    assert all(len(set(rows.group[rows.cluster == c])) == 1 for c in range(len(sizes)))


# --- the statements --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tallies():
    found = []
    for name, world in worlds.WORLDS.items():
        repeats = 2 if world.parts > 1 else 20 if world.power else 4
        found.append(statements.tally_of(name, repeats, seed=2026, truth_rows=200_000))
    return found


def _unlikely(happened, trials, low, high):
    """Return whether the count is beyond what chance gives within the limits."""
    above = binom.sf(happened - 1, trials, high) < CHANCE
    return bool(above or binom.cdf(happened, trials, low) < CHANCE)


@pytest.mark.slow
def test_nothing_is_missing(tallies):
    assert {why for t in tallies for reasons in t.missing.values() for why in reasons} == set()


@pytest.mark.slow
def test_no_statement_contradicts_another(tallies):
    found = [
        (t.world, about, happened)
        for t in tallies
        for about, (happened, _) in t.counts.get("contradiction", {}).items()
        if happened
    ]
    assert found == []


@pytest.mark.slow
def test_rates_hold_in_each_world(tallies):
    found = []
    for tally in tallies:
        for column, counts in tally.counts.items():
            for about, (happened, trials) in counts.items():
                low, high = statements.limits(tally.world, column, about)
                if column != "contradiction" and _unlikely(happened, trials, low, high):
                    found.append((tally.world, column, about, happened, trials))
    assert found == []


@pytest.mark.slow
def test_rates_hold_over_all_worlds(tallies):
    pooled = {}
    for tally in tallies:
        for column, counts in tally.counts.items():
            for about, (happened, trials) in counts.items():
                key = column, "" if column in judge.SINGLE else about
                count = pooled.setdefault(key, [0, 0])
                count[0] += happened
                count[1] += trials
    limits = {c: (spec.low, spec.high) for c, spec in statements.COLUMNS.items()}
    limits |= dict.fromkeys(judge.SINGLE, (0.93, 1.0))  # some are near 0
    limits["power"] = (0.7, 1.0)
    del limits["contradiction"]
    found = [
        (*key, *count)
        for key, count in pooled.items()
        if key[0] in limits and _unlikely(*count, *limits[key[0]])
    ]
    assert found == []
