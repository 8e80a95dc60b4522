"""What ranks tell each other beside the exchange of gradients: any object, over a Comm of tensors on the CPU."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from ssfx.collectives.comm import Comm


def gathered(comm: Comm | None, own: Any) -> list[Any]:
    """Return the objects of all ranks, by rank; None for `comm`: this is the only one."""
    if comm is None:
        return [own]
    text = torch.frombuffer(bytearray(pickle.dumps(own)), dtype=torch.uint8)
    sizes = comm.all_gather(torch.tensor([text.numel()])).wait().flatten().tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: text.numel()] = text
    rows = comm.all_gather(padded).wait()
    return [pickle.loads(bytes(row[:size].tolist())) for row, size in zip(rows, sizes, strict=True)]


def agreed(comm: Comm | None, own: Any) -> Any:
    """Return what rank 0 has."""
    return gathered(comm, own)[0]


def summed(comm: Comm | None, tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` summed over ranks, in place."""
    return tensor if comm is None else comm.all_reduce(tensor).wait()


def together(comm: Comm | None) -> None:
    """Return once all ranks are here."""
    summed(comm, torch.zeros(1))
