"""FrontierSearch and what it finds, against plain loops and runs made by hand."""

import itertools
import json
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from equipoise import FrontierSearch
from equipoise._files import read_model, write_model
from equipoise.cli import main
from equipoise.cli._search import FILES
from equipoise.datasets import Part, Split, split_rows
from equipoise.search import POOLED, mean_interval
from equipoise.search import _search as search_module
from equipoise.search._results import Tradeoffs, Trial
from equipoise.training import Config, GroupwiseMLPClassifier, train_stack

SMALL = {
    "lam": (1.0, 5.0),
    "n_seeds": 2,
    "max_epochs": 3,
    "hidden_layer_sizes": (8,),
    "learning_rate": 0.01,
}
SMALL["random_state"] = 0


def people(n=400, groups=("f", "m"), classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(n, 3)), rng.choice(list(groups), n)
    score = X[:, 0] + 0.5 * (a == groups[0]) + rng.normal(size=n)
    return X, np.digitize(score, np.linspace(-0.5, 0.5, classes - 1) if classes > 2 else [0.0]), a


# --- what was found --------------------------------------------------------------------------

COLUMNS = ("accuracy", "pe_deterministic", "diverged")
SCALED = ("pe", "ece15", "log_loss")


def found(seed=0, losses=("ce", "ce", "mmce", "dca"), splits=3, epochs=4):
    """Make up measurements, so that every choice has an oracle."""
    rng = np.random.default_rng(seed)
    shape = (len(losses), splits, epochs)
    columns = {"diverged": np.zeros(shape)}
    for part in ("val", "test"):
        columns[f"{part}_accuracy"] = rng.uniform(0.7, 0.8, shape)
        columns[f"{part}_pe_deterministic"] = rng.random(shape)
        for how, metric in itertools.product(("", "_group"), SCALED):
            columns[f"{part}{how}_{metric}"] = rng.random(shape)
    trials = [Trial(t, None if t == "ce" else (0.5, 0.5), 1.0, i) for i, t in enumerate(losses)]
    return Tradeoffs(trials, columns, (None, "group"))


def plain_points(f):
    """List the points one by one, with means over the splits."""
    rows = []
    for how, (i, trial), epoch in itertools.product(
        f.calibrate, enumerate(f.trials), range(f.columns["diverged"].shape[2])
    ):
        prefix = "val" if how is None else f"val_{how}"
        mean = {
            "accuracy": np.mean(f.columns["val_accuracy"][i, :, epoch]),
            "pe": np.mean(f.columns[f"{prefix}_pe"][i, :, epoch]),
            "ece": np.mean(f.columns[f"{prefix}_ece15"][i, :, epoch]),
        }
        rows.append({"loss": trial.loss, "how": how or "none", "epoch": epoch + 1, **mean})
    best = max(r["accuracy"] for r in rows)
    return [r | {"in": r["accuracy"] > best - 0.05} for r in rows]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objective", ["pe", "ece", "balanced"])
def test_choice_equals_a_plain_loop(seed, objective):
    f = found(seed)
    rows = plain_points(f)
    ce = [r for r in rows if r["in"] and r["loss"] == "ce"]
    units = [np.median([r[m] for r in ce]) for m in ("pe", "ece")]
    scores = {
        "pe": lambda r: r["pe"],
        "ece": lambda r: r["ece"],
        "balanced": lambda r: r["pe"] / units[0] + r["ece"] / units[1],
    }
    expected = min((r for r in rows if r["in"]), key=scores[objective])
    chosen = f.choice(objective, 0.05)
    assert (chosen["loss"], chosen["calibrate"], chosen["epoch"]) == (
        expected["loss"],
        expected["how"],
        expected["epoch"],
    )
    assert chosen["val_pe"] == pytest.approx(expected["pe"], rel=1e-12)
    assert f.choice(lambda row: -row["val_accuracy"], 0.05)["val_accuracy"] == pytest.approx(
        max(r["accuracy"] for r in rows)
    )


def test_test_figures_choose_nothing():
    f = found(1)
    before = [f.choice(o, 0.05)["point"] for o in ("pe", "ece", "balanced")]
    for name in f.columns:
        if name.startswith("test"):
            f.columns[name][:] = np.random.default_rng(9).random(f.columns[name].shape)
    assert [f.choice(o, 0.05)["point"] for o in ("pe", "ece", "balanced")] == before


def test_frontier_equals_brute_force():
    f = found(2)
    rows = [r for r in plain_points(f) if r["in"]]
    expected = [
        r
        for r in rows
        if not any(
            q["pe"] <= r["pe"]
            and q["ece"] <= r["ece"]
            and (q["pe"], q["ece"]) != (r["pe"], r["ece"])
            for q in rows
        )
    ]
    frame = f.frontier(0.05)
    assert len(frame) == len(expected)
    assert frame["val_pe"].tolist() == pytest.approx(sorted(r["pe"] for r in expected))
    assert ((frame["frequency"] >= 0) & (frame["frequency"] <= 1)).all()
    row = frame.iloc[0]
    i = next(k for k, t in enumerate(f.trials) if t.control == row["control"])
    prefix = "test" if row["calibrate"] == "none" else f"test_{row['calibrate']}"
    values = f.columns[f"{prefix}_pe"][i, :, row["epoch"] - 1]
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert row["test_pe"] == pytest.approx(values.mean())
    assert row["test_pe_low"] == pytest.approx(max(low, 0.0))
    assert row["test_pe_high"] == pytest.approx(high)


def test_interval_of_one_split_is_unknown():
    assert mean_interval(np.array([1.0])) is None


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        (-0.3, "mmce beats cross-entropy"),
        (0.0, "No loss clearly beats"),
        (0.5, "the choice is cross-entropy itself"),
    ],
)
def test_verdict(shift, words):
    f = found(3, ("ce", "mmce"))
    rng = np.random.default_rng(0)
    for name, values in f.columns.items():
        if name.endswith("_pe"):
            values[:] = 0.5 + 0.001 * rng.random(values.shape)
            values[1] += shift
            if shift == 0.0:  # a little better on validation, by chance
                values[1] -= 0.01 * name.startswith("val")
        if name.endswith("accuracy"):
            values[:] = 0.8
    text, numbers = f.verdict("pe", 0.05)
    assert words in text
    if shift < 0:
        assert numbers["difference"] == pytest.approx(0.3, abs=0.01)
        assert numbers["interval"][0] > 0
    assert f.verdict(lambda row: row["val_pe"], 0.05)[0].split(":")[0] == text.split(":")[0]


def test_verdict_without_a_control_within_the_slack():
    f = found(3, ("ce", "mmce"))
    f.columns["val_accuracy"][0] = 0.1
    f.columns["val_accuracy"][1] = 0.8
    assert "nothing within the slack" in f.verdict("pe", 0.05)[0]


# --- the search ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y, a = people()
    search = FrontierSearch(("ce", "ls", "mmce"), **SMALL)
    return search.fit(X, y, sensitive_features=a), X, y, a


def test_the_grid(fitted):
    search, _, _, a = fitted
    trials = search._found.trials
    share = np.array([(a == "f").mean(), (a == "m").mean()])
    wanted = [tuple((1 - t) / 2 + t * share) for t in (0, 0.5, 1)]
    for name, lams in (("ls", [1.0]), ("mmce", [1.0, 5.0])):
        own = [(t.rho, t.lam) for t in trials if t.loss == name]
        assert len(own) == 3 * len(lams)
        for rho, lam in itertools.product(wanted, lams):
            assert any(lam == q and r == pytest.approx(rho) for r, q in own)
    # cross-entropy has as many runs as the loss with the most, and comes first
    assert [t.control for t in trials if t.loss == "ce"] == list(range(6))
    assert [t.loss for t in trials[:6]] == ["ce"] * 6


def test_figures_are_those_of_the_engine(fitted):
    search, X, y, a = fitted
    members = (a == "m").astype(np.int64)
    seed, trials = search._seed, search._found.trials
    inits = np.random.default_rng(seed).integers(2**31, size=(2, 6))
    frame = search.results_
    assert len(frame) == len(trials) * 2 * 3
    for s in (0, 1):
        cut = split_rows(len(y), seed + s, members * 2 + y)
        mean, scale = X[cut[0]].mean(0), X[cut[0]].std(0)
        parts = [Part(((X[r] - mean) / scale).astype(np.float32), y[r], members[r], r) for r in cut]
        i = next(k for k, t in enumerate(trials) if t.loss == "mmce")
        config = Config("mmce", trials[i].rho, trials[i].lam, int(inits[s, 0]), 0.01)
        alone = train_stack(
            Split(*parts, None),
            [config],
            max_epochs=3,
            hidden_layer_sizes=(8,),
            split_seed=seed + s,
            reference=int(np.bincount(members).argmax()),
        )
        own = frame[
            (frame["split"] == s)
            & (frame["loss"] == "mmce")
            & (frame["lam"] == trials[i].lam)
            & (frame["rho"].map(lambda r, i=i: r == trials[i].rho))
        ]
        for name in ("val_pe", "val_group_ece15", "test_accuracy", "test_log_loss"):
            np.testing.assert_allclose(own[name], alone.columns[name][0], rtol=1e-4, atol=1e-5)


def test_select_gives_a_model_of_the_choice(fitted):
    search, X, _, a = fitted
    model = search.select("ece", 1.0, loss="mmce")
    choice = model.choice_
    assert choice["loss"] == "mmce" == model.loss
    assert model.max_epochs == choice["epoch"]
    assert model.n_iter_ == choice["epoch"]
    assert model.rho == dict(zip(["f", "m"], choice["rho"], strict=True))
    assert model.calibrate == (None if choice["calibrate"] == "none" else choice["calibrate"])
    prob = model.predict_proba(X, sensitive_features=a)
    np.testing.assert_allclose(prob.sum(1), 1.0)
    best = search.best_estimator_.predict_proba(X, sensitive_features=a)
    np.testing.assert_array_equal(search.predict_proba(X, sensitive_features=a), best)
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    wide = search.select(lambda row: row["val_log_loss"], slack=1.0)
    table = search._found.table()
    assert wide.choice_["val_log_loss"] == pytest.approx(np.nanmin(table["val_log_loss"]))


def test_plot(fitted):
    from matplotlib.figure import Figure

    search = fitted[0].set_params(slack=1.0)
    axes = search.plot(Figure().subplots())
    search.set_params(slack=0.05)
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert {"ce", "mmce", "mmce + group"} <= set(labels)
    assert axes.get_xlabel() == f"PE on validation, compared with {search.reference_group_}"


def test_the_reference_group():
    X, y, a = people(400, ("a", "b", "c"))
    a[a == "c"] = np.where(np.arange((a == "c").sum()) % 2, "b", "c")  # b is the largest
    options = {"loss": ("ce", "mmce"), **SMALL, "refit": False}
    default = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    named = {
        g: FrontierSearch(reference_group=g, **options).fit(X, y, sensitive_features=a)
        for g in "abc"
    }
    pd.testing.assert_frame_equal(default.results_, named["b"].results_)
    assert [s.reference_group_ for s in (default, *named.values())] == ["b", "a", "b", "c"]
    # groups in another order, with the reference in the first place
    other = {"a": "3a", "b": "2b", "c": "1c"}
    renamed = FrontierSearch(reference_group="1c", **options)
    renamed.fit(X, y, sensitive_features=[other[g] for g in a])
    ce = [s.results_.query("loss == 'ce'") for s in (named["c"], renamed, named["a"])]
    assert not np.allclose(ce[0]["val_pe"], ce[2]["val_pe"])
    for name in ("val_accuracy", "test_log_loss", "val_group_ece15"):
        np.testing.assert_allclose(ce[0][name], ce[2][name], rtol=1e-9)
    for g, search in named.items():
        assert search.frontier_["reference_group"].tolist() == [g] * len(search.frontier_)
        assert search.verdict_.endswith(f"PE compares with group {g!r}.")
        assert search.comparison_["reference_group"] == g
        assert search.select("pe").reference_group_ == g
    quiet = FrontierSearch(objective="ece", **options).fit(X, y, sensitive_features=a)
    assert "PE" not in quiet.verdict_


def test_a_reference_group_that_cannot_be(monkeypatch):
    monkeypatch.setattr(search_module, "train_stack", None)
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
        pytest.raises(ValueError, match=r"'x' has fewer than min_group_size=30 .*pooled"),
    ):
        search.set_params(reference_group="x").fit(X, y, sensitive_features=a)


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


def test_small_groups():
    X, y, a = people(500)
    a = a.astype(object)
    a[:9], a[9:14] = "x", "y"
    options = {"loss": ("ce", "mmce"), **SMALL, "calibrate": ("group",)}
    with pytest.raises(ValueError, match=r"'x' \(9 rows\), 'y' \(5 rows\).*small_groups='pool'"):
        FrontierSearch(small_groups="error", **options).fit(X, y, sensitive_features=a)
    with pytest.warns(UserWarning, match="pooled into one"):
        pooled = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    assert pooled.groups_ == ["f", "m", POOLED]
    assert pooled.pooled_ == {"x": 9, "y": 5}
    temperatures = pooled.best_estimator_.temperatures_
    assert set(temperatures) == {"f", "m", "x", "y"}
    assert temperatures["x"] == temperatures["y"]
    assert pooled.predict_proba(X, sensitive_features=a).shape == (500, 2)
    a[9:14] = "f"
    with pytest.warns(UserWarning, match="shrunk towards the common one"):
        single = FrontierSearch(**options).fit(X, y, sensitive_features=a)
    assert single.groups_ == ["f", "m", "x"]
    kept = FrontierSearch(small_groups="keep", **options).fit(X, y, sensitive_features=a)
    assert kept.groups_ == ["f", "m", "x"]


def test_without_groups_the_ece_decides():
    X, y, _ = people()
    search = FrontierSearch(("ce", "mmce"), slack=1.0, **SMALL).fit(X, y)
    assert search.groups_ == []
    assert search.best_estimator_.choice_["val_ece"] == np.nanmin(search._found.table()["val_ece"])
    assert len(search.frontier_) >= 1
    assert search.predict_proba(X).shape == (400, 2)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_sensitive_columns(kind):
    X, y, a = people()
    frame = kind({"x": X[:, 0], "z": X[:, 1], "sex": a})
    search = FrontierSearch(("ce", "mmce"), sensitive_columns="sex", **SMALL).fit(frame, y)
    assert search.n_features_in_ == 2
    prob = search.predict_proba(frame)
    by_hand = FrontierSearch(("ce", "mmce"), **SMALL).fit(X[:, :2], y, sensitive_features=a)
    np.testing.assert_allclose(prob, by_hand.predict_proba(X[:, :2], sensitive_features=a))


def test_cv_makes_the_splits():
    X, y, a = people(300)
    search = FrontierSearch(("ce",), cv=3, **{**SMALL, "n_seeds": 1})
    assert search.fit(X, y, sensitive_features=a)._found.splits == 3


def test_time_limit_keeps_what_is_done(monkeypatch):
    monkeypatch.setattr(search_module, "BLOCK", 2)
    X, y, a = people()
    clock = itertools.count()
    # every look at the clock is a second: the control's first blocks are done by then
    monkeypatch.setattr(search_module.time, "monotonic", lambda: next(clock))
    search = FrontierSearch(("ce", "mmce"), time_limit=30.5, refit=False, **SMALL)
    with pytest.warns(UserWarning, match="of 12 configurations are done"):
        search.fit(X, y, sensitive_features=a)
    assert search.stopped_
    done = len(search._found.trials)
    assert 2 <= done < 12
    assert not np.isnan(search.results_["val_pe"]).any()
    with pytest.raises(ValueError, match="before anything was finished; give it more time"):
        search.set_params(time_limit=0.5).fit(X, y, sensitive_features=a)


def test_interrupt_keeps_what_is_done(monkeypatch):
    monkeypatch.setattr(search_module, "BLOCK", 4)
    X, y, a = people()

    def interrupt(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    search = FrontierSearch(("ce", "mmce"), progress=interrupt, **SMALL)
    with pytest.warns(UserWarning, match="the search was stopped; 4 of 12"):
        search.fit(X, y, sensitive_features=a)
    assert search.stopped_
    assert search.predict_proba(X, sensitive_features=a).shape == (400, 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": ("ce", "svm")}, "unknown loss 'svm'; there are ce"),
        ({"loss": ()}, "at least one"),
        ({"lam": ()}, "at least one"),
        ({"n_seeds": 0}, "n_seeds must be at least 1"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"calibrate": ("each",)}, "calibrate must list"),
        ({"calibrate": ()}, "calibrate must list"),
        ({"slack": 0.0}, "slack must be positive"),
        ({"objective": "best"}, "unknown objective .best.; use one of balanced, pe, ece"),
        ({"small_groups": "drop"}, "small_groups must be"),
        ({"time_limit": 0}, "time_limit must be positive"),
        ({"rho": {"f": 1.0}}, "rho names the groups"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y, a = people(100)
    with pytest.raises(ValueError, match=message):
        FrontierSearch(**{**SMALL, **parameters}).fit(X, y, sensitive_features=a)


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
    for name in ("train_loss", "val_log_loss", "test_accuracy", "temperature_0"):
        assert not np.allclose(search.results_[name], plain.results_[name])
    assert not np.allclose(*(s.predict_proba(X, sensitive_features=a) for s in (search, plain)))
    with pytest.raises(ValueError, match="not negative"):
        search.fit(X, y, sensitive_features=a, sample_weight=-weight)


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
        cv=KFold(3),
        progress=lambda *_: None,
    )
    with pytest.warns(UserWarning, match="pooled into one"):
        search.fit(frame, labels)
    search.save(tmp_path / "search")
    loaded = FrontierSearch.load(tmp_path / "search")
    pd.testing.assert_frame_equal(loaded.results_, search.results_)
    pd.testing.assert_frame_equal(loaded.frontier_, search.frontier_)
    assert loaded.pooled_ == search.pooled_ == {"x": 20, "z": 15}
    for name in ("verdict_", "comparison_", "groups_", "stopped_", "n_features_in_"):
        assert repr(getattr(loaded, name)) == repr(getattr(search, name)), name
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    ours, theirs = search.get_params(), loaded.get_params()
    for name, default in (("cv", None), ("progress", False), ("random_state", None)):
        assert theirs.pop(name) is default
        del ours[name]
    assert theirs == ours
    if refit:
        np.testing.assert_array_equal(loaded.predict(frame), search.predict(frame))
        np.testing.assert_array_equal(loaded.predict_proba(frame), search.predict_proba(frame))
        assert loaded.best_estimator_.choice_ == search.best_estimator_.choice_
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


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    X, y, a = people(500, ("f", "m"))
    frame = pd.DataFrame({"x": X[:, 0], "job": np.where(X[:, 1] > 0, "cook", "smith")})
    frame["sex"], frame["paid"] = a, np.where(y == 1, "yes", "no")
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    return path


OPTIONS = [
    "--label",
    "paid",
    "--group",
    "sex",
    "--n-seeds",
    "2",
    "--max-epochs",
    "3",
    "--lam",
    "1",
]
OPTIONS += ["--loss", "ce", "--loss", "mmce"]


def test_command(table, tmp_path):
    out = tmp_path / "found"
    arguments = ["search", str(table), *OPTIONS, "--out", str(out)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "Chosen: " in result.output
    largest = pd.read_csv(table)["sex"].value_counts().idxmax()
    said = " ".join(result.output.split())
    assert said.count(f"PE compares with group '{largest}'.") == 2  # the frontier, the verdict
    assert "cross-entropy" in result.output
    assert {p.name for p in out.iterdir()} == set(FILES)
    frontier = pd.read_csv(out / "frontier.csv")
    results = pd.read_parquet(out / "results.parquet")
    assert len(results) == 6 * 2 * 3
    assert set(frontier["loss"]) <= {"ce", "mmce"}
    predictions = tmp_path / "predictions.csv"
    model = str(out / "model.safetensors")
    again = CliRunner().invoke(main, ["predict", model, str(table), "--out", str(predictions)])
    assert again.exit_code == 0, again.output
    assert pd.read_csv(predictions)["prob_yes"].between(0, 1).all()
    choice = GroupwiseMLPClassifier.load(model).extra_["choice"]
    assert json.dumps(choice)
    assert choice["loss"] in ("ce", "mmce")
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "pass --force" in refused.output


def test_command_refuses_before_any_work(table, tmp_path):
    below_a_file = str(table / "sub")
    result = CliRunner().invoke(main, ["search", str(table), *OPTIONS, "--out", below_a_file])
    assert result.exit_code == 2
    assert "no folder that can be written to" in result.output
    wrong = [*OPTIONS, "--label", "pay", "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(main, ["search", str(table), *wrong])
    assert result.exit_code == 2
    assert "pay" in result.output
    wrong = [*OPTIONS, "--reference", "x", "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(main, ["search", str(table), *wrong])
    assert result.exit_code == 2
    assert "--reference: there is no group 'x'; there are f; m" in result.output
    assert not (tmp_path / "o").exists()


def test_command_with_another_reference(table, tmp_path):
    sizes = pd.read_csv(table)["sex"].value_counts()
    out = str(tmp_path / "found")
    arguments = ["search", str(table), *OPTIONS, "--loss", "ce", "--out", out]
    arguments += ["--reference", sizes.idxmin()]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert f"PE compares with group '{sizes.idxmin()}'." in " ".join(result.output.split())
    assert (
        pd.read_csv(tmp_path / "found" / "frontier.csv")["reference_group"] == sizes.idxmin()
    ).all()
    model = GroupwiseMLPClassifier.load(tmp_path / "found" / "model.safetensors")
    assert model.reference_group_ == sizes.idxmin()


def test_matplotlib_is_missed_before_any_work(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["search", str(table), *OPTIONS, "--out", str(out)])
    assert result.exit_code == 2
    assert "drawing needs matplotlib" in result.stderr
    assert not out.exists()
