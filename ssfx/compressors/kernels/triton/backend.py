"""The compiled path on CUDA: Triton kernels, a constant number of launches per batch, and no wait for the device.

Same functions as `kernels.reference`. A sampled rule gets exactly `wanted` elements, because an exact threshold
costs no more here than a sampled one: its count then lies between the rule's bounds too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ssfx.compressors.kernels.interface import DGC, READY, Moments, Rule, Tail
from ssfx.compressors.kernels.reference.blocks import block_norms as block_norms
from ssfx.compressors.kernels.reference.blocks import largest_of_chunks as largest_of_chunks
from ssfx.compressors.kernels.reference.blocks import take_blocks as take_blocks
from ssfx.compressors.kernels.triton import compact as compaction
from ssfx.compressors.kernels.triton import memory, statistics
from ssfx.compressors.kernels.triton import select as selection
from ssfx.core import accelerator
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ssfx.wire.batch import Batch

_TILE = 1024
_OPTIONS = {"num_warps": 16, "enable_fp_fusion": False}
"""16 warps: with 8, a block's addresses take so many registers that a processor holds only one program. No fused
multiply-add: accumulated gradients are then those of the CPU kernels, bit for bit."""
_WRITE_OPTIONS = _OPTIONS | {"num_warps": 8, "maxnreg": 128}
"""Writing takes more registers than two programs of 16 warps have in a processor. With 8 warps and 128 registers a
processor holds two; left alone, the assembler takes up to 188 where momentum is masked, and one program is all."""


def _narrow_options(bins: int) -> dict[str, Any]:
    """Return options with which every thread has a bin of its own."""
    return _OPTIONS | {"num_warps": min(16, bins // 32)}


def select(batch: Batch, rule: Rule, thresholds: torch.Tensor | None = None) -> None:
    """Every segment's slots hold what `rule` selects, ascending, then zeros; gradients are accumulated on the way.

    `thresholds` [S]: magnitudes that are selected; without them exactly `wanted` elements of each segment are. A NaN or
    Inf is always selected, so the payload tells every receiver.
    """
    work: _Selection = batch.once("select", lambda: _selection(batch, rule))
    thresholds = thresholds.contiguous() if thresholds is not None else None
    with accelerator.device_of(batch.vector):
        source = _source(batch)
        given = thresholds is not None
        grid, blocks, counters = work.plan.grid, work.plan.blocks, (work.segments, work.state, work.histogram)
        digits = selection.digits(selection.DIGITS)
        selection.accumulate_and_count[grid](
            blocks, *counters, thresholds, *source.arguments, FORM=source.form, GIVEN=given, **digits[0], **_OPTIONS
        )
        for digit in digits:
            first = digit is digits[0]
            levels = thresholds if first else None
            if given or not first:
                selection.count_digits[grid](blocks, *counters, levels, batch.vector, FIRST=first, **digit, **_OPTIONS)
            selection.narrow[(len(batch.parts),)](
                *counters,
                levels,
                FIRST=first,
                GIVEN=given and first,
                ROTATE=given and first and rule.rotate,
                **digit,
                **_narrow_options(digit["BINS"]),
            )
        _compact(batch, work, rotate=rule.rotate)


def moments(batch: Batch) -> Moments:
    """Return the sums over every segment; gradients are accumulated on the way."""
    plan = _plan(batch)
    with accelerator.device_of(batch.vector):
        source = _source(batch)
        partial = plan.partial(5)
        statistics.moments[plan.grid](
            plan.blocks, *source.arguments[:5], partial, *source.arguments[5:], FORM=source.form, **_OPTIONS
        )
        total, square, absolute, nonzero, largest = plan.add_up(partial, statistics.LARGEST)
    return Moments(total, square, absolute, largest, nonzero)


def count(batch: Batch, thresholds: torch.Tensor) -> torch.Tensor:
    """Return how many magnitudes of each segment reach its threshold, a float32 number; 0 where it is NaN."""
    plan = _plan(batch)
    with accelerator.device_of(batch.vector):
        partial = plan.partial(1)
        statistics.tails[plan.grid](plan.blocks, batch.vector, thresholds.contiguous(), partial, SUMS=False, **_OPTIONS)
        return plan.add_up(partial, statistics.SUM)[0]


def tail(batch: Batch, thresholds: torch.Tensor) -> Tail:
    """Return sums over what reaches each segment's threshold, a float32 number; of nothing where it is NaN."""
    plan = _plan(batch)
    with accelerator.device_of(batch.vector):
        partial = plan.partial(4)
        statistics.tails[plan.grid](plan.blocks, batch.vector, thresholds.contiguous(), partial, SUMS=True, **_OPTIONS)
        return Tail(*plan.add_up(partial, statistics.SMALLEST))


def select_band(batch: Batch, sure: torch.Tensor, band: torch.Tensor, skip: torch.Tensor) -> None:
    """Every segment's slots hold what reaches `sure`, filled up from what reaches `band`, ascending, then zeros.

    Of what reaches only `band` the first `skip` are passed over. All [S]; thresholds are float32 numbers.
    """
    work: _Selection = batch.once("select_band", lambda: _selection(batch, None))
    with accelerator.device_of(batch.vector):
        compaction.band[(len(batch.parts),)](
            work.state, sure.contiguous(), band.contiguous(), skip.contiguous(), **_OPTIONS
        )
        _compact(batch, work, rotate=False)


def _compact(batch: Batch, work: _Selection, rotate: bool) -> None:
    """Write what the state says is chosen; it leaves the memory if values are not rounded and the memory agrees."""
    plan, payload, vector = work.plan, batch.payload, batch.vector
    form = batch.memory.form if batch.memory is not None else None
    clear = form is not None and form.clear and payload.values.dtype == torch.float32
    momentum = list(batch.new.values())[-1]
    compaction.count_chosen[plan.grid](
        plan.blocks, work.segments, work.state, vector, work.before, batch.step, ROTATE=rotate, **_OPTIONS
    )
    compaction.offsets[(len(batch.parts),)](
        work.segments, work.state, work.before, payload.counts, TILE=_TILE, **_OPTIONS
    )
    compaction.write[plan.grid](
        plan.blocks,
        work.segments,
        work.state,
        work.before,
        vector,
        momentum,
        payload.indices,
        payload.values,
        batch.step,
        batch.base,
        ROTATE=rotate,
        CLEAR=clear,
        MASK=clear and form is not None and form.kind == DGC,
        **_WRITE_OPTIONS,
    )
    batch.cleared = clear


@dataclass
class _Plan:
    """Which elements each program handles, and which programs belong to each segment [S, 2]."""

    blocks: torch.Tensor
    spans: torch.Tensor

    @property
    def grid(self) -> tuple[int]:
        return (len(self.blocks),)

    def partial(self, columns: int) -> torch.Tensor:
        return torch.empty(columns, len(self.blocks), dtype=torch.float64, device=self.blocks.device)

    def add_up(self, partial: torch.Tensor, last: Any) -> torch.Tensor:
        """Return [columns, S] from what the blocks wrote."""
        out = partial.new_empty(len(partial), len(self.spans))
        statistics.add_up[(len(self.spans),)](
            self.spans, partial, out, partial.shape[1], COLUMNS=len(partial), LAST=last.value, TILE=_TILE, **_OPTIONS
        )
        return out


def _plan(batch: Batch) -> _Plan:
    def make() -> _Plan:
        size = memory.BLOCK.value
        blocks: list[tuple[int, int, int, int]] = []
        spans = []
        piece = 0
        for segment, part in enumerate(batch.parts):
            first = len(blocks)
            for lo, hi in part.pieces:
                blocks += [(start, min(start + size, hi), piece, segment) for start in range(lo, hi, size)]
                piece += 1
            if len(blocks) == first:  # an empty segment has slots to fill, too
                blocks.append((part.lo, part.lo, 0, segment))
            spans.append((first, len(blocks) - first))
        device = batch.vector.device
        return _Plan(_table(blocks, device), _table(spans, device))

    made: _Plan = batch.once("plan", make)
    return made


@dataclass
class _Selection:
    """Tables with the columns of `select`, and its histogram [S, bins] and block counts [B, 2]."""

    plan: _Plan
    segments: torch.Tensor
    state: torch.Tensor
    histogram: torch.Tensor
    before: torch.Tensor


def _selection(batch: Batch, rule: Rule | None) -> _Selection:
    plan, device = _plan(batch), batch.vector.device
    rows = []
    for i, (part, (first, number)) in enumerate(zip(batch.parts, plan.spans.tolist(), strict=True)):
        slots = min(part.layout.indices, part.layout.values)
        bound = rule.bounds[i] if rule else (0, 0, 0)
        if max(bound) > slots:
            raise ValueError(f"a segment with {slots} slots cannot take {max(bound)} elements")
        counted = part.starts.counts if part.layout.counts else -1
        floor = 0 if rule and rule.zeros else 1
        rows.append((part.numel, part.lo, part.starts.indices, slots, *bound, floor, counted, first, number))

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    state = zeros(len(rows), selection.STATE_COLUMNS.value)
    bins = zeros(len(rows) if rule else 0, 1 << max(selection.DIGITS))
    return _Selection(plan, _table(rows, device), state, bins, zeros(len(plan.blocks), 2))


@dataclass
class _Source:
    """Where a step's gradients and memory are, as `accumulate_and_count` takes them, and the kind of the memory.

    `grads` live until the kernel that reads their addresses is queued; after that the device works in order.
    """

    arguments: tuple[Any, ...]
    form: int
    grads: Sequence[torch.Tensor | None]


def _source(batch: Batch) -> _Source:
    """Return where the kernels find the batch's gradients, which count as accumulated from now on.

    A gradient that the kernels cannot read, or a memory that they do not know, is accumulated here instead.
    """
    types = {torch.float32: memory.FLOAT32, torch.float16: memory.FLOAT16, torch.bfloat16: memory.BFLOAT16}
    form = batch.memory.form if batch.memory is not None else None
    given, grads = batch.grads, list(batch.grads)
    rows = [(0, memory.NOTHING.value)] * len(grads)
    for i, ((lo, _), grad) in enumerate(zip(batch.pieces, grads, strict=True)):
        if grad is not None and form is not None and grad.dtype in types and grad.is_contiguous():
            # counted from where the flat vector begins, so that both have the same positions
            rows[i] = (grad.data_ptr() - lo * grad.element_size(), types[grad.dtype].value)
            grads[i] = None
    batch.grads = grads
    batch.accumulate()
    new, *new_more = batch.new.values()
    old, *old_more = batch.old.values() or (new,)
    momenta = (new_more[0] if new_more else new, old_more[0] if old_more else old)
    queued = any(type_ != memory.NOTHING.value for _, type_ in rows)
    sources = _table(rows, new.device, torch.int64) if queued else None
    decay, gain = (form.decay, form.gain) if form is not None else (0.0, 0.0)
    kind = form.kind if form and queued else READY
    return _Source((sources, new, old, *momenta, decay, gain), kind, given)


def _table(rows: Sequence[tuple[int, ...]], device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return rows of integers on the device; the copy is queued, not waited for."""
    made = torch.tensor(rows, dtype=dtype or torch.int32, pin_memory=accelerator.queued(device))
    return made.to(device, non_blocking=True)
