"""Ranks that are profiled end with the process that started them, even if it is killed."""

import os
import subprocess
import sys
import time

import psutil
import pytest

PROGRAM = """
from ssfx.workloads.profiling import record_profile
if __name__ == "__main__":
    record_profile("resnet_tiny", "digits", 8, "cpu", iterations=100000, warmup=0, ranks=2)
"""


@pytest.mark.slow
def test_no_rank_outlives_a_killed_launcher(tmp_path):
    script = tmp_path / "profile_forever.py"
    script.write_text(PROGRAM)
    launcher = subprocess.Popen([sys.executable, "-W", "ignore", str(script)], env={**os.environ})
    until, ranks = time.monotonic() + 60, []
    while len(ranks) < 2 and time.monotonic() < until:
        time.sleep(0.2)
        children = psutil.Process(launcher.pid).children(recursive=True)
        ranks = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(ranks) == 2
    time.sleep(5)  # they import torch and begin
    assert all(rank.is_running() for rank in ranks)
    launcher.kill()
    launcher.wait()
    gone, alive = psutil.wait_procs(ranks, timeout=20)
    assert not alive
    assert len(gone) == 2
