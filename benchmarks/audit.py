"""Speed and memory of audits from files, beside DuckDB's own sums and beside Fairlearn.

    make bench
    python benchmarks/audit.py [--quick]

Rows of six groups and two classes are made up with a seed and written as Parquet to a temporary
folder (about 1 GB). What is timed: `fill`, which brings back the audit table with every sum that
the metrics need, from opening the files on. Beside it DuckDB's own SELECT of the sums of the same
columns, ungrouped and by group, and the same scores in plain SQL, added up as floats and unchecked.
Peak memory is that of a process of its own, imports included. Everything runs on all cores;
contestants take turns, and the fastest of several rounds counts. Written to
benchmarks/results/audit.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Report, race

from equipoise.auditing import intervals_from_table
from equipoise.auditing._pushdown import Columns, fill
from equipoise.metrics import AuditTable, by_group, groupwise_calibration_error

RESULTS = Path(__file__).parent / "results" / "audit.json"
COLUMNS = Columns("y", "p", "g")
N_BINS = 15


def rows(n: int, seed: int) -> pa.Table:
    """Make up predictions of six groups, the smallest of them 3% of the rows."""
    rng = np.random.default_rng(seed)
    p = rng.beta(1.2, 1.8, n)
    y = (rng.random(n) < p).astype(np.int8)
    g = rng.choice(6, n, p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03]).astype(np.int8)
    names = pa.array(["A", "B", "C", "D", "E", "F"])
    return pa.table({"p": p, "y": y, "g": pa.DictionaryArray.from_arrays(g, names).cast("string")})


def write(folder: Path, n: int, files: int) -> Path:
    """Write rows to several files, each with others."""
    folder.mkdir()
    for i in range(files):
        pq.write_table(rows(n // files, i), folder / f"part{i:02}.parquet")
    return folder


# --- files -----------------------------------------------------------------------------------

SCORES = """
SELECT g, count(*), sum(p), sum(y), sum((p - y) * (p - y)),
       -sum(ln(greatest(abs(1 - y - p), 1e-300)))
FROM read_parquet({files}) GROUP BY g
"""


def selects(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return what DuckDB itself is asked, each on a connection of its own as ours is."""
    files = f"'{folder}/*.parquet'"

    def ask(query: str) -> Callable[[], Any]:
        def run() -> Any:
            with duckdb.connect() as connection:
                return connection.sql(query).fetchall()

        return run

    return {
        "DuckDB: sums by group": ask(
            f"SELECT g, sum(p), sum(y), count(*) FROM read_parquet({files}) GROUP BY g"
        ),
        "DuckDB: sums of all rows": ask(
            f"SELECT sum(p), sum(y), count(g) FROM read_parquet({files})"
        ),
        "DuckDB: scores by group, as floats, unchecked": ask(SCORES.format(files=files)),
    }


def apart(folder: Path) -> dict[str, float]:
    """Fill a table in a process of its own; return the seconds it took and its peak memory."""
    command = [sys.executable, __file__, "--fill", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def fill_and_tell(folder: str) -> None:
    """Be that process."""
    start = time.perf_counter()
    table = fill(folder, COLUMNS).tables[()]
    seconds = time.perf_counter() - start
    # ru_maxrss would be that of the process that started this one, where that is more
    status = Path("/proc/self/status")
    if status.exists():
        peak = int(status.read_text().split("VmHWM:")[1].split()[0]) / 1e3
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"seconds": seconds, "rows": float(table["rows"].sum()), "megabytes": peak}))


def ten_million(report: Report, folder: Path, n: int, rounds: int) -> float:
    """Compare with DuckDB's own sums; return the seconds."""
    found = race({"equipoise": lambda: fill(folder, COLUMNS), **selects(folder)}, rounds)
    table = found["equipoise"][1].tables[()]
    sums = {row[0]: row[1:] for row in found["DuckDB: sums by group"][1]}
    for i, g in enumerate(table.groups):
        p, y, count = sums[g]
        if (table.sums["labels"][i, 1], table.sums["rows"][i]) != (y, count):
            raise AssertionError(f"group {g}: the counts differ from DuckDB's")
        if abs(table["probability"][i, 1] - p) > 1e-9 * p:
            raise AssertionError(f"group {g}: the probabilities differ from DuckDB's")
    peak = apart(folder)["megabytes"]
    times = {name: seconds for name, (seconds, _) in found.items()}
    notes = {"equipoise": f"every metric's sums, exact and checked; {peak:.0f} MB at most"}
    report.section(f"{n:,} rows of a Parquet file, 6 groups, K = 2", times, notes)
    ours = times["equipoise"]
    report.check(
        "ours / DuckDB's sums by group", ours / times["DuckDB: sums by group"], 3, most=True
    )
    report.check("peak memory in MB", peak, 500, most=True)
    return ours


def hundred_million(report: Report, folder: Path, small: Path, n: int) -> None:
    """Show that time grows with the rows, and memory hardly."""
    many, few = apart(folder), apart(small)
    for found, count in ((many, n), (few, n // 10)):
        if found["rows"] != count:
            raise AssertionError(f"{found['rows']:,.0f} rows were read of {count:,}")
    report.section(
        f"{n:,} rows of a folder of Parquet files, in a process of its own",
        {"equipoise": many["seconds"], f"equipoise, {n // 10:,} rows": few["seconds"]},
        {
            "equipoise": f"{many['megabytes']:.0f} MB at most",
            f"equipoise, {n // 10:,} rows": f"{few['megabytes']:.0f} MB at most",
        },
    )
    report.check("peak memory in MB, ten times the rows", many["megabytes"], 1000, most=True)
    growth = many["seconds"] / few["seconds"]
    report.check("time of ten times the rows / time", growth, 11, most=True)


# --- Fairlearn -------------------------------------------------------------------------------


def plain_ece(y: np.ndarray, p: np.ndarray) -> float:
    """Return the top-label ECE by NumPy, all bins at once."""
    confidence = np.maximum(p, 1 - p)
    correct = (p > 0.5) == y
    bins = np.maximum(np.ceil(confidence * N_BINS).astype(np.int64) - 1, 0)
    gap = np.bincount(bins, correct - confidence, N_BINS)
    return float(np.abs(gap).sum() / len(y))


def fairlearn(report: Report, n: int, rounds: int) -> None:
    """Compare with MetricFrame on arrays in memory, its metric as fast as NumPy makes it."""
    from fairlearn.metrics import MetricFrame

    data = rows(n, 0)
    y, p = data["y"].to_numpy(), data["p"].to_numpy()
    text = data["g"].to_numpy(zero_copy_only=False)
    codes = np.searchsorted(np.unique(text), text)

    def frame(groups: np.ndarray) -> dict[Any, float]:
        found = MetricFrame(
            metrics=plain_ece, y_true=y, y_pred=p, sensitive_features=groups
        ).by_group
        return {g: float(v) for g, v in found.items()}

    found = race(
        {
            "equipoise": lambda: groupwise_calibration_error(y, p, sensitive_features=codes),
            "Fairlearn MetricFrame, groups as numbers": lambda: frame(codes),
            "Fairlearn MetricFrame, groups as text": lambda: frame(text),
            "equipoise, every sum": lambda: AuditTable.from_arrays(y, p, sensitive_features=codes),
            "equipoise, every sum, by push-down": lambda: fill(data, COLUMNS),
        },
        rounds,
    )
    ours, theirs = found["equipoise"][1], found["Fairlearn MetricFrame, groups as numbers"][1]
    worst = max(abs(ours[g] - theirs[g]) for g in ours)
    if worst > 1e-9:
        raise AssertionError(f"the ECE of a group differs from Fairlearn's by {worst}")
    pushed = by_group(found["equipoise, every sum, by push-down"][1].tables[()], "ece")
    if max(abs(v - theirs[i]) for i, v in enumerate(pushed.values())) > 1e-9:
        raise AssertionError("the ECE by push-down differs from Fairlearn's")
    times = {name: seconds for name, (seconds, _) in found.items()}
    report.section(f"ECE of 6 groups, {n:,} rows in memory", times, {})
    slow = times["Fairlearn MetricFrame, groups as numbers"]
    report.check("Fairlearn's ECE by group / ours", slow / times["equipoise"], 30)


# --- intervals -------------------------------------------------------------------------------


def intervals(report: Report, n: int, rounds: int) -> None:
    """Time the intervals of every metric, from the sums alone."""
    data = rows(n, 0)
    y, p = data["y"].to_numpy(), data["p"].to_numpy()
    table = AuditTable.from_arrays(
        y, p, sensitive_features=data["g"].to_numpy(zero_copy_only=False)
    )
    ours = "equipoise, from the table's cells"
    seconds, _ = race({ours: lambda: intervals_from_table(table)}, rounds)[ours]
    report.section("Intervals of every metric, 6 groups", {ours: seconds}, {}, ours=ours)
    report.check("seconds of all intervals", seconds, 1, most=True)


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--fill", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        fill_and_tell(arguments.fill)
        return
    scale = 10 if arguments.quick else 1
    warnings.filterwarnings("ignore", module="(fairlearn|pandas).*")
    report = Report(RESULTS, ("duckdb", "fairlearn", "narwhals", "numpy", "pyarrow"))
    fairlearn(report, 1_000_000 // scale, rounds=3)
    intervals(report, 100_000 // scale, rounds=3)
    with tempfile.TemporaryDirectory() as name:
        small = write(Path(name) / "small", 10_000_000 // scale, 1)
        ten_million(report, small, 10_000_000 // scale, rounds=5)
        large = write(Path(name) / "large", 100_000_000 // scale, 20)
        hundred_million(report, large, small, 100_000_000 // scale)
    report.finish()


if __name__ == "__main__":
    main()
