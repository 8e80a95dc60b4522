"""Plans of several kinds of exchange at once, and plans that are made anew while a model trains."""

import io
from dataclasses import replace
from itertools import count
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from plan.instances import affine_costs
from runtime.models import build, loss_of, parameters
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.work import attached, train

from ssfx.compressors.memories import memories
from ssfx.planning.costs import placeholder_costs
from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.runtime.adapt import PlanWatch, most_steps
from ssfx.runtime.message_kinds import message_memory
from ssfx.schemes import schemes
from ssfx.schemes.search.auto_budget import budget
from ssfx.schemes.search.auto_methods import Kind, Method
from ssfx.schemes.search.byte_groups import plan_per_dtype


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
@each_rank()
def test_mass_is_conserved_while_tensors_change_from_kind_to_kind(group, rank, world):
    """Let every tensor go through every kind.

    Then how many kinds were used, and how many there are.
    """
    model, optimizer, sync = attached("mlp", group, world, options_for(world))
    train(model, optimizer, rank, range(2))
    exact = rounded = 0.0
    used: set[Kind] = set()
    for turn in range(len(kinds(world))):
        plan, chosen = turned(sync, turn)
        used |= set(chosen.values())
        sync._install(plan)
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        loss_of(local, rank, turn).backward()
        before = sync.store.state_dict()
        optimizer.zero_grad()
        loss_of(model, rank, turn).backward()
        assert not sync.last.skipped
        optimizer.step()  # which commits what was kept back
        after = sync.store.state_dict()
        for name, p in model.named_parameters():
            zero = torch.zeros_like(p)
            kept = [state.get(name, {}).get("residual", zero) for state in (before, after)]
            handed_in = dict(local.named_parameters())[name].grad + kept[0] - kept[1]
            scale = handed_in.abs()  # of what is rounded: the gradients of ranks may cancel one another
            dist.all_reduce(handed_in, group=group)
            dist.all_reduce(scale, group=group)
            lost, largest = float((handed_in - world * p.grad).abs().max()), float(scale.max()) + 1e-12
            if "16" in str(chosen[name].compressor):
                # Below 2^-14 the steps of float16 are 2^-24, whatever the size; every rank rounds, and so does the sum.
                rounded = max(rounded, (lost - (world + 1) * 2**-25) / largest)
            else:
                exact = max(exact, lost / largest)
    sync.detach()
    assert exact < 1e-5
    assert rounded < 2e-3
    assert len(used) == len(kinds(world)) > 10


def test_a_plan_of_many_kinds_resumes_bit_for_bit(pool: Pool) -> None:
    for turn in (0, 7):
        assert all(pool.run(resumes, 2, turn))


@pytest.mark.parametrize("measured", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_plan_whose_steps_become_slower_is_made_anew_on_all_ranks(pool: Pool, measured: bool) -> None:
    results = pool.run(replans, 2, measured)
    for reasons, lanes, weights in results:
        assert reasons == results[0][0]
        assert lanes == results[0][1]
        assert all(torch.equal(weights[n], results[0][2][n]) for n in weights)
        assert "when it was planned" in reasons[0]


class Alone:
    """One rank's communication: sums are its own numbers."""

    rank, world_size, device = 0, 1, torch.device("cpu")

    def all_reduce(self, table: torch.Tensor) -> Any:
        return SimpleNamespace(wait=lambda: table)


def test_plans_are_tried_on_all_ranks_and_one_is_kept(pool: Pool) -> None:
    results = pool.run(tries, 2)
    for one in results:
        assert one["plans"] == results[0]["plans"]
        assert one["times_s"] == results[0]["times_s"]
        assert one["settled"] == results[0]["settled"]
        assert all(torch.equal(one["weights"][n], results[0]["weights"][n]) for n in one["weights"])
        assert any(one["dense"])
        assert 2 <= len(one["plans"]) == len(set(one["plans"]))
        assert set(one["plans"][-2:]) <= set(one["used"])  # the first were trained with before the resume
        assert len(one["used"]) + 5 <= one["limit"]
        times = dict(zip(one["plans"], one["times_s"], strict=True))
        assert one["tried"].startswith(f"{len(times)} plans, ms a step")
        assert one["settled"] in times  # which of them, by which times: tests/runtime/test_plan_trial.py


def test_a_short_run_keeps_the_plan_that_is_predicted(pool: Pool) -> None:
    for run_steps in (20, 2000):
        results = pool.run(too_short, 2, run_steps)
        assert len({one[0] for one in results}) == 1
        for steps, several, tried in results:
            assert several == (run_steps == 2000)
            assert tried.startswith("nothing: the run ends in") != several
            assert (steps == 2) != several  # those in which gradients are observed


def watch(**options: Any) -> PlanWatch:
    """Return the watch of a plan with a window of two steps."""
    limits = schemes["auto"].online({"replan_after": 2, **options}).limits
    assert limits is not None
    return PlanWatch(Alone(), limits)  # type: ignore[arg-type]


def stepped(one: PlanWatch, seconds: float) -> str:
    """Close two steps of so many seconds; return why a plan is due."""
    assert one.end_step(seconds) == ""
    return one.end_step(seconds)


def test_steps_are_held_to_what_they_took_at_first() -> None:
    one = watch()
    one.planned(None)
    assert stepped(one, 2.0) == ""  # whatever was predicted
    assert stepped(one, 2.2) == ""
    assert stepped(one, 2.6) == ""  # for a while only
    assert stepped(one, 2.1) == ""
    assert stepped(one, 2.6) == ""
    assert "2.6e+03 ms" in stepped(one, 2.6)
    one.planned(2.6)
    assert stepped(one, 2.5) == stepped(one, 1.9) == ""
    assert "when it was planned" in stepped(one, 1.9)
    assert len(one.replans) == 2


def test_nothing_is_watched_that_was_not_asked_for() -> None:
    one = watch(density=0.01, replan_above=0.0)
    one.planned(1.0)
    assert [stepped(one, seconds) for seconds in (1.0, 5.0)] == ["", ""]


def test_what_is_watched_survives_a_resume() -> None:
    one, other = watch(), watch()
    one.planned(1.0)
    stepped(one, 2.0)
    assert "when it was planned" in stepped(one, 2.0)
    one._times.append(0.25)
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()


@pytest.mark.parametrize(
    ("compressor", "expected"), [("fp16", "none"), ("dgc", "residual"), ("acpsgd", "residual"), (None, "residual")]
)
def test_a_lane_keeps_errors_only_where_they_may_be_fed_back(compressor: str | None, expected: str) -> None:
    lane = Lane("all_reduce", (Segment(("a",), compressor),))
    assert message_memory(lane, memories.build("residual")).name == expected


# ---- on each rank ---------------------------------------------------------------------------------------------------


Options = dict[str, Any]


def kinds(world: int) -> tuple[Kind, ...]:
    """Return every kind of exchange that a plan may use."""
    return budget(placeholder_costs(world), "normal", 0.05, None, 0).kinds


def turned(sync: Any, turn: int) -> tuple[Plan, dict[str, Kind]]:
    """Return a plan with a message for every tensor, each of another kind, and the kind of each tensor."""
    every = kinds(sync.comm.world_size)
    chosen = {spec.name: every[(i + turn) % len(every)] for i, spec in enumerate(sync.profile.tensors)}
    plan = plan_per_dtype(
        "auto",
        sync.profile,
        sync.comm.world_size,
        lambda part: [Method(chosen[spec.name]).bucket([spec]) for spec in part.tensors],
    )
    return plan, chosen


def options_for(world: int, **more: Any) -> Options:
    slow = affine_costs(world, beta=1e-5, encode=(1e-5, 0), decode=(1e-6, 0), host=(1e-5, 0))
    return {"scheme": "auto", "density": 0.05, "costs": slow, "profile_iters": 2, "replan_above": 0.0, **more}


def resumes(group: Any, rank: int, world: int, turn: int) -> bool:
    """Return whether a run with a plan of many kinds, saved and loaded elsewhere, goes on bit for bit."""
    model, optimizer, sync = attached("mlp", group, world, options_for(world))
    train(model, optimizer, rank, range(2))
    for at in (turn, turn + 1):
        sync._install(turned(sync, at)[0])
        train(model, optimizer, rank, range(2 + at - turn, 4))
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict(), sync.state_dict()), file)
    train(model, optimizer, rank, range(4, 8))
    again, again_optimizer, again_sync = attached("mlp", group, world, options_for(world))
    file.seek(0)
    states = torch.load(file, weights_only=False)
    for part, state in zip((again, again_optimizer, again_sync), states, strict=True):
        part.load_state_dict(state)
    train(again, again_optimizer, rank, range(4, 8))
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    kept, kept_again = sync.store.state_dict(), again_sync.store.state_dict()
    same &= all(torch.equal(kept[n][b], kept_again[n][b]) for n in kept for b in kept[n])
    sync.detach()
    again_sync.detach()
    return same


def replans(group: Any, rank: int, world: int, measured: bool) -> tuple[list[str], int, dict[str, torch.Tensor]]:
    """Train until backward passes take 30 ms more; return why plans were made anew, messages, and the parameters."""
    options = options_for(world, replan_above=0.15, replan_after=3)
    if measured:
        options["costs"] = None
    model, optimizer, sync = attached("mlp", group, world, options)
    steps = count()
    while not (sync._planner.settled and sync._planner.watch._usual_s is not None):
        train(model, optimizer, rank, range(one := next(steps), one + 1))
    before = len(sync._planner.watch.replans)
    next(iter(model.parameters())).register_hook(lambda _: sleep(0.03))
    while len(sync._planner.watch.replans) == before:
        train(model, optimizer, rank, range(one := next(steps), one + 1))
    reasons = list(sync._planner.watch.replans)[before:]
    while not sync._planner.settled:
        train(model, optimizer, rank, range(one := next(steps), one + 1))
    assert sync.stats()["replans"] == len(sync._planner.watch.replans)
    sync.detach()
    return reasons, len(sync.plan.launch_order), parameters(model)


def tries(group: Any, rank: int, world: int) -> dict[str, Any]:
    """Train with all plans worth trying; save and load in the middle of it; return what happened on this rank."""
    options = options_for(world, costs=None, trial_iters=1)
    model, optimizer, sync = attached("mlp", group, world, options)
    steps, used = count(), []
    for _ in range(7):  # two are observed, then five with plans to try
        train(model, optimizer, rank, range(one := next(steps), one + 1))
    assert not sync._planner.settled
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict(), sync.state_dict()), file)
    file.seek(0)
    sync.detach()
    model, optimizer, sync = attached("mlp", group, world, options)
    states = torch.load(file, weights_only=False)
    for part, state in zip((model, optimizer, sync), states, strict=True):
        part.load_state_dict(state)
    trial = sync._planner._trial
    assert trial is not None
    assert trial.state_dict() == states[2]["trial"]
    while not sync._planner.settled:
        used.append(sync.plan.digest)
        train(model, optimizer, rank, range(one := next(steps), one + 1))
        assert sync.last.observed
    train(model, optimizer, rank, range(one := next(steps), one + 1))
    assert not sync.last.observed
    sync.detach()
    return {
        "plans": [plan.digest for plan in trial.plans],
        "times_s": trial.times_s,
        "used": used,
        "settled": replace(sync.plan, notes=sync.plan.notes[:-1]).digest,
        "tried": dict(sync.plan.notes)["tried"],
        "weights": parameters(model),
        "limit": most_steps(len(trial.plans), 1),
        "dense": [not any(s.compressor for _, lane in plan.lanes() for s in lane.segments) for plan in trial.plans],
    }


def too_short(group: Any, rank: int, world: int, run_steps: int) -> tuple[int, bool, str]:
    """Train until a plan is kept; return after how many steps, whether several were tried, and what the plan says."""
    model, optimizer, sync = attached(
        "mlp", group, world, options_for(world, costs=None, trial_iters=1, run_steps=run_steps)
    )
    steps, several = count(), False
    while sync.settling:
        train(model, optimizer, rank, range(one := next(steps), one + 1))
        several |= sync._planner._trial is not None
    sync.detach()
    return next(steps), several, dict(sync.plan.notes)["tried"]
