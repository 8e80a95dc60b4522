"""The parts of the first hour on a GPU. Each runs on all ranks, on the device of `comm`, and leaves plain data.

A part that meets a problem says so in a line and goes on with the rest, where the device still works. All parts run on
the CPU as well, at other sizes, which is how they are tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.compressors.batch import Batch, compress
from ssfx.compressors.blank import blank_batch
from ssfx.compressors.kernels import kernels, plain_torch
from ssfx.compressors.memories import memories
from ssfx.core import accelerator
from ssfx.core.case import Precision
from ssfx.core.errors import RunError
from ssfx.lab.calibration.measure_compressors import codec_points
from ssfx.lab.calibration.own_cluster import exchange_tables
from ssfx.lab.workloads.base import dataset_spec
from ssfx.lab.workloads.profiling import record_profile
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.roofline import launches
from ssfx.runtime.attach import attach

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "ddp": {},
    "topk": {},
    "per_tensor": {"compressor": "topk"},
    "fused_all": {"compressor": "topk"},
    "mergecomp": {"compressor": "topk"},
    "ssfusion_oi": {"compressor": "topk", "rule": "paper"},
}
"""Schemes whose averages are those of torch DDP to the last bit where two ranks send everything."""
DENSITIES = (1.0, 0.05)
STEPS = 7
"""The last ones are by the plan of a scheme that observes five."""
_SELECTORS = ("topk", "hard_threshold(threshold=1)", "topk(value_dtype=float16)")
"""What selects by a sampled threshold is not here: the kernels of a GPU search for the exact one (docs/kernels.md)."""
_MEMORIES = ("none", "residual", "dgc(momentum=0.5)")
_DENSITY = 0.01


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    segments: Sequence[int]
    """Elements of what a kernel works on."""
    widths: Sequence[int]
    """Of the layers of the network that schemes train."""
    compressors: Sequence[str]
    max_numel: int
    """Of what a compressor is timed on."""
    host_model: str
    """Whose step on one sample is the host's: kernels are too short to keep the device busy."""
    models: Sequence[str]
    precisions: Sequence[Precision]
    batch_size: int | None
    """Samples of a step; None: each model's own."""
    iterations: int
    mib: int
    """Of the largest exchange."""


@dataclass
class PartResult:
    """What a part leaves: a line, a line for each problem, and what is kept."""

    said: str = ""
    problems: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """What fails inside becomes a line that begins with `what`, and the part goes on."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{what}: {one_line(error)}")


def one_line(error: BaseException) -> str:
    """Return the kind of an error and the first line that it says."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def check_kernels(comm: Comm, sizes: Sizes) -> PartResult:
    """Compare the kernels of the device with plain torch: what is selected bit for bit, sums to 1e-9."""
    found, compared = PartResult(), 0
    for spec in _SELECTORS:
        for memory in _MEMORIES:
            with found.noting(f"{spec} with memory {memory}"):
                batches = [_filled(spec, memory, sizes.segments, comm.device) for _ in range(2)]
                compress(build(spec), batches[0])
                with plain_torch():
                    compress(build(spec), batches[1])
                names = ("counts", "indices", "values", *batches[0].new)
                for name, one, other in zip(names, *map(_outcome, batches), strict=True):
                    if not torch.equal(one, other):
                        raise RunError(f"{name} differ at {int((one != other).sum())} of {one.numel()} places")
                    compared += one.numel()
    with found.noting("statistics"):
        compared += _check_statistics(sizes, comm.device)
    found.said = f"{compared:,} values compared with plain torch, {kernels(comm.device).__name__}"
    return found


def _check_statistics(sizes: Sizes, device: torch.device) -> int:
    sums = []
    for plain in (False, True):
        batch = _filled("topk", "residual", sizes.segments, device)
        with plain_torch() if plain else accelerator.device_of(batch.vector):
            module = kernels(device)
            limits = torch.full((len(batch.parts),), 0.5, dtype=torch.float64, device=device)
            moments = module.moments(batch)
            tail = module.tail(batch, limits)
            sums.append([*vars(moments).values(), module.count(batch, limits), *vars(tail).values()])
    for one, other in zip(*sums, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-9, atol=1e-9, equal_nan=True)
    return sum(one.numel() for one in sums[0])


def _filled(spec: str, memory: str, segments: Sequence[int], device: torch.device) -> Batch:
    """Return a batch on a coarse grid of values: ties are common and every sum is exact in any order."""
    batch = blank_batch(build(spec), [[(n,)] for n in segments], _DENSITY, memories.build(memory), device)
    generator = torch.Generator().manual_seed(len(segments))

    def coarse(numel: int) -> torch.Tensor:
        return ((torch.randn(numel, dtype=torch.float32, generator=generator) * 8).round() / 8).to(device)

    for buffer in batch.old.values():
        buffer.copy_(coarse(buffer.numel()))
    batch.grads = [coarse(hi - lo) for lo, hi in batch.pieces]
    batch.world_size, batch.step = 2, 3
    return batch


def _outcome(batch: Batch) -> list[torch.Tensor]:
    payload = batch.payload
    return [payload.counts, payload.indices, payload.values, *batch.new.values()]


def check_streams(comm: Comm, sizes: Sizes) -> PartResult:
    """Train by every scheme of SCHEMES with torch's sanitizer on, which raises where a stream did not wait."""
    found = PartResult(f"{len(SCHEMES)} schemes, {STEPS} steps each, no race")
    if accelerator.queued(comm.device) and not accelerator.sanitized():
        raise RunError("torch did not switch its sanitizer on, so nothing would be found")
    for scheme, options in SCHEMES.items():
        with found.noting(scheme):
            _trained(comm, sizes.widths, {"scheme": scheme, **options, **_density(scheme, DENSITIES[-1])})
    return found


def check_schemes(comm: Comm, sizes: Sizes) -> PartResult:
    """Compare training by six schemes with torch DDP, bit for bit where all is sent; replicas are equal at any rate."""
    backend = dist.get_backend(comm.group)
    found = PartResult(f"{len(SCHEMES)} schemes equal torch DDP at density 1 over {backend}, replicas are equal")
    theirs = _trained(comm, sizes.widths, None)
    for scheme, options in SCHEMES.items():
        for density in DENSITIES if _density(scheme, 1.0) else DENSITIES[:1]:
            with found.noting(f"{scheme} at density {density:g}"):
                mine = _trained(comm, sizes.widths, {"scheme": scheme, **options, **_density(scheme, density)})
                first = mine.clone()
                comm.broadcast(first).wait()
                if not torch.equal(first, mine):
                    raise RunError(f"replicas differ by up to {float((first - mine).abs().max()):.3g}")
                if density == 1 and not torch.equal(mine, theirs):
                    raise RunError(f"weights differ from DDP's by up to {float((mine - theirs).abs().max()):.3g}")
                if density < 1 and torch.equal(mine, theirs):
                    raise RunError("weights are DDP's, so nothing was compressed")
    return found


def _density(scheme: str, density: float) -> dict[str, float]:
    return {} if scheme == "ddp" else {"density": density}


def _trained(comm: Comm, widths: Sequence[int], options: Mapping[str, Any] | None) -> torch.Tensor:
    """Return the weights after STEPS steps with `attach(**options)`, or of torch DDP."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise(widths)]
    model: nn.Module = nn.Sequential(*layers).to(comm.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = attach(model, optimizer, process_group=comm.group, **options) if options is not None else None
    run = model if sync is not None else DistributedDataParallel(model, process_group=comm.group)
    generator = torch.Generator().manual_seed(comm.rank)
    for _ in range(STEPS):
        inputs = torch.randn(32, widths[0], dtype=torch.float32, generator=generator).to(comm.device)
        optimizer.zero_grad()
        run(inputs).square().mean().backward()
        optimizer.step()
    accelerator.wait(comm.device)
    if sync is not None:
        sync.detach()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def time_compressors(comm: Comm, sizes: Sizes) -> PartResult:
    """Time every compressor on the device, its call and its decoding of what one rank sent."""
    found = PartResult()
    for name in sizes.compressors:
        with found.noting(name):
            found.data[name] = asdict(codec_points(name, _DENSITY, comm, sizes.max_numel))
    found.said = f"{len(found.data)} compressors up to {sizes.max_numel:,} elements"
    return found


def time_host(comm: Comm, sizes: Sizes) -> PartResult:
    """Time how long the host takes to issue a kernel of a training step, by kernels as they are counted."""
    work, precision = model_work(sizes.host_model), sizes.precisions[-1]
    profile = record_profile(
        work.model,
        dataset_spec(work.model, {"name": "synthetic"}),
        1,
        comm.device.type,
        3 * sizes.iterations,
        5,
        optimizer=work.optimizer,
        precision=precision,
    )
    host_us = 1e6 * profile.alone_s() / sum(launches(work, precision, work.recompute))
    said = f"{host_us:.3g} us a kernel, by steps of {work.model} on one sample in {precision}"
    return PartResult(f"{said}; for other clusters: cluster.host_us={host_us:.3g}", data={"host_us": host_us})


def time_steps(comm: Comm, sizes: Sizes) -> PartResult:
    """Time steps of the models on random samples in every precision."""
    found, times = PartResult(), []
    for model in sizes.models:
        work = model_work(model)
        for precision in sizes.precisions:
            with found.noting(f"{model} in {precision}"):
                profile = record_profile(
                    model,
                    dataset_spec(model, {"name": "synthetic"}),
                    sizes.batch_size or work.batch_size,
                    comm.device.type,
                    sizes.iterations,
                    3,
                    optimizer=work.optimizer,
                    precision=precision,
                )
                found.data[f"{model} {precision}"] = profile.to_json()
                times.append(f"{model} {precision} {1e3 * profile.alone_s():.4g} ms")
            if accelerator.queued(comm.device):
                accelerator.forget_peak(comm.device)
    found.said = ", ".join(times)
    return found


def time_exchanges(comm: Comm, sizes: Sizes) -> PartResult:
    """Time collectives among all ranks, from a few bytes to `mib` MiB."""
    tables = exchange_tables(comm.world_size, comm.world_size, comm.device, sizes.mib, dist.get_backend(comm.group))
    largest = tables[0]
    said = f"{largest.collective} of {largest.nbytes[-1]:,} bytes in {largest.us[-1]:,.0f} us, {largest.library}"
    return PartResult(said, data={"tables": [asdict(one) for one in tables]})


@dataclass(frozen=True)
class PartRun:
    """How a part is run: by how many ranks (None: one for each GPU), for how long at most, with torch's sanitizer."""

    do: Callable[[Comm, Sizes], PartResult]
    ranks: int | None
    limit_s: float
    sanitized: bool = False


PARTS: Mapping[str, PartRun] = {
    "kernels": PartRun(check_kernels, 1, 60),
    "streams": PartRun(check_streams, 2, 60, sanitized=True),
    "schemes": PartRun(check_schemes, 2, 60),
    "exchanges": PartRun(time_exchanges, None, 60),
    "host": PartRun(time_host, 1, 30),
    "compressors": PartRun(time_compressors, 1, 90),
    "steps": PartRun(time_steps, 1, 150),
}
"""In the order in which they run: what a user needs most comes before what takes longest."""
