"""`method="auto"`: plain cross-validation, known truths, and words that agree with the interval."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax, softmax

from calibration_worlds import drawn, expected_loss
from equipoise.calibration import METHODS, CalibrationWarning, GroupCalibrator, Selection
from equipoise.calibration._mixing import inner_folds, thinned
from equipoise.calibration._rows import Rows
from equipoise.calibration._selection import CANDIDATES, LEAST, select


def logits(rng, n, classes=2, spread=1.5):
    return spread * rng.normal(size=(n, classes))


def world(kind, rows, seed):
    """Return rows of two groups, and a function that gives new rows and their truth."""
    rng = np.random.default_rng([31, seed])

    def truth(z, group):
        second = (group == 1)[:, None]
        if kind == "calibrated":
            return softmax(z, axis=1)
        if kind == "overconfident":
            return softmax(z / 2.5, axis=1)
        if kind == "temperatures":
            return softmax(z / np.where(second, 3.5, 0.7), axis=1)
        if kind == "biased":
            return softmax(z / 1.5 + np.where(second, [0.8, -0.8], [-0.5, 0.5]), axis=1)
        assert kind == "bent"
        odds = z[:, 1] - z[:, 0]
        odds = np.where(odds > 0.0, 0.15 * odds, 1.6 * odds)
        return np.stack([expit(-odds), expit(odds)], axis=1)

    def held_out(n=10_000):
        z, group = logits(rng, n), np.arange(n) % 2
        return z, group, truth(z, group)

    z, group = logits(rng, rows), np.arange(rows) % 2
    return z, drawn(rng, truth(z, group)), group, held_out


def auto(z, y, group, **how):
    params = {k: how.pop(k) for k in ("shrinkage", "bounds") if k in how}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return GroupCalibrator(**params).fit(z, y, sensitive_features=group, **how)


def harm(model, held_out):
    """Return the expected log-loss after minus before the repair."""
    z, group, truth = held_out()
    after = model.predict_proba(z, sensitive_features=group)
    return expected_loss(after, truth) - expected_loss(softmax(z, axis=1), truth)


# --- known truths ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rows", [60, 400, 2000])
def test_a_calibrated_model_is_mostly_left_alone(rows):
    chosen, worse, claimed = [], [], 0
    for seed in range(100):
        z, y, group, held_out = world("calibrated", rows, seed)
        model = auto(z, y, group)
        chosen.append(model.method_)
        worse.append(harm(model, held_out))
        claimed += model.method_ != "none" and model.selection_.low > 0.0
    assert chosen.count("none") >= 85
    assert np.mean(worse) < (0.001 if rows > 60 else 0.0025)
    assert claimed <= 5  # the interval of a gain that is not there excludes 0 in 5 of 100


def test_eight_calibrated_models_are_left_alone():
    found = [world("calibrated", 500, seed) for seed in range(8)]
    assert [auto(*each[:3]).method_ for each in found].count("none") >= 7


@pytest.mark.parametrize(
    ("kind", "rows", "among"),
    [
        ("overconfident", 1000, {"common"}),
        ("temperatures", 3000, {"temperature"}),
        ("biased", 2000, {"bcts"}),
        ("bent", 8000, {"beta", "isotonic"}),
    ],
)
def test_the_method_that_the_distortion_needs(kind, rows, among):
    z, y, group, held_out = world(kind, rows, 1)
    model = auto(z, y, group)
    assert model.method_ in among
    assert model.selection_.low > 0.0
    assert harm(model, held_out) < -0.005
    text = model.selection_.text
    assert text.startswith(f"Chosen: {METHODS[model.method_].text}. The out-of-fold log-loss falls")
    assert "chance" not in text


def test_the_order_of_rows_matters_little():
    z, y, group, _ = world("biased", 1500, 10)
    order = np.lexsort((z[:, 1] - z[:, 0], y, group))  # neighbours have nearly equal scores
    found = [auto(*each).selection_ for each in ((z, y, group), (z[order], y[order], group[order]))]
    assert found[0].method == found[1].method
    for name in CANDIDATES:
        assert found[0].log_loss[name] == pytest.approx(found[1].log_loss[name], abs=0.003)


def test_folds_are_spread_over_label_and_group():
    z, y, group, _ = world("biased", 203, 9)
    folds = inner_folds(Rows(z, y, group, (0, 1), (0, 1)), None)
    cell = 2 * y + group
    tests = [test for _, test in folds]
    assert sorted(np.concatenate(tests)) == list(range(203))
    counts = np.array([np.bincount(cell[test], minlength=4) for test in tests])
    assert np.ptp(counts, axis=0).max() <= 1
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(203))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [40, 300, 3000])
@pytest.mark.parametrize("kind", ["overconfident", "temperatures", "biased", "bent"])
def test_the_choice_is_nearly_as_good_as_the_best_single_method(kind, rows):
    found = {name: [] for name in ("auto", "none", "bcts", "beta")}
    for seed in range(25):
        z, y, group, held_out = world(kind, rows, 100 + seed)
        new, member, truth = held_out()
        for name, losses in found.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                model = GroupCalibrator(method=name).fit(z, y, sensitive_features=group)
            prob = model.predict_proba(new, sensitive_features=member)
            losses.append(expected_loss(prob, truth))
    mean = {name: np.mean(losses) for name, losses in found.items()}
    assert mean["auto"] <= mean["none"]
    # of 40 rows little can be said, and often that there is nothing to repair
    if rows > 40:
        assert mean["auto"] <= min(mean.values()) + (0.006 if rows < 3000 else 0.001)


# --- the numbers -----------------------------------------------------------------------------


def scaled(z, beta, bias=0.0):
    return log_softmax(beta * z + bias, axis=1)


def one_temperature(z, y):
    def loss(beta):
        return -scaled(z, beta)[np.arange(len(y)), y].sum()

    return minimize_scalar(loss, bounds=(0.01, 20.0), method="bounded", options={"xatol": 1e-9}).x


def affine(z, y):
    def loss(x):
        return -scaled(z, x[0], np.array([0.0, *x[1:]]))[np.arange(len(y)), y].mean()

    found = minimize(loss, np.eye(z.shape[1])[0], method="BFGS", options={"gtol": 1e-8})
    return found.x[0], np.array([0.0, *found.x[1:]])


@pytest.mark.parametrize("classes", [2, 3])
def test_log_losses_are_those_of_a_plain_cross_validation(classes):
    rng = np.random.default_rng(classes)
    z, group = logits(rng, 300, classes), np.arange(300) % 2
    y = drawn(rng, softmax(z / 2 + 0.3 * group[:, None] * np.arange(classes), axis=1))
    fold = np.empty(300, int)
    for k, (_, test) in enumerate(inner_folds(Rows(z, y, group, (0, 1), range(classes)), None)):
        fold[test] = k
    losses = {name: np.zeros(300) for name in ("none", "common", "temperature", "bcts")}
    for k in range(5):
        train, test = fold != k, fold == k
        rows = np.flatnonzero(test)
        losses["none"][rows] = -scaled(z[rows], 1.0)[np.arange(len(rows)), y[rows]]
        common = one_temperature(z[train], y[train])
        losses["common"][rows] = -scaled(z[rows], common)[np.arange(len(rows)), y[rows]]
        for g in (0, 1):
            some, mine = train & (group == g), np.flatnonzero(test & (group == g))
            at = np.arange(len(mine)), y[mine]
            own = one_temperature(z[some], y[some])
            losses["temperature"][mine] = -scaled(z[mine], own)[at]
            losses["bcts"][mine] = -scaled(z[mine], *affine(z[some], y[some]))[at]
    found = auto(z, y, group, shrinkage=0).selection_
    for name, each in losses.items():
        assert found.log_loss[name] == pytest.approx(each.mean(), rel=1e-6)
    difference = losses["none"] - losses[found.method]
    error = difference.std() / math.sqrt(300)
    assert found.gain == pytest.approx(difference.mean(), rel=1e-5)
    assert found.low == pytest.approx(difference.mean() - 1.96 * error, rel=1e-4)
    assert found.high == pytest.approx(difference.mean() + 1.96 * error, rel=1e-4)
    assert list(found.log_loss) == list(CANDIDATES)


def test_the_unit_of_the_weights_does_not_matter():
    z, y, group, _ = world("biased", 400, 3)
    weight = np.random.default_rng(0).gamma(2.0, size=400)
    plain = auto(z, y, group, sample_weight=weight)
    for factor in (1e-3, 1e6):
        found = auto(z, y, group, sample_weight=factor * weight).selection_
        assert found.method == plain.method_
        assert found.gain == pytest.approx(plain.selection_.gain, rel=1e-5)
        assert found.low == pytest.approx(plain.selection_.low, rel=1e-5)
    ones = auto(z, y, group, sample_weight=np.ones(400)).selection_
    assert ones.gain == pytest.approx(auto(z, y, group).selection_.gain, rel=1e-9)


def test_merged_rows_count_as_the_rows_they_stand_for():
    z, y, group, _ = world("biased", 400, 4)
    z = np.round(4.0 * (z[:, 1] - z[:, 0])) / 4.0
    z = np.stack([np.zeros(400), z], axis=1)
    keys, place, count = np.unique(
        np.column_stack([z[:, 1], y, group]), axis=0, return_inverse=True, return_counts=True
    )
    scores = np.column_stack([np.zeros(len(keys)), keys[:, 0]])
    codes, members, many = keys[:, 1].astype(int), keys[:, 2].astype(int), count.astype(float)
    merged = Rows(scores, codes, members, (0, 1), (0, 1), many, many)
    np.testing.assert_array_equal(scores[place.ravel()], z)
    apart = select(Rows(z, y, group, (0, 1), (0, 1)), 0.0)
    together = select(merged, 0.0)
    assert together.log_loss["none"] == pytest.approx(apart.log_loss["none"], rel=1e-12)
    assert together.gain == pytest.approx(apart.gain, abs=0.05)  # other folds
    assert together.high - together.low == pytest.approx(apart.high - apart.low, rel=0.2)


def test_rows_of_a_cluster_are_not_independent():
    z, y, group, _ = world("overconfident", 200, 5)
    z, y, group = (each.repeat(4, axis=0) for each in (z, y, group))
    clusters = np.arange(800) // 4
    apart = auto(z, y, group).selection_
    found = auto(z, y, group, clusters=clusters).selection_
    for name in ("none", "common"):
        assert found.log_loss[name] == pytest.approx(apart.log_loss[name], abs=0.01)
    # four copies of a row are one row: the interval is twice as wide
    assert found.high - found.low > 1.7 * (apart.high - apart.low)


@pytest.mark.parametrize("order", ["random", "labels alternate", "groups alternate", "sorted"])
def test_of_very_many_rows_a_sample_is_compared(monkeypatch, order):
    z, y, group, _ = world("biased", 6000, 6)
    monkeypatch.setattr("equipoise.calibration._mixing.MOST", 2000)
    key = {"random": np.arange(6000), "sorted": z[:, 1] - z[:, 0]}.get(order)
    if key is None:  # one of each kind in turn, as long as there are any
        kind = y if order.startswith("labels") else group
        key = np.empty(6000)
        for value in (0, 1):
            key[kind == value] = np.arange((kind == value).sum()) + value / 2
    by = np.argsort(key, kind="stable")
    rows = Rows(z[by], y[by], group[by], (0, 1), (0, 1))
    found = select(rows, "auto")
    assert 1800 < found.sample < 2200
    assert f"Chosen on a sample of {found.sample:,} rows: " in found.text
    monkeypatch.setattr("equipoise.calibration._mixing.MOST", 10**6)
    whole = select(rows, "auto")
    assert (whole.sample, whole.method) == (0, found.method)
    error = (found.high - found.low) / 3.92
    assert abs(found.gain - whole.gain) < 3 * error


def test_rare_labels_are_not_lost_in_a_sample(monkeypatch):
    rng = np.random.default_rng(0)
    z = rng.normal(0.0, 1.0, (40_000, 2))
    y = (rng.random(40_000) < 0.002).astype(int)
    monkeypatch.setattr("equipoise.calibration._mixing.MOST", 2000)
    rows, _ = thinned(Rows(z, y, np.zeros(40_000, int), (0,), (0, 1)), None)
    assert (rows.codes == 1).sum() == y.sum()
    assert rows.weight[rows.codes == 0].sum() == pytest.approx((y == 0).sum(), rel=0.05)
    clusters = np.arange(40_000) // 2
    some, ids = thinned(Rows(z, y, None, (), (0, 1)), clusters)
    assert len(some) == len(ids)
    assert (np.bincount(ids)[np.unique(ids)] == 2).all()  # whole clusters


# --- the words -------------------------------------------------------------------------------


@given(
    st.sampled_from(CANDIDATES),
    st.dictionaries(st.sampled_from(CANDIDATES), st.floats(0.01, 2.0), min_size=5),
    st.floats(-0.5, 0.5),
    st.floats(1e-6, 0.5),
)
@settings(max_examples=200, deadline=None)
def test_words_never_contradict_the_interval(method, losses, gain, half):
    losses = {name: losses.get(name, 1.0) for name in CANDIDATES}
    if method != "none":
        gain = abs(gain) + 0.51 * half  # more than one standard error
    found = Selection(method, losses, gain, gain - half, gain + half)
    text = found.text
    assert ("chance" in text) == (found.low <= 0.0 < gain)
    assert ("could outweigh" in text) == (method == "none" and found.low > 0.0)
    assert text.startswith("Nothing to repair" if method == "none" else "Chosen: ")
    assert "-0.0000)" not in text
    assert "(-0.0000 " not in text
    if method == "none" and gain <= 0:
        assert "no method lowers" in text
    if method != "none":
        assert METHODS[method].text in text
        better = [n for n in CANDIDATES[1:] if losses[n] < losses[method]]
        assert ("no clear gain" in text) == bool(better)
    again = Selection.from_dict(found.to_dict())
    assert again == found


def test_a_small_bound_is_not_shown_as_zero():
    found = Selection("bcts", {"none": 0.5, "bcts": 0.49}, 0.0021, 0.00002, 0.00418)
    assert "by 0.00210 (0.00002 to 0.00418)." in found.text
    found = Selection("none", {"none": 0.5, "bcts": 0.499}, 0.001, -0.002, 0.004)
    assert found.text == (
        "Nothing to repair: a temperature and a bias per group lowers the out-of-fold log-loss by "
        "0.0010 (-0.0020 to 0.0040), which may be chance."
    )


@pytest.mark.parametrize(
    "change", [{"method": "guess"}, {"log_loss": {"none": 0.1}}, {"log_loss": {"bcts": 0.1}}]
)
def test_a_damaged_selection_is_refused(change):
    plain = Selection("bcts", {"none": 0.5, "bcts": 0.4}, 0.1, 0.05, 0.15).to_dict()
    with pytest.raises(ValueError, match="is not among the methods compared"):
        Selection.from_dict(plain | change)


# --- few rows --------------------------------------------------------------------------------


def test_few_rows_that_are_all_correct_do_not_make_it_certain():
    odds = np.tile([1.5, -1.5, 2.0, -2.0], 5)
    group = np.arange(20) % 2
    model = auto(np.stack([np.zeros(20), odds], axis=1), (odds > 0).astype(int), group)
    assert model.method_ == "none"
    assert model.selection_.low > 0.0
    assert "but one further row that is wrong could outweigh that" in model.selection_.text
    # a thousand rows do
    odds = np.tile(odds, 50)
    group = np.arange(1000) % 2
    model = auto(np.stack([np.zeros(1000), odds], axis=1), (odds > 0).astype(int), group)
    assert model.method_ != "none"
    assert model.selection_.low > 0.0


@pytest.mark.parametrize("rows", [2, 3, 5, 10, 25])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("groups", [0, 1, 2])
def test_few_rows_do_not_fail(rows, classes, groups):
    rng = np.random.default_rng(rows)
    z, y = logits(rng, rows, classes), np.arange(rows) % classes
    group = None if groups == 0 else np.arange(rows) // 2 % groups
    model = auto(z, y, group, labels=range(classes))
    assert np.isfinite(model.calibrator_.apply(z)).all()
    least = np.bincount(y, minlength=classes).min()
    compared = set(model.selection_.log_loss)
    assert {"none", "common", "temperature"} <= compared
    assert ("bcts" in compared) == (least >= LEAST["bcts"])
    assert "isotonic" not in compared


def test_a_class_that_a_fold_lacks_leaves_the_methods_that_need_it_out():
    z, y, group, _ = world("biased", 100, 7)
    y[:] = 0
    y[:40] = 1
    clusters = np.where(y == 1, 0, np.arange(100))  # all rows of a class in one fold
    found = auto(z, y, group, clusters=clusters).selection_
    assert set(found.log_loss) == {"none", "common", "temperature"}
    assert math.isfinite(found.gain)


@pytest.mark.parametrize("groups", [None, "one"])
def test_one_group_and_none_at_all(groups):
    z, y, _, _ = world("overconfident", 400, 8)
    model = auto(z, y, None if groups is None else ["a"] * 400)
    assert model.method_ == "common"
    # of one group the common temperature is the group's
    losses = model.selection_.log_loss
    assert losses["common"] == pytest.approx(losses["temperature"], rel=1e-6)
