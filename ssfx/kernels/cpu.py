"""The compiled path on the CPU: one call per batch, float32 only. Same functions as `ssfx.kernels.reference`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ssfx.kernels import READY, Moments, Rule, Tail, statistics
from ssfx.kernels import select as compiled
from ssfx.kernels.blocks_compiled import block_norms as block_norms
from ssfx.kernels.blocks_compiled import take_blocks as take_blocks
from ssfx.kernels.chunks_compiled import largest_of_chunks as largest_of_chunks
from ssfx.kernels.sampling import ID_STEP, RUN, sample_of
from ssfx.lazy import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.compressors.batch import Batch

_EMPTY = np.empty(0, np.float32)


@dataclass
class _Workspace:
    """What depends on nothing but the plan: tables with the columns of `ssfx.kernels.select`, and scratch memory."""

    table: NDArray[np.int64]
    pieces: NDArray[np.int64]
    found: NDArray[np.int32]
    scratch: NDArray[np.int32]
    sampled: NDArray[np.float32]


def select(batch: Batch, rule: Rule, thresholds: torch.Tensor | None = None) -> None:
    """Every segment's slots hold what `rule` selects, ascending, then zeros; gradients are accumulated on the way.

    `thresholds` [S]: magnitudes that are selected; without them each segment samples its own. A NaN or Inf is always
    selected, so the payload tells every receiver.
    """
    work: _Workspace = batch.once("select", lambda: _workspace(batch, rule))
    table = work.table
    if thresholds is None:
        table[:, compiled.KEY] = -1
        ids = batch.once("tensor ids", lambda: np.array([part.tensor_id for part in batch.parts], np.int64))
        table[:, compiled.SEED] = ((batch.key(0) & 0xFFFFFFFF) + ids * ID_STEP) & 0xFFFFFFFF
    else:
        table[:, compiled.KEY] = np.fmax(thresholds.numpy(), 0, dtype=np.float32, casting="same_kind").view(np.int32)
    if rule.rotate:
        table[:, compiled.ROTATION] = (batch.step * table[:, compiled.WANTED]) % np.maximum(1, table[:, compiled.NUMEL])
    grads = batch.grads  # they must live until the kernel has read them
    vectors, weights = _point(batch, work.pieces)
    payload: _Payload = batch.once("payload", lambda: _payload(batch))
    exact = payload.values is batch.payload.values
    form = batch.memory.form if batch.memory is not None else None
    clear, mask = (exact and form.clear, exact and form.mask) if form is not None else (False, False)
    compiled.select(
        table, work.pieces, vectors, weights, vectors[0].view(np.int32), payload.indices, payload.room, batch.base,
        clear, mask, (work.found, work.scratch, work.sampled),
    )  # fmt: skip
    batch.cleared = clear
    del grads
    batch.round_values(payload.values)
    if len(payload.counted):
        payload.counts[payload.counted] = table[:, compiled.COUNT]


@dataclass
class _Payload:
    """The payload's sections as arrays, made once. `room` is float32 `values`: the payload's own, or scratch."""

    indices: NDArray[np.int32]
    values: torch.Tensor
    room: NDArray[np.float32]
    counts: NDArray[np.int32]
    counted: list[int]
    """Where the count of each part lies; empty if counts are not sent."""


def _payload(batch: Batch) -> _Payload:
    whole = batch.payload
    exact = whole.values.dtype == torch.float32
    values = whole.values if exact else torch.empty(len(whole.values))
    counted = [part.starts.counts for part in batch.parts if part.layout.counts]
    return _Payload(whole.indices.numpy(), values, values.numpy(), whole.counts.numpy(), counted)


def moments(batch: Batch) -> Moments:
    """Return the sums over every segment; gradients are accumulated on the way."""
    work = _statistics(batch)
    grads = batch.grads  # they must live until the kernel has read them
    vectors, weights = _point(batch, work.pieces)
    out, largest = np.empty((4, len(work.segments))), np.empty(len(work.segments), np.int32)
    statistics.moments(work.segments, work.pieces, vectors, weights, vectors[0].view(np.int32), out, largest)
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


def log_sum(batch: Batch) -> torch.Tensor:
    """Return the sum of the natural logarithms of every segment's non-zero magnitudes, all of them finite."""
    work = _statistics(batch)
    out = np.empty(len(work.segments))
    statistics.log_sums(work.segments, batch.vector.numpy(), out)
    return torch.from_numpy(out)


def select_band(batch: Batch, sure: torch.Tensor, band: torch.Tensor, skip: torch.Tensor) -> None:
    """Every segment's slots hold what reaches `sure`, filled up from what reaches `band`, ascending, then zeros.

    Of what reaches only `band` the first `skip` are passed over. All [S]; thresholds are float32 numbers, not NaN.
    """
    work, vector = _statistics(batch), batch.vector.numpy()
    payload: _Payload = batch.once("payload", lambda: _payload(batch))
    statistics.choose_band(
        work.segments, vector.view(np.int32), vector, _least(sure), _least(band), skip.numpy(), work.slots, batch.base,
        payload.indices, payload.room,
    )  # fmt: skip
    batch.round_values(payload.values)


@dataclass
class _Statistics:
    """Tables with the columns of `ssfx.kernels.statistics` and `select`, and start and number of each one's slots."""

    segments: NDArray[np.int64]
    pieces: NDArray[np.int64]
    slots: NDArray[np.int64]


def _statistics(batch: Batch) -> _Statistics:
    def make() -> _Statistics:
        segments = np.zeros((len(batch.parts), statistics.PIECE_END + 1), np.int64)
        piece = 0
        for row, part in zip(segments, batch.parts, strict=True):
            row[:] = part.lo, part.hi, piece, piece + len(part.pieces)
            piece += len(part.pieces)
        slots = [(part.starts.indices, part.layout.indices) for part in batch.parts]
        return _Statistics(segments, _pieces(batch), np.array(slots, np.int64))

    return batch.once("statistics", make)


def _least(thresholds: torch.Tensor) -> NDArray[np.int32]:
    bits: NDArray[np.int32] = thresholds.float().clamp(min=0).view(torch.int32).numpy()
    return np.where(np.isnan(bits.view(np.float32)), statistics.LEAVE_OUT, bits)


def _pieces(batch: Batch) -> NDArray[np.int64]:
    """Return the table of pieces; kind and address are set for each call."""
    pieces = np.zeros((len(batch.pieces), compiled.LENGTH + 1), np.int64)
    for row, (lo, hi) in zip(pieces, batch.pieces, strict=True):
        row[compiled.START], row[compiled.LENGTH] = lo, hi - lo
    return pieces


def _point(batch: Batch, pieces: NDArray[np.int64]) -> tuple[tuple[NDArray[np.float32], ...], NDArray[np.float32]]:
    """Set each piece's kind and gradient address; return (new, old, new and old momentum) and the weights.

    A gradient that the kernel cannot read, or a memory that it does not know, is accumulated here instead. The batch
    counts all of them as accumulated.
    """
    form = batch.memory.form if batch.memory is not None else None
    grads = list(batch.grads)
    for i, grad in enumerate(grads):
        pieces[i, compiled.KIND] = READY
        if grad is None:
            continue
        if form is not None and grad.dtype == torch.float32 and grad.is_contiguous():
            pieces[i, compiled.KIND] = form.kind
            pieces[i, compiled.ADDRESS] = grad.data_ptr()
            grads[i] = None
    batch.grads = grads
    batch.accumulate()
    weights = batch.once("weights", lambda: np.array([form.decay, form.gain] if form else [0, 0], np.float32))
    return _vectors(batch), weights


def _vectors(batch: Batch) -> tuple[NDArray[np.float32], ...]:
    """Return (new, old, new and old momentum) as arrays; made once per pair of buffers, which take turns."""
    kept: dict[tuple[int, int], tuple[Any, Any, tuple[Any, ...]]] = batch.once("vectors", dict)
    pair = (id(batch.new), id(batch.old))
    if pair not in kept:
        if len(kept) > 1:
            kept.clear()
        new = [buffer.numpy() for buffer in batch.new.values()] + [_EMPTY]
        old = [buffer.numpy() for buffer in batch.old.values()] + [_EMPTY, _EMPTY]
        kept[pair] = (batch.new, batch.old, (new[0], old[0], new[1], old[1]))  # held, so that ids stay theirs
    return kept[pair][2]


def _workspace(batch: Batch, rule: Rule) -> _Workspace:
    table = np.zeros((len(batch.parts), compiled.COUNT + 1), np.int64)
    samples = []
    piece = 0
    for row, part, bound in zip(table, batch.parts, rule.bounds, strict=True):
        if max(bound) > min(part.layout.indices, part.layout.values):
            raise ValueError(f"a segment with {part.layout.indices} slots cannot take {max(bound)} elements")
        sample = sample_of(part.numel, bound, rule)
        samples.append(sample)
        row[: compiled.SEED] = (
            part.lo, part.numel, part.starts.indices, part.layout.indices, *bound, 0 if rule.zeros else 1,
            sample.stride, sample.runs, sample.rank, piece, piece + len(part.pieces),
        )  # fmt: skip
        piece += len(part.pieces)
    table[:, compiled.ROTATION] = -1
    room = 2 * max(bound.most for bound in rule.bounds) + compiled.CHUNK + RUN
    largest = max(sample.runs * RUN for sample in samples)
    scratch = np.empty(max(room, largest), np.int32)
    return _Workspace(table, _pieces(batch), np.empty(room, np.int32), scratch, np.empty(largest + RUN, np.float32))
