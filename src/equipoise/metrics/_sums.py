"""The sums behind the audit table: what they are, and adding up slices of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics._units import PRODUCTS, Array, axes_of, features, products

UNIT = 2**32
"""The number 1 in fixed point."""

CELLS = 1 << 16
"""Probabilities in a slice, so that it stays in the processor's cache with its scratch space."""

ROWS = 1 << 14
"""Most rows in a slice: arrays over 128 kB would be allocated from fresh pages every time."""

FLUSH = 64
"""Slices summed in int64 before they go to Python integers: 64 * ROWS * 745 * 2**32 < 2**63.

745 is the largest -log p of a float64; its square has the unit 2**16.
"""


@dataclasses.dataclass(frozen=True)
class Sum:
    """One of the table's sums: its axes after the group, its block, its unit in fixed point."""

    axes: str
    block: str
    unit: int = 1
    signed: bool = False  # whether it may be negative


SUMS: Mapping[str, Sum] = {
    "rows": Sum("", "rows"),  # number of rows, never weighted
    "weight": Sum("", "rows"),  # weight of those rows
    "labels": Sum("k", "labels"),  # 1[y = k]
    "probability": Sum("k", "rates", UNIT),  # p_k
    "predictions": Sum("k", "decisions"),  # 1[prediction = k]
    "hits": Sum("k", "hits"),  # 1[prediction = y = k]
    "bin_count": Sum("b", "bins"),  # 1[confidence in b]
    "bin_correct": Sum("b", "bins"),  # 1[argmax = y]
    "bin_confidence": Sum("b", "bins", UNIT),  # max_k p_k
    "bin_count2": Sum("b", "spread"),  # weight**2
    "bin_gap2": Sum("b", "spread", UNIT),  # (weight * (correct - confidence))**2
    "class_gap2": Sum("kb", "spread", UNIT),  # (weight * (1[y = k] - p_k))**2
    "class_count": Sum("kb", "classwise"),  # 1[p_k in b]
    "class_correct": Sum("kb", "classwise"),  # 1[y = k]
    "class_probability": Sum("kb", "classwise", UNIT),  # p_k
    "squared_error": Sum("k", "scores", UNIT),  # (p_k - 1[y = k])**2
    "log_loss": Sum("", "scores", UNIT),  # -log p_y where p_y > 0
    "impossible": Sum("", "scores"),  # 1[p_y = 0]
    "own_probability": Sum("k", "moments", UNIT),  # p_k where y = k
    "brier2": Sum("", "moments", UNIT),  # (weight * sum_k (p_k - 1[y = k])**2)**2
    "log_loss2": Sum("", "moments", 2**16),  # (weight * log p_y)**2 where p_y > 0
    "bin_gap1": Sum("b", "weights", signed=True),  # weight**2 * (correct - confidence)
    "class_count2": Sum("kb", "weights"),  # weight**2
    "class_gap1": Sum("kb", "weights", signed=True),  # weight**2 * (1[y = k] - p_k)
    # second moments over rows or clusters, see `_units`
    **{n: Sum(axes_of(n), "units", signed=n == "unit_top_n") for n in PRODUCTS},
}

BLOCKS = frozenset(s.block for s in SUMS.values()) - {"weights", "units"}
"""The blocks that can be asked for; "weights" and "units" come with them where they apply."""

UNLABELLED = frozenset({"rows", "rates", "decisions"})


def chosen_blocks(
    blocks: Iterable[str], *, weighted: bool = False, clustered: bool = False
) -> frozenset[str]:
    """Return the blocks to fill: those asked for, those they need, and those that come with them.

    A weighted table with "spread" has "weights"; a weighted or clustered one with all, "units".
    """
    chosen = frozenset(blocks)
    if isinstance(blocks, str) or not chosen <= BLOCKS:
        raise ValueError(f"blocks must be some of {sorted(BLOCKS)}, got {blocks!r}")
    chosen |= {"rows"} | ({"bins", "classwise"} if "spread" in chosen else set())
    extra = {"weights"} if weighted and "spread" in chosen else set()
    return chosen | extra | ({"units"} if (weighted or clustered) and chosen == BLOCKS else set())


def zeros(name: str, shape: tuple[int, ...], *, weighted: bool) -> Array:
    """Return an empty sum."""
    # object arrays of Python integers: 10**12 rows in fixed point pass 2**63
    exact = (not weighted and SUMS[name].block != "units") or name == "rows"
    return np.full(shape, 0, dtype=object) if exact else np.zeros(shape)


def to_fixed(values: NDArray[np.float64], unit: int = UNIT) -> NDArray[np.float64]:
    """Return floor(v * unit + 0.5), still as float64."""
    out = values * float(unit)
    out += 0.5
    return np.floor(out, out=out)


def bin_of(p: NDArray[np.float64], n_bins: int) -> NDArray[np.float64]:
    """Return the bin (b / n_bins, (b + 1) / n_bins] that holds p, exactly; 0 is in the first."""
    b = np.ceil(p * n_bins)
    b -= 1.0
    # the product is rounded, so p may stand just beyond the edge that ceil saw
    b -= p <= b / n_bins
    b += p > (b + 1.0) / n_bins
    return np.maximum(b, 0.0, out=b)


def argmax(prob: NDArray[np.float64]) -> tuple[NDArray[np.float64], Array]:
    """Return confidence and predicted class of probabilities (class, row); the first of a tie."""
    best = prob.max(axis=0)
    if len(prob) > 127:  # many classes, few rows
        return best, np.ascontiguousarray(prob.T).argmax(axis=1)
    # the first class that reaches the maximum has the largest number; bytes make this fast
    countdown = np.arange(len(prob), 0, -1, dtype=np.int8)[:, None]
    reached = (prob == best).view(np.int8)
    reached *= countdown
    return best, len(prob) - reached.max(axis=0).astype(np.int64)


class Fill:
    """Adds up slices of rows."""

    def __init__(
        self, blocks: frozenset[str], groups: int, classes: int, bins: int, *, weighted: bool
    ) -> None:
        self.blocks, self.g, self.k, self.b = blocks, groups, classes, bins
        self.weighted = weighted
        size = {"k": classes, "b": bins}
        shapes = {
            name: (groups, *(size[axis] for axis in spec.axes))
            for name, spec in SUMS.items()
            if spec.block in blocks
        }
        self.total = {n: zeros(n, s, weighted=weighted) for n, s in shapes.items()}
        self.recent = {
            n: np.zeros(s, np.int64 if self.total[n].dtype == object else np.float64)
            for n, s in shapes.items()
        }
        self.slices = 0

    def add(
        self,
        prob: NDArray[np.float64],
        y: Array | None,
        pred: Array | None,
        group: Array | None,
        weight: NDArray[np.float64] | None,
    ) -> None:
        """Add rows: probabilities (class, row), and codes and weights (row,)."""
        n = prob.shape[1]
        g = np.zeros(n, np.int64) if group is None else group.astype(np.int64)
        rows = np.array([n]) if group is None else np.bincount(g, minlength=self.g)
        self._add("rows", rows)
        if weight is None:
            self._add("weight", rows)
        else:
            self._put("weight", g, weight)
        confidence, top = argmax(prob)
        decision = top if pred is None else pred
        if "rates" in self.blocks:
            self._put("probability", self._each_class(g), weight, prob)
        if "decisions" in self.blocks:
            self._put("predictions", g * self.k + decision, weight)
        if y is not None:
            y = y.astype(np.int64)
            own = g * self.k + y
            if "labels" in self.blocks:
                self._put("labels", own, weight)
            if "hits" in self.blocks:
                hit = decision == y
                self._put("hits", own[hit], None if weight is None else weight[hit])
            if "bins" in self.blocks:
                self._bins(confidence, top == y, g, weight)
            squares = prob
            if self.blocks & {"scores", "moments", "spread"}:
                each = np.arange(n)
                squares = prob * prob
                squares[y, each] = (prob[y, each] - 1.0) ** 2
            if self.blocks & {"scores", "moments"}:
                self._scores(prob, squares, y, g, weight)
            if "classwise" in self.blocks:
                self._classwise(prob, squares, y, g, weight)
            if "units" in self.blocks:
                own_sums = products(features(prob, y, decision, top, weight), g, self.g)
                for name, value in own_sums.items():
                    self._add(name, value.ravel())
        self.slices += 1
        if self.slices % FLUSH == 0:
            self._flush()

    def _bins(
        self, confidence: Array, correct: Array, g: Array, weight: NDArray[np.float64] | None
    ) -> None:
        cell = bin_of(confidence, self.b).astype(np.int64)
        cell += g * self.b
        # wrong and right side by side, so that one pass counts both
        side = np.bincount(2 * cell + correct, weight, 2 * self.g * self.b).reshape(-1, 2)
        self._add("bin_count", side.sum(axis=1))
        self._add("bin_correct", side[:, 1])
        self._put("bin_confidence", cell, weight, confidence)
        if "spread" in self.blocks:
            gap = correct - confidence
            weight2 = None if weight is None else weight * weight
            self._put("bin_count2", cell, weight2)
            self._put("bin_gap2", cell, weight2, gap * gap)
            if "weights" in self.blocks:
                self._put("bin_gap1", cell, weight2, gap)

    def _each_class(self, g: Array) -> Array:
        """Return the cells (group, class) of every class of every row, laid out (class, row)."""
        return (g * self.k + np.arange(self.k)[:, None]).ravel()

    def _scores(
        self, prob: Array, squares: Array, y: Array, g: Array, weight: NDArray[np.float64] | None
    ) -> None:
        own = prob[y, np.arange(len(y))]
        zero = own == 0.0
        loss = -np.log(np.where(zero, 1.0, own))
        if "scores" in self.blocks:
            if self.weighted or "spread" not in self.blocks:  # else by `_classwise`
                self._put("squared_error", self._each_class(g), weight, squares)
            self._put("log_loss", g, weight, loss)
            self._put("impossible", g[zero], None if weight is None else weight[zero])
        if "moments" in self.blocks:
            weight2 = None if weight is None else weight * weight
            # class after class: NumPy's own sum may pair them up, and databases do not
            total = squares[0]
            for more in squares[1:]:
                total = total + more
            self._put("own_probability", g * self.k + y, weight, own)
            self._put("brier2", g, weight2, total * total)
            self._put("log_loss2", g, weight2, loss * loss)

    def _classwise(
        self, prob: Array, squares: Array, y: Array, g: Array, weight: NDArray[np.float64] | None
    ) -> None:
        cell = bin_of(prob, self.b).astype(np.int64)
        cell += self._each_class(g).reshape(prob.shape) * self.b
        own = cell[y, np.arange(len(y))]
        cell = cell.ravel()
        each = None if weight is None else np.broadcast_to(weight, prob.shape).ravel()
        if "spread" in self.blocks:
            weight2 = None if weight is None else weight * weight
            found = self._put("class_gap2", cell, weight2, squares)
            if "scores" in self.blocks and not self.weighted:
                self._add("squared_error", found.reshape(-1, self.b).sum(axis=1))
            if "weights" in self.blocks:
                self._put("class_count2", cell, None if each is None else each * each)
                self._put("class_gap1", cell, weight2, (np.arange(self.k)[:, None] == y) - prob)
        self._put("class_count", cell, each)
        self._put("class_correct", own, weight)
        self._put("class_probability", cell, weight, prob)

    def _put(
        self, name: str, cell: Array, weight: Array | None = None, values: Array | None = None
    ) -> Array:
        """Add weight * value (each 1 where None) to the cells of one sum; return what was added."""
        size = self.recent[name].size
        sums: Array
        if values is None:
            sums = np.bincount(cell, weight, size)
        elif self.weighted:
            values = values if weight is None else weight * values
            sums = np.bincount(cell, values.ravel(), size)
        else:
            sums = _sum_exactly(cell, to_fixed(values.ravel(), SUMS[name].unit), size)
        self._add(name, sums)
        return sums

    def _add(self, name: str, sums: Array) -> None:
        into = self.recent[name].reshape(-1)
        into += sums.astype(into.dtype, copy=False)

    def _flush(self) -> None:
        for name, recent in self.recent.items():
            self.total[name] += recent.astype(object) if recent.dtype == np.int64 else recent
            recent[...] = 0

    def finished(self) -> dict[str, Array]:
        """Return all sums."""
        self._flush()
        return self.total


def _sum_exactly(cell: Array, whole: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Sum whole numbers, held as float64, per cell; the float64 sum alone is exact to 2**53."""
    if len(whole) * whole.max(initial=0.0) < 2.0**53:
        return np.bincount(cell, whole, size).astype(np.int64)
    high = np.floor(whole / 2.0**20)
    low = whole - high * 2.0**20
    top, bottom = (np.bincount(cell, half, size).astype(np.int64) for half in (high, low))
    return (top << 20) + bottom
