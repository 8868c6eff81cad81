"""`method="auto"`: the method with the least out-of-fold log-loss, and by how much."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._folds import Fold
from equipoise.calibration._methods import METHODS
from equipoise.calibration._mixing import (
    best_strength,
    every_class,
    inner_folds,
    label_losses,
    mixed_losses,
    standard_error,
    thinned,
)
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._rows import Rows

Floats = NDArray[np.float64]

CANDIDATES = ("none", "common", "temperature", "bcts", "beta", "isotonic")
"""What "auto" chooses among, the simplest first."""

LEAST = {"bcts": 5, "beta": 30, "isotonic": 30}
"""Rows of every class below which a method is not compared: out-of-fold rows that are too few to
contain a confident error say nothing of what it would cost."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """The method that was chosen, and the out-of-fold log-loss of each.

    Attributes
    ----------
    method
        The chosen method: the simplest whose log-loss is within one standard error of the least,
        if that is clearly less than without repair.
    log_loss
        Dict from method to its out-of-fold log-loss; `none` is the model as it is. A method that
        needs more rows than there are is absent.
    gain
        Log-loss without repair minus that of the chosen method, or of the best one where "none" is
        chosen.
    low, high
        95% interval of the gain, from the paired differences of the rows.
    sample
        Number of rows compared, where these are a sample of all; else 0.
    """

    method: str
    log_loss: dict[str, float]
    gain: float
    low: float
    high: float
    sample: int = 0

    @property
    def text(self) -> str:
        """The choice in words."""
        before = self.log_loss["none"]
        rest = {name: loss for name, loss in self.log_loss.items() if name != "none"}
        best = min(rest, key=rest.__getitem__)
        if self.method == "none" and self.gain <= 0.0:
            return (
                "Nothing to repair: no method lowers the out-of-fold log-loss, "
                f"{_shown(before, 4)}."
            )
        digits = 4
        while digits < 8 and 0.0 < min(abs(self.low), self.gain) < 0.5 * 10.0**-digits:
            digits += 1  # a bound that is not 0 is not shown as 0
        gain, low, high = (_shown(value, digits) for value in (self.gain, self.low, self.high))
        chance = ", which may be chance" if self.low <= 0.0 else ""
        if self.method == "none":
            chance = chance or ", but one further row that is wrong could outweigh that"
            return (
                f"Nothing to repair: {METHODS[best].text} lowers the out-of-fold log-loss by "
                f"{gain} ({low} to {high}){chance}."
            )
        where = f" on a sample of {self.sample:,} rows" if self.sample else ""
        text = (
            f"Chosen{where}: {METHODS[self.method].text}. The out-of-fold log-loss falls from "
            f"{_shown(before, digits)} to {_shown(self.log_loss[self.method], digits)}, by {gain} "
            f"({low} to {high}){chance}."
        )
        if rest[best] < rest[self.method]:
            text += f" With {METHODS[best].text} it is {_shown(rest[best], digits)}, no clear gain."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as plain numbers and strings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Selection:
        """Undo `to_dict`; raise for anything else."""
        losses = {str(name): float(loss) for name, loss in data["log_loss"].items()}
        gain, low, high = (float(data[key]) for key in ("gain", "low", "high"))
        if not np.isfinite([*losses.values(), gain, low, high]).all():
            raise ValueError("a log-loss of its selection is not finite")
        if not {data["method"], "none"} <= set(losses) <= set(METHODS):
            raise ValueError(f"{data['method']!r} is not among the methods compared")
        return cls(data["method"], losses, gain, low, high, int(data["sample"]))


def select(rows: Rows, shrinkage: Shrinkage, clusters: NDArray[Any] | None = None) -> Selection:
    """Choose a method for the rows: the simplest within one standard error of the best.

    In simulated worlds this gave less held-out log-loss than the best method, however little it
    gained, or the best by two standard errors.
    """
    every = len(rows)
    rows, clusters = thinned(rows, clusters)
    sample = len(rows) if len(rows) < every else 0
    folds = inner_folds(rows, clusters)
    if not folds:
        raise ValueError(
            "method='auto' compares methods on folds, which need at least two rows, and two "
            "clusters where there are any; name a method, such as 'bcts'"
        )
    names = _candidates(rows, folds)
    found = {name: _losses(rows, name, shrinkage, folds, clusters) for name in names}
    weight = rows.even_weight()
    total = weight.sum()
    mean, average = (
        {name: float(weight @ both[i] / total) for name, both in found.items()} for i in (0, 1)
    )

    def gain(name: str, other: str) -> tuple[float, float]:
        """Return how much smaller the loss of a method is than another's, and its error."""
        difference = found[other][0] - found[name][0]
        error = standard_error(difference, rows, weight, clusters) / total
        return mean[other] - mean[name], error

    def helps(name: str) -> bool:
        """Say whether a method lowers the loss, also with one more row of a random label."""
        value, error = gain(name, "none")
        return value > error and value * total > average[name] - average["none"]

    repairs = sorted(names[1:], key=mean.__getitem__)
    best = next((name for name in repairs if helps(name)), None)
    method = "none"
    if best is not None:  # itself, or a simpler one that is not clearly worse
        behind = {name: gain(best, name) for name in names[1:]}
        method = next(n for n, (value, error) in behind.items() if value <= error and helps(n))
    value, error = gain(repairs[0] if best is None else method, "none")
    return Selection(method, mean, value, value - 1.96 * error, value + 1.96 * error, sample)


def _candidates(rows: Rows, folds: list[Fold]) -> list[str]:
    """Return the methods that there are enough rows for."""
    of_class = rows.counts().sum(axis=0)
    whole = every_class(rows, folds)
    return [
        name
        for name in CANDIDATES
        if (whole or not METHODS[name].every_class)
        and of_class.min() >= LEAST.get(name, 0)
        and of_class.sum() >= METHODS[name].least_rows
    ]


def _losses(
    rows: Rows,
    method: str,
    shrinkage: Shrinkage,
    folds: list[Fold],
    clusters: NDArray[Any] | None,
) -> tuple[Floats, Floats]:
    """Return -log p of each row, out of fold, of its label and on average of all labels."""
    chosen = METHODS[method]
    if chosen.fit is not None and shrinkage == "auto":
        lacking = (rows.counts() == 0).any(axis=1) | (rows.counts().sum(axis=1) < chosen.least_rows)
        lacking = lacking[: len(rows.groups)]
        losses, averages = mixed_losses(rows, method, lacking, folds)
        best = best_strength(losses, rows, clusters)
        return losses[best], averages[best]
    losses, averages = np.zeros((2, len(rows)))
    for train, test in folds:
        fitted = CalibratorSet.fit(rows.take(train), method, shrinkage, warn=False)
        held = rows.take(test)
        slots = np.full(len(test), -1) if held.members is None else held.members
        prob = fitted.apply(held.scores, slots)
        losses[test], averages[test] = label_losses(prob, held.codes)
    return losses, averages


def _shown(value: float, digits: int) -> str:
    """Return a number with so many digits after the point, and no sign before a zero."""
    text = f"{value:.{digits}f}"
    return text if float(text) else text.removeprefix("-")
