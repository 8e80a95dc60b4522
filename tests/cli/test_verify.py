"""`ssfx status --verify` and `--bless`: what was written, what was changed, and what somebody accepted."""

from __future__ import annotations

import json

import pytest
from results.test_store import make_row

from ssfx.cli import main
from ssfx.core.digests import yaml_with_digest
from ssfx.core.paths import conf_dir, data_dir, reference_dir
from ssfx.lab.cli.verify import everything
from ssfx.lab.results.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    return Store(tmp_path)


def verified(capsys):
    assert main(["status", "--verify", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_all_that_is_shipped_is_what_was_written(store, capsys):
    found = verified(capsys)
    assert found["files"] >= 100
    assert (found["damaged"], found["without_digest"], found["accepted"]) == ([], [], [])
    paths = set(everything())
    assert set(reference_dir().glob("*.json*")) <= paths
    assert {data_dir() / "validation.json", data_dir() / "costs" / "cpu.json"} <= paths


def test_a_changed_row_is_refused_until_somebody_accepts_it(store, capsys):
    row = make_row(loss=1.089)
    store.save(row)
    path = store.run_dir(row.case) / "row.json"
    path.write_text(path.read_text().replace("1.089", "1.081"))
    assert main(["status", "--verify"]) == 1
    said = capsys.readouterr()
    assert f"ssfx status --bless {path}" in said.err
    assert len(said.err.splitlines()) == 1
    assert f"{path}:1: it was changed after it was written" in said.out
    assert main(["status", "--bless", str(path)]) == 0
    assert store.row(row.case).metrics["loss"] == 1.081
    assert str(path) in capsys.readouterr().out
    assert verified(capsys)["accepted"] == [str(path)]
    assert main(["status", "--bless", str(path)]) == 0
    assert "it is what was written" in capsys.readouterr().out


def test_the_note_that_a_file_was_accepted_cannot_be_removed(store):
    row = make_row()
    store.save(row)
    path = store.run_dir(row.case) / "row.json"
    path.write_text(path.read_text().replace("0.5", "0.4"))
    assert main(["status", "--bless", str(path)]) == 0
    text = path.read_text()
    start = text.index('"blessed"')
    path.write_text(text[:start] + text[text.index('"content_sha256"') :])
    assert main(["status", "--verify"]) == 1


def test_a_result_of_an_earlier_version_is_read_and_said_once(store, capsys):
    rows = [make_row(seed) for seed in (1, 2)]
    for row in rows:
        store.save(row)
        (store.run_dir(row.case) / "row.json").write_text(row.to_json() + "\n")
    assert main(["status"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ssfx: {store.run_dir(min(rows, key=lambda row: row.run_id).case)}")
    assert "and 1 more have no digest" in line
    assert main(["status", "--verify"]) == 0
    said = capsys.readouterr()
    assert "2 have no digest" in said.out
    assert said.err == ""


def test_what_is_not_whole_is_not_accepted(store, tmp_path, capsys):
    for name, text in (("a.json", "{"), ("b.json", '{"launch_order": 3}'), ("c.yaml", None), ("d.txt", "x")):
        if text is not None:
            (tmp_path / name).write_text(text)
        assert main(["status", "--bless", str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err
    assert main(["status", "--bless", "x.json", "--verify"]) == 2
    assert main(["status", "--claims", "ssfusion", "--verify"]) == 2


def test_a_measured_cluster_that_was_edited_is_refused_or_becomes_a_file_of_ones_own(tmp_path, capsys):
    text = yaml_with_digest((conf_dir() / "cluster" / "box.yaml").read_text())
    edited = text.replace("nodes: 2", "nodes: 4")
    own = "".join(edited.splitlines(keepends=True)[1:-1])
    for name, one, code in (("written", text, 0), ("edited", edited, 2), ("own", own, 0)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(one)
        assert main(["plan", "scheme=ddp", "model=resnet50", f"cluster={path}"]) == code
        said = capsys.readouterr()
        assert ("drop its first and last line" in said.err) is bool(code)
    assert "32 ranks" in said.out


def test_a_cluster_file_that_is_not_whole_says_what_it_lacks(tmp_path, capsys):
    for name, text, lacks in (
        ("a", "{}", "summary, nodes,"),
        ("b", "nodes: 2\nintra: 3\n", "lacks summary"),
        ("c", "[" * 9999, "lists"),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        assert main(["plan", "scheme=ddp", "model=resnet50", f"cluster={path}"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(path) in line
        assert lacks in line
