"""A calibrator per group, of scores that are already there."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import check_clusters, shown, warn_caller
from equipoise.calibration._calibrator_set import CalibratorSet, check_policy
from equipoise.calibration._calibrators import Temperature, temperatures_of
from equipoise.calibration._methods import METHODS
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._rows import Rows
from equipoise.calibration._score_estimator import Bounds, ScoreEstimator, check_bounds
from equipoise.calibration._selection import Selection, select
from equipoise.calibration._warnings import NoGroupsWarning

Floats = NDArray[np.float64]


def check_method(method: Any) -> None:
    """Raise if there is no such method."""
    if method != "auto" and method not in METHODS:
        raise ValueError(f"method must be one of auto, {', '.join(METHODS)}, got {method!r}")


def fit_method(
    rows: Rows, method: str, shrinkage: Shrinkage, clusters: NDArray[Any] | None = None, **how: Any
) -> tuple[CalibratorSet, str, Selection | None]:
    """Choose the method where it is "auto", and fit; return also the method and its selection."""
    selection = select(rows, shrinkage, clusters) if method == "auto" else None
    chosen = method if selection is None else selection.method
    fitted = CalibratorSet.fit(rows, chosen, shrinkage, clusters=clusters, **how)
    return fitted, chosen, selection


def method_to_dict(fitted: Any) -> dict[str, Any]:
    """Return the method of a fitted estimator and how it was chosen, as plain values."""
    selection = None if fitted.selection_ is None else fitted.selection_.to_dict()
    return {"method": fitted.method_, "selection": selection}


def method_of(data: dict[str, Any]) -> tuple[str, Selection | None]:
    """Undo `method_to_dict`; raise for anything else."""
    method, selection = data["method"], data["selection"]
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}")
    return method, None if selection is None else Selection.from_dict(selection)


def check_kind(fitted: CalibratorSet, method: str) -> None:
    """Raise if a method that keeps predictions has calibrators that change them."""
    kinds = {type(calibrator) for calibrator in (fitted.common, *fitted.own.values())}
    if METHODS[method].keeps_predictions and kinds != {Temperature}:
        raise ValueError(f"its calibrators are not those of method={method!r}")


class GroupCalibrator(ScoreEstimator):
    """Calibrate probabilities or logits with a calibrator per group.

    Parameters
    ----------
    method
        "auto": the simplest of no repair, a common temperature, a temperature per group, and bcts,
        beta and isotonic per group whose out-of-fold log-loss is within one standard error of the
        least. "bcts": a
        temperature and a bias per class, so that each group's mean probabilities are its rates;
        for two classes, Platt scaling. "temperature": scores are divided by a number. "platt": a
        sigmoid with Platt's smoothed targets. "beta": a sigmoid that can bend differently at both
        ends. "isotonic": a monotone curve, smoothed. "vector": a scale and a bias per class.
        "common": one temperature for all rows. "none": no repair. Of several classes, platt, beta
        and isotonic take each against the rest. Only temperatures keep every prediction.
    shrinkage
        How far a group's calibrator is pulled towards that of all rows. "auto": as far as the data
        warrant, by empirical Bayes (temperature, bcts), else by folds. A number: as by that many
        rows, so that a group of n rows has about the weight n / (n + shrinkage). Weights of rows
        matter by their ratios only. Where a group is not shrunk or is fitted on its own, a
        `SmallGroupWarning` names those that are too small.
    unseen_group
        What `predict_proba` does with a row whose group was not in the fitting data, is missing,
        or is not passed at all: "error"; "global" takes the common calibrator; "mixture" averages
        the probabilities of all groups by their share in the fitting data.
    from_proba
        Whether `fit` and `predict_proba` are given probabilities; their logarithms are then the
        logits, and a probability below 1e-6 counts as 1e-6.
    bounds
        Smallest and largest temperature; by default 1/20 and 20 times the root mean square of the
        group's logits, each row centred. A `BoundWarning` says when one is reached.

    Attributes
    ----------
    method_ : the method that was used
    selection_ : a `Selection` where `method="auto"`, else None; `selection_.text` says it in words
    classes_ : the label of each column
    groups_ : the groups' own values, sorted
    calibrator_ : the common calibrator
    calibrators_ : dict from group to calibrator
    trust_ : dict from group to the share that its own rows decide; 0: the common calibrator
    shares_ : dict from group to its share of the (weighted) fitting data
    temperatures_ : dict from group to temperature, where these are all
    n_iter_ : int, passes over the rows
    converged_ : bool

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a = rng.choice(["f", "m"], 2000)
    >>> truth = 1 / (1 + np.exp(-rng.normal(size=2000)))
    >>> y = rng.random(2000) < truth
    >>> p = truth ** np.where(a == "f", 2, 1)  # understated for women
    >>> calibrator = GroupCalibrator(method="bcts", shrinkage=0, from_proba=True)
    >>> q = calibrator.fit(p, y, sensitive_features=a).predict_proba(p, sensitive_features=a)[:, 1]
    >>> for x in (p, q):
    ...     print((x - y)[a == "f"].mean().round(3), (x - y)[a == "m"].mean().round(3))
    -0.183 -0.009
    -0.0 -0.0
    """

    def __init__(
        self,
        *,
        method: str = "auto",
        shrinkage: Shrinkage = "auto",
        unseen_group: Literal["error", "global", "mixture"] = "error",
        from_proba: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self.method = method
        self.shrinkage = shrinkage
        self.unseen_group = unseen_group
        self.from_proba = from_proba
        self.bounds = bounds

    def fit(
        self,
        logits: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        clusters: Any = None,
        labels: Any = None,
    ) -> Self:
        """Fit the calibrators.

        Parameters
        ----------
        logits
            (n, K), or (n,) log-odds of the second label; probabilities with `from_proba=True`.
        y
            Labels, of any coding.
        sensitive_features
            One column, or several whose intersection is meant. Without any, one common calibrator
            is fitted, and a `NoGroupsWarning` says so.
        sample_weight
            Weight of each row.
        clusters
            Id of each row's cluster, such as a person; rows of one are in one fold.
        labels
            Label of each column of `logits`.
        """
        self._check_params()
        rows = self._rows(logits, y, sensitive_features, sample_weight, labels)
        together = check_clusters(clusters, len(rows), "y")
        seen = rows.counts().sum(axis=0) > 0
        if seen.sum() < 2:
            raise ValueError(
                f"y has only one class, {shown(rows.classes[int(np.argmax(seen))])!r}; calibrators "
                "need rows of more than one class"
            )
        if rows.members is None:
            warn_caller(NoGroupsWarning.when_fitting())
        return self._fit_rows(rows, together)

    def _fit_rows(self, rows: Rows, clusters: NDArray[Any] | None = None) -> Self:
        fitted, self.method_, self.selection_ = fit_method(
            rows, self.method, self.shrinkage, clusters, bounds=self.bounds
        )
        self._keep(fitted)
        return self

    def predict_proba(self, logits: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the calibrated probabilities (n, K)."""
        z = self._logits(logits, fitted=True)
        slots = self._calibrator().slots(sensitive_features, len(z), self.unseen_group)
        return self._calibrator().apply(z, slots, self.unseen_group)

    def predict(self, logits: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the most probable labels; the group has no effect on those of temperatures."""
        if hasattr(self, "method_") and METHODS[self.method_].keeps_predictions:
            return super().predict(logits)
        best = self.predict_proba(logits, sensitive_features=sensitive_features).argmax(axis=1)
        decided: NDArray[Any] = self.classes_[best]
        return decided

    # --- fitted attributes and files ---

    def _check_params(self) -> None:
        check_method(self.method)
        check_policy(self.unseen_group, self.shrinkage)
        if self.bounds is not None:
            check_bounds(self.bounds)

    def _keep(self, fitted: CalibratorSet) -> None:
        self.groups_ = list(fitted.own)
        self.calibrator_, self.calibrators_ = fitted.common, dict(fitted.own)
        self.trust_, self.shares_ = fitted.trust, fitted.shares
        self.n_iter_, self.converged_ = fitted.n_iter, fitted.converged

    @property
    def temperatures_(self) -> dict[Hashable, float]:
        """Temperature of each group."""
        if not hasattr(self, "method_") or not METHODS[self.method_].keeps_predictions:
            raise AttributeError(f"method={self.method!r} has no temperatures")
        return temperatures_of(self.calibrators_)

    def _calibrator(self) -> CalibratorSet:
        return CalibratorSet(
            self.calibrator_,
            self.calibrators_,
            self.trust_,
            self.shares_,
            self.n_iter_,
            self.converged_,
        )

    def add_groups(self, groups: Iterable[Hashable]) -> None:
        """Give groups that had no rows the common calibrator."""
        for group in groups:
            if group not in self.calibrators_:
                self.calibrators_[group] = self.calibrator_
                self.shares_[group] = self.trust_[group] = 0.0
        self.groups_ = list(self.calibrators_)

    def _fitted(self) -> dict[str, Any]:
        return super()._fitted() | method_to_dict(self)

    def _restore(self, data: dict[str, Any]) -> None:
        self._check_params()
        self.method_, self.selection_ = method_of(data)
        fitted = CalibratorSet.from_dict(data, len(self.classes_))
        check_kind(fitted, self.method_)
        self._keep(fitted)
