"""A Chrome trace of torch.profiler as a Profile: when the gradients of a training that ran anywhere were ready."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

READY = "torch::autograd::AccumulateGrad"
BACKWARD = "autograd::engine::evaluate_function"
STEP = "Optimizer.step#"
CLEAR = "Optimizer.zero_grad#"
HOW = "record whole iterations: with profile(record_shapes=True), the optimizer's step inside, then export_chrome_trace"
_DTYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}


@dataclass(frozen=True)
class _Iteration:
    """Seconds of one iteration; `grads` are the events of its gradients in ready order, `ready_s` since backward."""

    grads: tuple[dict[str, Any], ...]
    ready_s: tuple[float, ...]
    forward_s: float
    step_s: float
    other_s: float


def profile_of_trace(
    path: Path, model: str = "", tensors: Sequence[TensorSpec] | None = None, batch_size: int = 0
) -> Profile:
    """Return the profile of the training that `path` (.json or .json.gz) is a trace of, medians over its iterations.

    Names and shapes are those of `tensors` in the order in which gradients become ready, or else what the trace says of
    shapes, with numbers for names. Where the trace has kernels of a GPU, a gradient is ready when those that were
    launched before it have ended; exchanges of NCCL do not count. ConfigError for a file that is no such trace.
    """
    raw = _read(path)
    events = [e for e in raw["traceEvents"] if isinstance(e, dict) and e.get("ph") == "X" and "ts" in e]
    found = _iterations(sorted(events, key=lambda event: float(event["ts"])), path)
    counts = sorted({len(one.grads) for one in found})
    if len(counts) > 1:
        raise ConfigError(
            f"{path}: its iterations have {counts[0]} to {counts[-1]} gradients; {HOW}, each with one backward pass"
        )
    specs = _specs(found[0].grads, tensors, path, model)
    ready_s = [median(one.ready_s[i] for one in found) for i in range(counts[0])]
    gaps = tuple(round(max(0.0, b - a), 9) for a, b in zip([0.0, *ready_s], ready_s, strict=False))
    gpus = [str(one.get("name")) for one in raw.get("deviceProperties") or []]
    on_gpu = any(event.get("cat") == "kernel" for event in events)
    origin = Origin(
        "measured", gpus[0] if on_gpu and gpus else "", "",
        f"torch.profiler trace {path.name}, median of {len(found)} iterations; the profiler makes them slower",
    )  # fmt: skip
    return Profile(
        model or path.name.partition(".")[0], specs, gaps, round(median(one.forward_s for one in found), 9), origin,
        batch_size, "cuda" if on_gpu else "cpu", step_s=round(median(one.step_s for one in found), 9),
        other_s=round(median(one.other_s for one in found), 9), optimizer=_optimizer(events),
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        raw = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or 'it is no whole gzip file'}") from None
    except (ValueError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise ConfigError(f"{path} is no Chrome trace: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("traceEvents"), list):
        raise ConfigError(f"{path} is no Chrome trace of torch.profiler: it has no traceEvents")
    return raw


def _iterations(events: Sequence[dict[str, Any]], path: Path) -> list[_Iteration]:
    on_host = (event for event in events if event.get("cat") != "gpu_user_annotation")
    steps = [event for event in on_host if str(event["name"]).startswith(STEP)]
    ready = [event for event in events if event["name"] == READY]
    if not ready:
        raise ConfigError(f"{path} has no gradients ({READY}); {HOW}")
    if not steps:
        raise ConfigError(f"{path} has no optimizer step; {HOW}")
    device = _Device(events)
    found, after = [], float("-inf")
    for step in steps:
        inside = [event for event in events if after < event["ts"] < step["ts"]]
        grads = tuple(event for event in inside if event["name"] == READY)
        if grads:
            found.append(_iteration(inside, grads, step, after, device))
        after = _end(step)
    return found


def _iteration(
    inside: Sequence[dict[str, Any]], grads: tuple[dict[str, Any], ...], step: dict[str, Any], after: float,
    device: _Device,
) -> _Iteration:  # fmt: skip
    cleared = max((_end(e) for e in inside if str(e["name"]).startswith(CLEAR)), default=after)
    backward = next((e["ts"] for e in inside if str(e["name"]).startswith(BACKWARD)), grads[0]["ts"])
    ops = [e["ts"] for e in inside if e.get("cat") == "cpu_op" and cleared <= e["ts"] < backward]
    forward = ops[0] if ops else backward
    begins, starts = device.when(backward), device.when(forward)
    other = starts - device.when(after) if after > float("-inf") else 0.0
    return _Iteration(
        grads, tuple(1e-6 * max(0.0, device.when(_end(e)) - begins) for e in grads), 1e-6 * max(0.0, begins - starts),
        1e-6 * device.took(step), 1e-6 * max(0.0, other),
    )  # fmt: skip


class _Device:
    """The clock of what computes: the host's, or on a GPU when the kernels launched so far have ended."""

    def __init__(self, events: Sequence[dict[str, Any]]) -> None:
        launched = {
            e["args"]["correlation"]: e["ts"]
            for e in events
            if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
        }
        kernels = sorted(
            (launched[e["args"]["correlation"]], e["ts"], _end(e))
            for e in events
            if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
            and e.get("args", {}).get("correlation") in launched
            and "nccl" not in str(e["name"]).lower()
        )
        self._launched = [launch for launch, _, _ in kernels]
        self._starts = [start for _, start, _ in kernels]
        self._ended = list(accumulate((end for _, _, end in kernels), max))

    def when(self, ts: float) -> float:
        """Return when everything that was launched up to `ts` of the host had been done, in microseconds."""
        count = bisect_right(self._launched, ts)
        return max(ts, self._ended[count - 1]) if count else ts

    def took(self, event: dict[str, Any]) -> float:
        """Return how long what was launched during `event` took; an exchange that it waited for does not count."""
        first, last = bisect_right(self._launched, event["ts"]), bisect_right(self._launched, _end(event))
        if first == last:
            return float(event["dur"])
        return float(self._ended[last - 1] - min(self._starts[first:last]))


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"]) + float(event.get("dur", 0.0))


def _specs(
    grads: Sequence[dict[str, Any]], tensors: Sequence[TensorSpec] | None, path: Path, model: str
) -> tuple[TensorSpec, ...]:
    said = [_said(event) for event in grads]
    if tensors is None:
        if None in said:
            raise ConfigError(f"{path} has no shapes; record it with record_shapes=True, or add model=NAME")
        return tuple(TensorSpec(f"gradient{i}", *one) for i, one in enumerate(said) if one is not None)
    if len(tensors) != len(grads):
        raise ConfigError(f"{path} has {len(grads)} gradients and {model} has {len(tensors)}; it is of another model")
    for i, (one, spec) in enumerate(zip(said, tensors, strict=True)):
        if one is not None and one[0] != spec.shape:
            raise ConfigError(
                f"{path}: gradient {i} has shape {list(one[0])}, and {spec.name} of {model} has {list(spec.shape)}; "
                "it is of another model"
            )
    both = zip(tensors, said, strict=True)
    return tuple(TensorSpec(spec.name, spec.shape, one[1] if one else spec.dtype) for spec, one in both)


def _said(event: dict[str, Any]) -> tuple[tuple[int, ...], str] | None:
    """Return shape and dtype of the gradient of an event, None where the trace was recorded without."""
    args = event.get("args", {})
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not dims or not isinstance(dims[0], list):
        return None
    return tuple(int(n) for n in dims[0]), _DTYPES.get(str(types[0]) if types else "", "float32")


def _optimizer(events: Sequence[dict[str, Any]]) -> str:
    name = next(str(event["name"]) for event in events if str(event["name"]).startswith(STEP))
    return name.removeprefix(STEP).partition(".")[0].lower()
