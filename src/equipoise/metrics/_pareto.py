"""The Pareto frontier of points, lower being better in both coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def pareto_mask(points: Any) -> Mask:
    """Return which points are on the frontier.

    A point is dominated if another is no worse in both coordinates and better in at least one, so
    equal points stay together. A point that is not finite is never on the frontier and dominates
    none.

    Parameters
    ----------
    points
        (point, 2); lower is better in both.

    Examples
    --------
    >>> pareto_mask([[1, 3], [2, 2], [2, 3], [2, 2], [3, 1]]).tolist()
    [True, True, False, True, True]
    """
    first, second = np.ascontiguousarray(_points(points).T)
    mask = np.zeros(len(first), dtype=bool)
    index = np.flatnonzero(np.isfinite(first) & np.isfinite(second))
    if not len(index):
        return mask
    index = index[np.argsort(first[index])]
    first, second = first[index], second[index]
    # runs of equal first coordinates: only the least of a run can be on the frontier, and it is
    # if it is below all runs before it
    new = np.concatenate([[True], first[1:] != first[:-1]])
    least = np.minimum.reduceat(second, np.flatnonzero(new))
    before = np.concatenate([[np.inf], np.minimum.accumulate(least)[:-1]])
    bound = np.where(least < before, least, -np.inf)
    mask[index] = second == bound[np.cumsum(new) - 1]
    return mask


def pareto_front(points: Any) -> Floats:
    """Return the distinct points of the frontier (m, 2), the first coordinate ascending.

    The second coordinate then descends.

    Examples
    --------
    >>> pareto_front([[3, 1], [2, 2], [2, 3], [2, 2]]).tolist()
    [[2.0, 2.0], [3.0, 1.0]]
    """
    array = _points(points)
    front = array[pareto_mask(array)]
    # on the frontier the first coordinate determines the second
    distinct: Floats = front[np.unique(front[:, 0], return_index=True)[1]]
    return distinct


def curve(points: Any, at: Any) -> Floats:
    """Return the second coordinate of the frontier, linearly interpolated.

    Parameters
    ----------
    points
        (point, 2); the frontier is found first.
    at
        First coordinates, of any shape. Outside the range of the frontier the result is nan.

    Examples
    --------
    >>> curve([[1, 3], [3, 1], [3, 3]], [0, 1, 2, 3, 4]).tolist()
    [nan, 3.0, 2.0, 1.0, nan]
    """
    where = np.asarray(at, dtype=np.float64)
    front = pareto_front(points)
    if not len(front):
        return np.full(where.shape, np.nan)
    return np.asarray(np.interp(where, front[:, 0], front[:, 1], left=np.nan, right=np.nan))


def hypervolume(points: Any, reference: Any) -> float:
    """Return the area that the points dominate, bounded by the reference point; more is better.

    Parameters
    ----------
    points
        (point, 2); those not better than the reference in both coordinates count nothing, nor do
        those that are not finite.
    reference
        Two finite numbers. Frontiers are comparable only with the same reference.

    Examples
    --------
    >>> hypervolume([[1, 2], [2, 1], [5, 0]], (3, 3))
    3.0
    """
    bound = np.asarray(reference, dtype=np.float64)
    if bound.shape != (2,) or not np.isfinite(bound).all():
        raise ValueError(
            f"reference must be two finite numbers, worse than the points, got {reference!r}"
        )
    array = _points(points)
    front = pareto_front(array[(array[:, 0] < bound[0]) & (array[:, 1] < bound[1])])
    width = np.diff(front[:, 0], append=bound[0])
    return float(np.sum(width * (bound[1] - front[:, 1])))


def frontier_frequency(points: Any, *, n_bootstrap: int = 1000, seed: int = 0) -> Floats:
    """Return how often each point is on the frontier of a bootstrap sample of the replicates.

    Each point is averaged over the replicates of the sample. A point that is not finite in one of
    them is not on the frontier of that sample.

    Parameters
    ----------
    points
        (replicate, point, 2): the same points measured with several seeds or splits.
    n_bootstrap
        Number of bootstrap samples.
    seed
        Seed of the samples.

    Returns
    -------
    Frequencies (point,), between 0 and 1.

    Notes
    -----
    Points that are equal in every replicate have equal frequencies. Averages that are equal by
    chance may still differ by rounding.

    Examples
    --------
    The second point is on the frontier unless the first replicate alone is drawn, which has
    probability 1/4.

    >>> frequency = frontier_frequency([[[1, 1], [2, 2]], [[1, 1], [2, -2]]])
    >>> float(frequency[0]), bool(abs(frequency[1] - 0.75) < 0.05)
    (1.0, True)
    """
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 3 or not len(array) or array.shape[2] != 2:
        raise ValueError(
            f"points must be (replicate, point, 2) with at least one replicate, "
            f"got shape {array.shape}"
        )
    whole = isinstance(n_bootstrap, int | np.integer) and not isinstance(n_bootstrap, bool)
    if not whole or n_bootstrap < 1:
        raise ValueError(f"n_bootstrap must be a positive integer, got {n_bootstrap!r}")
    n = len(array)
    drawn = np.random.default_rng(seed).integers(0, n, (n_bootstrap, n))
    cell = drawn + n * np.arange(n_bootstrap)[:, None]
    count = np.bincount(cell.ravel(), minlength=n_bootstrap * n).reshape(n_bootstrap, n)
    on = np.zeros(array.shape[1])
    # few replicates have few distinct samples
    for row, times in zip(*np.unique(count, axis=0, return_counts=True), strict=True):
        taken = np.flatnonzero(row)
        # not a product of matrices, which may round equal points differently;
        # inf - inf is nan, and neither is on the frontier
        with np.errstate(invalid="ignore"):
            mean = np.average(array[taken], axis=0, weights=row[taken])
        on += times * pareto_mask(mean)
    return on / n_bootstrap


def _points(points: Any) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    if array.shape == (0,):
        return array.reshape(0, 2)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"points must be (point, 2), got shape {array.shape}")
    return array
