"""Measuring compressors: one call as a lane makes it, and decoding as a lane does it, over sizes.

The time of a call is that of its thread's CPU, times how many ranks there are for each core: it counts waiting for
memory, not waiting for a core that something else has. A call is made where backward makes it, between two layers, on
gradients that were just written and on a memory that was not touched for a step; decoding where nothing but decoding
goes on, into memory that was not touched either.

Before every call, caches are left as a backward pass leaves them. In training, the runtime's code and a compressor's
run between the kernels of a model's layers. These leave little of them in a core's caches, translation buffers and
branch history, for any data: a call that takes 20 microseconds in a loop takes 150 between two layers. Reading much
other memory makes the data cold, but not the code. Data is cold, too, when it was not touched for a whole step, as the
memory of error feedback: a step moves more than the largest cache holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from time import thread_time

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import Compressor, build
from ssfx.compressors.batch import Batch
from ssfx.compressors.blank import blank_batch, run
from ssfx.compressors.memories import memories
from ssfx.core import accelerator, machine

_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_INPUTS = (16, 16, 28, 28)
_LAST_CACHE_BYTES = 32 * 2**20
"""Of a machine that does not say."""


def cold_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` takes this thread right after a layer's forward and backward pass."""
    between_layers()
    return cpu_s(work)


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` takes this thread."""
    began = thread_time()
    work()
    return thread_time() - began


def between_layers() -> None:
    """Caches are those of a thread that has just run a convolutional layer, of some megabytes of activations."""
    layer, inputs = _layer()
    with torch.enable_grad():
        layer(inputs).sum().backward()


def forget_data() -> None:
    """No cache holds what was touched before: as much other memory as the largest one has was read."""
    _other().sum()


@cache
def _layer() -> tuple[torch.nn.Module, torch.Tensor]:
    width = _INPUTS[1]
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()
    )
    return layer, torch.zeros(_INPUTS, dtype=torch.float32, requires_grad=True)


@cache
def _other() -> torch.Tensor:
    try:
        size = 2**10 * int(_LAST_CACHE.read_text().strip().removesuffix("K"))
    except (OSError, ValueError):
        size = _LAST_CACHE_BYTES
    return torch.ones(size // 4, dtype=torch.float32)


SIZES = tuple(2**power for power in range(8, 25, 2))
SEGMENTS, SEGMENT_NUMEL = 64, 2**12
_BUDGET_S = 0.06
_MOST_CALLS = 31
Points = list[tuple[float, float]]
Shapes = list[tuple[int, ...]]
Call = Callable[[], object]
Timed = Callable[[Call], float]
"""Makes a call and returns its CPU seconds."""


@dataclass(frozen=True)
class CodecPoints:
    """Seconds of one compressor: encode over units of `Compressor.work`, decode over entries; both (size, seconds).

    segment_s: what each further segment of a call adds; piece_s: what each further piece of a segment adds, 0 if
    segments have but one; tensor_s: what each further tensor of a segment adds that is no piece.
    """

    encode: Points
    decode: Points
    segment_s: float
    piece_s: float
    tensor_s: float


def crowding(ranks: int) -> float:
    """Return by how much a rank's computing takes longer because several ranks share a core; at least 1."""
    return max(1.0, ranks / machine.cores())


def codec_points(spec: str, density: float, comm: Comm, max_numel: int = SIZES[-1]) -> CodecPoints:
    """Return the times of a compressor at `density` with residual memory where it may have one, equal on all ranks.

    They are those of the device of `comm`: of the thread on the CPU, between two events elsewhere.
    """
    compressor = build(spec)
    sizes = [numel for numel in SIZES if numel <= max_numel]
    encode, decode = [], []
    for numel in sizes:
        shape = _matrix(numel)
        batch, call, timed = _call(compressor, [[shape]], density, comm.device)
        encode.append((compressor.work([shape]), _shared_s(comm, call, timed)))
        entries, call = _decoding(compressor, batch, comm.world_size)
        decode.append((entries, _shared_s(comm, call, _timer(comm.device, _after_reading_s))))
    return CodecPoints(encode, decode, **_further_s(compressor, density, comm))


def _further_s(compressor: Compressor, density: float, comm: Comm) -> dict[str, float]:
    """Return segment_s, piece_s and tensor_s: what cutting the same elements into SEGMENTS of them adds to a call."""

    def took_s(segments: list[Shapes]) -> float:
        return _shared_s(comm, *_call(compressor, segments, density, comm.device)[1:])

    part, whole = _matrix(SEGMENT_NUMEL), _matrix(SEGMENTS * SEGMENT_NUMEL)
    matrix_s = took_s([[whole]])
    several = compressor.pieces([part] * SEGMENTS) > 1
    # No vector is a piece: where matrices are, vectors are what else there is.
    vectors: Shapes = [(SEGMENT_NUMEL,)] * SEGMENTS if several else [part] * SEGMENTS
    vector_s = took_s([[(SEGMENTS * SEGMENT_NUMEL,)]]) if several else matrix_s
    more = {
        "segment_s": took_s([[part]] * SEGMENTS) - matrix_s,
        "piece_s": took_s([[part] * SEGMENTS]) - matrix_s if several else 0.0,
        "tensor_s": took_s([vectors]) - vector_s,
    }
    return {name: max(0.0, seconds / (SEGMENTS - 1)) for name, seconds in more.items()}


def _call(
    compressor: Compressor, segments: list[Shapes], density: float, device: torch.device
) -> tuple[Batch, Call, Timed]:
    """Return a batch of segments of tensors with these shapes, and the call that takes its gradients to the payload.

    The third is how to time it: with the gradients in the caches, but not the memory.
    """
    keeps = compressor.error_feedback and not compressor.lossless
    batch = blank_batch(compressor, segments, density, memories.build("residual" if keeps else "none"), device)
    shapes = [shape for segment in segments for shape in segment]
    generator = torch.Generator(device).manual_seed(len(shapes))
    # Heavy tails, as gradients have; residuals of earlier steps have none.
    grads = [
        torch.randn(math.prod(shape), dtype=torch.float32, generator=generator, device=device).pow_(3)
        for shape in shapes
    ]
    for buffer in batch.old.values():
        buffer.normal_(generator=generator)

    def call() -> None:
        batch.grads = list(grads)
        run(batch, compressor)

    def timed(call: Call) -> float:
        forget_data()
        for grad in grads:
            grad.mul_(1)
        return cold_s(call)

    return batch, call, _timer(device, timed)


def _decoding(compressor: Compressor, batch: Batch, ranks: int) -> tuple[float, Call]:
    """Return the entries of what all ranks sent, and the call that adds it up as a lane does."""
    payload, part = batch.payload, batch.parts[0]
    out = torch.zeros(part.numel, dtype=torch.float32, device=batch.payload.values.device)
    context = batch.context(part)
    if compressor.sparse:

        def sparse() -> None:
            for _ in range(ranks):
                out.index_add_(0, payload.indices, payload.values.float().mul_(1 / ranks))

        return float(ranks * len(payload.indices)), sparse
    copies = 1 if compressor.additive else ranks

    def dense() -> None:
        if compressor.additive:
            compressor.received(payload, context)
        for _ in range(copies):
            compressor.decompress_add(payload, out, context, scale=1 / ranks)

    return copies * compressor.work(part.shapes), dense


def _shared_s(comm: Comm, call: Call, timed: Timed) -> float:
    """Return the seconds of a call while all ranks make the same, as the mean over ranks of their medians."""
    call()
    comm.all_reduce(torch.zeros(1, dtype=torch.float32, device=comm.device)).wait()
    times: list[float] = []
    while len(times) < 3 or (len(times) < _MOST_CALLS and sum(times) < _BUDGET_S):
        times.append(timed(call))
    shared = 1.0 if accelerator.queued(comm.device) else crowding(comm.world_size)
    own_s = shared * median(times)
    found = torch.tensor([own_s], dtype=torch.float64, device=comm.device)
    return float(comm.all_reduce(found).wait()) / comm.world_size


def _timer(device: torch.device, on_cpu: Timed) -> Timed:
    """Return how calls on `device` are timed: `on_cpu`, or by the clock of its stream where work is queued."""
    if not accelerator.queued(device):
        return on_cpu

    def timed(call: Call) -> float:
        accelerator.wait(device)
        start = accelerator.event(device, timed=True)
        call()
        return accelerator.seconds(start, accelerator.event(device, timed=True))

    return timed


def _after_reading_s(call: Call) -> float:
    forget_data()
    return cpu_s(call)


def _matrix(numel: int) -> tuple[int, int]:
    """Return the shape of about a square, which low-rank compressors need."""
    side = 1 << (numel.bit_length() - 1) // 2
    return side, numel // side
