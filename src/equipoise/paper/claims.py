"""The paper's claims, each held against the runs under both readings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from equipoise.paper.digest import Digest
from equipoise.paper.published import shown
from equipoise.paper.tables import (
    EXPERIMENTS,
    Table,
    best_published,
    best_validated,
    compare,
    interval,
    means,
    published_change,
    published_volume,
    relative,
    replicas,
    scaling_change,
    techniques,
    validated_volumes,
)

Floats = NDArray[np.float64]

PAIRWISE = ("mmce", "mmce-w", "mmce-w*")


@dataclasses.dataclass(frozen=True)
class Case:
    """One dataset (or dataset and technique): its number, and whether a claim is true there.

    `leaning` is whether it is true or at least has the claimed sign: under the validated reading a
    difference counts as true only if its interval excludes 0.
    """

    label: str
    true: bool
    leaning: bool


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper, the share of cases that it speaks of, and the cases of a dataset."""

    text: str
    share: float
    published: Callable[[Digest], list[Case]]
    validated: Callable[[Digest], list[Case]]


def verdict(cases: Sequence[Case], share: float) -> str:
    """Return holds, holds in part or does not hold.

    It holds where the claimed share of the cases is true, and in part where at least half of that
    share is true or leans that way.

    Examples
    --------
    >>> cases = [Case("a", True, True), Case("b", False, True), Case("c", False, False)]
    >>> [verdict(cases, share) for share in (1 / 3, 1.0)]
    ['holds', 'holds in part']
    """
    wanted = math.ceil(share * len(cases) - 1e-9)
    if sum(c.true for c in cases) >= wanted:
        return "holds"
    return "holds in part" if 2 * sum(c.leaning for c in cases) >= wanted else "does not hold"


def claims_table(digests: Sequence[Digest]) -> Table:
    """Return every claim with its verdict and numbers under both readings."""
    rows = []
    for claim in CLAIMS:
        row = [claim.text]
        for count in (claim.published, claim.validated):
            cases = [case for d in digests for case in count(d)]
            true, leaning = (sum(getattr(c, x) for c in cases) for x in ("true", "leaning"))
            some = f" ({leaning} lean that way)" if leaning > true else ""
            labels = "; ".join(c.label for c in cases if c.label)
            row += [verdict(cases, claim.share), f"{true} of {len(cases)}{some}: {labels}"]
        rows.append(row)
    names = ", ".join(d.dataset for d in digests)
    return Table(
        "claims",
        "The paper's claims",
        ("claim", "as published", "numbers", "as it should be", "numbers as it should be"),
        rows,
        (
            f"Over {len(digests)} of the paper's 7 datasets ({names}). As published: chosen on the "
            "test set, against one run of cross-entropy. As it should be: chosen on validation, "
            "against cross-entropy with as many runs; a difference counts where its paired 95% "
            "interval over splits excludes 0, and leans that way where only its mean does; which "
            "technique is best is read on the test set, after each was chosen on validation; "
            "temperatures are the exact ones. A claim holds where the share of cases that it "
            "speaks of is reached, in part where half of that share at least leans its way.",
        ),
    )


# --- the cases of each claim -----------------------------------------------------------------


def _difference(name: str, values: Floats, unit: str = "%") -> Case:
    """Return the case that the mean of paired differences is above 0."""
    if not len(values):
        return _nothing(name)
    found, mean = interval(values), float(values.mean())
    if found is None:
        # one split shows a sign, no more
        return Case(f"{name} {mean:+.2f}{unit}", False, mean > 0)
    low, high = found
    return Case(f"{name} {mean:+.2f}{unit} [{low:+.2f}, {high:+.2f}]", low > 0, mean > 0)


def _nothing(name: str) -> Case:
    return Case(f"{name}: nothing within the slack", False, False)


def _scaling_published(digest: Digest, metric: str, how: str) -> list[Case]:
    (mean,) = means(scaling_change(digest, metric, how)[:, None])
    return [Case(f"{digest.dataset} {mean:+.2f}%", mean > 0, mean > 0)]


def _scaling_validated(digest: Digest, objective: str, metric: str) -> list[Case]:
    before, after = (
        np.array([row.get(metric, np.nan) for row in digest.best("ce", "validated", objective, c)])
        for c in ("none", "group")
    )
    return [_difference(digest.dataset, relative(before, after))]


def _gain_published(digest: Digest, name: str, column: int, least: float) -> list[Case]:
    technique = best_published(digest, name)
    gain = means(published_change(digest, name, technique))[column]
    label = f"{digest.dataset} {gain:+.1f}% ({shown(technique)})"
    return [Case(label, gain >= least, gain > 0)]


def _gain_validated(digest: Digest, name: str, metric: str, least: float) -> list[Case]:
    found = best_validated(digest, name)
    if found is None:
        return [_nothing(digest.dataset)]
    change = relative(*found.values(metric))
    case = _difference(digest.dataset, change)
    true = case.true and bool(change.mean() >= least)
    return [Case(f"{case.label} ({shown(found.technique)})", true, case.leaning)]


def _beaten_published(digest: Digest) -> list[Case]:
    own, volume = _best_volume_published(digest)
    ce = published_volume(digest, "ce")
    label = f"{digest.dataset} {volume:.3f} ({shown(own)}), cross-entropy {ce:.3f}"
    return [Case(label, volume > ce, volume > ce)]


def _beaten_validated(digest: Digest) -> list[Case]:
    # the technique is chosen on validation too
    val = {t: validated_volumes(digest, t, part="val").mean() for t in techniques(digest)}
    own = max(val, key=lambda t: val[t])
    return [_against_control(digest, own)]


def _against_control(digest: Digest, technique: str, sign: float = 1.0) -> Case:
    control = validated_volumes(digest, "ce", controls=digest.budget(technique))
    difference = sign * (validated_volumes(digest, technique) - control)
    pair = (shown(technique), "cross-entropy")
    first, second = pair if sign > 0 else reversed(pair)
    return _difference(f"{digest.dataset}, {first} minus {second}", difference, "")


def _best_volume_published(digest: Digest) -> tuple[str, float]:
    volumes = {t: published_volume(digest, t) for t in replicas(digest)}
    best = max(volumes, key=lambda t: volumes[t])
    return best, volumes[best]


def _tradeoff_published(digest: Digest) -> list[Case]:
    best, _ = _best_volume_published(digest)
    return [Case(f"{digest.dataset} {shown(best)}", best in PAIRWISE, best in PAIRWISE)]


def _tradeoff_validated(digest: Digest) -> list[Case]:
    volumes = {t: validated_volumes(digest, t).mean() for t in techniques(digest)}
    best = max(volumes, key=lambda t: volumes[t])
    return [Case(f"{digest.dataset} {shown(best)}", best in PAIRWISE, best in PAIRWISE)]


def _fairest_published(digest: Digest) -> list[Case]:
    best = best_published(digest, "table4")
    return [Case(f"{digest.dataset} {shown(best)}", best in PAIRWISE, best in PAIRWISE)]


def _fairest_validated(digest: Digest) -> list[Case]:
    best = _best_on_test(digest, "table4")
    if best is None:
        return [_nothing(digest.dataset)]
    return [Case(f"{digest.dataset} {shown(best)}", best in PAIRWISE, best in PAIRWISE)]


def _best_on_test(digest: Digest, name: str) -> str | None:
    """Return the technique with the least mean test value, of those there on every split."""
    # not the least validation value, which is the lower the more runs it is chosen from
    metric = {"pe": "test_pe", "ece": "test_ece15"}[EXPERIMENTS[name].objective]
    found = {t: compare(digest, name, t).values(metric)[1].mean() for t in techniques(digest)}
    found = {t: mean for t, mean in found.items() if not np.isnan(mean)}
    return min(found, key=lambda t: found[t], default=None)


def _focal_published(digest: Digest, technique: str) -> list[Case]:
    own, ce = published_volume(digest, technique), published_volume(digest, "ce")
    return [Case(f"{digest.dataset} {own:.3f}, cross-entropy {ce:.3f}", own < ce, own < ce)]


def _focal_validated(digest: Digest, technique: str) -> list[Case]:
    # the difference is turned round, so that worse is above 0
    return [_against_control(digest, technique, -1.0)]


def _same(digest: Digest, plain: str, hybrid: str) -> Case:
    kept = plain == hybrid
    change = "" if kept else f" becomes {shown(hybrid)}"
    return Case(f"{digest.dataset} {shown(plain)}{change}", kept, kept)


def _ranking_published(digest: Digest, plain: str, hybrid: str) -> list[Case]:
    return [_same(digest, best_published(digest, plain), best_published(digest, hybrid))]


def _ranking_validated(digest: Digest, plain: str, hybrid: str) -> list[Case]:
    first, second = _best_on_test(digest, plain), _best_on_test(digest, hybrid)
    if first is None or second is None:
        return [_nothing(digest.dataset)]
    return [_same(digest, first, second)]


def _hybrid_published(digest: Digest) -> list[Case]:
    better = [
        t
        for t in replicas(digest)
        if published_volume(digest, t, "group") > published_volume(digest, t)
    ]
    return _each_technique(digest, replicas(digest), better, better)


def _hybrid_validated(digest: Digest) -> list[Case]:
    better, beyond = [], []
    for t in techniques(digest):
        plain, hybrid = (validated_volumes(digest, t, c) for c in ("none", "group"))
        case = _difference(t, hybrid - plain)
        better += [t] if case.leaning else []
        beyond += [t] if case.true else []
    return _each_technique(digest, techniques(digest), better, beyond)


def _each_technique(
    digest: Digest, names: list[str], leaning: list[str], true: list[str]
) -> list[Case]:
    listed = " ".join(shown(t) for t in leaning) or "none"
    # one label for the dataset, and a case for each technique
    return [
        Case(f"{digest.dataset}: {listed}" if i == 0 else "", t in true, t in leaning)
        for i, t in enumerate(names)
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
        "Optimising for fairness gains 82 to 98% of PE",
        1.0,
        partial(_gain_published, name="table4", column=0, least=82.0),
        partial(_gain_validated, name="table4", metric="test_pe", least=82.0),
    ),
    Claim(
        "Optimising for calibration gains 12 to 26% of ECE",
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
        4 / 7,
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
        4 / 7,
        partial(_focal_published, technique="fl"),
        partial(_focal_validated, technique="fl"),
    ),
    Claim(
        "FLSD has a worse trade-off than cross-entropy on most datasets",
        4 / 7,
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
        "Hybrids have a better trade-off in most cases (techniques named where they do)",
        4 / 7,
        _hybrid_published,
        _hybrid_validated,
    ),
)
