"""Faults of files that are read: names, columns, quotes, bytes, addresses, what is no file."""

import errno
import functools
import gzip
import http.server
import io
import os
import re
import shutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fault_harness import COLUMNS, Fault, check_fault, people, rows, run_here
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import audit
from equipoise._files import opened, reader

pytestmark = [
    pytest.mark.slow,
    # PySpark says of pandas 3 that it does not know it yet, and of its own code what will change
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SPARK = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
]

TABLE = ("--label", "y", "--group", "sex", "--drop", "p", "--max-epochs", "1")
COMMANDS = {
    "audit": lambda data: ["audit", data, *COLUMNS],
    "audit with polars": lambda data: ["audit", data, *COLUMNS, "--engine", "polars"],
    "audit --train": lambda data: ["audit", "d.csv", *COLUMNS, "--train", data],
    "calibrate": lambda data: ["calibrate", data, *COLUMNS, "--out", "z.json"],
    "calibrate --holdout": lambda data: [
        "calibrate", "d.csv", *COLUMNS, "--holdout", data, "--out", "z.json"
    ],
    "calibrate --apply": lambda data: ["calibrate", data, "--apply", "cal.json", "--out", "z.csv"],
    "train": lambda data: ["train", data, *TABLE, "--out", "z"],
    "predict": lambda data: ["predict", "model", data, "--out", "z.csv"],
    "search": lambda data: ["search", data, *TABLE, "--out", "z"],
}  # fmt: skip
"""Every command that reads tables, by the path that it is given."""

QUICK = [name for name in COMMANDS if name != "search"]
MAKES = ("z", "z.csv", "z.json")


def per_command(name, data, says, commands=COMMANDS, **options):
    """Return a row for each command."""
    return [
        Fault(
            f"{name}: {command}",
            COMMANDS[command](data),
            says,
            needs_model=command == "predict",
            **options,
        )
        for command in commands
    ]


def written(frame, path):
    """Write a table in the format of its ending."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)


def outcome(command, data, folder):
    """Return what a command prints and writes for a file, without the file's name."""
    code, said = run_here(COMMANDS[command](data), folder)
    assert code == 0, said
    found = [said.replace(data, "DATA").replace(Path(data).name, "DATA")]
    for name in MAKES:
        if (folder / name).exists():
            # a model holds a date
            found.append((folder / name).read_bytes() if name != "z" else name)
            (folder / name).unlink()
    return found


def figures(data, engine="duckdb", **names):
    """Return all figures of an audit, in their order."""
    names = dict.fromkeys(("by", "pred", "w", "c")) | {"y": "y", "p": "p", "sex": "sex"} | names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = audit(
            names["y"],
            names["p"],
            sensitive_features=names["sex"],
            by=names["by"],
            y_pred=names["pred"],
            sample_weight=names["w"],
            clusters=names["c"],
            data=data,
            engine=engine,
            intervals=False,
        )
    sums = {name: array.tolist() for name, array in report.table.sums.items()}
    parts = {} if report.by is None else {k: v.overall for k, v in report.by.items()}
    return report.table.groups, sums, report.overall, report.groups, parts


# --- names of files ---------------------------------------------------------------------------

NAMES = {
    "b[1]": "b1", "a*": "ab", "x?": "xy", "e[!a]": "eb", "*": "q", "[b]": "b",
    "a b": "a", "a#b": "a", "a%20b": "a b", "a:b": "a", "a\\b": "b", "{a,b}": "a", "ünï": "uni",
    "~": "q", "it's": "its", "c=1": "c", "h$1": "h",
}  # fmt: skip
"""Names, and another file that some engine would take them for."""


def beside(name, ending):
    """Write the table under a name, and other rows under the name that it may be taken for."""

    def arrange(folder):
        written(people(), folder / f"{name}.{ending}")
        written(people(60, seed=1), folder / f"{NAMES[name]}.{ending}")

    return arrange


def is_as_plain(command, data, plain="d.csv"):
    """Say that a file gives what the same rows give under a plain name."""

    def run(folder):
        same = f"same{Path(plain).suffix}"
        shutil.copy(folder / plain, folder / same)
        assert outcome(command, data, folder) == outcome(command, same, folder)
        (folder / same).unlink()

    return run


def both(name, ending, command):
    """Read a folder of such a name that holds two files of which one may be taken for the other."""

    def run(folder):
        for at, seed in ((name, 2), (NAMES[name], 5)):
            written(people(50, seed=seed), folder / at / f"b[1].{ending}")
            written(people(40, seed=seed + 1), folder / at / f"b1.{ending}")
        each = [people(40, seed=3), people(50, seed=2)]
        written(pd.concat(each, ignore_index=True), folder / f"both.{ending}")
        want = outcome(command, f"both.{ending}", folder)
        found = outcome(command, name, folder)
        assert want[1:] == found[1:]
        assert re.findall(r"\d+", want[0]) == re.findall(r"\d+", found[0].replace(name, ""))
        # the folder is literal in a pattern too
        assert outcome(command, f"{name}/*.{ending}", folder)[1:] == want[1:]
        shutil.rmtree(folder / name)
        shutil.rmtree(folder / NAMES[name])
        (folder / f"both.{ending}").unlink()

    return run


def merged(data, expected):
    """Merge an audit of 80 rows, beside one of 60."""

    def run(folder):
        written(people(60, seed=1), folder / "other.csv")
        (folder / "in").mkdir()
        for source, name in (("d.csv", "b[1].json"), ("other.csv", "b1.json")):
            code, said = run_here(
                ["audit", source, *COLUMNS, "--json", str(Path("in", name))], folder
            )
            assert code == 0, said
        code, said = run_here(["audit", "--merge", data], folder)
        assert code == 0, said
        assert f"{expected} rows" in said
        shutil.rmtree(folder / "in")
        (folder / "other.csv").unlink()

    return run


def merged_pattern(folder):
    """Merge a pattern in a folder `b[1]`, beside a folder `b1`; and what is in folders below."""
    for seed, (name, inside) in enumerate((("b[1]", "b[1]"), ("b1", "b1"), ("deep", "b[1]/deep"))):
        written(people(60, seed=seed), folder / f"{name}.csv")
        (folder / inside).mkdir()
        out = str(Path(inside, "a.json"))
        code, said = run_here(["audit", f"{name}.csv", *COLUMNS, "--json", out], folder)
        assert code == 0, said
    for data, expected in (("b[1]/*.json", 60), ("b[1]/**/*.json", 120), ("b[1]", 120)):
        code, said = run_here(["audit", "--merge", data], folder)
        assert code == 0, said
        assert f"{expected} rows" in said
    for name in ("b[1]", "b1"):
        shutil.rmtree(folder / name)


NO_TEXT = os.fsdecode(b"n\xff")
"""A name of bytes that are not UTF-8, as Python holds it."""


def no_text(ending):
    """Write and read files whose name is not UTF-8."""

    def run(folder):
        name, plain = f"{NO_TEXT}.{ending}", f"plain.{ending}"
        written(people(), folder / plain)
        apply = ["calibrate", plain, "--apply", "cal.json", "--out", name]
        for arguments in (
            apply,
            ["audit", name, *COLUMNS, "--json", f"{NO_TEXT}.json"],
            ["audit", name, *COLUMNS, "--engine", "polars"],
            ["audit", "--merge", f"{NO_TEXT}.json"],
        ):
            code, said = run_here(arguments, folder)
            assert code == 0, said
            assert "80 rows" in said or "80 calibrated rows" in said
        for made in (name, f"{NO_TEXT}.json", plain):
            (folder / made).unlink()

    return run


def literal_with_spark(folder):
    """Read every name, and folders, with one Spark session."""
    for ending in ("csv", "parquet"):
        for name in ("b[1]", "a*", "a b", "a#b", "a%20b", "a:b", "a\\b", "{a,b}", "ünï", "c=1"):
            beside(name, ending)(folder)
            found = figures(folder / f"{name}.{ending}", "spark")
            assert found == figures(folder / "d.parquet"), name
            for path in folder.glob(f"*.{ending}"):
                if path.stem != "d":
                    path.unlink()
        written(people(50, seed=2), folder / "b[1]" / f"b[1].{ending}")
        written(people(40, seed=3), folder / "b[1]" / f"b1.{ending}")
        assert figures(folder / "b[1]", "spark") == figures(folder / "b[1]")
        shutil.rmtree(folder / "b[1]")


LITERAL = [
    *(
        Fault(
            f"a file named {name}.{ending}: {command}",
            is_as_plain(command, f"{name}.{ending}", plain),
            "",
            arrange=beside(name, ending),
            code=0,
        )
        for name in NAMES
        for ending, plain in (("csv", "d.csv"), ("parquet", "d.parquet"))
        for command in ("audit", "audit with polars", "calibrate --apply")
    ),
    *(
        Fault(
            f"a file named {name}: {command}",
            is_as_plain(command, f"{name}.csv"),
            "",
            arrange=beside(name, "csv"),
            code=0,
            needs_model=command == "predict",
        )
        for name in ("b[1]", "a*", "a\\b")
        for command in ("audit --train", "calibrate", "calibrate --holdout", "train", "predict")
    ),
    *(
        Fault(
            f"a folder named {name}, {ending}: {command}",
            both(name, ending, command),
            "",
            code=0,
        )
        for name in ("b[1]", "a*", "a\\b", "a:b")
        for ending in ("csv", "parquet")
        for command in ("audit", "audit with polars", "calibrate --apply")
    ),
    Fault("a merge of a file named b[1].json", merged("in/b[1].json", 80), "", code=0),
    Fault("a merge of a folder with b[1].json and b1.json", merged("in", 140), "", code=0),
    Fault(
        "a merge of a pattern in a folder named b[1]",
        merged_pattern,
        "",
        code=0,
        makes=("b[1].csv", "b1.csv", "deep.csv"),
    ),
    *(
        Fault(
            f"a name that is not UTF-8, {ending}",
            no_text(ending),
            "",
            code=0,
            marks=[pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there")],
        )
        for ending in ("csv", "parquet")
    ),
    Fault("names of files that Spark reads", literal_with_spark, "", code=0, marks=SPARK),
]


# --- names of columns -------------------------------------------------------------------------

ODD = ("*", "a.b", "`", 'the "x"', "it's [x], {y}", "^.*$", "a b", "p.*", "$1; --", "ÿ€")
ROLES = ("y", "p", "sex", "by", "pred", "w", "c")


def with_roles():
    """Return predictions with a column for each role."""
    frame, rng = people(), np.random.default_rng(3)
    return frame.assign(
        by=rng.choice(["2024-03-01", "2024-04-02"], len(frame)),
        pred=np.where(frame.p > 0.4, "yes", "no"),
        w=rng.integers(1, 9, len(frame)) / 4,
        c=rng.integers(0, 30, len(frame)),
    )


@functools.cache
def plain_figures(role, unit):
    return figures(with_roles(), **{role: f"{role}{unit}"})


def odd_columns(role, engine, names=ODD):
    """Give a role's column each of the names, and compare with the plain one."""

    def run(folder):
        for name in names:
            frame = with_roles().rename(columns={role: name})
            for ending in ("csv", "parquet"):
                path = folder / f"odd.{ending}"
                written(frame, path)
                for unit in ("", ":month") if role == "by" else ("",):
                    found = figures(path, engine, **{role: f"{name}{unit}"})
                    want = plain_figures(role, unit)
                    assert found[0] == want[0]
                    assert list(found[4]) == list(want[4])
                    for key, value in want[1].items():  # sums of weights are rounded
                        np.testing.assert_allclose(found[1][key], value, rtol=1e-12)
                path.unlink()

    return run


def columns_of_commands(name):
    """Calibrate and train with a group, a probability or a label of that name."""

    def run(folder):
        def result(names, data):
            y, p, sex = names
            known = ["--label", y, "--group", sex]
            for command, out in (
                (["calibrate", data, *known, "--prob", p, "--out", "z.json"], "z.json"),
                (["calibrate", data, "--apply", "z.json", "--out", "z.csv"], "z.csv"),
                (["train", data, *known, "--drop", p, "--max-epochs", "1", "--out", "z"], "z"),
                (["predict", "z", data, "--out", "y.csv"], "y.csv"),
            ):
                code, said = run_here(command, folder)
                assert code == 0, said
                assert (folder / out).exists()
            cells = [pd.read_csv(folder / f, header=None, skiprows=1) for f in ("z.csv", "y.csv")]
            for path in ("z", "z.csv", "y.csv", "z.json"):
                (folder / path).unlink()
            return cells

        want = result(("y", "p", "sex"), "d.csv")
        for role in ("y", "p", "sex"):
            for ending in ("csv", "parquet"):
                odd = f"odd.{ending}"
                written(people().rename(columns={role: name}), folder / odd)
                names = [name if own == role else own for own in ("y", "p", "sex")]
                for own, plain in zip(result(names, odd), want, strict=True):
                    pd.testing.assert_frame_equal(own, plain)
                (folder / odd).unlink()

    return run


NAMED = [
    *(
        Fault(f"odd names of the column {role}: {engine}", odd_columns(role, engine), "", code=0)
        for engine in ("duckdb", "polars")
        for role in ROLES
    ),
    *(
        Fault(
            f"odd names of the column {role}: spark",
            odd_columns(role, "spark", ("*", "a.b", "`", 'it\'s [x], "y"')),
            "",
            code=0,
            marks=SPARK,
        )
        for role in ROLES
    ),
    *(
        Fault(f"a column named {name} to repair and train", columns_of_commands(name), "", code=0)
        for name in ("*", 'a.b`"c"')
    ),
]


# --- quotes that are not closed ---------------------------------------------------------------


def lines_of(frame):
    return frame.to_csv(index=False).splitlines()


def unclosed(line, column):
    """Return a file in which a quote opens a cell of a line, and nothing closes it."""
    found = lines_of(people().assign(note="n"))
    cells = found[line - 1].split(",")
    cells[column] = '"' + cells[column]
    found[line - 1] = ",".join(cells)
    return ("\n".join(found) + "\n").encode()


QUOTES = {
    "in the first cell": (2, 0),
    "in the middle": (41, 2),
    "in a column that is not used": (41, 4),
    "in the last line": (81, 1),
    "in the last cell": (81, 4),
    "in the header": (1, 1),
}


def from_stdin(read, content):
    """Call a function while standard input has a content."""

    def run(folder):
        with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
            read(folder)

    return run


def read_all(data):
    with reader(data) as files:
        return sum(map(len, files.batches()))


UNCLOSED = [
    *(
        row
        for where, (line, column) in QUOTES.items()
        for row in per_command(
            f"an unclosed quote {where}",
            "bad.csv",
            f"bad.csv, line {line}: a quote is not closed",
            arrange=lambda folder, at=(line, column): (folder / "bad.csv").write_bytes(
                unclosed(*at)
            ),
        )
    ),
    *per_command(
        "an unclosed quote in a compressed file",
        "bad.csv.gz",
        r"bad.csv.gz, line 41: a quote is not closed",
        arrange=lambda folder: (folder / "bad.csv.gz").write_bytes(gzip.compress(unclosed(41, 2))),
    ),
    *(
        Fault(
            f"an unclosed quote in standard input: {name}",
            from_stdin(read, unclosed(41, 2)),
            r"standard input, line 41: a quote is not closed",
        )
        for name, read in {
            "audit": lambda _: audit("y", "p", sensitive_features="sex", data="-"),
            "the reader of rows": lambda _: read_all("-"),
        }.items()
    ),
    *(
        Fault(
            f"text after a closing quote: {command}",
            COMMANDS[command]("bad.csv"),
            "bad.csv, line 3: .* text follows the quote",
            arrange=lambda folder: (folder / "bad.csv").write_text(
                "\n".join([*lines_of(people())[:2], '0.5,30,"f"x,no', *lines_of(people())[3:]])
            ),
            needs_model=command == "predict",
        )
        for command in COMMANDS
    ),
]


def small_search(folder):
    """Search in a folder of its own."""
    few = ["--loss", "ce", "--calibrate", "none", "--n-seeds", "2", "--workers", "1"]
    out = tempfile.mkdtemp()
    try:
        command = [*COMMANDS["search"]("d.csv")[:-1], f"{out}/found"]
        code, said = run_here([*command, *few], folder)
    finally:
        shutil.rmtree(out)
    assert code == 0, said
    assert "80 rows of d.csv" in said


COUNTS = {
    "audit": "80 rows, 2 groups",
    "calibrate": "all rows +80",
    "calibrate --holdout": "all rows +80",
    "calibrate --apply": "80 calibrated rows in z.csv",
    "train": "80 rows of d.parquet, read as",
    "predict": "80 predictions in z.csv",
}
COUNTED = [
    *(
        Fault(
            f"the number of rows that were read: {command}",
            COMMANDS[command]("d.parquet"),
            says,
            code=0,
            makes=MAKES,
            needs_model=command == "predict",
        )
        for command, says in COUNTS.items()
    ),
    Fault(
        "the number of rows that were held out",
        ["calibrate", "d.csv", *COLUMNS, "--holdout", "0.5", "--out", "z.json"],
        r"rows fitted to 4\d, measured on 3\d",
        code=0,
        makes=MAKES,
    ),
    Fault("the number of rows that a search read", small_search, "", code=0),
]


# --- bytes ------------------------------------------------------------------------------------


def text(line_end="\n", heading="more", **columns):
    """Return the table as CSV, with more columns."""
    frame = pd.concat([people(), pd.DataFrame({heading: "1", **columns}, index=range(80))], axis=1)
    return frame.to_csv(index=False, lineterminator=line_end, quoting=1).encode()


def long_cell(size, cell="y"):
    """Return the table with one long cell, in line 9."""
    return text(note=[cell * size if i == 7 else "n" for i in range(80)])


UNTEXT = r"line \d+: a NUL byte, so this is not text, or it is UTF-16; save the file as UTF-8"
READ = {
    "line ends of old Macs": lambda: text("\r"),
    "line ends of old Macs, and others in cells": lambda: text("\r", note="a\nb\r\nc"),
    "line ends of Windows in cells": lambda: text(note="a\r\nb"),
    "a newline in a heading": lambda: text(heading="a\nb"),
    "another line end in a heading": lambda: text(heading="a\r\nb"),
    "a cell of 1 MB": lambda: long_cell(1 << 20),
    "a cell of 1 MB, with quotes": lambda: long_cell(1 << 18, 'y, "'),
    "a heading of 1 MB": lambda: text(heading="h" * (1 << 20)),
    "a line of 3,000 cells": lambda: text(**{f"c{i}": 1 for i in range(3000)}),
    "a byte-order mark": lambda: b"\xef\xbb\xbf" + text(),
    "form feeds and line separators in cells": lambda: text(note="a\x0cb\x85c\u2028d"),
    "no line end at the end": lambda: text().rstrip(),
}
REFUSED = {
    "a cell of 20 MB": (lambda: long_cell(20 << 20), "line 9: a cell is longer than 2,000,000"),
    "a row of 3 MB": (
        lambda: text(**dict.fromkeys(("one", "two"), ["x" * 1_500_000] + ["x"] * 79)),
        "line 2: the row is longer than 2,000,000 characters",
    ),
    "a heading of 3 MB": (
        lambda: text(heading="h" * 3_000_000),
        "line 1: a cell is longer than 2,000,000",
    ),
    "a NUL in a cell": (lambda: text(note="a\0b"), UNTEXT),
    "a NUL in a heading": (lambda: text(heading="a\0b"), UNTEXT),
    "NULs at the end": (lambda: text() + b"\0" * 100, UNTEXT),
    "nothing but NULs": (lambda: b"\0" * 1000, UNTEXT),
    "UTF-16": (lambda: text().decode().encode("utf-16"), "is UTF-16 or UTF-32; save it as UTF-8"),
    "UTF-16 without a mark": (lambda: text().decode().encode("utf-16-le"), UNTEXT),
    "UTF-32": (lambda: text().decode().encode("utf-32"), "is UTF-16 or UTF-32"),
    "Latin-1": (lambda: text(note="é").decode().encode("latin-1"), "byte 0xe9 is not UTF-8"),
    "different line ends": (
        lambda: text().replace(b"\n", b"\r\n", 5),
        "has lines that end in different ways",
    ),
    "a short row": (lambda: text() + b'"1"\n', "line 82: 1 value for 5 columns"),
}


def put(make, name="t.csv"):
    return lambda folder: (folder / name).write_bytes(make())


def is_read(command):
    """Say that a file gives the probabilities, groups and labels that are in the table."""

    def run(folder):
        counted = COUNTS.get(command, "80 rows").replace("d.parquet", "t.csv")
        code, said = run_here(COMMANDS[command]("t.csv"), folder)
        assert code == 0, said
        assert re.search(counted, said), said
        if command == "audit":
            assert figures(folder / "t.csv")[1] == figures(folder / "d.csv")[1]

    return run


def bytes_with_spark(folder):
    """Read, or refuse, with Spark what DuckDB reads or refuses, and alike."""
    for name, make in {**READ, **{name: make for name, (make, _) in REFUSED.items()}}.items():
        put(make)(folder)
        found = []
        for engine in ("duckdb", "spark"):
            try:
                with_note = {"sex": ["sex", "note"]} if b'"note"' in make()[:60] else {}
                found.append(figures(folder / "t.csv", engine, **with_note))
            except ValueError as error:
                found.append(str(error))
        assert found[0] == found[1], name
        assert isinstance(found[0], str) == (name in REFUSED), name
    (folder / "t.csv").unlink()


BYTES = [
    *(
        Fault(
            f"{name}: {command}",
            is_read(command),
            "",
            arrange=put(make),
            code=0,
            makes=MAKES,
            needs_model=command == "predict",
        )
        for name, make in READ.items()
        for command in ("audit", "audit with polars", "calibrate", "calibrate --apply", "predict")
    ),
    *(
        Fault(f"{name}: train", is_read("train"), "", arrange=put(make), code=0, makes=MAKES)
        for name, make in READ.items()
        if "3,000" not in name
    ),
    *(
        row
        for name, (make, says) in REFUSED.items()
        for row in per_command(name, "t.csv", says, arrange=put(make))
    ),
    Fault("bytes that Spark reads", bytes_with_spark, "", code=0, marks=SPARK),
]


# --- addresses --------------------------------------------------------------------------------

SCHEMES = ("http", "https", "s3", "gs", "hf", "az", "hdfs", "HTTP", "ftp")


def asked(address_to_run):
    """Run with the address of a server here, which must not be asked for anything."""

    def run(folder):
        requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                requests.append(self.path)
                self.send_error(404)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address_to_run(f"http://127.0.0.1:{server.server_port}/d.parquet", folder)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            assert not requests

    return run


def opened_rows(data, **options):
    with opened(data, **options) as source:
        return source.rows


NOT_UNLESS = "is an address, and nothing is fetched unless you say so; copy the file here, or pass"
ADDRESSES = [
    *(
        row
        for scheme in SCHEMES
        for row in (
            Fault(
                f"an address {scheme}://: audit",
                COMMANDS["audit"](f"{scheme}://127.0.0.1:9/d.parquet"),
                rf"{scheme}://127.0.0.1:9/d.parquet {NOT_UNLESS} --remote",
            ),
            Fault(
                f"an address {scheme}://: calibrate",
                COMMANDS["calibrate"](f"{scheme}://127.0.0.1:9/d.parquet"),
                "is an address; copy the file here first",
            ),
        )
    ),
    *per_command(
        "an address",
        "http://127.0.0.1:9/d.csv",
        "http://127.0.0.1:9/d.csv is an address.*copy the file here",
    ),
    *per_command("an address file://", "file:///data/d.csv", "give the path .* without file://"),
    Fault(
        "an address among models",
        ["audit", "d.csv", "http://127.0.0.1:9/e.csv", *COLUMNS],
        NOT_UNLESS,
    ),
    Fault("an address to merge", ["audit", "--merge", "http://x/a.json"], "copy the file here"),
    *(
        Fault(
            f"an address in Python: {engine}",
            asked(
                lambda address, _, engine=engine: audit(
                    "y", "p", sensitive_features="sex", data=address, engine=engine
                )
            ),
            f"{NOT_UNLESS} remote=True",
        )
        for engine in ("duckdb", "polars", "spark")
    ),
    Fault(
        "an address of training labels in Python",
        asked(
            lambda address, _: audit(
                "y", "p", sensitive_features="sex", data="d.csv", train=[address]
            )
        ),
        f"{NOT_UNLESS} remote=True",
    ),
    Fault(
        "--remote with an address that DuckDB does not know",
        [*COMMANDS["audit"]("ftp://127.0.0.1/d.parquet"), "--remote"],
        "DuckDB reads no ftp:// addresses; copy the file here",
    ),
    Fault(
        "--remote with CSV",
        [*COMMANDS["audit"]("http://127.0.0.1:9/d.csv"), "--remote"],
        "is a remote CSV file; copy it here, or use Parquet",
    ),
    Fault(
        "--remote without the extension",
        asked(
            lambda address, folder: opened_rows_without_extensions(
                address, folder / "no extensions"
            )
        ),
        r"needs DuckDB's extension httpfs, which is not installed; copy the file here, or install "
        r"it once: python -c \"import duckdb; duckdb.sql\('INSTALL httpfs'\)\"",
    ),
]


def opened_rows_without_extensions(address, folder):
    from equipoise._files import _duckdb, _open_tables

    def connected():
        connection = _duckdb.connected()
        connection.execute(f"SET extension_directory = '{folder}'")
        return connection

    with mock.patch.object(_open_tables, "connected", connected):
        opened_rows(address, remote=True)


# --- what is no file --------------------------------------------------------------------------


def denied(module, name):
    """Read a file that the system does not let be opened; root may open all."""
    error = PermissionError(errno.EACCES, "Permission denied", "d")
    return mock.patch(f"{module}.{name}", side_effect=error)


def read_denied(data, module, name):
    def run(_):
        with denied(module, name):
            audit("y", "p", sensitive_features="sex", data=data)

    return run


def vanishing(data, step):
    """Remove a file after a step of the reader."""

    def run(folder):
        from equipoise._files import _open_tables

        known = getattr(_open_tables, step)

        def then_remove(*given):
            found = known(*given)
            (folder / data).unlink()
            return found

        shutil.copy(folder / f"d.{data.rpartition('.')[2]}", folder / data)
        with mock.patch.object(_open_tables, step, then_remove):
            audit("y", "p", sensitive_features="sex", data=data)

    return run


def unlisted(folder):
    """Read a folder with one inside that cannot be listed."""
    (folder / "in" / "deep").mkdir(parents=True)
    shutil.copy(folder / "d.csv", folder / "in" / "d.csv")
    scan = os.scandir

    def scandir(path):
        if str(path).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    try:
        with mock.patch("os.scandir", scandir):
            audit("y", "p", sensitive_features="sex", data="in")
    finally:
        shutil.rmtree(folder / "in")


PIPE = "is a pipe, a device or a socket, not a file"
NO_FILES = [
    # an argument that is empty is missing to click where it may be left out
    *per_command(
        "an empty path",
        "",
        "an empty path names no file",
        [c for c in COMMANDS if c != "calibrate"],
    ),
    Fault("an empty path: calibrate", COMMANDS["calibrate"](""), "fitting needs PREDICTIONS"),
    Fault("an empty path to merge", ["audit", "--merge", ""], "an empty path names no file"),
    Fault("an empty path in Python", lambda _: read_all(""), "an empty path names no file"),
    Fault(
        "an empty path of a model",
        ["predict", "", "d.csv", "--out", "z.csv"],
        "an empty path names no file",
    ),
    *per_command(
        "a folder without data",
        "empty",
        "the folder empty has no files ending in",
        arrange=lambda folder: (folder / "empty").mkdir(),
    ),
    *per_command(
        "a pipe without a writer",
        "pipe.csv",
        f"pipe.csv {PIPE}; .* or pass - and send it to standard input",
        arrange=lambda folder: os.mkfifo(folder / "pipe.csv"),
    ),
    *per_command(
        "a pattern that matches a pipe",
        "pip*.csv",
        f"pipe.csv {PIPE}",
        arrange=lambda folder: os.mkfifo(folder / "pipe.csv"),
    ),
    *per_command("a device", "/dev/null", f"/dev/null {PIPE}"),
    *per_command(
        "a link to nothing",
        "link.csv",
        "link.csv is a link to gone.csv, which is not there",
        arrange=lambda folder: (folder / "link.csv").symlink_to("gone.csv"),
    ),
    *per_command("a path that leads nowhere", "no.csv", "there is no file or folder no.csv"),
    *per_command("a pattern that matches nothing", "no*.csv", r"no file matches no\*.csv"),
    *(
        Fault(
            f"a pipe instead of {what}",
            command,
            f"pipe {PIPE}",
            arrange=lambda folder: os.mkfifo(folder / "pipe"),
        )
        for what, command in {
            "calibrators": ["calibrate", "d.csv", "--apply", "pipe", "--out", "z.csv"],
            "a model": ["predict", "pipe", "d.csv", "--out", "z.csv"],
            "an audit": ["audit", "--merge", "pipe"],
        }.items()
    ),
    Fault(
        "a link to nothing within a folder",
        lambda folder: read_all(folder / "in"),
        "l.csv is a link to gone.csv",
        arrange=lambda folder: (
            written(people(), folder / "in" / "d.csv"),
            (folder / "in" / "l.csv").symlink_to("gone.csv"),
        ),
    ),
    Fault("a folder within that cannot be listed", unlisted, "Permission denied"),
    Fault(
        "a CSV file that may not be read",
        read_denied("d.csv", "equipoise._files._csv", "open_bytes"),
        "^d.csv cannot be read: Permission denied$",
    ),
    Fault(
        "a Parquet file that may not be read",
        read_denied("d.parquet", "pyarrow.parquet", "read_metadata"),
        "^d.parquet cannot be read: Permission denied$",
    ),
    *(
        Fault(
            f"a file that disappears, {data}, after {step}",
            vanishing(data, step),
            f"^{data} cannot be read: .*[Nn]o (such )?file",
        )
        for data, step in (
            ("gone.csv", "layout_of"),
            ("gone.csv", "refuse_surplus"),
            ("gone.parquet", "parquet_rows"),
        )
    ),
]

FAULTS = [*LITERAL, *NAMED, *UNCLOSED, *COUNTED, *BYTES, *ADDRESSES, *NO_FILES]


@pytest.fixture(scope="module", autouse=True)
def _spark_ends():
    """Leave no session to the next file of tests, which may want one of another kind."""
    yield
    if "pyspark.sql" in sys.modules:
        session = sys.modules["pyspark.sql"].SparkSession.getActiveSession()
        if session is not None:
            session.stop()


@rows(FAULTS)
def test_fault(fault, tmp_path, prepared):
    check_fault(fault, tmp_path, prepared)


# --- any name ---------------------------------------------------------------------------------

NAME = st.text(
    st.sampled_from("*?[]{}()!^$.,;:'\"`\\#%&@~ab1 -_=+|<>éß\u4e2d") | st.characters(codec="utf-8"),
    min_size=1,
    max_size=8,
).filter(lambda name: name.strip() and not set(name) & set("/\0\r\n"))


@settings(max_examples=40, deadline=None)
@given(file=NAME, folder=NAME, column=NAME, other=NAME, parquet=st.booleans())
def test_any_name_of_a_file_and_a_column(file, folder, column, other, parquet):
    # names are read without the spaces around them, and databases know no capitals
    column = column.strip()
    if {column.casefold(), f"{column} as a number".casefold()} & {"p", "age", "y", other}:
        return
    frame = people().rename(columns={"sex": column})
    with tempfile.TemporaryDirectory() as there:
        inside = Path(there) / f"f{folder}"[:60]
        inside.mkdir()
        ending = "parquet" if parquet else "csv"
        for name, table in ((f"n{other}", people(60, seed=1)), (f"n{file}", frame)):
            written(table, inside / f"{name}.{ending}")
        path = inside / f"n{file}.{ending}"
        assert figures(path, sex=column)[:4] == figures(people())[:4]
        assert read_all(path) == 80
