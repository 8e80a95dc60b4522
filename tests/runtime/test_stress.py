"""No scheme can deadlock: every one of them, for thirty steps of delays, disorder and missing gradients."""

import random
import time
from typing import Any

import pytest
import torch
from runtime.cases import name, of_scheme
from runtime.models import build, loss_of, parameters
from runtime.pool import Pool
from runtime.work import Options, attached

import ssfx
from ssfx.collectives import Reducer, collectives
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, launch_in_order
from ssfx.schemes import schemes

STEPS = 30


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [s.name for s in schemes if not s.in_rounds])
def test_delays_and_disorder_neither_hang_nor_part_the_replicas(pool: Pool, scheme: str) -> None:
    options = of_scheme(scheme, 3)
    results = pool.run(under_stress, 3, options, STEPS)
    for weights in results[1:]:
        assert all(torch.equal(weights[n], results[0][n]) for n in weights), name(options)


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_lanes_of_all_collectives_follow_one_another(pool: Pool, world: int) -> None:
    results = pool.run(all_collectives_at_once, world, STEPS)
    for used, weights in results:
        assert used == len(collectives.names())
        assert all(torch.equal(weights[n], results[0][1][n]) for n in weights)


# ---- on each rank ---------------------------------------------------------------------------------------------------


ORDERS = ("ab", "ba", "a", "b")
LONGEST_DELAY_S = 1.5e-3


def _train(model: Any, optimizer: Any, rank: int, steps: int) -> None:
    """Every rank has delays, orders and left-out branches of its own; now and then it has no backward at all."""
    rng = random.Random(1000 + rank)

    def delay(_: torch.Tensor) -> None:
        if rng.random() < 0.2:
            time.sleep(rng.random() * LONGEST_DELAY_S)

    handles = [p.register_hook(delay) for p in model.parameters()]
    for step in range(steps):
        optimizer.zero_grad()
        if rng.random() < 0.2:
            time.sleep(rng.random() * LONGEST_DELAY_S)
        if rng.random() > 0.02:
            loss_of(model, rank, step, order=rng.choice(ORDERS)).backward()
        optimizer.step()
    for handle in handles:
        handle.remove()


def under_stress(group: Any, rank: int, world: int, options: Options, steps: int) -> dict[str, torch.Tensor]:
    """Train with a scheme; return the parameters at the end."""
    model, optimizer, sync = attached("branches", group, world, options, lr=0.02)
    _train(model, optimizer, rank, steps)
    assert sync.step == steps
    sync.detach()
    return parameters(model)


def all_collectives_at_once(group: Any, rank: int, world: int, steps: int) -> tuple[int, dict[str, torch.Tensor]]:
    """Train with a plan whose lanes use every collective there is in turn; return how many and the parameters."""
    model = build("branches")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    sync = ssfx.attach(model, optimizer, process_group=group, scheme="per_tensor", compressor="topk", density=0.2)
    specs = sync.plan.tensors
    names = [entry.name for entry in collectives]
    plans = []
    for turn in range(0, len(names), len(specs)):  # more collectives than tensors: several plans, one after the other
        chosen = [_lane(names[(turn + i) % len(names)], spec.name, world) for i, spec in enumerate(specs)]
        buckets = tuple(Bucket((lane,)) for lane in chosen)
        plans.append(Plan("zoo", world, specs, buckets, launch_in_order(buckets, specs)))
    for plan in plans:
        sync._install(plan)
        _train(model, optimizer, rank, steps // len(plans))
    used = {lane.collective for plan in plans for _, lane in plan.lanes()}
    sync.detach()
    return len(used), parameters(model)


def _lane(name: str, tensor: str, world: int) -> Lane:
    spec = "hierarchical_all_reduce(ranks_per_node=1)" if name == "hierarchical_all_reduce" else name
    collective = collectives.build(spec)
    if collective.additive_only:
        return Lane(spec, (Segment((tensor,)),))
    rule = collective.rules[0] if isinstance(collective, Reducer) and collective.selects else "topk"
    return Lane(spec, (Segment((tensor,), rule, 0.2),))
