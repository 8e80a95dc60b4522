"""What torch reduces in is what is exchanged: by the policy, by the weights, or by gradients of several dtypes."""

from typing import Any

import pytest
import torch
from runtime.ranks import each_rank
from sharded import work
from sharded.conftest import Run
from sharded.models import build, loss_of, mesh_of
from torch.distributed.fsdp import MixedPrecisionPolicy

import ssfx

SUMS = {"shards": {"scheme": "topk", "density": 1.0, "memory": "residual"}}


@pytest.mark.parametrize("shape", [(2, 2), (0, 4)], ids=["replicas", "shards"])
@pytest.mark.parametrize("precision", ["bf16", "bf16 reduced", "bf16 unsaid"])
def test_16_bit_weights_and_sums_are_torch_bit_for_bit(ranks: Run, precision: str, shape: Any) -> None:
    for distance, equal, _ in ranks(work.beside_native, 4, shape, "", precision, {}):
        assert distance == 0
        assert equal


@pytest.mark.skipif(
    "param_dtype_override_fn" not in MixedPrecisionPolicy.__dataclass_fields__, reason="torch reduces several from 2.15"
)
@pytest.mark.parametrize(("shape", "options"), [((2, 2), SUMS), ((0, 4), {})])
@each_rank(4, by="ranks")
def test_gradients_of_several_dtypes_are_torch_bit_for_bit(group, rank, world, shape, options):
    model, twin = (build(mesh_of(*shape), "of two dtypes") for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    sync = ssfx.attach(model, optimizer, **options)
    for step in range(2):
        for one in (model, twin):
            one.zero_grad()
            loss_of(one, rank, step).backward()
        pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True)]
        assert {mine.dtype for mine, _ in pairs if mine is not None} == {torch.bfloat16, torch.float32}
        assert all(mine is theirs is None or torch.equal(mine.to_local(), theirs.to_local()) for mine, theirs in pairs)
        optimizer.step()
    sync.detach()
