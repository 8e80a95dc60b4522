"""Tensors that travel as they are whatever the scheme: of a few kinds that are small and suffer most, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Bucket, Lane, Plan, Segment

KINDS = ("vectors", "embeddings", "norms")


def exempt_names(model: nn.Module, kinds: str | Sequence[str]) -> frozenset[str]:
    """Return the parameters of `kinds`, frozen ones too: "vectors" of at most one dimension, "embeddings", "norms".

    `kinds` is a sequence, or a text with commas. A norm is a module whose class has Norm in its name. ConfigError for
    another kind.
    """
    asked = [kind.strip() for kind in kinds.split(",")] if isinstance(kinds, str) else list(kinds)
    if unknown := [kind for kind in asked if kind not in KINDS]:
        raise ConfigError(f"exempt={unknown[0]!r} is no kind of parameter; use {', '.join(KINDS)}")
    taken: set[int] = set()
    for module in model.modules():
        norm = any("Norm" in kind.__name__ for kind in type(module).__mro__)
        table = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        if (norm and "norms" in asked) or (table and "embeddings" in asked):
            taken |= {id(p) for p in module.parameters(recurse=False)}
    if "vectors" in asked:
        taken |= {id(p) for p in model.parameters() if p.ndim <= 1}
    named = model.named_parameters()
    return frozenset(name.replace("_orig_mod.", "") for name, p in named if id(p) in taken)


def exempted(plan: Plan, names: frozenset[str]) -> Plan:
    """Return `plan` with the tensors `names`, where it compresses them, in a dense all-reduce after their lane."""
    if not any(names.intersection(s.tensors) for _, lane in plan.lanes() for s in lane.segments if not s.dense):
        return plan
    buckets, places = [], {}
    for number, bucket in enumerate(plan.buckets):
        lanes: list[Lane] = []
        for place, lane in enumerate(bucket.lanes):
            first = len(lanes)
            lanes += _without(lane, names, plan)
            places[number, place] = [(number, k) for k in range(first, len(lanes))]
        buckets.append(Bucket(tuple(lanes)))
    order = [
        (number, k)
        for launched in plan.launch_order
        for number, k in places[launched]
        if plan.numel(buckets[number].lanes[k])
    ]
    return replace(plan, buckets=tuple(buckets), launch_order=tuple(order))


def _without(lane: Lane, names: frozenset[str], plan: Plan) -> list[Lane]:
    """Return the lane without `names`, if anything is left, and a dense lane of those that it compressed."""
    segments, dense = [], []
    for segment in lane.segments:
        taken = [name for name in segment.tensors if name in names and not segment.dense]
        dense += taken
        if left := tuple(name for name in segment.tensors if name not in taken):
            segments.append(replace(segment, tensors=left))
    lanes = [replace(lane, segments=tuple(segments))] if segments else []
    if dense:
        lanes.append(Lane("all_reduce", (Segment(tuple(sorted(dense, key=plan.order.__getitem__))),)))
    return lanes
