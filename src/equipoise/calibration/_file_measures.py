"""A repair measured on rows that it was not fitted to: before and after, in pairs."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from equipoise._files import Reader, reader
from equipoise._inputs import InputError, shown
from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._file_gathered import FOLDS, Gathered
from equipoise.calibration._file_rows import Coded, Part, joined
from equipoise.calibration._group_calibrator import GroupCalibrator, fit_method
from equipoise.calibration._methods import METHODS
from equipoise.calibration._rows import Rows
from equipoise.calibration._scores import SMALLEST, scores_of, softmax
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
        there, outside = (some.counts().sum(axis=0) > 0 for some in (rows, others))
        needed = outside.sum() < 2 if _any_two(method) else (there & ~outside).any()
        if needed:
            short = coded.classes[int(np.argmax(there & ~outside))]
            raise InputError(
                f"label {shown(short)!r} has too few rows to measure the repair out of fold",
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


def _any_two(method: str) -> bool:
    """Return whether a method does with rows of any two classes."""
    return method == "auto" or not METHODS[method].every_class


def on_file(data: Any, coded: Coded, calibrator: GroupCalibrator) -> Measured:
    """Measure calibrators on the rows of another file."""
    with reader(data) as files:
        files.check(*coded.columns.names)
        counts = np.zeros(0, np.int64)
        for part in (some for some in coded.parts(files) if len(some)):
            counts = np.pad(counts, (0, max(0, int(part.member.max()) + 1 - len(counts))))
            counts += np.bincount(part.member, minlength=len(counts))
        known = coded.extend()
        if len(coded.groups) > known and calibrator.unseen_group == "error":
            raise UnseenGroupError.of(coded.groups[known], int(counts[known]), coded.groups[:known])
        one = of_one(calibrator)

        def calibrated(part: Part) -> Floats:
            place = np.where(part.member < known, part.member, -1)
            return one(dataclasses.replace(part, member=place))

        return measured(f"on {files.name}", coded.recoded(files), coded, calibrated)


def measured(how: str, parts: Iterable[Part], coded: Coded, calibrated: Calibrated) -> Measured:
    """Sum up rows before and after."""
    tables: list[AuditTable] = []
    size = len(coded.groups)
    if coded.columns.cluster is not None:  # the rows of one cluster may be in several parts
        parts = [joined(list(parts))]
    # per group: rows, sum and sum of squares of the differences of the log-loss, and units
    moments, rows = np.zeros((4, 1 + size)), 0
    for part in parts:
        if not len(part):
            continue
        rows += len(part)
        after = calibrated(part)
        at = np.arange(len(part)), part.label
        given = _as_scored(part.prob)
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
            for p in (given, prob)
        ]
        tables = made if not tables else [a + b for a, b in zip(tables, made, strict=True)]
        scores = scores_of(part.prob)
        base = np.exp(scores[at]) / np.exp(scores).sum(axis=1)
        change = np.log(np.maximum(after[at], 1e-300)) - np.log(base)
        change[np.abs(change) < 1e-12] = 0.0  # rounding
        moments += _moments(change, part, size)
    if not rows:
        raise ValueError("no row was held out to measure the repair on; use a larger share")
    gains = {
        key: _gain(*moments[:, i]) for i, key in enumerate([None, *coded.groups]) if moments[0, i]
    }
    before, later = map(coded.named, tables)
    return Measured(how, before, later, gains)


def _as_scored(prob: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities as calibrators see them: an exact 0 counts as 1e-6."""
    scores = scores_of(prob)
    clipped = (scores <= math.log(SMALLEST)).any(axis=1)
    if not clipped.any():
        return prob
    seen, out = softmax(scores[clipped]), prob.astype(np.float64)
    out[clipped] = seen if prob.ndim == 2 else seen[:, 1]
    return out


def _moments(difference: Floats, part: Part, size: int) -> Floats:
    """Return for all rows and each group: rows, sum, sum of squares over units, and units."""
    out = np.zeros((4, 1 + size))
    out[0, 1:] = np.bincount(part.member, minlength=size)
    out[1, 1:] = np.bincount(part.member, difference, size)
    out[:2, 0] = len(part), difference.sum()
    if part.cluster is None:
        out[2, 1:] = np.bincount(part.member, difference**2, size)
        out[2, 0] = out[2, 1:].sum()
        out[3] = out[0]
        return out
    # totals of clusters, around the mean: their squares are those of units
    ids = np.unique(part.cluster, return_inverse=True)[1]
    for i, mine in enumerate([slice(None), *(part.member == g for g in range(size))]):
        mean = out[1, i] / max(out[0, i], 1.0)
        totals = np.bincount(ids[mine], difference[mine] - mean)
        out[2, i] = (totals**2).sum() + out[0, i] * mean**2
        out[3, i] = len(np.unique(ids[mine]))
    return out


def _gain(rows: float, total: float, squares: float, units: float) -> Gain:
    """Return the mean with Student's interval; it is infinite for a single unit."""
    mean = float(total / rows)
    if units < 2:
        return Gain(mean, -math.inf, math.inf)
    spread = max(squares - rows * mean**2, 0.0) * units / (units - 1.0)
    error = float(stdtrit(units - 1.0, 0.975)) * math.sqrt(spread) / rows
    return Gain(mean, mean - error, mean + error)
