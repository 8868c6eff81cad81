"""Signed gaps between outcomes and probabilities by bin, and their sampling variances."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._distributions import ndtr
from equipoise.auditing._intervals._moments import Moments
from equipoise.metrics import AuditTable, ratio

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Gaps of the predicted label and of every class: views (group, view), the first the top label.

    `gap` are the signed gaps (group, view, bin) as shares of all rows. `variance` are their
    sampling variances, at least those of a calibrated model: thirty rows of confidence .9 that are
    all right show none. `mean` is the sum of a view's gaps, the mean of outcome minus probability.
    """

    table: AuditTable
    moments: Moments
    gap: Floats
    variance: Floats
    mean: Floats
    mean_variance: Floats
    design: Floats  # variance with clusters over that of independent rows, at least 1


def from_cells(table: AuditTable) -> Spread:
    """Return the spread that follows from the table alone."""
    table = table.as_weighted()  # the same sums in one form
    moments = Moments.of(table)
    weight, cells = table["weight"][:, None, None], _Cells.of(table)
    gap = ratio(cells.correct - cells.sure, weight)
    n2 = table["bin_count2"].sum(-1)[:, None, None]
    square = cells.gap2 - 2.0 * gap * cells.gap1 + gap**2 * n2
    null = cells.count2 * cells.certain_variance()
    least = np.maximum(null, cells.count2 * cells.own_variance())
    variance = np.nan_to_num(ratio(np.maximum(square, least), weight**2))

    mean = gap.sum(-1)
    by_unit = np.concatenate([moments.variance("top")[:, None], moments.gap_variance()], axis=1)
    design = np.ones(len(table.groups))
    if table.clustered:
        by_row = cells.gap2.sum(-1) - 2.0 * mean * cells.gap1.sum(-1) + mean**2 * n2[..., 0]
        by_row = ratio(by_row, weight[..., 0] ** 2)
        design = np.maximum(np.nan_to_num(ratio(by_unit, by_row), posinf=1.0).max(-1), 1.0)
    null = np.nan_to_num(ratio(null, weight**2)).sum(-1) * design[:, None]
    return Spread(
        table=table,
        moments=moments,
        gap=gap,
        variance=variance * design[:, None, None],
        mean=mean,
        mean_variance=np.maximum(np.maximum(by_unit, null), _least(moments.rows)[:, None]),
        design=design,
    )


def _least(rows: Floats) -> Floats:
    """Return the variance of a mean of rows that are all alike: one more may be half different."""
    odd = 0.5 / (rows + 1.0)
    return np.nan_to_num(ratio(odd * (1.0 - odd), rows))


@dataclasses.dataclass(frozen=True)
class _Cells:
    """Sums of each bin of each view (group, view, bin)."""

    count: Floats
    correct: Floats
    sure: Floats
    count2: Floats
    gap1: Floats
    gap2: Floats

    @classmethod
    def of(cls, table: AuditTable) -> _Cells:
        names = ("count", "correct", "{}", "count2", "gap1", "gap2")
        top = (table[f"bin_{name}".format("confidence")] for name in names)
        own = (table[f"class_{name}".format("probability")] for name in names)
        return cls(
            *(np.concatenate([t[:, None], o], axis=1) for t, o in zip(top, own, strict=True))
        )

    def certain_variance(self) -> Floats:
        """Return the variance of the outcome of a row whose probability is right."""
        sure = np.clip(ratio(self.sure, self.count), 0.0, 1.0)
        return np.nan_to_num(sure * (1.0 - sure))

    def own_variance(self) -> Floats:
        """Return the variance of an outcome of a bin, which counts one more row, half right."""
        rows = np.nan_to_num(ratio(self.count**2, self.count2))
        hit = np.nan_to_num(ratio(self.correct, self.count)) * rows
        often = (hit + 0.5) / (rows + 1.0)
        return np.where(self.count > 0, often * (1.0 - often), 0.0)


def clear_sign(gap: Floats, variance: Floats) -> Floats:
    """Return the sign of each gap, shrunk to 0 where it is unclear."""
    z = ratio(np.abs(gap), np.sqrt(variance))
    return np.asarray(np.sign(gap) * (2 * ndtr(np.nan_to_num(z, posinf=9.0)) - 1))
