"""Error rates of every statement of an audit, in simulated worlds whose truth is known.

    python benchmarks/statements.py [--repeats 400] [--world NAME] [--processes 2]
    python benchmarks/statements.py --markdown docs/statements.md

Each repeat draws a sample of a world of `worlds.py`, audits it at the tolerances 0 and .05, and
holds every verdict, interval, comparison and gate against the world's truth and against each other.
A rate is held against its target with two Monte-Carlo standard errors to spare. Exits with 1 if one
misses it, or if the report lacks what a statement is read from.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from judge import CHECKS, TOLERANCES, Case, run, training_rates
from truth import truth_of
from worlds import WORLDS, World, draw, generator

LARGEST = 200_000
"""Rows up to which `rows_needed` is tried."""
LACKS = (AttributeError, KeyError, TypeError, ValueError)
"""What a statement raises that is not there yet."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the table: its title, the rates that are allowed, and what it means."""

    title: str
    low: float
    high: float
    meaning: str


COLUMNS = {
    "verdict 0": Column(
        "false verdict, tol. 0",
        0.0,
        0.05,
        "a group, part or all rows called miscalibrated with a true error within the tolerance, or "
        "calibrated with a true error above it; tolerance 0",
    ),
    "verdict 0.05": Column(
        "false verdict, tol. .05", 0.0, 0.05, "the same at tolerance .05, the default"
    ),
    "direction": Column(
        "wrong direction",
        0.0,
        0.05,
        "a group rightly called miscalibrated, but too high where it is too low on average, or "
        "over-confident where it is under-confident, or the reverse",
    ),
    "covered": Column(
        "verdicts cover",
        0.95,
        1.0,
        "the intervals of all verdicts together contain the true errors",
    ),
    "comparison": Column(
        "false comparison",
        0.0,
        0.05,
        "the interval of some comparison does not contain the true difference",
    ),
    "pe false": Column(
        "false PE verdict",
        0.0,
        0.05,
        "amplifies, dampens or reverses is said where the model changes no ratio between groups",
    ),
    "pe word": Column(
        "wrong PE word",
        0.0,
        0.05,
        "a ratio is changed, but what is said (amplifies, dampens or reverses) is true of no group "
        "and class",
    ),
    "pe covered": Column(
        "amplifications cover",
        0.95,
        1.0,
        "the intervals of all log amplifications of a kind contain the true ones",
    ),
    "intervals": Column(
        "intervals cover",
        0.95,
        1.0,
        "the report's intervals of a metric contain the true values of all groups and parts",
    ),
    "accuracy": Column(
        "accuracy", 0.93, 0.995, "its single, unadjusted interval covers the true value; per group"
    ),
    "classwise_ece": Column(
        "class ECE", 0.93, 0.995, "its single, unadjusted interval covers the true value; per group"
    ),
    "brier": Column(
        "Brier", 0.93, 0.995, "its single, unadjusted interval covers the true value; per group"
    ),
    "log_loss": Column(
        "log-loss", 0.93, 0.995, "its single, unadjusted interval covers the true value; per group"
    ),
    "gaps": Column(
        "gaps and PE",
        0.93,
        1.0,
        "the single interval of a metric's largest difference between groups, or of PE, covers",
    ),
    "gate": Column(
        "false gate",
        0.0,
        0.05,
        "the gate `miscalibrated`, `amplifies` or an ECE limit under `lenient` fails where the "
        "population is within it, or an ECE limit under `strict` passes where it is not",
    ),
    "contradiction": Column(
        "contradictions",
        0.0,
        0.0,
        "two of interval, figure, verdict, comparison and gate contradict each other",
    ),
    "power": Column("power", 0.0, 1.0, "the affected group is called miscalibrated"),
    "compared": Column(
        "power of comparison", 0.0, 1.0, "the affected group is said to be worse than the other"
    ),
}


# --- repeats ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Tally:
    """How often each event happened in a world, and why some could not be looked at."""

    world: str
    counts: dict[str, dict[str, list[int]]] = dataclasses.field(default_factory=dict)
    missing: dict[str, set[str]] = dataclasses.field(default_factory=dict)

    def add(self, column: str, about: str, happened: bool) -> None:
        """Count an event."""
        count = self.counts.setdefault(column, {}).setdefault(about, [0, 0])
        count[0] += bool(happened)
        count[1] += 1

    def lacks(self, column: str, why: Exception) -> None:
        """Note that a column cannot be filled."""
        self.missing.setdefault(column, set()).add(f"{type(why).__name__}: {why}"[:160])


def tally_of(name: str, repeats: int, seed: int = 1, truth_rows: int = 1_000_000) -> Tally:
    """Repeat a world."""
    world = WORLDS[name]
    truth, tally = truth_of(world, truth_rows), Tally(name)
    for i in range(repeats):
        rng = generator(world, seed, i)
        rows = draw(world, rng)
        rates = training_rates(world, rng)
        reports: dict[float, Any] = {}
        for tolerance in TOLERANCES:
            try:
                reports[tolerance] = run(world, rows, tolerance, rates)
            except LACKS as why:
                reports[tolerance] = why
        case = Case(world, truth, reports, rates)
        for columns, check in CHECKS:
            try:
                # a check that breaks off counts in full or not at all
                found = list(check(case))
            except LACKS as why:
                for column in columns:
                    tally.lacks(column, why)
                continue
            for event in found:
                tally.add(*event)
    return tally


NEEDED = (
    ("calibrated", 300, 0.05),
    ("calibrated, small groups", 120, 0.05),
    ("shifted by 15 points", 60, 0.05),
    ("error .10, twice the tolerance", 300, 0.05),
    ("error .03, inside the tolerance", 800, 0.05),
    ("over-confident by 5 points", 200, 0.0),
    ("shifted by 3 points", 500, 0.0),
    ("4 classes, one too high", 300, 0.0),
    ("1.6% positives, groups of 20 to 160", 40, 0.05),
)
"""World, rows of group B and tolerance, where `rows_needed` is tried."""


@dataclasses.dataclass
class Needed:
    """How often the rows that an undecided verdict asks for suffice."""

    world: str
    rows: int
    tolerance: float
    undecided: int = 0
    unknown: int = 0
    skipped: int = 0
    tried: int = 0
    decided: int = 0
    asked: list[int] = dataclasses.field(default_factory=list)
    missing: str = ""


def needed_of(name: str, rows: int, tolerance: float, repeats: int, seed: int = 1) -> Needed:
    """Try `rows_needed` of group B: draw it anew with so many rows."""
    world, found = WORLDS[name], Needed(name, rows, tolerance)
    for i in range(repeats):
        rng = generator(world, seed, i, rows)
        try:
            verdict = _verdict_of_b(world, rng, rows, tolerance)
            if verdict.word != "not enough evidence":
                continue
            found.undecided += 1
            n = verdict.rows_needed
            if n is None:
                found.unknown += 1
                continue
            found.asked.append(int(n))
            if n > LARGEST:
                found.skipped += 1
                continue
            found.tried += 1
            again = _verdict_of_b(world, rng, int(n), tolerance)
            found.decided += again.word != "not enough evidence"
        except LACKS as why:
            found.missing = f"{type(why).__name__}: {why}"[:160]
            break
    return found


def _verdict_of_b(world: World, rng: np.random.Generator, rows: int, tolerance: float) -> Any:
    drawn = draw(world, rng, {**world.sizes, "B": rows})
    return run(world, drawn, tolerance).verdicts["B"]


# --- rates against targets -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rate:
    """The worst rate of a column in a world: the one that is nearest to missing its target."""

    value: float
    error: float
    about: str
    holds: bool
    target: str
    trials: int

    def __str__(self) -> str:
        """Return it in percent, with its Monte-Carlo error."""
        mark = "" if self.holds else " ✗"
        return f"{100 * self.value:.1f} ± {100 * self.error:.1f}{mark}"


def rate_of(tally: Tally, column: str) -> Rate | None:
    """Return the rate that is worst against its target; None if nothing was counted.

    Of several rates (groups, kinds, gates), the worst misses by chance more often than one does;
    the two standard errors grow so that it does not.
    """
    counts = tally.counts.get(column, {})
    if not counts:
        return None
    z = -statistics.NormalDist().inv_cdf(statistics.NormalDist().cdf(-2.0) / len(counts))
    rates = []
    for about, (happened, trials) in counts.items():
        low, high = limits(tally.world, column, about)
        value = happened / trials
        above = (value - high) / max(_error(high, trials), 1e-12)
        below = (low - value) / max(_error(low, trials), 1e-12)
        beyond, error = max(above, below), _error(value, trials)
        rate = Rate(value, error, about, beyond <= z, _target(low, high), trials)
        rates.append((beyond, rate))
    return max(rates, key=lambda pair: pair[0])[1]


def limits(world: str, column: str, about: str) -> tuple[float, float]:
    """Return the lowest and highest rate that is allowed."""
    low, high = COLUMNS[column].low, COLUMNS[column].high
    wanted = WORLDS[world].power
    if column == "power" and wanted is not None:
        low = wanted.target
    if about.endswith("(near 0)"):
        high = 1.0
    return low, high


def _error(rate: float, trials: int) -> float:
    return math.sqrt(rate * (1 - rate) / trials)


def _target(low: float, high: float) -> str:
    if low == 0.0:
        return f"at most {100 * high:g}%" if high < 1 else "no target"
    return f"{100 * low:g} to {100 * high:g}%" if high < 1 else f"at least {100 * low:g}%"


def needed_holds(found: Needed) -> bool:
    """Return whether the rows asked for suffice in 80%, within two errors."""
    if found.missing or not found.tried:
        return not found.missing
    return found.decided / found.tried >= 0.8 - 2 * _error(0.8, found.tried)


# --- showing ---------------------------------------------------------------------------------


def cells_of(tally: Tally, columns: list[str]) -> list[str]:
    """Return a line of the table."""
    line = [tally.world]
    for column in columns:
        rate = rate_of(tally, column)
        if column in tally.missing:
            line.append("missing")
        elif rate is None:
            line.append("")
        elif column == "contradiction":
            counts = tally.counts[column].values()
            total = sum(c[0] for c in counts)
            line.append(f"{total} of {sum(c[1] for c in counts)}" + (" ✗" if total else ""))
        else:
            line.append(str(rate))
    return line


def needed_cells(found: Needed) -> list[str]:
    """Return a line of the table of `rows_needed`."""
    share = "missing" if found.missing else ""
    if found.tried:
        value = found.decided / found.tried
        share = f"{100 * value:.1f} ± {100 * _error(value, found.tried):.1f}"
        share += "" if needed_holds(found) else " ✗"
    asked = f"{statistics.median(found.asked):,.0f}" if found.asked else ""
    return [
        found.world,
        f"{found.rows:,}",
        f"{found.tolerance:g}",
        str(found.undecided),
        asked,
        str(found.unknown),
        str(found.skipped),
        share,
    ]


NEEDED_HEAD = [
    "world",
    "rows of B",
    "tolerance",
    "undecided",
    "rows needed (median)",
    "none given",
    f"above {LARGEST:,}",
    "decided with so many",
]


def misses_of(tallies: list[Tally], needed: list[Needed]) -> list[str]:
    """Return a sentence for everything that misses its target or is missing."""
    lacking: dict[str, list[str]] = collections.defaultdict(list)
    for tally in tallies:
        for column, reasons in tally.missing.items():
            for why in reasons:
                lacking[f"{COLUMNS[column].title}: missing ({why})"].append(tally.world)
    found = [
        f"{what} in {len(where)} of {len(tallies)} worlds, such as {where[0]}"
        for what, where in lacking.items()
    ]
    for tally in tallies:
        for about, (happened, trials) in tally.counts.get("contradiction", {}).items():
            if happened:
                found.append(f"{tally.world}: {about} contradict, {happened} of {trials} times")
        for column, spec in COLUMNS.items():
            rate = rate_of(tally, column)
            if rate is not None and not rate.holds and column != "contradiction":
                about = f" ({rate.about})" if rate.about else ""
                found.append(
                    f"{tally.world}: {spec.title}{about}: {100 * rate.value:.1f}% of "
                    f"{rate.trials}, target {rate.target}"
                )
    for case in needed:
        if not needed_holds(case):
            share = case.missing or f"{100 * case.decided / case.tried:.1f}% of {case.tried}"
            found.append(
                f"{case.world}, {case.rows} rows, tolerance {case.tolerance:g}: rows needed "
                f"suffice: {'missing (' + share + ')' if case.missing else share}, target "
                "at least 80%"
            )
    return found


def as_text(head: list[str], lines: list[list[str]]) -> str:
    """Return a table with aligned columns, long titles on several lines."""
    tall = [t.split(" ") if i else [t] for i, t in enumerate(head)]
    height = max(map(len, tall))
    tops = [[t[i] if i < len(t) else "" for t in tall] for i in range(height)]
    width = [max(len(line[i]) for line in [*tops, *lines]) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            c.ljust(w) if not i else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, width, strict=True))
        )
        for line in [*tops, *lines]
    )


def as_markdown_table(head: list[str], lines: list[list[str]]) -> str:
    """Return a table in Markdown."""
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def as_page(tallies: list[Tally], needed: list[Needed], repeats: int, seed: int) -> str:
    """Return the page of the documentation."""
    columns = list(COLUMNS)
    head = ["world", *(c.title for c in COLUMNS.values())]
    meanings = [
        f"| {c.title} | {_target(c.low, c.high) if c.high else 'none at all'} | {c.meaning} |"
        for name, c in COLUMNS.items()
        if name != "power"
    ]
    meanings.append(f"| power | see below | {COLUMNS['power'].meaning} |")
    wanted = [
        f"| {w.name} | {w.power.tolerance:g} | at least {100 * w.power.target:g}% |"
        for w in WORLDS.values()
        if w.power is not None
    ]
    misses = misses_of(tallies, needed)
    return PAGE.format(
        worlds=len(tallies),
        repeats=repeats,
        seed=seed,
        meanings="\n".join(meanings),
        table=as_markdown_table(head, [cells_of(t, columns) for t in tallies]),
        wanted="\n".join(wanted),
        needed=as_markdown_table(NEEDED_HEAD, [needed_cells(n) for n in needed]),
        misses="\n".join(f"- {miss}" for miss in misses) or "Every target is met.",
    )


PAGE = """# How often the statements are true

Every verdict, interval, comparison and gate of an audit can be wrong by chance. This page shows how
often each is wrong, in {worlds} simulated worlds whose truth is known. From each world {repeats}
samples were drawn (seed {seed}). Each was audited at level .95, with the tolerances 0 and .05. To
repeat it:

```sh
python benchmarks/statements.py --repeats {repeats} --seed {seed} --markdown docs/statements.md
```

The worlds are defined in `benchmarks/worlds.py`. They are not those that the statistics were built
on. Earlier runs of them, with other seeds, did find faults, which were mended. Where a world has an
error, every second group has it: B, and of the small groups T and V. The true error of a group is
the population's ECE with 15 bins: the largest of that of the predicted label and those of the
classes.

| column | target | what is counted, in percent of the samples |
|---|---|---|
{meanings}

The number after ± is the Monte-Carlo standard error. A rate is marked ✗ if it is more than two
standard errors beyond its target. Where a column has several rates (of groups, metrics, kinds of PE
or gates), the table shows the one nearest to missing its target, and the two standard errors are
widened for their number. False verdicts, comparisons and gates are family-wise: one wrong statement
about any group, class or part makes the sample count. Contradictions are counted in checks. A
single interval may cover more often than 99.5% where the true value is near 0, or where the group
has too few rows for the interval to miss on both sides. A rate that is exactly on its target is
marked by chance once in 44 times.

{table}

## Power

Two groups of equal size, one of them affected; accuracy about .75. The rows are those of the
affected group.

| world | tolerance | target |
|---|---|---|
{wanted}

## Rows needed

An undecided verdict says how many rows would decide it 4 times in 5. Here a sample was drawn; where
group B was undecided, B was drawn anew with the number of rows asked for. Target: decided in at
least 80%.

{needed}

## What does not hold

{misses}
"""


# --- the command -----------------------------------------------------------------------------


def _task(task: tuple[Any, ...]) -> Tally | Needed:
    kind, *arguments = task
    try:
        return tally_of(*arguments) if kind == "world" else needed_of(*arguments)
    except Exception as error:
        error.add_note(f"in the world {arguments[0]!r}")
        raise


def results_of(
    names: list[str], repeats: int, seed: int, processes: int
) -> tuple[list[Tally], list[Needed]]:
    """Run worlds, and what is tried of `rows_needed` in them; progress goes to stderr."""
    tasks: list[tuple[Any, ...]] = [("world", name, repeats, seed) for name in names]
    tasks += [("needed", *case, repeats, seed) for case in NEEDED if case[0] in names]
    started, found = time.perf_counter(), []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for result in pool.imap(_task, tasks):
            found.append(result)
            took = time.perf_counter() - started
            print(f"{len(found)}/{len(tasks)}  {took:6.0f} s  {result.world}", file=sys.stderr)
    tallies = [f for f in found if isinstance(f, Tally)]
    return tallies, [f for f in found if isinstance(f, Needed)]


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=400, help="samples of each world")
    parser.add_argument("--world", action="append", help="a world's name or how it begins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="write the page of the documentation here")
    options = parser.parse_args()
    wanted = set(options.world or [""])
    names = [n for n in WORLDS if n in wanted or any(n.startswith(w) for w in wanted - {*WORLDS})]
    unknown = [w for w in wanted if not any(n.startswith(w) for n in WORLDS)]
    if unknown:
        parser.error(f"there is no world {unknown[0]!r}; the worlds are:\n" + "\n".join(WORLDS))
    if options.repeats < 1 or options.processes < 1:
        parser.error("--repeats and --processes must be at least 1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism
    tallies, needed = results_of(names, options.repeats, options.seed, options.processes)
    head = ["world", *(c.title for c in COLUMNS.values())]
    print(as_text(head, [cells_of(t, list(COLUMNS)) for t in tallies]))
    if needed:
        print("\n" + as_text(NEEDED_HEAD, [needed_cells(n) for n in needed]))
    misses = misses_of(tallies, needed)
    print("\nWhat does not hold" if misses else "\nEvery target is met.")
    for miss in misses:
        print(f"- {miss}")
    if options.markdown:
        page = as_page(tallies, needed, options.repeats, options.seed)
        options.markdown.write_text(page, encoding="utf-8")
    return 1 if misses else 0


if __name__ == "__main__":
    raise SystemExit(main())
