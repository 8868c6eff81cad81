"""Calibration and fairness metrics, each a function of the audit table's sums.

`METRICS` maps a name to a function of an `AuditTable` that returns one value per group; the pooled
table gives the value of all rows. The functions below it take labels and probabilities, as
scikit-learn's do, fill the part of the table that they need, and apply the same definition.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.inputs import (
    check_bins,
    check_weights,
    class_count,
    column,
    encode,
    encode_groups,
    encode_labels,
    matrix,
    probability_slice,
    recode,
    refuse_missing,
    same_length,
)
from equipoise.table import ROWS, AuditTable, argmax

Floats = NDArray[np.float64]


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """Divide, 0 / 0 being nan without a warning: an empty group has no value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)


# --- of the table, one value per group -------------------------------------------------------


def _accuracy(table: AuditTable) -> Floats:
    return _ratio(table["hits"].sum(-1), table["weight"])


def _ece(table: AuditTable) -> Floats:
    # (n_b / n) * |correct / n_b - confidence / n_b|: the bin's count cancels
    gap = np.abs(table["bin_correct"] - table["bin_confidence"])
    return _ratio(gap.sum(-1), table["weight"])


def _debiased_squared_ece(table: AuditTable) -> Floats:
    count = table["bin_count"]
    pairs = count**2 - table["bin_count2"]
    cross = (table["bin_correct"] - table["bin_confidence"]) ** 2 - table["bin_gap2"]
    # a bin of one row has no pairs of rows, so it says nothing about its squared gap; its two
    # sums may still differ by rounding
    several = pairs > 1e-12 * count**2
    share = _ratio(count, table["weight"][..., None])
    square = np.where(several, cross / np.where(several, pairs, 1.0), 0.0)
    return np.asarray((share * square).sum(-1))


def _mce(table: AuditTable) -> Floats:
    gap = _ratio(np.abs(table["bin_correct"] - table["bin_confidence"]), table["bin_count"])
    empty = np.isnan(gap).all(-1)
    return np.where(empty, np.nan, np.nan_to_num(gap, nan=0.0).max(-1))


def _classwise_ece(table: AuditTable) -> Floats:
    gap = np.abs(table["class_correct"] - table["class_probability"])
    return _ratio(gap.sum((-2, -1)), len(table.labels) * table["weight"])


def _brier(table: AuditTable) -> Floats:
    total = _ratio(table["squared_error"].sum(-1), table["weight"])
    return total / 2 if len(table.labels) == 2 else total


def _log_loss(table: AuditTable) -> Floats:
    finite = _ratio(table["log_loss"], table["weight"])
    return np.where(table["impossible"] > 0, np.inf, finite)


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: its value per group of a table, the parts of the table it reads, its name."""

    of: Callable[[AuditTable], Floats]
    parts: tuple[str, ...]
    title: str


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(_accuracy, ("hits",), "accuracy"),
    "ece": Metric(_ece, ("bins",), "ECE"),
    "classwise_ece": Metric(_classwise_ece, ("classwise",), "class ECE"),
    "debiased_squared_ece": Metric(_debiased_squared_ece, ("bins", "spread"), "ECE² d."),
    "mce": Metric(_mce, ("bins",), "MCE"),
    "brier": Metric(_brier, ("scores",), "Brier"),
    "log_loss": Metric(_log_loss, ("scores",), "log-loss"),
}


def overall(table: AuditTable, name: str) -> float:
    """Return a metric of all rows of a table."""
    return float(METRICS[name].of(table.pooled())[0])


def by_group(table: AuditTable, name: str) -> dict[Hashable, float]:
    """Return a metric of each group of a table."""
    return dict(zip(table.groups, METRICS[name].of(table).tolist(), strict=True))


# --- of labels and probabilities -------------------------------------------------------------


def _measure(name: str, y_true: Any, y_prob: Any, **kwargs: Any) -> float:
    return overall(
        AuditTable.from_arrays(y_true, y_prob, parts=METRICS[name].parts, **kwargs), name
    )


def accuracy(
    y_true: Any, y_prob: Any, *, sample_weight: Any = None, labels: Any = None, y_pred: Any = None
) -> float:
    """Return the share of rows whose most probable class (a tie: the first) is their label.

    `y_pred` replaces the most probable class by decisions made elsewhere.

    >>> accuracy([0, 1, 1, 0], [0.1, 0.7, 0.4, 0.5])
    0.75
    """
    return _measure(
        "accuracy", y_true, y_prob, sample_weight=sample_weight, labels=labels, y_pred=y_pred
    )


def expected_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the top-label ECE: the mean of |accuracy - confidence| over bins of confidence.

    Bins are (lo, hi] of equal width and weighted by their rows. See `debiased_squared_ece` before
    comparing groups of different size: raw ECE grows as rows get fewer.

    Examples
    --------
    >>> expected_calibration_error([0, 1, 1, 1], [0.25, 0.75, 0.75, 0.25])
    0.0
    >>> round(expected_calibration_error(["no", "yes"], [0.1, 0.6]), 3)
    0.25
    """
    return _measure(
        "ece", y_true, y_prob, n_bins=n_bins, sample_weight=sample_weight, labels=labels
    )


def classwise_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the class-wise ECE: the mean over classes k of the ECE of p_k for "the label is k"."""
    return _measure(
        "classwise_ece", y_true, y_prob, n_bins=n_bins, sample_weight=sample_weight, labels=labels
    )


def debiased_squared_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return an estimate of the squared ECE that does not grow as rows get fewer.

    With d = correct - confidence, each bin's squared mean of d is estimated from pairs of
    different rows, [(sum d)**2 - sum d**2] / (n_b (n_b - 1)), and weighted by n_b / n. Bins of one
    row are left out. The expectation is 0 for a calibrated model, so values may be negative.
    """
    return _measure(
        "debiased_squared_ece",
        y_true,
        y_prob,
        n_bins=n_bins,
        sample_weight=sample_weight,
        labels=labels,
    )


def maximum_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the largest |accuracy - confidence| of any bin that holds rows."""
    return _measure(
        "mce", y_true, y_prob, n_bins=n_bins, sample_weight=sample_weight, labels=labels
    )


def brier_score(
    y_true: Any, y_prob: Any, *, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the mean squared error of the probabilities.

    As in scikit-learn, the squared errors of the classes are added up, and halved where there are
    two, so that a binary problem gives the mean of (p - y)**2.

    >>> round(brier_score([0, 1], [0.1, 0.6]), 3)
    0.085
    """
    return _measure("brier", y_true, y_prob, sample_weight=sample_weight, labels=labels)


def log_loss(y_true: Any, y_prob: Any, *, sample_weight: Any = None, labels: Any = None) -> float:
    """Return the mean of -log p of each row's label.

    It is infinite, with a warning, where a label got the probability 0; nothing is clipped.
    """
    value = _measure("log_loss", y_true, y_prob, sample_weight=sample_weight, labels=labels)
    if np.isinf(value):
        _warn("log-loss is infinite: some rows give their own label the probability 0")
    return value


def equal_mass_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the top-label ECE on bins that hold (nearly) equal numbers of rows.

    Bin j ends at the confidence of row ceil(n j / n_bins) in ascending order; rows of equal
    confidence share a bin, so the order of the rows does not matter. Needs all rows at once; see
    `groupwise` for each group's.
    """
    check_bins(n_bins)
    prob = matrix(y_prob, "y_prob")
    y, _ = encode_labels(y_true, class_count(prob), labels)
    same_length(len(prob), y_true=y)
    weight = check_weights(sample_weight, len(prob))
    weight = np.ones(len(prob)) if weight is None else weight
    confidence, correct = np.empty(len(prob)), np.empty(len(prob))
    for start in range(0, len(prob), ROWS):
        rows = slice(start, min(start + ROWS, len(prob)))
        confidence[rows], top = argmax(probability_slice(prob, rows))
        correct[rows] = top == y[rows]
    order = np.argsort(confidence, kind="stable")
    reached = np.cumsum(weight[order])
    # sums of weights are rounded: a bin that is full but for that is full
    wanted = np.arange(1, n_bins + 1) * reached[-1] / n_bins - 1e-10 * reached[-1]
    ends = np.searchsorted(reached, wanted)
    edges = np.unique(confidence[order[np.minimum(ends, len(prob) - 1)]])
    gap = np.bincount(np.searchsorted(edges, confidence), weight * (correct - confidence))
    return float(np.abs(gap).sum() / reached[-1])


@dataclasses.dataclass(frozen=True)
class ReliabilityCurve:
    """What a reliability diagram shows, one entry per bin; nan where a bin holds no row."""

    lower: Floats
    upper: Floats
    count: Floats
    accuracy: Floats
    confidence: Floats


def reliability_curve(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> ReliabilityCurve:
    """Return accuracy and mean confidence of each bin of top-label confidence."""
    table = AuditTable.from_arrays(
        y_true, y_prob, n_bins=n_bins, sample_weight=sample_weight, labels=labels, parts=("bins",)
    )
    return reliability_of(table)[None]


def reliability_of(table: AuditTable) -> dict[Hashable, ReliabilityCurve]:
    """Return the reliability curve of each group of a table."""
    edges = np.arange(table.n_bins + 1) / table.n_bins
    count = table["bin_count"]
    hit, sure = _ratio(table["bin_correct"], count), _ratio(table["bin_confidence"], count)
    return {
        g: ReliabilityCurve(edges[:-1], edges[1:], count[i], hit[i], sure[i])
        for i, g in enumerate(table.groups)
    }


def groupwise_calibration_error(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    n_bins: int = 15,
    sample_weight: Any = None,
    labels: Any = None,
) -> dict[Hashable, float]:
    """Return the top-label ECE of each group, keyed by the group's own value.

    >>> groupwise_calibration_error([0, 1], [0.25, 0.75], sensitive_features=["b", "a"])
    {'a': 0.25, 'b': 0.25}
    """
    table = AuditTable.from_arrays(
        y_true,
        y_prob,
        sensitive_features=sensitive_features,
        n_bins=n_bins,
        sample_weight=sample_weight,
        labels=labels,
        parts=("bins",),
    )
    return by_group(table, "ece")


def groupwise(
    metric: Callable[..., Any],
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    labels: Any = None,
    sample_weight: Any = None,
    **params: Any,
) -> dict[Hashable, Any]:
    """Return any metric of labels and probabilities for each group's own rows.

    `params` go to the metric as they are; a name it does not know raises there.

    >>> groupwise(accuracy, [0, 1, 1], [0.2, 0.9, 0.4], sensitive_features=["a", "a", "b"])
    {'a': 1.0, 'b': 0.0}
    """
    prob = matrix(y_prob, "y_prob")
    y, resolved = encode_labels(y_true, class_count(prob), labels)
    group, groups = encode_groups(sensitive_features)
    weight = check_weights(sample_weight, len(prob))
    same_length(len(prob), y_true=y, sensitive_features=group)
    found = {}
    for i, name in enumerate(groups):
        own = group == i
        part = None if weight is None else weight[own]
        coded = np.array([*resolved, None], dtype=object)[y[own]]
        found[name] = metric(coded, prob[own], labels=resolved, sample_weight=part, **params)
    return found


# --- proportional equality -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class GroupRates:
    """The share of each label in each group: ``rates[group][label]``."""

    rates: Mapping[Hashable, Mapping[Hashable, float]]


def group_base_rates(
    y: Any, *, sensitive_features: Any, labels: Any = None, sample_weight: Any = None
) -> GroupRates:
    """Return Pr[Y = k | A = g], usually of the training data.

    >>> group_base_rates([0, 1, 1, 1], sensitive_features=["f", "f", "m", "m"]).rates["f"]
    {0: 0.5, 1: 0.5}
    """
    codes, present = encode(column(y, "y"), "y")
    refuse_missing(codes, "y")
    if not len(codes):
        raise ValueError("y is empty")
    known = list(present)
    if labels is not None:
        known = list(np.asarray(labels).tolist())
        codes = recode(codes, present, known)
        if codes.min() < 0:
            unknown = next(v for v in present if v not in known)
            raise ValueError(f"y contains {unknown!r}, which is not in labels={known!r}")
    group, groups = encode_groups(sensitive_features)
    if len(group) != len(codes):
        raise ValueError(f"sensitive_features has {len(group)} rows, but y has {len(codes)}")
    weight = check_weights(sample_weight, len(codes))
    cell = group.astype(np.int64) * len(known) + codes
    count = np.bincount(cell, weight, len(groups) * len(known)).reshape(len(groups), -1)
    share = _ratio(count.astype(float), count.sum(1, keepdims=True))
    return GroupRates(
        {g: dict(zip(known, share[i].tolist(), strict=True)) for i, g in enumerate(groups)}
    )


def proportional_equality(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    kind: Literal["stochastic", "deterministic"] = "stochastic",
    form: Literal["group-ratio", "amplification"] = "group-ratio",
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    reference_group: Any = None,
    y_pred: Any = None,
    labels: Any = None,
    sample_weight: Any = None,
) -> float:
    """Return how far the model's ratio of rates between groups is from the data's; 0 is best.

    With r the rates of the labels and q those of the model, the largest over classes k and groups
    g of ``|r[g, k] / r[ref, k] - q[g, k] / q[ref, k]|`` (form "group-ratio", the paper's
    definition) or ``|q[g, k] / r[g, k] - q[ref, k] / r[ref, k]|`` (form "amplification").

    Parameters
    ----------
    y_true
        Labels; None where `base_rates` are given.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem.
    sensitive_features
        One column, or several whose intersection is meant.
    kind
        Rates of the model from its probabilities ("stochastic") or its decisions.
    form
        See above.
    base_rates
        Rates of the labels in the training data, from `group_base_rates`; by default those of
        `y_true`. Their groups must be the groups of `sensitive_features`.
    reference_group
        The group in the denominator: by default the first in sorted order; "all" takes every
        ordered pair of groups.
    y_pred
        Decisions that replace the most probable class; read by kind "deterministic" only.
    labels
        Label of each column of `y_prob`.
    sample_weight
        Weight of each row.

    Warns
    -----
    UndefinedMetricWarning
        Naming group and class, where a ratio is 0/0 (the class is dropped), where both ratios are
        infinite (dropped), and where exactly one is (the result is inf). With nothing left: nan.

    Notes
    -----
    Rates are exact to about 1e-10: a class whose probabilities are all below that has the rate 0.

    Examples
    --------
    The paper's Table 1, Model 2: one row per person, the probability of being a doctor.

    >>> rates = {"man": {"doc": 0.7, "nurse": 0.3}, "woman": {"doc": 0.2, "nurse": 0.8}}
    >>> pe = proportional_equality(
    ...     None, [[0.8, 0.2], [0.15, 0.85]], sensitive_features=["man", "woman"],
    ...     base_rates=rates, reference_group="woman")
    >>> round(pe, 3)
    1.833
    """
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    prob = matrix(y_prob, "y_prob")
    if labels is None and rates is not None:
        known: tuple[Any, ...] = tuple(sorted({k for row in rates.values() for k in row}))
        if len(known) == class_count(prob):
            labels = known
        elif y_true is None:
            raise ValueError(
                f"base_rates have the labels {known!r} for {class_count(prob)} columns of "
                "probabilities; pass labels= with the label of each column, in order"
            )
    if y_true is None and rates is None:
        raise ValueError("y_true is None: pass base_rates=group_base_rates(y_train, ...) instead")
    if kind not in ("stochastic", "deterministic"):
        raise ValueError(f"kind must be 'stochastic' or 'deterministic', got {kind!r}")
    table = AuditTable.from_arrays(
        y_true,
        prob,
        sensitive_features=sensitive_features,
        y_pred=y_pred,
        labels=labels,
        sample_weight=sample_weight,
        parts={"rates" if kind == "stochastic" else "decisions"}
        | ({"labels"} if rates is None else set()),
    )
    return proportional_equality_of(
        table, kind=kind, form=form, base_rates=rates, reference_group=reference_group
    )


def proportional_equality_of(
    table: AuditTable,
    *,
    kind: str = "stochastic",
    form: str = "group-ratio",
    base_rates: GroupRates | Mapping[Hashable, Mapping[Hashable, float]] | None = None,
    reference_group: Any = None,
) -> float:
    """Return the proportional equality of a table; see `proportional_equality`."""
    if form not in ("group-ratio", "amplification"):
        raise ValueError(f"form must be 'group-ratio' or 'amplification', got {form!r}")
    rates = base_rates.rates if isinstance(base_rates, GroupRates) else base_rates
    if len(table.groups) < 2:
        raise ValueError(
            f"proportional equality compares groups, but the only one here is {table.groups[0]!r}"
        )
    data, pairs = _data_rates(table, rates), _pairs(table.groups, reference_group)
    first, second = _rate_ratios(table, data, pairs, kind, form)
    for (g, ref), a, b in zip(pairs, first, second, strict=True):
        for k in np.flatnonzero(~np.isfinite(a) | ~np.isfinite(b)):
            where = (
                f"class {table.labels[k]!r} of group {table.groups[g]!r} "
                f"against {table.groups[ref]!r}"
            )
            if np.isnan(a[k]) or np.isnan(b[k]):
                _warn(f"proportional equality: {where} is 0/0 and was dropped")
            elif np.isinf(a[k]) and np.isinf(b[k]):
                _warn(f"proportional equality: {where} has two infinite ratios and was dropped")
            else:
                _warn(f"proportional equality: {where} is x/0, so the result is infinite")
    value = float(_largest_gap(first, second))
    if np.isnan(value):
        _warn("proportional equality is undefined: no class is left in any group")
    return value


def stacked_proportional_equality(
    table: AuditTable, rates: Floats, kind: str, form: str = "group-ratio"
) -> Floats:
    """Return the proportional equality of each configuration of a stacked table, without warnings.

    `rates` (group, class) are those of the labels; the first group is the reference.
    """
    pairs = _pairs(table.groups, None)
    if not pairs:  # one group has nothing to be compared with
        return np.full(len(table["weight"]), np.nan)
    return _largest_gap(*_rate_ratios(table, rates, pairs, kind, form))


def _rate_ratios(
    table: AuditTable, data: Floats, pairs: list[tuple[int, int]], kind: str, form: str
) -> tuple[Floats, Floats]:
    """Return the two ratios that PE compares, each (..., pair, class)."""
    sums = table["probability" if kind == "stochastic" else "predictions"]
    model = _ratio(sums, table["weight"][..., None])
    own, ref = (list(side) for side in zip(*pairs, strict=True))
    if form == "group-ratio":
        first, second = (_ratio(x[..., own, :], x[..., ref, :]) for x in (data, model))
    else:
        first, second = (_ratio(model[..., g, :], data[..., g, :]) for g in (own, ref))
    return np.broadcast_to(first, second.shape), second


def _largest_gap(first: Floats, second: Floats) -> Floats:
    """Return the largest |first - second| over pairs and classes."""
    # inf - inf and anything with 0/0 are nan, which fmax passes over; a single inf stays inf
    with np.errstate(invalid="ignore"):
        gap = np.abs(first - second)
    return np.asarray(np.fmax.reduce(gap, axis=(-2, -1)))


def _data_rates(
    table: AuditTable, rates: Mapping[Hashable, Mapping[Hashable, float]] | None
) -> Floats:
    if rates is None:
        return _ratio(table["labels"], table["weight"][:, None])
    if set(rates) != set(table.groups):
        lacking = [g for g in table.groups if g not in rates]
        extra = [g for g in rates if g not in table.groups]
        raise ValueError(
            "base_rates and sensitive_features have different groups"
            + (f"; without base rates: {lacking!r}" if lacking else "")
            + (f"; only in base_rates: {extra!r}" if extra else "")
        )
    try:
        values = np.array([[rates[g][k] for k in table.labels] for g in table.groups], float)
    except KeyError as error:
        raise ValueError(
            f"base_rates lack the label {error.args[0]!r}; "
            "pass labels= to group_base_rates so that every class has a rate"
        ) from None
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("base_rates must be within 0..1")
    return values


def _pairs(groups: tuple[Hashable, ...], reference: Any) -> list[tuple[int, int]]:
    index = {g: i for i, g in enumerate(groups)}
    if isinstance(reference, str) and reference == "all" and "all" not in index:
        return list(permutations(range(len(groups)), 2))
    if reference is not None and reference not in index:
        raise ValueError(f"reference_group {reference!r} is not one of the groups {groups!r}")
    ref = 0 if reference is None else index[reference]
    return [(g, ref) for g in range(len(groups)) if g != ref]


def _warn(message: str) -> None:
    from sklearn.exceptions import UndefinedMetricWarning  # half a second, so only when needed

    # the warning points at the caller's line, however deep in here it arose
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("equipoise"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UndefinedMetricWarning, stacklevel=level)
