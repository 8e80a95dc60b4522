"""Residuals, as `torch.distributed.checkpoint` saves them: for any mesh, and for either leg.

What ranks keep of a parameter is one tensor of its shape, sharded as the parameter: the part of the average that was
not applied yet. A rank that loads it keeps so much that averages to the same for any numbers of ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ssfx.core.errors import ConfigError
from ssfx.runtime.store import Store
from ssfx.sharded.legs import Leg, sent_to
from ssfx.sharded.torch_fsdp import local_shard

RESIDUAL = "residual"


@dataclass(frozen=True)
class Resharded:
    """`stores` are the legs and what they keep; `load(step)` is called once the stores hold what was loaded.

    `torch.distributed.checkpoint.save({"ssfx": this})` and `load` call it on all ranks. What compressors know by
    themselves, such as factors, is not in it.
    """

    stores: list[tuple[Leg, Store]]
    step: Callable[[], int]
    load: Callable[[int], None]

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps, and by parameter what is kept; every rank calls it.

        Added up in float64 and rounded to float32 once; a second time changes nothing.
        """
        with torch.no_grad():
            return {"step": self.step(), "kept_back": {name: self._kept(name) for name in self._sharded()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep what `state` says, from the next step on; ConfigError if no leg has a residual memory.

        Ranks that share a shard all keep the whole of it between replicas. Between shards each rank keeps its shard's,
        as many times as there are shards, because sums are divided by that.
        """
        keeping = [(leg, store) for leg, store in self.stores if leg.memory is not None and leg.memory.stateful]
        if not keeping:
            raise ConfigError(
                "the saved residuals would be lost: this exchange has none; use memory=residual, or leave ssfx "
                "out of the checkpoint that is loaded"
            )
        leg, store = keeping[0]
        scale = store.loss_scale
        shards = leg.groups[0].shards if leg.of_shards else None
        device = leg.comm.device
        for _, other in self.stores:
            other.load_state_dict({}, device)
        kept = {}
        for name, (shape, _) in self._sharded().items():
            local = local_shard(state["kept_back"][name])
            whole = torch.zeros(shape, dtype=torch.float32, device=device)
            _unpadded(whole, local.shape).copy_(local)
            if shards is None:
                kept[name] = {RESIDUAL: whole.mul_(scale)}
            else:
                kept[sent_to(name, shards.rank())] = {RESIDUAL: whole.mul_(scale * shards.size())}
        store.load_state_dict(kept, device)
        self.load(state["step"])

    def _sharded(self) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        """Return the padded shape and the sharded parameter by name."""
        groups = self.stores[0][0].groups
        return {name: (group.shapes[name], p) for group in groups for name, p in group.parameters()}

    def _kept(self, name: str) -> DTensor:
        shape, parameter = self._sharded()[name]
        device = self.stores[0][0].comm.device
        total = torch.zeros(shape, dtype=torch.float64, device=device)
        for leg, store in reversed(self.stores):  # sums over shards come before sums over replicas
            if leg.memory is not None and leg.memory.stateful:
                total += _everywhere(leg, store, name, shape)
        if len(self.stores) == 2:
            total = self.stores[0][0].comm.all_gather(total.reshape(-1)).wait().mean(0).view(total.shape)
        local = _unpadded(total.float(), local_shard(parameter).shape).contiguous()
        sharded: Any = parameter
        return DTensor.from_local(
            local,
            sharded.device_mesh,
            sharded.placements,
            run_check=False,
            shape=sharded.shape,
            stride=sharded.stride(),
        )


def _everywhere(leg: Leg, store: Store, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the mean over the ranks of a leg of what they keep of this rank's shard, for a loss scale of 1."""
    ranks = leg.comm.world_size
    names = [sent_to(name, rank) for rank in range(ranks)] if leg.of_shards else [name]
    zeros = torch.zeros(shape, dtype=torch.float32, device=leg.comm.device)
    held = [store.get(one, RESIDUAL) for one in names]
    mine = torch.stack([zeros if one is None else one.view(shape) for one in held]).view(len(names), -1)
    received = (leg.comm.all_to_all(mine) if leg.of_shards else leg.comm.all_gather(mine.view(-1))).wait()
    return received.double().sum(0).view(shape) / (ranks * store.loss_scale)


def _unpadded(whole: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the view of the front of `whole` in every dimension."""
    for dimension, size in enumerate(shape):
        whole = whole.narrow(dimension, 0, size)
    return whole
