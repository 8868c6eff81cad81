"""How much a table's means differ from sample to sample, by a bootstrap over its rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import probability_slice
from equipoise.auditing._intervals._spread import KINDS, Floats, Spread, at_least, clear, from_cells
from equipoise.metrics import ROWS, AuditTable, argmax, bin_of, ratio


def sum_matrix(
    prob: NDArray[Any],
    y: NDArray[Any],
    decided: NDArray[Any] | None,
    group: NDArray[Any],
    weight: Floats | None,
    groups: int,
    k: int,
    bins: int,
) -> Any:
    """Return the sparse matrix (sum, row) that turns how often rows count into sums by group."""
    from scipy.sparse import csc_matrix

    width = 6 + 2 * k
    n = len(prob)
    where, values = np.empty((n, width), np.int32), np.empty((n, width), np.float32)
    offsets = np.cumsum([0, *(groups * s for s in _sizes(k, bins))])
    classes = np.arange(k)
    for start in range(0, n, ROWS):
        rows = slice(start, min(start + ROWS, n))
        p, label, g = probability_slice(prob, rows), y[rows].astype(int), group[rows].astype(int)
        confidence, top = argmax(p)
        decision = top if decided is None else decided[rows].astype(int)
        error = -p
        error[label, np.arange(len(label))] += 1.0
        own = p[label, np.arange(len(label))]
        cell = bin_of(confidence, bins).astype(int) + g * bins
        of_class = (g * k)[:, None] + classes
        class_cell = bin_of(p, bins).astype(int).T + of_class * bins
        for j, (at, value) in enumerate(
            (
                (g, np.ones(len(g))),
                (g, (error * error).sum(0) / (2 if k == 2 else 1)),
                (g, -np.log(np.where(own > 0, own, 1.0))),
                (cell, (top == label) - confidence),
                (g * k + label, np.ones(len(g))),
                (g * k + decision, np.ones(len(g))),
            )
        ):
            where[rows, j], values[rows, j] = offsets[j] + at, value
        where[rows, 6 : 6 + k], values[rows, 6 : 6 + k] = offsets[6] + class_cell, error.T
        where[rows, 6 + k :], values[rows, 6 + k :] = offsets[7] + of_class, p.T
        if weight is not None:
            values[rows] *= weight[rows, None]
    ends = np.arange(0, n * width + 1, width)
    return csc_matrix((values.ravel(), where.ravel(), ends), (offsets[-1], n))


def _sizes(k: int, bins: int) -> tuple[int, ...]:
    """Return the sizes per group: weight, Brier, loss, bins, labels, decisions, classes, rates."""
    return (1, 1, 1, bins, k, k, k * bins, k)


def resampled(
    table: AuditTable, matrix_of_sums: Any, replicates: int, seed: int
) -> tuple[Spread, Spread]:
    """Return the spread of a table and of its pooled rows by resampling."""
    n, groups = matrix_of_sums.shape[1], len(table.groups)
    k, bins = len(table.labels), table.n_bins
    # the shape of Poisson(1), looked up by 16 random bits
    chance = np.cumsum(np.exp(-1.0) / np.cumprod([1.0, *range(1, 9)]))
    lookup = np.searchsorted(chance, (np.arange(65536) + 0.5) / 65536).astype(np.float32)
    rng = np.random.default_rng(seed)
    whole = [Samples(from_cells(t)) for t in (table, table.pooled())]
    step = max(1, min(64, replicates, 50_000_000 // n))
    for start in range(0, replicates, step):
        many = min(step, replicates - start)
        times = lookup[rng.integers(0, 65536, (n, many), dtype=np.uint16)]
        sums = (matrix_of_sums @ times).astype(np.float64)
        parts = np.split(sums, np.cumsum([groups * s for s in _sizes(k, bins)])[:-1])
        shaped = [p.reshape(groups, s, many) for p, s in zip(parts, _sizes(k, bins), strict=True)]
        whole[0].add(shaped)
        whole[1].add([p.sum(0, keepdims=True) for p in shaped])
    return whole[0].spread(), whole[1].spread()


class Samples:
    """Adds up squares and products of samples' deviations from the data's own means."""

    def __init__(self, cells: Spread) -> None:
        self.cells = cells
        self.count: Any = 0
        self.total: dict[str, Any] = {}
        self.clear = clear(cells.gap, cells.gap_var)
        self.class_clear = clear(cells.class_gap, cells.class_var)

    def add(self, sums: list[Floats]) -> None:
        """Add samples: the sums (group, size, sample)."""
        cells = self.cells
        weight = sums[0]
        valid = weight > 0
        self.count = self.count + valid[:, 0].sum(-1)
        means = (
            cells.scores["brier"][0][:, None],
            cells.scores["log_loss"][0][:, None],
            cells.gap,
            *(cells.rates[kind][0] for kind in ("labels", "deterministic")),
            cells.class_gap.reshape(len(weight), -1),
            cells.rates["stochastic"][0],
        )
        # a group that no sampled row is in says nothing
        brier, loss, gap, label, decision, classes, rate = (
            np.where(valid, ratio(s, weight) - m[..., None], 0.0)
            for s, m in zip(sums[1:], means, strict=True)
        )
        classes = classes.reshape(*cells.class_gap.shape, -1)
        signed = (classes * self.class_clear[..., None]).sum(-2)
        for name, values in (
            ("brier", brier[:, 0] ** 2),
            ("log_loss", loss[:, 0] ** 2),
            ("gap", gap**2),
            ("gap_sum", (gap * self.clear[..., None]).sum(-2) ** 2),
            ("class", classes**2),
            ("class_sum", signed**2),
            ("all_sum", signed.sum(-2) ** 2),
            ("labels", label**2),
            ("deterministic", decision**2),
            ("stochastic", rate**2),
            ("labels both", label**2),
            ("deterministic both", decision * label),
            ("stochastic both", rate * label),
        ):
            self.total[name] = self.total.get(name, 0.0) + values.sum(-1)

    def spread(self) -> Spread:
        """Return the variances."""
        cells, count = self.cells, np.maximum(self.count, 1)
        var = {
            name: total / count.reshape(-1, *(1,) * (total.ndim - 1))
            for name, total in self.total.items()
        }
        n = cells.rows
        several = n > 1
        more = np.where(several, ratio(n, n - 1), 1.0)
        gap_var = at_least(var["gap"], cells.gap, cells.gap_null)
        class_var = at_least(var["class"], cells.class_gap, cells.class_null)
        apart = (self.class_clear**2 * var["class"]).sum(-1)
        mirrored = cells.class_gap.shape[-2] == 2  # then each class varies as the sum does
        rates = {}
        for kind in KINDS:
            mean, without, _ = cells.rates[kind]
            # no sample has a label that no row has, and all samples of one row are alike
            rates[kind] = (
                mean,
                np.where((var[kind] > 0) & several[:, None], var[kind], without),
                var[f"{kind} both"],
            )
        return dataclasses.replace(
            cells,
            gap_var=gap_var,
            gap_cross=var["gap_sum"] - (self.clear**2 * var["gap"]).sum(-1),
            class_var=class_var,
            class_cross=(2 * (var["class_sum"] - apart).sum(-1))
            if mirrored
            else var["all_sum"] - apart.sum(-1),
            class_factor=2.0 if mirrored else 1.0,
            scores={
                name: (cells.scores[name][0], np.where(several, var[name] * more, np.inf))
                for name in ("brier", "log_loss")
            },
            rates=rates,
        )
