"""One small file of every kind that is loaded, and ways to forge it with a right digest."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fault_harness import people, prepare, run_here
from safetensors.numpy import save
from sklearn.linear_model import LogisticRegression

from equipoise import FrontierSearch, GroupCalibratedClassifier, GroupwiseMLPClassifier
from equipoise._files import read_model
from equipoise._files._model_file import KEY, _digest
from equipoise.calibration import GroupCalibrator
from equipoise.sweep import plan, run
from sweep_data import DATA, SWEEP

KEYS = [part.key for part in SWEEP.parts(DATA)]
KNOWN = ("--label", "y", "--group", "sex", "--drop", "p")
SEARCH = ("search", "d.csv", *KNOWN, "--loss", "ce", "--lam", "1", "--n-seeds", "1")
SEARCH += ("--max-epochs", "1", "--calibrate", "none", "--rho", "none", "--out", "out")


@functools.cache
def files() -> Path:
    """Return a folder with all of them, made once and not to be changed."""
    folder = Path(tempfile.mkdtemp(prefix="equipoise-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepare(folder, model=True)
        code, said = run_here(SEARCH, folder)
        assert code == 0, said
        _estimators(folder)
    run(plan(SWEEP, folder / "sweep", DATA)[1], progress=False)
    text = "\n".join(f"{k} = {json.dumps(v)}" for k, v in SWEEP.to_dict().items())
    (folder / "sweep.toml").write_text(text)
    return folder


def rows_of_features() -> tuple[Any, Any, Any]:
    """Return features, labels and groups."""
    frame = people()
    return frame[["p", "age"]].to_numpy(), frame["y"].to_numpy(), frame["sex"].to_numpy()


def _estimators(folder: Path) -> None:
    X, y, sex = rows_of_features()
    known = {"sensitive_features": sex}
    small = {"hidden_layer_sizes": (2,), "max_epochs": 1, "random_state": 0}
    GroupwiseMLPClassifier(**small).fit(X, y, **known).save(folder / "mlp")
    options = {"loss": ["ce"], "lam": [1.0], "n_seeds": 1, "min_group_size": 1}
    search = FrontierSearch(**small, **options, progress=False)
    search.fit(X, y, **known).save(folder / "search")
    logits = np.log(np.stack([1 - X[:, 0], X[:, 0]], axis=1))
    GroupCalibrator().fit(logits, y, **known).save(folder / "calibrator")
    model = GroupCalibratedClassifier(LogisticRegression(), cv=2).fit(X, y, **known)
    model.save(folder / "classifier")
    model.save(folder / "classifier.json", estimator=False)


def copied(*names: str) -> Callable[[Path], None]:
    """Return what copies some of the files or folders into that of a row."""

    def arrange(folder: Path) -> None:
        for name in names:
            source, target = files() / name, folder / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

    return arrange


def forged(
    name: str,
    change: Callable[[dict[str, Any], dict[str, Any]], object] = lambda *_: None,
    text: Callable[[str], str] = lambda text: text,
) -> Callable[[Path], None]:
    """Return what copies a model file, changed, its digest right.

    `change` works on what JSON holds and on the arrays, `text` on the JSON itself.
    """

    def arrange(folder: Path) -> None:
        about, arrays = read_model(files() / name)
        change(about, arrays)
        sign(folder / name, text(json.dumps(about)), arrays)

    return arrange


def sign(path: Path, text: str, arrays: dict[str, Any]) -> None:
    """Write a model file of any text, with its digest."""
    path.write_bytes(save(arrays, {KEY: text, "sha256": _digest(text, arrays)}))


def sign_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file of any content, with its digest."""
    data = {name: value for name, value in data.items() if name != "sha256"}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**data, "sha256": hashlib.sha256(text.encode()).hexdigest()}))
