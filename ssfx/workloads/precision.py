"""How exactly a GPU multiplies: float32 throughout, or float32 whose products keep ten bits of the mantissa (TF32)."""

from __future__ import annotations

import torch


def set_precision(precision: str) -> None:
    """Float32 matrix products and convolutions are exact from now on, or TF32 if `precision` is "tf32".

    Torch's own defaults differ: convolutions in TF32, matrix products exact. A row that says fp32 must mean both.
    """
    fast = precision == "tf32"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    torch.backends.cudnn.allow_tf32 = fast
