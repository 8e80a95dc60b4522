"""The tables of models: what they are (docs/workloads.md), analytic times beside published ones (docs/profiles.md)."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.pages.markdown import code, table
from ssfx.perf_model.devices import device
from ssfx.perf_model.operator_counts import counted, model_work
from ssfx.perf_model.roofline import analytic_profile
from ssfx.planning.profile import Profile
from ssfx.workloads.base import Model, datasets, models


@dataclass(frozen=True)
class Published:
    """A time per iteration that others measured or that follows from what they print; `at_most`: it holds more."""

    model: str
    device: str
    batch_size: int
    low_s: float
    high_s: float
    source: str
    at_most: bool = False
    precision: str = "fp32"


PUBLISHED = (
    Published("resnet50", "a100", 256, 256 / 938, 256 / 938, "NVIDIA DeepLearningExamples, TF32, 938 images/s"),
    Published(
        "resnet50", "v100", 128, 128 / 367, 128 / 356, "NVIDIA DeepLearningExamples, float32, 356 to 367 images/s"
    ),
    Published(
        "resnet50",
        "a100",
        256,
        256 / 2470,
        256 / 2470,
        "NVIDIA DeepLearningExamples, mixed precision, 2470 images/s",
        precision="fp16",
    ),
    Published(
        "resnet50",
        "v100",
        256,
        256 / 1200,
        256 / 1156,
        "NVIDIA DeepLearningExamples, mixed precision, 1156 to 1200 images/s",
        precision="fp16",
    ),
    Published("resnet50_cifar10", "v100", 64, 0.064, 0.064, "MergeComp, one GPU"),
    Published("resnet152", "rtx2080ti", 32, 0.252, 0.252, "ACP-SGD, what its naive S-SGD leaves for computing"),
    Published("resnet50", "rtx2080ti", 64, 0.248, 0.248, "ACP-SGD, a whole iteration of its fastest scheme", True),
    Published("bert_base_pretraining", "rtx2080ti", 32, 0.193, 0.193, "ACP-SGD, likewise", True),
    Published("bert_large_pretraining", "rtx2080ti", 8, 0.245, 0.245, "ACP-SGD, likewise", True),
)
"""Times with which nothing here was chosen."""  # fmt: skip


def models_block() -> str:
    """Return a line for each model: parameters, tensors, customary batch size, inputs, and the data that it fits."""
    lines = []
    for model in models:
        sizes = _sizes(model)
        length = f", at most {model.max_seq_len}" if model.max_seq_len else ""
        fits = [code(data.name) for data in datasets if data.cls.here and data.cls.inputs == model.inputs]
        lines.append(
            (
                code(model.name), f"{sum(sizes):,}", str(len(sizes)), str(model.batch_size), model.inputs + length,
                ", ".join(fits) or "-",
            )
        )  # fmt: skip
    return table(("model", "parameters", "tensors", "customary batch", "inputs", "data here"), lines)


def _sizes(model: Model) -> list[int]:
    """Return the number of elements of each trainable tensor."""
    if model.name in counted():
        return [spec.numel for spec in model_work(model.name).tensors]
    import torch  # late: few models cannot be counted

    with torch.device("meta"):
        return [p.numel() for p in model.build().parameters() if p.requires_grad]


def analytic_block() -> str:
    """Return analytic times of whole iterations on one device, with published ones."""
    lines = []
    for known in PUBLISHED:
        profile = analytic_profile(known.model, known.device, known.batch_size, known.precision)
        lines.append((_setting(known), f"{1e3 * profile.alone_s():.0f}", *_printed(known, profile), known.source))
    return table(
        ("model, device, batch", "analytic, ms", "published, ms", "analytic / published", "published by"), lines
    )


def _setting(known: Published) -> str:
    precision = "" if known.precision == "fp32" else f", {known.precision}"
    return f"{code(known.model)}, {device(known.device).title}, {known.batch_size}{precision}"


def _printed(known: Published, profile: Profile) -> tuple[str, str]:
    times_s = sorted({known.low_s, known.high_s})
    printed = " to ".join(f"{1e3 * seconds:.0f}" for seconds in times_s)
    ratios = " to ".join(f"{profile.alone_s() / seconds:.2f}" for seconds in reversed(times_s))
    return (f"at most {printed}", f"at least {ratios}") if known.at_most else (printed, ratios)
