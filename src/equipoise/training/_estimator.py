"""Base of the classifiers that are fitted with groups: scikit-learn's tags, and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from equipoise._files import read_model, restoring
from equipoise._inputs import from_plain, to_plain
from equipoise.training._rho import rho_from_plain, rho_to_plain

SAVED_AS = {"cv": int, "progress": bool, "random_state": int, "folder": str}
"""Parameters that also take objects, which are not saved, and the type that is."""


class GroupEstimator(ClassifierMixin, BaseEstimator):
    """Base of the classifiers that are fitted with groups.

    A subclass has `_format`, the name of its file format; `_check_params`; and `_restore`, which
    takes what was fitted from a file.
    """

    _format: ClassVar[str]

    def __sklearn_tags__(self) -> Any:
        """Allow missing values."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _hidden(self) -> list[Any]:
        """Return `hidden_layer_sizes` as a list; a single number is one layer."""
        return np.atleast_1d(self.hidden_layer_sizes).tolist()  # type: ignore[no-any-return]

    def _header(self) -> dict[str, Any]:
        """Return format, parameters, labels, groups and feature names, as JSON holds them."""
        params = self.get_params()
        rho = rho_to_plain(params.pop("rho"))
        for name, kind in SAVED_AS.items():
            if not isinstance(params.get(name), kind | np.integer | None):
                del params[name]
        return {
            "format": self._format,
            "params": {k: to_plain(v) for k, v in params.items()} | {"rho": rho},
            "classes": [to_plain(v) for v in self.classes_.tolist()],
            "groups": [to_plain(g) for g in self.groups_],
            "reference": to_plain(self.reference_group_),
            "features": getattr(self, "feature_names_in_", np.array([])).tolist() or None,
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; any other file is refused."""
        about, arrays = read_model(path)
        with restoring(f"{os.fspath(path)} is not a saved {cls.__name__}"):
            return cls._from_file(about, arrays)

    @classmethod
    def _from_file(cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        if about["format"] != cls._format:
            raise ValueError(f"its format is {about['format']!r}")
        params = {k: from_plain(v) for k, v in about["params"].items()}
        restored = cls(**params | {"rho": rho_from_plain(about["params"]["rho"])})
        restored._check_params()
        restored.classes_ = np.array([from_plain(v) for v in about["classes"]])
        restored.groups_ = [from_plain(g) for g in about["groups"]]
        restored.reference_group_ = from_plain(about["reference"])
        if restored.classes_.ndim != 1 or len(set(restored.classes_.tolist())) < 2:
            raise ValueError("it has fewer than two classes")
        if restored.reference_group_ not in (restored.groups_ or [None]):
            raise ValueError("its reference group is none of its groups")
        restored._restore(about, arrays)
        if about["features"] is not None:
            names = [str(name) for name in about["features"]]
            if len(names) != restored.n_features_in_:
                raise ValueError(f"it names {len(names)} features of {restored.n_features_in_}")
            restored.feature_names_in_ = np.array(names, dtype=object)
        return restored
