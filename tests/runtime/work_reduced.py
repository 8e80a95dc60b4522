"""What the pool's ranks run to break reducers: loss scales, bad steps, resumes, odd models and odd groups."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from runtime.models import build, loss_of, parameters
from runtime.ranks import among, is_rank_0s
from runtime.work import train
from torch import nn

import ssfx
import ssfx.core.errors
from ssfx.compressors.memories import memories
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order
from ssfx.runtime.message_kinds import ReducedMessage
from ssfx.runtime.store import COLLECTIVE, COMPRESSOR, THRESHOLD

Options = dict[str, Any]
State = dict[str, dict[str, torch.Tensor]]


def slow_network(world: int) -> Costs:
    """Return costs with which it pays off to compress, and to divide, what is not tiny."""
    curve = Curve.affine(1e-7, 1e-12)
    return Costs(world, curve, curve, curve, ring_exchange(world, 1e-7, 1e-6), Origin("nominal"))


def attach(model: nn.Module, group: Any, world: int, options: Options, **more: Any) -> tuple[Any, Any]:
    """Attach by `options`; with "lane" in them, one lane of that collective for the whole model."""
    given = {"costs": slow_network(world), **options, **more}
    lane = given.pop("lane", None)
    momentum = 0.0 if memories.build(given.get("memory", "none")).forbids_optimizer_momentum else 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    sync = ssfx.attach(model, optimizer, **among(group), **given)
    if lane is not None and world > 1:
        specs = sync.plan.tensors
        segment = Segment(tuple(spec.name for spec in specs), given["compressor"], given["density"])
        buckets = (Bucket((Lane(lane, (segment,)),)),)
        sync._planner._stop_observing()
        sync._install(Plan(given["scheme"], world, specs, buckets, launch_in_order(buckets, specs)))
    return optimizer, sync


def spoilt(model: nn.Module, bad: bool, loss: torch.Tensor) -> None:
    """Run backward; if `bad`, one gradient has an infinite element."""
    target = next(p for p in model.parameters() if p.requires_grad and p.numel())

    def spoil(grad: torch.Tensor) -> torch.Tensor:
        flat = grad.clone().view(-1)
        flat[-1] = float("inf")
        return flat.view_as(grad)

    handle = target.register_hook(spoil) if bad else None
    loss.backward()
    if handle is not None:
        handle.remove()


def equal(a: State, b: State) -> list[str]:
    """Return the names of the buffers in which two states differ."""
    if a.keys() != b.keys():
        return ["keys"]
    return [f"{n}.{k}" for n in a for k in a[n] if k not in b[n] or not torch.equal(a[n][k], b[n][k])]


def scaled(group: Any, rank: int, world: int, options: Options, steps: int, bad: Iterable[int]) -> dict[str, Any]:
    """Train with a changing loss scale and without, with the same bad steps; report in what they differ at the end."""
    bad = set(bad)
    models = build("mlp"), build("mlp")
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    pairs = [attach(models[0], group, world, options, scaler=scaler), attach(models[1], group, world, options)]
    kept = True
    scales = set()
    for step in range(steps):
        spoils = step in bad and rank == world - 1
        for model, (optimizer, sync) in zip(models, pairs, strict=True):
            scaling = sync is pairs[0][1]
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            sync.store.follow(scaler.get_scale() if scaling else 1.0)
            before, plan = sync.store.state_dict(), sync.plan
            spoilt(model, spoils, scaler.scale(loss) if scaling else loss)
            assert sync.last.skipped == (step in bad)
            if step in bad and sync.plan is plan:
                kept &= not equal(before, sync.store.state_dict())
            if scaling:
                scaler.step(optimizer)
                scaler.update()
                scales.add(scaler.get_scale())
            else:
                optimizer.step()
    differing = [n for n, p in parameters(models[0]).items() if not torch.equal(p, parameters(models[1])[n])]
    states = [sync.store.state_dict() for _, sync in pairs]
    for buffers in states[0].values():
        for buffer, value in buffers.items():
            if buffer.startswith(THRESHOLD) or not buffer.startswith((COLLECTIVE, COMPRESSOR)):
                value /= pairs[0][1].store.loss_scale
    differing += equal(*states)
    for _, sync in pairs:
        sync.detach()
    return {"differing": differing, "kept": kept, "scales": len(scales)}


def without_trace(group: Any, rank: int, world: int, options: Options, steps: int, bad: list[int]) -> list[str]:
    """Train with bad steps between the good ones and without; return what differs at the end.

    The first five steps are good, so that both plan after the same ones.
    """
    models = build("mlp"), build("mlp")
    pairs = [attach(model, group, world, options) for model in models]
    for step in range(steps):
        for model, (optimizer, sync) in zip(models, pairs, strict=True):
            for _ in range(bad.count(step) if sync is pairs[0][1] else 0):
                optimizer.zero_grad()
                spoilt(model, rank == step % world, loss_of(model, rank, 1000 + step))
                assert sync.last.skipped
                optimizer.step()
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            assert not sync.last.skipped
            optimizer.step()
    differing = [n for n, p in parameters(models[0]).items() if not torch.equal(p, parameters(models[1])[n])]
    differing += equal(*(sync.store.state_dict() for _, sync in pairs))
    for _, sync in pairs:
        sync.detach()
    return differing


def resumes_anywhere(group: Any, rank: int, world: int, options: Options, cuts: range) -> list[str]:
    """Save after every step, resume at `cuts` for two steps; return what differs from the run that went on."""
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    saved = []
    for step in range(cuts.stop + 2):
        saved.append((parameters(model), deepcopy(optimizer.state_dict()["state"]), sync.state_dict()))
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    saved.append((parameters(model), {}, sync.state_dict()))
    sync.detach()
    again = build("mlp")
    optimizer, sync = attach(again, group, world, options)  # loading into a run that has gone on, too
    differing = []
    for cut in reversed(cuts):
        weights, moments, state = saved[cut]
        again.load_state_dict(weights, strict=False)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        sync.load_state_dict(state)
        for step in (cut, cut + 1):
            optimizer.zero_grad()
            loss_of(again, rank, step).backward()
            optimizer.step()
        after = parameters(again)
        differing += [f"{cut}: {n}" for n, p in saved[cut + 2][0].items() if not torch.equal(p, after[n])]
        differing += [f"{cut}: {n}" for n in equal(saved[cut + 2][2]["memory"], sync.store.state_dict())]
        if sync.plan.to_json() != saved[cut + 2][2]["plan"]:
            differing.append(f"{cut}: plan")
    sync.detach()
    return differing


def unscaled_later(group: Any, rank: int, world: int, options: Options) -> tuple[float, float]:
    """Save under a loss scale of 256, load without one; return the residual's norm before and in the next step."""
    model = build("mlp")
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    optimizer, sync = attach(model, group, world, options, scaler=scaler)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    state, before = sync.state_dict(), sync.stats()["residual_norm"]
    sync.detach()
    optimizer, sync = attach(model, group, world, options)
    sync.load_state_dict(state)
    sync._begin()  # as the first gradient of the next step does
    after = sync.stats()["residual_norm"]
    sync._finish()
    sync.detach()
    return before, after


def kept_state(group: Any, rank: int, world: int, options: Options) -> int:
    """Return how many steps of profiling a state from step 2 tells of, after the run has gone on."""
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    for step in range(4):
        if step == 2:
            state = sync.state_dict()
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    sync.detach()
    return len(state["observed"][0])


def owners_of_collective_state(group: Any, rank: int, world: int, options: Options) -> int:
    """Return how many parameters have state of a collective after plans that begin with different tensors."""
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    firsts = set()
    for step in range(4):
        firsts.add(next(lane.tensors[0] for _, lane in sync.plan.lanes()))
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    assert len(firsts) == 2
    owners = [n for n, buffers in sync.state_dict()["memory"].items() if any(b.startswith(COLLECTIVE) for b in buffers)]
    sync.detach()
    return len(owners)


def figures(group: Any, rank: int, world: int, options: Options, steps: int) -> list[dict[str, Any]]:
    """Return, for every step after planning, what the statistics say and what was really exchanged."""
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    train(model, optimizer, rank, range(6))
    reduced = [message for message in sync._exchange.messages if isinstance(message, ReducedMessage)]
    others = [message for message in sync._exchange.messages if not isinstance(message, ReducedMessage)]
    reports = []
    for step in range(6, 6 + steps):
        before = sync.comm.sent.sent_bytes
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        last, missing, sent = sync.last, 0, 0
        for message in reduced:
            if not message.reducer.selects:
                indices, _ = message._selected()
                assert bool((indices.diff() > 0).all()), "a reducer was handed indices that do not ascend"
            sent += message._reduced.sent
            if message._reduced.indices is None:
                hit = message._reduced.values != 0
            else:
                hit = torch.zeros(message.packed_total, dtype=torch.bool)
                hit[message._reduced.indices] = True
            for name in message.lane.tensors:
                lo, hi = message._slots[name]
                missing += hi > lo and not bool(hit[lo:hi].any())
        sent += sum(message.sent_elements() for message in others)
        reports.append(
            {
                "density": (last.achieved_density, sent / sum(spec.numel for spec in sync.plan.tensors)),
                "missing": (last.tensor_missing_rate, missing / len(sync.plan.tensors)),
                "bytes": (last.sent_bytes, sync.comm.sent.sent_bytes - before),
                "described": (
                    last.sent_bytes,
                    sum(message._reduced.traffic.sent_bytes for message in reduced) if not others else last.sent_bytes,
                ),
                "ratios": [float(r) for r in last.density_ratios],
                "reducers": len(reduced),
                "contributed": last.contributed_bytes,
            }
        )
        optimizer.step()
        reports[-1]["spans"] = all(end > start > 0 for start, end in sync._exchange.queue.spans)
    last = sync.last
    live = (last.achieved_density, last.tensor_missing_rate, last.density_ratios)
    last.freeze()
    sync._install(sync.plan)
    optimizer.zero_grad()
    loss_of(model, rank, 99).backward()
    assert live == (last.achieved_density, last.tensor_missing_rate, last.density_ratios)
    sync.detach()
    return reports


def with_memory(group: Any, rank: int, world: int, options: Options) -> dict[str, Any]:
    """Train with a learning rate that changes, down to zero for a step; return replicas' equality and the residual."""
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    for step in range(9):
        optimizer.param_groups[0]["lr"] = [0.1, 0.05, 0.2, 0.0, 0.01][step % 5]
        optimizer.zero_grad()
        spoilt(model, step == 7 and rank == 0, loss_of(model, rank, step))
        optimizer.step()
    same, finite = True, True
    for p in model.parameters():
        same &= is_rank_0s(p, group)
        finite &= bool(torch.isfinite(p).all())
    kept = [k for buffers in sync.store.state_dict().values() for k in buffers if not k.startswith("collective.")]
    sync.detach()
    return {"same": same, "finite": finite, "kept": sorted(set(kept)), "skipped": sync.skipped_steps}


def refusal(group: Any, rank: int, world: int, options: Options, steps: int) -> str:
    """Attach, and train until the plan is made; return the ConfigError."""
    model = build("mlp")
    try:
        optimizer, sync = attach(model, group, world, options)
    except ssfx.core.errors.ConfigError as error:
        return str(error)
    try:
        train(model, optimizer, rank, range(steps))
    except ssfx.core.errors.ConfigError as error:
        return str(error)
    finally:
        sync.detach()
    return ""
