"""One calibrator per group: fitted, shrunk towards the common one, and applied."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    InputError,
    InputWarning,
    counted,
    encode_groups,
    from_plain,
    recode,
    shown,
    to_plain,
    warn_caller,
)
from equipoise.calibration._calibrators import (
    Calibrator,
    Mixture,
    Temperature,
    calibrator_of,
    shrunk,
)
from equipoise.calibration._methods import METHODS
from equipoise.calibration._scores import softmax
from equipoise.calibration._temperatures import group_temperatures

Floats = NDArray[np.float64]
Codes = NDArray[Any]


# --- errors and warnings ---------------------------------------------------------------------


class UnseenGroupError(InputError):
    """Rows to calibrate belong to a group that has no calibrator.

    Attributes
    ----------
    group, rows
        The first such group, None where it is missing, and the number of its rows.
    known
        The groups that have a calibrator.
    """

    group: Hashable
    rows: int
    known: tuple[Hashable, ...]

    @classmethod
    def of(cls, group: Hashable, rows: int, known: Iterable[Hashable]) -> Self:
        """Return the error with its message."""
        known = tuple(known)
        names = _listed([shown(g) for g in known], 8) or "none"
        whose = "a missing group" if group is None else f"group {shown(group)!r}"
        error = cls(
            f"{counted(rows, 'row')} belong{'s' * (rows == 1)} to {whose}, which has no fitted "
            f"calibrator (known: {names})",
            "correct the group, or pass unseen_group='global' or 'mixture'",
            "correct the group, or pass --unseen-group global or mixture",
        )
        error.group, error.rows, error.known = group, rows, known
        return error


class CalibrationWarning(InputWarning):
    """The calibrators were fitted, but some groups have too few rows, or too little variety."""


class SmallGroupWarning(CalibrationWarning):
    """Groups that are too small for a calibrator of their own get the common one.

    Attributes
    ----------
    reasons
        Dict from group to what it lacks.
    """

    reasons: dict[Hashable, str]

    @classmethod
    def of(cls, reasons: dict[Hashable, str]) -> Self:
        """Return the warning with its message."""
        groups = _listed([f"group {shown(g)!r} ({why})" for g, why in reasons.items()])
        warning = cls(
            f"the common calibrator is used for {groups}", "merge small groups or pass more rows"
        )
        warning.reasons = reasons
        return warning


class BoundWarning(CalibrationWarning):
    """Temperatures reached a bound: the predictions are all correct, or no better than chance.

    A group whose own weight after shrinkage is below one half is not named.

    Attributes
    ----------
    temperatures
        Dict from group to the temperature, before any shrinkage; the key None is all rows.
    """

    temperatures: dict[Hashable, float]

    @classmethod
    def of(cls, temperatures: dict[Hashable, float], *, absolute: bool) -> Self:
        """Return the warning with its message; `absolute` says whether the caller set bounds."""
        whose = [
            f"{'all rows' if g is None else f'group {shown(g)!r}'} (T = {t:.3g})"
            for g, t in temperatures.items()
        ]
        warning = cls(
            f"the temperature reached its bound for {_listed(whose)}: the predictions there are "
            "all correct, or no better than chance",
            "merge small groups, raise shrinkage= or " + ("widen bounds=" * absolute or "add rows"),
            "merge small groups, raise --shrinkage or add rows",
        )
        warning.temperatures = temperatures
        return warning


def _listed(items: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + rest


# --- checks ----------------------------------------------------------------------------------


def check_policy(unseen_group: Any, shrinkage: Any) -> None:
    """Raise unless both parameters have a meaning."""
    if unseen_group not in ("error", "global", "mixture"):
        raise ValueError(
            f"unseen_group must be 'error', 'global' or 'mixture', got {unseen_group!r}"
        )
    if not 0.0 <= shrinkage < float("inf"):
        raise ValueError(f"shrinkage must be finite and not negative, got {shrinkage!r}")


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


# --- the calibrator --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class GroupCalibrator:
    """The common calibrator, fitted on all rows, and that of each group, shrunk towards it."""

    common: Calibrator
    own: Mapping[Hashable, Calibrator]
    trust: dict[Hashable, float]  # weight of the group's own fit; 0 if it has the common one
    shares: dict[Hashable, float]  # the group's share of the (weighted) rows
    n_iter: int = 0  # passes over the data to find temperatures
    converged: bool = True

    @classmethod
    def fit(
        cls,
        scores: NDArray[Any],
        codes: Codes,
        members: Codes | None,
        groups: Sequence[Hashable],
        weight: Floats | None = None,
        *,
        classes: Sequence[Any],
        method: str = "temperature",
        shrinkage: float = 0.0,
        bounds: tuple[float, float] | None = None,
        solver: Literal["exact", "paper"] = "exact",
    ) -> Self:
        """Fit the common calibrator and one for each group that has enough rows.

        Scores are (n, K), codes the classes 0..K-1 of the rows, and members the rows' places among
        the groups, as `encode_members` returns them; `bounds` and `solver` are for temperatures.
        Warns with `SmallGroupWarning` and `BoundWarning`.
        """
        rows = np.zeros(0)
        if members is not None:
            rows = np.bincount(members, weight, len(groups)).astype(np.float64)
        reasons = _reasons(codes, members, groups, weight, classes, method)
        lacking = np.array([group in reasons for group in groups], bool)
        trust = np.zeros(len(groups))
        trust[~lacking] = rows[~lacking] / (rows[~lacking] + shrinkage)
        common: Calibrator
        fitted: list[Calibrator]
        n_iter, converged, at_bound = 0, True, dict[Hashable, float]()
        if method == "temperature":
            found = group_temperatures(scores, codes, weight, members, lacking, bounds, solver)
            n_iter, converged, values = found.n_iter, found.converged, found.values.tolist()
            common, fitted = Temperature(values[0]), [Temperature(t) for t in values[1:]]
            reached = found.at_bound & np.append(True, trust >= 0.5)
            at_bound = {
                g: t for g, t, there in zip((None, *groups), values, reached, strict=True) if there
            }
        else:
            fit, every = METHODS[method].fit, np.ones(len(codes)) if weight is None else weight
            common = fit(scores, codes, every)
            fitted = [common] * len(groups)
            for g in np.flatnonzero(~lacking):
                own = members == g
                fitted[g] = fit(scores[own], codes[own], every[own])
        if reasons:
            warn_caller(SmallGroupWarning.of(reasons))
        if at_bound:
            warn_caller(BoundWarning.of(at_bound, absolute=bounds is not None))
        return cls(
            common,
            {g: shrunk(c, common, t) for g, c, t in zip(groups, fitted, trust, strict=True)},
            dict(zip(groups, trust.tolist(), strict=True)),
            dict(zip(groups, (rows / rows.sum()).tolist(), strict=True)),
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
        return cls(
            calibrator_of(data, n_classes),
            {group: calibrator_of(row, n_classes) for group, row in rows},
            {group: _share(row["trust"]) for group, row in rows},
            {group: _share(row["share"]) for group, row in rows},
            int(data["n_iter"]),
            bool(data["converged"]),
        )


def _share(value: Any) -> float:
    if not isinstance(value, float | int) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{value!r} is not a share")
    return float(value)


def _reasons(
    codes: Codes,
    members: Codes | None,
    groups: Sequence[Hashable],
    weight: Floats | None,
    classes: Sequence[Any],
    method: str,
) -> dict[Hashable, str]:
    """Return why groups cannot have a calibrator of their own; raise if none can be fitted."""
    chosen, size = METHODS[method], len(classes)
    used = slice(None) if weight is None else weight > 0
    seen = np.bincount(codes[used], minlength=size)
    if chosen.every_class and not seen.all():
        raise ValueError(
            f"class {classes[int(np.argmin(seen))]!r} has no rows, and method={method!r} needs "
            "every class; pass rows of it, or use 'temperature'"
        )
    if members is None:
        return {}
    cells = members[used].astype(np.int64) * size + codes[used]
    counts = np.bincount(cells, minlength=len(groups) * size).reshape(-1, size)
    reasons: dict[Hashable, str] = {}
    for group, count in zip(groups, counts.tolist(), strict=True):
        rows, absent = sum(count), [k for k, n in zip(classes, count, strict=True) if not n]
        if rows < chosen.least_rows:
            reasons[group] = f"{counted(rows, 'row')} of the {chosen.least_rows} needed"
        elif len(absent) > (0 if chosen.every_class else size - 2):
            reasons[group] = f"{counted(rows, 'row')}, none of class {absent[0]!r}"
    return reasons
