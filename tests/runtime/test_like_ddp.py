"""Buffers, graphs of gradients, join, steps without a backward pass, dtypes of gradients: as with torch DDP."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime import work_like_ddp as work
from runtime.pool import Pool

SCHEMES: list[dict[str, Any]] = [
    {"scheme": "ddp"},
    {"scheme": "topk", "density": 1.0},
    {"scheme": "topk", "density": 0.3},
]


@pytest.mark.parametrize("broadcast", [True, False])
def test_running_statistics_are_those_of_ddp(pool: Pool, broadcast: bool) -> None:
    reports = pool.run(work.running_statistics, 2, broadcast)
    assert all(as_ddp for as_ddp, _ in reports)
    assert reports[1][1] == broadcast


@pytest.mark.parametrize("options", SCHEMES[:2], ids=["ddp", "topk"])
@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_graph_of_gradients_is_averaged_too(pool: Pool, options: dict[str, Any]) -> None:
    assert max(pool.run(work.graph_of_gradients, 2, options)) < 1e-6


@pytest.mark.parametrize(("initial", "moves"), [(True, [1.0, 1 / 3, 1 / 3]), (False, [1.0, 1.0, 1.0])])
def test_join_divides_by_all_ranks_or_by_those_that_train(pool: Pool, initial: bool, moves: list[float]) -> None:
    assert pool.run(work.divided_by_active, 3, initial)[0] == pytest.approx(moves)


def test_an_argument_that_join_does_not_have_is_named(pool: Pool) -> None:
    for text in pool.run(work.unknown_argument_of_join, 2):
        assert "average" in text
        assert "divide_by_initial_world_size" in text


@pytest.mark.parametrize("options", SCHEMES, ids=["ddp", "topk 1", "topk 0.3"])
def test_a_step_without_a_backward_pass_on_any_rank_moves_nothing(pool: Pool, options: dict[str, Any]) -> None:
    for still, agree, steps in pool.run(work.idle_steps, 2, options):
        assert still
        assert agree
        assert steps == 3


@pytest.mark.parametrize(
    ("case", "dtype", "error"),
    [
        pytest.param("grad_dtype", "torch.float32", 1e-6, marks=pytest.mark.skipif(
            not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no grad_dtype")),
        ("double", "torch.float64", 1e-15),
    ],
)  # fmt: skip
def test_gradients_are_averaged_in_their_own_dtype(pool: Pool, case: str, dtype: str, error: float) -> None:
    for found, off in pool.run(work.of_wider_gradients, 2, case):
        assert found == dtype
        assert off < error


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"scheme": "ddp"}, False),
        ({"scheme": "per_tensor", "compressor": "topk", "density": 1.0}, False),
        ({"scheme": "ddp_bf16"}, True),
        ({"scheme": "per_tensor", "compressor": "topk", "density": 0.1, "memory": "momentum"}, True),
        ({"scheme": "ddp_quantized", "compressor": "qsgd(bits=4,bucket=48,norm=max)"}, True),
        ({"scheme": "powersgd", "compressor": "powersgd(rank=4)"}, True),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_an_optimizer_that_orthogonalises_gets_the_same_averages(
    pool: Pool, options: dict[str, Any], differs: bool
) -> None:
    """Muon for matrices, AdamW for the rest: DDP's weights bit for bit where everything is sent."""
    for far, by_averages, alike in pool.run(work.orthogonalised, 2, options):
        assert (far > 0) == differs
        assert by_averages
        assert alike
