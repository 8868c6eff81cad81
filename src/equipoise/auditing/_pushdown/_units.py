"""Second moments over rows or clusters, added up by the engine: `equipoise.metrics.PRODUCTS`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

import narwhals as nw
import numpy as np

from equipoise.auditing._pushdown._cells import plain
from equipoise.auditing._pushdown._query import Coding, Frame, Plan, bit, measured
from equipoise.auditing._pushdown._survey import Columns, Values, collected
from equipoise.metrics import FEATURES, PRODUCTS, SUMS, Array, AuditTable

Key = tuple[Any, ...]
Tables = Mapping[Key, AuditTable]


@dataclasses.dataclass(frozen=True)
class Units:
    """Adds the sums over units to tables that have all others."""

    frames: Sequence[Frame]  # rows without a fault: slices in memory, or one frame elsewhere
    plan: Plan
    columns: Columns
    values: Mapping[str, Values]  # of each column of the keys

    @property
    def clustered(self) -> bool:
        """Whether a unit is a cluster, not a row."""
        return self.columns.cluster is not None

    def parts(self, tables: Tables) -> dict[Key, AuditTable]:
        """Return the tables by the values of `by` with their sums over units."""
        return self._filled(tables, len(self.columns.by))

    def wholes(self, tables: Tables, apart: int) -> dict[Key, AuditTable]:
        """Return the tables of all parts together, by the first `apart` columns of `by`.

        There are none where they are the sums of the parts.
        """
        if not self.clustered or len(self.columns.by) == apart:
            return {}
        # a cluster may be in several parts, so its rows are added up once more
        parts: dict[Key, list[AuditTable]] = {}
        for key, table in tables.items():
            parts.setdefault(key[:apart], []).append(table)
        wholes = {key: AuditTable.total(own, disjoint_clusters=True) for key, own in parts.items()}
        return self._filled(wholes, apart)

    def _filled(self, tables: Tables, n_by: int) -> dict[Key, AuditTable]:
        keys = self.columns.keys
        by, groups = keys[:n_by], keys[len(self.columns.by) :]
        units = self._sums((*by, *groups))
        pooled = self._sums(by) if self.clustered else {}
        found = {}
        for key, table in tables.items():
            members = [g if len(groups) > 1 else (g,)[: len(groups)] for g in table.groups]
            own = [units[*key, *g] for g in members]  # type: ignore[misc]
            found[key] = dataclasses.replace(
                table,
                sums={**table.sums, **{n: np.stack([sums[n] for sums in own]) for n in PRODUCTS}},
                pooled_units={n: v[None] for n, v in pooled[key].items()} if pooled else None,
            )
        return found

    def _sums(self, keys: tuple[str, ...]) -> dict[Key, dict[str, Array]]:
        """Return the sums over units by the final values of the keys."""
        kept = (*self.plan.kept, *(("c",) if self.clustered else ()))
        plan = dataclasses.replace(self.plan, keys=keys or ("none",), kept=kept)
        codes = {role: self._coding(role) for role in keys}
        coded = [coding.of(role).alias(role) for role, coding in codes.items() if coding]
        coded += [] if keys else [nw.lit(0.0).alias("none")]
        frames = [frame.with_columns(*coded) if coded else frame for frame in self.frames]
        units = [_of_rows(frame, plan) for frame in frames]
        if self.clustered:
            each = [_of_clusters(frame, plan) for frame in units]
            units = each if len(each) == 1 else [_of_clusters(nw.concat(each), plan)]
        answers = [collected(_added(frame, plan)) for frame in units]
        columns = []
        for role in keys:
            coding = codes[role]
            own: Mapping[Any, Any] = self.values[role].value
            if coding is not None:
                own = {float(k): v for k, v in enumerate(coding.labels)}
            columns.append([own[plain(v)] for a in answers for v in a[role].to_list()])
        sums = _read(answers, plan)
        found: dict[Key, dict[str, Array]] = {}
        for i, key in enumerate(zip(*columns, strict=True) if keys else [()] * len(answers)):
            into = found.setdefault(key, {name: 0.0 * value[0] for name, value in sums.items()})
            for name, value in sums.items():
                into[name] = into[name] + value[i]
        return found

    def _coding(self, role: str) -> Coding | None:
        """Return codes for a column in which several values stand for the same.

        A cluster may have rows of each of them.
        """
        values = self.values[role]
        known = [(raw, v) for raw, v in values.value.items() if v is not None]
        if len(known) == len(values.sorted):
            return None
        raw = tuple(tuple(r for r, v in known if v == own) for own in values.sorted)
        return Coding(tuple(values.sorted), raw, None)


def _of_rows(frame: Frame, plan: Plan) -> Frame:
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


def _of_clusters(frame: Frame, plan: Plan) -> Frame:
    """Add up rows that have the same keys and cluster."""
    names = [name for name in frame.collect_schema().names() if name not in (*plan.keys, "c")]
    return frame.group_by(*plan.keys, "c").agg(*(nw.col(name).sum() for name in names))


def _added(frame: Frame, plan: Plan) -> Frame:
    """Add up the products of units' totals."""
    found = {}
    for name, factors in PRODUCTS.items():
        for k in _classes(name, plan) if factors else ():
            own = [nw.col(f"{x}{k if FEATURES.get(x) else ''}") for x in factors]
            found[f"{name}{k}"] = reduce(mul, own)
    frame = frame.select(*plan.keys, **found)
    return frame.group_by(*plan.keys).agg(
        nw.len().alias("unit_count"), *(nw.col(name).sum() for name in found)
    )


def _classes(name: str, plan: Plan) -> Sequence[int | str]:
    return range(plan.classes) if SUMS[name].axes else ("",)


def _read(answers: Sequence[Any], plan: Plan) -> dict[str, Array]:
    """Return the sums of the answers, one after another, each (row of an answer, [class])."""
    found = {}
    for name in PRODUCTS:
        columns = [
            np.concatenate([np.array(a[f"{name}{k}"].to_list(), np.float64) for a in answers])
            for k in _classes(name, plan)
        ]
        found[name] = np.stack(columns, axis=-1) if SUMS[name].axes else columns[0]
    return found
