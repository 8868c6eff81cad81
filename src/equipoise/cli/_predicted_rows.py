"""The rows of files with the predictions of a model, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise._files import Reader, texts
from equipoise._inputs import decode, shown
from equipoise.cli._shared import summed
from equipoise.datasets import FrameEncoder, Source, TypeOfColumn, as_type
from equipoise.metrics import AuditTable
from equipoise.training import GroupwiseMLPClassifier

CELLS = 1 << 21
"""Numbers of X that are held at a time.

Of the time for 1,000,000 rows of 12 columns of CSV (benchmarks/predict.py), 45% goes into parsing
and encoding, 35% into the model (groups and calibration more than the network), 7% into the audit,
and the rest into reading and writing. Neither more rows at a time nor threads made it faster.
"""


class PredictedRows:
    """Predicts batches of files, counts their rows and audits those whose label is known.

    What is counted is whole once `batches` has ended. With `typed`, the columns of CSV files get
    the types that all their values share, for which the files are read once more.
    """

    def __init__(
        self, files: Reader, model: GroupwiseMLPClassifier, encoder: FrameEncoder, *, typed: bool
    ) -> None:
        self.files, self.model, self.encoder = files, model, encoder
        self.rows = self.unseen = self.unmeasured = 0
        self.table: AuditTable | None = None
        for column in encoder.columns:
            if column.kind != "drop":
                files.check(column.name)
        self.needs_groups = bool(model.groups_) and hasattr(model.scaling_, "shares_")
        self._strict = self.needs_groups and model.unseen_group == "error"
        self._remedy = "or train the model with --unseen-group global or mixture"
        self._has_groups = all(name in files.names for name in encoder.group)
        if self._strict:
            try:
                files.check(*encoder.group)
            except ValueError as error:
                raise ValueError(
                    f"{error}; give the model the group of each row, {self._remedy}"
                ) from None
        names = [*(f"prob_{k}" for k in encoder.class_names), "prediction"]
        if taken := [name for name in names if name in files.names]:
            raise ValueError(f"{files.name} already has a column {taken[0]!r}; rename or drop it")
        kinds = [*[pa.float64()] * len(encoder.class_names), pa.array(model.classes_).type]
        self._typed = typed and files.is_text
        before = _with_types(files) if self._typed else files.schema
        self.schema = pa.schema([*before, *zip(names, kinds, strict=True)], before.metadata)
        self._step = max(64, CELLS // max(1, len(encoder.feature_names)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows with their predictions."""
        for batch in self.files.batches():
            for start in range(0, len(batch), self._step):
                yield self._predicted(batch.slice(start, self._step))
        if not self.rows:
            raise ValueError(f"{self.files.name} has no rows")

    def _predicted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = Source.of_rows(pa.Table.from_batches([batch]), self.files, self.rows)
        X = self.encoder.transform(rows)
        group = self._groups(rows)
        label, prob = self.model.predict_with_proba(
            X, sensitive_features=decode(group, self.encoder.group_names)
        )
        self._measure(rows, group, prob)
        self.rows += len(batch)
        own = [
            as_type(texts(column), field.type) if self._typed and field.name else column
            for column, field in zip(batch.columns, self.schema, strict=False)
        ]
        added = [pa.array(np.ascontiguousarray(values)) for values in (*prob.T, label)]
        return pa.RecordBatch.from_arrays([*own, *added], schema=self.schema)

    def _groups(self, rows: Source) -> NDArray[np.int64]:
        """Return each row's group as a position in `group_names`; -1 if it is missing or new."""
        if not self._has_groups:
            self.unseen += rows.rows
            return np.full(rows.rows, -1)
        group = self.encoder.groups(rows)
        unseen = group < 0
        if self._strict and unseen.any():
            row = int(np.argmax(unseen))
            own = shown(tuple(rows.value(name, row) for name in self.encoder.group))
            known = "; ".join(map(shown, self.encoder.group_names))
            raise ValueError(
                f"row {rows.start + row} belongs to group {own!r}, which was not in the training "
                f"data (known: {known}); correct it, {self._remedy}"
            )
        self.unseen += int(unseen.sum())
        return group

    def _measure(self, rows: Source, group: NDArray[np.int64], prob: NDArray[np.float64]) -> None:
        if self.encoder.label not in rows.names:
            return
        y = self.encoder.labels(rows)
        known = (y >= 0) & (group >= 0)
        self.unmeasured += int((~known).sum())
        if known.any():
            own = summed(self.encoder, y[known], group[known], prob[known])
            self.table = own if self.table is None else self.table + own


def _with_types(files: Reader) -> pa.Schema:
    """Return the schema with the types that the values of CSV files share."""
    found = {name: TypeOfColumn() for name in files.names}
    for batch in files.batches():
        open_ = {name: column for name, column in found.items() if not column.is_text}
        for name, column in open_.items():
            column.add(pa.chunked_array([texts(batch.column(name))]))
        if not open_:
            break
    # a column without a name stays as it is
    return pa.schema([(f.name, found[f.name].arrow if f.name else f.type) for f in files.schema])
