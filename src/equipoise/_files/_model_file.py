"""A model as one file: arrays in safetensors, everything else as JSON in its header.

Loading runs no code. A digest over both parts shows a file that was damaged or edited.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files._atomic import replace_file
from equipoise._files._json import parse_json, restoring
from equipoise._files._paths import check_path
from equipoise._inputs import need

KEY = "equipoise"


def write_model(
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    extra: str = "train",
) -> None:
    """Write a model, whole or not at all; `extra` is named where safetensors is missing."""
    save = need("safetensors.numpy", extra, what="saving a model").save
    text = json.dumps(about, sort_keys=True)
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = save(whole, {KEY: text, "sha256": _digest(text, whole)})
    replace_file(Path(path), content)


def read_model(
    path: str | os.PathLike[str], *, extra: str = "train"
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what `write_model` wrote; raise ValueError for any other file."""
    safetensors = need("safetensors", extra, what="loading a model")
    with (
        restoring(f"{os.fspath(path)} is not a saved model"),
        safetensors.safe_open(os.fspath(regular_file(path)), framework="numpy") as file,
    ):
        header = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    text = header.get(KEY)
    if text is None:
        raise ValueError(f"{os.fspath(path)} was not saved by equipoise")
    if header.get("sha256") != _digest(text, arrays):
        raise ValueError(f"{os.fspath(path)} is damaged or was edited: its digest does not match")
    with restoring(f"{os.fspath(path)} is not a saved model"):
        about = parse_json(text, finite=False)
    return about, arrays


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return a path; refuse a folder, and a pipe, which would be waited for."""
    check_path(path)
    found = Path(path)
    if found.is_dir():
        raise ValueError(f"{found} is a folder; name a file")
    return found


def _digest(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
