"""Measure compressor times on this machine's CPU and write them as the shipped cost table of device cpu.

    python benchmarks/calibrate_cpu.py [--write]

One thread, density 0.01, heavy-tailed random data, median of repeated calls after one that is thrown away. Run it on an
idle machine; about two minutes. Without --write the table goes to standard output.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ssfx.compressors import Context, Payload, build
from ssfx.core.files import write_json
from ssfx.core.origin import Origin
from ssfx.core.paths import data_dir
from ssfx.lab.results.manifest import describe, hardware, versions

COMPRESSORS = ("dgc", "randomk", "topk")
SIZES = [2**power for power in range(8, 25, 2)]
DENSITY = 0.01


def seconds(work: Callable[[], object]) -> float:
    """Return the median time of `work` in seconds: at least 5 calls, more while they are short."""
    work()
    times: list[float] = []
    while len(times) < 5 or (len(times) < 101 and sum(times) < 0.5):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return median(times)


def encode_s(spec: str, numel: int) -> float:
    """Return the seconds of one compressor call on `numel` elements."""
    compressor = build(spec)
    layout = compressor.layout(numel, DENSITY)
    payload = Payload.allocate(layout)
    data = torch.randn(numel, generator=torch.Generator().manual_seed(numel)).pow_(3)
    context = Context(step=0, tensor_id=0, rank=0, world_size=2, density=DENSITY)
    return seconds(lambda: compressor.compress(data, payload, context))


def decode_s(received: int) -> float:
    """Return the seconds of adding `received` (index, value) pairs to a vector a hundred times as long."""
    generator = torch.Generator().manual_seed(received)
    out = torch.zeros(min(2**24, received * 100))
    indices = torch.randint(len(out), (received,), generator=generator).sort().values
    values = torch.randn(received, generator=generator)
    return seconds(lambda: out.index_add_(0, indices, values))


def curve(measure: Callable[[int], float], sizes: list[int]) -> dict[str, Any]:
    """Return knots of `measure` over `sizes`, rounded to three digits."""
    return {"sizes": sizes, "seconds": [float(f"{measure(size):.3g}") for size in sizes]}


def table() -> dict[str, Any]:
    """Return the table as it is written to ssfx/data/costs/cpu.json."""
    torch.set_num_threads(1)
    encode = {name: curve(lambda numel, name=name: encode_s(name, numel), SIZES) for name in COMPRESSORS}  # type: ignore[misc]
    decode = curve(decode_s, [2**power for power in range(2, 19, 2)])
    date = datetime.now(UTC).date().isoformat()
    machine = describe(hardware())
    how = "benchmarks/calibrate_cpu.py, one thread, density 0.01, median"
    return {
        "device": "cpu",
        "origin": asdict(
            Origin("measured", machine, date, f"{how}; host equals encode, the host is the device", versions())
        ),
        "decode_origin": asdict(Origin("measured", machine, date, "indexed addition, same script", versions())),
        "encode": encode,
        "host": encode,
        "decode": decode,
    }


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace ssfx/data/costs/cpu.json")
    write = parser.parse_args().write
    text = json.dumps(table(), indent=1) + "\n"
    if write:
        write_json(data_dir() / "costs" / "cpu.json", text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
