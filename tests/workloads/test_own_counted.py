"""An own model that is counted for a device has the tensors of the real module, whatever its parts share."""

from pathlib import Path

import pytest
from torch import nn

from ssfx.lab.workloads.own_batch import counted_batch, own_batch, timed_batch, to_meta

FILE = Path(__file__).with_name("own_counted.py")
EVERY = [
    "tied",
    "shared",
    "frozen",
    "buffered",
    "lazy",
    "built_in_forward",
    "unused",
    "of_the_loss",
    "checkpointed",
    "recurrent",
    "parametrized",
    "gradient_penalty",
    "gpt2",
    "bert",
    "bert_without_its_pooler",
    "albert",
    "t5",
    "llama",
]


def trained(model):
    return {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("function", EVERY)
def test_counts_are_those_of_the_real_module(function):
    real = own_batch(f"{FILE}:{function}")
    real.one_loss()
    found = counted_batch(f"{FILE}:{function}", "h100")
    assert {spec.name: spec.shape for spec in found.tensors} == trained(real.model)
    assert len(found.tensors) == len(trained(real.model))
    assert found.batch_size == real.batch_size
    assert found.backward_s > 0


@pytest.mark.parametrize("function", ["lazy", "built_in_forward"])
def test_what_is_built_in_the_first_forward_pass_is_measured_too(function):
    found = timed_batch(f"{FILE}:{function}", "cpu", iterations=1, warmup=0)
    real = own_batch(f"{FILE}:{function}")
    real.one_loss()
    assert {spec.name: spec.shape for spec in found.tensors} == trained(real.model)


def test_a_tensor_in_several_places_stays_one_on_the_meta_device():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.kept = [model[0].weight]
    moved = to_meta(model)
    assert moved[0].weight is moved[1].weight is moved.kept[0]
    assert all(p.is_meta for p in moved.parameters())


def test_a_tied_head_costs_its_product_but_no_tensor_and_no_step():
    found = counted_batch(f"{FILE}:gpt2", "h100")
    numel = sum(p.numel() for p in own_batch(f"{FILE}:gpt2").model.parameters())
    assert sum(found.numel) == numel
    assert found.tensors[-1].name == "transformer.wte.weight"
