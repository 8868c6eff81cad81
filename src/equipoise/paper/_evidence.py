"""Evidence for the paper's claims: the cases of each dataset, under both readings.

Functions ending in `_published` choose on the test set, as the paper does; those ending in
`_validated` on validation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.paper._digest import Digest
from equipoise.paper._published import paper_name
from equipoise.paper._study._inference import holm
from equipoise.paper._tables._numbers import (
    mean_ratio,
    means,
    relative,
    split_interval,
    split_p,
    values_of,
)
from equipoise.paper._tables._optimised import (
    EXPERIMENTS,
    best_published,
    best_validated,
    compare,
    control_change,
    published_change,
)
from equipoise.paper._tables._scaling import scaled, scaling_change
from equipoise.paper._tables._volumes import published_volume, validated_volumes

Floats = NDArray[np.float64]

PAIRWISE = ("mmce", "mmce-w", "mmce-w*")


@dataclasses.dataclass(frozen=True)
class Case:
    """One dataset (or dataset and technique): its number, and whether a claim is true there.

    Attributes
    ----------
    label
        The number as text.
    true
        None where that is open.
    leaning
        Whether the number itself is as claimed.
    p
        Two-sided p-value of no difference, where the number is a difference over splits. Such a
        case is open until the p-values of all cases of the claim are corrected.
    value, control
        A gain in percent, and that of cross-entropy re-run as often, for claims that are judged
        by the mean over datasets.
    """

    label: str
    true: bool | None
    leaning: bool
    p: float | None = None
    value: float | None = None
    control: float | None = None


NOTHING = Case("nothing within the slack", False, False)


def difference(values: Floats, unit: str = "%") -> Case:
    """Return the case that the mean of paired differences over splits is above 0."""
    if not len(values):
        return NOTHING
    found, mean = split_interval(values), float(values.mean())
    label = f"{mean:+.2f}{unit}"
    if not values.any():
        return Case(label, False, False, value=mean)
    if found is not None:
        label += f" [{found[0]:+.2f}, {found[1]:+.2f}]"
    # one split shows a sign, no more: it has no p-value
    return Case(label, None, mean > 0, split_p(values), value=mean)


def corrected(cases: Sequence[Case], level: float = 0.05) -> list[Case]:
    """Return the cases, each true or false where its Holm-adjusted p-value is at most `level`.

    Examples
    --------
    >>> cases = [Case("a", None, True, 0.01), Case("b", None, False, 0.04), Case("c", True, True)]
    >>> [case.true for case in corrected(cases)]
    [True, False, True]
    >>> [case.true for case in corrected([*cases, Case("d", None, False, 0.5)])]
    [True, None, True, None]
    """
    tested = [i for i, case in enumerate(cases) if case.p is not None]
    adjusted = holm([p for case in cases if (p := case.p) is not None])
    found = list(cases)
    for i, p in zip(tested, adjusted, strict=True):
        if p <= level:
            found[i] = dataclasses.replace(cases[i], true=cases[i].leaning)
    return found


def _named(name: str, case: Case) -> Case:
    return dataclasses.replace(case, label=f"{name} {case.label}")


def _plain(label: str, true: bool) -> Case:
    """Return a case without an interval: it is true or false."""
    return Case(label, true, true)


def scaling_published(digest: Digest, metric: str, how: str) -> list[Case]:
    """Return whether temperatures improve the best value over the epochs."""
    (mean,) = means(scaling_change(digest, metric, how)[:, None])
    return [_plain(f"{mean:+.2f}%", mean > 0)]


def scaling_validated(digest: Digest, objective: str, metric: str) -> list[Case]:
    """Return whether exact temperatures improve the value at the epoch chosen."""
    return [difference(relative(*scaled(digest, objective, metric)))]


def gain_published(digest: Digest, name: str, column: int) -> list[Case]:
    """Return what the best technique of one of Tables 4 to 8 gains, and what its control does."""
    technique = best_published(digest, name)
    gain = means(published_change(digest, name, technique))[column]
    control = means(control_change(digest, name, technique))[column]
    label = f"{paper_name(technique)} {gain:+.1f}%, control {control:+.1f}%"
    return [Case(label, gain > 0, gain > 0, value=gain, control=control)]


def gain_validated(digest: Digest, name: str, metric: str) -> list[Case]:
    """Return what the technique chosen on validation gains, against as many runs."""
    found = best_validated(digest, name)
    if found is None:
        return [NOTHING]
    return [_named(paper_name(found.technique), difference(relative(*found.values(metric))))]


def hurt_published(digest: Digest) -> list[Case]:
    """Return whether the technique that is best at ECE has a higher PE than cross-entropy's least.

    So does cross-entropy itself, re-run as often and chosen for its ECE.
    """
    technique = best_published(digest, "table5")
    own, control = (
        mean_ratio(change(digest, "table5", technique)[:, 0])
        for change in (published_change, control_change)
    )
    label = f"{paper_name(technique)} {own:.2f} times, control {control:.2f}"
    return [_plain(label, own > 1.0)]


def hurt_validated(digest: Digest) -> list[Case]:
    """Return the same, chosen on validation: for ECE against cross-entropy chosen for PE."""
    found = best_validated(digest, "table5")
    if found is None:
        return [NOTHING]
    runs = digest.budget(found.technique)
    control = values_of(digest.best("ce", "validated", "pe", controls=runs), "test_pe")
    # the change is turned round, so that a higher PE is above 0
    case = difference(-relative(control, found.values("test_pe")[1]))
    return [_named(paper_name(found.technique), case)]


def beaten_published(digest: Digest) -> list[Case]:
    """Return whether the best trade-off of a technique is better than cross-entropy's."""
    own, volume = _best_volume_published(digest)
    ce = published_volume(digest, "ce")
    label = f"{paper_name(own)} {_volume(volume)}, cross-entropy {_volume(ce)}"
    return [_plain(label, (volume or 0.0) > (ce or 0.0))]


def _volume(value: float | None) -> str:
    return "nothing within the slack" if value is None else f"{value:.3f}"


def beaten_validated(digest: Digest) -> list[Case]:
    """Return the same of the technique chosen on validation, against as many runs."""
    val = {t: validated_volumes(digest, t, part="val").mean() for t in digest.techniques}
    own = max(val, key=lambda t: val[t])
    return [_against_control(digest, own)]


def _against_control(digest: Digest, technique: str, sign: float = 1.0) -> Case:
    control = validated_volumes(digest, "ce", controls=digest.budget(technique))
    gap = sign * (validated_volumes(digest, technique) - control)
    pair = (paper_name(technique), "cross-entropy")
    first, second = pair if sign > 0 else reversed(pair)
    return _named(f"{first} minus {second}", difference(gap, ""))


def _best_volume_published(digest: Digest) -> tuple[str, float | None]:
    volumes = {t: published_volume(digest, t) for t in digest.replicas}
    best = max(volumes, key=lambda t: volumes[t] or 0.0)
    return best, volumes[best]


def tradeoff_published(digest: Digest) -> list[Case]:
    """Return whether the technique with the best trade-off is MMCE or MMCE-W."""
    best, _ = _best_volume_published(digest)
    return [_plain(paper_name(best), best in PAIRWISE)]


def tradeoff_validated(digest: Digest) -> list[Case]:
    """Return whether the best of them has a better trade-off than the best of the others."""
    volumes = {t: validated_volumes(digest, t) for t in digest.techniques}
    own = _largest({t: v for t, v in volumes.items() if t in PAIRWISE})
    volumes["ce"] = validated_volumes(digest, "ce", controls=digest.budget(own))
    other = _largest({t: v for t, v in volumes.items() if t not in PAIRWISE})
    case = difference(volumes[own] - volumes[other], "")
    return [_named(f"{paper_name(own)} minus {paper_name(other)}", case)]


def _largest(values: Mapping[str, Floats]) -> str:
    """Return the technique with the largest mean over splits."""
    return max(values, key=lambda t: values[t].mean())


def leader_published(digest: Digest, name: str, group: Collection[str]) -> list[Case]:
    """Return whether the best technique of one of Tables 4 to 8 is one of a group."""
    best = best_published(digest, name)
    return [_plain(paper_name(best), best in group)]


def leader_validated(digest: Digest, name: str, group: Collection[str]) -> list[Case]:
    """Return whether the best of a group has a lower value than the best of the others."""
    read = _read_on_test(digest, name)
    own = _least({t: v for t, v in read.items() if t in group})
    if own is None:
        return [NOTHING]
    control = compare(digest, name, own).values(_metric(name))[0]
    read |= {} if np.isnan(control).any() else {"ce": control}
    other = _least({t: v for t, v in read.items() if t not in group})
    if other is None:
        return [_plain(f"{paper_name(own)} alone is within the slack", True)]
    case = difference(relative(read[other], read[own]))
    return [_named(f"{paper_name(own)} against {paper_name(other)}", case)]


def _metric(name: str) -> str:
    return {"pe": "test_pe", "ece": "test_ece15"}[EXPERIMENTS[name].objective]


def _read_on_test(digest: Digest, name: str) -> dict[str, Floats]:
    """Return what each technique's choice scores on the test set of every split.

    Not the validation value, which is the lower the more runs it is chosen from. Techniques with
    nothing within the slack on a split are left out.
    """
    found = {t: compare(digest, name, t).values(_metric(name))[1] for t in digest.techniques}
    return {t: values for t, values in found.items() if not np.isnan(values).any()}


def _least(values: Mapping[str, Floats]) -> str | None:
    """Return the technique with the least mean over splits."""
    return min(values, key=lambda t: values[t].mean(), default=None)


def focal_published(digest: Digest, technique: str) -> list[Case]:
    """Return whether a technique has a worse trade-off than cross-entropy."""
    own, ce = (published_volume(digest, t) for t in (technique, "ce"))
    label = f"{paper_name(technique)} {_volume(own)}, cross-entropy {_volume(ce)}"
    return [_plain(label, (own or 0.0) < (ce or 0.0))]


def focal_validated(digest: Digest, technique: str) -> list[Case]:
    """Return the same, against as many runs."""
    # the difference is turned round, so that worse is above 0
    return [_against_control(digest, technique, -1.0)]


def _same(plain: str, hybrid: str) -> Case:
    kept = plain == hybrid
    change = "" if kept else f" becomes {paper_name(hybrid)}"
    return _plain(f"{paper_name(plain)}{change}", kept)


def ranking_published(digest: Digest, plain: str, hybrid: str) -> list[Case]:
    """Return whether the best technique is the same with and without temperatures."""
    return [_same(best_published(digest, plain), best_published(digest, hybrid))]


def ranking_validated(digest: Digest, plain: str, hybrid: str) -> list[Case]:
    """Return the same; a change is false where the former best is shown to be worse."""
    alone, both = (_read_on_test(digest, name) for name in (plain, hybrid))
    first, second = _least(alone), _least(both)
    if first is None or second is None:
        return [NOTHING]
    case = _same(first, second)
    if case.true or first not in both:
        return [case]
    worse = difference(relative(both[first], both[second]))
    return [Case(f"{case.label} {worse.label}", None, False, worse.p if worse.leaning else 1.0)]


def hybrid_published(digest: Digest) -> list[Case]:
    """Return whether temperatures improve the trade-off, a case per technique."""
    cases = {}
    for t in digest.replicas:
        plain, hybrid = (published_volume(digest, t, c) or 0.0 for c in ("none", "group"))
        cases[t] = _plain(t, hybrid > plain)
    return _each_technique(cases)


def hybrid_validated(digest: Digest) -> list[Case]:
    """Return the same, by the paired difference."""
    cases = {}
    for t in digest.techniques:
        plain, hybrid = (validated_volumes(digest, t, c) for c in ("none", "group"))
        cases[t] = difference(hybrid - plain, "")
    return _each_technique(cases)


def _each_technique(cases: dict[str, Case]) -> list[Case]:
    """Give the first case a label for all: the techniques whose number leans that way."""
    listed = " ".join(paper_name(t) for t, case in cases.items() if case.leaning) or "none"
    labels = [listed, *[""] * (len(cases) - 1)]
    return [
        dataclasses.replace(case, label=label)
        for case, label in zip(cases.values(), labels, strict=True)
    ]
