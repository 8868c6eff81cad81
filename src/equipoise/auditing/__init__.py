"""Audits: figures with intervals, statistical verdicts, gates, and how they are shown."""

from equipoise.auditing._audit import audit
from equipoise.auditing._gates import Gate, OnInterval, Outcome, find_group, split_names
from equipoise.auditing._intervals import Intervals, intervals_from_table
from equipoise.auditing._intervals._figures import Interval, wilson
from equipoise.auditing._pushdown._survey import Columns
from equipoise.auditing._pushdown._tables import fill, rates_of
from equipoise.auditing._render._terminal import side_by_side
from equipoise.auditing._report import AuditReport, report_of, without_reference
from equipoise.auditing._verdicts._calibration import Verdict
from equipoise.auditing._verdicts._comparisons import Comparison
from equipoise.auditing._verdicts._proportional import PeVerdict
from equipoise.metrics import AuditTable

__all__ = [
    "AuditReport",
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
    "fill",
    "find_group",
    "intervals_from_table",
    "rates_of",
    "report_of",
    "side_by_side",
    "split_names",
    "wilson",
    "without_reference",
]
