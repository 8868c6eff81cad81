"""Values that the paper published, read from published.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

NAMES = {"mmce-w": "mmce-w*"}
"""What the paper's code trained under a name, where it differs from the paper's formula."""


@cache
def read_toml(name: str) -> dict[str, Any]:
    """Return a TOML file of this package."""
    return tomllib.loads(resources.files("equipoise.paper").joinpath(name).read_text("utf-8"))


def published() -> dict[str, Any]:
    """Return the tables and captions of the paper, by name and dataset."""
    return read_toml("published.toml")


def paper_name(technique: str, calibration: str = "none") -> str:
    """Return a technique as the paper writes it.

    Examples
    --------
    >>> paper_name("mmce-w*"), paper_name("dca", "group")
    ('MMCE-W*', 'DCA_ts')
    """
    return technique.upper() + ("_ts" if calibration == "group" else "")
