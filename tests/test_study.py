"""The decisive study: its design, outcomes, effects and verdicts against plain loops."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from equipoise.calibration import GroupTemperatureScaling, TemperatureScaling
from equipoise.datasets import load
from equipoise.metrics import METRICS, AuditTable
from equipoise.paper._snippet import TECHNIQUES
from equipoise.paper._study._calibrations import calibrated
from equipoise.paper._study._design import Arm, Claim, arms, claims, registered, studies
from equipoise.paper._study._digest import StudyDigest, study_digest
from equipoise.paper._study._effects import chosen_effect, effect, matching, mean_of
from equipoise.paper._study._inference import Pooled, holm, judged, pooled
from equipoise.paper._study._methods import in_short
from equipoise.paper._study._outcomes import OUTCOMES, outcomes
from equipoise.paper._study._part import plan_study, prepared_split
from equipoise.paper._study._reproduce import chosen_studies, reproduce_study, saved_studies
from equipoise.paper._study._summary import Treatment
from equipoise.sweep import run
from equipoise.training import train_to_best

WAYS = registered()["design"]["calibrations"]


def rows(n=400, models=3, seed=0):
    """Return probabilities (model, row), labels and groups; some probabilities on edges of bins."""
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.7).astype(int)
    prob = rng.beta(2, 1 + group, (models, n))
    prob[:, :4] = [0.5, 0.2, 1 / 3, 0.8]
    y = (rng.random(n) < prob[0]).astype(int)
    return prob, y, group


# --- the design ------------------------------------------------------------------------------


def test_the_design_is_the_registered_one():
    known = arms()
    assert len(known) == 24
    assert [a.weights for a in known if a.loss == "ce"] == [0, 1, 2, 3]
    assert {(a.loss, a.lam) for a in known if a.rho is None and a.loss != "ce"} == {
        ("dca", 3.0),
        ("mdca", 3.0),
        ("mmce", 3.0),
    }
    assert {a.lam for a in known if a.loss == "mmce-w"} == {0.2, 0.5, 1.0}
    assert list(WAYS) == [
        "none",
        "common",
        "group",
        "group-shrunk",
        "recipe",
        "bcts",
        "bcts-shrunk",
    ]
    assert len(claims()) == 10
    linear = [s for s in studies().values() if s.network == "linear"]
    assert len(linear) == 11
    assert sum(s.splits * len(s.arms) for s in studies().values()) == 21_696
    margins = registered()["inference"]["margins"]
    assert margins["amplification"] == 0.03
    assert margins["ece"] == pytest.approx(math.log(1.05), abs=1e-5)
    for claim in claims():  # every claim means some arms, and something on each side
        for side in (claim.treated, claim.control):
            assert "chosen_by" in side or matching(known, side)


def test_every_row_is_tested_and_validates_once_in_a_repeat():
    data, study = load("german"), studies()["german-linear"]
    for repeat in (0, 3):
        cuts = [study.cut(repeat * 8 + fold, data) for fold in range(8)]
        for part in (1, 2):
            assert sorted(np.concatenate([cut[part] for cut in cuts])) == list(range(1000))
        for cut in cuts:
            assert sorted(np.concatenate(cut)) == list(range(1000))
            cells = data.group * 2 + data.y
            share = np.bincount(cells[cut[2]], minlength=4) / len(cut[2])
            assert share == pytest.approx(np.bincount(cells) / 1000, abs=0.02)
    assert not np.array_equal(study.cut(0, data)[2], study.cut(8, data)[2])


def test_all_arms_start_from_the_same_weights_and_large_data_is_drawn():
    study = studies()["german-linear"]
    seeds = [c.seed for c in study.configs(5)]
    assert len(set(seeds[:4])) == 4
    assert set(seeds[4:]) == {seeds[0]}
    assert not set(seeds) & {c.seed for c in study.configs(6)}
    few = dataclasses.replace(study, rows=100)
    drawn = few.chosen_rows(load("german"))
    assert len(drawn) == 100
    assert (np.diff(drawn) > 0).all()
    assert sorted(np.concatenate(few.folds_of(0, load("german")))) == drawn.tolist()


# --- outcomes --------------------------------------------------------------------------------


def plain_outcomes(prob, y, group):
    """Measure one model, row by row, from the definitions."""
    found = {}
    signed = []
    for k in (0, 1):
        q, r = [], []
        for g in (0, 1):
            own = [i for i in range(len(y)) if group[i] == g]
            q.append(sum(prob[i] if k else 1 - prob[i] for i in own) / len(own))
            r.append(sum(y[i] == k for i in own) / len(own))
        signed.append(math.log(q[1] / q[0]) - math.log(r[1] / r[0]))
        found[f"amplification_{k}"] = signed[-1]
    found["amplification"] = (abs(signed[0]) + abs(signed[1])) / 2
    found["log_loss"] = -sum(
        math.log(p if t else 1 - p) for p, t in zip(prob, y, strict=True)
    ) / len(y)
    found["brier"] = sum((p - t) ** 2 for p, t in zip(prob, y, strict=True)) / len(y)
    decided = [int(p > 0.5) for p in prob]
    found["accuracy"] = sum(d == t for d, t in zip(decided, y, strict=True)) / len(y)

    def errors(score, hit):
        ece = square = 0.0
        for b in range(15):
            own = [i for i, p in enumerate(score) if b / 15 < p <= (b + 1) / 15 or (p == b == 0)]
            if own:
                gap = sum(hit[i] - score[i] for i in own) / len(own)
                ece += len(own) / len(y) * abs(gap)
            if len(own) > 1:
                a = sum(hit[i] for i in own) / len(own)
                square += len(own) / len(y) * (gap**2 - a * (1 - a) / (len(own) - 1))
        return ece, square

    top = [max(p, 1 - p) for p in prob]
    found["ece"], found["ece2"] = errors(
        top, [int(d == t) for d, t in zip(decided, y, strict=True)]
    )
    first, second = errors(list(prob), list(y)), errors([1 - p for p in prob], [1 - t for t in y])
    found["class_ece"], found["class_ece2"] = (
        (a + b) / 2 for a, b in zip(first, second, strict=True)
    )
    return found


def test_outcomes_are_those_of_plain_loops():
    prob, y, group = rows()
    found = outcomes(prob, y, group, np.ones((1, len(y))))
    assert tuple(found) == OUTCOMES
    for m, own in enumerate(prob):
        expected = plain_outcomes(own.tolist(), y.tolist(), group.tolist())
        assert {k: v[0, m] for k, v in found.items()} == pytest.approx(expected, abs=1e-12)


def test_outcomes_are_those_of_the_library():
    prob, y, group = rows(seed=1)
    found = outcomes(prob, y, group, np.ones((1, len(y))))
    table = AuditTable.from_stack(
        np.stack([1 - prob, prob]), y, group, groups=(0, 1), labels=(0, 1), n_bins=15
    ).pooled()
    for ours, theirs in {
        "ece": "ece",
        "class_ece": "classwise_ece",
        "log_loss": "log_loss",
        "brier": "brier",
        "accuracy": "accuracy",
    }.items():
        assert found[ours][0] == pytest.approx(METRICS[theirs].of(table)[:, 0], abs=1e-8)


def test_a_resample_is_its_rows_repeated():
    prob, y, group = rows(120)
    drawn = np.random.default_rng(3).multinomial(120, np.full(120, 1 / 120), size=4)
    found = outcomes(prob, y, group, drawn.astype(float))
    for b, count in enumerate(drawn):
        again = np.repeat(np.arange(120), count)
        own = outcomes(prob[:, again], y[again], group[again], np.ones((1, 120)))
        for name in OUTCOMES:
            np.testing.assert_allclose(found[name][b], own[name][0], atol=1e-12)
    fewer = outcomes(prob, y, group, drawn.astype(float), squared=False)
    np.testing.assert_array_equal(fewer["ece"], found["ece"])
    assert np.isnan(fewer["ece2"]).all()


def test_the_squared_error_has_no_bias():
    # p is right, so the squared error is 0 on average, and the ECE is not
    rng = np.random.default_rng(0)
    prob = rng.uniform(0.05, 0.95, 300)
    values = []
    for _ in range(400):
        y = (rng.random(300) < prob).astype(int)
        own = outcomes(prob[None], y, np.arange(300) % 2, np.ones((1, 300)))
        values.append([own[k][0, 0] for k in ("ece2", "class_ece2", "ece")])
    mean, error = np.mean(values, axis=0), np.std(values, axis=0) / 20
    assert abs(mean[0]) < 3 * error[0]
    assert abs(mean[1]) < 3 * error[1]
    assert mean[2] > 0.03


# --- calibrations ----------------------------------------------------------------------------


def test_calibrations_are_those_of_the_estimators():
    rng = np.random.default_rng(0)
    n = 500
    group, z = (rng.random(2 * n) < 0.6).astype(int), rng.normal(size=(2, 2 * n)) * 3
    z[1] += 2 * z[0]
    y = (rng.random(2 * n) < 1 / (1 + np.exp(-z[0] / 2 + 0.5 * group))).astype(int)
    val, test = slice(0, n), slice(n, None)
    found = calibrated(WAYS, z[:, val], y[val], group[val], z[:, test], group[test])
    pair = np.stack([np.zeros_like(z), z], axis=-1)
    for arm in range(2):
        assert found["none"][arm] == pytest.approx(1 / (1 + np.exp(-z[arm, test])))
        common = TemperatureScaling().fit(pair[arm, val], y[val])
        assert found["common"][arm] == pytest.approx(common.predict_proba(pair[arm, test])[:, 1])
        for name, options in {
            "group": {"shrinkage": 0.0},
            "group-shrunk": {"shrinkage": "auto"},
            "recipe": {"solver": "paper"},
        }.items():
            own = GroupTemperatureScaling(**options)
            own.fit(pair[arm, val], y[val], sensitive_features=group[val])
            expected = own.predict_proba(pair[arm, test], sensitive_features=group[test])
            assert found[name][arm] == pytest.approx(expected[:, 1], rel=1e-6), name
    # biases bring the mean probability of each group to its rate, on the rows they were fitted to
    own = calibrated(WAYS, z[:, val], y[val], group[val], z[:, val], group[val])["bcts"]
    for g in (0, 1):
        assert own[0][group[val] == g].mean() == pytest.approx(y[val][group[val] == g].mean())


# --- effects ---------------------------------------------------------------------------------

FEW = (
    Arm("ce", None, None, 0),
    Arm("ce", None, None, 1),
    Arm("dca", 0.5, 1.0, 0),
    Arm("dca", 0.5, 3.0, 0),
    Arm("dca", None, 3.0, 0),
    Arm("ls", 0.5, None, 0),
)


def test_arms_of_a_loss_are_averaged_before_losses():
    values = np.arange(6.0)[None]
    wanted = {"loss": ["dca", "ls"], "grouped": True}
    assert mean_of(values, FEW, wanted) == pytest.approx([((2 + 3) / 2 + 5) / 2])
    assert mean_of(values, FEW, {"loss": ["dca"], "lam": 3.0}) == pytest.approx([(3 + 4) / 2])
    assert mean_of(values, FEW, {"loss": ["ce"]}) == pytest.approx([0.5])
    with pytest.raises(ValueError, match=r"no arm is meant by .* mmce"):
        mean_of(values, FEW, {"loss": ["mmce"]})


def test_the_effect_of_a_claim_is_that_of_plain_loops():
    rng = np.random.default_rng(0)
    values = {
        way: {"ece": rng.uniform(0.01, 0.1, (5, 3, 6)), "amplification": rng.random((5, 3, 6))}
        for way in ("none", "group")
    }
    claim = Claim(
        "c", "", "", "ece", "lower",
        {"loss": ["dca", "ls"], "grouped": True, "calibration": "group"}, {"loss": ["ce"]},
    )  # fmt: skip
    for outcome, shape in (("ece", math.log), ("amplification", float)):
        found = effect(claim, outcome, FEW, values)
        for b in range(5):
            each = []
            for r in range(3):
                new, old = (
                    [shape(v) for v in values[way][outcome][b, r]] for way in ("group", "none")
                )
                each.append(((new[2] + new[3]) / 2 + new[5]) / 2 - (old[0] + old[1]) / 2)
            assert found[b] == pytest.approx(sum(each) / 3)


def test_a_choice_is_judged_on_other_rows():
    choosing = {
        "accuracy": np.array([[[0.8, 0.8, 0.7, 0.79, 0.8, 0.8]]]),
        "ece": np.array([[[0.05, 0.06, 0.01, 0.02, 0.03, 0.09]]]),
    }
    judging = {"amplification": np.array([[[0.1, 0.3, 9.0, 0.7, 9.0, 9.0]]])}
    arguments = (FEW, choosing, judging, "ece", "amplification", 0.05, {"loss": ["ce"]})
    # arm 2 is best but not accurate enough; arm 3 is chosen
    assert chosen_effect(*arguments) == pytest.approx([0.7 - 0.2])


# --- verdicts --------------------------------------------------------------------------------


def test_pooled_is_the_t_test():
    effects = np.random.default_rng(0).normal(0.1, 0.2, 11)
    found, test = pooled(effects), stats.ttest_1samp(effects, 0.0)
    low, high = test.confidence_interval(0.95)
    assert (found.low, found.high, found.p) == pytest.approx((low, high, test.pvalue))
    with pytest.raises(ValueError, match="at least 2"):
        pooled(effects[:1])


def test_the_smallest_detectable_effect_is_found_four_times_in_five():
    rng = np.random.default_rng(1)
    size = 0.2 / math.sqrt(11) * (stats.t(10).ppf(0.975) + stats.t(10).ppf(0.8))
    found = [pooled(rng.normal(size, 0.2, 11)).p <= 0.05 for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_holm_is_the_step_down_rule():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(6) ** 3
        found = holm(p.tolist())
        for level in (0.01, 0.05, 0.2):
            rejected, order = set(), np.argsort(p)
            for rank, i in enumerate(order):
                if p[i] > level / (6 - rank):
                    break
                rejected.add(int(i))
            assert {i for i in range(6) if found[i] <= level} == rejected


MARGINS = {"amplification": 0.03, "ece": 0.0488, "class_ece": 0.0488, "log_loss": 0.002}


def verdicts(effects, named=None):
    known = [c for c in claims() if named is None or c.name in named]
    return {j.claim.name: j for j in judged(known, effects, MARGINS)}


def world(rng, mean=0.0, spread=0.2, n=11):
    return {
        c.name: {
            o: rng.normal(mean, spread * (0.01 if o == "log_loss" else 1.0), n)
            for o in (c.outcome, *c.also)
        }
        for c in claims()
    }


def test_false_verdicts_are_rare_where_nothing_has_an_effect():
    rng = np.random.default_rng(0)
    wrong = [
        any(j.verdict in ("shown", "refuted") for j in verdicts(world(rng)).values())
        for _ in range(400)
    ]
    # 5% of families, and three standard errors
    assert np.mean(wrong) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_verdicts_follow_their_intervals():
    rng = np.random.default_rng(0)
    around = rng.normal(0.0, 0.01, 11)
    around -= around.mean()
    one = {"scaling-fairness"}
    for mean, verdict in ((0.0, "equivalent"), (-0.2, "shown"), (0.2, "refuted")):
        assert (
            verdicts({"scaling-fairness": {"amplification": around + mean}}, one)[
                "scaling-fairness"
            ].verdict
            == verdict
        )
    wide = verdicts({"scaling-fairness": {"amplification": 20 * around - 0.02}}, one)
    assert wide["scaling-fairness"].verdict == "undecided"
    # the claim that calibration hurts is one of a higher outcome
    hurts = verdicts({"calibration-hurts": {"amplification": around + 0.2}}, {"calibration-hurts"})
    assert hurts["calibration-hurts"].verdict == "shown"


@pytest.mark.parametrize(
    ("fair", "calibrated_by", "loss", "verdict"),
    [
        (-0.2, -0.2, 0.0, "shown"),
        (-0.2, -0.2, 0.01, "refuted"),
        (-0.2, 0.2, 0.0, "refuted"),
        (-0.2, 0.0, 0.0, "undecided"),
        (0.0, -0.2, 0.0, "undecided"),
    ],
)
def test_a_claim_of_three_parts_needs_all(fair, calibrated_by, loss, verdict):
    around = np.random.default_rng(0).normal(0.0, 0.01, 11)
    around -= around.mean()
    effects = {
        "bcts": {
            "amplification": around + fair,
            "class_ece": around + calibrated_by,
            "log_loss": around / 20 + loss,
        }
    }
    assert verdicts(effects, {"bcts"})["bcts"].verdict == verdict


def test_what_helps_must_not_cost_log_loss():
    def treatment(arm, ece, log_loss, way="none"):
        def around(mean, reach):
            return Pooled(mean, mean - reach, mean + reach, 0.01, reach, 7)

        still = dict.fromkeys(("amplification", "class_ece", "accuracy"), around(0.0, 0.1))
        return Treatment(arm, way, {**still, "ece": around(*ece), "log_loss": around(*log_loss)})

    found = [
        treatment("good", (-0.2, 0.1), (-0.01, 0.01)),
        treatment("better", (-0.3, 0.1), (0.0, 0.001), "bcts"),
        treatment("dear", (-0.5, 0.1), (0.02, 0.01)),
        treatment("unsure", (-0.2, 0.3), (0.0, 0.001)),
    ]
    text = in_short(found, {"amplification": 0.1, "ece": 0.1, "class_ece": 0.1})
    helps, harms = text.splitlines()[1], text.splitlines()[3]
    assert helps == (
        "- Lowers ECE, and log-loss is not worse: better + bcts -26% [-33, -18], "
        "good -18% [-26, -10]."
    )
    assert harms == "- Costs log-loss or accuracy: dear +2.00 [+1.00, +3.00]."
    assert text.splitlines()[0].endswith("nothing is shown to.")


# --- a whole study ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    known = [a for a in arms() if a.lam in (None, 3.0, 0.5)]
    return dataclasses.replace(
        studies()["german-linear"],
        repeats=2,
        folds=3,
        arms=tuple(known),
        max_epochs=8,
        patience=3,
        hidden_layer_sizes=(12,),
        learning_rate=3e-3,
    )


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    """The digest of a small study, with its folder."""
    folder = tmp_path_factory.mktemp("study")
    digest = reproduce_study(
        small, load("german"), folder / "runs", folder / "results", progress=False
    )
    return digest, folder


@pytest.mark.slow
def test_a_part_holds_the_logits_of_its_runs(small, finished):
    data = load("german")
    store, work = plan_study(small, finished[1] / "runs", data)
    frame = store.table(work[4].part.key).to_pandas()
    split = prepared_split(small, 4, data)
    best = train_to_best(
        split,
        small.configs(4),
        max_epochs=8,
        patience=3,
        hidden_layer_sizes=(12,),
        split_seed=small.seed + 4,
        losses=TECHNIQUES,
    )
    for arm, own in frame.groupby("arm"):
        assert (own["epoch"] == best.epoch[arm]).all()
        for test, part in ((False, "val"), (True, "test")):
            some = own[own["test"] == test]
            assert some["row"].tolist() == getattr(split, part).rows.tolist()
            z = best.logits[part][arm]
            np.testing.assert_allclose(some["logit"], z[:, 1] - z[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_outcomes_are_of_pooled_out_of_fold_rows(small, finished):
    digest, folder = finished
    data = load("german")
    store, work = plan_study(small, folder / "runs", data)
    parts = [store.table(w.part.key).to_pandas() for w in work]
    place = next(i for i, a in enumerate(small.arms) if a.name == "mmce 3")
    for repeat in (0, 1):
        own = pd.concat(p[p["test"] & (p["arm"] == place)] for p in parts[3 * repeat :][:3])
        assert sorted(own["row"]) == list(range(1000))
        prob = 1 / (1 + np.exp(-own["logit"].to_numpy(float)))
        expected = plain_outcomes(
            prob.tolist(), data.y[own["row"]].tolist(), data.group[own["row"]].tolist()
        )
        row = digest.outcomes.query(
            f"repeat == {repeat} and arm == 'mmce 3' and calibration == 'none'"
        )
        assert row.iloc[0][list(OUTCOMES)].to_dict() == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.slow
def test_effects_and_claims_of_a_study_follow_from_its_outcomes(finished):
    digest, _ = finished
    frame = digest.outcomes.assign(ece=np.log(digest.outcomes["ece"]))
    plain = frame[frame["calibration"] == "none"]
    ce = plain[plain["arm"].str.startswith("ce")].groupby("repeat")
    for outcome, way in itertools.product(("amplification", "ece", "log_loss"), ("none", "bcts")):
        own = frame[(frame["calibration"] == way) & (frame["arm"] == "dca 3")].set_index("repeat")
        expected = (own[outcome] - ce[outcome].mean()).mean()
        row = digest.effects.query(
            f"arm == 'dca 3' and calibration == '{way}' and outcome == '{outcome}'"
        ).iloc[0]
        assert row["effect"] == pytest.approx(expected, abs=1e-5)
        assert row["low"] < row["effect"] < row["high"]
    scaled = frame[(frame["calibration"] == "group") & frame["arm"].str.startswith("ce")]
    expected = scaled["ece"].mean() - plain[plain["arm"].str.startswith("ce")]["ece"].mean()
    found = digest.facts["claims"]["scaling-calibration"]["ece"]
    assert found["effect"] == pytest.approx(expected, abs=1e-5)
    assert found["error"] > 0
    assert set(digest.facts["claims"]) == {c.name for c in claims()}
    assert digest.facts["diverged"] == 0
    assert 0 < digest.facts["floors"]["amplification"] < 0.2


@pytest.mark.slow
def test_the_same_command_gives_the_same_digest(small, finished, tmp_path):
    digest, folder = finished
    data = load("german")
    store, work = plan_study(small, tmp_path / "runs", data)
    run(work, losses=TECHNIQUES, progress=False, workers=1)
    again = study_digest(small, store, work, data)
    pd.testing.assert_frame_equal(again.outcomes, digest.outcomes)
    pd.testing.assert_frame_equal(again.effects, digest.effects)
    assert again.facts == digest.facts
    loaded = StudyDigest.load(folder / "results" / small.name)
    pd.testing.assert_frame_equal(loaded.outcomes, digest.outcomes)
    assert loaded.facts == json.loads(json.dumps(digest.facts))
    # a digest that is there is not made again, even without its runs
    kept = reproduce_study(small, data, tmp_path / "none", folder / "results", progress=False)
    assert kept.facts == loaded.facts
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_results_of_another_design_are_refused(finished):
    with pytest.raises(ValueError, match="another design; choose another folder"):
        saved_studies(finished[1] / "results")


def test_damaged_results_and_unknown_names_are_named(tmp_path):
    folder = tmp_path / "german-linear"
    folder.mkdir()
    (folder / "facts.json").write_text("{")
    with pytest.raises(ValueError, match=r"are damaged .* remove that folder"):
        saved_studies(tmp_path)
    with pytest.raises(ValueError, match="has no dataset 'germany'; it has arrhythmia, german"):
        chosen_studies(["germany"])
    assert list(chosen_studies(["compas-relu", "mortgages"])) == ["mortgages-linear", "compas-relu"]
