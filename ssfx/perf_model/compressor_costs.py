"""The Costs of planning for one compressor, from those that hold the times of several."""

from __future__ import annotations

from dataclasses import replace

from ssfx.compressors import build
from ssfx.planning.costs import Costs, Curve


def costs_of(costs: Costs, compressor: str | None, density: float | None) -> Costs:
    """Return `costs` with the curves over elements of one compressor (a spec; None: dense) at one density.

    Costs without times by compressor have curves over elements already, and are returned as they are. ConfigError
    names the compressors with times when `compressor` has none.
    """
    if not costs.times:
        return costs
    if compressor is None:
        zero = Curve.zero()
        return replace(costs, encode=zero, host=zero, decode=zero)
    codec, one = costs.codec(compressor), build(compressor)
    kept = density or 1.0
    units = one.work([(2**10, 2**10)]) / 2**20  # work of an element
    copies = 1 if one.additive else costs.world_size
    indices = one.layout(2**20, kept).indices
    per_element = copies * (min(kept, indices / 2**20) if indices else units)
    host = _stretched(codec.host, units)
    if not codec.host_copies:  # out as it is, back as a payload
        host = host.plus(costs.pcie_s_per_byte * (4 + one.layout(2**20, kept).nbytes / 2**20))
    return replace(
        costs, encode=_stretched(codec.encode, units), host=host, decode=_stretched(codec.decode, per_element),
        origin=codec.origin, times={compressor: codec},
    )  # fmt: skip


def _stretched(curve: Curve, units: float) -> Curve:
    """Return the curve over sizes of which each stands for `units` units of the given one."""
    return Curve(tuple(size / units for size in curve.sizes), curve.seconds, curve.unbounded)
