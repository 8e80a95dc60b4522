"""The shipped work of models against what is known about them: parameters, FLOPs, order of gradients."""

import json
import subprocess
import sys

import pytest
from workloads.test_models import SIZES

from ssfx.core.errors import ConfigError
from ssfx.lab.workloads import models
from ssfx.perf_model.operator_counts import COLUMNS, NOT_COUNTED, ModelWork, counted, model_work
from ssfx.perf_model.roofline import analytic_profile

COUNTED = sorted(SIZES.keys() - NOT_COUNTED.keys())


def test_every_model_is_counted():
    assert counted() == COUNTED


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_and_tensors_are_those_of_the_definition(name):
    work = model_work(name)
    assert (work.numel, len(work.tensors)) == SIZES[name]
    assert len(work.tensors) == len(work.forward) == len(work.backward)


@pytest.mark.parametrize(
    ("name", "gflop"),
    [
        ("resnet50", 2 * 4.09),
        ("resnet152", 2 * 11.51),
        ("vgg19", 2 * 19.63),
        ("vit_large", 2 * 61.6),
        ("dit_xl", 2 * 118.64),
    ],
)
def test_forward_flops_of_image_models_are_the_published_ones(name, gflop):
    """Multiply-adds at 224x224 as torchvision and the papers state them; of DiT at 256x256 (arXiv 2212.09748)."""
    assert model_work(name).flops()[0] == pytest.approx(gflop * 1e9, rel=0.03)


@pytest.mark.parametrize(
    ("name", "tokens", "layers", "width", "outside"),
    [
        ("bert_large", 384, 24, 1024, ("embeddings",)),
        ("gpt2_large", 1024, 36, 1280, ("wpe",)),  # the embedding of tokens is the head as well
        ("gpt2_xl", 1024, 48, 1600, ("wpe",)),
        ("bloom_3b", 1024, 30, 2560, ()),
    ],
)
def test_forward_flops_of_transformers_are_two_per_parameter_and_token_and_attention(
    name, tokens, layers, width, outside
):
    work = model_work(name)
    used = sum(spec.numel for spec in work.tensors if not any(word in spec.name for word in outside))
    attention = 4 * layers * tokens**2 * width
    assert work.flops()[0] == pytest.approx(2 * used * tokens + attention, rel=0.01)


@pytest.mark.parametrize(
    ("name", "tokens", "active_m", "layers", "heads_width"),
    [
        ("llama3_8b", 8192, 7505, 32, 4096),  # all but the embedding, which is looked up
        ("qwen3_8b", 4096, 7568, 36, 4096),
        ("qwen3_1_7b", 4096, 1720, 28, 2048),  # the embedding is the head as well
        ("qwen3_30b_a3b", 4096, 3041, 48, 4096),  # 3.3B activated by its model card, with the embedding of 0.3B
        ("olmoe_1b_7b", 4096, 1179, 16, 2048),  # 1.3B activated (arXiv 2409.02060), with the embedding of 0.1B
    ],
)
def test_forward_flops_of_models_of_now_are_two_per_active_parameter_and_half_of_attention(
    name, tokens, active_m, layers, heads_width
):
    attention = 2 * layers * tokens**2 * heads_width  # later tokens are masked
    assert model_work(name).flops()[0] == pytest.approx(2e6 * active_m * tokens + attention, rel=0.01)


def test_layers_that_are_computed_again_keep_their_inputs_and_one_layer_whole():
    """32 inputs of 8192 tokens of 4096 numbers; the logits outside of layers are more than a layer inside keeps."""
    work = model_work("llama3_8b")
    inputs, logits = 4 * 8192 * 32 * 4096, 4 * 8192 * 128256
    assert work.recompute
    assert inputs + logits < work.recompute_bytes == work.kept_bytes() < work.activation_bytes / 4
    assert not model_work("qwen3_1_7b").recompute
    plain, again = (analytic_profile("llama3_8b", "h100", 1, "bf16", recompute) for recompute in (False, None))
    assert again.backward_s == pytest.approx(plain.backward_s + plain.forward_s)
    assert again.forward_s == plain.forward_s


def test_forward_flops_of_an_lstm_are_two_per_parameter_and_token():
    """The embedding of a tied head is used as a matrix once; that of a separate one only looked up."""
    tied, separate = model_work("lstm_wikitext2"), model_work("lstm_650")
    assert tied.flops()[0] == pytest.approx(2 * tied.numel * 70, rel=0.01)
    looked_up = 28869 * 650
    assert separate.flops()[0] == pytest.approx(2 * (separate.numel - looked_up) * 30, rel=0.01)


FIRST_LAYER = {"vgg_small_cifar10": 2 * 3**2 * 3 * 32 * 16**2}
"""FLOPs of the forward pass of a first layer that is a large share of its small model."""


@pytest.mark.parametrize("name", COUNTED)
def test_backward_takes_twice_the_flops_of_forward(name):
    """Two products for each one, except where no gradient of the input is needed: the first layer of image models.

    Fused attention computes its scores again: five products for two.
    """
    forward, backward = model_work(name).flops()
    if name in FIRST_LAYER:
        assert backward == 2 * forward - FIRST_LAYER[name]
    else:
        assert 1.94 * forward <= backward <= (2.11 if models[name].fused_attention else 2) * forward
    assert model_work(name).flops(3) == pytest.approx((3 * forward, 3 * backward))


def test_gradients_come_in_reverse_order_of_layers():
    layers = [spec.name.rpartition(".")[0] for spec in model_work("vgg19").tensors]
    numbers = [(part == "classifier", int(number)) for part, _, number in (name.partition(".") for name in layers)]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("gpt2_large", "transformer.wte.weight"),
        ("bloom_3b", "transformer.word_embeddings.weight"),
        ("bert_large_pretraining", "bert.embeddings.word_embeddings.weight"),
        ("lstm_wikitext2", "embedding.weight"),
    ],
)
def test_tied_weights_are_ready_when_their_last_use_is_done(name, last):
    """The head uses them first in backward, but only the embedding completes the gradient."""
    names = [spec.name for spec in model_work(name).tensors]
    assert last in names[-2:]


def test_json_round_trip_and_version_check():
    work = model_work("lstm_tiny")
    assert ModelWork.from_json(work.to_json()) == work
    raw = json.loads(work.to_json())
    raw["columns"] = COLUMNS[:-1]
    with pytest.raises(ConfigError, match="counted by another version of ssfx"):
        ModelWork.from_json(json.dumps(raw))


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown model 'resnet51'; did you mean one of resnet50, "):
        model_work("resnet51")


def test_reading_work_and_making_profiles_needs_no_heavy_package():
    program = (
        "import sys\n"
        "from ssfx.perf_model.shipped_profiles import load_shipped\n"
        "from ssfx.simulator.pricing.device_memory import memory_bytes\n"
        "load_shipped('bert_large'), memory_bytes('bert_large')\n"
        "heavy = {'torch', 'numpy', 'hydra'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
