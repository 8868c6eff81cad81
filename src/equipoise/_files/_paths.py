"""Which files a path, a folder, a pattern, a list of them or `-` stands for."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
COMPRESSED = (".gz", ".zst")
STDIN = "standard input"

_MAGIC = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"\x28\xb5\x2f\xfd": ".csv.zst"}


@dataclasses.dataclass(frozen=True)
class File:
    """One file: where it is, and how messages call it."""

    path: str
    name: str

    @property
    def is_remote(self) -> bool:
        """Whether the engine has to find it."""
        return "://" in self.path

    @property
    def compression(self) -> str:
        """Ending of a compressed file, else empty."""
        ending = Path(self.path).suffix.lower()
        return ending if ending in COMPRESSED else ""


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of one table, all CSV or all Parquet."""

    each: Sequence[File]
    is_text: bool

    @property
    def name(self) -> str:
        """How messages call them."""
        more = len(self.each) - 1
        return self.each[0].name + (f" and {more} more" if more else "")


def is_path(data: Any) -> bool:
    """Say whether something names files, rather than being a table."""
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(d, str | os.PathLike) for d in data)
    return isinstance(data, str | os.PathLike)


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Say whether the ending is that of a Parquet file."""
    return Path(path).suffix.lower() in PARQUET


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Say whether the ending is that of a CSV file, compressed or not."""
    whole = Path(path)
    packed = whole.suffix.lower() in COMPRESSED
    return (whole.with_suffix("") if packed else whole).suffix.lower() in CSV


def check_ending(out: str | os.PathLike[str]) -> None:
    """Refuse a name whose ending is of no format that tables are written in."""
    if not is_parquet(out) and Path(out).suffix.lower() != ".csv":
        raise ValueError(f"{os.fspath(out)} ends in neither .csv nor .parquet")


@contextlib.contextmanager
def found(data: Any) -> Iterator[Files]:
    """Find the files; standard input is copied to a temporary file."""
    with contextlib.ExitStack() as stack:
        each: list[File] = []
        for one in data if isinstance(data, list | tuple) else [data]:
            text = os.fspath(one)
            each += [_spooled(stack)] if text == "-" else [File(p, p) for p in _paths(text)]
        yield Files(each, _all_text(each))


def temporary_folder(stack: contextlib.ExitStack) -> Path:
    """Make a folder that is removed when the stack closes."""
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="equipoise-")))


def _spooled(stack: contextlib.ExitStack) -> File:
    """Copy standard input to a file, whose ending follows from the first bytes."""
    source = sys.stdin.buffer
    head = source.read(4)
    if not head:
        raise ValueError(f"{STDIN} is empty; send it a CSV or Parquet file")
    ending = next((e for magic, e in _MAGIC.items() if head.startswith(magic)), ".csv")
    path = temporary_folder(stack) / f"stdin{ending}"
    with path.open("wb") as file:
        file.write(head)
        shutil.copyfileobj(source, file, 1 << 20)
    return File(str(path), STDIN)


def _paths(text: str) -> list[str]:
    path = Path(text)
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if _is_data(p, path))
        if not inside:
            raise FileNotFoundError(
                f"the folder {text} has no files ending in {', '.join(PARQUET + CSV)}"
            )
        return [str(p) for p in inside]
    if "://" in text or path.exists():  # even if its name has the signs of a pattern
        return [text]
    if not glob.has_magic(text):
        raise FileNotFoundError(f"there is no file or folder {text}")
    matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - may be absolute
    if not matches:
        raise FileNotFoundError(f"no file matches {text}")
    plain = [m for m in matches if not Path(m).is_dir()]
    return plain or [p for folder in matches for p in _paths(folder)]


def _is_data(path: Path, folder: Path) -> bool:
    # Spark and others keep metadata in files and folders with such names
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    return not hidden and (is_parquet(path) or is_csv(path)) and path.is_file()


def _all_text(files: Sequence[File]) -> bool:
    kinds: dict[bool, str] = {}
    for file in files:
        if not is_parquet(file.path) and not is_csv(file.path):
            raise ValueError(
                f"{file.name} is neither .csv (.tsv, .txt; also .gz, .zst) nor .parquet"
            )
        kinds.setdefault(is_csv(file.path), file.name)
    if len(kinds) > 1:
        raise ValueError(
            f"{kinds[True]} is CSV and {kinds[False]} is Parquet; convert one of them, or read "
            "them one by one"
        )
    return next(iter(kinds))
