"""`equipoise predict` a batch at a time: the size of the batches changes nothing."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from equipoise._files import Reader, safe_cell, write_batches
from equipoise.cli import main
from equipoise.datasets import FrameEncoder
from equipoise.datasets._cells import iso_days, numbers_of, places, typed, written_numbers
from equipoise.datasets._written import day_of, number_of
from equipoise.training import GroupwiseMLPClassifier

MODELS = {
    "group": ("--calibrate", "group", "--unseen-group", "global"),
    "bcts": ("--calibrate", "bcts", "--unseen-group", "mixture", "--group", "region"),
    "common": ("--calibrate", "common"),
}


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


def rows_of(n, seed):
    """Return rows of every kind of column; the types of some show late."""
    rng = np.random.default_rng(seed)
    header = ["", "age", "pay", "born", "seen", "job", "remark", "member", "code", "price", "late"]
    rows = []
    for i in range(n):
        age, sex = int(rng.integers(18, 80)), rng.choice(["f", "m"])
        score = age / 20 + (sex == "m") + rng.normal()
        rows.append(
            [
                i,
                rng.choice([str(age), f"{age}.50", f"+{age}", "NA"], p=[0.7, 0.1, 0.1, 0.1]),
                rng.choice([f"{age * 321 + 1000:,}.77", f"-{age}.5", ""]),
                f"{1950 + age}-0{1 + age % 9}-1{age % 10}",
                f"1{age % 10}/0{1 + age % 9}/2001 10:{age % 60:02}",
                rng.choice(["cook", 'a "q"', "x, y", "two\nlines", " smith ", "?"]),
                " ".join(rng.choice(["red", "Old", "far", "=1"], 3)),
                rng.choice(["true", "FALSE", ""]),
                rng.choice(["007", "12", "12.0"]),
                f"${age}.25",
                "word" if i == n - 1 else i % 5,
                sex,
                int(rng.integers(1, 3)),
                "high" if score > 4 else "middle" if score > 2.5 else "low",
            ]
        )
    return [[*header, "sex", "region", "y"], *rows]


def write(path, rows):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with models, and new rows as CSV and Parquet."""
    made = tmp_path_factory.mktemp("models")
    write(made / "train.csv", rows_of(200, 0))
    options = ("--label", "y", "--group", "sex", "--max-epochs", "2", "--hidden-layer-sizes", "8")
    kinds = ("--as", "text:remark", "--as", "category:code", "--as", "number:pay")
    for name, more in MODELS.items():
        run("train", made / "train.csv", *options, *kinds, *more, "--out", made / name)
    new = rows_of(90, 1)
    new[50][-1], new[61][-1], new[88][-1] = "", "unheard of", "NA"
    write(made / "known.csv", new)  # all groups are known
    new[40][-3], new[80][-3], new[83][-2] = "other", "", "1.0"
    write(made / "new.csv", new)
    text = pacsv.ConvertOptions(column_types=dict.fromkeys(new[0], pa.string()))
    parse = pacsv.ParseOptions(newlines_in_values=True)
    table = pacsv.read_csv(made / "new.csv", convert_options=text, parse_options=parse).drop([""])
    typed_ones = {
        "born": table["born"].cast(pa.date32()),
        "region": pc.cast(table["region"], pa.float64()),
        "job": table["job"].dictionary_encode(),
        "member": pa.chunked_array([[None if v == "" else v == "true" for v in _list(table)]]),
    }
    for name, column in typed_ones.items():
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, made / "new.parquet", row_group_size=32)
    return made


def _list(table):
    return table["member"].to_pylist()


def in_batches(monkeypatch, size):
    whole = Reader.batches

    def batches(self, columns=None):
        for batch in whole(self, columns):
            for start in range(0, len(batch), size):
                yield batch.slice(start, size)

    monkeypatch.setattr(Reader, "batches", batches)


@pytest.mark.parametrize("out", ["p.csv", "p.parquet"])
@pytest.mark.parametrize("data", ["new.csv", "new.parquet"])
@pytest.mark.parametrize("model", MODELS)
def test_batches_change_nothing(folder, monkeypatch, model, data, out):
    def predicted():
        shown = run("predict", folder / model, folder / data, "--out", out, "--force")
        if out == "p.csv":
            return shown, Path(out).read_bytes()
        table = pq.read_table(out)
        return shown, (table.schema, table.to_pydict())

    shown, whole = predicted()
    assert "90 predictions in" in shown
    assert "rows are not measured" in shown
    assert ("3 rows belong to a group" in shown or "2 rows belong" in shown) == (model != "common")
    for size in (1, 7, 64):
        with monkeypatch.context() as patch:
            in_batches(patch, size)
            assert predicted() == (shown, whole)


@pytest.mark.parametrize("model", MODELS)
def test_the_stream_is_what_python_gives_for_the_whole_table(folder, model):
    run("predict", folder / model, folder / "known.csv", "--out", "p.parquet")
    written = pq.read_table("p.parquet")
    fitted = GroupwiseMLPClassifier.load(folder / model)
    encoder = FrameEncoder.from_dict(fitted.extra_["encoder"])
    X = encoder.transform(folder / "known.csv")
    groups = written.select(encoder.group).to_pandas()
    groups = list(groups.itertuples(index=False, name=None)) if model == "bcts" else groups["sex"]
    sensitive = np.fromiter(groups, object)
    prob = fitted.predict_proba(X, sensitive_features=sensitive)
    for j, label in enumerate(encoder.class_names):
        np.testing.assert_array_equal(written[f"prob_{label}"].to_numpy(), prob[:, j])
    labels = fitted.predict(X, sensitive_features=sensitive)
    assert written["prediction"].to_pylist() == labels.tolist()


def test_the_types_of_parquet_are_those_of_all_values(folder):
    run("predict", folder / "common", folder / "new.csv", "--out", "p.parquet")
    kinds = {f.name: str(f.type) for f in pq.read_schema("p.parquet")}
    number, truth, text = "double", "bool", "string"
    expected = {"": text, "age": number, "pay": text, "member": truth, "code": text, "late": text}
    assert expected.items() <= (kinds | {"region": kinds["region"]}).items()
    assert kinds["region"] == "double"  # 1.0 is among them
    assert pq.read_table("p.parquet")["late"].to_pylist()[-2:] == ["3", "word"]


@pytest.mark.parametrize("model", MODELS)
def test_a_row_is_predicted_alike_alone(folder, model):
    run("predict", folder / model, folder / "known.csv", "--out", "all.csv")
    header, *rows = rows_of(90, 1)
    write("one.csv", [header, rows[0]])  # whose cells are of other types by themselves
    run("predict", folder / model, "one.csv", "--out", "p.csv")
    with Path("all.csv").open(newline="") as all_, Path("p.csv").open(newline="") as one:
        assert list(csv.reader(all_))[1] == list(csv.reader(one))[1]


def test_torch_is_not_needed(folder):
    code = (
        "import sys; from equipoise.cli import main; "
        f"main(['predict', {str(folder / 'group')!r}, {str(folder / 'new.csv')!r}, '--out', 'p.csv'"
        "], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# --- cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "+2", "-0.5", ".5", "1e3", None], [1, 2, -0.5, 0.5, 1000, np.nan]),
        (["inf", "-Infinity", "1e400"], [np.inf, -np.inf, np.inf]),
        (["0", "-0", "0.5", "+0"], [0, 0, 0.5, 0]),
        (["1.0000000000000000001"], [1]),
        *(([bad, "1"], None) for bad in ("01", "-01", "+01", "NAN", "0x1", "1" * 19, "1,5", "a")),
    ],
)
def test_numbers(texts, expected):
    found = numbers_of(pa.chunked_array([texts], pa.string()))
    if expected is None:
        assert found is None
        assert typed(pa.chunked_array([texts])).tolist() == texts
    else:
        np.testing.assert_array_equal(found.to_numpy(), expected)


@pytest.mark.parametrize("form", ["1,234.5", "1.234,5", "$1,234.5", "1 234,5%", "1'234.5", ""])
def test_written_numbers_are_those_of_one_by_one(form):
    texts = ["1", "0", "1.234", "1,234", "-1,234,567.25", "1.234,5", "$1,000", "-$5", "12 345,5%"]
    texts += ["5%", "1'000.5", "012", "1,23", "(1)", "1e5", "", "1.", ".5", "€5", "x"]
    for text in texts:
        found = written_numbers(pa.chunked_array([[text]]), form)
        one = number_of(text, form)
        # what it does not take may still be a number, which is then parsed by itself
        assert found is None or found.tolist() == [one]
    good = [t for t in ("1", "-5", "20") if number_of(t, form) is not None]
    if good:
        np.testing.assert_array_equal(
            written_numbers(pa.chunked_array([[*good, None]]), form), [1, -5, 20, np.nan]
        )


def test_iso_days_are_those_of_one_by_one():
    good = ["1970-01-02", "0001-01-01", "9999-12-31", "2024-02-29 23:59", "1969-12-31T00:00:01"]
    np.testing.assert_array_equal(
        iso_days(pa.chunked_array([[*good, None]])),
        [*(day_of(t, "YYYY-MM-DD") for t in good), np.nan],
    )
    for bad in ("0000-01-01", "2023-02-29", "2024-01-01 24:00", "2024-01-01 12", "a" * 10):
        assert iso_days(pa.chunked_array([[bad]])) is None
        assert day_of(bad, "YYYY-MM-DD") is None


def test_places():
    known = ["1", "0.5", "True", "a", "1.0"]
    assert places(["1", "1.0", "+1", "1.00", "01"], known) == [0, 1 + 3, 0, 0, -1]
    assert places([".5", "5e-1", "TRUE", "true", "A", "1" * 30], known) == [1, 1, 2, 2, -1, -1]


# --- cells that a spreadsheet would run ------------------------------------------------------

CELLS = ["=1+1", "+a", "-b", "@c", "\td", "\re", "-1.5", "+3", "-2e-5", "a=b", "", None, "-", "é"]
SAFE = [
    "'=1+1",
    "'+a",
    "'-b",
    "'@c",
    "'\td",
    "'\re",
    "-1.5",
    "+3",
    "-2e-5",
    "a=b",
    "",
    "",
    "'-",
    "é",
]


def test_safe_csv():
    numbers = pa.array([-1.5, -np.inf] * 7)
    columns = {"=n": numbers, "text": pa.array(CELLS), "d": pa.array(CELLS).dictionary_encode()}
    table = pa.table(columns)
    write_batches("plain.csv", table.schema, table.to_batches())
    write_batches("safe.csv", table.schema, table.to_batches(), safe_csv=True)
    for name, header, cells in (("plain", "=n", CELLS), ("safe", "'=n", SAFE)):
        with Path(f"{name}.csv").open(newline="", encoding="utf-8") as file:
            first, *rows = csv.reader(file)
        assert first == [header, "text", "d"]
        assert [r[1] for r in rows] == [r[2] for r in rows] == [c or "" for c in cells]
        assert {r[0] for r in rows} == {"-1.5", "-inf"}
    assert [safe_cell(c) for c in CELLS if c is not None] == [
        s for c, s in zip(CELLS, SAFE, strict=True) if c is not None
    ]
    with pytest.raises(ValueError, match="safe_csv is for CSV"):
        write_batches("p.parquet", table.schema, [], safe_csv=True)
