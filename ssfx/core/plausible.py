"""What numbers of hardware can be: one beyond that is in another unit, and the error says which."""

from dataclasses import dataclass
from math import isfinite

from ssfx.core.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """What a number may be, its unit, what is there at most, and other units with what one of them is in it."""

    least: float
    most: float
    unit: str
    known: str
    others: tuple[tuple[str, float], ...] = ()


_RATE = (("Mbit/s", 1e-3), ("bit/s", 1e-9), ("GB/s", 8.0))
_FLOPS = (("TFLOP/s", 1e12), ("GFLOP/s", 1e9))
_SECONDS = (("ms", 1e-3), ("us", 1e-6))
RANGES = {
    "gbps": Range(1e-3, 2e4, "Gbit/s", "NVLink 5 has 7,200", _RATE),
    "inter.gbps": Range(1e-3, 6400, "Gbit/s", "eight cards of a node together have 6,400", _RATE),
    "latency_s": Range(0, 0.5, "s", "a message takes 1e-6 to 1e-4 in a data centre", _SECONDS),
    "busbw_gbps": Range(1e-3, 7200, "Gbit/s", "NVLink 5 has 7,200", _RATE),
    "table_gbps": Range(1e-3, 1e5, "Gbit/s", "NVLink 5 has 7,200", _RATE),
    "small_allreduce_us": Range(0.5, 1e6, "us", "10 to 1,000 are usual", (("ns", 1e-3), ("s", 1e6))),
    "compressor_call_ms": Range(1e-4, 1e4, "ms", "0.01 to 100 are usual", (("us", 1e-3), ("s", 1e3))),
    "message_us": Range(0, 1e5, "us", "10 to 100 are usual", (("ns", 1e-3),)),
    "nics_per_node": Range(1, 64, "cards a node", "a p5.48xlarge has 32"),
    "iteration_ms": Range(0.01, 3.6e6, "ms", "steps take 1 to 100,000", (("s", 1e3), ("us", 1e-3))),
    "conv_flops": Range(1e9, 1e17, "FLOP/s", "a B200 has 1e15 in TF32", _FLOPS),
    "matmul_flops": Range(1e9, 1e17, "FLOP/s", "a B200 has 8e13 in float32", _FLOPS),
    "tensor_flops": Range(1e9, 1e17, "FLOP/s", "a B200 has 2e15 in bf16", _FLOPS),
    "memory_bytes_s": Range(1e9, 1e14, "bytes/s", "a B200 has 8e12", (("TB/s", 1e12), ("GB/s", 1e9))),
    "memory_gib": Range(0.1, 1e4, "GiB", "a B200 has 180", (("bytes", 2**-30), ("MiB", 2**-10))),
    "launch_s": Range(0, 1e-2, "s", "a kernel takes 4e-6", _SECONDS),
    "host_s": Range(0, 1e-2, "s", "a host issues a kernel in 25e-6", _SECONDS),
    "host_us": Range(0, 1e4, "us", "5 to 50 are usual, 0 with CUDA graphs", (("ns", 1e-3), ("s", 1e6))),
    "pcie_gbps": Range(0, 1e4, "Gbit/s", "PCIe 5 has 504", _RATE),
    "density": Range(1e-7, 1, "of the elements", "methods send 1e-4 to 0.1", (("%", 0.01),)),
}


def plausible(name: str, value: float, said: str = "") -> None:
    """Raise ConfigError unless `value` can be the number called `name`, which the user calls `said`."""
    one = RANGES[name]
    if isfinite(value) and one.least <= value <= one.most:
        return
    meant = [(unit, factor * value) for unit, factor in one.others if one.least <= factor * value <= one.most]
    hint = "".join(f"; if these are {unit}, write {number:.6g}" for unit, number in meant[:2])
    raise ConfigError(
        f"{said or name} must be in [{one.least:g}, {one.most:g}] {one.unit}, got {value:g}: {one.known}{hint}"
    )
