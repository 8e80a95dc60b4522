"""Tallies of what networks put out: classes and next tokens. Torch tensors in, sums out."""

from torch import Tensor
from torch.nn import functional

from ssfx.lab.workloads.metrics.tally import Tally


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
