"""The stacked perceptron against torch.nn and autograd, one configuration at a time."""

import math

import numpy as np
import pytest
import torch

from equipoise.training._network import Adam, StackedMLP


def module(network, config):
    """Build the same perceptron from torch.nn."""
    parts = []
    for weight, bias in network.layers(config):
        linear = torch.nn.Linear(*weight.shape, dtype=weight.dtype)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias.clone()
        parts += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*(parts if network.output_relu else parts[:-1]))


def filled(sizes, configs, output_relu):
    network = StackedMLP(sizes, range(configs), output_relu=output_relu, dtype=torch.float64)
    generator = torch.Generator().manual_seed(9)
    for parameter in network.parameters():  # biases other than 0, so that they count
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).double())
    return network


@pytest.mark.parametrize("output_relu", [False, True])
@pytest.mark.parametrize("sizes", [(7, 2), (7, 5, 3), (7, 6, 5, 2), (3, 4, 4, 4, 4)], ids=str)
def test_forward_and_backward(sizes, output_relu):
    network = filled(sizes, 3, output_relu)
    generator = torch.Generator().manual_seed(1)
    for n in (11, 4, 11):  # buffers are kept per batch size
        X = torch.randn(n, sizes[0], generator=generator).double()
        pull = torch.randn(3, n, sizes[-1], generator=generator).double()
        logits = network.forward(X)
        assert logits.shape == (3, n, sizes[-1])
        network.backward(X, lambda _, pull=pull: pull)
        for c in range(3):
            plain = module(network, c)
            out = plain(X)
            torch.testing.assert_close(logits[c], out, rtol=1e-12, atol=1e-12)
            out.backward(pull[c])
            linears = [m for m in plain if isinstance(m, torch.nn.Linear)]
            for (weight, bias), linear in zip(network.hidden, linears[:-1], strict=True):
                torch.testing.assert_close(weight.grad[c].T, linear.weight.grad)
                torch.testing.assert_close(bias.grad[c, 0], linear.bias.grad)
            weight, bias = network.output
            torch.testing.assert_close(weight.grad[c], linears[-1].weight.grad)
            torch.testing.assert_close(bias.grad[c, :, 0], linears[-1].bias.grad)


def test_weights_are_glorot_and_depend_on_the_own_seed_only():
    many = StackedMLP((97, 128, 64, 2), [5, 6, 7])
    alone = StackedMLP((97, 128, 64, 2), [6])
    for (w, b), (v, c) in zip(many.layers(1), alone.layers(0), strict=True):
        assert torch.equal(w, v)
        assert torch.equal(b, c)
        limit = math.sqrt(6 / sum(w.shape))
        assert w.abs().max() <= limit
        assert (b == 0).all()
        if w.numel() > 1000:
            assert w.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.05)
            assert w.abs().max().item() == pytest.approx(limit, rel=0.01)
    assert not torch.equal(many.layers(0)[0][0], many.layers(1)[0][0])


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("epsilon", [1e-7, 1e-2])
def test_adam_is_tensorflows(epsilon, fused):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=5), rng.normal(size=(7, 5)) * 10.0 ** -np.arange(5)
    parameter = torch.from_numpy(start.copy())
    adam = Adam([parameter], rate=0.01, epsilon=epsilon)
    assert adam._fused
    adam._fused = fused  # other devices than cpu and cuda have the plain one
    x, m, v = start.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, start=1):
        parameter.grad = torch.from_numpy(g)
        adam.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x -= 0.01 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + epsilon)
    np.testing.assert_allclose(parameter.numpy(), x, rtol=1e-9)


def test_what_is_kept_trains_as_before():
    sizes, generator = (7, 6, 5, 2), torch.Generator().manual_seed(3)
    X = torch.randn(11, 7, generator=generator).double()
    pull = torch.randn(3, 11, 2, generator=generator).double()
    whole, part = filled(sizes, 3, False), filled(sizes, 3, False)
    adams = [Adam(network.parameters(), 0.01) for network in (whole, part)]
    kept = torch.tensor([True, False, True])
    for t in range(6):
        if t == 3:
            part.keep(kept)
            adams[1].keep(kept, part.parameters())
            assert len(part) == 2
        for network, adam in zip((whole, part), adams, strict=True):
            own = pull[kept] if len(network) == 2 else pull
            network.backward(X, lambda _, own=own: own)
            adam.step()
    for mine, theirs in zip(part.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs[kept], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.forward(X), whole.forward(X)[kept], rtol=1e-12, atol=1e-12)


def test_weights_are_copied_and_put_by_configuration():
    network, other = filled((4, 3, 2), 3, False), StackedMLP((4, 3, 2), [8, 9], dtype=torch.float64)
    before = [network.layers(c) for c in range(3)]
    copy = network.copy()
    copy.put(np.array([2, 0]), other, np.array([True, False]))
    copy.put(np.array([1, 0]), other, np.array([False, False]))
    for found, expected in (
        (network, before),  # the copy shares nothing with it
        (copy, [*before[:2], other.layers(0)]),
    ):
        for c in range(3):
            for mine, theirs in zip(found.layers(c), expected[c], strict=True):
                assert torch.equal(mine[0], theirs[0])
                assert torch.equal(mine[1], theirs[1])
