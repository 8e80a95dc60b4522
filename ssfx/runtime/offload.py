"""Compression on the host: one worker thread, pinned staging memory and a side stream when gradients live on a GPU.

Source: SSFusion section IV-C; SSFusion, section IV-C. The memory of an offloaded segment lives on the host.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import zip_longest

import torch

from ssfx.compressors import Compressor, Payload
from ssfx.compressors.batch import Batch, Part, Starts, compress
from ssfx.compressors.memories import Memory
from ssfx.core import accelerator


class HostWorker:
    """One thread that compresses in the order of submission and hands errors to `on_error`; `serial`: the caller's."""

    def __init__(
        self, device: torch.device, on_error: Callable[[BaseException], None], *, serial: bool = False
    ) -> None:
        self._pool = None if serial else ThreadPoolExecutor(max_workers=1, thread_name_prefix="ssfx-host")
        self._on_error = on_error
        self.stream = accelerator.stream(device)

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` after everything submitted before it."""
        if self._pool is None:
            work()
        else:
            self._pool.submit(work).add_done_callback(self._note)

    def close(self, wait: bool = True) -> None:
        """Stop after the jobs under way, and `wait` for that."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait)

    def _note(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._on_error(error)


class HostSegment:
    """Host-side staging of one offloaded segment on a GPU: gradient, memory and payload in pinned memory."""

    def __init__(self, part: Part, memory: Memory) -> None:
        pinned = accelerator.pinned
        numel, layout = part.numel, part.layout
        self.grad = pinned(numel, torch.float32)
        self.new = {buffer: pinned(numel, torch.float32) for buffer in memory.buffers}
        self.old = {buffer: pinned(numel, torch.float32) for buffer in memory.buffers} if memory.stateful else {}
        self.source = self.old
        """What gradients are added to; see `MessageState.source`."""
        self.payload = Payload(
            pinned(layout.counts, torch.int32),
            pinned(layout.scales, torch.float32),
            pinned(layout.indices, torch.int32),
            pinned(layout.values, getattr(torch, layout.value_dtype)),
            pinned(layout.code_bytes, torch.uint8),
            pinned(layout.first, getattr(torch, layout.first_dtype)),
        )
        pieces = tuple((lo - part.lo, hi - part.lo) for lo, hi in part.pieces)
        alone = replace(part, lo=0, hi=numel, starts=Starts(), pieces=pieces)
        self.grads: list[torch.Tensor | None] = [self.grad[lo:hi] for lo, hi in pieces]
        self.batch = Batch((alone,), self.payload, self.new, memory=memory, base=part.lo)

    def fetch(self, pieces: list[tuple[int, int, torch.Tensor | None]], stream: torch.Stream) -> torch.Event:
        """Copy gradients (offsets lo, hi and device tensor) to the host on `stream`; return the event of completion."""
        stream.wait_stream(accelerator.current_stream(stream))
        with accelerator.working_on(stream):
            for lo, hi, grad in pieces:
                if grad is None:
                    self.grad[lo:hi].zero_()
                else:
                    self.grad[lo:hi].copy_(grad.reshape(-1), non_blocking=True)
        return accelerator.event(stream.device, stream=stream)

    def compress(self, fetched: torch.Event, compressor: Compressor, resting: Sequence[bool] = ()) -> None:
        """Accumulate and compress on the host once the gradients are there; nothing of tensors that are `resting`."""
        fetched.synchronize()
        self.batch.new, self.batch.old = self.new, self.source
        self.batch.grads = [None if rests else grad for grad, rests in zip_longest(self.grads, resting)]
        compress(compressor, self.batch)

    def ship(self, target: Payload, stream: torch.Stream) -> None:
        """Copy the payload into its place in the device message on `stream`."""
        with accelerator.working_on(stream):
            for name in ("counts", "scales", "indices", "values", "codes"):
                getattr(target, name).copy_(getattr(self.payload, name), non_blocking=True)

    def swap(self) -> None:
        """Commit: this step's memory becomes the committed one."""
        self.old, self.new = self.new, self.old
