"""The repair of probabilities beside its peers, on the same folds: `docs/repair.md`.

    make repair                            all of it; see the page for how long it takes
    python benchmarks/repair.py --quick    German credit and COMPAS, two splits
    python benchmarks/repair.py --datasets german mortgages --splits 3

For each data set, model and split, the model is fitted on the training rows, and without each of
five folds of them. Every method gets the same out-of-fold scores, and repairs the same scores of
the test rows. What is finished is kept in build/repair, so that a run that was stopped goes on from
there. A change of settings, versions or code makes it start anew; a change of the room
`calibration` only with our own methods.
"""

from __future__ import annotations

import os

# before NumPy and LightGBM are imported: every method is timed with one thread
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import platform  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from importlib.metadata import version  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from repair_cells import CASES, MODELS, Case, run_cell  # noqa: E402
from repair_methods import (  # noqa: E402
    ALL_FEATURES,
    DEFAULT,
    MCGRAD,
    NOTHING,
    OURS,
    PEERS,
    Method,
    warm_up,
)
from repair_page import Names, Results, as_page, summary  # noqa: E402

HERE = Path(__file__).parent
STORE = HERE.parent / "build" / "repair"
PACKAGE = HERE.parent / "src" / "equipoise"
PACKAGES = ("lightgbm", "MCGrad", "netcal", "numpy", "probmetrics", "scikit-learn")
PARTS = {"ours": OURS, "peers": PEERS}
NAMES = Names(DEFAULT, NOTHING, MCGRAD, ALL_FEATURES, tuple(OURS))

Task = tuple[Case, str, int, str]


def versions() -> dict[str, str]:
    """Return the versions of Python and of what is compared."""
    return {"Python": platform.python_version()} | {name: version(name) for name in PACKAGES}


@functools.cache
def digest_of(part: str) -> str:
    """Return what results depend on, as a hash: versions and code."""
    files = [HERE / f"repair_{name}.py" for name in ("cells", "measures", "methods")]
    files.append(PACKAGE / "datasets" / "_recipes.py")
    if part == "ours":
        files += sorted((PACKAGE / "calibration").glob("*.py"))
    parts = [json.dumps(versions()).encode(), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def path_of(task: Task) -> Path:
    """Return the file that keeps the results of a task."""
    case, model, split, part = task
    model = model.replace(" ", "-").lower()
    return STORE / f"{part}-{digest_of(part)}" / f"{case.dataset}-{model}-{split}.json"


@functools.cache
def _methods(part: str) -> dict[str, Method]:
    """Make the methods of a part, once in a process."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    named = {name: make() for name, make in PARTS[part].items()}
    warm_up(named)
    return named


def run_task(asked: tuple[Task, Path]) -> Task:
    """Run a task and keep its results."""
    task, path = asked
    case, model, split, part = task
    found = run_cell(case, model, split, _methods(part))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(found))
    temporary.replace(path)
    return task


def run_missing(tasks: list[Task], processes: int) -> None:
    """Run what is not kept yet; progress goes to stderr."""
    # paths are made here: code that is edited meanwhile must not change what results are kept as
    missing = [(task, path) for task in tasks if not (path := path_of(task)).is_file()]
    if len(missing) < len(tasks):
        print(f"{len(tasks) - len(missing)} of {len(tasks)} kept from before", file=sys.stderr)
    started = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, task in enumerate(pool.imap_unordered(run_task, missing), 1):
            case, model, split, part = task
            what = f"{case.dataset}, {model}, split {split}, {part}"
            took = time.perf_counter() - started
            print(f"{done}/{len(missing)}  {took:6.0f} s  {what}", file=sys.stderr)


def results_of(cases: list[Case]) -> Results:
    """Read what is kept."""
    results: Results = {}
    for case in cases:
        for model in MODELS:
            cells: list[dict[str, Any]] = []
            for split in range(case.splits):
                ours, peers = (
                    json.loads(path_of((case, model, split, part)).read_text()) for part in PARTS
                )
                cells.append(ours | {"methods": ours["methods"] | peers["methods"]})
            results[case.dataset, model] = cells
    return results


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two small data sets, two splits")
    parser.add_argument("--datasets", nargs="+", choices=CASES, metavar="NAME", help="only these")
    parser.add_argument("--splits", type=int, help="most splits of a data set")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="write the page of the documentation here")
    options = parser.parse_args()
    splits = options.splits or (2 if options.quick else 10)
    if splits < 1 or options.processes < 1:
        parser.error("--splits and --processes must be at least 1")
    names = options.datasets or (["german", "compas"] if options.quick else list(CASES))
    cases = [
        dataclasses.replace(CASES[name], splits=min(splits, CASES[name].splits))
        for name in CASES
        if name in names
    ]
    tasks: list[Task] = [
        (case, model, split, part)
        for case in reversed(cases)  # the largest first, so that no process waits for the other
        for model in reversed(MODELS)
        for split in range(case.splits)
        for part in reversed(PARTS)
    ]
    run_missing(tasks, options.processes)
    results = results_of(cases)
    print(summary(results, NAMES))
    if options.markdown:
        options.markdown.write_text(as_page(results, NAMES, versions()), encoding="utf-8")


if __name__ == "__main__":
    main()
