"""What the pool's ranks run to look inside SparCML: every stream that a rank sends or adds up, and its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from collectives import work_reducers
from collectives.work_reducers import Step

from ssfx.collectives.comm import Comm, Pending
from ssfx.collectives.sparcml import Post, Stream
from ssfx.collectives.torch_comm import TorchComm

UNTOUCHED = -123_456_789


@dataclass
class Seen:
    """On one rank: each sum it made and each stream it sent by receiver, in words; the bytes of plain values."""

    sums: list[str] = field(default_factory=list)
    sent: list[dict[int, str]] = field(default_factory=list)
    values_bytes: list[int] = field(default_factory=list)


def form(stream: Stream) -> str:
    return "dense" if stream.indices is None else f"sparse:{len(stream.indices)}"


def watched(
    group: Any, rank: int, world: int, name: str, acc: list[list[float]], kept: int
) -> tuple[Step, Seen, list[int]]:
    """Run one step; besides, return what the rank had selected."""
    seen = Seen()
    plus, swap, values = Stream.plus, Post.swap, Post.swap_values

    def seen_plus(self: Stream, other: Stream) -> Stream:
        total = plus(self, other)
        seen.sums.append(form(total))
        return total

    def seen_swap(self: Post, sends: Mapping[int, Stream], receives: Mapping[int, int]) -> dict[int, Stream]:
        if sends:
            seen.sent.append({to: form(stream) for to, stream in sends.items()})
        return swap(self, sends, receives)

    def seen_values(self: Post, to: int, own: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.values_bytes.append(4 * own.numel())
        return values(self, to, own, *rest)

    with (
        patch.object(Stream, "plus", seen_plus),
        patch.object(Post, "swap", seen_swap),
        patch.object(Post, "swap_values", seen_values),
    ):
        (step,) = work_reducers.steps(group, rank, world, name, [acc], kept)
    selected = (torch.tensor(acc[rank]) != step.residual).nonzero().view(-1).tolist()
    return step, seen, selected


def counts_first(
    group: Any, rank: int, world: int, name: str, grads: list[list[list[float]]], kept: int
) -> tuple[list[Step], int]:
    """Run as on a transport that must know lengths: no message may be shorter than the room for it."""
    swap, too_long = Comm.swap, 0

    def exact(self: Comm, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending:
        nonlocal too_long
        copies = {peer: torch.full_like(room, UNTOUCHED) for peer, room in receives.items()}
        pending = swap(self, sends, copies)
        pending.wait()
        for peer, room in receives.items():
            if room.dtype == torch.int32:
                too_long += int((copies[peer] == UNTOUCHED).sum())
            room.copy_(copies[peer])
        return Pending(None, torch.empty(0))

    with patch.object(TorchComm, "takes_shorter", new=False), patch.object(Comm, "swap", exact):
        return work_reducers.steps(group, rank, world, name, grads, kept), too_long
