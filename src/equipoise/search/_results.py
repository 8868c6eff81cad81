"""Results of a search: points of PE, ECE and accuracy, their frontier, and the choice among them.

A point is a configuration at one epoch with one calibration, measured on several splits. Choices
use validation only, averaged over the splits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import decode
from equipoise.metrics import frontier_frequency, pareto_mask
from equipoise.search._choice import BASELINE, balanced_score, baseline_medians, within_slack
from equipoise.search._interval import mean_interval
from equipoise.search._selection import select
from equipoise.training import long_frame, run_column

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Objective = str | Callable[[dict[str, Any]], float]

METRICS = ("accuracy", "pe", "ece", "log_loss", "pe_deterministic")


@dataclasses.dataclass(frozen=True)
class Trial:
    """A configuration of a search; `control` counts runs of cross-entropy from other weights."""

    loss: str
    rho: tuple[float, ...] | None
    lam: float
    control: int = 0


@dataclasses.dataclass(frozen=True)
class Tradeoffs:
    """The finished trials and their metrics."""

    trials: list[Trial]
    columns: dict[str, Floats]  # names as in `train_stack` to values (trial, split, epoch)
    calibrate: tuple[str | None, ...]  # calibrations to consider: None, "common", "group"

    @property
    def splits(self) -> int:
        """Number of splits."""
        return int(self.columns["diverged"].shape[1])

    def values(self, part: str, metric: str) -> Floats:
        """Return a metric of every point, (split, point); points are calibration, trial, epoch."""
        name = "ece15" if metric == "ece" else metric
        found = [self.columns[run_column(part, name, how)] for how in self.calibrate]
        stacked = np.stack(found)  # (calibration, trial, split, epoch)
        return np.moveaxis(stacked, 2, 0).reshape(self.splits, -1)

    def described(self) -> dict[str, NDArray[Any]]:
        """Return the configuration, calibration and epoch of each point, (point,)."""
        epochs = self.columns["diverged"].shape[2]
        shape = (len(self.calibrate), len(self.trials), epochs)
        how, trial, epoch = (i.ravel() for i in np.indices(shape))
        return {
            "loss": decode(trial, [t.loss for t in self.trials]),
            "rho": decode(trial, [t.rho for t in self.trials]),
            "lam": np.array([t.lam for t in self.trials])[trial],
            "control": np.array([t.control for t in self.trials])[trial],
            "calibrate": decode(how, [c or "none" for c in self.calibrate]),
            "epoch": epoch + 1,
        }

    def table(self) -> dict[str, NDArray[Any]]:
        """Return the points with their validation figures, averaged over the splits."""
        found = self.described()
        for metric in METRICS:
            found[f"val_{metric}"] = self.values("val", metric).mean(0)
        found["point"] = np.arange(len(found["epoch"]))
        return found

    def choice(self, objective: Objective, slack: float, loss: str | None = None) -> dict[str, Any]:
        """Return the row of `table` that `equipoise.search.select` chooses."""
        table = self.table()
        table["val_ece15"] = table["val_ece"]  # select knows the ECE by its bins
        if np.isnan(table["val_pe"]).all():  # without groups there is no PE
            table["val_pe"] = np.zeros(len(table["val_pe"]))
            objective = objective if callable(objective) else "ece"
        row = select(table, slack, objective, loss=loss)  # type: ignore[arg-type]
        del row["val_ece15"]
        return row

    def frame(self) -> pd.DataFrame:
        """Return every trial, split and epoch, with all columns."""
        return long_frame(self.trials, self.columns, ("split", "epoch"))

    def frontier(self, slack: float) -> pd.DataFrame:
        """Return the frontier of validation PE and ECE within the slack, and its test figures."""
        import pandas as pd

        table = self.table()
        points = np.stack([self.values("val", metric) for metric in ("pe", "ece")], axis=-1)
        if np.isnan(points[..., 0]).all():
            points[..., 0] = 0.0
        points[:, ~within_slack(table["val_accuracy"], slack)] = np.nan
        on = pareto_mask(points.mean(0))
        frame = pd.DataFrame({name: values[on] for name, values in self.described().items()})
        frame["frequency"] = frontier_frequency(points)[on]
        for metric in ("accuracy", "pe", "ece"):
            frame[f"val_{metric}"] = table[f"val_{metric}"][on]
        for metric in ("accuracy", "pe", "ece"):
            test = self.values("test", metric)[:, on]
            spans = [mean_interval(column) or (np.nan, np.nan) for column in test.T]
            frame[f"test_{metric}"] = test.mean(0)
            # none of them is below 0
            frame[f"test_{metric}_low"] = [np.maximum(low, 0.0) for low, _ in spans]
            frame[f"test_{metric}_high"] = [high for _, high in spans]
        return frame.sort_values(["val_pe", "val_ece"], ignore_index=True)

    def verdict(self, objective: Objective, slack: float) -> tuple[str, dict[str, Any]]:
        """Return whether the choice beats cross-entropy on test, and the numbers behind it."""
        chosen = self.choice(objective, slack)
        name = chosen["loss"]
        if name == BASELINE:
            return (
                "No loss beats cross-entropy given as many runs: on validation the choice is "
                "cross-entropy itself.",
                {"loss": name},
            )
        try:
            control = self.choice(objective, slack, BASELINE)
        except ValueError:
            return (
                f"{name} was chosen; cross-entropy has nothing within the slack to compare with.",
                {"loss": name},
            )
        ours, theirs = (self._test_scores(row, objective, slack) for row in (chosen, control))
        low, high = mean_interval(theirs - ours) or (np.nan, np.nan)
        numbers = {
            "loss": name,
            "score": float(ours.mean()),
            "control_score": float(theirs.mean()),
            "difference": float((theirs - ours).mean()),
            "interval": (low, high),
            "splits": self.splits,
        }
        what = "score" if callable(objective) else objective
        detail = (
            f"{what} on test {ours.mean():.3f} against {theirs.mean():.3f} (difference "
            f"{numbers['difference']:.3f}, 95% interval [{low:.3f}, {high:.3f}] over "
            f"{self.splits} splits; lower is better)."
        )
        if low > 0:
            return f"{name} beats cross-entropy given as many runs: {detail}", numbers
        return (
            f"No loss clearly beats cross-entropy given as many runs: {name} has {detail}",
            numbers,
        )

    def _test_scores(self, row: dict[str, Any], objective: Objective, slack: float) -> Floats:
        """Return the objective of a point on the test set of each split, (split,)."""
        test = {m: self.values("test", m)[:, row["point"]] for m in METRICS}
        if callable(objective):
            rows = [
                row | {f"val_{m}": float(v[s]) for m, v in test.items()} for s in range(self.splits)
            ]
            return np.array([objective(r) for r in rows], np.float64)
        if objective == "ece" or np.isnan(test["pe"]).all():
            return test["ece"]
        if objective == "pe":
            return test["pe"]
        table = self.table()
        ce = (table["loss"] == BASELINE) & within_slack(table["val_accuracy"], slack)
        units = baseline_medians(table["val_pe"], table["val_ece"], ce)
        assert units is not None  # or nothing would have been chosen
        return balanced_score(test["pe"], test["ece"], *units)
