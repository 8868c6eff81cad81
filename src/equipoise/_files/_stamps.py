"""Local files as they were when they were read, and their fingerprints."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from equipoise._files._paths import STDIN, File


@dataclasses.dataclass(frozen=True)
class Stamp:
    """A local file: where it is, its size, and when it was changed (in ns)."""

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return the stamp of a file as it is now."""
        about = path.stat()
        return cls(path, about.st_size, about.st_mtime_ns)

    def fingerprint(self) -> str | None:
        """Return the SHA-256 of its bytes and its name; None if it was changed since or removed."""
        try:
            with self.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            same = Stamp.of(self.path) == self
        except OSError:
            return None
        return f"{digest} {self.path.name}" if same else None


def stamps_of(files: Sequence[File]) -> tuple[Stamp, ...]:
    """Return the stamps of files, none if one of them is remote or standard input."""
    if any(file.is_remote or file.name == STDIN for file in files):
        return ()
    return tuple(Stamp.of(Path(file.path).resolve()) for file in files)
