"""The paper's claims, each held against the runs under both readings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from equipoise.paper import _chance as chance
from equipoise.paper import _evidence as evidence
from equipoise.paper._digest import Digest
from equipoise.paper._evidence import PAIRWISE, Case, corrected
from equipoise.paper._grids import grid
from equipoise.paper._tables._table import Table
from equipoise.search import mean_interval

MOST = 0.5 + 1e-6
"""More than half."""

LEVEL = 0.05
"""A count is beyond chance where chance gives it with a lower probability."""

OTHER_GRID = (
    "These runs are not the paper's grid but a thinned one, with fewer and larger steps: the "
    "verdicts are about these runs, not about the paper."
)

Chance = Callable[[Digest], float]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper, and its cases on a dataset.

    Attributes
    ----------
    text
        The claim.
    share
        Share of the cases that it speaks of; None where the mean over datasets decides.
    published, validated
        Return the cases of a dataset under each reading.
    chance
        Returns how often a case is true as published by chance.
    chance_validated
        The same for validated cases without a p-value; those with one are corrected by Holm.
    """

    text: str
    share: float | None
    published: Callable[[Digest], list[Case]]
    validated: Callable[[Digest], list[Case]]
    chance: Chance = chance.coin
    chance_validated: Chance | None = None


READINGS = {"published": "as published", "validated": "validated"}


def needed(cases: Sequence[Case], share: float) -> int:
    """Return how many cases must be true for a claim about a share of them."""
    return math.ceil(share * len(cases) - 1e-9)


def verdict(cases: Sequence[Case], share: float, chances: Sequence[float] | None = None) -> str:
    """Return holds, at chance level, holds in part, does not hold or not shown.

    It holds where the claimed share of the cases is true, and in part where half of that share is.
    Neither is said where chance (the probability that a case is true without any effect) gives so
    many true cases in more than 1 of 20 times. Otherwise it does not hold if so many cases are
    false that the share is out of reach, and is not shown if too many are open.

    Examples
    --------
    >>> cases = [Case("a", True, True), Case("b", None, True), Case("c", False, False)]
    >>> [verdict(cases, share) for share in (1 / 3, 2 / 3, 1.0)]
    ['holds', 'holds in part', 'does not hold']
    >>> verdict(cases[1:2], 1.0)
    'not shown'
    >>> verdict(cases, 1 / 3, [0.5, 0.5, 0.5])
    'at chance level'
    """
    wanted = needed(cases, share)
    true, false = (sum(c.true is which for c in cases) for which in (True, False))
    beyond = chances is None or chance.at_least(true, chances) < LEVEL
    if true >= wanted:
        return "holds" if beyond else "at chance level"
    if 2 * true >= wanted and beyond:
        return "holds in part"
    return "does not hold" if len(cases) - false < wanted else "not shown"


def mean_verdict(cases: Sequence[Case]) -> tuple[str, str]:
    """Return the verdict on a gain by its mean over datasets, and the numbers it rests on.

    It holds where the 95% interval of the mean gain is above 0, and so is that of what is gained
    more than the control, where the gain is not itself measured against the control.
    """
    there = [c for c in cases if c.value is not None and math.isfinite(c.value)]
    gains = np.array([c.value for c in there], np.float64)
    if not len(gains):
        return "not shown", "nothing within the slack"
    span, text = _mean("mean", gains)
    controls = np.array([np.nan if c.control is None else c.control for c in there])
    beyond = True
    if np.isfinite(controls).all():
        more, said = _mean("more than the control", gains - controls)
        text += f", control {controls.mean():+.1f}%, {said}"
        beyond = more is not None and more[0] > 0.0
    text += f" ({len(gains)} of {len(cases)} datasets)"
    if span is None or span[0] <= 0.0 <= span[1]:
        return "not shown", text
    if span[1] < 0.0:
        return "does not hold", text
    return ("holds" if beyond else "at chance level"), text


def _mean(name: str, values: NDArray[np.float64]) -> tuple[tuple[float, float] | None, str]:
    """Return the interval of a mean over datasets, and both as text."""
    span = mean_interval(values)
    text = f"{name} {values.mean():+.1f}%"
    return span, text if span is None else f"{text} [{span[0]:+.1f}, {span[1]:+.1f}]"


def claims_tables(digests: Sequence[Digest]) -> list[tuple[str, Table]]:
    """Return the verdict on every claim, and the numbers behind them, each with its reading."""
    found = {
        reading: [[getattr(claim, reading)(d) for d in digests] for claim in CLAIMS]
        for reading in READINGS
    }
    numbers = [(READINGS[r], _numbers(digests, r, found[r])) for r in READINGS]
    return [("both readings", _verdicts(digests, found)), *numbers]


def judged(
    claim: Claim, reading: str, digests: Sequence[Digest], found: Sequence[list[Case]]
) -> tuple[str, str]:
    """Return the verdict on a claim, of the cases of each dataset, and the counts behind it."""
    cases = list(itertools.chain(*found))
    if claim.share is None:
        return mean_verdict(cases)
    cases = corrected(cases)
    by_chance = claim.chance if reading == "published" else claim.chance_validated
    chances = None
    if by_chance is not None:
        chances = [by_chance(d) for d, own in zip(digests, found, strict=True) for _ in own]
    return verdict(cases, claim.share, chances), _counted(cases, claim.share, chances)


def _verdicts(digests: Sequence[Digest], found: dict[str, list[list[list[Case]]]]) -> Table:
    rows = [
        [claim.text, *itertools.chain(*(judged(claim, r, digests, found[r][i]) for r in READINGS))]
        for i, claim in enumerate(CLAIMS)
    ]
    names = ", ".join(d.dataset for d in digests)
    other = any(d.facts["sweep"] != grid("paper")[d.dataset].to_dict() for d in digests)
    return Table(
        "claims",
        "The paper's claims",
        ("claim", *(name for r in READINGS.values() for name in (r, f"cases {r}"))),
        rows,
        (
            *([OTHER_GRID] if other else []),
            f"Over {len(digests)} of the paper's 7 datasets ({names}). A claim holds where as many "
            "cases are true as it needs, in part where half as many are; it does not hold where "
            "too many are false, and is not shown where too many are open. Where chance alone "
            "gives as many true cases in more than 1 of 20 times, it is at chance level at best.",
            "By chance: the number of cases that would be true without any effect. A sign is right "
            "in half of the cases. Were all runs alike, a technique would be best in proportion to "
            "its runs, and some technique nearly always better than one run of cross-entropy. "
            "Against cross-entropy's least PE over its epochs, a choice by ECE loses by "
            "construction, cross-entropy's own too.",
            "As published: chosen on the test set, against one run of cross-entropy per seed, "
            "without intervals; temperatures by the paper's recipe in the first three claims, "
            "exact in those on hybrids; MMCE-W by the formula is not a candidate.",
            "Validated: chosen on validation, against cross-entropy with as many runs as the "
            "technique; exact temperatures. A case is a difference over splits. It is true or "
            "false where its p-value, adjusted by Holm for all cases of the claim, is at most .05, "
            "and open otherwise. Splits share rows, so standard errors are Nadeau and Bengio's. "
            "Which technique is best is read on the test set, after each was chosen on "
            "validation: the best of those named against the best of the others, cross-entropy "
            "with as many runs among them. A hybrid keeps the best where that has the same name; "
            "where not, it is false if the former best is shown to be worse, and open otherwise.",
            "A claim about a gain is judged by the mean over datasets, with its t interval. As "
            "published it is at chance level where the technique does not gain more than the "
            "control: cross-entropy re-run as often and chosen the same way, on the test set.",
            "Trade-offs are compared by hypervolume; a technique with nothing within the slack "
            "counts as 0.",
        ),
        (("claim", "{0}"), ("as published", "{1}: {2}"), ("validated", "{3}: {4}")),
    )


def _numbers(digests: Sequence[Digest], reading: str, found: list[list[list[Case]]]) -> Table:
    """Return the numbers of one reading, a column per dataset."""
    datasets = [d.dataset for d in digests]
    rows = [
        [claim.text, *("; ".join(c.label for c in cases if c.label) for cases in by_dataset)]
        for claim, by_dataset in zip(CLAIMS, found, strict=True)
    ]
    listed = "; ".join(f"{dataset}: {{{i}}}" for i, dataset in enumerate(datasets, 1))
    return Table(
        f"claims-{reading}",
        "The numbers behind the claims",
        ("claim", *datasets),
        rows,
        (
            "Percentages are improvements, other numbers hypervolumes; times: the PE ratio of "
            "Table 5."
            if reading == "published"
            else "Percentages are improvements (of the claim that fairness is hurt, increases of "
            "PE), other numbers differences of hypervolumes; in brackets are paired 95% intervals "
            "over splits, Nadeau and Bengio's, not corrected for the number of cases.",
        ),
        (("claim", "{0}"), ("numbers", listed)),
    )


def _counted(cases: Sequence[Case], share: float, chances: Sequence[float] | None) -> str:
    true, open_ = (sum(c.true is which for c in cases) for which in (True, None))
    text = f"{true} of {len(cases)} true, {needed(cases, share)} needed"
    if chances is not None:
        text += f", {sum(chances):.1f} by chance"
    if open_:
        leaning = sum(c.leaning for c in cases if c.true is None)
        text += f", {open_} open ({leaning} leaning that way)"
    return text


CLAIMS = (
    Claim(
        "Dual temperature scaling improves ECE on all 7 datasets (15 bins)",
        1.0,
        partial(evidence.scaling_published, metric="ece15", how="recipe"),
        partial(evidence.scaling_validated, objective="ece", metric="test_ece15"),
    ),
    Claim(
        "The same, with 10 bins",
        1.0,
        partial(evidence.scaling_published, metric="ece10", how="recipe"),
        partial(evidence.scaling_validated, objective="ece", metric="test_ece10"),
    ),
    Claim(
        "Dual temperature scaling improves PE on 4 of 7",
        4 / 7,
        partial(evidence.scaling_published, metric="pe", how="recipe"),
        partial(evidence.scaling_validated, objective="pe", metric="test_pe"),
    ),
    Claim(
        "Stochastic PE-fairness can be improved substantially by sacrificing some amount of ECE "
        "and Accuracy",
        None,
        partial(evidence.gain_published, name="table4", column=0),
        partial(evidence.gain_validated, name="table4", metric="test_pe"),
    ),
    Claim(
        "ECE is improved by optimising for it (Table 5)",
        None,
        partial(evidence.gain_published, name="table5", column=1),
        partial(evidence.gain_validated, name="table5", metric="test_ece15"),
    ),
    Claim(
        "Optimizing solely for ECE definitely hurts the fairness of the model",
        1.0,
        evidence.hurt_published,
        evidence.hurt_validated,
        chance.certain,
    ),
    Claim(
        "DCA performs the best for 5 datasets (calibration)",
        5 / 7,
        partial(evidence.leader_published, name="table5", group=("dca",)),
        partial(evidence.leader_validated, name="table5", group=("dca",)),
        partial(chance.leading_by_chance, group=("dca",)),
    ),
    Claim(
        "Some technique always has a better trade-off than cross-entropy (hypervolume)",
        1.0,
        evidence.beaten_published,
        evidence.beaten_validated,
        chance.beaten_by_chance,
    ),
    Claim(
        "MMCE and MMCE-W have the best trade-off on most datasets (hypervolume)",
        MOST,
        evidence.tradeoff_published,
        evidence.tradeoff_validated,
        partial(chance.leading_by_chance, group=PAIRWISE),
    ),
    Claim(
        "MMCE and MMCE-W are best at fairness on 5 of 7",
        5 / 7,
        partial(evidence.leader_published, name="table4", group=PAIRWISE),
        partial(evidence.leader_validated, name="table4", group=PAIRWISE),
        partial(chance.leading_by_chance, group=PAIRWISE),
    ),
    Claim(
        "FL has a worse trade-off than cross-entropy on most datasets",
        MOST,
        partial(evidence.focal_published, technique="fl"),
        partial(evidence.focal_validated, technique="fl"),
        partial(chance.beating_by_chance, technique="fl"),
    ),
    Claim(
        "FLSD has a worse trade-off than cross-entropy on most datasets",
        MOST,
        partial(evidence.focal_published, technique="flsd"),
        partial(evidence.focal_validated, technique="flsd"),
        partial(chance.beating_by_chance, technique="flsd"),
    ),
    Claim(
        "Hybrids keep the best technique for fairness",
        1.0,
        partial(evidence.ranking_published, plain="table4", hybrid="table7"),
        partial(evidence.ranking_validated, plain="table4", hybrid="table7"),
        chance.same_by_chance,
        chance.same_by_chance_validated,
    ),
    Claim(
        "Hybrids keep the best technique for calibration",
        1.0,
        partial(evidence.ranking_published, plain="table5", hybrid="table8"),
        partial(evidence.ranking_validated, plain="table5", hybrid="table8"),
        chance.same_by_chance,
        chance.same_by_chance_validated,
    ),
    Claim(
        "Hybrids have a better trade-off in most cases (named are the techniques that lean so)",
        MOST,
        evidence.hybrid_published,
        evidence.hybrid_validated,
    ),
)
