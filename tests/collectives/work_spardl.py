"""What the pool's ranks run to look inside SparDL: the lists that a rank sends, selects and adds up, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from collectives import work_reducers
from collectives.work_reducers import Step

from ssfx.collectives import spar_reduce_scatter
from ssfx.collectives.records import Entries, Records

Listed = dict[int, float]


@dataclass
class Seen:
    """On one rank: (receiver, its lists) of every message, every selection, and how many entries teams had together."""

    messages: list[tuple[int, list[Listed]]] = field(default_factory=list)
    selections: list[Listed] = field(default_factory=list)
    found: list[int] = field(default_factory=list)


def watched(
    group: Any, rank: int, world: int, spec: str, grads: list[list[list[float]]], kept: int, shares: list[Any] | None
) -> tuple[list[Step], Seen]:
    """Run some steps; shares[rank] is what the rank brings to a gather across teams."""
    seen = Seen()
    swap, take, combine = Records.swap, spar_reduce_scatter.take_largest, spar_reduce_scatter._combined

    def seen_swap(self: Records, to: int, leaving: list[Entries], *rest: Any) -> list[Entries]:
        seen.messages.append((to, [listed(entries) for entries in leaving]))
        return swap(self, to, leaving, *rest)

    def seen_take(vector: torch.Tensor, k: int) -> Entries:
        entries = take(vector, k)
        seen.selections.append(listed(entries))
        return entries

    def seen_combine(*given: Any) -> Any:
        result = combine(*given)
        seen.found.append(result[2])
        return result

    state = {"share": [shares[rank], 1, 0]} if shares else None
    with (
        patch.object(Records, "swap", seen_swap),
        patch.object(spar_reduce_scatter, "take_largest", seen_take),
        patch.object(spar_reduce_scatter, "_combined", seen_combine),
    ):
        return work_reducers.steps(group, rank, world, spec, grads, kept, state=state), seen


def listed(entries: Entries) -> Listed:
    """Return entries as a dictionary."""
    return dict(zip(entries[0].tolist(), entries[1].tolist(), strict=True))
