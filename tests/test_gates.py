"""Gates on reports whose figures are written down by hand."""

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.auditing import (
    AuditReport,
    Gate,
    Interval,
    Intervals,
    PeVerdict,
    Verdict,
    audit,
)
from equipoise.auditing._gates import NAMES, find_group, split_names
from equipoise.metrics import METRICS, AuditTable

NAN = math.nan


def verdict(word, rows=10):
    return Verdict(word, "", None, 0.1, Interval(0.05, 0.15), rows, None, f"it is {word}")


def pe_verdict(word, value=0.3, not_amplified=False):
    return PeVerdict(
        value=value,
        interval=None,
        oracle=0.0,
        group="m",
        reference="f",
        label=1,
        data_ratio=1.0,
        model_ratio=1.3,
        amplification=None,
        word=word,
        not_amplified=not_amplified,
        text=f"the model {word}",
    )


def report_of_figures(
    groups=("f", "m"), ece=(0.04, 0.08), overall=0.05, words=None, pe=0.3, gap=0.04, **more
):
    """A report in which only some figures matter; intervals reach 0.02 to both sides."""
    n = [30 + 10 * i for i in range(len(groups))]
    rows = np.repeat(np.arange(len(groups)), n)
    names = np.empty(len(groups), dtype=object)
    names[:] = groups
    table = AuditTable.from_arrays(
        rows % 2, np.full(len(rows), 0.5), sensitive_features=list(names[rows]), labels=[0, 1]
    )
    words = words or ["calibrated"] * len(groups)

    def around(values):
        return {k: Interval(v - 0.02, v + 0.02) for k, v in values.items()}

    whole = dict.fromkeys(METRICS, 0.5) | {"ece": overall}
    per_group = {
        g: dict.fromkeys(METRICS, 0.5) | {"ece": v} for g, v in zip(groups, ece, strict=True)
    }
    gaps = dict.fromkeys(METRICS, 0.1) | {"ece": gap} if len(groups) > 1 else {}
    kinds = {"stochastic": pe, "deterministic": pe / 2}
    sure = Intervals(
        level=0.95,
        overall=around(whole),
        groups={g: around(v) for g, v in per_group.items()},
        gaps=around(gaps),
        proportional_equality=around(kinds),
        rates={},
    )
    fields = {
        "overall": whole,
        "groups": per_group,
        "proportional_equality": kinds,
        "table": table,
        "gaps": gaps,
        "rates": {},
        "intervals": sure,
        "verdict": verdict("calibrated"),
        "verdicts": {g: verdict(w) for g, w in zip(groups, words, strict=True)},
        "comparisons": (),
        "pe_verdicts": {
            "stochastic": pe_verdict("amplifies"),
            "deterministic": pe_verdict("dampens"),
        },
        "amplification": {"stochastic": {}, "deterministic": {}},
        "reference_group": groups[0],
    }
    return AuditReport(**fields | more)


REPORT = report_of_figures()


def only(text, report=REPORT, on_interval=None):
    (outcome,) = Gate.parse(text).check(report, on_interval)
    return outcome


# --- what is written -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "group", "sign", "limit"),
    [
        ("ece > 0.05", "ece", None, ">", 0.05),
        ("  ECE>=5e-2 ", "ece", None, ">=", 0.05),
        ("ece[Female] > .05", "ece", ("Female",), ">", 0.05),
        ("accuracy [ Female , Black ]<.7", "accuracy", ("Female", "Black"), "<", 0.7),
        ("log-loss['a, b'] <= 1", "log_loss", ("a, b",), "<=", 1.0),
        ('mce["]>[", O\'Brien] > 0', "mce", ("]>[", "O'Brien"), ">", 0.0),
        ('rows["two\\nlines"] < 100', "rows", ("two\nlines",), "<", 100.0),
        ("brier['*'] > 1", "brier", ("*",), ">", 1.0),
        ("pe > -1", "pe", None, ">", -1.0),
        ("pe_deterministic > 2", "pe_deterministic", None, ">", 2.0),
        ("dropped > 0", "dropped", None, ">", 0.0),
    ],
)
def test_parse(text, name, group, sign, limit):
    gate = Gate.parse(text)
    assert (gate.name, gate.group, gate.sign, gate.limit) == (name, group, sign, limit)
    assert not gate.gap
    assert not gate.each


def test_parse_gap_each_and_words():
    assert Gate.parse("ece.gap > 0.1").gap
    assert Gate.parse("ece[*] > 0.1").each
    assert Gate.parse("miscalibrated").sign == ""
    assert Gate.parse("miscalibrated[f]").group == ("f",)
    assert Gate.parse("amplifies").name == "amplifies"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ecce > 0.05", "there is no metric 'ecce'; did you mean 'ece'"),
        ("logloss > 1", "did you mean 'log_loss'"),
        ("miscalibratd", "did you mean 'miscalibrated'"),
        ("fairness > 1", "there are accuracy, ece"),
        ("", "is not a gate; write for example"),
        ("> 0.05", "is not a gate"),
        ("ece", "'ece' has no limit; write for example 'ece > 0.05'"),
        ("ece >", "has no limit"),
        ("ece = 0.05", "there is no =; the signs are > >= < <="),
        ("ece == 0.05", "there is no =="),
        ("ece => 0.05", "there is no =>"),
        ("ece > five", "'five' is not a number"),
        ("ece > 0.05 0.06", "is not a number"),
        ("ece > nan", "'nan' is not a number"),
        ("ece > inf", "'inf' is not a number"),
        ("ece > 5%", "'5%' is not a number"),
        ("ece[] > 1", "a name is missing; each group is"),
        ("ece[a,] > 1", "a name is missing"),
        ("ece[a]b] > 1", "in quotes"),
        ("ece['a] > 1", "in quotes"),
        ("ece[a > 1", "is not a gate"),
        ("ece[a].gap > 1", "a gap is between groups"),
        ("ece.gap[a] > 1", "compares groups, so it has no"),
        ("ece.range > 1", "there is no ece.range"),
        ("pe.gap > 1", "there is no pe.gap; .gap is for accuracy"),
        ("pe[a] > 1", "pe compares groups"),
        ("dropped[a] > 1", "dropped is of all rows"),
        ("miscalibrated > 1", "is a verdict, so it has no limit"),
        ("amplifies[a]", "compares groups"),
    ],
)
def test_parse_refuses(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Gate.parse(text)


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(
    st.lists(
        st.sampled_from(
            [*NAMES, ".gap", "[", "]", "*", "a", ",", '"', "'", "\\", ">", "<", "=", "1"]
        )
        | st.text(max_size=3),
        max_size=8,
    ).map("".join)
)
def test_parse_reads_or_refuses(text):
    try:
        gate = Gate.parse(text)
    except ValueError:
        return
    assert gate.name in NAMES
    assert math.isfinite(gate.limit) == bool(gate.sign)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_any_name_in_quotes(names):
    quoted = ", ".join('"' + n.replace("\\", "\\\\").replace('"', '\\"') + '"' for n in names)
    assert split_names(quoted) == tuple(names)
    gate = Gate.parse(f"ece[{quoted}] > 0.5")
    assert gate.group == tuple(names)
    group = tuple(names) if len(names) > 1 else names[0]
    assert find_group(gate.group, ["other", group]) == group


def test_find_group():
    assert find_group(["1"], [0, 1]) == 1
    assert find_group(["1.0"], [0, 1]) == 1
    assert find_group(["true"], [False, True]) is True
    # the text itself goes before the number that it could be
    assert find_group(["1.0"], ["1", "1.0"]) == "1.0"
    assert find_group(["F", "1"], [("F", 0), ("F", 1)]) == ("F", 1)
    assert find_group(["a", "b"], ["a, b", "c"]) == "a, b"
    with pytest.raises(ValueError, match="no group 'Femal'; did you mean 'Female'"):
        find_group(["Femal"], ["Female", "Male"])
    with pytest.raises(ValueError, match="there are F, old; M, old"):
        find_group(["x"], [("F", "old"), ("M", "old")])


# --- what is decided -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ece > 0.05", True),
        ("ece >= 0.05", False),
        ("ece < 0.05", True),
        ("ece <= 0.05", False),
        ("ece > 0.04", False),
        ("ece[f] > 0.05", True),
        ("ece[m] > 0.05", False),
        ("ece.gap > 0.03", False),
        ("ece.gap > 0.05", True),
        ("accuracy.gap > 0.05", False),
        ("pe > 0.2", False),
        ("pe_deterministic > 0.2", True),
        ("rows < 70", True),
        ("rows < 71", False),
        ("rows[f] < 31", False),
        ("rows[f] < 30", True),
        ("dropped > 0", True),
    ],
)
def test_figure_decides(text, holds):
    assert only(text).holds is holds


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [  # overall ECE 0.05 [0.03, 0.07]
        ("ece > 0.02", False, False),
        ("ece > 0.04", False, True),
        ("ece > 0.06", False, True),
        ("ece > 0.08", True, True),
        ("ece < 0.02", True, True),
        ("ece < 0.04", False, True),
        ("ece < 0.06", False, True),
        ("ece < 0.08", False, False),
        ("ece[m] > 0.09", False, True),  # 0.08 [0.06, 0.1]
        ("ece.gap > 0.05", False, True),  # 0.04 [0.02, 0.06]
        ("pe > 0.31", False, True),  # 0.3 [0.28, 0.32]
        ("rows < 70", True, True),  # a count is what it is
        ("rows < 71", False, False),
    ],
)
def test_interval_decides(text, strict, lenient):
    assert only(text, on_interval="strict").holds is strict
    assert only(text, on_interval="lenient").holds is lenient


def test_ends_of_an_interval():
    sure = dataclasses.replace(REPORT.intervals, overall={"ece": Interval(0.0, 0.07)})
    report = dataclasses.replace(REPORT, intervals=sure)
    assert only("ece > 0.07", report, "strict").holds
    assert not only("ece >= 0.07", report, "strict").holds
    assert only("ece > 0", report, "lenient").holds
    assert not only("ece >= 0", report, "lenient").holds


def test_texts():
    outcome = only("ece[m] > .05")
    assert outcome.where == "ece[m]"
    assert outcome.value == 0.08
    assert outcome.interval == Interval(0.06, 0.1)
    assert outcome.text == "ece[m] > 0.05 fails: 0.0800 [0.0600, 0.1000]"
    assert only("rows < 70").text == "rows < 70 passes: 70"
    # rounding must not show a figure that meets the limit as one that does not
    report = report_of_figures(overall=0.0500004)
    assert "fails: 0.0500004 [" in only("ece > 0.05", report).text


def test_each_group():
    outcomes = Gate.parse("ece[*] > 0.05").check(REPORT)
    assert [(o.where, o.holds) for o in outcomes] == [("ece[f]", True), ("ece[m]", False)]
    report = report_of_figures(groups=("*", "m"))
    assert only("ece['*'] > 0.05", report).where == "ece[*]"


def test_several_columns():
    report = report_of_figures(groups=(("F", 1), ("M", 1)))
    outcome = only("ece[M, 1] > 0.05", report)
    assert outcome.where == "ece[M, 1]"
    assert not outcome.holds


def test_names_of_groups_do_not_break_lines():
    report = report_of_figures(groups=("a\n\x1b[31mb", "m"))
    text = Gate.parse("ece[*] > 0.05").check(report)[0].text
    assert text.isprintable()


def test_verdicts():
    words = ["miscalibrated", "not enough evidence", "calibrated"]
    report = report_of_figures(groups=("a", "b", "c"), ece=(0.1, 0.1, 0.1), words=words)
    gate = Gate.parse("miscalibrated")
    for mode, expected in (
        (None, [False, True, True]),
        ("lenient", [False, True, True]),
        ("strict", [False, False, True]),
    ):
        # of all rows, and of each group
        assert [o.holds for o in gate.check(report, mode)] == [True, *expected]
        assert [o.holds for o in Gate.parse("miscalibrated[*]").check(report, mode)] == expected
    all_rows = dataclasses.replace(REPORT, verdict=verdict("miscalibrated"))
    assert [o.holds for o in gate.check(all_rows)] == [False, True, True]
    assert [o.where for o in gate.check(all_rows)][:2] == ["miscalibrated", "miscalibrated[f]"]
    # nothing passes a strict gate for lack of data
    assert "fails" in only("miscalibrated[b]", report, "strict").text
    assert only("miscalibrated[b]", report).holds
    assert only("miscalibrated[a]", report).text == ("miscalibrated[a] fails: it is miscalibrated")


@pytest.mark.parametrize(
    ("word", "shown", "holds"),
    [
        # whether the gate passes by default, strict and lenient
        ("amplifies", False, (False, False, False)),
        ("reverses", False, (False, False, False)),
        ("undefined", False, (False, False, False)),
        ("dampens", False, (True, False, True)),
        ("dampens", True, (True, True, True)),
        ("no evidence", False, (True, False, True)),
        ("no evidence", True, (True, True, True)),
        # a small amplification that is clear is one, though it is within a factor of 1.25
        ("amplifies", True, (False, False, False)),
        ("reverses", True, (False, False, False)),
    ],
)
@pytest.mark.parametrize("name", ["amplifies", "amplifies_deterministic"])
def test_amplification(name, word, shown, holds):
    kind, other = "stochastic", "deterministic"
    if name.endswith("deterministic"):
        kind, other = other, kind
    # the other kind says the opposite
    opposite = pe_verdict("amplifies" if holds[0] else "dampens", not_amplified=not shown)
    verdicts = {kind: pe_verdict(word, not_amplified=shown), other: opposite}
    report = dataclasses.replace(REPORT, pe_verdicts=verdicts)
    for mode, expected in zip((None, "strict", "lenient"), holds, strict=True):
        assert only(name, report, mode).holds is expected, mode


def test_texts_of_amplification():
    outcome = only("amplifies")
    assert outcome.text == "amplifies fails: the model amplifies"
    assert math.isnan(outcome.value)
    assert outcome.interval is None
    assert only("amplifies_deterministic").text == (
        "amplifies_deterministic passes: the model dampens"
    )
    doubted = only("amplifies_deterministic", on_interval="strict")
    assert doubted.text == (
        "amplifies_deterministic fails: the model dampens The data do not show that no ratio grows "
        "by more than a factor of 1.25."
    )


def decided(share, n, rng):
    """Labels, and probabilities and decisions that give this share of group m the label 1."""
    y, decisions = (
        np.concatenate([rng.random(n) < 0.3, rng.random(n) < own]).astype(int)
        for own in (0.5, share)
    )
    p = np.repeat([0.3, share], n)
    groups = np.repeat(["f", "m"], n)
    return {"y_true": y, "y_prob": p, "sensitive_features": groups, "y_pred": decisions}


@pytest.mark.parametrize(
    ("share", "n", "word", "holds"),
    [
        (0.5, 20_000, "no evidence", (True, True)),  # 5/3 as in the labels
        (0.5, 60, "no evidence", (True, False)),  # few rows show nothing
        (0.75, 20_000, "amplifies", (False, False)),  # 5/2
        (0.4, 20_000, "dampens", (True, True)),  # 4/3
        (0.1, 20_000, "reverses", (False, False)),  # 1/3
    ],
)
def test_amplification_of_rows(share, n, word, holds):
    report = audit(**decided(share, n, np.random.default_rng(0)), reference_group="f")
    # these are the ratios of label 1; label 0 has 5/7, which must not be farther from 1 either
    for kind, name in (("stochastic", "amplifies"), ("deterministic", "amplifies_deterministic")):
        assert report.pe_verdicts[kind].word == word
        assert only(name, report).holds is holds[0]
        assert only(name, report, "strict").holds is holds[1]
        assert only(name, report, "lenient").holds is holds[0]


# --- what is missing never passes ------------------------------------------------------------


@pytest.mark.parametrize("sign", [">", ">=", "<", "<="])
@pytest.mark.parametrize("mode", [None, "strict", "lenient"])
def test_undefined_figures_fail(sign, mode):
    nothing = dict.fromkeys(METRICS, NAN)
    report = dataclasses.replace(
        REPORT,
        overall=nothing,
        groups=dict.fromkeys(REPORT.groups, nothing),
        gaps={},
        proportional_equality={"stochastic": NAN},
    )
    for name in ("ece", "ece[f]", "ece.gap", "pe", "pe_deterministic", "log_loss"):
        for limit in (-1, 0, 1):
            outcome = only(f"{name} {sign} {limit}", report, mode)
            assert not outcome.holds
            assert "undefined" in outcome.text
            assert "nan" not in outcome.text


def test_one_group():
    report = report_of_figures(groups=("f",), ece=(0.1,), pe=NAN, pe_verdicts={})
    for text in ("ece.gap > 1", "pe > 1", "amplifies"):
        outcome = only(text, report)
        assert not outcome.holds
        assert "one group only" in outcome.text


def test_infinite_figures():
    report = dataclasses.replace(REPORT, overall={"log_loss": math.inf})
    assert not only("log_loss > 3", report).holds
    assert only("log_loss < 3", report).holds


@pytest.mark.parametrize("sure", [None, Interval(NAN, NAN)])
def test_no_interval_to_decide_by(sure):
    intervals = sure and dataclasses.replace(REPORT.intervals, overall={"ece": sure})
    report = dataclasses.replace(REPORT, intervals=intervals)
    assert only("ece > 0.5", report).holds
    for mode in ("strict", "lenient"):
        outcome = only("ece > 0.5", report, mode)
        assert not outcome.holds
        assert "no interval to decide by" in outcome.text


# --- parts -----------------------------------------------------------------------------------


def test_parts():
    parts = {
        ("2024-01",): report_of_figures(overall=0.01),
        ("2024-02",): report_of_figures(overall=0.09),
        ("2024-03",): report_of_figures(groups=("m",), ece=(0.01,), overall=0.01),
    }
    report = report_of_figures(by=parts, dropped=3)
    outcomes = Gate.parse("ece > 0.06").check(report)
    assert [o.holds for o in outcomes] == [True, True, False, True]
    assert outcomes[2].where == "ece at 2024-02"
    outcomes = Gate.parse("ece[f] > 0.06").check(report)
    assert [o.holds for o in outcomes] == [True, True, True, False]
    assert "no rows of this group" in outcomes[3].text
    # rows are left out before they are split
    (outcome,) = Gate.parse("dropped > 0").check(report)
    assert not outcome.holds
    assert [o.where for o in Gate.parse("ece[*] > 1").check(report)][-1] == "ece[m] at 2024-03"
    with pytest.raises(ValueError, match="no group 'x'"):
        Gate.parse("ece[x] > 0.06").check(report)
    # each part has its own verdicts
    kept = {"stochastic": pe_verdict("no evidence", not_amplified=True)}
    fine = dataclasses.replace(REPORT, pe_verdicts=kept)
    reverses = dataclasses.replace(REPORT, pe_verdicts={"stochastic": pe_verdict("reverses")})
    report = dataclasses.replace(fine, by={("a",): fine, ("b",): reverses})
    outcomes = Gate.parse("amplifies").check(report, "strict")
    assert [(o.where, o.holds) for o in outcomes] == [
        ("amplifies", True),
        ("amplifies at a", True),
        ("amplifies at b", False),
    ]


def test_gates_on_parts_fail_less_often_than_on_the_part_alone():
    # a part shares the error rate, so its intervals are wider and a lenient gate needs more
    rng = np.random.default_rng(5)
    n = 1_200
    p = rng.uniform(0.1, 0.9, n)
    y = (rng.random(n) < np.clip(p - 0.05, 0, 1)).astype(int)
    group, part = rng.choice(["f", "m"], n), np.arange(n) % 6
    split = audit(y, p, sensitive_features=group, by=part, tolerance=0.0)
    alone = audit(y[part == 0], p[part == 0], sensitive_features=group[part == 0], tolerance=0.0)
    own = split.by[0,]
    assert own.groups == alone.groups
    for g in "fm":
        wide, narrow = own.intervals.groups[g]["ece"], alone.intervals.groups[g]["ece"]
        assert wide.low <= narrow.low
        assert wide.high >= narrow.high
        limit = narrow.high
        (passes,) = Gate.parse(f"ece[{g}] > {limit}").check(alone, "strict")
        fails = Gate.parse(f"ece[{g}] > {limit}").check(split, "strict")[1]
        assert (passes.holds, fails.holds) == (True, False)
