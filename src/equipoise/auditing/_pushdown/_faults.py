"""Which rows cannot be audited, why, and what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np

from equipoise._files import Opened
from equipoise._inputs import MISSING, ROW_SUM_TOLERANCE, InputError
from equipoise.auditing._pushdown._query import Frame, Plan, coded, is_nan, row_sum
from equipoise.auditing._pushdown._survey import Columns, collected

SHOWN = 3
"""Faulty rows that are shown."""

MISSED = (
    "pass drop_missing=True to leave such rows out, or repair them",
    "pass --drop-missing to leave such rows out, or repair them",
)
"""What to do about a missing value, in Python and on the command line."""


def refuse_faults(
    source: Opened,
    columns: Columns,
    frame: Frame,
    types: Mapping[str, Any],
    plan: Plan,
    drop_missing: bool,
) -> int:
    """Raise for the first kind of fault that rows have, with their number and the first of them.

    With `drop_missing` a missing value is none; the number of rows that have one is returned.
    """
    roles = columns.roles
    kinds: list[tuple[str, nw.Expr, tuple[str, ...]]] = []
    for role, name in roles.items():
        kinds.append((f"column {name!r} has no value", _missing(role, types, source), MISSED))
    missing = len(kinds)
    prob = {role: name for role, name in roles.items() if role[0] == "p"}
    for role, name in prob.items():
        p = nw.col(role)
        if source.is_text:
            kinds.append(
                (f"column {name!r} is not a number", p.is_null() | is_nan(p), ("repair the file",))
            )
        kinds.append(
            (
                f"column {name!r} is not within 0..1",
                ~((p >= 0.0) & (p <= 1.0)),
                ("pass probabilities (apply softmax to logits)",),
            )
        )
    if not plan.single:
        names = ", ".join(prob.values())
        kinds.append(
            (
                f"the columns {names} do not sum to 1",
                ~((nw.col("total") - 1.0).abs() <= ROW_SUM_TOLERANCE),
                ("pass one column for each class, and only those",),
            )
        )
    for role, known in (("y", plan.coding), ("d", plan.decisions)):
        if known is not None:
            name = columns.label if role == "y" else str(columns.pred)
            shown = ", ".join(repr(v) for v in known.labels[:10])
            kinds.append(
                (
                    f"column {name!r} is none of the labels {shown}",
                    nw.col(f"class_{role}") < 0.0,
                    (
                        "pass labels= with the label of each column of probabilities",
                        "pass --labels with the label of each column of probabilities",
                    ),
                )
            )
    if not plan.single:
        frame = row_sum(frame, list(prob))
    frame = coded(frame, plan)
    rank = [
        nw.when(flag).then(float(i)).otherwise(float(len(kinds)))
        for i, (_, flag, _) in enumerate(kinds)
    ]
    start = missing if drop_missing else 0
    frame = frame.with_columns(fault=nw.min_horizontal(*rank))
    found = collected(frame.group_by("fault").agg(nw.len().alias("rows")))
    counts = zip(found["fault"].to_list(), found["rows"].to_list(), strict=True)
    count = {int(fault): int(rows) for fault, rows in counts}
    for i, (what, _, advice) in list(enumerate(kinds))[start:]:
        if count.get(i):
            first = collected(frame.filter(nw.col("fault") == float(i)).head(SHOWN))
            total = sum(count.get(j, 0) for j in range(missing))
            more = f"; in all {total:,} rows lack a value" if total > count[i] > 0 == start else ""
            raise InputError(
                f"{what} in {count[i]:,} row{'s' * (count[i] > 1)} of {source.name} "
                f"({_listed(first, source, roles)}){more if i < missing else ''}",
                *advice,
            )
    return sum(count.get(i, 0) for i in range(missing))


def _missing(role: str, types: Mapping[str, Any], source: Opened) -> nw.Expr:
    column = nw.col(role)
    flag = column.is_null()
    if source.is_text:
        text = nw.col(f"t{role}") if role[0] == "p" else column
        return text.is_null() | text.str.strip_chars().is_in(sorted(MISSING))
    if role[0] == "p" or types[role].is_float():
        flag = flag | is_nan(column)
    return flag


def _listed(rows: nw.DataFrame[Any], source: Opened, roles: Mapping[str, str]) -> str:
    lines = []
    for row in rows.iter_rows(named=True):
        values = {}
        for role, name in roles.items():
            value = row[f"t{role}" if source.is_text and role[0] == "p" else role]
            text = repr(value.item() if isinstance(value, np.generic) else value)
            values[name] = text if len(text) <= 40 else text[:40] + "..."
        lines.append(", ".join(f"{name} {text}" for name, text in values.items()))
    return "the first: " + "; ".join(lines)
