"""A Chrome trace of torch.profiler as events in order of time, whoever wrote it: CUDA, ROCm, a CPU, old Kineto."""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.files import unpacked

Event = dict[str, Any]
STEP = "Optimizer.step#"
HOW = "record whole iterations: with profile(record_shapes=True), the optimizer's step inside, then export_chrome_trace"
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what a GPU does."""
LAUNCHES = ("cuda_runtime", "cuda_driver")
"""Categories of what a host tells a GPU, ROCm's too."""
_OF_OLD = {
    "Operator": "cpu_op",
    "Kernel": "kernel",
    "Runtime": "cuda_runtime",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
"""Categories that Kineto wrote before 2022."""
_NOT_READ = ("python_function", "ac2g", "fwdbwd", "Trace")
_HOST_OF = re.compile(r"(?P<kind>\w+?)_(?:runtime|driver|ccp_events|insight|op)")
"""Categories of what a host tells a device, or a device does; GPUs of both makers have those of cuda."""
_LAUNCHED_BY = ("cuda", "hip", "cpu")


@dataclass(frozen=True)
class TraceFile:
    """Events with a duration in order of time, without Python's calls; times in microseconds.

    `gpu` is the name of the first GPU, "" where the trace names none; `rank` of the process, None where it was alone.
    """

    path: Path
    events: Sequence[Event]
    gpu: str
    rank: int | None

    @property
    def on_gpu(self) -> bool:
        """Whether the trace has kernels of a GPU."""
        return any(event["cat"] == "kernel" for event in self.events)


def trace_file(path: Path) -> TraceFile:
    """Return the trace in `path` (.json or .json.gz). ConfigError for no trace, and for one of another accelerator."""
    raw = _read(path)
    events = []
    for event in raw["traceEvents"]:
        if not isinstance(event, dict) or event.get("ph") != "X" or "ts" not in event:
            continue
        kind = str(event.get("cat"))
        if kind not in _NOT_READ:
            event["cat"], event["name"] = _OF_OLD.get(kind, kind), str(event.get("name", ""))
            event["ts"], event["dur"] = float(event["ts"]), float(event.get("dur", 0.0))
            if not isinstance(event.get("args"), dict):
                event["args"] = {}
            events.append(event)
    events.sort(key=lambda event: event["ts"])
    distributed = raw.get("distributedInfo") or {}
    kinds = {event["cat"] for event in events}
    others = (match["kind"] for kind in sorted(kinds) if (match := _HOST_OF.fullmatch(kind)))
    if other := next((kind for kind in others if kind not in _LAUNCHED_BY), None):
        raise ConfigError(
            f"{path} was recorded on {other.upper()} devices, where ssfx cannot read when they had computed; record "
            "one of GPUs (CUDA or ROCm) or of a CPU"
        )
    if "kernel" not in kinds and ("nccl" in str(distributed.get("backend", "")) or kinds & set(LAUNCHES)):
        raise ConfigError(
            f"{path} is of GPUs and has none of their kernels; record with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA]"
        )
    gpus = [str(one.get("name", "")) for one in raw.get("deviceProperties") or []]
    rank = distributed.get("rank")
    return TraceFile(path, events, gpus[0] if gpus else "", rank if isinstance(rank, int) else None)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        # Kineto writes paths of Windows and names of kernels as they are, control characters included.
        raw = json.loads(unpacked(data) if data[:2] == b"\x1f\x8b" else data, strict=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or 'it is no whole gzip file'}") from None
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise ConfigError(f"cannot read {path} as a Chrome trace: {' '.join(str(error).split())}; {HOW}") from None
    if isinstance(raw, list):  # the other form of Chrome traces
        raw = {"traceEvents": raw}
    if not isinstance(raw, dict) or not isinstance(raw.get("traceEvents"), list):
        raise ConfigError(f"cannot read {path} as a Chrome trace of torch.profiler: it has no traceEvents")
    return raw


def end(event: Mapping[str, Any]) -> float:
    """Return when an event ended, in microseconds."""
    return float(event["ts"] + event["dur"])
