"""Running a search stage by stage: after each, the configurations that look worst are dropped."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import pareto_mask
from equipoise.search._choice import within_slack
from equipoise.search._part import COLUMNS, SearchData, SearchPart, Settings
from equipoise.search._plan import Trial, disjoint_parts, half, stages_of
from equipoise.search._results import Limits, Tradeoffs
from equipoise.sweep import PartFolder, Work
from equipoise.training import Config

Floats = NDArray[np.float64]

PART = 32
"""Runs of a part at most; they train together."""


@dataclasses.dataclass
class Race:
    """The parts of a search, in stages, and what is finished of them.

    The same results always give the same stages, so a search that was stopped goes on where it was.
    """

    store: PartFolder
    data: SearchData
    settings: Settings
    trials: list[Trial]
    learning_rate: float
    limits: Limits
    halving: bool

    def __post_init__(self) -> None:
        self.mark = self.data.fingerprint
        seeds = np.random.default_rng(self.settings.seed)
        shape = (len(self.data.cuts), len(self.trials))
        self.seeds = seeds.integers(2**31, size=shape)  # initial weights
        # the splits of each stage, and the trials that run on them
        self.stages = stages_of(len(self.data.cuts), halving=self.halving)
        self.alive = [list(range(len(self.trials)))]

    def runs(self) -> int:
        """Return the number of runs in all."""
        controls = sum(t.control is not None for t in self.trials)
        sides, total = [controls, len(self.trials) - controls], 0
        for stage in self.stages:
            total += len(stage) * sum(sides)
            sides = [half(n) for n in sides]
        return total

    def work(self) -> Iterator[list[Work]]:
        """Return the parts of each stage; the next is asked for when they are finished."""
        for number, stage in enumerate(self.stages):
            if number:
                self.alive.append(self._better_half(self.alive[-1]))
            alive = self.alive[-1]
            yield [Work(self.store, p, self.data) for s in stage for p in self._parts(s, alive)]

    def _parts(self, cut: int, alive: Sequence[int]) -> list[SearchPart]:
        """Return the parts of a split: controls and candidates in turn, a loss beside itself.

        The profile of a part with all losses mixed: half of the time went into calls of losses, one
        for each kind; controls alone need one.
        """
        controls = [i for i in alive if self.trials[i].control is not None]
        others = [i for i in alive if self.trials[i].control is None]
        others.sort(key=lambda i: (self.trials[i].loss, self.trials[i].rho is None))
        sides = [
            np.array_split(np.array(own), -(-len(own) // PART)) if own else []
            for own in (controls, others)
        ]
        chunks = itertools.chain.from_iterable(itertools.zip_longest(*sides))
        return [
            SearchPart(
                self.settings,
                cut,
                tuple(int(i) for i in some),
                tuple(self._config(cut, int(i)) for i in some),
                self.mark,
            )
            for some in chunks
            if some is not None
        ]

    def _config(self, cut: int, number: int) -> Config:
        trial = self.trials[number]
        seed = int(self.seeds[cut, number])
        return Config(trial.loss, trial.rho, trial.lam, seed, self.learning_rate)

    def _better_half(self, alive: Sequence[int]) -> list[int]:
        """Return half of the candidates and half of the controls, the nearest to the frontier.

        Both sides are judged by the same rule and keep the same share, so that the best of one is
        the best of as many runs as that of the other.
        """
        found = self.tradeoffs()
        depth = frontier_depth(found, self.limits)[list(alive)]
        kept: list[int] = []
        for control in (False, True):
            own = [
                j for j, i in enumerate(alive) if (self.trials[i].control is not None) == control
            ]
            order = sorted(own, key=lambda j: tuple(depth[j]))
            kept += [alive[j] for j in order[: half(len(own))]]
        return sorted(kept)

    # --- what is finished ---

    def tradeoffs(self) -> Tradeoffs:
        """Return the finished runs: all splits that every trial in the race was run on.

        Where not even the first split is finished, the trials that were run on it.
        """
        columns = self._columns()
        run = np.asarray(np.isfinite(columns["epoch"]).any(axis=2))  # (split, trial)
        per_cut = [len(cut.held_out) for cut in self.data.cuts]
        parts, splits = np.split(np.arange(sum(per_cut)), np.cumsum(per_cut)[:-1]), []
        for stage, alive in zip(self.stages, self.alive, strict=False):
            for cut in stage:
                if not run[parts[cut]][:, alive].all():
                    break
                splits += parts[cut].tolist()
            else:
                continue
            break
        trials = list(self.trials)
        if not splits:
            done = np.flatnonzero(run[parts[0]].all(axis=0))
            splits, trials = parts[0].tolist(), [self.trials[i] for i in done]
            columns = {name: values[:, done] for name, values in columns.items()}
        cuts = self.data.cuts
        ratio = float(np.mean([sum(map(len, c.held_out)) / len(c.train) for c in cuts]))
        trainings = [i for i, cut in enumerate(cuts) for _ in cut.held_out]
        ways, apart = self.settings.calibrate, disjoint_parts(cuts)
        return Tradeoffs(trials, columns, ways, splits, apart, trainings, ratio)

    def finished(self) -> tuple[int, int]:
        """Return the number of finished runs, and of all in the stages so far."""
        every = [
            part
            for stage, alive in zip(self.stages, self.alive, strict=False)
            for cut in stage
            for part in self._parts(cut, alive)
        ]
        return sum(p.runs for p in every if self.store.has(p.key)), self.runs()

    def _columns(self) -> dict[str, Floats]:
        ways = [w or "none" for w in self.settings.calibrate]
        total = sum(len(cut.held_out) for cut in self.data.cuts)
        shape = (total, len(self.trials), len(ways))
        columns = {name: np.full(shape, np.nan) for name in COLUMNS}
        for stage, alive in zip(self.stages, self.alive, strict=False):
            for part in (p for cut in stage for p in self._parts(cut, alive)):
                if not self.store.has(part.key):
                    continue
                table = self.store.table(part.key)
                way = np.array([ways.index(w) for w in table["calibrate"].to_pylist()])
                at = table["split"].to_numpy(), table["trial"].to_numpy(), way
                for name, values in columns.items():
                    values[at] = table[name].to_numpy()
        return columns


def frontier_depth(found: Tradeoffs, limits: Limits) -> Floats:
    """Return how far each trial is from a frontier, (trial, 2): lower is nearer.

    First, the number of its best candidate's front: the frontier of PE and ECE is 0, that of what
    is left without it 1, and so on; those outside the limits come last. The fronts are those within
    the accuracy slack, which are shown, and those within both limits, which are chosen from: the
    lower number counts. Second, the sum of the ranks of PE and ECE.
    """
    pe, ece, accuracy, log_loss = (
        found.columns[metric][found.splits].mean(axis=0)
        for metric in ("pe", "ece", "accuracy", "log_loss")
    )  # (trial, calibration)
    if not np.isfinite(pe).any():
        pe = np.zeros_like(pe)
    points = np.stack([pe.ravel(), ece.ravel()], axis=-1)
    accurate = within_slack(accuracy.ravel(), limits.accuracy)
    least = np.nanmin(np.where(accurate, log_loss.ravel(), np.nan), initial=np.inf)
    allowed = accurate & (log_loss.ravel() <= least + limits.log_loss)
    depth = np.minimum(_fronts(points, accurate), _fronts(points, allowed))
    rank = np.argsort(np.argsort(points, axis=0), axis=0).sum(axis=1)
    rank = np.where(np.isfinite(depth), rank, 2 * len(points) - accuracy.ravel())
    place = np.empty(len(points))
    place[np.lexsort((rank, depth))] = np.arange(len(points))
    first, rows = place.reshape(pe.shape).argmin(axis=1), np.arange(len(pe))
    return np.stack([v.reshape(pe.shape)[rows, first] for v in (depth, rank)], axis=-1)


def _fronts(points: Floats, among: NDArray[np.bool_]) -> Floats:
    """Return the number of each point's front among some points; infinite for the others."""
    left, depth = np.where(among[:, None], points, np.nan), np.full(len(points), np.inf)
    for front in range(len(points)):
        on = pareto_mask(left)
        if not on.any():
            break
        depth[on], left[on] = front, np.nan
    return depth
