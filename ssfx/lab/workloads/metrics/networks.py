"""Tallies of what networks put out: classes and next tokens. Torch tensors in, sums out."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssfx.lab.workloads.metrics.tally import Tally
from ssfx.lab.workloads.objective import logits


def classes_tally(logits: Tensor, labels: Tensor) -> Tally:
    """Return how many labels [N] are first, or among the first five, of the logits [N, classes].

    With five classes or fewer there is no top-5 to speak of, and its sum is left out.
    """
    best = logits.topk(min(5, logits.shape[-1]), dim=-1).indices
    right = best == labels[:, None]
    tally = {"right1": float(right[:, 0].sum()), "samples": float(len(labels))}
    return tally | ({"right5": float(right.any(-1).sum())} if logits.shape[-1] > 5 else {})


def tokens_tally(logits: Tensor, targets: Tensor, words: float) -> Tally:
    """Return the negative log-likelihood in nats of the targets [N, T] under logits [N, T, vocabulary].

    `words` is how many words the targets make up: the likelihood of a text is that of its words too.
    """
    nats = functional.cross_entropy(logits.flatten(end_dim=-2).float(), targets.flatten(), reduction="sum")
    return {"nats": float(nats), "tokens": float(targets.numel()), "words": words}


# ---- translations ---------------------------------------------------------------------------------------------------


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
