"""Faults of saved audits and calibrators: repeated, forged, damaged, hostile."""

import contextlib
import json
import random
import re

import numpy as np
import pytest
from fault_harness import COLUMNS, Fault, check_fault, people, rows, run_here

from equipoise import AuditTable, audit
from table_data import forge, seal

pytestmark = pytest.mark.slow

MERGE = ["audit", "--merge"]
APPLY = ["calibrate", "d.csv", "--out", "out.csv", "--apply"]
SEVERAL = "were made from the same rows"


def audited(name, out, *options, n=80, seed=0):
    """Arrange predictions and their audit."""

    def arrange(folder):
        people(n, seed).to_csv(folder / name, index=False)
        code, said = run_here(["audit", name, *COLUMNS, *options, "--json", out], folder)
        assert code == 0, said

    return arrange


def all_of(*steps):
    def arrange(folder):
        for step in steps:
            step(folder)

    return arrange


def command(*arguments):
    def arrange(folder):
        code, said = run_here(arguments, folder)
        assert code == 0, said

    return arrange


def copied(source, to):
    return lambda folder: (folder / to).write_bytes((folder / source).read_bytes())


def written(name, content):
    text = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(text)


def folder_of(name):
    return lambda folder: (folder / name).mkdir()


def forged(change, source="audit.json", to="forged.json"):
    return lambda folder: forge(folder / source, change, folder / to)


def table(data):
    return data["models"][0]["table"]


# --- the same rows twice ---------------------------------------------------------------------

more = audited("more.csv", "more.json", seed=1)
in_folder = all_of(folder_of("w"), copied("audit.json", "w/a.json"), more)
total = command(*MERGE, "audit.json", "more.json", "--json", "total.json")


def parts_saved_in_python(folder):
    """Save two tables of arrays, and their sum."""
    saved = []
    for i in range(2):
        data = people(seed=i)
        one = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=data["sex"])
        saved.append(AuditTable.from_dict(one.to_dict()))
    for name, each in {"0": saved[0], "1": saved[1], "sum": saved[0] + saved[1]}.items():
        (folder / f"{name}.json").write_text(json.dumps(each.to_dict()))


def two_models(folder):
    for name, seed in (("a", 2), ("b", 3)):
        people(seed=seed).to_csv(folder / f"{name}.csv", index=False)
    command("audit", "a.csv", "b.csv", *COLUMNS, "--json", "both.json")(folder)
    (folder / "again").mkdir()
    people(seed=3).to_csv(folder / "again" / "b.csv", index=False)
    people(seed=4).to_csv(folder / "again" / "a.csv", index=False)
    models = ["again/a.csv", "again/b.csv"]
    command("audit", *models, *COLUMNS, "--json", "again.json")(folder)


def both_sources(folder, _said):
    model = json.loads((folder / "total.json").read_text())["models"][0]
    names = sorted(source.split(" ")[1] for source in model["sources"])
    assert (model["rows"], names) == (160, ["d.csv", "more.csv"])


TWICE = [
    Fault(
        "a total among what is added up, written over",
        [*MERGE, "w", "--json", "w/total.json", "--force"],
        f"({SEVERAL}|read by this command)",
        all_of(
            in_folder,
            command(*MERGE, "w", "--json", "total.json"),
            lambda folder: (folder / "total.json").rename(folder / "w" / "total.json"),
        ),
    ),
    Fault(
        "a total among what is added up",
        [*MERGE, "audit.json", "more.json", "total.json"],
        rf"audit.json and total.json {SEVERAL} \(d.csv\), which would count twice; leave one",
        all_of(more, total),
    ),
    Fault(
        "a total of a total",
        [*MERGE, "all.json", "more.json"],
        rf"all.json and more.json {SEVERAL} \(more.csv\)",
        all_of(
            more,
            total,
            audited("third.csv", "third.json", seed=2),
            command(*MERGE, "total.json", "third.json", "--json", "all.json"),
        ),
    ),
    Fault(
        "a copy of an audit",
        [*MERGE, "audit.json", "copy.json"],
        rf"audit.json and copy.json {SEVERAL} \(d.csv\)",
        copied("audit.json", "copy.json"),
    ),
    Fault(
        "a second audit of the same file",
        [*MERGE, "audit.json", "again.json"],
        rf"audit.json and again.json {SEVERAL} \(d.csv\)",
        command("audit", "d.csv", *COLUMNS, "--level", "0.9", "--json", "again.json"),
    ),
    Fault(
        "an audit of a copy of the file",
        [*MERGE, "audit.json", "again.json"],
        SEVERAL,
        audited("copy.csv", "again.json"),
    ),
    Fault(
        "an audit of a folder that holds the file",
        [*MERGE, "audit.json", "again.json"],
        rf"{SEVERAL} \(d.csv\)",
        all_of(
            folder_of("w"),
            copied("d.csv", "w/d.csv"),
            lambda folder: people(seed=1).to_csv(folder / "w" / "e.csv", index=False),
            command("audit", "w", *COLUMNS, "--json", "again.json"),
        ),
    ),
    Fault("a name twice", [*MERGE, "audit.json", "./audit.json"], "given twice, so its rows"),
    Fault(
        "a link to an audit",
        [*MERGE, "audit.json", "link.json"],
        "given twice, so its rows",
        lambda folder: (folder / "link.json").symlink_to(folder / "audit.json"),
    ),
    Fault(
        "tables of Python and their sum",
        [*MERGE, "0.json", "sum.json"],
        rf"0.json and sum.json {SEVERAL} \(a table of 80 rows\)",
        parts_saved_in_python,
    ),
    Fault(
        "one of several models twice",
        [*MERGE, "both.json", "again.json"],
        rf"both.json and again.json {SEVERAL} \(b.csv\)",
        two_models,
    ),
    Fault(
        "a name of a source that would act on the terminal",
        [*MERGE, "audit.json", "again.json"],
        r"again.json were made from the same rows \(d\\x1b\[2J.csv\)",
        all_of(
            copied("d.csv", "d\x1b[2J.csv"),
            command("audit", "d\x1b[2J.csv", *COLUMNS, "--json", "again.json"),
        ),
    ),
    Fault(
        "audits of different rows",
        [*MERGE, "audit.json", "more.json", "--json", "total.json"],
        "160",
        more,
        code=0,
        makes=["total.json"],
        check=both_sources,
    ),
]


# --- forged and damaged ----------------------------------------------------------------------


def times(name, by):
    def change(data):
        sums = table(data)["sums"]
        sums[name] = (np.array(sums[name], dtype=object) * by).tolist()

    return change


def without(*keys):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


def with_value(value, *keys):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


IMPOSSIBLE = {
    "an accuracy of 782.5": (times("hits", 1000), "has more hits than labels"),
    "an ECE above 1": (times("bin_confidence", 3), "a confidence above that of its bin"),
    "a negative count": (times("rows", -1), "rows is not .* none of them negative"),
    "half a row": (with_value([0.5, 79.5], "models", 0, "table", "sums", "rows"), "rows is not"),
    "twice the rows": (times("rows", 2), "a weight that is not its number of rows"),
    "labels beside the rows": (times("labels", 2), "labels that do not add up to its rows"),
    "bins beside the rows": (times("bin_count", 2), "bins that do not add up to its rows"),
    "a negative log-loss": (times("log_loss", -1), "log_loss is not .* none of them negative"),
    "a log-loss of 0": (times("log_loss", 0), "a log-loss below that of its probabilities"),
    "a Brier score of 100": (times("squared_error", 500), "squared errors above 1"),
    "probabilities above 1": (times("probability", 3), "a mean probability above 1"),
}

SHAPES = {
    "no models": (with_value([], "models"), "it holds no tables"),
    "models that are an object": (with_value({"a": 1}, "models"), "forged.json: "),
    "a model that is null": (with_value([None], "models"), "a model is not a table of figures"),
    "a model's name that is a list": (with_value([1], "models", 0, "model"), "forged.json: "),
    "a table that is text": (with_value("x", "models", 0, "table"), "forged.json: "),
    "no table": (without("models", 0, "table"), "it lacks 'table'"),
    "no sources": (without("models", 0, "sources"), "it lacks 'sources'"),
    "sources of another kind": (
        with_value(["d.csv"], "models", 0, "sources"),
        "sources are not a list of fingerprints",
    ),
    "a count of rows left out that is text": (
        with_value("many", "models", 0, "dropped"),
        "a number of rows is not a whole number",
    ),
    "no columns": (without("columns"), "it lacks 'columns'"),
    "columns that are a list": (with_value([1, 2], "columns"), "forged.json: "),
    "rates that are text": (with_value("x", "base_rates"), "forged.json: "),
    "a group twice": (with_value(["f", "f"], "models", 0, "table", "groups"), "one of them twice"),
    "a group that is an object": (
        with_value([{}, "m"], "models", 0, "table", "groups"),
        "damaged audit table",
    ),
    "a million bins": (with_value(10**6, "models", 0, "table", "n_bins"), "n_bins must be"),
    "the same model twice": (
        lambda data: data["models"].append(data["models"][0]),
        "a model is there twice",
    ),
    "an earlier format": (
        with_value("equipoise.Audit/1", "format"),
        r"of an earlier version \(equipoise.Audit/1\); audit its rows again",
    ),
}

FORGED = [
    Fault(f"forged: {name}", [*MERGE, "forged.json"], says, forged(change))
    for name, (change, says) in (IMPOSSIBLE | SHAPES).items()
]


def flipped(folder, name="audit.json", at=0.5):
    """Change one digit, in the middle of the sums."""
    text = (folder / name).read_text()
    found = [m.start() for m in re.finditer(r"\d", text)]
    i = found[int(at * len(found))]
    digit = "1" if text[i] != "1" else "2"
    (folder / name).write_text(text[:i] + digit + text[i + 1 :])


FLIPPED = [
    Fault(
        f"another digit at {at:.0%} of an audit",
        [*MERGE, "audit.json"],
        "digest does not match, so it was changed|cannot be read as JSON|of an earlier version|"
        "is not what `equipoise audit|n_bins must be|damaged audit table",
        lambda folder, at=at: flipped(folder, at=at),
    )
    for at in np.linspace(0, 0.999, 12)
] + [
    Fault(
        f"another digit at {at:.0%} of a calibrator",
        [*APPLY, "cal.json"],
        "digest does not match, so it was changed|cannot be read as JSON",
        lambda folder, at=at: flipped(folder, "cal.json", at),
    )
    for at in (0.1, 0.5, 0.9)
]


# --- files that are not what they should be --------------------------------------------------

DEEP = 100_000
HOSTILE = {
    "lists 100,000 deep": ("[" * DEEP + "]" * DEEP, "lists and objects within each other"),
    "objects 100,000 deep": (
        '{"a":' * DEEP + "1" + "}" * DEEP,
        "more than 40 lists and objects within each other",
    ),
    "lists 100 deep": ('{"a":' + "[" * 100 + "]" * 100 + "}", "within each other"),
    "a number of 400 digits": ('{"format": 1' + "0" * 399 + "}", "has 400 digits"),
    "a number of 5,000 digits": ('{"format": 1' + "0" * 4999 + "}", "has 5,000 digits"),
    "an exponent of 400": ('{"a": 1e400}', "the number 1e400 is too large"),
    "NaN": ('{"a": NaN}', "NaN is not a number of JSON"),
    "Infinity": ('{"a": -Infinity}', "-Infinity is not a number of JSON"),
    "a key twice": ('{"format": 1, "format": 2}', "'format' is there twice"),
    "a list": ("[1, 2]", "holds a list, not an object"),
    "a number": ("7", "holds a int, not an object"),
    "nothing": ("", "it is empty"),
    "5 MB of spaces": (" " * 5_000_000, "it is empty"),
    "text that is not UTF-8": (b'{"a": "\xff"}', "not UTF-8 text"),
    "zeros": (b"\0" * 1000, "cannot be read as JSON"),
    "half of an object": ('{"a": [1, 2', "cannot be read as JSON"),
    "no digest": ('{"format": "equipoise.Audit/2"}', "no digest|it lacks 'sha256'"),
    "half of a surrogate pair": ('{"format": "\\ud800"}', "is not what|digest"),
    "a key that would act on the terminal": ('{"\\u001b[2J": 1, "\\u001b[2J": 2}', "twice"),
}

READERS = {"an audit": [*MERGE, "audit.json", "bad.json"], "a calibrator": [*APPLY, "bad.json"]}

FILES = (
    [
        Fault(
            f"{name} where {what} should be", run, "no digest|" + says, written("bad.json", content)
        )
        for what, run in READERS.items()
        for name, (content, says) in HOSTILE.items()
    ]
    + [
        Fault(
            f"a folder where {what} should be",
            run,
            "bad.json: it is a folder, not a file|is a directory|there is no file bad.json",
            folder_of("bad.json"),
        )
        for what, run in READERS.items()
    ]
    + [
        Fault(
            "a folder with the name of an audit, inside a folder",
            [*MERGE, "w"],
            "a.json: it is a folder, not a file",
            all_of(folder_of("w"), folder_of("w/a.json")),
        ),
        Fault("an empty name", [*MERGE, ""], "an empty path names no file"),
        Fault(
            "a calibrator as an audit", [*MERGE, "cal.json"], "is not what `equipoise audit --json`"
        ),
        Fault("an audit as a calibrator", [*APPLY, "audit.json"], "is not a file of calibrators"),
        Fault("a CSV file as an audit", [*MERGE, "d.csv"], "d.csv: it cannot be read as JSON"),
    ]
)


def tables_of_other_columns(folder):
    """Save tables whose groups are of one column, and of two."""
    data = people()
    for name, groups in {"one": data["sex"], "two": data[["sex", "age"]]}.items():
        made = AuditTable.from_arrays(data["y"], data["p"], sensitive_features=groups)
        (folder / f"{name}.json").write_text(json.dumps(made.to_dict()))


def split_with_clusters(folder):
    """Save parts of clusters, and forge the table of all rows."""
    data = people().assign(half=np.arange(80) // 40, id=np.arange(80) // 2)
    data.to_csv(folder / "e.csv", index=False)
    options = ["--by", "half", "--cluster", "id"]
    command("audit", "e.csv", *COLUMNS, *options, "--json", "e.json")(folder)

    def change(saved):
        model = saved["models"][0]
        model["table"] = model["by"][0]["report"]["table"]

    forge(folder / "e.json", change)


FILES += [
    Fault(
        "tables of other columns",
        [*MERGE, "one.json", "two.json"],
        "of different numbers of columns; only tables of the same columns can be added",
        tables_of_other_columns,
    ),
    Fault(
        "parts beside their whole",
        [*MERGE, "e.json"],
        "e.json: its parts do not add up to all rows",
        split_with_clusters,
    ),
]


# --- limits ----------------------------------------------------------------------------------


def many_groups(folder, n=20_000):
    """Save a table with more groups than an audit takes."""
    made = AuditTable.from_arrays(
        np.arange(n) % 2, np.full(n, 0.5), sensitive_features=np.arange(n), n_bins=1
    )
    (folder / "many.json").write_text(json.dumps(made.to_dict()))


def many_in_total(folder, n=6_000):
    """Save two audits that have too many groups only together."""
    for i in range(2):
        made = AuditTable.from_arrays(
            np.arange(n) % 2, np.full(n, 0.5), sensitive_features=np.arange(n) + i * n, n_bins=1
        )
        (folder / f"{i}.json").write_text(json.dumps(made.to_dict()))


def audit_of_many(_folder):
    n = 100_000
    audit(np.arange(n) % 2, np.full(n, 0.5), sensitive_features=np.arange(n))


LIMITS = [
    Fault(
        "too many groups in an audit that is added up",
        [*MERGE, "many.json"],
        r"many.json: the group has more than 10,000 distinct values \(20,000\).* merge values",
        many_groups,
    ),
    Fault(
        "too many groups in audits together",
        [*MERGE, "0.json", "1.json"],
        r"the group has more than 10,000 distinct values \(12,000\).* merge values",
        many_in_total,
    ),
    Fault(
        "too many groups in arrays",
        audit_of_many,
        r"sensitive_features has more than 10,000 distinct values \(100,000\).* merge values",
    ),
]


@rows([*TWICE, *FORGED, *FLIPPED, *FILES, *LIMITS])
def test_fault(fault, tmp_path, prepared):
    check_fault(fault, tmp_path, prepared)


# --- a fuzz of what is read ------------------------------------------------------------------

VALUES = [None, True, -1, 0, 2**70, 0.5, -1e300, "", "x", [], {}, [[]], [None], {"a": 1}, "\x1b"]


def places(data, where=()):
    """Return where everything is in nested lists and objects."""
    found = [where]
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            found += places(data[key], (*where, key))
    return found


def mutated(data, chance):
    """Change, drop or repeat one thing."""
    data = json.loads(json.dumps(data))
    *outer, last = chance.choice(places(data)[1:])
    inside = data
    for key in outer:
        inside = inside[key]
    kind = chance.randrange(4)
    if kind == 0:
        del inside[last]
    elif kind == 1 and isinstance(inside, list):
        inside.insert(last, inside[last])
    elif kind == 2 and isinstance(inside[last], int | float):
        inside[last] = inside[last] * chance.choice([0, -1, 2, 10**30]) + chance.choice([0, 1])
    else:
        inside[last] = chance.choice(VALUES)
    return data


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", ["audit", "parts", "table", "calibrator"])
def test_whatever_is_in_a_file_it_is_read_or_refused(what, seed, tmp_path, without_model):
    """500 files of each kind, of valid digest, with one thing changed in each."""
    from equipoise.auditing import merge_audits
    from equipoise.calibration import FileCalibration

    if what == "parts":
        data = people().assign(month=np.arange(80) % 2, id=np.arange(80) // 2)
        data.to_csv(tmp_path / "e.csv", index=False)
        options = ["--by", "month", "--weight", "age", "--cluster", "id"]
        command("audit", "e.csv", *COLUMNS, *options, "--json", "e.json")(tmp_path)
        saved = json.loads((tmp_path / "e.json").read_text())
    else:
        name = "cal.json" if what == "calibrator" else "audit.json"
        saved = json.loads((without_model / name).read_text())
        saved = table(saved) if what == "table" else saved
    chance, path = random.Random(seed), tmp_path / "bad.json"
    read = 0
    for _ in range(125):
        path.write_text(json.dumps(seal(mutated(saved, chance))))
        with contextlib.suppress(ValueError, TypeError):
            FileCalibration.load(path) if what == "calibrator" else merge_audits(path)
            read += 1
    assert read < 115
