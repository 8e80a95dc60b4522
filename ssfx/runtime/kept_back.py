"""What error feedback keeps back of a step's gradients, over what there was to send, by norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ssfx.runtime.store import Store


class KeptBack:
    """Measures one step in `every`: gradients with what was kept before, and what is kept after. Of this rank alone.

    `buffer`: the name of the memory's residual. `kept_squares` returns the squared norm of what the last step
    left in it. `share` is what the last measured step kept back, None before one was measured, and where there was
    nothing to send.
    """

    def __init__(self, store: Store, buffer: str, every: int, kept_squares: Callable[[str], float]) -> None:
        self._store, self._buffer, self._every, self._kept_squares = store, buffer, every, kept_squares
        self._steps = 0
        self._whole = 0.0
        self.squares = (0.0, 0.0)
        """The squared norms of what was kept and of what there was, in the step that was measured last."""

    @property
    def due(self) -> bool:
        """True in a step that is measured."""
        return self._steps == self._every - 1

    @property
    def share(self) -> float | None:
        """The norm of what was kept back over that of what there was."""
        kept, whole = self.squares
        return (kept / whole) ** 0.5 if whole else None

    def restart(self) -> None:
        """Measure the last of the next `every` steps."""
        self._steps, self._whole = 0, 0.0

    def gradient(self, name: str, grad: torch.Tensor | None) -> None:
        """Take note of a gradient that is about to be exchanged, and of what is kept of earlier ones."""
        if grad is None:
            return
        kept = self._store.get(name, self._buffer)
        whole = grad.float() if kept is None else grad.float() + kept.view_as(grad)
        self._whole += float(whole.square().sum())

    def end_step(self) -> bool:
        """Close a step; return whether it was measured."""
        measured = self.due
        if measured:
            self.squares = (self._kept_squares(self._buffer), self._whole)
            self.restart()
        else:
            self._steps += 1
        return measured

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with; between steps only."""
        return {"steps": self._steps, "squares": self.squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self._steps, self.squares = state["steps"], tuple(state["squares"])
