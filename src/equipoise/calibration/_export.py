"""What an export contains, the rows it is verified on, and the comparison with Python."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from equipoise._inputs import shown
from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._calibrators import (
    BiasCorrected,
    Calibrator,
    Mixture,
    OneVsRest,
    Sigmoid,
    Steps,
    Temperature,
    Vector,
)
from equipoise.calibration._scores import SMALLEST, scores_of

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Key = tuple[Any, ...]

LARGEST = 1e300
"""Largest logit that is exported: a difference of two is finite."""

POINTS = (0.0, 1e-12, 0.1, 0.5, 1.0, 2.0, 5.0, 14.0, 40.0, 1000.0)
"""Log-odds to verify at, of either sign, in units of the calibrators' own scales."""


class ExportError(ValueError):
    """An engine gives other numbers than Python, so nothing was written."""


@dataclasses.dataclass(frozen=True)
class Exportable:
    """Fitted calibrators, and what their input means.

    Attributes
    ----------
    calibrators
        The common calibrator and those of groups.
    classes
        The label of each column.
    from_proba
        Whether the input is probabilities, else logits.
    unseen_group
        "error", "global" or "mixture".
    trimmed
        Whether spaces around a group's text do not matter, as in files.
    """

    calibrators: CalibratorSet
    classes: tuple[Any, ...]
    from_proba: bool
    unseen_group: str
    trimmed: bool = False

    @property
    def keys(self) -> list[Key]:
        """The groups, each as a tuple with a value per group column."""
        return [g if isinstance(g, tuple) else (g,) for g in self.calibrators.own]

    @property
    def group_columns(self) -> int:
        """Number of group columns; 0 if fitted without groups."""
        return len(self.keys[0]) if self.calibrators.own else 0

    @property
    def unseen(self) -> Calibrator | None:
        """The calibrator of a row whose group has none; None if that is an error."""
        own = self.calibrators.own
        if not own or self.unseen_group == "global":
            return self.calibrators.common
        if self.unseen_group == "mixture":
            return Mixture(tuple(self.calibrators.shares.values()), tuple(own.values()))
        return None

    def expected(self, values: Floats, slots: NDArray[Any], *, single: bool) -> tuple[Floats, Any]:
        """Return Python's probabilities (n, K), and how far rounding of the scores moves them."""
        scores = values
        if self.from_proba:
            scores = scores_of(values[:, 1] if single else values)
        policy = "global" if self.unseen is None else self.unseen_group
        prob = self.calibrators.apply(scores, slots, policy)
        nudge = np.where(np.arange(scores.shape[1]) % 2, 2.0**-50, -(2.0**-50))
        moved = [
            np.abs(self.calibrators.apply(scores * (1.0 + sign * nudge), slots, policy) - prob)
            for sign in (-1.0, 1.0)
        ]
        return prob, np.maximum(*moved)


# --- the rows --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Grid:
    """Rows that an export is verified on: scores × groups, and rows that have no probability.

    `values` is (n, K), also where an engine takes the second column alone (`single`). `expected`
    is NaN where no number may come out. `rounding` is how far the rounding of logarithms moves a
    probability; more than 1e-12 only where a curve is very steep.
    """

    values: Floats
    groups: list[Key | None]
    expected: Floats
    rounding: Floats
    unseen: Flags  # whether the group of the row is new or missing
    sound: Flags  # whether its scores are valid

    def columns(self, count: int) -> list[list[Any]]:
        """Return the values of each group column, None where they are missing."""
        return [[None if g is None else g[j] for g in self.groups] for j in range(count)]


def grid_of(what: Exportable, *, single: bool = False, padded: bool = False) -> Grid:
    """Return the rows to verify calibrators on; `single` for an input of one column.

    `padded` adds groups with spaces around their text.
    """
    sound, faulty = _points(what, single=single)
    each = np.concatenate([sound, faulty])
    members: list[Key | None] = [*what.keys, *_unseen_keys(what), None]
    known = len(what.calibrators.own)
    places = [i if i < known else -1 for i in range(len(members))]
    for i, key in enumerate(what.keys if padded else ()):
        if any(isinstance(value, str) for value in key):
            members.append(tuple(f" {v}  " if isinstance(v, str) else v for v in key))
            places.append(i)
    values = np.tile(each, (len(members), 1))
    slots = np.repeat(places, len(each))
    fine = np.tile(np.arange(len(each)) < len(sound), len(members))
    expected = np.full(values.shape, np.nan)
    rounding = np.zeros(values.shape)
    unseen = (slots < 0) & (known > 0)
    answered = fine & ~(unseen & (what.unseen is None))
    expected[answered], rounding[answered] = what.expected(
        values[answered], slots[answered], single=single
    )
    groups = [member for member in members for _ in each]
    return Grid(values, groups, expected, rounding, unseen, fine)


def _points(what: Exportable, *, single: bool) -> tuple[Floats, Floats]:
    """Return sound rows of scores, and rows that are refused."""
    k = len(what.classes)
    rng = np.random.default_rng(0)
    scales, thresholds = _landmarks(what.calibrators)
    odds = np.concatenate([np.outer(scales, POINTS).ravel(), thresholds])
    odds = np.unique(np.concatenate([odds, -odds]))
    if what.from_proba:
        near = np.array([0.0, 1e-300, 1e-12, SMALLEST, 1e-3, 0.1, 0.25, 0.4, 0.5])
        p = np.unique(np.concatenate([near, 1.0 - near, expit(odds)]))
        rows = [np.stack([1.0 - p, p], axis=1)]
        if k > 2:
            high = np.array([0.4, 0.9, 1.0 - 1e-9, 1.0])[:, None, None]
            rows = [(high * np.eye(k) + (1.0 - high) / (k - 1) * (1.0 - np.eye(k))).reshape(-1, k)]
            rows.append(rng.dirichlet(np.full(k, 0.3), 30))
            rows.append(np.stack([_with(k, expit(o)) for o in odds]))
        if not single:
            rows.append(rows[-1][::7] * (1.0 - 5e-4))  # rows are never rescaled
        faults = [-0.1, 1.1, np.nan, np.inf]
        bad = np.stack([_with(k, fault) for fault in faults])
        if not single:
            bad = np.concatenate([bad, np.full((1, k), 0.9), np.full((1, k), 0.1 / k)])
        return np.concatenate(rows), bad
    low = np.zeros_like(odds)
    rows = [np.stack([low, odds], axis=1)]
    if k > 2:
        rows = [np.kron(odds[:: max(1, len(odds) // 30)], np.eye(k)).T]
        rows.append(np.kron(scales, rng.normal(0.0, 2.0, (30, k)).T).T)
    elif not single:
        rows.append(rows[0] + 3.0)
    bad = np.stack([_with(k, fault) for fault in (np.nan, np.inf, -np.inf)])
    return np.concatenate(rows), bad


def _with(k: int, p: float) -> Floats:
    """Return a row with p for the second class and the rest for the others."""
    row = np.full(k, (1.0 - p) / (k - 1))
    row[1] = p
    return row


def _landmarks(calibrators: CalibratorSet, most: int = 60) -> tuple[Floats, Floats]:
    """Return scales of scores on which calibrators vary, and thresholds of their curves."""
    scales, thresholds = [1.0], list[float]()
    for part in _parts([calibrators.common, *calibrators.own.values()]):
        if isinstance(part, Temperature | BiasCorrected):
            scales.append(part.temperature)
        elif isinstance(part, Sigmoid):
            scales.append(1.0 / (abs(part.slope) or 1.0))
        elif isinstance(part, Vector):
            scales.append(1.0 / (max(part.scale) or 1.0))
        elif isinstance(part, Steps):
            thresholds += part.thresholds
    sizes, ends = np.unique(scales), np.unique(thresholds)
    if len(sizes) > 4:
        sizes = np.quantile(sizes, [0.0, 0.33, 0.67, 1.0], method="nearest")
    if len(ends) > most:
        ends = np.quantile(ends, np.linspace(0.0, 1.0, most), method="nearest")
    return sizes, ends


def _parts(calibrators: Iterable[Any]) -> Iterator[Any]:
    for calibrator in calibrators:
        yield calibrator
        if isinstance(calibrator, Mixture):
            yield from _parts(calibrator.calibrators)
        elif isinstance(calibrator, OneVsRest):
            yield from calibrator.curves


def _unseen_keys(what: Exportable) -> list[Key]:
    """Return groups without a calibrator: a new value, and a new combination of known ones."""
    if not what.group_columns:
        return []
    columns = list(zip(*what.keys, strict=True))
    news = [_unlike(values) for values in columns]
    found = [tuple(news)] if None not in news else []
    known = set(what.keys)
    combined = itertools.product(*(dict.fromkeys(values) for values in columns))
    return found + list(itertools.islice((key for key in combined if key not in known), 1))


def _unlike(values: Sequence[Any]) -> Any:
    """Return a value of the same type that is not among these; None if there is none."""
    if all(isinstance(value, str) for value in values):
        return "".join(["unseen", *max(values, key=len)])
    if all(isinstance(value, bool) for value in values):
        return None if len(set(values)) == 2 else not values[0]
    return max(values) + 1


# --- the comparison --------------------------------------------------------------------------


def compare(
    found: Floats, grid: Grid, what: Exportable, tolerance: float, engine: str, rows: Flags
) -> float:
    """Return the largest difference from Python's probabilities; raise if it is too large."""
    wanted, limit = grid.expected[rows], np.maximum(tolerance, grid.rounding[rows])
    with np.errstate(invalid="ignore"):
        off = np.abs(found - wanted)
        wrong = ~((off <= limit) | (np.isnan(found) & np.isnan(wanted)))
    if wrong.any():
        i, k = np.argwhere(wrong)[0].tolist()
        at = np.flatnonzero(rows)[i]
        raise ExportError(
            f"{engine} gives {_number(found[i, k])} as the probability of "
            f"{shown(what.classes[k])!r} for {group_text(grid.groups[at])} and the scores "
            f"{grid.values[at].tolist()}, and Python {_number(wanted[i, k])}; nothing was written. "
            f"Report it, with the versions of equipoise and {engine.split()[0]}"
        )
    return float(np.nanmax(off, initial=0.0))


def group_text(group: Key | None) -> str:
    """Return a group for a message."""
    if group is None:
        return "a missing group"
    return f"group {shown(group if len(group) > 1 else group[0])!r}"


def _number(value: float) -> str:
    return "nothing" if np.isnan(value) else f"{value:.17g}"


# --- names -----------------------------------------------------------------------------------


def names_of(given: str | Sequence[str] | None, default: Sequence[str], what: str) -> list[str]:
    """Return names of columns, one or several, or the default; raise unless there are as many."""
    names = [given] if isinstance(given, str) else list(given or default)
    if len(names) != len(default):
        raise ValueError(
            f"{what} must name {len(default)} column{'s' * (len(default) != 1)}, got {names!r}"
        )
    return names


def check_distinct(names: Sequence[str]) -> None:
    """Raise if a name is used twice; many databases ignore case."""
    lower = [name.casefold() for name in names]
    twice: list[Hashable] = [n for n, low in zip(names, lower, strict=True) if lower.count(low) > 1]
    if twice:
        raise ValueError(
            f"column {twice[0]!r} is named twice; every column needs a name of its own"
        )
    if "" in names:
        raise ValueError("a column has no name; pass the names of all columns")


def group_names(what: Exportable, group: str | Sequence[str] | None) -> list[str]:
    """Return the names of the group columns; none if the calibrators were fitted without."""
    count = what.group_columns
    if group and not count:
        raise ValueError("the calibrators were fitted without groups; leave group= out")
    default = ["group"] if count == 1 else [f"group_{j + 1}" for j in range(count)]
    return names_of(group, default, "group")
