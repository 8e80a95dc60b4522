"""Triton: whole buckets to scales and packed codes and back, each in one pass over memory.

A program has a tile of buckets, one in each row, in its registers: it finds their scales, rounds, packs, and takes out
of the vector what the codes stand for. Its input is the vector, or the sum of rows that arrived. Divisions are IEEE's,
so that results are those of the CPU bit for bit. Source: D-8, D-25.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ssfx.compressors.kernels import interface
from ssfx.compressors.kernels.reference import pack as reference

LO = tl.constexpr(0)
NUMEL = tl.constexpr(1)
SCALE = tl.constexpr(2)
CODE = tl.constexpr(3)
TENSOR = tl.constexpr(4)
COLUMNS = tl.constexpr(5)
"""Columns of the segment table, int64 [S, 5]: numbers, scales and codes begin there; the last is the noise's tensor."""
LEVELS = tl.constexpr(0)
FP8 = tl.constexpr(1)
MEANS = tl.constexpr(2)
LARGEST_KEY = tl.constexpr(0x7F7FFFFF)
MAGNITUDE = tl.constexpr(0x7FFFFFFF)
MOST = tl.constexpr(3.4028234663852886e38)
ULPS = tl.constexpr(8388608.0)
"""2^23: added to a number from 0 to 2^22 and subtracted again, it rounds to an integer, to even from the middle."""
LARGEST_FP8 = tl.constexpr(interface.LARGEST_FP8)
SMALLEST_SCALE = tl.constexpr(interface.SMALLEST_SCALE)
FIRST = tl.constexpr(reference.FIRST)
SECOND = tl.constexpr(reference.SECOND)
RESOLUTION = tl.constexpr(reference.RESOLUTION)


@triton.jit
def _splitmix64(z):
    z += tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    z = (z ^ (z >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
    z = (z ^ (z >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)
    return z ^ (z >> 31)


@triton.jit
def _noise(seed, tensor, step, rank, position):
    """Return numbers in [0, 1) that depend on a position and on the key of a tensor at a step and rank."""
    key = _splitmix64(seed.to(tl.int64).to(tl.uint64, bitcast=True) ^ tensor.to(tl.uint64, bitcast=True))
    key = _splitmix64(key ^ step.to(tl.int64).to(tl.uint64, bitcast=True))
    key = _splitmix64(key ^ rank.to(tl.int64).to(tl.uint64, bitcast=True))
    x = position.to(tl.uint32) + key.to(tl.uint32)
    x = (x ^ (x >> 16)) * tl.full([], FIRST, tl.uint32)
    x = x ^ (key >> 32).to(tl.uint32)
    x = (x ^ (x >> 15)) * tl.full([], SECOND, tl.uint32)
    return (x >> 8).to(tl.int32).to(tl.float32) * RESOLUTION


@triton.jit
def _rotated(a, position, n, BUCKET: tl.constexpr, TILE: tl.constexpr, ROTATION: tl.constexpr, UNIT: tl.constexpr):
    """Return blocks of ROTATION neighbours times the orthogonal Hadamard matrix; a shorter last one stays."""
    x = tl.reshape(a, [TILE])
    for power in tl.static_range(7):
        if (1 << power) < ROTATION:
            pairs = tl.permute(tl.reshape(x, [TILE >> (power + 1), 2, 1 << power]), (0, 2, 1))
            left, right = tl.split(pairs)
            x = tl.reshape(tl.permute(tl.join(left + right, left - right), (0, 2, 1)), [TILE])
    turned = tl.reshape(x * UNIT, [TILE // BUCKET, BUCKET])
    return tl.where(position < n // ROTATION * ROTATION, turned, a)


@triton.jit
def _number(code, high, low, step, KIND: tl.constexpr, OFFSET: tl.constexpr):
    """Return what codes stand for: `step` times a level or an e4m3 number, or `high` or `low`."""
    if KIND == MEANS:
        found = tl.where(code > 0, high, low)
    elif KIND == FP8:
        exponent = tl.maximum((code >> 3) & 15, 1)
        units = (code & 127) - ((exponent - 1) << 3)
        number = units.to(tl.float32) * ((exponent + 117) << 23).to(tl.float32, bitcast=True)
        found = tl.where((code & 128) > 0, -number, number) * step
    else:
        found = (code - OFFSET).to(tl.float32) * step
    return found


@triton.jit
def _decoded(
    scales,
    codes,
    row,
    position,
    exists,
    n,
    unit,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    OFFSET: tl.constexpr,
    BUCKET: tl.constexpr,
    TILE: tl.constexpr,
    ROTATION: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Return `unit` times what the codes of a tile stand for; 0 where there are none."""
    byte = tl.load(codes + position * BITS // 8, mask=exists, other=0).to(tl.int32)
    code = byte
    if BITS < 8:
        code = (byte >> (8 - BITS - position % (8 // BITS) * BITS).to(tl.int32)) & ((1 << BITS) - 1)
    elif KIND == LEVELS:
        code = tl.where(byte > 127, byte - 256, byte)
    there = row * BUCKET < n
    if KIND == MEANS:
        low, high = tl.load(scales + 2 * row, mask=there) * unit, tl.load(scales + 2 * row + 1, mask=there) * unit
        found = _number(code, high, low, low, KIND, OFFSET)
    else:
        step = tl.load(scales + row, mask=there) * unit
        found = _number(code, step, step, step, KIND, OFFSET)
    found = tl.where(exists, found, 0.0)
    if ROTATION:
        found = _rotated(found, position, n, BUCKET, TILE, ROTATION, UNIT)
    return found


@triton.jit
def _tile(first, n, BUCKET: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Return the buckets of a tile, one in each row, the positions of its elements, and which of them exist."""
    row = (first + tl.arange(0, TILE // WIDTH))[:, None].to(tl.int64)
    column = tl.arange(0, WIDTH)[None, :]
    position = row * BUCKET + column
    return row, position, (column < BUCKET) & (position < n)


@triton.jit(do_not_specialize=["seed", "step", "rank", "count", "row_bytes", "codes_at"])
def encode(
    blocks,
    table,
    vector,
    scales,
    codes,
    rows,
    row_bytes,
    codes_at,
    count,
    seed,
    step,
    rank,
    sum_unit,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    TOP: tl.constexpr,
    OFFSET: tl.constexpr,
    BUCKET: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    ROTATION: tl.constexpr,
    UNIT: tl.constexpr,
    LARGEST: tl.constexpr,
    NEAREST: tl.constexpr,
    ROWS: tl.constexpr,
    TAKES: tl.constexpr,
):
    """Write scales and codes of a tile of `blocks` [B, 2], segment and first bucket; see `kernels.reference.pack`."""
    segment = table + tl.load(blocks + 2 * tl.program_id(0)) * COLUMNS
    n = tl.load(segment + NUMEL)
    row, position, exists = _tile(tl.load(blocks + 2 * tl.program_id(0) + 1), n, BUCKET, WIDTH, TILE)
    vector += tl.load(segment + LO)
    if ROWS:
        a = tl.zeros([TILE // WIDTH, WIDTH], tl.float32)
        for r in range(count):
            of = (rows + r * row_bytes).to(tl.pointer_type(tl.float32))
            at = rows + r * row_bytes + codes_at
            a += _decoded(of, at, row, position, exists, n, sum_unit, KIND, BITS, OFFSET, BUCKET, TILE, ROTATION, UNIT)
    else:
        a = tl.load(vector + position, mask=exists, other=0.0)
    x = a
    if ROTATION:
        x = _rotated(a, position, n, BUCKET, TILE, ROTATION, UNIT)
    key = tl.where(exists, x.to(tl.int32, bitcast=True) & MAGNITUDE, 0)
    largest = tl.max(key, 1, keep_dims=True)
    finite = largest <= LARGEST_KEY
    there = row * BUCKET < n
    scales += tl.load(segment + SCALE)
    nan = float("nan")
    if KIND == MEANS:
        high, wide = exists & (x >= 0), x.to(tl.float64)
        number = tl.sum(high.to(tl.int32), 1, keep_dims=True)
        others = tl.sum(exists.to(tl.int32), 1, keep_dims=True) - number
        above = tl.sum(tl.where(high, wide, 0.0), 1, keep_dims=True) / tl.maximum(number, 1).to(tl.float64)
        below = tl.sum(tl.where(high | (exists == 0), 0.0, wide), 1, keep_dims=True)
        below = below / tl.maximum(others, 1).to(tl.float64)
        scale, other = tl.where(finite, above.to(tl.float32), nan), tl.where(finite, below.to(tl.float32), nan)
        tl.store(scales + 2 * row, other, mask=there)
        tl.store(scales + 2 * row + 1, scale, mask=there)
        code = high.to(tl.int32)
    else:
        norm = largest.to(tl.float32, bitcast=True)
        if KIND == LEVELS and not LARGEST:
            wide = tl.where(exists, x, 0.0).to(tl.float64)
            norm = tl.sqrt(tl.sum(wide * wide, 1, keep_dims=True)).to(tl.float32)
            finite = finite & ((norm.to(tl.int32, bitcast=True) & MAGNITUDE) <= LARGEST_KEY)
        if KIND == FP8:
            scale = tl.maximum(tl.div_rn(norm, tl.full(norm.shape, LARGEST_FP8, tl.float32)), SMALLEST_SCALE)
            scaled = tl.div_rn(x, tl.broadcast_to(scale, x.shape)).to(tl.int32, bitcast=True)
            magnitude = scaled & MAGNITUDE
            exponent = tl.maximum(magnitude >> 23, 121)
            per_unit = ((257 - exponent) << 23).to(tl.float32, bitcast=True)
            units = (magnitude.to(tl.float32, bitcast=True) * per_unit + ULPS) - ULPS
            code = (((exponent - 121) << 3) + units.to(tl.int32)) | ((scaled >> 24) & 128)
            code = tl.where(exists & finite, code, 0)
        else:
            scale, whole = norm, norm.to(tl.float64)
            per_unit = tl.minimum(TOP / tl.where(norm > 0, whole, 1.0), MOST).to(tl.float32)
            exact = tl.abs(x) * tl.where(norm > 0, per_unit, 0.0)
            below = tl.floor(exact)
            if NEAREST:
                up = exact - below > 0.5
            else:
                up = _noise(seed, tl.load(segment + TENSOR), step, rank, position) < exact - below
            level = tl.minimum(below + up.to(tl.float32), TOP)
            level = tl.where(exists & finite, level, 0.0).to(tl.int32)
            code = tl.where(x < 0, -level, level) + OFFSET
        scale, other = tl.where(finite, scale, nan), tl.where(finite, scale, nan)
        tl.store(scales + row, scale, mask=there)

    whole = tl.where(exists, code, 0) & 255
    byte, of_byte = whole, position
    if BITS < 8:
        per: tl.constexpr = 8 // BITS
        shift = (8 - BITS - tl.arange(0, per) * BITS)[None, None, :]
        byte = tl.sum(tl.reshape(whole, [TILE // WIDTH, WIDTH // per, per]) << shift, 2)
        of_byte = row * BUCKET + tl.arange(0, WIDTH // per)[None, :] * per
    written = (of_byte < n) & (of_byte < (row + 1) * BUCKET)
    tl.store(codes + tl.load(segment + CODE) + of_byte * BITS // 8, byte.to(tl.uint8), mask=written)
    if TAKES:
        sent = _number(code, scale * -sum_unit, other * -sum_unit, scale * -sum_unit, KIND, OFFSET)
        sent = tl.where(exists, sent, 0.0)
        if ROTATION:
            sent = _rotated(sent, position, n, BUCKET, TILE, ROTATION, UNIT)
        left = a + sent
        if ROWS:
            left += tl.load(vector + position, mask=exists, other=0.0)
        tl.store(vector + position, left, mask=exists)


@triton.jit(do_not_specialize=["n", "count", "row_bytes", "unit"])
def add(
    scales,
    codes,
    row_bytes,
    count,
    n,
    unit,
    out,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    OFFSET: tl.constexpr,
    BUCKET: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    ROTATION: tl.constexpr,
    UNIT: tl.constexpr,
    FRESH: tl.constexpr,
):
    """Add `unit` times what the codes of every row stand for to a tile of `out`, or FRESH to zeros in its place."""
    n = n.to(tl.int64)
    row, position, exists = _tile(tl.program_id(0) * (TILE // WIDTH), n, BUCKET, WIDTH, TILE)
    if FRESH:  # noqa: SIM108 - one is decided when the kernel is compiled
        a = tl.zeros([TILE // WIDTH, WIDTH], tl.float32)
    else:
        a = tl.load(out + position, mask=exists, other=0.0)
    for r in range(count):
        of = (scales.to(tl.pointer_type(tl.uint8)) + r * row_bytes).to(tl.pointer_type(tl.float32))
        at = codes + r * row_bytes
        a += _decoded(of, at, row, position, exists, n, unit, KIND, BITS, OFFSET, BUCKET, TILE, ROTATION, UNIT)
    tl.store(out + position, a, mask=exists)
