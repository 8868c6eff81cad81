"""Load mutated files of one kind: `python fuzz_files.py KIND CASES FOLDER`.

Each case must load or be refused cleanly, in one sentence. The first wrong outcome ends the
program with 1; a crash or a hang of a library ends it otherwise. The case is left in FOLDER.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import json
import math
import random
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fault_files import DATA, KEYS, SWEEP, copied, files, rows_of_features, sign, sign_json

from equipoise import FrontierSearch, GroupCalibratedClassifier, GroupwiseMLPClassifier
from equipoise._files import read_model, reader
from equipoise.auditing import merge_audits
from equipoise.calibration import FileCalibration, GroupCalibrator
from equipoise.cli._predict import _training
from equipoise.sweep import PartFolder, Store, Sweep, plan

SECONDS = 10
"""Most seconds that a case may take."""

# --- mutations of bytes -----------------------------------------------------------------------

DEEP = b"[" * 20_000
TOKENS = (
    b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"9" * 5000, b"-1", b"0", b"null", b"true", b'""',
    b"[]", b"{}", b"\xff\xfe", b"\x00", b"\r", b'"', b"\x1b[31m", "\u202e".encode(), DEEP,
)  # fmt: skip


def chunk(random: random.Random, content: bytes) -> tuple[int, int]:
    start = random.randrange(len(content) + 1)
    return start, min(len(content), start + random.choice((1, 2, 8, 40, 300)))


def flip(random: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def truncate(random: random.Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def delete(random: random.Random, content: bytes) -> bytes:
    start, stop = chunk(random, content)
    return content[:start] + content[stop:]


def duplicate(random: random.Random, content: bytes) -> bytes:
    start, stop = chunk(random, content)
    return content[:stop] + content[start:stop] * random.choice((1, 2, 30)) + content[stop:]


def insert(random: random.Random, content: bytes) -> bytes:
    start, _ = chunk(random, content)
    return content[:start] + random.choice(TOKENS) + content[start:]


def replace_token(random: random.Random, content: bytes) -> bytes:
    found = list(re.finditer(rb'-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|"[^"]*"|[A-Za-z_]+', content))
    if not found:
        return insert(random, content)
    at = random.choice(found)
    return content[: at.start()] + random.choice(TOKENS) + content[at.end() :]


def splice(random: random.Random, content: bytes) -> bytes:
    start, stop = chunk(random, content)
    other_start, other_stop = chunk(random, content)
    return content[:start] + content[other_start:other_stop] + content[stop:]


BYTES = (flip, truncate, delete, duplicate, insert, replace_token, splice)


def mutated(random: random.Random, content: bytes) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = random.choice(BYTES)(random, content)
    return content


# --- mutations of what is inside, for files with a digest -------------------------------------

VALUES = (
    None, True, 0, 1, -1, 2, 0.5, 1e308, 10**30, 10**400, math.nan, math.inf, "", "x", "\x1b[31m",
    "\ud800", [], {}, [[]], [None], ["a", "b"], [1, 2, 3], {"a": 1}, {"format": "x"},
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each place of a value inside others: what holds it, and its name or number."""
    inside = list(value.items()) if isinstance(value, dict) else []
    inside = list(enumerate(value)) if isinstance(value, list) else inside
    found = [(value, name) for name, _ in inside]
    for _, own in inside:
        found += places(own)
    return found


def with_other_value(random: random.Random, value: Any) -> Any:
    """Return plain values with one or several replaced, removed, doubled or exchanged."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        found = places(value)
        if not found:
            return value
        held, name = random.choice(found)
        how = random.randrange(6)
        if how == 0:
            del held[name]
        elif how == 1 and isinstance(held, list):
            held.append(copy.deepcopy(held[name]))
        elif how == 2:
            other, at = random.choice(found)
            held[name] = copy.deepcopy(other[at])
        else:
            held[name] = copy.deepcopy(random.choice(VALUES))
    return value


def with_other_array(random: random.Random, arrays: dict[str, Any]) -> dict[str, Any]:
    arrays = dict(arrays)
    name = random.choice(sorted(arrays))
    array = arrays[name]
    how = random.randrange(6)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = array.astype(random.choice((np.int64, np.float16, np.bool_, np.uint8)))
    elif how == 2:
        arrays[name] = array[:-1] if array.ndim else array
    elif how == 3:
        arrays[name] = array[None]
    elif how == 4:
        arrays[name] = np.frombuffer(mutated(random, array.tobytes()), np.uint8)
    elif array.size and array.dtype.kind == "f":
        own = array.copy()
        own.flat[random.randrange(own.size)] = random.choice((np.nan, np.inf, -1e38, 0.0))
        arrays[name] = own
    return arrays


# --- kinds of files ---------------------------------------------------------------------------

Case = Callable[[random.Random, Path], object]


def bytes_of(name: str, load: Callable[[Path], object], target: str | None = None) -> Case:
    """Return what mutates the bytes of a file, and loads it."""
    content = (files() / name).read_bytes()

    def case(random: random.Random, folder: Path) -> object:
        path = folder / (target or name)
        path.write_bytes(mutated(random, content))
        return lambda: load(path)

    return case


def model_of(name: str, load: Callable[[Path], object]) -> Case:
    """Return what mutates a model file: its bytes, or its content with a right digest."""
    about, arrays = read_model(files() / name)
    raw = bytes_of(name, load)

    def case(random: random.Random, folder: Path) -> object:
        how = random.randrange(4)
        if how == 0:
            return raw(random, folder)
        path, text, own = folder / name, json.dumps(about), arrays
        if how == 1:
            own = with_other_array(random, arrays)
        elif how == 2:
            text = mutated(random, text.encode()).decode("utf-8", "replace")
        else:
            text = json.dumps(with_other_value(random, about))
        sign(path, text, own)
        return lambda: load(path)

    return case


def json_of(name: str, load: Callable[[Path], object], target: str | None = None) -> Case:
    """Return what mutates a JSON file: its bytes, or its content with a right digest if any."""
    text = (files() / name).read_text()
    raw = bytes_of(name, load, target)

    def case(random: random.Random, folder: Path) -> object:
        if random.randrange(4) == 0:
            return raw(random, folder)
        path, data = folder / (target or name), with_other_value(random, json.loads(text))
        if isinstance(data, dict) and "sha256" in json.loads(text):
            sign_json(path, data)
        else:
            path.write_text(json.dumps(data))
        return lambda: load(path)

    return case


X, Y, SEX = rows_of_features()


def load_mlp(path: Path) -> None:
    GroupwiseMLPClassifier.load(path).predict_proba(X, sensitive_features=SEX)


def load_trained(path: Path) -> None:
    model = GroupwiseMLPClassifier.load(path)
    encoder, _ = _training(model, path)
    features = encoder.transform(files() / "d.csv")
    model.predict_proba(features, sensitive_features=SEX)


def load_search(path: Path) -> None:
    search = FrontierSearch.load(path)
    search.predict(X, sensitive_features=SEX)
    _ = search.results_


def load_calibrator(path: Path) -> None:
    logits = np.log(np.stack([1 - X[:, 0], X[:, 0]], axis=1))
    GroupCalibrator.load(path).predict_proba(logits, sensitive_features=SEX)


def load_classifier(path: Path) -> None:
    GroupCalibratedClassifier.load(path).predict_proba(X, sensitive_features=SEX)


def load_alone(path: Path) -> None:
    known = GroupCalibratedClassifier.load(files() / "classifier").estimator_
    GroupCalibratedClassifier.load(path, estimator=known).predict_proba(X, sensitive_features=SEX)


def open_sweep(path: Path) -> None:
    Store(path.parent)
    plan(SWEEP, path.parent, DATA)


def read_part(path: Path) -> None:
    Store(path.parents[1] / "sweep").query("from runs", [KEYS[0]])


def read_rows(path: Path) -> None:
    with reader(path) as table:
        for _ in table.batches():
            pass


def merge(path: Path) -> None:
    str(merge_audits([path]))


def part_of(name: str) -> Callable[[], Case]:
    def made() -> Case:
        return bytes_of(f"sweep/{name}", read_part, f"sweep/{name}")

    return made


KINDS: dict[str, Callable[[], Case]] = {
    "model": lambda: model_of("mlp", load_mlp),
    "model of a command": lambda: model_of("model", load_trained),
    "search": lambda: model_of("search", load_search),
    "calibrator": lambda: json_of("calibrator", load_calibrator),
    "calibrators of a command": lambda: json_of("cal.json", FileCalibration.load),
    "classifier": lambda: model_of("classifier", load_classifier),
    "classifier alone": lambda: json_of("classifier.json", load_alone),
    "audit": lambda: json_of("audit.json", merge),
    "sweep.json": lambda: json_of("sweep/sweep.json", open_sweep, "sweep/sweep.json"),
    "search.json": lambda: json_of(
        "out/runs/search.json", lambda path: PartFolder(path.parent, "search"), "search.json"
    ),
    "part": part_of(f"{KEYS[0]}.parquet"),
    "checksum": part_of(f"{KEYS[0]}.checksum"),
    "TOML": lambda: bytes_of("sweep.toml", Sweep.from_toml),
    "CSV": lambda: bytes_of("d.csv", read_rows),
    "Parquet": lambda: bytes_of("d.parquet", read_rows),
}


# --- the loop ---------------------------------------------------------------------------------


def wrong_sentence(text: str) -> str:
    """Return what is wrong with a refusal."""
    if not text.strip():
        return "it says nothing"
    if "Traceback" in text or "\n" in text.strip():
        return "it is more than a sentence"
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in text):
        return "it has characters that a terminal would act on"
    return "it is long" if len(text) > 1500 else ""


def main(kind: str, cases: int, folder: Path) -> None:
    copied("sweep")(folder)
    case, refused = KINDS[kind](), 0
    for number in range(cases):
        load = case(random.Random(f"{kind} {number}"), folder)
        # a hang in a library ends the process, its stack on stderr
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(None):
                warnings.simplefilter("ignore")
                load()
        except (ValueError, TypeError, OSError) as error:
            refused += 1
            if problem := wrong_sentence(str(error)):
                sys.exit(
                    f"{kind}, case {number}: {problem}: {type(error).__name__}: {error!s:.500}"
                )
        except BaseException as error:
            print(f"{kind}, case {number}: {type(error).__name__}", file=sys.stderr)
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
    print(f"{kind}: {cases} cases, {refused} refused, {cases - refused} loaded")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
