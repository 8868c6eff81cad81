"""Rows that cannot be audited: their number, their fault and the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np

from equipoise._files import Opened
from equipoise._inputs import NOT_ONE, NOT_WITHIN, ROW_SUM_TOLERANCE, InputError, counted
from equipoise.auditing._pushdown._query import Frame, Plan, is_nan, row_sum
from equipoise.auditing._pushdown._survey import NUMBERS, Columns, collected, missing

SHOWN = 3
"""Number of faulty rows that a message shows."""

MISSED = (
    "pass drop_missing=True to leave such rows out, or repair them",
    "pass --drop-missing to leave such rows out, or repair them",
)
"""Remedy for a missing value, in Python and on the command line."""


def refuse_faults(
    source: Opened,
    columns: Columns,
    frame: Frame,
    types: Mapping[str, Any],
    plan: Plan,
    drop_missing: bool,
) -> int:
    """Raise for the first kind of fault that rows have, with their number and the first of them.

    With `drop_missing` a missing value is no fault. Returns the number of rows that have one.
    """
    roles = columns.roles
    kinds: list[tuple[str, nw.Expr, tuple[str, ...]]] = [
        (f"column {name!r} has no value", missing(role, types, source), MISSED)
        for role, name in roles.items()
    ]
    lacking = len(kinds)

    def add(what: str, flag: nw.Expr, *advice: str) -> None:
        kinds.append((what, flag, advice))

    prob = {role: name for role, name in roles.items() if role[0] == "p"}
    for role, name in prob.items():
        p = nw.col(role)
        if source.is_text:
            flag = p.is_null() | is_nan(p)
            add(f"column {name!r} is not a number", flag, "repair the file")
        outside = ~((p >= 0.0) & (p <= 1.0))
        add(f"column {name!r} is not within 0..1", outside, NOT_WITHIN)
    if columns.weight is not None:
        w = nw.col("w")
        if source.is_text:
            flag = w.is_null() | is_nan(w)
            add(f"column {columns.weight!r} is not a number", flag, "repair the file")
        for what, flag in (("negative", w < 0.0), ("infinite", ~w.is_finite())):
            add(
                f"column {columns.weight!r} is {what}",
                flag,
                "weights are finite and not negative; repair them",
            )
    if not plan.single:
        frame = row_sum(frame, list(prob))
        off = ~((nw.col("total") - 1.0).abs() <= ROW_SUM_TOLERANCE)
        add(f"the columns {', '.join(prob.values())} do not sum to 1", off, NOT_ONE)
    labels = ", ".join(repr(v) for v in plan.coding.labels[:10])
    frame = frame.with_columns(class_y=plan.coding.of("l"))
    if plan.decisions is not None:
        frame = frame.with_columns(class_d=plan.decisions.of("d"))
    for role, coded in (("y", columns.label), ("d", columns.pred)):
        if coded is not None:
            add(
                f"column {coded!r} is none of the labels {labels}",
                nw.col(f"class_{role}") < 0.0,
                "pass labels= with the label of each column of probabilities",
                "pass --labels with the label of each column of probabilities",
            )
    rank = [
        nw.when(flag).then(float(i)).otherwise(float(len(kinds)))
        for i, (_, flag, _) in enumerate(kinds)
    ]
    start = lacking if drop_missing else 0
    frame = frame.with_columns(fault=nw.min_horizontal(*rank))
    found = collected(frame.group_by("fault").agg(nw.len().alias("rows")))
    counts = zip(found["fault"].to_list(), found["rows"].to_list(), strict=True)
    count = {int(fault): int(rows) for fault, rows in counts}
    for i, (what, _, advice) in list(enumerate(kinds))[start:]:
        if count.get(i):
            first = collected(frame.filter(nw.col("fault") == float(i)).head(SHOWN))
            total = sum(count.get(j, 0) for j in range(lacking))
            more = f"; in all {total:,} rows lack a value" if total > count[i] > 0 == start else ""
            raise InputError(
                f"{what} in {counted(count[i], 'row')} of {source.name} "
                f"({_listed(first, source, roles)}){more if i < lacking else ''}",
                *advice,
            )
    return sum(count.get(i, 0) for i in range(lacking))


def _listed(rows: Any, source: Opened, roles: Mapping[str, str]) -> str:
    lines = []
    for row in rows.iter_rows(named=True):
        values = {}
        for role, name in roles.items():
            value = row[f"t{role}" if source.is_text and role[0] in NUMBERS else role]
            text = repr(value.item() if isinstance(value, np.generic) else value)
            values[name] = text if len(text) <= 40 else text[:40] + "..."
        lines.append(", ".join(f"{name} {text}" for name, text in values.items()))
    return "the first: " + "; ".join(lines)
