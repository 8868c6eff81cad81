"""The calibrators of all groups: fitted, shrunk towards the common one, and applied."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    InputError,
    counted,
    encode_groups,
    from_plain,
    recode,
    to_plain,
    warn_caller,
)
from equipoise.calibration._affine import Affine, group_affine
from equipoise.calibration._calibrators import (
    Calibrator,
    Mixture,
    Temperature,
    calibrator_of,
    shrunk,
)
from equipoise.calibration._methods import METHODS
from equipoise.calibration._mixing import fit_each, mixing_strength
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._rows import Rows
from equipoise.calibration._scores import softmax
from equipoise.calibration._warnings import (
    BoundWarning,
    ConvergenceWarning,
    NoGroupsWarning,
    SmallGroupWarning,
    UnseenGroupError,
)

Floats = NDArray[np.float64]
Codes = NDArray[Any]

FEW = 50
"""Rows of a group below which a warning says that its calibrator is not shrunk."""


# --- checks ----------------------------------------------------------------------------------


def check_policy(unseen_group: Any, shrinkage: Any) -> None:
    """Raise unless both parameters have a meaning."""
    if unseen_group not in ("error", "global", "mixture"):
        raise ValueError(
            f"unseen_group must be 'error', 'global' or 'mixture', got {unseen_group!r}"
        )
    number = isinstance(shrinkage, int | float | np.number) and not isinstance(shrinkage, bool)
    if shrinkage != "auto" and not (number and 0.0 <= shrinkage < float("inf")):
        raise ValueError(f"shrinkage must be 'auto', or finite and not negative, got {shrinkage!r}")


def encode_members(
    sensitive_features: Any, n: int, *, allow_missing: bool = False
) -> tuple[Codes | None, list[Hashable]]:
    """Encode the groups of n rows; None and no groups where none are passed."""
    if sensitive_features is None:
        return None, []
    codes, groups = encode_groups(sensitive_features, allow_missing=allow_missing)
    if len(codes) != n:
        raise ValueError(
            f"sensitive_features has {len(codes)} rows, but there are {n} to calibrate"
        )
    return codes, groups


# --- the calibrators -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CalibratorSet:
    """The common calibrator, fitted on all rows, and that of each group, shrunk towards it."""

    common: Calibrator
    own: Mapping[Hashable, Calibrator]
    trust: dict[Hashable, float]  # weight of the group's own fit; 0 if it has the common one
    shares: dict[Hashable, float]  # the group's share of the (weighted) rows
    n_iter: int = 0  # passes over the rows
    converged: bool = True

    @classmethod
    def fit(
        cls,
        rows: Rows,
        method: str,
        shrinkage: Shrinkage = 0.0,
        *,
        bounds: tuple[float, float] | None = None,
        solver: Literal["exact", "paper"] = "exact",
        clusters: Codes | None = None,
        warn: bool = True,
    ) -> Self:
        """Fit the common calibrator and one for each group that has enough rows.

        `bounds` and `solver` are for temperatures; `clusters` keep rows in one fold where the
        shrinkage is cross-validated. Warns with `SmallGroupWarning`, `BoundWarning` and
        `ConvergenceWarning`.
        """
        chosen, members, groups = METHODS[method], rows.members, rows.groups
        total = np.zeros(0)
        if members is not None:
            total = np.bincount(members, rows.weight, len(groups)).astype(np.float64)
        shares = dict(zip(groups, (total / (total.sum() or 1.0)).tolist(), strict=True))
        reasons, count = _reasons(rows, method)
        if method in ("none", "common"):
            single = dataclasses.replace(rows, members=None, groups=())
            common: Calibrator = Temperature(1.0)
            if method == "common":
                common = cls.fit(single, "temperature", bounds=bounds, warn=warn).common
            own = dict.fromkeys(groups, common)
            return cls(common, own, dict.fromkeys(groups, 0.0), shares)
        if chosen.fit is None and shrinkage != 0.0:
            # the penalty makes parameters of any rows finite
            reasons = {g: why for g, why in reasons.items() if shares[g] == 0.0}
        fitted: Sequence[Calibrator]
        lacking = np.array([group in reasons for group in groups], bool)
        if chosen.fit is None:
            found = group_affine(
                rows.scores,
                rows.codes,
                rows.weight,
                members,
                lacking,
                biased=chosen.biased,
                shrinkage=shrinkage,
                bounds=bounds,
                solver=solver,
                repeats=rows.repeats,
            )
            common, *fitted = found.calibrators()
            trust, n_iter, converged = found.trust, found.n_iter, found.converged
            if warn:
                reached = np.flatnonzero(found.at_bound & np.append(True, trust >= 0.5))
                _warn_bound(rows, found, reached, absolute=bounds is not None)
        else:
            strength = shrinkage
            if shrinkage == "auto":
                strength = mixing_strength(rows, method, lacking, clusters)
            n_iter, converged = 0, True
            common, *fitted = fit_each(rows, method, lacking)
            trust = np.zeros(len(groups))
            trust[~lacking] = count[~lacking] / (count[~lacking] + float(strength))
            fitted = [shrunk(c, common, t) for c, t in zip(fitted, trust, strict=True)]
        few = {
            g: int(n)
            for g, n in zip(groups, count, strict=True)
            if shrinkage == 0.0 and n < FEW and g not in reasons and len(groups) > 1
        }
        if warn and (reasons or few):
            warn_caller(SmallGroupWarning.of(reasons, few))
        if warn and not converged and solver == "exact":
            warn_caller(ConvergenceWarning.of(n_iter))
        return cls(
            common,
            dict(zip(groups, fitted, strict=True)),
            dict(zip(groups, trust.tolist(), strict=True)),
            shares,
            n_iter,
            converged,
        )

    def slots(self, sensitive_features: Any, n: int, unseen_group: str) -> Codes:
        """Return each row's place among the groups; -1 if it has none, unless that is an error."""
        known = list(self.own)
        codes, values = encode_members(sensitive_features, n, allow_missing=True)
        if codes is None:
            if unseen_group == "error" and known:
                raise InputError(
                    "sensitive_features were not passed, so no row has a group",
                    "pass them, or unseen_group='global' or 'mixture'",
                    "pass --group, or --unseen-group global or mixture",
                )
            if known:
                warn_caller(NoGroupsWarning.when_applied(unseen_group))
            return np.full(n, -1)
        slots = recode(codes, values, known)
        unseen = slots < 0
        if unseen_group == "error" and unseen.any():
            first = codes[np.argmax(unseen)]
            group = values[first] if first >= 0 else None
            raise UnseenGroupError.of(group, int((codes == first).sum()), known)
        return slots

    def apply(self, scores: NDArray[Any], slots: Codes, unseen_group: str = "global") -> Floats:
        """Return probabilities (n, K) of scores (n, K); a slot of -1 falls under the policy."""
        calibrators: list[Calibrator] = [*self.own.values(), self.common]
        scores = scores.astype(np.float64, copy=False)
        temperatures = [c.temperature for c in calibrators if isinstance(c, Temperature)]
        if len(temperatures) == len(calibrators):  # all rows at once, which is faster
            prob = softmax(scores, np.array(temperatures)[slots][:, None])
        else:
            prob = np.empty(scores.shape)
            for slot in np.unique(slots):
                rows = slots == slot
                prob[rows] = calibrators[slot].apply(scores[rows])
        unseen = slots < 0
        if unseen_group == "mixture" and self.own and unseen.any():
            mixture = Mixture(tuple(self.shares.values()), tuple(self.own.values()))
            prob[unseen] = mixture.apply(scores[unseen])
        return prob

    # --- files ---

    def to_dict(self) -> dict[str, Any]:
        """Return the calibrators as plain numbers, strings and lists."""
        groups = [
            {
                "group": to_plain(group),
                "share": self.shares[group],
                "trust": self.trust[group],
                **dataclasses.asdict(calibrator),
            }
            for group, calibrator in self.own.items()
        ]
        return {
            **dataclasses.asdict(self.common),
            "groups": groups,
            "n_iter": self.n_iter,
            "converged": self.converged,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], n_classes: int) -> Self:
        """Undo `to_dict`; raise for anything else."""
        rows = [(from_plain(row["group"]), row) for row in data["groups"]]
        shares = {group: _share(row["share"]) for group, row in rows}
        if len(shares) < len(rows):
            raise ValueError("a group is there twice")
        if shares and abs(sum(shares.values()) - 1.0) > 1e-6:
            raise ValueError("the shares of its groups do not add up to 1")
        return cls(
            calibrator_of(data, n_classes),
            {group: calibrator_of(row, n_classes) for group, row in rows},
            {group: _share(row["trust"]) for group, row in rows},
            shares,
            int(data["n_iter"]),
            bool(data["converged"]),
        )


def _share(value: Any) -> float:
    if not isinstance(value, float | int) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{value!r} is not a share")
    return float(value)


def _warn_bound(rows: Rows, found: Affine, reached: Codes, *, absolute: bool) -> None:
    """Warn of temperatures at a bound, and name the rows that drive them."""
    if not len(reached):
        return
    whose = (None, *rows.groups)
    reasons, driving = dict[Hashable, str](), dict[Hashable, list[int]]()
    for at in reached.tolist():
        own = np.arange(len(rows))
        if at:
            own = np.flatnonzero(rows.members == at - 1)
        z, y = rows.scores[own].astype(np.float64), rows.codes[own]
        moved = z / found.temperature[at]
        if found.bias is not None:
            moved = moved + found.bias[at]
        # the slope of a row's cross entropy in 1 / T
        pull = (softmax(moved) * z).sum(axis=1) - z[np.arange(len(z)), y]
        if rows.weight is not None:
            pull = pull * rows.weight[own]
        flat = bool(pull.sum() > 0.0)  # an even larger temperature would be better
        first = own[np.argsort(-pull if flat else pull, kind="stable")[:3]].tolist()
        named = f"row{'s' * (len(first) > 1)} {', '.join(map(str, first))}, counted from 0"
        count = counted(len(own), "prediction")
        if flat:
            wrong = int((z.argmax(axis=1) != y).sum())
            reasons[whose[at]] = f"{wrong:,} of {count} are wrong, most confidently in {named}"
        else:
            right = int((moved.argmax(axis=1) == y).sum())
            some = f"all of its {count}" if right == len(own) else f"{right:,} of {count}"
            shifted = " once shifted by the bias" * (found.bias is not None)
            reasons[whose[at]] = f"{some} are correct{shifted}, least confidently in {named}"
        driving[whose[at]] = first
    temperatures = {whose[at]: float(found.temperature[at]) for at in reached.tolist()}
    warn_caller(BoundWarning.of(temperatures, reasons, driving, absolute=absolute))


def _reasons(rows: Rows, method: str) -> tuple[dict[Hashable, str], Floats]:
    """Return why groups cannot have a calibrator of their own, and each group's number of rows.

    Raises if no calibrator can be fitted at all.
    """
    chosen, size, table = METHODS[method], len(rows.classes), rows.counts()
    seen = table.sum(axis=0)
    if chosen.every_class and not seen.all():
        raise ValueError(
            f"class {rows.classes[int(np.argmin(seen))]!r} has no rows, and method={method!r} "
            "needs every class; pass rows of it, or use 'temperature'"
        )
    if rows.members is None:
        return {}, np.zeros(0)
    reasons: dict[Hashable, str] = {}
    for group, count in zip(rows.groups, table.astype(int).tolist(), strict=True):
        n, absent = sum(count), [k for k, c in zip(rows.classes, count, strict=True) if not c]
        if n < chosen.least_rows:
            reasons[group] = f"{counted(n, 'row')} of the {chosen.least_rows} needed"
        elif len(absent) > (0 if chosen.every_class else size - 2):
            reasons[group] = f"{counted(n, 'row')}, none of class {absent[0]!r}"
    return reasons, table.sum(axis=1)
