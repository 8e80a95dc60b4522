"""What real GPUs took, shipped with the package: nominal times are held against it, and no simulation uses it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ssfx.core.errors import unknown
from ssfx.core.files import loads, read
from ssfx.core.origin import Origin
from ssfx.core.paths import data_dir
from ssfx.core.typed import typed

Points = tuple[tuple[float, float], ...]
"""A value by size, ascending."""


@dataclass(frozen=True)
class MeasuredStep:
    """One eager training step of a model on one GPU that exchanged nothing."""

    model: str
    precision: str
    batch_size: int
    optimizer: str
    wall_ms: float
    """Milliseconds of a plain step."""
    host_ms: float
    """Milliseconds until the host had issued it."""
    busy_ms: float
    """Milliseconds in which the GPU ran anything."""
    kernels: int
    """Kernels that the step launched."""
    profiled_wall_ms: float
    """Milliseconds of the same step in another process, as `ssfx profile` times it, with a hook for each gradient."""

    @property
    def host_bound(self) -> bool:
        """True when the host takes longer to issue the step than the GPU to compute it."""
        return self.host_ms > self.busy_ms


@dataclass(frozen=True)
class MeasuredCompressor:
    """Seconds of one compressor, as `CodecPoints` has them: work units and entries with seconds."""

    encode: Points
    decode: Points
    segment_s: float
    piece_s: float
    tensor_s: float


@dataclass(frozen=True)
class MeasuredKernels:
    """Times of benchmarks/gpu_kernels.py with one version of Triton, as multiples of a copy of the same vector."""

    triton: str
    code: str
    """Which code of ssfx it was."""
    copy_gb_s: Points
    """Elements, and GB/s of what a copy reads and writes; empty where it was not noted."""
    copies: Mapping[str, Points]
    """Operation -> elements, and how many copies it takes."""


@dataclass(frozen=True)
class MeasuredTraining:
    """Iterations of a training on one rank, which exchanges only with itself."""

    model: str
    scheme: str
    precision: str
    batch_size: int
    iteration_ms: float
    """Median milliseconds; p10_ms and p90_ms are what a tenth of the iterations undercut and exceeded."""
    p10_ms: float
    p90_ms: float


@dataclass(frozen=True)
class MeasuredGpu:
    """What one GPU of one machine took."""

    origin: Origin
    commits: tuple[str, ...]
    """Of ssfx, as the origin's note assigns them."""
    sheet: str
    """The data sheet of the GPU."""
    steps: tuple[MeasuredStep, ...]
    numel: tuple[int, ...]
    """Elements that the points of every compressor are of, in their order."""
    codecs: Mapping[str, MeasuredCompressor]
    """Compressor -> its times at density 0.01."""
    kernels: tuple[MeasuredKernels, ...]
    trainings: tuple[MeasuredTraining, ...]


@cache
def measured_gpu(sheet: str) -> MeasuredGpu:
    """Return what the package has of a GPU with this data sheet; ConfigError where it has nothing."""
    path = data_dir() / "gpus" / f"{sheet}.json"
    if not path.exists():
        raise unknown("measured GPU", sheet, sorted(one.stem for one in path.parent.glob("*.json")))
    return read(path, _from_json)


def _from_json(text: str) -> MeasuredGpu:
    return typed(MeasuredGpu, loads(text))
