from __future__ import annotations

import json

import pytest
import torch
from workloads.fakes import WORKLOADS

from ssfx.errors import ConfigError
from ssfx.profile import load_shipped, shipped_dir
from ssfx.workloads import models
from ssfx.workloads.nominal import BACKWARD_S, FORWARD_S, NOMINAL, nominal_profile
from ssfx.workloads.profiling import SHIPPED, record_profile


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_recorded_profile_lists_every_tensor_in_ready_order(name: str) -> None:
    threads = torch.get_num_threads()
    profile = record_profile(name, WORKLOADS[name], 2, "cpu", iterations=3, warmup=1)
    assert torch.get_num_threads() == threads
    shapes = {n: tuple(p.shape) for n, p in models[name].build().named_parameters()}
    assert {spec.name: spec.shape for spec in profile.tensors} == shapes
    assert (profile.model, profile.device, profile.batch_size, profile.origin.kind) == (name, "cpu", 2, "measured")
    assert profile.forward_s > 0
    assert profile.backward_s > 0
    names = [spec.name for spec in profile.tensors]
    first, last = {
        "resnet_tiny": ("head.weight", "conv.weight"),
        "lstm_tiny": ("head.weight", "embedding.weight"),
        "gpt2_tiny": ("transformer.ln_f.weight", "transformer.wte.weight"),
    }[name]
    assert names.index(first) <= 1
    assert names.index(last) >= len(names) - 2


def test_profiling_refuses_a_data_set_that_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="use dataset=digits"):
        record_profile("resnet_tiny", "stdlib_text", 2, "cpu")
    with pytest.raises(ConfigError, match="iterations >= 1"):
        record_profile("resnet_tiny", "digits", 2, "cpu", iterations=0)


def test_every_model_has_a_shipped_profile() -> None:
    assert {path.stem for path in shipped_dir().glob("*.json")} == set(models.names()) == {*SHIPPED, *NOMINAL}
    for name in SHIPPED:
        profile = load_shipped(name)
        assert (profile.origin.kind, profile.device, profile.batch_size) == ("measured", "cpu", models[name].batch_size)
        assert profile.origin.hardware
        assert "torch" in profile.origin.versions


def test_shipped_profiles_name_no_machine() -> None:
    for path in shipped_dir().glob("*.json"):
        assert path.stat().st_size < 48 * 1024
        strings = json.dumps(json.loads(path.read_text())["origin"])
        assert "/" not in strings


def test_shipped_shapes_are_those_of_the_models() -> None:
    for name in ("resnet_tiny", "lstm_tiny", "lstm_wikitext2"):
        with torch.device("meta"):
            shapes = {n: tuple(p.shape) for n, p in models[name].build().named_parameters()}
        assert {spec.name: spec.shape for spec in load_shipped(name).tensors} == shapes


@pytest.mark.slow
@pytest.mark.parametrize("name", NOMINAL)
def test_nominal_tables_are_up_to_date_and_labelled(name: str) -> None:
    shipped = load_shipped(name)
    assert shipped == nominal_profile(name)
    assert shipped.origin.kind == "nominal"
    assert "placeholder" in shipped.origin.note
    assert shipped.forward_s == FORWARD_S
    assert shipped.backward_s == pytest.approx(BACKWARD_S, rel=1e-4)
