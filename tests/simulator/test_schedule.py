"""The event loop alone, on a handful of tasks whose times are worked out by hand."""

import pytest

from ssfx.simulator.pricing.schedule import MOST_TAKEN, schedule, shares
from ssfx.simulator.pricing.task import Task


def test_shares_are_fair_and_never_more_than_asked():
    assert shares([1.0, 0.2]) == [pytest.approx(0.8), 0.2]
    assert shares([1.0, 0.9]) == [0.5, 0.5]
    assert shares([1.0, 1.0, 0.1]) == [pytest.approx(0.45), pytest.approx(0.45), pytest.approx(0.1)]
    assert shares([0.3, 0.2]) == [0.3, 0.2]
    assert shares([]) == []


def test_head_of_line_order():
    """A message that is ready waits for an earlier one that is not."""
    tasks = [
        Task("backward", "a", "device", 5.0, 1.0),
        Task("exchange", "late", "network", 1.0, 0.0, (0,)),
        Task("exchange", "early", "network", 1.0, 0.0),
    ]
    assert schedule(tasks) == pytest.approx(7.0)
    assert (tasks[1].start_s, tasks[2].start_s) == (pytest.approx(5.0), pytest.approx(6.0))
    assert [tasks[2].released_by, tasks[1].released_by] == [1, 0]


def test_a_task_that_waits_for_a_later_one_of_its_own_resource_is_refused():
    with pytest.raises(ValueError, match="waits for a task that can only start after it"):
        schedule([Task("backward", "a", "device", 1.0, 1.0, (1,)), Task("backward", "b", "device", 1.0, 1.0)])


def test_an_exchange_that_was_measured_under_compute_takes_that_long_and_takes_its_share():
    """One long backward pass and one early message: both proceed as measured while the device computes."""
    tasks = [
        Task("backward", "a", "device", 10.0, 1.0),
        Task("exchange", "m", "network", 1.0, 0.3, under_compute=(4.0, 2.0)),
    ]
    assert schedule(tasks) == pytest.approx(12.0)  # for 4 s half of the power is gone: 2 s are lost
    assert tasks[1].end_s == pytest.approx(4.0)
    alone = [Task("exchange", "m", "network", 1.0, 0.3, under_compute=(4.0, 2.0))]
    assert schedule(alone) == pytest.approx(1.0)


def test_a_rested_line_saves_at_most_its_burst_and_at_most_as_long_as_it_rested():
    def messages():
        return [
            Task("backward", "a", "device", 1.0, 1.0),
            Task("exchange", "first", "network", 2.0, 0.0, wire_s=1.5),
            Task("exchange", "second", "network", 2.0, 0.0, wire_s=1.5),
            Task("backward", "b", "device", 3.25, 1.0),
            Task("exchange", "third", "network", 2.0, 0.0, (3,), wire_s=1.5),
        ]

    without, rested = messages(), messages()
    assert schedule(without) == pytest.approx(6.25)
    schedule(rested, burst_s=0.5)
    first, second, third = (rested[i] for i in (1, 2, 4))
    assert first.seconds == pytest.approx(1.5)
    assert second.seconds == pytest.approx(2.0)  # the line had no rest
    assert third.start_s == pytest.approx(4.25)
    assert third.seconds == pytest.approx(1.5)
    small = [Task("exchange", "m", "network", 0.4, 0.0, wire_s=0.1)]
    assert schedule(small, burst_s=0.5) == pytest.approx(0.3)


def test_two_exchanges_in_flight_overlap_their_latency_and_share_the_wire():
    def messages(wire_s):
        return [Task("exchange", str(i), "network", 1.0, 0.0, wire_s=wire_s) for i in range(4)]

    assert schedule(messages(0.0)) == pytest.approx(4.0)
    assert schedule(messages(0.0), in_flight=2) == pytest.approx(2.0)
    assert schedule(messages(1.0), in_flight=2) == pytest.approx(4.0)
    assert schedule(messages(0.75), in_flight=2) == pytest.approx(3.0)
    in_order = [
        Task("backward", "a", "device", 5.0, 1.0),
        Task("exchange", "late", "network", 1.0, 0.0, (0,)),
        Task("exchange", "early", "network", 1.0, 0.0),
    ]
    assert schedule(in_order, in_flight=2) == pytest.approx(6.0)  # it may not overtake, though there is room
    assert in_order[2].start_s == pytest.approx(5.0)


def test_an_exchange_during_another_is_not_under_compute():
    messages = [Task("exchange", str(i), "network", 1.0, 0.3, under_compute=(4.0, 0.0)) for i in range(2)]
    assert schedule(messages, in_flight=2) == pytest.approx(1.0)


def test_exchanges_together_leave_computing_some_power_and_time_never_runs_backwards():
    greedy = {"under_compute": (1.0, 0.95)}
    tasks = [Task("backward", "a", "device", 1.0, 1.0)]
    tasks += [Task("exchange", str(i), "network", 1.0, 1.0, **greedy) for i in range(6)]
    end_s = schedule(tasks, in_flight=2)
    assert all(task.end_s >= task.start_s for task in tasks)
    assert tasks[0].end_s == pytest.approx(3.0 + 1.0 - 3 * (1 - MOST_TAKEN))  # a tenth of its speed for three seconds
    assert end_s == tasks[0].end_s


def test_a_line_that_works_has_not_rested():
    tasks = [
        Task("exchange", "long", "network", 8.0, 0.0, wire_s=0.0),
        Task("exchange", "short", "network", 1.0, 0.0, wire_s=0.0),
        Task("backward", "a", "device", 5.0, 1.0),
        Task("exchange", "late", "network", 2.0, 0.0, (2,), wire_s=2.0),
    ]
    schedule(tasks, burst_s=2.0, in_flight=2)
    assert tasks[3].seconds == pytest.approx(2.0)
    assert tasks[3].saved_s == 0


def test_the_critical_path_has_no_gap_when_several_exchanges_are_under_way():
    """The last exchange was ready and had room, but its turn came only when the one before it was released."""
    tasks = [
        Task("forward", "f", "device", 1.0, 1.0),
        Task("to_host", "e", "copy_out", 0.1, 0.0),
        Task("exchange", "x", "network", 0.5, 0.0, (0,)),
        Task("exchange", "a", "network", 3.0, 0.0, (1,)),
    ]
    assert schedule(tasks, in_flight=2) == pytest.approx(4.0)
    assert tasks[3].released_by == 0
