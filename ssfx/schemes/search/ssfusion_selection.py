"""SSFusion's decisions for one fusion buffer: which tensors stay dense, how hard the others are compressed, which of
them go to the host, and where the buffer is split into an all-reduce and a gather.

Plain functions on per-tensor lists in backward order (elements and seconds); positions count from 0 inside the buffer.
Source: SSFusion, Eq. 2, SSFusion, section IV, SSFusion, section IV-C, SSFusion, section IV-D, D-52.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssfx.core.lazy import numpy as np

LEAST_DENSITY = 0.001
"""Of compensation."""


def select_eq2(
    numel: Sequence[int], gap_s: Sequence[float], encode_s: Sequence[float], previous_s: float, budget: float
) -> frozenset[int]:
    """Return the tensors to leave dense: smallest first until backward and encodes fit into `previous_s` (Eq. 2).

    `previous_s` is the exchange of the buffer before. Fewer than `budget` elements may stay dense, which is our
    addition: without it Eq. 2 is usually unsatisfiable and everything ends up dense.
    """
    # Eq. 2: sum over the buffer of backward, and of encodes but for the dense set, <= exchange of the buffer before.
    sizes, encode = np.array(numel), np.array(encode_s)
    order = np.argsort(sizes, kind="stable")
    compute_s = np.subtract.accumulate([sum(gap_s) + sum(encode_s), *encode[order][:-1]])  # before each is left dense
    stops = (sizes[order] > 0) & ((compute_s <= previous_s) | (np.cumsum(sizes[order]) >= budget))
    return frozenset(order[: stops.argmax() if stops.any() else len(order)].tolist())


def compensated_density(total: int, dense_numel: int, density: float) -> float:
    """Return the density of a buffer's compressed tensors that makes up for `dense_numel` elements sent dense.

    The buffer then still sends density * total elements, unless LEAST_DENSITY binds. Never above `density`.
    """
    if not 0 < dense_numel < total:
        return density
    return min(density, max(LEAST_DENSITY, (density * total - dense_numel) / (total - dense_numel)))


def choose_host(
    gap_s: Sequence[float], encode_s: Sequence[float], host_s: Sequence[float], dense: frozenset[int]
) -> frozenset[int]:
    """Return the compressed tensors whose host result is back before the buffer's backward ends.

    One host worker: a tensor that would wait for it stays on the device, and so does the buffer's last tensor.
    """
    # Section IV-C: device_s is the clock of the training stream, worker_s when the host is free, end_s the deadline.
    device_s = worker_s = 0.0
    end_s = sum(gap_s)
    host = set()
    for i in range(len(gap_s)):
        device_s += gap_s[i]
        if i in dense:
            continue
        done_s = device_s + host_s[i]
        if i < len(gap_s) - 1 and worker_s <= device_s and done_s <= end_s:
            host.add(i)
            worker_s = done_s
        else:
            device_s += encode_s[i]
    return frozenset(host)


def split_times(work_s: Sequence[float], reduce_s: Sequence[float], gather_s: Sequence[float]) -> list[float]:
    """Return T1 + T2 for every split l = 0..N: the first l tensors' dense ones are reduced, the rest is gathered.

    `work_s` is backward plus device encode of each tensor; `reduce_s` and `gather_s` are the exchanges of each split.
    T1 is the work before the split, T2 the longer of the all-reduce and the work behind it, then the gather.
    """
    # Section IV-D: T1 = work before l; T2 = max(all-reduce of the dense before l, work from l on) + gather of the rest.
    before = np.concatenate([[0.0], np.cumsum(work_s)])
    found: list[float] = (before + np.maximum(reduce_s, before[-1] - before) + gather_s).tolist()
    return found


def best_split(times_s: Sequence[float]) -> int:
    """Return the split with the shortest time; ties (to a picosecond) go to the later one."""
    ticks = np.rint(np.asarray(times_s) * 1e12)
    return len(ticks) - 1 - int(ticks[::-1].argmin())
