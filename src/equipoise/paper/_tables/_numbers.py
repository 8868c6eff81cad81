"""Paired changes and their intervals, and means without missing values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.search import mean_interval

Floats = NDArray[np.float64]


RATIO = 1 / 6
"""Test rows over training rows, in splits of 6:1:1."""


def values_of(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    """Return one value of each row; nan where there is no row."""
    return np.array([row[name] if row else np.nan for row in rows], np.float64)


def percent(before: float, after: float) -> float:
    """Return the improvement in percent of what was before; nan where that is 0 or inf."""
    before, after = float(before), float(after)
    return 100.0 * (before - after) / before if 0.0 < before < math.inf else math.nan


def paired(before: Floats, after: Floats) -> list[Any]:
    """Return both means, the improvement in percent of the first, and its interval."""
    before, after = both(before, after)
    if not len(before):
        return [None] * 4
    change = relative(before, after)
    mean = float(change.mean())
    figures = [float(before.mean()), float(after.mean()), mean if math.isfinite(mean) else math.nan]
    return [*figures, split_interval(change)]


def split_interval(values: Floats) -> tuple[float, float] | None:
    """Return Nadeau and Bengio's 95% interval of a mean over splits; None of fewer than two."""
    return mean_interval(values, RATIO)


def split_p(values: Floats) -> float | None:
    """Return the two-sided p-value of a mean of 0 that belongs to `split_interval`.

    Examples
    --------
    >>> round(split_p(np.array([1.0, 2.0, 3.0])), 3)
    0.106
    """
    from scipy.special import stdtr

    n = len(values)
    if n < 2 or not np.isfinite(values).all():
        return None
    mean, error = abs(values.mean()), values.std(ddof=1) * math.sqrt(1.0 / n + RATIO)
    return float(2.0 * stdtr(n - 1, -mean / error)) if error > 0.0 else float(mean == 0.0)


def both(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the pairs without missing values."""
    there = ~(np.isnan(before) | np.isnan(after))
    return before[there], after[there]


def relative(before: Floats, after: Floats) -> Floats:
    """Return paired improvements in percent of the mean before; pairs with a gap are left out.

    All are nan where that mean is 0 or inf.
    """
    before, after = both(before, after)
    mean = float(before.mean()) if len(before) else math.nan
    if not 0.0 < mean < math.inf:
        return np.full(len(before), np.nan)
    return np.asarray(100.0 * (before - after) / mean)


def means(values: Floats) -> list[float]:
    """Return the means of columns, without what is not a number."""
    return [float(np.mean(c)) if len(c) else np.nan for c in _columns(values)]


def medians(values: Floats) -> list[float]:
    """Return the medians of columns, without what is not a number."""
    return [float(np.median(c)) if len(c) else np.nan for c in _columns(values)]


def mean_ratio(changes: Floats) -> float:
    """Return after over before, the geometric mean, of changes in percent; nan of none.

    Examples
    --------
    >>> mean_ratio(np.array([-100.0, 50.0, -700.0]))  # 2, 1/2 and 8
    2.0
    """
    there = changes[~np.isnan(changes)]
    if not len(there):
        return math.nan
    with np.errstate(divide="ignore"):
        return float(np.exp(np.log(1.0 - there / 100.0).mean()))


def _columns(values: Floats) -> list[Floats]:
    return [column[~np.isnan(column)] for column in values.T]
