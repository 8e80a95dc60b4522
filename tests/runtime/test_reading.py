"""README lists the files that one training step goes through; a step is traced to hold the list true."""

import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from runtime.models import build, loss_of
from runtime.pool import Pool

import ssfx
from ssfx.compressors.kernels import plain_torch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTION = README.partition("## Dive into the code")[2].partition("\n## ")[0]
LISTED = re.findall(r"^    (ssfx/[\w/]+\.py) ", SECTION, re.MULTILINE)
LOOK_ON = {f"ssfx/runtime/{name}" for name in re.findall(r"`(\w+\.py)`", SECTION)}
MOST_LISTED, MOST_FILES, MOST_LINES = 15, 20, 3300
FEW = 5
"""Lines of a file that a step may execute without a place in the list."""


@pytest.fixture(scope="module")
def executed(pool: Pool) -> dict[str, int]:
    """How many lines of each file a step executes."""
    options = {"scheme": "per_tensor", "compressor": "dgc", "density": 0.25}
    first, second = pool.run(one_step, 2, options)
    assert first.keys() == second.keys()
    return {file: max(first[file], second[file]) for file in first}


def test_the_list_is_short() -> None:
    assert len(LISTED) == len(set(LISTED)) <= MOST_LISTED
    assert len({*LISTED, *LOOK_ON}) <= MOST_FILES
    assert sum(len((ROOT / file).read_text().splitlines()) for file in LISTED) <= MOST_LINES


def test_a_step_goes_through_every_file_of_the_list(executed: dict[str, int]) -> None:
    assert set(LISTED) | LOOK_ON <= executed.keys()


def test_a_step_goes_through_no_other_file_for_more_than_some_lines(executed: dict[str, int]) -> None:
    assert {file for file, lines in executed.items() if lines > FEW} - set(LISTED) == LOOK_ON


# ---- on each rank ---------------------------------------------------------------------------------------------------


PACKAGE = Path(ssfx.__file__).parent


def one_step(group: Any, rank: int, world: int, options: dict[str, Any]) -> dict[str, int]:
    """Return how many different lines of each file of ssfx the fourth step executes, on any thread that Python runs."""
    with plain_torch():
        model = build("mlp")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        sync = ssfx.attach(model, optimizer, process_group=group, **options)
        lines: set[tuple[str, int]] = set()

        def note(frame: FrameType, event: str, _: Any) -> Any:
            if not frame.f_code.co_filename.startswith(str(PACKAGE)):
                return None
            if event == "line":
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            return note

        for step in range(4):
            before = sys.gettrace()
            sys.settrace(note if step == 3 else before)
            try:
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                optimizer.step()
            finally:
                sys.settrace(before)
        sync.detach()
        counts = Counter(file for file, _ in lines)
        return {Path(file).relative_to(PACKAGE.parent).as_posix(): count for file, count in counts.items()}
