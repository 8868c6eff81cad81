"""The choice of a search, its figures and its verdict, against plain loops and simulations."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from equipoise.search._interval import confidence, mean_interval
from equipoise.search._part import MEASURED
from equipoise.search._plan import Trial
from equipoise.search._race import frontier_depth
from equipoise.search._results import Limits, Tradeoffs
from equipoise.search._shrinkage import shrunk_means
from equipoise.search._verdict import verdict

WIDE = Limits(1.0, 9.0)
APART = [[t for t in range(5 * (s // 5), 5 * (s // 5) + 5) if t != s] for s in range(10)]
WAYS = (None, "group")


def made_up(seed=0, pairs=6, splits=10, values=None):
    """Make up measurements: as many controls as candidates, of two losses and three weights."""
    rng = np.random.default_rng(seed)
    trials = []
    for i in range(pairs):
        loss, weights = ("mmce", "dca")[i % 2], ("none", "equal", "share")[i // 2 % 3]
        trials += [Trial("ce", None, "none", 1.0, i), Trial(loss, None, weights, 2.0)]
    shape = (splits, len(trials), len(WAYS))
    columns = {name: rng.random(shape) for name in MEASURED}
    columns["accuracy"] = rng.uniform(0.7, 0.8, shape)
    columns["epoch"] = rng.integers(1, 9, shape).astype(float)
    columns |= values(rng, shape) if values else {}
    apart = [[t for t in own if t < splits] for own in APART[:splits]]
    every = list(range(splits))
    return Tradeoffs(trials, columns, WAYS, every, apart, every, 0.25)


# --- intervals -------------------------------------------------------------------------------


def test_interval_against_scipy():
    values = np.random.default_rng(0).normal(size=8)
    low, high = stats.t.interval(0.95, 7, values.mean(), stats.sem(values))
    assert mean_interval(values) == pytest.approx((low, high))
    wider = values.std(ddof=1) * np.sqrt(1 / 8 + 0.25)
    expected = stats.t.interval(0.95, 7, values.mean(), wider)
    assert mean_interval(values, 0.25) == pytest.approx(expected)
    wider = values.std(ddof=1) * np.sqrt(1 / 3 + 0.25)
    assert mean_interval(values, 0.25, number=3) == pytest.approx(
        stats.t.interval(0.95, 7, values.mean(), wider)
    )
    assert confidence(values, 0.25) == pytest.approx(
        stats.t.cdf(values.mean() / values.std(ddof=1) / np.sqrt(1 / 8 + 0.25), 7)
    )
    assert mean_interval(np.array([1.0])) is None
    assert mean_interval(np.array([1.0, np.nan])) is None
    assert confidence(np.array([2.0])) is None
    assert [confidence(np.full(3, v)) for v in (-1.0, 0.0, 1.0)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("kind", ["random", "folds"])
def test_corrected_intervals_cover(kind):
    """The mean as a predictor, whose expected squared error is known, on splits of 100 rows."""
    rng, plain, corrected = np.random.default_rng(1), [], []
    truth = 1.0 + 1.0 / 80
    for _ in range(1000):
        y = rng.normal(size=100)
        errors = []
        for s in range(10):
            if kind == "random" or s % 5 == 0:
                order = rng.permutation(100)
            fold = order[:20] if kind == "random" else order[20 * (s % 5) : 20 * (s % 5) + 20]
            rest = np.setdiff1d(np.arange(100), fold)
            errors.append(((y[fold] - y[rest].mean()) ** 2).mean())
        spans = [mean_interval(np.array(errors), r) for r in (0.0, 0.25)]
        for own, (low, high) in zip((plain, corrected), spans, strict=True):
            own.append(low <= truth <= high)
    assert np.mean(plain) < 0.9  # the reason for the correction
    assert 0.92 < np.mean(corrected) < 0.995


# --- shrinkage -------------------------------------------------------------------------------


def plain_shrinkage(values, cells):
    splits, count = values.shape
    means = {c: [values[s][cells == c].mean() for s in range(splits)] for c in set(cells.tolist())}
    away = [[values[s, i] - means[cells[i]][s] for s in range(splits)] for i in range(count)]
    free = count - len(means)
    noise = sum(np.var(a, ddof=1) for a in away) / free / splits
    between = max(0.0, sum(np.mean(a) ** 2 for a in away) / free - noise)
    weight = max(1e-3, between / (between + noise))
    return [np.mean(means[c]) + weight * np.mean(a) for c, a in zip(cells, away, strict=True)]


@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_shrinkage_equals_plain_loops(scale):
    rng = np.random.default_rng(2)
    cells = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 5])
    values = rng.normal(size=(6, 10)) + scale * rng.normal(size=10)
    found = shrunk_means(values, cells)
    np.testing.assert_allclose(found, plain_shrinkage(values, cells), rtol=1e-12)
    assert np.argsort(found[:3]).tolist() == np.argsort(values.mean(0)[:3]).tolist()


def test_shrinkage_leaves_out_what_is_not_finite():
    values = np.random.default_rng(3).normal(size=(4, 5))
    values[2, 1] = np.inf
    cells = np.zeros(5, np.int64)
    found = shrunk_means(values, cells)
    assert np.isnan(found[1])
    kept = [0, 2, 3, 4]
    np.testing.assert_allclose(found[kept], shrunk_means(values[:, kept], cells[kept]))
    assert np.isnan(shrunk_means(np.full((3, 2), np.nan), cells[:2])).all()
    one = values[:1, kept]
    np.testing.assert_array_equal(shrunk_means(one, cells[kept]), one[0])


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.5, 2.0])
def test_shrinkage_is_never_much_worse_and_mostly_better(spread):
    """Mean squared error of 30 candidates in 200 worlds."""
    rng, plain, pulled = np.random.default_rng(4), [], []
    cells = np.repeat(np.arange(3), 10)
    for _ in range(200):
        truth = rng.normal(size=3)[cells] + spread * rng.normal(size=30)
        values = truth + rng.normal(size=(5, 30))
        plain.append(((values.mean(0) - truth) ** 2).mean())
        pulled.append(((shrunk_means(values, cells) - truth) ** 2).mean())
    assert np.mean(pulled) < 1.01 * np.mean(plain)
    if spread <= 0.1:
        assert np.mean(pulled) < 0.4 * np.mean(plain)


# --- choice ----------------------------------------------------------------------------------


def plain_rows(found, splits, pool=True):
    """List candidates one by one: (loss, weights, calibration, cell, metric to values by split)."""
    rows = []
    for way, name in enumerate(("none", "group")):
        sides = [[i] for i, t in enumerate(found.trials) if not (pool and t.loss == "ce")]
        if pool:
            sides.append([i for i, t in enumerate(found.trials) if t.loss == "ce"])
        for own in sides:
            trial = found.trials[own[0]]
            values = {
                m: np.array([np.mean([found.columns[m][s, i, way] for i in own]) for s in splits])
                for m in MEASURED
            }
            rows.append((trial.loss, trial.weights, name, (trial.loss, name), values))
    return rows


def plain_means(rows, metric):
    keys = sorted({r[3] for r in rows})
    cells = np.array([keys.index(r[3]) for r in rows])
    return plain_shrinkage(np.stack([r[4][metric] for r in rows], 1), cells)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
def test_choice_equals_a_plain_loop(seed, objective):
    found = made_up(seed)
    rows = plain_rows(found, range(10))
    mean = {m: np.array(plain_means(rows, m)) for m in MEASURED}
    raw = {m: np.array([r[4][m].mean() for r in rows]) for m in MEASURED}
    accuracy = np.minimum(mean["accuracy"], raw["accuracy"])
    log_loss = np.maximum(mean["log_loss"], raw["log_loss"])
    within = accuracy > accuracy.max() - 0.02
    within &= log_loss <= log_loss[within].min() + 0.2
    plain = next(i for i, r in enumerate(rows) if r[0] == "ce" and r[2] == "none")
    units = [raw[m][plain] for m in ("pe", "ece")]
    scores = {"pe": mean["pe"], "ece": mean["ece"]}
    scores["balanced"] = mean["pe"] / units[0] + mean["ece"] / units[1]
    assert 1 < within.sum() < len(rows)
    at = min(np.flatnonzero(within), key=lambda i: scores[objective][i])
    candidates = found.candidates(pool=True)
    table = found.table(candidates, range(10))
    best = found.best(table, objective, Limits(0.02, 0.2))
    named = tuple(table[name][best] for name in ("loss", "weights", "calibrate"))
    assert named == rows[at][:3]
    for metric in MEASURED:
        assert table[f"val_{metric}"][best] == pytest.approx(mean[metric][at], rel=1e-9)
    mine = found.choice(lambda row: -row["val_accuracy"], WIDE)
    assert mine["val_accuracy"] == pytest.approx(mean["accuracy"].max())


def test_limits_never_exclude_everything():
    """The most accurate candidate may have a bad log-loss: the limit is against the accurate."""

    def values(_, shape):
        accuracy, log_loss = np.full(shape, 0.7), np.full(shape, 0.5)
        accuracy[:, 1], log_loss[:, 1] = 0.9, 0.8
        return {"accuracy": accuracy, "log_loss": log_loss}

    assert made_up(values=values).choice("pe", Limits(0.05, 0.0))["val_log_loss"] > 0.6


def test_a_trial_that_left_the_race_is_no_candidate_but_counts_as_control():
    found = made_up(5)
    for values in found.columns.values():
        values[4:, [0, 1]] = np.nan  # a control and a candidate
    rows = found.candidates(pool=False)
    assert {int(t[0]) for t in rows.trials} == set(range(2, 12))
    pooled = found.candidates(pool=True)
    at = next(i for i, t in enumerate(pooled.trials) if len(t) > 1 and pooled.way[i] == 0)
    expected = [
        np.nanmean([found.columns["pe"][s, i, 0] for i in range(0, 12, 2)]) for s in range(10)
    ]
    np.testing.assert_allclose(found.values("pe", pooled, range(10))[:, at], expected)


@pytest.mark.parametrize("objective", ["pe", "balanced"])
def test_the_choice_is_what_more_likely_than_not_gains(objective):
    """Where nothing differs, no loss or calibration is chosen against its own comparison."""
    chosen = []
    for seed in range(40):
        found = noise_world(seed)
        row = found.choice(objective, WIDE)
        numbers = verdict(found, objective, WIDE, row)[1]
        chosen.append((row["loss"], row["calibrate"]))
        if row["loss"] != "ce":
            assert numbers["difference"] > 0
            assert numbers["confidence"] > 0.5
        elif row["calibrate"] != "none":
            assert numbers["repair"]["difference"] > 0
    assert ("ce", "none") in chosen
    real = [noise_world(seed, shift=0.2).choice(objective, WIDE)["loss"] for seed in range(20)]
    assert "ce" not in real
    repairs = [noise_world(s, repair=0.2).choice(objective, WIDE)["calibrate"] for s in range(20)]
    assert repairs.count("group") >= 18


def test_what_gives_way_gives_way_within_the_limits_only():
    """A loss that gains nothing stays where cross-entropy is not accurate enough."""

    def values(rng, shape):
        accuracy = np.full(shape, 0.7)
        accuracy[:, 1::2] = 0.8
        return {"accuracy": accuracy, "pe": rng.normal(1.0, 0.1, shape)}

    losses = [
        made_up(seed, values=values).choice("pe", Limits(0.05, 9.0))["loss"] for seed in range(20)
    ]
    assert "ce" not in losses


def test_rivals_are_those_not_clearly_worse():
    def values(rng, shape):
        pe = 1.0 + 0.001 * rng.random(shape)
        pe[:, 1, 0] = 0.5  # the best, far from all but one
        pe[:, 3, 0] = 0.5 + 0.01 * rng.normal(size=len(pe))
        return {"pe": pe}

    row = made_up(values=values).choice("pe", WIDE)
    assert row["rivals"] == 1


# --- nested figures --------------------------------------------------------------------------


def test_test_rows_do_not_choose():
    """Change one held-out part: the choice that it is measured with stays the same."""
    found = made_up(6)
    before = found.figures("pe", WIDE)
    found.columns["pe"][3] = np.random.default_rng(9).random(found.columns["pe"][3].shape)
    after = found.figures("pe", WIDE)
    np.testing.assert_array_equal(np.delete(before["ece"], [0, 1, 2, 4]),
                                  np.delete(after["ece"], [0, 1, 2, 4]))  # fmt: skip
    for s, others in found.nested():
        assert s not in others
        assert others == APART[s]


def test_nested_figures_are_not_optimistic():
    """Where candidates differ by noise only, the best of them has no better figure than any."""
    optimistic, nested = [], []
    for seed in range(200):
        found = made_up(seed, values=lambda rng, shape: {"pe": 1.0 + 0.1 * rng.normal(size=shape)})
        rows = found.candidates(pool=True)
        optimistic.append(found.values("pe", rows, range(10)).mean(0).min())
        nested.append(found.figures("pe", WIDE)["pe"].mean())
    error = np.std(nested) / np.sqrt(200)
    assert abs(np.mean(nested) - 1.0) < 3 * error
    assert np.mean(optimistic) < 1.0 - 10 * error


# --- frontier --------------------------------------------------------------------------------


def test_frontier_equals_brute_force():
    found = made_up(7)
    frame = found.frontier(0.05)
    rows = plain_rows(found, range(10))

    def front(splits):
        own = plain_rows(found, splits)
        pe, ece, accuracy = (plain_means(own, m) for m in ("pe", "ece", "accuracy"))
        kept = [i for i in range(len(own)) if accuracy[i] > max(accuracy) - 0.05]
        return {
            own[i][:3]
            for i in kept
            if not any(
                pe[j] <= pe[i] and ece[j] <= ece[i] and (pe[j], ece[j]) != (pe[i], ece[i])
                for j in kept
            )
        }

    names = [tuple(r) for r in frame[["loss", "weights", "calibrate"]].to_numpy()]
    assert set(names) == front(range(10))
    assert frame["val_pe"].is_monotonic_increasing
    there = [front(APART[s]) for s in range(10)]
    for name, row in zip(names, frame.to_dict("records"), strict=True):
        own = next(r[4] for r in rows if r[:3] == name)
        splits = [s for s in range(10) if name in there[s]]
        assert row["frequency"] == len(splits) / 10
        for metric in ("pe", "ece", "accuracy"):
            if not splits:
                assert np.isnan(row[f"test_{metric}"])
                continue
            mean = own[metric][splits].mean()
            half = stats.t.ppf(0.975, 9) * own[metric].std(ddof=1)
            half *= np.sqrt(1 / len(splits) + 0.25)
            assert row[f"test_{metric}"] == pytest.approx(mean)
            assert row[f"test_{metric}_low"] == pytest.approx(max(mean - half, 0.0))
            assert row[f"test_{metric}_high"] == pytest.approx(mean + half)


def test_depth_peels_one_frontier_after_another():
    found = made_up(8, splits=2)
    pe, ece, accuracy = (
        found.columns[m].mean(0).ravel() for m in ("pe", "ece", "accuracy")
    )  # trial x calibration
    left = [i for i in range(24) if accuracy[i] > accuracy.max() - 0.05]
    depth, front = np.full(24, np.inf), 0
    while left:
        on = [
            i for i in left if not any(pe[j] <= pe[i] and ece[j] <= ece[i] and j != i for j in left)
        ]
        depth[on], left, front = front, [i for i in left if i not in on], front + 1
    expected = depth.reshape(12, 2).min(axis=1)
    np.testing.assert_array_equal(frontier_depth(found, Limits(0.05, 9.0))[:, 0], expected)


# --- verdict ---------------------------------------------------------------------------------


def noise_world(seed, shift=0.0, repair=0.0):
    """Splits differ, runs differ by chance; candidates and calibrations may have a real effect."""

    def values(rng, shape):
        found = {}
        for name in ("pe", "ece"):
            base = 1.0 + 0.2 * rng.normal(size=(shape[0], 1, 1))
            found[name] = base + 0.1 * rng.normal(size=shape)
            found[name][:, 1::2] -= shift
            found[name][:, :, 1] -= repair
        return found | {"accuracy": np.full(shape, 0.8), "log_loss": np.full(shape, 0.4)}

    return made_up(seed, pairs=9, values=values)


def said(found, objective="balanced"):
    return verdict(found, objective, WIDE, found.choice(objective, WIDE))


@pytest.mark.slow
def test_under_the_null_it_seldom_says_that_anything_beats():
    """200 worlds: false statements of both comparisons together stay below 5%."""
    words = [said(noise_world(seed))[0] for seed in range(200)]
    wrong = sum(not text.startswith("Nothing to gain is shown.") for text in words)
    assert wrong <= 0.05 * 200


def test_with_a_real_effect_it_says_so():
    beats = [said(noise_world(seed, shift=0.3)) for seed in range(20)]
    assert sum(" beats cross-entropy given as many runs: " in text for text, _ in beats) >= 18
    for text, numbers in beats:
        assert numbers["runs"] == 9
        low, high = numbers["interval"]
        assert (low > 0) == (" beats " in text.partition(":")[0])
        assert low < numbers["difference"] < high
        assert (numbers["confidence"] > 0.975) == (low > 0)
    repairs = [said(noise_world(seed, repair=0.3)) for seed in range(20)]
    assert sum("Calibration after training helps" in text for text, _ in repairs) >= 18
    assert all(numbers["repair"]["difference"] > 0 for _, numbers in repairs)


@pytest.mark.parametrize("objective", ["pe", "ece", "balanced", lambda row: row["val_pe"]])
def test_every_objective_has_a_verdict(objective):
    text, numbers = said(noise_world(1, shift=0.4), objective)
    assert " beats cross-entropy" in text
    assert numbers["splits"] == 10
    name = {"pe": "PE", "ece": "ECE", "balanced": "balanced score"}
    assert f": {name.get(objective, 'score')} 0." in text or "balanced" in text


def test_what_cannot_be_compared_is_said():
    found = made_up(splits=1)
    text, numbers = said(found)
    assert text.startswith("Nothing is compared: ")
    assert "nan" not in text
    alone = made_up()
    trials = [t for t in alone.trials if t.loss != "ce"]
    columns = {k: v[:, 1::2] for k, v in alone.columns.items()}
    lonely = dataclasses.replace(alone, trials=trials, columns=columns)
    assert said(lonely, "pe")[0].startswith("Cross-entropy was not run (control=False)")
    with pytest.raises(ValueError, match="in units of cross-entropy, which was not run"):
        said(lonely)
    columns = {k: v[..., :1] for k, v in alone.columns.items()}
    single = dataclasses.replace(alone, columns=columns, calibrate=(None,))
    text, numbers = said(single)
    assert numbers["repair"] is None
    assert "calibration" not in text
    assert numbers["loss"] in ("ce", "mmce", "dca")


def test_words_agree_with_the_interval_whatever_was_chosen():
    """Losses with a better PE that cost too much are said to cost too much, not to lose."""

    def values(rng, shape):
        pe = 1.0 + 0.01 * rng.normal(size=shape)
        pe[:, 1::2] -= 0.5
        log_loss = np.full(shape, 0.4)
        log_loss[:, 1::2] += 0.05
        return {"pe": pe, "accuracy": np.full(shape, 0.8), "log_loss": log_loss}

    found = made_up(values=values)
    tight = Limits(0.05, 0.002)
    text, numbers = verdict(found, "pe", tight, found.choice("pe", tight))
    assert numbers["loss"] == "ce"
    assert numbers["costly"]
    assert "No loss stays within the limits: the best costs 0.050 of log-loss" in text
    assert " beats " not in text
    text, numbers = verdict(found, "pe", WIDE, found.choice("pe", WIDE))
    assert " beats cross-entropy given as many runs: " in text
    assert sum(numbers["chosen"].values()) == 10


def test_a_loss_that_beats_and_is_not_chosen_is_explained():
    """Its cost is above the limit on average, but not clearly so."""

    def values(rng, shape):
        pe = 1.0 + 0.01 * rng.normal(size=shape)
        pe[:, 1::2] -= 0.5
        log_loss = np.full(shape, 0.4)
        log_loss[:, 1::2] += 0.003 + 0.02 * rng.normal(size=(shape[0], 1, 1))
        return {"pe": pe, "accuracy": np.full(shape, 0.8), "log_loss": log_loss}

    tight, seen = Limits(0.05, 0.002), []
    for seed in range(10):
        found = made_up(seed, values=values)
        text, numbers = verdict(found, "pe", tight, found.choice("pe", tight))
        explained = "The choice is cross-entropy all the same: of the candidates within" in text
        assert explained == (" beats " in text and numbers["loss"] == "ce")
        seen.append(explained)
    assert any(seen)


def test_a_loss_that_does_not_gain_and_is_chosen_is_explained():
    def values(rng, shape):
        pe = 1.0 + 0.01 * rng.normal(size=shape)
        pe[:, 1::2] += 0.5
        log_loss = np.full(shape, 0.4)
        log_loss[:, ::2] += 0.05  # of cross-entropy
        return {"pe": pe, "accuracy": np.full(shape, 0.8), "log_loss": log_loss}

    found, tight = made_up(values=values), Limits(0.05, 0.002)
    text, numbers = verdict(found, "pe", tight, found.choice("pe", tight))
    assert numbers["loss"] != "ce"
    assert numbers["difference"] < 0
    why = f"{numbers['loss']} is chosen all the same, because no cross-entropy is within"
    assert why in text
    text, numbers = verdict(found, "pe", WIDE, found.choice("pe", WIDE))
    assert numbers["loss"] == "ce"
    assert "all the same" not in text


def test_a_calibration_that_costs_too_much_is_not_said_to_help():
    def values(rng, shape):
        pe = 1.0 + 0.01 * rng.normal(size=shape)
        pe[..., 1] -= 0.5
        log_loss = np.full(shape, 0.4)
        log_loss[..., 1] += 0.05
        return {"pe": pe, "accuracy": np.full(shape, 0.8), "log_loss": log_loss}

    found = made_up(values=values)
    tight = Limits(0.05, 0.002)
    text, numbers = verdict(found, "pe", tight, found.choice("pe", tight))
    assert numbers["repair"]["interval"][0] > 0
    assert "No calibration stays within the limits: the best costs 0.050 of log-loss" in text
    assert "helps" not in text
    assert "is shown to improve" not in text


def test_halves_of_a_fold_are_one_value():
    found = dataclasses.replace(made_up(4), trainings=[s // 2 for s in range(10)])
    values = np.arange(10.0)
    assert found.per_training(values, range(10)).tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert found.interval(values, range(10)) == mean_interval(np.arange(0.5, 10, 2), 0.25)
    one = dataclasses.replace(found, trainings=[0] * 10)
    assert one.interval(values, range(10)) is None
    assert said(one)[0].startswith("Nothing is compared: ")


def test_halving_keeps_what_may_be_chosen():
    """Candidates in front of all others that may not be chosen do not crowd out those that may."""

    def values(_, shape):
        pe = np.ones(shape)
        log_loss = np.full(shape, 0.4)
        for i, trial in enumerate(range(1, 24, 2)):
            if i < 8:  # the better, the more expensive in log-loss
                pe[:, trial], log_loss[:, trial] = 0.1 + 0.01 * i, 0.5
            elif i == 8:
                pe[:, trial] = 0.5
        same = {"accuracy": np.full(shape, 0.8), "ece": 0.5 - 0.1 * pe}
        return {"pe": pe, "log_loss": log_loss, **same}

    found = made_up(pairs=12, values=values)
    assert frontier_depth(found, Limits(0.05, 0.002))[17, 0] == 0.0


def test_without_a_finite_pe_the_ece_decides_who_stays():
    found = made_up(2, values=lambda _, shape: {"pe": np.full(shape, np.inf)})
    depth = frontier_depth(found, Limits(1.0, 9.0))
    ece = found.columns["ece"].mean(0).min(1)
    assert depth[:, 0].argmin() == ece.argmin()


def test_pairs_of_splits_that_overlap_are_not_used_for_each_other():
    found = made_up(3, splits=7)
    assert [s for s, _ in found.nested()] == list(range(7))
    assert dict(found.nested())[6] == [5]
    few = dataclasses.replace(found, splits=list(range(6)))  # the sixth is alone in its division
    assert [s for s, _ in few.nested()] == list(range(5))
    assert list(itertools.chain(*(o for _, o in few.nested()))).count(5) == 0
