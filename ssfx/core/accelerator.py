"""Where devices differ: streams, events, pinned memory, waiting, peak memory, random state. Nothing else asks torch.

A device whose work is `queued` runs it later, in the order of its streams: CUDA and ROCm, which torch calls CUDA too. A
test may register another one with torch (`torch.utils.rename_privateuse1_backend`); its module needs what is called
here. The CPU works at once: it has no streams, and waiting for it is nothing.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ssfx.core.lazy import torch


def queued(device: torch.device) -> bool:
    """True when work on `device` is queued on streams and the host goes on before it is done."""
    return device.type != "cpu"


def host_reads(device: torch.device) -> bool:
    """True when the host may read and write the memory of `device` by its addresses."""
    return device.type != "cuda"


def stream(device: torch.device) -> torch.Stream | None:
    """Return a new stream of `device`; None on the CPU."""
    return _module(device).Stream(device) if queued(device) else None


def current_stream(of: torch.Stream) -> torch.Stream:
    """Return the stream that this thread's work goes to, on the device of `of`."""
    found: torch.Stream = _module(of.device).current_stream(of.device)
    return found


def working_on(stream: torch.Stream) -> AbstractContextManager[Any]:
    """Work inside goes to `stream`."""
    context: AbstractContextManager[Any] = _module(stream.device).stream(stream)
    return context


def event(device: torch.device, *, timed: bool = False, stream: torch.Stream | None = None) -> torch.Event:
    """Return an event after all work so far of `stream`, or of this thread's; `timed` ones have `elapsed_time`."""
    made: torch.Event = _module(device).Event(enable_timing=timed)
    made.record(stream) if stream is not None else made.record()
    return made


def seconds(start: torch.Event, end: torch.Event) -> float:
    """Return the seconds between two timed events; waits until `end` has passed."""
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def pinned(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros on the host that a device can copy from and to while the host goes on."""
    return torch.zeros(size, dtype=dtype, pin_memory=True)


def wait(device: torch.device) -> None:
    """Everything queued on `device` is done."""
    if queued(device):
        _module(device).synchronize(device)


def device_of(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Kernels launched inside go to the device of `tensor`; with Triton's interpreter that may be the CPU."""
    if not queued(tensor.device):
        return nullcontext()
    context: AbstractContextManager[Any] = _module(tensor.device).device(tensor.device)
    return context


def count(kind: str) -> int:
    """Return how many devices of a kind ("cpu", "cuda") this process sees."""
    return 1 if kind == "cpu" else int(_module(torch.device(kind)).device_count())


def names(kind: str) -> list[str]:
    """Return what the maker calls the devices of a kind, by number; none of the CPU, which torch has no name for."""
    if kind == "cpu":
        return []
    module = _module(torch.device(kind))
    return [str(module.get_device_name(number)) for number in range(count(kind))]


def name(device: torch.device) -> str:
    """Return what the maker calls a device that is no CPU."""
    return str(_module(device).get_device_name(device))


def use(kind: str, number: int) -> torch.device:
    """Return the device of that number, which this process uses from now on."""
    if kind == "cpu":
        return torch.device("cpu")
    _module(torch.device(kind)).set_device(number)
    return torch.device(kind, number)


def in_use(kind: str) -> torch.device:
    """Return the device of a kind that this process uses now."""
    if kind == "cpu":
        return torch.device("cpu")
    return torch.device(kind, _module(torch.device(kind)).current_device())


def load_linear_algebra(device: torch.device) -> None:
    """Torch has loaded its linear algebra for `device`; of several threads that are the first to need it, some fail."""
    if queued(device):
        torch.linalg.inv(torch.ones(1, 1, device=device))


def peak_bytes(device: torch.device) -> int:
    """Return the most bytes allocated at once on a device that is no CPU, since `forget_peak`."""
    return int(_module(device).max_memory_allocated(device))


def forget_peak(device: torch.device) -> None:
    """Unused memory goes back to a device that is not the CPU; its peak of allocated bytes is what is in use now."""
    _module(device).empty_cache()
    _module(device).reset_peak_memory_stats(device)


def random_state(device: torch.device) -> torch.Tensor:
    """Return the state of the random generator of a device that is no CPU."""
    state: torch.Tensor = _module(device).get_rng_state(device)
    return state


def set_random_state(state: torch.Tensor, device: torch.device) -> None:
    """The random generator of a device that is no CPU goes on where `random_state` was taken."""
    _module(device).set_rng_state(state, device)


def transport(kind: str) -> str:
    """Return the backend of torch.distributed for tensors of a kind of device."""
    return "nccl" if kind == "cuda" else "gloo"


def transport_version(backend: str) -> str:
    """Return the library of a backend with its version, where it has one."""
    return f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if backend == "nccl" else backend


def sanitized() -> bool:
    """Return whether torch's sanitizer of CUDA's streams is on in this process; TORCH_CUDA_SANITIZER=1 does that."""
    sanitizer = sys.modules.get("torch.cuda._sanitizer")
    return sanitizer is not None and bool(sanitizer.cuda_sanitizer.enabled)


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)
