"""The tables of models: what they are (docs/workloads.md), analytic times beside published ones (docs/profiles.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import geometric_mean
from typing import Any

from experiments.common.pages.markdown import code, table
from ssfx.lab.workloads.base import Model, datasets, models
from ssfx.perf_model.devices import device
from ssfx.perf_model.operator_counts import counted, model_work
from ssfx.perf_model.roofline import analytic_profile


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
    recompute: bool | None = None
    accumulated: int = 1
    """Passes of one optimizer step."""


_SQUAD = "[NVIDIA](https://github.com/NVIDIA/DeepLearningExamples/tree/729963dd47e7/PyTorch/LanguageModeling/BERT)"
_TIMM = (
    "[timm](https://github.com/huggingface/pytorch-image-models/blob/aa4b5850c154/results/"
    "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv)"
)
_TITAN = (
    "[torchtitan](https://github.com/pytorch/torchtitan/blob/b5bcd76c66d0/benchmarks/"
    "llama3_h100_202412_torchtitan.md), sharded over 8 GPUs, compiled"
)
_BRIDGE = (
    "[Megatron Bridge](https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/067f987df03b/docs/"
    "performance-summary-archive.md), 8 GPUs"
)
_DLE = "NVIDIA DeepLearningExamples"


def _rated(
    model: str, device: str, batch_size: int, rates: Sequence[float], source: str, precision: str = "fp32", **more: Any
) -> Published:  # fmt: skip
    """Return the times that follow from so many samples a second; of several rates, from the highest to the lowest."""
    return Published(
        model, device, batch_size, batch_size / max(rates), batch_size / min(rates), source, precision=precision, **more
    )  # fmt: skip


PUBLISHED = (
    _rated("resnet50", "a100", 256, (938,), f"{_DLE}, TF32, 938 images/s"),
    _rated("resnet50", "v100", 128, (356, 367), f"{_DLE}, float32, 356 to 367 images/s"),
    _rated("resnet50", "a100", 256, (2470,), f"{_DLE}, mixed precision, 2470 images/s", "fp16"),
    _rated("resnet50", "v100", 256, (1156, 1200), f"{_DLE}, mixed precision, 1156 to 1200 images/s", "fp16"),
    Published("resnet50_cifar10", "v100", 64, 0.064, 0.064, "MergeComp, one GPU"),
    Published("resnet152", "rtx2080ti", 32, 0.252, 0.252, "ACP-SGD, what its naive S-SGD leaves for computing"),
    Published("resnet50", "rtx2080ti", 64, 0.248, 0.248, "ACP-SGD, a whole iteration of its fastest scheme", True),
    Published("bert_base_pretraining", "rtx2080ti", 32, 0.193, 0.193, "ACP-SGD, likewise", True),
    Published("bert_large_pretraining", "rtx2080ti", 8, 0.245, 0.245, "ACP-SGD, likewise", True),
    *(
        _rated("bert_large", on, batch, (rate,), f"{_SQUAD}, {rate:g} sequences/s", kind)
        for on, batch, rate, kind in (
            ("a100", 32, 61.5, "tf32"),
            ("a100", 32, 110.5, "fp16"),
            ("v100", 8, 12.0, "fp32"),
            ("v100", 16, 52.0, "fp16"),
        )
    ),
    *(
        Published(model, "rtx3090", batch, ms / 1e3, ms / 1e3, f"{_TIMM}, {batch} images in {ms:g} ms", False, "fp16")
        for model, batch, ms in (
            ("resnet50", 512, 419.5),
            ("resnet101", 256, 340.7),
            ("resnet152", 192, 380.5),
            ("vgg16", 384, 703.0),
            ("vgg19", 384, 839.3),
            ("vit_large", 64, 544.5),
        )
    ),
    *(
        _rated("llama3_8b", on, batch, (rate / 8192,), f"{who}, {rate} tokens/s a GPU", kind, recompute=again,
               accumulated=passes)
        for on, batch, rate, kind, again, passes, who in (
            ("h100", 2, 6667, "bf16", None, 1, _TITAN),
            ("h100", 2, 8532, "fp8", None, 1, _TITAN),
            ("h100", 1, 14451, "fp8", False, 16, _BRIDGE),
            ("b200", 2, 30624, "fp8", False, 8, _BRIDGE),
        )
    ),
)  # fmt: skip
"""Times with which nothing here was chosen."""


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
    return [p.numel() for p in model.on_meta().parameters() if p.requires_grad]


def analytic_block() -> str:
    """Return analytic times of whole iterations on one device, with published ones."""
    lines = []
    ratios = []
    for known in PUBLISHED:
        profile = analytic_profile(known.model, known.device, known.batch_size, known.precision, known.recompute)
        # of one pass, with its share of the optimizer's step
        seconds = profile.alone_s() - profile.step_s * (1 - 1 / known.accumulated)
        lines.append((_setting(known), f"{1e3 * seconds:.0f}", *_printed(known, seconds), known.source))
        if not known.at_most:
            ratios.append(seconds / sqrt(known.low_s * known.high_s))
    middle = sorted(abs(log(ratio)) for ratio in ratios)[len(ratios) // 2]
    said = (
        f"Of {len(ratios)} times on one device, half are within {exp(middle) - 1:.0%}; on average analytic times are "
        f"{geometric_mean(ratios):.2f} of published ones, at the extremes {min(ratios):.2f} and {max(ratios):.2f}."
    )
    header = ("model, device, batch", "analytic, ms", "published, ms", "analytic / published", "published by")
    return f"{table(header, lines)}\n\n{said}"


def _setting(known: Published) -> str:
    precision = "" if known.precision == "fp32" else f", {known.precision}"
    kept = ", no recomputing" if known.recompute is False else ""
    return f"{code(known.model)}, {device(known.device).title}, {known.batch_size}{precision}{kept}"


def _printed(known: Published, analytic_s: float) -> tuple[str, str]:
    times_s = sorted({known.low_s, known.high_s})
    printed = " to ".join(f"{1e3 * seconds:.0f}" for seconds in times_s)
    ratios = " to ".join(f"{analytic_s / seconds:.2f}" for seconds in reversed(times_s))
    return (f"at most {printed}", f"at least {ratios}") if known.at_most else (printed, ratios)
