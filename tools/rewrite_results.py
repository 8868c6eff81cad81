"""Write the tables, figure and page of `paper/results` anew from its digests, without any run.

For changes to how results are shown; `equipoise reproduce` makes the digests themselves. With a
folder of raw datasets as argument, the PE floors are computed anew too.
"""

import dataclasses
import shlex
import sys
from pathlib import Path

from equipoise.datasets import load
from equipoise.paper import saved_digests, write_results
from equipoise.paper._digest import Digest, records
from equipoise.paper._floors import pe_floors
from equipoise.paper._grids import grid
from equipoise.paper._results import PAGE

FOLDER = Path(__file__).parents[1] / "paper" / "results"
FRONTIERS = (
    *("loss", "rho", "lam", "split_seed", "seed", "epoch"),
    *("test_pe", "test_ece15", "val_pe", "val_ece15", "reading", "calibration", "controls"),
)
"""Columns of a frontier that are kept."""


def lean(digest: Digest, data: str | None) -> Digest:
    """Return a digest without what no table uses, and with PE floors where there are data."""
    facts = digest.facts
    if data is not None:
        facts = facts | {"floors": pe_floors(load(digest.dataset, data_dir=data))}
    frontiers = {name: digest.frontiers[name] for name in FRONTIERS}
    return dataclasses.replace(
        digest, choices=records(digest.choices), frontiers=frontiers, facts=facts
    )


def main() -> None:
    """Read the digests, and keep the command that the page names."""
    data = sys.argv[1] if len(sys.argv) > 1 else None
    digests = [lean(d, data) for d in saved_digests(FOLDER, "paper")]
    for digest in digests:
        digest.save(FOLDER / digest.dataset)
    page = (FOLDER / PAGE).read_text("utf-8").splitlines()
    command = next(line for line in page if line.startswith("    equipoise reproduce"))
    there = {d.dataset for d in digests}
    absent = [name for name in grid("paper") if name not in there]
    write_results(FOLDER, digests, shlex.split(command), absent)


if __name__ == "__main__":
    main()
