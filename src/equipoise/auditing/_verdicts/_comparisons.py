"""Differences in calibration between groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, Literal

import numpy as np

from equipoise._inputs import shown
from equipoise.auditing._intervals import Family
from equipoise.auditing._verdicts._calibration import Calibration, ece_of
from equipoise.metrics import pairs_of


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Difference of two groups' calibration.

    Attributes
    ----------
    group, other
        The groups compared.
    measure
        What is compared: "ece", or "mean", by how much the probability is too high on average. The
        means are compared where the ECEs show no difference: they show smaller ones.
    label
        The label whose probability is compared: the one with the clearest difference. None for the
        confidence in the predicted label.
    difference
        That of `group` minus that of `other`, without the bias that makes the ECE of small groups
        look worse.
    low, high
        Its interval. That of an ECE follows from those of the verdicts and holds with them.
    text
        The finding in a sentence.
    """

    group: Hashable
    other: Hashable
    measure: Literal["ece", "mean"]
    label: Hashable
    difference: float
    low: float
    high: float
    text: str

    @property
    def clear(self) -> bool:
        """Whether a difference is shown."""
        return self.low > 0 or self.high < 0


def comparisons_of(
    found: Calibration, family: Family, reference_group: Any
) -> tuple[Comparison, ...]:
    """Compare each group with the reference; with "all", each pair once."""
    table, bounds = found.table, found.bounds
    pairs = [
        (g, ref)
        for g, ref in pairs_of(table.groups, reference_group)
        if g > ref or reference_group != "all" or "all" in table.groups
    ]
    if not pairs:
        return ()
    own, ref = (np.array(side) for side in zip(*pairs, strict=True))
    reach = bounds.mean_error * found.moments.student(family.mean(len(pairs)))[:, None]
    too_high = -bounds.mean
    measures = {
        "ece": (bounds.estimate, bounds.estimate - bounds.low, bounds.high - bounds.estimate),
        "mean": (too_high, reach, reach),
    }
    best: list[Comparison] = []
    for measure, (value, down, up) in measures.items():
        difference = value[own] - value[ref]
        # the arms of two intervals add up like standard errors
        low = difference - np.hypot(down[own], up[ref])
        high = difference + np.hypot(up[own], down[ref])
        # the distance from 0, which is negative if 0 is inside
        view = np.nan_to_num(np.maximum(low, -high), nan=-1.0).argmax(-1)
        figure = bounds.figure if measure == "ece" else too_high
        for i, (g, r) in enumerate(pairs):
            v = int(view[i])
            ends = float(difference[i, v]), float(low[i, v]), float(high[i, v])
            names, label = (table.groups[g], table.groups[r]), found.labels[v]
            made = Comparison(*names, measure, label, *ends, "")  # type: ignore[arg-type]
            if measure == "ece":
                best.append(made)
            if measure == "ece" or (made.clear and not best[i].clear):
                figures = float(figure[g, v]), float(figure[r, v])
                best[i] = dataclasses.replace(made, text=_sentence(made, *figures))
    return tuple(best)


def _sentence(found: Comparison, own: float, other: float) -> str:
    group, reference = shown(found.group), shown(found.other)
    if not found.clear:
        return f"{group} and {reference}: no evidence that one is better calibrated."
    if found.measure == "ece":
        word = "worse" if found.low > 0 else "better"
        return (
            f"{group} is {word} calibrated than {reference}: {ece_of(found.label)} {own:.3f} "
            f"against {other:.3f} (difference {found.low:.3f} to {found.high:.3f})."
        )
    what = "confidence" if found.label is None else f"probability of '{shown(found.label)}'"
    sides = [f"{100 * abs(v):.1f} points too {'high' if v > 0 else 'low'}" for v in (own, other)]
    ends = f"{100 * found.low:.1f} to {100 * found.high:.1f} points"
    return (
        f"{group} and {reference} are off by different amounts: on average the {what} is "
        f"{sides[0]} for {group}, {sides[1]} for {reference} (difference {ends})."
    )
