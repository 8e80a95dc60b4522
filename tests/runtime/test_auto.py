"""Plans of several kinds of exchange at once, and plans that are made anew while a model trains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runtime import work_auto as work
from runtime.pool import Pool

from ssfx.compressors.memories import memories
from ssfx.planning.plan import Lane, Segment
from ssfx.runtime.make_lane import lane_memory
from ssfx.runtime.plan_watch import PlanWatch
from ssfx.schemes import schemes
from ssfx.schemes.auto import LESS
from ssfx.schemes.online_planning import PlanLimits


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_mass_is_conserved_while_tensors_change_from_kind_to_kind(pool: Pool, world: int) -> None:
    for exact, rounded, used, known in pool.run(work.conserves_mass, world):
        assert exact < 1e-5
        assert rounded < 2e-3
        assert used == known > 10


def test_a_plan_of_many_kinds_resumes_bit_for_bit(pool: Pool) -> None:
    for turn in (0, 7):
        assert all(pool.run(work.resumes, 2, turn))


@pytest.mark.parametrize("measured", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_plan_whose_steps_become_slower_is_made_anew_on_all_ranks(pool: Pool, measured: bool) -> None:
    results = pool.run(work.replans, 2, measured)
    for reasons, lanes, weights in results:
        assert reasons == results[0][0]
        assert lanes == results[0][1]
        assert all(torch.equal(weights[n], results[0][2][n]) for n in weights)
        assert "when it was planned" in reasons[0]


def test_the_error_is_what_is_kept_back_over_what_there_was(pool: Pool) -> None:
    for allowed in (0.95, 0.3):
        for measured, by_hand, reasons, planned_with in pool.run(work.error, 2, allowed):
            assert measured == pytest.approx(by_hand, rel=1e-4)
            assert (planned_with < allowed) == any("became residual" in reason for reason in reasons)


class Alone:
    """One rank's communication: sums are its own numbers."""

    rank, world_size, device = 0, 1, torch.device("cpu")

    def all_reduce(self, table: torch.Tensor) -> Any:
        return SimpleNamespace(wait=lambda: table)


def test_plans_are_tried_on_all_ranks_and_one_is_kept(pool: Pool) -> None:
    results = pool.run(work.tries, 2)
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
        results = pool.run(work.too_short, 2, run_steps)
        assert len({one[0] for one in results}) == 1
        for steps, several, tried in results:
            assert several == (run_steps == 2000)
            assert tried.startswith("nothing: the run ends in") != several
            assert (steps == 2) != several  # those in which gradients are observed


def watch(**options: Any) -> PlanWatch:
    """Return the watch of a plan with a window of two steps."""
    given = {"replan_after": 2, **options}

    def limits_of(given: dict[str, Any]) -> PlanLimits:
        limits = schemes["auto"].online(given).limits
        assert limits is not None
        return limits

    return PlanWatch(Alone(), limits_of, given)  # type: ignore[arg-type]


def stepped(one: PlanWatch, seconds: float, kept_back: float = 0.0) -> str:
    """Close two steps of so many seconds, which keep so much back; return why a plan is due."""
    squares = (kept_back**2, 1.0)
    assert one.end_step(seconds, squares) == ""
    return one.end_step(seconds, squares)


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
    assert [stepped(one, seconds, 0.99) for seconds in (1.0, 5.0)] == ["", ""]


def test_an_exceeded_error_budget_is_planned_for_with_less() -> None:
    one = watch(error_budget=0.5)
    one.planned(1.0)
    assert stepped(one, 1.0, 0.45) == ""
    assert one.given["error_budget"] == 0.5
    assert "0.8 of the gradient's norm" in stepped(one, 1.0, 0.8)
    assert one.given["error_budget"] == pytest.approx(LESS * 0.5 * 0.5 / 0.8)
    assert one.given["replan_after"] == 2


def test_a_quality_limits_no_error() -> None:
    one = watch(quality="loose", replan_above=0.0)
    one.planned(1.0)
    assert [stepped(one, 1.0, 0.99) for _ in range(3)] == ["", "", ""]


def test_what_is_watched_survives_a_resume() -> None:
    one, other = watch(error_budget=0.5), watch(error_budget=0.5)
    one.planned(1.0)
    stepped(one, 1.0, 0.8)
    one._times.append(0.25)
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()
    assert other.limits.error == one.limits.error < 0.5


@pytest.mark.parametrize(
    ("compressor", "expected"), [("fp16", "none"), ("dgc", "residual"), ("acpsgd", "residual"), (None, "residual")]
)
def test_a_lane_keeps_errors_only_where_they_may_be_fed_back(compressor: str | None, expected: str) -> None:
    lane = Lane("all_reduce", (Segment(("a",), compressor),))
    assert lane_memory(lane, memories.build("residual")).name == expected
