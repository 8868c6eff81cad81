"""What the paper printed, read from published.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

NAMES = {"mmce-w": "mmce-w*"}
"""What the paper's code trained under a name, where it is not what its formula says."""


@cache
def published() -> dict[str, Any]:
    """Return the tables and captions of the paper, by name and dataset."""
    text = resources.files("equipoise.paper").joinpath("published.toml").read_text("utf-8")
    return tomllib.loads(text)


def shown(technique: str, calibration: str = "none") -> str:
    """Return a technique as the paper writes it.

    Examples
    --------
    >>> shown("mmce-w*"), shown("dca", "group")
    ('MMCE-W*', 'DCA_ts')
    """
    return technique.upper() + ("_ts" if calibration == "group" else "")
