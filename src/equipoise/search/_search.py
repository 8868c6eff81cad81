"""Every trade-off of PE, ECE and accuracy on one's own data, and the model at a chosen point."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from equipoise.calibration import GroupTemperatureScaling
from equipoise.datasets import Part, Preprocessor, Split, shuffled, split_rows
from equipoise.search._choice import within_slack
from equipoise.search._results import Objective, Tradeoffs, Trial
from equipoise.training import GroupwiseMLPClassifier, checked_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["POOLED", "FrontierSearch"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POOLED = "(small groups)"
"""The group that groups below the minimum size are pooled into."""

BLOCK = 64
"""Configurations that train at a time; of a search that is stopped, whole blocks are kept."""

WEIGHTS = (0.0, 0.5, 1.0)
"""The steps t of `rho="auto"`, from equal weights to the groups' shares."""


class _Stopped(Exception):
    """The time is up."""


class FrontierSearch(ClassifierMixin, BaseEstimator):
    """Train a grid of configurations, and choose among the best trade-offs.

    The rows are split 6:1:1 into training, validation and test, several times over. All
    configurations train on each split in one stacked program. Choices are made on validation,
    averaged over the splits; test figures are read of what was chosen only.

    Parameters
    ----------
    techniques
        "all", or some of `equipoise.training.LOSSES`.
    rho
        Weights of the groups in the loss. "auto": from equal weights to the groups' shares,
        (1 - t) / G + t * share for t = 0, 1/2, 1. Otherwise what `GroupwiseMLPClassifier` takes
        ("equal", "share", a number, a dict), or a list of these.
    lam
        Strengths of the calibration term.
    seeds
        Number of splits, each with its own initial weights.
    slack
        Accuracy that may be given up: what is chosen is within this of the best.
    calibrate
        Calibrations to consider: None, "common" and "group".
    objective
        What `predict` and `predict_proba` use: see `select`.
    control
        Whether cross-entropy gets as many runs as a technique, from other initial weights. Without
        that, the best of many runs always looks better than the one it is compared with.
    cv
        Folds instead of random splits: a number or a scikit-learn splitter. Each fold is the test
        part once, and an eighth of the other rows validation.
    epochs, hidden_layer_sizes, learning_rate, batch_size
        As in `GroupwiseMLPClassifier`; every epoch is a candidate.
    min_group_size, small_groups
        What to do with groups of fewer rows: "pool" them into one (a single one stays by itself),
        "keep" them, or "error". Pooling is reported as a warning.
    shrinkage, unseen_group, sensitive_columns
        As in `GroupwiseMLPClassifier`.
    refit
        Whether `fit` ends with the model of the default choice, trained on all rows.
    time_limit
        Seconds after which the search stops and keeps what is done.
    progress
        True draws a bar on stderr; a function is called with the runs x epochs done and in all.
    random_state
        Seed of splits, initial weights and batches.

    Attributes
    ----------
    results_ : pandas frame with a row per configuration, split and epoch
    frontier_ : pandas frame of the points on the frontier of validation PE and ECE, with their
        test figures, 95% intervals over the splits and the frequency of being on the frontier
    verdict_ : str, whether the choice beats cross-entropy given as many runs
    comparison_ : dict, the numbers behind it
    best_estimator_ : the model of the default choice
    pooled_ : dict from group to its rows, of the groups that were pooled
    stopped_ : bool, whether the search was stopped before its end
    classes_, groups_ : labels, and groups after pooling

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 3)), rng.choice(["f", "m"], 400)
    >>> y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    >>> search = FrontierSearch(("ce", "mmce"), lam=(1.0,), seeds=2, epochs=5)
    >>> model = search.fit(X, y, sensitive_features=a).select("ece")
    >>> model.predict_proba(X[:2], sensitive_features=a[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        techniques: str | Sequence[str] = "all",
        rho: Any = "auto",
        lam: Sequence[float] = (0.5, 2.0, 10.0),
        *,
        seeds: int = 3,
        slack: float = 0.05,
        calibrate: Sequence[str | None] = (None, "group"),
        objective: Objective = "balanced",
        control: bool = True,
        cv: Any = None,
        epochs: int = 50,
        hidden_layer_sizes: tuple[int, ...] = (128, 64),
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        min_group_size: int = 30,
        small_groups: Literal["pool", "keep", "error"] = "pool",
        shrinkage: float = 20.0,
        unseen_group: Literal["error", "global", "mixture"] = "error",
        sensitive_columns: str | list[str] | None = None,
        refit: bool = True,
        time_limit: float | None = None,
        progress: Callable[[int, int], None] | bool = False,
        random_state: Any = None,
    ) -> None:
        self.techniques = techniques
        self.rho = rho
        self.lam = lam
        self.seeds = seeds
        self.slack = slack
        self.calibrate = calibrate
        self.objective = objective
        self.control = control
        self.cv = cv
        self.epochs = epochs
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.min_group_size = min_group_size
        self.small_groups = small_groups
        self.shrinkage = shrinkage
        self.unseen_group = unseen_group
        self.sensitive_columns = sensitive_columns
        self.refit = refit
        self.time_limit = time_limit
        self.progress = progress
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Say that missing values are fine."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # --- fit ---

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Train the grid on every split.

        Ctrl-C, or the time limit, stops the search: what is done is kept and can be chosen from.

        Parameters
        ----------
        X
            (n, features) numbers; NaN is imputed.
        y
            Labels, of any coding.
        sensitive_features
            One column, or several whose intersection is meant. Without groups there is no PE, and
            every named objective is the ECE.
        """
        started = time.monotonic()
        self._check_params()
        rows = checked_rows(self, X, y, sensitive_features)
        self.classes_, self.groups_ = rows.classes, list(rows.groups)
        members = self._pool(rows.members)
        random = check_random_state(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        splits = self._splits(rows.X, rows.codes, members, seed)
        share = np.bincount(members, minlength=max(len(self.groups_), 1)) / len(members)
        self._found = self._train(splits, self._grid(share), seed, started)
        # kept for models that are chosen later, and trained on all rows
        self._rows, self._members, self._seed = rows, members, seed
        self.verdict_, self.comparison_ = self._found.verdict(self.objective, self.slack)
        self.__dict__.pop("best_estimator_", None)
        if self.refit:
            self.best_estimator_ = self.select()
        return self

    def _check_params(self) -> None:
        from equipoise.training import LOSSES

        unknown = [t for t in self._techniques() if t not in LOSSES]
        if unknown:
            raise ValueError(f"unknown technique {unknown[0]!r}; there are {', '.join(LOSSES)}")
        if not self._techniques() or not len(self.lam):
            raise ValueError("techniques and lam must name at least one each")
        for name in ("seeds", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        bad = [c for c in self.calibrate if c not in (None, "common", "group")]
        if bad or not len(self.calibrate):
            raise ValueError(
                f"calibrate must list None, 'common' or 'group', got {self.calibrate!r}"
            )
        if self.small_groups not in ("pool", "keep", "error"):
            raise ValueError(
                f"small_groups must be 'pool', 'keep' or 'error', got {self.small_groups!r}"
            )
        if not callable(self.objective) and self.objective not in ("balanced", "pe", "ece"):
            raise ValueError(
                "objective must be 'balanced', 'pe', 'ece' or a function of a row, "
                f"got {self.objective!r}"
            )
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive seconds, got {self.time_limit!r}")
        within_slack(np.zeros(1), self.slack)
        self._model("ce", None, 1.0, self.epochs, None)._check_params()

    def _techniques(self) -> list[str]:
        from equipoise.training import LOSSES

        if isinstance(self.techniques, str):
            return list(LOSSES) if self.techniques == "all" else [self.techniques]
        return list(dict.fromkeys(self.techniques))

    def _pool(self, members: Ints) -> Ints:
        """Put groups below the minimum size together, by the policy."""
        count = np.bincount(members, minlength=len(self.groups_))
        small = [g for g, n in enumerate(count) if self.groups_ and n < self.min_group_size]
        self.pooled_: dict[Hashable, int] = {}
        if not small or self.small_groups == "keep":
            return members
        listed = ", ".join(f"{self.groups_[g]!r} ({count[g]} rows)" for g in small)
        if self.small_groups == "error":
            raise ValueError(
                f"groups below min_group_size={self.min_group_size}: {listed}; merge them, or "
                "pass small_groups='pool' or 'keep'"
            )
        pooled = len(small) > 1
        warnings.warn(
            f"groups below min_group_size={self.min_group_size}: {listed}; "
            + (
                "they are pooled into one"
                if pooled
                else "its figures rest on few rows, and its temperature is shrunk towards the "
                "common one"
            ),
            UserWarning,
            stacklevel=3,
        )
        if not pooled:
            return members
        self.pooled_ = {self.groups_[g]: int(count[g]) for g in small}
        kept = [g for g in range(len(self.groups_)) if g not in small]
        place = np.full(len(self.groups_), len(kept))
        place[kept] = np.arange(len(kept))
        self.groups_ = [*(self.groups_[g] for g in kept), POOLED]
        return np.asarray(place[members], np.int64)

    def _grid(self, share: Floats) -> list[Trial]:
        """Return all configurations, cross-entropy first and the others mixed."""
        from equipoise.training import LOSSES

        rhos = self._rhos(share)
        found = []
        for name in self._techniques():
            if name == "ce":
                continue
            lams = [float(v) for v in self.lam] if LOSSES[name].added else [1.0]
            found += [Trial(name, rho, lam) for rho, lam in itertools.product(rhos, lams)]
        # a search that is stopped has then tried some of every technique
        order = np.random.default_rng(0).permutation(len(found))
        budget = max((sum(t.technique == n for t in found) for n in self._techniques()), default=1)
        controls = max(1, budget) if self.control else int("ce" in self._techniques())
        return [
            *(Trial("ce", None, 1.0, j) for j in range(controls)),
            *(found[i] for i in order),
        ]

    def _rhos(self, share: Floats) -> list[tuple[float, ...] | None]:
        if len(share) < 2:
            return [None]
        if isinstance(self.rho, str) and self.rho == "auto":
            steps = [tuple((1 - t) / len(share) + t * share) for t in WEIGHTS]
            return list(dict.fromkeys(tuple(round(float(w), 12) for w in s) for s in steps))
        given = self.rho if isinstance(self.rho, list | tuple) else [self.rho]
        found: list[tuple[float, ...] | None] = []
        for rho in given:
            model = self._model("mmce", rho, 1.0, 1, None)
            model.groups_ = list(self.groups_)
            found.append(model._group_weights(share))
        return found

    def _splits(self, X: Floats, y: Ints, group: Ints, seed: int) -> list[Split]:
        cells = group * len(self.classes_) + y
        if self.cv is None:
            number = self.seeds if len(y) >= 8 else 0
            cuts = [split_rows(len(y), seed + s, cells) for s in range(number)]
        else:
            cuts = []
            for s, (rest, test) in enumerate(check_cv(self.cv, y, classifier=True).split(X, y)):
                order = rest[shuffled(len(rest), seed + s, cells[rest])]
                val, train = np.split(order, [max(1, len(rest) // 8)])
                cuts.append((np.sort(train), np.sort(val), np.sort(test)))
        whole = all(len(np.unique(y[train])) == len(self.classes_) for train, _, _ in cuts)
        if not cuts or not whole:
            warnings.warn(
                f"{len(y)} rows are too few to hold any out: choices are made on the training rows",
                UserWarning,
                stacklevel=3,
            )
            every = np.arange(len(y))
            cuts = [(every, every, every)]
        return [_prepared(X, y, group, cut) for cut in cuts]

    def _train(
        self, splits: list[Split], trials: list[Trial], seed: int, started: float
    ) -> Tradeoffs:
        import torch

        from equipoise.training import CHUNK, Bar, Config, train_stack

        most = 1 + max(t.control for t in trials)
        inits = np.random.default_rng(seed).integers(2**31, size=(len(splits), most))
        columns: dict[str, Floats] = {}
        done, self.stopped_ = 0, False
        total = len(trials) * len(splits) * self.epochs
        with Bar(self.progress, total, len(trials) * len(splits), "searching") as advance:
            try:
                for block in np.array_split(np.arange(len(trials)), -(-len(trials) // BLOCK)):
                    # as many chunks as threads, all of one size
                    chunk = min(CHUNK, max(8, -(-len(block) // torch.get_num_threads())))
                    for s, split in enumerate(splits):
                        seen = 0

                        def step(done: int, _: int) -> None:
                            nonlocal seen
                            advance(done - seen)
                            seen = done
                            if (
                                self.time_limit is not None
                                and time.monotonic() - started > self.time_limit
                            ):
                                raise _Stopped

                        configs = [
                            Config(
                                trials[i].technique,
                                trials[i].rho,
                                trials[i].lam,
                                int(inits[s, trials[i].control]),
                                float(self.learning_rate),
                            )
                            for i in block
                        ]
                        result = train_stack(
                            split,
                            configs,
                            epochs=self.epochs,
                            batch_size=self.batch_size,
                            hidden=self._model("ce", None, 1.0, 1, None)._hidden(),
                            split_seed=seed + s,
                            chunk=chunk,
                            progress=step,
                        )
                        for name, values in result.columns.items():
                            shape = (len(trials), len(splits), self.epochs)
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
        return self._tradeoffs().frontier(self.slack)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the frontier of each technique on validation, and the default choice."""
        from equipoise.plots import plot_frontier

        table = self._tradeoffs().table()
        allowed = within_slack(table["val_accuracy"], self.slack)
        pairs = zip(table["technique"][allowed], table["calibrate"][allowed], strict=True)
        points = np.column_stack([table["val_pe"], table["val_ece"]])
        return plot_frontier(
            points[allowed],
            technique=[t if c == "none" else f"{t} + {c}" for t, c in pairs],
            chosen=points[self._found.choice(self.objective, self.slack)["point"]],
            ax=ax,
            xlabel="PE on validation",
            ylabel="ECE on validation",
        )

    # --- models ---

    def select(
        self,
        objective: Objective | None = None,
        slack: float | None = None,
        *,
        technique: str | None = None,
    ) -> GroupwiseMLPClassifier:
        """Choose on validation, and return the model, trained on all rows.

        Parameters
        ----------
        objective
            "pe", "ece", "balanced" (their sum in units of cross-entropy's medians), or a function
            that takes a row and returns a number, lower being better. The row has technique, rho,
            lam, calibrate, epoch, and val_accuracy, val_pe, val_ece, val_log_loss and
            val_pe_deterministic, averaged over the splits.
        slack
            How far below the best accuracy a row may be.
        technique
            Choose among the rows of this technique only.

        Returns
        -------
        A fitted `GroupwiseMLPClassifier`; `choice_` is the row it was made from.
        """
        row = self._tradeoffs().choice(
            self.objective if objective is None else objective,
            self.slack if slack is None else slack,
            technique,
        )
        weights = None
        if row["rho"] is not None:
            weights = dict(zip(self.groups_, row["rho"], strict=True))
        how = None if row["calibrate"] == "none" else row["calibrate"]
        model = self._model(row["technique"], weights, row["lam"], row["epoch"], how)
        rows, own = self._rows, None
        if self.groups_:
            own = np.empty(len(self._members), object)
            own[:] = [self.groups_[g] for g in self._members]
        model.fit(rows.frame, rows.y, sensitive_features=own)
        model.sensitive_columns = self.sensitive_columns
        if self.pooled_ and how == "group":
            _unpool(model, self.pooled_)
        model.choice_ = {name: value for name, value in row.items() if name != "point"}
        return model

    def _model(
        self, technique: str, rho: Any, lam: float, epochs: int, calibrate: Any
    ) -> GroupwiseMLPClassifier:
        return GroupwiseMLPClassifier(
            technique,
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


def _prepared(X: Floats, y: Ints, group: Ints, cut: tuple[Ints, Ints, Ints]) -> Split:
    """Return the parts of a split, imputed and standardised on the first."""
    preprocessor = Preprocessor.fit(X[cut[0]], [f"x{j}" for j in range(X.shape[1])])
    train, val, test = (
        Part(preprocessor.transform(X[rows]), y[rows], group[rows], rows) for rows in cut
    )
    return Split(train, val, test, preprocessor)


def _unpool(model: GroupwiseMLPClassifier, pooled: dict[Hashable, int]) -> None:
    """Give each pooled group the temperature of the pool, under its own name."""
    scaling, total = model.scaling_, sum(pooled.values())
    assert isinstance(scaling, GroupTemperatureScaling)
    temperature, share = scaling.temperatures_.pop(POOLED), scaling.shares_.pop(POOLED)
    trust = scaling.trust_.pop(POOLED)
    for group, rows in pooled.items():
        scaling.temperatures_[group], scaling.trust_[group] = temperature, trust
        scaling.shares_[group] = share * rows / total
