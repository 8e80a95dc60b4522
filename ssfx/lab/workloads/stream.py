"""Training batches as a pure function of their index: endless, sharded by rank, resumable by remembering a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Batch = tuple[torch.Tensor, torch.Tensor]


class Batches(Protocol):
    """Batch i of one rank, a pure function of i: a run that resumes needs to remember nothing but a number."""

    @property
    def batches_per_epoch(self) -> int:
        """Batches of this rank until every sample was seen once."""

    def __getitem__(self, index: int) -> Batch:
        """Return (inputs, targets) of batch `index`."""


class SampleStream:
    """Batch i of one rank. An epoch is one permutation of all samples, the same on all ranks; its incomplete last
    global batch is dropped, so ranks always have equally many batches and never share a sample within an epoch.

    `gather` turns sample numbers into (inputs, targets). Raises ConfigError when one global batch needs more samples
    than there are.
    """

    def __init__(
        self,
        gather: Callable[[NDArray[np.int64]], Batch],
        *,
        num_samples: int,
        rank: int,
        world_size: int,
        batch_size: int,
        seed: int,
    ) -> None:
        self._gather = gather
        self._num_samples = num_samples
        self._batch_size = batch_size
        self._global_batch = world_size * batch_size
        self._offset = rank * batch_size
        self._seed = seed
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self.batches_per_epoch = num_samples // self._global_batch
        if self.batches_per_epoch == 0:
            raise ConfigError(
                f"batch_size={batch_size} on {world_size} ranks needs {self._global_batch} training samples, the data "
                f"set has {num_samples}; use batch_size={max(1, num_samples // world_size)} or less"
            )

    def samples(self, index: int) -> NDArray[np.int64]:
        """Return the sample numbers of batch `index`, shape [batch_size]."""
        epoch, position = divmod(index, self.batches_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self._seed, epoch]).permutation(self._num_samples)
            self._epoch = epoch
        start = position * self._global_batch + self._offset
        return self._order[start : start + self._batch_size]

    def __getitem__(self, index: int) -> Batch:
        """Return (inputs, targets) of batch `index`."""
        return self._gather(self.samples(index))
