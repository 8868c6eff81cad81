"""Paired changes and their intervals, and means without missing values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.search import mean_interval

Floats = NDArray[np.float64]


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
    figures = [float(v) for v in (before.mean(), after.mean(), change.mean())]
    return [*figures, mean_interval(change)]


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


def _columns(values: Floats) -> list[Floats]:
    return [column[~np.isnan(column)] for column in values.T]
