"""Classifiers that are both fair and calibrated: audit, repair, train, choose.

Names are imported where they are first used, so that ``import equipoise`` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from equipoise._door import opened_late

if TYPE_CHECKING:
    from equipoise.auditing import AuditReport, AuditTable, audit
    from equipoise.calibration import (
        GroupCalibratedClassifier,
        GroupCalibrator,
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
    "GroupCalibrator",
    "GroupTemperatureScaling",
    "GroupwiseLoss",
    "GroupwiseMLPClassifier",
    "TemperatureScaling",
    "audit",
]

__getattr__, __dir__ = opened_late(__name__, __file__)
