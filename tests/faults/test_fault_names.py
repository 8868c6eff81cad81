r"""Hostile names from data: control characters, escape sequences, direction marks, rich markup.

Each is text wherever it is printed: groups, labels, columns, models, parts, paths.
"""

import json

import hypothesis.strategies as st
import pandas as pd
import pytest
from fault_harness import Fault, check_fault, check_said, people, rows, run_here
from hypothesis import HealthCheck, given, settings

pytestmark = pytest.mark.slow

HOSTILE = {
    "an escape sequence": "\x1b[2Jgone",
    "a title sequence": "\x1b]0;owned\x07x",
    "a bell and backspaces": "a\x07\x08\x08b",
    "a direction mark": "abc\u202edef",
    "an isolate": "\u2066abc\u2069",
    "a C1 control": "x\x9b31m",
    "a zero-width joiner": "fe\u200dmale",
    "a line separator": "a\u2028b",
    "rich markup": "[bold red]x[/bold red]",
    "a rich link": "[link=http://127.0.0.1]x[/link]",
    "markup that is not closed": "[/]",
    "an emoji code": ":warning:",
    "a tab": "a\tb",
}


def visible(name):
    """Return a name as it must be printed, written independently of the package."""
    return "".join(
        c if c.isprintable() else c.encode("ascii", "backslashreplace").decode() for c in name
    ).replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\x08", "\\x08").replace(
        "\x9b", "\\x9b"
    ).replace("\t", "\\t")  # fmt: skip


def table(name):
    """Return what writes a table with a name in all places."""

    def arrange(folder):
        frame = people(200).rename(columns={"age": f"{name} age"})
        frame["sex"] = frame["sex"].replace({"f": name})
        frame["y"] = frame["y"].replace({"yes": f"yes{name}"})
        frame["month"] = f"m{name}"
        frame.to_parquet(folder / "h.parquet")
        frame.to_csv(folder / "h.csv", index=False)

    return arrange


def has(name):
    """Return a check that a name was printed, as text."""

    def check(_folder, said):
        assert visible(name) in said.replace("\n", ""), said

    return check


LABELS = ("--label", "y", "--prob", "p", "--group", "sex")

FAULTS = [
    Fault(
        f"{what} in {where}",
        command,
        "",
        table(name),
        makes=("o.json", "o"),
        code=code,
        check=has(name),
    )
    for what, name in HOSTILE.items()
    for where, command, code in (
        ("an audit", ["audit", "h.parquet", *LABELS, "--by", "month"], 0),
        (
            "a gate",
            ["audit", "h.parquet", *LABELS, "--fail-if", "ece[*] > 0", "--fail-if", "pe > 0"],
            1,
        ),
        ("a repair", ["calibrate", "h.parquet", *LABELS, "--out", "o.json"], 0),
        (
            "the list of columns",
            ["audit", "h.parquet", "--label", "yy", "--prob", "p", "--group", "sex"],
            2,
        ),
        ("the list of groups", ["audit", "h.parquet", *LABELS, "--reference", "nobody"], 2),
        (
            "the column that is not there",
            ["audit", "d.csv", "--label", f"y{name}", "--prob", "p", "--group", "sex"],
            2,
        ),
        ("a path", ["audit", f"no{name}.csv", *LABELS], 2),
        ("an output", ["audit", "h.parquet", *LABELS, "--json", f"no{name}/o.json"], 2),
        ("an option", ["audit", "h.parquet", *LABELS, "--engine", f"x{name}"], 2),
        ("a gate's text", ["audit", "h.parquet", *LABELS, "--fail-if", f"{name} > 0"], 2),
    )
    # a path cannot be told from its remedy by click where it has these
    if "/" not in name or where not in ("a path", "an output")
] + [
    Fault(
        f"{what} in training",
        ["train", "h.csv", "--label", "y", "--group", "sex", "--max-epochs", "1", "--out", "o"],
        "",
        table(name),
        makes=("o",),
        code=0,
        check=has(name),
    )
    for what, name in HOSTILE.items()
]

LINES = "age\nGate: all pass.csv"


def check_one_line(_folder, said):
    """Refuse a line that a name began."""
    assert not any(line.startswith("Gate") for line in said.splitlines()), said


FAULTS += [
    Fault(
        f"lines in the name of {what} that pretend to be others",
        ["audit", LINES, *LABELS, *options],
        says,
        lambda folder, row=row: (folder / LINES).write_text(f'p,sex,y,"{LINES}"\n{row}\n'),
        check=check_one_line,
    )
    for what, options, row, says in (
        ("a column", ("--weight", "no"), "0.5,f,1,1", r"there are p, sex, y, age\\nGate: all pass"),
        ("a file", (), "0.5,f,1", r"age\\nGate: all pass.csv, line 3: 3 values for 4 columns"),
    )
]


@rows(FAULTS)
def test_fault(fault, tmp_path, prepared):
    check_fault(fault, tmp_path, prepared)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_python_and_notebooks(name):
    """The text and the HTML of a report have no such character either."""
    from equipoise import audit

    frame = people(200)
    group = frame["sex"].replace({"f": f"{name}<img src=x>"})
    report = audit(frame["y"], frame["p"], sensitive_features=group)
    check_said(str(report))
    html = report._repr_html_()
    check_said(html)
    assert "<img" not in html


NO_NAMES = ("nan", "none", "na", "null", "true", "false", "m")
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00/"), min_size=1, max_size=12
).filter(lambda t: t.strip() == t and t.casefold() not in NO_NAMES)


@given(name=NAMES)
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_name_is_printed_as_text(name, tmp_path):
    frame = people(60)
    frame["sex"] = frame["sex"].replace({"f": name})
    pd.DataFrame(frame).to_parquet(tmp_path / "h.parquet")
    code, said = run_here(["audit", "h.parquet", *LABELS, "--json", "o.json", "--force"], tmp_path)
    check_said(said)
    if code == 0:
        (model,) = json.loads((tmp_path / "o.json").read_text("utf-8"))["models"]
        assert name in model["table"]["groups"]
