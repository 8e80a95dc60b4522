"""What one call of a compressor here does on a device, as counted by benchmarks/count_operators.py."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ssfx.core.files import read_json
from ssfx.core.paths import data_dir


@cache
def _counted() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_json(data_dir() / "costs" / "counted.json")
    return found


def bytes_per_element(compressor: str) -> float:
    """Return the bytes that compressing moves for each element of the gradient, matrix products left out."""
    return float(_counted()[compressor]["device"]["nbytes"])


def products(compressor: str) -> int:
    """Return how many products with the whole gradient matrix compressing takes, without the reconstruction."""
    on = _counted()[compressor]["device"]
    return len(on["products"]) - len(on["decode"]["products"])


def orthogonalisations(compressor: str) -> int:
    """Return how many orthonormal bases compressing one matrix takes."""
    counted = _counted()[compressor]
    return int(counted["device"]["bases"] / counted["rank"])
