"""Values on their way to 16 bits: a finite one that float16 cannot hold travels as the largest it can (D-13).

What is cut off stays in the residual, where there is one. NaN and infinity stay what they are, so that every rank
undoes the step.
"""

from __future__ import annotations

from ssfx.core.lazy import torch

LARGEST = 65504.0
"""The largest finite float16."""
CUT = LARGEST * (1 - 2**-10)
"""What a larger value is cut to: one step below, so that sums of rounded shares stay finite, too."""


def narrow(values: torch.Tensor, exact: torch.Tensor, ranks: int = 1) -> None:
    """Write float32 `exact` into `values` of any float dtype; for float16, magnitudes beyond LARGEST / `ranks` are cut.

    `ranks`: how many ranks' values are added on the way, if `exact` is a share of each. Overwrites nothing else.
    """
    values.copy_(exact)
    if values.dtype != torch.float16:
        return
    beyond = exact.abs() > LARGEST / ranks
    if exact.device.type == "cpu" and not bool(beyond.any()):
        return
    cut = exact.sign().mul_(CUT / ranks)
    values.copy_(torch.where(beyond & torch.isfinite(exact), cut, values.to(exact.dtype)))
