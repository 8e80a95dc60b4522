"""What ranks of the pool do: parts of the first hour on a GPU, on the CPU at small sizes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import torch

from ssfx.collectives.torch_comm import TorchComm
from ssfx.lab.calibration import gpu_parts
from ssfx.lab.calibration.gpu_parts import PARTS, Sizes

SMALL = Sizes(
    segments=(5000, 40, 1), widths=(16, 40, 8), compressors=("topk", "signsgd"), max_numel=2**10,
    models=("resnet_tiny",), precisions=("fp32", "bf16"), batch_size=2, iterations=2, mib=1,
)  # fmt: skip


def part(group: Any, rank: int, world: int, name: str) -> dict[str, Any]:
    return asdict(PARTS[name].do(TorchComm(group), SMALL))


def schemes_with_drift(group: Any, rank: int, world: int) -> dict[str, Any]:
    """Compare schemes of which rank 1 ends with another last bit."""
    trained = gpu_parts._trained

    def drifting(*arguments: Any) -> torch.Tensor:
        weights = trained(*arguments)
        return weights.nextafter(weights + 1) if rank == 1 else weights

    with patch.object(gpu_parts, "_trained", drifting):
        return asdict(PARTS["schemes"].do(TorchComm(group), SMALL))
