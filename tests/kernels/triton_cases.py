"""The CUDA kernels equal the plain-torch path; run by `test_triton.py` in processes of their own.

Triton interprets the kernels on the CPU where TRITON_INTERPRET=1 says so; else they are compiled and run on a GPU.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import test_select
from kernels.test_select import MEMORIES, Made

from ssfx.compressors import build
from ssfx.compressors.base import Layout
from ssfx.compressors.batch import Batch, compress
from ssfx.compressors.kernels import Bound, Rule
from ssfx.compressors.kernels.reference import backend as reference
from ssfx.compressors.kernels.triton import backend as cuda
from ssfx.compressors.kernels.triton import compact as compaction
from ssfx.compressors.kernels.triton import select as selection
from ssfx.compressors.kernels.triton import statistics
from ssfx.compressors.memories import memories
from ssfx.compressors.sparse import Selector
from ssfx.compressors.topk import exactly

INTERPRETED = triton.knobs.runtime.interpret
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
make = partial(test_select.make, device=DEVICE)
BITS = (selection.WIDE, selection.NARROW)

SIZES = st.lists(st.lists(st.integers(0, 40) | st.integers(0, 9000), min_size=1, max_size=3), min_size=1, max_size=3)
SEEDS = st.integers(0, 1000)
LEVELS = st.sampled_from([0.0, 0.3, 1.0, 2.0, 99.0, float("nan"), float("inf"), -1.0])
Select = Callable[[ModuleType, Batch], None]


@pytest.fixture(scope="module", params=BITS, ids=("wide", "narrow"))
def bits(request: pytest.FixtureRequest) -> Iterator[tuple[int, ...]]:
    """Every Triton's digits, whichever is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "DIGITS", request.param)
        yield request.param


searches = pytest.mark.usefixtures("bits")


class Calls(Selector):
    """A sparsifier that is one call of one of the two modules."""

    def __init__(self, module: ModuleType, select: Select) -> None:
        self.module, self.select = module, select

    def layout(self, numel: int, density: float) -> Layout:
        return build("dgc").layout(numel, density)

    def compress_batch(self, batch: Batch) -> None:
        self.select(self.module, batch)


def outcome(made: Made, module: ModuleType, select: Select) -> list[torch.Tensor]:
    """Return payload and memory after one step."""
    compress(Calls(module, select), made.batch)
    payload = made.batch.payload
    return [payload.counts, payload.indices, payload.values, *made.batch.new.values()]


def check(select: Select, *arguments: Any) -> tuple[Made, Made]:
    pair = make(*arguments), make(*arguments)
    for one, other in zip(*map(outcome, pair, (cuda, reference), (select, select)), strict=True):
        assert torch.equal(one.nan_to_num(nan=7e7), other.nan_to_num(nan=7e7))
    return pair


def top(module: ModuleType, batch: Batch) -> None:
    module.select(batch, batch.once("rule", lambda: exactly(batch)))


@searches
@pytest.mark.parametrize("spec", ["topk", "topk(value_dtype=float16)", "topk(value_dtype=bfloat16)"])
@pytest.mark.parametrize("memory", MEMORIES)
@given(sizes=SIZES, density=st.sampled_from([0.001, 0.05, 0.7, 1.0]), seed=SEEDS)
@settings(max_examples=3, deadline=None)
def test_exact_choice(spec: str, memory: str, sizes: list[list[int]], density: float, seed: int) -> None:
    check(top, spec, memories.build(memory), sizes, density, seed)


@searches
@given(sizes=SIZES, seed=SEEDS, levels=st.lists(LEVELS, min_size=3, max_size=3), rotate=st.booleans(), data=st.data())
@settings(max_examples=6, deadline=None)
def test_given_thresholds(sizes: list[list[int]], seed: int, levels: list[float], rotate: bool, data: Any) -> None:
    bounds = []
    for pieces in sizes:
        slots = build("dgc").layout(sum(pieces), 0.3).indices
        least, wanted, most = sorted(data.draw(st.tuples(*[st.integers(0, slots)] * 3)))
        bounds.append(Bound(least, wanted, most) if most else Bound(0, slots, slots))
    rule = Rule(tuple(bounds), zeros=data.draw(st.booleans()), rotate=rotate)
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    thresholds = torch.tensor(levels[: len(sizes)], dtype=dtype, device=DEVICE)
    memory = memories.build("residual")
    check(lambda module, batch: module.select(batch, rule, thresholds), "dgc", memory, sizes, 0.3, seed)


@searches
@given(sizes=SIZES, density=st.sampled_from([0.01, 0.3]), seed=SEEDS)
@settings(max_examples=5, deadline=None)
def test_a_sampled_rule_gets_exactly_what_is_wanted(sizes: list[list[int]], density: float, seed: int) -> None:
    made, plain = (make("dgc", memories.build("none"), sizes, density, seed) for _ in range(2))
    slots = [part.layout.indices for part in made.batch.parts]
    wanted = [(n + 1) // 2 for n in slots]
    sampled = Rule(tuple(Bound((k + 1) // 2, k, n) for k, n in zip(wanted, slots, strict=True)), tail=64)
    exact = Rule(tuple(Bound(k, k, k) for k in wanted))
    got = outcome(made, cuda, lambda module, batch: module.select(batch, sampled))
    for one, other in zip(got, outcome(plain, reference, lambda m, batch: m.select(batch, exact)), strict=True):
        assert torch.equal(one, other)


@given(sizes=SIZES, seed=SEEDS, levels=st.lists(LEVELS, min_size=3, max_size=3))
@settings(max_examples=6, deadline=None)
def test_statistics(sizes: list[list[int]], seed: int, levels: list[float]) -> None:
    levels_of_parts = torch.tensor(levels[: len(sizes)], dtype=torch.float64, device=DEVICE)
    thresholds = levels_of_parts.repeat_interleave(2)[::2]  # not contiguous
    found = []
    for module in (cuda, reference):
        batch = make("topk", memories.build("dgc(momentum=0.5)"), sizes, 0.1, seed).batch
        found.append(
            [
                *vars(module.moments(batch)).values(),
                module.count(batch, thresholds),
                *vars(module.tail(batch, thresholds)).values(),
                *batch.new.values(),
            ]
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-9, equal_nan=True)


@given(sizes=SIZES, seed=SEEDS, sure=st.lists(LEVELS, min_size=3, max_size=3), data=st.data())
@settings(max_examples=15, deadline=None)
def test_band(sizes: list[list[int]], seed: int, sure: list[float], data: Any) -> None:
    band = data.draw(st.lists(LEVELS, min_size=3, max_size=3))
    skip = data.draw(st.lists(st.integers(0, 50), min_size=3, max_size=3))
    arguments = [torch.tensor(values[: len(sizes)], device=DEVICE) for values in (sure, band, skip)]

    def select(module: ModuleType, batch: Batch) -> None:
        module.moments(batch)
        module.select_band(batch, *arguments)

    check(select, "topk(value_dtype=float16)", memories.build("residual"), sizes, 0.2, seed)


@searches
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_chosen_first(bad: float) -> None:
    made = make("topk", memories.build("none"), [[9000], [40]], 0.001, 2)
    made.grads[0][4711] = bad
    made.batch.grads = list(made.grads)
    _, indices, values, *_ = outcome(made, cuda, top)
    kept = made.batch.parts[0].layout.indices
    assert 4711 in indices[:kept]
    assert not torch.isfinite(values[:kept]).all()
    assert torch.isfinite(values[kept:]).all(), "the other segment is not concerned"


@searches
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("strided", [False, True])
def test_gradients_of_every_kind(dtype: torch.dtype, strided: bool) -> None:
    made, plain = (make("topk", memories.build("residual"), [[5000], [400]], 0.05, 1) for _ in range(2))
    spread = torch.zeros(10_000, dtype=dtype, device=DEVICE)
    spread[::2] = made.grads[0].to(dtype)
    made.batch.grads = [spread[::2] if strided else made.grads[0].to(dtype), made.grads[1]]
    for one, two in zip(outcome(made, cuda, top), outcome(plain, reference, top), strict=True):
        assert torch.equal(one, two)


@searches
def test_nothing_is_left_over_from_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_TILE", 2)  # so that a few blocks already take several rounds of the loops
    pair = [
        make("topk", memories.build("dgc(momentum=0.5)"), [[9000, 17, 20_000], [8000]], 0.01, seed=6) for _ in range(2)
    ]
    for step in range(3):
        results = []
        for made, module in zip(pair, (cuda, reference), strict=True):
            batch = made.batch
            batch.step, batch.base, batch.grads = step, 100 * step, [grad * (step + 1) for grad in made.grads]
            results.append([*outcome(made, module, top), *vars(module.moments(batch)).values()])
            batch.old, batch.new = batch.new, batch.old
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@searches
def test_no_threshold_leaves_out_what_is_not_finite_in_any_step() -> None:
    pair = [make("dgc", memories.build("none"), [[9000], [300]], 0.01, seed=1) for _ in range(2)]
    rule = Rule(tuple(Bound(0, 1, part.layout.indices) for part in pair[0].batch.parts))
    for level, bad in ((1.5, 1.0), (float("inf"), float("inf")), (float("inf"), float("nan")), (2.0, 0.0)):
        found = []
        for made, module in zip(pair, (cuda, reference), strict=True):
            made.grads[0][4711] = bad
            made.batch.grads = list(made.grads)
            thresholds = torch.full((2,), level, device=DEVICE)
            found.append(outcome(made, module, lambda m, batch, given=thresholds: m.select(batch, rule, given)))
        for one, other in zip(*found, strict=True):
            assert torch.equal(one.nan_to_num(nan=7e7), other.nan_to_num(nan=7e7))
        assert (4711 in found[0][1]) == (level == float("inf"))


def launches(select: Select, sizes: list[list[int]], memory: str = "dgc") -> list[str]:
    """Return the names of the kernels that one step launches, in order, and `_tally` for each block they count."""
    seen: list[str] = []

    class Seen:
        def __init__(self, kernel: Any, name: str) -> None:
            self.kernel, self.name = kernel, name

        def __getitem__(self, grid: Any) -> Any:
            seen.append(self.name)
            return self.kernel[grid]

        def __call__(self, *arguments: Any) -> Any:  # from inside another kernel
            if self.name == "_tally":
                seen.append(self.name)
            return self.kernel(*arguments)

    made = make("topk", memories.build(memory), sizes, 0.01, 0)
    with pytest.MonkeyPatch.context() as patch:
        for module in (selection, compaction, statistics):
            for name, kernel in vars(module).items():
                if isinstance(kernel, triton.runtime.interpreter.InterpretedFunction):
                    patch.setattr(module, name, Seen(kernel, name))
        outcome(made, cuda, select)
    return seen


def at(level: float) -> Select:
    """Return a selection of what reaches `level`, or of exactly so many elements where nothing does."""

    def select(module: ModuleType, batch: Batch) -> None:
        slots = [part.layout.indices for part in batch.parts]
        rule = Rule(tuple(Bound(min(1, n), n, n) for n in slots), zeros=True)
        module.select(batch, rule, torch.full((len(batch.parts),), level, device=DEVICE))

    return select


def between(module: ModuleType, batch: Batch) -> None:
    levels = torch.ones(len(batch.parts), device=DEVICE)
    module.select_band(batch, levels, levels, 0 * levels)


interpreted = pytest.mark.skipif(
    not INTERPRETED, reason="a compiled kernel calls others by what they were when it was compiled"
)


@interpreted
@pytest.mark.parametrize(
    ("select", "wide", "narrow"),
    [(top, 9, 13), (at(1.0), 10, 14), (between, 4, 4), (lambda module, batch: module.moments(batch), 2, 2)],
    ids=("exact", "given", "band", "moments"),
)
def test_the_number_of_launches_does_not_depend_on_the_number_of_tensors(
    bits: tuple[int, ...], select: Select, wide: int, narrow: int
) -> None:
    one, many = (
        [name for name in launches(select, sizes) if name != "_tally"]
        for sizes in ([[100]], [[100, 5000], [5], [], [30] * 5])
    )
    assert one == many
    assert len(one) == (wide if bits == selection.WIDE else narrow), "docs/kernels.md has a table of them"


@interpreted
@searches
def test_a_block_is_counted_only_where_it_holds_something_of_an_open_bracket() -> None:
    """Gradients are small multiples of 1/8: the first two digits are all that is not zero in their keys."""
    tallies = [launches(select, [[9000]], "none").count("_tally") for select in (top, at(1.0), at(3.25), at(99.0))]
    blocks = 3
    assert tallies == [2 * blocks, 2 * blocks, 0, 2 * blocks]


def test_more_elements_than_slots_are_refused() -> None:
    batch = make("topk", memories.build("none"), [[100]], 0.1, 0).batch
    with pytest.raises(ValueError, match="a segment with 10 slots cannot take 11 elements"):
        cuda.select(batch, Rule((Bound(0, 11, 11),)))
