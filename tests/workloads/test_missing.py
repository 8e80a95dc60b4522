"""Tensors of which nothing is sent, with gradients that tests choose, on two real ranks."""

import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.pool import Pool
from torch import nn

import ssfx

pytestmark = pytest.mark.slow

MODELS = st.lists(st.tuples(st.integers(1, 400), st.sampled_from([1e-6, 1e-3, 1.0, 1e3])), min_size=1, max_size=12)
ALONE: list[dict[str, Any]] = [
    {"scheme": "per_tensor"},
    {"scheme": "per_tensor", "grouping": "none"},
    {"scheme": "fused_all", "fusion_degree": 0},
]
DENSITIES = st.sampled_from([0.001, 0.01, 0.1, 0.5])


@settings(deadline=None, max_examples=30)
@given(
    tensors=MODELS,
    density=DENSITIES,
    compressor=st.sampled_from(["topk", "dgc"]),
    memory=st.sampled_from(["residual", "none"]),
    scheme=st.sampled_from(ALONE),
)
def test_no_tensor_is_ever_missing_when_each_is_compressed_on_its_own(
    pair: Pool, tensors: list[tuple[int, float]], density: float, compressor: str, memory: str, scheme: dict[str, Any]
) -> None:
    options = {**scheme, "density": density, "compressor": compressor, "memory": memory}
    for seen in pair.run(missing, 2, tensors, 3, options):
        assert seen.rates == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scheme", ["ssfusion_naive", "ssfusion_o", "ssfusion_i", "ssfusion_oi"])
def test_no_tensor_is_missing_from_a_selective_scheme(pair: Pool, scheme: str) -> None:
    tensors = [(300_000, 1e-6), (10, 1e3), (200_000, 1.0), (64, 1e-6), (300_000, 1e3), (1, 1e-6), (400_000, 1e-3)]
    options = {"scheme": scheme, "density": 0.01, "compressor": "dgc", "profile_iters": 2, "rule": "paper"}
    for seen in pair.run(missing, 2, tensors, 6, options):
        assert seen.rates == [0.0] * 6
        assert seen.density < 0.9  # it did leave elements out


@settings(deadline=None, max_examples=30)
@given(tensors=MODELS, density=DENSITIES, degree=st.sampled_from([20, 40, 60, 80, 100]))
def test_joint_selection_misses_what_a_sort_by_hand_misses(
    pair: Pool, tensors: list[tuple[int, float]], density: float, degree: int
) -> None:
    options = {
        "scheme": "fused_all",
        "fusion_degree": degree,
        "density": density,
        "compressor": "topk",
        "memory": "none",
    }
    for seen in pair.run(missing, 2, tensors, 2, options):
        assert seen.together == math.ceil(degree * len(tensors) / 100)
        assert seen.rates == pytest.approx(seen.by_hand)


def test_a_large_tensor_silences_small_ones_of_the_same_call(pair: Pool) -> None:
    tensors = [(100, 1e3), *[(100, 1e-3)] * 9]
    options = {"scheme": "fused_all", "density": 0.1, "compressor": "topk", "memory": "none"}
    for seen in pair.run(missing, 2, tensors, 1, options):
        assert (seen.rates, seen.together) == ([0.9], 10)


# ---- on each rank ---------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Missing rate of each step, the same counted by hand, tensors of the largest segment, density of the last step.

    By hand: the k largest magnitudes of what that segment holds without a memory, k = floor(density * elements).
    """

    rates: list[float | None]
    by_hand: list[float]
    together: int
    density: float


class Given(nn.Module):
    """Parameters whose gradients are given: vectors of normal numbers, each vector with a scale of its own."""

    def __init__(self, tensors: list[tuple[int, float]], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.vectors = nn.ParameterList(nn.Parameter(torch.zeros(numel)) for numel, _ in tensors)
        self.gradients = [scale * torch.randn(numel, generator=generator) for numel, scale in tensors]

    def forward(self) -> torch.Tensor:
        return torch.stack([(v * g).sum() for v, g in zip(self.vectors, self.gradients, strict=True)]).sum()


def missing(
    group: Any, rank: int, world: int, tensors: list[tuple[int, float]], steps: int, options: dict[str, Any]
) -> Seen:
    """Train `Given` and return what was seen."""
    model = Given(tensors, seed=rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, process_group=group, **options)
    rates, by_hand = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        model().backward()
        rates.append(sync.last.tensor_missing_rate)
        optimizer.step()
        segments = [segment.tensors for _, lane in sync.plan.lanes() for segment in lane.segments]
        joint = [model.gradients[int(name.split(".")[1])] for name in max(segments, key=len)]
        by_hand.append(_left_out(joint, options["density"]) / len(tensors))
    density = sync.last.achieved_density
    sync.detach()
    return Seen(rates, by_hand, len(joint), density)


def _left_out(gradients: list[torch.Tensor], density: float) -> int:
    together = torch.cat(gradients).abs()
    chosen = torch.zeros(len(together), dtype=torch.bool)
    chosen[together.topk(max(1, math.floor(density * len(together)))).indices] = True
    return sum(not bool(part.any()) for part in chosen.split([len(g) for g in gradients]))
