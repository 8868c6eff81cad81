"""Speed and memory of `equipoise predict` beside reading the same file.

    make bench
    python benchmarks/predict.py [--quick]

A table of 12 mixed columns (numbers, amounts such as 34,800.77, dates, categories, free text, truth
values, missing values) is made up with a seed and written as CSV (about 330 MB) and Parquet to a
temporary folder, and a model is trained on its first rows. What is timed, each in a process of its
own, from opening the file on: all batches of the one reader, and the whole command, which encodes,
predicts, audits and writes them. Peak memory is that of the process, imports included. Written to
benchmarks/results/predict.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from report import Report

RESULTS = Path(__file__).parent / "results" / "predict.json"
CHUNK = 250_000
WORDS = [f"{a}{b}" for a in ("red", "old", "far", "dry", "new") for b in ("wood", "hill", "gate")]


def rows(n: int, seed: int) -> pa.Table:
    """Make up rows in which age, hours and sex say something about the label."""
    rng = np.random.default_rng(seed)

    def one_of(values: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            rng.integers(0, len(values), n).astype(np.int8), pa.array(values)
        ).cast(pa.string())

    age, hours = rng.integers(18, 80, n), rng.gamma(8, 5, n).round(2)
    sex = rng.integers(0, 2, n)
    cents = rng.integers(100_000, 9_999_999, n)
    thousands, rest = (pa.array(v).cast(pa.string()) for v in divmod(cents // 100, 1000))
    rest = pc.utf8_lpad(rest, 3, "0")
    cents = pc.utf8_lpad(pa.array(cents % 100).cast(pa.string()), 2, "0")
    day = pa.array(rng.integers(10_000, 20_000, n).astype(np.int32)).cast(pa.date32())
    score = age / 15 + sex + hours / 20 + rng.normal(size=n)
    return pa.table(
        {
            "id": rng.permutation(n) + n * seed,
            "age": age,
            "hours": pa.array(hours, mask=rng.random(n) < 0.02),
            "amount": pc.binary_join_element_wise(
                pc.binary_join_element_wise(thousands, rest, ","), cents, "."
            ),
            "since": day.cast(pa.string()),
            "job": one_of([f"job {i}" for i in range(12)]),
            "city": one_of([f"City of {w}" for w in WORDS]),
            "remark": pc.binary_join_element_wise(*(one_of(WORDS) for _ in range(3)), " "),
            "member": pa.array(rng.random(n) < 0.5, mask=rng.random(n) < 0.05),
            "weight": rng.normal(size=n),
            "sex": pa.array(np.array(["f", "m"], object)[sex]),
            "y": pa.array(np.array(["no", "yes"], object)[(score > 7).astype(int)]),
        }
    )


def write(folder: Path, n: int) -> None:
    """Write the rows as CSV and Parquet, and the first of them for training."""
    parts = [(min(CHUNK, n - start), i) for i, start in enumerate(range(0, n, CHUNK))]
    first = rows(*parts[0])
    pa.csv.write_csv(first.slice(0, 5000), folder / "train.csv")
    with (
        pa.csv.CSVWriter(folder / "rows.csv", first.schema) as text,
        pq.ParquetWriter(folder / "rows.parquet", first.schema) as typed,
    ):
        for size, seed in parts:
            table = rows(size, seed)
            text.write_table(table)
            typed.write_table(table)


# --- in a process of its own -----------------------------------------------------------------


def read_all(data: str) -> None:
    """Read the rows, and nothing else."""
    from equipoise._files import reader

    with reader(data) as files:
        for _ in files.batches():
            pass


def tell(task: str, *arguments: str) -> None:
    """Do a task, and print the seconds it took and the peak memory."""
    if task == "read":
        import equipoise._files._batches

        start = time.perf_counter()
        read_all(*arguments)
    else:
        import equipoise.training
        from equipoise.cli import main

        assert equipoise.training.GroupwiseMLPClassifier
        start = time.perf_counter()
        with Path(os.devnull).open("w") as nothing:
            sys.stdout, screen = nothing, sys.stdout
            main(["predict", *arguments], standalone_mode=False)
            sys.stdout = screen
    seconds = time.perf_counter() - start
    # ru_maxrss would be that of the process that started this one, where that is more
    status = Path("/proc/self/status")
    if status.exists():
        peak = int(status.read_text().split("VmHWM:")[1].split()[0]) / 1e3
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"seconds": seconds, "megabytes": peak}))


def apart(*task: str) -> dict[str, float]:
    """Do a task in a process of its own."""
    command = [sys.executable, __file__, "--task", *task]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(report: Report, folder: Path, kind: str, out: str, n: int, rounds: int) -> None:
    """Compare with reading, and check the memory."""
    data, written = folder / f"rows.{kind}", folder / f"predictions.{out}"
    command = str(folder / "model"), str(data), "--out", str(written), "--force"
    found: dict[str, list[dict[str, float]]] = {"reading": [], "equipoise": []}
    for _ in range(rounds):
        found["reading"].append(apart("read", str(data)))
        found["equipoise"].append(apart("predict", *command))
    size = data.stat().st_size / 1e6
    written.unlink()
    times = {name: min(one["seconds"] for one in all_) for name, all_ in found.items()}
    peaks = {name: max(one["megabytes"] for one in all_) for name, all_ in found.items()}
    notes = {name: f"{peak:.0f} MB at most" for name, peak in peaks.items()}
    title = f"{n:,} rows of {kind} ({size:.0f} MB) to {out}"
    report.section(title, times, notes)
    report.check(f"{kind} to {out}: peak memory in MB", peaks["equipoise"], 500, most=True)
    ratio = times["equipoise"] / times["reading"]
    report.check(f"{kind} to {out}: time / time of reading", ratio, TARGETS[kind, out], most=True)


# half as much again as was measured; reading Parquet takes a sixth of the time of CSV
TARGETS = {("csv", "csv"): 8, ("csv", "parquet"): 11, ("parquet", "parquet"): 35}


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--task", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        tell(*arguments.task)
        return
    n = 3_000_000 // (10 if arguments.quick else 1)
    report = Report(RESULTS, ("duckdb", "numpy", "pyarrow"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, n)
        train = ["train", str(folder / "train.csv"), "--label", "y", "--group", "sex"]
        train += ["--out", str(folder / "model"), "--max-epochs", "5", "--as", "text:remark"]
        command = [sys.executable, "-m", "equipoise", *train]
        subprocess.run(command, check=True, capture_output=True)
        for kind, out in TARGETS:
            compare(report, folder, kind, out, n, arguments.rounds)
    report.finish()


if __name__ == "__main__":
    main()
