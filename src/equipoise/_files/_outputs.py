"""Checks of a file that is to be written, before any work is done."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from equipoise._files._paths import is_csv, is_parquet, pattern_of

PROBE = 1 << 16
"""Bytes that are written to see whether the disk has room at all."""


def check_output(
    out: str | os.PathLike[str],
    inputs: Iterable[str | os.PathLike[str]] = (),
    *,
    force: bool = False,
    remedy: str = "overwrite it with force=True",
    endings: Sequence[str] | None = None,
) -> None:
    """Raise ValueError if a file cannot be written, or should not.

    Parameters
    ----------
    out
        The file to write.
    inputs
        What is read: files, folders and patterns. No output may be one of them, or would be read
        with them the next time, whether it is forced or not.
    force
        Whether a file that exists may be replaced.
    remedy
        How to replace a file that exists, in the words of the caller.
    endings
        Endings of the files that are read in a folder; by default those of tables.
    """
    path = Path(out)
    try:
        status = path.lstat()
    except FileNotFoundError:
        status = None
    except (OSError, ValueError) as error:  # a name that is too long, or that has a zero byte
        raise ValueError(f"{path} is no possible name of a file ({_why(error)})") from None
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if status is not None and not (stat.S_ISREG(status.st_mode) or path.is_symlink()):
        raise ValueError(f"{path} is no ordinary file; choose another name")
    for source in inputs:
        if _is_read(path, os.fspath(source), endings):
            how = "would be" if status is None else "is"
            raise ValueError(f"{path} {how} read by this command; choose another name or folder")
    if status is not None and not force:
        raise ValueError(f"{path} exists; choose another name, or {remedy}")
    try:
        # without a name where the system can, so that not even a kill leaves it
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({_why(error)})") from None


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _is_read(out: Path, source: str, endings: Sequence[str] | None) -> bool:
    """Say whether a source is, or has among its files, this one, or would have it."""
    place = Path(source)
    if not source:
        return False  # which is no path, as its reader says
    if place.is_dir():
        inside = out.resolve().is_relative_to(place.resolve())
        return (inside and _has_ending(out, endings)) or any(
            _same(out, file) for file in place.rglob("*")
        )
    if place.exists() or not glob.has_magic(source):
        return _same(out, place)
    matches = glob.glob(pattern_of(place), recursive=True)  # noqa: PTH207 - may be absolute
    return _matches(out.absolute().parts, Path(source).absolute().parts) or any(
        _is_read(out, match, endings) if Path(match).is_dir() else _same(out, match)
        for match in matches
    )


def _same(out: Path, other: str | Path) -> bool:
    if out.exists() and os.path.exists(other):  # noqa: PTH110 - either kind
        return os.path.samefile(out, other)  # noqa: PTH121 - links too, soft and hard
    return out.resolve() == Path(other).resolve()


def _has_ending(out: Path, endings: Sequence[str] | None) -> bool:
    if endings is None:
        return is_csv(out) or is_parquet(out)
    return out.suffix.lower() in endings


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Say whether the parts of a path match those of a pattern, in which ** is any number."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return (
        bool(parts)
        and (parts[0] == pattern[0] or fnmatch.fnmatchcase(parts[0], pattern[0]))
        and _matches(parts[1:], pattern[1:])
    )
