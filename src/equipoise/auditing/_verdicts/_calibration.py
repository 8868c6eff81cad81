"""Statistical verdicts on the calibration of each group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import shown
from equipoise.auditing._intervals._errors import Bounds, bounds_of
from equipoise.auditing._intervals._family import Family
from equipoise.auditing._intervals._figures import Interval
from equipoise.auditing._intervals._moments import Moments
from equipoise.auditing._intervals._spread import Spread
from equipoise.metrics import AuditTable

Floats = NDArray[np.float64]
Word = Literal["calibrated", "miscalibrated", "not enough evidence"]
Direction = Literal["too high", "too low", "over-confident", "under-confident", "mixed", ""]

POWER = 0.8
"""Chance of a clear verdict with as many rows as are said to be needed."""

MOST_ROWS = 1e4
"""Times as many rows as there are, beyond which no number of rows is given."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Statistical verdict on the calibration of a group: a decision on one interval.

    Attributes
    ----------
    word
        "calibrated": the interval is within the tolerance. "miscalibrated": it is above the
        tolerance. Otherwise "not enough evidence".
    direction
        What is wrong with a miscalibrated group: the probability of `label` is "too high" or "too
        low" on average; or the predicted label is "over-confident" or "under-confident". "mixed"
        where errors of both signs cancel on average.
    label
        The label whose probability decides: of the predicted label (None) and every label (of two,
        the second), the one whose error may be the largest.
    error
        Its ECE: the mean of ``|rate - probability|`` over bins.
    interval
        Of that error. It holds together with those of all other errors, groups and parts.
    rows
        Number of rows of the group.
    rows_needed
        Approximate number of rows with which an error of the estimated size would be decided 4
        times in 5, where there is not enough evidence; None where it would be over 10,000 times as
        many.
    text
        The verdict in a sentence.
    """

    word: Word
    direction: Direction
    label: Hashable
    error: float
    interval: Interval
    rows: int
    rows_needed: int | None
    text: str


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Bounds of the calibration errors that verdicts and comparisons look at, and their labels."""

    table: AuditTable
    moments: Moments
    labels: tuple[Hashable, ...]  # of each view; None for the predicted label
    bounds: Bounds

    @classmethod
    def of(cls, spread: Spread, family: Family, *, pooled: bool = False) -> Calibration:
        """Return the bounds of one family of statements."""
        classes = spread.table.labels
        # two classes mirror each other, so the second says it all
        views = [0, 2] if len(classes) == 2 else list(range(len(classes) + 1))
        bounds = bounds_of(spread, *family.bounds(pooled=pooled)).of(views)
        labels = (None, *classes)
        return cls(spread.table, spread.moments, tuple(labels[v] for v in views), bounds)


def ece_of(label: Hashable) -> str:
    """Return the name of a view's calibration error."""
    return "ECE" if label is None else f"ECE of '{shown(label)}'"


def verdicts_of(found: Calibration, tolerance: float) -> dict[Hashable, Verdict]:
    """Return the verdict on each group."""
    bounds, rows = found.bounds, found.table["rows"].astype(np.int64).tolist()
    above = bounds.low > tolerance
    wrong, fine = np.any(above, -1), np.all(bounds.high <= tolerance, -1)
    # the error that decides: of those shown to be above the tolerance, or of all, the one that
    # may be the largest
    view = np.where(above | ~wrong[:, None], bounds.high, 0.0).argmax(-1)
    needed = _rows_needed(bounds, view, np.array(rows), tolerance)
    verdicts = {}
    for i, group in enumerate(found.table.groups):
        v = int(view[i])
        interval = Interval(float(bounds.low[i, v]), float(bounds.high[i, v]))
        name = "All rows together" if group is None else shown(group)
        figure = f"{ece_of(found.labels[v])} {bounds.figure[i, v]:.3f}"
        figure += f", {_apart(interval.low, tolerance)} to {_apart(interval.high, tolerance)}"
        word: Word = "not enough evidence"
        direction: Direction = ""
        enough = None
        if wrong[i]:
            word = "miscalibrated"
            direction, what = _direction(found, i, v)
            text = f"{name}: miscalibrated. {what} ({figure})."
            top = float(bounds.figure[i, 0])
            hidden = bounds.low[i, 0] == 0 and top < bounds.figure[i, v] / 2
            if direction.startswith("too") and hidden:
                text += " The confidence in the predicted label looks right "
                text += f"(ECE {top:.3f}) because the errors cancel."
        elif fine[i]:
            word = "calibrated"
            text = f"{name}: calibrated within {tolerance:g} ({figure})."
        elif not found.table["weight"][i] > 0:
            text = f"{name}: not enough evidence: all weights are 0."
        else:
            enough = int(needed[i]) if np.isfinite(needed[i]) else None
            text = f"{name}: {_undecided(found, i, v, figure, tolerance, enough)}"
        error = float(bounds.figure[i, v])
        label = found.labels[v]
        verdicts[group] = Verdict(word, direction, label, error, interval, rows[i], enough, text)
    return verdicts


def _undecided(
    found: Calibration, i: int, v: int, figure: str, tolerance: float, enough: int | None
) -> str:
    """Return the sentences on a group whose interval contains the tolerance."""
    estimate = float(found.bounds.estimate[i, v])
    leans = "miscalibrated" if estimate > tolerance else "calibrated"
    text = f"not enough evidence, leaning to {leans} ({figure}; tolerance {tolerance:g}"
    if tolerance == 0:  # nothing can be shown to be within it
        text = f"not enough evidence of an error ({figure}"
    if f"{found.bounds.figure[i, v]:.3f}" != f"{estimate:.3f}":
        text += f"; without the part that noise adds, about {estimate:.3f}"
    where = "" if found.table.groups[i] is None else " in this group"
    if enough is None:
        return f"{text}). An error of this size would need more rows than can be said."
    if found.table.clustered:
        times = enough / max(float(found.table["rows"][i]), 1.0)
        clusters = _about(times * float(found.table["unit_count"][i]))
        where = f" in {clusters:,} clusters{where}"
    return (
        f"{text}). With about {enough:,} rows{where}, an error of this size would be decided 4 "
        "times in 5."
    )


def _direction(found: Calibration, i: int, v: int) -> tuple[Direction, str]:
    """Return what is wrong with group i in view v, as a word and as a sentence."""
    bounds = found.bounds
    if not bounds.mean_clear[i, v] and bounds.mean_clear[i, 0]:
        v = 0
    mean = float(bounds.mean[i, v])
    points, label = f"{100 * abs(mean):.1f} points", found.labels[v]
    if label is None:
        if bounds.mean_clear[i, v]:
            over = mean < 0
            side = "above" if over else "below"
            sentence = f"The confidence is {points} {side} the accuracy on average"
            if over:
                return "over-confident", f"Over-confident: {sentence[0].lower()}{sentence[1:]}"
            return "under-confident", f"Under-confident: {sentence[0].lower()}{sentence[1:]}"
        return "mixed", "Over-confident for some rows, under-confident for others"
    what = f"The probability of '{shown(label)}' is"
    if not bounds.mean_clear[i, v]:
        return "mixed", f"{what} too high for some rows, too low for others"
    if mean < 0:
        return "too high", f"{what} {points} too high on average"
    return "too low", f"{what} {points} too low on average"


def _rows_needed(bounds: Bounds, view: NDArray[np.intp], rows: Floats, tolerance: float) -> Floats:
    """Return the rows with which each verdict would be clear with chance `POWER`; inf beyond reach.

    The true error is taken to be the estimate. The bounds come nearer to it, and the estimates of
    other samples too, as the square root of the rows grows.
    """
    at = (np.arange(len(view)), view)
    value, error = bounds.estimate[at], bounds.mean_error[at]
    up, down = bounds.high[at] - value, bounds.reach[at]
    found = np.full(len(view), np.inf)
    for times in np.geomspace(1.0, MOST_ROWS, 161).tolist():
        step = error / math.sqrt(times)
        with np.errstate(divide="ignore", invalid="ignore"):
            within = _chance((tolerance - value - up / math.sqrt(times)) / step)
            beyond = _chance((value - tolerance - down / math.sqrt(times)) / step)
        enough = (within + beyond >= POWER) & np.isinf(found)
        found[enough] = times
        if np.isfinite(found).all():
            break
    return np.array([_about(n) if np.isfinite(n) else n for n in (found * rows).tolist()])


def _apart(value: float, tolerance: float) -> str:
    """Show a bound; with more digits where rounding would put it on the tolerance."""
    for digits in range(3, 9):
        text = f"{value:.{digits}f}"
        if float(text) != tolerance or value == tolerance:
            break
    return text


def _chance(z: Floats) -> Floats:
    """Return the normal distribution function to within .01, without scipy."""
    return np.asarray(1.0 / (1.0 + np.exp(np.clip(-1.702 * z, -50.0, 50.0))))


def _about(value: float) -> int:
    """Round up to two digits."""
    step: int = 10 ** max(0, len(str(int(value))) - 2)
    return math.ceil(value / step) * step
