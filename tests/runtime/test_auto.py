"""Plans of several kinds of exchange at once, and plans that are made anew while a model trains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runtime import work_auto as work
from runtime.pool import Pool

from ssfx.memories import memories
from ssfx.planning.plan import Lane, Segment
from ssfx.runtime.exchange import lane_memory
from ssfx.runtime.plan_watch import LESS, PlanWatch


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
def test_a_plan_that_is_far_off_is_made_anew_on_all_ranks(pool: Pool, measured: bool) -> None:
    results = pool.run(work.replans, 2, measured)
    for reasons, lanes, weights in results:
        assert reasons == results[0][0]
        assert lanes == results[0][1]
        assert all(torch.equal(weights[n], results[0][2][n]) for n in weights)
        if not measured:  # costs of a network a thousand times as slow
            assert "planned were" in reasons[0]


def test_the_error_is_what_is_kept_back_over_what_there_was(pool: Pool) -> None:
    for allowed in (0.95, 0.3):
        for measured, by_hand, budget, reasons, planned_with in pool.run(work.error, 2, allowed):
            assert measured == pytest.approx(by_hand, rel=1e-4)
            assert (planned_with < budget) == any("was kept back" in reason for reason in reasons)


class Alone:
    """One rank's communication: sums are its own numbers."""

    rank, world_size, device = 0, 1, torch.device("cpu")

    def all_reduce(self, table: torch.Tensor) -> Any:
        return SimpleNamespace(wait=lambda: table)


def watch(**options: Any) -> PlanWatch:
    given = {"replan_above": 0.15, "replan_after": 2, "error_budget": None, **options}
    return PlanWatch(Alone(), torch.nn.Linear(1, 1), SimpleNamespace(**given), "residual")  # type: ignore[arg-type]


def planned(one: PlanWatch, seconds: float) -> None:
    one.planned(SimpleNamespace(notes=(("predicted_ms", f"{1e3 * seconds}"),)))  # type: ignore[arg-type]


def test_a_new_plan_is_due_once_and_then_what_is_measured_counts() -> None:
    one = watch()
    planned(one, 1.0)
    assert one._verdict(1.1, None) == ""
    assert "1.3e+03 ms" in one._verdict(1.3, None)
    planned(one, 1.0)  # the new plan predicts the same: the prediction is what is wrong
    assert one._verdict(1.3, None) == ""
    assert one._verdict(1.32, None) == ""
    assert one._verdict(0.9, None) != ""


def test_an_exceeded_error_budget_is_planned_for_with_less() -> None:
    one = watch(error_budget=0.5)
    planned(one, 1.0)
    assert one._verdict(1.0, 0.45) == ""
    assert one.options({}) == {"error_budget": 0.5}
    assert "0.8 of the gradient's norm" in one._verdict(1.0, 0.8)
    assert one.options({"x": 1})["error_budget"] == pytest.approx(LESS * 0.5 * 0.5 / 0.8)


def test_what_is_watched_survives_a_resume() -> None:
    one, other = watch(error_budget=0.5), watch(error_budget=0.5)
    planned(one, 1.0)
    one._verdict(1.0, 0.8)
    one._times.append(0.25)
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()
    assert other.options({}) == one.options({})


@pytest.mark.parametrize(
    ("compressor", "expected"), [("fp16", "none"), ("dgc", "residual"), ("acpsgd", "residual"), (None, "residual")]
)
def test_a_lane_keeps_errors_only_where_they_may_be_fed_back(compressor: str | None, expected: str) -> None:
    lane = Lane("all_reduce", (Segment(("a",), compressor),))
    assert lane_memory(lane, memories.build("residual")).name == expected
