"""What reducers share: pairs of index and value on the wire, and counts that tell every rank about a bad one.

Indices travel as integers, never as floats (float32 is exact only up to 2^24). Source: D-28.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.primitives import Traffic
from ssfx.collectives.reducer import Reduced
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm
    from ssfx.collectives.reducer import Reduced

PAIR_BYTES = 8
COUNT_BYTES = 8
BAD = -1
"""A count of this value says that the rank's vector was not finite."""


def pack(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return int32 [2 m]: m indices, then the m float32 values bit by bit."""
    return torch.cat([indices.to(torch.int32), values.view(torch.int32)])


def unpack(message: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the int64 indices and the float32 values of a packed message."""
    half = message.numel() // 2
    return message[:half].long(), message[half:].view(torch.float32)


def gather_counts(comm: Comm, count: int, bad: bool) -> list[int] | None:
    """Return the counts of all ranks, or None on all of them if one is bad; one all-gather of 8 bytes."""
    own = torch.tensor([BAD if bad else count], dtype=torch.int64, device=comm.device)
    counts: list[int] = comm.all_gather(own).wait().view(-1).tolist()
    return None if BAD in counts else counts


def gather_padded(comm: Comm, part: torch.Tensor, counts: list[int]) -> list[torch.Tensor]:
    """Return the parts of all ranks, of which rank r's has counts[r] entries; one all-gather of the longest size."""
    longest = max(counts)
    padded = torch.zeros(longest, dtype=part.dtype, device=part.device)
    padded[: part.numel()] = part
    rows = comm.all_gather(padded).wait()
    return [row[:count] for row, count in zip(rows, counts, strict=True)]


def poisoned(vector: torch.Tensor, traffic: Traffic) -> Reduced:
    """Return the result that makes every rank undo the step."""
    nothing = torch.zeros(1, dtype=torch.int64, device=vector.device)
    return Reduced(torch.full((1,), float("nan"), dtype=torch.float32, device=vector.device), nothing, 0, traffic)
