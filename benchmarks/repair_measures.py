"""Measures of `repair.py`, and paired comparisons of them.

Every measure is a function of sums over rows, so that rows can be left out again (`left_out`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MEASURES = ("log_loss", "brier", "worst_ece", "amplification")
"""What is measured on the test rows; less is better."""

TEST_SHARE = 0.25
"""Share of the rows of a random split that are tested on."""

BINS = 15
LEAST = 100
"""Test rows that a group needs to be measured on its own; the two largest always are."""
CLIP = 1e-6
"""Probabilities are kept this far from 0 and 1, since isotonic regression gives exactly these."""


# --- sums and measures -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sums:
    """Sums over rows, with an axis of blocks of rows before all others.

    `loss` is (block,). The others are (block, group, bin): rows, positives, sums of the probability
    of the second class, and of its squared difference from the label.
    """

    loss: Floats
    rows: Floats
    positives: Floats
    mass: Floats
    square: Floats

    @classmethod
    def of(cls, y: Ints, p: Floats, group: Ints, block: Ints | None = None) -> Sums:
        """Add up the rows of each block; of one without `block`."""
        p = np.clip(np.asarray(p, np.float64), CLIP, 1.0 - CLIP)
        block = np.zeros(len(y), np.int64) if block is None else block
        shape = (int(block.max()) + 1, int(group.max()) + 1, BINS)
        # bins are (low, high]
        bins = np.searchsorted(np.arange(1, BINS) / BINS, p, side="left")
        place = np.ravel_multi_index((block, group, bins), shape)

        def per_bin(values: Floats) -> Floats:
            return np.bincount(place, values, math.prod(shape)).reshape(shape)

        return cls(
            np.bincount(block, -np.log(np.where(y == 1, p, 1.0 - p)), shape[0]),
            per_bin(np.ones(len(y))),
            per_bin(y.astype(np.float64)),
            per_bin(p),
            per_bin((p - y) ** 2),
        )

    def each(self) -> list[Floats]:
        """Return the arrays."""
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def total(self) -> Sums:
        """Return the sums over all blocks."""
        return Sums(*(array.sum(axis=0, keepdims=True) for array in self.each()))

    def left_out(self) -> Sums:
        """Return the sums over all blocks but one, for each."""
        return Sums(*(array.sum(axis=0) - array for array in self.each()))


def measures(sums: Sums, like: Sums | None = None) -> dict[str, Floats]:
    """Return each measure, (block,).

    `like` decides which groups are measured, the largest being the reference; by default `sums`
    summed over blocks.
    """
    size = (like or sums.total()).rows.sum(axis=(0, 2))
    order = np.argsort(-size, kind="stable")
    groups = [int(g) for place, g in enumerate(order) if place < 2 or size[g] >= LEAST]
    n = sums.rows.sum(axis=(1, 2))
    return {
        "log_loss": sums.loss / n,
        "brier": sums.square.sum(axis=(1, 2)) / n,
        "worst_ece": _group_ece(sums)[:, groups].max(axis=1),
        "amplification": _amplification(sums, groups),
    }


def _group_ece(sums: Sums) -> Floats:
    """Return the debiased class-wise ECE of each group: the root of its square's positive part.

    Of two classes, both have the same. The square of a bin's gap is the mean product of two
    different rows' gaps, as in `debiased_squared_calibration_error`; a bin of one row has none.
    """
    pairs = sums.rows * (sums.rows - 1.0)
    products = (sums.mass - sums.positives) ** 2 - sums.square
    square = np.divide(products, pairs, out=np.zeros_like(pairs), where=pairs > 0.0)
    total = np.maximum(sums.rows.sum(axis=2), 1.0)
    return np.sqrt(np.maximum((sums.rows * square).sum(axis=2), 0.0) / total)


def _amplification(sums: Sums, groups: list[int]) -> Floats:
    """Return the mean of |log amplification| over groups and classes, against the first group."""
    rows, positives, mass = (a.sum(axis=2) for a in (sums.rows, sums.positives, sums.mass))
    reference, *others = groups
    found = []
    for group in others:
        for labels, model in ((positives, mass), (rows - positives, rows - mass)):
            pair, own = labels[:, [group, reference]], model[:, [group, reference]]
            if (pair > 0.0).all():
                # log(q_g / q_ref) - log(r_g / r_ref): the numbers of rows cancel out
                found.append(np.abs(np.log(own / pair) @ [1.0, -1.0]))
    return np.mean(found, axis=0) if found else np.full(len(rows), np.nan)


# --- comparisons -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Difference:
    """A paired difference with its 95% interval."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0.0 or self.high < 0.0


def over_splits(differences: Sequence[float], test_share: float) -> Difference:
    """Return the mean over splits, with the interval of Nadeau and Bengio [1]_.

    Splits share rows, so the variance of the mean is (1 / J + test rows / training rows) times that
    of a difference.

    References
    ----------
    .. [1] Nadeau and Bengio, Inference for the generalization error, Machine Learning 2003.
    """
    values = np.asarray(differences, np.float64)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return Difference(mean, -math.inf, math.inf)
    variance = float(values.var(ddof=1)) * (1.0 / n + test_share / (1.0 - test_share))
    reach = float(student.ppf(0.975, n - 1)) * math.sqrt(variance)
    return Difference(mean, mean - reach, mean + reach)


def over_blocks(difference: float, left_out: Sequence[float]) -> Difference:
    """Return a difference on one test set, with the jackknife interval over blocks of its rows."""
    values = np.asarray(left_out, np.float64)
    n = len(values)
    reach = 1.96 * math.sqrt((n - 1) / n * float(((values - values.mean()) ** 2).sum()))
    return Difference(difference, difference - reach, difference + reach)
