"""Values on their way to 16 bits: a finite one that float16 cannot hold travels as the largest it can (D-13).

What is cut off stays in the residual, where there is one. NaN and infinity arrive as such, so that every rank undoes
the step.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ssfx.core import accelerator
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.wire.batch import Batch

_counted = threading.local()
CUT = 65440.0
"""The largest finite value that travels: two steps below the largest float16, so that sums of rounded shares fit."""


def narrow(values: torch.Tensor, exact: torch.Tensor, ranks: int = 1, divisor: float = 1) -> None:
    """Write float32 `exact` / `divisor` into `values` of any float dtype; in float16, magnitudes are <= CUT / `ranks`.

    `ranks`: how many ranks' values are added on the way, if these are shares of each.
    """
    torch.div(exact, divisor, out=values) if divisor != 1 else values.copy_(exact)
    bound = CUT / ranks
    if values.dtype == torch.float16 and not surely_within(exact, bound * divisor):
        count_cut(exact, bound * divisor)
        values.clamp_(-bound, bound)
        torch.add(values, exact, alpha=0.0, out=values)  # 0 * infinity is NaN


def surely_within(exact: torch.Tensor, bound: float) -> bool:
    """Whether no magnitude is known to be above `bound`: the host looks, a device would have to wait for the answer."""
    if accelerator.queued(exact.device) or not exact.numel():
        return not exact.numel()
    low, high = torch.aminmax(exact)  # 15 times as fast as the norm that says the same; NaN is below no bound
    return not (float(low) < -bound or bool(high > bound))


def count_cut(exact: torch.Tensor, bound: float) -> None:
    """Count finite values above `bound` for `cut_values`, if the host knows."""
    if not accelerator.queued(exact.device):
        _counted.values = cut_values() + int(((exact.abs() > bound) & exact.isfinite()).sum())


def cut_values() -> int:
    """Return how many values this thread has cut so far; those of a GPU are not counted."""
    return getattr(_counted, "values", 0)


def round_values(batch: Batch, values: torch.Tensor, ranks: int = 1) -> None:
    """Bring float32 `values`, laid out as the payload's, into the payload; only those of this batch's parts.

    `ranks`: as in `narrow`. Segments compressed on the host may be written to the same message at the same time.
    """
    target = batch.payload.values
    if values is target:
        return
    if batch.once("alone", lambda: len(values) == sum(part.layout.values for part in batch.parts)):
        narrow(target, values, ranks)
        return
    for part in batch.parts:
        share = slice(part.starts.values, part.starts.values + part.layout.values)
        narrow(target[share], values[share], ranks)
