"""The choice among rows of arrays: within an accuracy slack, the best by an objective."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Objective = Literal["balanced", "pe", "ece"]

OBJECTIVES = ("balanced", "pe", "ece")

BASELINE = "ce"
"""The loss whose medians are the unit of the balanced score."""

TOLERANCE = 1e-9
"""Differences of accuracy within this of the slack count as equal to it."""


def within_slack(accuracy: Any, slack: float = 0.05, best: float | None = None) -> Mask:
    """Return where ``accuracy > best - slack``, strictly.

    Parameters
    ----------
    accuracy
        In double precision; where it is not finite, the result is False.
    slack
        Positive. A difference from `best` that equals it but for rounding (1e-9) is not within.
    best
        By default the largest finite accuracy.

    Examples
    --------
    >>> within_slack([0.75, 0.71, 0.70, float("nan")]).tolist()
    [True, True, False, False]
    """
    if not (0 < slack < math.inf):
        raise ValueError(
            f"slack must be positive and finite, got {slack!r}; a tiny one keeps only the best"
        )
    array = np.asarray(accuracy, dtype=np.float64)
    finite = np.isfinite(array)
    if best is None:
        best = float(np.max(array, where=finite, initial=-np.inf))
    elif not math.isfinite(best):
        raise ValueError(f"best must be finite, got {best!r}; leave it out for the largest")
    mask = np.zeros(array.shape, dtype=bool)
    # half the slack, so that the best itself is within however small the slack
    mask[finite] = slack - (best - array[finite]) > min(TOLERANCE, slack / 2)
    return mask


def balanced_score(pe: Any, ece: Any, pe_ce: float, ece_ce: float) -> Floats:
    """Return ``pe / pe_ce + ece / ece_ce``: both measures in units of plain cross-entropy.

    A row as good as the median of cross-entropy has the score 2; lower is better.

    Examples
    --------
    >>> balanced_score([0.2, 0.1], [0.05, 0.05], pe_ce=0.2, ece_ce=0.05).tolist()
    [2.0, 1.5]
    """
    for name, unit in (("PE", pe_ce), ("ECE", ece_ce)):
        if not (0 < unit < math.inf):
            raise ValueError(
                f"the median {name} of cross-entropy is {unit!r}, and the balanced score divides "
                "by it; choose with objective='pe' or 'ece', or give a function of the row"
            )
    scaled: Floats = np.asarray(pe, np.float64) / pe_ce + np.asarray(ece, np.float64) / ece_ce
    return scaled


def baseline_medians(pe: Any, ece: Any, rows: Mask) -> tuple[float, float] | None:
    """Return the median PE and ECE of cross-entropy, the units of the balanced score.

    `rows` marks its rows. Those whose PE or ECE is not finite do not count; None where none is
    left.
    """
    both = np.asarray(pe, np.float64), np.asarray(ece, np.float64)
    counted = rows & np.isfinite(both[0]) & np.isfinite(both[1])
    if not counted.any():
        return None
    return float(np.median(both[0][counted])), float(np.median(both[1][counted]))


def choose(
    accuracy: Any,
    pe: Any,
    ece: Any,
    *,
    slack: float = 0.05,
    objective: Objective = "balanced",
    baseline: Any = None,
    among: Any = None,
    best: float | None = None,
) -> int:
    """Return the position of the row that `select` would choose, from arrays.

    Parameters
    ----------
    accuracy, pe, ece
        (row,) each, all of the validation part.
    slack, best
        As in `within_slack`.
    objective
        "pe", "ece" or "balanced", as in `select`.
    baseline
        (row,) booleans: the rows of plain cross-entropy. Read by "balanced" only, which needs it.
    among
        (row,) booleans: the rows that may be chosen; by default all. Best accuracy and medians
        are still those of all rows.

    Examples
    --------
    >>> choose([0.8, 0.8, 0.7], [0.3, 0.2, 0.0], [0.01, 0.02, 0.0], objective="pe")
    1
    """
    check_objective(objective)
    columns = [np.asarray(values, dtype=np.float64) for values in (accuracy, pe, ece)]
    marks = {"among": among, "baseline": baseline}
    masks = {name: np.asarray(m) for name, m in marks.items() if m is not None}
    shapes = {array.shape for array in (*columns, *masks.values())}
    if len(shapes) > 1 or columns[0].ndim != 1:
        raise ValueError(
            f"accuracy, pe, ece and the masks must all be (row,), got shapes {sorted(shapes)}"
        )
    for name, mask in masks.items():
        if mask.dtype != bool:
            raise TypeError(f"{name} must be booleans, one per row, got dtype {mask.dtype}")
    _, pes, eces = columns
    within = within_slack(columns[0], slack, best)
    usable = within & np.isfinite(pes) & np.isfinite(eces)
    if objective == "balanced":
        if "baseline" not in masks:
            raise ValueError(
                "objective 'balanced' needs baseline=, which marks the rows of cross-entropy"
            )
        units = baseline_medians(pes, eces, within & masks["baseline"])
        if units is None:
            raise ValueError(
                f"no row of cross-entropy ({BASELINE!r}) with a finite PE and ECE is within "
                f"{slack} of the best accuracy, so the balanced score has no unit; add such runs, "
                "widen the slack, or choose with objective='pe' or 'ece'"
            )
        score = balanced_score(pes, eces, *units)
    else:
        score = pes if objective == "pe" else eces
    allowed = np.flatnonzero(usable & masks.get("among", True))
    if not len(allowed):
        raise ValueError(
            f"nothing to choose: no row with a finite PE and ECE is within {slack} of the best "
            "accuracy; widen the slack, or add runs"
        )
    return int(allowed[np.argmin(score[allowed])])


def check_objective(objective: Any) -> None:
    """Raise unless this is the name of an objective."""
    if objective not in OBJECTIVES:
        raise ValueError(
            f"unknown objective {objective!r}; use one of {', '.join(OBJECTIVES)}, or with "
            "select a function that takes a row and returns a number"
        )
