"""The process of one rank that measures: `python -m ssfx.lab.calibration.measure request.json`.

It finds its place in RANK and WORLD_SIZE, meets the other ranks in the request's folder, and what rank 0 leaves there
is read by `calibrate_cluster`. All ranks do the same at the same time, because they share the machine in training.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import fmean, median
from threading import Event
from time import process_time, sleep
from typing import Any, Literal

import torch
import torch.distributed as dist

from ssfx.collectives.comm import Comm, Pending
from ssfx.collectives.torch_comm import TorchComm
from ssfx.compressors.memories import memories
from ssfx.core import machine
from ssfx.core.origin import Origin
from ssfx.lab.calibration.measure_compressors import between_layers, codec_points, cold_s, cpu_s, crowding
from ssfx.lab.calibration.measure_exchange import exchange_points
from ssfx.lab.worker.stop import die_with_launcher
from ssfx.planning.costs import Costs, Curve, Overheads, ring_exchange
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.runtime.exchange import Exchange
from ssfx.runtime.members import Members
from ssfx.runtime.offload import HostWorker
from ssfx.runtime.stats import Tracer
from ssfx.runtime.store import Store
from ssfx.runtime.sync import Sync
from ssfx.schemes.make_plan import make_plan

COLLECTIVE_TIMEOUT_S = 60


def main(request_file: str) -> None:
    """Measure what the request asks for; rank 0's result.json then lies in the folder of the request."""
    request = json.loads(Path(request_file).read_text())
    folder, rank = Path(request_file).parent, int(os.environ["RANK"])
    die_with_launcher()
    machine.share_cores(rank, int(os.environ["WORLD_SIZE"]))
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group(
        "gloo",
        init_method=store,
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
    comm = TorchComm()
    comm.all_reduce(torch.zeros(1, dtype=torch.float32)).wait()  # from here on all compute at the same time
    found: dict[str, Any] = {}
    if "max_bytes" in request:
        found["exchange"] = [asdict(one) for one in exchange_points(comm, request["max_bytes"], request["primitives"])]
    if "compressors" in request:
        found["codecs"] = {
            name: asdict(codec_points(name, request["density"], comm, request["max_numel"]))
            for name in request["compressors"]
        }
        found["overheads"] = asdict(overhead_times(comm))
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(found))
    comm.all_reduce(torch.zeros(1, dtype=torch.float32)).wait()  # no rank leaves while a peer may still be reading
    os._exit(0)  # an orderly end of torch takes seconds and nothing is left to be saved


_MANY, _SMALL = 96, 16
_FEW, _LARGE = 4, 2**20
_STEPS = 9
_JOBS, _WAKES_S = 32, 2e-3
_LAYERS, _INPUTS, _PASSES = 12, (32, 16, 32, 32), 31
_HOOKS = 4 * _LAYERS
"""Gradients of a network whose every layer takes 2 MB, more than what is a core's own."""
_ORIGIN = Origin("nominal", note="to make a plan whose times do not matter")


Variant = Literal["fused", "per_tensor", "sparse"]
"""Everything in one dense message, every tensor in its own, or everything in one message of selected elements."""


class _Silent(TorchComm):
    """Ranks that are always of one mind: a sum is there when it is asked for."""

    def all_reduce(self, tensor: torch.Tensor, *, op: str = "sum") -> Pending:
        """Return `tensor`."""
        return Pending(None, tensor)

    def all_gather(self, tensor: torch.Tensor) -> Pending:
        """Return `tensor` once for every rank."""
        return Pending(None, tensor.expand(self.world_size, -1).contiguous())


@dataclass(frozen=True)
class _Step:
    """CPU seconds of a step: starting it, handing over a gradient that is not its message's last, finishing it."""

    begin_s: float
    arrive_s: float
    finish_s: float


def overhead_times(comm: Comm) -> Overheads:
    """Return what the runtime costs a rank while all ranks do the same, the mean over ranks.

    Each number comes from a model in which it dominates: layers of small tensors, whose messages are all one or each
    their own, many small tensors, few large ones. Caches are as cold as a backward pass leaves them.
    """
    silent = _Silent(comm.group)
    once = _steps(silent, [_SMALL], "fused")
    small = _steps(silent, [_SMALL] * _MANY, "fused")
    sparse = _steps(silent, [_SMALL] * _MANY, "sparse")
    sparse_once = _steps(silent, [_SMALL], "sparse")
    large = _steps(silent, [_LARGE] * _FEW, "fused")
    finish_s = once.begin_s + once.finish_s
    fused_s, apart_s = _hooks_s(silent, "fused"), _hooks_s(comm, "per_tensor")
    add_s = sparse.arrive_s - small.arrive_s
    fill_s_per_byte = (large.arrive_s - small.arrive_s) / (4 * _LARGE)
    lane_s = apart_s - fused_s
    result_s = (small.finish_s - once.finish_s) / (_MANY - 1)
    hook_s = fused_s - result_s - finish_s / _HOOKS
    result_s_per_byte = (large.finish_s - once.finish_s) / (4 * _LARGE * _FEW)
    sum_s = (sparse.finish_s - sparse_once.finish_s) / (_MANY - 1)
    decode_s = sparse_once.finish_s - once.finish_s
    own = torch.tensor(
        [
            hook_s,
            add_s,
            fill_s_per_byte,
            lane_s,
            result_s,
            result_s_per_byte,
            finish_s,
            _offload_s(comm),
            sum_s,
            decode_s,
        ],
        dtype=torch.float64,
    )
    mean = comm.all_reduce(own.clamp_(min=0)).wait() / comm.world_size * crowding(comm.world_size)
    return Overheads(*mean.tolist())


def _exchange(comm: Comm, params: dict[str, torch.nn.Parameter], variant: Variant) -> Exchange:
    specs = tuple(TensorSpec(name, tuple(param.shape)) for name, param in params.items())
    profile = Profile("overheads", specs, (1e-3,) * len(specs), 1e-3, _ORIGIN)
    free = Curve.zero()
    costs = Costs(comm.world_size, free, free, free, ring_exchange(comm.world_size, 1e-4, 1e-9), _ORIGIN)
    sparse = variant == "sparse"
    memory = memories.build("residual") if sparse else None
    exchange = Exchange(comm, Members(torch.nn.ParameterDict(params)), memory, Store(), Tracer(False, comm.rank))
    scheme, options = (
        ("fused_all", {"compressor": "topk", "density": 0.01}) if sparse else ("ssgd", {"variant": variant})
    )
    exchange.install(make_plan(scheme, profile, costs, options), 0)
    return exchange


def _params(sizes: list[int]) -> dict[str, torch.nn.Parameter]:
    params = {f"tensor{i}": torch.nn.Parameter(torch.zeros(size, dtype=torch.float32)) for i, size in enumerate(sizes)}
    for param in params.values():
        param.grad = torch.ones_like(param)
    return params


def _steps(comm: Comm, sizes: list[int], variant: Variant) -> _Step:
    """Return the median step of a model whose gradients are handed over one after the other."""
    exchange = _exchange(comm, _params(sizes), variant)
    slots = list(exchange.slots.values())

    def finish() -> None:
        with torch.no_grad():
            exchange.finish()
        exchange.stats(skipped=False)

    steps = []
    for step in range(_STEPS):
        begin_s = cold_s(partial(exchange.begin, step, 0))
        *arrivals, _ = (cold_s(partial(exchange.arrive, slot)) for slot in slots)
        steps.append((begin_s, fmean(arrivals or [0.0]), cold_s(finish)))
    exchange.close()
    return _Step(*(median(times) for times in zip(*steps, strict=True)))


def _hooks_s(comm: Comm, variant: Variant) -> float:
    """Return what one gradient adds to a backward pass that it is exchanged in, of everything that this costs.

    Between two hooks a model's layers fill the caches with other things, which makes a hook several times as slow as in
    a loop of hooks; but a bias follows its weight at once.
    """
    inputs = torch.randn(_INPUTS, dtype=torch.float32, requires_grad=True)
    plain, exchanged = _layers(), _layers()
    sync = Sync(
        exchanged,
        (torch.optim.SGD(exchanged.parameters(), lr=0.0),),
        scheme="ssgd",
        given={"variant": variant},
        memory=None,
        scaler=None,
        comm=comm,
        costs=None,
        seed=0,
        trace=False,
    )
    more = []
    for _ in range(_PASSES):
        losses = [model(inputs).sum() for model in (plain, exchanged)]
        without_s, with_s = (cpu_s(loss.backward) for loss in losses)
        more.append(with_s - without_s)
    sync.detach()
    return median(more) / _HOOKS


def _layers() -> torch.nn.Module:
    """Return a convolutional network, whose layers have weights of a few kilobytes and much more data than that."""
    width = _INPUTS[1]
    pairs = ((torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width)) for _ in range(_LAYERS))
    return torch.nn.Sequential(*(layer for pair in pairs for layer in pair))


def _offload_s(comm: Comm) -> float:
    """Return what it takes both threads until the host worker's has begun with a job."""
    errors: list[BaseException] = []
    worker = HostWorker(comm.device, errors.append)
    times = []
    for _ in range(_JOBS):
        done = Event()
        between_layers()
        began = process_time()
        worker.submit(done.set)
        sleep(_WAKES_S)  # not waiting for the event: that would wake this thread too
        times.append(process_time() - began)
        done.wait()
    worker.close()
    return median(times)


if __name__ == "__main__":
    main(sys.argv[1])
