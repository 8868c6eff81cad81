"""Signed log amplification: by how much a model changes the ratio of two groups' rates.

With the model's rates q and those of the labels r it is log(q_g / q_ref) - log(r_g / r_ref): 0 if
the model keeps the ratio, log 2 if it doubles it. Intervals are built from those of each rate. For
counts these are exact: a label that is rare or absent has no variance of 0. They are combined as if
their arms were standard errors (MOVER), with the correlation of a group's decisions and labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._intervals._figures import (
    RATES,
    Ends,
    exact,
    prob_variance,
    scatter_of,
    wilson,
)
from equipoise.auditing._intervals._spread import Floats, Spread
from equipoise.metrics import ratio

Change = Literal["amplifies", "dampens", "reverses", "changes", ""]


@dataclasses.dataclass(frozen=True)
class Amplification:
    """Signed log amplification of one label in one group.

    Attributes
    ----------
    group, reference, label
        The groups compared, and the label.
    value
        log(q / q of the reference) - log(r / r of the reference): above 0 if the model raises the
        group's rate relative to the reference. Infinite or nan where a rate is 0.
    low, high
        Interval, simultaneous over groups, labels, both kinds and parts.
    data_ratio, model_ratio
        Rate of the label in `group` divided by that in `reference`.
    word
        What the model is shown to do to the ratio: "reverses" if the data's is on one side of 1 and
        the model's on the other; else "amplifies" if the model's is farther from 1 and "dampens" if
        it is nearer; "changes" if it is another, but which of these is open; "" if no change is
        shown.
    farther
        How much farther from 1 the model's ratio may be than the data's, or how far beyond 1 on the
        other side, as a logarithm: the most that the intervals allow.
    """

    group: Hashable
    reference: Hashable
    label: Hashable
    value: float
    low: float
    high: float
    data_ratio: float
    model_ratio: float
    word: Change
    farther: float

    @property
    def grows(self) -> bool:
        """Whether the figures amplify or reverse the ratio, shown or not."""
        with np.errstate(divide="ignore"):
            before, after = np.log(self.data_ratio), np.log(self.model_ratio)
        return bool(abs(after) > abs(before) or before * after < 0)


@dataclasses.dataclass(frozen=True)
class LogRates:
    """Logarithms of rates (group, class): finite estimates, and the ends of their intervals."""

    value: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, mean: Floats, rows: Floats, ends: Ends) -> LogRates:
        with np.errstate(divide="ignore"):
            low, high = (np.log(end) for end in ends)
        # a rate of 0 or 1 stands for one that is half a row away
        near = np.clip(mean, 0.5 / (rows + 1.0), 1.0 - 0.5 / (rows + 1.0))
        return cls(np.clip(np.log(near), low, high), low, high)

    def minus(self, other: LogRates, correlation: Floats | float = 0.0) -> LogRates:
        """Return the difference of two logarithms and its interval."""
        with np.errstate(invalid="ignore"):  # a given rate that is exactly 0 has no logarithm
            value = self.value - other.value
            down = _arm(self.value - self.low, other.high - other.value, correlation)
            up = _arm(self.high - self.value, other.value - other.low, correlation)
            low, high = value - down, value + up
        unknown = np.isnan(low) | np.isnan(high)
        return LogRates(value, np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high))

    def plus(self, other: LogRates, correlation: Floats | float = 0.0) -> LogRates:
        """Return the sum of two logarithms and its interval."""
        negative = LogRates(-other.value, -other.high, -other.low)
        return self.minus(negative, -np.asarray(correlation))

    def ratios(self, pairs: list[tuple[int, int]]) -> LogRates:
        """Return the ratios of pairs of groups (pair, class)."""
        own, ref = (
            LogRates(self.value[side], self.low[side], self.high[side])
            for side in map(list, zip(*pairs, strict=True))
        )
        return own.minus(ref)

    @property
    def sign(self) -> Floats:
        """The sign that the interval shows, 0 if it shows none."""
        return np.where(self.low > 0, 1.0, np.where(self.high < 0, -1.0, 0.0))


def _arm(a: Floats, b: Floats, correlation: Floats | float) -> Floats:
    endless = np.isinf(a) | np.isinf(b)
    a, b = np.where(endless, 0.0, a), np.where(endless, 0.0, b)
    size = np.sqrt(np.maximum(a**2 + b**2 - 2.0 * correlation * a * b, 0.0))
    return np.where(endless, np.inf, size)


def label_rates(
    spread: Spread, data: Floats | None, counts: Floats | None, tail: float
) -> LogRates:
    """Return the rates of the labels: of the training labels if they are given, with their rows."""
    if data is None:
        mean, rows = spread.moments.mean["label"], 1.0 / scatter_of(spread, "label")
    else:
        assert counts is not None
        mean, rows = data, np.broadcast_to(counts[:, None], data.shape)
    # rates without a number of rows are exact
    known = np.isfinite(rows)
    low, high = exact(mean, np.where(known, rows, 1.0), tail)
    ends = np.where(known, low, mean), np.where(known, high, mean)
    return LogRates.of(mean, np.where(known, rows, 1e12), ends)


def model_rates(spread: Spread, kind: str, tail: float) -> LogRates:
    """Return the rates of the model's probabilities or decisions."""
    moments = spread.moments
    mean = moments.mean[RATES[kind]]
    if kind == "deterministic":
        rows = 1.0 / scatter_of(spread, "pred")
        return LogRates.of(mean, rows, exact(mean, rows, tail))
    ends = wilson(mean, scatter_of(spread, "prob"), moments.student(tail)[:, None])
    return LogRates.of(mean, np.full_like(mean, 1e12), ends)  # probabilities are no counts


def correlation(spread: Spread, kind: str) -> Floats:
    """Return the correlation of a group's model rate and label rate, never quite 1."""
    moments = spread.moments
    rows, name = moments.rows[:, None], RATES[kind]
    q, r = moments.mean[name], moments.mean["label"]
    # half a row more of each of the four: decided and labelled, only one of both, none
    near = [(m * rows + 1.0) / (rows + 2.0) for m in (q, r)]
    var_q, var_r = (ratio(m * (1.0 - m), rows) for m in near)
    if kind == "stochastic":
        var_q = prob_variance(spread)
    with np.errstate(invalid="ignore", divide="ignore"):
        var_r = np.maximum(var_r, moments.variance("label"))
        if kind == "deterministic":
            var_q = np.maximum(var_q, moments.variance(name))
        found = moments.covariance(name) / np.sqrt(var_q * var_r)
    return np.clip(np.nan_to_num(found), -1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Changes:
    """Logarithms of ratios between groups (pair, class): of the labels, and how they change."""

    data: LogRates
    change: LogRates
    words: NDArray[np.str_]
    farther: Floats

    @classmethod
    def of(
        cls,
        spread: Spread,
        kind: str,
        data: Floats | None,
        counts: Floats | None,
        pairs: list[tuple[int, int]],
        tail: float,
    ) -> Changes:
        """Return the changes of a kind of rates; each end is wrong with at most chance `tail`."""
        labels, model = label_rates(spread, data, counts, tail), model_rates(spread, kind, tail)
        together = correlation(spread, kind) if data is None else 0.0
        before, after = labels.ratios(pairs), model.ratios(pairs)
        change = model.minus(labels, together).ratios(pairs)
        # |after| > |before| if their difference and their sum have the same sign
        grows = change.sign * model.plus(labels, together).ratios(pairs).sign
        words = np.select(
            [change.sign == 0, before.sign * after.sign < 0, grows > 0, grows < 0],
            ["", "reverses", "amplifies", "dampens"],
            "changes",
        )
        return cls(before, change, words, _farther(before, change))


def _farther(before: LogRates, change: LogRates) -> Floats:
    """Return the largest growth of |before| by the change, or reversal of its sign."""
    zero = np.clip(0.0, before.low, before.high)  # the growth is largest at an end, or next to 0
    found = []
    with np.errstate(invalid="ignore"):
        for b in (before.low, zero, before.high):
            for x in (change.low, change.high):
                after = b + x
                found += [np.abs(after) - np.abs(b), np.where(b >= 0, -after, -np.inf)]
                found.append(np.where(b <= 0, after, -np.inf))
    return np.asarray(np.nan_to_num(np.max(found, axis=0), nan=np.inf, posinf=np.inf))
