"""The basic collectives on real groups against direct computation, their traffic, and the golden cases of the spec."""

from typing import Any

import pytest
import torch
from collectives import golden, work_hierarchical
from runtime.ranks import Ranks, comm_of

from ssfx.collectives import Load, Traffic, collectives
from ssfx.collectives.primitives import split_sizes, split_starts
from ssfx.compressors import Context, Payload, build
from ssfx.compressors.memories import memories

GOLDEN = golden.CASES
ROWS = [[1, 2, 3, 255], [5, 0, 7, 8], [9, 10, 11, 12]]
UNEQUAL = [[[1, 2, 3], [4], [5, 6, 7, 8, 9]], [[], [4, 5], [6]], [[1], [], []], [[], [], []]]


def planned(name: str, nbytes: int, world: int) -> Traffic:
    return collectives.build(name).traffic(Load.dense(nbytes, world))


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_all_reduce_leaves_the_sum_in_place(ranks: Ranks, world: int, dtype: str) -> None:
    data = [[1.0, -2.0, 0.5], [3.0, 4.0, 0.25], [-8.0, 16.0, 1.0]]
    expected = torch.tensor(data[:world], dtype=getattr(torch, dtype)).sum(0)
    for result in ranks.run(reduced, world, data, dtype):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("name", ["all_gather", "all_gather_v"])
def test_gathers_give_every_message_in_rank_order(ranks: Ranks, world: int, name: str) -> None:
    for result, _ in ranks.run(gathered, world, name, ROWS):
        assert result.dtype == torch.uint8
        assert result.tolist() == ROWS[:world]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("rows", UNEQUAL, ids=lambda rows: "-".join(str(len(row)) for row in rows))
def test_all_gather_v_pads_with_zeros_to_the_longest(ranks: Ranks, world: int, rows: list[list[int]]) -> None:
    longest = max(len(row) for row in rows[:world])
    expected = [row + [0] * (longest - len(row)) for row in rows[:world]]
    for result, contributed in ranks.run(gathered, world, "all_gather_v", rows):
        assert result.shape == (world, longest)
        assert result.tolist() == expected
        assert contributed == 8 + longest


@pytest.mark.parametrize("name", ["all_gather", "all_gather_v", "all_reduce"])
def test_without_a_group_a_collective_returns_the_own_message(name: str) -> None:
    if name == "all_reduce":
        assert reduced(None, 0, 1, [[1.0, 2.0]], "float32").tolist() == [1.0, 2.0]
    else:
        result, _ = gathered(None, 0, 1, name, [[1, 2, 3]])
        assert result.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("world", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("nbytes", [0, 8, 1000])
def test_traffic_follows_the_ring_formulas(world: int, nbytes: int) -> None:
    reduce, gather, gather_v = (planned(n, nbytes, world) for n in ("all_reduce", "all_gather", "all_gather_v"))
    assert reduce.messages == 2 * (world - 1)
    assert reduce.sent_bytes == pytest.approx(2 * nbytes * (world - 1) / world, abs=2)
    assert (gather.messages, gather.sent_bytes) == (world - 1, nbytes * (world - 1))
    assert (gather_v.messages, gather_v.sent_bytes) == (2 * (world - 1), (nbytes + 8) * (world - 1))


@pytest.mark.parametrize("name", ["dense_ring_P3", pytest.param("dense_ring_P4_uneven", marks=pytest.mark.slow)])
def test_golden_dense_ring(ranks: Ranks, name: str) -> None:
    case = GOLDEN[name]
    world, n = case["params"]["P"], case["params"]["n"]
    results = ranks.run(work_hierarchical.summed, world, "all_reduce", case["inputs"]["x"], "float32")
    for (total, sent), nbytes in zip(results, case["expected"]["bytes_sent_per_rank"], strict=True):
        assert total.tolist() == case["expected"]["sum"]
        assert sent == Traffic(len(case["expected"]["schedule"]), nbytes)
    assert split_sizes(n, world) == case["expected"]["chunk_sizes"]
    assert split_starts(n, world) == [*case["expected"]["chunk_starts"], n]
    assert planned("all_reduce", 4 * n, world) == results[0][1]


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith("sag")])
def test_golden_sparse_all_gather(ranks: Ranks, name: str) -> None:
    case = GOLDEN[name]
    params, expected = case["params"], case["expected"]
    variable = "k_per_rank" in params
    counts = params["k_per_rank"] if variable else [min(params["k"], params["n"])] * params["P"]
    collective = "all_gather_v" if variable else "all_gather"
    results = ranks.run(sparse_gather, params["P"], case["inputs"]["acc"], counts, collective)
    for rank, (total, residual, indices) in enumerate(results):
        assert total.tolist() == expected["sum"]
        assert residual.tolist() == expected["residual"][rank]
        assert indices == expected["selected"][rank]
    padded = 8 * max(counts)
    sent = planned("all_gather", padded, params["P"]).sent_bytes
    assert [sent] * params["P"] == expected["payload_bytes_sent_ring_padded"]
    if variable:  # the sizes come on top: 8 bytes to each peer
        extra = planned("all_gather_v", padded, params["P"]).sent_bytes - sent
        assert extra == 8 * (params["P"] - 1)


# ---- on each rank ---------------------------------------------------------------------------------------------------


def reduced(group: Any, rank: int, world: int, data: list[list[float]], dtype: str) -> torch.Tensor:
    """Return what all_reduce leaves in this rank's row of `data`."""
    message = torch.tensor(data[rank], dtype=getattr(torch, dtype))
    result = collectives.build("all_reduce").start(message, comm_of(group)).wait()
    assert result is message, "the sum is left in place"
    return result


def gathered(group: Any, rank: int, world: int, name: str, rows: list[list[int]]) -> tuple[torch.Tensor, int]:
    """Return the rows that the gather `name` gives for byte messages, and the bytes that this rank contributed."""
    comm = comm_of(group)
    result = collectives.build(name).start(torch.tensor(rows[rank], dtype=torch.uint8), comm).wait()
    return result, comm.contributed_bytes


def sparse_gather(
    group: Any, rank: int, world: int, acc: list[list[float]], counts: list[int], name: str
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Select with topk, keep the rest in a residual, gather; return (sum over ranks, residual, indices sent)."""
    topk, residual = build("topk"), memories.build("residual")
    ctx = Context(step=0, tensor_id=0, rank=rank, world_size=world, density=1.0)
    gradient = torch.tensor(acc[rank], dtype=torch.float32)
    old = {"residual": torch.zeros_like(gradient)}
    new = {"residual": torch.zeros_like(gradient)}
    residual.accumulate(gradient, old, new)
    n = counts[rank]
    message = torch.zeros(8 * n, dtype=torch.uint8)
    payload = _payload(message, n)
    if n:
        topk.compress(new["residual"], payload, ctx)
        residual.sent(topk, payload, new, ctx)
    total = torch.zeros_like(gradient)
    for row, count in zip(collectives.build(name).start(message, comm_of(group)).wait(), counts, strict=True):
        topk.decompress_add(_payload(row[: 8 * count].clone(), count), total, ctx)
    return total, new["residual"], payload.indices.tolist()


def _payload(message: torch.Tensor, n: int) -> Payload:
    none = torch.zeros(0)
    return Payload(
        none.int(), none, message[: 4 * n].view(torch.int32), message[4 * n :].view(torch.float32), none, none
    )
