"""The training objective of all models here: cross-entropy of the logits in a model's last dimension."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional


def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the model's logits; transformers wrap them in an output object."""
    out = model(inputs)
    found: Tensor = out if isinstance(out, Tensor) else out.logits
    return found


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all targets as a float32 scalar; logits are [*targets.shape, classes]."""
    out = logits(model, inputs)
    return functional.cross_entropy(out.flatten(end_dim=-2).float(), targets.flatten())


@contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """Put the model in evaluation mode without gradients for the block and give its device; restore the mode after."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield next(model.parameters()).device
    finally:
        model.train(training)
