"""From the effects on datasets to verdicts: t intervals, Holm's adjustment, power."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.paper._study._design import Claim

Floats = NDArray[np.float64]

VERDICTS = ("equivalent", "shown", "refuted", "undecided")


@dataclasses.dataclass(frozen=True)
class Pooled:
    """The mean of an effect over datasets.

    Attributes
    ----------
    mean, low, high
        The mean and its t interval.
    p
        Two-sided p-value of a mean of 0.
    detectable
        Smallest effect that would have been found with the stated power.
    datasets
        Number of datasets.
    """

    mean: float
    low: float
    high: float
    p: float
    detectable: float
    datasets: int


def pooled(effects: Floats, level: float = 0.95, power: float = 0.8, null: float = 0.0) -> Pooled:
    """Return the mean of effects, a dataset each, with its t interval.

    `null` is the mean that `p` tests.

    >>> found = pooled(np.array([-0.2, -0.1, -0.3, -0.2]))
    >>> print(f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}], p = {found.p:.3f}")
    -0.20 [-0.33, -0.07], p = 0.016
    """
    from scipy import stats

    n = len(effects)
    if n < 2:
        raise ValueError(f"a mean over datasets needs at least 2 of them, got {n}")
    mean, error = float(np.mean(effects)), float(np.std(effects, ddof=1)) / np.sqrt(n)
    t = stats.t(n - 1)
    reach = float(t.ppf(0.5 + level / 2.0))
    distance = abs(mean - null)
    p = float(2.0 * t.sf(distance / error)) if error > 0.0 else float(distance == 0.0)
    detectable = (reach + float(t.ppf(power))) * error
    return Pooled(mean, mean - reach * error, mean + reach * error, p, detectable, n)


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm-adjusted p-values: family-wise error at most alpha where they are at most alpha.

    >>> [round(v, 3) for v in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = largest
    return [float(v) for v in adjusted]


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A claim, its pooled effect in each outcome, the adjusted p-value, and the verdict."""

    claim: Claim
    effects: Mapping[str, Pooled]
    adjusted: float
    verdict: str

    @property
    def first(self) -> Pooled:
        """The effect in the claim's own outcome."""
        return self.effects[self.claim.outcome]


def judged(
    claims: Sequence[Claim],
    effects: Mapping[str, Mapping[str, Floats]],
    margins: Mapping[str, float],
    level: float = 0.95,
    power: float = 0.8,
) -> list[Judgement]:
    """Return the verdicts; `effects` are those of each claim's outcomes, (dataset,).

    A further outcome with a sign of its own must be shown too; log-loss must be shown to be not
    worse than its margin. Such a claim has the largest of its p-values.
    """
    found, ps = [], []
    for claim in claims:
        each, p = {}, []
        for outcome in (claim.outcome, *claim.also):
            guard = outcome == "log_loss"
            null = margins[outcome] if guard else 0.0
            own = pooled(effects[claim.name][outcome], level, power, null)
            each[outcome] = own
            towards = (own.mean - null) * (-1.0 if guard else claim.sign) > 0
            # where several parts must hold, one in the wrong direction supports nothing
            p.append(own.p if towards or not claim.also else 1.0)
        found.append(each)
        ps.append(max(p))
    return [
        Judgement(claim, each, p, _verdict(claim, each, p, margins, level))
        for claim, each, p in zip(claims, found, holm(ps), strict=True)
    ]


def _verdict(
    claim: Claim, each: Mapping[str, Pooled], p: float, margins: Mapping[str, float], level: float
) -> str:
    if not claim.also:
        own, margin = each[claim.outcome], margins[claim.outcome]
        if -margin < own.low and own.high < margin:
            return "equivalent"
        if p <= 1.0 - level:
            return "shown" if own.mean * claim.sign > 0 else "refuted"
        return "undecided"
    if p <= 1.0 - level:
        return "shown"
    against = [
        own.low > margins[outcome] if outcome == "log_loss" else _against(own, claim.sign)
        for outcome, own in each.items()
    ]
    return "refuted" if any(against) else "undecided"


def _against(own: Pooled, sign: float) -> bool:
    """Return whether the whole interval has the other sign than claimed."""
    return own.low > 0 if sign < 0 else own.high < 0
