"""Kernels are compiled by one process of those that need them at the same time; the others load what it made."""

import os
import subprocess
import sys
from pathlib import Path

from ssfx.compressors.kernels.cpu import jit, select

PROGRAM = """
import sys
import numpy as np
from ssfx.compressors.kernels.cpu import random_keys
kernel = random_keys.key
print("ready", flush=True)
sys.stdin.readline()
kernel(1, 2, 3, 4)
print(sum(kernel.stats.cache_misses.values()), sum(kernel.stats.cache_hits.values()))
"""


def test_of_processes_that_need_a_kernel_at_the_same_time_one_compiles_it(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    said = [process.communicate("go\n", timeout=300)[0].split() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sorted(map(tuple, said)) == [("0", "1"), ("0", "1"), ("1", "0")]


def test_where_no_file_can_be_locked_each_process_compiles(tmp_path):
    (tmp_path / "file").write_text("")
    entered = []
    with jit._alone(tmp_path / "file" / "below"):
        entered.append(True)
    assert entered


def test_a_changed_file_of_an_inlined_kernel_is_another_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "cache_dir", jit.cache_dir.__wrapped__)
    room = tmp_path / "kernels" / "cpu"
    room.mkdir(parents=True)
    inlined, kernel = room / "inlined.py", room / "kernel.py"
    inlined.write_text("factor = 1\n")
    kernel.write_text("from ssfx.compressors.kernels.cpu.inlined import factor\n")
    before = jit.cache_dir(kernel)
    inlined.write_text("factor = 2\n")
    assert jit.cache_dir(kernel) != before


def test_imports_of_kernels_are_seen_by_their_real_names():
    assert {path.stem for path in jit._with_imports(Path(select.__file__))} > {"select", "jit"}
