"""Learning the plan's inputs from the running model: arrival of gradients, compressor times, collective times.

Arrival order and times are agreed on by all ranks. Costs are measured on this group, once, before planning. The sizes
cover what a plan of this model can ask for; every rank measures, the slowest counts for collectives, the mean for
compression. Source: SSFusion, section IV-B (online profiling in the first iterations); D-43.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

import torch

from ssfx.collectives import collectives
from ssfx.collectives.comm import Comm, Pending
from ssfx.compressors import build
from ssfx.compressors.blank import blank_batch, run
from ssfx.core import accelerator
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.costs import CompressorTimes, Costs, Curve, Overheads, placeholder_costs
from ssfx.planning.plan import ITEM_BYTES, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.runtime.hooks import timing_hook
from ssfx.schemes.online_planning import OnlinePlanning

NEVER = float("inf")


def parameter_names(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the trainable parameters by name, tied ones once, without the prefix that torch.compile adds."""
    named = ((name.replace("_orig_mod.", ""), p) for name, p in model.named_parameters() if p.requires_grad)
    return dict(named)


def registration_profile(
    params: dict[str, torch.nn.Parameter],
    dtypes: Mapping[str, str] | None = None,
    optimizers: Sequence[torch.optim.Optimizer] = (),
) -> Profile:
    """Return a profile in reversed registration order with no times: what is known before the first backward.

    `dtypes` are those of gradients, by name; None: what is expected. The profile names the optimizer if all are of one
    kind, since what compression costs in quality depends on it.
    """
    specs = []
    for name, p in reversed(params.items()):
        dtype = dtypes[name] if dtypes is not None else expected_dtype(p)
        if dtype not in ITEM_BYTES:
            raise ConfigError(f"parameter {name} has dtype {dtype}; gradients may be {', '.join(ITEM_BYTES)}")
        specs.append(TensorSpec(name, tuple(p.shape), dtype))
    origin = Origin("nominal", note="reversed registration order; no times")
    kinds = {type(optimizer).__name__.lower() for optimizer in optimizers}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return Profile("model", tuple(specs), (0.0,) * len(specs), 0.0, origin, optimizer=kind)


def expected_dtype(param: torch.nn.Parameter) -> str:
    """Return the dtype that gradients will have: the weight's, or what `grad_dtype` of newer versions of torch says."""
    return str(getattr(param, "grad_dtype", None) or param.dtype).removeprefix("torch.")


class Observer:
    """Records when each gradient arrives, relative to the end of the forward pass, for a number of backward passes."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str], device: torch.device, steps: int) -> None:
        self.steps = steps
        self.records: list[dict[str, float]] = []
        self.forward_s: list[float] = []
        self._names = names
        self._on, self._device, self._queued = device, str(device), accelerator.queued(device)
        self._now: dict[str, Any] = {}
        self._overhead_s = 0.0
        self._overheads_s: list[float] = []
        self._forward_start = self._forward_end = self._mark()
        self._handles = [
            model.register_forward_pre_hook(timing_hook(lambda *_: self._forward("_forward_start"))),
            model.register_forward_hook(timing_hook(lambda *_: self._forward("_forward_end"))),
        ]

    @property
    def complete(self) -> bool:
        """True when enough backward passes were seen."""
        return len(self.records) >= self.steps

    def _mark(self) -> Any:
        return accelerator.event(self._on, timed=True) if self._queued else perf_counter()

    def _forward(self, which: str) -> None:
        setattr(self, which, self._mark())

    def seen(self, name: str) -> None:
        """Note that the gradient of `name` is ready now; time spent in the runtime's own hooks does not count."""
        mark = self._mark()
        self._now[name] = mark if self._queued else mark - self._overhead_s

    def hook_took(self, seconds: float) -> None:
        """Tell how long the runtime held up the backward pass."""
        self._overhead_s += seconds

    def end_step(self) -> None:
        """Close the record of one backward pass."""
        self.records.append({name: self._since(self._forward_end, mark) for name, mark in self._now.items()})
        self.forward_s.append(self._since(self._forward_start, self._forward_end))
        self._overheads_s.append(self._overhead_s)
        self._now, self._overhead_s = {}, 0.0

    def hook_s(self) -> float:
        """Return what the runtime took for one gradient on this rank, the median of the steps after the first."""
        kept = self._overheads_s[1:] or self._overheads_s
        return median(kept) / max(1, len(self._names)) if kept else 0.0

    def _since(self, start: Any, end: Any) -> float:
        if self._queued:
            return accelerator.seconds(start, end)
        return float(max(0.0, end - start))

    def close(self) -> None:
        """Remove the forward hooks."""
        for handle in self._handles:
            handle.remove()

    def profile(self, base: Profile, comm: Comm) -> Profile:
        """Return the profile averaged over steps (the first dropped if there are more) and ranks, in ready order.

        Parameters that never had a gradient on any rank come last.
        """
        kept = self.records[1:] or self.records
        times = []
        for name in self._names:
            seen = [record[name] for record in kept if name in record]
            times.append(sum(seen) / len(seen) if seen else NEVER)
        local = torch.tensor([*times, sum(self.forward_s) / len(self.forward_s)], dtype=torch.float64)
        everyone = comm.all_gather(local.to(comm.device)).wait().cpu()
        finite = torch.isfinite(everyone)
        mean = torch.where(finite, everyone, 0.0).sum(0) / finite.sum(0).clamp(min=1)
        mean = torch.where(finite.any(0), mean, torch.tensor(NEVER, dtype=torch.float64))
        ready = dict(zip(self._names, mean[:-1].tolist(), strict=True))
        position = {spec.name: i for i, spec in enumerate(base.tensors)}
        order = sorted(base.tensors, key=lambda spec: (ready[spec.name], position[spec.name]))
        gaps, last = [], 0.0
        for spec in order:
            at = ready[spec.name] if ready[spec.name] != NEVER else last
            gaps.append(max(0.0, at - last))
            last = max(last, at)
        origin = Origin(
            "measured",
            hardware=accelerator.name(self._on) if self._queued else platform.machine(),
            date=datetime.now(UTC).date().isoformat(),
            note=f"online, mean of {len(kept)} iterations and {comm.world_size} ranks",
            versions={"torch": torch.__version__},
        )
        return Profile(
            base.model,
            tuple(order),
            tuple(gaps),
            float(mean[-1]),
            origin,
            device=self._device,
            optimizer=base.optimizer,
        )


REPEATS = 5
_REPEATS_BY_BYTES = ((2**13, 12), (2**17, 4), (2**63, 2))
"""How often an exchange of up to so many bytes is timed, the same on all ranks; one more goes before."""
MAX_NUMEL = 2**22
"""Largest vector that compression is timed on. Beyond it, and beyond an eighth of a big model, curves go on as lines,
so that measuring needs a fraction of a gradient copy."""
_SMALL = 2**18


def costs_for(comm: Comm, device: torch.device, online: OnlinePlanning, max_numel: int, hook_s: float) -> Costs | None:
    """Return measured costs of the compressors that a scheme asks for; None where it uses none.

    `hook_s`: what the runtime took for one gradient on this rank.
    """
    if online.compressor is not None:
        return calibrate(comm, device, online.compressor, online.density or 1.0, max_numel)
    if online.to_measure is None:
        return None
    densities, reduces = online.to_measure(placeholder_costs(comm.world_size))
    origin = Origin("measured", date=datetime.now(UTC).date().isoformat(), note=f"online, {', '.join(densities)}")
    times = {}
    for spec, density in densities.items():
        sizes, (encode, host, decode) = _measured(comm, device, spec, density, max_numel)
        codec = build(spec)
        work = [codec.work([_matrix(n)]) for n in sizes]
        entries = [codec.layout_of([_matrix(n)], density).indices or w for n, w in zip(sizes, work, strict=True)]
        copies = 1 if codec.additive else comm.world_size
        decoded = [s * copies / comm.world_size for s in decode]
        times[spec] = CompressorTimes(
            _steady(work, encode),
            _steady(work, host),
            _steady([copies * n for n in entries], decoded),
            origin,
            host_copies=True,
        )
    zero = Curve.zero()
    exchange, lane_s, occupancy = _exchanges(comm, _sizes(max_numel)[-1], reduces)
    mean_hook_s = float(comm.all_reduce(torch.tensor([hook_s], dtype=torch.float64, device=device)).wait())
    return Costs(
        comm.world_size,
        zero,
        zero,
        zero,
        exchange,
        origin,
        "batched",
        times,
        overheads=Overheads(hook_s=mean_hook_s / comm.world_size, lane_s=lane_s),
        host_shares=device.type == "cpu",
        occupancy=occupancy if device.type == "cpu" else {},
    )


def calibrate(comm: Comm, device: torch.device, compressor: str, density: float, max_numel: int) -> Costs:
    """Return the costs of `compressor` and of the basic collectives, equal on all ranks."""
    sizes, (encode, host, decode) = _measured(comm, device, compressor, density, max_numel)
    knots = tuple(float(n) for n in sizes)
    origin = Origin("measured", date=datetime.now(UTC).date().isoformat(), note=f"online, {compressor}@{density:g}")
    return Costs(
        comm.world_size,
        Curve(knots, tuple(encode)),
        Curve(knots, tuple(host)),
        Curve(knots, tuple(decode)),
        _exchanges(comm, sizes[-1])[0],
        origin,
    )


def _steady(sizes: Sequence[float], seconds: Sequence[float]) -> Curve:
    """Return the curve through the largest of equal sizes, which never falls: noise must not make more work cheaper."""
    points: dict[float, float] = {}
    for size, value in sorted(zip(sizes, seconds, strict=True)):
        points[size] = max(value, *points.values()) if points else value
    return Curve(tuple(points), tuple(points.values()))


def _sizes(max_numel: int) -> list[int]:
    top = max(2**12, min(MAX_NUMEL, max_numel, max(_SMALL, max_numel // 8)))
    return [n for n in (2**6, 2**9, 2**12, 2**15, 2**18, 2**21) if n < top] + [top]


def _measured(
    comm: Comm, device: torch.device, compressor: str, density: float, max_numel: int
) -> tuple[list[int], list[list[float]]]:
    """Return sizes in elements, and of encoding, the same on the host, and decoding the mean seconds of all ranks."""
    sizes = _sizes(max_numel)
    times = [_compressor_times(compressor, density, numel, device, comm.world_size) for numel in sizes]
    table = torch.tensor(times, dtype=torch.float64, device=comm.device).T.contiguous()
    return sizes, (comm.all_reduce(table).wait() / comm.world_size).tolist()


_PHASES = ("all_to_all", "broadcast", "send")
"""What exchanges that add up on the way consist of, beside sums and gathers."""


def _exchanges(comm: Comm, top: int, phases: bool = True) -> tuple[dict[str, Curve], float, dict[str, float]]:
    """Return of the basic collectives up to messages of `top` elements: seconds, those of issuing one, and occupancy.

    Without `phases` only those of sums and gathers.
    """
    share = max(4 * top // comm.world_size, min(4 * top, 4 * _SMALL))  # a gather receives it from every rank
    times = {"all_reduce": _exchange(comm, "all_reduce", 4 * top), "all_gather": _exchange(comm, "all_gather", share)}
    for primitive in _PHASES if phases else ():
        times[primitive] = _exchange(comm, primitive, 4 * top)
    exchange = {name: exchange_times.curve for name, exchange_times in times.items()}
    occupancy = {name: exchange_times.occupancy for name, exchange_times in times.items()}
    gathered = exchange["all_gather"]
    exchange["all_gather_v"] = gathered
    exchange["all_gather_twice"] = Curve(tuple(2 * s for s in gathered.sizes), tuple(2 * t for t in gathered.seconds))
    occupancy["all_gather_v"] = occupancy["all_gather_twice"] = occupancy["all_gather"]
    return exchange, times["all_reduce"].issue_s, occupancy


def _median_s(work: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(REPEATS):
        accelerator.wait(device)
        began = perf_counter()
        work()
        accelerator.wait(device)
        times.append(perf_counter() - began)
    return median(times[1:])


def _compressor_times(
    spec: str, density: float, numel: int, device: torch.device, world_size: int
) -> tuple[float, float, float]:
    compressor = build(spec)
    generator = torch.Generator().manual_seed(numel)
    data = (
        torch.randn(numel, dtype=torch.float32, generator=generator).pow_(3).to(device)
    )  # heavy tails, as gradients have
    here = blank_batch(compressor, [[_matrix(numel)]], density, device=device)
    here.vector.copy_(data)
    here.world_size = world_size
    encode_s = _median_s(lambda: run(here, compressor), device)
    out, ctx = torch.zeros(numel, dtype=torch.float32, device=device), here.context(here.parts[0])
    decode_s = world_size * _median_s(lambda: compressor.decompress_add(here.payload, out, ctx), device)
    if device.type == "cpu":
        return encode_s, encode_s, decode_s
    staged = blank_batch(compressor, [[_matrix(numel)]], density)
    staged.new = {"a": accelerator.pinned(numel, torch.float32)}

    def offloaded() -> None:
        staged.vector.copy_(data)
        run(staged, compressor)
        here.payload.values.copy_(staged.payload.values)

    return encode_s, _median_s(offloaded, device), decode_s


def _matrix(numel: int) -> tuple[int, ...]:
    """Return a shape of `numel` elements that is about square if their number allows: what low-rank codecs need."""
    side = 1 << (numel.bit_length() - 1) // 2
    return (side, numel // side) if numel % side == 0 else (numel,)


def issuer(comm: Comm, name: str, nbytes: int) -> Callable[[], Pending]:
    """Return a call that issues one exchange of `name`, a primitive or a collective, of about `nbytes` a rank."""
    message = torch.zeros(nbytes // 4, dtype=torch.float32, device=comm.device)
    if name == "all_to_all":
        parts = message.tensor_split(comm.world_size)
        peers = [r for r in range(comm.world_size) if r != comm.rank]
        mine = parts[comm.rank]
        return lambda: comm.swap({r: parts[r] for r in peers}, {r: torch.empty_like(mine) for r in peers})
    if name == "reduce_scatter":
        return lambda: comm.reduce_scatter(message[: len(message) // comm.world_size * comm.world_size])
    if name == "broadcast":
        return lambda: comm.broadcast(message)
    if name == "send":
        right, left = (comm.rank + 1) % comm.world_size, (comm.rank - 1) % comm.world_size
        return lambda: comm.swap({right: message}, {left: torch.empty_like(message)})
    if name != "all_reduce":
        message = message.view(torch.uint8)
    return lambda: collectives.build(name).start(message, comm)


@dataclass(frozen=True)
class _Exchange:
    """What an exchange takes by the bytes of a rank; what issuing one takes; its share of the rank's cores."""

    curve: Curve
    issue_s: float
    occupancy: float


def _exchange(comm: Comm, name: str, max_bytes: int) -> _Exchange:
    """Return the times of one exchange: medians on the slowest rank, of more repeats the shorter the messages are.

    Its share of the cores is that of the largest messages: CPU time of the threads beside the one that waits.
    """
    sizes = [n for n in (2**10, 2**13, 2**16, 2**19, 2**22) if n < max_bytes] + [min(max_bytes, 2**24)]
    seconds, issued, share = [], [], 0.0
    for nbytes in sizes:
        issue = issuer(comm, name, nbytes)
        issue().wait()
        times = []
        cpu_s, wall_s = thread_time() - process_time(), perf_counter()
        for _ in range(next(count for most, count in _REPEATS_BY_BYTES if nbytes <= most)):
            began = perf_counter()
            pending = issue()
            issued.append(perf_counter() - began)
            pending.wait()
            accelerator.wait(comm.device)
            times.append(perf_counter() - began)
        share = (thread_time() - process_time() - cpu_s) / (wall_s - perf_counter())
        seconds.append(median(times))
    medians = torch.tensor([*seconds, median(issued), share], dtype=torch.float64, device=comm.device)
    *slowest, issue_s, most_share = comm.all_reduce(medians, op="max").wait().tolist()
    # A bigger message is never planned to be cheaper than a smaller one: what noise has made too long is cut.
    steady = [min(slowest[i:]) for i in range(len(slowest))]
    return _Exchange(Curve(tuple(map(float, sizes)), tuple(steady)), issue_s, min(1.0, max(0.0, most_share)))
