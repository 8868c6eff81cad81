"""Runs of a search on one split: trained, calibrated and measured on held-out rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import decode
from equipoise.calibration import Shrinkage
from equipoise.datasets import Split
from equipoise.metrics import METRICS, AuditTable, stacked_proportional_equality
from equipoise.search._plan import Cut
from equipoise.sweep import Step, fingerprint_of
from equipoise.training import (
    Config,
    FitRows,
    Loss,
    fit_scaling,
    prepared,
    scaled,
    train_to_best,
)

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMAT = 1
"""Raised when the same description gives other numbers or other parts."""

MEASURED = ("accuracy", "pe", "ece", "log_loss", "pe_deterministic")
COLUMNS = (*MEASURED, "epoch", "n_epochs", "val_log_loss")

NUMBERS = 1 << 23
"""Probabilities that are measured at a time: 64 MB."""


@dataclasses.dataclass(frozen=True)
class SearchData:
    """The rows of a search, their groups after pooling, and all splits."""

    rows: FitRows
    group: Ints
    n_groups: int
    cuts: tuple[Cut, ...]

    @property
    def fingerprint(self) -> str:
        """A hash of all numbers."""
        arrays = [self.rows.X, self.rows.codes, self.group]
        if self.rows.weight is not None:
            arrays.append(self.rows.weight)
        for cut in self.cuts:
            arrays += [cut.train, cut.val, *cut.held_out]
        return fingerprint_of(arrays)

    def first_part(self, cut: int) -> int:
        """Return the number of held-out parts before those of a split."""
        return sum(len(c.held_out) for c in self.cuts[:cut])


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all runs of a search share."""

    calibrate: tuple[str | None, ...]
    max_epochs: int
    patience: int
    batch_size: int
    hidden_layer_sizes: tuple[int, ...]
    shrinkage: Shrinkage
    reference: int  # the group that PE compares the others with
    seed: int


@dataclasses.dataclass(frozen=True)
class SearchPart:
    """Some runs of a search that share a split: the unit of work, and one file of its folder."""

    settings: Settings
    cut: int
    trials: tuple[int, ...]  # their numbers in the search
    configs: tuple[Config, ...]
    data: str

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.configs)

    @property
    def steps(self) -> int:
        """Number of steps that progress counts: finished runs."""
        return len(self.configs)

    @property
    def title(self) -> str:
        """The part in a few words."""
        return f"search, split {self.cut}"

    @property
    def key(self) -> str:
        """A hash of all that the numbers depend on."""
        what = {"format": FORMAT, **dataclasses.asdict(self)}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]

    def table(
        self,
        data: SearchData,
        losses: Mapping[str, Loss],
        step: Step | Literal[False] = False,
    ) -> pa.Table:
        """Return a row for each run, calibration and held-out part."""
        import pyarrow as pa

        settings, cut = self.settings, data.cuts[self.cut]
        held_out = np.concatenate(cut.held_out)
        split = prepared(data.rows, data.group, (cut.train, cut.val, held_out))
        n_classes = len(data.rows.classes)
        best = train_to_best(
            split,
            self.configs,
            max_epochs=settings.max_epochs,
            patience=settings.patience,
            batch_size=settings.batch_size,
            hidden_layer_sizes=settings.hidden_layer_sizes,
            split_seed=settings.seed + self.cut,
            losses=losses,
            n_classes=n_classes,
            step=(lambda: step(0, self.steps)) if step else None,
        )
        groups = tuple(range(data.n_groups)) if data.rows.groups else ()
        ways, sizes = settings.calibrate, [len(part) for part in cut.held_out]
        shape = (len(self.configs), len(ways), len(sizes))
        found = {name: np.full(shape, np.nan) for name in MEASURED}
        member = decode(split.test.group, groups) if groups else None
        at_once = max(1, NUMBERS // (len(ways) * len(held_out) * n_classes))
        for start in range(0, len(self.configs), at_once):
            some = range(start, min(start + at_once, len(self.configs)))
            prob = np.empty((n_classes, len(some) * len(ways), len(held_out)))
            for i, c in enumerate(some):
                for w, how in enumerate(ways):
                    scaling = None
                    if best.epoch[c]:
                        scaling = fit_scaling(
                            how,
                            best.logits["val"][c],
                            split.val,
                            n_classes=n_classes,
                            groups=groups,
                            shrinkage=settings.shrinkage,
                        )
                    logits = np.nan_to_num(best.logits["test"][c])
                    prob[:, i * len(ways) + w] = scaled(scaling, logits, member).T
            for name, values in measured(
                split, prob, sizes, data.n_groups, settings.reference
            ).items():
                found[name][start : some.stop] = values.reshape(len(some), len(ways), -1)
        lost = best.epoch == 0
        which, how, part = (i.ravel() for i in np.indices(shape))
        columns = {
            "trial": np.array(self.trials)[which],
            "split": part + data.first_part(self.cut),
            "calibrate": np.array([w or "none" for w in ways])[how],
            "epoch": best.epoch[which],
            "n_epochs": best.n_epochs[which],
            "val_log_loss": best.val_log_loss[which],
        }
        for name, values in found.items():
            columns[name] = np.where(lost[:, None, None], np.nan, values).ravel()
        return pa.table(columns)


def measured(
    split: Split, prob: Floats, sizes: list[int], n_groups: int, reference: int
) -> dict[str, Floats]:
    """Measure probabilities (class, model, row) on held-out parts of these sizes.

    Returns each metric as (model, part). PE compares with the rates of the training labels.
    """
    train, test, n_classes = split.train, split.test, len(prob)
    cell = train.group * n_classes + train.y
    count = np.bincount(cell, train.weight, n_groups * n_classes).reshape(-1, n_classes)
    # PE compares with the first group of a table, so tables have the reference first
    order = [reference, *(g for g in range(n_groups) if g != reference)]
    with np.errstate(invalid="ignore"):
        rates = (count / count.sum(axis=1, keepdims=True))[order]
    place = np.argsort(order)
    table = AuditTable.from_stack(
        prob,
        test.y,
        # a group of each part, so that one table holds all parts
        place[test.group] + n_groups * np.repeat(np.arange(len(sizes)), sizes),
        groups=tuple(range(n_groups * len(sizes))),
        labels=tuple(range(n_classes)),
        sample_weight=test.weight,
        n_bins=15,
        blocks=["bins", "rates", "scores", "decisions", "hits"],
    )
    found: dict[str, list[Any]] = {name: [] for name in MEASURED}
    for i in range(len(sizes)):
        own = table.only(slice(i * n_groups, (i + 1) * n_groups))
        pooled = own.pooled()
        for name in ("accuracy", "ece", "log_loss"):
            found[name].append(METRICS[name].of(pooled)[:, 0])
        for name, kind in (("pe", "stochastic"), ("pe_deterministic", "deterministic")):
            found[name].append(stacked_proportional_equality(own, rates, kind))
    return {name: np.stack(values, axis=-1) for name, values in found.items()}
