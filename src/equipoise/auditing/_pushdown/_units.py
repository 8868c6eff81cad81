"""Second moments over rows or clusters, added up by the engine: `equipoise.metrics.PRODUCTS`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import narwhals as nw
import numpy as np

from equipoise.auditing._pushdown._query import Frame, Plan, bit, measured
from equipoise.metrics import FEATURES, PRODUCTS, SUMS, Array


def totals_of_rows(frame: Frame, plan: Plan) -> Frame:
    """Return weight * feature of each row as the columns n, hit, .., label0, label1, .."""
    frame = measured(frame, plan)
    own, y, d = nw.col("own"), nw.col("y"), nw.col("d")
    frame = plan.with_log(
        frame.with_columns(own=nw.when(own > 0.0).then(own).otherwise(1.0), n=nw.lit(1.0))
    )
    values = {
        "n": nw.col("n"),
        "hit": bit(d == y),
        "top": nw.col("gap"),
        "brier": nw.col("brier"),
        "loss": -nw.col("log"),
    }
    for k in range(plan.classes):
        values |= {
            f"label{k}": bit(y == float(k)),
            f"prob{k}": nw.col(f"p{k}") * 1.0,
            f"pred{k}": bit(d == float(k)),
        }
    if plan.weighted:
        values = {name: v * nw.col("w") for name, v in values.items()}
    kept = [name for name in plan.kept if name != "w"]
    return frame.select(*plan.keys, *kept, **values)


def by_cluster(frame: Frame, plan: Plan) -> Frame:
    """Add up the totals of rows that have the same keys and cluster."""
    names = [name for name in frame.collect_schema().names() if name not in (*plan.keys, "c")]
    return frame.group_by(*plan.keys, "c").agg(*(nw.col(name).sum() for name in names))


def by_keys(frame: Frame, plan: Plan) -> Frame:
    """Add up the products of units' totals."""
    found = {}
    for name, factors in PRODUCTS.items():
        for k in _classes_of(name, plan) if factors else ():
            own = [nw.col(f"{x}{k if FEATURES.get(x) else ''}") for x in factors]
            found[f"{name}{k}"] = reduce(mul, own)
    frame = frame.select(*plan.keys, **found)
    return frame.group_by(*plan.keys).agg(
        nw.len().alias("unit_count"), *(nw.col(name).sum() for name in found)
    )


def _classes_of(name: str, plan: Plan) -> Sequence[int | str]:
    return range(plan.classes) if SUMS[name].axes else ("",)


def unit_sums(answers: Sequence[Any], plan: Plan) -> dict[str, Array]:
    """Return the sums of the answers, one after another, each (row of an answer, [class])."""
    found = {}
    for name in PRODUCTS:
        columns = [
            np.concatenate([np.array(a[f"{name}{k}"].to_list(), np.float64) for a in answers])
            for k in _classes_of(name, plan)
        ]
        found[name] = np.stack(columns, axis=-1) if SUMS[name].axes else columns[0]
    return found
