"""One optimizer step of one rank: micro-batches, backward with exchange, clipping, update, and where its time went.

Muon steps hidden matrices along their orthogonalised momentum, all other weights by AdamW. A GPU multiplies in float32
throughout, or in float32 whose products keep ten bits of the mantissa (TF32).
"""

import contextlib
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import nn

from ssfx.core.case import Case
from ssfx.core.errors import RunError, unknown
from ssfx.core.user_code import is_own
from ssfx.lab.results.density_bins import binned
from ssfx.lab.workloads.checks import OPTIMIZERS
from ssfx.lab.workloads.clock import Clock, Mark
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.schedule import learning_rate
from ssfx.lab.workloads.sharded import ShardedExchange
from ssfx.lab.workloads.stream import Batches
from ssfx.perf_model.roofline import ITERATIONS
from ssfx.runtime.attach import exempt_names
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.stats import StepStats
from ssfx.runtime.sync import Sync
from ssfx.simulator.pricing.message_sizes import lane_load
from ssfx.simulator.pricing.selection_stats import SelectionStats

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the iteration of Newton and Schulz in Jordan et al. 2024."""


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """Return about U V^T of the singular value decomposition U S V^T of a float `matrix`, in its dtype."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if tall else matrix
    x = x.div(x.norm().clamp(min=1e-7))  # no singular value is above 1, as the iteration asks
    for _ in range(ITERATIONS):  # X <- a X + (b A + c A^2) X with A = X X^T: the polynomial a s + b s^3 + c s^5 of each
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if tall else x


class Muon(torch.optim.Optimizer):
    """One rate for all weights: a matrix's step has the root mean square that AdamW's usually has (Liu et al. 2025).

    Groups with `matrices` hold tensors of two dimensions. `betas`: the first is Muon's momentum, too, with Nesterov's
    step. Weight decay is decoupled, as AdamW's is.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "matrices": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step all weights that have a gradient, and return what `closure` returned, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    update = self._matrix if group["matrices"] else self._adam
                    p.sub_(group["lr"] * update(p, p.grad, *group["betas"]))
        return loss

    def _matrix(self, p: torch.Tensor, grad: torch.Tensor, beta: float, _: float) -> torch.Tensor:
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
        momentum: torch.Tensor = state["momentum"].lerp_(grad, 1 - beta)  # m <- beta m + (1 - beta) g
        update = orthogonalised(grad.lerp(momentum, beta))
        # U V^T of m x n has the root mean square 1 / sqrt(max(m, n)); AdamW's steps have about 0.2.
        return update.mul(0.2 * max(p.shape) ** 0.5)

    def _adam(self, p: torch.Tensor, grad: torch.Tensor, beta1: float, beta2: float) -> torch.Tensor:
        state = self.state[p]
        if not state:
            state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
        state["step"] += 1
        first: torch.Tensor = state["first"].lerp_(grad, 1 - beta1)
        second: torch.Tensor = state["second"].lerp_(grad * grad, 1 - beta2)
        at = int(state["step"])  # both moments began at zero: divided by 1 - beta^t
        return first.div(1 - beta1**at) / (second.div(1 - beta2**at).sqrt() + 1e-8)


AUTOCAST = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What forward passes compute in, by precision."""


def set_precision(precision: str) -> None:
    """Float32 matrix products and convolutions are exact from now on, or TF32 if `precision` is "tf32".

    Torch's own defaults differ: convolutions in TF32, matrix products exact. A row that says fp32 must mean both.
    """
    fast = precision == "tf32"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    torch.backends.cudnn.allow_tf32 = fast


def forward_in(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Forward passes inside compute in `precision`, by autocast where it has 16 bits."""
    dtype = AUTOCAST[precision]
    return torch.autocast(device.type, dtype=dtype) if dtype != torch.float32 else contextlib.nullcontext()


@dataclass(frozen=True)
class NoExchange:
    """StepStats of a step without an exchange of ours: one rank, whose gradient arrives whole, or a sharded model."""

    skipped: bool
    sparsify_s: float = 0.0
    decode_s: float = 0.0
    exposed_comm_s: float = 0.0
    comm_s: float = 0.0
    contributed_bytes: float = 0.0
    sent_bytes: float = 0.0
    achieved_density: float = 1.0
    density_ratios: tuple[float, ...] = ()
    tensor_missing_rate: float | None = 0.0
    observed: bool = False
    plan_s: float = 0.0


def make_optimizer(case: Case, model: nn.Module) -> torch.optim.Optimizer:
    """Return the case's optimizer; `momentum` is beta1 of adam, adamw and muon, whose beta2 is 0.999.

    One fused kernel, on the CPU as on CUDA: it reads each tensor once.
    """
    parameters, decay = _groups(case, model), case.weight_decay
    if case.optimizer == "sgd":
        kernel = {"fused": True} if case.sharding == "none" else {"foreach": True}  # torch fuses no SGD of shards
        return torch.optim.SGD(parameters, lr=case.lr, momentum=case.momentum, weight_decay=decay, **kernel)
    betas = (case.momentum, 0.999)
    if case.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=case.lr, betas=betas, weight_decay=decay, fused=True)
    if case.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=case.lr, betas=betas, weight_decay=decay, fused=True)
    if case.optimizer == "muon":
        return Muon(_matrices_apart(parameters, model), case.lr, betas, decay)
    raise unknown("optimizer", case.optimizer, OPTIMIZERS)


def _groups(case: Case, model: nn.Module) -> list[dict[str, Any]]:
    """Return all parameters, those with fewer than two dimensions apart and without weight decay if the case says so.

    Biases and the scales of norms have one dimension in all models here; Devlin et al. 2019 decay neither.
    """
    parameters = list(model.parameters())
    if not case.decay_only_matrices:
        return [{"params": parameters}]
    matrices, vectors = ([p for p in parameters if (p.ndim >= 2) is wide] for wide in (True, False))
    return [group for group in ({"params": matrices}, {"params": vectors, "weight_decay": 0.0}) if group["params"]]


def _matrices_apart(groups: list[dict[str, Any]], model: nn.Module) -> list[dict[str, Any]]:
    """Return `groups` with hidden matrices in groups of their own: no table of words and no head."""
    spared = exempt_names(model, "embeddings,heads")
    hidden = {id(p) for name, p in model.named_parameters() if p.ndim == 2 and name not in spared}
    apart = [
        {**group, "params": [p for p in group["params"] if (id(p) in hidden) is matrices], "matrices": matrices}
        for group in groups
        for matrices in (True, False)
    ]
    return [group for group in apart if group["params"]]


@dataclass
class Stepper:
    """Runs optimizer steps; step n uses micro-batches n * accumulate to (n + 1) * accumulate - 1 of `batches`."""

    case: Case
    model: nn.Module
    optimizer: torch.optim.Optimizer
    sync: Sync | ShardedExchange | OuterSync
    scaler: torch.amp.GradScaler | None
    batches: Batches
    device: torch.device

    def __post_init__(self) -> None:
        self._clock = Clock(self.device)

    def compute_only(self, step: int) -> tuple[float, float]:
        """Return the seconds of forward and backward of that step's first micro-batch; nothing of it is kept."""
        mark = self._clock.mark
        self.optimizer.zero_grad()
        inputs, targets = (t.to(self.device) for t in self.batches[step * self.case.accumulate])
        with self.sync.no_sync():
            start = mark()
            loss = self._forward(inputs, targets)
            middle = mark()
            self._backward(loss)
            end = mark()
        self._clock.wait()
        return self._clock.seconds(start, middle), self._clock.seconds(middle, end)

    def run(self, step: int) -> StepRecord:
        """Do step number `step` and return what was observed; the device has finished when this returns."""
        mark = self._clock.mark
        forward: list[tuple[Mark, Mark]] = []
        backward: list[tuple[Mark, Mark]] = []
        losses = []
        began = mark()
        moments = [perf_counter()]  # when each part began, by the host's clock: for the trace
        self.sync.tracer.begin(step, moments[0])
        rate = learning_rate(self.case, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        for micro in range(self.case.accumulate):
            inputs, targets = (t.to(self.device) for t in self.batches[step * self.case.accumulate + micro])
            last = micro == self.case.accumulate - 1
            with contextlib.nullcontext() if last else self.sync.no_sync():
                start = mark()
                moments.append(perf_counter())
                loss = self._forward(inputs, targets)
                middle = mark()
                moments.append(perf_counter())
                self._backward(loss / self.case.accumulate)
                end = mark()
                moments.append(perf_counter())
            forward.append((start, middle))
            backward.append((middle, end))
            losses.append(loss.detach())
        stats = self._exchanged()
        update_began = mark()
        moments.append(perf_counter())
        self._update()
        ended = mark()
        self._clock.wait()
        after_s = waited_s = calls_s = 0.0
        if isinstance(self.sync, OuterSync):  # weights are exchanged after the optimizer's step
            after_s, waited_s, calls_s = self.sync.exchange_s, self.sync.waited_s, self.sync.calls_s
        self._draw(moments)
        return self._record(
            step,
            torch.stack(losses).mean().item(),
            stats,
            self._total(forward),
            self._total(backward),
            self._clock.seconds(update_began, ended) - after_s,
            self._clock.seconds(began, ended),
            waited_s,
            calls_s,
        )

    def _draw(self, moments: list[float]) -> None:
        """Give the trace the spans between `moments`; the exchange has drawn its own, inside backward."""
        stages = ["other", *(["forward", "backward", "other"] * self.case.accumulate), "step"]
        for stage, start_s, end_s in zip(stages, moments, [*moments[1:], perf_counter()], strict=True):
            self.sync.tracer.span(stage, start_s, end_s)

    def _forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        try:
            with forward_in(self.case.precision, self.device):
                return cross_entropy(self.model, inputs, targets)
        except RuntimeError as error:
            if not is_own(self.case.model):  # what a model of ours reads was compared before anything was started
                raise
            batch = f"dataset={self.case.dataset}, {'x'.join(map(str, inputs.shape))}"
            raise RunError(f"{self.case.model.partition('#')[0]} fails on a batch of {batch}: {error}") from error

    def _backward(self, loss: torch.Tensor) -> None:
        scaled = self.scaler.scale(loss) if self.scaler else loss
        scaled.backward()

    def _exchanged(self) -> StepStats | NoExchange:
        """Return what the exchange did.

        A single rank decides here whether its gradient is good enough to use, and so do ranks that share a model.
        """
        if self.sync.last is not None:
            return self.sync.last
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm: Any = nn.utils.get_total_norm(grads)
        planned: dict[str, Any] = {}
        if isinstance(self.sync, ShardedExchange):
            norm, planned = norm.full_tensor(), self.sync.planned
        elif isinstance(self.sync, OuterSync):
            moved = SelectionStats().volumes(self.sync.plan)
            plan = self.sync.plan
            lanes = [lane for _, lane in plan.lanes()]
            kept = sum(lane_load(plan, lane).kept for lane in lanes) / sum(map(plan.numel, lanes))
            planned = {
                "contributed_bytes": float(moved.contributed),
                "sent_bytes": float(moved.sent),
                "achieved_density": kept,
                "observed": self.sync.step < self.sync.dense_steps,  # no step of a round
            }
            if self.sync.inside is not None and (inside := self.sync.inside.last) is not None:
                for name in ("sparsify_s", "decode_s", "exposed_comm_s", "comm_s", "contributed_bytes", "sent_bytes"):
                    planned[name] = planned.get(name, 0.0) + getattr(inside, name)
        finite = bool(torch.isfinite(norm))
        if not finite and self.scaler is None:
            self.optimizer.zero_grad()
        return NoExchange(skipped=not finite, **planned)

    def _update(self) -> None:
        """Clip and apply the exchanged gradient, which is the average of all ranks; after a skip there is none."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.case.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.case.clip_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def _total(self, spans: list[tuple[Mark, Mark]]) -> float:
        return sum(self._clock.seconds(start, end) for start, end in spans)

    def _record(
        self,
        step: int,
        loss: float,
        stats: StepStats | NoExchange,
        forward_s: float,
        backward_s: float,
        step_s: float,
        total_s: float,
        waited_s: float,
        calls_s: float,
    ) -> StepRecord:
        in_backward_s = stats.sparsify_s + stats.decode_s
        sparsify_s = in_backward_s + calls_s
        # The exchange runs inside backward. The host and the stream are different clocks on CUDA, hence no negatives.
        pure_backward_s = max(0.0, backward_s - in_backward_s - stats.exposed_comm_s)
        exposed_s = stats.exposed_comm_s + waited_s
        other_s = max(0.0, total_s - forward_s - pure_backward_s - sparsify_s - exposed_s - step_s)
        return StepRecord(
            step=step,
            iteration_s=total_s,
            forward_s=forward_s,
            backward_s=pure_backward_s,
            sparsify_s=sparsify_s,
            exposed_comm_s=exposed_s,
            step_s=step_s,
            other_s=other_s,
            comm_s=stats.comm_s,
            loss=loss if math.isfinite(loss) else None,
            contributed_bytes=stats.contributed_bytes,
            sent_bytes=stats.sent_bytes,
            achieved_density=stats.achieved_density,
            tensor_missing_rate=stats.tensor_missing_rate,
            skipped=stats.skipped,
            density_ratios=binned(stats.density_ratios),
            observed=stats.observed,
            plan_s=stats.plan_s,
        )
