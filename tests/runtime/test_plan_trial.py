"""Plans that are trained with in turn: the fastest stays, however much steps vary, and slow ones are dropped early."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.runtime.adapt import AT_FIRST, NEAR, REPAID, SETTLING, PlanTrial, most_steps, too_short


class Alone:
    """One rank's communication: sums are its own numbers."""

    rank, world_size, device = 0, 1, torch.device("cpu")

    def all_reduce(self, table: torch.Tensor) -> Any:
        return SimpleNamespace(wait=lambda: table)


def plan(number: int, compressor: str | None = "dgc") -> Plan:
    tensors = (TensorSpec("a", (number + 1,)),)
    segment = Segment(("a",), compressor, 0.5 if compressor == "dgc" else 1.0)
    buckets = (Bucket((Lane("all_gather" if compressor == "dgc" else "all_reduce", (segment,)),)),)
    return Plan("auto", 2, tensors, buckets, launch_in_order(buckets, tensors), notes=(("chosen", f"plan {number}"),))


def trial_of(count: int, exact: dict[int, str | None] | None = None) -> PlanTrial:
    """Return a trial of so many plans, of which those of `exact` send every element, by that compressor."""
    plans = [plan(number, (exact or {}).get(number, "dgc")) for number in range(count)]
    return PlanTrial(Alone(), plans, 2)  # type: ignore[arg-type]


def run(trial: PlanTrial, seconds: Callable[[int, int], float]) -> Counter[int]:
    """Train to the end of a trial; return how many steps each plan had. `seconds`: of a plan in a step of a visit."""
    steps: Counter[int] = Counter()
    visit = 0
    while not trial.finished:
        number = trial.plans.index(trial.plan)
        steps[number] += 1
        visit = 0 if trial.end_step(seconds(number, visit)) else visit + 1
    return steps


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6, unique=True))
def test_the_fastest_is_kept(times_s: Sequence[float]) -> None:
    trial = trial_of(len(times_s))
    steps = run(trial, lambda number, _: times_s[number])
    assert trial.plan == trial.plans[times_s.index(min(times_s))]
    assert trial.step_s == pytest.approx(min(times_s))
    assert sum(steps.values()) <= most_steps(len(times_s), 2)


def test_first_steps_with_a_plan_do_not_count() -> None:
    trial = trial_of(2)
    run(trial, lambda number, visit: (9.0 - 8 * number) if visit < SETTLING else 1.0 + 0.1 * number)
    assert trial.plan == trial.plans[0]


def test_slow_plans_are_dropped_after_one_visit() -> None:
    trial = trial_of(5)
    steps = run(trial, lambda number, _: (1.0, 1.3, 5.0, 1.05, 1.2)[number])
    assert steps[1] == steps[2] == SETTLING + 2
    assert steps[3] == steps[4] == 2 * (SETTLING + 2)
    assert steps[0] == AT_FIRST - SETTLING + steps[3]
    assert "plan 0 1e+03; plan 3 1.05e+03" in trial.words()


def test_a_visit_that_something_disturbs_does_not_decide() -> None:
    trial, calls = trial_of(2), Counter[int]()

    def seconds(number: int, visit: int) -> float:
        calls[number] += 1
        return 1.2 if number == 0 and calls[0] <= AT_FIRST + 2 else (1.0, 1.1)[number]

    run(trial, seconds)
    assert trial.plan == trial.plans[0]


def test_a_trial_ends_as_soon_as_two_plans_differ_by_more_than_their_noise() -> None:
    visits = {"far": (1.0, 1.4), "near": (1.0, 1.05), "noisy": (1.0, 1.05), "alike": (1.0, 1.01)}
    rounds = {"far": 1, "near": 2, "noisy": 3, "alike": 3}
    for name, (fast_s, slow_s) in visits.items():
        trial, calls = trial_of(2), Counter[int]()

        def seconds(number: int, visit: int, case: str = name, calls: Counter[int] = calls) -> float:
            calls[number] += visit == 0
            more_s = 0.1 * calls[number] if case == "noisy" else 0.0  # no two visits of one plan are alike
            return (visits[case][0], visits[case][1])[number] + more_s

        steps = run(trial, seconds)
        assert steps[1] == rounds[name] * (SETTLING + 2), name
        assert trial.plan == trial.plans[0]
        assert (fast_s, slow_s) == visits[name]


@given(
    times_s=st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6),
    disturbed=st.lists(st.integers(0, 5), max_size=1),
    more=st.floats(1.0, 1.9),
    exact=st.integers(0, 5),
)
@example(times_s=[1.1, 1.0], disturbed=[1], more=1.6, exact=1)
def test_what_is_kept_is_never_behind_a_plan_that_sends_every_element(
    times_s: list[float], disturbed: list[int], more: float, exact: int
) -> None:
    """Whatever makes the first visit of any plan nearly twice as long, as neighbours do: two more of it tell."""
    exact %= len(times_s)
    trial, calls = trial_of(len(times_s), {exact: "fp16"}), Counter[int]()

    def seconds(number: int, visit: int) -> float:
        calls[number] += visit == 0
        return times_s[number] * (more if number in disturbed and calls[number] == 1 else 1.0)

    run(trial, seconds)
    kept_s = times_s[trial.plans.index(trial.plan)]
    assert kept_s <= times_s[exact]
    assert kept_s <= (1 + NEAR) * min(times_s) * (more if disturbed else 1.0)


def test_what_the_last_round_does_not_tell_apart_sends_every_element() -> None:
    trial, calls = trial_of(2, {1: "fp16"}), Counter[int]()

    def seconds(number: int, visit: int) -> float:
        calls[number] += visit == 0
        return ((1.0, 1.2, 1.4), (1.1, 1.3, 1.5))[number][calls[number] - 1]

    run(trial, seconds)
    assert trial.plan == trial.plans[1]


@pytest.mark.parametrize("compressor", [None, "fp16"])
def test_of_plans_that_are_about_as_fast_one_that_sends_every_element_is_kept(compressor: str | None) -> None:
    for seconds, kept in (((1.0, 1.01, 1.005, 1.0 + NEAR - 0.001), 3), ((1.0, 1.01, 1.005, 1.0 + NEAR + 0.001), 0)):
        trial = trial_of(4, {3: compressor})
        run(trial, lambda number, _, times=seconds: times[number])  # type: ignore[misc]
        assert trial.plan == trial.plans[kept]


def test_a_resumed_trial_goes_on() -> None:
    times_s = (1.0, 1.1, 0.9, 1.05)
    trial = trial_of(4)
    for step in range(most_steps(4, 2)):
        if trial.finished:
            break
        text = json.dumps(trial.state_dict())
        resumed = PlanTrial.resumed(Alone(), json.loads(text))  # type: ignore[arg-type]
        assert resumed.state_dict() == trial.state_dict(), step
        assert resumed.plan == trial.plan
        trial = resumed
        trial.end_step(times_s[trial.plans.index(trial.plan)])
    assert trial.finished
    assert trial.plan == trial.plans[2]


def test_a_run_that_ends_too_soon_to_repay_a_trial_starts_none_and_says_so() -> None:
    enough = REPAID * most_steps(4, 3)
    assert too_short(None, 4, 3) == too_short(enough, 4, 3) == too_short(1, 1, 3) == ""
    for left in (enough - 1, 1, 0, -5):
        assert f"the run ends in {left} steps" in too_short(left, 4, 3)
        assert f"takes up to {most_steps(4, 3)}" in too_short(left, 4, 3)
