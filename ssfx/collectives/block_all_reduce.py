"""Block all-reduce: a dense all-reduce without the blocks that are zero on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ssfx.collectives.base import Collective, Load, Phase, collectives
from ssfx.collectives.primitives import Traffic, traffic
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm, Pending


@dataclass(frozen=True)
class BlockAllReduceOptions(Bounded):
    """A message is cut into blocks of `block` elements.

    `filled`: the share of blocks that are expected not to be zero on some rank; it decides predicted times, nothing
    else.
    """

    block: Annotated[int, 1] = 256
    filled: Annotated[float, "(0, 1]"] = 1.0


@collectives.register(BlockAllReduceOptions())
class BlockAllReduce(Collective):
    """First the ranks agree on a bitmap of the blocks that are not zero everywhere, then they sum those blocks.

    The result is the dense sum, NaN and infinities included. It is what OmniReduce's aggregators compute (D-36).
    """

    name = "block_all_reduce"
    summary = "dense all-reduce of the blocks that are not zero on every rank, after one of their bitmap"
    source = "Fei et al. 2021 (OmniReduce); D-36"
    additive_only = True
    blocking = True
    options: BlockAllReduceOptions

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Agree on the blocks of `message` (flat, any floating dtype), then issue their in-place sum."""
        block = self.options.block
        whole = message.numel() // block
        body, rest = message[: whole * block].view(whole, block), message[whole * block :]
        bitmap = (body != 0).any(1)  # NaN differs from zero, so it travels
        if rest.numel():
            bitmap = torch.cat([bitmap, (rest != 0).any(0, keepdim=True)])
        bitmap = bitmap.to(torch.uint8)  # backends without bitwise reductions have a maximum
        union = comm.all_reduce(bitmap, op="max").wait().nonzero().view(-1)
        if union.numel() == bitmap.numel():
            return comm.all_reduce(message)
        chosen = union[union < whole]
        ends_short = chosen.numel() < union.numel()
        inside = chosen.numel() * block
        values = torch.cat([body[chosen].view(-1), rest] if ends_short else [body[chosen].view(-1)])
        pending = comm.all_reduce(values)

        def put_back(total: torch.Tensor) -> torch.Tensor:
            body[chosen] = total[:inside].view(-1, block)
            if ends_short:
                rest.copy_(total[inside:])
            return message

        pending.finish = put_back
        return pending

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the bitmap's maximum and the blocks' sum."""
        blocks = -(-load.numel // self.options.block)
        return Phase("all_reduce", blocks), Phase("all_reduce", self.options.filled * load.nbytes)

    def sent(self, numel: int, item_bytes: int, summed: int, world_size: int, rank: int) -> Traffic:
        """Return what `rank` sends for a message of `numel` elements; `summed` of them lie in the union."""
        bitmap = traffic("all_reduce", -(-numel // self.options.block), world_size, rank)
        return bitmap + traffic("all_reduce", item_bytes * summed, world_size, rank, item_bytes)
