"""Tables 2 to 8 of the paper, each value of ours beside the published one, in two readings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise import tradeoffs
from equipoise.frontier import hypervolume
from equipoise.paper.digest import Digest
from equipoise.paper.published import NAMES, published, shown

Floats = NDArray[np.float64]
Baseline = Literal["mixed", "point", "minimum"]

BASELINES = {
    "mixed": "%fair against cross-entropy's least PE over its epochs, %calib. and %acc. against "
    "cross-entropy at its own best epoch",
    "point": "all three against cross-entropy at its own best epoch",
    "minimum": "each against cross-entropy's best value over its epochs",
}

HYBRID = (
    "Hybrids use the exact optimum of the temperatures, not the paper's recipe. They are compared "
    "with plain cross-entropy, without temperatures."
)

UNDEFINED = "A PE of inf: on some split a class is never predicted for a group."


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under a header; numbers stay numbers until they are shown.

    `narrow` is the form for a terminal: headings, and what stands below them, where ``{2}`` is the
    value of column 2.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[list[Any]]
    notes: tuple[str, ...] = ()
    narrow: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What one of Tables 4 to 8 optimises."""

    objective: str
    calibration: str = "none"


EXPERIMENTS = {
    "table4": Experiment("pe"),
    "table5": Experiment("ece"),
    "table6": Experiment("pe_deterministic"),
    "table7": Experiment("pe", "group"),
    "table8": Experiment("ece", "group"),
}


def techniques(digest: Digest) -> list[str]:
    """Return the techniques that are compared with cross-entropy."""
    return [t for t in digest.facts["sweep"]["techniques"] if t != "ce"]


def replicas(digest: Digest) -> list[str]:
    """Return the techniques as the paper's code trained them: mmce-w* in place of mmce-w."""
    return [t for t in techniques(digest) if t not in NAMES]


# --- Table 2 ---------------------------------------------------------------------------------


def statistics(digests: Sequence[Digest]) -> Table:
    """Return Table 2, the datasets."""
    rows = []
    for d in digests:
        paper, data = published()["table2"][d.dataset], d.facts["data"]
        ours = [data["rows"], data["columns"], data["a1"], data["y1_a0"], data["y1_a1"]]
        pairs = [value for pair in zip(paper, ours, strict=True) for value in pair]
        rows.append([d.dataset, *pairs, mean_oracle(d)])
    names = ("rows", "columns", "Pr[A=1]", "Pr[Y=1|A=0]", "Pr[Y=1|A=1]")
    header = [f"{name} {who}" for name in names for who in ("(paper)", "(ours)")]
    return Table(
        "table2",
        published()["titles"]["table2"],
        ("dataset", *header, "PE of the test labels"),
        rows,
        (
            "PE of the test labels: what the true labels of the test set, and so a perfect "
            "classifier, score against the rates of the training set, on average over the splits. "
            "A PE below it does not show a better model. Columns: ours are those of the network's "
            "input, a column for each category and without the group where it is left out.",
        ),
        (
            ("dataset", "{0}"),
            ("rows, columns\n(paper)", "{1} {3}"),
            ("(ours)", "{2} {4}"),
            ("Pr[A=1], Pr[Y=1|A=0], Pr[Y=1|A=1]\n(paper)", "{5} {7} {9}"),
            ("(ours)", "{6} {8} {10}"),
            ("PE of the\ntest labels", "{11}"),
        ),
    )


def mean_oracle(digest: Digest) -> float:
    """Return what the test labels themselves score, on average over the splits."""
    return float(np.mean([s["label_oracle_pe"] for s in digest.facts["splits"].values()]))


# --- Table 3 ---------------------------------------------------------------------------------


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
            "Recipe: the paper's few steps of Adam. Exact: the temperatures that minimise the "
            "cross-entropy of the validation set.",
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
        found.append(_percent(before, after))
    return np.array(found)


def scaled(digest: Digest, objective: str, metric: str) -> tuple[Floats, Floats]:
    """Return a metric of cross-entropy before and after exact temperatures, each (split,)."""
    before, after = (
        _values(digest.best("ce", "validated", objective, c), metric) for c in ("none", "group")
    )
    return before, after


def temperature_scaling_validated(digests: Sequence[Digest]) -> Table:
    """Return Table 3 with the epoch chosen on validation, before and after."""
    rows = []
    for d in digests:
        row: list[Any] = [d.dataset]
        for objective, metric in (("pe", "test_pe"), ("ece", "test_ece15")):
            before, after = scaled(d, objective, metric)
            row += _paired(before, after)
        rows.append([*row, mean_oracle(d), len(_both(before, after)[0])])
    return Table(
        "table3-validated",
        published()["titles"]["table3"],
        ("dataset", *_compared("PE"), *_compared("ECE"), "PE of the test labels", "splits"),
        rows,
        (
            "Epoch chosen on validation (least PE, least ECE, within the slack), before and after "
            "the exact temperatures of the groups. Test set read once. Splits on which the one run "
            "of cross-entropy is never within the slack are left out. " + INTERVAL,
        ),
        (
            ("dataset", "{0}"),
            ("PE\nbefore, after", "{1} {2}"),
            ("\nchange %", "{3} {4}"),
            ("ECE\nbefore, after", "{5} {6}"),
            ("\nchange %", "{7} {8}"),
            ("PE of the\ntest labels", "{9}"),
            ("splits\n", "{10}"),
        ),
    )


SPAN = "95% interval"
"""What the heading of an interval ends with; it stands behind what it is of."""

INTERVAL = (
    "Change in percent of cross-entropy's mean, with the paired 95% interval over splits; these "
    "share rows, which makes it rather too narrow."
)


def _compared(name: str, before: str = "before", after: str = "after") -> list[str]:
    return [f"{name} {before}", f"{name} {after}", f"{name} change %", f"{name} {SPAN}"]


# --- Tables 4 to 8 ---------------------------------------------------------------------------


def optimised(digests: Sequence[Digest], name: str, baseline: Baseline = "mixed") -> Table:
    """Return one of Tables 4 to 8 as published: chosen on the test set."""
    rows = []
    for d in digests:
        theirs, *values = published()[name][d.dataset]
        same = NAMES.get(theirs, theirs)
        changes = {t: published_change(d, name, t, baseline) for t in replicas(d)}
        best = best_published(d, name)
        row = [d.dataset, shown(theirs), *values, shown(best), *means(changes[best])]
        row += means(changes[same]) if same in changes else [None] * 3
        rows.append(row)
    three = ("%fair", "%calib.", "%acc.")
    return Table(
        name,
        published()["titles"][name],
        (
            "dataset",
            "technique (paper)",
            *(f"{what} (paper)" for what in three),
            "technique (ours)",
            *(f"{what} (ours)" for what in three),
            *(f"{what} (ours, the paper's technique)" for what in three),
        ),
        rows,
        (
            "As published: configuration and epoch chosen on the test set, one run of "
            f"cross-entropy to compare with; {BASELINES[baseline]}. Mean of the percentages over "
            "seeds, without those where cross-entropy has 0 or inf; a seed on which it is nearly 0 "
            "can outweigh the others: the files of all techniques (-all.csv) have the medians too. "
            "MMCE-W* is MMCE-W as the paper's code computes it; MMCE-W by the formula is not a "
            "candidate here, but is in those files.",
            *([HYBRID] if EXPERIMENTS[name].calibration == "group" else []),
        ),
        (
            ("dataset", "{0}"),
            ("paper\n%fair %calib. %acc.", "{1} {2} {3} {4}"),
            ("ours\n%fair %calib. %acc.", "{5} {6} {7} {8}"),
            ("ours, the paper's technique", "{9} {10} {11}"),
        ),
    )


def best_published(digest: Digest, name: str) -> str:
    """Return the technique whose mean over seeds of the least test value is least."""
    e = EXPERIMENTS[name]
    means = {
        t: np.mean(_values(digest.best(t, "published", e.objective, e.calibration), "score"))
        for t in replicas(digest)
    }
    return min(means, key=lambda t: means[t])


def published_change(
    digest: Digest, name: str, technique: str, baseline: Baseline = "mixed"
) -> Floats:
    """Return %fair, %calib. and %acc. of each seed, (seed, 3)."""
    if baseline not in BASELINES:
        raise ValueError(f"unknown baseline {baseline!r}; there are {', '.join(BASELINES)}")
    e = EXPERIMENTS[name]
    # a hybrid is compared with plain cross-entropy too
    fair = "test_pe_deterministic" if e.objective == "pe_deterministic" else "test_pe"
    least = "pe_deterministic" if fair == "test_pe_deterministic" else "pe"
    points = digest.best("ce", "published", e.objective)
    pe = digest.best("ce", "published", least) if baseline != "point" else points
    ece = digest.best("ce", "published", "ece") if baseline == "minimum" else points
    acc = digest.best("ce", "published", "accuracy") if baseline == "minimum" else points
    chosen = digest.best(technique, "published", e.objective, e.calibration)
    found = [
        (
            _percent(p[fair], t[fair]),
            _percent(c["test_ece15"], t["test_ece15"]),
            -_percent(a["test_accuracy"], t["test_accuracy"]),
        )
        for p, c, a, t in zip(pe, ece, acc, chosen, strict=True)
    ]
    return np.array(found)


def all_published(digests: Sequence[Digest], name: str, baseline: Baseline = "mixed") -> Table:
    """Return one of Tables 4 to 8 as published, for every technique."""
    rows = [
        [d.dataset, shown(t), *means(change), *medians(change)]
        for d in digests
        for t in techniques(d)
        for change in [published_change(d, name, t, baseline)]
    ]
    three = ("%fair", "%calib.", "%acc.")
    return Table(
        f"{name}-all",
        published()["titles"][name] + ", every technique",
        ("dataset", "technique", *three, *(f"{what} (median)" for what in three)),
        rows,
        (f"As published; {BASELINES[baseline]}.",),
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A technique beside the equal-budget control, on each split."""

    technique: str
    control: list[dict[str, Any]]
    chosen: list[dict[str, Any]]

    @property
    def splits(self) -> int:
        """Number of splits on which both have something within the slack."""
        return sum(bool(c and t) for c, t in zip(self.control, self.chosen, strict=True))

    def values(self, metric: str) -> tuple[Floats, Floats]:
        """Return a metric of the control and of the technique, each (split,)."""
        return _values(self.control, metric), _values(self.chosen, metric)


def compare(digest: Digest, name: str, technique: str) -> Comparison:
    """Choose on validation, and give cross-entropy as many runs as the technique has."""
    e = EXPERIMENTS[name]
    control = digest.best("ce", "validated", e.objective, controls=digest.budget(technique))
    return Comparison(
        technique, control, digest.best(technique, "validated", e.objective, e.calibration)
    )


def best_validated(digest: Digest, name: str) -> Comparison | None:
    """Return the technique whose mean validation score is least, beside its control."""
    found = [compare(digest, name, t) for t in techniques(digest)]
    found = [c for c in found if c.splits == len(digest.seeds)]
    return min(found, key=lambda c: np.mean(_values(c.chosen, "score")), default=None)


def validated(digests: Sequence[Digest], name: str) -> Table:
    """Return one of Tables 4 to 8 as it should be, for the technique chosen on validation."""
    rows = []
    for d in digests:
        found = best_validated(d, name)
        rows.append(
            [d.dataset, *_comparison(d, name, found)] if found else [d.dataset, *[None] * 16]
        )
    return Table(
        f"{name}-validated",
        published()["titles"][name],
        ("dataset", *_comparison_header(name)),
        rows,
        _validated_notes(
            name,
            "the technique with the least mean validation value, of those with something within "
            "the slack on every split",
        ),
        _narrow(name),
    )


def all_validated(digests: Sequence[Digest], name: str) -> Table:
    """Return one of Tables 4 to 8 as it should be, for every technique."""
    rows = []
    for d in digests:
        for t in techniques(d):
            found = compare(d, name, t)
            rows.append(
                [d.dataset, *_comparison(d, name, found)]
                if found.splits
                else [d.dataset, *_named(d, name, t), *[None] * 13, 0]
            )
    return Table(
        f"{name}-validated-all",
        published()["titles"][name] + ", every technique",
        ("dataset", *_comparison_header(name)),
        rows,
        _validated_notes(name, "every technique"),
        _narrow(name),
    )


def _narrow(name: str) -> tuple[tuple[str, str], ...]:
    pe = _measure(name)
    return (
        ("dataset", "{0}"),
        ("technique\n(runs, splits)", "{1} ({2}, {16})"),
        (f"{pe} control, ours", "{3} {4}"),
        ("\nchange %", "{5} {6}"),
        ("ECE control, ours", "{7} {8}"),
        ("\nchange %", "{9} {10}"),
        ("acc.\n", "{11} {12}"),
        ("dead\n", "{14} {15}"),
    )


def _measure(name: str) -> str:
    return "det. PE" if EXPERIMENTS[name].objective == "pe_deterministic" else "PE"


def _validated_notes(name: str, which: str) -> tuple[str, ...]:
    return (
        f"As it should be: {which}; its configuration and epoch chosen on validation within 5 "
        "points of the best validation accuracy of the split; the test set read once; "
        "cross-entropy given the same number of runs, each from other initial weights, and chosen "
        "the same way. " + INTERVAL,
        *([UNDEFINED] if EXPERIMENTS[name].objective == "pe_deterministic" else []),
        *([HYBRID] if EXPERIMENTS[name].calibration == "group" else []),
    )


def _comparison_header(name: str) -> tuple[str, ...]:
    blocks = [
        column
        for what in (_measure(name), "ECE")
        for column in _compared(what, "control", "technique")
    ]
    return (
        "technique",
        "runs",
        *blocks,
        "accuracy control",
        "accuracy technique",
        "PE of the test labels",
        "dead control",
        "dead technique",
        "splits",
    )


def _comparison(digest: Digest, name: str, found: Comparison) -> list[Any]:
    e = EXPERIMENTS[name]
    pe = "test_pe_deterministic" if e.objective == "pe_deterministic" else "test_pe"
    row = _named(digest, name, found.technique)
    for metric in (pe, "test_ece15"):
        row += _paired(*found.values(metric))
    row += [float(v.mean()) for v in _both(*found.values("test_accuracy"))]
    row.append(mean_oracle(digest))
    row += [float(v.mean()) for v in _both(*found.values("test_dead"))]
    return [*row, found.splits]


def _named(digest: Digest, name: str, technique: str) -> list[Any]:
    return [shown(technique, EXPERIMENTS[name].calibration), digest.budget(technique)]


# --- frontiers -------------------------------------------------------------------------------


def published_volume(digest: Digest, technique: str, calibration: str = "none") -> float | None:
    """Return the hypervolume of a technique's frontier on the test set, all seeds pooled.

    None where it has nothing within the slack.
    """
    points = digest.frontier(technique, "published", calibration)
    return _share(points, digest.facts["reference"]) if len(points) else None


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
        found.append(_share(points, digest.facts["splits"][str(seed)]["reference"][part]))
    return np.array(found)


def _share(points: Floats, reference: Sequence[float]) -> float:
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
        for t in ("ce", *techniques(d)):
            row: list[Any] = [d.dataset, shown(t)]
            row += [published_volume(d, t, c) for c in ("none", "group")]
            control = validated_volumes(d, "ce", controls=d.budget(t))
            row.append(float(control.mean()))
            for c in ("none", "group"):
                own = validated_volumes(d, t, c, controls=d.budget(t))
                more = own - control
                row += [float(own.mean())]
                itself = (t, c) == ("ce", "none")
                row += [None, None] if itself else [float(more.mean()), interval(more)]
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
            "test set, 0 on a split with nothing within the slack; the control is cross-entropy "
            "with as many runs, without temperatures. A dash: nothing is within the slack.",
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


# --- numbers ---------------------------------------------------------------------------------


def _values(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    return np.array([row[name] if row else np.nan for row in rows], np.float64)


def _percent(before: float, after: float) -> float:
    """Return the improvement in percent of what was before; nan where that is 0 or inf."""
    before, after = float(before), float(after)
    return 100.0 * (before - after) / before if 0.0 < before < math.inf else math.nan


def _paired(before: Floats, after: Floats) -> list[Any]:
    """Return both means, the improvement in percent of the first, and its interval."""
    before, after = _both(before, after)
    if not len(before):
        return [None] * 4
    change = relative(before, after)
    figures = [float(v) for v in (before.mean(), after.mean(), change.mean())]
    return [*figures, interval(change)]


def _both(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the pairs of which both are there."""
    there = ~(np.isnan(before) | np.isnan(after))
    return before[there], after[there]


def relative(before: Floats, after: Floats) -> Floats:
    """Return paired improvements in percent of the mean before; pairs with a gap are left out.

    All are nan where that mean is 0 or inf.
    """
    before, after = _both(before, after)
    mean = float(before.mean()) if len(before) else math.nan
    if not 0.0 < mean < math.inf:
        return np.full(len(before), np.nan)
    return np.asarray(100.0 * (before - after) / mean)


def means(values: Floats) -> list[float]:
    """Return the means of columns, without what is not a number."""
    return [float(np.mean(c)) if len(c) else np.nan for c in _columns(values)]


def medians(values: Floats) -> list[float]:
    """Return the medians of columns, without what is not a number."""
    return [float(np.median(c)) if len(c) else np.nan for c in _columns(values)]


def _columns(values: Floats) -> list[Floats]:
    return [column[~np.isnan(column)] for column in values.T]


def interval(values: Floats) -> tuple[float, float] | None:
    """Return the 95% interval of a mean, by Student's t; None of fewer than two values."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    return tradeoffs.interval(values)
