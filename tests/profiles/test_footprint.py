"""Device memory by use."""

import pytest

from ssfx.core.errors import ConfigError
from ssfx.perf_model.devices import device
from ssfx.perf_model.operator_counts import model_work
from ssfx.simulator.pricing.device_memory import memory_bytes


def test_weights_gradients_and_state_are_copies_of_the_parameters():
    weights = 4 * 1_557_611_200
    found = memory_bytes("gpt2_xl", 1)
    assert (found.parameters, found.gradients, found.optimizer_state, found.residual) == (
        weights,
        weights,
        2 * weights,
        0,
    )
    assert memory_bytes("gpt2_xl", 1, "sgd").optimizer_state == weights
    assert memory_bytes("gpt2_xl", 1, residual_copies=2).residual == 2 * weights
    assert found.total == 4 * weights + found.activations


def test_activations_grow_with_the_batch():
    assert memory_bytes("resnet50", 6).activations == 6 * memory_bytes("resnet50", 1).activations
    assert memory_bytes("resnet50") == memory_bytes("resnet50", 32, "sgd")


def test_fused_attention_keeps_no_scores():
    """GPT-2 large keeps softmax, mask and masked weights of 20 heads in 36 layers: 4 + 1 + 4 bytes a score."""
    full, fused = memory_bytes("gpt2_large", 1), memory_bytes("gpt2_large", 1, fused_attention=True)
    assert full.activations - fused.activations == model_work("gpt2_large").attention_bytes
    assert full.activations - fused.activations == 36 * 20 * 1024**2 * (4 + 1 + 4)
    assert memory_bytes("resnet50", 1) == memory_bytes("resnet50", 1, fused_attention=True)


def test_sixteen_bits_halve_activations_and_add_copies_of_the_weights():
    plain, bf16 = memory_bytes("bert_large", 4), memory_bytes("bert_large", 4, precision="bf16")
    assert bf16.activations == plain.activations // 2
    assert bf16.parameters - plain.parameters == plain.parameters // 2
    assert (bf16.gradients, bf16.optimizer_state) == (plain.gradients, plain.optimizer_state)
    assert memory_bytes("bert_large", 4, precision="tf32") == plain


def test_bloom_does_not_fit_a_small_card():
    gib = 2**30
    assert memory_bytes("bloom_3b", 1).total > device("a100_40gb").memory_gib * gib
    assert memory_bytes("bloom_3b", 1, residual_copies=1).total < device("a100").memory_gib * gib


def test_impossible_requests_are_told():
    with pytest.raises(ConfigError, match="unknown optimizer 'sgb'; did you mean 'sgd'"):
        memory_bytes("resnet50", optimizer="sgb")
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        memory_bytes("resnet50", 0)
