"""What the pool's ranks run for the comparison of a measured trace with a simulated one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from runtime.work import STEPS, attached, train


def traced(group: Any, rank: int, world: int, options: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return the trace's events of the last step, which the final plan executed, and that plan as JSON."""
    model, optimizer, sync = attached("mlp", group, world, {**options, "trace": True})
    train(model, optimizer, rank, range(STEPS - 1))
    before = len(sync.tracer._events)
    train(model, optimizer, rank, range(STEPS - 1, STEPS))
    with tempfile.TemporaryDirectory() as folder:
        sync.tracer.save(Path(folder) / "trace.json")
        spans = [e for e in json.loads((Path(folder) / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    plan = sync.plan.to_json()
    sync.detach()
    return spans[before:], plan
