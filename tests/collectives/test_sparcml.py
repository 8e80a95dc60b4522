"""SparCML: its golden cases stream by stream, streams on their own, traffic against the plan, other transports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch
from collectives import golden, work_reducers
from collectives.test_reducers import agree, gradients
from collectives.work_reducers import Step
from plan.instances import affine_costs, instance_a
from runtime import work as runtime_work
from runtime.pool import Pools
from runtime.ranks import Ranks

from ssfx.collectives import Load, Traffic, collectives
from ssfx.collectives.comm import Comm, Pending
from ssfx.collectives.sparcml import Stream
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.errors import ConfigError
from ssfx.schemes.make_plan import make_plan


def cases(scheme: str) -> list[Any]:
    """Return the golden cases of a scheme; those of more ranks than the small pool has are slow."""
    ids = golden.of_scheme(scheme)
    return [pytest.param(i, marks=pytest.mark.slow if golden.CASES[i]["params"]["P"] > 3 else []) for i in ids]


@pytest.mark.parametrize("name", cases("sparcml_recursive_doubling"))
def test_golden_recursive_doubling(pool: Pools, name: str) -> None:
    params, expected = golden.CASES[name]["params"], golden.CASES[name]["expected"]
    world = params["P"]
    core = 1 << (world.bit_length() - 1)
    folded = 2 * (world - core)
    acc = golden.CASES[name]["inputs"]["acc"]
    results = pool.run(watched, world, "sparcml_rd", acc, params["k"])
    for rank, (step, seen, selected) in enumerate(results):
        assert selected == expected["selected"][rank]
        assert step.total.tolist() == expected["sum"]
        assert ("dense" if step.indices is None else "sparse") == expected["final_format"]
        assert step.counted.sent_bytes == expected["bytes_sent_per_rank"][rank]
        assert step.counted.messages == expected["messages_sent_per_rank"][rank]
        # A folded rank adds nothing; one that was never folded has not added anything before the doubling.
        adds = [entry["formats"][rank] for entry in expected["log"]]
        if rank < folded and rank % 2 == 0:
            adds = []
        elif folded and rank >= folded:
            adds = adds[1:]
        assert seen.sums == adds


@pytest.mark.parametrize("world", [1, 2, 3, *(pytest.param(p, marks=pytest.mark.slow) for p in (4, 5, 6))])
def test_the_sum_is_exact_and_nothing_else_is_kept(ranks: Ranks, world: int) -> None:
    for numel in (1, 2, 5, 12, 1000):
        for kept in sorted({1, max(1, numel // 10), max(1, numel // 2), numel}):
            grads = gradients(world, numel, 1, seed=numel + kept)
            rows = [steps[0] for steps in ranks.run(work_reducers.steps, world, "sparcml_rd", grads, kept)]
            put_in = torch.tensor(grads[0]).sum(0) - torch.stack([row.residual for row in rows]).sum(0)
            assert torch.equal(rows[0].total, put_in), (numel, kept)
            agree(tuple(rows))


@pytest.mark.parametrize("world", [2, 3, *(pytest.param(p, marks=pytest.mark.slow) for p in (4, 5, 6))])
def test_counts_that_travel_apart_change_messages_only(pool: Pools, world: int) -> None:
    grads = gradients(world, 300, 2, seed=5)
    grads[1][world - 1][3] = float("nan")
    whole = pool.run(work_reducers.steps, world, "sparcml_rd", grads, 20)
    apart = pool.run(counts_first, world, "sparcml_rd", grads, 20)
    for one, (two, too_long) in zip(whole, apart, strict=True):
        assert too_long == 0
        assert torch.equal(one[0].total, two[0].total)
        assert bool(torch.isnan(two[1].total).any())
        for ours, theirs in zip(one, two, strict=True):
            assert theirs.counted == theirs.described
            assert theirs.counted.sent_bytes == ours.counted.sent_bytes
        assert two[0].counted.messages > one[0].counted.messages


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_plan_is_what_selections_without_overlap_send(ranks: Ranks, world: int) -> None:
    for step in apart(ranks, world):
        assert step.counted == collectives.build("sparcml_rd").traffic(Load(400, 160, 20, world))


@pytest.mark.parametrize("world", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_the_plan_of_any_number_of_ranks_is_that_of_the_busiest(ranks: Ranks, world: int) -> None:
    counted = [step.counted for step in apart(ranks, world)]
    assert max(counted, key=lambda used: used.sent_bytes) == collectives.build("sparcml_rd").traffic(
        Load(400, 160, 20, world)
    )


def apart(ranks: Ranks, world: int) -> list[work_reducers.Step]:
    """Return one step in which every rank selects 20 of 400 elements, evenly spread and no two ranks the same."""
    acc = [[float(i % 20 == rank) for i in range(400)] for rank in range(world)]
    return [step for (step,) in ranks.run(work_reducers.steps, world, "sparcml_rd", [acc], 20)]


def test_the_plan_of_folded_ranks_is_the_longest_chain() -> None:
    def used(world: int) -> Traffic:
        return collectives.build("sparcml_rd").traffic(Load(10_000, 800, 100, world))

    assert used(1) == Traffic(0, 0)
    assert used(5).messages == used(4).messages + 1
    phases = collectives.build("sparcml_rd").phases(Load(10_000, 800, 100, 5))
    assert sum(phase.times for phase in phases if phase.primitive == "send") == used(5).messages + 1
    assert any(phase.primitive == "decode" for phase in phases)  # what arrives is added up
    assert used(5).sent_bytes > used(4).sent_bytes
    assert used(64).sent_bytes < 7 * (4 + 4 * 10_000)  # a stream is never longer than the vector


def entries(size: int, where: list[int]) -> Stream:
    return Stream.of(size, torch.tensor(where, dtype=torch.int64), torch.tensor([float(i + 1) for i in where]))


def test_streams_turn_dense_by_the_sum_of_their_lengths() -> None:
    a, b = entries(12, [3, 11]), entries(12, [3, 7])
    assert a.plus(b).indices.tolist() == [3, 7, 11]
    assert a.plus(b).values.tolist() == [8.0, 8.0, 12.0]
    both = a.plus(entries(12, [0, 1, 3, 11]))  # a union of four, but six entries in all
    assert both.indices is None
    assert both.plus(entries(12, [0])).indices is None  # once dense, always dense
    assert entries(12, [0, 1, 2, 3, 4, 5]).indices is None
    assert entries(12, [0, 1, 2, 3, 4]).indices is not None


def test_an_index_keeps_its_place_when_values_cancel() -> None:
    one, other = entries(12, [3]), Stream.of(12, torch.tensor([3]), torch.tensor([-4.0]))
    assert one.plus(other).indices.tolist() == [3]
    assert one.plus(other).values.tolist() == [0.0]


@pytest.mark.parametrize("where", [[], [2], [0, 5, 9], list(range(12))])
def test_streams_survive_messages(where: list[int]) -> None:
    stream = entries(12, where)
    message = torch.cat([stream.message(), torch.full((20,), 9, dtype=torch.int32)])  # more room than needed
    assert stream.nbytes == 4 * stream.message().numel()
    assert torch.equal(Stream.read(message, 12).dense(), stream.dense())


def test_large_indices_are_exact() -> None:
    size = 2**25
    stream = Stream.of(size, torch.tensor([16_777_217, 16_777_219]), torch.tensor([1.0, 2.0]))
    assert Stream.read(stream.message(), size).indices.tolist() == [16_777_217, 16_777_219]


def test_bad_streams_are_a_header_and_spoil_every_sum() -> None:
    bad = Stream.poisoned(12, torch.device("cpu"))
    assert bad.nbytes == 4 * bad.message().numel() == 4
    assert Stream.read(bad.message(), 12).bad
    assert entries(12, [1]).plus(bad).bad
    assert bad.plus(entries(12, list(range(12)))).bad


def test_training_is_that_of_gathered_top_k(ranks: Ranks) -> None:
    gathered = {"scheme": "topk", "density": 0.02}
    summed = {"scheme": "sparcml", "density": 0.02}
    for expected in ranks.run(runtime_work.rank_without_gradients, 2, gathered)[:1]:
        for weights in ranks.run(runtime_work.rank_without_gradients, 2, summed):
            assert all(torch.equal(weights[name], value) for name, value in expected.items())


def test_the_scheme_takes_what_sends_pairs() -> None:
    plan = make_plan("sparcml", instance_a(), affine_costs(8), {"density": 0.001})
    assert [lane.collective for _, lane in plan.lanes()] == ["sparcml_rd"]
    with pytest.raises(ConfigError, match="scheme=sparcml with compressor=powersgd: it takes chunk_topm or dgc"):
        make_plan("sparcml", instance_a(), affine_costs(8), {"compressor": "powersgd"})
    with pytest.raises(ConfigError, match="sparcml_rd sends float32 values"):
        make_plan("sparcml", instance_a(), affine_costs(8), {"compressor": "topk(value_dtype=float16)"})


def test_a_sum_that_would_fill_the_vector_is_planned_dense() -> None:
    plan = make_plan("sparcml", instance_a(), affine_costs(512), {"density": 0.05})
    assert {lane.collective for _, lane in plan.lanes()} == {"all_reduce"}
    assert plan.notes[0][1].startswith("t0 to t11: sparcml_rd would send")


# ---- on each rank ---------------------------------------------------------------------------------------------------


UNTOUCHED = -123_456_789


@dataclass
class Seen:
    """On one rank: each sum it made, in words."""

    sums: list[str] = field(default_factory=list)


def form(stream: Stream) -> str:
    return "dense" if stream.indices is None else f"sparse:{len(stream.indices)}"


def watched(
    group: Any, rank: int, world: int, name: str, acc: list[list[float]], kept: int
) -> tuple[Step, Seen, list[int]]:
    """Run one step; besides, return what the rank had selected."""
    seen = Seen()
    plus = Stream.plus

    def seen_plus(self: Stream, other: Stream) -> Stream:
        total = plus(self, other)
        seen.sums.append(form(total))
        return total

    with patch.object(Stream, "plus", seen_plus):
        (step,) = work_reducers.steps(group, rank, world, name, [acc], kept)
    selected = (torch.tensor(acc[rank]) != step.residual).nonzero().view(-1).tolist()
    return step, seen, selected


def counts_first(
    group: Any, rank: int, world: int, name: str, grads: list[list[list[float]]], kept: int
) -> tuple[list[Step], int]:
    """Run as on a transport that must know lengths: no message may be shorter than the room for it."""
    swap, too_long = Comm.swap, 0

    def exact(self: Comm, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending:
        nonlocal too_long
        copies = {peer: torch.full_like(room, UNTOUCHED) for peer, room in receives.items()}
        pending = swap(self, sends, copies)
        pending.wait()
        for peer, room in receives.items():
            if room.dtype == torch.int32:
                too_long += int((copies[peer] == UNTOUCHED).sum())
            room.copy_(copies[peer])
        return Pending(None, torch.empty(0))

    with patch.object(TorchComm, "takes_shorter", new=False), patch.object(Comm, "swap", exact):
        return work_reducers.steps(group, rank, world, name, grads, kept), too_long
