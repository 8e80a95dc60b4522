"""RedSync's policy of sizes and the thresholds that it uses again."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from compressors.kit import shapes_of_data
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Context, Layout, build, k_floor
from ssfx.compressors.batch import Batch, compress
from ssfx.compressors.blank import blank_batch
from ssfx.compressors.kernels import kernels, plain_torch
from ssfx.compressors.memories import check_pair, memories
from ssfx.core.errors import ConfigError

BY_SIZE = "redsync(mode=by_size,dense_below_bytes=400,trimmed_up_to_bytes=4000)"
SIZES = [99, 100, 1000, 1001, 0, 3000, 7]


def by_size(sizes: list[int], seed: int, memory: str, spec: str = BY_SIZE, density: float = 0.05) -> Batch:
    batch = blank_batch(build(spec), [[(n,)] for n in sizes], density, memories.build(memory))
    generator = torch.Generator().manual_seed(seed)
    batch.grads = [torch.randn(hi - lo, generator=generator) for lo, hi in batch.pieces]
    batch.step, batch.seed, batch.rank = 3, seed, 1
    return batch


def test_layouts_follow_the_policy_of_the_paper() -> None:
    codec = build("redsync(mode=by_size)")
    small, middle, large = 32 * 1024 - 1, 1 << 20, (1 << 20) + 1
    assert codec.layout(small, 0.01) == Layout(values=small)
    assert codec.layout(small + 1, 0.01) == build("redsync(mode=trimmed)").layout(small + 1, 0.01)
    assert codec.layout(middle, 0.01) == Layout(indices=k_floor(middle, 0.01), values=k_floor(middle, 0.01))
    assert codec.layout(large, 0.01) == build("redsync").layout(large, 0.01)
    assert codec.layout(0, 0.01).nbytes == 0


@pytest.mark.parametrize("memory", ["none", "residual"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_each_size_is_sent_as_its_own_mode_would(memory: str, dtype: str) -> None:
    spec = BY_SIZE.replace(")", f",value_dtype={dtype})")
    batch = by_size(SIZES, 1, memory, spec)
    codec, grads = build(spec), list(batch.grads)
    compress(codec, batch)
    for part, grad in zip(batch.parts, grads, strict=True):
        assert grad is not None
        n, share = part.numel, batch.share(part)
        out = torch.zeros(n)
        codec.decompress_add(share, out, Context(3, part.tensor_id, 1, 1, 0.05))
        if 4 * n < 400:
            assert torch.equal(out, grad.to(share.values.dtype).float())
        else:
            alone = by_size([n], 1, "none", f"redsync(mode={'trimmed' if 4 * n <= 4000 else 'search'})")
            alone.grads = [grad]
            compress(build("redsync(mode=trimmed)" if 4 * n <= 4000 else "redsync"), alone)
            assert torch.equal(share.indices, alone.payload.indices)
            assert torch.equal(share.values, alone.payload.values.to(share.values.dtype))
            assert torch.equal(share.counts, alone.payload.counts)
        if memory == "residual":
            assert torch.equal(batch.vector[part.lo : part.hi], grad - out)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 99, 100, 500, 1000, 1001, 2500]), min_size=1, max_size=5),
    density=st.sampled_from([0.001, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_both_paths_agree(sizes: list[int], density: float, seed: int) -> None:
    one, other = (by_size(sizes, seed, "residual", density=density) for _ in range(2))
    compress(build(BY_SIZE), one)
    with plain_torch():
        compress(build(BY_SIZE), other)
    for field in ("counts", "indices", "values"):
        assert torch.equal(getattr(one.payload, field), getattr(other.payload, field))
    assert torch.equal(one.vector, other.vector)


def test_awkward_tensors_conserve_their_mass() -> None:
    for numel in (50, 700, 1500):
        for name, a in shapes_of_data(numel).items():
            batch = by_size([numel], 0, "residual")
            batch.grads = [a]
            compress(build(BY_SIZE), batch)
            out = torch.zeros(numel)
            build(BY_SIZE).decompress_add(batch.payload, out, Context(3, 0, 1, 1, 0.05))
            assert torch.equal(out + batch.vector, a), name


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("segment", range(4))
def test_what_is_not_finite_reaches_receivers(bad: float, segment: int) -> None:
    batch = by_size(SIZES, 0, "residual")
    grad = batch.grads[segment]
    assert grad is not None
    grad[11] = bad
    compress(build(BY_SIZE), batch)
    finite = [bool(torch.isfinite(batch.share(part).values).all()) for part in batch.parts]
    assert finite == [i != segment for i in range(len(SIZES))]


def test_a_memory_that_looks_at_indices_is_refused_for_what_has_none() -> None:
    check_pair(memories.build("dgc"), build("redsync"))
    with pytest.raises(ConfigError, match="which elements were sent"):
        check_pair(memories.build("dgc"), build(BY_SIZE))


class Looks:
    """The kernels, with the number of passes that look for a threshold."""

    def __init__(self) -> None:
        self.number = 0

    def __getattr__(self, name: str) -> Any:
        self.number += name in ("moments", "count")
        return getattr(kernels(torch.device("cpu")), name)


@pytest.mark.parametrize("plain", [False, True])
def test_a_threshold_is_used_again_until_the_next_search(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, looks = "redsync(interval=3)", Looks()
    batch = blank_batch(build(spec), [[(4000,)], [(900,)]], 0.05, memories.build("none"))
    monkeypatch.setattr("ssfx.compressors.threshold.kernels", lambda _: looks)
    generator = torch.Generator().manual_seed(0)
    seen, searched = [], []
    with plain_torch() if plain else nullcontext():
        for step in range(7):
            batch.step, batch.grads = step, [torch.randn(n, generator=generator) * (1 + step) for n in (4000, 900)]
            before = looks.number
            compress(build(spec), batch)
            searched.append(looks.number > before)
            seen.append([state["threshold"].item() for state in batch.states])
            for part, threshold in zip(batch.parts, seen[-1], strict=True):
                reached = int((batch.vector[part.lo : part.hi].abs() >= threshold).sum())
                assert int(batch.share(part).counts[0]) == min(reached, part.layout.indices)
    assert searched == [True, False, False, True, False, False, True]
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4] == seen[5] != seen[6]
    assert all(a > 0 for row in seen for a in row)
    assert seen[0][0] != seen[0][1], "a threshold for each segment"


def test_before_the_first_search_the_capacity_is_filled_with_the_largest() -> None:
    spec = "redsync(interval=5)"
    batch = blank_batch(build(spec), [[(1000,)]], 0.05, memories.build("none"))
    grad = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    batch.step, batch.grads = 2, [grad]
    compress(build(spec), batch)
    assert int(batch.payload.counts[0]) == 65
    assert batch.payload.indices.tolist() == grad.abs().topk(65).indices.sort().values.tolist()
    assert batch.states[0]["threshold"].item() == 0


def test_only_searched_segments_use_thresholds_again() -> None:
    spec = BY_SIZE.replace(")", ",interval=2)")
    batch = blank_batch(build(spec), [[(n,)] for n in SIZES], 0.05, memories.build("none"))
    for step in range(2):
        batch.step = step
        batch.grads = [torch.randn(n, generator=torch.Generator().manual_seed(n + step)) for n in SIZES]
        compress(build(spec), batch)
    kept = [state["threshold"].item() for state in batch.states]
    assert [threshold > 0 for threshold in kept] == [4 * n > 4000 for n in SIZES]
