"""Faults of predictions: rows that a model cannot take, early and late, and what is written."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from fault_harness import Fault, check_fault, people, rows, run_here, run_process

pytestmark = pytest.mark.slow

MANY = 70_000
"""Rows of a file that is read in several batches."""
PREDICT = ("predict", "model", "new.csv", "--out", "p.csv")


def new(change=None, n=80, name="new.csv"):
    """Write new rows after a change of the frame."""

    def arrange(folder):
        frame = people(n, seed=1).astype(object)
        if change is not None:
            frame = change(frame)
        if name.endswith(".parquet"):
            frame.to_parquet(folder / name)
        else:
            frame.to_csv(folder / name, index=False)

    return arrange


def put(column, value, row=-1):
    """Return a change of one cell."""

    def change(frame):
        frame.loc[frame.index[row], column] = value
        return frame

    return change


def renamed(**names):
    return lambda frame: frame.rename(columns=names)


def refused(name, says, change=None, *, n=80, run=PREDICT, arrange=None):
    arrange = arrange or new(change, n)
    return Fault(name, run, says, arrange=arrange, needs_model=True)


def works(name, says, change=None, check=lambda *_: None, *, n=80, run=PREDICT, arrange=None):
    arrange = arrange or new(change, n)
    return Fault(
        name, run, says, arrange=arrange, code=0, makes=["p.csv"], check=check, needs_model=True
    )


def written(folder):
    with (folder / "p.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def has_rows(n, width=7):
    """Check that all rows were written, with probabilities."""

    def check(folder, _):
        header, *cells = written(folder)
        assert header[-3:] == ["prob_no", "prob_yes", "prediction"]
        assert len(cells) == n
        assert {len(row) for row in cells} == {width}
        assert all(abs(float(r[-3]) + float(r[-2]) - 1) < 1e-9 for r in cells)

    return check


# --- rows that the model cannot take ---------------------------------------------------------

LATE = {
    "a word in a column of numbers": ("age", "old", "'age' is of numbers, but row {} has 'old'"),
    "a truth value in a column of numbers": ("age", "true", "but row {} has 'true'"),
    "a code in a column of numbers": ("age", "007", "but row {} has '007'"),
    "an integer of 400 digits": ("age", "9" * 400, "but row {} has '999"),
    "infinity": ("age", "inf", "'age', row {}: inf is infinite or too large"),
    "a number too large": ("age", "1e300", "row {}: 1e\\+300 is infinite or too large"),
    "an unseen group": ("sex", "x", "row {} belongs to group 'x'.*known: f; m.*--unseen-group"),
    "a missing group": ("sex", "", "row {} belongs to group 'None', which was not in"),
}

ROWS = [
    refused(f"{what}, {where}", says.format(row), put(column, value, row), n=n)
    for what, (column, value, says) in LATE.items()
    for where, row, n in (("first row", 0, 80), ("last batch", MANY - 1, MANY))
]


def beside_group(frame):
    frame.loc[3, "age"] = "old"
    frame.loc[2, "sex"] = "x"
    return frame


def unclosed(folder):
    new(n=MANY)(folder)
    with (folder / "new.csv").open("a", encoding="utf-8") as file:
        file.write('0.5,30,"f,no\n')


def short(folder):
    new(n=MANY)(folder)
    with (folder / "new.csv").open("a", encoding="utf-8") as file:
        file.write("0.5,30\n")


def typed(name, column, values):
    def arrange(folder):
        frame = people(80, seed=1)
        frame[column] = values(frame)
        frame.to_parquet(folder / name)

    return arrange


PARQUET = ("predict", "model", "new.parquet", "--out", "p.csv")

ROWS += [
    refused("two mistakes", "row 3 has 'old'", beside_group),
    refused("an open quote after the last batch", "a quote is not closed", arrange=unclosed),
    refused("a short row after the last batch", "2 values for 4 columns", arrange=short),
    refused(
        "dates in a column of numbers",
        "'age' is of numbers, but row 0 has",
        run=PARQUET,
        arrange=typed("new.parquet", "age", lambda _: pd.Timestamp("2020-01-01")),
    ),
    refused(
        "words in a Parquet column of numbers",
        "'age' is of numbers, but row 7 has 'old'",
        run=PARQUET,
        arrange=typed(
            "new.parquet", "age", lambda f: ["old" if i == 7 else "30" for i in range(len(f))]
        ),
    ),
    refused(
        "lists in a column of numbers",
        "column 'age' holds values that are not plain",
        run=PARQUET,
        arrange=typed("new.parquet", "age", lambda f: [[1, 2]] * len(f)),
    ),
]


# --- columns ---------------------------------------------------------------------------------

ROWS += [
    refused(
        "a column that is misspelt", "no column 'age'; did you mean 'ages'", renamed(age="ages")
    ),
    refused(
        "a group column that is misspelt",
        "no column 'sex'; did you mean 'sexe'.*give the model the group",
        renamed(sex="sexe"),
    ),
    refused(
        "the model of another table",
        "there is no column 'age'",
        lambda _: pd.DataFrame({"height": range(80), "country": "x"}),
    ),
    *(
        refused(
            f"a column named {name}", f"already has a column '{name}'; rename or", renamed(p=name)
        )
        for name in ("prob_yes", "prob_no", "prediction")
    ),
    works(
        "no label",
        "^80 predictions in p.csv$",
        lambda f: f.drop(columns="y"),
        has_rows(80, width=6),
    ),
    works(
        "labels that are all unknown",
        "80 predictions in p.csv.*80 rows are not measured",
        lambda f: f.assign(y="maybe"),
        has_rows(80),
    ),
    works(
        "one unknown label in the last batch",
        f"{MANY:,} predictions.*1 row is not measured.*overall {MANY - 1:,} ",
        put("y", "maybe"),
        n=MANY,
    ),
    works("missing features", "80 predictions", lambda f: f.assign(age=""), has_rows(80)),
    works("NaN in features", "80 predictions", put("age", "nan", 5), has_rows(80)),
]


# --- sizes -----------------------------------------------------------------------------------


def cut(folder):
    text = (folder / "d.csv").read_text().splitlines()[0]
    (folder / "new.csv").write_text(text + "\n")


def piped(folder):
    """Predict what comes by standard input."""
    new(n=80)(folder)
    content = (folder / "new.csv").read_bytes()
    done = run_process(("predict", "model", "-", "--out", "p.csv"), folder, input=content)
    assert b"80 predictions in p.csv" in done.stdout, done.stderr
    has_rows(80)(folder, "")


def little_memory(folder):
    """Predict 400,000 rows, for which a table in memory took 1 GB."""
    frame = people(20_000, seed=1).assign(remark="a few words of no use to the model")
    for part in range(20):
        frame.to_csv(folder / "new.csv", mode="a", header=part == 0, index=False)
    code = (
        "from equipoise.cli import main\n"
        "main(['predict', 'model', 'new.csv', '--out', 'p.csv'], standalone_mode=False)\n"
        "text = open('/proc/self/status').read()\n"
        "print('MB', int(text.split('VmHWM:')[1].split()[0]) // 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True)
    said = done.stdout.decode()
    assert "400,000 predictions in p.csv" in said
    assert int(said.split("MB")[1]) < 500


ROWS += [
    refused("a header without rows", "new.csv has no rows", arrange=cut),
    refused(
        "a file without anything",
        "new.csv is empty",
        arrange=lambda folder: (folder / "new.csv").touch(),
    ),
    refused(
        "Parquet without rows",
        "new.parquet has no rows",
        run=PARQUET,
        arrange=new(lambda f: f.iloc[:0], name="new.parquet"),
    ),
    works("one row", "^1 prediction in p.csv ", n=1, check=has_rows(1)),
    works("several batches", f"^{MANY:,} predictions in p.csv ", n=MANY, check=has_rows(MANY)),
    Fault(
        "rows by standard input",
        piped,
        "",
        code=0,
        makes=["p.csv", "new.csv"],
        needs_model=True,
    ),
    Fault(
        "more rows than should be held in memory",
        little_memory,
        "",
        code=0,
        makes=["p.csv", "new.csv"],
        needs_model=True,
        marks=[pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")],
    ),
]


# --- models ----------------------------------------------------------------------------------


def halved(folder):
    new()(folder)
    content = (folder / "model").read_bytes()
    (folder / "half").write_bytes(content[: len(content) // 2])


def with_model(name):
    return ("predict", name, "new.csv", "--out", "p.csv")


def three_classes(folder):
    """Train on three labels and three groups, and predict."""
    frame = people(120)
    frame["y"] = [("no", "yes", "maybe")[i % 3] for i in range(120)]
    frame["sex"] = [("f", "m", "x")[i // 3 % 3] for i in range(120)]
    frame.to_csv(folder / "three.csv", index=False)
    known = ("--label", "y", "--group", "sex", "--calibrate", "bcts", "--max-epochs", "1")
    for command in (
        ("train", "three.csv", *known, "--out", "three"),
        ("predict", "three", "three.csv", "--out", "p.csv"),
    ):
        code, said = run_here(command, folder)
        assert code == 0, said
    header, *cells = written(folder)
    assert header[-4:] == ["prob_maybe", "prob_no", "prob_yes", "prediction"]
    assert all(abs(sum(map(float, r[-4:-1])) - 1) < 1e-9 for r in cells)
    assert "overall 120" in " ".join(said.split())


ROWS += [
    refused("CSV in place of a model", "d.csv is not a saved model", run=with_model("d.csv")),
    refused(
        "a calibrator in place of a model",
        "cal.json is not a saved model",
        run=with_model("cal.json"),
    ),
    refused("half a model", "half is not a saved model", run=with_model("half"), arrange=halved),
    refused(
        "an empty model",
        "nothing is not a saved model",
        run=with_model("nothing"),
        arrange=lambda folder: (new()(folder), (folder / "nothing").touch()),
    ),
    refused("no model", "'none' does not exist", run=with_model("none")),
    refused("a folder in place of a model", "is a directory", run=with_model(".")),
    Fault(
        "three labels, three groups, biases",
        three_classes,
        "",
        code=0,
        makes=["p.csv", "three", "three.csv"],
    ),
]


# --- outputs ---------------------------------------------------------------------------------


def linked(folder):
    new()(folder)
    (folder / "link.csv").symlink_to("new.csv")


FORCED = ("predict", "model", "new.csv", "--force", "--out")

ROWS += [
    refused("the output is the input", "new.csv is read by this command", run=(*FORCED, "new.csv")),
    refused("the output is the model", "model is read by this command", run=(*FORCED, "model")),
    refused(
        "the output is a link to the input",
        "link.csv is read by this command",
        run=(*FORCED, "link.csv"),
        arrange=linked,
    ),
    refused("the output exists", "d.csv exists; choose another name", run=(*PREDICT[:4], "d.csv")),
    refused(
        "an ending of no format", "ends in neither .csv nor .parquet", run=(*PREDICT[:4], "p.x")
    ),
    Fault(
        "a mistake in the last batch beside an older output",
        (*FORCED, "p.csv"),
        f"row {MANY - 1} has 'old'",
        arrange=lambda folder: (
            new(put("age", "old"), MANY)(folder),
            (folder / "p.csv").write_text("kept"),
        ),
        needs_model=True,
    ),
]


# --- cells that a spreadsheet would run ------------------------------------------------------

FORMULAS = ["=cmd|'/C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\ry"]
PLAIN = ["-1.5", "+3", "a=b", ""]
APPLY = ("calibrate", "new.csv", "--apply", "cal.json", "--out")


def formulas(folder):
    """Write rows with formulas in a column whose name is one too."""
    frame = people(80, seed=1)
    cells = FORMULAS + PLAIN
    table = [[*frame.columns, "=x"]]
    table += [[*row, cells[i % len(cells)]] for i, row in enumerate(frame.to_numpy().tolist())]
    with (folder / "new.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(table)


def cells_are(expected, header):
    def check(folder, _):
        names, *found = written(folder)
        assert names[4] == header
        assert [row[4] for row in found[: len(expected)]] == expected
        # nothing else is changed
        with (folder / "new.csv").open(newline="", encoding="utf-8") as file:
            assert [row[:4] for row in found] == [row[:4] for row in list(csv.reader(file))[1:]]

    return check


SAFE = cells_are([f"'{cell}" for cell in FORMULAS] + PLAIN, "'=x")
AS_THEY_ARE = cells_are(FORMULAS + PLAIN, "=x")

ROWS += [
    fault
    for name, run in (("predict", PREDICT), ("calibrate", (*APPLY, "p.csv")))
    for fault in (
        works(f"formulas in cells, {name}", "80", check=AS_THEY_ARE, run=run, arrange=formulas),
        works(
            f"formulas in cells, {name} --safe-csv",
            "80",
            check=SAFE,
            run=(*run, "--safe-csv"),
            arrange=formulas,
        ),
        refused(
            f"Parquet, {name} --safe-csv",
            "p.parquet is Parquet.*--safe-csv is for CSV",
            run=(*run[:-1], "p.parquet", "--safe-csv"),
            arrange=formulas,
        ),
    )
]
ROWS += [
    refused(
        "--safe-csv without anything to write",
        "--safe-csv is for --apply",
        run=(
            *("calibrate", "d.csv", "--label", "y", "--prob", "p", "--group", "sex"),
            *("--out", "c.json", "--safe-csv"),
        ),
    ),
    refused(
        "--safe-csv beside --export",
        "--safe-csv is for --apply without --export",
        run=("calibrate", "--apply", "cal.json", "--export", "sql", "--out", "c.sql", "--safe-csv"),
    ),
    Fault(
        "formulas in cells, predict to Parquet",
        ("predict", "model", "new.csv", "--out", "p.parquet"),
        "80 predictions",
        arrange=formulas,
        code=0,
        makes=["p.parquet"],
        check=lambda folder, _: _same_cells(folder),
        needs_model=True,
    ),
]


def _same_cells(folder):
    # as text without spaces around it, null where it is missing
    found = pq.read_table(folder / "p.parquet")["=x"].to_pylist()[: len(FORMULAS + PLAIN)]
    assert found == [cell.strip() or None for cell in FORMULAS + PLAIN]


def a_group_that_is_a_formula(folder):
    """Search with a group named as a formula, which the table of the frontier names."""
    frame = people(160)
    frame["sex"] = ["=f" if v == "f" else "m" for v in frame["sex"]]
    frame.loc[frame.index % 4 > 0, "sex"] = "=f"
    frame.to_csv(folder / "named.csv", index=False)
    quick = ("--n-seeds", "2", "--max-epochs", "2", "--loss", "ce", "--loss", "mmce")
    known = ("--label", "y", "--group", "sex", "--drop", "p", *quick)
    for option, name in ((), "=f"), (("--safe-csv",), "'=f"):
        code, said = run_here(("search", "named.csv", *known, *option, "--out", "found"), folder)
        assert code == 0, said
        frontier = pd.read_csv(folder / "found" / "frontier.csv")
        assert set(frontier["reference_group"]) == {name}
    shutil.rmtree(folder / "found")


ROWS += [
    Fault(
        "a group that is a formula, search",
        a_group_that_is_a_formula,
        "",
        code=0,
        makes=["named.csv"],
    )
]


@rows(ROWS)
def test_fault(fault, tmp_path, prepared):
    check_fault(fault, tmp_path, prepared)
