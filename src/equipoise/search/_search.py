"""The search for trade-offs of PE, ECE and accuracy, and the model at a chosen point."""

from __future__ import annotations

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from equipoise._files import write_model
from equipoise._inputs import decode, from_plain, shown, to_plain
from equipoise.calibration import GroupTemperatureScaling, Shrinkage
from equipoise.datasets import Split
from equipoise.search._choice import check_objective, within_slack
from equipoise.search._plan import POOLED, pooled_groups, splits_of, trials_of
from equipoise.search._results import Objective, Tradeoffs, Trial
from equipoise.training import (
    CALIBRATIONS,
    CHUNK,
    LOSS_NAMES,
    Bar,
    Config,
    GroupEstimator,
    GroupwiseMLPClassifier,
    checked_rows,
    group_shares,
    reference_place,
    train_stack,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 64
"""Configurations that train at a time; of a search that is stopped, whole blocks are kept."""


class _Stopped(Exception):
    """The time is up."""


class FrontierSearch(GroupEstimator):
    """Train a grid of configurations, and choose among the best trade-offs.

    The rows are split 6:1:1 into training, validation and test, several times over. All
    configurations train on each split in one stacked program. Choices are made on validation,
    averaged over the splits; the test sets are read for the frontier and the choice only.

    Parameters
    ----------
    loss
        "all", or some of `equipoise.training.LOSSES`.
    rho
        Weights of the groups in the loss. "auto": from equal weights to the groups' shares,
        (1 - t) / G + t * share for t = 0, 1/2, 1. Otherwise what `GroupwiseMLPClassifier` takes
        ("equal", "share", a number, a dict), or a list of these.
    lam
        Strengths of the calibration term.
    n_seeds
        Number of splits, each with its own initial weights.
    slack
        Largest loss of accuracy accepted, against the best validation accuracy.
    calibrate
        Calibrations to consider: None, "common" and "group".
    objective
        Objective to minimise by the default choice: see `select`.
    control
        Whether cross-entropy, the control, gets as many runs as the loss with most, from other
        initial weights. The best of many runs looks better than a single run by chance alone.
    cv
        Folds instead of random splits: a number or a scikit-learn splitter. Each fold is the test
        part once, and an eighth of the other rows validation.
    max_epochs, hidden_layer_sizes, learning_rate, batch_size
        As in `GroupwiseMLPClassifier`; every epoch is a candidate.
    min_group_size, small_groups
        Groups with fewer rows are small: "pool" merges them into one, with a warning (a single
        small group stays as it is); "keep"; or "error".
    shrinkage, unseen_group, sensitive_columns
        As in `GroupwiseMLPClassifier`.
    reference_group
        The group that PE compares the others with: by default the one with most rows, of several
        the first in sorted order.
    refit
        Whether `fit` ends with the model of the default choice, trained on all rows.
    time_limit
        Seconds after which the search stops, keeping the finished configurations.
    progress
        True draws a bar on stderr; a function is called with the runs x epochs done and in all.
    random_state
        Seed of splits, initial weights and batches.

    Attributes
    ----------
    results_ : pandas frame with a row per configuration, split and epoch
    frontier_ : pandas frame of the points on the frontier of validation PE and ECE, with their
        test figures, 95% intervals over the splits, the frequency of being on the frontier, and
        the reference group of PE
    verdict_ : str, whether the choice beats cross-entropy given as many runs
    comparison_ : dict, the numbers behind the verdict
    best_estimator_ : the model of the default choice
    pooled_ : dict from group to its rows, of the groups that were pooled
    stopped_ : bool, whether the search was stopped before its end
    classes_, groups_ : labels, and groups after pooling
    reference_group_ : the group that PE compares the others with; None without groups

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 3)), rng.choice(["f", "m"], 400)
    >>> y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    >>> search = FrontierSearch(("ce", "mmce"), lam=(1.0,), n_seeds=2, max_epochs=5)
    >>> model = search.fit(X, y, sensitive_features=a).select("ece")
    >>> model.predict_proba(X[:2], sensitive_features=a[:2]).shape
    (2, 2)
    """

    _format = "equipoise.FrontierSearch/1"

    def __init__(
        self,
        loss: str | Sequence[str] = "all",
        rho: Any = "auto",
        lam: Sequence[float] = (0.5, 2.0, 10.0),
        *,
        n_seeds: int = 3,
        slack: float = 0.05,
        calibrate: Sequence[str | None] = (None, "group"),
        objective: Objective = "balanced",
        control: bool = True,
        cv: Any = None,
        max_epochs: int = 50,
        hidden_layer_sizes: tuple[int, ...] = (128, 64),
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        min_group_size: int = 30,
        small_groups: Literal["pool", "keep", "error"] = "pool",
        shrinkage: Shrinkage = "auto",
        unseen_group: Literal["error", "global", "mixture"] = "error",
        sensitive_columns: str | list[str] | None = None,
        reference_group: Any = None,
        refit: bool = True,
        time_limit: float | None = None,
        progress: Callable[[int, int], None] | bool = False,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.rho = rho
        self.lam = lam
        self.n_seeds = n_seeds
        self.slack = slack
        self.calibrate = calibrate
        self.objective = objective
        self.control = control
        self.cv = cv
        self.max_epochs = max_epochs
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.min_group_size = min_group_size
        self.small_groups = small_groups
        self.shrinkage = shrinkage
        self.unseen_group = unseen_group
        self.sensitive_columns = sensitive_columns
        self.reference_group = reference_group
        self.refit = refit
        self.time_limit = time_limit
        self.progress = progress
        self.random_state = random_state

    # --- fit ---

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train the grid on every split.

        Ctrl-C or the time limit stops the search; finished configurations are kept.

        Parameters
        ----------
        X
            (n, features) numbers; NaN is imputed.
        y
            Labels, of any coding.
        sensitive_features
            The groups: one column, or several for their intersections. Without groups there is no
            PE, and every named objective is the ECE.
        sample_weight
            (n,) weights in the losses, the metrics and the temperatures, as in
            `GroupwiseMLPClassifier`.
        """
        started = time.monotonic()
        self._check_params()
        rows = checked_rows(self, X, y, sensitive_features, sample_weight)
        place = reference_place(self.reference_group, rows.group, rows.groups)
        members, self.groups_, self.pooled_ = pooled_groups(
            rows, self.min_group_size, self.small_groups
        )
        self.reference_group_ = self._reference(rows.groups[place]) if rows.groups else None
        self.classes_ = rows.classes
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        share = group_shares(members, rows.weight, len(self.groups_))
        trials = trials_of(
            self._loss_names(), self.rho, self.lam, self.groups_, share, control=self.control
        )
        splits = splits_of(rows, members, self.cv, self.n_seeds, seed)
        self._found = self._train(splits, trials, seed, started)
        # kept for `select`, which trains on all rows
        self._rows, self._members, self._seed = rows, members, seed
        self.verdict_, self.comparison_ = self._found.verdict(self.objective, self.slack)
        if len(self.groups_) > 1 and self.objective != "ece":
            self.verdict_ += f" PE compares with group {shown(self.reference_group_)!r}."
            self.comparison_["reference_group"] = self.reference_group_
        self.__dict__.pop("best_estimator_", None)
        if self.refit:
            self.best_estimator_ = self.select()
        return self

    def _reference(self, group: Hashable) -> Hashable:
        """Return the reference group after pooling."""
        if group not in self.pooled_:
            return group
        if self.reference_group is not None:
            raise ValueError(
                f"reference_group {group!r} has fewer than min_group_size={self.min_group_size} "
                "rows, so it is pooled; name a larger group, or pass small_groups='keep'"
            )
        return POOLED  # the largest is small, and so are all

    def _check_params(self) -> None:
        names = self._loss_names()
        if not names or not len(self.lam):
            raise ValueError("loss and lam must name at least one each")
        for name in names:
            self._model(name, None, 1.0, self.max_epochs, None)._check_params()
        if self.n_seeds < 1:
            raise ValueError(f"n_seeds must be at least 1, got {self.n_seeds!r}")
        if not set(self.calibrate) <= set(CALIBRATIONS) or not len(self.calibrate):
            raise ValueError(
                f"calibrate must list None, 'common' or 'group', got {self.calibrate!r}"
            )
        if self.small_groups not in ("pool", "keep", "error"):
            raise ValueError(
                f"small_groups must be 'pool', 'keep' or 'error', got {self.small_groups!r}"
            )
        if not callable(self.objective):
            check_objective(self.objective)
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive seconds, got {self.time_limit!r}")
        within_slack(np.zeros(1), self.slack)

    def _loss_names(self) -> list[str]:
        if isinstance(self.loss, str):
            return list(LOSS_NAMES) if self.loss == "all" else [self.loss]
        return list(dict.fromkeys(self.loss))

    def _train(
        self, splits: list[Split], trials: list[Trial], seed: int, started: float
    ) -> Tradeoffs:
        import torch

        most = 1 + max(t.control for t in trials)
        inits = np.random.default_rng(seed).integers(2**31, size=(len(splits), most))
        shape = (len(trials), len(splits), self.max_epochs)
        columns: dict[str, Floats] = {}
        done, self.stopped_, rate = 0, False, float(self.learning_rate)
        end = np.inf if self.time_limit is None else started + self.time_limit
        reference = self.groups_.index(self.reference_group_) if self.groups_ else 0
        with Bar(self.progress, math.prod(shape), len(trials) * len(splits), "searching") as bar:

            def train(split: Split, configs: list[Config], split_seed: int) -> dict[str, Floats]:
                seen = 0

                def step(done: int, _: int) -> None:
                    nonlocal seen
                    bar(done - seen)
                    seen = done
                    if time.monotonic() > end:
                        raise _Stopped

                return train_stack(
                    split,
                    configs,
                    max_epochs=self.max_epochs,
                    batch_size=self.batch_size,
                    hidden_layer_sizes=self._hidden(),
                    split_seed=split_seed,
                    reference=reference,
                    # as many chunks as threads, all of one size
                    chunk=min(CHUNK, max(8, -(-len(configs) // torch.get_num_threads()))),
                    progress=step,
                ).columns

            try:
                for block in np.array_split(np.arange(len(trials)), -(-len(trials) // BLOCK)):
                    for s, split in enumerate(splits):
                        configs = [
                            Config(t.loss, t.rho, t.lam, int(inits[s, t.control]), rate)
                            for t in (trials[i] for i in block)
                        ]
                        for name, values in train(split, configs, seed + s).items():
                            columns.setdefault(name, np.full(shape, np.nan))[block, s] = values
                    done = int(block[-1]) + 1
            except (_Stopped, KeyboardInterrupt):
                self.stopped_ = True
        if not done:
            raise ValueError(
                "the search was stopped before anything was finished; "
                "give it more time, or try fewer configurations"
            )
        if self.stopped_:
            warnings.warn(
                f"the search was stopped; {done} of {len(trials)} configurations are "
                "done and can be chosen from",
                UserWarning,
                stacklevel=3,
            )
        kept = {name: values[:done] for name, values in columns.items()}
        return Tradeoffs(trials[:done], kept, tuple(self.calibrate))

    # --- what was found ---

    def _tradeoffs(self) -> Tradeoffs:
        check_is_fitted(self, "_found")
        return self._found

    @property
    def results_(self) -> pd.DataFrame:
        """Every configuration, split and epoch, with all columns of `train_stack`."""
        return self._tradeoffs().frame()

    @property
    def frontier_(self) -> pd.DataFrame:
        """The frontier of validation PE and ECE within the slack, and its test figures."""
        frame = self._tradeoffs().frontier(self.slack)
        return frame.assign(reference_group=[self.reference_group_] * len(frame))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the frontier of each loss on validation, and the default choice."""
        from equipoise.plots import plot_frontier

        table = self._tradeoffs().table()
        allowed = within_slack(table["val_accuracy"], self.slack)
        pairs = zip(table["loss"][allowed], table["calibrate"][allowed], strict=True)
        points = np.column_stack([table["val_pe"], table["val_ece"]])
        against = ""
        if self.groups_:  # a dollar sign would begin a formula
            against = f", compared with {shown(self.reference_group_)}".replace("$", r"\$")
        return plot_frontier(
            points[allowed],
            loss=[t if c == "none" else f"{t} + {c}" for t, c in pairs],
            chosen=points[self._found.choice(self.objective, self.slack)["point"]],
            ax=ax,
            xlabel=f"PE on validation{against}",
            ylabel="ECE on validation",
        )

    # --- models ---

    def select(
        self,
        objective: Objective | None = None,
        slack: float | None = None,
        *,
        loss: str | None = None,
    ) -> GroupwiseMLPClassifier:
        """Choose on validation, and return the model, trained on all rows.

        Parameters
        ----------
        objective
            "pe", "ece", "balanced" (their sum in units of cross-entropy's medians), or a function
            that takes a row and returns a number, lower being better. The row has loss, rho,
            lam, calibrate, epoch, and val_accuracy, val_pe, val_ece, val_log_loss and
            val_pe_deterministic, averaged over the splits.
        slack
            Largest loss of accuracy accepted, against the best row.
        loss
            Choose among the rows of this loss only.

        Returns
        -------
        A fitted `GroupwiseMLPClassifier`; `choice_` is the row it was made from.
        """
        tradeoffs = self._tradeoffs()
        if not hasattr(self, "_rows"):
            raise ValueError(
                "a search that was loaded has no rows, and select() trains on them; call fit again"
            )
        row = tradeoffs.choice(
            self.objective if objective is None else objective,
            self.slack if slack is None else slack,
            loss,
        )
        weights = row["rho"] and dict(zip(self.groups_, row["rho"], strict=True))
        how = None if row["calibrate"] == "none" else row["calibrate"]
        model = self._model(row["loss"], weights, row["lam"], row["epoch"], how)
        rows = self._rows
        own = decode(self._members, self.groups_) if self.groups_ else None
        model.fit(rows.X, rows.y, sensitive_features=own, sample_weight=rows.weight)
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        model.sensitive_columns = self.sensitive_columns
        if self.pooled_ and how == "group":
            _unpool(model, self.pooled_)
        model.choice_ = {name: value for name, value in row.items() if name != "point"}
        return model

    def _model(
        self, loss: str, rho: Any, lam: float, epochs: int, calibrate: Any
    ) -> GroupwiseMLPClassifier:
        return GroupwiseMLPClassifier(
            loss,
            rho,
            lam,
            hidden_layer_sizes=self.hidden_layer_sizes,
            learning_rate=self.learning_rate,
            max_epochs=epochs,
            batch_size=self.batch_size,
            early_stopping=None,
            calibrate=calibrate,
            shrinkage=self.shrinkage,
            unseen_group=self.unseen_group,
            reference_group=getattr(self, "reference_group_", None),
            random_state=getattr(self, "_seed", None),
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels that `best_estimator_` predicts."""
        return self._best().predict(X)

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the probabilities of `best_estimator_`."""
        return self._best().predict_proba(X, sensitive_features=sensitive_features)

    def _best(self) -> GroupwiseMLPClassifier:
        check_is_fitted(self, "_found")
        if not hasattr(self, "best_estimator_"):
            raise AttributeError("there is no model with refit=False; use select()")
        return self.best_estimator_

    # --- files ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters, results and the default model as one file, without the rows.

        After `load` all results are there and the default model predicts; `select` trains on the
        rows, so it needs another `fit`. A splitter `cv`, a function `progress` and a generator
        `random_state` cannot be written; `load` gives their defaults instead.
        """
        found = self._tradeoffs()
        if callable(self.objective):
            raise ValueError(
                "objective is a function, which cannot be saved; name one before that: "
                "set_params(objective='balanced')"
            )
        about = self._header() | {
            "pooled": [[to_plain(g), n] for g, n in self.pooled_.items()],
            "n_features": self.n_features_in_,
            "columns": list(found.columns),
            "trials": [to_plain(dataclasses.astuple(t)) for t in found.trials],
            "verdict": self.verdict_,
            "comparison": {k: to_plain(v) for k, v in self.comparison_.items()},
            "stopped": self.stopped_,
            "model": None,
        }
        arrays = {f"results.{name}": values for name, values in found.columns.items()}
        if hasattr(self, "best_estimator_"):
            choice = {k: to_plain(v) for k, v in self.best_estimator_.choice_.items()}
            about["model"], own = self.best_estimator_._to_file({"choice": choice})
            arrays |= {f"model.{name}": values for name, values in own.items()}
        write_model(path, about, arrays)

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.pooled_ = {from_plain(g): n for g, n in about["pooled"]}
        self.n_features_in_ = about["n_features"]
        self.verdict_, self.stopped_ = about["verdict"], about["stopped"]
        self.comparison_ = {k: from_plain(v) for k, v in about["comparison"].items()}
        trials = [Trial(*from_plain(t)) for t in about["trials"]]
        columns = {name: arrays[f"results.{name}"] for name in about["columns"]}
        shape = (len(trials), *columns["diverged"].shape[1:])
        if len(shape) != 3 or any(values.shape != shape for values in columns.values()):
            raise ValueError("its results do not fit its configurations")
        self._found = Tradeoffs(trials, columns, tuple(self.calibrate))
        if about["model"] is not None:
            own = {k.removeprefix("model."): v for k, v in arrays.items() if k[:6] == "model."}
            model = GroupwiseMLPClassifier._from_file(about["model"], own)
            model.choice_ = {k: from_plain(v) for k, v in model.extra_.pop("choice").items()}
            self.best_estimator_ = model


def _unpool(model: GroupwiseMLPClassifier, pooled: dict[Hashable, int]) -> None:
    """Give each pooled group the temperature of the pool, under its own name."""
    scaling, total = model.scaling_, sum(pooled.values())
    assert isinstance(scaling, GroupTemperatureScaling)
    temperature, share = scaling.temperatures_.pop(POOLED), scaling.shares_.pop(POOLED)
    trust = scaling.trust_.pop(POOLED)
    for group, rows in pooled.items():
        scaling.temperatures_[group], scaling.trust_[group] = temperature, trust
        scaling.shares_[group] = share * rows / total
