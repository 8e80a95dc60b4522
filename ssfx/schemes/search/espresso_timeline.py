"""When a step ends if every tensor is a message of its own, first ready, first sent: Espresso's timeline as a formula.

The network idles only when nothing is ready, so the last message ends at the latest of r + (the seconds of all messages
that become ready at r or later), over all moments r at which one does, or with the backward pass. Nothing has to be
simulated step by step. Where that maximum is reached last, the network was idle ("bubble" in the paper) just before.
Source: D-51.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

TICK_S = 1e-12
"""Times that differ by less are equal: additions in another order."""


@dataclass(frozen=True)
class EspressoWork:
    """Seconds that each tensor takes, in backward order.

    encode on the device and network, for its message and what the communication stream computes, if it stays there;
    host and host_network if it moves to the host (`host` is infinite where it cannot).
    """

    encode: Array
    network: Array
    host: Array
    host_network: Array


@dataclass(frozen=True)
class EspressoOutcome:
    """What `Timeline.run` found.

    clock_s: when each tensor has left the compute stream. host_s: when those on the host are compressed, in their
    order. end_s: the end of the step. device_end_s, host_end_s: until when the network has at least to do with what
    becomes ready at these moments or later.
    """

    clock_s: Array
    host_s: Array
    end_s: float
    device_end_s: Array
    host_end_s: Array

    def bound_since_s(self, limit_s: float) -> float:
        """Return the first moment from which on the step cannot end before `limit_s`; infinite if there is none.

        No decision about a tensor whose gradient comes later than that makes the step end earlier.
        """
        moments = [(self.clock_s, self.device_end_s), (self.host_s, self.host_end_s)]
        first = [clock[ends >= limit_s][:1] for clock, ends in moments]
        return min((float(at[0]) for at in first if len(at)), default=float("inf"))


class EspressoTimeline:
    """Evaluates which of the compressed tensors move to the host; everything else is fixed."""

    def __init__(self, gap_s: Array, work: EspressoWork) -> None:
        self.gap_s, self.work = gap_s, work

    def run(self, on_host: Mask) -> EspressoOutcome:
        """Return the outcome when exactly the tensors of this mask are compressed on the host."""
        work, hosted = self.work, np.flatnonzero(on_host)
        clock = np.cumsum(self.gap_s + np.where(on_host, 0.0, work.encode))
        behind = remaining(np.where(on_host, 0.0, work.network))
        host = one_by_one(clock[hosted], work.host[hosted])
        host_behind = remaining(work.host_network[hosted])
        at = clock.searchsorted(host)
        host_end = host + host_behind[:-1] + behind[at]
        late_host = np.repeat(host_behind, np.diff(at, prepend=0, append=len(clock)))
        device_end = clock + behind[:-1] + late_host
        end_s = max(float(clock[-1]), float(device_end.max()), float(host_end.max(initial=0.0)))
        return EspressoOutcome(clock, host, end_s, device_end, host_end)

    def ready_s(self, on_host: Mask) -> Array:
        """Return when each tensor can be sent."""
        outcome = self.run(on_host)
        ready = outcome.clock_s.copy()
        ready[on_host] = outcome.host_s
        return ready


def remaining(seconds: Array) -> Array:
    """Return the sums over all entries from each one on, and a zero behind the last."""
    return np.append(np.cumsum(seconds[::-1])[::-1], 0.0)


def one_by_one(arrival_s: Array, work_s: Array) -> Array:
    """Return when each job is done that a single worker takes in this order, none before it has arrived."""
    total = np.cumsum(work_s)
    done: Array = total + np.maximum.accumulate(arrival_s - (total - work_s))
    return done
