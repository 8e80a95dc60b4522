"""A step that is undone on every rank, because a number that was exchanged is not finite; and why."""

from collections.abc import Mapping

import torch


def undo(
    params: Mapping[str, torch.nn.Parameter], scaler: torch.amp.GradScaler | None, count: int, rank: int
) -> str | None:
    """Let no optimizer step with these gradients; return the reason where it is to be said, the `count`-th time.

    With a GradScaler they become NaN on every rank, so that all of them skip. Without one, no gradient means that the
    optimizer leaves every parameter alone.
    """
    reason = why_not_finite(params) if is_round(count) else ""
    for param in params.values():
        if scaler is None:
            param.grad = None
        elif param.grad is not None:
            param.grad.fill_(float("nan"))
    if reason or (rank == 0 and is_round(count)):
        return reason or "an exchanged number of another rank is not finite"
    return None


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
