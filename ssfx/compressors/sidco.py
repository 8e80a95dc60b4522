"""SIDCo: the threshold of an exponential fit, refined by fitting its tail again (SIDCo-E).

The number of stages is adapted after every few calls, per segment (the authors share it among all tensors). Fits are
vectors over segments, float64 [S]; thresholds do not depend on the unit of a, so a is not normalised. Source: D-22, and
the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType

from ssfx.compressors.base import compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.threshold import ThresholdSelector, above, over_parts, settled, sizes
from ssfx.compressors.topk import TopKOptions
from ssfx.core.lazy import torch

FIRST_RATIO = 0.25
"""What the first of several stages keeps; the others keep the rest in equal ratios."""
WINDOW, TOLERANCE = 5, 0.2
"""After so many calls a mean ratio of selected to wanted outside 1 +- the tolerance changes the number of stages."""
_STATE = "stages"
EXTRA, REVERSED, KNOWN, PREVIOUS, SUM, CALLS = range(6)
"""Columns of the state, float32, all of them 0 at first: stages beyond one; whether more stages are taken to select
fewer; whether a window has ended, and its mean ratio; sum of ratios and number of calls in the present window."""
COLUMNS = CALLS + 1


@compressors.register(TopKOptions())
class SIDCo(ThresholdSelector):
    """Right where the data is exponential; only what is not zero is fitted, for the ratio then wanted of it (D-22)."""

    name = "sidco"
    summary = "SIDCo: threshold of an exponential fit in several stages"
    source = "Abdelmoniem et al. 2021; D-22"

    def state_shapes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """What adaptation knows of a segment."""
        return {_STATE: (COLUMNS,)}

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above the quantile of the last fit; adapts the number of stages."""
        most = over_parts(batch, "most", lambda part: max_stages(part.density))
        state = torch.stack([state[_STATE] for state in batch.states])
        moments, (n, k) = kernel.moments(batch), sizes(batch)
        density = over_parts(batch, "density", lambda part: part.density)
        ratio = (density * n / moments.nonzero).clamp(max=1)
        number = torch.minimum(1 + state[:, EXTRA].double(), most)
        several = (number > 1) & (ratio < FIRST_RATIO)
        log_next = (ratio / FIRST_RATIO).log() / (number - 1).clamp(min=1)
        # What a fraction r of an exponential distribution exceeds: its start minus the mean above it times log r.
        level = -moments.absolute / moments.nonzero * torch.where(several, FIRST_RATIO, ratio).log()
        for stage in range(1, max(max_stages(part.density) for part in batch.parts)):
            active = several & (stage < number)
            if settled(active):
                break
            tail = kernel.tail(batch, torch.where(active, above(level), torch.nan))
            mean = tail.total / tail.count - tail.least
            # Nothing above the threshold, or all of it equal: there is nothing to fit, and the threshold stays.
            level = torch.where(active & (mean > 0), tail.least - mean * log_next, level)
        threshold = above(level)
        changed = adapted(state, kernel.count(batch, threshold) / k.clamp(min=1), most)
        torch._foreach_copy_([state[_STATE] for state in batch.states], list(changed.unbind()))
        return threshold


def max_stages(density: float) -> int:
    """Return the largest number of stages worth trying: each keeps at most half."""
    return max(1, math.ceil(math.log(density) / math.log(0.5)))


def adapted(state: torch.Tensor, ratio: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
    """Return the state [S, COLUMNS] after one more call that selected `ratio` [S] of what was wanted.

    One more stage selects more, or fewer: the direction turns when the ratio has got worse, as in the authors' mode -2,
    and when there was no room for a wanted change.
    """
    calls, total = state[:, CALLS] + 1, state[:, SUM] + ratio.float()
    mean = total / WINDOW
    now = torch.minimum(1 + state[:, EXTRA], most.float())
    worse = (state[:, KNOWN] > 0) & ((mean - 1).abs() > (state[:, PREVIOUS] - 1).abs())
    direction = torch.where(worse, -1.0, 1.0) * (1 - 2 * state[:, REVERSED])
    wanted = now + direction * ((mean < 1 - TOLERANCE).float() - (mean > 1 + TOLERANCE).float())
    after = torch.minimum(wanted.clamp(min=1), most.float())
    direction = torch.where(after != wanted, -direction, direction)
    zero = torch.zeros_like(mean)
    ended = torch.stack([after - 1, (1 - direction) / 2, zero + 1, mean, zero, zero], 1)
    goes_on = state.clone()
    goes_on[:, SUM], goes_on[:, CALLS] = total, calls
    return torch.where((calls >= WINDOW)[:, None], ended, goes_on)
