"""What the pool's ranks run to break reducers: loss scales, bad steps, resumes, odd models and odd groups."""

from copy import deepcopy
from typing import Any

import torch
from runtime.models import build, loss_of, parameters
from runtime.ranks import among
from runtime.work import train
from torch import nn

import ssfx
import ssfx.core.errors
from ssfx.compressors.memories import memories
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order
from ssfx.runtime.message_kinds import ReducedMessage

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
