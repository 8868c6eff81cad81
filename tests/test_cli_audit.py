"""The audit from the command line: files in, figures, gates and exit codes out."""

import datetime
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

import oracle_metrics as oracle
from equipoise.auditing import report_of
from equipoise.cli import main
from equipoise.metrics import METRICS, AuditTable, GroupRates, group_base_rates
from table_data import forge

ROOT = Path(__file__).parents[1]
COLUMNS = ("--label", "y", "--prob", "p", "--group", "sex")
BIN = Path(sys.executable).parent


def table_of(n=600, seed=0, stretch=(1.0, 1.0)):
    """Predictions of a model whose log-odds are stretched in each group."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    log_odds = rng.normal(0.5 * a, 1.5, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)
    p = 1 / (1 + np.exp(-np.array(stretch)[a] * log_odds))
    return pd.DataFrame(
        {
            "y": y,
            "p": p,
            "q": 1 - p,
            "sex": np.array(["f", "m"])[a],
            "race": rng.choice(["x", "y"], n),
            "month": [f"2024-{1 + i * 3 // n:02}" for i in range(n)],
            "decision": (p > 0.3).astype(int),
        }
    )


def thirds(frame):
    return [frame.iloc[i::3] for i in range(3)]


def save(frame, path):
    path = Path(path)
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


def invoke(*arguments):
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def run(*arguments, code=0):
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def refused(*arguments):
    """The message of a command that must fail with 2 and leave nothing behind."""
    before = sorted(Path().rglob("*"))
    shown = run(*arguments, code=2)
    assert sorted(Path().rglob("*")) == before
    return " ".join(shown.split())


def figures(*arguments, code=0):
    """What --json holds."""
    run(*arguments, "--json", "out.json", "--force", code=code)
    return json.loads(Path("out.json").read_text(), parse_constant=refuse_constant)


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data():
    frame = table_of()
    save(frame, "p.csv")
    return frame


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def pe_of(model):
    return model["proportional_equality"]["stochastic"]["value"]


def check_figures(model, frame, y="y", prob="p", group=("sex",), n_bins=15):
    """Compare all figures of a model with plain loops."""
    labels, p = frame[y].tolist(), frame[prob].to_numpy().tolist()
    for name in METRICS:
        function = getattr(oracle, name)
        bins = {"n_bins": n_bins} if "ece" in name or name == "mce" else {}
        close(model["overall"][name]["value"], function(labels, p, **bins))
    own = {tuple(np.atleast_1d(g["group"]).tolist()): g for g in model["groups"]}
    expected = {k if isinstance(k, tuple) else (k,): v for k, v in frame.groupby(list(group))}
    assert own.keys() == expected.keys()
    for key, rows in expected.items():
        close(
            own[key]["metrics"]["ece"]["value"],
            oracle.ece(rows[y].tolist(), rows[prob].to_numpy().tolist()),
        )


# --- figures ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "engine"),
    [
        ("p.csv", "duckdb"),
        ("p.csv", "polars"),
        ("p.parquet", "duckdb"),
        ("parts", "polars"),
        ("parts/*.parquet", "duckdb"),
    ],
)
def test_same_figures_from_any_file(data, source, engine):
    save(data, "p.parquet")
    for i, part in enumerate(thirds(data)):
        save(part, f"parts/{i}.parquet")
    found = figures(source, *COLUMNS, "--engine", engine)
    (model,) = found["models"]
    assert model["model"] is None
    check_figures(model, data)
    table = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=data["sex"])
    assert AuditTable.from_dict(model["table"]) == table


def test_several_groups_classes_and_bins(data):
    model = figures("p.csv", *COLUMNS, "--group", "race", "--bins", 7)["models"][0]
    assert [g["group"] for g in model["groups"]] == [["f", "x"], ["f", "y"], ["m", "x"], ["m", "y"]]
    close(model["overall"]["ece"]["value"], oracle.ece(data["y"], data["p"], n_bins=7))
    # one column for each class, in any order
    both = ["--label", "y", "--group", "sex", "--prob", "p", "--prob", "q"]
    one = figures("p.csv", *both, "--labels", "1,0")["models"][0]
    two = figures("p.csv", *both, "--labels", "1", "--labels", "0")["models"][0]
    close(one["overall"]["ece"]["value"], oracle.ece(data["y"], data["p"]))
    assert one == two
    # labels as words, the positive one first in sorted order
    data["y"] = np.where(data["y"] == 1, "bad", "good")
    save(data, "words.csv")
    words = figures("words.csv", *COLUMNS, "--labels", "good,bad")["models"][0]
    close(words["overall"]["log_loss"]["value"], one["overall"]["log_loss"]["value"])


def test_decisions_made_elsewhere(data):
    model = figures("p.csv", *COLUMNS, "--pred", "decision")["models"][0]
    close(model["overall"]["accuracy"]["value"], (data["decision"] == data["y"]).mean())
    close(model["overall"]["ece"]["value"], oracle.ece(data["y"], data["p"]))


def test_weights_and_clusters(data):
    rng = np.random.default_rng(4)
    frame = data.assign(w=rng.random(len(data)), person=rng.integers(0, 60, len(data)))
    save(frame, "all.parquet")
    given = (*COLUMNS, "--weight", "w", "--cluster", "person")
    found = figures("all.parquet", *given)
    table = AuditTable.from_dict(found["models"][0]["table"])
    want = AuditTable.from_arrays(
        frame.y,
        frame.p,
        sensitive_features=frame.sex,
        sample_weight=frame.w,
        clusters=frame.person,
    )
    assert (found["columns"]["weight"], found["columns"]["cluster"]) == ("w", "person")
    assert (table.weighted, table.clustered) == (True, True)
    for name in want.sums:
        np.testing.assert_allclose(table[name], want[name], rtol=1e-9, atol=1e-12)
    for i, half in enumerate((frame[frame.person < 30], frame[frame.person >= 30])):
        run(save(half, f"{i}.parquet"), *given, "--json", f"{i}.json")
    assert "--disjoint-clusters if no cluster is in two files" in refused(
        "--merge", "0.json", "1.json"
    )
    merged = figures("--merge", "0.json", "1.json", "--disjoint-clusters")
    again = AuditTable.from_dict(merged["models"][0]["table"])
    for name in want.sums:
        np.testing.assert_allclose(again[name], want[name], rtol=1e-9, atol=1e-12)
    assert "--disjoint-clusters is for --merge" in refused(
        "0.parquet", *given, "--disjoint-clusters"
    )
    assert "--weight is for predictions" in refused("--merge", "0.json", "--weight", "w")
    assert "column 'w' is negative in 1 row" in refused(
        save(frame.assign(w=[-1, *frame.w[1:]]), "bad.csv"), *given
    )


def test_training_labels(data):
    training = table_of(500, seed=5).rename(columns={"y": "outcome"})
    training["sex"] = training["sex"].where(training.index % 9 > 0, "unknown")  # one group more
    save(training, "train.parquet")
    options = ("--train", "train.parquet", "--train-label", "outcome")
    model = figures("p.csv", *COLUMNS, *options, "--reference", "f")["models"][0]
    rate = training.groupby("sex")["outcome"].mean()
    mean = data.groupby("sex")["p"].mean()
    expected = max(
        abs(rate["m"] / rate["f"] - mean["m"] / mean["f"]),
        abs((1 - rate["m"]) / (1 - rate["f"]) - (1 - mean["m"]) / (1 - mean["f"])),
    )
    close(pe_of(model), expected)
    # the other way round, which is the default: m has more rows
    assert (data["sex"] == "m").sum() > (data["sex"] == "f").sum()
    other = figures("p.csv", *COLUMNS, *options)["models"][0]
    assert (model["reference_group"], other["reference_group"]) == ("f", "m")
    expected = max(
        abs(rate["f"] / rate["m"] - mean["f"] / mean["m"]),
        abs((1 - rate["f"]) / (1 - rate["m"]) - (1 - mean["f"]) / (1 - mean["m"])),
    )
    close(pe_of(other), expected)
    # the sampling error of the training labels counts: four times the rows, half the error
    save(pd.concat([training] * 4), "more.parquet")
    many = figures("p.csv", *COLUMNS, "--train", "more.parquet", *options[2:])["models"][0]
    for kind in ("stochastic", "deterministic"):
        for a, b in zip(*(m["amplification"][kind] for m in (other, many)), strict=True):
            close(a["value"], b["value"])
            assert a["low"] < b["low"] < b["high"] < a["high"]
    rates = group_base_rates(training["outcome"], sensitive_features=training["sex"], labels=[0, 1])
    known = {g: rates.counts[g] for g in "fm"}
    table = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=data["sex"])
    alone = report_of(table, base_rates=GroupRates.of_counts(known)).amplification
    for kind, found in alone.items():
        for a in other["amplification"][kind]:
            expected = found[a["group"]][a["label"]]
            close((a["low"], a["high"]), (expected.low, expected.high))
    save(training[training["sex"] == "f"], "women.csv")
    said = refused("p.csv", *COLUMNS, "--train", "women.csv", "--train-label", "outcome")
    assert "training labels have no rows of group 'm'" in said
    assert "did you mean 'outcome'" in refused(
        "p.csv", *COLUMNS, "--train", "train.parquet", "--train-label", "outcom"
    )
    assert "--train-label is for --train" in refused("p.csv", *COLUMNS, "--train-label", "y")


@pytest.mark.usefixtures("data")
def test_the_reference_group():
    assert "600 rows, 2 groups (reference: m), 2 classes" in run("p.csv", *COLUMNS)
    shown = run("p.csv", *COLUMNS, "--reference", "f")
    assert "2 groups (reference: f)" in shown
    assert "compared with 'f'" in " ".join(shown.split())
    both = ("--group", "race", "--reference")
    assert "4 groups (reference: f, y)" in run("p.csv", *COLUMNS, *both, "f, y")
    assert "(reference: every other)" in run("p.csv", *COLUMNS, *both, "all")
    said = refused("p.csv", *COLUMNS, "--reference", "x")
    assert "reference group: there is no group 'x'" in said
    run("p.csv", *COLUMNS, "--json", "a.json")
    assert "(reference: f)" in run("--merge", "a.json", "--reference", "f")
    assert "(reference: m)" in run("--merge", "a.json")


def test_several_models(data):
    other = table_of(stretch=(1.0, 3.0))
    save(other, "stretched.csv")
    shown = run("p.csv", "stretched.csv", *COLUMNS)
    assert re.search(r"^ *model .*ECE", shown, re.MULTILINE)
    found = figures("p.csv", "stretched.csv", *COLUMNS)["models"]
    assert [m["model"] for m in found] == ["p", "stretched"]
    check_figures(found[0], data)
    check_figures(found[1], other)
    # the same from a column
    both = pd.concat([data.assign(by="p"), other.assign(by="stretched")])
    save(both.sample(frac=1, random_state=0), "both.csv")
    again = figures("both.csv", *COLUMNS, "--model", "by")["models"]
    assert [m["model"] for m in again] == ["p", "stretched"]
    for now, before in zip(again, found, strict=True):
        assert now["table"] == before["table"]
        for name, figure in before["overall"].items():
            assert now["overall"][name]["value"] == figure["value"]
            # scipy.special takes over once it is worth its import, and rounds differently
            assert now["overall"][name]["interval"] == pytest.approx(figure["interval"], rel=1e-9)
    # names that are the same get their folders
    save(data, "old/p.csv")
    found = figures("p.csv", "old/p.csv", *COLUMNS)["models"]
    assert [m["model"] for m in found] == ["p.csv", "old/p.csv"]
    assert "given twice" in refused("p.csv", "p.csv", *COLUMNS)
    assert "--model goes with one" in refused("p.csv", "stretched.csv", *COLUMNS, "--model", "by")
    names = [save(data[:20], f"part{i}.csv") for i in range(21)]
    assert "put the pattern in quotes" in refused(*names, *COLUMNS)


def test_over_time(data):
    shown = run("p.csv", *COLUMNS, "--by", "month")
    for month, rows in data.groupby("month"):
        assert re.search(rf"^ *{month} +{len(rows)} ", shown, re.MULTILINE)
    (model,) = figures("p.csv", *COLUMNS, "--by", "month")["models"]
    check_figures(model, data)
    assert [p["key"] for p in model["by"]] == [["2024-01"], ["2024-02"], ["2024-03"]]
    for part, (_, rows) in zip(model["by"], data.groupby("month"), strict=True):
        check_figures(part["report"], rows)
        # alone the same rows have narrower intervals
        save(rows, "month.csv")
        (alone,) = figures("month.csv", *COLUMNS, "--reference", "m")["models"]
        for own, other in zip(part["report"]["groups"], alone["groups"], strict=True):
            (low, high), inner = (g["metrics"]["accuracy"]["interval"] for g in (own, other))
            assert low < inner[0] < inner[1] < high


def test_parts_name_the_groups_that_fail():
    frame = table_of(9_000)
    wrong = (frame["month"] == "2024-02") & (frame["sex"] == "f")
    frame.loc[wrong, "p"] = table_of(9_000, stretch=(5.0, 5.0)).loc[wrong, "p"]
    save(frame, "p.csv")
    shown = run("p.csv", *COLUMNS, "--by", "month")
    table = shown[shown.index("By month") :]
    assert re.search(r"^ *month .* miscal\. *$", table, re.MULTILINE)
    for month, names in (("2024-01", "none"), ("2024-02", "f"), ("2024-03", "none")):
        assert re.search(rf"^{month} .* {names} *$", table, re.MULTILINE)
    gates = ("--fail-if", "miscalibrated", "--by", "month")
    said = stderr_of("p.csv", *COLUMNS, *gates, code=1)
    assert "miscalibrated[f] at 2024-02 fails" in said
    assert "[m]" not in said


def test_timestamps_are_cut(data):
    times = pd.date_range("2024-01-15", periods=len(data), freq="3h")
    for path in ("all.csv", "all.parquet"):
        save(data.assign(ts=times), path)
        found = figures(path, *COLUMNS, "--by", "ts:month")
        keys = [part["key"] for part in found["models"][0]["by"]]
        assert keys == [["2024-01"], ["2024-02"], ["2024-03"]]
    assert "cut them to periods with --by ts:month" in refused(path, *COLUMNS, "--by", "ts")
    assert "'decade' is no period" in refused(path, *COLUMNS, "--by", "ts:decade")


def test_a_part_without_the_reference_group(data):
    data.loc[data["month"] == "2024-02", "sex"] = "m"
    data.loc[data["month"] == "2024-03", "sex"] = "n"
    save(data, "p.csv")
    found = figures("p.csv", *COLUMNS, "--by", "month")["models"][0]["by"]
    assert [pe_of(p["report"]) is None for p in found] == [
        0,
        1,
        1,
    ]
    shown = run("p.csv", *COLUMNS, "--by", "month", "--fail-if", "pe > 9", code=1)
    assert "pe at 2024-02 > 9 fails" in shown


def test_lines_fit_the_screen(data):
    data["race"] = np.where(data["race"] == "x", "a group with quite a long name", "other")
    save(data, "a_model_with_quite_a_long_name_of_its_own.csv")
    shown = run(
        "p.csv",
        "a_model_with_quite_a_long_name_of_its_own.csv",
        *COLUMNS,
        "--group",
        "race",
        "--by",
        "month",
    )
    assert max(map(len, shown.splitlines())) <= 80


# --- gates -----------------------------------------------------------------------------------


def stderr_of(*arguments, code):
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    return result.stderr


def test_exit_codes(data):
    ece = oracle.ece(data["y"], data["p"])
    over, under = f"ece > {ece - 1e-6}", f"ece > {ece + 1e-6}"
    assert "Gate" not in stderr_of("p.csv", *COLUMNS, "--fail-if", under, code=0)
    said = stderr_of("p.csv", *COLUMNS, "--fail-if", under, "--fail-if", over, code=1)
    assert said.count("fails") == 1
    assert re.search(rf"ece > {ece - 1e-6:g} fails: {ece:.4f}.*\[\d\.\d+, \d\.\d+\]", said)
    worst = {g: oracle.ece(r["y"].tolist(), r["p"].tolist()) for g, r in data.groupby("sex")}
    limit = sum(worst.values()) / 2
    failing = max(worst, key=worst.get)
    said = stderr_of("p.csv", *COLUMNS, "--fail-if", f"ece[*] > {limit}", code=1)
    assert f"ece[{failing}] > " in said
    assert said.count("fails") == 1
    run("p.csv", *COLUMNS, "--fail-if", f"ece[{failing}] > {limit}", code=1)
    run("p.csv", *COLUMNS, "--fail-if", f"rows[{failing}] < 10", "--fail-if", "dropped > 0")
    run("p.csv", *COLUMNS, "--fail-if", "rows < 601", code=1)


def test_strict_and_lenient(data):
    low, high = figures("p.csv", *COLUMNS)["models"][0]["overall"]["accuracy"]["interval"]
    assert low < (data["y"] == (data["p"] > 0.5)).mean() < high
    middle, below, above = (low + high) / 2, low - 0.01, high + 0.01
    for limit, strict, lenient in ((below, 0, 0), (middle, 1, 0), (above, 1, 1)):
        gate = ("--fail-if", f"accuracy < {limit}", "--on-interval")
        run("p.csv", *COLUMNS, *gate, "strict", code=strict)
        run("p.csv", *COLUMNS, *gate, "lenient", code=lenient)


def test_verdicts_as_gates():
    save(table_of(20_000, stretch=(1.0, 3.0)), "p.parquet")
    said = stderr_of("p.parquet", *COLUMNS, "--fail-if", "miscalibrated", code=1)
    assert "miscalibrated[m] fails" in said
    assert "miscalibrated[f]" not in said
    run("p.parquet", *COLUMNS, "--fail-if", "miscalibrated[f]")
    save(table_of(20_000), "q.parquet")
    run("q.parquet", *COLUMNS, "--fail-if", "miscalibrated", "--on-interval", "strict")
    # the model keeps the ratio of the groups' rates, and 20,000 rows show it
    run("q.parquet", *COLUMNS, "--fail-if", "amplifies")
    run("q.parquet", *COLUMNS, "--fail-if", "amplifies", "--on-interval", "strict")
    # 60 rows show nothing
    save(table_of(60), "few.csv")
    run("few.csv", *COLUMNS, "--fail-if", "miscalibrated")
    run("few.csv", *COLUMNS, "--fail-if", "miscalibrated", "--on-interval", "strict", code=1)
    for name in ("amplifies", "amplifies_deterministic"):
        run("few.csv", *COLUMNS, "--fail-if", name)
        run("few.csv", *COLUMNS, "--fail-if", name, "--on-interval", "lenient")
        said = stderr_of("few.csv", *COLUMNS, "--fail-if", name, "--on-interval", "strict", code=1)
        assert "do not show that no ratio grows by more than a factor of 1.25" in " ".join(
            said.split()
        )


def test_gates_of_models_and_parts():
    save(table_of(), "good.csv")
    save(table_of(stretch=(4.0, 4.0)), "bad.csv")
    said = stderr_of("good.csv", "bad.csv", *COLUMNS, "--fail-if", "ece > 0.1", code=1)
    assert "bad: ece > 0.1 fails" in said
    assert "good: " not in said
    mixed = table_of()
    mixed.loc[mixed["month"] == "2024-03", "p"] = table_of(stretch=(4.0, 4.0))["p"]
    save(mixed, "mixed.csv")
    said = stderr_of("mixed.csv", *COLUMNS, "--by", "month", "--fail-if", "ece > 0.12", code=1)
    line = next(line for line in said.splitlines() if "fails" in line)
    assert line.startswith("Gate: ece at 2024-03 > 0.12 fails")


@pytest.mark.usefixtures("data")
def test_a_gate_that_is_wrong():
    said = refused("nothing.csv", *COLUMNS, "--fail-if", "ecce > 0.05")
    assert "did you mean 'ece'" in said  # before the file is looked for
    said = refused("p.csv", *COLUMNS, "--fail-if", "ece[F] > 0.05", "--json", "o.json")
    assert "there is no group 'F'" in said
    assert "there are f; m" in said
    assert "reference group: there is no group 'x'" in refused(
        "p.csv", *COLUMNS, "--reference", "x"
    )
    assert "it is empty; give values" in refused("p.csv", *COLUMNS, "--labels", "")


def test_one_group_only(data):
    save(data[data["sex"] == "f"], "women.csv")
    model = figures("women.csv", *COLUMNS)["models"][0]
    assert pe_of(model) is None
    run("women.csv", *COLUMNS, "--fail-if", "ece > 0.9")
    said = stderr_of("women.csv", *COLUMNS, "--fail-if", "pe > 0.9", code=1)
    assert "there is one group only" in said


@pytest.mark.slow
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("code", [0, 1])
def test_a_reader_that_leaves_keeps_the_exit_code(code):
    command = [BIN / "equipoise", "audit", "p.csv", *COLUMNS, "--fail-if", f"ece > {1 - code}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == code
    assert "Traceback" not in said
    assert ("fails" in said) == bool(code)


# --- the documentation -----------------------------------------------------------------------


def shell(script):
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False
    )


def docs(kind):
    text = (ROOT / "docs" / "audit.md").read_text()
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def words(block):
    """The arguments of each command of a block."""
    for line in block.replace("\\\n", " ").splitlines():
        name, command, *arguments = shlex.split(line)
        assert (name, command) == ("equipoise", "audit")
        yield arguments


@pytest.mark.slow
def test_commands_of_the_documentation(data):
    save(data, "predictions.csv")
    for name in ("before", "after", "part1"):
        save(data, f"{name}.csv")
    save(data.iloc[::-1], "part2.csv")  # other bytes: the same file twice would be refused
    single, several, script, workers = docs("sh")
    for block in (single, several, workers):
        for arguments in words(block):
            shown = run(*arguments)
    assert f"{2 * len(data):,} rows" in shown
    # a gate in a shell script
    assert shell(script).stdout.endswith("release\n")
    save(table_of(stretch=(4.0, 4.0)), "predictions.csv")
    result = shell(script)
    assert result.stdout.endswith("hold back\n")
    assert "ece[f] > 0.1 fails" in result.stderr


@pytest.mark.slow
def test_github_action():
    (block,) = docs("yaml")
    steps = yaml.safe_load(block)["jobs"]["audit"]["steps"]
    (command,) = [s["run"] for s in steps if "equipoise audit" in s.get("run", "")]
    save(table_of(5000, seed=4), "predictions.csv")
    save(table_of(5000, seed=3), "train.csv")
    result = shell(command)
    assert result.returncode == 0, result.stderr
    assert json.loads(Path("audit.json").read_text())["format"] == "equipoise.Audit/2"
    (arguments,) = words(command)
    assert "exists" in refused(*arguments)
    save(table_of(5000, stretch=(4.0, 4.0)), "predictions.csv")
    assert "ece[f] > 0.1 fails" in run(*arguments, "--force", code=1)


# --- files of figures ------------------------------------------------------------------------


@pytest.mark.usefixtures("data")
def test_json_is_whole_or_not_there():
    run("p.csv", *COLUMNS, "--json", "o.json", "--fail-if", "ece > 0", code=1)
    found = json.loads(Path("o.json").read_text(), parse_constant=refuse_constant)
    assert found["gates"][0]["holds"] is False
    assert found["gates"][0]["gate"] == "ece > 0"
    assert "'--json': o.json exists" in refused("p.csv", *COLUMNS, "--json", "o.json")
    run("p.csv", *COLUMNS, "--json", "o.json", "--force")
    assert "read by this command" in refused("p.csv", *COLUMNS, "--json", "p.csv", "--force")
    assert "there is no folder" in refused("p.csv", *COLUMNS, "--json", "no/o.json")
    assert not list(Path().glob("*.tmp"))


def test_infinite_figures_are_strict_json(data):
    data.loc[0, ["y", "p"]] = 1, 0.0
    save(data, "p.csv")
    model = figures("p.csv", *COLUMNS, "--fail-if", "log_loss > 5", code=1)["models"][0]
    assert model["overall"]["log_loss"]["value"] == "inf"


def anywhere(found):
    """Return figures without the names of their files."""
    for model in found["models"]:
        del model["sources"]
    del found["sha256"]
    return found


@pytest.mark.parametrize("by", [(), ("--by", "month")])
def test_merge_is_the_audit_of_all_rows(data, by):
    importlib.import_module("scipy.special")  # an audit that spares it differs in the last digits
    whole = anywhere(figures("p.csv", *COLUMNS, *by))
    shown = run("p.csv", *COLUMNS, *by)
    Path("w").mkdir()
    for i, part in enumerate(thirds(data)):
        save(part, f"part{i}.csv")
        run(f"part{i}.csv", *COLUMNS, *by, "--json", f"w/{i}.json")
    sources = ["w/0.json", "w/2.json", "w/1.json"]
    assert anywhere(figures("--merge", *sources)) == whole
    assert anywhere(figures("--merge", "w")) == whole
    assert anywhere(figures("--merge", "w/*.json")) == whole
    assert run("--merge", *sources) == shown
    Path("out.json").rename("w/all.json")
    # a merged file merges again, and what a pattern finds is never written over
    assert "read by this command" in refused(
        "--merge", *sources, "w/all.json", "--json", "w/all.json", "--force"
    )
    assert "0.json and w/all.json were made from the same rows (part0.csv)" in refused(
        "--merge", "w"
    )
    assert "rows would count twice" in refused("--merge", "w/0.json", "w/../w/0.json")


def test_each_model_counts_its_own_rows_left_out():
    rows = ["y,p,sex,m", "1,0.5,a,A", "0,,b,A", "0,0.4,b,B", "1,0.4,a,B", "1,,a,B", "0,,b,"]
    name = csv_of("\n".join(rows) + "\n")
    said = run(name, *COLUMNS, "--model", "m", "--drop-missing", "--fail-if", "dropped > 1", code=0)
    assert "1 of the rows left out belong to no model" in said
    assert said.count("1 row left out") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_merge_models_and_rates():
    save(table_of(seed=1), "q.csv")
    save(table_of(500, seed=5), "train.csv")
    run("p.csv", "q.csv", *COLUMNS, "--train", "train.csv", "--json", "0.json")
    Path("more").mkdir()
    for name in ("p.csv", "q.csv"):  # the same rows in another order
        pd.read_csv(name).iloc[::-1].to_csv(f"more/{name}", index=False)
    more = ["more/p.csv", "more/q.csv", *COLUMNS]
    run(*more, "--train", "train.csv", "--json", "1.json")
    once = figures("p.csv", "q.csv", *COLUMNS, "--train", "train.csv")["models"]
    twice = figures("--merge", "0.json", "1.json")["models"]
    assert [m["model"] for m in twice] == ["p", "q"]
    for one, two in zip(once, twice, strict=True):
        for name in ("accuracy", "ece", "brier"):
            close(one["overall"][name]["value"], two["overall"][name]["value"])
        close(pe_of(one), pe_of(two))
        assert two["reference_group"] == one["reference_group"]
        assert two["table"]["sums"]["rows"] == [2 * n for n in one["table"]["sums"]["rows"]]
    run(*more, "--json", "2.json")
    assert "its rates of training labels differ" in refused("--merge", "0.json", "2.json")
    # a file keeps the number of training rows, whose error counts
    alone = figures("--merge", "0.json")["models"]
    assert [m["amplification"] for m in alone] == [m["amplification"] for m in once]
    again = figures("--merge", "0.json", "2.json", "--train", "train.csv")["models"]
    close(pe_of(again[0]), pe_of(once[0]))


def test_merge_tables_of_python(data):
    for i, part in enumerate(thirds(data)):
        table = AuditTable.from_arrays(part["y"], part["p"], sensitive_features=part["sex"])
        Path(f"{i}.json").write_text(json.dumps(table.to_dict()))
    model = figures("--merge", "0.json", "1.json", "2.json")["models"][0]
    check_figures(model, data)


def test_merge_groups_of_different_kinds(data):
    data["sex"] = np.where(data["sex"] == "f", 9, 10)
    save(data, "p.csv")
    run("p.csv", *COLUMNS, "--json", "0.json")
    data["sex"] = data["sex"].astype(str).where(data.index % 5 > 0, "unknown")
    save(data, "q.csv")
    run("q.csv", *COLUMNS, "--json", "1.json")
    found = figures("--merge", "0.json", "1.json")["models"][0]
    assert [g["group"] for g in found["groups"]] == ["10", "9", "unknown"]
    both = data["sex"].value_counts()
    first = pd.read_csv("p.csv")["sex"].value_counts()
    rows = [first[10] + both["10"], first[9] + both["9"], both["unknown"]]
    assert [g["rows"] for g in found["groups"]] == rows


def test_merge_refuses(data):
    save(data.assign(y2=data["y"]), "p.csv")
    run("p.csv", *COLUMNS, "--json", "a.json")
    whole = Path("a.json").read_text()
    Path("half.json").write_text(whole[: len(whole) // 2])
    Path("other.json").write_text('{"format": "other"}')
    Path("list.json").write_text("[1]")
    Path("bytes.json").write_bytes(b"\xff\xfe")
    forge("a.json", lambda d: d["models"][0]["table"]["sums"].pop("rows"), to="broken.json")
    forge("a.json", lambda d: d.update(models=[]), to="empty.json")
    forge("a.json", lambda d: d.update(models=[None]), to="null.json")
    for name, message in {
        "half.json": "half.json: it cannot be read as JSON",
        "bytes.json": "cannot be read as JSON (it is not UTF-8 text)",
        "other.json": "is not what `equipoise audit --json`",
        "list.json": "it holds a list, not an object",
        "broken.json": "broken.json: damaged audit table",
        "empty.json": "holds no tables",
        "null.json": "null.json: a model is not a table of figures",
        "none.json": "there is no file none.json",
        "p.csv": "cannot be read as JSON",
    }.items():
        assert message in refused("--merge", "a.json", name)
    save(data.assign(y2=data["y"]).iloc[::-1], "p.csv")
    run("p.csv", *COLUMNS, "--bins", 7, "--json", "b.json")
    assert "b.json: has n_bins 7" in refused("--merge", "a.json", "b.json")
    run("p.csv", *COLUMNS, "--by", "month", "--json", "c.json")
    assert "c.json: is split by month" in refused("--merge", "a.json", "c.json")
    run("p.csv", *COLUMNS, "--group", "race", "--json", "d.json")
    assert "d.json: group is sex, race, in others sex" in refused("--merge", "a.json", "d.json")
    run("p.csv", *COLUMNS, "--pred", "y2", "--json", "f.json")
    assert "f.json: pred is y2, in others nothing" in refused("--merge", "a.json", "f.json")
    data["y"] = data["y"].map({0: "no", 1: "yes"})
    save(data, "words.csv")
    run("words.csv", *COLUMNS, "--json", "e.json")
    assert "same --labels" in refused("--merge", "a.json", "e.json")
    for option in (["--label", "y"], ["--bins", 15], ["--drop-missing"]):
        assert f"{option[0]} is for predictions" in refused("--merge", "a.json", *option)
    table = AuditTable.from_arrays(
        [0, 1], [0.2, 0.7], sensitive_features=["a", "b"], blocks=["bins"]
    )
    Path("bins.json").write_text(json.dumps(table.to_dict()))
    assert "fill it with all blocks" in refused("--merge", "bins.json")


# --- bad input -------------------------------------------------------------------------------


def csv_of(text, name="bad.csv"):
    Path(name).write_text(text)
    return name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--label", "Y", "--prob", "p", "--group", "sex"), "no column 'Y'"),
        (("--label", "y", "--prob", "prob", "--group", "sex"), "no column 'prob'"),
        (("--label", "y", "--prob", "p", "--group", "sexx"), "did you mean 'sex'"),
        ((*COLUMNS, "--by", "mnth"), "did you mean 'month'"),
        ((*COLUMNS, "--model", "modell"), "no column 'modell'"),
        ((*COLUMNS, "--pred", "decisions"), "did you mean 'decision'"),
        ((*COLUMNS, "--prob", "p"), "'p' is named twice"),
        (("--label", "y", "--prob", "p"), "an audit needs --group"),
        ((), "an audit needs --label and --prob and --group"),
        ((*COLUMNS, "--labels", "0,1,2"), "0"),
        ((*COLUMNS, "--labels", "5,6"), "--labels"),
        ((*COLUMNS, "--bins", "0"), "--bins"),
        ((*COLUMNS, "--level", "95"), "--level"),
        ((*COLUMNS, "--tolerance", "-1"), "--tolerance"),
        ((*COLUMNS, "--engine", "sql"), "--engine"),
        ((*COLUMNS, "--on-interval", "never"), "--on-interval"),
        ((*COLUMNS, "--prob", "month"), "month"),
        (("--label", "y", "--prob", "sex", "--group", "race"), "sex"),
    ],
)
@pytest.mark.usefixtures("data")
def test_wrong_options(arguments, message):
    assert message in refused("p.csv", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "kind", "engine"),
    [("y", "csv", "polars"), ("p", "parquet", "duckdb"), ("p", "csv", "duckdb"),
     ("sex", "csv", "duckdb"), ("sex", "parquet", "polars"), ("month", "csv", "duckdb")],
)  # fmt: skip
def test_missing_values(data, column, kind, engine):
    options = (*COLUMNS, "--by", "month", "--engine", engine)
    whole = data.drop([3, 7])
    data[column] = data[column].where(~data.index.isin([3, 7]))
    bad = save(data, f"bad.{kind}")
    said = refused(bad, *options)
    assert f"column {column!r} has no value in 2 rows" in said
    assert "--drop-missing" in said
    found = figures(bad, *options, "--drop-missing", "--fail-if", "dropped > 1", code=1)
    (model,) = found["models"]
    assert model["dropped"] == 2
    check_figures(model, whole)
    assert "2 rows left out" in run(bad, *options, "--drop-missing")


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_wrong_values(data, engine):
    options = (*COLUMNS, "--engine", engine)
    data.loc[5, "p"] = 1.5
    save(data, "bad.csv")
    said = refused("bad.csv", *options)
    assert "1.5" in said
    assert "0..1" in said
    data.loc[5, "p"] = 0.5
    data["q"] = 0.7
    save(data, "bad.csv")
    assert "sum" in refused(
        "bad.csv", "--label", "y", "--group", "sex", "--prob", "p", "--prob", "q"
    )
    data["p"] = data["p"].astype(str).where(data.index != 8, "lots")
    save(data, "bad.csv")
    said = refused("bad.csv", *options)
    assert "column 'p' is not a number in 1 row" in said
    assert "lots" in said
    said = refused("p.csv", *options, "--labels", "0,5")
    assert "--labels" in said
    assert "5" in said


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_damaged_files(data, engine):
    options = (*COLUMNS, "--engine", engine)
    Path("empty.csv").touch()
    Path("empty.parquet").touch()
    csv_of("y,p,sex\n", "header.csv")
    save(data[:0], "header.parquet")
    content = save(data, "whole.parquet").read_bytes()
    Path("half.parquet").write_bytes(content[: len(content) // 2])
    Path("noise.parquet").write_bytes(b"PAR1" + bytes(range(256)) * 4 + b"PAR1")
    csv_of("y,p,sex\n0,0.5\n1,0.5,f\n", "short.csv")
    csv_of("y,p,p,sex\n0,0.5,0.5,f\n1,0.4,0.4,f\n", "twice.csv")
    Path("folder").mkdir()
    save(data, "p.txt.xlsx.csv").rename("p.xlsx")
    for name in (
        "empty.csv", "empty.parquet", "header.csv", "header.parquet", "half.parquet",
        "noise.parquet", "short.csv", "twice.csv", "folder", "nowhere.csv", "no*.csv", "p.xlsx",
    ):  # fmt: skip
        said = refused(name, *options)
        assert name.split(".")[0].split("*")[0] in said, said
        assert len(said) < 600, said


def test_types_that_are_no_groups(data):
    n = len(data)
    base = {"y": data["y"].tolist(), "p": data["p"].tolist()}
    for values in (
        [datetime.date(2024, 1, 1)] * n,
        [[1, 2]] * n,
        [{"a": 1}] * n,
        [b"\xff"] * n,
    ):
        pq.write_table(pa.table({**base, "sex": values}), "odd.parquet")
        assert "sex" in refused("odd.parquet", *COLUMNS)


def test_names_that_break_things(data):
    names = np.array(
        ["<script>alert(1)</script>", "a, b", "two\nlines", '"x"', "[bold]", "\x1b[31m"]
    )
    data["sex"] = names[np.arange(len(data)) % 6]
    for kind in ("csv", "parquet"):
        save(data, f"odd.{kind}")
        model = figures(f"odd.{kind}", *COLUMNS)["models"][0]
        assert sorted(g["group"] for g in model["groups"]) == sorted(names.tolist())
        shown = run(
            f"odd.{kind}",
            *COLUMNS,
            "--fail-if",
            'ece["a, b"] > 0',
            "--fail-if",
            "ece[*] > 0",
            code=1,
        )
        assert "\x1b" not in shown
        assert "ece[two\\nlines] > 0 fails" in shown
        assert "ece[a, b] > 0 fails" in shown
    run("odd.csv", *COLUMNS, "--reference", "<script>alert(1)</script>")


def test_too_many_groups():
    n = 100_000
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.integers(0, 2, n), "p": rng.random(n), "sex": np.arange(n)})
    save(frame, "many.parquet")
    said = refused("many.parquet", *COLUMNS)
    assert "10,000" in said
    assert len(said) < 600


@pytest.mark.usefixtures("data")
def test_real_command_exits_with_2_and_one_line():
    result = shell("equipoise audit p.csv --label y --prob p --group gender")
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "no column 'gender'" in result.stderr
    assert result.stdout == ""
    result = shell("equipoise audit p.csv --label y --prob p --group sex --fail-if 'ece >> 1'")
    assert result.returncode == 2


# --- anything --------------------------------------------------------------------------------

CELLS = st.sampled_from(
    ["0", "1", "2", "0.5", "0.25", "1.0", "-1", "1e400", "nan", "NaN", "inf", "", " ", "NA", "null",
     "f", "m", "true", "False", '"', "''", ",", ";", "\t", "\x00", "\n", "\r", "é", "0x1", "1_0",
     "1e-320", "\u0661", "<b>", "[b]", "2024-01-01", "=1+1"]
)  # fmt: skip
HEADERS = st.sampled_from(["y", "p", "sex", "q", "Y", "", "y ", "p,p", '"sex"', "0", "\ufeffy"])


def parquet_bytes(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


LABEL, PROBABILITY, GROUP = st.integers(0, 1), st.floats(0, 1), st.sampled_from("fm")


@st.composite
def csv_files(draw):
    """CSV that is nearly right: a cell, a row or the header may be anything."""
    header = draw(st.just(["y", "p", "sex"]) | st.lists(HEADERS, min_size=1, max_size=4))
    cells = st.tuples(LABEL.map(str), PROBABILITY.map(repr), GROUP)
    rows = [list(row) for row in draw(st.lists(cells, max_size=8))]
    if rows:
        draw(st.sampled_from(rows))[draw(st.integers(0, 2))] = draw(CELLS)
    if draw(st.integers(0, 3)) == 0:
        rows.append(draw(st.lists(CELLS, max_size=5)))
    end, separator = draw(st.sampled_from(["\n", "\r\n", "\r"])), draw(st.sampled_from(",;"))
    text = end.join(separator.join(row) for row in [header, *rows])
    return ".csv", text.encode(draw(st.sampled_from(["utf-8"] * 6 + ["utf-8-sig", "utf-16"])))


ODD = [
    st.none() | st.integers(-1, 2),
    st.none() | st.floats(),
    st.floats(0, 1, width=32),
    st.none() | st.booleans(),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=3),
    st.none() | st.dates(),
    st.none() | st.lists(st.integers(0, 1), max_size=2),
    st.none() | st.binary(max_size=2),
    st.decimals(0, 1, places=2),
    st.integers(0, 2**63 - 1),
]


@st.composite
def parquet_files(draw):
    """Parquet that is nearly right: a column may be missing or of any type, the file cut short."""
    n = draw(st.integers(0, 8))
    kinds = {"y": LABEL, "p": PROBABILITY, "sex": GROUP}
    if draw(st.integers(0, 9)):
        kinds[draw(st.sampled_from(list(kinds)))] = draw(st.sampled_from(ODD))
    if draw(st.integers(0, 9)) == 0:
        kinds[draw(HEADERS)] = kinds.pop(draw(st.sampled_from(list(kinds))))
    columns = {k: draw(st.lists(v, min_size=n, max_size=n)) for k, v in kinds.items()}
    content = parquet_bytes(columns)
    if draw(st.integers(0, 9)) == 0:
        content = content[: draw(st.integers(0, len(content)))]
    return ".parquet", content


@st.composite
def noise(draw):
    """Bytes."""
    return draw(st.sampled_from([".csv", ".parquet"])), draw(st.binary(max_size=60))


@pytest.mark.slow
@settings(
    max_examples=1000,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    csv_files() | csv_files() | parquet_files() | parquet_files() | noise(),
    st.sampled_from(["duckdb", "polars"]),
    st.booleans(),
)
@example((".csv", b"y,p,sex\n0,0.5,f\n1,0.5,f\n"), "duckdb", False)
def test_anything_is_a_result_or_an_error(file, engine, drop_missing):
    """Never a traceback, never a NaN called a result."""
    ending, content = file
    path = Path(f"any{ending}")
    path.write_bytes(content)
    options = ["--engine", engine, "--fail-if", "ece > 2", "--json", "any.json", "--force"]
    Path("any.json").unlink(missing_ok=True)
    result = invoke(path, *COLUMNS, *options, *["--drop-missing"] * drop_missing)
    assert result.exception is None or isinstance(result.exception, SystemExit), file
    assert result.exit_code in (0, 2), result.output
    event(f"{ending} {result.exit_code}")
    if result.exit_code == 2:
        assert result.stderr.startswith(("Error: ", "Usage: "))
        assert not Path("any.json").exists()
        return
    text = Path("any.json").read_text()
    (model,) = json.loads(text, parse_constant=refuse_constant)["models"]
    assert sum(model["table"]["sums"]["rows"]) > 0
    for metrics in (model["overall"], *(g["metrics"] for g in model["groups"])):
        for name in ("accuracy", "ece", "classwise_ece", "mce", "brier"):
            assert 0 <= metrics[name]["value"] <= 1
    assert not re.search(r"\bnan\b", result.output, re.IGNORECASE)
