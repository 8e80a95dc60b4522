"""ACP-SGD: the two factors of PowerSGD take turns, so that a step has one sum and half the work."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.lowrank import (
    LowRank,
    LowRankOptions,
    Matrix,
    Shapes,
    Split,
    add_plain,
    basis,
    cached_normal,
    normal,
    revived,
    write_plain,
)
from ssfx.core.lazy import torch
from ssfx.wire.batch import key


@dataclass(frozen=True)
class ACPSGDOptions(LowRankOptions):
    """As of every low-rank compressor; without `warm_start` every step starts from a new random basis.

    That is what the paper's Fig. 7 takes away to show what the previous step's factor is good for.
    """

    warm_start: bool = True


@compressors.register(ACPSGDOptions())
class ACPSGD(LowRank):
    """Even steps: Q is made orthonormal and P = mean of A_w Q is sent; odd steps: the other way round.

    The payload holds the other tensors, then the factor; it has room for the larger one. State p and q, equal on all
    ranks: one is the basis of the latest step, the other what it received.
    """

    name = "acpsgd"
    summary = "rank-r factors sent in turns: one all-reduce, half of PowerSGD's work"
    source = "Zhang et al. 2023 (ACP-SGD), Algorithm 2; D-26"

    options: ACPSGDOptions

    def _layout(self, parts: Split) -> Layout:
        return Layout(values=max(parts.left, parts.right) + parts.rest)

    def cycle(self, shapes: Shapes) -> tuple[int, ...]:
        """Even steps send P, odd ones Q, both with the other tensors."""
        parts = self.split(shapes)
        return parts.rest + parts.left, parts.rest + parts.right

    def state_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """P and Q of all matrices."""
        parts = self.split(shapes)
        return {"p": (parts.left,), "q": (parts.right,)} if parts.matrices else {}

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write A Q or A^T P of every matrix and the other tensors; the basis is left in the state."""
        parts = self.split(ctx.shapes)
        values = payload.values[parts.rest :]
        sends_p = ctx.step % 2 == 0
        if parts.matrices:
            held = ctx.state["q" if sends_p else "p"]
            if self.options.warm_start:
                fresh = cached_normal(key(ctx.seed, ctx.tensor_id, ctx.step % 2), held.numel(), a.device)
            else:
                fresh = normal(key(ctx.seed, ctx.tensor_id, ctx.step), held.numel(), a.device)
            for matrix in parts.matrices:
                kept = _held(matrix, held, sends_p)
                new = _held(matrix, fresh, sends_p)
                kept.copy_(basis(revived(kept, new) if self.options.warm_start else new))
                wide = matrix.of(a) if sends_p else matrix.of(a).T
                torch.mm(wide, kept, out=_sent(matrix, values, sends_p))
            values[parts.left if sends_p else parts.right :].zero_()
        write_plain(parts, a, payload.values[: parts.rest])

    def received(self, payload: Payload, ctx: Context) -> None:
        """Keep the mean factor for the next step."""
        if ctx.state:
            factor = ctx.state["p" if ctx.step % 2 == 0 else "q"]
            rest = self.split(ctx.shapes).rest
            torch.div(payload.values[rest : rest + factor.numel()], ctx.world_size, out=factor)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * P Q^T of every matrix and scale * the other tensors."""
        parts = self.split(ctx.shapes)
        values, sends_p = payload.values[parts.rest :], ctx.step % 2 == 0
        for matrix in parts.matrices:
            kept = _held(matrix, ctx.state["q" if sends_p else "p"], sends_p)
            factor = _sent(matrix, values, sends_p)
            p, q = (factor, kept) if sends_p else (kept, factor)
            matrix.of(out).addmm_(p, q.T, alpha=scale)
        add_plain(parts, payload.values[: parts.rest], out, scale)


def _held(matrix: Matrix, factors: torch.Tensor, sends_p: bool) -> torch.Tensor:
    return matrix.q(factors) if sends_p else matrix.p(factors)


def _sent(matrix: Matrix, factors: torch.Tensor, sends_p: bool) -> torch.Tensor:
    return matrix.p(factors) if sends_p else matrix.q(factors)
