"""Tensors of which nothing is sent, with gradients that tests choose, on two real ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.pool import Pool
from workloads import work_missing as work

pytestmark = pytest.mark.slow

MODELS = st.lists(st.tuples(st.integers(1, 400), st.sampled_from([1e-6, 1e-3, 1.0, 1e3])), min_size=1, max_size=12)
ALONE: list[dict[str, Any]] = [
    {"scheme": "per_tensor"},
    {"scheme": "per_tensor", "grouping": "none"},
    {"scheme": "fused_all", "fusion_degree": 0},
]
DENSITIES = st.sampled_from([0.001, 0.01, 0.1, 0.5])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.close()


@settings(deadline=None, max_examples=30)
@given(
    tensors=MODELS,
    density=DENSITIES,
    compressor=st.sampled_from(["topk", "dgc"]),
    memory=st.sampled_from(["residual", "none"]),
    scheme=st.sampled_from(ALONE),
)
def test_no_tensor_is_ever_missing_when_each_is_compressed_on_its_own(
    pair: Pool,
    tensors: list[tuple[int, float]],
    density: float,
    compressor: str,
    memory: str,
    scheme: dict[str, Any],
) -> None:
    options = {**scheme, "density": density, "compressor": compressor, "memory": memory}
    for seen in pair.run(work.missing, 2, tensors, 3, options):
        assert seen.rates == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scheme", ["ssfusion_naive", "ssfusion_o", "ssfusion_i", "ssfusion_oi"])
def test_no_tensor_is_missing_from_a_selective_scheme(pair: Pool, scheme: str) -> None:
    tensors = [(300_000, 1e-6), (10, 1e3), (200_000, 1.0), (64, 1e-6), (300_000, 1e3), (1, 1e-6), (400_000, 1e-3)]
    options = {"scheme": scheme, "density": 0.01, "compressor": "dgc", "profile_iters": 2, "rule": "paper"}
    for seen in pair.run(work.missing, 2, tensors, 6, options):
        assert seen.rates == [0.0] * 6
        assert seen.density < 0.9  # it did leave elements out


@settings(deadline=None, max_examples=30)
@given(tensors=MODELS, density=DENSITIES, degree=st.sampled_from([20, 40, 60, 80, 100]))
def test_joint_selection_misses_what_a_sort_by_hand_misses(
    pair: Pool, tensors: list[tuple[int, float]], density: float, degree: int
) -> None:
    options = {
        "scheme": "fused_all", "fusion_degree": degree, "density": density, "compressor": "topk", "memory": "none",
    }  # fmt: skip
    for seen in pair.run(work.missing, 2, tensors, 2, options):
        assert seen.together == math.ceil(degree * len(tensors) / 100)
        assert seen.rates == pytest.approx(seen.by_hand)


def test_a_large_tensor_silences_small_ones_of_the_same_call(pair: Pool) -> None:
    tensors = [(100, 1e3), *[(100, 1e-3)] * 9]
    options = {"scheme": "fused_all", "density": 0.1, "compressor": "topk", "memory": "none"}
    for seen in pair.run(work.missing, 2, tensors, 1, options):
        assert (seen.rates, seen.together) == ([0.9], 10)
