"""DuckDB: a connection, and names as its SQL has them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
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


EXTENSIONS = {
    "httpfs": ("http", "https", "s3", "s3a", "s3n", "gs", "gcs", "r2", "hf"),
    "azure": ("az", "azure", "abfs", "abfss"),
}
"""DuckDB's extension for each kind of address."""


def load_extension(connection: Any, address: str) -> None:
    """Load what an address needs; raise if it is not installed, since nothing is fetched here."""
    scheme = address.partition("://")[0].lower()
    name = next((name for name, own in EXTENSIONS.items() if scheme in own), None)
    if name is None:
        raise ValueError(f"{address}: DuckDB reads no {scheme}:// addresses; copy the file here")
    try:
        connection.execute(f"LOAD {name}")
    except import_module("duckdb").Error:
        raise ValueError(
            f"{address} needs DuckDB's extension {name}, which is not installed; copy the file "
            f"here, or install it once: python -c \"import duckdb; duckdb.sql('INSTALL {name}')\""
        ) from None


def listed(files: Sequence[File]) -> str:
    """Return files as a list."""
    return "[" + ", ".join(quoted(file.path) for file in files) + "]"


def literal(path: str) -> str:
    """Return a path as a pattern that only this path matches; DuckDB takes each for a pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def quoted(text: str) -> str:
    """Return text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
