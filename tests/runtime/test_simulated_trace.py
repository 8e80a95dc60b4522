"""A simulated trace of a plan has the names, categories and tracks of the trace that the runtime wrote of it."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime.pool import Pool
from runtime.work import STEPS, attached, costs_for, train
from simulator.systems import system_of

from ssfx.core.origin import Origin
from ssfx.planning.costs import Overheads
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator import simulate
from ssfx.simulator.trace import save


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "wfbp"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.05, "grouping": "none"},
        {"scheme": "ssfusion_oi", "rule": "paper", "compressor": "topk", "density": 0.05},
        {"scheme": "oktopk", "density": 0.05},
        {"scheme": "powersgd"},
    ],
    ids=["wfbp", "per tensor", "ssfusion", "oktopk", "powersgd"],
)
def test_the_same_plan_has_the_same_spans(pool: Pool, options: dict[str, Any], tmp_path: Path) -> None:
    measured, text = pool.run(traced, 2, options)[0]
    plan = Plan.from_json(text)
    profile = Profile("mlp", plan.tensors, (1e-3,) * len(plan.tensors), 1e-3, Origin("nominal"), step_s=1e-4)
    system = replace(system_of(costs_for(2), 0.05, "runtime"), overheads=Overheads(result_s_per_byte=1e-9))
    save({"mlp": simulate(plan, profile, system)}, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    simulated = [event for event in events if event["ph"] == "X"]

    def shown(spans: list[dict[str, Any]], *categories: str) -> list[tuple[str, int]]:
        return [(span["name"], span["tid"]) for span in spans if span["cat"] in categories]

    assert shown(simulated, "exchange") == shown(measured, "exchange")
    assert shown(simulated, "decompress") == shown(measured, "decompress") == [("decompress", 0)]
    assert shown(simulated, "wait") == shown(measured, "wait") == [("wait", 0)]
    # The runtime draws every gradient that is accumulated, the simulator those that complete a call.
    assert set(shown(simulated, "compress")) <= set(shown(measured, "compress"))
    assert bool(shown(simulated, "compress")) == (options["scheme"] != "wfbp")
    assert {span["cat"] for span in measured} <= {span["cat"] for span in simulated}


# ---- on each rank ---------------------------------------------------------------------------------------------------


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
