"""A compressor that makes infinity of finite gradients is named: `auto` drops it, and the third step ends the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from plan.instances import affine_costs
from runtime.models import build, loss_of, parameters
from runtime.pool import Pool
from runtime.ranks import Ranks, among, replaced
from runtime.test_plan_trial import plan, trial_of
from torch import nn

import ssfx
from ssfx.compressors.dgc import DGC
from ssfx.compressors.topk import TopK
from ssfx.core.errors import RunError


def test_three_steps_in_a_row_end_the_run_on_every_rank_in_the_same_step(ranks: Ranks) -> None:
    for steps, said in ranks.run(stands_still, 2, (1, 1, 1)):
        assert steps == 3
        assert "compressor=topk made numbers that are not finite of finite gradients" in said
        assert "in 3 steps in a row" in said


def test_steps_between_and_gradients_that_are_not_finite_do_not_count(ranks: Ranks) -> None:
    for steps, said in ranks.run(stands_still, 2, (1, 1, 0, 1, 1, -1, 1, 1, -1, -1, -1)):
        assert steps == 11
        assert said == ""


def test_auto_sends_dense_what_undid_a_step(ranks: Ranks) -> None:
    results = ranks.run(drops, 2)
    for before, after, skipped, _ in results:
        assert (before, after, skipped) == (True, False, 1)
    weights = [one[3] for one in results]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_auto_drops_every_plan_that_undoes_a_step_while_it_tries_them(ranks: Ranks) -> None:
    results = ranks.run(drops_all, 2)
    for compressed, skipped, steps, _ in results:
        assert not compressed
        assert 1 <= skipped == results[0][1]
        assert steps == 60
    assert all(torch.equal(results[0][3][name], results[1][3][name]) for name in results[0][3])


def test_a_trial_goes_on_without_the_plan_that_was_dropped() -> None:
    for dropped_at in (0, 1, 2):
        trial = trial_of(3)
        for _ in range(dropped_at):
            while not trial.end_step(1.0 + trial.plans.index(trial.plan)):
                pass
        gone = trial.plan
        trial.drop()
        assert trial.plan != gone
        while not trial.finished:
            assert trial.plan != gone
            trial.end_step(1.0 + trial.plans.index(trial.plan))
        assert trial.plan == min((one for one in trial.plans if one != gone), key=trial.plans.index)
    last = trial_of(2)
    last.drop()
    assert last.finished
    assert last.plan == plan(1)
    assert last.step_s is None


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(2100, 32), nn.Linear(32, 2100)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embed(x))).mean(1)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(2100, 32), nn.Linear(64, 10)
        self.lstm = nn.LSTM(32, 64, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(x))[0][:, -1])


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 80),
        nn.ReLU(),
        nn.Linear(80, 10),
    )


SLOW = affine_costs(2, beta=1e-6, encode=(1e-5, 1e-10), decode=(1e-6, 1e-10), host=(1e-5, 1e-9))
"""A network so slow that values travel in 16 bits at positions that all ranks share."""


@pytest.mark.parametrize(
    "options", [{}, {"density": 0.01}, {"density": 0.01, "costs": SLOW}], ids=["auto", "density", "slow"]
)
@pytest.mark.parametrize("model", [Gpt, Lstm, vgg])
def test_auto_undoes_no_step(model: Any, options: dict[str, Any]) -> None:
    assert ssfx.virtual_ranks(lambda rank, comm: undone(comm, rank, 2, model, options), 2) == [0, 0]


@pytest.mark.parametrize("options", [{}, {"density": 0.01}], ids=["auto", "density"])
def test_auto_undoes_no_step_on_real_ranks(pool: Pool, options: dict[str, Any]) -> None:
    assert pool.run(undone, 2, Gpt, options) == [0, 0]


# ---- on each rank ---------------------------------------------------------------------------------------------------


@contextmanager
def breaking(kind: Any, when: Any) -> Iterator[None]:
    """Let a compressor send infinity where `when()`, whatever the gradients are."""
    whole = kind.compress_batch

    def broken(self: Any, batch: Any) -> None:
        whole(self, batch)
        if when():
            batch.payload.values.fill_(float("inf"))

    with replaced(kind, "compress_batch", broken):
        yield


def stands_still(group: Any, rank: int, world: int, steps: tuple[int, ...]) -> tuple[int, str]:
    """Train; in a step 1 infinity is sent, in a step -1 a gradient of rank 1 is NaN; return steps and the error."""
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, scheme="per_tensor", compressor="topk", density=0.1, **among(group))
    with breaking(TopK, lambda: steps[sync.step] == 1):
        for step, kind in enumerate(steps):
            optimizer.zero_grad()
            try:
                (loss_of(model, rank, step) * (float("nan") if kind < 0 and rank else 1.0)).backward()
            except RunError as error:
                return sync.step, str(error)
            optimizer.step()
    return sync.step, ""


def drops(group: Any, rank: int, world: int) -> tuple[bool, bool, int, Any]:
    """Return whether anything is compressed before and after a step that was undone, how many were, and the weights."""
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slow = affine_costs(world, beta=1e-5, encode=(1e-5, 0), decode=(1e-6, 0), host=(1e-5, 0))
    options = {"compressor": "dgc", "costs": slow, "profile_iters": 2, "replan_above": 0.0}
    sync = ssfx.attach(model, optimizer, scheme="auto", **options, **among(group))
    before = False
    with breaking(DGC, lambda: sync.step == 3):
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
            before |= compresses(sync)
    return before, compresses(sync), sync.skipped_steps, parameters(model)


def drops_all(group: Any, rank: int, world: int) -> tuple[bool, int, int, Any]:
    """Train while whatever is compressed is infinite; return what is compressed in the end, steps, and the weights."""
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, scheme="auto", compressor="dgc", trial_iters=1, **among(group))
    with breaking(DGC, lambda: sync._planner.observer is None):
        for step in range(60):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
    return compresses(sync), sync.skipped_steps, sync.step, parameters(model)


def compresses(sync: Any) -> bool:
    return any(segment.compressor for _, lane in sync.plan.lanes() for segment in lane.segments)


def undone(group: Any, rank: int, world: int, model: Any, options: dict[str, Any]) -> int:
    """Train with measured costs and all plans that are worth trying; return how many steps were undone."""
    torch.manual_seed(0)
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    sync = ssfx.attach(network, optimizer, scheme="auto", **options, **among(group))
    torch.manual_seed(rank)
    for _ in range(60):
        x = torch.randn(4, 3, 32, 32) if model is vgg else torch.randint(2100, (4, 8))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), torch.randint(10, (4,))).backward()
        optimizer.step()
    return sync.skipped_steps
