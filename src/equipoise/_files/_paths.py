"""Which files a path, a folder, a pattern, a list of them or `-` stands for."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from equipoise._inputs import InputError, shown

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
COMPRESSED = (".gz", ".zst")
STDIN = "standard input"
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

# what some engine takes for a pattern, an escape or the end of a scheme; and bytes that are not
# UTF-8, which Python holds as surrogates and no engine takes
_ODD = re.compile(r"[*?\[\]{}\\:\ud800-\udfff]")
_MAGIC = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"\x28\xb5\x2f\xfd": ".csv.zst"}


@dataclasses.dataclass(frozen=True)
class File:
    """One file: where it is, in full, and how messages call it."""

    path: str
    name: str

    @property
    def is_remote(self) -> bool:
        """Whether the engine has to find it."""
        return ADDRESS.match(self.path) is not None

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

    def linked(self, stack: contextlib.ExitStack) -> Files:
        """Return the files with plain paths, so that every engine takes them literally."""
        odd = [f for f in self.each if not f.is_remote and _is_odd(f.path)]
        if not odd:
            return self
        folder = temporary_folder(stack)
        links = {}
        for i, file in enumerate(odd):
            packed = ".csv" if file.compression else ""
            links[file] = folder / f"{i}{packed}{Path(file.path).suffix}"
            try:
                links[file].symlink_to(file.path)
            except OSError:  # Windows allows links to some users only
                shutil.copyfile(file.path, links[file])
        each = [File(str(links.get(file, file.path)), file.name) for file in self.each]
        return dataclasses.replace(self, each=each)


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


def check_ending(out: str | os.PathLike[str], *, safe_csv: bool = False) -> None:
    """Refuse a name whose ending is of no format that tables are written in."""
    if not is_parquet(out) and Path(out).suffix.lower() != ".csv":
        raise ValueError(f"{os.fspath(out)} ends in neither .csv nor .parquet")
    if safe_csv and is_parquet(out):
        raise InputError(
            f"{os.fspath(out)} is Parquet, which spreadsheets do not run",
            "safe_csv is for CSV; leave it out",
            "--safe-csv is for CSV; leave it out",
        )


@contextlib.contextmanager
def found(data: Any, *, remote: bool | None = None) -> Iterator[Files]:
    """Find the files; standard input is copied to a temporary file.

    Addresses are refused unless `remote`; None says that the caller reads none at all.
    """
    with contextlib.ExitStack() as stack:
        each: list[File] = []
        for text in _texts(data):
            if text == "-":
                each.append(_spooled(stack))
            elif ADDRESS.match(text):
                _check_address(text, remote)
                each.append(File(text, shown(text)))
            else:
                each += [File(str(Path(p).absolute()), shown(p)) for p in _paths(text)]
        yield Files(each, _all_text(each)).linked(stack)


def check_data(data: Any, *, remote: bool | None = None) -> None:
    """Raise, before any work, if a path leads nowhere or is an address that may not be read."""
    for text in _texts(data) if is_path(data) else ():
        if ADDRESS.match(text):
            _check_address(text, remote)
        elif text != "-":
            _paths(text)


def check_path(path: str | os.PathLike[str], advice: str = "save its content as a file") -> None:
    """Refuse what is neither a file, a folder nor a pattern."""
    text = os.fspath(path)
    if not text:
        raise ValueError("an empty path names no file; give the path of a file")
    if ADDRESS.match(text):
        _check_address(text, None)
    own = Path(text)
    if own.is_symlink() and not own.exists():
        raise FileNotFoundError(
            f"{text} is a link to {own.readlink()}, which is not there; correct the link"
        )
    # a pipe without a writer would be waited for without end
    if own.exists() and not own.is_file() and not own.is_dir():
        raise ValueError(f"{text} is a pipe, a device or a socket, not a file; {advice}")


def _is_odd(path: str) -> bool:
    own = Path(path)
    return _ODD.search(own.relative_to(own.anchor).as_posix()) is not None


def temporary_folder(stack: contextlib.ExitStack) -> Path:
    """Make a folder that is removed when the stack closes."""
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="equipoise-")))


def _spooled(stack: contextlib.ExitStack) -> File:
    """Copy standard input to a file, whose ending follows from the first bytes."""
    if sys.stdin is None:
        raise ValueError(f"{STDIN} is closed; send it a CSV or Parquet file, or name one")
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


def _texts(data: Any) -> list[str]:
    return [os.fspath(one) for one in (data if isinstance(data, list | tuple) else [data])]


def _check_address(text: str, remote: bool | None) -> None:
    if text.lower().startswith("file://"):
        raise ValueError(f"{text} is an address; give the path of the file, without file://")
    if remote is None:
        raise ValueError(f"{text} is an address; copy the file here first")
    if not remote:
        raise InputError(
            f"{text} is an address, and nothing is fetched unless you say so",
            "copy the file here, or pass remote=True",
            "copy the file here, or pass --remote",
        )


def _paths(text: str) -> list[str]:
    check_path(text, "save its content as a file, or pass - and send it to standard input")
    path = Path(text)
    if path.is_dir():
        inside = _inside(path)
        if not inside:
            raise FileNotFoundError(
                f"the folder {text} has no files ending in {', '.join(PARQUET + CSV)}"
            )
        return [str(p) for p in inside]
    if path.exists():  # even if its name has the signs of a pattern
        return [text]
    if not glob.has_magic(text):
        raise FileNotFoundError(f"there is no file or folder {text}")
    matches = sorted(glob.glob(pattern_of(path), recursive=True))  # noqa: PTH207 - may be absolute
    if not matches:
        raise FileNotFoundError(f"no file matches {text}")
    plain = [m for m in matches if not Path(m).is_dir()]
    for match in plain:
        check_path(match)
    return plain or [p for folder in matches for p in _paths(folder)]


def pattern_of(path: Path) -> str:
    """Return a pattern in which folders that are there, such as `b[1]`, are taken literally."""
    known = next(parent for parent in path.parents if parent.exists())
    return str(Path(glob.escape(str(known))) / path.relative_to(known))


def _inside(folder: Path) -> list[Path]:
    """Return the files of data in a folder and in those inside it."""

    def refuse(error: OSError) -> None:
        raise error

    # a folder that cannot be listed is no reason to leave out its rows
    walk = os.walk(folder, onerror=refuse)
    return sorted(p for at, _, names in walk for n in names if _is_data(p := Path(at, n), folder))


def _is_data(path: Path, folder: Path) -> bool:
    # Spark and others keep metadata in files and folders with such names
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    if hidden or not (is_parquet(path) or is_csv(path)):
        return False
    check_path(path)
    return path.is_file()


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
