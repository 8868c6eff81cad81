"""What the paper's tables are made of, as plain loops over the rows of a store's Parquet files.

Written from the definitions: a run is a list of epochs, each a dictionary; "published" looks at the
test set; "validated" at validation, within 5 points of the best accuracy that any technique (or
cross-entropy with its one usual run) reaches there. Nothing of `equipoise.paper` is used.
"""

from itertools import pairwise
from math import inf, isfinite, isnan, nan
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

METRIC = {"pe": "pe", "ece": "ece15", "pe_deterministic": "pe_deterministic"}
READ = ("accuracy", "pe", "pe_deterministic", "ece15", "ece10", "dead")
OBJECTIVES = {
    ("published", "none"): ("pe", "ece", "pe_deterministic", "accuracy"),
    ("published", "group"): ("pe", "ece"),
    ("validated", "none"): ("pe", "ece", "pe_deterministic", "balanced"),
    ("validated", "group"): ("pe", "ece", "balanced"),
}
TABLES = {
    "table4": ("pe", "none"),
    "table5": ("ece", "none"),
    "table6": ("pe_deterministic", "none"),
    "table7": ("pe", "group"),
    "table8": ("ece", "group"),
}


def measured(row, part, metric, calibration="none"):
    """One number of an epoch; temperatures change neither decisions nor logits of 0."""
    plain = calibration == "none" or metric in ("accuracy", "pe_deterministic", "dead")
    return float(row[f"{part}_{metric}" if plain else f"{part}_group_{metric}"])


class Raw:
    """The runs of a store: (technique, split) to runs in the order of the grid, each its epochs."""

    def __init__(self, folder, techniques):
        parts = [pd.read_parquet(path) for path in sorted(Path(folder).glob("*.parquet"))]
        self.frame = pd.concat(parts, ignore_index=True)
        self.techniques, self.runs = list(techniques), {}
        self.splits = sorted(self.frame["split_seed"].unique().tolist())
        for row in self.frame.sort_values(["rho", "lam", "seed", "epoch"]).to_dict("records"):
            runs = self.runs.setdefault((row["loss"], row["split_seed"]), {})
            # no nan in a key: it is not equal to itself
            runs.setdefault(f"{row['rho']} {row['lam']} {row['seed']}", []).append(row)
        self.runs = {cell: list(runs.values()) for cell, runs in self.runs.items()}
        self.known = {}

    def budget(self, technique):
        return len(self.runs[technique, self.splits[0]])

    def own(self, technique, split, controls=1):
        runs = self.runs[technique, split]
        return runs[:controls] if technique == "ce" else runs

    def best_accuracy(self, part, splits):
        cell = part, *splits
        if cell not in self.known:
            self.known[cell] = max(
                row[f"{part}_accuracy"]
                for t in self.techniques
                for s in splits
                for run in self.own(t, s)
                for row in run
                if not isnan(row[f"{part}_accuracy"])
            )
        return self.known[cell]

    def within(self, row, part, best):
        # strictly less than 5 points are lost; accuracies are counts, so no two differ by 1e-9
        return best - row[f"{part}_accuracy"] < 0.05 - 1e-9

    def medians(self, part, splits, controls, measured_on=None):
        """Cross-entropy's median PE and ECE within the slack, or over all where none is."""
        cell = part, *splits, controls, measured_on
        if cell not in self.known:
            self.known[cell] = self._medians(part, splits, controls, measured_on)
        return self.known[cell]

    def _medians(self, part, splits, controls, measured_on):
        rows = [row for s in splits for run in self.own("ce", s, controls) for row in run]
        rows = [row for row in rows if not isnan(row["test_pe"])]
        best = self.best_accuracy(part, splits)
        some = [row for row in rows if self.within(row, part, best)] or rows
        on = measured_on or part
        return tuple(median(float(row[f"{on}_{m}"]) for row in some) for m in ("pe", "ece15"))

    def score(self, row, split, reading, objective, calibration):
        """What is minimised, or None where an epoch cannot be chosen."""
        if reading == "published":
            if objective == "accuracy":
                value = 1.0 - row["test_accuracy"]
            else:
                value = measured(row, "test", METRIC[objective], calibration)
            return inf if isnan(value) else value
        if not self.within(row, "val", self.best_accuracy("val", [split])):
            return None
        if objective == "balanced":
            units = self.medians("val", [split], None)
            values = [measured(row, "val", m, calibration) for m in ("pe", "ece15")]
            value = sum(v / unit for v, unit in zip(values, units, strict=True))
        else:
            value = measured(row, "val", METRIC[objective], calibration)
        return value if isfinite(value) else None

    def chosen(self, run, split, reading, objective, calibration="none"):
        """The first epoch of a run with the least score: (score, row), or None."""
        best = None
        for row in run:
            score = self.score(row, split, reading, objective, calibration)
            if score is not None and (best is None or score < best[0]):
                best = score, row
        return best

    def best(self, technique, split, reading, objective, calibration="none", controls=1):
        """The best of a technique on a split: (score, row), or None."""
        best = None
        for run in self.own(technique, split, controls):
            found = self.chosen(run, split, reading, objective, calibration)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def points(self, technique, reading, calibration, split=None, controls=1):
        """All (PE, ECE) within the slack where they are compared, each with its row."""
        part = "test" if reading == "published" else "val"
        splits = self.splits if split is None else [split]
        best = self.best_accuracy(part, splits)
        found = []
        for s in splits:
            for run in self.own(technique, s, controls):
                for row in run:
                    point = tuple(measured(row, part, m, calibration) for m in ("pe", "ece15"))
                    if self.within(row, part, best) and all(map(isfinite, point)):
                        found.append((point, row))
        return found

    def frontier(self, *cell, **options):
        """The rows of the points that no other point excludes."""
        points = self.points(*cell, **options)
        return [row for p, row in points if not any(excludes(q, p) for q, _ in points)]

    # --- the two readings of Tables 4 to 8 -----------------------------------------------------

    def changes(self, table, technique, baseline, controls=1):
        """%fair, %calib. and %acc. as published, of each seed.

        Of cross-entropy itself: re-run so often, and chosen the same way.
        """
        objective, calibration = TABLES[table]
        fair = "pe_deterministic" if objective == "pe_deterministic" else "pe"
        found = []
        for s in self.splits:
            point = self.best("ce", s, "published", objective)[1]
            pe = ece = acc = point
            if baseline != "point":
                pe = self.best("ce", s, "published", fair)[1]
            if baseline == "minimum":
                ece = self.best("ce", s, "published", "ece")[1]
                acc = self.best("ce", s, "published", "accuracy")[1]
            own = self.best(technique, s, "published", objective, calibration, controls)[1]
            found.append(
                [
                    percent(measured(pe, "test", fair), measured(own, "test", fair, calibration)),
                    percent(
                        measured(ece, "test", "ece15"), measured(own, "test", "ece15", calibration)
                    ),
                    -percent(acc["test_accuracy"], own["test_accuracy"]),
                ]
            )
        return found

    def least(self, table, technique):
        """The mean over seeds of the least test value."""
        objective, calibration = TABLES[table]
        return np.mean(
            [self.best(technique, s, "published", objective, calibration)[0] for s in self.splits]
        )

    def pairs(self, table, technique):
        """(split, control's row, technique's (score, row)) where both have something."""
        objective, calibration = TABLES[table]
        found = []
        for s in self.splits:
            budget = self.budget(technique)
            control = self.best("ce", s, "validated", objective, controls=budget)
            own = self.best(technique, s, "validated", objective, calibration)
            if control and own:
                found.append((s, control[1], own))
        return found

    def volumes(self, technique, calibration, controls=1, read="test"):
        """The hypervolume of each split's validation frontier as a share of its rectangle."""
        found = []
        for s in self.splits:
            rows = self.frontier(technique, "validated", calibration, split=s, controls=controls)
            points = [[measured(r, read, m, calibration) for m in ("pe", "ece15")] for r in rows]
            found.append(share(points, self.medians("val", [s], None, read)))
        return found

    def published_volume(self, technique, calibration="none"):
        rows = self.frontier(technique, "published", calibration)
        points = [[measured(r, "test", m, calibration) for m in ("pe", "ece15")] for r in rows]
        return share(points, self.medians("test", self.splits, 1))


def excludes(q, p):
    return q[0] <= p[0] and q[1] <= p[1] and q != p


def percent(before, after):
    return 100.0 * (before - after) / before if 0 < before < inf else nan


def mean(values):
    there = [v for v in values if not isnan(v)]
    return sum(there) / len(there) if there else nan


def share(points, reference):
    """The part of the rectangle up to the reference that the points dominate, cell by cell."""
    inside = [p for p in points if p[0] < reference[0] and p[1] < reference[1]]
    xs = sorted({p[0] for p in inside} | {reference[0]})
    ys = sorted({p[1] for p in inside} | {reference[1]})
    area = 0.0
    for left, right in pairwise(xs):
        for low, high in pairwise(ys):
            if any(p[0] <= left and p[1] <= low for p in inside):
                area += (right - left) * (high - low)
    return area / (reference[0] * reference[1])


def proportional_equality(soft, group, rates):
    """The PE of soft predictions (row, class) of two groups against rates (group, class)."""
    worst = 0.0
    for k in range(len(rates[0])):
        mean_of = [
            np.mean([p[k] for p, a in zip(soft, group, strict=True) if a == g]) for g in (0, 1)
        ]
        worst = max(worst, abs(rates[1][k] / rates[0][k] - mean_of[1] / mean_of[0]))
    return worst


def ece(prob, y, bins):
    """The ECE of probabilities (row, class), bins being (m - 1)/M < p <= m/M."""
    top, confidence = prob.argmax(1), prob.max(1)
    total = 0.0
    for m in range(1, bins + 1):
        inside = (confidence > (m - 1) / bins) & (confidence <= m / bins)
        if inside.any():
            gap = (top == y)[inside].mean() - confidence[inside].mean()
            total += inside.mean() * abs(gap)
    return total


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def scaled_by_recipe(z, y, group, rate=1e-4, steps=500):
    """Adam on the mean cross entropy as TensorFlow writes it, until the ECE rises.

    Returns the temperatures of both groups, and the number of steps kept.
    """
    t, first, second = np.ones(2), np.zeros(2), np.zeros(2)
    before = ece(softmax(z), y, 15)
    for step in range(1, steps + 1):
        slope = np.zeros(2)
        for g in (0, 1):
            rows = z[group == g]
            p = softmax(rows / t[g])
            label = rows[np.arange(len(rows)), y[group == g]]
            slope[g] = ((label - (p * rows).sum(1)) / t[g] ** 2).sum() / len(y)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        size = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        moved = t - size * first / (np.sqrt(second) + 1e-7)
        after = ece(softmax(z / moved[group][:, None]), y, 15)
        if after > before:
            return t, step - 1
        t, before = moved, after
    return t, steps


def paper_mmce_w(rho, lam, y, logits, a):
    """The paper's `groupwise_mmce_w`, line by line; what is gathered out of range is 0 (a GPU)."""
    where = np.flatnonzero

    def gather(values, index):
        return np.array([values[i] if i < len(values) else 0.0 for i in index])

    def kernel(r_1, r_2, gamma=0.2):
        return np.exp(-1.0 * np.abs(r_1[None, :] - r_2[:, None]) / (2 * gamma))

    y_pred = softmax(logits)
    c = (y == y_pred.argmax(1)).astype(int)
    r = y_pred.max(1)
    r_corr, r_wrong = gather(r, where(c)), gather(r, where(1 - c))
    r_corr_maj, r_corr_min = gather(r_corr, where(a)), gather(r_corr, where(1 - a))

    def product(u, v, r_1, r_2):
        # an absent group: nan in the paper, nothing here
        return np.mean((u[None, :] * v[:, None]) * kernel(r_1, r_2)) if len(u) and len(v) else 0.0

    l1 = product(1 - r_corr_maj, 1 - r_corr_maj, r_corr_maj, r_corr_maj)
    l2 = product(1 - r_corr_min, 1 - r_corr_min, r_corr_min, r_corr_min)
    l3 = product(1 - r_corr_maj, 1 - r_corr_min, r_corr_maj, r_corr_min)
    loss1 = rho * rho * l1 + (1 - rho) * (1 - rho) * l2 + 2.0 * rho * (1 - rho) * l3
    r_wrong_maj, r_wrong_min = gather(r_wrong, where(a)), gather(r_wrong, where(1 - a))
    l4 = product(r_wrong_maj, r_wrong_maj, r_wrong_maj, r_wrong_maj)
    l5 = product(r_wrong_min, r_wrong_min, r_wrong_min, r_wrong_min)
    l6 = product(r_wrong_maj, r_wrong_min, r_wrong_maj, r_wrong_min)
    loss2 = rho * rho * l4 + (1 - rho) * (1 - rho) * l5 + 2.0 * rho * (1 - rho) * l6
    l7 = product(1 - r_corr_maj, r_wrong_maj, r_corr_maj, r_wrong_maj)
    l8 = product(1 - r_corr_min, r_wrong_min, r_corr_min, r_wrong_min)
    l9 = product(1 - r_corr_maj, r_wrong_min, r_corr_maj, r_wrong_min)
    l10 = product(1 - r_corr_min, r_wrong_maj, r_corr_min, r_wrong_maj)
    loss3 = rho * rho * l7 + (1 - rho) * (1 - rho) * l8 + rho * (1 - rho) * l9
    loss3 += rho * (1 - rho) * l10
    cross_entropy = -np.log(y_pred[np.arange(len(y)), y]).mean()
    return cross_entropy + lam * np.sqrt(loss1 + loss2 - 2.0 * loss3)
