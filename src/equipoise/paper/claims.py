"""The paper's claims, each held against the runs under both readings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from equipoise.paper.digest import Digest
from equipoise.paper.grids import grid
from equipoise.paper.published import shown
from equipoise.paper.tables import (
    EXPERIMENTS,
    Table,
    best_published,
    best_validated,
    compare,
    published_change,
    published_volume,
    scaled,
    scaling_change,
    validated_volumes,
)
from equipoise.paper.tables.numbers import interval, means, relative

Floats = NDArray[np.float64]

PAIRWISE = ("mmce", "mmce-w", "mmce-w*")

MOST = 0.5 + 1e-6
"""More than half."""

OTHER_GRID = (
    "These runs are not the paper's grid but a thinned one, with fewer and larger steps: the "
    "verdicts are about these runs, not about the paper."
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One dataset (or dataset and technique): its number, and whether a claim is true there.

    `true` is None where its interval allows both. `leaning` is whether the number itself is as
    claimed; it is shown, and decides nothing.
    """

    label: str
    true: bool | None
    leaning: bool


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper, the share of cases that it speaks of, and the cases of a dataset."""

    text: str
    share: float
    published: Callable[[Digest], list[Case]]
    validated: Callable[[Digest], list[Case]]


READINGS = {"published": "as published", "validated": "as it should be"}

NOTHING = Case("nothing within the slack", False, False)


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
            "As it should be: chosen on validation, against cross-entropy with as many runs as the "
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
        (("claim", "{0}"), ("as published", "{1}: {2}"), ("as it should be", "{3}: {4}")),
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


# --- the cases of each claim -----------------------------------------------------------------


def _difference(values: Floats, unit: str = "%", least: float = 0.0) -> Case:
    """Return the case that the mean of paired differences is above 0, and at least `least`."""
    if not len(values):
        return NOTHING
    found, mean = interval(values), float(values.mean())
    label, leaning = f"{mean:+.2f}{unit}", mean > 0 and mean >= least
    if found is None:
        # one split shows a sign, no more
        return Case(label, None, leaning)
    low, high = found
    label += f" [{low:+.2f}, {high:+.2f}]"
    true = True if low > 0 and mean >= least else False if high < least or high <= 0 else None
    return Case(label, true, leaning)


def _named(name: str, case: Case) -> Case:
    return dataclasses.replace(case, label=f"{name} {case.label}")


def _plain(label: str, true: bool) -> Case:
    """Return a case without an interval: it is so or it is not."""
    return Case(label, true, true)


def _scaling_published(digest: Digest, metric: str, how: str) -> list[Case]:
    (mean,) = means(scaling_change(digest, metric, how)[:, None])
    return [_plain(f"{mean:+.2f}%", mean > 0)]


def _scaling_validated(digest: Digest, objective: str, metric: str) -> list[Case]:
    return [_difference(relative(*scaled(digest, objective, metric)))]


def _gain_published(digest: Digest, name: str, column: int, least: float) -> list[Case]:
    technique = best_published(digest, name)
    gain = means(published_change(digest, name, technique))[column]
    return [_plain(f"{shown(technique)} {gain:+.1f}%", gain >= least)]


def _gain_validated(digest: Digest, name: str, metric: str, least: float) -> list[Case]:
    found = best_validated(digest, name)
    if found is None:
        return [NOTHING]
    case = _difference(relative(*found.values(metric)), least=least)
    return [_named(shown(found.technique), case)]


def _beaten_published(digest: Digest) -> list[Case]:
    own, volume = _best_volume_published(digest)
    ce = published_volume(digest, "ce")
    label = f"{shown(own)} {_volume(volume)}, cross-entropy {_volume(ce)}"
    return [_plain(label, (volume or 0.0) > (ce or 0.0))]


def _volume(value: float | None) -> str:
    return "nothing within the slack" if value is None else f"{value:.3f}"


def _beaten_validated(digest: Digest) -> list[Case]:
    # the technique is chosen on validation too
    val = {t: validated_volumes(digest, t, part="val").mean() for t in digest.techniques}
    own = max(val, key=lambda t: val[t])
    return [_against_control(digest, own)]


def _against_control(digest: Digest, technique: str, sign: float = 1.0) -> Case:
    control = validated_volumes(digest, "ce", controls=digest.budget(technique))
    difference = sign * (validated_volumes(digest, technique) - control)
    pair = (shown(technique), "cross-entropy")
    first, second = pair if sign > 0 else reversed(pair)
    return _named(f"{first} minus {second}", _difference(difference, ""))


def _best_volume_published(digest: Digest) -> tuple[str, float | None]:
    volumes = {t: published_volume(digest, t) for t in digest.replicas}
    best = max(volumes, key=lambda t: volumes[t] or 0.0)
    return best, volumes[best]


def _tradeoff_published(digest: Digest) -> list[Case]:
    best, _ = _best_volume_published(digest)
    return [_plain(shown(best), best in PAIRWISE)]


def _tradeoff_validated(digest: Digest) -> list[Case]:
    volumes = {t: validated_volumes(digest, t) for t in digest.techniques}
    own = _largest({t: v for t, v in volumes.items() if t in PAIRWISE})
    volumes["ce"] = validated_volumes(digest, "ce", controls=digest.budget(own))
    other = _largest({t: v for t, v in volumes.items() if t not in PAIRWISE})
    case = _difference(volumes[own] - volumes[other], "")
    return [_named(f"{shown(own)} minus {shown(other)}", case)]


def _largest(values: Mapping[str, Floats]) -> str:
    """Return the technique with the largest mean over splits."""
    return max(values, key=lambda t: values[t].mean())


def _fairest_published(digest: Digest) -> list[Case]:
    best = best_published(digest, "table4")
    return [_plain(shown(best), best in PAIRWISE)]


def _fairest_validated(digest: Digest) -> list[Case]:
    pe = _read_on_test(digest, "table4")
    own = _least({t: v for t, v in pe.items() if t in PAIRWISE})
    if own is None:
        return [NOTHING]
    control = compare(digest, "table4", own).values("test_pe")[0]
    pe |= {} if np.isnan(control).any() else {"ce": control}
    other = _least({t: v for t, v in pe.items() if t not in PAIRWISE})
    if other is None:
        return [_plain(f"{shown(own)} alone is within the slack", True)]
    case = _difference(relative(pe[other], pe[own]))
    return [_named(f"{shown(own)} against {shown(other)}", case)]


def _read_on_test(digest: Digest, name: str) -> dict[str, Floats]:
    """Return what each technique's choice scores on the test set of every split.

    Not the validation value, which is the lower the more runs it is chosen from. Techniques with
    nothing within the slack on a split are left out.
    """
    metric = {"pe": "test_pe", "ece": "test_ece15"}[EXPERIMENTS[name].objective]
    found = {t: compare(digest, name, t).values(metric)[1] for t in digest.techniques}
    return {t: values for t, values in found.items() if not np.isnan(values).any()}


def _least(values: Mapping[str, Floats]) -> str | None:
    """Return the technique with the least mean over splits."""
    return min(values, key=lambda t: values[t].mean(), default=None)


def _focal_published(digest: Digest, technique: str) -> list[Case]:
    own, ce = (published_volume(digest, t) for t in (technique, "ce"))
    label = f"{shown(technique)} {_volume(own)}, cross-entropy {_volume(ce)}"
    return [_plain(label, (own or 0.0) < (ce or 0.0))]


def _focal_validated(digest: Digest, technique: str) -> list[Case]:
    # the difference is turned round, so that worse is above 0
    return [_against_control(digest, technique, -1.0)]


def _same(plain: str, hybrid: str) -> Case:
    kept = plain == hybrid
    change = "" if kept else f" becomes {shown(hybrid)}"
    return _plain(f"{shown(plain)}{change}", kept)


def _ranking_published(digest: Digest, plain: str, hybrid: str) -> list[Case]:
    return [_same(best_published(digest, plain), best_published(digest, hybrid))]


def _ranking_validated(digest: Digest, plain: str, hybrid: str) -> list[Case]:
    alone, both = (_read_on_test(digest, name) for name in (plain, hybrid))
    first, second = _least(alone), _least(both)
    if first is None or second is None:
        return [NOTHING]
    case = _same(first, second)
    if case.true or first not in both:
        return [case]
    worse = _difference(relative(both[first], both[second]))
    return [Case(f"{case.label} {worse.label}", False if worse.true else None, False)]


def _hybrid_published(digest: Digest) -> list[Case]:
    cases = {}
    for t in digest.replicas:
        plain, hybrid = (published_volume(digest, t, c) or 0.0 for c in ("none", "group"))
        cases[t] = _plain(t, hybrid > plain)
    return _each_technique(cases)


def _hybrid_validated(digest: Digest) -> list[Case]:
    cases = {}
    for t in digest.techniques:
        plain, hybrid = (validated_volumes(digest, t, c) for c in ("none", "group"))
        cases[t] = _difference(hybrid - plain)
    return _each_technique(cases)


def _each_technique(cases: dict[str, Case]) -> list[Case]:
    """Give the first case a label for all: the techniques whose number leans that way."""
    listed = " ".join(shown(t) for t, case in cases.items() if case.leaning) or "none"
    labels = [listed, *[""] * (len(cases) - 1)]
    return [
        dataclasses.replace(case, label=label)
        for case, label in zip(cases.values(), labels, strict=True)
    ]


CLAIMS = (
    Claim(
        "Dual temperature scaling improves ECE on all 7 datasets (15 bins)",
        1.0,
        partial(_scaling_published, metric="ece15", how="recipe"),
        partial(_scaling_validated, objective="ece", metric="test_ece15"),
    ),
    Claim(
        "The same, with 10 bins",
        1.0,
        partial(_scaling_published, metric="ece10", how="recipe"),
        partial(_scaling_validated, objective="ece", metric="test_ece10"),
    ),
    Claim(
        "Dual temperature scaling improves PE on 4 of 7",
        4 / 7,
        partial(_scaling_published, metric="pe", how="recipe"),
        partial(_scaling_validated, objective="pe", metric="test_pe"),
    ),
    Claim(
        "Optimising for fairness gains at least 82% of PE (82 to 98 in the paper)",
        1.0,
        partial(_gain_published, name="table4", column=0, least=82.0),
        partial(_gain_validated, name="table4", metric="test_pe", least=82.0),
    ),
    Claim(
        "Optimising for calibration gains at least 12% of ECE (12 to 26 in the paper)",
        1.0,
        partial(_gain_published, name="table5", column=1, least=12.0),
        partial(_gain_validated, name="table5", metric="test_ece15", least=12.0),
    ),
    Claim(
        "Some technique always has a better trade-off than cross-entropy (hypervolume)",
        1.0,
        _beaten_published,
        _beaten_validated,
    ),
    Claim(
        "MMCE and MMCE-W have the best trade-off on most datasets (hypervolume)",
        MOST,
        _tradeoff_published,
        _tradeoff_validated,
    ),
    Claim(
        "MMCE and MMCE-W are best at fairness on 5 of 7",
        5 / 7,
        _fairest_published,
        _fairest_validated,
    ),
    Claim(
        "FL has a worse trade-off than cross-entropy on most datasets",
        MOST,
        partial(_focal_published, technique="fl"),
        partial(_focal_validated, technique="fl"),
    ),
    Claim(
        "FLSD has a worse trade-off than cross-entropy on most datasets",
        MOST,
        partial(_focal_published, technique="flsd"),
        partial(_focal_validated, technique="flsd"),
    ),
    Claim(
        "Hybrids keep the best technique for fairness",
        1.0,
        partial(_ranking_published, plain="table4", hybrid="table7"),
        partial(_ranking_validated, plain="table4", hybrid="table7"),
    ),
    Claim(
        "Hybrids keep the best technique for calibration",
        1.0,
        partial(_ranking_published, plain="table5", hybrid="table8"),
        partial(_ranking_validated, plain="table5", hybrid="table8"),
    ),
    Claim(
        "Hybrids have a better trade-off in most cases (named are the techniques that lean so)",
        MOST,
        _hybrid_published,
        _hybrid_validated,
    ),
)
