"""Learning the plan's inputs from the running model: arrival order and times of gradients, agreed on by all ranks.

Source: SSFusion, section IV-B (online profiling in the first iterations); D-43.
"""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.core import accelerator
from ssfx.core.errors import ConfigError, RunError, SsfxError
from ssfx.core.origin import Origin
from ssfx.planning.plan import ITEM_BYTES, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.runtime.hooks import timing_hook

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


def agree(comm: Comm, make: Callable[[], Any]) -> Any:
    """Return rank 0's JSON-serialisable result of `make()` on every rank; an error there is raised on every rank."""
    failure: Exception | None = None
    text = ""
    if comm.rank == 0:
        try:
            text = json.dumps({"value": make()})
        except Exception as error:  # any error: the other ranks are waiting for an answer
            failure = error
            kind = "ConfigError" if isinstance(error, ConfigError) else "RunError"
            reason = (
                str(error) if isinstance(error, SsfxError) else f"rank 0 failed with {type(error).__name__}: {error}"
            )
            text = json.dumps({kind: reason})
    payload = torch.tensor(list(text.encode()), dtype=torch.uint8, device=comm.device)
    length = torch.tensor([payload.numel()], dtype=torch.int64, device=comm.device)
    comm.broadcast(length).wait()
    if comm.rank != 0:
        payload = torch.empty(int(length), dtype=torch.uint8, device=comm.device)
    comm.broadcast(payload).wait()
    if failure is not None:
        raise failure
    answer = json.loads(bytes(payload.cpu().tolist()))
    for error_type in (ConfigError, RunError):
        if error_type.__name__ in answer:
            raise error_type(answer[error_type.__name__])
    return answer["value"]


def check_same(comm: Comm, digest: str, what: str) -> None:
    """Raise ConfigError on every rank unless all ranks hold the same hexadecimal `digest`."""
    mine = torch.tensor([int(digest[:15], 16)], dtype=torch.int64, device=comm.device)
    everyone = comm.all_gather(mine).wait().flatten().tolist()
    if len(set(everyone)) > 1:
        odd = next(rank for rank, value in enumerate(everyone) if value != everyone[0])
        raise ConfigError(f"{what} differs between rank 0 and rank {odd}; all ranks must build the same model")
