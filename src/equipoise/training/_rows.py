"""The rows that an estimator is fitted on: checked, encoded and split."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from equipoise._inputs import check_weights, encode_groups, split_columns
from equipoise.datasets import Part, Preprocessor, Split, shuffled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class FitRows:
    """Rows that an estimator is fitted on, without those of weight 0."""

    X: Floats  # (n, feature), without sensitive columns
    y: NDArray[Any]  # (n,) the labels' own values
    codes: Ints  # (n,) positions in `classes`
    group: Ints  # (n,) positions in `groups`
    weight: Floats | None  # (n,) with mean 1
    classes: NDArray[Any]  # the labels, sorted
    groups: list[Hashable]  # sorted; empty without groups


def group_shares(group: Ints, weight: Floats | None, n_groups: int) -> Floats:
    """Return each group's share of the (weighted) rows."""
    count = np.bincount(group, weight, n_groups)
    return np.asarray(count / count.sum())


def reference_place(reference: Any, group: Ints, groups: Sequence[Hashable]) -> int:
    """Return the position of the group that PE compares the others with: by default the largest."""
    if reference is None:
        return int(np.bincount(group).argmax())
    if reference not in groups:
        raise ValueError(
            f"reference_group {reference!r} is not one of the groups {tuple(groups)!r}"
            if groups
            else f"reference_group={reference!r} needs groups; pass sensitive_features"
        )
    return list(groups).index(reference)


def checked_rows(
    estimator: Any, X: Any, y: Any, sensitive_features: Any, sample_weight: Any
) -> FitRows:
    """Check and encode the arguments of an estimator's `fit`."""
    frame, columns = split_columns(X, estimator.sensitive_columns, sensitive_features)
    features, labels = validate_data(
        estimator, frame, y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2
    )
    if np.isinf(features).any():
        raise ValueError("Input X contains infinity; replace it by NaN or a finite value")
    check_classification_targets(labels)
    members: NDArray[Any] = np.zeros(len(labels), np.int64)
    groups: list[Hashable] = []
    if columns is not None:
        members, groups = encode_groups(columns)
        if len(members) != len(labels):
            raise ValueError(f"sensitive_features has {len(members)} rows, but X has {len(labels)}")
    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight)
        if sample_weight.ndim != 1:
            raise ValueError(f"sample_weight must be (n,), got shape {sample_weight.shape}")
    weight = check_weights(sample_weight, len(labels))
    if weight is not None:
        kept = weight > 0.0
        features, labels, members, weight = (v[kept] for v in (features, labels, members, weight))
        # the scale of the weights must not matter, and equal weights are none
        weight = None if (weight == weight[0]).all() else weight / weight.mean()
        known, members = np.unique(members, return_inverse=True)
        groups = [groups[g] for g in known] if groups else []
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"Classifier can't train when only one class is present: {classes[0]!r}")
    return FitRows(features, labels, codes, members.astype(np.int64), weight, classes, groups)


def prepared(rows: FitRows, group: Ints, cuts: Sequence[Ints]) -> Split:
    """Return training, validation and test rows, imputed and standardised on the first.

    `group` are the rows' groups, which may have been pooled; `cuts` the rows of each part.
    """
    columns = [f"x{j}" for j in range(rows.X.shape[1])]
    preprocessor = Preprocessor.fit(rows.X[cuts[0]], columns)
    train, val, test = (
        Part(
            preprocessor.transform(rows.X[own]),
            rows.codes[own],
            group[own],
            own,
            None if rows.weight is None else rows.weight[own],
        )
        for own in cuts
    )
    return Split(train, val, test, preprocessor)


def hold_out(rows: FitRows, fraction: float, seed: int) -> Split:
    """Return a split with a share of the rows, stratified by label and group, as validation.

    The test part is the validation part again. A row that is alone in its label and group stays in
    training.
    """
    n = len(rows.codes)
    cell = rows.codes * max(len(rows.groups), 1) + rows.group
    order = shuffled(n, seed, cell)
    order = order[np.argsort(np.bincount(cell)[cell[order]] == 1, kind="stable")]
    val, train = np.split(order, [max(1, round(fraction * n))])
    if len(np.unique(rows.codes[train])) < len(rows.classes):
        warnings.warn(
            f"{n} rows are too few to hold any out: the training rows decide when to stop and give "
            "the temperatures",
            UserWarning,
            stacklevel=3,
        )
        val = train = np.arange(n)
    val, train = np.sort(val), np.sort(train)
    return prepared(rows, rows.group, (train, val, val))
