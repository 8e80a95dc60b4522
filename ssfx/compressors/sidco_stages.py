"""How many stages SIDCo fits: adapted after every few calls to the ratio of what was selected to what was wanted.

State is kept per segment (the authors' code shares it among all tensors). Source: D-22.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssfx.core.lazy import torch

EXTRA, REVERSED, KNOWN, PREVIOUS, SUM, CALLS = range(6)
"""Columns of the state, float32, all of them 0 at first: stages beyond one; whether more stages are taken to select
fewer; whether a window has ended, and its mean ratio; sum of ratios and number of calls in the present window."""
COLUMNS = CALLS + 1

RULES = ("steady", "reverse", "bracket", "robust")
"""steady: more stages select more, for ever (the authors' mode -1). reverse: the direction turns when the ratio has got
worse (-2). bracket: it turns unless the ratio moves away from the window on the same side (-3). robust: reverse, and it
turns as well when there was no room for a wanted change."""


@dataclass(frozen=True, slots=True)
class Adaptation:
    """After every `window` calls, a mean ratio outside 1 +- `tolerance` changes the number of stages by one."""

    rule: str
    window: int
    tolerance: float


def max_stages(density: float) -> int:
    """Return the largest number of stages worth trying: each keeps at most half."""
    return max(1, math.ceil(math.log(density) / math.log(0.5)))


def stages(state: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
    """Return the number of stages to fit, float64 [S], from `state` [S, COLUMNS] and the largest number `most` [S]."""
    return torch.minimum(1 + state[:, EXTRA].double(), most)


def adapted(state: torch.Tensor, ratio: torch.Tensor, most: torch.Tensor, how: Adaptation) -> torch.Tensor:
    """Return the state after one more call that selected `ratio` [S] of what was wanted."""
    calls, total = state[:, CALLS] + 1, state[:, SUM] + ratio.float()
    mean = total / how.window
    now, known, previous = stages(state, most).float(), state[:, KNOWN] > 0, state[:, PREVIOUS]
    direction = 1 - 2 * state[:, REVERSED]
    direction = torch.where(known & _turns(mean, previous, how), -direction, direction)
    too_many, too_few = mean > 1 + how.tolerance, mean < 1 - how.tolerance
    wanted = now + direction * (too_few.float() - too_many.float())
    after = torch.minimum(wanted.clamp(min=1), most.float())
    if how.rule == "robust":
        direction = torch.where(after != wanted, -direction, direction)
    ended = torch.stack(
        [after - 1, (1 - direction) / 2, torch.ones_like(mean), mean, torch.zeros_like(mean), torch.zeros_like(mean)], 1
    )
    goes_on = state.clone()
    goes_on[:, SUM], goes_on[:, CALLS] = total, calls
    return torch.where((calls >= how.window)[:, None], ended, goes_on)


def _turns(mean: torch.Tensor, previous: torch.Tensor, how: Adaptation) -> torch.Tensor:
    if how.rule == "steady":
        return torch.zeros_like(mean, dtype=torch.bool)
    if how.rule == "bracket":
        rising = (mean > previous) & (previous < 1 - how.tolerance)
        falling = (mean < previous) & (previous > 1 + how.tolerance)
        return ~(rising | falling)
    return (mean - 1).abs() > (previous - 1).abs()
