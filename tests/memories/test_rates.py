"""Residuals that follow the learning rate: golden traces, equality with scaled accumulation, guards, checkpoints."""

import math

import pytest
import torch
from compressors.kit import context, golden
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors import Payload, build
from ssfx.compressors.memories import memories
from ssfx.compressors.memories.rates import Rates
from ssfx.core.errors import ConfigError


class Rank:
    """One rank alone: a parameter, plain SGD, the memory and what the runtime does around it."""

    def __init__(self, numel: int, lr: float, memory: str = "lr_scaled") -> None:
        self.memory = memories.build(memory)
        self.old, self.new = ({"residual": torch.zeros(numel)} for _ in range(2))
        self.param = torch.nn.Parameter(torch.zeros(numel))
        self.optimizer = torch.optim.SGD([self.param], lr=lr)
        self.rates = Rates((self.optimizer,), {"w": self.param}, lambda name: self.old["residual"])
        self.accumulated = torch.zeros(numel)

    def step(self, grad: torch.Tensor, lr: float, density: float, step: int = 0, finite: bool = True) -> None:
        self.optimizer.param_groups[0]["lr"] = lr
        if self.memory.follows_rate:
            self.rates.begin()
        self.memory.accumulate(grad, self.old, self.new)
        self.accumulated = self.new["residual"].clone()
        compressor, ctx = build("topk"), context(density, step=step)
        payload = Payload.allocate(compressor.layout(len(grad), density))
        compressor.compress(self.new["residual"], payload, ctx)
        self.memory.sent(compressor, payload, self.new, ctx)
        if finite and "w" not in self.rates.held:
            self.old, self.new = self.new, self.old
        if finite:
            self.param.grad = torch.zeros(len(grad))
            compressor.decompress_add(payload, self.param.grad, ctx)
            self.optimizer.step()


@pytest.mark.parametrize(("case", "memory"), [("ef_unscaled", "residual"), ("ef_unscaled_rescaled", "lr_scaled")])
def test_golden_unscaled(case: str, memory: str) -> None:
    inputs, params, expected = golden(case)
    rank = Rank(3, inputs["lr"][0], memory)
    for grad, lr, want in zip(inputs["grads"], inputs["lr"], expected["steps"], strict=True):
        rank.step(torch.tensor(grad), lr, params["k"] / 3)
        assert rank.accumulated.tolist() == want["acc"]
        assert rank.old["residual"].tolist() == want["residual"]
        assert rank.param.tolist() == want["params"]


def test_golden_scaled() -> None:
    inputs, params, expected = golden("ef_scaled")
    rank = Rank(3, inputs["lr"][0])
    for grad, lr, want in zip(inputs["grads"], inputs["lr"], expected["steps"], strict=True):
        rank.step(torch.tensor(grad), lr, params["k"] / 3)
        assert (rank.accumulated * lr).tolist() == want["acc"], "in units of a parameter change"
        assert (rank.old["residual"] * lr).tolist() == want["residual"]
        assert rank.param.tolist() == want["params"]


@given(seed=st.integers(0, 1000), density=st.sampled_from([0.02, 0.1, 0.5]))
@settings(max_examples=10, deadline=None)
def test_equals_accumulating_scaled_gradients(seed: int, density: float) -> None:
    """100 steps of a schedule with powers of two, so that both ways of writing it round alike."""
    generator, numel = torch.Generator().manual_seed(seed), 50
    rank = Rank(numel, 1.0)
    residual, param = torch.zeros(numel), torch.zeros(numel)
    topk = build("topk")
    for step in range(100):
        lr = 2.0 ** -(step // 20 % 3)
        grad = torch.randn(numel, generator=generator)
        rank.step(grad, lr, density, step)
        a = residual + lr * grad
        payload, ctx = Payload.allocate(topk.layout(numel, density)), context(density)
        topk.compress(a, payload, ctx)
        sent = torch.zeros(numel)
        topk.decompress_add(payload, sent, ctx)
        residual, param = a - sent, param - sent
        assert torch.equal(rank.param.detach(), param)
        assert torch.equal(rank.old["residual"] * lr, residual)


def test_plain_residual_is_not_the_same() -> None:
    follows, plain = Rank(3, 1.0), Rank(3, 1.0, "residual")
    for rank in (follows, plain):
        rank.step(torch.tensor([4.0, 2.0, 1.0]), 1.0, 1 / 3)
        rank.step(torch.zeros(3), 0.5, 1 / 3)
    assert follows.param.tolist() == [-4.0, -2.0, 0.0]
    assert plain.param.tolist() == [-4.0, -1.0, 0.0]


def test_no_rate_no_step() -> None:
    rank = Rank(2, 0.0)
    rank.step(torch.tensor([9.0, 9.0]), 0.0, 0.5)
    assert rank.old["residual"].tolist() == [0.0, 0.0], "a gradient at rate 0 is worth nothing later"
    rank.step(torch.tensor([3.0, 1.0]), 1.0, 0.5)
    assert rank.old["residual"].tolist() == [0.0, 1.0]
    rank.step(torch.tensor([5.0, 5.0]), 0.0, 0.5)
    assert rank.old["residual"].tolist() == [0.0, 1.0], "the residual is held"
    rank.step(torch.zeros(2), 0.5, 0.5)
    assert rank.param.tolist() == [-3.0, -1.0], "and paid at the rate it was computed for"


@pytest.mark.parametrize(("lr", "factor"), [(1e-6, 16.0), (1e6, 1 / 16), (0.25, 4.0)])
def test_factor_is_limited(lr: float, factor: float) -> None:
    rank = Rank(2, 1.0)
    rank.step(torch.tensor([3.0, 1.0]), 1.0, 0.5)
    rank.step(torch.zeros(2), lr, 0.5)
    assert rank.accumulated.tolist() == [0.0, factor]
    assert rank.rates.limited_steps == (factor != 4.0)


def test_a_skipped_step_changes_no_carried_residual() -> None:
    rank = Rank(2, 1.0)
    rank.step(torch.tensor([3.0, 1.0]), 1.0, 0.5)
    rank.step(torch.full((2,), math.nan), 0.5, 0.5, finite=False)
    rank.step(torch.full((2,), math.nan), 0.0, 0.5, finite=False)
    rank.step(torch.zeros(2), 0.25, 0.5)
    assert rank.param.tolist() == [-3.0, -1.0]


def test_each_group_has_its_own_rate_and_state_is_by_name() -> None:
    params = {name: torch.nn.Parameter(torch.zeros(1)) for name in ("a", "b", "unheld")}
    store = {"a": torch.ones(1), "b": torch.ones(1)}
    groups = [{"params": [params["a"]], "lr": 1.0}, {"params": [params["b"], params["unheld"]], "lr": 1.0}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    rates = Rates((optimizer,), params, store.get)
    rates.begin()
    optimizer.param_groups[1]["lr"] = 0.5
    resumed = Rates((optimizer,), params, store.get)
    resumed.load_state_dict(rates.state_dict())
    resumed.begin()
    assert (store["a"].item(), store["b"].item()) == (1.0, 2.0)
    assert resumed.state_dict()["rates"] == {"a": 1.0, "b": 0.5, "unheld": 0.5}
    store["unheld"] = torch.ones(1)
    optimizer.param_groups[1]["lr"] = 0.0
    resumed.begin()
    assert resumed.held == {"b", "unheld"}, "what would come into being at rate 0 is worth nothing"
    assert (store["b"].item(), store["unheld"].item()) == (2.0, 1.0), "what is there is held"
    optimizer.param_groups[1]["lr"] = 0.25
    resumed.begin()
    assert resumed.held == set()
    assert (store["b"].item(), store["unheld"].item()) == (4.0, 2.0), "and follows the rate from where it was"


@pytest.mark.parametrize("adaptive", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_adaptive_optimizers_are_refused(adaptive: type[torch.optim.Optimizer]) -> None:
    param = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(ConfigError, match="use SGD, or memory=residual") as error:
        Rates((adaptive([param]),), {"w": param}, lambda name: None)  # type: ignore[call-arg]
    assert "\n" not in str(error.value)
