"""Saved tables: every true one is read, an impossible or changed one is refused."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import audit
from equipoise.auditing import audit_models, merge_audits
from equipoise.metrics import SUMS, AuditTable
from table_data import seal

EXAMPLES = settings(deadline=None, derandomize=True, database=None, max_examples=150)
WEIGHTS = {
    "none": lambda *_: None,
    "shares": lambda rng, n: rng.random(n) + 1e-9,
    "some zero": lambda _, n: np.where(np.arange(n) % 3 == 0, 1.0, 0.0),
    "far apart": lambda rng, n: 10.0 ** rng.uniform(-30, 30, n),
    "tiny": lambda rng, n: 10.0 ** rng.uniform(-170, -150, n),
    "thirds": lambda _, n: np.full(n, 1 / 3),
}


def again(table):
    return AuditTable.from_dict(json.loads(json.dumps(table.to_dict())))


def probabilities(rng, n, classes, kind):
    if kind == "even":
        return np.full((n, classes), 1 / classes)
    if kind == "sure":
        return np.eye(classes)[rng.integers(0, classes, n)]
    if kind == "not quite 1":  # rows sum to 1 within a thousandth
        prob = rng.dirichlet(np.ones(classes), n) * rng.uniform(0.9991, 1.0009, (n, 1))
        return np.minimum(prob, 1.0)
    if kind == "smallest":
        return np.stack([np.ones(n), *[np.full(n, 5e-324)] * (classes - 1)], axis=1)
    if kind == "edges":
        prob = np.zeros((n, classes))
        prob[:, 0] = rng.integers(0, 16, n) / 15
        prob[:, -1] = 1.0 - prob[:, 0]
        return prob
    return rng.dirichlet(np.full(classes, 0.2), n)


@st.composite
def rows_of(draw, classes, weights):
    n, seed = draw(st.integers(1, 500)), draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    kinds = ("even", "sure", "not quite 1", "smallest", "edges", "any")
    prob = probabilities(rng, n, classes, draw(st.sampled_from(kinds)))
    prob = prob.astype(draw(st.sampled_from([np.float32, np.float64])))
    decided = draw(st.booleans())
    return {
        "y_true": rng.integers(0, draw(st.integers(1, classes)), n),
        "y_prob": prob[:, 1] if classes == 2 and draw(st.booleans()) else prob,
        "sensitive_features": rng.integers(0, draw(st.integers(1, 6)), n),
        "sample_weight": WEIGHTS[weights](rng, n),
        "y_pred": rng.integers(0, classes, n) if decided else None,
        "labels": range(classes),
    }


@st.composite
def tables(draw):
    """Tables that can be added up: of the same classes and bins, all with clusters or none."""
    classes, n_bins = draw(st.integers(2, 6)), draw(st.sampled_from([1, 2, 3, 10, 15, 100]))
    clustered = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(1, 3))):
        data = draw(rows_of(classes, draw(st.sampled_from(sorted(WEIGHTS)))))
        n = len(data["y_true"])
        ids = np.arange(n) // draw(st.integers(1, 5)) if clustered else None
        found.append(AuditTable.from_arrays(**data, n_bins=n_bins, clusters=ids))
    return found


@given(tables())
@EXAMPLES
def test_every_true_table_is_read(drawn):
    for table in drawn:
        assert again(table) == table
        pooled = table.pooled()
        assert again(pooled) == pooled
    total = AuditTable.total(drawn, disjoint_clusters=True)
    assert again(total) == total


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_and_wholes_of_an_audit_are_read(weighted, clustered):
    rng = np.random.default_rng(0)
    n = 400
    report = audit(
        rng.integers(0, 2, n),
        rng.random(n).astype(np.float32),
        sensitive_features=rng.choice(["a", "b"], n),
        by=rng.integers(0, 3, n),
        sample_weight=rng.random(n) if weighted else None,
        clusters=rng.integers(0, 100, n) if clustered else None,
    )
    for table in (report.table, *(part.table for part in report.by.values())):
        assert again(table) == table


# --- changed and forged ----------------------------------------------------------------------


def saved(*, weighted=False, clustered=False, n=300):
    rng = np.random.default_rng(0)
    table = AuditTable.from_arrays(
        rng.integers(0, 3, n),
        rng.dirichlet(np.ones(3), n),
        sensitive_features=rng.choice(["f", "m"], n),
        sample_weight=rng.random(n) if weighted else None,
        clusters=rng.integers(0, 90, n) if clustered else None,
        n_bins=5,
    )
    return json.loads(json.dumps(table.to_dict()))


KINDS = {
    "plain": {},
    "weighted": {"weighted": True},
    "clustered": {"clustered": True},
    "both": {"weighted": True, "clustered": True},
}


def numbers(values, where=()):
    """Return where the numbers are in nested lists and objects."""
    if isinstance(values, dict | list):
        keys = values if isinstance(values, dict) else range(len(values))
        return [at for key in keys for at in numbers(values[key], (*where, key))]
    return [where] if isinstance(values, int | float) else []


def put(data, where, change):
    """Return a copy with one number changed."""
    data = copy.deepcopy(data)
    *outer, last = where
    inside = data
    for key in outer:
        inside = inside[key]
    inside[last] = change(inside[last])
    return data


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_any_number_is_found_by_the_digest(kind):
    data = saved(**KINDS[kind])
    for where in numbers(data):
        changed = put(data, where, lambda v: not v if isinstance(v, bool) else v + 1)
        with pytest.raises(ValueError, match="damaged audit table: its digest does not match"):
            AuditTable.from_dict(changed)


POSSIBLE = {"unit_n4", "unit_top_n", "unit_loss2", "log_loss2", "brier2", "rows"}
"""Sums of clusters and weights that other rows might have, even if very different."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_number_that_no_rows_have_is_refused(kind):
    data = saved(**KINDS[kind])
    for where in numbers({name: data[name] for name in ("sums", "pooled_units")}):
        unit = SUMS[where[1]].unit if not data["weighted"] else 1

        def enlarged(v, unit=unit):
            return 20 * v + 2000 * unit

        if where[1] in (POSSIBLE if kind != "plain" else {"log_loss2"}):
            continue
        with pytest.raises(ValueError, match=r"damaged audit table: .* has "):
            AuditTable.from_dict(seal(put(data, where, enlarged)))
        if not SUMS[where[1]].signed:
            with pytest.raises(ValueError, match=f"{where[1]} is not .* none of them negative"):
                AuditTable.from_dict(seal(put(data, where, lambda v: -v - 1)))


def forged(change, **kind):
    data = saved(**kind)
    change(data["sums"])
    return seal(data)


def times(name, by):
    def change(sums):
        sums[name] = (np.array(sums[name], dtype=object) * by).tolist()

    return change


IMPOSSIBLE = {
    "an accuracy of 782.5": (times("hits", 2348), "more hits than labels"),
    "twice the rows": (times("rows", 2), "a weight that is not its number of rows"),
    "twice the labels": (times("labels", 2), "labels that do not add up to its rows"),
    "no predictions": (times("predictions", 0), "predictions that do not add up to its rows"),
    "a mean probability of 2": (times("probability", 2), "a mean probability above 1|sum to 1"),
    "a confidence of 0": (times("bin_confidence", 0), "a confidence below that of its bin"),
    "an ECE above 1": (times("bin_confidence", 7), "a confidence above that of its bin"),
    "twice the bins": (times("bin_count", 2), "bins that do not add up to its rows"),
    "all correct, and more": (times("bin_correct", 9), "more correct rows in a bin than rows"),
    "a Brier score of 9": (times("squared_error", 40), "squared errors above 1"),
    "a log-loss of 0": (times("log_loss", 0), "a log-loss below that of its probabilities"),
    "a log-loss of 1000": (times("log_loss", 2000), "a log-loss beyond that of any row"),
    "no spread": (times("bin_gap2", 0), "squared gaps below the gaps of its bins"),
    "a class of twice the rows": (times("class_count", 2), "bins of a class that do not add up"),
}


@pytest.mark.parametrize(("change", "says"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_is_impossible_is_named(change, says):
    with pytest.raises(ValueError, match=f"damaged audit table: group 'f' has .*({says})"):
        AuditTable.from_dict(forged(change))


def test_groups_that_are_one_in_clusters_are_checked_together():
    data = saved(clustered=True)
    data["pooled_units"]["unit_count"] = [500.0]
    with pytest.raises(ValueError, match="where all groups are one"):
        AuditTable.from_dict(seal(data))
    data["pooled_units"]["unit_count"] = [89.5]
    with pytest.raises(ValueError, match="a number of units that is not one of its rows"):
        AuditTable.from_dict(seal(data))


# --- sources ---------------------------------------------------------------------------------


def frame_of(n=60, seed=0):
    rng = np.random.default_rng(seed)
    pd = pytest.importorskip("pandas")
    p = rng.random(n).round(4)
    frame = {"y": rng.integers(0, 2, n), "p": p, "g": rng.choice(["a", "b"], n)}
    return pd.DataFrame(frame)


def audited(data, path, **options):
    found = audit_models("y", "p", sensitive_features="g", data=data, **options)
    found.save(path)
    return found


def names_of(path):
    models = json.loads(path.read_text())["models"]
    return [[source.split(" ", 1)[1] for source in m["sources"]] for m in models]


def test_a_merged_audit_has_the_sources_of_all(tmp_path):
    for i in range(3):
        frame_of(seed=i).to_csv(tmp_path / f"d{i}.csv", index=False)
        audited(tmp_path / f"d{i}.csv", tmp_path / f"{i}.json")
    first = merge_audits([tmp_path / "0.json", tmp_path / "1.json"])
    first.save(tmp_path / "01.json")
    assert sorted(*names_of(tmp_path / "01.json")) == ["d0.csv", "d1.csv"]
    total = merge_audits([tmp_path / "01.json", tmp_path / "2.json"])
    assert total[None].table["rows"].sum() == 180
    said = r"01\.json and .*1\.json were made from the same rows \(d1\.csv\), .*leave one"
    with pytest.raises(ValueError, match=said):
        merge_audits([tmp_path / "01.json", tmp_path / "2.json", tmp_path / "1.json"])


def test_a_copy_of_a_file_is_the_same_source(tmp_path):
    for name in ("d.csv", "copy.csv"):
        frame_of().to_csv(tmp_path / name, index=False)
    audited(tmp_path / "d.csv", tmp_path / "0.json")
    audited(tmp_path / "copy.csv", tmp_path / "1.json")
    with pytest.raises(ValueError, match="were made from the same rows"):
        merge_audits([tmp_path / "0.json", tmp_path / "1.json"])


def test_the_same_rows_of_another_model_are_no_repetition(tmp_path):
    frame = frame_of()
    frame["m"] = np.where(np.arange(60) % 2, "new", "old")
    for model in ("new", "old"):
        part = frame[frame.m == model]
        audited(part, tmp_path / f"{model}.json", model="m")
    both = merge_audits(tmp_path)
    assert list(both) == ["new", "old"]
    for i, path in enumerate(("new", "old")):
        frame.iloc[i::2].drop(columns="m").to_csv(tmp_path / f"{path}.csv", index=False)
    data = {name: tmp_path / f"{name}.csv" for name in ("new", "old")}
    audited(data, tmp_path / "files.json")
    assert names_of(tmp_path / "files.json") == [["new.csv"], ["old.csv"]]
    swapped = {"new": data["old"], "old": data["new"]}
    audited(swapped, tmp_path / "swapped.json")
    merge_audits([tmp_path / "files.json", tmp_path / "swapped.json"])
    audited({"old": data["old"]}, tmp_path / "old.json")
    with pytest.raises(ValueError, match=r"same rows \(old\.csv\)"):
        merge_audits([tmp_path / "files.json", tmp_path / "old.json"])


def test_frames_and_tables_are_known_by_their_sums(tmp_path):
    frame = frame_of()
    audited(frame, tmp_path / "0.json")
    table = AuditTable.from_arrays(frame["y"], frame["p"], sensitive_features=frame["g"])
    (tmp_path / "1.json").write_text(json.dumps(table.to_dict()))
    assert names_of(tmp_path / "0.json") == [["a table of 60 rows"]]
    with pytest.raises(ValueError, match=r"same rows \(a table of 60 rows\)"):
        merge_audits(tmp_path)


def test_a_table_that_was_added_up_from_saved_ones_has_their_sources(tmp_path):
    one, other = (
        AuditTable.from_arrays(f["y"], f["p"], sensitive_features=f["g"])
        for f in (frame_of(seed=0), frame_of(seed=1))
    )
    total = again(one) + again(other)
    assert total.sources == {one.fingerprint, other.fingerprint}
    assert set(total.to_dict()["sources"]) == total.sources | {total.fingerprint}
    for name, table in {"0": one, "total": total}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(table.to_dict()))
    with pytest.raises(ValueError, match=r"0\.json and .*total\.json were made from the same rows"):
        merge_audits(tmp_path)


def test_a_file_that_changes_after_the_audit_is_not_taken_for_what_was_read(tmp_path):
    frame_of().to_csv(tmp_path / "d.csv", index=False)
    found = audit_models("y", "p", sensitive_features="g", data=tmp_path / "d.csv")
    frame_of(70, seed=1).to_csv(tmp_path / "d.csv", index=False)
    found.save(tmp_path / "0.json")
    assert names_of(tmp_path / "0.json") == [["a table of 60 rows"]]
    (tmp_path / "d.csv").unlink()
    assert found.to_dict()["models"][0]["sources"][0].endswith("a table of 60 rows")


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [False, True])
def test_too_many_groups_in_arrays(by):
    n = 20_000
    y, prob, groups = np.arange(n) % 2, np.full(n, 0.5), np.arange(n)
    options = {"sensitive_features": groups}
    if by:
        options = {"sensitive_features": groups % 200, "by": groups // 100}
    with pytest.raises(ValueError, match=r"more than 10,000 distinct values \(20,000\).*merge val"):
        audit(y, prob, **options)
    table = AuditTable.from_arrays(y, prob, sensitive_features=groups, blocks=["labels"])
    assert len(table.groups) == n  # a table alone may have any number


def test_too_many_groups_in_saved_audits(tmp_path, monkeypatch):
    monkeypatch.setattr("equipoise.auditing._merged.MOST_GROUPS", 3)
    for i in range(2):
        frame = frame_of(seed=i)
        frame["g"] += str(i)
        audited(frame, tmp_path / f"{i}.json")
    assert len(merge_audits(tmp_path / "0.json")[None].groups) == 2
    with pytest.raises(ValueError, match=r"more than 3 distinct values \(4\)"):
        merge_audits(tmp_path)
    monkeypatch.setattr("equipoise.auditing._model_tables.MOST_GROUPS", 1)
    with pytest.raises(ValueError, match=r"0\.json: .* more than 1 distinct values \(2\)"):
        merge_audits(tmp_path / "0.json")
