"""An audit table as plain values for JSON: written with a digest, and read with suspicion."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise._files import digest_of, restoring, sealed, unsealed
from equipoise._inputs import check_bins, from_plain, to_plain
from equipoise.metrics._sums import BLOCKS, SUMS, chosen_blocks, zeros
from equipoise.metrics._units import Array

if TYPE_CHECKING:
    from equipoise.metrics._table import AuditTable

TABLE_FORMAT = "equipoise.AuditTable/2"


def plain_table(table: AuditTable) -> dict[str, Any]:
    """Return a table as plain numbers, strings and lists, with a digest."""
    sources = sorted({*table.sources, fingerprint_of(table)})
    return sealed({"format": TABLE_FORMAT, **_content(table), "sources": sources})


def fingerprint_of(table: AuditTable) -> str:
    """Return the SHA-256 of a table's sums, and a name for messages."""
    rows = int(table.sums["rows"].sum())
    return f"{digest_of(_content(table))} a table of {rows:,} rows"


def _content(table: AuditTable) -> dict[str, Any]:
    units = table.pooled_units
    return {
        "groups": [to_plain(g) for g in table.groups],
        "labels": [to_plain(v) for v in table.labels],
        "n_bins": table.n_bins,
        "weighted": table.weighted,
        "clustered": table.clustered,
        "sums": {name: array.tolist() for name, array in table.sums.items()},
        "pooled_units": None
        if units is None
        else {name: array.tolist() for name, array in units.items()},
    }


def read_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a table from what `plain_table` gave; raise ValueError for others.

    Names, shapes and kinds of numbers are checked, not what they add up to.
    """
    form = data.get("format") if isinstance(data, Mapping) else None
    if form == "equipoise.AuditTable/1":
        raise ValueError(f"an audit table of an earlier version ({form}); fill it again")
    if form != TABLE_FORMAT:
        raise ValueError(f"not an audit table: expected 'format': {TABLE_FORMAT!r}")
    with restoring("damaged audit table"):
        data = unsealed(data)
        groups, labels = (_distinct(data[what], what) for what in ("groups", "labels"))
        n_bins, weighted, clustered = data["n_bins"], data["weighted"], data["clustered"]
        raw, units = dict(data["sums"]), data["pooled_units"]
        units = None if units is None else dict(units)
        sources = check_sources(data["sources"])
        check_bins(n_bins)
    for what, value in (("weighted", weighted), ("clustered", clustered)):
        if not isinstance(value, bool):
            raise ValueError(f"damaged audit table: {what} is neither true nor false")
    asked = {SUMS[name].block for name in raw if name in SUMS} & BLOCKS
    blocks = chosen_blocks(asked, weighted=weighted, clustered=clustered)
    if raw.keys() != {name for name, spec in SUMS.items() if spec.block in blocks}:
        raise ValueError("damaged audit table: sums are missing, or unknown")
    own_units = {name for name in raw if SUMS[name].block == "units"}
    if units is not None and not (clustered and units.keys() == own_units):
        raise ValueError("damaged audit table: pooled_units are missing, or unknown")
    size = {"k": len(labels), "b": n_bins}

    def read(name: str, values: Any, rows: int) -> Array:
        shape = (rows, *(size[axis] for axis in SUMS[name].axes))
        return _numbers(name, values, shape, weighted=weighted)

    sums = {name: read(name, values, len(groups)) for name, values in raw.items()}
    if units is not None:
        units = {name: read(name, values, 1) for name, values in units.items()}
    return {
        "groups": groups,
        "labels": labels,
        "n_bins": n_bins,
        "weighted": weighted,
        "sums": sums,
        "clustered": clustered,
        "pooled_units": units,
        "sources": sources,
    }


def _distinct(values: Any, what: str) -> tuple[Hashable, ...]:
    if not isinstance(values, list):
        raise ValueError(f"its {what} are not a list")
    found = tuple(from_plain(value) for value in values)
    if len(set(found)) < max(1, len(found)):
        raise ValueError(f"it has no {what}, or one of them twice")
    return found


def _numbers(name: str, values: Any, shape: tuple[int, ...], *, weighted: bool) -> Array:
    kind = zeros(name, (), weighted=weighted).dtype
    try:
        array = np.array(values, dtype=object)
    except ValueError:  # lists of different lengths, too deep for a common shape
        array = np.empty(0, dtype=object)
    numbers = (int, float) if kind == np.float64 else int
    signed = SUMS[name].signed
    if array.shape != shape or not all(
        isinstance(v, numbers) and not isinstance(v, bool) and (signed or v >= 0) and abs(v) < 1e308
        for v in array.ravel()
    ):
        least = "" if signed else ", none of them negative"
        raise ValueError(f"damaged audit table: {name} is not {shape} sums{least}")
    return array.astype(kind)


def check_sources(values: Any) -> frozenset[str]:
    """Return fingerprints, each a SHA-256 and a name; raise ValueError for anything else."""
    if not isinstance(values, list) or not all(
        isinstance(v, str) and re.fullmatch("[0-9a-f]{64} .+", v, re.DOTALL) for v in values
    ):
        raise ValueError("its sources are not a list of fingerprints")
    return frozenset(values)
