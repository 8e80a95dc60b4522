"""Gradient compressors: one file each, found by name, declared without importing torch."""

from ssfx.compressors.base import Compressor, Context, Cost, Layout, Payload, build, compressors, k_ceil, k_floor
from ssfx.compressors.warmup import warmup_density

__all__ = [
    "Compressor",
    "Context",
    "Cost",
    "Layout",
    "Payload",
    "build",
    "compressors",
    "k_ceil",
    "k_floor",
    "warmup_density",
]
