"""How tensors are grouped: per dtype, by a byte cap, and back into one plan."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from ssfx.planning.plan import Bucket, Plan, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes.search.shared import shared

MIB = 1024 * 1024
FIRST_BUCKET_BYTES = 1 * MIB
BUCKET_CAP_BYTES = 25 * MIB

Group = tuple[TensorSpec, ...]


def plan_per_dtype(
    scheme: str,
    profile: Profile,
    world_size: int,
    buckets_of: Callable[[Profile], Iterable[Bucket]],
    *,
    overlap: bool = True,
) -> Plan:
    """Return the plan whose buckets `buckets_of` chooses for each dtype on its own.

    A message has one dtype, so every dtype is planned as if it were a model of its own (D-44). Buckets
    are then ordered by the backward position of their last tensor, which is the order in which they become ready.
    """
    order = {spec.name: i for i, spec in enumerate(profile.tensors)}
    buckets = [bucket for part in dtype_profiles(profile) for bucket in buckets_of(part)]
    buckets.sort(key=lambda bucket: max(order[name] for lane in bucket.lanes for name in lane.tensors))
    chosen = tuple(buckets)
    launch = launch_in_order(chosen, profile.tensors)
    return Plan(scheme, world_size, profile.tensors, chosen, launch, overlap=overlap)


def dtype_profiles(profile: Profile) -> list[Profile]:
    """Return one profile per dtype, in order of first appearance; every tensor keeps its ready time."""
    return shared(profile, None, "dtypes", lambda: _dtype_profiles(profile))


def _dtype_profiles(profile: Profile) -> list[Profile]:
    dtypes = list(dict.fromkeys(spec.dtype for spec in profile.tensors))
    if len(dtypes) == 1:
        return [profile]
    ready_s = list(accumulate(profile.ready_gap_s))
    parts = []
    for dtype in dtypes:
        at = [i for i, spec in enumerate(profile.tensors) if spec.dtype == dtype]
        previous_s = [0.0, *(ready_s[i] for i in at)]
        gaps = tuple(ready_s[i] - before for i, before in zip(at, previous_s, strict=False))
        parts.append(replace(profile, tensors=tuple(profile.tensors[i] for i in at), ready_gap_s=gaps))
    return parts


def units(tensors: Sequence[TensorSpec]) -> list[Group]:
    """Return one group per tensor that has elements; tensors without elements ride along with the next such tensor.

    So no message and no compressor call is ever empty, and nothing waits longer (trailing ones join the last group).
    """
    groups: list[Group] = []
    waiting: Group = ()
    for spec in tensors:
        waiting += (spec,)
        if spec.numel:
            groups.append(waiting)
            waiting = ()
    if waiting and groups:
        groups[-1] += waiting
    elif waiting:
        groups.append(waiting)
    return groups


def cap_groups(nbytes: Sequence[float], first_bytes: float, cap_bytes: float) -> list[range]:
    """Return the positions of each bucket under PyTorch DDP's rule (D-45).

    A bucket is closed by the tensor that brings it to the cap, so buckets overshoot and no tensor is split. The first
    bucket has its own, smaller cap.
    """
    groups: list[range] = []
    start, filled, cap = 0, 0.0, first_bytes
    for i, size in enumerate(nbytes):
        filled += size
        if filled >= cap:
            groups.append(range(start, i + 1))
            start, filled, cap = i + 1, 0.0, cap_bytes
    if start < len(nbytes):
        groups.append(range(start, len(nbytes)))
    return groups


def joined(groups: Iterable[Group]) -> Group:
    """Return the tensors of several groups as one group."""
    return tuple(spec for group in groups for spec in group)
