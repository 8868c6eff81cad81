"""The file of a part, Parquet, and the file with its checksum beside it.

The checksum is over the bytes, the name of the part, its numbers of rows and columns, and the
versions that made it. It is in place before the part: a kill between the two leaves a checksum
without a part, which is then made as if nothing had been there, and a part without a checksum was
not written here, and is not believed. One log of all checksums would not do: a damaged line would
cost other parts theirs, and processes on several machines would append to it at the same time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from equipoise._files import regular_file, replace_file
from equipoise._inputs import shown

if TYPE_CHECKING:
    import pyarrow as pa

CHECKSUM = ".checksum"
"""Ending of the file with the checksum of a part."""

VERSIONS = ("equipoise", "numpy", "torch")
"""Libraries that the numbers depend on."""


def encode(table: pa.Table, key: str) -> bytes:
    """Return a table as a Parquet file, with its key and the versions that made it."""
    import pyarrow as pa
    from pyarrow import parquet

    floats = [f.name for f in table.schema if pa.types.is_float32(f.type)]
    made = current_versions()
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


def current_versions() -> dict[str, str]:
    """Return the versions that a part is made with now."""
    return {name: importlib.metadata.version(name) for name in VERSIONS}


def version_text(made: Mapping[str, str]) -> str:
    """Return the versions that matter in a few words."""
    return ", ".join(f"{name} {shown(made.get(name, 'unknown'))}" for name in VERSIONS)


def versions(path: Any) -> dict[str, str]:
    """Return the versions that made a part, from a path or an open file."""
    from pyarrow import parquet

    metadata = parquet.read_schema(path).metadata or {}
    return json.loads(metadata.get(b"equipoise.versions", b"{}"))  # type: ignore[no-any-return]


# --- checksums -------------------------------------------------------------------------------


def write_part(path: Path, content: bytes) -> None:
    """Put a part in place, its checksum first."""
    import pyarrow as pa
    from pyarrow import parquet

    footer = parquet.read_metadata(pa.BufferReader(content))
    about = {
        "part": path.stem,
        "rows": footer.num_rows,
        "columns": footer.num_columns,
        "versions": versions(pa.BufferReader(content)),
    }
    about["sha256"] = _checksum(about, io.BytesIO(content))
    replace_file(path.with_suffix(CHECKSUM), json.dumps(about, indent=1).encode())
    replace_file(path, content)


def damage(path: Path) -> str:
    """Return what is wrong with a part; empty where it is sound, or not there."""
    try:
        if not path.is_file():
            return "it is no file" if path.exists() else ""
        about = recorded(path)
        with path.open("rb") as file:
            same = about.pop("sha256") == _checksum(about, file)
    except FileNotFoundError:  # or it was moved by another process meanwhile
        return f"its checksum, {path.stem}{CHECKSUM}, is missing" if path.exists() else ""
    except OSError as error:
        raise OSError(
            f"{path} cannot be read ({error.strerror or error}); make that possible, or move it "
            "away, and it is run again"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"its checksum, {path.stem}{CHECKSUM}, is damaged"
    if not same:
        return "its bytes do not match its checksum"
    return "" if about.get("part") == path.stem else "it is another part, under this name"


def recorded(path: Path) -> dict[str, Any]:
    """Return what the file beside a part says about it."""
    beside = path.with_suffix(CHECKSUM)
    about: dict[str, Any] = json.loads(regular_file(beside).read_text("utf-8"))
    if not isinstance(about["versions"], dict):
        raise TypeError("versions")
    return about


def _checksum(about: Mapping[str, Any], content: IO[bytes]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    while block := content.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
