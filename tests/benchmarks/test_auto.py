"""A sample of the points of benchmarks/auto.py: auto is behind no scheme of its budget, and well ahead of SSFusion."""

from statistics import median
from types import ModuleType

import pytest
from benchmarks.loading import benchmark_module

SEEDS = range(1000, 1040)
MODELS = ("vgg16", "vgg19", "lstm_650", "gnmt8", "gnmt16", "resnet18_cifar10")
"""Those of few tensors, which are planned fast."""
OTHERS = ("ddp", "ddp_fp16", "hierarchical", "wfbp", "acpsgd", "powersgd", "per_tensor", "ssfusion_oi")
JOINT = ("cltk", "micro", "spardl", "fused_all", "ddp_quantized fp8", "hipress qsgd(bits=4,bucket=48,norm=max)")


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return benchmark_module("auto")


@pytest.mark.nightly
def test_a_sample_of_points(benchmark: ModuleType) -> None:
    others, ahead = [], []
    for point in benchmark.points(SEEDS, MODELS):
        named = [name for name in (*OTHERS, *JOINT) if name in benchmark.OTHERS[point.budget]]
        found = benchmark.compared(point, named)
        others.append((found.over(*named), point))
        if point.budget != "quality=normal" and 5 <= point.gbps <= 100:
            ahead.append(1 / found.over("ssfusion_oi"))
    assert max(others, key=lambda one: one[0])[0] <= 1.02, max(others, key=lambda one: one[0])
    assert sum(round(ratio, 2) <= 1 for ratio, _ in others) >= 0.99 * len(others)
    assert len(ahead) >= 5
    assert median(ahead) >= 1.2


def test_points_are_the_same_everywhere(benchmark: ModuleType) -> None:
    first, *_ = benchmark.points([7])
    assert (first.model, first.cluster, first.nodes) == ("resnet50", "acpsgd_10gbe", 713)
    drawn = list(benchmark.points(range(300)))
    assert min(point.gbps for point in drawn) < 2
    assert max(point.gbps for point in drawn) > 200
    ranks = [point.target.cluster.world_size for point in drawn[:60]]
    assert min(ranks) < 16
    assert 1000 < max(ranks) <= 4096


@pytest.mark.parametrize(
    ("seed", "other"),
    [
        (396, "ssfusion_oi"),  # messages of all gradients together, of which some are compressed on the host
        (166, "cltk"),  # one selection over all gradients: a call and a message
        (76, "cltk"),
        (36, "ssfusion_oi"),
    ],
)
def test_a_plan_that_others_find_is_not_overlooked(benchmark: ModuleType, seed: int, other: str) -> None:
    (point,) = benchmark.points([seed])
    assert point.budget == "density 0.01"
    assert benchmark.compared(point, ("ddp_fp16", other)).over(other) <= 1
