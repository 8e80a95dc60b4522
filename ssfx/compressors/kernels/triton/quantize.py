"""Quantising codecs on CUDA: one launch encodes all segments of a batch, one adds up the payloads of all ranks.

Same functions and results as `kernels.reference.pack`, which takes what a tile cannot hold: buckets of more than
LARGEST_BUCKET elements or of a whole segment, and rotated blocks that buckets cut; signs of whole segments, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ssfx.compressors.kernels.reference import pack as reference
from ssfx.compressors.kernels.reference.pack import add_signs as add_signs
from ssfx.compressors.kernels.reference.pack import scaled_signs as scaled_signs
from ssfx.compressors.kernels.reference.pack import signed_votes as signed_votes
from ssfx.compressors.kernels.reference.pack import signs as signs
from ssfx.compressors.kernels.triton import codes
from ssfx.core import accelerator
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.compressors.kernels.interface import Coding, Rows
    from ssfx.wire.batch import Batch
    from ssfx.wire.payload import Payload

TILE = 2048
"""Elements of one program, at least."""
KINDS = ("levels", "fp8", "means")
OPTIONS = {"num_warps": 8, "maxnreg": 128, "enable_fp_fusion": False}
"""No fused multiply-add: results are then those of the CPU kernels, bit for bit."""


def encode(batch: Batch, coding: Coding, rows: Rows | None = None, *, takes: bool = False) -> None:
    """Scales and codes of every segment, as `coding` says; `takes`: the vector is left with what was not sent.

    With `rows`, a batch of one segment encodes their sum in the place of its vector, and what is not sent of the sum is
    added to the vector.
    """
    if not coding.fits:
        reference.encode(batch, coding, rows, takes=takes)
        return
    batch.accumulate()
    blocks, segments = batch.once(f"codes of {coding}", lambda: _tables(batch, coding))
    payload = batch.payload
    arrived: tuple[Any, ...] = (payload.codes, 0, 0, 0)
    if rows is not None:
        arrived = rows.data, rows.data.shape[1], rows.codes_at, len(rows.data)
    noise = _signed(batch.seed), batch.step, batch.rank
    fixed = constants(coding) | rounding(coding) | {"ROWS": rows is not None, "TAKES": takes} | OPTIONS
    if len(blocks):
        with accelerator.device_of(batch.vector):
            codes.encode[(len(blocks),)](
                *(blocks, segments, batch.vector, payload.scales, payload.codes, *arrived, *noise, coding.unit(1.0)),
                **fixed,
            )


def add(payload: Payload, coding: Coding, out: torch.Tensor, scale: float = 1.0) -> None:
    """Add `scale` times what a payload stands for to `out`."""
    if coding.fits:
        _add(payload.scales, payload.codes, 0, 1, coding, out, coding.unit(scale), fresh=False)
    else:
        reference.add(payload, coding, out, scale)


def add_rows(rows: Rows, coding: Coding, out: torch.Tensor, *, fresh: bool = False) -> None:
    """Add what the payloads stand for to `out`, one after the other; `fresh`: to zeros in its place."""
    if coding.fits:
        data = rows.data
        scales, behind = data.view(-1).view(torch.float32), data.view(-1)[rows.codes_at :]
        _add(scales, behind, data.shape[1], len(data), coding, out, coding.unit(1.0), fresh=fresh)
    else:
        reference.add_rows(rows, coding, out, fresh=fresh)


def _add(
    scales: torch.Tensor,
    packed: torch.Tensor,
    row_bytes: int,
    count: int,
    coding: Coding,
    out: torch.Tensor,
    unit: float,
    *,
    fresh: bool,
) -> None:
    fixed = constants(coding)
    buckets = fixed["TILE"] // fixed["WIDTH"]
    tiles = -(-out.numel() // (buckets * coding.bucket))
    if tiles:
        with accelerator.device_of(out):
            codes.add[(tiles,)](
                scales, packed, row_bytes, count, out.numel(), unit, out, FRESH=fresh, **fixed, **OPTIONS
            )


def rounding(coding: Coding) -> dict[str, Any]:
    """Return what only encoding needs to know of a coding when it is compiled."""
    return {"TOP": coding.top, "LARGEST": coding.largest, "NEAREST": coding.nearest}


def constants(coding: Coding) -> dict[str, Any]:
    """Return what kernels need to know of a coding when they are compiled."""
    return {
        "KIND": KINDS.index(coding.kind),
        "BITS": coding.bits,
        "OFFSET": coding.offset,
        "BUCKET": coding.bucket,
        "WIDTH": coding.width,
        "TILE": max(TILE // 2 if coding.rotation else TILE, coding.width),  # rotating takes registers
        "ROTATION": coding.rotation,
        "UNIT": (coding.rotation or 1) ** -0.5,
    }


def _tables(batch: Batch, coding: Coding) -> tuple[torch.Tensor, torch.Tensor]:
    """Return segment and first bucket of every tile, int32 [B, 2], and the segments, int64 [S, 5]."""
    buckets = constants(coding)["TILE"] // coding.width
    parts = [part for part in batch.parts if part.numel]
    blocks = [
        (number, first)
        for number, part in enumerate(parts)
        for first in range(0, -(-part.numel // coding.bucket), buckets)
    ]
    rows = [(p.lo, p.numel, p.starts.scales, p.starts.codes, _signed(p.tensor_id)) for p in parts]
    on = batch.vector.device
    return (
        torch.tensor(blocks, dtype=torch.int32).view(-1, 2).to(on, non_blocking=True),
        torch.tensor(rows, dtype=torch.int64).view(-1, 5).to(on, non_blocking=True),
    )


def _signed(number: int) -> int:
    """Return the number from -2^63 to 2^63 - 1 that equals `number` in 64-bit arithmetic."""
    low = number & ((1 << 64) - 1)
    return low - (1 << 64) if low >> 63 else low
