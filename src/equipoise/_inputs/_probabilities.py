"""Probabilities and weights as arrays, and every error about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise._inputs._categories import encode
from equipoise._inputs._columns import column, same_length
from equipoise._inputs._names import counted

MOST_BINS = 1_000
"""Most confidence bins: finer ones hold hardly any rows, and cost memory and time."""

ROW_SUM_TOLERANCE = 1e-3
"""Largest deviation from 1 of the sum of a row; rows are checked, never rescaled."""

NO_PROBABILITY = "drop those rows or repair the model's output"
NOT_WITHIN = "pass probabilities (apply softmax to logits)"
NOT_ONE = "pass one column of probabilities per class, and only those"


def matrix(values: Any, name: str) -> NDArray[Any]:
    """Return probabilities or logits as a numeric array of one or two axes."""
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    array = native.to_numpy() if native is not values else np.asarray(values)
    if array.dtype == object:
        try:
            array = np.array(array.tolist(), dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must hold numbers only") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must be (n,) or (n, classes), got shape {array.shape}")
    if array.ndim == 2 and array.shape[1] < 2:
        raise ValueError(
            f"{name} has {array.shape[1]} column(s); pass two or more, or a one-dimensional array "
            "for the positive class of a binary problem"
        )
    if not len(array):
        raise ValueError(f"{name} is empty")
    return array


def check_bins(n_bins: Any) -> None:
    """Raise unless the number of bins is an integer from 1 to MOST_BINS."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}")
    if n_bins > MOST_BINS:
        raise ValueError(f"n_bins must be at most {MOST_BINS:,}, got {n_bins!r}")


def class_count(array: NDArray[Any]) -> int:
    """Return the number of classes K: two where only the positive class was passed."""
    return 2 if array.ndim == 1 else int(array.shape[1])


def probability_slice(
    y_prob: NDArray[Any], rows: slice, n_bins: int | None = None
) -> NDArray[np.float64]:
    """Return the checked probabilities of some rows as float64, laid out (class, row).

    With `n_bins`, a number of a shorter type that is a bin's edge, rounded, becomes that edge.
    """
    part = y_prob[rows]
    if n_bins is not None and part.dtype.kind == "f" and part.dtype.itemsize < 8:
        part = _on_edges(part, n_bins)
    out = np.empty((class_count(y_prob), len(part)))
    if part.ndim == 1:
        out[1] = part
        np.subtract(1.0, out[1], out=out[0])
    else:
        np.copyto(out, part.T)
    # NaN fails these comparisons too
    valid = out.min() >= 0.0 and out.max() <= 1.0
    if not valid or not (np.abs(out.sum(axis=0) - 1.0).max() <= ROW_SUM_TOLERANCE):
        _refuse_probabilities(part, out, rows.start)
    return out


def _on_edges(prob: NDArray[Any], n_bins: int) -> NDArray[np.float64]:
    """Return float64, where 0.2 of float32, which is a little more than 0.2, becomes 0.2."""
    wide = prob.astype(np.float64)
    edge = np.rint(wide * n_bins) / n_bins
    # out of range, as logits are, they are refused later
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(edge.astype(prob.dtype) == prob, edge, wide)


def _within(prob: NDArray[Any]) -> NDArray[np.bool_]:
    return (prob >= 0.0) & (prob <= 1.0)


def _sums_to_one(total: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(np.abs(total - 1.0) <= ROW_SUM_TOLERANCE)


def _refuse_probabilities(part: NDArray[Any], out: NDArray[np.float64], start: int) -> None:
    total = out.sum(axis=0)
    first = int(np.argmin(_within(out).all(axis=0) & _sums_to_one(total)))
    row = np.atleast_1d(part[first]).astype(np.float64)
    where = f"y_prob, row {start + first}: {[float(f'{v:.6g}') for v in row[:6]]}"
    if np.isnan(row).any():
        raise ValueError(f"{where} contains NaN; {NO_PROBABILITY}")
    if not _within(row).all():
        raise ValueError(f"{where} is not within 0..1; {NOT_WITHIN}")
    raise ValueError(f"{where} sums to {total[first]:.6g}, not 1; {NOT_ONE}")


def probability_faults(
    columns: Sequence[NDArray[Any]], names: Sequence[str]
) -> Iterator[tuple[NDArray[np.bool_], str, str, str]]:
    """Check columns of probabilities by the rules of `probability_slice`.

    For each kind of fault, yield the rows that have it, its name, its first value, and the remedy.
    """
    sound = np.ones(len(columns[0]), bool)
    for name, values in zip(names, columns, strict=True):
        missing = np.isnan(values)
        yield missing, f"column {name!r} has no probability (missing or NaN)", "", NO_PROBABILITY
        outside = ~missing & ~_within(values)
        first = f" (the first: {values[np.argmax(outside)]:.6g})"
        yield outside, f"column {name!r} is not within 0..1", first, NOT_WITHIN
        sound &= ~missing & ~outside
    if len(columns) > 1:
        total = np.stack(columns).sum(axis=0, dtype=np.float64)
        off = sound & ~_sums_to_one(total)
        first = f" (the first sum: {total[np.argmax(off)]:.6g})"
        yield off, f"columns {', '.join(names)} do not sum to 1", first, NOT_ONE


def check_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return one column of numbers as float64."""
    try:
        return np.asarray(column(values, name), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be one column of numbers: {error}") from None


def check_weights(sample_weight: Any, n: int) -> NDArray[np.float64] | None:
    """Return the weights as float64, or None; they must be finite, not negative, not all zero."""
    if sample_weight is None:
        return None
    weight = check_numbers(sample_weight, "sample_weight")
    same_length(n, sample_weight=weight)
    for fault, bad in (
        ("missing", np.isnan(weight)),
        ("infinite", np.isinf(weight)),
        ("negative", weight < 0),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"sample_weight, row {first}: {weight[first]} ({fault}, in "
                f"{counted(int(bad.sum()), 'row')}); weights are finite and not negative"
            )
    if not weight.any():
        raise ValueError("sample_weight is zero in every row; pass the weight of each row, or none")
    return weight


def encode_clusters(clusters: Any) -> NDArray[np.signedinteger[Any]]:
    """Return the number of each row's cluster, from 0; -1 where it is missing."""
    ids = column(clusters, "clusters")
    if ids.dtype.kind not in "iuf":
        return encode(ids, "clusters")[0]
    # most ids differ, and sorting all of them at once is the fastest then
    codes = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    codes[np.isnan(ids)] = -1
    return codes


def check_clusters(
    clusters: Any, n: int, beside: str = "y_prob"
) -> NDArray[np.signedinteger[Any]] | None:
    """Return the number of each row's cluster, from 0, or None; every row must have one."""
    if clusters is None:
        return None
    codes = encode_clusters(clusters)
    if len(codes) != n:
        raise ValueError(f"clusters has {len(codes)} rows, but {beside} has {n}")
    missing = codes < 0
    if missing.any():
        raise ValueError(
            f"clusters has {counted(int(missing.sum()), 'missing value')}, the first in row "
            f"{int(np.argmax(missing))}; drop those rows, or give each an id of its own"
        )
    return codes
