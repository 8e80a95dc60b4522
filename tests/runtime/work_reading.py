"""What ranks run for the test of README's reading list: one training step, and the lines of ssfx that it executes.

In plain torch: compiled kernels do the same in one pass, where no tracer looks, and are compared with it bit for bit.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from runtime.models import build, loss_of

import ssfx
from ssfx.compressors.kernels import plain_torch

PACKAGE = Path(ssfx.__file__).parent


def one_step(group: Any, rank: int, world: int, options: dict[str, Any]) -> dict[str, int]:
    """Return how many different lines of each file of ssfx the fourth step executes, on any thread that Python runs."""
    with plain_torch():
        return _traced_step(group, rank, options)


def _traced_step(group: Any, rank: int, options: dict[str, Any]) -> dict[str, int]:
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
