"""Temperature scaling, one temperature per group, at the exact optimum of the cross entropy.

Dividing logits by a temperature never changes their order, so predictions, accuracy and
deterministic proportional equality stay what they were.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import check_weights
from equipoise.calibration._affine import stacked_affine
from equipoise.calibration._calibrator_set import CalibratorSet, check_policy
from equipoise.calibration._calibrators import Temperature, temperatures_of
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._score_estimator import Bounds, ScoreEstimator, check_bounds
from equipoise.calibration._temperature_solver import Problem, cast, host, library, like, solve

Floats = NDArray[np.float64]


def fit_temperatures(
    logits: Any,
    y: Any,
    groups: Any = None,
    *,
    n_groups: int | None = None,
    sample_weight: Any = None,
    bounds: Bounds = (0.05, 20.0),
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
    z, codes, g, count, weight = _checked(logits, y, groups, n_groups, sample_weight, bounds)
    problem = Problem.of(z, codes, weight, 1.0 / bounds[0]).divided(g, count)
    return solve(problem, bounds).temperature.reshape(len(z), count)


def fit_bias_corrected(
    logits: Any,
    y: Any,
    groups: Any = None,
    *,
    n_groups: int | None = None,
    sample_weight: Any = None,
    bounds: Bounds = (0.05, 20.0),
) -> tuple[Any, Any]:
    """Return the temperature and biases of every configuration and group: softmax(z / T + b).

    They minimise the cross entropy. A group without rows of every class gets those of all rows of
    its configuration.

    Parameters
    ----------
    logits, y, groups, n_groups, sample_weight, bounds
        As in `fit_temperatures`; every class needs rows.

    Returns
    -------
    (config, group) temperatures and (config, group, K) biases, which sum to 0 over the classes;
    float64, of the kind and on the device of `logits`.
    """
    z, codes, g, count, weight = _checked(logits, y, groups, n_groups, sample_weight, bounds)
    used = codes if weight is None else codes[weight > 0.0]
    seen = np.bincount(host(used), minlength=z.shape[2])
    if not seen.all():
        raise ValueError(f"class {int(np.argmin(seen))} has no rows, so its bias is undefined")
    temperature, bias = stacked_affine(z, codes, g, count, weight, bounds)
    return like(temperature, z), like(bias, z)


def _checked(
    logits: Any, y: Any, groups: Any, n_groups: int | None, sample_weight: Any, bounds: Bounds
) -> tuple[Any, Any, Any, int, Any]:
    """Return logits, classes, groups, their number, and weights as arrays of one library."""
    torch = sys.modules.get("torch")  # without it no value is a tensor
    z = logits if torch and isinstance(logits, torch.Tensor) else np.asarray(logits)
    if z.ndim != 3 or z.shape[1] == 0 or z.shape[2] < 2:
        raise ValueError(f"logits must be (config, sample, class), got {tuple(z.shape)}")
    if not bool(library(z).isfinite(z).all()):
        raise ValueError("logits contain values that are not finite")
    check_bounds(bounds)
    codes = _codes(y, z, "y", z.shape[2])
    g = None if groups is None else _codes(groups, z, "groups", n_groups)
    count = n_groups or (1 if g is None else int(g.max()) + 1)
    weight = check_weights(sample_weight, z.shape[1])
    return z, codes, g, count, None if weight is None else like(weight, z)


def _codes(values: Any, logits: Any, name: str, size: int | None) -> Any:
    """Return classes or groups of the samples as integers from 0 on."""
    codes = cast(like(values, logits), library(logits).int64)
    if codes.shape != logits.shape[1:2]:
        raise ValueError(f"{name} must be (sample={logits.shape[1]},), got {tuple(codes.shape)}")
    if int(codes.min()) < 0 or (size is not None and int(codes.max()) >= size):
        raise ValueError(
            f"{name} must be within 0..{'' if size is None else size - 1}, "
            f"got {int(codes.min())} to {int(codes.max())}"
        )
    return codes


class TemperatureScaling(ScoreEstimator):
    """Divide logits by the one temperature that minimises the cross entropy.

    Parameters
    ----------
    from_proba
        Whether `fit` and `predict_proba` are given probabilities; their logarithms are then the
        logits, and a probability below 1e-6 counts as 1e-6.
    bounds
        Smallest and largest temperature; by default 1/20 and 20 times the root mean square of the
        logits, each row centred. A `BoundWarning` says when one is reached.
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
        bounds: Bounds | None = None,
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
        return self._fit(logits, y, None, sample_weight, labels)

    def predict_proba(self, logits: Any) -> Floats:
        """Return the calibrated probabilities (n, K)."""
        z = self._logits(logits, fitted=True)
        return Temperature(self.temperature_).apply(z)

    # --- shared with the group-wise form ---

    def _check_params(self) -> None:
        if self.bounds is not None:
            check_bounds(self.bounds)
        if self.solver not in ("exact", "paper"):
            raise ValueError(f"solver must be 'exact' or 'paper', got {self.solver!r}")

    def _fit(
        self,
        logits: Any,
        y: Any,
        sensitive_features: Any,
        sample_weight: Any,
        labels: Any,
        shrinkage: Shrinkage = 0.0,
    ) -> Self:
        self._check_params()
        rows = self._rows(logits, y, sensitive_features, sample_weight, labels)
        fitted = CalibratorSet.fit(
            rows, "temperature", shrinkage, bounds=self.bounds, solver=self.solver
        )
        self._keep(fitted)
        return self

    def _keep(self, fitted: CalibratorSet) -> None:
        """Set the fitted attributes."""
        assert isinstance(fitted.common, Temperature)
        self.temperature_ = fitted.common.temperature
        self.n_iter_, self.converged_ = fitted.n_iter, fitted.converged

    def _calibrator(self) -> CalibratorSet:
        """Return the calibrators that the fitted attributes describe."""
        common = Temperature(self.temperature_)
        return CalibratorSet(common, {}, {}, {}, self.n_iter_, self.converged_)

    def _restore(self, data: dict[str, Any]) -> None:
        self._check_params()
        fitted = CalibratorSet.from_dict(data, len(self.classes_))
        if {type(c) for c in (fitted.common, *fitted.own.values())} != {Temperature}:
            raise ValueError("a calibrator of it is no temperature")
        self._keep(fitted)


class GroupTemperatureScaling(TemperatureScaling):
    """Divide logits by a temperature of the row's group.

    A group without rows of two classes gets the common temperature, and a `SmallGroupWarning`
    names it.

    Parameters
    ----------
    unseen_group
        What `predict_proba` does with a row whose group was not in the fitting data, is missing,
        or is not passed at all: "error"; "global" takes the common temperature; "mixture" averages
        the calibrated probabilities of all groups by their share in the fitting data. The argmax
        stays the same in every case.
    shrinkage
        How far a group's temperature is pulled towards the others. 0, the default, is the paper's:
        not at all, and a `SmallGroupWarning` names groups of fewer than 50 rows. "auto": as far as
        the data warrant (empirical Bayes). A number: as by that many more rows of the common
        temperature, so that a group of n rows has about the weight n / (n + shrinkage).
    from_proba, bounds, solver
        As in `TemperatureScaling`; the default bounds are those of the group's own logits.

    Attributes
    ----------
    temperatures_ : dict from the group's own value to its temperature
    temperature_ : float, the common temperature
    trust_ : dict from group to the share that its own rows decide; 0: the common temperature
    shares_ : dict from group to its share of the (weighted) fitting data
    classes_, n_iter_, converged_ : as in `TemperatureScaling`

    Examples
    --------
    >>> log_odds = np.array([2.0, -2.0, 2.0, 2.0, 1.0, -1.0, 1.0, 1.0] * 20)
    >>> y = [1, 0, 1, 0, 1, 0, 1, 0] * 20  # in both groups three of four are right
    >>> gts = GroupTemperatureScaling(unseen_group="global")
    >>> gts = gts.fit(log_odds, y, sensitive_features=list("aaaabbbb" * 20))
    >>> {g: round(t, 2) for g, t in gts.temperatures_.items()}
    {'a': 1.82, 'b': 0.91}
    """

    def __init__(
        self,
        *,
        unseen_group: Literal["error", "global", "mixture"] = "error",
        shrinkage: Shrinkage = 0.0,
        from_proba: bool = False,
        bounds: Bounds | None = None,
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
        logits, y, sample_weight, labels
            As in `TemperatureScaling.fit`.
        sensitive_features
            One column, or several whose intersection is meant.
        """
        if sensitive_features is None:
            raise ValueError("sensitive_features must be one column or several, got None")
        return self._fit(logits, y, sensitive_features, sample_weight, labels, self.shrinkage)

    def predict_proba(self, logits: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the calibrated probabilities (n, K)."""
        z = self._logits(logits, fitted=True)
        calibrator = self._calibrator()
        slots = calibrator.slots(sensitive_features, len(z), self.unseen_group)
        return calibrator.apply(z, slots, self.unseen_group)

    def _check_params(self) -> None:
        super()._check_params()
        check_policy(self.unseen_group, self.shrinkage)
        if self.solver == "paper" and self.shrinkage != 0.0:
            raise ValueError("the paper's recipe has no shrinkage; use shrinkage=0 or 'exact'")

    def _keep(self, fitted: CalibratorSet) -> None:
        super()._keep(fitted)
        self.temperatures_ = temperatures_of(fitted.own)
        self.trust_, self.shares_ = fitted.trust, fitted.shares

    def add_groups(self, groups: Iterable[Hashable]) -> None:
        """Give groups that had no rows the common temperature."""
        for group in groups:
            self.temperatures_.setdefault(group, self.temperature_)
            self.shares_.setdefault(group, 0.0)
            self.trust_.setdefault(group, 0.0)

    def _calibrator(self) -> CalibratorSet:
        own = {group: Temperature(t) for group, t in self.temperatures_.items()}
        return replace(super()._calibrator(), own=own, trust=self.trust_, shares=self.shares_)
