"""What the pool's ranks run: saved state, and the DGC memory in training."""

import io
from typing import Any

import torch
import torch.distributed as dist
from runtime.models import build, loss_of
from runtime.work import costs_for, train
from runtime.work_attach import DGC, SPARSE, STEPS, Options, _step, attach_mlp, distance, same_on_all_ranks, sgd
from torch.nn.parallel import DistributedDataParallel

import ssfx


def state_is_plain(group: Any, rank: int, world: int, options: Options) -> list[bool]:
    """Return whether states saved after 1 and 7 steps load with weights_only and are equal to what was saved."""
    model, optimizer, sync = attach_mlp(group, 0.0, **{"costs": costs_for(world), **options})
    good = []
    for step in range(7):
        _step(model, optimizer, rank, step, "mlp", "")
        if step in (0, 6):
            file, state = io.BytesIO(), sync.state_dict()
            torch.save(state, file)
            file.seek(0)
            loaded = torch.load(file, weights_only=True)
            good.append(
                {k: v for k, v in loaded.items() if k != "memory"} == {k: v for k, v in state.items() if k != "memory"}
            )
            for name, buffers in state["memory"].items():
                good += [torch.equal(value, loaded["memory"][name][buffer]) for buffer, value in buffers.items()]
            sync.load_state_dict(loaded)
    sync.detach()
    return good


def momentum_correction(group: Any, rank: int, world: int, nesterov: bool) -> tuple[float, float]:
    """Return how far dgc memory at density 1 is from DDP with momentum, and a compressed run from its equations."""
    spec = f"dgc(momentum=0.9,nesterov={str(nesterov).lower()},masking=false)"
    dense, twin = build("mlp"), build("mlp")
    optimizer = sgd(dense.parameters(), 0.0)
    # At density 1 every tensor travels dense, so the memory's momentum is applied to the averages.
    sync = ssfx.attach(
        dense, optimizer, process_group=group, scheme="fused_all", compressor="topk", density=1.0, memory=spec
    )
    ddp = DistributedDataParallel(twin, process_group=group)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)
    for step in range(STEPS):
        _step(dense, optimizer, rank, step, "mlp", "")
        _step(ddp, theirs, rank, step, "mlp", "")
    sync.detach()

    model, optimizer, sync = attach_mlp(group, 0.0, memory=spec, **SPARSE)
    momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    worst = 0.0
    for step in range(STEPS):
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        loss_of(local, rank, step).backward()
        before = sync.store.state_dict()
        _step(model, optimizer, rank, step, "mlp", "")
        after = sync.store.state_dict()
        for name, p in model.named_parameters():
            g = dict(local.named_parameters())[name].grad
            if nesterov:
                momentum[name] = 0.9 * (momentum[name] + g)
                push = momentum[name] + g
            else:
                momentum[name] = 0.9 * momentum[name] + g
                push = momentum[name]
            old = before.get(name, {}).get("velocity", torch.zeros_like(p))
            sent = old + push - after[name]["velocity"]
            dist.all_reduce(sent, group=group)
            worst = max(worst, float((sent / world - p.grad).abs().max()))
            worst = max(worst, float((after[name]["momentum"] - momentum[name]).abs().max()))
    sync.detach()
    return distance(dense, twin), worst


def dgc_end_to_end(group: Any, rank: int, world: int) -> dict[str, bool]:
    """Train through the dense plan, the profiled one and a resume; report equal replicas and an exact resume."""

    def start() -> tuple[Any, Any, Any]:
        model = build("mlp")
        optimizer = sgd(model.parameters(), 0.0)
        return model, optimizer, ssfx.attach(model, optimizer, process_group=group, costs=costs_for(world), **DGC)

    model, optimizer, sync = start()
    train(model, optimizer, rank, range(8))
    kept, weights = sync.state_dict(), model.state_dict()
    weights = {name: value.clone() for name, value in weights.items()}
    train(model, optimizer, rank, range(8, 12))
    again, again_optimizer, again_sync = start()
    again.load_state_dict(weights)
    again_sync.load_state_dict(kept)
    train(again, again_optimizer, rank, range(8, 12))
    dense = [n for _, lane in sync.plan.lanes() for s in lane.segments if s.dense for n in s.tensors]
    report = {
        "some dense, some not": 0 < len(dense) < len(sync.plan.tensors),
        "dense ones have momentum": all(bool(sync.store.get(n, "momentum").any()) for n in dense),
        "same": same_on_all_ranks(group, model),
        "resumed": all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)),
        "state": all(
            torch.equal(v, again_sync.store.state_dict()[n][b])
            for n, state in sync.store.state_dict().items()
            for b, v in state.items()
        ),
    }
    sync.detach()
    again_sync.detach()
    return report


def follows_the_rate(group: Any, rank: int, world: int, memory: str) -> dict[str, float]:
    """Drop the rate tenfold after one step and run a step without gradients; return what became of the residual."""
    model, optimizer, sync = attach_mlp(group, 0.0, memory=memory, **SPARSE)
    optimizer.zero_grad()
    loss_of(model, rank, 0).backward()
    optimizer.step()
    carried = {name: sync.store.get(name, "residual").clone() for name, _ in model.named_parameters()}
    optimizer.param_groups[0]["lr"] /= 10
    optimizer.zero_grad()
    (0 * loss_of(model, rank, 1)).backward()
    optimizer.step()  # which commits what was kept back
    before, after = torch.zeros(()), torch.zeros(())
    for name, param in model.named_parameters():
        kept = sync.store.get(name, "residual")
        total = torch.stack([carried[name].sum(), kept.sum()])
        dist.all_reduce(total, group=group)
        before += total[0]
        after += total[1] + world * param.grad.sum()
    state = sync.state_dict()
    sync.detach()
    rates = state["rates"]["rates"].values() if state["rates"] else []
    return {"factor": float(after / before), "carried": float(before.abs()), "rate": max(rates, default=0.0)}


def warms_up(group: Any, rank: int, world: int, options: Options, steps: int) -> list[tuple[float, float]]:
    """Return for each step the density of the plan that it was exchanged by, and how far sent and kept miss the mean.

    What is sent and what stays behind, over all ranks, is what there was: gradients and what had stayed before.
    """
    model, optimizer, sync = attach_mlp(group, 0.0, **options)
    seen = []
    for step in range(steps):
        (density,) = {segment.density for _, lane in sync.plan.lanes() for segment in lane.segments}
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        loss_of(local, rank, step).backward()
        before = sync.store.state_dict()
        _step(model, optimizer, rank, step, "mlp", "")
        after, worst = sync.store.state_dict(), 0.0
        for name, p in model.named_parameters():
            left = [state.get(name, {}).get("residual", torch.zeros_like(p)) for state in (before, after)]
            sent = dict(local.named_parameters())[name].grad + left[0].view_as(p) - left[1].view_as(p)
            dist.all_reduce(sent, group=group)
            worst = max(worst, float((sent / world - p.grad).abs().max()))
        seen.append((density, worst))
    sync.detach()
    return seen


def dense_at_first(group: Any, rank: int, world: int, options: Options, steps: int) -> tuple[list[str], list[float]]:
    """Return for each step the scheme of the plan that it was exchanged by, and how far weights are from DDP's."""
    model, twin = build("mlp"), build("mlp")
    optimizer, theirs = sgd(model.parameters(), 0.0), sgd(twin.parameters(), 0.0)
    sync = ssfx.attach(model, optimizer, process_group=group, costs=costs_for(world), **options)
    ddp = DistributedDataParallel(twin, process_group=group)
    names, distances = [], []
    for step in range(steps):
        names.append(sync.plan.scheme)
        _step(model, optimizer, rank, step, "mlp", "")
        _step(ddp, theirs, rank, step, "mlp", "")
        distances.append(distance(model, twin))
    sync.detach()
    return names, distances
