"""Which label a column of probabilities stands for: the same in Python and in every command."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from equipoise import GroupTemperatureScaling, audit
from equipoise._inputs import ColumnOrderWarning, InputError, column_labels
from equipoise.calibration import FileCalibration
from equipoise.cli import main
from equipoise.metrics import (
    accuracy,
    brier_score,
    classwise_calibration_error,
    equal_mass_calibration_error,
    expected_calibration_error,
    group_base_rates,
    groupwise,
    groupwise_calibration_error,
    log_loss,
    proportional_equality,
)

# --- the rule --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "columns", "expected"),
    [
        (["no", "yes"], ["prob_no", "prob_yes"], ("no", "yes")),
        (["no", "yes"], ["no", "yes"], ("no", "yes")),
        ([0, 10], ["p_0", "p_10"], (0, 10)),  # p_10 ends in 0 too
        ([False, True], ["p_False", "p_true"], (False, True)),
        ([1, 2], ["p_1", "p_2", "p_3"], (1, 2, 3)),  # no row of 3
        (["a", "b"], ["x", "y"], ("a", "b")),  # names that say nothing: sorted
        (["a", "b"], ["m_a", "n_a"], ("a", "b")),  # not one to one
        ([0, 2], None, (0, 1, 2)),
        ([0, 2], ["u", "v", "w"], (0, 1, 2)),
    ],
)
def test_names_then_sorted_order(present, columns, expected):
    size = len(expected)
    assert column_labels(present, size, columns=columns) == expected


@pytest.mark.parametrize(
    ("present", "columns", "expected"),
    [
        (["no", "yes"], ["prob_yes", "prob_no"], ("yes", "no")),
        ([0, 1, 2], ["p2", "p0", "p1"], (2, 0, 1)),
        (["a", "b"], ["prob_b", "prob_c", "prob_a"], ("b", "c", "a")),
    ],
)
def test_names_win_over_order_and_say_so(present, columns, expected):
    with pytest.warns(ColumnOrderWarning, match="not their order"):
        assert column_labels(present, len(expected), columns=columns) == expected
    given = tuple(present) if len(present) == len(expected) else ("a", "b", "c")
    assert column_labels(present, len(expected), columns=columns, labels=given) == given


def test_positive_is_the_label_of_a_single_column():
    assert column_labels(["no", "yes"], 2, columns=["p"], positive="no") == ("yes", "no")
    assert column_labels([0, 1], 2, columns=["p"], positive="0") == (1, 0)
    with pytest.warns(ColumnOrderWarning, match="'prob_no' is taken for the probability of 'yes'"):
        assert column_labels(["no", "yes"], 2, columns=["prob_no"]) == ("no", "yes")
    for wrong in (
        {"positive": "maybe"},
        {"positive": "no", "labels": ["no", "yes"]},
        {"positive": "no", "columns": ["p", "q"]},
    ):
        with pytest.raises(InputError, match="positive"):
            column_labels(["no", "yes"], 2, **wrong)


# --- the same by all doors -------------------------------------------------------------------


def run(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def predictions(classes, n=900):
    rng = np.random.default_rng(classes)
    names = ["no", "yes", "maybe"][:classes]
    logits = rng.normal(size=(n, classes)) * 2
    prob = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = np.array(names)[(prob.cumsum(1) < rng.random((n, 1))).sum(1).clip(max=classes - 1)]
    frame = pd.DataFrame(prob, columns=[f"prob_{name}" for name in names])
    # in an order that is neither the sorted nor the reverse
    frame = frame[[f"prob_{name}" for name in ("yes", "no", "maybe")[:classes]]]
    return frame.assign(y=y, sex=rng.choice(["f", "m"], n))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "how"),
    [(2, "names"), (3, "names"), (2, "labels"), (3, "labels"), (2, "positive")],
)
def test_audit_calibrate_and_python_agree(tmp_path, monkeypatch, classes, how):
    monkeypatch.chdir(tmp_path)
    frame = predictions(classes)
    names = [c for c in frame if c.startswith("prob_")]
    given = {}
    if how == "labels":
        given["labels"] = [name.removeprefix("prob_") for name in names]
        frame = frame.rename(columns={name: f"c{i}" for i, name in enumerate(names)})
        names = [f"c{i}" for i in range(classes)]
    elif how == "positive":
        given["positive"] = "no"
        names = ["prob_no"]
    frame.to_csv("p.csv", index=False)
    options = [word for name in names for word in ("--prob", name)]
    options += ["--label", "y", "--group", "sex"]
    for key, value in given.items():
        options += [f"--{key}", value if key == "positive" else ",".join(value)]

    audited = run("audit", "p.csv", *options, "--json", "audit.json")
    calibrated = run("calibrate", "p.csv", *options, "--out", "t.json")
    assert ("not their order" in audited.output) == (how == "names")
    assert ("not their order" in calibrated.output) == (how == "names")
    (model,) = json.loads((tmp_path / "audit.json").read_text())["models"]

    y, sex = frame["y"], frame["sex"]
    prob = frame[names] if len(names) > 1 else frame[names[0]]
    with pytest.warns() if how == "names" else monkeypatch.context():
        arrays = audit(y, prob, sensitive_features=sex, **given)
        data = audit("y", names, sensitive_features="sex", data="p.csv", **given)
        fitted = FileCalibration.fit("p.csv", label="y", prob=names, group="sex", **given)
    assert arrays.table == data.table
    for metric, value in arrays.overall.items():
        assert model["overall"][metric]["value"] == data.overall[metric] == value
    for group in model["groups"]:
        own = arrays.groups[group["group"]]
        assert {m: f["value"] for m, f in group["metrics"].items()} == own
    assert arrays.overall["ece"] < 0.1  # each column is of its own label

    # the table of calibrate shows the figures before, of the same rows
    shown = re.findall(
        r"^ *(all rows|f|m) +[\d,]+ +before +(0\.\d{4}) \(.*?\) +(0\.\d{4}) ",
        calibrated.output,
        re.M,
    )
    values = {"all rows": arrays.overall, **arrays.groups}
    assert shown == [
        (g, f"{values[g]['classwise_ece']:.4f}", f"{values[g]['log_loss']:.4f}")
        for g in ("all rows", "f", "m")
    ]
    before = fitted.measured.before
    assert before["bin_count"].tolist() == arrays.table["bin_count"].tolist()
    assert before.labels == arrays.table.labels
    if len(names) > 1:
        with pytest.warns() if how == "names" else monkeypatch.context():
            plain = {"labels": given["labels"]} if how == "labels" else {}
            assert expected_calibration_error(y, prob, **plain) == arrays.overall["ece"]
            by_group = groupwise_calibration_error(y, prob, sensitive_features=sex, **plain)
        assert by_group == {g: arrays.groups[g]["ece"] for g in "fm"}


def test_the_example_of_a_swapped_pair(tmp_path, monkeypatch):
    """This order once gave an accuracy of .22 in one command, and the right figures in another."""
    monkeypatch.chdir(tmp_path)
    predictions(2).to_csv("f.csv", index=False)
    words = ["--prob", "prob_yes", "--prob", "prob_no", "--label", "y", "--group", "sex"]
    run("audit", "f.csv", *words, "--json", "a.json", "--fail-if", "accuracy < 0.6")
    (model,) = json.loads((tmp_path / "a.json").read_text())["models"]
    assert model["overall"]["ece"]["value"] < 0.06


@pytest.mark.filterwarnings("ignore::equipoise._inputs.ColumnOrderWarning")
def test_every_function_takes_the_names_of_a_frame():
    frame = predictions(3)
    names = [c for c in frame if c.startswith("prob_")]
    given, in_order = frame[names], frame[sorted(names)].to_numpy()
    y, sex = frame["y"], frame["sex"]
    rates = group_base_rates(y, sensitive_features=sex)
    for function in (expected_calibration_error, brier_score, log_loss, accuracy,
                     classwise_calibration_error, equal_mass_calibration_error):  # fmt: skip
        assert function(y, given) == function(y, in_order)
    for kind in ("stochastic", "deterministic"):
        options = {"sensitive_features": sex, "kind": kind}
        want = proportional_equality(y, in_order, **options)
        assert proportional_equality(y, given, **options) == want
        for labels in (y, None):
            found = proportional_equality(labels, given, base_rates=rates, **options)
            assert found == pytest.approx(want)
    by_group = groupwise(log_loss, y, given, sensitive_features=sex)
    assert by_group == groupwise(log_loss, y, in_order, sensitive_features=sex)
    scalings = [
        GroupTemperatureScaling(from_proba=True).fit(p, y, sensitive_features=sex)
        for p in (given, in_order)
    ]
    assert scalings[0].temperatures_ == pytest.approx(scalings[1].temperatures_)
    assert scalings[0].classes_.tolist() == [name.removeprefix("prob_") for name in names]
