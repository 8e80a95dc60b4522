"""Sizes of low-rank factors of real models: what ACP-SGD and Power-SGD send, and how many buffers it fills."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ssfx.compressors.lowrank import LowRankOptions, split
from ssfx.core.origin import Origin
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, MIB, cap_groups
from ssfx.schemes.search.factor_buffers import buffer_groups, threshold_bytes
from ssfx.simulator import Simulated, simulate

MODELS = {
    "ResNet-50": ("resnet50", 4),
    "ResNet-152": ("resnet152", 4),
    "BERT-Base": ("bert_base_pretraining", 32),
    "BERT-Large": ("bert_large_pretraining", 32),
}
"""Model of the paper -> ours, and the rank that the paper takes for it."""


@dataclass(frozen=True)
class Factors:
    """Elements of a model's tensors, all of them and those of P, of Q and of vectors, tensor by tensor.

    Tensors are in backward order. A vector counts as it is among P and among Q: it travels with both. Every matrix is
    factored, as section IV-C has it, at most at its own rank.
    """

    whole: tuple[int, ...]
    p: tuple[int, ...]
    q: tuple[int, ...]
    vectors: int

    @property
    def numel(self) -> int:
        """Elements of the gradient."""
        return sum(self.whole)

    @property
    def power_ratio(self) -> float:
        """All elements over what Power-SGD sends: P, Q and, once, the vectors."""
        return self.numel / (sum(self.p) + sum(self.q) - self.vectors)

    @property
    def turns_ratio(self) -> float:
        """All elements over what ACP-SGD sends in a step on average: P or Q, and the vectors."""
        return 2 * self.numel / (sum(self.p) + sum(self.q))


@cache
def factors(model: str, rank: int) -> Factors:
    """Return the factors of a shipped model."""
    options = LowRankOptions(rank, min_compression_rate=0)
    tensors = model_work(model).tensors
    parts = [split((spec.shape,), options) for spec in tensors]
    return Factors(
        tuple(spec.numel for spec in tensors),
        tuple(part.left + part.rest for part in parts),
        tuple(part.right + part.rest for part in parts),
        sum(part.rest for part in parts),
    )


def of(name: str, rank: int | None = None) -> Factors:
    """Return the factors of a model of the paper, at its rank there or another."""
    model, own = MODELS[name]
    return factors(model, rank or own)


def mib(elements: float) -> float:
    """Return float32 elements in MiB, which the paper calls MB."""
    return 4 * elements / MIB


def share_below(sizes: Sequence[int], limit: float) -> float:
    """Return the percentage of tensors with fewer elements than `limit`."""
    return 100 * sum(size < limit for size in sizes) / len(sizes)


def compressed_buffer_bytes(sizes: Sequence[int], found: Factors) -> float:
    """Return the size of a buffer of factors that 25 MB of gradient would fill."""
    return threshold_bytes([4 * size for size in sizes], 4 * found.numel, BUCKET_CAP_BYTES)


def compressed_buffers(sizes: Sequence[int], found: Factors) -> int:
    """Return how many such buffers the factors fill, tensor by tensor in backward order."""
    return len(buffer_groups([4 * size for size in sizes], compressed_buffer_bytes(sizes, found)))


def dense_buffers(found: Factors) -> tuple[int, int, int]:
    """Return 25 MB buffers of the dense gradient: by its size alone, filled tensor by tensor, and by DDP's rule."""
    nbytes = [4 * size for size in found.whole]
    by_size = -(-sum(nbytes) // BUCKET_CAP_BYTES)
    return (
        by_size,
        len(buffer_groups(nbytes, BUCKET_CAP_BYTES)),
        len(cap_groups(nbytes, FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES)),
    )


# ---- an example -----------------------------------------------------------------------------------------------------


ORIGIN = Origin("nominal", note="invented example")
WORLD_SIZE = 4
TENSORS = tuple(TensorSpec(str(number), (512, 512)) for number in (4, 3, 2, 1))
BACKWARD_S = (1.2e-3, 1.2e-3, 1.2e-3, 1.2e-3)
ENCODE_S = {"powersgd": 0.5e-3, "acpsgd": 0.3e-3}
"""Of one matrix: two products and a basis, and one product and a basis."""
LATENCY_S, S_PER_BYTE = 0.06e-3, 1.2e-9
NAMES = tuple(spec.name for spec in TENSORS)


def step(groups: tuple[tuple[str, ...], ...], compressor: str | None = None, *, overlap: bool = True) -> Simulated:
    """Return one simulated step of a made-up cluster that exchanges these groups of matrices by all-reduces."""
    buckets = tuple(Bucket((Lane("all_reduce", (Segment(group, compressor),)),)) for group in groups)
    plan = Plan("given", WORLD_SIZE, TENSORS, buckets, launch_in_order(buckets, TENSORS), overlap=overlap)
    curves = {name: Curve.affine(0.0, one / (4 * TENSORS[0].numel)) for name, one in ENCODE_S.items()}
    times = {name: CompressorTimes(curve, curve, Curve.zero(), ORIGIN) for name, curve in curves.items()}
    exchange = ring_exchange(WORLD_SIZE, LATENCY_S, S_PER_BYTE)
    system = TimingModel("example", WORLD_SIZE, times, exchange, ORIGIN, style="per_call")
    return simulate(plan, Profile("example", TENSORS, BACKWARD_S, 0.0, ORIGIN), system)


EACH = tuple((name,) for name in NAMES)
TOGETHER = (NAMES,)
