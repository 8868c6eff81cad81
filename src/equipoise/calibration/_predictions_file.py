"""Temperatures for files of predictions: fitted, saved with the columns' names, and applied."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

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
from equipoise._inputs import (
    InputError,
    column_labels,
    counted,
    decode,
    encode,
    shown,
    text_of,
    typed,
)
from equipoise.calibration._group_calibrator import UnseenGroupError
from equipoise.calibration._out_of_fold import Fold, clustered_folds
from equipoise.calibration._temperature_scaling import GroupTemperatureScaling
from equipoise.metrics import AuditTable

if TYPE_CHECKING:
    import pyarrow as pa

Policy = Literal["error", "global", "mixture"]
_LACKING = "drop those rows, or give them a name such as 'unknown'"
FOLDS = 5
"""Folds of clusters that the calibration is measured with."""


@dataclasses.dataclass(frozen=True)
class FileCalibration:
    r"""A temperature for each group of a file of predictions.

    Attributes
    ----------
    scaling
        The temperatures.
    prob, group
        Names of the columns; empty if the file was written by `GroupTemperatureScaling.save`.
    label
        Column with the label, where it is known.
    before, after
        Audit tables of the fitting data, uncalibrated and calibrated; None after `load`.
    cluster
        Column with the clusters that `after` was cross-fitted by.

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
    cluster: str | None = None

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
        cluster: str | None = None,
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
        cluster
            Column with the id of each row's cluster, such as a person. The temperatures are those
            of all rows; `after` is cross-fitted: each row is calibrated with temperatures of other
            clusters (the common one, where these have no row of its group).
        """
        prob, group = _names(prob), _names(group)
        with reader(data) as files:
            files.check(label, *prob, *group, *filter(None, [cluster]))
            p, y, members, present, clusters = _rows(files, label, prob, group, cluster)
        own = column_labels(
            present,
            max(2, len(prob)),
            columns=prob,
            labels=labels,
            positive=positive,
            name=f"column {label!r}",
        )
        scaling = GroupTemperatureScaling(
            unseen_group=unseen_group, shrinkage=shrinkage, from_proba=True
        )
        folds = [] if clusters is None else _folds(y, members, clusters, cluster)
        calibrated = scaling.fit_predict_proba(p, y, sensitive_features=members, labels=own)
        for train, test in folds:
            fitted = clone(scaling).set_params(unseen_group="global")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those of all rows were given
                fitted.fit(p[train], y[train], sensitive_features=members[train], labels=own)
            calibrated[test] = fitted.predict_proba(p[test], sensitive_features=members[test])
        blocks = ("bins", "rates", "labels")
        before, after = (
            AuditTable.from_arrays(y, q, sensitive_features=members, labels=own, blocks=blocks)
            for q in (p, calibrated)
        )
        return cls(scaling, prob, group, label, before, after, cluster)

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
                    raise ValueError(f"{names!r} is not a list of column names")
            if not scaling.temperatures_ or abs(sum(scaling.shares_.values()) - 1.0) > 1e-6:
                raise ValueError("the shares of its groups do not add up to 1")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{os.fspath(path)} is not a file of temperatures, or is damaged: {error}"
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
            Columns, where their names differ from those of the fitting data.
        unseen_group
            What to do with a row whose group has no temperature; by default as saved.
        replace
            Replace the columns of probabilities instead of adding columns.
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
                f"the temperatures were fitted for {size} classes "
                f"({', '.join(map(shown, scaling.classes_.tolist()))}), but there are {len(own)} "
                f"columns of probabilities: {', '.join(own)}"
            )
        with reader(data) as files:
            members = _names(group) or self.group
            if not group and scaling.unseen_group != "error":
                # without its column, the group of every row is missing
                members = members if set(members) <= set(files.names) else ()
            elif not members:
                raise InputError(
                    "the temperatures were saved without the names of the group columns",
                    "pass group=, or unseen_group='global' or 'mixture'",
                    "pass --group, or --unseen-group global or mixture",
                )
            stream = _Stream(files, scaling, own, members, replace=replace)
            write_batches(out, stream.schema, stream.batches())
        return Applied(stream.rows, stream.unseen.total())


@dataclasses.dataclass(frozen=True)
class Applied:
    """Number of rows that were calibrated, and of those whose group has no temperature."""

    rows: int
    unseen: int


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _rows(
    files: Reader, label: str, prob: Sequence[str], group: Sequence[str], cluster: str | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], list[Any], NDArray[np.int64] | None]:
    """Read the probabilities, labels and groups of all rows, the distinct labels, the clusters."""
    faults, start = Faults(), 0
    parts, labels, groups, ids = [], [], [], []
    for batch in files.batches([label, *prob, *group, *filter(None, [cluster])]):
        parts.append(probabilities(batch, prob, start, faults))
        labels.append(distinct(batch, (label,), is_text=files.is_text))
        groups.append(distinct(batch, group, is_text=files.is_text))
        if cluster is not None:
            ids.append(distinct(batch, (cluster,), is_text=files.is_text))
        start += len(batch)
    if not start:
        raise ValueError(f"{files.name} has no rows")
    faults.check()
    (present, y), (known, members) = _joined(labels), _joined(groups)
    faults.add(y < 0, 0, f"column {label!r} has no label", remedy=_LACKING)
    faults.add(members < 0, 0, f"column {', '.join(group)} has no group", remedy=_LACKING)
    clusters = None
    if cluster is not None:
        _, clusters = _joined(ids)
        own = "drop those rows, or give each an id of its own"
        faults.add(clusters < 0, 0, f"column {cluster!r} has no id", remedy=own)
    faults.check()
    if len(present) < 2:
        raise ValueError(
            f"column {label!r} has only one value, {shown(present[0])!r}; temperatures need rows "
            "of more than one class"
        )
    return np.concatenate(parts), decode(y, present), decode(members, known), present, clusters


def _folds(
    y: NDArray[Any], members: NDArray[Any], clusters: NDArray[np.int64], name: str | None
) -> list[Fold]:
    """Return folds of whole clusters."""
    if (count := len(np.unique(clusters))) < FOLDS:
        raise InputError(
            f"column {name!r} has {counted(count, 'distinct id')}, too few for {FOLDS} folds",
            "leave cluster= out",
            "leave --cluster out",
        )
    codes, places = (encode(v, "y")[0].astype(np.int64) for v in (y, members))
    return clustered_folds(codes, places, clusters, FOLDS)


def _joined(
    batches: Sequence[tuple[NDArray[np.int64], Sequence[tuple[str | None, ...]]]],
) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the sorted values of batches, and each row's place there; -1 if one is missing."""
    found = dict.fromkeys(row for _, rows in batches for row in rows if None not in row)
    kinds = [typed(map(str, set(column))) for column in zip(*found, strict=True)]
    own = {row: tuple(kind[str(t)] for kind, t in zip(kinds, row, strict=True)) for row in found}
    place = {row: i for i, row in enumerate(sorted(found, key=own.__getitem__))}
    codes = [np.array([place.get(row, -1) for row in rows])[local] for local, rows in batches]
    values = [own[row] if len(kinds) > 1 else own[row][0] for row in place]
    return values, np.concatenate(codes)


class _Stream:
    """Calibrates batches of files, and counts their rows and those of each unseen group."""

    def __init__(
        self,
        files: Reader,
        scaling: GroupTemperatureScaling,
        prob: Sequence[str],
        group: Sequence[str],
        *,
        replace: bool,
    ) -> None:
        import pyarrow as pa

        files.check(*prob, *group)
        self.files, self.scaling, self.prob, self.group = files, scaling, prob, group
        self.rows, self.unseen = 0, Counter[Hashable]()
        self._known: list[Any] = list(scaling.temperatures_)
        keys = [tuple(map(text_of, g if isinstance(g, tuple) else (g,))) for g in self._known]
        if group and {len(key) for key in keys} != {len(group)}:
            raise ValueError(
                f"the temperatures were fitted with {counted(len(keys[0]), 'group column')}, but "
                f"{len(group)} are named: {', '.join(group)}"
            )
        self._index = {key: i for i, key in enumerate(keys)}
        if len(self._index) < len(keys):
            raise ValueError("the file of temperatures has two groups with the same text")
        before = files.schema
        names = list(prob) if replace else [f"calibrated_{name}" for name in prob]
        if taken := [name for name in names if name in before.names and not replace]:
            raise InputError(
                f"{files.name} already has a column {taken[0]!r}",
                "rename or drop it, or pass replace=True to replace the probabilities",
                "rename or drop it, or pass --replace to replace the probabilities",
            )
        self._at = [
            before.get_field_index(name) if replace else len(before) + j
            for j, name in enumerate(names)
        ]
        fields = self._put(list(before), [pa.field(name, pa.float64()) for name in names])
        self.schema = pa.schema(fields, before.metadata)

    def _put(self, columns: list[Any], added: Sequence[Any]) -> list[Any]:
        """Put the calibrated columns into their places, which may be behind the last."""
        for at, column in zip(self._at, added, strict=True):
            columns[at : at + 1] = [column]
        return columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the calibrated batches; rows that are refused are counted to the end."""
        import pyarrow as pa

        faults, strict = Faults(), self.scaling.unseen_group == "error"
        for batch in self.files.batches():
            prob = probabilities(batch, self.prob, self.rows, faults)
            group = self._groups(batch)
            self.rows += len(batch)
            if not faults and not (strict and self.unseen):
                own = decode(group, self._known)
                calibrated = self.scaling.predict_proba(prob, sensitive_features=own)
                used = calibrated if prob.ndim == 2 else calibrated[:, 1:]
                added = [pa.array(np.ascontiguousarray(column)) for column in used.T]
                columns = self._put(list(batch.columns), added)
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if not self.rows:
            raise ValueError(f"{self.files.name} has no rows")
        faults.check()
        if strict and self.unseen:
            first, count = next(iter(self.unseen.items()))
            raise UnseenGroupError.of(first, count, self._known)

    def _groups(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return each row's place among the known groups; -1 if it has no temperature."""
        if not self.group:
            self.unseen[None] += len(batch)
            return np.full(len(batch), -1)
        # a group called NA counts as one if it has a temperature
        local, rows = distinct(batch, self.group, is_text=False)
        codes = np.array([self._index.get(row, -1) for row in rows])
        for row, code, count in zip(rows, codes, np.bincount(local).tolist(), strict=True):
            if code < 0:
                group = row[0] if len(row) == 1 else row
                self.unseen[None if None in row else group] += count
        return codes[local]
