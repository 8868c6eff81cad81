"""The page of `repair.py`: tables, and sentences that follow from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from repair_measures import LEAST, MEASURES, TEST_SHARE, Difference, over_blocks, over_splits

TITLES = {
    "german": "German credit",
    "compas": "COMPAS",
    "adult-full": "Adult",
    "mortgages": "Mortgages",
    "census-income": "Census-Income",
    "acs-massachusetts": "ACS",
}
SHORT = {"LightGBM": "LightGBM", "logistic regression": "logistic"}

Case = tuple[str, str]
Cells = list[dict[str, Any]]
Results = dict[Case, Cells]
"""Data set and model, to the results of each split."""


@dataclasses.dataclass(frozen=True)
class Names:
    """The methods that the text is about."""

    default: str
    nothing: str
    mcgrad: str
    all_features: str
    ours: tuple[str, ...]


def title(case: Case) -> str:
    """Return the name of a case."""
    return f"{TITLES[case[0]]}, {SHORT[case[1]]}"


# --- figures ---------------------------------------------------------------------------------


def mean(cells: Cells, method: str, measure: str) -> float:
    """Return the mean of a measure over splits."""
    return float(np.mean([cell["methods"][method][measure] for cell in cells]))


def difference(cells: Cells, method: str, other: str, measure: str) -> Difference:
    """Return the measure of one method minus that of the other, on the same rows."""
    pairs = [(cell["methods"][method], cell["methods"][other]) for cell in cells]
    if "left_out" in pairs[0][0]:
        ((a, b),) = pairs
        left_out = np.subtract(a["left_out"][measure], b["left_out"][measure])
        return over_blocks(a[measure] - b[measure], left_out)
    return over_splits([a[measure] - b[measure] for a, b in pairs], TEST_SHARE)


def best_of(cells: Cells, measure: str, among: Iterable[str]) -> str:
    """Return the method with the least mean."""
    return min(among, key=lambda method: mean(cells, method, measure))


def ties(cells: Cells, measure: str, best: str, among: Iterable[str]) -> set[str]:
    """Return the methods whose difference to the best has an interval that contains 0."""
    return {m for m in among if m == best or not difference(cells, m, best, measure).clear}


# --- goals -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The default beside the best method of one case."""

    case: Case
    best: str
    default_minus_best: Difference
    is_best: bool

    @property
    def holds(self) -> bool:
        """Whether the default is the best, or not distinguishable from it."""
        return self.is_best or not self.default_minus_best.clear


def outcomes(results: Results, names: Names, measure: str, among: list[str]) -> list[Outcome]:
    """Compare the default with the best in every case."""
    found = []
    for case, cells in results.items():
        best = best_of(cells, measure, among)
        gap = difference(cells, names.default, best, measure)
        found.append(Outcome(case, best, gap, best == names.default))
    return found


def time_ratios(results: Results, names: Names, other: str) -> dict[Case, float]:
    """Return the seconds of the default divided by those of another method."""
    return {case: _ratio(cells, names.default, other) for case, cells in results.items()}


def _ratio(cells: Cells, method: str, other: str) -> float:
    return mean(cells, method, "seconds") / mean(cells, other, "seconds")


# --- words -----------------------------------------------------------------------------------


def counted(happened: int, total: int, what: str) -> str:
    """Return how often something holds, in words."""
    if happened == total:
        return f"in every one of the {total} {what}"
    return f"in {happened} of the {total} {what}" if happened else f"in none of the {total} {what}"


def interval(gap: Difference, scale: float = 1.0, digits: int = 4) -> str:
    """Return a difference with its interval."""
    low, high = f"{scale * gap.low:+.{digits}f}", f"{scale * gap.high:+.{digits}f}"
    return f"{scale * gap.mean:+.{digits}f} ({low} to {high})"


def goals(results: Results, names: Names) -> list[str]:
    """Return what became of the three goals, a paragraph each."""
    methods = list(next(iter(results.values()))[0]["methods"])
    scored = [m for m in methods if m != names.all_features]
    total, paragraphs = len(results), []
    for among, scope in (
        (scored, "Among the methods that see the score and the group"),
        (methods, f"With {names.all_features} as well, which sees every feature"),
    ):
        found = outcomes(results, names, "log_loss", among)
        held = [o for o in found if o.holds]
        text = (
            f"**Log-loss: best, or not distinguishable from the best.** {scope}, this holds "
            f"{counted(len(held), total, 'cases')}."
        )
        missed = [
            f"{title(o.case)}: {o.best} is better by {interval(o.default_minus_best)}"
            for o in found
            if not o.holds
        ]
        paragraphs.append(text + (f" It does not hold on {'; '.join(missed)}." if missed else ""))
    found = outcomes(results, names, "amplification", methods)
    least, held = [o for o in found if o.is_best], [o for o in found if o.holds]
    text = (
        "**Amplification: the least on most.** The default has the least "
        f"{counted(len(least), total, 'cases')}, so the goal "
        f"{'holds' if 2 * len(least) > total else 'does not hold'}. It is the least or not "
        f"distinguishable from it {counted(len(held), total, 'cases')}."
    )
    missed = [
        f"{title(o.case)}: {o.best} has less by {interval(o.default_minus_best)}"
        for o in found
        if not o.holds
    ]
    paragraphs.append(text + (f" Clearly more: {'; '.join(missed)}." if missed else ""))
    for other in (names.mcgrad, names.all_features):
        ratios = time_ratios(results, names, other)
        held_in = sum(ratio < 0.1 for ratio in ratios.values())
        worst = max(ratios, key=ratios.__getitem__)
        paragraphs.append(
            f"**Time: under a tenth of MCGrad's.** Beside {other}, this holds "
            f"{counted(held_in, total, 'cases')}. The largest ratio is {ratios[worst]:.2f} "
            f"({title(worst)})."
        )
    quick = {m: [_ratio(cells, m, names.mcgrad) < 0.1 for cells in results.values()]
             for m in names.ours if m != names.default}  # fmt: skip
    always = [m for m, under in quick.items() if all(under)]
    if always:
        paragraphs[-1] += f" Under a tenth of {names.mcgrad} in every case: {', '.join(always)}."
    return paragraphs


def our_best(results: Results, names: Names) -> str:
    """Return which of our methods have the least log-loss over all cases, in a sentence."""

    def over_cases(method: str) -> float:
        return float(np.mean([mean(cells, method, "log_loss") for cells in results.values()]))

    best = min(names.ours, key=over_cases)
    single = min((m for m in names.ours if not m.endswith("ensemble")), key=over_cases)
    text = f"Of our methods, {best} has the least log-loss in the mean over all cases"
    if best != single:
        text += f"; of those that keep one model, {single}"
    if best.endswith("ensemble"):
        text += (
            ". An ensemble is not the default: it keeps five models instead of one, cannot be "
            "exported, and its predictions are no model's own"
        )
    return f"{text}. The default is {names.default}."


def our_choice(results: Results, names: Names) -> tuple[list[str], list[list[str]]]:
    """Return a table of our own methods: how often each is clearly worse than the best of ours."""
    head = ["method", "mean log-loss above the default, × 1000", "best of ours",
            "clearly worse than the best of ours", "seconds / default's, median"]  # fmt: skip
    lines = []
    for method in names.ours:
        gaps, best, worse, times = [], 0, 0, []
        for cells in results.values():
            leader = best_of(cells, "log_loss", names.ours)
            best += leader == method
            worse += method not in ties(cells, "log_loss", leader, [method])
            gaps.append(mean(cells, method, "log_loss") - mean(cells, names.default, "log_loss"))
            times.append(_ratio(cells, method, names.default))
        lines.append([method, f"{1000 * np.mean(gaps):+.2f}", f"{best}", f"{worse}",
                      f"{np.median(times):.2f}"])  # fmt: skip
    return head, lines


# --- tables ----------------------------------------------------------------------------------


def as_markdown(head: list[str], lines: list[list[str]], align: str = "---:") -> str:
    """Return a table in Markdown."""
    rows = [head, ["---", *[align] * (len(head) - 1)], *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def table(
    results: Results, cell: Callable[[Cells, str], str], methods: list[str] | None = None
) -> str:
    """Return a table of methods by cases."""
    methods = methods or list(next(iter(results.values()))[0]["methods"])
    lines = [[m, *(cell(cells, m) for cells in results.values())] for m in methods]
    return as_markdown(["method", *map(title, results)], lines)


def marked(measure: str) -> Callable[[Cells, str], str]:
    """Return what writes a measure: the best bold, with ≈ what is not distinguishable from it."""

    def write(cells: Cells, method: str) -> str:
        methods = list(cells[0]["methods"])
        best = best_of(cells, measure, methods)
        text = f"{mean(cells, method, measure):.4f}"
        if method == best:
            return f"**{text}**"
        return f"{text} ≈" if ties(cells, measure, best, [method]) else text

    return write


def as_page(results: Results, names: Names, versions: dict[str, str]) -> str:
    """Return the page of the documentation."""
    methods = list(next(iter(results.values()))[0]["methods"])
    others = [m for m in methods if m != names.default]
    sizes = []
    for dataset in dict.fromkeys(case[0] for case in results):
        cells = next(cells for case, cells in results.items() if case[0] == dataset)
        first, year = cells[0], cells[0]["fit_year"]
        how = f"fitted on {year}, tested on later years" if year else f"{len(cells)}, at random"
        counts = [f"{n:,}" for n in (first["available"], *first["rows"])]
        sizes.append([TITLES[dataset], *counts, first["groups"], how])
    tables = {measure: table(results, marked(measure)) for measure in MEASURES}
    return PAGE.format(
        default=names.default,
        n_cases=len(results),
        n_methods=len(methods),
        mcgrad=names.mcgrad,
        all_features=names.all_features,
        nothing=names.nothing,
        sizes=as_markdown(SIZES, sizes),
        goals="\n\n".join(goals(results, names)),
        our_best=our_best(results, names),
        choice=as_markdown(*our_choice(results, names)),
        **tables,
        differences=table(
            results,
            lambda cells, m: interval(difference(cells, m, names.default, "log_loss"), 1000, 1),
            others,
        ),
        seconds=table(results, lambda cells, m: f"{mean(cells, m, 'seconds'):.3f}"),
        ratios=table(
            results,
            lambda cells, m: (
                f"{mean(cells, m, 'seconds') / mean(cells, names.mcgrad, 'seconds'):.3f}"
            ),
            [names.default, *(m for m in names.ours if m != names.default)],
        ),
        meanings=as_markdown(["measure", "meaning"], [[*row] for row in MEANINGS.items()], "---"),
        least=LEAST,
        versions=", ".join(f"{name} {number}" for name, number in versions.items()),
    )


def summary(results: Results, names: Names) -> str:
    """Return what the terminal shows: the goals, and the choice among our own methods."""
    head, lines = our_choice(results, names)
    text = [paragraph.replace("**", "") for paragraph in goals(results, names)]
    return "\n\n".join([*text, our_best(results, names), as_markdown(head, lines)])


SIZES = ["data set", "rows", "fitted on", "tested on", "groups", "splits"]

MEANINGS = {
    "log-loss": "mean of -log of the label's probability; probabilities are kept between 1e-6 and "
    "1 - 1e-6",
    "Brier": "mean of the squared difference between the probability and the label",
    "worst-group ECE": "largest class-wise ECE of a group, debiased: the root of the mean over 15 "
    "bins of gap² less what chance adds to it",
    "amplification": "mean of abs(log(q / q_ref) - log(r / r_ref)) over groups and labels; q is "
    "the mean probability of the label in the group, r its rate, ref the largest group",
    "seconds": "of one processor, for fitting the repair and applying it to the test rows, without "
    "the model",
}

PAGE = """# Repair beside its peers

A repair of probabilities can do harm, and it can be slow. This page compares {n_methods} ways to
repair, ours among them, in {n_cases} cases. A case is a data set and a model. To repeat it:

```sh
make repair
```

Each model is fitted on the training rows, and without each of five folds of them. Every method gets
the same out-of-fold scores. It is measured on the test rows, with the model that was fitted on all
training rows. Methods whose name ends in *ensemble* average the models of the folds instead: a part
of their gain is one of the model.

*{nothing}* is the model as it is. *{mcgrad}* is given the score and the group. *{all_features}* is
also given the features of the model. It adds boosted trees to the model, which is more than a
calibration. Peers have their default or recommended settings. The default of this library is
*{default}*.

{sizes}

Where fewer rows are used than there are, they are drawn anew for each split. Random splits have a
quarter of their rows in the test, with the same share of each label. LightGBM has its default
settings. Logistic regression is that of scikit-learn, on standardised features.

{meanings}

A group is measured on its own if it has at least {least} test rows. The two largest always are.

Intervals are 95%. With several splits they are those of Nadeau and Bengio, which allow for the rows
that splits share. With one split they are jackknife intervals over blocks of test rows. Two methods
are *not distinguishable* if the interval of their difference contains 0. That is a weak statement
where there are few splits, since intervals are then wide. Intervals are not adjusted for the number
of comparisons.

## The goals

{goals}

## Which of our methods

{our_best}

{choice}

## Log-loss

Best in bold. ≈ marks what is not distinguishable from the best, here and below.

{log_loss}

Difference from the default, × 1000, with its interval. Positive: the default is better.

{differences}

## Amplification

{amplification}

## Worst-group ECE

{worst_ece}

## Brier

{brier}

## Seconds

{seconds}

Seconds of our methods, divided by those of {mcgrad}:

{ratios}

Versions: {versions}.
"""
