"""SIDCo's first ratio, adapted where changing the number of stages has not helped.

After as many changes of the number of stages as half of those that may be tried, a mean ratio that has got worse moves
the first ratio by 0.05 and the stages back to the middle; from a bound it goes back to where it started, and the
direction turns. State is kept per segment. Source: D-22, and the authors' code.
"""

from __future__ import annotations

import math

from ssfx.compressors.sidco_stages import CALLS, EXTRA, KNOWN, PREVIOUS, SUM, Adaptation
from ssfx.core.lazy import torch

STEPS, REVERSED, CHANGES = range(3)
"""Columns of the state, float32, all of them 0 at first: steps of 0.05 from where it started; whether more is taken to
select fewer; changes of the number of stages since the last step."""
COLUMNS = CHANGES + 1
STEP, LEAST, MOST = 0.05, 0.05, 0.5


def middle_stages(density: float) -> int:
    """Return half of the largest number of stages worth trying, rounded up."""
    return max(1, math.ceil(math.log(density) / math.log(0.5) / 2))


def first_ratios(state: torch.Tensor, start: float) -> torch.Tensor:
    """Return the ratio that the first stage keeps, float64 [S], from `state` [S, COLUMNS]."""
    return (start + STEP * state[:, STEPS].double()).clamp(LEAST, MOST)


def adapted_first(
    state: torch.Tensor, before: torch.Tensor, after: torch.Tensor, ratio: torch.Tensor, middle: torch.Tensor,
    start: float, how: Adaptation,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the state [S, COLUMNS] after one more call, and the state of the stages.

    `before` and `after` are those of the stages around the same call, `ratio` [S] what it selected of what was wanted,
    `middle` [S] as `middle_stages`.
    """
    mean = (before[:, SUM] + ratio.float()) / how.window
    ended = before[:, CALLS] + 1 >= how.window
    changes = state[:, CHANGES] + (ended & ((mean - 1).abs() > how.tolerance)).float()
    worse = (before[:, KNOWN] > 0) & ((mean - 1).abs() > (before[:, PREVIOUS] - 1).abs())
    due = ended & worse & (changes >= middle)

    now, direction = first_ratios(state, start), 1 - 2 * state[:, REVERSED]
    at_bound = due & ((now <= LEAST + STEP / 2) | (now >= MOST - STEP / 2))
    off = (mean < 1 - how.tolerance / 2).float() - (mean > 1 + how.tolerance / 2).float()
    moved = due & ~at_bound & (off != 0)
    steps = torch.where(at_bound, 0, torch.where(moved, state[:, STEPS] + direction * off, state[:, STEPS]))
    direction = torch.where(at_bound, -direction, direction)
    again = after.clone()
    again[:, EXTRA] = torch.where(moved, middle.float() - 1, after[:, EXTRA])
    return torch.stack([steps, (1 - direction) / 2, torch.where(moved, 0, changes)], 1), again
