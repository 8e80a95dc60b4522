"""What a GPU does in few kernels and the meta device in many: stand-ins that count as the former."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssfx.lab.workloads.tracing import Trace, Work, nbytes


@contextlib.contextmanager
def as_on_gpu(trace: Trace) -> Iterator[None]:
    """Dropout is one kernel and an LSTM layer two for each step, where the meta device has many; attention is written
    out, as its matrices of scores are, unless the trace is of a model that fuses it.
    """

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, _inplace: bool = False) -> Tensor:
        return torch.native_dropout(x, p, train=True)[0] if p and training else x

    def attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, **_: Any,
    ) -> Tensor:  # fmt: skip
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

    stand_ins = [
        (functional, "dropout", dropout),
        (functional, "scaled_dot_product_attention", attention),
        (nn.LSTM, "forward", lstm),
    ]
    own = [(owner, name, getattr(owner, name)) for owner, name, _ in stand_ins]
    try:
        for owner, name, function in stand_ins:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in own:
            setattr(owner, name, function)


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
        trace.book(_product([x, w_in, gates], x.numel() * w_in.shape[0]))
        trace.used([w_state])
        trace.book(_steps(x, w_state, out, gates))
        return out

    @staticmethod
    def backward(ctx: Any, *_grads: Tensor) -> Any:
        x, w_in, w_state, out, gates = ctx.saved_tensors
        trace = ctx.trace
        trace.book(_steps(x, w_state, out, gates))
        for factor, weight in ((x, w_in), (out, w_state)):
            trace.book(_product([gates, factor, weight], gates.numel() * factor.shape[-1]))
        trace.book(_product([gates, w_in, x], gates.numel() * x.shape[-1]))
        trace.book(Work(kernels=1, other_bytes=nbytes(gates)))
        bias = gates.new_empty(w_in.shape[0])
        return None, x.new_empty(x.shape), w_in.new_empty(w_in.shape), w_state.new_empty(w_state.shape), bias, bias


def _products(count: int, multiplications: int, operands: list[Tensor]) -> Work:
    return Work(kernels=1, matmul_flops=2 * count * multiplications, matmul_bytes=sum(map(nbytes, operands)))


def _product(operands: list[Tensor], multiplications: int) -> Work:
    return _products(1, multiplications, operands)


def _steps(x: Tensor, w_state: Tensor, out: Tensor, gates: Tensor) -> Work:
    """Every step reads the weights of the state again."""
    num_steps = x.shape[1]
    return Work(
        kernels=2 * num_steps,
        matmul_flops=2 * gates.numel() * w_state.shape[1],
        matmul_bytes=num_steps * nbytes(w_state) + nbytes(gates) + nbytes(out),
        other_bytes=nbytes(gates) + 2 * nbytes(out),
    )
