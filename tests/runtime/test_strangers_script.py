"""A training script of somebody else's goes from DDP to ssfx by two lines, and computes the same to the bit."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from runtime.pool import Pool
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx

EXACT: list[dict[str, Any]] = [
    {"scheme": "ddp"},
    {"scheme": "per_tensor", "compressor": "topk", "density": 1.0},
    {"scheme": "ssfusion_oi", "compressor": "topk", "density": 1.0},
]


class Net(nn.Module):
    """A model with an embedding, norms, a tied weight and a parameter that some steps do not use."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32))
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens))) * self.scale


def _train(group: Any, rank: int, options: dict[str, Any] | None, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    model: Any = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    bare = model
    if options is None:
        model = sync = DistributedDataParallel(model, process_group=group)
    else:
        sync = ssfx.attach(model, optimizer, process_group=group, **options)
    for step in range(6):
        for micro in range(2):
            tokens = torch.randint(50, (4, 8), generator=torch.Generator().manual_seed(100 * step + 10 * micro + rank))
            local = sync.no_sync() if micro == 0 else nullcontext()
            with local, torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = nn.functional.cross_entropy(model(tokens).view(-1, 50), tokens.view(-1)) / 2
                loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if options is not None:
        sync.detach()
    return torch.cat([p.detach().reshape(-1) for p in bare.parameters()])


def both(group: Any, rank: int, world: int, options: dict[str, Any], dtype: torch.dtype) -> bool:
    """Return whether the parameters after training with DDP and with ssfx are the same bits."""
    return torch.equal(_train(group, rank, None, dtype), _train(group, rank, options, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("options", EXACT, ids=lambda options: options["scheme"])
def test_two_lines_change_and_nothing_else(pool: Pool, options: dict[str, Any], dtype: torch.dtype) -> None:
    assert all(pool.run(both, 2, options, dtype))
