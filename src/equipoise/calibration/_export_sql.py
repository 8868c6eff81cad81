"""Fitted calibrators as SQL expressions, one for each class, verified in DuckDB.

A dialect other than DuckDB's is written from the same trees, but not run, and says so.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equipoise._files import replace_file
from equipoise._inputs import InputError, alternatives, need, shown
from equipoise.calibration._export import (
    Exportable,
    ExportError,
    Flags,
    Floats,
    Grid,
    check_distinct,
    compare,
    grid_of,
    group_names,
    group_text,
    names_of,
)
from equipoise.calibration._sql_trees import Tree, sqlglot_expressions, trees_of

DIALECTS = {
    "duckdb": ("DuckDB", "ERROR"),
    "postgres": ("PostgreSQL", None),
    "bigquery": ("BigQuery", "ERROR"),
    "snowflake": ("Snowflake", None),
    "spark": ("Spark", "RAISE_ERROR"),
}
"""Name of a dialect to that of the engine, and its function that raises an error, if it has one."""

TOLERANCE = 1e-12

LONGEST = 2_000_000
"""Most characters of an expression; several databases take no more than a million."""


@dataclasses.dataclass(frozen=True)
class SqlExport:
    """Calibrated probabilities as SQL.

    Attributes
    ----------
    expressions
        Dict from label to the expression of its calibrated probability.
    dialect
        duckdb, postgres, bigquery, snowflake or spark.
    prob, group
        Names of the columns that the expressions read. A single `prob` is that of the second class.
    verified
        Whether the text was run and agrees with Python to 1e-12: True for DuckDB alone.
    notes
        What was run, and what the expressions give for new groups and faulty rows.
    """

    expressions: dict[Any, str]
    dialect: str
    prob: tuple[str, ...]
    group: tuple[str, ...]
    verified: bool
    notes: tuple[str, ...]

    @property
    def expression(self) -> str:
        """The expression of the second of two classes."""
        if len(self.expressions) > 2:
            raise AttributeError("there are several classes, see expressions")
        return list(self.expressions.values())[1]

    def query(self, table: str = "predictions") -> str:
        """Return a SELECT of all columns and a ``calibrated_P`` for each column P of `prob`.

        The parts of a table's name, such as ``schema.t``, are quoted.
        """
        exp = sqlglot_expressions()
        texts = list(self.expressions.values())
        texts = texts[1:] if len(self.prob) == 1 else texts
        quoted = {"dialect": self.dialect, "identify": True}
        added = [
            f"  {text} AS {exp.to_identifier(f'calibrated_{name}', quoted=True).sql(**quoted)}"
            for text, name in zip(texts, self.prob, strict=True)
        ]
        parts = table.split(".")
        if len(parts) > 3 or "" in parts:
            raise ValueError(
                f"{table!r} is no name of a table, such as t, schema.t or database.schema.t"
            )
        source = exp.table_(*reversed(parts), quoted=True).sql(**quoted)
        head = "".join(f"-- {note}\n" for note in self.notes)
        return f"{head}SELECT\n  *,\n" + ",\n".join(added) + f"\nFROM {source}\n"

    def save(self, path: str | os.PathLike[str], table: str = "predictions") -> None:
        """Write the query, whole or not at all."""
        replace_file(Path(path), self.query(table).encode())


def check_dialect(dialect: Any) -> None:
    """Raise if there is no such dialect."""
    if dialect not in DIALECTS:
        known = alternatives(str(dialect), list(DIALECTS))
        raise ValueError(f"there is no dialect {dialect!r}; {known}")


def to_sql(
    what: Exportable,
    dialect: str,
    prob: str | Sequence[str] | None = None,
    group: str | Sequence[str] | None = None,
) -> SqlExport:
    """Return the expressions in a dialect, after those of DuckDB agree with Python."""
    check_dialect(dialect)
    columns, members = _columns(what, prob, group)
    version, largest, rows = _verify(what, columns, members)
    engine, raises = DIALECTS[dialect]
    texts = [_text(tree, dialect) for tree in trees_of(what, columns, members, raises)]
    agreed = f"DuckDB {version}: largest difference from Python {largest:.1g} on {rows:,} rows"
    notes = [
        f"Calibrated probabilities for {engine}, written by equipoise "
        f"{need('equipoise').__version__}",
        f"Verified in {agreed}"
        if dialect == "duckdb"
        else f"Not verified: no {engine} was run. The same expression was run in {agreed}",
    ]
    if members:
        unseen = {
            "error": "an error" if raises else f"NULL, as {engine} has no function for errors",
            "global": "the common calibrator",
            "mixture": "the average of all groups, by their share",
        }[what.unseen_group]
        notes.append(f"A new or missing group: {unseen}")
    kind = "within 0..1" if what.from_proba else "finite"
    notes.append(f"Input that is missing or not {kind}: NULL")
    return SqlExport(
        dict(zip(what.classes, texts, strict=True)),
        dialect,
        tuple(columns),
        tuple(members),
        dialect == "duckdb",
        tuple(notes),
    )


def _text(tree: Tree, dialect: str) -> str:
    text = str(tree.sql(dialect=dialect, identify=True))
    if len(text) > LONGEST:
        raise InputError(
            f"the expression has {len(text):,} characters, more than databases take",
            "use to_onnx, or a method with fewer parameters, such as 'bcts' or 'beta'",
            "pass --export onnx, or fit a --method with fewer parameters, such as bcts or beta",
        )
    return text


def _columns(
    what: Exportable, prob: str | Sequence[str] | None, group: str | Sequence[str] | None
) -> tuple[list[str], list[str]]:
    size, short = len(what.classes), "p" if what.from_proba else "logit"
    default = [short] if size == 2 else [f"{short}_{shown(label)}" for label in what.classes]
    if not isinstance(prob, str | None) and len(prob) == size:
        default = list(prob)
    columns = names_of(prob, default, f"prob, of {size} classes,")
    members = group_names(what, group)
    check_distinct([*columns, *members])
    return columns, members


# --- verification ----------------------------------------------------------------------------


def _verify(what: Exportable, prob: list[str], group: list[str]) -> tuple[str, float, int]:
    """Run the expressions in DuckDB; return its version, the largest difference and the rows."""
    duckdb = need("duckdb", at_least="1.4.4", what="verifying SQL")
    single = len(prob) == 1
    grid = grid_of(what, single=single, padded=what.trimmed)
    trees = trees_of(what, prob, group, DIALECTS["duckdb"][1])
    texts = [_text(tree, "duckdb") for tree in trees]
    raising = grid.unseen & grid.sound & (what.unseen is None)
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        try:
            found = _run(connection, texts, grid, ~raising, prob, group)
        except duckdb.Error as error:
            raise ExportError(
                f"DuckDB cannot run the query: {error}; nothing was written"
            ) from None
        largest = compare(found, grid, what, TOLERANCE, f"DuckDB {duckdb.__version__}", ~raising)
        for member in dict.fromkeys(grid.groups[i] for i in np.flatnonzero(raising)):
            one = raising & np.array([g == member for g in grid.groups])
            one[np.argmax(one) + 1 :] = False
            try:
                _run(connection, texts[:1], grid, one, prob, group)
            except duckdb.InvalidInputException:
                continue
            raise ExportError(
                f"DuckDB gives a probability for {group_text(member)}, which has no calibrator; "
                "nothing was written. Report it, with the version of equipoise"
            )
    return duckdb.__version__, largest, int((~raising).sum())


def _run(
    connection: Any, texts: list[str], grid: Grid, rows: Flags, prob: list[str], group: list[str]
) -> Floats:
    import pyarrow as pa

    own = grid.values[rows]
    own = own[:, 1:] if len(prob) == 1 else own
    data = {name: pa.array(np.ascontiguousarray(own[:, j])) for j, name in enumerate(prob)}
    kept = np.flatnonzero(rows)
    for name, values in zip(group, grid.columns(len(group)), strict=True):
        data[name] = pa.array([values[i] for i in kept])
    connection.register("predictions", pa.table(data))
    found = connection.execute(f"SELECT {', '.join(texts)} FROM predictions").fetchall()
    return np.array(found, dtype=np.float64).reshape(len(kept), len(texts))
