"""Group weights of a loss, in the forms that callers pass."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import from_plain, to_plain


def resolve_rho(
    rho: Any, groups: Sequence[Hashable], share: NDArray[np.float64]
) -> tuple[float, ...] | None:
    """Return the weight of each group, or None where the loss ignores the groups.

    `rho` is as in `GroupwiseMLPClassifier`; `share` is each group's share of the rows.

    Examples
    --------
    >>> resolve_rho(0.3, ["f", "m"], np.array([0.5, 0.5]))
    (0.7, 0.3)
    """
    names = list(groups)
    if rho is None or not names:
        return None
    if isinstance(rho, str) and rho == "equal":
        return (1.0 / len(names),) * len(names)
    if isinstance(rho, str) and rho == "share":
        return tuple(share.tolist())
    if isinstance(rho, Mapping):
        if set(rho) != set(names):
            raise ValueError(f"rho names the groups {list(rho)!r}, the data has {names!r}")
        return tuple(float(rho[g]) for g in names)
    if isinstance(rho, int | float | np.number) and len(names) == 2:
        return (1.0 - float(rho), float(rho))
    raise ValueError(
        f"rho={rho!r} does not fit the groups {names!r}; "
        "pass 'equal', 'share', a dict from group to weight, or None"
    )


def rho_to_plain(rho: Any) -> Any:
    """Return `rho`, or a list of them, as plain values for JSON."""
    if isinstance(rho, list | tuple):
        return [rho_to_plain(each) for each in rho]
    if isinstance(rho, Mapping):
        return {"groups": [[to_plain(g), float(w)] for g, w in rho.items()]}
    return rho if isinstance(rho, str | None) else float(rho)


def rho_from_plain(data: Any) -> Any:
    """Undo `rho_to_plain`."""
    if isinstance(data, list):
        return [rho_from_plain(each) for each in data]
    if isinstance(data, Mapping):
        return {from_plain(group): weight for group, weight in data["groups"]}
    return data
