"""Ranks that are profiled end with the process that started them, even if it is killed."""

import sys

import psutil
import pytest
from processes import HANG_S, runs, wait_until

PROGRAM = """
import os, pathlib
from ssfx.lab.workloads import profiling
from ssfx.lab.workloads.profiling import record_profile

def noted(loop, number, run=profiling.Loop.run):
    pathlib.Path(__file__).with_name(f"{os.getpid()}.rank").touch()
    return run(loop, number)

profiling.Loop.run = noted  # in the ranks, too, which read this file again
if __name__ == "__main__":
    record_profile("resnet_tiny", "digits", 8, "cpu", iterations=100000, warmup=0, ranks=2)
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_no_rank_outlives_a_killed_launcher(started, tmp_path):
    script = tmp_path / "profile_forever.py"
    script.write_text(PROGRAM)
    launcher = started.start([sys.executable, "-W", "ignore", str(script)])

    def ranks():
        assert launcher.poll() is None
        return [psutil.Process(int(path.stem)) for path in tmp_path.glob("*.rank")]

    wait_until(lambda: len(ranks()) == 2)
    measuring = ranks()
    assert all(runs(rank) for rank in measuring)
    launcher.kill()
    launcher.wait(HANG_S)
    wait_until(lambda: not any(runs(rank) for rank in measuring))
