"""Worlds with a known truth for the tests of pooling and of the choice of a method.

The worlds that the defaults were tuned on had other forms, sizes and seeds.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.special import expit, softmax

SIZES = {"2-5": (2, 5), "6-20": (6, 20), "21-100": (21, 100), "101-500": (101, 500)}
SIZES["501-5000"] = (501, 5000)
"""Classes of group sizes."""


@dataclasses.dataclass(frozen=True)
class World:
    """Rows of several groups, and what is true of new rows."""

    z: np.ndarray  # (row, class): logits of a model
    y: np.ndarray
    group: np.ndarray
    weight: np.ndarray | None
    sizes: list[str]  # class of each group's size
    differ: float  # how far the groups differ
    scores: Callable  # group, rows -> new logits
    truth: Callable  # group, logits -> true probabilities

    def held_out(self, group, rows=20_000):
        """Return new logits of a group, and their true probabilities."""
        z = self.scores(group, rows)
        return z, self.truth(group, z)


def expected_loss(prob, truth):
    """Return the log-loss that labels drawn from the truth would have on average."""
    return float(-(truth * np.log(np.maximum(prob, 1e-300))).sum(axis=1).mean())


def drawn(rng, prob):
    """Draw a class for each row."""
    return (rng.random((len(prob), 1)) > prob.cumsum(axis=1)[:, :-1]).sum(axis=1)


FORMS = ("affine", "affine", "slopes", "shifts", "noisy", "bent")


def world(seed, forms=FORMS):
    """Make a world; its groups differ from not at all to strongly."""
    rng = np.random.default_rng([2024, seed])
    classes = 3 if seed % 6 == 5 else 2
    count, form = int(rng.integers(2, 13)), forms[seed % len(forms)]
    differ = float(rng.choice([0.0, 0.15, 0.4, 0.8]))
    sizes = [str(name) for name in rng.choice(list(SIZES), count)]
    if seed % 3 == 0:
        sizes[0] = "501-5000"
    rows = [int(rng.integers(SIZES[s][0], SIZES[s][1] + 1)) for s in sizes]

    slope = rng.uniform(0.3, 1.6) * np.exp(differ * rng.uniform(-1.0, 1.0, count))
    bias = rng.normal(scale=0.4, size=classes) + differ * rng.normal(size=(count, classes))
    if form == "slopes":
        bias = np.zeros((count, classes))
    if form == "shifts":
        slope[:] = slope[0]
    wrong = np.clip(rng.uniform(0.0, 0.1) + 0.1 * differ * rng.normal(size=count), 0.0, 0.3)
    kink = np.exp(0.5 * differ * rng.normal(size=count) - 0.4)
    # the first class has most rows: the others have from one half down to a few per cent
    centre = np.array([rng.uniform(0.0, 3.0), *np.zeros(classes - 1)])
    centre = centre + 0.4 * rng.normal(size=(count, classes))
    spread = rng.uniform(0.7, 2.5)

    def scores(g, n):
        return centre[g] + spread * rng.logistic(size=(n, classes)) * 0.6

    def truth(g, z):
        f = slope[g] * z + bias[g]
        if form == "noisy":  # labels flipped at random
            return (1.0 - wrong[g]) * softmax(f, axis=1) + wrong[g] / classes
        if form == "bent" and classes == 2:  # another slope for each side
            odds = f[:, 1] - f[:, 0]
            odds = np.where(odds > 0.0, kink[g] * odds, odds)
            return np.stack([expit(-odds), expit(odds)], axis=1)
        if form == "bent":
            f = f - f.mean(axis=1, keepdims=True)
            return softmax(np.sign(f) * np.abs(f) ** 0.7, axis=1)
        return softmax(f, axis=1)

    while True:
        parts = [scores(g, n) for g, n in enumerate(rows)]
        y = np.concatenate([drawn(rng, truth(g, z)) for g, z in enumerate(parts)])
        if np.bincount(y, minlength=classes).min() >= 2:
            break
        rows[0] += 20  # a class without rows is an error
        sizes[0] = next(name for name, (_, most) in SIZES.items() if rows[0] <= most)
    weight = rng.gamma(3.0, size=len(y)) if seed % 4 == 1 else None
    group = np.repeat(np.arange(count), rows)
    return World(np.concatenate(parts), y, group, weight, sizes, differ, scores, truth)
