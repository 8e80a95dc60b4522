"""The law of extra steps is scored on what it has not seen: another network, another ratio."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.common.validation.quality import BY_RATIO, BY_TASK, quality
from ssfx.schemes.search.auto_steps import steps_of_tasks
from ssfx.schemes.search.recorded_network import Network


def task(factor: float, ratio: float, optimizer: str = "sgd", unreached: float = 0.1) -> dict[str, Any]:
    return {
        "family": "conv",
        "optimizer": optimizer,
        "clipped": False,
        "compression": ratio,
        "grows": False,
        "ranks": 4,
        "batch": 32,
        "seeds": 1,
        "unreached": unreached,
        "longest_steps": 2000,
        "delay_steps": 0.0,
        "factor": factor,
        "each": [[0.0, factor]],
    }


def method(density: float, **tasks: dict[str, Any]) -> dict[str, Any]:
    return {
        "words": "top-k",
        "collective": "all_gather",
        "calls": "each",
        "compressor": "topk",
        "density": density,
        "tasks": tasks,
    }


def scored(*methods: dict[str, Any]) -> dict[str, dict[tuple[str, str], tuple[float, float, bool]]]:
    """Return predicted, actual and whether the law itself said unknown, by network and ratio, of each group."""
    return {
        group.name: {
            (one.panel.partition(" ")[0], one.label.rpartition(", ")[2]): (one.predicted, one.actual, one.extrapolated)
            for one in group.pairs
        }
        for group in quality(methods)
    }


def test_a_task_is_predicted_from_the_others_alone() -> None:
    rows = method(0.1, small=task(0.2, 10.0), large=task(0.5, 12.0))
    found = scored(rows)
    assert "answers in 2 of 2 cases, of which 1 needed no more steps than the worst run" in quality((rows,))[0].notes[0]
    assert found == {BY_TASK: {("small", "10x"): (1.5, 1.2, False), ("large", "12x"): (1.2, 1.5, False)}}


def test_tasks_that_hold_count_as_their_median_and_admit_by_their_worst_run() -> None:
    """Of three networks within a factor of two; one at 40x is not; one that missed the quality decides alone."""
    tasks = [task(0.3, 10.0), task(0.0, 12.0), task(0.04, 8.0), task(0.9, 40.0)]
    found = steps_of_tasks(tasks, Network("conv", "sgd", ()), 10.0, 2000, "topk")
    assert (found.share, found.worst, found.runs) == (0.04, 0.3, 3)
    assert found.source.startswith("median of 3 tasks, the worst of them 1 run of conv networks with sgd at 10x")
    missed = steps_of_tasks([*tasks, task(0.1, 10.0, unreached=0.8)], Network("conv", "sgd", ()), 10.0, 2000, "topk")
    assert (missed.share, missed.worst) == (None, None)
    assert missed.source.startswith("worse: ")


def test_a_ratio_is_predicted_from_others_and_beyond_a_factor_of_two_that_is_said() -> None:
    rows = method(0.1, small=task(0.2, 10.0)), method(0.06, small=task(0.3, 18.0)), method(0.01, small=task(1.0, 100.0))
    found = scored(*rows)
    assert found == {
        BY_RATIO: {
            ("small", "10x"): (1.3, 1.2, False),
            ("small", "18x"): (1.2, 1.3, False),
            ("small", "100x"): (1.3, 2.0, True),
        },
    }
    within, beyond, _ = (scores for _, scores in quality(rows)[0].scores())
    assert (within.count, beyond.count) == (2, 1)
    assert beyond.mean == pytest.approx(0.35)


def test_a_law_without_any_effect_is_scored_beside_and_named_where_it_is_as_near() -> None:
    (group,) = quality((method(0.1, small=task(0.0, 10.0), large=task(0.3, 12.0), huge=task(0.04, 11.0)),))
    (answered, scores), *_ = group.scores()
    # the median of the others is asked for: 1.17 for 1.0, 1.02 for 1.3, 1.15 for 1.04
    assert scores.mean == pytest.approx((0.17 + 0.28 / 1.3 + 0.11 / 1.04) / 3)
    assert group.no_effect(answered) == group.no_effect() == pytest.approx((0 + 0.3 / 1.3 + 0.04 / 1.04) / 3)
    assert group.notes[1] == (
        "where the law answers, it is 16.4 % off, and one that expects no effect of any method 9.0 %. Of these 3 "
        "cases 2 needed at most 5 % more steps than dense training, and the law asks for 2.0 % too many on average "
        "(bias)"
    )
    (good,) = quality((method(0.1, small=task(0.3, 10.0), large=task(0.32, 12.0)),))
    assert len(good.notes) == 1


def test_other_optimizers_say_nothing_and_what_never_got_there_is_counted() -> None:
    assert scored(method(0.1, small=task(0.2, 10.0), other=task(0.2, 10.0, "adam"))) == {}
    (group,) = quality((method(0.1, one=task(0.2, 10.0), two=task(9.0, 10.0, unreached=0.9), three=task(0.3, 10.0)),))
    # of a network that missed the levels the law says that others did too, and no factor
    assert [pair.extrapolated for pair in group.pairs] == [True, True]
    assert "in 0 of 2 cases" in group.notes[0]
    assert "1 more never reached half of the levels of dense training, and it expected 1 of these to" in group.notes[0]


def test_the_shipped_law_is_scored_both_ways() -> None:
    assert {group.name for group in quality()} == {BY_TASK, BY_RATIO}
    assert all(len(group.pairs) > 10 for group in quality())
    assert all(group.no_effect(name) is not None for group in quality() for name, _ in group.scores())
