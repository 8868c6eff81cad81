"""Temperatures for files of predictions: fitted to one, saved with its columns, applied to any."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._files import (
    Faults,
    Reader,
    check_ending,
    distinct,
    probabilities,
    reader,
    replace_file,
    write_batches,
)
from equipoise._inputs import InputError, column_labels, shown, text_of, typed
from equipoise.calibration._temperature_scaling import GroupTemperatureScaling
from equipoise.metrics import AuditTable

if TYPE_CHECKING:
    import pyarrow as pa

Policy = Literal["error", "global", "mixture"]
_LACKING = "drop those rows, or give them a name such as 'unknown'"


@dataclasses.dataclass(frozen=True)
class FileCalibration:
    r"""A temperature for each group of a file of predictions.

    Attributes
    ----------
    scaling
        The temperatures.
    prob, group
        Columns they were fitted to; empty if they were saved by `GroupTemperatureScaling.save`.
    label
        Column with the label, where it is known.
    before, after
        Sums of the rows they were fitted to, uncalibrated and calibrated; None once loaded.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "held_out.csv"
    >>> rows = ["1,.9,f", "1,.8,f", "0,.9,f", "0,.1,f", "1,.7,m", "0,.3,m", "1,.4,m"]
    >>> _ = path.write_text("\n".join(["y,p,sex", *rows * 9]))
    >>> fitted = FileCalibration.fit(path, label="y", prob="p", group="sex")
    >>> fitted.save(path.with_name("temperatures.json"))
    >>> again = FileCalibration.load(path.with_name("temperatures.json"))
    >>> again.apply(path, path.with_name("calibrated.csv"))
    Applied(rows=63, unseen=0)
    """

    scaling: GroupTemperatureScaling
    prob: tuple[str, ...]
    group: tuple[str, ...]
    label: str | None = None
    before: AuditTable | None = None
    after: AuditTable | None = None

    @classmethod
    def fit(
        cls,
        data: Any,
        *,
        label: str,
        prob: str | Sequence[str],
        group: str | Sequence[str],
        labels: Sequence[Any] | None = None,
        positive: Any = None,
        unseen_group: Policy = "error",
        shrinkage: float = 0.0,
    ) -> FileCalibration:
        """Find the temperature of each group in files of predictions.

        Parameters
        ----------
        data
            CSV or Parquet files: a path, a folder, a pattern, a list of paths, or `-`.
        label, prob, group
            Columns with the label, the probabilities (one column per class, or that of the positive
            class alone), and the group; several group columns mean their intersection.
        labels
            Label of each column of probabilities; by default found by name, else in sorted order.
        positive
            Label whose probability the only column holds.
        unseen_group, shrinkage
            As in `GroupTemperatureScaling`.
        """
        prob, group = _names(prob), _names(group)
        with reader(data) as files:
            files.check(label, *prob, *group)
            rows = _Rows.read(files, label, prob, group, labels, positive)
        scaling = GroupTemperatureScaling(
            unseen_group=unseen_group, shrinkage=shrinkage, from_proba=True
        )
        scaling.fit(rows.prob, rows.y, sensitive_features=rows.group, labels=rows.labels)
        calibrated = scaling.predict_proba(rows.prob, sensitive_features=rows.group)
        before, after = (
            AuditTable.from_arrays(
                rows.y,
                p,
                sensitive_features=rows.group,
                labels=rows.labels,
                blocks=("bins", "rates", "labels"),
            )
            for p in (rows.prob, calibrated)
        )
        return cls(scaling, prob, group, label, before, after)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `GroupTemperatureScaling.save` does, and the names of the columns."""
        columns = {"label": self.label, "prob": list(self.prob), "group": list(self.group)}
        content = {**self.scaling.to_dict(), "columns": columns}
        replace_file(Path(path), json.dumps(content, indent=2).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FileCalibration:
        """Read what `save` or `GroupTemperatureScaling.save` wrote; anything else is refused."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            scaling = GroupTemperatureScaling.from_dict(data)
            named = data.get("columns", {"prob": [], "group": []})
            prob, group = named["prob"], named["group"]
            for names in (prob, group):
                if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                    raise ValueError(f"{names!r} are no names of columns")
            if not scaling.temperatures_ or abs(sum(scaling.shares_.values()) - 1.0) > 1e-6:
                raise ValueError("the shares of its groups do not add up to 1")
            if scaling.classes_.ndim != 1 or len(scaling.classes_) < 2:
                raise ValueError("it has fewer than two classes")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{os.fspath(path)} is no file of temperatures, or damaged: {error}"
            ) from None
        return cls(scaling, tuple(prob), tuple(group), named.get("label"))

    def apply(
        self,
        data: Any,
        out: str | os.PathLike[str],
        *,
        prob: str | Sequence[str] = (),
        group: str | Sequence[str] = (),
        unseen_group: Policy | None = None,
        replace: bool = False,
    ) -> Applied:
        """Calibrate files of predictions of any size, and write all their columns to one file.

        Parameters
        ----------
        data
            As for `fit`; the label is not needed.
        out
            File to write, .csv or .parquet: all columns, then ``calibrated_P`` for each column P of
            probabilities.
        prob, group
            Columns, where they are named differently from those fitted to.
        unseen_group
            What to do with a row whose group has no temperature; by default as fitted.
        replace
            Write in the place of the columns of probabilities, not beside them.
        """
        check_ending(out)
        scaling = copy.copy(self.scaling)
        scaling.from_proba = True
        scaling.unseen_group = unseen_group or scaling.unseen_group
        own = _names(prob) or self.prob
        if not own:
            raise InputError(
                "the temperatures were saved without the names of their columns",
                "pass prob= and group=",
                "pass --prob and --group",
            )
        size = len(scaling.classes_)
        if len(own) != size and (len(own), size) != (1, 2):
            raise ValueError(
                f"the temperatures are of {size} classes "
                f"({', '.join(map(shown, scaling.classes_.tolist()))}), but there are {len(own)} "
                f"columns of probabilities: {', '.join(own)}"
            )
        with reader(data) as files:
            members = _names(group) or self.group
            if not group and scaling.unseen_group != "error":
                # as for a group that is missing in a row
                members = members if set(members) <= set(files.names) else ()
            elif not members:
                raise InputError(
                    "the temperatures were saved without the names of the group columns",
                    "pass group=, or unseen_group='global' or 'mixture'",
                    "pass --group, or --unseen-group global or mixture",
                )
            stream = _Stream(files, scaling, own, members, replace=replace)
            write_batches(out, stream.schema, stream.batches())
        return Applied(stream.rows, stream.unseen)


@dataclasses.dataclass(frozen=True)
class Applied:
    """Number of rows that were calibrated, and of those whose group has no temperature."""

    rows: int
    unseen: int


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _own(values: Sequence[Hashable], codes: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values that codes stand for; None for -1."""
    return np.fromiter((*values, None), dtype=object)[codes]


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows to fit to: probabilities (n,) or (n, K), labels and groups by their own values."""

    prob: NDArray[np.floating[Any]]
    y: NDArray[Any]
    group: NDArray[Any]
    labels: tuple[Hashable, ...]

    @classmethod
    def read(
        cls,
        files: Reader,
        label: str,
        prob: Sequence[str],
        group: Sequence[str],
        labels: Sequence[Any] | None,
        positive: Any,
    ) -> _Rows:
        faults, start = Faults(), 0
        parts: list[NDArray[np.floating[Any]]] = []
        columns = _Codes((label,)), _Codes(group)
        for batch in files.batches([label, *prob, *group]):
            parts.append(probabilities(batch, prob, start, faults))
            for column in columns:
                column.add(batch, is_text=files.is_text)
            start += len(batch)
        if not start:
            raise ValueError(f"{files.name} has no rows")
        faults.check()
        (present, y), (groups, members) = (column.values() for column in columns)
        faults.add(y < 0, 0, f"column {label!r} has no label", remedy=_LACKING)
        faults.add(members < 0, 0, f"column {', '.join(group)} has no group", remedy=_LACKING)
        faults.check()
        if len(present) < 2:
            raise ValueError(
                f"column {label!r} has only one value, {shown(present[0])!r}; temperatures need "
                "rows of more than one class"
            )
        own = column_labels(
            present,
            max(2, len(prob)),
            columns=prob,
            labels=labels,
            positive=positive,
            name=f"column {label!r}",
        )
        return cls(np.concatenate(parts), _own(present, y), _own(groups, members), own)


class _Codes:
    """The values of one or several columns, as codes that are added batch by batch."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._index: dict[tuple[str | None, ...], int] = {}
        self._codes: list[NDArray[np.int64]] = []

    def add(self, batch: pa.RecordBatch, *, is_text: bool) -> None:
        """Add rows; one with a missing value has the code -1."""
        index = self._index
        local, rows = distinct(batch, self.names, is_text=is_text)
        own = [-1 if None in row else index.setdefault(row, len(index)) for row in rows]
        self._codes.append(np.array(own)[local])

    def values(self) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the distinct values in sorted order, tuples of several columns, and the codes."""
        rows = list(self._index)
        kinds = [typed({str(row[j]) for row in rows}) for j in range(len(self.names))]
        keys = [tuple(kind[str(t)] for kind, t in zip(kinds, row, strict=True)) for row in rows]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        place = np.full(len(keys) + 1, -1)
        place[order] = np.arange(len(keys))
        found = [keys[i] if len(kinds) > 1 else keys[i][0] for i in order]
        return found, place[np.concatenate(self._codes)]


class _Stream:
    """Calibrates batches of files, and counts their rows."""

    def __init__(
        self,
        files: Reader,
        scaling: GroupTemperatureScaling,
        prob: Sequence[str],
        group: Sequence[str],
        *,
        replace: bool,
    ) -> None:
        files.check(*prob, *group)
        self.files, self.scaling, self.prob, self.group = files, scaling, prob, group
        self.replace = replace
        self.rows = self.unseen = 0
        self._known: list[Any] = list(scaling.temperatures_)
        keys = [tuple(map(text_of, g if isinstance(g, tuple) else (g,))) for g in self._known]
        if group and {len(key) for key in keys} != {len(group)}:
            raise ValueError(
                f"the temperatures are of {len(keys[0])} group column(s), but {len(group)} are "
                f"named: {', '.join(group)}"
            )
        self._index = {key: i for i, key in enumerate(keys)}
        if len(self._index) < len(keys):
            raise ValueError("the file of temperatures has two groups that are written the same")
        self.schema = self._schema()

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        schema = self.files.schema
        for name in self.prob:
            field = pa.field(name if self.replace else f"calibrated_{name}", pa.float64())
            if self.replace:
                schema = schema.set(schema.get_field_index(name), field)
                continue
            if field.name in schema.names:
                raise InputError(
                    f"{self.files.name} already has a column {field.name!r}",
                    "rename or drop it, or pass replace=True to replace the probabilities",
                    "rename or drop it, or pass --replace to replace the probabilities",
                )
            schema = schema.append(field)
        return schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the calibrated batches; raise at the end, having counted, if rows were wrong."""
        faults = Faults()
        for batch in self.files.batches():
            prob = probabilities(batch, self.prob, self.rows, faults)
            group = self._groups(batch, faults)
            self.rows += len(batch)
            if not faults:
                own = _own(self._known, group)
                calibrated = self.scaling.predict_proba(prob, sensitive_features=own)
                yield self._with(batch, calibrated if prob.ndim == 2 else calibrated[:, 1:])
        if not self.rows:
            raise ValueError(f"{self.files.name} has no rows")
        faults.check()

    def _groups(self, batch: pa.RecordBatch, faults: Faults) -> NDArray[np.int64]:
        """Return each row's group by its position; -1 if it has no temperature."""
        if not self.group:
            self.unseen += len(batch)
            return np.full(len(batch), -1)
        # a group that is called NA is one, if it has a temperature, and else not seen
        local, rows = distinct(batch, self.group, is_text=False)
        codes = np.array([self._index.get(row, -1) for row in rows])[local]
        unseen = codes < 0
        self.unseen += int(unseen.sum())
        if self.scaling.unseen_group == "error" and unseen.any():
            more = ", ..." * (len(self._known) > 8)
            known = "; ".join(map(shown, self._known[:8])) + more
            faults.add(
                unseen,
                self.rows,
                "no temperature was fitted to the group",
                f" (the first: {shown(rows[local[np.argmax(unseen)]])!r}; known: {known})",
                "correct it, or pass unseen_group='global' or 'mixture'",
                "correct it, or pass --unseen-group global or mixture",
            )
        return codes

    def _with(self, batch: pa.RecordBatch, values: NDArray[np.float64]) -> pa.RecordBatch:
        import pyarrow as pa

        columns = list(batch.columns)
        for name, column in zip(self.prob, values.T, strict=True):
            added = pa.array(np.ascontiguousarray(column))
            if self.replace:
                columns[self.schema.get_field_index(name)] = added
            else:
                columns.append(added)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
