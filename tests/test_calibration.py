"""Temperatures against SciPy's minimiser of the cross entropy written as a plain loop."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from equipoise import GroupTemperatureScaling, TemperatureScaling
from equipoise.calibration import (
    BoundWarning,
    ClippedWarning,
    NoGroupsWarning,
    Problem,
    SmallGroupWarning,
    UnseenGroupError,
    fit_temperatures,
    solve,
)
from equipoise.metrics import accuracy, expected_calibration_error, log_loss, proportional_equality
from table_data import forge


def nll(beta, z, y, weight=None):
    """Sum the cross entropy of softmax(beta z), row by row."""
    total = 0.0
    for i, row in enumerate(z.astype(np.float64)):
        scaled = beta * row
        top = max(scaled)
        total += (1.0 if weight is None else weight[i]) * (
            top + math.log(sum(math.exp(s - top) for s in scaled)) - scaled[y[i]]
        )
    return total


def best_temperature(z, y, weight=None):
    found = minimize_scalar(
        lambda t: nll(1.0 / t, z, y, weight),
        bounds=(0.05, 20.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return found.x


def sample(n, classes, seed=0, temperature=2.0):
    """Return logits whose true temperature is known, and classes drawn from it."""
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=2.0, size=(n, classes))
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_exact_optimum(classes, weighted):
    z, y = sample(300, classes)
    weight = np.random.default_rng(1).uniform(0, 3, len(y)) if weighted else None
    scaling = TemperatureScaling().fit(z, y, sample_weight=weight)
    assert scaling.temperature_ == pytest.approx(best_temperature(z, y, weight), rel=1e-6)
    assert scaling.converged_
    assert 0 < scaling.n_iter_ < 20
    # no temperature nearby is better
    here = nll(1 / scaling.temperature_, z, y, weight)
    for nearby in (0.999, 1.001):
        assert here < nll(1 / scaling.temperature_ * nearby, z, y, weight)


@pytest.mark.parametrize("classes", [2, 4])
def test_many_rows_take_the_same_optimum_from_a_first_guess(classes):
    # enough rows that a part of them and float32 give the start
    z, y = sample(200_000, classes)
    scaling = TemperatureScaling().fit(z, y)
    slope = Problem.of(torch.from_numpy(z)[None], torch.from_numpy(y), None, 20.0).derivatives(
        torch.tensor([1 / scaling.temperature_], dtype=torch.float64)
    )
    assert abs(slope[0].item()) / slope[1].item() < 1e-7
    assert scaling.temperature_ == pytest.approx(2.0, rel=0.02)


def test_sorted_rows_mislead_the_first_guess_but_not_the_result():
    # every 4th row has another temperature: a strided guess sees only one kind
    z, y = sample(160_000, 2)
    z[::4] *= 5.0
    scaling = TemperatureScaling().fit(z, y)
    odds = z[:, 1] - z[:, 0]
    signed = np.where(y == 1, odds, -odds)
    beta = 1 / scaling.temperature_
    slope = -(signed / (1 + np.exp(beta * signed))).sum()
    bend = (signed**2 / (2 + 2 * np.cosh(beta * signed))).sum()
    assert abs(slope / bend) < 1e-7


def test_derivatives_are_those_of_the_plain_loop():
    z, y = sample(40, 3)
    problem = Problem.of(torch.from_numpy(z)[None], torch.from_numpy(y), None, 20.0)
    beta, h = 0.7, 1e-3
    first, second, third = (d.item() for d in problem.derivatives(torch.tensor([beta]).double()))
    f = [nll(beta + k * h, z, y) for k in (-2, -1, 0, 1, 2)]
    assert first == pytest.approx((f[3] - f[1]) / (2 * h), rel=1e-5)
    assert second == pytest.approx((f[3] - 2 * f[2] + f[1]) / h**2, rel=1e-5)
    assert third == pytest.approx((f[4] - 2 * f[3] + 2 * f[1] - f[0]) / (2 * h**3), rel=1e-4)


@pytest.mark.parametrize(
    "labels", [(1, 2), (-1, 1), (False, True), ("no", "yes"), (0.0, 1.0)], ids=str
)
def test_label_codings_do_not_matter(labels):
    z, y = sample(400, 2)
    coded = np.array(labels)[y]
    scaling = TemperatureScaling().fit(z, coded)
    assert scaling.temperature_ == TemperatureScaling().fit(z, y).temperature_
    assert scaling.predict(z).tolist() == [labels[k] for k in z.argmax(axis=1)]
    swapped = TemperatureScaling().fit(z[:, ::-1], coded, labels=labels[::-1])
    assert swapped.temperature_ == pytest.approx(scaling.temperature_, rel=1e-9)


def test_float32_and_log_odds_and_probabilities_are_the_same_model():
    z, y = sample(500, 2)
    expected = TemperatureScaling().fit(z, y).temperature_
    odds = z[:, 1] - z[:, 0]
    prob = 1 / (1 + np.exp(-odds))
    assert TemperatureScaling().fit(odds, y).temperature_ == pytest.approx(expected, rel=1e-9)
    assert TemperatureScaling().fit(z.astype("f4"), y).temperature_ == pytest.approx(expected, 1e-6)
    for given_prob, rel in ((prob, 1e-9), (np.stack([1 - prob, prob], 1), 1e-9)):
        scaling = TemperatureScaling(from_proba=True).fit(given_prob, y)
        assert scaling.temperature_ == pytest.approx(expected, rel=rel)
    scaling = TemperatureScaling(from_proba=True).fit(prob.astype("f4"), y)
    assert scaling.temperature_ == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(
        TemperatureScaling(from_proba=True).fit_predict_proba(prob, y),
        TemperatureScaling().fit_predict_proba(odds, y),
        rtol=1e-6,
    )


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_probabilities_of_exactly_zero_are_handled(kind):
    prob = np.array([[1, 0], [0, 1], [1, 0], [0.8, 0.2], [0.3, 0.7]], kind)
    scaling = TemperatureScaling(from_proba=True, bounds=(0.05, 2000.0))
    with pytest.warns(
        ClippedWarning, match="3 of 5 rows have a probability below 1e-06, .* counts as 1e-06"
    ) as caught:
        scaling.fit(prob, [0, 1, 1, 0, 1])
    assert caught[0].message.rows == 3
    calibrated = scaling.predict_proba(prob)
    assert np.isfinite(calibrated).all()
    assert scaling.temperature_ > 1
    np.testing.assert_allclose(calibrated.sum(axis=1), 1.0)


def test_integer_weights_are_repeated_rows():
    z, y = sample(200, 3)
    weight = np.random.default_rng(2).integers(0, 4, len(y))
    repeated = TemperatureScaling().fit(z.repeat(weight, axis=0), y.repeat(weight))
    weighted = TemperatureScaling().fit(z, y, sample_weight=weight)
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_each_group_is_fitted_on_its_own_rows(classes):
    z, y = sample(900, classes)
    group = np.random.default_rng(3).choice(["x", "y", "z"], len(y), p=[0.65, 0.25, 0.1])
    z[group == "y"] *= 3
    scaling = GroupTemperatureScaling().fit(z, y, sensitive_features=group)
    assert list(scaling.temperatures_) == ["x", "y", "z"]
    for name, value in scaling.temperatures_.items():
        own = group == name
        assert value == pytest.approx(best_temperature(z[own], y[own]), rel=1e-6)
        alone = TemperatureScaling().fit(z[own], y[own])
        np.testing.assert_allclose(
            scaling.predict_proba(z, sensitive_features=group)[own],
            alone.predict_proba(z[own]),
            rtol=1e-6,
        )
    assert scaling.temperature_ == pytest.approx(TemperatureScaling().fit(z, y).temperature_)


def test_a_stack_equals_the_loop():
    rng = np.random.default_rng(4)
    _, y = sample(120, 3)
    group = rng.integers(0, 3, len(y))
    stack = rng.normal(size=(4, len(y), 3)) * rng.uniform(0.5, 6, (4, 1, 1))
    stack += 3 * np.eye(3)[y]  # so that no temperature runs to its bound
    weight = rng.uniform(0.5, 2, len(y))
    fitted = fit_temperatures(stack, y, group, n_groups=4, sample_weight=weight)
    assert fitted.shape == (4, 4)
    assert (fitted[:, 3] == 1.0).all(), "an absent group keeps its slot and the temperature 1"
    for c, z in enumerate(stack):
        for g in range(3):
            own = group == g
            expected = best_temperature(z[own], y[own], weight[own])
            assert fitted[c, g] == pytest.approx(expected, rel=1e-6)
    tensor = fit_temperatures(torch.from_numpy(stack), torch.from_numpy(y))
    assert isinstance(tensor, torch.Tensor)
    for c, z in enumerate(stack):
        assert tensor[c, 0].item() == pytest.approx(TemperatureScaling().fit(z, y).temperature_)


def test_stack_errors_name_what_came():
    with pytest.raises(ValueError, match=r"\(config, sample, class\), got \(3, 2\)"):
        fit_temperatures(np.zeros((3, 2)), [0, 1, 0])
    with pytest.raises(ValueError, match=r"groups must be within 0\.\.1"):
        fit_temperatures(np.zeros((1, 3, 2)), [0, 1, 0], [0, 1, 2], n_groups=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1, 2, 1]}, r"y must be within 0\.\.1, got 1 to 2"),
        ({"y": [-1, 1, 1]}, r"y must be within 0\.\.1, got -1 to 1"),
        ({"y": [1]}, r"y must be \(sample=3,\), got \(1,\)"),
        ({"groups": [0, 1]}, r"groups must be \(sample=3,\)"),
        ({"logits": np.full((1, 3, 2), np.nan)}, "not finite"),
        ({"bounds": (5, 2)}, "bounds must be"),
        ({"sample_weight": [1, -1, 1]}, "sample_weight, row 1"),
    ],
)
def test_a_stack_is_checked(change, message):
    arguments = {"logits": np.eye(3)[None, :, :2], "y": [0, 1, 0], **change}
    with pytest.raises(ValueError, match=message):
        fit_temperatures(**arguments)


def test_numpy_numbers_as_parameters_are_saved(tmp_path):
    z, y = sample(50, 2)
    scaling = TemperatureScaling(bounds=(np.float32(0.05), np.int64(20))).fit(z, y)
    scaling.save(tmp_path / "t.json")
    assert TemperatureScaling.load(tmp_path / "t.json").bounds == pytest.approx((0.05, 20))


@pytest.mark.parametrize("wrong", [False, True], ids=["separable", "reversed"])
@pytest.mark.parametrize("bounds", [None, (0.05, 20.0)], ids=["relative", "absolute"])
def test_a_bound_is_reached_with_a_warning_that_names_the_group(wrong, bounds):
    z, y = sample(360, 2)
    group = np.repeat(["odd", "fine"], [60, 300])
    y[:60] = z[:60].argmin(axis=1) if wrong else z[:60].argmax(axis=1)
    # by default in units of the root mean square of the group's centred logits
    size = math.sqrt(sum((b - a) ** 2 / 4 for a, b in z[:60]) / 60)
    low, high = (size / 20, size * 20) if bounds is None else bounds
    with pytest.warns(BoundWarning, match=r"reached its bound for group 'odd' \(T =") as caught:
        scaling = GroupTemperatureScaling(bounds=bounds).fit(z, y, sensitive_features=group)
    assert scaling.temperatures_["odd"] == pytest.approx(high if wrong else low, rel=1e-12)
    assert caught[0].message.temperatures == {"odd": scaling.temperatures_["odd"]}
    if wrong:  # the rows that are wrong by the largest margins
        first = np.argsort(-np.abs(z[:60, 1] - z[:60, 0]))[:3].tolist()
        assert caught[0].message.rows == {"odd": first}
        named = ", ".join(map(str, first))
        assert f"60 of 60 predictions are wrong, most confidently in rows {named}, counted" in str(
            caught[0].message
        )
    else:  # the rows that would profit most from a smaller temperature
        gap = np.abs(z[:60, 1] - z[:60, 0]) / low
        first = np.argsort(-gap / (1 + np.exp(gap)), kind="stable")[:3].tolist()
        assert caught[0].message.rows == {"odd": first}
        assert "all of its 60 predictions are correct, least confidently in" in str(
            caught[0].message
        )
    assert ("widen bounds=" in str(caught[0].message)) == (bounds is not None)
    assert "bounds=" not in caught[0].message.for_command()
    assert caught[0].filename == __file__
    assert scaling.converged_
    assert low < scaling.temperatures_["fine"] < high


def test_bounds_are_parameters():
    z, y = sample(100, 2)
    with pytest.warns(BoundWarning, match=r"reached its bound for all rows \(T = 1\.5: "):
        scaling = TemperatureScaling(bounds=(0.5, 1.5)).fit(z, y)
    assert scaling.temperature_ == pytest.approx(1.5)


@pytest.mark.parametrize("lack", ["one class", "no weight"])
def test_a_group_without_rows_of_two_classes_gets_the_common_temperature(lack):
    z, y = sample(300, 3)
    group, weight = np.repeat(["few", "many"], [20, 280]), np.ones(300)
    if lack == "one class":
        y[:20] = 2
    else:
        weight[:20] = 0.0
    with pytest.warns(SmallGroupWarning, match="common calibrator is used for group 'few'") as w:
        scaling = GroupTemperatureScaling().fit(
            z, y, sensitive_features=group, sample_weight=weight
        )
    rows = 20 if lack == "one class" else 0
    assert w[0].message.reasons == {"few": f"{rows} rows, none of class 0"}
    assert scaling.temperatures_["few"] == scaling.temperature_
    assert scaling.trust_ == {"few": 0.0, "many": 1.0}
    assert scaling.shares_["few"] == pytest.approx(rows / 300)
    assert scaling.temperatures_["many"] == pytest.approx(best_temperature(z[20:], y[20:]), 1e-6)
    # three rows of two classes are enough, whichever of them is wrong
    z[:3], y[:3] = [[2.0, 0, 0], [0, 2.0, 0], [2.0, 0, 0]], [0, 1, 1]
    group[3:] = "many"
    with pytest.warns(SmallGroupWarning, match=r"few rows decide .* 'few' \(3 rows\)") as w:
        scaling = GroupTemperatureScaling().fit(z, y, sensitive_features=group)
    assert (w[0].message.few, w[0].message.reasons) == ({"few": 3}, {})
    assert scaling.trust_["few"] == 1.0


def test_shrinkage_is_a_penalty_as_strong_as_that_many_average_rows():
    z, y = sample(330, 3)
    group = np.repeat([0, 1], [30, 300])
    z[:30] *= 4
    shrunk = GroupTemperatureScaling(shrinkage=60).fit(z, y, sensitive_features=group)
    assert shrunk.trust_ == pytest.approx({0: 30 / 90, 1: 300 / 360})
    common, h = 1 / best_temperature(z, y), 1e-3
    around = [nll(common + k * h, z, y) for k in (-1, 0, 1)]
    information = (around[0] - 2 * around[1] + around[2]) / h**2 / 330
    for g in (0, 1):
        own = group == g

        def loss(beta, own=own):
            return nll(beta, z[own], y[own]) + 30 * information * (beta - common) ** 2

        best = minimize_scalar(loss, bounds=(0.02, 5), method="bounded", options={"xatol": 1e-10})
        assert 1 / shrunk.temperatures_[g] == pytest.approx(best.x, rel=1e-6)


@pytest.mark.filterwarnings("ignore::equipoise.calibration.SmallGroupWarning")
def test_constant_logits_keep_the_temperature_one():
    z = np.full((6, 3), 2.5)
    scaling = GroupTemperatureScaling().fit(z, [0, 1, 2, 0, 1, 2], sensitive_features=[0, 1] * 3)
    assert scaling.temperatures_ == {0: 1.0, 1: 1.0}
    assert scaling.temperature_ == 1.0


def test_an_all_equal_group_beside_a_normal_one():
    z, y = sample(100, 2)
    z[:50] = 0.0
    group = np.repeat(["dead", "live"], 50)
    scaling = GroupTemperatureScaling().fit(z, y, sensitive_features=group)
    assert scaling.temperatures_["dead"] == 1.0
    assert scaling.temperatures_["live"] == pytest.approx(best_temperature(z[50:], y[50:]), 1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1e4, 1e-4])
def test_logits_of_any_size(classes, scale):
    z, y = sample(200, classes)
    scaling = TemperatureScaling(bounds=(1e-6, 1e6)).fit(z * scale, y)
    expected = TemperatureScaling().fit(z, y).temperature_ * scale
    assert scaling.temperature_ == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(scaling.predict_proba(z * scale)).all()


def test_an_offset_of_all_logits_does_not_matter():
    z, y = sample(200, 3)
    shifted = TemperatureScaling().fit(z + 1e4, y).temperature_
    assert shifted == pytest.approx(TemperatureScaling().fit(z, y).temperature_, rel=1e-6)


logit_rows = st.integers(2, 4).flatmap(
    lambda k: st.lists(
        st.lists(st.floats(-30, 30), min_size=k, max_size=k), min_size=2, max_size=20
    )
)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=150)
@given(logit_rows, st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore::equipoise.calibration.CalibrationWarning")
def test_predictions_never_change(rows, random):
    z = np.array(rows)
    classes = z.shape[1]
    ordered = np.sort(z, axis=1)
    z = z[ordered[:, -1] - ordered[:, -2] > 1e-6]
    if len(z) < 2:
        return
    y = np.array([random.randrange(classes) for _ in z])
    group = np.array([random.choice("ab") for _ in z])
    labels = range(classes)
    top = z.argmax(axis=1)
    for unseen in ("error", "global", "mixture"):
        scaling = GroupTemperatureScaling(unseen_group=unseen)
        scaling.fit(z, y, sensitive_features=group, labels=tuple(labels))
        assert scaling.predict(z).tolist() == top.tolist()
        passed = group if unseen == "error" else np.where(group == "a", "a", "new")
        prob = scaling.predict_proba(z, sensitive_features=passed)
        assert prob.argmax(axis=1).tolist() == top.tolist()
        assert (prob >= 0).all()
        assert (prob <= 1).all()


def test_accuracy_and_deterministic_pe_stay_and_log_loss_falls():
    z, y = sample(3000, 3, temperature=3.0)
    group = np.random.default_rng(5).integers(0, 3, len(y))
    z[group == 2] *= 2
    before = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    after = GroupTemperatureScaling().fit_predict_proba(z, y, sensitive_features=group)
    assert accuracy(y, before) == accuracy(y, after)
    pe = [
        proportional_equality(y, p, sensitive_features=group, kind="deterministic")
        for p in (before, after)
    ]
    assert pe[0] == pe[1]
    assert log_loss(y, after) < log_loss(y, before)
    assert expected_calibration_error(y, after) < expected_calibration_error(y, before) / 3


def test_unseen_groups():
    z, y = sample(400, 3)
    z[200:] *= 3
    group = np.repeat(["a", "b"], [200, 200])
    fit = {"sensitive_features": group}
    new = ["a", "c", None]
    strict = GroupTemperatureScaling().fit(z, y, **fit)
    with pytest.raises(
        UnseenGroupError,
        match=r"1 row belongs to group 'c', which has no fitted calibrator \(known: a, b\); .*"
        "unseen_group='global'",
    ) as caught:
        strict.predict_proba(z[:3], sensitive_features=new)
    assert (caught.value.group, caught.value.rows, caught.value.known) == ("c", 1, ("a", "b"))
    assert "--unseen-group global" in caught.value.for_command()
    with pytest.raises(UnseenGroupError, match="2 rows belong to a missing group"):
        strict.predict_proba(z[:3], sensitive_features=["a", None, None])
    with pytest.raises(ValueError, match="sensitive_features were not passed"):
        strict.predict_proba(z[:3])
    common = GroupTemperatureScaling(unseen_group="global").fit(z, y, **fit)
    prob = common.predict_proba(z[:3], sensitive_features=new)
    own = TemperatureScaling().fit(z[:200], y[:200])
    overall = TemperatureScaling().fit(z, y)
    np.testing.assert_allclose(prob[:1], own.predict_proba(z[:1]), rtol=1e-6)
    np.testing.assert_allclose(prob[1:], overall.predict_proba(z[1:3]), rtol=1e-6)
    forgotten = "not passed to a model that was fitted with groups, .* by the policy '{}'"
    with pytest.warns(NoGroupsWarning, match=forgotten.format("global")):
        prob = common.predict_proba(z[:3])
    np.testing.assert_allclose(prob, overall.predict_proba(z[:3]), 1e-6)
    mixed = GroupTemperatureScaling(unseen_group="mixture").fit(
        z[:300], y[:300], **{"sensitive_features": group[:300]}
    )
    by_hand = sum(
        share * mixed.predict_proba(z[:3], sensitive_features=[name] * 3)
        for name, share in (("a", 2 / 3), ("b", 1 / 3))
    )
    with pytest.warns(NoGroupsWarning, match=forgotten.format("mixture")):
        prob = mixed.predict_proba(z[:3])
    np.testing.assert_allclose(prob, by_hand, rtol=1e-12)


def test_group_columns_of_any_kind():
    z, y = sample(400, 2)
    frame = pd.DataFrame({"sex": ["f", "m"] * 200, "old": [True, True, False, False] * 100})
    frame.index = frame.index[::-1]
    scaling = GroupTemperatureScaling().fit(z, y, sensitive_features=frame)
    assert list(scaling.temperatures_) == [("f", False), ("f", True), ("m", False), ("m", True)]
    own = ((frame["sex"] == "m") & frame["old"]).to_numpy()
    assert scaling.temperatures_["m", True] == pytest.approx(best_temperature(z[own], y[own]), 1e-6)


@pytest.mark.parametrize(
    "group",
    [[0, 1] * 50, [(0, "a"), (1, "b")] * 50, ["é", "<b>"] * 50, [True, False] * 50],
    ids=["int", "tuple", "str", "bool"],
)
def test_save_and_load(tmp_path, group):
    z, y = sample(100, 3)
    scaling = GroupTemperatureScaling(unseen_group="mixture", shrinkage=5.0)
    scaling.fit(z, np.array(["x", "y", "z"])[y], sensitive_features=group)
    scaling.save(tmp_path / "t.json")
    loaded = GroupTemperatureScaling.load(tmp_path / "t.json")
    assert loaded.temperatures_ == scaling.temperatures_
    assert [type(g) for g in loaded.temperatures_] == [type(g) for g in scaling.temperatures_]
    assert loaded.get_params() == scaling.get_params()
    for features in (group, [None] * 100):
        np.testing.assert_array_equal(
            loaded.predict_proba(z, sensitive_features=features),
            scaling.predict_proba(z, sensitive_features=features),
        )
    assert loaded.predict(z).tolist() == scaling.predict(z).tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_save_and_load_the_common_temperature(tmp_path):
    z, y = sample(100, 2)
    scaling = TemperatureScaling().fit(z, y)
    scaling.save(tmp_path / "t.json")
    assert TemperatureScaling.load(tmp_path / "t.json").temperature_ == scaling.temperature_
    with pytest.raises(ValueError, match=r"t\.json is not a saved GroupTemperatureScaling"):
        GroupTemperatureScaling.load(tmp_path / "t.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("temperature"),
        lambda d: d.update(temperature=-1.0),
        lambda d: d.update(temperature="2"),
        lambda d: d["groups"][0].pop("share"),
        lambda d: d.update(groups=3),
        lambda d: d["params"].update(surprise=1),
        lambda d: d["params"].update(bounds=[3, 1]),
        lambda d: d.update(format="other/1"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    z, y = sample(100, 2)
    path = tmp_path / "t.json"
    GroupTemperatureScaling().fit(z, y, sensitive_features=[0, 1] * 50).save(path)
    forge(path, damage)
    with pytest.raises(
        ValueError, match=r"t\.json is not a saved GroupTemperatureScaling: (?!.*dig)"
    ):
        GroupTemperatureScaling.load(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"t\.json is not a saved"):
        GroupTemperatureScaling.load(path)


def test_groups_that_json_cannot_hold_leave_the_old_file_alone(tmp_path):
    z, y = sample(100, 2)
    path = tmp_path / "t.json"
    path.write_text("old")
    group = np.array([b"a", b"b"] * 50, dtype=object)
    scaling = GroupTemperatureScaling().fit(z, y, sensitive_features=group)
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        scaling.save(path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def paper_recipe(z, y, group):
    """Adam on the temperatures by torch, stopping when the ECE rises."""
    logits, target = torch.from_numpy(z), torch.from_numpy(y)
    member = torch.from_numpy(group)
    t = torch.ones(int(group.max()) + 1, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([t], lr=1e-4, eps=1e-7)
    history = [t.detach().clone().numpy()]

    def ece():
        prob = torch.softmax(logits / t.detach()[member, None], dim=1).numpy()
        return expected_calibration_error(y, prob)

    previous = ece()
    for _ in range(500):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(logits / t[member, None], target).backward()
        adam.step()
        if ece() > previous:
            break
        previous = ece()
        history.append(t.detach().clone().numpy())
    return history


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_the_papers_recipe(classes):
    z, y = sample(250, classes)
    group = np.random.default_rng(6).integers(0, 2, len(y))
    history = paper_recipe(z, y, group)
    scaling = GroupTemperatureScaling(solver="paper").fit(z, y, sensitive_features=group)
    got = [scaling.temperatures_[g] for g in (0, 1)]
    # torch divides eps by another factor than TensorFlow, which shows in the seventh digit
    np.testing.assert_allclose(got, history[-1], atol=1e-6)
    assert all(0.949 < t < 1.051 for t in got), "500 steps of 1e-4 cannot go further"
    assert len(history) > 1


def test_estimator_conventions():
    scaling = GroupTemperatureScaling(unseen_group="global", shrinkage=3.0)
    assert clone(scaling).get_params() == scaling.get_params()
    with pytest.raises(NotFittedError, match="call fit first"):
        scaling.predict_proba([[0.0, 1.0]])
    with pytest.raises(ValueError, match="not fitted yet"):
        scaling.save("never-written.json")
    z, y = sample(50, 2)
    kept = z.copy()
    scaling.fit(z, y, sensitive_features=[0, 1] * 25)
    scaling.predict_proba(z, sensitive_features=[0, 1] * 25)
    np.testing.assert_array_equal(z, kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": [[0.0, np.nan], [1.0, 0.0]]}, r"logits, row 0: \[0\.0, nan\] is not finite"),
        ({"logits": [[0.0, 1.0], [np.inf, 0.0]]}, r"logits, row 1: \[inf, 0\.0\] is not finite"),
        ({"logits": [[0.0], [1.0]]}, "pass two or more"),
        ({"y": [0, 1, 1]}, "y has 3 rows"),
        ({"y": ["a", "a"]}, "pass labels="),
        ({"y": [0, None]}, "y has 1 missing value, the first in row 1"),
        ({"sensitive_features": ["a"]}, "sensitive_features has 1 rows"),
        ({"sensitive_features": ["a", None]}, "sensitive_features has 1 missing value"),
        ({"sample_weight": [1.0, -1.0]}, r"sample_weight, row 1: -1\.0"),
        ({"labels": (0, 1, 2)}, "labels must name the 2 columns"),
    ],
)
def test_bad_input(change, message):
    good = {"logits": [[0.0, 1.0], [1.0, 0.0]], "y": [1, 0], "sensitive_features": ["a", "b"]}
    arguments = {**good, **change}
    with pytest.raises(ValueError, match=message):
        GroupTemperatureScaling().fit(arguments.pop("logits"), arguments.pop("y"), **arguments)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"bounds": (2.0, 1.0)}, "bounds must be"),
        ({"bounds": (0.0, 2.0)}, "bounds must be"),
        ({"solver": "adam"}, "solver must be"),
        ({"unseen_group": "guess"}, "unseen_group must be"),
        ({"shrinkage": -1.0}, "shrinkage must be"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        GroupTemperatureScaling(**params).fit([[0.0, 1.0]] * 2, [0, 1], sensitive_features=[0, 1])


def test_arrays_of_any_layout_and_type():
    z, y = sample(100, 3)
    z = z.round()
    expected = TemperatureScaling().fit(z, y).temperature_
    frozen = z.copy()
    frozen.flags.writeable = False
    layouts = (frozen, np.asfortranarray(z), z[::-1][::-1], z.astype(">f8"), z.astype("i8"))
    for same in (*layouts, z.tolist(), torch.from_numpy(z), pd.DataFrame(z), z.astype("f2")):
        assert TemperatureScaling().fit(same, y).temperature_ == pytest.approx(expected, 1e-9)


def test_another_number_of_classes_at_prediction():
    z, y = sample(50, 3)
    with pytest.raises(ValueError, match="2 classes, but was fitted with 3"):
        TemperatureScaling().fit(z, y).predict_proba(z[:, :2])


def test_the_safeguard_stops_where_newton_would_leap():
    # all rows saturated at the start: the second derivative underflows to 0
    z = np.array([[3000.0, 0.0]] * 30 + [[0.0, 3000.0]] * 10)
    y = np.zeros(40, np.int64)
    problem = Problem.of(torch.from_numpy(z)[None], torch.from_numpy(y), None, 1e6)
    solution = solve(problem, (1e-6, 1e6))
    assert solution.converged
    assert solution.temperature.item() == pytest.approx(3000 / math.log(3), rel=1e-6)
