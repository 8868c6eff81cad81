"""The lock file is of this project: every direct dependency, within its bounds, with hashes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
UNLOCKED = {"torch", "equipoise"}  # the CPU build has other hashes


def locked():
    """Return the versions of each package; several where they differ between Pythons."""
    found = {}
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK.read_text("utf-8"))
    for block in blocks:
        name, version = re.match(r"([a-z0-9._-]+)==(\S+)", block).groups()
        assert "--hash=sha256:" in block, name
        found.setdefault(name, []).append(version)
    return found


def direct():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(t for k, v in extras.items() if k != "bench" for t in v)]
    return [r for r in map(Requirement, texts) if r.name not in UNLOCKED]


@pytest.mark.skipif(not LOCK.exists(), reason="not in a source distribution")
def test_the_lock_file_meets_every_bound():
    versions = locked()
    for need in direct():
        name = re.sub(r"[-_.]+", "-", need.name.lower())
        assert versions.get(name), f"{name} is not locked; run make lock"
        for version in versions[name]:
            assert need.specifier.contains(version), f"{name} {version}; run make lock"


def test_upper_bounds_have_a_reason():
    """A bound from above keeps users from fixes, so that a comment beside it must say why."""
    lines = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    bounded = [line for line in lines if re.search(r'^\s+"[a-z0-9\[\]-]+[^"]*(<|==)\d', line)]
    allowed = [line for line in bounded if "#" in line or "mcgrad==" in line]
    assert bounded == allowed
