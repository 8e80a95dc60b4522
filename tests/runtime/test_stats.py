"""The statistics of a step against cases worked out by hand."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runtime.cases import Options, name, of_scheme
from runtime.ranks import Ranks, among, each_rank
from runtime.work import STEPS, attached, train
from torch import nn

import ssfx
from ssfx.collectives.hierarchical import node_size
from ssfx.collectives.primitives import Traffic, split_sizes, to_peers, traffic
from ssfx.core.intervals import union_s
from ssfx.runtime.message_kinds import DenseMessage, ReducedMessage
from ssfx.runtime.packed_message import PackedMessage
from ssfx.runtime.stats import Stopwatch, Tracer
from ssfx.schemes import schemes
from ssfx.simulator.pricing.message_sizes import plan_bytes


class Uneven(nn.Module):
    """Three vectors whose gradients are constants: large, small and zero."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.zeros(20))
        self.empty = nn.Parameter(torch.zeros(0))
        self.large = nn.Parameter(torch.zeros(20))
        self.unused = nn.Parameter(torch.zeros(20))

    def forward(self, rank: int) -> torch.Tensor:
        large = self.large if rank == 0 else 0 * self.large
        return (100 * large + self.small).sum() + self.empty.sum()


def missing_of(group: Any, rank: int, world: int, options: Options) -> tuple[float, float | None, int]:
    """Return achieved density, tensor-missing rate and the number of tensors of the second step of `Uneven`."""
    model = Uneven()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, **among(group), **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(rank).backward()
        if sync.step == 1:
            sync.store.scale(0.0)  # so that only this step's gradient counts
        optimizer.step()
    result = (sync.last.achieved_density, sync.last.tensor_missing_rate, len(sync.plan.tensors))
    sync.detach()
    return result


def _described(message: Any, rank: int, world: int) -> Traffic:
    """Return what a message's collective says that this rank sent in the latest step."""
    if isinstance(message, ReducedMessage):
        return message._reduced.traffic
    if isinstance(message, PackedMessage) and not message.collective.additive_only:
        sizes = [message.nbytes]
        if message.collective.variable:
            sizes = [8, message.pending.result.shape[1]]
        elif message.collective.name == "all_gather_twice":
            sizes = [message.nbytes // 2, message.nbytes - message.nbytes // 2]
        return sum((traffic("all_gather", size, world, rank) for size in sizes), start=Traffic(0, 0))
    data = message.flat if isinstance(message, DenseMessage) else message.pending.result
    numel, item_bytes = data.numel(), data.element_size()
    match message.collective.name:
        case "block_all_reduce":  # dense gradients: every block is in the union
            return message.collective.sent(numel, item_bytes, numel, world, rank)
        case "row_sparse":
            rows = range(numel // message.collective.options.width)
            return message.collective.sent([rows] * world, numel, item_bytes, rank)
        case "hierarchical_all_reduce":
            # All parts but the own one of every phase, then the own ones to each of the others.
            nbytes = numel * item_bytes
            size = node_size(message.collective.options.ranks_per_node, world)
            node, local = divmod(rank, size)
            shards = [item_bytes * part for part in split_sizes(nbytes // item_bytes, size)]
            pieces = [item_bytes * part for part in split_sizes(shards[local] // item_bytes, world // size)]
            used = to_peers(shards, local) + to_peers(pieces, node)
            used += to_peers([pieces[node]] * len(pieces), node)
            return used + to_peers([shards[local]] * len(shards), local)
    used = traffic("all_reduce", numel * item_bytes, world, rank, item_bytes)
    first = message.layout.first.length if isinstance(message, PackedMessage) else 0  # what ranks agree on beforehand
    return used + traffic("all_reduce", 4 * first, world, rank, 4) if first else used


def ratios(group: Any, rank: int, world: int, options: Options) -> tuple[list[float], list[float]]:
    """Return the density ratios of the first step of `Uneven`, read at once and after the buffers are gone."""
    model = Uneven()
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), **among(group), **options)
    model(rank).backward()
    before = sorted(sync.last.density_ratios)
    sync.last.freeze()
    sync.detach()
    return before, sorted(sync.last.density_ratios)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(1.0, 3.0), (5.0, 6.0)], 3.0),
        ([(1.0, 3.0), (2.0, 6.0)], 5.0),
        ([(1.0, 9.0), (2.0, 3.0), (8.0, 10.0)], 9.0),
        ([(5.0, 6.0), (1.0, 5.0)], 5.0),
        ([(1.0, 3.0), (2.0, 0.0)], 2.0),  # one that never ended
        ([(4.0, 4.0)], 0.0),
    ],
)
def test_union_of_spans(spans: list[tuple[float, float]], seconds: float) -> None:
    assert union_s(spans) == seconds


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_union_counts_every_covered_second_once(spans: list[tuple[int, int]]) -> None:
    covered = {second for start, end in spans for second in range(start, end)}
    assert union_s(spans) == len(covered)


def test_a_stopwatch_adds_up_by_stage_and_starts_again() -> None:
    watch = Stopwatch(torch.device("cpu"), Tracer(False, 0))
    with watch.time("compress"):
        pass
    once = watch.seconds("compress")
    with watch.time("compress"), watch.time("wait"):
        pass
    assert 0 < once < watch.seconds("compress")
    assert watch.seconds("wait") <= watch.seconds("compress")
    assert watch.seconds("decompress") == 0
    watch.reset()
    assert watch.seconds("compress") == 0


FUSED = {"scheme": "fused_all", "compressor": "topk", "density": 0.3}  # 18 of 60 elements


@pytest.mark.parametrize(
    ("options", "rates", "density"),
    [
        (FUSED, (2, 2), 18 / 60),  # rank 0 sends of `large` alone, rank 1 of `small` alone
        ({**FUSED, "density": 0.5}, (1, 1), 30 / 60),  # 20 of one tensor and 10 of the next
        ({**FUSED, "compressor": "dgc"}, (2, 2), 18 / 60),
        ({**FUSED, "scheme": "per_tensor"}, (0, 0), 18 / 60),
        ({**FUSED, "scheme": "per_tensor", "grouping": "none"}, (0, 0), 18 / 60),
        ({**FUSED, "density": 1.0}, (0, 0), 1.0),
        ({"scheme": "ddp"}, (0, 0), 1.0),
        ({"scheme": "ddp", "compressor": "fp16"}, (0, 0), 1.0),
    ],
    ids=["fused", "fused half", "fused dgc", "per tensor", "one message each", "all of it", "ddp", "fp16"],
)
def test_density_and_missing_tensors(
    ranks: Ranks, options: dict[str, Any], rates: tuple[int, int], density: float
) -> None:
    for (achieved, missing, tensors), expected in zip(ranks.run(missing_of, 2, options), rates, strict=True):
        assert tensors == 4
        assert achieved == pytest.approx(density)
        assert missing == expected / 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**FUSED, "compressor": "topk"}, [1.0]),
        ({**FUSED, "scheme": "per_tensor"}, [1.0, 1.0, 1.0]),
        ({**FUSED, "scheme": "per_tensor", "density": 0.03}, []),  # of 20 elements 0.6 are asked for
        ({**FUSED, "scheme": "per_tensor", "density": 0.13}, [2 / 2.6] * 3),
        ({**FUSED, "scheme": "per_tensor", "density": 0.13, "compressor": "dgc"}, [0.0, 3 / 2.6, 3 / 2.6]),
        ({**FUSED, "density": 1.0}, []),
        ({"scheme": "per_tensor", "compressor": "fp16"}, []),
        ({"scheme": "ddp"}, []),
    ],
    ids=["fused", "per tensor", "one element", "rounded down", "rounded up", "all of it", "every element", "ddp"],
)
def test_density_ratios_of_the_segments_that_send_a_fraction(
    ranks: Ranks, options: dict[str, Any], expected: list[float]
) -> None:
    at_once, later = ranks.run(ratios, 2, options)[0]
    assert at_once == later == pytest.approx(expected)


def cases() -> list[Options]:
    made = [of_scheme(scheme.name, 2) for scheme in schemes if not scheme.in_rounds]
    made += [
        {"scheme": scheme.name, "compressor": "fp16"} for scheme in schemes if scheme.dense and not scheme.in_rounds
    ]
    return made + [{"scheme": s, "compressor": "dgc", "density": 0.05} for s in ("per_tensor", "ssfusion_oi")]


@pytest.mark.parametrize("options", cases(), ids=name)
@pytest.mark.parametrize("world", [2, pytest.param(5, marks=pytest.mark.slow)])
@each_rank(by="ranks")
def test_bytes_and_messages_are_what_plan_and_collectives_say(group, rank, world, options):
    """Steps after which the plan changed are left out: planning sends messages of its own."""
    model, optimizer, sync = attached("mlp", group, world, options)
    seen = []
    for step in range(STEPS):
        plan, before = sync.plan, sync.comm.sent
        train(model, optimizer, rank, range(step, step + 1))
        planned = plan_bytes(plan)
        if sync.plan is plan:
            counted = Traffic(sync.comm.sent.messages - before.messages, sync.comm.sent.sent_bytes - before.sent_bytes)
            assert counted.sent_bytes == sync.last.sent_bytes
            described = sum(
                (_described(message, rank, world) for message in sync._exchange.messages), start=Traffic(0, 0)
            )
            seen.append((sync.last.contributed_bytes, planned, counted, described))
        summary = sync.stats()
        assert summary["contributed_bytes"] == planned
        assert 0 < summary["achieved_density"] <= 1
        assert summary["comm_s"] > 0
    sync.detach()
    for contributed, planned, counted, described in seen:
        assert contributed == planned
        assert counted == described
        assert counted.messages > 0
