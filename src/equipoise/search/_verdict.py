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
    cross-entropy as it is. The best are chosen on other rows than they are compared on. What costs
    clearly more accuracy or log-loss than the limits allow is not said to beat anything.
    """
    loss, calibrate = choice["loss"], choice["calibrate"]
    numbers: dict[str, Any] = {"loss": loss, "calibrate": calibrate, "rivals": choice["rivals"]}
    if not found.controls.any():
        return "Cross-entropy was not run (control=False), so nothing is compared with it.", numbers
    nested = found.nested()
    if len({found.trainings[s] for s, _ in nested}) < 2:
        return (
            "Nothing is compared: that needs choices and figures on separate rows of two or more "
            "training splits (n_seeds).",
            numbers,
        )
    each, pooled = found.candidates(pool=False), found.candidates(pool=True)
    control = found.controls[[t[0] for t in each.trials]]
    runs = [
        len({int(each.trials[i][0]) for i in np.flatnonzero(own)}) for own in (~control, control)
    ]
    losses = _duel(found, objective, limits, (~control, control), each)
    plain = np.array([found.calibrate[w] is None for w in pooled.way])
    ce = found.controls[[t[0] for t in pooled.trials]]
    repairs = _duel(found, objective, limits, (ce & ~plain, ce & plain), pooled)
    what = "score" if callable(objective) else NAMES[str(objective)]
    numbers |= (losses or {}) | {"runs": runs[1], "repair": repairs}
    given = "given as many runs" if runs[0] == runs[1] else f"given {runs[1]} runs, not {runs[0]}"
    costly = bool(losses and losses["costly"])
    if losses and losses["interval"][0] > 0 and not costly:
        name = loss if loss != BASELINE else max(losses["chosen"], key=losses["chosen"].get)
        text = f"{name} beats cross-entropy {given}: {_said(what, losses)}."
        if loss == BASELINE:
            text += (
                " The choice is cross-entropy all the same: of the candidates within the limits of "
                f"accuracy and log-loss, it has the least {what}."
            )
        return text, numbers
    said = []
    if losses and costly:
        said.append(
            f"No loss stays within the limits: the best costs {losses['log_loss_cost']:.3f} of "
            f"log-loss and {losses['accuracy_cost']:.3f} of accuracy."
        )
    elif losses:
        said.append(f"No loss is shown to beat cross-entropy {given} ({_said(what, losses)}).")
    elif runs[0]:
        said.append(
            "No loss is compared with cross-entropy: the score is not finite on some split."
        )
    else:
        said.append("No loss but cross-entropy was tried.")
    if losses and losses["difference"] <= 0 and loss != BASELINE and not callable(objective):
        said.append(
            f"{loss} is chosen all the same, because no cross-entropy is within the limits of "
            "accuracy and log-loss."
        )
    if repairs and repairs["interval"][0] > 0 and not repairs["costly"]:
        said.append(f"Calibration after training helps: {_said(what, repairs)}.")
        return " ".join(said), numbers
    if repairs and repairs["costly"]:
        said.append(
            "No calibration stays within the limits: the best costs "
            f"{repairs['log_loss_cost']:.3f} of log-loss and {repairs['accuracy_cost']:.3f} of "
            "accuracy."
        )
    elif repairs:
        said.append(
            f"No calibration after training is shown to improve it ({_said(what, repairs)})."
        )
    if losses or repairs:
        said.insert(0, "Nothing to gain is shown.")
    return " ".join(said), numbers


def _duel(
    found: Tradeoffs, objective: Objective, limits: Limits, sides: Any, among: Candidates
) -> dict[str, Any] | None:
    """Return the numbers of a comparison; None where it cannot be made."""
    duel = found.duel(objective, limits, sides, among)
    if duel is None:
        return None
    gain = duel.gain
    span = mean_interval(gain, found.ratio)
    if span is None:
        return None
    return {
        "score": float(duel.ours.mean()),
        "control_score": float(duel.theirs.mean()),
        "difference": float(gain.mean()),
        "interval": span,
        "confidence": confidence(gain, found.ratio),
        "log_loss_cost": float(duel.log_loss.mean()),
        "accuracy_cost": float(duel.accuracy.mean()),
        "costly": duel.costly(limits),
        "splits": len(gain),
        "chosen": {name: duel.losses.count(name) for name in sorted(set(duel.losses))},
    }


def _said(what: str, numbers: dict[str, Any]) -> str:
    low, high = numbers["interval"]
    chosen = numbers["chosen"]
    which = ""
    if len(chosen) > 1:
        which = f" (chosen: {', '.join(f'{name} on {n}' for name, n in chosen.items())} splits)"
    return (
        f"{what} {numbers['score']:.3f} against {numbers['control_score']:.3f}, lower being "
        f"better, on held-out rows{which}; gain {numbers['difference']:.3f}, 95% interval "
        f"[{low:.3f}, {high:.3f}] over {numbers['splits']} splits"
    )
