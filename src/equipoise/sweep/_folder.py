"""A folder of parts: one Parquet file each, written whole or not at all.

A part whose file exists is done. A file is named by the hash of all that its numbers depend on, so
a changed description never reads an old file.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise._files import literal, regular_file, replace_file, writing_to
from equipoise._inputs import shown
from equipoise.sweep._part_file import damage, recorded, version_text, write_part

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

LOG = "parts.log"


class PartFolder:
    """The folder of one sweep or search on some data.

    Parameters
    ----------
    folder
        Made where it does not exist.
    kind
        "sweep" or "search": ``{kind}.json`` describes what the folder holds.
    about
        The description: plain values under `kind`, "data" (the fingerprint), "format" and
        "losses". A folder with another one is refused. None opens a folder that exists.
    title
        Name of the data, for errors.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kind: str,
        about: Mapping[str, Any] | None = None,
        title: str = "",
    ) -> None:
        self.folder, self.kind = Path(folder), kind
        path = self.folder / f"{kind}.json"
        if about is not None:
            self._check_log()
            if not path.exists():
                self._create(path, about)
        try:
            self.about = json.loads(regular_file(path).read_text("utf-8"))
            held, data = self.about[kind], self.about["data"]
            meant = self.about.get("losses", {} if about is None else about["losses"])
            made_as = self.about.get("format", 1)
            for value, wanted in ((held, dict), (meant, dict), (made_as, int)):
                if not isinstance(value, wanted):
                    raise TypeError(f"{type(value).__name__} in the place of {wanted.__name__}")
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{self.folder} holds no {kind} ({path.name} is missing); run one into it, or name "
                "another folder"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(path, error) from None
        if about is None:
            return
        different = [k for k in {**held, **about[kind]} if held.get(k) != about[kind].get(k)]
        losses = about["losses"]
        changed = [n for n in sorted({**meant, **losses}) if meant.get(n) != losses.get(n)]
        if made_as != about["format"]:
            holds = (
                f"results of a version whose numbers differ (format {made_as}, now "
                f"{about['format']})"
            )
        elif different:
            holds = f"another {kind} (its {', '.join(map(shown, different))} differ)"
        elif changed:
            holds = f"runs with another loss of the name {changed[0]!r}"
        elif data != about["data"]:
            holds = f"runs on other data{f' (of {title})' if title else ''}"
        else:
            return
        raise OtherFolder(f"{self.folder} holds {holds}; choose another folder, or remove this one")

    def _create(self, path: Path, about: Mapping[str, Any]) -> None:
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob("*.parquet")):
            raise OtherFolder(
                f"{self.folder} holds Parquet files but no {path.name}; choose another folder"
            )
        while not path.exists():
            with self.claim(path.stem) as mine, self._writing():
                if mine and not path.exists():
                    replace_file(path, json.dumps(about, indent=1).encode())

    def _check_log(self) -> None:
        log = self.folder / LOG
        if log.exists() and not log.is_file():
            raise OSError(f"{log} is no file, and the log is to be written there; move it away")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Explain errors of writing to the folder."""
        with writing_to(self.folder, "Parts that were finished are safe, and are not run again"):
            yield

    def path(self, key: str) -> Path:
        """Return the file of a part."""
        return self.folder / f"{key}.parquet"

    def has(self, key: str) -> bool:
        """Return whether a part is done."""
        return self.path(key).exists()

    def set_aside_damaged(self, keys: Iterable[str]) -> dict[Path, str]:
        """Rename the parts that do not match their checksum, so that they are made again.

        Returns what is wrong with each, by its new name.
        """
        found = {}
        for key in keys:
            path = self.path(key)
            while damage(path):
                # checked again: another process may have replaced it meanwhile
                with self.claim(key) as mine, self._writing():
                    if mine and (problem := damage(path)):
                        found[path.rename(_free(path.with_suffix(".damaged")))] = problem
        return found

    def write(self, key: str, content: bytes, note: str) -> None:
        """Put a part and its checksum in place, and a line into the log."""
        with self._writing():
            write_part(self.path(key), content)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                log.write(f"{now} {key} {note}\n")

    def check(self, keys: Iterable[str]) -> None:
        """Raise for the first part that does not match its checksum."""
        for key in keys:
            if problem := damage(self.path(key)):
                raise ValueError(
                    f"{self.path(key)} is damaged: {problem}; run the {self.kind} again, which "
                    "makes this part anew and keeps the others"
                )

    def table(self, key: str) -> pa.Table:
        """Return a part that is done, once it was compared with its checksum."""
        from pyarrow import parquet

        self.check([key])
        return parquet.read_table(self.path(key))

    def versions(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the number of parts by the versions that made them."""
        return dict(Counter(version_text(recorded(self.path(key))["versions"]) for key in keys))

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold a part while it is made; False where another process or thread holds it.

        The system frees a claim whose process has died.
        """
        import filelock

        lock = filelock.FileLock(self.folder / f"{key}.lock")
        with self._writing(), suppress(filelock.Timeout):
            lock.acquire(blocking=False)
        if not lock.is_locked:
            yield False
            return
        try:
            # left by a process that was killed while writing
            for leftover in self.folder.glob(f"{key}.*.tmp"):
                leftover.unlink(missing_ok=True)
            yield True
        finally:
            # removed while held: a process that opened the old lock finds the part done
            with suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()

    def query(self, sql: str, keys: Sequence[str] | None = None) -> duckdb.DuckDBPyRelation:
        """Query the finished parts, or those with `keys`; the table is called `runs`."""
        import duckdb

        if keys is None:
            keys = sorted(path.stem for path in self.folder.glob("*.parquet"))
        files = [self.path(key) for key in keys]
        missing = sum(not file.exists() for file in files)
        if missing:
            raise FileNotFoundError(
                f"{self.folder} lacks {missing} of {len(files)} parts; run the {self.kind} to its "
                "end"
            )
        if not files:
            raise FileNotFoundError(f"{self.folder} has no finished part yet; run its {self.kind}")
        self.check(keys)
        connection = duckdb.connect()
        paths = [literal(str(file)) for file in files]
        connection.read_parquet(paths, union_by_name=True).create_view("runs")
        return connection.sql(sql)


class OtherFolder(ValueError):
    """The folder holds something else."""


def damaged(path: Path, error: Exception) -> ValueError:
    """Return the error of a description that cannot be read."""
    reason = f"{type(error).__name__}: {str(error)[:200]}"
    return ValueError(f"{path} is damaged ({reason}); restore the file, or move the folder away")


def _free(path: Path) -> Path:
    """Return a name that is not taken: the path, or with a number before its ending."""
    names = (
        path.with_suffix(f".{n}{path.suffix}" if n else path.suffix) for n in itertools.count()
    )
    return next(name for name in names if not name.exists())
