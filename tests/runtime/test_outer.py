"""Local updates: what a round gives, exactly; faults within one; resume after every step."""

import gc
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from plan.options import keeps_all, usual
from runtime.models import build, loss_of
from runtime.pool import Pool
from runtime.ranks import Virtual, among, comm_of, is_rank_0s
from torch import nn

import ssfx
from ssfx.core.errors import ConfigError, RunError
from ssfx.planning.costs import placeholder_costs
from ssfx.planning.rounds import Rounds
from ssfx.runtime.online import registration_profile
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.setup import memory_of
from ssfx.schemes import schemes
from ssfx.schemes.local_updates import fragments, outer_step_of

SCHEMES: dict[str, dict[str, Any]] = {
    "local_sgd": {"every": 4},
    "diloco": {"every": 4},
    "streaming_diloco": {"every": 8, "fragments": 4, "delay": 1},
    "sparseloco": {"every": 3},
}
USUAL: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.01}
PLAIN = {"scheme": "local_sgd"}
"""The mean of weights: outer rate 1, no momentum, nothing compressed."""


def optimizer_of(model: nn.Module, kind: str, rate: float = 0.05) -> torch.optim.Optimizer:
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), rate)
    return torch.optim.SGD(model.parameters(), rate, **({} if kind == "plain" else USUAL))


def trained(
    group: Any, rank: int, options: dict[str, Any], steps: int, rate: float = 0.05, kind: str = "sgd", **more: Any
) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    model = build("mlp")
    optimizer = optimizer_of(model, kind, rate)
    sync = ssfx.attach(model, optimizer, **among(group), **options, **more)
    run(model, optimizer, rank, range(steps))
    return model, optimizer, sync


def run(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def _weights(group: Any, rank: int, world: int, options: dict[str, Any], steps: int, kind: str = "sgd") -> torch.Tensor:
    model, _, sync = trained(group, rank, options, steps, kind=kind)
    found = flat(model)
    sync.detach()
    return found


@pytest.mark.parametrize(("world", "group"), [(1, 1), (2, 1), (3, 1), (5, 1), (4, 2), (3, 3)])
def test_rounds_of_one_step_are_ddp(world, group):
    every_step = Virtual().run(_weights, world, {**PLAIN, "every": 1, "ranks_per_group": group}, 12)
    ddp = Virtual().run(_weights, world, {"scheme": "ddp"}, 12)
    assert torch.allclose(every_step[0], ddp[0], atol=2e-6)


def _alone(group: Any, rank: int, world: int, steps: int, kind: str) -> torch.Tensor:
    model = build("mlp")
    run(model, optimizer_of(model, kind), rank, range(steps))
    mean = flat(model)
    comm_of(group).all_reduce(mean).wait()
    return mean / world


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("world", [2, 4])
def test_the_first_round_is_the_mean_of_what_ranks_are_alone(world, kind):
    found = Virtual().run(_weights, world, {**PLAIN, "every": 6}, 6, kind)
    assert torch.allclose(found[0], Virtual().run(_alone, world, 6, kind)[0], atol=1e-6)


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ranks_have_the_same_bits_after_a_round(scheme, world):
    steps = 2 * SCHEMES[scheme]["every"]

    def work(group: Any, rank: int, world: int) -> bool:
        model, _, sync = trained(group, rank, {"scheme": scheme, **SCHEMES[scheme]}, steps)
        apart = not is_rank_0s(flat(model), group)
        if sync.rounds.delay:
            assert apart or rank == 0
            sync.synchronize()
        with sync.outer():
            shared = is_rank_0s(flat(model), group)
        equal = is_rank_0s(flat(model), group)
        sync.detach()
        return shared and equal

    assert all(Virtual().run(work, world))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_virtual_ranks_equal_real_ones_in_every_bit(pool: Pool, scheme):
    options = {"scheme": scheme, **SCHEMES[scheme]}
    for virtual, real in zip(Virtual().run(_weights, 3, options, 17), pool.run(_weights, 3, options, 17), strict=True):
        assert torch.equal(virtual, real)


def test_groups_train_by_ddp_and_exchange_as_ranks_do(pool: Pool):
    """Two groups of two, two rounds of four steps: the plain formula; and virtual ranks are real ones in every bit."""
    options = {"scheme": "local_sgd", "every": 4, "ranks_per_group": 2}
    outer = options | {"scheme": "diloco", "compressor": "bf16"}
    groups = [build("mlp") for _ in range(2)]
    optimizers = [optimizer_of(model, "sgd") for model in groups]
    for step in range(8):
        for group, (model, optimizer) in enumerate(zip(groups, optimizers, strict=True)):
            optimizer.zero_grad()
            for rank in (2 * group, 2 * group + 1):
                (loss_of(model, rank, step) / 2).backward()
            optimizer.step()
        if step % 4 == 3:
            mean = sum(map(flat, groups)) / 2
            for model in groups:
                torch.nn.utils.vector_to_parameters(mean.clone(), model.parameters())
    for found in Virtual().run(_weights, 4, options, 8):
        assert torch.allclose(found, flat(groups[0]), atol=1e-6)
    for virtual, real in zip(Virtual().run(_weights, 4, outer, 10), pool.run(_weights, 4, outer, 10), strict=True):
        assert torch.equal(virtual, real)


@pytest.mark.parametrize("group", [1, 2])
def test_before_the_first_round_ranks_train_as_ddp_does(group):
    """Post-local SGD: with AdamW, whose steps on averages are not averages of steps; the round's clock begins after."""
    options = {"scheme": "local_sgd", "every": 4, "dense_steps": 3, "ranks_per_group": group}
    dense = Virtual().run(_weights, 4, {"scheme": "ddp"}, 3, "adamw")
    assert all(torch.allclose(one, dense[0], atol=1e-6) for one in Virtual().run(_weights, 4, options, 3, "adamw"))
    for steps, equal in ((6, False), (7, True)):
        found = Virtual().run(_weights, 4, options, steps, "adamw")
        assert all(torch.equal(found[0], one) for one in found) is equal


def _into_rounds(group: Any, rank: int, world: int) -> list[int]:
    """Rank 0 evaluates alone before the first step of a round; a gradient was not finite before it."""
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    options = {"scheme": "local_sgd", "every": 2, "dense_steps": 2, "ranks_per_group": 2}
    sync, skipped = ssfx.attach(model, optimizer, **options, **among(group)), []
    for step in range(4):
        if step == 2:
            with torch.no_grad():
                _ = loss_of(model, 0, 0) if rank == 0 else None
            comm_of(group).all_reduce(torch.ones(1)).wait()
        optimizer.zero_grad()
        (loss_of(model, rank, step) * (torch.nan if (rank, step) == (1, 1) else 1.0)).backward()
        optimizer.step()
        skipped.append(sync.stats()["skipped_steps"])
    sync.detach()
    return skipped


def test_a_rank_may_evaluate_between_dense_steps_and_rounds_and_skipped_steps_stay_counted():
    assert Virtual().run(_into_rounds, 4) == [[0, 1, 1, 1]] * 4


def test_one_process_without_a_group_has_rounds_of_its_own():
    _, _, sync = trained(None, 0, {"scheme": "diloco", "every": 2, "ranks_per_group": 3}, 4)
    assert sync.stats()["exchanges"] == 2
    sync.detach()


def _groups(group: Any, rank: int, world: int) -> list[int]:
    options = {"scheme": "local_sgd", "every": 2, "dense_steps": 1, "ranks_per_group": 2}
    found = []
    for _ in range(3):
        trained(group, rank, options, 3)[2].detach()
        found.append(len(torch.distributed.distributed_c10d._world.pg_map))
    return found


def test_process_groups_are_used_again_by_the_next_exchange(pool: Pool):
    for found in pool.run(_groups, 4):
        assert found == found[:1] * 3


def _mass(group: Any, rank: int, world: int) -> float:
    model = nn.Linear(64, 64, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    options = {"scheme": "sparseloco", "every": 1, "compressor": "chunk_topm(m=4)", "density": 0.125}
    sync = ssfx.attach(model, optimizer, memory="residual", **options, **among(group))
    pattern = torch.randn(64, 64, generator=torch.Generator().manual_seed(rank + 1))
    for _ in range(7):
        optimizer.zero_grad()
        (model.weight * pattern).sum().backward()
        optimizer.step()
    total = torch.stack([pattern * 7, sync.store.get("weight", "residual").view(64, 64)])
    comm_of(group).all_reduce(total).wait()
    gone = -model.weight.detach()  # the mean of what was sent
    sync.detach()
    return float((total[0] - total[1] - world * gone).abs().max())


@pytest.mark.parametrize("world", [2, 3])
def test_what_is_sent_and_kept_is_what_was_learnt(world):
    assert max(Virtual().run(_mass, world)) < 2e-4


def _resumed(group: Any, rank: int, world: int, scheme: str, at: int) -> bool:
    options = {"scheme": scheme, **SCHEMES[scheme], "ranks_per_group": world // 2}
    if scheme == "local_sgd":
        options["dense_steps"] = 2
    model, optimizer, sync = trained(group, rank, options, at)
    states = [{k: v.clone() for k, v in model.state_dict().items()}, optimizer.state_dict(), sync.state_dict()]
    states[1] = {
        "state": {k: {n: t.clone() for n, t in v.items() if t is not None} for k, v in states[1]["state"].items()},
        "param_groups": states[1]["param_groups"],
    }
    run(model, optimizer, rank, range(at, at + 9))
    expected = flat(model)
    sync.detach()
    again, optimizer, sync = trained(group, rank, options, 0)
    again.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    sync.load_state_dict(states[2])
    run(again, optimizer, rank, range(at, at + 9))
    equal = torch.equal(flat(again), expected)
    sync.detach()
    return equal


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_resumed_after_any_step_of_a_round_is_equal_to_the_bit(scheme):
    for at in range(1, SCHEMES[scheme]["every"] + 2):
        assert all(Virtual().run(_resumed, 2, scheme, at)), at
    assert all(Virtual().run(_resumed, 4, scheme, 2))


def _one_bad_step(group: Any, rank: int, world: int, where: str) -> tuple[dict[str, Any], bool, bool]:
    options = {"scheme": "diloco", "every": 4, "ranks_per_group": world // 2}
    model, optimizer, sync = trained(group, rank, options, 5, kind="adamw", rate=0.01)
    optimizer.zero_grad()
    (loss_of(model, rank, 5) * (torch.nan if rank == 1 and where == "gradient" else 1.0)).backward()
    optimizer.step()
    if rank == 1 and where == "weights":
        with torch.no_grad():
            next(model.parameters()).fill_(torch.inf)
    run(model, optimizer, rank, range(6, 12))
    found = sync.stats(), bool(torch.isfinite(flat(model)).all()), is_rank_0s(flat(model), group)
    sync.detach()
    return found


@pytest.mark.parametrize(("world", "left_out"), [(2, [0, 1]), (4, [1, 1, 0, 0])])
def test_a_gradient_that_is_not_finite_is_left_out_on_its_rank_or_in_its_group(world, left_out):
    found = Virtual().run(_one_bad_step, world, "gradient")
    for stats, finite, equal in found:
        assert (finite, equal, stats["undone_rounds"], stats["exchanges"]) == (True, True, 0, 3)
    assert [stats["skipped_steps"] for stats, *_ in found] == left_out


def test_a_rank_that_is_not_finite_undoes_one_round_and_begins_anew():
    for stats, finite, equal in Virtual().run(_one_bad_step, 2, "weights"):
        assert (finite, equal, stats["undone_rounds"]) == (True, True, 1)


def test_a_run_of_few_rounds_says_so(caplog):
    def work(group: Any, rank: int, world: int, steps: int) -> None:
        trained(group, rank, {"scheme": "diloco", "every": 4, "run_steps": steps}, 0)[2].detach()

    for steps, said in ((800, 0), (400, 1)):
        caplog.clear()
        Virtual().run(work, 2, steps)
        assert caplog.text.count("100 rounds are few for outer_lr=0.7 and outer_momentum=0.9, which move 7.0") == said
    assert outer_step_of(schemes["diloco"], 5000) == {"outer_lr": 1.0, "outer_momentum": 0.0}
    assert outer_step_of(schemes["diloco"], 0) == outer_step_of(schemes["sparseloco"], 50) == {}


def test_three_undone_rounds_end_the_run():
    def work(group: Any, rank: int, world: int) -> None:
        model, optimizer, _ = trained(group, rank, {"scheme": "diloco", "every": 1}, 1)
        for step in range(1, 9):
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)
            run(model, optimizer, rank, range(step, step + 1))

    with pytest.raises(RunError, match="not finite in 3 rounds in a row, up to step 4"):
        Virtual().run(work, 2)


def _one_step_short(group: Any, rank: int, world: int, per_group: int) -> None:
    model, optimizer, sync = trained(group, rank, {"scheme": "diloco", "every": 4, "ranks_per_group": per_group}, 4)
    run(model, optimizer, rank, range(4, 8 - (rank == world - 1)))
    sync.detach()


@pytest.mark.parametrize(
    ("world", "per_group", "says"),
    [
        (2, 1, "rank 1 has detached after 1 exchanges, and rank 0 waits for it"),
        (4, 2, "rank 3 has detached after 7 exchanges, and rank 2 waits for it"),
    ],
)
def test_a_rank_with_a_step_fewer_is_named(pool: Pool, world, per_group, says):
    with pytest.raises(RunError, match=says):
        Virtual().run(_one_step_short, world, per_group)
    with pytest.raises(AssertionError, match=says):
        pool.run(_one_step_short, world, per_group)


def _skipped_by_a_scaler(group: Any, rank: int, world: int) -> tuple[int, bool, Any]:
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    options = {"scheme": "local_sgd", "every": 4, "ranks_per_group": world // 2}
    sync = ssfx.attach(model, optimizer, scaler=scaler, **options, **among(group))
    for step in range(8):
        optimizer.zero_grad()
        (scaler.scale(loss_of(model, rank, step)) * (torch.inf if (rank, step) == (1, 2) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    found = sync.step, is_rank_0s(flat(model), group), sync.stats()["skipped_steps"]
    sync.detach()
    return found


@pytest.mark.parametrize("left_out", [[0, 1], [1, 1, 0, 0]], ids=["ranks", "groups"])
def test_a_step_that_a_scaler_leaves_out_counts(left_out):
    assert Virtual().run(_skipped_by_a_scaler, len(left_out)) == [(8, True, skipped) for skipped in left_out]


def test_ending_a_round_twice_moves_nothing():
    def work(group: Any, rank: int, world: int) -> bool:
        model, _, sync = trained(group, rank, {"scheme": "diloco", "every": 4}, 6)
        sync.synchronize()
        once = flat(model)
        sync.synchronize()
        same = torch.equal(once, flat(model))
        sync.detach()
        return same and torch.equal(once, flat(model))

    assert all(Virtual().run(work, 2))


def test_a_step_is_booked_with_what_it_waited_for_itself():
    def work(group: Any, rank: int, world: int) -> list[tuple[bool, bool]]:
        model, optimizer, sync = trained(group, rank, {"scheme": "streaming_diloco", **SCHEMES["streaming_diloco"]}, 0)
        booked = []
        for step in range(4):  # nothing, a fragment is sent, it is waited for, the next one is sent
            run(model, optimizer, rank, range(step, step + 1))
            booked.append((sync.calls_s > 0, sync.waited_s > 0))
        sync.detach()
        return booked

    assert Virtual().run(work, 2) == [[(False, False), (True, False), (True, True), (True, False)]] * 2


def test_running_statistics_are_averaged():
    def work(group: Any, rank: int, world: int) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        sync = ssfx.attach(model, optimizer, scheme="local_sgd", every=1, **among(group))
        model(torch.full((4, 4), float(rank)) + torch.eye(4)).sum().backward()
        seen = model[1].running_mean.clone()
        comm_of(group).all_reduce(seen).wait()
        optimizer.step()
        sync.detach()
        return float((model[1].running_mean - seen / world).abs().max())

    assert max(Virtual().run(work, 3)) < 1e-6


def test_what_differs_between_ranks_is_averaged_and_nothing_else():
    """A mask keeps its bits, what is not finite on one rank does not count, a new buffer and any strides are seen."""

    def work(group: Any, rank: int, world: int) -> list[bool]:
        model: Any = build("mlp")
        model.register_buffer("mask", torch.full((4, 4), torch.finfo(torch.float32).min).triu(1))
        model.register_buffer("turned", torch.arange(6.0).view(2, 3).t() + rank)
        model.register_buffer("bad", torch.tensor([1.0, torch.nan if rank == 1 else 3.0]))
        model.register_buffer("number", torch.tensor(5 + rank))
        before = model.mask.clone()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        sync = ssfx.attach(model, optimizer, scheme="local_sgd", every=1, **among(group))
        model.turned = torch.arange(6.0).view(2, 3).t() + rank
        model.bad = torch.tensor([1.0, torch.nan if rank == 1 else 3.0])
        model.number = torch.tensor(5 + rank)
        run(model, optimizer, rank, range(1))
        sync.detach()
        middle = torch.arange(6.0).view(2, 3).t() + 0.5
        fair = [torch.equal(model.mask, before), torch.equal(model.turned, middle)]
        return [*fair, torch.equal(model.bad, torch.tensor([1.0, 3.0])), int(model.number) == 5]

    assert Virtual().run(work, 2) == [[True] * 4] * 2


def test_an_exchange_lives_as_long_as_its_model_and_ends_once():
    def work(group: Any, rank: int, world: int) -> bool:
        models = [build("mlp"), build("mlp")]
        optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in models]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        kept = []
        for model, optimizer in zip(models, optimizers, strict=True):
            kept.append(ssfx.attach(model, optimizer, scheme="local_sgd", every=2, scaler=scaler, **among(group)))
        kept.pop().detach()
        kept.clear()
        gc.collect()
        run(models[0], optimizers[0], rank, range(2))
        equal = is_rank_0s(flat(models[0]), group)
        again = ssfx.attach(models[1], optimizers[1], scheme="local_sgd", scaler=scaler, **among(group))
        again.detach()
        trained_since = flat(models[1]) + 1.0
        with torch.no_grad():
            for p in models[1].parameters():
                p.add_(1.0)
        again.detach()
        return equal and torch.equal(flat(models[1]), trained_since)

    assert all(Virtual().run(work, 2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("two optimizers", "counts the steps of one optimizer; give attach one, got 2"),
        ("closure", "call optimizer.step() without one"),
        ("frozen", "was not or is no more; detach, and attach again"),
        ("another weight", "which gain was not or is no more"),
        ("inside", "call it outside of sync.outer()"),
        ("model of another rank", "after attach load this rank's own model and optimizer"),
        ("more ranks", "this state was saved with world_size=3, not 2"),
        ("groups", "2 ranks do not fill groups of ranks_per_group=8; use ranks_per_group=2"),
        ("trace", "trace is for exchanges of every step; drop it, as scheme=diloco makes one a round"),
        ("costs", "costs is for exchanges of every step"),
        ("profile", "profile is for exchanges of every step"),
        ("fragments", "fragments=64 is more than the 9 tensors of this model; use fewer"),
    ],
)
def test_what_rounds_cannot_do_is_refused_in_a_line(change, says):
    def work(group: Any, rank: int, world: int) -> None:
        if change == "fragments":
            trained(group, rank, {"scheme": "streaming_diloco", "every": 128, "fragments": 64, "delay": 1}, 0)
        costs, profile = placeholder_costs(2), registration_profile(dict(build("mlp").named_parameters()), None)
        every_step = {"trace": True, "costs": costs, "profile": profile, "groups": 8}
        if change in every_step:
            name = "ranks_per_group" if change == "groups" else change
            trained(group, rank, {"scheme": "diloco", name: every_step[change]}, 0)
        if change == "two optimizers":
            model = build("mlp")
            weights = list(model.parameters())
            optimizers = [torch.optim.SGD(part, 0.1) for part in (weights[:3], weights[3:])]
            ssfx.attach(model, optimizers, scheme="diloco", **among(group))
        model, optimizer, sync = trained(group, rank, {"scheme": "diloco", "every": 4}, 2)
        if change == "closure":
            optimizer.step(lambda: loss_of(model, rank, 2))
        if change == "frozen":
            next(model.parameters()).requires_grad_(False)
            run(model, optimizer, rank, range(2, 4))
        if change == "another weight":
            model.gain = nn.Parameter(torch.tensor(2.0))
            run(model, optimizer, rank, range(2, 4))
        with sync.outer() if change == "inside" else nullcontext():
            state = sync.state_dict()
        if change == "more ranks":
            sync.load_state_dict(state | {"world_size": 3})
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
        sync.load_state_dict(state)

    with pytest.raises(ConfigError, match=says.replace("(", r"\(").replace(")", r"\)")):
        Virtual().run(work, 2)


def test_every_fragment_has_its_turn_once_a_round():
    for every, parts, delay in ((8, 4, 1), (12, 3, 0), (5, 1, 4)):
        rounds = Rounds(every, parts, delay)
        begun = [rounds.begins(step) for step in range(1, 3 * every + 1)]
        assert [n for n in begun if n is not None] == 3 * list(range(parts))
        assert [rounds.ends(step + delay) for step in range(1, 3 * every + 1)] == begun


def test_fragments_hold_every_tensor_once():
    model = build("mlp")
    base = registration_profile(dict(model.named_parameters()))
    for count in range(1, len(base.tensors) + 1):
        parts = fragments(base, count)
        assert [spec for part in parts for spec in part.tensors] == list(base.tensors)
        assert len(parts) == count


PER_STEP = [scheme.name for scheme in schemes if not scheme.in_rounds]


def _carried(group: Any, rank: int, world: int, scheme: str) -> tuple[bool, float]:
    model, given = build("mlp"), keeps_all(scheme) or usual(scheme, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    sync = OuterSync(
        model,
        [optimizer],
        scheme=scheme,
        given=given,
        rounds=Rounds(3, outer_lr=1.0, outer_momentum=0.0),
        memory=memory_of(schemes[scheme], schemes[scheme].online(given).compressor, None, ()),
        scaler=None,
        comm=comm_of(group),
        seed=0,
    )
    run(model, optimizer, rank, range(3))
    found = flat(model)
    equal = is_rank_0s(found, group)
    sync.detach()
    return equal, float((found - _alone(group, rank, world, 3, "plain")).abs().max())


@pytest.mark.parametrize("scheme", PER_STEP)
def test_the_exchange_of_every_scheme_carries_a_round(scheme):
    found = Virtual().run(_carried, 2, scheme)
    assert all(equal for equal, _ in found)
    if keeps_all(scheme) is not None:
        assert max(off for _, off in found) < 1e-5
