"""A folder with the results of a sweep: one Parquet file per part, written whole or not at all.

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

import numpy as np

from equipoise._files import replace_file, writing_to
from equipoise.sweep._grid import FORMAT, Sweep, meanings
from equipoise.training import LOSSES, Config, Loss, StackResult

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

ABOUT = "sweep.json"
LOG = "parts.log"
VERSIONS = ("equipoise", "numpy", "torch")


class Store:
    """The folder of one sweep on one dataset.

    Parameters
    ----------
    folder
        Made where it does not exist.
    sweep
        The sweep that it is for; a folder with another sweep is refused. None opens a folder that
        exists, whatever sweep it holds.
    data
        The fingerprint of the data.
    losses
        The loss that each name stands for.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sweep: Sweep | None = None,
        data: str = "",
        losses: Mapping[str, Loss] = LOSSES,
    ) -> None:
        self.folder = Path(folder)
        path = self.folder / ABOUT
        own = {} if sweep is None else meanings(sweep.loss, losses)
        if sweep is not None and not path.exists():
            about = {"sweep": sweep.to_dict(), "data": data, "format": FORMAT, "losses": own}
            self._create(path, about)
        try:
            about = json.loads(path.read_text("utf-8"))
            self.sweep, self.data = Sweep.from_dict(about["sweep"]), str(about["data"])
            made_as, meant = about.get("format", 1), dict(about.get("losses", own))
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{self.folder} holds no sweep ({ABOUT} is missing); run one into it, or name "
                "another folder"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is damaged ({error!r}); restore the file, or move the folder away"
            ) from None
        if sweep is None:
            return
        different = [k for k, v in self.sweep.to_dict().items() if v != sweep.to_dict()[k]]
        changed = sorted(dict(meant.items() ^ own.items()))
        if made_as != FORMAT:
            holds = f"results of a version whose numbers differ (format {made_as}, now {FORMAT})"
        elif different:
            holds = f"another sweep (its {', '.join(different)} differ)"
        elif changed:
            holds = f"runs with another loss of the name {changed[0]!r}"
        elif data != self.data:
            holds = f"runs on other data (of {self.sweep.dataset})"
        else:
            return
        raise ValueError(f"{self.folder} holds {holds}; choose another folder, or remove this one")

    def _create(self, path: Path, about: dict[str, Any]) -> None:
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob("*.parquet")):
            raise ValueError(
                f"{self.folder} holds Parquet files but no {ABOUT}; choose another folder"
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
                f"{self.folder} lacks {missing} of {len(files)} parts; run the sweep to its end"
            )
        if not files:
            raise FileNotFoundError(f"{self.folder} has no finished part yet; run its sweep")
        connection = duckdb.connect()
        connection.read_parquet([str(f) for f in files], union_by_name=True).create_view("runs")
        return connection.sql(sql)


def to_table(
    result: StackResult, sweep: Sweep, split_seed: int, losses: Mapping[str, Loss] = LOSSES
) -> pa.Table:
    """Return a row per run and epoch; rho and lam are null where they have no effect."""
    import pyarrow as pa

    runs, epochs = result.columns["diverged"].shape
    which = np.repeat(np.arange(runs), epochs)

    def each(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(which))

    def has(config: Config, attribute: str) -> bool:
        return bool(getattr(losses[config.loss], attribute))

    configs = result.configs
    rhos = [c.rho if has(c, "grouped") else None for c in configs]
    # decided by the sweep, not by these runs: all parts have the same columns
    several = any(isinstance(rho, tuple) for rho in sweep.rho)
    kind = pa.list_(pa.float64()) if several else pa.float64()
    columns: dict[str, pa.Array] = {
        "dataset": pa.array([sweep.dataset] * len(which)).dictionary_encode(),
        "loss": each([c.loss for c in configs], pa.string()).dictionary_encode(),
        "rho": each(rhos, kind),
        "lam": each([c.lam if has(c, "added") else None for c in configs], pa.float64()),
        "split_seed": pa.array(np.full(len(which), split_seed), pa.int32()),
        "seed": each([c.seed for c in configs], pa.int32()),
        "epoch": pa.array(np.tile(np.arange(1, epochs + 1), runs), pa.int32()),
    }
    for name, values in result.columns.items():
        flat = values.ravel()
        if name == "diverged":
            columns[name] = pa.array(flat != 0)
        else:
            # accuracies are compared with a slack, so exact; they are few values, in a dictionary
            kind = pa.float64() if name.endswith("accuracy") else pa.float32()
            columns[name] = pa.array(flat).cast(kind, safe=False)
    return pa.table(columns)


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
