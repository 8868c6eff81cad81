"""Proportional equality: whether a model amplifies differences between groups in the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    ROW_SUM_TOLERANCE,
    check_weights,
    class_count,
    column,
    column_labels,
    column_names,
    encode,
    encode_groups,
    matrix,
    recode,
    refuse_missing,
    warn_caller,
)
from equipoise.metrics._table import AuditTable

Floats = NDArray[np.float64]


def ratio(top: Floats, bottom: Floats) -> Floats:
    """Divide without warnings; 0 / 0 is nan, since an empty group has no value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)


@dataclasses.dataclass(frozen=True)
class GroupRates:
    """The share of each label in each group: ``rates[group][label]``.

    `counts` has the numbers of rows behind the rates, in the same form, so that their sampling
    error counts too; with weights, those of as many equal rows. Without them the rates are taken
    as exact.
    """

    rates: Mapping[Hashable, Mapping[Hashable, float]]
    counts: Mapping[Hashable, Mapping[Hashable, float]] | None = None

    @classmethod
    def of_counts(cls, counts: Mapping[Hashable, Mapping[Hashable, float]]) -> GroupRates:
        """Return the rates that follow from the number of rows of each group and label."""
        total = {g: sum(own.values()) for g, own in counts.items()}
        rates = {g: {k: n / total[g] for k, n in own.items()} for g, own in counts.items()}
        return cls(rates, counts)


Rates = GroupRates | Mapping[Hashable, Mapping[Hashable, float]]


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
    known = list(present if labels is None else np.asarray(labels).tolist())
    if labels is not None:
        codes = recode(codes, present, known)
        if codes.min() < 0:
            unknown = next(v for v in present if v not in known)
            raise ValueError(f"y contains {unknown!r}, which is not in labels={known!r}")
    group, groups = encode_groups(sensitive_features)
    if len(group) != len(codes):
        raise ValueError(f"sensitive_features has {len(group)} rows, but y has {len(codes)}")
    weight = check_weights(sample_weight, len(codes))
    cell = group.astype(np.int64) * len(known) + codes
    count = np.bincount(cell, weight, len(groups) * len(known)).astype(np.float64)
    count = count.reshape(len(groups), -1)
    if not count.sum(1).all():
        empty = groups[int(np.argmin(count.sum(1)))]
        raise ValueError(f"every row of group {empty!r} has weight 0, so its rates are undefined")
    if weight is not None:
        # as many rows of equal weight have the same sampling error
        square = np.bincount(group, weight**2, len(groups))
        count *= (count.sum(1) / square)[:, None]
    return GroupRates.of_counts(
        {g: dict(zip(known, count[i].tolist(), strict=True)) for i, g in enumerate(groups)}
    )


def proportional_equality(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    kind: Literal["stochastic", "deterministic"] = "stochastic",
    form: Literal["group-ratio", "amplification"] = "group-ratio",
    base_rates: Rates | None = None,
    reference_group: Any = None,
    y_pred: Any = None,
    labels: Any = None,
    sample_weight: Any = None,
) -> float:
    """Return how far the model's ratio of rates between groups is from the data's; 0 is best.

    Let r be the rates of the labels and q those of the model. The value is the largest, over
    classes k and groups g, of
    ``|r[g, k] / r[ref, k] - q[g, k] / q[ref, k]|`` (form "group-ratio", the paper's
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
        Whether the model's rates are those of its probabilities ("stochastic") or its decisions.
    form
        The quantity compared, see above.
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
        Names the group and class where a ratio is 0/0 or both ratios are infinite (the class is
        dropped), and where exactly one is infinite (the result is inf). If no class is left, the
        result is nan.

    Notes
    -----
    Rates are exact to about 1e-10; a class whose probabilities are all below that has rate 0.

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
    if kind not in ("stochastic", "deterministic"):
        raise ValueError(f"kind must be 'stochastic' or 'deterministic', got {kind!r}")
    table = rates_table(
        y_true,
        y_prob,
        base_rates,
        "rates" if kind == "stochastic" else "decisions",
        sensitive_features=sensitive_features,
        y_pred=y_pred,
        labels=labels,
        sample_weight=sample_weight,
    )
    return proportional_equality_of(
        table, kind=kind, form=form, base_rates=base_rates, reference_group=reference_group
    )


def rates_table(
    y_true: Any, y_prob: Any, base_rates: Rates | None, block: str, *, labels: Any, **rows: Any
) -> AuditTable:
    """Sum up a block of the model's rates; the labels too where `base_rates` are not given."""
    if y_true is None and base_rates is None:
        raise ValueError("y_true is None: pass base_rates=group_base_rates(y_train, ...) instead")
    if labels is None and base_rates is not None:
        rates, n_classes = _plain_rates(base_rates), class_count(matrix(y_prob, "y_prob"))
        known: list[Any] = sorted({k for row in rates.values() for k in row})
        if len(known) == n_classes:
            labels = column_labels(known, n_classes, columns=column_names(y_prob))
        elif y_true is None:
            raise ValueError(
                f"base_rates have the labels {tuple(known)!r} for {n_classes} columns of "
                "probabilities; pass labels= with the label of each column, in order"
            )
    blocks = {block} | ({"labels"} if base_rates is None else set())
    return AuditTable.from_arrays(y_true, y_prob, labels=labels, blocks=blocks, **rows)


def proportional_equality_of(
    table: AuditTable,
    *,
    kind: str = "stochastic",
    form: str = "group-ratio",
    base_rates: Rates | None = None,
    reference_group: Any = None,
) -> float:
    """Return the proportional equality of a table; see `proportional_equality`."""
    if form not in ("group-ratio", "amplification"):
        raise ValueError(f"form must be 'group-ratio' or 'amplification', got {form!r}")
    if len(table.groups) < 2:
        raise ValueError(
            f"proportional equality compares groups, but the only one here is {table.groups[0]!r}"
        )
    data, pairs = data_rates(table, base_rates), pairs_of(table.groups, reference_group)
    first, second = rate_ratios(table, data, pairs, kind, form)
    for (g, ref), a, b in zip(pairs, first, second, strict=True):
        for k in np.flatnonzero(~np.isfinite(a) | ~np.isfinite(b)):
            where = (
                f"class {table.labels[k]!r} of group {table.groups[g]!r} "
                f"against {table.groups[ref]!r}"
            )
            if np.isnan(a[k]) or np.isnan(b[k]):
                found = "is 0/0 and was dropped"
            elif np.isinf(a[k]) and np.isinf(b[k]):
                found = "has two infinite ratios and was dropped"
            else:
                found = "is x/0, so the result is infinite"
            warn_undefined(f"proportional equality: {where} {found}")
    value = float(_largest_gap(first, second))
    if np.isnan(value):
        warn_undefined("proportional equality is undefined: no class is left in any group")
    return value


def stacked_proportional_equality(
    table: AuditTable, rates: Floats, kind: str, form: str = "group-ratio"
) -> Floats:
    """Return the proportional equality of each configuration of a stacked table, without warnings.

    `rates` (group, class) are those of the labels; the first group is the reference.
    """
    pairs = pairs_of(table.groups, None)
    if not pairs:  # one group has nothing to be compared with
        return np.full(len(table["weight"]), np.nan)
    return _largest_gap(*rate_ratios(table, rates, pairs, kind, form))


def rate_ratios(
    table: AuditTable, data: Floats, pairs: list[tuple[int, int]], kind: str, form: str
) -> tuple[Floats, Floats]:
    """Return the two ratios that PE compares, each (..., pair, class)."""
    sums = table["probability" if kind == "stochastic" else "predictions"]
    model = ratio(sums, table["weight"][..., None])
    own, ref = (list(side) for side in zip(*pairs, strict=True))
    if form == "group-ratio":
        first, second = (ratio(x[..., own, :], x[..., ref, :]) for x in (data, model))
    else:
        first, second = (ratio(model[..., g, :], data[..., g, :]) for g in (own, ref))
    return np.broadcast_to(first, second.shape), second


def _largest_gap(first: Floats, second: Floats) -> Floats:
    """Return the largest |first - second| over pairs and classes."""
    # inf - inf and anything with 0/0 are nan, which fmax passes over; a single inf stays inf
    with np.errstate(invalid="ignore"):
        gap = np.abs(first - second)
    return np.asarray(np.fmax.reduce(gap, axis=(-2, -1)))


def _plain_rates(rates: Rates) -> Mapping[Hashable, Mapping[Hashable, float]]:
    return rates.rates if isinstance(rates, GroupRates) else rates


def data_rates(table: AuditTable, base_rates: Rates | None) -> Floats:
    """Return the rates (group, class) that a table is measured against: those given, or its own."""
    if base_rates is None:
        return ratio(table["labels"], table["weight"][:, None])
    rates = _plain_rates(base_rates)
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
    for group, total in zip(table.groups, values.sum(1).tolist(), strict=True):
        if abs(total - 1.0) > ROW_SUM_TOLERANCE:
            raise ValueError(f"base_rates of group {group!r} sum to {total:.6g}, not 1")
    return values


def data_counts(table: AuditTable, base_rates: Rates | None) -> Floats | None:
    """Return the number of training rows of each group, inf where it is not known.

    None without `base_rates`: then the rates are those of the table's own labels.
    """
    if base_rates is None:
        return None
    counts = base_rates.counts if isinstance(base_rates, GroupRates) else None
    if counts is None:
        return np.full(len(table.groups), np.inf)
    return np.array([float(sum(counts[g].values())) for g in table.groups])


def largest_group(table: AuditTable) -> Hashable:
    """Return the group with the most rows; the first of equal ones."""
    return table.groups[int(np.argmax(table["rows"]))]


def pairs_of(groups: tuple[Hashable, ...], reference: Any) -> list[tuple[int, int]]:
    """Return the positions of each group to compare and of its reference."""
    index = {g: i for i, g in enumerate(groups)}
    if isinstance(reference, str) and reference == "all" and "all" not in index:
        return list(permutations(range(len(groups)), 2))
    if reference is not None and reference not in index:
        raise ValueError(f"reference_group {reference!r} is not one of the groups {groups!r}")
    ref = 0 if reference is None else index[reference]
    return [(g, ref) for g in range(len(groups)) if g != ref]


def warn_undefined(message: str) -> None:
    """Warn that a metric has no finite value, at the caller's line."""
    from sklearn.exceptions import UndefinedMetricWarning  # half a second, so only when needed

    warn_caller(UndefinedMetricWarning(message))
