"""scikit-learn estimators: a perceptron trained with a group-wise calibration loss."""

from __future__ import annotations

import dataclasses
import itertools
import os
import warnings
from collections.abc import Hashable, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from equipoise._files import read_model, write_model
from equipoise._inputs import encode_groups, from_plain, split_columns, to_plain
from equipoise.calibration import (
    CalibrationWarning,
    GroupTemperatureScaling,
    TemperatureScaling,
)
from equipoise.datasets import Part, Preprocessor, Split

__all__ = ["GroupwiseMLPClassifier"]

Floats = NDArray[np.float64]

FORMAT = "equipoise.GroupwiseMLPClassifier/1"

STOPPING = {"log_loss": 1, "ece": 1, "pe": 1, "accuracy": -1}
"""What training may watch, and whether smaller (1) or larger (-1) is better."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """What an estimator is fitted on, checked and encoded.

    `frame` are the features as they came, without sensitive columns; `X` the same as numbers;
    `codes` and `members` the classes and groups of the rows, which `classes` and `groups` name.
    """

    frame: Any
    X: Floats
    y: NDArray[Any]
    codes: NDArray[np.int64]
    members: NDArray[np.int64]
    classes: NDArray[Any]
    groups: list[Hashable]


def checked_rows(estimator: Any, X: Any, y: Any, sensitive_features: Any) -> Rows:
    """Check and encode what an estimator with `sensitive_columns` is fitted on."""
    frame, columns = split_columns(X, estimator.sensitive_columns, sensitive_features)
    features, labels = validate_data(
        estimator, frame, y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2
    )
    if np.isinf(features).any():
        raise ValueError("Input X contains infinity; replace it by NaN or a finite value")
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"Classifier can't train when only one class is present: {classes[0]!r}")
    members: NDArray[Any] = np.zeros(len(labels), np.int64)
    groups: list[Hashable] = []
    if columns is not None:
        members, groups = encode_groups(columns)
        if len(members) != len(labels):
            raise ValueError(f"sensitive_features has {len(members)} rows, but X has {len(labels)}")
    return Rows(frame, features, labels, codes, members.astype(np.int64), classes, groups)


class GroupwiseMLPClassifier(ClassifierMixin, BaseEstimator):
    """A multilayer perceptron trained with a group-wise calibration loss.

    Features are imputed and standardised inside. A part of the rows is held out: it decides when to
    stop, and gives the temperatures.

    Parameters
    ----------
    loss
        One of `equipoise.training.LOSSES`: ce ls fl flsd dca mdca mmce mmce-w.
    rho
        Weights of the groups in the loss: "equal"; "share", each group's share of the rows; a
        number, the weight of the second of two groups in sorted order; a dict from group to
        weight; or None for the ungrouped loss.
    lam
        Strength of the calibration term; no effect for ce, ls, fl and flsd.
    hidden_layer_sizes
        Nodes of each hidden layer.
    learning_rate
        Of Adam.
    max_epochs
        Most passes over the training rows.
    batch_size
        Rows per step.
    early_stopping
        The validation metric to watch: "log_loss", "ece", "pe" or "accuracy", after calibration.
        The weights of its best epoch are kept. None: the last epoch's.
    patience
        Epochs without a better value after which training stops.
    validation_fraction
        Share of the rows held out, stratified by label and group.
    calibrate
        "group": a temperature per group; "common": one for all; None.
    shrinkage
        Rows' worth of trust in the common temperature, as in `GroupTemperatureScaling`; applied to
        the temperatures of the kept epoch, while `history_` has those without.
    unseen_group
        What `predict_proba` does without a known group: "error", "global" or "mixture". `predict`
        needs no groups.
    sensitive_columns
        Name or names of columns of X that hold the group; they are not features then. This is what
        makes it safe inside cross-validation. Otherwise pass `sensitive_features`.
    random_state
        Seed of held-out rows, initial weights and batches.

    Attributes
    ----------
    classes_ : the labels, sorted
    groups_ : the groups' own values, sorted; empty if fitted without
    temperatures_ : dict from group to temperature, where `calibrate="group"` and there are groups
    temperature_ : float, the common temperature, where `calibrate` is not None
    history_ : dict from metric to a list with a value per epoch
    best_epoch_, n_iter_ : the epoch whose weights are kept, and the number of epochs run
    n_features_in_ : the number of features, without sensitive columns

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 3)), rng.choice(["f", "m"], 400)
    >>> y = np.where(X[:, 0] + rng.normal(size=400) > 0, "yes", "no")
    >>> model = GroupwiseMLPClassifier("mmce", max_epochs=10, random_state=0)
    >>> model.fit(X, y, sensitive_features=a).predict_proba(X[:2], sensitive_features=a[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        loss: str = "mmce",
        rho: Any = "equal",
        lam: float = 2.0,
        *,
        hidden_layer_sizes: tuple[int, ...] = (128, 64),
        learning_rate: float = 1e-3,
        max_epochs: int = 200,
        batch_size: int = 256,
        early_stopping: Literal["log_loss", "ece", "pe", "accuracy"] | None = "log_loss",
        patience: int = 20,
        validation_fraction: float = 0.125,
        calibrate: Literal["group", "common"] | None = "group",
        shrinkage: float = 20.0,
        unseen_group: Literal["error", "global", "mixture"] = "error",
        sensitive_columns: str | list[str] | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.rho = rho
        self.lam = lam
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.shrinkage = shrinkage
        self.unseen_group = unseen_group
        self.sensitive_columns = sensitive_columns
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Say that missing values are fine."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # --- fit ---

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Train, choose the epoch and find the temperatures.

        Parameters
        ----------
        X
            (n, features) numbers; NaN is imputed.
        y
            Labels, of any coding.
        sensitive_features
            One column, or several whose intersection is meant. None trains without groups.
        """
        self._check_params()
        rows = checked_rows(self, X, y, sensitive_features)
        self.classes_, self.groups_ = rows.classes, rows.groups
        random = check_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=3)
        split = self._hold_out(rows.X, rows.codes, rows.members, seeds[0])
        self._train(split, seeds)
        self._find_temperatures(split.val)
        return self

    def _check_params(self) -> None:
        from equipoise.training._losses import LOSSES

        if self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; there are {', '.join(LOSSES)}")
        if self.early_stopping not in (None, *STOPPING):
            raise ValueError(
                f"early_stopping must be None or one of {', '.join(STOPPING)}, "
                f"got {self.early_stopping!r}"
            )
        if self.calibrate not in (None, "group", "common"):
            raise ValueError(f"calibrate must be 'group', 'common' or None, got {self.calibrate!r}")
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}"
            )
        for name in ("max_epochs", "batch_size", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if not all(isinstance(n, int | np.integer) and n > 0 for n in self._hidden()):
            raise ValueError(
                f"hidden_layer_sizes must be positive integers, got {self.hidden_layer_sizes!r}"
            )
        if isinstance(self.rho, str) and self.rho not in ("equal", "share"):
            raise ValueError(f"rho must be 'equal', 'share', numbers or None, got {self.rho!r}")
        GroupTemperatureScaling(
            unseen_group=self.unseen_group, shrinkage=self.shrinkage
        )._check_params()
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}")

    def _hidden(self) -> tuple[Any, ...]:
        sizes = self.hidden_layer_sizes
        return (sizes,) if np.ndim(sizes) == 0 else tuple(sizes)

    def _hold_out(
        self, X: Floats, y: NDArray[np.int64], group: NDArray[np.int64], seed: int
    ) -> Split:
        rng = np.random.default_rng(seed)
        # spread over label and group: the k-th of a cell's m rows stands at (k + u) / m
        cell = y * (int(group.max()) + 1) + group
        place = np.ones(len(y))  # the only row of its cell stays in training
        for value in np.unique(cell):
            own = np.flatnonzero(cell == value)
            if len(own) > 1:
                place[rng.permutation(own)] = (np.arange(len(own)) + rng.random()) / len(own)
        order = np.argsort(place, kind="stable")
        held = max(1, round(self.validation_fraction * len(y)))
        val, train = np.sort(order[:held]), np.sort(order[held:])
        if len(np.unique(y[train])) < len(self.classes_):
            warnings.warn(
                f"{len(y)} rows are too few to hold any out: the training rows decide when to stop "
                "and give the temperatures",
                UserWarning,
                stacklevel=3,
            )
            val = train = np.arange(len(y))
        self.preprocessor_ = Preprocessor.fit(X[train], [f"x{j}" for j in range(X.shape[1])])
        parts = [
            Part(self.preprocessor_.transform(X[rows]), y[rows], group[rows], rows)
            for rows in (train, val)
        ]
        return Split(parts[0], parts[1], parts[1], self.preprocessor_)

    def _group_weights(self, share: Floats) -> tuple[float, ...] | None:
        """Return the weight of each group, of the share of the rows that each has."""
        names = self.groups_
        if self.rho is None or not names:
            return None
        if isinstance(self.rho, str) and self.rho == "equal":
            return (1.0 / len(names),) * len(names)
        if isinstance(self.rho, str) and self.rho == "share":
            return tuple(share.tolist())
        if isinstance(self.rho, Mapping):
            if set(self.rho) != set(names):
                raise ValueError(f"rho names the groups {list(self.rho)!r}, the data has {names!r}")
            return tuple(float(self.rho[g]) for g in names)
        if isinstance(self.rho, int | float | np.number) and len(names) == 2:
            return (1.0 - float(self.rho), float(self.rho))
        raise ValueError(
            f"rho={self.rho!r} does not fit the groups {names!r}; "
            "pass 'equal', 'share', a dict from group to weight, or None"
        )

    def _train(self, split: Split, seeds: NDArray[Any]) -> None:
        from equipoise.training._engine import Config, epochs_of

        count = np.bincount(split.train.group, minlength=len(self.groups_))
        rho = self._group_weights(count / count.sum())
        config = Config(self.loss, rho, self.lam, int(seeds[1]), float(self.learning_rate))
        how = "" if self.calibrate is None else f"_{self.calibrate}"
        names = {
            "loss": "train_loss",
            "log_loss": f"val{how}_log_loss",
            "ece": f"val{how}_ece15",
            "pe": f"val{how}_pe",
            "accuracy": "val_accuracy",
        }
        self.history_: dict[str, list[float]] = {name: [] for name in names}
        best, self.best_epoch_, self.n_iter_ = np.inf, 0, 0
        for epoch in epochs_of(
            split,
            [config],
            n_classes=len(self.classes_),
            batch_size=self.batch_size,
            hidden=tuple(int(n) for n in self._hidden()),
            split_seed=int(seeds[2]),
            measured=("val",),
        ):
            self.n_iter_ = epoch.number
            if epoch.columns["diverged"][0]:
                if not self.best_epoch_:
                    raise ValueError(
                        "training diverged in the first epoch; use a smaller learning_rate or lam"
                    )
                break
            for name, source in names.items():
                self.history_[name].append(float(epoch.columns[source][0]))
            watched = self.early_stopping
            score = 0.0 if watched is None else STOPPING[watched] * self.history_[watched][-1]
            # nan (PE of one group, say) never counts as better, but the first epoch is kept
            if watched is None or score < best or not self.best_epoch_:
                best = score if score == score else np.inf
                self.best_epoch_ = epoch.number
                self.layers_ = [(w.numpy(), b.numpy()) for w, b in epoch.network.layers(0)]
            stalled = watched is not None and epoch.number - self.best_epoch_ >= self.patience
            if epoch.number == self.max_epochs or stalled:
                break

    def _find_temperatures(self, val: Part) -> None:
        from equipoise.training._epoch_metrics import BOUNDS

        self.scaling_: TemperatureScaling | None = None
        for stale in ("temperature_", "temperatures_"):
            self.__dict__.pop(stale, None)
        if self.calibrate is None:
            return
        logits, labels = self._forward(val.X), tuple(range(len(self.classes_)))
        with warnings.catch_warnings():
            # of few held-out rows; a fact of the fit, and temperatures_ show it
            warnings.simplefilter("ignore", CalibrationWarning)
            if self.calibrate == "common" or not self.groups_:
                common = TemperatureScaling(bounds=BOUNDS)
                self.scaling_ = common.fit(logits, val.y, labels=labels)
            else:
                own = np.empty(len(val.group), dtype=object)
                own[:] = [self.groups_[g] for g in val.group]
                scaling = GroupTemperatureScaling(
                    unseen_group=self.unseen_group, shrinkage=self.shrinkage, bounds=BOUNDS
                ).fit(logits, val.y, sensitive_features=own, labels=labels)
                for name in self.groups_:  # with no held-out row: the common one
                    scaling.temperatures_.setdefault(name, scaling.temperature_)
                    scaling.shares_.setdefault(name, 0.0)
                    scaling.trust_.setdefault(name, 0.0)
                self.scaling_, self.temperatures_ = scaling, scaling.temperatures_
        self.temperature_ = self.scaling_.temperature_

    # --- predict ---

    def _forward(self, X: NDArray[np.float32]) -> Floats:
        # in float64, so that a row's result does not depend on the rows beside it
        active: NDArray[Any] = X.astype(np.float64)
        for i, (weight, bias) in enumerate(self.layers_):
            active = active @ weight + bias
            if i < len(self.layers_) - 1:
                np.maximum(active, 0.0, out=active)
        return active

    def _logits(
        self, X: Any, sensitive_features: Any = None, *, needed: bool = True
    ) -> tuple[Floats, Any]:
        check_is_fitted(self, "layers_")
        features, group = split_columns(
            X, self.sensitive_columns, sensitive_features, needed=needed
        )
        features = validate_data(
            self, features, dtype=np.float64, ensure_all_finite="allow-nan", reset=False
        )
        if np.isinf(features).any():
            raise ValueError("Input X contains infinity; replace it by NaN or a finite value")
        with np.errstate(over="ignore"):
            standard = self.preprocessor_.transform(features)
        if not np.isfinite(standard).all():
            raise ValueError("Input X has values too large beside those it was fitted on")
        return self._forward(standard), group

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return calibrated probabilities (n, classes)."""
        logits, group = self._logits(X, sensitive_features)
        if isinstance(self.scaling_, GroupTemperatureScaling):
            return self.scaling_.predict_proba(logits, sensitive_features=group)
        if self.scaling_ is not None:
            return self.scaling_.predict_proba(logits)
        prob = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(prob / prob.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable labels; no temperature changes them, so no group is needed."""
        logits, _ = self._logits(X, needed=False)
        labels: NDArray[Any] = self.classes_[logits.argmax(axis=1)]
        return labels

    # --- files ---

    def save(self, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the model as one file, safetensors with JSON in its header.

        `extra` is anything else that JSON holds; `load` gives it back as `extra_`.
        """
        check_is_fitted(self, "layers_")
        params = self.get_params()
        if not isinstance(params["random_state"], int | np.integer | None):
            params["random_state"] = None  # a generator is no fact of the fitted model
        if not isinstance(params["rho"], str | Mapping | None):
            params["rho"] = float(params["rho"])
        if isinstance(params["rho"], Mapping):
            params["rho"] = {"groups": [[to_plain(g), float(w)] for g, w in params["rho"].items()]}
        about = {
            "format": FORMAT,
            "params": {k: v if k == "rho" else to_plain(v) for k, v in params.items()},
            "classes": [to_plain(v) for v in self.classes_.tolist()],
            "groups": [to_plain(g) for g in self.groups_],
            "scaling": None if self.scaling_ is None else self.scaling_.to_dict(),
            "preprocessor": self.preprocessor_.to_dict(),
            "features": getattr(self, "feature_names_in_", np.array([])).tolist() or None,
            "history": self.history_,
            "best_epoch": self.best_epoch_,
            "n_iter": self.n_iter_,
            "extra": dict(extra or {}),
        }
        arrays: dict[str, NDArray[Any]] = {}
        for i, (weight, bias) in enumerate(self.layers_):
            arrays |= {f"weight{i}": weight, f"bias{i}": bias}
        write_model(path, about, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a file that is not, or was damaged, is refused."""
        about, arrays = read_model(path)
        try:
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            params = {k: from_plain(v) for k, v in about["params"].items()}
            if isinstance(params["rho"], Mapping):
                params["rho"] = {from_plain(g): w for g, w in params["rho"]["groups"]}
            model = cls(**params)
            model._check_params()
            model.classes_ = np.array([from_plain(v) for v in about["classes"]])
            model.groups_ = [from_plain(g) for g in about["groups"]]
            model.preprocessor_ = Preprocessor.from_dict(about["preprocessor"])
            model.n_features_in_ = len(model.preprocessor_.columns)
            if about["features"] is not None:
                model.feature_names_in_ = np.array(about["features"], dtype=object)
            model.history_ = about["history"]
            model.best_epoch_, model.n_iter_ = about["best_epoch"], about["n_iter"]
            model.extra_ = about["extra"]
            model._restore_layers(arrays)
            model._restore_scaling(about["scaling"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{os.fspath(path)} is not a saved {cls.__name__}: {error}") from None
        return model

    def _restore_layers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        sizes = (
            len(self.preprocessor_.feature_names),
            *self._hidden(),
            len(self.classes_),
        )
        self.layers_ = []
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weight, bias = arrays[f"weight{i}"], arrays[f"bias{i}"]
            if weight.shape != (fan_in, fan_out) or bias.shape != (fan_out,):
                raise ValueError(f"layer {i} has the shapes {weight.shape} and {bias.shape}")
            self.layers_.append((weight, bias))

    def _restore_scaling(self, data: Any) -> None:
        self.scaling_ = None
        if data is None:
            return
        grouped = data["format"] == "equipoise.GroupTemperatureScaling/1"
        kind = GroupTemperatureScaling if grouped else TemperatureScaling
        self.scaling_ = kind.from_dict(data)
        self.temperature_ = self.scaling_.temperature_
        if isinstance(self.scaling_, GroupTemperatureScaling):
            self.temperatures_ = self.scaling_.temperatures_
