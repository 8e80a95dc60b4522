"""The Chrome trace: valid JSON, known stage names, time that goes forward, lanes in launch order."""

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime.models import build, loss_of
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.work import STEPS, attached, train

import ssfx
from ssfx.runtime.stats import TRACKS, Tracer

STAGES = {"compress", "exchange", "decompress", "wait"}


def trace(group: Any, rank: int, world: int, options: dict[str, Any]) -> tuple[dict[str, Any], list[str], int]:
    """Return the trace file of a few steps, what the exchange spans of the last step must be called, and lanes."""
    model, optimizer, sync = attached("mlp", group, world, {**options, "trace": True})
    train(model, optimizer, rank, range(STEPS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        sync.tracer.save(str(path))
        saved = json.loads(path.read_text())
        assert [p.name for p in Path(folder).iterdir()] == ["trace.json"]
    names = [f"exchange {lane.collective}" for _, lane in sync.plan.lanes()]
    sync.detach()
    return saved, names, sync.step


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "wfbp"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.05, "grouping": "none"},
        {"scheme": "hard_threshold", "density": 0.05},
        {"scheme": "ssfusion_oi", "rule": "paper", "compressor": "topk", "density": 0.05},
    ],
    ids=["wfbp", "per tensor", "variable", "ssfusion"],
)
def test_a_trace_shows_what_happened_in_order(pool: Pool, options: dict[str, Any]) -> None:
    for rank, (saved, names, steps) in enumerate(pool.run(trace, 2, options)):
        events = saved["traceEvents"]
        labels = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert tuple(labels[i] for i in range(len(TRACKS))) == TRACKS
        spans = [e for e in events if e["ph"] == "X"]
        assert {e["pid"] for e in events} == {rank}
        stages = {e["cat"] for e in spans}
        assert stages <= STAGES
        assert {"exchange", "decompress", "wait"} <= stages
        assert ("compress" in stages) == (options["scheme"] != "wfbp")
        assert all(e["dur"] > 0 for e in spans)
        exchanges = [e for e in spans if e["cat"] == "exchange"]
        assert {labels[e["tid"]] for e in exchanges} == {"network"}
        starts = [e["ts"] for e in exchanges]
        assert starts == sorted(starts)
        last = exchanges[-len(names) :]
        assert [" ".join(e["name"].split()[:2]) for e in last] == names
        for stage in ("wait", "decompress"):
            track = [e for e in spans if e["cat"] == stage]
            assert len(track) == steps
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in pairwise(track))


@each_rank(2)
def test_without_tracing_nothing_is_kept(group, rank, world):
    model = build("mlp")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    loss_of(model, rank, 0).backward()
    sync.detach()
    assert len(sync.tracer._events) == 0


def test_a_span_never_runs_backwards_and_saving_replaces_the_file(tmp_path: Path) -> None:
    tracer = Tracer(True, 3)
    tracer.span("exchange", 2.0, 0.0, "network", "that never ended")
    path = tmp_path / "trace.json"
    path.write_text("old")
    tracer.save(path)
    assert '"dur": 0.0' in path.read_text()
    assert list(tmp_path.iterdir()) == [path]
