"""PowerSGD, ACP-SGD and CLT-k on real groups: the golden cases of the collectives, step by step."""

from typing import Any

import pytest
import torch
from collectives import golden, work_blocks
from collectives.work_blocks import Update
from runtime.ranks import Ranks


def grads_of(case: dict[str, Any]) -> list[Any]:
    grads: list[Any] = torch.tensor(case["inputs"]["grad_per_step"]).tolist()  # some numbers are written as integers
    return grads


def compare(results: list[list[Update]], expected: list[dict[str, Any]]) -> None:
    """Every rank has the mean and its own residual of every step, to the precision of float32."""
    world = len(results)
    for rank, updates in enumerate(results):
        for update, want in zip(updates, expected, strict=True):
            mean, residual = (torch.tensor(want[key]) for key in ("approx_mean", "residual"))
            torch.testing.assert_close(update.total.view(mean.shape) / world, mean, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(update.residual.view(mean.shape), residual[rank], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", golden.of_scheme("power_sgd"))
def test_golden_powersgd(ranks: Ranks, name: str) -> None:
    case = golden.CASES[name]
    spec, state = f"powersgd(rank={case['params']['rank']},min_compression_rate=0)", {"q": case["inputs"]["Q0"]}
    results = ranks.run(work_blocks.compressed, 3, spec, "residual", grads_of(case), 1.0, state)
    compare(results, case["expected"]["loc"])


@pytest.mark.parametrize("name", golden.of_scheme("acp_sgd"))
def test_golden_acpsgd(ranks: Ranks, name: str) -> None:
    case = golden.CASES[name]
    spec = f"acpsgd(rank={case['params']['rank']},min_compression_rate=0)"
    state = {"p": case["inputs"]["P0"], "q": case["inputs"]["Q0"]}
    results = ranks.run(work_blocks.compressed, 3, spec, "residual", grads_of(case), 1.0, state)
    compare(results, case["expected"]["steps"])


@pytest.mark.parametrize("name", golden.of_scheme("clt_k"))
def test_golden_cltk(ranks: Ranks, name: str) -> None:
    case = golden.CASES[name]
    params = case["params"]
    density = params["k"] / params["n"]
    results = ranks.run(work_blocks.compressed, params["P"], "cltk", "residual", grads_of(case), density)
    for rank, updates in enumerate(results):
        for update, want in zip(updates, case["expected"]["steps"], strict=True):
            assert update.total.tolist() == want["sum"]
            assert update.total.nonzero().view(-1).tolist() == want["indices"]
            assert update.residual.tolist() == want["residual"][rank]
