"""Write the tables, figures and page of `paper/results` anew from its digests, without any run.

For changes to how results are shown; `equipoise reproduce` makes the digests themselves.
"""

import shlex
from pathlib import Path

from equipoise.paper import saved_digests, write_results
from equipoise.paper._grids import grid

FOLDER = Path(__file__).parents[1] / "paper" / "results"


def main() -> None:
    """Read the digests, and keep the command that the page names."""
    digests = saved_digests(FOLDER, "paper")
    page = (FOLDER / "README.md").read_text("utf-8").splitlines()
    command = next(line for line in page if line.startswith("    equipoise reproduce"))
    there = {d.dataset for d in digests}
    absent = [name for name in grid("paper") if name not in there]
    write_results(FOLDER, digests, shlex.split(command), absent)


if __name__ == "__main__":
    main()
