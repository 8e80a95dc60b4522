"""Plans of the two sums of a sharded model: between shards, and between replicas of a shard.

The runtime on models of `fully_shard` and the simulator plan here alike. A bucket holds tensors of one group, as its
shards; sums over shards are one message of a group to every rank, however the scheme divides it into messages. Schemes
that quantise sums on the way (`ddp_quantized`, `ddp_bf16`) send chunks once, since a shard's owner needs no way back;
with `ranks_per_node` chunks are summed inside nodes first, and every rank sends one to each node.
Source: Wang et al. 2023 (ZeRO++), qgZ; Jia et al. 2024 (SDP4Bit), two levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from ssfx.collectives import Reducer, collectives
from ssfx.collectives.quantized_all_reduce import QuantizedAllReduce
from ssfx.compressors import Compressor, build
from ssfx.compressors.cast import Cast
from ssfx.compressors.fp8 import FP8
from ssfx.compressors.quantizer import Quantizer
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, placeholder_costs
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan

_WHOLE_GROUP_BYTES = 1 << 62
OVER_SHARDS = ("reduce_scatter", "all_to_all")
GATHERS = ("all_gather", "all_gather")
"""What carries the one message of a group where all of it is dense, and where some is compressed."""
_WHOLE = (Cast, FP8, Quantizer)
"""Compressors that send every element of tensors of any shape."""

Specs = tuple[TensorSpec, ...]


def leg_plan(
    groups: Sequence[Specs],
    scheme: str,
    given: dict[str, Any],
    world_size: int,
    *,
    carriers: tuple[str, str] | None = None,
    exempt: Callable[[Plan], Plan] = lambda plan: plan,
    costs: Costs | None = None,
) -> tuple[Plan, list[int]]:
    """Return the plan of a leg, and the number of the group of each of its buckets.

    `groups` hold the shards of a group each, in the order of modules. A scheme with byte caps sends a group as a whole
    unless the caps are given: torch reduces it at once. With `carriers` a group is one message. `exempt` takes tensors
    out of the plan of a group. A scheme that plans by `costs` plans each group for itself, whose gradients torch hands
    over all at once; equal groups get equal plans.
    """
    known = asdict(schemes[scheme].options(given))
    capped = {"first_bucket_bytes", "bucket_cap_bytes"} & known.keys()
    caps: dict[str, Any] = dict.fromkeys(capped, _WHOLE_GROUP_BYTES)
    tensors: list[TensorSpec] = []
    buckets: list[Bucket] = []
    owner: list[int] = []
    alike: dict[Any, Plan] = {}
    for number in range(len(groups) - 1, -1, -1):  # backward reaches the last group first
        if costs is None:
            whole = make_plan(scheme, profile_of(groups[number]), placeholder_costs(world_size), {**caps, **given})
        else:
            whole = _by_costs(scheme, groups[number], costs, given, alike)
        part = exempt(whole)
        made = _one_message(part, *carriers) if carriers else part.buckets
        tensors += part.tensors
        buckets += made
        owner += [number] * len(made)
    order = launch_in_order(tuple(buckets), tuple(tensors))
    return Plan(scheme, world_size, tuple(tensors), tuple(buckets), order), owner


def _by_costs(scheme: str, group: Specs, costs: Costs, given: dict[str, Any], known: dict[Any, Plan]) -> Plan:
    """Return the plan of a group, compressed where its gradients are; `known` are those of other groups."""
    alike = tuple((spec.shape, spec.dtype) for spec in group)
    if alike not in known:
        plan = make_plan(scheme, profile_of(group), costs, given)
        known[alike] = _with_lanes(plan, lambda segment: replace(segment, placement="device"), plan.tensors)
    plan = known[alike]
    names = {old.name: new.name for old, new in zip(plan.tensors, group, strict=True)}
    return _with_lanes(
        plan, lambda segment: replace(segment, tensors=tuple(names[name] for name in segment.tensors)), group
    )


def _with_lanes(plan: Plan, change: Callable[[Segment], Segment], tensors: Specs) -> Plan:
    buckets = tuple(
        Bucket(tuple(replace(lane, segments=tuple(map(change, lane.segments))) for lane in bucket.lanes))
        for bucket in plan.buckets
    )
    return replace(plan, tensors=tensors, buckets=buckets)


def weights_plan(
    groups: Sequence[Specs], compressor: str, world_size: int, exempt: Callable[[Plan], Plan] = lambda plan: plan
) -> tuple[Plan, list[int]]:
    """Return the plan of the gathers of weights in a compressor's bits, and the number of the group of each bucket."""
    return leg_plan(groups, "fused_all", {"compressor": compressor}, world_size, carriers=GATHERS, exempt=exempt)


def check_weights(compressor: str) -> None:
    """Raise ConfigError for a compressor by which no weights are gathered."""
    built = build(compressor)
    if built.vote or built.rounds > 1 or not isinstance(built, _WHOLE):
        raise ConfigError(
            f"weights={compressor} leaves out weights, or agrees on something first, and every rank needs all of them; "
            'use weights=bf16, weights=fp8, weights="qsgd(bits=8,norm=max,nearest=True)", or leave weights out'
        )


def _one_message(part: Plan, plain: str, packed: str) -> Sequence[Bucket]:
    lanes = [lane for bucket in part.buckets for lane in bucket.lanes]
    segments = sorted((s for lane in lanes for s in lane.segments), key=lambda s: part.order[s.tensors[0]])
    dense = all(segment.dense for segment in segments)
    sizes = {_summed_first(lane.collective) for lane in lanes if not all(segment.dense for segment in lane.segments)}
    if sizes - {1}:
        packed = f"{packed}(ranks_per_node={max(sizes)})"
    bucket = Bucket((Lane(plain if dense else packed, tuple(segments)),))
    return [bucket] if segments else []


def _summed_first(collective: str) -> int:
    """Return how many neighbours a collective sums in float32 before it quantises; 1 of all others."""
    one = collectives.build(collective)
    return one.options.ranks_per_node if isinstance(one, QuantizedAllReduce) else 1


def check_leg(scheme: str, given: dict[str, Any], memory: str | None, *, of_shards: bool) -> None:
    """Raise ConfigError where a scheme cannot say how shards are summed, or would keep a whole model unasked."""
    entry = schemes[scheme]
    online = entry.online(given)
    if entry.profiled and not of_shards and entry.chooses:
        # Options about steps that are observed or timed before or after planning.
        for name in ("profile_iters", "trial_iters", "replan_above", "replan_after"):
            if name in given:
                raise ConfigError(
                    f"{name}={given[name]} has no effect under fully_shard, where scheme={scheme} plans every group "
                    f"once, by costs alone; drop {name}"
                )
    elif entry.profiled:
        nearest = "scheme=per_tensor" if of_shards else "scheme=topk, scheme=powersgd"
        raise ConfigError(
            f"scheme={entry.name} plans by ready times and costs, which are not measured under fully_shard; choose a "
            f"scheme that plans at once, such as {nearest} or scheme=ddp_fp16"
        )
    if online.density_warmup_steps:
        raise ConfigError("the density does not warm up under fully_shard; drop density_warmup")
    if online.dense_steps:
        raise ConfigError("a plan stays as it is under fully_shard; drop dense_steps")
    if of_shards:
        _check_shard_sum(scheme, given, online.compressor, memory)


def _check_shard_sum(scheme: str, given: dict[str, Any], compressor: str | None, memory: str | None) -> None:
    flat = {name: value for name, value in given.items() if name != "ranks_per_node"}
    tried = make_plan(scheme, profile_of((TensorSpec("x", (64, 64)),)), placeholder_costs(2), flat)
    used = [collectives.build(lane.collective) for _, lane in tried.lanes()]
    if any(isinstance(one, Reducer) and not isinstance(one, QuantizedAllReduce) for one in used):
        raise ConfigError(
            f"scheme={scheme} adds up selected elements on the way to all ranks, and a shard goes to one rank; "
            'use scheme=ddp_quantized with compressor="qsgd(norm=max)", or scheme=ddp_fp16'
        )
    if compressor is None:
        return
    built = build(compressor)
    if built.vote or built.rounds > 1 or not (isinstance(built, _WHOLE) or _selects(built)):
        raise ConfigError(
            f"compressor={compressor} does not sum over shards: its payload means nothing to a rank that has only its "
            'chunk; use compressor=fp16, bf16, fp8, "qsgd(bits=8)" or "qsgd(bits=4,bucket=32,norm=max,rotate=32)"'
        )
    if built.sparse and memory in (None, "none"):
        raise ConfigError(
            f"compressor={compressor} between shards keeps a residual of the whole model on every rank, which sharding "
            'is to save (8 bytes an element); use compressor="qsgd(bits=4,bucket=32,norm=max,rotate=32)", or '
            'ask for it: memory="residual"'
        )


def _selects(built: Compressor) -> bool:
    return built.sparse and not built.additive and not built.state_shapes(((64, 64),))


def profile_of(tensors: Specs) -> Profile:
    """Return a profile of shards without times."""
    origin = Origin("nominal", note="shards in the order in which torch reduces them; no times")
    return Profile("shards", tensors, (0.0,) * len(tensors), 0.0, origin)
