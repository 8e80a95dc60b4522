"""Decoding of packed codes on the CPU: unpacked a chunk at a time and added to the output in the same pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.pack import CHUNK, unpack
from ssfx.compressors.kernels.reference.pack import offset_of

if TYPE_CHECKING:
    import torch

    from ssfx.wire.payload import Payload


def add_signs(payload: Payload, low: torch.Tensor, high: torch.Tensor, block: int, out: torch.Tensor) -> None:
    """Add to `out` what each bit stands for: `low` or `high` (float32 [G]) of its block."""
    _add_signs(payload.codes.numpy(), low.numpy(), high.numpy(), block or max(1, out.numel()), out.numpy())


def add_levels(payload: Payload, bits: int, steps: torch.Tensor, bucket: int, out: torch.Tensor) -> None:
    """Add to `out` each level times the step (float32 [G]) of its bucket."""
    size = bucket or max(1, out.numel())
    _add_levels(payload.codes.numpy(), bits, offset_of(bits), steps.numpy(), size, out.numpy())


@compiled()
def _add_signs(codes, lows, highs, size, out):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    n = len(out)
    for g in range(0, n, size):
        end = min(g + size, n)
        low, high = lows[g // size], highs[g // size]
        for start in range(g, end, CHUNK):
            target = out[start : min(start + CHUNK, end)]
            unpack(codes[start // 8 :], 1, waiting[: len(target)])
            for i in range(len(target)):
                target[i] += high if waiting[i] else low


@compiled()
def _add(codes, zero, step, target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] += np.float32(np.int32(np.int32(codes[i]) - zero)) * step


@compiled()
def _add_levels(codes, bits, offset, steps, size, out):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    signed, zero = codes.view(np.int8), np.int32(offset)
    n = len(out)
    for g in range(0, n, size):
        end, step = min(g + size, n), steps[g // size]
        if bits == 8:
            _add(signed[g:end], zero, step, out[g:end])
            continue
        for start in range(g, end, CHUNK):
            target = out[start : min(start + CHUNK, end)]
            unpack(codes[start * bits // 8 :], bits, waiting[: len(target)])
            _add(waiting, zero, step, target)
