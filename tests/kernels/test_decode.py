"""Gathered pairs written straight into gradients equal zeroing, adding and copying, bit for bit."""

import pytest
import torch

from ssfx.compressors.kernels.cpu.decode import CHUNK, write_sums


def plainly(total: int, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(total)
    for row, added in zip(indices, values, strict=True):
        out.index_add_(0, row, added)
    return out


def rows(total: int, entries: int, ranks: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = [torch.randperm(total, generator=generator)[:entries].sort().values.int() for _ in range(ranks)]
    return torch.stack(found), torch.randn(ranks, entries, generator=generator)


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("sizes", [(7,), (1, 1, 1), (3 * CHUNK + 5, 2, CHUNK, 1), (0, 40, 0)])
def test_equals_the_plain_path(sizes: tuple[int, ...], ranks: int) -> None:
    total = sum(sizes)
    indices, values = rows(total, max(1, total // 3), ranks, seed=total + ranks)
    targets = [torch.full((n,), torch.nan) for n in sizes]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    write_sums(targets, starts, indices.numpy(), values.numpy())
    assert torch.equal(torch.cat(targets), plainly(total, indices, values))


def test_padding_adds_nothing() -> None:
    """A segment with room for more ends in pairs of its own first position and 0."""
    indices = torch.tensor([[1, 3, 0, 0, 5, 6, 4, 4], [0, 0, 0, 0, 4, 5, 6, 7]], dtype=torch.int32)
    values = torch.tensor([[1.0, 2, 0, 0, 3, 4, 0, 0], [9, 0, 0, 0, 1, 1, 1, 1]])
    targets = [torch.empty(4), torch.empty(4)]
    write_sums(targets, [0, 4], indices.numpy(), values.numpy())
    assert torch.cat(targets).tolist() == [9, 1, 0, 2, 1, 4, 5, 1]


def test_nothing_received_leaves_zeros() -> None:
    target = torch.ones(3)
    write_sums([target], [0], torch.empty(2, 0, dtype=torch.int32).numpy(), torch.empty(2, 0).numpy())
    assert not target.any()
