"""quantized_all_reduce: the sum of all ranks but for two roundings, of which nothing is lost, and what it costs."""

import random
from typing import Any

import pytest
import torch
from collectives import work_reducers
from runtime import work
from runtime.pool import Pool
from runtime.ranks import Ranks

import ssfx
from ssfx.collectives import Load, Reducer, Reduction, collectives
from ssfx.collectives.comm import Comm
from ssfx.collectives.torch_comm import TorchComm
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec
from ssfx.schemes.make_plan import check_capabilities

ROTATED = "qsgd(bits=4,bucket=32,norm=max,rotate=32)"
SPECS = {
    "qsgd(norm=max)": 1 / 127,
    "qsgd(bits=4,bucket=32,norm=max)": 1 / 7,
    "qsgd(norm=max,nearest=True)": 0.5 / 127,
    "fp8": 2**-4,
    "onebit": 2.0,
    "onebit(bucket=24)": 2.0,
    ROTATED: 32 / 7,  # the root of 32 by which the largest of a block may grow, and by which an error may add up
}
"""Compressors, and the largest error of an element over the largest of its block."""


def gradients(world: int, numel: int, steps: int, seed: int) -> list[list[list[float]]]:
    rng = random.Random(seed)
    return [[[rng.gauss(0, 1) for _ in range(numel)] for _ in range(world)] for _ in range(steps)]


@pytest.mark.parametrize(("world", "size"), [(1, 1), (2, 1), (3, 1), (5, 1), (4, 2), (6, 3), (2, 2)])
@pytest.mark.parametrize("compressor", SPECS)
def test_every_rank_has_the_sum_within_two_roundings_and_keeps_the_rest(
    ranks: Ranks, compressor: str, world: int, size: int
) -> None:
    spec = f"quantized_all_reduce(ranks_per_node={size})"
    for numel in (1, 7, 64, 1500):  # fewer elements than ranks, fewer than a block, several blocks
        grads = gradients(world, numel, 3, seed=numel)
        reports = ranks.run(work_reducers.steps, world, spec, grads, numel, None, None, compressor)
        kept_back = torch.zeros(world, numel)
        for step, rows in enumerate(zip(*reports, strict=True)):
            brought = kept_back + torch.tensor(grads[step])
            kept_back = torch.stack([row.residual for row in rows])
            exact = brought.sum(0)
            rounding = SPECS[compressor] * (brought.abs().amax(1).sum() + 2 * exact.abs().max()) + 1e-6
            for row in rows:
                assert torch.equal(row.total, rows[0].total)
                assert row.counted == row.described
                assert row.sent == numel
                assert float((row.total - exact).abs().max()) <= float(rounding)
            torch.testing.assert_close(rows[0].total + kept_back.sum(0), exact, rtol=0, atol=1e-5)


def test_what_was_left_out_is_sent_later(ranks: Ranks) -> None:
    """With gradients that do not change, the error of the mean is what is kept back at the end, over the steps."""
    grads = [gradients(2, 40, 1, seed=3)[0]] * 100
    reports = ranks.run(work_reducers.steps, 2, "quantized_all_reduce", grads, 40)
    exact = torch.tensor(grads[0]).sum(0)
    totals = torch.stack([report.total for report in reports[0]])
    assert float((totals[0] - exact).abs().max()) > 1e-3
    assert float((totals.mean(0) - exact).abs().max()) < 1e-3


def test_between_nodes_a_rank_sends_its_share_of_what_a_node_does() -> None:
    load = Load(1 << 20, (1 << 20) + 8192, 1 << 20, 32)
    sent = {
        size: sum(
            phase.size * phase.times
            for phase in collectives.build(f"quantized_all_reduce(ranks_per_node={size})").phases(load)
            if phase.primitive == "send" and not phase.inside
        )
        for size in (4, 8)
    }
    assert sent[4] == pytest.approx(2 * load.nbytes / 4 * 7 / 8)
    assert sent[8] == pytest.approx(2 * load.nbytes / 8 * 3 / 4)


@pytest.mark.parametrize(("world", "size"), [(2, 1), (3, 1), (8, 1), (8, 4), (16, 1), (16, 8)])
@pytest.mark.parametrize("compressor", ["bf16", "fp16"])
def test_sixteen_bits_round_an_element_once_a_hop(compressor: str, world: int, size: int) -> None:
    """By at most half a unit in the last place of what travels: a gradient (of a node: an average), and the average."""
    spec = f"quantized_all_reduce(ranks_per_node={size})"
    for numel in (1, 1500):
        ranks = torch.stack([gradient(rank, numel) for rank in range(world)])
        exact = ranks.double()
        nodes = exact.view(world // size, size, numel).mean(1)
        averages = on_virtual_ranks(world, spec, compressor, numel)
        first = half_unit(nodes, compressor).mean(0)
        bound = first + half_unit(exact.mean(0).abs() + first, compressor)
        for average in averages:
            assert torch.equal(average, averages[0])
            assert bool(((average.double() - exact.mean(0)).abs() <= bound + 1e-6 * exact.abs().amax(0)).all())
    assert float((averages[0] - exact.mean(0)).abs().max()) > 0


@pytest.mark.parametrize("compressor", ["bf16", ROTATED, "onebit(bucket=24)"])
def test_sums_on_gloo_equal_those_of_virtual_ranks(pool: Pool, compressor: str) -> None:
    for world, size in ((2, 1), (3, 1), (4, 2)):
        spec = f"quantized_all_reduce(ranks_per_node={size})"
        real = pool.run(summed, world, spec, compressor, 1500)
        virtual = on_virtual_ranks(world, spec, compressor, 1500)
        assert all(torch.equal(a, b) for a, b in zip(real, virtual, strict=True))


def test_averages_of_large_gradients_fit_into_float16() -> None:
    """Sums of 16 ranks would not: the largest float16 is 65,504."""
    averages = on_virtual_ranks(16, "quantized_all_reduce", "fp16", 100, scale=1e4)
    assert bool(torch.isfinite(averages[0]).all())
    exact = torch.stack([gradient(rank, 100, 1e4) for rank in range(16)]).mean(0)
    torch.testing.assert_close(averages[0], exact, rtol=2**-9, atol=20)


def two_means(a: torch.Tensor, block: int) -> torch.Tensor:
    """Return every element as the mean of those of its block that have its sign, 0 being positive."""
    return torch.cat(
        [
            part.where(part < 0, 0).sum().double() / max(1, int((part < 0).sum())) * (part < 0)
            + part.where(part >= 0, 0).double().sum() / max(1, int((part >= 0).sum())) * (part >= 0)
            for part in a.split(block)
        ]
    ).float()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_one_bit_on_the_way_equals_its_formula(world: int) -> None:
    """Every rank sends signs of its part's blocks; owners sum in float32, send signs again; both keep the rest."""
    numel, block = 1000, 24
    given = [gradient(rank, numel) for rank in range(world)]
    sent = [torch.cat([two_means(part, block) for part in torch.tensor_split(one, world)]) for one in given]
    sums = torch.tensor_split(torch.stack(sent).sum(0), world)
    total = torch.cat([two_means(part, block) for part in sums])

    def exchange(_: object, comm: Comm) -> tuple[torch.Tensor, torch.Tensor]:
        reducer, vector = collectives.build("quantized_all_reduce"), given[comm.rank].clone()
        assert isinstance(reducer, Reducer)
        work = Reduction(vector, numel, compressor=build(f"onebit(bucket={block})"))
        return reducer.reduce(work, comm).values, vector

    results = ssfx.virtual_ranks(exchange, world)
    for rank, (got, kept) in enumerate(results):
        torch.testing.assert_close(got, total, rtol=1e-6, atol=1e-6)
        server = torch.zeros(numel)
        lo = sum(len(part) for part in sums[:rank])
        own = slice(lo, lo + len(sums[rank]))
        server[own] = sums[rank] - total[own]
        torch.testing.assert_close(kept, given[rank] - sent[rank] + server, rtol=1e-5, atol=1e-5)
    brought, left = torch.stack(given).sum(0), torch.stack([kept for _, kept in results]).sum(0)
    torch.testing.assert_close(results[0][0] + left, brought, rtol=0, atol=1e-4)


def test_bytes_do_not_grow_with_the_world() -> None:
    one, compressor = collectives.build("quantized_all_reduce"), build("qsgd(norm=max)")
    numel = 1 << 20
    nbytes = compressor.layout(numel, 1.0).nbytes
    gathered = [collectives.build("all_gather").traffic(Load(numel, nbytes, numel, world)) for world in (2, 8, 64)]
    summed = [one.traffic(Load(numel, nbytes, numel, world)) for world in (2, 8, 64)]
    assert [traffic.sent_bytes / nbytes for traffic in summed] == pytest.approx([1, 1.75, 2 - 2 / 64], rel=0.01)
    assert summed[0].sent_bytes == pytest.approx(gathered[0].sent_bytes, rel=0.01)
    assert summed[2].sent_bytes < 0.04 * gathered[2].sent_bytes


@pytest.mark.parametrize("memory", ["none", "residual"])
@pytest.mark.parametrize("compressor", ["qsgd(norm=max)", "fp8", "qsgd(norm=max,rotate=64)"])
def test_a_scheme_sends_what_is_planned_and_comes_close(ranks: Ranks, compressor: str, memory: str) -> None:
    options = {"scheme": "ddp_quantized", "compressor": compressor, "memory": memory}
    assert max(ranks.run(work.density_one_equals_ddp, 3, "mlp", options)) < 0.02
    for planned, reported, _ in ranks.run(work.bytes_on_the_wire, 3, options):
        assert planned == reported


@pytest.mark.parametrize("compressor", ["topk", "ef_signsgd"])
def test_what_it_cannot_send_is_refused(compressor: str) -> None:
    lane = Lane("quantized_all_reduce", (Segment(("a",), compressor),))
    plan = Plan("by_hand", 2, (TensorSpec("a", (8,)),), (Bucket((lane,)),), ((0, 0),))
    with pytest.raises(ConfigError, match="quantized_all_reduce takes qsgd or fp16 or bf16 or fp8 or onebit"):
        check_capabilities(plan)


# ---- on each rank ---------------------------------------------------------------------------------------------------


DIGITS = {"bf16": 8, "fp16": 11}
"""Binary digits, the leading one included."""
LEAST = {"bf16": -125, "fp16": -13}
"""Exponent below which numbers have fewer."""


def gradient(rank: int, numel: int, scale: float = 1.0) -> torch.Tensor:
    """Return a rank's gradient: magnitudes over many powers of two, none below what float16 holds in full."""
    drawn = torch.Generator().manual_seed(rank)
    sizes = 2 ** (6 * torch.rand(numel, generator=drawn) - 4)
    return scale * torch.randn(numel, generator=drawn).sign() * sizes


def half_unit(exact: torch.Tensor, compressor: str) -> torch.Tensor:
    """Return half a unit in the last place that each element has in 16 bits."""
    exponent = torch.frexp(exact).exponent.clamp(min=LEAST[compressor])
    return torch.ldexp(torch.ones_like(exact), exponent - DIGITS[compressor] - 1)


def averaged(comm: Comm, spec: str, compressor: str, numel: int, scale: float) -> torch.Tensor:
    reducer = collectives.build(spec)
    assert isinstance(reducer, Reducer)
    work = Reduction(gradient(comm.rank, numel, scale), numel, compressor=build(compressor), keeps=False)
    return reducer.reduce(work, comm).values / comm.world_size


def summed(group: Any, rank: int, world: int, spec: str, compressor: str, numel: int) -> torch.Tensor:
    return averaged(TorchComm(group), spec, compressor, numel, 1.0)


def on_virtual_ranks(world: int, spec: str, compressor: str, numel: int, *, scale: float = 1.0) -> list[torch.Tensor]:
    """Return the averages that so many virtual ranks get."""
    return ssfx.virtual_ranks(lambda _, comm: averaged(comm, spec, compressor, numel, scale), world)
