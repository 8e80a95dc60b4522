"""Training batches as a pure function of their index: endless, sharded by rank, resumable by remembering a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Batch = tuple[torch.Tensor, torch.Tensor]


class Batches(Protocol):
    """Batch i of one rank, a pure function of i: a run that resumes needs to remember nothing but a number."""

    def __getitem__(self, index: int) -> Batch:
        """Return (inputs, targets) of batch `index`."""


@dataclass
class SampleNumbers:
    """Which samples are in batch i of one rank.

    An epoch is one permutation of all samples, the same on all ranks; its incomplete last global batch is dropped, so
    ranks always have equally many batches and never share a sample within an epoch.

    Raises ConfigError when one global batch needs more samples than there are.
    """

    num_samples: int
    rank: int
    world_size: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        self._global_batch = self.world_size * self.batch_size
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self.batches_per_epoch = self.num_samples // self._global_batch
        if self.batches_per_epoch == 0:
            raise ConfigError(
                f"batch_size={self.batch_size} on {self.world_size} ranks needs {self._global_batch} training samples, "
                f"the data set has {self.num_samples}; use batch_size={max(1, self.num_samples // self.world_size)} or "
                "less"
            )

    def samples(self, index: int) -> NDArray[np.int64]:
        """Return the sample numbers of batch `index`, shape [batch_size]."""
        epoch, position = divmod(index, self.batches_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.num_samples)
            self._epoch = epoch
        start = position * self._global_batch + self.rank * self.batch_size
        return self._order[start : start + self.batch_size]


@dataclass(kw_only=True)
class SampleStream(SampleNumbers):
    """Batches of these samples; `gather` turns their numbers into (inputs, targets)."""

    gather: Callable[[NDArray[np.int64]], Batch]

    def __getitem__(self, index: int) -> Batch:
        """Return (inputs, targets) of batch `index`."""
        return self.gather(self.samples(index))
