"""Intervals of proportional equality, the largest difference of two ratios of rates."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from equipoise.auditing._distributions import ndtr, ndtri
from equipoise.auditing._intervals._figures import RATES, Ends, Interval, scatter_of
from equipoise.auditing._intervals._spread import Floats, Spread
from equipoise.metrics import ratio

Positions = NDArray[np.intp]

STEP = 1 << 14
"""Comparisons computed at a time: all pairs of a thousand groups are a million."""

FEW = 200
"""Most comparisons whose joint noise is simulated; for more, Bonferroni's correction is used."""


@dataclasses.dataclass(frozen=True)
class _Rates:
    """Rates of labels and model (group, class), their variances and their covariance."""

    label: Floats
    model: Floats
    label_var: Floats
    model_var: Floats
    both: Floats

    def gap(self, g: Positions, ref: Positions, k: Positions) -> Floats:
        """Return the differences of the two ratios."""
        with np.errstate(invalid="ignore"):
            data = ratio(self.label[g, k], self.label[ref, k])
            return np.asarray(data - ratio(self.model[g, k], self.model[ref, k]))

    def ends(self, g: Positions, ref: Positions, k: Positions, z: float) -> Ends:
        """Return the interval of the size of each difference, nan where it is undefined.

        With rates r, q of a group and s, t of its reference, r/s - q/t = x is the same as
        r t - q s - x s t = 0, which is closer to normal (Fieller); its variance is
        c0 + c1 x + c2 x^2, and the x that it does not reject lie between two roots.
        """
        r, q, s, t = self.label[g, k], self.model[g, k], self.label[ref, k], self.model[ref, k]
        vl, vq, c = self.label_var[ref, k], self.model_var[ref, k], self.both[ref, k]
        own = (
            t**2 * self.label_var[g, k] + s**2 * self.model_var[g, k] - 2 * t * s * self.both[g, k]
        )
        c0 = own + q**2 * vl + r**2 * vq - 2 * q * r * c
        c1 = 2 * (q * t * vl - r * s * vq - (r * t - q * s) * c)
        c2 = t**2 * vl + s**2 * vq + 2 * t * s * c
        height, slope = r * t - q * s, s * t
        a, b = slope**2 - z**2 * c2, height * slope + z**2 * c1 / 2
        root = np.sqrt(np.maximum(b**2 - a * (height**2 - z**2 * c0), 0.0))
        # no bound where the denominator may be 0
        low = np.where(a > 0, ratio(b - root, a), -np.inf)
        high = np.where(a > 0, ratio(b + root, a), np.inf)
        undefined = np.isnan(self.gap(g, ref, k)) | np.isnan(c0)
        low, high = np.maximum(np.maximum(low, -high), 0.0), np.maximum(high, -low)
        return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)

    def noise(
        self, g: Positions, ref: Positions, k: Positions, rng: np.random.Generator, replicates: int
    ) -> Floats:
        """Draw the noise of each difference (replicate, difference), up to its scale."""
        groups, place = np.unique(np.stack([g, ref]), return_inverse=True)
        own, other = place.reshape(2, -1)
        label_var, model_var, both = (
            v[groups] for v in (self.label_var, self.model_var, self.both)
        )
        draws = rng.standard_normal((2, replicates, *label_var.shape))
        if label_var.shape[1] == 2:  # the two classes mirror each other
            draws[..., 1] = -draws[..., 0]
        label = draws[0] * np.sqrt(label_var)
        slope = np.nan_to_num(ratio(both, label_var), posinf=0.0)
        model = slope * label + draws[1] * np.sqrt(np.maximum(model_var - slope * both, 0.0))
        r, q, s, t = self.label[g, k], self.model[g, k], self.label[ref, k], self.model[ref, k]
        return np.asarray(
            t * label[:, own, k]
            - s * model[:, own, k]
            - ratio(t * r, s) * label[:, other, k]
            + ratio(s * q, t) * model[:, other, k]
        )


def _rates(spread: Spread, kind: str) -> tuple[Floats, Floats, Floats]:
    """Return rates, their variances and their covariances with those of the labels."""
    moments, name = spread.moments, RATES[kind]
    mean, var, n = moments.mean[name], moments.variance(name), moments.rows[:, None]
    if name == "prob":
        # one row shows no variance; p - p**2 is the largest possible
        var = np.where(n > 1, var, mean - mean**2)
    else:
        # a label that no row has may still be rare: one more row with it and one without
        rows = ratio(np.ones(1), scatter_of(spread, name))
        near = (mean * rows + 1) / (rows + 2)
        var = ratio(near * (1 - near), rows)
    return mean, var, moments.covariance(name)


def ratio_interval(
    spread: Spread,
    kind: str,
    data: Floats | None,
    counts: Floats | None,
    pairs: list[tuple[int, int]],
    z: float,
    rng: np.random.Generator,
    replicates: int,
) -> Interval:
    """Return the interval of one kind of proportional equality.

    `data` are the rates of the training labels (group, class) and `counts` their rows, or None for
    those of these labels. The upper end is the largest of all comparisons; the lower end is a
    simultaneous bound of those that may be the largest.
    """
    # few units say little about how much they vary
    wider = (spread.moments.student(float(ndtr(-z))) / z)[:, None] ** 2
    label, label_var, _ = _rates(spread, "labels")
    model, model_var, both = _rates(spread, kind)
    label_var, model_var, both = (np.minimum(wider, 1e9) * v for v in (label_var, model_var, both))
    if data is not None:
        assert counts is not None
        rows = np.minimum(counts, 1e15)[:, None]  # rates without rows are exact
        near = (data * rows + 1) / (rows + 2)
        label_var = near * (1 - near) / rows
        label, both = data, np.zeros_like(data)
    rates = _Rates(label, model, label_var, model_var, both)
    classes = label.shape[1]
    of = np.repeat(np.array(pairs, dtype=np.intp), classes, axis=0)
    g, ref, k = of[:, 0], of[:, 1], np.tile(np.arange(classes), len(pairs))
    low, high, endless = np.empty(len(k)), np.empty(len(k)), np.empty(len(k), bool)
    for start in range(0, len(k), STEP):
        part = slice(start, start + STEP)
        low[part], high[part] = rates.ends(g[part], ref[part], k[part], z)
        endless[part] = np.isinf(rates.gap(g[part], ref[part], k[part]))
    known = ~np.isnan(low)
    if not known.any():
        return Interval(float("nan"), float("nan"))
    most = np.inf if endless[known].any() else max(0.0, float(high[known].max()))
    contend = np.flatnonzero(known & ~endless & (high >= low[known].max()))
    if not len(contend):
        return Interval(0.0, most)
    g, ref, k = g[contend], ref[contend], k[contend]
    if len(contend) > FEW:
        z = float(-ndtri(ndtr(-z) / (len(contend) / (2 if classes == 2 else 1))))
    elif len(contend) > 1:
        noise = rates.noise(g, ref, k, rng, replicates)
        scale = noise.std(0)
        size = np.abs(ratio(noise[:, scale > 0], scale[scale > 0])).max(-1, initial=0.0)
        # np.quantile would import numpy.ma
        at = float(2 * ndtr(z) - 1) * (len(size) - 1)
        z = max(float(np.interp(at, np.arange(len(size)), np.sort(size))), z)
    least = [
        float(rates.ends(g[at : at + STEP], ref[at : at + STEP], k[at : at + STEP], z)[0].max())
        for at in range(0, len(k), STEP)
    ]
    return Interval(max(0.0, *least), most)
