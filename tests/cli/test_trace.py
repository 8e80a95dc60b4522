"""`ssfx show RUN --trace`: a step as it was and as it is simulated, from the files of a run."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from engines.test_collect import RECORD
from refusals import output, refusal

from ssfx.cli import main
from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.paths import results_dir
from ssfx.core.rows import Row
from ssfx.lab.results.store import Store
from ssfx.perf_model.target import target_of
from ssfx.runtime.stats import Tracer
from ssfx.schemes.make_plan import make_plan

CASE = Case(
    experiment="throughput",
    model="resnet_tiny",
    dataset="digits",
    scheme="wfbp",
    cluster="local",
    world_size=2,
    batch_size=32,
    steps=4,
    warmup_steps=1,
)
STEP_S = {0: 9.0, 1: 0.3, 2: 0.2, 3: 0.1}


def spans_of(rank, zero_s):
    """Return the tracer of a run whose steps take STEP_S; two exchanges are under way at once."""
    tracer = Tracer(True, rank)
    for step, iteration_s in STEP_S.items():
        tracer.begin(step, zero_s)

        def span(stage, start, end, *more, at_s=zero_s, whole_s=iteration_s):
            tracer.span(stage, at_s + start * whole_s, at_s + end * whole_s, *more)

        span("compress", 0.4, 0.5, "compute", "t0")
        span("wait", 0.7, 0.8)
        span("decompress", 0.8, 0.85)
        span("exchange", 0.5, 0.7, "network", "all_reduce 8 B")
        span("exchange", 0.6, 0.8, "network", "all_reduce 4 B")
        span("other", 0.0, 0.1)
        span("forward", 0.1, 0.3)
        span("backward", 0.3, 0.9)
        span("step", 0.9, 1.0)
        zero_s += iteration_s
    return tracer


@pytest.fixture
def run(shipped):
    """A finished run with its files; return its id and their folder."""
    row = Row(CASE.run_id, CASE, {"iteration_s": 0.2}, Origin("measured", "a machine", "2026-11-24"), {})
    store = Store(results_dir())
    folder = store.run_dir(CASE) / "attempt-1"
    folder.mkdir(parents=True)
    target = target_of(CASE)
    plan = make_plan("wfbp", target.profile, target.system.planning_costs(None, None), CASE.plan_options)
    (folder / "plan.json").write_text(plan.to_json())
    records = [replace(RECORD, step=step, iteration_s=iteration_s) for step, iteration_s in STEP_S.items()]
    (folder / "rank0.jsonl").write_text("".join(record.to_json() + "\n" for record in records))
    for rank in range(2):
        spans_of(rank, 1e5 + 7 * rank).save(folder / f"trace-rank{rank}.json")
    store.save(row)
    return CASE.run_id, folder


def test_the_real_and_the_simulated_step_can_be_laid_over_each_other(run, tmp_path, capsys):
    out = tmp_path / "overlay.json"
    assert f"trace: {out}" in output(capsys, "show", "--trace", run[0][:6], "--out", str(out))
    events = json.loads(out.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    measured, simulated = (
        [pid for pid, name in processes.items() if name.startswith(word)] for word in ("measured", "simulated")
    )
    assert len(measured) == 2
    assert len(simulated) == 1
    tracks = {}
    for pid in processes:
        spans = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
        assert min(e["ts"] for e in spans) == pytest.approx(0, abs=1e-3)
        assert {"forward", "backward", "exchange", "step"} <= {e["cat"] for e in spans}
        tracks[pid] = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid]
        for number in range(len(tracks[pid])):
            track = sorted((e for e in spans if e["tid"] == number), key=lambda e: e["ts"])
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(track))
    assert len({tuple(names) for names in tracks.values()}) == 1

    # The timed step nearest the median, 2, takes 0.2 s; nothing of it is lost by the cuts.
    first = [e for e in events if e["ph"] == "X" and e["pid"] == 0]
    assert sum(e["dur"] for e in first if e["tid"] == 0) == pytest.approx(2e5)
    backward = [e for e in first if e["cat"] == "backward"]
    assert [round(e["ts"] / 2e5, 2) for e in backward] == [0.3, 0.5, 0.85]
    later = [e for e in first if e["cat"] == "exchange"][1]
    assert later["ts"] == pytest.approx(0.7 * 2e5)
    assert later["args"]["waited_us"] == pytest.approx(0.1 * 2e5)


def test_a_step_can_be_named(run, tmp_path, capsys):
    assert "step 3" in output(capsys, "show", "--trace", run[0], "--step", "3", "--out", str(tmp_path / "o.json"))
    assert "only 0 to 3" in refusal(capsys, "show", "--trace", run[0], "--step", "4")


def test_without_spans_one_line_says_how_to_record_them(run, capsys):
    (run[1] / "trace-rank1.json").unlink()
    assert "trace=true" in refusal(capsys, "show", "--trace", run[0])


def test_a_damaged_trace_is_named(run, capsys):
    (run[1] / "trace-rank0.json").write_text("{")
    assert main(["show", "--trace", run[0]]) == 1
    assert "trace-rank0.json is not a trace" in capsys.readouterr().err


def test_an_unknown_run_is_refused_as_show_refuses_it(capsys):
    assert "no finished run has an id that begins with zzz" in refusal(capsys, "show", "--trace", "zzz")
