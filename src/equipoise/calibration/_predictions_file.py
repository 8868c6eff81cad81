"""Calibrators for files of predictions: fitted, measured, saved with column names, applied."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from equipoise._files import check_ending, reader, restoring, write_batches
from equipoise._inputs import InputError, shown, warn_caller
from equipoise.calibration._export import Exportable
from equipoise.calibration._export_onnx import to_onnx
from equipoise.calibration._export_sql import SqlExport, to_sql
from equipoise.calibration._file_apply import Applied, CalibratedRows
from equipoise.calibration._file_gathered import FOLDS, Gathered, to_fit
from equipoise.calibration._file_measures import Measured, crossed, measured, of_one, on_file
from equipoise.calibration._file_rows import Coded, Columns, held_out, share_of, taken
from equipoise.calibration._group_calibrator import GroupCalibrator
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._saving import read_sealed, write_json
from equipoise.calibration._scores import SMALLEST
from equipoise.calibration._temperature_scaling import GroupTemperatureScaling
from equipoise.calibration._warnings import ClippedWarning

Policy = Literal["error", "global", "mixture"]


@dataclasses.dataclass(frozen=True)
class FileCalibration:
    r"""A calibrator for each group of a file of predictions.

    Attributes
    ----------
    calibrator
        The fitted `GroupCalibrator`, or a `GroupTemperatureScaling` that was saved by itself.
    prob, group
        Names of the columns; empty if the file was written by the calibrator's own `save`.
    label
        Column with the label, where it is known.
    measured
        The repair on rows that it was not fitted to; None after `load`.
    note
        What else should be said of the fit, such as that it used a sample; mostly empty.
    rows
        Number of rows that it was fitted to; None after `load`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "held_out.csv"
    >>> rows = ["1,.9,f", "1,.8,f", "0,.9,f", "0,.1,f", "1,.7,m", "0,.3,m", "1,.4,m"]
    >>> _ = path.write_text("\n".join(["y,p,sex", *rows * 9]))
    >>> fitted = FileCalibration.fit(path, label="y", prob="p", group="sex", method="bcts")
    >>> fitted.save(path.with_name("repair.json"))
    >>> again = FileCalibration.load(path.with_name("repair.json"))
    >>> again.apply(path, path.with_name("calibrated.csv"))
    Applied(rows=63, unseen=0)
    """

    calibrator: GroupCalibrator | GroupTemperatureScaling
    prob: tuple[str, ...]
    group: tuple[str, ...]
    label: str | None = None
    measured: Measured | None = None
    note: str = ""
    rows: int | None = None

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
        method: str = "auto",
        shrinkage: Shrinkage = "auto",
        unseen_group: Policy = "error",
        cluster: str | None = None,
        holdout: Any = None,
    ) -> FileCalibration:
        """Fit a calibrator for each group in files of predictions, and measure it.

        Rows are read in parts. Up to a million are kept in memory, of K > 2 classes a million / K
        (all with `cluster`). Of more rows, those of two classes are merged where they are nearly
        equal, and those of several classes are sampled, which `note` says.

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
        method, shrinkage, unseen_group
            As in `GroupCalibrator`.
        cluster
            Column with the id of each row's cluster, such as a person: rows of one are in one fold.
        holdout
            The rows that the repair is measured on: a share of the rows, which are then not fitted
            to, or another file. By default each row is calibrated by a fit to the other folds, of
            five, and the calibrators that are kept are those of all rows.
        """
        columns = Columns(label, _names(prob), _names(group), cluster)
        calibrator = GroupCalibrator(
            method=method, shrinkage=shrinkage, unseen_group=unseen_group, from_proba=True
        )
        calibrator._check_params()
        share = share_of(holdout)
        if share is None and holdout is not None and _same_file(data, holdout):
            raise ValueError(
                f"holdout is the file that is fitted to, {os.fspath(holdout)}; name another, or "
                "leave it out to measure the repair out of fold"
            )
        with reader(data) as files:
            files.check(*columns.names)
            coded = Coded(columns, labels, positive)
            gathered = Gathered(FOLDS, whole=cluster is not None)
            for part in coded.parts(files):
                gathered.add(part if share is None else taken(part, ~held_out(part, share)))
            coded.settle(share, gathered.rows)
            if gathered.clipped:
                warn_caller(ClippedWarning.of(gathered.clipped, gathered.rows, SMALLEST))
            rows, fold, clusters = to_fit(gathered, coded, crossed=holdout is None)
            calibrator.classes_ = np.array(coded.classes)
            calibrator._fit_rows(rows, clusters)
            if holdout is None:
                found = crossed(files, gathered, coded, calibrator, rows, fold, clusters)
            elif share is not None:
                parts = (taken(p, held_out(p, share)) for p in coded.recoded(files))
                found = measured(
                    f"on held-out rows (a share of {share:g})", parts, coded, of_one(calibrator)
                )
            else:
                found = on_file(holdout, coded, calibrator)
        return cls(
            calibrator, columns.prob, columns.group, label, found, gathered.said(), gathered.rows
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the calibrator's `save` does, and the names of the columns."""
        columns = {"label": self.label, "prob": list(self.prob), "group": list(self.group)}
        write_json(path, {**self.calibrator.to_dict(), "columns": columns})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FileCalibration:
        """Read what `save`, or that of a calibrator, wrote; anything else is refused."""
        with restoring(f"{os.fspath(path)} is not a file of calibrators, or is damaged"):
            data = read_sealed(path)
            grouped = data["format"] == "equipoise.GroupTemperatureScaling/1"
            kind = GroupTemperatureScaling if grouped else GroupCalibrator
            calibrator = kind.from_dict(data)
            named = data.get("columns", {"prob": [], "group": []})
            prob, group = named["prob"], named["group"]
            for names in (prob, group):
                if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                    raise ValueError(f"{names!r} is not a list of column names")
            if not calibrator.shares_:
                raise ValueError("it was fitted without groups; apply it in Python")
        return cls(calibrator, tuple(prob), tuple(group), named.get("label"))

    def apply(
        self,
        data: Any,
        out: str | os.PathLike[str],
        *,
        prob: str | Sequence[str] = (),
        group: str | Sequence[str] = (),
        unseen_group: Policy | None = None,
        replace: bool = False,
        safe_csv: bool = False,
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
            What to do with a row whose group has no calibrator; by default as saved.
        replace
            Replace the columns of probabilities instead of adding columns.
        safe_csv
            Put an apostrophe before cells of text, and names of columns, that a spreadsheet would
            run: those that begin with =, +, -, @, a tab or a carriage return. Numbers stay.
        """
        check_ending(out, safe_csv=safe_csv)
        calibrator = copy.copy(self.calibrator)
        calibrator.from_proba = True
        calibrator.unseen_group = unseen_group or calibrator.unseen_group
        own = _names(prob) or self.prob
        if not own:
            raise InputError(
                "the calibrators were saved without the names of their columns",
                "pass prob= and group=",
                "pass --prob and --group",
            )
        size = len(calibrator.classes_)
        if len(own) != size and (len(own), size) != (1, 2):
            raise ValueError(
                f"the calibrators were fitted for {size} classes "
                f"({', '.join(map(shown, calibrator.classes_.tolist()))}), but there are "
                f"{len(own)} columns of probabilities: {', '.join(own)}"
            )
        with reader(data) as files:
            members = _names(group) or self.group
            if not group and calibrator.unseen_group != "error":
                # without its column, the group of every row is missing
                members = members if set(members) <= set(files.names) else ()
            elif not members:
                raise InputError(
                    "the calibrators were saved without the names of the group columns",
                    "pass group=, or unseen_group='global' or 'mixture'",
                    "pass --group, or --unseen-group global or mixture",
                )
            stream = CalibratedRows(files, calibrator, own, members, replace=replace)
            write_batches(out, stream.schema, stream.batches(), safe_csv=safe_csv)
        return Applied(stream.rows, stream.unseen.total())

    def to_sql(
        self,
        dialect: str = "duckdb",
        *,
        prob: str | Sequence[str] = (),
        group: str | Sequence[str] = (),
        unseen_group: Policy | None = None,
    ) -> SqlExport:
        """Return the calibrators as SQL of the file's columns, as `GroupCalibrator.to_sql` does.

        Parameters
        ----------
        dialect
            "duckdb", "postgres", "bigquery", "snowflake" or "spark".
        prob, group
            Columns, where their names differ from those of the fitting data.
        unseen_group
            What to do with a row whose group has no calibrator; by default as saved.
        """
        what = self._exportable(unseen_group)
        return to_sql(
            what, dialect, _names(prob) or self.prob or None, _names(group) or self.group or None
        )

    def to_onnx(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        group: str | Sequence[str] = (),
        unseen_group: Policy | None = None,
    ) -> Any:
        """Return the calibrators as an ONNX model, as `GroupCalibrator.to_onnx` does.

        The inputs are "scores" and each group column, by its name.

        Parameters
        ----------
        path
            File to write, whole or not at all.
        group, unseen_group
            As in `to_sql`.
        """
        return to_onnx(self._exportable(unseen_group), path, _names(group) or self.group or None)

    def _exportable(self, unseen_group: Policy | None) -> Exportable:
        calibrator = copy.copy(self.calibrator)
        calibrator.from_proba = True
        calibrator.unseen_group = unseen_group or calibrator.unseen_group
        calibrator._check_params()
        return dataclasses.replace(calibrator._exportable(), trimmed=True)


def _same_file(data: Any, other: Any) -> bool:
    if not all(isinstance(path, str | os.PathLike) for path in (data, other)):
        return False
    return Path(data).resolve() == Path(other).resolve()


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
