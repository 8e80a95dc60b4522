"""What a model and a data set are; declarations only, no torch at import time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ssfx.core.errors import RunError
from ssfx.core.lazy import torch
from ssfx.core.spec import NoOptions
from ssfx.lab.workloads.metrics.tally import Tally, added, quality_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ssfx.lab.workloads.stream import Batch, Batches

ANY = "whatever the other side says"
"""The inputs of a model or a data set that fit everything, because nothing is known of them until they are built."""


@dataclass(frozen=True)
class Model:
    """A network by definition: `build()` returns it with random weights, on the CPU or under `torch.device("meta")`.

    `inputs` says in words what a batch holds; a data set fits when it says the same. `batch_size` is the customary one
    per rank. `max_seq_len` is the longest sequence the network takes (0: any, or not a sequence model). `source` names
    the definition that is followed. `fused_attention` and `recompute` say how it is customarily trained: without
    matrices of scores in memory, and with every layer's forward computed again in backward (activation checkpointing).
    """

    name: str
    summary: str
    inputs: str
    build: Callable[[], nn.Module]
    batch_size: int
    source: str
    max_seq_len: int = 0
    fused_attention: bool = False
    recompute: bool = False

    def on_meta(self) -> nn.Module:
        """Return the network on the meta device, where what it ties is one tensor as elsewhere."""
        with torch.device("meta"):
            network = self.build()
        parts: list[Any] = list(network.modules())
        for module in parts:
            if hasattr(module, "all_tied_weights_keys"):  # transformers 5.0 ties no weights there
                module.tie_weights()
        return network


class Dataset(ABC):
    """Samples, split once and for all into training and held-out ones.

    `here` is false for data that does not come with ssfx or Python; runs with it can be simulated all the same.
    `held_out` is false where nothing is, so that `evaluate` has nothing to measure; `prepares` is true where a batch
    takes work that other processes can do. All methods raise RunError when the
    data is missing or not what it should be. Constructing one reads nothing.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    inputs: ClassVar[str]
    here: ClassVar[bool] = True
    held_out: ClassVar[bool] = True
    prepares: ClassVar[bool] = False
    sums: ClassVar[tuple[str, ...]] = ()
    """What `score` returns, by name."""
    evaluation_batch: ClassVar[int] = 32
    """Held-out samples that are scored at once."""
    seq_len: int
    """Tokens per sample; 0 when a sample is not a sequence."""

    def __init__(self, options: Any = NoOptions()) -> None:  # noqa: B008 (frozen)
        self.options = options
        self.seq_len = vars(options).get("seq_len", 0)

    def missing(self) -> str:
        """Return one line that says which files are missing and where to put them, "" when there is nothing to say.

        Needs no torch and looks at names only.
        """
        return ""

    def download(self) -> None:
        """Fetch what is missing, because the user asked for it; RunError when that does not work."""
        raise RunError(f"dataset={self.name} is nothing to download")

    def part(self) -> str:
        """Return in one line which part of the published data this is; "" for all of it, or if none was published."""
        return ""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return 16 hex digits that change whenever a sample, its target or its side of the split changes."""

    @abstractmethod
    def train_loader(
        self, rank: int, world_size: int, batch_size: int, seed: int, *, device: str = "cpu", workers: int = 0
    ) -> Batches:
        """Return the endless stream of this rank's training batches (inputs, targets).

        They are on the CPU, or on `device` where they are made there. `workers` processes prepare them, if the data set
        `prepares`; how many does not change what is in a batch.
        """

    @abstractmethod
    def held_out_batches(self, rank: int, world_size: int) -> Iterator[Batch]:
        """Yield every world_size-th held-out sample from number `rank` on, in batches (inputs, targets) on the CPU."""

    def score(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tally:
        """Return the sums of a batch: of classes where a target is one number, else of the tokens that follow."""
        from ssfx.lab.workloads.metrics.networks import classes_tally, tokens_tally
        from ssfx.lab.workloads.objective import logits

        found = logits(model, inputs)
        return classes_tally(found, targets) if targets.ndim == 1 else tokens_tally(found, targets, 0.0)

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums (ssfx.lab.workloads.metrics) of `model` over this rank's share of the held-out samples.

        Every sample is in the share of exactly one of `world_size` ranks; weights and mode of the model stay. All ranks
        return the same names, even for empty shares.
        """
        from ssfx.lab.workloads.objective import evaluating

        total = dict.fromkeys(self.sums, 0.0)
        with evaluating(model) as device:
            for inputs, targets in self.held_out_batches(rank, world_size):
                total = added(total, self.score(model, inputs.to(device), targets.to(device)))
        return total

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return the held-out metrics (keys of ssfx.core.rows.METRICS) of `model` over all samples."""
        return quality_of(self.tally(model, 0, 1))
