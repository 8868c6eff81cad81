"""Statistical verdicts on proportional equality: whether the model changes a ratio of rates."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import shown
from equipoise.auditing._distributions import ndtr
from equipoise.auditing._intervals import Intervals
from equipoise.auditing._intervals._figures import Interval
from equipoise.auditing._verdicts._words import p_text
from equipoise.metrics import AuditTable, Rates, data_rates, pairs_of, rate_ratios, ratio

Floats = NDArray[np.float64]

KINDS = ("stochastic", "deterministic")


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
    p_value
        Of the test that data and model have the same ratio, corrected for the number of pairs and
        classes. It is that of the largest significant gap, or of the largest if none is.
    word
        For the same gap. "amplifies": the model's ratio is farther from 1 than the data's;
        "dampens": nearer to 1; "reverses": on the other side of 1.
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
    p_value: float
    word: Literal["amplifies", "dampens", "reverses", "no evidence", "undefined"]
    text: str


def pe_verdicts_of(
    table: AuditTable,
    *,
    base_rates: Rates | None = None,
    reference_group: Any = None,
    intervals: Intervals | None = None,
    level: float = 0.95,
) -> dict[str, PeVerdict]:
    """Return the verdict on each kind of proportional equality."""
    pairs = pairs_of(table.groups, reference_group)
    ends = {} if intervals is None else intervals.proportional_equality
    if not pairs:
        text = "Proportional equality compares groups, and there is only one."
        nan, none = float("nan"), None
        nothing = PeVerdict(nan, None, nan, none, none, none, nan, nan, nan, "undefined", text)
        return dict.fromkeys(KINDS, nothing)
    data, fixed = data_rates(table, base_rates), base_rates is not None
    oracle = 0.0 if not fixed else _label_score(table, data, pairs)
    return {
        kind: _pe_verdict(
            table, data, pairs, kind, ends.get(kind), oracle, fixed=fixed, level=level
        )
        for kind in KINDS
    }


def _label_score(table: AuditTable, data: Floats, pairs: list[tuple[int, int]]) -> float:
    """Return the proportional equality of decisions that are always right."""
    right = dataclasses.replace(table, sums={**table.sums, "predictions": table.sums["labels"]})
    gap = _gaps(*rate_ratios(right, data, pairs, "deterministic", "group-ratio"))
    return float(np.fmax.reduce(gap, axis=None))


def _gaps(first: Floats, second: Floats) -> Floats:
    # inf - inf and 0/0 are nan: such a class is left out, as in the metric
    with np.errstate(invalid="ignore"):
        return np.abs(first - second)


def _pe_verdict(
    table: AuditTable,
    data: Floats,
    pairs: list[tuple[int, int]],
    kind: str,
    interval: Interval | None,
    oracle: float,
    *,
    fixed: bool,
    level: float,
) -> PeVerdict:
    first, second = rate_ratios(table, data, pairs, kind, "group-ratio")
    gap = _gaps(first, second)
    at = int(np.argmax(np.where(np.isnan(gap), -1.0, gap)))
    (pair, k), value = divmod(at, len(table.labels)), float(gap.flat[at])
    names = table.groups[pairs[pair][0]], table.groups[pairs[pair][1]], table.labels[k]
    ratios = float(first[pair, k]), float(second[pair, k])
    driver = f"Largest for {_where(table, pairs[pair], k)}: "
    if not np.isfinite(value):
        text = (
            "No class has rates in two groups that can be compared."
            if np.isnan(value)
            else f"{driver}a ratio has a rate of 0 in it."
        )
        p = float("nan")
        return PeVerdict(value, interval, oracle, *names, *ratios, p, "undefined", text)
    p_values = _ratio_tests(table, data, first, second, pairs, kind, fixed=fixed)
    driver += f"ratio {ratios[0]:.3f} in the data, {ratios[1]:.3f} in the model; "
    clear = np.where(p_values < 1.0 - level, gap, -1.0)
    if clear.max() < 0:
        p = float(p_values[pair, k])
        text = f"{driver}no evidence that the model changes it ({p_text(p)})."
        return PeVerdict(value, interval, oracle, *names, *ratios, p, "no evidence", text)
    judged, c = divmod(int(np.argmax(clear)), len(table.labels))
    a, b, p = (float(v[judged, c]) for v in (first, second, p_values))
    word = _change(table, data, kind, pairs[judged], c, a, b, level)
    what = f"the model {word} the difference ({p_text(p)})."
    if (judged, c) == (pair, k):
        text = driver + what
    else:
        where = _where(table, pairs[judged], c)
        text = f"{driver}not significant. Significant for {where}: {a:.3f} and {b:.3f}; {what}"
    return PeVerdict(value, interval, oracle, *names, *ratios, p, word, text)


def _where(table: AuditTable, pair: tuple[int, int], k: int) -> str:
    group, reference = (shown(table.groups[i]) for i in pair)
    return f"label '{shown(table.labels[k])}' in group '{group}', compared with '{reference}'"


def _ratio_tests(
    table: AuditTable,
    data: Floats,
    first: Floats,
    second: Floats,
    pairs: list[tuple[int, int]],
    kind: str,
    *,
    fixed: bool,
) -> Floats:
    """Return the corrected p-value of each pair and class: data and model have the same ratio."""
    own, ref = (list(side) for side in zip(*pairs, strict=True))
    variance = _log_variance(table, data, kind, fixed=fixed)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (np.log(second) - np.log(first)) / np.sqrt(variance[own] + variance[ref])
    # a pair counts once, whichever of the two is the reference
    looks = len({frozenset(pair) for pair in pairs}) * len(table.labels)
    p = np.minimum(1.0, looks * 2.0 * ndtr(-np.abs(z)))
    return np.where(np.isnan(z), 1.0, p)


def _change(
    table: AuditTable,
    data: Floats,
    kind: str,
    pair: tuple[int, int],
    k: int,
    before: float,
    after: float,
    level: float,
) -> Literal["amplifies", "dampens", "reverses"]:
    """Return how the model changes a ratio."""
    with np.errstate(divide="ignore"):
        a, b = np.log(before), np.log(after)
    if a * b < 0:
        # a reversal needs a ratio significantly beyond 1
        error = np.sqrt(_log_variance(table, data, kind, fixed=True)[list(pair), k].sum())
        if 2.0 * ndtr(-ratio(np.abs(b), error)) < 1.0 - level:
            return "reverses"
    return "amplifies" if abs(b) > abs(a) else "dampens"


def _log_variance(table: AuditTable, data: Floats, kind: str, *, fixed: bool) -> Floats:
    """Return the variance of log(model's rate) for fixed rates, else of log(model's / data's).

    To first order the latter is the mean over rows of p / q - y / r, whose expectation is 0.
    """
    weight = table["weight"][:, None]
    n = ratio(weight**2, table["bin_count2"].sum(-1)[:, None])
    model = ratio(table["probability" if kind == "stochastic" else "predictions"], weight)
    if kind == "deterministic":
        square, both = model, ratio(table["hits"], weight)
    else:
        own = table["own_probability"]
        square = ratio(table["squared_error"] + 2.0 * own - table["labels"], weight)
        both = ratio(own, weight)
    spread = ratio(square, model**2) - 1.0
    if not fixed:
        spread = spread + 1.0 - 2.0 * ratio(both, model * data) + ratio(np.ones_like(data), data)
    return ratio(np.maximum(spread, 0.0), n)
