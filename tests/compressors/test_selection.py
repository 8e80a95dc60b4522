"""Exact top-k against a sort, on every path; thresholds and sampling."""

import pytest
import torch
from compressors.kit import shapes_of_data, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.sparse import at_least, top_k


def by_sorting(a: torch.Tensor, k: int) -> torch.Tensor:
    """Return the canonical answer: stable sort by descending magnitude, first k, ascending."""
    return a.abs().sort(descending=True, stable=True).indices[:k].sort().values


@given(a=vectors(), share=st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_top_k_is_exact_with_ties_to_the_lower_index(a: torch.Tensor, share: float) -> None:
    k = max(1, round(share * a.numel()))
    assert torch.equal(top_k(a, k), by_sorting(a, k))
    with plain_torch():
        assert torch.equal(top_k(a, k), by_sorting(a, k))


@pytest.mark.parametrize("numel", [1 << 17, (1 << 17) + 1, 200_003])
@pytest.mark.parametrize("density", [0.001, 0.01, 0.3])
def test_top_k_of_long_vectors(numel: int, density: float) -> None:
    k = int(density * numel)
    for name, a in shapes_of_data(numel).items():
        expected = by_sorting(a, k)
        assert torch.equal(top_k(a, k), expected), name
        with plain_torch():
            assert torch.equal(top_k(a, k), expected), name


def test_top_k_of_a_view_into_a_message() -> None:
    flat = torch.randn(50_001, generator=torch.Generator().manual_seed(0))
    assert torch.equal(top_k(flat[1:], 77), by_sorting(flat[1:], 77))


def test_at_least_never_selects_zeros() -> None:
    a = torch.tensor([0.0, -0.0, 1e-45, -2.0, 1.0])
    assert at_least(a, 0.0).tolist() == [2, 3, 4]
    assert at_least(a, 1.0).tolist() == [3, 4]
    assert at_least(a, 3.0).tolist() == []


def test_at_least_of_a_long_vector() -> None:
    a = torch.randn(150_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(at_least(a, 2.5), (a.abs() >= 2.5).nonzero().view(-1))
