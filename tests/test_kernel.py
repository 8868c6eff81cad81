"""Both ways to the quadratic form of the Laplacian kernel, against its double sum."""

import math

import numpy as np
import pytest
import torch

from equipoise.training import _kernel_sum as kernel
from equipoise.training import laplacian_form
from equipoise.training._kernel_sum import (
    CROSSOVER,
    NARROWEST,
    laplacian_form_plain,
    laplacian_form_sorted,
)

FORMS = [laplacian_form, laplacian_form_plain, laplacian_form_sorted]
SIDE = math.isqrt(CROSSOVER)  # rows of the largest single batch that is not sorted

each_form = pytest.mark.parametrize("form", FORMS)


def double_sum(v, r, width):
    """Return the form and its gradients; equal r have kernel 1 and |.| has gradient 0 there."""
    value, dv, dr = 0.0, np.zeros_like(v), np.zeros_like(v)
    for i in range(len(v)):
        pairs = v * np.exp(-np.abs(r[i] - r) / width)
        value += v[i] * pairs.sum()
        dv[i] = 2 * pairs.sum()
        dr[i] = -2 * v[i] * (pairs * np.sign(r[i] - r)).sum() / width
    return value, dv, dr


def draw(kind, *shape, seed=0):
    rng = np.random.default_rng(seed)
    v = rng.normal(size=shape) / shape[-1]
    r = rng.uniform(size=shape)
    if kind == "ties":
        r = np.round(r * 8) / 8  # 0 and 1 among them
    elif kind == "all equal":
        r = np.full(shape, 0.7)
    elif kind == "near ties":  # all but cancels: what is left is what the root of mmce divides by
        v, r = v - v.mean(-1, keepdims=True), 0.5 + np.round(r * 8) * 2.0**-23
    return v, r


def with_gradients(form, v, r, width, dtype=torch.float64):
    v, r = (torch.tensor(x, dtype=dtype, requires_grad=True) for x in (v, r))
    value = form(v, r, width)
    dv, dr = torch.autograd.grad(value.sum(), (v, r))
    return [x.detach().numpy() for x in (value, dv, dr)]


def assert_close(ours, expected, atol):
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=atol)


@pytest.mark.slow
@each_form
@pytest.mark.parametrize("width", [0.4, 0.01, 0.002])
@pytest.mark.parametrize("kind", ["spread", "ties", "all equal"])
@pytest.mark.parametrize("n", [1, 2, 3, 193, 1000])
def test_value_and_gradient_are_those_of_the_double_sum(form, width, kind, n):
    v, r = draw(kind, n)
    assert_close(with_gradients(form, v, r, width), double_sum(v, r, width), 1e-13 / width)


@each_form
@pytest.mark.parametrize("n", [3, 1000])
@pytest.mark.parametrize("kind", ["spread", "ties", "near ties", "all equal"])
def test_float32_keeps_its_type_and_five_digits(form, n, kind):
    v, r = (x.astype(np.float32) for x in draw(kind, n))
    value, dv, dr = with_gradients(form, v, r, 0.4, torch.float32)
    assert value.dtype == dv.dtype == dr.dtype == np.float32
    exact = double_sum(v.astype(float), r.astype(float), 0.4)[0]
    np.testing.assert_allclose(value, exact, rtol=1e-5)


@each_form
@pytest.mark.parametrize("kind", ["spread", "ties"])
def test_leading_axes_are_batches(form, kind):
    v, r = draw(kind, 2, 3, 40)
    value, dv, dr = with_gradients(form, v, r, 0.1)
    assert value.shape == (2, 3)
    for at in np.ndindex(2, 3):
        assert_close((value[at], dv[at], dr[at]), double_sum(v[at], r[at], 0.1), 1e-12)


@each_form
def test_strided_input_is_as_good_as_any(form):
    v, r = (torch.tensor(x.T.copy()).T for x in draw("ties", 4, 300))
    torch.set_warn_always(True)  # torch says only once that an input is not contiguous
    try:
        value = form(v, r)
    finally:
        torch.set_warn_always(False)
    torch.testing.assert_close(value, laplacian_form_plain(v.contiguous(), r.contiguous()))


@pytest.mark.parametrize(
    ("shape", "width", "plain"),
    [
        ((SIDE,), 0.4, True),
        ((SIDE + 1,), 0.4, False),
        ((4, SIDE // 2), 0.4, True),
        ((4, SIDE // 2 + 1), 0.4, False),
        ((SIDE + 1,), NARROWEST, False),
        ((SIDE + 1,), NARROWEST * 0.99, True),
    ],
)
def test_the_form_is_chosen_by_pairs_and_width(monkeypatch, shape, width, plain):
    called = []

    def recorder(*args):
        called.append(args)
        return laplacian_form_plain(*args)

    v, r = (torch.tensor(x) for x in draw("ties", *shape))
    expected = laplacian_form_plain(v, r, width)
    monkeypatch.setattr(kernel, "laplacian_form_plain", recorder)
    chosen = laplacian_form(v, r, width)
    assert bool(called) == plain
    torch.testing.assert_close(chosen, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("width", [NARROWEST, NARROWEST / 2, 1e-6])
def test_a_narrow_kernel_keeps_only_equal_rows(width):
    v, r = draw("ties", SIDE + 1)
    value, dv, dr = with_gradients(laplacian_form, v, r, width)
    same = r[:, None] == r[None, :]
    np.testing.assert_allclose(value, v @ same @ v, rtol=1e-10)
    np.testing.assert_allclose(dv, 2 * same @ v, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(dr, 0, atol=1e-15)


@each_form
@pytest.mark.parametrize("width", [0.4, 0.05])
def test_gradcheck(form, width):
    v, r = (torch.tensor(x, requires_grad=True) for x in draw("spread", 2, 7))
    assert torch.autograd.gradcheck(lambda v, r: form(v, r, width), (v, r))


@each_form
@pytest.mark.parametrize("n", [5, SIDE + 1])
def test_vmap_and_grad(form, n):
    v, r = (torch.tensor(x) for x in draw("ties", 3, n))
    torch.testing.assert_close(torch.func.vmap(form)(v, r), form(v, r))
    shared = torch.func.vmap(form, in_dims=(0, None))(v, r[0])
    torch.testing.assert_close(shared, form(v, r[:1].expand(3, n)))
    dv, dr = torch.func.vmap(torch.func.grad(form, argnums=(0, 1)))(v, r)
    for at in range(3):
        _, *expected = double_sum(v[at].numpy(), r[at].numpy(), 0.4)
        assert_close((dv[at], dr[at]), expected, 1e-13)


@each_form
def test_second_derivatives(monkeypatch, form):
    monkeypatch.setattr(kernel, "CROSSOVER", 0)
    v, r = (torch.tensor(x, requires_grad=True) for x in draw("spread", 2, 7))
    assert torch.autograd.gradgradcheck(form, (v, r))
