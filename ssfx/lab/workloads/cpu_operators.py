"""What a CPU computes bf16 and fp16 with: oneDNN where it has instructions for it, torch's own operators elsewhere."""

from __future__ import annotations

import functools

import torch
from torch import nn


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

    torch has operators of its own for whatever oneDNN lacks, which are many times slower, and takes them by itself,
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
