"""Analytic profiles: the shipped work of a model turned into times for a device, by the roofline.

An operator takes the longer of computing and moving its data, each at a stated share of the device's peak rate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.origin import Origin
from ssfx.perf_model.devices import Device, device
from ssfx.perf_model.operator_counts import ModelWork, model_work
from ssfx.planning.profile import Profile

STEP_TRAFFIC = {"sgd": 5, "adam": 7, "adamw": 7, "muon": 5}
"""Copies of the parameters that a step reads and writes: sgd and muon with momentum, adam with two moments."""

ITERATIONS = 5
"""Of Newton and Schulz in a step of Muon (Jordan et al. 2024), after which singular values are between 0.7 and 1.2."""

UNSCALE_TRAFFIC = 2
"""Copies of the gradient that dividing it by the loss scale of fp16 reads and writes."""


def analytic_profile(
    model: str, on: str = "a100", batch_size: int | None = None, precision: str = "fp32", recompute: bool | None = None
) -> Profile:
    """Return the nominal profile of `model` on device `on` at `batch_size` samples a step (None: the customary one).

    With activation checkpointing (`recompute`; None: as is customary) forward is computed again in backward.
    Each row of work takes, for each kind of operator, the longer of computing and moving its data, plus a launch per
    kernel. ConfigError for an unknown model or device, a batch size below 1, or a `precision` that the device lacks.
    """
    work, target = model_work(model), device(on).at(precision)
    batch = work.batch_size if batch_size is None else batch_size
    if batch < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch}")
    seconds = [row_s(row, target, batch) for row in work.rows]
    backward = [seconds[i] for i in work.backward]
    again = work.recompute if recompute is None else recompute
    if again:  # a layer's forward comes back before its gradients; its tensors share it as in forward
        backward = [gap + seconds[i] for gap, i in zip(backward, work.forward, strict=True)]
    return Profile(
        model=model,
        tensors=work.tensors,
        ready_gap_s=tuple(round(gap, 9) for gap in backward),
        forward_s=round(sum(seconds[i] for i in work.forward), 9),
        origin=Origin(
            "nominal",
            hardware=target.title,
            note=(
                f"roofline, not measured: operators of one step on {work.inputs}, counted on the meta device, at "
                f"{target.efficiency}; {target.assumption}; {target.source}; step: {work.optimizer}; "
                f"{'forward computed again in backward; ' if again else ''}data loading is left out"
            ),
            versions=work.versions,
        ),
        batch_size=batch,
        device=on,
        step_s=round(step_s(work, target), 9),
    )


def counted_profile(
    model: str, on: str, batch_size: int | None = None, optimizer: str | None = None, precision: str = "fp32"
) -> Profile:
    """Return the analytic profile with the step of `optimizer` (None: the customary one), which knows its precision."""
    found = analytic_profile(model, on, batch_size, precision)
    return replace(with_step(found, optimizer or model_work(model).optimizer, precision), precision=precision)


def with_step(profile: Profile, optimizer: str, precision: str = "fp32") -> Profile:
    """Return an analytic profile with the step of `optimizer` in place of the customary one, and its origin says so."""
    work = model_work(profile.model)
    note = profile.origin.note.replace(f"step: {work.optimizer}", f"step: {optimizer}")
    seconds = round(step_s(work, device(profile.device).at(precision), optimizer), 9)
    return replace(profile, step_s=seconds, optimizer=optimizer, origin=replace(profile.origin, note=note))


def row_s(row: Sequence[float], target: Device, batch_size: int) -> float:
    """Return the seconds of one row of work at `batch_size` samples.

    Counts are of float32: what grows with the samples are activations, which have `target.activation_bytes`. What is
    fixed are weights and their gradients, which stay float32: a 16-bit copy saves reading and costs making it.
    """
    kernels, conv, matmul, conv_bytes, matmul_bytes, other_bytes, *fixed = row
    bytes_s = target.memory_bytes_s * target.memory_efficiency
    moved = [
        (per_sample * batch_size * target.activation_bytes / 4 + always) / bytes_s
        for per_sample, always in zip((conv_bytes, matmul_bytes, other_bytes), fixed, strict=True)
    ]
    conv_s = conv * batch_size / (target.conv_flops * target.conv_efficiency)
    matmul_s = matmul * batch_size / (target.matmul_flops * target.matmul_efficiency)
    return kernels * target.launch_s + max(conv_s, moved[0]) + max(matmul_s, moved[1]) + moved[2]


def step_s(work: ModelWork, target: Device, optimizer: str | None = None) -> float:
    """Return the seconds of an optimizer step (None: of the customary optimizer) as `update_s` has them."""
    chosen = work.optimizer if optimizer is None else optimizer
    if chosen not in STEP_TRAFFIC:
        raise unknown("optimizer", chosen, STEP_TRAFFIC)
    return update_s(chosen, 4 * work.numel, (spec.shape for spec in work.tensors), target)


def update_s(optimizer: str, weights_bytes: int, shapes: Iterable[Sequence[int]], target: Device) -> float:
    """Return the seconds of a step that moves every tensor it needs once; muon multiplies hidden matrices, too."""
    copies = STEP_TRAFFIC[optimizer] + (UNSCALE_TRAFFIC if target.precision == "fp16" else 0)
    multiplied = orthogonalising_flops(shapes) if optimizer == "muon" else 0.0
    return (
        copies * weights_bytes / (target.memory_bytes_s * target.memory_efficiency)
        + multiplied / (target.matmul_flops * target.matmul_efficiency)
        + target.launch_s
    )


def orthogonalising_flops(shapes: Iterable[Sequence[int]]) -> float:
    """Return the operations of Muon's ITERATIONS, each X X^T, its square and a product with X (m x n, m <= n).

    What is 16 times as long as wide is a table of words or a head, which AdamW steps.
    """
    sides = [(min(shape), max(shape)) for shape in shapes if len(shape) == 2]
    return float(sum(ITERATIONS * (4 * m * m * n + 2 * m**3) for m, n in sides if n < 16 * m))
