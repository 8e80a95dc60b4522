"""What a model and a data set are, and the registries that find them; declarations only, no torch at import time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ssfx.core.component_spec import Catalog
from ssfx.core.registry import Registry
from ssfx.workloads.metrics.tally import Tally, quality_of

if TYPE_CHECKING:
    from torch import nn

    from ssfx.workloads.stream import Stream


@dataclass(frozen=True)
class Model:
    """A network by definition: `build()` returns it with random weights, on the CPU or under `torch.device("meta")`.

    `inputs` says in words what a batch holds; a data set fits when it says the same. `batch_size` is the customary one
    per rank. `max_seq_len` is the longest sequence the network takes (0: any, or not a sequence model). `source` names
    the definition that is followed.
    """

    name: str
    summary: str
    inputs: str
    build: Callable[[], nn.Module]
    batch_size: int
    source: str
    max_seq_len: int = 0


class Dataset(ABC):
    """Samples held in memory, split once and for all into training and held-out ones.

    `here` is false for data that is known by name alone, so that runs with it can be simulated. All methods raise
    RunError when the data is missing or not what it should be. Constructing one reads nothing.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    inputs: ClassVar[str]
    here: ClassVar[bool] = True
    seq_len: int = 0
    """Tokens per sample; 0 when a sample is not a sequence."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return 16 hex digits that change whenever a sample, its target or its side of the split changes."""

    @abstractmethod
    def train_loader(self, rank: int, world_size: int, batch_size: int, seed: int) -> Stream:
        """Return the endless stream of this rank's training batches (inputs, targets), on the CPU."""

    @abstractmethod
    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums (ssfx.workloads.metrics) of `model` over this rank's share of the held-out samples.

        Every sample is in the share of exactly one of `world_size` ranks; weights and mode of the model stay. All ranks
        return the same names, whatever their shares hold.
        """

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return the held-out metrics (keys of ssfx.results.rows.METRICS) of `model` over all samples."""
        return quality_of(self.tally(model, 0, 1))


models: Registry[Model] = Registry("model", "ssfx.workloads.catalog")
datasets: Catalog[Dataset] = Catalog("dataset", "ssfx.workloads.catalog")
