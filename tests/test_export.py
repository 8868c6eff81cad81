"""Calibrators in SQL and ONNX give the numbers of Python, or nothing is written."""

import json
import re
import shlex
import shutil
import sys
import warnings
from pathlib import Path

import duckdb
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import sqlglot
from click.testing import CliRunner
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from equipoise import (
    GroupCalibratedClassifier,
    GroupTemperatureScaling,
    GroupwiseMLPClassifier,
    TemperatureScaling,
)
from equipoise._inputs import text_of
from equipoise.calibration import (
    METHODS,
    ExportError,
    FileCalibration,
    GroupCalibrator,
    OnnxGraph,
    UnseenGroupError,
    _export_onnx,
    _export_sql,
    _sql_trees,
    run_onnx,
)
from equipoise.calibration._calibrator_set import CalibratorSet
from equipoise.calibration._calibrators import OneVsRest, Steps, Temperature
from equipoise.calibration._export import Exportable, grid_of
from equipoise.calibration._export_sql import DIALECTS
from equipoise.cli import main
from repair_data import sample

pytestmark = [
    pytest.mark.slow,  # files, engines and libraries at work
    pytest.mark.filterwarnings("ignore::equipoise.calibration.CalibrationWarning"),
]

FAST = {2: {"temperature", "bcts", "platt"}, 3: {"bcts"}}
"""Methods whose queries are short, by the number of classes."""

ODD = ("it's; DROP TABLE x --", 'a\\b\n"c"', "é ☃")


def rows(k=2, n=600, groups=ODD, seed=0, *, from_proba=True):
    """Return scores, labels and groups that one calibrator for all does not fit."""
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.normal(size=(n, k))
    place = rng.integers(0, len(groups), n)
    member = np.empty(n, dtype=object)
    member[:] = [groups[i] for i in place]
    y = (z * (0.5 + 0.4 * place)[:, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    return softmax(z, axis=1) if from_proba else z, y, member


def fit(k=2, *, method="bcts", groups=ODD, from_proba=True, **params):
    X, y, a = rows(k, groups=groups, from_proba=from_proba)
    made = GroupCalibrator(method=method, shrinkage=5.0, from_proba=from_proba, **params)
    return made.fit(X, y, sensitive_features=columns_of(a))


def columns_of(groups):
    """Return groups as `sensitive_features` takes them; tuples become columns."""
    if isinstance(groups[0], tuple):
        return pd.DataFrame(list(groups)).rename(columns=str)
    return pd.Series(list(groups), dtype=object)


def in_duckdb(exported, X, groups):
    """Run a query that an export gives, over rows; return its calibrated columns."""
    values = X.reshape(len(X), -1)
    if len(exported.prob) == 1 and values.shape[1] == 2:
        values = values[:, 1:]
    table = pd.DataFrame(dict(zip(exported.prob, values.T, strict=True)))
    wide = [g if isinstance(g, tuple) else (g,) for g in groups]
    for j, name in enumerate(exported.group):
        table[name] = [row[j] for row in wide]
    with duckdb.connect() as connection:
        connection.register("predictions", table)
        found = connection.execute(exported.query()).fetch_df()
    return found[[f"calibrated_{name}" for name in exported.prob]].to_numpy(float)


def in_onnx(model, X, groups=None, name="scores"):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: X}
    names = [i.name for i in session.get_inputs()][1:]
    for j, own in enumerate(names):
        parts = [(g if isinstance(g, tuple) else (g,))[j] for g in groups]
        feeds[own] = np.array([text_of(v) or "" for v in parts], dtype=object)
    return session.run(None, feeds)[0]


# --- the same numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["error", "global", "mixture"])
@pytest.mark.parametrize("from_proba", [True, False])
@pytest.mark.parametrize(
    ("k", "method"),
    [
        pytest.param(k, m, marks=[pytest.mark.slow] * (m not in FAST[k]))
        for k in (2, 3)
        for m in METHODS
    ],
)
def test_the_numbers_of_python(k, method, from_proba, policy):
    fitted = fit(k, method=method, from_proba=from_proba, unseen_group=policy)
    X, _, a = rows(k, 300, seed=1, from_proba=from_proba)
    if policy != "error":
        a[::5], a[1::5] = "another", None
    expected = fitted.predict_proba(X, sensitive_features=a)
    if not (k == 3 and method == "isotonic" and (policy != "error" or not from_proba)):
        # (those are long queries, and differ from others only in parts that others have)
        names = [f"p{j}" for j in range(k)]
        found = in_duckdb(fitted.to_sql(prob=names), X, a)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)
    model = fitted.to_onnx()
    np.testing.assert_allclose(in_onnx(model, X, a), expected, rtol=0.0, atol=1e-12)
    if k == 2:
        one = X[:, 1] if from_proba else X[:, 1] - X[:, 0]
        expected = fitted.predict_proba(one, sensitive_features=a)
        found = in_duckdb(fitted.to_sql(), one, a)
        np.testing.assert_allclose(found[:, 0], expected[:, 1], rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(in_onnx(model, one[:, None], a), expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(
    "groups",
    [
        (1, 2, 30),
        (-1, 0),
        (True, False),
        (0.5, 1.0, -2.25),
        (("f", 1), ("m", 1), ("f", 2)),
        (("it's", True, 0.5), ("x", False, 0.5)),
        ("01", "1"),
        (" f", "f "),
        tuple(f"g{i}" for i in range(40)),
    ],
    ids=str,
)
def test_groups_of_every_type(groups):
    fitted = fit(groups=groups, unseen_group="error")
    X, _, a = rows(n=100, groups=groups, seed=2)
    expected = fitted.predict_proba(X, sensitive_features=columns_of(a))
    found = in_duckdb(fitted.to_sql(prob=("p0", "p1")), X, a)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)
    if groups == (" f", "f "):  # the same text, once spaces are removed
        session = {"scores": X, "group": a}
        found = onnxruntime.InferenceSession(fitted.to_onnx().SerializeToString()).run(
            None, session
        )[0]
    else:
        found = in_onnx(fitted.to_onnx(), X, a)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)


def test_texts_that_stand_for_the_same_group_in_onnx():
    model = fit(groups=(1.0, 2.5)).to_onnx()
    X = np.full((3, 1), 0.7)
    found = in_onnx(model, X, ["1", "1.0", "1.00"])
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()
    session = onnxruntime.InferenceSession(fit(groups=(True, False)).to_onnx().SerializeToString())
    group = np.array(["true", "True", "yes"], dtype=object)
    found = session.run(None, {"scores": X, "group": group})[0]
    assert found[0].tolist() == found[1].tolist()
    assert np.isnan(found[2]).all()
    with pytest.raises(ValueError, match=r"the empty text, which is a missing one in ONNX"):
        fit(groups=("", "x")).to_onnx()


def test_hundreds_of_thresholds():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.normal(0.0, 3.0, 150))
    steps = OneVsRest((Steps(tuple(ends.tolist()), tuple(np.linspace(0.02, 0.98, 150).tolist())),))
    fitted = fit(method="isotonic", groups=("f", "m"))
    fitted.calibrators_ = {"f": steps, "m": Temperature(2.0)}
    p = expit(np.concatenate([ends, rng.normal(0.0, 4.0, 650)]))
    a = np.array(["f", "m"] * 400)
    expected = fitted.predict_proba(p, sensitive_features=a)
    found = in_duckdb(fitted.to_sql(), p, a)
    np.testing.assert_allclose(found[:, 0], expected[:, 1], rtol=0.0, atol=1e-12)
    found = in_onnx(fitted.to_onnx(), p[:, None], a)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)


def test_curves_with_equal_thresholds_and_with_one():
    jump = OneVsRest((Steps((-1.0, 0.5, 0.5, 2.0), (0.1, 0.2, 0.7, 0.9)),))
    level = OneVsRest((Steps((0.0,), (0.3,)),))
    fitted = fit(method="isotonic", groups=("f", "m"), from_proba=False)
    fitted.calibrators_, fitted.calibrator_ = {"f": jump, "m": level}, level
    z = np.array([-3.0, -1.0, 0.0, 0.5, np.nextafter(0.5, 0.0), 1.0, 2.0, 9.0])
    for group in "fm":
        a = [group] * len(z)
        expected = fitted.predict_proba(z, sensitive_features=a)
        found = in_duckdb(fitted.to_sql(), z, a)
        np.testing.assert_allclose(found[:, 0], expected[:, 1], atol=1e-12)
        np.testing.assert_allclose(in_onnx(fitted.to_onnx(), z[:, None], a), expected, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("from_proba", [True, False])
def test_scalers(k, from_proba):
    X, y, a = rows(k, from_proba=from_proba)
    names = [f"p{j}" for j in range(k)]
    one = TemperatureScaling(from_proba=from_proba).fit(X, y)
    exported = one.to_sql(prob=names)
    assert exported.group == ()
    np.testing.assert_allclose(in_duckdb(exported, X, a), one.predict_proba(X), atol=1e-12)
    np.testing.assert_allclose(in_onnx(one.to_onnx(), X), one.predict_proba(X), atol=1e-12)
    with pytest.raises(ValueError, match="fitted without groups; leave group= out"):
        one.to_sql(group="sex")
    each = GroupTemperatureScaling(from_proba=from_proba).fit(X, y, sensitive_features=a)
    expected = each.predict_proba(X, sensitive_features=a)
    np.testing.assert_allclose(in_duckdb(each.to_sql(prob=names), X, a), expected, atol=1e-12)
    np.testing.assert_allclose(in_onnx(each.to_onnx(), X, a), expected, atol=1e-12)


def test_fitted_without_groups():
    X, y, _ = rows()
    fitted = GroupCalibrator(method="platt", from_proba=True).fit(X, y)
    expected = fitted.predict_proba(X)
    np.testing.assert_allclose(
        in_duckdb(fitted.to_sql(prob=["a", "b"]), X, y), expected, atol=1e-12
    )
    np.testing.assert_allclose(in_onnx(fitted.to_onnx(), X), expected, atol=1e-12)


@pytest.mark.parametrize("inner", [LogisticRegression(), RandomForestClassifier(5, random_state=0)])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_scores_of_a_classifier(inner, classes):
    X, y, a = sample(400, classes)
    model = GroupCalibratedClassifier(inner, method="bcts", cv=3).fit(X, y, sensitive_features=a)
    expected = model.predict_proba(X, sensitive_features=a)
    if isinstance(inner, RandomForestClassifier):
        scores = model.estimator_.predict_proba(X)
    else:
        scores = model.estimator_.decision_function(X)
    names = [f"s{k}" for k in range(classes)]
    exported = model.to_sql(prob=names[:1] if scores.ndim == 1 else names, group="sex")
    found = in_duckdb(exported, scores, a)
    np.testing.assert_allclose(found, expected[:, -found.shape[1] :], rtol=0.0, atol=1e-12)
    assert list(exported.expressions) == model.classes_.tolist()
    found = in_onnx(model.to_onnx(), scores.reshape(len(X), -1), a)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)


# --- rows without a number -------------------------------------------------------------------


@pytest.mark.parametrize("from_proba", [True, False])
def test_rows_without_valid_scores_get_no_number(from_proba):
    fitted = fit(groups=("f", "m"), from_proba=from_proba, unseen_group="global")
    bad = [np.nan, np.inf, -np.inf] + [-0.01, 1.01] * from_proba
    p = np.array([0.5, *bad])
    found = in_duckdb(fitted.to_sql(), p, ["f"] * len(p))[:, 0]
    assert np.isnan(found).tolist() == [False] + [True] * len(bad)
    found = in_onnx(fitted.to_onnx(), p[:, None], ["f"] * len(p))
    assert np.isnan(found).all(axis=1).tolist() == [False] + [True] * len(bad)
    text = fitted.to_sql().expression
    null = duckdb.sql(f"select {text} from (select null as p, null as logit, 'f' as \"group\")")
    assert null.fetchall() == [(None,)]
    found = in_onnx(fitted.to_onnx(), np.array([[0.3, 0.3, 0.7]]), "f")
    assert np.isnan(found).all()  # one column too many
    if from_proba:
        X = np.array([[0.3, 0.7], [0.3, 0.6], [0.3, 0.7005]])
        for found in (
            in_duckdb(fitted.to_sql(prob=["a", "b"]), X, "fff"),
            in_onnx(fitted.to_onnx(), X, "fff"),
        ):
            assert np.isnan(found).all(axis=1).tolist() == [False, True, False]


def test_a_new_group_under_the_policy_error():
    fitted = fit(groups=(("f", 1), ("m", 2)))
    exported = fitted.to_sql(group=("sex", "site"))
    p, known = np.array([0.2, 0.8]), [("f", 1), ("m", 2)]
    assert in_duckdb(exported, p, known).shape == (2, 1)
    for new in (("f", 2), ("x", 1), (None, 1), ("f", None)):
        with pytest.raises(duckdb.Error, match="no calibrator was fitted for the group"):
            in_duckdb(exported, p, [known[0], new])
    assert "A new or missing group: an error" in exported.query()
    for dialect, (_, function) in DIALECTS.items():
        other = fitted.to_sql(dialect)
        assert (f"{function}(" in other.expression) == (function is not None)
        assert ("an error" in other.query()) == (function is not None)
    found = in_onnx(fitted.to_onnx(), np.full((4, 1), 0.2), [("f", 1), ("f", 2), ("x", 1), ("", 1)])
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True, True]
    with pytest.raises(UnseenGroupError):
        fitted.predict_proba(p, sensitive_features=columns_of([("f", 2), ("f", 1)]))


def test_clipping_is_that_of_python():
    fitted = fit(method="platt", groups=("f", "m"))
    p = np.array([0.0, 1e-300, 1e-7, 1e-6, 1.0 - 1e-7, 1.0])
    expected = fitted.predict_proba(p, sensitive_features=["f"] * 6)
    found = in_duckdb(fitted.to_sql(), p, ["f"] * 6)[:, 0]
    np.testing.assert_allclose(found, expected[:, 1], atol=1e-12)
    assert found[0] == found[1] > 0.0


def test_columns_of_other_numeric_types():
    fitted = fit(groups=(1, 2))
    text = fitted.to_sql().expression
    expected = fitted.predict_proba([0.25], sensitive_features=[1])[0, 1]
    for p in ("0.25::FLOAT", "0.25::DECIMAL(5, 4)", "'0.25'"):
        for group in ("1::TINYINT", "1.0::DOUBLE", "1::DECIMAL(4, 2)", "1::HUGEINT"):
            query = f'select {text} from (select {p} as p, {group} as "group")'
            assert duckdb.sql(query).fetchall()[0][0] == pytest.approx(expected, abs=1e-12)


# --- dialects --------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects_parse_and_keep_every_value(dialect):
    fitted = fit(3)
    exported = fitted.to_sql(dialect, prob=['odd "p"', "q`", "r"], group="it's")
    tree = sqlglot.parse_one(exported.query("a.b"), dialect=dialect)
    columns = {c.name for c in tree.find_all(sqlglot.exp.Column)}
    assert columns == {'odd "p"', "q`", "r", "it's"}
    literals = {c.this for c in tree.find_all(sqlglot.exp.Literal) if c.is_string}
    assert set(ODD) <= literals
    numbers = {repr(c.temperature) for c in fitted.calibrators_.values()}
    assert numbers <= literals
    # every number with a fraction is a DOUBLE
    assert not [
        c for c in tree.find_all(sqlglot.exp.Literal) if not c.is_string and not c.this.isdigit()
    ]
    assert [e.alias for e in tree.expressions[1:]] == [f"calibrated_{p}" for p in exported.prob]
    assert exported.verified == (dialect == "duckdb")
    words = f"Verified in DuckDB {duckdb.__version__}"
    if dialect != "duckdb":
        words = f"Not verified: no {DIALECTS[dialect][0]} was run."
    assert exported.query().split("\n")[1].startswith(f"-- {words}")


def test_the_result_is_readable():
    exported = fit(groups=("f", "m")).to_sql(prob="p", group="sex")
    assert exported.expression == exported.expressions[1]
    assert list(exported.expressions) == [0, 1]
    assert exported.query("my db.t").endswith('FROM "my db"."t"\n')
    for name in ("", "a..b", "a.b.c.d"):
        with pytest.raises(ValueError, match="is no name of a table"):
            exported.query(name)
    assert fit(3).to_sql().prob == ("p_0", "p_1", "p_2")
    assert fit(3, from_proba=False).to_sql().prob == ("logit_0", "logit_1", "logit_2")
    with pytest.raises(AttributeError, match="several classes, see expressions"):
        _ = fit(3).to_sql().expression


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dialect": "postgresql"}, r"no dialect 'postgresql'; did you mean 'postgres'\?"),
        ({"dialect": "oracle"}, "no dialect 'oracle'; there are duckdb, postgres, bigquery"),
        ({"prob": ["a", "b", "c"]}, "prob, of 2 classes, must name 1 column"),
        ({"group": ["a", "b"]}, "group must name 1 column, got"),
        ({"prob": "x", "group": "X"}, "column 'x' is named twice"),
        ({"prob": ""}, "a column has no name"),
    ],
)
def test_mistakes_in_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        fit().to_sql(**arguments)


def test_what_cannot_be_exported():
    for kind in (GroupCalibrator, TemperatureScaling, GroupTemperatureScaling):
        for name in ("to_sql", "to_onnx"):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(kind(), name)()
    with pytest.raises(NotFittedError):
        GroupCalibratedClassifier(GaussianNB()).to_sql()
    with pytest.raises(NotFittedError):
        GroupwiseMLPClassifier().to_onnx()
    X, y, a = sample(300)
    model = GroupCalibratedClassifier(GaussianNB(), ensemble=True, method="bcts", cv=2)
    model.fit(X, y, sensitive_features=a)
    for name in ("to_sql", "to_onnx"):
        with pytest.raises(ValueError, match=r"an ensemble .*; fit with ensemble=False"):
            getattr(model, name)()


def test_a_query_that_is_too_long_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.setattr(_export_sql, "LONGEST", 500)
    with pytest.raises(ValueError, match="more than databases take; use to_onnx, or a method"):
        fit().to_sql()


# --- verification ----------------------------------------------------------------------------


def test_the_grid_has_the_ends_every_group_and_new_ones():
    fitted = fit(groups=(("f", 1), ("m", 1), ("f", 2)))
    grid = grid_of(fitted._exportable(), single=True)
    assert {0.0, 0.5, 1.0} <= set(grid.values[:, 1])
    found = set(grid.groups)
    assert {("f", 1), ("m", 1), ("f", 2), ("m", 2), None} <= found
    assert len(found) == 6
    assert np.isnan(grid.expected[grid.unseen]).all()
    known = grid.sound & ~grid.unseen
    assert not np.isnan(grid.expected[known]).any()
    a = columns_of([grid.groups[i] for i in np.flatnonzero(known)])
    expected = fitted.predict_proba(grid.values[known, 1], sensitive_features=a)
    np.testing.assert_array_equal(grid.expected[known], expected)
    assert grid.rounding.max() < 1e-13


def slightly(function):
    """Return a function of numbers whose result is off by one part in ten billion."""
    return lambda value: function(value * (1.0 + 1e-10))


@pytest.mark.parametrize("method", ["temperature", "bcts", "platt", "beta", "isotonic", "vector"])
def test_a_wrong_query_is_refused_and_not_written(tmp_path, monkeypatch, method):
    fitted = fit(method=method)
    monkeypatch.setattr(_sql_trees, "_number", slightly(_sql_trees._number))
    with pytest.raises(ExportError, match=r"DuckDB .* gives 0\.\d+ .* and Python 0\.\d+; nothing"):
        fitted.to_sql("snowflake").save(tmp_path / "x.sql")
    assert list(tmp_path.iterdir()) == []


def test_a_query_without_its_refusal_is_refused(monkeypatch):
    fitted = fit(groups=("f", "m"))
    monkeypatch.setattr(_sql_trees, "_refused", lambda *_: _sql_trees._number(0.5))
    with pytest.raises(ExportError, match=r"gives a probability for group 'unseenf'"):
        fitted.to_sql()


def test_a_query_that_fills_gaps_is_refused(monkeypatch):
    fitted = fit(groups=("f", "m"))
    always = lambda _: sqlglot.exp.true()  # noqa: E731
    monkeypatch.setattr(_sql_trees._Scores, "sound", always)
    with pytest.raises(ExportError, match=r"DuckDB cannot run the query: .*no calibrator"):
        fitted.to_sql()


@pytest.mark.parametrize("method", ["temperature", "bcts", "platt", "beta", "isotonic", "vector"])
def test_a_wrong_graph_is_refused_and_not_written(tmp_path, monkeypatch, method):
    fitted = fit(method=method)
    original = _export_onnx._Builder._values
    wrong = lambda self, values, slots: original(self, np.array(values) * 1.001, slots)  # noqa: E731
    steps = _export_onnx._Builder._steps
    monkeypatch.setattr(_export_onnx._Builder, "_values", wrong)
    monkeypatch.setattr(
        _export_onnx._Builder,
        "_steps",
        lambda self, curves, s, slots: steps(self, curves, self.op("Neg", s), slots),
    )
    with pytest.raises(
        ExportError, match=r"onnxruntime .* gives [01].* and Python 0\..*; nothing was"
    ):
        fitted.to_onnx(tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_gets_the_calibrator_of_another_is_found(monkeypatch):
    fitted = fit(groups=("f", "m"))
    swapped = lambda values: (list(values), list(range(len(values)))[::-1])  # noqa: E731
    monkeypatch.setattr(_export_onnx, "_vocabulary", swapped)
    with pytest.raises(ExportError, match="for group 'f'"):
        fitted.to_onnx()


@pytest.mark.parametrize(
    ("library", "export", "words"),
    [
        ("sqlglot", "to_sql", r"SQL needs sqlglot 26 or later: pip install 'equipoise\[export\]'"),
        ("onnx", "to_onnx", r"ONNX needs onnx 1.17 or later: pip install 'equipoise\[export\]'"),
        ("onnxruntime", "to_onnx", r"verifying ONNX needs onnxruntime .*'equipoise\[export\]'"),
    ],
)
def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch, library, export, words):
    fitted = fit()
    for module in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=words):
        getattr(fitted, export)()
    path = tmp_path / "repair.json"
    file = FileCalibration(fitted, ("p",), ("sex",))
    file.save(path)
    kind = export.removeprefix("to_")
    out = tmp_path / f"x.{kind}"
    done = run("--apply", path, "--export", kind, "--out", out)
    assert done.exit_code == 2
    assert "pip install 'equipoise[export]'" in done.output
    assert not out.exists()


# --- ONNX models -----------------------------------------------------------------------------


def test_a_model_says_what_it_is(tmp_path):
    path = tmp_path / "model.onnx"
    fit(groups=("f", "m"), unseen_group="mixture").to_onnx(path, group="sex")
    model = onnx.load(path)
    assert [i.name for i in model.graph.input] == ["scores", "sex"]
    about = {p.key: json.loads(p.value) for p in model.metadata_props}
    assert about == {
        "classes": [0, 1],
        "groups": ["f", "m"],
        "unseen_group": "mixture",
        "scores": "probabilities",
    }
    assert "scores: double (n, 2) probabilities, or (n, 1)" in model.doc_string
    assert model.producer_name == "equipoise"
    kinds = {t.data_type for t in model.graph.initializer}
    assert onnx.TensorProto.FLOAT not in kinds
    with pytest.raises(ValueError, match="column 'scores' is named twice"):
        fit().to_onnx(group="scores")


@pytest.mark.parametrize("calibrate", ["group", "bcts", "common", None])
@pytest.mark.parametrize("policy", ["error", "mixture"])
def test_perceptrons(tmp_path, calibrate, policy):
    X, y, a = sample(400, classes=3)
    X[::9, 1] = np.nan
    net = GroupwiseMLPClassifier(
        max_epochs=2,
        hidden_layer_sizes=(8, 4),
        calibrate=calibrate,
        unseen_group=policy,
        random_state=0,
    ).fit(X, y, sensitive_features=a)
    path = tmp_path / "net.onnx"
    model = net.to_onnx(path)
    fresh, _, group = sample(200, classes=3, seed=1)
    fresh[::7, 2] = fresh[::5, 1] = np.nan
    grouped = calibrate in ("group", "bcts")
    if grouped and policy == "mixture":
        group[::4] = "new"
    expected = net.predict_proba(fresh, sensitive_features=group)
    found = in_onnx(model, fresh, group, "X")
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)
    assert onnx.load(path) == model
    fresh[0, 0], group[1] = np.inf, "new"
    found = in_onnx(model, fresh, group, "X")
    refused = 2 if grouped and policy == "error" else 1
    assert np.flatnonzero(np.isnan(found).any(axis=1)).tolist() == list(range(refused))


def test_a_perceptron_with_columns_of_groups_and_without_groups(monkeypatch, tmp_path):
    X, y, a = sample(300)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=a, site=np.arange(300) % 2)
    net = GroupwiseMLPClassifier(
        max_epochs=2, hidden_layer_sizes=4, sensitive_columns=["sex", "site"], random_state=0
    ).fit(frame, y)
    model = net.to_onnx()
    assert [i.name for i in model.graph.input] == ["X", "sex", "site"]
    groups = list(zip(a, frame["site"], strict=True))
    np.testing.assert_allclose(in_onnx(model, X, groups, "X"), net.predict_proba(frame), atol=1e-12)
    alone = GroupwiseMLPClassifier("ce", rho=None, max_epochs=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(in_onnx(alone.to_onnx(), X, name="X"), alone.predict_proba(X))
    monkeypatch.setattr(alone, "_forward", lambda standard: standard[:, :2] * 1.0)
    with pytest.raises(ExportError, match=r"onnxruntime gives .* and Python"):
        alone.to_onnx(tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


# --- the command -----------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(main, ["calibrate", *map(str, arguments)])


@pytest.fixture
def held_out(tmp_path):
    X, y, a = rows(groups=("f", "m"))
    path = tmp_path / "held_out.csv"
    pd.DataFrame({"y": y, "p": X[:, 1], "sex": a}).to_csv(path, index=False)
    return path


def test_the_command_writes_both_files(held_out):
    folder = held_out.parent
    repair, query = folder / "repair.json", folder / "repair.sql"
    fitting = (held_out, "--label", "y", "--prob", "p", "--group", "sex", "--method", "bcts")
    done = run(*fitting, "--out", repair, "--export", "sql")
    assert done.exit_code == 0, done.output
    assert f"SQL in {query}. Verified in DuckDB" in done.output
    done = run(held_out, "--apply", repair, "--out", folder / "calibrated.csv")
    assert done.exit_code == 0, done.output
    expected = pd.read_csv(folder / "calibrated.csv")["calibrated_p"]
    with duckdb.connect() as connection:
        connection.execute(f"create view predictions as from read_csv('{held_out}')")
        found = connection.execute(query.read_text()).fetch_df()
    assert list(found) == ["y", "p", "sex", "calibrated_p"]
    np.testing.assert_allclose(found["calibrated_p"], expected, rtol=0.0, atol=1e-12)
    # the same from the file of calibrators
    again = folder / "again.sql"
    done = run("--apply", repair, "--export", "sql", "--out", again)
    assert (done.exit_code, again.read_text()) == (0, query.read_text()), done.output
    # and as a model
    model = folder / "repair.onnx"
    done = run("--apply", repair, "--export", "onnx", "--out", model, "--unseen-group", "global")
    assert (done.exit_code, done.output) == (0, f"ONNX model in {model}, verified in onnxruntime\n")
    found = in_onnx(onnx.load(model), found[["p"]].to_numpy(), found["sex"])
    np.testing.assert_allclose(found[:, 1], expected, rtol=0.0, atol=1e-12)
    done = run(
        "--apply", repair, "--export", "sql", "--dialect", "spark", "--out", folder / "s.sql"
    )
    assert "Not verified: no Spark was run." in done.output
    options = ("--prob", "score", "--group", "gender", "--force")
    run("--apply", repair, "--export", "sql", "--out", again, *options)
    assert '"calibrated_score"' in again.read_text()
    assert "TRIM(\"gender\") = 'f'" in again.read_text()


def test_the_command_refuses_before_any_work(held_out, monkeypatch):
    folder = held_out.parent
    repair = folder / "repair.json"
    fitting = (held_out, "--label", "y", "--prob", "p", "--group", "sex", "--method", "bcts")
    assert run(*fitting, "--out", repair).exit_code == 0
    kept = folder / "kept.sql"
    kept.write_text("mine")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(FileCalibration, "fit", None)
    monkeypatch.setattr(FileCalibration, "load", None)
    alone = ("--apply", repair, "--export")
    for arguments, words in (
        ((*fitting, "--out", folder / "kept.json", "--export", "sql"), "kept.sql exists"),
        ((*alone, "sql", "--out", kept), "kept.sql exists"),
        ((*alone, "sql", "--out", folder / "x.csv"), "does not end in .sql"),
        ((*alone, "onnx", "--out", folder / "x.sql"), "does not end in .onnx"),
        ((*alone, "sql", "--dialect", "oracle", "--out", folder / "x.sql"), "'oracle' is not one"),
        ((*alone, "onnx", "--dialect", "spark", "--out", folder / "x.onnx"), "for --export sql"),
        ((*fitting, "--dialect", "spark", "--out", folder / "x.json"), "is for --export sql"),
        ((*alone, "csv", "--out", folder / "x.csv"), "'csv' is not one of"),
        ((held_out, *alone, "sql", "--out", folder / "x.sql"), "takes no PREDICTIONS"),
        ((*alone, "sql", "--replace", "--out", folder / "x.sql"), "--replace is for --apply"),
        ((*alone, "onnx", "--prob", "p", "--out", folder / "x.onnx"), "--prob is for --export sql"),
        ((*alone, "sql", "--label", "y", "--out", folder / "x.sql"), "--label is for fitting"),
        (("--apply", repair, "--out", folder / "x.csv"), "--apply needs PREDICTIONS, or --export"),
        (("--export", "sql", "--out", folder / "x.json"), "fitting needs PREDICTIONS and --label"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, done.output
        assert words in " ".join(done.output.split()), done.output
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_command_writes_nothing_if_the_numbers_differ(held_out, monkeypatch):
    fitting = (held_out, "--label", "y", "--prob", "p", "--group", "sex", "--method", "bcts")
    monkeypatch.setattr(_sql_trees, "_number", slightly(_sql_trees._number))
    done = run(*fitting, "--out", held_out.parent / "repair.json", "--export", "sql")
    assert done.exit_code == 2
    assert "nothing was written" in done.output
    assert [path.name for path in held_out.parent.iterdir()] == ["held_out.csv"]


def test_calibrators_that_were_saved_without_column_names(tmp_path):
    fitted = fit(groups=("f", "m"))
    fitted.save(tmp_path / "own.json")
    again = FileCalibration.load(tmp_path / "own.json").to_sql()
    assert (again.prob, again.group) == (("p",), ("group",))
    assert again.expression.replace('TRIM("group")', '"group"') == fitted.to_sql().expression
    with pytest.raises(ValueError, match="unseen_group must be"):
        FileCalibration.load(tmp_path / "own.json").to_sql(unseen_group="none")


# --- Spark -----------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
@pytest.mark.filterwarnings("ignore")
def test_the_query_runs_in_spark():
    sql = pytest.importorskip("pyspark.sql")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        session = builder.config("spark.log.level", "OFF").getOrCreate()
        try:
            for k, method in ((2, "isotonic"), (2, "beta"), (3, "bcts"), (3, "platt")):
                _in_spark(session, k, method)
        finally:
            session.stop()


def _in_spark(session, k, method):
    fitted = fit(k, method=method)
    X, _, a = rows(k, 60, seed=3)
    names = [f"p{j}" for j in range(k)]
    query = fitted.to_sql("spark", prob=names, group="g").query()
    values = [(i, *map(float, x), g) for i, (x, g) in enumerate(zip(X, a, strict=True))]

    def found(rows):
        frame = session.createDataFrame(rows, ["i", *names, "g"])
        frame.createOrReplaceTempView("predictions")
        return [tuple(row)[-k:] for row in session.sql(query).orderBy("i").collect()]

    expected = fitted.predict_proba(X, sensitive_features=a)
    np.testing.assert_allclose(found(values), expected, rtol=0.0, atol=1e-12)
    with pytest.raises(Exception, match="no calibrator was fitted for the group new"):
        found([(*values[0][:-1], "new")])


def test_equal_calibrators_are_written_once():
    one = Temperature(2.0)
    groups = {"a": one, "b": Temperature(3.0), "c": one}
    share = dict.fromkeys(groups, 1 / 3)
    what = Exportable(CalibratorSet(one, groups, share, share), (0, 1), True, "global")
    text = _export_sql.to_sql(what, "duckdb").expression
    assert text.count("EXP(") == 2
    assert "\"group\" = 'b'" in text
    assert "'a'" not in text
    what = Exportable(what.calibrators, (0, 1), True, "error")
    assert "\"group\" IN ('a', 'c')" in _export_sql.to_sql(what, "duckdb").expression


def test_the_guide(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / "export.md").read_text("utf-8")
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "export.md", "exec"), scope)
    printed = re.sub(r"DuckDB [\d.]+|\d+e-\d+|\d+ rows", "", capsys.readouterr().out)
    (shown,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    head = re.sub(r"DuckDB [\d.]+|\d+e-\d+|\d+ rows", "", shown).splitlines()
    assert printed.splitlines()[:6] == head[:6]
    table = pd.DataFrame({"y": scope["y"], "p": scope["p"], "sex": scope["sex"]})
    table.to_csv("held_out.csv", index=False)
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    Path("repair.onnx").unlink()
    for line in commands.splitlines():
        done = CliRunner().invoke(main, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
    assert {"repair.json", "repair.sql", "repair_spark.sql", "repair.onnx"} <= {
        path.name for path in Path().iterdir()
    }


def test_a_graph():
    graph = OnnxGraph()
    x = graph.input("x", ["n", 2])
    graph.output("y", graph.op("Mul", x, graph.constant(2.0)), ["n", 2])
    found = run_onnx(graph.model("twice x", {}), {"x": np.array([[1.0, 2.0]])})
    assert found.tolist() == [[2.0, 4.0]]
