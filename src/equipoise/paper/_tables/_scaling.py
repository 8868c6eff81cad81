"""Table 3: dual temperature scaling after training with cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.paper._digest import Digest
from equipoise.paper._published import published
from equipoise.paper._tables._numbers import both, means, paired, percent, values_of
from equipoise.paper._tables._table import FLOOR, INTERVAL, Table, compared

Floats = NDArray[np.float64]


def temperature_scaling(digests: Sequence[Digest]) -> Table:
    """Return Table 3 as published: best value over the epochs after against before."""
    rows: list[list[Any]] = []
    for d in digests:
        rows.append([d.dataset, *published()["table3"][d.dataset]])
        for how in ("recipe", "exact"):
            changes = [scaling_change(d, metric, how) for metric in ("pe", "ece15", "ece10")]
            rows[-1] += means(np.column_stack(changes))
    return Table(
        "table3",
        published()["titles"]["table3"],
        (
            "dataset",
            "%fair (paper)",
            "%calib. (paper)",
            "%fair (recipe)",
            "%calib. (recipe, 15 bins)",
            "%calib. (recipe, 10 bins)",
            "%fair (exact)",
            "%calib. (exact, 15 bins)",
            "%calib. (exact, 10 bins)",
        ),
        rows,
        (
            "Best value over the epochs on the test set, after against before; mean over seeds. "
            "Recipe: the paper's few steps of Adam, before and after on a run that was trained "
            "alone. Exact: the temperatures that minimise the cross-entropy of the validation set.",
        ),
        (
            ("dataset", "{0}"),
            ("%fair\npaper", "{1}"),
            ("\nrecipe", "{3}"),
            ("\nexact", "{6}"),
            ("%calib.\npaper", "{2}"),
            ("\nrecipe", "{4}"),
            ("\nexact", "{7}"),
            ("(10 bins)\nrecipe", "{5}"),
            ("\nexact", "{8}"),
        ),
    )


def scaling_change(digest: Digest, metric: str, how: str) -> Floats:
    """Return the percentage by which the best value over the epochs improves, for each seed."""
    found = []
    for seed in digest.seeds:
        if how == "recipe":
            own = digest.recipe["split_seed"] == seed
            before = np.min(digest.recipe[f"test_{metric}"][own])
            after = np.min(digest.recipe[f"test_recipe_{metric}"][own])
        else:
            best = digest.facts["splits"][str(seed)]["best_ce"]
            before, after = best["none"][metric], best["group"][metric]
        found.append(percent(before, after))
    return np.array(found)


def scaled(digest: Digest, objective: str, metric: str) -> tuple[Floats, Floats]:
    """Return a metric of cross-entropy before and after exact temperatures, each (split,)."""
    before, after = (
        values_of(digest.best("ce", "validated", objective, c), metric) for c in ("none", "group")
    )
    return before, after


def temperature_scaling_validated(digests: Sequence[Digest]) -> Table:
    """Return Table 3 with the epoch chosen on validation, before and after."""
    rows = []
    for d in digests:
        row: list[Any] = [d.dataset]
        for objective, metric in (("pe", "test_pe"), ("ece", "test_ece15")):
            before, after = scaled(d, objective, metric)
            row += paired(before, after)
        rows.append([*row, d.floors["model"], len(both(before, after)[0])])
    return Table(
        "table3-validated",
        published()["titles"]["table3"],
        ("dataset", *compared("PE"), *compared("ECE"), "PE floor", "splits"),
        rows,
        (
            "Epoch chosen on validation (least PE, least ECE, within the slack), before and after "
            "the exact temperatures of the groups: the epoch after may be another, and the "
            "validation rows that choose it are those that the temperatures are fitted to. Test "
            "set read once. Splits on which the one run of cross-entropy is never within the slack "
            "are left out. " + INTERVAL,
            FLOOR,
        ),
        (
            ("dataset", "{0}"),
            ("PE\nbefore, after", "{1} {2}"),
            ("\nchange %", "{3} {4}"),
            ("ECE\nbefore, after", "{5} {6}"),
            ("\nchange %", "{7} {8}"),
            ("PE\nfloor", "{9}"),
            ("splits\n", "{10}"),
        ),
    )
