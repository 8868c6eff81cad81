"""CSV files: separator, header, compression, and the mistakes in those that cannot be read.

DuckDB reads them. A file that it refuses is read once more here, so that every command and every
engine names the same line and the same mistake.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import dataclasses
import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from equipoise._files._duckdb import connected, listed, quoted
from equipoise._files._paths import File
from equipoise._inputs import counted

BLOCK = 1 << 20
"""Bytes checked at a time."""

LONGEST = 2_000_000
"""Most bytes of a line that are read; DuckDB keeps memory for 16 of them in each thread."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The format of CSV files."""

    separator: str  # comma, semicolon or tab: the most frequent in the header
    headings: tuple[str, ...]  # without spaces around them
    line_ends: tuple[str, ...]  # of each file
    has_open_ends: bool  # whether some line seems to end in an empty cell
    has_returns: bool  # whether some line, or part of a cell, ends in a carriage return

    @property
    def names(self) -> list[str]:
        """Names of all columns; one without a heading has the row numbers that pandas writes."""
        return [name or f"column {i}" for i, name in enumerate(self.headings)]


def layout_of(files: Sequence[File]) -> Layout:
    """Return the format; refuse files with different headers, or not in UTF-8."""
    found: list[tuple[str, tuple[str, ...], str]] = []
    open_ends = returns = False
    for file in files:
        if file.is_remote:
            raise ValueError(f"{file.name} is a remote CSV file; copy it here, or use Parquet")
        with _readable(file):
            separator = _separator(file)
            seen = _check_bytes(file, separator)
            open_ends, returns = open_ends | seen[0], returns | seen[1]
            found.append((separator, *_header(file, separator)))
        if found[0][:2] != found[-1][:2]:
            raise ValueError(
                f"{file.name} and {files[0].name} have different columns; give both the same header"
            )
    return Layout(*found[0][:2], tuple(end for _, _, end in found), open_ends, returns)


def _separator(file: File) -> str:
    with _opened(file) as text:
        line = text.readline(LONGEST)
    return max(",;\t", key=line.count)


def _header(file: File, separator: str) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns, and how lines end."""
    line = ""
    with _opened(file) as text:

        def lines() -> Iterator[str]:
            nonlocal line
            for line in text:  # noqa: UP028 - the last one is kept
                yield line

        _, headings = next(_rows(file, lines(), separator), (1, []))
    names = [name.strip() for name in headings]
    if not any(names):
        raise ValueError(f"{file.name} is empty; a CSV file begins with the names of its columns")
    refuse_twins(file.name, [name for name in names if name])
    return tuple(names), line[len(line.rstrip("\r\n")) :] or "\n"


def _opened(file: File) -> io.TextIOWrapper:
    # bytes that are not UTF-8 are refused by a check of their own
    return io.TextIOWrapper(open_bytes(file), encoding="utf-8-sig", errors="replace", newline="")


def refuse_twins(file: str, names: Sequence[str]) -> None:
    """Refuse columns of the same name; to DuckDB and Spark p and P are the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        seen[name.casefold()] = name
        if other is None:
            continue
        if other == name:
            raise ValueError(f"{file} has several columns named {name!r}; rename all but one")
        raise ValueError(
            f"{file} has columns named {other!r} and {name!r}, which databases take for one; "
            "rename one of them"
        )


def open_bytes(file: File) -> IO[bytes]:
    """Open a file for reading, decompressed."""
    if file.compression == ".gz":
        return cast("IO[bytes]", gzip.open(file.path))
    if file.compression == ".zst":
        import pyarrow as pa

        return cast("IO[bytes]", io.BufferedReader(pa.input_stream(file.path, compression="zstd")))
    return Path(file.path).open("rb")


@contextlib.contextmanager
def _readable(file: File) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        kind = {".gz": "gzip", ".zst": "zstd"}.get(file.compression)
        # an error of the system has a number, that of a damaged file has none
        system = error.strerror if isinstance(error, OSError) and error.errno else None
        damaged = f" as {kind}, it is damaged or cut short" if kind and not system else ""
        raise ValueError(f"{file.name} cannot be read{damaged}: {system or error}") from None


def _check_bytes(file: File, separator: str) -> tuple[bool, bool]:
    """Refuse what is not UTF-8, in any column, and NUL.

    Returns whether a line ends in an empty cell, and whether there are carriage returns.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    empty = separator.encode(), b'""'
    ends = [cell + end for cell in empty for end in (b"\r", b"\n")]
    line, pending, tail, found, returns = 1, False, b"", False, False
    try:
        with open_bytes(file) as raw:
            while block := raw.read(BLOCK):
                if line == 1 and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise ValueError(f"{file.name} is UTF-16 or UTF-32; save it as UTF-8")
                # most text is ASCII; checking for that is ten times as fast as decoding
                if pending or not block.isascii():
                    decoder.decode(block)
                    pending = bool(decoder.getstate()[0])
                if b"\0" in block:
                    line += block[: block.index(b"\0")].count(b"\n")
                    raise ValueError(
                        f"{file.name}, line {line}: a NUL byte, so this is not text, or it is "
                        "UTF-16; save the file as UTF-8"
                    )
                line += block.count(b"\n")
                returns = returns or b"\r" in block
                block = tail + block
                found = found or any(end in block for end in ends)
                tail = block[-2:]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line += error.object[: error.start].count(b"\n")
        raise ValueError(
            f"{file.name}, line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; save "
            "the file as UTF-8"
        ) from None
    return found or tail.endswith(empty), returns


def _rows(file: File, lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Give each row and the line where it starts."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    line = 1
    # a cell that grows beyond is given up, before a quote that is not closed fills the memory
    limit = csv.field_size_limit(LONGEST)
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        if "field limit" in str(error):
            raise ValueError(
                f"{file.name}, line {line}: a cell is longer than {LONGEST:,} characters, or a "
                "quote is not closed; shorten the cell, use Parquet, or close the quote"
            ) from None
        raise ValueError(
            f"{file.name}, line {line}: a quote is not closed, or text follows the quote that "
            "closes a cell; write a quote within a cell twice, and quotes around the cell"
        ) from None
    finally:
        csv.field_size_limit(limit)


def refuse_malformed(files: Sequence[File], layout: Layout) -> None:
    """Raise for the first mistake, with its line, if one is found."""
    for file in files:
        with _readable(file), _opened(file) as text:
            for line, row in _rows(file, text, layout.separator):
                if row and len(row) != len(layout.headings):
                    raise ValueError(
                        f"{file.name}, line {line}: {counted(len(row), 'value')} for "
                        f"{counted(len(layout.headings), 'column')}; put text that contains the "
                        "separator in quotes"
                    )
                if sum(map(len, row)) + len(row) > LONGEST:
                    raise ValueError(
                        f"{file.name}, line {line}: the row is longer than {LONGEST:,} characters; "
                        "shorten it, or use Parquet"
                    )
            if isinstance(text.newlines, tuple):
                raise ValueError(
                    f"{file.name} has lines that end in different ways (Windows and Unix); save "
                    "it with one kind of line end"
                )


def refuse_surplus(files: Sequence[File], layout: Layout) -> None:
    """Refuse rows with an empty value too many, which DuckDB does not count."""
    if not layout.has_open_ends:
        return
    wider = dataclasses.replace(layout, headings=(*layout.headings, "one more"))
    with connected() as connection:
        query = f"SELECT 1 FROM {scan(files, wider, 'ignore_errors = true')} LIMIT 1"
        if connection.execute(query).fetchall():
            refuse_malformed(files, layout)


def scan(files: Sequence[File], layout: Layout, *options: str) -> str:
    """Return DuckDB's table of CSV files, all columns text, in the order of the rows."""
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in layout.names)
    # DuckDB would look for the line end within quotes too, and lose rows where it finds another
    runs = itertools.groupby(
        zip(files, layout.line_ends, strict=True), key=lambda pair: (pair[0].compression, pair[1])
    )
    tables = []
    for (compression, line_end), run in runs:
        settings = (
            listed([file for file, _ in run]),
            f"columns = {{{columns}}}",
            "auto_detect = false",
            "header = true",
            f"delim = {quoted(layout.separator)}",
            """quote = '"', escape = '"'""",
            f"new_line = {quoted(line_end.encode('unicode_escape').decode())}",
            "hive_partitioning = false",
            f"max_line_size = {LONGEST}",
            # before 2.0 DuckDB does not know an ending in capital letters
            f"compression = {quoted({'.gz': 'gzip', '.zst': 'zstd'}.get(compression, 'none'))}",
            *options,
        )
        tables.append(f"SELECT * FROM read_csv({', '.join(settings)})")
    return f"({' UNION ALL '.join(tables)})"
