"""A fitted estimator as bytes, without pickle: scikit-learn's by skops, boosters in their formats.

Reading runs no code of the file. skops builds objects of types that it trusts, and of those that
the caller names; LightGBM and XGBoost parse their models. A format works on one estimator; what
JSON holds of it is "about", the rest are byte strings.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from equipoise._inputs import (
    InputError,
    InputWarning,
    from_plain,
    need,
    shown,
    to_plain,
    warn_caller,
)

Bytes = NDArray[np.uint8]
Parts = dict[str, bytes]

ALONE = (
    "save the calibrators alone with save(path, estimator=False), and pass the fitted estimator "
    "to load(path, estimator=...)"
)
PICKLES = {"skorch", "torch"}
"""Libraries whose objects hold pickles, which skops would store as plain bytes."""


def write_estimator(
    estimator: Any, name: str = "estimator"
) -> tuple[dict[str, Any], dict[str, Bytes]]:
    """Return what JSON holds of a fitted estimator, and its bytes as arrays.

    Raises InputError if it cannot be saved without pickle; warns if it can be loaded only with
    `trusted=`. The arrays' names begin with `name`, so that a file can hold several estimators.
    """
    versions = {"equipoise": need("equipoise").__version__, "sklearn": sklearn.__version__}
    about, parts = _written(estimator, name, versions)
    arrays = {part: np.frombuffer(content, np.uint8) for part, content in parts.items()}
    return {**about, "versions": versions}, arrays


def read_estimator(
    about: Any,
    arrays: Mapping[str, Bytes],
    trusted: str | Sequence[str] = (),
    source: str = "the file",
) -> Any:
    """Return the fitted estimator that `write_estimator` took; raise ValueError for anything else.

    `trusted` are the names of types that skops may build beside those it trusts by itself. A type
    that is not trusted is an InputError, raised before anything of its part is built.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # about pickle; see below
            names = {trusted} if isinstance(trusted, str) else set(trusted)
            estimator = _read(about, arrays, names, source)
            versions = {str(k): shown(str(v)) for k, v in about["versions"].items()}
    except (InputError, ImportError):
        raise
    except Exception as error:  # of other libraries, about bytes of any kind
        reason = shown(" ".join(str(error).split())[:300])
        raise ValueError(f"the estimator in {source} cannot be read: {reason}") from None
    made = versions.get("sklearn", "unknown")
    if "skops" in versions and made != sklearn.__version__:
        problem = (
            f"the estimator in {source} was saved with scikit-learn {made}, and may predict "
            f"something else with {sklearn.__version__}"
        )
        warn_caller(InputWarning(problem, "install the version it was saved with, or fit it again"))
    return estimator


def _written(estimator: Any, name: str, versions: dict[str, str]) -> tuple[dict[str, Any], Parts]:
    kind = _format_of(estimator)
    if kind == "frozen":
        inner, parts = _written(estimator.estimator, name, versions)
        return {"format": kind, "estimator": inner}, parts
    if kind == "pipeline":
        *others, (last, model) = estimator.steps
        shell = copy.copy(estimator)
        shell.steps = [*others, (last, "passthrough")]
        steps, parts = _written(shell, name, versions)
        inner, more = _written(model, f"{name}.last", versions)
        return {"format": kind, "steps": steps, "estimator": inner}, parts | more
    try:
        if kind == "lightgbm":
            about, content = _from_lightgbm(estimator)
        elif kind == "xgboost":
            about, content = _from_xgboost(estimator)
        else:
            about, content = {}, _from_sklearn(estimator)
    except (ImportError, InputWarning):
        raise
    except Exception as error:  # of other libraries, about objects of any kind
        problem = f"{type(estimator).__name__} cannot be saved without pickle: {error}"
        raise InputError(problem, ALONE) from None
    versions[kind] = need(kind).__version__
    return {"format": kind, "part": name, **about}, {name: content}


def _read(about: Any, arrays: Mapping[str, Bytes], trusted: set[str], source: str) -> Any:
    kind = about["format"]
    if kind == "frozen":
        return FrozenEstimator(_read(about["estimator"], arrays, trusted, source))
    if kind == "pipeline":
        shell = _read(about["steps"], arrays, trusted, source)
        model = _read(about["estimator"], arrays, trusted, source)
        shell.steps = [*shell.steps[:-1], (shell.steps[-1][0], model)]
        return shell
    content = arrays[about["part"]].tobytes()
    if kind == "lightgbm":
        return SavedLightGBM()._restore(content, about)
    if kind == "xgboost":
        return _to_xgboost(content, about)
    if kind == "skops":
        return _to_sklearn(content, trusted, source)
    raise ValueError(f"its format is {kind!r}")


def _format_of(estimator: Any) -> str:
    kind = type(estimator)
    # a subclass may predict otherwise, so it is left to skops
    own = {
        "lightgbm.sklearn.LGBMClassifier": "lightgbm",
        "xgboost.sklearn.XGBClassifier": "xgboost",
        f"{__name__}.SavedLightGBM": "lightgbm",
        "sklearn.frozen._frozen.FrozenEstimator": "frozen",
    }.get(f"{kind.__module__}.{kind.__qualname__}", "skops")
    if isinstance(estimator, Pipeline) and _format_of(estimator.steps[-1][1]) != "skops":
        return "pipeline"
    return own


# --- scikit-learn ----------------------------------------------------------------------------


def _skops(what: str) -> Any:
    # 0.13 imports modules that a file names before it looks whether they are trusted, and 0.14
    # calls functions of numpy.random
    return need("skops.io", "export", "0.15", what=what)


def _from_sklearn(estimator: Any) -> bytes:
    skops = _skops("saving an estimator")
    content: bytes = skops.dumps(estimator)
    untrusted = skops.get_untrusted_types(data=content)
    if _pickled(untrusted):
        raise TypeError("it contains networks of PyTorch, which are kept as pickles")
    skops.loads(content, trusted=untrusted)  # a lambda, say, is written but cannot be read
    if untrusted:
        problem = (
            f"{type(estimator).__name__} contains types that skops does not trust by itself, so "
            f"the file can be loaded only by those who trust it: {', '.join(untrusted)}"
        )
        warn_caller(InputWarning(problem, f"load it with trusted={untrusted!r}"))
    return content


def _pickled(kinds: Sequence[str]) -> bool:
    return any(kind.partition(".")[0] in PICKLES for kind in kinds)


def _to_sklearn(content: bytes, trusted: set[str], source: str) -> Any:
    skops = _skops("loading this estimator")
    found = skops.get_untrusted_types(data=content)
    if unknown := [kind for kind in found if kind not in trusted]:
        raise InputError(
            f"the estimator in {source} contains types that are not trusted: {', '.join(unknown)}",
            f"if you trust the origin of the file, pass trusted={found!r}; else pass the fitted "
            "estimator as estimator=",
        )
    if _pickled(found):
        raise InputError(f"{source} contains pickles, which are never loaded", ALONE)
    return skops.loads(content, trusted=found)


# --- boosters --------------------------------------------------------------------------------


def _from_lightgbm(estimator: Any) -> tuple[dict[str, Any], bytes]:
    names = getattr(estimator, "feature_names_in_", None)
    about = {
        "classes": [to_plain(label) for label in estimator.classes_.tolist()],
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
        # LightGBM has decision_function from 4.7 on, and calibrators were fitted on its scores
        "margins": hasattr(estimator, "decision_function"),
        "options": _prediction_options(estimator),
    }
    # the trees up to the best iteration, with 17 digits, and the categories of a pandas frame
    return about, estimator.booster_.model_to_string().encode()


def _prediction_options(estimator: Any) -> dict[str, Any]:
    """Return the parameters that LightGBM's text leaves out and that its predictions depend on."""
    if isinstance(estimator, SavedLightGBM):
        return dict(estimator.options_)
    params = estimator.get_params()
    options = {k: v for k, v in params.items() if k.startswith(("pred_", "predict_"))}
    if params["n_jobs"] is not None and params["n_jobs"] > 0:
        options["num_threads"] = params["n_jobs"]
    return {name: to_plain(value) for name, value in options.items()}


class SavedLightGBM(ClassifierMixin, BaseEstimator):
    """An `LGBMClassifier` that was read from a file: it predicts the same, and is not fitted again.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : those of the `LGBMClassifier`
    booster_ : its `lightgbm.Booster`
    options_ : dict of its parameters that predictions depend on
    """

    def _restore(self, content: bytes, about: Mapping[str, Any]) -> SavedLightGBM:
        lightgbm = need("lightgbm", what="loading this estimator")
        self.booster_ = lightgbm.Booster(model_str=content.decode())
        self.classes_ = np.array([from_plain(label) for label in about["classes"]])
        self.n_features_in_ = about["n_features"]
        if about["feature_names"] is not None:
            self.feature_names_in_ = np.array(about["feature_names"])
        self.options_, self._margins = about["options"], about["margins"]
        return self

    def __sklearn_tags__(self) -> Any:
        """Allow missing values and sparse matrices."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any) -> SavedLightGBM:  # noqa: ARG002
        """Raise: the file has no parameters of the training."""
        raise InputError(
            "a LightGBM model that was read from a file cannot be fitted again",
            "make a new LGBMClassifier, or keep this one as it is in a FrozenEstimator",
        )

    def _predicted(self, X: Any, *, raw_score: bool = False) -> NDArray[np.float64]:
        check_is_fitted(self)
        if not nw.dependencies.is_into_dataframe(X):  # as LightGBM does
            X = validate_data(self, X, reset=False, accept_sparse=True, ensure_all_finite=False)
        return np.asarray(self.booster_.predict(X, raw_score=raw_score, **self.options_))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, classes)."""
        prob = self._predicted(X)
        return prob if prob.ndim == 2 else np.vstack((1.0 - prob, prob)).transpose()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable labels."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    @available_if(lambda self: self._margins)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the margins: (n,) for two classes, else (n, classes)."""
        return self._predicted(X, raw_score=True)


def _from_xgboost(estimator: Any) -> tuple[dict[str, Any], bytes]:
    # `missing` and `n_jobs` matter to predictions; lists and functions only to `fit`
    kinds = int | float | str | np.generic
    plain = {k: to_plain(v) for k, v in estimator.get_params().items() if isinstance(v, kinds)}
    params = {k: v for k, v in plain.items() if v == v}  # nan is the default of `missing`
    return {"params": params}, bytes(estimator.get_booster().save_raw("json"))


def _to_xgboost(content: bytes, about: Mapping[str, Any]) -> Any:
    xgboost = need("xgboost", what="loading this estimator")
    # parsed here first: XGBoost takes what a file cut short leaves of a number for a size, and
    # allocates that, and its other format cannot be checked
    json.loads(content)
    estimator = xgboost.XGBClassifier(**about["params"])
    estimator.load_model(bytearray(content))
    return estimator
