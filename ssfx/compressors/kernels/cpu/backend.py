"""The compiled path on the CPU: one call per batch, float32 only. Same functions as `kernels.reference`.

Compiled kernels find a batch's gradients and memory in arrays that are made once and pointed anew each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ssfx.compressors.kernels.cpu import select as compiled
from ssfx.compressors.kernels.cpu import statistics
from ssfx.compressors.kernels.cpu.accumulate import ADDRESS, CHUNK, KIND, LENGTH, START
from ssfx.compressors.kernels.cpu.blocks import block_norms as block_norms
from ssfx.compressors.kernels.cpu.blocks import largest_of_chunks as largest_of_chunks
from ssfx.compressors.kernels.cpu.blocks import take_blocks as take_blocks
from ssfx.compressors.kernels.cpu.random_keys import signed
from ssfx.compressors.kernels.cpu.sampling import ID_STEP, RUN, sample_of
from ssfx.compressors.kernels.cpu.take import SPARE
from ssfx.compressors.kernels.interface import DGC, READY, Form, Moments, Rule, Tail
from ssfx.compressors.kernels.narrow import round_values
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.wire.batch import Batch


_EMPTY = np.empty(0, np.float32)


@dataclass
class Source:
    """Where a step's gradients and memory are, as `ssfx.compressors.kernels.cpu.accumulate` takes them.

    `vectors` are the memory's buffers: new, old, new and old momentum; `keys` are the bits of the first.
    """

    pieces: NDArray[np.int64]
    weights: NDArray[np.float32]
    form: Form | None
    vectors: tuple[NDArray[np.float32], ...] = ()
    keys: NDArray[np.int32] = field(default_factory=lambda: _EMPTY.view(np.int32))
    pairs: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)

    def use(self, batch: Batch) -> None:
        """Point to the buffers of this step; they take turns, so arrays are made once per pair."""
        pair = (id(batch.new), id(batch.old))
        if pair not in self.pairs:
            if len(self.pairs) > 1:
                self.pairs.clear()
            new = [buffer.numpy() for buffer in batch.new.values()] + [_EMPTY]
            old = [buffer.numpy() for buffer in batch.old.values()] + [_EMPTY, _EMPTY]
            vectors = (new[0], old[0], new[1], old[1])
            self.pairs[pair] = (vectors, new[0].view(np.int32), batch.new, batch.old)  # held, so that ids stay theirs
        self.vectors, self.keys = self.pairs[pair][:2]


def _point(batch: Batch) -> Source:
    """Return where the kernels find the batch's gradients, which count as accumulated from now on.

    A gradient that the kernels cannot read, or a memory that they do not know, is accumulated here instead.
    """
    source: Source = batch.once("source", lambda: _source(batch))
    source.use(batch)
    pieces, form, left = source.pieces, source.form, False
    grads = list(batch.grads)
    for i, grad in enumerate(grads):
        pieces[i, KIND] = READY
        if grad is None:
            continue
        if form is not None and grad.dtype == torch.float32 and grad.is_contiguous():
            pieces[i, KIND] = form.kind
            pieces[i, ADDRESS] = grad.data_ptr()
            grads[i] = None
        else:
            left = True
    batch.grads = grads
    if left:
        batch.accumulate()
    return source


def _source(batch: Batch) -> Source:
    pieces = np.zeros((len(batch.pieces), LENGTH + 1), np.int64)
    for row, (lo, hi) in zip(pieces, batch.pieces, strict=True):
        row[START], row[LENGTH] = lo, hi - lo
    form = batch.memory.form if batch.memory is not None else None
    weights = np.array([form.decay, form.gain] if form is not None else [0, 0], np.float32)
    return Source(pieces, weights, form)


_FEW = 512
"""Elements of a segment from which choosing exactly costs no more than sampling them first."""


@dataclass
class _Workspace:
    """What depends on nothing but the plan: the table of `ssfx.compressors.kernels.cpu.select`, and scratch memory.

    `unknown` [S] are the thresholds where none are given: -1, or 0 for so few elements that all of them are candidates.
    """

    table: NDArray[np.int64]
    unknown: NDArray[np.int32]
    buffers: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]


def select(batch: Batch, rule: Rule, thresholds: torch.Tensor | None = None) -> None:
    """Every segment's slots hold what `rule` selects, ascending, then zeros; gradients are accumulated on the way.

    `thresholds` [S]: magnitudes that are selected; without them each segment samples its own. A NaN or Inf is always
    selected, so the payload tells every receiver.
    """
    work: _Workspace = batch.once("select", lambda: _workspace(batch, rule))
    payload: _Payload = batch.once("payload", lambda: _payload(batch))
    if thresholds is None:
        least = work.unknown
    else:
        least = np.fmax(thresholds.numpy(), 0, dtype=np.float32, casting="same_kind").view(np.int32)
    grads = batch.grads  # they must live until the kernel has read them
    source = _point(batch)
    exact, form = payload.values is batch.payload.values, source.form
    clear = exact and form is not None and form.clear
    mask = clear and form is not None and form.kind == DGC
    compiled.select(
        work.table,
        source.pieces,
        source.vectors,
        source.weights,
        source.keys,
        least,
        payload.indices,
        payload.room,
        batch.base,
        clear,
        mask,
        signed(batch.seed),
        batch.step,
        batch.rank,
        work.buffers,
    )
    batch.cleared = clear
    del grads
    round_values(batch, payload.values)
    if len(payload.counted):
        payload.counts[payload.counted] = work.table[payload.rows, compiled.COUNT]


@dataclass
class _Payload:
    """The payload's sections as arrays, made once. `room` is float32 `values`: the payload's own, or scratch."""

    indices: NDArray[np.int32]
    values: torch.Tensor
    room: NDArray[np.float32]
    counts: NDArray[np.int32]
    rows: NDArray[np.int64]
    counted: NDArray[np.int64]
    """Parts whose count is sent, and where it lies."""


def _payload(batch: Batch) -> _Payload:
    whole = batch.payload
    exact = whole.values.dtype == torch.float32
    values = whole.values if exact else torch.empty(len(whole.values), dtype=torch.float32)
    rows = np.array([row for row, part in enumerate(batch.parts) if part.layout.counts], np.int64)
    counted = np.array([batch.parts[row].starts.counts for row in rows], np.int64)
    return _Payload(whole.indices.numpy(), values, values.numpy(), whole.counts.numpy(), rows, counted)


def moments(batch: Batch) -> Moments:
    """Return the sums over every segment; gradients are accumulated on the way."""
    segments = _statistics(batch).segments
    grads = batch.grads  # they must live until the kernel has read them
    source = _point(batch)
    out, largest = np.empty((4, len(segments))), np.empty(len(segments), np.int32)
    statistics.moments(segments, source.pieces, source.vectors, source.weights, source.keys, out, largest)
    del grads
    total, square, absolute, nonzero = torch.from_numpy(out)
    return Moments(total, square, absolute, torch.from_numpy(largest.view(np.float32).astype(np.float64)), nonzero)


def count(batch: Batch, thresholds: torch.Tensor) -> torch.Tensor:
    """Return how many magnitudes of each segment reach its threshold, a float32 number; 0 where it is NaN."""
    work, keys = _statistics(batch), batch.vector.numpy().view(np.int32)
    out = np.empty(len(work.segments))
    statistics.counts(work.segments, keys, _least(thresholds), out)
    return torch.from_numpy(out)


def tail(batch: Batch, thresholds: torch.Tensor) -> Tail:
    """Return sums over what reaches each segment's threshold, a float32 number; of nothing where it is NaN."""
    work, keys = _statistics(batch), batch.vector.numpy().view(np.int32)
    out, smallest = np.empty((3, len(work.segments))), np.empty(len(work.segments), np.int32)
    statistics.tails(work.segments, keys, _least(thresholds), out, smallest)
    number, total, square = torch.from_numpy(out)
    least = torch.from_numpy(smallest.view(np.float32)).double()
    return Tail(number, total, square, torch.where(number > 0, least, torch.inf))


def select_band(batch: Batch, sure: torch.Tensor, band: torch.Tensor, skip: torch.Tensor) -> None:
    """Every segment's slots hold what reaches `sure`, filled up from what reaches `band`, ascending, then zeros.

    Of what reaches only `band` the first `skip` are passed over. All [S]; thresholds are float32 numbers, not NaN.
    """
    work, vector = _statistics(batch), batch.vector.numpy()
    payload: _Payload = batch.once("payload", lambda: _payload(batch))
    statistics.choose_band(
        work.segments,
        vector.view(np.int32),
        vector,
        _least(sure),
        _least(band),
        skip.numpy(),
        work.slots,
        batch.base,
        payload.indices,
        payload.room,
    )
    round_values(batch, payload.values)


@dataclass
class _Statistics:
    """The table of `ssfx.compressors.kernels.cpu.statistics`, and start and number of each segment's slots."""

    segments: NDArray[np.int64]
    slots: NDArray[np.int64]


def _statistics(batch: Batch) -> _Statistics:
    def make() -> _Statistics:
        segments = np.zeros((len(batch.parts), statistics.PIECE_END + 1), np.int64)
        piece = 0
        for row, part in zip(segments, batch.parts, strict=True):
            row[:] = part.lo, part.hi, piece, piece + len(part.pieces)
            piece += len(part.pieces)
        slots = [(part.starts.indices, part.layout.indices) for part in batch.parts]
        return _Statistics(segments, np.array(slots, np.int64))

    return batch.once("statistics", make)


def _least(thresholds: torch.Tensor) -> NDArray[np.int32]:
    bits: NDArray[np.int32] = thresholds.float().clamp(min=0).view(torch.int32).numpy()
    return np.where(np.isnan(bits.view(np.float32)), statistics.LEAVE_OUT, bits)


def _workspace(batch: Batch, rule: Rule) -> _Workspace:
    table = np.zeros((len(batch.parts), compiled.COUNT + 1), np.int64)
    unknown = np.full(len(batch.parts), -1, np.int32)
    samples = []
    piece = 0
    for i, (row, part, bound) in enumerate(zip(table, batch.parts, rule.bounds, strict=True)):
        if max(bound) > min(part.layout.indices, part.layout.values):
            raise ValueError(f"a segment with {part.layout.indices} slots cannot take {max(bound)} elements")
        sample = sample_of(part.numel, bound, rule)
        samples.append(sample)
        row[: compiled.COUNT] = (
            part.lo,
            part.numel,
            part.starts.indices,
            part.layout.indices,
            *bound,
            0 if rule.zeros else 1,
            sample.stride,
            sample.runs,
            sample.rank,
            piece,
            piece + len(part.pieces),
            part.tensor_id * ID_STEP,
            rule.rotate,
        )
        piece += len(part.pieces)
        if part.numel <= _FEW and bound.least == bound.most:
            unknown[i] = 0
    room = 2 * max(bound.most for bound in rule.bounds) + CHUNK + SPARE
    largest = max(sample.runs * RUN for sample in samples)
    scratch = np.empty(max(room, largest), np.int32)
    found, taken = np.empty((2, room), np.int32)
    return _Workspace(table, unknown, (found, taken, scratch, np.empty(largest + RUN, np.float32)))
