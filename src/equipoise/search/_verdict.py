"""What a search says: whether anything beats cross-entropy, and how sure the choice is."""

from __future__ import annotations

from typing import Any

import numpy as np

from equipoise.search._choice import BASELINE
from equipoise.search._interval import confidence, mean_interval
from equipoise.search._results import Candidates, Limits, Objective, Tradeoffs

NAMES = {"balanced": "balanced score", "pe": "PE", "ece": "ECE"}


def verdict(
    found: Tradeoffs, objective: Objective, limits: Limits, choice: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the verdict in words, and the numbers behind it.

    Two comparisons, each by a 95% interval, so that one of them is wrong in at most 5% of searches
    where nothing is to be gained: the best of the losses with the best of as many runs of
    cross-entropy, both with any calibration; and cross-entropy with the best calibration with
    cross-entropy as it is. The best are chosen on other rows than they are compared on.
    """
    loss, calibrate = choice["loss"], choice["calibrate"]
    each, pooled = found.candidates(pool=False), found.candidates(pool=True)
    numbers: dict[str, Any] = {"loss": loss, "calibrate": calibrate, "rivals": choice["rivals"]}
    if not found.controls.any():
        return "Cross-entropy was not run (control=False), so nothing is compared with it.", numbers
    if len(found.nested()) < 2:
        return (
            "Too little was finished to compare: choices and figures need separate splits.",
            numbers,
        )
    control = found.controls[[t[0] for t in each.trials]]
    runs = len({int(t[0]) for t, own in zip(each.trials, control, strict=True) if own})
    losses = _duel(found, objective, limits, (~control, control), each)
    plain = np.array([found.calibrate[w] is None for w in pooled.way])
    ce = found.controls[[t[0] for t in pooled.trials]]
    repairs = _duel(found, objective, limits, (ce & ~plain, ce & plain), pooled)
    what = "score" if callable(objective) else NAMES[str(objective)]
    numbers |= (losses or {}) | {"runs": runs, "repair": repairs}
    if losses and loss != BASELINE and losses["interval"][0] > 0:
        return f"{loss} beats cross-entropy given as many runs: {_said(what, losses)}.", numbers
    none = "No loss beats cross-entropy given as many runs"
    if losses:
        none += f" ({_said(what, losses)})"
    if repairs and repairs["interval"][0] > 0:
        return f"{none}. Calibration after training helps: {_said(what, repairs)}.", numbers
    if repairs:
        none += f", and no calibration after training improves it ({_said(what, repairs)})"
    return f"Nothing to gain is shown. {none}.", numbers


def _duel(
    found: Tradeoffs, objective: Objective, limits: Limits, sides: Any, among: Candidates
) -> dict[str, Any] | None:
    """Return the numbers of a comparison; None where a side has nothing, or nothing finite."""
    if not (sides[0].any() and sides[1].any()):
        return None
    ours, theirs = found.duel(objective, limits, sides, among)
    span = mean_interval(theirs - ours, found.ratio)
    if span is None:
        return None
    return {
        "score": float(ours.mean()),
        "control_score": float(theirs.mean()),
        "difference": float((theirs - ours).mean()),
        "interval": span,
        "confidence": confidence(theirs - ours, found.ratio),
        "splits": len(ours),
    }


def _said(what: str, numbers: dict[str, Any]) -> str:
    low, high = numbers["interval"]
    return (
        f"{what} {numbers['score']:.3f} against {numbers['control_score']:.3f} on held-out rows, "
        f"difference {numbers['difference']:.3f}, 95% interval [{low:.3f}, {high:.3f}] over "
        f"{numbers['splits']} splits; lower is better"
    )
