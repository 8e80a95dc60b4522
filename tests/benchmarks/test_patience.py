"""The benchmark of gloo's listener: a run of it, and that its record makes the documentation's table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import finished

from ssfx.pages.emulated import PATIENCE, patience_block

PATH = Path(__file__).parents[2] / "benchmarks" / "patience.py"


@pytest.mark.slow
def test_a_run_prints_every_situation_and_makes_the_table(tmp_path):
    done = finished([sys.executable, PATH, "--workers", "2", "--rounds", "3", "--json", tmp_path / PATIENCE])
    assert done.returncode == 0, done.stderr
    table = patience_block(tmp_path)
    for size in ("1,024 B", "1,048,576 B"):
        for situation in (f"{size} back to back", f"{size} after 8 ms of computing", f"8 of {size} beside as much"):
            assert done.stdout.count(situation) == 1
            assert table.count(f"| {situation} |") == 1
