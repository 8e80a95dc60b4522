"""Device memory that data-parallel training of a model takes: what fits on a device, use by use."""

from dataclasses import dataclass

from ssfx.core.errors import ConfigError, unknown
from ssfx.perf_model.devices import SIXTEEN_BIT
from ssfx.perf_model.operator_counts import model_work

OPTIMIZER_STATE = {"sgd": 1, "adam": 2, "adamw": 2, "muon": 1}
"""Copies of the parameters that an optimizer keeps; sgd has momentum, and so has muon (two moments of vectors)."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of device memory that one rank takes, by use.

    `parameters` are float32, with the 16-bit copies that autocast keeps of them in bf16 and fp16. `activations` is what
    autograd keeps for backward. Left out: workspaces of libraries, the driver's context, fragmentation, and messages in
    flight.
    """

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int
    residual: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer_state + self.activations + self.residual


def memory_bytes(
    model: str,
    batch_size: int | None = None,
    optimizer: str | None = None,
    *,
    residual_copies: int = 0,
    fused_attention: bool = False,
    precision: str = "fp32",
) -> Footprint:
    """Return what a rank of `model` keeps in device memory; None takes the customary batch size and optimizer.

    `residual_copies` is the number of tensors the size of the gradient that error feedback keeps: 0 for dense training
    and without memory, 1 for a residual, 2 with momentum correction. `fused_attention` keeps no matrices of scores.
    In bf16 and fp16 activations take half; of layers that are customarily computed again only inputs are kept. The
    world size changes none of it. ConfigError for an unknown model or optimizer, or a batch size below 1.
    """
    work = model_work(model)
    samples = work.batch_size if batch_size is None else batch_size
    chosen = work.optimizer if optimizer is None else optimizer
    if samples < 1:
        raise ConfigError(f"batch_size must be at least 1, got {samples}")
    if chosen not in OPTIMIZER_STATE:
        raise unknown("optimizer", chosen, OPTIMIZER_STATE)
    weights = 4 * work.numel
    per_sample = work.kept_bytes(fused_attention=fused_attention)
    half = precision in SIXTEEN_BIT
    return Footprint(
        parameters=weights + (weights // 2 if half else 0),
        gradients=weights,
        optimizer_state=OPTIMIZER_STATE[chosen] * weights,
        activations=per_sample * samples // (2 if half else 1),
        residual=residual_copies * weights,
    )
