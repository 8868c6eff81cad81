"""Effects of claims: means of outcomes over arms, what is treated minus its control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.paper._study._design import Arm, Claim
from equipoise.paper._study._outcomes import LOGGED

Floats = NDArray[np.float64]


def transformed(name: str, values: Floats) -> Floats:
    """Return an outcome as it is compared: the logarithm of an ECE, others as they are."""
    if name not in LOGGED:
        return values
    with np.errstate(divide="ignore"):
        return np.log(values)


def matching(arms: Sequence[Arm], wanted: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the places of the arms that are meant, by loss."""
    found: dict[str, list[int]] = {}
    for place, arm in enumerate(arms):
        if (
            arm.loss in wanted["loss"]
            and arm.lam == wanted.get("lam", arm.lam)
            and (arm.rho is not None) == wanted.get("grouped", arm.rho is not None)
        ):
            found.setdefault(arm.loss, []).append(place)
    absent = set(wanted["loss"]) - set(found)
    if absent:
        raise ValueError(f"no arm is meant by {dict(wanted)}: {', '.join(sorted(absent))}")
    return found


def mean_of(values: Floats, arms: Sequence[Arm], wanted: Mapping[str, Any]) -> Floats:
    """Average over arms, (..., arm) to (...): first the arms of a loss, then the losses."""
    own = [values[..., places].mean(axis=-1) for places in matching(arms, wanted).values()]
    return np.asarray(np.mean(own, axis=0))


def effect(
    claim: Claim,
    outcome: str,
    arms: Sequence[Arm],
    values: Mapping[str, Mapping[str, Floats]],
) -> Floats:
    """Return the effect of a claim in an outcome, (...).

    `values` are the outcomes by calibration and name, each (..., repeat, arm).
    """
    sides = []
    for wanted in (claim.treated, claim.control):
        raw = values[wanted.get("calibration", "none")][outcome]
        sides.append(mean_of(transformed(outcome, raw), arms, wanted))
    return np.asarray((sides[0] - sides[1]).mean(axis=-1))


def chosen_effect(
    arms: Sequence[Arm],
    choosing: Mapping[str, Floats],
    judging: Mapping[str, Floats],
    by: str,
    outcome: str,
    slack: float,
    control: Mapping[str, Any],
) -> Floats:
    """Return the outcome of the arm that other rows choose minus that of its control, (...).

    `choosing` and `judging` are the outcomes, (..., repeat, arm), on two halves of the rows. The
    choice is the arm of least `by` among those whose accuracy is within `slack` of the best.
    """
    accuracy, score = choosing["accuracy"], choosing[by]
    allowed = accuracy >= accuracy.max(axis=-1, keepdims=True) - slack
    choice = np.where(allowed, score, np.inf).argmin(axis=-1)
    values = transformed(outcome, judging[outcome])
    own = np.take_along_axis(values, choice[..., None], axis=-1)[..., 0]
    return np.asarray((own - mean_of(values, arms, control)).mean(axis=-1))
