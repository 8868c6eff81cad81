"""The paper's claims, each held against the runs under both readings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

from equipoise.paper import _evidence as evidence
from equipoise.paper._digest import Digest
from equipoise.paper._evidence import Case
from equipoise.paper._grids import grid
from equipoise.paper._tables._table import Table

MOST = 0.5 + 1e-6
"""More than half."""

OTHER_GRID = (
    "These runs are not the paper's grid but a thinned one, with fewer and larger steps: the "
    "verdicts are about these runs, not about the paper."
)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper, the share of cases that it speaks of, and the cases of a dataset."""

    text: str
    share: float
    published: Callable[[Digest], list[Case]]
    validated: Callable[[Digest], list[Case]]


READINGS = {"published": "as published", "validated": "validated"}


def needed(cases: Sequence[Case], share: float) -> int:
    """Return how many cases must be true for a claim about a share of them."""
    return math.ceil(share * len(cases) - 1e-9)


def verdict(cases: Sequence[Case], share: float) -> str:
    """Return holds, holds in part, does not hold or not shown.

    It holds where the claimed share of the cases is true, and in part where half of that share is.
    Otherwise it does not hold if so many cases are shown to be false that the share is out of
    reach, and is not shown if the intervals allow both.

    Examples
    --------
    >>> cases = [Case("a", True, True), Case("b", None, True), Case("c", False, False)]
    >>> [verdict(cases, share) for share in (1 / 3, 2 / 3, 1.0)]
    ['holds', 'holds in part', 'does not hold']
    >>> verdict(cases[1:2], 1.0)
    'not shown'
    """
    wanted = needed(cases, share)
    true, false = (sum(c.true is which for c in cases) for which in (True, False))
    if true >= wanted:
        return "holds"
    if 2 * true >= wanted:
        return "holds in part"
    return "does not hold" if len(cases) - false < wanted else "not shown"


def claims_tables(digests: Sequence[Digest]) -> list[tuple[str, Table]]:
    """Return the verdict on every claim, and the numbers behind them, each with its reading."""
    found = {
        reading: [[getattr(claim, reading)(d) for d in digests] for claim in CLAIMS]
        for reading in READINGS
    }
    numbers = [(READINGS[r], _numbers(digests, r, found[r])) for r in READINGS]
    return [("both readings", _verdicts(digests, found)), *numbers]


def _verdicts(digests: Sequence[Digest], found: dict[str, list[list[list[Case]]]]) -> Table:
    rows = []
    for i, claim in enumerate(CLAIMS):
        row = [claim.text]
        for by_dataset in (cases[i] for cases in found.values()):
            cases = list(itertools.chain(*by_dataset))
            row += [verdict(cases, claim.share), _counted(cases, claim.share)]
        rows.append(row)
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
            "too many are false, and is not shown where too many are open.",
            "As published: chosen on the test set, against one run of cross-entropy per seed, "
            "without intervals; temperatures by the paper's recipe in the first three claims; a "
            "gain above the paper's range is true; MMCE-W by the formula is not a candidate.",
            "Validated: chosen on validation, against cross-entropy with as many runs as the "
            "technique; exact temperatures. A case is a difference over splits: true where its "
            "paired 95% interval is above 0 (and its mean at least what is claimed), false where "
            "the interval is not (or below what is claimed), open otherwise, whichever way it "
            "leans. Nothing is corrected for the number of cases. Which technique is best is read "
            "on the test set, after each was chosen on validation: the best of MMCE, MMCE-W and "
            "MMCE-W* against the best of the others, cross-entropy with as many runs among them. "
            "A hybrid keeps the best where that has the same name; where not, it is false if the "
            "former best is clearly worse, and open otherwise.",
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
            "Percentages are improvements, other numbers hypervolumes."
            if reading == "published"
            else "Percentages are improvements, other numbers differences of hypervolumes; in "
            "brackets are paired 95% intervals over splits.",
        ),
        (("claim", "{0}"), ("numbers", listed)),
    )


def _counted(cases: Sequence[Case], share: float) -> str:
    true, open_ = (sum(c.true is which for c in cases) for which in (True, None))
    text = f"{true} of {len(cases)} true, {needed(cases, share)} needed"
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
        "Optimising for fairness gains at least 82% of PE (82 to 98 in the paper)",
        1.0,
        partial(evidence.gain_published, name="table4", column=0, least=82.0),
        partial(evidence.gain_validated, name="table4", metric="test_pe", least=82.0),
    ),
    Claim(
        "Optimising for calibration gains at least 12% of ECE (12 to 26 in the paper)",
        1.0,
        partial(evidence.gain_published, name="table5", column=1, least=12.0),
        partial(evidence.gain_validated, name="table5", metric="test_ece15", least=12.0),
    ),
    Claim(
        "Some technique always has a better trade-off than cross-entropy (hypervolume)",
        1.0,
        evidence.beaten_published,
        evidence.beaten_validated,
    ),
    Claim(
        "MMCE and MMCE-W have the best trade-off on most datasets (hypervolume)",
        MOST,
        evidence.tradeoff_published,
        evidence.tradeoff_validated,
    ),
    Claim(
        "MMCE and MMCE-W are best at fairness on 5 of 7",
        5 / 7,
        evidence.fairest_published,
        evidence.fairest_validated,
    ),
    Claim(
        "FL has a worse trade-off than cross-entropy on most datasets",
        MOST,
        partial(evidence.focal_published, technique="fl"),
        partial(evidence.focal_validated, technique="fl"),
    ),
    Claim(
        "FLSD has a worse trade-off than cross-entropy on most datasets",
        MOST,
        partial(evidence.focal_published, technique="flsd"),
        partial(evidence.focal_validated, technique="flsd"),
    ),
    Claim(
        "Hybrids keep the best technique for fairness",
        1.0,
        partial(evidence.ranking_published, plain="table4", hybrid="table7"),
        partial(evidence.ranking_validated, plain="table4", hybrid="table7"),
    ),
    Claim(
        "Hybrids keep the best technique for calibration",
        1.0,
        partial(evidence.ranking_published, plain="table5", hybrid="table8"),
        partial(evidence.ranking_validated, plain="table5", hybrid="table8"),
    ),
    Claim(
        "Hybrids have a better trade-off in most cases (named are the techniques that lean so)",
        MOST,
        evidence.hybrid_published,
        evidence.hybrid_validated,
    ),
)
