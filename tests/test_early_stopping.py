"""Training to the best epoch, against a plain loop over what `train_stack` measures."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from equipoise.datasets import Part, Preprocessor, Split
from equipoise.training import LOSSES, Config, best_epoch, train_stack, train_to_best

SMALL = {"batch_size": 32, "hidden_layer_sizes": (8, 5), "dtype": torch.float64}


def make_split(sizes=(90, 60, 41), columns=6, classes=2, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        X = rng.normal(size=(n, columns)).astype(np.float32)
        group = np.arange(n) % 2
        score = X[:, :classes] + 0.5 * group[:, None] * np.arange(classes)
        y = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
        y[:classes] = np.arange(classes)
        weight = rng.uniform(0.5, 3.0, n) if weighted else None
        parts.append(Part(X, y, group, np.arange(n), weight))
    return Split(*parts, Preprocessor.fit(parts[0].X, [f"x{j}" for j in range(columns)]))


# rates and losses so different that the best epochs are early, late, and never reached
MIXED = [
    Config("ce", None, 1.0, 0, 3e-2),
    Config("mmce", 0.3, 2.0, 1, 1e-2),
    Config("ce", None, 1.0, 2, 1e-2),
    Config("dca", 0.5, 1.0, 3, 1e-2),
    Config("fl", 0.5, 1.0, 4, 1e-2),
    Config("mmce", 0.9, 50.0, 5, 1e-2),
    Config("ls", None, 1.0, 6, 1e-4),
]


def plain_best(losses):
    """Average each with its neighbours, one at a time; return the first of the least."""
    means = {}
    for e, value in enumerate(losses):
        near = [v for v in losses[max(e - 1, 0) : e + 2] if not math.isnan(v)]
        if not math.isnan(value):
            means[e] = sum(near) / len(near)
    return min(means, key=means.get, default=-1)


def plain_stop(losses, patience):
    """Return the best epoch and the number of epochs, both from 1 on, by looking after each."""
    for n in range(1, len(losses) + 1):
        best = plain_best(losses[:n])
        if n - 1 - best >= patience:
            break
    return best + 1, n


def test_best_epoch():
    rng = np.random.default_rng(0)
    for n in range(1, 12):
        losses = rng.normal(size=n)
        losses[rng.random(n) < 0.2] = np.nan
        assert best_epoch(losses) == plain_best(losses.tolist())
    assert best_epoch([0.5]) == 0
    assert best_epoch([0.4, 0.9, 0.5, 0.5, 0.5]) == 3  # alone, the first would be the least
    assert best_epoch([0.5, 0.5, 0.5]) == 0
    assert best_epoch([np.nan, 0.7, np.nan]) == 1
    assert best_epoch([np.nan]) == best_epoch([]) == -1
    with pytest.raises(ValueError, match=r"log_losses must be \(epoch,\), got \(1, 2\)"):
        best_epoch([[0.1, 0.2]])


@pytest.mark.parametrize(("classes", "weighted"), [(2, False), (2, True), (3, False)])
def test_the_epoch_is_that_of_a_plain_loop(classes, weighted):
    split = make_split(classes=classes, weighted=weighted)
    options = {"max_epochs": 40, **SMALL}
    every = train_stack(split, MIXED, keep_epochs=range(1, 41), **options)
    found = train_to_best(split, MIXED, patience=5, chunk=4, **options)
    for c, losses in enumerate(every.columns["val_log_loss"].tolist()):
        best, n = plain_stop(losses, 5)
        assert (found.epoch[c], found.n_epochs[c]) == (best, n)
        assert found.val_log_loss[c] == pytest.approx(losses[best - 1], rel=1e-9)
        layers = every.layers[best][c]
        for mine, theirs in zip(found.layers[c], layers, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        for name in ("val", "test"):
            z = getattr(split, name).X.astype(np.float64)
            for i, (weight, bias) in enumerate(layers):
                z = z @ weight.numpy() + bias.numpy()
                z = np.maximum(z, 0) if i < len(layers) - 1 else z
            np.testing.assert_allclose(found.logits[name][c], z, rtol=1e-9, atol=1e-10)
    assert len(set(found.n_epochs.tolist())) > 3
    assert found.n_epochs.max() == 40 > found.n_epochs.min()
    assert (found.epoch == found.n_epochs).any()  # still falling at the end


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_is_the_same_alone_and_beside_runs_that_stop(loss):
    split = make_split()
    lams = (0.0, 1.0, 30.0)
    configs = [Config(loss, rho, lam, 7, 2e-2) for rho in (None, 0.2) for lam in lams]
    configs += [Config("ce", seed=s, learning_rate=2e-2) for s in range(3)]
    options = {"max_epochs": 30, "patience": 3, **SMALL}
    together = train_to_best(split, configs, **options)
    assert len(set(together.n_epochs.tolist())) > 2
    for c, config in enumerate(configs):
        alone = train_to_best(split, [config], **options)
        assert together.epoch[c] == alone.epoch[0]
        assert together.n_epochs[c] == alone.n_epochs[0]
        for name in ("val", "test"):
            np.testing.assert_allclose(
                together.logits[name][c], alone.logits[name][0], rtol=1e-7, atol=1e-9
            )


def test_a_run_that_diverges_keeps_the_epoch_before():
    split, tame = make_split(), Config("ce", seed=3, learning_rate=1e-3)
    never = dataclasses.replace(tame, learning_rate=1e200)
    options = {"max_epochs": 4, **SMALL}
    found = train_to_best(split, [tame, never, tame], **options)
    alone = train_to_best(split, [tame], **options)
    assert found.epoch.tolist() == [4, 0, 4]
    assert found.n_epochs.tolist() == [4, 1, 4]
    assert np.isnan(found.val_log_loss[1])
    assert np.isnan(found.logits["val"][1]).all()
    assert np.isnan(found.logits["test"][1]).all()
    assert found.layers[1] == []
    np.testing.assert_array_equal(found.logits["test"][2], alone.logits["test"][0])


def test_a_run_that_diverges_later(monkeypatch):
    """Weights that become nan in the third epoch end the run; its neighbour goes on."""
    from equipoise.training import _early_stopping

    class Breaks(_early_stopping.StackTrainer):
        number = 0

        def epoch(self):
            Breaks.number += 1
            total = super().epoch()
            if Breaks.number == 3:
                self.network.hidden[0][0][1] = torch.nan
            return total

    split, configs = make_split(), [Config(seed=s, learning_rate=1e-3) for s in range(3)]
    whole = train_to_best(split, configs, max_epochs=6, **SMALL)
    two = train_to_best(split, configs, max_epochs=2, **SMALL)
    monkeypatch.setattr(_early_stopping, "StackTrainer", Breaks)
    found = train_to_best(split, configs, max_epochs=6, **SMALL)
    assert found.n_epochs.tolist() == [6, 3, 6]
    assert found.epoch[1] == two.epoch[1] > 0
    np.testing.assert_allclose(found.logits["test"][1], two.logits["test"][1], rtol=1e-9)
    np.testing.assert_allclose(found.logits["test"][2], whole.logits["test"][2], rtol=1e-9)


def test_step_is_called_after_each_epoch_of_each_chunk_and_may_cancel():
    split, configs = make_split(), [Config(seed=s) for s in range(5)]
    calls = []
    train_to_best(split, configs, max_epochs=3, chunk=2, step=lambda: calls.append(0), **SMALL)
    assert len(calls) == 9

    def cancel():
        calls.append(0)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        train_to_best(split, configs, max_epochs=3, step=cancel, **SMALL)
    assert len(calls) == 10


def test_float32_is_close_to_float64():
    split, configs = make_split(), [Config("mmce", 0.5, 1.0, s) for s in range(2)]
    double = train_to_best(split, configs, max_epochs=5, **SMALL)
    single = train_to_best(split, configs, max_epochs=5, **{**SMALL, "dtype": torch.float32})
    assert single.logits["val"].dtype == np.float64
    np.testing.assert_allclose(single.val_log_loss, double.val_log_loss, rtol=1e-5)


def test_classes_that_the_split_does_not_have():
    found = train_to_best(make_split(), [Config()], max_epochs=2, n_classes=3, **SMALL)
    assert found.logits["test"].shape == (1, 41, 3)


@pytest.mark.parametrize(
    ("configs", "options", "message"),
    [
        ([], {}, "configs is empty"),
        ([Config("mcee")], {}, "unknown loss 'mcee'"),
        ([Config()], {"max_epochs": 0}, "max_epochs and batch_size must be positive"),
        ([Config()], {"patience": 0}, "patience must be at least 1, got 0"),
    ],
)
def test_mistakes_are_named_before_any_work(configs, options, message):
    with pytest.raises(ValueError, match=message):
        train_to_best(make_split(), configs, **{"max_epochs": 3, **SMALL, **options})
