"""The grids of runs that `equipoise reproduce` knows, read from grids.toml."""

from __future__ import annotations

from typing import Any

from equipoise.paper._published import read_toml
from equipoise.sweep import Sweep


def all_grids() -> dict[str, Any]:
    """Return the content of grids.toml, by the name of the grid."""
    return read_toml("grids.toml")


def grid(name: str) -> dict[str, Sweep]:
    """Return the sweep of each dataset of a grid, smallest first.

    Examples
    --------
    >>> from equipoise.paper._snippet import TECHNIQUES
    >>> len(grid("paper")["german"].configs(0, TECHNIQUES))  # 11 rho, 12 lambda
    825
    """
    if name not in all_grids():
        raise ValueError(f"unknown grid {name!r}; there are {', '.join(all_grids())}")
    shared = dict(all_grids()[name])
    found = {}
    for dataset, rho in shared.pop("rho").items():
        values = shared | {"dataset": dataset, "rho": rho}
        if values["controls"] == "equal":
            values["controls"] = len(rho) * len(values["lam"])
        found[dataset] = Sweep.from_dict(values)
    return found
