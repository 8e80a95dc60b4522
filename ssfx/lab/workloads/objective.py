"""The training objective: cross-entropy of the logits in a model's last dimension, or the model's own loss."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssfx.core.errors import RunError


def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the model's logits; transformers wrap them in an output object.

    Those of a reader are [N, 2, T]: where the answer starts, then where it ends.
    """
    out = model(inputs)
    if isinstance(out, Tensor):
        return out
    if "start_logits" in out:
        return torch.stack((out.start_logits, out.end_logits), dim=1)
    found: Tensor = out.logits
    return found


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all targets as a float32 scalar; logits are [*targets.shape, classes].

    Targets of -100 do not count. A model with a method `training_loss(inputs, targets)` decides for itself.
    """
    if own := getattr(model, "training_loss", None):
        loss: Tensor = own(inputs, targets)
        return loss.float()
    out = logits(model, inputs)
    try:
        return functional.cross_entropy(out.flatten(end_dim=-2).float(), targets.flatten())
    except IndexError:
        raise RunError(f"a target is {int(targets.max())}, and the model has {out.shape[-1]} outputs") from None


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
