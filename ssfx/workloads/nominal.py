"""Tensor tables of the large models with placeholder times, so that plans can be printed before any measurement.

`python -m ssfx.workloads.nominal` rewrites them. Names and shapes are exact; the times say nothing about any machine.
"""

from __future__ import annotations

import torch

from ssfx.origin import Origin
from ssfx.plan import TensorSpec
from ssfx.profile import Profile, shipped_dir
from ssfx.workloads.base import models

NOMINAL = (
    "bert_base", "bert_large", "bert_large_narrow", "gpt2_large", "lstm_wikitext2", "resnet152", "resnet152_digits",
    "resnet50", "vgg19", "vit_large",
)  # fmt: skip
FORWARD_S = 0.1
BACKWARD_S = 2 * FORWARD_S


def nominal_profile(name: str) -> Profile:
    """Return the model's tensors in reversed order of registration with times that are assumed, not measured."""
    with torch.device("meta"):
        model = models[name].build()
    trainable = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    specs = tuple(TensorSpec(n, tuple(p.shape)) for n, p in reversed(trainable))
    total = sum(spec.numel for spec in specs)
    return Profile(
        model=name,
        tensors=specs,
        ready_gap_s=tuple(round(BACKWARD_S * spec.numel / total, 9) for spec in specs),
        forward_s=FORWARD_S,
        origin=Origin(
            "nominal",
            note=(
                f"placeholder times for planning only: forward assumed {FORWARD_S:g} s, backward twice that, spread "
                "over tensors in proportion to their elements; order assumed reversed registration; shapes are exact"
            ),
        ),
        batch_size=models[name].batch_size,
        device="nominal",
    )


def main() -> None:
    """Write the table of every model of NOMINAL into the package."""
    for name in NOMINAL:
        path = shipped_dir() / f"{name}.json"
        path.write_text(nominal_profile(name).to_json() + "\n")
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
