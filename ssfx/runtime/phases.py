"""Phases of a training step, observed from outside the training loop by four hooks that cost microseconds a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def observe_phases(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, set_phase: Callable[[str], None]
) -> list[Any]:
    """Call `set_phase` with forward, backward, exchange and step as training reaches them; return the hooks' handles.

    Register after the gradient exchange. The exchange phase begins with the gradient of the first parameter, which
    backward reaches last: what follows is the rest of the compression and the wait for the exchange.
    """
    handles: list[Any] = [
        model.register_forward_pre_hook(lambda *_: set_phase("forward")),
        model.register_forward_hook(lambda *_: set_phase("backward")),
        optimizer.register_step_pre_hook(lambda *_: set_phase("step")),
    ]
    first = next((p for p in model.parameters() if p.requires_grad), None)
    if first is not None:
        handles.append(first.register_post_accumulate_grad_hook(lambda _: set_phase("exchange")))
    return handles
