"""The search for trade-offs of PE, ECE and accuracy, and the model at a chosen point."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from equipoise._files import write_model
from equipoise._inputs import InputError, decode, from_plain, shown, to_plain
from equipoise.calibration import Shrinkage
from equipoise.search._choice import check_objective, within_slack
from equipoise.search._part import FORMAT, SearchData, Settings
from equipoise.search._plan import Trial, check_cuts, cuts_of, trials_of
from equipoise.search._pooling import POOLED, pooled_groups, unpool
from equipoise.search._race import PART, Race
from equipoise.search._results import Limits, Objective, Tradeoffs, clipped
from equipoise.search._saved import flat, nested, results_from_file, results_to_file
from equipoise.search._verdict import verdict
from equipoise.sweep import PartFolder, check_engine, run_stages
from equipoise.training import (
    LOSS_NAMES,
    SCALINGS,
    Bar,
    GroupEstimator,
    GroupwiseMLPClassifier,
    checked_rows,
    group_shares,
    quiet_calibration,
    reference_place,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NETWORKS = 8
"""Networks whose mean is the model of a choice: initial weights add noise to a single one."""


class FrontierSearch(GroupEstimator):
    """Train a grid of configurations, and choose among the best trade-offs.

    Each configuration trains on several splits of the rows. In every split a fifth of the rows is
    held out, and an eighth of the others is for validation: it chooses the epoch, by log-loss, and
    fits the calibrations. Candidates, a configuration with a calibration each, are compared by
    their means on held-out rows, shrunk for the noise of many candidates. Figures of the choice
    are nested: each held-out part is measured with what the other parts choose.

    Parameters
    ----------
    loss
        "all", or some of `equipoise.training.LOSSES`.
    rho
        Weights of the groups in the loss. "auto": None (the ungrouped loss), "equal" and "share".
        Otherwise what `GroupwiseMLPClassifier` takes, or a list of these.
    lam
        Strengths of the calibration term.
    n_seeds
        Number of splits: folds of random divisions of the rows into five.
    slack
        Largest loss of accuracy accepted, against the best candidate.
    log_loss_slack
        Largest increase of log-loss accepted, against the best candidate.
    calibrate
        Calibrations to consider, as in `GroupwiseMLPClassifier`: None, "common", "group", "bcts".
    objective
        Objective to minimise by the default choice: see `select`.
    control
        Whether cross-entropy, the control, gets as many runs as all other losses together, each
        from its own initial weights. The best of many runs looks better than one by chance alone.
    halving
        Whether half of the configurations are dropped after a fifth of the splits, and half of the
        rest after half of the splits: those farthest from the frontier so far.
    cv
        Folds instead: a number or a scikit-learn splitter.
    max_epochs, patience, hidden_layer_sizes, learning_rate, batch_size
        As in `GroupwiseMLPClassifier`; of each run the epoch with the least validation log-loss,
        averaged with its two neighbours, is measured.
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
        Seconds after which no more runs are made; finished runs are kept. The model is trained
        after that.
    folder
        Folder for finished runs. A search that was stopped or killed goes on from there when it is
        repeated. By default runs are kept in memory only.
    engine, address, workers
        Where to train: "local" or "ray", as in `equipoise.sweep.run`.
    progress
        True draws a bar on stderr; a function is called with the runs finished and in all.
    random_state
        Seed of splits, initial weights and batches.

    Attributes
    ----------
    results_ : pandas frame with a row per configuration, split and calibration
    candidates_ : pandas frame of the candidates that were run on all splits, with their means
        (shrunk) and whether they are within the slack
    frontier_ : pandas frame of the candidates on the frontier of PE and ECE; its test figures are
        of the splits that did not put them there, with 95% intervals
    choice_ : dict, the default choice, its figures with 95% intervals, and how sure it is
    verdict_ : str, whether anything beats cross-entropy given as many runs
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

    _format = "equipoise.FrontierSearch/2"

    def __init__(
        self,
        loss: str | Sequence[str] = "all",
        rho: Any = "auto",
        lam: Sequence[float] = (0.5, 2.0, 10.0),
        *,
        n_seeds: int = 10,
        slack: float = 0.05,
        log_loss_slack: float = 0.002,
        calibrate: Sequence[str | None] = SCALINGS,
        objective: Objective = "balanced",
        control: bool = True,
        halving: bool = True,
        cv: Any = None,
        max_epochs: int = 200,
        patience: int = 10,
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
        folder: str | os.PathLike[str] | None = None,
        engine: Literal["local", "ray"] = "local",
        address: str | None = None,
        workers: int | None = None,
        progress: Callable[[int, int], None] | bool = False,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.rho = rho
        self.lam = lam
        self.n_seeds = n_seeds
        self.slack = slack
        self.log_loss_slack = log_loss_slack
        self.calibrate = calibrate
        self.objective = objective
        self.control = control
        self.halving = halving
        self.cv = cv
        self.max_epochs = max_epochs
        self.patience = patience
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
        self.folder = folder
        self.engine = engine
        self.address = address
        self.workers = workers
        self.progress = progress
        self.random_state = random_state

    # --- fit ---

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train the grid on every split, and choose.

        Ctrl-C or the time limit stops the search; finished runs are kept.

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
        self._rows, self._members = rows, members  # for `select`, which trains on all rows
        self._seed = self._first_seed()
        data = self._data()
        share = group_shares(members, rows.weight, len(self.groups_))
        trials = trials_of(
            self._loss_names(), self.rho, self.lam, self.groups_, share, control=self.control
        )
        for name in ("choice_", "verdict_", "comparison_", "best_estimator_"):
            self.__dict__.pop(name, None)
        self._found = self._train(data, trials, started)
        self.choice_ = self._choice(self.objective, self._limits())
        self.verdict_, self.comparison_ = verdict(
            self._found, self._objective(), self._limits(), self.choice_
        )
        if len(self.groups_) > 1 and self._objective() != "ece":
            self.verdict_ += f" PE compares with group {shown(self.reference_group_)!r}."
            self.comparison_["reference_group"] = self.reference_group_
        costly = self.comparison_.get("costly", False)
        self.choice_["confidence"] = None if costly else self.comparison_.get("confidence")
        if self.refit:
            self.best_estimator_ = self.select()
        return self

    def _reference(self, group: Hashable) -> Hashable:
        """Return the reference group after pooling."""
        if group not in self.pooled_:
            return group
        if self.reference_group is not None:
            raise InputError(
                f"reference_group {group!r} has fewer than {self.min_group_size} rows "
                "(min_group_size), so it is pooled",
                "name a larger group, or pass small_groups='keep'",
                "name a larger group, or pass --small-groups keep",
            )
        return POOLED  # the largest is small, and so are all

    def _check_params(self) -> None:
        names = self._loss_names()
        if not names or not len(self.lam):
            raise ValueError("loss and lam must name at least one each")
        for name in names:
            self._model(name, None, 1.0, None)._check_params()
        wrong = [v for v in self.lam if not 0.0 <= v < math.inf]
        if wrong:
            raise ValueError(f"lam must be finite and not negative, got {wrong[0]!r}")
        if self.n_seeds < 1:
            raise ValueError(f"n_seeds must be at least 1, got {self.n_seeds!r}")
        if not set(self.calibrate) <= set(SCALINGS) or not len(self.calibrate):
            raise ValueError(
                "calibrate must list some of None, 'common', 'group' and 'bcts', got "
                f"{self.calibrate!r}"
            )
        if self.small_groups not in ("pool", "keep", "error"):
            raise ValueError(
                f"small_groups must be 'pool', 'keep' or 'error', got {self.small_groups!r}"
            )
        if not callable(self.objective):
            check_objective(self.objective)
        if self.objective == "balanced" and not self.control and "ce" not in names:
            raise ValueError(
                "objective 'balanced' is in units of cross-entropy, which is not among the losses; "
                "pass control=True, or objective='pe' or 'ece'"
            )
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive seconds, got {self.time_limit!r}")
        within_slack(np.zeros(1), self.slack)
        if not self.log_loss_slack >= 0:
            raise ValueError(f"log_loss_slack must not be negative, got {self.log_loss_slack!r}")
        check_engine(self.engine, self.address, self.workers)

    def _loss_names(self) -> list[str]:
        if isinstance(self.loss, str):
            return list(LOSS_NAMES) if self.loss == "all" else [self.loss]
        return list(dict.fromkeys(self.loss))

    def _objective(self) -> Objective:
        """Return the default objective; without groups there is no PE."""
        return self.objective if callable(self.objective) or len(self.groups_) > 1 else "ece"

    def _limits(self, slack: float | None = None) -> Limits:
        own = self.slack if slack is None else slack
        return Limits(float(own), float(self.log_loss_slack))

    def _first_seed(self) -> int:
        """Return a seed; without `random_state` that of the search that the folder holds."""
        most = np.iinfo(np.int32).max
        if self.folder is not None and self.random_state is None:
            # a new folder has none; a damaged one is refused when it is opened
            with suppress(OSError, ValueError, KeyError):
                seed = PartFolder(self.folder, "search").about["search"]["seed"]
                if isinstance(seed, int) and 0 <= seed < most:
                    return seed
        return int(check_random_state(self.random_state).randint(most))

    def _data(self) -> SearchData:
        rows, members = self._rows, self._members
        cuts = cuts_of(rows, members, self.cv, self.n_seeds, self._seed)
        needs_pe = self._objective() in ("pe", "balanced")
        check_cuts(cuts, rows, members, self.groups_, self._place(), needs_pe=needs_pe)
        return SearchData(rows, members, max(1, len(self.groups_)), tuple(cuts))

    def _place(self) -> int:
        """Return the position of the reference group."""
        return self.groups_.index(self.reference_group_) if self.groups_ else 0

    def _train(self, data: SearchData, trials: list[Trial], started: float) -> Tradeoffs:
        ways = tuple(w for w in SCALINGS if w in self.calibrate)
        if not self.groups_ and "common" in ways:
            ways = tuple(w for w in ways if w != "group")  # the same
        settings = Settings(
            ways,
            int(self.max_epochs),
            int(self.patience),
            int(self.batch_size),
            tuple(int(n) for n in self._hidden()),
            self.shrinkage if self.shrinkage == "auto" else float(self.shrinkage),
            self._place(),
            self._seed,
        )
        about = {
            "search": {
                "groups": [shown(g) for g in self.groups_],
                "trials": [dataclasses.asdict(t) for t in trials],
                "learning_rate": float(self.learning_rate),
                "splits": len(data.cuts),
                "halving": bool(self.halving),
                "part": PART,
                # which configurations are dropped depends on them
                **(
                    {"slack": float(self.slack), "log_loss_slack": float(self.log_loss_slack)}
                    if self.halving
                    else {}
                ),
                **dataclasses.asdict(settings),
            },
            "data": data.fingerprint,
            "format": FORMAT,
            "losses": {},
        }
        until = None if self.time_limit is None else started + self.time_limit
        self.stopped_ = False
        with ExitStack() as stack:
            folder = self.folder
            if folder is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="equipoise-"))
            store = PartFolder(folder, "search", json.loads(json.dumps(about)))
            rate, limits = float(self.learning_rate), self._limits()
            race = Race(store, data, settings, trials, rate, limits, self.halving)
            bar = Bar(self.progress, race.runs(), race.runs(), "searching")
            try:
                with quiet_calibration():
                    self.stopped_ = not run_stages(
                        race.work(),
                        bar,
                        engine=self.engine,
                        address=self.address,
                        workers=self.workers,
                        until=until,
                    )
            except KeyboardInterrupt:
                self.stopped_ = True
            done, total = race.finished()
            found = race.tradeoffs()
        go_on = "" if self.folder is None else "; repeat the search to go on"
        lacking = (
            any(t.control is not None for t in trials) and not found.controls[found.alive].any()
        )
        if lacking or not found.alive.any():
            if self.stopped_:
                raise StoppedEarly(
                    f"the search was stopped when {done} of {total} runs were finished, too few to "
                    "choose from" + (go_on or "; give it more time, or try fewer configurations")
                )
            raise ValueError("every run diverged; lower the learning rate or lam")
        if self.stopped_:
            warnings.warn(
                f"the search was stopped: {done} of {total} runs are finished, and the choice is "
                f"made from those on {len(found.splits)} held-out parts{go_on}",
                UserWarning,
                stacklevel=3,
            )
        return found

    # --- what was found ---

    def _tradeoffs(self) -> Tradeoffs:
        check_is_fitted(self, "_found")
        return self._found

    @property
    def results_(self) -> pd.DataFrame:
        """Every configuration, split and calibration, with all figures."""
        return self._tradeoffs().frame()

    @property
    def candidates_(self) -> pd.DataFrame:
        """The candidates that were run on all splits: their means, shrunk."""
        import pandas as pd

        found = self._tradeoffs()
        table = found.table(found.candidates(pool=True), found.splits)
        frame = pd.DataFrame({k: v for k, v in table.items() if not k.startswith("mean_")})
        frame["within"] = within_slack(table["val_accuracy"], self.slack)
        if len(self.groups_) < 2:
            frame["val_pe"] = np.nan
        return frame

    @property
    def frontier_(self) -> pd.DataFrame:
        """The candidates on the frontier of PE and ECE within the accuracy slack."""
        frame = self._tradeoffs().frontier(self.slack)
        return frame.assign(reference_group=[self.reference_group_] * len(frame))

    def _choice(self, objective: Objective, limits: Limits) -> dict[str, Any]:
        """Return the choice with its nested figures."""
        found = self._tradeoffs()
        objective = objective if callable(objective) or len(self.groups_) > 1 else "ece"
        row = found.choice(objective, limits)
        parts = [s for s, _ in found.nested()]
        for metric, values in found.figures(objective, limits).items():
            row[f"test_{metric}"] = float(values.mean()) if len(values) else np.nan
            low, high = clipped(metric, *(found.interval(values, parts) or (np.nan, np.nan)))
            row[f"test_{metric}_low"], row[f"test_{metric}_high"] = low, high
        return row

    def plot(self, figure: Figure | None = None) -> Figure:
        """Draw PE, ECE and accuracy of all candidates, and the frontier of each calibration."""
        from equipoise.plots import plot_tradeoffs

        frame = self.candidates_
        names = {f"val_{m}": m for m in ("pe", "ece", "accuracy")}
        frame = frame.rename(columns=names)
        plain = (frame["loss"] == "ce") & (frame["calibrate"] == "none")
        reference = frame[plain].index
        at = frame.index[
            (frame["loss"] == self.choice_["loss"])
            & (frame["weights"] == self.choice_["weights"])
            & (frame["lam"] == self.choice_["lam"])
            & (frame["calibrate"] == self.choice_["calibrate"])
        ]
        return plot_tradeoffs(
            frame,
            chosen=int(at[0]),
            reference=int(reference[0]) if len(reference) else None,
            slack_line=float(frame["accuracy"].max() - self.slack),
            title=(
                f"PE compares with {shown(self.reference_group_)}"
                if len(self.groups_) > 1
                else None
            ),
            figure=figure,
        )

    # --- models ---

    def select(
        self,
        objective: Objective | None = None,
        slack: float | None = None,
        *,
        loss: str | None = None,
    ) -> GroupwiseMLPClassifier:
        """Choose, and return the model, trained on all rows.

        Parameters
        ----------
        objective
            "pe", "ece", "balanced" (their sum in units of plain cross-entropy's), or a function
            that takes a row and returns a number, lower being better. The row has loss, rho,
            weights, lam, calibrate, and val_accuracy, val_pe, val_ece, val_log_loss and
            val_pe_deterministic: means over the splits, shrunk.
        slack
            Largest loss of accuracy accepted, against the best candidate.
        loss
            Choose among the candidates of this loss only.

        Returns
        -------
        A fitted `GroupwiseMLPClassifier`; `choice_` is the candidate it was made from.
        """
        tradeoffs = self._tradeoffs()
        if not hasattr(self, "_rows"):
            raise ValueError(
                "a search that was loaded has no rows, and select() trains on them; call fit again"
            )
        wanted = self.objective if objective is None else objective
        if not callable(wanted):
            check_objective(wanted)
            wanted = wanted if len(self.groups_) > 1 else "ece"
        if (objective, slack, loss) == (None, None, None):
            row = dict(self.choice_)
        else:
            row = tradeoffs.choice(wanted, self._limits(slack), loss)
            if not row["within"]:
                warnings.warn(
                    f"no candidate of loss {loss!r} is within the limits of accuracy and log-loss; "
                    "the choice is made within the limits of its own best",
                    UserWarning,
                    stacklevel=2,
                )
        # the name of the pool may be of another type than the others, which cannot be sorted then
        names = range(len(self.groups_)) if self.pooled_ else self.groups_
        weights = row["rho"] and dict(zip(names, row["rho"], strict=True))
        how = None if row["calibrate"] == "none" else row["calibrate"]
        model = self._model(row["loss"], weights, row["lam"], how)
        # as many epochs as the runs on all splits say: the few validation rows of one split choose
        # a lucky epoch, and the calibration is then fitted to the rows that chose it
        model.set_params(early_stopping=None, max_epochs=max(1, row["epoch"]), n_networks=NETWORKS)
        model.reference_group = names[self._place()] if self.groups_ else None
        rows = self._rows
        own = decode(self._members, list(names)) if self.groups_ else None
        model.fit(rows.X, rows.y, sensitive_features=own, sample_weight=rows.weight)
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        model.sensitive_columns = self.sensitive_columns
        if self.pooled_:
            unpool(model, self.groups_, self.pooled_)
        model.choice_ = row
        return model

    def _model(self, loss: str, rho: Any, lam: float, calibrate: Any) -> GroupwiseMLPClassifier:
        return GroupwiseMLPClassifier(
            loss,
            rho,
            lam,
            hidden_layer_sizes=self.hidden_layer_sizes,
            learning_rate=self.learning_rate,
            max_epochs=self.max_epochs,
            patience=self.patience,
            batch_size=self.batch_size,
            calibrate=calibrate,
            shrinkage=self.shrinkage,
            unseen_group=self.unseen_group,
            random_state=getattr(self, "_seed", None),
        )

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the labels that `best_estimator_` predicts; only "bcts" needs the groups."""
        return self._best().predict(X, sensitive_features=sensitive_features)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """Return the accuracy of `predict`."""
        return self._best().score(X, y, sample_weight, sensitive_features=sensitive_features)

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
        results, arrays = results_to_file(found)
        about = (
            self._header()
            | results
            | {
                "pooled": [[to_plain(g), n] for g, n in self.pooled_.items()],
                "n_features": self.n_features_in_,
                "choice": flat(self.choice_),
                "verdict": self.verdict_,
                "comparison": flat(self.comparison_),
                "stopped": self.stopped_,
                "model": None,
            }
        )
        if hasattr(self, "best_estimator_"):
            choice = flat(self.best_estimator_.choice_)
            about["model"], own = self.best_estimator_._to_file({"choice": choice})
            arrays |= {f"model.{name}": values for name, values in own.items()}
        write_model(path, about, arrays)

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.pooled_ = {from_plain(g): n for g, n in about["pooled"]}
        self.n_features_in_ = about["n_features"]
        self.verdict_, self.stopped_ = about["verdict"], about["stopped"]
        self.comparison_ = nested(about["comparison"])
        self._found = results_from_file(about, arrays)
        self.choice_ = nested(about["choice"])
        if about["model"] is not None:
            own = {k.removeprefix("model."): v for k, v in arrays.items() if k[:6] == "model."}
            model = GroupwiseMLPClassifier._from_file(about["model"], own)
            model.choice_ = nested(model.extra_.pop("choice"))
            self.best_estimator_ = model


class StoppedEarly(ValueError):
    """The search was stopped before there was anything to choose from."""
