"""Analytic profiles: the shipped work of a model turned into times for a device, by the roofline.

An operator takes the longer of computing and moving its data, each at a stated share of the device's peak rate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, sqrt

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.origin import BEWARE, Origin
from ssfx.perf_model.devices import HOST_S, SIXTEEN_BIT, Device, device
from ssfx.perf_model.operator_counts import COLUMNS, ModelWork, counted, model_work
from ssfx.planning.profile import Profile

STEP_TRAFFIC = {"sgd": 5, "adam": 7, "adamw": 7, "muon": 5}
"""Copies of the parameters that a step reads and writes: sgd and muon with momentum, adam with two moments."""

ITERATIONS = 5
"""Of Newton and Schulz in a step of Muon (Jordan et al. 2024), after which singular values are between 0.7 and 1.2."""

UNSCALE_TRAFFIC = 2
"""Copies of the gradient that dividing it by the loss scale of fp16 reads and writes."""

CAST_KERNELS = (3, 2)
"""Kernels that autocast issues for a weight in 16 bits, which are not counted: in forward weight, bias and input are
cast, in backward two gradients back. In four models on one H200 there were 4.9 to 5.6 (docs/validation.md)."""

LAYOUT_KERNELS = (2, 2)
"""The same for a convolution, in any precision: cuDNN's kernels want another layout of input and weight, or of output
and gradient. ResNet-152 on one H200 had 3.6 to 4.4."""

CONVOLVED = 3
"""Dimensions that the weight of a convolution has more than."""

WINOGRAD_CHANNELS = 16
"""Channels from which on cuDNN is taken to compute a 3x3 convolution of stride 1 by Winograd's F(2x2, 3x3), where
float32 is not on tensor cores: 16 multiplications for a tile of 2x2 results, in place of 36 (Lavin and Gray 2016)."""

PASSES = ("forward", "backward")
FORWARD, BACKWARD = 0, 1


def analytic_profile(
    model: str,
    on: str = "a100",
    batch_size: int | None = None,
    precision: str = "fp32",
    recompute: bool | None = None,
    optimizer: str | None = None,
    host_s: float | None = None,
) -> Profile:
    """Return the nominal profile of `model` on device `on` at `batch_size` samples a step (None: the customary one).

    With activation checkpointing (`recompute`; None: as is customary) forward is computed again in backward.
    Each row of work takes, for each kind of operator, the longer of computing and moving its data, plus a launch per
    kernel; and no kernel runs before the host issued it, in `host_s` seconds each (None: as the device's sheet says).
    With an `optimizer` the profile names it; None: the customary one. ConfigError for an unknown model or device, a
    batch size below 1, or a `precision` that the device lacks.
    """
    work, target = model_work(model), device(on).issued_in(host_s).at(precision)
    batch = work.batch_size if batch_size is None else batch_size
    if batch < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch}")
    again = work.recompute if recompute is None else recompute
    update = step_s(work, target, optimizer)
    busy = [*busy_s(work, target, batch, again), update]
    (forward, *backward, update), bound = eager(busy, [*launches(work, precision, again), 0.0], target)
    return Profile(
        model=model,
        tensors=work.tensors,
        ready_gap_s=tuple(round(gap, 9) for gap in backward),
        forward_s=round(forward, 9),
        origin=Origin(
            "nominal",
            hardware=target.title,
            note=(
                f"roofline, not measured: operators of one step on {work.inputs}, counted on the meta device, at "
                f"{target.efficiency}; {target.assumption}; {target.source}; step: {optimizer or work.optimizer}; "
                f"{'forward computed again in backward; ' if again else ''}data loading is left out"
                f"{bound}"
            ),
            versions=work.versions,
        ),
        batch_size=batch,
        device=on,
        step_s=round(update, 9),
        optimizer=optimizer or "",
        host_bound=bool(bound),
        attends=work.attention_bytes > 0 and model not in counted(),  # names of tensors tell what is shipped
    )


def counted_profile(
    model: str, on: str, batch_size: int | None = None, optimizer: str | None = None, precision: str = "fp32"
) -> Profile:
    """Return the analytic profile with the step of `optimizer` (None: the customary one), which knows its precision."""
    chosen = optimizer or model_work(model).optimizer
    return replace(analytic_profile(model, on, batch_size, precision, optimizer=chosen), precision=precision)


def busy_s(work: ModelWork, target: Device, batch_size: int, again: bool) -> list[float]:
    """Return the seconds in which the device works on forward, and on the gradient of each tensor in backward.

    `again`: forward comes back before a gradient; its tensors share it as in forward.
    """
    fewer = fewer_by_winograd(work) if target.winograd else [1.0] * len(work.tensors)

    @cache
    def seconds(row: int, less: float) -> float:
        return row_s(work.rows[row], replace(target, conv_flops=target.conv_flops * less), batch_size)

    forward, backward = (
        [seconds(row, less) for row, less in zip(rows, fewer, strict=True)] for rows in (work.forward, work.backward)
    )
    if again:
        backward = [gap + more for gap, more in zip(backward, forward, strict=True)]
    return [sum(forward), *backward]


def fewer_by_winograd(work: ModelWork) -> list[float]:
    """Return for each tensor how many times fewer multiplications its layer takes by Winograd's algorithm; else 1.0.

    The sides of what a layer reads and writes follow from its operations and bytes in forward, and so does its stride.
    """
    _, conv, _, moved, *_ = range(len(COLUMNS))
    layers = [spec.name.rpartition(".")[0] for spec in work.tensors]
    counts: dict[str, list[float]] = {}
    for layer, row in zip(layers, work.forward, strict=True):
        flops, nbytes = counts.get(layer, (0.0, 0.0))
        counts[layer] = [flops + work.rows[row][conv], nbytes + work.rows[row][moved]]
    fewer = dict.fromkeys(layers, 1.0)
    for layer, spec in zip(layers, work.tensors, strict=True):
        flops, nbytes = counts[layer]
        if spec.shape[2:] == (3, 3) and spec.shape[1] >= WINOGRAD_CHANNELS and flops:
            out, into = spec.shape[:2]
            written = flops / (2 * 9 * out * into)
            read = (nbytes / 4 - out * written) / into
            if read < 2 * written:
                fewer[layer] = max(1.0, 9 * written / (16 * ceil(0.5 * sqrt(written) - 1e-6) ** 2))
    return [fewer[layer] for layer in layers]


def launches(work: ModelWork, precision: str, again: bool) -> list[float]:
    """Return how many kernels the host issues in forward, and for the gradient of each tensor in backward."""
    forward, backward = (
        [work.rows[row][0] + around(spec.shape, precision, way) for row, spec in zip(rows, work.tensors, strict=True)]
        for way, rows in ((FORWARD, work.forward), (BACKWARD, work.backward))
    )
    if again:
        backward = [count + more for count, more in zip(backward, forward, strict=True)]
    return [sum(forward), *backward]


def around(shape: Sequence[int], precision: str, way: int) -> int:
    """Return the kernels around a weight's product, in FORWARD or BACKWARD, that are not counted."""
    casts = CAST_KERNELS[way] * (precision in SIXTEEN_BIT and len(shape) > 1)
    return casts + LAYOUT_KERNELS[way] * (len(shape) > CONVOLVED)


def eager(busy: Sequence[float], kernels: Sequence[float], target: Device) -> tuple[list[float], str]:
    """Return what each part of a step takes when steps follow one another, as no kernel runs before it was issued.

    `busy` are seconds of the device, `kernels` what the host issues for the same parts. A host that needs less for a
    step runs ahead, and parts take what the device takes; else the device waits, in all as long as the host issues,
    and the text says so, for an origin's note.
    """
    issued = [target.host_s * count for count in kernels]
    if sum(issued) <= sum(busy):
        return list(busy), ""
    parts, behind = list(busy), 0.0
    for _ in range(2):  # what the device is behind at the end of a step carries over: the second one is like all later
        for i, (work, issue) in enumerate(zip(busy, issued, strict=True)):
            # The part ends when the device has done it, and not before its last kernel was issued.
            end = max(behind + work, issue)
            parts[i], behind = end - behind, end - issue
    each = f"{1e6 * target.host_s:g} us each{', assumed' if target.host_s == HOST_S else ''}"
    return parts, (
        f"; {BEWARE}bound by the host, which issues {sum(kernels):,.0f} kernels of a step in "
        f"{1e3 * sum(issued):.3g} ms ({each}), "
        f"while the GPU is busy for {1e3 * sum(busy):.3g}; CUDA graphs or torch.compile take it out: cluster.host_us=0"
    )


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
