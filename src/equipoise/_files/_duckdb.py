"""DuckDB: a connection, and names as its SQL has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from equipoise._files._paths import File
from equipoise._inputs import need


def connected() -> Any:
    """Return a connection to a DuckDB that fetches nothing from elsewhere."""
    duckdb = need("duckdb", at_least="1.4.4", what="reading files")
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


def listed(files: Sequence[File]) -> str:
    """Return files as a list, their names taken literally."""
    # every name is taken for a pattern
    literal = ("".join(f"[{c}]" if c in "*?[" else c for c in file.path) for file in files)
    return "[" + ", ".join(map(quoted, literal)) + "]"


def quoted(text: str) -> str:
    """Return text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
