"""The gather of one group's weights in fewer bits: every rank sends its shards compressed, and decodes all ranks'.

A rank decodes what it sent itself, too, so that whole weights are equal on all ranks bit for bit; the sharded weights
that the optimizer steps stay exact. Weights are compressed, not what changed of them since the last gather: for that
every rank had to keep the last whole weights, which sharding is to save.
Source: QSDP (Markov et al. 2023) and the weights of ZeRO++ (Wang et al. 2023).
"""

from collections.abc import Callable

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import Compressor, Context, build
from ssfx.compressors.batch import Batch, Part, compress
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message_layout import MessageLayout
from ssfx.sharded.places import places_of, runs_of
from ssfx.sharded.torch_fsdp import ShardGroup
from ssfx.simulator.pricing.shard_messages import is_native, row_bytes

_ALONE = 1
"""Ranks that a message is summed over: casts divide by it."""


class WeightGather:
    """The gather of one group by a lane of `plan`, whose tensors are all its shards, by `comm.world_size` ranks.

    Memory is taken for a call and given back: gathers may be under way in several streams.
    """

    def __init__(self, group: ShardGroup, lane: Lane, plan: Plan, comm: Comm, seed: int) -> None:
        self._native, self._comm, self._seed = is_native(lane), comm, seed
        if self._native:
            return
        self._layout, self._row_bytes = MessageLayout(lane, plan), row_bytes(plan, lane)
        places, ids = places_of(group.whole_shapes), {name: i for i, name in enumerate(sorted(plan.by_name))}
        (spec,) = {segment.compressor for segment in lane.segments if segment.compressor is not None}
        self._compressor: Compressor = build(spec)
        self._parts: dict[int, Part] = {}
        self._runs: dict[int, list[tuple[int, int]]] = {}
        self._plain: list[tuple[int, int]] = []
        self._numel = 0
        for i in self._layout.order:
            tensors = lane.segments[i].tensors
            runs = runs_of([places[name] for name in tensors])
            if lane.segments[i].dense:
                self._plain += runs
                continue
            lo, self._numel = self._numel, self._numel + self._layout.numel[i]
            self._runs[i] = runs
            self._parts[i] = Part(
                lo, self._numel, self._layout.layouts[i], lane.segments[i].density, ids[tensors[0]],
                self._layout.starts[i], ((lo, self._numel),), tuple(plan.by_name[name].shape for name in tensors),
            )  # fmt: skip

    def gather(self, output: torch.Tensor, inputs: torch.Tensor, natively: Callable[[], None], step: int) -> None:
        """Fill `output`, the shards of all ranks, from `inputs`, this rank's, which are a part of it.

        What is random about it depends on `step`, the number of steps so far, so that a step gathers the same twice.
        """
        if self._native:
            self._comm.count("all_gather", inputs)
            natively()
            return
        vector = torch.empty(self._numel, dtype=torch.float32, device=inputs.device)
        message = torch.zeros(self._row_bytes, dtype=torch.uint8, device=inputs.device)
        for i, part in self._parts.items():
            _move(inputs, self._runs[i], vector[part.lo : part.hi], out=True)
        batch = Batch(tuple(self._parts.values()), self._layout.sections(message), {"accumulated": vector})
        batch.seed, batch.step, batch.rank, batch.world_size = self._seed, step, self._comm.rank, _ALONE
        compress(self._compressor, batch)
        if self._plain:
            _move(inputs, self._plain, self._layout.dense.of(message), out=True)
        received = self._comm.all_gather(message).wait()
        for rank, (row, shards) in enumerate(zip(received, output.view(len(received), -1), strict=True)):
            self._decode(row, rank, step, vector.zero_())
            for i, part in self._parts.items():
                _move(shards, self._runs[i], vector[part.lo : part.hi], out=False)
            if self._plain:
                _move(shards, self._plain, self._layout.dense.of(row), out=False)

    def _decode(self, row: torch.Tensor, rank: int, step: int, out: torch.Tensor) -> None:
        for i, part in self._parts.items():
            ctx = Context(step, part.tensor_id, rank, _ALONE, part.density, self._seed, part.shapes)
            self._compressor.decompress_add(self._layout.payload(row, i), out[part.lo : part.hi], ctx)


def _move(shards: torch.Tensor, runs: list[tuple[int, int]], packed: torch.Tensor, *, out: bool) -> None:
    """Copy runs of a rank's shards one after the other into `packed`, or from there into their places."""
    at = 0
    for lo, hi in runs:
        mine, theirs = shards[lo:hi], packed[at : at + hi - lo]
        (theirs if out else mine).copy_(mine if out else theirs)
        at += hi - lo
