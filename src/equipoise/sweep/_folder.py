"""A folder of parts: one Parquet file each, written whole or not at all.

A part whose file exists is done. A file is named by the hash of all that its numbers depend on, so
a changed description never reads an old file.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise._files import replace_file, writing_to

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

LOG = "parts.log"
VERSIONS = ("equipoise", "numpy", "torch")


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
        if about is not None and not path.exists():
            self._create(path, about)
        try:
            self.about = json.loads(path.read_text("utf-8"))
            held, data = dict(self.about[kind]), self.about["data"]
            meant = dict(self.about.get("losses", {} if about is None else about["losses"]))
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{self.folder} holds no {kind} ({path.name} is missing); run one into it, or name "
                "another folder"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(path, error) from None
        if about is None:
            return
        different = [k for k in {**held, **about[kind]} if held.get(k) != about[kind].get(k)]
        made_as = self.about.get("format", 1)
        changed = sorted(dict(meant.items() ^ about["losses"].items()))
        if made_as != about["format"]:
            holds = (
                f"results of a version whose numbers differ (format {made_as}, now "
                f"{about['format']})"
            )
        elif different:
            holds = f"another {kind} (its {', '.join(different)} differ)"
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

    def set_aside_damaged(self, keys: Iterable[str]) -> list[Path]:
        """Rename the files that cannot be read, so that they are made again."""
        found = []
        for key in keys:
            path = self.path(key)
            while is_damaged(path, key):
                # checked again: another process may have replaced it meanwhile
                with self.claim(key) as mine:
                    if mine and is_damaged(path, key):
                        with self._writing():
                            found.append(path.replace(path.with_suffix(".damaged")))
        return found

    def write(self, key: str, content: bytes, note: str) -> None:
        """Put the file of a part in place, and a line into the log."""
        with self._writing():
            replace_file(self.path(key), content)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                log.write(f"{now} {key} {note}\n")

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
            files = sorted(self.folder.glob("*.parquet"))
        else:
            files = [self.path(key) for key in keys]
        missing = sum(not file.exists() for file in files)
        if missing:
            raise FileNotFoundError(
                f"{self.folder} lacks {missing} of {len(files)} parts; run the {self.kind} to its "
                "end"
            )
        if not files:
            raise FileNotFoundError(f"{self.folder} has no finished part yet; run its {self.kind}")
        connection = duckdb.connect()
        connection.read_parquet([str(f) for f in files], union_by_name=True).create_view("runs")
        return connection.sql(sql)


class OtherFolder(ValueError):
    """The folder holds something else."""


def damaged(path: Path, error: Exception) -> ValueError:
    """Return the error of a description that cannot be read."""
    return ValueError(f"{path} is damaged ({error!r}); restore the file, or move the folder away")


def encode(table: pa.Table, key: str) -> bytes:
    """Return a table as a Parquet file, with its key and the versions that made it."""
    import pyarrow as pa
    from pyarrow import parquet

    floats = [f.name for f in table.schema if pa.types.is_float32(f.type)]
    made = {name: importlib.metadata.version(name) for name in VERSIONS}
    made |= {"python": sys.version.split()[0], "machine": platform.machine()}
    made["processor"] = processor()
    about = {"equipoise.key": key, "equipoise.versions": json.dumps(made)}
    sink = pa.BufferOutputStream()
    parquet.write_table(
        table.replace_schema_metadata(about),
        sink,
        compression="zstd",
        use_dictionary=[f.name for f in table.schema if f.name not in floats],
        use_byte_stream_split=floats,
        row_group_size=1 << 20,
        write_page_checksum=True,
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def processor() -> str:
    """Return the name of the processor: another processor rounds differently."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions(path: Path) -> dict[str, str]:
    """Return the versions that made a part."""
    from pyarrow import parquet

    metadata = parquet.read_schema(path).metadata or {}
    return json.loads(metadata.get(b"equipoise.versions", b"{}"))  # type: ignore[no-any-return]


def is_damaged(path: Path, key: str) -> bool:
    """Return whether a file cannot be read to its last page, or holds another part."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    try:
        table = parquet.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return True
    return (table.schema.metadata or {}).get(b"equipoise.key") != key.encode()
