"""What the SSFusion paper calls models and schemes, and in which order it shows them."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.common.claims.values import BASELINES, SPEED
from ssfx.lab.results.comparisons import Cell

OWN = ("ssfusion_naive", "ssfusion_o", "ssfusion_oi")
SCHEMES = {
    "ddp": "dense DDP",
    "hipress": "HiPress",
    "oktopk": "OkTopk",
    "spardl": "SparDL",
    "espresso": "Espresso",
    "omgs": "OMGS",
    "cupcake": "Cupcake",
    "ssfusion_naive": "SSFusion (naive)",
    "ssfusion_o": "SSFusion-O",
    "ssfusion_oi": "SSFusion",
}
"""Schemes that are shown beside one another, at most ten."""
OTHERS = {"per_tensor": "per-tensor", "fused_all": "multi-tensor"}
FEW = ("ddp", *BASELINES, *OTHERS, OWN[-1], "auto")
"""Schemes that are shown of runs on this machine; the last is not of the paper."""
MODELS = {
    "resnet152": "ResNet-152",
    "resnet152_cifar100": "ResNet-152",
    "vit_large": "ViT-large",
    "bert_large": "BERT-large",
    "gpt2_large": "GPT2-large",
    "gpt2_xl": "GPT2-XL",
    "bloom_3b": "BLOOM-3B",
}
DATASETS = {
    "imagenet": "ImageNet",
    "cifar100": "CIFAR-100",
    "squad": "SQuAD",
    "wikitext103": "WikiText-103",
    "wikitext2": "WikiText-2",
    "wikitext103_bloom": "WikiText-103",
}
TIMES = {
    "nominal": "simulated, times of data sheets",
    "published": "simulated, times that papers print",
    "recorded": "simulated, times measured here",
}
"""Calibrations in words."""


def scheme_name(scheme: str) -> str:
    """Return what the paper calls a scheme; its name here where the paper does not have it."""
    return {**SCHEMES, **OTHERS}.get(scheme, scheme)


def panel_order(cell: Cell) -> int:
    """Return where a model's panel stands in the paper."""
    return list(MODELS).index(cell.case.model) if cell.case.model in MODELS else len(MODELS)


def panel_title(cell: Cell, letters: str) -> str:
    """Return "(c) BERT-large on SQuAD"; `letters` are the models of the paper's panels, in order, parted by spaces."""
    model, dataset = cell.case.model, cell.case.dataset
    words = letters.split()
    letter = f"({'abcdefgh'[words.index(model)]}) " if model in words else ""
    return f"{letter}{MODELS.get(model, model)} on {DATASETS.get(dataset, dataset)}"


COLUMNS: Mapping[str, Callable[[Cell, str], Any]] = {
    "model": lambda cell, _: cell.case.model,
    "dataset": lambda cell, _: cell.case.dataset,
    "cluster": lambda cell, _: str(cell.case.cluster),
    "world_size": lambda cell, _: cell.case.world_size,
    "batch_size": lambda cell, _: cell.case.batch_size,
    "origin": lambda cell, _: cell.how,
    "hardware": lambda cell, scheme: cell.rows[scheme].origin.hardware,
    "scheme": lambda _, scheme: scheme,
    "compressor": lambda cell, scheme: cell.rows[scheme].case.compressor or "",
    "density": lambda cell, scheme: cell.rows[scheme].case.density,
    "sent": lambda cell, scheme: cell.sent(scheme),
    "samples_per_s": lambda cell, scheme: cell.value(scheme, SPEED) if cell.fits(scheme) else None,
    "ideal_samples_per_s": lambda cell, _: cell.ideal(SPEED),
    "fits": lambda cell, scheme: "yes" if cell.fits(scheme) else "no",
    "extrapolated": lambda cell, scheme: "yes" if cell.extrapolated(scheme) else "no",
    "run": lambda cell, scheme: cell.rows[scheme].run_id,
}
"""Columns of tables by name, of a scheme in a cell."""


def columns(cell: Cell, scheme: str, names: str) -> dict[str, Any]:
    """Return columns by their names, parted by spaces."""
    return {name: COLUMNS[name](cell, scheme) for name in names.split()}
