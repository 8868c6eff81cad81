"""Errors and warnings about calibrators."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Self

from equipoise._inputs import InputError, InputWarning, counted, shown


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
    """Groups are too small for a calibrator of their own, or for one without shrinkage.

    Attributes
    ----------
    reasons
        Dict from group to what it lacks, where it gets the common calibrator.
    few
        Dict from group to its number of rows, where these few rows alone decide.
    """

    reasons: dict[Hashable, str]
    few: dict[Hashable, int]

    @classmethod
    def of(cls, reasons: dict[Hashable, str], few: Mapping[Hashable, int] = {}) -> Self:
        """Return the warning with its message."""
        said = []
        if reasons:
            groups = _listed([f"group {shown(g)!r} ({why})" for g, why in reasons.items()])
            said.append(f"the common calibrator is used for {groups}")
        if few:
            groups = _listed([f"group {shown(g)!r} ({counted(n, 'row')})" for g, n in few.items()])
            said.append(f"few rows decide the calibrator of {groups}")
        remedy = "merge small groups, pass more rows or "
        warning = cls("; ".join(said), remedy + "shrinkage='auto'", remedy + "--shrinkage auto")
        warning.reasons, warning.few = reasons, dict(few)
        return warning


class BoundWarning(CalibrationWarning):
    """Temperatures reached a bound: the predictions are all correct, or no better than chance.

    A group whose own weight after shrinkage is below one half is not named.

    Attributes
    ----------
    temperatures
        Dict from group to the temperature; the key None is all rows.
    rows
        Dict from group to the rows, counted from 0, that drive its temperature most.
    """

    temperatures: dict[Hashable, float]
    rows: dict[Hashable, list[int]]

    @classmethod
    def of(
        cls,
        temperatures: dict[Hashable, float],
        reasons: Mapping[Hashable, str],
        rows: Mapping[Hashable, list[int]],
        *,
        absolute: bool,
    ) -> Self:
        """Return the warning with its message; `absolute` says whether the caller set bounds."""
        whose = [
            f"{'all rows' if g is None else f'group {shown(g)!r}'} (T = {t:.3g}: {reasons[g]})"
            for g, t in temperatures.items()
        ]
        remedies = (
            "merge small groups, raise shrinkage= or " + ("widen bounds=" * absolute or "add rows"),
            "merge small groups, raise --shrinkage or add rows",
        )
        if list(temperatures) == [None]:
            check = "check that scores and labels belong together"
            remedies = (check + ", or widen bounds=" * absolute, check)
        warning = cls(f"the temperature reached its bound for {_listed(whose)}", *remedies)
        warning.temperatures, warning.rows = temperatures, dict(rows)
        return warning


class ConvergenceWarning(CalibrationWarning):
    """The search for the parameters of some groups stopped before it converged."""

    @classmethod
    def of(cls, passes: int) -> Self:
        """Return the warning with its message."""
        count = "1 pass" if passes == 1 else f"{passes} passes"
        return cls(
            f"the calibrators did not converge in {count} over the rows",
            "look for extreme scores; scores of several hundred are usually not logits",
        )


class ClippedWarning(CalibrationWarning):
    """Probabilities of exactly 0 or 1 have no finite logit and are moved a little.

    Attributes
    ----------
    rows
        Number of rows with such a probability.
    """

    rows: int

    @classmethod
    def of(cls, rows: int, total: int, least: float) -> Self:
        """Return the warning with its message."""
        warning = cls(
            f"{rows:,} of {counted(total, 'row')} {'have' if rows > 1 else 'has'} a probability "
            f"below {least:g}, such as an exact 0; it counts as {least:g}"
        )
        warning.rows = rows
        return warning


class NoGroupsWarning(CalibrationWarning):
    """No groups were passed, so every row gets the common calibrator."""

    @classmethod
    def when_fitting(cls) -> Self:
        """Return the warning of `fit`."""
        return cls(
            "sensitive_features were not passed, so one common calibrator is fitted",
            "pass sensitive_features= (or sensitive_columns=) for one per group",
        )

    @classmethod
    def when_applied(cls, policy: str) -> Self:
        """Return the warning of `predict_proba`."""
        return cls(
            "sensitive_features were not passed to a model that was fitted with groups, so every "
            f"row is calibrated by the policy {policy!r}",
            "pass sensitive_features=",
            "pass --group",
        )


def _listed(items: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + rest
