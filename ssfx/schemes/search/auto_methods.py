"""The exchanges that `auto` chooses from: how a method divides a bucket into messages and compressor calls.

A method has a main kind, and may send the smallest tensors by another one, in a message of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from ssfx.compressors import build
from ssfx.core.spec import name_of
from ssfx.planning.plan import Bucket, Lane, Placement, Segment, TensorSpec
from ssfx.schemes.search.ssfusion_selection import compensated_density

Calls = Literal["joint", "each"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to send some tensors of one dtype."""

    words: str
    """What it is called in explanations."""
    collective: str
    """Spec of the collective."""
    compressor: str | None = None
    """Spec of the compressor; None: values travel as they are."""
    density: float = 1.0
    """Kept fraction."""
    calls: Calls = "joint"
    """joint: one segment for all tensors. each: a segment for every tensor, in one message."""
    compensates: bool = False
    """What small tensors of a bucket send dense is made up for by a lower density of the others, as in SSFusion."""
    on_host: frozenset[str] = frozenset()
    """Tensors that are compressed on the host; with calls=each."""

    @property
    def dense(self) -> bool:
        """True when every value travels as it is."""
        return self.compressor is None

    def fits(self, dtype: str) -> bool:
        """Return whether tensors of a dtype may be sent so: casts have nothing to gain where there are 16 bits."""
        if self.compressor is None or dtype == "float32":
            return True
        return dtype != "float64" and name_of(self.compressor) not in ("fp16", "bf16")

    def lanes(self, tensors: Sequence[TensorSpec]) -> Iterator[Lane]:
        """Yield the messages for `tensors`, some of which have elements; those that have none ride along."""
        names = tuple(spec.name for spec in tensors)
        if self.dense or self.calls == "joint":
            yield Lane(self.collective, (Segment(names, self.compressor, self.density),))
            return
        segments, empty = [], ()  # type: list[Segment], tuple[str, ...]
        for spec in tensors:
            if not spec.numel:
                empty += (spec.name,)
                continue
            placement: Placement = "host" if spec.name in self.on_host else "device"
            segments.append(Segment((*empty, spec.name), self.compressor, self.density, placement))
            empty = ()
        segments[-1] = replace(segments[-1], tensors=segments[-1].tensors + empty)
        yield Lane(self.collective, tuple(segments))


@dataclass(frozen=True, slots=True)
class Method:
    """How a bucket is sent: by `main`, but for the tensors in `apart`, which `small` sends."""

    main: Kind
    small: Kind | None = None
    apart: frozenset[str] = frozenset()

    def takes(self, spec: TensorSpec) -> bool:
        """Return whether `main` sends the tensor."""
        return spec.name not in self.apart

    def bucket(self, tensors: Sequence[TensorSpec]) -> Bucket:
        """Return the bucket for `tensors` of one dtype; without any elements it is one dense message."""
        if not any(spec.numel for spec in tensors):
            return Bucket((Lane("all_reduce", (Segment(tuple(spec.name for spec in tensors)),)),))
        if self.main.compensates:
            # SSFusion, section IV-B: what goes dense fills at most the budget d N of the bucket, and all else has the
            # density (d N - N_dense) / (N - N_dense).
            whole = sum(spec.numel for spec in tensors)
            apart = [spec for spec in tensors if not self.takes(spec)]
            own = replace(self, apart=frozenset(smallest(apart, self.main.density * whole)))
            dense = sum(spec.numel for spec in tensors if not own.takes(spec))
            density = compensated_density(whole, dense, self.main.density)
            return replace(own, main=replace(self.main, density=density, compensates=False)).bucket(tensors)
        main = [spec for spec in tensors if self.takes(spec)]
        small = [spec for spec in tensors if not self.takes(spec)]
        if self.small is None or not small:
            return Bucket(tuple(self.main.lanes(tensors)))
        if not any(spec.numel for spec in main):
            return Bucket(tuple(self.small.lanes(tensors)))
        if not any(spec.numel for spec in small):
            return Bucket(tuple(self.main.lanes(tensors)))
        return Bucket((*self.small.lanes(small), *self.main.lanes(main)))


@cache
def chooses(compressor: str) -> bool:
    """Return whether a compressor sends some elements and not others, by their values or at random."""
    layout, whole = build(compressor).layout(1 << 20, 1e-3), build(compressor).layout(1 << 20, 1.0)
    return layout != whole


def methods(kinds: Iterable[Kind], tensors: Sequence[TensorSpec]) -> list[Method]:
    """Return the methods that `kinds` make: each alone, and each that compresses with small tensors uncompressed.

    What goes with the small tensors is dense or cast to 16 bits, whichever of them there are.
    """
    every = list(kinds)
    plain = [kind for kind in every if kind.dense or (kind.compressor is not None and build(kind.compressor).lossless)]
    found = [Method(kind) for kind in every]
    small = [kind for kind in plain if kind.collective == "all_reduce"]
    for kind in every:
        if kind not in plain:
            found += [Method(kind, one, names) for one in small for names in _apart(kind, tensors)]
    return found


def _apart(kind: Kind, tensors: Sequence[TensorSpec]) -> Iterator[frozenset[str]]:
    """Yield which tensors may travel uncompressed: about those of which compressing saves no bytes, and more.

    With compensation also the smallest ones. A factored matrix is never small; what is not one travels as it is in the
    message of the factors.
    """
    if kind.calls == "joint":
        return
    for below in (1 << 12, 1 << 16):
        yield frozenset(spec.name for spec in tensors if spec.numel < below)
    if kind.compensates:
        budget = kind.density * sum(spec.numel for spec in tensors)
        for order in (tensors, tensors[::-1]):  # of many layers alike the first or the last ones
            names = smallest(order, budget)
            yield frozenset(names)
            yield frozenset(names[:-1])  # Eq. 2 of SSFusion stops before its budget is reached


def smallest(tensors: Sequence[TensorSpec], elements: float) -> list[str]:
    """Return the names of the smallest tensors, of equal ones the first, until they have so many elements."""
    names = []
    for spec in sorted(tensors, key=lambda spec: spec.numel):
        if elements <= 0:
            break
        elements -= spec.numel
        names.append(spec.name)
    return names
