"""Batches of a map-style data set, prepared in this process or by workers; which of them changes nothing in a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils.data import DataLoader, default_collate

from ssfx.lab.workloads.stream import SampleNumbers

if TYPE_CHECKING:
    from torch import Tensor

    from ssfx.lab.workloads.stream import Batch


class Samples(Sized, Protocol):
    """Sample i of a data set, (inputs, target); what is random about it is drawn from torch's generator."""

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Return inputs and target of sample `number`."""


@dataclass(frozen=True)
class Made:
    """Samples that a function of their number makes; it and what it holds can be pickled."""

    size: int
    of: Callable[[int], tuple[Tensor, Tensor]]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Return inputs and target of sample `number`."""
        return self.of(number)


class MapStream(SampleNumbers):
    """Batch i of one rank: the samples that `SampleStream` gives it, each with random numbers of its own.

    What is random in a sample follows from seed, epoch and sample number, so that a batch is the same whoever prepares
    it and wherever a run was resumed. `workers` processes prepare batches ahead while they are asked for in order.
    """

    def __init__(
        self, samples: Samples, *, rank: int, world_size: int, batch_size: int, seed: int, workers: int
    ) -> None:
        super().__init__(len(samples), rank, world_size, batch_size, seed)
        self._items = _Seeded(samples, seed)
        self._workers = workers
        self._ahead: Iterator[Batch] | None = None
        self._next = -1
        self._last: tuple[int, Batch] | None = None

    def __getitem__(self, index: int) -> Batch:
        """Return (inputs, targets) of batch `index`."""
        if self._last is None or self._last[0] != index:  # a pass that is only timed asks for the next one's, too
            self._last = index, self._prefetched(index) if self._workers else self._made(index)
        return self._last[1]

    def _made(self, index: int) -> Batch:
        inputs, targets = default_collate([self._items[key] for key in self._keys(index)])
        return inputs, targets

    def _prefetched(self, index: int) -> Batch:
        if self._ahead is None or index != self._next:
            sampler = map(self._keys, count(index))
            # The samples are the sampler's; the loader draws nothing, and its seed would come from the run's generator.
            loader = DataLoader(
                self._items, batch_sampler=sampler, num_workers=self._workers, generator=torch.Generator()
            )
            self._ahead = iter(loader)
        self._next = index + 1
        inputs, targets = next(self._ahead)
        return inputs, targets

    def _keys(self, index: int) -> list[tuple[int, int]]:
        epoch = index // self.batches_per_epoch
        return [(epoch, int(number)) for number in self.samples(index)]


class _Seeded(torch.utils.data.Dataset[Any]):
    """Samples by (epoch, number), each with torch's generator set to a seed of its own, and put back after it."""

    def __init__(self, samples: Samples, seed: int) -> None:
        self._samples = samples
        self._seed = seed

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        digest = hashlib.sha256(f"{self._seed} {key[0]} {key[1]}".encode()).digest()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            return self._samples[key[1]]
