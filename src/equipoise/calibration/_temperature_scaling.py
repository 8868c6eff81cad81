"""Temperature scaling, one temperature per group, at the exact optimum of the cross entropy.

Dividing logits by a temperature never changes their order, so predictions, accuracy and
deterministic proportional equality stay what they were.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from equipoise._files import replace_file
from equipoise._inputs import (
    check_weights,
    class_count,
    encode_groups,
    encode_labels,
    from_plain,
    matrix,
    probability_slice,
    recode,
    to_plain,
)
from equipoise.metrics import expected_calibration_error

__all__ = ["GroupTemperatureScaling", "TemperatureScaling", "fit_temperatures"]

Floats = NDArray[np.float64]


def fit_temperatures(
    logits: Any,
    y: Any,
    groups: Any = None,
    *,
    n_groups: int | None = None,
    sample_weight: Any = None,
    bounds: tuple[float, float] = (0.05, 20.0),
) -> Any:
    """Return the temperature of every configuration and group that minimises the cross entropy.

    Parameters
    ----------
    logits
        (config, n, K), a torch tensor on any device or an array.
    y
        (n,) classes 0..K-1, shared by the configurations.
    groups
        (n,) groups 0..G-1; None puts all rows into one.
    n_groups
        G, where the last groups may be absent; an absent group gets the temperature 1.
    sample_weight
        (n,) weights.
    bounds
        Smallest and largest temperature.

    Returns
    -------
    (config, group) temperatures, float64, of the kind and on the device of `logits`.
    """
    import torch

    from equipoise.calibration._temperature_solver import Problem, solve

    z = torch.as_tensor(logits)
    if z.ndim != 3 or z.shape[1] == 0 or z.shape[2] < 2:
        raise ValueError(f"logits must be (config, sample, class), got {tuple(z.shape)}")
    if not bool(torch.isfinite(z).all()):
        raise ValueError("logits contain values that are not finite")
    low, high = bounds
    if not 0.0 < low < 1.0 < high < float("inf"):
        raise ValueError(f"bounds must be (low, high) with low < 1 < high, got {bounds!r}")
    codes = _codes(y, z, "y", z.shape[2])
    g = None if groups is None else _codes(groups, z, "groups", n_groups)
    count = n_groups or (1 if g is None else int(g.max()) + 1)
    checked = check_weights(sample_weight, z.shape[1])
    weight = None if checked is None else torch.from_numpy(checked).to(z.device)
    problem = Problem.of(z, codes, weight, 1.0 / bounds[0]).divided(g, count)
    solution = solve(problem, bounds)
    temperatures = solution.temperature.reshape(len(z), count)
    return temperatures if isinstance(logits, torch.Tensor) else temperatures.numpy()


def _codes(values: Any, logits: Any, name: str, size: int | None) -> Any:
    """Return classes or groups of the samples as integers from 0 on."""
    import torch

    codes = torch.as_tensor(values, device=logits.device).long()
    if codes.shape != logits.shape[1:2]:
        raise ValueError(f"{name} must be (sample={logits.shape[1]},), got {tuple(codes.shape)}")
    if int(codes.min()) < 0 or (size is not None and int(codes.max()) >= size):
        raise ValueError(
            f"{name} must be within 0..{'' if size is None else size - 1}, "
            f"got {int(codes.min())} to {int(codes.max())}"
        )
    return codes


class TemperatureScaling(BaseEstimator):
    """Divide logits by the one temperature that minimises the cross entropy.

    Parameters
    ----------
    from_proba
        Whether `fit` and `predict_proba` are given probabilities; their logarithm is then the
        logits, a zero counting as the smallest normal number of its type.
    bounds
        Smallest and largest temperature. A warning says when one is reached.
    solver
        "exact", or "paper": Adam with rate 1e-4, at most 500 steps, stopping when the ECE on the
        fitting data rises.

    Attributes
    ----------
    temperature_ : float
    classes_ : the label of each column
    n_iter_ : int, passes over the data
    converged_ : bool

    Examples
    --------
    >>> logits = np.array([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]])
    >>> scaling = TemperatureScaling().fit(logits, ["no", "yes", "no", "yes"])
    >>> round(scaling.temperature_, 3)  # three of four right: log(3) = 4 / T
    3.641
    >>> scaling.predict_proba(logits).round(2)[0]
    array([0.75, 0.25])
    """

    def __init__(
        self,
        *,
        from_proba: bool = False,
        bounds: tuple[float, float] = (0.05, 20.0),
        solver: Literal["exact", "paper"] = "exact",
    ) -> None:
        self.from_proba = from_proba
        self.bounds = bounds
        self.solver = solver

    def fit(self, logits: Any, y: Any, *, sample_weight: Any = None, labels: Any = None) -> Self:
        """Find the temperature.

        Parameters
        ----------
        logits
            (n, K), or (n,) log-odds of the second label; probabilities with `from_proba=True`.
        y
            Labels, of any coding.
        sample_weight
            Weight of each row.
        labels
            Label of each column of `logits`.
        """
        z, codes, weight = self._prepare(logits, y, sample_weight, labels)
        problem = self._problem(z, codes, weight)
        found, self.n_iter_, self.converged_ = self._solve(problem, z, codes, None, weight)
        self.temperature_ = float(found[0])
        self._warn_at_bound([(None, self.temperature_)])
        return self

    def predict_proba(self, logits: Any) -> Floats:
        """Return the calibrated probabilities (n, K)."""
        z = self._logits(logits, fitted=True)
        return _softmax(z, np.full(len(z), self.temperature_))

    def predict(self, logits: Any) -> NDArray[Any]:
        """Return the labels of the largest logits; calibration never changes them."""
        return self._decide(self._logits(logits, fitted=True))

    def fit_predict_proba(
        self, logits: Any, y: Any, *, sample_weight: Any = None, labels: Any = None
    ) -> Floats:
        """Fit, and calibrate the same rows."""
        fitted = self.fit(logits, y, sample_weight=sample_weight, labels=labels)
        return fitted.predict_proba(logits)

    # --- shared with the group-wise form ---

    def _check_params(self) -> None:
        low, high = self.bounds
        if not 0.0 < low < 1.0 < high < float("inf"):
            raise ValueError(f"bounds must be (low, high) with low < 1 < high, got {self.bounds!r}")
        if self.solver not in ("exact", "paper"):
            raise ValueError(f"solver must be 'exact' or 'paper', got {self.solver!r}")

    def _logits(self, values: Any, *, fitted: bool) -> NDArray[Any]:
        if fitted and not hasattr(self, "classes_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"{type(self).__name__} is not fitted yet; call fit first")
        name = "y_prob" if self.from_proba else "logits"
        z = matrix(values, name)
        if fitted and class_count(z) != len(self.classes_):
            raise ValueError(
                f"{name} has {class_count(z)} classes, but was fitted with {len(self.classes_)}"
            )
        if z.dtype.kind != "f":
            z = z.astype(np.float64)
        if self.from_proba:
            prob = probability_slice(z, slice(0, len(z)))
            return np.ascontiguousarray(np.log(np.maximum(prob, np.finfo(z.dtype).tiny)).T)
        # NaN and infinities show in the sum, and most logits have none
        with np.errstate(all="ignore"):
            suspect = not np.isfinite(z.sum(dtype=np.float64))
        finite = np.isfinite(z) if suspect else None
        if finite is not None and not finite.all():
            row = int(np.argmax(~finite.reshape(len(z), -1).all(axis=1)))
            raise ValueError(f"logits, row {row}: {np.atleast_1d(z[row]).tolist()} is not finite")
        return np.stack([np.zeros_like(z), z], axis=1) if z.ndim == 1 else z

    def _prepare(
        self, logits: Any, y: Any, sample_weight: Any, labels: Any
    ) -> tuple[NDArray[Any], NDArray[Any], Floats | None]:
        self._check_params()
        z = self._logits(logits, fitted=False)
        codes, resolved = encode_labels(y, z.shape[1], labels, "y")
        if len(codes) != len(z):
            raise ValueError(f"y has {len(codes)} rows, but the scores have {len(z)}")
        weight = check_weights(sample_weight, len(z))
        self.classes_ = np.array(resolved)
        return z, codes, weight

    def _problem(self, z: NDArray[Any], codes: NDArray[Any], weight: Floats | None) -> Any:
        from equipoise.calibration._temperature_solver import Problem

        return Problem.of(
            _tensor(z).unsqueeze(0),
            _tensor(codes),
            None if weight is None else _tensor(weight),
            1.0 / self.bounds[0],
        )

    def _solve(
        self,
        problem: Any,
        z: NDArray[Any],
        codes: NDArray[Any],
        groups: NDArray[Any] | None,
        weight: Floats | None,
        start: float = 1.0,
    ) -> tuple[Floats, int, bool]:
        """Return each group's temperature, the passes over the data, and whether they sufficed."""
        from equipoise.calibration._temperature_solver import solve

        if self.solver == "paper":
            return self._recipe(problem, z, codes, groups, weight)
        solution = solve(problem, self.bounds, start)
        return solution.temperature.numpy(), solution.n_iter, solution.converged

    @staticmethod
    def _recipe(
        problem: Any,
        z: NDArray[Any],
        codes: NDArray[Any],
        groups: NDArray[Any] | None,
        weight: Floats | None,
    ) -> tuple[Floats, int, bool]:
        from equipoise.calibration._paper_temperatures import paper_temperatures

        own = np.zeros(len(z), np.int64) if groups is None else groups
        labels = tuple(range(z.shape[1]))

        def ece(t: Floats) -> Floats:
            prob = _softmax(z, t[0, own])
            value = expected_calibration_error(codes, prob, sample_weight=weight, labels=labels)
            return np.array([value])

        total = len(z) if weight is None else float(weight.sum())
        found, steps, stopped = paper_temperatures(problem, ece, total)
        return found[0], steps, stopped

    def _warn_at_bound(self, temperatures: list[tuple[Hashable, float]]) -> None:
        for group, value in temperatures:
            for bound in self.bounds:
                if abs(value - bound) <= 1e-9 * bound:
                    whose = "the temperature" if group is None else f"group {group!r}: temperature"
                    warnings.warn(
                        f"{whose} reached its bound {bound:g}; the group may be too small or its "
                        "predictions all right or mostly wrong: merge small groups, use "
                        "shrinkage=, or widen bounds=",
                        UserWarning,
                        stacklevel=3,
                    )

    def _decide(self, z: NDArray[Any]) -> NDArray[Any]:
        decided: NDArray[Any] = self.classes_[z.argmax(axis=1)]
        return decided

    # --- files ---

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and temperatures as plain numbers, strings and lists."""
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"{type(self).__name__} is not fitted yet, so there is nothing to save"
            )
        return {
            "format": f"equipoise.{type(self).__name__}/1",
            "params": {k: to_plain(v) for k, v in self.get_params().items()},
            "classes": [to_plain(v) for v in self.classes_.tolist()],
            "n_iter": self.n_iter_,
            "converged": self.converged_,
            **self._state(),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read what `to_dict` gave; raise ValueError for anything else."""
        try:
            if data["format"] != f"equipoise.{cls.__name__}/1":
                raise ValueError(f"its format is {data['format']!r}")
            params = {k: from_plain(v) for k, v in data["params"].items()}
            scaling = cls(**params)
            scaling._check_params()
            scaling.classes_ = np.array([from_plain(v) for v in data["classes"]])
            scaling.n_iter_, scaling.converged_ = int(data["n_iter"]), bool(data["converged"])
            scaling._restore(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved {cls.__name__}: {error}") from None
        return scaling

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and temperatures as JSON."""
        replace_file(Path(path), json.dumps(self.to_dict(), indent=2).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; anything else is refused."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text()))
        except ValueError as error:
            reason = str(error).removeprefix(f"not a saved {cls.__name__}: ")
            raise ValueError(f"{os.fspath(path)} is not a saved {cls.__name__}: {reason}") from None

    def _state(self) -> dict[str, Any]:
        return {"temperature": self.temperature_}

    def _restore(self, data: dict[str, Any]) -> None:
        self.temperature_ = _positive(data["temperature"])


class GroupTemperatureScaling(TemperatureScaling):
    """Divide logits by a temperature of the row's group.

    Parameters
    ----------
    unseen_group
        What `predict_proba` does with a row whose group was not in the fitting data, is missing,
        or is not passed at all: "error"; "global" takes the common temperature; "mixture" averages
        the calibrated probabilities of all groups by their share in the fitting data. The argmax
        stays the same in every case.
    shrinkage
        Rows' worth of trust in the common temperature: the logarithm of a group's temperature is
        averaged with that of the common one, with weights n_g and `shrinkage`. 0: none.
    from_proba, bounds, solver
        As in `TemperatureScaling`.

    Attributes
    ----------
    temperatures_ : dict from the group's own value to its temperature
    temperature_ : float, the common temperature
    shares_ : dict from group to its share of the (weighted) fitting data
    classes_, n_iter_, converged_ : as in `TemperatureScaling`

    Examples
    --------
    >>> log_odds = np.array([2.0, -2.0, 2.0, 2.0, 1.0, -1.0, 1.0, 1.0])
    >>> y = [1, 0, 1, 0, 1, 0, 1, 0]  # in both groups three of four are right
    >>> gts = GroupTemperatureScaling(unseen_group="global")
    >>> gts = gts.fit(log_odds, y, sensitive_features=list("aaaabbbb"))
    >>> {g: round(t, 2) for g, t in gts.temperatures_.items()}
    {'a': 1.82, 'b': 0.91}
    """

    def __init__(
        self,
        *,
        unseen_group: Literal["error", "global", "mixture"] = "error",
        shrinkage: float = 0.0,
        from_proba: bool = False,
        bounds: tuple[float, float] = (0.05, 20.0),
        solver: Literal["exact", "paper"] = "exact",
    ) -> None:
        super().__init__(from_proba=from_proba, bounds=bounds, solver=solver)
        self.unseen_group = unseen_group
        self.shrinkage = shrinkage

    def fit(  # type: ignore[override]
        self,
        logits: Any,
        y: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        labels: Any = None,
    ) -> Self:
        """Find the temperature of each group.

        Parameters
        ----------
        logits
            (n, K), or (n,) log-odds of the second label; probabilities with `from_proba=True`.
        y
            Labels, of any coding.
        sensitive_features
            One column, or several whose intersection is meant.
        sample_weight
            Weight of each row.
        labels
            Label of each column of `logits`.
        """
        z, codes, weight = self._prepare(logits, y, sample_weight, labels)
        members, groups = encode_groups(sensitive_features)
        if len(members) != len(z):
            raise ValueError(
                f"sensitive_features has {len(members)} rows, but the scores have {len(z)}"
            )
        rows = np.bincount(members, weight, len(groups)).astype(np.float64)
        if not rows.all():
            empty = groups[int(np.argmin(rows))]
            raise ValueError(
                f"group {empty!r} has no weight, so its temperature is undefined; drop its rows"
            )
        problem = self._problem(z, codes, weight)
        common, self.n_iter_, self.converged_ = self._solve(problem, z, codes, None, weight)
        own = common
        if len(groups) > 1:
            own, more, done = self._solve(
                problem.divided(_tensor(members), len(groups)),
                z,
                codes,
                members,
                weight,
                start=float(common[0]),
            )
            self.n_iter_, self.converged_ = self.n_iter_ + more, self.converged_ and done
        if self.shrinkage:
            trust = rows / (rows + self.shrinkage)
            own = np.exp(trust * np.log(own) + (1.0 - trust) * np.log(common))
        self.temperature_ = float(common[0])
        self.temperatures_ = dict(zip(groups, own.tolist(), strict=True))
        self.shares_ = dict(zip(groups, (rows / rows.sum()).tolist(), strict=True))
        self._warn_at_bound(list(self.temperatures_.items()))
        return self

    def predict_proba(self, logits: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the calibrated probabilities (n, K)."""
        z = self._logits(logits, fitted=True)
        temperature, unseen = self._row_temperatures(len(z), sensitive_features)
        prob = _softmax(z, temperature)
        if unseen.any() and self.unseen_group == "mixture":
            rest = z[unseen]
            parts = (
                share * _softmax(rest, np.full(len(rest), self.temperatures_[group]))
                for group, share in self.shares_.items()
            )
            prob[unseen] = np.minimum(sum(parts), 1.0)
        return prob

    def fit_predict_proba(  # type: ignore[override]
        self,
        logits: Any,
        y: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        labels: Any = None,
    ) -> Floats:
        """Fit, and calibrate the same rows."""
        fitted = self.fit(
            logits,
            y,
            sensitive_features=sensitive_features,
            sample_weight=sample_weight,
            labels=labels,
        )
        return fitted.predict_proba(logits, sensitive_features=sensitive_features)

    def _check_params(self) -> None:
        super()._check_params()
        if self.unseen_group not in ("error", "global", "mixture"):
            raise ValueError(
                f"unseen_group must be 'error', 'global' or 'mixture', got {self.unseen_group!r}"
            )
        if not 0.0 <= self.shrinkage < float("inf"):
            raise ValueError(f"shrinkage must be finite and not negative, got {self.shrinkage!r}")

    def _row_temperatures(
        self, n: int, sensitive_features: Any
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return each row's temperature, and which rows fall under the policy for unseen groups."""
        known = list(self.temperatures_)
        values: list[Any] = []
        own: NDArray[Any] = np.full(n, -1)
        if sensitive_features is not None:
            codes, values = encode_groups(sensitive_features, allow_missing=True)
            if len(codes) != n:
                raise ValueError(
                    f"sensitive_features has {len(codes)} rows, but the scores have {n}"
                )
            own = recode(codes, values, known)
        unseen = own < 0
        if unseen.any() and self.unseen_group == "error":
            row = int(np.argmax(unseen))
            what = "sensitive_features were not passed"
            if sensitive_features is not None:
                group = values[codes[row]] if codes[row] >= 0 else None
                what = f"row {row} is of group {group!r}, not in the fitting data ({known!r})"
            raise ValueError(f"{what}; pass unseen_group='global' or 'mixture' to allow that")
        return np.array([*self.temperatures_.values(), self.temperature_])[own], unseen

    def _state(self) -> dict[str, Any]:
        groups = [
            {"group": to_plain(g), "temperature": t, "share": self.shares_[g]}
            for g, t in self.temperatures_.items()
        ]
        return {"temperature": self.temperature_, "groups": groups}

    def _restore(self, data: dict[str, Any]) -> None:
        super()._restore(data)
        rows = [(from_plain(row["group"]), row) for row in data["groups"]]
        self.temperatures_ = {g: _positive(row["temperature"]) for g, row in rows}
        self.shares_ = {g: _share(row["share"]) for g, row in rows}


def _positive(value: Any) -> float:
    if not isinstance(value, float | int) or not 0.0 < value < float("inf"):
        raise ValueError(f"{value!r} is not a positive number")
    return float(value)


def _share(value: Any) -> float:
    if not isinstance(value, float | int) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{value!r} is not a share")
    return float(value)


def _tensor(array: NDArray[Any]) -> Any:
    """Return a torch view of an array where its type and layout allow it."""
    import torch

    if array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    with warnings.catch_warnings():
        # nothing is written to it, so a read-only array is as good
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def _softmax(z: NDArray[Any], temperature: Floats) -> Floats:
    out = z.astype(np.float64)
    out -= out.max(axis=1, keepdims=True)
    out /= temperature[:, None]
    np.exp(out, out=out)
    out /= out.sum(axis=1, keepdims=True)
    return out
