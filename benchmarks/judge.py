"""Holds a report against a world's truth, and its statements against each other.

Each check yields events: the column of the table of `statements.py`, what the event is about, and
whether it happened. A report is read by the functions of the first part only.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from truth import Truth
from worlds import Rows, World, draw

from equipoise import audit
from equipoise.auditing import Gate, intervals_from_table
from equipoise.metrics import group_base_rates

TOLERANCES = (0.0, 0.05)
KINDS = ("stochastic", "deterministic")
SINGLE = ("accuracy", "classwise_ece", "brier", "log_loss")
SLACK = 1e-9

Event = tuple[str, str, bool]
"""Column, what it is about, and whether it happened."""


# --- reading a report ------------------------------------------------------------------------


def run(world: World, rows: Rows, tolerance: float, rates: Any = None) -> Any:
    """Audit rows of a world."""
    names = np.array(list(world.sizes))
    given: dict[str, Any] = {}
    if world.weights is not None:
        given["sample_weight"] = rows.weight
    if world.clusters:
        given["clusters"] = rows.cluster
    if world.parts > 1:
        given["by"] = rows.part
    if rates is not None:
        given["base_rates"] = rates
    p = rows.p[:, 1] if rows.p.shape[1] == 2 else rows.p
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return audit(rows.y, p, sensitive_features=names[rows.group], tolerance=tolerance, **given)


def training_rates(world: World, rng: np.random.Generator) -> Any:
    """Return the base rates of training rows, at least two of each group; None without."""
    if not world.train:
        return None
    whole = sum(world.sizes.values())
    sizes = {g: max(round(world.train * n / whole), 2) for g, n in world.sizes.items()}
    rows = draw(world, rng, sizes)
    names = np.array(list(world.sizes))[rows.group]
    return group_base_rates(rows.y, sensitive_features=names, labels=[*range(rows.p.shape[1])])


def parts_of(report: Any) -> dict[Any, Any]:
    """Return the reports by part; None is that of all rows."""
    return {None: report} | {key[0]: part for key, part in report.by.items()}


def verdicts_of(report: Any) -> dict[Any, Any]:
    """Return the verdicts by group; None is that of all rows."""
    return {None: report.verdict} | dict(report.verdicts)


def reference_of(report: Any, kind: str) -> Any:
    """Return the group that the others are compared with."""
    (reference,) = set(report.verdicts) - set(report.amplification[kind])
    return reference


def amplifications_of(report: Any, kind: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield group, reference group, label and amplification."""
    reference = reference_of(report, kind)
    for group, labels in report.amplification[kind].items():
        for label, amplification in labels.items():
            yield group, reference, label, amplification


def fails(report: Any, gate: str, on_interval: Any) -> bool:
    """Return whether a gate fails on a report or one of its parts."""
    return not all(o.holds for o in Gate.parse(gate).check(report, on_interval))


def excludes_zero(found: Any) -> bool:
    """Return whether an interval lies on one side of 0."""
    return bool(found.low > 0 or found.high < 0)


def contains(low: float, high: float, value: float) -> bool:
    """Return whether an interval contains a value, but for rounding."""
    return bool(low - SLACK <= value <= high + SLACK)


def unadjusted(case: Case) -> Any:
    """Return the single intervals, each at its own level."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return intervals_from_table(case.report().table, base_rates=case.rates, level=0.95)


# --- against the truth -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """A sample of a world: its reports by tolerance (or why there is none), and the truth."""

    world: World
    truth: Truth
    reports: dict[float, Any]
    rates: Any

    def report(self, tolerance: float = 0.05) -> Any:
        """Return a report, or raise what the audit raised."""
        found = self.reports[tolerance]
        if isinstance(found, Exception):
            raise found
        return found

    def verdicts(self, tolerance: float) -> Iterator[tuple[Any, float, Any, Any]]:
        """Yield each verdict, the true error it is about, its part and its group."""
        for part, report in parts_of(self.report(tolerance)).items():
            for group, verdict in verdicts_of(report).items():
                yield verdict, self.truth.error(part, group), part, group


def false_verdicts(case: Case, tolerance: float) -> Iterator[Event]:
    """Look for verdicts that the truth refutes."""
    wrong = False
    for verdict, error, *_ in case.verdicts(tolerance):
        above = error > tolerance + SLACK
        wrong |= verdict.word == ("calibrated" if above else "miscalibrated")
    yield f"verdict {tolerance:g}", "", wrong


def directions(case: Case) -> Iterator[Event]:
    """Look for directions with the wrong sign on average."""
    signs = {"too high": 1, "over-confident": 1, "too low": -1, "under-confident": -1}
    for tolerance in TOLERANCES:
        wrong = False
        for verdict, error, part, group in case.verdicts(tolerance):
            true_alarm = verdict.word == "miscalibrated" and error > tolerance + SLACK
            if not true_alarm or verdict.direction not in signs:
                continue
            label = None if verdict.direction.endswith("confident") else verdict.label
            mean = case.truth.too_high(part, group, label)
            wrong |= abs(mean) > SLACK and mean * signs[verdict.direction] < 0
        yield "direction", f"tolerance {tolerance:g}", wrong


def coverage(case: Case) -> Iterator[Event]:
    """Ask whether all verdicts' intervals contain the true errors."""
    found = [contains(*v.interval, error) for v, error, *_ in case.verdicts(0.05)]
    yield "covered", "", all(found)


def comparisons(case: Case) -> Iterator[Event]:
    """Look for comparisons whose interval excludes the true difference."""
    wrong = False
    for part, report in parts_of(case.report()).items():
        for c in report.comparisons:
            of = case.truth.ece if c.measure == "ece" else case.truth.too_high
            own, other = (of(part, g, c.label) for g in (c.group, c.other))
            wrong |= not contains(c.low, c.high, own - other)
    yield "comparison", "", wrong


def proportional_equality(case: Case) -> Iterator[Event]:
    """Yield false verdicts and words, and whether the amplifications are covered."""
    for kind in KINDS:
        false = wrong = defined = amplified = False
        covers = True
        for part, report in parts_of(case.report()).items():
            true_words: set[str] = set()
            for group, reference, label, found in amplifications_of(report, kind):
                place = (kind, part, group, reference, label)
                true_words |= case.truth.words(*place)
                true = case.truth.amplification(*place)
                if math.isfinite(true):
                    defined = True
                    covers &= contains(found.low, found.high, true)
            said = report.pe_verdicts[kind].word not in ("no evidence", "undefined")
            false |= said and not true_words
            wrong |= said and bool(true_words) and report.pe_verdicts[kind].word not in true_words
            amplified |= bool(true_words)
        yield "pe false", kind, false
        if amplified:
            yield "pe word", kind, wrong
        if defined:
            yield "pe covered", kind, covers


def intervals(case: Case) -> Iterator[Event]:
    """Ask whether the report's intervals contain the true values of all groups and parts."""
    covers = dict.fromkeys(("ece", *SINGLE, *(f"PE {kind}" for kind in KINDS)), True)
    for part, report in parts_of(case.report()).items():
        for group, ends in report.intervals.groups.items():
            for metric in ("ece", *SINGLE):
                true = case.truth.values[part, group][metric]
                covers[metric] &= not math.isfinite(true) or contains(*ends[metric], true)
        for kind, ends in report.intervals.proportional_equality.items():
            true = case.truth.proportional_equality(kind, part, reference_of(report, kind))
            covers[f"PE {kind}"] &= math.isnan(true) or contains(*ends, true)
    for about, found in covers.items():
        yield "intervals", about, found


def single_intervals(case: Case) -> Iterator[Event]:
    """Ask whether unadjusted intervals contain the true values of each group."""
    found = unadjusted(case)
    for group, n in case.world.sizes.items():
        for metric in SINGLE:
            true = case.truth.values[None, group][metric]
            if math.isfinite(true):
                about = group if away_from_0(case.truth, group, n, metric) else f"{group} (near 0)"
                yield metric, about, contains(*found.groups[group][metric], true)


def single_gaps(case: Case) -> Iterator[Event]:
    """Ask whether unadjusted intervals contain the true gaps between groups, and the true PE."""
    found = unadjusted(case)
    for metric in SINGLE:
        true = [case.truth.values[None, group][metric] for group in case.world.sizes]
        if np.isfinite(true).all():
            yield "gaps", metric, contains(*found.gaps[metric], max(true) - min(true))
    for kind in KINDS:
        reference = reference_of(case.report(), kind)
        pe = case.truth.proportional_equality(kind, None, reference)
        if not math.isnan(pe):
            yield "gaps", f"PE {kind}", contains(*found.proportional_equality[kind], pe)


def away_from_0(truth: Truth, group: str, n: int, metric: str) -> bool:
    """Return whether an interval could miss on both sides, so that it may not cover always."""
    value = truth.values[None, group][metric]
    if metric == "accuracy":
        return n * min(value, 1 - value) >= 30
    if metric == "classwise_ece":
        return value > max(0.02, 4 * math.sqrt(truth.noise[group] / n))
    return value > 0 and n * truth.rarest[group] >= 30


def gates(case: Case) -> Iterator[Event]:
    """Look for gates that fail on what is right, or under strict pass what is wrong."""
    places = [(part, g) for part, g in case.truth.gaps if g is not None]
    for tolerance in TOLERANCES:
        if max(case.truth.error(*place) for place in places) <= tolerance + SLACK:
            report = case.report(tolerance)
            for how in (None, "lenient"):
                about = f"miscalibrated, tolerance {tolerance:g}, {how or 'default'}"
                yield "gate", about, fails(report, "miscalibrated", how)
    report = case.report()
    classes = len(next(iter(case.truth.gaps.values()))) - 1
    for metric in ("ece", "classwise_ece"):
        labels = [None] if metric == "ece" else [*range(classes)]
        true = max(np.mean([case.truth.ece(*at, k) for k in labels]) for at in places)
        how = "lenient" if true <= 0.05 + SLACK else "strict"
        found = fails(report, f"{metric}[*] > 0.05", how)
        yield "gate", f"{metric} > 0.05, {how}", found == (how == "lenient")
    for kind, name in zip(KINDS, ("amplifies", "amplifies_deterministic"), strict=True):
        amplified = False
        for part, each in parts_of(report).items():
            if each.pe_verdicts[kind].word == "undefined":
                amplified = True  # such a gate may fail
            for group, reference, label, _ in amplifications_of(each, kind):
                true = case.truth.amplification(kind, part, group, reference, label)
                amplified |= true != 0  # or nan
        if not amplified:
            for how in (None, "lenient"):
                yield "gate", f"{name}, {how or 'default'}", fails(report, name, how)


def power(case: Case) -> Iterator[Event]:
    """Ask whether the affected group of a power world is found."""
    wanted = case.world.power
    if wanted is None:
        return
    report = case.report(wanted.tolerance)
    yield "power", "", report.verdicts[wanted.group].word == "miscalibrated"
    yield "compared", "", any(_worse(c, wanted.group) for c in report.comparisons)


def _worse(comparison: Any, group: Any) -> bool:
    if comparison.group == group:
        return bool(comparison.low > 0)
    return comparison.other == group and bool(comparison.high < 0)


# --- against each other ----------------------------------------------------------------------


def verdict_contradictions(case: Case) -> Iterator[Event]:
    """Hold verdicts against their own intervals."""
    for tolerance in TOLERANCES:
        for verdict, *_ in case.verdicts(tolerance):
            low, high = verdict.interval
            word = "not enough evidence"
            if high <= tolerance:
                word = "calibrated"
            elif low > tolerance:
                word = "miscalibrated"
            yield "contradiction", "verdict and its interval", verdict.word != word
            if not math.isnan(verdict.error):
                outside = not contains(low, high, verdict.error)
                yield "contradiction", "error and its interval", outside


def figure_contradictions(case: Case) -> Iterator[Event]:
    """Hold figures against the intervals printed beside them."""
    for report in parts_of(case.report()).values():
        pairs = [(report.overall, report.intervals.overall)]
        pairs += [(report.groups[g], report.intervals.groups[g]) for g in report.groups]
        for figures, intervals in pairs:
            for name in ("ece", *SINGLE):
                if not math.isnan(figures[name]):
                    outside = not contains(*intervals[name], figures[name])
                    yield "contradiction", f"{name} and its interval", outside


def comparison_contradictions(case: Case) -> Iterator[Event]:
    """Hold comparisons against their own intervals and the verdicts of both groups."""
    for tolerance in TOLERANCES:
        for report in parts_of(case.report(tolerance)).values():
            pairs = collections.defaultdict(list)
            for c in report.comparisons:
                outside = not contains(c.low, c.high, c.difference)
                yield "contradiction", "difference and its interval", outside
                pairs[frozenset((c.group, c.other))].append(c)
            for pair, found in pairs.items():
                for worse in pair:
                    (other,) = pair - {worse}
                    words = report.verdicts[worse].word, report.verdicts[other].word
                    if words == ("miscalibrated", "calibrated"):
                        unsaid = not any(_worse(c, worse) for c in found)
                        yield "contradiction", "comparison and verdicts", unsaid


def gate_contradictions(case: Case) -> Iterator[Event]:
    """Hold gates against verdicts and intervals."""
    for tolerance in TOLERANCES:
        report = case.report(tolerance)
        parts = parts_of(report).values()
        words = {v.word for part in parts for v in verdicts_of(part).values()}
        for how in (None, "lenient", "strict"):
            wrong = "miscalibrated" in words or (how == "strict" and words != {"calibrated"})
            differs = fails(report, "miscalibrated", how) != wrong
            yield "contradiction", f"gate miscalibrated ({how or 'default'}) and verdicts", differs
        for metric in ("ece", "classwise_ece"):
            ends = [part.intervals.groups[g][metric] for part in parts for g in part.groups]
            for how in ("lenient", "strict"):
                beyond = any((e.low if how == "lenient" else e.high) > 0.05 for e in ends)
                differs = fails(report, f"{metric}[*] > 0.05", how) != beyond
                yield "contradiction", f"gate {metric} ({how}) and intervals", differs


def pe_contradictions(case: Case) -> Iterator[Event]:
    """Hold words about PE against amplifications, the interval of PE and the gates."""
    report = case.report()
    for kind, gate in zip(KINDS, ("amplifies", "amplifies_deterministic"), strict=True):
        words = set()
        for part in parts_of(report).values():
            word = part.pe_verdicts[kind].word
            words.add(word)
            said = word not in ("no evidence", "undefined")
            each = [found for *_, found in amplifications_of(part, kind)]
            shown = any(excludes_zero(a) for a in each)
            yield "contradiction", "PE verdict and amplifications", said != shown
            for a in each:
                outside = not math.isnan(a.value) and not a.low <= a.value <= a.high
                yield "contradiction", "amplification and its interval", outside
            end = part.intervals.proportional_equality[kind]
            yield "contradiction", "PE verdict and interval of PE", said != (end.low > 0)
            value = part.proportional_equality[kind]
            if not math.isnan(value):
                outside = not (end.low - SLACK <= value <= end.high + SLACK)
                yield "contradiction", "PE and its interval", outside
        bad = bool(words & {"amplifies", "reverses"})
        for how in (None, "lenient", "strict"):
            failing = fails(report, gate, how)
            # one that is undefined may fail by default, and must under strict; whether one that
            # changes in an open direction fails is decided by the figures by default
            unclear = {"undefined"} if how else {"undefined", "changes"}
            open_case = bool(unclear & words) if how != "strict" else not bad
            differs = not open_case and failing != bad
            differs |= how == "strict" and "undefined" in words and not failing
            yield "contradiction", f"gate {gate} ({how or 'default'}) and PE verdict", differs


CHECKS: list[tuple[tuple[str, ...], Callable[[Case], Iterator[Event]]]] = [
    (("verdict 0",), lambda case: false_verdicts(case, 0.0)),
    (("verdict 0.05",), lambda case: false_verdicts(case, 0.05)),
    (("direction",), directions),
    (("covered",), coverage),
    (("comparison",), comparisons),
    (("pe false", "pe word", "pe covered"), proportional_equality),
    (("intervals",), intervals),
    (SINGLE, single_intervals),
    (("gaps",), single_gaps),
    (("gate",), gates),
    (("power", "compared"), power),
    (("contradiction",), verdict_contradictions),
    (("contradiction",), figure_contradictions),
    (("contradiction",), comparison_contradictions),
    (("contradiction",), gate_contradictions),
    (("contradiction",), pe_contradictions),
]
"""Each check, and the columns that are missing if it cannot be made."""
