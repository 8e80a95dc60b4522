"""Exact top-k: keep the k largest magnitudes."""

from dataclasses import dataclass

from ssfx.compressors.base import Layout, compressors, k_floor
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.sparse import Selector, ValueDtype
from ssfx.core.spec import Bounded


@dataclass(frozen=True)
class TopKOptions(Bounded):
    """`value_dtype` of the values on the wire."""

    value_dtype: ValueDtype = "float32"


@compressors.register(TopKOptions())
class TopK(Selector):
    """Among all payloads of k elements the one that leaves the least behind (D-9)."""

    in_arrays = True
    name = "topk"
    summary = "exact top-k by magnitude, ties to the lower index"
    source = "Aji & Heafield 2017, Stich et al. 2018; D-9"
    options: TopKOptions

    def layout(self, numel: int, density: float) -> Layout:
        """k = floor(density * numel) indices and values."""
        k = k_floor(numel, density)
        return Layout(indices=k, values=k, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Write each segment's k largest magnitudes in ascending order of position."""
        kernels(batch.vector.device).select(batch, batch.once("rule", lambda: exactly(batch)))


def exactly(batch: Batch) -> Rule:
    """Return the rule that fills every segment's slots with its largest magnitudes, zeros included."""
    sizes = [part.layout.indices for part in batch.parts]
    return Rule(tuple(Bound(k, k, k) for k in sizes), zeros=True)
