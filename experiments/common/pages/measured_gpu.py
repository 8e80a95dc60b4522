"""The generated parts of docs/validation.md and docs/kernels.md that show what one H200 took."""

from __future__ import annotations

from experiments.common.pages.markdown import table
from experiments.common.validation.one_gpu import SHEET, nominal_s
from ssfx.perf_model.measured_gpus import MeasuredStep, MeasuredTraining, measured_gpu

_STEPS = ("model, batch", "precision", "nominal ms", "GPU busy ms", "error", "wall ms", "in another process",
          "wall / busy", "kernels", "host us a kernel")  # fmt: skip


def steps_block() -> str:
    """Return a table of the steps: nominal, the GPU's busy time, walls, and what a kernel takes the host."""
    return table(_STEPS, map(_step, measured_gpu(SHEET).steps))


def _step(step: MeasuredStep) -> tuple[str, ...]:
    nominal_ms = 1e3 * nominal_s(step)
    return (
        f"{step.model}, {step.batch_size}", step.precision, f"{nominal_ms:.1f}", f"{step.busy_ms:.1f}",
        f"{100 * (nominal_ms / step.busy_ms - 1):+.0f} %", f"{step.wall_ms:.1f}", f"{step.profiled_wall_ms:.1f}",
        f"{step.wall_ms / step.busy_ms:.2f}", f"{step.kernels:,}",
        f"{1e3 * step.host_ms / step.kernels:.0f}" if step.host_bound else "-",
    )  # fmt: skip


def trainings_block() -> str:
    """Return a table of the trainings on one rank: milliseconds of an iteration by model and scheme."""
    trainings = measured_gpu(SHEET).trainings
    schemes = list(dict.fromkeys(one.scheme for one in trainings))
    rows: dict[str, dict[str, MeasuredTraining]] = {}
    for one in trainings:
        rows.setdefault(f"{one.model}, {one.batch_size}", {})[one.scheme] = one
    return table(
        ("model, batch", *schemes),
        [(name, *(_iteration(found[scheme]) for scheme in schemes)) for name, found in rows.items()],
    )


def _iteration(one: MeasuredTraining) -> str:
    return f"{one.iteration_ms:.1f} ({one.p10_ms:.1f} to {one.p90_ms:.1f})"


def kernels_block() -> str:
    """Return a table of the kernels' times as multiples of a copy, by version of Triton and number of elements."""
    lines = []
    for one in measured_gpu(SHEET).kernels:
        for operation, points in one.copies.items():
            lines.append((f"{one.triton}, {one.code}", operation, *(f"{copies:.1f}" for _, copies in points)))
    sizes = [f"{numel:,.0f}" for numel, _ in measured_gpu(SHEET).kernels[0].copy_gb_s]
    return table(("Triton, code", "operation", *(f"{size} elements" for size in sizes)), lines)
