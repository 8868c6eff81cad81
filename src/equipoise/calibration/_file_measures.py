"""A repair measured on rows that it was not fitted to: before and after, in pairs."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import Reader, reader
from equipoise._inputs import InputError, shown
from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._file_gathered import FOLDS, Gathered
from equipoise.calibration._file_rows import Coded, Part, joined
from equipoise.calibration._group_calibrator import GroupCalibrator, fit_method
from equipoise.calibration._rows import Rows
from equipoise.calibration._scores import scores_of
from equipoise.calibration._warnings import UnseenGroupError
from equipoise.metrics import BLOCKS, AuditTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW = 20_000
"""Rows up to which "auto" chooses anew for each fold."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """Log-loss before minus after, with its 95% interval from the paired rows (or clusters)."""

    mean: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Measured:
    """A repair on rows that it was not fitted to.

    Attributes
    ----------
    how
        How these rows were chosen, in words.
    before, after
        Their audit tables, uncalibrated and calibrated.
    gains
        Dict from group to `Gain`; the key None is all rows.
    """

    how: str
    before: AuditTable
    after: AuditTable
    gains: dict[Hashable, Gain]

    @property
    def helps(self) -> bool:
        """Whether the repair is shown to lower the log-loss of all rows."""
        return self.gains[None].low > 0.0

    @property
    def text(self) -> str:
        """Whether the repair helps, in words."""
        gain = self.gains[None]
        size = f"{abs(gain.mean):.4f}"
        if gain.low > 0.0:
            return f"The repair lowers the log-loss by {size} ({gain.low:.4f} to {gain.high:.4f})."
        if gain.high < 0.0:
            return (
                f"This repair does not help: it raises the log-loss by {size} "
                f"({-gain.high:.4f} to {-gain.low:.4f})."
            )
        return (
            f"This repair does not help: the log-loss changes by {-gain.mean:+.4f} "
            f"({-gain.high:+.4f} to {-gain.low:+.4f}), which may be chance."
        )


Calibrated = Callable[[Part], Floats]
"""Probabilities (n, K) of a part."""


def of_one(calibrator: GroupCalibrator) -> Calibrated:
    """Calibrate every row with the same calibrators."""
    fitted, policy = calibrator._calibrator(), calibrator.unseen_group
    return lambda part: fitted.apply(scores_of(part.prob), part.member, policy)


def crossed(
    files: Reader,
    gathered: Gathered,
    coded: Coded,
    calibrator: GroupCalibrator,
    rows: Rows,
    fold: Ints,
    clusters: Ints | None,
) -> Measured:
    """Measure each row with calibrators that were fitted to the other folds."""
    # among many rows the choice of a method does not depend on a fold
    method = calibrator.method if len(rows) <= FEW else calibrator.method_
    sets: dict[int, CalibratorSet] = {}
    for k in np.unique(fold).tolist():
        others = rows.take(fold != k)
        seen = others.counts().sum(axis=0)
        if not (seen[rows.counts().sum(axis=0) > 0]).all():
            raise InputError(
                f"label {shown(coded.classes[int(np.argmin(seen))])!r} has too few rows to measure "
                "the repair out of fold",
                "add rows, or pass holdout= with a file to measure on",
                "add rows, or pass --holdout FILE to measure on",
            )
        ids = None if clusters is None else clusters[fold != k]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of all rows were given
            sets[k], *_ = fit_method(others, method, calibrator.shrinkage, ids)
    kept = gathered.kept
    place = [fold] if kept is not None else None

    def calibrated(part: Part) -> Floats:
        own = place[0] if place is not None else gathered.fold(part)
        prob = np.empty((len(part), len(coded.classes)))
        scores = scores_of(part.prob)
        for k in np.unique(own).tolist():
            these = own == k
            prob[these] = sets[k].apply(scores[these], part.member[these])
        return prob

    parts = coded.recoded(files) if kept is None else iter([coded.recode(kept)])
    how = f"out of fold ({FOLDS} folds"
    if coded.columns.cluster is not None:
        how += f", each {shown(coded.columns.cluster)} in one"
    return measured(f"{how})", parts, coded, calibrated)


def on_file(data: Any, coded: Coded, calibrator: GroupCalibrator) -> Measured:
    known = list(coded.groups)
    with reader(data) as files:
        files.check(*coded.columns.names)
        for _ in coded.parts(files):
            pass
        coded.code()
        unseen = [g for g in coded.groups if g not in known]
        if unseen and calibrator.unseen_group == "error":
            raise UnseenGroupError.of(unseen[0], 1, known)
        place = np.array([known.index(g) if g in known else -1 for g in coded.groups])
        one = of_one(calibrator)

        def calibrated(part: Part) -> Floats:
            return one(dataclasses.replace(part, member=place[part.member]))

        return measured(f"on {files.name}", coded.recoded(files), coded, calibrated)


def measured(how: str, parts: Iterable[Part], coded: Coded, calibrated: Calibrated) -> Measured:
    """Sum up rows before and after."""
    tables: list[AuditTable] = []
    size = len(coded.groups)
    if coded.columns.cluster is not None:  # the rows of one cluster may be in several parts
        parts = [joined(list(parts))]
    # per group: number of units, sum and sum of squares of the differences of the log-loss
    moments, rows = np.zeros((3, 1 + size)), 0
    for part in parts:
        if not len(part):
            continue
        rows += len(part)
        after = calibrated(part)
        at = np.arange(len(part)), part.label
        prob = after if part.prob.ndim == 2 else after[:, 1]
        made = [
            AuditTable.from_arrays(
                part.label,
                p,
                sensitive_features=part.member,
                labels=range(len(coded.classes)),
                blocks=BLOCKS,
                clusters=part.cluster,
            )
            for p in (part.prob, prob)
        ]
        tables = made if not tables else [a + b for a, b in zip(tables, made, strict=True)]
        scores = scores_of(part.prob)
        base = np.exp(scores[at]) / np.exp(scores).sum(axis=1)
        moments += _moments(np.log(after[at]) - np.log(base), part, size)
    if not rows:
        raise ValueError("no row was held out to measure the repair on; use a larger share")
    gains = {
        key: _gain(*moments[:, i]) for i, key in enumerate([None, *coded.groups]) if moments[0, i]
    }
    before, later = map(coded.named, tables)
    return Measured(how, before, later, gains)


def _moments(difference: Floats, part: Part, size: int) -> Floats:
    """Return for all rows and each group: rows, sum, and sum of squares over units."""
    out = np.zeros((3, 1 + size))
    out[0, 1:] = np.bincount(part.member, minlength=size)
    out[1, 1:] = np.bincount(part.member, difference, size)
    out[:2, 0] = len(part), difference.sum()
    if part.cluster is None:
        out[2, 1:] = np.bincount(part.member, difference**2, size)
        out[2, 0] = out[2, 1:].sum()
        return out
    # totals of clusters, around the mean: their squares are those of units
    ids = np.unique(part.cluster, return_inverse=True)[1]
    for i, mine in enumerate([slice(None), *(part.member == g for g in range(size))]):
        mean = out[1, i] / max(out[0, i], 1.0)
        totals = np.bincount(ids[mine], difference[mine] - mean)
        out[2, i] = (totals**2).sum() + out[0, i] * mean**2
    return out


def _gain(rows: float, total: float, squares: float) -> Gain:
    mean = total / rows
    error = math.sqrt(max(squares - rows * mean**2, 0.0)) / rows
    return Gain(mean, mean - 1.96 * error, mean + 1.96 * error)
