"""Calibration losses in their group-wise form, for training in PyTorch.

With weights pi of the groups (pi_1 = rho, pi_0 = 1 - rho) and n_g rows of group g in the batch,
the group-wise term is linear (ls, fl, flsd), a sum of gaps (dca, mdca) or pair-wise (mmce, mmce-w).
A group that is absent from a batch contributes nothing, and the other weights stay as they are.
A row's own weight multiplies its membership: counts become sums of weights, means weighted means.

Every function takes a `Batch` of one configuration, logits (n, K), or of a stack, (config, n, K);
targets and groups are (n,), shared by the stack, or (config, n)::

    mmce(Batch.of(logits, targets, groups, rho=0.5))

The linear ones return a value per row, the others one per configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.training._kernel_sum import laplacian_form


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch, laid out for the losses.

    Attributes
    ----------
    log_prob
        (..., n, class): logarithms of the probabilities.
    logits
        (..., n, class): the network's outputs.
    targets
        (n,) or (..., n): the labels' classes.
    member
        (..., n, group): the row's weight (1 without weights) where it is of the group, else 0.
    weight
        (..., group): the weights pi of the groups.
    row_weight
        (n,) or (..., n): the weights of the rows, or None.
    """

    log_prob: Tensor
    logits: Tensor
    targets: Tensor
    member: Tensor
    weight: Tensor
    row_weight: Tensor | None = None

    @classmethod
    def of(
        cls,
        logits: Tensor,
        targets: Tensor,
        groups: Tensor | None = None,
        rho: Any = None,
        sample_weight: Tensor | None = None,
    ) -> Batch:
        """Check and lay out logits, classes, groups and weights; `rho` as in `GroupwiseLoss`."""
        _check_shapes(logits, targets, groups)
        row_weight = _row_weight(sample_weight, logits)
        _check_range(targets, logits.shape[-1], "targets", "classes", "columns of logits")
        if rho is None:
            member, weight = logits.new_ones(logits.shape[-2], 1), logits.new_ones(1)
        elif groups is None:
            raise ValueError(
                f"rho={rho} weighs groups, so groups are needed; "
                "pass groups, or rho=None for the ungrouped loss"
            )
        else:
            weight = group_weights(rho, logits)
            _check_range(groups, weight.shape[-1], "groups", "groups", "weights in rho")
            member = membership(groups, weight.shape[-1], logits.dtype)
        if row_weight is not None:
            member = member * row_weight.unsqueeze(-1)
        return cls(logits.log_softmax(-1), logits, targets.long(), member, weight, row_weight)

    def label_log_prob(self) -> Tensor:
        """Return log p_y of each row."""
        index = self.targets.unsqueeze(-1).expand(*self.log_prob.shape[:-1], 1)
        return self.log_prob.gather(-1, index).squeeze(-1)

    def top_label(self) -> tuple[Tensor, Tensor]:
        """Return confidence, and 1 where the prediction is right; a tie goes to the first class.

        The prediction is taken from the logits, because float32 makes equals of probabilities that
        differ by less than its rounding.
        """
        z = self.logits.detach()
        # of two classes a comparison, at a tenth of argmax's cost on such narrow rows
        top = (z[..., 1] > z[..., 0]).long() if z.shape[-1] == 2 else z.argmax(-1)
        confidence = self.log_prob.gather(-1, top.unsqueeze(-1)).squeeze(-1).exp()
        return confidence, (top == self.targets).to(confidence.dtype)

    def totals(self, values: Tensor) -> Tensor:
        """Sum values (..., n) within each group."""
        return (values.unsqueeze(-2) @ self.member).squeeze(-2)

    def means(self, values: Tensor) -> Tensor:
        """Average values (..., n) within each group; 0 where it is absent."""
        return self.totals(values) / _not_zero(self.member.sum(-2))

    def mean(self, values: Tensor) -> Tensor:
        """Average values (..., n) over all rows."""
        if self.row_weight is None:
            return values.mean(-1)
        return (values * self.row_weight).sum(-1) / _not_zero(self.row_weight.sum(-1))

    def shares(self, selected: Tensor) -> Tensor:
        """Return pi_g s_i / m_g for each selected row (..., n).

        s_i is the row's weight, and m_g the weight of the selected rows of its group.
        """
        each = self.weight / _not_zero(self.totals(selected))
        return (self.member @ each.unsqueeze(-1)).squeeze(-1) * selected


def _not_zero(total: Tensor) -> Tensor:
    # an absent group has the total 0, and so has everything that is divided by it
    return torch.where(total > 0, total, 1.0)


# --- linear: one value per row ---------------------------------------------------------------


def cross_entropy(batch: Batch) -> Tensor:
    """Return -log p_y of each row."""
    return -batch.label_log_prob()


def label_smoothing(batch: Batch, *, alpha: float = 0.05) -> Tensor:
    """Return the cross entropy with 1 - alpha on the label and alpha / (K - 1) on each other."""
    own = batch.label_log_prob()
    others = batch.log_prob.sum(-1) - own
    return -(1.0 - alpha) * own - alpha / (batch.log_prob.shape[-1] - 1) * others


def focal(batch: Batch, *, gamma: float = 3.0) -> Tensor:
    """Return -(1 - p_y)**gamma log p_y of each row."""
    own = batch.label_log_prob()
    return -(_complement(own) ** gamma) * own


def sample_dependent_focal(
    batch: Batch, *, gamma: float = 3.0, gamma_hard: float = 5.0, hard: float = 0.2
) -> Tensor:
    """Return the focal loss with `gamma_hard` where p_y <= `hard`, and `gamma` elsewhere."""
    own = batch.label_log_prob()
    rest = _complement(own)
    return -torch.where(own.exp() <= hard, rest**gamma_hard, rest**gamma) * own


def _complement(log_p: Tensor) -> Tensor:
    # 1 - p without cancellation, kept off 0 where a power below 1 has no finite gradient
    return (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)


# --- gaps and pairs: one value per batch -----------------------------------------------------


def dca(batch: Batch) -> Tensor:
    """Return sum_g pi_g |accuracy - mean confidence| of the groups."""
    confidence, correct = batch.top_label()
    return (batch.weight * batch.means(correct - confidence).abs()).sum(-1)


def mdca(batch: Batch) -> Tensor:
    """Return sum_g pi_g mean_k |mean p_k - share of label k| of the groups."""
    classes = torch.arange(batch.log_prob.shape[-1], device=batch.log_prob.device)
    gap = batch.log_prob.exp() - (batch.targets.unsqueeze(-1) == classes).to(batch.log_prob.dtype)
    per_class = batch.means(gap.movedim(-1, 0)).abs().mean(0)
    return (batch.weight * per_class).sum(-1)


def mmce(batch: Batch, *, kernel_width: float = 0.4) -> Tensor:
    """Return sqrt(v' K v), v_i = pi_g (correct_i - confidence_i) / n_g."""
    confidence, correct = batch.top_label()
    v = batch.shares(torch.ones_like(correct)) * (correct - confidence)
    return safe_sqrt(laplacian_form(v, confidence, kernel_width), v)


def mmce_w(batch: Batch, *, kernel_width: float = 0.4) -> Tensor:
    """Return sqrt(v' K v), v_i = pi_g (1 - r_i) / (number right) or -pi_g r_i / (number wrong)."""
    confidence, correct = batch.top_label()
    v = batch.shares(correct) * (1.0 - confidence) - batch.shares(1.0 - correct) * confidence
    return safe_sqrt(laplacian_form(v, confidence, kernel_width), v)


def safe_sqrt(form: Tensor, v: Tensor) -> Tensor:
    """Return the root of a form v' K v, with gradient 0 where the form is 0."""
    # sqrt has an infinite gradient at 0; below the rounding of the form there is nothing but 0
    noise = (torch.finfo(torch.float64).eps * v.detach().double().abs().sum(-1)) ** 2
    solid = form > noise
    return torch.where(solid, form, 1.0).sqrt() * solid


# --- the table -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Loss:
    """One loss of the paper.

    Attributes
    ----------
    term
        ``(batch, **constants) -> (..., n)``, the value per row of a linear loss; else (...), the
        group-wise term.
    form
        "linear", "gaps" or "pair-wise".
    added
        Whether lam times the term is added to the plain mean of the cross entropy, or the term
        stands alone.
    constants
        Names of the constants that it reads.
    grouped
        Whether group weights apply; plain cross entropy has none.
    """

    term: Callable[..., Tensor]
    form: str
    added: bool
    constants: tuple[str, ...] = ()
    grouped: bool = True


LOSSES: Mapping[str, Loss] = {
    "ce": Loss(cross_entropy, "linear", added=False, grouped=False),
    "ls": Loss(label_smoothing, "linear", added=False, constants=("alpha",)),
    "fl": Loss(focal, "linear", added=False, constants=("gamma",)),
    "flsd": Loss(
        sample_dependent_focal, "linear", added=False, constants=("gamma", "gamma_hard", "hard")
    ),
    "dca": Loss(dca, "gaps", added=True),
    "mdca": Loss(mdca, "gaps", added=True),
    "mmce": Loss(mmce, "pair-wise", added=True, constants=("kernel_width",)),
    "mmce-w": Loss(mmce_w, "pair-wise", added=True, constants=("kernel_width",)),
}


class GroupwiseLoss(nn.Module):
    """The whole training loss, group-wise where `rho` is given.

    dca, mdca, mmce and mmce-w are the plain batch mean of the cross entropy plus `lam` times the
    group-wise term; ls, fl and flsd are the group-wise term alone; ce is the plain mean.

    Parameters
    ----------
    name
        One of `LOSSES`, or a `Loss` of your own.
    rho
        Weight of group 1, group 0 weighing 1 - rho; or one weight per group. For a stack, shape
        (config,) or (config, group). None ignores the groups. No effect for ce.
    lam
        Strength of the added term, a number or (config,). No effect for ce, ls, fl and flsd.
    alpha
        Smoothing of ls. No effect elsewhere.
    gamma
        Power of fl, and of flsd for rows that are not hard. No effect elsewhere.
    gamma_hard, hard
        Power of flsd where the label's probability is at most `hard`. No effect elsewhere.
    kernel_width
        Width of the kernel ``exp(-|r - s| / width)`` of mmce and mmce-w. No effect elsewhere.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> loss = GroupwiseLoss("mmce", rho=0.5, lam=2.0)
    >>> loss(logits, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    tensor(1.1418)
    """

    def __init__(
        self,
        name: str | Loss,
        rho: Any = None,
        lam: Any = 1.0,
        *,
        alpha: float = 0.05,
        gamma: float = 3.0,
        gamma_hard: float = 5.0,
        hard: float = 0.2,
        kernel_width: float = 0.4,
    ) -> None:
        super().__init__()
        if not isinstance(name, Loss) and name not in LOSSES:
            raise ValueError(f"unknown loss {name!r}; there are {', '.join(LOSSES)}")
        self.loss = name if isinstance(name, Loss) else LOSSES[name]
        given = {
            "alpha": alpha,
            "gamma": gamma,
            "gamma_hard": gamma_hard,
            "hard": hard,
            "kernel_width": kernel_width,
        }
        if not 0.0 <= alpha < 1.0:
            raise ValueError(f"alpha must be at least 0 and below 1, got {alpha}")
        if not 0.0 <= hard <= 1.0:
            raise ValueError(f"hard must be within 0..1, got {hard}")
        for what in ("gamma", "gamma_hard"):
            if given[what] < 0.0:
                raise ValueError(f"{what} must not be negative, got {given[what]}")
        if kernel_width <= 0.0:
            raise ValueError(f"kernel_width must be positive, got {kernel_width}")
        # a Parameter would be registered, and become state
        self.name = self.loss.term.__name__ if isinstance(name, Loss) else name
        self.rho, self.lam = _detached(rho), _detached(lam)
        self.constants = {what: given[what] for what in self.loss.constants}
        _check_rho(rho)
        strength = _tensor(lam)
        if _any(~(torch.isfinite(strength) & (strength >= 0))):
            raise ValueError(f"lam must be finite and not negative, got {lam}")

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        groups: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss: a scalar, or (config,) for stacked logits."""
        rho = self.rho if self.loss.grouped else None
        return self.of(Batch.of(logits, targets, groups, rho, sample_weight))

    def of(self, batch: Batch) -> Tensor:
        """Return the loss of a batch that was checked and laid out before."""
        loss, logits = self.loss, batch.logits
        if not loss.grouped:
            return batch.mean(loss.term(batch))
        if loss.form == "linear":
            values = loss.term(batch, **self.constants)
            return (batch.shares(torch.ones_like(values)) * values).sum(-1)
        lam = _tensor(self.lam, logits)
        if lam.ndim > logits.ndim - 2 or (lam.ndim and lam.shape[0] != logits.shape[0]):
            raise ValueError(
                f"lam must be a number{' or (config,)' if logits.ndim == 3 else ''} for logits "
                f"{_axes(logits)}, got shape {tuple(lam.shape)}"
            )
        return batch.mean(cross_entropy(batch)) + lam * loss.term(batch, **self.constants)

    def extra_repr(self) -> str:
        """Return what the module's repr shows."""
        constants = "".join(f", {k}={v}" for k, v in self.constants.items())
        return f"{self.name!r}, rho={self.rho}, lam={self.lam}{constants}"


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, nn.Parameter) else value


def _tensor(value: Any, like: Tensor | None = None) -> Tensor:
    if like is None:
        return torch.as_tensor(value, dtype=torch.float64)
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


def _any(condition: Tensor) -> bool:
    try:
        return bool(condition.any())
    except RuntimeError:  # under vmap values cannot be looked at
        return False


def _check_rho(rho: Any) -> None:
    if rho is None:
        return
    values = _tensor(rho)
    if _any(~((values >= 0) & (values <= 1))):
        raise ValueError(f"rho must be within 0..1, got {rho}")
    if values.ndim > 2:
        raise ValueError(f"rho must be (config,) or (config, group), got {tuple(values.shape)}")


def _row_weight(sample_weight: Tensor | None, logits: Tensor) -> Tensor | None:
    if sample_weight is None:
        return None
    weight = sample_weight.to(logits)
    if weight.shape not in (logits.shape[-2:-1], logits.shape[:-1]):
        raise ValueError(
            f"sample_weight must be (sample,) for logits {_axes(logits)}, got {tuple(weight.shape)}"
        )
    if _any(~(torch.isfinite(weight) & (weight >= 0))):
        raise ValueError("sample_weight must be finite and not negative")
    return weight


def membership(groups: Tensor, n_groups: int, dtype: torch.dtype) -> Tensor:
    """Return (..., n, group): 1 where the row is of the group."""
    return (groups.unsqueeze(-1) == torch.arange(n_groups, device=groups.device)).to(dtype)


def group_weights(rho: Any, logits: Tensor) -> Tensor:
    """Return the weights pi: (group,), or (config, group) for a stack."""
    value = _tensor(rho, logits)
    stacked = logits.ndim == 3
    if stacked and value.ndim and value.shape[0] != logits.shape[0]:
        raise ValueError(
            f"rho must be a number, (config,) or (config, group) for logits {_axes(logits)}, "
            f"got shape {tuple(value.shape)}"
        )
    if not stacked and value.ndim > 1:
        raise ValueError(
            f"rho must be a number or (group,) for logits {_axes(logits)}, "
            f"got shape {tuple(value.shape)}"
        )
    if value.ndim == int(stacked) or value.ndim == 0:
        value = torch.stack([1.0 - value, value], dim=-1)
    return value


def _axes(logits: Tensor) -> str:
    names = ("config", "sample", "class")[-logits.ndim :]
    return "(" + ", ".join(f"{a}={s}" for a, s in zip(names, logits.shape, strict=True)) + ")"


def _check_shapes(logits: Tensor, targets: Tensor, groups: Tensor | None) -> None:
    if logits.ndim not in (2, 3):
        raise ValueError(
            f"logits must be (sample, class) or (config, sample, class), got {tuple(logits.shape)}"
        )
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got {logits.dtype}")
    if logits.shape[-2] == 0 or logits.shape[-1] < 2:
        raise ValueError(f"logits need at least one sample and two classes, got {_axes(logits)}")
    for name, values in (("targets", targets), ("groups", groups)):
        if values is None:
            continue
        if values.shape not in (logits.shape[-2:-1], logits.shape[:-1]):
            raise ValueError(
                f"{name} must be (sample,){' or (config, sample)' * (logits.ndim == 3)} for logits "
                f"{_axes(logits)}, got {tuple(values.shape)}"
            )
        if values.is_floating_point() or values.dtype == torch.bool:
            raise TypeError(f"{name} must be integers, got {values.dtype}; convert with .long()")


def _check_range(values: Tensor, size: int, name: str, what: str, where: str) -> None:
    if _any((values < 0) | (values >= size)):
        raise ValueError(
            f"{name} must be within 0..{size - 1} ({size} {where}), "
            f"got {what} from {int(values.min())} to {int(values.max())}"
        )
