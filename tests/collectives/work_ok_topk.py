"""What the pool's ranks run to look inside Ok-Topk: the steps of work_reducers, with what its stages returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from runtime.ranks import comm_of

from ssfx.collectives import Reduction, Traffic
from ssfx.collectives.comm import Comm
from ssfx.collectives.ok_topk import Entries, OkTopk, OkTopkOptions
from ssfx.collectives.reducer import State


@dataclass
class Seen:
    """One step on one rank: what was selected, sent for the split, summed, held after balancing, and the outcome."""

    selected: list[int] = field(default_factory=list)
    split_bytes: int = 0
    region: dict[int, float] = field(default_factory=dict)
    balanced: int | None = None
    sum: list[float] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)


class Watched(OkTopk):
    """Ok-Topk that notes in `seen` what its stages return."""

    def __init__(self, options: OkTopkOptions) -> None:
        super().__init__(options)
        self.seen = Seen()

    def select(self, work: Reduction, evaluates: bool) -> torch.Tensor:
        chosen = super().select(work, evaluates)
        self.seen.selected = chosen.tolist()
        return chosen

    def sum_region(self, chosen: torch.Tensor, work: Reduction, comm: Comm) -> tuple[torch.Tensor | None, int, Traffic]:
        before = comm.sent.sent_bytes
        region, most, used = super().sum_region(chosen, work, comm)
        self.seen.split_bytes = comm.sent.sent_bytes - before - 8 * (comm.world_size - 1)
        if region is not None:
            first = int(work.state["boundaries"][comm.rank])
            self.seen.region = {first + i: value for i, value in enumerate(region.tolist()) if value}
        return region, most, used

    def balance(self, own: Entries, moves: list[list[int]], comm: Comm) -> torch.Tensor:
        message = super().balance(own, moves, comm)
        self.seen.balanced = message.numel() // 2
        return message


def watch(
    group: Any, rank: int, world: int, options: dict[str, Any], grads: list[list[list[float]]], kept: int
) -> list[Seen]:
    """Feed grads[step][rank] through Ok-Topk with plain error feedback."""
    reducer, comm = Watched(OkTopkOptions(**options)), comm_of(group)
    numel = len(grads[0][0])
    state: State = reducer.initial_state(numel, world)
    vector, reports = torch.zeros(numel), []
    for rows in grads:
        vector = vector + torch.tensor(rows[rank], dtype=torch.float32)
        reducer.seen = Seen()
        before = comm.sent
        reduced = reducer.reduce(Reduction(vector, kept, state=state), comm)
        counted = Traffic(comm.sent.messages - before.messages, comm.sent.sent_bytes - before.sent_bytes)
        assert reduced.traffic == counted
        assert reduced.indices is not None
        total = torch.zeros(numel)
        total[reduced.indices] = reduced.values
        seen = reducer.seen
        seen.sum, seen.indices, seen.residual = total.tolist(), reduced.indices.tolist(), vector.tolist()
        seen.state = {name: value.tolist() for name, value in state.items()}
        reports.append(seen)
    return reports
