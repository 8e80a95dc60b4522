"""Random samples of the right shapes for any model: what throughput needs and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.errors import RunError
from ssfx.core.lazy import torch
from ssfx.lab.workloads.base import ANY, Dataset, datasets
from ssfx.lab.workloads.samples import TRANSCRIPT, Sample, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from ssfx.lab.workloads.stream import Batch

POOL = 4
"""Different batches; they come round again, so that making them costs nothing while a run is timed."""
MASKED_SHARE = 0.15
"""Of the tokens of a pre-training sample (Devlin et al. 2019)."""
BOXES = 8
"""In each image; COCO has 7.3 on average (Lin et al. 2014)."""


@dataclass(frozen=True)
class SyntheticOptions:
    """`model`: whose samples these are; the command line fills it in."""

    model: str = ""


@datasets.register(SyntheticOptions())
class Synthetic(Dataset):
    """Normally distributed pixels, uniformly distributed tokens and targets, made on the device before the first step.

    Batch i is batch i modulo POOL of this seed and rank. Nothing can be learned from them and nothing is held out.
    """

    name = "synthetic"
    summary = "random samples of any model's shapes, made on the device: to measure throughput, not quality"
    source = "a random generator"
    inputs = ANY
    held_out = False

    def fingerprint(self) -> str:
        """Return the hash of the shapes, and of how many batches there are."""
        text = f"{sample_of(self.options.model)!r} {POOL} {MASKED_SHARE} {BOXES}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def train_loader(
        self, rank: int, world_size: int, batch_size: int, seed: int, *, device: str = "cpu", workers: int = 0
    ) -> Pool:
        """Return batches on `device`; an epoch is POOL of them."""
        return Pool(sample_of(self.options.model), rank, batch_size, seed, device)

    def held_out_batches(self, rank: int, world_size: int) -> Iterator[Batch]:
        """Refuse: there is nothing to be right about."""
        raise RunError("dataset=synthetic is random; quality is measured on real data")


class Pool:
    """POOL batches of `sample`, each made when it is first asked for and kept."""

    def __init__(self, sample: Sample, rank: int, batch_size: int, seed: int, device: str) -> None:
        self._sample = sample
        self._batch_size = batch_size
        self._seed = (seed * 65537 + rank) * POOL
        self._device = device
        self._made: dict[int, Batch] = {}

    def __getitem__(self, index: int) -> Batch:
        """Return (inputs, targets) of batch `index`."""
        number = index % POOL
        if number not in self._made:
            generator = torch.Generator(self._device).manual_seed(self._seed + number)
            self._made[number] = _Maker(self._sample, self._batch_size, generator).batch()
        return self._made[number]


@dataclass(frozen=True)
class _Maker:
    """Draws one batch; the same numbers from the same generator."""

    sample: Sample
    batch_size: int
    generator: torch.Generator

    def batch(self) -> Batch:
        """Return inputs [N, *shape], and the targets that the model's loss takes."""
        of, count, shape = self.sample.targets, self.sample.num_values, self.sample.shape
        if of == "class" and not self.sample.of_tokens:
            return self._normal(*shape), self._below(count)
        if of == "class":
            return self._below(count, *shape), self._below(count)
        if of == "next":
            text = self._below(count, shape[0] + 1)
            return text[:, :-1], text[:, 1:]
        if of == "transcript":
            return self._normal(*shape), self._below(count, TRANSCRIPT)
        if of == "span":
            return self._below(count, *shape), self._below(shape[0], 2).sort(dim=1).values
        if of == "pretraining":
            return self._masked(count, shape[0])
        if of == "translation":
            text = 1 + self._below(count - 1, 2, shape[1] + 1)  # 0 is padding
            return text[:, :, :-1], text[:, 1, 1:]
        images = self._uniform(*shape)
        size = torch.tensor([shape[2], shape[1]] * 2, device=images.device)
        corner = self._uniform(BOXES, 2) * 0.5
        boxes = torch.cat((corner, corner + 0.1 + 0.4 * self._uniform(BOXES, 2)), dim=-1) * size
        labels = 1 + self._below(count - 1, BOXES, 1)
        return images, torch.cat((labels, boxes), dim=-1)

    def _masked(self, vocabulary: int, seq_len: int) -> Batch:
        tokens = self._below(vocabulary, seq_len)
        chosen = self._uniform(seq_len) < MASKED_SHARE
        chosen[:, 0] = True  # or a short sequence might have none, and its loss no value
        words = torch.where(chosen, self._below(vocabulary, seq_len), -100)
        return tokens, torch.cat((self._below(2, 1), words), dim=1)

    def _below(self, limit: int, *shape: int) -> Tensor:
        g = self.generator
        return torch.randint(limit, (self.batch_size, *shape), generator=g, device=g.device)

    def _normal(self, *shape: int) -> Tensor:
        g = self.generator
        return torch.randn(self.batch_size, *shape, generator=g, device=g.device)

    def _uniform(self, *shape: int) -> Tensor:
        g = self.generator
        return torch.rand(self.batch_size, *shape, generator=g, device=g.device)
