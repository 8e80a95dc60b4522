"""A small transformer whose sizes do not divide evenly, with a frozen and a tied parameter, wrapped by fully_shard."""

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH, LENGTH = 31, 12, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.checkpointed = False
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.up = nn.Linear(WIDTH, 3 * WIDTH + 1)
        self.down = nn.Linear(3 * WIDTH + 1, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False) if self.checkpointed else self.inner(x)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.tanh(self.up(x)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.norm.bias.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@cache
def mesh_of(replicas: int, shards: int) -> DeviceMesh:
    """Return the mesh, one for all tests: a group has threads of its own, which go on looking for messages."""
    if not replicas:
        return init_device_mesh("cpu", (shards,))
    return init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicas", "shards"))


def build(mesh: DeviceMesh, precision: str = "", frozen: bool = True, **options: Any) -> nn.Module:
    """Return the same weights on every rank, sharded over `mesh`.

    `precision`: "bf16" computes in 16 bits; "bf16 reduced" sums in them, too; "bf16 unsaid" leaves sums to torch;
    "of two dtypes" has gradients of 16 and of 32 bits in a group.
    """
    torch.manual_seed(3)
    model = Transformer()
    model.norm.bias.requires_grad_(not frozen)
    if precision == "bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if precision == "bf16 reduced":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    if precision == "bf16 unsaid":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    if precision == "of two dtypes":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.weight.grad_dtype = torch.bfloat16
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    tokens = torch.randint(WORDS, (4, LENGTH + 1), generator=generator)
    return nn.functional.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def shards_of(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().to_local().clone() for p in model.parameters()]
