"""The hypervolume of each technique's frontier of PE and ECE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import hypervolume
from equipoise.paper._digest import Digest
from equipoise.paper._published import paper_name
from equipoise.paper._tables._numbers import split_interval
from equipoise.paper._tables._table import SPAN, Table

Floats = NDArray[np.float64]


def published_volume(digest: Digest, technique: str, calibration: str = "none") -> float | None:
    """Return the hypervolume of a technique's frontier on the test set, all seeds pooled.

    None where it has nothing within the slack.
    """
    points = digest.frontier(technique, "published", calibration)
    return share_of(points, digest.facts["reference"]) if len(points) else None


def validated_volumes(
    digest: Digest,
    technique: str,
    calibration: str = "none",
    *,
    controls: int = 1,
    part: str = "test",
) -> Floats:
    """Return the hypervolume of the validation frontier of each split, read on test or val."""
    found = []
    for seed in digest.seeds:
        points = digest.frontier(
            technique, "validated", calibration, split_seed=seed, controls=controls, part=part
        )
        found.append(share_of(points, digest.facts["splits"][str(seed)]["reference"][part]))
    return np.array(found)


def share_of(points: Floats, reference: Sequence[float]) -> float:
    """Return the hypervolume as a share of the whole rectangle; nan where there is none."""
    if not np.isfinite(reference).all() or min(reference) <= 0.0:
        return float("nan")
    return hypervolume(points, reference) / (reference[0] * reference[1])


VOLUME = (
    "Share of the rectangle between the origin and cross-entropy's median PE and ECE within the "
    "slack (over all its epochs where none is) that the frontier dominates; larger is better."
)


def volumes(digests: Sequence[Digest]) -> Table:
    """Return the hypervolume of every technique's frontier, with and without temperatures."""
    rows = []
    for d in digests:
        for t in ("ce", *d.techniques):
            row: list[Any] = [d.dataset, paper_name(t)]
            row += [published_volume(d, t, c) for c in ("none", "group")]
            control = validated_volumes(d, "ce", controls=d.budget(t))
            row.append(float(control.mean()))
            for c in ("none", "group"):
                own = validated_volumes(d, t, c, controls=d.budget(t))
                more = own - control
                row += [float(own.mean())]
                itself = (t, c) == ("ce", "none")
                row += [None, None] if itself else [float(more.mean()), split_interval(more)]
            rows.append(row)
    return Table(
        "frontiers",
        "Hypervolume of the frontiers of PE and ECE",
        (
            "dataset",
            "technique",
            "as published",
            "as published, hybrid",
            "control, validated",
            "validated",
            "validated minus control",
            f"validated minus control {SPAN}",
            "hybrid, validated",
            "hybrid minus control",
            f"hybrid minus control {SPAN}",
        ),
        rows,
        (
            VOLUME + " As published: all seeds pooled, on the test set, cross-entropy with one run "
            "per seed. Validated: mean over splits of the validation frontier's points read on the "
            "test set, 0 on a split with nothing within the slack; the best of them count, so that "
            "more points gain a little by chance; the control is cross-entropy with as many "
            "runs, without temperatures. A dash: nothing is within the slack, or cross-entropy "
            "beside itself. FL and FLSD are the same but where a label has a probability of at "
            "most 0.2, and are often equal. Intervals over splits are Nadeau and Bengio's.",
        ),
        (
            ("dataset", "{0}"),
            ("technique", "{1}"),
            ("published,\nhybrid", "{2} {3}"),
            ("validated\n", "{5}"),
            ("minus control\n", "{6} {7}"),
            ("hybrid\n", "{8}"),
            ("minus control\n", "{9} {10}"),
        ),
    )
