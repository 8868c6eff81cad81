"""Estimators as JSON files: parameters, classes and calibrators, no code.

A digest of the content shows a file that was damaged or edited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from equipoise._files import (
    read_json,
    regular_file,
    replace_file,
    restoring,
    sealed,
    unsealed,
)
from equipoise._inputs import from_plain, to_plain

if TYPE_CHECKING:
    from equipoise.calibration._calibrator_set import CalibratorSet


def write_json(path: str | os.PathLike[str], data: Mapping[str, Any]) -> None:
    """Write data as JSON with a digest, whole or not at all."""
    text = json.dumps(sealed(data), indent=2, allow_nan=False)
    replace_file(Path(path), text.encode())


def read_sealed(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what `write_json` wrote; raise ValueError for anything else."""
    return unsealed(read_json(path))


def is_json(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as JSON does; a model file does not."""
    with regular_file(path).open("rb") as file:
        return file.read(1) == b"{"  # else it is the length of a header, a multiple of 8


class SavedAsJson:
    """Give an estimator `to_dict`, `from_dict`, `save` and `load`.

    A subclass has `_calibrator`, which returns the fitted calibrator, and `_restore`, which sets it
    from what `to_dict` returned.
    """

    classes_: Any
    get_params: Callable[..., dict[str, Any]]
    _calibrator: Callable[[], CalibratorSet]
    _restore: Callable[[dict[str, Any]], None]

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and calibrators as plain numbers, strings and lists."""
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"{type(self).__name__} is not fitted yet, so there is nothing to save"
            )
        return {
            "format": self._format(),
            "params": {name: to_plain(value) for name, value in self._plain_params().items()},
            "classes": [to_plain(value) for value in self.classes_.tolist()],
            **self._fitted(),
        }

    def _fitted(self) -> dict[str, Any]:
        """Return what was fitted, as plain values."""
        return self._calibrator().to_dict()

    @classmethod
    def from_dict(cls, data: Any, **given: Any) -> Self:
        """Read what `to_dict` gave; raise ValueError for anything else."""
        return cls._read("this is", lambda: data, given)

    @classmethod
    def _read(cls, what: str, data_of: Callable[[], Any], given: dict[str, Any]) -> Self:
        with restoring(f"{what} not a saved {cls.__name__}"):
            data = data_of()
            if data["format"] != cls._format():
                raise ValueError(f"its format is {data['format']!r}")
            params = {name: from_plain(value) for name, value in data["params"].items()}
            restored = cls(**params, **given)
            restored.classes_ = np.array([from_plain(value) for value in data["classes"]])
            if restored.classes_.ndim != 1 or len(set(restored.classes_.tolist())) < 2:
                raise ValueError("it has fewer than two classes")
            restored._restore(data)
        return restored

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and calibrators as JSON, with a digest."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str], **given: Any) -> Self:
        """Read what `save` wrote; anything else, and a file that was changed, is refused."""
        return cls._read(f"{os.fspath(path)} is", lambda: read_sealed(path), given)

    @classmethod
    def _format(cls) -> str:
        return f"equipoise.{cls.__name__}/1"

    def _plain_params(self) -> dict[str, Any]:
        return self.get_params(deep=False)
