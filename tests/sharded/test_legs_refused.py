"""What `ssfx.attach` refuses for `fully_shard`, at once or when it is seen, in one line."""

from typing import Any

import pytest
import torch
from runtime.ranks import each_rank
from runtime.work_guards import error_of
from sharded import work
from sharded.conftest import Run
from sharded.models import adam, build, loss_of, mesh_of
from sharded.test_legs import FLAT, FLAT_TOPK, LEGS, POWERSGD, SLOW, TOPK, Options
from torch import nn

import ssfx
from ssfx.core.errors import ConfigError, RunError
from ssfx.runtime.attach import attach_whole
from ssfx.sharded import torch_fsdp


@pytest.mark.parametrize(("case", "words"), [("loss", ["shape (3,)"]), ("adapter", ["shape (2, 2)", "fully_shard"])])
@each_rank(4, by="ranks")
def test_weights_that_no_exchange_covers_are_named(group, rank, world, case, words):
    model = build(mesh_of(0, world))
    proxies = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([*model.parameters(), *([proxies] if case == "loss" else [])], lr=0.1)
    sync = ssfx.attach(model, optimizer)

    def step() -> None:
        if case == "loss":
            (loss_of(model, rank, 0) * proxies.sum()).backward()
        else:
            model.adapter = nn.Linear(2, 2)
            adapters = torch.optim.SGD(model.adapter.parameters(), lr=0.1)
            (loss_of(model, rank, 0) + model.adapter.weight.sum()).backward()
            adapters.step()
        optimizer.step()

    text = error_of(step)
    sync.detach()
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("shape", "options", "key", "value", "word"),
    [
        ((2, 2), TOPK, "shards", 4, "shards=4"),
        ((2, 2), TOPK, "shard", 7, "shard=7"),
        ((2, 2), TOPK, "rank", 7, "rank=7"),
        ((2, 2), TOPK, "scheme", "ddp", "scheme=ddp"),
        ((2, 2), TOPK, "plan", "{}", "plan"),
        ((2, 2), TOPK, "memory", {"other": {}}, "another model"),
        ((0, 4), FLAT, "shards", 8, "shards=8"),
        ((0, 4), FLAT, "shard_sums", "torch", "shard_sums=torch"),
        ((0, 4), FLAT, "options", "[], exempt norm.weight", "exempt norm.weight"),
        ((0, 4), FLAT, "memory", {"head.weight to 9": {}}, "another model"),
    ],
)
def test_a_state_of_another_place_or_exchange_is_refused(
    ranks: Run, shape: Any, options: Options, key: str, value: Any, word: str
) -> None:
    for text in ranks(work.changed_state, 4, shape, options, key, value):
        assert word in text
        assert "\n" not in text


@pytest.mark.parametrize(("shape", "options"), LEGS)
@each_rank(4, by="ranks")
def test_what_cannot_be_exchanged_later_is_said(group, rank, world, shape, options):
    model = build(mesh_of(*shape))
    sync = ssfx.attach(model, adam(model), **options)
    model.blocks[0].up.bias.requires_grad_(False)
    text = error_of(lambda: loss_of(model, rank, 0).backward(), RunError)
    sync.detach()
    assert "frozen after attach" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((0, 4), TOPK, ["topk", "residual of the whole model", 'memory="residual"']),
        ((0, 4), POWERSGD, ["powersgd", "its chunk", "qsgd(bits=8)"]),
        ((0, 4), {"scheme": "oktopk"}, ["oktopk", "one rank", "ddp_fp16"]),
        ((0, 4), {"scheme": "signsgd"}, ["signsgd", "qsgd(bits=8)"]),
        ((0, 4), {"shards": {}}, ["one dimension", "leave shards out"]),
        ((0, 4), {"scheme": "auto"}, ["auto", "per_tensor"]),
        ((2, 2), {"exempt": "bias"}, ["'bias'", "vectors"]),
        ((2, 2), {"shards": TOPK}, ["topk", "residual of the whole model"]),
        ((2, 2), {"shards": "bf16"}, ["shards='bf16'", "mapping"]),
        ((0, 4), {"weights": "topk"}, ["weights=topk", "weights=bf16"]),
        ((0, 4), {"weights": "powersgd"}, ["agrees on something first", "weights=bf16"]),
        ((4, 1), {"weights": "bf16"}, ["one shard", "leave weights out"]),
        ((4, 1), {"shards": {"scheme": "ddp_fp16"}}, ["one shard"]),
        ((1, 4), TOPK, ["one replica"]),
        ((2, 2), {"scheme": "auto", "trial_iters": 2}, ["trial_iters=2", "plans every group once", "drop"]),
        ((2, 2), TOPK | {"costs": SLOW}, ["topk", "leave costs out"]),
        ((2, 2), {"scheme": "ssfusion_oi"}, ["ssfusion_oi", "scheme=topk"]),
        ((2, 2), TOPK | {"memory": "dgc"}, ["memory=dgc", "residual"]),
        ((2, 2), TOPK | {"trace": True}, ["trace"]),
        ((2, 2), {"scheme": "per_tensor", "density_warmup": 8}, ["density_warmup", "drop"]),
        ((2, 2), {"scheme": "per_tensor", "dense_steps": 8}, ["dense_steps", "drop"]),
        ((2, 2), TOPK | {"process_group": 1}, ["process_group", "mesh"]),
        ((2, 2), TOPK | {"densty": 1}, ["densty", "density"]),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, (tuple, list)) else "",
)
@each_rank(4, by="ranks")
def test_the_rest_is_refused_in_one_line(group, rank, world, shape, options, words):
    model = build(mesh_of(*shape))
    optimizer = adam(model)
    text = error_of(lambda: ssfx.attach(model, optimizer, **options).detach())
    assert text
    assert "\n" not in text
    for word in words:
        assert word in text


@each_rank(4, by="ranks")
def test_adapters_of_trainers_refuse(group, rank, world):
    model = build(mesh_of(2, 2))
    text = error_of(lambda: attach_whole(model, adam(model)))
    ssfx.attach(model, adam(model)).detach()
    assert "whole models" in text
    assert "\n" not in text


def test_an_unknown_form_of_torchs_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"object\.shards of fully_shard in another form"):
        torch_fsdp._expected(object(), "shards")


@pytest.mark.parametrize(("shape", "options"), [((2, 2), TOPK), ((0, 4), FLAT_TOPK)], ids=["replicas", "shards"])
@each_rank(4, by="ranks")
def test_replicas_that_ask_for_different_things_are_refused(group, rank, world, shape, options):
    model = build(mesh_of(*shape))
    text = error_of(lambda: ssfx.attach(model, adam(model), **options | {"density": 0.05 if rank < 2 else 0.1}))
    assert "0.05" in text
    assert "0.1" in text
    assert "\n" not in text
