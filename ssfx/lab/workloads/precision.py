"""How exactly a GPU multiplies: float32 throughout, or float32 whose products keep ten bits of the mantissa (TF32)."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch

AUTOCAST = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What forward passes compute in, by precision."""


def set_precision(precision: str) -> None:
    """Float32 matrix products and convolutions are exact from now on, or TF32 if `precision` is "tf32".

    Torch's own defaults differ: convolutions in TF32, matrix products exact. A row that says fp32 must mean both.
    """
    fast = precision == "tf32"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    torch.backends.cudnn.allow_tf32 = fast


def forward_in(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Forward passes inside compute in `precision`, by autocast where it has 16 bits."""
    dtype = AUTOCAST[precision]
    return torch.autocast(device.type, dtype=dtype) if dtype != torch.float32 else contextlib.nullcontext()
