"""How often a claim would be true of a dataset by chance: were all runs of all techniques alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from equipoise.paper._digest import Digest


def at_least(count: int, chances: Sequence[float]) -> float:
    """Return the probability that `count` or more of independent events happen.

    Examples
    --------
    >>> at_least(2, [0.5, 0.5, 0.5])
    0.5
    """
    numbers = np.ones(1)
    for p in chances:
        numbers = np.convolve(numbers, [1.0 - p, p])
    return float(numbers[count:].sum())


def coin(digest: Digest) -> float:  # noqa: ARG001
    """Return the chance that a number without any effect has the sign that is claimed."""
    return 0.5


def certain(digest: Digest) -> float:  # noqa: ARG001
    """Return the chance of what is so by construction."""
    return 1.0


def beaten_by_chance(digest: Digest) -> float:
    """Return the chance that one of all runs beats one run of cross-entropy, were all alike."""
    return 1.0 - 1.0 / (1.0 + sum(digest.budget(t) for t in digest.replicas))


def beating_by_chance(digest: Digest, technique: str) -> float:
    """Return the chance that one run of cross-entropy beats all of a technique, were all alike."""
    return 1.0 / (1.0 + digest.budget(technique))


def leading_by_chance(digest: Digest, group: Collection[str]) -> float:
    """Return the chance that the best of all runs is of a group of techniques, were all alike."""
    return sum(share for t, share in _shares(digest, digest.replicas).items() if t in group)


def same_by_chance(digest: Digest) -> float:
    """Return the chance that the best runs of two rankings are of one technique."""
    return sum(share**2 for share in _shares(digest, digest.replicas).values())


def same_by_chance_validated(digest: Digest) -> float:
    """Return the chance that one of equally many candidates is best twice.

    Each is judged by one choice, made on other rows, so that more runs are no advantage.
    """
    return 1.0 / len(digest.techniques)


def _shares(digest: Digest, techniques: Sequence[str]) -> dict[str, float]:
    whole = sum(digest.budget(t) for t in techniques)
    return {t: digest.budget(t) / whole for t in techniques}
