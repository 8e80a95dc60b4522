"""The training loop that the worker process of one rank runs: a Case in, StepRecords and final metrics out."""

import functools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ssfx.collectives.comm import Comm
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core import accelerator
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.workloads.base import Dataset, datasets, models
from ssfx.lab.workloads.checkpoint import Checkpoints, summed, together
from ssfx.lab.workloads.checks import check_case
from ssfx.lab.workloads.initial_weights import start_from
from ssfx.lab.workloads.metrics.tally import QUALITY, Tally, quality_of
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.sharded import ShardedExchange, exchange_options, load_shards, local, shard, shards_in, whole
from ssfx.lab.workloads.step import AUTOCAST, Stepper, make_optimizer, set_precision
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.sync import Sync
from ssfx.runtime.virtual_ranks import share_weights
from ssfx.schemes import schemes

MAX_NON_FINITE = 3
"""Steps in a row with a loss that is not finite after which a run is given up."""

_log = logging.getLogger(__name__)


class StoppedAtCheckpoint(Exception):
    """Training ended at a checkpoint, on all ranks after the same step, because it was asked to."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at the checkpoint after step {step}")
        self.step = step


@dataclass(frozen=True)
class TrainResult:
    """What a finished rank reports."""

    metrics: dict[str, float | None]
    """By key of ssfx.core.rows.METRICS: skipped_steps and, with `evaluate`, the quality after the last step; None
    where a value is not finite."""
    data_fingerprint: str
    """Digest of the data set; equal on all ranks that trained on the same data."""
    first_step: int
    """0, or the step after the checkpoint that was resumed."""
    notes: tuple[str, ...]
    """For people: layers without a fast operator on this CPU, checkpoints that were passed over, a part of the data."""


def train(
    case: Case,
    on_step: Callable[[StepRecord], bool | None],
    attach: Callable[..., Sync | ShardedExchange | OuterSync],
    *,
    checkpoint_dir: Path | None = None,
    comm: Comm | None = None,
) -> TrainResult:
    """Train `case` on this rank to its last step, calling `on_step` after every one, and return the rank's result.

    Where `on_step` returns True, on all ranks after the same step, a checkpoint is written and StoppedAtCheckpoint
    raised. The default process group must exist when world_size > 1, unless `comm` is a virtual rank's.
    A complete checkpoint in `checkpoint_dir` is resumed. Quality is measured by all ranks together where it is due; its
    time is in no record.
    Raises ConfigError for a case that cannot run here, RunError when the loss stays non-finite or data or checkpoint
    files fail.
    """
    check_case(case)
    if case.checkpoint_every and checkpoint_dir is None:
        raise ValueError("checkpoint_every needs a checkpoint_dir")
    rank, control = _place(case, comm)
    device = _device(case)
    torch.set_num_threads(case.threads)
    set_precision(case.precision)
    data = datasets.build(case.dataset)
    torch.manual_seed(case.seed)
    model = models[case.model].build()
    notes = start_from(model, case.initial_weights) if case.initial_weights else ()
    model.to(device).train()
    torch.manual_seed(case.seed * case.world_size + rank)  # from here on ranks draw different dropout masks
    if case.sharding != "none":
        shard(case, model)
    optimizer = make_optimizer(case, model)
    scheme_options = schemes[case.scheme].for_run(case.scheme_options, case.steps, case.clip_norm is not None)
    if comm is not None and schemes[case.scheme].online(scheme_options).rounds is None:
        share_weights(model, optimizer, comm)
    scaler = torch.amp.GradScaler(case.device) if case.precision == "fp16" else None
    batches = data.train_loader(
        rank, case.world_size, case.batch_size, case.seed, device=case.device, workers=case.data_workers
    )
    sync = attach(
        model,
        optimizer,
        scheme=case.scheme,
        compressor=case.compressor,
        density=case.density,
        memory=case.memory,
        scaler=scaler,
        seed=case.seed,
        **scheme_options,
        **exchange_options(case),
    )
    parts = _State(model, optimizer, sync, scaler, device, sharded=case.sharding != "none")
    checkpoints = None
    if device.type == "cpu":
        notes += prepare(model, AUTOCAST[case.precision])
    if checkpoint_dir is not None:
        identity = {"run": case.run_id, "data": data.fingerprint()}
        checkpoints = Checkpoints(checkpoint_dir, identity, rank=rank, world_size=case.world_size, comm=control)
        loaded = checkpoints.load()
        notes += loaded.skipped
        if loaded.state is not None:
            parts.load_state_dict(loaded.state)
    if part := data.part():
        notes += (part,)
    for note in notes:
        _log.warning("%s", note)
    first_step = parts.step

    metrics: dict[str, float | None] = {}
    stepper = Stepper(case, model, optimizer, sync, scaler, batches, device)
    while parts.step < case.steps:
        compute_only = _compute_only(case, stepper, parts.step, control)
        record = stepper.run(parts.step)
        if isinstance(sync, OuterSync) and parts.step + 1 == case.steps:
            sync.synchronize()  # the round that is not full
        if compute_only is not None:
            record = replace(record, control_forward_s=compute_only[0], control_backward_s=compute_only[1])
        if due(case, parts.step):
            point = measure(case, data, model, sync, rank, control)
            metrics = {name: value for name, value in point.items() if name in QUALITY}
            record = replace(record, evaluated=point)
        stop = on_step(record)
        parts.count(record, rank)
        if checkpoints and (stop or (case.checkpoint_every and parts.step % case.checkpoint_every == 0)):
            checkpoints.save(parts.step, parts.state_dict())
        if stop and checkpoints and parts.step < case.steps:
            raise StoppedAtCheckpoint(parts.step)
    if case.evaluate and not metrics:  # the checkpoint that was resumed is of the last step
        point = measure(case, data, model, sync, rank, control)
        metrics = {name: value for name, value in point.items() if name in QUALITY}
    sync.detach()
    return TrainResult({"skipped_steps": parts.skipped_steps, **metrics}, data.fingerprint(), first_step, notes)


def _compute_only(case: Case, stepper: Stepper, step: int, control: Comm | None) -> tuple[float, float] | None:
    """Return the times of a pass without exchange, if one is to precede `step`, which all ranks then begin together."""
    if not case.time_compute_only or step < case.warmup_steps:
        return None
    times_s = stepper.compute_only(step)
    together(control)  # or the step would begin with waiting for the rank whose pass took longest
    return times_s


@dataclass
class _State:
    """Everything that changes from step to step on this rank; the data position is the number of finished steps."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    sync: Sync | ShardedExchange | OuterSync
    scaler: torch.amp.GradScaler | None
    device: torch.device
    sharded: bool
    step: int = 0
    skipped_steps: int = 0
    non_finite: int = 0

    @property
    def _parts(self) -> dict[str, Any]:
        found = {"model": self.model, "optimizer": self.optimizer, "sync": self.sync, "scaler": self.scaler}
        return {name: part for name, part in found.items() if part is not None}

    def count(self, record: StepRecord, rank: int) -> None:
        """Count a finished step; RunError when the loss has not been finite for MAX_NON_FINITE steps in a row."""
        self.step += 1
        self.skipped_steps += record.skipped
        self.non_finite = 0 if record.loss is not None else self.non_finite + 1
        if self.non_finite >= MAX_NON_FINITE:
            raise RunError(
                f"the loss on rank {rank} was not finite for {MAX_NON_FINITE} steps in a row, "
                f"up to step {record.step}; use a smaller lr, or set clip_norm"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return all of it in types that torch.load accepts without running code."""
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            rng[self.device.type] = accelerator.random_state(self.device)
        counters = {"step": self.step, "skipped_steps": self.skipped_steps, "non_finite": self.non_finite}
        states = {name: part.state_dict() for name, part in self._parts.items()}
        return {**(shards_in(states) if self.sharded else states), "rng": rng, "counters": counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        if self.sharded:
            load_shards(self.model, self.optimizer, state)
        for name, part in self._parts.items():
            if not self.sharded or name not in ("model", "optimizer"):
                part.load_state_dict(state[name])
        torch.set_rng_state(state["rng"]["cpu"])
        if self.device.type != "cpu":
            accelerator.set_random_state(state["rng"][self.device.type], self.device)
        counters = state["counters"]
        self.step, self.skipped_steps = counters["step"], counters["skipped_steps"]
        self.non_finite = counters["non_finite"]


def _place(case: Case, comm: Comm | None) -> tuple[int, Comm | None]:
    """Return this rank and a Comm on the CPU for what is not gradient exchange, which has its own ordered queue."""
    if comm is not None:
        return comm.rank, comm if comm.world_size > 1 else None
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if world_size != case.world_size:
        raise ConfigError(f"the case has world_size={case.world_size}, but {world_size} processes were started")
    if world_size == 1:
        return 0, None
    return dist.get_rank(), TorchComm(_control_group(dist.group.WORLD))


@functools.cache
def _control_group(_world: Any) -> Any:
    # One for all cases that a batch of processes works through; closing groups one by one upsets slower peers.
    return dist.new_group(backend="gloo")


def _device(case: Case) -> torch.device:
    if case.device == "cpu":
        return torch.device("cpu")
    if not accelerator.count(case.device):
        raise ConfigError(f"device={case.device}, but torch finds no such device here; use device=cpu")
    return accelerator.in_use(case.device)


def onednn_computes(dtype: torch.dtype) -> bool:
    """True when oneDNN has matrix products and convolutions of `dtype` for this CPU."""
    name = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype)
    try:
        return name is None or bool(getattr(torch.ops.mkldnn, name)())
    except (AttributeError, RuntimeError):  # a torch without oneDNN, or that does not tell
        return False


@functools.cache
def onednn_has_lstm(dtype: torch.dtype) -> bool:
    """True when oneDNN trains an LSTM of `dtype` on this CPU, found by trying one of a single unit.

    There is no other way to know: what torch says is about products and convolutions.
    """
    weights = [torch.zeros(shape, requires_grad=True) for shape in ((4, 1), (4, 1), (4,), (4,))]
    start = [torch.zeros(1, 1, 1)] * 2
    low = torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32)
    try:
        with torch.enable_grad(), low:
            out, *_ = torch.lstm(torch.zeros(1, 1, 1), start, weights, True, 1, 0.0, True, False, True)
        out.float().sum().backward()
    except RuntimeError:
        return False
    return True


def prepare(model: nn.Module, dtype: torch.dtype) -> tuple[str, ...]:
    """Every layer of `model` trains on this CPU under autocast to `dtype`; return what there is to say of that.

    torch has operators of its own for what oneDNN lacks, which are many times slower, and takes them by itself,
    except for LSTM layers: these are made to. Their backward pass then needs no oneDNN either.
    """
    if dtype == torch.float32:
        return ()
    name = str(dtype).removeprefix("torch.")
    layers = [module for module in model.modules() if isinstance(module, nn.LSTM)]
    without = bool(layers) and not onednn_has_lstm(dtype)
    for layer in layers if without else ():
        switch = _WithoutOnednn()
        layer.register_forward_pre_hook(switch.begin)
        layer.register_forward_hook(switch.end, always_call=True)
    if not onednn_computes(dtype):
        return (f"oneDNN computes nothing in {name} on this CPU: torch's own operators train, far slower than in fp32",)
    return (f"oneDNN has no {name} LSTM for this CPU: torch's own trains, several times slower",) if without else ()


class _WithoutOnednn:
    """While a layer is called under autocast, torch uses no oneDNN.

    Not by torch.backends.mkldnn.flags(), which sets TF32, too, and warns of that. torch declares what is set here as if
    it were no attribute.
    """

    def begin(self, *_: object) -> None:
        self._before = torch.backends.mkldnn.enabled
        if torch.is_autocast_enabled("cpu"):
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]

    def end(self, *_: object) -> None:
        torch.backends.mkldnn.enabled = self._before


def due(case: Case, step: int) -> bool:
    """Return whether quality is measured after step number `step`: every `evaluate_every` steps and after the last."""
    every = case.evaluate_every
    return case.evaluate and (step + 1 == case.steps or bool(every and (step + 1) % every == 0))


def measure(
    case: Case, data: Dataset, model: nn.Module, sync: Sync | ShardedExchange | OuterSync, rank: int, comm: Comm | None
) -> dict[str, float | None]:
    """Return the metrics of quality and the state of the exchange, the same on all ranks; None for what is not finite.

    Besides quality: `error_norm`, the Euclidean norm of what a rank has not sent yet, mean over ranks, and `threshold`,
    that of a collective that steers one (where there is one), and `union_density`, the fraction of elements of the
    averaged gradient that are not zero. Running statistics are averaged over ranks for the measurement alone. Of a
    training in rounds the outer weights are measured, which all ranks share.
    """
    outer = sync.outer() if isinstance(sync, OuterSync) else nullcontext()
    with outer, averaged_buffers(model, case.world_size, comm), whole(case, model):
        tally = data.tally(model, rank, case.world_size)
    total = _summed(tally | _exchange_state(model, sync), comm)
    ranks = total.pop("ranks")
    found = quality_of(total)
    for name in ("error_norm", "threshold", "union_density"):
        if name in total:
            found[name] = total[name] / ranks
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _exchange_state(model: nn.Module, sync: Sync | ShardedExchange | OuterSync) -> Tally:
    stats = sync.stats()
    known = {"error_norm": stats.get("residual_norm"), "threshold": stats.get("threshold")}
    grads = [local(p.grad) for p in model.parameters() if p.grad is not None]
    elements = sum(grad.numel() for grad in grads)
    found: Tally = {name: float(value) for name, value in known.items() if value is not None}
    if elements:
        found["union_density"] = sum(int(grad.count_nonzero()) for grad in grads) / elements
    found["ranks"] = 1.0
    return found


def _summed(tally: Tally, comm: Comm | None) -> Tally:
    if comm is None:
        return tally
    names = sorted(tally)
    sums = torch.tensor([tally[name] for name in names], dtype=torch.float64)
    return dict(zip(names, summed(comm, sums).tolist(), strict=True))


@contextmanager
def averaged_buffers(model: nn.Module, world_size: int, comm: Comm | None) -> Iterator[None]:
    """Replace every floating-point buffer (running statistics) by its mean over ranks for the block; one all-reduce."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    if world_size == 1 or not buffers:
        yield
        return
    before = [buffer.clone() for buffer in buffers]
    flat = torch.cat([b.detach().float().flatten() for b in buffers]).cpu()
    summed(comm, flat).div_(world_size)
    with torch.no_grad():
        for buffer, mean in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(mean.view_as(buffer))
        try:
            yield
        finally:
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
