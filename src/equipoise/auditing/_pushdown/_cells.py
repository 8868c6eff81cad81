"""Answers of the queries, added to the audit tables that they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._pushdown._query import HALF, Plan
from equipoise.metrics import BLOCKS, SUMS, Array

Ints = NDArray[np.int64]

Parts = tuple[Array, ...]
"""Sums: the high and the low half of whole numbers, or float64 where rows have weights."""


@dataclasses.dataclass
class Cells:
    """Rows of one query's answer, collected from one or several frames."""

    keys: dict[tuple[Any, ...], int]  # position of each distinct key
    key: Ints  # position of each row's key
    cell: Ints
    sums: Mapping[str, Parts]  # of each row
    count: Ints  # rows of the data that each row stands for

    @classmethod
    def of(
        cls, answers: Sequence[Any], key_names: Sequence[str], *, weighted: bool = False
    ) -> Cells:
        """Gather collected narwhals frames."""
        keys: dict[tuple[Any, ...], int] = {}
        key = []
        for answer in answers:
            columns = [[plain(v) for v in answer[name].to_list()] for name in key_names]
            rows = zip(*columns, strict=True) if key_names else [()] * len(answer)
            key += [keys.setdefault(k, len(keys)) for k in rows]
        sums: dict[str, Parts] = {}
        for name in answers[0].columns:
            if name not in key_names:
                exact = not weighted or name in ("cell", "rows")
                parts = [(_halves if exact else _floats)(answer[name]) for answer in answers]
                sums[name] = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        for name in [name for name in sums if f"{name}_high" in sums]:
            (high, low), (more, rest) = sums[name], sums.pop(f"{name}_high")
            sums[name] = (high + more * HALF + rest, low)
        high, low = sums.pop("cell")
        more, rest = sums["rows"]
        return cls(keys, np.array(key, np.int64), high * HALF + low, sums, count=more * HALF + rest)

    def __getitem__(self, rows: Any) -> Cells:
        """Return some of the rows."""
        sums = {name: tuple(part[rows] for part in parts) for name, parts in self.sums.items()}
        return Cells(self.keys, self.key[rows], self.cell[rows], sums, self.count[rows])

    def power(self, power: int) -> Cells:
        """Return the sums of weight * value, or of weight**2 * value, as those of the values."""
        end = "_2" if power == 2 else ""
        names = [name for name in self.sums if f"{name}_2" in self.sums]
        sums = {"rows" if n == "w" else n: self.sums[f"{n}{end}"] for n in names}
        return dataclasses.replace(self, sums=sums)


def _floats(column: Any) -> Parts:
    return (_numbers(column).astype(np.float64),)


def _numbers(column: Any) -> Array:
    """Return numbers of 64 bits."""
    array = _in_memory(column)
    if array is None:
        return np.asarray(column.to_numpy())
    # PyArrow's own way imports pandas, which takes longer than a small audit
    kind = np.dtype(str(array.type).replace("double", "float64"))
    return np.frombuffer(array.buffers()[1], kind, len(array), kind.itemsize * array.offset)


def _halves(column: Any) -> Parts:
    """Return whole numbers of 64 bits, or of DuckDB's 128, as value // HALF and value % HALF.

    A sum of floats that is too large to be exact raises OverflowError.
    """
    array = _in_memory(column)
    if array is not None and str(array.type).startswith("decimal"):
        # two words of 64 bits, the lower one first; no sum is negative
        words = np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), 16 * array.offset)
        low, high = words.reshape(-1, 2).T
        bits = HALF.bit_length() - 1
        top = (high << np.uint64(64 - bits)) | (low >> np.uint64(bits))
        return top.astype(np.int64), (low % np.uint64(HALF)).astype(np.int64)
    values = _numbers(column)
    # no term is negative, so no partial sum was larger than the sum
    if values.dtype == np.float64 and values.max(initial=0.0) >= 2.0**53:
        raise OverflowError("a sum of floats is not exact")
    values = values.astype(np.int64)
    return values // HALF, values % HALF


def _in_memory(column: Any) -> Any:
    """Return a column of numbers, none missing, as one array of PyArrow; None if it is not one."""
    if isinstance(column, nw.Series):
        if not column.implementation.is_pyarrow() and column.dtype != nw.Decimal:
            return None
        column = column.to_arrow()
    else:
        column = column.array
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


class Answer:
    """The answer of a DuckDB query, with what is used here of a narwhals frame.

    For that frame narwhals would import pyarrow.compute, which takes as long as a small query.
    """

    def __init__(self, relation: Any) -> None:
        self.table = relation.to_arrow_table()
        self.columns = self.table.column_names

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, name: str) -> AnswerColumn:
        return AnswerColumn(self.table.column(name))

    def iter_rows(self, *, named: bool) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Return the rows by the names of their columns."""
        return iter(self.table.to_pylist())


@dataclasses.dataclass(frozen=True)
class AnswerColumn:
    """A column of an answer."""

    array: Any

    def to_list(self) -> list[Any]:
        """Return its values."""
        return list(self.array.to_pylist())


def plain(value: Any) -> Any:
    """Return a value of a frame as Python's own, None where it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and value != value else value


class Filling:
    """Sums of several tables, side by side while they are filled."""

    def __init__(self, rows: int, classes: int, n_bins: int, *, weighted: bool = False) -> None:
        size = {"k": classes, "b": n_bins}
        self.weighted = weighted
        shape, kind = ((1, rows), np.float64) if weighted else ((2, rows), np.int64)
        self.sums: dict[str, Array] = {
            name: np.zeros((*shape, *(size[axis] for axis in spec.axes)), kind)
            for name, spec in SUMS.items()
            if spec.block in BLOCKS
        }

    def put(self, name: str, value: Parts, *at: Ints) -> None:
        """Add values to the cells of one sum."""
        for half, part in zip(self.sums[name], value, strict=True):
            np.add.at(half, at, part)

    def put_where(self, condition: Array, name: str, value: Parts, *at: Ints) -> None:
        """Add those values for which the condition holds."""
        chosen = tuple(part[condition] for part in value)
        self.put(name, chosen, *(index[condition] for index in at))

    def finished(self) -> dict[str, Array]:
        """Return the sums as a table has them."""
        if not self.weighted:
            return {n: high.astype(object) * HALF + low for n, (high, low) in self.sums.items()}
        sums = {name: values for name, (values,) in self.sums.items()}
        sums["rows"] = sums["rows"].astype(np.int64).astype(object)
        return sums


def with_squares(sums: Mapping[str, Array], squares: Mapping[str, Array]) -> dict[str, Array]:
    """Return the sums of weighted rows, from those of weights and those of squared weights."""
    own = [n for n, s in SUMS.items() if s.block == "spread"] + ["brier2", "log_loss2"]
    return {
        **sums,
        **{name: squares[name] for name in own},
        "bin_gap1": squares["bin_correct"] - squares["bin_confidence"],
        "class_count2": squares["class_count"],
        "class_gap1": squares["class_correct"] - squares["class_probability"],
    }


# --- two classes -----------------------------------------------------------------------------


def take_apart(cells: Cells, plan: Plan) -> dict[str, Ints]:
    """Return the digits of the cells of `of_pair` or `of_rows`, and which are valid."""
    m = plan.n_bins
    if plan.classes > 2:
        rest, c = np.divmod(cells.cell, 2 * m + 1)
        rest, impossible = np.divmod(rest, 2)
        rest, correct = np.divmod(rest, 2)
        y, hit = np.divmod(rest, 3)
        found = {"c": c, "impossible": impossible, "correct": correct, "hit": hit - 1, "y": y - 1}
        found["valid"] = c <= m
        found["decided"] = hit > 0
    else:
        # y and d begin at -1, and the bin of 1 - FAULTY is -m
        least = 1 if plan.decisions is None else 4
        cell = cells.cell + (least * (4 * m + 2) * (3 * m + 1) + m)
        rest, c0 = np.divmod(cell, 3 * m + 1)
        rest, c1 = np.divmod(rest, 4 * m + 2)
        d, y = np.divmod(rest, 3)
        # c1 counts half bins, or has the class of the larger probability as its last digit
        top = (c1 > m).astype(np.int64) if plan.single else c1 % 2
        c1 = (c1 + 1) // 2 if plan.single else c1 // 2
        found = {"c0": c0 - m, "c1": c1, "top": top, "y": y - 1}
        found["d"] = top if plan.decisions is None else d - 1
        found["valid"] = c1 <= m
        found["decided"] = found["d"] >= 0
    return found


def _put_common(into: Filling, cells: Cells, row: Ints, y: Ints) -> Parts:
    """Add the sums that both queries answer alike, and return the numbers or weights of rows."""
    n = cells.sums["rows"]
    into.put("rows", (cells.count.astype(np.float64),) if into.weighted else n, row)
    into.put("weight", n, row)
    for name in ("log_loss", "log_loss2", "brier2"):
        into.put(name, cells.sums[name], row)
    into.put("labels", n, row, y)
    return n


def put_pair(into: Filling, cells: Cells, plan: Plan, row: Ints) -> None:
    """Add the answer of `of_pair`; `row` is where in the tables each cell belongs."""
    at = take_apart(cells, plan)
    y, d, top = at["y"], at["d"], at["top"]
    n = _put_common(into, cells, row, y)
    into.put("predictions", n, row, d)
    into.put_where(d == y, "hits", n, row, y)
    for k in (0, 1):
        p, s, c = cells.sums[f"p{k}"], cells.sums[f"s{k}"], at[f"c{k}"]
        b, here = np.maximum(c - 1, 0), np.full(len(row), k)
        into.put("probability", p, row, here)
        into.put("squared_error", s, row, here)
        into.put("class_count", n, row, here, b)
        into.put("class_probability", p, row, here, b)
        into.put("class_gap2", s, row, here, b)
        into.put_where(y == k, "class_correct", n, row, here, b)
        into.put_where(y == k, "own_probability", p, row, here)
        into.put_where((y == k) & (c == 0), "impossible", n, row)
        for name, value in (
            ("bin_count", n), ("bin_count2", n), ("bin_confidence", p), ("bin_gap2", s)
        ):  # fmt: skip
            into.put_where(top == k, name, value, row, b)
        into.put_where((top == k) & (y == k), "bin_correct", n, row, b)


# --- more classes ----------------------------------------------------------------------------


def put_rows(into: Filling, cells: Cells, plan: Plan, row: Ints) -> None:
    """Add the answer of `of_rows`."""
    at = take_apart(cells, plan)
    y, b = at["y"], np.maximum(at["c"] - 1, 0)
    n = _put_common(into, cells, row, y)
    into.put_where(at["hit"] == 1, "hits", n, row, y)
    into.put("own_probability", cells.sums["own"], row, y)
    into.put_where(at["impossible"] == 1, "impossible", n, row)
    into.put("bin_count", n, row, b)
    into.put("bin_count2", n, row, b)
    into.put("bin_confidence", cells.sums["confidence"], row, b)
    into.put("bin_gap2", cells.sums["gap2"], row, b)
    into.put_where(at["correct"] == 1, "bin_correct", n, row, b)


def put_classes(into: Filling, cells: Cells, plan: Plan, row: Ints) -> None:
    """Add the answer of `of_classes`, without faulty rows."""
    at = np.divmod(cells.cell, 2 * plan.n_bins + 1)
    sound = (at[0] >= 4 * plan.classes) & (at[1] <= plan.n_bins) & (row >= 0)
    cells, row, (rest, c) = cells[sound], row[sound], (part[sound] for part in at)
    rest, decided = np.divmod(rest - 4 * plan.classes, 2)
    k, own = np.divmod(rest, 2)
    b = np.maximum(c - 1, 0)
    n = cells.sums["rows"]
    into.put("probability", cells.sums["p"], row, k)
    into.put("squared_error", cells.sums["s"], row, k)
    into.put("class_count", n, row, k, b)
    into.put("class_probability", cells.sums["p"], row, k, b)
    into.put("class_gap2", cells.sums["s"], row, k, b)
    into.put_where(own == 1, "class_correct", n, row, k, b)
    into.put_where(decided == 1, "predictions", n, row, k)
