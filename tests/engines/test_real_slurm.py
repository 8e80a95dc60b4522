"""The slurm engine on a real Slurm: slurmctld, and a slurmd for each of two nodes, on this machine."""

import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from engines import real_slurm
from engines.helpers import make_case
from engines.real_slurm import RealSlurm
from processes import wait_until

from ssfx.core.errors import RunError
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.slurm import Slurm
from ssfx.lab.engines.submission import queued, submissions
from ssfx.lab.results.store import Store
from ssfx.lab.worker.heartbeat import read_beat
from ssfx.lab.worker.stop import REQUEST

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(real_slurm.missing()), reason=f"no Slurm can be started here: {real_slurm.missing()}"),
]


@pytest.fixture
def slurm(monkeypatch, started):
    root = Path(tempfile.mkdtemp(prefix="ssfx-slurm-"))  # short, as sockets want it
    one = RealSlurm(root)
    for name, value in one.variables.items():
        monkeypatch.setenv(name, value)
    try:
        one.start()
        yield one
    finally:
        one.stop()
        shutil.rmtree(root)


def test_of_four_runs_one_is_killed_one_requeued_one_warned_and_every_row_is_collected_once(
    store, slurm, monkeypatch, tmp_path, capfd
):
    store = Store(tmp_path / "my résultats 100%")
    cases = [
        make_case(cluster="16gpu(device=cpu,devices_per_node=2,nodes=1)", seed=seed, steps=8) for seed in (1, 2, 3, 4)
    ]
    requeued, warned, killed, _ = cases
    hold = tmp_path / "go on"
    hold.mkdir()
    for case in cases[2:]:
        (hold / case.run_id).touch()
    monkeypatch.setenv("FAKE_HOLD", str(hold / "{run}"))
    monkeypatch.setenv("SSFX_FAULT", f"kill:rank=1,step=4,phase=backward,run={killed.run_id}")
    engine = Slurm("fake_train:train", look_s=0.5, settle_s=3.0)

    def disturb():
        first = [store.run_dir(case) / "attempt-1" for case in (requeued, warned)]
        wait_until(lambda: all((beat := read_beat(folder, 0)) and beat.step == 2 for folder in first))
        (array,) = submissions(store)
        slurm.said("scontrol", "requeue", array.tasks[requeued.run_id].task)
        slurm.said("scancel", "--signal=USR1", "--batch", array.tasks[warned.run_id].task)
        wait_until((first[1] / REQUEST).exists)
        for case in (requeued, warned):
            (hold / case.run_id).touch()

    thread = threading.Thread(target=disturb)
    thread.start()
    with pytest.raises(RunsFailed, match="rank 1 was killed by SIGKILL in backward at step 4") as caught:
        engine.run(cases, store)
    thread.join()
    assert list(caught.value.failures) == [killed.run_id]
    rows = engine.run(cases, store, progress=False)
    assert [row.case for row in rows] == cases
    assert [row.manifest["attempt"] for row in rows] == [2, 2, 2, 1]
    assert [row.manifest["resumed_from_step"] > 0 for row in rows] == [False, True, False, False]
    assert len(store.rows()) == 4
    first, again = submissions(store)
    assert (len(first.tasks), list(again.tasks)) == (4, [killed.run_id])
    for case in (requeued, warned):
        assert first.tasks[case.run_id].log.read_text().count("slurm: 1 case(s) on 2 cpu rank(s)") == 2
    assert "slurm: job 1, 4 task(s) of 1 node(s), 2 rank(s) on each" in capfd.readouterr().err

    slurm.stop_controller()
    said = []
    with pytest.raises(RunError, match="squeue failed"):
        queued(tries=2, pause_s=0.0, say=said.append)
    assert "asking Slurm until" in said[0]
    slurm.start_controller()
    assert set(queued(tries=20, pause_s=0.5)) <= {again.tasks[killed.run_id].task}  # which may not have ended quite
