"""Calibration and fairness metrics, each a function of the audit table's sums.

`METRICS` maps a name to a function of an `AuditTable` that returns one value per group; the pooled
table gives the value of all rows. The functions below it take labels and probabilities, as
scikit-learn's do, fill the part of the table that they need, and apply the same definition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    check_bins,
    check_weights,
    class_count,
    column,
    column_names,
    encode_groups,
    encode_labels,
    matrix,
    probability_slice,
    same_length,
)
from equipoise.metrics._proportional_equality import ratio, warn_undefined
from equipoise.metrics._sums import ROWS, argmax
from equipoise.metrics._table import AuditTable

Floats = NDArray[np.float64]


# --- of the table, one value per group -------------------------------------------------------


def _accuracy(table: AuditTable) -> Floats:
    return ratio(table["hits"].sum(-1), table["weight"])


def _ece(table: AuditTable) -> Floats:
    # (n_b / n) * |correct / n_b - confidence / n_b|: the bin's count cancels
    gap = np.abs(table["bin_correct"] - table["bin_confidence"])
    return ratio(gap.sum(-1), table["weight"])


def _debiased_squared_ece(table: AuditTable) -> Floats:
    count = table["bin_count"]
    pairs = count**2 - table["bin_count2"]
    cross = (table["bin_correct"] - table["bin_confidence"]) ** 2 - table["bin_gap2"]
    # a bin of one row has no pairs of rows; its two sums may still differ by rounding
    several = pairs > 1e-12 * count**2
    share = ratio(count, table["weight"][..., None])
    square = np.where(several, cross / np.where(several, pairs, 1.0), 0.0)
    return np.asarray((share * square).sum(-1))


def _mce(table: AuditTable) -> Floats:
    gap = ratio(np.abs(table["bin_correct"] - table["bin_confidence"]), table["bin_count"])
    empty = np.isnan(gap).all(-1)
    return np.where(empty, np.nan, np.nan_to_num(gap, nan=0.0).max(-1))


def _classwise_ece(table: AuditTable) -> Floats:
    gap = np.abs(table["class_correct"] - table["class_probability"])
    return ratio(gap.sum((-2, -1)), len(table.labels) * table["weight"])


def _brier(table: AuditTable) -> Floats:
    total = ratio(table["squared_error"].sum(-1), table["weight"])
    return total / 2 if len(table.labels) == 2 else total


def _log_loss(table: AuditTable) -> Floats:
    finite = ratio(table["log_loss"], table["weight"])
    return np.where(table["impossible"] > 0, np.inf, finite)


@dataclasses.dataclass(frozen=True)
class Metric:
    """Value per group of a table, blocks of the table that it reads, and title of its column."""

    of: Callable[[AuditTable], Floats]
    blocks: tuple[str, ...]
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


def _measure(
    name: str, y_true: Any, y_prob: Any, sample_weight: Any, labels: Any, **options: Any
) -> float:
    table = AuditTable.from_arrays(
        y_true,
        y_prob,
        sample_weight=sample_weight,
        labels=labels,
        blocks=METRICS[name].blocks,
        **options,
    )
    return overall(table, name)


def accuracy(
    y_true: Any, y_prob: Any, *, sample_weight: Any = None, labels: Any = None, y_pred: Any = None
) -> float:
    """Return the share of rows whose most probable class is their label; the first of a tie.

    `y_pred` replaces the most probable class by decisions made elsewhere.

    >>> accuracy([0, 1, 1, 0], [0.1, 0.7, 0.4, 0.5])
    0.75
    """
    return _measure("accuracy", y_true, y_prob, sample_weight, labels, y_pred=y_pred)


def expected_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the top-label ECE: the mean of ``|accuracy - confidence|`` over bins of confidence.

    Bins are (lo, hi] of equal width and weighted by their rows. To compare groups of different
    size see `debiased_squared_calibration_error`: raw ECE grows as rows get fewer.

    Examples
    --------
    >>> expected_calibration_error([0, 1, 1, 1], [0.25, 0.75, 0.75, 0.25])
    0.0
    >>> round(expected_calibration_error(["no", "yes"], [0.1, 0.6]), 3)
    0.25
    """
    return _measure("ece", y_true, y_prob, sample_weight, labels, n_bins=n_bins)


def classwise_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the class-wise ECE: the mean over classes k of the ECE of p_k for "the label is k"."""
    return _measure("classwise_ece", y_true, y_prob, sample_weight, labels, n_bins=n_bins)


def debiased_squared_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return an estimate of the squared ECE that does not grow as rows get fewer.

    With d = correct - confidence, each bin's squared mean of d is estimated from pairs of
    different rows, [(sum d)**2 - sum d**2] / (n_b (n_b - 1)), and weighted by n_b / n. Bins of one
    row are left out. The expectation is 0 for a calibrated model, so values may be negative.
    """
    return _measure("debiased_squared_ece", y_true, y_prob, sample_weight, labels, n_bins=n_bins)


def maximum_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the largest ``|accuracy - confidence|`` of any bin that holds rows."""
    return _measure("mce", y_true, y_prob, sample_weight, labels, n_bins=n_bins)


def brier_score(
    y_true: Any, y_prob: Any, *, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the mean squared error of the probabilities.

    As in scikit-learn, the squared errors of the classes are added up, and halved where there are
    two, so that a binary problem gives the mean of (p - y)**2.

    >>> round(brier_score([0, 1], [0.1, 0.6]), 3)
    0.085
    """
    return _measure("brier", y_true, y_prob, sample_weight, labels)


def log_loss(y_true: Any, y_prob: Any, *, sample_weight: Any = None, labels: Any = None) -> float:
    """Return the mean of -log p of each row's label.

    It is infinite, with a warning, where a label has probability 0; nothing is clipped.
    """
    value = _measure("log_loss", y_true, y_prob, sample_weight, labels)
    if np.isinf(value):
        warn_undefined("log-loss is infinite: some rows give their own label the probability 0")
    return value


def equal_mass_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 15, sample_weight: Any = None, labels: Any = None
) -> float:
    """Return the top-label ECE on bins that hold (nearly) equal numbers of rows.

    Bin j ends at the confidence of row ceil(n j / n_bins) in ascending order; rows of equal
    confidence share a bin, so the order of the rows does not matter. `groupwise` gives the value
    of each group.
    """
    check_bins(n_bins)
    prob = matrix(y_prob, "y_prob")
    y, _ = encode_labels(y_true, class_count(prob), labels, columns=column_names(y_prob))
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
    # sums of weights are rounded: a bin that lacks only the rounding is full
    wanted = np.arange(1, n_bins + 1) * reached[-1] / n_bins - 1e-10 * reached[-1]
    ends = np.searchsorted(reached, wanted)
    edges = np.unique(confidence[order[np.minimum(ends, len(prob) - 1)]])
    gap = np.bincount(np.searchsorted(edges, confidence), weight * (correct - confidence))
    return float(np.abs(gap).sum() / reached[-1])


@dataclasses.dataclass(frozen=True)
class ReliabilityCurve:
    """Bins of a reliability diagram, one entry each; nan where a bin holds no row."""

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
        y_true, y_prob, n_bins=n_bins, sample_weight=sample_weight, labels=labels, blocks=("bins",)
    )
    return reliability_of(table)[None]


def reliability_of(table: AuditTable) -> dict[Hashable, ReliabilityCurve]:
    """Return the reliability curve of each group of a table."""
    edges = np.arange(table.n_bins + 1) / table.n_bins
    count = table["bin_count"]
    hit, sure = ratio(table["bin_correct"], count), ratio(table["bin_confidence"], count)
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
        blocks=("bins",),
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
    y_pred: Any = None,
    **params: Any,
) -> dict[Hashable, Any]:
    """Return a metric of labels and probabilities, computed on each group's own rows.

    `params` are passed on to the metric.

    >>> groupwise(accuracy, [0, 1, 1], [0.2, 0.9, 0.4], sensitive_features=["a", "a", "b"])
    {'a': 1.0, 'b': 0.0}
    """
    prob = matrix(y_prob, "y_prob")
    names = column_names(y_prob)
    y, resolved = encode_labels(y_true, class_count(prob), labels, columns=names)
    group, groups = encode_groups(sensitive_features)
    weight = check_weights(sample_weight, len(prob))
    decided = None if y_pred is None else column(y_pred, "y_pred")
    same_length(len(prob), y_true=y, sensitive_features=group, y_pred=decided)
    found = {}
    for i, name in enumerate(groups):
        own = group == i
        if decided is not None:
            params["y_pred"] = decided[own]
        part = None if weight is None else weight[own]
        coded = np.array([*resolved, None], dtype=object)[y[own]]
        found[name] = metric(coded, prob[own], labels=resolved, sample_weight=part, **params)
    return found
