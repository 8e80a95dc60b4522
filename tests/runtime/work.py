"""What the pool's ranks run: each function checks one contract of the runtime and returns what the test compares."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from runtime.models import build, loss_of, parameters
from runtime.ranks import add_up, among, ddp, is_rank_0s, replaced

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import memories
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.runtime.online import Observer
from ssfx.simulator.pricing.message_sizes import plan_bytes

Options = dict[str, Any]
STEPS = 8  # five observed iterations of profiled schemes, and some after the plan


def costs_for(world: int) -> Costs:
    """Fixed costs, so that every run of a test plans alike."""
    curve = Curve.affine(2e-4, 1e-9)
    return Costs(world, curve, curve, curve, ring_exchange(world, 2e-5, 8e-10), Origin("nominal"))


def attached(kind: str, group: Any, world: int, options: Options, lr: float = 0.1) -> tuple[Any, Any, Any]:
    model = build(kind)
    memory = options.get("memory")
    momentum = 0.0 if memory is not None and memories.build(memory).forbids_optimizer_momentum else 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    given = {"costs": costs_for(world), **options}
    return model, optimizer, ssfx.attach(model, optimizer, **among(group), **given)


def train(model: Any, optimizer: Any, rank: int, steps: range, kind: str = "mlp") -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step, kind).backward()
        optimizer.step()


def density_one_equals_ddp(group: Any, rank: int, world: int, kind: str, options: Options) -> float:
    """Train with ssfx and with torch DDP; return the largest parameter difference over all steps."""
    model, optimizer, sync = attached(kind, group, world, options)
    twin = build(kind)
    wrapped = ddp(twin, group)
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    worst = 0.0
    for step in range(STEPS):
        train(model, optimizer, rank, range(step, step + 1), kind)
        train(wrapped, twin_optimizer, rank, range(step, step + 1), kind)
        mine, theirs = parameters(model), parameters(twin)
        worst = max(worst, *(float((mine[n] - theirs[n]).abs().max()) for n in mine))
    sync.detach()
    return worst


def passes_through(group: Any, rank: int, world: int, options: Options) -> dict[str, Any]:
    """Return whether one step's gradients are those of the model alone, and how many operations were issued."""
    model, _, sync = attached("mlp", group, world, options)
    local = build("mlp")
    loss_of(local, rank, 0).backward()
    loss_of(model, rank, 0).backward()
    pairs = zip(model.parameters(), local.parameters(), strict=True)
    same = all(torch.equal(a.grad, b.grad) for a, b in pairs)
    sync.detach()
    return {"same_gradients": same, "calls": sync.comm.calls}


def conserves_mass(group: Any, rank: int, world: int, options: Options) -> tuple[float, float]:
    """Return the worst relative violation of sum(in) = world * average + sum(kept), and the largest amount kept.

    Of a memory that fades, what it kept before counts as it says: by its decay.
    """
    decay = getattr(memories.build(options.get("memory") or "residual").options, "decay", 1.0)
    model, optimizer, sync = attached("mlp", group, world, options)
    worst = kept = 0.0
    for step in range(STEPS):
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        loss_of(local, rank, step).backward()
        before = sync.store.state_dict()
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()  # which commits what was kept back
        after = sync.store.state_dict()
        for name, p in model.named_parameters():
            zero = torch.zeros_like(p)
            old = before.get(name, {}).get("residual", zero)
            new = after.get(name, {}).get("residual", zero)
            handed_in = dict(local.named_parameters())[name].grad + decay * old - new
            add_up(handed_in, group)
            scale = float(handed_in.abs().max()) + 1e-12
            worst = max(worst, float((handed_in - world * p.grad).abs().max()) / scale)
            kept = max(kept, float(new.abs().max()))
    sync.detach()
    return worst, kept


def resumes_exactly(group: Any, rank: int, world: int, options: Options, cut: int) -> bool:
    """Return whether a run cut at `cut`, saved and loaded elsewhere equals the uninterrupted one bit for bit."""
    model, optimizer, sync = attached("mlp", group, world, options)
    train(model, optimizer, rank, range(cut))
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict(), sync.state_dict()), file)
    train(model, optimizer, rank, range(cut, cut + 4))

    again, again_optimizer, again_sync = attached("mlp", group, world, options)
    file.seek(0)
    states = torch.load(file, weights_only=False)
    again.load_state_dict(states[0])
    again_optimizer.load_state_dict(states[1])
    again_sync.load_state_dict(states[2])
    train(again, again_optimizer, rank, range(cut, cut + 4))

    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    kept, kept_again = sync.store.state_dict(), again_sync.store.state_dict()
    same &= kept.keys() == kept_again.keys()
    same &= all(torch.equal(kept[n][b], kept_again[n][b]) for n in kept for b in kept[n])
    same &= sync.plan == again_sync.plan
    sync.detach()
    again_sync.detach()
    return same


def rolls_back(group: Any, rank: int, world: int, options: Options, bad: float) -> dict[str, Any]:
    """Poison one element on the last rank in one step; report what the step left behind and that training goes on."""
    model, optimizer, sync = attached("mlp", group, world, options)
    train(model, optimizer, rank, range(7))
    memory, weights = sync.store.state_dict(), parameters(model)
    optimizer.zero_grad()
    loss = loss_of(model, rank, 7)
    handle = model.middle.weight.register_hook(
        lambda g: g.index_put((torch.tensor(0), torch.tensor(1)), torch.tensor(bad))
    )
    if rank != world - 1:
        handle.remove()
    loss.backward()
    handle.remove()
    nothing_in_grad = all(p.grad is not None and bool(p.grad.isnan().all()) for p in model.parameters())
    optimizer.step()
    after = sync.store.state_dict()
    report = {
        "skipped": sync.last.skipped,
        "nothing_in_grad": nothing_in_grad,
        "memory_kept": all(torch.equal(memory[n][b], after[n][b]) for n in memory for b in memory[n]),
        "weights_kept": all(torch.equal(weights[n], p) for n, p in model.named_parameters()),
    }
    train(model, optimizer, rank, range(8, 10))
    report["goes_on"] = not sync.last.skipped and all(bool(torch.isfinite(p).all()) for p in model.parameters())
    report["weights"] = parameters(model)
    sync.detach()
    return report


@contextmanager
def given_times() -> Iterator[None]:
    """Gradients are taken to be ready a millisecond after one another, whatever is measured.

    A busy machine would let two runs plan differently, and what they select then differs, too.
    """
    measured = Observer.profile

    def profile(self: Observer, base: Profile, comm: Comm) -> Profile:
        found = measured(self, base, comm)
        return replace(found, ready_gap_s=(1e-3,) * len(found.tensors), forward_s=1e-3)

    with replaced(Observer, "profile", profile):
        yield


@given_times()
def accumulates(group: Any, rank: int, world: int, options: Options) -> float:
    """Return how far two micro-steps (one under no_sync) are from one step on their summed loss."""
    model, optimizer, sync = attached("mlp", group, world, options)
    twin, twin_optimizer, twin_sync = attached("mlp", group, world, options)
    for step in range(STEPS):
        optimizer.zero_grad()
        with sync.no_sync():
            loss_of(model, rank, 2 * step).backward()
        loss_of(model, rank, 2 * step + 1).backward()
        optimizer.step()
        twin_optimizer.zero_grad()
        (loss_of(twin, rank, 2 * step) + loss_of(twin, rank, 2 * step + 1)).backward()
        twin_optimizer.step()
    worst = max((a - b).abs().max().item() for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert sync.step == STEPS
    assert sync.plan.digest == twin_sync.plan.digest
    sync.detach()
    twin_sync.detach()
    return worst


def survives_disorder(group: Any, rank: int, world: int, options: Options) -> dict[str, torch.Tensor]:
    """Ranks see gradients in different orders and leave out different branches; return the parameters at the end."""
    model, optimizer, sync = attached("branches", group, world, options)
    orders = ["ab", "ba", "a", "b"]
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step, order=orders[(rank + step) % 4]).backward()
        optimizer.step()
    sync.detach()
    return parameters(model)


def rank_without_gradients(group: Any, rank: int, world: int, options: Options) -> dict[str, torch.Tensor]:
    """Rank 0 skips backward every other step; the optimizer's step then takes part in the exchange for it."""
    model, optimizer, sync = attached("mlp", group, world, options)
    for step in range(STEPS):
        optimizer.zero_grad()
        if rank or step % 2 == 0:
            loss_of(model, rank, step).backward()
        optimizer.step()
    sync.detach()
    return parameters(model)


def average_with_plan(
    group: Any, rank: int, world: int, compressor: str, density: float, collective: str, fused: bool, placement: str
) -> float:
    """Run a hand-made plan; return the distance from the dense average (density 1) or assert equal replicas."""
    model, _, sync = attached("mlp", group, world, {"scheme": "ddp"})
    specs = sync.plan.tensors
    names = [spec.name for spec in specs]
    groups = [tuple(names)] if fused else [(name,) for name in names]
    from ssfx.compressors import build as build_compressor
    from ssfx.runtime.setup import choose_memory

    memory = choose_memory(compressor, None, torch.optim.SGD(model.parameters(), lr=0.1))
    sync.memory = sync._exchange.memory = memory
    segments = tuple(Segment(g, compressor, density, placement=placement) for g in groups)  # type: ignore[arg-type]
    buckets = (Bucket((Lane(collective, segments),)),)
    plan = Plan("by_hand", world, specs, buckets, launch_in_order(buckets, specs))
    if sync._planner.observer is not None:
        sync._planner._stop_observing()
    sync._install(plan)
    local = build("mlp")
    local.load_state_dict(model.state_dict())
    loss_of(local, rank, 0).backward()
    loss_of(model, rank, 0).backward()
    worst = 0.0
    for name, p in local.named_parameters():
        dense = p.grad.clone()
        add_up(dense, group)
        got = dict(model.named_parameters())[name].grad
        worst = max(worst, float((dense / world - got).abs().max()))
        assert is_rank_0s(got, group), "replicas differ"
    assert sync.last.contributed_bytes == sum(
        build_compressor(compressor).layout(plan.numel(s), density).nbytes for s in segments
    )
    sync.detach()
    return worst


def bytes_on_the_wire(group: Any, rank: int, world: int, options: Options) -> tuple[int, int, int]:
    """Return the bytes one step hands to the process group: planned, reported, and counted where they leave."""
    model, optimizer, sync = attached("mlp", group, world, options)
    train(model, optimizer, rank, range(2))
    before = sync.comm.contributed_bytes
    train(model, optimizer, rank, range(2, 3))
    counted = sync.comm.contributed_bytes - before
    planned, reported = plan_bytes(sync.plan), sync.last.contributed_bytes
    sync.detach()
    return planned, reported, counted
