"""What all studies say together: verdicts, effects of arms, floors, and how stable a winner is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.paper._study._design import arms, claims, registered
from equipoise.paper._study._digest import BOOTSTRAPPED, StudyDigest
from equipoise.paper._study._effects import transformed
from equipoise.paper._study._inference import Judgement, Pooled, judged, pooled

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

LARGE = 10_000
"""Rows from which a dataset counts as large."""


def of_network(digests: Sequence[StudyDigest], network: str) -> list[StudyDigest]:
    """Return the digests of one network."""
    return [d for d in digests if d.study["network"] == network]


def judgements(digests: Sequence[StudyDigest], network: str = "linear") -> list[Judgement]:
    """Return the verdict of each claim over the datasets of a network."""
    own = of_network(digests, network)
    effects = {
        claim.name: {
            outcome: np.array([d.facts["claims"][claim.name][outcome]["effect"] for d in own])
            for outcome in (claim.outcome, *claim.also)
        }
        for claim in claims()
    }
    rules = registered()["inference"]
    return judged(claims(), effects, rules["margins"], rules["level"], rules["power"])


def plain_level(digests: Sequence[StudyDigest], outcome: str) -> float:
    """Return cross-entropy's mean outcome over datasets, before its logarithm is taken."""
    return float(np.mean([_plain(d)[outcome].mean() for d in digests]))


def _plain(digest: StudyDigest) -> pd.DataFrame:
    frame = digest.outcomes
    return frame[frame["arm"].str.startswith("ce ") & (frame["calibration"] == "none")]


def percent(outcome: str, value: float, level: float) -> float:
    """Return an effect in percent of cross-entropy's own value.

    Of an ECE the effect is a difference of logarithms; of others it is divided by their `level`.
    """
    if outcome in ("ece", "class_ece"):
        return 100.0 * float(np.expm1(value))
    return 100.0 * value / level


@dataclasses.dataclass(frozen=True)
class Treatment:
    """What can be done: a loss with its strength, and a calibration after it."""

    arm: str
    calibration: str
    effects: dict[str, Pooled]


def treatments(digests: Sequence[StudyDigest]) -> list[Treatment]:
    """Return the mean effect of each arm and calibration over some studies.

    An effect is the difference from plain cross-entropy; the four initial weights of cross-entropy
    are averaged.
    """
    found = []
    names = ["ce", *(arm.name for arm in arms() if arm.loss != "ce")]
    ways = registered()["design"]["calibrations"]
    tables = [_by_treatment(d) for d in digests]
    for arm in names:
        for way in ways:
            effects = {
                outcome: pooled(np.array([table[arm, way][outcome] for table in tables]))
                for outcome in BOOTSTRAPPED
            }
            found.append(Treatment(arm, way, effects))
    return found


def _by_treatment(digest: StudyDigest) -> dict[tuple[str, str], dict[str, float]]:
    frame = digest.effects.copy()
    frame["arm"] = frame["arm"].str.replace(r" #\d+$", "", regex=True)
    mean = frame.groupby(["arm", "calibration", "outcome"])["effect"].mean()
    found: dict[tuple[str, str], dict[str, float]] = {}
    for (arm, way, outcome), value in mean.items():
        found.setdefault((arm, way), {})[outcome] = float(value)
    return found


def winners(digest: StudyDigest, outcome: str) -> tuple[str, int, int]:
    """Return the loss of least outcome, and how often leaving out a repeat changes it.

    The strengths of a loss are averaged, ungrouped losses left out. The last number is that of the
    repeats.
    """
    frame = digest.outcomes
    own = frame[(frame["calibration"] == "none") & ~frame["arm"].str.endswith("ungrouped")]
    loss = own["arm"].str.split(" ").str[0]
    values = transformed(outcome, own[outcome].to_numpy(np.float64))
    table = own.assign(loss=loss, value=values).pivot_table("value", "repeat", "loss")
    best = str(table.mean().idxmin())
    rest = [table.drop(index=r) for r in table.index] if len(table) > 1 else []
    return best, sum(str(own.mean().idxmin()) != best for own in rest), len(table)


def noise(digest: StudyDigest) -> dict[str, Any]:
    """Return what is noise on a dataset: floors beside cross-entropy's values."""
    plain, floors = _plain(digest), digest.facts["floors"]
    return {
        "dataset": digest.study["dataset"],
        "rows": digest.facts["data"]["rows"],
        "smallest group": digest.facts["smallest_group"],
        "amplification": float(plain["amplification"].mean()),
        "amplification floor": floors["amplification"],
        "ece": float(plain["ece"].mean()),
        "ece floor": floors["ece"],
    }
