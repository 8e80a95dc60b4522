"""Real ranks in rounds of local updates: killed, ended, or with a number that is not finite, they lose nothing."""

import os
import signal
import subprocess
import sys

import pytest
from engines.helpers import HERE, make_case
from processes import HANG_S, wait_until

from ssfx.core.errors import RunError
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import Store
from ssfx.lab.workloads.record import records_in

pytestmark = [pytest.mark.torchrun, pytest.mark.slow, pytest.mark.nightly]
ROUNDS = {"model": "resnet_tiny", "dataset": "digits", "scheme": "diloco", "compressor": "bf16", "memory": "none"}
SHAPE = {"scheme_options": {"every": 4}, "steps": 11, "warmup_steps": 0, "checkpoint_every": 3}


def losses(store: Store, case, attempt: int) -> list[dict[int, float | None]]:
    folder = store.run_dir(case) / f"attempt-{attempt}"
    return [{one.step: one.loss for one in records_in(folder / f"rank{rank}.jsonl", torn=True)} for rank in (0, 1)]


def test_a_killed_rank_and_a_sigterm_inside_rounds_cost_no_step(store, started, tmp_path, monkeypatch):
    case = make_case(**ROUNDS, **SHAPE)
    whole = Store(tmp_path / "whole")
    Torchrun().run([case], whole, progress=False)
    monkeypatch.setenv("SSFX_FAULT", "kill:rank=1,step=5,phase=backward")  # inside the second round
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL in backward at step 5"):
        Torchrun().run([case], store, progress=False)
    command = [sys.executable, str(HERE / "drive.py"), str(store.runs.parent), case.to_json()]
    environment = {**os.environ, "DRIVE_TRAIN": ""}
    launcher = started.start(command, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until((store.run_dir(case) / "attempt-2").exists)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(HANG_S) == 143, launcher.stderr.read()
    assert started.left() == []
    (row,) = Torchrun().run([case], store, progress=False)
    assert row.manifest["resumed_from_step"] >= 3
    expected = losses(whole, case, 1)
    for rank, found in enumerate(losses(store, case, row.manifest["attempt"])):
        assert found == {step: expected[rank][step] for step in range(row.manifest["resumed_from_step"], 11)}


def test_a_gradient_of_one_rank_that_is_not_finite_is_left_out_and_the_run_goes_on(store, monkeypatch):
    monkeypatch.setenv("SSFX_FAULT", "nan:rank=1,step=5,phase=forward")
    case = make_case(**ROUNDS, **SHAPE)
    (row,) = Torchrun().run([case], store, progress=False)
    assert [fault["kind"] for fault in row.manifest["faults"]] == ["nan"]
    after = losses(store, case, 1)
    assert all(loss is not None for rank in after for step, loss in rank.items() if step > 5)
