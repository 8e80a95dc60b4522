"""PowerSGD: one step of a power iteration per gradient, two small sums instead of one large one."""

from __future__ import annotations

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.lowrank import (
    LowRank,
    LowRankOptions,
    Shapes,
    Split,
    add_plain,
    basis,
    cached_normal,
    revived,
    write_plain,
)
from ssfx.core.lazy import torch
from ssfx.wire.batch import key


@compressors.register(LowRankOptions())
class PowerSGD(LowRank):
    """P = sum of A_w Q over ranks, made orthonormal; then Q = mean of A_w^T P. The update is P Q^T.

    A residual loses its own projection P P^T A_w (convention B), so it stays bounded on every rank. After `compress`
    the payload's first section holds the basis instead of the sum.
    """

    name = "powersgd"
    summary = "rank-r factors by one power iteration, warm start, two all-reduces"
    source = "Vogels et al. 2019; D-26"
    rounds = 2

    def _layout(self, parts: Split) -> Layout:
        return Layout(first=parts.left, values=parts.right + parts.rest)

    def state_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Q of all matrices, with which the next step starts; equal on all ranks."""
        right = self.split(shapes).right
        return {"q": (right,)} if right else {}

    def propose(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write A Q of every matrix."""
        parts = self.split(ctx.shapes)
        fresh = cached_normal(key(ctx.seed, ctx.tensor_id, 0), parts.right, a.device)
        for matrix in parts.matrices:
            q = revived(matrix.q(ctx.state["q"]), matrix.q(fresh))
            torch.mm(matrix.of(a), q, out=matrix.p(payload.first))

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write A^T P of every matrix, P being the basis of what all ranks proposed, and the other tensors."""
        parts = self.split(ctx.shapes)
        for matrix in parts.matrices:
            p = matrix.p(payload.first)
            p.copy_(basis(p))
            torch.mm(matrix.of(a).T, p, out=matrix.q(payload.values))
        write_plain(parts, a, payload.values)

    def received(self, payload: Payload, ctx: Context) -> None:
        """Keep the mean Q for the next step."""
        if "q" in ctx.state:
            q = ctx.state["q"]
            torch.div(payload.values[: q.numel()], ctx.world_size, out=q)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * P Q^T of every matrix and scale * the other tensors."""
        parts = self.split(ctx.shapes)
        for matrix in parts.matrices:
            matrix.of(out).addmm_(matrix.p(payload.first), matrix.q(payload.values).T, alpha=scale)
        add_plain(parts, payload.values, out, scale)
