"""An audit as plain values, ready for strict JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from equipoise._inputs import to_plain
from equipoise.auditing._intervals import NO_INTERVALS, Interval


def as_plain(report: Any) -> dict[str, Any]:
    """Return figures, intervals, verdicts and sums as plain values, ready for strict JSON."""
    sure = report.intervals or NO_INTERVALS
    rows = dict(zip(report.table.groups, report.table["rows"].astype(int).tolist(), strict=True))
    return {
        "format": "equipoise.AuditReport/1",
        "rows": sum(rows.values()),
        "dropped": report.dropped,
        "level": report.level,
        "tolerance": report.tolerance,
        "overall": _figures(report.overall, sure.overall),
        "verdict": _plain(dataclasses.asdict(report.verdict)),
        "groups": [
            {
                "group": to_plain(g),
                "rows": rows[g],
                "metrics": _figures(values, sure.groups.get(g, {})),
                "rates": {
                    kind: [
                        {"label": to_plain(k), **figure}
                        for k, figure in _figures(
                            shares, sure.rates.get(g, {}).get(kind, {})
                        ).items()
                    ]
                    for kind, shares in report.rates[g].items()
                },
                "verdict": _plain(dataclasses.asdict(report.verdicts[g])),
            }
            for g, values in report.groups.items()
        ],
        "gaps": _figures(report.gaps, sure.gaps),
        "comparisons": [_plain(dataclasses.asdict(c)) for c in report.comparisons],
        "proportional_equality": {
            kind: _plain(dataclasses.asdict(verdict))
            for kind, verdict in report.pe_verdicts.items()
        },
        "own_rates": report.own_rates,
        "reference_group": to_plain(report.reference_group),
        "amplification": {
            kind: [_plain(dataclasses.asdict(a)) for own in found.values() for a in own.values()]
            for kind, found in report.amplification.items()
        },
        "table": report.table.to_dict(),
        "by": [{"key": to_plain(key), "report": as_plain(r)} for key, r in report.by.items()],
    }


def _plain(value: Any) -> Any:
    """Return figures, also inside dictionaries and sequences, as values of strict JSON."""
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return to_plain(value)


def _figures(values: Mapping[Any, float], ends: Mapping[Any, Interval]) -> dict[Any, Any]:
    return {
        name: {"value": _plain(value), "interval": _plain(ends.get(name))}
        for name, value in values.items()
    }
