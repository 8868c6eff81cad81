"""A scikit-learn classifier: a perceptron trained with a group-wise calibration loss."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from equipoise._files import write_model
from equipoise._inputs import need, split_columns
from equipoise.calibration import (
    GroupCalibrator,
    GroupTemperatureScaling,
    Shrinkage,
    TemperatureScaling,
)
from equipoise.datasets import Part, Preprocessor, Split
from equipoise.training._estimator import GroupEstimator
from equipoise.training._export import network_to_onnx
from equipoise.training._names import LOSS_NAMES, STOPPING
from equipoise.training._rho import resolve_rho
from equipoise.training._rows import checked_rows, group_shares, hold_out, reference_place
from equipoise.training._run_columns import run_column
from equipoise.training._scaling import SCALINGS, Scaling, fit_scaling, quiet_calibration, scaled

if TYPE_CHECKING:
    from equipoise.training._engine import Epoch

Floats = NDArray[np.float64]
Layers = list[tuple[NDArray[Any], NDArray[Any]]]
"""Weight and bias of each layer."""
BLOCK = 64
"""Rows that go through the network together: their products stay in the cache, on one core."""
BLOCKS = 16
"""Blocks that a call of NumPy takes, one after the other."""


@dataclasses.dataclass
class _Run:
    """Training from one initial weights: the best epoch so far, 0 where there is none."""

    history: dict[str, list[float]]
    epoch: int = 0
    score: float = np.inf
    layers: Layers = dataclasses.field(default_factory=list)

    def judge(self, epoch: Epoch, place: int, watched: str | None) -> None:
        """Keep the weights if this epoch is the best, or if the last one is wanted."""
        score = STOPPING[watched or "log_loss"] * self.history[watched or "log_loss"][-1]
        # nan (PE of one group, say) never counts as better, but the first epoch is kept
        if watched is None or score < self.score or not self.epoch:
            self.score = score if score == score else np.inf
            self.epoch = epoch.number
            self.layers = [(w.numpy(), b.numpy()) for w, b in epoch.network.layers(place)]


def _joined(networks: Sequence[Layers]) -> Layers:
    """Return the layers of one network whose logits are the mean of those of some networks.

    Their hidden nodes stand beside each other: the weights between those of different networks are
    zeros.
    """
    if len(networks) == 1:
        return networks[0]
    found: Layers = []
    for level, layers in enumerate(zip(*networks, strict=True)):
        weights, biases = zip(*layers, strict=True)
        if level == len(networks[0]) - 1:
            weight = np.concatenate(weights) / len(networks) if level else np.mean(weights, axis=0)
            found.append((weight, np.mean(biases, axis=0)))
        elif level == 0:
            found.append((np.concatenate(weights, axis=1), np.concatenate(biases)))
        else:
            found.append((block_diag(*weights), np.concatenate(biases)))
    return found


def _parted(layers: Layers, networks: int) -> list[Layers]:
    """Return the networks of `_joined`; their logits are to be added up."""
    found: list[Layers] = [[] for _ in range(networks)]
    last = len(layers) - 1
    for level, (weight, bias) in enumerate(layers):
        for j, own in enumerate(found):
            rows, nodes = (
                slice(j * size // networks, (j + 1) * size // networks) for size in weight.shape
            )
            rows = rows if level else slice(None)
            nodes = nodes if level < last else slice(None)
            share = bias[nodes] if level < last else bias / networks
            own.append((weight[rows, nodes], share))
    return found


class GroupwiseMLPClassifier(GroupEstimator):
    """A multilayer perceptron trained with a group-wise calibration loss.

    Features are imputed and standardised inside. A validation set is held out of the rows: it
    decides when to stop, and the temperatures are fitted on it.

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
        Learning rate of Adam.
    max_epochs
        Largest number of passes over the training rows.
    batch_size
        Rows per step.
    early_stopping
        The validation metric to watch: "log_loss", "ece", "pe" or "accuracy", after calibration.
        The weights of its best epoch are kept. None: the last epoch's.
    patience
        Epochs without a better value after which training stops.
    n_networks
        Number of networks that are trained, each from its own initial weights and kept at its own
        best epoch. Their logits are averaged. `history_` and `best_epoch_` are those of the first.
    validation_fraction
        Share of the rows held out, stratified by label and group.
    calibrate
        "group": a temperature per group; "bcts": a temperature and a bias per class and group,
        which can change predictions (temperatures, if a class has no held-out rows); "common": one
        temperature for all; None.
    shrinkage
        How far a group's parameters are pulled towards the common ones, as in `GroupCalibrator`:
        "auto", as far as the data warrant, or a number of rows. `history_` is measured without
        shrinkage, and for "bcts" with temperatures.
    unseen_group
        What `predict_proba` does without a known group: "error", "global" or "mixture". `predict`
        needs groups only for "bcts".
    sensitive_columns
        Names of the columns of X that hold the group, which are then not features. Groups are so
        split with the rows in cross-validation. Otherwise pass `sensitive_features`.
    reference_group
        The group that PE compares the others with: in `history_`, and in `early_stopping="pe"`. By
        default the one with most rows, of several the first in sorted order.
    random_state
        Seed of held-out rows, initial weights and batches.

    Attributes
    ----------
    classes_ : the labels, sorted
    groups_ : the groups' own values, sorted; empty if fitted without
    reference_group_ : the group that PE compares the others with; None without groups
    temperatures_ : dict from group to temperature, where `calibrate="group"` and there are groups
    temperature_ : float, the common temperature, where `calibrate` is "group" or "common"
    scaling_ : the fitted calibrator of the logits; None where `calibrate` is None
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

    _format = "equipoise.GroupwiseMLPClassifier/1"

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
        n_networks: int = 1,
        validation_fraction: float = 0.125,
        calibrate: Literal["group", "bcts", "common"] | None = "group",
        shrinkage: Shrinkage = "auto",
        unseen_group: Literal["error", "global", "mixture"] = "error",
        sensitive_columns: str | list[str] | None = None,
        reference_group: Any = None,
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
        self.n_networks = n_networks
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.shrinkage = shrinkage
        self.unseen_group = unseen_group
        self.sensitive_columns = sensitive_columns
        self.reference_group = reference_group
        self.random_state = random_state

    # --- fit ---

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train, choose the epoch and find the temperatures.

        Parameters
        ----------
        X
            (n, features) numbers; NaN is imputed.
        y
            Labels, of any coding.
        sensitive_features
            The groups: one column, or several for their intersections. None: no groups.
        sample_weight
            (n,) weights in the loss, the validation metrics and the temperatures. Their scale does
            not matter, and rows of weight 0 are left out. Standardisation and held-out rows do not
            depend on them.
        """
        need("torch", "train", what="equipoise.training")
        self._check_params()
        rows = checked_rows(self, X, y, sensitive_features, sample_weight)
        self.classes_, self.groups_ = rows.classes, rows.groups
        place = reference_place(self.reference_group, rows.group, rows.groups)
        self.reference_group_ = rows.groups[place] if rows.groups else None
        random = check_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=2 + self.n_networks)
        split = hold_out(rows, self.validation_fraction, int(seeds[0]))
        self.preprocessor_ = split.preprocessor
        self._train(split, seeds, place)
        self._find_temperatures(split.val)
        return self

    def _check_params(self) -> None:
        if self.loss not in LOSS_NAMES:
            raise ValueError(f"unknown loss {self.loss!r}; there are {', '.join(LOSS_NAMES)}")
        if self.early_stopping not in (None, *STOPPING):
            raise ValueError(
                f"early_stopping must be None or one of {', '.join(STOPPING)}, "
                f"got {self.early_stopping!r}"
            )
        if self.calibrate not in SCALINGS:
            raise ValueError(
                f"calibrate must be 'group', 'bcts', 'common' or None, got {self.calibrate!r}"
            )
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}"
            )
        for name in ("max_epochs", "batch_size", "patience", "n_networks"):
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

    def _train(self, split: Split, seeds: NDArray[Any], reference: int) -> None:
        """Train from each initial weights, all in one stack, and join the networks."""
        # not before: who only predicts needs no torch, which takes 200 MB and seconds to import
        from equipoise.training._engine import Config, epochs_of

        share = group_shares(split.train.group, split.train.weight, len(self.groups_))
        rho = resolve_rho(self.rho, self.groups_, share)
        rate, starts = float(self.learning_rate), [int(seeds[1]), *map(int, seeds[3:])]
        configs = [Config(self.loss, rho, self.lam, start, rate) for start in starts]
        metrics = {"log_loss": "log_loss", "ece": "ece15", "pe": "pe", "accuracy": "accuracy"}
        how = "group" if self.calibrate == "bcts" else self.calibrate
        names = {"loss": "train_loss"} | {
            name: run_column("val", metric, how) for name, metric in metrics.items()
        }
        runs = [_Run({name: [] for name in names}) for _ in configs]
        self.n_iter_ = 0
        for epoch in epochs_of(
            split,
            configs,
            n_classes=len(self.classes_),
            batch_size=self.batch_size,
            hidden_layer_sizes=self._hidden(),
            split_seed=int(seeds[2]),
            measured=("val",),
            reference=reference,
        ):
            self.n_iter_ = epoch.number
            for c, run in enumerate(runs):
                if not epoch.columns["diverged"][c]:
                    for name, source in names.items():
                        run.history[name].append(float(epoch.columns[source][c]))
                    run.judge(epoch, c, self.early_stopping)
            if all(epoch.columns["diverged"]):
                break
            latest = max(run.epoch for run in runs)
            stalled = self.early_stopping is not None and epoch.number - latest >= self.patience
            if epoch.number == self.max_epochs or stalled:
                break
        runs = [run for run in runs if run.epoch]
        if not runs:
            raise ValueError(
                "training diverged in the first epoch; use a smaller learning_rate or lam"
            )
        self.history_, self.best_epoch_ = runs[0].history, runs[0].epoch
        self.layers_ = _joined([run.layers for run in runs])

    def _find_temperatures(self, val: Part) -> None:
        with quiet_calibration():
            scaling = fit_scaling(
                self.calibrate,
                self._forward(val.X),
                val,
                n_classes=len(self.classes_),
                groups=self.groups_,
                shrinkage=self.shrinkage,
                unseen_group=self.unseen_group,
            )
        self._set_scaling(scaling)

    def _set_scaling(self, scaling: Scaling | None) -> None:
        self.scaling_ = scaling
        for name in ("temperature_", "temperatures_"):
            self.__dict__.pop(name, None)
            if hasattr(scaling, name):
                setattr(self, name, getattr(scaling, name))

    # --- predict ---

    def _forward(self, X: NDArray[np.float32]) -> Floats:
        # in float64 and blocks of one size, so that a row's result does not depend on the rows
        # beside it: BLAS adds up in another order in products of another size or layout
        networks = [
            [(w.astype(np.float64, order="C"), b) for w, b in layers]
            for layers in _parted(self.layers_, self._networks())
        ]
        logits = np.zeros((len(X), len(self.layers_[-1][1])))
        for start in range(0, len(X), BLOCKS * BLOCK):
            own = X[start : start + BLOCKS * BLOCK]
            n = -(-len(own) // BLOCK)
            given: NDArray[Any] = np.zeros((n, BLOCK, X.shape[1]))
            given.reshape(n * BLOCK, -1)[: len(own)] = own
            for layers in networks:
                active = given
                for i, (weight, bias) in enumerate(layers):
                    active = active @ weight  # a product for each block
                    active += bias
                    if i < len(layers) - 1:
                        np.maximum(active, 0.0, out=active)
                logits[start : start + len(own)] += active.reshape(n * BLOCK, -1)[: len(own)]
        return logits

    def _networks(self) -> int:
        """Return the number of networks that are averaged: those that did not diverge."""
        hidden = self._hidden()
        return max(1, self.layers_[0][0].shape[-1] // hidden[0]) if hidden else 1

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
        with np.errstate(over="ignore"):
            standard = self.preprocessor_.transform(features)
        if not np.isfinite(standard).all():
            raise ValueError(
                "Input X contains infinity, or values too large beside those it was fitted on; "
                "replace them by NaN or smaller values"
            )
        return self._forward(standard), group

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return calibrated probabilities (n, classes)."""
        return self.predict_with_proba(X, sensitive_features=sensitive_features)[1]

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the most probable labels; without biases, temperatures do not change them."""
        if self._has_biases():
            return self.predict_with_proba(X, sensitive_features=sensitive_features)[0]
        logits, _ = self._logits(X, needed=False)
        labels: NDArray[Any] = self.classes_[logits.argmax(axis=1)]
        return labels

    def predict_with_proba(
        self, X: Any, *, sensitive_features: Any = None
    ) -> tuple[NDArray[Any], Floats]:
        """Return what `predict` and `predict_proba` do, in half the time of both."""
        logits, group = self._logits(X, sensitive_features)
        prob = scaled(self.scaling_, logits, group if self.groups_ else None)
        decisive = prob if self._has_biases() else logits
        return self.classes_[decisive.argmax(axis=1)], prob

    def _has_biases(self) -> bool:
        return isinstance(getattr(self, "scaling_", None), GroupCalibrator)

    # --- files ---

    def save(self, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the model as one file, safetensors with JSON in its header.

        `extra` is anything else that JSON holds; `load` gives it back as `extra_`.
        """
        write_model(path, *self._to_file(extra))

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """Return the accuracy of `predict`."""
        labels = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, labels, sample_weight=sample_weight))

    def to_onnx(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        group: str | Sequence[str] | None = None,
    ) -> Any:
        """Return the model as an ONNX graph of doubles, verified in onnxruntime.

        The input "X" is (n, features), raw: missing values are NaN, and the graph imputes and
        standardises. Each group column is an input of strings (n,), numbers written as 1 or 0.5
        and truth values as true or false. The output "probabilities" is (n, K). A row with infinite
        features gets NaN, and so does one whose group is new or missing under
        `unseen_group="error"`. If a number differs from Python's by more than 1e-6, that is an
        `equipoise.calibration.ExportError`, and nothing is written.

        Parameters
        ----------
        path
            File to write, whole or not at all.
        group
            Names of the group inputs; by default `sensitive_columns`, else "group", or "group_1",
            "group_2" and so on.

        Returns
        -------
        The `onnx.ModelProto`.
        """
        check_is_fitted(self, "layers_")
        return network_to_onnx(self, path, group or self.sensitive_columns)

    def _to_file(
        self, extra: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what JSON holds of the model, and its arrays."""
        check_is_fitted(self, "layers_")
        about = self._header() | {
            "scaling": None if self.scaling_ is None else self.scaling_.to_dict(),
            "preprocessor": self.preprocessor_.to_dict(),
            "history": self.history_,
            "best_epoch": self.best_epoch_,
            "n_iter": self.n_iter_,
            "extra": dict(extra or {}),
        }
        arrays: dict[str, NDArray[Any]] = {}
        for i, (weight, bias) in enumerate(self.layers_):
            arrays |= {f"weight{i}": weight, f"bias{i}": bias}
        return about, arrays

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.preprocessor_ = Preprocessor.from_dict(about["preprocessor"])
        self.n_features_in_ = len(self.preprocessor_.columns)
        self.history_, self.extra_ = dict(about["history"]), dict(about["extra"])
        self.best_epoch_, self.n_iter_ = about["best_epoch"], about["n_iter"]
        self.layers_ = [(arrays["weight0"], arrays["bias0"])]
        hidden = (self._networks() * size for size in self._hidden())
        sizes = (len(self.preprocessor_.feature_names), *hidden, len(self.classes_))
        self.layers_ = []
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weight, bias = arrays[f"weight{i}"], arrays[f"bias{i}"]
            if weight.shape != (fan_in, fan_out) or bias.shape != (fan_out,):
                raise ValueError(f"layer {i} has the shapes {weight.shape} and {bias.shape}")
            for values in (weight, bias):
                if values.dtype.kind != "f" or not np.isfinite(values).all():
                    raise ValueError(f"layer {i} has weights that are no finite numbers")
            self.layers_.append((weight, bias))
        scaling = about["scaling"]
        if scaling is not None:
            kinds = (GroupTemperatureScaling, TemperatureScaling, GroupCalibrator)
            formats = {f"equipoise.{kind.__name__}/1": kind for kind in kinds}
            scaling = formats[scaling["format"]].from_dict(scaling)
        self._set_scaling(scaling)
