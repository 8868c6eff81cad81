"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, or a quota, that has no room."""


@contextmanager
def writing_to(folder: Path, safe: str) -> Iterator[None]:
    """Explain why a folder cannot be written to, and say what is safe nevertheless."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        raise OSError(
            f"{folder} cannot be written to ({error.strerror or error}); "
            f"{'free some space' if full else 'make that possible, or choose another folder'}. "
            f"{safe}"
        ) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name in the same folder, and put that file in place once it is whole.

    Its bytes are on the disk before it gets its name, so that a power cut leaves the old file or
    the new one.
    """
    # a short beginning: the name of the file itself may have all 255 bytes
    temporary = path.with_name(f"{path.name[:40]}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders
    number = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(number)
    except OSError as error:
        # some file systems cannot; a full disk shows here too
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(number)


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all: a reader never sees half of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
