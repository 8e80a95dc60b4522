"""The memory of all parameters, by name: it survives re-planning, checkpoints and rollbacks."""

import math
from collections.abc import Collection, Iterable

import torch

State = dict[str, torch.Tensor]
COMPRESSOR = "compressor."
"""Prefix of buffers that belong to a compressor; they are not gradients and do not follow the loss scale."""
COLLECTIVE = "collective."
"""Prefix of buffers that belong to a message's collective; of these only thresholds follow the loss scale."""
THRESHOLD = COLLECTIVE + "threshold"


class Store:
    """Committed float32 buffers per parameter name; messages hand in views of their flat buffers when they are built.

    Buffers have the parameter's shape in `state_dict` and are flat elsewhere.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, State] = {}
        self.loss_scale = 1.0
        """What gradients are multiplied by, and so what memories and thresholds are."""

    def get(self, name: str, buffer: str) -> torch.Tensor | None:
        """Return the committed buffer of a parameter, or None when it has none yet."""
        return self._buffers.get(name, {}).get(buffer)

    def put(self, name: str, buffer: str, value: torch.Tensor) -> None:
        """Make `value` (a view or an owned tensor) the committed buffer."""
        self._buffers.setdefault(name, {})[buffer] = value

    def drop(self, name: str, buffer: str) -> None:
        """Forget a buffer whose content has been sent."""
        self._buffers.get(name, {}).pop(buffer, None)

    def drop_all(self, name: str, prefix: str) -> None:
        """Forget all buffers of a parameter whose names begin with `prefix`."""
        state = self._buffers.get(name, {})
        for buffer in [buffer for buffer in state if buffer.startswith(prefix)]:
            del state[buffer]

    def rename(self, name: str, new_name: str) -> None:
        """What was kept of a parameter is kept under another name."""
        if name in self._buffers:
            self._buffers[new_name] = self._buffers.pop(name)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all buffers of other parameters."""
        self._buffers = {name: state for name, state in self._buffers.items() if name in names}

    def follow(self, loss_scale: float) -> None:
        """Bring what memories keep to the loss scale of the gradients to come (D-19)."""
        if loss_scale != self.loss_scale:
            self.scale(loss_scale / self.loss_scale)
            self.loss_scale = loss_scale

    def scale(self, factor: float) -> None:
        """Multiply what memories keep, and thresholds, by `factor`."""
        for state in self._buffers.values():
            for buffer, value in state.items():
                if buffer.startswith(THRESHOLD) or not buffer.startswith((COMPRESSOR, COLLECTIVE)):
                    value.mul_(factor)

    def norm(self, buffer: str) -> float:
        """Return the Euclidean norm of one buffer over all parameters, 0 when there is none."""
        squares = [float(state[buffer].square().sum()) for state in self._buffers.values() if buffer in state]
        return math.sqrt(sum(squares))

    def nbytes(self) -> int:
        """Return the bytes of all committed buffers."""
        return sum(value.nbytes for state in self._buffers.values() for value in state.values())

    def threshold(self) -> float | None:
        """Return the mean of the thresholds that collectives steer, for a loss scale of 1; None when there is none."""
        thresholds = [
            float(value)
            for state in self._buffers.values()
            for buffer, value in state.items()
            if buffer.startswith(THRESHOLD) and value.numel() == 1
        ]
        return sum(thresholds) / len(thresholds) / self.loss_scale if thresholds else None

    def names(self) -> Iterable[str]:
        """Return the parameter names that have state."""
        return self._buffers.keys()

    def state_dict(self) -> dict[str, State]:
        """Return copies of all buffers by parameter name."""
        return {
            name: {buffer: value.detach().clone() for buffer, value in state.items()}
            for name, state in self._buffers.items()
            if state
        }

    def load_state_dict(self, state: dict[str, State], device: torch.device) -> None:
        """Replace everything by copies of `state` on `device`; messages must be rebuilt afterwards."""
        self._buffers = {
            name: {buffer: value.detach().to(device, copy=True) for buffer, value in buffers.items()}
            for name, buffers in state.items()
        }
