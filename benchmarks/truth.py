"""The true figures of a simulated world, computed without equipoise.

They come from a large draw with the true probabilities `eta` in the place of the labels, so that
nothing but the shares of the bins is uncertain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from worlds import N_BINS, PERSON, Array, World, draw, generator


@dataclasses.dataclass(frozen=True)
class Truth:
    """The figures of a world's population.

    Attributes
    ----------
    gaps
        ``gaps[part, group]``: E[(eta_k - p_k) 1[p_k in bin]], one row for the top label and one
        for each class; None stands for all parts or all groups.
    values
        ``values[part, group][metric]``.
    rates
        ``rates[kind][part][group]``: one for each class; kind is "labels", "stochastic" or
        "deterministic".
    noise
        ``noise[group]``: mean variance of a label, of the class where it is largest.
    rarest
        ``rarest[group]``: rate of the rarest class.
    drawn
        Number of rows of each group and part that all this was computed from.
    """

    gaps: Mapping[tuple[Any, Any], Array]
    values: Mapping[tuple[Any, Any], Mapping[str, float]]
    rates: Mapping[str, Mapping[Any, Mapping[str, Array]]]
    noise: Mapping[str, float]
    rarest: Mapping[str, float]
    drawn: int

    def ece(self, part: Any, group: Any, label: Any) -> float:
        """Return the ECE of a class, or of the predicted label (None)."""
        return float(np.abs(self._row(part, group, label)).sum())

    def too_high(self, part: Any, group: Any, label: Any) -> float:
        """Return the mean of p - eta of a class, or of the predicted label (None)."""
        return -float(self._row(part, group, label).sum())

    def error(self, part: Any, group: Any) -> float:
        """Return the largest ECE: of the top label, and of each class (the second of two)."""
        each = np.abs(self.gaps[part, group]).sum(1)
        return float(max(each[0], each[2]) if len(each) == 3 else each.max())

    def amplification(self, kind: str, part: Any, group: str, reference: str, label: int) -> float:
        """Return log(q_g / q_ref) - log(r_g / r_ref); nan where a rate is (almost) 0."""
        model, data = self.rates[kind][part], self.rates["labels"][part]
        four = [r[g][label] for r in (model, data) for g in (group, reference)]
        if min(four) < 1e-4:
            return float("nan")
        found = float(np.log(four[0] / four[1]) - np.log(four[2] / four[3]))
        return 0.0 if abs(found) < 1e-12 else found

    def proportional_equality(self, kind: str, part: Any, reference: str) -> float:
        """Return max |r_g / r_ref - q_g / q_ref|; nan where a rate is (almost) 0."""
        model, data = self.rates[kind][part], self.rates["labels"][part]
        if min(rate.min() for rates in (model, data) for rate in rates.values()) < 1e-4:
            return float("nan")
        gaps = [data[g] / data[reference] - model[g] / model[reference] for g in model]
        return float(np.abs(gaps).max())

    def words(self, kind: str, part: Any, group: str, reference: str, label: int) -> set[str]:
        """Return what is true of the change of the groups' ratio of a class; empty if it is kept.

        A change of decisions within the error of this computation counts as nothing. Where the
        data's ratio is 1 within that error, a change both amplifies and reverses.
        """
        change = self.amplification(kind, part, group, reference, label)
        model, data = self.rates[kind][part], self.rates["labels"][part]
        rates = [r[g][label] for r in (model, data) for g in (group, reference)]
        error = max(0.01, 4 * float(np.sqrt(sum(1 / max(r, 1e-9) for r in rates) / self.drawn)))
        if not abs(change) > (error if kind == "deterministic" else 0):
            return set()
        before = float(np.log(data[group][label] / data[reference][label]))
        after = before + change
        if abs(before) < error:
            return {"changes", "amplifies", "reverses"}
        found = {"changes", "amplifies" if abs(after) > abs(before) else "dampens"}
        return found | ({"reverses"} if before * after < 0 else set())

    def _row(self, part: Any, group: Any, label: Any) -> Array:
        return self.gaps[part, group][0 if label is None else 1 + int(label)]


def truth_of(world: World, total: int = 1_000_000) -> Truth:
    """Compute the truth from this many rows, as many of each group."""
    each = max(total // len(world.sizes) // PERSON * PERSON, PERSON)
    rows = draw(world, generator(world, 0), dict.fromkeys(world.sizes, each))
    top = rows.p.argmax(1)
    parts = [None, *range(world.parts)] if world.parts > 1 else [None]
    gaps: dict[tuple[Any, Any], Array] = {}
    rates: dict[str, dict[Any, dict[str, Array]]] = {
        kind: {part: {} for part in parts} for kind in ("labels", "stochastic", "deterministic")
    }
    values, noise, rarest = {}, {}, {}
    for part in parts:
        mass = {}
        for code, (name, size) in enumerate(world.sizes.items()):
            here = (rows.group == code) & ((part is None) | (rows.part == part))
            p, eta, w, best = rows.p[here], rows.eta[here], rows.expected_weight[here], top[here]
            mass[name] = w.sum() * size / each
            w = w / w.sum()
            gaps[part, name] = _gaps(p, eta, w, best)
            rates["labels"][part][name] = w @ eta
            rates["stochastic"][part][name] = w @ p
            rates["deterministic"][part][name] = w @ np.eye(p.shape[1])[best]
            values[part, name] = _values(p, eta, w, best, gaps[part, name])
            if part is None:
                noise[name] = float((w @ (eta * (1 - eta))).max())
                rarest[name] = float((w @ eta).min())
        whole = sum(mass.values())
        gaps[part, None] = sum(mass[g] / whole * gaps[part, g] for g in world.sizes)
    return Truth(gaps, values, rates, noise, rarest, each // world.parts)


def bins_of(p: Array) -> Array:
    """Return the bin (lo, hi] of each probability; a score such as .2 is on an edge."""
    return np.clip(np.ceil(np.round(p * N_BINS, 5)).astype(int) - 1, 0, N_BINS - 1)


def _gaps(p: Array, eta: Array, w: Array, best: Array) -> Array:
    row = np.arange(len(p))
    columns = [(p[row, best], eta[row, best]), *zip(p.T, eta.T, strict=True)]
    return np.array([np.bincount(bins_of(c), w * (e - c), N_BINS) for c, e in columns])


def _values(p: Array, eta: Array, w: Array, best: Array, gaps: Array) -> dict[str, float]:
    squares = (p**2 - 2 * p * eta + eta).sum(1) / (2 if p.shape[1] == 2 else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(eta > 0, -eta * np.log(p), 0.0).sum(1)
    return {
        "accuracy": float(w @ eta[np.arange(len(p)), best]),
        "ece": float(np.abs(gaps[0]).sum()),
        "classwise_ece": float(np.abs(gaps[1:]).sum() / p.shape[1]),
        "brier": float(w @ squares),
        "log_loss": float(w @ loss),
    }
