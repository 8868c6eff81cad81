"""The digest of a sweep: per run its best epochs, per technique its frontier, and some facts.

All tables and figures are made from digests, without the runs. Every result has two readings:

- "published": chosen on the test set, as the paper does;
- "validated": chosen on validation within the accuracy slack, and the test set read once.

The slack is counted from the best accuracy of all techniques, cross-entropy with its one usual run.
Its further runs, the controls, must be within the slack but do not move it.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import replace_file
from equipoise.datasets import Dataset
from equipoise.metrics import group_base_rates, pareto_mask, proportional_equality
from equipoise.paper._floors import pe_floors
from equipoise.paper._published import NAMES
from equipoise.search import balanced_score, baseline_medians, within_slack
from equipoise.sweep import CONTROL_STEP, RunPart, Store, Sweep, encode, processor, versions
from equipoise.training import PARTS, run_column

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SLACK = 0.05
CALIBRATIONS = {"none": None, "group": "group"}
"""The networks as they are, and hybrid: with one temperature per group."""

READ = ("accuracy", "pe", "pe_deterministic", "ece15", "ece10", "dead")
"""Metrics that are read on the test set at a chosen epoch."""

PLANE = ("pe", "ece15")
"""Metrics of a frontier."""

RUN = ("loss", "rho", "lam", "split_seed", "seed")


@dataclasses.dataclass(frozen=True)
class Digest:
    """The digest of the sweep on one dataset: three tables, as columns by name, and some facts.

    `choices` has what `best` can return: for each technique, split, reading, objective and
    calibration the best run, its epoch, its score (the value minimised) and its test metrics. Of
    cross-entropy, each control that is better than all before it.
    """

    choices: dict[str, NDArray[Any]]
    frontiers: dict[str, NDArray[Any]]  # a row per point of a frontier of PE and ECE
    recipe: dict[str, NDArray[Any]]  # a row per seed and epoch of `by_recipe`
    facts: dict[str, Any]

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return str(self.facts["dataset"])

    @property
    def seeds(self) -> list[int]:
        """The seeds, each of them a split."""
        return [int(s) for s in self.facts["sweep"]["seeds"]]

    @property
    def techniques(self) -> list[str]:
        """The techniques that are compared with cross-entropy."""
        return [t for t in self.facts["sweep"]["loss"] if t != "ce"]

    @property
    def replicas(self) -> list[str]:
        """The techniques as the paper's code trained them: mmce-w* in place of mmce-w."""
        return [t for t in self.techniques if t not in NAMES]

    @property
    def floors(self) -> dict[str, float | None]:
        """What `pe_floors` found for this dataset; None in results older than that."""
        return {"model": None, "labels": None, **self.facts.get("floors", {})}

    def budget(self, technique: str) -> int:
        """Return the number of runs that a technique has for each seed."""
        return int(self.facts["runs"][technique])

    def best(
        self,
        technique: str,
        reading: str,
        objective: str,
        calibration: str = "none",
        *,
        controls: int = 1,
    ) -> list[dict[str, Any]]:
        """Return the best choice of a technique on each split, in the order of the seeds.

        `controls` is the number of runs that cross-entropy has. A split on which no epoch of any
        run is within the slack has an empty dict.
        """
        table = self.choices
        rows = _where(table, loss=technique, reading=reading, calibration=calibration)
        rows &= table["objective"] == objective
        if technique == "ce":
            rows &= control_index(table) < controls
        found: list[dict[str, Any]] = []
        for seed in self.seeds:
            own = np.flatnonzero(rows & (table["split_seed"] == seed))
            if not len(own):
                found.append({})
                continue
            first = own[np.argmin(table["score"][own])]
            found.append({name: values[first] for name, values in table.items()})
        return found

    def frontier(
        self,
        technique: str,
        reading: str,
        calibration: str = "none",
        *,
        split_seed: int | None = None,
        controls: int = 1,
        part: str = "test",
    ) -> Floats:
        """Return the (PE, ECE) of the points of a frontier, (point, 2), on test or val."""
        table = self.frontiers
        rows = _where(table, loss=technique, reading=reading, calibration=calibration)
        if technique == "ce":
            rows &= table["controls"] == controls
        if split_seed is not None:
            rows &= table["split_seed"] == split_seed
        return np.column_stack([table[f"{part}_pe"][rows], table[f"{part}_ece15"][rows]])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the digest as three Parquet files and one JSON file."""
        import pyarrow as pa

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for name in ("choices", "frontiers", "recipe"):
            # nothing is rounded: a digest that was read back gives the same tables
            columns = {
                k: pa.array(v.astype(str)).dictionary_encode() if v.dtype == object else v
                for k, v in getattr(self, name).items()
            }
            replace_file(path / f"{name}.parquet", encode(pa.table(columns), name))
        text = json.dumps(self.facts, indent=1, sort_keys=True)
        replace_file(path / "facts.json", text.encode() + b"\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Digest:
        """Read what `save` wrote."""
        from pyarrow import parquet

        path = Path(folder)
        if not (path / "facts.json").exists():
            raise FileNotFoundError(f"{path} holds no results; run: equipoise reproduce")
        try:
            choices, frontiers, recipe = (
                _numpy(parquet.read_table(path / f"{name}.parquet"))
                for name in ("choices", "frontiers", "recipe")
            )
            facts = json.loads((path / "facts.json").read_text("utf-8"))
            Sweep.from_dict(facts["sweep"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the results in {path} are damaged ({type(error).__name__}: {error}); remove that "
                "folder, and give the command again: finished runs are not run again"
            ) from None
        return cls(choices, frontiers, recipe, facts)


def digest(
    store: Store, parts: Sequence[RunPart], recipes: Sequence[Path], data: Dataset
) -> Digest:
    """Read a finished sweep; `recipes` are the `recipe_files`, one per seed."""
    import pyarrow as pa
    from pyarrow import parquet

    runs = _Runs(store, parts)
    recipe = _numpy(pa.concat_tables([parquet.read_table(path) for path in recipes]))
    # as in the store: 24 bits are enough
    recipe = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in recipe.items()}
    choices = records(_stacked([c for seed in store.sweep.seeds for c in _choices(runs, seed)]))
    frontiers = _stacked([*_published_frontiers(runs), *_validated_frontiers(runs)])
    return Digest(choices, frontiers, recipe, _facts(runs, store, parts, data))


def records(choices: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Keep the rows that `Digest.best` can return, whatever the number of controls.

    These are the best run of each technique, and of cross-entropy each control that is better than
    all before it.
    """
    index, score = control_index(choices), choices["score"]
    names = ("reading", "objective", "calibration", "loss", "split_seed")
    cells = list(zip(*(choices[name].tolist() for name in names), strict=True))
    kept: dict[tuple[Any, ...], list[int]] = {}
    for row in np.argsort(index, kind="stable").tolist():
        rows = kept.setdefault(cells[row], [])
        if rows and not score[row] < score[rows[-1]]:
            continue
        if rows and index[rows[-1]] == index[row]:
            rows.pop()
        rows.append(row)
    whole = np.sort([row for rows in kept.values() for row in rows])
    return {name: values[whole] for name, values in choices.items()}


def _where(table: dict[str, NDArray[Any]], **values: str) -> Mask:
    """Return which rows have these values."""
    rows: Mask = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    return rows


def control_index(table: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return which control of its split each run is; 0 for the usual run."""
    index: NDArray[Any] = (table["seed"] - table["split_seed"]) // CONTROL_STEP
    return index


class _Runs:
    """All runs of a sweep: attributes (run,), columns (run, epoch)."""

    def __init__(self, store: Store, parts: Sequence[RunPart]) -> None:
        self.epochs = store.sweep.max_epochs
        measured = [
            run_column(part, metric, how)
            for part in PARTS
            for how in CALIBRATIONS.values()
            for metric in READ
        ]
        names = [*dict.fromkeys(measured), "diverged"]
        sql = f"select {', '.join((*RUN, 'epoch', *names))} from runs"
        raw = store.query(sql, [part.key for part in parts]).fetchnumpy()
        shape = (-1, self.epochs)
        order = np.ma.getdata(raw.pop("epoch")).reshape(shape)
        if not (order == np.arange(1, self.epochs + 1)).all():
            raise ValueError(f"the parts in {store.folder} are not in order; remove the folder")
        self.run: dict[str, NDArray[Any]] = {}
        for name in RUN:
            first = raw[name].reshape(shape)[:, 0]
            blank = np.nan if name in ("rho", "lam") else None
            self.run[name] = np.ma.filled(first, blank) if np.ma.isMA(first) else first
        self.columns = {n: np.ma.filled(raw[n], np.nan).reshape(shape) for n in names}
        self.control = control_index(self.run)

    def value(self, name: str) -> NDArray[Any]:
        """Return a column (run, epoch) to be minimised, with inf for nan."""
        values = self.columns[name]
        return np.where(np.isnan(values), np.inf, values)

    def described(
        self,
        rows: NDArray[Any],
        epochs: NDArray[Any],
        how: str | None,
        metrics: Sequence[str] = READ,
    ) -> dict[str, Any]:
        """Return runs, epochs and their test metrics."""
        found: dict[str, Any] = {name: values[rows] for name, values in self.run.items()}
        found["epoch"] = epochs + 1
        for metric in metrics:
            values = self.columns[run_column("test", metric, how)]
            found[run_column("test", metric)] = values[rows, epochs]
        return found

    def best_accuracy(self, part: str, own: Mask) -> float:
        """Return the best accuracy of some runs (run,), the controls not counted; nan of none."""
        usual = self.columns[run_column(part, "accuracy")][own & (self.control == 0)]
        return float(np.fmax.reduce(usual, axis=None, initial=np.nan))

    def within(self, part: str, own: Mask) -> Mask:
        """Return which (run, epoch) of some runs (run,) are within the slack of the best."""
        best = self.best_accuracy(part, own)
        accuracy = np.where(own[:, None], self.columns[run_column(part, "accuracy")], np.nan)
        return within_slack(accuracy, SLACK, best if np.isfinite(best) else None)

    def medians(self, runs: Mask, within: Mask, part: str) -> tuple[float, float]:
        """Return the medians of PE and ECE of some runs (run,) within the slack.

        Over all epochs where none is within the slack; nan where there are no numbers at all.
        """
        pe, ece = (self.columns[run_column(part, metric)] for metric in ("pe", "ece15"))
        some = np.broadcast_to(runs[:, None], within.shape)
        found = baseline_medians(pe, ece, some & within) or baseline_medians(pe, ece, some)
        return found or (float("nan"), float("nan"))


def _choices(runs: _Runs, seed: int) -> Iterator[dict[str, Any]]:
    """Choose an epoch of each run of one split, for each reading, objective and calibration."""
    split = runs.run["split_seed"] == seed
    own, within = np.flatnonzero(split), runs.within("val", split)
    allowed = within[own]
    # a hybrid's too: both are in units of plain cross-entropy
    units = runs.medians(split & (runs.run["loss"] == "ce"), within, "val")
    for calibration, how in CALIBRATIONS.items():
        names = {"pe": "pe", "ece": "ece15"}
        if how is None:
            names["pe_deterministic"] = "pe_deterministic"
        test, val = (
            {name: runs.value(run_column(part, metric, how))[own] for name, metric in names.items()}
            for part in ("test", "val")
        )
        scores = {("published", objective): score for objective, score in test.items()}
        if how is None:
            missed = 1.0 - runs.columns["test_accuracy"][own]
            scores["published", "accuracy"] = np.where(np.isnan(missed), np.inf, missed)
        for objective, score in val.items():
            scores["validated", objective] = np.where(allowed, score, np.inf)
        if min(units) > 0.0:
            balanced = balanced_score(val["pe"], val["ece"], *units)
            scores["validated", "balanced"] = np.where(allowed, balanced, np.inf)
        for (reading, objective), score in scores.items():
            epoch = score.argmin(1)
            best = score[np.arange(len(own)), epoch].astype(np.float64)
            # under the validated reading a run that is never within the slack cannot be chosen
            kept = np.isfinite(best) if reading == "validated" else np.full(len(best), True)
            yield {
                "reading": np.full(kept.sum(), reading, object),
                "objective": np.full(kept.sum(), objective, object),
                "calibration": np.full(kept.sum(), calibration, object),
                "score": best[kept],
                **runs.described(own[kept], epoch[kept], how),
            }


def _published_frontiers(runs: _Runs) -> Iterator[dict[str, Any]]:
    """Pool all seeds of a technique, as the paper's figures do; cross-entropy with one run each."""
    allowed = runs.within("test", runs.control == 0)
    for technique in dict.fromkeys(runs.run["loss"]):
        rows, epochs = np.nonzero(allowed & (runs.run["loss"] == technique)[:, None])
        for calibration, how in CALIBRATIONS.items():
            yield _frontier(runs, rows, epochs, "test", how) | {
                "reading": "published",
                "calibration": calibration,
                "controls": 1,
            }


def _validated_frontiers(runs: _Runs) -> Iterator[dict[str, Any]]:
    """Take the frontier of each split on validation; its points are read on the test set."""
    seeds, losses = runs.run["split_seed"].tolist(), runs.run["loss"].tolist()
    budgets = sorted({1, *collections.Counter(zip(losses, seeds, strict=True)).values()})
    for seed in dict.fromkeys(seeds):
        own = runs.run["split_seed"] == seed
        allowed = runs.within("val", own)
        for technique in dict.fromkeys(losses):
            for controls in budgets if technique == "ce" else [1]:
                some = (runs.run["loss"] == technique) & own
                if technique == "ce":
                    some &= runs.control < controls
                rows, epochs = np.nonzero(allowed & some[:, None])
                for calibration, how in CALIBRATIONS.items():
                    yield _frontier(runs, rows, epochs, "val", how) | {
                        "reading": "validated",
                        "calibration": calibration,
                        "controls": controls,
                    }


def _frontier(
    runs: _Runs, rows: NDArray[Any], epochs: NDArray[Any], part: str, how: str | None
) -> dict[str, Any]:
    x, y = (runs.columns[run_column(part, m, how)][rows, epochs] for m in PLANE)
    kept = pareto_mask(np.column_stack([x, y]).astype(np.float64))
    return runs.described(rows[kept], epochs[kept], how, PLANE) | {
        run_column("val", m): runs.columns[run_column("val", m, how)][rows[kept], epochs[kept]]
        for m in PLANE
    }


def _facts(runs: _Runs, store: Store, parts: Sequence[RunPart], data: Dataset) -> dict[str, Any]:
    sweep, technique = store.sweep, runs.run["loss"]
    usual, ce = runs.control == 0, technique == "ce"
    splits = {}
    for seed in sweep.seeds:
        own = runs.run["split_seed"] == seed
        within = runs.within("val", own)
        split = data.split(seed, stratify=sweep.stratify)
        splits[str(seed)] = {
            "best_val_accuracy": runs.best_accuracy("val", own),
            "reference": {part: runs.medians(own & ce, within, part) for part in ("test", "val")},
            # cross-entropy's best values over its epochs, before and after exact temperatures
            "best_ce": {
                calibration: {
                    metric: float(
                        runs.value(run_column("test", metric, how))[own & ce & usual].min()
                    )
                    for metric in ("pe", "ece15", "ece10")
                }
                for calibration, how in CALIBRATIONS.items()
            },
            # PE of the true labels, and so of a perfect classifier
            "label_oracle_pe": proportional_equality(
                split.test.y,
                np.eye(2)[split.test.y],
                sensitive_features=split.test.group,
                base_rates=group_base_rates(split.train.y, sensitive_features=split.train.group),
            ),
        }
    a, y = data.group, data.y
    infinite = np.isinf(runs.columns["test_pe_deterministic"])
    dead = runs.columns["test_dead"]
    return {
        "dataset": sweep.dataset,
        "sweep": sweep.to_dict(),
        "slack": SLACK,
        "runs": {
            t: int(((technique == t) & (runs.run["split_seed"] == sweep.seeds[0])).sum())
            for t in sweep.loss
        },
        "data": {
            "fingerprint": store.data,
            "rows": len(y),
            "columns": data.X.shape[1],
            "a1": float((a == 1).mean()),
            "y1_a0": float((y[a == 0] == 1).mean()),
            "y1_a1": float((y[a == 1] == 1).mean()),
        },
        "floors": pe_floors(data),
        "best_test_accuracy": runs.best_accuracy("test", usual),
        "reference": runs.medians(usual & ce, runs.within("test", usual), "test"),
        "splits": splits,
        "diverged": int(runs.columns["diverged"][:, -1].sum()),
        # share of epochs whose deterministic PE is infinite: a class is never predicted for a group
        "infinite_pe_deterministic": {
            t: float(infinite[technique == t].mean()) for t in sweep.loss
        },
        # share of runs that end with logits of 0 on most test rows
        "dead": {t: float((dead[technique == t, -1] > 0.5).mean()) for t in sweep.loss},
        "versions": _made_with([versions(store.path(part.key)) for part in parts]),
    }


def _made_with(each: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the versions that made the parts; all of them where they differ."""
    # a part that does not say what processor made it counts as made here
    each = [{"processor": processor()} | made for made in each]
    names = dict.fromkeys(name for made in each for name in made)
    return {
        name: " and ".join(sorted({made[name] for made in each if name in made})) for name in names
    }


def _stacked(blocks: Sequence[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """Put blocks of columns below each other; a single value stands for a whole column."""
    sizes = [len(block["epoch"]) for block in blocks]
    found = {}
    for name in blocks[0]:
        values = [
            b[name] if isinstance(b[name], np.ndarray) else np.full(n, b[name], object)
            for b, n in zip(blocks, sizes, strict=True)
        ]
        whole = np.concatenate(values)
        found[name] = whole.astype(np.int64) if name == "controls" else whole
    return found


def _numpy(table: pa.Table) -> dict[str, NDArray[Any]]:
    return {
        name: np.asarray(table[name].to_pylist(), dtype=object)
        if str(table.schema.field(name).type).startswith("dictionary")
        else table[name].to_numpy()
        for name in table.column_names
    }
