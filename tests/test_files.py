"""Audit tables from files: CSV and Parquet, by DuckDB and by polars, whole and damaged."""

from __future__ import annotations

import csv
import datetime
import http.server
import io
import re
import sys
import threading

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from equipoise import audit
from equipoise._files import opened, reader, reading
from equipoise._inputs import check_column, match, need
from equipoise.auditing._pushdown import Columns, fill, rates_of
from equipoise.datasets import Dataset
from equipoise.metrics import AuditTable

COLUMNS = Columns("y", "p", "g")


@pytest.fixture(params=["duckdb", "polars"])
def engine(request):
    return request.param


def predictions(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 2, n),
            "p": np.where(rng.random(n) < 0.2, rng.integers(0, 16, n) / 15, rng.random(n)),
            "g": np.array(["a, b", "<script>", 'x\n"y"', "it's", "01"])[rng.integers(0, 5, n)],
            "age": rng.integers(18, 20, n),
            "flag": rng.random(n) < 0.5,
            "score": rng.integers(0, 3, n) / 2,
        }
    )


def written(frame, folder, name="data"):
    """Write a frame both ways."""
    frame.to_csv(folder / f"{name}.csv", index=False)
    frame.to_parquet(folder / f"{name}.parquet")
    return folder / f"{name}.csv", folder / f"{name}.parquet"


def test_csv_and_parquet_give_the_table_of_the_arrays(tmp_path, engine):
    frame = predictions()
    want = AuditTable.from_arrays(frame["y"], frame["p"], sensitive_features=frame["g"])
    for path in written(frame, tmp_path):
        for name in (path, str(path), [path]):
            got = fill(name, COLUMNS, engine=engine).tables[()]
            np.testing.assert_allclose(got["log_loss"], want["log_loss"], rtol=1e-9)
            np.testing.assert_allclose(got["log_loss2"], want["log_loss2"], rtol=1e-9)
            sums = dict(got.sums) | {k: want.sums[k] for k in ("log_loss", "log_loss2")}
            assert AuditTable(got.groups, got.labels, 15, False, sums) == want


@pytest.mark.slow
@pytest.mark.parametrize(
    "group", [("age",), ("flag",), ("score",), ("g", "age"), ("flag", "score")]
)
def test_values_are_the_same_from_csv_and_parquet(tmp_path, engine, group):
    columns = Columns("flag", "p", group, by=("age",), pred="flag")
    csv, parquet = (fill(path, columns, engine=engine) for path in written(predictions(), tmp_path))
    assert csv.tables.keys() == parquet.tables.keys() == {(18,), (19,)}
    for by, table in csv.tables.items():
        assert table == parquet.tables[by]
        assert [type(g) for g in table.groups] == [type(g) for g in parquet.tables[by].groups]
        assert table.labels == (False, True)


def test_engines_give_equal_tables(tmp_path):
    for path in written(predictions(), tmp_path):
        duckdb, polars = (fill(path, COLUMNS, engine=e).tables[()] for e in ("duckdb", "polars"))
        for name, sums in duckdb.sums.items():
            if name not in ("log_loss", "log_loss2"):
                assert sums.tolist() == polars.sums[name].tolist()


def test_labels_of_a_csv_file_are_matched_by_text(tmp_path, engine):
    path = tmp_path / "a.csv"
    path.write_text("y,p,g\n 1,0.2,a\n1.0,0.5,a\n0,0.9,b \n")
    for labels in (None, ["0", "1"], [0, 1], ["0.0", 1]):
        table = fill(path, COLUMNS, labels=labels, engine=engine).tables[()]
        assert table.labels == (0, 1)
        assert table.groups == ("a", "b")
        assert table["labels"].tolist() == [[0, 2], [1, 0]]
    swapped = fill(path, COLUMNS, labels=["1", "0"], engine=engine).tables[()]
    assert swapped.labels == (1, 0)


@pytest.mark.slow
def test_many_files(tmp_path, engine):
    frame = predictions()
    whole = fill(written(frame, tmp_path, "whole")[1], COLUMNS, engine=engine)
    for kind in ("csv", "parquet"):
        folder = tmp_path / kind / "inner"
        folder.mkdir(parents=True)
        for i in range(3):
            csv, parquet = written(frame[i * 100 : i * 100 + 100], folder, f"part{i}")
            (parquet if kind == "csv" else csv).unlink()
        (folder / "_SUCCESS").touch()
        (folder / ".hidden.csv").write_text("nothing")
        parts = sorted(folder.glob(f"part*.{kind}"))
        for data in (
            folder,
            folder.parent,
            str(folder / f"*.{kind}"),
            str(folder.parent / "**" / f"part*.{kind}"),
            parts,
            tuple(map(str, parts)),
        ):
            got = fill(data, COLUMNS, engine=engine)
            assert {by: t == whole.tables[by] for by, t in got.tables.items()} == {(): True}


def test_a_path_with_signs_that_globs_have(tmp_path, engine):
    folder = tmp_path / "it's [1] *"
    folder.mkdir()
    for path in written(predictions(50), folder, "a b"):
        assert fill(path, COLUMNS, engine=engine).tables[()]["rows"].sum() == 50


@pytest.mark.parametrize("separator", [";", "\t", ","])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_separators_and_line_ends(tmp_path, engine, separator, line_end):
    path = tmp_path / "a.csv"
    rows = [("", "y", "p", "g, of; both"), ("0", "0", "0.25", '"k; l, m"'), ("1", "1", "0.5", "n")]
    header = separator.join(f'"{v}"' if ", " in v else v for v in rows[0])
    text = line_end.join([header, *(separator.join(row) for row in rows[1:])]) + line_end
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    table = fill(path, Columns("y", "p", "g, of; both"), engine=engine).tables[()]
    assert table.groups == ("k; l, m", "n")
    assert table["probability"].sum(0).tolist() == [1.25, 0.75]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_empty_lines_are_no_rows(tmp_path, engine, line_end):
    path = tmp_path / "a.csv"
    lines = ["y,p,g", "0,0.2,a", "", "1,0.5,b", "", ""]
    path.write_bytes(line_end.join(lines).encode())
    assert fill(path, COLUMNS, engine=engine).tables[()]["rows"].tolist() == [1, 1]


# --- missing values --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["", "NA", " nan ", "?", "NULL", '""'])
@pytest.mark.parametrize("column", ["y", "p", "g"])
def test_missing_values_of_a_csv_file(tmp_path, engine, missing, column):
    row = {"y": "1", "p": "0.5", "g": "b"} | {column: missing}
    path = tmp_path / "a.csv"
    path.write_text("y,p,g\n0,0.2,a\n1,0.7,b\n" + ",".join(row.values()) + "\n")
    with pytest.raises(ValueError, match=f"column '{column}' has no value in 1 row of .*a.csv"):
        fill(path, COLUMNS, engine=engine)
    got = fill(path, COLUMNS, engine=engine, drop_missing=True)
    assert (got.dropped, got.tables[()]["rows"].tolist()) == (1, [1.0, 1.0])


def test_nan_and_null_in_parquet(tmp_path, engine):
    # the limits that Parquet states leave out NaN, and DuckDB trusts them
    path = tmp_path / "a.parquet"
    p = [0.5] * 50 + [float("nan"), None] + [0.25] * 50
    pq.write_table(pa.table({"y": [0, 1] * 51, "p": p, "g": [1.0, 2.0] * 51}), path)
    with pytest.raises(ValueError, match=r"column 'p' has no value in 2 rows .*p nan.*p None"):
        fill(path, COLUMNS, engine=engine)
    assert fill(path, COLUMNS, engine=engine, drop_missing=True).dropped == 2


# --- errors ----------------------------------------------------------------------------------


def test_a_value_that_is_no_number(tmp_path, engine):
    path = tmp_path / "a.csv"
    path.write_text("y,p,g\n0,0.2,a\n1,high,b\n1,,b\n")
    message = "column 'p' is not a number in 1 row of .*a.csv .*p 'high'"
    with pytest.raises(ValueError, match=message):
        fill(path, COLUMNS, engine=engine, drop_missing=True)


@pytest.mark.parametrize("line", ["1,0.5", "1,0.5,b,extra", "1,0.5,b,", '1,0.5,b,""'])
def test_a_wrong_number_of_values(tmp_path, engine, line):
    path = tmp_path / "a.csv"
    count = line.count(",") + 1
    for end in ("\n", ""):
        path.write_text(f'y,p,g\n0,0.2,a\n1,0.7,"b\nc"\n{line}{end}')
        with pytest.raises(ValueError, match=rf"a.csv, line 5: {count} values for 3 columns"):
            fill(path, COLUMNS, engine=engine)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv is empty"),
        (b"\n\n", "a.csv is empty"),
        (b"y,p,g\n", "a.csv has no rows"),
        (b"y,p,g", "a.csv has no rows"),
        (b"y,p,p,g\n1,2,3,4\n", "a.csv has several columns named 'p'"),
        (b"y,p,gr\n0,0.5,a\n", "there is no column 'g'; did you mean 'gr'"),
        (b"\xff\xfe\x00\n", "a.csv is UTF-16 or UTF-32; save it as UTF-8"),
        (b"y,p,g\n0,0.5,\xff\n1,0.5,b\n", "a.csv, line 2: byte 0xff is not UTF-8"),
        (b'y,p,g\n0,0.5,"open\n1,0.5,b\n', "a.csv, line 2: a quote is not closed"),
        (b"y,p,g\n0,1e999,a\n1,0.5,b\n", "column 'p' is not"),
        (b"y,p,g\n0,1.5,a\n1,0.5,b\n", r"column 'p' is not within 0\.\.1 in 1 row"),
    ],
)
def test_csv_files_that_cannot_be_audited(tmp_path, engine, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        fill(path, COLUMNS, engine=engine)


def test_a_truncated_parquet_file(tmp_path, engine):
    path = written(predictions(), tmp_path)[1]
    content = path.read_bytes()
    for size in (0, 3, 100, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"data.parquet cannot be read as Parquet.*cut short"):
            fill(path, COLUMNS, engine=engine)


def test_a_parquet_file_damaged_inside(tmp_path, engine):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pandas(predictions()), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[10:3000] = b"\x99" * 2990
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"a.parquet cannot be read"):
        fill(path, COLUMNS, engine=engine)


def test_paths_that_lead_nowhere(tmp_path, engine):
    for data, message in (
        (tmp_path / "none.csv", "there is no file or folder .*none.csv"),
        (str(tmp_path / "*.csv"), r"no file matches .*\*.csv"),
        (tmp_path, "the folder .* has no files ending in"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            fill(data, COLUMNS, engine=engine)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"a.xlsx is neither .csv \(.tsv, .txt.*\) nor"):
        fill(tmp_path / "a.xlsx", COLUMNS, engine=engine)


def test_files_that_do_not_belong_together(tmp_path, engine):
    csv, parquet = written(predictions(50), tmp_path)
    with pytest.raises(ValueError, match=r"data.csv is CSV and .*data.parquet is Parquet"):
        fill([csv, parquet], COLUMNS, engine=engine)
    other = written(predictions(50)[["p", "y", "g"]], tmp_path, "other")
    with pytest.raises(ValueError, match=r"other.csv and .*data.csv have different columns"):
        fill([csv, other[0]], COLUMNS, engine=engine)
    halves = predictions(50).assign(y=0.5)
    with pytest.raises(ValueError, match=r"column 'y' is int64 in .*data.* and double in .*halves"):
        fill([parquet, written(halves, tmp_path, "halves")[1]], COLUMNS, engine=engine)


def test_dates_as_groups(tmp_path, engine):
    path = tmp_path / "a.parquet"
    frame = predictions(20).assign(g=datetime.date(2020, 1, 1))
    frame.to_parquet(path)
    with pytest.raises(TypeError, match="column 'g' holds dates"):
        fill(path, COLUMNS, engine=engine)


def test_remote_csv_is_refused():
    with pytest.raises(ValueError, match="remote CSV"):
        fill("s3://somewhere/a.csv", COLUMNS, remote=True)


@pytest.fixture
def address():
    """Serve a Parquet file from this machine, as parts of it are asked for."""
    buffer = io.BytesIO()
    predictions().to_parquet(buffer)
    content = buffer.getvalue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            first, last = (asked[1], asked[2]) if asked else ("0", "")
            start = int(first) if first else max(0, len(content) - int(last))
            end = int(last) + 1 if first and last else len(content)
            part = content[start:end]
            self.send_response(206 if asked else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            if asked:
                place = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
                self.send_header("Content-Range", place)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(part)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/a.parquet"
    server.shutdown()
    thread.join()
    server.server_close()


def test_remote_parquet_is_read_where_it_is_allowed(tmp_path, engine, address):
    if engine == "duckdb":
        try:
            duckdb.connect().execute("LOAD httpfs")
        except duckdb.Error:
            pytest.skip("DuckDB's extension httpfs is not installed")
    want = fill(written(predictions(), tmp_path)[1], COLUMNS).tables[()]
    assert fill(address, COLUMNS, engine=engine, remote=True).tables[()] == want
    rates = rates_of(address, "y", "g", engine=engine, remote=True)
    assert rates == rates_of(tmp_path / "data.parquet", "y", "g")
    with pytest.raises(ValueError, match="pass remote=True"):
        fill(address, COLUMNS, engine=engine)


def test_too_many_groups_in_a_file(tmp_path, engine):
    n = 30_000
    frame = pd.DataFrame({"y": np.arange(n) % 2, "p": 0.5, "g": np.arange(n)})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="'g' has more than 10,000 distinct values"):
        fill(tmp_path / "a.parquet", COLUMNS, engine=engine)


def test_an_engine_that_is_not_installed(tmp_path, monkeypatch):
    path = written(predictions(20), tmp_path)[0]
    monkeypatch.setitem(sys.modules, "polars", None)
    message = r"engine 'polars' needs polars.*: pip install 'equipoise\[polars\]'"
    with pytest.raises(ImportError, match=message):
        fill(path, COLUMNS, engine="polars")


def test_rates_of_files(tmp_path, engine):
    frame = predictions()
    for path in written(frame, tmp_path):
        rates = rates_of(path, "y", ("flag", "age"), engine=engine).rates
        for (flag, age), own in rates.items():
            rows = frame[(frame["flag"] == flag) & (frame["age"] == age)]
            assert own == {0: (rows["y"] == 0).mean(), 1: (rows["y"] == 1).mean()}
        assert len(rates) == 4


def test_what_an_engine_says_is_one_line():
    with pytest.raises(ValueError, match=r"^x cannot be read: first second$"), reading("x"):
        raise RuntimeError("first\nsecond\n\tat java.lang.Thread")
    with pytest.raises(KeyboardInterrupt), reading("x"):
        raise KeyboardInterrupt
    with pytest.raises(MemoryError), reading("x"):
        raise MemoryError


def test_a_connection_is_closed(tmp_path):
    path = written(predictions(20), tmp_path)[1]
    with opened(path) as source:
        frame = source.frame
        assert source.name == str(path)
        assert source.is_file
        assert not source.is_text
    with pytest.raises(Exception, match=r"[Cc]losed|[Cc]onnection"):
        frame.collect()


# --- texts -----------------------------------------------------------------------------------


def test_match_finds_labels_by_value_then_by_text():
    assert match(["1", 0], [0, 1]) == (1, 0)
    assert match(["yes", "no"], ["yes", "no"]) == ("yes", "no")
    assert match([True, "false"], [True, False]) == (True, False)
    assert match([1, "2"], ["1", "2"]) == ("1", "2")
    assert match(["7", None], [1.5]) == (7, None)
    assert match(["a"], []) == ("a",)


def test_check_column():
    check_column("a", ["a", "b"])
    with pytest.raises(ValueError, match="there is no column 'agee'; did you mean 'age'"):
        check_column("agee", ["age", "y"])


def test_names_that_an_engine_would_take_for_one(tmp_path, engine):
    for path in written(predictions(20).assign(P=0.5), tmp_path):
        with pytest.raises(ValueError, match=r"columns named 'p' and 'P', which databases"):
            fill(path, COLUMNS, engine=engine)
    path = tmp_path / "own.csv"
    path.write_text("y,p,p as a number,g\n1,.5,.9,a\n0,.5,.9,b\n")
    with pytest.raises(ValueError, match="a column named 'p as a number'"):
        fill(path, COLUMNS, engine=engine)


def test_a_space_before_quotes(tmp_path, engine):
    path = tmp_path / "a.csv"
    path.write_text('y,p,g\n1,0.5, "a"\n0,0.4,b\n')
    assert fill(path, COLUMNS, engine=engine).tables[()].groups == ("a", "b")


def test_an_engines_advice_is_left_out():
    said = "wrong row.\nPossible fixes:\n* Disable the strict mode (strict_mode=false)"
    with pytest.raises(ValueError, match=r"^x cannot be read: wrong row\.$"), reading("x"):
        raise RuntimeError(said)


# --- names that are taken literally ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("name", "beside"), [("b[1]", "b1"), ("a*", "ab"), ("x?", "xy")])
def test_a_name_with_the_signs_of_a_pattern_is_that_file(tmp_path, engine, kind, name, beside):
    other = predictions(30).assign(g="other")
    for frame, stem in ((predictions(50), name), (other, beside)):
        written(frame, tmp_path, stem)
    table = fill(tmp_path / f"{name}.{kind}", COLUMNS, engine=engine).tables[()]
    assert "other" not in table.groups
    assert table["rows"].sum() == 50
    with reader(tmp_path / f"{name}.{kind}") as files:
        assert sum(map(len, files.batches())) == 50
    # in a folder or a list each file is read once
    for path in tmp_path.glob(f"*.{'csv' if kind == 'parquet' else 'parquet'}"):
        path.unlink()
    for data in (tmp_path, sorted(tmp_path.iterdir())):
        assert fill(data, COLUMNS, engine=engine).tables[()]["rows"].sum() == 80


ODD = ['the "label"', "p * q", "a.b`c", "it's; [x], ?"]


def test_columns_of_any_name(tmp_path, engine):
    if Version(duckdb.__version__) < Version("2"):
        pytest.skip("before DuckDB 2, narwhals does not find such columns, and says so")
    y, p, g, other = ODD
    frame = predictions(60).rename(columns={"y": y, "p": p, "g": g, "flag": other})
    want = AuditTable.from_arrays(frame[y], frame[p], sensitive_features=frame[other])
    for path in written(frame, tmp_path):
        table = fill(path, Columns(y, p, other), engine=engine).tables[()]
        assert table["bin_count"].tolist() == want["bin_count"].tolist()
        assert fill(path, Columns(y, p, g), engine=engine).tables[()]["rows"].sum() == 60
        with reader(path) as files:
            assert set(ODD) <= set(files.names)
            (batch,) = files.batches([p, other])
            assert batch.schema.names == [p, other]


# --- compressed files and standard input -----------------------------------------------------


def compressed(path, kind):
    """Write a compressed copy beside a file."""
    out = path.with_name(f"{path.name}.{kind}")
    with pa.CompressedOutputStream(str(out), {"gz": "gzip", "zst": "zstd"}[kind.lower()]) as file:
        file.write(path.read_bytes())
    return out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gz", "zst", "GZ"])
def test_compressed_csv(tmp_path, engine, kind):
    plain = written(predictions(), tmp_path)[0]
    want = fill(plain, COLUMNS, engine=engine).tables[()]
    packed = compressed(plain, kind)
    assert fill(packed, COLUMNS, engine=engine).tables[()] == want
    assert fill([plain, packed], COLUMNS, engine=engine).tables[()] == want + want
    with reader(packed) as files, reader(plain) as same:
        assert list(files.batches()) == list(same.batches())
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(
        ValueError, match=r"data.csv.* cannot be read as (gzip|zstd), it is damaged"
    ):
        fill(packed, COLUMNS, engine=engine)


def send(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.slow
def test_standard_input(tmp_path, engine, monkeypatch):
    csv, parquet = written(predictions(), tmp_path)
    want = fill(csv, COLUMNS, engine=engine).tables[()]
    for path in (csv, parquet, compressed(csv, "gz"), compressed(csv, "zst")):
        send(monkeypatch, path.read_bytes())
        assert fill("-", COLUMNS, engine=engine).tables[()] == want
    send(monkeypatch, csv.read_bytes())
    report = audit(data="-", y_true="y", y_prob="p", sensitive_features="g")
    assert report.table == want
    for content, message in (
        (b"", "standard input is empty"),
        (b"y,p,g\n1,2\n", "standard input, line 2: 2 values for 3 columns"),
        (b"PAR1 and nothing", "standard input cannot be read as Parquet"),
    ):
        send(monkeypatch, content)
        with pytest.raises(ValueError, match=message):
            fill("-", COLUMNS, engine=engine)


# --- line ends -------------------------------------------------------------------------------


def test_line_ends_within_quotes_and_from_file_to_file(tmp_path, engine):
    a, b, c = (tmp_path / f"{name}.csv" for name in "abc")
    a.write_bytes(b'y,p,"g\nh"\r\n0,.1,a\r\n1,.2,"b\nc"\r\n')
    b.write_bytes(b'y,p,"g\nh"\n0,.3,a\n1,.4,"b\r\nc"\n')
    c.write_bytes(b'y,p,"g\nh"\r\n0,.5,a')
    with reader([a, b, c]) as files:
        rows = [tuple(row.values()) for batch in files.batches() for row in batch.to_pylist()]
    assert [row[1] for row in rows] == [".1", ".2", ".3", ".4", ".5"]
    assert [row[2] for row in rows] == ["a", "b\nc", "a", "b\r\nc", "a"]
    assert fill([a, b, c], Columns("y", "p", "g\nh"), engine=engine).tables[()]["rows"].sum() == 5
    a.write_bytes(b"y,p,g\r\n0,.1,a\n1,.2,b\r\n")
    with pytest.raises(ValueError, match=r"a.csv has lines that end in different ways"):
        fill(a, COLUMNS, engine=engine)


CELL = st.text(st.sampled_from('ab "\n\r,;\té'), max_size=4)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL), max_size=5),
    line_end=st.sampled_from(["\n", "\r\n"]),
    separator=st.sampled_from(",;\t"),
)
def test_what_pythons_csv_writes_is_read_back(tmp_path_factory, rows, line_end, separator):
    path = tmp_path_factory.mktemp("cells") / "d.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(
            file, lineterminator=line_end, delimiter=separator, quoting=csv.QUOTE_ALL
        )
        writer.writerows([["a", "b", "c"], *rows])
    with reader(path) as files:
        found = [tuple(row.values()) for batch in files.batches() for row in batch.to_pylist()]
    assert found == rows


# --- libraries -------------------------------------------------------------------------------


def test_nothing_is_fetched(tmp_path):
    path = written(predictions(20), tmp_path)[1]
    with opened(path) as source:
        settings = source.frame.to_native().query(
            "t", "SELECT name, value FROM duckdb_settings() WHERE name LIKE 'auto%known_extensions'"
        )
        assert dict(settings.fetchall()) == {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }


def test_a_library_that_is_too_old_is_named(tmp_path, monkeypatch):
    path = written(predictions(20), tmp_path)[0]
    monkeypatch.setattr("duckdb.__version__", "1.2.9")
    message = (
        r"needs duckdb 1.4.4 or later, and 1.2.9 is installed: pip install --upgrade 'duckdb>="
    )
    for read in (
        lambda: fill(path, COLUMNS),
        lambda: Dataset.from_frame(path, label="y", group="g"),
    ):
        with pytest.raises(ImportError, match=message):
            read()
    monkeypatch.undo()
    monkeypatch.setattr("polars.__version__", "0.20.31")
    with pytest.raises(
        ImportError, match=r"polars 1.30 or later, and 0.20.31 is installed: .*\[po"
    ):
        fill(path, COLUMNS, engine="polars")


def test_need():
    assert need("json").dumps(1) == "1"
    with pytest.raises(ImportError, match=r"this needs nowhere: pip install 'equipoise\[plot\]'"):
        need("nowhere", "plot")
