"""The learning rates that residuals are scaled for: a carried residual keeps the rate under which it was computed.

The optimizer multiplies everything it gets by its present rate. So when that changes from r' to r, the residual
is multiplied by r' / r, and moves the parameters as if it had been multiplied by r' at once. Source: D-15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.lazy import torch

LARGEST_STEP = 16.0
"""A residual grows or shrinks by at most this factor in one step; the end of a cosine schedule would let it explode."""


class Rates:
    """The rate of every parameter's committed residual; part of a checkpoint.

    `residual` returns the committed residual of a parameter, or None. `begin` comes before a step's gradients.
    ConfigError for an optimizer whose updates are not proportional to its learning rate.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        params: Mapping[str, torch.nn.Parameter],
        residual: Callable[[str], torch.Tensor | None],
    ) -> None:
        self._optimizers: list[torch.optim.Optimizer] = []
        for optimizer in optimizers:
            self.follow(optimizer)
        self._names = {id(param): name for name, param in params.items()}
        self._residual = residual
        self._rates: dict[str, float] = {}
        self.held: set[str] = set()
        """Parameters whose rate is 0 in this step: they do not move, and what is kept of them stays as it is."""
        self.limited_steps = 0
        """How many steps changed a rate by more than residuals may follow at once."""

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on the rates of what `optimizer` holds are its."""
        if any("lr" not in group or "eps" in group for group in optimizer.param_groups):
            raise ConfigError(
                f"memory=lr_scaled follows the learning rate, to which updates of {type(optimizer).__name__} are "
                "not proportional; use SGD, or memory=residual"
            )
        self._optimizers.append(optimizer)

    def know(self, params: Mapping[str, torch.nn.Parameter]) -> None:
        """Follow the rates of more parameters."""
        self._names.update({id(param): name for name, param in params.items()})

    def begin(self) -> None:
        """Scale every committed residual in place from its own rate to the present one.

        A parameter whose rate is 0 does not move, and what is sent for it is lost: the caller commits none of `held`.
        """
        limited = False
        self.held.clear()
        for name, rate in self._now().items():
            residual = self._residual(name)
            if rate == 0:
                self.held.add(name)
                continue
            factor = self._rates.get(name, rate) / rate
            self._rates[name] = rate
            if factor != 1 and residual is not None:
                within = min(max(factor, 1 / LARGEST_STEP), LARGEST_STEP)
                limited = limited or within != factor
                residual.mul_(within)
        self.limited_steps += limited

    def state_dict(self) -> dict[str, Any]:
        """Return the rates by parameter name, the same on every rank."""
        return {"rates": dict(self._rates), "limited_steps": self.limited_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._rates, self.limited_steps = dict(state["rates"]), state["limited_steps"]

    def _now(self) -> dict[str, float]:
        return {
            self._names[id(param)]: float(group["lr"])
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for param in group["params"]
            if id(param) in self._names
        }
