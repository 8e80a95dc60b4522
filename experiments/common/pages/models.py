"""The tables of models: what they are (docs/workloads.md), analytic times beside published ones (docs/profiles.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from experiments.common.pages.markdown import code, table
from ssfx.core.files import read_json
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


def _published(rates: Sequence[float] = (), **said: Any) -> Published:
    """Return a line of the file; of so many samples a second, the times from the highest rate to the lowest."""
    if rates:
        said |= {"low_s": said["batch_size"] / max(rates), "high_s": said["batch_size"] / min(rates)}
    return Published(**said)


PUBLISHED = tuple(_published(**one) for one in read_json(Path(__file__).with_name("published_steps.json")))
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
                code(model.name),
                f"{sum(sizes):,}",
                str(len(sizes)),
                str(model.batch_size),
                model.inputs + length,
                ", ".join(fits) or "-",
            )
        )
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
