"""The engine against a plain loop: torch.nn, autograd, one run at a time, plain metrics."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch

from equipoise import GroupTemperatureScaling, TemperatureScaling
from equipoise.datasets import Part, Preprocessor, Split
from equipoise.metrics import (
    accuracy,
    expected_calibration_error,
    group_base_rates,
    groupwise_calibration_error,
    log_loss,
    proportional_equality,
)
from equipoise.training import (
    CALIBRATIONS,
    LOSS_NAMES,
    LOSSES,
    PARTS,
    Config,
    GroupwiseLoss,
    Loss,
    epochs_of,
    run_column,
    train_stack,
)
from equipoise.training._chunk_losses import ChunkLosses
from equipoise.training._epoch_metrics import RowTensors
from equipoise.training._network import StackedMLP


def make_split(sizes=(90, 40, 41), columns=6, classes=2, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        X = rng.normal(size=(n, columns)).astype(np.float32)
        group = np.arange(n) % groups
        score = X[:, :classes] + 0.5 * group[:, None] * np.arange(classes)
        y = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
        y[:classes] = np.arange(classes)
        parts.append(Part(X, y, group, np.arange(n)))
    names = [f"x{j}" for j in range(columns)]
    return Split(*parts, Preprocessor.fit(parts[0].X, names))


SMALL = {"batch_size": 32, "hidden_layer_sizes": (8, 5), "dtype": torch.float64}


def plain_loop(split, config, epochs, *, batch_size, hidden_layer_sizes, dtype, output_relu=False):
    """Train one run with torch.nn and autograd; return the logits of val and test per epoch."""
    classes = int(split.train.y.max()) + 1
    sizes = (split.train.X.shape[1], *hidden_layer_sizes, classes)
    parts = []
    for weight, bias in StackedMLP(sizes, [config.seed], dtype=dtype).layers(0):
        linear = torch.nn.Linear(*weight.shape, dtype=dtype)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias.clone()
        parts += [linear, torch.nn.ReLU()]
    net = torch.nn.Sequential(*(parts if output_relu else parts[:-1]))
    loss = GroupwiseLoss(config.loss, config.rho, config.lam)
    X, y, group = (torch.from_numpy(v) for v in (split.train.X, split.train.y, split.train.group))
    X = X.to(dtype)
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in net.parameters()]
    shuffle, step = torch.Generator().manual_seed(0), 0
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=shuffle).split(batch_size):
            net.zero_grad()
            loss(net(X[rows]), y[rows], group[rows]).backward()
            step += 1
            rate = config.learning_rate * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            with torch.no_grad():
                for p, (m, v) in zip(net.parameters(), moments, strict=True):
                    m.mul_(0.9).add_(0.1 * p.grad)
                    v.mul_(0.999).add_(0.001 * p.grad**2)
                    p.sub_(rate * m / (v.sqrt() + 1e-7))
        with torch.no_grad():
            yield [net(torch.from_numpy(p.X).to(dtype)).numpy() for p in (split.val, split.test)]


def plain_columns(split, val, test, reference=0):
    """Measure logits by the plain functions."""
    bounds, labels = (0.05, 20.0), tuple(range(val.shape[1]))
    common = TemperatureScaling(bounds=bounds).fit(val, split.val.y, labels=labels)
    own = GroupTemperatureScaling(bounds=bounds).fit(
        val, split.val.y, sensitive_features=split.val.group, labels=labels
    )
    found = {"temperature": common.temperature_}
    found |= {f"temperature_{g}": t for g, t in own.temperatures_.items()}
    rates = group_base_rates(
        split.train.y, sensitive_features=split.train.group, labels=range(val.shape[1])
    )
    for name, z, part in (("val", val, split.val), ("test", test, split.test)):
        known = {"labels": tuple(range(z.shape[1]))}
        probs = {
            "": np.exp(z) / np.exp(z).sum(1, keepdims=True),
            "_common": common.predict_proba(z),
            "_group": own.predict_proba(z, sensitive_features=part.group),
        }
        found[f"{name}_dead"] = float((z == 0).all(axis=1).mean())
        for how, p in probs.items():
            for bins in (10, 15):
                ece = expected_calibration_error(part.y, p, n_bins=bins, **known)
                found[f"{name}{how}_ece{bins}"] = ece
            grouped = groupwise_calibration_error(part.y, p, sensitive_features=part.group, **known)
            found |= {f"{name}{how}_ece15_{g}": e for g, e in grouped.items()}
            found[f"{name}{how}_log_loss"] = log_loss(part.y, p, **known)
            pe = {"sensitive_features": part.group, "base_rates": rates, **known}
            pe["reference_group"] = reference
            found[f"{name}{how}_pe"] = proportional_equality(None, p, **pe)
        found[f"{name}_accuracy"] = accuracy(part.y, probs[""], **known)
        found[f"{name}_pe_deterministic"] = proportional_equality(
            None, probs[""], kind="deterministic", **pe
        )
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:proportional equality", "ignore::equipoise.calibration.CalibrationWarning"
)
@pytest.mark.parametrize(
    ("classes", "groups", "output_relu"), [(2, 2, False), (2, 2, True), (3, 3, False)]
)
def test_a_mixed_stack_equals_the_plain_loop(classes, groups, output_relu):
    split = make_split(classes=classes, groups=groups)
    rho = 0.3 if groups == 2 else (0.2, 0.3, 0.5)
    configs = [
        Config(name, weight, lam, seed, rate)
        for seed, name in enumerate(LOSSES)
        for weight, lam, rate in ((None, 0.5, 1e-2), (rho, 2.0, 2e-2))
    ]
    result = train_stack(
        split, configs, max_epochs=3, chunk=5, workers=2, output_relu=output_relu, **SMALL
    )
    for c, config in enumerate(configs):
        runs = plain_loop(split, config, 3, output_relu=output_relu, **SMALL)
        for e, (val, test) in enumerate(runs):
            if e == 1:
                continue
            expected = plain_columns(split, val, test)
            assert set(result.columns) == {*expected, "train_loss", "diverged"}
            for name, value in expected.items():
                tolerance = 1e-6 if "temp" in name or "common" in name or "group" in name else 1e-9
                assert result.columns[name][c, e] == pytest.approx(
                    value, rel=tolerance, abs=1e-9, nan_ok=True
                ), (config, e, name)
    assert not result.diverged


@pytest.mark.filterwarnings(
    "ignore:proportional equality", "ignore::equipoise.calibration.CalibrationWarning"
)
@pytest.mark.parametrize("reference", [1, 2])
def test_pe_compares_with_the_reference(reference):
    split = make_split(groups=3)
    config = Config("mmce", (0.2, 0.3, 0.5), 2.0, 0, 1e-2)
    found = train_stack(split, [config], max_epochs=2, reference=reference, **SMALL).columns
    usual = train_stack(split, [config], max_epochs=2, **SMALL).columns
    for e, logits in enumerate(plain_loop(split, config, 2, **SMALL)):
        expected = plain_columns(split, *logits, reference)
        assert set(found) == {*expected, "train_loss", "diverged"}
        for name, value in expected.items():
            assert found[name][0, e] == pytest.approx(value, rel=1e-6, abs=1e-9), name
    # nothing else depends on it
    changed = {name for name in found if not np.allclose(found[name], usual[name])}
    assert changed
    assert all("pe" in name.split("_") for name in changed)


def test_a_run_is_the_same_alone_and_in_any_stack():
    split = make_split()
    configs = [Config(name, 0.4, 3.0, seed) for name in ("mmce", "ce", "dca") for seed in range(3)]
    together = train_stack(split, configs, max_epochs=4, workers=2, **SMALL)
    backwards = train_stack(split, configs[::-1], max_epochs=4, chunk=2, workers=1, **SMALL)
    for c, config in enumerate(configs):
        alone = train_stack(split, [config], max_epochs=4, **SMALL)
        for name, values in alone.columns.items():
            for other in (together.columns[name][c], backwards.columns[name][-1 - c]):
                np.testing.assert_allclose(values[0], other, rtol=1e-7, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("names", [("ce",), ("ce", "mmce", "ce", "fl"), ("dca",)], ids=" ".join)
def test_gradients_in_the_logits_are_autograds(names, classes, weighted):
    rng = np.random.default_rng(2)
    part = make_split(classes=classes).train
    weight = rng.uniform(0.0, 3.0, len(part.y)) if weighted else None
    rows = RowTensors(dataclasses.replace(part, weight=weight), "cpu", torch.float64)
    configs = [Config(name, rho, 2.0) for name in names for rho in (None, 0.3)]
    logits = torch.from_numpy(rng.normal(size=(len(configs), len(part.y), classes)))
    losses = ChunkLosses(configs, "cpu", torch.float64, LOSSES)
    before = logits.clone()
    values, gradient = losses.slope(logits, rows)
    assert torch.equal(logits, before)
    for c, config in enumerate(configs):
        z = logits[c].clone().requires_grad_()
        expected = GroupwiseLoss(config.loss, config.rho, config.lam)(
            z, rows.y, rows.group, rows.weight
        )
        expected.backward()
        torch.testing.assert_close(values[c], expected.detach())
        torch.testing.assert_close(gradient[c], z.grad)
    losses.silent = torch.arange(len(configs)) == 1
    still, silenced = losses.slope(logits, rows)
    assert torch.equal(still, values)
    assert (silenced[1] == 0).all()
    assert torch.equal(silenced[0], gradient[0])


def test_batches_are_the_rows_in_order():
    part = make_split(sizes=(700, 40, 41)).train
    for weight in (None, np.arange(700.0)):
        rows = RowTensors(dataclasses.replace(part, weight=weight), "cpu", torch.float64)
        order = torch.randperm(700, generator=torch.Generator().manual_seed(0))
        batches = list(rows.batches(order, 16))
        assert [len(b.y) for b in batches] == [16] * 43 + [12]
        for name in ("X", "y", "group"):
            together = torch.cat([getattr(b, name) for b in batches])
            assert torch.equal(together, getattr(rows, name)[order])
        if weight is None:
            assert all(b.weight is None for b in batches)
        else:
            assert torch.equal(torch.cat([b.weight for b in batches]), rows.weight[order])


def test_the_seed_of_the_split_fixes_the_batches():
    split = make_split()
    one, same, other = (
        train_stack(split, [Config()], max_epochs=2, split_seed=s, **SMALL).columns["val_log_loss"]
        for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_a_run_that_diverges_is_flagged_and_the_others_go_on():
    split = make_split()
    configs = [Config("mmce", 0.5, 2.0, seed=s) for s in range(3)]
    alone = train_stack(split, [configs[2]], max_epochs=5, **SMALL)
    seen = []
    for epoch in epochs_of(split, configs, **SMALL):
        seen.append(epoch.columns)
        if epoch.number == 2:
            epoch.network.hidden[0][0][1] = torch.nan
        if epoch.number == 5:
            break
    for e, columns in enumerate(seen):
        assert columns["diverged"].tolist() == [0, float(e >= 2), 0]
        for name, values in columns.items():
            assert values[2] == pytest.approx(alone.columns[name][0, e], rel=1e-7), name
            if name != "diverged":
                assert np.isnan(values[1]) == (e >= 2), name


def test_the_result_names_what_diverged():
    split = make_split()
    wild, tame = Config("ce", seed=3, learning_rate=1e200), Config("ce", seed=3)
    result = train_stack(split, [tame, wild, tame], max_epochs=3, **SMALL)
    assert result.diverged == (wild,)
    np.testing.assert_array_equal(
        result.columns["val_log_loss"][0], result.columns["val_log_loss"][2]
    )


def test_weights_at_chosen_epochs_give_the_measured_logits():
    split = make_split()
    configs = [Config("ce", seed=s) for s in range(3)]
    result = train_stack(split, configs, max_epochs=4, keep_epochs=(2, 4), chunk=2, **SMALL)
    assert set(result.layers) == {2, 4}
    for epoch, layers in result.layers.items():
        for c in range(3):
            a = split.test.X.astype(np.float64)
            for i, (weight, bias) in enumerate(layers[c]):
                a = a @ weight.numpy() + bias.numpy()
                a = np.maximum(a, 0) if i < len(layers[c]) - 1 else a
            measured = result.columns["test_accuracy"][c, epoch - 1]
            assert measured == (a.argmax(axis=1) == split.test.y).mean()


def test_a_group_absent_from_validation_keeps_its_slot():
    split = make_split()
    val = dataclasses.replace(split.val, group=np.zeros_like(split.val.group))
    result = train_stack(dataclasses.replace(split, val=val), [Config()], max_epochs=2, **SMALL)
    assert (result.columns["temperature_1"] == 1.0).all()
    assert np.isnan(result.columns["val_ece15_1"]).all()
    assert np.isfinite(result.columns["test_group_pe"]).all()


def test_float32_is_close_to_float64():
    split = make_split()
    runs = [Config("mmce-w", 0.5, 1.0, s) for s in range(2)]
    double = train_stack(split, runs, max_epochs=3, **SMALL).columns
    single = train_stack(split, runs, max_epochs=3, **{**SMALL, "dtype": torch.float32}).columns
    for name in ("val_log_loss", "test_pe", "train_loss"):
        np.testing.assert_allclose(single[name], double[name], rtol=1e-4)


def test_the_frame_has_a_row_per_run_and_epoch():
    split = make_split()
    configs = [Config("dca", 0.25, 2.0, seed=4), Config("ce", seed=5)]
    result = train_stack(split, configs, max_epochs=3, **SMALL)
    frame = result.to_frame()
    assert len(frame) == 6
    assert frame["epoch"].tolist() == [1, 2, 3] * 2
    assert frame["seed"].tolist() == [4] * 3 + [5] * 3
    row = frame[(frame["loss"] == "dca") & (frame["epoch"] == 2)].iloc[0]
    assert row["test_ece10"] == result.columns["test_ece10"][0, 1]


def test_progress_counts_runs_times_epochs(capsys):
    seen = []
    configs = [Config(seed=s) for s in range(5)]
    train_stack(
        make_split(),
        configs,
        max_epochs=2,
        chunk=2,
        progress=lambda *now: seen.append(now),
        **SMALL,
    )
    assert seen[-1] == (10, 10)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    train_stack(make_split(), configs, max_epochs=2, progress=True, **SMALL)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "10 of 10 runs × epochs" in captured.err


def test_epochs_go_on_for_as_long_as_one_asks():
    epochs = epochs_of(make_split(), [Config()], **SMALL)
    assert [next(epochs).number for _ in range(3)] == [1, 2, 3]


def test_threads_are_given_back():
    before = torch.get_num_threads()
    train_stack(make_split(), [Config()], max_epochs=1, **SMALL)
    assert torch.get_num_threads() == before


def test_a_class_or_group_that_cannot_be_trained_is_refused():
    split = make_split()
    y = split.val.y.copy()
    y[0] = 2
    rare = dataclasses.replace(split, val=dataclasses.replace(split.val, y=y))
    with pytest.raises(ValueError, match=r"class 2 has no training row; split with stratify=True"):
        train_stack(rare, [Config()], max_epochs=1, **SMALL)
    negative = dataclasses.replace(split.train, group=split.train.group - 1)
    with pytest.raises(ValueError, match="train part of the split has negative classes or groups"):
        train_stack(dataclasses.replace(split, train=negative), [Config()], max_epochs=1, **SMALL)
    three = make_split(groups=3)
    with pytest.raises(ValueError, match=r"3 groups: .* needs a weight for each"):
        train_stack(three, [Config("mmce", 0.5)], max_epochs=1, **SMALL)
    with pytest.raises(ValueError, match=r"3 groups, but .* has fewer weights"):
        train_stack(three, [Config("mmce", (0.5, 0.5))], max_epochs=1, **SMALL)


def test_seeds_may_be_numpy_integers():
    split = make_split()
    one, other = (
        train_stack(split, [Config(seed=s)], max_epochs=1, split_seed=s, **SMALL).columns[
            "train_loss"
        ]
        for s in (3, np.int64(3))
    )
    np.testing.assert_array_equal(one, other)


def test_an_interrupt_stops_what_waits():
    """Chunks that have not started when the caller is interrupted never do."""
    begun = []

    def stop(done, _):
        begun.append(done)
        raise KeyboardInterrupt

    configs = [Config(seed=s) for s in range(40)]
    with pytest.raises(KeyboardInterrupt):
        train_stack(make_split(), configs, max_epochs=3, chunk=1, workers=1, progress=stop, **SMALL)
    assert len(begun) < 5


def test_an_error_inside_a_chunk_reaches_the_caller():
    def stop(*_):
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        train_stack(make_split(), [Config()], max_epochs=50, progress=stop, **SMALL)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("configs", "options", "message"),
    [
        ([], {}, "configs is empty"),
        ([Config("mcee")], {}, "unknown loss 'mcee'"),
        ([Config(learning_rate=0.0)], {}, "learning_rate must be positive"),
        ([Config("mmce", rho=1.5)], {}, r"rho must be within 0\.\.1"),
        ([Config("mmce", lam=-1.0)], {}, "lam must be finite"),
        ([Config()], {"max_epochs": 0}, "max_epochs and batch_size must be positive"),
        ([Config()], {"keep_epochs": (4,)}, r"keep_epochs must be within 1\.\.3, got \[4\]"),
        ([Config()], {"reference": 2}, r"reference must be a group within 0\.\.1, got 2"),
    ],
)
def test_mistakes_are_named_before_any_work(configs, options, message):
    with pytest.raises(ValueError, match=message):
        train_stack(make_split(), configs, **{"max_epochs": 3, **SMALL, **options})


def test_a_split_that_is_not_finite_or_empty_is_refused():
    split = make_split()
    broken = split.train.X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="train part of the split has values that are not finite"):
        train_stack(
            dataclasses.replace(split, train=dataclasses.replace(split.train, X=broken)), [Config()]
        )
    empty = make_split(sizes=(90, 40, 41))
    nothing = dataclasses.replace(
        empty.val, X=empty.val.X[:0], y=empty.val.y[:0], group=empty.val.group[:0]
    )
    with pytest.raises(ValueError, match="val part of the split has no rows"):
        train_stack(dataclasses.replace(empty, val=nothing), [Config()])


def test_no_warning_escapes(recwarn):
    warnings.simplefilter("error")
    train_stack(make_split(sizes=(90, 12, 9)), [Config("mmce", 0.5, 5.0)], max_epochs=3, **SMALL)
    assert not recwarn.list


def with_weights(split, weights):
    parts = {
        name: dataclasses.replace(getattr(split, name), weight=weight)
        for name, weight in weights.items()
    }
    return dataclasses.replace(split, **parts)


def repeated(split, weights):
    parts = {}
    for name, weight in weights.items():
        part, rows = getattr(split, name), np.repeat(np.arange(len(weight)), weight.astype(int))
        parts[name] = Part(part.X[rows], part.y[rows], part.group[rows], rows)
    return dataclasses.replace(split, **parts)


@pytest.mark.parametrize(("classes", "groups", "rho"), [(2, 2, 0.3), (3, 3, (0.2, 0.3, 0.5))])
def test_integer_weights_are_repeated_rows(classes, groups, rho):
    split = make_split(classes=classes, groups=groups)
    rng = np.random.default_rng(0)
    sizes = {"train": 90, "val": 40, "test": 41}
    weights = {name: rng.integers(1, 4, n).astype(float) for name, n in sizes.items()}
    configs = [Config(name, r, 2.0, 1, 1e-2) for name in LOSSES for r in (None, rho)]
    options = {**SMALL, "batch_size": 1000, "max_epochs": 4}
    weighted = train_stack(with_weights(split, weights), configs, **options).columns
    copies = train_stack(repeated(split, weights), configs, **options).columns
    plain = train_stack(split, configs, **options).columns
    assert weighted.keys() == copies.keys()
    for name, values in weighted.items():
        # temperatures are exact to 1e-9 or so, and what follows from them as much
        np.testing.assert_allclose(values, copies[name], rtol=1e-6, atol=1e-8, err_msg=name)
    assert not np.allclose(weighted["val_pe"], plain["val_pe"], rtol=1e-3)


def test_weights_of_one_are_none():
    split = make_split()
    ones = {name: np.ones(len(getattr(split, name).y)) for name in ("train", "val", "test")}
    configs = [Config(name, 0.3, 2.0, 1, 1e-2) for name in LOSSES]
    plain = train_stack(split, configs, max_epochs=3, **SMALL).columns
    for name, values in train_stack(
        with_weights(split, ones), configs, max_epochs=3, **SMALL
    ).columns.items():
        np.testing.assert_allclose(values, plain[name], rtol=1e-6, atol=1e-8, err_msg=name)


def test_threads_are_chosen_by_the_work_and_given_back():
    used: list[int] = []
    before = torch.get_num_threads()
    epochs = epochs_of(make_split(), [Config("spy")], losses={"spy": spy(used)}, **SMALL)
    next(epochs)
    assert set(used) == {1}  # 32 rows x 6 x 8: far too small to share
    assert torch.get_num_threads() == before
    wide, used = {**SMALL, "hidden_layer_sizes": (1024, 1024)}, []
    big = epochs_of(make_split(), [Config("spy")], losses={"spy": spy(used)}, **wide)
    next(big)
    assert set(used) == {min(before, 3)}  # 32 x 1024 x 1024 = 2 x 2**24
    assert torch.get_num_threads() == before


def test_threads_are_given_back_after_an_error():
    def fails(_):
        raise ZeroDivisionError

    before = torch.get_num_threads()
    broken = {"broken": Loss(fails, "linear", added=False, grouped=False)}
    with pytest.raises(ZeroDivisionError):
        next(epochs_of(make_split(), [Config("broken")], losses=broken, **SMALL))
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError):
        train_stack(make_split(), [Config("broken")], max_epochs=1, losses=broken, **SMALL)
    assert torch.get_num_threads() == before


def spy(used):
    """A cross entropy that notes the number of threads."""

    def term(batch):
        used.append(torch.get_num_threads())
        return -batch.label_log_prob()

    return Loss(term, "linear", added=False, grouped=False)


def test_names_that_need_no_torch():
    assert tuple(LOSSES) == LOSS_NAMES
    columns = train_stack(make_split(), [Config()], max_epochs=1, **SMALL).columns
    for part in PARTS:
        for how in CALIBRATIONS:
            for metric in ("accuracy", "pe_deterministic", "dead", "pe", "ece15", "ece10"):
                assert run_column(part, metric, how) in columns
