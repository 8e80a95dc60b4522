"""A step's exchange as arrays: what gradients add to the device, what messages wait for and take, and when it ends.

What does not depend on the plan (backward, hooks, what every step ends with) is worked out once for a profile on a
system; a plan is a few arrays more, so that a search prices thousands a second. Nothing gets in the way of anything
else here, but that compression on the host may take its time from the cores that train.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.prices import Times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(slots=True)
class HostJobs:
    """What the host compresses: positions of tensors, ascending, and for each the message it belongs to; seconds."""

    at: Ints
    message: Ints
    out_s: Array
    work_s: Array
    back_s: Array


@dataclass(slots=True)
class Flow:
    """A plan in seconds.

    By tensor: added_s, what its gradient takes of the device besides backward and hooks; call_s, the compressor call
    that it completes. By message, in launch order: last, the latest tensor that the device hands over, -1 if there is
    none; network_s, with decoding on the way if that is done there. after_s: what the device takes when everything has
    arrived, besides what every plan takes.
    """

    added_s: Array
    call_s: Array
    last: Ints
    network_s: Array
    after_s: float
    jobs: HostJobs | None = None
    overlap: bool = True


@dataclass(slots=True)
class FlowMoments:
    """When things happen, in seconds from the start of backward."""

    ready_s: Array
    start_s: Array
    end_s: Array
    backward_end_s: float
    total_s: float


class Backward:
    """The backward pass of a profile on a system, for all plans."""

    def __init__(self, profile: Profile, system: Times) -> None:
        over = system.overheads
        self.base_s = np.array(profile.ready_gap_s) + over.hook_s
        self.after_s = over.result_s * len(profile.tensors) + over.result_s_per_byte * profile.nbytes
        self.host_shares = system.host_shares

    def times(self, flow: Flow) -> FlowMoments:
        """Return when the messages of `flow` are ready, start and end, and when the averages are written."""
        clock = np.cumsum(self.base_s + flow.added_s + flow.call_s)
        device_s, end_s = float(clock[-1]), 0.0
        host_s = None
        if flow.jobs is not None:
            if self.host_shares:
                clock, host_s = shared(clock, flow.jobs)
                device_s = float(clock[-1])
            else:
                host_s = _chain(clock[flow.jobs.at], flow.jobs)
            end_s = float(host_s.max())
        ready = np.where(flow.last >= 0, clock[flow.last], 0.0)
        if host_s is not None and flow.jobs is not None:
            np.maximum.at(ready, flow.jobs.message, host_s)
        if not flow.overlap:
            ready = np.maximum(ready, device_s)
        done = one_by_one(ready, flow.network_s)
        total_s = max(device_s, end_s, float(done[-1]) if len(done) else 0.0) + self.after_s + flow.after_s
        return FlowMoments(ready, done - flow.network_s, done, device_s, total_s)

    def total_s(self, flow: Flow) -> float:
        """Return when the averages of all gradients are written."""
        return self.times(flow).total_s


def one_by_one(arrival_s: Array, work_s: Array) -> Array:
    """Return when each job is done that a single worker takes in this order, none before it has arrived."""
    total = np.cumsum(work_s)
    done: Array = total + np.maximum.accumulate(arrival_s - (total - work_s))
    return done


def _chain(arrival_s: Array, jobs: HostJobs) -> Array:
    """Return when each job is back: out, compressed by the one worker, back; each way takes one at a time."""
    for work_s in (jobs.out_s, jobs.work_s, jobs.back_s):
        here = work_s > 0
        if here.all():
            arrival_s = one_by_one(arrival_s, work_s)
        elif here.any():  # some are copied by the compressor itself
            arrival_s = arrival_s.copy()
            arrival_s[here] = one_by_one(arrival_s[here], work_s[here])
    return arrival_s


def shared(clock: Array, jobs: HostJobs) -> tuple[Array, Array]:
    """Return when gradients are through and host jobs are done if both use the same cores, each half of them at a time.

    `clock`: when gradients would be through alone.
    """
    work, time = [0.0], [0.0]  # of the device: what it has done, and when
    total, free_s = float(clock[-1]), 0.0
    ends = []
    out_free_s = 0.0
    for done, out_s, host_s in zip(clock[jobs.at].tolist(), jobs.out_s.tolist(), jobs.work_s.tolist(), strict=True):
        arrived_s = float(np.interp(done, work, time)) if done <= work[-1] else time[-1] + done - work[-1]
        if out_s:
            out_free_s = arrived_s = max(arrived_s, out_free_s) + out_s
        start_s = max(arrived_s, free_s)
        if start_s > time[-1] and work[-1] < total:
            alone_s = min(start_s - time[-1], total - work[-1])
            work.append(work[-1] + alone_s)
            time.append(time[-1] + alone_s)
        both_s = min(host_s, total - work[-1])
        if both_s > 0:
            work.append(work[-1] + both_s)
            time.append(start_s + 2 * both_s)
        free_s = start_s + host_s + both_s
        ends.append(free_s)
    through = np.where(clock <= work[-1], np.interp(clock, work, time), time[-1] + clock - work[-1])
    host_done = np.array(ends)
    here = jobs.back_s > 0
    if here.any():
        host_done[here] = one_by_one(host_done[here], jobs.back_s[here])
    return through, host_done
