"""SSFusion's decisions for one fusion buffer: which tensors stay dense, how hard the others are compressed, which of
them go to the host, and where the buffer is split into an all-reduce and a gather.

Plain functions on per-tensor lists in backward order (elements and seconds); positions count from 0 inside the buffer.
Source: SSFusion, Eq. 2, SSFusion, section IV, SSFusion, section IV-C, SSFusion, section IV-D, D-52.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ssfx.core.lazy import numpy as np

Allows = Callable[[Any], Any]
"""Whether so many elements may stay dense; of an array of numbers, for each."""


def within_guard(guard: str, dense_numel: Any, total: int, density: float, rho_min: float) -> Any:
    """Return whether a buffer of `total` elements may leave `dense_numel` of them dense.

    "volume": fewer than the buffer's budget density * total. "strict": few enough that compensation never meets
    `rho_min`. "none": any number, as in the paper's text.
    """
    if guard == "volume":
        return dense_numel < density * total
    if guard == "strict":
        return dense_numel <= (density - rho_min) * total / (1 - rho_min)
    return True


def select_eq2(
    numel: Sequence[int], gap_s: Sequence[float], encode_s: Sequence[float], previous_s: float, allows: Allows
) -> frozenset[int]:
    """Return the tensors to leave dense: smallest first until backward and encodes fit into `previous_s` (Eq. 2).

    `previous_s` is the exchange of the buffer before. The guard is our addition: without it Eq. 2 is usually
    unsatisfiable and everything ends up dense.
    """
    sizes, encode = np.array(numel), np.array(encode_s)
    order = np.argsort(sizes, kind="stable")
    compute_s = np.subtract.accumulate([sum(gap_s) + sum(encode_s), *encode[order][:-1]])  # before each is left dense
    stops = (sizes[order] > 0) & ((compute_s <= previous_s) | ~np.asarray(allows(np.cumsum(sizes[order])), dtype=bool))
    return frozenset(order[: stops.argmax() if stops.any() else len(order)].tolist())


def select_threshold(
    numel: Sequence[int],
    gap_s: Sequence[float],
    encode_s: Sequence[float],
    exchange_s: Callable[[frozenset[int]], float],
    allows: Allows,
) -> frozenset[int]:
    """Return the tensors up to the size threshold that makes this buffer's own backward, encodes and exchange shortest.

    The rule of the authors' public code; ties go to the smaller threshold. `exchange_s` prices a dense set.
    """
    best: tuple[float, frozenset[int]] | None = None
    for threshold in sorted({0, *numel}):
        dense = frozenset(i for i, n in enumerate(numel) if n <= threshold)
        if threshold and not allows(sum(numel[i] for i in dense)):
            break
        seconds = sum(gap_s) + sum(s for i, s in enumerate(encode_s) if i not in dense) + exchange_s(dense)
        if best is None or seconds < best[0]:
            best = (seconds, dense)
    assert best is not None  # threshold 0 is always allowed
    return best[1]


def compensated_density(total: int, dense_numel: int, density: float, rho_min: float) -> float:
    """Return the density of a buffer's compressed tensors that makes up for `dense_numel` elements sent dense.

    The buffer then still sends density * total elements, unless `rho_min` binds. Never above `density`.
    """
    if not 0 < dense_numel < total:
        return density
    return min(density, max(rho_min, (density * total - dense_numel) / (total - dense_numel)))


def choose_host(
    gap_s: Sequence[float], encode_s: Sequence[float], host_s: Sequence[float], dense: frozenset[int]
) -> frozenset[int]:
    """Return the compressed tensors whose host result is back before the buffer's backward ends.

    One host worker: a tensor that would wait for it stays on the device, and so does the buffer's last tensor.
    """
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
    before = np.concatenate([[0.0], np.cumsum(work_s)])
    found: list[float] = (before + np.maximum(reduce_s, before[-1] - before) + gather_s).tolist()
    return found


def best_split(times_s: Sequence[float]) -> int:
    """Return the split with the shortest time; ties (to a picosecond) go to the later one."""
    ticks = np.rint(np.asarray(times_s) * 1e12)
    return len(ticks) - 1 - int(ticks[::-1].argmin())
