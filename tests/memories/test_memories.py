"""Memories: golden traces, conservation over many steps, rollback, and which compressors they go with."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from compressors.kit import CASTS, SPARSIFIERS, context, golden
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Payload, build
from ssfx.compressors.memories import Memory, check_pair, memories
from ssfx.compressors.sparse import write
from ssfx.core.errors import ConfigError

State = dict[str, torch.Tensor]
Select = Callable[[Payload, torch.Tensor], None]


def blank(memory: Memory, numel: int) -> State:
    return {name: torch.zeros(numel) for name in memory.buffers}


def run_step(
    memory: Memory,
    spec: str,
    grad: torch.Tensor,
    old: State,
    density: float,
    step: int = 0,
    select: Select | None = None,
) -> tuple[State, torch.Tensor, torch.Tensor]:
    """Return (new state, what was handed to the compressor, what receivers decode)."""
    compressor = build(spec)
    shapes = ((grad.numel(),),)
    state = {name: torch.zeros(shape) for name, shape in compressor.state_shapes(shapes).items()}
    ctx = replace(context(density, step=step), shapes=shapes, state=state)
    new = {name: torch.full_like(buffer, torch.nan) for name, buffer in old.items()}
    committed = {name: buffer.clone() for name, buffer in old.items()}
    before = grad.clone()
    memory.accumulate(grad, old, new)
    accumulated = new[memory.buffers[0]].clone()
    payload = Payload.allocate(compressor.layout(grad.numel(), density))
    if select is None:
        compressor.compress(new[memory.buffers[0]], payload, ctx)
    else:
        select(payload, new[memory.buffers[0]])
    memory.sent(compressor, payload, new, ctx)
    sent = torch.zeros(grad.numel())
    compressor.decompress_add(payload, sent, ctx)
    assert torch.equal(grad, before), "the gradient is left unchanged"
    assert all(torch.equal(old[name], committed[name]) for name in old), "a rollback needs the old state as it was"
    return new, accumulated, sent


@pytest.mark.parametrize("case", ["ef_unscaled", "ef_conservation"])
def test_golden_residual(case: str) -> None:
    inputs, params, expected = golden(case)
    memory = memories.build("residual")
    state, parameters, total = blank(memory, 3), torch.zeros(3), torch.zeros(3)
    for i, grad in enumerate(inputs["grads"]):
        state, accumulated, sent = run_step(memory, "topk", torch.tensor(grad), state, params["k"] / 3, step=i)
        total += sent
        if case == "ef_unscaled":
            parameters -= inputs["lr"][i] * sent
            want = expected["steps"][i]
            assert accumulated.tolist() == want["acc"]
            assert sent.nonzero().view(-1).tolist() == [want["selected"]]
            assert state["residual"].tolist() == want["residual"]
            assert parameters.tolist() == want["params"]
    if case == "ef_conservation":
        assert total.tolist() == expected["sum_sent"]
        assert state["residual"].tolist() == expected["residual"]
        assert (total + state["residual"]).tolist() == expected["sum_grads"]


def test_golden_fp16_values() -> None:
    inputs, params, expected = golden("ef_fp16_values")
    memory = memories.build("residual")
    grad = torch.tensor(inputs["acc"])
    state, _, sent = run_step(memory, "topk(value_dtype=float16)", grad, blank(memory, 2), params["k"] / 2)
    assert sent.tolist() == expected["sent_decoded"]
    assert state["residual"].tolist() == pytest.approx(expected["residual"], abs=1e-12)


def test_golden_dgc_memory() -> None:
    inputs, params, expected = golden("dgc_memory_nesterov0_masking1")
    memory = memories.build(f"dgc(momentum={params['momentum']})")
    state = blank(memory, 4)
    for grad, selected, want in zip(inputs["grads"], inputs["selected"], expected["steps"], strict=True):

        def select(payload: Payload, a: torch.Tensor, selected: list[int] = selected) -> None:
            write(payload, torch.tensor(selected), a)

        state, accumulated, sent = run_step(memory, "topk", torch.tensor(grad), state, 1.0, select=select)
        assert accumulated.tolist() == want["accumulated"]
        assert sent[want["sent_indices"]].tolist() == want["sent"]
        assert state["momentum"].tolist() == want["U_after"]
        assert state["velocity"].tolist() == want["V_after"]


def test_padding_does_not_mask_position_zero() -> None:
    memory = memories.build("dgc")
    grad = torch.tensor([0.5, -3.0, 2.0, 0.0])

    def select(payload: Payload, a: torch.Tensor) -> None:
        write(payload, torch.tensor([1]), a)  # three slots stay padding: index 0, value 0

    state, _, _ = run_step(memory, "topk", grad, blank(memory, 4), 1.0, select=select)
    assert state["momentum"].tolist() == [0.5, 0.0, 2.0, 0.0]
    assert state["velocity"].tolist() == [0.5, 0.0, 2.0, 0.0]


def test_dense_update_is_sgd_momentum() -> None:
    memory = memories.build("dgc(momentum=0.9)")
    assert memory.dense_momentum
    assert memory.forbids_optimizer_momentum
    parameter = torch.nn.Parameter(torch.zeros(5))
    reference = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    ours, momentum = torch.zeros(5), torch.zeros(5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        grad = torch.randn(5, generator=generator)
        parameter.grad = grad.clone()
        reference.step()
        memory.dense_update(grad, momentum)
        ours -= 0.1 * grad
        torch.testing.assert_close(ours, parameter.detach())


def test_only_momentum_memories_update_dense_gradients() -> None:
    with pytest.raises(TypeError, match="residual"):
        memories.build("residual").dense_update(torch.zeros(1), torch.zeros(1))


@pytest.mark.parametrize("spec", ["topk", "randomk", "dgc", "dgc(mode=faithful)"])
@given(numel=st.integers(1, 400), seed=st.integers(0, 1000), density=st.floats(0.01, 1.0))
@settings(max_examples=15, deadline=None)
def test_integer_gradients_are_conserved_exactly(spec: str, numel: int, seed: int, density: float) -> None:
    memory, generator = memories.build("residual"), torch.Generator().manual_seed(seed)
    state, total_in, total_out = blank(memory, numel), torch.zeros(numel), torch.zeros(numel)
    for step in range(30):
        grad = torch.randint(-9, 10, (numel,), generator=generator).float()
        state, _, sent = run_step(memory, spec, grad, state, density, step)
        total_in += grad
        total_out += sent
    assert torch.equal(total_out + state["residual"], total_in)


@pytest.mark.parametrize("spec", [*SPARSIFIERS, *CASTS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_mass_is_conserved_over_many_steps(spec: str, dtype: torch.dtype) -> None:
    memory, generator, numel = memories.build("residual"), torch.Generator().manual_seed(0), 500
    state = blank(memory, numel)
    total_in, total_out = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
    for step in range(100):
        grad = torch.randn(numel, generator=generator).to(dtype)
        state, _, sent = run_step(memory, spec, grad, state, 0.05, step)
        total_in += grad.double()
        total_out += sent.double()
    torch.testing.assert_close(total_out + state["residual"].double(), total_in, rtol=0, atol=1e-4)


@pytest.mark.parametrize("spec", ["topk", "dgc", "randomk"])
def test_a_constant_gradient_reaches_every_element(spec: str) -> None:
    memory, numel = memories.build("residual"), 100
    state, total = blank(memory, numel), torch.zeros(numel)
    for step in range(200):
        state, _, sent = run_step(memory, spec, torch.ones(numel), state, 0.05, step)
        total += sent
    assert total.min() > 0


def test_no_memory_forgets() -> None:
    memory = memories.build("none")
    assert not memory.stateful
    state, accumulated, sent = run_step(memory, "topk", torch.tensor([1.0, -3.0]).half(), blank(memory, 2), 0.5)
    assert accumulated.tolist() == [1.0, -3.0]
    assert sent.tolist() == [0.0, -3.0]
    assert state["accumulated"].tolist() == [1.0, -3.0]


LEGAL = [
    ("none", "topk"),
    ("none", "fp16"),
    ("none", "qsgd(bits=4)"),
    ("residual", "topk"),
    ("residual", "dgc"),
    ("residual", "randomk"),
    ("residual", "fp8"),
    ("dgc", "dgc"),
    ("dgc", "topk"),
    ("dgc", "gaussiank"),
]
ILLEGAL = [
    ("residual", "fp16", "nothing is left out"),
    ("dgc", "bf16", "nothing is left out"),
    ("residual", "qsgd(bits=4)", "diverges"),
    ("momentum(decay=0.9)", "qsgd(bits=4)", "diverges"),
    ("dgc(momentum=0.5)", "randomk", "which elements were sent"),
    ("dgc", "onebit", "which elements were sent"),
]


@pytest.mark.parametrize(("memory", "compressor"), LEGAL)
def test_pairs_that_work(memory: str, compressor: str) -> None:
    check_pair(memories.build(memory), build(compressor))


@pytest.mark.parametrize(("memory", "compressor", "reason"), ILLEGAL)
def test_pairs_that_are_refused(memory: str, compressor: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        check_pair(memories.build(memory), build(compressor))
    text = str(error.value)
    assert f"memory={memory} " in text
    assert f"compressor={compressor}:" in text
    assert "use memory=" in text
    assert "\n" not in text
