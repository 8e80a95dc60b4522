"""PowerSGD and ACP-SGD: golden cases, projections, warm start, dead factors, ranks that agree, wire sizes."""

import itertools
import random
from dataclasses import dataclass, field

import pytest
import torch
from compressors.kit import golden
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.instances import make_profile, random_costs

from ssfx.compressors import Compressor, Context, Payload, build
from ssfx.compressors.lowrank import LowRankOptions, basis, revived, split
from ssfx.core.errors import ConfigError
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.transport import keeps_fraction

torch.set_num_threads(1)
Shapes = tuple[tuple[int, ...], ...]


@dataclass
class Rank:
    """What one rank keeps of one segment."""

    residual: torch.Tensor
    state: dict[str, torch.Tensor]
    payload: Payload


@dataclass
class Run:
    """A compressor with error feedback on some ranks, as the runtime drives it."""

    compressor: Compressor
    shapes: Shapes
    world: int
    seed: int = 0
    step: int = 0
    ranks: list[Rank] = field(default_factory=list)

    def __post_init__(self) -> None:
        layout = self.compressor.layout_of(self.shapes, 1.0)
        numel = sum(torch.Size(shape).numel() for shape in self.shapes)
        for _ in range(self.world):
            state = {name: torch.zeros(shape) for name, shape in self.compressor.state_shapes(self.shapes).items()}
            self.ranks.append(Rank(torch.zeros(numel), state, Payload.allocate(layout)))

    def context(self, rank: int) -> Context:
        return Context(self.step, 3, rank, self.world, 1.0, self.seed, self.shapes, self.ranks[rank].state)

    def advance(self, grads: list[torch.Tensor]) -> torch.Tensor:
        """Do one step with a flat gradient per rank; return the update, which all ranks must agree on bit for bit."""
        inputs = [g + r.residual for g, r in zip(grads, self.ranks, strict=True)]
        if self.compressor.rounds == 2:
            for rank, a in enumerate(inputs):
                self.compressor.propose(a, self.ranks[rank].payload, self.context(rank))
            first = torch.stack([r.payload.first for r in self.ranks]).sum(0)
            for r in self.ranks:
                r.payload.first.copy_(first)
        for rank, a in enumerate(inputs):
            r = self.ranks[rank]
            before = a.clone()
            self.compressor.compress(a, r.payload, self.context(rank))
            assert torch.equal(a, before), "compress must leave its input unchanged"
            self.compressor.decompress_add(r.payload, a, self.context(rank), scale=-1.0)
            r.residual = a
        total = torch.stack([r.payload.values for r in self.ranks]).sum(0)
        updates = []
        for rank, r in enumerate(self.ranks):
            r.payload.values.copy_(total)
            self.compressor.received(r.payload, self.context(rank))
            out = torch.zeros_like(r.residual)
            self.compressor.decompress_add(r.payload, out, self.context(rank), scale=1 / self.world)
            updates.append(out)
        assert all(torch.equal(out, updates[0]) for out in updates)
        assert all(torch.equal(r.state[n], self.ranks[0].state[n]) for r in self.ranks for n in r.state)
        self.step += 1
        return updates[0]


def low_rank(rows: int, cols: int, rank: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, rank, generator=generator) @ torch.randn(rank, cols, generator=generator)


@pytest.mark.parametrize("name", ["powersgd_rank1", "acpsgd_rank1"])
def test_golden(name: str) -> None:
    inputs, params, expected = golden(name)
    grads = [torch.tensor(m) for m in inputs["M_per_worker_every_step"]]
    shape = tuple(grads[0].shape)
    spec = f"{name.partition('_')[0]}(rank={params['rank']},min_compression_rate=0)"
    run = Run(build(spec), (shape,), params["world_size"])
    for rank in run.ranks:
        rank.state["q"].copy_(torch.tensor(inputs["Q0"]).view(-1))
    for want in expected["steps"]:
        update = run.advance([g.reshape(-1) for g in grads])
        torch.testing.assert_close(update.view(shape), torch.tensor(want["update"]), rtol=1e-6, atol=1e-6)
        errors = want.get("errors", want.get("errors_local_projection"))
        for rank, error in zip(run.ranks, errors, strict=True):
            torch.testing.assert_close(rank.residual.view(shape), torch.tensor(error), rtol=2e-6, atol=2e-6)


def test_wire_bytes() -> None:
    for row in golden("wire_bytes_lowrank")[2]["rows"]:
        shape, rank = (row["rows"], row["cols"]), row["rank"]
        p, q = build(f"powersgd(rank={rank})"), build(f"acpsgd(rank={rank})")
        if 2 * row["powersgd_bytes"] >= row["dense_bytes"]:  # not worth it: it travels as it is
            assert p.layout_of([shape], 1.0).nbytes == q.layout_of([shape], 1.0).nbytes == row["dense_bytes"]
            continue
        assert p.layout_of([shape], 1.0).nbytes == row["powersgd_bytes"]
        assert p.layout_of([shape], 1.0).first * 4 == row["acp_P_bytes"]
        # payloads have room for the larger factor on all steps, so the smaller factor is padded
        assert q.layout_of([shape], 1.0).nbytes == max(row["acp_P_bytes"], row["acp_Q_bytes"])
        assert p.layout_of([shape, (17,)], 1.0).nbytes == row["powersgd_bytes"] + 4 * 17


@pytest.mark.parametrize("spec", ["powersgd", "acpsgd", "powersgd(rank=1)"])
def test_layout_of_a_size_is_that_of_a_square(spec: str) -> None:
    compressor = build(spec)
    for side in (1, 2, 50, 1000):
        assert compressor.layout(side * side, 1.0) == compressor.layout_of([(side, side)], 1.0)
    for numel in (1, 2, 3, 7, 1009, 25_557_032):
        assert 0 < compressor.layout(numel, 1.0).nbytes <= 4 * numel
        assert compressor.layout(numel, 0.1) == compressor.layout(numel, 1.0)


def test_split_takes_the_first_dimension_by_the_rest() -> None:
    parts = split(((64, 3, 7, 7), (64,), (), (0, 5), (10, 64), (3, 2)), LowRankOptions(4))
    assert [(m.rows, m.cols, m.rank) for m in parts.matrices] == [(64, 147, 4), (10, 64, 4)]
    assert parts.left == sum(m.rows * m.rank for m in parts.matrices)
    assert parts.right == sum(m.cols * m.rank for m in parts.matrices)
    covered = [m.span for m in parts.matrices] + list(parts.plain)
    assert sum(span.stop - span.start for span in covered) == 64 * 147 + 64 + 1 + 0 + 640 + 6


def test_the_smallest_compression_rate_decides_which_matrices_are_factored() -> None:
    shapes = ((1024, 1024), (4096, 1024), (1024,), (2, 1024))

    def factored(rate: float) -> list[tuple[int, int, int]]:
        return [(m.rows, m.cols, m.rank) for m in split(shapes, LowRankOptions(256, rate)).matrices]

    square, wide, tiny = (1024, 1024, 256), (4096, 1024, 256), (2, 1024, 2)
    assert factored(2) == [wide]  # both factors of the square are exactly half of it
    assert factored(1.99) == factored(1) == [square, wide]
    assert factored(0) == [square, wide, tiny]  # all matrices, also where that takes more bytes; never a vector
    every = build("acpsgd(rank=256,min_compression_rate=0)")
    assert every.layout_of(shapes[:1], 1.0).nbytes == 4 * 1024 * 256
    assert build("acpsgd(rank=256)").layout_of(shapes[:1], 1.0).nbytes == 4 * 1024 * 1024


@pytest.mark.parametrize("name", ["powersgd", "acpsgd"])
@pytest.mark.parametrize(("option", "said"), [("rank=0", "rank must be"), ("min_compression_rate=-1", "min_compr")])
def test_impossible_options_are_refused(name: str, option: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(f"{name}({option})")


@pytest.mark.parametrize("spec", ["powersgd", "acpsgd", "acpsgd(warm_start=False)"])
@given(rows=st.integers(30, 60), cols=st.integers(30, 60), seed=st.integers(0, 1000), rank=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_alone_it_is_an_orthogonal_projection(spec: str, rows: int, cols: int, seed: int, rank: int) -> None:
    spec = spec.replace(")", f",rank={rank})") if "(" in spec else f"{spec}(rank={rank})"
    run = Run(build(spec), ((rows, cols), (7,)), 1, seed)
    a = torch.randn(rows * cols + 7, generator=torch.Generator().manual_seed(seed))
    for _ in range(3):
        run.ranks[0].residual.zero_()
        update = run.advance([a]).double()
        left, whole = (a - update).square().sum(), a.double().square().sum()
        assert left <= whole
        torch.testing.assert_close(left, whole - update.square().sum(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(run.ranks[0].residual.double(), a - update, rtol=1e-4, atol=1e-5)
        assert torch.equal(update[-7:].float(), a[-7:])


@pytest.mark.parametrize("spec", ["powersgd(rank=3)", "acpsgd(rank=3)"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_what_has_the_rank_of_the_factors_is_sent_whole(spec: str, rank: int) -> None:
    a = low_rank(40, 60, rank, seed=rank).view(-1)
    run = Run(build(spec), ((40, 60),), 1)
    for step in range(4):
        run.ranks[0].residual.zero_()
        update = run.advance([a])
        if step or run.compressor.rounds == 2:  # acpsgd has seen the matrix from one side only
            torch.testing.assert_close(update, a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("spec", "period"), [("powersgd(rank=2)", 1), ("acpsgd(rank=2)", 2)])
def test_warm_start_converges_to_the_best_factors(spec: str, period: int) -> None:
    a = torch.randn(40, 50, generator=torch.Generator().manual_seed(5))
    best = torch.linalg.svdvals(a)[2:].square().sum()
    run = Run(build(spec), ((40, 50),), 1)
    errors = []
    for _ in range(20 * period):
        run.ranks[0].residual.zero_()
        errors.append(float((a.view(-1) - run.advance([a.reshape(-1)])).square().sum()))
    errors = errors[period - 1 :: period]
    assert all(later <= earlier * (1 + 1e-5) for earlier, later in itertools.pairwise(errors))
    assert errors[-1] >= best * (1 - 1e-5)
    assert errors[-1] - best < 0.2 * (errors[0] - best)


@pytest.mark.parametrize("spec", ["powersgd", "acpsgd", "powersgd(rank=1)"])
def test_steps_without_gradients_do_not_kill_a_tensor(spec: str) -> None:
    run = Run(build(spec), ((40, 60),), 2)
    a = low_rank(40, 60, 1, seed=0).view(-1)
    zero = torch.zeros_like(a)
    for grad in (a, zero, zero, zero, a, a):
        for rank in run.ranks:
            rank.residual.zero_()
        update = run.advance([grad, grad])
        assert torch.equal(update, grad) or grad.any()
    torch.testing.assert_close(update, a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", ["powersgd", "acpsgd", "acpsgd(warm_start=False)"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_sent_and_kept_add_up_to_all_gradients_and_the_residual_stays_bounded(spec: str, world: int) -> None:
    generator = torch.Generator().manual_seed(world)
    shapes: Shapes = ((40, 6, 10), (13,), (50, 50), ())
    run = Run(build(spec), shapes, world)
    numel = 2400 + 13 + 2500 + 1
    common = torch.randn(numel, generator=generator)
    given_in, sent, norms = torch.zeros(numel), torch.zeros(numel), []
    for _ in range(40):
        grads = [common + 0.1 * torch.randn(numel, generator=generator) for _ in range(world)]
        given_in += torch.stack(grads).sum(0)
        sent += world * run.advance(grads)
        kept = torch.stack([rank.residual for rank in run.ranks]).sum(0)
        torch.testing.assert_close(sent + kept, given_in, rtol=1e-3, atol=1e-2)
        norms.append(max(float(rank.residual.norm()) for rank in run.ranks))
    assert norms[-1] < 1.5 * max(norms[:30])


def test_equal_seeds_give_equal_bits_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    a = torch.randn(2400, generator=torch.Generator().manual_seed(0))
    for spec in ("powersgd", "acpsgd", "acpsgd(warm_start=False)"):
        one, same, other = (Run(build(spec), ((40, 60),), 1, seed).advance([a]) for seed in (4, 4, 5))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("spec", ["powersgd", "acpsgd"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_reaches_every_receiver(spec: str, bad: float) -> None:
    run = Run(build(spec), ((40, 60), (5,)), 2)
    good = torch.randn(2405, generator=torch.Generator().manual_seed(0))
    a = good.clone()
    a[77] = bad
    compressor = run.compressor
    for rank, x in enumerate((good, a)):
        if compressor.rounds == 2:
            compressor.propose(x, run.ranks[rank].payload, run.context(rank))
    for r in run.ranks if compressor.rounds == 2 else ():
        r.payload.first.copy_(torch.stack([other.payload.first for other in run.ranks]).sum(0))
    for rank, x in enumerate((good, a)):
        compressor.compress(x, run.ranks[rank].payload, run.context(rank))
    assert not torch.isfinite(run.ranks[0].payload.values + run.ranks[1].payload.values).all()


def test_a_basis_is_orthonormal_whatever_it_spans() -> None:
    for factor in (torch.randn(30, 4), torch.zeros(30, 4), torch.ones(30, 4), torch.randn(30, 4) * 1e-30):
        columns = basis(factor)
        assert columns.dtype == torch.float32
        torch.testing.assert_close(columns.T @ columns, torch.eye(4), rtol=0, atol=1e-5)


def test_only_columns_of_zeros_are_replaced() -> None:
    factor, fresh = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.full((2, 2), 7.0)
    assert revived(factor, fresh).tolist() == [[7.0, 1.0], [7.0, 0.0]]


@pytest.mark.parametrize("name", ["powersgd", "acpsgd"])
def test_a_density_is_refused_because_it_has_no_effect(name: str) -> None:
    assert not keeps_fraction(name)
    with pytest.raises(ConfigError, match=r"density=0[.]01 would have no effect"):
        make_plan(
            "per_tensor",
            make_profile([100, 200], [0, 0]),
            random_costs(random.Random(0), 2),
            {"compressor": name, "density": 0.01},
        )
    with pytest.raises(ConfigError, match=r"rank must be in \[1, 4096\]"):
        build(f"{name}(rank=0)")
