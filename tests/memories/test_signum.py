"""Signum: the golden trace, momentum kept whole, the compiled form, dense tensors, and what it goes with."""

import pytest
import torch
from compressors.kit import decode, encode, golden

from ssfx.compressors import build
from ssfx.compressors.base import Payload
from ssfx.compressors.batch import Batch, Part, compress
from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.memories import check_pair, memories
from ssfx.core.errors import ConfigError


def test_golden_signum() -> None:
    inputs, params, expected = golden("signum")
    memory = memories.build(f"signum(beta={params['beta']})")
    old, new = {"momentum": torch.zeros(3)}, {"momentum": torch.zeros(3)}
    for grad, want in zip(inputs["grads"], expected["steps"], strict=True):
        memory.accumulate(torch.tensor(grad), old, new)
        assert new["momentum"].tolist() == pytest.approx(want["momentum"], rel=1e-6)
        payload, ctx = encode("signsgd", new["momentum"], 1.0)
        before = new["momentum"].clone()
        memory.sent(build("signsgd"), payload, new, ctx)
        assert torch.equal(new["momentum"], before), "nothing is taken out"
        assert decode("signsgd", payload, ctx, 3).tolist() == want["sign"]
        old, new = new, old


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_gradients_are_accumulated_in_float32(dtype: torch.dtype) -> None:
    memory = memories.build("signum(beta=0.5)")
    old, new = {"momentum": torch.tensor([1.0, -1.0])}, {"momentum": torch.zeros(2)}
    memory.accumulate(torch.tensor([3.0, 5.0], dtype=dtype), old, new)
    assert new["momentum"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("spec", ["topk", "signsgd"])
def test_compiled_form_is_the_same(spec: str) -> None:
    outcomes = []
    for plain in (False, True):
        generator = torch.Generator().manual_seed(0)
        numel = 500
        old = {"momentum": (torch.randn(numel, generator=generator) * 8).round()}
        grad = (torch.randn(numel, generator=generator) * 8).round()
        layout = build(spec).layout(numel, 0.1)
        part = Part(0, numel, layout, 0.1, pieces=((0, numel),))
        memory = memories.build("signum(beta=0.5)")
        batch = Batch((part,), Payload.allocate(layout), {"momentum": torch.zeros(numel)}, old, memory, grads=[grad])
        if plain:
            with plain_torch():
                compress(build(spec), batch)
        else:
            compress(build(spec), batch)
        assert torch.equal(batch.vector, old["momentum"] / 2 + grad / 2), "sending takes nothing out"
        outcomes.append((batch.vector, batch.payload.codes, batch.payload.indices, batch.payload.values))
    for one, other in zip(*outcomes, strict=True):
        assert torch.equal(one, other)


def test_dense_tensors_get_the_same_momentum() -> None:
    memory = memories.build("signum(beta=0.75)")
    assert memory.dense_momentum
    momentum = torch.tensor([4.0])
    average = torch.tensor([8.0])
    memory.dense_update(average, momentum)
    assert (average.item(), momentum.item()) == (5.0, 5.0)


def test_what_signum_goes_with() -> None:
    memory = memories.build("signum")
    assert memory.forbids_optimizer_momentum
    assert not memory.feedback
    for spec in ("signsgd", "ef_signsgd", "topk", "qsgd(bits=4)"):
        check_pair(memory, build(spec))
    with pytest.raises(ConfigError, match="beta must be in"):
        memories.build("signum(beta=1)")
