"""Classifiers that are both fair and calibrated: audit, repair, train, choose.

Names are imported where they are first used, so that ``import equipoise`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.audit import AuditReport, AuditTable
    from equipoise.calibration import GroupTemperatureScaling, TemperatureScaling
    from equipoise.estimators import GroupwiseMLPClassifier
    from equipoise.repair import GroupCalibratedClassifier
    from equipoise.search import FrontierSearch

__version__ = "0.1.0"

_HOME = {
    "AuditReport": "audit",
    "AuditTable": "audit",
    "FrontierSearch": "search",
    "GroupCalibratedClassifier": "repair",
    "GroupTemperatureScaling": "calibration",
    "GroupwiseMLPClassifier": "estimators",
    "TemperatureScaling": "calibration",
}

__all__ = [
    "AuditReport",
    "AuditTable",
    "FrontierSearch",
    "GroupCalibratedClassifier",
    "GroupTemperatureScaling",
    "GroupwiseMLPClassifier",
    "TemperatureScaling",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'equipoise' has no attribute {name!r}")
    return getattr(import_module(f"equipoise.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
