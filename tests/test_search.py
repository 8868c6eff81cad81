"""FrontierSearch: its plan, its runs beside runs made by hand, models, weights and files."""

import itertools
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, ShuffleSplit, TimeSeriesSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from equipoise import FrontierSearch
from equipoise._files import read_model, write_model
from equipoise.datasets import Part, Split
from equipoise.metrics import expected_calibration_error, group_base_rates, proportional_equality
from equipoise.search import POOLED, StoppedEarly
from equipoise.search import _search as search_module
from equipoise.search._plan import cuts_of, disjoint_parts, stages_of, trials_of
from equipoise.training import (
    Config,
    GroupwiseMLPClassifier,
    checked_rows,
    fit_scaling,
    quiet_calibration,
    scaled,
    train_to_best,
)

SMALL = {
    "lam": (1.0, 5.0),
    "n_seeds": 2,
    "max_epochs": 3,
    "hidden_layer_sizes": (8,),
    "learning_rate": 0.01,
    "random_state": 0,
}


def people(n=400, groups=("f", "m"), classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(n, 3)), rng.choice(list(groups), n)
    score = X[:, 0] + 0.5 * (a == groups[0]) + rng.normal(size=n)
    return X, np.digitize(score, np.linspace(-0.5, 0.5, classes - 1) if classes > 2 else [0.0]), a


# --- the plan --------------------------------------------------------------------------------


def test_cross_entropy_gets_as_many_runs_as_all_others_together():
    share = np.array([0.3, 0.7])
    trials = trials_of(["ce", "ls", "mmce"], "auto", (1.0, 5.0), ["f", "m"], share, control=True)
    others = [t for t in trials if t.loss != "ce"]
    assert {(t.loss, t.weights, t.lam) for t in others} == {
        *(("ls", w, 1.0) for w in ("none", "equal", "share")),
        *(("mmce", w, lam) for w in ("none", "equal", "share") for lam in (1.0, 5.0)),
    }
    rhos = {"none": None, "equal": (0.5, 0.5), "share": (0.3, 0.7)}
    assert all(t.rho == rhos[t.weights] for t in others)
    assert sorted(t.control for t in trials if t.loss == "ce") == list(range(len(others)))
    # half and half at any moment, so that a search that is stopped is a fair one too
    for n in range(2, len(trials) + 1, 2):
        assert sum(t.loss == "ce" for t in trials[:n]) == n // 2


def test_weights_that_are_equal_are_tried_once_and_named():
    even = np.array([0.5, 0.5])
    found = trials_of(["dca"], "auto", (1.0,), ["f", "m"], even, control=False)
    assert sorted(t.weights for t in found) == ["equal", "none"]
    found = trials_of(
        ["dca"], [0.25, {"f": 0.5, "m": 1.0}], (1.0,), ["f", "m"], even, control=False
    )
    assert sorted(t.weights for t in found) == ["0.5 1", "0.75 0.25"]
    assert [
        t.weights for t in trials_of(["fl"], "auto", (1.0,), [], np.ones(1), control=False)
    ] == ["none"]


def _cuts(n_seeds=10, cv=None, n=200, seed=0):
    X, y, a = people(n, ("f", "m", "x"))
    rows = checked_rows(FrontierSearch(), X, y, a, None)
    return cuts_of(rows, rows.group, cv, n_seeds, seed), rows


def test_splits_are_folds_with_validation_outside():
    cuts, rows = _cuts()
    assert len(cuts) == 10
    cells = rows.group * 2 + rows.codes
    for cut in cuts:
        (held,) = cut.held_out
        parts = [cut.train, cut.val, held]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(200))
        assert (len(held), len(cut.val)) == (40, 20)
        # each part has its share of every label and group
        for part, size in zip(parts, (0.7, 0.1, 0.2), strict=True):
            count = np.bincount(cells[part], minlength=6)
            assert (np.abs(count - size * np.bincount(cells)) < 2.5).all()
    for division in (cuts[:5], cuts[5:]):
        every = np.concatenate([cut.held_out[0] for cut in division])
        assert len(np.unique(every)) == 200
    apart = disjoint_parts(cuts)
    assert apart[0] == [1, 2, 3, 4]  # not those of another division, which share rows with it
    assert apart[7] == [5, 6, 8, 9]


@pytest.mark.parametrize(("n_seeds", "cv"), [(1, None), (3, ShuffleSplit(3, random_state=0))])
def test_splits_that_overlap_are_halved(n_seeds, cv):
    cuts, _ = _cuts(n_seeds, cv)
    assert all(len(cut.held_out) == 2 for cut in cuts)
    assert all(disjoint_parts(cuts))
    for cut in cuts:
        assert not set(cut.held_out[0]) & set(cut.held_out[1])
        assert not set(np.concatenate(cut.held_out)) & set(np.concatenate([cut.train, cut.val]))


def test_a_splitter_says_what_is_trained_on():
    cuts, _ = _cuts(cv=TimeSeriesSplit(4))
    for cut in cuts:
        assert max(cut.train.max(), cut.val.max()) < min(part.min() for part in cut.held_out)


def test_folds_of_a_splitter():
    cuts, _ = _cuts(cv=KFold(4))
    assert [cut.held_out[0].tolist() for cut in cuts] == [
        list(range(i, i + 50)) for i in range(0, 200, 50)
    ]


def test_stages():
    for n in range(1, 30):
        stages = stages_of(n, halving=True)
        assert list(itertools.chain(*stages)) == list(range(n))
        assert len(stages) == min(n, 3)
        assert stages_of(n, halving=False) == [list(range(n))]


# --- the search ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y, a = people()
    search = FrontierSearch(("ce", "ls", "mmce"), **{**SMALL, "n_seeds": 5})
    return search.fit(X, y, sensitive_features=a), X, y, a


@pytest.mark.filterwarnings("ignore:proportional equality")
def test_figures_are_those_of_runs_made_by_hand(fitted):
    search, X, y, a = fitted
    members = (a == "m").astype(np.int64)
    rows = checked_rows(FrontierSearch(), X, y, a, None)
    cuts = cuts_of(rows, rows.group, None, 5, search._seed)
    trials = search._found.trials
    inits = np.random.default_rng(search._seed).integers(2**31, size=(5, len(trials)))
    frame = search.results_
    reference = search.reference_group_
    for s, i in ((0, 1), (4, next(i for i, t in enumerate(search._found.alive) if t))):
        cut = (cuts[s].train, cuts[s].val, cuts[s].held_out[0])
        mean, scale = X[cut[0]].mean(0), X[cut[0]].std(0)
        parts = [Part(((X[r] - mean) / scale).astype(np.float32), y[r], members[r], r) for r in cut]
        config = Config(trials[i].loss, trials[i].rho, trials[i].lam, int(inits[s, i]), 0.01)
        alone = train_to_best(
            Split(*parts, None),
            [config],
            max_epochs=3,
            patience=10,
            hidden_layer_sizes=(8,),
            split_seed=search._seed + s,
        )
        held = cut[2]
        rates = group_base_rates(y[cut[0]], sensitive_features=a[cut[0]])
        for how in (None, "common", "group", "bcts"):
            with quiet_calibration():
                scaling = fit_scaling(
                    how, alone.logits["val"][0], parts[1], n_classes=2, groups=(0, 1)
                )
            prob = scaled(scaling, alone.logits["test"][0], members[held])
            expected = {
                "accuracy": (prob.argmax(1) == y[held]).mean(),
                "ece": expected_calibration_error(y[held], prob),
                "log_loss": -np.log(prob[np.arange(len(held)), y[held]]).mean(),
                "pe": proportional_equality(
                    y[held],
                    prob,
                    sensitive_features=a[held],
                    base_rates=rates,
                    reference_group=reference,
                ),
                "pe_deterministic": proportional_equality(
                    y[held],
                    prob,
                    sensitive_features=a[held],
                    base_rates=rates,
                    reference_group=reference,
                    kind="deterministic",
                ),
                "epoch": alone.epoch[0],
            }
            own = frame[(frame["split"] == s) & (frame["calibrate"] == (how or "none"))]
            trial = trials[i]
            own = own[(own["loss"] == trial.loss) & (own["weights"] == trial.weights)]
            own = own[own["lam"] == trial.lam]
            if trial.control is not None:
                own = own[own["control"] == trial.control]
            assert len(own) == 1
            for name, value in expected.items():
                assert own[name].item() == pytest.approx(value, rel=1e-4, abs=1e-6), (s, how, name)


def test_halving_keeps_equal_sides(fitted):
    search = fitted[0]
    frame = search.results_
    sides = frame.groupby(["split", frame["loss"] == "ce"])["calibrate"].count().unstack() / 4
    assert sides[True].tolist() == sides[False].tolist() == [9, 5, 3, 3, 3]
    alive = search._found.alive
    assert alive.sum() == 6
    whole = (
        clone(search)
        .set_params(halving=False, refit=False)
        .fit(*fitted[1:3], sensitive_features=fitted[3])
    )
    assert whole._found.alive.all()
    assert len(whole.results_) == 18 * 5 * 4
    # runs are the same, whatever was dropped later
    keys = ["loss", "weights", "lam", "control", "split", "calibrate"]
    both = frame.merge(whole.results_, on=keys, suffixes=("", "_whole"))
    assert len(both) == len(frame)
    for name in ("accuracy", "pe", "ece", "log_loss"):
        np.testing.assert_allclose(both[name], both[f"{name}_whole"], rtol=1e-4, atol=1e-6)


def test_select_gives_a_model_of_the_choice(fitted):
    search, X, _, a = fitted
    with pytest.warns(UserWarning, match="no candidate of loss 'mmce' is within the limits"):
        model = search.select("ece", 1.0, loss="mmce")
    choice = model.choice_
    assert choice["loss"] == "mmce" == model.loss
    assert model.max_epochs == 3
    weights = choice["rho"] and dict(zip(["f", "m"], choice["rho"], strict=True))
    assert model.rho == weights
    assert model.calibrate == (None if choice["calibrate"] == "none" else choice["calibrate"])
    prob = model.predict_proba(X, sensitive_features=a)
    np.testing.assert_allclose(prob.sum(1), 1.0)
    best = search.best_estimator_.predict_proba(X, sensitive_features=a)
    np.testing.assert_array_equal(search.predict_proba(X, sensitive_features=a), best)
    decided = search.predict(X, sensitive_features=a)
    np.testing.assert_array_equal(decided, search.classes_[best.argmax(1)])
    table = search.candidates_
    wide = clone(search).set_params(log_loss_slack=9.0)
    wide.__dict__ |= {k: v for k, v in search.__dict__.items() if k.endswith("_") or k[0] == "_"}
    wide = wide.select(lambda row: row["val_log_loss"], slack=1.0)
    assert wide.choice_["val_log_loss"] == pytest.approx(table["val_log_loss"].min())
    with pytest.raises(ValueError, match="loss 'dca' was not tried; there are ce, ls, mmce"):
        search.select(loss="dca")


def test_plot(fitted):
    figure = fitted[0].plot()
    texts = [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    assert {"none", "common", "group", "bcts"} <= set(texts)


def test_the_reference_group():
    X, y, a = people(400, ("a", "b", "c"))
    a[a == "c"] = np.where(np.arange((a == "c").sum()) % 2, "b", "c")  # b is the largest
    options = {"loss": ("ce", "mmce"), **SMALL, "lam": (1.0,), "refit": False}
    default = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    named = {
        g: FrontierSearch(reference_group=g, **options).fit(X, y, sensitive_features=a)
        for g in "abc"
    }
    pd.testing.assert_frame_equal(default.results_, named["b"].results_)
    assert [s.reference_group_ for s in (default, *named.values())] == ["b", "a", "b", "c"]
    first = [s.results_.query("split == 0 and loss == 'ce'") for s in (named["c"], named["a"])]
    assert not np.allclose(first[0]["pe"], first[1]["pe"])
    for name in ("accuracy", "log_loss", "ece"):
        np.testing.assert_allclose(first[0][name], first[1][name], rtol=1e-9)
    for g, search in named.items():
        assert search.frontier_["reference_group"].tolist() == [g] * len(search.frontier_)
        assert search.verdict_.endswith(f"PE compares with group {g!r}.")
        assert search.comparison_["reference_group"] == g
        assert search.select("pe").reference_group_ == g
    quiet = FrontierSearch(objective="ece", **options).fit(X, y, sensitive_features=a)
    assert "PE" not in quiet.verdict_


def _not_started(monkeypatch):
    monkeypatch.setattr(search_module, "run_stages", None)


def test_a_reference_group_that_cannot_be(monkeypatch):
    _not_started(monkeypatch)
    X, y, a = people(500)
    a = a.astype(object)
    a[:9], a[9:14] = "x", "y"
    search = FrontierSearch(reference_group="z", **SMALL)
    with pytest.raises(ValueError, match=r"'z' is not one of the groups \('f', 'm', 'x', 'y'\)"):
        search.fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="needs groups; pass sensitive_features"):
        search.fit(X, y)
    with (
        pytest.warns(UserWarning, match="pooled into one"),
        pytest.raises(ValueError, match=r"'x' has fewer than 30 rows \(min_group_size\).*pooled"),
    ):
        search.set_params(reference_group="x").fit(X, y, sensitive_features=a)


def test_a_group_that_is_too_small_is_said_before_training(monkeypatch):
    _not_started(monkeypatch)
    X, y, a = people(300)
    a = a.astype(object)
    a[0] = "x"
    search = FrontierSearch(small_groups="keep", **SMALL)
    with pytest.raises(ValueError, match=r"group 'x' \(1 of 300 rows\) has no row in a "):
        search.fit(X, y, sensitive_features=a)
    a[0] = "f"
    y[a == "m"] = 0
    search.set_params(reference_group="m")
    with pytest.raises(
        ValueError, match=r"'m', which PE compares with, has too few rows of label .1."
    ):
        search.fit(X, y, sensitive_features=a)
    lonely = FrontierSearch(("mmce",), control=False, **SMALL)
    with pytest.raises(ValueError, match="'balanced' is in units of cross-entropy, which is not"):
        lonely.fit(X, y, sensitive_features=a)


def test_a_pool_is_no_default_reference():
    X, y, a = people(400)
    a = a.astype(object)
    a[:300] = [f"g{i % 15}" for i in range(300)]  # 300 rows in small groups
    with pytest.warns(UserWarning, match="pooled into one"):
        search = FrontierSearch(("ce",), **SMALL, refit=False).fit(X, y, sensitive_features=a)
    assert search.groups_ == ["f", "m", POOLED]
    assert search.reference_group_ == max("fm", key=a.tolist().count)


def test_same_seed_same_result(fitted):
    search, X, y, a = fitted
    again = clone(search).fit(X, y, sensitive_features=a)
    pd.testing.assert_frame_equal(again.results_, search.results_)
    np.testing.assert_array_equal(
        again.predict_proba(X, sensitive_features=a), search.predict_proba(X, sensitive_features=a)
    )


def test_more_classes_groups_and_string_labels():
    X, y, _ = people(600, classes=3)
    rng = np.random.default_rng(1)
    a = pd.DataFrame({"sex": rng.choice(["f", "m"], 600), "old": rng.random(600) < 0.5})
    names = np.array(["low", "mid", "top"])[y]
    search = FrontierSearch(("ce", "mmce-w"), rho=["equal", "share"], **SMALL)
    search.fit(X, names, sensitive_features=a)
    assert search.groups_ == [("f", False), ("f", True), ("m", False), ("m", True)]
    assert search.classes_.tolist() == ["low", "mid", "top"]
    rhos = {t.rho for t in search._found.trials if t.loss == "mmce-w"}
    share = tuple(np.mean([tuple(v) == g for v in a.to_numpy()]) for g in search.groups_)
    np.testing.assert_allclose(sorted(rhos), sorted([(0.25,) * 4, share]))
    assert search.predict_proba(X, sensitive_features=a).shape == (600, 3)


@pytest.mark.parametrize("how", ["group", "bcts"])
def test_small_groups(how):
    X, y, a = people(500)
    a = a.astype(object)
    a[:9], a[9:20] = "x", "y"
    options = {"loss": ("ce", "mmce"), **SMALL, "calibrate": (how,)}
    with pytest.raises(ValueError, match=r"'x' \(9 rows\), 'y' \(11 rows\).*small_groups='pool'"):
        FrontierSearch(small_groups="error", **options).fit(X, y, sensitive_features=a)
    with pytest.warns(UserWarning, match="pooled into one"):
        pooled = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    assert pooled.groups_ == ["f", "m", POOLED]
    assert pooled.pooled_ == {"x": 9, "y": 11}
    scaling = pooled.best_estimator_.scaling_
    own = scaling.temperatures_ if how == "group" else scaling.calibrators_
    assert set(own) == {"f", "m", "x", "y"}
    assert own["x"] == own["y"]
    assert pooled.predict_proba(X, sensitive_features=a).shape == (500, 2)
    a[9:20] = "f"
    with pytest.warns(UserWarning, match="shrunk towards the common one"):
        single = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    assert single.groups_ == ["f", "m", "x"]
    kept = FrontierSearch(small_groups="keep", **options).fit(X, y, sensitive_features=a)
    assert kept.groups_ == ["f", "m", "x"]


def test_without_groups_the_ece_decides():
    X, y, _ = people()
    options = {**SMALL, "slack": 1.0, "log_loss_slack": 9.0}
    search = FrontierSearch(("ce", "mmce"), **options).fit(X, y)
    assert search.groups_ == []
    assert search.choice_["val_ece"] == search.candidates_["val_ece"].min()
    assert np.isnan(search.choice_["val_pe"])
    assert set(search.results_["calibrate"]) == {"none", "common", "bcts"}
    assert len(search.frontier_) >= 1
    assert search.predict_proba(X).shape == (400, 2)
    assert "PE" not in search.verdict_


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_sensitive_columns(kind):
    X, y, a = people()
    frame = kind({"x": X[:, 0], "z": X[:, 1], "sex": a})
    search = FrontierSearch(("ce", "mmce"), sensitive_columns="sex", **SMALL).fit(frame, y)
    assert search.n_features_in_ == 2
    prob = search.predict_proba(frame)
    by_hand = FrontierSearch(("ce", "mmce"), **SMALL).fit(X[:, :2], y, sensitive_features=a)
    np.testing.assert_allclose(prob, by_hand.predict_proba(X[:, :2], sensitive_features=a))


def test_time_limit_keeps_what_is_done(monkeypatch):
    X, y, a = people()
    clock = itertools.count()
    # every look at the clock is a second: the first parts are done by then
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("equipoise.search._race.PART", 4)
    options = {**SMALL, "refit": False, "workers": 1}
    search = FrontierSearch(("ce", "mmce"), time_limit=12.5, **options)
    with pytest.warns(UserWarning, match=r"stopped: \d+ of 18 runs are finished"):
        search.fit(X, y, sensitive_features=a)
    assert search.stopped_
    controls = [t.loss == "ce" for t in search._found.trials]
    assert 3 <= len(controls) < 12
    assert sum(controls) >= len(controls) / 2  # no fewer than candidates
    assert search._found.splits == [0]
    assert search.verdict_.startswith("Nothing is compared: ")
    assert "nan" not in search.verdict_
    with pytest.raises(StoppedEarly, match="0 of 18 runs were finished, too few to choose from; g"):
        search.set_params(time_limit=0.5).fit(X, y, sensitive_features=a)


def test_interrupt_keeps_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr("equipoise.search._race.PART", 4)
    X, y, a = people()
    seen, calm = [], []

    def interrupt(done, total):
        seen.append((done, total))
        if done > 14 and not calm:
            raise KeyboardInterrupt

    options = {**SMALL, "workers": 1, "folder": tmp_path / "runs"}
    search = FrontierSearch(("ce", "mmce"), progress=interrupt, **options)
    with pytest.warns(UserWarning, match="stopped: 15 of 18 runs are finished.*repeat the search"):
        search.fit(X, y, sensitive_features=a)
    assert search.stopped_
    assert search.predict_proba(X, sensitive_features=a).shape == (400, 2)
    files = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*.parquet")}
    calm.append(True)
    search.fit(X, y, sensitive_features=a)
    assert not search.stopped_
    assert seen[-1] == (18, 18)
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*.parquet")}
    assert files.items() < after.items()
    whole = FrontierSearch(("ce", "mmce"), **SMALL).fit(X, y, sensitive_features=a)
    pd.testing.assert_frame_equal(whole.results_, search.results_)
    assert (whole.verdict_, whole.choice_) == (search.verdict_, search.choice_)


def test_a_folder_keeps_the_seed_and_refuses_another_search(tmp_path):
    X, y, a = people(200)
    options = {"loss": ("ce", "mmce"), **SMALL, "refit": False, "folder": tmp_path}
    options["random_state"] = None
    first = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    again = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    pd.testing.assert_frame_equal(first.results_, again.results_)
    with pytest.raises(ValueError, match=r"holds another search \(its max_epochs differ\)"):
        FrontierSearch(**{**options, "max_epochs": 4}).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="holds runs on other data"):
        FrontierSearch(**options).fit(2 * X, y, sensitive_features=a)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": ("ce", "svm")}, "unknown loss 'svm'; there are ce"),
        ({"loss": ()}, "at least one"),
        ({"lam": ()}, "at least one"),
        ({"n_seeds": 0}, "n_seeds must be at least 1"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"calibrate": ("each",)}, "calibrate must list"),
        ({"calibrate": ()}, "calibrate must list"),
        ({"slack": 0.0}, "slack must be positive"),
        ({"log_loss_slack": -0.1}, "log_loss_slack must not be negative"),
        ({"objective": "best"}, "unknown objective .best.; use one of balanced, pe, ece"),
        ({"small_groups": "drop"}, "small_groups must be"),
        ({"time_limit": 0}, "time_limit must be positive"),
        ({"rho": {"f": 1.0}}, "rho names the groups"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"engine": "spark"}, "unknown engine 'spark'; there are local, ray"),
        ({"address": "a:1"}, "an address is for engine='ray'"),
    ],
)
def test_bad_parameters(parameters, message, monkeypatch):
    _not_started(monkeypatch)
    X, y, a = people(100)
    with pytest.raises(ValueError, match=message):
        FrontierSearch(**{**SMALL, **parameters}).fit(X, y, sensitive_features=a)


def test_an_objective_that_nothing_reaches_loses_nothing(tmp_path):
    X, y, a = people(200)
    options = {"loss": ("ce", "mmce"), **SMALL, "refit": False, "folder": tmp_path}
    search = FrontierSearch(objective=lambda _: float("nan"), **options)
    with pytest.raises(ValueError, match="the objective is not finite for any candidate"):
        search.fit(X, y, sensitive_features=a)
    assert len(search.results_)
    with pytest.raises(TypeError, match=r"the objective returned .x. .str.; it must"):
        search.set_params(objective=lambda _: "x").fit(X, y, sensitive_features=a)
    assert search.set_params(objective="pe").fit(X, y, sensitive_features=a).choice_


def test_runs_that_diverge_are_not_chosen(monkeypatch):
    X, y, a = people(200)

    def broken(split, configs, **options):
        best = train_to_best(split, configs, **options)
        for i, config in enumerate(configs):
            if config.lam == 5.0:
                best.epoch[i] = 0
                best.val_log_loss[i] = np.nan
                for logits in best.logits.values():
                    logits[i] = np.nan
        return best

    monkeypatch.setattr("equipoise.search._part.train_to_best", broken)
    search = FrontierSearch(("ce", "dca"), **SMALL, halving=False, refit=False)
    search.fit(X, y, sensitive_features=a)
    assert (search.candidates_["lam"] == 1.0).all()
    lost = search.results_["lam"] == 5.0
    assert lost.any()
    assert search.results_.loc[lost, "accuracy"].isna().all()
    with pytest.raises(ValueError, match="every run diverged; lower the learning rate or lam"):
        FrontierSearch(("ce",), **{**SMALL, "learning_rate": 1e30}).fit(X, y, sensitive_features=a)


def test_not_fitted_and_not_refitted():
    search = FrontierSearch(("ce",), refit=False, **SMALL)
    with pytest.raises(NotFittedError):
        search.select()
    with pytest.raises(NotFittedError):
        _ = search.frontier_
    X, y, a = people()
    with pytest.raises(AttributeError, match="use select"):
        search.fit(X, y, sensitive_features=a).predict(X)
    assert isinstance(search.select(), GroupwiseMLPClassifier)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*too few to hold any out")
@parametrize_with_checks(
    [FrontierSearch(("ce", "mmce"), lam=(1.0,), n_seeds=1, max_epochs=20, learning_rate=0.01)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "repeated rows change splits and batches"
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# --- weights and files -----------------------------------------------------------------------


def test_weights_of_one_and_rows_of_weight_zero():
    X, y, a = people(200)
    more = people(60, seed=3)
    both = [np.concatenate(pair) for pair in zip((X, y, a), more, strict=True)]
    weights = np.repeat([3.0, 0.0], [200, 60])
    plain, ones, zeros = (
        FrontierSearch(("ce", "dca"), **SMALL).fit(
            rows[0], rows[1], sensitive_features=rows[2], sample_weight=weight
        )
        for rows, weight in (((X, y, a), None), ((X, y, a), np.ones(200)), (both, weights))
    )
    for other in (ones, zeros):
        pd.testing.assert_frame_equal(other.results_, plain.results_)
        assert other.verdict_ == plain.verdict_
        expected = plain.predict_proba(X, sensitive_features=a)
        np.testing.assert_array_equal(other.predict_proba(X, sensitive_features=a), expected)


def test_weights_reach_the_losses_the_metrics_and_the_model():
    X, y, a = people(300)
    weight = np.random.default_rng(0).uniform(0.2, 5.0, 300)
    options = {**SMALL, "objective": "ece"}
    search = FrontierSearch(("ce", "dca"), "share", **options)
    search.fit(X, y, sensitive_features=a, sample_weight=weight)
    plain = FrontierSearch(("ce", "dca"), "share", **options).fit(X, y, sensitive_features=a)
    share = tuple(weight[a == g].sum() / weight.sum() for g in ("f", "m"))
    found = {t for t in search.results_["rho"] if t is not None}
    assert len(found) == 1
    assert found.pop() == pytest.approx(share)
    both = [s.results_.query("split == 0 and calibrate == 'common'") for s in (search, plain)]
    for name in ("val_log_loss", "accuracy", "ece", "log_loss"):
        assert not np.allclose(both[0][name], both[1][name])
    assert not np.allclose(*(s.predict_proba(X, sensitive_features=a) for s in (search, plain)))
    with pytest.raises(ValueError, match="not negative"):
        search.fit(X, y, sensitive_features=a, sample_weight=-weight)


def tidy(value):
    """Return a text that does not depend on the order of names, and in which nan is itself."""
    return json.dumps(value, sort_keys=True, default=str)


@pytest.mark.parametrize("refit", [True, False])
def test_a_saved_search_shows_and_predicts(tmp_path, refit):
    X, y, a = people(500, groups=("f", "m", "x", "z"))
    a[a == "x"], a[a == "z"] = "m", "m"
    a[:20], a[20:35] = "x", "z"  # too few, so pooled
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=a)
    labels = np.array(["no", "yes"])[y]
    search = FrontierSearch(
        ("ce", "dca"),
        ["equal", {"f": 0.2, "m": 0.3, POOLED: 0.5}],
        **SMALL | {"random_state": np.random.RandomState(0)},
        sensitive_columns="sex",
        refit=refit,
        cv=KFold(3, shuffle=True, random_state=0),
        progress=lambda *_: None,
    )
    with pytest.warns(UserWarning, match="pooled into one"):
        search.fit(frame, labels)
    search.save(tmp_path / "search")
    loaded = FrontierSearch.load(tmp_path / "search")
    pd.testing.assert_frame_equal(loaded.results_, search.results_)
    pd.testing.assert_frame_equal(loaded.frontier_, search.frontier_)
    assert loaded.pooled_ == search.pooled_ == {"x": 20, "z": 15}
    for name in ("verdict_", "comparison_", "choice_", "groups_", "stopped_", "n_features_in_"):
        assert tidy(getattr(loaded, name)) == tidy(getattr(search, name)), name
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    ours, theirs = search.get_params(), loaded.get_params()
    for name, default in (("cv", None), ("progress", False), ("random_state", None)):
        assert theirs.pop(name) is default
        del ours[name]
    assert theirs == ours
    if refit:
        np.testing.assert_array_equal(loaded.predict_proba(frame), search.predict_proba(frame))
        assert tidy(loaded.best_estimator_.choice_) == tidy(search.best_estimator_.choice_)
    else:
        with pytest.raises(AttributeError, match="refit=False"):
            loaded.predict(frame)
    with pytest.raises(ValueError, match=r"has no rows, and select\(\) trains on them; call fit"):
        loaded.select()
    with pytest.warns(UserWarning, match="pooled into one"):
        assert loaded.set_params(refit=False).fit(frame, labels).select().classes_.tolist()


def test_what_cannot_be_saved_or_loaded_is_refused(tmp_path, fitted):
    search, X, y, a = fitted
    with pytest.raises(NotFittedError):
        FrontierSearch().save(tmp_path / "unfitted")
    mine = clone(search).set_params(objective=lambda row: row["val_ece"], refit=False)
    mine.fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match=r"objective is a function.*set_params"):
        mine.save(tmp_path / "mine")
    mine.set_params(objective="ece").save(tmp_path / "mine")
    assert FrontierSearch.load(tmp_path / "mine").objective == "ece"
    search.best_estimator_.save(tmp_path / "model")
    with pytest.raises(ValueError, match="model is not a saved FrontierSearch: its format is"):
        FrontierSearch.load(tmp_path / "model")
    about, arrays = read_model(tmp_path / "mine")
    write_model(tmp_path / "less", {**about, "trials": about["trials"][1:]}, arrays)
    with pytest.raises(ValueError, match="results do not fit its configurations"):
        FrontierSearch.load(tmp_path / "less")
