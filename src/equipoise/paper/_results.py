"""The folder of results: every table as CSV, the frontiers as one figure, and a page with both."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from equipoise._files import replace_file
from equipoise._inputs import counted
from equipoise.paper import _tables as tables
from equipoise.paper._claims import claims_tables
from equipoise.paper._digest import Digest
from equipoise.paper._figures import CAPTION, pareto_figure, rendered
from equipoise.paper._published import paper_name
from equipoise.paper._render import as_csv, escaped, markdown
from equipoise.paper._tables._optimised import EXPERIMENTS, Baseline
from equipoise.paper._tables._table import Table

PAGE = "REPLICA.md"
FIGURE = "frontiers.svg"


def main_tables(digests: Sequence[Digest], baseline: Baseline = "mixed") -> list[tuple[str, Table]]:
    """Return the tables that are shown, each with its reading."""
    found = [
        ("", tables.statistics(digests)),
        ("as published", tables.temperature_scaling(digests)),
        ("validated", tables.temperature_scaling_validated(digests)),
    ]
    for name in EXPERIMENTS:
        found += [
            ("as published", tables.optimised(digests, name, baseline)),
            ("validated", tables.validated(digests, name)),
        ]
    return [*found, ("both readings", tables.volumes(digests)), *claims_tables(digests)]


def more_tables(digests: Sequence[Digest], baseline: Baseline = "mixed") -> list[Table]:
    """Return the tables with every technique, as CSV only."""
    return [
        table
        for name in EXPERIMENTS
        for table in (
            tables.all_published(digests, name, baseline),
            tables.all_validated(digests, name),
        )
    ]


def heading(name: str, reading: str) -> str:
    """Return the heading of a table."""
    first = name.split("-")[0]
    number = first.removeprefix("table")
    what = f"Table {number}" if number.isdigit() else first.capitalize()
    return f"{what}, {reading}" if reading else what


def write_results(
    folder: Path,
    digests: Sequence[Digest],
    command: Sequence[str],
    absent: Sequence[str] = (),
    baseline: Baseline = "mixed",
) -> None:
    """Write the tables, the figure and the page that shows them; existing files are replaced.

    The page names the `command` that makes these results, and the datasets that are `absent`.
    """
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    main = main_tables(digests, baseline)
    for table in [*(t for _, t in main), *more_tables(digests, baseline)]:
        _put(folder / "tables" / f"{table.name}.csv", as_csv(table))
    replace_file(folder / FIGURE, rendered(pareto_figure(digests), "svg"))
    _put(folder / PAGE, _page(digests, main, command, absent))


def _put(path: Path, text: str) -> None:
    replace_file(path, text.encode())


def _page(
    digests: Sequence[Digest],
    main: Sequence[tuple[str, Table]],
    command: Sequence[str],
    absent: Sequence[str],
) -> str:
    runs = sum(sum(d.facts["runs"].values()) * len(d.seeds) for d in digests)
    made = {f"{k} {v}" for d in digests for k, v in d.facts["versions"].items()}
    some = {
        d.dataset: [
            f"{paper_name(t)} {100 * s:.0f}%" for t, s in d.facts["dead"].items() if s >= 0.005
        ]
        for d in digests
    }
    dead = "; ".join(f"{name} {', '.join(shares)}" for name, shares in some.items() if shares)
    infinite = "; ".join(
        f"{d.dataset} {100 * max(d.facts['infinite_pe_deterministic'].values()):.0f}%"
        for d in digests
    )
    lines = [
        "# The paper's tables, reproduced",
        "",
        "This page is generated. Every number of ours comes from the runs; every number marked",
        "(paper) is the paper's.",
        "",
        "    " + shlex.join(command),
        "",
        "Without `--data` the files are fetched; with another `--out` these stay as they are.",
        "",
        f"{counted(len(digests), 'dataset')} ({', '.join(d.dataset for d in digests)}), "
        f"{runs:,} runs, {digests[0].facts['sweep']['max_epochs']} epochs each; "
        f"made with {', '.join(sorted(made))}.",
        *(["", f"**Not there yet: {', '.join(absent)}.**"] if absent else []),
        "",
        "Two readings of every result. *As published*: configuration and epoch are chosen on the",
        "test set, against one run of cross-entropy per seed; beside it, the control is chosen in",
        "the same way. *Validated*: chosen on validation within 5 points of the best accuracy of",
        "all techniques, the test set read once, against the control.",
        "",
        "*Slack*: those 5 points; as published they bound the frontiers, not Tables 3 to 8.",
        "*Control*: cross-entropy re-run as often as the technique it stands beside. *Hybrid*,",
        "`_ts`: a temperature per group after training; ours are exact, the paper's are not.",
        f"*{escaped('MMCE-W*')}*: MMCE-W as the paper's code computes it. *Dead*: a network whose",
        "outputs are all 0, which the ReLU on them allows.",
        "",
        "All techniques are in `tables/`. Each dataset's folder has the choices that the tables",
        "are made of (`choices.parquet`), the frontiers (`frontiers.parquet`), Table 3 by the",
        "paper's recipe (`recipe.parquet`), and versions, counts and PE floors (`facts.json`).",
        "",
    ]
    # the claims come first, as they are what a reader looks for
    for reading, table in sorted(main, key=lambda both: not both[1].name.startswith("claims")):
        lines.append(markdown(table).replace("### ", f"## {heading(table.name, reading)}: ", 1))
    lines += ["## Frontiers of PE and ECE", "", f"![Frontiers of PE and ECE]({FIGURE})", ""]
    lines += [escaped(CAPTION), ""]
    lines += [
        "## Dead networks, undefined ratios, diverged runs",
        "",
        "The paper's network has ReLU on its outputs, so both logits may end at 0 for every row.",
        f"Share of runs that end with most test rows so, where it is 0.5% or more: "
        f"{escaped(dead) or 'none'}.",
        "",
        "Largest share of a technique's epochs with infinite deterministic PE (a class is never",
        f"predicted for a group): {infinite}.",
        "",
        f"Runs that diverged: {sum(d.facts['diverged'] for d in digests)}.",
        "",
    ]
    return "\n".join(lines)
