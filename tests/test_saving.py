"""A saved classifier with its estimator: the same to the last bit, and no code runs on load."""

import inspect
import io
import json
import os
import subprocess
import sys
import threading
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import sklearn
import skops.io
import skorch
import torch
from lightgbm import LGBMClassifier, early_stopping
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.utils import all_estimators
from sklearn.utils.validation import check_is_fitted
from xgboost import XGBClassifier

from equipoise import (
    GroupCalibratedClassifier,
    GroupTemperatureScaling,
    GroupwiseMLPClassifier,
    TemperatureScaling,
)
from equipoise._files import read_model, write_model
from equipoise._inputs import InputWarning
from equipoise.calibration import METHODS
from equipoise.calibration._estimator_file import SavedLightGBM, read_estimator, write_estimator
from repair_data import sample

pytestmark = [
    pytest.mark.slow,  # files, engines and libraries at work
    pytest.mark.filterwarnings("ignore::equipoise.calibration.NoGroupsWarning"),
    pytest.mark.filterwarnings("ignore::equipoise.calibration.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore::equipoise.calibration.ClippedWarning"),
]

TREE = "sklearn.tree._tree.Tree"
FITTED = ("n_features_in_", "feature_names_in_")


def numbered(y):
    return np.unique(y, return_inverse=True)[1]


def light(**params):
    return LGBMClassifier(**{"n_estimators": 20, "n_jobs": 1, "verbose": -1, **params})


def extreme(**params):
    return XGBClassifier(**{"n_estimators": 20, "n_jobs": 1, **params})


def fitted(estimator, X, y, group, **params):
    return GroupCalibratedClassifier(estimator, cv=3, **params).fit(X, y, sensitive_features=group)


def same(ours, theirs, *arguments, **rows):
    """Assert that two classifiers give the same, to the last bit."""
    for method in ("predict_proba", "predict", "decision_function"):
        assert hasattr(ours, method) == hasattr(theirs, method), method
        if hasattr(theirs, method):
            got, want = (getattr(m, method)(*arguments, **rows) for m in (ours, theirs))
            assert got.dtype.kind == want.dtype.kind
            np.testing.assert_array_equal(got, want, err_msg=method)
    for name in FITTED:
        assert hasattr(ours, name) == hasattr(theirs, name), name
        if hasattr(theirs, name):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert ours.classes_.tolist() == theirs.classes_.tolist()


def again(path, model, X, group, **given):
    """Save, load and compare; return the loaded classifier."""
    model.save(path)
    loaded = GroupCalibratedClassifier.load(path, **given)
    same(loaded, model, X, sensitive_features=group)
    assert loaded.groups_ == model.groups_
    check_is_fitted(loaded.estimator_)
    return loaded


# --- scikit-learn ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [2, 3])
def test_one_file_holds_the_classifier(tmp_path, method, classes):
    X, y, group = sample(600, classes, groups=("f", "m", "x"))
    inner = make_pipeline(StandardScaler(), PolynomialFeatures(), LogisticRegression())
    model = fitted(inner, X, y, group, method=method, unseen_group="mixture", shrinkage=5.0)
    fresh, _, member = sample(200, classes, groups=("f", "m", "new"), seed=1)
    loaded = again(tmp_path / "model", model, fresh, member)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    same(loaded.estimator_, model.estimator_, fresh)
    params = model.get_params(deep=False)
    assert {k: v for k, v in loaded.get_params(deep=False).items() if k != "estimator"} == {
        k: v for k, v in params.items() if k != "estimator"
    }
    # and once more: it can be saved, and fitted on the same rows with the same result
    again(tmp_path / "again", loaded, fresh, member)
    same(loaded.fit(X, y, sensitive_features=group), model, fresh, sensitive_features=member)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for _, kind in all_estimators(type_filter="classifier")])
def test_every_classifier_of_scikit_learn(kind):
    first = next(iter(inspect.signature(kind).parameters))
    given = {
        "estimator": {"estimator": LogisticRegression()},
        "estimators": {"estimators": [("one", GaussianNB())]},
    }
    inner = kind(**given.get(first, {}))
    if kind is HistGradientBoostingClassifier:
        inner.set_params(max_iter=5)
    X, y, _ = sample(90, classes=2 if "Threshold" in kind.__name__ else 3)
    X = np.abs(X)  # some take counts
    if "MultiOutput" in kind.__name__ or "Chain" in kind.__name__:
        pytest.skip("it predicts several labels of each row")
    inner.fit(X, numbered(y))
    saved = write_estimator(inner)
    untrusted = skops.io.get_untrusted_types(data=saved[1]["estimator"].tobytes())
    loaded = read_estimator(*saved, untrusted)
    if kind.__name__ in ("LabelPropagation", "LabelSpreading"):
        # the last bits depend on where its arrays lie in memory, those of a pickled copy too
        got, want = (m.predict_proba(X) for m in (loaded, inner))
        np.testing.assert_allclose(got, want, rtol=1e-9)
    else:
        same(loaded, inner, X)


def test_frames_texts_and_columns_of_groups(tmp_path):
    X, y, group = sample(400)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group, job=y)
    frame.loc[::7, "job"] = "é"
    coder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    chosen = make_column_transformer((coder, ["sex", "job"]), remainder="passthrough")
    inner = make_pipeline(chosen.set_output(transform="pandas"), GaussianNB())
    model = GroupCalibratedClassifier(inner, sensitive_columns="sex", cv=3).fit(frame, y)
    model.save(tmp_path / "model")
    loaded = GroupCalibratedClassifier.load(tmp_path / "model")
    same(loaded, model, frame)
    assert loaded.feature_names_in_.tolist() == [*"abcd", "sex", "job"]


def test_a_frozen_estimator_stays_frozen(tmp_path):
    X, y, group = sample(400)
    inner = FrozenEstimator(GaussianNB().fit(X, y))
    loaded = again(tmp_path / "model", fitted(inner, X, y, group), X, group)
    assert isinstance(loaded.estimator, FrozenEstimator)
    mean = loaded.estimator_.theta_
    loaded.fit(X[:200], y[:200], sensitive_features=group[:200])
    np.testing.assert_array_equal(loaded.estimator_.theta_, mean)


# --- what has to be trusted ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "untrusted"),
    [
        (GradientBoostingClassifier(n_estimators=5, random_state=0), [TREE]),
        (RandomForestClassifier(n_estimators=5, random_state=0), [TREE]),
        (
            HistGradientBoostingClassifier(max_iter=5),
            ["sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"],
        ),
        (CalibratedClassifierCV(light(), cv=2), ["lightgbm.sklearn.LGBMClassifier"]),
        (GridSearchCV(light(), {"num_leaves": [3]}, cv=2), ["lightgbm.basic.Booster"]),
        (GroupwiseMLPClassifier(max_epochs=2), ["training._mlp.GroupwiseMLPClassifier"]),
    ],
    ids=lambda v: None if isinstance(v, list) else type(v).__name__,
)
def test_types_to_trust_are_named_when_saving_and_when_loading(tmp_path, inner, untrusted):
    X, y, group = sample(400)
    model = fitted(inner, X, y, group)
    path = tmp_path / "model"
    with pytest.warns(InputWarning, match="types that skops does not trust by itself") as caught:
        model.save(path)
    (message,) = {str(w.message) for w in caught}
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match=r"model contains types that are not trusted") as no:
        GroupCalibratedClassifier.load(path)
    for name in untrusted:
        assert name in message
        assert name in str(no.value)
    # the list that both messages give is the one that helps
    trusted = json.loads(message.partition("load it with trusted=")[2].replace("'", '"'))
    assert f"pass trusted={trusted!r}" in str(no.value)
    with pytest.raises(ValueError, match="not trusted"):
        GroupCalibratedClassifier.load(path, trusted=trusted[:-1])
    loaded = GroupCalibratedClassifier.load(path, trusted=trusted)
    same(loaded, model, X, sensitive_features=group)
    if len(trusted) == 1:
        GroupCalibratedClassifier.load(path, trusted=trusted[0])
    # or the estimator is given
    loaded = GroupCalibratedClassifier.load(path, estimator=model.estimator_)
    same(loaded, model, X, sensitive_features=group)


class OfOnesOwn(GaussianNB):
    """A classifier that is not of a library."""

    def predict_joint_log_proba(self, X):
        return super().predict_joint_log_proba(X) * 2.0


def test_a_class_of_ones_own(tmp_path):
    X, y, group = sample(300)
    model = fitted(OfOnesOwn(), X, y, group)
    name = f"{__name__}.OfOnesOwn"
    with pytest.warns(InputWarning, match=name):
        again(tmp_path / "model", model, X, group, trusted=[name])


class Stubborn(ClassifierMixin, BaseEstimator):
    """A classifier with something that no format holds."""

    def fit(self, X, y):
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = self.model_.classes_
        self.lock_ = threading.Lock()
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, X):
        return torch.softmax(self.layer(X.float()), dim=-1)


def a_network():
    torch.manual_seed(0)
    return skorch.NeuralNetClassifier(Net, max_epochs=10, lr=0.5, verbose=0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: make_pipeline(FunctionTransformer(lambda X: X), GaussianNB()), "<lambda>"),
        (Stubborn, "Stubborn cannot be saved without pickle"),
        (a_network, "networks of PyTorch, which are kept as pickles"),
    ],
    ids=["lambda", "lock", "network"],
)
def test_what_cannot_be_saved_is_refused_with_the_remedy(tmp_path, make, words):
    X, y, group = sample(300)
    y = numbered(y)
    model = fitted(make(), X, y, group)
    path = tmp_path / "model"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=words) as caught:
        model.save(path)
    assert "cannot be saved without pickle" in str(caught.value)
    assert "save the calibrators alone with save(path, estimator=False)" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    model.save(path, estimator=False)
    loaded = GroupCalibratedClassifier.load(path, estimator=model.estimator_)
    same(loaded, model, X, sensitive_features=group)


# --- boosters --------------------------------------------------------------------------------


LIGHT = {
    "plain": {},
    "best iteration": {"n_estimators": 300, "learning_rate": 0.5},
    "pred_early_stop": {
        "pred_early_stop": True,
        "pred_early_stop_freq": 1,
        "pred_early_stop_margin": 0.5,
    },
    "sigmoid": {"sigmoid": 0.7123456789, "objective": "multiclassova"},
    "linear trees": {"linear_tree": True},
    "dart": {"boosting_type": "dart"},
    "random forest": {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
}


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")  # works in all versions
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("case", LIGHT)
def test_lightgbm(case, classes):
    X, y, _ = sample(600, classes)
    X[::5, 1] = np.nan
    params = LIGHT[case]
    if classes == 2 and "objective" in params:
        params = {"sigmoid": params["sigmoid"]}
    inner = light(**params)
    if case == "best iteration":
        stop = early_stopping(3, verbose=False)
        inner.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], callbacks=[stop])
        assert 0 < inner.best_iteration_ < 100
    else:
        inner.fit(X, y)
    saved = write_estimator(inner)
    loaded = read_estimator(json.loads(json.dumps(saved[0])), saved[1])
    assert isinstance(loaded, SavedLightGBM)
    same(loaded, inner, X)
    same(loaded, inner, X.astype(np.float32))
    same(read_estimator(*write_estimator(loaded)), inner, X)
    if case == "pred_early_stop":  # what LightGBM's text alone would give
        plain = loaded.booster_.predict(X)
        assert (
            np.abs(plain - inner.predict_proba(X)[:, -1 if classes == 2 else slice(3)]).max() > 0.1
        )


def test_lightgbm_with_categories_of_a_frame(tmp_path):
    X, y, group = sample(600)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X[:, :3], columns=["a b", "c", "d"]).assign(
        town=pd.Categorical(np.where(y == "bee", "Köln", rng.choice(["Ulm", "Bonn"], 600))),
        size=pd.Categorical(rng.integers(0, 3, 600)),
    )
    model = fitted(light(min_child_samples=2), frame, y, group, method="platt")
    loaded = again(tmp_path / "model", model, frame, group)
    # categories are matched by value, in any order, and those not seen are missing
    recoded = frame.assign(
        town=pd.Categorical(frame["town"].astype(str), categories=["Ulm", "Köln", "Hof", "Bonn"])
    )
    recoded.loc[:9, "town"] = "Hof"
    same(loaded, model, recoded, sensitive_features=group)
    assert loaded.feature_names_in_.tolist() == ["a_b", "c", "d", "town", "size"]


def test_a_loaded_lightgbm_is_an_estimator(tmp_path):
    X, y, group = sample(400)
    frozen = FrozenEstimator(light().fit(X, y))
    loaded = again(tmp_path / "model", fitted(frozen, X, y, group), X, group).estimator_.estimator
    assert repr(loaded) == "SavedLightGBM()"
    assert loaded.score(X, y) == frozen.score(X, y)
    assert loaded.__sklearn_tags__().input_tags == frozen.estimator.__sklearn_tags__().input_tags
    with pytest.raises(ValueError, match="X has 3 features, but SavedLightGBM is expecting 4"):
        loaded.predict(X[:, :3])
    with pytest.raises(ValueError, match="cannot be fitted again; make a new LGBMClassifier"):
        fitted(loaded, X, y, group)
    # calibrators around a loaded model are fitted as ever
    same(
        fitted(FrozenEstimator(loaded), X, y, group),
        fitted(frozen, X, y, group),
        X,
        sensitive_features=group,
    )


def test_margins_are_used_only_where_the_saved_model_had_them():
    X, y, _ = sample(300)
    inner = light().fit(X, y)
    about, arrays = write_estimator(inner)
    assert about["margins"] is hasattr(LGBMClassifier, "decision_function")
    older = read_estimator({**about, "margins": False}, arrays)  # LightGBM before 4.7
    assert not hasattr(older, "decision_function")
    np.testing.assert_array_equal(older.predict_proba(X), inner.predict_proba(X))


EXTREME = {
    "plain": {},
    "best iteration": {"n_estimators": 300, "learning_rate": 1.0, "early_stopping_rounds": 3},
    "missing": {"missing": np.float32(-999.0)},
    "linear": {"booster": "gblinear"},
    "dart": {"booster": "dart", "rate_drop": 0.5},
    "lists": {"eval_metric": ["logloss"], "monotone_constraints": (0, 1, 0, 0)},
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("case", EXTREME)
def test_xgboost(case, classes):
    X, y, _ = sample(600, classes)
    y = numbered(y)
    X[::5, 1] = -999.0 if case == "missing" else np.nan
    params = EXTREME[case]
    if case == "lists" and classes == 3:
        params = {"objective": "multi:softmax"}
    inner = extreme(**params)
    if case == "best iteration":
        inner.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], verbose=False)
        assert inner.best_iteration < 100
    else:
        inner.fit(X, y)
    saved = write_estimator(inner)
    loaded = read_estimator(json.loads(json.dumps(saved[0])), saved[1])
    assert type(loaded) is XGBClassifier
    assert loaded.n_jobs == 1
    same(loaded, inner, X)
    same(read_estimator(*write_estimator(loaded)), inner, X)


def test_xgboost_with_categories_of_a_frame(tmp_path):
    X, y, group = sample(600)
    town = pd.Categorical(np.random.default_rng(0).choice(["Ulm", "Köln", "Bonn"], 600))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(town=town)
    model = fitted(extreme(enable_categorical=True), frame, numbered(y), group)
    loaded = again(tmp_path / "model", model, frame, group)
    assert loaded.feature_names_in_.tolist() == [*"abcd", "town"]


@pytest.mark.parametrize("make", [light, extreme])
def test_a_booster_at_the_end_of_a_pipeline_needs_no_trust(tmp_path, make):
    X, y, group = sample(400)
    y = numbered(y)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=group)
    before = make_column_transformer((OneHotEncoder(), ["sex"]), remainder=StandardScaler())
    inner = make_pipeline(before, make_pipeline(StandardScaler(with_mean=False), make()))
    model = fitted(inner, frame, y, group)
    loaded = again(tmp_path / "model", model, frame, group)
    assert list(loaded.estimator_.named_steps) == list(inner.named_steps)
    assert model.estimator_.steps[-1][1].steps[-1][1].n_features_in_ == 6, "it is left as it was"
    frozen = fitted(FrozenEstimator(model.estimator_), frame, y, group)
    again(tmp_path / "frozen", frozen, frame, group)


# --- files of others -------------------------------------------------------------------------


def planted(tmp_path, monkeypatch):
    """Plant a module that leaves a mark when it is imported or when its class is built."""
    mark = tmp_path / "mark"
    module = tmp_path / "planted.py"
    module.write_text(
        "from pathlib import Path\n"
        "from sklearn.naive_bayes import GaussianNB\n"
        f"mark = Path({str(mark)!r})\n"
        "mark.touch()\n"
        "class Planted(GaussianNB):\n"
        "    def __setstate__(self, state):\n"
        "        mark.touch()\n"
        "        super().__setstate__(state)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return mark


def exchanged(path, content):
    """Put other bytes of skops into a file, with a digest that fits."""
    about, arrays = read_model(path)
    arrays["estimator0"] = np.frombuffer(content, np.uint8)
    write_model(path, about, arrays)


def test_a_type_that_is_not_trusted_is_not_even_imported(tmp_path, monkeypatch):
    X, y, group = sample(300)
    path = tmp_path / "model"
    model = fitted(GaussianNB(), X, y, group)
    model.save(path)
    mark = planted(tmp_path, monkeypatch)
    import planted as module

    exchanged(path, skops.io.dumps(module.Planted().fit(X, y)))
    del sys.modules["planted"]
    mark.unlink()
    with pytest.raises(ValueError, match=r"not trusted: planted\.Planted; if you trust the origin"):
        GroupCalibratedClassifier.load(path)
    assert not mark.exists()
    assert "planted" not in sys.modules
    # the mark is made where it is trusted, so its absence says something
    loaded = GroupCalibratedClassifier.load(path, trusted=["planted.Planted"])
    assert mark.exists()
    same(loaded, model, X, sensitive_features=group)
    del sys.modules["planted"]


def test_functions_are_not_trusted(tmp_path):
    X, y, group = sample(300)
    path = tmp_path / "model"
    inner = make_pipeline(FunctionTransformer(np.sin), GaussianNB())  # skops trusts NumPy's
    again(path, fitted(inner, X, y, group), X, group)
    mark = tmp_path / "mark"
    evil = FunctionTransformer(os.system, kw_args={"command": f"touch {mark}"})
    exchanged(path, skops.io.dumps(make_pipeline(evil, GaussianNB())))
    with pytest.raises(ValueError, match=r"not trusted: posix\.system"):
        GroupCalibratedClassifier.load(path)
    assert not mark.exists()


def node(kind, name, **rest):
    module, _, name = name.rpartition(".")
    return {"__loader__": kind, "__module__": module, "__class__": name, **rest}


TEXT = node("TypeNode", "builtins.str")
BITS = node("JsonNode", "builtins.str", content='"seed"', is_json=True)
EMPTY = node("TupleNode", "builtins.tuple", content=[])
KEYS = node("ListNode", "builtins.list", content=[])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        # skops 0.13 imports the module before it asks, 0.14 calls numpy.random.seed
        (node("LossNode", "planted.X", __reduce__={"args": EMPTY}, content=EMPTY), "planted"),
        (
            node(
                "RandomGeneratorNode",
                "numpy.random._generator.Generator",
                content={
                    "bit_generator": node(
                        "DictNode",
                        "builtins.dict",
                        key_types={**KEYS, "content": [TEXT]},
                        content={"bit_generator": BITS},
                    ),
                    "seed_seq": node("DictNode", "builtins.dict", key_types=KEYS, content={}),
                },
            ),
            r"numpy\.random\.seed",
        ),
    ],
    ids=["import", "call"],
)
def test_files_that_older_versions_of_skops_were_fooled_by(tmp_path, monkeypatch, schema, words):
    X, y, group = sample(300)
    path = tmp_path / "model"
    fitted(GaussianNB(), X, y, group).save(path)
    mark = planted(tmp_path, monkeypatch)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("schema.json", json.dumps({**schema, "protocol": 2}))
    exchanged(path, buffer.getvalue())
    with pytest.raises(ValueError, match=words):
        GroupCalibratedClassifier.load(path)
    assert not mark.exists()


def test_a_pickled_network_is_refused_though_it_is_trusted(tmp_path):
    X, y, group = sample(300)
    path = tmp_path / "model"
    fitted(GaussianNB(), X, numbered(y), group).save(path)
    content = skops.io.dumps(a_network().fit(X, numbered(y)))
    exchanged(path, content)
    trusted = skops.io.get_untrusted_types(data=content)
    with pytest.raises(ValueError, match="contains pickles, which are never loaded"):
        GroupCalibratedClassifier.load(path, trusted=trusted)


# --- damage ----------------------------------------------------------------------------------


def test_a_file_with_any_byte_changed_is_refused(tmp_path):
    X, y, group = sample(300)
    path = tmp_path / "model"
    fitted(light(n_estimators=2), X, y, group).save(path)
    whole = path.read_bytes()
    for at in np.linspace(0, len(whole) - 1, 60).astype(int):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"model (is not a saved|is damaged|was not saved)"):
            GroupCalibratedClassifier.load(path)
    for part in (b"", whole[:100], whole[:-1], whole + b"\0"):
        path.write_bytes(part)
        with pytest.raises(ValueError, match="model is not a saved"):
            GroupCalibratedClassifier.load(path)


@pytest.mark.parametrize("make", [GaussianNB, light, extreme])
def test_an_estimator_that_cannot_be_read_is_an_error_with_the_name_of_the_file(tmp_path, make):
    X, y, group = sample(300)
    path = tmp_path / "model"
    fitted(make(), X, numbered(y), group).save(path)
    about, arrays = read_model(path)
    broken = {
        "cut": (about, {"estimator0": arrays["estimator0"][:100]}),
        "gone": (about, {}),
        "no estimator": ({**about, "estimators": None}, arrays),
        "another format": (
            {**about, "estimators": [{**about["estimators"][0], "format": "pickle"}]},
            arrays,
        ),
    }
    for content in broken.values():
        write_model(path, *content)
        with pytest.raises(ValueError, match=r"the estimator in .*model cannot be read: "):
            GroupCalibratedClassifier.load(path)
    other = {**about, "classes": ["x", "y"]}
    write_model(path, other, arrays)
    with pytest.raises(ValueError, match=r"model is not a saved Group.*classes \['x', 'y'\]"):
        GroupCalibratedClassifier.load(path)


def test_files_of_other_models_are_refused_by_their_format(tmp_path):
    X, y, group = sample(300)
    net = GroupwiseMLPClassifier(max_epochs=1).fit(X, y, sensitive_features=group)
    net.save(tmp_path / "net")
    with pytest.raises(ValueError, match=r"net is not .* format is 'equipoise\.GroupwiseMLP"):
        GroupCalibratedClassifier.load(tmp_path / "net")
    fitted(GaussianNB(), X, y, group).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"model is not .*'equipoise\.GroupCalibratedClassifier/1"):
        GroupwiseMLPClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match="nothing to save"):
        GroupCalibratedClassifier(GaussianNB()).save(tmp_path / "model")
    with pytest.raises(FileNotFoundError):
        GroupCalibratedClassifier.load(tmp_path / "nothing")


@pytest.mark.parametrize("kind", [TemperatureScaling, GroupTemperatureScaling])
def test_json_with_a_changed_number_is_refused(tmp_path, kind):
    X, y, group = sample(300)
    path = tmp_path / "t.json"
    rows = {} if kind is TemperatureScaling else {"sensitive_features": group}
    scaling = kind().fit(X[:, :2], y, **rows)
    scaling.save(path)
    text = path.read_text()
    data = json.loads(text)
    digit = str(data["temperature"])
    for edited in (
        text.replace(digit, digit + "1"),
        text.replace('"converged": true', '"converged": false'),
        json.dumps({**data, "more": 1}),
        json.dumps({k: v for k, v in data.items() if k != "n_iter"}),
        json.dumps({**data, "sha256": data["sha256"][::-1]}),
    ):
        assert edited != text
        path.write_text(edited)
        with pytest.raises(ValueError, match=r"t\.json is not a saved .*digest does not match"):
            kind.load(path)
    path.write_text(json.dumps({k: v for k, v in data.items() if k != "sha256"}))
    with pytest.raises(ValueError, match=r"t\.json is not a saved .*: it has no digest"):
        kind.load(path)
    # spaces and the order of keys are not content
    path.write_text(json.dumps(dict(reversed(data.items()))))
    assert kind.load(path).temperature_ == scaling.temperature_
    assert kind.from_dict(scaling.to_dict()).temperature_ == scaling.temperature_


# --- versions and libraries ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "libraries"),
    [
        (GaussianNB(), {"skops"}),
        (light(), {"lightgbm"}),
        (make_pipeline(StandardScaler(), extreme()), {"skops", "xgboost"}),
    ],
    ids=["sklearn", "lightgbm", "pipeline"],
)
def test_versions_are_saved_and_another_scikit_learn_is_a_warning(
    tmp_path, monkeypatch, inner, libraries
):
    X, y, group = sample(300)
    path = tmp_path / "model"
    model = fitted(inner, X, numbered(y), group)
    model.save(path)
    versions = read_model(path)[0]["estimators"][0]["versions"]
    assert set(versions) == {"equipoise", "sklearn", *libraries}
    assert versions["sklearn"] == sklearn.__version__
    monkeypatch.setattr(sklearn, "__version__", "99.1")
    monkeypatch.setattr("sklearn.base.__version__", "99.1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = GroupCalibratedClassifier.load(path)
    same(loaded, model, X, sensitive_features=group)
    said = [str(w.message) for w in caught]
    assert len(said) == ("skops" in libraries)
    for message in said:
        assert f"was saved with scikit-learn {versions['sklearn']}, and may predict" in message


@pytest.mark.parametrize(
    ("inner", "library", "words"),
    [
        (GaussianNB(), "skops", r"loading this estimator needs skops .*'equipoise\[export\]'"),
        (GaussianNB(), "safetensors", r"loading a model needs .*pip install 'equipoise\[export\]'"),
        (light(), "lightgbm", "loading this estimator needs lightgbm: pip install lightgbm"),
        (extreme(), "xgboost", "loading this estimator needs xgboost: pip install xgboost"),
    ],
    ids=["skops", "safetensors", "lightgbm", "xgboost"],
)
def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch, inner, library, words):
    X, y, group = sample(300)
    path = tmp_path / "model"
    model = fitted(inner, X, numbered(y), group)
    model.save(path)
    path.rename(tmp_path / "saved")
    for module in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=words):
        GroupCalibratedClassifier.load(tmp_path / "saved")
    if library in ("skops", "safetensors"):
        with pytest.raises(ImportError, match=r"saving .*pip install 'equipoise\[export\]'"):
            model.save(path)
        assert not path.exists()
        model.save(path, estimator=False)  # JSON needs none of them


def test_an_old_skops_is_refused(tmp_path, monkeypatch):
    X, y, group = sample(300)
    path = tmp_path / "model"
    fitted(GaussianNB(), X, y, group).save(path)
    monkeypatch.setattr(skops, "__version__", "0.14.0")
    with pytest.raises(ImportError, match=r"skops 0\.15 or later, and 0\.14\.0 is installed"):
        GroupCalibratedClassifier.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("make", [GaussianNB, light, extreme])
def test_another_process_gives_the_same(tmp_path, make):
    X, y, group = sample(300)
    model = fitted(make(), X, numbered(y), group)
    model.save(tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = """
import numpy as np
from equipoise import GroupCalibratedClassifier
model = GroupCalibratedClassifier.load("model")
member = ["f", "m"] * 150
np.save("p.npy", model.predict_proba(np.load("X.npy"), sensitive_features=member))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    np.testing.assert_array_equal(
        np.load(tmp_path / "p.npy"), model.predict_proba(X, sensitive_features=["f", "m"] * 150)
    )
