"""Audits: figures with intervals, statistical verdicts, gates, and how they are shown."""

from equipoise.auditing._audit import audit, audit_models, merge_audits
from equipoise.auditing._distributions import spare_scipy
from equipoise.auditing._gates import Gate, OnInterval, Outcome, group_named
from equipoise.auditing._intervals import (
    Amplification,
    Interval,
    Intervals,
    intervals_from_table,
    wilson,
)
from equipoise.auditing._model_reports import AuditReports
from equipoise.auditing._report import AuditReport, report_of
from equipoise.auditing._verdicts import Comparison, PeVerdict, Verdict
from equipoise.metrics import AuditTable

__all__ = [
    "Amplification",
    "AuditReport",
    "AuditReports",
    "AuditTable",
    "Comparison",
    "Gate",
    "Interval",
    "Intervals",
    "OnInterval",
    "Outcome",
    "PeVerdict",
    "Verdict",
    "audit",
    "audit_models",
    "group_named",
    "intervals_from_table",
    "merge_audits",
    "report_of",
    "spare_scipy",
    "wilson",
]
