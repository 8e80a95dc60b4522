"""Made-up long runs: quality that is chosen method by method, a little apart from seed to seed."""

from typing import Any
from zlib import crc32

from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

SETTINGS = {
    "vgg_small_cifar10": ("cifar10", 8, "top1"),
    "lstm_wikitext2_small": ("wikitext2_small", 4, "perplexity"),
    "resnet20_cifar10": ("cifar10", 8, "top1"),
    "gpt2_small_wikitext2": ("wikitext2_small", 4, "perplexity"),
    "bert_mini": ("generated_questions", 16, "f1"),
}
STEPS = (500, 1000, 1500, 2000)
NOISE = 0.01
"""Relative distance of two seeds; of half of the methods the first is the better one, so that no seed is lucky."""


def long_row(
    scheme: str,
    quality: float,
    seed: int = 0,
    *,
    model: str = "vgg_small_cifar10",
    steps: int = 2000,
    curve: dict[str, list[float | None]] | None = None,
    **case: Any,
) -> Row:
    """Return a row of experiment=long_quality that ends at `quality`, whose curve rises or falls to it."""
    dataset, batch_size, metric = SETTINGS[model]
    given = {
        "experiment": "long_quality",
        "cluster": "local",
        "world_size": 4,
        "evaluate": True,
        "optimizer": model_work(model).optimizer,
        **case,
    }
    what = Case(
        model=model, dataset=dataset, scheme=scheme, batch_size=batch_size, seed=seed, repeat=seed, steps=steps, **given
    )
    side = 1 if crc32(f"{scheme} {case.get('density')}".encode()) % 2 else -1
    final = quality * (1 + side * NOISE * (seed - 0.5))
    start = 4 * final if metric == "perplexity" else final / 4
    way = [start + (final - start) * step / STEPS[-1] for step in STEPS]
    own: dict[str, list[float | None]] = {"step": [*map(float, STEPS)], metric: [*way], **(curve or {})}
    kind = "simulated" if what.virtual else "measured"
    origin = Origin(kind, "Invented CPU, 2 cores", "2026-01-01T00:03:00+00:00")
    manifest = {"started": "2026-01-01T00:00:00+00:00"}
    return Row(what.run_id, what, {metric: final, "tensor_missing_rate": 0.0}, origin, manifest, {}, {}, own)


def seeds(scheme: str, quality: float, count: int = 2, **given: Any) -> list[Row]:
    """Return `count` seeds of one method."""
    return [long_row(scheme, quality, seed, **given) for seed in range(count)]


def others(model: str = "vgg_small_cifar10", quality: float = 0.5, **given: Any) -> list[Row]:
    """Return rows of methods that no paper's figure shows, from which the noise of a seed is known."""
    return [
        row
        for density in (0.5, 0.4, 0.3, 0.2, 0.15, 0.1)
        for row in seeds(
            "per_tensor", quality, model=model, compressor="topk", density=density, memory="residual", **given
        )
    ]
