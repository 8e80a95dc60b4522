"""Inside `join` uneven inputs are no trouble."""

import pytest
import torch
from runtime.habit import ALL, TOPK, Habits, Rank, far, refused
from runtime.models import build
from torch import nn
from torch.distributed.algorithms.join import Join

habits = Habits(__name__)
_, test_on_real_ranks = habits.tests()

SCHEMES = (
    {},
    TOPK,
    {"scheme": "oktopk", "density": 0.1},
    {"scheme": "ssfusion_oi", "density": 0.1, "profile_iters": 2},
)
HOW = ["sync.join", "Join", "scaler", "adam", "accumulate"]


@habits("torch's page on Join", *SCHEMES, world=3, real="only", how=HOW, batches=[(5, 3, 4), (0, 2, 0), (3, 3, 3)])
def uneven_inputs_inside_join(one: Rank, how: str, batches: tuple[int, ...]) -> None:
    model = build("mlp")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if how == "scaler" else None
    optimizer, sync = one.attach(model, torch.optim.AdamW(model.parameters()) if how == "adam" else None, scaler=scaler)

    def step(number: int) -> None:
        optimizer.zero_grad()
        if how == "accumulate":
            with sync.no_sync():
                one.loss(model, 100 + number).backward()
        if scaler:
            scaler.scale(one.loss(model, number)).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            one.loss(model, number).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()

    with Join([sync]) if how == "Join" else sync.join():
        for number in range(batches[one.rank]):
            step(number)
    assert sync.step == max(batches)
    states = [optimizer.state[p] for p in model.parameters()]
    assert one.agree([*model.parameters(), *(v for s in states for _, v in sorted(s.items()) if torch.is_tensor(v))])
    step(50)
    assert sync.step == max(batches) + 1


@habits("Join: zeros of who has no more", {}, ALL, real="only")
def who_has_no_more_batches_counts_with_zeros(one: Rank) -> None:
    model, optimizer, sync = one.mlp()
    twin, theirs, _ = one.mlp()
    with sync.join():
        one.train(model, optimizer, range(5 if one.rank == 0 else 3))
    one.train(twin, theirs, range(5), lambda step: one.loss(twin, step) * float(one.rank == 0 or step < 3))
    assert far(model, twin) < 1e-6


@habits("schedulers stepped inside join", real="only")
def rates_that_differ_after_join_are_named(one: Rank) -> None:
    model, optimizer, sync = one.mlp()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with refused("learning rate of group 0", "rank 0", "rank 1", "schedule"), sync.join():
        for step in range(3 + one.rank):
            one.train(model, optimizer, [step])
            schedule.step()


@habits("torch DDP: join(divide_by_initial_world_size)", world=3, real="only", initial=[True, False])
def join_divides_by_all_ranks_or_by_those_that_train(one: Rank, initial: bool) -> None:
    """Rank 0 has three batches and the others one; every gradient is 1."""
    model = nn.Linear(1, 1, bias=False)
    optimizer, sync = one.attach(model, torch.optim.SGD(model.parameters(), 1.0))
    moves = []
    with sync.join(divide_by_initial_world_size=initial):
        for _ in range(3 if one.rank == 0 else 1):
            before = model.weight.item()
            one.train(model, optimizer, [0], lambda _: model.weight.sum())
            moves.append(before - model.weight.item())
    assert moves == pytest.approx(([1.0, 1 / 3, 1 / 3] if initial else [1.0] * 3)[: len(moves)])


@habits("arguments of join", real="only")
def an_argument_that_join_does_not_have_is_named(one: Rank) -> None:
    _, _, sync = one.mlp()
    with refused("average", "divide_by_initial_world_size"):
        sync.join_hook(average="active")
