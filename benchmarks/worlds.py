"""Simulated worlds whose true figures are known, for `statements.py` to judge audits by.

A world draws scores `p` and the true probabilities `eta` of every class given what the scores are
drawn from; labels follow `eta`. Nothing here imports equipoise.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

N_BINS = 15
PERSON = 10
"""Rows of a person, in worlds with clusters."""
CORRELATION = 0.6
"""Of two labels of a person, given equal scores."""

Array = np.ndarray
Scores = Callable[[np.random.Generator, Array, Array], tuple[Array, Array]]
"""Generator, group and part of each row -> p and eta, (n,) of the positive class or (n, K)."""
Weights = Callable[[np.random.Generator, Array, Array], tuple[Array, Array]]
"""Generator, p (n, K) and group -> weights, and their expectation given p and group."""


@dataclasses.dataclass(frozen=True)
class Power:
    """How often the group must be called miscalibrated at this tolerance."""

    group: str
    tolerance: float
    target: float


@dataclasses.dataclass(frozen=True)
class World:
    """A population and the sizes of its groups in a sample.

    `clusters` is "shared" (the rows of a person have one score), "own" (each its own), "uneven"
    (the same, with 1 to 30 rows a person) or "across" (a person's rows lie in several groups).
    `train` is the number of training rows, of which only group and label are known.
    With `by_chance` the sizes are expectations.
    """

    name: str
    scores: Scores
    sizes: Mapping[str, int]
    weights: Weights | None = None
    clusters: str = ""
    by_chance: bool = False
    parts: int = 1
    train: int = 0
    float32: bool = False
    power: Power | None = None


@dataclasses.dataclass(frozen=True)
class Rows:
    """A draw; `p` and `eta` are (n, K), group and part are codes."""

    group: Array
    part: Array
    p: Array
    eta: Array
    y: Array
    weight: Array
    expected_weight: Array
    cluster: Array


# --- drawing ---------------------------------------------------------------------------------


def generator(world: World, *seed: int) -> np.random.Generator:
    """Return the world's own generator, whatever other worlds are run."""
    return np.random.default_rng([zlib.crc32(world.name.encode()), *seed])


def draw(world: World, rng: np.random.Generator, sizes: Mapping[str, int] | None = None) -> Rows:
    """Draw rows of each group, in the world's sizes or in these."""
    counts = [(sizes or world.sizes)[g] for g in world.sizes]
    if world.by_chance and sizes is None:
        counts = rng.multinomial(sum(counts), np.array(counts) / sum(counts)).tolist()
    group = np.repeat(np.arange(len(counts)), counts)
    n = len(group)
    # the parts take turns within a group, so that every part has rows of every group
    part = np.concatenate([np.arange(c) for c in counts]) % world.parts
    cluster = _persons(world.clusters, counts)
    if world.clusters == "shared":
        first = np.unique(cluster, return_index=True)[1]
        p, eta = (v[cluster] for v in world.scores(rng, group[first], part[first]))
    else:
        p, eta = world.scores(rng, group, part)
    if p.ndim == 1:
        if world.float32:
            p = p.astype(np.float32)
        p, eta = (np.column_stack([1 - v, v]) for v in (p, eta))
    u = rng.random(n)
    if world.clusters:
        # two rows both follow their person's draw with probability CORRELATION
        follows = rng.random(n) < np.sqrt(CORRELATION)
        u = np.where(follows, rng.random(cluster.max() + 1)[cluster], u)
    y = np.minimum((u[:, None] >= np.cumsum(eta, 1)).sum(1), p.shape[1] - 1)
    weight = expected = np.ones(n)
    if world.weights is not None:
        weight, expected = world.weights(rng, p, group)
    return Rows(group, part, p, eta, y, weight, expected, cluster)


def _persons(clusters: str, counts: list[int]) -> Array:
    """Return the person of each row; without clusters, every row is one."""
    if clusters == "across":
        return np.concatenate([np.arange(c) // (PERSON // 2) for c in counts])
    rows = np.arange(sum(counts))
    if clusters == "uneven":
        # 1, 3, 6, 10 and 30 rows in turn, 10 on average; a person has rows of one group
        starts = np.cumsum([0, *counts])[:-1]
        inside = rows - np.repeat(starts, counts)
        turn = inside // 50 * 5 + np.searchsorted([1, 4, 10, 20], inside % 50, side="right")
        return np.unique(np.repeat(starts, counts) + turn, return_inverse=True)[1]
    return rows // PERSON if clusters else rows


# --- scores: group 0 is calibrated everywhere, the odd groups are those that are wrong ---------


def _wrong(group: Array) -> Array:
    return group % 2 == 1


def _risks(rng: np.random.Generator, group: Array) -> Array:
    """Risks whose distribution, and so the base rate, differs between groups."""
    return rng.beta(1.1 + 0.4 * (group % 3), 1.4 + 0.3 * (group % 2))


def calibrated(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
    """Scores that are the true probabilities."""
    p = _risks(rng, group)
    return p, p


def shifted(by: float, other: float = 0.0) -> Scores:
    """Every risk of the odd groups is `by` too high (too low if negative), of the even `other`."""
    room = max(abs(by), abs(other))

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        eta = room + (1 - 2 * room) * _risks(rng, group)
        return eta + np.where(_wrong(group), by, other), eta

    return scores


def uniform_shift(by: float) -> Scores:
    """Uniform risks, so that the accuracy is about .75; those of the odd groups shifted."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        eta = (1 - by) * rng.random(len(group))
        return eta + by * _wrong(group), eta

    return scores


def overconfident(by: float) -> Scores:
    """Confidence of the odd groups `by` above the accuracy, which is about .75."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        right = 0.5 + (0.5 - by) * rng.beta(2.0, 1.5, len(group))
        says = right + by * _wrong(group)
        yes = rng.random(len(group)) < 0.35 + 0.1 * (group % 3)
        return np.where(yes, says, 1 - says), np.where(yes, right, 1 - right)

    return scores


def temperature(t: float) -> Scores:
    """Logits of the odd groups multiplied by `t`."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        eta = np.clip(_risks(rng, group), 1e-6, 1 - 1e-6)
        logit = np.log(eta / (1 - eta)) * np.where(_wrong(group), t, 1.0)
        return 1 / (1 + np.exp(-logit)), eta

    return scores


def heavy_tailed(t: float) -> Scores:
    """Beta(.3, .3): most scores are near 0 or 1; the odd groups' risks are drawn to .5 by `t`."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        p = np.clip(rng.beta(0.3, 0.3, len(group)), 1e-9, 1 - 1e-9)
        return p, np.where(_wrong(group), p + t * (0.5 - p), p)

    return scores


def seven(wrong: bool) -> Scores:
    """Seven scores, four of them on the edges of bins; two of them may be wrong."""
    p = np.array([0.04, 0.2, 0.33, 0.4, 0.5, 0.8, 0.93])
    eta = np.array([0.04, 0.28, 0.33, 0.4, 0.5, 0.72, 0.93]) if wrong else p

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        at = rng.choice(7, len(group), p=[0.22, 0.2, 0.1, 0.18, 0.05, 0.15, 0.1])
        return p[at], np.where(_wrong(group), eta[at], p[at])

    return scores


def four_classes(error: str) -> Scores:
    """Four classes; in the odd groups one is too high, or one too high and another too low."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        alpha = np.array([[1.6, 1.0, 0.7, 0.4], [0.8, 1.2, 0.9, 0.6]])[group % 2]
        drawn = rng.gamma(alpha)
        eta = 0.08 + 0.68 * drawn / drawn.sum(1, keepdims=True)
        wrong = _wrong(group)[:, None]
        if error == "one up":
            return np.where(wrong, 0.93 * eta + 0.07 * np.eye(4)[2], eta), eta
        if error == "up and down":
            return eta + 0.07 * wrong * (np.eye(4)[1] - np.eye(4)[3]), eta
        return eta, eta

    return scores


def rare(spread: bool) -> Scores:
    """1.6% positives, with scores that differ, or one score for everyone."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        p = rng.beta(0.5, 30.75, len(group)) if spread else np.full(len(group), 0.016)
        return p, p

    return scores


def rare_decided(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
    """1.6% positives, half of whom are recognised with near certainty."""
    seen = rng.random(len(group)) < 0.009
    p = np.where(seen, rng.uniform(0.8, 0.98, len(group)), rng.beta(0.4, 48.0, len(group)))
    return p, p


def perfect(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
    """Scores that are the labels, in groups with different base rates."""
    y = (rng.random(len(group)) < 0.25 + 0.12 * (group % 4)).astype(float)
    return y, y


def forest(wrong: bool) -> Scores:
    """Votes of 20 trees, many of them all 0 or all 1; in odd groups 0 and 1 may be wrong."""

    def scores(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
        p = rng.binomial(20, rng.beta(0.5, 0.8, len(group))) / 20
        off = wrong & _wrong(group)
        return p, np.where(off, 0.06 + 0.88 * p, p)

    return scores


def middle(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
    """Risks of the odd groups 15 points too high around one half: the top label's errors cancel."""
    p = rng.beta(1.6, 1.6, len(group))
    around = (p > 1 / 3) & (p <= 2 / 3) & _wrong(group)
    return p, p - 0.15 * around


def sawtooth(rng: np.random.Generator, group: Array, _: Array) -> tuple[Array, Array]:
    """Errors that cancel within each bin: too low in its lower half, too high in the other."""
    p = rng.uniform(1 / N_BINS, 1 - 1 / N_BINS, len(group))
    upper = (p * N_BINS) % 1 > 0.5
    return p, p + np.where(_wrong(group), np.where(upper, -0.06, 0.06), 0.0)


def one_part(rng: np.random.Generator, group: Array, part: Array) -> tuple[Array, Array]:
    """All is well but in part 3, where the odd groups' risks are 30 points too high."""
    eta = 0.7 * _risks(rng, group)
    return eta + 0.3 * (_wrong(group) & (part == 3)), eta


# --- weights ---------------------------------------------------------------------------------


def lognormal(rng: np.random.Generator, p: Array, group: Array) -> tuple[Array, Array]:
    """Weights with a coefficient of variation of about 1, larger in the odd groups."""
    level = np.where(_wrong(group), 1.5, 1.0)
    return level * rng.lognormal(-0.32, 0.8, len(p)), level


def by_score(rng: np.random.Generator, p: Array, group: Array) -> tuple[Array, Array]:
    """Lognormal weights that grow with the score, as of a survey that left some people out."""
    level = np.exp(1.5 * p[:, 1]) * np.where(_wrong(group), 0.7, 1.0)
    return level * rng.lognormal(-0.18, 0.6, len(p)), level


def pareto(tail: float) -> Weights:
    """Weights whose variance is large (tail index 2.5), or infinite (1.5)."""

    def weights(rng: np.random.Generator, p: Array, _: Array) -> tuple[Array, Array]:
        return 1 + rng.pareto(tail, len(p)), np.ones(len(p))

    return weights


# --- the worlds ------------------------------------------------------------------------------

TWO = {"A": 3000, "B": 1800}
SMALL = {"S": 60, "T": 25, "U": 12, "V": 5}
EIGHT = dict(zip("ABCDEFGH", (5000, 2500, 1200, 500, 250, 100, 50, 20), strict=True))
RARE = dict(zip("ABCDEFGH", (4000, 3000, 2000, 1500, 1000, 800, 600, 400), strict=True))
PEOPLE = {"A": 3000, "B": 2000}
FEW_PEOPLE = {**PEOPLE, "S": 100, "T": 50}
MONTHS = {"A": 4800, "B": 2400, "C": 1920, "D": 960}


def _both(name: str, scores: Scores, sizes: Mapping[str, int] = TWO, **options: Any) -> list[World]:
    """Make a world without and with small groups."""
    small = FEW_PEOPLE if sizes is PEOPLE else {**sizes, **SMALL}
    return [
        World(name, scores, sizes, **options),
        World(f"{name}, small groups", scores, small, **options),
    ]


def _power(name: str, scores: Scores, rows: int, tolerance: float, target: float) -> World:
    return World(name, scores, {"A": rows, "B": rows}, power=Power("B", tolerance, target))


WORLDS = {
    world.name: world
    for world in [
        *_both("calibrated", calibrated),
        World("calibrated, groups by chance", calibrated, EIGHT, by_chance=True),
        *_both("shifted by 3 points", shifted(0.03)),
        *_both("shifted by 15 points", shifted(0.15)),
        World("shifted by 15 points, groups by chance", shifted(0.15), TWO, by_chance=True),
        World("shifted down by 8 points", shifted(-0.08), TWO),
        *_both("over-confident by 5 points", overconfident(0.05)),
        *_both("over-confident by temperature", temperature(1.6)),
        World("under-confident by temperature", temperature(0.65), TWO),
        *_both("Beta(.3, .3)", heavy_tailed(0.0)),
        World("Beta(.3, .3), over-confident", heavy_tailed(0.12), TWO),
        *_both("7 scores", seven(wrong=False)),
        World("7 scores, two wrong", seven(wrong=True), TWO),
        World("7 scores, two wrong, float32", seven(wrong=True), TWO, float32=True),
        *_both("4 classes", four_classes("")),
        *_both("4 classes, one too high", four_classes("one up")),
        World("4 classes, one up and one down", four_classes("up and down"), TWO),
        World("8 groups of 20 to 5,000", calibrated, EIGHT),
        World("8 groups of 20 to 5,000, shifted by 10 points", shifted(0.10), EIGHT),
        World("1.6% positives, 8 groups", rare(spread=True), RARE),
        World("1.6% positives, 8 groups, one score", rare(spread=False), RARE),
        World("1.6% positives, 8 groups, half recognised", rare_decided, RARE),
        World(
            "1.6% positives, groups of 2 to 20",
            rare(spread=True),
            {"A": 3000, "B": 20, "C": 10, "D": 5, "E": 2},
        ),
        World(
            "1.6% positives, groups of 20 to 160",
            rare(spread=True),
            {"A": 3000, "B": 160, "C": 80, "D": 40, "E": 20},
        ),
        *_both("perfect model, 1,000 training rows", perfect, {"A": 2000, "B": 1500}, train=1000),
        *_both("calibrated, 1,000 training rows", calibrated, train=1000),
        *_both("clusters, shared scores", calibrated, PEOPLE, clusters="shared"),
        *_both("clusters, own scores", calibrated, PEOPLE, clusters="own"),
        World(
            "clusters across groups",
            calibrated,
            {"A": 2500, "B": 2500, "C": 500},
            clusters="across",
        ),
        World("clusters of 1 to 30 rows", calibrated, FEW_PEOPLE, clusters="uneven"),
        World("clusters, shifted by 10 points", shifted(0.10), PEOPLE, clusters="own"),
        *_both("lognormal weights", calibrated, weights=lognormal),
        World("lognormal weights by score, over-confident", temperature(1.6), TWO, by_score),
        *_both("Pareto 2.5 weights", calibrated, weights=pareto(2.5)),
        World("Pareto 1.5 weights", calibrated, TWO, pareto(1.5)),
        World("Pareto 1.5 weights, shifted by 10 points", shifted(0.10), TWO, pareto(1.5)),
        World("24 parts x 4 groups", calibrated, MONTHS, parts=24),
        World("24 parts x 4 groups, one part wrong", one_part, MONTHS, parts=24),
        *_both("forest with 0 and 1", forest(wrong=False)),
        World("forest with 0 and 1, both wrong", forest(wrong=True), TWO),
        *_both("error .03, inside the tolerance", overconfident(0.03)),
        *_both("error .10, twice the tolerance", overconfident(0.10)),
        World(
            "errors .05 and .052, at the tolerance", shifted(0.05, 0.052), {"A": 4000, "B": 4000}
        ),
        *_both("errors around one half", middle),
        World("errors within each bin", sawtooth, TWO),
        _power("power: over-confident by 5 points, 800 rows", overconfident(0.05), 800, 0.0, 0.70),
        _power("power: shifted by 3 points, 2,500 rows", uniform_shift(0.03), 2500, 0.0, 0.75),
        _power("power: shifted by 10 points, 1,500 rows", uniform_shift(0.10), 1500, 0.05, 0.80),
        _power(
            "power: over-confident by 10 points, 1,500 rows", overconfident(0.10), 1500, 0.05, 0.80
        ),
    ]
}
