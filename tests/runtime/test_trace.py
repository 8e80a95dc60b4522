"""The Chrome trace: valid JSON, known stage names, time that goes forward, lanes in launch order."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from runtime import work_stats as work
from runtime.pool import Pool

from ssfx.runtime.stats import TRACKS, Tracer

STAGES = {"compress", "exchange", "decompress", "wait"}


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "wfbp"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.05, "grouping": "none"},
        {"scheme": "per_tensor", "compressor": "dgc", "density": 0.05, "sizes": "variable", "grouping": "none"},
        {"scheme": "ssfusion_oi", "rule": "paper", "compressor": "topk", "density": 0.05},
    ],
    ids=["wfbp", "per tensor", "variable", "ssfusion"],
)
def test_a_trace_shows_what_happened_in_order(pool: Pool, options: dict[str, Any]) -> None:
    for rank, (saved, names, steps) in enumerate(pool.run(work.trace, 2, options)):
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


def test_without_tracing_nothing_is_kept(pool: Pool) -> None:
    assert pool.run(work.untraced, 2) == [0, 0]


def test_a_span_never_runs_backwards_and_saving_replaces_the_file(tmp_path: Path) -> None:
    tracer = Tracer(True, 3)
    tracer.span("exchange", 2.0, 0.0, "network", "that never ended")
    path = tmp_path / "trace.json"
    path.write_text("old")
    tracer.save(path)
    assert '"dur": 0.0' in path.read_text()
    assert list(tmp_path.iterdir()) == [path]
