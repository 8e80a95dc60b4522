"""Muon: what becomes of a matrix's singular values, who is stepped by AdamW, and what a step is priced at."""

import pytest
import torch
from torch import nn
from workloads.fakes import make_case

from ssfx.core.errors import ConfigError
from ssfx.lab.workloads.checks import check_case
from ssfx.lab.workloads.step import Muon, make_optimizer, orthogonalised
from ssfx.perf_model.devices import device
from ssfx.perf_model.roofline import orthogonalising_flops, update_s

BETAS = (0.9, 0.999)


@pytest.mark.parametrize("shape", [(24, 24), (12, 40), (40, 12)])
def test_singular_values_come_close_to_one_and_directions_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    within = left.t() @ orthogonalised(matrix) @ right.t()
    assert 0.6 < within.diagonal().min() <= within.diagonal().max() < 1.3
    assert (within - torch.diag(within.diagonal())).abs().max() < 1e-4
    assert not orthogonalised(torch.zeros(shape)).any()


def test_what_is_no_hidden_matrix_is_stepped_as_by_adamw() -> None:
    models = [nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 7)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    case = make_case(optimizer="muon", lr=0.01, momentum=0.9, weight_decay=0.1)
    ours = make_optimizer(case, models[0])
    assert isinstance(ours, Muon)
    assert [len(group["params"]) for group in ours.param_groups if group["matrices"]] == [1]
    theirs = torch.optim.AdamW(models[1].parameters(), lr=0.01, betas=BETAS, weight_decay=0.1)
    for step in range(3):
        for model, optimizer in zip(models, (ours, theirs), strict=True):
            for number, p in enumerate(model.parameters()):
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + number))
            optimizer.step()
    for (name, p), q in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6) is (name != "1.weight")


def test_a_matrix_moves_by_its_rate_and_decays_apart_from_it() -> None:
    p = nn.Parameter(torch.ones(16, 16))
    optimizer = Muon([{"params": [p], "matrices": True}], lr=0.5, betas=BETAS, weight_decay=0.2)
    p.grad = torch.eye(16)
    optimizer.step()
    moved = (p.detach() - 0.9) / -0.5
    assert moved.square().mean().sqrt() == pytest.approx(0.2, rel=0.3)
    assert not (moved - torch.diag(moved.diagonal())).any()


def test_the_price_has_the_products_of_hidden_matrices() -> None:
    assert orthogonalising_flops([(8,), (4, 64), (2, 3)]) == 5 * (4 * 2 * 2 * 3 + 2 * 8)
    on, shapes = device("a100"), [(1024, 1024)]
    more = update_s("muon", 4 << 20, shapes, on) - update_s("sgd", 4 << 20, shapes, on)
    assert more == pytest.approx(5 * 6 * 1024**3 / (on.matmul_flops * on.matmul_efficiency))


def test_it_takes_whole_matrices() -> None:
    with pytest.raises(ConfigError, match="use adamw"):
        check_case(make_case(optimizer="muon", sharding="fsdp", shards=2, world_size=2))
