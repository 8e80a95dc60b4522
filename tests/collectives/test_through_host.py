"""Messages between two ranks whose tensors the host cannot read: gloo gets copies, and sums are the same."""

import random
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from collectives import work_hierarchical, work_reducers, work_through_host
from runtime.pool import Pool

from ssfx.collectives import torch_comm
from ssfx.collectives.torch_comm import _through_host


def rows(world: int, numel: int) -> list[list[float]]:
    rng = random.Random(world)
    return [[rng.choice([-1, 1]) * rng.randint(1, 40) / 4 for _ in range(numel)] for _ in range(world)]


@pytest.mark.parametrize("spec", ["gtopk", "ok_topk", "spar_reduce_scatter", "sparcml_rd"])
def test_what_reducers_leave_is_the_same_through_the_host(pool: Pool, spec: str) -> None:
    grads = [rows(3, 40), rows(3, 40)]
    plain, copied = (pool.run(work.steps, 3, spec, grads, 5) for work in (work_reducers, work_through_host))
    for mine, theirs in zip(plain, copied, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one.total, other.total)
            assert torch.equal(one.residual, other.residual)
            assert one.counted == other.counted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_over_nodes_are_the_same_through_the_host(pool: Pool, dtype: str) -> None:
    data, spec = rows(2, 257), "hierarchical_all_reduce(ranks_per_node=2)"
    plain, copied = (pool.run(work.summed, 2, spec, data, dtype) for work in (work_hierarchical, work_through_host))
    for (total, sent), (other, also) in zip(plain, copied, strict=True):
        assert torch.equal(total, other)
        assert sent == also


def test_gloo_fills_a_copy_and_what_arrived_is_there_after_the_wait(pool: Pool) -> None:
    for rank, (before, after, itself) in enumerate(pool.run(work_through_host.one_swap, 2)):
        assert not itself
        assert before.tolist() == [-1.0] * 5
        assert after.tolist() == [float(1 - rank)] * 5


@pytest.mark.parametrize(
    ("device", "backends", "through"),
    [
        ("cuda", "cuda:gloo,cpu:gloo", True),
        ("cuda", "cuda:nccl,cpu:gloo", False),
        ("cuda", "cuda:nccl", False),
        ("cpu", "cuda:gloo,cpu:gloo", False),
        ("cpu", "cpu:gloo", False),
    ],
)
def test_only_messages_of_a_gpu_over_gloo_go_through_the_host(monkeypatch, device, backends, through) -> None:
    monkeypatch.setattr("torch.distributed.get_backend_config", lambda group: backends)
    assert _through_host(torch.device(device), None) == through


def test_a_group_of_its_own_waits_as_long_as_the_script_said(tmp_path: Path) -> None:
    """Torch gives a new group half an hour, whatever `init_process_group` was given."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(hours=3))
    try:
        own = torch_comm._own_group(torch.device("cpu")).group
        assert own._get_backend(torch.device("cpu")).options._timeout == timedelta(hours=3)
    finally:
        torch_comm._made.clear()
        dist.destroy_process_group()
