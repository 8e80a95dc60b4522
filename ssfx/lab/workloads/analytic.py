"""The work of one training step, counted: FLOPs, bytes and kernels of every operator, attributed to tensors.

The step runs on torch's meta device, which knows shapes and computes nothing, so the largest models take seconds.
`python -m ssfx.lab.workloads.analytic [MODEL]...` rewrites the shipped tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from ssfx.core.errors import SsfxError
from ssfx.core.files import write_json
from ssfx.lab.workloads.as_on_gpu import as_on_gpu
from ssfx.lab.workloads.autocast_regions import Regions
from ssfx.lab.workloads.base import models
from ssfx.lab.workloads.samples import SAMPLES, sample_of
from ssfx.lab.workloads.tracing import Trace, Work
from ssfx.perf_model.operator_counts import ModelWork, work_dir
from ssfx.planning.plan import TensorSpec

COUNTABLE = tuple(name for name, sample in SAMPLES.items() if sample.targets != "boxes")
"""Models that can be counted; what detection does depends on values, of which the meta device has none."""

_BATCHES = (2, 4)  # batch norm needs two samples; two sizes tell what grows with the batch


def count_work(name: str) -> ModelWork:
    """Return the work of model `name` per sample, in the order in which gradients become ready.

    It is one of COUNTABLE, or a function of the user's.
    """
    sample = sample_of(name)
    with torch.device("meta"):
        model = models[name].build().train()
    declared = models[name]
    small, large = (_count(model, sample.batch(batch), fused=declared.fused_attention) for batch in _BATCHES)
    if small.order != large.order:
        raise RuntimeError(f"the order of gradients of {name} depends on the batch size")
    specs = {n: TensorSpec(n, tuple(p.shape)) for n, p in model.named_parameters() if p.requires_grad}
    numbers: dict[tuple[float, ...], int] = {}

    def row(passed: str, tensor: str) -> int:
        found = _per_sample(small.work[passed, tensor], large.work[passed, tensor])
        return numbers.setdefault(found, len(numbers))

    forward = tuple(row("forward", tensor) for tensor in small.order)
    backward = tuple(row("backward", tensor) for tensor in small.order)
    kept, _ = _line(small.kept_bytes(), large.kept_bytes())
    scores, _ = _line(small.kept_bytes(scores=True), large.kept_bytes(scores=True))
    return ModelWork(
        model=models[name].name,
        inputs=str(sample),
        batch_size=models[name].batch_size,
        optimizer=sample.optimizer,
        tensors=tuple(specs[tensor] for tensor in small.order),
        rows=tuple(numbers),
        forward=forward,
        backward=backward,
        activation_bytes=round(kept),
        attention_bytes=round(scores),
        versions={"torch": torch.__version__.partition("+")[0]},
        recompute=declared.recompute,
        recompute_bytes=round(_line(small.recompute_bytes(), large.recompute_bytes())[0]) if declared.recompute else 0,
    )


def _per_sample(small: Work, large: Work) -> tuple[float, ...]:
    """Return a row of ssfx.perf_model.operator_counts.COLUMNS from the work at both batch sizes."""
    if small.kernels != large.kernels:
        raise RuntimeError("the number of kernels depends on the batch size")
    flops = [_line(getattr(small, key), getattr(large, key)) for key in ("conv_flops", "matmul_flops")]
    moved = [_line(getattr(small, key), getattr(large, key)) for key in ("conv_bytes", "matmul_bytes", "other_bytes")]
    if any(fixed for _, fixed in flops):
        raise RuntimeError("some FLOPs do not grow with the batch size")
    slopes = [slope for slope, _ in flops + moved]
    return (small.kernels, *slopes, *(fixed for _, fixed in moved))


def _line(small: float, large: float) -> tuple[float, float]:
    """Return (slope, value at 0) of the line through the values at both batch sizes."""
    slope = (large - small) / (_BATCHES[1] - _BATCHES[0])
    return _whole(slope), _whole(small - slope * _BATCHES[0])


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


def _count(model: nn.Module, inputs: Tensor, *, fused: bool) -> Trace:
    return trace_of(model, lambda: _loss(model(inputs)), fused=fused)


def first_pass(loss_of: Callable[[], Tensor]) -> None:
    """A forward pass was made on the meta device, in which a lazy model builds the rest of itself."""
    trace = Trace(nn.Module())
    with as_on_gpu(trace), torch.device("meta"), trace:
        loss_of()


def trace_of(
    model: nn.Module, loss_of: Callable[[], Tensor], *, all_have: bool = True, regions: Regions | None = None,
    fused: bool = False,
) -> Trace:  # fmt: skip
    """Return what one forward pass, which gives the loss, and one backward pass of `model` do on the meta device.

    Tensors that get no gradient are refused, or else (`all_have` false) the last in order, as nobody waits for them.
    `fused`: attention keeps no matrices of scores.
    """
    trace = Trace(model, regions, fused=fused)
    handles: list[RemovableHandle] = [
        hook
        for layer in model.modules()
        if any(one.__name__ == "GradientCheckpointingLayer" for one in type(layer).__mro__)
        for hook in (layer.register_forward_pre_hook(trace.enter), layer.register_forward_hook(trace.leave))
    ]
    handles += [
        p.register_post_accumulate_grad_hook(lambda p, name=name: trace.ready(name, p.grad))
        for name, p in model.named_parameters()
        if p.requires_grad
    ]
    model.zero_grad()
    with as_on_gpu(trace), torch.device("meta"), trace:
        with torch.autograd.graph.saved_tensors_hooks(trace.keep, trace.take):
            loss = loss_of()
        with trace.backward():
            loss.backward()
    for handle in handles:
        handle.remove()
    missing = [n for n, p in model.named_parameters() if p.requires_grad and n not in trace.order]
    if missing and (all_have or not trace.order):
        raise RuntimeError(f"no gradient for {missing[0]}")
    trace.order += missing
    return trace


def _loss(out: Any) -> Tensor:
    """Return the sum of the cross-entropies of all logits of a model, whose last dimension holds the classes."""
    logits = [out] if isinstance(out, Tensor) else [t for t in out.values() if isinstance(t, Tensor)]
    losses = [
        functional.cross_entropy(one.flatten(end_dim=-2), torch.zeros(one.shape[:-1], dtype=torch.int64).flatten())
        for one in logits
    ]
    return torch.stack(losses).sum()


def main(names: list[str]) -> None:
    """Count the work of the models named, or of all, and write it into the package.

    "--own NAME PATH" instead counts one of the user's own and writes it to PATH.
    """
    if names[:1] == ["--own"]:
        _, name, target = names
        try:
            write_json(Path(target), count_work(name).to_json())
        except (SsfxError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            sys.exit(" ".join(str(error).split()))
        return
    work_dir().mkdir(exist_ok=True)
    for name in names or COUNTABLE:
        work = count_work(name)
        path = work_dir() / f"{name}.json"
        write_json(path, work.to_json())
        forward, backward = work.flops()
        print(
            f"{name}: {len(work.tensors)} tensors, {work.numel:,} parameters, {len(work.rows)} rows, "
            f"{path.stat().st_size / 1024:.0f} KiB; forward {forward / 1e9:.2f} GFLOP a sample, "
            f"backward {backward / forward:.2f} times that"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
