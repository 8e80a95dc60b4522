"""Low-pass memory: beta 1 is the residual memory, smaller ones follow slowly; the golden case runs with cltk."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Context, Payload, build
from ssfx.compressors.memories import Memory, check_pair, memories
from ssfx.core.errors import ConfigError

CONTEXT = Context(step=0, tensor_id=0, rank=0, world_size=1, density=0.25)


def run(memory: Memory, grads: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what topk sent and what the memory kept at every step."""
    compressor, n = build("topk"), len(grads[0])
    old = {name: torch.zeros(n) for name in memory.buffers}
    sent, kept = [], []
    for g in grads:
        new = {name: torch.full((n,), 7.0) for name in memory.buffers}
        memory.accumulate(g, old, new)
        payload = Payload.allocate(compressor.layout(n, CONTEXT.density))
        compressor.compress(new["residual"], payload, CONTEXT)
        memory.sent(compressor, payload, new, CONTEXT)
        decoded = torch.zeros(n)
        compressor.decompress_add(payload, decoded, CONTEXT)
        sent.append(decoded)
        kept.append(new["residual"].clone())
        old = new
    return sent, kept


@given(beta=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_residual_moves_by_beta_times_what_was_not_sent(beta: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(20, generator=generator) for _ in range(6)]
    sent, kept = run(memories.build(f"low_pass(beta={beta})"), grads)
    e = torch.zeros(20)
    for g, s, k in zip(grads, sent, kept, strict=True):
        e = e + beta * (g - s)
        torch.testing.assert_close(k, e, rtol=1e-5, atol=1e-5)


def test_beta_one_is_the_residual_memory() -> None:
    grads = [torch.randn(20, generator=torch.Generator().manual_seed(i)) for i in range(6)]
    mine, theirs = run(memories.build("low_pass(beta=1)"), grads), run(memories.build("residual"), grads)
    assert all(torch.equal(a, b) for a, b in zip(mine[0] + mine[1], theirs[0] + theirs[1], strict=True))


def test_half_precision_gradients_are_added_in_float32() -> None:
    memory = memories.build("low_pass(beta=0.5)")
    old = {"residual": torch.full((3,), 1e-4), "held": torch.zeros(3)}
    new = {"residual": torch.empty(3), "held": torch.empty(3)}
    memory.accumulate(torch.ones(3, dtype=torch.float16), old, new)
    assert torch.equal(new["residual"], torch.full((3,), 1e-4) + 1)


@pytest.mark.parametrize("beta", ["0", "-0.5", "1.5"])
def test_beta_out_of_range_is_refused(beta: str) -> None:
    with pytest.raises(ConfigError, match=r"beta must be in \(0, 1\]"):
        memories.build(f"low_pass(beta={beta})")


def test_it_is_refused_where_error_feedback_is() -> None:
    with pytest.raises(ConfigError, match="diverges"):
        check_pair(memories.build("low_pass"), build("randomk(unbiased=True)"))
    check_pair(memories.build("low_pass"), build("cltk"))
