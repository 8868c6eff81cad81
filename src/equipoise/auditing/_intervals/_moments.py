"""Second moments of the units of a table: rows, or clusters of rows that belong together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._distributions import stdtrit
from equipoise.metrics import AuditTable, ratio

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Moments:
    """Sums over the units of each group: a unit has the weight N and the total X of a feature.

    `mean` is the feature's mean, `square` the sum of X^2 and `weighted` that of X N; `label` is
    the sum of X times the unit's number of labels. Shares of classes are (group, class), the others
    (group,).
    """

    weight: Floats
    n2: Floats  # sum of N^2
    n4: Floats  # sum of N^4
    mean: Mapping[str, Floats]
    square: Mapping[str, Floats]
    weighted: Mapping[str, Floats]
    label: Mapping[str, Floats]
    quantiles: dict[float, Floats] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: AuditTable) -> Moments:
        """Read the moments of a table that has them."""
        weight, k = table["weight"], (slice(None), None)
        half = 2.0 if len(table.labels) == 2 else 1.0
        total = {
            "hit": table["hits"].sum(-1),
            "top": (table["bin_correct"] - table["bin_confidence"]).sum(-1),
            "brier": table["squared_error"].sum(-1),
            "loss": table["log_loss"],
            "label": table["labels"],
            "prob": table["probability"],
            "pred": table["predictions"],
        }
        n2, n4 = table["unit_n2"], table["unit_n4"]
        square = {name: table[f"unit_{name}2"] for name in total}
        weighted = {name: table[f"unit_{name}_n"] for name in total}
        label = {name: table[f"unit_{name}_label"] for name in ("prob", "pred")}
        label["label"] = square["label"]
        # of two classes, the Brier score is the mean of (p - y)**2
        scale = {"brier": half}
        return cls(
            weight,
            n2,
            n4,
            {
                name: ratio(v, (weight[k] if v.ndim > 1 else weight) * scale.get(name, 1.0))
                for name, v in total.items()
            },
            {name: v / scale.get(name, 1.0) ** 2 for name, v in square.items()},
            {name: v / scale.get(name, 1.0) for name, v in weighted.items()},
            label,
        )

    @property
    def rows(self) -> Floats:
        """Effective number of units (Kish): as many of equal weight have the same variance."""
        return ratio(self.weight**2, self.n2)

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom of a variance: few where few units have most of the weight."""
        return np.maximum(np.nan_to_num(ratio(self.n2**2, self.n4)) - 1.0, 1.0)

    def student(self, tail: float) -> Floats:
        """Return Student's quantile of each group with this chance beyond it."""
        if tail not in self.quantiles:  # the same few are asked for many times
            found = -stdtrit(np.minimum(self.freedom, 1e9), tail)
            self.quantiles[tail] = np.minimum(found, 1e9)
        return self.quantiles[tail]

    def _like(self, values: Floats, shape: Floats) -> Floats:
        return values[:, None] if shape.ndim > 1 else values

    def variance(self, name: str) -> Floats:
        """Return the variance of a feature's mean: the sum of (X - mean N)^2, over weight^2."""
        m = self.mean[name]
        n2, weight = self._like(self.n2, m), self._like(self.weight, m)
        square = self.square[name] - 2.0 * m * self.weighted[name] + m**2 * n2
        return np.maximum(ratio(square, weight**2), 0.0)

    def covariance(self, name: str) -> Floats:
        """Return the covariance of a share's mean and that of the labels."""
        m, r = self.mean[name], self.mean["label"]
        cross = self.label[name] - m * self.weighted["label"] - r * self.weighted[name]
        return ratio(cross + m * r * self.n2[:, None], self.weight[:, None] ** 2)

    def gap_variance(self) -> Floats:
        """Return the variance of the mean of 1[y = k] - p_k."""
        both = self.variance("label") + self.variance("prob") - 2.0 * self.covariance("prob")
        return np.maximum(both, 0.0)
