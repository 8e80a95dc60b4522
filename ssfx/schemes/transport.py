"""The Transport: how a scheme's payloads travel, resolved once from its options, the compressor and the world size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.plan import Lane, Segment
from ssfx.schemes.base import CompressOptions
from ssfx.schemes.search.byte_groups import Group, joined
from ssfx.simulator.pricing.message_sizes import payload_bytes, payload_bytes_many

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PROBE_NUMEL = 1 << 20
_PROBE_DENSITY = 1e-3  # so low that no codec's capacity is the whole tensor
_EXACT_SIZES = 1 << 16


@dataclass(frozen=True)
class Transport:
    """A compressor (None: dense), the density it is asked for, and the collective that carries its payloads."""

    compressor: str | None
    density: float
    collective: str

    @property
    def dense(self) -> bool:
        """True when values travel as they are."""
        return self.compressor is None

    @property
    def in_arrays(self) -> bool:
        """True when the bytes of many payloads are worked out together, in any order."""
        return self.compressor is None or build(self.compressor).in_arrays

    def segment(self, group: Group, density: float | None = None) -> Segment:
        """Return the segment that hands `group` to one compressor call; a group without elements is dense."""
        names = tuple(spec.name for spec in group)
        if self.compressor is None or not any(spec.numel for spec in group):
            return Segment(names)
        return Segment(names, self.compressor, self.density if density is None else density)

    def lane(self, groups: Iterable[Group]) -> Lane:
        """Return one message with a compressor call per group; dense groups become one segment."""
        groups = [joined(groups)] if self.dense else list(groups)
        return Lane(self.collective, tuple(self.segment(group) for group in groups))

    def nbytes(self, numel: int, density: float | None = None, dtype: str = "float32") -> int:
        """Return the bytes of the payload of `numel` elements."""
        return payload_bytes(self.compressor, numel, density or self.density, dtype)

    def nbytes_many(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `nbytes` for ascending sizes.

        Of compressors that take no arrays, beyond 65536 sizes linear between as many evenly chosen ones: payloads grow
        almost linearly, so the interpolation is off by about one kept element.
        """
        if self.compressor is None:
            return 4 * sizes
        if self.in_arrays:
            return payload_bytes_many(self.compressor, sizes, self.density)
        known = sizes
        if len(sizes) > _EXACT_SIZES:
            known = sizes[np.linspace(0, len(sizes) - 1, _EXACT_SIZES).astype(np.int64)]
        return np.interp(sizes, known, [self.nbytes(int(size)) for size in known])


def dense_transport(scheme: str, compressor: str | None = None) -> Transport:
    """Return how a dense scheme sends; ConfigError unless `compressor` is None or keeps every element addable."""
    if compressor is not None:
        if not build(compressor).additive:
            raise ConfigError(
                f"scheme={scheme} adds gradients in an all_reduce, which cannot add {compressor} payloads; "
                "choose compressor=fp16, or scheme=per_tensor"
            )
        if keeps_fraction(compressor):
            raise ConfigError(
                f"scheme={scheme} sends every element, so compressor={compressor} would leave nothing out; "
                "choose compressor=fp16, or scheme=per_tensor"
            )
    return Transport(compressor, 1.0, "all_reduce")


def sparse_transport(options: CompressOptions, world_size: int) -> Transport:
    """Return the transport of a compressing scheme.

    Additive payloads travel in an all_reduce, others in an all_gather. One rank alone, or density 1 with a compressor
    that selects elements, needs no compression: everything is dense. Compressors that send every element in fewer bits
    have density 1.
    """
    selects = keeps_fraction(options.compressor)
    if world_size == 1 or (selects and options.density == 1):
        return Transport(None, 1.0, "all_reduce")
    collective = "all_reduce" if build(options.compressor).additive else "all_gather"
    return Transport(options.compressor, options.density if selects else 1.0, collective)


def check_density(compressor: str, density: float) -> None:
    """Raise ConfigError when `density`, which somebody asked for, would not change what the compressor sends."""
    if not keeps_fraction(compressor):
        raise ConfigError(
            f"compressor={compressor} sends as much at every density, so density={density:g} would have no effect; "
            "drop it or choose compressor=topk"
        )


def keeps_fraction(compressor: str) -> bool:
    """True when the density decides how much the compressor sends."""
    layout = build(compressor).layout
    return layout(_PROBE_NUMEL, _PROBE_DENSITY) != layout(_PROBE_NUMEL, 1.0)
