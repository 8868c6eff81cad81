"""Print the lowest version that pyproject.toml allows of each library, for `make floors`."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))[
    "project"
]


def lowest(requirements: list[str]) -> list[str]:
    """Return ``name==version`` of each requirement with a floor."""
    found = [re.match(r"([\w-]+)[^>]*>=([\d.]+)", text) for text in requirements]
    return [f"{m[1]}=={m[2]}" for m in found if m]


if __name__ == "__main__":
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + [r for name in sys.argv[1:] for r in extras[name]]
    print("\n".join(lowest(wanted)))
