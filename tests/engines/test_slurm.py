"""The slurm engine on a Slurm of one machine: arrays, two nodes, failures, and commands that come back."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from engines.helpers import HERE, make_case
from processes import wait_until

from ssfx.core.errors import ConfigError, RunError
from ssfx.engines.sbatch import Shape, queued, script
from ssfx.engines.slurm import Slurm

CLUSTER = "16gpu(device=cpu,devices_per_node=1,nodes=2)"


def two_nodes(**changes):
    return make_case(cluster=CLUSTER, **changes)


@pytest.fixture
def slurm(store, tmp_path_factory, monkeypatch):
    """Programs of Slurm on the PATH; the folder that stands for its state."""
    state, programs = tmp_path_factory.mktemp("slurm"), tmp_path_factory.mktemp("bin")
    for name in ("sbatch", "squeue", "srun"):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_slurm.py"} {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    monkeypatch.setenv("FAKE_SLURM", str(state))
    yield state
    wait_until(lambda: not [path for path in state.glob("queue/*") if not (state / "hold").exists()])


def engine(train="fake_train:train"):
    return Slurm(train, look_s=0.1, settle_s=0.2)


def test_the_script_asks_for_whole_nodes_and_leaves_the_site_to_slurm():
    text = script(Shape(16, 4, gpus=True), 3, ["python", "-m", "it is"], Path("/results/task-%a.log"))
    assert text.splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=ssfx",
        "#SBATCH --array=0-2",
        "#SBATCH --nodes=16",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gres=gpu:4",
        "#SBATCH --exclusive",
        '#SBATCH --output="/results/task-%a.log"',
        "exec python -m 'it is' \"$SLURM_ARRAY_TASK_ID\"",
    ]
    spaced = script(Shape(1, 2, gpus=False), 1, ["true"], Path("/my results/100%/task-%a.log"))
    assert '#SBATCH --output="/my results/100%%/task-%a.log"' in spaced
    with pytest.raises(ConfigError, match=r"Slurm cannot write logs below '/data/a\\ntouch b'"):
        script(Shape(1, 2, gpus=False), 1, ["true"], Path("/data/a\ntouch b/task-%a.log"))
    assert "gres" not in script(Shape(1, 2, gpus=False), 1, ["true"], Path("log"))


@pytest.mark.torchrun
@pytest.mark.slow
def test_every_case_is_a_task_on_nodes_of_its_own_and_runs_once(store, slurm, capfd):
    cases = [two_nodes(seed=seed) for seed in (1, 2)]
    rows = engine().run(cases, store)
    assert [row.case for row in rows] == cases
    (job,) = slurm.glob("job-*")
    assert {"array=0-1", "nodes=2"} <= set(job.read_text().splitlines())
    for number, row in enumerate(rows):
        assert row.origin.kind == "measured"
        assert row.origin.hardware.startswith("2 x (")
        assert row.manifest["slurm"] == {"job": f"100{number}", "nodes": 2}
        assert "GLOO_SOCKET_IFNAME" not in row.manifest["environment"]
        assert row.metrics["iteration_s"] == 4.0
        assert len(row.manifest["rank_cores"]) == 2
    said = capfd.readouterr().err
    assert "slurm: job 100, 2 task(s) of 2 node(s), 1 rank(s) on each" in said
    assert engine().run(cases, store) == rows
    assert len(list(slurm.glob("job-*"))) == 1
    assert "already finished, nothing to do" in capfd.readouterr().err


@pytest.mark.torchrun
@pytest.mark.slow
def test_a_rank_that_dies_costs_its_case_only_and_is_named(store, slurm, monkeypatch):
    cases = [two_nodes(seed=seed) for seed in (1, 2)]
    monkeypatch.setenv("SSFX_FAULT", f"kill:rank=1,step=4,phase=backward,run={cases[0].run_id}")
    with pytest.raises(RunError, match=rf"{cases[0].run_id} .* failed: rank 1 .*; see .*task-0\.log"):
        engine().run(cases, store, progress=False)
    assert [store.status(case) for case in cases] == ["failed", "finished"]


def test_a_task_that_never_got_to_its_case_says_its_last_line(store, slurm, monkeypatch):
    monkeypatch.setattr("ssfx.engines.slurm.sys.executable", "/no/such/python")
    said = r"100_0 ended with: .*/no/such/python.*; see .*task-0\.log \(1 more failed: \w+\)"
    with pytest.raises(RunError, match=said):
        engine().run([two_nodes(seed=seed) for seed in (1, 2)], store, progress=False)


def test_a_command_that_was_interrupted_leaves_its_tasks_to_slurm_and_finds_them_again(
    store, slurm, monkeypatch, capfd
):
    (slurm / "hold").touch()
    case = two_nodes()

    def interrupt(_):
        raise KeyboardInterrupt

    # Not time.sleep itself, which subprocess calls, too.
    monkeypatch.setattr("ssfx.engines.slurm.time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic))
    for said in ("slurm: job 100", "is Slurm's task 100_0 already"):
        with suppress(KeyboardInterrupt):
            engine().run([case], store)
        err = capfd.readouterr().err
        assert said in err
        assert "slurm: tasks wait for Nodes required for job are DOWN" in err
        assert "scancel 100" in err
    assert len(list(slurm.glob("job-*"))) == 1


def test_what_slurm_refuses_is_said_in_its_words(store, slurm):
    (slurm / "refuse").touch()
    with pytest.raises(RunError, match=r"sbatch failed: .*Invalid partition name"):
        engine().run([two_nodes()], store, progress=False)
    (slurm / "silent").touch()
    said = []
    with pytest.raises(RunError, match=r"squeue failed: .*Unable to contact slurm controller"):
        queued(tries=3, pause_s=0.0, say=said.append)
    assert len(said) == 1
    assert re.search(r"Unable to contact slurm controller; asking Slurm until \d\d:\d\d$", said[0])


def test_without_slurm_nothing_is_started(store, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="engine=slurm cannot submit anything, sbatch is not on the PATH"):
        engine().run([two_nodes()], store)
    assert not store.runs.exists()
