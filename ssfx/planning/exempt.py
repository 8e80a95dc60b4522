"""Tensors that every scheme sends uncompressed: of a few kinds that are small and suffer most."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec

KINDS = ("vectors", "embeddings", "norms", "heads", "auto")
AUTO = ("vectors", "norms", "heads", "embeddings")
"""Of which kinds "auto" takes tensors, the first before the others."""
MOST_AUTO = 0.01
"""Of all elements those of "auto" are at most this share."""
_TABLES = ("emb", "wte", "wpe")
"""What is in the names of modules that are tables."""


def kinds_of(asked: str | Sequence[str]) -> tuple[str, ...]:
    """Return the kinds in a sequence, or in a text with commas; ConfigError for another kind, and for no kinds."""
    listed = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(listed, Collection) or not all(isinstance(kind, str) for kind in listed):
        raise ConfigError(f"exempt is a list of {', '.join(KINDS)}, () for none; got {asked!r:.60}")
    kinds = tuple(kind.strip() for kind in listed)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigError(f"exempt={unknown[0]!r} is no kind of parameter; use {', '.join(KINDS)}")
    return kinds


def exempt_by_name(tensors: Sequence[TensorSpec], kinds: Sequence[str]) -> frozenset[str]:
    """Return the tensors of `kinds` where no modules are known.

    A module whose `weight` is a vector is a norm; one whose name has emb, wte or wpe in it is an embedding; the head is
    the matrix whose gradient comes first, as `tensors` are ordered. Of "auto" see `most_important`.
    """
    if "auto" in kinds:
        chosen = most_important([exempt_by_name(tensors, [kind]) for kind in AUTO], {t.name: t.numel for t in tensors})
        return chosen | exempt_by_name(tensors, [kind for kind in kinds if kind != "auto"])
    owner = {spec.name: spec.name.rpartition(".") for spec in tensors}
    vectors = {spec.name for spec in tensors if len(spec.shape) <= 1}
    norms = {owner[name][0] for name in vectors if owner[name][2] == "weight"}
    heads = [spec.name for spec in tensors if len(spec.shape) > 1][:1]
    found: set[str] = {*(vectors if "vectors" in kinds else ()), *(heads if "heads" in kinds else ())}
    for name, (module, _, _) in owner.items():
        table = any(word in module.rpartition(".")[2].lower() for word in _TABLES)
        if (module in norms and "norms" in kinds) or (table and module not in norms and "embeddings" in kinds):
            found = found | {name}
    return frozenset(found)


def most_important(kinds: Iterable[Collection[str]], numel: Mapping[str, int]) -> frozenset[str]:
    """Return the tensors of `kinds`, one kind after the other and small ones first, that fit into MOST_AUTO.

    A tensor that does not fit is passed over: of a language model with a large vocabulary, its embedding.
    """
    left = MOST_AUTO * sum(numel.values())
    chosen: set[str] = set()
    for names in kinds:
        for name in sorted(set(names) - chosen, key=lambda name: (numel[name], name)):
            if numel[name] <= left:
                left -= numel[name]
                chosen.add(name)
    return frozenset(chosen)


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
