"""The data set that a function of the user's own returns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.own_code import own_code
from ssfx.lab.workloads.declarations import ANY
from ssfx.lab.workloads.on_disk.base import EVALUATION_BATCH, SampledDataset

if TYPE_CHECKING:
    from torch import nn

    from ssfx.lab.workloads.metrics.tally import Tally

SAMPLED = 64
"""Samples that the fingerprint of a data set of unknown nature looks at."""


@dataclass(frozen=True)
class OwnName:
    """Which function."""

    function: str = ""


class OwnDataset(SampledDataset):
    """What the user's `make(train)` returns: samples (input, target) by number, or None where nothing is held out.

    A target that is one number is a class; of any other the mean loss is measured, as perplexity.
    """

    name = "own"
    summary = "a function of yours"
    source = "you"
    inputs = ANY

    def __init__(self, options: OwnName) -> None:
        self.options = options
        self.name = options.function  # type: ignore[misc]

    def samples(self, train: bool) -> Any:
        """Return the training or the held-out samples; ConfigError when the function fails, RunError without any."""
        code = own_code(self.options.function)
        function = code.load()
        try:
            found = function(train)
        except Exception as error:
            raise ConfigError(f"{code.name} fails with train={train}: {type(error).__name__}: {error}") from error
        if found is None:
            raise RunError(f"{code.name} returns nothing for train={train}")
        return found

    def fingerprint(self) -> str:
        """Return the hash of the function's file, of the number of samples, and of some of them."""
        samples = self.samples(train=True)
        found = hashlib.sha256(f"{self.options.function} {len(samples)}".encode())
        for number in range(0, len(samples), max(1, len(samples) // SAMPLED)):
            found.update(repr(samples[number]).encode())
        return found.hexdigest()[:16]

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums of top1, or of perplexity, over every world_size-th held-out sample."""
        from torch.nn import functional
        from torch.utils.data import default_collate

        from ssfx.lab.workloads.objective import evaluating, logits

        samples = self.samples(train=False)
        share = range(rank, len(samples), world_size)
        total: Tally = {}
        with evaluating(model) as device:
            for start in range(0, len(share), EVALUATION_BATCH):
                block = default_collate([samples[number] for number in share[start : start + EVALUATION_BATCH]])
                inputs, targets = (one.to(device) for one in block)
                out = logits(model, inputs).flatten(end_dim=-2).float()
                if targets.ndim == 1:
                    found = {"right1": float((out.argmax(-1) == targets).sum()), "samples": float(len(targets))}
                else:
                    nats = functional.cross_entropy(out, targets.flatten(), reduction="sum")
                    found = {"nats": float(nats), "tokens": float((targets != -100).sum())}
                total = {name: total.get(name, 0.0) + value for name, value in found.items()}
        return total
