"""Statistical verdicts on proportional equality: whether the model changes a ratio of rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import shown
from equipoise.auditing._intervals import KINDS, Amplification, Interval, Intervals
from equipoise.metrics import AuditTable, Rates, data_rates, rate_ratios

Floats = NDArray[np.float64]
Word = Literal["amplifies", "dampens", "reverses", "changes", "no evidence", "undefined"]

KEPT = math.log(1.25)
"""A ratio that changes by at most a factor of 1.25 counts as kept: the four-fifths rule."""

SEVERITY = ("dampens", "changes", "amplifies", "reverses")


@dataclasses.dataclass(frozen=True)
class PeVerdict:
    """Whether the model changes the ratio of the groups' rates.

    Attributes
    ----------
    value, interval
        Proportional equality and its interval.
    oracle
        Proportional equality of the labels themselves as decisions; 0 without given base rates.
    group, reference, label
        The pair of groups and the class with the largest gap.
    data_ratio, model_ratio
        The rate of the class in `group` divided by that in `reference`, in data and model.
    amplification
        The log amplification that decides: the worst that is shown ("reverses", then "amplifies",
        "changes", "dampens"), or, if none is, that of the largest gap; None where nothing can be
        compared.
    word
        What the model is shown to do to that ratio, see `Amplification`; "no evidence" if no change
        is shown.
    not_amplified
        Whether every ratio is shown to be farther from 1 than in the data, or beyond 1, by at most
        a factor of 1.25.
    text
        The finding in a sentence.
    """

    value: float
    interval: Interval | None
    oracle: float
    group: Hashable
    reference: Hashable
    label: Hashable
    data_ratio: float
    model_ratio: float
    amplification: Amplification | None
    word: Word
    not_amplified: bool
    text: str

    @classmethod
    def undefined(cls, text: str, reference: Hashable = None) -> PeVerdict:
        """Return the verdict where no groups can be compared."""
        nan = math.nan
        return cls(nan, None, nan, None, reference, None, nan, nan, None, "undefined", False, text)


def pe_verdicts_of(
    table: AuditTable,
    found: dict[str, list[Amplification]],
    pairs: list[tuple[int, int]],
    *,
    base_rates: Rates | None = None,
    intervals: Intervals | None = None,
) -> dict[str, PeVerdict]:
    """Return the verdict on each kind of proportional equality.

    `found` are the log amplifications of all pairs and classes.
    """
    if not pairs:
        text = "Proportional equality compares groups, and there is only one."
        return dict.fromkeys(KINDS, PeVerdict.undefined(text))
    ends = {} if intervals is None else intervals.proportional_equality
    oracle = 0.0
    if base_rates is not None:
        oracle = _label_score(table, data_rates(table, base_rates), pairs)
    return {kind: _pe_verdict(found[kind], ends.get(kind), oracle) for kind in KINDS}


def _label_score(table: AuditTable, data: Floats, pairs: list[tuple[int, int]]) -> float:
    """Return the proportional equality of decisions that are always right."""
    right = dataclasses.replace(table, sums={**table.sums, "predictions": table.sums["labels"]})
    first, second = rate_ratios(right, data, pairs, "deterministic", "group-ratio")
    with np.errstate(invalid="ignore"):
        gap = np.abs(first - second)
    return float(np.fmax.reduce(gap, axis=None))


def _pe_verdict(
    found: Sequence[Amplification], interval: Interval | None, oracle: float
) -> PeVerdict:
    gaps = [_gap(a) for a in found]
    driver = found[max(range(len(found)), key=lambda i: -1.0 if math.isnan(gaps[i]) else gaps[i])]
    value = _gap(driver)
    clear = [a for a in found if a.word]
    kept = all(a.low >= -KEPT and a.high <= KEPT for a in found)
    bounded = all(a.farther <= KEPT for a in found)
    where = f"Largest for {_where(driver)}: "
    ratios = f"ratio {driver.data_ratio:.3f} in the data, {driver.model_ratio:.3f} in the model"
    judged = driver
    if clear:
        # the worst that is shown, and of several the clearest; the driver if it is one of them
        rank = max(SEVERITY.index(a.word) for a in clear)
        worst = [a for a in clear if SEVERITY.index(a.word) == rank]
        judged = driver if driver in worst else max(worst, key=lambda a: max(a.low, -a.high))
    word: Word
    if not clear and not math.isfinite(value):
        word = "undefined"
        text = (
            "No class has rates in two groups that can be compared."
            if math.isnan(value)
            else f"{where}a ratio has a rate of 0 in it."
        )
    elif not clear:
        word = "no evidence"
        text = f"{where}{ratios}; no evidence that the model changes it ({_shown(driver)})."
        if kept:
            text = (
                f"{where}{ratios}; the model keeps it within a factor of 1.25 ({_shown(driver)})."
            )
    else:
        word = judged.word or "changes"
        text = f"{where}{ratios}; "
        if judged is not driver:
            said = f"the model {driver.word} it" if driver.word else "not significant"
            text += (
                f"{said}. Clearest for {_where(judged)}: {judged.data_ratio:.3f} and "
                f"{judged.model_ratio:.3f}; "
            )
        what = (
            "ratio; whether it amplifies, dampens or reverses it is open"
            if word == "changes"
            else "difference"
        )
        text += f"the model {word} the {what} ({_shown(judged)})."
    return PeVerdict(
        value,
        interval,
        oracle,
        driver.group,
        driver.reference,
        driver.label,
        driver.data_ratio,
        driver.model_ratio,
        judged,
        word,
        bounded,
        text,
    )


def _gap(found: Amplification) -> float:
    # inf - inf and 0/0 are nan: such a class is left out, as in the metric
    return abs(found.data_ratio - found.model_ratio)


def _where(found: Amplification) -> str:
    group, reference = shown(found.group), shown(found.reference)
    return f"label '{shown(found.label)}' in group '{group}', compared with '{reference}'"


def _shown(found: Amplification) -> str:
    value = "undefined" if math.isnan(found.value) else f"{found.value:+.3f}"
    return f"log amplification {value}, {found.low:+.3f} to {found.high:+.3f}"
