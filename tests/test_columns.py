"""How each column is read: its kind, why, what overrules it, and new rows read the same way."""

import csv
import datetime
import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

from equipoise.cli import _training_table as training_table
from equipoise.cli import main
from equipoise.datasets import Dataset, FrameEncoder
from equipoise.datasets._column import KINDS
from equipoise.training import GroupwiseMLPClassifier

N = 40


def frame_of(**columns):
    """Return columns of any length up to N, repeated, with a number, a group and a label."""
    base = {"x": [i % 7 for i in range(N)], "g": ["a", "b"] * (N // 2), "y": [0, 1, 1, 0] * 10}
    return {name: [v[i % len(v)] for i in range(N)] for name, v in columns.items()} | base


def read(values, *, name="v", make=pl.DataFrame, **options):
    """Return how one column was read, and its columns of X."""
    frame = frame_of(**{name: values}) if isinstance(values, list) else values
    data = Dataset.from_frame(make(frame), label="y", group="g", **options)
    row = next(r for r in data.encoder.explained() if r.column == name)
    own = [f for f in data.feature_names if f not in ("x", "y", "g")]
    return row, data.X[:, [data.feature_names.index(f) for f in own]], data.encoder


def table_csv(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = zip(*columns.values(), strict=True)
        csv.writer(file).writerows([columns, *(["" if v is None else v for v in r] for r in rows)])
    return path


MAKERS = {
    "pandas": pd.DataFrame,
    "pandas-objects": lambda c: pd.DataFrame(c).astype(object),
    "pandas-arrow": lambda c: pd.DataFrame(c).convert_dtypes(dtype_backend="pyarrow"),
    "pandas-category": lambda c: pd.DataFrame(c).astype({"v": "category"}),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "csv": None,
}


@pytest.fixture(params=MAKERS)
def make(request, tmp_path):
    """Make a table in memory or a CSV file of columns."""
    return MAKERS[request.param] or (lambda c: table_csv(tmp_path / "t.csv", c))


# --- numbers written as text -----------------------------------------------------------------

FORMS = {
    "quoted thousands": (["34,800.77", "1,200", "980"], [34800.77, 1200, 980], "1,234.5"),
    "millions": (["1,234,567", "12", "1,000"], [1234567, 12, 1000], "1,234.5"),
    "spaces": (["1 234", "12 345 678", "7"], [1234, 12345678, 7], "1 234.5"),
    "hard spaces": (["1\xa0234,5", "12\u202f345", "7"], [1234.5, 12345, 7], "1 234,5"),
    "apostrophes": (["1'234.50", "7", "12\u2019000"], [1234.5, 7, 12000], "1'234.5"),
    "dollars": (["$12.50", "-$3", "$1,000.00"], [12.5, -3, 1000], "$1,234.5"),
    "euros": (["12,50 €", "1.200,00 €", "3 €"], [12.5, 1200, 3], "€1.234,5"),
    "percent": (["12%", "3.5 %", "-1%"], [12, 3.5, -1], "1,234.5%"),
    "parentheses": (["(1,200)", "300", "($5.10)", "$(7)"], [-1200, 300, -5.1, -7], "$1,234.5"),
    "decimal comma": (["12,5", "1,234", "0,25"], [12.5, 1.234, 0.25], "1.234,5"),
    "decimal comma, zero": (["0,125", "3,125"], [0.125, 3.125], "1.234,5"),
    "points in threes": (["1.234.567", "1.234"], [1234567, 1234], "1.234,5"),
    "minus sign": (["\u22121,200.5", "+3.25"], [-1200.5, 3.25], "1,234.5"),
    "with gaps": (["1,200.5", None, "3"], [1200.5, np.nan, 3], "1,234.5"),
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_written_as_text(form, make):
    values, numbers, written = FORMS[form]
    row, X, encoder = read(values, make=make)
    assert row.read_as == "number"
    assert row.detail.startswith(f"text in the form {written}")
    assert row.notable
    expected = np.array(numbers * N, np.float32)[:N, None]
    np.testing.assert_array_equal(X, expected)
    assert row.missing == np.isnan(expected).sum()
    again = FrameEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    np.testing.assert_array_equal(again.transform(make(frame_of(v=values)))[:, :1], expected)


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        (["34,800", "52,100"], "the comma in 34,800 taken as thousands"),
        (["1,234", "980", "5000"], "the comma in 1,234 taken as thousands"),
        (["$1.250", "$2.375"], "the point in 1.250 taken as decimal"),
    ],
)
def test_a_mark_with_two_readings_is_taken_as_english(values, remark):
    row, X, _ = read(values)
    assert row.read_as == "number"
    assert row.detail.endswith(remark)
    english = [float(v.strip("$").replace(",", "")) for v in values]
    np.testing.assert_array_equal(X[: len(values), 0], np.array(english, np.float32))


@pytest.mark.parametrize(
    ("values", "detail", "advice"),
    [
        (["1,234", "98765"], "2 values; numbers? 1,234 has two readings", "number"),
        (["$1.250", "$980"], "2 values; numbers? 1.250 has two readings", "number"),
        (["1,5", "2,5", "unknown"], "3 values; no numbers because of 'unknown'", ""),
        (["1", "2", "3", "4+", "?!"], "5 values; no numbers because of '4+' and 1 more", ""),
        (["$1", "$2", "€3"], "3 values; no numbers because of '€3'", ""),
        (["1%", "2%", "0.3"], "3 values; no numbers because of '0.3'", ""),
        (["12,34,567", "1,200"], "2 values; no numbers because of '12,34,567'", ""),
        (["1,2345", "1,200.5"], "2 values; no numbers because of '1,2345'", ""),
        (["01234", "12345"], "2 values", ""),
        (["12345678901234567890", "7"], "2 values", ""),
        (["1-2", "3-4"], "2 values", ""),
        (["(5", "5)"], "2 values", ""),
        (["--5", "-(5)"], "2 values", ""),
        (["a", "b", "3"], "3 values", ""),
    ],
)
def test_what_is_in_doubt_is_a_category(values, detail, advice):
    row, X, _ = read(values)
    assert row[:3] == ("v", "category", detail)
    assert row.advice == advice
    assert X.shape == (N, len(values))


def test_plain_numbers_in_a_column_of_text():
    values = ["12", "-3.5", "", "1e3", "NA"]
    row, X, _ = read(values)
    assert row[:3] == ("v", "number", "numbers written as text")
    assert row.missing == 16
    np.testing.assert_array_equal(X[:5, 0], [12, -3.5, np.nan, 1000, np.nan])


def test_only_words_for_missing():
    assert read(["", "NA"])[0][:3] == ("v", "left out", "no values")


def test_new_rows_with_another_form():
    *_, encoder = read(["34,800.77", "1,200"])
    new = pl.DataFrame({"v": ["2,000", None, "", "3.5"], "x": [1] * 4})
    np.testing.assert_array_equal(encoder.transform(new)[:, 0], [2000, np.nan, np.nan, 3.5])
    np.testing.assert_array_equal(
        encoder.transform(pl.DataFrame({"v": [7.5], "x": 1}))[0], [7.5, 1]
    )
    for bad in ("12,5", "€5", "5%", "many"):
        message = f"'v' is of numbers written as 1,234.5, but row 1 has '{bad}'; correct it, or"
        with pytest.raises(ValueError, match=re.escape(message)):
            encoder.transform(pl.DataFrame({"v": ["1", bad], "x": [1, 1]}))


def test_a_share_is_not_taken_for_a_percentage(tmp_path):
    *_, encoder = read(["12%", "3%"])
    for new in (pl.DataFrame({"v": [0.12], "x": [1]}), tmp_path / "n.csv"):
        (tmp_path / "n.csv").write_text("v,x\n0.12,1\n")
        with pytest.raises(ValueError, match=r"written as 1,234.5%, but row 0 has '?0.12"):
            encoder.transform(new)


def test_few_new_rows_of_a_file_are_read_in_the_form_of_the_training_rows(tmp_path):
    # alone, 1.234 looks like a number with three decimals
    *_, encoder = read(["1.234.567", "1.234"])
    path = tmp_path / "new.csv"
    path.write_text("v,x\n1.234,1\n")
    np.testing.assert_array_equal(encoder.transform(path), [[1234, 1]])
    table = pa.table({"v": ["1.234"], "x": [1]})
    pa.parquet.write_table(table, tmp_path / "new.parquet")
    np.testing.assert_array_equal(encoder.transform(tmp_path / "new.parquet"), [[1234, 1]])
    path.write_text("w,x\n1.234,1\n")
    with pytest.raises(ValueError, match="there is no column 'v'"):
        encoder.transform(path)


# --- dates -----------------------------------------------------------------------------------

DAY = datetime.date(2020, 1, 31)
DAYS = (DAY - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (["2020-01-31", "1969-12-31", None], [DAYS, -1, np.nan]),
        (["2020/1/31", "2020/2/1"], [DAYS, DAYS + 1]),
        (["2020-01-31T12:00:00Z", "2020-01-31 06:00"], [DAYS + 0.5, DAYS + 0.25]),
        (["2020-01-31T12:00+02:00", "2020-01-31 12:00:00.5-0600"], [DAYS + 5 / 12, DAYS + 0.75]),
        (["31/1/2020", "1/2/2020"], [DAYS, DAYS + 1]),
        (["1/31/2020", "2/1/2020 11:59 PM"], [DAYS, DAYS + 2]),
        (["31.1.2020", "1.2.2020"], [DAYS, DAYS + 1]),
        (["1.2.2020", "3.4.2020"], [DAYS + 1, DAYS + 63]),
    ],
)
def test_dates_as_text(values, days, make):
    row, X, encoder = read(values, make=make)
    assert row.read_as == "date"
    assert row.detail.startswith("days since 1970-01-01")
    expected = np.array(days * N)[:N]
    np.testing.assert_allclose(X[:, 0], expected, atol=0.002)
    assert row.missing == np.isnan(expected).sum()
    again = FrameEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    np.testing.assert_array_equal(again.transform(make(frame_of(v=values)))[:, :1], X)


NOON = datetime.datetime(2020, 1, 31, 12)
ZONE = datetime.timezone(datetime.timedelta(hours=6))
TRUE_DATES = {
    "date": ([DAY, DAY + datetime.timedelta(1), None], [DAYS, DAYS + 1, np.nan]),
    "datetime": ([NOON, None, datetime.datetime(1970, 1, 1)], [DAYS + 0.5, np.nan, 0]),
    "zone": ([NOON.replace(tzinfo=ZONE), None], [DAYS + 0.25, np.nan]),
}


@pytest.mark.parametrize("kind", TRUE_DATES)
def test_dates_of_every_library(kind, make, tmp_path):
    values, days = TRUE_DATES[kind]
    row, X, encoder = read(values, make=make)
    assert row[:2] == ("v", "date")
    np.testing.assert_array_equal(X[:, 0], np.array(days * N, np.float32)[:N])
    path = table_csv(tmp_path / "new.csv", frame_of(v=values))
    np.testing.assert_array_equal(encoder.transform(path)[:, :1], X)


def test_new_dates_in_another_form():
    *_, encoder = read(["31/1/2020", "1/2/2020"])
    message = "is of dates written as DD/MM/YYYY, but row 0 has '2020-01-31'"
    for bad in ("2020-01-31", "1/31/2020", "soon"):
        with pytest.raises(ValueError, match=message.replace("2020-01-31", bad)):
            encoder.transform(pl.DataFrame({"v": [bad], "x": [1]}))
    with pytest.raises(ValueError, match=r"but row 1 has 18000\.0"):
        encoder.transform(pl.DataFrame({"v": [None, 18000.0], "x": [1, 1]}))


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        (["1/2/2020", "3/4/2020"], "2 values; dates? day and month cannot be told apart"),
        (["2020-01-31", "2020-02-30"], "2 values; no dates because of '2020-02-30'"),
        (["2020-01-31", "13:00 2020-01-31", "never"], "3 values"),
        (["2020-01-31 13:00 PM", "2020-01-31 25:00"], "2 values"),
    ],
)
def test_dates_in_doubt(values, detail):
    assert read(values)[0][:3] == ("v", "category", detail)


def test_durations_are_days():
    spans = [datetime.timedelta(1.5), None, datetime.timedelta(-2)]
    for make in (pl.DataFrame, pa.table, pd.DataFrame, lambda c: pd.DataFrame(c).astype(object)):
        row, X, _ = read(spans, make=make)
        assert row[:3] == ("v", "number", "durations in days")
        np.testing.assert_array_equal(X[:3, 0], [1.5, np.nan, -2])


@pytest.mark.parametrize(
    "values",
    [
        [datetime.time(1), datetime.time(2)],
        list(pd.period_range("2020-01", periods=4, freq="M")),
        [DAY, "2020-01-31"],
        [DAY, datetime.timedelta(1)],
        [datetime.timedelta(1), 3],
    ],
)
def test_times_of_day_periods_and_mixtures_are_refused_unless_dropped(values):
    def make(columns):
        return pd.DataFrame(columns).astype({"v": object})

    with pytest.raises(TypeError, match=r"column 'v' holds values of type .* leave the column out"):
        read(values, make=make)
    row, X, _ = read(values, make=make, drop=["v"])
    assert row[:3] == ("v", "left out", "by request")
    assert X.shape[1] == 0


# --- left out --------------------------------------------------------------------------------

ORDER = np.random.default_rng(0).permutation(N).tolist()


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("v", list(range(N)), "row number"),
        ("v", [i + 1 for i in ORDER], "row number"),
        ("v", [i + 1000 for i in range(N)], "row number"),
        ("userId", [i * i for i in ORDER], "id, all 40 values differ"),
        ("SK_ID_CURR", [7.0 * i for i in ORDER], "id, all 40 values differ"),
        ("Unnamed: 0", [2 * i for i in range(N)], "id, all 40 values differ"),
        ("id", [*range(5, 2 * N - 4, 2)] + [None] * 4, "id, all 36 values differ"),
        ("v", [f"c-{i}" for i in range(N)], "all 40 values differ"),
        ("v", [f"00{i}" for i in range(10, 50)], "all 40 values differ"),
        ("v", [f"c-{i}" for i in range(30)] + [None] * 10, "all 30 values differ"),
        ("v", [f"a note of some words, {i}" for i in range(N)], "all 40 values differ"),
        ("v", [3], "one value, 3"),
        ("v", ["only"], "one value, only"),
        ("v", ["$1,000"], "one value, $1,000"),
        ("v", [True], "one value, True"),
        ("v", [DAY], f"one value, {DAYS}"),
        ("v", [None], "no values"),
        ("v", [float("nan")], "no values"),
    ],
)
def test_what_is_left_out(name, values, why, tmp_path):
    frame = frame_of(**{name: values})
    for table in (frame, pd.DataFrame(frame), table_csv(tmp_path / "t.csv", frame)):
        row, X, encoder = read(
            table, name=name, make=pl.DataFrame if table is frame else lambda t: t
        )
        assert row[:2] == (name, "left out")
        if values != [DAY] and values != [True]:  # a file has other types
            assert row.detail == why
        assert X.shape[1] == 0
        # it need not be in the new rows
        assert encoder.transform(pl.DataFrame({"x": [1]})).tolist() == [[1]]
        assert FrameEncoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("income", [1000.5 + 17.25 * i for i in ORDER]),
        ("population", sorted(i * i + 3 for i in range(N))),
        ("userId", [i // 2 for i in range(N)]),
        ("score_id", [i + 0.5 for i in range(N)]),
        ("paid", [3 * i for i in ORDER]),
        ("v", [3, None]),
        ("v", [float(i) for i in range(N - 1)] + [None]),
        ("v", [f"{1000 + 7 * i:,}.25" for i in ORDER]),
    ],
)
def test_measurements_stay_numbers(name, values):
    row, X, _ = read(values, name=name)
    assert row.read_as == "number"
    assert X.shape[1] == 1


def test_few_rows_are_no_ids():
    frame = {"id": range(6), "v": list("abcdef"), "g": ["a", "b"] * 3, "y": [0, 1, 1] * 2}
    data = Dataset.from_frame(pl.DataFrame(frame), label="y", group="g")
    assert data.feature_names == ("id", *(f"v={c}" for c in "abcdef"))


def test_nothing_is_left():
    frame = {k: v for k, v in frame_of(id=list(range(N))).items() if k != "x"}
    message = r"no column is left as a feature, left out are id \(row number\); keep one with kinds"
    with pytest.raises(ValueError, match=message):
        Dataset.from_frame(pl.DataFrame(frame), label="y", group="g")
    kept = Dataset.from_frame(pl.DataFrame(frame), label="y", group="g", kinds={"id": "number"})
    assert kept.feature_names == ("id",)


def test_hashed_text_that_is_nearly_an_id():
    words = [f"word{i}" for i in range(N)]
    row, X, _ = read([*words[:-1], "word0"], max_categories=20)
    detail = "39 values hashed to 32 columns; nearly all values differ"
    assert row == ("v", "hashed text", detail, 0, "drop", True)
    assert X.shape[1] == 32
    row = read(words, max_categories=20, kinds={"v": "text"})[0]
    assert row == ("v", "hashed text", "40 values hashed to 32 columns", 0, "", True)


# --- overruled -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "read_as", "names"),
    [
        ([10, 20, None], "category", "category", ["v=10", "v=20", "v missing"]),
        (["1,234", "98765"], "number", "number", ["v"]),
        (["1,200", "900"], "category", "category", ["v=1,200", "v=900"]),
        (list(range(N)), "number", "number", ["v"]),
        ([5], "number", "number", ["v"]),
        ([None], "number", "number", ["v"]),
        ([True, False], "number", "number", ["v"]),
        (["2020-01-31", None], "date", "date", ["v"]),
        (["2020-01-31", "2021-01-31"], "category", "category", ["v=2020-01-31", "v=2021-01-31"]),
        ([DAY, NOON], "category", "category", ["v=2020-01-31", "v=2020-01-31 12:00:00"]),
        ([1, 2], "text", "hashed text", [f"v#{j}" for j in range(32)]),
        ([1, 2], "drop", "left out", []),
    ],
)
def test_kinds(values, kind, read_as, names):
    def make(columns):
        return pd.DataFrame(columns).astype({"v": object})

    row, X, encoder = read(values, make=make, kinds={"v": kind})
    assert row.read_as == read_as
    assert encoder.feature_names == (*names, "x")
    np.testing.assert_array_equal(encoder.transform(make(frame_of(v=values)))[:, :-1], X)


def test_a_category_by_request_has_a_column_for_each_value():
    assert read(list(range(N)), kinds={"v": "category"}, max_categories=5)[1].shape == (N, N)
    frame = frame_of() | {"v": range(N)}
    frame = {name: [*values] * 30 for name, values in frame.items()} | {"v": range(30 * N)}
    with pytest.raises(ValueError, match="as category: it has 1,200 different values; pass kinds="):
        Dataset.from_frame(pl.DataFrame(frame), label="y", group="g", kinds={"v": "category"})


@pytest.mark.parametrize(
    ("values", "kinds", "message"),
    [
        (
            ["1", "2", "x2"],
            {"v": "number"},
            "as number: row 2 has 'x2'; correct it, leave it empty",
        ),
        (["b", "a"], {"v": "number"}, "row 0 has 'b'; .* or pass kinds={'v': 'category'}"),
        (["$1", "$2", "€2"], {"v": "number"}, "as number: row 2 has '€2'"),
        ([DAY, None], {"v": "number"}, "row 0 has '2020-01-31'; .*kinds={'v': 'date'}"),
        ([3, 4], {"v": "date"}, "cannot be read as date: row 0 has 3"),
        (["2020-01-31", "soon"], {"v": "date"}, "as date: row 1 has 'soon'"),
        (["1/2/2020", "2/1/2020"], {"v": "date"}, "told apart; write dates as YYYY-MM-DD, or"),
        ([1, 2], {"v": "numbr"}, "no kind 'numbr' of column; did you mean 'number'\\? there are"),
        ([1, 2], {"w": "number"}, "there is no column 'w'"),
        ([1, 2], {"y": "category"}, "'y' is the label or a group and no feature"),
        ([1, 2], {"g": "category"}, "or pass include_group=True"),
    ],
)
def test_mistakes_are_named(values, kinds, message):
    with pytest.raises(ValueError, match=message):
        read(values, kinds=kinds)


def test_dropped_and_read():
    with pytest.raises(ValueError, match="'v' cannot be both dropped and read as number"):
        read([1, 2], kinds={"v": "number"}, drop=["v"])


# --- the command -----------------------------------------------------------------------------


def run(tmp_path, columns, *options, code=0, out="m"):
    """Train for an epoch on a file; return what was printed on stderr and stdout."""
    path = table_csv(tmp_path / "t.csv", columns)
    arguments = ["train", path, "--label", "y", "--group", "g", "--out", tmp_path / out]
    quick = ["--max-epochs", 1, "--hidden-layer-sizes", 4, "--calibrate", "none", "--loss", "ce"]
    result = CliRunner().invoke(main, [str(a) for a in (*arguments, *quick, *options)])
    assert result.exit_code == code, result.output
    return result.stderr, result.stdout


def lines_of(shown):
    return [line.rstrip() for line in shown.splitlines()]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


AWKWARD = frame_of(
    id=list(range(1, N + 1)),
    pay=["34,800.77", "1,200", None],
    born=["2020-01-31", "2021-01-31"],
    job=["cook", "smith"],
    empty=[None],
    amount=["1,234", "98765"],
)


def test_the_table(tmp_path):
    shown, result = run(tmp_path, AWKWARD)
    assert "read as" not in result
    assert lines_of(shown) == [
        "40 rows of t.csv, read as",
        "column  read as     missing",
        "─" * 80,
        "y       label                2 classes: 0, 1",
        "g       group                2 groups: a, b",
        "id      left out             row number",
        "pay     number     13 (32%)  text in the form 1,234.5",
        "born    date                 days since 1970-01-01",
        "job     category             2 values",
        "empty   left out  40 (100%)  no values",
        "amount  category             2 values; numbers? 1,234 has two readings; --as",
        "                             number:amount",
        "x       number",
        "To read one in another way: --as KIND:COLUMN; to leave it out: --drop COLUMN.",
        "",
    ]


def test_predict_reads_new_rows_the_same_way(tmp_path):
    run(tmp_path, AWKWARD)
    model = GroupwiseMLPClassifier.load(tmp_path / "m")
    encoder = FrameEncoder.from_dict(model.extra_["encoder"])
    new = {name: AWKWARD[name][:2] for name in ("pay", "born", "job", "amount", "x", "g")}
    path = table_csv(tmp_path / "new.csv", new)
    X = Dataset.from_frame(tmp_path / "t.csv", label="y", group="g").X
    np.testing.assert_array_equal(encoder.transform(path), X[:2])
    arguments = ["predict", tmp_path / "m", path, "--out", tmp_path / "p.csv"]
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    table_csv(tmp_path / "new.csv", new | {"pay": ["12,5", "3"]})
    result = CliRunner().invoke(main, [*map(str, arguments), "--force"])
    assert result.exit_code == 2
    assert "column 'pay' is of numbers written as 1,234.5, but row 0 has '12,5'" in result.stderr


def test_overruling(tmp_path):
    options = ("--as", "number:amount", "--as", "category:born", "--as", "drop:job", "--drop", "x")
    shown = run(tmp_path, AWKWARD, *options)[0]
    read_as = {line.split()[0]: line.split()[1] for line in lines_of(shown)[3:11]}
    assert read_as == {
        "y": "label", "g": "group", "id": "left", "pay": "number", "born": "category",
        "job": "left", "empty": "left", "amount": "number",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--as", "number"], "'number' is not KIND:COLUMN, such as number:income"),
        (["--as", "number:"], "is not KIND:COLUMN"),
        (["--as", "nmber:pay"], "no kind 'nmber'; did you mean 'number'? there are number, cat"),
        (["--as", "number:pa"], "no column 'pa'; did you mean 'pay'?"),
        (["--as", "number:pay", "--as", "text:pay"], "'pay' is to be both number and text"),
        (["--as", "number:job"], "row 0 has 'cook'; correct it, leave it empty"),
        (["--as", "number:job"], "or pass --as category:job"),
        (["--as", "text:y"], "leave out its --as"),
        (["--as", "text:pay", "--drop", "pay"], "cannot be both dropped and read as text"),
    ],
)
def test_command_mistakes(tmp_path, options, words):
    shown, _ = run(tmp_path, AWKWARD, *options, code=2)
    assert words in " ".join(shown.split())
    assert not (tmp_path / "m").exists()


def test_the_command_knows_all_kinds():
    assert training_table.KINDS == KINDS


def test_names_are_whole_and_harmless(tmp_path):
    long = "a_name_that_is_longer_than_a_terminal_of_80_columns_" * 2
    names = [long, "[red]markup[/red]", "esc\x1b[31m", ":smile:", "two\nlines", "a:b"]
    columns = frame_of(**{name: ["u", "v"] for name in names})
    shown, _ = run(tmp_path, columns, "--as", "category:a:b")
    firsts = [line.split("  ")[0] for line in lines_of(shown)]
    expected = [long, "[red]markup[/red]", "esc\\x1b[31m", ":smile:", "two\\nlines", "a:b"]
    assert [name for name in firsts if name in expected] == expected
    assert "\x1b" not in shown


def test_many_columns_share_lines(tmp_path):
    plain = {f"n{i}": [i, 1, None, 3, 4, 5, 6] for i in range(30)}
    kinds = {f"c{i}": ["u", "v"] for i in range(3)}
    odd = {"id": list(range(N)), "gaps": [1, None, 2], "pay": ["1,200.5", "7"]}
    shown, _ = run(tmp_path, frame_of(**plain, **kinds, **odd))
    lines = lines_of(shown)
    table = [re.split(r"  +", line) for line in lines[3:-2]]
    assert table == [
        ["y", "label", "2 classes: 0, 1"],
        ["g", "group", "2 groups: a, b"],
        ["31 columns", "number", "up to 6 (15%)", "n0, n1, n2 and 28 more"],
        ["3 columns", "category", "c0, c1, c2"],
        ["id", "left out", "row number"],
        ["gaps", "number", "13 (32%)"],
        ["pay", "number", "text in the form 1,234.5"],
    ]
