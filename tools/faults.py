"""Count the rows of the table of faults, and write docs/faults.md.

python tools/faults.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "faults"
PAGE = ROOT / "docs" / "faults.md"

HEAD = """# Faults that are tested

Made by `tools/faults.py`. `tests/faults` is a table: a fault, and the outcome that is promised.
One harness runs every row in a folder of its own. Whatever the fault, there is no traceback, no
control character reaches the screen, no file is lost or changed, and no temporary file stays.
The exit code is 2 with a sentence that names the mistake and the remedy, or the right result.
[SECURITY.md](../SECURITY.md) says what is promised.

| faults | cases |
|---|---|
"""

TAIL = """
Each kind of file of the fuzz is changed in 2,000 ways (bits flipped, cut short, parts doubled,
numbers and words replaced, and signed again where it has a digest); only success or a clean
refusal is allowed. Beside this table, `tests/test_sweep_kill.py` and
`tests/test_search_kill.py` kill sweeps and searches at many moments.
"""


def collected() -> Counter[str]:
    """Return the number of cases in each file."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-o",
        "addopts=",
        str(FOLDER),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    return Counter(line.partition("::")[0].rpartition("/")[2] for line in lines)


def page() -> str:
    """Return the page."""
    lines = []
    found = collected()
    for name, cases in sorted(found.items()):
        text = ast.get_docstring(ast.parse((FOLDER / name).read_text("utf-8"))) or name
        lines.append(f"| {text.splitlines()[0].rstrip('.')} | {cases:,} |\n")
    lines.append(f"| **all** | **{sum(found.values()):,}** |\n")
    return HEAD + "".join(lines) + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(PAGE.read_text("utf-8"))
