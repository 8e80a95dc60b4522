"""Translations that a network writes by itself, one most likely token after the other."""

import torch
from torch import Tensor, nn

from ssfx.lab.workloads.objective import logits


def greedy(model: nn.Module, sources: Tensor, *, begin: int, end: int, padding: int) -> Tensor:
    """Return translations [N, T] of sources [N, T], int64, each the most likely token given those before it.

    A translation ends with `end`, followed by `padding`, or after T tokens. The model is asked as in training: it takes
    [N, 2, T], of which the second row begins with `begin`, and gives the logits of the next tokens [N, T, vocabulary];
    so a translation of n tokens takes n passes over the whole sentence.
    """
    number, length = sources.shape
    written = torch.full((number, length + 1), padding, device=sources.device)
    written[:, 0] = begin
    open_ = torch.ones(number, dtype=torch.bool, device=sources.device)
    for at in range(length):
        scores = logits(model, torch.stack((sources, written[:, :-1]), dim=1))[:, at]
        written[open_, at + 1] = scores[open_].argmax(-1)
        open_ &= written[:, at + 1] != end
        if not bool(open_.any()):
            break
    return written[:, 1:]
