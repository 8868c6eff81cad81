"""The interval of a mean over splits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the 95% interval of a mean by Student's t; None of fewer than two finite values.

    Examples
    --------
    >>> [round(v, 3) for v in mean_interval(np.array([1.0, 2.0, 3.0]))]
    [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    if len(values) < 2 or not np.isfinite(values).all():
        return None
    half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)
