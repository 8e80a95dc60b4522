"""The store: what is finished, what is claimed, and what a corrupt file does."""

import hashlib
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssfx.core.case import LATER_FIELDS, Case
from ssfx.core.errors import RunError
from ssfx.core.files import write_atomic
from ssfx.core.origin import Origin
from ssfx.core.rows import METRICS, Row
from ssfx.lab.results.store import RunLock, Store, export, read_rows, to_frame


def make_row(seed=0, experiment="a", **metrics) -> Row:
    case = Case(experiment, "m", "d", "ddp", "local", 2, 4, seed=seed, scheme_options={"bucket_mb": 25})
    return Row(
        case.run_id, case, {"iteration_s": 0.5, **metrics}, Origin("measured"), {"attempt": 1}, {"iteration_s": [0.5]}
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results", reference=tmp_path / "reference")


def test_a_run_goes_from_new_to_half_to_failed_to_finished(store):
    row = make_row()
    run_dir = store.run_dir(row.case)
    assert store.status(row.case) == "new"
    (run_dir / "attempt-1").mkdir(parents=True)
    assert store.status(row.case) == "half"
    (run_dir / "attempt-1" / "failure.json").write_text("{}")
    assert store.status(row.case) == "failed"
    (run_dir / "attempt-10").mkdir()
    assert store.attempts(row.case) == [1, 10]
    assert store.status(row.case) == "half"
    store.save(row)
    assert store.status(row.case) == "finished"
    assert store.row(row.case) == row


def test_rows_are_selected_by_experiment(store):
    assert store.rows() == []
    rows = [make_row(seed, experiment) for seed, experiment in ((1, "a"), (2, "b"), (3, "a"))]
    for row in rows:
        store.save(row)
    assert sorted(row.case.seed for row in store.rows("a")) == [1, 3]
    assert len(store.rows()) == 3


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"run_id": "x"}', "\x00\x01", make_row(seed=99).to_json(), "\udcff"]
)
def test_a_corrupt_row_is_an_error_with_file_and_line(store, text):
    case = make_row().case
    path = store.run_dir(case) / "row.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
    for read in (store.rows, lambda: store.row(case), lambda: store.status(case)):
        with pytest.raises(RunError, match=r"row\.json:1: not "):
            read()


def test_half_a_row_is_an_error_wherever_it_ends(store):
    row = make_row()
    store.save(row)
    path = store.run_dir(row.case) / "row.json"
    whole = path.read_text()
    for end in range(len(whole) - 1):  # without its line break it is whole
        path.write_text(whole[:end])
        with pytest.raises(RunError, match=r"row\.json:1: not "):
            store.rows()


def test_reference_rows_come_back_and_a_corrupt_line_is_named(store, tmp_path):
    rows = [make_row(seed) for seed in range(3)]
    path = tmp_path / "reference" / "fig.jsonl"
    export(rows, path)
    assert store.reference_rows() == rows == read_rows(path)
    assert store.reference_rows("other") == []
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-20], lines[2]]))
    with pytest.raises(RunError, match=r"fig\.jsonl:2: not a row"):
        store.reference_rows()


def test_rows_are_found_by_the_beginning_of_their_id_whatever_else_is_damaged(store):
    own, came, other = (make_row(seed) for seed in (1, 2, 3))
    store.save(own)
    export([own, came], store.reference / "rows.jsonl")
    damaged = other.to_json()[:-9]
    (store.reference / "worse.jsonl").write_text(f"{damaged}\n")
    assert store.beginning(own.run_id) == [own, own]
    assert store.beginning(came.run_id[:8]) == [came]
    assert store.beginning("*") == []
    with pytest.raises(RunError, match=r"worse\.jsonl:1"):
        store.beginning(other.run_id)


def test_packed_reference_rows_come_back_and_a_damaged_pack_is_named(store, tmp_path):
    rows = [make_row(seed) for seed in range(3)]
    path = tmp_path / "reference" / "many.jsonl.gz"
    export(rows, path)
    packed = path.read_bytes()
    assert store.reference_rows() == rows == read_rows(path)
    export(rows, path)
    assert path.read_bytes() == packed
    for damaged in (packed[:-30], packed[:40] + bytes([packed[40] ^ 255]) + packed[41:], b"no gzip"):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"many\.jsonl\.gz:1: not what gzip packs"):
            store.reference_rows()


def test_a_pack_that_unpacks_to_more_than_memory_is_refused(store, tmp_path, monkeypatch):
    export([make_row(0)], tmp_path / "reference" / "many.jsonl.gz")
    monkeypatch.setattr("ssfx.core.files.MOST_UNPACKED_BYTES", 100)
    with pytest.raises(RunError, match=r"many\.jsonl\.gz cannot be read: it unpacks to more than"):
        store.reference_rows()


def test_rows_and_cases_of_earlier_versions_are_read_and_keep_their_ids():
    row = make_row()
    case = replace(row.case, time_compute_only=True)
    raw = json.loads(replace(row, run_id=case.run_id, case=case).to_json())
    with_digest = json.dumps(raw | {"content_sha256": "0" * 64}), json.dumps(raw["case"] | {"content_sha256": "0" * 64})
    assert Row.from_json(with_digest[0]).case == case == Case.from_json(with_digest[1])
    first = {name: value for name, value in asdict(case).items() if name not in LATER_FIELDS}
    text = json.dumps(first | {"control": True, "cluster": "local"}, sort_keys=True, separators=(",", ":"))
    assert case.run_id == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert case.run_id != row.case.run_id


def test_a_value_that_is_no_number_is_no_row():
    row = make_row()
    for bad in ("0.5", float("nan"), float("inf"), True, [1]):
        with pytest.raises(ValueError, match="metric iteration_s must be a finite number"):
            Row(row.run_id, row.case, {"iteration_s": bad}, row.origin)
    with pytest.raises(ValueError, match="unknown metric 'speed'"):
        Row(row.run_id, row.case, {"speed": 1.0}, row.origin)


@given(
    metrics=st.dictionaries(
        st.sampled_from(sorted(METRICS)), st.none() | st.floats(0, allow_nan=False, allow_infinity=False)
    ),
    seed=st.integers(0, 2**31),
    times=st.lists(st.floats(0, 1e6)),
)
def test_a_row_survives_its_json(metrics, seed, times):
    case = make_row(seed).case
    row = Row(case.run_id, case, metrics, Origin("simulated", "hw"), {"x": [1, None]}, {"iteration_s": times})
    assert Row.from_json(row.to_json()) == row
    assert "\n" not in row.to_json()


@given(number=st.integers(0, 10))
def test_equal_cases_have_equal_ids(number):
    base = make_row().case
    fields = {name: getattr(base, name) for name in Case.__dataclass_fields__}
    one, other = (Case(**{**fields, "lr": kind(number), "density": 1, "clip_norm": 1.0}) for kind in (int, float))
    assert one == other
    assert one.run_id == other.run_id
    assert Case.from_json(one.to_json()).run_id == one.run_id


def test_the_frame_has_one_line_a_row_and_nan_for_what_is_missing():
    frame = to_frame([make_row(1, top1=0.9), make_row(2)])
    assert list(frame["seed"]) == [1, 2]
    assert frame["kind"].tolist() == ["measured"] * 2
    assert frame["scheme_options"][0] == '{"bucket_mb": 25}'
    assert frame["top1"][0] == 0.9
    assert math.isnan(frame["top1"][1])


def test_a_claim_is_exclusive_until_released(store):
    case = make_row().case
    claim = store.claim(case)
    assert store.claim(case) is None
    assert RunLock.holder(store.run_dir(case)) == f"process {os.getpid()}"
    claim.release()
    claim.release()
    again = store.claim(case)
    assert again is not None
    again.release()


def test_the_claim_of_a_dead_process_is_free(store):
    case = make_row().case
    code = (
        "import os, sys; from pathlib import Path; from ssfx.lab.results.store import RunLock\n"
        "claim = RunLock.take(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store.run_dir(case))])
    assert done.returncode == -9
    claim = store.claim(case)
    assert claim is not None
    claim.release()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "row.json"
    write_atomic(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
