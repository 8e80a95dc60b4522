"""The learning rate of every step."""

from itertools import pairwise

import pytest
import torch
from workloads.fakes import Recorder, make_case

from ssfx.lab.workloads.schedule import learning_rate
from ssfx.lab.workloads.step import make_optimizer
from ssfx.lab.workloads.train import train


def rates(**changes: object) -> list[float]:
    case = make_case(steps=10, lr=0.1, **changes)
    return [learning_rate(case, step) for step in range(10)]


def test_a_constant_rate_is_the_one_given() -> None:
    assert rates() == [0.1] * 10


def test_a_step_takes_a_tenth_at_every_milestone() -> None:
    assert rates(schedule="step", milestones=(0.3, 0.8)) == pytest.approx([0.1] * 3 + [0.01] * 5 + [0.001] * 2)


def test_linear_decay_would_reach_zero_after_the_last_step() -> None:
    assert rates(schedule="linear") == pytest.approx([0.1 * (10 - step) / 10 for step in range(10)])


def test_cosine_is_half_way_in_the_middle() -> None:
    found = rates(schedule="cosine")
    assert found[0] == pytest.approx(0.1)
    assert found[5] == pytest.approx(0.05)
    assert all(a > b for a, b in pairwise(found))


def test_warm_up_rises_from_zero_to_the_rate() -> None:
    found = rates(schedule="linear", lr_warmup=0.4)
    assert found[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1])
    assert found[4:] == pytest.approx([0.1 * (6 - step) / 6 for step in range(6)])


def test_a_rate_scaled_by_ranks_rises_from_the_base_to_its_multiple() -> None:
    found = rates(lr_warmup=0.4, scale_lr_by_ranks=True, world_size=5)
    assert found == pytest.approx([0.2, 0.3, 0.4, 0.5] + [0.5] * 6)


def test_training_follows_the_schedule() -> None:
    changes = {"schedule": "step", "milestones": (0.5,), "optimizer": "sgd", "momentum": 0.0}
    seen = []
    recorder = Recorder()
    case = make_case(steps=4, lr=0.1, **changes)
    train(case, lambda _: seen.append(recorder.optimizer.param_groups[0]["lr"]), recorder)
    assert seen == pytest.approx([0.1, 0.1, 0.01, 0.01])


def test_weight_decay_on_matrices_only_leaves_biases_and_norms() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    optimizer = make_optimizer(make_case(optimizer="adamw", weight_decay=0.5, decay_only_matrices=True), model)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert [decay[id(p)] for p in model.parameters()] == [0.5, 0.0, 0.0, 0.0]
    whole = make_optimizer(make_case(optimizer="adamw", weight_decay=0.5), model)
    assert [group["weight_decay"] for group in whole.param_groups] == [0.5]
