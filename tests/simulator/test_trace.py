"""A simulated trace shows the schedule, in the runtime's tracks: nothing overlaps, and the wait is what is exposed."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from plan.instances import affine_costs, instance_a
from plan.options import usual
from simulator.systems import system_of

from ssfx.runtime.stats import TRACKS
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate
from ssfx.simulator.trace import FIRST_PROCESS, save


def step(scheme):
    profile, costs = replace(instance_a(), forward_s=1e-3), affine_costs()
    plan = make_plan(scheme, profile, costs, usual(scheme))
    return simulate(plan, profile, system_of(costs, 0.01, "runtime", 0.2), accumulate=2)


@pytest.fixture
def traced(tmp_path):
    def trace(**steps):
        save(steps, tmp_path / "trace.json")
        return json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    return trace


@pytest.mark.parametrize("scheme", ["ddp", "per_tensor", "ssfusion_oi", "espresso", "oktopk"])
def test_spans_are_the_schedule(scheme, traced):
    one = step(scheme)
    spans = [event for event in traced(one=one) if event["ph"] == "X"]
    assert max(span["ts"] + span["dur"] for span in spans) == pytest.approx(1e6 * one.iteration_s)
    assert all(span["dur"] > 0 for span in spans)
    assert all(span["name"].split()[0] == span["cat"] for span in spans)
    for track in {span["tid"] for span in spans}:
        ordered = [span for span in spans if span["tid"] == track]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(ordered))
    exchanges = [span for span in spans if span["cat"] == "exchange"]
    assert [span["name"].split()[1] for span in exchanges] == [lane.collective for _, lane in one.plan.lanes()]
    waits = [span["dur"] for span in spans if span["cat"] == "wait"]
    assert sum(waits) == pytest.approx(1e6 * one.exposed_comm_s)
    assert len([span for span in spans if span["name"] == "forward"]) == 2


def test_tracks_are_the_runtimes_and_steps_are_processes(traced):
    events = traced(first=step("ddp"), second=step("per_tensor"))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {FIRST_PROCESS: "simulated first", FIRST_PROCESS + 1: "simulated second"}
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert tuple(tracks[: len(TRACKS)]) == TRACKS
