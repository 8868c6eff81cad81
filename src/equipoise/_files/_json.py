"""JSON files: read within limits, and sealed by a digest.

A file may come from anywhere. Whatever it holds, reading it ends with an object or a ValueError,
whose message is about "it"; the caller names the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from equipoise._inputs import shown

MOST_BYTES = 1 << 30
"""Largest file: an audit of 10,000 groups and two classes has 70 MB."""

MOST_DEPTH = 40
"""Most lists and objects within each other: an audit has 11."""

MOST_DIGITS = 100
"""Most characters of a whole number: the sums of 10**12 rows have 30."""

SEAL = "sha256"
"""Key of the digest."""


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in a JSON file; raise ValueError for anything else."""
    file = Path(path)
    size = file.stat().st_size
    if not file.is_file():
        raise ValueError(f"it is a {'folder' if file.is_dir() else 'pipe or device'}, not a file")
    if size > MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, more than the {MOST_BYTES:,} that are read")
    try:
        return parse_json(file.read_bytes())
    except MemoryError:
        raise ValueError("it does not fit in memory") from None


def parse_json(content: bytes | str, *, finite: bool = True) -> dict[str, Any]:
    """Return the object that JSON holds; `finite` refuses NaN and infinite numbers."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        data = json.loads(
            text,
            parse_int=_whole,
            parse_float=_finite if finite else None,
            parse_constant=_refuse_constant if finite else None,
            object_pairs_hook=_unique,
        )
    except UnicodeDecodeError:
        raise ValueError("it cannot be read as JSON (it is not UTF-8 text)") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        why = "it is empty" if not content.strip() else str(error)
        raise ValueError(f"it cannot be read as JSON ({why})") from None
    if not isinstance(data, dict):
        raise ValueError(f"it holds a {type(data).__name__}, not an object of JSON")
    _check_depth(data)
    return data


@contextmanager
def restoring(refusal: str) -> Iterator[None]:
    """Refuse a file with anything else than what was saved, whatever error that leads to.

    A file may be forged, its digest right; `refusal` is the beginning of a sentence and names it.
    """
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise ValueError(f"{refusal}: {_why(error)}") from None


def _why(error: Exception) -> str:
    """Return what is wrong with a file, in words about "it"."""
    if isinstance(error, KeyError):
        return f"it lacks {shown(error.args[0])!r}" if error.args else "it lacks a value"
    # errors of libraries are of their own classes
    told = isinstance(error, ValueError) or type(error).__module__ != "builtins"
    if not told:
        return "a value in it is of a wrong kind"
    return shown(" ".join(str(error).split())[:300])


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits, and {MOST_DIGITS} are the most")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return found


def _too_deep() -> ValueError:
    return ValueError(f"it has more than {MOST_DEPTH} lists and objects within each other")


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(MOST_DEPTH):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [v for values in inside for v in values if isinstance(v, dict | list)]
        if not level:
            return
    raise _too_deep()


# --- digests -------------------------------------------------------------------------------


def digest_of(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of data as JSON without spaces, its keys sorted."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with its digest."""
    return {**data, SEAL: digest_of(data)}


def unsealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data without its digest; raise ValueError if there is none or it does not match."""
    if SEAL not in data:
        raise ValueError("it has no digest, so it was not written by equipoise, or was edited")
    rest = {name: value for name, value in data.items() if name != SEAL}
    try:
        digest = digest_of(rest)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it holds what JSON does not ({type(error).__name__})") from None
    if data[SEAL] != digest:
        raise ValueError("its digest does not match, so it was changed; restore it or make it anew")
    return rest
