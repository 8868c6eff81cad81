"""GroupwiseMLPClassifier: scikit-learn's contract, groups by argument and by column, files."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracle_metrics as oracle
from equipoise import GroupwiseMLPClassifier
from equipoise._files import write_model
from equipoise.calibration import NoGroupsWarning
from equipoise.metrics import log_loss
from equipoise.training import LOSSES, Config, checked_rows, resolve_rho, train_stack
from equipoise.training._rows import hold_out

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "repeated rows change what is held out"
}


@pytest.mark.slow
@parametrize_with_checks(
    [GroupwiseMLPClassifier(max_epochs=100)], expected_failed_checks=lambda _: EXPECTED
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def sample(n=400, classes=2, groups=("f", "m"), seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    group = np.array(groups, dtype=object)[rng.integers(0, len(groups), n)]
    score = 2 * X[:, :classes] + (group == groups[0])[:, None] * np.arange(classes)
    y = np.array(["ay", "bee", "sea"])[(score + rng.gumbel(size=score.shape)).argmax(axis=1)]
    return X, y, group


FAST = {"max_epochs": 15, "hidden_layer_sizes": (16,), "random_state": 0}


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("classes", "groups"), [(2, ("f", "m")), (3, ("f", "m", "x"))])
def test_every_loss_learns(loss, classes, groups):
    X, y, group = sample(900, classes, groups)
    options = FAST | {"max_epochs": 60, "random_state": 1}
    model = GroupwiseMLPClassifier(loss, learning_rate=0.01, **options)
    model.fit(X[:600], y[:600], sensitive_features=group[:600])
    assert model.score(X[600:], y[600:]) > (0.7 if classes == 2 else 0.6)
    prob = model.predict_proba(X[600:], sensitive_features=group[600:])
    assert prob.shape == (300, classes)
    np.testing.assert_allclose(prob.sum(axis=1), 1.0)
    assert model.classes_[prob.argmax(axis=1)].tolist() == model.predict(X[600:]).tolist()
    assert set(model.temperatures_) == set(groups)
    assert log_loss(y[600:], prob, labels=model.classes_) < np.log(classes) * 0.8


def test_it_is_the_engine_with_one_configuration():
    X, y, group = sample(300)
    model = GroupwiseMLPClassifier(
        "dca", 0.3, 3.0, early_stopping=None, calibrate=None, **FAST | {"max_epochs": 4}
    ).fit(X, y, sensitive_features=group)
    seeds = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=3)
    split = hold_out(checked_rows(model, X, y, group, None), 0.125, seeds[0])
    assert len(split.val.y) == 38
    config = Config("dca", (0.7, 0.3), 3.0, int(seeds[1]), 1e-3)
    result = train_stack(
        split,
        [config],
        max_epochs=4,
        hidden_layer_sizes=(16,),
        split_seed=int(seeds[2]),
        keep_epochs=(4,),
    )
    for (weight, bias), (w, b) in zip(model.layers_, result.layers[4][0], strict=True):
        np.testing.assert_array_equal(weight, w.numpy())
        np.testing.assert_array_equal(bias, b.numpy())
    assert model.history_["log_loss"] == pytest.approx(result.columns["val_log_loss"][0], rel=1e-6)
    assert model.n_iter_ == model.best_epoch_ == 4


@pytest.mark.parametrize("watched", ["log_loss", None])
@pytest.mark.parametrize("hidden", [(16,), (8, 5, 4)])
def test_the_logits_of_several_networks_are_averaged(watched, hidden, tmp_path):
    X, y, group = sample(300)
    options = FAST | {"early_stopping": watched, "max_epochs": 6, "hidden_layer_sizes": hidden}
    model = GroupwiseMLPClassifier("mmce", n_networks=3, patience=40, **options)
    model.fit(X, y, sensitive_features=group)
    seeds = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=5)
    split = hold_out(checked_rows(model, X, y, group, None), 0.125, seeds[0])
    result = train_stack(
        split,
        [Config("mmce", (0.5, 0.5), 2.0, int(seeds[i]), 1e-3) for i in (1, 3, 4)],
        max_epochs=6,
        hidden_layer_sizes=hidden,
        split_seed=int(seeds[2]),
        keep_epochs=range(1, 7),
    )
    values = result.columns["val_group_log_loss"]
    epochs = [6] * 3 if watched is None else 1 + values.argmin(axis=1)
    expected = np.zeros((len(split.val.y), 2))
    for run, epoch in enumerate(epochs):
        active = split.val.X.astype(np.float64)
        *layers, (weight, bias) = result.layers[epoch][run]
        for w, b in layers:
            active = np.maximum(active @ w.double().numpy() + b.double().numpy(), 0.0)
        expected += (active @ weight.double().numpy() + bias.double().numpy()) / 3
    np.testing.assert_allclose(model._forward(split.val.X), expected, rtol=1e-4, atol=1e-6)
    assert model.best_epoch_ == epochs[0]
    assert model.history_["log_loss"] == pytest.approx(values[0][: model.n_iter_], rel=1e-5)
    model.save(tmp_path / "model.safetensors")
    again = GroupwiseMLPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        again.predict_proba(X, sensitive_features=group),
        model.predict_proba(X, sensitive_features=group),
    )
    with pytest.raises(ValueError, match="n_networks must be at least 1"):
        model.set_params(n_networks=0).fit(X, y, sensitive_features=group)


def test_the_reference_group(tmp_path, monkeypatch):
    X, y, group = sample(300)
    group[:60] = "m"
    options = {"calibrate": None, "early_stopping": "pe", **FAST | {"max_epochs": 4}}
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=3)[0]
    found = {}
    for reference in (None, "f", "m"):
        model = GroupwiseMLPClassifier(reference_group=reference, **options)
        model.fit(X, y, sensitive_features=group)
        model.save(tmp_path / "model")
        loaded = GroupwiseMLPClassifier.load(tmp_path / "model")
        assert model.reference_group_ == loaded.reference_group_ == (reference or "m")
        found[reference] = model.history_
        split = hold_out(checked_rows(model, X, y, group, None), 0.125, seed)
        rest, val = split.train.rows, split.val.rows
        pe = oracle.proportional_equality(
            oracle.group_rates((y[rest] == "bee").astype(int), group[rest].tolist(), 2),
            oracle.model_rates(model.predict_proba(X[val]), group[val].tolist()),
            reference=model.reference_group_,
        )
        assert model.history_["pe"][model.best_epoch_ - 1] == pytest.approx(pe, rel=1e-5)
    assert found[None] == found["m"]
    assert found["f"]["pe"] != found["m"]["pe"]
    assert found["f"]["ece"] == pytest.approx(found["m"]["ece"])

    monkeypatch.setattr("equipoise.training._engine.epochs_of", None)
    model.set_params(reference_group="x")
    with pytest.raises(ValueError, match=r"'x' is not one of the groups \('f', 'm'\)"):
        model.fit(X, y, sensitive_features=group)
    with pytest.raises(ValueError, match="needs groups; pass sensitive_features"):
        model.fit(X, y)


@pytest.mark.parametrize("metric", ["log_loss", "ece", "pe", "accuracy"])
def test_early_stopping_keeps_the_best_epoch(metric):
    X, y, group = sample(300)
    model = GroupwiseMLPClassifier(
        early_stopping=metric, patience=5, learning_rate=0.02, **FAST | {"max_epochs": 60}
    ).fit(X, y, sensitive_features=group)
    seen = model.history_[metric]
    best = np.argmax(seen) if metric == "accuracy" else np.argmin(seen)
    assert model.best_epoch_ == best + 1
    assert len(seen) == model.n_iter_
    assert model.n_iter_ == 60 or model.n_iter_ == model.best_epoch_ + 5


def test_held_out_rows_are_stratified():
    X, y, group = sample(800)
    codes = np.unique(y, return_inverse=True)[1]
    members = (group == "m").astype(np.int64)
    split = hold_out(checked_rows(GroupwiseMLPClassifier(), X, y, group, None), 0.25, 1)
    assert not set(split.train.rows) & set(split.val.rows)
    assert len(split.val.y) == 200
    for label in (0, 1):
        for member in (0, 1):
            own = (codes == label) & (members == member)
            held = ((split.val.y == label) & (split.val.group == member)).sum()
            assert abs(held - own.sum() / 4) <= 1.5


def test_the_group_as_a_column_is_the_group_as_an_argument():
    X, y, group = sample()
    by_argument = GroupwiseMLPClassifier(**FAST).fit(X, y, sensitive_features=group)
    expected = by_argument.predict_proba(X, sensitive_features=group)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group)
    for table in (frame, pl.from_pandas(frame.astype({"sex": str}))):
        model = GroupwiseMLPClassifier(sensitive_columns="sex", **FAST).fit(table, y)
        np.testing.assert_allclose(model.predict_proba(table), expected, rtol=1e-6)
        assert model.n_features_in_ == 4
    with pytest.raises(ValueError, match="not both"):
        model.fit(frame, y, sensitive_features=group)
    with pytest.raises(ValueError, match="X has no column 'sex'"):
        model.predict_proba(frame.drop(columns="sex"))
    with pytest.raises(TypeError, match="X must be a data frame, got ndarray"):
        model.fit(X, y)


def test_intersections():
    X, y, group = sample()
    old = np.arange(len(y)) % 2
    frame = pd.DataFrame({"sex": group, "old": old})
    model = GroupwiseMLPClassifier(**FAST).fit(X, y, sensitive_features=frame)
    assert model.groups_ == [("f", 0), ("f", 1), ("m", 0), ("m", 1)]
    assert list(model.temperatures_) == model.groups_
    model.predict_proba(X, sensitive_features=frame)


@pytest.mark.parametrize("routing", [False, True])
def test_cross_validation_and_search_with_the_group_as_a_column(routing):
    X, y, group = sample(200)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group)
    model = GroupwiseMLPClassifier(sensitive_columns="sex", **FAST | {"max_epochs": 3})
    with sklearn.config_context(enable_metadata_routing=routing):
        scores = cross_validate(model, frame, y, cv=3, scoring="neg_log_loss")
        assert np.isfinite(scores["test_score"]).all()
        search = GridSearchCV(model, {"lam": [0.5, 2.0]}, cv=2, scoring="neg_log_loss")
        assert search.fit(frame, y).best_params_["lam"] in (0.5, 2.0)


def test_a_group_that_is_not_routed_to_prediction_is_an_error_not_a_wrong_temperature():
    X, y, group = sample(200)
    with sklearn.config_context(enable_metadata_routing=True):
        model = GroupwiseMLPClassifier(**FAST | {"max_epochs": 3})
        model.set_fit_request(sensitive_features=True)
        with pytest.raises(ValueError, match="sensitive_features were not passed"):
            cross_validate(
                model,
                X,
                y,
                cv=2,
                scoring="neg_log_loss",
                params={"sensitive_features": group},
                error_score="raise",
            )
        scores = cross_validate(  # predictions need no group
            model, X, y, cv=2, scoring="accuracy", params={"sensitive_features": group}
        )
        assert np.isfinite(scores["test_score"]).all()


def test_inside_a_pipeline_with_routing():
    X, y, group = sample(200)
    with sklearn.config_context(enable_metadata_routing=True):
        model = GroupwiseMLPClassifier(**FAST | {"max_epochs": 3})
        model.set_fit_request(sensitive_features=True)
        model.set_predict_proba_request(sensitive_features=True)
        pipe = make_pipeline(StandardScaler(), model)
        pipe.fit(X, y, sensitive_features=group)
        assert pipe.predict_proba(X, sensitive_features=group).shape == (200, 2)


@pytest.mark.parametrize("unseen", ["global", "mixture"])
def test_unseen_groups(unseen):
    X, y, group = sample()
    model = GroupwiseMLPClassifier(unseen_group=unseen, **FAST)
    model.fit(X, y, sensitive_features=group)
    with pytest.warns(NoGroupsWarning, match=f"the policy '{unseen}'"):
        anywhere = model.predict_proba(X)
    np.testing.assert_array_equal(
        anywhere, model.predict_proba(X, sensitive_features=np.full(len(X), "new"))
    )
    assert model.classes_[anywhere.argmax(axis=1)].tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("calibrate", ["group", "bcts", "common", None])
def test_calibration_kinds(calibrate):
    X, y, group = sample()
    model = GroupwiseMLPClassifier(calibrate=calibrate, **FAST)
    model.fit(X, y, sensitive_features=group)
    assert hasattr(model, "temperature_") == (calibrate in ("group", "common"))
    assert hasattr(model, "temperatures_") == (calibrate == "group")
    if calibrate in ("common", None):
        model.predict_proba(X)  # no group needed
    if calibrate == "bcts":
        logits = np.log(GroupwiseMLPClassifier(calibrate=None, **FAST).fit(
            X, y, sensitive_features=group
        ).predict_proba(X))  # fmt: skip
        for g in ("f", "m"):
            own = model.scaling_.calibrators_[g]
            assert sum(own.bias) == pytest.approx(0.0, abs=1e-12)
            z = logits / own.temperature + own.bias
            np.testing.assert_allclose(
                model.predict_proba(X, sensitive_features=[g] * len(X)),
                np.exp(z) / np.exp(z).sum(axis=1, keepdims=True),
                rtol=1e-6,
            )
        prob = model.predict_proba(X, sensitive_features=group)
        found = model.predict(X, sensitive_features=group)
        assert found.tolist() == model.classes_[prob.argmax(axis=1)].tolist()
        with pytest.raises(ValueError, match="sensitive_features were not passed"):
            model.predict(X)


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        ("equal", (0.5, 0.5)),
        ("share", None),
        (0.3, (0.7, 0.3)),
        ({"m": 0.2, "f": 0.8}, (0.8, 0.2)),
        (None, None),
    ],
)
def test_what_rho_means(rho, expected):
    _, _, group = sample()
    share = np.array([(group == "f").mean(), (group == "m").mean()])
    if rho == "share":
        expected = tuple(share)
    found = resolve_rho(rho, ["f", "m"], share)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_missing_values_are_imputed():
    X, y, group = sample()
    X[::7, 1] = np.nan
    model = GroupwiseMLPClassifier(**FAST).fit(X, y, sensitive_features=group)
    assert np.isfinite(model.predict_proba(X, sensitive_features=group)).all()
    X[3, 2] = np.inf
    with pytest.raises(ValueError, match="contains infinity"):
        model.predict(X)


def test_the_same_seed_gives_the_same_model():
    X, y, group = sample()
    models = [
        GroupwiseMLPClassifier(**FAST | {"random_state": s}).fit(X, y, sensitive_features=group)
        for s in (1, 1, 2)
    ]
    probs = [m.predict_proba(X, sensitive_features=group) for m in models]
    np.testing.assert_array_equal(probs[0], probs[1])
    assert (probs[0] != probs[2]).any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": "mcee"}, "unknown loss 'mcee'"),
        ({"early_stopping": "loss"}, "early_stopping must be None or one of"),
        ({"calibrate": "platt"}, "calibrate must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"rho": "fair"}, "rho must be 'equal', 'share', numbers or None"),
        ({"rho": 1.2}, r"rho must be within 0\.\.1"),
        ({"rho": {"f": 1.0}}, r"rho names the groups \['f'\], the data has \['f', 'm'\]"),
        ({"rho": (0.2, 0.3, 0.5)}, "does not fit the groups"),
        ({"unseen_group": "guess"}, "unseen_group must be"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes must be positive integers"),
        ({"learning_rate": 1e200}, "diverged in the first epoch"),
    ],
)
def test_mistakes_are_named(params, message):
    X, y, group = sample(60)
    with pytest.raises(ValueError, match=message):
        GroupwiseMLPClassifier(**FAST | params).fit(X, y, sensitive_features=group)


def test_a_number_does_not_weigh_three_groups():
    X, y, group = sample(90, groups=("f", "m", "x"))
    with pytest.raises(ValueError, match=r"rho=0\.5 does not fit the groups \['f', 'm', 'x'\]"):
        GroupwiseMLPClassifier(rho=0.5, **FAST).fit(X, y, sensitive_features=group)


@pytest.mark.parametrize("calibrate", ["group", "bcts", "common", None])
@pytest.mark.parametrize("rho", ["equal", {"f": 0.3, "m": 0.7}], ids=["equal", "dict"])
def test_save_and_load(tmp_path, calibrate, rho):
    X, y, group = sample()
    X[::9, 0] = np.nan
    model = GroupwiseMLPClassifier(calibrate=calibrate, rho=rho, unseen_group="global", **FAST)
    model.fit(pd.DataFrame(X, columns=list("abcd")), y, sensitive_features=group)
    path = tmp_path / "model.safetensors"
    model.save(path, extra={"note": ["é", 1]})
    loaded = GroupwiseMLPClassifier.load(path)
    assert loaded.get_params() == model.get_params()
    assert loaded.extra_ == {"note": ["é", 1]}
    assert loaded.history_ == model.history_
    frame = pd.DataFrame(X, columns=list("abcd"))
    for features in (group, np.full(len(X), "new")):
        np.testing.assert_array_equal(
            loaded.predict_proba(frame, sensitive_features=features),
            model.predict_proba(frame, sensitive_features=features),
        )
    given = {"sensitive_features": group} if calibrate == "bcts" else {}
    assert loaded.predict(frame, **given).tolist() == model.predict(frame, **given).tolist()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))
    clone(loaded)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_wrong_or_tampered_file_is_refused(tmp_path):
    X, y, group = sample(60)
    path = tmp_path / "m.safetensors"
    model = GroupwiseMLPClassifier(**FAST).fit(X, y, sensitive_features=group)
    model.save(path)
    content = path.read_bytes()

    path.write_bytes(content[:-8])
    with pytest.raises(ValueError, match="not a saved model"):
        GroupwiseMLPClassifier.load(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged or was edited"):
        GroupwiseMLPClassifier.load(path)
    path.write_bytes(content.replace(b"log_loss", b"lag_loss", 1))
    with pytest.raises(ValueError, match="damaged or was edited"):
        GroupwiseMLPClassifier.load(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a saved model"):
        GroupwiseMLPClassifier.load(path)
    save_file({"a": np.zeros(2)}, path)
    with pytest.raises(ValueError, match="was not saved by equipoise"):
        GroupwiseMLPClassifier.load(path)
    write_model(path, {"format": "other/1"}, {"a": np.zeros(2)})
    with pytest.raises(ValueError, match="is not a saved GroupwiseMLPClassifier"):
        GroupwiseMLPClassifier.load(path)
    with pytest.raises(FileNotFoundError):
        GroupwiseMLPClassifier.load(tmp_path / "nothing")


def test_layers_that_do_not_fit_are_refused(tmp_path):
    X, y, group = sample(60)
    path = tmp_path / "m.safetensors"
    model = GroupwiseMLPClassifier(**FAST).fit(X, y, sensitive_features=group)
    model.save(path)
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["equipoise"])
    arrays = load_file(path)
    arrays["weight0"] = arrays["weight0"][:, :-1]
    write_model(path, about, arrays)
    with pytest.raises(ValueError, match="layer 0 has the shapes"):
        GroupwiseMLPClassifier.load(path)


def test_numbers_of_numpy_are_saved(tmp_path):
    X, y, group = sample(80)
    model = GroupwiseMLPClassifier(
        rho=np.float64(0.4),
        lam=np.float32(1),
        hidden_layer_sizes=np.array([4, 3]),
        max_epochs=np.int64(2),
    )
    model.fit(X, y, sensitive_features=group).save(tmp_path / "m")
    loaded = GroupwiseMLPClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    single = GroupwiseMLPClassifier(hidden_layer_sizes=5, max_epochs=2).fit(X, y)
    assert [w.shape for w, _ in single.layers_] == [(4, 5), (5, 2)]


def test_the_only_row_of_a_class_stays_in_training():
    X, y, _ = sample(300)
    y = y.astype(object)
    y[17] = "only"
    for seed in range(12):
        model = GroupwiseMLPClassifier(**FAST | {"max_epochs": 1, "random_state": seed})
        model.fit(X, y.astype(str))
        assert len(model.preprocessor_.columns) == 4
        for fraction, held in ((0.125, 38), (0.9, 270)):
            split = hold_out(checked_rows(model, X, y.astype(str), None, None), fraction, seed)
            assert 17 in split.train.rows
            assert len(split.val.y) == held


def test_too_few_rows_to_hold_any_out_is_said():
    with pytest.warns(UserWarning, match="2 rows are too few to hold any out"):
        GroupwiseMLPClassifier(max_epochs=1).fit([[0.0], [1.0]], ["a", "b"])


def test_a_second_fit_leaves_nothing_of_the_first():
    X, y, group = sample(100)
    model = GroupwiseMLPClassifier(**FAST | {"max_epochs": 2})
    model.fit(X, y, sensitive_features=group)
    model.set_params(calibrate=None).fit(X, y)
    assert not hasattr(model, "temperatures_")
    assert not hasattr(model, "temperature_")


def test_predictions_need_no_group_column():
    X, y, group = sample(100)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group)
    model = GroupwiseMLPClassifier(sensitive_columns="sex", **FAST | {"max_epochs": 2})
    model.fit(frame, y)
    without = model.predict(frame.drop(columns="sex"))
    assert without.tolist() == model.predict(frame).tolist()


def test_values_far_beyond_the_fitted_ones_are_refused():
    X, y, _ = sample(60)
    model = GroupwiseMLPClassifier(**FAST | {"max_epochs": 1}).fit(X, y)
    with pytest.raises(ValueError, match="or values too large beside"):
        model.predict(X * 1e60)


def test_not_fitted():
    with pytest.raises(NotFittedError):
        GroupwiseMLPClassifier().predict([[0.0]])
    with pytest.raises(NotFittedError):
        GroupwiseMLPClassifier().save("nowhere")


def test_a_group_without_held_out_rows_gets_the_common_temperature():
    X, y, group = sample(120)
    group[:] = "m"
    group[:2] = "f"  # one of each label at most: rarely held out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GroupwiseMLPClassifier(validation_fraction=0.05, **FAST)
        model.fit(X, y, sensitive_features=group)
    assert set(model.temperatures_) == {"f", "m"}
    model.predict_proba(X, sensitive_features=group)


def test_weights_of_one_and_rows_of_weight_zero():
    X, y, group = sample(300)
    plain = GroupwiseMLPClassifier(**FAST).fit(X, y, sensitive_features=group)
    expected = plain.predict_proba(X, sensitive_features=group)
    more = sample(100, seed=5)
    both = [np.concatenate(pair) for pair in zip((X, y, group), more, strict=True)]
    both[1][300:] = "unseen"
    both[2][300:] = "nobody"
    weights = np.repeat([2.0, 0.0], [300, 100])
    for rows, weight in (((X, y, group), np.ones(300)), (both, weights)):
        model = GroupwiseMLPClassifier(**FAST)
        model.fit(rows[0], rows[1], sensitive_features=rows[2], sample_weight=weight)
        np.testing.assert_array_equal(model.predict_proba(X, sensitive_features=group), expected)
        assert model.groups_ == ["f", "m"]


def test_weights_have_a_say_and_their_scale_has_none():
    X, y, group = sample(600)
    rng = np.random.default_rng(0)
    weight = np.where(y == "bee", 8.0, 1.0) * rng.uniform(0.5, 1.5, 600)
    probs = [
        GroupwiseMLPClassifier("dca", rho="share", **FAST)
        .fit(X, y, sensitive_features=group, sample_weight=s)
        .predict_proba(X, sensitive_features=group)
        for s in (None, weight, pd.Series(weight * 1e-6))
    ]
    np.testing.assert_allclose(probs[1], probs[2], rtol=1e-3)
    assert probs[1][:, 1].mean() > probs[0][:, 1].mean() + 0.1


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(99), "sample_weight has 99"),
        (np.zeros(100), "zero in every row"),
        (-np.ones(100), "not negative"),
        (np.full(100, np.nan), "finite"),
        (np.ones((100, 1)), r"sample_weight must be \(n,\), got shape \(100, 1\)"),
        (np.repeat([0.0, 1.0], [99, 1]), "only one class is present"),
    ],
)
def test_bad_weights_are_refused_before_training(weight, message, monkeypatch):
    monkeypatch.setattr("equipoise.training._engine.epochs_of", None)  # not to be called
    X, y, group = sample(100)
    with pytest.raises(ValueError, match=message):
        GroupwiseMLPClassifier().fit(X, y, sensitive_features=group, sample_weight=weight)


WITHOUT_TORCH = (
    "from importlib.machinery import PathFinder\n"
    "found = PathFinder.find_spec\n"
    "PathFinder.find_spec = lambda name, *a: None if name == 'torch' else found(name, *a)\n"
)


@pytest.mark.slow
def test_without_torch_the_remedy_is_named():
    code = WITHOUT_TORCH + (
        "from equipoise.search import select\n"
        "from equipoise.training import LOSS_NAMES, run_column\n"
        "import equipoise\n"
        "model = equipoise.GroupwiseMLPClassifier()  # which predicts without torch\n"
        "def fit(): model.fit([[0], [1]] * 9, [0, 1] * 9)\n"
        "def find(name): return lambda: getattr(equipoise, name)\n"
        "for use in (fit, find('FrontierSearch'), find('GroupwiseLoss')):\n"
        "    try:\n"
        "        use()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line == "equipoise.training needs torch: pip install 'equipoise[train]'"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "search", "reproduce"])
def test_commands_without_torch_name_the_remedy(command, tmp_path):
    table = pd.DataFrame({"age": range(40), "sex": ["f", "m"] * 20, "paid": ["yes", "no"] * 20})
    table.to_csv(tmp_path / "people.csv", index=False)
    data, out = str(tmp_path / "people.csv"), str(tmp_path / "out")
    arguments = [command, data, "--label", "paid", "--group", "sex", "--out", out]
    if command == "reproduce":
        arguments = [command, "german", "--runs", out]
    code = f"{WITHOUT_TORCH}from equipoise.cli import main\nmain({arguments!r})"
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert "needs torch: pip install 'equipoise[train]'" in result.stderr
    assert result.returncode == 2
    assert not (tmp_path / "out").exists()
