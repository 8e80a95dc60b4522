"""Data sets of the papers by name alone: runs with them can be planned and simulated; nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ssfx.core.component_spec import NoOptions
from ssfx.core.errors import RunError
from ssfx.workloads.base import Dataset, datasets

if TYPE_CHECKING:
    from torch import nn


class KnownByName(Dataset):
    """A data set without data; every method is a RunError."""

    here = False

    def __init__(self, options: NoOptions = NoOptions()) -> None:  # noqa: B008 (frozen)
        self.options = options

    def fingerprint(self) -> NoReturn:
        """Refuse."""
        raise RunError(f"data set {self.name} is known by name only: it can be simulated with, not trained on")

    def train_loader(self, rank: int, world_size: int, batch_size: int, seed: int) -> NoReturn:
        """Refuse."""
        self.fingerprint()

    def tally(self, model: nn.Module, rank: int, world_size: int) -> NoReturn:
        """Refuse."""
        self.fingerprint()


def _known(name: str, title: str, inputs: str, source: str) -> None:
    attributes = {
        "source": source,
        "name": name,
        "summary": f"{title}, by name only: to simulate with",
        "inputs": inputs,
    }
    datasets.register()(type(name, (KnownByName,), attributes))


_known("imagenet", "ImageNet-1k", "RGB images 3x224x224 of 1000 classes", "Russakovsky et al. 2015")
_known("cifar10", "CIFAR-10", "RGB images 3x32x32 of 10 classes", "Krizhevsky 2009")
_known("cifar100", "CIFAR-100", "RGB images 3x32x32 of 100 classes", "Krizhevsky 2009")
_known("squad", "SQuAD 1.1", "tokens of a question and a context, with the answer's span", "Rajpurkar et al. 2016")
_known("wikitext2", "WikiText-2", "WikiText-2 words", "Merity et al. 2016")
_known(
    "wikitext2_powersgd", "WikiText-2 for PowerSGD", "WikiText-2 words of PowerSGD's vocabulary", "Merity et al. 2016"
)
_known("wikitext103", "WikiText-103 in GPT-2's tokens", "GPT-2 tokens", "Merity et al. 2016")
_known("wikitext103_bloom", "WikiText-103 in BLOOM's tokens", "BLOOM tokens", "Merity et al. 2016")
_known("pretraining", "pairs of sentences for BERT", "tokens of two sentences, some masked", "Devlin et al. 2019")
