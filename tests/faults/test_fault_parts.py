"""Faults of parts of sweeps and searches, of model files, and of the address of a cluster."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import socket
import struct
import threading
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from fault_files import KEYS, SEARCH, copied, files, forged, rows_of_features, sign_json
from fault_harness import COLUMNS, Fault, check_fault, rows, run_here
from pyarrow import parquet

from equipoise import FrontierSearch, GroupCalibratedClassifier, GroupwiseMLPClassifier
from equipoise.calibration import FileCalibration, GroupCalibrator
from equipoise.sweep import PartFolder, Store, encode, plan, run
from sweep_data import DATA, RUN, SWEEP, finished
from test_sweep import flipped, in_footer

pytestmark = pytest.mark.slow

DEEP = "[" * 100_000 + "]" * 100_000
TOO_DEEP = "(nested too deeply|within each other)"


def pipe(path):
    """Put a pipe without a writer in the place of a file: opening it would wait for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def folder_at(path):
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "mine.txt").write_text("not to be lost")


def nowhere(path):
    path.unlink(missing_ok=True)
    path.symlink_to(path.with_name("gone"))


def changed(how):
    """Return what rewrites the bytes of a file."""
    return lambda path: path.write_bytes(how(path.read_bytes()))


# --- parts of a sweep -------------------------------------------------------------------------

PART, OTHER, LAST = (f"{key}.parquet" for key in KEYS)
SUM = f"{KEYS[0]}.checksum"


def fewer_rows(content):
    return encode(parquet.read_table(pa.BufferReader(content))[:-1], KEYS[0])


def as_other(*endings):
    def arrange(path):
        for ending in endings:
            shutil.copy(path.with_name(f"{KEYS[1]}{ending}"), path.with_suffix(ending))

    return arrange


def checksum(how):
    return lambda path: how(path.with_suffix(".checksum"))


def more_rows(content):
    about = json.loads(content)
    return json.dumps(about | {"rows": about["rows"] + 1}).encode()


DAMAGES = {
    "a flipped bit in a page": (changed(flipped), "its bytes do not match"),
    "a flipped bit in the footer": (changed(in_footer), "its bytes do not match"),
    "fewer rows under the same key": (changed(fewer_rows), "its bytes do not match"),
    "half of it": (changed(lambda b: b[: len(b) // 2]), "its bytes do not match"),
    "an empty file": (changed(lambda _: b""), "its bytes do not match"),
    "the bytes of another part": (as_other(".parquet"), "its bytes do not match"),
    "another part with its checksum": (as_other(".parquet", ".checksum"), "it is another part"),
    "a folder": (folder_at, "it is no file"),
    "a pipe": (pipe, "it is no file"),
    "no checksum": (checksum(Path.unlink), "is missing"),
    "a checksum of other rows": (checksum(changed(more_rows)), "its bytes do not match"),
    "a checksum that is a pipe": (checksum(pipe), "checksum, .* is damaged"),
    **{
        f"a checksum that is {name}": (
            checksum(lambda path, text=text: path.write_text(text)),
            "checksum, .* is damaged",
        )
        for name, text in {
            "empty": "", "deep": DEEP, "a list": "[1]", "a number": "1" * 400, "nothing": "{}",
        }.items()
    },
}  # fmt: skip


def damaged_by(damage):
    def arrange(folder):
        copied("sweep")(folder)
        damage(folder / "sweep" / PART)

    return arrange


def again(problem):
    """Return what runs the sweep again: the part is made anew, byte for byte, the others stay."""

    def run_again(folder):
        keys, compute = [], RUN.compute

        def counted(part, *rest):
            keys.append(part.key)
            return compute(part, *rest)

        says = pytest.warns(UserWarning, match=f"set aside as .*{KEYS[0]}.damaged, .*: .*{problem}")
        with mock.patch.object(RUN, "compute", counted), says if problem else warning_free():
            run(plan(SWEEP, folder / "sweep", DATA)[1], progress=False)
        assert keys == [KEYS[0]]
        assert finished(folder / "sweep") == finished(files() / "sweep")
        assert len(Store(folder / "sweep").query("from runs")) == 3 * 8 * SWEEP.max_epochs

    return run_again


@contextlib.contextmanager
def warning_free():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def query(folder):
    Store(folder / "sweep").query("from runs")


def sweep_again(folder):
    run(plan(SWEEP, folder / "sweep", DATA)[1], progress=False)


ASIDE = f"{KEYS[0]}.damaged"
MADE = [f"sweep/{name}" for name in (PART, SUM, ASIDE, "parts.log")]
MADE += [f"sweep/{name}/mine.txt" for name in (PART, ASIDE)]


def unreadable(use):
    """Return what meets a part that may not be read, which root cannot be kept from."""
    open_file = Path.open

    def refuse(path, *rest, **options):
        if path.name == PART:
            raise PermissionError(13, "Permission denied")
        return open_file(path, *rest, **options)

    def use_it(folder):
        with mock.patch.object(Path, "open", refuse):
            use(folder)

    return use_it


def of_versions(folder):
    """Run on where a part is missing and the others were made with another NumPy."""
    (folder / "sweep" / PART).unlink()
    version = "equipoise.sweep._part_file.importlib.metadata.version"
    words = "sweep mixes versions, .*2 parts with equipoise .*; 1 part with equipoise 9, numpy 9"
    with mock.patch(version, return_value="9"), pytest.warns(UserWarning, match=words):
        run(plan(SWEEP, folder / "sweep", DATA)[1], progress=False)
    with pytest.warns(UserWarning, match="mixes versions"):  # now that all are done, too
        run(plan(SWEEP, folder / "sweep", DATA)[1], progress=False)


PARTS = [
    *(
        Fault(f"a part that is {name}: run again", again(problem), "", damaged_by(damage), 0, MADE)
        for name, (damage, problem) in DAMAGES.items()
    ),
    # what a kill between the two files leaves
    Fault("a checksum without its part: run again", again(""), "", damaged_by(Path.unlink), 0,
          MADE),
    Fault("another checksum without its part: run again", again(""), "",
          damaged_by(lambda path: (checksum(changed(more_rows))(path), path.unlink())), 0, MADE),
    Fault("a part that is a link to nothing: run again", again(""), "", damaged_by(nowhere), 0,
          MADE),
    *(
        Fault(
            f"a part that is {name}: query",
            query,
            rf"{PART} is damaged: .*{problem}.*; run the sweep again, which makes this part anew",
            damaged_by(damage),
        )
        for name, (damage, problem) in DAMAGES.items()
    ),
    Fault("a part that is a link to nothing: query", query, "lacks 1 of 3 parts; run the sweep",
          damaged_by(nowhere)),
    *(
        Fault(f"a part that may not be read: {use.__name__}", unreadable(use),
              rf"{PART} cannot be read \(Permission denied\); make that possible, or move it away",
              copied("sweep"))
        for use in (query, sweep_again)
    ),
    Fault("parts of several versions", of_versions, "", copied("sweep"), 0, MADE),
]  # fmt: skip


# --- descriptions, and what is in their way ---------------------------------------------------

TEXTS = {
    "empty": "",
    "deep": DEEP,
    "deep inside": f'{{"sweep": {{"x": {DEEP}}}, "search": {{"x": {DEEP}}}, "data": ""}}',
    "a number of 5,000 digits": "1" * 5000,
    "NaN": "NaN",
    "a list": "[]",
    "objects of lists": '{"sweep": [], "search": [], "data": [], "losses": 3}',
    "not UTF-8": None,
}


def written(name, text):
    def arrange(folder):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\xff\xfe" if text is None else text.encode())

    return arrange


def both(*steps):
    def arrange(folder):
        for step in steps:
            step(folder)

    return arrange


def at(name, how):
    def arrange(folder):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        how(folder / name)

    return arrange


def edited(name, **values):
    """Return what changes values of the description of a sweep."""

    def arrange(folder):
        about = json.loads((folder / name).read_text())
        about["sweep"] |= values
        (folder / name).write_text(json.dumps(about))

    return arrange


SWEPT = {"run again": sweep_again, "query": query}
REPRODUCE = ["reproduce", "german", "--runs", "runs"]
DAMAGED = r"json is damaged \(.*\); restore the file, or move the folder away"
DESCRIPTIONS = [
    *(
        Fault(f"sweep.json is {name}: {how}", use, DAMAGED,
              both(copied("sweep"), written("sweep/sweep.json", text)))
        for name, text in TEXTS.items()
        for how, use in SWEPT.items()
    ),
    *(
        Fault(f"sweep.json is {what.__name__}: {how}", use, DAMAGED,
              both(copied("sweep"), at("sweep/sweep.json", what)))
        for what in (folder_at, pipe)
        for how, use in SWEPT.items()
    ),
    *(
        Fault(f"sweep.json has {name}: query", query, DAMAGED,
              both(copied("sweep"), edited("sweep/sweep.json", **values)))
        for name, values in {
            "NaN": {"lam": [float("nan")]},
            "a number of 400 digits": {"lam": [10**400]},
            "a seed of 400 digits": {"seeds": [10**400]},
            "epochs of 400 digits": {"max_epochs": 10**400},
            "a rate of 400 digits": {"learning_rate": 10**400},
        }.items()
    ),
    *(
        Fault(f"search.json is {name}: search", SEARCH, DAMAGED,
              both(copied("out"), written("out/runs/search.json", text)))
        for name, text in TEXTS.items()
    ),
    *(
        Fault(f"search.json is {what.__name__}: search", SEARCH, DAMAGED,
              both(copied("out"), at("out/runs/search.json", what)))
        for what in (folder_at, pipe)
    ),
    *(
        Fault(f"sweep.json is {name}: reproduce", REPRODUCE, DAMAGED,
              written("runs/quick/german/sweep.json", text))
        for name, text in TEXTS.items()
    ),
    *(
        Fault(f"parts.log is {what.__name__}: {how}", use,
              "parts.log is no file, and the log is to be written there; move it away",
              both(copied(*some), at(f"{where}/parts.log", what)))
        for what in (folder_at, pipe)
        for how, use, where, some in (
            ("sweep", sweep_again, "sweep", ["sweep"]),
            ("search", SEARCH, "out/runs", ["out"]),
            ("reproduce", REPRODUCE, "runs/quick/german", []),
        )
    ),
]  # fmt: skip


# --- parts of a search ------------------------------------------------------------------------


def search_part(folder):
    return next((folder / "out/runs").glob("*.parquet"))


def search_again(damage, problem):
    """Return what damages a part in a copy of a search, and gives the command again."""

    def use(folder):
        shutil.copytree(files() / "out", folder / "again/out")
        shutil.copy(folder / "d.csv", folder / "again")
        sound = search_part(folder / "again").read_bytes()
        damage(search_part(folder / "again"))
        code, said = run_here(SEARCH, folder / "again")
        assert code == 0, said
        assert problem in said
        assert search_part(folder / "again").read_bytes() == sound
        shutil.rmtree(folder / "again")

    return use


def read_search(folder):
    key = search_part(folder).stem
    PartFolder(folder / "out/runs", "search").table(key)


SEARCHES = [
    *(
        Fault(f"a part of a search that is {name}: search", search_again(damage, problem), "",
              code=0)
        for name, damage, problem in (
            ("a folder", folder_at, "it is no file"),
            ("cut short", changed(lambda b: b[:-9]), "its bytes do not match"),
            ("without a checksum", checksum(Path.unlink), "is missing"),
        )
    ),
    Fault("a part of a search that is cut short: read", read_search,
          "bytes do not match its checksum; run the search again",
          both(copied("out"), lambda f: changed(lambda b: b[:-9])(search_part(f)))),
]  # fmt: skip


# --- model files ------------------------------------------------------------------------------


def first_weight(**change):
    """Return what changes the first weights: their values, or how they are stored."""

    def forge(_, arrays):
        name = next(n for n in sorted(arrays) if n.endswith("weight0"))
        if "value" in change:
            arrays[name][0, 0] = change["value"]
        elif "shape" in change:
            arrays[name] = arrays[name][: change["shape"]]
        elif "kind" in change:
            arrays[name] = arrays[name].astype(change["kind"])
        else:
            del arrays[name]

    return forge


def header(*path, value):
    """Return what replaces a value in the JSON of a file."""

    def forge(about, _):
        *above, last = path
        own = functools.reduce(lambda held, name: held[name], above, about)
        own[last] = value

    return forge


WEIGHTS = {
    "NaN weights": (first_weight(value=np.nan), "no finite numbers"),
    "infinite weights": (first_weight(value=np.inf), "no finite numbers"),
    "weights of another shape": (first_weight(shape=0), "has the shapes"),
    "no weights": (first_weight(), "it lacks 'weight0'"),
    "whole weights": (first_weight(kind=np.int64), "no finite numbers"),
    "one class": (header("classes", value=["no"]), "fewer than two classes"),
    "layers of text": (header("params", "hidden_layer_sizes", value="x"), "hidden_layer_sizes"),
    "an unknown loss": (header("params", "loss", value=[]), "loss"),
    "another reference": (header("reference", value="x"), "its reference group is none"),
    "groups that are a number": (header("groups", value=3), "."),
    "features of another number": (header("features", value=["a"] * 9), "features"),
    "an infinite mean": (header("preprocessor", "mean", value=[float("inf")]), "preprocessor"),
    "no preprocessor": (header("preprocessor", value=None), "preprocessor"),
    "a temperature of NaN": (header("scaling", "temperature", value=float("nan")), "finite"),
    "a scaling that is a list": (header("scaling", value=[]), "."),
    "no extra": (header("extra", value=None), "."),
}
ENCODERS = {
    "an encoder of a trillion columns": header(
        "extra", "encoder", "columns", 0,
        value={"name": "a", "kind": "text", "categories": [], "width": 10**12},
    ),
    "an encoder that is a list": header("extra", "encoder", value=[]),
    "counts of other groups": header("extra", "label_counts", value=[[1, 2]]),
    "counts that are words": header("extra", "label_counts", value="many"),
    "a label that is a number": header("extra", "encoder", "label", value=3),
    "three classes": header("extra", "encoder", "class_names", value=["a", "b", "c"]),
}  # fmt: skip


def raw(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def safetensors_of(about):
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text


RAW = {
    "empty": b"",
    "text": b"hello, world, this is no model",
    "of a huge declared header": struct.pack("<Q", 2**62) + b"{}",
    "of huge declared shapes": safetensors_of(
        {"weight0": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 2**62]}}
    ),
    "of a deep header": struct.pack("<Q", len(DEEP)) + DEEP.encode(),
    "of another program": safetensors_of({"__metadata__": {"made": "elsewhere"}}),
}
PREDICT = ["predict", "model", "d.csv", "--out", "out.csv"]


def load_with(kind, name, **options):
    """Return what loads a file and predicts with it."""

    def load(folder):
        X, _, sex = rows_of_features()
        given = options
        if name == "classifier.json":
            given = {"estimator": GroupCalibratedClassifier.load(files() / "classifier").estimator_}
        model = kind.load(folder / name, **given)
        if not isinstance(model, FileCalibration):
            model.predict_proba(X, sensitive_features=sex)

    return load


LOADERS = {
    "mlp": load_with(GroupwiseMLPClassifier, "mlp"),
    "search": load_with(FrontierSearch, "search"),
    "classifier": load_with(GroupCalibratedClassifier, "classifier"),
    "classifier.json": load_with(GroupCalibratedClassifier, "classifier.json"),
    "calibrator": load_with(GroupCalibrator, "calibrator"),
    "cal.json": load_with(FileCalibration, "cal.json"),
}


def forged_json(name, **values):
    def arrange(folder):
        sign_json(folder / name, json.loads((files() / name).read_text()) | values)

    return arrange


CALIBRATORS = {
    "no format": {"format": None},
    "a format that is a list": {"format": []},
    "parameters that are a list": {"params": []},
    "groups that are a number": {"groups": 3, "sets": 3},
    "groups of nothing": {"groups": [{}], "sets": [{}]},
    "one class": {"classes": ["no"]},
    "classes that are objects": {"classes": [{}, {}]},
    "a step count that is infinite": {"n_iter": float("inf"), "sets": None},
}
MODELS = [
    *(
        Fault(f"a model with {name}: predict", PREDICT, f"model is not a saved .*: .*{problem}",
              forged("model", forge), makes=["model"], needs_model=True)
        for name, (forge, problem) in WEIGHTS.items()
    ),
    *(
        Fault(f"a model with {name}: predict", PREDICT, "model is damaged: .",
              forged("model", forge), needs_model=True)
        for name, forge in ENCODERS.items()
    ),
    *(
        Fault(f"a model that is {name}: predict", PREDICT, "model (is not a saved model|was not)",
              raw("model", content))
        for name, content in RAW.items()
    ),
    *(
        Fault(f"a model with a {name} header: predict", PREDICT,
              f"model is (not a saved|damaged).*{problem}",
              forged("model", text=lambda _, text=text: text))
        for name, text, problem in (
            ("deep", DEEP, TOO_DEEP),
            ("deeply nested", f'{{"format": {DEEP}}}', TOO_DEEP),
            ("listed", "[]", "object of JSON"),
            ("NaN", "NaN", "object of JSON"),
            ("broken", "{", "."),
        )
    ),
    *(
        Fault(f"{file} with {name}: load", LOADERS[file], f"{file} is not a saved .*: .*{problem}",
              forged(file, forge))
        for file in ("mlp",)
        for name, (forge, problem) in WEIGHTS.items()
    ),
    *(
        Fault(f"search with {name}: load", LOADERS["search"],
              rf"search is not a saved FrontierSearch: .*{problem}", forged("search", forge))
        for name, forge, problem in (
            ("NaN weights", first_weight(value=np.nan), "no finite numbers"),
            ("no weights", first_weight(), "it lacks"),
            ("splits of others", header("splits", value=[99]), "its splits do not fit"),
            ("splits of words", header("splits", value="x"), "its splits do not fit"),
            ("other calibrations", header("calibrations", value=["x"]), "do not fit"),
            ("fewer columns", header("columns", value=["pe"]), "do not fit"),
            ("trials of text", header("trials", value=["ce"]), "."),
            ("a ratio of text", header("ratio", value="x"), "."),
            ("a choice that is a list", header("choice", value=[]), "."),
            ("a model that is a list", header("model", value=[]), "."),
        )
    ),
    *(
        Fault(f"{file} that is {name}: load", LOADERS[file], file, raw(file, content))
        for file in LOADERS
        for name, content in RAW.items()
    ),
    *(
        Fault(f"{file} that is {what.__name__}: load", LOADERS[file],
              f"{file} .*is a .*(folder|pipe)",
              at(file, what))
        for file in LOADERS
        for what in (folder_at, pipe)
    ),
    *(
        Fault(f"{file} with {name}: load", LOADERS[file], rf"{file} is not a .*: .",
              forged_json(file, **values))
        for file in ("calibrator", "classifier.json", "cal.json")
        for name, values in CALIBRATORS.items()
    ),
    *(
        Fault(f"classifier with {name}: load", LOADERS["classifier"], r"classifier.*: .",
              forged("classifier", lambda about, _, values=values: about.update(values)))
        for name, values in (CALIBRATORS | {
            "no estimators": {"estimators": None},
            "estimators of nothing": {"estimators": [{}]},
            "estimators of numbers": {"estimators": [3]},
        }).items()
    ),
    *(
        Fault(f"calibrators that are deep {where}: calibrate",
              ["calibrate", "d.csv", *COLUMNS[2:], "--apply", "cal.json", "--out", "new.csv"],
              "cal.json is not a file of calibrators, or is damaged: .*" + TOO_DEEP,
              written("cal.json", text))
        for where, text in (("", DEEP), ("inside", f'{{"sha256": {DEEP}}}'))
    ),
]  # fmt: skip


# --- the address of a cluster -----------------------------------------------------------------


@contextlib.contextmanager
def web_server():
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def nobody():
    with socket.socket() as taken:  # so that nobody else listens there
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def address_of(listener, use):
    """Return what uses the address of a listener, and is refused in time."""
    # two addresses of a name may be tried before one is listened to
    assert 3 * RUN.ANSWER < 20

    def ask(folder):
        with listener() as port, mock.patch.object(RUN, "ANSWER", 1.0):
            began = time.monotonic()
            try:
                use(folder, f"127.0.0.1:{port}")
            finally:
                assert time.monotonic() - began < 20

    return ask


def command(*arguments):
    def ask(folder, address):
        code, said = run_here([*arguments, "--engine", "ray", "--address", address], folder)
        assert code == 2, said
        raise ValueError(said)

    return ask


def sweep_on(folder, address):
    run(plan(SWEEP, folder / "sweep", DATA)[1], engine="ray", address=address, progress=False)


def sweep_auto(folder, address):
    with mock.patch.dict(os.environ, {"RAY_ADDRESS": address}):
        sweep_on(folder, "auto")


CLUSTER = [
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
ADDRESSES = [
    Fault(f"{who} at the address of a cluster: {how}", address_of(listener, use), says,
          makes=["sweep/sweep.json", "out/runs/search.json", "runs/quick/german/sweep.json"],
          marks=CLUSTER)
    for who, listener, says in (
        ("a web server", web_server, "something else than a Ray cluster listens at .*; give the"),
        ("silence", silent, r"no Ray cluster answers at .* within 1 s .*; give the port"),
        ("nobody", nobody, r"no Ray cluster answers at .*refused.*; start one with: ray start"),
    )
    for how, use in {
        "search": command(*SEARCH),
        "reproduce": command(*REPRODUCE),
        "run": sweep_on,
        "auto": sweep_auto,
    }.items()
]  # fmt: skip
ADDRESSES += [
    Fault(f"the address {address}", [*SEARCH, "--engine", "ray", "--address", address],
          "is no address of a Ray cluster")
    for address in ("localhost", "localhost:x", "localhost:99999", "localhost:²", ":1")
]  # fmt: skip


@rows([*PARTS, *DESCRIPTIONS, *SEARCHES, *MODELS, *ADDRESSES])
def test_fault(fault, tmp_path, prepared):
    check_fault(fault, tmp_path, prepared)
