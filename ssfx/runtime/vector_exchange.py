"""One exchange of named vectors by a plan, without gradients, hooks or a model: their averages over ranks."""

from collections.abc import Mapping
from time import perf_counter

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.core import accelerator
from ssfx.planning.plan import Plan
from ssfx.runtime.message import ExchangeQueue, Message, Room, StepKey, all_finite
from ssfx.runtime.message_kinds import make_message
from ssfx.runtime.store import Store


class VectorExchange:
    """The messages of a plan; `count` exchanges were made. What compressors keep is in the store, once committed."""

    def __init__(self, plan: Plan, comm: Comm, store: Store, memory: Memory | None, seed: int, count: int = 0) -> None:
        self.plan, self.count = plan, count
        self.calls_s = self.waited_s = 0.0
        """Seconds so far of compressing and decoding, and of waiting for others."""
        self._key = StepKey(seed, {name: i for i, name in enumerate(sorted(plan.by_name))})
        self._room = Room(comm.device)
        self._messages: list[Message] = [
            make_message(lane, plan, comm, comm.device, store, memory, count) for _, lane in plan.lanes()
        ]
        self._device = comm.device
        self.queue = ExchangeQueue(comm.device, serial=comm.serial)

    def begin(self, vectors: Mapping[str, torch.Tensor]) -> None:
        """Issue the exchange of this rank's vectors, which goes on while the rank trains."""
        began = perf_counter()
        for message in self._messages:
            message.begin(self._key)
        self.queue.begin(self._messages)
        for at, message in enumerate(self._messages):
            for index, segment in enumerate(message.lane.segments):
                for name in segment.tensors:
                    message.add(name, vectors[name])
                    if message.arrived(index):
                        message.compress(index)
            self.queue.ready(at, [accelerator.event(self._device)] if accelerator.queued(self._device) else [])
        self.calls_s += perf_counter() - began

    def end(self) -> dict[str, torch.Tensor] | None:
        """Wait; return the averages and keep what was not sent, or None where a number of any rank was not finite."""
        self.count += 1
        began = perf_counter()
        self.queue.drain()
        received = [part for message in self._messages for part in message.finish()]
        arrived = perf_counter()
        self.waited_s += arrived - began
        if received and not bool(all_finite(received)):
            return None
        averages = {}
        for message in self._messages:
            message.decode({}, self._room)
            for name in message.lane.tensors:
                averages[name] = message.result(name).clone()
            message.commit(message.lane.tensors)
        self.calls_s += perf_counter() - arrived
        return averages
