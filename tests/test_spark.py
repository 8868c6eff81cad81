"""The same audit on a Spark cluster of two workers as on DuckDB, over the same files."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from equipoise.auditing._pushdown import Columns, fill, rates_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
    # PySpark says of pandas 3 that it does not know it yet, and of its own code what will change
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def spark():
    """Two worker processes of one core, apart from the driver: what is not sent fails."""
    sql = pytest.importorskip("pyspark.sql")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            sql.SparkSession.builder.master("local-cluster[2,1,1024]")
            .appName("equipoise tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.executor.memory", "512m")
            .getOrCreate()
        )
        yield session
        session.stop()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folders of two CSV and two Parquet files with the same rows."""
    rng = np.random.default_rng(0)
    n = 2000
    prob = rng.dirichlet([0.5, 0.7, 0.9], n)
    prob[:6] = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    frame = pd.DataFrame(
        {
            "y": rng.integers(0, 2, n),
            "p": np.where(rng.random(n) < 0.3, rng.integers(0, 16, n) / 15, rng.random(n)),
            "g": np.array(["a, b", "<script>", 'x\n"y"', "01"])[rng.integers(0, 4, n)],
            "month": rng.integers(1, 3, n),
            "w": rng.random(n),
            "person": rng.integers(0, 300, n),
            "k": np.array(["low", "mid", "high"])[rng.integers(0, 3, n)],
            "high": prob[:, 0],
            "low": prob[:, 1],
            "mid": prob[:, 2],
        }
    )
    folder = tmp_path_factory.mktemp("files")
    for kind in ("csv", "parquet"):
        (folder / kind).mkdir()
        for i, part in enumerate((frame[:700], frame[700:])):
            path = folder / kind / f"part{i}.{kind}"
            if kind == "csv":
                part.to_csv(path, index=False)
            else:
                part.to_parquet(path)
    return folder


def assert_equal(got, want):
    assert got.dropped == want.dropped
    assert list(got.tables) == list(want.tables)
    for by, table in want.tables.items():
        own = got.tables[by]
        assert (own.groups, own.labels) == (table.groups, table.labels)
        for name, sums in table.sums.items():
            if name in ("log_loss", "log_loss2"):
                np.testing.assert_allclose(own[name], table[name], rtol=1e-9)
            else:
                assert own.sums[name].tolist() == sums.tolist(), name


PAIR = Columns("y", "p", ("g",), by=("month",))


def test_it_is_a_cluster(spark):
    assert spark.sparkContext.master == "local-cluster[2,1,1024]"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_two_classes(files, kind):
    assert_equal(fill(files / kind, PAIR, engine="spark"), fill(files / kind, PAIR))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("use", [{"weight": "w"}, {"weight": "w", "cluster": "person"}], ids=len)
def test_weights_and_clusters(files, kind, use):
    for columns in (
        Columns("y", "p", "g", by="month", **use),
        Columns("k", ("high", "low", "mid"), "g", **use),
    ):
        got, want = (fill(files / kind, columns, engine=engine) for engine in ("spark", "duckdb"))
        assert got.wholes.keys() == want.wholes.keys()
        for by, table in [*want.tables.items(), *want.wholes.items()]:
            own = got.tables.get(by) or got.wholes[by]
            assert own.sums.keys() == table.sums.keys()
            for name in table.sums:
                np.testing.assert_allclose(own[name], table[name], rtol=1e-9, atol=1e-9)
            for name, values in (table.pooled_units or {}).items():
                np.testing.assert_allclose(own.pooled_units[name], values, rtol=1e-9)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_times_are_cut_to_periods(tmp_path, kind, zone):
    rng = np.random.default_rng(0)
    times = pd.Series(pd.date_range("2023-12-28", periods=200, freq="11h", tz=zone))
    if kind == "csv" and zone is not None:
        times = times.dt.tz_convert("UTC")
    frame = pd.DataFrame(
        {
            "y": rng.integers(0, 2, 200),
            "p": rng.random(200),
            "g": 1,
            "person": rng.integers(0, 9, 200),
            "ts": times,
        }
    )
    path = tmp_path / f"rows.{kind}"
    # Spark reads no timestamps of nanoseconds
    frame["ts"] = frame.ts.dt.as_unit("us")
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    for unit in ("year", "quarter", "month", "week", "day", "hour"):
        columns = Columns("y", "p", "g", by=f"ts:{unit}")
        assert_equal(fill(path, columns, engine="spark"), fill(path, columns))
    columns = Columns("y", "p", "g", by="ts:quarter", cluster="person")
    got, want = (fill(path, columns, engine=engine) for engine in ("spark", "duckdb"))
    for by, table in want.tables.items():
        np.testing.assert_allclose(got.tables[by]["unit_n2"], table["unit_n2"])


@pytest.mark.usefixtures("spark")
def test_files_of_three_classes(files):
    columns = Columns("k", ("high", "low", "mid"), ("g",), pred="k")
    got = fill(files / "parquet", columns, engine="spark", n_bins=10)
    assert_equal(got, fill(files / "parquet", columns, n_bins=10))


def test_a_data_frame_of_its_own(spark, files):
    frame = spark.read.parquet(str(files / "parquet"))
    assert_equal(fill(frame, PAIR), fill(files / "parquet", PAIR))


@pytest.mark.usefixtures("spark")
def test_rates(files):
    assert rates_of(files / "csv", "y", "g", engine="spark") == rates_of(files / "csv", "y", "g")


def test_sums_beyond_64_bits_do_not_overflow(spark):
    # 2**22 rows of a log-loss of 744 are 2**63.5 in fixed point
    n = 1 << 22
    frame = spark.range(n).selectExpr("1 AS y", "4.9e-324D AS p", "'a' AS g")
    table = fill(frame, Columns("y", "p", "g"), labels=[0, 1]).tables[()]
    assert table.sums["rows"].tolist() == [n]
    assert table["log_loss"][0] == pytest.approx(n * 744.4400719213812, rel=1e-9)
    assert table.sums["probability"].tolist() == [[n * 2**32, 0]]


@pytest.mark.usefixtures("spark")
def test_faulty_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("y,p,g\n0,0.2,a\n1,NA,b\n1,0.5,b\n")
    with pytest.raises(ValueError, match=r"column 'p' has no value in 1 row of .*a.csv .*p 'NA'"):
        fill(path, Columns("y", "p", "g"), engine="spark")


@pytest.mark.usefixtures("spark")
def test_nan_in_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"y": [0, 1] * 50, "p": [0.5] * 99 + [float("nan")], "g": 1}).to_parquet(path)
    assert fill(path, Columns("y", "p", "g"), engine="spark", drop_missing=True).dropped == 1


@pytest.mark.usefixtures("spark")
def test_files_that_cannot_be_read(tmp_path):
    torn = tmp_path / "torn.csv"
    torn.write_text("y,p,g\n0,0.2,a\n1,0.5\n")
    with pytest.raises(ValueError, match=r"torn.csv, line 3: 2 values for 3 columns"):
        fill(torn, Columns("y", "p", "g"), engine="spark")
    torn.write_text("y,p,g\n0,0.2,a\n1,0.5,b\n")
    with pytest.raises(ValueError, match="there is no column 'q'"):
        fill(torn, Columns("y", "q", "g"), engine="spark")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_are_taken_literally(tmp_path, kind):
    y, p, g = 'the "label"', "p * q", "a.b`c"
    frame = pd.DataFrame({y: [0, 1, 0, 1], p: [0.1, 0.9, 0.3, 0.4], g: list("abab")})
    for name, own in (("b[1] *", frame), ("b1 x", frame.assign(**{g: "other"}))):
        path = tmp_path / f"{name}.{kind}"
        own.to_csv(path, index=False) if kind == "csv" else own.to_parquet(path)
    got, want = (
        fill(tmp_path / f"b[1] *.{kind}", Columns(y, p, g), engine=engine)
        for engine in ("spark", "duckdb")
    )
    assert_equal(got, want)
    assert got.tables[()].groups == ("a", "b")


@pytest.mark.usefixtures("spark")
def test_compressed_files(tmp_path):
    path = tmp_path / "d.csv.gz"
    pd.DataFrame({"y": [0, 1], "p": [0.25, 0.5], "g": ["a", "b"]}).to_csv(path, index=False)
    assert fill(path, Columns("y", "p", "g"), engine="spark").tables[()].groups == ("a", "b")
