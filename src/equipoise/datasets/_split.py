"""Training, validation and test parts, and the preprocessing fitted on the training part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FORMAT = "equipoise.Preprocessor/1"

CELLS = 1 << 16
"""Numbers that are standardised at a time: they stay in the cache, which halves the time."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Preprocessor:
    """Impute the mean, flag what was missing, standardise; all as fitted on the training rows.

    Attributes
    ----------
    columns
        Names of the raw features.
    flagged
        Positions of the features with a missing value in the training rows. Each adds a column
        behind all others, 1 where the value is missing.
    fill
        (feature,) value that replaces a missing one.
    mean, scale
        (output,) subtracted first, then divided by; the scale of a constant is 1.
    """

    columns: tuple[str, ...]
    flagged: tuple[int, ...]
    fill: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, X: NDArray[Any], columns: Sequence[str]) -> Preprocessor:
        """Learn from the training rows, (row, feature)."""
        raw = np.asarray(X, np.float64)
        missing = np.isnan(raw)
        flagged = tuple(int(j) for j in np.flatnonzero(missing.any(axis=0)))
        fill = np.zeros(raw.shape[1])
        np.divide(
            np.where(missing, 0, raw).sum(axis=0),
            (~missing).sum(axis=0),
            out=fill,
            where=~missing.all(axis=0),
        )
        # the mean of a constant is that constant, not its sum divided by its count
        low = np.where(missing, np.inf, raw).min(axis=0)
        constant = low == np.where(missing, -np.inf, raw).max(axis=0)
        fill[constant] = low[constant]
        full = _filled(raw, flagged, fill)
        mean = full.mean(axis=0)
        constant = (full == full[0]).all(axis=0)
        mean[constant] = full[0, constant]
        scale = np.where(constant, 1.0, full.std(axis=0))
        return cls(tuple(columns), flagged, fill, mean, scale)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns that `transform` gives."""
        return self.columns + tuple(f"{self.columns[j]} missing" for j in self.flagged)

    def transform(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return raw rows imputed, flagged and standardised, (row, output)."""
        raw = np.asarray(X, np.float64)
        if raw.ndim != 2 or raw.shape[1] != len(self.columns):
            raise ValueError(f"X must be (row, feature={len(self.columns)}), got {raw.shape}")
        result = np.empty((len(raw), len(self.mean)), np.float32)
        step = max(1, CELLS // max(1, len(self.mean)))
        for start in range(0, len(raw), step):
            full = _filled(raw[start : start + step], self.flagged, self.fill)
            full -= self.mean
            full /= self.scale
            result[start : start + step] = full
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the preprocessor as plain numbers, strings and lists, ready for JSON."""
        return {
            "format": _FORMAT,
            "columns": list(self.columns),
            "flagged": list(self.flagged),
            "fill": self.fill.tolist(),
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Preprocessor:
        """Read what `to_dict` wrote; anything else is refused."""
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise ValueError(f"not a preprocessor: expected 'format': {_FORMAT!r}")
        try:
            columns, flagged = tuple(data["columns"]), tuple(map(int, data["flagged"]))
            fill, mean, scale = (np.array(data[k], np.float64) for k in ("fill", "mean", "scale"))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"damaged preprocessor: {error!r}") from None
        width = len(columns) + len(flagged)
        if (
            (fill.shape, mean.shape, scale.shape) != ((len(columns),), (width,), (width,))
            or not all(0 <= j < len(columns) for j in flagged)
            or not np.isfinite(np.concatenate([fill, mean, scale])).all()
            or not (scale > 0).all()
        ):
            raise ValueError("damaged preprocessor: its numbers do not fit its columns")
        return cls(columns, flagged, fill, mean, scale)


def _filled(
    raw: NDArray[np.float64], flagged: tuple[int, ...], fill: NDArray[np.float64]
) -> NDArray[np.float64]:
    missing = np.isnan(raw)
    return np.concatenate([np.where(missing, fill, raw), missing[:, list(flagged)]], axis=1)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Part:
    """Some rows of a dataset, preprocessed; `rows` says which, in ascending order."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    group: NDArray[np.int64]
    rows: NDArray[np.int64]
    weight: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        return f"Part({len(self.y):,} rows, {self.X.shape[1]} columns)"


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test parts of a dataset, and the preprocessor they went through."""

    train: Part
    val: Part
    test: Part
    preprocessor: Preprocessor


def shuffled(n: int, seed: int, cells: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return rows 0..n-1 in random order; every stretch of them has its share of each cell."""
    order = np.random.default_rng(seed).permutation(n)
    if cells is None:
        return order
    # the k-th of a cell's m rows stands at (k + 1/2) / m
    by_cell = order[np.argsort(cells[order], kind="stable")]
    _, first, size = np.unique(cells[by_cell], return_index=True, return_counts=True)
    place = np.arange(n) - np.repeat(first, size)
    key = np.empty(n)
    key[by_cell] = (place + 0.5) / np.repeat(size, size)
    return order[np.argsort(key[order], kind="stable")]


def split_rows(
    n: int, seed: int, cells: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of training, validation and test: the rest, n // 8, and n / 8 rounded up.

    With `cells` (row,), each of the three has its share of every cell, up to rounding.
    """
    if n < 8:
        raise ValueError(f"{n} rows cannot be split 6:1:1; at least 8 are needed")
    order = shuffled(n, seed, cells)
    n_test, n_val = -(-n // 8), n // 8
    test, val, train = np.split(order, [n_test, n_test + n_val])
    return np.sort(train), np.sort(val), np.sort(test)
