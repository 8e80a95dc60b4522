"""Step logs of real attempts: any change of a file is found, whatever is left of it, and an accepted one is shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest
from engines.helpers import fake_launches, make_case

from ssfx.cli import main
from ssfx.core.errors import RunError
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results import step_logs
from ssfx.lab.results.store import Store
from ssfx.lab.workloads.record import records_in

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "emptied": lambda lines: [],
    "cut after a line": lambda lines: lines[:3],
    "cut in a line": lambda lines: [b"".join(lines)[:300]],
    "without its end": lambda lines: [b"".join(lines)[:-1]],
    "a line left out": lambda lines: lines[:2] + lines[3:],
    "reordered": lambda lines: [lines[1], lines[0], *lines[2:]],
    "doubled": lambda lines: [*lines, lines[-1]],
    "all of it twice": lambda lines: lines * 2,
    "another number": lambda lines: [lines[0].replace(b'"iteration_s":0.5', b'"iteration_s":0.6'), *lines[1:]],
    "another step": lambda lines: [*lines[:-1], lines[-1].replace(b'"step":5', b'"step":6')],
    "a blank line": lambda lines: [*lines, b"\n"],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the folder of a run that was finished at its second attempt, and of one that failed."""
    folder = tmp_path_factory.mktemp("recorded")
    cases = [make_case(seed=seed) for seed in (1, 2)]
    with pytest.MonkeyPatch.context() as patch:
        fake_launches(patch)
        for case in cases:
            patch.setenv("SSFX_FAULT", f"raise:rank=1,step=4,phase=exchange,run={case.run_id}")
            with pytest.raises(RunError, match="InjectedFault"):
                Torchrun(train="fake_train:train").run([case], Store(folder), progress=False)
        Torchrun(train="fake_train:train").run(cases[:1], Store(folder), progress=False)
    return folder


@pytest.fixture
def runs(recorded, tmp_path, monkeypatch):
    """Return step logs of a copy of these runs, which are all that a command looks at."""
    shutil.copytree(recorded, tmp_path / "results")
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))
    for shipped in ("reference_dir", "data_dir"):
        monkeypatch.setattr(f"ssfx.lab.cli.verify.{shipped}", lambda: tmp_path / "nothing")
    return sorted((tmp_path / "results").glob("runs/*/attempt-*/rank*.jsonl"))


def test_every_change_of_a_step_log_is_found(runs, capsys):
    assert len(runs) == 6
    assert main(["status", "--verify"]) == 0
    assert "no digest" not in capsys.readouterr().out
    for path in (runs[0], runs[-1]):  # of a finished attempt, and of a failed one
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        for name, change in CHANGES.items():
            changed = b"".join(change(lines))
            if changed == whole:  # a failed attempt has no sixth step
                continue
            path.write_bytes(changed)
            assert main(["status", "--verify"]) == 1, (path, name)
            said = capsys.readouterr().err
            assert str(path) in said, name
            assert len(said.splitlines()) == 1
            with pytest.raises(RunError, match=path.name):
                records_in(path, torn=True)
        path.unlink()
        assert main(["status", "--verify"]) == 1
        assert f"{path} is not there" in capsys.readouterr().err
        path.write_bytes(whole)
    seal = runs[0].with_name(step_logs.NAME)
    seal.write_text(seal.read_text().replace("rank0", "rank7"))
    assert main(["status", "--verify"]) == 1
    assert str(seal) in capsys.readouterr().err


def test_a_change_that_was_accepted_stays_visible(runs, capsys):
    path = runs[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    assert main(["status", "--bless", str(path)]) == 0
    assert "accepted as it is" in capsys.readouterr().out
    assert len(records_in(path, torn=False)) == len(lines) - 1
    assert main(["status", "--bless", str(path)]) == 0
    assert "it is what was written" in capsys.readouterr().out
    assert main(["status", "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accepted"] == [str(path.with_name(step_logs.NAME))]
    path.write_text("{")
    path.with_name("rank9.jsonl").write_text("no record\n")
    for one in (path.with_name("rank9.jsonl"), path.with_name("rank8.jsonl")):
        assert main(["status", "--bless", str(one)]) == 2
        assert one.name in capsys.readouterr().err
    assert main(["status", "--verify"]) == 1
