"""Data sets that are held in memory, whose samples are gathered by their numbers, a batch at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.lab.workloads.declarations import Dataset
from ssfx.lab.workloads.stream import SampleStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.lab.workloads.stream import Batch


class GatheredDataset(Dataset):
    """A data set that comes with ssfx or Python."""

    @abstractmethod
    def numbers(self, train: bool) -> NDArray[np.int64]:
        """Return the numbers of the training or of the held-out samples."""

    @abstractmethod
    def gather(self, train: bool, numbers: NDArray[np.int64]) -> Batch:
        """Return (inputs, targets) of the samples of a part that have these numbers."""

    def train_loader(
        self, rank: int, world_size: int, batch_size: int, seed: int, *, device: str = "cpu", workers: int = 0
    ) -> SampleStream:
        """Return batches as `gather` makes them."""
        numbers = self.numbers(train=True)
        return SampleStream(
            gather=lambda samples: self.gather(True, numbers[samples]),
            num_samples=len(numbers),
            rank=rank,
            world_size=world_size,
            batch_size=batch_size,
            seed=seed,
        )

    def held_out_batches(self, rank: int, world_size: int) -> Iterator[Batch]:
        """Yield the rank's share, as `gather` makes it."""
        share = self.numbers(train=False)[rank::world_size]
        for start in range(0, len(share), self.evaluation_batch):
            yield self.gather(False, share[start : start + self.evaluation_batch])
