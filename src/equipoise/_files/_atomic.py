"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing_to(folder: Path, safe: str) -> Iterator[None]:
    """Explain why a folder cannot be written to, and say what is safe nevertheless."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise OSError(
            f"{folder} cannot be written to ({error.strerror or error}); "
            f"{'free some space' if full else 'make that possible, or choose another folder'}. "
            f"{safe}"
        ) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to, and put that file in place once it is whole."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all: a reader never sees half of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
