"""An audit as plain values, ready for strict JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from equipoise._inputs import to_plain

if TYPE_CHECKING:
    from equipoise.auditing._intervals._figures import Interval


def as_plain(report: Any) -> dict[str, Any]:
    """Return figures, intervals, verdicts and sums as plain values, ready for strict JSON."""
    sure = report.intervals
    rows = dict(zip(report.table.groups, report.table["rows"].astype(int).tolist(), strict=True))
    return {
        "format": "equipoise.AuditReport/1",
        "rows": sum(rows.values()),
        "dropped": report.dropped,
        "level": report.level,
        "tolerance": report.tolerance,
        "overall": _figures(report.overall, None if sure is None else sure.overall),
        "verdict": _plain(dataclasses.asdict(report.verdict)),
        "groups": [
            {
                "group": to_plain(g),
                "rows": rows[g],
                "metrics": _figures(values, None if sure is None else sure.groups[g]),
                "rates": {
                    kind: [
                        {
                            "label": to_plain(k),
                            **_figure(v, None if sure is None else sure.rates[g][kind][k]),
                        }
                        for k, v in shares.items()
                    ]
                    for kind, shares in report.rates[g].items()
                },
                "verdict": _plain(dataclasses.asdict(report.verdicts[g])),
            }
            for g, values in report.groups.items()
        ],
        "gaps": _figures(report.gaps, None if sure is None else sure.gaps),
        "comparisons": [_plain(dataclasses.asdict(c)) for c in report.comparisons],
        "proportional_equality": {
            kind: _plain(dataclasses.asdict(report.pe_verdicts[kind]))
            if kind in report.pe_verdicts
            else {"value": _plain(value)}
            for kind, value in report.proportional_equality.items()
        },
        "own_rates": report.own_rates,
        "table": report.table.to_dict(),
        "by": [{"key": to_plain(key), "report": as_plain(r)} for key, r in report.by.items()],
    }


def _plain(value: Any) -> Any:
    """Turn a figure, or what holds figures, into what strict JSON holds."""
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return to_plain(value)


def _figure(value: float, ends: Interval | None) -> dict[str, Any]:
    return {"value": _plain(value), "interval": None if ends is None else _plain(tuple(ends))}


def _figures(
    values: Mapping[str, float], ends: Mapping[str, Interval] | None
) -> dict[str, dict[str, Any]]:
    return {
        name: _figure(v, None if ends is None else ends.get(name)) for name, v in values.items()
    }
