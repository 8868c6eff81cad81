"""Statistical verdicts: calibration per group, differences between groups, PE.

Each is a decision on an interval that is shown beside it; all intervals of a kind hold together.
"""

from equipoise.auditing._verdicts._calibration import Calibration, Verdict, verdicts_of
from equipoise.auditing._verdicts._comparisons import Comparison, comparisons_of
from equipoise.auditing._verdicts._proportional import PeVerdict, pe_verdicts_of

__all__ = [
    "Calibration",
    "Comparison",
    "PeVerdict",
    "Verdict",
    "comparisons_of",
    "pe_verdicts_of",
    "verdicts_of",
]
