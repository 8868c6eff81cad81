"""Rows of a file of predictions, read in parts, with labels and groups as numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise._files import Faults, Reader, distinct, probabilities
from equipoise._inputs import column_labels, shown, text_of, typed
from equipoise.metrics import AuditTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LACKING = "drop those rows, or give them a name such as 'unknown'"


class Values:
    """Distinct values of columns, numbered as they come."""

    def __init__(self) -> None:
        self._places: dict[tuple[str | None, ...], int] = {}

    def codes(self, batch: Any, names: Sequence[str], *, is_text: bool) -> Ints:
        """Return the number of each row's value; -1 where one is missing."""
        local, rows = distinct(batch, names, is_text=is_text)
        known = self._places
        places = [-1 if None in row else known.setdefault(row, len(known)) for row in rows]
        return np.array(places, np.int64)[local]

    def texts(self) -> list[tuple[str | None, ...]]:
        """Return the values as text, by their numbers."""
        return list(self._places)

    def sorted(self) -> tuple[list[Any], Ints]:
        """Return the values in sorted order, and the place there of each number."""
        rows = list(self._places)
        kinds = [typed(map(str, set(column))) for column in zip(*rows, strict=True)]
        own = [tuple(kind[str(t)] for kind, t in zip(kinds, row, strict=True)) for row in rows]
        order = sorted(range(len(rows)), key=own.__getitem__)
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows))
        return [own[i] if len(kinds) > 1 else own[i][0] for i in order], place


@dataclasses.dataclass(frozen=True)
class Part:
    """Some rows: probabilities, and numbers of their labels, groups and clusters."""

    prob: NDArray[Any]  # (n,) of the positive class, or (n, K)
    label: Ints
    member: Ints
    cluster: Ints | None
    start: int  # number of the first row

    def __len__(self) -> int:
        return len(self.label)

    def numbers(self) -> Ints:
        """Return the rows' numbers, or those of their clusters."""
        if self.cluster is not None:
            return self.cluster
        return np.arange(self.start, self.start + len(self))


def joined(parts: Sequence[Part]) -> Part:
    """Return all rows as one part."""
    cluster = None
    if parts[0].cluster is not None:
        cluster = np.concatenate([p.cluster for p in parts if p.cluster is not None])
    prob, label, member = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("prob", "label", "member")
    )
    return Part(prob, label, member, cluster, 0)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of the columns of a file of predictions."""

    label: str
    prob: tuple[str, ...]
    group: tuple[str, ...]
    cluster: str | None = None

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [self.label, *self.prob, *self.group, *filter(None, [self.cluster])]


def parts_of(files: Reader, columns: Columns, labels: Values, groups: Values) -> Iterator[Part]:
    """Read a file; raise at its end if rows have a mistake."""
    faults, start = Faults(), 0
    own = "drop those rows, or give each an id of its own"
    for batch in files.batches(columns.names):
        prob = probabilities(batch, columns.prob, start, faults)
        label = labels.codes(batch, (columns.label,), is_text=files.is_text)
        member = groups.codes(batch, columns.group, is_text=files.is_text)
        cluster = None
        if columns.cluster is not None:
            cluster, lacking = _hashed(batch, columns.cluster, is_text=files.is_text)
            faults.add(lacking, start, f"column {columns.cluster!r} has no id", remedy=own)
        faults.add(label < 0, start, f"column {columns.label!r} has no label", remedy=_LACKING)
        name = ", ".join(columns.group)
        faults.add(member < 0, start, f"column {name} has no group", remedy=_LACKING)
        if not faults:
            yield Part(prob, label, member, cluster, start)
        start += len(batch)
    if not start:
        raise ValueError(f"{files.name} has no rows")
    faults.check()


def _hashed(batch: Any, name: str, *, is_text: bool) -> tuple[Ints, NDArray[np.bool_]]:
    """Return a hash of each row's id, and where the id is missing."""
    local, rows = distinct(batch, (name,), is_text=is_text)
    texts = np.array([row[0] or "" for row in rows], object)
    lacking = np.array([row[0] is None for row in rows])
    return pd.util.hash_array(texts, categorize=False).view(np.int64)[local], lacking[local]


def mixed(numbers: Ints) -> NDArray[np.uint64]:
    """Return pseudo-random numbers, the same for the same input (splitmix64)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def uniform(numbers: Ints) -> Floats:
    """Return pseudo-random numbers within 0..1, the same for the same input."""
    return np.asarray((mixed(numbers) >> np.uint64(11)) * 2.0**-53)


# --- classes and groups ----------------------------------------------------------------------


def check_classes(present: Sequence[Any], label: str) -> None:
    """Raise if the labels are all the same."""
    if len(present) < 2:
        raise ValueError(
            f"column {label!r} has only one value, {shown(present[0])!r}; calibrators need rows "
            "of more than one class"
        )


def share_of(holdout: Any) -> float | None:
    """Return the share of rows to hold out; None if it is a file, or nothing."""
    if not isinstance(holdout, int | float):
        return None
    if not 0.0 < holdout < 1.0:
        raise ValueError(
            f"holdout must be a share between 0 and 1, or a file, got {holdout!r}; 0.3 holds out "
            "three rows of ten"
        )
    return float(holdout)


def held_out(part: Part, share: float) -> NDArray[np.bool_]:
    """Return which rows are held out."""
    return uniform(part.numbers()) < share


def taken(part: Part, rows: NDArray[np.bool_]) -> Part:
    """Return some rows of a part."""
    cluster = None if part.cluster is None else part.cluster[rows]
    # numbers of rows are no longer in sequence, and are not needed
    return Part(part.prob[rows], part.label[rows], part.member[rows], cluster, part.start)


class Coded:
    """Reads files, and codes labels and groups: as they come, and in sorted order once settled."""

    def __init__(self, columns: Columns, labels: Any, positive: Any) -> None:
        self.columns, self._labels, self._positive = columns, labels, positive
        self._seen, self._members = Values(), Values()
        self.classes: tuple[Hashable, ...] = ()
        self.groups: list[Any] = []

    def parts(self, files: Reader) -> Iterator[Part]:
        """Read files, and code values as they come."""
        return parts_of(files, self.columns, self._seen, self._members)

    def settle(self, share: float | None, rows: int) -> None:
        """Find the classes and groups, once all rows have been read."""
        if not rows:
            raise ValueError(f"holdout={share} leaves no row to fit to; use a smaller share")
        check_classes(self._seen.sorted()[0], self.columns.label)
        self.code()

    def code(self) -> None:
        """Bring the values read so far into sorted order."""
        present, place = self._seen.sorted()
        self.groups, self._group = self._members.sorted()
        self.classes = column_labels(
            present,
            max(2, len(self.columns.prob)),
            columns=self.columns.prob,
            labels=self._labels,
            positive=self._positive,
            name=f"column {self.columns.label!r}",
        )
        self._class = np.array([self.classes.index(value) for value in present])[place]

    def extend(self) -> int:
        """Take in the values of another file, and return the number of groups before.

        New groups come after those that were there, as text. Raises for new labels.
        """
        known = len(self.groups)
        new = self._members.texts()[len(self._group) :]
        self.groups = [*self.groups, *(row if len(row) > 1 else row[0] for row in new)]
        self._group = np.append(self._group, np.arange(known, len(self.groups)))
        texts = [text_of(value) for value in self.classes]
        for (text,) in self._seen.texts()[len(self._class) :]:
            if text not in texts:
                raise ValueError(
                    f"column {self.columns.label!r} contains {shown(text)!r}, and the calibrators "
                    f"are fitted for {', '.join(map(shown, self.classes))}; drop those rows"
                )
            self._class = np.append(self._class, texts.index(text))
        return known

    def recode(self, part: Part) -> Part:
        """Return a part with classes 0..K-1 and places among the groups."""
        return dataclasses.replace(
            part, label=self._class[part.label], member=self._group[part.member]
        )

    def recoded(self, files: Reader) -> Iterator[Part]:
        """Read files again."""
        return map(self.recode, self.parts(files))

    def named(self, table: AuditTable) -> AuditTable:
        """Return a table of codes with the groups' and labels' own values."""
        groups = tuple(self.groups[int(g)] for g in table.groups)  # type: ignore[call-overload]
        return dataclasses.replace(table, groups=groups, labels=self.classes)
