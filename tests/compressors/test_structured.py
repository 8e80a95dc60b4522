"""Block top-k, chunk top-m and CLT-k: golden cases, both paths, conservation, contraction, agreement of ranks."""

from contextlib import nullcontext

import pytest
import torch
from compressors.kit import context, decode, densities, encode, golden, shapes_of_data, vectors
from hypothesis import given, settings

from ssfx.compressors import Compressor, Context, Layout, Payload, build, k_floor
from ssfx.compressors.batch import Batch, Part, Starts, compress, propose
from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.memories import memories
from ssfx.core.errors import ConfigError

LOCAL = (
    "block_topk",
    "block_topk(block=1)",
    "block_topk(block=5,value_dtype=bfloat16)",
    "chunk_topm",
    "chunk_topm(m=1)",
    "chunk_topm(m=64,value_dtype=float16)",
)
AGREED = ("block_topk(agreed=True)", "block_topk(agreed=True,block=5)", "cltk")
NUMELS = (1, 2, 63, 64, 65, 1000)


def exchange(spec: str, inputs: list[torch.Tensor], density: float, step: int = 0) -> list[tuple[Payload, Context]]:
    """Run both rounds of an additive compressor on every rank's input; return the summed payloads."""
    compressor, world = build(spec), len(inputs)
    layout = compressor.layout(inputs[0].numel(), density)
    ranks = [(Payload.allocate(layout), context(density, rank=r, world_size=world, step=step)) for r in range(world)]
    for a, (payload, ctx) in zip(inputs, ranks, strict=True):
        compressor.propose(a, payload, ctx)
    first = torch.stack([payload.first for payload, _ in ranks]).sum(0, dtype=ranks[0][0].first.dtype)
    for a, (payload, ctx) in zip(inputs, ranks, strict=True):
        payload.first.copy_(first)
        compressor.compress(a, payload, ctx)
    return ranks


def received(ranks: list[tuple[Payload, Context]]) -> Payload:
    """Return what every rank holds after the second sum."""
    payload = ranks[0][0]
    total = torch.stack([p.values for p, _ in ranks]).sum(0)
    return Payload(payload.counts, payload.scales, payload.indices, total, payload.codes, payload.first)


def mean(compressor: Compressor, ranks: list[tuple[Payload, Context]], numel: int) -> torch.Tensor:
    out = torch.zeros(numel)
    compressor.decompress_add(received(ranks), out, ranks[0][1], scale=1 / len(ranks))
    return out


def test_block_topk_golden() -> None:
    inputs, params, expected = golden("block_topk")
    x = torch.tensor(inputs["x"])
    spec = f"block_topk(block={params['block']})"
    payload, ctx = encode(spec, x, params["K_blocks"] / len(expected["block_norm_sq"]))
    assert payload.indices.tolist() == expected["block_indices"]
    assert payload.values.tolist() == expected["values_padded"]
    assert (x - decode(spec, payload, ctx, x.numel())).tolist() == expected["residual"]
    assert payload.nbytes == expected["wire_bytes"]


def test_block_energies_are_those_of_the_golden_case() -> None:
    inputs, params, expected = golden("block_topk")
    x, compressor = torch.tensor(inputs["x"]), build(f"block_topk(agreed=True,block={params['block']})")
    payload = Payload.allocate(compressor.layout(x.numel(), 0.5))
    compressor.propose(x, payload, context(0.5))
    assert payload.first.tolist() == pytest.approx(expected["block_norm_sq"], rel=1e-6)


def test_chunk_topm_golden() -> None:
    inputs, params, expected = golden("chunk_topk")
    payload, _ = encode(f"chunk_topm(m={params['m']})", torch.tensor(inputs["x"]), params["m"] / params["chunk"])
    assert payload.indices.tolist() == expected["indices"]
    assert payload.values.tolist() == expected["values"]


def test_cltk_golden() -> None:
    inputs, params, expected = golden("cltk")
    grads = [torch.tensor(g) for g in inputs["grads_per_worker_every_step"]]
    memory = memories.build("residual")
    compressor, n = build("cltk"), grads[0].numel()
    old = [{name: torch.zeros(n) for name in memory.buffers} for _ in grads]
    for step, want in enumerate(expected["steps"]):
        new = [{name: torch.empty(n) for name in memory.buffers} for _ in grads]
        for rank, g in enumerate(grads):
            memory.accumulate(g, old[rank], new[rank])
        ranks = exchange("cltk", [state["residual"] for state in new], params["k"] / n, step)
        for state, (payload, ctx) in zip(new, ranks, strict=True):
            memory.sent(compressor, payload, state, ctx)
        assert step % params["world_size"] == want["leader"]
        assert all(payload.first.tolist() == want["indices"] for payload, _ in ranks)
        got = mean(compressor, ranks, n)[torch.tensor(want["indices"])]
        assert got.tolist() == pytest.approx(want["mean_values"], abs=1e-7)
        assert [state["residual"].tolist() for state in new] == want["residuals"]
        old = new


@pytest.mark.parametrize("spec", LOCAL)
@given(a=vectors(), density=densities)
@settings(max_examples=60, deadline=None)
def test_both_paths_agree_and_conserve(spec: str, a: torch.Tensor, density: float) -> None:
    if "=float16" in spec and a.abs().max() > 1e4:
        return  # out of range: the payload is infinite and the step is skipped
    payload, ctx = encode(spec, a, density)
    with plain_torch():
        oracle, _ = encode(spec, a, density)
    assert torch.equal(payload.indices, oracle.indices)
    assert torch.equal(payload.values, oracle.values)
    assert torch.all(payload.indices.diff() > 0)
    kept = a.clone()
    build(spec).decompress_add(payload, kept, ctx, scale=-1.0)
    sent = decode(spec, payload, ctx, a.numel())
    assert torch.equal((sent.double() + kept.double()).float(), a)
    if density == 1.0:
        assert torch.equal(sent, a.to(payload.values.dtype).float())


@given(a=vectors(), density=densities)
@settings(max_examples=60, deadline=None)
def test_packed_values_are_one_of_two_magnitudes_of_their_chunk(a: torch.Tensor, density: float) -> None:
    whole, packed = "chunk_topm(m=8)", "chunk_topm(m=8,packed=True)"
    density = max(density, 8 / 4096)  # a chunk of more elements is cut
    exact = decode(whole, *encode(whole, a, density), a.numel())
    payload, ctx = encode(packed, a, density)
    sent = decode(packed, payload, ctx, a.numel())
    size = int(8 / density + 1e-6)
    for lo in range(0, a.numel(), size):
        taken = exact[lo : lo + size] != 0
        numbers, got = exact[lo : lo + size][taken], sent[lo : lo + size]
        assert len(got[got != 0].abs().unique()) <= 2
        assert torch.equal(got[taken].sign(), numbers.sign())
        if len(numbers) == min(8, len(got)):  # no zero was taken, which counts as small
            above = numbers.abs() > numbers.abs().mean()
            for half in (above, ~above):
                mean = numbers[half].abs().double().mean().item() if half.any() else 0.0
                assert got[taken][half].abs().tolist() == pytest.approx([mean] * int(half.sum()), rel=1e-5)
    kept = a.clone()
    build(packed).decompress_add(payload, kept, ctx, scale=-1.0)
    torch.testing.assert_close(sent + kept, a, rtol=1e-5, atol=1e-5 * float(a.abs().max()))


@pytest.mark.parametrize("spec", ["block_topk", "block_topk(block=5)", "chunk_topm", "chunk_topm(m=1)"])
@given(a=vectors(), density=densities)
@settings(max_examples=60, deadline=None)
def test_contraction(spec: str, a: torch.Tensor, density: float) -> None:
    payload, ctx = encode(spec, a, density)
    n = a.numel()
    error = (a - decode(spec, payload, ctx, n)).double().square().sum().item()
    if spec.startswith("block"):
        block = build(spec).options.block
        fraction = k_floor(-(-n // block), density) / -(-n // block)
    else:
        fraction = density  # no chunk keeps less
    assert error <= (1 - fraction) * a.double().square().sum().item() * (1 + 1e-5)


@pytest.mark.parametrize("spec", [*LOCAL, *AGREED])
@pytest.mark.parametrize("numel", NUMELS)
def test_awkward_inputs(spec: str, numel: int) -> None:
    for name, a in shapes_of_data(numel).items():
        if name == "huge" and ("agreed" in spec or "=float16" in spec):
            continue  # squares, or halves, overflow: the payload is not finite and the step is skipped
        for density in (0.001, 0.1, 1.0):
            if build(spec).rounds == 1:
                payload, ctx = encode(spec, a, density)
            else:
                payload, ctx = exchange(spec, [a], density)[0]
            layout = build(spec).layout(numel, density)
            assert payload.nbytes == layout.nbytes
            assert layout.values <= numel
            sent = decode(spec, payload, ctx, numel)
            if density == 1.0:
                assert torch.equal(sent, a.to(payload.values.dtype).float()), name
            assert torch.all((sent == 0) | (sent == a.to(payload.values.dtype).float())), name


@pytest.mark.parametrize("spec", [*LOCAL, "chunk_topm(m=64,packed=True)", *AGREED])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("numel", [5, 30_000])
def test_what_is_not_finite_reaches_every_receiver(spec: str, bad: float, numel: int) -> None:
    good = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    a = good.clone()
    a[3] = bad
    compressor = build(spec)
    layout = compressor.layout(numel, 0.01)
    payloads = [Payload.allocate(layout) for _ in range(2)]
    ctxs = [context(0.01, rank=r, world_size=2) for r in range(2)]
    batches = [Batch.single(x, p, c) for x, p, c in zip((good, a), payloads, ctxs, strict=True)]
    if compressor.rounds == 2:
        for batch in batches:
            propose(compressor, batch)
        total = payloads[0].first + payloads[1].first
        for payload in payloads:
            payload.first.copy_(total)
    for batch in batches:
        compress(compressor, batch)
    assert not torch.isfinite(torch.cat([payloads[1].values.float(), payloads[1].scales])).all()
    if layout.indices:
        assert torch.all((payloads[1].indices >= 0) & (payloads[1].indices < numel))


@pytest.mark.parametrize("spec", AGREED)
@given(a=vectors(), density=densities)
@settings(max_examples=40, deadline=None)
def test_ranks_agree_and_the_mean_is_the_mean(spec: str, a: torch.Tensor, density: float) -> None:
    if not 0 < float(a.abs().max()) < 1e15:
        return
    n = a.numel()
    inputs = [a, a.flip(0) * 0.5, torch.zeros(n)]
    ranks = exchange(spec, inputs, density, step=1)
    assert all(torch.equal(payload.first, ranks[0][0].first) for payload, _ in ranks)
    compressor = build(spec)
    sent = []
    for x, (payload, ctx) in zip(inputs, ranks, strict=True):
        kept = x.clone()
        compressor.decompress_add(payload, kept, ctx, scale=-1.0)
        own = decode(compressor, payload, ctx, n)
        assert torch.equal(own + kept, x)
        sent.append(own)
    torch.testing.assert_close(mean(compressor, ranks, n), torch.stack(sent).sum(0) / 3)
    if density == 1.0:
        torch.testing.assert_close(mean(compressor, ranks, n), torch.stack(inputs).sum(0) / 3)


def test_agreed_blocks_leave_out_no_more_than_their_share_of_all_energy() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1000, generator=generator) for _ in range(3)]
    ranks = exchange("block_topk(agreed=True,block=10)", inputs, 0.2)
    left = sum(
        (x - decode("block_topk(agreed=True,block=10)", payload, ctx, 1000)).square().sum()
        for x, (payload, ctx) in zip(inputs, ranks, strict=True)
    )
    assert left <= 0.8 * sum(x.square().sum() for x in inputs)


def test_only_the_leader_of_a_step_chooses() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(100, generator=generator) for _ in range(3)]
    for step in range(6):
        ranks = exchange("cltk", inputs, 0.05, step=step)
        want = inputs[step % 3].abs().topk(5).indices.sort().values
        assert ranks[0][0].first.tolist() == want.tolist()


@pytest.mark.parametrize("spec", ["cltk(value_dtype=float16)", "block_topk(agreed=True,value_dtype=float16)"])
def test_a_16_bit_sum_over_ranks_stays_in_range(spec: str) -> None:
    a = torch.full((4,), 60000.0)
    assert torch.equal(mean(build(spec), exchange(spec, [a] * 8, 1.0), 4), a)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("spec", [*LOCAL, "block_topk(agreed=True,block=5)"])
def test_a_batch_is_its_segments_one_by_one(spec: str, plain: bool) -> None:
    compressor, base = build(spec), 1000
    vector = torch.randn(1403, generator=torch.Generator().manual_seed(1))
    sizes, density = (700, 1, 0, 64, 638), 0.05
    at, lo, parts = Starts(), 0, []
    for n in sizes:
        layout = compressor.layout(n, density)
        parts.append(Part(lo, lo + n, layout, density, starts=at, pieces=((lo, lo + n),)))
        at = at._replace(
            indices=at.indices + layout.indices, values=at.values + layout.values, first=at.first + layout.first
        )
        lo += n
    whole = Layout(indices=at.indices, values=at.values, value_dtype=parts[0].layout.value_dtype, first=at.first)
    batch = Batch(tuple(parts), Payload.allocate(whole), {"a": vector}, base=base)
    with plain_torch() if plain else nullcontext():
        if compressor.rounds == 2:
            propose(compressor, batch)
        compressor.compress_batch(batch)
    for part in parts:
        a = vector[part.lo : part.hi]
        if not part.numel:
            continue
        alone = exchange(spec, [a], density)[0][0] if compressor.rounds == 2 else encode(spec, a, density)[0]
        share = batch.share(part)
        assert torch.equal(share.values, alone.values)
        assert torch.equal(share.first, alone.first)
        assert torch.equal(share.indices, alone.indices + (part.lo + base if compressor.sparse else 0))


@pytest.mark.parametrize("spec", [*LOCAL, *AGREED])
def test_an_empty_tensor_takes_no_bytes(spec: str) -> None:
    payload, ctx = exchange(spec, [torch.zeros(0)], 0.1)[0] if spec in AGREED else encode(spec, torch.zeros(0), 0.1)
    assert payload.nbytes == 0
    assert decode(spec, payload, ctx, 0).numel() == 0


def test_wire_sizes() -> None:
    def nbytes(spec: str, numel: int, density: float) -> int:
        return build(spec).layout(numel, density).nbytes

    assert nbytes("block_topk(block=16)", 1600, 0.1) == 10 * (4 + 16 * 4)
    assert nbytes("block_topk(block=16,value_dtype=float16)", 1600, 0.1) == 10 * (4 + 16 * 2)
    assert nbytes("block_topk(block=16,agreed=True)", 1600, 0.1) == 4 * 100 + 10 * 16 * 4
    assert nbytes("cltk", 1000, 0.01) == 4 * 10 + 4 * 10
    assert nbytes("cltk(value_dtype=bfloat16)", 1000, 0.01) == 4 * 10 + 2 * 10
    assert nbytes("chunk_topm(m=2)", 1000, 0.01) == 8 * 10
    assert nbytes("chunk_topm(m=2)", 1050, 0.01) == 8 * 11  # the half chunk keeps one
    assert nbytes("chunk_topm(m=64,packed=True)", 4096, 1 / 64) == 64 * 14 // 8 + 8
    assert nbytes("chunk_topm(m=64,packed=True)", 4096, 1 / 4096) == 2 + 1 + 8


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("block_topk(block=0)", "block must be at least 1"),
        ("block_topk(value_dtype=int8)", "value_dtype must be one of"),
        ("chunk_topm(m=0)", r"m must be in \[1, 64\]"),
        ("chunk_topm(m=65)", r"m must be in \[1, 64\]"),
        ("chunk_topm(packed=True,value_dtype=float16)", "value_dtype=float16 is of whole values.*drop it"),
        ("cltk(value_dtype=int8)", "value_dtype must be one of"),
    ],
)
def test_wrong_options_are_one_clear_line(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(spec)
