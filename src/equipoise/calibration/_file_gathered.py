"""Rows of a file in a form that fits into memory: kept whole, merged or sampled.

Of two classes, up to a million rows are kept. Of more, those of one group whose log-odds differ by
less than 1/256 get their mean, and those of one label and fold become one row; parameters fitted to
merged rows differ by about 1e-6. Of K classes, up to a million / K rows are kept; of more, a random
sample of that size, with fewer rows of the largest groups first.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import InputError, counted
from equipoise.calibration._file_rows import Coded, Part, joined, mixed, uniform
from equipoise.calibration._folds import clustered_folds, stratified_folds
from equipoise.calibration._rows import Rows
from equipoise.calibration._scores import SMALLEST, scores_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEPT = 1 << 20
"""Most rows of two classes that are kept as they are; of K classes, the K-th part."""

FOLDS = 5
"""Folds that a repair is measured with."""

WIDTH = 1.0 / 256.0  # of log-odds, in a merged row


class Gathered:
    """The rows of a file, in a form that fits into memory.

    `n_folds` are told apart where rows are merged; `whole` keeps all rows, of any number.
    """

    def __init__(self, n_folds: int, *, whole: bool) -> None:
        self.rows, self.clipped, self._n_folds, self._whole = 0, 0, n_folds, whole
        self._parts: list[Part] = []
        self._small: _Merged | _Sampled | None = None

    def add(self, part: Part) -> None:
        """Take more rows."""
        self.rows += len(part)
        extreme = np.minimum(part.prob, 1.0 - part.prob) if part.prob.ndim == 1 else part.prob
        below = extreme < SMALLEST
        self.clipped += int((below if below.ndim == 1 else below.any(axis=1)).sum())
        if self._small is not None:
            self._small.add(part)
            return
        self._parts.append(part)
        binary = part.prob.ndim == 1 or part.prob.shape[1] == 2
        most = KEPT if binary else KEPT // part.prob.shape[1]
        if self.rows > most and not self._whole:
            self._small = _Merged(self._n_folds) if binary else _Sampled(self._n_folds, most)
            for one in self._parts:
                self._small.add(one)
            self._parts = []

    @property
    def kept(self) -> Part | None:
        """All rows as one part, where they were kept."""
        return None if self._small is not None else joined(self._parts)

    def fold(self, part: Part) -> Ints:
        """Return the fold of each row of a file that is not kept."""
        return (mixed(part.numbers()) % np.uint64(self._n_folds)).astype(np.int64)

    def compact(self) -> tuple[Part, Floats, Floats, Ints]:
        """Return scores as a part, weights, the rows that each stands for, and folds."""
        assert self._small is not None
        return self._small.result()

    def said(self) -> str:
        """Say what the calibrators are fitted to, where that is not all rows; else empty."""
        if isinstance(self._small, _Sampled):
            return f"fitted to a random sample of {self._small.size:,} rows"
        return ""


class _Merged:
    """Rows of two classes, those of nearly equal log-odds merged."""

    def __init__(self, n_folds: int) -> None:
        self._n_folds = n_folds
        self._pending: list[tuple[Any, Any, Any]] = []
        self._size = 0

    def add(self, part: Part) -> None:
        z = scores_of(part.prob)
        odds = z[:, 1] - z[:, 0]
        fold = (mixed(part.numbers()) % np.uint64(self._n_folds)).astype(np.int64)
        cell = np.floor(odds / WIDTH).astype(np.int64) + (1 << 12)
        key = ((part.member * 2 + part.label) * self._n_folds + fold) << 13 | cell
        key, place = np.unique(key, return_inverse=True)
        count = np.bincount(place).astype(np.float64)
        self._pending.append((key, count, np.bincount(place, odds)))
        self._size += len(key)
        if self._size > KEPT:
            self._pending = [self._merge()]
            self._size = len(self._pending[0][0])

    def _merge(self) -> tuple[Any, Any, Any]:
        keys, counts, sums = (np.concatenate(c) for c in zip(*self._pending, strict=True))
        key, place = np.unique(keys, return_inverse=True)
        return key, np.bincount(place, counts), np.bincount(place, sums)

    def result(self) -> tuple[Part, Floats, Floats, Ints]:
        key, count, total = self._merge()
        key, cell = key >> 13, key & (1 << 13) - 1
        key, fold = np.divmod(key, self._n_folds)
        member, label = np.divmod(key, 2)
        # one score for both labels, or they would be out of order within a cell
        _, place = np.unique(member << 13 | cell, return_inverse=True)
        odds = (np.bincount(place, total) / np.bincount(place, count))[place]
        scores = np.stack([np.zeros_like(odds), odds], axis=1)
        return Part(scores, label, member, None, 0), count, count, fold


class _Sampled:
    """A random sample of rows, with fewer of the largest groups first."""

    def __init__(self, n_folds: int, most: int) -> None:
        self._n_folds, self._most = n_folds, most
        self._share = np.ones(0)  # of each group's rows
        self._kept: list[tuple[Part, Floats, Ints]] = []
        self.size = 0

    def add(self, part: Part) -> None:
        if not len(part):
            return
        most = int(part.member.max()) + 1
        self._share = np.pad(self._share, (0, max(0, most - len(self._share))), constant_values=1.0)
        numbers = part.numbers()
        fold = (mixed(numbers) % np.uint64(self._n_folds)).astype(np.int64)
        # another number than the fold's
        self._kept.append((part, uniform(mixed(numbers).view(np.int64)), fold))
        self._thin()
        while self.size > self._most:
            rows = sum(np.bincount(p.member, minlength=len(self._share)) for p, _, _ in self._kept)
            self._share[int(np.argmax(rows))] *= 0.5
            self._thin()

    def _thin(self) -> None:
        thinned = []
        for part, draw, fold in self._kept:
            on = draw < self._share[part.member]
            few = Part(part.prob[on], part.label[on], part.member[on], None, part.start)
            thinned.append((few if not on.all() else part, draw[on], fold[on]))
        self._kept = thinned
        self.size = sum(len(part) for part, _, _ in thinned)

    def result(self) -> tuple[Part, Floats, Floats, Ints]:
        part = joined([part for part, _, _ in self._kept])
        fold = np.concatenate([fold for _, _, fold in self._kept])
        weight = 1.0 / self._share[part.member]
        part = dataclasses.replace(part, prob=scores_of(part.prob))
        return part, weight, np.ones(len(part)), fold


def to_fit(gathered: Gathered, coded: Coded, *, crossed: bool) -> tuple[Rows, Ints, Ints | None]:
    """Return the rows to fit to, their folds, and their clusters."""
    kept, groups, classes = gathered.kept, coded.groups, coded.classes
    if kept is None:
        part, weight, repeats, fold = gathered.compact()
        part = coded.recode(part)
        rows = Rows(part.prob, part.label, part.member, groups, classes, weight, repeats, fold)
        return rows, fold, None
    part = coded.recode(kept)
    rows = Rows(scores_of(part.prob), part.label, part.member, groups, classes)
    fold, clusters = np.zeros(len(rows), np.int64), None
    if part.cluster is not None:
        distinct, clusters = np.unique(part.cluster, return_inverse=True)
        if len(distinct) < FOLDS:
            raise InputError(
                f"column {coded.columns.cluster!r} has {counted(len(distinct), 'distinct id')}, "
                f"too few for {FOLDS} folds",
                "leave cluster= out",
                "leave --cluster out",
            )
    if crossed:
        split: Any = stratified_folds if clusters is None else clustered_folds
        given = () if clusters is None else (clusters,)
        folds = split(rows.codes, rows.members, *given, FOLDS)
        for k, (_, test) in enumerate(folds):
            fold[test] = k
    return rows, fold, clusters
