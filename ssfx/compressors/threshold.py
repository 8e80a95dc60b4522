"""What threshold codecs share: one formula for the thresholds of all segments, and a payload of fixed capacity.

A formula is written once for vectors over the segments of a batch, float64 [S], with a fixed number of iterations and
no branch on a device value, so that the same lines serve a tensor, a bucket and every device.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import ModuleType

from ssfx.compressors.base import Layout, k_floor
from ssfx.compressors.batch import Batch, Part
from ssfx.compressors.dgc import capacity
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.sparse import Selector
from ssfx.compressors.topk import TopKOptions
from ssfx.core import accelerator
from ssfx.core.lazy import torch

CAPACITY = 1.3
"""At most so many times k elements are sent, as with DGC."""


class ThresholdSelector(Selector):
    """Sends what reaches a threshold that is found anew in every step; how many that are depends on the data.

    What exceeds the capacity is cut to the largest by an exact choice. Where nothing reaches the threshold though not
    all is zero, k elements from an offset that moves with the step are sent, so that no tensor is silenced for ever.
    k = n sends everything. Source: D-2, D-5.
    """

    in_arrays = True
    options: TopKOptions
    capacity = CAPACITY

    def layout(self, numel: int, density: float) -> Layout:
        """One count, and `capacity` * k indices and values with k = floor(density * numel)."""
        slots = capacity(k_floor(numel, density), numel, self.capacity)
        return Layout(counts=1, indices=slots, values=slots, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Write the selected elements, padded with (0, 0), and how many they are."""

        def bound(part: Part) -> Bound:
            k = k_floor(part.numel, part.density)
            return Bound(k, k, k) if k >= part.numel else Bound(0, k, part.layout.indices)

        kernel = kernels(batch.vector.device)
        rule = batch.once("rule", lambda: Rule(tuple(map(bound, batch.parts)), rotate=True))
        kernel.select(batch, rule, self.thresholds(batch, kernel))

    @abstractmethod
    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Return the least magnitude of each segment that is sent, a float32 number as float64 [S]."""


def over_parts(batch: Batch, name: str, measure: Callable[[Part], float]) -> torch.Tensor:
    """Return `measure` of every part, float64 [S]; it depends on nothing but the plan and is computed once."""

    def make() -> torch.Tensor:
        return torch.tensor([measure(part) for part in batch.parts], dtype=torch.float64, device=batch.vector.device)

    return batch.once(name, make)


def sizes(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return n and k of every segment."""
    return (
        over_parts(batch, "n", lambda part: part.numel),
        over_parts(batch, "k", lambda part: k_floor(part.numel, part.density)),
    )


def reaching(thresholds: torch.Tensor) -> torch.Tensor:
    """Return the least float32 number that is at least each threshold and not negative; NaN stays."""
    wanted = thresholds.clamp(min=0)
    near = wanted.float()
    return torch.where(near.double() < wanted, _next(near), near).double()


def above(thresholds: torch.Tensor) -> torch.Tensor:
    """Return the least float32 number that exceeds each threshold and is positive; NaN stays."""
    wanted = thresholds.clamp(min=0)
    near = wanted.float()
    return torch.where(near.double() > wanted, near, _next(near)).double()


def settled(active: torch.Tensor) -> bool:
    """Return True if no segment goes on and asking does not make the host wait for a device."""
    return not accelerator.queued(active.device) and not bool(active.any())


def _next(a: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(a, a.new_full((), torch.inf))
