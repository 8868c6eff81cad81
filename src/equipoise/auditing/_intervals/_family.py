"""How everything that is looked at together shares one error rate."""

from __future__ import annotations

import dataclasses

POOLED = 0.1
"""Share of all rows together in the error rate of calibration verdicts; groups have fewer rows."""

UPPER = 0.7
"""Error rate of upper bounds, over that of lower bounds.

A lower bound can be wrong in several ways only where the model is calibrated; then no upper bound
is wrong. Where it is not, one way is left, and both bounds together keep within the rate.
"""


@dataclasses.dataclass(frozen=True)
class Family:
    """The statements of a report, and the error rate that they share.

    Attributes
    ----------
    error
        1 - level, or the share of it that one part of a split report gets.
    groups, classes
        Their numbers.
    single
        Whether each interval has this error rate for itself, without correction.
    """

    error: float
    groups: int
    classes: int
    single: bool = False

    def _together(self, members: int) -> float:
        return self.error if self.single else self.error / members

    @property
    def lines(self) -> int:
        """Number of lines of the table of figures that are looked at together."""
        return self.groups + (self.groups > 1)

    @property
    def line(self) -> float:
        """Error rate of the interval of a mean in one line of the table."""
        return self._together(self.lines)

    @property
    def views(self) -> int:
        """Number of calibration errors of a group: top label and classes; two mirror each other."""
        return 2 if self.classes == 2 else 1 + self.classes

    def bounds(self, *, pooled: bool) -> tuple[float, float]:
        """Return the error rates of the lower and the upper bound of a calibration error."""
        if self.single:
            return self.error / 2, self.error / 2
        share = 1.0 if self.groups == 1 else POOLED if pooled else (1 - POOLED) / self.groups
        each = self.error * share / self.views
        return each, UPPER * each

    def mean(self, pairs: int) -> float:
        """Return the error rate at each end when the mean gaps of pairs of groups are compared.

        A fifth of the rate is left for the comparisons of ECEs, which hardly err.
        """
        return 0.8 * self._together(pairs * self.views) / 2

    def ratio(self, pairs: int) -> float:
        """Return the error rate at each end of the interval of a log amplification.

        Both kinds of rates, each pair of groups and each class are looked at.
        """
        return self._together(2 * pairs * self.classes) / 2
