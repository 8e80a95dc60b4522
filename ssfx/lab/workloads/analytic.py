"""The work of one training step, counted: FLOPs, bytes and kernels of every operator, attributed to tensors.

The step runs on torch's meta device, which knows shapes and computes nothing, so the largest models take seconds.
`python -m ssfx.lab.workloads.analytic [MODEL]...` rewrites the shipped tables.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from ssfx.core.files import write_json
from ssfx.lab.workloads.base import models
from ssfx.lab.workloads.declarations import Model
from ssfx.lab.workloads.samples import SAMPLES, sample_of
from ssfx.lab.workloads.tracing import Regions, Trace, Work, nbytes
from ssfx.perf_model.operator_counts import ModelWork, work_dir
from ssfx.planning.plan import TensorSpec


@contextlib.contextmanager
def as_on_gpu(trace: Trace) -> Iterator[None]:
    """Dropout is one kernel and an LSTM layer two for each step, where the meta device has many; attention is written
    out, as its matrices of scores are, unless the trace is of a model that fuses it. `is_autocast_enabled` is
    False for the meta device, of which torch knows no autocast and raises. A single random number is 0.5: transformers
    draws one for each layer, and leaves the layer out where it is below a small share.
    """

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, _inplace: bool = False) -> Tensor:
        return torch.native_dropout(x, p, train=True)[0] if p and training else x

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        **_: Any,
    ) -> Tensor:
        if trace.fused:
            fused: Tensor = _FusedAttention.apply(trace, query, key, value, is_causal or attn_mask is not None)
            return fused
        trace.in_attention = True
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = (one.repeat_interleave(groups, -3) for one in (key, value))
        scores = query @ key.mT * (scale or query.shape[-1] ** -0.5)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=scores.dtype)
        if attn_mask is not None:
            scores = scores + attn_mask
        out = dropout(scores.softmax(-1), dropout_p) @ value
        trace.in_attention = False
        return out

    def lstm(module: nn.LSTM, x: Tensor) -> tuple[Tensor, None]:
        for layer in range(module.num_layers):
            weights = [getattr(module, f"{key}_l{layer}") for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            x = _LstmLayer.apply(trace, x, *weights)
            if layer < module.num_layers - 1:
                x = dropout(x, module.dropout)
        return x, None

    def under_autocast(*device: str) -> bool:
        return device != ("meta",) and known(*device)

    def rand(*size: Any, **named: Any) -> Any:
        return 0.5 if size == ([],) and not named else draw(*size, **named)

    known, draw = torch.is_autocast_enabled, torch.rand
    stand_ins = [
        (torch, "rand", rand),
        (torch, "is_autocast_enabled", under_autocast),
        (functional, "dropout", dropout),
        (functional, "scaled_dot_product_attention", attention),
        (nn.LSTM, "forward", lstm),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, function in stand_ins:
            stack.enter_context(patch.object(owner, name, function))
        yield


class _FusedAttention(torch.autograd.Function):
    """One kernel forward and one backward, which computes the scores again: five products instead of two.

    Where later tokens are masked, half of every product is left out, as FlashAttention does.
    """

    @staticmethod
    def forward(ctx: Any, trace: Trace, query: Tensor, key: Tensor, value: Tensor, masked: bool) -> Tensor:
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        ctx.trace, ctx.multiplications = trace, query.numel() * key.shape[-2] // (2 if masked else 1)
        ctx.save_for_backward(query, key, value, out)
        trace.book(_products(2, ctx.multiplications, [query, key, value, out]))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        tensors = list(ctx.saved_tensors)
        ctx.trace.book(_products(5, ctx.multiplications, [*tensors, *tensors, *grads]))
        return None, *(torch.empty_like(one) for one in tensors[:3]), None


class _LstmLayer(torch.autograd.Function):
    """One layer with batch first, as fused libraries run it.

    Forward: one product with the input for all steps, then for each step a product with the state and one pointwise
    kernel. Backward: the same steps reversed, and one product for each gradient of a weight and of the input.
    """

    @staticmethod
    def forward(ctx: Any, trace: Trace, x: Tensor, w_in: Tensor, w_state: Tensor, *_biases: Tensor) -> Tensor:
        out = x.new_empty(*x.shape[:2], w_state.shape[1])
        gates = x.new_empty(*x.shape[:2], w_in.shape[0])
        ctx.trace = trace
        ctx.save_for_backward(x, w_in, w_state, out, gates)
        trace.used([w_in])
        trace.book(_products(1, x.numel() * w_in.shape[0], [x, w_in, gates]))
        trace.used([w_state])
        trace.book(_steps(x, w_state, out, gates))
        return out

    @staticmethod
    def backward(ctx: Any, *_grads: Tensor) -> Any:
        x, w_in, w_state, out, gates = ctx.saved_tensors
        trace = ctx.trace
        trace.book(_steps(x, w_state, out, gates))
        for factor, weight in ((x, w_in), (out, w_state)):
            trace.book(_products(1, gates.numel() * factor.shape[-1], [gates, factor, weight]))
        trace.book(_products(1, gates.numel() * x.shape[-1], [gates, w_in, x]))
        trace.book(Work(kernels=1, other_bytes=nbytes(gates)))
        bias = gates.new_empty(w_in.shape[0])
        return None, x.new_empty(x.shape), w_in.new_empty(w_in.shape), w_state.new_empty(w_state.shape), bias, bias


def _products(count: int, multiplications: int, operands: list[Tensor]) -> Work:
    return Work(kernels=1, matmul_flops=2 * count * multiplications, matmul_bytes=sum(map(nbytes, operands)))


def _steps(x: Tensor, w_state: Tensor, out: Tensor, gates: Tensor) -> Work:
    """Every step reads the weights of the state again."""
    num_steps = x.shape[1]
    return Work(
        kernels=2 * num_steps,
        matmul_flops=2 * gates.numel() * w_state.shape[1],
        matmul_bytes=num_steps * nbytes(w_state) + nbytes(gates) + nbytes(out),
        other_bytes=nbytes(gates) + 2 * nbytes(out),
    )


COUNTABLE = tuple(name for name, sample in SAMPLES.items() if sample.targets != "boxes")
"""Models that can be counted; what detection does depends on values, and the meta device has none."""

_BATCHES = (2, 4)  # batch norm needs two samples; two sizes tell what grows with the batch

_FEW = 1e-4
"""The share of a step's FLOPs that may be of no sample, such as positions by frequencies in transformers 5.0."""


def count_work(name: str) -> ModelWork:
    """Return the work of model `name` per sample, in the order in which gradients become ready.

    It is one of COUNTABLE, or a function of the user's.
    """
    sample = sample_of(name)
    declared = models[name]
    model = declared.on_meta().train()
    small, large = (_count(model, sample.batch(batch), fused=declared.fused_attention) for batch in _BATCHES)
    return work_of(replace(declared, inputs=str(sample)), model, sample.optimizer, small, large, _BATCHES)


def work_of(
    declared: Model, model: nn.Module, optimizer: str, small: Trace, large: Trace, sizes: tuple[int, int] | None = None
) -> ModelWork:
    """Return the work per sample from two traces; `sizes`: their batches (None: the declared one, and twice that)."""
    first, second = sizes or (declared.batch_size, 2 * declared.batch_size)
    name = declared.name
    if small.order != large.order:
        raise RuntimeError(f"the order of gradients of {name} depends on the batch size")
    specs = {n: TensorSpec(n, tuple(p.shape)) for n, p in model.named_parameters() if p.requires_grad}
    numbers: dict[tuple[float, ...], int] = {}
    few = _FEW * sum(work.conv_flops + work.matmul_flops for work in small.work.values())

    def row(passed: str, tensor: str) -> int:
        found = _per_sample(small.work[passed, tensor], large.work[passed, tensor], (first, second), few)
        return numbers.setdefault(found, len(numbers))

    forward = tuple(row("forward", tensor) for tensor in small.order)
    backward = tuple(row("backward", tensor) for tensor in small.order)
    kept, _ = _line(small.kept_bytes(), large.kept_bytes(), (first, second))
    scores, _ = _line(small.kept_bytes(scores=True), large.kept_bytes(scores=True), (first, second))
    again = declared.recompute and _line(small.recompute_bytes(), large.recompute_bytes(), (first, second))[0]
    return ModelWork(
        model=name,
        inputs=declared.inputs,
        batch_size=declared.batch_size,
        optimizer=optimizer,
        tensors=tuple(specs[tensor] for tensor in small.order),
        rows=tuple(numbers),
        forward=forward,
        backward=backward,
        activation_bytes=round(kept),
        attention_bytes=round(scores),
        versions={"torch": torch.__version__.partition("+")[0]},
        recompute=declared.recompute,
        recompute_bytes=round(again),
    )


def _per_sample(small: Work, large: Work, sizes: tuple[int, int], few: float) -> tuple[float, ...]:
    """Return a row of ssfx.perf_model.operator_counts.COLUMNS from the work at both batch sizes.

    FLOPs that do not grow with the batch have no column: up to `few` of them are left out.
    """
    if small.kernels != large.kernels:
        raise RuntimeError("the number of kernels depends on the batch size")
    flops, moved = (
        [_line(getattr(small, key), getattr(large, key), sizes) for key in keys]
        for keys in (("conv_flops", "matmul_flops"), ("conv_bytes", "matmul_bytes", "other_bytes"))
    )
    if any(abs(fixed) > few for _, fixed in flops):
        raise RuntimeError("some FLOPs do not grow with the batch size")
    slopes = [slope for slope, _ in flops + moved]
    return (small.kernels, *slopes, *(fixed for _, fixed in moved))


def _line(small: float, large: float, sizes: tuple[int, int]) -> tuple[float, float]:
    """Return (slope, value at 0) of the line through the values at both batch sizes."""
    slope = (large - small) / (sizes[1] - sizes[0])
    return _whole(slope), _whole(small - slope * sizes[0])


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
    model: nn.Module,
    loss_of: Callable[[], Tensor],
    *,
    all_have: bool = True,
    regions: Regions | None = None,
    fused: bool = False,
) -> Trace:
    """Return what one forward pass, which gives the loss, and one backward pass of `model` do on the meta device.

    Tensors that get no gradient are refused, or else (`all_have` false) the last in order, as no message waits for
    them. `fused`: attention keeps no matrices of scores.
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
    """Count the work of the models named, or of all, and write it into the package."""
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
