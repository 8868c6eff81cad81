"""The grids of runs that `equipoise reproduce` knows, read from grids.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from equipoise.sweep import Sweep


@cache
def _grids() -> dict[str, Any]:
    text = resources.files("equipoise.paper").joinpath("grids.toml").read_text("utf-8")
    return tomllib.loads(text)


def grid_names() -> list[str]:
    """Return the names of the grids."""
    return list(_grids())


def grid(name: str) -> dict[str, Sweep]:
    """Return the sweep of each dataset of a grid, smallest first.

    Examples
    --------
    >>> from equipoise.paper.snippet import TECHNIQUES
    >>> len(grid("paper")["german"].configs(0, TECHNIQUES))  # 11 rho, 12 lambda
    825
    """
    if name not in _grids():
        raise ValueError(f"unknown grid {name!r}; there are {', '.join(_grids())}")
    shared = dict(_grids()[name])
    found = {}
    for dataset, rho in shared.pop("rho").items():
        values = shared | {"dataset": dataset, "rho": rho}
        if values["controls"] == "equal":
            values["controls"] = len(rho) * len(values["lam"])
        found[dataset] = Sweep.from_dict(values)
    return found
