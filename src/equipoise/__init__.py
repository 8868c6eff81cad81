"""Classifiers that are both fair and calibrated: audit, repair, train, choose.

Names are imported where they are first used, so that ``import equipoise`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.auditing import AuditReport, AuditTable, audit
    from equipoise.calibration import (
        GroupCalibratedClassifier,
        GroupTemperatureScaling,
        TemperatureScaling,
    )
    from equipoise.search import FrontierSearch
    from equipoise.training import GroupwiseLoss, GroupwiseMLPClassifier

__version__ = "0.1.0"

__all__ = [
    "AuditReport",
    "AuditTable",
    "FrontierSearch",
    "GroupCalibratedClassifier",
    "GroupTemperatureScaling",
    "GroupwiseLoss",
    "GroupwiseMLPClassifier",
    "TemperatureScaling",
    "audit",
]

_ROOMS = {
    "AuditReport": "auditing",
    "AuditTable": "auditing",
    "FrontierSearch": "search",
    "GroupCalibratedClassifier": "calibration",
    "GroupTemperatureScaling": "calibration",
    "GroupwiseLoss": "training",
    "GroupwiseMLPClassifier": "training",
    "TemperatureScaling": "calibration",
    "audit": "auditing",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'equipoise' has no attribute {name!r}")
    return getattr(import_module(f"equipoise.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
