"""A table with columns added to it: what was there stays as it is in the file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import narwhals as nw

from equipoise._files import replace_file
from equipoise.datasets import Source

PARQUET = (".parquet", ".pq")


def check_ending(out: Path) -> None:
    """Refuse a file that `write_table` could not write."""
    if out.suffix.lower() in PARQUET:
        _library()
    elif out.suffix.lower() != ".csv":
        raise click.BadParameter(f"{out} ends in neither .csv nor .parquet", param_hint="'--out'")


def open_table(path: Path) -> tuple[Source, Any]:
    """Return the columns of a CSV or Parquet file, and the file's own rows of text or frame."""
    if path.suffix.lower() in PARQUET:
        frame = _read_parquet(path)
        return Source.of(frame), frame
    return Source.of(path), _cells(path)


def write_table(
    out: Path, table: Source, original: Any, added: Mapping[str, Sequence[Any]]
) -> None:
    """Write what `open_table` gave with columns added, whole or not at all."""
    is_text = isinstance(original, list)
    if out.suffix.lower() in PARQUET:
        if is_text:
            columns = {name: _with_none(table[name].tolist()) for name in table.names}
            original = _frame(columns)
        content = _parquet_bytes(original, added)
    else:
        rows = original if is_text else _rows(original)
        content = _csv_bytes(rows, added)
    replace_file(out, content)


def _with_none(values: list[Any]) -> list[Any]:
    return [None if v != v else v for v in values]


# --- CSV -------------------------------------------------------------------------------------


def _cells(path: Path) -> list[list[str]]:
    """Return header and rows as text, taken apart as `Source` does."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        return [row for row in reader if row]


def _rows(frame: Any) -> list[Sequence[Any]]:
    """Return header and rows of a frame."""
    columns = nw.from_native(frame, eager_only=True)
    values = (_with_none(column.to_list()) for column in columns.iter_columns())
    return [columns.columns, *zip(*values, strict=True)]


class _Lines(list[str]):
    """Takes lines from a writer that ends them in CR LF, so that it quotes either of the two."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def _csv_bytes(rows: Sequence[Sequence[Any]], added: Mapping[str, Sequence[Any]]) -> bytes:
    lines = _Lines()
    writer = csv.writer(lines)
    writer.writerow([*rows[0], *added])
    for old, new in zip(rows[1:], zip(*added.values(), strict=True), strict=True):
        writer.writerow([*old, *new])
    return "".join(lines).encode()


# --- Parquet ---------------------------------------------------------------------------------


def _library() -> str:
    for name in ("pyarrow", "polars"):
        if find_spec(name):
            return name
    raise ModuleNotFoundError("Parquet needs pyarrow or polars: pip install pyarrow")


def _read_parquet(path: Path) -> Any:
    if _library() == "pyarrow":
        return import_module("pyarrow.parquet").read_table(path, partitioning=None)
    return import_module("polars").read_parquet(path)


def _frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    library = import_module(_library())
    return (library.table if library.__name__ == "pyarrow" else library.DataFrame)(columns)


def _parquet_bytes(frame: Any, added: Mapping[str, Sequence[Any]]) -> bytes:
    library, buffer = import_module(_library()), io.BytesIO()
    if library.__name__ == "pyarrow":
        for name, values in added.items():
            frame = frame.append_column(name, library.array(values))
        import_module("pyarrow.parquet").write_table(frame, buffer)
    else:
        more = [library.Series(name, values) for name, values in added.items()]
        frame.with_columns(more).write_parquet(buffer)
    return buffer.getvalue()
