"""One contract for every row of LOSSES, against loops written from the paper's formulas."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.training import LOSSES, Batch, GroupwiseLoss
from equipoise.training import _kernel_sum as kernel
from oracle_losses import groupwise_mmce, oracle

ADDED = {"dca", "mdca", "mmce", "mmce-w"}
READS = {
    "alpha": {"ls"},
    "gamma": {"fl", "flsd"},
    "gamma_hard": {"flsd"},
    "hard": {"flsd"},
    "kernel_width": {"mmce", "mmce-w"},
}
# what a sum of roundings of 1e-16 leaves under the root of mmce
ROOT_OF_ROUNDING = 1e-7

every_loss = pytest.mark.parametrize("name", LOSSES)
grouped_loss = pytest.mark.parametrize("name", [name for name in LOSSES if name != "ce"])


either_form = pytest.mark.usefixtures("form")


@pytest.fixture(params=["plain", "sorted"])
def form(request, monkeypatch):
    """Run the test with either way to the kernel, whatever the size of the batch."""
    monkeypatch.setattr(kernel, "CROSSOVER", {"plain": 10**9, "sorted": 0}[request.param])


def batch(n=24, n_classes=3, n_groups=2, *, config=(), seed=0):
    rng = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(*config, n, n_classes, generator=rng, dtype=torch.float64)
    targets = torch.randint(n_classes, (n,), generator=rng)
    groups = torch.randint(n_groups, (n,), generator=rng)
    return logits, targets, groups


def expected(name, logits, targets, groups, *args, **kwargs):
    return oracle(name, logits.tolist(), targets.tolist(), groups.tolist(), *args, **kwargs)


def gradient(loss, logits, *args):
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(logits, *args).sum(), logits)[0]


# --- values ----------------------------------------------------------------------------------


@pytest.mark.slow
@every_loss
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("n", [24, 200])  # either side of the kernel's crossover
@pytest.mark.parametrize(
    ("n_groups", "rho"),
    [(2, None), (3, None), (2, 0.3), (2, (0.6, 0.4)), (3, (0.2, 0.5, 0.3))],
)
def test_value_is_the_formula(name, n_classes, n, n_groups, rho):
    data = batch(n, n_classes, n_groups)
    value = GroupwiseLoss(name, rho=rho, lam=1.7)(*data)
    assert value.shape == ()
    assert value.item() == pytest.approx(expected(name, *data, rho, 1.7), rel=1e-11)


@pytest.mark.slow
@every_loss
@settings(deadline=None, derandomize=True, max_examples=60)
@given(data=st.data())
def test_any_shape_labels_and_absent_groups(name, data):
    n, n_classes = data.draw(st.integers(1, 9)), data.draw(st.integers(2, 5))
    n_groups = data.draw(st.integers(1, 4))

    def rows(elements):
        return data.draw(st.lists(elements, min_size=n, max_size=n))

    # halves, so that ties within a row and between rows are common
    row = st.lists(st.integers(-6, 6).map(lambda z: z / 2), min_size=n_classes, max_size=n_classes)
    logits = torch.tensor(rows(row), dtype=torch.float64)
    targets = torch.tensor(rows(st.integers(0, n_classes - 1)))
    groups = torch.tensor(rows(st.integers(0, n_groups - 1)))
    weights = st.lists(st.floats(0, 1), min_size=n_groups, max_size=n_groups)
    rho = data.draw(st.none() | weights | (st.floats(0, 1) if n_groups <= 2 else st.nothing()))
    loss = GroupwiseLoss(name, rho=rho, lam=2.0)
    assert loss(logits, targets, groups).item() == pytest.approx(
        expected(name, logits, targets, groups, rho, 2.0), rel=1e-9, abs=ROOT_OF_ROUNDING
    )
    assert gradient(loss, logits, targets, groups).isfinite().all()


@grouped_loss
def test_weights_are_a_number_list_array_or_tensor(name):
    data = batch()
    value = GroupwiseLoss(name, rho=0.25)(*data)
    pair = [0.75, 0.25]
    for rho in (torch.tensor(0.25), pair, tuple(pair), np.array(pair), torch.tensor(pair)):
        torch.testing.assert_close(GroupwiseLoss(name, rho=rho)(*data), value)


@every_loss
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integers_are_targets_and_groups(name, dtype):
    logits, targets, groups = batch()
    loss = GroupwiseLoss(name, rho=0.3)
    assert loss(logits, targets.to(dtype), groups.to(dtype)) == loss(logits, targets, groups)


@pytest.mark.slow
@every_loss
@pytest.mark.parametrize("per_config", [False, True], ids=["shared rows", "own rows"])
@pytest.mark.parametrize(
    ("n_groups", "rho"),
    [
        (2, None),
        (2, 0.3),
        (2, [0.1, 0.3, 0.5, 0.9]),
        (2, [[0.9, 0.1], [0.7, 0.3], [0.5, 0.5], [0.1, 0.9]]),
        (3, [[0.2, 0.5, 0.3], [0.3, 0.3, 0.4], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8]]),
    ],
)
def test_stack_equals_the_loop(name, per_config, n_groups, rho):
    # 4 x 100 rows are sorted in the stack, and not in the loop
    logits, targets, groups = batch(100, 5, n_groups, config=(4,))
    lam = [0.0, 0.5, 2.0, 30.0]
    if per_config:
        targets = torch.stack([targets.roll(c) for c in range(4)])
        groups = torch.stack([groups.roll(2 * c) for c in range(4)])
    stacked = GroupwiseLoss(name, rho=rho, lam=lam)
    values = stacked(logits, targets, groups)
    slopes = gradient(stacked, logits, targets, groups)
    assert values.shape == (4,)
    for c in range(4):
        one = GroupwiseLoss(name, rho=rho[c] if isinstance(rho, list) else rho, lam=lam[c])
        rows = (targets[c], groups[c]) if per_config else (targets, groups)
        torch.testing.assert_close(values[c], one(logits[c], *rows), rtol=1e-11, atol=0)
        torch.testing.assert_close(
            slopes[c], gradient(one, logits[c], *rows), rtol=1e-9, atol=1e-12
        )


@every_loss
@pytest.mark.parametrize("rho", [None, 0.3])
@either_form
def test_order_of_rows_does_not_matter(name, rho):
    data = batch()
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    loss = GroupwiseLoss(name, rho=rho)
    shuffled = [x[order] for x in data]
    torch.testing.assert_close(loss(*shuffled), loss(*data), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient(loss, *shuffled), gradient(loss, *data)[order])


# --- the paper's statements ------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_label_smoothing_is_a_larger_one_of_torch(n_classes):
    logits, targets, _ = batch(n_classes=n_classes)
    value = GroupwiseLoss("ls", alpha=0.1)(logits, targets)
    same = F.cross_entropy(logits, targets, label_smoothing=0.1 * n_classes / (n_classes - 1))
    torch.testing.assert_close(value, same)


def test_cross_entropy_is_that_of_torch():
    logits, targets, _ = batch()
    torch.testing.assert_close(
        GroupwiseLoss("ce")(logits, targets), F.cross_entropy(logits, targets)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_label_at_the_bound_is_hard(dtype):
    # five equal logits: p_y is 0.2, which the paper's [0, 0.2] includes
    value = GroupwiseLoss("flsd")(torch.zeros(1, 5, dtype=dtype), torch.tensor([3]))
    assert value.item() == pytest.approx(0.8**5 * np.log(5), rel=1e-6)


@every_loss
def test_share_of_the_group_as_weight_is_the_ungrouped_loss_for_some(name):
    # one group is mostly right and the other mostly wrong: gaps of opposite sign, unequal counts
    logits, targets, groups = batch()
    targets = torch.where(groups == 0, logits.argmax(-1), targets)
    targets[0], groups[0] = (logits[0].argmax() + 1) % 3, 0
    share = groups.double().mean().item()
    grouped = GroupwiseLoss(name, rho=share)(logits, targets, groups)
    difference = (grouped - GroupwiseLoss(name)(logits, targets)).abs()
    if name in {"dca", "mdca", "mmce-w"}:
        assert difference > 0.01
    else:
        assert difference < 1e-12


@pytest.mark.parametrize("n", [24, 200])
def test_mmce_is_the_code_of_the_paper(n):
    data = batch(n)
    value = GroupwiseLoss("mmce", rho=0.3, lam=2.0)(*data)
    logits, y, a = (x.numpy() for x in data)
    assert value.item() == pytest.approx(groupwise_mmce(2.0, 0.3, y, logits, a), rel=1e-11)


# --- parameters ------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize(
    ("constant", "value"),
    [
        *[("alpha", 0.0), ("alpha", 0.3), ("gamma", 0.0), ("gamma", 1.5), ("gamma_hard", 7.0)],
        *[("hard", 0.5), ("kernel_width", 0.05), ("kernel_width", 3.0)],
    ],
)
def test_a_constant_acts_where_documented(name, constant, value):
    data = batch(n_classes=5)
    given_value = GroupwiseLoss(name, rho=0.3, **{constant: value})(*data)
    changed = expected(name, *data, 0.3, **{constant: value})
    assert given_value.item() == pytest.approx(changed, rel=1e-11)
    acts = given_value != GroupwiseLoss(name, rho=0.3)(*data)
    assert acts == (name in READS[constant])
    assert (constant in LOSSES[name].constants) == (name in READS[constant])


@every_loss
def test_rho_and_lam_act_where_documented(name):
    data = batch()
    value = GroupwiseLoss(name, rho=0.3, lam=2.0)(*data)
    assert (value != GroupwiseLoss(name, rho=0.3, lam=50.0)(*data)) == (name in ADDED)
    assert (value != GroupwiseLoss(name, rho=0.6, lam=2.0)(*data)) == (name != "ce")


@every_loss
def test_ungrouped_loss_ignores_groups(name):
    logits, targets, groups = batch()
    loss = GroupwiseLoss(name)
    assert loss(logits, targets) == loss(logits, targets, groups) == loss(logits, targets, -groups)


@every_loss
def test_no_state_and_inputs_are_left_alone(name):
    arguments = [*batch(config=(2,)), torch.tensor([0.2, 0.6]), torch.tensor([1.0, 3.0])]
    before = [x.clone() for x in arguments]
    logits, targets, groups, rho, lam = arguments
    logits.requires_grad_()
    loss = GroupwiseLoss(name, rho=rho, lam=lam)
    first = loss(logits, targets, groups)
    first.sum().backward()
    for now, then in zip(arguments, before, strict=True):
        assert torch.equal(now, then)
    assert torch.equal(loss(logits, targets, groups), first)
    assert not loss.state_dict()
    assert not [*loss.parameters(), *loss.buffers()]


# --- gradients -------------------------------------------------------------------------------


def extreme_batches():
    logits, targets, groups = batch(12)
    one_hot = F.one_hot(targets, 3).double()
    top = logits.argmax(-1)
    return {
        "huge": (1e4 * logits.sign(), targets, groups),
        "huge and far apart": (1e4 * one_hot.roll(1, dims=0) - 1e4, targets, groups),
        "perfect": (1e4 * one_hot, targets, groups),
        "nearly perfect": (17 * one_hot, targets, groups),
        "all zero": (0 * logits, targets, groups),
        "group 0 absent": (logits, targets, torch.ones_like(groups)),
        "group 1 absent": (logits, targets, torch.zeros_like(groups)),
        "nothing wrong": (logits, top, groups),
        "nothing right": (logits, (top + 1) % 3, groups),
        "one row, right": (logits[:1], top[:1], groups[:1]),
        "one row, wrong": (logits[:1], (top[:1] + 1) % 3, groups[:1]),
        "one row, perfect": (1e4 * one_hot[:1], targets[:1], groups[:1]),
    }


EXTREMES = extreme_batches()


@every_loss
@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("rho", [None, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@either_form
def test_extremes_have_the_value_of_the_formula_and_finite_gradients(name, case, rho, dtype):
    logits, *rows = EXTREMES[case]
    loss = GroupwiseLoss(name, rho=rho)
    tolerance = {"rel": 1e-5, "abs": 1e-5} if dtype == torch.float32 else {"abs": ROOT_OF_ROUNDING}
    assert loss(logits.to(dtype), *rows).item() == pytest.approx(
        expected(name, logits, *rows, rho), **tolerance
    )
    assert gradient(loss, logits.to(dtype), *rows).isfinite().all()


@pytest.mark.parametrize("name", ["fl", "flsd"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("case", EXTREMES)
def test_small_powers_have_finite_gradients(name, gamma, case):
    loss = GroupwiseLoss(name, rho=0.3, gamma=gamma, gamma_hard=gamma)
    assert gradient(loss, *EXTREMES[case]).isfinite().all()


@pytest.mark.parametrize("name", sorted(ADDED))
@either_form
def test_term_of_zero_has_gradient_zero(name):
    # in each group one of two equal rows is right, with confidence 1/2
    logits = torch.zeros(4, 2, dtype=torch.float64)
    rows = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    loss, plain = GroupwiseLoss(name, rho=0.3, lam=50.0), GroupwiseLoss("ce")
    assert loss(logits, *rows) == plain(logits, *rows)
    torch.testing.assert_close(gradient(loss, logits, *rows), gradient(plain, logits, *rows))


@pytest.mark.slow
@every_loss
@pytest.mark.parametrize("config", [(), (2,)], ids=["one", "stack"])
@pytest.mark.parametrize("rho", [None, 0.3])
@either_form
def test_gradcheck(name, config, rho):
    logits, *rows = batch(7, config=config)
    loss = GroupwiseLoss(name, rho=rho, lam=2.0)
    assert torch.autograd.gradcheck(lambda z: loss(z, *rows), logits.requires_grad_())


@every_loss
@pytest.mark.parametrize("rho", [None, (0.2, 0.5, 0.3)])
@either_form
def test_float32_equals_float64(name, rho):
    logits, *rows = batch(100, 5, 3)
    loss = GroupwiseLoss(name, rho=rho, lam=2.0)
    single = logits.float()
    for f in (loss, partial(gradient, loss)):
        assert f(single, *rows).dtype == torch.float32
        torch.testing.assert_close(
            f(single, *rows).double(), f(logits, *rows), rtol=1e-5, atol=1e-7
        )


# --- torch.func ------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("rho", [None, 0.3])
@pytest.mark.parametrize("own_rows", [False, True], ids=["shared rows", "own rows"])
@either_form
def test_vmap_and_grad(name, rho, own_rows):
    logits, *rows = batch(config=(3,))
    loss = GroupwiseLoss(name, rho=rho)
    values, slopes = loss(logits, *rows), gradient(loss, logits, *rows)
    in_dims = (0, 0, 0) if own_rows else (0, None, None)
    each = [x.expand(3, -1) for x in rows] if own_rows else rows
    torch.testing.assert_close(torch.func.vmap(loss, in_dims)(logits, *each), values)
    torch.testing.assert_close(torch.func.grad(loss)(logits[0], *rows), slopes[0])
    per_config = torch.func.vmap(torch.func.grad(loss), in_dims)
    torch.testing.assert_close(per_config(logits, *each), slopes)


@every_loss
def test_vmap_over_the_weights(name):
    logits, *rows = batch(config=(3,))
    rho, lam = torch.tensor([0.1, 0.4, 0.8]), torch.tensor([0.5, 1.0, 2.0])
    mapped = torch.func.vmap(lambda z, rho, lam: GroupwiseLoss(name, rho, lam)(z, *rows))
    torch.testing.assert_close(
        mapped(logits, rho, lam), GroupwiseLoss(name, rho, lam)(logits, *rows)
    )


# --- mistakes --------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rho": 1.2}, r"rho must be within 0\.\.1, got 1\.2"),
        ({"rho": -0.1}, r"rho must be within 0\.\.1, got -0\.1"),
        ({"rho": float("nan")}, r"rho must be within 0\.\.1, got nan"),
        ({"rho": [0.5, 1.5]}, r"rho must be within 0\.\.1, got \[0\.5, 1\.5\]"),
        ({"rho": [[[0.5]]]}, r"rho must be \(config,\) or \(config, group\), got \(1, 1, 1\)"),
        ({"lam": -1.0}, r"lam must be finite and not negative, got -1"),
        ({"lam": [1.0, -2.0]}, r"lam must be finite and not negative, got \[1\.0, -2\.0\]"),
        ({"lam": float("inf")}, r"lam must be finite and not negative, got inf"),
        ({"alpha": 1.5}, r"alpha must be at least 0 and below 1, got 1\.5"),
        ({"gamma": -1.0}, r"gamma must not be negative, got -1"),
        ({"gamma_hard": -1.0}, r"gamma_hard must not be negative, got -1"),
        ({"kernel_width": 0.0}, r"kernel_width must be positive, got 0"),
    ],
)
def test_mistakes_of_the_constructor(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        GroupwiseLoss(name, **arguments)


def test_unknown_names():
    with pytest.raises(ValueError, match=r"unknown loss 'mcme'; there are ce, ls, .*mmce-w"):
        GroupwiseLoss("mcme")
    with pytest.raises(TypeError, match="unexpected keyword argument 'lamda'"):
        GroupwiseLoss("mmce", lamda=2.0)


LOGITS, TARGETS, GROUPS = batch(6)


@every_loss
@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"logits": LOGITS[:, 0]}, ValueError, r"logits must be \(sample, class\) or .*got \(6,\)"),
        ({"logits": LOGITS[None, None]}, ValueError, r"logits must be .*got \(1, 1, 6, 3\)"),
        ({"logits": LOGITS.long()}, TypeError, "logits must be floating point, got torch.int64"),
        ({"logits": LOGITS[:, :1]}, ValueError, "two classes, got .sample=6, class=1"),
        ({"logits": LOGITS[:0]}, ValueError, "at least one sample and .*sample=0"),
        ({"targets": TARGETS[:5]}, ValueError, r"targets must be \(sample,\) .*got \(5,\)"),
        ({"targets": F.one_hot(TARGETS)}, ValueError, r"targets must be .*got \(6, "),
        ({"targets": TARGETS.double()}, TypeError, "targets must be integers, got torch.float64"),
        ({"targets": TARGETS > 0}, TypeError, "targets must be integers, got torch.bool"),
        ({"targets": TARGETS - 1}, ValueError, r"targets must be within 0\.\.2 .*from -1"),
        ({"targets": TARGETS + 1}, ValueError, r"targets must be within 0\.\.2 .*to 3"),
        ({"groups": GROUPS[:5]}, ValueError, r"groups must be \(sample,\) .*got \(5,\)"),
        ({"groups": GROUPS.double()}, TypeError, "groups must be integers, got torch.float64"),
    ],
)
def test_mistakes_in_a_batch(name, changed, error, message):
    good = {"logits": LOGITS, "targets": TARGETS, "groups": GROUPS}
    with pytest.raises(error, match=message):
        GroupwiseLoss(name, rho=0.3)(**(good | changed))


STACK = LOGITS.expand(4, -1, -1)


@grouped_loss
@pytest.mark.parametrize(
    ("rho", "logits", "groups", "message"),
    [
        (0.3, LOGITS, None, "groups are needed; pass groups, or rho=None"),
        (0.3, LOGITS, GROUPS + 1, r"groups must be within 0\.\.1 .2 weights in rho.*to 2"),
        (0.3, LOGITS, GROUPS - 1, r"groups must be within 0\.\.1 .*from -1"),
        ([0.2, 0.5, 0.3], LOGITS, GROUPS + 2, r"groups must be within 0\.\.2 .3 weights"),
        ([[0.3, 0.7]], LOGITS, GROUPS, r"rho must be a number or \(group,\) .*\(1, 2\)"),
        ([0.2, 0.5, 0.3], STACK, GROUPS, r"rho must be a number, \(config,\) .*\(3,\)"),
        ([[0.3, 0.7]], STACK, GROUPS, r"rho must be a number, \(config,\) .*\(1, 2\)"),
    ],
)
def test_mistakes_of_groups_and_weights(name, rho, logits, groups, message):
    with pytest.raises(ValueError, match=message):
        GroupwiseLoss(name, rho=rho)(logits, TARGETS, groups)


@pytest.mark.parametrize("name", sorted(ADDED))
@pytest.mark.parametrize(
    ("lam", "logits", "message"),
    [
        ([1.0, 2.0], LOGITS, r"lam must be a number for logits .*got shape \(2,\)"),
        ([1.0, 2.0], STACK, r"lam must be a number or \(config,\) .*got shape \(2,\)"),
        ([[1.0]] * 4, STACK, r"lam must be a number or \(config,\) .*got shape \(4, 1\)"),
    ],
)
def test_mistakes_of_lam(name, lam, logits, message):
    with pytest.raises(ValueError, match=message):
        GroupwiseLoss(name, rho=0.3, lam=lam)(logits, TARGETS, GROUPS)


@pytest.mark.parametrize("name", ["dca", "mmce", "mmce-w"])
def test_the_logits_decide_what_is_predicted(name):
    """Logits that float32's probabilities cannot tell apart are not a tie."""
    logits, targets = torch.tensor([[0.0, 1e-8], [0.0, 0.0]]), torch.tensor([1, 0])
    loss = GroupwiseLoss(name)
    assert loss(logits, targets).item() == pytest.approx(
        loss(logits.double(), targets).item(), rel=1e-6
    )


def test_a_parameter_as_weight_is_not_registered():
    weight = torch.nn.Parameter(torch.tensor(0.3))
    loss = GroupwiseLoss("mmce", rho=weight, lam=torch.nn.Parameter(torch.tensor(2.0)))
    assert not list(loss.parameters())
    assert not loss.state_dict()


@pytest.mark.parametrize("hard", [-0.1, 1.1])
def test_hard_is_a_probability(hard):
    with pytest.raises(ValueError, match=r"hard must be within 0\.\.1"):
        GroupwiseLoss("flsd", hard=hard)


def test_the_pure_functions_take_a_batch():
    logits, targets = (
        torch.randn(8, 3, generator=torch.Generator().manual_seed(0)),
        torch.arange(8) % 3,
    )
    groups = torch.arange(8) % 2
    term = LOSSES["dca"].term(Batch.of(logits, targets, groups, rho=0.3))
    whole = GroupwiseLoss("dca", rho=0.3, lam=2.0)(logits, targets, groups)
    plain = GroupwiseLoss("ce")(logits, targets)
    assert whole.item() == pytest.approx((plain + 2.0 * term).item(), rel=1e-6)


# --- weights of rows ---


def weighted_case(seed=0, n=23, classes=3, groups=3):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(n, classes)) * 2)
    targets = torch.tensor(rng.integers(0, classes, n))
    members = torch.tensor(rng.integers(0, groups, n))
    times = torch.tensor(rng.integers(0, 4, n))
    return logits, targets, members, times


def value_and_gradient(loss, logits, *rest, **weights):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, *rest, **weights)
    value.backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("rho", [None, (0.2, 0.3, 0.5)])
@pytest.mark.parametrize("name", LOSSES)
def test_integer_weights_are_repeated_rows(name, rho):
    logits, targets, members, times = weighted_case()
    loss = GroupwiseLoss(name, rho=rho, lam=2.0)
    value, gradient = value_and_gradient(loss, logits, targets, members, sample_weight=times)
    copies = torch.repeat_interleave(torch.arange(len(times)), times)
    assert len(copies) != len(times)
    assert (times == 0).any()
    expected, each = value_and_gradient(loss, logits[copies], targets[copies], members[copies])
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient).index_add(0, copies, each))
    # a row of weight 0 has no say, and their scale does not matter
    assert (gradient[times == 0] == 0).all()
    scaled, _ = value_and_gradient(loss, logits, targets, members, sample_weight=times * 1e-3)
    torch.testing.assert_close(scaled, value)


@pytest.mark.parametrize("name", LOSSES)
def test_weights_of_one_are_none_and_weights_of_zero_are_an_empty_batch(name):
    logits, targets, members, _ = weighted_case(1)
    loss = GroupwiseLoss(name, rho=(0.2, 0.3, 0.5), lam=2.0)
    plain = value_and_gradient(loss, logits, targets, members)
    ones = torch.ones(len(targets), dtype=torch.float64)
    weighted = value_and_gradient(loss, logits, targets, members, sample_weight=ones)
    for a, b in zip(plain, weighted, strict=True):
        torch.testing.assert_close(a, b)
    value, gradient = value_and_gradient(loss, logits, targets, members, sample_weight=0 * ones)
    assert value == 0
    assert (gradient == 0).all()


def test_weights_that_are_none_are_refused():
    logits, targets, members, times = weighted_case()
    loss = GroupwiseLoss("mmce", rho=(0.2, 0.3, 0.5))
    for bad, message in (
        (times[1:], r"must be \(sample,\)"),
        (-times, "finite and not negative"),
        (times * torch.nan, "finite and not negative"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(logits, targets, members, sample_weight=bad)
