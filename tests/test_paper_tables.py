"""Tables, claims and figures: against loops over the raw rows, and where the truth is known."""

import collections
import copy
import csv
import dataclasses
import io
import math
import re
import statistics

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import oracle_paper as oracle
from equipoise.datasets import load
from equipoise.paper import (
    _chance as chances,
)
from equipoise.paper import (
    _evidence as evidence,
)
from equipoise.paper import (
    _figures as figures,
)
from equipoise.paper import (
    _floors as floors,
)
from equipoise.paper import (
    _results as results,
)
from equipoise.paper import (
    _tables as tables,
)
from equipoise.paper import rich_table
from equipoise.paper._claims import CLAIMS, claims_tables, mean_verdict, verdict
from equipoise.paper._digest import Digest
from equipoise.paper._evidence import Case
from equipoise.paper._published import paper_name, published
from equipoise.paper._render import as_csv, markdown, shown_rows
from equipoise.paper._tables import _numbers as numbers
from equipoise.paper._tables._numbers import means, relative
from equipoise.paper._tables._table import Table
from equipoise.paper._tables._volumes import share_of
from equipoise.search import mean_interval
from paper_data import SWEEP

OTHERS = [t for t in SWEEP.loss if t != "ce"]
REPLICAS = [t for t in OTHERS if t != "mmce-w"]


def near(values):
    return pytest.approx(values, rel=1e-5, abs=1e-7, nan_ok=True)


def cells(table, row=0):
    """Return a row by the names of its columns, which must be distinct."""
    assert len(set(table.header)) == len(table.header)
    return dict(zip(table.header, table.rows[row], strict=True))


def paired(before, after):
    """Both means, the change in percent of the first, and its interval."""
    before, after = np.array(before), np.array(after)
    change = 100.0 * (before - after) / before.mean()
    return before.mean(), after.mean(), change.mean(), interval(change)


def interval(values):
    """Nadeau and Bengio's 95% interval: splits of 6:1:1 share their training rows."""
    n = len(values)
    error = statistics.stdev(map(float, values)) * math.sqrt(1 / n + 1 / 6)
    half = stats.t.ppf(0.975, n - 1) * error
    return np.mean(values) - half, np.mean(values) + half


# --- Tables 2 and 3 ---------------------------------------------------------------------------


def test_table2(digest):
    row = cells(tables.statistics([digest]))
    data = load("german")
    assert row["rows (paper)"] == row["rows (ours)"] == len(data.y)
    assert row["columns (paper)"] == 20
    assert row["columns (ours)"] == data.X.shape[1]
    assert row["Pr[A=1] (paper)"] == 0.85
    assert row["Pr[A=1] (ours)"] == near(np.mean(data.group == 1))
    assert row["Pr[Y=1|A=0] (ours)"] == near(np.mean(data.y[data.group == 0]))
    assert row["Pr[Y=1|A=1] (ours)"] == near(np.mean(data.y[data.group == 1]))
    assert row["PE floor"] == digest.facts["floors"]["model"]
    assert row["PE of the labels"] == digest.facts["floors"]["labels"]
    old = dataclasses.replace(
        digest, facts={k: v for k, v in digest.facts.items() if k != "floors"}
    )
    assert tables.statistics([old]).rows[0][-2:] == [None, None]


def test_infinite_splits_are_named(digest):
    facts = digest.facts | {"floors": digest.facts["floors"] | {"infinite": 0.022}}
    table = tables.statistics([dataclasses.replace(digest, facts=facts)])
    assert "are left out (2.2% on german)" in table.notes[0]
    assert "are left out. A PE" in tables.statistics([digest]).notes[0]


# --- PE floors --------------------------------------------------------------------------------


def test_a_model_that_is_fair_in_the_population():
    data = load("german")
    prob = floors.population_fair(data)
    rates = [[np.mean(data.y[data.group == g] == k) for k in (0, 1)] for g in (0, 1)]
    whole = oracle.proportional_equality(np.stack([1 - prob, prob], 1), data.group, rates)
    assert whole < 1e-9
    # neither a constant nor the labels
    assert 0.1 < prob.std() < 0.4
    assert np.mean((prob > 0.5) == data.y) > 0.72


def test_pe_of_random_splits_is_that_of_plain_loops():
    data = load("german")
    rng = np.random.default_rng(3)
    prob = np.stack([rng.random(len(data.y)), data.y.astype(float)])
    found = floors.split_pe(prob, data, 20, 5)
    order = np.random.default_rng(5)
    for split in range(20):
        rows = order.permutation(1000)
        test, train = rows[:125], rows[250:]
        rates = [
            [np.mean([data.y[i] == k for i in train if data.group[i] == g]) for k in (0, 1)]
            for g in (0, 1)
        ]
        for model in (0, 1):
            soft = [[1 - prob[model, i], prob[model, i]] for i in test]
            expected = oracle.proportional_equality(soft, data.group[test], rates)
            assert found[model, split] == near(expected)


def test_pe_of_labels_without_a_class_is_infinite():
    data = load("german")
    never = np.where(data.group == 0, 0.0, 0.5)[None]
    assert np.isinf(floors.split_pe(never, data, 3, 0)).all()


def test_floors(digest):
    assert floors.pe_floors(load("german"), splits=2000) == digest.facts["floors"]
    found = digest.facts["floors"]
    # the labels of five splits say .536, which is luck; others found .12 for the model
    assert found["labels"] == pytest.approx(0.28, abs=0.02)
    assert found["model"] == pytest.approx(0.12, abs=0.02)
    assert (found["infinite"], found["splits"]) == (0.0, 2000)


def test_table3_as_published(digest, raw):
    row = cells(tables.temperature_scaling([digest]))
    assert (row["%fair (paper)"], row["%calib. (paper)"]) == (0.41, 0.33)
    names = {"pe": "%fair ({})", "ece15": "%calib. ({}, 15 bins)", "ece10": "%calib. ({}, 10 bins)"}
    for metric, name in names.items():
        exact, recipe = [], []
        for i, split in enumerate(raw.splits):
            rows = raw.own("ce", split)[0]
            before = min(oracle.measured(r, "test", metric) for r in rows)
            after = min(oracle.measured(r, "test", metric, "group") for r in rows)
            exact.append(100 * (before - after) / before)
            own = slice(i * SWEEP.max_epochs, (i + 1) * SWEEP.max_epochs)
            before, after = (
                min(map(float, digest.recipe[f"test{how}_{metric}"][own]))
                for how in ("", "_recipe")
            )
            recipe.append(100 * (before - after) / before)
        assert row[name.format("exact")] == near(np.mean(exact))
        assert row[name.format("recipe")] == near(np.mean(recipe))


def test_table3_validated(digest, raw):
    row = cells(tables.temperature_scaling_validated([digest]))
    for objective, metric, name in (("pe", "pe", "PE"), ("ece", "ece15", "ECE")):
        found = []
        for split in raw.splits:
            pair = [
                raw.best("ce", split, "validated", objective, calibration)
                for calibration in ("none", "group")
            ]
            if all(pair):
                found.append(
                    [
                        oracle.measured(best[1], "test", metric, calibration)
                        for best, calibration in zip(pair, ("none", "group"), strict=True)
                    ]
                )
        before, after, change, span = paired(*zip(*found, strict=True))
        assert row[f"{name} before"] == near(before)
        assert row[f"{name} after"] == near(after)
        assert row[f"{name} change %"] == near(change)
        assert row[f"{name} 95% interval"] == near(span)
        assert row["splits"] == len(found)
    assert row["PE floor"] == digest.facts["floors"]["model"]


# --- Tables 4 to 8 ----------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["mixed", "point", "minimum"])
@pytest.mark.parametrize("name", oracle.TABLES)
def test_as_published(digest, raw, name, baseline):
    every = tables.all_published([digest], name, baseline)
    assert [row[:2] for row in every.rows] == [["german", t.upper()] for t in OTHERS]
    expected, controls = {}, {}
    for i, technique in enumerate(OTHERS):
        row, runs = cells(every, i), raw.budget(technique)
        assert row["runs"] == runs
        for start, which, into in (("", technique, expected), ("control ", "ce", controls)):
            seeds = raw.changes(name, which, baseline, runs)
            into[technique] = [oracle.mean(column) for column in zip(*seeds, strict=True)]
            finite = [
                [v for v in column if not math.isnan(v)] for column in zip(*seeds, strict=True)
            ]
            middle = [statistics.median(v) if v else math.nan for v in finite]
            for k, what in enumerate(("%fair", "%calib.", "%acc.")):
                assert row[start + what] == near(into[technique][k])
                assert row[f"{start}{what} (median)"] == near(middle[k])
            ratio = product([1 - v / 100 for v in finite[0]])
            assert row[f"{start}PE ratio"] == near(ratio)
            if name in ("table5", "table8"):
                into[technique][0] = ratio
    table = tables.optimised([digest], name, baseline)
    row = cells(table)
    theirs, *printed = published()[name]["german"]
    best = min(REPLICAS, key=lambda t: raw.least(name, t))
    ours = "ours, exact temperatures" if name in ("table7", "table8") else "ours"
    assert row["technique (paper)"] == theirs.upper()
    assert row[f"technique ({ours})"] == best.upper()
    same = "mmce-w*" if theirs == "mmce-w" else theirs
    first = "%fair"
    if name in ("table5", "table8"):
        first, printed[0] = "PE ratio", 1 - printed[0] / 100
    for i, what in enumerate((first, "%calib.", "%acc.")):
        assert row[f"{what} (paper)"] == near(printed[i])
        assert row[f"{what} ({ours})"] == near(expected[best][i])
        assert row[f"{what} (control)"] == near(controls[best][i])
        assert row[f"{what} ({ours}, the paper's technique)"] == near(expected[same][i])
    assert tables.BASELINES[baseline] in table.notes[0]
    assert table.notes[1].startswith("Control: cross-entropy re-run as often as our technique")
    assert ("a reading of ours" in str(table.notes)) == (name in ("table7", "table8"))


def product(ratios):
    """Return the geometric mean, nan of none."""
    return math.prod(ratios) ** (1 / len(ratios)) if ratios else math.nan


def test_how_far_the_recipe_moves(digest):
    note = tables.optimised([digest], "table7").notes[-1]
    recipe, said = digest.recipe, []
    temperatures = [*recipe["temperature_0"], *recipe["temperature_1"]]
    assert f"within {min(temperatures):.3f} to {max(temperatures):.3f}" in note
    for metric in ("pe", "ece15"):
        pairs = zip(recipe[f"test_{metric}"], recipe[f"test_recipe_{metric}"], strict=True)
        said.append(statistics.median(abs(float(b) / float(a) - 1) for a, b in pairs if a > 0))
    pe, ece = (f"{100 * v:.1f}" for v in said)
    assert f"PE by less than {pe} to {pe}% and ECE by less than {ece} to {ece}%" in note
    best = cells(tables.temperature_scaling([digest]))["%fair (recipe)"]
    assert f"changes by {best:+.1f} to {best:+.1f}% (Table 3)" in note
    nothing = {k: np.zeros_like(v) if k.startswith("test") else v for k, v in recipe.items()}
    still = dataclasses.replace(digest, recipe=nothing)
    assert "nan" in tables.optimised([still], "table8").notes[-1]


def test_the_baselines_differ(digest):
    for name in ("table4", "table5"):
        found = [str(tables.all_published([digest], name, b).rows) for b in tables.BASELINES]
        assert len(set(found)) == len(found) - (name == "table4")  # its point is the minimum
    with pytest.raises(ValueError, match="unknown baseline 'best'; there are mixed, point"):
        tables.published_change(digest, "table4", "mmce", "best")


@pytest.mark.parametrize("name", oracle.TABLES)
def test_validated(digest, raw, name):
    _, calibration = oracle.TABLES[name]
    every = tables.all_validated([digest], name)
    pe = "pe_deterministic" if name == "table6" else "pe"
    title = "det. PE" if name == "table6" else "PE"
    whole = {}
    for i, technique in enumerate(OTHERS):
        row, pairs = cells(every, i), raw.pairs(name, technique)
        assert row["technique"] == paper_name(technique, calibration)
        assert row["runs"] == raw.budget(technique)
        assert row["splits"] == len(pairs)
        if not pairs:
            assert set(every.rows[i][3:-1]) == {None}
            continue
        for metric, what in ((pe, title), ("ece15", "ECE")):
            before = [oracle.measured(c, "test", metric) for _, c, _ in pairs]
            after = [oracle.measured(r, "test", metric, calibration) for _, _, (_, r) in pairs]
            names = ("control", "technique", "change %", "95% interval")
            got = [row[f"{what} {n}"] for n in names]
            assert got[:2] == near([np.mean(before), np.mean(after)])
            if len(pairs) == 1:
                assert got[3] is None
            elif np.isfinite([before, after]).all():
                expected = paired(before, after)
                assert got[2] == near(expected[2])
                assert got[3] == near(expected[3])
        for metric in ("accuracy", "dead"):
            control = np.mean([c[f"test_{metric}"] for _, c, _ in pairs])
            own = np.mean([r[f"test_{metric}"] for _, _, (_, r) in pairs])
            assert [row[f"{metric} control"], row[f"{metric} technique"]] == near([control, own])
        if name == "table6":
            assert row["PE of the labels"] == digest.facts["floors"]["labels"]
        else:
            assert row["PE floor"] == digest.facts["floors"]["model"]
        if len(pairs) == len(raw.splits):
            whole[technique] = np.mean([score for _, _, (score, _) in pairs])
    assert 0 < len(whole) < len(OTHERS), "some are not there on every split"
    best = min(whole, key=whole.get)
    shown_row = tables.validated([digest], name).rows[0]
    assert repr(shown_row) == repr(every.rows[OTHERS.index(best)])


def test_volumes(digest, raw):
    table = tables.volumes([digest])
    for i, technique in enumerate(SWEEP.loss):
        row = cells(table, i)
        assert row["technique"] == technique.upper()
        for calibration, name in (("none", "as published"), ("group", "as published, hybrid")):
            if raw.frontier(technique, "published", calibration):
                assert row[name] == near(raw.published_volume(technique, calibration))
            else:
                assert row[name] is None, "nothing within the slack is not the same as 0"
        budget = raw.budget(technique)
        control = np.array(raw.volumes("ce", "none", budget))
        assert row["control, validated"] == near(control.mean())
        for calibration, name, short in (
            ("none", "validated", "validated"),
            ("group", "hybrid, validated", "hybrid"),
        ):
            own = np.array(raw.volumes(technique, calibration, budget))
            assert row[name] == near(own.mean())
            difference = own - control
            found = row[f"{short} minus control"], row[f"{short} minus control 95% interval"]
            if (technique, calibration) == ("ce", "none"):
                assert found == (None, None)
            elif difference.std() > 0:
                assert found[0] == near(difference.mean())
                assert found[1] == near(interval(difference))
            else:
                assert found == (0.0, (0.0, 0.0))
    some = [row[i] is not None and row[i] > 0 for row in table.rows for i in (2, 3, 4, 5, 8)]
    assert 0.2 < np.mean(some) < 0.8


def test_volume_of_many_points():
    rng = np.random.default_rng(0)
    for reference in ([0.5, 0.5], [1.0, 0.3], [2.0, 2.0]):
        points = rng.random((12, 2))
        assert share_of(points, reference) == near(oracle.share(points.tolist(), reference))
    assert share_of(points[:0], reference) == 0.0
    for reference in ([0.0, 1.0], [math.nan, 1.0], [math.inf, 1.0]):
        assert math.isnan(share_of(points, reference))


# --- numbers that are not there ---------------------------------------------------------------


def test_interval_of_few_or_infinite_values():
    for values in ([], [1.0], [1.0, math.inf], [1.0, math.nan]):
        assert mean_interval(np.array(values)) is None
    expected = stats.t.interval(0.95, 2, loc=2.0, scale=stats.sem([1.0, 2.0, 3.0]))
    assert mean_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx(expected)


def test_changes_of_zero_and_infinite_values():
    nan, inf = math.nan, math.inf
    for before in ([0.0, 0.0], [1.0, inf], [nan, nan], []):
        found = relative(np.array(before), np.ones(len(before)))
        assert np.isnan(found).all()
        assert len(found) == np.sum(~np.isnan(before))
    found = relative(np.array([1.0, 3.0, nan]), np.array([0.5, nan, 1.0]))
    assert found.tolist() == [50.0]
    assert relative(np.array([1.0, 3.0]), np.array([1.0, inf])).tolist() == [0.0, -inf]
    assert means(np.array([[1.0, nan, 2.0], [3.0, nan, nan]])) == near([2.0, nan, 2.0])
    assert math.isnan(numbers.paired(np.array([1.0, 3.0]), np.array([1.0, inf]))[2])
    assert math.isnan(numbers.mean_ratio(np.array([nan])))
    assert numbers.mean_ratio(np.array([100.0, -50.0])) == 0.0


def test_p_values_belong_to_their_intervals():
    rng = np.random.default_rng(0)
    for n in (2, 3, 5):
        values = rng.normal(size=n)
        t = values.mean() / (statistics.stdev(values) * math.sqrt(1 / n + 1 / 6))
        assert numbers.split_p(values) == near(2 * stats.t.sf(abs(t), n - 1))
        # at the edge of the interval, p is .05
        low, _ = numbers.split_interval(values)
        assert low == near(interval(values)[0])
        assert numbers.split_p(values - low) == near(0.05)
    for values in ([], [1.0], [1.0, math.inf]):
        assert numbers.split_p(np.array(values)) is None
    assert numbers.split_p(np.zeros(3)) == 1.0
    assert numbers.split_p(np.ones(3)) == 0.0


# --- constructed digests ----------------------------------------------------------------------

TECHNIQUES = ("ce", "ls", "fl", "flsd", "dca", "mdca", "mmce", "mmce-w", "mmce-w*")


def construct(
    better=(),
    worse=(),
    *,
    after=None,
    dataset="german",
    noise=0.02,
    hybrid=1.0,
    recipe=0.9,
    seed=0,
):
    """Return a digest of one run per technique and split, whose PE and ECE are given.

    Cross-entropy and the rest have a PE of 1 and an ECE of 0.2 on test and validation, those in
    `better` (with temperatures `after`, where given) a twentieth, those in `worse` half as much
    again. Temperatures multiply by `hybrid`, those of the recipe by `recipe`. `noise` is that of
    the splits.
    """
    rng = np.random.default_rng(seed)
    seeds = [0, 1, 2, 3, 4]
    choices, frontiers = [], []
    for t in TECHNIQUES:
        for s in seeds:
            plain = [base * (1 + noise * rng.normal()) for base in (1.0, 0.2)]
            for calibration, times in (("none", 1.0), ("group", hybrid)):
                best = better if calibration == "none" or after is None else after
                factor = 0.05 if t in best else 1.5 if t in worse else 1.0
                pe, ece = (factor * value for value in plain)
                row = {
                    "loss": t,
                    "rho": np.nan,
                    "lam": np.nan,
                    "split_seed": s,
                    "seed": s,
                    "epoch": 1,
                    "test_accuracy": 0.8,
                    "test_pe": pe * times,
                    "test_pe_deterministic": pe * times,
                    "test_ece15": ece * times,
                    "test_ece10": ece * times,
                    "test_dead": 0.0,
                }
                for reading in ("published", "validated"):
                    scores = {"pe": pe, "ece": ece, "pe_deterministic": pe, "balanced": pe + ece}
                    scores["accuracy"] = 0.2
                    choices += [
                        {"reading": reading, "objective": o, "calibration": calibration}
                        | {"score": score * times}
                        | row
                        for o, score in scores.items()
                    ]
                    frontiers.append(
                        row
                        | {"reading": reading, "calibration": calibration, "controls": 1}
                        | {"val_pe": pe * times, "val_ece15": ece * times}
                    )
    split = {
        "reference": {"test": [1.2, 0.24], "val": [1.2, 0.24]},
        "best_ce": {
            c: {"pe": 1.0 * f, "ece15": 0.2 * f, "ece10": 0.2 * f}
            for c, f in (("none", 1.0), ("group", hybrid))
        },
        "label_oracle_pe": 0.3,
        "best_val_accuracy": 0.8,
    }
    steps = {"split_seed": np.array(seeds), "epoch": np.ones(5)}
    steps |= {f"temperature_{g}": np.linspace(0.96, 1.04, 5) for g in (0, 1)}
    for metric, base in (("pe", 1.0), ("ece15", 0.2), ("ece10", 0.2)):
        steps[f"test_{metric}"] = np.full(5, base)
        steps[f"test_recipe_{metric}"] = np.full(5, base * recipe)
    facts = {
        "dataset": dataset,
        "sweep": {"seeds": seeds, "loss": list(TECHNIQUES), "max_epochs": 1},
        "runs": dict.fromkeys(TECHNIQUES, 1),
        "data": {"rows": 9, "columns": 2, "a1": 0.5, "y1_a0": 0.5, "y1_a1": 0.5},
        "floors": {"model": 0.3, "labels": 0.5, "infinite": 0.0, "splits": 2000},
        "best_test_accuracy": 0.8,
        "reference": [1.2, 0.24],
        "splits": {str(s): split for s in seeds},
        "dead": dict.fromkeys(TECHNIQUES, 0.0),
        "infinite_pe_deterministic": dict.fromkeys(TECHNIQUES, 0.0),
        "diverged": 3,
        "versions": {"torch": "0"},
    }
    return Digest(columns(choices), columns(frontiers), steps, facts)


def columns(rows):
    found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in found.items()}


def verdicts(digests):
    """Return claim to (as published, validated)."""
    table = claims_tables(digests)[0][1]
    assert len(set(table.header)) == len(table.header)
    return {row[0]: (row[1], row[3]) for row in table.rows}


def several(**options):
    names = published()["table2"]
    return [construct(dataset=name, seed=i, **options) for i, name in enumerate(names)]


TRADE = "Some technique always has a better trade-off than cross-entropy (hypervolume)"
PAIRS = "MMCE and MMCE-W have the best trade-off on most datasets (hypervolume)"
FAIREST = "MMCE and MMCE-W are best at fairness on 5 of 7"
FOCAL = "FL has a worse trade-off than cross-entropy on most datasets"
GAIN = (
    "Stochastic PE-fairness can be improved substantially by sacrificing some amount of ECE and "
    "Accuracy"
)
CALIBRATION = "ECE is improved by optimising for it (Table 5)"
HURT = "Optimizing solely for ECE definitely hurts the fairness of the model"
DCA = "DCA performs the best for 5 datasets (calibration)"
SCALING = "Dual temperature scaling improves ECE on all 7 datasets (15 bins)"
SCALING_PE = "Dual temperature scaling improves PE on 4 of 7"
HYBRID = "Hybrids have a better trade-off in most cases (named are the techniques that lean so)"
KEEP, KEEP_ECE = (f"Hybrids keep the best technique for {w}" for w in ("fairness", "calibration"))
HOLDS, PART, NOT, OPEN = "holds", "holds in part", "does not hold", "not shown"
LUCK = "at chance level"


def test_what_is_clearly_better_holds():
    found = verdicts(several(better=("mmce", "mmce-w*"), worse=("fl", "flsd"), hybrid=0.5))
    others = {
        HURT: (NOT, NOT),  # PE falls with ECE here
        DCA: (NOT, NOT),
        # one of seven runs is better than another nearly always, and so are two of seven the best
        TRADE: (LUCK, HOLDS),
        # FL has one run here, as cross-entropy has
    }
    for claim, both in found.items():
        assert both == others.get(claim, (HOLDS, HOLDS)), claim


def test_what_is_clearly_worse_does_not_hold():
    found = verdicts(several(better=("fl", "flsd"), worse=("mmce",), hybrid=1.5, recipe=1.1))
    others = {
        TRADE: (LUCK, HOLDS),  # FL is a technique too
        GAIN: (HOLDS, HOLDS),
        CALIBRATION: (HOLDS, HOLDS),
        KEEP: (HOLDS, HOLDS),
        KEEP_ECE: (HOLDS, HOLDS),
    }
    for claim, both in found.items():
        assert both == others.get(claim, (NOT, NOT)), claim


def test_a_control_that_gains_as_much_leaves_chance():
    """Cross-entropy has a second run as good as the best technique: nothing is left of the gain."""
    digests = several(better=("dca",))
    assert verdicts(digests)[GAIN] == (HOLDS, HOLDS)
    found = []
    for d in digests:
        d.facts["runs"] = dict.fromkeys(TECHNIQUES, 2)
        rows = {k: v[d.choices["loss"] == "dca"].copy() for k, v in d.choices.items()}
        rows["loss"][:] = "ce"
        rows["seed"] = rows["split_seed"] + 1000
        both = {k: np.concatenate([v, rows[k]]) for k, v in d.choices.items()}
        found.append(dataclasses.replace(d, choices=both))
    assert verdicts(found)[GAIN] == (LUCK, OPEN)
    text = {row[0]: row for row in claims_tables(found)[0][1].rows}[GAIN]
    assert re.match(r"mean (\+9\d\.\d%) .*, control \1, more than the control [+-]0\.0%", text[2])


def test_optimising_ece_may_hurt():
    """The technique that is best at ECE has ten times cross-entropy's PE."""
    digests = several(better=("dca",))
    for d in digests:
        rows = (d.choices["loss"] == "dca") & (d.choices["objective"] == "ece")
        d.choices["test_pe"][rows] *= 200
    found = verdicts(digests)
    assert found[HURT] == (LUCK, HOLDS), "by construction, against the least PE over epochs"
    assert found[DCA] == (HOLDS, HOLDS)


def test_what_is_noise_does_not_hold_validated():
    """All techniques are cross-entropy, so the best of seven on the test set is luck."""
    found = verdicts(several(noise=0.4))
    assert found[TRADE][0] == LUCK
    for claim in (TRADE, FOCAL, HYBRID, HURT, DCA):
        assert found[claim][1] in (OPEN, NOT), claim


@pytest.mark.slow
@pytest.mark.parametrize(("cases", "share"), [(7, 1.0), (7, 4 / 7), (7, 5 / 7), (56, 4 / 7)])
def test_noise_is_hardly_ever_taken_for_a_finding(cases, share):
    rng = np.random.default_rng(0)
    every = collections.Counter()
    for _ in range(400):
        tested = evidence.corrected([evidence.difference(v) for v in rng.normal(size=(cases, 5))])
        every[verdict(tested, share)] += 1
        every["some"] += any(case.true is not None for case in tested)
    assert every[HOLDS] == every[PART] == 0
    assert every["some"] <= 0.05 * 400, "one case that is wrong, of all: at most 1 in 20"
    # for the worst of shares, one false case of seven is enough
    assert every[OPEN] >= 0.95 * 400


def test_holm_over_the_cases_of_a_claim():
    """One of seven intervals excludes 0, which it would once in three times without any effect."""
    cases = [Case("", None, False, p) for p in (0.03, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9)]
    assert [c.true for c in evidence.corrected(cases)] == [None] * 7
    cases[0] = Case("", None, False, 0.005)
    assert [c.true for c in evidence.corrected(cases)] == [False] + [None] * 6
    # the second is compared with six, not seven
    cases[1] = Case("", None, True, 0.05 / 6 - 1e-9)
    assert [c.true for c in evidence.corrected(cases)][:2] == [False, True]
    assert evidence.corrected([]) == []


def test_one_split_shows_no_more_than_a_sign():
    d = construct(better=("mmce", "mmce-w*"), hybrid=0.5)
    d.facts["sweep"]["seeds"] = [0]
    found = verdicts([d])
    assert found[TRADE] == (LUCK, OPEN)
    assert found[GAIN] == (OPEN, OPEN), "a mean over one dataset has no interval"
    assert found[SCALING] == (LUCK, OPEN)


@pytest.mark.parametrize(
    ("true", "undecided", "cases", "share", "expected"),
    [
        (7, 0, 7, 1.0, HOLDS),
        (6, 0, 7, 1.0, PART),
        (4, 3, 7, 1.0, PART),
        (3, 4, 7, 1.0, OPEN),
        (3, 3, 7, 1.0, NOT),
        (0, 7, 7, 1.0, OPEN),
        (0, 6, 7, 1.0, NOT),
        (4, 0, 7, 4 / 7, HOLDS),
        (3, 0, 7, 4 / 7, PART),
        (2, 0, 7, 4 / 7, PART),
        (1, 3, 7, 4 / 7, OPEN),
        (1, 2, 7, 4 / 7, NOT),
        (5, 0, 7, 5 / 7, HOLDS),
        (4, 0, 7, 5 / 7, PART),
        (1, 0, 1, 4 / 7, HOLDS),
        (0, 1, 1, 4 / 7, OPEN),
        (0, 0, 1, 4 / 7, NOT),
        (2, 0, 2, 5 / 7, HOLDS),
        (1, 0, 2, 5 / 7, PART),
    ],
)
def test_verdict(true, undecided, cases, share, expected):
    states = [True] * true + [None] * undecided
    states += [False] * (cases - len(states))
    # which way a case leans decides nothing
    for leaning in (True, False):
        assert verdict([Case("", state, leaning) for state in states], share) == expected


@pytest.mark.parametrize(
    ("true", "cases", "share", "chance", "expected"),
    [
        (5, 7, 4 / 7, 0.5, LUCK),  # 29 of 128
        (7, 7, 4 / 7, 0.5, HOLDS),  # 1 of 128
        (6, 7, 4 / 7, 0.5, LUCK),  # 8 of 128
        (6, 7, 1.0, 0.5, NOT),
        (3, 7, 5 / 7, 2 / 7, NOT),
        (5, 7, 1.0, 1 / 7, PART),
        (7, 7, 1.0, 1.0, LUCK),
    ],
)
def test_a_count_at_the_level_of_chance_is_no_finding(true, cases, share, chance, expected):
    states = [Case("", i < true, i < true) for i in range(cases)]
    assert verdict(states, share, [chance] * cases) == expected
    tail = stats.binom.sf(true - 1, cases, chance)
    assert chances.at_least(true, [chance] * cases) == near(tail)


def test_chances(digest, raw):
    runs = {t: raw.budget(t) for t in REPLICAS}
    whole = sum(runs.values())
    assert (runs["ls"], runs["mmce"], whole) == (2, 4, 3 * 2 + 4 * 4)
    own = (runs["mmce"] + runs["mmce-w*"]) / whole
    assert chances.leading_by_chance(digest, evidence.PAIRWISE) == near(own)
    assert chances.leading_by_chance(digest, ("dca",)) == near(4 / 22)
    assert chances.same_by_chance(digest) == near(sum((n / whole) ** 2 for n in runs.values()))
    assert chances.same_by_chance_validated(digest) == 1 / 8
    assert chances.beaten_by_chance(digest) == near(22 / 23)
    assert chances.beating_by_chance(digest, "fl") == near(1 / 3)


def test_a_difference_has_the_p_value_of_its_interval():
    for values, true, leaning in (
        ([1.0, 1.1, 0.9], True, True),
        ([1.0, -0.9, 0.2], None, True),
        ([-1.0, -1.1, -0.9], False, False),
        ([0.0, 0.0, 0.0], False, False),
        ([1.0], None, True),
        ([], False, False),
        ([math.nan, 1.0], None, False),
    ):
        (case,) = evidence.corrected([evidence.difference(np.array(values))])
        assert (case.true, case.leaning) == (true, leaning), values


# --- claims on the small sweep ----------------------------------------------------------------


def counted(digest, text):
    """Return (true, leaning, cases, labels) as published and validated."""
    (claim,) = [c for c in CLAIMS if c.text == text]
    found = []
    for cases in (claim.published(digest), evidence.corrected(claim.validated(digest))):
        found.append((sum(c.true is True for c in cases), sum(c.leaning for c in cases)))
        found[-1] += (len(cases),)
        found[-1] += (" ".join(c.label for c in cases),)
    return found


def sign(values):
    """Return whether the mean of values is above 0 beyond its interval, and at all."""
    return int(interval(values)[0] > 0), int(np.mean(values) > 0)


def test_claim_of_a_better_trade_off(digest, raw):
    was, should = counted(digest, TRADE)
    volumes = {t: raw.published_volume(t) for t in REPLICAS}
    best = max(volumes, key=volumes.get)
    beaten = int(volumes[best] > raw.published_volume("ce"))
    assert was[:3] == (beaten, beaten, 1)
    assert was[3].startswith(best.upper())
    val = {t: np.mean(raw.volumes(t, "none", read="val")) for t in OTHERS}
    best = max(val, key=val.get)
    control = raw.volumes("ce", "none", raw.budget(best))
    difference = np.array(raw.volumes(best, "none")) - control
    assert should[:3] == (*sign(difference), 1)
    assert f"{best.upper()} minus cross-entropy {difference.mean():+.2f}" in should[3]


def test_claim_of_the_best_trade_off(digest, raw):
    was, should = counted(digest, PAIRS)
    volumes = {t: raw.published_volume(t) for t in REPLICAS}
    assert was[3] == max(volumes, key=volumes.get).upper()
    volumes = {t: raw.volumes(t, "none") for t in OTHERS}
    own = max((t for t in OTHERS if t.startswith("mmce")), key=lambda t: np.mean(volumes[t]))
    volumes["ce"] = raw.volumes("ce", "none", raw.budget(own))
    rest = [t for t in volumes if not t.startswith("mmce")]
    other = max(rest, key=lambda t: np.mean(volumes[t]))
    difference = np.array(volumes[own]) - volumes[other]
    assert should[:3] == (*sign(difference), 1)
    assert should[3].startswith(f"{own.upper()} minus {other.upper()} {difference.mean():+.2f} [")


@pytest.mark.parametrize(
    ("text", "name", "metric", "start"),
    [(FAIREST, "table4", "pe", "mmce"), (DCA, "table5", "ece15", "dca")],
)
def test_claim_of_the_best_technique(digest, raw, text, name, metric, start):
    was, should = counted(digest, text)
    least = {t: raw.least(name, t) for t in REPLICAS}
    assert was[3] == min(least, key=least.get).upper()
    read, control = read_on_test(raw, name, metric)
    own = min(
        (t for t in read if t.startswith(start)), key=lambda t: np.mean(read[t]), default=None
    )
    if own is None:
        assert should == (0, 0, 1, evidence.NOTHING.label)
        return
    read["ce"] = control[own]
    other = min((t for t in read if not t.startswith(start)), key=lambda t: np.mean(read[t]))
    change = 100 * (read[other] - read[own]) / np.mean(read[other])
    assert should[:3] == (*sign(change), 1)
    assert should[3].startswith(f"{own.upper()} against {other.upper()} {change.mean():+.2f}% [")


def read_on_test(raw, name, metric):
    """Return the test values of each technique's choices and of their controls, on every split."""
    read, control = {}, {}
    for t in OTHERS:
        pairs = raw.pairs(name, t)
        if len(pairs) == len(raw.splits):
            how = oracle.TABLES[name][1]
            read[t] = [oracle.measured(row, "test", metric, how) for _, _, (_, row) in pairs]
            control[t] = [oracle.measured(row, "test", metric, "none") for _, row, _ in pairs]
    return tuple({t: np.array(v) for t, v in found.items()} for found in (read, control))


def test_claim_of_the_same_ranking(digest, raw):
    """Hybrids keep the best, or it is clearly worse among them, or that is open."""
    for what, plain, hybrid, metric in (
        ("fairness", "table4", "table7", "pe"),
        ("calibration", "table5", "table8", "ece15"),
    ):
        was, should = counted(digest, f"Hybrids keep the best technique for {what}")
        least = [
            min(REPLICAS, key=lambda t, name=name: raw.least(name, t)) for name in (plain, hybrid)
        ]
        assert was[:3] == (int(least[0] == least[1]),) * 2 + (1,)
        alone, both = (read_on_test(raw, name, metric)[0] for name in (plain, hybrid))
        first, second = (min(v, key=lambda t, v=v: np.mean(v[t])) for v in (alone, both))
        assert should[:3] == (int(first == second),) * 2 + (1,)
        if first != second:
            assert should[3].startswith(f"{first.upper()} becomes {second.upper()} ")


@pytest.mark.slow
def test_a_ranking_that_changes_is_false_only_where_that_is_clear():
    for after, expected in ((("dca",), HOLDS), (("ls",), NOT), ((), OPEN)):
        found = verdicts(several(better=("dca",), after=after))
        for what in ("fairness", "calibration"):
            assert found[f"Hybrids keep the best technique for {what}"][1] == expected, after


def test_claims_of_focal_losses(digest, raw):
    for technique in ("fl", "flsd"):
        was, should = counted(digest, FOCAL.replace("FL", technique.upper()))
        worse = int(raw.published_volume(technique) < raw.published_volume("ce"))
        assert was[:3] == (worse, worse, 1)
        control = raw.volumes("ce", "none", raw.budget(technique))
        difference = control - np.array(raw.volumes(technique, "none"))
        assert should[:3] == (*sign(difference), 1)
        assert f"cross-entropy minus {technique.upper()}" in should[3]


def test_claim_of_hybrids(digest, raw):
    was, should = counted(digest, HYBRID)
    better = [t for t in REPLICAS if raw.published_volume(t, "group") > raw.published_volume(t)]
    assert was[:3] == (len(better), len(better), len(REPLICAS))
    true = leaning = 0
    for t in OTHERS:
        change = np.array(raw.volumes(t, "group")) - raw.volumes(t, "none")
        if change.any():
            found = sign(change)
            true, leaning = true + found[0], leaning + found[1]
    assert should[:3] == (true, leaning, len(OTHERS))


def test_claim_of_a_gain(digest, raw):
    was, should = counted(digest, CALIBRATION)
    best = min(REPLICAS, key=lambda t: raw.least("table5", t))
    gain = oracle.mean([row[1] for row in raw.changes("table5", best, "mixed")])
    runs = raw.budget(best)
    control = oracle.mean([row[1] for row in raw.changes("table5", "ce", "mixed", runs)])
    assert was[:3] == (int(gain > 0), int(gain > 0), 1)
    assert was[3] == f"{best.upper()} {gain:+.1f}%, control {control:+.1f}%"
    row = cells(tables.validated([digest], "table5"))  # itself held against the raw rows
    low, _ = row["ECE 95% interval"]
    assert should[:3] == (int(low > 0), int(row["ECE change %"] > 0), 1)
    (claim,) = [c for c in CLAIMS if c.text == CALIBRATION]
    (case,) = claim.published(digest)
    assert (case.value, case.control) == near((gain, control))
    (case,) = claim.validated(digest)
    assert case.value == near(row["ECE change %"])


def test_claim_that_fairness_is_hurt(digest, raw):
    was, should = counted(digest, HURT)
    best = min(REPLICAS, key=lambda t: raw.least("table5", t))
    ratio, control = (
        product([1 - row[0] / 100 for row in raw.changes("table5", t, "mixed", raw.budget(best))])
        for t in (best, "ce")
    )
    assert was[:3] == (int(ratio > 1), int(ratio > 1), 1)
    assert was[3] == f"{best.upper()} {ratio:.2f} times, control {control:.2f}"
    name = cells(tables.validated([digest], "table5"))["technique"]
    t = name.lower()
    after = [raw.best(t, s, "validated", "ece")[1]["test_pe"] for s in raw.splits]
    runs = raw.budget(t)
    before = [raw.best("ce", s, "validated", "pe", controls=runs) for s in raw.splits]
    pairs = [(b[1]["test_pe"], a) for b, a in zip(before, after, strict=True) if b]
    before, after = np.array(pairs, float).T
    change = 100 * (after - before) / before.mean()
    assert should[:3] == (*sign(change), 1)
    assert should[3].startswith(f"{name} {change.mean():+.2f}% [")


def test_a_mean_over_datasets_decides_about_a_gain():
    rng = np.random.default_rng(1)
    gains, controls = rng.normal(60, 10, 7), rng.normal(20, 10, 7)
    means = [
        (v.mean(), *stats.t.interval(0.95, 6, loc=v.mean(), scale=stats.sem(v)))
        for v in (gains, gains - controls)
    ]

    def cases(values, beside=None):
        beside = [None] * 7 if beside is None else beside
        return [
            Case("", None, True, value=v, control=c) for v, c in zip(values, beside, strict=True)
        ]

    found, text = mean_verdict(cases(gains, controls))
    assert found == HOLDS
    mean, more = ("{:+.1f}% [{:+.1f}, {:+.1f}]".format(*v) for v in means)
    expected = f"mean {mean}, control {controls.mean():+.1f}%, more than the control {more}"
    assert text == f"{expected} (7 of 7 datasets)"
    assert mean_verdict(cases(gains, gains + rng.normal(0, 5, 7)))[0] == LUCK
    assert mean_verdict(cases(gains)) == (HOLDS, f"mean {mean} (7 of 7 datasets)")
    assert mean_verdict(cases(-gains))[0] == NOT
    assert mean_verdict(cases(gains - gains.mean()))[0] == OPEN
    one = cases(gains)[:1]
    assert mean_verdict([*one, evidence.NOTHING]) == (
        OPEN,
        f"mean {gains[0]:+.1f}% (1 of 2 datasets)",
    )
    assert mean_verdict([evidence.NOTHING]) == (OPEN, "nothing within the slack")


def test_every_claim_has_both_readings(digest):
    both = [digest, construct(dataset="compas")]
    (_, table), *behind = claims_tables(both)
    assert len(table.rows) == len(CLAIMS) == 15
    for (reading, by_dataset), attribute in zip(behind, ("published", "validated"), strict=True):
        assert reading in table.header
        assert by_dataset.header == ("claim", "german", "compas")
        for claim, row in zip(CLAIMS, by_dataset.rows, strict=True):
            cases = [getattr(claim, attribute)(d) for d in both]
            assert row == [claim.text, *("".join(c.label for c in found) for found in cases)]
            assert "" not in row
            assert "nan" not in " ".join(row)
    for claim, row in zip(CLAIMS, table.rows, strict=True):
        assert row[1] in {HOLDS, PART, LUCK, NOT, OPEN}
        assert row[3] in {HOLDS, PART, LUCK, NOT, OPEN}
        for text, reading in ((row[2], "published"), (row[4], "validated")):
            if claim.share is None:
                assert re.match(r"mean [+-]\d+\.\d%.* \(2 of 2 datasets\)$", text)
                continue
            form = r"(\d+) of (\d+) true, (\d+) needed(?:, (\d+\.\d) by chance)?"
            form += r"(?:, (\d+) open \((\d+) leaning that way\))?"
            counts = [float(v or 0) for v in re.fullmatch(form, text).groups()]
            true, cases, needed, _, undecided, leaning = counts
            assert 0 <= leaning <= undecided <= cases - true
            assert 1 <= needed <= cases
            assert ("by chance" in text) == (reading == "published" or "keep" in claim.text)


# --- nothing crashes --------------------------------------------------------------------------


def spoilt(digest, what):
    """Return a digest in which something is not there, or not a number."""
    d = copy.deepcopy(digest)
    if what == "nothing within the slack":
        keep = d.choices["reading"] == "published"
        choices = {k: v[keep] for k, v in d.choices.items()}
        points = {k: v[:0] for k, v in d.frontiers.items()}
        return dataclasses.replace(d, choices=choices, frontiers=points)
    if what == "one technique":
        keep = np.isin(d.choices["loss"], ["ce", "ls"]) | (d.choices["reading"] != "validated")
        return dataclasses.replace(d, choices={k: v[keep] for k, v in d.choices.items()})
    value = {"nan": np.nan, "inf": np.inf, "zero": 0.0}[what]
    for name in ("test_pe", "test_pe_deterministic", "test_ece15", "test_ece10"):
        d.choices[name][:] = value
        if name in d.frontiers:
            d.frontiers[name][:] = value
    for name in d.recipe:
        if name.startswith("test"):
            d.recipe[name][:] = value
    d.facts["reference"] = [value, value]
    for split in d.facts["splits"].values():
        split["reference"] = {"test": [value, value], "val": [value, value]}
        split["best_ce"] = {
            c: dict.fromkeys(("pe", "ece15", "ece10"), value) for c in ("none", "group")
        }
    return d


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["nan", "inf", "zero", "nothing within the slack", "one technique"]
)
def test_what_is_not_there(digest, what):
    bad = spoilt(digest, what)
    for table in [t for _, t in results.main_tables([bad])] + results.more_tables([bad]):
        assert len({len(row) for row in table.rows} | {len(table.header)}) == 1
        markdown(table)
        as_csv(table)
    for claim, _, _, should, _ in claims_tables([bad])[0][1].rows:
        # where all are equal, the first of them stays the best
        assert should != HOLDS or "keep the best" in claim or what == "one technique"
    figures.rendered(figures.pareto_figure([bad]), "png")


def test_infinite_deterministic_pe(digest):
    """Cross-entropy never predicts a class for a group: no percentage, but no crash."""
    d = copy.deepcopy(digest)
    rows = (d.choices["loss"] == "ce") & (d.choices["objective"] == "pe_deterministic")
    d.choices["test_pe_deterministic"][rows & (d.choices["split_seed"] == 0)] = np.inf
    change = tables.published_change(d, "table6", "mdca")
    assert np.isnan(change[0, 0])
    assert np.isfinite(change[1:]).all()
    assert np.isfinite(means(change)).all()
    row = cells(tables.all_validated([d], "table6"), OTHERS.index("mdca"))
    assert row["det. PE control"] == math.inf
    assert math.isnan(row["det. PE change %"])
    assert row["det. PE 95% interval"] is None
    assert shown_rows(tables.validated([d], "table6"))


# --- rendering --------------------------------------------------------------------------------


def all_tables(digest):
    return [t for _, t in results.main_tables([digest])] + results.more_tables([digest])


def markdown_rows(text):
    return [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")
    ]


def test_markdown_is_well_formed(digest):
    for table in all_tables(digest):
        text = markdown(table)
        header, rule, *rows = markdown_rows(text)
        assert text.startswith(f"### {table.title}\n\n|")
        assert set(rule) == {"---"}
        assert len(rule) == len(header) == len(table.header)
        assert len(rows) == len(table.rows)
        for row in rows:
            assert len(row) == len(header)
        bare = re.sub(r"\\[*_|]", "", text)
        assert not re.search(r"[*_]", bare), "escaped in cells and notes"
        for note in table.notes:
            assert note.replace("*", "\\*").replace("_", "\\_") in text


def test_csv_has_all_digits(digest):
    for table in all_tables(digest):
        header, *rows = csv.reader(io.StringIO(as_csv(table)))
        assert tuple(header) == table.header
        for row, own in zip(rows, table.rows, strict=True):
            for text, value in zip(row, own, strict=True):
                if isinstance(value, tuple):
                    assert tuple(map(float, text.split())) == value
                elif isinstance(value, float) and math.isnan(value):
                    assert text == "nan"
                elif isinstance(value, int | float):
                    assert float(text) == value
                else:
                    assert text == ("" if value is None else value)


def test_digits_that_are_shown():
    table = Table(
        "x",
        "X",
        ("a", "%b", "c change %", "c 95% interval", "d", "d 95% interval", "n"),
        [
            ["u", 1.23456, 2.34567, (1.0, -2.5), 0.12345, (0.5, 1.0), 12],
            [None, math.nan, 0.5, None, math.inf, None, 0],
        ],
    )
    first, second = shown_rows(table)
    assert first == ["u", "1.23", "2.35", "[1.00, -2.50]", "0.123", "[0.500, 1.000]", "12"]
    assert second == ["-", "-", "0.50", "-", "inf", "-", "0"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_terminal(digest, width):
    for reading, table in results.main_tables([digest]):
        screen = Console(file=io.StringIO(), width=width)
        title = f"{results.heading(table.name, reading)}: {table.title}"
        screen.print(rich_table(table, title, table.notes, width))
        text = screen.file.getvalue()
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text, "no digit is cut off"
        if width > 60 and table.name != "claims":
            assert "german" in text
            for name, _ in table.narrow:
                assert all(word in text for word in name.split()), "no heading is broken"
        # brackets are no markup
        if width == 200 and table.name == "table2":
            assert "Pr[A=1], Pr[Y=1|A=0], Pr[Y=1|A=1]" in text
        if width == 200 and table.name == "frontiers":
            assert re.search(r"\[-?0\.\d{3}, -?0\.\d{3}\]", text)


def test_headings():
    assert results.heading("table4-validated", "validated") == "Table 4, validated"
    assert results.heading("table2", "") == "Table 2"
    assert results.heading("claims", "both readings") == "Claims, both readings"
    assert results.heading("claims-validated", "validated") == "Claims, validated"


# --- the figure and the folder of results -----------------------------------------------------


@pytest.mark.slow
def test_figure_is_the_same_twice(digest):
    once, again = (figures.pareto_figure([digest]) for _ in range(2))
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG\r\n")):
        assert figures.rendered(once, kind) == figures.rendered(again, kind)
        assert figures.rendered(once, kind).startswith(start)


def test_what_the_figure_shows(digest, raw):
    both = [digest, construct(dataset="compas")]
    figure = figures.pareto_figure(both)
    panel, other, legend = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["german", "compas", ""]
    (texts,) = [[t.get_text() for t in axes.get_legend().get_texts()] for axes in [legend]]
    assert panel.get_legend() is None
    assert other.get_legend() is None
    named = [line for line in panel.get_lines() if not line.get_label().startswith("_")]
    marks = {line.get_label(): line for line in named}
    assert marks.pop("PE floor").get_xdata()[0] == digest.facts["floors"]["model"]
    assert set(texts) >= {*marks, "PE floor"}
    lines = [line.get_xydata() for line in panel.get_lines() if len(line.get_xydata()) > 1]
    partly, metrics = 0, ("pe", "ece15")
    for t in SWEEP.loss:
        front = sorted(
            {
                tuple(oracle.measured(row, "test", m) for m in metrics)
                for row in raw.frontier(t, "published", "none")
            }
        )
        if len(front) > 1:
            close = [len(xy) == len(front) and np.allclose(xy, front, rtol=1e-6) for xy in lines]
            assert any(close), t
        chosen = [raw.best(t, s, "validated", "balanced", controls=4) for s in raw.splits]
        there = [[oracle.measured(b[1], "test", m) for m in metrics] for b in chosen if b]
        partly += 0 < len(there) < len(raw.splits)
        if there:
            mark = marks.pop(paper_name(t))
            np.testing.assert_allclose(mark.get_xydata(), [np.mean(there, 0)], rtol=1e-6)
            right, top = panel.get_xlim()[1], panel.get_ylim()[1]
            assert (np.mean(there, 0) < [right, top]).all()
        elif front:
            assert np.isnan(marks.pop(paper_name(t)).get_xydata()).all()
        if t == "ce" and len(there) >= figures.FEWEST:
            for i, column in enumerate(np.transpose(there)):
                ends = np.array([np.mean(there, 0)] * 2)
                ends[:, i] = np.maximum(interval(column), 0)
                assert any(xy.shape == (2, 2) and np.allclose(xy, ends) for xy in lines)
    assert not marks
    assert partly > 0


@pytest.mark.slow
def test_folder_of_results(digest, tmp_path, monkeypatch):
    written = set()

    def put(path, content):
        written.add(path)
        path.write_bytes(content)

    monkeypatch.setattr(results, "replace_file", put)
    command = ["equipoise", "reproduce"]
    results.write_results(tmp_path, [digest], command, ["compas"], "point")
    found = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert found == written, "every file is put in place whole"
    assert {p.name for p in found if p.parent == tmp_path} == {"REPLICA.md", "frontiers.svg"}
    csvs = {p.stem for p in found if p.suffix == ".csv"}
    shown_tables = {t.name for _, t in results.main_tables([digest])}
    assert csvs == shown_tables | {t.name for t in results.more_tables([digest])}
    page = (tmp_path / "REPLICA.md").read_text()
    for _, table in results.main_tables([digest], "point"):
        assert markdown(table).split("\n", 2)[2] in page
    assert "**Not there yet: compas.**" in page
    assert "    equipoise reproduce\n" in page
    assert "1 dataset (german), 90 runs, 6 epochs each" in page
    assert re.findall(r"!\[.*?\]\((.*?)\)", page) == ["frontiers.svg"]
    for note in ("validated", "Dead networks", "MMCE-W 100%", tables.BASELINES["point"]):
        assert note in page
    # the baseline is that of the tables with every technique too
    assert (tmp_path / "tables" / "table5-all.csv").read_text() == as_csv(
        tables.all_published([digest], "table5", "point")
    )


def test_page_without_dead_networks(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "rendered", lambda *_: b"")
    results.write_results(tmp_path, [construct()], ["equipoise"])
    page = (tmp_path / "REPLICA.md").read_text()
    assert "where it is 0.5% or more: none." in page
    assert "Runs that diverged: 3." in page
    assert "Not there yet" not in page
    assert not list(tmp_path.rglob("*.tmp"))
