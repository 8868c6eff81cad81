"""No statement of an audit contradicts its interval or another statement: 2,000 random tables."""

import math
import warnings

import numpy as np
import pytest

from equipoise.auditing import Gate, audit
from equipoise.metrics import group_base_rates

TABLES = 2000
TOLERANCES = (0.0, 0.01, 0.05, 0.2)


def random_audit(rng):
    """Audit rows of random shape: sizes, classes, scores, weights, clusters, parts, rates."""
    k = int(rng.choice([2, 2, 2, 3, 5]))
    groups = int(rng.integers(1, 6))
    sizes = np.maximum(1, (10 ** rng.uniform(0, 3, groups)).astype(int))
    group = np.repeat(np.arange(groups), sizes)
    n = len(group)
    prob = rng.dirichlet(np.full(k, 10 ** rng.uniform(-1.5, 1)), n)
    if rng.random() < 0.3:  # few distinct scores, some on the edges of bins
        prob = np.round(prob * 15) / 15
        prob[:, -1] = np.maximum(1 - prob[:, :-1].sum(1), 0)
        prob /= prob.sum(1, keepdims=True)
    true = prob ** rng.uniform(0.4, 2) + rng.choice([0, 0, 0.1, 0.5]) * rng.random(k)
    true /= true.sum(1, keepdims=True)
    y = np.minimum((true.cumsum(1) < rng.random((n, 1))).sum(1), k - 1)
    given = {"labels": list(range(k)), "n_bins": int(rng.choice([1, 5, 10, 15, 20]))}
    if rng.random() < 0.25:
        given["sample_weight"] = 10 ** rng.uniform(-1, 1, n)
    if rng.random() < 0.25:
        given["clusters"] = rng.integers(0, max(1, n // 4), n)
    if rng.random() < 0.2:
        given["by"] = rng.integers(0, 3, n)
    if rng.random() < 0.25:
        decided = rng.integers(0, k, n)
        given["y_pred"] = np.where(rng.random(n) < 0.7, prob.argmax(1), decided)
    if rng.random() < 0.3:
        train = np.repeat(np.arange(groups), 1 + rng.integers(1, 200, groups))
        labels = rng.integers(0, k, len(train))
        rates = group_base_rates(labels, sensitive_features=train, labels=list(range(k)))
        given["base_rates"] = rates if rng.random() < 0.7 else rates.rates
    if rng.random() < 0.2:
        given["reference_group"] = "all"
    prob = prob[:, 1] if k == 2 and rng.random() < 0.5 else prob
    given["tolerance"] = float(rng.choice(TOLERANCES))
    given["level"] = float(rng.choice([0.8, 0.95, 0.99]))
    return audit(y, prob, sensitive_features=group, **given)


def fails(gate, report, how):
    return not all(outcome.holds for outcome in Gate.parse(gate).check(report, how))


def check(report):
    t = report.tolerance
    for verdict in (report.verdict, *report.verdicts.values()):
        low, high = verdict.interval
        word = "miscalibrated" if low > t else "calibrated" if high <= t else "not enough evidence"
        assert verdict.word == word
        assert 0 <= low <= verdict.error <= high
        assert (verdict.direction == "") == (word != "miscalibrated")
        assert verdict.rows_needed is None or word == "not enough evidence"
        assert f"{verdict.error:.3f}, " in verdict.text
    for g, figures in report.groups.items():
        ends, verdict = report.intervals.groups[g], report.verdicts[g]
        for name in ("ece", "classwise_ece", "accuracy", "brier", "log_loss"):
            low, high = ends[name]
            assert low - 1e-12 <= figures[name] <= high + 1e-12, name
        # one bound for one figure: the verdict's is that of the table
        if verdict.label is None:
            low, high = ends["ece"]
            assert verdict.error == pytest.approx(figures["ece"])
            on_edge = t in (round(low, 3), round(high, 3))  # such bounds have more digits
            assert on_edge or f"{low:.3f} to {high:.3f}" in verdict.text
        for name in ("ece", "classwise_ece"):  # no error is larger than the largest
            assert ends[name].low <= verdict.interval.high
        if verdict.word == "calibrated":
            assert ends["ece"].high <= t
            assert len(report.table.labels) == 2 or ends["classwise_ece"].high <= t + 1e-12
    for c in report.comparisons:
        assert c.low <= c.difference <= c.high
        words = report.verdicts[c.group].word, report.verdicts[c.other].word
        if words == ("miscalibrated", "calibrated"):
            assert c.measure == "ece"
            assert c.low > 0
            assert "worse calibrated" in c.text
        if words == ("calibrated", "miscalibrated"):
            assert c.measure == "ece"
            assert c.high < 0
        assert c.clear == ("no evidence" not in c.text)
    check_gates(report)
    if len(report.groups) > 1 and report.reference_group in (*report.groups, "all"):
        for kind, gate in (
            ("stochastic", "amplifies"),
            ("deterministic", "amplifies_deterministic"),
        ):
            check_ratios(report, kind, gate)


def check_gates(report):
    t = report.tolerance
    parts = (report, *report.by.values())
    words = {v.word for part in parts for v in (part.verdict, *part.verdicts.values())}
    for how in (None, "lenient", "strict"):
        wrong = "miscalibrated" in words or (how == "strict" and words != {"calibrated"})
        assert fails("miscalibrated", report, how) == wrong
    for name in ("ece", "classwise_ece"):
        ends = [
            part.intervals.groups[g][name]
            for part in (report, *report.by.values())
            for g in part.groups
        ]
        lenient = any(low > t for low, _ in ends)
        strict = any(high > t for _, high in ends)
        assert fails(f"{name}[*] > {t}", report, "lenient") == lenient
        assert fails(f"{name}[*] > {t}", report, "strict") == strict


def check_ratios(report, kind, gate):
    verdict = report.pe_verdicts[kind]
    each = [a for own in report.amplification[kind].values() for a in own.values()]
    for a in each:
        assert not a.low > a.high
        assert math.isnan(a.value) or a.low <= a.value <= a.high
        assert bool(a.word) == (a.low > 0 or a.high < 0)
    shown = any(a.word for a in each)
    assert shown == (verdict.word not in ("no evidence", "undefined"))
    end = report.intervals.proportional_equality[kind]
    assert (end.low > 0) == shown
    value = report.proportional_equality[kind]
    assert math.isnan(value) or end.low <= value * (1 + 1e-9) + 1e-12
    assert math.isnan(value) or value <= end.high * (1 + 1e-9) + 1e-12
    if report.by:
        return
    bad = any(a.word in ("amplifies", "reverses") for a in each)
    assert bad == (verdict.word in ("amplifies", "reverses"))
    if bad or verdict.word == "undefined":
        assert all(fails(gate, report, how) for how in (None, "lenient", "strict"))
    else:
        assert not fails(gate, report, "lenient")
        open_case = verdict.word == "changes" or not verdict.not_amplified
        assert fails(gate, report, "strict") == open_case
        open_case = any(a.word == "changes" and a.grows for a in each)
        assert fails(gate, report, None) == open_case


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_statement_contradicts_another(part):
    rng = np.random.default_rng(part)
    for i in range(TABLES // 4):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)
            try:
                report = random_audit(rng)
                for each in (report, *report.by.values()):
                    check(each)
                str(report)
            except AssertionError as error:
                raise AssertionError(f"table {i} of part {part}: {error}") from error
