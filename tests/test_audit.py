"""The audit: the figures of the plain functions, as mappings, as a frame and as text."""

import functools
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning

import equipoise
from equipoise import metrics
from equipoise.audit import AuditReport, AuditTable, audit

FUNCTIONS = {
    "accuracy": metrics.accuracy,
    "ece": metrics.expected_calibration_error,
    "classwise_ece": metrics.classwise_calibration_error,
    "debiased_squared_ece": metrics.debiased_squared_calibration_error,
    "mce": metrics.maximum_calibration_error,
    "brier": metrics.brier_score,
    "log_loss": metrics.log_loss,
}
BINNED = FUNCTIONS.keys() - {"accuracy", "brier", "log_loss"}


@functools.cache
def sample(classes=3, n=240):
    rng = np.random.default_rng(classes)
    y, prob = rng.integers(0, classes, n), rng.dirichlet(np.ones(classes), n)
    return y, prob, rng.choice(["x", "y", "z"], n), rng.integers(1, 5, n)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_bins", [15, 4])
def test_figures_are_those_of_the_plain_functions(classes, weighted, n_bins):
    y, prob, groups, weight = sample(classes)
    decisions = np.random.default_rng(1).integers(0, classes, len(y))
    train = np.random.default_rng(2).permutation(y)
    rates = metrics.group_base_rates(train, sensitive_features=groups)
    weight = weight if weighted else None
    report = audit(
        y,
        prob,
        sensitive_features=groups,
        sample_weight=weight,
        n_bins=n_bins,
        y_pred=decisions,
        base_rates=rates,
        reference_group="y",
    )
    assert report.overall.keys() == FUNCTIONS.keys()
    assert list(report.groups) == ["x", "y", "z"]

    def measure(name, rows):
        options = {"n_bins": n_bins} if name in BINNED else {}
        options |= {"y_pred": decisions[rows]} if name == "accuracy" else {}
        w = None if weight is None else weight[rows]
        return FUNCTIONS[name](y[rows], prob[rows], sample_weight=w, **options)

    everyone = np.ones(len(y), bool)
    for name in FUNCTIONS:
        assert report.overall[name] == pytest.approx(measure(name, everyone), rel=1e-12)
        for g, values in report.groups.items():
            assert values[name] == pytest.approx(measure(name, groups == g), rel=1e-12, abs=1e-15)
    for kind in ("stochastic", "deterministic"):
        assert report.proportional_equality[kind] == metrics.proportional_equality(
            y,
            prob,
            sensitive_features=groups,
            kind=kind,
            sample_weight=weight,
            y_pred=decisions,
            base_rates=rates,
            reference_group="y",
        )
    assert report.table == AuditTable.from_arrays(
        y, prob, sensitive_features=groups, sample_weight=weight, n_bins=n_bins, y_pred=decisions
    )


def test_labels_say_what_the_columns_stand_for():
    y, prob, groups, _ = sample()
    names = np.array(["p", "q", "r"])[y]
    backwards = audit(names, prob[:, ::-1], sensitive_features=groups, labels=["r", "q", "p"])
    plain = audit(y, prob, sensitive_features=groups)
    assert backwards.overall == plain.overall
    assert backwards.groups == plain.groups
    assert backwards.table.labels == ("r", "q", "p")


@pytest.mark.parametrize("pairs", [False, True], ids=["one column", "two columns"])
def test_frame(pairs):
    y, prob, groups, _ = sample()
    if pairs:
        groups = pd.DataFrame({"g": groups, "old": np.arange(len(y)) % 2 == 0})
    report = audit(y, prob, sensitive_features=groups)
    frame = report.to_frame()
    assert frame.index.name == "group"
    assert frame.index.tolist() == ["overall", *report.groups]
    assert frame.columns.tolist() == ["rows", *FUNCTIONS]
    counts = report.table["rows"].tolist()
    assert frame["rows"].tolist() == [len(y), *counts]
    for (_, row), values in zip(
        frame.iterrows(), [report.overall, *report.groups.values()], strict=True
    ):
        assert row[list(FUNCTIONS)].to_dict() == values


def line_of(text, group):
    (line,) = [one for one in text.splitlines() if one.split("  ")[0].strip() == group]
    return line


def test_text_shows_every_group_with_its_figures():
    y, prob, groups, _ = sample()
    report = audit(y, prob, sensitive_features=groups)
    text = str(report)
    assert repr(report) == text
    shown = {"overall": (len(y), report.overall)}
    shown |= {g: ((groups == g).sum(), values) for g, values in report.groups.items()}
    for g, (count, values) in shown.items():
        cells = line_of(text, g).split()
        assert cells == [g, str(count), *(f"{v:.4f}" for v in values.values())]
    for kind, value in report.proportional_equality.items():
        assert f"{value:.4f} {kind}" in text


@pytest.mark.parametrize(
    "name",
    [
        "[red]x[/red]",
        "[/]",
        "<script>",
        "<b>bold</b>",
        "a\\",
        ":smile:",
        "African-American, Female, 25 - 45",
        "é 漢字",
        "overall",
    ],
)
def test_names_of_groups_are_shown_literally(name):
    y, prob, groups, _ = sample()
    groups = np.where(groups == "x", name, groups)
    text = str(audit(y, prob, sensitive_features=groups))
    assert sum(f" {name} " in line for line in text.splitlines()) == 1 + (name == "overall")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_many_groups_are_all_shown():
    y, prob, *_ = sample()
    groups = np.arange(len(y)) % 60
    text = str(audit(y, prob, sensitive_features=groups, reference_group=5))
    for g in range(60):
        line_of(text, str(g))


def test_several_columns_are_shown_joined():
    y, prob, groups, _ = sample()
    pairs = list(zip(groups, np.arange(len(y)) % 2, strict=True))
    text = str(audit(y, prob, sensitive_features=pairs))
    for g in "xyz":
        for number in (0, 1):
            line_of(text, f"{g}, {number}")


def test_one_group_has_no_proportional_equality():
    y, prob, _, _ = sample()
    report = audit(y, prob, sensitive_features=["only"] * len(y))
    assert report.proportional_equality.keys() == {"stochastic", "deterministic"}
    assert all(math.isnan(v) for v in report.proportional_equality.values())
    assert report.groups["only"] == report.overall
    assert "nan stochastic" in str(report)


def test_infinite_proportional_equality_warns_and_is_shown():
    with pytest.warns(UndefinedMetricWarning, match="class 1 of group 'b' against 'a'") as caught:
        report = audit([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.7], sensitive_features=list("aabb"))
    assert report.proportional_equality["deterministic"] == math.inf
    assert "inf deterministic" in str(report)
    assert [w.filename for w in caught] == [__file__]


def test_the_names_are_there_from_the_package():
    assert equipoise.AuditTable is AuditTable
    assert equipoise.AuditReport is AuditReport
