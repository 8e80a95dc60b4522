"""Specs, registries and lazy imports: names and options in, components out, without torch."""

import subprocess
import sys

import pytest

from ssfx.compressors import build, compressors
from ssfx.compressors.memories import memories
from ssfx.compressors.topk import TopKOptions
from ssfx.core.errors import ConfigError
from ssfx.core.registry import Registry
from ssfx.core.spec import Spec, name_of


def test_equal_specs_share_one_instance() -> None:
    one = build("topk(value_dtype=float16)")
    assert one is build(" topk( value_dtype = float16 ) ")
    assert build("topk") is build("topk()") is build("topk(value_dtype=float32)")
    assert one is not build("topk")
    assert one.options == TopKOptions(value_dtype="float16")


@pytest.mark.parametrize(
    ("spec", "options", "canonical"),
    [
        ("topk", {}, "topk"),
        ("topk(value_dtype=float32)", {}, "topk"),
        ("topk", {"value_dtype": "bfloat16"}, "topk(value_dtype=bfloat16)"),
        ("topk(value_dtype=float16)", {"value_dtype": "float32"}, "topk"),
        ("hard_threshold( threshold=0.7 , capacity=2)", {}, "hard_threshold(capacity=2.0,threshold=0.7)"),
        ("qsgd(norm=max,nearest=TRUE)", {"bucket": 64.0}, "qsgd(bucket=64,nearest=True,norm=max)"),
        ("acpsgd", {"warm_start": False}, "acpsgd(warm_start=False)"),
    ],
)
def test_canonical_form(spec: str, options: dict[str, object], canonical: str) -> None:
    assert compressors.canonical(spec, options) == canonical
    assert compressors.canonical(canonical) == canonical
    assert build(canonical).name == canonical.partition("(")[0]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("topj", "unknown compressor 'topj'; did you mean 'topk'"),
        ("zzzz", "ssfx list compressors has all"),
        ("topk(value_type=float16)", "did you mean 'value_dtype'"),
        ("topk(value_dtype=int8)", "float32, float16, bfloat16"),
        ("topk(value_dtype)", "'value_dtype' is not option=value"),
        ("topk(value_dtype=)", "is not option=value"),
        ("topk(value_dtype=float16,)", "'' is not option=value"),
        ("topk(value_dtype=float16,value_dtype=float32)", "twice"),
        ("topk(", "write a name, or name"),
        ("to pk", "write a name, or name"),
        ("", "write a name, or name"),
        ("topk(a=b)(c=d)", "write a name, or name"),
        ("qsgd(nearest=1)", "must be true or false"),
        ("hard_threshold(capacity=big)", "must be of type float"),
        ("hard_threshold(capacity=inf)", "finite"),
        ("hard_threshold(capacity=nan)", "finite"),
        ("qsgd(bucket=2.5)", "must be of type int"),
    ],
)
def test_wrong_specs_are_one_clear_line(spec: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(spec)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("64gpu(calibration=nominal, inter.gbps=10)", "64gpu", {"calibration": "nominal", "inter.gbps": "10"}),
        ("synthetic(model=mine/small.py:build)", "synthetic", {"model": "mine/small.py:build"}),
        ("my runs/small.py:make", "my runs/small.py:make", {}),
    ],
)
def test_a_name_may_be_a_path_and_options_keep_their_order(text: str, name: str, options: dict[str, str]) -> None:
    spec = Spec.parse(text)
    assert (spec.name, list(spec.options.items())) == (name, list(options.items()))
    assert name_of(text) == name
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "option", "value", "words"),
    [
        ("hard_threshold", "capacity", True, "of type float"),
        ("hard_threshold", "capacity", None, "of type float"),
        ("hard_threshold", "capacity", [1], "of type float"),
        ("qsgd", "bucket", True, "of type int"),
        ("qsgd", "bucket", 2.5, "of type int"),
        ("qsgd", "bucket", float("inf"), "of type int"),
        ("qsgd", "nearest", 1, "true or false"),
        ("dgc", "mode", None, "of type str"),
    ],
)
def test_wrong_types_of_given_options(spec: str, option: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compressors.canonical(spec, {option: value})


def test_a_memory_is_found_like_a_compressor() -> None:
    assert memories.names() == sorted(memories.names())
    assert {"none", "residual", "dgc"} <= set(memories.names())
    assert {"topk", "randomk", "dgc", "fp16", "bf16"} <= set(compressors.names())
    assert "topk" in compressors
    assert "residual" not in compressors
    with pytest.raises(ConfigError, match="decay must be in"):
        memories.build("momentum(decay=2)")
    with pytest.raises(ConfigError, match="momentum must be in"):
        memories.build("dgc(momentum=1)")


def test_every_entry_declares_itself() -> None:
    for catalog in (compressors, memories):
        for entry in catalog:
            assert entry.cls.summary
            assert entry.cls.source
            assert catalog.build(entry.name).options == entry.options
            assert len(f"{entry.name}: {entry.summary}") <= 100


def test_registering_a_name_twice_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        compressors.add(compressors["topk"])


def test_who_asks_for_one_component_does_not_pay_for_the_others() -> None:
    program = """
import sys
from ssfx.schemes import schemes
from ssfx.compressors import compressors
assert schemes["ssfusion_oi"].name == "ssfusion_oi"  # ssfusion.py has several schemes
assert compressors["topk"].name == "topk"
others = {"ssfx.schemes.espresso", "ssfx.schemes.hipress", "ssfx.compressors.sidco", "ssfx.compressors.qsgd"}
assert not others & set(sys.modules), others & set(sys.modules)
print(*compressors.names(), sep=",")
assert others - {"ssfx.schemes.espresso", "ssfx.schemes.hipress"} <= set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().split(",") == compressors.names()


def test_a_package_that_fails_to_import_fails_every_time() -> None:
    broken: Registry[object] = Registry("thing", "ssfx_no_such_package")  # type: ignore[type-var]
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            broken.names()


def test_declarations_are_read_without_torch_or_numpy() -> None:
    program = """
import sys
import ssfx.compressors, ssfx.compressors.memories
from ssfx.compressors import compressors
from ssfx.compressors.memories import check_pair, memories
for catalog in (compressors, memories):
    for entry in catalog:
        print(entry.name, entry.summary, entry.cls.source)
        catalog.build(entry.name)
for entry in compressors:
    assert compressors.build(entry.name).layout(1000, 0.01).nbytes > 0
check_pair(memories.build("residual"), compressors.build("topk"))
loaded = {"torch", "numpy"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "topk" in done.stdout


def test_lazy_modules_are_the_real_ones() -> None:
    import numpy
    import torch

    from ssfx.core import lazy

    assert lazy.torch.zeros is torch.zeros
    assert lazy.numpy.abs is numpy.abs
    with pytest.raises(AttributeError):
        _ = lazy.numpy.no_such_thing
