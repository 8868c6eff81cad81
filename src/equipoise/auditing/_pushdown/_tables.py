"""Audit tables of a frame or of files, filled by queries that run where the data is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import narwhals as nw
import numpy as np

from equipoise._files import Opened, Stamp, opened, stamps_of
from equipoise._inputs import MOST_GROUPS, check_bins, counted, match, too_many_groups
from equipoise.auditing._pushdown._cells import (
    Cells,
    Filling,
    Ints,
    plain,
    put_classes,
    put_pair,
    put_rows,
    take_apart,
    with_squares,
)
from equipoise.auditing._pushdown._faults import refuse_faults
from equipoise.auditing._pushdown._query import Coding, Frame, Plan, of_classes, of_pair, of_rows
from equipoise.auditing._pushdown._survey import (
    MOST_LABELS,
    SAMPLE,
    Columns,
    Periods,
    Values,
    coding_like,
    coding_of,
    collected,
    missing,
    periods_of,
    prepared,
    with_checks,
)
from equipoise.auditing._pushdown._units import Units
from equipoise.metrics import Array, AuditTable, GroupRates

MOST_CELLS = 1_000_000
"""Rows of an answer beyond which the number of groups is checked first."""

MOST_AS_FLOATS = 1 << 28
"""Rows beyond which some sum is likely to pass 2**53, where sums of floats are not exact."""

SLICE = 1 << 20
"""Rows of a frame in memory that are added up at a time, to keep scratch space small."""


@dataclasses.dataclass(frozen=True)
class Filled:
    """Tables by the values of the `by` columns, and the number of rows left out.

    All tables have the same labels, each has its own groups. `dropped_by` counts those rows left
    out whose `by` columns have values. `wholes` has the tables of all parts together where these
    are not the sum of the parts: with clusters, by the values of the first columns of `by`.
    `files` are those that were read, if all of them are local.
    """

    tables: Mapping[tuple[Any, ...], AuditTable]
    dropped: int
    dropped_by: Mapping[tuple[Any, ...], int]
    wholes: Mapping[tuple[Any, ...], AuditTable] = dataclasses.field(default_factory=dict)
    files: tuple[Stamp, ...] = ()


def fill(
    data: Any,
    columns: Columns,
    *,
    labels: Any = None,
    positive: Any = None,
    n_bins: int = 15,
    drop_missing: bool = False,
    engine: str = "duckdb",
    remote: bool = False,
    apart: int = 0,
) -> Filled:
    """Fill audit tables of a frame or of files; the options are those of `audit`.

    The first `apart` columns of `by` split the rows into models, whose tables are never added up.
    """
    check_bins(n_bins)
    numbers = [*columns.prob, *([] if columns.weight is None else [columns.weight])]
    with opened(data, engine, numbers, remote=remote) as source:
        files = stamps_of(source.files)
        job = _Job(source, columns, int(n_bins), labels, positive, apart)
        return dataclasses.replace(job.run(drop_missing=drop_missing), files=files)


class _Job:
    """Fills the tables of one source."""

    def __init__(
        self,
        source: Opened,
        columns: Columns,
        n_bins: int,
        labels: Any,
        positive: Any,
        apart: int,
    ) -> None:
        self.source, self.columns, self.n_bins, self.apart = source, columns, n_bins, apart
        self.classes = max(2, len(columns.prob))
        self.labels = None if labels is None else list(labels)
        self.positive = positive
        self.frame, self.types = prepared(source, columns.roles, n_bins)
        self.periods = periods_of(source, columns.roles)
        self.eager = isinstance(self.frame, nw.DataFrame)
        self.weighted, self.clustered = columns.weight is not None, columns.cluster is not None
        self.asked = self.frame  # what queries are sent to
        if self.weighted or self.clustered:
            self.asked = with_checks(self.frame, columns.roles, self.types, source)

    def values(self, raw: Iterable[Any], role: str) -> Values:
        """Return a column's values in their final form."""
        name = self.columns.roles[role]
        if role in self.periods:
            return Periods(raw, name, self.periods[role], is_text=self.source.is_text)
        return Values(raw, name, is_file=self.source.is_file, is_text=self.source.is_text)

    def run(self, *, drop_missing: bool) -> Filled:
        """Learn the labels from the first rows, then add up all rows."""
        coded = [role for role in ("l", "d") if role in self.types]
        first = collected(self.frame.select(*coded, *self.columns.keys).head(SAMPLE).unique())
        if not len(first):
            raise ValueError(f"{self.source.name} has no rows")
        # a column that holds no groups is found out early, before rows are added up by it
        if len(first) > MOST_GROUPS // 10:
            self._limit_groups()
        whole = self.eager and len(self.frame) <= SAMPLE
        query = of_pair if self.classes == 2 else of_rows
        plan = cells = None
        try:
            plan = self._plan({role: first[role].to_list() for role in coded})
        except ValueError:
            if whole:
                raise
        if plan is not None:
            cells = self._ask(query, plan)
            at = take_apart(cells, plan)
            whole = whole or bool(at["y"].min() >= 0 and at["decided"].all())
        if not whole:
            # a label that the first rows lack, or a missing one: learn those of all rows
            full = self._plan({role: self._distinct(role) for role in coded})
            if full != plan:
                plan, cells = full, self._ask(query, full)
        assert plan is not None
        assert cells is not None
        return self._filled(cells, plan, drop_missing=drop_missing)

    def _plan(self, raw: Mapping[str, Iterable[Any]]) -> Plan:
        coding = coding_of(
            self.values(raw["l"], "l"),
            self.columns,
            self.types["l"],
            labels=self.labels,
            positive=self.positive,
        )
        decisions: Coding | None = None
        if "d" in raw:
            decisions = coding_like(coding, self.values(raw["d"], "d"), self.types["d"])
        return Plan(
            self.columns.keys,
            coding,
            decisions,
            self.n_bins,
            single=len(self.columns.prob) == 1,
            duckdb=self.frame.implementation.is_duckdb(),
            adding=self._adding(),
            weighted=self.weighted,
            checked=self.weighted or self.clustered,
            kept=("w",) if self.weighted else (),
        )

    def _adding(self) -> Literal["floats", "integers", "halves"]:
        if self.eager:  # a slice of rows fits in 64 bits
            return "integers"
        if not self.frame.implementation.is_duckdb():
            return "halves"
        return "floats" if (self.source.rows or 0) < MOST_AS_FLOATS else "integers"

    def _distinct(self, role: str) -> list[Any]:
        answer = collected(self.frame.select(role).unique().head(MOST_LABELS + 1))
        found: list[Any] = answer[role].to_list()
        if len(found) > MOST_LABELS:
            raise ValueError(
                f"column {self.columns.roles[role]!r} has more than {MOST_LABELS:,} distinct "
                "values, too many for labels; name the column that holds the classes"
            )
        return found

    def _limit_groups(self) -> None:
        """Refuse too many groups, without bringing them here."""
        keys = self.columns.keys
        self._check_groups(len(collected(self.frame.select(*keys).unique().head(MOST_GROUPS + 1))))

    def _check_groups(self, count: int) -> None:
        if count > MOST_GROUPS:
            names = " x ".join(repr(name) for name in (*self.columns.by, *self.columns.group))
            raise too_many_groups(names, MOST_GROUPS)

    def _ask(self, query: Callable[[Frame, Plan], Frame], plan: Plan) -> Cells:
        try:
            return self._asked(query, plan)
        except OverflowError:
            return self._asked(query, dataclasses.replace(plan, adding="integers"))

    def _asked(self, query: Callable[[Frame, Plan], Frame], plan: Plan) -> Cells:
        if not self.eager:
            asked = query(self.asked, plan)
            answers = [collected(asked.head(MOST_CELLS))]
            if len(answers[0]) == MOST_CELLS:
                self._limit_groups()
                answers = [collected(asked)]
        else:
            answers = [query(part, plan) for part in self._slices(self.asked)]
        return Cells.of(answers, plan.keys, weighted=self.weighted)

    def _slices(self, frame: Frame) -> list[Frame]:
        step = max(1, SLICE // (self.classes // 2))
        return [frame[start : start + step] for start in range(0, len(frame), step)]

    def _filled(self, cells: Cells, plan: Plan, *, drop_missing: bool) -> Filled:
        at = take_apart(cells, plan)
        place = self._places(cells)
        row = place.of(cells)
        sound = (at["valid"] == 1) & (at["y"] >= 0) & (at["decided"] == 1) & (row >= 0)
        dropped = int(cells.count[~sound].sum())
        if dropped and dropped != refuse_faults(
            self.source, self.columns, self.frame, self.types, plan, drop_missing
        ):
            raise ValueError(
                f"{self.source.name} changes while it is read; save it to a file first"
            )
        if not sound.any():
            raise ValueError(f"{self.source.name} has no rows without a missing value")
        classes = self._ask(of_classes, plan) if self.classes > 2 else None

        def put(power: int) -> dict[str, Array]:
            into = Filling(len(place.found), self.classes, self.n_bins, weighted=self.weighted)
            own, more = (
                c.power(power) if c is not None and self.weighted else c for c in (cells, classes)
            )
            assert own is not None
            (put_pair if more is None else put_rows)(into, own[sound], plan, row[sound])
            if more is not None:
                put_classes(into, more, plan, place.of(more))
            return into.finished()

        sums = with_squares(put(1), put(2)) if self.weighted else put(1)
        if not sums["weight"].any():
            raise ValueError(
                f"column {self.columns.weight!r} of {self.source.name} is zero in every row; name "
                "the column of the weights"
            )
        tables = self._tables(sums, place, plan)
        wholes: dict[tuple[Any, ...], AuditTable] = {}
        if self.weighted or self.clustered:
            frame = self._without_missing() if dropped else self.asked
            slices = self._slices(frame) if self.eager else [frame]
            units = Units(slices, plan, self.columns, place.values)
            tables, wholes = units.parts(tables), units.wholes(tables, self.apart)
        return Filled(tables, dropped, place.counts(cells[~sound]) if dropped else {}, wholes)

    def _without_missing(self) -> Frame:
        others = [role for role in self.columns.roles if role not in "wc"]
        lacks = [missing(role, self.types, self.source) for role in others]
        # compared with numbers, since a condition may be missing too
        sound = [nw.when(flag).then(0.0).otherwise(1.0) for flag in lacks]
        frame = self.asked.with_columns(sound=nw.min_horizontal("ok", *sound))
        return frame.filter(nw.col("sound") > 0.5)

    def _tables(
        self, sums: Mapping[str, Array], place: _Places, plan: Plan
    ) -> dict[tuple[Any, ...], AuditTable]:
        rows: dict[tuple[Any, ...], list[int]] = {}
        for i in np.flatnonzero(sums["rows"]).tolist():
            rows.setdefault(place.found[i][0], []).append(i)
        return {
            by: AuditTable(
                tuple(place.found[i][1] for i in own),
                plan.coding.labels,
                self.n_bins,
                self.weighted,
                {name: array[own] for name, array in sums.items()},
                self.clustered,
            )
            for by, own in rows.items()
        }

    def _places(self, cells: Cells) -> _Places:
        keys, n_by = self.columns.keys, len(self.columns.by)
        columns = [self.values((key[j] for key in cells.keys), role) for j, role in enumerate(keys)]
        order = [{value: i for i, value in enumerate(c.sorted)} for c in columns]
        final: dict[tuple[Any, ...], tuple[int, ...]] = {}
        by: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for key in cells.keys:
            values = [c.value[raw] for c, raw in zip(columns, key, strict=True)]
            if None not in values[:n_by]:
                by[key] = tuple(values[:n_by])
            if None not in values:
                final[key] = tuple(o[v] for o, v in zip(order, values, strict=True))
        position = sorted(set(final.values()))
        self._check_groups(len(position))
        row = {p: i for i, p in enumerate(position)}
        found = []
        for p in position:
            own = tuple(c.sorted[i] for c, i in zip(columns, p, strict=True))
            group = own[n_by:]
            found.append((own[:n_by], group if len(group) > 1 else (*group, None)[0]))
        known = dict(zip(keys, columns, strict=True))
        return _Places(found, {key: row[p] for key, p in final.items()}, by, known)


@dataclasses.dataclass(frozen=True)
class _Places:
    """Where in the tables each key belongs."""

    found: list[tuple[tuple[Any, ...], Any]]  # (by, group) of each row of the tables
    row: Mapping[tuple[Any, ...], int]  # row of each key without a missing value
    by: Mapping[tuple[Any, ...], tuple[Any, ...]]  # of each key that has all values of `by`
    values: Mapping[str, Values]  # of each column of the keys

    def of(self, cells: Cells) -> Ints:
        """Return the row that each cell belongs to, -1 for none."""
        rows = np.array([self.row.get(key, -1) for key in cells.keys], np.int64)
        return rows[cells.key]

    def counts(self, cells: Cells) -> dict[tuple[Any, ...], int]:
        """Return how many rows of the data cells stand for, by the values of `by`."""
        found: dict[tuple[Any, ...], int] = {}
        for key, i in cells.keys.items():
            count = int(cells.count[cells.key == i].sum())
            if count and key in self.by:
                found[self.by[key]] = found.get(self.by[key], 0) + count
        return found


def rates_of(
    data: Any,
    label: str,
    group: Any,
    *,
    labels: Any = None,
    engine: str = "duckdb",
    remote: bool = False,
) -> GroupRates:
    """Return Pr[Y = k | A = g] of training labels; `labels` names those without rows too."""
    names = (group,) if isinstance(group, str) else tuple(group)
    roles = {**{f"g{i}": name for i, name in enumerate(names)}, "l": label}
    with opened(data, engine, remote=remote) as source:
        frame, _ = prepared(source, roles)
        found = collected(frame.group_by(*roles).agg(nw.len().alias("rows")).head(MOST_CELLS + 1))
        if not len(found):
            raise ValueError(f"{source.name} has no rows")
        if len(found) > MOST_CELLS:
            raise ValueError(
                f"{source.name} has more than {MOST_CELLS:,} combinations of {label!r} and "
                f"{' x '.join(map(repr, names))}; name a column of labels and columns of groups"
            )
        raw = {role: [plain(v) for v in found[role].to_list()] for role in roles}
        values = {
            role: Values(raw[role], name, is_file=source.is_file, is_text=source.is_text)
            for role, name in roles.items()
        }
    rows = [int(n) for n in found["rows"].to_list()]
    columns = [[values[role].value[v] for v in raw[role]] for role in roles]
    for name, column in zip(roles.values(), columns, strict=True):
        missing = sum(n for n, v in zip(rows, column, strict=True) if v is None)
        if missing:
            raise ValueError(
                f"column {name!r} of {source.name} has no value in {counted(missing, 'row')}; "
                "drop those rows, or give them a name of their own"
            )
    known = values["l"].sorted
    if labels is not None:
        known = list(match(labels, known))
        unknown = [v for v in values["l"].sorted if v not in known]
        if unknown:
            raise ValueError(
                f"column {label!r} of {source.name} contains {unknown[0]!r}, which is not in "
                f"labels={known!r}"
            )
    count: dict[Any, dict[Any, int]] = {}
    for n, *group, y in zip(rows, *columns, strict=True):
        key = tuple(group) if len(group) > 1 else group[0]
        own = count.setdefault(key, dict.fromkeys(known, 0))
        own[y] += n
    return GroupRates.of_counts({g: count[g] for g in sorted(count)})
