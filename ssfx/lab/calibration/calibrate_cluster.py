"""Calibration: ranks are started on a cluster that is here, measure, and what they found becomes a TimingModel."""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

from ssfx.compressors import compressors
from ssfx.core import machine
from ssfx.core.errors import RunError
from ssfx.core.origin import Origin
from ssfx.lab.engines.failure import is_peer_error
from ssfx.lab.engines.hosts import INTERFACE, Hosts, Network
from ssfx.lab.engines.launch import GRACE_S, settings
from ssfx.lab.engines.netns import measure
from ssfx.lab.results.manifest import busy_s, describe, hardware, versions
from ssfx.perf_model.recorded_times import COMPRESSORS
from ssfx.perf_model.timing_model import Contention, TimingModel
from ssfx.planning.costs import CompressorTimes, Curve, Overheads

DENSITY = 0.01
"""At which compressors are measured; their times hardly depend on it, those of decoding are per entry."""
MAX_BYTES = 2**28
LARGE_BYTES = 2**16
"""From here on an exchange is large: what it computes grows with its size."""
_POLL_S = 0.1
_LIMIT_S = 900.0


@dataclass(frozen=True)
class Calibrated:
    """A measured part of a TimingModel, the points it was made from, and how many cores other processes kept busy."""

    system: TimingModel
    points: Mapping[str, Any]
    others: float


IN_FLIGHT = 2
"""Exchanges that gloo works on at a time: it has so many threads for each group of ranks."""


def calibrate_network(cluster: str, ranks: int) -> Calibrated:
    """Return what exchanges take on `cluster`, local or an emulated one, with one rank on each of its devices.

    ConfigError when the cluster cannot be here, RunError when a rank fails.
    """
    from ssfx.lab.calibration.measure_exchange import PRIMITIVES, REDUCERS

    network = Network.here(cluster)
    # Every rank holds what all of them gather.
    room = machine.memory_bytes() // (4 * ranks * (ranks + 1))
    request = {"max_bytes": min(MAX_BYTES, room), "primitives": [*PRIMITIVES, *REDUCERS]}
    found, others = run_ranks(request, ranks, network)
    curves, contention = network_curves(found["exchange"], ranks)
    note = f"ssfx profile network, {_processes(ranks)}, median of back-to-back calls, slowest rank; {_busy(others)}"
    origin = _origin("emulated" if network else "measured", note)
    burst_s = 8e-9 * network.burst_bytes / network.gbps if network else 0.0
    system = TimingModel(cluster, ranks, {}, curves, origin, contention=contention, burst_s=burst_s, host_shares=True)
    return Calibrated(system, found, others)


def calibrate_compressors(ranks: int, names: Sequence[str] = (), max_numel: int = 2**24) -> Calibrated:
    """Return what compressors (all, or those named) and the runtime take while `ranks` processes do the same."""
    request = {"compressors": list(names) or compressors.names(), "density": DENSITY, "max_numel": max_numel}
    found, others = run_ranks(request, ranks, None)
    note = (
        f"ssfx profile compressors, {_processes(ranks)}, CPU seconds per call times ranks per core, median, density "
        f"{DENSITY:g}, residual memory where it may be; host equals device; {_busy(others)}"
    )
    origin = _origin("measured", note)
    codecs = {name: codec(points, origin) for name, points in found["codecs"].items()}
    overheads = Overheads(**found["overheads"])
    system = TimingModel(COMPRESSORS, ranks, codecs, {}, origin, overheads=overheads)
    return Calibrated(system, found, others)


def network_curves(points: Sequence[Mapping[str, Any]], ranks: int) -> tuple[dict[str, Curve], Contention]:
    """Return exchange curves and contention from the points (as of ExchangePoint) of each primitive.

    Computing power is counted in what a rank has of it: P ranks on C cores have C/P each, at most 1. What an exchange
    takes of it is what its threads use and what the interrupted pass loses: so many times as much as they use, the
    median over all primitives and sizes, because a single difference of passes is noise. Occupancy is the median over
    large sizes of the CPU time of an exchange over its duration.
    """
    power = min(1.0, machine.cores() / ranks)
    exchange, under_compute_s, under_compute_cpu_s, occupancy = {}, {}, {}, {}
    used, lost = "under_compute_cpu_s", "under_compute_lost_s"
    ratios = [point[lost] / point[used] for point in points if point.get(lost) is not None and point[used]]
    factor = 1.0 + max(0.0, median(ratios)) if ratios else 1.0
    for name in dict.fromkeys(point["primitive"] for point in points):
        own = [point for point in points if point["primitive"] == name]
        exchange[name] = rising([(point["nbytes"], point["alone_s"]) for point in own])
        if both := [point for point in own if point["under_compute_s"] is not None]:
            under_compute_s[name] = rising([(point["nbytes"], point["under_compute_s"]) for point in both])
            taken = [(point["nbytes"], factor * point["under_compute_cpu_s"] / power) for point in both]
            under_compute_cpu_s[name] = rising(taken)
        large = [point for point in own if point["nbytes"] >= LARGE_BYTES] or own[-1:]
        share = median(point["cpu_s"] / point["alone_s"] / power for point in large)
        occupancy[name] = round(min(1.0, max(0.0, share)), 3)
    return exchange, Contention(occupancy, under_compute_s, under_compute_cpu_s, IN_FLIGHT)


def codec(points: Mapping[str, Any], origin: Origin) -> CompressorTimes:
    """Return the CompressorTimes of the points that a rank measured (as of CodecPoints)."""
    encode = rising(points["encode"])
    return CompressorTimes(
        encode,
        encode,
        rising(points["decode"]),
        origin,
        **{key: float(f"{points[key]:.4g}") for key in ("segment_s", "piece_s", "tensor_s")},
        host_copies=True,
    )


def rising(points: Sequence[Sequence[float]]) -> Curve:
    """Return the curve through (size, seconds) by which more never takes less: where noise says so, neighbours share.

    They share their mean, weighted by the logarithm's error being alike: isotonic regression of log seconds.
    """
    from sklearn.isotonic import isotonic_regression

    sizes = [float(size) for size, _ in points]
    logs = isotonic_regression([math.log(max(value, 1e-9)) for _, value in points])
    return Curve(tuple(sizes), tuple(float(f"{math.exp(value):.4g}") for value in logs))


def _processes(ranks: int) -> str:
    return f"{ranks} processes of one thread each on {machine.cores()} cores"


def _busy(others: float) -> str:
    return f"{others:.1f} cores busy with other work"


def _origin(kind: Literal["measured", "emulated"], note: str) -> Origin:
    return Origin(kind, describe(hardware()), datetime.now(UTC).date().isoformat(), note, versions())


def run_ranks(
    request: Mapping[str, Any],
    ranks: int,
    network: Network | None,
    module: str = "ssfx.lab.calibration.measure",
    limit_s: float = _LIMIT_S,
    more: Mapping[str, str] = {},
) -> tuple[dict[str, Any], float]:
    """Start `module` as so many ranks, with `more` in their environment, and wait for them at most `limit_s`.

    Returns what rank 0 left in result.json, and the cores that other processes kept busy.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssfx-profile-")))
        (folder / "request.json").write_text(json.dumps(request))
        hosts = stack.enter_context(Hosts(network)) if network else None
        if hosts:
            measure(hosts)  # an error if the lines are not what they are called
        logs = [folder / f"rank{rank}.log" for rank in range(ranks)]
        began_s, machine_s, own_s = time.monotonic(), busy_s(), _children_s()
        processes = []
        for rank, path in enumerate(logs):
            command = [sys.executable, "-m", module, str(folder / "request.json")]
            place = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
            with path.open("wb") as log:
                process = subprocess.Popen(
                    hosts.inside(rank, command) if hosts else command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **settings(1, INTERFACE if hosts else "lo"), **more, **place},
                )
            processes.append(process)
            stack.callback(_end, process)
        _wait(processes, logs, limit_s)
        others = (busy_s() - machine_s - (_children_s() - own_s)) / (time.monotonic() - began_s)
        return json.loads((folder / "result.json").read_text()), round(max(0.0, others), 2)


def _wait(processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], limit_s: float) -> None:
    """Return when all have ended well; RunError when they take too long, or when a rank fails, with its last words.

    A rank that only complains about a peer is not to blame as long as that peer may still say what is wrong with it.
    """
    until = time.monotonic() + limit_s
    while True:
        codes = [process.poll() for process in processes]
        failed = {rank: _last_words(code, logs[rank]) for rank, code in enumerate(codes) if code}
        own = [rank for rank, said in failed.items() if not is_peer_error(said)]
        late = time.monotonic() > until
        if own or (failed and (late or None not in codes)):
            rank = (own or list(failed))[0]
            raise RunError(f"measuring rank {rank} failed: {failed[rank]}")
        if None not in codes:
            return
        if late:
            raise RunError(
                f"measuring took more than {limit_s:.0f} s; repeat it when nothing else runs here, or with fewer ranks"
            )
        if failed:
            until = min(until, time.monotonic() + GRACE_S)
        time.sleep(_POLL_S)


def _last_words(code: int, log: Path) -> str:
    if code < 0:
        return f"it was killed by signal {-code}"
    said = log.read_text(errors="replace").strip().splitlines()
    return said[-1] if said else f"it ended with code {code} and printed nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin
    process.stdin.close()


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
