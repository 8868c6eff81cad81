"""Statistical verdicts: calibration per group, differences between groups, PE.

They follow from the table's sums in closed form, and are corrected for the number of groups.
"""

from equipoise.auditing._verdicts._calibration import Verdict, verdicts_of
from equipoise.auditing._verdicts._comparisons import Comparison, comparisons_of
from equipoise.auditing._verdicts._proportional import KINDS, PeVerdict, pe_verdicts_of

__all__ = [
    "KINDS",
    "Comparison",
    "PeVerdict",
    "Verdict",
    "comparisons_of",
    "pe_verdicts_of",
    "verdicts_of",
]
