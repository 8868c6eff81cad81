"""A table of any kind becomes one matrix, and new rows become rows of the same."""

import decimal
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from equipoise.datasets import Dataset, FrameEncoder, Source

COLUMNS = {
    "age": [30, 41, 25, 62, 33, 58],
    "income": [1.5, None, 2.25, 3.0, None, 1.0],
    "job": ["cook", "smith", None, "cook", "smith", "cook"],
    "member": [True, False, True, True, False, False],
    "sex": ["f", "m", "f", "m", "m", "f"],
    "paid": ["yes", "no", "no", "yes", "yes", "no"],
}
X = [
    [30, 1.5, 1, 0, 0, 0, 1],
    [41, np.nan, 0, 1, 0, 1, 0],
    [25, 2.25, 0, 0, 1, 0, 1],
    [62, 3.0, 1, 0, 0, 0, 1],
    [33, np.nan, 0, 1, 0, 1, 0],
    [58, 1.0, 1, 0, 0, 1, 0],
]
NAMES = ("age", "income", "job=cook", "job=smith", "job missing", "member=False", "member=True")


def pandas_categories(columns):
    frame = pd.DataFrame(columns)
    return frame.astype({"job": "category", "sex": "category", "paid": "category"})


def arrow_dictionary(columns):
    table = pa.table(columns)
    for name in ("job", "sex"):
        column = pa.array(columns[name]).dictionary_encode()
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def polars_categories(columns):
    return pl.DataFrame(columns).with_columns(pl.col("job", "sex").cast(pl.Categorical))


KINDS = {
    "pandas": pd.DataFrame,
    "pandas-objects": lambda c: pd.DataFrame(c).astype(object),
    "pandas-nullable": lambda c: pd.DataFrame(c).convert_dtypes(),
    "pandas-arrow": lambda c: pd.DataFrame(c).convert_dtypes(dtype_backend="pyarrow"),
    "pandas-categories": pandas_categories,
    "polars": pl.DataFrame,
    "polars-categories": polars_categories,
    "arrow": pa.table,
    "arrow-dictionary": arrow_dictionary,
}
FILES = {
    "pandas.csv": lambda c, path: pd.DataFrame(c).to_csv(path),
    "polars.csv": lambda c, path: pl.DataFrame(c).write_csv(path),
    "semicolons.csv": lambda c, path: pd.DataFrame(c).to_csv(path, sep=";", index=False),
    "tabs.tsv": lambda c, path: pd.DataFrame(c).to_csv(path, sep="\t", index=False),
    "pandas.parquet": lambda c, path: pandas_categories(c).to_parquet(path),
    "named-rows.parquet": lambda c, path: pd.DataFrame(
        c, index=list("uvwxyz")[: len(c["age"])]
    ).to_parquet(path),
    "polars.parquet": lambda c, path: pl.DataFrame(c).write_parquet(path),
}


@pytest.fixture(params=[*KINDS, *FILES])
def make(request, tmp_path):
    """Make a table or a file of columns."""

    def of(columns):
        if request.param in KINDS:
            return KINDS[request.param](columns)
        path = tmp_path / request.param
        FILES[request.param](columns, path)
        return path

    return of


def fit(columns=COLUMNS, *, label="paid", group="sex", **options):
    return Dataset.from_frame(pl.DataFrame(columns), label=label, group=group, **options)


def test_every_kind_of_table_gives_the_same_dataset(make):
    data = Dataset.from_frame(make(COLUMNS), label="paid", group="sex")
    assert data.feature_names == NAMES
    np.testing.assert_array_equal(data.X, np.array(X, np.float32))
    assert data.X.dtype == np.float32
    assert data.y.tolist() == [1, 0, 0, 1, 1, 0]
    assert data.group.tolist() == [0, 1, 0, 1, 1, 0]
    assert data.class_names == ("no", "yes")
    assert data.group_names == ("f", "m")


def test_new_rows_of_any_kind_are_encoded_the_same_way(make):
    encoder = fit().encoder
    rows = {name: [values[i] for i in (2, 1)] for name, values in COLUMNS.items()}
    np.testing.assert_array_equal(encoder.transform(make(rows)), np.array(X, np.float32)[[2, 1]])
    assert encoder.labels(make(rows)).tolist() == [0, 0]
    assert encoder.groups(make(rows)).tolist() == [0, 1]


def test_new_rows_with_what_was_never_seen():
    encoder = fit().encoder
    rows = pd.DataFrame({"age": [None, 7], "income": [1, 2], "job": ["priest", None], "member": 1})
    expected = [[np.nan, 1, 0, 0, 0, 0, 0], [7, 2, 0, 0, 1, 0, 0]]
    np.testing.assert_array_equal(encoder.transform(rows), np.array(expected, np.float32))
    # a missing value where none was missing before is unknown too
    rows["member"] = None
    np.testing.assert_array_equal(encoder.transform(rows)[:, 5:], 0)


def test_neither_label_nor_group_nor_order_matters_for_new_rows():
    encoder = fit().encoder
    rows = pl.DataFrame(COLUMNS).select("member", pl.lit(1).alias("extra"), "job", "income", "age")
    np.testing.assert_array_equal(encoder.transform(rows), np.array(X, np.float32))
    with pytest.raises(ValueError, match="there is no column 'sex'"):
        encoder.groups(rows)
    assert encoder.groups(pl.DataFrame({"sex": ["m", "x", None]})).tolist() == [1, -1, -1]
    assert encoder.labels(pl.DataFrame({"paid": ["yes", "maybe"]})).tolist() == [1, -1]


def test_one_stray_word_does_not_make_all_groups_new():
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "g": [0, 1, 0, 1], "y": [1, 0, 0, 1]})
    encoder = Dataset.from_frame(frame, label="y", group="g").encoder
    assert encoder.groups(pl.DataFrame({"g": ["0", "1", "other"]})).tolist() == [0, 1, -1]
    assert encoder.groups(pl.DataFrame({"g": [1.0, None]})).tolist() == [1, -1]
    assert encoder.labels(pl.DataFrame({"y": ["1", "?"]})).tolist() == [1, -1]


def test_integers_beyond_64_bits_are_names(tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text("id,y,g\n" + "12345678901234567890,0,a\n12345678901234567891,1,b\n" * 4)
    features = Dataset.from_frame(path, label="y", group="g").feature_names
    assert features == ("id=12345678901234567890", "id=12345678901234567891")


def test_new_rows_without_a_column():
    with pytest.raises(ValueError, match="there is no column 'income'; did you mean 'incomes'"):
        fit().encoder.transform(pl.DataFrame({"age": [1], "incomes": [1]}))


def test_new_rows_with_text_for_a_number(tmp_path):
    encoder = fit().encoder
    path = tmp_path / "new.csv"
    path.write_text("age,income,job,member\n30,2,cook,true\n3O,1,cook,false\n")
    with pytest.raises(ValueError, match="column 'age' is of numbers, but row 1 has '3O'"):
        encoder.transform(path)


# --- label and group -------------------------------------------------------------------------


def test_the_group_is_a_feature_on_request():
    data = fit(include_group=True)
    assert data.feature_names == (*NAMES, "sex=f", "sex=m")
    np.testing.assert_array_equal(data.X[:, -1], data.group)


def test_several_group_columns_are_their_intersection():
    data = fit(group=["sex", "member"])
    assert data.group_names == (("f", False), ("f", True), ("m", False), ("m", True))
    assert data.group.tolist() == [1, 2, 1, 3, 2, 0]
    assert "member=True" not in data.feature_names
    assert data.encoder.groups(pl.DataFrame(COLUMNS)).tolist() == data.group.tolist()


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([2, 1, 1, 2, 2, 1], (1, 2)),
        ([True, False, False, True, True, False], (False, True)),
        ([0.5, -1, -1, 0.5, 0.5, -1], (-1, 0.5)),
        (["b", "a", "a", "b", "c", "a"], ("a", "b", "c")),
    ],
)
def test_a_label_of_any_coding(values, names, tmp_path):
    columns = COLUMNS | {"paid": values}
    data = fit(columns)
    assert data.class_names == names
    assert [data.class_names[k] for k in data.y] == values
    pl.DataFrame(columns).write_csv(tmp_path / "t.csv")
    again = Dataset.from_frame(tmp_path / "t.csv", label="paid", group="sex")
    assert again.class_names == names
    assert (again.title, again.source) == ("t.csv", "t.csv")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"paid": [*COLUMNS["paid"][:4], None, None]}, {}, "label 'paid' has 2 missing.*row 4"),
        ({"sex": [None, *COLUMNS["sex"][1:]]}, {}, "group 'sex' has 1 missing.*row 0"),
        ({"paid": ["no"] * 6}, {}, "label 'paid' has only one value, 'no'"),
        ({"sex": ["f"] * 6}, {}, "group 'sex' has only one value, 'f'"),
        ({}, {"label": "payd"}, "there is no column 'payd'; did you mean 'paid'"),
        ({}, {"group": ["sex", "jobs"]}, "there is no column 'jobs'; did you mean 'job'"),
        ({}, {"drop": ["aeg"]}, "there is no column 'aeg'; did you mean 'age'"),
        ({}, {"kinds": {"zip": "category"}}, "there is no column 'zip'; there are age, income"),
        ({}, {"group": "paid"}, "'paid' cannot be both label and group"),
        ({}, {"group": []}, "group names no column"),
        ({}, {"drop": ["age", "income", "job", "member"]}, "no column is left as a feature"),
        ({}, {"hash_columns": 0}, "hash_columns are at least 1"),
        ({"age": [1.0, 2, 3, 4, 5, float("inf")]}, {}, "column 'age', row 5: inf is infinite"),
        ({"age": [1.0, 2, 1e39, 4, 5, 6]}, {}, r"column 'age', row 2: 1e\+39 is infinite or too"),
    ],
)
def test_mistakes_are_named(changes, options, message):
    with pytest.raises(ValueError, match=message):
        fit(COLUMNS | changes, **options)


def test_drop_takes_a_list():
    with pytest.raises(TypeError, match="drop is a list"):
        fit(drop="age")


def test_a_number_as_a_label():
    n = 300
    columns = {"x": range(n), "y": [i / 7 for i in range(n)], "a": [i % 2 for i in range(n)]}
    with pytest.raises(ValueError, match="label 'y' has 300 distinct values, more than 100"):
        fit(columns, label="y", group="a")


def test_no_rows(tmp_path):
    with pytest.raises(ValueError, match="the table has no rows"):
        fit({name: [] for name in COLUMNS})
    for text, message in (
        ("", r"empty\.csv is empty"),
        ("age,sex,paid\n", r"empty\.csv has no rows"),
    ):
        (tmp_path / "empty.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            Dataset.from_frame(tmp_path / "empty.csv", label="paid", group="sex")


# --- kinds of columns ------------------------------------------------------------------------


def test_numbers_as_categories():
    columns = COLUMNS | {"zip": [10, 20, None, 10, 10, 20]}
    data = fit(columns, kinds={"zip": "category"})
    assert data.feature_names[-3:] == ("zip=10", "zip=20", "zip missing")
    # integers and floats are the same categories
    rows = pl.DataFrame(COLUMNS).with_columns(zip=20)
    np.testing.assert_array_equal(data.encoder.transform(rows)[:, -3:], [[0, 1, 0]] * 6)


def test_decimals_are_numbers():
    price = [decimal.Decimal("1.5"), None, *[decimal.Decimal(2)] * 4]
    frame = pd.DataFrame(COLUMNS).assign(price=price)
    for table in (frame, pl.DataFrame(COLUMNS | {"price": price})):
        data = Dataset.from_frame(table, label="paid", group="sex")
        assert data.feature_names[-1] == "price"
        np.testing.assert_array_equal(data.X[:, -1], [1.5, np.nan, 2, 2, 2, 2])


def test_a_column_of_lists_is_refused():
    with pytest.raises(TypeError, match="column 'tags' holds values that are not plain"):
        fit(COLUMNS | {"tags": [[1], [2], [3], [4], [5], [6]]})


def many(n=200):
    words = ["red", "green", "blue", "old", "new"]
    return {
        "title": [f"{words[i % 5]} thing {i % 50}" if i % 10 else None for i in range(n)],
        "sex": ["f", "m"] * (n // 2),
        "paid": [i % 3 == 0 for i in range(n)],
    }


def test_text_of_many_values_is_hashed():
    data = fit(many(), max_categories=20, hash_columns=16)
    assert data.feature_names == (*(f"title#{j}" for j in range(16)), "title missing")
    words = np.array([0 if v is None else len(v.split()) for v in many()["title"]])
    np.testing.assert_array_equal(data.X[:, :16].sum(axis=1), words)
    np.testing.assert_array_equal(data.X[:, 16], words == 0)
    # rows that share words are alike; unknown text is encoded too
    new = pl.DataFrame({"title": ["RED thing", "red  thing", "unheard of"]})
    encoded = data.encoder.transform(new)
    np.testing.assert_array_equal(encoded[0], encoded[1])
    np.testing.assert_array_equal(encoded.sum(axis=1), 2)


@pytest.mark.slow
def test_hashing_is_the_same_in_every_process():
    code = (
        "import polars as pl; from equipoise.datasets import Source;"
        "from equipoise.datasets._frame import Column;"
        "table = Source.of(pl.DataFrame({'t': ['some words', 'x']}));"
        "print(Column('t', 'text', width=8).transform(table))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
    assert shown.pop().count("1.") == 3


def test_the_split_imputes_and_flags_numbers():
    n = 80
    rng = np.random.default_rng(0)
    columns = {
        "x": [None if i % 4 == 0 else float(i) for i in range(n)],
        "a": rng.integers(0, 2, n).tolist(),
        "y": rng.integers(0, 2, n).tolist(),
    }
    data = fit(columns, label="y", group="a")
    split = data.split(0, stratify=True)
    assert split.preprocessor.feature_names == ("x", "x missing")
    new = split.preprocessor.transform(data.encoder.transform(pl.DataFrame({"x": [None, 3.0]})))
    assert np.isfinite(new).all()
    assert new[0, 0] == pytest.approx(0, abs=1e-6)
    assert new[0, 1] > new[1, 1]


# --- saving ----------------------------------------------------------------------------------


def test_an_encoder_is_kept_as_json():
    columns = COLUMNS | {"title": [f"thing {i}" for i in range(6)]}
    data = fit(columns, group=["sex", "member"], max_categories=3)
    again = FrameEncoder.from_dict(json.loads(json.dumps(data.encoder.to_dict())))
    assert again == data.encoder
    np.testing.assert_array_equal(again.transform(pl.DataFrame(columns)), data.X)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "something else"},
        {"columns": [{"name": "age"}]},
        {"columns": [{"name": "a", "kind": "code", "categories": [], "width": 0, "missing": 0}]},
        {"columns": [{"name": "a", "kind": "text", "categories": [], "width": 0, "missing": 0}]},
        {"columns": 3},
        {"class_names": None},
    ],
)
def test_a_damaged_encoder_is_refused(damage):
    with pytest.raises(ValueError, match="encoder"):
        FrameEncoder.from_dict(fit().encoder.to_dict() | damage)
    with pytest.raises(ValueError, match="not an encoder"):
        FrameEncoder.from_dict([])


# --- files -----------------------------------------------------------------------------------


def csv(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return Source.of(path)


def test_types_of_csv_columns(tmp_path):
    table = csv(
        tmp_path,
        "\ufeffi, f,z,b,t,n,m,q\n"
        '1,1.5,01,TRUE,a,,1,"x, y"\n\n'
        '-2,1e3,20,false, b ,NA,?,"z"\n'
        "+3,.5,30,True,nan,?,-2.5,1\n",
    )
    assert table.names == ["i", "f", "z", "b", "t", "n", "m", "q"]
    assert table.rows == 3
    assert table["i"].dtype == np.int64
    assert table["i"].tolist() == [1, -2, 3]
    assert table["f"].tolist() == [1.5, 1000.0, 0.5]
    assert table["z"].tolist() == ["01", "20", "30"]
    assert table["b"].tolist() == [True, False, True]
    assert table["t"].tolist() == ["a", "b", None]
    assert np.isnan(table["n"]).all()
    np.testing.assert_array_equal(table["m"], [1, np.nan, -2.5])
    assert table["q"].tolist() == ["x, y", "z", "1"]


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        ("a,b\n1,2\n1,2,3\n", "utf-8", "line 3: 3 values for 2 columns"),
        ("a,b,a\n1,2,3\n", "utf-8", "several columns named 'a'"),
        ("a,b\né,2\n", "latin-1", "is not UTF-8"),
        ("a,b\n1,2\n3,'x\n".replace("'", '"'), "utf-8", "line 3: a quote is not closed"),
        ("a,b\n1,2\n3\n", "utf-8", "line 3: 1 value for 2 columns"),
    ],
)
def test_bad_csv(tmp_path, text, encoding, message):
    with pytest.raises(ValueError, match=message):
        csv(tmp_path, text, encoding)


def test_what_is_not_a_table(tmp_path):
    for name in ("gone.csv", "gone.parquet"):
        with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*gone"):
            Source.of(tmp_path / name)
    (tmp_path / "table.xlsx").touch()
    with pytest.raises(ValueError, match=r"table\.xlsx is neither \.csv"):
        Source.of(tmp_path / "table.xlsx")
    with pytest.raises(TypeError, match="not LazyFrame"):
        Source.of(pl.LazyFrame(COLUMNS))
    with pytest.raises(TypeError, match="not list"):
        Source.of([[1, 2]])


def test_pandas_columns_named_by_numbers():
    frame = pd.DataFrame(np.arange(12).reshape(4, 3) % 5).assign(a=[0, 1] * 2, y=[0, 0, 1, 1])
    data = Dataset.from_frame(frame, label="y", group="a")
    assert data.feature_names == ("0", "1", "2")
