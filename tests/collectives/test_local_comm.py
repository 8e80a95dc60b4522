"""Virtual ranks: what every primitive leaves equals gloo's in every bit; a rank that fails ends all, in one line."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from collectives import work_local
from runtime.pool import Pool

from ssfx.collectives.comm import Comm
from ssfx.collectives.local_comm import World, ring_sum
from ssfx.core.errors import ConfigError, RunError


@pytest.mark.parametrize("world", [2, 3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_primitives_equal_gloo_in_every_bit(pool: Pool, world: int) -> None:
    real, virtual = pool.run(work_local.on_gloo, world), World(world).run(work_local.primitives)
    for rank, (one, other) in enumerate(zip(real, virtual, strict=True)):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert torch.equal(value, other[name]), (rank, name)


def test_the_order_of_a_sum_shows() -> None:
    parts = [work_local.data(rank, 5, 1000, torch.float32) for rank in range(5)]
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
