"""What all tests need."""

import ast
import importlib.util
import os
import secrets
import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

TRAINS = tuple(
    f"equipoise.{name}"
    for name in (
        "training", "sweep", "search", "paper", "GroupwiseMLPClassifier", "GroupwiseLoss",
        "FrontierSearch",
    )
)  # fmt: skip

# a shell starts what it puts in the background with SIGINT ignored, and children inherit that:
# the tests that interrupt would wait for ever
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray reads its settings once, as it is imported, whichever test imports it first. The token is for
# the tests alone, so that none is left in the home folder.
os.environ.pop("RAY_ADDRESS", None)
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32)
)


@pytest.fixture(autouse=True)
def _interrupts():
    """Spark's handler stays when its session has ended, and then fails: every test has Python's."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _importable(path: Path) -> bool:
    """Say whether what a test file imports is there, and does not train."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        if any(name.startswith(TRAINS) for name in names):
            return False
        if names and importlib.util.find_spec(names[0].split(".")[0]) is None:
            return False
    return True


# `make floors`: the oldest libraries, without torch, whose old builds bring CUDA
if os.environ.get("EQUIPOISE_WITHOUT_TORCH"):
    collect_ignore = [p.name for p in HERE.glob("*.py") if not _importable(p)] + ["faults"]


# --- a small sweep of the paper's kind -------------------------------------------------------


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Return the folder of the sweep, and its digest."""
    from paper_data import finish

    folder = tmp_path_factory.mktemp("german")
    digest = finish(folder)
    assert len(list(folder.glob("*.parquet"))) == 9
    return folder, digest


@pytest.fixture(scope="session")
def raw(store):
    """Return its runs as plain tables."""
    import oracle_paper
    from paper_data import SWEEP

    return oracle_paper.Raw(store[0], SWEEP.loss)


@pytest.fixture(scope="session")
def digest(store):
    """Return what is kept of it."""
    return store[1]
