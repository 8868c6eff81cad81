"""GroupCalibratedClassifier inside scikit-learn: its contract, ways to pass the group, weights."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from equipoise import GroupCalibratedClassifier, GroupwiseMLPClassifier, TemperatureScaling
from equipoise.calibration import METHODS, NoGroupsWarning
from equipoise.calibration._folds import stratified_folds
from equipoise.metrics import log_loss, neg_worst_group_ece
from repair_data import Temperatures, agree, sample


@pytest.mark.slow
@parametrize_with_checks(
    [
        GroupCalibratedClassifier(LogisticRegression(), cv=3),
        GroupCalibratedClassifier(
            DecisionTreeClassifier(max_depth=3, random_state=0), method="beta", cv=3
        ),
    ]
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def frame_of(X, group, library=pd):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group.astype(str))
    return frame if library is pd else pl.from_pandas(frame)


def without_sex(estimator):
    """Return a pipeline that drops the group's column before the estimator."""
    return make_pipeline(
        make_column_transformer(("drop", ["sex"]), remainder="passthrough"), estimator
    )


# --- ways to pass the group ------------------------------------------------------------------


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_the_group_as_a_column_is_the_group_as_an_argument(method, library):
    X, y, group = sample()
    by_argument = GroupCalibratedClassifier(LogisticRegression(), method=method)
    by_argument.fit(X, y, sensitive_features=group)
    frame = frame_of(X, group, library)
    labels = library.Series(y.tolist())
    model = GroupCalibratedClassifier(
        without_sex(LogisticRegression()), method=method, sensitive_columns="sex"
    ).fit(frame, labels)
    np.testing.assert_allclose(
        model.predict_proba(frame),
        by_argument.predict_proba(X, sensitive_features=group),
        rtol=1e-4,
    )
    assert model.predict(frame).tolist() == (
        by_argument.predict(X, sensitive_features=group).tolist()
    )
    assert model.score(frame, labels) == by_argument.score(X, y, sensitive_features=group)
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == [*"abcd", "sex"]
    with pytest.raises(ValueError, match="not both"):
        model.fit(frame, labels, sensitive_features=group)
    with pytest.raises(ValueError, match="X has no column 'sex'"):
        model.predict_proba(frame[list("abcd")])
    with pytest.raises(TypeError, match="X must be a data frame, got ndarray"):
        model.fit(X, y)


def test_intersections():
    X, y, group = sample(600)
    frame = pd.DataFrame({"sex": group, "old": np.arange(600) % 2})
    model = Temperatures(GaussianNB()).fit(X, y, sensitive_features=frame)
    assert model.groups_ == [("f", 0), ("f", 1), ("m", 0), ("m", 1)]
    assert list(model.temperatures_) == list(model.trust_) == model.groups_
    agree(model, X, frame)


@pytest.mark.slow
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_search_and_cross_validation_with_the_group_as_a_column(library, routing):
    X, y, group = sample(200)
    frame = frame_of(X, group, library)
    model = GroupCalibratedClassifier(
        without_sex(LogisticRegression()), sensitive_columns="sex", cv=2
    )
    with sklearn.config_context(enable_metadata_routing=routing):
        for method in ("temperature", "platt"):
            scores = cross_validate(
                model.set_params(method=method),
                frame,
                y,
                cv=3,
                scoring=["neg_log_loss", "accuracy"],
                error_score="raise",
            )
            assert np.isfinite(scores["test_neg_log_loss"]).all()
        grid = {
            "estimator__logisticregression__C": [0.01, 1.0],
            "method": ["temperature", "vector"],
        }
        search = GridSearchCV(model, grid, cv=2, scoring="neg_log_loss", error_score="raise")
        search.fit(frame, y)
        assert search.best_params_["estimator__logisticregression__C"] == 1.0
        assert search.predict_proba(frame).shape == (200, 2)


def test_a_fold_is_calibrated_with_its_own_groups():
    # what cross_validate sees equals a loop by hand that passes each fold's groups
    X, y, group = sample(300)
    frame, folds = frame_of(X, group), StratifiedKFold(3)
    model = GroupCalibratedClassifier(without_sex(GaussianNB()), sensitive_columns="sex", cv=3)
    scores = cross_validate(model, frame, y, cv=folds, scoring="neg_log_loss")["test_score"]
    for (train, test), score in zip(folds.split(X, y), scores, strict=True):
        by_hand = GroupCalibratedClassifier(GaussianNB(), cv=3)
        by_hand.fit(X[train], y[train], sensitive_features=group[train])
        prob = by_hand.predict_proba(X[test], sensitive_features=group[test])
        assert score == pytest.approx(-log_loss(y[test], prob, labels=by_hand.classes_))


def test_a_group_that_is_not_routed_to_prediction_is_an_error_not_a_wrong_temperature():
    X, y, group = sample(200)
    with sklearn.config_context(enable_metadata_routing=True):
        model = Temperatures(GaussianNB(), cv=2)
        model.set_fit_request(sensitive_features=True)
        cv = {"cv": 2, "params": {"sensitive_features": group}, "error_score": "raise"}
        with pytest.raises(ValueError, match="sensitive_features were not passed"):
            cross_validate(model, X, y, scoring="neg_log_loss", **cv)
        # predictions need no group under temperature
        assert np.isfinite(
            cross_validate(model, X, y, scoring="accuracy", **cv)["test_score"]
        ).all()
        # score is routed to, so it has the group under any method
        model.set_params(method="platt").set_score_request(sensitive_features=True)
        assert np.isfinite(cross_validate(model, X, y, **cv)["test_score"]).all()
        search = GridSearchCV(model, {"method": ["platt", "beta"]}, cv=2, error_score="raise")
        search.fit(X, y, sensitive_features=group)
        assert search.best_estimator_.groups_ == ["f", "m"]
        relaxed = clone(model).set_params(unseen_group="global")
        with pytest.warns(NoGroupsWarning, match="the policy 'global'"):
            scores = cross_validate(relaxed, X, y, scoring="neg_log_loss", **cv)["test_score"]
        assert np.isfinite(scores).all()


def test_group_scorers_with_the_group_as_a_column():
    X, y, group = sample(200)
    frame = frame_of(X, group)
    with sklearn.config_context(enable_metadata_routing=True):
        model = GroupCalibratedClassifier(
            without_sex(GaussianNB()), sensitive_columns="sex", cv=2
        ).set_fit_request(sensitive_features=False)
        scores = cross_validate(
            model,
            frame,
            y,
            cv=2,
            scoring=neg_worst_group_ece,
            params={"sensitive_features": group},
            error_score="raise",
        )
        assert (scores["test_score"] < 0).all()


def test_at_the_end_of_a_pipeline():
    X, y, group = sample(200)
    with sklearn.config_context(enable_metadata_routing=True):
        model = GroupCalibratedClassifier(GaussianNB(), cv=2)
        for request in ("fit", "predict_proba", "predict", "score"):
            getattr(model, f"set_{request}_request")(sensitive_features=True)
        pipe = make_pipeline(StandardScaler(), model)
        pipe.fit(X, y, sensitive_features=group)
        assert pipe.predict_proba(X, sensitive_features=group).shape == (200, 2)
        assert pipe.predict(X, sensitive_features=group).shape == (200,)
        assert pipe.score(X, y, sensitive_features=group) > 0.6
        with pytest.raises(ValueError, match="sensitive_features were not passed"):
            pipe.predict_proba(X)


# --- unseen groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_unseen_groups(method):
    X, y, group = sample(600)
    new = np.array(["f", "x", None, "m"], dtype=object)
    params = {"method": method, "cv": 3}
    strict = GroupCalibratedClassifier(GaussianNB(), **params).fit(X, y, sensitive_features=group)
    with pytest.raises(
        ValueError, match=r"group 'x', which has no fitted calibrator \(known: f, m\)"
    ):
        strict.predict_proba(X[:4], sensitive_features=new)
    with pytest.raises(ValueError, match="1 row belongs to a missing group"):
        strict.predict_proba(X[:1], sensitive_features=[None])
    with pytest.raises(ValueError, match="sensitive_features were not passed"):
        strict.predict_proba(X[:4])
    own = {g: strict.predict_proba(X[:4], sensitive_features=[g] * 4) for g in ("f", "m")}

    common = clone(strict).set_params(unseen_group="global").fit(X, y, sensitive_features=group)
    # without groups the folds differ: of the same folds it is the same calibrator
    prob = common.predict_proba(X[:4], sensitive_features=new)
    everyone = without_groups(common, X[:4])
    np.testing.assert_allclose(prob[[0, 3]], [own["f"][0], own["m"][3]])
    np.testing.assert_allclose(prob[[1, 2]], everyone[[1, 2]])
    raw = common.estimator_.predict_proba(X[:4])
    np.testing.assert_allclose(everyone, common.calibrator_.apply(np.log(raw)))

    mixed = clone(strict).set_params(unseen_group="mixture").fit(X, y, sensitive_features=group)
    share = (group == "f").mean()
    by_hand = share * own["f"] + (1 - share) * own["m"]
    np.testing.assert_allclose(without_groups(mixed, X[:4]), by_hand)
    np.testing.assert_allclose(mixed.predict_proba(X[:4], sensitive_features=new)[1], by_hand[1])
    if METHODS[method].keeps_predictions:
        for model in (common, mixed):
            top = model.classes_[without_groups(model, X).argmax(axis=1)]
            assert top.tolist() == model.predict(X).tolist()
    else:
        with pytest.raises(ValueError, match="sensitive_features were not passed"):
            strict.predict(X)


def without_groups(model, X):
    with pytest.warns(NoGroupsWarning, match="were not passed to a model that was fitted with"):
        return model.predict_proba(X)


@pytest.mark.parametrize("policy", ["error", "global", "mixture"])
def test_a_missing_column_or_value_falls_under_the_policy(policy):
    X, y, group = sample()
    frame = frame_of(X, group)
    model = GroupCalibratedClassifier(
        without_sex(GaussianNB()), sensitive_columns="sex", unseen_group=policy
    ).fit(frame, y)
    gap = frame.assign(sex=[None] * len(frame))
    if policy == "error":
        with pytest.raises(ValueError, match="belong to a missing group"):
            model.predict_proba(gap)
        with pytest.raises(ValueError, match="X has no column 'sex'"):
            model.predict_proba(frame.drop(columns="sex"))
        return
    np.testing.assert_array_equal(
        model.predict_proba(gap), without_groups(model, frame.drop(columns="sex"))
    )
    with pytest.raises(ValueError, match="missing value"):
        model.fit(gap, y)


def test_fitted_without_groups():
    X, y, group = sample()
    model = Temperatures(GaussianNB())
    with pytest.warns(NoGroupsWarning, match="so one common calibrator is fitted"):
        model.fit(X, y)
    assert (model.groups_, model.trust_, model.temperatures_) == ([], {}, {})
    prob = model.predict_proba(X)
    scores = cross_val_predict(
        GaussianNB(), X, y, method="predict_proba",
        cv=stratified_folds((y == "bee").astype(int), np.zeros(len(y), int), 5),
    )  # fmt: skip
    expected = TemperatureScaling(from_proba=True).fit(scores, y)
    np.testing.assert_allclose(
        prob, expected.predict_proba(model.estimator_.predict_proba(X)), rtol=1e-4
    )
    with pytest.raises(ValueError, match=r"no fitted calibrator \(known: none\)"):
        model.predict_proba(X, sensitive_features=group)
    for policy in ("global", "mixture"):
        model.set_params(unseen_group=policy)
        np.testing.assert_array_equal(model.predict_proba(X, sensitive_features=group), prob)


# --- weights and metadata --------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_one_and_weights_that_repeat_rows(method):
    # under shrinkage, and where rows are added (platt, isotonic), only the weights' ratios matter
    X, y, group = sample(300)
    fitted = FrozenEstimator(GaussianNB().fit(X, y))
    fresh, labels, member = sample(500, seed=1)
    model = GroupCalibratedClassifier(fitted, method=method, shrinkage=0)

    def prob(times, weight):
        model.fit(
            fresh.repeat(times, axis=0),
            labels.repeat(times),
            sensitive_features=member.repeat(times),
            sample_weight=weight,
        )
        return model.predict_proba(X, sensitive_features=group)

    np.testing.assert_allclose(prob(1, np.ones(500)), prob(1, None), atol=1e-9)
    weight = np.random.default_rng(1).integers(1, 4, 500)
    if method not in ("platt", "isotonic"):
        np.testing.assert_allclose(prob(1, weight), prob(weight, None), atol=1e-6)
    model.set_params(shrinkage="auto")
    for factor in (1e-6, 1e6):
        np.testing.assert_allclose(prob(1, weight * factor), prob(1, weight), atol=1e-6)


def test_weights_reach_an_estimator_that_takes_them():
    X, y, group = sample(300)
    weight = np.where(y == "ay", 5.0, 1.0)
    model = Temperatures(LogisticRegression(), shrinkage=20)
    model.fit(X, y, sensitive_features=group, sample_weight=weight)
    expected = LogisticRegression().fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.estimator_.coef_, expected.coef_)
    own = weight[group == "f"]
    rows = own.sum() ** 2 / (own**2).sum()  # as many of equal weight
    assert model.trust_["f"] == pytest.approx(rows / (rows + 20))
    model = GroupCalibratedClassifier(KNeighborsClassifier(40))
    with pytest.warns(UserWarning, match="KNeighborsClassifier.fit takes no sample_weight"):
        model.fit(X, y, sensitive_features=group, sample_weight=weight)
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.warns(UserWarning, match=r"Pipeline\.fit takes no sample_weight.*metadata_routing"):
        GroupCalibratedClassifier(pipe).fit(X, y, sensitive_features=group, sample_weight=weight)


def test_weights_reach_the_step_of_a_pipeline_that_asks_for_them():
    X, y, group = sample(300)
    weight = np.where(y == "ay", 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        step = LogisticRegression().set_fit_request(sample_weight="w")
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), step)
        with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
            GroupCalibratedClassifier(pipe).fit(X, y, w=weight)
        step.set_fit_request(sample_weight=True)
        model = GroupCalibratedClassifier(pipe).fit(
            X, y, sensitive_features=group, sample_weight=weight
        )
        expected = clone(pipe).fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(model.estimator_[-1].coef_, expected[-1].coef_)
        step.set_fit_request(sample_weight=None)
        with pytest.raises(ValueError, match="sample_weight"):
            GroupCalibratedClassifier(pipe).fit(
                X, y, sensitive_features=group, sample_weight=weight
            )


@pytest.mark.filterwarnings("ignore::equipoise.calibration.BoundWarning")
def test_groups_reach_an_estimator_that_asks_for_them():
    X, y, group = sample(200)
    net = GroupwiseMLPClassifier(max_epochs=2, hidden_layer_sizes=(4,), random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        net.set_fit_request(sensitive_features=True)
        net.set_predict_proba_request(sensitive_features=True)
        model = Temperatures(net, cv=2).fit(X, y, sensitive_features=group)
        assert model.estimator_.groups_ == ["f", "m"]
        expected = clone(net).fit(X, y, sensitive_features=group)
        for name in ("f", "m"):
            ours, theirs = (
                np.log(p[:, 1] / p[:, 0])
                for p in (
                    m.predict_proba(X, sensitive_features=[name] * 200) for m in (model, expected)
                )
            )
            np.testing.assert_allclose(ours * model.temperatures_[name], theirs, atol=1e-6)
    # without routing it never gets them
    model = GroupCalibratedClassifier(clone(net), cv=2).fit(X, y, sensitive_features=group)
    assert model.estimator_.groups_ == []


class Recorder(GaussianNB):
    """A classifier that keeps the clusters it is fitted with."""

    def fit(self, X, y, clusters=None):
        self.clusters_ = clusters
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore::equipoise.calibration.NoGroupsWarning")
def test_clusters_are_routed():
    X, y, _ = sample(200)
    who = np.arange(200) // 4
    with sklearn.config_context(enable_metadata_routing=True):
        model = GroupCalibratedClassifier(Recorder().set_fit_request(clusters=True), cv=2)
        model.set_fit_request(clusters=True)
        pipe = make_pipeline(StandardScaler(), model).fit(X, y, clusters=who)
        assert pipe[-1].estimator_.clusters_.tolist() == who.tolist()
        # inside cross-validation each fold gets the clusters of its rows
        params = {"clusters": who, "groups": who}
        folds = GroupKFold(2)
        found = cross_validate(
            model, X, y, cv=folds, params=params, return_estimator=True, error_score="raise"
        )
        for (train, _), fitted in zip(folds.split(X, y, who), found["estimator"], strict=True):
            assert fitted.estimator_.clusters_.tolist() == who[train].tolist()
        silent = GroupCalibratedClassifier(GaussianNB(), cv=2)
        with pytest.raises(ValueError, match="clusters"):
            make_pipeline(StandardScaler(), silent).fit(X, y, clusters=who)
        silent.fit(X, y, clusters=who)
    # without routing the estimator never gets them
    model = GroupCalibratedClassifier(Recorder(), cv=2).fit(X, y, clusters=who)
    assert model.estimator_.clusters_ is None
