"""Muon: hidden matrices are stepped along their orthogonalised momentum, all other weights by AdamW."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ssfx.perf_model.roofline import ITERATIONS

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the iteration of Newton and Schulz in Jordan et al. 2024."""


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """Return about U V^T of the singular value decomposition U S V^T of a float `matrix`, in its dtype."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if tall else matrix
    x = x.div(x.norm().clamp(min=1e-7))  # no singular value is above 1, as the iteration asks
    for _ in range(ITERATIONS):  # X <- a X + (b A + c A^2) X with A = X X^T: the polynomial a s + b s^3 + c s^5 of each
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if tall else x


class Muon(torch.optim.Optimizer):
    """One rate for all weights: a matrix's step has the root mean square that AdamW's usually has (Liu et al. 2025).

    Groups with `matrices` hold tensors of two dimensions. `betas`: the first is Muon's momentum, too, with Nesterov's
    step. Weight decay is decoupled, as AdamW's is.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "matrices": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step all weights that have a gradient, and return what `closure` returned, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    update = self._matrix if group["matrices"] else self._adam
                    p.sub_(group["lr"] * update(p, p.grad, *group["betas"]))
        return loss

    def _matrix(self, p: torch.Tensor, grad: torch.Tensor, beta: float, _: float) -> torch.Tensor:
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
        momentum: torch.Tensor = state["momentum"].lerp_(grad, 1 - beta)  # m <- beta m + (1 - beta) g
        update = orthogonalised(grad.lerp(momentum, beta))
        # U V^T of m x n has the root mean square 1 / sqrt(max(m, n)); AdamW's steps have about 0.2.
        return update.mul(0.2 * max(p.shape) ** 0.5)

    def _adam(self, p: torch.Tensor, grad: torch.Tensor, beta1: float, beta2: float) -> torch.Tensor:
        state = self.state[p]
        if not state:
            state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
        state["step"] += 1
        first: torch.Tensor = state["first"].lerp_(grad, 1 - beta1)
        second: torch.Tensor = state["second"].lerp_(grad * grad, 1 - beta2)
        at = int(state["step"])  # both moments began at zero: divided by 1 - beta^t
        return first.div(1 - beta1**at) / (second.div(1 - beta2**at).sqrt() + 1e-8)
