"""README lists the files that one training step goes through; a step is traced to hold the list true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runtime import work_reading
from runtime.pool import Pool

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTION = README.partition("## Dive into the code")[2].partition("\n## ")[0]
LISTED = re.findall(r"^    (ssfx/[\w/]+\.py) ", SECTION, re.MULTILINE)
LOOK_ON = {f"ssfx/runtime/{name}" for name in re.findall(r"`(\w+\.py)`", SECTION)}
MOST_FILES, MOST_LINES = 20, 3300
FEW = 5
"""Lines of a file that a step may execute without a place in the list."""


@pytest.fixture(scope="module")
def executed(pool: Pool) -> dict[str, int]:
    """How many lines of each file a step executes."""
    options = {"scheme": "per_tensor", "compressor": "dgc", "density": 0.25}
    first, second = pool.run(work_reading.one_step, 2, options)
    assert first.keys() == second.keys()
    return {file: max(first[file], second[file]) for file in first}


def test_the_list_is_short() -> None:
    assert len(LISTED) == len(set(LISTED)) <= MOST_FILES
    assert sum(len((ROOT / file).read_text().splitlines()) for file in LISTED) <= MOST_LINES


def test_a_step_goes_through_every_file_of_the_list(executed: dict[str, int]) -> None:
    assert set(LISTED) | LOOK_ON <= executed.keys()


def test_a_step_goes_through_no_other_file_for_more_than_some_lines(executed: dict[str, int]) -> None:
    assert {file for file, lines in executed.items() if lines > FEW} - set(LISTED) == LOOK_ON
