"""Which LSTM operator a CPU has: oneDNN's needs newer instructions for bf16 and fp16, torch's own runs everywhere."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@functools.cache
def onednn_has_lstm(dtype: torch.dtype) -> bool:
    """True when oneDNN trains an LSTM of `dtype` on this CPU, found by trying one of a single unit.

    There is no other way to know: what torch says about bf16 is about its matrix products.
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


@contextmanager
def lstm_of_this_cpu(inputs: Tensor) -> Iterator[None]:
    """LSTM layers called inside run on this CPU in the autocast precision: without oneDNN where oneDNN has none.

    torch's own operator takes several times as long; its backward pass needs no oneDNN either, wherever it runs.
    """
    low = inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    if not low or onednn_has_lstm(torch.get_autocast_dtype("cpu")):
        yield
        return
    before = torch.backends.mkldnn.enabled
    # Not mkldnn.flags(), which sets TF32, too, and warns of that. torch declares both as if they were no attributes.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def slow_operators(model: nn.Module, dtype: torch.dtype) -> tuple[str, ...]:
    """Return one sentence for each kind of layer of `model` that this CPU has no fast operator of `dtype` for."""
    if not any(isinstance(module, nn.LSTM) for module in model.modules()) or onednn_has_lstm(dtype):
        return ()
    return (
        f"oneDNN has no {str(dtype).removeprefix('torch.')} LSTM for this CPU: torch's own trains instead, "
        "several times slower",
    )
