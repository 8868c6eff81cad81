"""The rows that an audit of arrays measures, and those of each part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from equipoise._inputs import column, columns, encode, encode_groups, matrix, same_length
from equipoise.metrics import AuditTable


@dataclasses.dataclass(frozen=True)
class Rows:
    """The arrays of predictions that are measured."""

    y_true: Any
    y_prob: Any
    sensitive_features: Any
    sample_weight: Any
    y_pred: Any

    def arguments(self) -> dict[str, Any]:
        """Return the arrays by the names of `audit`'s arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def table(self, n_bins: int, labels: Any) -> AuditTable:
        """Return the sums of these rows."""
        return AuditTable.from_arrays(**self.arguments(), n_bins=n_bins, labels=labels)

    def as_arrays(self) -> Rows:
        """Return the same with columns that can be indexed by row."""
        prob = matrix(self.y_prob, "y_prob")
        groups = dict(enumerate(columns(self.sensitive_features, "sensitive_features")))
        found = {
            name: None if value is None else column(value, name)
            for name, value in self.arguments().items()
            if name not in ("y_prob", "sensitive_features")
        }
        more = {f"sensitive_features, column {j}": col for j, col in groups.items()}
        same_length(len(prob), **found, **more)
        return Rows(y_prob=prob, sensitive_features=groups, **found)

    def at(self, rows: Any) -> Rows:
        """Return some of the rows."""
        groups = {j: col[rows] for j, col in self.sensitive_features.items()}
        found = {
            name: None if value is None else value[rows]
            for name, value in self.arguments().items()
            if name != "sensitive_features"
        }
        return Rows(sensitive_features=groups, **found)


def rows_of(
    rows: Rows, by: Any, *, drop_missing: bool
) -> tuple[Rows, int, dict[tuple[Any, ...], Any]]:
    """Return the rows to measure, how many were left out, and the rows of each part."""
    named = [v for v in (rows.y_true, rows.y_prob, rows.sensitive_features) if isinstance(v, str)]
    if named:
        raise TypeError(f"{named[0]!r} is the name of a column; pass data= with its table too")
    if by is None and not drop_missing:
        return rows, 0, {}
    rows = rows.as_arrays()
    n, dropped = len(rows.y_prob), 0
    split = {} if by is None else dict(enumerate(columns(by, "by")))
    same_length(n, **{f"by, column {j}": col for j, col in split.items()})
    if drop_missing:
        keep = ~np.isnan(rows.y_prob).reshape(n, -1).any(1)
        for col in (rows.y_true, rows.y_pred, *rows.sensitive_features.values(), *split.values()):
            if col is not None:
                keep &= encode(col, "a column")[0] >= 0
        dropped = int(n - keep.sum())
        if dropped == n:
            raise ValueError(f"each of the {n:,} rows has a missing value, so nothing is left")
        rows, split = rows.at(keep), {j: col[keep] for j, col in split.items()}
    if by is None:
        return rows, dropped, {}
    codes, keys = _encoded(split)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(keys)))[:-1]
    return rows, dropped, dict(zip(keys, np.split(order, ends), strict=True))


def _encoded(split: Mapping[int, Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    try:
        codes, keys = encode_groups(split)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("sensitive_features", "by")) from None
    return codes, [key if isinstance(key, tuple) else (key,) for key in keys]
