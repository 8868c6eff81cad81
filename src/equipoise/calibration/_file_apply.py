"""Calibrators applied to files of any size."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import Faults, Reader, distinct, probabilities
from equipoise._inputs import InputError, counted, decode, text_of
from equipoise.calibration._group_calibrator import GroupCalibrator
from equipoise.calibration._temperature_scaling import GroupTemperatureScaling
from equipoise.calibration._warnings import UnseenGroupError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class Applied:
    """Number of rows that were calibrated, and of those whose group has no calibrator."""

    rows: int
    unseen: int


class CalibratedRows:
    """Calibrates batches of files, and counts their rows and those of each unseen group."""

    def __init__(
        self,
        files: Reader,
        calibrator: GroupCalibrator | GroupTemperatureScaling,
        prob: Sequence[str],
        group: Sequence[str],
        *,
        replace: bool,
    ) -> None:
        import pyarrow as pa

        files.check(*prob, *group)
        self.files, self.calibrator, self.prob, self.group = files, calibrator, prob, group
        self.rows, self.unseen = 0, Counter[Hashable]()
        self._known: list[Any] = list(calibrator.shares_)
        keys = [tuple(map(text_of, g if isinstance(g, tuple) else (g,))) for g in self._known]
        if group and {len(key) for key in keys} != {len(group)}:
            raise ValueError(
                f"the calibrators were fitted with {counted(len(keys[0]), 'group column')}, but "
                f"{len(group)} are named: {', '.join(group)}"
            )
        self._index = {key: i for i, key in enumerate(keys)}
        if len(self._index) < len(keys):
            raise ValueError("the file of calibrators has two groups with the same text")
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

        faults, strict = Faults(), self.calibrator.unseen_group == "error"
        for batch in self.files.batches():
            prob = probabilities(batch, self.prob, self.rows, faults)
            group = self._groups(batch)
            self.rows += len(batch)
            if not faults and not (strict and self.unseen):
                own = decode(group, self._known)
                calibrated = self.calibrator.predict_proba(prob, sensitive_features=own)
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
        """Return each row's place among the known groups; -1 if it has no calibrator."""
        if not self.group:
            self.unseen[None] += len(batch)
            return np.full(len(batch), -1)
        # a group called NA counts as one if it has a calibrator
        local, rows = distinct(batch, self.group, is_text=False)
        codes = np.array([self._index.get(row, -1) for row in rows])
        for row, code, count in zip(rows, codes, np.bincount(local).tolist(), strict=True):
            if code < 0:
                group = row[0] if len(row) == 1 else row
                lacking = None in row or "" in row
                self.unseen[None if lacking else group] += count
        return codes[local]
