"""How well the simulator predicts steps of sharded models: predicted over measured, on ranks of this machine.

    python benchmarks/sharded_steps.py [--network 100mbit|1gbit|loopback] [--hsdp] [--rounds 9] [--json FILE]

Two ranks share a transformer (fsdp), or four as 2 replicas of 2 shards (hsdp), over gloo, on emulated hosts or
loopback: torch's own FSDP2, then ssfx's methods. A prediction rests on parts that are measured apart from those
steps, in turns with them: forward, backward and step of the model that `fully_shard` wraps over one rank, and single
exchanges of other sizes. What compressors take was recorded on such a machine earlier (`ssfx profile compressors`).
Nothing is fitted to the steps. Times are medians over rounds of the slowest rank.

With --hsdp every step is also printed as so many times the step in which nothing travels between replicas.
Gloo holds up the training thread, so that this checks bytes, prices and order, but no overlap.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from ssfx.advice.sharded_steps import Asked, plan_sharded, simulate_sharded
from ssfx.core import machine
from ssfx.core.origin import Origin
from ssfx.lab.calibration.calibrate_cluster import rising, run_ranks
from ssfx.lab.engines.hosts import Network
from ssfx.perf_model.mesh import Mesh
from ssfx.perf_model.recorded_times import recorded_system
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Overheads
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import Sharding

FOUR_BITS = "qsgd(bits=4,bucket=32,norm=max)"
EIGHT_BITS = "qsgd(bits=8,norm=max)"
FSDP: dict[str, dict[str, Any] | None] = {
    "native FSDP2": None,
    "16 bits": {"scheme": "ddp_fp16", "compressor": "bf16"},
    "8 bits": {"scheme": "fused_all", "compressor": EIGHT_BITS},
    "4 bits": {"scheme": "fused_all", "compressor": FOUR_BITS},
}
HSDP: dict[str, dict[str, Any] | None] = {
    "native HSDP": None,
    "fp16 between replicas": {"scheme": "ddp_fp16"},
    "top-k 1 % between replicas": {"scheme": "topk", "density": 0.01},
    "8 bits in both": {
        "scheme": "per_tensor",
        "compressor": EIGHT_BITS,
        "shards": {"scheme": "fused_all", "compressor": EIGHT_BITS},
    },
}
SIZES = (2**14, 2**18, 2**20, 2**22)
"""Bytes that a rank brings to an exchange that is timed alone."""


def measured(network: Network | None, shape: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Return what the ranks measured."""
    request = {"shape": shape, "rounds": rounds, "variants": FSDP if shape[0] == 1 else HSDP, "sizes": SIZES}
    more = {"PYTHONPATH": ":".join((str(Path(__file__).parent), str(Path(__file__).parent.parent)))}
    found, _ = run_ranks(request, shape[0] * shape[1], network, "sharded_steps_worker", 600.0, more)
    return found


def mesh_of(found: Mapping[str, Any], network: Network | None, shape: tuple[int, int]) -> Mesh:
    """Return the times of both legs, by what was measured of single exchanges."""
    ranks = shape[0] * shape[1]
    origin = Origin("emulated" if network else "measured", note="benchmarks/sharded_steps.py")
    recorded = recorded_system("local", ranks)
    assert recorded is not None
    # Recorded calls are CPU seconds with ranks that share cores; others may have crowded these more.
    crowded = median(found["crowding"]) / max(1.0, ranks / machine.cores())
    codecs = {name: _slower(one, crowded) for name, one in recorded.codecs.items()}
    over = Overheads(**{key: crowded * value for key, value in asdict(recorded.overheads).items()})
    burst_s = 8e-9 * network.burst_bytes / network.gbps if network else 0.0

    def leg(name: str, count: int) -> TimingModel:
        exchange = {
            kind: rising([(int(size), median(times)) for size, times in sizes.items()])
            for kind, sizes in found["exchanges"][name].items()
        }
        return TimingModel("here", count, codecs, exchange, origin, burst_s=burst_s, overheads=over, host_shares=True)

    return Mesh(leg("shards", shape[1]), leg("replicas", shape[0]) if shape[0] > 1 else None, apart=False)


def _slower(one: CompressorTimes, factor: float) -> CompressorTimes:
    further = {name: factor * getattr(one, name) for name in ("segment_s", "piece_s", "tensor_s")}
    return replace(one, encode=one.encode.scaled(factor), decode=one.decode.scaled(factor), **further)


def profile_of(found: Mapping[str, Any]) -> Profile:
    """Return the model alone, by what was measured of it; on hosts only the sums of its times count."""
    forward, backward, whole = (median(step[at] for step in found["alone"]) for at in range(3))
    tensors = tuple(TensorSpec(name, tuple(shape)) for name, shape in reversed(found["tensors"]))
    total = sum(spec.numel for spec in tensors)
    gaps = tuple((backward - forward) * spec.numel / total for spec in tensors)
    origin = Origin("measured", note="benchmarks/sharded_steps.py")
    return Profile("transformer", tensors, gaps, forward, origin, batch_size=1, step_s=whole - backward)


def predicted(found: Mapping[str, Any], mesh: Mesh, shape: tuple[int, int]) -> dict[str, float]:
    """Return the seconds of a step of every variant, simulated."""
    profile, (replicas, shards) = profile_of(found), shape
    sharding = Sharding("fsdp" if replicas == 1 else "hsdp", shards, replicas)

    def asked(options: Mapping[str, Any] | None) -> Asked:
        given = {key: value for key, value in (options or {}).items() if key not in ("scheme", "shards")}
        return Asked((options or {}).get("scheme", "ddp"), given)

    return {
        name: simulate_sharded(
            plan_sharded(profile, sharding, asked(options), asked((options or {}).get("shards"))), profile, mesh
        ).iteration_s
        for name, options in (FSDP if replicas == 1 else HSDP).items()
    }


def main() -> None:
    """Print predicted over measured for every variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=("100mbit", "1gbit", "loopback"), default="100mbit")
    parser.add_argument("--hsdp", action="store_true", help="4 ranks as 2 replicas of 2 shards")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="keep what was measured in this file")
    chosen = parser.parse_args()
    shape = (2, 2) if chosen.hsdp else (1, 2)
    ranks = shape[0] * shape[1]
    network = None if chosen.network == "loopback" else Network.of(f"emulated_{ranks}x{chosen.network}")
    found = measured(network, shape, chosen.rounds)
    if chosen.json:
        chosen.json.write_text(json.dumps(found))
    report(found, network, shape)


def report(found: Mapping[str, Any], network: Network | None, shape: tuple[int, int]) -> None:
    """Print a line for every variant, and the mean error."""
    guessed = predicted(found, mesh_of(found, network, shape), shape)
    alone_s = median(step[-1] for step in found["alone"])
    print(f"alone {1e3 * alone_s:.1f} ms, computing took {median(found['crowding']):.2f} times its CPU seconds")
    if found["apart"]:
        print(f"without the exchange between replicas {1e3 * median(found['apart']):.1f} ms")
    errors = []
    for name, times in found["steps"].items():
        took_s = median(times)
        errors.append(guessed[name] / took_s - 1)
        print(
            f"{name:28} measured {1e3 * took_s:7.1f} ms ({1e3 * min(times):.1f}-{1e3 * max(times):.1f})  "
            f"predicted {1e3 * guessed[name]:7.1f} ms  {errors[-1]:+.1%}"
            + (f"  {took_s / median(found['apart']):.2f}x without replicas' exchange" if found["apart"] else "")
        )
    print(f"mean error {sum(map(abs, errors)) / len(errors):.1%}, worst {max(errors, key=abs):+.1%}")


if __name__ == "__main__":
    main()
