"""Rows that calibrators are fitted to."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows to fit to: scores (n, K), classes 0..K-1, and places among the groups.

    `repeats` is the number of rows that a row stands for, where equal rows were merged; such rows
    have a `fold`, so that the merged rows of one place are not all in one.
    """

    scores: NDArray[Any]
    codes: Codes
    members: Codes | None
    groups: Sequence[Hashable]
    classes: Sequence[Any]
    weight: Floats | None = None
    repeats: Floats | None = None
    fold: Codes | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Rows:
        """Return some of the rows."""
        arrays = ("scores", "codes", "members", "weight", "repeats", "fold")
        given = {name: getattr(self, name) for name in arrays}
        return dataclasses.replace(
            self, **{name: v[rows] for name, v in given.items() if v is not None}
        )

    def even_weight(self) -> Floats:
        """Return weights that add up to the effective number of rows."""
        if self.weight is None:
            return np.ones(len(self))
        square = self.weight**2 if self.repeats is None else self.weight**2 / self.repeats
        return np.asarray(self.weight * (self.weight.sum() / square.sum()))

    def counts(self) -> Floats:
        """Return the number of rows of each group and class; of one group without groups."""
        size, n_groups = len(self.classes), max(1, len(self.groups))
        each = np.ones(len(self)) if self.repeats is None else self.repeats
        if self.weight is not None:
            each = np.where(self.weight > 0.0, each, 0.0)
        cells = self.codes if self.members is None else self.members * size + self.codes
        counts = np.bincount(cells.astype(np.int64), each, n_groups * size)
        return np.asarray(counts.reshape(n_groups, size))
