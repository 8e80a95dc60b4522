"""TernGrad: -1, 0 or 1 times the largest magnitude, right on average."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import quantizers
from ssfx.compressors.quantizer import Quantizer, add_agreed, check_range, code_bytes, proposed
from ssfx.core.lazy import torch


@dataclass(frozen=True)
class TernGradOptions:
    """`clip`: magnitudes are limited to so many standard deviations first; 0 does not limit them.

    `shared`: the largest scale of all ranks is everybody's, so that an all-reduce can add the levels, a byte each.
    """

    clip: float = 2.5
    shared: bool = False

    def __post_init__(self) -> None:
        if self.clip < 0:
            raise ValueError(f"clip must be positive, or 0 for no limit, got {self.clip:g}")


@compressors.register(TernGradOptions())
class TernGrad(Quantizer):
    """Each element is sign(a) * S with probability |a| / S, else 0; S is the largest magnitude (D-25).

    Unbiased for the clipped gradient, with so large a variance that feeding the error back diverges.
    """

    name = "terngrad"
    summary = "ternary stochastic quantisation, two bits per element, unbiased"
    source = "Wen et al. 2017; D-25"
    error_feedback = False

    def __init__(self, options: TernGradOptions) -> None:
        self.options = options
        if options.shared:
            self.additive, self.rounds, self.combine = True, 2, "max"

    def layout(self, numel: int, density: float) -> Layout:
        """One scale and ceil(n / 4) bytes; shared: a scale in the first round, n bytes in the second."""
        if self.options.shared:
            return Layout(first=1 if numel else 0, values=numel, value_dtype="int8")
        return Layout(scales=1 if numel else 0, code_bytes=code_bytes(numel, 2))

    def check_world(self, world_size: int) -> None:
        """The sum of shared levels must fit into a byte."""
        if self.options.shared:
            check_range("terngrad(shared=True)", 1, world_size)

    def propose(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write this rank's scale."""
        quantizers(a.device).largest_kept(a, self.options.clip, payload.first)
        proposed(payload.first)

    def compress_batch(self, batch: Batch) -> None:
        """Write scale and ternary codes of every segment; shared: -1, 0 or 1, clipped at the agreed scale."""
        if self.options.shared:
            quantizers(batch.vector.device).agreed_levels(batch, 1, 0)
        else:
            quantizers(batch.vector.device).ternary(batch, self.options.clip)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * S * (-1, 0 or 1)."""
        if self.options.shared:
            add_agreed(payload, 1, 0, out, scale)
            return
        quantizers(out.device).add_levels(payload, 2, payload.scales * scale, 0, out)
