"""Sweeps: their description, the files they make, resuming, and what can go wrong."""

import contextlib
import dataclasses
import errno
import importlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from equipoise import __version__
from equipoise.datasets import load
from equipoise.paper._snippet import TECHNIQUES
from equipoise.sweep import Store, Sweep, encode, plan, run, versions
from equipoise.training import LOSSES, Loss, train_stack
from sweep_data import DATA, PLAN, RUN, STORE, SWEEP, finished, make_data, others


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return the folder of a finished sweep; not to be changed."""
    folder = tmp_path_factory.mktemp("original")
    run(plan(SWEEP, folder, DATA)[1], progress=False)
    return folder


@pytest.fixture
def copy(original, tmp_path):
    """Return a copy of the finished sweep."""
    for path in original.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """Return a list of the keys that are computed from now on."""
    keys, compute = [], RUN.compute

    def counted(part, *rest):
        keys.append(part.key)
        return compute(part, *rest)

    monkeypatch.setattr(RUN, "compute", counted)
    return keys


# --- what is in a store -----------------------------------------------------------------------


def test_a_row_per_run_and_epoch(original):
    store = Store(original)
    assert store.sweep == SWEEP
    runs = 2 + 2 + 4  # ce and a control, ls at each rho, mmce at each rho and lam
    assert len(store.query("from runs")) == 3 * runs * SWEEP.max_epochs
    for part in SWEEP.parts(DATA):
        table = parquet.read_table(original / f"{part.key}.parquet")
        expected = train_stack(
            DATA.split(part.seed),
            part.configs,
            max_epochs=3,
            batch_size=32,
            hidden_layer_sizes=(4,),
            split_seed=part.seed,
        ).to_frame()
        assert table["epoch"].to_pylist() == expected["epoch"].tolist() == [1, 2, 3] * runs
        assert table["loss"].to_pylist() == expected["loss"].tolist()
        assert table["seed"].to_pylist() == expected["seed"].tolist()
        assert set(table["split_seed"].to_pylist()) == {part.seed}
        assert set(table["dataset"].to_pylist()) == {"made-up"}
        for name in table.column_names[7:]:
            kept, value = table[name].to_numpy(), expected[name].to_numpy()
            if name != "diverged":
                # accuracies are whole, all else has 24 bits
                rounding = 0 if name.endswith("accuracy") else 2**-24
                np.testing.assert_allclose(kept, value, rtol=rounding, atol=1e-30)
            assert not np.isnan(value.astype(float)).all()


def test_rho_and_lam_only_where_they_have_an_effect(original):
    rows = Store(original).query("select distinct loss, rho, lam, seed - split_seed from runs")
    assert set(rows.fetchall()) == {
        ("ce", None, None, 0),
        ("ce", None, None, 1000),
        *(("ls", rho, None, 0) for rho in (0.4, 0.6)),
        *(("mmce", rho, lam, 0) for rho in (0.4, 0.6) for lam in (1.0, 5.0)),
    }


def test_files_are_compressed_and_say_what_made_them(original):
    for path in original.glob("*.parquet"):
        group = parquet.read_metadata(path).row_group(0)
        for i in range(group.num_columns):
            column = group.column(i)
            assert column.compression == "ZSTD"
            if column.physical_type == "FLOAT":
                assert "BYTE_STREAM_SPLIT" in column.encodings
        assert parquet.read_schema(path).metadata[b"equipoise.key"] == path.stem.encode()
        made = versions(path)
        assert made["equipoise"] == __version__
        assert (
            made["torch"] == torch.__version__.split("+")[0] or made["torch"] in torch.__version__
        )
        assert {"numpy", "python", "machine"} <= set(made)


def test_duckdb_reads_a_store_without_us(original):
    sql = "select split_seed, count(*) from '{}/*.parquet' where loss = 'mmce' group by all"
    assert sorted(duckdb.sql(sql.format(original)).fetchall()) == [(s, 12) for s in range(3)]


def test_log_has_a_line_for_each_part(original):
    lines = [line.split(" ", 2) for line in (original / "parts.log").read_text().splitlines()]
    assert sorted(key for _, key, _ in lines) == sorted(p.key for p in SWEEP.parts(DATA))
    assert all("made-up, seed " in note and "ce ls mmce: 8 runs in " in note for *_, note in lines)


def test_several_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(PLAN, "RUNS", 1)  # so that parts of ce alone are among them
    data, rho = make_data(groups=3), ((0.2, 0.3, 0.5), (0.4, 0.4, 0.2))
    sweep = dataclasses.replace(SWEEP, loss=("ce", "dca"), rho=rho, seeds=(0,), lam=(2.0,))
    store, work = plan(sweep, tmp_path, data)
    assert len(work) == 4
    run(work, progress=False)
    for path in tmp_path.glob("*.parquet"):
        assert parquet.read_schema(path).field("rho").type == pa.list_(pa.float64())
    found = store.query("select distinct loss, rho from runs order by all").fetchall()
    assert found == [("ce", None), *(("dca", list(weights)) for weights in rho)]
    one = dataclasses.replace(SWEEP, rho=(0.5,))
    with pytest.raises(ValueError, match=r"3 groups.*needs a weight for each"):
        run(plan(one, tmp_path / "one", data)[1], progress=False)
    for weights in ((0.5, 0.5), (0.25, 0.25, 0.25, 0.25)):
        other = dataclasses.replace(SWEEP, rho=(weights,))
        with pytest.raises(ValueError, match=r"has 3 groups, but rho has \[0\.\d+, .*for each"):
            plan(other, tmp_path / "other", data)
    assert not (tmp_path / "other").exists()


def test_losses_of_the_caller(tmp_path):
    sweep = dataclasses.replace(SWEEP, loss=("mmce", "mmce-w*"), controls=1, seeds=(0,))
    store, work = plan(sweep, tmp_path, DATA, TECHNIQUES)
    run(work, losses=TECHNIQUES, progress=False)
    losses = store.query("select loss, avg(train_loss) from runs group by all").fetchall()
    assert len(dict(losses)) == 2 == len(set(dict(losses).values()))
    with pytest.raises(ValueError, match=r"unknown loss 'mmce-w\*'; there are ce, ls"):
        plan(sweep, tmp_path / "other", DATA)
    assert not (tmp_path / "other").exists()


def first(batch):
    """Say something."""
    return batch.log_prob.exp().mean((-1, -2))  # and more


def twin(batch):
    return batch.log_prob.exp().mean((-1, -2))


def second(batch):
    return batch.log_prob.exp().mean((-1, -2)) ** 2


def test_a_changed_loss_does_not_meet_old_parts(tmp_path):
    sweep = dataclasses.replace(SWEEP, loss=("mine",), controls=1)

    def opened(loss, folder="mine"):
        return plan(sweep, tmp_path / folder, DATA, {"mine": loss})

    own = Loss(first, "gaps", added=True)
    opened(own)
    opened(Loss(first, "gaps", added=True))
    for other in (Loss(second, "gaps", added=True), Loss(first, "gaps", added=True, grouped=False)):
        with pytest.raises(ValueError, match="holds runs with another loss of the name 'mine'"):
            opened(other)
    # a name of the library's may be given another meaning too
    plain = dataclasses.replace(SWEEP, loss=("ls",), controls=1)
    plan(plain, tmp_path / "ls", DATA)
    with pytest.raises(ValueError, match="another loss of the name 'ls'"):
        plan(plain, tmp_path / "ls", DATA, {"ls": own})
    # stores of before did not say what their names meant
    about = tmp_path / "mine" / "sweep.json"
    old = json.loads(about.read_text())
    assert set(old.pop("losses")) == {"mine"}
    about.write_text(json.dumps(old))
    opened(Loss(second, "gaps", added=True))


def test_comments_and_docstrings_do_not_change_a_loss():
    texts = [PLAN._text(function) for function in (first, twin, second)]
    assert texts[0].replace("first", "twin") == texts[1] != texts[2].replace("second", "twin")
    assert PLAN._text(print) == "print"
    assert PLAN._text(eval("lambda batch: 1")) == "<lambda>"


def test_query_wants_finished_parts(copy, tmp_path):
    store, work = plan(SWEEP, copy, DATA)
    keys = [w.part.key for w in work]
    assert store.query("select count(*) from runs", keys[:1]).fetchall() == [(24,)]
    store.path(keys[0]).unlink()
    with pytest.raises(FileNotFoundError, match="lacks 1 of 3 parts; run the sweep"):
        store.query("from runs", keys)
    assert store.query("select count(*) from runs").fetchall() == [(48,)]
    with pytest.raises(FileNotFoundError, match="no finished part yet"):
        plan(SWEEP, tmp_path / "empty", DATA)[0].query("from runs")


@pytest.mark.parametrize("name", ["r[1]", "r*", "r?"])
def test_the_name_of_a_folder_is_literal(original, tmp_path, name):
    """DuckDB would take it for a pattern, and read the parts of the folder beside it."""
    for folder in (name, "r1"):
        shutil.copytree(original, tmp_path / folder)
    store, work = plan(SWEEP, tmp_path / name, DATA)
    for w in work[1:]:
        store.path(w.part.key).unlink()
    beside = tmp_path / "r1" / f"{work[0].part.key}.parquet"
    parquet.write_table(parquet.read_table(beside).slice(0, 1), beside)
    assert store.query("select count(*) from runs").fetchall() == [(24,)]
    assert store.query("select count(*) from runs", [work[0].part.key]).fetchall() == [(24,)]


# --- resuming ---------------------------------------------------------------------------------


def test_only_what_is_missing_is_done(original, copy, made):
    store, work = plan(SWEEP, copy, DATA)
    run(work, progress=False)
    assert made == []
    store.path(work[1].part.key).unlink()
    run(work, progress=False)
    assert made == [work[1].part.key]
    assert finished(copy) == finished(original)


def test_numbers_do_not_depend_on_workers(original, tmp_path):
    run(plan(SWEEP, tmp_path, DATA)[1], workers=3, progress=False)
    assert finished(tmp_path) == finished(original)


def test_sweeps_run_together(original, tmp_path):
    folders, sweeps = (
        (tmp_path / "a", tmp_path / "b"),
        (SWEEP, dataclasses.replace(SWEEP, max_epochs=2)),
    )
    work = [w for f, s in zip(folders, sweeps, strict=True) for w in plan(s, f, DATA)[1]]
    run(work, progress=False)
    assert finished(folders[0]) == finished(original)
    assert len(finished(folders[1])) == 3
    assert not set(finished(folders[0])) & set(finished(folders[1]))


CHANGES = {
    "dataset": "other",
    "loss": ("ce", "ls", "mdca"),
    "rho": (0.4, 0.7),
    "lam": (1.0, 4.0),
    "seeds": (3, 4, 5),
    "controls": 3,
    "max_epochs": 4,
    "batch_size": 16,
    "hidden_layer_sizes": (5,),
    "output_relu": True,
    "learning_rate": 2e-4,
    "stratify": True,
}


def test_every_field_is_changed_below():
    assert set(CHANGES) == {field.name for field in dataclasses.fields(Sweep)}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_description_meets_no_old_part(field, copy):
    changed = dataclasses.replace(SWEEP, **{field: CHANGES[field]})
    keys = {part.key for part in SWEEP.parts(DATA)}
    assert not keys & {part.key for part in changed.parts(DATA)}
    with pytest.raises(ValueError, match=rf"another sweep \(its {field} differ\); choose another"):
        plan(changed, copy, DATA)


def test_other_data_or_numbers_meet_no_old_part(copy, monkeypatch):
    other = make_data(seed=1)
    keys = {part.key for part in SWEEP.parts(DATA)}
    assert not keys & {part.key for part in SWEEP.parts(other)}
    with pytest.raises(ValueError, match=r"runs on other data \(of made-up\); choose another"):
        plan(SWEEP, copy, other)
    for module in (PLAN, importlib.import_module("equipoise.sweep._store")):
        monkeypatch.setattr(module, "FORMAT", 2)
    assert not keys & {part.key for part in SWEEP.parts(DATA)}
    with pytest.raises(ValueError, match=r"format 1, now 2.; choose another folder"):
        plan(SWEEP, copy, DATA)


def test_more_seeds_leave_the_parts_of_the_others():
    more = dataclasses.replace(SWEEP, seeds=(0, 1, 2, 3))
    assert [p.key for p in more.parts(DATA)][:3] == [p.key for p in SWEEP.parts(DATA)]


def test_keys_stay_what_they_were():
    # stores of many hours would be run again; raise FORMAT if that is meant
    sweep = Sweep("german", max_epochs=3, rho=(0.4, 0.5), seeds=(0,))
    assert [part.key for part in sweep.parts(load("german"))] == ["8ed404fea21d04b16475"]


def test_parts_are_of_equal_size(monkeypatch):
    monkeypatch.setattr(PLAN, "RUNS", 3)
    parts = SWEEP.parts(DATA)
    assert [len(p.configs) for p in parts] == [3, 3, 2] * 3
    assert [c for p in parts for c in p.configs] == [c for s in range(3) for c in SWEEP.configs(s)]


# --- damage -----------------------------------------------------------------------------------


def truncated(content):
    return content[: len(content) // 2]


def flipped(content):
    """Change a value so that only a checksum shows it: the file can still be read."""
    whole = parquet.read_table(pa.BufferReader(content))
    columns = parquet.read_metadata(pa.BufferReader(content)).row_group(0)
    column = columns.column(whole.column_names.index("val_log_loss"))
    for at in range(
        column.data_page_offset, column.data_page_offset + column.total_compressed_size
    ):
        changed = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        try:
            table = parquet.read_table(pa.BufferReader(changed))
        except (pa.ArrowException, OSError):
            continue
        if table.schema == whole.schema and not table.equals(whole):
            return changed
    raise AssertionError("every flip is noticed without a checksum")


def foreign(_):
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"a": [1, 2]}), sink)
    return sink.getvalue().to_pybytes()


def in_footer(content):
    """Change a bit of the footer so that the file can still be read, whatever is compared."""
    whole = parquet.read_table(pa.BufferReader(content))
    size = int.from_bytes(content[-8:-4], "little")
    for at in range(len(content) - 8 - size, len(content) - 8):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        with contextlib.suppress(Exception):
            table = parquet.read_table(pa.BufferReader(changed), page_checksum_verification=True)
            if table.equals(whole):
                return changed
    raise AssertionError("every flip is noticed")


def fewer_rows(content):
    """Leave out the last row, under the same key."""
    table = parquet.read_table(pa.BufferReader(content))
    return encode(table[:-1], table.schema.metadata[b"equipoise.key"].decode())


DAMAGES = [truncated, flipped, foreign, in_footer, fewer_rows, lambda _: b""]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_part_is_set_aside_and_run_again(damage, original, copy, made):
    path = sorted(copy.glob("*.parquet"))[1]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=rf"set aside as .*{path.stem}\.damaged, and is run again"):
        run(plan(SWEEP, copy, DATA)[1], progress=False)
    assert made == [path.stem]
    assert finished(copy) == finished(original)
    assert others(copy) == [f"{path.stem}.damaged"]


@pytest.mark.parametrize("endings", [[".parquet"], [".parquet", ".checksum"]])
def test_a_part_of_another_name_is_not_believed(endings, original, copy):
    first, second = sorted(copy.glob("*.parquet"))[:2]
    for ending in endings:
        first.with_suffix(ending).write_bytes(second.with_suffix(ending).read_bytes())
    with pytest.warns(UserWarning, match="set aside"):
        run(plan(SWEEP, copy, DATA)[1], progress=False)
    assert finished(copy) == finished(original)


def test_a_part_that_another_process_has_repaired_stays(copy, monkeypatch, made):
    answers = iter(["bad", "", ""])  # damaged at the first look, sound once it is ours
    monkeypatch.setattr(STORE, "damage", lambda _: next(answers, ""))
    run(plan(SWEEP, copy, DATA)[1], progress=False)
    assert made == []
    assert others(copy) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'"x"',
        b'{"sweep": {}}',
        b'{"sweep": 3, "data": ""}',
        b"\xff",
        b"losses",
    ],
)
def test_a_damaged_description_is_refused(content, copy):
    if content == b"losses":
        about = json.loads((copy / "sweep.json").read_text())
        content = json.dumps(about | {"losses": 3}).encode()
    (copy / "sweep.json").write_bytes(content)
    for open_store in (lambda: Store(copy), lambda: plan(SWEEP, copy, DATA)):
        with pytest.raises(
            ValueError, match=r"sweep.json is damaged .*; restore the file, or move"
        ):
            open_store()


def test_a_folder_without_a_description_is_refused(copy, tmp_path):
    (copy / "sweep.json").unlink()
    with pytest.raises(
        ValueError, match=r"Parquet files but no sweep\.json; choose another folder"
    ):
        plan(SWEEP, copy, DATA)
    file = tmp_path / "file"
    file.touch()
    for folder in (copy, tmp_path / "none", file):
        with pytest.raises(FileNotFoundError, match=r"holds no sweep .*; run one into it, or name"):
            Store(folder)


def test_leftovers_of_killed_processes_go(original, copy):
    key = sorted(copy.glob("*.parquet"))[0].stem
    (copy / f"{key}.parquet").rename(copy / f"{key}.parquet.0123.tmp")
    (copy / f"{key}.lock").touch()
    (copy / "sweep.json").rename(copy / "sweep.json.4567.tmp")
    for path in list(copy.glob("*.parquet")):
        path.unlink()
    run(plan(SWEEP, copy, DATA)[1], progress=False)
    assert finished(copy) == finished(original)
    assert others(copy) == []


# --- where it cannot be written ---------------------------------------------------------------


def test_a_folder_that_cannot_be(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below"):
        with pytest.raises(OSError, match=r"cannot be written to \(.*\); make that possible, or"):
            plan(SWEEP, folder, DATA)


def test_a_folder_that_can_only_be_read(copy, monkeypatch):
    store, work = plan(SWEEP, copy, DATA)
    store.path(work[0].part.key).unlink()

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(OSError, match=r"\(Read-only file system\); make that possible, or choose"):
        run(work, progress=False)


@pytest.mark.parametrize("which", ["part", "log"])
def test_a_full_disk(which, original, copy, monkeypatch):
    keys = [part.key for part in SWEEP.parts(DATA)]
    for key in keys[1:]:
        (copy / f"{key}.parquet").unlink()
    write, to_open = Path.write_bytes, Path.open

    def full(path, content):
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_log(path, mode="r", **rest):
        if path.name == "parts.log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return to_open(path, mode, **rest)

    with monkeypatch.context() as patch:
        if which == "part":
            patch.setattr(Path, "write_bytes", full)
        else:
            patch.setattr(Path, "open", full_log)
        with pytest.raises(OSError, match=r"No space left.*; free some space. Parts that were fin"):
            run(plan(SWEEP, copy, DATA)[1], progress=False)
    assert others(copy) == []
    assert finished(copy).items() <= finished(original).items()
    run(plan(SWEEP, copy, DATA)[1], progress=False)
    assert finished(copy) == finished(original)


# --- errors, interrupts, progress -------------------------------------------------------------


def broken(*_):
    raise ValueError("a loss that does not work")


def test_an_error_in_a_worker_surfaces(tmp_path):
    losses = {**LOSSES, "mmce": Loss(broken, "pair-wise", added=True)}
    with pytest.raises(ValueError, match="a loss that does not work"):
        run(plan(SWEEP, tmp_path, DATA, losses)[1], losses=losses, progress=False)
    assert finished(tmp_path) == {}
    assert others(tmp_path) == []


def test_wrong_ways_to_run(tmp_path):
    work = plan(SWEEP, tmp_path, DATA)[1]
    with pytest.raises(ValueError, match="unknown engine 'dask'; there are local, ray"):
        run(work, engine="dask")
    with pytest.raises(ValueError, match="an address is for engine='ray'"):
        run(work, address="auto")
    with pytest.raises(ValueError, match="workers must be a whole number from 1 on, got 0"):
        run(work, workers=0)


def test_progress_counts_runs_and_epochs(copy):
    work = plan(SWEEP, copy, DATA)[1]
    (copy / f"{work[0].part.key}.parquet").unlink()
    told = []
    run(work, progress=lambda *both: told.append(both))
    assert [total for _, total in told] == [8 * 3] * len(told)
    done = [done for done, _ in told]
    assert done == sorted(done)
    assert done[-1] == 8 * 3
    run(work, progress=lambda *_: pytest.fail("there was nothing to do"))


def test_progress_is_shown(tmp_path, capsys):
    run(plan(SWEEP, tmp_path, DATA)[1])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "24 of 24 runs" in shown.err


def test_a_part_in_other_hands_is_waited_for(original, copy, made, monkeypatch):
    monkeypatch.setattr(RUN, "POLL", 0.01)
    store, work = plan(SWEEP, copy, DATA)
    for item in work:
        store.path(item.part.key).unlink()
    first, second, _ = (item.part.key for item in work)
    told = []
    with store.claim(first), store.claim(second) as mine:
        assert mine
        with store.claim(first) as again:
            assert not again
        thread = threading.Thread(
            target=run, args=[work], kwargs={"progress": lambda *both: told.append(both)}
        )
        thread.start()
        while len(finished(copy)) < 1:
            time.sleep(0.01)
        content = finished(original)[f"{first}.parquet"]
        store.write(first, content, "elsewhere")
    # the second is let go of without having been made
    thread.join()
    assert second in made
    assert first not in made
    assert finished(copy) == finished(original)
    assert told[-1] == (72, 72)


def test_what_others_do_counts_as_progress(original, tmp_path, monkeypatch):
    store, work = plan(SWEEP, tmp_path, DATA)

    def elsewhere(missing, *_):
        key = missing[0].part.key
        store.write(key, finished(original)[f"{key}.parquet"], "elsewhere")

    monkeypatch.setattr(RUN, "POLL", 0)
    monkeypatch.setattr(RUN, "make_all", elsewhere)
    told = []
    run(work, progress=lambda *both: told.append(both))
    assert told == [(24, 72), (48, 72), (72, 72)]


def test_ctrl_c_while_waiting(copy, monkeypatch):
    store, work = plan(SWEEP, copy, DATA)
    store.path(work[0].part.key).unlink()
    monkeypatch.setattr(RUN.time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGINT))
    with store.claim(work[0].part.key), pytest.raises(KeyboardInterrupt) as stopped:
        run(work, progress=False)
    assert stopped.value.__notes__ == [
        "2 of 3 parts are finished and safe; run the same command again to go on"
    ]


# --- descriptions -----------------------------------------------------------------------------


def test_round_trip(tmp_path):
    for sweep in (SWEEP, Sweep("x", rho=((0.2, 0.3, 0.5),)), Sweep("compas")):
        plain = sweep.to_dict()
        assert Sweep.from_dict(json.loads(json.dumps(plain))) == sweep
        # JSON of numbers, texts and lists is TOML too
        path = tmp_path / "sweep.toml"
        path.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in plain.items()))
        assert Sweep.from_toml(path) == sweep


def test_whole_numbers_are_numbers():
    one = Sweep("x", rho=[0, 1], lam=[1], learning_rate=1, seeds=[0])
    other = Sweep("x", rho=np.array([0.0, 1.0]), lam=(1.0,), learning_rate=1.0, seeds=range(1))
    assert one == other
    assert [p.key for p in one.parts(DATA)] == [p.key for p in other.parts(DATA)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": 3}, "dataset must be a name, got 3"),
        ({"dataset": ""}, "dataset must be a name, got ''"),
        ({"loss": []}, "loss is empty; name at least one"),
        ({"loss": "ce"}, "loss must be a list, got 'ce'"),
        ({"loss": {"ce": 1}}, "loss must be a list, got {'ce': 1}"),
        ({"loss": [["ce"]]}, r"loss must be names, got \('ce',\)"),
        ({"loss": [{}]}, "loss must be names, got {}"),
        ({"loss": ["ce", "ce"]}, "loss names something twice"),
        ({"rho": []}, "rho is empty"),
        ({"rho": 0.5}, "rho must be a list, got 0.5"),
        ({"rho": [0.5, 1.1]}, "rho must be numbers within 0..1, got 1.1"),
        ({"rho": [-0.1]}, "rho must be numbers within 0..1, got -0.1"),
        ({"rho": [True]}, "rho must be numbers within 0..1, got True"),
        ({"rho": ["0.5"]}, "rho must be numbers within 0..1, got '0.5'"),
        ({"rho": [[0.5, True]]}, "rho must be numbers within 0..1"),
        ({"rho": [[]]}, r"rho must be numbers within 0..1, got \(\)"),
        ({"rho": [0.5, [0.5, 0.5]]}, "all numbers, or all lists with a weight per group"),
        ({"rho": [[0.5, 0.5], [1, 0, 0]]}, "all numbers, or all lists with a weight per group"),
        ({"rho": [0.5, 0.5]}, "rho names something twice"),
        ({"lam": [float("nan")]}, "lam must be numbers from 0 on, got nan"),
        ({"lam": [float("inf")]}, "lam must be numbers from 0 on, got inf"),
        ({"lam": [-1]}, "lam must be numbers from 0 on, got -1"),
        ({"lam": [False]}, "lam must be numbers from 0 on, got False"),
        ({"lam": [[1.0]]}, "lam must be numbers from 0 on"),
        ({"lam": [1, 1.0]}, "lam names something twice"),
        ({"seeds": [0.0]}, "seeds must be whole numbers from 0 .*, got 0.0"),
        ({"seeds": [-1]}, "seeds must be whole numbers"),
        ({"seeds": [True]}, "seeds must be whole numbers"),
        ({"seeds": [2**31]}, "seeds must be whole numbers"),
        ({"seeds": 5}, "seeds must be a list, got 5"),
        ({"seeds": [1, 1]}, r"seeds names something twice: \[1, 1\]"),
        ({"controls": 0}, r"controls must be a whole number from 1 to 2\*\*30, got 0"),
        ({"controls": 2, "loss": ["ls"]}, "controls are runs of ce; add it"),
        ({"max_epochs": 0}, r"max_epochs must be a whole number from 1 to 2\*\*30, got 0"),
        ({"max_epochs": 2.0}, r"max_epochs must be a whole number from 1 to 2\*\*30, got 2.0"),
        ({"max_epochs": True}, r"max_epochs must be a whole number from 1 to 2\*\*30, got True"),
        ({"max_epochs": [3]}, r"max_epochs must be a whole number from 1 to 2\*\*30, got \[3\]"),
        ({"batch_size": "256"}, r"batch_size must be a whole number from 1 to 2\*\*30, got '256'"),
        (
            {"hidden_layer_sizes": [8, 0]},
            r"hidden_layer_sizes must be whole numbers from 1 to 2\*\*30, got 0",
        ),
        ({"hidden_layer_sizes": 8}, "hidden_layer_sizes must be a list, got 8"),
        ({"output_relu": 1}, "output_relu must be true or false, got 1"),
        ({"stratify": "yes"}, "stratify must be true or false, got 'yes'"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0, got 0"),
        ({"learning_rate": True}, "learning_rate must be a number above 0, got True"),
        ({"epoch": 3}, "a sweep has no 'epoch'; it has dataset, loss, rho"),
    ],
)
def test_bad_descriptions(change, message):
    with pytest.raises(ValueError, match=message):
        Sweep.from_dict({"dataset": "x"} | change)


def test_bad_files(tmp_path):
    path = tmp_path / "my.toml"
    for text, message in {
        "dataset = 3 4": "my.toml: .*line 1",
        "max_epochs = 3": "my.toml: a sweep needs a dataset",
        "dataset = 'x'\nseeds = []": "my.toml: seeds is empty",
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            Sweep.from_toml(path)
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        Sweep.from_toml(tmp_path / "none.toml")


def test_unknown_loss_and_dataset(tmp_path):
    with pytest.raises(ValueError, match="unknown loss 'svm'; there are ce, ls"):
        plan(Sweep("x", loss=("ce", "svm")), tmp_path / "new", DATA)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="compas"):
        load("compass")
