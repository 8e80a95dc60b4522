"""Nominal times of steps and of compressors, held against what one H200 and its host took."""

from collections.abc import Iterator

from experiments.common.validation.groups import Group, parts_by
from experiments.common.validation.scores import Pair
from ssfx.perf_model.compressor_times import LAUNCH, OPERATOR, nominal_codecs
from ssfx.perf_model.devices import HOST_S, device
from ssfx.perf_model.measured_gpus import MeasuredGpu, MeasuredStep, measured_gpu
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.roofline import counted_profile, launches

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
            f"{STEPS}: nominal time against an eager step, measured",
            "the data sheet, counted operators, and what its host takes to issue a kernel",
            f"{len(steps)} steps of {len(models)} models on {on}",
            steps,
            (
                *parts_by((*models, *precisions), lambda pair, word: word in pair.panel.split()),
                (f"without {EXACT}", lambda pair: pair.panel != EXACT),
            ),
            (_fitted(gpu), _other_walls(gpu), _exact(steps)),
        ),
        Group(
            f"{COMPRESSORS}: nominal time of a call against one between two events of the stream, measured",
            "the data sheet, counted kernels and bytes, and what its host takes to issue them",
            f"{len(gpu.codecs)} compressors at density 0.01 on {on}",
            calls,
            parts_by(NUMELS.values(), lambda pair, words: pair.label == words),
            (_far(calls),),
        ),
    ]


def nominal_s(step: MeasuredStep) -> float:
    """Return the nominal seconds of a step on the device of SHEET."""
    return counted_profile(step.model, SHEET, step.batch_size, step.optimizer, step.precision).alone_s()


def launched_of(step: MeasuredStep) -> float:
    """Return how many kernels of forward and backward are counted for a step."""
    work = model_work(step.model)
    return sum(launches(work, step.precision, work.recompute))


def _step_pair(step: MeasuredStep) -> Pair:
    label = f"{step.precision}, batch {step.batch_size}"
    return Pair(f"{step.model} {step.precision}", label, nominal_s(step), 1e-3 * step.wall_ms, whole_step=False)


def _call_pairs(gpu: MeasuredGpu) -> Iterator[Pair]:
    nominal = nominal_codecs(device(gpu.sheet), device("cpu"), world_size=1, host_bound=True)
    for numel, words in NUMELS.items():
        place = gpu.numel.index(numel)
        for name, took in gpu.codecs.items():
            work, seconds = took.encode[place]
            yield Pair(f"{name}, {words}", words, nominal[name].encode(work), seconds, whole_step=False)


def _fitted(gpu: MeasuredGpu) -> str:
    kernels = [(launched_of(step), step.kernels) for step in gpu.steps]
    return (
        f"what a kernel takes the host ({1e6 * HOST_S:g} us of a step, {1e6 * OPERATOR * HOST_S:.0f} of a compressor, "
        f"{1e6 * LAUNCH * HOST_S:.0f} of Triton) and kernels around weights were read off this record, so no score "
        f"here is of times never seen; kernels as counted are {min(a / b for a, b in kernels):.2f} to "
        f"{max(a / b for a, b in kernels):.2f} of those launched"
    )


def _other_walls(gpu: MeasuredGpu) -> str:
    bound = [step for step in gpu.steps if step.host_bound]
    faster = [step.wall_ms / step.profiled_wall_ms for step in bound]
    issue_us = [1e3 * step.host_ms / step.kernels for step in bound]
    return (
        f"the wall of {len(bound)} of {len(gpu.steps)} steps is the host's, which took {min(issue_us):.0f} to "
        f"{max(issue_us):.0f} us to issue a kernel; in another process it issued the same steps {min(faster):.1f} to "
        f"{max(faster):.1f} times as fast, so no single number is nearer than that"
    )


def _exact(steps: tuple[Pair, ...]) -> str:
    (one,) = (pair for pair in steps if pair.panel == EXACT)
    return (
        f"{EXACT} is {-100 * one.error:.0f} % below: nominal fp32 has TF32 in convolutions, torch's default, "
        "which ssfx run switches off with precision=fp32; your own script has what torch says"
    )


def _far(calls: tuple[Pair, ...]) -> str:
    far = sorted((pair for pair in calls if pair.error < -0.5), key=lambda pair: pair.error)
    return (
        f"less than half of the time is foreseen of {', '.join(pair.panel for pair in far)}: a sort takes more than "
        "its bytes, and waits for the number of what was chosen"
    )
