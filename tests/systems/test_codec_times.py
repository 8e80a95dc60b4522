"""Nominal times are what the implementation issues and moves, at the rates of the device."""

import importlib.util
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ssfx.advice.cases import simulate_case
from ssfx.cli import main
from ssfx.compressors import Compressor, Layout, build, compressors
from ssfx.compressors.count_cost import counted_cost
from ssfx.config.simulations import resolve_simulations
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.core.files import read_json
from ssfx.core.paths import data_dir
from ssfx.perf_model import compressor_times
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.compressor_times import (
    CALLS_PER_COLUMN,
    RANKS,
    CompressorRates,
    fused_version,
    nominal_codecs,
    published_codecs,
)
from ssfx.perf_model.devices import device, device_names

COUNTER = Path(__file__).parents[2] / "benchmarks" / "count_operators.py"
TABLE = read_json(data_dir() / "costs" / "counted.json")
MEBI = 2**20


def codecs(name="a100", world_size=8):
    return nominal_codecs(device(name), device("cpu"), world_size)


GONE = {"redsync_quant", "terngrad"}
"""Compressors that are there no more; identities of committed rows rest on the whole table of counts."""


SINCE = {
    "ef_signsgd": {
        "device": {"calls": 50, "segment_calls": 50, "nbytes": 95.5, "decode": {"calls": 23, "nbytes": 33.0}},
    }
}
"""What code does since the table was made, which prices it as before, when signs had a scale for each block."""


def test_every_compressor_is_counted():
    """Count anew after a change: python benchmarks/count_operators.py --write"""
    assert set(TABLE) == set(compressors.names()) | GONE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["topk", "ef_signsgd", "powersgd", "cltk", "hard_threshold", "fp16", "block_topk"])
def test_the_table_is_what_the_code_does(name):
    spec = importlib.util.spec_from_file_location("count_operators", COUNTER)
    counter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(counter)
    assert counter.counts(name) == TABLE[name] | SINCE.get(name, {})


FUSED = read_json(data_dir() / "costs" / "fused.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", FUSED)
def test_the_table_of_fused_kernels_is_what_they_do(name):
    spec = importlib.util.spec_from_file_location("count_operators", COUNTER)
    counter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(counter)
    assert set(counter.FUSED) == set(FUSED)
    assert counter.counts(name, by_kernels=True) == FUSED[name]
    four, numel = build("qsgd(bits=4,norm=max)"), counter.SIDE**2
    payload = four.layout(numel, 1.0).nbytes
    batch = counter.blank_batch(four, [[(counter.SIDE, counter.SIDE)]], 1.0)
    with counter.counting(counter.GPU, by_kernels=True) as encoded:
        four.compress_batch(batch)
    assert encoded.nbytes - payload == 4 * numel, "beyond the payload, of a vector that is there"


def test_fused_kernels_are_priced_on_gpus_but_not_in_rows_from_before():
    """Nor in the codes of papers; a scale for a whole segment is found in plain torch."""
    cluster = cluster_on(ClusterChoice("64gpu"), None, "auto")
    now, before = (system_on(cluster, fused) for fused in (True, False))
    assert now.codec("qsgd(bits=4)").encode(1e8) < 0.1 * before.codec("qsgd").encode(1e8)
    for spec in ("qsgd(bits=4,bucket=0)", "qsgd(bits=4,bucket=48,rotate=32)", "qsgd(bucket=8192)"):
        assert now.codec(spec) == now.planning_costs(spec, None).codec(spec) == before.codec("qsgd"), spec
    assert now.codec("qsgd(bits=4,bucket=32,rotate=64)") == now.codec("qsgd")
    assert now.codec("onebit(bucket=24)") == now.codec("onebit(bucket=1024)") != now.codec("onebit")
    assert now.codec("onebit(bucket=8192)") == now.codec("onebit") == before.codec("onebit")
    assert {spec for spec in before.codecs if now.codec(spec) != before.codec(spec)} == {"qsgd", "fp8"}
    asked = ["cluster=64gpu", "model=resnet50", "density=0.01"]
    found = {case.scheme: case for case in resolve_simulations([*asked, "scheme=topk,ddp_quantized"])}
    old = replace(found["ddp_quantized"], counts="")
    assert (found["topk"].counts, found["ddp_quantized"].counts) == ("", fused_version())
    assert simulate_case(old)[1].iteration_s > simulate_case(found["ddp_quantized"])[1].iteration_s
    with pytest.raises(ConfigError, match="a case of counts fused:0, here are"):
        simulate_case(replace(old, counts="fused:0"))


def test_the_kernels_are_those_that_the_documentation_names():
    """docs/kernels.md: 10 launches and one copy; 3n + 2n + 2n for an exact choice, 3n + 2n for a given threshold."""
    assert TABLE["topk"]["device"]["calls"] == 11
    assert TABLE["topk"]["device"]["nbytes"] == 4 * 7
    assert TABLE["hard_threshold"]["device"]["nbytes"] == 4 * 5
    assert TABLE["dgc"]["host"]["nbytes"] == 4 * 3


def test_a_call_by_hand():
    """top-k of 10 million elements on an A100: 11 launches of 4 us, 28 bytes an element at 75 % of 1,935 GB/s."""
    assert codecs()["topk"].encode(1e7) == pytest.approx(11 * 4e-6 + 28e7 / (0.75 * 1.935e12))
    assert codecs()["topk"].decode(8e5) == pytest.approx(8 * 2 * 4e-6 + 80 * 8e5 / (0.75 * 1.935e12))


def test_products_take_the_longer_of_moving_and_computing():
    on = device("rtx2080ti")
    rates, row = CompressorRates.of(on), TABLE["powersgd"]["device"]
    for rank in (4, 256):
        products_s = sum(max(one / rates.bytes_s, 2 * rank / rates.flops) for one in row["products"])
        element_s = row["nbytes"] / rates.bytes_s + products_s
        start_s = (row["calls"] + CALLS_PER_COLUMN * rank) * on.launch_s
        codec = nominal_codecs(on, device("cpu"), 32)["powersgd" if rank == 4 else f"powersgd(rank={rank})"]
        assert codec.encode(rank * 1e6) == pytest.approx(start_s + 1e6 * element_s)
    assert 2 * 4 / rates.flops < 4 / rates.bytes_s < 2 * 256 / rates.flops  # both sides of the roof


@pytest.mark.parametrize("name", device_names())
def test_every_compressor_has_times_on_every_device(name):
    found = codecs(name)
    assert set(compressors.names()) <= set(found)
    assert {f"acpsgd(rank={rank})" for rank in RANKS if rank != 4} <= set(found)
    for spec, codec in found.items():
        assert codec.origin.kind == "nominal", spec
        assert codec.origin.hardware == device(name).title
        for curve in (codec.encode, codec.host, codec.decode):
            assert 0 < curve(1) < curve(1e6) < curve(1e9) < math.inf, spec
        assert 0 <= codec.segment_s <= codec.encode(1), spec


def test_specs_of_ranks_are_the_canonical_ones():
    for spec in codecs().keys() - GONE:
        assert compressors.canonical(spec) == spec


def test_faster_memory_is_never_slower():
    slow, fast = codecs("v100"), codecs("h200")
    for spec, codec in slow.items():
        assert fast[spec].encode(1e7) < codec.encode(1e7), spec
        assert fast[spec].host == codec.host, spec


def test_more_ranks_are_more_to_decode_unless_messages_were_added_up():
    few, many = codecs(world_size=4), codecs(world_size=64)
    for spec in few.keys() - GONE:
        if build(spec).additive:
            assert many[spec].decode == few[spec].decode, spec
        else:
            assert many[spec].decode(1000) > few[spec].decode(1000), spec


def test_what_ssfusion_prints_replaces_nominal_times():
    nominal = codecs()
    found = published_codecs("ssfusion", nominal, 8)
    assert found["dgc"].encode.seconds == (0.85e-3, 0.89e-3, 1.06e-3, 1.82e-3)
    assert found["dgc"].host.seconds == (1.49e-3, 1.81e-3, 3.22e-3, 8.74e-3)
    assert found["dgc"].host_copies
    assert found["dgc"].decode == nominal["dgc"].decode
    assert found["dgc"].origin.kind == "published"
    for name in ("qsgd", "fp16", "powersgd", "signsgd"):
        assert found[name] == nominal[name]


def test_floors_that_are_not_printed_for_a_compressor_are_not_called_published():
    nominal = codecs()
    found = published_codecs("ssfusion", nominal, 8)
    for name in ("sidco", "topk"):
        assert found[name].origin.kind == "nominal"
        assert "DGC" in found[name].origin.note
        assert found[name].encode == found["dgc"].encode  # one implementation for all, not ours beside the authors'
    assert found["topk"].encode(1) == pytest.approx(0.85e-3)


def test_mergecomp_overheads_add_up_to_the_printed_ones():
    """161 tensors on two GPUs: 120 ms with DGC and 65 ms with EFSignSGD, decoding two messages included."""
    found = published_codecs("mergecomp", codecs("v100", 2), 2)
    for name, printed_s in (("dgc", 0.120), ("ef_signsgd", 0.065)):
        floors_s = found[name].encode.seconds[0] + found[name].decode.seconds[0]
        assert 161 * floors_s == pytest.approx(printed_s, rel=0.01)
        assert found[name].origin.kind == "published"
    assert found["fp16"].encode(1) == pytest.approx(0.1e-3)
    assert found["acpsgd(rank=32)"].encode(1) >= 0.1e-3


def test_compressors_named_by_published_tables_exist():
    for paper in ("ssfusion", "mergecomp"):
        table = json.loads((data_dir() / "costs" / f"{paper}.json").read_text())
        named = [*table["curves"], *(name for one in table["calls"] for name in one["compressors"])]
        assert len(named) == len(set(named))
        assert set(named) <= set(compressors.names())
        assert all(one["note"] for one in table["calls"])


class Int8(Compressor):
    """One of the user's, without a cost()."""

    name, summary, source = "int8_uncounted", "8-bit integers with one scale per segment", "a test"

    def layout(self, numel, density):
        return Layout(scales=1, code_bytes=numel)

    def compress(self, a, payload, ctx):
        payload.scales.copy_(a.abs().amax() / 127)
        payload.codes.view(torch.int8).copy_((a / payload.scales).round())

    def decompress_add(self, payload, out, ctx, scale=1.0):
        out.add_(payload.codes.view(torch.int8) * payload.scales, alpha=scale)


class Broken(Int8):
    """One that fails on any gradient."""

    name = "broken_uncounted"

    def compress(self, a, payload, ctx):
        raise KeyError("no such table")


def test_an_own_compressor_that_fails_on_the_sample_is_refused_with_what_it_said(monkeypatch, capsys):
    monkeypatch.setattr(
        compressors, "_entries", {**compressors._entries, Broken.name: SimpleNamespace(name=Broken.name)}
    )
    monkeypatch.setattr(compressor_times, "build", lambda spec: Broken(None) if spec == Broken.name else build(spec))
    assert main(["profile", "compressors", Broken.name, "--on", "a100"]) == 2
    said = capsys.readouterr().err
    assert "no times for compressor broken_uncounted on a100" in said
    assert said.strip().endswith("its operators could not be counted on a sample: KeyError: 'no such table'")


def test_an_own_compressor_without_a_cost_is_counted_by_its_operators_and_says_so(monkeypatch, capsys):
    cost = counted_cost(Int8(None))
    assert cost.nbytes == 8 + 4 + 8 + 8 + 5 + 4  # abs, amax, a / scale, round, to codes, and the batch reads it once
    assert (cost.decode_calls, cost.decode_nbytes) == (2, 5 + 12)
    assert 7 <= cost.calls == cost.segment_calls
    with pytest.raises(ValueError, match="outside of torch operators"):
        counted_cost(build("topk"))

    entries = compressors._entries  # a plugin adds to them
    monkeypatch.setattr(compressors, "_entries", {**entries, Int8.name: SimpleNamespace(name=Int8.name)})
    monkeypatch.setattr(compressor_times, "build", lambda spec: Int8(None) if spec == Int8.name else build(spec))
    assert main(["profile", "compressors", Int8.name, "--on", "a100"]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^{Int8.name} +{cost.calls * 4e-3:.3g}", said, re.MULTILINE)
    assert "nominal: " in said
    assert "counted on a sample, as the compressor has no cost()" in said
