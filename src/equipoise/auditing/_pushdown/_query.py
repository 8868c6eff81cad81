"""The queries behind the audit table, written once for every engine that narwhals speaks to.

Each row gets a whole number, its cell, which encodes all that is only counted: its label, whether
the decision is right, its bins, whether it is faulty. Rows are added up by their groups and cell.
The answer is small, and `_cells` adds it to the tables.

Sums are of whole numbers (see `equipoise.metrics.SUMS`). DuckDB first adds them as floats, exact
up to 2**53; if the sum shows that they were not, as 64-bit integers, for which it takes 128 bits.
Elsewhere each number is split in two halves, which 10**12 rows do not overflow. Where rows have
weights, float64 sums of weight * value and of weight**2 * value come back instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import add, and_
from typing import Any, Literal

import narwhals as nw
import numpy as np

from equipoise._inputs import ROW_SUM_TOLERANCE
from equipoise.metrics import SUMS, UNIT

Frame = Any  # nw.DataFrame or nw.LazyFrame: they share the methods used here

HALF = 2**22
"""Base of the two halves of a number: 2**41 low halves fit in 64 bits."""

FAULTY = 2.0
"""Replaces the probabilities of a row in which one is faulty: finite, and outside 0..1."""

FACTORS = {"log_loss": -SUMS["log_loss"].unit, "log_loss2": SUMS["log_loss2"].unit}
"""Factors of values in fixed point, other than UNIT; the log-loss comes as the logarithm."""

CHAIN = 32
"""Terms of a sum in one expression: engines limit how deep it may be nested."""


@dataclasses.dataclass(frozen=True)
class Coding:
    """Class of each value of a label column."""

    labels: tuple[Any, ...]
    values: tuple[tuple[Any, ...], ...]  # of each class, as the engine has them
    first: int | None  # label, if the labels and the column are consecutive integers

    def of(self, name: str) -> nw.Expr:
        """Return the class of a column as a float, -1 where it is missing or none of them."""
        column = nw.col(name)
        if self.first is not None:
            inside = (column >= self.first) & (column <= self.first + len(self.labels) - 1)
            number = column.cast(nw.Float64)
            number = number - float(self.first) if self.first else number
            return nw.when(inside).then(number).otherwise(-1.0)
        found = [
            column.is_in(list(values)).cast(nw.Float64).fill_null(0.0) * float(k + 1)
            for k, values in enumerate(self.values)
            if values
        ]
        return reduce(add, found, nw.lit(-1.0))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A query on a frame with the columns b0, .. (by), g0, .., l, d (decisions) and p0, ..

    With weights it has w, with clusters c, and with either of them `ok`: 1 where both are sound.
    """

    keys: tuple[str, ...]  # columns that rows are grouped by
    coding: Coding  # of the labels
    decisions: Coding | None  # of the decisions, where the frame has them
    n_bins: int
    single: bool  # one column of probabilities, p1
    duckdb: bool  # whether DuckDB runs the query
    adding: Literal["floats", "integers", "halves"]
    weighted: bool = False
    checked: bool = False  # whether the frame has the column `ok`
    kept: tuple[str, ...] = ()  # columns that go with each row beside the keys

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.coding.labels)

    def valid(self) -> nw.Expr:
        """Tell whether a row's probabilities are within 0..1 and sum to 1."""
        names = ["p1"] if self.single else [f"p{k}" for k in range(self.classes)]
        # is_finite, since DuckDB trusts the limits that Parquet states, which leave out NaN
        inside = [nw.col(p).is_finite() & (nw.col(p) >= 0.0) & (nw.col(p) <= 1.0) for p in names]
        if self.checked:
            inside.append(nw.col("ok") > 0.0)
        if not self.single:
            inside.append((nw.col("total") - 1.0).abs() <= ROW_SUM_TOLERANCE)
        return reduce(and_, inside)

    def ceil(self, p: nw.Expr, parts: int = 1) -> nw.Expr:
        """Return the number of the bin, or part of a bin, from 1; 0 for the probability 0 only."""
        bins = self.n_bins * parts
        if self.duckdb and not rounded_off(bins, parts, divided=True):
            return (p / (1.0 / bins)).ceil()
        c = (p * float(bins)).ceil()
        for off, values in rounded_off(bins, parts).items():
            c = c - bit(p == values[0] if len(values) == 1 else p.is_in(values)) * float(off)
        return c

    def summed(self, frame: Frame, cell: nw.Expr, values: Mapping[str, nw.Expr]) -> Frame:
        """Count rows by the keys and the cell, and add up values in fixed point.

        Where sums may overflow, two halves of each come back: `name_high` * HALF + `name`.
        """
        if self.weighted:
            return self._weighted(frame, cell, values)
        whole = {
            name: (value * float(FACTORS.get(name, UNIT)) + 0.5).floor()
            for name, value in values.items()
        }
        names = list(values)
        if self.adding == "integers":
            whole = {name: value.cast(nw.Int64) for name, value in whole.items()}
        frame = frame.select(*self.keys, cell.cast(nw.Int64).alias("cell"), **whole)
        if self.adding == "halves":
            high = {f"{n}_high": (nw.col(n) / float(HALF)).floor() for n in names}
            low = {n: nw.col(n) - nw.col(f"{n}_high") * float(HALF) for n in names}
            names += high
            frame = frame.with_columns(**high).with_columns(**low)
            frame = frame.with_columns(nw.col(n).cast(nw.Int64) for n in names)
        return frame.group_by(*self.keys, "cell").agg(
            nw.len().alias("rows"), *(nw.col(n).sum() for n in names)
        )

    def _weighted(self, frame: Frame, cell: nw.Expr, values: Mapping[str, nw.Expr]) -> Frame:
        """Add up weight * value as `name` and weight**2 * value as `name_2`; the weight is `w`."""
        w = nw.col("w")
        natural = {name: -v if name == "log_loss" else v for name, v in values.items()}
        frame = frame.select(
            *self.keys,
            cell.cast(nw.Int64).alias("cell"),
            w=w,
            w_2=w * w,
            **{name: v * w for name, v in natural.items()},
            **{f"{name}_2": v * w * w for name, v in natural.items()},
        )
        names = [n for name in ("w", *values) for n in (name, f"{name}_2")]
        return frame.group_by(*self.keys, "cell").agg(
            nw.len().alias("rows"), *(nw.col(n).sum() for n in names)
        )

    def with_log(self, frame: Frame) -> Frame:
        """Add the logarithm of the column "own", which is 1 where it would be 0."""
        if self.duckdb:
            # narwhals asks in two nested cases whether it is 0 or less
            return nw.from_native(frame.to_native().project("*, ln(own) AS log"))
        return frame.with_columns(log=nw.col("own").log())

    def unpivot(self, frame: Frame, names: Sequence[str]) -> Frame:
        """Make a row for each of the columns: its name "k" and its value "p"."""
        if self.duckdb:
            # narwhals would ask DuckDB's default connection, which may not have the table
            on = ", ".join(f'"{name}"' for name in names)
            query = f"SELECT * FROM (UNPIVOT _equipoise ON {on} INTO NAME k VALUE p)"
            return nw.from_native(frame.to_native().query("_equipoise", query))
        index = [name for name in frame.collect_schema().names() if name not in names]
        return frame.unpivot(on=list(names), index=index, variable_name="k", value_name="p")


@cache
def rounded_off(bins: int, parts: int = 1, *, divided: bool = False) -> dict[int, list[float]]:
    """Return the numbers for which ceil(p * bins) is not the bin (lo, hi], by how far it is off.

    The product is rounded and never decreases with p, so such numbers are next to the edges. Of
    these only 1/2 and every `parts`-th matter. `divided` is for ceil(p / (1 / bins)), which polars
    would turn into a product.
    """
    numbers = np.arange(bins + 1)
    edges = numbers / bins
    chosen = edges[(numbers % parts == 0) | (2 * numbers == bins)]
    off: dict[int, list[float]] = {}
    for to in (-1.0, 2.0):
        p = chosen if to < 0 else np.nextafter(chosen, to)
        while len(p):
            p = p[(p >= 0.0) & (p <= 1.0)]
            found = np.ceil(p / (1.0 / bins) if divided else p * bins)
            wrong = found - np.searchsorted(edges, p, side="left")
            p, wrong = p[wrong != 0], wrong[wrong != 0]
            for value, by in zip(p.tolist(), wrong.tolist(), strict=True):
                off.setdefault(int(by), []).append(value)
            p = np.nextafter(p, to)
    return off


def on_edges(column: nw.Expr, kind: Any, n_bins: int) -> nw.Expr:
    """Return numbers of a shorter kind as float64; a bin's edge that was rounded is that edge."""
    p = column.cast(nw.Float64)
    # divided by a column, since polars would turn the division by a number into a product
    edge = (p * float(n_bins) + 0.5).floor() / (p * 0.0 + float(n_bins))
    return nw.when(edge.cast(kind).cast(nw.Float64) == p).then(edge).otherwise(p)


def is_nan(column: nw.Expr) -> nw.Expr:
    """Say where a column of floats is NaN; DuckDB's own test misses it in Parquet files."""
    return ~column.is_finite() & (column.abs() != float("inf"))


def bit(condition: nw.Expr) -> nw.Expr:
    """Return 1.0 where it holds."""
    return condition.cast(nw.Float64)


def _added(frame: Frame, terms: list[nw.Expr], name: str) -> Frame:
    """Add a column: the sum of terms, from left to right."""
    total: nw.Expr | None = None
    for start in range(0, len(terms), CHAIN):
        some = terms[start : start + CHAIN]
        total = reduce(add, some if total is None else [total, *some])
        frame = frame.with_columns(total.alias(name))
        total = nw.col(name)
    return frame


def row_sum(frame: Frame, names: Sequence[str]) -> Frame:
    """Add the sum of a row's probabilities as the column "total"."""
    return _added(frame, [nw.col(name) for name in names], "total")


def _checked(frame: Frame, plan: Plan) -> Frame:
    """Replace label and decision by their classes, and probabilities of faulty rows by FAULTY."""
    names = ["p1"] if plan.single else [f"p{k}" for k in range(plan.classes)]
    valid = plan.valid()
    if not plan.single:
        # a column, since it would be worked out anew for each class
        frame = row_sum(frame, names).with_columns(valid=valid)
        valid = nw.col("valid")
    classes = {"y": plan.coding.of("l")}
    if plan.decisions is not None:
        classes["d"] = plan.decisions.of("d")
    p = {name: nw.when(valid).then(nw.col(name)).otherwise(FAULTY) for name in names}
    return frame.select(*plan.keys, *plan.kept, **classes, **p)


# --- two classes -----------------------------------------------------------------------------


def of_pair(frame: Frame, plan: Plan) -> Frame:
    """Return the sums of two classes: both bins are in the cell, so one query has everything."""
    y, p0, p1, own, log = (nw.col(name) for name in ("y", "p0", "p1", "own", "log"))
    frame, bins = _checked(frame, plan), float(plan.n_bins)
    if plan.single:
        # exactly p where y = 1 and 1 - p where y = 0
        frame = frame.with_columns(p0=1.0 - p1, own=(1.0 - y - p1).abs())
        e0 = 1.0 - own
        # half a bin, to tell which side of 1/2 it is: the class of the larger probability
        c1 = plan.ceil(p1, 2)
    else:
        frame = frame.with_columns(own=nw.when(y == 1.0).then(p1).otherwise(p0))
        e0 = p0 - (1.0 - y)
        c1 = plan.ceil(p1) * 2.0 + bit(p1 > p0)
    # y begins at -1, and so does d; `take_apart` adds what makes all digits begin at 0
    cell = y if plan.decisions is None else y + nw.col("d") * 3.0
    cell = (cell * (4.0 * bins + 2.0) + c1) * (3.0 * bins + 1.0) + plan.ceil(p0)
    frame = frame.with_columns(e0=e0, e1=p1 - y, own=nw.when(own > 0.0).then(own).otherwise(1.0))
    s0, s1 = (nw.col(name) * nw.col(name) for name in ("e0", "e1"))
    return plan.summed(
        plan.with_log(frame),
        cell,
        {
            "p0": p0,
            "p1": p1,
            "s0": s0,
            "s1": s1,
            "brier2": (s0 + s1) * (s0 + s1),
            "log_loss": log,
            "log_loss2": log * log,
        },
    )


# --- more classes ----------------------------------------------------------------------------


def of_rows(frame: Frame, plan: Plan) -> Frame:
    """Return the sums that have one term for each row."""
    frame = measured(frame, plan)
    y, d, best = nw.col("y"), nw.col("d"), nw.col("best")
    own, brier, log, gap = (nw.col(name) for name in ("own", "brier", "log", "gap"))
    hit = bit(d == y) + bit(d >= 0.0)
    cell = (y + 1.0) * 3.0 + hit
    cell = (cell * 2.0 + bit(nw.col("top") == y)) * 2.0 + bit(own == 0.0)
    cell = cell * float(2 * plan.n_bins + 1) + plan.ceil(best)
    frame = frame.with_columns(
        cell=cell, truth=own, own=nw.when(own > 0.0).then(own).otherwise(1.0)
    )
    return plan.summed(
        plan.with_log(frame),
        nw.col("cell"),
        {
            "confidence": best,
            "gap2": gap * gap,
            "own": nw.col("truth"),
            "brier2": brier * brier,
            "log_loss": log,
            "log_loss2": log * log,
        },
    )


def measured(frame: Frame, plan: Plan) -> Frame:
    """Add what is measured of each row: the probability of its label, its Brier score and gap."""
    frame = _decided(frame, plan)
    y, best = nw.col("y"), nw.col("best")
    p = [nw.col(f"p{k}") for k in range(plan.classes)]
    is_own = [bit(y == float(k)) for k in range(plan.classes)]
    frame = _added(frame, [x * own for x, own in zip(p, is_own, strict=True)], "own")
    frame = frame.with_columns(
        (x - own).alias(f"e{k}") for k, (x, own) in enumerate(zip(p, is_own, strict=True))
    )
    squares = [nw.col(f"e{k}") * nw.col(f"e{k}") for k in range(plan.classes)]
    return _added(frame, squares, "brier").with_columns(gap=bit(nw.col("top") == y) - best)


def of_classes(frame: Frame, plan: Plan) -> Frame:
    """Return the sums that have one term for each class of each row."""
    y, d, p, k = (nw.col(name) for name in ("y", "d", "p", "k"))
    names = [str(k) for k in range(plan.classes)]
    frame = _decided(frame, plan).select(
        *plan.keys, *plan.kept, "y", "d", *(nw.col(f"p{k}").alias(k) for k in names)
    )
    frame = plan.unpivot(frame, names).with_columns(k=k.cast(nw.Float64))
    frame = frame.with_columns(own=bit(y == k), sound=bit((y >= 0.0) & (d >= 0.0)))
    own, sound = nw.col("own"), nw.col("sound")
    # no filter: DuckDB would work out the decision once more for it
    cell = ((sound * float(plan.classes) + k) * 2.0 + own) * 2.0 + bit(d == k)
    return plan.summed(
        frame,
        cell * float(2 * plan.n_bins + 1) + plan.ceil(p),
        {"p": p, "s": (p - own) * (p - own)},
    )


def _decided(frame: Frame, plan: Plan) -> Frame:
    """Add each row's largest probability and the first class that has it."""
    p = [nw.col(f"p{k}") for k in range(plan.classes)]
    frame = _checked(frame, plan)
    if plan.single:
        frame = frame.with_columns(p0=1.0 - nw.col("p1"))
    frame = frame.with_columns(best=nw.max_horizontal(*p))
    first = [
        nw.when(x == nw.col("best")).then(float(k)).otherwise(float(plan.classes))
        for k, x in enumerate(p)
    ]
    frame = frame.with_columns(top=nw.min_horizontal(*first))
    return frame if plan.decisions is not None else frame.with_columns(d=nw.col("top"))
