"""The datasets have the sizes and rates of their descriptions, wherever they come from."""

import dataclasses
import gzip
import hashlib
import http.server
import json
import os
import threading
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from equipoise.datasets import Dataset, Preprocessor, load
from equipoise.datasets import _registry as registry
from equipoise.datasets._recipes import RECIPES

ROOT = Path(__file__).parents[1]
RAW = Path(os.environ.get("EQUIPOISE_DATA") or ROOT.parent / "shared" / "datasets")
needs_raw = pytest.mark.skipif(
    not all((RAW / f.name).is_file() for f in registry.FILES.values() if not f.carried),
    reason="the raw files are not here; EQUIPOISE_DATA names their folder",
)
CARRIED = ("adult-full", "compas", "german")
CACHE_DIR = registry.cache_dir


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("EQUIPOISE_DATA", raising=False)
    monkeypatch.setattr(registry, "cache_dir", lambda: tmp_path / "cache")


def rates(data):
    return data.group.mean(), *(data.y[data.group == g].mean() for g in (0, 1))


# --- what the recipes give -------------------------------------------------------------------

PUBLISHED = {  # rows, columns, Pr[A=1], Pr[Y=1|A=0], Pr[Y=1|A=1]
    "adult": (2020, 97, 0.742, 0.255, 0.586),
    "arrhythmia": (452, 278, 0.551, 0.419, 0.643),
    "compas": (5278, 10, 0.602, 0.609, 0.477),
    "drug": (1885, 12, 0.912, 0.824, 0.787),
    "german": (1000, 60, 0.851, 0.591, 0.719),
    "lawschool": (1823, 17, 0.548, 0.506, 0.538),
    "adult-full": (48842, 106, 0.668, 0.109, 0.304),
}


@pytest.mark.parametrize(
    "name", [n if n in CARRIED else pytest.param(n, marks=needs_raw) for n in PUBLISHED]
)
def test_sizes_and_rates(name):
    rows, columns, *expected = PUBLISHED[name]
    data = load(name, data_dir=None if name in CARRIED else RAW)
    assert data.X.shape == (rows, columns)
    assert rates(data) == pytest.approx(expected, abs=5e-4)


@needs_raw
def test_communities_and_the_tie_that_a_sum_of_floats_loses():
    data = load("communities", data_dir=RAW)
    assert data.X.shape == (1994, 122)
    assert rates(data) == pytest.approx((0.718, 0.352, 0.848), abs=5e-4)
    white, black, asian, hispanic = (
        data.X[:, data.feature_names.index(n)].astype(str).astype(float)
        for n in ("racePctWhite", "racepctblack", "racePctAsian", "racePctHisp")
    )
    # the published figures are those of this sum, where one tie of eight is lost
    lossy = (white >= hispanic + asian + black).astype(int)
    (lost,) = np.flatnonzero(lossy != data.group)
    assert data.group[lost] == 1
    assert white[lost] == pytest.approx((hispanic + asian + black)[lost], abs=1e-9)
    assert rates(dataclasses.replace(data, group=lossy)) == pytest.approx(
        (0.717, 0.353, 0.848), abs=5e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n in CARRIED else pytest.param(n, marks=needs_raw) for n in registry.ENTRIES]
)
def test_every_dataset_is_as_the_registry_says(name):
    entry = registry.ENTRIES[name]
    data = load(name, data_dir=None if name in CARRIED else RAW)
    facts = entry.statistics
    assert data.X.shape == (facts.rows, facts.columns) == (len(data.y), len(data.feature_names))
    assert rates(data) == pytest.approx((facts.share, *facts.rates), abs=5e-4)
    if entry.paper:
        assert entry.paper.rows == facts.rows
        theirs = (entry.paper.share, *entry.paper.rates)
        assert rates(data) == pytest.approx(theirs, abs=0.015)
    assert data.X.dtype == np.float32
    assert data.y.dtype == data.group.dtype == np.int64
    assert set(data.y.tolist()) == set(data.group.tolist()) == {0, 1}
    assert len(data.class_names) == len(data.group_names) == 2
    assert len(set(data.feature_names)) == facts.columns
    assert np.isnan(data.X).any() == (name == "arrhythmia")
    assert data.source
    assert data.licence


@needs_raw
def test_missing_values_of_arrhythmia_stay_missing():
    data = load("arrhythmia", data_dir=RAW)
    missing = dict(zip(data.feature_names, np.isnan(data.X).sum(axis=0).tolist(), strict=True))
    expected = {"J angle": 376, "P angle": 22, "T angle": 8, "QRST angle": 1, "heart rate": 1}
    assert {name: count for name, count in missing.items() if count} == expected
    assert "sex" not in missing


def test_german_by_gender():
    data = load("german", group="gender")
    assert rates(data)[0] == pytest.approx(0.69)
    assert data.group_names == ("female", "male")
    features = {name.split("=")[0] for name in data.feature_names}
    assert "age" in features
    assert "personal_status" not in features
    assert "age" not in {n.split("=")[0] for n in load("german", group="age").feature_names}


@pytest.mark.parametrize("name", ["compas", "german"])
@needs_raw
def test_carried_data_equals_the_original(name):
    carried, original = load(name), load(name, data_dir=RAW)
    for field in ("X", "y", "group"):
        np.testing.assert_array_equal(getattr(carried, field), getattr(original, field))
    assert carried.feature_names == original.feature_names


@needs_raw
def test_the_sample_of_adult_is_in_full_adult():
    sample, full = load("adult", data_dir=RAW), load("adult-full")
    shared = [full.feature_names.index(name) for name in sample.feature_names]
    rows = {
        (x.tobytes(), y, a) for x, y, a in zip(full.X[:, shared], full.y, full.group, strict=True)
    }
    assert all(
        (x.tobytes(), y, a) in rows
        for x, y, a in zip(sample.X, sample.y, sample.group, strict=True)
    )


def test_carried_files():
    lines = {}
    for file in registry.FILES.values():
        packed = resources.files("equipoise").joinpath("data", f"{file.name}.gz")
        assert packed.is_file() == file.carried
        if file.carried:
            content = packed.read_bytes()
            assert content[4:8] == bytes(4)  # no time stamp: the same text, the same bytes
            lines[file.name] = gzip.decompress(content).decode().splitlines()
    # one line of adult.test is not a row
    assert (len(lines["adult.data"]), len(lines["adult.test"])) == (32561, 16281 + 1)
    assert (
        hashlib.sha256("".join(line + "\n" for line in lines["german.data"]).encode()).hexdigest()
        == registry.FILES["german.data"].sha256
    )
    header = lines["compas-scores-two-years.csv"][0].split(",")
    assert not {"name", "first", "last", "dob", "id"} & set(header)


def test_one_hot_columns_add_up_to_one():
    data = load("compas")
    for feature in ("age", "priors", "charge"):
        columns = [n.startswith(feature + "=") for n in data.feature_names]
        assert (data.X[:, columns].sum(axis=1) == 1).all()


def test_wrong_names():
    with pytest.raises(ValueError, match="unknown dataset 'titanic'; there are adult, arrhythmia"):
        load("titanic")
    with pytest.raises(ValueError, match="did you mean 'compas'"):
        load("compass")
    with pytest.raises(ValueError, match="german has no group 'sex'; there is age, gender"):
        load("german", group="sex")


def test_the_registry_is_complete():
    assert set(registry.ENTRIES) == set(RECIPES)
    used = [f for e in registry.ENTRIES.values() for f in e.files]
    assert sorted(used) == sorted(registry.FILES)
    for file in registry.FILES.values():
        assert file.address.startswith("https://")
        assert file.address.endswith("/" + file.name)
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.licence
        assert file.citation


@needs_raw
def test_the_published_files_have_the_sums_of_the_registry():
    for file in registry.FILES.values():
        if (RAW / file.name).is_file():
            assert hashlib.sha256((RAW / file.name).read_bytes()).hexdigest() == file.sha256


# --- where files come from -------------------------------------------------------------------

LAWSCHOOL = b"lsat,bar1,gender\n30.5,1,0\n28,0,1\n41,1,1\n"
FILE = "lawschool.csv"


class _Server(http.server.ThreadingHTTPServer):
    content = LAWSCHOOL
    length = len(LAWSCHOOL)
    requests = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.length))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """Serve a law school of three rows at the address in the registry."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with _Server(("127.0.0.1", 0), _Handler) as server:
        _publish(monkeypatch, f"http://127.0.0.1:{server.server_port}/{FILE}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def offline(monkeypatch):
    """Nobody listens at the address in the registry."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), _Handler) as closed:
        port = closed.server_port
    return _publish(monkeypatch, f"http://127.0.0.1:{port}/{FILE}")


def _publish(monkeypatch, address):
    file = dataclasses.replace(
        registry.FILES[FILE], address=address, sha256=hashlib.sha256(LAWSCHOOL).hexdigest()
    )
    monkeypatch.setitem(registry.FILES, FILE, file)
    return file


def test_the_cache_is_a_folder_of_the_user():
    assert "equipoise" in CACHE_DIR().parts
    assert CACHE_DIR().is_absolute()


def _cached():
    folder = registry.cache_dir()
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_file_is_fetched_once(server):
    assert registry.state("lawschool") == "to be fetched"
    data = load("lawschool")
    assert data.feature_names == ("lsat", "gender")
    assert (data.y.tolist(), data.group.tolist()) == ([1, 0, 1], [1, 0, 0])
    assert registry.state("lawschool") == "cached"
    assert _cached() == [FILE]
    load("lawschool")
    assert server.requests == 1


def test_a_corrupt_download_is_refused(server):
    server.content = LAWSCHOOL.replace(b"41", b"14")
    with pytest.raises(ValueError, match=f"does not give the published file {FILE}") as error:
        load("lawschool")
    assert registry.FILES[FILE].sha256 in str(error.value)
    assert _cached() == []


def test_a_broken_download_leaves_nothing(server):
    server.content = LAWSCHOOL[:20]
    with pytest.raises((ValueError, FileNotFoundError), match=registry.FILES[FILE].sha256):
        load("lawschool")
    assert _cached() == []


def test_a_corrupt_cache_is_fetched_again(server):
    registry.cache_dir().mkdir()
    (registry.cache_dir() / FILE).write_bytes(LAWSCHOOL[:20])
    assert registry.state("lawschool") == "to be fetched"
    assert len(load("lawschool").y) == 3
    assert server.requests == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_no_network_and_no_file(offline, damaged):
    if damaged:
        registry.cache_dir().mkdir()
        (registry.cache_dir() / FILE).write_bytes(b"half a fi")
    with pytest.raises(FileNotFoundError) as error:
        load("lawschool")
    for named in (FILE, offline.address, offline.sha256, str(registry.cache_dir())):
        assert named in str(error.value)


def test_a_file_put_into_the_cache_by_hand(offline):
    registry.cache_dir().mkdir()
    (registry.cache_dir() / offline.name).write_bytes(LAWSCHOOL)
    assert len(load("lawschool").y) == 3


def test_a_local_folder_is_used_instead(offline, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / offline.name).write_bytes(LAWSCHOOL)
    assert len(load("lawschool", data_dir=tmp_path / "mine").y) == 3
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path / "mine"))
    assert len(load("lawschool").y) == 3
    assert registry.state("lawschool") == "local folder"
    # the argument comes before the environment, and what is carried needs no folder
    with pytest.raises(FileNotFoundError):
        load("lawschool", data_dir=tmp_path)
    assert len(load("german").y) == 1000


def test_a_local_folder_without_the_file(server, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        load("lawschool", data_dir=tmp_path)
    file = registry.FILES[FILE]
    for named in (file.name, file.address, file.sha256, str(tmp_path), "EQUIPOISE_DATA"):
        assert named in str(error.value)
    assert registry.state("lawschool", tmp_path) == "missing"
    assert server.requests == 0


@pytest.mark.parametrize("name", ["lawschool", "german"])
def test_a_corrupt_local_file_is_refused(name, tmp_path):
    file = registry.FILES[registry.ENTRIES[name].files[0]]
    (tmp_path / file.name).write_bytes(b"1,2,3\n")
    with pytest.raises(ValueError, match="is not the published file") as error:
        load(name, data_dir=tmp_path)
    for named in (str(tmp_path / file.name), file.sha256, file.address):
        assert named in str(error.value)
    assert registry.state(name, tmp_path) == "corrupt"


# --- splits ----------------------------------------------------------------------------------


def dataset(n=400, seed=0, **changes):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 3, n), rng.integers(0, 2, n)
    X = rng.normal(3, 5, (n, 4)).astype(np.float32)
    X[rng.random(n) < 0.3, 1] = np.nan
    data = Dataset(X, ("a", "b", "c", "d"), y, group, (0, 1, 2), (0, 1), "made up", "", "")
    return dataclasses.replace(data, **changes)


@pytest.mark.parametrize("stratify", [False, True])
@pytest.mark.parametrize("n", [8, 9, 15, 16, 17, 452, 2020])
def test_split_sizes(n, stratify):
    split = dataset(n).split(3, stratify=stratify)
    parts = (split.train, split.val, split.test)
    sizes = [len(part.y) for part in parts]
    assert sizes == [n - n // 8 - -(-n // 8), n // 8, -(-n // 8)]
    if n == 2020:
        assert sizes == [1515, 252, 253]
    rows = np.concatenate([part.rows for part in parts])
    assert sorted(rows.tolist()) == list(range(n))


@pytest.mark.parametrize("stratify", [False, True])
def test_a_split_follows_its_seed(stratify):
    data = dataset()
    one, again, other = (data.split(s, stratify=stratify) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.test.rows, again.test.rows)
    np.testing.assert_array_equal(one.train.X, again.train.X)
    assert set(one.test.rows.tolist()) != set(other.test.rows.tolist())
    for part in (one.train, one.val, one.test):
        np.testing.assert_array_equal(part.y, data.y[part.rows])
        np.testing.assert_array_equal(part.group, data.group[part.rows])
        assert part.X.dtype == np.float32


def test_a_stratified_split_has_its_share_of_every_label_in_every_group():
    data = dataset(997)
    split = data.split(5, stratify=True)
    for y in range(3):
        for a in range(2):
            size = np.sum((data.y == y) & (data.group == a))
            for part, share in ((split.train, 6 / 8), (split.val, 1 / 8), (split.test, 1 / 8)):
                count = np.sum((part.y == y) & (part.group == a))
                assert abs(count - share * size) <= 1.5


def test_preprocessing_equals_that_of_scikit_learn():
    data = dataset()
    split = data.split(0)
    pipeline = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    pipeline.fit(data.X[split.train.rows].astype(float))
    for part in (split.train, split.val, split.test):
        expected = pipeline.transform(data.X[part.rows].astype(float))
        np.testing.assert_allclose(part.X, expected, atol=1e-6)
    assert split.preprocessor.feature_names == ("a", "b", "c", "d", "b missing")


def test_only_the_training_part_is_fitted_on():
    data = dataset()
    before = data.split(0)
    X = data.X.copy()
    X[before.test.rows] *= 100
    X[before.val.rows] = np.nan
    after = dataclasses.replace(data, X=X).split(0)
    np.testing.assert_array_equal(before.train.X, after.train.X)
    assert np.isfinite(after.val.X).all()
    np.testing.assert_allclose(after.val.X[:, :4], 0, atol=1e-6)


def test_constant_and_empty_columns():
    data = dataset()
    X = data.X.copy()
    X[:, 0] = 0.1
    X[:, 1] = np.nan
    X[:, 2] = np.where(np.arange(len(X)) % 2, 0.1, np.nan)
    split = dataclasses.replace(data, X=X).split(0)
    for part in (split.train, split.val, split.test):
        assert np.isfinite(part.X).all()
        assert (part.X[:, :3] == 0).all()
    fresh = split.preprocessor.transform(np.array([[1.1, 7.0, 0.1, 0.0]]))
    assert np.isfinite(fresh).all()
    assert fresh[0, 0] == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CARRIED)
def test_carried_datasets_split(name):
    split = load(name).split(0, stratify=True)
    assert all(np.isfinite(part.X).all() for part in (split.train, split.val, split.test))
    np.testing.assert_allclose(split.train.X.mean(axis=0, dtype=float), 0, atol=1e-4)


@needs_raw
def test_arrhythmia_is_imputed_and_flagged():
    data = load("arrhythmia", data_dir=RAW)
    split = data.split(0)
    names = split.preprocessor.feature_names
    flag = split.train.X[:, names.index("J angle missing")]
    missing = np.isnan(data.X[split.train.rows, data.feature_names.index("J angle")])
    assert len(set(flag[missing].tolist())) == len(set(flag[~missing].tolist())) == 1
    assert flag[missing][0] > flag[~missing][0]
    assert np.isfinite(split.test.X).all()


def test_too_few_rows_to_split():
    with pytest.raises(ValueError, match="7 rows cannot be split 6:1:1"):
        dataset(7).split(0)


def test_a_preprocessor_is_kept_as_json():
    data = dataset()
    fitted = data.split(0).preprocessor
    again = Preprocessor.from_dict(json.loads(json.dumps(fitted.to_dict())))
    np.testing.assert_array_equal(again.transform(data.X), fitted.transform(data.X))
    assert again.feature_names == fitted.feature_names
    with pytest.raises(ValueError, match=r"X must be \(row, feature=4\), got \(400, 3\)"):
        fitted.transform(data.X[:, :3])


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "something else"},
        {"fill": [0.0]},
        {"flagged": [9]},
        {"scale": [0.0] * 5},
        {"mean": [float("nan")] * 5},
        {"mean": "text"},
        {"columns": None},
    ],
)
def test_a_damaged_preprocessor_is_refused(damage):
    good = dataset().split(0).preprocessor.to_dict()
    with pytest.raises(ValueError, match="preprocessor"):
        Preprocessor.from_dict(good | damage)
    with pytest.raises(ValueError, match="preprocessor"):
        Preprocessor.from_dict([])
