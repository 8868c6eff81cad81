"""Audits: figures with intervals, statistical verdicts, gates, and how they are shown."""

from equipoise.auditing._audit import audit, audit_models, merge_audits
from equipoise.auditing._gates import Gate, OnInterval, Outcome, find_group, split_names
from equipoise.auditing._intervals import Interval, Intervals, intervals_from_table, wilson
from equipoise.auditing._model_reports import AuditReports
from equipoise.auditing._pushdown import Columns, fill, rates_of
from equipoise.auditing._report import AuditReport, report_of
from equipoise.auditing._verdicts import Comparison, PeVerdict, Verdict
from equipoise.metrics import AuditTable

__all__ = [
    "AuditReport",
    "AuditReports",
    "AuditTable",
    "Columns",
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
    "fill",
    "find_group",
    "intervals_from_table",
    "merge_audits",
    "rates_of",
    "report_of",
    "split_names",
    "wilson",
]
