"""Virtual ranks: what every primitive leaves equals gloo's in every bit; a rank that fails ends all, in one line."""

import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from runtime.pool import Pool

from ssfx.collectives.comm import Comm
from ssfx.collectives.local_comm import World, ring_sum
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.errors import ConfigError, RunError


@pytest.mark.parametrize("world", [2, 3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_primitives_equal_gloo_in_every_bit(pool: Pool, world: int) -> None:
    real, virtual = pool.run(on_gloo, world), World(world).run(primitives)
    for rank, (one, other) in enumerate(zip(real, virtual, strict=True)):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert torch.equal(value, other[name]), (rank, name)


def test_the_order_of_a_sum_shows() -> None:
    parts = [data(rank, 5, 1000, torch.float32) for rank in range(5)]
    assert not torch.equal(ring_sum(parts), sum(parts[1:], parts[0]))


def test_each_rank_has_random_numbers_of_its_own_and_the_caller_his() -> None:
    def draw(comm: Comm) -> tuple[list[float], list[float]]:
        alike = numbers()
        torch.manual_seed(comm.rank)
        random.seed(comm.rank)
        np.random.seed(comm.rank)
        apart = []
        for _ in range(3):
            comm.all_reduce(torch.zeros(1)).wait()
            apart += numbers()
        return alike, apart

    def numbers() -> list[float]:
        return [float(torch.rand(1)), random.random(), float(np.random.rand())]

    torch.manual_seed(7)
    before = torch.get_rng_state()
    together = World(3).run(draw)
    assert torch.equal(torch.get_rng_state(), before)
    assert together[0][0] == together[1][0] == together[2][0]
    alone = World(1).run(draw)
    assert together[0][1] == alone[0][1]
    assert together[0][1] != together[1][1] != together[2][1]


def raises(comm: Comm) -> None:
    comm.all_reduce(torch.zeros(1)).wait()
    if comm.rank == 1:
        raise ValueError("no such thing")
    comm.all_reduce(torch.zeros(1)).wait()


def refuses(comm: Comm) -> None:
    if comm.rank == 2:
        raise ConfigError("not like this")
    comm.all_gather(torch.zeros(1)).wait()


def ends_early(comm: Comm) -> None:
    for _ in range(3 - comm.rank):
        comm.all_reduce(torch.zeros(1)).wait()


def waits_for_silence(comm: Comm) -> None:
    comm.swap({}, {(comm.rank + 1) % 3: torch.zeros(1)}).wait()


def differ(comm: Comm) -> None:
    comm.all_reduce(torch.zeros(2 + (comm.rank == 1))).wait()


def sends_too_much(comm: Comm) -> None:
    comm.swap({(comm.rank + 1) % 3: torch.zeros(4)}, {(comm.rank - 1) % 3: torch.zeros(3)}).wait()


def pauses_for_ever(comm: Comm) -> None:
    while comm.notes.read("never") is None:
        comm.notes.pause()


@pytest.mark.parametrize(
    ("work", "error", "says"),
    [
        (raises, RunError, "virtual rank 1 raised ValueError: no such thing"),
        (refuses, ConfigError, "virtual rank 2: not like this"),
        (ends_early, RunError, "virtual rank .: it waits for rank 2 in all_reduce.sum., which has ended; give all"),
        (waits_for_silence, RunError, "virtual rank .: it waits for rank . in a message, which waits for another"),
        (differ, RunError, "rank 0 issued all_reduce.sum. of 2 float32, and rank 1 all_reduce.sum. of 3 float32"),
        (sends_too_much, RunError, "rank . sent 16 bytes to rank ., which expects 12"),
        (pauses_for_ever, RunError, "virtual rank .: it waits for a note that no other rank writes"),
    ],
)
def test_one_line_names_the_rank_and_no_thread_is_left(work, error, says) -> None:
    before = threading.active_count()
    with pytest.raises(error, match=says) as caught:
        World(3).run(work)
    assert "\n" not in str(caught.value)
    assert threading.active_count() == before


# ---- on each rank ---------------------------------------------------------------------------------------------------


DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)
SIZES = (1, 2, 3, 7, 8, 100, 4097, 300_001)
"""The last is longer than what gloo sends at once."""


def on_gloo(group: Any, rank: int, world: int) -> dict[str, torch.Tensor]:
    return primitives(TorchComm(group))


def primitives(comm: Comm) -> dict[str, torch.Tensor]:
    """Return what each primitive leaves on this rank, and what was counted."""
    found: dict[str, torch.Tensor] = {}
    world, rank = comm.world_size, comm.rank
    for dtype in DTYPES:
        for numel in SIZES:
            own = data(rank, world, numel, dtype)
            name = f"{dtype} {numel}"
            found[f"sum {name}"] = comm.all_reduce(own.clone()).wait()
            found[f"part {name}"] = comm.reduce_scatter(own.repeat(world)).wait()
            if numel > 4097:
                continue
            if dtype != torch.bfloat16:  # gloo has no maximum of it
                found[f"max {name}"] = comm.all_reduce(own.clone(), op="max").wait()
            found[f"rows {name}"] = comm.all_gather(own).wait()
            found[f"from last {name}"] = comm.broadcast(own.clone(), world - 1).wait()
            found[f"to all {name}"] = comm.all_to_all(own.repeat(world, 1) + rank).wait()
            room = torch.zeros(numel + 3, dtype=dtype)
            comm.swap({(rank + 1) % world: own}, {(rank - 1) % world: room}).wait()
            found[f"neighbour {name}"] = room
    found["counted"] = torch.tensor([comm.calls, comm.contributed_bytes, comm.sent.messages, comm.sent.sent_bytes])
    return found


def data(rank: int, world: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of many magnitudes, whose sum depends on its order."""
    generator = torch.Generator().manual_seed(1000 * world + rank)
    numbers = torch.randn(numel, generator=generator, dtype=torch.float64)
    return (numbers * torch.exp(2 * torch.randn(numel, generator=generator, dtype=torch.float64))).to(dtype)
