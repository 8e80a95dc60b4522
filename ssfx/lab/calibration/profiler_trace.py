"""A Chrome trace of torch.profiler as a Profile: when the gradients of a training that ran anywhere were ready."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.files import DAMAGED
from ssfx.core.origin import BEWARE, Origin
from ssfx.lab.calibration.trace_file import HOW, LAUNCHES, STEP, WORK, Event, TraceFile, end, trace_file
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

READY = "torch::autograd::AccumulateGrad"
BACKWARD = "autograd::engine::evaluate_function"
CLEAR = "Optimizer.zero_grad#"
_DTYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}


@dataclass(frozen=True)
class _Iteration:
    """Seconds of one iteration; `grads` are the events of its gradients in ready order, `ready_s` since backward."""

    grads: tuple[Event, ...]
    ready_s: tuple[float, ...]
    forward_s: float
    step_s: float
    other_s: float | None
    """None of the first iteration, whose beginning is not in the trace."""
    passes_us: Mapping[str, Pass]
    """By pass, when it began and ended on what computes."""
    accumulated: int = 1
    """Backward passes of the step, of which this is the last."""


def profile_of_trace(
    path: Path, model: str = "", tensors: Sequence[TensorSpec] | None = None, batch_size: int = 0
) -> Profile:
    """Return the profile of the training that `path` (.json or .json.gz) is a trace of, medians over its iterations.

    Names and shapes are those of `tensors` in the order in which gradients become ready, or else what the trace says of
    shapes, with numbers for names. Where the trace has kernels of a GPU, a gradient is ready when those that were
    launched before it have ended; exchanges of NCCL do not count, but waiting for them does, and the origin says so.
    Undefined gradients are left out. Of a step with several backward passes the last is read. Without the optimizer's
    steps a pass is an iteration, and a step takes 0. The origin says all of this. ConfigError for a file that is no
    such trace, and for another accelerator.
    """
    try:
        return _profile(trace_file(path), model, tensors, batch_size)
    except DAMAGED as broken:
        reason = " ".join(f"{type(broken).__name__}: {broken}".split())
        raise ConfigError(f"cannot read {path} as a Chrome trace of torch.profiler ({reason}); {HOW}") from None


def _profile(trace: TraceFile, model: str, tensors: Sequence[TensorSpec] | None, batch_size: int) -> Profile:
    device, grads = TraceDevice(trace.events), _gradients(trace)
    steps = _steps(trace.events, grads)
    every = list(_iterations(trace.events, grads, steps, device))
    if not every:
        raise ConfigError(f"{trace.path} has no gradients before an optimizer step; {HOW}")
    undefined = sum(map(_undefined, every[0].grads))
    if tensors is None:
        every = [_defined(one) for one in every]
        if not every[0].grads:
            raise ConfigError(f"{trace.path} has no shapes: none of its gradients is defined; {HOW}")
    found, words = _alike(every, trace.path)
    count = len(found[0].grads)
    specs = _specs(found[0].grads, tensors, trace.path, model)
    ready_s = [median(one.ready_s[i] for one in found) for i in range(count)]
    gaps = tuple(round(max(0.0, b - a), 9) for a, b in zip([0.0, *ready_s], ready_s, strict=False))
    if not steps:
        words.append("the trace has no optimizer step, which is taken for 0")
    if (passes := found[0].accumulated) > 1:
        words.append(f"each step has {passes} backward passes; the last one is read; set accumulate={passes}")
    words += device.words([one.passes_us for one in found])
    if undefined and tensors is None:
        words.append(f"{undefined} of {undefined + count} gradients are undefined in the trace and left out")
    others = [one.other_s for one in found if one.other_s is not None]
    note = f"torch.profiler trace {trace.path.name}, median of {len(found)} iterations; the profiler makes them slower"
    note += "".join(f"; {BEWARE}{word}" for word in words)
    return Profile(
        model or trace.path.name.partition(".")[0],
        specs,
        gaps,
        round(median(one.forward_s for one in found), 9),
        Origin("measured", trace.gpu if trace.on_gpu else "", "", note),
        batch_size,
        "cuda" if trace.on_gpu else "cpu",
        step_s=round(median(one.step_s for one in found), 9),
        other_s=round(median(others), 9) if others else 0.0,
        optimizer=_optimizer(steps),
    )


def _gradients(trace: TraceFile) -> list[Event]:
    found = [event for event in trace.events if event["name"] == READY]
    if not found:  # where only the engine's own events are kept
        found = [event for event in trace.events if event["name"] == f"{BACKWARD}: {READY}"]
    if not found:
        raise ConfigError(f"{trace.path} has no gradients ({READY}), as if nothing was trained; {HOW}")
    return found


def _steps(events: Sequence[Event], grads: Sequence[Event]) -> list[Event]:
    """Return the optimizer's steps on the host; those between which no gradient came ready are one."""
    ready_at, found = [event["ts"] for event in grads], list[Event]()
    for event in events:
        if event["name"].startswith(STEP) and event["cat"] != "gpu_user_annotation":
            before = found[-1] if found else None
            if before and bisect_left(ready_at, before["ts"]) == bisect_left(ready_at, event["ts"]):
                found[-1] = {**before, "dur": max(end(before), end(event)) - before["ts"]}
            else:
                found.append(event)
    return found


def _iterations(
    events: Sequence[Event], grads: Sequence[Event], steps: Sequence[Event], device: TraceDevice
) -> Iterator[_Iteration]:
    """Yield the iterations that end with a step; without steps, every backward pass with the forward before it."""
    at, ready_at = [event["ts"] for event in events], [event["ts"] for event in grads]
    after = float("-inf")
    if not steps:
        for one in _passes(events, grads):
            inside = events[bisect_right(at, after) : bisect_right(at, end(one[-1]))]
            yield _iteration(inside, one, None, after, device)
            after = end(one[-1])
    for step in steps:
        until = bisect_left(at, step["ts"])
        inside, mine = events[bisect_right(at, after) : until], grads[bisect_right(ready_at, after) :]
        mine = mine[: bisect_left([event["ts"] for event in mine], step["ts"])]
        passes = _passes(inside, mine)
        if len(passes) > 1 and len({tuple(map(_shape, one)) for one in passes}) == 1:
            before = end(passes[-2][-1])
            found = _iteration(events[bisect_right(at, before) : until], passes[-1], step, before, device)
            yield replace(found, accumulated=len(passes))
        elif mine:
            yield _iteration(inside, mine, step, after, device)
        after = end(step)


def _passes(events: Sequence[Event], grads: Sequence[Event]) -> list[list[Event]]:
    """Return the gradients by backward pass: where operators outside of backward run between two, another one begins.

    Another pass begins with the backward of an operator, so that a gradient right after such operators is of the same.
    """
    found: list[list[Event]] = []
    ready, inside, forward, begins = {id(event) for event in grads}, float("-inf"), False, True
    for event in events:
        if id(event) in ready:
            if begins or not found:
                found.append([])
            found[-1].append(event)
            inside, forward, begins = max(inside, end(event)), False, False
        elif event["name"].startswith(BACKWARD):
            begins = begins or (forward and not event["name"].endswith(READY))
            inside = max(inside, end(event))
        elif event["cat"] == "cpu_op" and event["ts"] >= inside:
            forward = True
    return found


def _alike(every: Sequence[_Iteration], path: Path) -> tuple[list[_Iteration], list[str]]:
    """Return the iterations with the same gradients, and a word on others: most are alike, or ConfigError."""
    counts = Counter((len(one.grads), one.accumulated) for one in every)
    (usual, most) = counts.most_common(1)[0]
    if 2 * most <= len(every):
        numbers = sorted({count for count, _ in counts})
        many = f"{numbers[0]} to {numbers[-1]} gradients" if len(numbers) > 1 else "several numbers of backward passes"
        raise ConfigError(f"{path}: its iterations have {many}; {HOW}, each with one backward pass")
    found = [one for one in every if (len(one.grads), one.accumulated) == usual]
    left = len(every) - len(found)
    return found, [f"{left} of {len(every)} iterations have other gradients and are left out"] if left else []


def _iteration(
    inside: Sequence[Event], grads: Sequence[Event], step: Event | None, after: float, device: TraceDevice
) -> _Iteration:
    cleared = max((end(e) for e in inside if e["name"].startswith(CLEAR)), default=after)
    backward = next((e["ts"] for e in inside if e["name"].startswith(BACKWARD)), grads[0]["ts"])
    forward = next((e["ts"] for e in inside if e["cat"] == "cpu_op" and cleared <= e["ts"] < backward), backward)
    begins, starts = device.when(backward), device.when(forward)
    other_s = 1e-6 * max(0.0, starts - device.when(after)) if after > float("-inf") else None
    passes = {"forward": (starts, begins), "backward": (begins, max(device.when(end(e)) for e in grads))}
    return _Iteration(
        tuple(grads),
        tuple(1e-6 * max(0.0, device.when(end(e)) - begins) for e in grads),
        1e-6 * max(0.0, begins - starts),
        1e-6 * device.took(step) if step else 0.0,
        other_s,
        passes,
    )


def _defined(one: _Iteration) -> _Iteration:
    """Return the iteration without gradients that are undefined; others are ready when they were."""
    kept = [i for i, event in enumerate(one.grads) if not _undefined(event)]
    return replace(one, grads=tuple(one.grads[i] for i in kept), ready_s=tuple(one.ready_s[i] for i in kept))


def _specs(
    grads: Sequence[Event], tensors: Sequence[TensorSpec] | None, path: Path, model: str
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


def _said(event: Event) -> tuple[tuple[int, ...], str] | None:
    """Return shape and dtype of the gradient of an event, None where the trace was recorded without."""
    args = event["args"]
    dims, types = _dims(event), args.get("Input type")
    if not dims or not isinstance(dims[0], list) or _undefined(event):
        return None
    kind = str(types[0]) if types else "float"
    if kind not in _DTYPES:
        raise ConfigError(f"a gradient of the trace has type {kind}; ssfx exchanges {', '.join(_DTYPES)}")
    return tuple(int(n) for n in dims[0]), _DTYPES[kind]


def _dims(event: Event) -> Any:
    return event["args"].get("Input Dims") or event["args"].get("Input dims")


def _shape(event: Event) -> str:
    return str(_dims(event))


def _undefined(event: Event) -> bool:
    """Return whether the trace was recorded with shapes, and the gradient of the event had none and no type."""
    dims, types = _dims(event), event["args"].get("Input type")
    return bool(dims) and dims[0] == [] and not (types and types[0])


def _optimizer(steps: Sequence[Event]) -> str:
    return str(steps[0]["name"]).removeprefix(STEP).partition(".")[0].lower() if steps else ""


_KERNEL = re.compile(r"nccl\w*?Kernel_(?P<name>[A-Za-z]+)")
WAITING = 0.1
"""Share of a pass in which the device only exchanges, from which on a word is said."""
BUSY = 0.5
"""The same of computing, below which a pass with exchanges that are no all-reduce gets one, too."""
LAUNCHED = 0.9
"""Share of kernels whose launch is in the trace, below which a word is said."""
_ALL_REDUCES = {"allreduce", "all_reduce"}

Pass = tuple[float, float]
"""When a pass began and ended on what computes, in microseconds."""


class TraceDevice:
    """The host's clock, or on a GPU when the kernels launched so far have ended; exchanges of NCCL do not count."""

    def __init__(self, events: Sequence[Event]) -> None:
        launched = {
            event["args"]["correlation"]: event["ts"]
            for event in events
            if event["cat"] in LAUNCHES and "correlation" in event["args"]
        }
        every = [event for event in events if event["cat"] in WORK]
        work = _with_launches(every, launched)
        self._missing = len(every) - len(work), len(every)
        self._exchanges = [event for _, event in work if "nccl" in event["name"].lower()]
        kernels = sorted(
            (launch, event["ts"], end(event)) for launch, event in work if "nccl" not in event["name"].lower()
        )
        self._launched = [launch for launch, _, _ in kernels]
        self._starts = [start for _, start, _ in kernels]
        self._ended = list(accumulate((ended for _, _, ended in kernels), max))
        self._computing = _united((start, ended) for _, start, ended in kernels)

    def when(self, ts: float) -> float:
        """Return when everything that was launched up to `ts` of the host had been done, in microseconds."""
        count = bisect_right(self._launched, ts)
        return max(ts, self._ended[count - 1]) if count else ts

    def took(self, event: Event) -> float:
        """Return how long what was launched during `event` took; an exchange that it waited for does not count."""
        first, last = bisect_right(self._launched, event["ts"]), bisect_right(self._launched, end(event))
        if first == last:
            return float(event["dur"])
        return float(self._ended[last - 1] - min(self._starts[first:last]))

    def words(self, iterations: Sequence[Mapping[str, Pass]]) -> list[str]:
        """Return what is to be said of the passes of iterations: launches that are missing, and waiting."""
        missing, every = self._missing
        said = [self._waiting(iterations)] if every else []
        if missing > (1 - LAUNCHED) * every:
            said.append(f"the launches of {missing} of {every} kernels are not in the trace, so these count nowhere")
        return [word for word in said if word]

    def _waiting(self, iterations: Sequence[Mapping[str, Pass]]) -> str:
        """Return a word on waiting for exchanges within passes that counts as computing; "" where there is none.

        The device waits while nothing but exchanges runs on it. Where it computes for less than half of a pass with
        exchanges other than all-reduces, the host may be what waits.
        """
        exchanging = _united((event["ts"], end(event)) for event in self._exchanges)
        either = _united([*self._computing, *exchanging])
        words = []
        for name in ("forward", "backward"):
            passes = [one[name] for one in iterations]
            span = median(ended - began for began, ended in passes)
            busy = median(_inside(self._computing, *one) for one in passes)
            alone = median(_inside(either, *one) - _inside(self._computing, *one) for one in passes)
            inside = [e for e in self._exchanges if any(began <= e["ts"] < ended for began, ended in passes)]
            kinds = Counter(map(_collective, inside))
            others = {kind for kind in kinds if kind.lower() not in _ALL_REDUCES}
            if span > 0 and (alone >= WAITING * span or (busy < BUSY * span and others)):
                listed = ", ".join(f"{count / len(passes):.3g} {kind}" for kind, count in sorted(kinds.items()))
                words.append(
                    f"{name} takes {1e-3 * span:.3g} ms, in which kernels compute for {1e-3 * busy:.3g} ms and "
                    f"exchanges run alone for {1e-3 * alone:.3g} ms ({listed or 'none'})"
                )
        return f"{', and '.join(words)}: waiting for them counts as computing" if words else ""


def _with_launches(every: Sequence[Event], launched: Mapping[object, float]) -> list[tuple[float, Event]]:
    """Return what a device did, with when it was launched; what a stream did first, before the trace began.

    A host runs ahead of its device, so that a trace begins with work without a launch.
    """
    found, begun = list[tuple[float, Event]](), set[tuple[object, object]]()
    for event in every:
        stream = event["args"].get("device"), event["args"].get("stream")
        launch = launched.get(event["args"].get("correlation"))
        if launch is not None:
            begun.add(stream)
            found.append((launch, event))
        elif stream not in begun:
            found.append((float("-inf"), event))
    return found


def _collective(event: Event) -> str:
    """Return what a kernel of NCCL or RCCL did: by its name, or where all have the same, by what Kineto notes of it."""
    match = _KERNEL.search(event["name"])
    name = match["name"] if match else "NCCL"
    return str(event["args"].get("Collective name") or name) if name in ("Generic", "NCCL") else name


def _united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in order, with those that touch as one."""
    found: list[tuple[float, float]] = []
    for began, ended in sorted(spans):
        if found and began <= found[-1][1]:
            found[-1] = (found[-1][0], max(ended, found[-1][1]))
        else:
            found.append((began, ended))
    return found


def _inside(united: Sequence[tuple[float, float]], began: float, ended: float) -> float:
    """Return how much of the time from `began` to `ended` the spans cover."""
    first = max(0, bisect_right(united, (began, float("inf"))) - 1)
    covered = 0.0
    for start, last in united[first:]:
        if start >= ended:
            break
        covered += max(0.0, min(ended, last) - max(began, start))
    return covered
