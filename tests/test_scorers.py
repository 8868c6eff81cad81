"""The metrics inside other libraries: Fairlearn's MetricFrame, scikit-learn's model selection."""

import functools

import numpy as np
import pytest
import sklearn
from fairlearn.metrics import MetricFrame
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_validate

import oracle_metrics as oracle
from equipoise import metrics
from equipoise.metrics import (
    GroupScorer,
    neg_calibration_gap,
    neg_proportional_equality,
    neg_worst_group_ece,
)

UNGROUPED = [
    metrics.accuracy,
    metrics.expected_calibration_error,
    metrics.classwise_calibration_error,
    metrics.debiased_squared_calibration_error,
    metrics.maximum_calibration_error,
    metrics.equal_mass_calibration_error,
    metrics.brier_score,
    metrics.log_loss,
]


@functools.cache
def data(classes, n=360):
    rng = np.random.default_rng(classes)
    groups = rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, 4)) + (groups == "m")[:, None]
    y = (X[:, :classes] + rng.gumbel(size=(n, classes))).argmax(axis=1)
    return X, y, groups, rng.dirichlet(np.ones(classes), n), rng.integers(1, 5, n)


# --- Fairlearn -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", UNGROUPED, ids=lambda m: m.__name__)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_work_in_a_metric_frame(metric, classes, weighted):
    _, y, groups, prob, weight = data(classes)
    prob = prob[:, 1] if classes == 2 else prob
    frame = MetricFrame(
        metrics=metric,
        y_true=y,
        y_pred=prob,
        sensitive_features=groups,
        sample_params={"sample_weight": weight} if weighted else None,
    )
    assert sorted(frame.by_group.index) == ["f", "m"]
    for g, found in frame.by_group.items():
        own = groups == g
        assert found == metric(y[own], prob[own], sample_weight=weight[own] if weighted else None)
    assert frame.overall == metric(y, prob, sample_weight=weight if weighted else None)


def test_several_metrics_in_one_metric_frame_equal_the_oracle():
    _, y, groups, prob, weight = data(2)
    frame = MetricFrame(
        metrics={
            "ece": functools.partial(metrics.expected_calibration_error, n_bins=10),
            "brier": metrics.brier_score,
        },
        y_true=np.array(["no", "yes"])[y],
        y_pred=prob[:, 1],
        sensitive_features=groups,
        sample_params={"ece": {"sample_weight": weight}},
    )
    for g in ("f", "m"):
        own = groups == g
        ece = oracle.ece(y[own], prob[own, 1], weight[own], n_bins=10)
        brier = oracle.brier(y[own], prob[own, 1])
        assert frame.by_group.loc[g].tolist() == pytest.approx([ece, brier], abs=1e-9)


def test_a_group_of_a_metric_frame_with_only_two_of_three_labels():
    _, y, groups, prob, _ = data(3)
    kept = (groups == "m") | (y != 1)
    y, groups, prob = y[kept], groups[kept], prob[kept]
    assert set(y[groups == "f"]) == {0, 2}
    frame = MetricFrame(
        metrics=metrics.expected_calibration_error,
        y_true=y,
        y_pred=prob,
        sensitive_features=groups,
    )
    own = groups == "f"
    assert frame.by_group["f"] == pytest.approx(oracle.ece(y[own], prob[own]), abs=1e-9)


# --- scikit-learn ----------------------------------------------------------------------------


def oracle_pe(y, prob, groups, reference="f", **options):
    return oracle.proportional_equality(
        oracle.group_rates(y, groups, prob.shape[1]),
        oracle.model_rates(prob, groups, **options),
        reference=reference,
    )


def oracle_eces(y, prob, groups, n_bins=15):
    groups = np.array(groups)
    return [
        oracle.ece(y[groups == g], prob[groups == g], n_bins=n_bins) for g in sorted(set(groups))
    ]


SCORERS = {
    "pe": (neg_proportional_equality, oracle_pe),
    "worst": (neg_worst_group_ece, lambda y, p, a: max(oracle_eces(y, p, a))),
    "gap": (neg_calibration_gap, lambda y, p, a: np.ptp(oracle_eces(y, p, a))),
    "hard pe": (
        GroupScorer(metrics.proportional_equality, kind="deterministic"),
        functools.partial(oracle_pe, kind="deterministic"),
    ),
    "pe against m": (
        GroupScorer(metrics.proportional_equality, reference_group="m"),
        functools.partial(oracle_pe, reference="m"),
    ),
}
FOLDS = KFold(3, shuffle=True, random_state=0)


def by_hand(model, measure, classes):
    """Minus the measure on each fold, by a plain loop."""
    X, y, groups, *_ = data(classes)
    scores = []
    for train, test in FOLDS.split(X):
        fitted = clone(model).fit(X[train], y[train])
        prob = fitted.predict_proba(X[test])
        scores.append(-measure(y[test], prob, groups[test].tolist()))
    return scores


@pytest.mark.parametrize(("scorer", "measure"), SCORERS.values(), ids=SCORERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_scorers_in_cross_validate(scorer, measure, classes):
    X, y, groups, *_ = data(classes)
    model = LogisticRegression()
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            model,
            X,
            y,
            cv=FOLDS,
            scoring=scorer,
            params={"sensitive_features": groups},
            error_score="raise",
        )["test_score"]
    assert found == pytest.approx(by_hand(model, measure, classes), rel=1e-6, abs=1e-8)
    assert (found < 0).all()


@pytest.mark.parametrize(("scorer", "measure"), SCORERS.values(), ids=SCORERS)
def test_scorers_in_a_grid_search(scorer, measure):
    X, y, groups, *_ = data(3)
    grid = [0.02, 0.2, 2.0]
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            LogisticRegression(), {"C": grid}, cv=FOLDS, scoring=scorer, error_score="raise"
        ).fit(X, y, sensitive_features=groups)
    expected = [np.mean(by_hand(LogisticRegression(C=c), measure, 3)) for c in grid]
    found = search.cv_results_["mean_test_score"]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert search.best_params_ == {"C": grid[int(np.argmax(expected))]}


def test_scorers_beside_each_other_and_beside_scikit_learn_s():
    X, y, groups, *_ = data(2)
    model = LogisticRegression()
    scoring = {name: scorer for name, (scorer, _) in SCORERS.items()} | {"accuracy": "accuracy"}
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            model,
            X,
            y,
            cv=FOLDS,
            scoring=scoring,
            params={"sensitive_features": groups},
            error_score="raise",
        )
    for name, (_, measure) in SCORERS.items():
        expected = by_hand(model, measure, 2)
        assert found[f"test_{name}"] == pytest.approx(expected, rel=1e-6, abs=1e-8)
    right = by_hand(model, lambda y, p, _: -accuracy_score(y, p.argmax(axis=1)), 2)
    assert found["test_accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("routing", [False, True])
def test_without_sensitive_features_the_error_says_what_to_do(routing):
    X, y, *_ = data(2)
    message = r"needs sensitive_features: .*enable_metadata_routing=True.*params="
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.raises(ValueError, match=message):
            cross_validate(
                LogisticRegression(),
                X,
                y,
                cv=FOLDS,
                scoring=neg_proportional_equality,
                error_score="raise",
            )
        with pytest.raises(ValueError, match=message):
            neg_proportional_equality(LogisticRegression().fit(X, y), X, y)


def test_a_test_fold_and_a_group_with_only_two_of_three_labels():
    X, y, groups, *_ = data(3)
    named = np.array(["hi", "lo", "mid"])[y]
    model = LogisticRegression().fit(X, named)
    some = (y != 2) | (groups == "m")
    assert set(named[some & (groups == "f")]) == {"hi", "lo"}
    found = neg_worst_group_ece(model, X[some], named[some], sensitive_features=groups[some])
    prob = model.predict_proba(X[some])
    expected = max(oracle_eces(y[some], prob, groups[some].tolist()))
    assert found == pytest.approx(-expected, abs=1e-9)

    two = y != 2  # no row of the fold has the third label
    found = neg_worst_group_ece(model, X[two], named[two], sensitive_features=groups[two])
    expected = max(oracle_eces(y[two], model.predict_proba(X[two]), groups[two].tolist()))
    assert found == pytest.approx(-expected, abs=1e-9)


def test_parameters_reach_the_metric_and_a_typo_raises():
    X, y, groups, *_ = data(2)
    model = LogisticRegression().fit(X, y)
    worst = GroupScorer(neg_worst_group_ece.metric, n_bins=3)
    expected = max(oracle_eces(y, model.predict_proba(X), groups.tolist(), n_bins=3))
    assert worst(model, X, y, sensitive_features=groups) == pytest.approx(-expected, abs=1e-9)
    with pytest.raises(TypeError, match="kinds"):
        GroupScorer(metrics.proportional_equality, kinds="x")(
            model, X, y, sensitive_features=groups
        )


def test_an_unknown_reference_group_is_named():
    X, y, groups, *_ = data(2)
    scorer = GroupScorer(metrics.proportional_equality, reference_group="x")
    with pytest.raises(ValueError, match=r"'x' is not one of the groups \('f', 'm'\)"):
        scorer(LogisticRegression().fit(X, y), X, y, sensitive_features=groups)
    assert repr(scorer) == "GroupScorer(proportional_equality, reference_group='x')"
