"""Nominal times of steps and of compressors, held against what one H200 took."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from experiments.common.validation.groups import Group, parts_by
from experiments.common.validation.scores import Pair, score
from ssfx.perf_model.compressor_times import nominal_codecs
from ssfx.perf_model.devices import device
from ssfx.perf_model.measured_gpus import MeasuredGpu, MeasuredStep, measured_gpu
from ssfx.perf_model.roofline import counted_profile

NAME = "gpu"
STEPS, COMPRESSORS = "H200 steps", "H200 compressors"
"""Names of the two groups."""
SHEET = "h200"
NUMELS = {2**20: "1M elements", 2**24: "16M elements"}
"""Sizes at which compressors are scored."""
EXACT = "resnet152 fp32"
"""The step whose convolutions were computed in float32, where the data sheet's fp32 has TF32."""


def one_gpu() -> list[Group]:
    """Return the groups: steps against the time in which the GPU was busy, and calls of compressors."""
    gpu = measured_gpu(SHEET)
    on = f"one {device(gpu.sheet).title}, torch {gpu.origin.versions['torch']}, {gpu.origin.date}"
    steps = tuple(map(_step_pair, gpu.steps))
    calls = tuple(_call_pairs(gpu))
    precisions, models = (dict.fromkeys(getattr(step, of) for step in gpu.steps) for of in ("precision", "model"))
    return [
        Group(
            f"{STEPS}: nominal time of the device against the GPU's busy time, measured",
            "the data sheet and counted operators; nothing of this machine",
            f"{len(steps)} steps of {len(models)} models on {on}", steps,
            (*parts_by((*models, *precisions), lambda pair, word: word in pair.panel.split()),
             (f"without {EXACT}", lambda pair: pair.panel != EXACT)),
            (_host_bound(gpu), _other_walls(gpu), _exact(steps)),
        ),
        Group(
            f"{COMPRESSORS}: nominal time of a call against one between two events of the stream, measured",
            "the data sheet and counted kernels and bytes; nothing of this machine",
            f"{len(gpu.codecs)} compressors at density 0.01 on {on}", calls,
            parts_by(NUMELS.values(), lambda pair, words: pair.label == words), (_fixed_cost(calls),),
        ),
    ]  # fmt: skip


def nominal_s(step: MeasuredStep) -> float:
    """Return the nominal seconds of a step on the device of SHEET."""
    return counted_profile(step.model, SHEET, step.batch_size, step.optimizer, step.precision).alone_s()


def _step_pair(step: MeasuredStep) -> Pair:
    label = f"{step.precision}, batch {step.batch_size}"
    return Pair(f"{step.model} {step.precision}", label, nominal_s(step), 1e-3 * step.busy_ms, whole_step=False)


def _call_pairs(gpu: MeasuredGpu) -> Iterator[Pair]:
    nominal = nominal_codecs(device(gpu.sheet), device("cpu"), world_size=1)
    for numel, words in NUMELS.items():
        place = gpu.numel.index(numel)
        for name, took in gpu.codecs.items():
            work, seconds = took.encode[place]
            yield Pair(f"{name}, {words}", words, nominal[name].encode(work), seconds, whole_step=False)


def _host_bound(gpu: MeasuredGpu) -> str:
    bound = [step for step in gpu.steps if step.host_bound]
    shares = [step.wall_ms / step.busy_ms for step in bound]
    others = [step.wall_ms / step.busy_ms for step in gpu.steps if not step.host_bound]
    walls = score([replace(_step_pair(step), actual=1e-3 * step.wall_ms) for step in gpu.steps])
    issue_us = [1e3 * step.host_ms / step.kernels for step in bound]
    return (
        f"the wall of {len(bound)} of {len(gpu.steps)} eager steps is the host's, which took {min(issue_us):.0f} to "
        f"{max(issue_us):.0f} us to issue a kernel: {min(shares):.1f} to {max(shares):.1f} times the busy time, that "
        f"of the others at most {max(others):.2f} times; nominal times, which know no host, are "
        f"{100 * walls.mean:.0f} % off the wall on average (bias {100 * walls.bias:+.0f} %)"
    )


def _other_walls(gpu: MeasuredGpu) -> str:
    least, most = gpu.beyond_busy()
    faster = [step.wall_ms / step.profiled_wall_ms for step in gpu.steps if step.host_bound]
    return (
        f"in another process the host issued the same steps {min(faster):.1f} to {max(faster):.1f} times as fast; over "
        f"both, a step in 16 bits took {least:.1f} to {most:.1f} times the busy time"
    )


def _exact(steps: tuple[Pair, ...]) -> str:
    (one,) = (pair for pair in steps if pair.panel == EXACT)
    return (
        f"{EXACT} is {-100 * one.error:.0f} % below: nominal fp32 has TF32 in convolutions, torch's default, "
        "which ssfx run switches off with precision=fp32; your own script has what torch says"
    )


def _fixed_cost(calls: tuple[Pair, ...]) -> str:
    small, large = (median(1 / (1 + pair.error) for pair in calls if pair.label == words) for words in NUMELS.values())
    return (
        f"a call took {small:.1f} times the nominal at {NUMELS[2**20]} and {large:.1f} times at {NUMELS[2**24]} "
        "(medians); the time in which the host issues the call's operators is in it, and nominal knows no host"
    )
