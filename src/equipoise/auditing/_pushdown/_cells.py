"""Answers of the queries, added to the audit tables that they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._pushdown._query import HALF, Plan
from equipoise.metrics import BLOCKS, SUMS, Array, AuditTable

Ints = NDArray[np.int64]


@dataclasses.dataclass
class Cells:
    """Rows of one query's answer, collected from one or several frames."""

    keys: dict[tuple[Any, ...], int]  # position of each distinct key
    key: Ints  # position of each row's key
    cell: Ints
    sums: Mapping[str, tuple[Ints, Ints]]  # high and low half of each row's sums

    @classmethod
    def of(cls, answers: Sequence[Any], key_names: Sequence[str]) -> Cells:
        """Gather collected narwhals frames."""
        keys: dict[tuple[Any, ...], int] = {}
        key = []
        for answer in answers:
            columns = [[plain(v) for v in answer[name].to_list()] for name in key_names]
            rows = zip(*columns, strict=True) if key_names else [()] * len(answer)
            key += [keys.setdefault(k, len(keys)) for k in rows]
        sums: dict[str, tuple[Ints, Ints]] = {}
        for name in answers[0].columns:
            if name not in key_names:
                parts = [_halves(answer[name]) for answer in answers]
                high, low = (np.concatenate(half) for half in zip(*parts, strict=True))
                sums[name] = (high, low)
        for name in [name for name in sums if f"{name}_high" in sums]:
            (high, low), (more, rest) = sums[name], sums.pop(f"{name}_high")
            sums[name] = (high + more * HALF + rest, low)
        high, low = sums.pop("cell")
        return cls(keys, np.array(key, np.int64), high * HALF + low, sums)

    def __getitem__(self, rows: Any) -> Cells:
        """Return some of the rows."""
        sums = {name: (high[rows], low[rows]) for name, (high, low) in self.sums.items()}
        return Cells(self.keys, self.key[rows], self.cell[rows], sums)

    def count(self, rows: Any) -> int:
        """Return how many rows of the data are counted in some of these rows."""
        high, low = self.sums["rows"]
        return int(high[rows].sum()) * HALF + int(low[rows].sum())


def _halves(column: Any) -> tuple[Ints, Ints]:
    """Return whole numbers of 64 bits, or of DuckDB's 128, as value // HALF and value % HALF.

    A sum of floats that is too large to be exact raises OverflowError.
    """
    array = _in_memory(column)
    if array is None:
        values = column.to_numpy()
    elif str(array.type).startswith("decimal"):
        # two words of 64 bits, the lower one first; no sum is negative
        words = np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), 16 * array.offset)
        low, high = words.reshape(-1, 2).T
        bits = HALF.bit_length() - 1
        top = (high << np.uint64(64 - bits)) | (low >> np.uint64(bits))
        return top.astype(np.int64), (low % np.uint64(HALF)).astype(np.int64)
    else:
        # PyArrow's own way imports pandas, which takes longer than a small audit
        kind = np.dtype(str(array.type).replace("double", "float64"))
        values = np.frombuffer(array.buffers()[1], kind, len(array), kind.itemsize * array.offset)
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

    def __init__(self, rows: int, classes: int, n_bins: int) -> None:
        size = {"k": classes, "b": n_bins}
        self.sums = {
            name: np.zeros((2, rows, *(size[axis] for axis in spec.axes)), np.int64)
            for name, spec in SUMS.items()
            if spec.block in BLOCKS
        }

    def put(self, name: str, value: tuple[Ints, Ints], *at: Ints) -> None:
        """Add values to the cells of one sum."""
        for half, part in zip(self.sums[name], value, strict=True):
            np.add.at(half, at, part)

    def put_where(self, condition: Array, name: str, value: tuple[Ints, Ints], *at: Ints) -> None:
        """Add those values for which the condition holds."""
        high, low = value
        self.put(name, (high[condition], low[condition]), *(index[condition] for index in at))

    def table(
        self, rows: list[int], groups: Sequence[Hashable], labels: tuple[Hashable, ...]
    ) -> AuditTable:
        """Return the table of some of the rows."""
        sums = {
            name: high[rows].astype(object) * HALF + low[rows]
            for name, (high, low) in self.sums.items()
        }
        n_bins = self.sums["bin_count"].shape[-1]
        return AuditTable(tuple(groups), labels, n_bins, False, sums)


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


def _put_common(into: Filling, cells: Cells, row: Ints, y: Ints) -> tuple[Ints, Ints]:
    """Add the sums that both queries answer alike, and return the numbers of rows."""
    n = cells.sums["rows"]
    for name in ("rows", "weight"):
        into.put(name, n, row)
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
