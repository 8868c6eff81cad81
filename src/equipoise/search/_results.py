"""Results of a search: candidates measured on held-out rows, the choice, and how sure it is.

A candidate is a configuration with a calibration, measured on the held-out part of several splits.
The choice compares means over the splits, shrunk for the noise of many candidates. Figures of the
choice itself are nested: on each held-out part, of what the parts without any of its rows choose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import decode
from equipoise.metrics import pareto_mask
from equipoise.search._choice import BASELINE, balanced_score, within_slack
from equipoise.search._interval import mean_interval
from equipoise.search._part import MEASURED
from equipoise.search._plan import Trial
from equipoise.search._shrinkage import shrunk_means

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Objective = str | Callable[[dict[str, Any]], float]
Splits = Sequence[int]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a candidate may cost: accuracy against the best, log-loss against the best of those."""

    accuracy: float
    log_loss: float


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Candidates (candidate,), each a calibration of one trial or of all controls together."""

    trials: list[Ints]  # the trials that are averaged
    way: Ints  # the calibration's number
    cells: Ints  # candidates of the same loss, strength and calibration

    def chosen(self, among: Mask) -> Candidates:
        """Return some of them."""
        trials = [t for t, kept in zip(self.trials, among, strict=True) if kept]
        return Candidates(trials, self.way[among], self.cells[among])


@dataclasses.dataclass(frozen=True)
class Duel:
    """Objectives of two sides, (training split,), and what the first costs against the other."""

    ours: Floats
    theirs: Floats
    log_loss: Floats
    accuracy: Floats
    losses: list[str]  # chosen for the first side
    ratio: float  # held-out rows over training rows, for the intervals

    @property
    def gain(self) -> Floats:
        """How much lower the objective of the first side is, (training split,)."""
        return self.theirs - self.ours

    def costly(self, limits: Limits) -> bool:
        """Return whether the first side costs clearly more than the limits allow."""
        costs = (self.log_loss, limits.log_loss), (self.accuracy, limits.accuracy)
        spans = [(mean_interval(cost, self.ratio), limit) for cost, limit in costs]
        return any(span is not None and span[0] > limit for span, limit in spans)


@dataclasses.dataclass(frozen=True)
class Tradeoffs:
    """The finished trials and their metrics.

    Attributes
    ----------
    trials
        The configurations.
    columns
        Metric to (split, trial, calibration); nan where a trial was not run or diverged.
    calibrate
        The calibrations: None, "common", "group", "bcts".
    splits
        The held-out parts that all trials still in the race were measured on.
    apart
        For each held-out part, those that share no row with it.
    trainings
        For each held-out part, the number of its training split: halves of a fold share one.
    ratio
        Held-out rows of a training split over its training rows.
    """

    trials: list[Trial]
    columns: dict[str, Floats]
    calibrate: tuple[str | None, ...]
    splits: list[int]
    apart: list[list[int]]
    trainings: list[int]
    ratio: float

    # --- candidates ---

    @property
    def controls(self) -> Mask:
        """Return which trials are of cross-entropy."""
        return np.array([t.loss == BASELINE for t in self.trials])

    @property
    def alive(self) -> Mask:
        """Return which trials are still in the race, and did not diverge on any split."""
        return np.asarray(np.isfinite(self.columns["accuracy"][self.splits]).all(axis=(0, 2)))

    def candidates(self, *, pool: bool) -> Candidates:
        """Return every calibration of every trial in the race; `pool` makes the controls one."""
        cells = sorted({(t.loss, t.lam) for t in self.trials})
        each = [
            np.array([i]) for i in np.flatnonzero(self.alive) if not (pool and self.controls[i])
        ]
        if pool and self.controls.any():
            each.insert(0, np.flatnonzero(self.controls))
        own = [self.trials[t[0]] for t in each]
        cell = np.array([cells.index((t.loss, t.lam)) for t in own], np.int64)
        ways = len(self.calibrate)
        way = np.tile(np.arange(ways), len(each))
        return Candidates(
            [t for t in each for _ in range(ways)], way, np.repeat(cell, ways) * ways + way
        )

    def values(self, metric: str, found: Candidates, splits: Splits) -> Floats:
        """Return a metric of each candidate, (split, candidate)."""
        column = self.columns[metric][list(splits)]
        values = column[:, [t[0] for t in found.trials], found.way]
        for i, (trials, way) in enumerate(zip(found.trials, found.way, strict=True)):
            if len(trials) > 1:  # trials that left the race have no value in later splits
                own = column[:, trials, way]
                run = np.isfinite(own)
                total = np.where(run, own, 0.0).sum(axis=1)
                number = run.sum(axis=1)
                values[:, i] = np.divide(
                    total, number, out=np.full(len(own), np.nan), where=number > 0
                )
        return values

    def described(self, found: Candidates) -> dict[str, NDArray[Any]]:
        """Return the configuration and the calibration of each candidate."""
        first = np.array([t[0] for t in found.trials], np.int64)
        return {
            "loss": decode(first, [t.loss for t in self.trials]),
            "weights": decode(first, [t.weights for t in self.trials]),
            "rho": decode(first, [t.rho for t in self.trials]),
            "lam": np.array([t.lam for t in self.trials])[first],
            "calibrate": decode(found.way, [c or "none" for c in self.calibrate]),
        }

    def table(self, found: Candidates, splits: Splits) -> dict[str, NDArray[Any]]:
        """Return the candidates with their figures: means over splits, shrunk."""
        table = self.described(found)
        for metric in MEASURED:
            values = self.values(metric, found, splits)
            if metric == "pe" and np.isnan(values).all():  # without groups there is no PE
                values = np.zeros_like(values)
            table[f"val_{metric}"] = shrunk_means(values, found.cells)
            if metric in ("accuracy", "log_loss"):  # for the limits
                table[f"mean_{metric}"] = values.mean(axis=0)
        return table

    # --- choice ---

    def units(self) -> tuple[float, float] | None:
        """Return the mean PE and ECE of plain cross-entropy, the units of the balanced score."""
        if not self.controls.any():
            return None
        way = self.calibrate.index(None) if None in self.calibrate else 0
        plain = Candidates([np.flatnonzero(self.controls)], np.array([way]), np.array([0]))
        pe, ece = (float(self.values(m, plain, self.splits).mean()) for m in ("pe", "ece"))
        return (1.0 if np.isnan(pe) else pe), ece

    def scores(
        self, table: dict[str, NDArray[Any]], objective: Objective, among: Mask | None = None
    ) -> Floats:
        """Return the objective of each row of a table; nan where it is not in `among`."""
        size = len(table["val_ece"])
        if callable(objective):
            found = np.full(size, np.nan)
            for i in range(size) if among is None else np.flatnonzero(among):
                found[i] = _number(objective(_row(table, int(i))))
            return found
        pe, ece = table["val_pe"], table["val_ece"]
        if objective == "balanced":
            units = self.units()
            if units is None:
                raise ValueError(
                    "objective 'balanced' is in units of cross-entropy, which was not run; leave "
                    "control=True, or choose with objective='pe' or 'ece'"
                )
            return balanced_score(pe, ece, *units)
        return np.asarray(pe if objective == "pe" else ece, np.float64)

    def allowed(
        self, table: dict[str, NDArray[Any]], limits: Limits, among: Mask | None = None
    ) -> Mask:
        """Return which candidates lose no more accuracy and log-loss than the limits allow.

        They are compared with the best of all, or of those in `among`.
        """
        # the worse of the mean and the shrunk mean: neither luck nor its cell lets a candidate in
        accuracy = np.fmin(table["val_accuracy"], table["mean_accuracy"])
        log_loss = np.fmax(table["val_log_loss"], table["mean_log_loss"])
        finite = np.isfinite(table["val_ece"]) & np.isfinite(table["val_log_loss"])
        if among is not None:
            finite &= among
        if not finite.any():
            raise ValueError(
                "nothing to choose: no configuration has finite figures on every split; lower the "
                "learning rate or lam"
            )
        accurate = within_slack(np.where(finite, accuracy, np.nan), limits.accuracy)
        least = float(log_loss[accurate].min())
        return np.asarray(accurate & (log_loss <= least + limits.log_loss + 1e-12))

    def best(
        self,
        table: dict[str, NDArray[Any]],
        objective: Objective,
        limits: Limits,
        among: Mask | None = None,
        *,
        own: bool = False,
    ) -> int:
        """Return the position of the candidate with the least objective within the limits.

        With `own`, or if none of `among` is within them, they are against the best of `among`.
        """
        allowed = self.allowed(table, limits)
        if among is not None:
            allowed &= among
            if own or not allowed.any():
                allowed = self.allowed(table, limits, among)
        score = np.where(allowed, self.scores(table, objective, allowed), np.nan)
        score[~np.isfinite(score)] = np.inf
        if not np.isfinite(score).any():
            raise ValueError(
                "nothing to choose: the objective is not finite for any candidate within the slack"
                + ("" if callable(objective) else "; choose with objective='ece'")
            )
        return int(score.argmin())

    def choice(
        self, objective: Objective, limits: Limits, loss: str | None = None
    ) -> dict[str, Any]:
        """Return the chosen candidate: its configuration, calibration and figures."""
        found = self.candidates(pool=True)
        table = self.table(found, self.splits)
        among = None
        if loss is not None:
            among = table["loss"] == loss
            if not among.any():
                known = ", ".join(sorted(set(table["loss"])))
                raise ValueError(f"loss {loss!r} was not tried; there are {known}")
        at = (
            self.chosen(found, self.splits, objective, limits)
            if among is None
            else self.best(table, objective, limits, among)
        )
        epochs = self.columns["epoch"][self.splits][:, found.trials[at], found.way[at]]
        row = {k: v for k, v in _row(table, at).items() if not k.startswith("mean_")}
        if np.isnan(self.columns["pe"]).all():
            row["val_pe"] = float("nan")
        row["epoch"] = round(float(np.nanmedian(epochs)))
        allowed = self.allowed(table, limits)
        row["within"], row["within_limits"] = bool(allowed[at]), int(allowed.sum())
        row["rivals"] = self._rivals(found, table, objective, limits, at)
        return row

    def chosen(
        self, found: Candidates, splits: Splits, objective: Objective, limits: Limits
    ) -> int:
        """Return the position of the candidate chosen on these splits; `found` pools the controls.

        It is the best within the limits, with two exceptions. A loss whose gain over cross-entropy,
        given as many runs and measured on rows that did not choose, is not above 0 gives way to
        cross-entropy. A calibration of cross-entropy without such a gain gives way to none. What
        they give way to must be within the limits too, and a function as objective is taken at its
        word.
        """
        table = self.table(found, splits)
        at = self.best(table, objective, limits)
        if callable(objective):
            return at
        allowed = self.allowed(table, limits)
        ce = table["loss"] == BASELINE
        plain = ce & (table["calibrate"] == "none")
        if not ce[at] and (ce & allowed).any():
            each = self.candidates(pool=False)
            control = self.controls[[t[0] for t in each.trials]]
            if not self._gains(objective, limits, (~control, control), each, splits):
                at = self.best(table, objective, limits, ce)
        if (
            (ce & ~plain)[at]
            and (plain & allowed).any()
            and not self._gains(objective, limits, (ce & ~plain, plain), found, splits)
        ):
            at = self.best(table, objective, limits, plain)
        return at

    def _gains(
        self,
        objective: Objective,
        limits: Limits,
        sides: tuple[Mask, Mask],
        found: Candidates,
        splits: Splits,
    ) -> bool:
        """Return whether the first side gains over the other; True where that is unknown."""
        duel = self.duel(objective, limits, sides, found, splits)
        return duel is None or (duel.gain.mean() > 0.0 and not duel.costly(limits))

    def _rivals(
        self,
        found: Candidates,
        table: dict[str, NDArray[Any]],
        objective: Objective,
        limits: Limits,
        at: int,
    ) -> int:
        """Return the number of candidates within the limits that are not clearly worse."""
        allowed = self.allowed(table, limits)
        scores = self.split_scores(found, objective, self.splits)
        number = 0
        for i in np.flatnonzero(allowed):
            span = self.interval(scores[:, i] - scores[:, at], self.splits)
            number += int(i != at and (span is None or span[0] <= 0.0))
        return number

    def split_scores(self, found: Candidates, objective: Objective, splits: Splits) -> Floats:
        """Return the objective of each candidate on each split, (split, candidate)."""
        about = self.described(found)
        values = {m: self.values(m, found, splits) for m in MEASURED}
        if np.isnan(values["pe"]).all():
            values["pe"] = np.zeros_like(values["pe"])
        return np.stack(
            [
                self.scores(about | {f"val_{m}": v[s] for m, v in values.items()}, objective)
                for s in range(len(splits))
            ]
        )

    # --- nested figures ---

    def per_training(self, values: Floats, splits: Splits) -> Floats:
        """Return the mean of the values (split,) of each training split."""
        own = np.array([self.trainings[s] for s in splits])
        return np.array([values[own == t].mean() for t in np.unique(own)])

    def interval(
        self, values: Floats, splits: Splits, number: int | None = None
    ) -> tuple[float, float] | None:
        """Return the interval of a mean over splits; halves of a fold are one value."""
        return mean_interval(self.per_training(values, splits), self.ratio, number)

    def nested(self, splits: Splits | None = None) -> list[tuple[int, list[int]]]:
        """Return each split with those that its choice is made on; they share no row with it."""
        given = self.splits if splits is None else splits
        pairs = [(s, [t for t in given if t in self.apart[s]]) for s in given]
        return [(s, others) for s, others in pairs if others]

    def figures(self, objective: Objective, limits: Limits) -> dict[str, Floats]:
        """Return each metric of the choice on the splits that it was not made on, (split,)."""
        found = self.candidates(pool=True)
        rows: dict[str, list[float]] = {m: [] for m in MEASURED}
        for s, others in self.nested():
            at = self.chosen(found, others, objective, limits)
            for metric, values in rows.items():
                values.append(float(self.values(metric, found, [s])[0, at]))
        return {m: np.array(v) for m, v in rows.items()}

    def duel(
        self,
        objective: Objective,
        limits: Limits,
        sides: tuple[Mask, Mask],
        found: Candidates,
        splits: Splits | None = None,
    ) -> Duel | None:
        """Compare the best of two sides on each split, by default on all, chosen on the others.

        Each side is chosen within the limits of its own best. None where nothing is finite, or a
        side is empty, or no split shares no row with another.
        """
        names = ("score", "log_loss", "accuracy")
        sums: list[dict[str, list[float]]] = [{name: [] for name in names} for _ in sides]
        losses: list[str] = []
        nested = self.nested(splits)
        if not nested or not all(side.any() for side in sides):
            return None
        for s, others in nested:
            table = self.table(found, others)
            for i, side in enumerate(sides):
                try:
                    at = self.best(table, objective, limits, side, own=True)
                except ValueError:
                    return None
                one = found.chosen(np.arange(len(found.way)) == at)
                sums[i]["score"].append(float(self.split_scores(one, objective, [s])[0, 0]))
                for metric in ("log_loss", "accuracy"):
                    sums[i][metric].append(float(self.values(metric, one, [s])[0, 0]))
                if i == 0:
                    losses.append(self.trials[one.trials[0][0]].loss)
        parts = [s for s, _ in nested]
        ours, theirs = (
            {k: self.per_training(np.array(v), parts) for k, v in own.items()} for own in sums
        )
        return Duel(
            ours["score"],
            theirs["score"],
            ours["log_loss"] - theirs["log_loss"],
            theirs["accuracy"] - ours["accuracy"],
            losses,
            self.ratio,
        )

    # --- frontier ---

    def frontier_mask(self, table: dict[str, NDArray[Any]], slack: float) -> Mask:
        """Return which candidates are on the frontier of PE and ECE within the accuracy slack."""
        within = within_slack(table["val_accuracy"], slack)
        points = np.stack([table["val_pe"], table["val_ece"]], axis=-1)
        points[~within] = np.nan
        return pareto_mask(points)

    def frontier(self, slack: float) -> pd.DataFrame:
        """Return the frontier, with figures on the splits that did not put a candidate there."""
        import pandas as pd

        found = self.candidates(pool=True)
        table = self.table(found, self.splits)
        on = np.flatnonzero(self.frontier_mask(table, slack))
        nested = self.nested()
        there = np.zeros((len(nested), len(found.way)), bool)
        for i, (_, others) in enumerate(nested):
            there[i] = self.frontier_mask(self.table(found, others), slack)
        shown = {k: v for k, v in table.items() if not k.startswith("mean_")}
        frame = pd.DataFrame({name: values[on] for name, values in shown.items()})
        frame["frequency"] = there[:, on].mean(axis=0) if nested else np.nan
        for metric in ("accuracy", "pe", "ece"):
            values = self.values(metric, found, [s for s, _ in nested])
            rows = []
            for at in on:
                own, every = values[there[:, at], at], values[:, at]
                mean, low, high = np.nan, np.nan, np.nan
                if len(own):
                    mean = own.mean()
                    # the spread is that of all splits: some are few to estimate it from
                    parts = [s for s, _ in nested]
                    number = len({self.trainings[s] for s in np.array(parts)[there[:, at]]})
                    span = self.interval(every, parts, number)
                    if span is not None:
                        low, high = np.array(span) - np.mean(span) + mean
                rows.append((mean, *clipped(metric, low, high)))
            figures = np.array(rows, np.float64).reshape(-1, 3)
            for name, column in zip(("", "_low", "_high"), figures.T, strict=True):
                frame[f"test_{metric}{name}"] = column
        if np.isnan(self.columns["pe"]).all():
            frame["val_pe"] = np.nan
        return frame.sort_values(["val_pe", "val_ece"], ignore_index=True)

    def frame(self) -> pd.DataFrame:
        """Return every trial, split and calibration, with all figures."""
        import pandas as pd

        run = np.isfinite(self.columns["epoch"])
        split, trial, way = np.nonzero(run)
        frame = pd.DataFrame([dataclasses.asdict(t) for t in self.trials]).iloc[trial]
        frame = frame.reset_index(drop=True)
        frame["split"] = split
        frame["calibrate"] = np.array([c or "none" for c in self.calibrate])[way]
        for name, values in self.columns.items():
            frame[name] = values[run]
        return frame.astype({"epoch": np.int64, "n_epochs": np.int64})


def _row(table: dict[str, NDArray[Any]], at: int) -> dict[str, Any]:
    return {k: v[at].item() if isinstance(v[at], np.generic) else v[at] for k, v in table.items()}


def clipped(metric: str, low: float, high: float) -> tuple[float, float]:
    """Return an interval within what a metric can be; nan stays nan."""
    most = 1.0 if metric in ("accuracy", "ece") else np.inf
    return float(np.maximum(low, 0.0)), float(np.minimum(high, most))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(
            f"the objective returned {value!r} ({type(value).__name__}); it must return a number, "
            "lower being better"
        )
    return float(value)
