"""Why a step was undone: which gradient of this rank is not finite."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def is_round(count: int) -> bool:
    """Return whether `count` is 1, 10, 100 and so on: how often a repeated event is worth a line."""
    return str(count).rstrip("0") == "1"


def why_not_finite(params: Mapping[str, torch.nn.Parameter]) -> str:
    """Return which of this rank's gradients has numbers that are not finite; "" if none has."""
    for name, param in params.items():
        grad = param.grad
        if grad is None:
            continue
        finite = int(torch.isfinite(grad).sum())
        if finite < grad.numel():
            return f"{grad.numel() - finite} of {grad.numel()} numbers in the gradient of {name} are NaN or infinite"
    return ""
