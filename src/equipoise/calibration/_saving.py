"""Estimators as JSON files: parameters, classes and calibrators, no code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from equipoise._files import replace_file
from equipoise._inputs import from_plain, to_plain

if TYPE_CHECKING:
    from equipoise.calibration._group_calibrator import GroupCalibrator


class SavedAsJson:
    """Give an estimator `to_dict`, `from_dict`, `save` and `load`.

    A subclass has `_calibrator`, which returns the fitted calibrator, and `_restore`, which sets it
    from what `to_dict` returned.
    """

    classes_: Any
    get_params: Callable[..., dict[str, Any]]
    _calibrator: Callable[[], GroupCalibrator]
    _restore: Callable[[dict[str, Any]], None]

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and calibrators as plain numbers, strings and lists."""
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"{type(self).__name__} is not fitted yet, so there is nothing to save"
            )
        return {
            "format": f"equipoise.{type(self).__name__}/1",
            "params": {name: to_plain(value) for name, value in self._plain_params().items()},
            "classes": [to_plain(value) for value in self.classes_.tolist()],
            **self._calibrator().to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Any, **given: Any) -> Self:
        """Read what `to_dict` gave; raise ValueError for anything else."""
        return cls._read("this is", lambda: data, given)

    @classmethod
    def _read(cls, what: str, data_of: Callable[[], Any], given: dict[str, Any]) -> Self:
        try:
            data = data_of()
            if data["format"] != f"equipoise.{cls.__name__}/1":
                raise ValueError(f"its format is {data['format']!r}")
            params = {name: from_plain(value) for name, value in data["params"].items()}
            restored = cls(**params, **given)
            restored.classes_ = np.array([from_plain(value) for value in data["classes"]])
            if restored.classes_.ndim != 1 or len(restored.classes_) < 2:
                raise ValueError("it has fewer than two classes")
            restored._restore(data)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{what} not a saved {cls.__name__}: {error}") from None
        return restored

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and calibrators as JSON."""
        replace_file(Path(path), json.dumps(self.to_dict(), indent=2).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str], **given: Any) -> Self:
        """Read what `save` wrote; anything else is refused."""
        text = Path(path).read_text
        return cls._read(f"{os.fspath(path)} is", lambda: json.loads(text("utf-8")), given)

    def _plain_params(self) -> dict[str, Any]:
        return self.get_params(deep=False)
