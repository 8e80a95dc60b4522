"""Sums of 16-bit messages, on real ranks and on virtual ones, and the error that a rounding may have."""

from __future__ import annotations

from typing import Any

import torch

import ssfx
from ssfx.collectives import Reducer, Reduction, collectives
from ssfx.collectives.comm import Comm
from ssfx.collectives.torch_comm import TorchComm
from ssfx.compressors import build

DIGITS = {"bf16": 8, "fp16": 11}
"""Binary digits, the leading one included."""
LEAST = {"bf16": -125, "fp16": -13}
"""Exponent below which numbers have fewer."""


def gradient(rank: int, numel: int, scale: float = 1.0) -> torch.Tensor:
    """Return a rank's gradient: magnitudes over many powers of two, none below what float16 holds in full."""
    drawn = torch.Generator().manual_seed(rank)
    sizes = 2 ** (6 * torch.rand(numel, generator=drawn) - 4)
    return scale * torch.randn(numel, generator=drawn).sign() * sizes


def half_unit(exact: torch.Tensor, compressor: str) -> torch.Tensor:
    """Return half a unit in the last place that each element has in 16 bits."""
    exponent = torch.frexp(exact).exponent.clamp(min=LEAST[compressor])
    return torch.ldexp(torch.ones_like(exact), exponent - DIGITS[compressor] - 1)


def averaged(comm: Comm, spec: str, compressor: str, numel: int, scale: float) -> torch.Tensor:
    reducer = collectives.build(spec)
    assert isinstance(reducer, Reducer)
    work = Reduction(gradient(comm.rank, numel, scale), numel, compressor=build(compressor), keeps=False)
    return reducer.reduce(work, comm).values / comm.world_size


def summed(group: Any, rank: int, world: int, spec: str, compressor: str, numel: int) -> torch.Tensor:
    return averaged(TorchComm(group), spec, compressor, numel, 1.0)


def on_virtual_ranks(world: int, spec: str, compressor: str, numel: int, *, scale: float = 1.0) -> list[torch.Tensor]:
    """Return the averages that so many virtual ranks get."""
    return ssfx.virtual_ranks(lambda _, comm: averaged(comm, spec, compressor, numel, scale), world)
