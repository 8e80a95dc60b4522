"""A Chrome trace of torch.profiler as a Profile: when the gradients of a training that ran anywhere were ready."""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.files import DAMAGED
from ssfx.core.origin import BEWARE, Origin
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

READY = "torch::autograd::AccumulateGrad"
BACKWARD = "autograd::engine::evaluate_function"
STEP = "Optimizer.step#"
CLEAR = "Optimizer.zero_grad#"
HOW = "record whole iterations: with profile(record_shapes=True), the optimizer's step inside, then export_chrome_trace"
_DTYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_HOST_OF = re.compile(r"(?P<kind>\w+?)_(?:runtime|driver|ccp_events|insight|op)")
"""Categories of what a host tells a device, or a device does; GPUs of both makers have those of cuda."""
_LAUNCHED_BY = ("cuda", "hip", "cpu")
_COLLECTIVE = re.compile(r"nccl\w*?Kernel_(?P<name>[A-Za-z]+)")
WAITING = 0.1
"""Share of a pass in which the device only exchanges, from which on a word is said."""
BUSY = 0.5
"""The same of computing, below which a pass with exchanges that are no all-reduce gets one, too."""


@dataclass(frozen=True)
class _Iteration:
    """Seconds of one iteration; `grads` are the events of its gradients in ready order, `ready_s` since backward."""

    grads: tuple[dict[str, Any], ...]
    ready_s: tuple[float, ...]
    forward_s: float
    step_s: float
    other_s: float
    passes_us: Mapping[str, tuple[float, float]]
    """By pass, when it began and ended on what computes."""


def profile_of_trace(
    path: Path, model: str = "", tensors: Sequence[TensorSpec] | None = None, batch_size: int = 0
) -> Profile:
    """Return the profile of the training that `path` (.json or .json.gz) is a trace of, medians over its iterations.

    Names and shapes are those of `tensors` in the order in which gradients become ready, or else what the trace says of
    shapes, with numbers for names. Where the trace has kernels of a GPU, a gradient is ready when those that were
    launched before it have ended; exchanges of NCCL do not count, but waiting for them does, and the origin says so.
    Undefined gradients are left out. ConfigError for a file that is no such trace, and for another accelerator.
    """
    raw = _read(path)
    try:
        return _profile(raw, path, model, tensors, batch_size)
    except DAMAGED as broken:
        reason = " ".join(f"{type(broken).__name__}: {broken}".split())
        raise ConfigError(f"{path} is no Chrome trace of torch.profiler that can be read ({reason}); {HOW}") from None


def _profile(
    raw: dict[str, Any], path: Path, model: str, tensors: Sequence[TensorSpec] | None, batch_size: int
) -> Profile:
    events = [{"name": "", **e} for e in raw["traceEvents"] if isinstance(e, dict) and e.get("ph") == "X" and "ts" in e]
    events.sort(key=lambda event: float(event["ts"]))
    _check_accelerator(events, raw, path)
    device = _Device(events)
    found = _iterations(events, path, device)
    undefined = sum(map(_undefined, found[0].grads))
    if tensors is None:
        found = [_defined(one) for one in found]
        if not found[0].grads:
            raise ConfigError(f"{path} has no shapes: none of its gradients is defined; {HOW}")
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
    words = [device.waiting(found)] if on_gpu else []
    if undefined and tensors is None:
        words.append(f"{undefined} of {undefined + counts[0]} gradients are undefined in the trace and left out")
    note = f"torch.profiler trace {path.name}, median of {len(found)} iterations; the profiler makes them slower"
    note += "".join(f"; {BEWARE}{word}" for word in words if word)
    origin = Origin("measured", gpus[0] if on_gpu and gpus else "", "", note)
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


def _check_accelerator(events: Sequence[dict[str, Any]], raw: dict[str, Any], path: Path) -> None:
    """Raise ConfigError for a trace of what is neither a GPU nor a CPU, or of a GPU whose kernels are not in it."""
    kinds = {str(event.get("cat")) for event in events}
    others = (match["kind"] for kind in sorted(kinds) if (match := _HOST_OF.fullmatch(kind)))
    if other := next((kind for kind in others if kind not in _LAUNCHED_BY), None):
        raise ConfigError(
            f"{path} was recorded on {other.upper()} devices, of which ssfx cannot read when they had computed; record "
            "one of GPUs (CUDA or ROCm) or of a CPU"
        )
    backend = (raw.get("distributedInfo") or {}).get("backend", "")
    if "kernel" not in kinds and ("nccl" in str(backend) or {"cuda_runtime", "cuda_driver"} & kinds):
        raise ConfigError(
            f"{path} is of GPUs and has none of their kernels; record with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA]"
        )


def _iterations(events: Sequence[dict[str, Any]], path: Path, device: _Device) -> list[_Iteration]:
    on_host = (event for event in events if event.get("cat") != "gpu_user_annotation")
    steps = [event for event in on_host if str(event["name"]).startswith(STEP)]
    ready = [event for event in events if event["name"] == READY]
    if not ready:
        raise ConfigError(f"{path} has no gradients ({READY}); {HOW}")
    if not steps:
        raise ConfigError(f"{path} has no optimizer step; {HOW}")
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
    passes = {"forward": (starts, begins), "backward": (begins, max(device.when(_end(e)) for e in grads))}
    return _Iteration(
        grads, tuple(1e-6 * max(0.0, device.when(_end(e)) - begins) for e in grads), 1e-6 * max(0.0, begins - starts),
        1e-6 * device.took(step), 1e-6 * max(0.0, other), passes,
    )  # fmt: skip


def _defined(one: _Iteration) -> _Iteration:
    """Return the iteration without gradients that are undefined; others are ready when they were."""
    kept = [i for i, event in enumerate(one.grads) if not _undefined(event)]
    return replace(one, grads=tuple(one.grads[i] for i in kept), ready_s=tuple(one.ready_s[i] for i in kept))


class _Device:
    """The clock of what computes: the host's, or on a GPU when the kernels launched so far have ended."""

    def __init__(self, events: Sequence[dict[str, Any]]) -> None:
        launched = {
            e["args"]["correlation"]: e["ts"]
            for e in events
            if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
        }
        work = [
            e
            for e in events
            if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
            and e.get("args", {}).get("correlation") in launched
        ]
        self._exchanges = [e for e in work if "nccl" in str(e["name"]).lower()]
        kernels = sorted(
            (launched[e["args"]["correlation"]], e["ts"], _end(e)) for e in work if "nccl" not in str(e["name"]).lower()
        )
        self._launched = [launch for launch, _, _ in kernels]
        self._starts = [start for _, start, _ in kernels]
        self._ended = list(accumulate((end for _, _, end in kernels), max))
        self._computing = _united((start, end) for _, start, end in kernels)

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

    def waiting(self, iterations: Sequence[_Iteration]) -> str:
        """Return a word on waiting for the model's own exchanges that counts as computing; "" where there is none.

        The device waits while nothing but exchanges runs on it. Where it computes for less than half of a pass with
        exchanges other than all-reduces, the host may be what waits.
        """
        exchanging = _united((float(e["ts"]), _end(e)) for e in self._exchanges)
        either = _united([*self._computing, *exchanging])
        words = []
        for name in ("forward", "backward"):
            passes = [one.passes_us[name] for one in iterations]
            span = median(end - begin for begin, end in passes)
            busy = median(_inside(self._computing, *one) for one in passes)
            alone = median(_inside(either, *one) - _inside(self._computing, *one) for one in passes)
            inside = [e for e in self._exchanges if any(begin <= e["ts"] < end for begin, end in passes)]
            kinds = Counter(_collective(str(e["name"])) for e in inside)
            if span > 0 and (alone >= WAITING * span or (busy < BUSY * span and set(kinds) - {"AllReduce"})):
                listed = ", ".join(f"{count / len(passes):.3g} {kind}" for kind, count in sorted(kinds.items()))
                words.append(
                    f"{name} takes {1e-3 * span:.3g} ms, in which kernels compute for {1e-3 * busy:.3g} ms and "
                    f"exchanges of the model's own run alone for {1e-3 * alone:.3g} ms ({listed})"
                )
        return f"{', and '.join(words)}: waiting for them counts as computing" if words else ""


def _collective(kernel: str) -> str:
    match = _COLLECTIVE.search(kernel)
    return match["name"] if match else "NCCL"


def _united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in order, with those that touch as one."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _inside(united: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Return how much of the time from `begin` to `end` the spans cover."""
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in united)


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
    if not dims or not isinstance(dims[0], list) or _undefined(event):
        return None
    kind = str(types[0]) if types else "float"
    if kind not in _DTYPES:
        raise ConfigError(f"a gradient of the trace has type {kind}; ssfx exchanges {', '.join(_DTYPES)}")
    return tuple(int(n) for n in dims[0]), _DTYPES[kind]


def _undefined(event: dict[str, Any]) -> bool:
    """Return whether the trace was recorded with shapes, and the gradient of the event had none and no type."""
    args = event.get("args", {})
    dims, types = args.get("Input Dims"), args.get("Input type")
    return bool(dims) and dims[0] == [] and not (types and types[0])


def _optimizer(events: Sequence[dict[str, Any]]) -> str:
    name = next(str(event["name"]) for event in events if str(event["name"]).startswith(STEP))
    return name.removeprefix(STEP).partition(".")[0].lower()
