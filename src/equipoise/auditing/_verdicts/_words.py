"""P-values: their text, and their correction for multiple testing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def p_text(p: float) -> str:
    """Return a p-value for a sentence."""
    if p < 1e-4:
        return "p < 0.0001"
    return f"p = {p:.1g}" if p < 1e-3 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def holm(p: Floats) -> Floats:
    """Return Holm-adjusted p-values: the family-wise error is at most alpha."""
    order = np.argsort(p, kind="stable")
    factor = np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factor * p[order]))
    return corrected
