"""What the pool's ranks run for compressors of two rounds and with state of their own."""

from __future__ import annotations

from typing import Any

import torch
from runtime.models import batch, loss_of, parameters
from runtime.work import Options, attached, train

from ssfx.simulator.pricing.message_sizes import plan_bytes


def trains(group: Any, rank: int, world: int, options: Options, steps: int) -> dict[str, Any]:
    """Train on one batch per rank; report loss before and after, weights, compressors' state and bytes beyond plan."""
    model, optimizer, sync = attached("mlp", group, world, options, lr=0.05)
    before = loss_of(model, rank, 0).item()
    for _ in range(steps):
        train(model, optimizer, rank, range(1))
    state = {
        f"{name} {buffer}": value
        for name, buffers in sync.store.state_dict().items()
        for buffer, value in buffers.items()
        if buffer.startswith("compressor.")
    }
    report = {
        "before": before,
        "after": loss_of(model, rank, 0).item(),
        "weights": parameters(model),
        "state": state,
        "surplus_bytes": sync.last.contributed_bytes - plan_bytes(sync.plan),
    }
    sync.detach()
    return report


def tensor_in_and_out(group: Any, rank: int, world: int, options: Options) -> dict[str, float]:
    """Let the gradients of one tensor vanish for a few steps on every rank; return its update before and after."""
    model, optimizer, sync = attached("mlp", group, world, options)
    norms = {}
    for step in range(8):
        gone = 2 <= step < 5
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if gone:
            x, _ = batch(rank, step)
            loss = model.last(torch.tanh(model.first(x))[:, :40]).square().mean()  # not through `middle`
        loss.backward()
        grad = model.middle.weight.grad
        norms[f"step {step}"] = 0.0 if grad is None else float(grad.norm())
        optimizer.step()
    sync.detach()
    return norms


def sent_by_step(group: Any, rank: int, world: int, options: Options, steps: int) -> list[int]:
    """Return the bytes that each of the first steps put on the wire."""
    model, optimizer, sync = attached("mlp", group, world, options)
    sent = []
    for step in range(steps):
        train(model, optimizer, rank, range(step, step + 1))
        sent.append(sync.last.sent_bytes)
    sync.detach()
    return sent
