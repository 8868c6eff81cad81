"""The decisive study, read from decisive.toml: arms, networks, calibrations and claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.datasets import Dataset, shuffled
from equipoise.paper._published import read_toml
from equipoise.training import Config

Ints = NDArray[np.int64]

ROWS_SEED = 0
"""Seed of the rows that are drawn from a dataset with too many."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """A run of every split: loss, weights of the groups, strength, initial weights."""

    loss: str
    rho: float | None
    lam: float | None
    weights: int

    @property
    def name(self) -> str:
        """The arm in a few letters.

        >>> Arm("dca", None, 3.0, 0).name, Arm("mmce", 0.5, 10.0, 0).name
        ('dca 3 ungrouped', 'mmce 10')
        """
        strength = "" if self.lam is None else f" {self.lam:g}"
        plain = " ungrouped" if self.rho is None and self.loss != "ce" else ""
        return f"{self.loss}{strength}{plain}" + (f" #{self.weights}" if self.loss == "ce" else "")


@dataclasses.dataclass(frozen=True)
class Study:
    """The runs of one network on one dataset."""

    dataset: str
    network: str
    repeats: int
    folds: int
    arms: tuple[Arm, ...]
    max_epochs: int
    patience: int
    learning_rate: float
    batch_size: int
    hidden_layer_sizes: tuple[int, ...]
    seed: int
    rows: int | None = None

    @property
    def name(self) -> str:
        """Name of the folder of its runs and results."""
        return f"{self.dataset}-{self.network}"

    @property
    def splits(self) -> int:
        """Number of splits: a fold of a repeat each."""
        return self.repeats * self.folds

    def to_dict(self) -> dict[str, Any]:
        """Return the study as plain values, ready for JSON."""
        found = dataclasses.asdict(self)
        found["arms"] = [dataclasses.asdict(arm) for arm in self.arms]
        found["hidden_layer_sizes"] = list(self.hidden_layer_sizes)
        return found

    def configs(self, split: int) -> tuple[Config, ...]:
        """Return the runs of a split, one for each arm."""
        first = self.seed + 100 * split
        return tuple(
            Config(
                arm.loss,
                arm.rho,
                1.0 if arm.lam is None else arm.lam,
                first + arm.weights,
                self.learning_rate,
            )
            for arm in self.arms
        )

    def chosen_rows(self, data: Dataset) -> Ints:
        """Return the rows of the dataset that the study uses, in ascending order."""
        n = len(data.y)
        if self.rows is None or n <= self.rows:
            return np.arange(n)
        drawn = np.random.default_rng(ROWS_SEED).permutation(n)[: self.rows]
        return np.asarray(np.sort(drawn))

    def folds_of(self, repeat: int, data: Dataset) -> list[Ints]:
        """Return the folds of a repeat, stratified by label and group; rows of the dataset."""
        rows = self.chosen_rows(data)
        cells = data.group[rows] * len(data.class_names) + data.y[rows]
        order = shuffled(len(rows), self.seed + repeat, cells)
        return [np.sort(rows[fold]) for fold in np.array_split(order, self.folds)]

    def cut(self, split: int, data: Dataset) -> tuple[Ints, Ints, Ints]:
        """Return training, validation and test rows: a fold is test, and the next validation."""
        repeat, fold = divmod(split, self.folds)
        folds = self.folds_of(repeat, data)
        test, val = folds[fold], folds[(fold + 1) % self.folds]
        train = np.setdiff1d(np.concatenate(folds), np.concatenate([test, val]))
        return train, val, test


@dataclasses.dataclass(frozen=True)
class Claim:
    """A registered claim: what is compared, in which outcome, and the sign that is claimed.

    `also` are further outcomes that must hold with it, in the same direction or, for a guard, not
    worse than its margin.
    """

    name: str
    text: str
    paper: str
    outcome: str
    claimed: str
    treated: Mapping[str, Any]
    control: Mapping[str, Any]
    also: tuple[str, ...] = ()

    @property
    def sign(self) -> float:
        """1 where a higher outcome is claimed, -1 where a lower one is."""
        return {"higher": 1.0, "lower": -1.0}[self.claimed]


def registered() -> dict[str, Any]:
    """Return the content of decisive.toml."""
    return read_toml("decisive.toml")


def arms() -> tuple[Arm, ...]:
    """Return the arms, cross-entropy first.

    >>> len(arms())
    24
    """
    return tuple(
        Arm(arm["loss"], arm.get("rho"), lam, weights)
        for arm in registered()["design"]["arms"]
        for lam in arm.get("lam", [None])
        for weights in range(arm.get("weights", 1))
    )


def studies() -> dict[str, Study]:
    """Return the studies by name, in the order in which they are run.

    >>> sum(len(s.arms) * s.splits for s in studies().values())  # runs
    21696
    """
    design = registered()["design"]
    found = {}
    for part in design["networks"]:
        for dataset in part["datasets"]:
            study = Study(
                dataset=dataset,
                network=part["network"],
                repeats=part["repeats"],
                folds=design["folds"],
                arms=arms(),
                max_epochs=part["max_epochs"],
                patience=part["patience"],
                learning_rate=part["learning_rate"],
                batch_size=design["batch_size"],
                hidden_layer_sizes=tuple(design["hidden_layer_sizes"]),
                seed=design["seed"],
                rows=part.get("rows"),
            )
            found[study.name] = study
    return found


def claims() -> tuple[Claim, ...]:
    """Return the registered claims."""
    found = []
    for entry in registered()["claims"]:
        values = dict(entry)
        found.append(Claim(also=tuple(values.pop("and", ())), **values))
    return tuple(found)
